//! `atoll why`: the decision about a run, the rules behind it, its boundary, denials while it ran
//! and what would allow them, from the ledger's events.

mod attempts;
mod boundary;
mod failed;
mod limited;
mod published;
mod remedy;
mod served;
#[cfg(test)]
mod tests;
mod tools;
mod touched;
mod versions;
#[cfg(test)]
pub(crate) use tests::event;

use std::ffi::OsString;
use std::path::Path;

use atoll_engine::configuration::Places;
use atoll_engine::explain::asking::Asking;
use atoll_engine::explain::of_story;
use atoll_engine::failure::Failure;
use atoll_ledger::{Event, live_runs, read_host_text};
use atoll_model::network::GivenUps;
use atoll_model::{Ending, RunId};
use atoll_store::{RunState, load_run};
use serde_json::{Value, json};

use crate::answered;
use crate::arguments::WhyArguments;
use crate::conclusion::denials_not_seen;
use crate::finding;
use crate::output::Output;
use crate::policy::explain::Explained;
use crate::render::{self, Paint, Report, Style};
use crate::requested::of_line;
use crate::used;

/// The most denials that are listed of a run that goes on.
const DENIALS_SHOWN_MAX: usize = 64;

/// Tells a run's story from the ledger.
pub fn why(arguments: &WhyArguments, output: &Output) -> Result<u8, Failure> {
    if let Some(session) = &arguments.session {
        return crate::sessions::why(session, arguments.json, output);
    }
    let places = Places::read()?;
    let state = places.read_state()?;
    // The id of a tool's call begins with that of its session.
    let run = arguments.run.split("/tool/").next().unwrap_or_default();
    let run = finding::find_in_ledger(&state, run)?;
    let events = atoll_engine::events::events_of(&state, &run)?;
    if events.is_empty() {
        return Err(
            Failure::new(format!("the ledger knows nothing of run {run}"))
                .advise("atoll runs lists those that are kept"),
        );
    }
    if tools::are_of_tools(&events) {
        return Ok(tools::show(&run, &events, arguments.json, output));
    }
    let opened = events.iter().find(|event| event.kind == "run.opened");
    let session = opened.and_then(|event| text(event.body.get("session")));
    let session = session.map(
        |id| match atoll_engine::finding::sessions::find(&state, &id) {
            Ok(session) => session.name.to_string(),
            Err(_) => id,
        },
    );
    let refused = of_story(&state, &events, &of_line);
    let asked: Vec<Asking<'_>> = refused.iter().filter_map(|one| one.ask().ok()).collect();
    let story = Story {
        run: &run,
        events: &events,
        session,
        home: &places.home,
        configuration: &places.config,
        explained: asked.iter().map(Explained::of).collect(),
        is_alive: live_runs(&state).is_ok_and(|alive| alive.contains(&run)),
        state: load_run(&state, &run).ok().map(|record| record.state),
        given_up: touched::given_up(&state, (&run, opened), &events)?,
    };
    if arguments.json {
        output.json(&story.json());
    } else {
        output.result(&story.text(output.paint));
    }
    Ok(0)
}

/// The events of one run, in the order in which they were written.
struct Story<'a> {
    run: &'a RunId,
    events: &'a [Event],
    /// Its session's name, or its id if the ledger has no name.
    session: Option<String>,
    /// The home directory, shown as `~`.
    home: &'a Path,
    /// The configuration directory, with a person's profiles in `profiles`.
    configuration: &'a Path,
    /// The refusals by policies, evaluated again by the present ones.
    explained: Vec<Explained<'a>>,
    /// True if its Atoll runs.
    is_alive: bool,
    /// The state of its changes, where something of it is kept.
    state: Option<RunState>,
    /// The rights it had dropped in the end, including those its session had dropped before.
    given_up: GivenUps,
}

