use std::cell::RefCell;
use std::time::{Duration, SystemTime};

use atoll_layer::GitEnvironment;
use atoll_ledger::{
    Armed, Durability, Gained, Ledger, LedgerError, Refused, SessionError, StateDir,
};
use atoll_model::network::GivenUps;
use atoll_model::{Attempt, Call, Mode, Outcome, Verdict};
use atoll_policy::{Facts, Grant, Rules, decide};
use atoll_sandbox::{
    Assembled, Attachment, Declined, Departing, Doors, FlowNews, Flows, Handover, Host, IsRevoked,
    Live, Native, Outside, SandboxError, Size, SshHandover, Starting, Versions, Widening, assemble,
    detect_groups,
};
use atoll_store::{
    RECORD_VERSION, RunError, RunRecord, RunState, create_run, create_scratch, release_end,
    remove_scratch, reserve_end, update_run,
};
use serde_json::{Value, json};

use crate::asking::Rereading;
use crate::describe::describe;
use crate::flows;
use crate::place::{Placed, place};
use crate::ssh::SshPlace;
use crate::trust::Trust;
use crate::{PlaceError, asking, given_up, ranged};

/// Everything that one call needs.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// What is asked for.
    pub call: &'a Call,
    /// What this host is like.
    pub host: &'a Host,
    /// The rules that decide.
    pub rules: &'a Rules,
    /// What is true now.
    pub facts: Facts<'a>,
    /// Where git finds its configuration outside.
    pub git: &'a GitEnvironment,
    /// Where runs are kept.
    pub state: &'a StateDir,
    /// Where everything is recorded.
    pub ledger: &'a Ledger,
    /// The terminal's size, if the program gets one.
    pub terminal: Option<Size>,
    /// Credentials for the process that carries its connections.
    pub handover: Option<&'a Handover>,
    /// Keys of SSH for the process that signs.
    pub signing: Option<&'a SshHandover>,
    /// The tokens that have to carry everything that leaves.
    pub tokens: Option<&'a dyn Tokens>,
    /// What is to become of what it changes.
    pub fate: Fate,
    /// Nobody is there to be asked while it goes on: what would be is denied.
    pub unattended: bool,
    /// Who says yes to what lasts: [`widening`](crate::widening) of the rules.
    pub widening: &'a Widening,
    /// The run whose layers this one goes on with.
    pub resume: Option<&'a RunRecord>,
    /// Reads policies anew, for the same rules.
    pub reread: Reread<'a>,
    /// The time of the call.
    pub now: SystemTime,
}

/// Who reads policies anew while a run goes on: the rules that are given to it with other policies, or
/// why those stay in force.
pub type Reread<'a> = &'a dyn Fn(&Rules) -> Result<Rules, Declined>;

impl Request<'_> {
    /// Whether nothing of the run is kept but what the ledger says.
    pub(crate) fn is_scratch(&self) -> bool {
        match self.fate {
            Fate::Scratch => true,
            Fate::Open | Fate::Discarded => false,
        }
    }
}

/// Tokens that a run was given: what leaves has to be carried by them, and permitted besides.
pub trait Tokens {
    /// As the process that carries takes them.
    fn handed(&self) -> &[u8];
    /// For the record: nothing by which they could be used.
    fn told(&self) -> Value;
    /// When the first of them ends, in seconds since 1970, where that is known.
    fn end_s(&self) -> Option<u64>;
    /// Whether one of them is revoked by now, or that cannot be told.
    fn is_revoked(&self) -> bool;
    /// Whether they carry that a port inside is published.
    ///
    /// # Errors
    /// Why not.
    fn publishes(&self, port: u16) -> Result<(), String>;
}

/// What is to become of what a run changes, as far as that is known before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is kept until somebody decides.
    Open,
    /// It will be thrown away, so that nothing of it goes to what is kept from run to run either.
    Discarded,
    /// The same, and from the beginning nothing of the run is kept but what the ledger says; not
    /// for live or resumed runs.
    Scratch,
}

/// How a call ended.
#[derive(Debug)]
pub struct Called<A> {
    /// The other end of the program's input and output, done with.
    pub attachment: A,
    /// What came of it.
    pub outcome: Outcome,
    /// The record of the run, as it is kept.
    pub record: RunRecord,
    /// What the person should know.
    pub notices: Vec<String>,
    /// What came of its connections to the outside.
    pub flows: Flows,
}

