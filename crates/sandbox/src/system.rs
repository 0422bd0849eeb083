//! The system overlay of root in the sandbox: the layers over the host's directories, as
//! prepared before the program starts.
//!
//! Root in the sandbox reads every lower file as root, so files that are not world-readable on
//! the host are hidden here first. The directories where the host keeps its secrets, and may
//! write new ones at any time, have no lower directory: they are copied. For an ordinary user
//! the kernel denies access to the secrets; there the layers get directories that the user
//! owns, since a directory of the host's root cannot be copied up (its owner is not mapped in
//! the sandbox).

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, FileType as FsKind, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, XattrFlags, mknodat, setxattr};

use crate::{Host, IDS, PlacedLayer, SandboxError};

/// The most entries of a directory of the system that are inspected.
const ENTRIES_MAX: usize = 400_000;
/// The largest file that is copied to a layer, bytes.
const COPIED_FILE_BYTES_MAX: u64 = 128 << 20;

/// A directory that a distribution fills with world-readable files (the Filesystem Hierarchy
/// Standard calls it shareable), except the part that belongs to the host.
const DISTRIBUTED: &str = "/usr";
const LOCAL: &str = "/usr/local";

/// The directories in which packages change files, rather than only add some.
const CHANGED: [&str; 2] = ["/etc", "/var"];
/// The directories with so many files that they are only added and removed.
const LARGE: [&str; 2] = ["dpkg/info", "apt/lists"];

/// The directory whose files are made anew by those who want them.
const CACHE: &str = "/var/cache/apt";

/// The directory that root in the sandbox has of its own.
const OWN: &str = "/var";

/// Prepares a layer over the system's directory `from`. Returns why there is none, if the
/// directory holds too many files to inspect.
///
/// # Errors
/// [`SandboxError::Host`].
pub fn furnish_system(
    layer: &PlacedLayer,
    from: &Path,
    base: Option<u32>,
    host: &Host,
) -> Result<Option<String>, SandboxError> {
    let mut furnisher = Furnisher {
        layer,
        from,
        base,
        looked: 0,
    };
    let furnished = match base {
        _ if layer.inside == Path::new(OWN) => furnisher.make_var(),
        Some(_) if layer.lower == from => furnisher.take_out(host),
        Some(_) | None => furnisher.make_own_once(),
    };
    furnisher.told(furnished)
}

/// Makes a part of a layer that lies over nothing look as the host's directory: all that everybody
/// may read is copied. Returns why not, as [`furnish_system`] does.
///
/// # Errors
/// [`SandboxError::Host`].
pub fn furnish_part(
    whole: &PlacedLayer,
    from: &Path,
    base: Option<u32>,
) -> Result<Option<String>, SandboxError> {
    let layer = PlacedLayer {
        inside: from.to_path_buf(),
        upper: whole.upper.join(from.strip_prefix("/").unwrap_or(from)),
        parts: Vec::new(),
        ..whole.clone()
    };
    let mut furnisher = Furnisher {
        layer: &layer,
        from,
        base,
        looked: 0,
    };
    let furnished = match from == Path::new(OWN) {
        true => furnisher.make_var(),
        false => furnisher.make_own(),
    };
    furnisher.told(furnished)
}

struct Furnisher<'a> {
    layer: &'a PlacedLayer,
    /// The host's directory.
    from: &'a Path,
    /// For host root: the kernel's id of the id 0 in the sandbox.
    base: Option<u32>,
    looked: usize,
}

/// The replacement of a host's path in the layer.
enum Taken {
    /// Nothing: it does not exist in the sandbox.
    Away,
    /// A file with this text.
    Replaced(String),
}

