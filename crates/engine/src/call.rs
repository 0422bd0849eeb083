use std::cell::RefCell;
use std::collections::BTreeSet;

use atoll_ledger::{Armed, Durability, LedgerError, Refused, SessionError, SharedLabels};
use atoll_model::network::GivenUps;
use atoll_model::{Attempt, Mode, Outcome, Verdict};
use atoll_policy::{Grant, decide};
use atoll_sandbox::{
    Assembled, Attachment, LauncherReaper, Native, SandboxError, Starting, assemble, detect_groups,
};
use atoll_store::{
    RunError, RunRecord, RunState, create_run, create_scratch, release_end, remove_scratch,
    reserve_end, update_run,
};
use serde_json::{Value, json};

use crate::asking::Rereading;
use crate::describe::describe;
use crate::execs::Execs;
use crate::flows;
use crate::place::{Placed, place};
use crate::request::{Request, Tokens};
use crate::rooted::SYSTEM_LAYERS;
use crate::ssh::SshPlace;
use crate::supervision::{EgressInputs, FlowEvent, Flows, IsRevoked, Live, Outside};
use crate::trust::Trust;
use crate::{PlaceError, asking, given_up, kept, meanwhile, ranged, record};

/// The outcome of a call.
#[derive(Debug)]
pub struct CallOutcome<A> {
    /// The other end of the program's input and output, no longer in use.
    pub attachment: A,
    /// The outcome of the program.
    pub outcome: Outcome,
    /// The record of the run, as stored.
    pub record: RunRecord,
    /// Notices for the person.
    pub notices: Vec<String>,
    /// A summary of its connections.
    pub flows: Flows,
}

