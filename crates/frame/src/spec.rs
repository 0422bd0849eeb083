use crate::wire::{Malformed, Reader, Writer};

/// The longest description of a sandbox, bytes.
pub const SPEC_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The form's version; another one is refused.
const VERSION: u32 = 8;

/// The capabilities that root inside a sandbox can have, each for its reason, as bits
/// of their numbers in capabilities(7). They count for the sandbox's own ids alone.
pub const ROOT_CAPABILITIES: u64 = CHOWN | DAC_OVERRIDE | FOWNER | FSETID | KILL | SETGID | SETUID;
/// Packages, tar and installers give files to other users.
const CHOWN: u64 = 1 << 0;
/// Root writes in the directories of its services.
const DAC_OVERRIDE: u64 = 1 << 1;
/// It sets modes and times of files that it has given away.
const FOWNER: u64 = 1 << 3;
/// Set-id bits outlive a write and a change of owner (they are without effect).
const FSETID: u64 = 1 << 4;
/// It ends services that run as other users.
pub const KILL: u64 = 1 << 5;
/// Services and installers become other users, and so do su and apt.
const SETGID: u64 = 1 << 6;
const SETUID: u64 = 1 << 7;
/// The kernel gives user id 0 to no namespace beneath unless its maker could also give
/// capabilities to files (CAP_SETFCAP), which are without effect inside.
pub const NEST_AS_ROOT: u64 = 1 << 31;

/// Everything the launcher needs to make one sandbox. It is written once, into
/// sealed memory, and holds nothing that the sandbox may not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Who the program is, inside and to the kernel.
    pub identity: Identity,
    /// What it may do as root inside: of [`ROOT_CAPABILITIES`], mostly none; and as user
    /// id 0 that may nest, [`NEST_AS_ROOT`].
    pub capabilities: u64,
    /// Whether it is only fenced in: no namespaces, so neither a file tree nor a
    /// network of its own. Its permissions are all that holds it, and a judge.
    pub fenced: bool,
    /// Whether it may make namespaces of its own.
    pub nesting: Nesting,
    /// The host's name as seen inside.
    pub host_name: Vec<u8>,
    /// Control groups of version 1 to join, as paths of their `tasks` files.
    pub cgroup_tasks: Vec<Vec<u8>>,
    /// The control group of version 2 to start in, as the path of its directory.
    pub cgroup_unified: Option<Vec<u8>>,
    /// Directories of control groups to remove when the host side is gone.
    pub cgroup_directories: Vec<Vec<u8>>,
    /// Room for everything that is written to memory: the private /tmp, /dev/shm,
    /// the home; all together.
    pub memory: Room,
    /// How the sandbox's file tree is made, in order.
    pub operations: Vec<Operation>,
    /// What the program may do with it, once more by Landlock.
    pub permissions: Vec<Permission>,
    /// The version of Landlock to enforce in full.
    pub landlock_version: u32,
    /// Limits of each process (setrlimit(2)).
    pub resource_limits: Vec<ResourceLimit>,
    /// Limits that no control group holds and `init` watches.
    pub watch: Watch,
    /// Whether debugging calls are refused.
    pub deny_debugging: bool,
    /// Whether internet sockets are refused.
    pub deny_sockets: bool,
    /// Whether set-user-id and set-group-id files are refused: where files are the
    /// host's own.
    pub deny_set_id: bool,
    /// Whether programs that are no file are refused: where only listed files may
    /// be executed.
    pub deny_memory_programs: bool,
    /// How its network leads out, if it does.
    pub funnel: Option<Funnel>,
    /// How many sockets the host side gets of each family, to connect to what listens on
    /// its loopback.
    pub inward: u8,
    /// The terminal, if the program gets one.
    pub terminal: Option<Terminal>,
    /// The program and its arguments.
    pub arguments: Vec<Vec<u8>>,
    /// Its environment, `NAME=value` each.
    pub environment: Vec<Vec<u8>>,
    /// Where it starts.
    pub directory: Vec<u8>,
}

/// The most sockets of a family that one message carries beside the listeners.
pub const INWARD_MAX: u8 = 64;

/// Which namespaces a program may make beneath its sandbox (namespaces(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nesting {
    /// None.
    Refused,
    /// All but those of control groups: in one it could mount them, and change those
    /// that belong to its user.
    ButGroups,
    /// All: no control group is its user's.
    All,
}

