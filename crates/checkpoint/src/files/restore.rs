//! Restores a file tree. The present state is kept first, then the steps are written to a journal;
//! each can be done again, so that a restore that was cut short rolls forward.
//!
//! A file that is replaced or removed changes places with its successor under the name of a step, and
//! is looked at there, where no program expects it. Content that came in the meantime goes back.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid, XattrFlags, chownat,
    fchmod, fchown, fremovexattr, fsetxattr, futimens, mkdirat, openat, renameat_with, symlinkat,
    unlinkat,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::contents::Contents;
use super::manifest::{Entry, Header, Kind, Manifest, Name};
use super::scan::{Base, Found, Place, fill, look, state};
use super::{AFTER, BEFORE, States};
use crate::{Error, Job, Kept, Left, Made, Restored};

const JOURNAL: &str = "journal.json";
/// The outcome of a restore that is complete.
const DONE: &str = "done.json";
/// The most files that wait beside the paths that they are for.
const BATCH: usize = 256;

/// The steps of a restore, and what it leaves alone.
#[derive(Serialize, Deserialize)]
struct Journal {
    steps: Vec<Step>,
    left: Vec<Left>,
}

/// A path that goes from one state to another.
#[derive(Clone, Serialize, Deserialize)]
struct Step {
    path: Name,
    from: Option<Entry>,
    to: Option<Entry>,
    /// The state after a later step about the same path.
    then: Option<Entry>,
}

impl Step {
    /// Splits one where a directory is replaced by something else, or the other way round.
    fn parts(self) -> Vec<Self> {
        let is_directory = |entry: &Option<Entry>| entry.as_ref().map(Entry::is_directory);
        match (is_directory(&self.from), is_directory(&self.to)) {
            (Some(from), Some(to)) if from != to => vec![
                Self {
                    to: None,
                    then: self.to.clone(),
                    ..self.clone()
                },
                Self { from: None, ..self },
            ],
            _ => vec![self],
        }
    }

    /// Returns whether a later step about the same path was done already.
    fn is_past(&self, now: Option<&Entry>) -> bool {
        let both = self.then.as_ref().zip(now);
        both.is_some_and(|(then, now)| then == now || then.is_directory() && now.is_directory())
    }

    fn is_about_directory(&self) -> bool {
        let entries = [&self.from, &self.to];
        entries.into_iter().flatten().any(Entry::is_directory)
    }
}

pub(crate) fn restore(target: &Path, job: &Job<'_>) -> Result<Restored, Error> {
    let base = Base::open(target)?;
    let mut states = States::read(&base, job.dir)?;
    let compared = states.compare();
    let mut left = Vec::new();
    let mut paths = Vec::new();
    for one in compared {
        match one.is_restored(job.overwrite) {
            true => paths.push(one.key),
            false => left.push(Left::touched(one.change(one.key.text()))),
        }
    }
    let mut taken = |path: Name| Step {
        from: states.now.entries.remove(&path),
        to: states.before.entries.remove(&path),
        then: None,
        path,
    };
    let steps = paths.into_iter().map(&mut taken).collect();
    let mut journal = Journal { steps, left };
    if journal.steps.is_empty() {
        return Ok(Restored::nothing(journal.left));
    }
    keep(&base, &mut journal, job)?;
    crash_point();
    order(&mut journal);
    write_journal(&journal, job.kept)?;
    crash_point();
    roll_forward(&base, journal, job)
}

pub(crate) fn resume(target: &Path, job: &Job<'_>) -> Result<Option<Restored>, Error> {
    let path = job.kept.join(JOURNAL);
    let text = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let done = job.kept.join(DONE);
            return done.exists().then(|| crate::read_json(&done)).transpose();
        }
        other => other.map_err(Error::on("read", &path))?,
    };
    let journal = serde_json::from_slice(&text).map_err(|why| Error::damaged(&path, why))?;
    roll_forward(&Base::open(target)?, journal, job).map(Some)
}

