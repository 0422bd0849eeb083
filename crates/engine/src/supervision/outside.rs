//! A run's egress process, as its supervisor sees it: the process is started at the first
//! connection, and sends nothing on that has to be recorded before it is on disk.

mod consent;
mod event;
mod execs;
mod gate;
mod given_up;
mod live;
mod network;
mod publishing;
mod reload;
mod starting;
mod wider;

use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use std::{io, mem};

pub use event::FlowEvent;
use execs::Execs;
pub use execs::{AskedExec, ExecGate};
pub use gate::{CallGate, HostEffect, NewPolicies, PortEffect};
pub use given_up::IsRevoked;
use given_up::Revoking;
pub use live::Live;
use live::{AgreedPort, Waits};
pub(crate) use starting::start;
pub use wider::ProjectAllowance;

use crate::supervision::approvals::Approvals;
use crate::supervision::commands::Commands;
use crate::supervision::control::{Answer, Control, Others, Versions};
use crate::supervision::doors::{EgressInputs, tells_of_comers};
use crate::supervision::flows::{Flows, Refused};
use crate::supervision::handover::CredentialBundle;
use crate::supervision::login_renewal::Renewals;
use crate::supervision::owner::OwnerEnd;
use crate::supervision::signing::SshHandover;
use atoll_model::network::{
    AskedCall, Authority, CARRIAGE_BYTES_MAX, CommandEnd, CredentialName, EgressConfig,
    FLOW_MESSAGE_BYTES_MAX, Flow, FlowEnd, FlowOrder, FlowReport, GivenUp, GivenUps, Listener,
    Network, NetworkRule, Published, PublishedPort, UNLOCKED_STATUS,
};
use atoll_sandbox::{
    Allowance, Answered, Carrier, Declined, Denial, EndedExec, Listening, Pending, SandboxRequest,
    SecondApproval, Who,
};
use atoll_sys::process::Change;
use atoll_sys::{descriptor, process, socket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_domain;
use rustix::net::{AddressFamily, RecvFlags, recv};

/// The time after which the egress process starts before the first connection, if there are
/// credentials, which are likely to be used: agents take longer to load, and a shorter run
/// needs no egress process.
const BEGINNING: Duration = Duration::from_millis(25);
/// The longest wait for the egress process's end once there is nothing more to carry.
const FAREWELL: Duration = Duration::from_secs(3);
/// The additional time if it revokes credentials first.
const TAKING_BACK: Duration = Duration::from_secs(6);
/// The additional time while a login's issuer is asked: the new tokens have to be written.
const RENEWING: Duration = Duration::from_secs(60);

/// The longest wait for sending an order.
const ORDER_PATIENCE: Duration = Duration::from_secs(1);
const ORDER_PAUSE: Duration = Duration::from_micros(200);

/// The most denials that wait to be shown.
const DENIALS_MAX: usize = 64;

/// The most messages read in one turn: each can hold many reports. All of them wait for the
/// disk together.
const MESSAGES_AT_ONCE_MAX: usize = 16;

/// The most bytes of reports on one run's connections, which take about as much of the ledger.
/// Nothing is carried unrecorded, so nothing is carried beyond this.
const TOLD_BYTES_MAX: u64 = 1 << 30;

const SIGKILL: i32 = 9;

/// The name (argv 0) under which the egress process is started; the socket at descriptor 3
/// controls it.
pub(crate) const OUTSIDE: &CStr = c"atoll-egress";

/// Records changes in order; returns whether all are recorded. Those that something waits for
/// have to be on disk before this returns, the others need not. Nothing that is unrecorded goes
/// on.
pub type Recorder<'a> = &'a mut dyn FnMut(&[FlowEvent<'_>]) -> bool;

/// Issues the authority of a run for the hosts of a network, if its programs are to trust one.
pub type Issuer<'a> = &'a dyn Fn(&Network) -> io::Result<Option<Authority>>;

/// A report of the egress process, prepared for recording.
enum Told {
    Opened {
        id: u64,
        flow: Flow,
        waits: bool,
        approval: Option<u32>,
    },
    Closed {
        id: u64,
        flow: Flow,
        end: FlowEnd,
    },
    Refused(Refused),
    /// A credential is needed; the request for it is recorded by itself.
    Needed {
        id: u64,
        credential: CredentialName,
    },
    /// A credential is to be renewed; the request to its issuer is recorded by itself.
    Renewing {
        id: u64,
        credential: CredentialName,
    },
    /// A call needs approval, which is recorded when the request is opened.
    Asked {
        id: u64,
        call: Box<AskedCall>,
    },
    /// A call no longer waits for approval.
    Left {
        id: u64,
    },
    /// The program drops rights, which is recorded by itself.
    GivesUp {
        id: u64,
        given: Vec<GivenUp>,
    },
    /// Rights dropped from outside are in effect.
    GaveUp {
        id: u64,
    },
    /// These policies are in effect.
    Reloaded {
        policies: u32,
    },
    Labelled {
        id: u64,
        label: String,
        by: String,
    },
}

impl Told {
    fn news(&self) -> Option<FlowEvent<'_>> {
        match self {
            Self::Opened {
                id,
                flow,
                waits,
                approval,
            } => Some(FlowEvent::Opened {
                id: *id,
                flow,
                waits: *waits,
                approval: *approval,
            }),
            Self::Closed { id, end, .. } => Some(FlowEvent::Closed { id: *id, end }),
            Self::Refused(refused) => Some(FlowEvent::Refused(refused)),
            Self::Labelled { label, by, .. } => Some(FlowEvent::Labelled { label, by }),
            Self::Needed { .. }
            | Self::Renewing { .. }
            | Self::Asked { .. }
            | Self::Left { .. }
            | Self::GivesUp { .. }
            | Self::GaveUp { .. }
            | Self::Reloaded { .. } => None,
        }
    }
}

/// The supervisor of a run's egress process.
pub struct Outside<'a> {
    record: Recorder<'a>,
    network: &'a Network,
    /// The network that a caller has put in its place.
    replaced: Option<Box<Network>>,
    /// The listeners, for a further egress process.
    kept: Vec<OwnedFd>,
    comers: usize,
    issuer: Issuer<'a>,
    doors: EgressInputs,
    handover: Option<&'a CredentialBundle>,
    signing: Option<(&'a SshHandover, OwnedFd)>,
    commands: Commands,
    renewals: Renewals,
    state: State,
    /// The ports published by now.
    published: Vec<Published>,
    live: Option<Live<'a>>,
    control: Option<Control>,
    /// The name at which other approvers reach this run, until it listens.
    others: Option<Others>,
    /// The time from which the control socket is open, unless it is needed earlier.
    opens_at: Option<Instant>,
    approvals: Approvals,
    /// A port that waits for a second approval.
    agreed_port: Option<AgreedPort>,
    /// The number of times that other approvers were the first to approve a port.
    yeses_of_others: u32,
    /// The number of lasting approvals that were refused.
    refused_escalations: u32,
    /// Notices about dual control that are due.
    of_two: Vec<Waits>,
    /// True if the approval requests have changed since they were last taken.
    has_new_questions: bool,
    /// True if nobody can approve: whatever needs approval is denied.
    is_unattended: bool,
    /// True if the last attempt to open the control socket failed.
    is_unspoken: bool,
    /// The rights dropped by the run, or earlier in its session.
    given_up: GivenUps,
    /// True if the program has committed a violation.
    has_attempted: bool,
    /// The number of times that rights were dropped from outside, and of those in effect.
    giving_up: u64,
    counted: u64,
    /// The number of the policies in force, and of those that the egress process decides by.
    policies: u32,
    decided_by: u32,
    /// The versions compared, and the text that a prover compares.
    compared: Option<(Versions, String)>,
    /// The watch for revoked tokens, if the run has tokens.
    revoking: Option<Revoking<'a>>,
    listening: Option<Listening>,
    /// The sandbox's launcher, once it is there.
    launcher: Option<u32>,
    /// New listeners that were not taken yet.
    begun: Vec<Listener>,
    /// New denials that were not taken yet.
    denied: Vec<Denial>,
    /// The number of rules that the person has added.
    allowances: usize,
    /// The rules that a person has added.
    widened: Vec<NetworkRule>,
    execs: Execs,
    open: HashMap<u64, Flow>,
    flows: Flows,
    /// The bytes of reports so far.
    told_bytes: u64,
    /// True if a change could not be recorded.
    is_unrecorded: bool,
    /// The buffer for a message of the egress process.
    message: Vec<u8>,
}

#[derive(Debug)]
enum State {
    /// No egress process runs.
    None,
    /// The egress process waits for the first connection. Listeners that can show one come
    /// first.
    Listening {
        listeners: Vec<OwnedFd>,
        comers: usize,
        /// The time at which the egress process starts anyway.
        begins_at: Option<Instant>,
    },
    /// The egress process runs.
    Carrying {
        line: OwnedFd,
        pid: u32,
        /// The signing process, if there is one.
        signer: Option<u32>,
    },
}

impl<'a> Outside<'a> {
    /// Creates the supervisor for a run's network. The authority is issued when the egress
    /// process starts.
    #[must_use]
    pub fn new(network: &'a Network, issuer: Issuer<'a>, record: Recorder<'a>) -> Self {
        Self {
            record,
            network,
            replaced: None,
            kept: Vec::new(),
            comers: 0,
            issuer,
            doors: EgressInputs::default(),
            handover: None,
            signing: None,
            commands: Commands::default(),
            renewals: Renewals::default(),
            state: State::None,
            published: network.publish.clone(),
            live: None,
            control: None,
            others: None,
            opens_at: None,
            approvals: Approvals::default(),
            agreed_port: None,
            yeses_of_others: 0,
            refused_escalations: 0,
            of_two: Vec::new(),
            has_new_questions: false,
            is_unattended: false,
            is_unspoken: false,
            given_up: GivenUps::default(),
            has_attempted: false,
            giving_up: 0,
            counted: 0,
            policies: 0,
            decided_by: 0,
            compared: None,
            revoking: None,
            listening: None,
            launcher: None,
            begun: Vec::new(),
            denied: Vec::new(),
            allowances: 0,
            widened: Vec::new(),
            execs: Execs::default(),
            open: HashMap::new(),
            flows: Flows::default(),
            told_bytes: 0,
            is_unrecorded: false,
            message: Vec::new(),
        }
    }

    /// Adds the egress inputs.
    #[must_use]
    pub fn with(mut self, doors: EgressInputs) -> Self {
        self.doors = doors;
        self
    }

    /// Adds the credentials for the egress process.
    #[must_use]
    pub fn handing(mut self, handover: Option<&'a CredentialBundle>) -> Self {
        self.handover = handover;
        self
    }

    /// Adds the SSH keys for the signing process, and the listener of its agent.
    #[must_use]
    pub fn signing(mut self, signing: Option<(&'a SshHandover, OwnedFd)>) -> Self {
        self.signing = signing;
        self
    }

    /// Sets whether the run is unattended, with nobody who could approve.
    #[must_use]
    pub fn unattended(mut self, is_unattended: bool) -> Self {
        self.is_unattended = is_unattended;
        self
    }

    /// Starts the egress process, with the listeners.
    fn start(&mut self, listeners: &[OwnedFd]) {
        let begun = (self.issuer)(self.in_force()).and_then(|authority| {
            let carriage = EgressConfig {
                network: Network {
                    publish: self.published.clone(),
                    ..self.in_force().clone()
                },
                authority,
                visitors: self.doors.visitors.clone(),
                placeholders: self
                    .handover
                    .map_or_else(Vec::new, |one| one.placeholders().to_vec()),
                has_locks: self.doors.locks.is_some(),
                has_policies: self.doors.policies.is_some(),
                has_tokens: self.doors.tokens.is_some(),
                has_gained: self.doors.gained.is_some(),
                ssh: self
                    .signing
                    .as_ref()
                    .map_or_else(Vec::new, |(keys, _)| keys.keys().to_vec()),
                fetched: self
                    .handover
                    .map_or_else(Vec::new, |one| one.fetched().to_vec()),
                issues: self
                    .handover
                    .map_or_else(Vec::new, |one| one.issues().to_vec()),
                given_up: self.given_up.clone(),
                has_attempted: self.has_attempted,
                policies: self.policies,
            };
            // Their values come first of the sockets.
            let values = self.handover.map(CredentialBundle::receiver);
            let has_values = !carriage.placeholders.is_empty() || !carriage.issues.is_empty();
            let values = values.filter(|_| has_values);
            let signer = match &self.signing {
                Some((keys, _)) => Some(keys.start(self.in_force())?),
                None => None,
            };
            let line = signer.iter().map(|(line, _)| line);
            let agent = self.signing.iter().map(|(_, listener)| listener);
            let before = values.into_iter().chain(line).chain(agent);
            // What lock files name comes after certificates, then policies, tokens, and last what
            // other runs gain.
            let files = self.doors.roots.iter().chain(&self.doors.locks);
            let files = files.chain(&self.doors.policies).chain(&self.doors.tokens);
            let files = files.chain(&self.doors.gained);
            let begun = begin(&carriage, before.chain(listeners).chain(files));
            let signer = signer.map(|(_, pid)| pid);
            if let (Err(_), Some(pid)) = (&begun, signer) {
                end(pid);
            }
            begun.map(|(line, pid)| State::Carrying { line, pid, signer })
        });
        match begun {
            Ok(carrying) => self.state = carrying,
            Err(error) => self.fail(format!("nobody could be started to carry them: {error}")),
        }
    }

    fn fail(&mut self, why: String) {
        self.flows.failure.get_or_insert(why);
    }

    /// Parses the reports of one message, one per line.
    fn read(&mut self, message: &[u8], reports: &mut Vec<Told>) {
        let lines = message.split(|byte| *byte == b'\n');
        for line in lines.filter(|line| !line.is_empty()) {
            match serde_json::from_slice(line) {
                Ok(report) if decided_by(&report) > self.policies => {
                    self.fail("what carried connections said something unknown".to_owned());
                }
                Ok(FlowReport::Open {
                    id,
                    flow,
                    waits,
                    approval,
                }) => {
                    self.open.insert(id, flow.clone());
                    reports.push(Told::Opened {
                        id,
                        flow,
                        waits,
                        approval,
                    });
                }
                Ok(FlowReport::Closed { id, end }) => {
                    // Else nobody has told of its beginning.
                    if let Some(flow) = self.open.remove(&id) {
                        reports.push(Told::Closed { id, flow, end });
                    }
                }
                Ok(FlowReport::Refused { flow, why, count }) => {
                    reports.push(Told::Refused(Refused { flow, why, count }));
                }
                Ok(FlowReport::Command { id, credential }) => {
                    reports.push(Told::Needed { id, credential });
                }
                Ok(FlowReport::Renew { id, credential }) => {
                    reports.push(Told::Renewing { id, credential });
                }
                Ok(FlowReport::Ask { id, call }) => reports.push(Told::Asked { id, call }),
                Ok(FlowReport::Left { id }) => reports.push(Told::Left { id }),
                Ok(FlowReport::GivesUp { id, given }) => {
                    reports.push(Told::GivesUp { id, given });
                }
                Ok(FlowReport::GaveUp { id }) => reports.push(Told::GaveUp { id }),
                Ok(FlowReport::Reloaded { policies }) => reports.push(Told::Reloaded { policies }),
                Ok(FlowReport::Label { id, label, by }) => {
                    reports.push(Told::Labelled { id, label, by });
                }
                Err(_) => self.fail("what carried connections said something unknown".to_owned()),
            }
        }
    }

    /// Records reports, then lets go on what waits for that.
    fn hear(&mut self, reports: Vec<Told>) {
        let news: Vec<FlowEvent<'_>> = reports.iter().filter_map(Told::news).collect();
        if !self.recorded(&news) {
            for told in &reports {
                if let Told::Opened { id, .. } = told {
                    self.open.remove(id);
                }
            }
            return;
        }
        for told in reports {
            match told {
                Told::Opened {
                    id, flow, waits, ..
                } => self.opened(id, &flow, waits),
                Told::Closed { flow, end, .. } => self.flows.closed(flow, end),
                Told::Refused(refused) => {
                    // Later reports only count.
                    let is_first = refused.count == 1;
                    let denial = Denial::of(&refused.flow, &refused.why).filter(|_| is_first);
                    let room = DENIALS_MAX.saturating_sub(self.denied.len());
                    self.denied.extend(denial.into_iter().take(room));
                    self.flows.refuse(refused);
                }
                Told::Needed { id, credential } => self.begin_command(id, &credential),
                Told::Renewing { id, credential } => self.begin_renewal(id, &credential),
                Told::Asked { id, call } => self.ask_person(id, *call),
                Told::Left { id } => self.leave(id),
                Told::GivesUp { id, given } => self.given_up_inside(id, given),
                Told::GaveUp { id } => self.counted = self.counted.max(id),
                Told::Reloaded { policies } => self.decided_by = self.decided_by.max(policies),
                Told::Labelled { id, .. } => self.tell(FlowOrder::Recorded { id }, &[]),
            }
        }
    }

    /// Starts a credential command, and passes its output to the egress process.
    fn begin_command(&mut self, id: u64, credential: &CredentialName) {
        let known = self.handover.and_then(|one| one.command(credential));
        let begun = match known {
            Some(command) => self.commands.begin(id, credential, command),
            None => Err(CommandEnd::Unstarted(0)),
        };
        match begun {
            Ok(outputs) => self.tell(FlowOrder::Running { id }, &outputs),
            Err(end) => self.tell(FlowOrder::Ran { id, end }, &[]),
        }
    }

    /// Gives the egress process access to a login's file, or to the store of a refresh token,
    /// for a renewal.
    fn begin_renewal(&mut self, id: u64, credential: &CredentialName) {
        let known = self.handover.and_then(|one| one.renewal(credential));
        let begun = known.and_then(|what| self.renewals.begin(what).ok());
        self.tell(FlowOrder::Renewing { id }, begun.as_slice());
    }

    fn tell_of_commands(&mut self) {
        for (id, end) in self.commands.ended() {
            self.tell(FlowOrder::Ran { id, end }, &[]);
        }
    }

    /// Sends an order to the egress process.
    fn tell(&mut self, said: FlowOrder, with: &[OwnedFd]) {
        if self.flows.stopped.is_some() {
            // Nobody is there any more, which is no failure.
            return;
        }
        let told = match &self.state {
            State::Carrying { line, .. } => order(line, said, with),
            State::None | State::Listening { .. } => true,
        };
        if !told {
            let _ = self.end_carrier();
            self.fail("what carried connections did not listen any more".to_owned());
        }
    }

    fn opened(&mut self, id: u64, flow: &Flow, waits: bool) {
        self.flows.opened(flow);
        if waits {
            self.tell(FlowOrder::Recorded { id }, &[]);
        }
    }

    /// Records changes; returns whether everything so far is recorded, also by others.
    fn recorded(&mut self, news: &[FlowEvent<'_>]) -> bool {
        self.is_unrecorded |= !(self.record)(news);
        !self.is_unrecorded
    }

    /// Reads messages, but not all if there are many: the caller watches limits too. Returns
    /// whether there may be more.
    fn hear_some(&mut self) -> bool {
        let mut reports = Vec::new();
        let can_be_more = self.receive_some(&mut reports);
        self.hear(reports);
        can_be_more && !self.is_unrecorded
    }

    fn receive_some(&mut self, reports: &mut Vec<Told>) -> bool {
        let mut message = mem::take(&mut self.message);
        message.resize(FLOW_MESSAGE_BYTES_MAX, 0);
        let can_be_more = self.receive_into(&mut message, reports);
        self.message = message;
        can_be_more
    }

    fn receive_into(&mut self, message: &mut [u8], reports: &mut Vec<Told>) -> bool {
        for _ in 0..MESSAGES_AT_ONCE_MAX {
            let State::Carrying { line, .. } = &self.state else {
                return false;
            };
            let got = match socket::receive(line.as_fd(), message) {
                Ok((0, _)) => return false,
                Ok((got, _)) => got,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            };
            self.told_bytes = self.told_bytes.saturating_add(got as u64);
            self.read(message.get(..got).unwrap_or_default(), reports);
        }
        true
    }

    /// Ends the egress process once it has reported everything. Nothing is carried after this.
    #[must_use]
    pub fn finish(mut self) -> Flows {
        self.end_approvals();
        self.take_leave();
        let end = FlowEnd {
            failure: Some("nobody told of its end".to_owned()),
            ..FlowEnd::default()
        };
        let ids = mem::take(&mut self.open).into_keys();
        let closed = |id| FlowEvent::Closed { id, end: &end };
        let news: Vec<FlowEvent<'_>> = ids.map(closed).collect();
        self.recorded(&news);
        self.flows.renewed = self.renewals.written();
        self.flows.rotated = self.renewals.rotated();
        let listening = self.listening.take();
        self.flows.listened = listening.map(Listening::into_seen).unwrap_or_default();
        mem::take(&mut self.flows)
    }

    /// Asks the egress process to end, and reads its last reports.
    fn take_leave(&mut self) {
        if let State::Carrying { line, .. } = &self.state {
            let _ = order(line, FlowOrder::End, &[]);
        }
        let takes_back = self.handover.is_some_and(CredentialBundle::is_taken_back);
        let further = if takes_back {
            TAKING_BACK
        } else {
            Duration::ZERO
        };
        let mut until = Instant::now() + FAREWELL + further;
        let last = until + RENEWING;
        while !self.is_unrecorded && self.hear_some() {
            let now = Instant::now();
            if self.renewals.are_open() {
                until = until.max(now + FAREWELL).min(last);
            }
            if now >= until {
                break;
            }
            let State::Carrying { line, .. } = &self.state else {
                break;
            };
            let left = u32::try_from((until - now).as_millis()).unwrap_or(u32::MAX);
            let _ = descriptor::wait_readable([Some(line.as_fd())], Some(left));
        }
        let _ = self.end_carrier();
    }

    /// Kills the egress process without waiting for its end.
    fn kill_carrier(&self) {
        if let State::Carrying { pid, signer, .. } = &self.state {
            for pid in [Some(*pid), *signer].into_iter().flatten() {
                // Whoever has ended by itself has not been waited for, and keeps its number.
                let _ = process::signal_group(pid, SIGKILL);
            }
        }
    }

    /// Ends the egress process. Returns how it ended, if it had ended by itself.
    fn end_carrier(&mut self) -> Option<Change> {
        let State::Carrying { line, pid, signer } = mem::replace(&mut self.state, State::None)
        else {
            return None;
        };
        drop(line);
        // Nobody waits for what they print any more.
        self.commands = Commands::default();
        signer.and_then(end);
        let ended = end(pid);
        self.renewals.finish();
        ended
    }
}

/// Ends a process of this side's own. Returns how it ended, if it had ended by itself.
fn end(pid: u32) -> Option<Change> {
    // It leads a group of its own, whose number is nobody else's before the wait.
    let _ = process::signal_group(pid, SIGKILL);
    let waited = process::wait(Some(pid), true).ok().flatten();
    waited.map(|waited| waited.change)
}

/// Returns the number of the policies by which a report says something was decided.
fn decided_by(report: &FlowReport) -> u32 {
    match report {
        FlowReport::Open { flow, .. } | FlowReport::Refused { flow, .. } => flow.policies,
        FlowReport::Ask { call, .. } => call.policies,
        FlowReport::Reloaded { policies } => *policies,
        FlowReport::Closed { .. }
        | FlowReport::Command { .. }
        | FlowReport::Renew { .. }
        | FlowReport::Left { .. }
        | FlowReport::GivesUp { .. }
        | FlowReport::GaveUp { .. }
        | FlowReport::Label { .. } => 0,
    }
}

/// The explanation and remedy if memory cannot be locked.
const UNLOCKED: &str = ", since the kernel keeps no more memory from being swapped out for it, where it \
    would hold keys (RLIMIT_MEMLOCK): allow 8 MiB, by `ulimit -l 8192` before the run, or LimitMEMLOCK=8M \
    in a unit of systemd";

/// Describes how a process ended.
fn ending(change: Option<Change>) -> String {
    match change {
        Some(Change::Exited(UNLOCKED_STATUS)) => UNLOCKED.to_owned(),
        Some(Change::Exited(status)) => format!(" with status {status}"),
        Some(Change::Signalled(signal)) => format!(" by signal {signal}"),
        Some(Change::Stopped(_)) | None => String::new(),
    }
}

impl Drop for Outside<'_> {
    fn drop(&mut self) {
        let _ = self.end_carrier();
    }
}

impl Carrier for Outside<'_> {
    fn begin(&mut self, launcher: u32) {
        self.launcher = Some(launcher);
        if let Some(owner) = self.live.and_then(|live| live.owner) {
            owner.begin(launcher);
        }
    }

    fn take(&mut self, mut listeners: Vec<OwnedFd>, launcher: u32) {
        if self.live.is_some_and(|live| live.has_network) {
            self.listening = Some(Listening::of(launcher, &listeners));
        }
        listeners.append(&mut self.doors.listeners);
        listeners.sort_by_cached_key(|one| !tells_of_comers(one));
        let comers = listeners.partition_point(tells_of_comers);
        let is_awaited = self
            .handover
            .is_some_and(|one| !one.placeholders().is_empty());
        self.state = State::Listening {
            listeners,
            comers,
            begins_at: is_awaited.then(|| Instant::now() + BEGINNING),
        };
    }

    fn waits_on(&self) -> Vec<BorrowedFd<'_>> {
        let callers = self.control.iter().flat_map(Control::waits_on);
        let mut waits: Vec<BorrowedFd<'_>> = match &self.state {
            State::None => Vec::new(),
            State::Listening {
                listeners, comers, ..
            } => {
                let agent = self.signing.iter().map(|(_, listener)| listener);
                let listeners = listeners.iter().take(*comers);
                listeners.chain(agent).map(AsFd::as_fd).collect()
            }
            State::Carrying { line, .. } => {
                let commands = self.commands.waits_on();
                std::iter::once(line.as_fd()).chain(commands).collect()
            }
        };
        waits.extend(callers);
        let owner = self.live.and_then(|live| live.owner);
        waits.extend(owner.map(OwnerEnd::waits_on));
        waits.extend(self.execs.waits_on());
        waits
    }

    fn due(&self) -> Option<Instant> {
        let listening = self.listening.as_ref().map(Listening::due);
        let control = self.control.as_ref().and_then(Control::due);
        let opens = self.opens_at.filter(|_| self.control.is_none());
        let approvals = self.approvals.due();
        let revoking = self.revoking.as_ref().map(Revoking::due);
        let begins = match &self.state {
            State::Listening { begins_at, .. } => *begins_at,
            State::None | State::Carrying { .. } => None,
        };
        let all = [
            begins,
            self.commands.due(),
            listening,
            control,
            opens,
            approvals,
            revoking,
            self.execs.due_at(),
        ];
        all.into_iter().flatten().min()
    }

    fn attempted(&mut self) {
        if !mem::replace(&mut self.has_attempted, true) {
            self.tell(FlowOrder::Attempted {}, &[]);
        }
    }

    fn attend(&mut self) -> bool {
        self.attend_revoking();
        match self.flows.stopped {
            Some(_) => drop(self.end_carrier()),
            None => self.attend_carrier(),
        }
        self.attend_live();
        // What cannot be recorded is not let go on.
        !self.is_unrecorded && self.flows.stopped.is_none()
    }

    fn questions(&mut self) -> Option<Vec<Pending>> {
        mem::take(&mut self.has_new_questions).then(|| self.approvals.pending(Instant::now()))
    }

    fn answered(&mut self, answered: Answered) -> bool {
        let Answered {
            approval,
            digest,
            decision,
        } = answered;
        // What counts for nothing any more has been answered elsewhere, or is over.
        let _ = self.decide((approval, digest), decision, Who::own());
        !self.is_unrecorded && self.flows.stopped.is_none()
    }

    fn begun(&mut self) -> Vec<Listener> {
        mem::take(&mut self.begun)
    }

    fn denied(&mut self) -> Vec<Denial> {
        mem::take(&mut self.denied)
    }

    fn allow(&mut self, rule: &str, lasts: Allowance) -> Result<(), Declined> {
        self.allow_by(Who::own(), rule, lasts)
    }

    fn publish(&mut self, port: PublishedPort) -> Result<Option<Published>, Declined> {
        let answer = self.publish_by(Who::own(), port)?;
        // What waits for another person is told at the terminal as other such things are.
        let Answer::Published(published) = answer else {
            return Ok(None);
        };
        Ok(Some(published))
    }

    fn of_two(&mut self) -> Vec<SecondApproval> {
        self.tell_of_two()
    }

    fn requests(&mut self) -> Vec<SandboxRequest> {
        mem::take(&mut self.execs.due)
    }

    fn wants_frozen(&self) -> bool {
        self.execs.wants_frozen()
    }

    fn frozen(&mut self, done: Result<(), String>) {
        self.execs.note_frozen(done);
    }

    fn check_frozen(&mut self, has_held: &dyn Fn() -> bool) {
        self.execs.check_frozen(has_held);
    }

    fn exec_ended(&mut self, ended: EndedExec) {
        self.close_exec(ended);
    }
}

