use crate::spec::{SPEC_BYTES_MAX, Terminal, read_terminal, write_terminal};
use crate::wire::{Malformed, Reader, Writer};

/// The longest encoded [`Request`], bytes.
pub const REQUEST_BYTES_MAX: usize = 16;

/// The version of the encoding of an [`ExecSpec`]; any other is refused.
const VERSION: u32 = 3;

/// The number of an exec in its sandbox. The host side numbers them upward from [`ExecId::FIRST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExecId(pub u32);

impl ExecId {
    /// The first exec of a sandbox, with which a run ends.
    pub const FIRST: Self = Self(0);
}

impl std::fmt::Display for ExecId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(out)
    }
}

/// The terminal of an exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecTerminal {
    /// None: its streams are pipes, and it leads a session of its own without a terminal.
    None,
    /// The one of the session of the sandbox's first process.
    Session,
    /// One of its own, of this size.
    Own(Terminal),
    /// The one that its standard input is.
    Given,
}

/// The description of one exec, written once into sealed memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecSpec {
    /// The terminal.
    pub terminal: ExecTerminal,
    /// The program and its arguments.
    pub arguments: Vec<Vec<u8>>,
    /// The environment, `NAME=value` each.
    pub environment: Vec<Vec<u8>>,
    /// The working directory at the start.
    pub directory: Vec<u8>,
    /// The mask of mode bits that new files do not get (umask(2)).
    pub mode_mask: u32,
    /// The user that it becomes, where the sandbox's programs are root; root itself if `None`.
    pub user: Option<User>,
}

/// A user of the sandbox, by its ids there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// The user id.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
}

/// Writes a user, if there is one.
fn write_user(out: &mut Writer, user: Option<User>) {
    out.u8(u8::from(user.is_some()));
    out.u32(user.map_or(0, |user| user.uid));
    out.u32(user.map_or(0, |user| user.gid));
}

/// Reads a user, if there is one.
fn read_user(from: &mut Reader<'_>) -> Result<Option<User>, Malformed> {
    let present = from.flag()?;
    let (uid, gid) = (from.u32()?, from.u32()?);
    if !present && (uid, gid) != (0, 0) {
        return Err(Malformed::Tag);
    }
    Ok(present.then_some(User { uid, gid }))
}

impl ExecSpec {
    /// Encodes the description.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u32(VERSION);
        let (tag, own) = match self.terminal {
            ExecTerminal::None => (0, None),
            ExecTerminal::Session => (1, None),
            ExecTerminal::Own(size) => (2, Some(size)),
            ExecTerminal::Given => (3, None),
        };
        out.u8(tag);
        write_terminal(&mut out, own);
        out.list(&self.arguments, |out, text| out.text(text));
        out.list(&self.environment, |out, text| out.text(text));
        out.text(&self.directory);
        out.u32(self.mode_mask);
        write_user(&mut out, self.user);
        out.0
    }

    /// Decodes a description.
    ///
    /// # Errors
    /// [`Malformed`] for anything that [`ExecSpec::to_bytes`] did not write, and for an exec
    /// without a program.
    pub fn from_bytes(message: &[u8]) -> Result<Self, Malformed> {
        if message.len() > SPEC_BYTES_MAX {
            return Err(Malformed::TooMany);
        }
        let mut from = Reader::new(message);
        if from.u32()? != VERSION {
            return Err(Malformed::Tag);
        }
        let terminal = match (from.u8()?, read_terminal(&mut from)?) {
            (0, None) => ExecTerminal::None,
            (1, None) => ExecTerminal::Session,
            (2, Some(size)) => ExecTerminal::Own(size),
            (3, None) => ExecTerminal::Given,
            _ => return Err(Malformed::Tag),
        };
        let spec = Self {
            terminal,
            arguments: from.list(Reader::text)?,
            environment: from.list(Reader::text)?,
            directory: from.text()?,
            mode_mask: from.u32()?,
            user: read_user(&mut from)?,
        };
        from.end()?;
        match spec.arguments.is_empty() {
            true => Err(Malformed::Short),
            false => Ok(spec),
        }
    }
}

/// A request of the host side to the exec server. A socket for the answer comes with each, as the
/// first descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Start an exec. The sealed [`ExecSpec`] comes with it, and, unless its terminal is the
    /// session's or its own, its standard input, output and error. The answers are
    /// [`Report`](crate::Report)s: `Terminal` with a terminal of its own, `Executing`, and the
    /// failure if there is one; when the program is executed, the socket closes.
    Exec(ExecId),
    /// Start a file server, which takes its requests from the socket; nothing is answered. Where the
    /// sandbox's programs are root, it has root's rights, and what it makes is this user's.
    Files(Option<User>),
}

impl Request {
    /// Encodes the request.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Self::Exec(id) => {
                out.u8(0);
                out.u32(id.0);
            }
            Self::Files(user) => {
                out.u8(1);
                write_user(&mut out, *user);
            }
        }
        out.0
    }

    /// Decodes a request.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn from_bytes(message: &[u8]) -> Result<Self, Malformed> {
        if message.len() > REQUEST_BYTES_MAX {
            return Err(Malformed::TooMany);
        }
        let mut from = Reader::new(message);
        let request = match from.u8()? {
            0 => Self::Exec(ExecId(from.u32()?)),
            1 => Self::Files(read_user(&mut from)?),
            _ => return Err(Malformed::Tag),
        };
        from.end().map(|()| request)
    }
}