/// Keeps the present state of all that the steps change, as a checkpoint. A step whose path changes
/// meanwhile is dropped.
fn keep(base: &Base, journal: &mut Journal, job: &Job<'_>) -> Result<(), Error> {
    let contents = Contents::create(job.kept)?;
    let present = journal.steps.iter().filter_map(|step| {
        Some(Found {
            path: step.path.clone(),
            entry: Some(step.from.clone()?),
        })
    });
    let mut before = fill(base, present.collect(), &[], Some(&contents))?;
    let is_same = |step: &Step| before.entries.get(&step.path) == step.from.as_ref();
    let (steps, changed) = std::mem::take(&mut journal.steps)
        .into_iter()
        .partition(is_same);
    journal.steps = steps;
    let changed: Vec<Step> = changed;
    for step in changed {
        before.entries.remove(&step.path);
        journal
            .left
            .push(Left::failed(step.path.text(), "it changed just now"));
    }
    contents.finish().map_err(Error::on("write", job.kept))?;
    let header = Header {
        is_partial: true,
        ..Header::now()
    };
    let to = |step: &Step| Some((step.path.clone(), step.to.clone()?));
    let after = Manifest {
        header,
        entries: journal.steps.iter().filter_map(to).collect(),
    };
    before.header.is_partial = true;
    let files = before
        .entries
        .values()
        .filter(|entry| entry.kind == Kind::File);
    let made = Made {
        how: contents.how(),
        bytes: files.map(|entry| entry.size).sum(),
        entries: before.entries.len() as u64,
    };
    before.write(&job.kept.join(BEFORE))?;
    after.write(&job.kept.join(AFTER))?;
    Kept::write(job, made)
}

/// Puts removals first, the deepest first, then what is made, directories before what is in them.
fn order(journal: &mut Journal) {
    let steps = std::mem::take(&mut journal.steps);
    let parts = steps.into_iter().flat_map(Step::parts);
    let (mut removals, made): (Vec<_>, Vec<_>) = parts.partition(|step| step.to.is_none());
    removals.reverse();
    journal.steps = removals.into_iter().chain(made).collect();
}

fn write_journal(journal: &Journal, kept: &Path) -> Result<(), Error> {
    // Whatever was kept is on the disk before anything changes.
    let directory = File::open(kept).map_err(Error::on("open", kept))?;
    rustix::fs::syncfs(&directory).map_err(Error::on("write", kept))?;
    crate::write_json(journal, &kept.join(JOURNAL))
}

fn roll_forward(base: &Base, journal: Journal, job: &Job<'_>) -> Result<Restored, Error> {
    let roller = Roller {
        base,
        contents: Contents::open(job.dir)?,
        id: job.kept_id()?,
    };
    let mut failed = BTreeMap::new();
    let steps = journal.steps.iter().enumerate();
    // Each removal at once: a directory waits for those of all that is in it.
    let (removals, made): (Vec<_>, Vec<_>) = steps.partition(|(_, step)| step.to.is_none());
    for batch in removals.chunks(1).chain(made.chunks(BATCH)) {
        let prepared: Vec<_> = batch
            .iter()
            .map(|(index, step)| roller.prepare(*index, step))
            .collect();
        // Once for all of them: no file takes its place before its content is on the disk.
        if batch.iter().any(|(_, step)| step.to.is_some()) {
            sync(base)?;
        }
        for ((index, step), prepared) in batch.iter().zip(prepared) {
            let ended = match prepared {
                Ok(Prepared::Ready) => roller.exchange(*index, step),
                Ok(Prepared::Done) => Ok(None),
                Ok(Prepared::Left(why)) => Ok(Some(why)),
                Err(error) => Err(error),
            };
            if let Some(why) = ended.unwrap_or_else(|error| Some(error.to_string())) {
                failed.insert(&step.path, why);
            }
        }
    }
    // Deepest first: one that nobody may write to is that only at the end.
    for step in journal.steps.iter().rev() {
        let directory = step.to.as_ref().filter(|to| to.is_directory());
        if let (Some(to), false) = (directory, failed.contains_key(&step.path))
            && let Err(error) = roller.adjust_directory(&step.path, to)
        {
            failed.insert(&step.path, error.to_string());
        }
    }
    crash_point();
    sync(base)?;
    let paths: BTreeSet<&Name> = journal.steps.iter().map(|step| &step.path).collect();
    let done = paths.into_iter().filter(|path| !failed.contains_key(path));
    let restored = done.map(Name::text).collect();
    let mut left = journal.left;
    left.extend(
        failed
            .into_iter()
            .map(|(path, why)| Left::failed(path.text(), &why)),
    );
    let outcome = Restored {
        kept: Some(crate::load(job.kept)?),
        restored,
        left,
    };
    // Whoever comes later finds that it is done, and keeps what it replaced.
    crate::write_json(&outcome, &job.kept.join(DONE))?;
    let path = job.kept.join(JOURNAL);
    fs::remove_file(&path).map_err(Error::on("remove", &path))?;
    Ok(outcome)
}