/// An error that ended a call early.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Policy refused it; the refusal is recorded.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The sandbox could not be made, or failed.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The ledger could not record the call.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The run's own files could not be made.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The labels that other runs of the session gain cannot be shared.
    #[error("what other runs of its session have touched cannot be told: {0}")]
    SharedLabels(#[from] SessionError),
    /// The run's layers could not be made.
    #[error(transparent)]
    Place(#[from] PlaceError),
}

/// Carries out a call: the main path. `attach` makes the other end of the program's input and
/// output, once it is certain that the program will run. The caller starts the launcher as
/// early as it can, since that takes as long as all the rest; until it is sent a grant's
/// description it does nothing.
///
/// The grant is prepared and its sandbox built while the call's record goes to disk; the
/// program starts only after that (see [`Assembled::start`]).
///
/// # Errors
/// [`CallError`]. In every case no sandbox is left, and the ledger records the failure.
pub fn call<A: Attachment>(
    request: &Request<'_>,
    starting: Starting,
    attach: impl FnOnce(&Grant) -> A,
) -> Result<CallOutcome<A>, CallError> {
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
            request.ledger.close(
                armed,
                &outcome,
                record::closing(&outcome, &flows, !request.is_scratch()),
            )?;
            drop(departing);
            Ok(CallOutcome {
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

/// The result of a run: its outcome, its record, notices, its connections, and the reaper of
/// its launcher.
type Ran = (
    Outcome,
    RunRecord,
    Vec<String>,
    Flows,
    Option<LauncherReaper>,
);

/// A call prepared up to the start of its program: the run's own files and its sandbox.
struct Prepared {
    record: RunRecord,
    placed: Placed,
    assembled: Assembled,
    /// The rights that its session has dropped before.
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
    let resumed = request.resume.map(|earlier| earlier.run.clone());
    let purposes = request.rules.narrowed();
    let mut record = record::begun(request.call, grant, purposes, resumed, request.now);
    if request.is_scratch() {
        create_scratch(request.state, &record.run)?;
    } else {
        create_run(request.state, &record)?;
    }
    let assembled = (|| {
        let given_up = given_up::before(request)?;
        let placed = place(request, grant, &mut record)?;
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
    /// Runs the program to its end, between arming and closing the ledger entry.
    fn run(
        self,
        request: &Request<'_>,
        armed: &mut Armed<Grant>,
        attachment: &mut dyn Attachment,
        (doors, gained): (EgressInputs, Option<SharedLabels>),
    ) -> Result<Ran, CallError> {
        let (record, mut placed, given_up) = (self.record, self.placed, self.given_up);
        let (assembled, run) = (self.assembled, record.run.clone());
        let unrecorded = RefCell::new(None);
        let noted = |recorded| note_recorded(&unrecorded, recorded);
        let ledger = request.ledger;
        let mut witness = |attempt: &Attempt| noted(ledger.record_attempt(&run, attempt).map(drop));
        let boundary = armed.grant().boundary().clone();
        let rereading = Rereading::new(request, &boundary);
        let labels = RefCell::new(armed.grant().labels().clone());
        let mut record_flow = |news: &[FlowEvent<'_>]| {
            let recorded = flows::record(ledger, &run, news, &rereading.versions());
            let gains = flows::labels(news).map(str::to_owned);
            labels.borrow_mut().extend(gains);
            noted(recorded.and_then(|()| flows::tell_beside(gained.as_ref(), news)))
        };
        let ssh = placed.ssh.as_mut().and_then(SshPlace::take_listener);
        let issue = |network: &_| Trust::issue_for(placed.trust.as_ref(), network);
        let execs = Execs {
            call: &|| request.call_now(),
            decide: &|call, labels, answer| rereading.exec(call, labels, answer),
            labels: &labels,
            ledger,
            noted: &noted,
            filter: request.filter,
            rights: boundary.terminal,
        };
        let live = Live {
            run: &run,
            has_network: request.facts.mode == Mode::Full,
            directory: &|| asking::directory(request.state),
            decide: &|port, already| rereading.publish(port, already),
            reload: &|only| rereading.reload(only),
            compare: &|| rereading.compare(),
            wider: &rereading,
            widening: request.widening,
            lives: request.call.lives,
            execs: &execs,
            owner: request.owner,
        };
        let mut outside = Outside::new(&boundary.network, &issue, &mut record_flow)
            .with(doors)
            .holding(revoking(request))
            .asked(Some(live))
            .having_given_up(given_up)
            .unattended(request.unattended)
            .handing(request.handover)
            .signing(request.signing.zip(ssh));
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
            Err(error) => return fail(request, record).and(Err(error)),
        };
        let (record, notices) = settle(request, record, &outcome, placed, labels.into_inner())?;
        Ok((outcome, record, notices, flows, departing))
    }

    /// Removes what was prepared for a call that goes no further.
    fn give_up(self, request: &Request<'_>) -> Result<(), CallError> {
        drop(self.assembled);
        fail(request, self.record)
    }
}

/// Keeps the first failure to record something. Returns whether there was none: what cannot be
/// recorded is not let go on.
fn note_recorded(
    unrecorded: &RefCell<Option<LedgerError>>,
    recorded: Result<(), LedgerError>,
) -> bool {
    let mut unrecorded = unrecorded.borrow_mut();
    if let Err(error) = recorded {
        unrecorded.get_or_insert(error);
    }
    unrecorded.is_none()
}

/// Records how a run ended, and settles its kept layers. Returns the record, and notices for
/// the person.
fn settle(
    request: &Request<'_>,
    mut record: RunRecord,
    outcome: &Outcome,
    placed: Placed,
    labels: BTreeSet<String>,
) -> Result<(RunRecord, Vec<String>), CallError> {
    record::note_outcome(&mut record, outcome);
    let mut notices = placed.notices;
    kept::settle(request, placed.kept, labels, &mut notices);
    notices.extend(meanwhile::notices(
        request.state,
        &record,
        outcome,
        request.host,
    ));
    let record = note_end(request, record, RunState::Kept)?;
    Ok((record, notices))
}

/// Describes for the ledger the basis of the verdict, and the tokens that the run holds.
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

/// Opens the egress inputs, and the labels shared with other runs of the session.
fn doors(
    request: &Request<'_>,
    grant: &Grant,
) -> Result<(EgressInputs, Option<SharedLabels>), CallError> {
    let empty = request.state.path().join("empty");
    let workspace = match request.call.served {
        // Its path is one in the sandbox.
        Some(_) => &empty,
        None => &request.call.workspace,
    };
    let doors = EgressInputs::open(
        &grant.boundary().network,
        grant.policies(),
        workspace,
        request.facts.environment,
    )?;
    let doors = doors.holding(request.tokens.map(Tokens::handed))?;
    let gained = gained(request, grant)?;
    let reader = gained.as_ref().map(SharedLabels::reader).transpose();
    let reader = reader.map_err(SessionError::from)?;
    Ok((doors.beside(reader), gained))
}

/// Opens the shared labels of the session, for runs of it that go on at the same time, and adds
/// those that this run begins with; the ledger has these by now.
fn gained(request: &Request<'_>, grant: &Grant) -> Result<Option<SharedLabels>, CallError> {
    let Some(session) = &request.call.session else {
        return Ok(None);
    };
    let gained = SharedLabels::open(request.state, session)?;
    gained.add(grant.labels().iter().map(String::as_str))?;
    Ok(Some(gained))
}

/// Returns the check for revoked tokens, if the run has tokens.
fn revoking<'a>(request: &Request<'a>) -> Option<IsRevoked<'a>> {
    let tokens = request.tokens?;
    Some(Box::new(move || tokens.is_revoked()))
}

/// Records that a run was not carried out.
fn fail(request: &Request<'_>, record: RunRecord) -> Result<(), CallError> {
    note_end(request, record, RunState::Failed).map(drop)
}

/// Writes the final record of a run, or removes the files of a scratch run.
fn note_end(
    request: &Request<'_>,
    mut record: RunRecord,
    state: RunState,
) -> Result<RunRecord, CallError> {
    record.state = state;
    ranged::give_back(request.state, &record.run).map_err(PlaceError::GivenBack)?;
    if request.is_scratch() {
        let upper = request.state.scratch_dir(&record.run).join("upper");
        let layers = request.state.scratch_dir(&record.run).join(SYSTEM_LAYERS);
        let kept = request.home.map_or(Ok(()), |home| {
            home.end_system(&layers, state == RunState::Failed)
                .and_then(|()| home.end(&upper, state == RunState::Failed))
        });
        remove_scratch(request.state, &record.run)?;
        kept.map_err(PlaceError::GivenBack)?;
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