/// A call that did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Policy refused it; the refusal is recorded.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The sandbox could not be made or failed.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The ledger could not record it.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The run's own files could not be made.
    #[error(transparent)]
    Run(#[from] RunError),
    /// What runs of its session gain at the same time cannot be told.
    #[error("what other runs of its session have touched cannot be told: {0}")]
    Gained(#[from] SessionError),
    /// The run's layers could not be made.
    #[error(transparent)]
    Place(#[from] PlaceError),
}

/// Carries a call out: the main path. `attach` makes the other end of the
/// program's input and output, once it is known that it will run. The launcher is
/// begun by the caller as early as it can: it takes as long as all the rest, and
/// until it is sent a grant's description it does nothing.
///
/// What the grant allows is prepared, its sandbox built, while the disk takes the
/// call's record; the program starts once it has (see [`Assembled::start`]).
///
/// # Errors
/// [`CallError`]. Whatever it is, no sandbox is left and the ledger says so.
pub fn call<A: Attachment>(
    request: &Request<'_>,
    starting: Starting,
    attach: impl FnOnce(&Grant) -> A,
) -> Result<Called<A>, CallError> {
    let verdict = decide(request.rules, request.call, &request.facts);
    let decision = told(request, &verdict);
    let entry = request.ledger.open_call(request.call, &verdict, decision)?;
    // Going on in another run's layers takes them from it: not before the record.
    let (prepared, starting) = match &verdict {
        Verdict::Allow(grant) if request.resume.is_none() => {
            (Some(prepare(request, starting, grant)), None)
        }
        Verdict::Allow(_) | Verdict::Ask(_) | Verdict::Deny(_) => (None, Some(starting)),
    };
    let mut armed = match entry.arm(verdict) {
        Ok(armed) => armed,
        Err(refused) => {
            if let Some(Ok(prepared)) = prepared {
                // The refusal is what counts; what is left is found interrupted.
                let _ = prepared.give_up(request);
            }
            return Err(refused.into());
        }
    };
    let prepared = match (prepared, starting) {
        (None, Some(starting)) => prepare(request, starting, armed.grant()),
        (Some(prepared), _) => prepared,
        (None, None) => Err(SandboxError::AnotherCall.into()),
    };
    let doors = doors(request, armed.grant());
    let ready = prepared.and_then(|prepared| match doors {
        Ok(doors) => Ok((prepared, doors)),
        Err(error) => prepared.give_up(request).and(Err(error)),
    });
    let ready = ready.map(|ready| (ready, attach(armed.grant())));
    let ran = ready.and_then(|((prepared, doors), mut attachment)| {
        let ran = prepared.run(request, &mut armed, &mut attachment, doors);
        ran.map(|ran| (ran, attachment))
    });
    match ran {
        Ok(((outcome, record, notices, flows, departing), attachment)) => {
            request
                .ledger
                .close(armed, &outcome, closing(request, &outcome, &flows))?;
            drop(departing);
            Ok(Called {
                attachment,
                outcome,
                record,
                notices,
                flows,
            })
        }
        Err(error) => {
            request.ledger.close_failed(
                armed,
                "the run did not come to its end",
                &error.to_string(),
            )?;
            Err(error)
        }
    }
}

/// What is there after it: how it ended, its record, what the person should know, what
/// came of its connections, and who still leaves.
type Ran = (Outcome, RunRecord, Vec<String>, Flows, Option<Departing>);

/// What is there before the program: the run's own files and its sandbox.
struct Prepared {
    record: RunRecord,
    placed: Placed,
    assembled: Assembled,
    /// What its session has given up before.
    given_up: GivenUps,
}

/// Makes the run's own files and has its sandbox built.
fn prepare(
    request: &Request<'_>,
    starting: Starting,
    grant: &Grant,
) -> Result<Prepared, CallError> {
    let host = request.host;
    let held = detect_groups(host);
    let mut record = new_record(request, grant);
    if request.is_scratch() {
        create_scratch(request.state, &record.run)?;
    } else {
        create_run(request.state, &record)?;
    }
    let assembled = (|| {
        let given_up = given_up::before(request)?;
        let placed = place(request, grant.boundary(), &mut record)?;
        if !request.is_scratch() {
            reserve_end(request.state, &record.run)?;
        }
        let native = Native {
            host,
            held: &held,
            placement: &placed.placement,
            terminal: request.terminal,
            asked_for: &request.rules.limits_asked_for(),
        };
        let assembled = assemble(&native, starting, grant, request.call)?;
        Ok((placed, assembled, given_up))
    })();
    match assembled {
        Ok((placed, assembled, given_up)) => Ok(Prepared {
            record,
            placed,
            assembled,
            given_up,
        }),
        Err(error) => {
            fail(request, record)?;
            Err(error)
        }
    }
}

impl Prepared {
    /// Between arming and closing: the program, to its end.
    fn run(
        self,
        request: &Request<'_>,
        armed: &mut Armed<Grant>,
        attachment: &mut dyn Attachment,
        (doors, gained): (Doors, Option<Gained>),
    ) -> Result<Ran, CallError> {
        let (record, mut placed) = (self.record, self.placed);
        let (assembled, given_up) = (self.assembled, self.given_up);
        let run = record.run.clone();
        let unrecorded = RefCell::new(None);
        // What cannot be recorded is not let go on.
        let noted = |recorded: Result<(), LedgerError>| {
            let mut unrecorded = unrecorded.borrow_mut();
            if let Err(error) = recorded {
                unrecorded.get_or_insert(error);
            }
            unrecorded.is_none()
        };
        let ledger = request.ledger;
        let mut witness = |attempt: &Attempt| noted(ledger.record_attempt(&run, attempt).map(drop));
        let boundary = armed.grant().boundary().clone();
        let rereading = Rereading::new(request, &boundary);
        let mut record_flow = |news: &[FlowNews<'_>]| {
            let recorded = flows::record(ledger, &run, news, &rereading.versions());
            noted(recorded.and_then(|()| flows::tell_beside(gained.as_ref(), news)))
        };
        let network = boundary.network.clone();
        let listener = placed.ssh.as_mut().and_then(SshPlace::take_listener);
        let issue = || placed.trust.as_ref().map(Trust::issue).transpose();
        let directory = || asking::directory(request.state);
        let decide = |port, already: &[_]| rereading.publish(port, already);
        let reload = |only: Option<&Versions>| rereading.reload(only);
        let compare = || rereading.compare();
        let live = Live {
            run: &run,
            has_network: request.facts.mode == Mode::Full,
            directory: &directory,
            decide: &decide,
            reload: &reload,
            compare: &compare,
            widening: request.widening,
        };
        let mut outside = Outside::new(&network, &issue, &mut record_flow)
            .with(doors)
            .holding(revoking(request))
            .asked(Some(live))
            .having_given_up(given_up)
            .unattended(request.unattended)
            .handing(request.handover)
            .signing(request.signing.zip(listener));
        let attended = assembled
            .start(armed)
            .and_then(|running| running.attend(attachment, &mut witness, &mut outside));
        armed.note_ending();
        let flows = outside.finish();
        let attended = match unrecorded.into_inner() {
            Some(error) => Err(error.into()),
            None => attended.map_err(CallError::from),
        };
        let (outcome, departing) = match attended {
            Ok(attended) => attended,
            Err(error) => {
                fail(request, record)?;
                return Err(error);
            }
        };
        let (record, notices) = settle(request, record, &outcome, placed)?;
        Ok((outcome, record, notices, flows, departing))
    }

    /// Takes back what was prepared for a call that goes no further.
    fn give_up(self, request: &Request<'_>) -> Result<(), CallError> {
        drop(self.assembled);
        fail(request, self.record)
    }
}

/// Writes down how a run ended, and takes up what is kept of it. What the person should know.
fn settle(
    request: &Request<'_>,
    mut record: RunRecord,
    outcome: &Outcome,
    placed: Placed,
) -> Result<(RunRecord, Vec<String>), CallError> {
    note_outcome(&mut record, outcome);
    let mut notices = placed.notices;
    for kept in placed.kept {
        kept.settle(&mut notices);
    }
    let record = note_end(request, record, RunState::Kept)?;
    Ok((record, notices))
}

/// Notes how a program has ended.
fn note_outcome(record: &mut RunRecord, outcome: &Outcome) {
    let counts = outcome.attempts.iter().map(|one| one.count);
    record.attempts = counts.fold(0, u64::saturating_add);
    record.ending = Some(outcome.ending);
    record.exit = Some(outcome.ending.exit_status());
}

/// What the verdict was reached on, and which tokens the run holds.
fn told(request: &Request<'_>, verdict: &Verdict<Grant>) -> Value {
    let mut decision = describe(request.rules, verdict);
    if let Some(members) = decision.as_object_mut() {
        let tokens = request.tokens.map(|tokens| tokens.told());
        members.extend(tokens.map(|tokens| ("tokens".to_owned(), tokens)));
        let earlier = request.resume.map(|earlier| json!(earlier.run));
        members.extend(earlier.map(|run| ("resumed".to_owned(), run)));
    }
    decision
}

/// What leads out of it, and what tells other runs of its session of what it gains.
fn doors(request: &Request<'_>, grant: &Grant) -> Result<(Doors, Option<Gained>), CallError> {
    let doors = Doors::open(
        &grant.boundary().network,
        grant.policies(),
        &request.call.workspace,
        request.facts.environment,
    )?;
    let doors = doors.holding(request.tokens.map(Tokens::handed))?;
    let gained = gained(request, grant)?;
    let reader = gained.as_ref().map(Gained::reader).transpose();
    let reader = reader.map_err(SessionError::from)?;
    Ok((doors.beside(reader), gained))
}

/// What runs of its session that go on at the same time are told: with what it begins with, which
/// is in the ledger by now.
fn gained(request: &Request<'_>, grant: &Grant) -> Result<Option<Gained>, CallError> {
    let Some(session) = &request.call.session else {
        return Ok(None);
    };
    let gained = Gained::open(request.state, session)?;
    gained.add(grant.labels().iter().map(String::as_str))?;
    Ok(Some(gained))
}

/// Who tells whether a token of the run is revoked, where it has some.
fn revoking<'a>(request: &Request<'a>) -> Option<IsRevoked<'a>> {
    let tokens = request.tokens?;
    Some(Box::new(move || tokens.is_revoked()))
}