/// Who the program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// An ordinary user keeps its own numbers; nothing else is mapped.
    Own {
        /// User id, inside and outside.
        uid: u32,
        /// Group id, inside and outside.
        gid: u32,
    },
    /// An ordinary user is root inside, and is nobody but itself to the kernel.
    Root {
        /// User id outside, for the id 0 inside.
        uid: u32,
        /// Group id outside.
        gid: u32,
        /// Whether the host side maps further ids, which the user has for its use
        /// (subuid(5)).
        ranged: bool,
    },
    /// The launcher runs as root: the numbers inside are shifted, so that the
    /// kernel never sees user id 0.
    Shifted {
        /// User id inside.
        uid: u32,
        /// Group id inside.
        gid: u32,
        /// The kernel's number for the id 0 inside.
        base: u32,
        /// How many ids are mapped.
        count: u32,
    },
    /// The launcher runs as root, and no user namespace can be made: the program is
    /// somebody else, inside by the same number as to the kernel.
    Unmapped {
        /// User id, never 0.
        uid: u32,
        /// Group id, never 0.
        gid: u32,
    },
}

/// A place on the host, and what must stand there: a path that was exchanged
/// since it was judged is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The path, absolute, without symbolic links.
    pub path: Vec<u8>,
    /// The device that it must be on.
    pub device: u64,
    /// The inode that it must be.
    pub inode: u64,
}

/// A path inside, relative to the sandbox's root.
pub type Place = Vec<u8>;

/// One step of making the sandbox's file tree. `path` is always the place
/// inside; where a step `as_caller` shows host files to a shifted identity, the
/// caller's files look like the program's own.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A directory in the root's own memory.
    Directory { path: Place, mode: u32, owned: bool },
    /// A symbolic link.
    Link { path: Place, to: Vec<u8> },
    /// A small file with this content.
    File {
        path: Place,
        mode: u32,
        content: Vec<u8>,
    },
    /// A writable directory in memory, of its own but for the room it shares.
    Memory { path: Place, mode: u32 },
    /// A host directory that can be read, without its sockets and pipes working.
    ReadOnly {
        path: Place,
        source: Source,
        empty: Source,
        as_caller: bool,
    },
    /// A host file that can be read.
    ReadOnlyFile {
        path: Place,
        source: Source,
        as_caller: bool,
    },
    /// A host directory changed in a layer; `volatile` where nothing of it is kept,
    /// so that nobody waits for it to reach the disk.
    Layer {
        path: Place,
        lower: Source,
        upper: Source,
        work: Source,
        volatile: bool,
    },
    /// A host directory with all that is mounted within: for where the kernel does
    /// not let mounts be left out. Its sockets and pipes work until they are hidden.
    ReadOnlyWhole { path: Place, source: Source },
    /// A host directory or file that is really written.
    Writable {
        path: Place,
        source: Source,
        as_caller: bool,
    },
    /// The same path made read-only again, in what is already there.
    Seal { path: Place },
    /// The same path mounted over itself, so that it cannot be moved away.
    Pin { path: Place },
    /// Nothing in the mount at a path is executed, nor mapped as code by a loader.
    Inexecutable { path: Place },
    /// A device node of the host.
    Device { path: Place, source: Source },
    /// A terminal file system of its own.
    Terminals { path: Place, max: u32 },
    /// The process file system of its own.
    Processes { path: Place },
    /// Nothing at all where a file stands.
    HideFile { path: Place, null: Source },
    /// An empty read-only directory where one stands.
    HideDirectory { path: Place },
}

/// How much can be written to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes.
    pub bytes: u64,
    /// Files and directories.
    pub inodes: u64,
}

/// What may be done beneath a path inside, by Landlock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    /// The path inside, absolute.
    pub path: Vec<u8>,
    /// Read and list.
    pub read: bool,
    /// Execute.
    pub execute: bool,
    /// Create, write, remove, rename.
    pub change: bool,
    /// Control devices.
    pub device: bool,
    /// In a fence: connect to the socket that this is, which is not the program's own.
    pub connect: bool,
}

/// One limit of each process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceLimit {
    /// The kernel's number of the resource.
    pub resource: u32,
    /// The value, in the resource's unit.
    pub value: u64,
}

/// Limits that `init` watches where the kernel does not hold them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    /// Memory of all processes together, bytes; 0 for none.
    pub memory_bytes: u64,
    /// From start to end, milliseconds; 0 for none. The host side watches too,
    /// but can be stopped.
    pub wall_clock_ms: u64,
}

