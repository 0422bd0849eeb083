//! Checkpoints of file trees.

mod contents;
mod manifest;
mod restore;
mod scan;

use std::collections::BTreeSet;
use std::path::Path;

use crate::compare::{Compared, compare};
use crate::{Change, Error, Limits, Made};
use contents::Contents;
use manifest::{Kind, Manifest, Name};
pub(crate) use restore::{restore, resume};
use scan::{Base, fill, list, list_some};

pub(crate) const BEFORE: &str = "before.manifest";
pub(crate) const AFTER: &str = "after.manifest";

pub(crate) fn take(target: &Path, into: &Path, limits: &Limits) -> Result<Made, Error> {
    let base = Base::open(target)?;
    let found = list(&base)?;
    let sizes = found.iter().filter_map(|one| one.entry.as_ref());
    let files = sizes.filter(|entry| entry.kind == Kind::File);
    let bytes = files.map(|entry| entry.size).sum();
    limits.check(target.display(), bytes)?;
    let contents = Contents::create(into)?;
    let manifest = fill(&base, found, &[], Some(&contents))?;
    contents.finish().map_err(Error::on("write", into))?;
    manifest.write(&into.join(BEFORE))?;
    Ok(Made {
        how: contents.how(),
        bytes,
        entries: manifest.entries.len() as u64,
    })
}

pub(crate) fn settle(target: &Path, dir: &Path) -> Result<(), Error> {
    let base = Base::open(target)?;
    let before = before(dir)?;
    let after = now(&base, &before, None)?;
    after.write(&dir.join(AFTER))
}

pub(crate) fn changes(target: &Path, dir: &Path) -> Result<Vec<Change>, Error> {
    let compared = States::read(&Base::open(target)?, dir)?.compare();
    Ok(compared
        .iter()
        .map(|one| one.change(one.key.text()))
        .collect())
}

fn before(dir: &Path) -> Result<Manifest, Error> {
    let path = dir.join(BEFORE);
    Manifest::read(&path)?.ok_or_else(|| Error::damaged(&path, "it is missing"))
}

/// Returns the present state of what a checkpoint covers.
fn now(base: &Base, before: &Manifest, after: Option<&Manifest>) -> Result<Manifest, Error> {
    let known: Vec<&Manifest> = after.into_iter().chain([before]).collect();
    let found = match before.header.is_partial {
        false => list(base)?,
        true => {
            let paths = known.iter().flat_map(|one| one.entries.keys());
            let paths: BTreeSet<Name> = paths.cloned().collect();
            list_some(base, paths.into_iter().collect())?
        }
    };
    fill(base, found, &known, None)
}

/// The three states of a tree.
struct States {
    before: Manifest,
    after: Option<Manifest>,
    now: Manifest,
}

impl States {
    fn read(base: &Base, dir: &Path) -> Result<Self, Error> {
        let before = before(dir)?;
        let after = Manifest::read(&dir.join(AFTER))?;
        let now = now(base, &before, after.as_ref())?;
        Ok(Self { before, after, now })
    }

    fn compare(&self) -> Vec<Compared<Name>> {
        let after = self.after.as_ref().map(|after| &after.entries);
        compare(&self.before.entries, after, &self.now.entries)
    }
}

#[cfg(test)]
mod tests;
