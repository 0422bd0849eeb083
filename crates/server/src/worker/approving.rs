//! Sandboxes and execs that wait for an approver, where policies ask about them.

use std::sync::Mutex;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Instant;

use atoll_engine::sandboxes::{CallDigest, NeedsApproval, PriorAnswer};
use atoll_ledger::Asked;
use atoll_model::RunId;
use atoll_model::network::ASKING_PATIENCE;
use atoll_store::Role;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::answers::fault;
use super::answers::refusal;
use super::caller::Caller;
use super::server::Server;
use crate::protocol::{ApprovalFacts, Decide, DecideAsk, Kind, Refusal};

/// The first number of a question: those about connections count from 1 in each sandbox.
const FIRST: u32 = 1_000_001;

/// The longest question, bytes.
const SHOWN_BYTES_MAX: usize = 32 << 10;

/// The most questions of one tenant that wait.
const WAITING_MAX: usize = 16;

const NO: &str = "an approver has denied it";
const LATE: &str = "no approver has decided it in time";
const TOO_LONG: &str = "the request is longer than anybody reads";
const TOO_MANY: &str = "too many requests of the tenant wait for an approver already";

/// The advice where nobody has approved.
const ADVICE: &str = "a key of the role approver decides it while the request waits: GET \
     /v1/approvals lists it, POST /v1/sandboxes/ID/approvals/NUMBER grants or denies it";

/// The questions that wait.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// The number of questions so far.
    put: u32,
    open: Vec<Open>,
}

#[derive(Debug)]
struct Open {
    approval: u32,
    tenant: String,
    digest: CallDigest,
    question: Question,
    until: Instant,
    answer: oneshot::Sender<bool>,
}

/// A question to an approver.
#[derive(Clone, Debug)]
pub(super) struct Question {
    /// The action, as policies name it.
    pub(super) action: &'static str,
    /// The sandbox, by its name to callers.
    pub(super) sandbox: String,
    /// Its run, if there is one yet.
    pub(super) run: Option<RunId>,
    /// The name of whoever asks, if a key tells it.
    pub(super) caller: Option<String>,
    /// All that the approver is shown of the request.
    pub(super) shown: Value,
    /// The reasons for which policies ask.
    pub(super) asked: NeedsApproval,
}

impl Question {
    fn call(&self) -> Value {
        let reasons = self.asked.reasons.iter();
        let reason = |one: &atoll_model::Reason| json!({ "what": one.what, "why": one.why, "rule": one.rule });
        json!({
            "action": self.action,
            "agreement": self.asked.agreement,
            "caller": self.caller,
            "reasons": reasons.map(reason).collect::<Vec<_>>(),
            "request": self.shown,
        })
    }

    /// Returns the body of an event about it.
    fn event(&self, approval: u32, digest: CallDigest, further: Value) -> Value {
        let mut body = json!({
            "action": self.action,
            "approval": approval,
            "digest": digest.to_string(),
            "sandbox": self.sandbox,
        });
        if let (Some(body), Value::Object(further)) = (body.as_object_mut(), further) {
            body.extend(further);
        }
        body
    }
}

/// Returns whether a number is one of these questions.
pub(super) fn is_one(approval: u32) -> bool {
    approval >= FIRST
}

/// Says how to get an approval, where the refusal is for want of one.
pub(super) fn advised(answer: &PriorAnswer, refusal: Refusal) -> Refusal {
    match answer {
        PriorAnswer::Denied(_) => refusal.advise(ADVICE),
        PriorAnswer::Nobody | PriorAnswer::Agreed(_) => refusal,
    }
}

/// The questions that wait for approvers.
pub(super) struct Approvals {
    pub(super) server: Arc<Server>,
    pub(super) questions: Mutex<Questions>,
}

impl Approvals {
    fn questions(&self) -> MutexGuard<'_, Questions> {
        self.questions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a question to the tenant's approvers, and waits for the answer: without one in time it
    /// is a denial.
    pub(super) async fn ask_approver(
        self: &Arc<Self>,
        tenant: &str,
        question: Question,
    ) -> Result<PriorAnswer, Refusal> {
        let text = serde_json::to_vec(&question.call()).map_err(|error| fault(&error))?;
        if text.len() > SHOWN_BYTES_MAX {
            return Ok(PriorAnswer::Denied(TOO_LONG));
        }
        let digest = CallDigest::new(Sha256::digest(text).into());
        let agreement = question.asked.agreement.clone();
        let Some((approval, answer)) = self.put(tenant, digest, &question) else {
            return Ok(PriorAnswer::Denied(TOO_MANY));
        };
        let first = question.asked.reasons.first();
        let further = json!({
            "agreement": question.asked.agreement,
            "caller": question.caller,
            "rule": first.map(|one| one.rule.clone()),
            "what": first.map(|one| one.what.clone()),
        });
        let asked = question.event(approval, digest, further);
        let recorded = self.record(&question, Asked::Put, asked).await;
        if let Err(refusal) = recorded {
            let _ = self.taken(|one| one.approval == approval);
            return Err(refusal);
        }
        let mut answer = answer;
        let answered = match timeout(ASKING_PATIENCE, &mut answer).await {
            Ok(answered) => answered,
            Err(_) if self.taken(|one| one.approval == approval).is_some() => {
                let late = question.event(approval, digest, json!({ "why": "late" }));
                self.record(&question, Asked::Denied, late).await?;
                return Ok(PriorAnswer::Denied(LATE));
            }
            // Its decision is about to be recorded.
            Err(_) => answer.await,
        };
        Ok(match answered {
            Ok(true) => PriorAnswer::Agreed(agreement),
            Ok(false) => PriorAnswer::Denied(NO),
            // A decision that is not recorded is none.
            Err(_) => PriorAnswer::Denied(LATE),
        })
    }

