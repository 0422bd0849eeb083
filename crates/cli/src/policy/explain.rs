//! `atoll policy explain`: the rules and policies that decide a question, the facts that mattered,
//! and the smallest change that would have allowed it. Nothing here has an effect.

mod change;

use atoll_cedar::edited::{layer_of, text_of};
use atoll_cedar::{Action, Deciding, Decision, Effect, Layer};
use atoll_engine::configuration::Places;
use atoll_engine::events::events_of;
use atoll_engine::explain::asking::Asking;
use atoll_engine::explain::change::{Change, that_allow};
use atoll_engine::explain::facts::{self, Fact};
use atoll_engine::explain::past::why_denied;
use atoll_engine::explain::verdict::{self, OfRules, Sources};
use atoll_engine::explain::{Recorded, of_run, question, word};
use atoll_engine::failure::Failure;
use atoll_ledger::{Event, StateDir};
use atoll_model::RunId;
use atoll_model::network::{GivenUp, GivenUps};
use atoll_tokens::NOT_CARRIED;
use serde_json::{Value, json};

use crate::arguments::ExplainPolicyArguments;
use crate::finding;
use crate::output::Output;
use crate::policy;
use crate::render::{Paint, Report, Style};
use crate::requested::of_line;
use crate::status::STATUS_DENIED;

/// Explains one question, or the decisions of a run.
pub(crate) fn explain(arguments: &ExplainPolicyArguments, output: &Output) -> Result<u8, Failure> {
    let Some(run) = &arguments.run else {
        return asked(arguments, output);
    };
    let state = Places::read()?.read_state()?;
    let run = finding::find_in_ledger(&state, run)?;
    let all = of_run(&state, &run, arguments.event, &of_line)?;
    let mut status = 0;
    let mut told = Vec::new();
    for one in &all {
        let put = one.ask()?;
        if put.verdict.effect != Effect::Allow {
            status = STATUS_DENIED;
        }
        match arguments.json {
            true => told.push(Explained::of(&put).json(Some(one))),
            false => output.result(&Explained::of(&put).text(Some(one), output.paint)),
        }
    }
    if arguments.json {
        output.json(&Value::Array(told));
    } else if all.is_empty() {
        output.say("Nothing that can be asked again was refused in that run.\n");
    }
    if let (None, false) = (arguments.event, arguments.json)
        && let Some(line) = token_refusals(&state, &run)?
    {
        output.say(&line);
    }
    Ok(status)
}

/// Describes a run's refusals by its tokens: no rule and no policy can allow these.
fn token_refusals(state: &StateDir, run: &RunId) -> Result<Option<String>, Failure> {
    let is_tokens = |event: &&Event| {
        let why = event.body.get("why").and_then(Value::as_str);
        event.kind == "flow.refused" && why.is_some_and(|why| why.starts_with(NOT_CARRIED))
    };
    let said = match events_of(state, run)?.iter().filter(is_tokens).count() {
        0 => return Ok(None),
        1 => "1 refusal was its token's, which is",
        _ => "Some refusals were its token's, which are",
    };
    Ok(Some(format!(
        "{said} not asked again: atoll token show FILE tells what that carries.\n"
    )))
}

fn asked(arguments: &ExplainPolicyArguments, output: &Output) -> Result<u8, Failure> {
    let question = &arguments.question;
    let case = policy::case(question)?;
    let sources = Sources::read(&verdict::here()?)?;
    let put = match question.file.is_empty() {
        true => {
            let requested = policy::stated(question, &case)?;
            let program = match case.action.as_str() {
                "run" => case.resource.clone(),
                _ => String::new(),
            };
            let question = (case, GivenUps::default());
            let put = Asking::put(&sources, requested, program.as_ref(), question)?;
            if let Some(rules) = &put.deciders.rules {
                policy::refuse_uncounted(&put.case, rules)?;
            }
            put
        }
        false => {
            let files = question.file.iter().map(|path| policy::read(path));
            let files = files.collect::<Result<Vec<_>, _>>()?;
            Asking::put_to_files(vec![(Layer::User, files)], case)?
        }
    };
    let explained = Explained::of(&put);
    match arguments.json {
        true => output.json(&explained.json(None)),
        false => output.result(&explained.text(None, output.paint)),
    }
    Ok(match put.verdict.effect {
        Effect::Allow => 0,
        Effect::Ask | Effect::Deny => STATUS_DENIED,
    })
}

