//! The effect of a call that makes a sandbox: its files and its program, supervised to the end.

use std::cell::RefCell;
use std::collections::BTreeSet;

use atoll_ledger::{Armed, Durability, LedgerError, SessionError, SharedLabels};
use atoll_model::network::GivenUps;
use atoll_model::{Attempt, Mode, Outcome, Verdict};
use atoll_policy::{Grant, agreement};
use atoll_sandbox::{
    Assembled, Attachment, LauncherReaper, Native, SandboxError, Starting, assemble, detect_groups,
};
use atoll_store::{
    RunRecord, RunState, create_run, create_scratch, end_without_outputs, release_end,
    remove_scratch, reserve_end, update_run,
};
use serde_json::{Value, json};

use crate::asking::{Acts, Rereading};
use crate::call::{CallError, Effect, Gate, NeedsApproval, carry_out};
use crate::describe::describe;
use crate::execs::Execs;
use crate::place::{Placed, place, run_dir};
use crate::request::{Request, Tokens};
use crate::rooted::SYSTEM_LAYERS;
use crate::ssh::SshPlace;
use crate::supervision::{EgressInputs, FlowEvent, Flows, IsRevoked, Live, Outside};
use crate::trust::Trust;
use crate::{
    PlaceError, asking, flows, given_up, inputs, kept, meanwhile, outputs, ranged, record,
};

/// The outcome of a call that makes a sandbox.
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
    /// The number of its outputs, which are artifacts now.
    pub artifacts: u64,
}

/// Makes a sandbox, and supervises it to its end. `attach` makes the other end of the program's
/// input and output, once it is certain that the program will run. The caller starts the launcher
/// as early as it can, since that takes as long as all the rest; until it is sent a grant's
/// description it does nothing.
///
/// The grant is prepared and its sandbox built while the call's record goes to disk; the program
/// starts only after that (see [`Assembled::start`](atoll_sandbox::Assembled::start)).
///
/// # Errors
/// [`CallError`]. In every case no sandbox is left, and the ledger records the failure.
pub fn call<A: Attachment>(
    request: &Request<'_>,
    starting: Starting,
    attach: impl FnOnce(&Grant) -> A,
) -> Result<CallOutcome<A>, CallError> {
    let gate = Gate {
        rules: request.rules,
        facts: request.facts,
        ledger: request.ledger,
    };
    carry_out(&gate, request.call, Run::new(request, starting, attach))
}

/// A sandbox on its way: with its program, or until it is ended.
pub(crate) struct Run<'r, 'a, F> {
    request: &'r Request<'a>,
    /// The launcher, until it is sent a grant's description.
    starting: Option<Starting>,
    /// Makes the other end of the program's input and output.
    attach: Option<F>,
    prepared: Option<Result<Guarded<'r, 'a>, CallError>>,
}

impl<'r, 'a, F> Run<'r, 'a, F> {
    pub(crate) fn new(request: &'r Request<'a>, starting: Starting, attach: F) -> Self {
        Self {
            request,
            starting: Some(starting),
            attach: Some(attach),
            prepared: None,
        }
    }

    /// Makes the run's own files and has its sandbox built.
    fn build(&mut self, grant: &Grant) -> Result<Guarded<'r, 'a>, CallError> {
        let starting = self.starting.take().ok_or(SandboxError::AnotherCall)?;
        let prepared = prepare(self.request, starting, grant)?;
        Ok(Guarded {
            request: self.request,
            prepared: Some(prepared),
        })
    }

    /// Runs the program to its end.
    fn ran<A: Attachment>(&mut self, armed: &mut Armed<Grant>) -> Result<(Ran, A), CallError>
    where
        F: FnOnce(&Grant) -> A,
    {
        let prepared = match self.prepared.take() {
            Some(prepared) => prepared,
            None => self.build(armed.grant()),
        }?;
        let doors = doors(self.request, armed.grant())?;
        let attach = self.attach.take().ok_or(SandboxError::AnotherCall)?;
        let mut attachment = attach(armed.grant());
        let ran = prepared.run(armed, &mut attachment, doors)?;
        Ok((ran, attachment))
    }
}

impl<A: Attachment, F: FnOnce(&Grant) -> A> Effect for Run<'_, '_, F> {
    type Grant = Grant;
    type Done = CallOutcome<A>;
    type Error = CallError;

    fn consider(&mut self, verdict: &Verdict<Grant>) -> Result<(), CallError> {
        let (rules, call) = (self.request.rules, self.request.call);
        match verdict {
            Verdict::Ask(reasons) if self.request.asks_caller => {
                Err(CallError::NeedsApproval(NeedsApproval {
                    agreement: agreement(rules, call, reasons),
                    reasons: reasons.clone(),
                }))
            }
            Verdict::Allow(_) | Verdict::Ask(_) | Verdict::Deny(_) => Ok(()),
        }
    }

    fn told(&self, verdict: &Verdict<Grant>) -> Value {
        told(self.request, verdict)
    }

    fn prepare(&mut self, grant: &Grant) {
        // Going on in another run's layers takes them from it: not before the record.
        if self.request.resume.is_none() {
            self.prepared = Some(self.build(grant));
        }
    }

    fn carry_out(mut self, mut armed: Armed<Grant>) -> Result<CallOutcome<A>, CallError> {
        let (ledger, is_kept) = (self.request.ledger, !self.request.is_scratch());
        match self.ran(&mut armed) {
            Ok((ran, attachment)) => {
                let details = record::closing(&ran.outcome, &ran.flows, is_kept);
                ledger.close(armed, &ran.outcome, details)?;
                drop(ran.departing);
                Ok(CallOutcome {
                    attachment,
                    outcome: ran.outcome,
                    record: ran.record,
                    notices: ran.notices,
                    flows: ran.flows,
                    artifacts: ran.artifacts,
                })
            }
            Err(error) => {
                let what = "the run did not come to its end";
                ledger.close_failed(armed, what, &error.to_string())?;
                Err(error)
            }
        }
    }
}

