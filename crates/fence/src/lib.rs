//! The judge of system calls that Landlock does not restrict, where there are no namespaces.
//!
//! In a fence a program shares the host's network, its Unix sockets and the attributes of its
//! files. The calls that reach for them wait (seccomp_unotify(2)) until [`Fence::judge`] has
//! examined them: it copies the memory behind their pointers, judges the copy, and makes the
//! call itself on the very same socket or file. So nothing that was judged can change before
//! the kernel reads it.
//!
//! Allowed are: connections to the program's own listeners, listening on the loopback, changing
//! the attributes of files that it may write; and where the run has a network, connections that
//! the egress process judges and carries. The fence must never know policy: the lists of paths
//! are all that it goes by. Start reading at [`Fence::judge`].

mod address;
mod attributes;
mod caller;
mod calls;
mod deadline;
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

/// The kind of a waiting call; its arguments are in the order of the call's manual page.
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
    /// A call on a DNS socket.
    OfNames(NameRequest),
    /// inotify_add_watch(2).
    Watch,
    /// kill(2) and its kin; the first argument is the recipient.
    Signal(Recipient),
    /// A change of a file's attribute.
    Change(Target, Attribute),
}

/// A call on a DNS socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRequest {
    /// sendto(2).
    SendTo,
    /// sendmsg(2), and sendmmsg(2), of which only the first message is examined.
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

/// The way a signal's recipient is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// A process; with 0 or a negative number a group, or all processes.
    ProcessOrGroup,
    /// A process or a thread, and nothing else.
    Thread,
}

/// The way a call names its file. The arguments of the attribute follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// By a descriptor.
    Descriptor,
    /// By a path.
    Path,
    /// By a path whose last component is not followed if it is a symbolic link.
    Link,
    /// By a directory's descriptor and a path, with the flags at this argument, if any.
    At(Option<u8>),
}

/// The file attribute that a call changes.
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

/// The paths that a program may use, absolute and without symbolic links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Paths that it may read and watch.
    pub readable: Vec<Vec<u8>>,
    /// Paths that it may change.
    pub writable: Vec<Vec<u8>>,
    /// Sockets that it may connect to although they are not its own. No program in the fence
    /// can replace them.
    pub services: Vec<Vec<u8>>,
}

/// The judge of one program and of all its descendants.
#[derive(Debug)]
pub struct Fence {
    places: Places,
    own: Own,
    outside: Option<Outside>,
}

/// The outcome of a judged call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// The answer to its caller.
    pub answer: Answer,
    /// True if the call reached for what belongs to others, as no honest program does. Other
    /// refused calls are probes that programs commonly make.
    pub attempt: bool,
}

/// A refusal: the error number that the caller gets.
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
pub(crate) const EAFNOSUPPORT: i32 = 97;
pub(crate) const ENETUNREACH: i32 = 101;
pub(crate) const ETIMEDOUT: i32 = 110;
pub(crate) const ECONNREFUSED: i32 = 111;

/// Returns the refusal of an attempt. Every other refusal is a [`Refused`].
pub(crate) const fn attempt(error: i32) -> Result<Answer, Refused> {
    Ok(Answer::Error(error))
}

impl Fence {
    /// Creates the judge of a program that may use these paths, and the network if `outside` is
    /// given.
    #[must_use]
    pub fn new(places: Places, outside: Option<Outside>) -> Self {
        Self {
            places,
            own: Own::default(),
            outside,
        }
    }

    /// Judges a call that waits at this listener.
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
                None => attempt(EAFNOSUPPORT),
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