impl Outside<'_> {
    fn attend_carrier(&mut self) {
        match mem::replace(&mut self.state, State::None) {
            State::None => {}
            // Nothing came on a line of a fence whose other end has gone.
            State::Listening {
                listeners,
                comers,
                begins_at,
            } => {
                let telling = listeners.get(..comers).unwrap_or(&listeners);
                if !telling.iter().any(has_ended) {
                    let is_due = begins_at.is_some_and(|at| at <= Instant::now());
                    if is_due || self.has_come(telling) {
                        self.start(&listeners);
                        self.keep(listeners, comers);
                    } else {
                        self.state = State::Listening {
                            listeners,
                            comers,
                            begins_at,
                        };
                    }
                }
            }
            carrying @ State::Carrying { .. } => {
                self.state = carrying;
                if !self.hear_some() {
                    let ended = ending(self.end_carrier());
                    self.fail(format!("what carried connections has ended{ended}"));
                } else if self.told_bytes <= TOLD_BYTES_MAX {
                    self.tell_of_commands();
                } else {
                    self.take_leave();
                    let mebibytes = TOLD_BYTES_MAX >> 20;
                    self.fail(format!(
                        "their records have filled the {mebibytes} MiB that a run has"
                    ));
                }
            }
        }
    }

    /// Returns whether there is a connection to carry.
    fn has_come(&self, listeners: &[OwnedFd]) -> bool {
        let agent = self.signing.iter().map(|(_, listener)| listener);
        let mut set: Vec<PollFd<'_>> = listeners
            .iter()
            .chain(agent)
            .map(|one| PollFd::new(one, PollFlags::IN))
            .collect();
        poll(&mut set, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }
}