/// A network of which everything that is not its own loopback arrives at listeners, which
/// the launcher hands to the host side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Funnel {
    /// How many connections there can be at once.
    pub connections_max: u32,
}

/// The program's terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminal {
    /// Lines.
    pub rows: u16,
    /// Characters a line.
    pub columns: u16,
}

impl Spec {
    /// Gives up what only the making of the sandbox needs: paths of the host.
    pub fn forget_host(&mut self) {
        self.operations = Vec::new();
        self.cgroup_tasks = Vec::new();
        self.cgroup_unified = None;
        self.cgroup_directories = Vec::new();
    }

    /// The description as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u32(VERSION);
        write_identity(&mut out, self.identity);
        out.u64(self.capabilities);
        out.u8(u8::from(self.fenced));
        out.u8(match self.nesting {
            Nesting::Refused => 0,
            Nesting::ButGroups => 1,
            Nesting::All => 2,
        });
        out.text(&self.host_name);
        let texts = |out: &mut Writer, list: &[Vec<u8>]| {
            out.list(list, |out, text| out.text(text));
        };
        texts(&mut out, &self.cgroup_tasks);
        out.u8(u8::from(self.cgroup_unified.is_some()));
        out.text(self.cgroup_unified.as_deref().unwrap_or_default());
        texts(&mut out, &self.cgroup_directories);
        out.u64(self.memory.bytes);
        out.u64(self.memory.inodes);
        out.list(&self.operations, write_operation);
        out.list(&self.permissions, |out, permission| {
            out.text(&permission.path);
            for flag in [
                permission.read,
                permission.execute,
                permission.change,
                permission.device,
                permission.connect,
            ] {
                out.u8(u8::from(flag));
            }
        });
        out.u32(self.landlock_version);
        out.list(&self.resource_limits, |out, limit| {
            out.u32(limit.resource);
            out.u64(limit.value);
        });
        out.u64(self.watch.memory_bytes);
        out.u64(self.watch.wall_clock_ms);
        for flag in [
            self.deny_debugging,
            self.deny_sockets,
            self.deny_set_id,
            self.deny_memory_programs,
        ] {
            out.u8(u8::from(flag));
        }
        out.u8(u8::from(self.funnel.is_some()));
        out.u32(self.funnel.map_or(0, |funnel| funnel.connections_max));
        out.u8(self.inward);
        out.u8(u8::from(self.terminal.is_some()));
        let terminal = self.terminal.unwrap_or(Terminal {
            rows: 0,
            columns: 0,
        });
        out.u16(terminal.rows);
        out.u16(terminal.columns);
        texts(&mut out, &self.arguments);
        texts(&mut out, &self.environment);
        out.text(&self.directory);
        out.0
    }

    /// Reads a description.
    ///
    /// # Errors
    /// [`Malformed`] for anything that [`Spec::to_bytes`] did not write.
    pub fn from_bytes(message: &[u8]) -> Result<Self, Malformed> {
        if message.len() > SPEC_BYTES_MAX {
            return Err(Malformed::TooMany);
        }
        let mut from = Reader::new(message);
        if from.u32()? != VERSION {
            return Err(Malformed::Tag);
        }
        let spec = read_spec(&mut from)?;
        from.end()?;
        let has_tree = !spec.operations.is_empty() || !spec.host_name.is_empty();
        let is_own = matches!(spec.identity, Identity::Own { .. });
        // Without ids of a sandbox's own a capability would be one over the host's.
        let is_unmapped = matches!(spec.identity, Identity::Unmapped { .. });
        let of_nesting = match spec.nesting {
            Nesting::Refused => 0,
            Nesting::ButGroups | Nesting::All => NEST_AS_ROOT,
        };
        let has_rights = spec.capabilities & !of_nesting != 0;
        // Whoever mounts is under no rules about files, and can execute what it likes.
        let cannot_nest = spec.fenced
            || is_unmapped
            || spec.deny_set_id
            || spec.deny_memory_programs
            || !spec.permissions.is_empty();
        let has_network = spec.funnel.is_some() || spec.inward > 0;
        if spec.fenced && (has_tree || !is_own || has_rights || spec.inward > 0)
            || spec.inward > INWARD_MAX
            || spec.deny_sockets && has_network
            || spec.nesting != Nesting::Refused && cannot_nest
            || (is_own || is_unmapped) && has_rights
            || spec.capabilities & !ROOT_CAPABILITIES & !of_nesting != 0
        {
            return Err(Malformed::Tag);
        }
        Ok(spec)
    }
}

