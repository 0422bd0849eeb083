//! The trust, data labels, dropped rights and logins of a run.

use std::collections::BTreeMap;

use atoll_engine::explain::past::Pasts;
use atoll_engine::failure::Failure;
use atoll_ledger::{Event, LABEL_GAINED, StateDir};
use atoll_model::RunId;
use atoll_model::network::GivenUps;
use serde_json::{Value, json};

use super::{Story, text};
use crate::answered;
use crate::render::{Report, Style};
use crate::token::shown_id;

/// Returns the rights a run had dropped in the end.
pub(super) fn given_up(
    state: &StateDir,
    (run, opened): (&RunId, Option<&Event>),
    events: &[Event],
) -> Result<GivenUps, Failure> {
    let mut pasts = match opened {
        Some(opened) => Pasts::before(state, opened)?,
        None => Pasts::default(),
    };
    events.iter().for_each(|event| pasts.take(event));
    Ok(pasts.of(run).given_up)
}

impl Story<'_> {
    /// Adds its level of trust, task and purpose, as far as they were stated.
    pub(super) fn tell_trust(&self, report: &mut Report) {
        let said = |member: &str| text(self.decision(member));
        if let (Some(level), Some(mode), Some(by)) =
            (said("trust"), said("trust-mode"), said("trust-by"))
        {
            report.line("trust", &format!("{level}, {mode} ({by})"));
        }
        if let Some(task) = said("task") {
            report.line("task", &task);
        }
        match (said("purpose"), said("purpose-policies")) {
            (Some(purpose), Some(by)) => {
                report.line("purpose", &format!("{purpose}, narrowed by {by}"));
            }
            (Some(purpose), None) => report.line("purpose", &purpose),
            (None, Some(by)) => report.line("purpose", &format!("narrowed by {by}")),
            (None, None) => {}
        }
    }

    /// Returns its labels in the end, each with its origin.
    fn labels(&self) -> BTreeMap<String, String> {
        let begun = self.decision("labels").and_then(Value::as_array);
        let begun = begun.into_iter().flatten().filter_map(Value::as_str);
        let mut all: BTreeMap<String, String> = begun
            .map(|label| (label.to_owned(), "from its beginning".to_owned()))
            .collect();
        for event in self.events.iter().filter(|one| one.kind == LABEL_GAINED) {
            let said = |member: &str| text(event.body.get(member)).unwrap_or_default();
            let from = all.entry(said("label"));
            let _ = from.or_insert_with(|| format!("by {}", said("by")));
        }
        all
    }

    /// Adds the tokens that it held, each by the id that `atoll token list` shows.
    fn tell_tokens(&self, report: &mut Report) {
        let held = self.decision("tokens").and_then(Value::as_array);
        for one in held.into_iter().flatten() {
            let Some(id) = text(one.pointer("/ids/0")) else {
                continue;
            };
            let id = shown_id(&id);
            let until = text(one.get("until")).map(|until| format!(", until {until}"));
            let until = until.unwrap_or_default();
            report.line("token", &format!("{id}{until} (atoll token list)"));
        }
    }

    /// Adds the time at which the first of its tokens expired while it went on.
    fn tell_token_end(&self, report: &mut Report) {
        let held = self.decision("tokens").and_then(Value::as_array);
        let held = held.into_iter().flatten();
        let first = held.filter_map(|one| text(one.get("until"))).min();
        let closed = self.event("run.closed").map(|event| event.time.as_str());
        // Both are of the same form, in UTC, one in whole seconds: the earlier one comes first.
        let is_over = |end: &String| {
            closed.is_some_and(|closed| end.trim_end_matches('Z') < closed.trim_end_matches('Z'))
        };
        if let Some(end) = first.filter(is_over) {
            let line = format!("network, by the end of its token at {end}");
            report.styled("given up", &line, Some(Style::Bad));
        }
    }

    pub(super) fn tell_touched(&self, report: &mut Report) {
        self.tell_tokens(report);
        for (label, from) in self.labels() {
            report.line("label", &format!("{label}, {from}"));
        }
        for given in self.given_up.iter() {
            report.styled("given up", &given.told(), Some(Style::Bad));
        }
        self.tell_token_end(report);
    }

    /// Adds the outcome of a login: what was kept where.
    pub(super) fn tell_login(&self, report: &mut Report) {
        let said = |member: &str| text(self.said("login.written", member));
        if let (Some(login), Some(file)) = (said("/login"), said("/file")) {
            let how = match self.said("login.written", "/replaced") {
                Some(Value::Bool(true)) => "in the place of the one that was there",
                Some(_) | None => "which was not there before",
            };
            let line = format!("the login {login} was written to {file}, {how}");
            report.styled("login", &line, Some(Style::Good));
        }
        let kept = self.events.iter().filter(|one| one.kind == "secret.set");
        let kept = kept.filter(|event| event.body.get("login").is_some());
        let mut kept = kept
            .filter_map(|event| text(event.body.get("name")))
            .peekable();
        if kept.peek().is_some() {
            let names: Vec<String> = kept.collect();
            let line = format!("its tokens were put into the vault: {}", names.join(", "));
            report.styled("login", &line, Some(Style::Good));
        }
    }

    /// Adds the reasons for its approval questions, each once.
    pub(super) fn tell_why_asked(&self, report: &mut Report) {
        for reason in answered::reasons(self.events.iter()) {
            report.line("asked", &reason);
        }
    }

    /// Returns the labels, dropped rights and questions as JSON.
    pub(super) fn touched_json(&self) -> [(&'static str, Value); 3] {
        let given = self
            .given_up
            .iter()
            .map(|one| json!({ "at": one.at_s, "what": one.what.to_string(), "why": one.why() }));
        [
            ("labels", json!(self.labels())),
            ("given-up", given.collect()),
            ("questions", answered::json(self.events.iter()).into()),
        ]
    }
}
