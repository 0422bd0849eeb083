//! The way back of a session: what takes the effect of each call back is noted before the effect, and
//! completed by its result. [`unwind`] then goes through a session, the newest call first, and goes on
//! where it was cut short.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use atoll_checkpoint::{Origin, Overwrite, Target};
use atoll_engine::NeedsApproval;
use atoll_engine::artifacts::kept_by;
use atoll_engine::checkpoints::{Checkpoints, Taking, targets};
use atoll_engine::events::events_of;
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::sandboxes::{Engine, PriorAnswer};
use atoll_engine::tools::Called;
use atoll_model::{Reason, RunId, ToolEffect, ToolEnd, ToolUndo};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::answer::{Answer, Refusal};
use crate::exec::Cancel;
use crate::runner::Runner;
use crate::session::{Asked, Session};
use crate::tool::Tool;
use crate::upstream::frames::Askable;

/// The directory of what is noted, in the state directory.
const UNDO: &str = "undo";

/// The way back of a tool's calls, as it is described.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WayBack {
    /// The things that a checkpoint is taken of before each call.
    pub checkpoint: Vec<Target>,
    /// The call that makes up for one.
    pub inverse: Option<Inverse>,
}

/// The call that makes up for another one, made from its arguments and its result.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inverse {
    /// The tool.
    pub tool: String,
    /// Its arguments: `{result.NAME}` and `{arguments.NAME}` stand for values of the call.
    #[serde(default)]
    pub arguments: Map<String, Value>,
}

/// A call that makes up for another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct InverseCall {
    tool: String,
    arguments: Value,
}

/// The note about a call; of several the last counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Noted {
    call: u32,
    /// True once the result is known.
    is_done: bool,
    checkpoint: Option<String>,
    inverse: Option<InverseCall>,
    /// The reason why there is no inverse, where there should be one.
    why: Option<String>,
    /// True once it was taken back.
    is_undone: bool,
}

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
    /// It was taken back before.
    Already,
    /// It was not taken back.
    Left(String),
}

/// The person who is asked where policies ask.
pub struct Person<'a> {
    /// Answers about the call of a tool, with its arguments.
    pub about_call: &'a dyn Fn(&str, &str, &NeedsApproval) -> PriorAnswer,
    /// Agrees to a restore.
    pub about_restore: &'a dyn Fn(&[Reason]) -> Result<(), Failure>,
}

impl WayBack {
    /// Reads it as it is written.
    pub(crate) fn read(checkpoint: &[String], inverse: Option<Inverse>) -> Result<Self, String> {
        let read = targets(checkpoint).map_err(|failure| match failure.why {
            Some(why) => format!("checkpoint: {why}"),
            None => format!("checkpoint: {}", failure.what),
        });
        Ok(Self {
            checkpoint: read?,
            inverse,
        })
    }

    /// Returns the way in which the effect of a call is taken back.
    #[must_use]
    pub fn kind(&self, effect: ToolEffect) -> ToolUndo {
        match (effect, &self.inverse, self.checkpoint.is_empty()) {
            (ToolEffect::Read, _, _) => ToolUndo::Nothing,
            (_, Some(_), _) => ToolUndo::Inverse,
            (_, None, false) => ToolUndo::Restore,
            (_, None, true) => ToolUndo::None,
        }
    }
}

impl Inverse {
    fn of(&self, arguments: &Value, result: &Value) -> Result<InverseCall, String> {
        let mut all = Map::new();
        for (name, value) in &self.arguments {
            all.insert(name.clone(), filled(value, arguments, result)?);
        }
        Ok(InverseCall {
            tool: self.tool.clone(),
            arguments: Value::Object(all),
        })
    }
}

