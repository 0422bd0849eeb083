use std::ffi::CStr;

use crate::wire::{Malformed, Reader, Writer};

/// The longest encoded [`SandboxSpec`] or [`ExecSpec`](crate::ExecSpec), bytes.
pub const SPEC_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The most directories beneath one overlay: their paths go to the kernel as one text of 255 bytes
/// at most (fsconfig(2)).
pub const LOWER_MAX: usize = 12;

/// The version of the encoding; any other is refused.
const VERSION: u32 = 13;

/// The place at which a layer is mounted of which only parts are shown.
pub const WHOLE: &CStr = c".whole";

/// The capabilities that root in a sandbox can have, each with its reason, as bits of their numbers
/// in capabilities(7). They apply to the sandbox's own ids only.
pub const ROOT_CAPABILITIES: u64 = CHOWN | DAC_OVERRIDE | FOWNER | FSETID | KILL | SETGID | SETUID;
/// Package managers, tar and installers change the owners of files.
const CHOWN: u64 = 1 << 0;
/// Root writes in its services' directories.
const DAC_OVERRIDE: u64 = 1 << 1;
/// Root sets modes and times of files that it has given to others.
const FOWNER: u64 = 1 << 3;
/// Set-id bits survive a write and a change of owner (they have no effect).
const FSETID: u64 = 1 << 4;
/// Root ends services that run as other users.
pub const KILL: u64 = 1 << 5;
/// Services, installers, su and apt change to other users.
const SETGID: u64 = 1 << 6;
const SETUID: u64 = 1 << 7;
/// CAP_SETFCAP: the kernel maps user id 0 in a nested namespace only if its creator could also set
/// capabilities on files, which have no effect in the sandbox.
pub const NEST_AS_ROOT: u64 = 1 << 31;

/// The description of one sandbox for the launcher. It is written once, into sealed memory, and has
/// nothing that the sandbox must not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxSpec {
    /// The program's identity, in the sandbox and to the kernel.
    pub identity: Identity,
    /// The program's capabilities as root in the sandbox: of [`ROOT_CAPABILITIES`], mostly none;
    /// and as user id 0 that may nest, [`NEST_AS_ROOT`].
    pub capabilities: u64,
    /// True for a fence: no namespaces, so neither a file tree nor a network of its own. Only its
    /// permissions and a judge confine it.
    pub fenced: bool,
    /// The namespaces that it may create.
    pub nesting: Nesting,
    /// The host name in the sandbox.
    pub host_name: Vec<u8>,
    /// Cgroups of version 1 to join, as paths of their `tasks` files.
    pub cgroup_tasks: Vec<Vec<u8>>,
    /// The cgroup of version 2 to start in, as the path of its directory.
    pub cgroup_unified: Option<Vec<u8>>,
    /// Directories of cgroups to remove after the end of the host side.
    pub cgroup_directories: Vec<Vec<u8>>,
    /// The capacity of everything written to memory: the private /tmp, /dev/shm and the home,
    /// together.
    pub memory: Room,
    /// The steps that make the sandbox's file tree, in order.
    pub operations: Vec<Operation>,
    /// The program's permissions on it, enforced again by Landlock.
    pub permissions: Vec<Permission>,
    /// The version of Landlock to enforce completely.
    pub landlock_version: u32,
    /// Limits of each process (setrlimit(2)).
    pub resource_limits: Vec<ResourceLimit>,
    /// Limits that no cgroup enforces, so that `init` does.
    pub watch: Watch,
    /// True if debugging calls are refused.
    pub deny_debugging: bool,
    /// True if internet sockets are refused.
    pub deny_sockets: bool,
    /// True if set-user-id and set-group-id files are refused, because the files are the host's
    /// own.
    pub deny_set_id: bool,
    /// True if programs that are not in a file are refused, because only listed files may be
    /// executed.
    pub deny_memory_programs: bool,
    /// The outbound funnel of its network, if it has one.
    pub funnel: Option<Funnel>,
    /// The number of sockets of each family that the host side gets to connect to programs
    /// listening on the sandbox's loopback.
    pub inward: u8,
    /// The terminal that the session of the first process leads, for an exec that gets it.
    pub terminal: Option<Terminal>,
    /// True for a run: the sandbox ends with its first exec.
    pub one_exec: bool,
}

/// The most sockets of a family that one message carries in addition to the listeners.
pub const INWARD_MAX: u8 = 64;

/// The namespaces that a program may create beneath its sandbox (namespaces(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nesting {
    /// No namespaces.
    Refused,
    /// All but cgroup namespaces: in one it could mount cgroups, and change those that belong to
    /// its user.
    ButGroups,
    /// All: no cgroup is owned by its user.
    All,
}

