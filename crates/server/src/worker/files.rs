//! Files of a living sandbox: each request by one of its file servers, for as long as it takes.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use atoll_engine::sandboxes::{
    Change, Entry, EntryKind, FileChange, FileServer, FileWatch, Sandbox,
};
use atoll_model::RESIDENT;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::answers::refusal;
use super::shares::{Of, Share, Shares};
use crate::line::{Frame, Reader, Writer};
use crate::protocol::{ByteRange, ChangeFacts, EntryFacts, FileFacts, Kind, Read, Refusal, Write};

/// The most file servers of one sandbox that wait for a request.
const IDLE_MAX: usize = 2;
/// The permission bits of files that are made.
const FILE_MODE: u16 = 0o644;
/// The most requests about files of one sandbox at once.
const AT_ONCE_MAX: usize = 8;
/// The most connects to ports of one sandbox at once: where nobody accepts, each takes a while.
const CONNECTS_MAX: usize = 8;

/// The most files of one sandbox that are being written at once.
const WRITES_MAX: u32 = 1024;
/// The longest time for which an end waits until they are written.
pub(super) const WRITTEN_WITHIN: Duration = Duration::from_secs(2);

/// The file servers of one sandbox.
pub(crate) struct Files {
    sandbox: Arc<Sandbox>,
    tenant: String,
    shares: Arc<Shares>,
    idle: Mutex<Vec<FileServer>>,
    /// So that a sandbox whose file servers do not answer holds up no others.
    places: Semaphore,
    /// Those of connects to ports, which anybody makes.
    connects: Semaphore,
    /// Those that are being written.
    writes: Semaphore,
}

impl Files {
    pub(super) fn of(sandbox: &Arc<Sandbox>, tenant: &str, shares: &Arc<Shares>) -> Arc<Self> {
        Arc::new(Self {
            sandbox: Arc::clone(sandbox),
            tenant: tenant.to_owned(),
            shares: Arc::clone(shares),
            idle: Mutex::new(Vec::new()),
            places: Semaphore::new(AT_ONCE_MAX),
            connects: Semaphore::new(CONNECTS_MAX),
            writes: Semaphore::new(WRITES_MAX as usize),
        })
    }

