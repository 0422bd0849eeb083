//! Change sets of calls: decided about, applied, and told.

use std::path::PathBuf;

use atoll_checkpoint::{Error as RowError, RowChange, apply_rows};
use atoll_engine::failure::Failure;
use atoll_engine::sandboxes::Sandbox;
use atoll_engine::shadow;
use atoll_engine::tools::Called;
use atoll_model::{Reason, RunId};
use serde_json::{Value, json};

use super::{Effect, NO_COPY, NO_STAGING, Ran, Shadowing, end_of};
use crate::answer::Answer;
use crate::database::{Copied, Database};
use crate::openapi::HttpRequest;
use crate::runner::Runner;
use crate::shadow::{ChangeSet, ShadowEnd, ShadowReport};
use crate::tool::{OfUpstream, Work};
use crate::upstream::calls::NoResult;

impl<R: Runner> Shadowing<'_, R> {
    /// Has a change set decided about, and applies it.
    pub(super) fn promote(&self, ran: Ran) -> Result<Called<Answer>, Failure> {
        let Ran {
            called,
            change,
            effect,
        } = ran;
        if change.is_empty() {
            if let Effect::Files(changes) = effect {
                changes.discard(&self.session.engine)?;
            }
            return Ok(self.ended(called, Some(change), ShadowEnd::Unchanged, None));
        }
        self.note("shadow.changed", &change, json!({ "facts": change.facts }))?;
        let agrees = |reasons: &[Reason]| self.agreed(&change, reasons);
        let mut kept = None;
        let applied = match effect {
            Effect::Files(mut changes) => {
                kept = Some(changes.run().clone());
                let applied = changes.apply(&self.session.engine, &agrees);
                applied.map(|()| called).map_err(|failure| end_of(&failure))
            }
            Effect::Rows(sandbox, rows) => {
                let decided = self.decided(&sandbox, &change, &agrees);
                let applied = decided.and_then(|()| self.apply_rows(&rows));
                applied.map(|()| called)
            }
            Effect::Request(request) => self.send_on(&change, &request, &agrees),
        };
        Ok(match applied {
            Ok(called) => self.ended(called, Some(change), ShadowEnd::Applied, None),
            Err(end) => self.ended(self.without(), Some(change), end, kept),
        })
    }

    /// Asks the person, if one can be asked.
    fn agreed(&self, change: &ChangeSet, reasons: &[Reason]) -> Result<(), Failure> {
        let asked = match self.begun.approver {
            Some(ask) => ask(change, reasons),
            None => Err("nobody can be asked here".to_owned()),
        };
        asked.map_err(|why| {
            let whys = reasons
                .iter()
                .map(|one| format!("{}: {}", one.what, one.why));
            let whys: Vec<String> = whys.collect();
            shadow::refused(&format!("{why} ({})", whys.join("; ")))
        })?;
        if self.begun.cancel.is_cancelled() {
            return Err(shadow::refused("its caller ended it"));
        }
        let rules: Vec<&str> = reasons.iter().map(|one| one.rule.as_str()).collect();
        self.note("shadow.agreed", change, json!({ "rules": rules }))
    }

    /// Has policies decide about what is no file's, and records that it is about to be applied.
    fn decided(
        &self,
        sandbox: &Sandbox,
        change: &ChangeSet,
        agrees: shadow::Agrees<'_>,
    ) -> Result<(), ShadowEnd> {
        let (facts, paths): (_, &[PathBuf]) = (&change.facts, &change.paths);
        shadow::decide(&self.session.engine, sandbox, facts, paths, agrees)
            .and_then(|()| self.note("shadow.applying", change, json!({})))
            .map_err(|failure| end_of(&failure))
    }

    fn apply_rows(&self, rows: &[RowChange]) -> Result<(), ShadowEnd> {
        let copied = match &self.begun.tool.work {
            Work::Upstream(upstream, _) => upstream.database().and_then(Database::copied),
            Work::Command(_) => None,
        };
        let Some(Copied { target, .. }) = copied else {
            return Err(ShadowEnd::Dropped(NO_COPY.to_owned()));
        };
        apply_rows(target, rows, self.begun.timeout).map_err(|error| match error {
            RowError::Undetermined(why) => ShadowEnd::Unknown(why),
            error => ShadowEnd::Dropped(error.to_string()),
        })
    }

    /// Sends the request to the service itself; its answer is that of the call.
    fn send_on(
        &self,
        change: &ChangeSet,
        request: &HttpRequest,
        agrees: shadow::Agrees<'_>,
    ) -> Result<Called<Answer>, ShadowEnd> {
        let Work::Upstream(upstream, OfUpstream::Operation(_, operation)) = &self.begun.tool.work
        else {
            return Err(ShadowEnd::Dropped(NO_STAGING.to_owned()));
        };
        let failed = |failure: Failure| end_of(&failure);
        let (sandbox, _) = self
            .session
            .runner
            .upstream(upstream, &self.begun.id)
            .map_err(failed)?;
        self.decided(&sandbox, change, agrees)?;
        let sent = self.send(upstream, &operation.id, request);
        let sent = match sent.map_err(failed)? {
            Err(NoResult::NotSent(why)) => return Err(ShadowEnd::Dropped(why)),
            Err(NoResult::Gone(why)) => return Err(ShadowEnd::Unknown(why)),
            Err(NoResult::TimedOut | NoResult::Cancelled) => {
                let why = "the service has not answered in time".to_owned();
                return Err(ShadowEnd::Unknown(why));
            }
            Ok(given) => given,
        };
        // Other than at staging, and nobody can tell what has become of it.
        if let Some(status) = sent.status.filter(|status| !(200..300).contains(status)) {
            let why = format!("the service itself has answered with status {status}");
            return Err(ShadowEnd::Unknown(why));
        }
        let run = sandbox.run();
        Ok(Answer::of_upstream(
            self.begun.tool,
            self.begun.number(),
            run,
            Ok(sent),
        ))
    }

    /// Records a step of a change set.
    fn note(&self, kind: &str, change: &ChangeSet, further: Value) -> Result<(), Failure> {
        let mut body = json!({ "digest": change.facts.digest });
        if let (Some(body), Value::Object(further)) = (body.as_object_mut(), further) {
            body.extend(further);
        }
        shadow::record(&self.session.engine, &self.begun.id, kind, body)
    }

    /// Records the end, and has the answer tell it.
    pub(super) fn ended(
        &self,
        mut called: Called<Answer>,
        change: Option<ChangeSet>,
        end: ShadowEnd,
        kept: Option<RunId>,
    ) -> Called<Answer> {
        let kind = match end {
            ShadowEnd::Applied => "shadow.applied",
            ShadowEnd::Unchanged => "shadow.unchanged",
            ShadowEnd::Unknown(_) => "shadow.unknown",
            ShadowEnd::Denied(_) | ShadowEnd::Dropped(_) => "shadow.dropped",
        };
        let digest = change.as_ref().map(|change| change.facts.digest.clone());
        let body = json!({ "digest": digest, "why": end.why() });
        let recorded = shadow::record(&self.session.engine, &self.begun.id, kind, body);
        let report = ShadowReport { change, end, kept };
        if let Err(failure) = recorded {
            // What has happened is told all the same.
            called.answer.told.push(failure.what);
        }
        Answer::with_shadow(called, report)
    }
}