impl Furnisher<'_> {
    fn told(&self, furnished: io::Result<()>) -> Result<Option<String>, SandboxError> {
        match furnished {
            Ok(()) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::QuotaExceeded => Ok(Some(format!(
                "{} holds more than {ENTRIES_MAX} files, too many to look through for what only \
                 root may read: root inside can read it as everybody can, and not change it",
                self.layer.inside.display()
            ))),
            Err(error) => Err(SandboxError::host(
                "a layer over the system could not be made",
            )(error)),
        }
    }

    /// For host root: hides files that are not world-readable, and copies those that are
    /// mounted over others, which a layer does not show.
    fn take_out(&mut self, host: &Host) -> io::Result<()> {
        let lower = self.from.to_path_buf();
        let top = if lower == Path::new(DISTRIBUTED) {
            PathBuf::from(LOCAL)
        } else {
            lower.clone()
        };
        let mut waiting = vec![top];
        while let Some(directory) = waiting.pop() {
            for (path, facts) in self.entries(&directory, |_| true)? {
                if facts.is_dir() && self.may_show(&path, &facts) {
                    waiting.push(path);
                } else if facts.is_dir() {
                    self.make_parents(&path)?;
                    self.make_directory(&path, &facts, true)?;
                } else if facts.is_file() && !self.may_show(&path, &facts) {
                    self.take(&path, &facts)?;
                }
            }
        }
        for mount in host.mounts_within(&lower) {
            let facts = fs::metadata(&mount.path)?;
            if facts.is_file() && is_for_everybody(&facts) {
                self.make_parents(&mount.path)?;
                self.copy(&mount.path, &facts)?;
            }
        }
        Ok(())
    }

    /// Makes a /var as on a fresh system.
    fn make_var(&self) -> io::Result<()> {
        let directories = [
            ("backups", 0o755),
            ("cache", 0o755),
            ("lib", 0o755),
            ("local", 0o755),
            ("log", 0o755),
            ("mail", 0o755),
            ("opt", 0o755),
            ("spool", 0o755),
            ("tmp", 0o1777),
        ];
        for (name, mode) in directories {
            let to = self.layer.upper.join(name);
            match fs::create_dir(&to) {
                // A former program's, which may be a link to anywhere: it stays as it is.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            self.give(&to, 0, 0)?;
            fs::set_permissions(&to, Permissions::from_mode(mode))?;
        }
        already_there(symlink("/run", self.layer.upper.join("run")))?;
        already_there(symlink("/run/lock", self.layer.upper.join("lock")))
    }

    /// Makes the own directories once: a run that continues the layer also keeps what was
    /// removed there.
    fn make_own_once(&mut self) -> io::Result<()> {
        let done = self.layer.upper.with_file_name("furnished");
        if done.exists() {
            return Ok(());
        }
        self.make_own()?;
        fs::write(done, "")
    }

    /// For an ordinary user: makes directories of its own over those of the host's root, and
    /// copies the files that packages change. For host root: does so for the directories that
    /// are copied as a whole.
    fn make_own(&mut self) -> io::Result<()> {
        let mut waiting = vec![self.from.to_path_buf()];
        while let Some(directory) = waiting.pop() {
            let is_changed = CHANGED.iter().any(|top| directory.starts_with(top));
            let is_over = self.layer.lower == self.from;
            let is_large = is_over && LARGE.iter().any(|one| directory.ends_with(one))
                || !is_over && directory.starts_with(CACHE);
            for (path, facts) in self.entries(&directory, |kind| kind.is_dir() || is_changed)? {
                let kind = facts.file_type();
                if kind.is_dir() {
                    let is_open = self.may_show(&path, &facts);
                    self.make_directory(&path, &facts, !is_open)?;
                    if is_open {
                        waiting.push(path);
                    }
                } else if kind.is_symlink() {
                    self.link(&path, &facts)?;
                } else if kind.is_file()
                    && (!self.may_show(&path, &facts) || synthetic(&path)?.is_some())
                {
                    self.take(&path, &facts)?;
                } else if kind.is_file() && !is_large {
                    self.copy(&path, &facts)?;
                }
            }
        }
        Ok(())
    }

    /// Returns whether root in the sandbox may see the content of a path.
    fn may_show(&self, path: &Path, facts: &Metadata) -> bool {
        match self.base {
            None => rustix::fs::access(path, rustix::fs::Access::READ_OK).is_ok(),
            Some(_) if facts.is_dir() => facts.mode() & 0o005 == 0o005,
            Some(_) => is_for_everybody(facts),
        }
    }

    /// Returns the entries of a directory. Those that vanish meanwhile are left out.
    fn entries(
        &mut self,
        directory: &Path,
        wanted: impl Fn(FsKind) -> bool,
    ) -> io::Result<Vec<(PathBuf, Metadata)>> {
        let mut found = Vec::new();
        let listed = match fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            listed => listed?,
        };
        for entry in listed {
            let entry = entry?;
            self.looked += 1;
            if self.looked > ENTRIES_MAX {
                return Err(io::ErrorKind::QuotaExceeded.into());
            }
            if !wanted(entry.file_type()?) {
                continue;
            }
            match entry.metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                facts => found.push((entry.path(), facts?)),
            }
        }
        Ok(found)
    }

    /// Returns the path in the layer, if it does not exist there yet. `None` if it does, or if
    /// anything but directories leads to it: an earlier program has put that there, it hides
    /// the lower file, and following it would lead to the host's own files. No process writes
    /// to the layer meanwhile.
    fn free_place(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        let rest = path.strip_prefix(self.from).map_err(io::Error::other)?;
        let mut to = self.layer.upper.clone();
        let mut parts = rest.components().peekable();
        while let Some(part) = parts.next() {
            to.push(part);
            let is_last = parts.peek().is_none();
            match fs::symlink_metadata(&to) {
                Ok(facts) if facts.is_dir() && !is_last => {}
                Ok(_) => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::NotFound && is_last => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(to))
    }

    fn link(&self, path: &Path, facts: &Metadata) -> io::Result<()> {
        let Some(to) = self.free_place(path)? else {
            return Ok(());
        };
        symlink(fs::read_link(path)?, &to)?;
        self.give(&to, facts.uid(), facts.gid())
    }

    /// Makes the directories that lead to a path, as they are on the host.
    fn make_parents(&self, path: &Path) -> io::Result<()> {
        let above = path.ancestors().skip(1);
        let mut missing: Vec<&Path> = above.take_while(|one| *one != self.from).collect();
        missing.reverse();
        for one in missing {
            self.make_directory(one, &fs::symlink_metadata(one)?, false)?;
        }
        Ok(())
    }

    /// Makes one directory in the layer, unless it exists; a `closed` one shows nothing of the
    /// host's.
    fn make_directory(&self, path: &Path, facts: &Metadata, closed: bool) -> io::Result<()> {
        let Some(to) = self.free_place(path)? else {
            return Ok(());
        };
        DirBuilder::new().mode(0o700).create(&to)?;
        if closed && self.layer.lower == self.from {
            let mark = match self.base {
                Some(_) => "trusted.overlay.opaque",
                None => "user.overlay.opaque",
            };
            setxattr(&to, mark, b"y", XattrFlags::empty())?;
        }
        self.look_like(&to, facts)
    }

    fn take(&self, path: &Path, facts: &Metadata) -> io::Result<()> {
        self.make_parents(path)?;
        let Some(to) = self.free_place(path)? else {
            return Ok(());
        };
        let taken = match synthetic(path)? {
            None => Taken::Away,
            Some(content) => Taken::Replaced(content),
        };
        match taken {
            // Nothing of the host's lies beneath.
            Taken::Away if self.layer.lower != self.from => Ok(()),
            // What overlayfs knows as a removed file.
            Taken::Away => Ok(mknodat(
                CWD,
                &to,
                FileType::CharacterDevice,
                Mode::empty(),
                0,
            )?),
            Taken::Replaced(content) => {
                fs::write(&to, content)?;
                self.look_like(&to, facts)
            }
        }
    }

    fn copy(&self, path: &Path, facts: &Metadata) -> io::Result<()> {
        let to = self.free_place(path)?;
        let Some(to) = to.filter(|_| facts.len() <= COPIED_FILE_BYTES_MAX) else {
            return Ok(());
        };
        fs::write(&to, fs::read(path)?)?;
        let copied = fs::File::options().write(true).open(&to)?;
        copied.set_modified(facts.modified()?)?;
        self.look_like(&to, facts)
    }

    /// Shifts an owner, if the program's ids are shifted.
    fn give(&self, to: &Path, uid: u32, gid: u32) -> io::Result<()> {
        let Some(base) = self.base else { return Ok(()) };
        lchown(to, Some(base + uid % IDS), Some(base + gid % IDS))
    }

    fn look_like(&self, to: &Path, facts: &Metadata) -> io::Result<()> {
        self.give(to, facts.uid(), facts.gid())?;
        let own = if facts.is_dir() { 0o700 } else { 0o600 };
        fs::set_permissions(to, Permissions::from_mode(facts.mode() & 0o7777 | own))
    }
}

