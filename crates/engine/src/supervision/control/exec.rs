//! Execs asked for over a run's control socket: the caller's streams come with the request, and its
//! connection stays open until the program has ended.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use atoll_ledger::host_text;
use atoll_model::{CallId, Ending, RunId, ServedExec};
use atoll_policy::PriorAnswer;
use atoll_sys::{descriptor, socket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use serde::{Deserialize, Serialize};

use super::{
    ANSWER_BYTES_MAX, ANSWER_PATIENCE, Answer, ControlError, Question, Runs, connected_to, read,
    written,
};
use atoll_sandbox::{Attachment, Declined, Reaction, Size, Stream, Who};

/// The longest request, bytes.
const REQUEST_BYTES_MAX: usize = 4 << 20;
/// The longest line that a caller sends while its program runs, bytes.
const NEWS_BYTES_MAX: usize = 256;

const SIGHUP: u8 = 1;

/// A program to start in a running sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecRequest {
    /// The program and its arguments.
    #[serde(with = "host_text::list")]
    pub command: Vec<OsString>,
    /// The working directory, absolute in the sandbox; that of the run if `None`.
    #[serde(with = "host_text::optional")]
    pub directory: Option<OsString>,
    /// Variables in addition to those of the run, which they replace: `NAME=value` each.
    #[serde(with = "host_text::list")]
    pub environment: Vec<OsString>,
    /// Set by a server for its caller; never taken over a socket.
    #[serde(skip)]
    pub served: Option<ServedExec>,
    /// The answer of an approver, if a server has asked one; never taken over a socket.
    #[serde(skip)]
    pub answer: PriorAnswer,
    /// The call of the tool that it is a part of; never taken over a socket.
    #[serde(skip)]
    pub parent: Option<Box<CallId>>,
}

/// A line from the caller while its program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum ExecNews {
    Resize { rows: u16, columns: u16 },
    Signal(u8),
}

/// A filter of what a program writes to a person's terminal.
pub trait OutputFilter {
    /// Filters the next bytes, and appends what the terminal may get.
    fn push(&mut self, written: &[u8], shown: &mut Vec<u8>);
    /// Appends what gives back the terminal as it was.
    fn finish(&mut self, shown: &mut Vec<u8>);
}

/// A caller whose request the sandbox itself answers, later.
pub(crate) enum Staying {
    /// Asks for an exec.
    Exec(Box<ExecCaller>),
    /// Wants all processes stopped while it is connected.
    Freeze(UnixStream),
}

/// A caller who asks for an exec, with its streams.
pub(crate) struct ExecCaller {
    pub(crate) who: Who,
    pub(crate) request: ExecRequest,
    /// The size of the terminal that the program gets, if any.
    pub(crate) terminal: Option<Size>,
    stream: UnixStream,
    streams: [OwnedFd; 3],
    /// True if the program gets the streams themselves.
    is_direct: bool,
}

impl ExecCaller {
    /// Makes one of the program that holds the sandbox.
    pub(crate) fn own(
        request: ExecRequest,
        streams: [OwnedFd; 3],
        terminal: Option<Size>,
        stream: UnixStream,
    ) -> Self {
        Self {
            who: Who::own(),
            request,
            terminal,
            stream,
            streams,
            is_direct: terminal.is_none(),
        }
    }

