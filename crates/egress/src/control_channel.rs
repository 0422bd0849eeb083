//! The control channel to the process that records: no flow goes on before its report is confirmed,
//! except one that changes nothing at its destination, which is reported soon after.

mod approvals;
mod cut;
mod flow_outcome;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use atoll_model::conduct::{HistoryEvent, Running};
use atoll_model::network::{
    Authority, CallDigest, CommandEnd, Consent, CredentialName, FLOW_MESSAGE_BYTES_MAX, Flow,
    FlowEnd, FlowKind, FlowOrder, FlowReport, GivenUp, Published,
};
use atoll_sys::socket;
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout_at;

use crate::limits::Excess;
use crate::live_rules::LiveRules;
use crate::refusals::Refusals;
use cut::{cut, cut_flow, first_message};
pub use flow_outcome::FlowOutcome;

/// The time for which reports that nobody waits for are gathered: with the time that recording
/// takes they are written within 50 ms.
const GATHERING: Duration = Duration::from_millis(5);
/// The size from which gathered reports are sent at once, bytes.
const GATHERED_BYTES: usize = FLOW_MESSAGE_BYTES_MAX / 2;
/// The most that may be unsent before another flow opens, bytes.
const UNSENT_BYTES_MAX: usize = 8 * FLOW_MESSAGE_BYTES_MAX;
/// The longest text in a report, bytes. Escaped, each may take six times that, and all of them fit
/// into one message: no report is too long to be sent.
const TEXT_BYTES_MAX: usize = 1024;
/// The longest name of a user or database, bytes.
const LOGIN_BYTES_MAX: usize = 128;
/// The longest path of a flow that is opened, bytes.
const PATH_BYTES_MAX: usize = 2048;

/// The control channel, and all that waits for an answer on it.
#[derive(Debug)]
pub(crate) struct ControlChannel {
    /// A SOCK_SEQPACKET socket: the runtime treats it as one of datagrams.
    socket: UnixDatagram,
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<()>>>,
    commands: Mutex<HashMap<u64, mpsc::Sender<CommandMessage>>>,
    asking: Mutex<HashMap<u64, oneshot::Sender<(CallDigest, Consent)>>>,
    refusals: Mutex<Refusals>,
    /// The run's reputation: deeds reported here lower it.
    conduct: Arc<Mutex<Running>>,
    /// The rules, of which some count for one flow.
    rules: Arc<LiveRules>,
    unsent: Mutex<SendQueue>,
    /// Notified when there is something to send.
    some: Notify,
    /// Notified when gathered reports are to be sent at once.
    hurry: Notify,
    /// Notified when there is room for further reports.
    space: Notify,
}

/// Reports that are still to be sent, in order.
#[derive(Debug, Default)]
struct SendQueue {
    /// The reports as JSON, a newline after each.
    text: Vec<u8>,
    /// Set when somebody waits for one of them.
    hurries: bool,
    /// Set when no further report will come.
    is_last: bool,
    /// Set when the other end is gone.
    is_gone: bool,
}

/// A message about a command.
#[derive(Debug)]
pub(crate) enum CommandMessage {
    /// Running: the read ends of its standard output and standard error.
    Running([OwnedFd; 2]),
    /// Ended.
    Ran(CommandEnd),
    /// A login's file that is ready to be renewed: the socket of the process that keeps it.
    Renewing(Option<OwnedFd>),
}

