//! The running execs: which process each of them is, and its one end.
//!
//! Two sources report on an exec: the exec server says which process it is, before that begins; the
//! kernel says how that process ended. So an ended process is looked at, then everything is heard
//! that the server has said until now, and only then is the process reaped: its end is known by the
//! exec's id, in whichever order the reports come in, and until then its number is no other's.

use std::io;

use atoll_frame::ExecId;
use atoll_sys::process::Change;

/// The most ended processes that are reaped before orders are read again: otherwise a program that
/// forks without end would never receive the order to end.
const REAPED_AT_ONCE_MAX: u32 = 64;

/// The most execs at once that are known; the host side allows fewer.
const EXECS_MAX: usize = 1024;

const SIGKILL: u8 = 9;

/// The sources of reports on execs.
pub(crate) trait Sources {
    /// Returns a child that has ended or stopped, and leaves it as it is.
    fn changed(&mut self) -> io::Result<Option<u32>>;
    /// Takes the change of this child, and reaps it if it has ended.
    fn take(&mut self, pid: u32) -> io::Result<Child>;
    /// Takes the exec server's next message.
    fn heard(&mut self) -> io::Result<Heard>;
}

/// The state of a process, as its parent sees it.
pub(crate) enum Child {
    Running,
    Changed(Change),
    /// There is no such child, or it was reaped before.
    Gone,
}

/// A message of the exec server.
pub(crate) enum Heard {
    /// An exec is this process.
    Exec(ExecId, u32),
    /// The message is malformed.
    Malformed,
    /// The server has ended.
    End,
    /// There is none.
    Nothing,
}

/// A report on an exec, or on the server that starts them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    Started,
    Changed(ExecId, Change),
    ServerEnded,
}

/// The running execs.
#[derive(Default)]
pub(crate) struct Execs(Vec<Exec>);

#[derive(Clone, Copy)]
struct Exec {
    id: ExecId,
    pid: u32,
}

impl Execs {
    /// Returns the process of an exec.
    pub(crate) fn pid(&self, id: ExecId) -> Option<u32> {
        let exec = self.0.iter().find(|exec| exec.id == id);
        exec.map(|exec| exec.pid)
    }

    /// Takes the reports that are there. Returns false if there may be more.
    pub(crate) fn attend(
        &mut self,
        sources: &mut impl Sources,
        news: &mut Vec<News>,
    ) -> io::Result<bool> {
        for _ in 0..REAPED_AT_ONCE_MAX {
            let changed = sources.changed()?;
            if !self.hear(sources, news)? {
                return Ok(false);
            }
            let Some(pid) = changed else {
                return Ok(true);
            };
            if let Child::Changed(change) = sources.take(pid)? {
                self.note(pid, change, news);
            }
        }
        Ok(false)
    }

    /// Takes every message of the exec server. Returns false if there may be more.
    fn hear(&mut self, sources: &mut impl Sources, news: &mut Vec<News>) -> io::Result<bool> {
        for _ in 0..REAPED_AT_ONCE_MAX {
            match sources.heard()? {
                Heard::Exec(id, pid) => self.begin(id, sources.take(pid)?, pid, news),
                Heard::Malformed => {}
                Heard::End => news.push(News::ServerEnded),
                Heard::Nothing => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Takes the server's word for an exec's process: only for a child of this process, and only
    /// the first time.
    fn begin(&mut self, id: ExecId, child: Child, pid: u32, news: &mut Vec<News>) {
        let is_known = self.0.iter().any(|one| one.id == id || one.pid == pid);
        let ended = match child {
            // Programs reach a process that waits to become an exec, and can end it before.
            Child::Gone => Some(Change::Signalled(SIGKILL)),
            Child::Running => None,
            Child::Changed(change) => Some(change),
        };
        if !is_known && self.0.len() < EXECS_MAX {
            self.0.push(Exec { id, pid });
            news.push(News::Started);
        }
        if let Some(change) = ended {
            self.note(pid, change, news);
        }
    }

    /// Takes note of a child's change.
    fn note(&mut self, pid: u32, change: Change, news: &mut Vec<News>) {
        let Some(at) = self.0.iter().position(|exec| exec.pid == pid) else {
            return;
        };
        let exec = match change {
            Change::Stopped(_) => self.0.get(at).copied(),
            Change::Exited(_) | Change::Signalled(_) => Some(self.0.swap_remove(at)),
        };
        news.extend(exec.map(|exec| News::Changed(exec.id, change)));
    }
}
