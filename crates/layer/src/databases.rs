//! Databases of SQLite in a layer: the file and what lies beside it are one. With the log of
//! another it is destroyed.

/// How the names of databases of agents end.
const ENDINGS: [&[u8]; 3] = [b".sqlite", b".sqlite3", b".db"];
/// What SQLite puts beside one, by the end of its name.
const COMPANIONS: [&[u8]; 3] = [b"-wal", b"-shm", b"-journal"];

/// Whether a file of this name is a database.
pub(crate) fn is_database(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// The names of what SQLite puts beside a database.
pub(crate) fn companions(database: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    COMPANIONS.iter().map(move |end| [database, *end].concat())
}

/// The database that a file of this name belongs to, itself or one beside it.
pub(crate) fn database_of(name: &[u8]) -> Option<&[u8]> {
    let mut ends = COMPANIONS.iter();
    let main = ends.find_map(|end| name.strip_suffix(*end));
    Some(main.unwrap_or(name)).filter(|main| is_database(main))
}
