//! Landlock (landlock(7)): rights to files that a process drops for good.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use libc::{SYS_landlock_add_rule, SYS_landlock_create_ruleset, SYS_landlock_restrict_self};

use crate::check;
use crate::descriptor::owned;

/// Rights to a file hierarchy, as the kernel's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights(u64);

const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const REMOVE_DIR: u64 = 1 << 4;
const MAKE_CHAR: u64 = 1 << 6;
const MAKE_REG: u64 = 1 << 8;
const MAKE_SOCK: u64 = 1 << 9;
const MAKE_FIFO: u64 = 1 << 10;
const MAKE_BLOCK: u64 = 1 << 11;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;
/// All rights of the first ABI.
const FIRST: u64 = (1 << 13) - 1;
/// The rights that can be granted on a single file.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;

impl Rights {
    /// Read files and list directories.
    pub const READ: Self = Self(READ_FILE | READ_DIR);
    /// List directories.
    pub const LIST: Self = Self(READ_DIR);
    /// Create regular files and write to them, and no more.
    pub const DEPOSIT: Self = Self(MAKE_REG | WRITE_FILE | TRUNCATE);
    /// Remove empty directories.
    pub const REMOVE_DIRECTORIES: Self = Self(REMOVE_DIR);
    /// Link and move from directory to directory.
    pub const MOVE: Self = Self(REFER);
    /// Execute files.
    pub const EXECUTE: Self = Self(EXECUTE);
    /// Everything except creating device nodes and ioctl on devices.
    pub const CHANGE: Self = Self((FIRST & !(MAKE_CHAR | MAKE_BLOCK | EXECUTE)) | REFER | TRUNCATE);
    /// Everything of [`Rights::CHANGE`] except creating sockets and pipes.
    pub const CHANGE_FILES: Self = Self(Self::CHANGE.0 & !(MAKE_SOCK | MAKE_FIFO));
    /// Read, write and control a device.
    pub const DEVICE: Self = Self(READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | IOCTL_DEV);

    /// Returns those of the kernel's bits.
    #[must_use]
    pub const fn of_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the kernel's bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the union of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Returns the version of Landlock that this kernel offers (1 since Linux 5.13).
///
/// # Errors
/// ENOSYS or EOPNOTSUPP where it is absent or switched off.
pub fn version() -> io::Result<u32> {
    const TELL_VERSION: u32 = 1;
    let none = std::ptr::null::<u8>();
    // SAFETY: with this flag no attribute is read.
    let version = unsafe { libc::syscall(SYS_landlock_create_ruleset, none, 0, TELL_VERSION) };
    check(version).map(|version| version as u32)
}

/// The scope of a set of rules. Abstract sockets of other domains are always refused (version 6);
/// so are signals to them, and access to files that no rule grants, unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Everything except TCP ports: a network namespace of its own has nothing but its loopback,
    /// and Landlock cannot name "every port".
    AllButPorts,
    /// Everything, also TCP ports: none can be bound or connected to (version 4).
    All,
    /// Everything that this process can do, except signals: the processes it may signal are not in
    /// its domain.
    AllButSignals,
    /// Signals and abstract sockets only.
    Signals,
    /// Signals and abstract sockets, beneath a domain with rules about files: every domain denies
    /// links and moves from directory to directory that does not grant them (landlock(7),
    /// `LANDLOCK_ACCESS_FS_REFER`).
    SignalsBeneath,
}

/// A set of rules under construction.
#[derive(Debug)]
pub struct Ruleset {
    descriptor: OwnedFd,
    handled: u64,
}

impl AsFd for Ruleset {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Ruleset {
    /// Creates a set that grants nothing yet.
    ///
    /// # Errors
    /// The kernel's; E2BIG where ports are to be refused by one before version 4.
    pub fn new(version: u32, holds: Holds) -> io::Result<Self> {
        #[repr(C)]
        struct Attributes {
            files: u64,
            network: u64,
            scoped: u64,
        }
        let since = |first: u32, bits: u64| if version >= first { bits } else { 0 };
        let files = FIRST | since(2, REFER) | since(3, TRUNCATE) | since(5, IOCTL_DEV);
        let (files, network, scoped) = match holds {
            Holds::AllButPorts => (files, 0, 0b11),
            Holds::All => (files, 0b11, 0b11),
            Holds::AllButSignals => (files, since(4, 0b11), 0b01),
            Holds::Signals => (0, 0, 0b11),
            Holds::SignalsBeneath => (REFER, 0, 0b11),
        };
        let attributes = Attributes {
            files,
            network,
            scoped: since(6, scoped),
        };
        // A kernel that knows less of it refuses whatever is not zero in the rest.
        let bytes = size_of::<Attributes>();
        // SAFETY: `attributes` lives through the call and its size is given.
        let raw = check(unsafe {
            libc::syscall(SYS_landlock_create_ruleset, &raw const attributes, bytes, 0)
        })?;
        Ok(Self {
            descriptor: owned(raw as RawFd),
            handled: attributes.files,
        })
    }

    /// Grants rights to everything beneath an open place. On a single file only the rights that
    /// files can have are granted.
    ///
    /// # Errors
    /// The kernel's.
    pub fn allow(
        &self,
        place: BorrowedFd<'_>,
        rights: Rights,
        is_directory: bool,
    ) -> io::Result<()> {
        #[repr(C, packed)]
        struct PathBeneath {
            allowed: u64,
            parent: RawFd,
        }
        const PATH_BENEATH: u32 = 1;
        let of_kind = if is_directory { u64::MAX } else { OF_FILES };
        let rule = PathBeneath {
            allowed: rights.0 & self.handled & of_kind,
            parent: place.as_raw_fd(),
        };
        if rule.allowed == 0 {
            return Ok(());
        }
        let set = self.descriptor.as_raw_fd();
        // SAFETY: `rule` lives through the call, which reads it.
        check(unsafe {
            libc::syscall(SYS_landlock_add_rule, set, PATH_BENEATH, &raw const rule, 0)
        })
        .map(drop)
    }

    /// Grants rights to the path as this process sees it now.
    ///
    /// # Errors
    /// The kernel's.
    pub fn allow_path(&self, path: &CStr, rights: Rights) -> io::Result<()> {
        let place = crate::descriptor::open_place(None, path)?;
        let facts = crate::descriptor::identity(place.as_fd())?;
        self.allow(place.as_fd(), rights, facts.is_directory)
    }

    /// Confines this process, and all that it starts, to the rules, in a domain of its own.
    ///
    /// # Errors
    /// EPERM unless new privileges were forbidden before.
    pub fn enter(&self) -> io::Result<()> {
        #[cfg(feature = "without_defences")]
        if crate::without::is("landlock") {
            return Ok(());
        }
        let set = self.descriptor.as_raw_fd();
        // SAFETY: integers only.
        check(unsafe { libc::syscall(SYS_landlock_restrict_self, set, 0) }).map(drop)
    }
}