    /// Takes the request and the streams of a caller: a sealed description, then standard input,
    /// output and error.
    pub(super) fn of(
        stream: UnixStream,
        who: Who,
        terminal: Option<Size>,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Self, (UnixStream, &'static str)> {
        let Ok([sealed, input, output, error]) = <[OwnedFd; 4]>::try_from(descriptors) else {
            return Err((stream, "its streams are missing"));
        };
        let is_sealed = descriptor::is_sealed(sealed.as_fd()).unwrap_or(false);
        let text = descriptor::read_from_start(sealed.as_fd(), REQUEST_BYTES_MAX);
        let request = text.ok().filter(|_| is_sealed);
        let request = request.and_then(|text| serde_json::from_slice(&text).ok());
        let Some(request) = request else {
            return Err((stream, "its description is not understood"));
        };
        Ok(Self {
            who,
            request,
            terminal,
            stream,
            streams: [input, output, error],
            is_direct: false,
        })
    }

    /// Answers a caller whose program is not started.
    pub(crate) fn refuse(self, answer: &Answer) {
        reply(&self.stream, answer);
    }

    /// Splits into the attachment of the exec, the connection for the answer at its end, and the
    /// streams that the program gets themselves.
    pub(crate) fn attach(
        self,
        filter: &dyn Fn() -> Box<dyn OutputFilter>,
    ) -> io::Result<(ExecPeer, UnixStream, Option<[OwnedFd; 3]>)> {
        let connection = self.stream.try_clone()?;
        let (copied, direct) = match self.is_direct {
            true => (None, Some(self.streams)),
            false => (Some(self.streams), None),
        };
        let filters = match &copied {
            Some([_, output, error]) => {
                [output, error].map(|sink| rustix::termios::isatty(sink).then(filter))
            }
            None => [None, None],
        };
        let peer = ExecPeer {
            stream: self.stream,
            streams: copied,
            filters,
            got: Vec::new(),
            is_gone: false,
        };
        Ok((peer, connection, direct))
    }
}

/// Sends an answer. One that fits goes into the kernel's buffer of the socket; a caller that does
/// not take it has none.
pub(crate) fn reply(mut stream: &UnixStream, answer: &Answer) {
    if let Some(line) = written(answer).filter(|line| line.len() <= ANSWER_BYTES_MAX) {
        let _ = stream.write_all(&line);
    }
}

/// The caller's side of an exec's streams.
pub(crate) struct ExecPeer {
    stream: UnixStream,
    /// Those that are copied; `None` if the program has its own.
    streams: Option<[OwnedFd; 3]>,
    /// Set for output that a person's terminal gets.
    filters: [Option<Box<dyn OutputFilter>>; 2],
    got: Vec<u8>,
    is_gone: bool,
}

impl Attachment for ExecPeer {
    fn input(&self) -> Option<BorrowedFd<'_>> {
        let [input, _, _] = self.streams.as_ref()?;
        Some(input.as_fd())
    }

    fn sink(&self, stream: Stream) -> BorrowedFd<'_> {
        match (&self.streams, stream) {
            (Some([_, output, _]), Stream::Output) => output.as_fd(),
            (Some([_, _, error]), Stream::Error) => error.as_fd(),
            // Nothing is shown.
            (None, _) => self.stream.as_fd(),
        }
    }

    fn signals(&self) -> Option<BorrowedFd<'_>> {
        (!self.is_gone).then(|| self.stream.as_fd())
    }

    /// Reads what the caller sends. A caller that is gone is to the program as a closed window; one
    /// that ignores that goes on until the run ends.
    fn next_signal(&mut self) -> Option<Reaction> {
        loop {
            if let Some(end) = self.got.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.got.drain(..=end).collect();
                return Some(match read::<ExecNews>(&line) {
                    Some(ExecNews::Resize { rows, columns }) => {
                        Reaction::Resize(Size { rows, columns })
                    }
                    Some(ExecNews::Signal(number @ 1..=64)) => Reaction::Forward(number),
                    Some(ExecNews::Signal(_)) | None => Reaction::Ignore,
                });
            }
            if self.is_gone {
                return None;
            }
            let mut block = [0; NEWS_BYTES_MAX];
            match self.stream.read(&mut block) {
                Ok(got @ 1..) if self.got.len() < NEWS_BYTES_MAX => {
                    self.got
                        .extend_from_slice(block.get(..got).unwrap_or_default());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => {
                    self.is_gone = true;
                    self.got.clear();
                    return Some(Reaction::Forward(SIGHUP));
                }
            }
        }
    }

    fn executing(&mut self, pid: u32) {
        reply(&self.stream, &Answer::Executing { pid });
    }

    fn transform(&mut self, stream: Stream, written: &[u8], shown: &mut Vec<u8>) {
        match self.filters.get_mut(stream as usize) {
            Some(Some(filter)) => filter.push(written, shown),
            Some(None) | None => shown.extend_from_slice(written),
        }
    }

    fn finish(&mut self) {
        let Some([_, output, error]) = &self.streams else {
            return;
        };
        for (filter, sink) in self.filters.iter_mut().zip([output, error]) {
            let mut shown = Vec::new();
            filter
                .iter_mut()
                .for_each(|filter| filter.finish(&mut shown));
            // A few bytes; a terminal that takes none is left as it is.
            let mut room = [PollFd::new(sink, PollFlags::OUT)];
            let now = Timespec::default();
            if !shown.is_empty() && matches!(poll(&mut room, Some(&now)), Ok(1..)) {
                let _ = rustix::io::write(sink, &shown);
            }
        }
    }

    fn suspended(&mut self) {}
}