    /// Puts a question on the list; `None` where too many of the tenant wait.
    fn put(
        &self,
        tenant: &str,
        digest: CallDigest,
        question: &Question,
    ) -> Option<(u32, oneshot::Receiver<bool>)> {
        let mut questions = self.questions();
        let own = questions.open.iter().filter(|one| one.tenant == tenant);
        if own.count() >= WAITING_MAX {
            return None;
        }
        let approval = FIRST.checked_add(questions.put)?;
        questions.put += 1;
        let (answer, answered) = oneshot::channel();
        questions.open.push(Open {
            approval,
            tenant: tenant.to_owned(),
            digest,
            question: question.clone(),
            until: Instant::now() + ASKING_PATIENCE,
            answer,
        });
        Some((approval, answered))
    }

    fn taken(&self, is_it: impl Fn(&Open) -> bool) -> Option<Open> {
        let mut questions = self.questions();
        let at = questions.open.iter().position(is_it)?;
        Some(questions.open.swap_remove(at))
    }

    /// Returns the questions of a tenant that wait, the oldest first.
    pub(super) fn waiting_questions(&self, tenant: &str) -> Vec<ApprovalFacts> {
        let questions = self.questions();
        let own = questions.open.iter().filter(|one| one.tenant == tenant);
        let now = Instant::now();
        let facts = |one: &Open| ApprovalFacts {
            sandbox: one.question.sandbox.clone(),
            approval: one.approval,
            digest: one.digest.to_string(),
            call: one.question.call(),
            waiting: 1,
            left_s: one.until.saturating_duration_since(now).as_secs(),
        };
        let mut all: Vec<ApprovalFacts> = own.map(facts).collect();
        all.sort_by_key(|one| one.approval);
        all
    }

    /// Decides a question, recorded with the approver's name first.
    pub(super) async fn decide_question(
        self: &Arc<Self>,
        caller: &Caller,
        sandbox: &str,
        ask: &Decide,
    ) -> Result<(), Refusal> {
        // Who makes a request does not approve it.
        if !matches!(caller.role, Role::Administrator | Role::Approver) {
            let what = format!("a key of the role {} may not", caller.role.name());
            return Err(Refusal::new(Kind::Forbidden, what)
                .advise("an administrator makes keys of other roles"));
        }
        let approval = ask.approval;
        let DecideAsk {
            digest,
            grant,
            lasting,
        } = &ask.decision;
        let none = || Refusal::new(Kind::NotFound, "nothing of this number waits any more");
        let is_own = |one: &Open| {
            one.approval == approval
                && one.tenant == caller.tenant
                && one.question.sandbox == sandbox
        };
        let found = self
            .questions()
            .open
            .iter()
            .find(|one| is_own(one))
            .map(|one| one.digest);
        let found = found.ok_or_else(none)?;
        if found.to_string() != *digest {
            let what = "the digest is of something else than what waits";
            return Err(Refusal::new(Kind::Invalid, what).advise("take it from the list"));
        }
        if *grant && *lasting {
            let what = "a sandbox or an exec is approved once";
            return Err(Refusal::new(Kind::Invalid, what).advise("leave lasting out"));
        }
        // Of two decisions the first counts.
        let open = self.taken(is_own).ok_or_else(none)?;
        let said = json!({ "caller": caller.name, "trace": caller.trace });
        let how = match grant {
            true => json!({ "for": "once", "by": said }),
            false => json!({ "why": "person", "by": said }),
        };
        let step = match grant {
            true => Asked::Granted,
            false => Asked::Denied,
        };
        let event = open.question.event(approval, open.digest, how);
        self.record(&open.question, step, event).await?;
        // Whoever has asked may be gone.
        let _ = open.answer.send(*grant);
        Ok(())
    }

    async fn record(
        self: &Arc<Self>,
        question: &Question,
        step: Asked,
        body: Value,
    ) -> Result<(), Refusal> {
        let (own, run) = (Arc::clone(self), question.run.clone());
        let recorded =
            spawn_blocking(move || own.server.engine.record_question(run.as_ref(), step, &body));
        let recorded = recorded.await.map_err(|error| fault(&error))?;
        recorded.map_err(|failure| refusal(&failure))
    }
}
