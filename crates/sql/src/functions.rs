//! Functions and types without effects, whose results are bounded by their arguments.

/// Returns whether a list, of words between blanks, has a word.
pub fn has(list: &str, word: &str) -> bool {
    list.split_ascii_whitespace().any(|one| one == word)
}

/// Functions of `pg_catalog`. Left out on purpose: those that execute text, read files, settings or
/// catalogs, sleep, lock, signal, use large objects or sequences, and `repeat`, `lpad`, `rpad`,
/// `format`, `generate_series`, `array_fill` and `factorial`, whose results have any size.
pub const POSTGRES: &str = "
    count sum avg min max stddev stddev_pop stddev_samp variance var_pop var_samp corr covar_pop
    covar_samp regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy
    regr_syy bool_and bool_or every bit_and bit_or bit_xor string_agg array_agg any_value mode
    percentile_cont percentile_disc json_agg jsonb_agg json_object_agg jsonb_object_agg
    row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value
    lower upper initcap length char_length character_length octet_length bit_length trim btrim ltrim
    rtrim substring substr left right position strpos starts_with replace translate reverse overlay
    concat concat_ws split_part ascii chr md5 sha224 sha256 sha384 sha512 encode decode to_hex
    quote_literal quote_ident quote_nullable normalize is_normalized like_escape
    similar_to_escape regexp_match regexp_matches regexp_replace regexp_like regexp_count regexp_instr
    regexp_substr regexp_split_to_array regexp_split_to_table string_to_array string_to_table
    convert_from convert_to
    abs ceil ceiling floor round trunc sign mod div gcd lcm power pow sqrt cbrt exp ln log log10
    degrees radians pi sin cos tan cot asin acos atan atan2 sinh cosh tanh width_bucket scale
    min_scale trim_scale random int4 int8 float8 numeric text date
    now current_date clock_timestamp statement_timestamp transaction_timestamp timeofday age
    date_part date_trunc date_bin extract make_date make_time make_timestamp make_timestamptz
    make_interval justify_days justify_hours justify_interval isfinite overlaps timezone to_char
    to_date to_timestamp to_number
    json_build_object json_build_array jsonb_build_object jsonb_build_array json_object jsonb_object
    to_json to_jsonb row_to_json array_to_json json_typeof jsonb_typeof json_array_length
    jsonb_array_length json_extract_path json_extract_path_text jsonb_extract_path
    jsonb_extract_path_text json_array_elements jsonb_array_elements json_array_elements_text
    jsonb_array_elements_text json_object_keys jsonb_object_keys json_each jsonb_each json_each_text
    jsonb_each_text jsonb_set jsonb_insert jsonb_strip_nulls json_strip_nulls jsonb_pretty
    jsonb_path_exists jsonb_path_match jsonb_path_query jsonb_path_query_array
    jsonb_path_query_first jsonb_contains jsonb_exists
    unnest array_length array_ndims array_lower array_upper cardinality array_append array_prepend
    array_cat array_remove array_replace array_position array_positions array_to_string trim_array
    num_nulls num_nonnulls gen_random_uuid
    to_tsvector to_tsquery plainto_tsquery phraseto_tsquery websearch_to_tsquery ts_rank ts_rank_cd
    ts_headline
";

/// Columns of functions of `pg_catalog` that do not have the name of the function.
pub const POSTGRES_COLUMNS: &[(&str, &[&str])] = &[
    ("json_each", &["key", "value"]),
    ("jsonb_each", &["key", "value"]),
    ("json_each_text", &["key", "value"]),
    ("jsonb_each_text", &["key", "value"]),
    ("json_array_elements", &["value"]),
    ("jsonb_array_elements", &["value"]),
    ("json_array_elements_text", &["value"]),
    ("jsonb_array_elements_text", &["value"]),
];

/// Types of PostgreSQL to cast to.
pub const POSTGRES_TYPES: &str = "
    bool int2 int4 int8 float4 float8 numeric text varchar bpchar date time timetz timestamp
    timestamptz interval uuid json jsonb bytea bit varbit inet cidr macaddr tsvector tsquery
    int4range int8range numrange tsrange tstzrange daterange jsonpath money
";

/// Operators of PostgreSQL.
pub const POSTGRES_OPERATORS: &str = "
    + - * / % ^ |/ ||/ @ & | # ~ << >> = <> != < > <= >= || ~* !~ !~* ~~ ~~* !~~ !~~* ^@ -> ->> #>
    #>> #- @> <@ ? ?| ?& @? @@ && -|- &< &> <-> <<= >>=
";

/// Functions of SQLite. Left out on purpose: those that load code, read files or the state of the
/// connection, and `printf`, `format`, `randomblob` and `zeroblob`, whose results have any size.
pub const SQLITE: &str = "
    count sum total avg min max group_concat string_agg median percentile percentile_cont
    percentile_disc json_group_array json_group_object
    row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value
    lower upper length octet_length trim ltrim rtrim substr substring instr replace concat concat_ws
    char unicode hex unhex quote soundex like glob typeof
    abs sign round ceil ceiling floor trunc mod pow power sqrt exp ln log log10 log2 degrees radians
    pi sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh random
    coalesce ifnull nullif iif if likely unlikely
    date time datetime julianday unixepoch strftime timediff current_date current_time
    current_timestamp
    json jsonb json_array json_object json_array_length json_extract json_type json_valid json_quote
    json_set json_insert json_replace json_remove json_patch json_pretty
";

/// Words of SQLite that are quoted as names.
pub const SQLITE_KEYWORDS: &str = "
    abort action add after all alter always analyze and as asc attach autoincrement before begin
    between by cascade case cast check collate column commit conflict constraint create cross current
    current_date current_time current_timestamp database default deferrable deferred delete desc
    detach distinct do drop each else end escape except exclude exclusive exists explain fail filter
    first following for foreign from full generated glob group groups having if ignore immediate in
    index indexed initially inner insert instead intersect into is isnull join key last left like
    limit match materialized natural no not nothing notnull null nulls of offset on or order others
    outer over partition plan pragma preceding primary query raise range recursive references regexp
    reindex release rename replace restrict returning right rollback row rows savepoint select set
    table temp temporary then ties to transaction trigger unbounded union unique update using vacuum
    values view virtual when where window with within without true false
";