/// A connection to a running sandbox in which a program was asked for.
#[derive(Debug)]
pub struct ExecConnection {
    stream: UnixStream,
    got: Vec<u8>,
    pid: Option<u32>,
}

impl ExecConnection {
    /// Begins with a connection that never blocks.
    pub(crate) fn on(stream: UnixStream) -> Self {
        Self {
            stream,
            got: Vec::new(),
            pid: None,
        }
    }

    /// Returns the descriptor that becomes readable when there is an answer.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Returns the number of the program's process in the sandbox, once it is executed.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Sets the size of the program's terminal.
    pub fn resize(&self, size: Size) {
        let Size { rows, columns } = size;
        self.tell(ExecNews::Resize { rows, columns });
    }

    /// Sends the program's process group a signal.
    pub fn signal(&self, number: u8) {
        self.tell(ExecNews::Signal(number));
    }

    fn tell(&self, news: ExecNews) {
        // A run that is gone is found by the answer that does not come.
        if let Some(line) = written(&news) {
            let _ = (&self.stream).write_all(&line);
        }
    }

    /// Waits for the answer: that of the exec's end, or a refusal.
    ///
    /// # Errors
    /// [`ControlError`]: the run has ended without one.
    pub fn wait(&mut self) -> Result<Answer, ControlError> {
        loop {
            let ready = descriptor::wait_readable([Some(self.stream.as_fd())], None);
            ready.map_err(ControlError::Silent)?;
            if let Some(answer) = self.answer()? {
                return Ok(answer);
            }
        }
    }

    /// Reads the answer, if it is there: that of the exec's end, or a refusal.
    ///
    /// # Errors
    /// [`ControlError`]: the run has ended without one.
    pub fn answer(&mut self) -> Result<Option<Answer>, ControlError> {
        let mut block = [0; NEWS_BYTES_MAX];
        match self.stream.read(&mut block) {
            Ok(0) => return Err(ControlError::Gone),
            Ok(got) => self
                .got
                .extend_from_slice(block.get(..got).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(ControlError::Silent(error)),
        }
        loop {
            let Some(end) = self.got.iter().position(|byte| *byte == b'\n') else {
                return match self.got.len() > ANSWER_BYTES_MAX {
                    true => Err(ControlError::Strange),
                    false => Ok(None),
                };
            };
            let line: Vec<u8> = self.got.drain(..=end).collect();
            match read(&line).ok_or(ControlError::Strange)? {
                Answer::Executing { pid } => self.pid = Some(pid),
                answer => return Ok(Some(answer)),
            }
        }
    }
}

/// The end of an exec, as its caller is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecDone {
    /// The exec's number in the sandbox.
    pub exec: u32,
    /// The way that it ended.
    pub ending: Ending,
    /// True if it ended because its run did.
    #[serde(default)]
    pub with_run: bool,
}

