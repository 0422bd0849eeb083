-- In the copy: every row that a statement changes is noted, in the order in which it is done. Nothing
-- that could act outside of the copy runs: triggers of its own are off, and what leads elsewhere is refused.
DO $atoll$
DECLARE
    one record;
BEGIN
    IF EXISTS (SELECT FROM pg_foreign_server) THEN
        RAISE EXCEPTION 'atoll: the database has foreign servers, which a copy would reach';
    END IF;
    IF EXISTS (SELECT FROM pg_extension WHERE extname IN ('dblink', 'postgres_fdw')) THEN
        RAISE EXCEPTION 'atoll: the database has an extension that reaches other servers';
    END IF;
    CREATE SCHEMA atoll_shadow;
    CREATE TABLE atoll_shadow.noted (
        number bigint GENERATED ALWAYS AS IDENTITY, "table" oid, op text, old text, new text
    );
    CREATE TABLE atoll_shadow.given (number bigint GENERATED ALWAYS AS IDENTITY, row text);
    CREATE TABLE atoll_shadow.met (count bigint);
    CREATE FUNCTION atoll_shadow.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = pg_catalog SET datestyle = 'ISO, YMD' SET intervalstyle = 'postgres'
        SET timezone = 'UTC' SET extra_float_digits = 1 SET bytea_output = 'hex'
        SET lc_monetary = 'C' AS $note$
    BEGIN
        INSERT INTO atoll_shadow.noted ("table", op, old, new) VALUES (
            TG_RELID, TG_OP,
            CASE WHEN TG_OP <> 'INSERT' THEN OLD::text END,
            CASE WHEN TG_OP <> 'DELETE' THEN NEW::text END
        );
        RETURN NULL;
    END $note$;
    FOR one IN
        SELECT c.oid::regclass AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'atoll_shadow')
            AND n.nspname NOT LIKE 'pg\_temp%' AND n.nspname NOT LIKE 'pg\_toast%'
    LOOP
        EXECUTE format('ALTER TABLE %s DISABLE TRIGGER USER', one.name);
        EXECUTE format(
            'CREATE TRIGGER zz_atoll_shadow AFTER INSERT OR UPDATE OR DELETE ON %s
                FOR EACH ROW EXECUTE FUNCTION atoll_shadow.note()',
            one.name
        );
    END LOOP;
    CREATE TABLE atoll_shadow.sequences AS
        SELECT c.oid AS sequence, pg_sequence_last_value(c.oid) AS at
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind = 'S' AND n.nspname <> 'atoll_shadow';
    GRANT USAGE ON SCHEMA atoll_shadow TO PUBLIC;
    GRANT INSERT ON atoll_shadow.given, atoll_shadow.met TO PUBLIC;
END $atoll$;
