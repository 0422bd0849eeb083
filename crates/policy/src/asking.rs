//! Questions put to policies, with the answer so far.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use atoll_cedar::{
    Action, Asked, Decision, Effect, Exec, Facts as CedarFacts, Layers, Principal, Question,
    carried,
};
use atoll_model::{Access, Boundary, Call, Mode, Reason, Shadow, WorkspaceMode};

use crate::levels::TrustRules;
use crate::notice::Notice;
use crate::origin::Origin;
use crate::programs::{self, SEARCHED_MAX};
use crate::refusal::reason;

/// The answer of policies about a run.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) reasons: Vec<Reason>,
    pub(crate) notices: Vec<Notice>,
    /// The serialised policies for the egress process.
    pub(crate) for_flows: Option<Vec<u8>>,
    /// The time limit that policies set.
    pub(crate) wall_clock: Option<Duration>,
    /// The runs of a call on a copy that policies have come first.
    pub(crate) shadow: Option<Shadow>,
    /// The policies that set the time limit.
    pub(crate) wall_clock_by: Option<String>,
    /// The labels of the run when it begins.
    pub(crate) labels: BTreeSet<String>,
    /// Set when some policy requires a state to roll back to.
    pub(crate) has_checkpoint: bool,
    /// The rights that need a person's approval.
    pub(crate) asked: Vec<Reason>,
}

impl Answer {
    /// Adds notices, each once.
    pub(crate) fn add_notices(&mut self, notices: Vec<Notice>) {
        for notice in notices {
            if !self.notices.contains(&notice) {
                self.notices.push(notice);
            }
        }
    }
}

/// A series of questions, with the answer so far.
pub(crate) struct Asking<'a> {
    pub(crate) layers: &'a Layers,
    pub(crate) facts: &'a CedarFacts,
    /// For a run: its trust and mode.
    pub(crate) trust: Option<(&'a TrustRules, Mode)>,
    /// For a run: its workspace, out of which nothing can be hidden.
    pub(crate) workspace: Option<&'a Path>,
    pub(crate) answer: Answer,
}