/// A question with its decision, the facts that mattered and the changes that would allow it.
pub(crate) struct Explained<'a> {
    put: &'a Asking<'a>,
    facts: Vec<Fact>,
    pub(crate) changes: Vec<Change>,
}

impl<'a> Explained<'a> {
    pub(crate) fn of(put: &'a Asking<'a>) -> Self {
        Self {
            facts: facts::that_matter(put),
            changes: that_allow(put),
            put,
        }
    }

    /// Returns the policies that decided, or that only permit others.
    pub(crate) fn policies(&self) -> Vec<(Action, &Deciding)> {
        let mut all: Vec<(Action, &Deciding)> = Vec::new();
        for (action, decision) in self.put.verdict.deciding() {
            let of = match decision.deciding.is_empty() {
                true => &decision.others,
                false => &decision.deciding,
            };
            for policy in of {
                if all.iter().all(|(_, one)| *one != policy) {
                    all.push((*action, policy));
                }
            }
        }
        all
    }

    /// Returns whether policies deny it, or require approval, now.
    pub(crate) fn is_by_policy(&self) -> bool {
        self.put.verdict.effect != Effect::Allow && !self.policies().is_empty()
    }

    /// Returns the explanation as JSON.
    pub(crate) fn told(&self) -> Value {
        self.json(None)
    }

    /// Adds the explanation to a run's story.
    pub(crate) fn tell(&self, report: &mut Report) {
        let question = question(&self.put.case);
        let effect = self.put.verdict.effect;
        report.line("policy", &format!("{effect} now: {question}"));
        self.tell_policies(report);
        self.tell_changes(report);
    }

    fn tell_policies(&self, report: &mut Report) {
        for (_, policy) in self.policies() {
            let text = text_of(&self.put.deciders.files, policy).unwrap_or_default();
            report.line("policy", &format!("{}:{}", policy.file, policy.line));
            text.lines().for_each(|line| report.command("policy", line));
        }
    }

    /// Adds the changes: not folded, for pasting.
    fn tell_changes(&self, report: &mut Report) {
        for (at, change) in self.changes.iter().enumerate() {
            let label = if at == 0 { "change" } else { "or" };
            let lines = change::lines(change);
            match lines.len() {
                0 | 1 => {}
                2 => report.line(label, "both of these:"),
                _ => report.line(label, "all of these:"),
            }
            lines.iter().for_each(|line| report.command(label, line));
        }
    }

    pub(crate) fn text(&self, recorded: Option<&Recorded>, paint: Paint) -> String {
        let mut report = Report::new(paint);
        report.title(&question(&self.put.case), "");
        let effect = self.put.verdict.effect;
        let style = match effect {
            Effect::Allow => Style::Good,
            Effect::Ask | Effect::Deny => Style::Bad,
        };
        report.styled("decided", &effect.to_string(), Some(style));
        if let Some(recorded) = recorded {
            report.line("then", &self.then(recorded));
            if let Some(labels) = self.put.case.labels.as_ref().filter(|all| !all.is_empty()) {
                let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
                report.line("labels", &format!("{}, by then", labels.join(", ")));
            }
        }
        report.line("rules", &self.rules());
        for line in self.words() {
            report.line("policies", &line);
        }
        self.tell_policies(&mut report);
        for fact in &self.facts {
            report.line("fact", &told(fact));
        }
        self.tell_changes(&mut report);
        if effect != Effect::Allow && self.changes.is_empty() {
            let why = match why_denied(&self.put.given_up, &self.put.case) {
                Some(_) => {
                    "none: what was given up is not taken back, and a run outside that session has it"
                }
                None => {
                    "none of yours allows it: no single rule, policy, level or mode that was tried does"
                }
            };
            report.line("change", why);
        }
        report.finish()
    }

