//! A disk that can fail at any operation, and lose its power after any: what the changes of
//! `disk.rs` have left on it by then.
//!
//! It promises no more than a file system does: what was waited for is there; of all else any
//! part may be, in any order. A sector is written whole or not at all, and a change of a name
//! is one step. A wait is for what was written before it began, and counts from its end on.

use std::cell::RefCell;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

const SECTOR_BYTES: u64 = 512;
/// The longest wait for a disk that several threads share, microseconds: as long as others need to
/// write meanwhile.
const WAIT_US_MAX: usize = 400;

/// One disk for all threads that take part.
pub(super) type Watched = Arc<Mutex<Watch>>;

thread_local! {
    static WATCHED: RefCell<Option<Watched>> = const { RefCell::new(None) };
}

/// Numbers that are the same for the same seed (SplitMix64).
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }

    fn coin(&mut self) -> bool {
        self.below(2) == 0
    }
}

type Id = usize;

/// One operation, as the simulated disk sees it.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Node {
        id: Id,
        is_directory: bool,
        name: String,
    },
    Link {
        directory: Id,
        name: String,
        id: Id,
    },
    Rename {
        directory: Id,
        from: String,
        to: String,
    },
    Remove {
        directory: Id,
        name: String,
    },
    SyncNames {
        directory: Id,
    },
    Write {
        file: Id,
        offset: u64,
        bytes: Vec<u8>,
    },
    SetLength {
        file: Id,
        length: u64,
    },
    /// A wait begins, for all that was written before.
    Wait {
        file: Id,
        wait: usize,
    },
    /// The wait is over.
    Sync {
        file: Id,
        wait: usize,
    },
    /// The kernel could not write, and has forgotten what.
    SyncFailed {
        file: Id,
    },
    /// The files before this step were there at the beginning.
    Begun,
    /// An event that says this number is about to be written.
    Told(u64),
    /// The event that says this number is acknowledged.
    Held(u64),
    /// So many events are acknowledged, the last of this hash.
    Acknowledged {
        size: u64,
        leaf: String,
    },
}

/// A failure of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Failure {
    Error(Errno),
    /// Half of it is written before there is no more room. What needs none is not written at
    /// all.
    Short,
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Content,
    Name,
    Sync,
}

#[derive(Default)]
pub(super) struct Watch {
    ids: HashMap<u64, Id>,
    steps: Vec<Step>,
    next: Id,
    waits: usize,
    /// The durations of the waits; `None` where only one thread takes part.
    delays: Option<Dice>,
    /// The number of operations so far that can fail.
    operations: usize,
    failing: Option<(Range<usize>, Failure)>,
}

impl Watch {
    /// Returns the failure of the next operation, if any. When failures last for a while, a disk
    /// that cannot write still takes names into memory, and a full one still writes what has its
    /// room already.
    fn fails(&mut self, operation: Operation) -> Option<Failure> {
        let at = self.operations;
        self.operations += 1;
        let (range, failure) = self.failing.clone()?;
        let passes = match (operation, failure) {
            (Operation::Name, Failure::Error(Errno::IO)) => range.len() > 1,
            (Operation::Sync, Failure::Error(Errno::NOSPC) | Failure::Short) => range.len() > 1,
            (Operation::Content | Operation::Name | Operation::Sync, _) => false,
        };
        (range.contains(&at) && !passes).then_some(failure)
    }

    fn id(&self, of: impl AsFd) -> Id {
        let inode = rustix::fs::fstat(of).unwrap().st_ino;
        *self.ids.get(&inode).expect("a file that was seen before")
    }

    fn write(&mut self, file: &File, bytes: &[u8], offset: u64) {
        let (file, bytes) = (self.id(file), bytes.to_vec());
        self.steps.push(Step::Write {
            file,
            offset,
            bytes,
        });
    }

    fn add(&mut self, inode: u64, is_directory: bool, name: &str) -> Id {
        let id = self.next;
        self.next += 1;
        self.ids.insert(inode, id);
        let name = name.to_owned();
        self.steps.push(Step::Node {
            id,
            is_directory,
            name,
        });
        id
    }

    fn begin_wait(&mut self, file: Id) -> usize {
        let wait = self.waits;
        self.waits += 1;
        self.steps.push(Step::Wait { file, wait });
        wait
    }

