use crate::ExecId;
use crate::wire::{Malformed, Reader, Writer};

/// The longest message besides a spec, bytes.
pub const MESSAGE_BYTES_MAX: usize = 512;

/// The longest detail of a failure, bytes; the rest of the message fits in addition.
const DETAIL_BYTES_MAX: usize = 400;

/// The longest name of a system call, bytes.
const CALL_BYTES_MAX: usize = 32;

/// An order of the host side to `init`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Send this signal to an exec's process group.
    Signal(ExecId, u8),
    /// Continue a stopped exec.
    Continue(ExecId),
    /// Stop every process but `init`, which stays so until [`Order::Thaw`].
    Freeze,
    /// Continue every process.
    Thaw,
    /// End everything now.
    End,
}

/// A report of `jail`, `init` or the exec server to the host side.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The sandbox exists; `pid` is its first process on the host.
    Started { pid: u32 },
    /// A terminal comes with this message: that of the session, or that of an exec.
    Terminal,
    /// Sockets of the sandbox's network come with this message: sockets to connect to its listening
    /// programs, and the listeners for its outbound connections, for TCP and for DNS queries (UDP),
    /// of IPv4, then the same of IPv6 if available.
    Network,
    /// The sandbox is built, and takes requests for execs.
    Ready,
    /// Making the sandbox, or starting an exec, has failed.
    Failed {
        stage: Stage,
        error: i32,
        detail: Vec<u8>,
    },
    /// The program of an exec could not be executed, for this reason (errno(3)).
    NotExecuted { error: i32 },
    /// The process of an exec is about to execute its program; its number in the sandbox.
    Executing { pid: u32 },
    /// An exec was stopped by this signal and waits to go on.
    Stopped { exec: ExecId, signal: u8 },
    /// The memory limit is reached, as measured by `init`.
    MemoryReached,
    /// The time limit is reached, and the host side has not acted.
    TimeReached,
    /// A violation: the program has made this call, which hardly any program makes except to
    /// escape, `count` times until now; `pid` made it first. It was refused.
    Attempt { call: Vec<u8>, pid: u32, count: u64 },
    /// An exec's program has returned or was ended: a status, or a signal if `signalled`.
    Ended {
        exec: ExecId,
        signalled: bool,
        number: u8,
    },
    /// The exec server has ended: no further exec can be started.
    ServerEnded,
    /// Every process is gone; the resources that they used.
    Gone { cpu_us: u64, memory_peak_bytes: u64 },
}

/// The stage at which making a sandbox failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Decoding the description.
    Description,
    /// Creating namespaces.
    Namespaces,
    /// Mapping ids.
    Ids,
    /// Joining cgroups.
    ControlGroups,
    /// Setting up the network.
    Network,
    /// Building the file tree: the detail names the path.
    Tree,
    /// Changing the root directory.
    Root,
    /// Setting the limits of each process.
    Limits,
    /// Dropping rights.
    Rights,
    /// Opening the terminal.
    Terminal,
    /// Applying Landlock.
    Landlock,
    /// Installing the system call filter.
    Filter,
    /// Starting the program's process.
    Start,
    /// Changing to the working directory.
    Directory,
}

const STAGES: [Stage; 14] = [
    Stage::Description,
    Stage::Namespaces,
    Stage::Ids,
    Stage::ControlGroups,
    Stage::Network,
    Stage::Tree,
    Stage::Root,
    Stage::Limits,
    Stage::Rights,
    Stage::Terminal,
    Stage::Landlock,
    Stage::Filter,
    Stage::Start,
    Stage::Directory,
];

impl Stage {
    /// Returns the stage with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        STAGES.get(usize::from(number)).copied()
    }
}

