//! Checkpoints of PostgreSQL databases: a copy on the server itself where that can be made, else an
//! archive. A database that is replaced keeps all it has, under another name.

mod client;
mod properties;
pub(crate) mod shadow;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::compare::{Compared, compare};
use crate::{Change, Database, Error, How, Job, Kept, Left, Limits, Made, Restored};
use client::{Client, identifier, literal};
use properties::Properties;

const STATE: &str = "postgres.json";
const ARCHIVE: &str = "database.dump";
/// The longest name of a database.
const NAME_BYTES_MAX: usize = 63;

/// A checkpoint, and the digests of its states.
#[derive(Serialize, Deserialize)]
struct State {
    /// The database with the copy; `None` for an archive.
    copy: Option<String>,
    properties: Properties,
    /// The digest of the state that is held. Read when it is first needed.
    before: Option<String>,
    is_settled: bool,
    /// The digest after the effect; `None` if there was no database then.
    after: Option<String>,
}

pub(crate) fn take(
    database: &Database,
    id: &str,
    into: &Path,
    limits: &Limits,
) -> Result<Made, Error> {
    let client = Client::new(database, limits.wait);
    let name = &database.database;
    let sql = format!("SELECT pg_database_size({})", literal(name));
    let size = client.ask(&sql)?;
    let bytes = size.parse().unwrap_or(0);
    limits.check(database, bytes)?;
    let properties = Properties::read(&client, name)?;
    let copy = format!("atoll_cp_{}", id.replace('-', "_"));
    let is_copied = client.free(name, limits.end_connections)? == 0
        && match client.copy(name, &copy, &properties) {
            Ok(()) => true,
            Err(refused) if refused.is_about_use_or_rights() => false,
            Err(refused) => return Err(refused.into()),
        };
    let state = State {
        copy: is_copied.then(|| copy.clone()),
        properties,
        before: None,
        is_settled: false,
        after: None,
    };
    let completed = match is_copied {
        true => client.allow_connections(&copy, false),
        false => client.dump(name, &into.join(ARCHIVE)),
    };
    let completed = completed.and_then(|()| crate::write_json(&state, &into.join(STATE)));
    if completed.is_err() && is_copied {
        // The first error counts.
        let _ = client.drop_database(&copy);
    }
    completed.map(|()| made(is_copied, bytes))
}

fn made(is_copied: bool, bytes: u64) -> Made {
    Made {
        how: if is_copied { How::Template } else { How::Dump },
        bytes,
        entries: 1,
    }
}

pub(crate) fn settle(database: &Database, dir: &Path) -> Result<(), Error> {
    let client = Client::new(database, Limits::default().wait);
    let mut state = State::read(dir)?;
    state.after = now(&client, &database.database)?;
    state.is_settled = true;
    crate::write_json(&state, &dir.join(STATE))
}

pub(crate) fn changes(database: &Database, dir: &Path) -> Result<Vec<Change>, Error> {
    let client = Client::new(database, Limits::default().wait);
    let name = &database.database;
    let compared = State::read(dir)?.compare(&client, name, dir)?;
    Ok(compared
        .iter()
        .map(|one| one.change(name.clone()))
        .collect())
}

/// Returns the digest of a database's present state; `None` if there is none.
fn now(client: &Client<'_>, name: &str) -> Result<Option<String>, Error> {
    if !client.exists(name)? {
        return Ok(None);
    }
    let properties = Properties::read(client, name)?;
    client.digest(name, &properties).map(Some)
}

impl State {
    fn read(dir: &Path) -> Result<Self, Error> {
        crate::read_json(&dir.join(STATE))
    }

    fn compare(
        mut self,
        client: &Client<'_>,
        name: &str,
        dir: &Path,
    ) -> Result<Option<Compared<()>>, Error> {
        let state = |digest: &Option<String>| -> BTreeMap<(), String> {
            digest.iter().map(|digest| ((), digest.clone())).collect()
        };
        if self.before.is_none() {
            self.before = Some(match &self.copy {
                Some(copy) => {
                    client.allow_connections(copy, true)?;
                    let digest = client.digest(copy, &self.properties);
                    client.allow_connections(copy, false)?;
                    digest?
                }
                None => client.digest_of_archive(&dir.join(ARCHIVE), &self.properties)?,
            });
            crate::write_json(&self, &dir.join(STATE))?;
        }
        let now = state(&now(client, name)?);
        let after = self.is_settled.then(|| state(&self.after));
        Ok(compare(&state(&self.before), after.as_ref(), &now).pop())
    }
}

