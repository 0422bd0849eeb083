//! A disk that can fail at any operation, and lose its power after any: what the changes of
//! `disk.rs` have left on it by then.
//!
//! It promises no more than a file system does: what was waited for is there; of all else any
//! part may be, in any order. A sector is written whole or not at all, and a change of a name
//! is one step.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::io::Errno;

const SECTOR_BYTES: u64 = 512;

thread_local! {
    static WATCHED: RefCell<Option<Watch>> = const { RefCell::new(None) };
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

/// One change, as the disk is told of it.
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
    Sync {
        file: Id,
    },
    /// The kernel could not write, and has forgotten what.
    SyncFailed {
        file: Id,
    },
    /// All before was there at the beginning.
    Begun,
    /// An event that says this number is about to be written.
    Told(u64),
    /// So many events are acknowledged, the last of this hash.
    Acknowledged {
        size: u64,
        leaf: String,
    },
}

/// What goes wrong.
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
struct Watch {
    ids: HashMap<u64, Id>,
    steps: Vec<Step>,
    next: Id,
    /// How many operations there were that can fail.
    operations: usize,
    failing: Option<(Range<usize>, Failure)>,
}

impl Watch {
    /// What goes wrong with the next operation. Where it goes on for a while, a disk that
    /// cannot write takes names into memory all the same, and one that is full writes what
    /// has its room already.
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
                self.steps.push(Step::Sync { file: child });
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
    WATCHED.with(|watched| *watched.borrow_mut() = Some(watch));
}

/// What was seen: the steps, and how many operations could have failed.
pub(super) fn finish() -> (Vec<Step>, usize) {
    let watch = WATCHED.with(|watched| watched.borrow_mut().take()).unwrap();
    (watch.steps, watch.operations)
}

pub(super) fn acknowledged(size: u64, leaf: String) {
    with(|watch| watch.steps.push(Step::Acknowledged { size, leaf }));
}

/// Tells of an event before it is written.
pub(super) fn told(number: u64) {
    with(|watch| watch.steps.push(Step::Told(number)));
}

fn with<T: Default>(act: impl FnOnce(&mut Watch) -> T) -> T {
    WATCHED.with(|watched| watched.borrow_mut().as_mut().map(act).unwrap_or_default())
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

pub(crate) fn write(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let done = with(|watch| {
        let (id, failure) = (watch.id(file), watch.fails(Operation::Content));
        let needs_room = file.metadata().unwrap().len() < offset + bytes.len() as u64;
        let (written, done) = match failure {
            None => (bytes, Done::Not),
            Some(Failure::Error(errno)) => return Done::Refused(errno),
            Some(Failure::Short) if needs_room => {
                (&bytes[..bytes.len() / 2], Done::Refused(Errno::NOSPC))
            }
            Some(Failure::Short) => return Done::Refused(Errno::NOSPC),
        };
        if matches!(done, Done::Refused(_)) {
            file.write_all_at(written, offset).unwrap();
        }
        let bytes = written.to_vec();
        watch.steps.push(Step::Write {
            file: id,
            offset,
            bytes,
        });
        done
    });
    Ok(done.result()?)
}

pub(crate) fn set_length(file: &File, length: u64) -> io::Result<()> {
    let done = with(|watch| {
        let id = watch.id(file);
        if let Err(errno) = refused(watch, Operation::Content) {
            return Done::Refused(errno);
        }
        watch.steps.push(Step::SetLength { file: id, length });
        Done::Not
    });
    Ok(done.result()?)
}

pub(crate) fn sync(file: &File) -> io::Result<()> {
    let done = with(|watch| {
        let file = watch.id(file);
        match refused(watch, Operation::Sync) {
            Ok(()) => {
                watch.steps.push(Step::Sync { file });
                Done::Not
            }
            Err(errno) => {
                watch.steps.push(Step::SyncFailed { file });
                Done::Refused(errno)
            }
        }
    });
    Ok(done.result()?)
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

/// Whether it will be a new file.
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

#[derive(Clone, Debug)]
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
    /// Its lines may be torn anywhere: nothing relies on sectors there.
    is_log: bool,
    content: Vec<u8>,
    names: BTreeMap<String, Id>,
    pending: Vec<Change>,
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

    fn settle(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            self.apply(&change);
        }
    }

    /// Some of what was not waited for.
    fn lose(&mut self, dice: &mut Dice) {
        let pending = std::mem::take(&mut self.pending);
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
    /// What was handed over to be written so far, in this order.
    pub(super) told: Vec<u64>,
    /// What was acknowledged last.
    pub(super) acknowledged: Option<(u64, String)>,
}

impl Disk {
    /// One more step; what a failed wait loses is the dice's.
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
            Step::Sync { file: id } | Step::SyncNames { directory: id } => self.nodes[id].settle(),
            Step::SyncFailed { file } => self.nodes[file].lose(dice),
            Step::Begun => {}
            Step::Told(number) => self.told.push(number),
            Step::Acknowledged { size, leaf } => self.acknowledged = Some((size, leaf)),
        }
    }

    /// Takes the power away, and puts what is left to a directory of its own.
    pub(super) fn cut_power(mut self, dice: &mut Dice, to: &Path) {
        for node in &mut self.nodes {
            node.lose(dice);
        }
        self.put(0, to);
    }

    fn put(&self, id: Id, to: &Path) {
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