impl Asking<'_> {
    /// Returns the program of a call, as it is called; refuses one that no policy can tell.
    pub(crate) fn program<'c>(&mut self, call: &'c Call) -> Option<&'c str> {
        let program = call.command().first()?;
        if program.to_str().is_none() {
            let why = "its name is not UTF-8, so no policy can tell";
            let refused = reason(
                "the program",
                why,
                &Origin::BuiltIn,
                "call it by another name",
            );
            self.answer.reasons.push(refused);
        }
        program.to_str()
    }

    pub(crate) fn run(
        &mut self,
        person: &Principal,
        call: &Call,
        program: &str,
        boundary: &Boundary,
    ) {
        let asked = Asked::Run {
            program,
            workspace: boundary.workspace,
            root: boundary.root,
            nesting: boundary.nesting,
            terminal: call.has_terminal(),
        };
        let what = match call.lives() {
            true => "making a sandbox".to_owned(),
            false => format!("running {program}"),
        };
        let decision = self.ask(person, asked, what);
        self.take_time_limit(&decision);
    }

    /// Asks about an exec, as its program is called and by each path that this can be. A path needs
    /// no permit of its own: only what policies say of it counts besides.
    pub(crate) fn exec(&mut self, session: &Principal, call: &Call, program: &str, search: &OsStr) {
        if !self.layers.are_about(&[Action::Exec]) {
            return;
        }
        let what = format!("executing {program}");
        let as_called = Exec {
            program,
            arguments: call.command().get(1..).unwrap_or_default(),
            directory: call.directory(),
            sandbox: call.run().as_str(),
            terminal: call.has_terminal(),
        };
        let decision = self.ask(session, Asked::Exec(as_called), what.clone());
        self.take_time_limit(&decision);
        if decision.effect == Effect::Deny {
            return;
        }
        let Some(paths) = programs::paths(program, call.directory(), search) else {
            let why = format!("PATH has more than {SEARCHED_MAX} directories");
            let refused = reason(what, why, &Origin::BuiltIn, "call it by its whole path");
            self.answer.reasons.push(refused);
            return;
        };
        for path in &paths {
            let Some(program) = path.to_str() else {
                let why = "a directory of PATH is not UTF-8, so no policy can tell";
                let refused = reason(what, why, &Origin::BuiltIn, "call it by its whole path");
                self.answer.reasons.push(refused);
                return;
            };
            let asked = Asked::Exec(Exec {
                program,
                ..as_called
            });
            let question = Question {
                principal: session,
                asked,
                facts: self.facts,
            };
            let found = self.layers.authorize(&question);
            let is_silent = found.deciding.is_empty() && found.errors.is_empty();
            if found.effect == Effect::Deny && is_silent {
                continue;
            }
            let decision = self.ask(session, asked, what.clone());
            self.take_time_limit(&decision);
            if decision.effect == Effect::Deny {
                return;
            }
        }
    }

    /// Keeps the shortest time limit that decisions have set.
    pub(crate) fn take_time_limit(&mut self, decision: &Decision) {
        let Some(timeout) = decision.obligations.timeout else {
            return;
        };
        if self.answer.wall_clock.is_none_or(|limit| timeout < limit) {
            self.answer.wall_clock = Some(timeout);
            self.answer.wall_clock_by = Some(decision.timed_by());
        }
    }

    /// Asks about each place that is shown or changed, and about each beneath one that a policy
    /// names, since a denial there cannot be cut out of it.
    pub(crate) fn places(&mut self, session: &Principal, call: &Call, boundary: &Boundary) {
        let shown = boundary.views.iter().map(|view| view.host.as_path());
        let shown: Vec<&Path> = shown.chain([call.workspace()]).collect();
        self.each_of(session, Action::Read, &shown, |_| true);
        let layered = boundary.views.iter().filter(|view| match view.access {
            Access::Layer(_) => true,
            Access::ReadOnly => false,
        });
        let mut changed: Vec<&Path> = layered.map(|view| view.host.as_path()).collect();
        match boundary.workspace {
            WorkspaceMode::CopyOnWrite | WorkspaceMode::Live => changed.push(call.workspace()),
            WorkspaceMode::ReadOnly => {}
        }
        // What is shown read-only within a place that can be changed stays as it is.
        let stays = |named: &Path| {
            let above = shown.iter().filter(|place| named.starts_with(place));
            let nearest = above.max_by_key(|place| place.components().count());
            nearest.is_some_and(|place| !changed.contains(place))
        };
        self.each_of(session, Action::Write, &changed, |named| !stays(named));
    }

    /// Asks about each of these places, and about each named one beneath that counts.
    fn each_of(
        &mut self,
        session: &Principal,
        action: Action,
        places: &[&Path],
        counts: impl Fn(&Path) -> bool,
    ) {
        let named = self.layers.places(action);
        let beneath = named.iter().map(PathBuf::as_path).filter(|named| {
            let lies_in = |place: &&Path| named.starts_with(place) && named != place;
            places.iter().any(lies_in) && !places.contains(named) && counts(named)
        });
        for place in places.iter().copied().chain(beneath) {
            let (doing, asked) = match action == Action::Write {
                true => ("changing", Asked::Write(place)),
                false => ("showing", Asked::Read(place)),
            };
            self.ask(session, asked, format!("{doing} {}", place.display()));
        }
    }

    pub(crate) fn ask(
        &mut self,
        principal: &Principal,
        asked: Asked<'_>,
        what: String,
    ) -> Decision {
        let question = Question {
            principal,
            asked,
            facts: self.facts,
        };
        let decision = self
            .layers
            .authorize(&question)
            .within(carried(asked.action()));
        let labels = decision.obligations.label.iter();
        self.answer.labels.extend(labels.cloned());
        self.answer.has_checkpoint |= decision.obligations.checkpoint;
        match decision.effect {
            Effect::Allow => self.answer.add_notices(notices_of(&decision, &what)),
            Effect::Ask | Effect::Deny => {
                let of_level = self
                    .trust
                    .and_then(|(trust, mode)| trust.refusal(&decision, &what, mode));
                let is_of_level = of_level.is_some();
                let refusal = of_level.unwrap_or_else(|| {
                    let instead = self.instead(&decision, asked);
                    refused(&decision, what.clone(), instead)
                });
                let time = match decision.asks_a_person() && !is_of_level {
                    true => ask_time(asked),
                    false => AskTime::Never,
                };
                match time {
                    AskTime::Now if self.answer.asked.contains(&refusal) => {}
                    AskTime::Now => self.answer.asked.push(refusal),
                    AskTime::Later => {}
                    AskTime::Never => {
                        self.answer.reasons.push(refusal);
                        return decision;
                    }
                }
                self.answer.add_notices(notices_of(&decision, &what));
            }
        }
        decision
    }

    /// Returns the alternative to a denied right.
    fn instead(&self, decision: &Decision, asked: Asked<'_>) -> String {
        let place = match asked {
            Asked::Read(place) | Asked::Write(place) => Some(place),
            Asked::Run { .. }
            | Asked::Exec(_)
            | Asked::Call(_)
            | Asked::Resolve(_)
            | Asked::Connect { .. }
            | Asked::Request(_, _)
            | Asked::UseCredential(_)
            | Asked::Promote { .. }
            | Asked::Restore { .. }
            | Asked::Publish(_)
            | Asked::Escalate { .. }
            | Asked::Administer { .. } => None,
        };
        let is_within =
            |(place, workspace): (&Path, &Path)| place != workspace && place.starts_with(workspace);
        if place.zip(self.workspace).is_some_and(is_within) {
            return "a place in the workspace cannot be hidden: work elsewhere, or change the policy"
                .to_owned();
        }
        match (decision.others.first(), asked.permit()) {
            (Some(other), Some(permit)) if decision.deciding.is_empty() => {
                format!("add {permit} to {}, or ask who wrote it", other.file)
            }
            (_, _) if decision.is_of_purpose() => {
                "another purpose needs a person: atoll run --purpose NAME (atoll policy purposes)"
                    .to_owned()
            }
            (_, _) => {
                "ask who wrote that policy; `atoll policy ask` shows what it decides on".to_owned()
            }
        }
    }
}

