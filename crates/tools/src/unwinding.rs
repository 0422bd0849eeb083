//! The undo of a session: what its calls did is taken back, the newest call first, by the notes that were
//! made about them. It goes on where it was cut short.

use std::collections::BTreeMap;

use atoll_checkpoint::{Origin, Overwrite};
use atoll_engine::NeedsApproval;
use atoll_engine::artifacts::kept_by;
use atoll_engine::checkpoints::Checkpoints;
use atoll_engine::events::events_of;
use atoll_engine::failure::Failure;
use atoll_engine::sandboxes::{Engine, PriorAnswer};
use atoll_model::{Reason, RunId};
use serde_json::{Value, json};

use crate::answer::Refusal;
use crate::exec::Cancel;
use crate::keys::UNDO_KEY;
use crate::runner::Runner;
use crate::session::{Asked, Session};
use crate::upstream::frames::Askable;
use crate::way_back::{InverseCall, Noted, append, lock, read};

/// A step of an undo.
#[derive(Clone, Debug)]
pub struct Step {
    /// The number of the call that is taken back.
    pub call: u32,
    /// Its tool.
    pub tool: String,
    /// Its effect.
    pub effect: String,
    /// The outcome.
    pub end: Unwound,
}

/// The outcome of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unwound {
    /// A checkpoint was restored, and this one takes that back.
    Restored(Option<String>),
    /// This tool was called.
    Called(String),
    /// Taken back before.
    Already,
    /// Not taken back.
    Left(String),
}

/// The person who is asked where policies ask.
pub struct Person<'a> {
    /// Answers about the call of a tool, with its arguments.
    pub about_call: &'a dyn Fn(&str, &str, &NeedsApproval) -> PriorAnswer,
    /// Agrees to a restore.
    pub about_restore: &'a dyn Fn(&[Reason]) -> Result<(), Failure>,
}

/// Takes back what a session has done, the newest call first, by calls of another session. `tell` is
/// told each step.
///
/// # Errors
/// When what the session did cannot be read; doing it again goes on.
pub fn unwind<R: Runner>(
    by: &Session<R>,
    session: &RunId,
    person: &Person<'_>,
    tell: &mut dyn FnMut(&Step),
) -> Result<Vec<Step>, Failure> {
    let engine = by.engine();
    let state = kept_by(engine).0.path();
    let _alone = lock(kept_by(engine).0)?;
    let noted = read(state, session)?;
    let mut steps = Vec::new();
    for mut step in calls(engine, session)?.into_iter().rev() {
        let undo = match step.end {
            Unwound::Left(_) => noted.get(&step.call),
            _ => continue,
        };
        if let Some(noted) = undo {
            step.end = match noted.is_undone {
                true => Unwound::Already,
                false => taken_back(by, session, noted, person)?,
            };
            if matches!(step.end, Unwound::Restored(_) | Unwound::Called(_)) {
                let done = Noted {
                    is_undone: true,
                    ..noted.clone()
                };
                append(state, session, &done)?;
            }
        }
        tell(&step);
        steps.push(step);
    }
    Ok(steps)
}

/// Returns the calls that an undo of a session would take back, with why it would leave others; nothing
/// is done.
///
/// # Errors
/// When what the session did cannot be read.
pub fn way_back_of<R: Runner>(by: &Session<R>, session: &RunId) -> Result<Vec<Step>, Failure> {
    let noted = read(kept_by(by.engine()).0.path(), session)?;
    let mut steps = calls(by.engine(), session)?;
    steps.reverse();
    for step in &mut steps {
        let Some(noted) = noted.get(&step.call) else {
            continue;
        };
        step.end = match (noted.is_undone, &noted.inverse, &noted.checkpoint) {
            (true, _, _) => Unwound::Already,
            (false, Some(inverse), _) => Unwound::Called(told_call(inverse)),
            (false, None, Some(_)) => Unwound::Restored(None),
            (false, None, None) => Unwound::Left(without(noted)),
        };
    }
    Ok(steps)
}

/// Returns why nothing takes a call back of which something is noted.
fn without(noted: &Noted) -> String {
    match (&noted.why, noted.is_done) {
        (Some(why), _) => why.clone(),
        (None, true) => "nothing takes it back".to_owned(),
        (None, false) => "it did not end well, so nobody knows what it has done".to_owned(),
    }
}

/// Returns the calls of a session that were made, with an effect, the oldest first; what nothing is noted
/// of is left.
fn calls(engine: &Engine, session: &RunId) -> Result<Vec<Step>, Failure> {
    let mut all = BTreeMap::<u64, Step>::new();
    let events = events_of(kept_by(engine).0, session)?;
    if !events.iter().any(|event| event.kind.starts_with("tool.")) {
        return Err(
            Failure::new(format!("there is no session of tools {session}"))
                .advise("atoll tools call --json tells it before the / of `call`"),
        );
    }
    for event in events {
        let number = event.body.get("call").and_then(Value::as_u64);
        let text = |name: &str| event.body.get(name).and_then(Value::as_str);
        let Some(number) = number else { continue };
        match event.kind.as_str() {
            "tool.opened" if text("effect") != Some("read") => {
                let step = Step {
                    call: u32::try_from(number).unwrap_or(u32::MAX),
                    tool: text("tool").unwrap_or_default().to_owned(),
                    effect: text("effect").unwrap_or_default().to_owned(),
                    end: Unwound::Left("its end is unknown".to_owned()),
                };
                all.insert(number, step);
            }
            "tool.closed" => {
                if let Some(step) = all.get_mut(&number) {
                    step.end = Unwound::Left(match text("end") {
                        Some("done") => "nothing takes it back".to_owned(),
                        end => {
                            let end = end.unwrap_or("unknown");
                            format!("nothing takes it back; it ended as {end}")
                        }
                    });
                }
            }
            _ => {}
        }
    }
    Ok(all.into_values().collect())
}

