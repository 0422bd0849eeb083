-- Refuses tables whose changes are more than their rows. `tables` has them.
    FOR one IN SELECT c.* FROM pg_class c WHERE c.oid = ANY (tables) LOOP
        IF one.relkind <> 'r' OR one.relispartition
            OR EXISTS (SELECT FROM pg_inherits WHERE one.oid IN (inhrelid, inhparent)) THEN
            RAISE EXCEPTION 'atoll: % is no table by itself', one.oid::regclass;
        ELSIF NOT EXISTS (SELECT FROM pg_index WHERE indrelid = one.oid AND indisprimary) THEN
            RAISE EXCEPTION 'atoll: % has no primary key', one.oid::regclass;
        ELSIF EXISTS (
            SELECT FROM pg_trigger
            WHERE tgrelid = one.oid AND NOT tgisinternal AND tgname <> 'zz_atoll_shadow'
        ) THEN
            RAISE EXCEPTION 'atoll: % has triggers', one.oid::regclass;
        ELSIF EXISTS (SELECT FROM pg_rewrite WHERE ev_class = one.oid) THEN
            RAISE EXCEPTION 'atoll: % has rules', one.oid::regclass;
        ELSIF EXISTS (
            SELECT FROM pg_attribute
            WHERE attrelid = one.oid AND NOT attisdropped
                AND (attgenerated <> '' OR attidentity = 'a')
        ) THEN
            RAISE EXCEPTION 'atoll: % has columns that are always generated', one.oid::regclass;
        END IF;
    END LOOP;
