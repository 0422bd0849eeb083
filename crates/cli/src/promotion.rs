//! The approval of changes before they are applied, where a policy says `@approve`: each path with
//! what becomes of it, bound to the plans' digests. Any doubt denies.

use std::process;
use std::time::{Duration, Instant};

use atoll_engine::configuration;
use atoll_engine::failure::{Doing, Failure, Kind};
use atoll_engine::printable::{printable, quoted};
use atoll_engine::promotion::{
    self, Agreed, Approver, AskedChange, Meant, Taking, Written, digests,
};
use atoll_layer::{PlanDigest, Thing, Write, Writing};
use atoll_ledger::Asked;
use atoll_model::network::NoConsent;
use atoll_sandbox::Signals;
use serde_json::{Value, json};

use crate::diff::show_diff;
use crate::output::Output;
use crate::render::counted;
use crate::terminal::{self, Pages, Read, SHOWN_BYTES_MAX, Typed, UNASKED};

/// The most changes in one question: whoever is shown more reads none.
const ASKED_MAX: usize = 40;
/// The time to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

impl Approver for Output {
    /// Asks the person at the terminal about all of these at once. Nothing is written without
    /// approval, or if the writes differ by then from those shown.
    fn agreed(&self, question: promotion::Question<'_>) -> Result<Agreed, Failure> {
        let promotion::Question {
            taking,
            asked,
            policies,
            written,
            meant,
        } = question;
        let question = Question {
            approval: (taking.number)()?,
            changes: written,
            plans: digests(meant.plans)?,
            asked,
            policies,
            words: match policies {
                Some(_) => Words::of(meant),
                None => Words::of_checks(),
            },
            taking,
            output: self,
        };
        if !self.can_ask || taking.is_unattended {
            let shown = asked.iter().take(ASKED_MAX).map(|one| {
                let path = quoted(one.path.as_os_str().as_encoded_bytes());
                format!("{path}: {}", printable(one.why.as_bytes()))
            });
            let shown: Vec<String> = shown.collect();
            let why = format!("nobody can be asked here\n{}", shown.join("\n"));
            return Err(question.unasked(NoConsent::Unattended, &why)?);
        }
        if asked.len() > ASKED_MAX {
            let count = asked.len();
            let why = format!("it is about {count} paths, and nobody reads more than {ASKED_MAX}");
            return Err(question.unasked(NoConsent::TooMany, &why)?);
        }
        let Some(pages) = Pages::of(&question.rows()) else {
            let why = format!(
                "its names and targets are longer than anybody reads, {SHOWN_BYTES_MAX} bytes"
            );
            return Err(question.unasked(NoConsent::TooMany, &why)?);
        };
        let signals = Signals::take().doing("signals cannot be taken over")?;
        question.record(Asked::Put, question.about())?;
        let answer = question.answer(&pages, meant, &signals);
        // From here on every end is one of the question's: a terminal that is gone says no.
        let (no, why) = match answer {
            Ok(Ok(())) => {
                question.record(Asked::Granted, by(json!({ "for": "once" })))?;
                return Ok(Agreed {
                    approval: question.approval,
                    plans: question.plans,
                });
            }
            Ok(Err(no)) => (no, told(no).to_owned()),
            Err(failure) => {
                let why = failure.why.map(|why| format!(": {why}"));
                let why = format!("{}{}", failure.what, why.unwrap_or_default());
                (NoConsent::Left, why)
            }
        };
        Err(question.denied(no, json!({}), &why)?)
    }
}

/// Describes why there is no approval.
fn told(no: NoConsent) -> &'static str {
    match no {
        NoConsent::Person => "you said no",
        NoConsent::Late => "nobody answered in time",
        NoConsent::Mismatch => "something of it changed while you were asked",
        NoConsent::Cooling
        | NoConsent::Unseconded
        | NoConsent::TooMany
        | NoConsent::Left
        | NoConsent::Ended
        | NoConsent::Unattended => "there was no answer",
    }
}

