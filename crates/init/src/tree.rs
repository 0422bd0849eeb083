//! The sandbox's file tree: a fresh root in memory, and one closed step after another.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use atoll_frame::{Identity, Nesting, Operation, Room, SandboxSpec, Source, Stage, WHOLE};
use atoll_sys::descriptor;
use atoll_sys::mount::{self, Attributes, FsOption};

use crate::{At, Failure, namespaces, text};

/// The place of a mount while an overlay is made of it.
const SCRATCH: &CStr = c".making";
/// The place of the overlay of the host's root while parts of it are copied.
const SYSTEM: &CStr = c".system";
/// An empty directory of the root's own.
const EMPTY: &CStr = c".empty";

const INERT: Attributes = Attributes::NO_SETUID.and(Attributes::NO_DEVICES);
const READ_ONLY: Attributes = INERT.and(Attributes::READ_ONLY);

/// The state that the steps share.
struct Maker<'a> {
    root: BorrowedFd<'a>,
    /// The user namespace that shows the caller's files as the program's own.
    ids: Option<BorrowedFd<'a>>,
    /// The program's ids to the kernel, if they differ from those of this process.
    owner: Option<(u32, u32)>,
    nesting: Nesting,
    /// A read-only overlay of the host's root, parts of which are shown.
    system: Option<OwnedFd>,
    /// The layer of which parts are shown.
    whole: Option<OwnedFd>,
    /// The mount that hides files, with its source on the host.
    null: Option<(Source, OwnedFd)>,
    /// The directory that hides directories: the one beneath the proc mount, which is empty.
    empty: Option<OwnedFd>,
}

/// Makes the tree and returns its root, attached over the old one.
pub(crate) fn build(spec: &SandboxSpec, ids: Option<BorrowedFd<'_>>) -> Result<OwnedFd, Failure> {
    // Modes in the spec are meant as written.
    let _ = atoll_sys::process::change_mode_mask(0);
    // One file system in memory for everything: what the program can write to it
    // are directories mounted over themselves, the rest turns read-only below.
    let number = |value: u64| CString::new(value.to_string()).map_err(io::Error::other);
    let room = room(spec);
    let bytes = number(room.bytes).at(Stage::Root)?;
    let inodes = number(room.inodes).at(Stage::Root)?;
    let root = mount::memory_tree(&bytes, &inodes, c"0755", INERT).at(Stage::Root)?;
    mount::attach(root.as_fd(), root.as_fd(), c"/").at(Stage::Root)?;
    let owner = match spec.identity {
        Identity::Own { .. } | Identity::Root { .. } => None,
        Identity::Shifted { uid, gid, base, .. } => {
            Some((base.saturating_add(uid), base.saturating_add(gid)))
        }
        Identity::Unmapped { uid, gid } => Some((uid, gid)),
    };
    for place in [SCRATCH, SYSTEM, EMPTY, WHOLE] {
        descriptor::make_directory(root.as_fd(), place, 0o700).at(Stage::Root)?;
    }
    let mut maker = Maker {
        root: root.as_fd(),
        ids,
        owner,
        nesting: spec.nesting,
        system: None,
        whole: None,
        null: None,
        empty: None,
    };
    for operation in &spec.operations {
        maker.perform(operation).map_err(|(error, path)| Failure {
            stage: Stage::Tree,
            error,
            detail: path,
        })?;
    }
    for made in [maker.system.take(), maker.whole.take()].iter().flatten() {
        mount::detach(made.as_fd()).at(Stage::Root)?;
    }
    for place in [SCRATCH, SYSTEM, EMPTY, WHOLE] {
        descriptor::remove_directory(root.as_fd(), place).at(Stage::Root)?;
    }
    mount::restrict(root.as_fd(), READ_ONLY, None).at(Stage::Root)?;
    let _ = atoll_sys::process::change_mode_mask(0o022);
    Ok(root)
}