    fn idle(&self) -> Option<FileServer> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.pop()
    }

    fn put_back(&self, server: FileServer) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(server);
        }
    }

    fn started(&self) -> Result<FileServer, Refusal> {
        self.sandbox.files().map_err(|failure| refusal(&failure))
    }

    /// Does something with a file server. One that a program has ended meanwhile is made anew.
    async fn with<T: Send + 'static>(
        self: &Arc<Self>,
        path: &str,
        work: impl Fn(&FileServer) -> io::Result<T> + Send + 'static,
    ) -> Result<T, Refusal> {
        self.with_place(&self.places, path, work).await
    }

    async fn with_place<T: Send + 'static>(
        self: &Arc<Self>,
        places: &Semaphore,
        path: &str,
        work: impl Fn(&FileServer) -> io::Result<T> + Send + 'static,
    ) -> Result<T, Refusal> {
        let place = places.acquire().await;
        let _place = place.map_err(|error| fault(&error))?;
        let thread = self.shares.take(Of::Threads, &self.tenant, 1)?;
        let (files, path) = (Arc::clone(self), path.to_owned());
        let done = spawn_blocking(move || {
            let _thread = thread;
            let waiting = files.idle();
            let is_new = waiting.is_none();
            let mut server = match waiting {
                Some(server) => server,
                None => files.started()?,
            };
            let mut done = work(&server);
            if !is_new && done.as_ref().is_err_and(is_gone) {
                server = files.started()?;
                done = work(&server);
            }
            if !done.as_ref().is_err_and(is_gone) {
                files.put_back(server);
            }
            done.map_err(|error| refused(&path, &error))
        });
        done.await.unwrap_or_else(|error| Err(fault(&error)))
    }

    /// Waits until the files are written that are being written: one that is cut short has lost what
    /// it was before. Whoever writes slowly is not waited for. Until the result is dropped no other
    /// begins.
    pub(crate) async fn written(&self) -> Option<SemaphorePermit<'_>> {
        let none = timeout(WRITTEN_WITHIN, self.writes.acquire_many(WRITES_MAX)).await;
        none.ok()?.ok()
    }

    /// Does the same, and no other begins at all.
    pub(crate) async fn settled(&self) {
        let _none = self.written().await;
        self.writes.close();
    }

    /// Connects to a port of the sandbox.
    pub(crate) async fn connect(self: &Arc<Self>, port: u16) -> Result<TcpStream, Refusal> {
        let connect = move |server: &FileServer| server.connect(port);
        let what = format!("port {port}");
        let connected = self.with_place(&self.connects, &what, connect).await?;
        let begin = || {
            connected.set_nonblocking(true)?;
            TcpStream::from_std(connected)
        };
        begin().map_err(|error| fault(&error))
    }

    /// Begins to watch a directory.
    pub(crate) async fn watch(
        self: &Arc<Self>,
        path: &str,
        recursive: bool,
    ) -> Result<Watching, Refusal> {
        let (files, at) = (Arc::clone(self), place(path));
        let path = path.to_owned();
        let share = self.shares.take(Of::Watchers, &self.tenant, 1)?;
        let thread = self.shares.take(Of::Threads, &self.tenant, 1)?;
        let watched = spawn_blocking(move || {
            let _thread = thread;
            let watched = files.started()?.watch(&at, recursive);
            let watch = watched.map_err(|error| refused(&path, &error))?;
            Ok(Watching {
                watch,
                _share: share,
            })
        });
        watched.await.unwrap_or_else(|error| Err(fault(&error)))
    }

    /// Describes a file.
    pub(crate) async fn stat(self: &Arc<Self>, path: &str) -> Result<EntryFacts, Refusal> {
        let at = place(path);
        let entry = self.with(path, move |server| server.stat(&at)).await?;
        Ok(facts(&entry))
    }

    /// Lists a directory.
    pub(crate) async fn list(
        self: &Arc<Self>,
        path: &str,
        depth: u32,
    ) -> Result<Vec<EntryFacts>, Refusal> {
        let at = place(path);
        let entries = self
            .with(path, move |server| server.list(&at, depth))
            .await?;
        Ok(entries.iter().map(facts).collect())
    }

    /// Makes a directory.
    pub(crate) async fn make_directory(
        self: &Arc<Self>,
        path: &str,
    ) -> Result<EntryFacts, Refusal> {
        let at = place(path);
        let made = self.with(path, move |server| server.make_directory(&at));
        Ok(facts(&made.await?))
    }

    /// Moves a file.
    pub(crate) async fn rename(
        self: &Arc<Self>,
        from: &str,
        to: &str,
    ) -> Result<EntryFacts, Refusal> {
        let (old, new) = (place(from), place(to));
        let moved = self.with(from, move |server| server.rename(&old, &new));
        Ok(facts(&moved.await?))
    }

    /// Removes a file or directory.
    pub(crate) async fn remove(self: &Arc<Self>, path: &str) -> Result<(), Refusal> {
        let at = place(path);
        self.with(path, move |server| server.remove(&at)).await
    }

    /// Opens a file to read it, or a part of it, and hands it over.
    pub(crate) async fn read(
        self: &Arc<Self>,
        ask: &Read,
        to: &mut Writer,
    ) -> Result<io::Result<()>, Refusal> {
        let path = &ask.path;
        let at = place(path);
        let open = move |server: &FileServer| server.open(&at, None);
        let file = self.with(path, open).await?;
        let size = file.metadata().map_err(|error| refused(path, &error))?;
        let size = size.len();
        let head = part(size, ask.range);
        let sent = async {
            to.reply(ask, head).await?;
            to.descriptor(file.as_fd()).await
        };
        Ok(sent.await)
    }

    /// Opens a file to write it, hands it over, and describes it once that is done.
    pub(crate) async fn write(
        self: &Arc<Self>,
        ask: &Write,
        from: &mut Reader,
        to: &mut Writer,
    ) -> Result<EntryFacts, Refusal> {
        let path = &ask.path;
        let writing = self.writes.acquire().await;
        let _writing = writing.map_err(|_| {
            let what = "the sandbox has just been paused";
            Refusal::new(Kind::NoSandbox, what).advise("connect to it: it goes on then")
        })?;
        let at = place(path);
        let open = move |server: &FileServer| server.open(&at, Some(FILE_MODE));
        let file = self.with(path, open).await?;
        let handed = async {
            to.reply(ask, ()).await?;
            to.descriptor(file.as_fd()).await?;
            drop(file);
            from.next::<()>().await
        };
        match handed.await {
            Ok(Some(Frame::End)) => self.stat(path).await,
            Ok(_) | Err(_) => Err(Refusal::new(
                Kind::Invalid,
                "the content has not come to its end",
            )),
        }
    }
}

