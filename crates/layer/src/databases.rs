//! SQLite databases in a layer: the file and its companions belong together. With the log of
//! another database it is destroyed.

/// The suffixes of agents' databases.
const ENDINGS: [&[u8]; 3] = [b".sqlite", b".sqlite3", b".db"];
/// The suffixes of the companion files that SQLite puts beside a database.
const COMPANIONS: [&[u8]; 3] = [b"-wal", b"-shm", b"-journal"];

/// Returns whether a file of this name is a database.
pub(crate) fn is_database(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Returns the names of a database's companion files.
pub(crate) fn companions(database: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    COMPANIONS.iter().map(move |end| [database, *end].concat())
}

/// Returns the database that a file of this name is, or is a companion of.
pub(crate) fn database_of(name: &[u8]) -> Option<&[u8]> {
    let mut ends = COMPANIONS.iter();
    let main = ends.find_map(|end| name.strip_suffix(*end));
    Some(main.unwrap_or(name)).filter(|main| is_database(main))
}
