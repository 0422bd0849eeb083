//! The way back of a tool's calls: what is described of it, and the notes about single calls, which are on
//! the disk before an effect and after its result.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use atoll_checkpoint::Target;
use atoll_engine::checkpoints::targets;
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::undo_notes::{UNDO, path};
use atoll_ledger::StateDir;
use atoll_ledger::private::PrivateDirectory;
use atoll_model::{RunId, ToolEffect, ToolUndo};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The longest value of a call that an inverse is given, bytes.
const NAMED_BYTES_MAX: usize = 1_024;

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
pub(crate) struct InverseCall {
    pub(crate) tool: String,
    pub(crate) arguments: Value,
}

/// The note about a call; of several the last counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Noted {
    pub(crate) call: u32,
    /// True once the result is known.
    pub(crate) is_done: bool,
    pub(crate) checkpoint: Option<String>,
    pub(crate) inverse: Option<InverseCall>,
    /// The reason why there is no inverse, where there should be one.
    pub(crate) why: Option<String>,
    /// True once it was taken back.
    pub(crate) is_undone: bool,
    /// True once an undo has begun to call its inverse.
    #[serde(default)]
    pub(crate) is_begun: bool,
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
    pub(crate) fn of(&self, arguments: &Value, result: &Value) -> Result<InverseCall, String> {
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
        // What an upstream has answered names a thing, and is no structure of its own.
        Some(Value::String(text)) if text.len() > NAMED_BYTES_MAX => {
            Err(format!("{place} is longer than {NAMED_BYTES_MAX} bytes"))
        }
        Some(Value::Array(_) | Value::Object(_)) => Err(format!("{place} is no single value")),
        Some(found) => Ok(found.clone()),
    }
}

/// Takes the right to undo sessions: no two do that at once.
pub(crate) fn lock(state: &StateDir) -> Result<OwnedFd, Failure> {
    let failed = "another undo of a session is under way";
    let place = PrivateDirectory::of_state(state, UNDO, true).doing(failed)?;
    place
        .ok_or_else(|| Failure::new(failed))?
        .lock()
        .doing(failed)
}

/// Adds a note, on the disk before it returns.
pub(crate) fn append(state: &Path, session: &RunId, noted: &Noted) -> Result<(), Failure> {
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
pub(crate) fn read(state: &Path, session: &RunId) -> Result<BTreeMap<u32, Noted>, Failure> {
    let file = match File::open(path(state, session)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        opened => opened.doing("the way back of the session cannot be read")?,
    };
    let mut all = BTreeMap::new();
    for line in BufReader::new(file).split(b'\n') {
        let line = line.doing("the way back of the session cannot be read")?;
        if let Ok(mut noted) = serde_json::from_slice::<Noted>(&line) {
            // A call that goes on notes its end after an undo has come.
            let earlier: Option<&Noted> = all.get(&noted.call);
            noted.is_undone |= earlier.is_some_and(|earlier| earlier.is_undone);
            all.insert(noted.call, noted);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
            is_begun: false,
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
