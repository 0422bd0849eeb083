-- In the copy, after the statement: refuses what rows alone do not tell, and returns the rest.
DO $atoll$
DECLARE
    one record;
    tables oid[] := ARRAY(SELECT DISTINCT "table" FROM atoll_shadow.noted);
BEGIN
    IF (SELECT count(*) > {rows} OR sum(length(old)) + sum(length(new)) > {bytes}
        FROM (SELECT coalesce(old, '') AS old, coalesce(new, '') AS new FROM atoll_shadow.noted) q) THEN
        RAISE EXCEPTION 'atoll: it changes more than {rows} rows, or {bytes} bytes of them';
    END IF;
    IF (SELECT count(*) > {rows} OR coalesce(sum(length(row::text)), 0) > {bytes} FROM atoll_shadow.given) THEN
        RAISE EXCEPTION 'atoll: it returns more than {rows} rows, or {bytes} bytes of them';
    END IF;
{eligible}
    FOR one IN
        SELECT sequence FROM atoll_shadow.sequences
        WHERE pg_sequence_last_value(sequence) IS DISTINCT FROM at
    LOOP
        RAISE EXCEPTION 'atoll: it takes numbers of sequence %', one.sequence::regclass;
    END LOOP;
END $atoll$;
SELECT encode(convert_to(json_build_object(
    'changes', (
        SELECT coalesce(json_agg(json_build_object(
            'table', "table"::regclass::text, 'op', lower(op), 'old', old, 'new', new
        ) ORDER BY number), '[]') FROM atoll_shadow.noted
    ),
    'count', (SELECT count FROM atoll_shadow.met),
    'given', (SELECT coalesce(json_agg(row ORDER BY number), '[]') FROM atoll_shadow.given)
)::text, 'UTF8'), 'hex');