/// A watched directory.
pub(crate) struct Watching {
    watch: FileWatch,
    /// Its tenant has one less.
    _share: Share,
}

impl Watching {
    pub(super) fn descriptor(&self) -> &OwnedFd {
        self.watch.descriptor()
    }
}

/// Returns what has changed in a watched directory until now; waits for the first if told to.
pub(super) async fn changes(
    watch: &Arc<Watching>,
    waits: Option<&AsyncFd<OwnedFd>>,
) -> io::Result<Vec<ChangeFacts>> {
    if let Some(events) = waits {
        let mut ready = events.readable().await?;
        ready.clear_ready();
    }
    let watch = Arc::clone(watch);
    let changes = spawn_blocking(move || watch.watch.changes()).await??;
    Ok(changes.iter().map(change).collect())
}

fn change(change: &FileChange) -> ChangeFacts {
    let kind = match change.change {
        Change::Created => "created",
        Change::Written => "written",
        Change::Removed => "removed",
        Change::Renamed => "renamed",
        Change::Attributes => "attributes",
    };
    ChangeFacts {
        kind: kind.to_owned(),
        name: text(&change.name),
    }
}

/// Describes a part of a file; the whole where it holds nothing of the file.
pub(super) fn part(size: u64, range: Option<ByteRange>) -> FileFacts {
    let (first, length) = match range {
        Some(ByteRange::From(first, last)) if first < size => {
            let last = last.unwrap_or(u64::MAX).min(size - 1);
            (first, (last + 1).saturating_sub(first))
        }
        Some(ByteRange::Last(count)) => (size.saturating_sub(count), count.min(size)),
        Some(ByteRange::From(..)) | None => (0, size),
    };
    FileFacts {
        size,
        first,
        length,
    }
}

/// Returns the path in the sandbox: absolute, or from the home; `.` and `..` are taken out of its
/// text, as E2B's service does.
pub(crate) fn place(path: &str) -> PathBuf {
    let home = PathBuf::from(RESIDENT.home);
    let named = match path.strip_prefix('~') {
        Some("") => home,
        Some(rest) if rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
        _ => home.join(path),
    };
    let mut place = PathBuf::new();
    for part in named.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(place.pop()),
            Component::RootDir | Component::Normal(_) | Component::Prefix(_) => place.push(part),
        }
    }
    place
}

fn facts(entry: &Entry) -> EntryFacts {
    let name = |id: u32, own: u32| match id {
        0 => "root".to_owned(),
        id if id == own => RESIDENT.name.to_owned(),
        65_534 => "nobody".to_owned(),
        id => id.to_string(),
    };
    EntryFacts {
        path: text(&entry.path),
        kind: match entry.kind {
            EntryKind::File => "file",
            EntryKind::Directory => "directory",
            EntryKind::Link => "link",
            EntryKind::Other => "other",
        }
        .to_owned(),
        size: entry.size,
        mode: entry.mode,
        owner: name(entry.uid, RESIDENT.uid),
        group: name(entry.gid, RESIDENT.gid),
        modified_ns: entry
            .modified_s
            .saturating_mul(1_000_000_000)
            .saturating_add(entry.modified_ns.into()),
        target: entry.target.as_deref().map(text),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns whether an error means that the file server is gone.
fn is_gone(error: &io::Error) -> bool {
    // Of the kernel inside it has a number.
    let is_own = error.raw_os_error().is_none();
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
    ) || is_own && error.kind() == ErrorKind::TimedOut
}

/// Returns the refusal for an error about a file.
fn refused(path: &str, error: &io::Error) -> Refusal {
    match is_gone(error) {
        true => Refusal::new(
            Kind::Unavailable,
            format!("{path}: the sandbox does not answer"),
        ),
        false => Refusal::of_file(path, error),
    }
}

fn fault(error: &dyn std::error::Error) -> Refusal {
    Refusal::new(Kind::Fault, error.to_string())
}