fn sync(base: &Base) -> Result<(), Error> {
    // The directory above, where the target itself is not there.
    for name in [base.name.0.as_slice(), b"."] {
        if let Ok(file) = base.open_at(name, OFlags::RDONLY) {
            return rustix::fs::syncfs(file).map_err(Error::on("write", &base.path(&base.name)));
        }
    }
    rustix::fs::sync();
    Ok(())
}

/// The outcome of preparing a step.
enum Prepared {
    /// The exchange remains to be done.
    Ready,
    Done,
    /// The path is left alone, for this reason.
    Left(String),
}

struct Roller<'a> {
    base: &'a Base,
    contents: Contents,
    id: String,
}

impl Roller<'_> {
    fn name(&self, index: usize, end: &str) -> Vec<u8> {
        format!(".atoll-{}-{index}.{end}", self.id).into_bytes()
    }

    /// Does a step about a directory; for another, ends an earlier attempt, and makes the file or link
    /// that is to take the place.
    fn prepare(&self, index: usize, step: &Step) -> io::Result<Prepared> {
        let place = match self.base.place(&step.path) {
            Err(Errno::NOENT) if step.to.is_none() => return Ok(Prepared::Done),
            other => other?,
        };
        crash_point();
        if step.is_about_directory() {
            let left = directory_step(&place, step)?;
            return Ok(left.map_or(Prepared::Done, Prepared::Left));
        }
        let (swap, new) = (self.name(index, "swap"), self.name(index, "new"));
        remove(&place, &new)?;
        if let Some(entry) = state(&place, &swap)?
            && let Some(why) = finish_swap(&place, &swap, step, &entry)?
        {
            return Ok(Prepared::Left(why));
        }
        let now = state(&place, &place.name)?;
        if now == step.to || step.is_past(now.as_ref()) {
            return Ok(Prepared::Done);
        }
        if now != step.from {
            return Ok(Prepared::Left("it changed just now".to_owned()));
        }
        if let Some(to) = &step.to
            && let Err(error) = self.make(&place, &new, to)
        {
            remove(&place, &new)?;
            return Err(error);
        }
        Ok(Prepared::Ready)
    }

    /// Does a step that was prepared; returns why the path was left alone, if it was.
    fn exchange(&self, index: usize, step: &Step) -> io::Result<Option<String>> {
        let place = self.base.place(&step.path)?;
        let (swap, new) = (self.name(index, "swap"), self.name(index, "new"));
        crash_point();
        let renamed = match (&step.from, &step.to) {
            (_, None) => rename(&place, &place.name, &swap, RenameFlags::NOREPLACE),
            (None, Some(_)) => rename(&place, &new, &place.name, RenameFlags::NOREPLACE),
            (Some(_), Some(_)) => {
                rename(&place, &new, &swap, RenameFlags::NOREPLACE)?;
                crash_point();
                rename(&place, &swap, &place.name, RenameFlags::EXCHANGE)
            }
        };
        crash_point();
        if step.from.is_none() {
            remove(&place, &new)?;
            return Ok(renamed.err().map(|_| "something is there now".to_owned()));
        }
        let displaced = state(&place, &swap)?;
        let finished = displaced.map(|entry| finish_swap(&place, &swap, step, &entry));
        renamed?;
        Ok(finished.transpose()?.flatten())
    }

    /// Makes a file or link as it is to be, under another name.
    fn make(&self, place: &Place, name: &[u8], to: &Entry) -> io::Result<()> {
        let owner = (Some(Uid::from_raw(to.uid)), Some(Gid::from_raw(to.gid)));
        match to.kind {
            Kind::Link => {
                let link = to.link.clone().unwrap_or_default();
                symlinkat(link.0, &place.directory, name)?;
                let made = look(&place.directory, name)?;
                if made.is_none_or(|made| (made.uid, made.gid) != (to.uid, to.gid)) {
                    let flags = AtFlags::SYMLINK_NOFOLLOW;
                    chownat(&place.directory, name, owner.0, owner.1, flags)?;
                }
                Ok(())
            }
            Kind::File => {
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let mode = Mode::RUSR | Mode::WUSR;
                let file = File::from(openat(&place.directory, name, flags, mode)?);
                self.contents
                    .get(to.digest.as_deref().unwrap_or_default(), &file)?;
                adjust(&file, to)
            }
            Kind::Directory | Kind::Special => Err(io::Error::other(
                "sockets, pipes and devices are not made again",
            )),
        }
    }

    fn adjust_directory(&self, path: &Name, to: &Entry) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        adjust(&File::from(self.base.open_at(&path.0, flags)?), to)
    }
}

