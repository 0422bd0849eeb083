-- In the database itself, within one transaction: each row is as it was in the copy, or nothing is done.
DO $atoll$
DECLARE
    one record;
    ahead record;
    tables oid[];
    changes jsonb := convert_from(decode('{changes}', 'hex'), 'UTF8')::jsonb;
    keys text;
    columns text;
    assigned text;
    is_met boolean;
    met bigint;
BEGIN
    SELECT ARRAY(SELECT DISTINCT (change ->> 'table')::regclass::oid
        FROM jsonb_array_elements(changes) AS change) INTO tables;
{eligible}
    FOR one IN
        SELECT change ->> 'table' AS name, (change ->> 'table')::regclass::oid AS id,
            change ->> 'op' AS op, change ->> 'old' AS old, change ->> 'new' AS new
        FROM jsonb_array_elements(changes) WITH ORDINALITY AS all_of(change, number) ORDER BY number
    LOOP
        IF one.op = 'insert' THEN
            EXECUTE format('INSERT INTO %1$s SELECT ($1::%1$s).*', one.name) USING one.new;
            CONTINUE;
        END IF;
        SELECT string_agg(format('atoll_row.%1$I = ($1::%2$s).%1$I', attname, one.name), ' AND ')
        FROM pg_index, pg_attribute
        WHERE indrelid = one.id AND indisprimary AND attrelid = one.id AND attnum = ANY (indkey)
        INTO keys;
        -- Until the end nobody refers to the row anew.
        EXECUTE format(
            'SELECT FROM %s AS atoll_row WHERE %s AND (atoll_row.*)::text = $1 FOR UPDATE',
            one.name, keys
        ) USING one.old;
        GET DIAGNOSTICS met = ROW_COUNT;
        IF met <> 1 THEN
            RAISE EXCEPTION 'atoll: a row of % is not as it was in the copy', one.name;
        END IF;
        -- What its removal, or its new key, would change besides is in the change set, or in the way.
        FOR ahead IN
            SELECT conrelid::regclass AS child, (
                SELECT string_agg(
                    format('atoll_child.%I = ($1::%s).%I', c.attname, one.name, p.attname), ' AND '
                ) FROM unnest(conkey, confkey) AS pair(c, p)
                JOIN pg_attribute c ON c.attrelid = conrelid AND c.attnum = pair.c
                JOIN pg_attribute p ON p.attrelid = confrelid AND p.attnum = pair.p
            ) AS refers, (
                SELECT string_agg(
                    format('($1::%1$s).%2$I IS DISTINCT FROM ($2::%1$s).%2$I', one.name, attname),
                    ' OR '
                ) FROM pg_attribute WHERE attrelid = confrelid AND attnum = ANY (confkey)
            ) AS moves
            FROM pg_constraint
            WHERE contype = 'f' AND confrelid = one.id AND 'cnd' LIKE
                '%' || (CASE one.op WHEN 'delete' THEN confdeltype ELSE confupdtype END)::text || '%'
        LOOP
            EXECUTE format(
                'SELECT EXISTS (SELECT FROM %s AS atoll_child WHERE %s AND ($2 IS NULL OR %s))',
                ahead.child, ahead.refers, ahead.moves
            ) INTO is_met USING one.old, one.new;
            IF is_met THEN
                RAISE EXCEPTION 'atoll: rows of % refer to a row of % since', ahead.child, one.name;
            END IF;
        END LOOP;
        IF one.op = 'delete' THEN
            EXECUTE format('DELETE FROM %s AS atoll_row WHERE %s', one.name, keys) USING one.old;
        ELSE
            SELECT string_agg(quote_ident(attname), ', '),
                string_agg(format('($2::%s).%I', one.name, attname), ', ')
            FROM pg_attribute WHERE attrelid = one.id AND attnum > 0 AND NOT attisdropped
            INTO columns, assigned;
            EXECUTE format(
                'UPDATE %s AS atoll_row SET (%s) = ROW(%s) WHERE %s',
                one.name, columns, assigned, keys
            ) USING one.old, one.new;
        END IF;
        GET DIAGNOSTICS met = ROW_COUNT;
        IF met <> 1 THEN
            RAISE EXCEPTION 'atoll: a row of % is not as it was in the copy', one.name;
        END IF;
    END LOOP;
END $atoll$;
