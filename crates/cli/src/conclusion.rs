//! The end of `atoll run`: the changes, the decision about them, the summary.

mod by_checks;
mod json_file;
mod outcome_json;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;

use atoll_engine::changes::bulk;
use atoll_engine::configuration::Places;
use atoll_engine::decision::{Afterwards, Decision, Work, live};
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::printable::printable;
use atoll_engine::supervision::Flows;
use atoll_engine::{
    CallOutcome, Request, changes, hidden, learning, loopback, not_started, remedies,
};
use atoll_ledger::{Event, Ledger, StateDir};
use atoll_model::network::Meant;
use atoll_model::{Ending, LimitKey, Mode, Outcome, RunId};
use atoll_policy::{Credential, Rules, outputs_rule};
use atoll_store::{RunRecord, RunState};
use serde_json::json;

pub use json_file::{open_json, tell_failure, write_told};
use outcome_json::as_json;

use crate::answered;
use crate::arguments::RunArguments;
use crate::artifacts::put_away;
use crate::console::Console;
use crate::denied::{cut_output, denied};
use crate::escape::Copied;
use crate::output::{Output, json_text};
use crate::planted::{planted, planted_warning};
use crate::question;
use crate::reached::{alert, signed, traffic, unreached};
use crate::render::{self, Denied};
use crate::renewed;
use crate::status::STATUS_OWN_ERROR;
use crate::used;

/// Returns whether nothing of the run is kept, and nobody asks what it changed. A fenced run is
/// never scratch: it has a checkpoint to roll back to.
pub fn is_scratch(arguments: &RunArguments, mode: Mode) -> bool {
    let is_layer = mode == Mode::Full && !arguments.live;
    let is_looked_at = arguments.json.is_some() || arguments.login.is_some();
    arguments.discard && !is_looked_at && is_layer
}

/// The context for concluding a run.
pub struct Conclusion<'a> {
    /// The command line of the run.
    pub arguments: &'a RunArguments,
    /// The mode that contained the program.
    pub mode: Mode,
    /// The rules that applied to it.
    pub rules: &'a Rules,
    /// The directory in which runs are kept.
    pub state: &'a StateDir,
    /// The ledger in which decisions are recorded.
    pub ledger: &'a Ledger,
    /// The output for people.
    pub output: &'a Output,
    /// The output for machines.
    pub json: Option<&'a File>,
    /// The limits set by a file or an option.
    pub asked_for: Vec<LimitKey>,
    /// The credentials that the run went without.
    pub absent: Vec<&'a Credential>,
}

/// The kinds of denial that no list covers, since the kernel does not report them. The last,
/// attempts, is among them only with nesting.
const DENIALS_NOT_SEEN: [&str; 4] = ["network", "files", "other-system-calls", "attempts"];
const UNREAD: &str = "what a person was asked cannot be read from the ledger";
/// The most denials that a ledger entry names; the rest are counted there.
const DENIALS_RECORDED_MAX: usize = 64;

/// Returns the kinds of denial that the list of a run does not cover, with nesting or without.
#[must_use]
pub fn denials_not_seen(nesting: bool) -> &'static [&'static str] {
    let [always @ .., _] = &DENIALS_NOT_SEEN;
    if nesting { &DENIALS_NOT_SEEN } else { always }
}

/// The result of a run.
struct Went {
    outcome: Outcome,
    /// The denials that Atoll itself has observed. Attempts that the kernel refused are not
    /// observed, so an empty list does not mean that there were none.
    denied: Vec<Denied>,
    /// The number of these that are files which will not be applied.
    refused_files: u64,
    /// The control files that are in the workspace already.
    planted: Vec<Vec<u8>>,
    groups: changes::Changes,
    removed_sequences: BTreeMap<&'static str, u64>,
    copied: Copied,
    /// The outcome of its connections.
    flows: Flows,
    /// The rules that would allow what `--learn` let pass.
    learnt: Option<Vec<Meant>>,
    /// The questions put to a person, and their answers.
    approvals: Vec<serde_json::Value>,
    /// The number of its outputs, which are artifacts now.
    artifacts: u64,
}