    /// Takes up what is there, as being on disk.
    fn take_up(&mut self, directory: &Path, id: Id) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
            let facts = entry.metadata().unwrap();
            let child = self.add(facts.ino(), facts.is_dir(), &name);
            self.steps.push(Step::Link {
                directory: id,
                name,
                id: child,
            });
            if facts.is_dir() {
                self.take_up(&path, child);
            } else {
                let bytes = std::fs::read(&path).unwrap();
                self.steps.push(Step::Write {
                    file: child,
                    offset: 0,
                    bytes,
                });
                let wait = self.begin_wait(child);
                self.steps.push(Step::Sync { file: child, wait });
            }
        }
        self.steps.push(Step::SyncNames { directory: id });
    }
}

/// Watches this thread's changes below a state directory, until [`finish`].
pub(super) fn watch(state: &Path, failing: Option<(Range<usize>, Failure)>) {
    let mut watch = Watch {
        failing,
        ..Watch::default()
    };
    let root = watch.add(std::fs::metadata(state).unwrap().ino(), true, "");
    watch.take_up(state, root);
    watch.steps.push(Step::Begun);
    take_part(Arc::new(Mutex::new(watch)));
}

/// Starts to watch several threads: each that is handed the result takes part. From now on waits
/// take time, by the dice.
pub(super) fn watch_shared(state: &Path, delays: Dice) -> Watched {
    watch(state, None);
    with(|watch| watch.delays = Some(delays));
    WATCHED.with(|watched| watched.borrow().clone().unwrap())
}

/// This thread's changes are watched too.
pub(super) fn take_part(watched: Watched) {
    WATCHED.with(|own| *own.borrow_mut() = Some(watched));
}

/// Returns the steps that were seen, and the number of operations that could have failed. Other
/// threads have ended.
pub(super) fn finish() -> (Vec<Step>, usize) {
    let watched = WATCHED.with(|watched| watched.borrow_mut().take()).unwrap();
    let mut watch = watched.lock().unwrap_or_else(PoisonError::into_inner);
    (std::mem::take(&mut watch.steps), watch.operations)
}

pub(super) fn acknowledged(size: u64, leaf: String) {
    with(|watch| watch.steps.push(Step::Acknowledged { size, leaf }));
}

/// Tells of an event before it is written.
pub(super) fn told(number: u64) {
    with(|watch| watch.steps.push(Step::Told(number)));
}

/// Tells that an event is acknowledged.
pub(super) fn held(number: u64) {
    with(|watch| watch.steps.push(Step::Held(number)));
}

fn with<T: Default>(act: impl FnOnce(&mut Watch) -> T) -> T {
    WATCHED.with(|watched| match &*watched.borrow() {
        Some(watch) => act(&mut watch.lock().unwrap_or_else(PoisonError::into_inner)),
        None => T::default(),
    })
}

fn refused(watch: &mut Watch, operation: Operation) -> Result<(), Errno> {
    match watch.fails(operation) {
        None => Ok(()),
        Some(Failure::Error(errno)) => Err(errno),
        Some(Failure::Short) => Err(Errno::NOSPC),
    }
}

#[derive(Default)]
enum Done {
    #[default]
    Not,
    Refused(Errno),
}

impl Done {
    fn result(self) -> Result<(), Errno> {
        match self {
            Self::Not => Ok(()),
            Self::Refused(errno) => Err(errno),
        }
    }
}

/// Runs before a write: half of it may be written, and then no more.
pub(crate) fn write(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let done = with(|watch| {
        let failure = match watch.fails(Operation::Content) {
            None => return Done::Not,
            Some(failure) => failure,
        };
        let needs_room = file.metadata().unwrap().len() < offset + bytes.len() as u64;
        match failure {
            Failure::Error(errno) => return Done::Refused(errno),
            Failure::Short if needs_room => {
                let half = &bytes[..bytes.len() / 2];
                file.write_all_at(half, offset).unwrap();
                watch.write(file, half, offset);
            }
            Failure::Short => {}
        }
        Done::Refused(Errno::NOSPC)
    });
    Ok(done.result()?)
}