fn read_spec(from: &mut Reader<'_>) -> Result<Spec, Malformed> {
    let texts = |from: &mut Reader<'_>| from.list(Reader::text);
    Ok(Spec {
        identity: read_identity(from)?,
        capabilities: from.u64()?,
        fenced: from.flag()?,
        nesting: match from.u8()? {
            0 => Nesting::Refused,
            1 => Nesting::ButGroups,
            2 => Nesting::All,
            _ => return Err(Malformed::Tag),
        },
        host_name: from.text()?,
        cgroup_tasks: texts(from)?,
        cgroup_unified: {
            let present = from.flag()?;
            let path = from.text()?;
            if !present && !path.is_empty() {
                return Err(Malformed::Tag);
            }
            present.then_some(path)
        },
        cgroup_directories: texts(from)?,
        memory: Room {
            bytes: from.u64()?,
            inodes: from.u64()?,
        },
        operations: from.list(read_operation)?,
        permissions: from.list(|from| {
            Ok(Permission {
                path: from.text()?,
                read: from.flag()?,
                execute: from.flag()?,
                change: from.flag()?,
                device: from.flag()?,
                connect: from.flag()?,
            })
        })?,
        landlock_version: from.u32()?,
        resource_limits: from.list(|from| {
            let (resource, value) = (from.u32()?, from.u64()?);
            Ok(ResourceLimit { resource, value })
        })?,
        watch: Watch {
            memory_bytes: from.u64()?,
            wall_clock_ms: from.u64()?,
        },
        deny_debugging: from.flag()?,
        deny_sockets: from.flag()?,
        deny_set_id: from.flag()?,
        deny_memory_programs: from.flag()?,
        funnel: read_funnel(from)?,
        inward: from.u8()?,
        terminal: {
            let present = from.flag()?;
            let terminal = Terminal {
                rows: from.u16()?,
                columns: from.u16()?,
            };
            if !present && (terminal.rows, terminal.columns) != (0, 0) {
                return Err(Malformed::Tag);
            }
            present.then_some(terminal)
        },
        arguments: texts(from)?,
        environment: texts(from)?,
        directory: from.text()?,
    })
}

fn read_funnel(from: &mut Reader<'_>) -> Result<Option<Funnel>, Malformed> {
    let present = from.flag()?;
    let connections_max = from.u32()?;
    if present != (connections_max > 0) {
        return Err(Malformed::Tag);
    }
    Ok(present.then_some(Funnel { connections_max }))
}

fn write_identity(out: &mut Writer, identity: Identity) {
    let (tag, numbers) = match identity {
        Identity::Own { uid, gid } => (0, [uid, gid, 0, 0]),
        Identity::Root { uid, gid, ranged } => (2, [uid, gid, u32::from(ranged), 0]),
        Identity::Shifted {
            uid,
            gid,
            base,
            count,
        } => (1, [uid, gid, base, count]),
        Identity::Unmapped { uid, gid } => (3, [uid, gid, 0, 0]),
    };
    out.u8(tag);
    for number in numbers {
        out.u32(number);
    }
}

fn read_identity(from: &mut Reader<'_>) -> Result<Identity, Malformed> {
    let tag = from.u8()?;
    let (uid, gid, base, count) = (from.u32()?, from.u32()?, from.u32()?, from.u32()?);
    // The kernel's numbers of a shifted identity lie within its own block.
    let fits = uid < count && gid < count && base.checked_add(count).is_some();
    match (tag, base, count) {
        (0, 0, 0) => Ok(Identity::Own { uid, gid }),
        (2, 0 | 1, 0) => Ok(Identity::Root {
            uid,
            gid,
            ranged: base == 1,
        }),
        (3, 0, 0) if uid != 0 && gid != 0 => Ok(Identity::Unmapped { uid, gid }),
        (1, 1.., 1..) if fits => Ok(Identity::Shifted {
            uid,
            gid,
            base,
            count,
        }),
        _ => Err(Malformed::Tag),
    }
}

fn write_source(out: &mut Writer, source: &Source) {
    out.text(&source.path);
    out.u64(source.device);
    out.u64(source.inode);
}

fn read_source(from: &mut Reader<'_>) -> Result<Source, Malformed> {
    Ok(Source {
        path: from.text()?,
        device: from.u64()?,
        inode: from.u64()?,
    })
}

