//! Approval requests between the egress process and the persons who answer: everything is
//! recorded before it takes effect.

use std::time::Instant;

use atoll_model::Escalate;
use atoll_model::network::{
    ASKED_SHORT_BYTES_MAX, ApprovalScope, AskedCall, CallDigest, FlowOrder, Scope,
};
use atoll_sandbox::{
    ApprovalNews, Decision, Declined, Pending, Second, Settled, SettledOf, Stopped, Who,
};

use super::live::Waits;
use super::{FlowEvent, Outside};
use crate::supervision::approvals::Step;
use crate::supervision::control::Answer;

/// The most times that a lasting approval is refused: each time is an event.
const REFUSED_ESCALATIONS_MAX: u32 = 1_000;

impl Outside<'_> {
    /// Opens an approval request for a call, or denies it in an unattended run.
    pub(super) fn ask_person(&mut self, id: u64, call: AskedCall) {
        let step = match self.is_unattended {
            true => self.approvals.refuse(id, &call),
            false => self.approvals.ask(id, call, Instant::now()),
        };
        self.carry_out(step);
    }

    /// Takes note that a call no longer waits.
    pub(super) fn leave(&mut self, id: u64) {
        let step = self.approvals.leave(id);
        self.carry_out(step);
    }

    /// Closes what has expired.
    pub(super) fn attend_approvals(&mut self) {
        let step = self.approvals.expire(Instant::now());
        self.carry_out(step);
    }

    pub(super) fn end_approvals(&mut self) {
        let step = self.approvals.end();
        self.carry_out(step);
    }

    /// Records the result of a step, then sends the answers. Returns whether it was recorded:
    /// otherwise nothing is sent, and the run ends.
    fn carry_out(&mut self, step: Step) -> bool {
        let news: Vec<FlowEvent<'_>> = step.news.iter().map(FlowEvent::Approval).collect();
        if !self.recorded(&news) {
            return false;
        }
        self.has_new_questions |= !step.news.is_empty();
        for (id, digest, consent) in step.said {
            let said = FlowOrder::Said {
                id,
                digest,
                consent,
            };
            self.tell(said, &[]);
        }
        true
    }

    /// Lists the open requests, with short texts, and the leases.
    pub(super) fn list_approvals(&self) -> Answer {
        let now = Instant::now();
        let mut pending = self.approvals.pending(now);
        pending.iter_mut().for_each(|one| shorten(&mut one.call));
        let mut leases = self.approvals.leases(now);
        leases.iter_mut().for_each(|one| shorten(&mut one.call));
        crate::supervision::control::approvals(pending, leases, self.waiting_port())
    }

    pub(super) fn show_approval(&self, approval: u32) -> Answer {
        let pending = self.approvals.pending(Instant::now());
        let is_it = |one: &Pending| one.approval == approval;
        match pending.into_iter().find(is_it) {
            Some(one) => Answer::Approval(Box::new(one)),
            None => declined(self.approvals.missing(approval)),
        }
    }

    /// Takes a person's decision.
    pub(super) fn decide(
        &mut self,
        about: (u32, CallDigest),
        decision: Decision,
        by: Who,
    ) -> Answer {
        if let Err(refused) = self.escalate(about.0, about.1, decision, by) {
            return refused;
        }
        let agreed = self.approvals.agreed(about.0);
        let agreed = agreed.map(|(call, first)| (Box::new(call.clone()), first.by));
        let decided = self.approvals.decide(about, decision, by, Instant::now());
        let granted = decided.as_ref().ok().and_then(granted);
        if let (Ok(_), Decision::Stop {}) = (&decided, decision) {
            // Before the program hears of it.
            let approval = Some(about.0);
            self.stop(Stopped { by, approval });
        }
        let answer = self.done(decided);
        if let (Some((call, first)), Answer::Done {}) = (agreed, &answer) {
            let approval = about.0;
            let of = SettledOf::Question {
                approval,
                call,
                granted,
            };
            self.waits_for(Waits::Settled(Box::new(Settled { first, by, of })));
        }
        answer
    }

    /// Has a lasting approval decided and recorded, unless it is void anyway.
    fn escalate(
        &mut self,
        approval: u32,
        digest: CallDigest,
        decision: Decision,
        by: Who,
    ) -> Result<(), Answer> {
        let (Decision::Grant { scope, .. }, Some(live)) = (decision, self.live) else {
            return Ok(());
        };
        let Some(seconds) = scope.lasts() else {
            return Ok(());
        };
        let now = Instant::now();
        let valid = self.approvals.check(approval, digest, decision, by, now);
        valid.map_err(declined)?;
        if self.refused_escalations >= REFUSED_ESCALATIONS_MAX {
            return Err(declined(
                "lasting approvals were refused too often".to_owned(),
            ));
        }
        let escalated = live.gate.escalate(Escalate {
            by: by.into(),
            approval,
            seconds,
        });
        self.recorded(&[]);
        escalated.map_err(|refused| {
            self.refused_escalations = self.refused_escalations.saturating_add(1);
            Answer::Refused(refused)
        })
    }

    pub(super) fn revoke(&mut self, approval: u32, by: Who) -> Answer {
        let revoked = self.approvals.revoke(approval, by);
        self.done(revoked)
    }

    fn done(&mut self, step: Result<Step, String>) -> Answer {
        let agreed = |step: &Step| {
            let mut news = step.news.iter();
            news.find_map(|one| match one {
                ApprovalNews::Agreed { approval, said, .. } => Some((*approval, said.by)),
                ApprovalNews::Asked { .. }
                | ApprovalNews::Granted { .. }
                | ApprovalNews::Denied { .. }
                | ApprovalNews::LeaseEnded { .. } => None,
            })
        };
        let first = step.as_ref().ok().and_then(agreed);
        match step.map(|step| self.carry_out(step)) {
            Ok(true) => {
                match first.and_then(|(approval, by)| self.waits_for_second(approval, by)) {
                    Some(second) => Answer::Agreed(second),
                    None => Answer::Done {},
                }
            }
            Ok(false) => declined("it cannot be recorded, and the run ends".to_owned()),
            Err(why) => declined(why),
        }
    }

    /// Queues the notice that a request waits for a second approval; returns who can give it.
    fn waits_for_second(&mut self, approval: u32, first: Who) -> Option<Second> {
        self.waits_for(Waits::Question(approval));
        self.approvals.widening().second(Some(first))
    }

    /// Stops the run: nothing is carried any more, and the program ends as soon as this is
    /// noticed. The egress process's end, which takes time, is not awaited first.
    pub(super) fn stop(&mut self, stopped: Stopped) -> Answer {
        self.flows.stopped.get_or_insert(stopped);
        self.kill_carrier();
        Answer::Done {}
    }
}