/// Runs after a write: a wait that began before does not cover it.
pub(crate) fn written(file: &File, bytes: &[u8], offset: u64) {
    with(|watch| watch.write(file, bytes, offset));
}

pub(crate) fn set_length(_: &File, _: u64) -> io::Result<()> {
    let done =
        with(|watch| refused(watch, Operation::Content).map_or_else(Done::Refused, |()| Done::Not));
    Ok(done.result()?)
}

pub(crate) fn length_set(file: &File, length: u64) {
    with(|watch| {
        let file = watch.id(file);
        watch.steps.push(Step::SetLength { file, length });
    });
}

/// A wait that has begun.
pub(crate) struct Wait(usize);

pub(crate) fn sync(file: &File) -> io::Result<Wait> {
    let (done, wait, delay_us) = with(|watch| {
        let file = watch.id(file);
        match refused(watch, Operation::Sync) {
            Ok(()) => {
                let delays = watch.delays.as_mut();
                let delay_us = delays.map_or(0, |dice| dice.below(WAIT_US_MAX));
                (Done::Not, watch.begin_wait(file), delay_us)
            }
            Err(errno) => {
                watch.steps.push(Step::SyncFailed { file });
                (Done::Refused(errno), 0, 0)
            }
        }
    });
    done.result()?;
    if delay_us > 0 {
        std::thread::sleep(Duration::from_micros(delay_us as u64));
    }
    Ok(Wait(wait))
}

pub(crate) fn synced(file: &File, Wait(wait): Wait) {
    with(|watch| {
        let file = watch.id(file);
        watch.steps.push(Step::Sync { file, wait });
    });
}

pub(crate) fn sync_names(directory: BorrowedFd<'_>) -> Result<(), Errno> {
    let done = with(|watch| {
        let directory = watch.id(directory);
        if let Err(errno) = refused(watch, Operation::Sync) {
            return Done::Refused(errno);
        }
        watch.steps.push(Step::SyncNames { directory });
        Done::Not
    });
    done.result()
}

/// Returns whether the file will be a new one.
pub(crate) fn create(directory: BorrowedFd<'_>, name: &str) -> Result<bool, Errno> {
    with(|watch| refused(watch, Operation::Name).map_or_else(Done::Refused, |()| Done::Not))
        .result()?;
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    Ok(rustix::fs::statat(directory, name, flags).is_err())
}

pub(crate) fn created(directory: BorrowedFd<'_>, name: &str, file: impl AsFd, is_new: bool) {
    if is_new {
        with(|watch| add_link(watch, directory, name, false, &file));
    }
}

pub(crate) fn made_directory(parent: BorrowedFd<'_>, name: &str) {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
    let made = rustix::fs::openat(parent, name, flags, rustix::fs::Mode::empty()).unwrap();
    with(|watch| add_link(watch, parent, name, true, &made));
}

fn add_link(
    watch: &mut Watch,
    directory: BorrowedFd<'_>,
    name: &str,
    is_directory: bool,
    made: impl AsFd,
) {
    let inode = rustix::fs::fstat(made).unwrap().st_ino;
    let directory = watch.id(directory);
    let id = watch.add(inode, is_directory, name);
    let name = name.to_owned();
    watch.steps.push(Step::Link {
        directory,
        name,
        id,
    });
}

pub(crate) fn rename(directory: BorrowedFd<'_>, from: &str, to: &str) -> Result<(), Errno> {
    let done = with(|watch| {
        let directory = watch.id(directory);
        if let Err(errno) = refused(watch, Operation::Name) {
            return Done::Refused(errno);
        }
        let (from, to) = (from.to_owned(), to.to_owned());
        watch.steps.push(Step::Rename {
            directory,
            from,
            to,
        });
        Done::Not
    });
    done.result()
}

pub(crate) fn remove(directory: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    let done = with(|watch| {
        let directory = watch.id(directory);
        let name = name.to_owned();
        watch.steps.push(Step::Remove { directory, name });
        Done::Not
    });
    done.result()
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    SetLength(u64),
    Link { name: String, id: Id },
    Rename { from: String, to: String },
    Remove { name: String },
}