/// Notes that a run was not carried out.
fn fail(request: &Request<'_>, record: RunRecord) -> Result<(), CallError> {
    note_end(request, record, RunState::Failed).map(drop)
}

/// Writes down what became of a run, or removes what there is of one of which
/// nothing is kept.
fn note_end(
    request: &Request<'_>,
    mut record: RunRecord,
    state: RunState,
) -> Result<RunRecord, CallError> {
    record.state = state;
    ranged::give_back(request.state, &record.run).map_err(PlaceError::GivenBack)?;
    if request.is_scratch() {
        remove_scratch(request.state, &record.run)?;
        record.state = RunState::Discarded;
        return Ok(record);
    }
    release_end(request.state, &record.run);
    let ended = |kept: &mut RunRecord| kept.clone_from(&record);
    Ok(update_run(
        request.state,
        &record.run,
        Durability::Buffered,
        ended,
    )?)
}

fn new_record(request: &Request<'_>, grant: &Grant) -> RunRecord {
    let call = request.call;
    let started = request
        .now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    RunRecord {
        v: RECORD_VERSION,
        run: call.run.clone(),
        command: call.command.clone(),
        workspace: call.workspace.clone(),
        directory: call.directory.clone(),
        profile: grant.boundary().profile.clone(),
        purposes: request.rules.narrowed(),
        mode: grant.boundary().workspace,
        base: None,
        layers: Vec::new(),
        started_at_ms: u64::try_from(started.as_millis()).unwrap_or(u64::MAX),
        state: RunState::Running,
        exit: None,
        ending: None,
        changes: None,
        attempts: 0,
        resumed_from: request.resume.map(|earlier| earlier.run.clone()),
    }
}

/// What else the closing event says.
fn closing(request: &Request<'_>, outcome: &Outcome, flows: &Flows) -> Value {
    let mut details =
        json!({ "exit": outcome.ending.exit_status(), "kept": !request.is_scratch() });
    if let (Some(details), Some(failure)) = (details.as_object_mut(), &flows.failure) {
        details.insert("network-failure".to_owned(), json!(failure));
    }
    if let (Some(details), Some(stopped)) = (details.as_object_mut(), &flows.stopped) {
        details.insert("stopped".to_owned(), json!(stopped));
    }
    details
}
