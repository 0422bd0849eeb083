use std::ffi::OsString;
use std::path::PathBuf;

use crate::{RunId, SessionId};

/// Who asks: taken from the kernel (the process's user id), never from a name
/// that the caller sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The user id of the calling process.
    pub uid: u32,
    /// The group id of the calling process.
    pub gid: u32,
    /// The name of that user in the host's user database, for people to read.
    pub name: String,
}

/// A typed request to act: put this program into a boundary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The run that this call starts.
    pub run: RunId,
    /// The session that the run is a part of, where it is of one.
    pub session: Option<SessionId>,
    /// Who asks.
    pub principal: Principal,
    /// The program and its arguments; never empty.
    pub command: Vec<OsString>,
    /// How its boundary was asked for, for saying it again: nothing is decided by it, and no
    /// value of a variable is in it.
    pub options: Vec<OsString>,
    /// The directory that the program works on, absolute, free of symbolic links.
    pub workspace: PathBuf,
    /// Where the program starts, absolute, within the workspace.
    pub directory: PathBuf,
    /// Whether the program gets a terminal of its own.
    pub terminal: bool,
}