/// The identity of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// An ordinary user, who has its own ids to the kernel; nothing else is mapped.
    Own {
        /// The user id in the sandbox.
        uid: u32,
        /// The group id in the sandbox.
        gid: u32,
    },
    /// An ordinary user, who is root in the sandbox, and only itself to the kernel.
    Root {
        /// The host's user id for the id 0 in the sandbox.
        uid: u32,
        /// The host's group id.
        gid: u32,
        /// True if the host side maps the user's subordinate ids too (subuid(5)).
        ranged: bool,
    },
    /// A program of a launcher that runs as root: the ids in the sandbox are shifted, so that the
    /// kernel never sees user id 0.
    Shifted {
        /// The user id in the sandbox.
        uid: u32,
        /// The group id in the sandbox.
        gid: u32,
        /// The kernel's id for the id 0 in the sandbox.
        base: u32,
        /// The number of mapped ids.
        count: u32,
    },
    /// A program of a launcher that runs as root and cannot create user namespaces: the program is
    /// another user, with the same id in the sandbox as to the kernel.
    Unmapped {
        /// The user id, never 0.
        uid: u32,
        /// The group id, never 0.
        gid: u32,
    },
}

/// A path on the host, with the identity of its file: a path that was replaced after it was judged
/// is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The path, absolute, without symbolic links.
    pub path: Vec<u8>,
    /// The device that it must be on.
    pub device: u64,
    /// The inode that it must be.
    pub inode: u64,
}

/// A path in the sandbox, relative to its root.
pub type Place = Vec<u8>;

/// One step of making the sandbox's file tree. `path` is always the path in the sandbox; where a
/// step `as_caller` shows host files to a shifted identity, the caller's files have the program as
/// their owner.
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
    /// A writable directory in memory, separate except for the shared capacity.
    Memory { path: Place, mode: u32 },
    /// A read-only host directory, without working sockets and pipes.
    ReadOnly {
        path: Place,
        source: Source,
        empty: Source,
        as_caller: bool,
    },
    /// A read-only host file.
    ReadOnlyFile {
        path: Place,
        source: Source,
        as_caller: bool,
    },
    /// Host directories, the topmost first, with an overlay; the owners of the first `own` of them
    /// are the program's already; `linked` if hard links beneath stay such where one is written to,
    /// which needs the work directory ever after; `volatile` if nothing waits for it to reach the
    /// disk.
    Layer {
        path: Place,
        lower: Vec<Source>,
        own: u32,
        upper: Source,
        work: Source,
        linked: bool,
        volatile: bool,
    },
    /// A directory of the layer at [`WHOLE`], by the same path there.
    Part { path: Place },
    /// A host directory with all mounts beneath it, for where the kernel does not let mounts be
    /// left out. Its sockets and pipes work until they are hidden.
    ReadOnlyWhole { path: Place, source: Source },
    /// A writable host directory or file, without a layer.
    Writable {
        path: Place,
        source: Source,
        as_caller: bool,
    },
    /// An existing path, made read-only.
    Seal { path: Place },
    /// An existing path, mounted over itself so that it cannot be renamed.
    Pin { path: Place },
    /// A mount from which nothing can be executed, or mapped as code by a loader.
    Inexecutable { path: Place },
    /// A device node of the host.
    Device { path: Place, source: Source },
    /// A terminal file system (devpts) of its own.
    Terminals { path: Place, max: u32 },
    /// A process file system (proc) of its own.
    Processes { path: Place },
    /// The null device, mounted over a file.
    HideFile { path: Place, null: Source },
    /// An empty read-only directory, mounted over a directory.
    HideDirectory { path: Place },
}

/// The capacity of what is written to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes in all.
    pub bytes: u64,
    /// The number of files and directories.
    pub inodes: u64,
}

/// The permissions beneath a path in the sandbox, enforced by Landlock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permission {
    /// The path in the sandbox, absolute.
    pub path: Vec<u8>,
    /// The rights, as the kernel's bits (landlock(7)).
    pub rights: u64,
    /// In a fence: connect to the socket at this path, which is not the program's own.
    pub connect: bool,
}

/// One resource limit of each process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceLimit {
    /// The kernel's number of the resource.
    pub resource: u32,
    /// The value, in the resource's unit.
    pub value: u64,
}

/// Limits that `init` enforces because the kernel does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    /// Memory of all processes together, bytes; 0 for none.
    pub memory_bytes: u64,
    /// The time from start to end, milliseconds; 0 for none. The host side watches it too, but can
    /// be stopped.
    pub wall_clock_ms: u64,
}

/// A network whose outbound traffic all arrives at listeners, which the launcher hands to the host
/// side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Funnel {
    /// The most connections at once.
    pub connections_max: u32,
    /// The loopback ports whose connections arrive there too; 0 is none.
    pub host_ports: [u16; HOST_PORTS_MAX],
}