/// The time at which a person is asked for an approval that policies require.
enum AskTime {
    /// Now, since the caller can wait for the answer.
    Now,
    /// At each use, when there is a request to show.
    Later,
    /// Never, which denies.
    Never,
}

fn ask_time(asked: Asked<'_>) -> AskTime {
    match asked {
        Asked::Promote { .. }
        | Asked::Restore { .. }
        | Asked::Run { .. }
        | Asked::Exec(_)
        | Asked::Call(_)
        | Asked::Publish(_) => AskTime::Now,
        Asked::UseCredential(_) => AskTime::Later,
        Asked::Read(_)
        | Asked::Write(_)
        | Asked::Resolve(_)
        | Asked::Connect { .. }
        | Asked::Request(_, _)
        | Asked::Escalate { .. }
        | Asked::Administer { .. } => AskTime::Never,
    }
}

/// Returns the reason for a denial.
fn refused(decision: &Decision, what: String, instead: String) -> Reason {
    let rule = decision
        .deciding
        .first()
        .or(decision.others.first())
        .map_or(Origin::BuiltIn, |one| Origin::File {
            name: Arc::clone(&one.file),
            line: one.line,
        });
    // Where it is written is the reason's rule.
    let why = match decision.errors.is_empty() {
        true => decision.why_inside(),
        false => decision.why(),
    };
    reason(what, why, &rule, instead)
}

/// Returns notices of the sentences of `@log`, and of policies that only report and would have decided.
fn notices_of(decision: &Decision, what: &str) -> Vec<Notice> {
    let origin = |one: &atoll_cedar::Deciding| Origin::File {
        name: Arc::clone(&one.file),
        line: one.line,
    };
    let by = decision.deciding.first();
    let logged = decision.obligations.log.iter().map(|text| Notice {
        text: format!("{what}: {text}"),
        origin: by.map_or(Origin::BuiltIn, origin),
    });
    let reported = decision.reported.iter().map(|one| Notice {
        text: format!(
            "policy {} does not count yet (@report_only), and would have {} {what}",
            one.id,
            one.effect.done()
        ),
        origin: origin(one),
    });
    logged.chain(reported).collect()
}
