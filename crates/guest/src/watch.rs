//! Changes in a directory, as inotify(7) tells them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use atoll_sys::socket;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

use crate::files::{below, path_of};
use crate::{ASK_BYTES_MAX, Answer, Change, ENOTDIR, tell};

/// The most directories that one request watches.
const DIRECTORIES_MAX: usize = 8_192;

/// Tells of changes until the socket is closed.
pub(crate) fn watch(to: &OwnedFd, path: &[u8], recursive: bool) -> io::Result<()> {
    let top = path_of(path.to_vec());
    if !fs::metadata(&top)?.is_dir() {
        return Err(io::Error::from_raw_os_error(ENOTDIR));
    }
    let mut watched = Watched {
        events: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
        directories: BTreeMap::new(),
        top,
        recursive,
    };
    watched.add(Path::new(""))?;
    tell(to, &Answer::Done, None)?;
    loop {
        let mut on = [
            PollFd::new(&watched.events, PollFlags::IN),
            PollFd::new(to, PollFlags::IN),
        ];
        poll(&mut on, None)?;
        let [_, asked] = on;
        let is_asked = !asked.revents().is_empty();
        watched.tell_all(to)?;
        if is_asked {
            let mut message = [0; ASK_BYTES_MAX];
            match socket::receive(to.as_fd(), &mut message)? {
                (0, _) => return Ok(()),
                // Whatever is asked: everything until now has been told.
                _ => tell(to, &Answer::Done, None)?,
            }
        }
    }
}

struct Watched {
    events: OwnedFd,
    /// The watched directories, relative to the first, by the kernel's number.
    directories: BTreeMap<i32, PathBuf>,
    top: PathBuf,
    recursive: bool,
}

impl Watched {
    /// Watches a directory, and those in it if they are meant.
    fn add(&mut self, directory: &Path) -> io::Result<()> {
        if self.directories.len() >= DIRECTORIES_MAX {
            return Ok(());
        }
        let path = self.top.join(directory);
        let flags = WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::MODIFY
            | WatchFlags::DELETE
            | WatchFlags::ATTRIB
            | WatchFlags::ONLYDIR;
        let number = inotify::add_watch(&self.events, &path, flags)?;
        self.directories.insert(number, directory.to_path_buf());
        if self.recursive {
            for one in fs::read_dir(&path)?.flatten() {
                if one.file_type().is_ok_and(|kind| kind.is_dir()) {
                    // One that goes meanwhile has nothing to tell.
                    let _ = self.add(&directory.join(one.file_name()));
                }
            }
        }
        Ok(())
    }

    /// Tells of all changes that are there.
    fn tell_all(&mut self, to: &OwnedFd) -> io::Result<()> {
        let mut lost = false;
        for (number, flags, name) in self.read()? {
            if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                lost = true;
                continue;
            }
            if flags.contains(ReadFlags::IGNORED) {
                self.directories.remove(&number);
                continue;
            }
            let (Some(directory), Some(change)) = (self.directories.get(&number), change(flags))
            else {
                continue;
            };
            // Of the watched directory itself there is nothing to tell.
            if name.is_empty() {
                continue;
            }
            let place = below(directory, &name);
            if self.recursive && flags.contains(ReadFlags::ISDIR) && change == Change::Created {
                let _ = self.add(&place);
            }
            let told = Answer::Changed {
                change,
                name: place.as_os_str().as_bytes().to_vec(),
                lost: std::mem::take(&mut lost),
            };
            tell(to, &told, None)?;
        }
        Ok(())
    }

    fn read(&self) -> io::Result<Vec<(i32, ReadFlags, Vec<u8>)>> {
        let mut space = [MaybeUninit::uninit(); 16 * 1024];
        let mut reader = Reader::new(&self.events, &mut space);
        let mut all = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| name.to_bytes().to_vec());
                    all.push((event.wd(), event.events(), name.unwrap_or_default()));
                }
                Err(rustix::io::Errno::AGAIN) => return Ok(all),
                Err(error) => return Err(error.into()),
            }
            if reader.is_buffer_empty() {
                return Ok(all);
            }
        }
    }
}

fn change(flags: ReadFlags) -> Option<Change> {
    let kinds = [
        (ReadFlags::CREATE | ReadFlags::MOVED_TO, Change::Created),
        (ReadFlags::MODIFY, Change::Written),
        (ReadFlags::DELETE, Change::Removed),
        (ReadFlags::MOVED_FROM, Change::Renamed),
        (ReadFlags::ATTRIB, Change::Attributes),
    ];
    let kind = kinds.into_iter().find(|(of, _)| flags.intersects(*of));
    kind.map(|(_, change)| change)
}