#[derive(Clone, Debug, Default)]
struct Node {
    is_directory: bool,
    /// True for a file whose lines may be torn anywhere: nothing relies on sectors there.
    is_log: bool,
    content: Vec<u8>,
    names: BTreeMap<String, Id>,
    pending: Vec<Change>,
    /// The number of changes that are no longer pending.
    settled: usize,
    /// The number of changes that each wait under way is for.
    waits: BTreeMap<usize, usize>,
}

impl Node {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { offset, bytes } => {
                let (begin, end) = (*offset as usize, *offset as usize + bytes.len());
                if self.content.len() < end {
                    self.content.resize(end, 0);
                }
                self.content[begin..end].copy_from_slice(bytes);
            }
            Change::SetLength(length) => self.content.resize(*length as usize, 0),
            Change::Link { name, id } => {
                self.names.insert(name.clone(), *id);
            }
            Change::Rename { from, to } => {
                if let Some(id) = self.names.remove(from) {
                    self.names.insert(to.clone(), id);
                }
            }
            Change::Remove { name } => {
                self.names.remove(name);
            }
        }
    }

    /// Brings the first so many changes to disk.
    fn settle(&mut self, changes: usize) {
        let count = changes.saturating_sub(self.settled).min(self.pending.len());
        self.settled += count;
        let settled: Vec<Change> = self.pending.drain(..count).collect();
        settled.iter().for_each(|change| self.apply(change));
    }

    fn changes(&self) -> usize {
        self.settled + self.pending.len()
    }

    /// Returns every state that can be left when the power goes, changes being whole or missing;
    /// `None` if there are more than `max`.
    fn every_loss(&self, max: usize) -> Option<Vec<Self>> {
        let settled = Self {
            pending: Vec::new(),
            ..self.clone()
        };
        let mut all = vec![settled];
        for change in &self.pending {
            for number in 0..all.len() {
                let mut with_it = all[number].clone();
                with_it.apply(change);
                if !all.iter().any(|one| one.is_same(&with_it)) {
                    all.push(with_it);
                }
            }
            if all.len() > max {
                return None;
            }
        }
        Some(all)
    }

    fn is_same(&self, other: &Self) -> bool {
        self.content == other.content && self.names == other.names
    }

    /// Loses some of the changes that were not waited for.
    fn lose(&mut self, dice: &mut Dice) {
        let pending = std::mem::take(&mut self.pending);
        self.settled += pending.len();
        let kept_first = dice.below(pending.len() + 1);
        let how = dice.below(4);
        for (number, change) in pending.iter().enumerate() {
            let kept = match how {
                0 => false,
                1 => true,
                2 => number < kept_first,
                _ => dice.coin(),
            };
            // The last before the end of the kept ones is torn.
            let torn = how >= 2 && (number == kept_first || dice.below(3) == 0);
            match (torn, change) {
                (true, Change::Write { offset, bytes }) => self.tear(*offset, bytes, dice),
                _ if kept => self.apply(change),
                _ => {}
            }
        }
    }

    fn tear(&mut self, offset: u64, bytes: &[u8], dice: &mut Dice) {
        let whole = offset + bytes.len() as u64;
        match dice.below(3) {
            // The length alone.
            0 => {
                if (self.content.len() as u64) < whole {
                    self.content.resize(whole as usize, 0);
                }
            }
            1 if self.is_log => {
                let bytes = bytes[..dice.below(bytes.len() + 1)].to_vec();
                self.apply(&Change::Write { offset, bytes });
            }
            _ => {
                let mut begin = offset;
                while begin < whole {
                    let end = ((begin / SECTOR_BYTES + 1) * SECTOR_BYTES).min(whole);
                    let piece = &bytes[(begin - offset) as usize..(end - offset) as usize];
                    if dice.coin() {
                        let bytes = piece.to_vec();
                        self.apply(&Change::Write {
                            offset: begin,
                            bytes,
                        });
                    }
                    begin = end;
                }
            }
        }
    }
}

/// The disk after some steps.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    nodes: Vec<Node>,
    /// The numbers that were handed over to be written so far, in this order.
    pub(super) told: Vec<u64>,
    /// The size and last hash that were acknowledged last.
    pub(super) acknowledged: Option<(u64, String)>,
    /// The numbers of the acknowledged events that have one, in no order.
    pub(super) held: Vec<u64>,
}