pub(crate) fn restore(database: &Database, job: &Job<'_>) -> Result<Restored, Error> {
    let client = Client::new(database, job.limits.wait);
    let name = &database.database;
    let compared = State::read(job.dir)?.compare(&client, name, job.dir)?;
    match compared {
        Some(one) if one.is_restored(job.overwrite) => {}
        other => {
            let left = other.map(|one| Left::touched(one.change(name.clone())));
            return Ok(Restored::nothing(left.into_iter().collect()));
        }
    }
    let names = Names::of(name, &job.kept_id()?);
    let built = replace(&client, &names, job);
    if built.is_err() {
        // The first error counts. Its name is of this restore alone.
        let _ = client.drop_database(&names.new);
    }
    built?;
    restored(&client, name, job)
}

/// The names of a restore.
struct Names<'a> {
    name: &'a str,
    /// The database that is to get the name.
    new: String,
    /// The present one, when it has been replaced.
    kept: String,
}

impl<'a> Names<'a> {
    fn of(name: &'a str, id: &str) -> Self {
        let id = id.replace('-', "_");
        let with = |word: &str| {
            let end = format!("_atoll_{word}_{id}");
            let mut start = name;
            while start.len() + end.len() > NAME_BYTES_MAX {
                let shorter = start.char_indices().next_back().map_or(0, |(at, _)| at);
                start = start.get(..shorter).unwrap_or_default();
            }
            format!("{start}{end}")
        };
        Self {
            name,
            new: with("new"),
            kept: with("kept"),
        }
    }
}

/// Builds the database under another name, and then exchanges the names in one transaction.
fn replace(client: &Client<'_>, names: &Names<'_>, job: &Job<'_>) -> Result<(), Error> {
    let state = State::read(job.dir)?;
    match &state.copy {
        Some(copy) => client.copy(copy, &names.new, &state.properties)?,
        None => {
            client.create_empty(&names.new, &state.properties)?;
            client.fill(&names.new, &job.dir.join(ARCHIVE))?;
        }
    }
    state.properties.apply(client, &names.new)?;
    let is_present = client.exists(names.name)?;
    let mut sql = String::new();
    if is_present {
        let kept = State {
            copy: Some(names.kept.clone()),
            properties: Properties::read(client, names.name)?,
            before: None,
            is_settled: true,
            after: match &state.copy {
                Some(_) => state.before,
                // An archive that was read in again is the same, in another order.
                None => Some(client.digest(&names.new, &state.properties)?),
            },
        };
        crate::write_json(&kept, &job.kept.join(STATE))?;
        Kept::write(job, made(true, job.taken.bytes))?;
        let count = client.free(names.name, job.limits.end_connections)?;
        if count > 0 {
            let database = names.name.to_owned();
            return Err(Error::InUse { database, count });
        }
        sql = rename(names.name, &names.kept);
    }
    sql.push_str(&rename(&names.new, names.name));
    client.run(&sql)
}

fn rename(from: &str, to: &str) -> String {
    format!(
        "ALTER DATABASE {} RENAME TO {};",
        identifier(from),
        identifier(to)
    )
}

fn restored(client: &Client<'_>, name: &str, job: &Job<'_>) -> Result<Restored, Error> {
    let kept = crate::load(job.kept).ok();
    if kept.is_some() {
        let names = Names::of(name, &job.kept_id()?);
        client.allow_connections(&names.kept, false)?;
    }
    Ok(Restored {
        kept,
        restored: vec![name.to_owned()],
        left: Vec::new(),
    })
}

/// The names are exchanged in one transaction: if the kept database is there, it was done.
pub(crate) fn resume(database: &Database, job: &Job<'_>) -> Result<Option<Restored>, Error> {
    let client = Client::new(database, job.limits.wait);
    let names = Names::of(&database.database, &job.kept_id()?);
    if client.exists(&names.kept)? {
        return restored(&client, names.name, job).map(Some);
    }
    client.drop_database(&names.new)?;
    Ok(None)
}

pub(crate) fn discard(database: &Database, dir: &Path) -> Result<(), Error> {
    let Ok(state) = State::read(dir) else {
        return Ok(());
    };
    match &state.copy {
        Some(copy) => Client::new(database, Limits::default().wait).drop_database(copy),
        None => Ok(()),
    }
}

/// Makes a file that only its owner may read.
fn private_file(path: &Path) -> Result<File, Error> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    file.map_err(Error::on("create", path))
}

#[cfg(test)]
mod tests;