/// Ends a replacement or removal whose file is under the name of the step: removes it if it is what
/// was kept, or what is to be there; else puts it back, and returns why.
fn finish_swap(
    place: &Place,
    swap: &[u8],
    step: &Step,
    entry: &Entry,
) -> io::Result<Option<String>> {
    if [&step.from, &step.to]
        .into_iter()
        .any(|known| known.as_ref() == Some(entry))
    {
        crash_point();
        remove(place, swap)?;
        return Ok(None);
    }
    let now = state(place, &place.name)?;
    let put_back = match (&now, now == step.to) {
        (None, _) => rename(place, swap, &place.name, RenameFlags::NOREPLACE),
        (Some(_), true) => rename(place, swap, &place.name, RenameFlags::EXCHANGE)
            .and_then(|()| Ok(remove(place, swap)?)),
        (Some(_), false) => Err(Errno::EXIST.into()),
    };
    Ok(Some(match put_back {
        Ok(()) => "it changed just now".to_owned(),
        Err(_) => format!(
            "it changed just now, twice: the other content is beside it in {}",
            String::from_utf8_lossy(swap)
        ),
    }))
}

fn directory_step(place: &Place, step: &Step) -> io::Result<Option<String>> {
    let now = look(&place.directory, &place.name)?;
    if step.then.is_some() && step.is_past(state(place, &place.name)?.as_ref()) {
        return Ok(None);
    }
    let is_directory = now.as_ref().is_some_and(Entry::is_directory);
    match (&step.from, &step.to) {
        (Some(_), None) if now.is_none() => Ok(None),
        (Some(_), None) => match unlinkat(&place.directory, &place.name, AtFlags::REMOVEDIR) {
            Ok(()) => Ok(None),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(Some("something else is in it".to_owned())),
            Err(error) => Err(error.into()),
        },
        (None, Some(_)) if now.is_none() => {
            mkdirat(&place.directory, &place.name, Mode::RWXU)?;
            Ok(None)
        }
        _ if is_directory => Ok(None),
        _ => Ok(Some("something is there now".to_owned())),
    }
}

/// Gives an open file or directory the owner, attributes, mode and time that it is to have.
fn adjust(file: &File, to: &Entry) -> io::Result<()> {
    let now = rustix::fs::fstat(file)?;
    if (now.st_uid, now.st_gid) != (to.uid, to.gid) {
        fchown(
            file,
            Some(Uid::from_raw(to.uid)),
            Some(Gid::from_raw(to.gid)),
        )?;
    }
    for name in super::scan::attributes(file)?.keys() {
        if !to.attributes.contains_key(name) {
            fremovexattr(file, name.0.as_slice())?;
        }
    }
    for (name, value) in &to.attributes {
        fsetxattr(file, name.0.as_slice(), &value.0, XattrFlags::empty())?;
    }
    fchmod(file, Mode::from_raw_mode(to.mode))?;
    if to.kind == Kind::File {
        let time = Timespec {
            tv_sec: to.mtime.div_euclid(1_000_000_000),
            tv_nsec: to.mtime.rem_euclid(1_000_000_000),
        };
        futimens(
            file,
            &Timestamps {
                last_access: time,
                last_modification: time,
            },
        )?;
    }
    Ok(())
}

fn rename(place: &Place, from: &[u8], to: &[u8], flags: RenameFlags) -> io::Result<()> {
    let directory: &OwnedFd = &place.directory;
    Ok(renameat_with(directory, from, directory, to, flags)?)
}

fn remove(place: &Place, name: &[u8]) -> Result<(), Errno> {
    match unlinkat(&place.directory, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// Lets tests end a restore here.
fn crash_point() {
    #[cfg(test)]
    super::tests::crash_point();
}