/// The most loopback ports that a funnel takes.
pub const HOST_PORTS_MAX: usize = 16;

/// The size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminal {
    /// The number of lines.
    pub rows: u16,
    /// Characters per line.
    pub columns: u16,
}

impl SandboxSpec {
    /// Drops what only making the sandbox needs: paths of the host.
    pub fn forget_host(&mut self) {
        self.operations = Vec::new();
        self.cgroup_tasks = Vec::new();
        self.cgroup_unified = None;
        self.cgroup_directories = Vec::new();
    }

    /// Encodes the description.
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
            out.u64(permission.rights);
            out.u8(u8::from(permission.connect));
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
        let ports = self
            .funnel
            .map_or([0; HOST_PORTS_MAX], |one| one.host_ports);
        ports.iter().for_each(|port| out.u16(*port));
        out.u8(self.inward);
        write_terminal(&mut out, self.terminal);
        out.u8(u8::from(self.one_exec));
        out.0
    }

    /// Decodes a description.
    ///
    /// # Errors
    /// [`Malformed`] for anything that [`SandboxSpec::to_bytes`] did not write.
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

/// Writes a terminal, if there is one.
pub(crate) fn write_terminal(out: &mut Writer, terminal: Option<Terminal>) {
    out.u8(u8::from(terminal.is_some()));
    out.u16(terminal.map_or(0, |size| size.rows));
    out.u16(terminal.map_or(0, |size| size.columns));
}

/// Reads a terminal, if there is one.
pub(crate) fn read_terminal(from: &mut Reader<'_>) -> Result<Option<Terminal>, Malformed> {
    let present = from.flag()?;
    let terminal = Terminal {
        rows: from.u16()?,
        columns: from.u16()?,
    };
    if !present && (terminal.rows, terminal.columns) != (0, 0) {
        return Err(Malformed::Tag);
    }
    Ok(present.then_some(terminal))
}

fn read_spec(from: &mut Reader<'_>) -> Result<SandboxSpec, Malformed> {
    let texts = |from: &mut Reader<'_>| from.list(Reader::text);
    Ok(SandboxSpec {
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
                rights: from.u64()?,
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
        terminal: read_terminal(from)?,
        one_exec: from.flag()?,
    })
}

fn read_funnel(from: &mut Reader<'_>) -> Result<Option<Funnel>, Malformed> {
    let present = from.flag()?;
    let connections_max = from.u32()?;
    let mut host_ports = [0; HOST_PORTS_MAX];
    for port in &mut host_ports {
        *port = from.u16()?;
    }
    if present != (connections_max > 0) || (!present && host_ports != [0; HOST_PORTS_MAX]) {
        return Err(Malformed::Tag);
    }
    Ok(present.then_some(Funnel {
        connections_max,
        host_ports,
    }))
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

fn read_lower(from: &mut Reader<'_>) -> Result<Vec<Source>, Malformed> {
    let lower = from.list(read_source)?;
    match lower.len() {
        1..=LOWER_MAX => Ok(lower),
        0 => Err(Malformed::Short),
        _ => Err(Malformed::TooMany),
    }
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
            own,
            upper,
            work,
            linked,
            volatile,
        } => {
            start(out, 6, path);
            out.list(lower, write_source);
            out.u32(*own);
            for source in [upper, work] {
                write_source(out, source);
            }
            out.u8(u8::from(*linked));
            out.u8(u8::from(*volatile));
        }
        other => write_mounts(out, other),
    }
}

/// Encodes the steps that mount existing files.
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
        Operation::Part { path } => start(out, 17, path),
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
    let (tag, path) = (from.u8()?, from.text()?);
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
            lower: read_lower(from)?,
            own: from.u32()?,
            upper: read_source(from)?,
            work: read_source(from)?,
            linked: from.flag()?,
            volatile: from.flag()?,
        },
        7 => Operation::Writable {
            path,
            source: read_source(from)?,
            as_caller: from.flag()?,
        },
        9 => Operation::Device {
            path,
            source: read_source(from)?,
        },
        10 => Operation::Terminals {
            path,
            max: from.u32()?,
        },
        12 => Operation::HideFile {
            path,
            null: read_source(from)?,
        },
        15 => Operation::ReadOnlyWhole {
            path,
            source: read_source(from)?,
        },
        _ => return read_plain(tag, path),
    })
}

/// Decodes a step that is a path alone.
fn read_plain(tag: u8, path: Place) -> Result<Operation, Malformed> {
    match tag {
        8 => Ok(Operation::Seal { path }),
        11 => Ok(Operation::Processes { path }),
        13 => Ok(Operation::HideDirectory { path }),
        14 => Ok(Operation::Pin { path }),
        16 => Ok(Operation::Inexecutable { path }),
        17 => Ok(Operation::Part { path }),
        _ => Err(Malformed::Tag),
    }
}