/// Puts values of a call in their places.
fn filled(value: &Value, arguments: &Value, result: &Value) -> Result<Value, String> {
    let inner = |one: &Value| filled(one, arguments, result);
    let Value::String(text) = value else {
        return Ok(match value {
            Value::Array(all) => Value::Array(all.iter().map(inner).collect::<Result<_, _>>()?),
            Value::Object(all) => {
                let all = all
                    .iter()
                    .map(|(name, one)| Ok((name.clone(), inner(one)?)));
                Value::Object(all.collect::<Result<_, String>>()?)
            }
            other => other.clone(),
        });
    };
    let Some(place) = text
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
    else {
        return Ok(value.clone());
    };
    let (from, path) = match place.split_once('.') {
        Some(("result", path)) => (result, path),
        Some(("arguments", path)) => (arguments, path),
        _ => {
            return Err(format!(
                "{text} is none of {{result.NAME}} and {{arguments.NAME}}"
            ));
        }
    };
    let found = path.split('.').try_fold(from, |at, name| match at {
        Value::Array(all) => all.get(name.parse::<usize>().ok()?),
        other => other.get(name),
    });
    match found {
        Some(Value::Null) | None => Err(format!("the call has no {place}")),
        Some(found) => Ok(found.clone()),
    }
}

/// A call of which the way back is noted.
pub(crate) struct Going<'a> {
    engine: &'a Engine,
    session: &'a RunId,
    tool: &'a Tool,
    noted: Noted,
}

/// Notes the way back of a call before its effect; `None` where it has none to note.
pub(crate) fn before<'a>(
    engine: &'a Engine,
    session: &'a RunId,
    tool: &'a Tool,
    call: u32,
) -> Result<Option<Going<'a>>, Failure> {
    match tool.way_back.kind(tool.effect) {
        ToolUndo::Nothing | ToolUndo::None => return Ok(None),
        ToolUndo::Restore | ToolUndo::Inverse => {}
    }
    let (state, ledger) = kept_by(engine);
    let taken = match tool.way_back.checkpoint.as_slice() {
        [] => None,
        targets => Some(Checkpoints { state, ledger }.take(Taking {
            targets,
            why: format!("tool {}", tool.name),
            run: Some(session),
            call: Some(call),
        })?),
    };
    let going = Going {
        engine,
        session,
        tool,
        noted: Noted {
            call,
            is_done: false,
            checkpoint: taken.map(|taken| taken.id),
            inverse: None,
            why: None,
            is_undone: false,
        },
    };
    append(state.path(), session, &going.noted)?;
    Ok(Some(going))
}

