use std::ffi::OsString;
use std::fmt;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use atoll_ledger::Armed;
use atoll_model::Ending;
use atoll_model::network::{
    ApprovalScope, AskedCall, CallDigest, DENIED_BY, Flow, FlowKind, HostPart, Listener, NO_RULE,
    Published, PublishedPort, Scope,
};

use atoll_sys::terminal::WindowSize;

use crate::SandboxError;
use atoll_policy::ExecGrant;

use crate::approval::{Decision, Declined, Pending, PortAgreed, Who};

/// The rows and columns of a terminal.
pub type Size = WindowSize;

/// One of the program's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output, or everything on a terminal.
    Output,
    /// Standard error.
    Error,
}

/// The response to a signal that the host side received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Send it to the program.
    Forward(u8),
    /// Set the window's size.
    Resize(Size),
    /// Do nothing.
    Ignore,
}

/// A person's decision about a request at the run's own terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The request's number.
    pub approval: u32,
    /// The digest of the call that was shown.
    pub digest: CallDigest,
    /// The decision.
    pub decision: Decision,
}

/// A flow that no rule allows, which a person could allow, or that a rule denies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The host, as the program named it.
    pub host: String,
    /// The rule of `--allow` that would allow it, were it not denied.
    pub rule: String,
    /// The reason.
    pub why: String,
}

impl Denial {
    /// Returns the denial of a refused flow; none where neither a rule denies it, nor one for its
    /// host alone could lift it.
    #[must_use]
    pub fn of(flow: &Flow, why: &str) -> Option<Self> {
        let could_lift = why == NO_RULE && flow.credentials.is_empty() && flow.rule.is_none();
        if !could_lift && !why.contains(DENIED_BY) {
            return None;
        }
        let host: HostPart = flow.host.parse().ok()?;
        let at = match &host {
            HostPart::Address(IpAddr::V6(address)) => format!("[{address}]"),
            HostPart::Address(_) | HostPart::Name(_) => host.to_string(),
        };
        let rule = match (flow.kind, &flow.request, flow.port) {
            (FlowKind::Name, _, _) => at,
            (FlowKind::Tunnel, _, port @ 1..) => format!("{at}:{port}"),
            (FlowKind::Request, Some(request), port @ 1..) => {
                let (method, scheme) = (&request.method, request.scheme);
                format!("{method} {scheme}://{at}:{port}/**")
            }
            _ => return None,
        };
        Some(Self {
            host: flow.host.clone(),
            rule,
            why: why.to_owned(),
        })
    }

    /// Returns whether a person can allow it while the run goes on.
    #[must_use]
    pub fn can_be_lifted(&self) -> bool {
        self.why == NO_RULE
    }
}

/// The time for which a person allows something at the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// One connection or request.
    Once,
    /// The run.
    Run,
    /// The run, and all runs in its workspace.
    Project,
}

impl Allowance {
    /// Returns its name in the ledger.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Run => "run",
            Self::Project => "project",
        }
    }

    /// Formats it for a sentence.
    #[must_use]
    pub fn told(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Run => "for this run",
            Self::Project => "for this project",
        }
    }

    /// Returns the scope that policies decide about.
    #[must_use]
    pub fn scope(self) -> Scope {
        match self {
            Self::Once => Scope::Once,
            Self::Run | Self::Project => Scope::Run,
        }
    }
}

/// The result of a step of the prompts at the run's own terminal.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Output to show, after all that was shown before.
    pub shown: Vec<(Stream, Vec<u8>)>,
    /// A decision of the person, if made.
    pub answered: Option<Answered>,
    /// A port that the person wants to publish, if any.
    pub publishes: Option<PublishedPort>,
    /// A denied flow that the person wants to allow: the rule of `--allow`.
    pub allows: Option<(String, Allowance)>,
    /// The terminal size to set for the program, if changed.
    pub resized: Option<Size>,
}

/// A notice about dual control for the person at the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecondApproval {
    /// No approver but the run's own user can be heard, so that whatever needs two is denied.
    Unheard,
    /// This request has its first approval.
    Question(Box<Pending>),
    /// This port has its first approval.
    Port(PortAgreed),
    /// Both have decided.
    Settled(Box<Settled>),
}

/// The decision of the second person, after the approval of the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The first approver.
    pub first: Who,
    /// The person who decided then.
    pub by: Who,
    /// The subject and the outcome.
    pub of: SettledOf,
}