/// Returns whether a socket's peer has closed it. Listeners never end.
fn has_ended(line: &OwnedFd) -> bool {
    let how = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    socket_domain(line).is_ok_and(|family| family == AddressFamily::UNIX)
        && matches!(recv(line, &mut [0; 1], how), Ok((_, 0)))
}

fn begin<'a>(
    carriage: &EgressConfig,
    with: impl Iterator<Item = &'a OwnedFd>,
) -> io::Result<(OwnedFd, u32)> {
    let message = serde_json::to_vec(carriage)?;
    if message.len() > CARRIAGE_BYTES_MAX {
        return Err(io::Error::other("there are too many destinations"));
    }
    let with: Vec<BorrowedFd<'_>> = with.map(AsFd::as_fd).collect();
    #[cfg(not(feature = "without_defences"))]
    let name = OUTSIDE;
    #[cfg(feature = "without_defences")]
    let name = &atoll_sandbox::name_of(OUTSIDE);
    let (line, pid) = start(name, &message, &with)?;
    descriptor::never_block(line.as_fd())?;
    Ok((line, pid))
}

/// Returns whether an order was taken. The egress process takes orders at once, except briefly
/// when there are many. Its end is found elsewhere, and counts as taken here.
fn order(line: &OwnedFd, order: FlowOrder, with: &[OwnedFd]) -> bool {
    let with: Vec<BorrowedFd<'_>> = with.iter().map(AsFd::as_fd).collect();
    let Ok(message) = serde_json::to_vec(&order) else {
        return false;
    };
    let until = Instant::now() + ORDER_PATIENCE;
    loop {
        match socket::send(line.as_fd(), &message, &with) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(()) | Err(_) => return true,
        }
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(ORDER_PAUSE);
    }
}

#[cfg(test)]
mod tests;