/// Returns the scope and breadth that a step has granted, if any.
fn granted(step: &Step) -> Option<(Scope, ApprovalScope)> {
    step.news.iter().find_map(|one| match one {
        ApprovalNews::Granted { scope, breadth, .. } => Some((*scope, *breadth)),
        ApprovalNews::Asked { .. }
        | ApprovalNews::Agreed { .. }
        | ApprovalNews::Denied { .. }
        | ApprovalNews::LeaseEnded { .. } => None,
    })
}

fn declined(why: String) -> Answer {
    Answer::Refused(Declined {
        why,
        advice: "atoll approvals list shows what is open".to_owned(),
    })
}

/// Shortens the texts of a call, so that many calls fit into an answer.
fn shorten(call: &mut AskedCall) {
    let cut = |text: &mut String| {
        if text.len() > ASKED_SHORT_BYTES_MAX {
            let ends = (0..=ASKED_SHORT_BYTES_MAX).rev();
            let end = ends.into_iter().find(|end| text.is_char_boundary(*end));
            text.truncate(end.unwrap_or(0));
            text.push('…');
        }
    };
    cut(&mut call.host);
    cut(&mut call.rule);
    if let Some(request) = &mut call.request {
        cut(&mut request.method);
        cut(&mut request.path);
        request.query.iter_mut().for_each(cut);
        // Where one question is shown they are shown.
        let headers = u32::try_from(request.telling_headers.len()).unwrap_or(u32::MAX);
        request.further_headers = request.further_headers.saturating_add(headers);
        request.telling_headers.clear();
        if let Some(body) = &mut request.body {
            cut(&mut body.beginning);
        }
    }
}