/// A run that came to its end.
struct Ran {
    outcome: Outcome,
    record: RunRecord,
    notices: Vec<String>,
    flows: Flows,
    /// The number of its outputs, which are artifacts.
    artifacts: u64,
    /// The reaper of its launcher.
    departing: Option<LauncherReaper>,
}

/// A prepared call, removed again where the call goes no further.
struct Guarded<'r, 'a> {
    request: &'r Request<'a>,
    prepared: Option<Prepared>,
}

impl Guarded<'_, '_> {
    fn run(
        mut self,
        armed: &mut Armed<Grant>,
        attachment: &mut dyn Attachment,
        doors: Doors,
    ) -> Result<Ran, CallError> {
        let prepared = self.prepared.take().ok_or(SandboxError::AnotherCall)?;
        prepared.run(self.request, armed, attachment, doors)
    }
}

impl Drop for Guarded<'_, '_> {
    fn drop(&mut self) {
        if let Some(Prepared {
            assembled, record, ..
        }) = self.prepared.take()
        {
            drop(assembled);
            // The refusal is what counts; what is left is found interrupted.
            let _ = fail(self.request, record);
        }
    }
}

/// The egress inputs, and the labels shared with other runs of the session.
type Doors = (EgressInputs, Option<SharedLabels>);

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
    let mut record = record::begun(request.call, grant, purposes, resumed, request.now());
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
        (doors, gained): Doors,
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
            rereading: &rereading,
            labels: &labels,
            ledger,
            noted: &noted,
            filter: request.filter,
            rights: boundary.terminal,
        };
        let acts = Acts::new(&rereading, &noted);
        let live = Live {
            run: &run,
            has_network: request.facts.mode == Mode::Full,
            directory: &|| asking::directory(request.state),
            gate: &acts,
            widening: request.widening,
            assign: &|served| {
                rereading.assign(served);
                outputs::assigned(request.state, &boundary, &rereading.call());
            },
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
        inputs::record(ledger, &run, &placed.inputs)?;
        let running = assembled.start(armed);
        let attended = running.and_then(|it| it.attend(attachment, &mut witness, &mut outside));
        armed.note_ending();
        let flows = outside.finish();
        let attended = match unrecorded.into_inner() {
            Some(error) => Err(error.into()),
            None => attended.map_err(CallError::from),
        };
        let call = rereading.call();
        let is_interrupted = is_interrupted(request, &attended);
        let place = outputs::Outputs::of(request, &call, is_interrupted);
        let artifacts = place.put_away(armed.grant(), &mut placed.notices);
        let (labels, ran) = (labels.into_inner(), Ended { attended, flows });
        ended(request, record, ran, placed, labels, artifacts)
    }
}

/// Returns whether a program was ended in the middle of its work. A sandbox that lives is ended by whoever
/// holds it, and comes to its end so.
fn is_interrupted<L>(request: &Request<'_>, attended: &Result<(Outcome, L), CallError>) -> bool {
    attended.as_ref().map_or(true, |(outcome, _)| {
        request.owner.is_none() && outcome.ending.is_cut_off()
    })
}

/// The end of a run's program, and a summary of its connections.
struct Ended {
    attended: Result<(Outcome, Option<LauncherReaper>), CallError>,
    flows: Flows,
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

/// Records how a run ended, and settles its kept layers.
fn ended(
    request: &Request<'_>,
    mut record: RunRecord,
    ended: Ended,
    placed: Placed,
    labels: BTreeSet<String>,
    artifacts: u64,
) -> Result<Ran, CallError> {
    let (outcome, departing) = match ended.attended {
        Ok(attended) => attended,
        Err(error) => return fail(request, record).and(Err(error)),
    };
    record::note_outcome(&mut record, &outcome);
    let mut notices = placed.notices;
    kept::settle(request, placed.kept, labels, &mut notices);
    let meanwhile = meanwhile::notices(request.state, &record, &outcome, request.host);
    notices.extend(meanwhile);
    Ok(Ran {
        record: note_end(request, record, RunState::Kept)?,
        outcome,
        notices,
        flows: ended.flows,
        artifacts,
        departing,
    })
}

/// Describes for the ledger the basis of the verdict, and the tokens that the run holds.
fn told(request: &Request<'_>, verdict: &Verdict<Grant>) -> Value {
    let mut decision = describe(request.rules, verdict);
    if let Some(members) = decision.as_object_mut() {
        let tokens = request.tokens.map(|tokens| tokens.told());
        members.extend(tokens.map(|tokens| ("tokens".to_owned(), tokens)));
        let earlier = request.resume.map(|earlier| json!(earlier.run));
        members.extend(earlier.map(|run| ("resumed".to_owned(), run)));
        let begun = request.begins_with.map(|copies| json!(copies.of.run));
        members.extend(begun.map(|run| ("begins-with".to_owned(), run)));
    }
    decision
}

/// Opens the egress inputs, and the labels shared with other runs of the session.
fn doors(request: &Request<'_>, grant: &Grant) -> Result<Doors, CallError> {
    let empty = request.state.path().join("empty");
    let workspace = match request.call.served() {
        // Its path is one in the sandbox.
        Some(_) => empty.as_path(),
        None => request.call.workspace(),
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
    if state == RunState::Failed {
        end_without_outputs(request.state, &record.run);
    }
    ranged::give_back(request.state, &record.run).map_err(PlaceError::GivenBack)?;
    inputs::remove(&run_dir(request));
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