/// An approval question.
struct Question<'a> {
    approval: Option<u64>,
    changes: Written,
    plans: Vec<PlanDigest>,
    asked: &'a [AskedChange],
    /// The version of the policies that ask.
    policies: Option<&'a str>,
    words: Words,
    taking: &'a Taking<'a>,
    output: &'a Output,
}

/// The words for an apply, or for an undo.
struct Words {
    action: &'static str,
    first: &'static str,
    letters: &'static str,
    unwritten: &'static str,
    nothing: &'static str,
}

impl Words {
    /// Returns the words where only checks ask.
    fn of_checks() -> Self {
        Self {
            action: "promote",
            first: "The run changed files that decide its checks, which passed without that:",
            letters: "A letter, then Enter: o take them over once, v view the diff, d deny: ",
            unwritten: "changed",
            nothing: "the run changed files that decide its checks, so a person decides; nothing was \
                      applied",
        }
    }

    fn of(meant: &Meant<'_>) -> Self {
        match meant.is_undo {
            true => Self {
                action: "restore",
                first: "Policies ask you before what was written here is undone:",
                letters: "A letter, then Enter: o undo it once, d deny: ",
                unwritten: "undone in",
                nothing: "policies ask a person first; nothing was undone",
            },
            false => Self {
                action: "promote",
                first: "Policies ask you before these changes are taken over:",
                letters: "A letter, then Enter: o take them over once, v view the diff, d deny: ",
                unwritten: "changed",
                nothing: "policies ask a person first; nothing was applied",
            },
        }
    }
}