/// A subject of dual control, with its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettledOf {
    /// An approval request.
    Question {
        /// The request's number.
        approval: u32,
        /// The call.
        call: Box<AskedCall>,
        /// The scope and breadth that both approved; `None` if the second denied.
        granted: Option<(Scope, ApprovalScope)>,
    },
    /// A port to publish.
    Port {
        /// The port.
        port: PublishedPort,
        /// The reason why it is not published nevertheless, if any.
        refused: Option<String>,
    },
}

/// The host's side of a session: the source of the program's input, and the sinks of its
/// output.
pub trait Attachment {
    /// Returns the source of the program's input; `None` for none.
    fn input(&self) -> Option<BorrowedFd<'_>>;
    /// Returns the sink of a stream.
    fn sink(&self, stream: Stream) -> BorrowedFd<'_>;
    /// Returns a descriptor that becomes readable when a signal has arrived.
    fn signals(&self) -> Option<BorrowedFd<'_>>;
    /// Takes the next signal that has arrived.
    fn next_signal(&mut self) -> Option<Reaction>;
    /// Turns the program's output into what is shown, and stores what is to be kept.
    fn transform(&mut self, stream: Stream, written: &[u8], shown: &mut Vec<u8>);
    /// Takes note that the program is about to be executed, by the process of this number in the
    /// sandbox. That is the sandbox's word.
    fn executing(&mut self, pid: u32) {
        let _ = pid;
    }
    /// Takes note that a program in the sandbox has begun to listen; returns what to show, and
    /// on which stream.
    fn begun(&mut self, listener: &Listener) -> Option<(Stream, Vec<u8>)> {
        let _ = listener;
        None
    }
    /// Takes the outcome of publishing a port that the person asked for; returns what to show,
    /// and on which stream. `Ok(None)` means that a second approval is needed.
    fn published(
        &mut self,
        port: PublishedPort,
        done: &Result<Option<Published>, Declined>,
    ) -> Option<(Stream, Vec<u8>)> {
        let _ = (port, done);
        None
    }
    /// Takes note that something was denied; returns what to show, and on which stream.
    fn denied(&mut self, denial: &Denial) -> Option<(Stream, Vec<u8>)> {
        let _ = denial;
        None
    }
    /// Takes the outcome of allowing what the person asked for; returns what to show, and on which
    /// stream.
    fn allowed(
        &mut self,
        rule: &str,
        lasts: Allowance,
        done: &Result<(), Declined>,
    ) -> Option<(Stream, Vec<u8>)> {
        let _ = (rule, lasts, done);
        None
    }
    /// Returns whether a line can be shown: not on a screen that a program has drawn.
    fn takes_lines(&self) -> bool {
        true
    }
    /// Takes a notice about dual control; returns what to show, and on which stream.
    fn of_two(&mut self, told: &SecondApproval) -> Option<(Stream, Vec<u8>)> {
        let _ = told;
        None
    }
    /// Takes all open approval requests, the oldest first.
    fn asked(&mut self, open: Vec<Pending>) {
        let _ = open;
    }
    /// Takes note that the program has ended: no more requests are shown, and keys are ignored.
    fn over(&mut self) {}
    /// Returns whether an approval prompt has the terminal: the program's output is not read
    /// then, and what is typed is not passed on.
    fn has_terminal(&self) -> bool {
        false
    }
    /// Removes from the typed bytes those that are not for the program.
    fn typed(&mut self, typed: &mut Vec<u8>) {
        let _ = typed;
    }
    /// Returns when the prompts need a turn, whatever else happens.
    fn due(&self) -> Option<Instant> {
        None
    }
    /// Gives the prompts a turn. `is_shown` says whether all pending output is shown.
    fn turn(&mut self, is_shown: bool) -> Turn {
        let _ = is_shown;
        Turn::default()
    }
    /// Handles a suspension of the program by the terminal; does not return until the program
    /// is to go on.
    fn suspended(&mut self);
    /// Gives back a terminal that the program left changed, once all is shown. Of an exec beside
    /// the first.
    fn finish(&mut self) {}
}

/// A program to start in a sandbox that is there, by the right to it.
#[derive(Debug)]
pub struct ExecCommand {
    /// The right: the program, its directory and number.
    pub armed: Armed<ExecGrant>,
    /// Variables in addition to the sandbox's own, which they replace: `NAME=value` each.
    pub environment: Vec<OsString>,
    /// The size of a terminal of its own, if it gets one.
    pub terminal: Option<Size>,
    /// Pipes that it gets as its standard input, output and error, where nobody copies what goes
    /// through them. Not with a terminal.
    pub streams: Option<[OwnedFd; 3]>,
}

