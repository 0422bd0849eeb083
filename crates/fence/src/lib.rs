//! Judges the calls that Landlock does not hold, where there are no namespaces.
//!
//! In a fence a program shares the host's network, its Unix sockets and the
//! attributes of its files. The calls that reach for them wait (seccomp_unotify(2))
//! until [`Fence::judge`] has looked at them: it copies what their pointers lead
//! to, judges the copy, and makes the call itself on the very same socket or file.
//! Nothing that was judged is left to be changed before the kernel reads it.
//!
//! What is allowed: connections to what the program itself listens on, listening on
//! the loopback, changing the attributes of files that it may write; and where the run has
//! a network, connections that somebody else judges and carries. It must never
//! know policy: the lists of places are all it goes by. Start reading at
//! [`Fence::judge`].

mod attributes;
mod caller;
mod calls;
mod listeners;
mod names;
mod outside;
mod processes;
mod signals;
mod sockets;

use std::io;
use std::os::fd::BorrowedFd;

use atoll_sys::judging::{self, Answer, Waiting};

pub use calls::{JUDGED, KNOWN_FAMILY, NO_INTERNET, REFUSED, ROUTED, request, socket};
pub use outside::Outside;
pub use processes::{become_reaper, descendants, end_descendants};

use caller::Caller;
use sockets::Own;

/// What a waiting call asks for; its arguments stand in the places that the call's
/// manual page gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// connect(2).
    Connect,
    /// bind(2).
    Bind,
    /// listen(2).
    Listen,
    /// socket(2) of a kind that only the judge makes.
    Socket,
    /// Something of a socket on which names are asked for.
    OfNames(NameRequest),
    /// inotify_add_watch(2).
    Watch,
    /// kill(2) and its kin: the first argument is who gets it.
    Signal(Recipient),
    /// An attribute of a file.
    Change(Target, Attribute),
}

/// What is asked of a socket on which names are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRequest {
    /// sendto(2).
    SendTo,
    /// sendmsg(2) and sendmmsg(2), of which the first message counts.
    SendMessage,
    /// recvfrom(2).
    Receive,
    /// recvmsg(2).
    ReceiveMessage,
    /// setsockopt(2).
    Option,
    /// getsockname(2).
    OwnAddress,
    /// getpeername(2).
    ServerAddress,
}

/// How a signal's recipient is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// A process, or with other numbers a group, or everybody.
    ProcessOrGroup,
    /// A process or a thread, and nothing else.
    Thread,
}

/// How a call names its file. The attribute's arguments follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// By a descriptor.
    Descriptor,
    /// By a path.
    Path,
    /// By a path, of which a last symbolic link is not followed.
    Link,
    /// By a directory's descriptor and a path, with flags at this position if any.
    At(Option<u8>),
}

/// What of a file is to be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// Mode.
    Mode,
    /// User and group.
    Owner,
    /// Times in whole seconds: `struct utimbuf`.
    Seconds,
    /// Times in microseconds: two `struct timeval`.
    Microseconds,
    /// Times in nanoseconds: two `struct timespec`.
    Nanoseconds,
    /// One extended attribute, set.
    Set,
    /// One extended attribute, removed.
    Remove,
}

/// The places that a program may use, absolute and without symbolic links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// It may read them, and watch what happens there.
    pub readable: Vec<Vec<u8>>,
    /// It may change what is there.
    pub writable: Vec<Vec<u8>>,
    /// It may connect to these sockets, which are not its own. Nobody inside can put others
    /// in their place.
    pub services: Vec<Vec<u8>>,
}

/// The judge of one program and of everything that it starts.
#[derive(Debug)]
pub struct Fence {
    places: Places,
    own: Own,
    outside: Option<Outside>,
}

/// What becomes of a judged call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// What its caller gets.
    pub answer: Answer,
    /// Whether it reached for what is somebody else's, as no honest program does; what
    /// else is refused, programs try to find out.
    pub attempt: bool,
}

/// A refusal, as the caller sees it.
pub(crate) struct Refused(pub(crate) i32);

impl From<rustix::io::Errno> for Refused {
    fn from(error: rustix::io::Errno) -> Self {
        Self(error.raw_os_error())
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(EPERM))
    }
}

pub(crate) const EPERM: i32 = 1;
pub(crate) const EACCES: i32 = 13;
pub(crate) const ESRCH: i32 = 3;

/// The refusal of an attempt. Every other refusal is a [`Refused`].
pub(crate) const fn attempt(error: i32) -> Result<Answer, Refused> {
    Ok(Answer::Error(error))
}

impl Fence {
    /// A judge who lets a program use these places, and what leads outside if anything does.
    #[must_use]
    pub fn new(places: Places, outside: Option<Outside>) -> Self {
        Self {
            places,
            own: Own::default(),
            outside,
        }
    }

    /// Judges a call that came to this listener and waits.
    pub fn judge(&mut self, listener: BorrowedFd<'_>, call: &Waiting) -> Judged {
        let judged = match request(call.call) {
            Some(request) => self.consider(request, listener, call),
            None => Err(Refused(EPERM)),
        };
        let attempt = matches!(judged, Ok(Answer::Error(_)));
        let answer = judged.unwrap_or_else(|Refused(error)| Answer::Error(error));
        Judged { answer, attempt }
    }

    fn consider(
        &mut self,
        request: Request,
        listener: BorrowedFd<'_>,
        call: &Waiting,
    ) -> Result<Answer, Refused> {
        let caller = || Caller::new(call.thread);
        // Whatever is read of the caller is read before this; a number that belongs
        // to another process by now is noticed.
        let waits = || match judging::is_waiting(listener, call.id) {
            true => Ok(()),
            false => Err(Refused(EPERM)),
        };
        let (arguments, places) = (&call.arguments, &self.places);
        let outside = self.outside.as_mut();
        match request {
            Request::Connect => {
                sockets::connect(&caller()?, arguments, &self.own, outside, places, waits)
            }
            Request::Socket => match outside.filter(|_| sockets::is_for_datagrams(arguments)) {
                Some(outside) => outside.socket_for_names(listener, call),
                // Of a family that no honest program asks for.
                None => attempt(sockets::EAFNOSUPPORT),
            },
            Request::OfNames(request) => match outside {
                Some(outside) => outside.names.attend(request, &caller()?, arguments, waits),
                None => Err(Refused(EPERM)),
            },
            Request::Bind => sockets::bind(&caller()?, arguments, outside, waits),
            Request::Listen => sockets::listen(&caller()?, arguments, &mut self.own, waits),
            Request::Signal(recipient) => signals::signal(recipient, call),
            Request::Watch => attributes::watch(&caller()?, arguments, places, waits),
            Request::Change(target, attribute) => {
                attributes::change(&caller()?, target, attribute, arguments, places, waits)
            }
        }
    }
}

#[cfg(test)]
mod tests;