impl Question<'_> {
    /// Asks until there is an answer. An approval of plans that have changed by then does not
    /// count.
    fn answer(
        &self,
        pages: &Pages,
        meant: &Meant<'_>,
        signals: &Signals,
    ) -> Result<Result<(), NoConsent>, Failure> {
        let output = self.output;
        let until = Instant::now() + PATIENCE;
        let mut is_shown = false;
        loop {
            if !is_shown {
                match pages.show(signals, until, output)? {
                    Read::All => is_shown = true,
                    Read::Denied => return Ok(Err(NoConsent::Person)),
                    Read::Left => return Ok(Err(NoConsent::Left)),
                    Read::Late => return Ok(Err(NoConsent::Late)),
                }
            }
            if !terminal::settle(until).doing(UNASKED)? {
                return Ok(Err(NoConsent::Late));
            }
            output.say(self.words.letters);
            let line = match terminal::typed(signals, Some(until)) {
                Typed::Line(line) => line,
                Typed::Late => return Ok(Err(NoConsent::Late)),
                Typed::Left => return Ok(Err(NoConsent::Left)),
            };
            match line.trim().to_ascii_lowercase().as_str() {
                "o" if (meant.anew)()? == self.plans => return Ok(Ok(())),
                "o" => return Ok(Err(NoConsent::Mismatch)),
                "d" => return Ok(Err(NoConsent::Person)),
                "v" if !meant.is_undo => {
                    show_diff(meant.all, output)?;
                    is_shown = false;
                }
                _ => output.say("That is none of these.\n"),
            }
        }
    }

    /// Returns the rows shown to the person: nothing in them can be a row of its own, or hide.
    fn rows(&self) -> Vec<String> {
        let mut rows = vec![self.words.first.to_owned()];
        rows.extend(self.asked.iter().map(|one| self.row(one)));
        let further = self.changes.len().saturating_sub(self.asked.len()) as u64;
        if further > 0 {
            let further = counted(further, "path", "paths");
            rows.push(format!("  with them {further} that no policy asks about"));
        }
        rows.push(format!("  digest {}", PlanDigest::of_all(&self.plans)));
        rows
    }

    fn row(&self, one: &AskedChange) -> String {
        let path = quoted(one.path.as_os_str().as_encoded_bytes());
        let why = printable(one.why.as_bytes());
        match self.changes.get(&one.path) {
            Some((is_control, write)) => {
                let (how, thing, mode) = (how(write), thing(write), mode(write));
                let control = match is_control {
                    true => ", other programs run it",
                    false => "",
                };
                format!("  {how}: {path}{thing}{mode}{control} ({why})")
            }
            None => format!("  {}: {path} ({why})", self.words.unwritten),
        }
    }

    /// Returns the record of the question: no path, and nothing that a program has written.
    fn about(&self) -> Value {
        let rules: Vec<&str> = self.asked.iter().map(|one| one.rule.as_str()).collect();
        let rule = rules.first().copied().unwrap_or_default();
        json!({ "changes": self.changes.len(), "rule": rule })
    }

    fn record(&self, step: Asked, mut body: Value) -> Result<(), Failure> {
        if let Some(members) = body.as_object_mut() {
            members.insert("action".to_owned(), json!(self.words.action));
            let digest = PlanDigest::of_all(&self.plans).to_string();
            members.insert("digest".to_owned(), json!(digest));
            if let Some(approval) = self.approval {
                members.insert("approval".to_owned(), json!(approval));
            }
            if let Some(policies) = self.policies {
                members.insert("policy".to_owned(), json!(policies));
            }
        }
        (self.taking.record)(step, body)
    }

    /// Records the denial of a question that was never shown, with what it was about.
    fn unasked(&self, no: NoConsent, why: &str) -> Result<Failure, Failure> {
        self.denied(no, self.about(), why)
    }

    /// Records a denial with these members, and returns the failure.
    fn denied(&self, no: NoConsent, mut body: Value, why: &str) -> Result<Failure, Failure> {
        if let Some(members) = body.as_object_mut() {
            members.insert("why".to_owned(), json!(no.name()));
        }
        let body = match no {
            NoConsent::Person => by(body),
            NoConsent::Cooling
            | NoConsent::Late
            | NoConsent::Unseconded
            | NoConsent::TooMany
            | NoConsent::Left
            | NoConsent::Ended
            | NoConsent::Mismatch
            | NoConsent::Unattended => body,
        };
        self.record(Asked::Denied, body)?;
        let command = self.taking.command;
        let advice = match no {
            // Of what is kept nobody names paths.
            NoConsent::TooMany if self.approval.is_none() => {
                format!("let the policy ask about fewer paths, then {command}")
            }
            NoConsent::TooMany => format!("{command} PATH ... asks about these paths alone"),
            NoConsent::Person => format!("{command} asks you once more; what was changed is kept"),
            NoConsent::Cooling
            | NoConsent::Late
            | NoConsent::Unseconded
            | NoConsent::Left
            | NoConsent::Ended
            | NoConsent::Mismatch
            | NoConsent::Unattended => format!("{command} at a terminal asks you"),
        };
        Ok(Failure::new(self.words.nothing)
            .because(why)
            .advise(advice)
            .of_kind(Kind::Denied))
    }
}

/// Adds the approver.
fn by(mut body: Value) -> Value {
    if let Some(members) = body.as_object_mut() {
        members.insert("pid".to_owned(), json!(process::id()));
        members.insert("uid".to_owned(), json!(configuration::principal().uid));
    }
    body
}

fn how(write: &Write) -> &'static str {
    match write.how {
        Writing::Made => "new",
        Writing::Replaced => "changed",
        Writing::Removed => "removed",
        Writing::Facts => "permissions",
        Writing::Moved => "moved",
    }
}

fn thing(write: &Write) -> String {
    match &write.thing {
        Thing::File {
            bytes,
            is_executable,
        } => {
            let runs = match is_executable {
                true => ", executable",
                false => "",
            };
            format!(", {}{runs}", counted(*bytes, "byte", "bytes"))
        }
        Thing::Directory => ", a directory".to_owned(),
        Thing::Link { target } => format!(", a link to {}", quoted(target)),
        Thing::Nothing => String::new(),
    }
}

/// Its permissions as chmod(1) takes them, and those before where they are others.
fn mode(write: &Write) -> String {
    match (write.mode_before, write.mode) {
        (Some(before), Some(mode)) if before != mode => {
            format!(", mode {before:04o} to {mode:04o}")
        }
        (Some(_) | None, Some(mode)) => format!(", mode {mode:04o}"),
        (Some(_) | None, None) => String::new(),
    }
}