impl<'a> Conclusion<'a> {
    /// Returns the context for concluding the run of this request.
    pub fn of(
        arguments: &'a RunArguments,
        request: &Request<'a>,
        json: Option<&'a File>,
        output: &'a Output,
    ) -> Self {
        Self {
            arguments,
            mode: request.facts.mode,
            rules: request.rules,
            state: request.state,
            ledger: request.ledger,
            output,
            json,
            asked_for: request.rules.limits_asked_for(),
            absent: request.rules.absent(request.facts.placeholders),
        }
    }
}

impl Conclusion<'_> {
    /// Reads the changes, has them decided about, and reports the run. Returns the exit status.
    ///
    /// # Errors
    /// When the changes cannot be read or cannot be applied.
    pub fn draw(&self, called: CallOutcome<Console>) -> Result<u8, Failure> {
        let CallOutcome {
            attachment,
            outcome,
            mut record,
            flows,
            notices,
            artifacts,
            ..
        } = called;
        let mut cut = attachment.cut().map(cut_output).collect();
        let (removed_sequences, copied) = attachment.finish();
        for notice in notices.iter().filter(|_| !self.arguments.quiet) {
            self.output.warn(&notice.to_string());
        }
        let all = if is_scratch(self.arguments, self.mode) {
            // Gone already: nobody looks at what is thrown away.
            Vec::new()
        } else {
            changes::read(self.state, &record)?
        };
        live::note_end(self.state, &record, &all, self.output);
        let mut denied = denied(&outcome, &all);
        denied.append(&mut cut);
        denied.extend(flows.refused.iter().map(unreached));
        let asked = self.asked(&record)?;
        denied.extend(answered::given_up(asked.iter()));
        let went = Went {
            denied,
            refused_files: changes::refusals(&all).count() as u64,
            planted: planted(&record, &all),
            outcome,
            groups: changes::commits::with_commits(&all),
            removed_sequences,
            copied,
            flows,
            learnt: self.learnt(&record)?,
            approvals: answered::json(asked.iter()),
            artifacts,
        };
        self.record_seen(&record, &went)?;
        let checked = self.by_checks(&record, &went, &all);
        let asks = checked.is_none() && self.asks(&went, &all);
        let decision = if let Some(checked) = &checked {
            by_checks::decision(checked)
        } else if asks {
            self.output
                .say(&self.summary(&record, &went, Afterwards::Undecided));
            // Whoever decides has to know.
            self.tell_alert(&went);
            question::ask(&record, &all, &went.groups, self.output)?
        } else {
            self.decided(went.outcome.ending)
        };
        let (afterwards, left) =
            self.carry_out(decision, checked, &mut record, &all, &went.groups)?;
        let told = if asks {
            question::said(self.output, &record, afterwards)
        } else {
            self.summary(&record, &went, afterwards)
        };
        self.tell_decided(asks, [told, left, self.outputs(&record.run, artifacts)]);
        self.tell_more(&record, &went, asks);
        self.tell_machines(&record, &went)?;
        let status = went.outcome.ending.exit_status();
        let is_open = record.state != RunState::Applied && went.groups.total() > 0;
        Ok(if status == 0 && self.arguments.apply && is_open {
            STATUS_OWN_ERROR
        } else {
            status
        })
    }

    /// Has outputs meet their rule, and returns the lines about them.
    fn outputs(&self, run: &RunId, count: u64) -> String {
        put_away(run, count, outputs_rule(self.rules), self.output)
    }

    /// Tells what became of a run's changes and outputs.
    fn tell_decided(&self, asks: bool, texts: [String; 3]) {
        let texts = texts.iter().filter(|_| asks || !self.arguments.quiet);
        texts.for_each(|text| self.output.say(text));
    }

    /// Returns the events of a run's questions to a person; none where its rules cannot ask.
    fn asked(&self, record: &RunRecord) -> Result<Vec<Event>, Failure> {
        if !self.rules.may_ask() {
            return Ok(Vec::new());
        }
        let is_of_it = |event: &Event| event.kind.starts_with("approval.");
        let events = Ledger::show(self.state, &record.run).doing(UNREAD)?;
        let events = events.filter(|event| event.as_ref().map_or(true, is_of_it));
        // Where the keys cannot be read, what is sealed is told as that.
        let seals = atoll_ledger::Seals::read(self.state).unwrap_or_default();
        let opened = events.map(|event| event.map(|event| seals.open(event)));
        opened.collect::<Result<_, _>>().doing(UNREAD)
    }

    /// Returns the rules that would allow what `--learn` let pass.
    fn learnt(&self, record: &RunRecord) -> Result<Option<Vec<Meant>>, Failure> {
        if !self.arguments.learn {
            return Ok(None);
        }
        let events: Vec<Event> = Ledger::show(self.state, &record.run)
            .and_then(|events| events.collect())
            .doing("what was learnt cannot be read from the ledger")?;
        // Where the keys cannot be read, what is sealed is told as that.
        let seals = atoll_ledger::Seals::read(self.state).unwrap_or_default();
        let events: Vec<Event> = events.into_iter().map(|event| seals.open(event)).collect();
        Ok(Some(learning::rules(events.iter())))
    }

    /// Returns whether a person is there to decide, and has something to decide about.
    fn asks(&self, went: &Went, all: &[changes::LayerChanges]) -> bool {
        let RunArguments {
            apply,
            keep,
            discard,
            quiet,
            ..
        } = *self.arguments;
        let is_decided = apply || keep || discard || quiet;
        let is_open = went.groups.total() > 0 && !bulk::are_logs_alone(all);
        self.output.can_ask && is_open && !is_decided
    }

    /// Returns the decision that the command line makes.
    fn decided(&self, ending: Ending) -> Decision {
        if is_scratch(self.arguments, self.mode) {
            Decision::Gone
        } else if self.arguments.discard {
            Decision::Discard
        } else if self.arguments.apply && ending.is_cut_off() {
            self.output.warn(
                "nothing is applied: the program was ended in the middle of its work; \
                 `atoll apply` writes what it has done all the same",
            );
            Decision::Keep
        } else if self.arguments.apply {
            Decision::Apply
        } else {
            Decision::Keep
        }
    }

    fn work(&self) -> Work<'_> {
        Work {
            state: self.state,
            ledger: self.ledger,
            surface: self.output,
            is_unseen: self.arguments.apply,
            is_unattended: self.arguments.no_ask,
            checked: None,
        }
    }

    fn summary(&self, record: &RunRecord, went: &Went, afterwards: Afterwards) -> String {
        let summary = render::Summary {
            run: &record.run,
            ending: went.outcome.ending,
            usage: went.outcome.usage,
            enforcement: &went.outcome.enforcement,
            asked_for: &self.asked_for,
            changes: &went.groups,
            denied: &went.denied,
            attempts: &went.outcome.attempts,
            profile: &record.profile,
            network: traffic(&went.flows),
            listened: crate::ports::listened(&went.flows, &self.rules.network()),
            credentials: &self.credentials(&went.flows),
            failed: &went.flows.failed.iter().map(unreached).collect::<Vec<_>>(),
            refused_files: went.refused_files,
            removed_sequences: &went.removed_sequences,
            copied: went.copied,
            afterwards,
        };
        render::summary(self.output.error_paint, &summary)
    }

    /// Returns the lines on credentials: used, not accepted, missing, masked, renewed, revoked.
    fn credentials(&self, flows: &Flows) -> Vec<String> {
        let used = used::lines(&flows.used, &flows.unauthorised);
        let missed = used::missed(&self.absent, &flows.used, &flows.unauthorised);
        let taken_back = used::taken_back(&flows.taken_back);
        let further = [used::masked(&flows.masked), renewed::told(flows)].concat();
        [used, missed, further, signed(&flows.signed), taken_back].concat()
    }

    fn tell_alert(&self, went: &Went) {
        if let Some(alert) = alert(&went.flows) {
            self.output.warn(&alert);
        }
    }

    /// Prints the alert, unless it was told with a question, and the warnings and hints that have no
    /// line in the summary.
    fn tell_more(&self, record: &RunRecord, went: &Went, asked: bool) {
        if !asked {
            self.tell_alert(went);
        }
        if self.arguments.quiet {
            return;
        }
        if let Some(rules) = &went.learnt {
            self.output.say(&learning::told(rules));
        }
        let kills = went.outcome.usage.memory_kills;
        if kills > 0 {
            self.output.warn(&format!(
                "the memory limit was reached: the kernel ended {}",
                render::counted(kills, "process", "processes")
            ));
        }
        if let Some(stopped) = &went.flows.stopped {
            self.output.warn(&answered::stopped(*stopped));
        }
        if let Some(why) = &went.flows.failure {
            let why = printable(why.as_bytes());
            self.output.warn(&format!(
                "nothing outside could be reached from some moment on: {why}"
            ));
        }
        let is_closed = self.rules.leaves_all_out();
        if let Some(hint) = not_started::hint(record, went.outcome.ending, self.rules) {
            self.output.warn(&hint);
        }
        let has_failed = match went.outcome.ending {
            Ending::Exited { status } => status != 0,
            Ending::Signalled { .. } => true,
            Ending::Limited { .. }
            | Ending::NotFound
            | Ending::NotExecutable
            | Ending::Interrupted => false,
        };
        let could_nest = has_failed && !self.rules.nesting() && self.mode == Mode::Full;
        let could_reach = has_failed && !self.rules.reaches_outside();
        let loopback = self.loopback_hint(record, went, has_failed);
        let nests = could_nest.then(|| remedies::nesting_hint(record));
        let reaches = could_reach.then(|| remedies::network_hint(&record.command, is_closed));
        let network = self.rules.network();
        // What did not arrive says nothing of releases.
        let has_arrived = has_failed && went.flows.failed.is_empty();
        let is_aged = has_arrived.then(|| remedies::age_hint(record, &network));
        let names = Some(remedies::names_hint(&went.flows));
        for hint in [names, nests, Some(loopback), reaches, is_aged]
            .into_iter()
            .flatten()
            .flatten()
        {
            self.output.warn(&hint);
        }
        if has_failed && let Ok(places) = Places::read() {
            for hint in hidden::hints(self.state, record, self.rules, &places.home) {
                self.output.warn(&hint);
            }
        }
        if !went.planted.is_empty() && record.state != RunState::Discarded {
            self.output.warn(&planted_warning(record, &went.planted));
        }
    }

    /// Returns a hint where a service of this host was meant by a loopback address.
    fn loopback_hint(&self, record: &RunRecord, went: &Went, has_failed: bool) -> Option<String> {
        let refused = went.flows.refused.iter().map(|one| &one.flow);
        let refused = refused.filter(|flow| flow.port > 0 && loopback::is_loopback(&flow.host));
        let mut ports: BTreeSet<u16> = refused.map(|flow| flow.port).collect();
        if has_failed {
            let words = record.command.iter().chain(&self.arguments.env);
            let texts: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
            ports.extend(loopback::named(texts.iter().map(AsRef::as_ref)));
        }
        let leading = self.rules.network().host_ports;
        let is_own = |port: &u16| went.flows.listened.iter().any(|one| one.port == *port);
        ports.retain(|port| !leading.contains(port) && !is_own(port));
        loopback::hint(&ports, self.mode == Mode::Fence)
    }

    /// Records the observed denials in the ledger, for `atoll why`.
    /// Records the denials, and the writes to the clipboard.
    fn record_seen(&self, record: &RunRecord, went: &Went) -> Result<(), Failure> {
        let Copied { times, bytes } = went.copied;
        if times > 0 {
            let body = json!({ "times": times, "bytes": bytes });
            self.work().record(record, "clipboard.written", body)?;
        }
        let denied = &went.denied;
        if denied.is_empty() {
            return Ok(());
        }
        let first: Vec<&str> = denied
            .iter()
            .take(DENIALS_RECORDED_MAX)
            .map(|denied| denied.what.as_str())
            .collect();
        let limits: Vec<&str> = denied
            .iter()
            .filter_map(|denied| denied.limit.map(LimitKey::name))
            .collect();
        let body = json!({ "count": denied.len(), "denied": first, "limits": limits });
        self.work().record(record, "denials.seen", body)
    }

    fn tell_machines(&self, record: &RunRecord, went: &Went) -> Result<(), Failure> {
        if self.arguments.json.is_none() {
            return Ok(());
        }
        let text = json_text(&as_json(record, self, went));
        write_told(self.arguments, self.json, &text, self.output)
    }
}
