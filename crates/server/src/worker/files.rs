//! Files of a living sandbox: each request by one of its file servers, for as long as it takes.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use atoll_engine::sandboxes::{
    Change, Entry, EntryKind, FileChange, FileServer, FileWatch, Sandbox,
};
use atoll_model::RESIDENT;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::refusal;
use crate::line::{Frame, Reader, Stream, Writer};
use crate::protocol::{ByteRange, ChangeFacts, EntryFacts, InAsk, Kind, Refusal, Reply};

/// The most file servers of one sandbox that wait for a request.
const IDLE_MAX: usize = 2;
/// The permission bits of files that are made.
const FILE_MODE: u16 = 0o644;
/// The most bytes read at once.
const BLOCK_BYTES: usize = 256 * 1024;
/// The most requests about files of one sandbox at once.
const AT_ONCE_MAX: usize = 8;

/// The file servers of one sandbox.
pub(crate) struct Files {
    sandbox: Arc<Sandbox>,
    idle: Mutex<Vec<FileServer>>,
    /// So that a sandbox whose file servers do not answer holds up no others.
    places: Semaphore,
}

impl Files {
    pub(crate) fn of(sandbox: &Arc<Sandbox>) -> Arc<Self> {
        Arc::new(Self {
            sandbox: Arc::clone(sandbox),
            idle: Mutex::new(Vec::new()),
            places: Semaphore::new(AT_ONCE_MAX),
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
        let place = self.places.acquire().await;
        let _place = place.map_err(|error| fault(&error))?;
        let (files, path) = (Arc::clone(self), path.to_owned());
        let done = spawn_blocking(move || {
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

    /// Connects to a port of the sandbox.
    pub(crate) async fn connect(self: &Arc<Self>, port: u16) -> Result<TcpStream, Refusal> {
        let connect = move |server: &FileServer| server.connect(port);
        let connected = self.with(&format!("port {port}"), connect).await?;
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
    ) -> Result<FileWatch, Refusal> {
        let (files, at) = (Arc::clone(self), place(path));
        let path = path.to_owned();
        let watched = spawn_blocking(move || {
            let watched = files.started()?.watch(&at, recursive);
            watched.map_err(|error| refused(&path, &error))
        });
        watched.await.unwrap_or_else(|error| Err(fault(&error)))
    }

    /// Carries out a request that has one answer.
    pub(crate) async fn answer(self: &Arc<Self>, ask: InAsk) -> Result<Reply, Refusal> {
        let entries = |entries: Vec<Entry>| Reply::Entries(entries.iter().map(facts).collect());
        match ask {
            InAsk::Stat { path } => {
                let at = place(&path);
                let entry = self.with(&path, move |server| server.stat(&at)).await?;
                Ok(entries(vec![entry]))
            }
            InAsk::ListDirectory { path, depth } => {
                let at = place(&path);
                let list = move |server: &FileServer| server.list(&at, depth);
                Ok(entries(self.with(&path, list).await?))
            }
            InAsk::MakeDirectory { path } => {
                let at = place(&path);
                let make = move |server: &FileServer| server.make_directory(&at);
                Ok(entries(vec![self.with(&path, make).await?]))
            }
            InAsk::Move { from, to } => {
                let (old, new) = (place(&from), place(&to));
                let rename = move |server: &FileServer| server.rename(&old, &new);
                Ok(entries(vec![self.with(&from, rename).await?]))
            }
            InAsk::Remove { path } => {
                let at = place(&path);
                self.with(&path, move |server| server.remove(&at)).await?;
                Ok(Reply::Done)
            }
            _ => Err(Refusal::new(Kind::Fault, "this is no request about a file")),
        }
    }

    /// Sends a file, or a part of it.
    pub(crate) async fn read(
        self: &Arc<Self>,
        path: &str,
        range: Option<ByteRange>,
        to: &mut Writer,
    ) -> Result<io::Result<()>, Refusal> {
        let at = place(path);
        let mut file = self
            .with(path, move |server| server.open(&at, None))
            .await?;
        let size = file
            .metadata()
            .map_err(|error| refused(path, &error))?
            .len();
        let (first, length) = part(size, range);
        let head = Reply::File {
            size,
            first,
            length,
        };
        let sent = async {
            file.seek(SeekFrom::Start(first))?;
            to.message(&head).await?;
            let mut left = length;
            while left > 0 {
                // A thread for as long as the disk takes, and not the caller.
                let (of, block) = spawn_blocking(move || read_block(file, left)).await??;
                file = of;
                left -= block.len() as u64;
                to.content(Stream::Output, &block).await?;
            }
            to.message(&Reply::Done).await
        };
        Ok(sent.await)
    }

    /// Writes a file from the frames that come.
    pub(crate) async fn write(
        self: &Arc<Self>,
        path: &str,
        from: &mut Reader,
    ) -> Result<Reply, Refusal> {
        let at = place(path);
        let open = move |server: &FileServer| server.open(&at, Some(FILE_MODE));
        let mut file = self.with(path, open).await?;
        let is_whole = loop {
            match from.next::<()>().await {
                Ok(Some(Frame::Content(_, content))) => {
                    let written = spawn_blocking(move || file.write_all(&content).map(|()| file));
                    let written = written.await.map_err(|error| fault(&error))?;
                    file = written.map_err(|error| refused(path, &error))?;
                }
                Ok(Some(Frame::End)) => break true,
                Ok(_) | Err(_) => break false,
            }
        };
        match is_whole {
            true => {
                self.answer(InAsk::Stat {
                    path: path.to_owned(),
                })
                .await
            }
            false => Err(Refusal::new(
                Kind::Invalid,
                "the content has not come to its end",
            )),
        }
    }
}

/// Returns what has changed in a watched directory until now; waits for the first if told to.
pub(crate) async fn changes(
    watch: &Arc<FileWatch>,
    waits: Option<&AsyncFd<std::os::fd::OwnedFd>>,
) -> io::Result<Vec<ChangeFacts>> {
    if let Some(events) = waits {
        let mut ready = events.readable().await?;
        ready.clear_ready();
    }
    let watch = Arc::clone(watch);
    let changes = spawn_blocking(move || watch.changes()).await??;
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

/// Reads the next block of a file of which so much is left.
fn read_block(mut file: File, left: u64) -> io::Result<(File, Vec<u8>)> {
    let most = usize::try_from(left).unwrap_or(usize::MAX).min(BLOCK_BYTES);
    let mut block = vec![0; most];
    let got = file.read(&mut block)?;
    if got == 0 {
        // It has become shorter meanwhile: the length that was told cannot be kept.
        return Err(ErrorKind::UnexpectedEof.into());
    }
    block.truncate(got);
    Ok((file, block))
}

/// Returns the first byte and the length of a part; the whole where it holds nothing of the file.
fn part(size: u64, range: Option<ByteRange>) -> (u64, u64) {
    match range {
        Some(ByteRange::From(first, last)) if first < size => {
            let last = last.unwrap_or(u64::MAX).min(size - 1);
            (first, (last + 1).saturating_sub(first))
        }
        Some(ByteRange::Last(count)) => (size.saturating_sub(count), count.min(size)),
        Some(ByteRange::From(..)) | None => (0, size),
    }
}

/// Returns the path in the sandbox: absolute, or from the home.
pub(crate) fn place(path: &str) -> PathBuf {
    let home = PathBuf::from(RESIDENT.home);
    match path.strip_prefix('~') {
        Some("") => home,
        Some(rest) if rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
        _ => home.join(path),
    }
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
    let (kind, why) = match error.kind() {
        ErrorKind::NotFound => (Kind::NotFound, "there is no such file or directory"),
        ErrorKind::AlreadyExists => (Kind::Exists, "it is there already"),
        ErrorKind::NotADirectory => (Kind::Invalid, "it is not a directory"),
        ErrorKind::IsADirectory => (Kind::Invalid, "it is a directory"),
        ErrorKind::DirectoryNotEmpty => (Kind::Invalid, "it is a directory that is not empty"),
        ErrorKind::ConnectionRefused => (Kind::NotFound, "nothing listens there"),
        ErrorKind::PermissionDenied => (Kind::Forbidden, "the sandbox's user may not"),
        ErrorKind::ReadOnlyFilesystem => (Kind::Forbidden, "it is read-only"),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            (Kind::NoSpace, "there is no room left")
        }
        ErrorKind::InvalidInput => (Kind::Invalid, "it is no regular file, or no path"),
        ErrorKind::InvalidFilename => (Kind::Invalid, "a name in it is too long"),
        ErrorKind::ArgumentListTooLong => (Kind::Invalid, "it holds more than can be listed"),
        _ if is_gone(error) => (Kind::Unavailable, "the sandbox does not answer"),
        _ => return Refusal::new(Kind::Invalid, format!("{path}: {error}")),
    };
    Refusal::new(kind, format!("{path}: {why}"))
}

fn fault(error: &dyn std::error::Error) -> Refusal {
    Refusal::new(Kind::Fault, error.to_string())
}