    fn then(&self, recorded: &Recorded) -> String {
        let now = self.put.deciders.rules.as_ref().map(|rules| rules.digest());
        let same = match recorded.version.as_deref() == now {
            true => "the same rules and policies",
            false => "rules or policies have changed since",
        };
        let number = recorded.event.position.seq;
        format!(
            "{}, event {number} of the ledger ({same})",
            recorded.put.then
        )
    }

    /// Returns the verdict of the profile's rules, in words.
    fn rules(&self) -> String {
        match &self.put.verdict.of_rules {
            OfRules::Unasked if self.put.sources.is_none() => "policies alone are asked".to_owned(),
            OfRules::Unasked => "Set by the profile; see `atoll profile show`.".to_owned(),
            OfRules::Allowed(Some(by)) => format!("allowed by {by}"),
            OfRules::Allowed(None) => "allowed".to_owned(),
            OfRules::Asked(rule) => format!("a person is asked by {}", rule.told()),
            OfRules::Denied(rule) => format!("denied by {}", rule.told()),
            OfRules::Closed(why) | OfRules::Never(why) => why.clone(),
        }
    }

    /// Returns the verdicts of policies, each once.
    fn words(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        let decided = self.put.verdict.of_policies.iter();
        let is_told = |one: &&(Action, Decision)| {
            one.1.effect == self.put.verdict.effect || one.1.effect != Effect::Allow
        };
        for (action, decision) in decided.filter(is_told) {
            let line = format!(
                "{} of {}: {}",
                decision.effect,
                action.name(),
                decision.why()
            );
            if !all.contains(&line) {
                all.push(line);
            }
        }
        all
    }

    pub(crate) fn json(&self, recorded: Option<&Recorded>) -> Value {
        let files = &self.put.deciders.files;
        let policy = |policy: &Deciding| {
            json!({
                "id": &*policy.id,
                "file": &*policy.file,
                "line": policy.line,
                "layer": layer_of(files, policy),
                "says": if policy.effect == Effect::Allow { "permit" } else { "forbid" },
                "reason": policy.reason.as_deref(),
                "text": text_of(files, policy),
            })
        };
        let decided = |(action, decision): &(Action, Decision)| {
            json!({
                "action": action.name(),
                "effect": word(decision.effect),
                "deciding": decision.deciding.iter().map(policy).collect::<Vec<_>>(),
                "permits-others": decision.others.iter().map(policy).collect::<Vec<_>>(),
                "errors": decision.errors,
            })
        };
        let fact = |one: &Fact| json!({ "member": one.member, "now": one.now, "other": one.other, "then": word(one.effect) });
        let case = &self.put.case;
        json!({
            "action": case.action,
            "resource": case.resource,
            "method": case.method,
            "path": case.path,
            "port": case.port,
            "labels": case.labels,
            "confidence": case.confidence,
            "given-up": self.put.given_up.iter().map(GivenUp::why).collect::<Vec<_>>(),
            "effect": word(self.put.verdict.effect),
            "run": recorded.and_then(|one| one.event.run.as_ref()),
            "event": recorded.map(|one| one.event.position.seq),
            "was": recorded.map(|one| word(one.put.then)),
            "rules": self.rules(),
            "policies": self.put.verdict.of_policies.iter().map(decided).collect::<Vec<_>>(),
            "facts": self.facts.iter().map(fact).collect::<Vec<_>>(),
            "changes": self.changes.iter().map(change::json).collect::<Vec<_>>(),
        })
    }
}

fn told(fact: &Fact) -> String {
    let with = match fact.effect {
        Effect::Allow => "it would be allowed",
        Effect::Ask => "a person would be asked",
        Effect::Deny => "it would be denied",
    };
    format!(
        "{} is {}: with {} {with}",
        fact.member, fact.now, fact.other
    )
}