/// Returns the capacity of the whole tree: the program's own plus the needs of the steps, so that
/// the program gets exactly its own. Files take whole pages; directories take none. Of files and
/// directories it may have a few more: a step that makes none is counted too. Nothing is 0, which
/// would mean no limit.
fn room(spec: &SandboxSpec) -> Room {
    let page = atoll_sys::process::page_bytes();
    let pages = |bytes: usize| (bytes as u64).next_multiple_of(page);
    let taken = |operation: &Operation| match operation {
        Operation::File { content, .. } => pages(content.len()),
        // Short ones lie within their inode.
        Operation::Link { to, .. } if to.len() >= SHORT_LINK_BYTES => pages(to.len() + 1),
        _ => 0,
    };
    let own: u64 = spec.operations.iter().map(taken).sum();
    let places = 1 + 4 + spec.operations.len() as u64;
    Room {
        bytes: spec.memory.bytes.max(page).saturating_add(own),
        inodes: spec.memory.inodes.saturating_add(places),
    }
}

/// The length below which tmpfs keeps a link's target without a page (mm/shmem.c).
const SHORT_LINK_BYTES: usize = 128;

impl Maker<'_> {
    fn perform(&mut self, operation: &Operation) -> Result<(), (io::Error, Vec<u8>)> {
        let (path, done) = match operation {
            Operation::Directory { path, mode, owned } => {
                (path, self.directory(path, *mode, *owned))
            }
            Operation::Link { path, to } => (path, self.link(path, to)),
            Operation::File {
                path,
                mode,
                content,
            } => (path, self.file(path, *mode, content)),
            Operation::Memory { path, mode } => (path, self.memory(path, *mode)),
            Operation::ReadOnly {
                path,
                source,
                empty,
                as_caller,
            } => (path, self.read_only(path, source, empty, *as_caller)),
            Operation::ReadOnlyFile {
                path,
                source,
                as_caller,
            } => {
                let ids = self.ids.filter(|_| *as_caller);
                (path, self.copy_of(path, source, READ_ONLY, ids))
            }
            Operation::Layer {
                path,
                lower,
                own,
                upper,
                work,
                linked,
                volatile,
            } => {
                let own = usize::try_from(*own).unwrap_or(usize::MAX);
                let lower = lower.iter().enumerate();
                let lower = lower.map(|(at, one)| (one, at >= own));
                (
                    path,
                    self.layer(path, lower, [upper, work], [*linked, *volatile]),
                )
            }
            Operation::Part { path } => (path, self.part(path)),
            Operation::ReadOnlyWhole { path, source } => (path, self.whole(path, source)),
            Operation::Writable {
                path,
                source,
                as_caller,
            } => {
                let ids = self.ids.filter(|_| *as_caller);
                (path, self.copy_of(path, source, INERT, ids))
            }
            Operation::Seal { path } => (path, self.over_itself(path, READ_ONLY)),
            Operation::Pin { path } => (path, self.over_itself(path, INERT)),
            Operation::Inexecutable { path } => (path, self.inexecutable(path)),
            Operation::Device { path, source } => (
                path,
                self.copy_of(path, source, Attributes::NO_SETUID, None),
            ),
            Operation::Terminals { path, max } => (path, self.terminals(path, *max)),
            Operation::Processes { path } => (path, self.processes(path)),
            Operation::HideFile { path, null } => (path, self.hide_file(path, null)),
            Operation::HideDirectory { path } => (path, self.hide_directory(path)),
        };
        done.map_err(|error| (error, path.clone()))
    }

    fn directory(&self, path: &[u8], mode: u32, owned: bool) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        descriptor::make_directory(parent.as_fd(), &name, mode)?;
        let path = text(path)?;
        match self.owner {
            Some((uid, gid)) if owned => {
                let place = descriptor::open_beneath(self.root, &path, O_RDONLY, 0)?;
                descriptor::change_owner(place.as_fd(), uid, gid)
            }
            _ => Ok(()),
        }
    }

    fn link(&self, path: &[u8], to: &[u8]) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        descriptor::make_link(parent.as_fd(), &name, &text(to)?)
    }

    /// Opens the directory of a path, and returns it with the path's last part. Mounted directories
    /// may have links that an earlier program has left there: followed, they would lead to the
    /// host's own tree, which is still present.
    fn parent(&self, path: &[u8]) -> io::Result<(OwnedFd, CString)> {
        let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
            None => (&b"."[..], path),
            Some(at) => path.split_at(at),
        };
        let name = name.strip_prefix(b"/").unwrap_or(name);
        if matches!(name, b"" | b"." | b"..") {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let place = descriptor::open_beneath(self.root, &text(parent)?, O_PATH, 0)?;
        Ok((place, text(name)?))
    }

    /// Attaches a mount at a path in the sandbox, following no link on the way either.
    fn attach(&self, made: &OwnedFd, path: &[u8]) -> io::Result<()> {
        let place = descriptor::open_beneath(self.root, &text(path)?, O_PATH, 0)?;
        mount::attach(made.as_fd(), place.as_fd(), c"")
    }

    fn file(&self, path: &[u8], mode: u32, content: &[u8]) -> io::Result<()> {
        let flags = O_WRONLY | O_CREAT | O_EXCL;
        let file = descriptor::open_beneath(self.root, &text(path)?, flags, mode)?;
        descriptor::write_all(&file, content)?;
        match self.owner {
            // The program's own, which it may read and change.
            Some((uid, gid)) => descriptor::change_owner(file.as_fd(), uid, gid),
            None => Ok(()),
        }
    }

    fn memory(&self, path: &[u8], mode: u32) -> io::Result<()> {
        self.directory(path, mode, true)?;
        let place = descriptor::open_beneath(self.root, &text(path)?, O_RDONLY, 0)?;
        // One that was there already, as a step to somewhere else, has another mode.
        descriptor::change_mode(place.as_fd(), mode)?;
        self.over_itself(path, INERT)
    }

    /// Mounts an overlay without a writable layer: its sockets and pipes are inodes of its own, so
    /// that no program listening on the host can be reached through them, as it could through a
    /// read-only bind mount.
    fn read_only(
        &mut self,
        path: &[u8],
        source: &Source,
        empty: &Source,
        as_caller: bool,
    ) -> io::Result<()> {
        let opened = open(source)?;
        if !as_caller && self.is_part_of_root(&opened)? {
            return self.part_of_root(path, &source.path);
        }
        let source = opened;
        let empty = open(empty)?;
        let shown = self.shown(&source, as_caller)?;
        // The source on top, so that its root keeps its own mode and owner; a
        // second layer is what makes an overlay without an upper one legal.
        let lower = format!("{}:{}", number_path(shown.fd()), number_path(&empty));
        let lower = CString::new(lower).map_err(io::Error::other)?;
        let made = mount::make(c"overlay", &[(c"lowerdir", Some(&lower))], READ_ONLY)?;
        self.attach(&made, path)
    }

    /// Returns whether a place lies on the host's root file system itself, where an overlay of the
    /// root shows it. In a user namespace the kernel does not allow the root without the mounts on
    /// it.
    fn is_part_of_root(&self, place: &OwnedFd) -> io::Result<bool> {
        if self.owner.is_none() {
            return Ok(false);
        }
        let root = descriptor::open_place(None, c"/")?;
        Ok(mount::number(place.as_fd())? == mount::number(root.as_fd())?)
    }

    /// Mounts a part of one overlay of the host's whole root: copying it costs a fraction of
    /// another overlay. The whole is never shown, and is detached once the tree is made.
    fn part_of_root(&mut self, path: &[u8], source: &[u8]) -> io::Result<()> {
        if self.system.is_none() {
            let root = descriptor::open_place(None, c"/")?;
            let empty = descriptor::open_beneath(self.root, EMPTY, O_PATH, 0)?;
            let lower = format!("{}:{}", number_path(&root), number_path(&empty));
            let lower = CString::new(lower).map_err(io::Error::other)?;
            let made = mount::make(c"overlay", &[(c"lowerdir", Some(&lower))], READ_ONLY)?;
            mount::attach(made.as_fd(), self.root, SYSTEM)?;
            self.system = Some(made);
        }
        let system = self.system.as_ref();
        let system = system.ok_or(io::ErrorKind::NotFound)?;
        let within = source.strip_prefix(b"/").unwrap_or(source);
        let part = descriptor::open_beneath(system.as_fd(), &text(within)?, O_PATH, 0)?;
        let copied = mount::copy(part.as_fd())?;
        mount::restrict(copied.as_fd(), READ_ONLY, None)?;
        self.attach(&copied, path)
    }

    fn layer<'l>(
        &mut self,
        path: &[u8],
        lower: impl Iterator<Item = (&'l Source, bool)>,
        [upper, work]: [&Source; 2],
        [linked, volatile]: [bool; 2],
    ) -> io::Result<()> {
        let (upper, work) = (open(upper)?, open(work)?);
        let lower = lower.map(|(one, as_caller)| Ok((open(one)?, as_caller)));
        let lower = lower.collect::<io::Result<Vec<_>>>()?;
        let shown = lower.iter().map(|(one, mapped)| self.shown(one, *mapped));
        let mut shown = shown.collect::<io::Result<Vec<_>>>()?;
        let paths: Vec<String> = shown.iter().map(|one| number_path(one.fd())).collect();
        let value = |path: String| CString::new(path).map_err(io::Error::other);
        let lower = value(paths.join(":"))?;
        let (upper, work) = (value(number_path(&upper))?, value(number_path(&work))?);
        let mut options: Vec<FsOption<'_>> = vec![
            (c"lowerdir", Some(&lower)),
            (c"upperdir", Some(&upper)),
            (c"workdir", Some(&work)),
        ];
        if self.owner.is_some() {
            let index = if linked { c"on" } else { c"off" };
            options.extend([(c"redirect_dir", Some(c"on")), (c"index", Some(index))]);
        } else {
            options.push((c"userxattr", None));
        }
        if volatile {
            options.push((c"volatile", None));
        }
        let made = mount::make(c"overlay", &options, INERT)?;
        // They lie upon each other at the scratch place: the last comes off first.
        while let Some(topmost) = shown.pop() {
            drop(topmost);
        }
        self.attach(&made, path)?;
        if path == WHOLE.to_bytes() {
            self.whole = Some(made);
        }
        Ok(())
    }

    /// Shows a directory of the layer of which only parts are shown, for less than another overlay.
    fn part(&self, path: &[u8]) -> io::Result<()> {
        let is_name = !path.contains(&b'/') && path != b"..";
        let whole = self.whole.as_ref().filter(|_| is_name);
        let whole = whole.ok_or(io::ErrorKind::NotFound)?;
        let part = descriptor::open_beneath(whole.as_fd(), &text(path)?, O_PATH, 0)?;
        self.attach(&mount::copy(part.as_fd())?, path)
    }

    /// Returns a host directory as an overlay may use it: itself, or for a shifted identity a copy
    /// of its mount with mapped owners, attached at the scratch place until the overlay holds it.
    fn shown<'s>(&self, source: &'s OwnedFd, as_caller: bool) -> io::Result<Shown<'s>> {
        match self.ids {
            Some(ids) if as_caller => {
                let copied = mount::copy(source.as_fd())?;
                mount::restrict(copied.as_fd(), INERT, Some(ids))?;
                mount::attach(copied.as_fd(), self.root, SCRATCH)?;
                Ok(Shown::Mapped(copied))
            }
            _ => Ok(Shown::Itself(source)),
        }
    }

    fn copy_of(
        &self,
        path: &[u8],
        source: &Source,
        attributes: Attributes,
        ids: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let source = open(source)?;
        let copied = mount::copy(source.as_fd())?;
        mount::restrict(copied.as_fd(), attributes, ids)?;
        self.attach(&copied, path)
    }

    /// Mounts a host directory unchanged, with all mounts beneath it. Where they are locked
    /// together (mount_namespaces(7)) the kernel does not copy a part of it alone.
    fn whole(&self, path: &[u8], source: &Source) -> io::Result<()> {
        let source = open(source)?;
        let copied = mount::copy_whole(source.as_fd(), READ_ONLY)?;
        self.attach(&copied, path)
    }

    /// Mounts an existing path over itself, to give it attributes of its own and to protect it from
    /// renaming and removal.
    fn over_itself(&self, path: &[u8], attributes: Attributes) -> io::Result<()> {
        let place = descriptor::open_beneath(self.root, &text(path)?, O_PATH, 0)?;
        let copied = mount::copy(place.as_fd())?;
        mount::restrict(copied.as_fd(), attributes, None)?;
        mount::attach(copied.as_fd(), place.as_fd(), c"")
    }

    fn inexecutable(&self, path: &[u8]) -> io::Result<()> {
        let place = descriptor::open_beneath(self.root, &text(path)?, O_PATH, 0)?;
        mount::restrict(place.as_fd(), Attributes::NO_EXECUTION, None)
    }

    fn terminals(&self, path: &[u8], max: u32) -> io::Result<()> {
        let max = CString::new(max.to_string()).map_err(io::Error::other)?;
        let options: [FsOption<'_>; 3] = [
            (c"ptmxmode", Some(c"0666")),
            (c"mode", Some(c"0620")),
            (c"max", Some(&max)),
        ];
        let attributes = Attributes::NO_SETUID.and(Attributes::NO_EXECUTION);
        let made = mount::make(c"devpts", &options, attributes)?;
        self.attach(&made, path)
    }

    fn processes(&mut self, path: &[u8]) -> io::Result<()> {
        let made = mount::make(c"proc", &[], INERT.and(Attributes::NO_EXECUTION))?;
        let place = descriptor::open_beneath(self.root, &text(path)?, O_PATH, 0)?;
        mount::attach(made.as_fd(), place.as_fd(), c"")?;
        self.empty = Some(place);
        if self.owner.is_some() {
            // The launcher has set the limit in the namespace it made; where there is
            // none, the limits found here are the host's.
            return Ok(());
        }
        namespaces::limit(made.as_fd(), self.nesting)
    }

    /// Hides a file with a copy of one mount, which has its attributes already.
    fn hide_file(&mut self, path: &[u8], null: &Source) -> io::Result<()> {
        let made = match &self.null {
            Some((known, mount)) if known == null => mount::copy(mount.as_fd())?,
            _ => {
                let made = mount::copy(open(null)?.as_fd())?;
                mount::restrict(made.as_fd(), Attributes::NO_SETUID, None)?;
                made
            }
        };
        self.attach(&made, path)?;
        self.null = Some((null.clone(), made));
        Ok(())
    }

    fn hide_directory(&self, path: &[u8]) -> io::Result<()> {
        let made = match &self.empty {
            Some(empty) => {
                let made = mount::copy(empty.as_fd())?;
                mount::restrict(made.as_fd(), READ_ONLY, None)?;
                made
            }
            None => mount::memory_tree(c"4096", c"2", c"0555", READ_ONLY)?,
        };
        self.attach(&made, path)
    }
}

