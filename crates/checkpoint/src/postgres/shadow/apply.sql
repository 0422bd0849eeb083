-- In the database itself, within one transaction: each row is as it was in the copy, or nothing is done.
-- Changes of one kind to one table that follow each other are made at once.
DO $atoll$
DECLARE
    one record;
    part record;
    ahead record;
    tables oid[];
    changes jsonb := convert_from(decode('{changes}', 'hex'), 'UTF8')::jsonb;
    found text;
    keys text;
    columns text;
    assigned text;
    is_met boolean;
    met bigint;
BEGIN
    SELECT ARRAY(SELECT DISTINCT (change ->> 'table')::regclass::oid
        FROM jsonb_array_elements(changes) AS change) INTO tables;
{eligible}
    FOR part IN
        SELECT name, name::regclass::oid AS id, op, count(*) AS count,
            array_agg(old ORDER BY number) AS old, array_agg(new ORDER BY number) AS new
        FROM (
            SELECT *, number - row_number() OVER (PARTITION BY name, op ORDER BY number) AS island
            FROM (
                SELECT number, change ->> 'table' AS name, change ->> 'op' AS op,
                    change ->> 'old' AS old, change ->> 'new' AS new
                FROM jsonb_array_elements(changes) WITH ORDINALITY AS all_of(change, number)
            ) AS each
        ) AS numbered
        GROUP BY name, op, island ORDER BY min(number)
    LOOP
        IF part.op = 'insert' THEN
            EXECUTE format(
                'INSERT INTO %1$s SELECT (atoll_new.row).* FROM (
                    SELECT text::%1$s AS row FROM unnest($1) WITH ORDINALITY AS t(text, number)
                    ORDER BY number OFFSET 0
                ) AS atoll_new', part.name
            ) USING part.new;
            CONTINUE;
        END IF;
        -- `atoll_was` has the rows before and after; each is found by its key, and is as it was.
        found := format(
            '(SELECT old AS text, old::%1$s AS old, new::%1$s AS new
                FROM unnest($1, $2) AS t(old, new) OFFSET 0) AS atoll_was', part.name
        );
        SELECT string_agg(format('atoll_row.%1$I = (atoll_was.old).%1$I', attname), ' AND ')
            || ' AND (atoll_row.*)::text = atoll_was.text'
        FROM pg_index, pg_attribute
        WHERE indrelid = part.id AND indisprimary AND attrelid = part.id AND attnum = ANY (indkey)
        INTO keys;
        -- Until the end nobody refers to the rows anew.
        IF EXISTS (SELECT FROM pg_constraint WHERE contype = 'f' AND confrelid = part.id) THEN
            EXECUTE format(
                'SELECT FROM %s AS atoll_row, %s WHERE %s FOR UPDATE OF atoll_row',
                part.name, found, keys
            ) USING part.old, part.new;
        END IF;
        -- What a removal, or a new key, would change besides is in the change set, or in the way.
        FOR ahead IN
            SELECT conrelid::regclass AS child, (
                SELECT string_agg(
                    format('atoll_child.%I = (atoll_was.old).%I', c.attname, p.attname), ' AND '
                ) FROM unnest(conkey, confkey) AS pair(c, p)
                JOIN pg_attribute c ON c.attrelid = conrelid AND c.attnum = pair.c
                JOIN pg_attribute p ON p.attrelid = confrelid AND p.attnum = pair.p
            ) AS refers, (
                SELECT string_agg(
                    format('(atoll_was.old).%1$I IS DISTINCT FROM (atoll_was.new).%1$I', attname),
                    ' OR '
                ) FROM pg_attribute WHERE attrelid = confrelid AND attnum = ANY (confkey)
            ) AS moves
            FROM pg_constraint
            WHERE contype = 'f' AND confrelid = part.id AND 'cnd' LIKE
                '%' || (CASE part.op WHEN 'delete' THEN confdeltype ELSE confupdtype END)::text || '%'
        LOOP
            EXECUTE format(
                'SELECT EXISTS (SELECT FROM %s AS atoll_child, %s WHERE %s AND (%L OR %s))',
                ahead.child, found, ahead.refers, part.op = 'delete', ahead.moves
            ) INTO is_met USING part.old, part.new;
            IF is_met THEN
                RAISE EXCEPTION 'atoll: rows of % refer to a row of % since', ahead.child, part.name;
            END IF;
        END LOOP;
        IF part.op = 'delete' THEN
            EXECUTE format(
                'DELETE FROM %s AS atoll_row USING %s WHERE %s', part.name, found, keys
            ) USING part.old, part.new;
        ELSE
            SELECT string_agg(quote_ident(attname), ', '),
                string_agg(format('(atoll_was.new).%I', attname), ', ')
            FROM pg_attribute WHERE attrelid = part.id AND attnum > 0 AND NOT attisdropped
            INTO columns, assigned;
            EXECUTE format(
                'UPDATE %s AS atoll_row SET (%s) = ROW(%s) FROM %s WHERE %s',
                part.name, columns, assigned, found, keys
            ) USING part.old, part.new;
        END IF;
        GET DIAGNOSTICS met = ROW_COUNT;
        IF met <> part.count THEN
            RAISE EXCEPTION 'atoll: a row of % is not as it was in the copy', part.name;
        END IF;
    END LOOP;
END $atoll$;