impl Disk {
    /// Applies one more step; the dice choose what a failed wait loses.
    pub(super) fn step(&mut self, step: &Step, dice: &mut Dice) {
        match step.clone() {
            Step::Node {
                id,
                is_directory,
                name,
            } => {
                assert_eq!(id, self.nodes.len());
                let is_log = name.ends_with(".seg") || name.starts_with("torn-");
                self.nodes.push(Node {
                    is_directory,
                    is_log,
                    ..Node::default()
                });
            }
            Step::Link {
                directory,
                name,
                id,
            } => {
                self.nodes[directory]
                    .pending
                    .push(Change::Link { name, id });
            }
            Step::Rename {
                directory,
                from,
                to,
            } => {
                self.nodes[directory]
                    .pending
                    .push(Change::Rename { from, to });
            }
            Step::Remove { directory, name } => {
                self.nodes[directory].pending.push(Change::Remove { name });
            }
            Step::Write {
                file,
                offset,
                bytes,
            } => {
                self.nodes[file]
                    .pending
                    .push(Change::Write { offset, bytes });
            }
            Step::SetLength { file, length } => {
                self.nodes[file].pending.push(Change::SetLength(length));
            }
            Step::SyncNames { directory: id } => {
                let changes = self.nodes[id].changes();
                self.nodes[id].settle(changes);
            }
            Step::Wait { file, wait } => {
                let changes = self.nodes[file].changes();
                self.nodes[file].waits.insert(wait, changes);
            }
            Step::Sync { file, wait } => {
                let changes = self.nodes[file].waits.remove(&wait).unwrap();
                self.nodes[file].settle(changes);
            }
            Step::SyncFailed { file } => self.nodes[file].lose(dice),
            Step::Begun => {}
            Step::Told(number) => self.told.push(number),
            Step::Acknowledged { size, leaf } => self.acknowledged = Some((size, leaf)),
            Step::Held(number) => self.held.push(number),
        }
    }

    /// Takes the power away, and puts what is left to a directory of its own.
    pub(super) fn cut_power(mut self, dice: &mut Dice, to: &Path) {
        self.nodes.iter_mut().for_each(|node| node.lose(dice));
        self.put(0, to);
    }

    /// Returns every disk that can be left when the power goes now, changes being whole or missing;
    /// `None` if there are more than `max`.
    pub(super) fn every_loss(&self, max: usize) -> Option<Vec<Self>> {
        let mut all = vec![Self::default()];
        for node in &self.nodes {
            let each = node.every_loss(max)?;
            if all.len() * each.len() > max {
                return None;
            }
            let more = each.iter().flat_map(|node| {
                all.iter().map(|disk| {
                    let mut nodes = disk.nodes.clone();
                    nodes.push(node.clone());
                    Self {
                        nodes,
                        ..Self::default()
                    }
                })
            });
            all = more.collect();
        }
        Some(all)
    }

    /// Returns the disk after one loss of power, by the dice.
    pub(super) fn some_loss(&self, dice: &mut Dice) -> Self {
        let mut nodes = self.nodes.clone();
        nodes.iter_mut().for_each(|node| node.lose(dice));
        Self {
            nodes,
            ..Self::default()
        }
    }

    /// Returns a digest that is equal for the same files of the same content.
    pub(super) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash_of(0, &mut hasher);
        hasher.finish()
    }

    fn hash_of(&self, id: Id, hasher: &mut DefaultHasher) {
        for (name, child) in &self.nodes[id].names {
            let node = &self.nodes[*child];
            (name, node.is_directory, &node.content).hash(hasher);
            if node.is_directory {
                self.hash_of(*child, hasher);
            }
        }
        hasher.write_u8(0);
    }

    pub(super) fn put(&self, id: Id, to: &Path) {
        std::fs::DirBuilder::new().mode(0o700).create(to).unwrap();
        for (name, child) in &self.nodes[id].names {
            let (node, path) = (&self.nodes[*child], to.join(name));
            if node.is_directory {
                self.put(*child, &path);
                continue;
            }
            let mut options = std::fs::OpenOptions::new();
            let file = options.write(true).create_new(true).mode(0o600).open(path);
            file.unwrap().write_all_at(&node.content, 0).unwrap();
        }
    }
}