/// A flow that is reported: it may go on. [`ControlChannel::close`] reports its end.
#[derive(Debug)]
pub struct OpenFlow {
    id: u64,
    since: Instant,
    rule: Option<String>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ControlChannel {
    /// Returns the channel over a socket that keeps message boundaries, and does not block.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            socket: UnixDatagram::from_std(socket.into())?,
            next: AtomicU64::new(1),
            waiting: Mutex::default(),
            commands: Mutex::default(),
            asking: Mutex::default(),
            refusals: Mutex::default(),
            conduct: Arc::default(),
            rules: Arc::default(),
            unsent: Mutex::default(),
            some: Notify::new(),
            hurry: Notify::new(),
            space: Notify::new(),
        })
    }

    /// Shares the run's reputation with the policies.
    pub(crate) fn with_conduct(self, conduct: Arc<Mutex<Running>>) -> Self {
        Self { conduct, ..self }
    }

    /// Shares the rules with those who decide by them.
    pub(crate) fn with_rules(self, rules: Arc<LiveRules>) -> Self {
        Self { rules, ..self }
    }

    /// Queues a report: to be sent at once with all before it, or gathered with others.
    fn report(&self, report: &FlowReport, hurries: bool) -> io::Result<()> {
        let mut unsent = lock(&self.unsent);
        if unsent.is_gone {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let before = unsent.text.len();
        let written = serde_json::to_writer(&mut unsent.text, report);
        if written.is_err() || unsent.text.len() - before >= FLOW_MESSAGE_BYTES_MAX {
            unsent.text.truncate(before);
            return Err(io::ErrorKind::InvalidData.into());
        }
        unsent.text.push(b'\n');
        unsent.hurries |= hurries || unsent.text.len() >= GATHERED_BYTES;
        let (is_first, hurries) = (before == 0, unsent.hurries);
        drop(unsent);
        if is_first {
            self.some.notify_one();
        }
        if hurries {
            self.hurry.notify_one();
        }
        Ok(())
    }

    /// Sends queued reports, until the last of them.
    pub(crate) async fn send(&self) {
        loop {
            if lock(&self.unsent).text.is_empty() {
                if lock(&self.unsent).is_last {
                    return;
                }
                self.some.notified().await;
                continue;
            }
            let until = Instant::now() + GATHERING;
            // A word to hurry may be about what has been sent meanwhile.
            while self.gathers()
                && timeout_at(until.into(), self.hurry.notified())
                    .await
                    .is_ok()
            {}
            let text = {
                let mut unsent = lock(&self.unsent);
                unsent.hurries = false;
                std::mem::take(&mut unsent.text)
            };
            if self.send_all(&text).await.is_err() {
                return self.is_gone();
            }
            self.space.notify_waiters();
        }
    }

    /// Returns whether reports may be gathered for longer.
    fn gathers(&self) -> bool {
        let unsent = lock(&self.unsent);
        !unsent.hurries && !unsent.is_last
    }

    async fn send_all(&self, text: &[u8]) -> io::Result<()> {
        let mut rest = text;
        while !rest.is_empty() {
            let (message, after) = first_message(rest);
            let send = || socket::send(self.socket.as_fd(), message, &[]);
            self.socket.async_io(Interest::WRITABLE, send).await?;
            rest = after;
        }
        Ok(())
    }

    /// Marks the other end as gone: waiters learn that nothing is recorded.
    fn is_gone(&self) {
        lock(&self.unsent).is_gone = true;
        self.nobody_answers();
        self.space.notify_waiters();
    }

    /// Marks the last report: [`ControlChannel::send`] returns once all of them are sent.
    pub(crate) fn end(&self) {
        lock(&self.unsent).is_last = true;
        self.some.notify_one();
        self.hurry.notify_one();
    }

    /// Has a flow recorded, and waits until it is on disk, or else until the report is queued.
    ///
    /// # Errors
    /// When the recording process is gone.
    pub(crate) async fn open(&self, flow: Flow, waits: bool) -> io::Result<OpenFlow> {
        self.open_by(flow, waits, None).await
    }

    /// Has a flow recorded as [`ControlChannel::open`] does, with the approval where a person was asked.
    ///
    /// # Errors
    /// When the recording process is gone.
    pub(crate) async fn open_by(
        &self,
        mut flow: Flow,
        waits: bool,
        approval: Option<u32>,
    ) -> io::Result<OpenFlow> {
        // To ask for a name uses nothing up.
        if flow.kind != FlowKind::Name && !self.rules.spend(&flow) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let rule = flow.rule.clone();
        cut_flow(&mut flow, PATH_BYTES_MAX);
        loop {
            // From here on it hears of room.
            let space = self.space.notified();
            let has_room = {
                let unsent = lock(&self.unsent);
                unsent.is_gone || unsent.text.len() < UNSENT_BYTES_MAX
            };
            if has_room {
                break;
            }
            space.await;
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (recorded, wait) = oneshot::channel();
        if waits {
            lock(&self.waiting).insert(id, recorded);
        }
        let report = FlowReport::Open {
            id,
            flow,
            waits,
            approval,
        };
        if let Err(error) = self.report(&report, waits) {
            lock(&self.waiting).remove(&id);
            return Err(error);
        }
        if waits {
            let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
            wait.await.map_err(gone)?;
        }
        let since = Instant::now();
        Ok(OpenFlow { id, since, rule })
    }

    /// Has a label recorded that the session gains, and waits until it is on disk.
    ///
    /// # Errors
    /// When the recording process is gone.
    pub(crate) async fn label(&self, mut label: String, mut by: String) -> io::Result<()> {
        cut(&mut label, TEXT_BYTES_MAX);
        cut(&mut by, TEXT_BYTES_MAX);
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (recorded, wait) = oneshot::channel();
        lock(&self.waiting).insert(id, recorded);
        if let Err(error) = self.report(&FlowReport::Label { id, label, by }, true) {
            lock(&self.waiting).remove(&id);
            return Err(error);
        }
        wait.await
            .map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }

    /// Reports a flow's end.
    pub(crate) fn close(&self, opened: &OpenFlow, carried: FlowOutcome) {
        if let Some(rule) = opened.rule.as_ref().filter(|_| carried.is_unreached) {
            self.rules.note_in_vain(rule);
        }
        let [up_bytes, down_bytes] = carried.bytes;
        let spent = opened.since.elapsed().as_micros();
        let end = FlowEnd {
            up_bytes,
            down_bytes,
            status: carried.status,
            duration_us: u64::try_from(spent).unwrap_or(u64::MAX),
            failure: carried.failure.map(|mut why| {
                cut(&mut why, TEXT_BYTES_MAX);
                why
            }),
            is_unreached: carried.is_unreached,
            limit: carried.limit,
            masked: carried.masked,
        };
        let id = opened.id;
        // Nobody listens: then it is found interrupted.
        let _ = self.report(&FlowReport::Closed { id, end }, false);
    }

    /// Reports a refused flow, the first time that it is refused.
    pub(crate) fn refuse(&self, mut flow: Flow, mut why: String) {
        if !flow.credentials.is_empty() {
            lock(&self.conduct).did(HistoryEvent::Misuse);
        }
        // It is kept until the end, and the program has written it.
        cut_flow(&mut flow, TEXT_BYTES_MAX);
        cut(&mut why, TEXT_BYTES_MAX);
        let told = lock(&self.refusals).count(flow, why);
        if let Some(report) = told {
            // Nobody listens: then it is about to end anyway.
            let _ = self.report(&report, true);
        }
    }

    /// Reports a flow that exceeds a limit of its rule.
    pub(crate) fn refuse_beyond(&self, mut flow: Flow, excess: &Excess) {
        flow.limit = Some(excess.limit);
        self.refuse(flow, excess.why());
    }

    /// Handles orders until the end is ordered or the other end is gone: among them confirmations
    /// of records, and ports published meanwhile, with their listeners.
    pub(crate) async fn receive_orders(
        &self,
        mut further: impl FnMut(Published, Vec<OwnedFd>),
        renounce: impl Fn(Vec<GivenUp>),
        reload: impl Fn(u32, Option<OwnedFd>) -> bool,
        sign_by: impl Fn(&Authority) -> bool,
    ) {
        let mut buffer = vec![0_u8; FLOW_MESSAGE_BYTES_MAX];
        loop {
            let receive = || socket::receive(self.socket.as_fd(), &mut buffer);
            let received = self.socket.async_io(Interest::READABLE, receive).await;
            let (got, given) = match received {
                Ok((0, _)) | Err(_) => break,
                Ok(received) => received,
            };
            let message = buffer.get(..got).unwrap_or_default();
            match serde_json::from_slice(message) {
                Ok(FlowOrder::Recorded { id }) => self.recorded(id),
                Ok(FlowOrder::Running { id }) => match given.try_into() {
                    Ok(outputs) => self.deliver(id, CommandMessage::Running(outputs)),
                    Err(_) => break,
                },
                Ok(FlowOrder::Ran { id, end }) => self.deliver(id, CommandMessage::Ran(end)),
                Ok(FlowOrder::Renewing { id }) => {
                    self.deliver(id, CommandMessage::Renewing(given.into_iter().next()));
                }
                Ok(FlowOrder::Said {
                    id,
                    digest,
                    consent,
                }) => self.answered(id, digest, consent),
                Ok(FlowOrder::Publish { published }) => further(published, given),
                Ok(FlowOrder::GiveUp { id, given }) => {
                    renounce(given);
                    // It counts from here on, and whoever gave it up is told so.
                    let _ = self.report(&FlowReport::GaveUp { id }, true);
                }
                Ok(FlowOrder::Allow(allowed)) => {
                    // It counts with the authority that signs for its host, or not at all.
                    if allowed.authority.is_some_and(|one| !sign_by(&one)) {
                        break;
                    }
                    self.rules.allow(allowed.rule, allowed.once);
                    // What is refused after this is news again.
                    self.report_refusals();
                }
                Ok(FlowOrder::Attempted {}) => lock(&self.conduct).did(HistoryEvent::Attempt),
                Ok(FlowOrder::Reload {
                    policies,
                    has_policies,
                }) => {
                    // What cannot be read was never in force: whoever waits for an answer ends this.
                    let is_whole = given.len() == usize::from(has_policies);
                    if !is_whole || !reload(policies, given.into_iter().next()) {
                        break;
                    }
                    let _ = self.report(&FlowReport::Reloaded { policies }, true);
                }
                Ok(FlowOrder::End) | Err(_) => break,
            }
        }
        self.nobody_answers();
    }

    /// Tells all who wait that nothing is recorded, and that no command runs.
    fn nobody_answers(&self) {
        lock(&self.waiting).clear();
        lock(&self.commands).clear();
        lock(&self.asking).clear();
    }

    /// Has the command of a credential run. Returns the messages about it, until nobody waits for
    /// them any more.
    ///
    /// # Errors
    /// When the other end is gone, and nothing could run it.
    pub(crate) fn command(
        &self,
        credential: &CredentialName,
    ) -> io::Result<mpsc::Receiver<CommandMessage>> {
        let credential = credential.clone();
        self.subscribe(|id| FlowReport::Command { id, credential })
    }

    /// Has a login's file made ready to be renewed.
    ///
    /// # Errors
    /// When the other end is gone, and nothing could do so.
    pub(crate) fn renewal(
        &self,
        credential: &CredentialName,
    ) -> io::Result<mpsc::Receiver<CommandMessage>> {
        let credential = credential.clone();
        self.subscribe(|id| FlowReport::Renew { id, credential })
    }

    fn subscribe(
        &self,
        report: impl FnOnce(u64) -> FlowReport,
    ) -> io::Result<mpsc::Receiver<CommandMessage>> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (heard, hears) = mpsc::channel(2);
        lock(&self.commands).insert(id, heard);
        let told = self.report(&report(id), true);
        if told.is_err() {
            lock(&self.commands).remove(&id);
        }
        told.map(|()| hears)
    }

    /// Has the rights recorded that the program gives up, and waits until that is on disk.
    ///
    /// # Errors
    /// When the recording process is gone.
    pub(crate) async fn give_up(&self, given: Vec<GivenUp>) -> io::Result<()> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (recorded, wait) = oneshot::channel();
        lock(&self.waiting).insert(id, recorded);
        if let Err(error) = self.report(&FlowReport::GivesUp { id, given }, true) {
            lock(&self.waiting).remove(&id);
            return Err(error);
        }
        wait.await
            .map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }

    /// Passes on a message about a command, as long as somebody waits for it.
    fn deliver(&self, id: u64, heard: CommandMessage) {
        let mut commands = lock(&self.commands);
        let is_last = matches!(heard, CommandMessage::Ran(_) | CommandMessage::Renewing(_));
        let sent = commands.get(&id).map(|to| to.try_send(heard));
        if is_last || !matches!(sent, Some(Ok(()))) {
            commands.remove(&id);
        }
    }

    fn recorded(&self, id: u64) {
        if let Some(waits) = lock(&self.waiting).remove(&id) {
            // It may have gone meanwhile.
            let _ = waits.send(());
        }
    }

    /// Reports the flows that were refused more than once, and counts anew.
    pub(crate) fn report_refusals(&self) {
        let refusals = std::mem::take(&mut *lock(&self.refusals));
        for report in refusals.rest() {
            if self.report(&report, false).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