fn start(out: &mut Writer, tag: u8, path: &[u8]) {
    out.u8(tag);
    out.text(path);
}

fn write_operation(out: &mut Writer, operation: &Operation) {
    match operation {
        Operation::Directory { path, mode, owned } => {
            start(out, 0, path);
            out.u32(*mode);
            out.u8(u8::from(*owned));
        }
        Operation::Link { path, to } => {
            start(out, 1, path);
            out.text(to);
        }
        Operation::File {
            path,
            mode,
            content,
        } => {
            start(out, 2, path);
            out.u32(*mode);
            out.text(content);
        }
        Operation::Memory { path, mode } => {
            start(out, 3, path);
            out.u32(*mode);
        }
        Operation::ReadOnly {
            path,
            source,
            empty,
            as_caller,
        } => {
            start(out, 4, path);
            write_source(out, source);
            write_source(out, empty);
            out.u8(u8::from(*as_caller));
        }
        Operation::ReadOnlyFile {
            path,
            source,
            as_caller,
        } => {
            start(out, 5, path);
            write_source(out, source);
            out.u8(u8::from(*as_caller));
        }
        Operation::Layer {
            path,
            lower,
            upper,
            work,
            volatile,
        } => {
            start(out, 6, path);
            for source in [lower, upper, work] {
                write_source(out, source);
            }
            out.u8(u8::from(*volatile));
        }
        other => write_mounts(out, other),
    }
}

/// The steps that mount what is there already.
fn write_mounts(out: &mut Writer, operation: &Operation) {
    match operation {
        Operation::ReadOnlyWhole { path, source } => {
            start(out, 15, path);
            write_source(out, source);
        }
        Operation::Writable {
            path,
            source,
            as_caller,
        } => {
            start(out, 7, path);
            write_source(out, source);
            out.u8(u8::from(*as_caller));
        }
        Operation::Seal { path } => start(out, 8, path),
        Operation::Device { path, source } => {
            start(out, 9, path);
            write_source(out, source);
        }
        Operation::Terminals { path, max } => {
            start(out, 10, path);
            out.u32(*max);
        }
        Operation::Processes { path } => start(out, 11, path),
        Operation::HideFile { path, null } => {
            start(out, 12, path);
            write_source(out, null);
        }
        Operation::HideDirectory { path } => start(out, 13, path),
        Operation::Pin { path } => start(out, 14, path),
        Operation::Inexecutable { path } => start(out, 16, path),
        Operation::Directory { .. }
        | Operation::Link { .. }
        | Operation::File { .. }
        | Operation::Memory { .. }
        | Operation::ReadOnly { .. }
        | Operation::ReadOnlyFile { .. }
        | Operation::Layer { .. } => {}
    }
}

fn read_operation(from: &mut Reader<'_>) -> Result<Operation, Malformed> {
    let tag = from.u8()?;
    let path = from.text()?;
    Ok(match tag {
        0 => Operation::Directory {
            path,
            mode: from.u32()?,
            owned: from.flag()?,
        },
        1 => Operation::Link {
            path,
            to: from.text()?,
        },
        2 => Operation::File {
            path,
            mode: from.u32()?,
            content: from.bytes()?,
        },
        3 => Operation::Memory {
            path,
            mode: from.u32()?,
        },
        4 => Operation::ReadOnly {
            path,
            source: read_source(from)?,
            empty: read_source(from)?,
            as_caller: from.flag()?,
        },
        5 => Operation::ReadOnlyFile {
            path,
            source: read_source(from)?,
            as_caller: from.flag()?,
        },
        6 => Operation::Layer {
            path,
            lower: read_source(from)?,
            upper: read_source(from)?,
            work: read_source(from)?,
            volatile: from.flag()?,
        },
        7 => Operation::Writable {
            path,
            source: read_source(from)?,
            as_caller: from.flag()?,
        },
        8 => Operation::Seal { path },
        9 => Operation::Device {
            path,
            source: read_source(from)?,
        },
        10 => Operation::Terminals {
            path,
            max: from.u32()?,
        },
        11 => Operation::Processes { path },
        12 => Operation::HideFile {
            path,
            null: read_source(from)?,
        },
        13 => Operation::HideDirectory { path },
        14 => Operation::Pin { path },
        16 => Operation::Inexecutable { path },
        15 => Operation::ReadOnlyWhole {
            path,
            source: read_source(from)?,
        },
        _ => return Err(Malformed::Tag),
    })
}