/// An exec to start in a living sandbox, by the right to it.
pub struct StartExec {
    /// The program.
    pub command: ExecCommand,
    /// The host's side of its streams.
    pub attachment: Box<dyn Attachment>,
}

impl fmt::Debug for StartExec {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("StartExec").finish_non_exhaustive()
    }
}

/// A request to a living sandbox, beside those to its egress process.
#[derive(Debug)]
pub enum SandboxRequest {
    /// Start an exec.
    Exec(Box<StartExec>),
    /// Start a file server.
    Files(FilesRequest),
}

/// The receiver of the socket of a file server.
pub type Served = Box<dyn FnOnce(Result<OwnedFd, SandboxError>)>;

/// A file server to start.
pub struct FilesRequest {
    /// Takes the socket of its requests.
    pub served: Served,
}

impl fmt::Debug for FilesRequest {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("FilesRequest").finish_non_exhaustive()
    }
}

/// An exec that has ended, with all of its output shown.
pub struct EndedExec {
    /// The right by which it was started.
    pub armed: Armed<ExecGrant>,
    /// Its end, or the reason why it was not started.
    pub ending: Result<Ending, SandboxError>,
    /// The time from its start to its end.
    pub wall_clock: Duration,
    /// True if it ended because the sandbox did.
    pub with_run: bool,
}

impl fmt::Debug for EndedExec {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("EndedExec").finish_non_exhaustive()
    }
}

/// The control of a sandbox's egress process, if it has one.
pub trait Carrier {
    /// Takes note of the parent of the sandbox's first process, once it is there.
    fn begin(&mut self, launcher: u32) {
        let _ = launcher;
    }
    /// Takes the listeners of the sandbox's network, and those of the host, once they exist;
    /// `launcher` is the parent of the sandbox's first process.
    fn take(&mut self, listeners: Vec<OwnedFd>, launcher: u32);
    /// Returns the descriptors that become readable when there is something to do.
    fn waits_on(&self) -> Vec<BorrowedFd<'_>>;
    /// Returns when there is something to do although no descriptor is readable.
    fn due(&self) -> Option<Instant> {
        None
    }
    /// Does what there is to do. Returns whether the program may go on.
    fn attend(&mut self) -> bool;
    /// Returns the open approval requests, the oldest first, if they have changed since the
    /// last call.
    fn questions(&mut self) -> Option<Vec<Pending>> {
        None
    }
    /// Takes the decision of the person who started the run. Returns whether the program may go
    /// on.
    fn answered(&mut self, answered: Answered) -> bool {
        let _ = answered;
        true
    }
    /// Publishes a port for the person who started the run; `None` if a second approval is
    /// needed.
    ///
    /// # Errors
    /// The reason why it is not published.
    fn publish(&mut self, port: PublishedPort) -> Result<Option<Published>, Declined> {
        Err(Declined {
            why: format!("nothing leads to port {} inside", port.inside),
            advice: "start the run anew, with a network".to_owned(),
        })
    }
    /// Takes note of a violation by the program, which lowers its reputation.
    fn attempted(&mut self) {}
    /// Returns the listeners that have appeared in the sandbox since the last call.
    fn begun(&mut self) -> Vec<Listener> {
        Vec::new()
    }
    /// Returns the denials since the last call that a person could lift, in order.
    fn denied(&mut self) -> Vec<Denial> {
        Vec::new()
    }
    /// Allows what a rule of `--allow` says, for the person who started the run.
    ///
    /// # Errors
    /// The reason why it is not allowed.
    fn allow(&mut self, rule: &str, lasts: Allowance) -> Result<(), Declined> {
        let _ = lasts;
        Err(Declined {
            why: format!("nothing is carried, so {rule} cannot be allowed"),
            advice: "start the run anew, with --allow".to_owned(),
        })
    }
    /// Takes the notices about dual control that are due.
    fn of_two(&mut self) -> Vec<SecondApproval> {
        Vec::new()
    }
    /// Takes the requests to the sandbox.
    fn requests(&mut self) -> Vec<SandboxRequest> {
        Vec::new()
    }
    /// Returns whether the sandbox is to be frozen.
    fn wants_frozen(&self) -> bool {
        false
    }
    /// Answers whoever wants to know if the sandbox has been frozen all along.
    fn check_frozen(&mut self, has_held: &dyn Fn() -> bool) {
        let _ = has_held;
    }
    /// Takes note that the sandbox is frozen, or why it cannot be.
    fn frozen(&mut self, done: Result<(), String>) {
        let _ = done;
    }
    /// Takes note of the end of an exec beside the first.
    fn exec_ended(&mut self, ended: EndedExec) {
        let _ = ended;
    }
}