impl Order {
    /// Encodes the order.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Self::Signal(exec, number) => {
                out.u8(0);
                out.u32(exec.0);
                out.u8(number);
            }
            Self::Continue(exec) => {
                out.u8(1);
                out.u32(exec.0);
            }
            Self::End => out.u8(2),
            Self::Freeze => out.u8(3),
            Self::Thaw => out.u8(4),
        }
        out.0
    }

    /// Decodes an order.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn from_bytes(message: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(message);
        let order = match from.u8()? {
            0 => Self::Signal(ExecId(from.u32()?), from.u8()?),
            1 => Self::Continue(ExecId(from.u32()?)),
            2 => Self::End,
            3 => Self::Freeze,
            4 => Self::Thaw,
            _ => return Err(Malformed::Tag),
        };
        from.end()?;
        Ok(order)
    }
}

impl Report {
    /// Encodes the report. A detail that would not fit is cut.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Self::Started { pid } => {
                out.u8(0);
                out.u32(*pid);
            }
            Self::Terminal => out.u8(1),
            Self::Network => out.u8(11),
            Self::Ready => out.u8(2),
            Self::Failed {
                stage,
                error,
                detail,
            } => {
                out.u8(3);
                out.u8(*stage as u8);
                out.u32(*error as u32);
                out.text(
                    detail
                        .get(..detail.len().min(DETAIL_BYTES_MAX))
                        .unwrap_or_default(),
                );
            }
            Self::NotExecuted { error } => {
                out.u8(4);
                out.u32(*error as u32);
            }
            Self::ServerEnded => out.u8(13),
            Self::Executing { pid } => {
                out.u8(14);
                out.u32(*pid);
            }
            Self::Stopped { exec, signal } => {
                out.u8(5);
                out.u32(exec.0);
                out.u8(*signal);
            }
            Self::MemoryReached => out.u8(6),
            Self::TimeReached => out.u8(9),
            Self::Attempt { call, pid, count } => {
                out.u8(10);
                out.text(
                    call.get(..call.len().min(CALL_BYTES_MAX))
                        .unwrap_or_default(),
                );
                out.u32(*pid);
                out.u64(*count);
            }
            Self::Ended {
                exec,
                signalled,
                number,
            } => {
                out.u8(7);
                out.u32(exec.0);
                out.u8(u8::from(*signalled));
                out.u8(*number);
            }
            Self::Gone {
                cpu_us,
                memory_peak_bytes,
            } => {
                out.u8(8);
                out.u64(*cpu_us);
                out.u64(*memory_peak_bytes);
            }
        }
        out.0
    }

    /// Decodes a report.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn from_bytes(message: &[u8]) -> Result<Self, Malformed> {
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(Malformed::TooMany);
        }
        let mut from = Reader::new(message);
        let report = match from.u8()? {
            0 => Self::Started { pid: from.u32()? },
            1 => Self::Terminal,
            11 => Self::Network,
            2 => Self::Ready,
            3 => Self::Failed {
                stage: Stage::from_number(from.u8()?).ok_or(Malformed::Tag)?,
                error: from.u32()? as i32,
                detail: {
                    let detail = from.bytes()?;
                    if detail.len() > DETAIL_BYTES_MAX {
                        return Err(Malformed::TooMany);
                    }
                    detail
                },
            },
            4 => Self::NotExecuted {
                error: from.u32()? as i32,
            },
            13 => Self::ServerEnded,
            14 => Self::Executing { pid: from.u32()? },
            5 => Self::Stopped {
                exec: ExecId(from.u32()?),
                signal: from.u8()?,
            },
            6 => Self::MemoryReached,
            9 => Self::TimeReached,
            10 => Self::Attempt {
                call: {
                    let call = from.text()?;
                    if call.len() > CALL_BYTES_MAX {
                        return Err(Malformed::TooMany);
                    }
                    call
                },
                pid: from.u32()?,
                count: from.u64()?,
            },
            7 => Self::Ended {
                exec: ExecId(from.u32()?),
                signalled: from.flag()?,
                number: from.u8()?,
            },
            8 => Self::Gone {
                cpu_us: from.u64()?,
                memory_peak_bytes: from.u64()?,
            },
            _ => return Err(Malformed::Tag),
        };
        from.end()?;
        Ok(report)
    }
}