/// Takes one call back.
fn taken_back<R: Runner>(
    by: &Session<R>,
    session: &RunId,
    noted: &Noted,
    person: &Person<'_>,
) -> Result<Unwound, Failure> {
    match (&noted.inverse, &noted.checkpoint) {
        (Some(inverse), _) => called(by, session, noted, inverse, person),
        (None, Some(checkpoint)) => restored(by.engine(), checkpoint, person),
        (None, None) => Ok(Unwound::Left(without(noted))),
    }
}

fn restored(engine: &Engine, id: &str, person: &Person<'_>) -> Result<Unwound, Failure> {
    let (state, ledger) = kept_by(engine);
    let checkpoints = Checkpoints { state, ledger };
    let restored = checkpoints
        .named(id)
        .and_then(|one| checkpoints.restore(&one, Overwrite::No, person.about_restore));
    let restored = match restored {
        Ok(restored) => restored,
        Err(failure) => return Ok(Unwound::Left(told(&failure))),
    };
    let mut conflicts = restored.left.iter();
    match conflicts.find(|(_, left)| left.origin != Some(Origin::Since)) {
        Some((target, left)) => Ok(Unwound::Left(format!(
            "{target}: {}: {}",
            left.name, left.why
        ))),
        None => Ok(Unwound::Restored(restored.kept.map(|kept| kept.id))),
    }
}

/// Makes the call that makes up for one, once: its key is of that call alone.
fn called<R: Runner>(
    by: &Session<R>,
    session: &RunId,
    noted: &Noted,
    inverse: &InverseCall,
    person: &Person<'_>,
) -> Result<Unwound, Failure> {
    let first = format!("{UNDO_KEY}{session} {}", noted.call);
    let made = by.engine().keyed_calls()?.into_iter();
    let is_of_it = |key: &str| {
        let rest = key.strip_prefix(&first);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let made: Vec<_> = made.filter(|one| is_of_it(&one.key)).collect();
    if made.iter().any(|one| one.end.ends_with("ended as done")) {
        return Ok(Unwound::Called(told_call(inverse)));
    }
    let registry = by.registry();
    let is_idempotent = registry
        .tool(&inverse.tool)
        .is_some_and(|tool| tool.idempotent);
    let key = match (made.last(), noted.is_begun) {
        (None, false) => first,
        // Once more does no more than once.
        (_, _) if is_idempotent => format!("{first}/{}", made.len()),
        (Some(made), _) => {
            let why = format!("{} was called for it before: {}", inverse.tool, made.end);
            return Ok(Unwound::Left(why));
        }
        (None, true) => {
            let why = format!("{} may have been called for it before", inverse.tool);
            return Ok(Unwound::Left(why));
        }
    };
    let begun = Noted {
        is_begun: true,
        ..noted.clone()
    };
    append(kept_by(by.engine()).0.path(), session, &begun)?;
    let cancel = Cancel::new()?;
    let text = inverse.arguments.to_string();
    let ask = |answer: &PriorAnswer| {
        by.call_keyed(&Asked {
            name: &inverse.tool,
            arguments: &text,
            key: Some(&key),
            answer,
            cancel: &cancel,
            listener: None,
            answers: None,
            askable: Askable::default(),
            approver: None,
        })
    };
    let answered = match ask(&PriorAnswer::Nobody) {
        Err(Refusal::NeedsApproval { asked, arguments }) => {
            ask(&(person.about_call)(&inverse.tool, &arguments, &asked))
        }
        answered => answered,
    };
    Ok(match answered {
        Ok(answer) if answer.is_result() => Unwound::Called(told_call(inverse)),
        Ok(answer) => Unwound::Left(format!("{} failed: {}", inverse.tool, answer.text())),
        Err(refusal) => Unwound::Left(format!("{}: {}", inverse.tool, why(refusal))),
    })
}

fn told_call(inverse: &InverseCall) -> String {
    format!("{} {}", inverse.tool, inverse.arguments)
}

fn why(refusal: Refusal) -> String {
    let of = |reasons: Vec<Reason>| {
        let whys = reasons.into_iter().map(|one| one.why);
        whys.collect::<Vec<_>>().join("; ")
    };
    match refusal {
        Refusal::Unknown(_) => "there is no such tool".to_owned(),
        Refusal::Invalid(why) => why.join("; "),
        Refusal::Limited(exceeded) => exceeded.why,
        Refusal::NeedsApproval { asked, .. } => of(asked.reasons),
        Refusal::Denied(reasons) => of(reasons),
        Refusal::Failed(failure) => told(&failure),
    }
}

fn told(failure: &Failure) -> String {
    match &failure.why {
        Some(why) => format!("{}: {why}", failure.what),
        None => failure.what.clone(),
    }
}

impl Step {
    /// Describes it for machines.
    #[must_use]
    pub fn json(&self) -> Value {
        let (end, detail) = match &self.end {
            Unwound::Restored(kept) => ("restored", kept.clone()),
            Unwound::Called(tool) => ("called", Some(tool.clone())),
            Unwound::Already => ("already", None),
            Unwound::Left(why) => ("left", Some(why.clone())),
        };
        json!({
            "call": self.call, "tool": self.tool, "effect": self.effect, "end": end,
            "detail": detail,
        })
    }
}