/// Asks a running sandbox to start a program on these streams, with a terminal of this size if one
/// is given.
///
/// # Errors
/// [`ControlError`]; [`ControlError::Another`] for a run of another user, who would get these
/// streams.
pub fn exec_in(
    runs: &Runs,
    run: &RunId,
    request: &ExecRequest,
    streams: [BorrowedFd<'_>; 3],
    terminal: Option<Size>,
) -> Result<ExecConnection, ControlError> {
    let stream = match runs {
        Runs::Own(directory) => connected_to(directory, run)?,
        Runs::Of(uid) => return Err(ControlError::Another(*uid)),
    };
    let ask = || -> io::Result<()> {
        let text = serde_json::to_vec(request)?;
        let sealed = descriptor::sealed_memory(c"atoll-request", &text)?;
        let question = Question::Exec {
            rows: terminal.map(|size| size.rows),
            columns: terminal.map(|size| size.columns),
        };
        let line = written(&question).ok_or(io::ErrorKind::InvalidInput)?;
        let [input, output, error] = streams;
        socket::send(
            stream.as_fd(),
            &line,
            &[sealed.as_fd(), input, output, error],
        )
    };
    let peer = socket_peercred(&stream).map_err(|error| ControlError::Silent(error.into()))?;
    if peer.uid != rustix::process::geteuid() {
        return Err(ControlError::Another(peer.uid.as_raw()));
    }
    ask().map_err(ControlError::Silent)?;
    stream.set_nonblocking(true).map_err(ControlError::Silent)?;
    Ok(ExecConnection::on(stream))
}

/// A sandbox that stands still, for as long as this is kept; a minute at most where its owner has not
/// asked for it.
#[derive(Debug)]
pub struct Frozen {
    stream: UnixStream,
}

impl Frozen {
    /// Returns whether the sandbox has stood still until now: no thread of it has run.
    #[must_use]
    pub fn has_held(&self) -> bool {
        let ask = || -> io::Result<Vec<u8>> {
            (&self.stream).write_all(b"?")?;
            let mut answer = vec![0; ANSWER_BYTES_MAX];
            // The other side closes the connection when it goes on.
            let got = (&self.stream).read(&mut answer)?;
            answer.truncate(got);
            Ok(answer)
        };
        ask().is_ok_and(|answer| read(&answer) == Some(Answer::Done {}))
    }
}

/// Stops all processes of a running sandbox.
///
/// # Errors
/// [`ControlError`]; the refusal is an answer.
pub fn freeze(runs: &Runs, run: &RunId) -> Result<Result<Frozen, Declined>, ControlError> {
    let stream = match runs {
        Runs::Own(directory) => connected_to(directory, run)?,
        Runs::Of(uid) => return Err(ControlError::Another(*uid)),
    };
    let ask = || {
        let line = written(&Question::Freeze {}).ok_or(io::ErrorKind::InvalidInput)?;
        (&stream).write_all(&line)
    };
    ask().map_err(ControlError::Silent)?;
    frozen(stream)
}

/// Waits until a sandbox stands still, as was asked over this connection.
pub(in crate::supervision) fn frozen(
    stream: UnixStream,
) -> Result<Result<Frozen, Declined>, ControlError> {
    let hear = || -> io::Result<Vec<u8>> {
        stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
        let mut answer = vec![0; ANSWER_BYTES_MAX];
        let got = (&stream).read(&mut answer)?;
        answer.truncate(got);
        Ok(answer)
    };
    let answer = hear().map_err(ControlError::Silent)?;
    if answer.is_empty() {
        return Err(ControlError::Gone);
    }
    match read(&answer).ok_or(ControlError::Strange)? {
        Answer::Done {} => Ok(Ok(Frozen { stream })),
        Answer::Refused(declined) => Ok(Err(declined)),
        _ => Err(ControlError::Strange),
    }
}