impl Story<'_> {
    fn event(&self, kind: &str) -> Option<&Event> {
        self.events.iter().rev().find(|event| event.kind == kind)
    }

    /// Returns the value at this pointer (RFC 6901) in the last event of this kind.
    fn said(&self, kind: &str, pointer: &str) -> Option<&Value> {
        self.event(kind)?.body.pointer(pointer)
    }

    fn decision(&self, member: &str) -> Option<&Value> {
        self.said("run.opened", "/decision")?.get(member)
    }

    fn profile(&self) -> String {
        text(self.decision("profile")).unwrap_or_else(|| "?".to_owned())
    }

    fn command(&self) -> Vec<OsString> {
        let words = self
            .said("run.opened", "/command")
            .and_then(Value::as_array);
        let words = words.into_iter().flatten();
        words.filter_map(read_host_text).collect()
    }

    fn ending(&self) -> Option<Ending> {
        serde_json::from_value(self.said("run.closed", "/ending")?.clone()).ok()
    }

    /// Returns the reasons of a denial; empty if it was allowed.
    fn reasons(&self) -> Vec<&Value> {
        let reasons = self
            .said("run.denied", "/reasons")
            .and_then(Value::as_array);
        reasons.into_iter().flatten().collect()
    }

    /// Describes the accesses Atoll saw denied while it ran.
    fn denied(&self) -> Vec<String> {
        let Some(seen) = self.said("denials.seen", "/denied") else {
            let refused = self.refused_so_far();
            let shown = refused.iter().take(DENIALS_SHOWN_MAX);
            return shown.map(|one| one.what.clone()).collect();
        };
        let denied = seen.as_array().into_iter().flatten();
        denied.filter_map(|line| text(Some(line))).collect()
    }

    /// Returns the number of accesses that Atoll saw denied.
    fn denied_count(&self) -> u64 {
        match self.said("denials.seen", "/count").and_then(Value::as_u64) {
            Some(count) => count,
            None => self.refused_so_far().len() as u64,
        }
    }

    /// Returns whether it may go on: nothing has recorded its end.
    fn has_no_end(&self) -> bool {
        let ends = ["run.closed", "run.failed", "run.interrupted", "run.denied"];
        ends.into_iter().all(|end| self.event(end).is_none())
    }

    /// Returns the alert that placeholders were sent towards origins their credentials are not for.
    fn alert(&self) -> Option<&'static str> {
        let is_alert =
            |one: &&Event| one.kind == "flow.refused" && one.body.get("credential").is_some();
        self.events.iter().find(is_alert).map(|_| {
            "the program tried to send a credential's placeholder where that credential is not \
             for; nothing was sent"
        })
    }

    /// Describes the verdict and the profile.
    fn decided(&self) -> String {
        let by = self.chosen();
        match text(self.said("run.opened", "/verdict")).as_deref() {
            Some("allow") => format!("allowed by {by}"),
            Some("ask") => format!("not without a person's yes, by {by}; nothing was started"),
            Some("deny") => format!("denied by {by}; nothing was started"),
            Some(_) | None => "unknown: its opening is not in the ledger".to_owned(),
        }
    }

    fn text(&self, paint: Paint) -> String {
        let mut report = Report::new(paint);
        report.title(
            &format!("Run {}", self.run),
            &atoll_engine::shell::command_line(&self.command()),
        );
        report.line("asked", &self.asked());
        if let Some(session) = &self.session {
            report.line(
                "session",
                &format!("{session} (atoll why --session {session})"),
            );
        }
        report.line("decided", &self.decided());
        self.tell_signed(&mut report);
        self.tell_trust(&mut report);
        self.tell_touched(&mut report);
        for reason in self.reasons() {
            self.tell_reason(reason, &mut report);
        }
        if self.event("run.denied").is_none() {
            for line in self.boundary() {
                report.line("boundary", &line);
            }
            self.tell_versions(&mut report);
            if let Some(asked) = answered::line(self.events.iter()) {
                report.line("asked", &asked);
                self.tell_why_asked(&mut report);
            }
            self.tell_published(&mut report);
            report.styled("outcome", &self.ended(), self.ended_style());
            self.tell_limited_execs(&mut report);
            for used in used::of_events(self.events) {
                report.line("used", &used);
            }
            self.tell_login(&mut report);
            if let Some(alert) = self.alert() {
                report.styled("alert", alert, Some(Style::Bad));
            }
            self.tell_attempts(&mut report);
            self.tell_denied(&mut report);
            self.tell_failed(&mut report);
        }
        for line in self.afterwards() {
            report.line("after", &line);
        }
        for command in self.remedies() {
            report.command("allow", &command);
        }
        self.tell_lines(&mut report);
        self.tell_policies(&mut report);
        if self.event("run.failed").is_some() {
            report.command("more", "atoll doctor");
        }
        report.command("more", &format!("atoll ledger show {}", self.run));
        report.command(
            "more",
            &format!("atoll profile show {}", self.profile_to_show()),
        );
        report.finish()
    }

    /// Adds the policies that refused something, as written, and the changes that would have
    /// allowed it.
    fn tell_policies(&self, report: &mut Report) {
        let told = self.explained.iter();
        let told: Vec<&Explained<'_>> = told.filter(|one| one.is_by_policy()).collect();
        for one in &told {
            one.tell(report);
        }
        if !told.is_empty() {
            report.command("more", &format!("atoll policy explain --run {}", self.run));
        }
    }

    fn asked(&self) -> String {
        let opened = self.event("run.opened");
        let when = opened.or_else(|| self.events.first());
        let when = when.map_or_else(String::new, |event| render::readable_time(&event.time));
        let name = text(self.said("run.opened", "/principal/name")).unwrap_or_default();
        let place = self
            .said("run.opened", "/directory")
            .and_then(read_host_text);
        let place = place.unwrap_or_default();
        format!("by {name} in {}, {when}", place.to_string_lossy())
    }

    /// Names the profile, and the layer that chose it.
    fn chosen(&self) -> String {
        let profile = self.profile();
        match text(self.decision("chosen-by")).as_deref() {
            Some("--profile") => format!("profile {profile} (--profile)"),
            Some("built in") => format!("profile {profile} (no other profile applies)"),
            Some(by) if by.contains("/atoll.toml:") => {
                format!("profile {profile} (the trusted project's file: {by})")
            }
            Some(by) if by.contains("/config.toml:") => {
                format!("profile {profile} (your configuration: {by})")
            }
            Some(by) => format!("profile {profile} (it is for this command: {by})"),
            None => format!("profile {profile}"),
        }
    }

    fn tell_reason(&self, reason: &Value, report: &mut Report) {
        let member = |name: &str| text(reason.get(name)).unwrap_or_default();
        let what = format!("{}: {}", member("what"), member("why"));
        report.styled("denied", &what, Some(Style::Bad));
        let rule = member("rule");
        report.line("rule", &format!("{rule} ({})", layer_of(&rule)));
        report.line("to do", &member("how_to_ask"));
    }

    fn ended(&self) -> String {
        if let Some(stopped) = answered::stopped_of_event(self.said("run.closed", "/details")) {
            return stopped;
        }
        if let Some(ending) = self.ending() {
            return render::describe_ending(ending);
        }
        let failed = |member: &str| text(self.said("run.failed", member));
        match (failed("/what"), failed("/why")) {
            (Some(what), Some(why)) => return format!("{what}: {why}"),
            (Some(what), None) => return what,
            (None, _) => {}
        }
        match text(self.said("run.interrupted", "/why")) {
            Some(why) => format!("interrupted: {why}"),
            None if self.is_alive => "not yet: it is running".to_owned(),
            None => "killed: Atoll ended before the program, and nobody saw its end".to_owned(),
        }
    }

    fn ended_style(&self) -> Option<Style> {
        match self.ending() {
            Some(Ending::Exited { status: 0 }) => Some(Style::Good),
            _ if self.event("run.failed").is_some() => Some(Style::Bad),
            Some(_) | None => None,
        }
    }

    fn tell_denied(&self, report: &mut Report) {
        let denied = self.denied();
        for line in &denied {
            report.styled("denied", line, Some(Style::Bad));
        }
        let more = self.denied_count().saturating_sub(denied.len() as u64);
        if more > 0 {
            report.line("denied", &format!("… and {} more", render::grouped(more)));
        }
        let seen = match (denied.is_empty(), self.has_no_end()) {
            (true, false) => "No denials recorded",
            (true, true) => "No denials recorded so far",
            (false, false) => "No further denials recorded",
            (false, true) => "No further denials recorded so far",
        };
        let unreported = match self.is_nesting() {
            true => "kernel refusals and attempts to get out are not reported",
            false => "kernel refusals are not reported",
        };
        report.line("denied", &format!("{seen} ({unreported})."));
    }

    /// Returns whether it could make sandboxes of its own: then no violation is reported.
    fn is_nesting(&self) -> bool {
        self.decision("nesting").and_then(Value::as_bool) == Some(true)
    }

    /// Describes later events of the run and its changes.
    fn afterwards(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.said("run.closed", "/details/kept") == Some(&Value::Bool(false)) {
            lines.push("nothing of it was kept (--discard)".to_owned());
        }
        let is_live = text(self.decision("workspace-mode")).as_deref() == Some("live");
        for event in self.events {
            let why = text(event.body.get("why")).unwrap_or_default();
            let what = match event.kind.as_str() {
                "apply.finished" if is_live => "taken back".to_owned(),
                "apply.finished" => "applied to the workspace".to_owned(),
                "apply.failed" => format!("could not be applied: {why}"),
                "apply.taken-back" => "an apply that was cut short was taken back".to_owned(),
                "undo.finished" => "taken back".to_owned(),
                "undo.taken-back" => "the undo was taken back".to_owned(),
                "run.discarded" => "discarded".to_owned(),
                "seal.shredded" => "its sealed content was shredded".to_owned(),
                "run.collected" => "removed by atoll gc".to_owned(),
                _ => continue,
            };
            let line = format!("{what}, {}", render::readable_time(&event.time));
            // An apply of several directories is one to a person.
            if lines.last() != Some(&line) {
                lines.push(line);
            }
        }
        if self.state == Some(RunState::PartlyApplied) {
            let run = self.run;
            lines.push(format!(
                "so far it is applied in part: atoll diff {run} shows what is left, atoll apply {run} \
                 --control applies control files too"
            ));
        }
        lines
    }

    fn json(&self) -> Value {
        let events: Vec<Value> = self
            .events
            .iter()
            .map(|event| json!({ "time": event.time, "type": event.kind, "body": event.body }))
            .collect();
        let mut told = json!({
            "run": self.run,
            "session": self.said("run.opened", "/session"),
            "command": self.said("run.opened", "/command"),
            "workspace": self.said("run.opened", "/workspace"),
            "verdict": self.said("run.opened", "/verdict"),
            "decision": self.said("run.opened", "/decision"),
            "reasons": self.reasons(),
            "ending": self.said("run.closed", "/ending"),
            "exit": self.said("run.closed", "/status"),
            "failed": self.event("run.failed").map(|event| &event.body),
            "limits-held-by": self.said("run.closed", "/enforcement"),
            "denied": self.denied(),
            "failed": self.failed().iter().map(|one| json!({ "what": one.what, "times": one.times })).collect::<Vec<_>>(),
            "attempts": self.attempts(),
            "hint": self.unreached_hint(),
            "published": self.published_json(),
            "denials-not-seen": denials_not_seen(self.is_nesting()),
            "allow": self.remedies(),
            "explained": self.explained.iter().map(Explained::told).collect::<Vec<_>>(),
            "allow-in-profile": self.profile_lines(),
            "show-by-profile": self.showing().map(|one| json!({ "file": one.file, "lines": one.lines })),
            "events": events,
        });
        if let Some(told) = told.as_object_mut() {
            let touched = self.touched_json().into_iter();
            told.extend(touched.map(|(member, value)| (member.to_owned(), value)));
        }
        told
    }
}

/// Names the layer of the policy a rule stands in.
fn layer_of(rule: &str) -> &'static str {
    let file = rule.rsplit_once(':').map_or(rule, |(file, _)| file);
    if rule == "built in" {
        "one of Atoll's own rules, which no profile changes"
    } else if rule.starts_with("--") {
        "the command line"
    } else if file.starts_with("preset/") {
        "rules that come with Atoll (--preset, or presets of a profile)"
    } else if file.starts_with("shipped/") {
        "a profile that comes with Atoll"
    } else if file.ends_with("/organisation.toml") {
        "the organisation's file, above all others"
    } else if file.ends_with("/atoll.toml") {
        "the project's file"
    } else {
        "your own configuration"
    }
}

fn text(value: Option<&Value>) -> Option<String> {
    value.and_then(Value::as_str).map(str::to_owned)
}