/// The source directory of an overlay.
enum Shown<'a> {
    Itself(&'a OwnedFd),
    Mapped(OwnedFd),
}

impl Shown<'_> {
    fn fd(&self) -> &OwnedFd {
        match self {
            Self::Itself(fd) => fd,
            Self::Mapped(fd) => fd,
        }
    }
}

impl Drop for Shown<'_> {
    /// Detaches the copy from the scratch place; the overlay has its own.
    fn drop(&mut self) {
        if let Self::Mapped(fd) = self {
            let _ = mount::detach(fd.as_fd());
        }
    }
}

/// Opens a place on the host without following links, and checks that it is still the file that was
/// judged.
fn open(source: &Source) -> io::Result<OwnedFd> {
    const ESTALE: i32 = 116;
    let place = descriptor::open_place(None, &text(&source.path)?)?;
    let found = descriptor::identity(place.as_fd())?;
    if (found.device, found.inode) == (source.device, source.inode) {
        Ok(place)
    } else {
        Err(io::Error::from_raw_os_error(ESTALE))
    }
}

/// Returns the path by which the kernel finds an open place again: it has no colon or comma that a
/// mount option would interpret, and shows no host path in the sandbox's list of mounts.
fn number_path(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

const O_RDONLY: i32 = 0;
const O_WRONLY: i32 = 1;
const O_CREAT: i32 = 0o100;
const O_EXCL: i32 = 0o200;
const O_PATH: i32 = 0o10_000_000;