impl Going<'_> {
    /// Notes what takes the effect back, now that its result is known.
    pub(crate) fn after(
        mut self,
        arguments: &Value,
        called: &Called<Answer>,
    ) -> Result<(), Failure> {
        let (state, ledger) = kept_by(self.engine);
        self.noted.is_done = called.end == ToolEnd::Done;
        if let (Some(inverse), true) = (&self.tool.way_back.inverse, self.noted.is_done) {
            let answer = &called.answer;
            let text = || serde_json::from_str(&answer.text()).unwrap_or(Value::Null);
            let result = answer.structured.clone().unwrap_or_else(text);
            match inverse.of(arguments, &result) {
                Ok(call) => self.noted.inverse = Some(call),
                Err(why) => self.noted.why = Some(why),
            }
        }
        append(state.path(), self.session, &self.noted)?;
        let checkpoints = Checkpoints { state, ledger };
        match &self.noted.checkpoint {
            Some(id) => checkpoints.settle(&checkpoints.named(id)?),
            None => Ok(()),
        }
    }
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
            (false, Some(inverse), _) => Unwound::Called(inverse.tool.clone()),
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
    for event in events_of(kept_by(engine).0, session)? {
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
        (Some(inverse), _) => called(by, session, noted.call, inverse, person),
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
    call: u32,
    inverse: &InverseCall,
    person: &Person<'_>,
) -> Result<Unwound, Failure> {
    let first = format!("undo {session} {call}");
    let made = by.engine().keyed_calls()?.into_iter();
    let is_of_it = |key: &str| {
        let rest = key.strip_prefix(&first);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let made: Vec<_> = made.filter(|one| is_of_it(&one.key)).collect();
    if made.iter().any(|one| one.end.ends_with("ended as done")) {
        return Ok(Unwound::Called(inverse.tool.clone()));
    }
    let registry = by.registry();
    let is_idempotent = registry
        .tool(&inverse.tool)
        .is_some_and(|tool| tool.idempotent);
    let key = match made.last() {
        None => first,
        // Once more does no more than once.
        Some(_) if is_idempotent => format!("{first}/{}", made.len()),
        Some(made) => {
            let why = format!("{} was called for it before: {}", inverse.tool, made.end);
            return Ok(Unwound::Left(why));
        }
    };
    let cancel = Cancel::new()?;
    let text = inverse.arguments.to_string();
    let ask = |answer: &PriorAnswer| {
        by.call(&Asked {
            name: &inverse.tool,
            arguments: &text,
            key: Some(&key),
            answer,
            cancel: &cancel,
            listener: None,
            answers: None,
            askable: Askable::default(),
        })
    };
    let answered = match ask(&PriorAnswer::Nobody) {
        Err(Refusal::NeedsApproval { asked, arguments }) => {
            ask(&(person.about_call)(&inverse.tool, &arguments, &asked))
        }
        answered => answered,
    };
    Ok(match answered {
        Ok(answer) if answer.is_result() => Unwound::Called(inverse.tool.clone()),
        Ok(answer) => Unwound::Left(format!("{} failed: {}", inverse.tool, answer.text())),
        Err(refusal) => Unwound::Left(format!("{}: {}", inverse.tool, why(refusal))),
    })
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

fn path(state: &Path, session: &RunId) -> PathBuf {
    state.join(UNDO).join(format!("{session}.jsonl"))
}

/// Adds a note, on the disk before it returns.
fn append(state: &Path, session: &RunId, noted: &Noted) -> Result<(), Failure> {
    let write = || -> io::Result<()> {
        let directory = state.join(UNDO);
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)?;
        let path = path(state, session);
        let is_new = !path.exists();
        let mut options = OpenOptions::new();
        let mut file = options.append(true).create(true).mode(0o600).open(&path)?;
        let mut line = serde_json::to_vec(noted)?;
        // What was cut off before is a line of its own.
        line.insert(0, b'\n');
        line.push(b'\n');
        file.write_all(&line)?;
        file.sync_data()?;
        match is_new {
            true => File::open(&directory)?.sync_all(),
            false => Ok(()),
        }
    };
    write().doing("the way back of the call cannot be noted")
}

/// Reads the notes of a session. A line that was cut off is none: nothing followed from it.
fn read(state: &Path, session: &RunId) -> Result<BTreeMap<u32, Noted>, Failure> {
    let file = match File::open(path(state, session)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        opened => opened.doing("the way back of the session cannot be read")?,
    };
    let mut all = BTreeMap::new();
    for line in BufReader::new(file).split(b'\n') {
        let line = line.doing("the way back of the session cannot be read")?;
        if let Ok(noted) = serde_json::from_slice::<Noted>(&line) {
            all.insert(noted.call, noted);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inverse_is_made_of_the_result() {
        let inverse: Inverse = serde_json::from_value(json!({
            "tool": "delete",
            "arguments": {
                "id": "{result.ticket.0.id}", "who": "{arguments.who}", "plain": "x", "all": [1, "{result.n}"]
            },
        }))
        .unwrap();
        let result = json!({ "ticket": [{ "id": 17 }], "n": "{arguments.who}" });
        let call = inverse.of(&json!({ "who": "ann" }), &result).unwrap();
        assert_eq!(
            call.arguments,
            json!({ "id": 17, "who": "ann", "plain": "x", "all": [1, "{arguments.who}"] })
        );
        for result in [
            json!({}),
            json!({ "ticket": [] }),
            json!({ "ticket": [{ "id": null }] }),
        ] {
            let why = inverse.of(&json!({ "who": "ann" }), &result).unwrap_err();
            assert!(why.contains("result.ticket.0.id"), "{why}");
        }
    }

    #[test]
    fn the_last_note_counts_and_a_torn_one_does_not() {
        let state = std::env::temp_dir().join(format!("atoll-undoing-{}", std::process::id()));
        let session = RunId::new(1, 1);
        let mut noted = Noted {
            call: 1,
            is_done: false,
            checkpoint: None,
            inverse: None,
            why: None,
            is_undone: false,
        };
        append(&state, &session, &noted).unwrap();
        let mut file = OpenOptions::new()
            .append(true)
            .open(path(&state, &session))
            .unwrap();
        file.write_all(b"{\"call\":1,\"is_do").unwrap();
        assert!(!read(&state, &session).unwrap()[&1].is_done);
        noted.is_done = true;
        append(&state, &session, &noted).unwrap();
        assert_eq!(read(&state, &session).unwrap()[&1], noted);
        std::fs::remove_dir_all(&state).unwrap();
    }
}