/// Returns whether a file is world-readable, or a set-id program that everybody may execute:
/// some distributions make those unreadable, although they hold nothing that a package does
/// not.
fn is_for_everybody(facts: &Metadata) -> bool {
    let is_set_id = facts.mode() & 0o6000 != 0 && facts.mode() & 0o001 != 0;
    facts.mode() & 0o004 != 0 || is_set_id
}

/// Returns the replacement of a file with secrets that programs need: the same accounts, none
/// with a password.
fn synthetic(path: &Path) -> io::Result<Option<String>> {
    let names = |of: &str| -> io::Result<BTreeSet<String>> {
        let text = String::from_utf8_lossy(&fs::read(of)?).into_owned();
        let name = |line: &str| line.split(':').next().unwrap_or_default().to_owned();
        Ok(text
            .lines()
            .map(name)
            .filter(|name| !name.is_empty())
            .collect())
    };
    let lines = |of: &str, rest: &str| -> io::Result<Option<String>> {
        let line = |name: &String| format!("{name}:*:{rest}\n");
        Ok(Some(names(of)?.iter().map(line).collect()))
    };
    match path.to_str() {
        Some("/etc/shadow") => lines("/etc/passwd", "::::::"),
        Some("/etc/gshadow") => lines("/etc/group", ":"),
        Some("/etc/sudoers") => Ok(Some("root ALL=(ALL:ALL) ALL\n".to_owned())),
        _ => Ok(None),
    }
}

fn already_there(made: io::Result<()>) -> io::Result<()> {
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}
