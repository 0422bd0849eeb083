//! Recordings of sessions: every call with its verdict and answer, by which a session is replayed
//! without an effect.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use atoll_engine::failure::{Doing, Failure};
use atoll_engine::tools::Called;
use atoll_model::ToolEnd;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::answer::{Answer, Refusal};
use crate::block::Block;

/// The largest line of a recording, bytes.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// The ends of calls.
const ENDS: [ToolEnd; 5] = [
    ToolEnd::Done,
    ToolEnd::Failed,
    ToolEnd::TimedOut,
    ToolEnd::Interrupted,
    ToolEnd::Unknown,
];

/// The recording of a session.
#[derive(Debug)]
pub enum Recording {
    /// Calls are written to this file.
    To(Mutex<File>),
    /// Calls are answered by these, and nothing is carried out.
    From(Mutex<VecDeque<RecordedCall>>),
}

/// A call as it is recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedCall {
    /// The tool.
    pub tool: String,
    /// The arguments.
    pub arguments: Value,
    /// The verdict: `allowed`, `denied` or `rejected`.
    pub verdict: String,
    /// The answer, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<RecordedAnswer>,
}

/// The answer to a call as it is recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedAnswer {
    /// The way that it ended.
    pub end: String,
    /// The parts of its result.
    pub blocks: Vec<Block>,
    /// Its result, if that is JSON.
    #[serde(default)]
    pub structured: Option<Value>,
}

impl RecordedCall {
    /// Reads the calls of a recording.
    ///
    /// # Errors
    /// When it cannot be read, with the line that is none.
    pub fn read_all(path: &Path) -> Result<Vec<Self>, Failure> {
        let read = || -> io::Result<Vec<Self>> {
            let mut from = BufReader::new(File::open(path)?);
            let mut all = Vec::new();
            loop {
                let mut line = Vec::new();
                let most = io::Read::by_ref(&mut from);
                if io::Read::take(most, LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
                    return Ok(all);
                }
                let call = serde_json::from_slice(&line);
                let number = all.len() + 1;
                let wrong = |error| io::Error::other(format!("line {number}: {error}"));
                all.push(call.map_err(wrong)?);
            }
        };
        read().doing(&format!("{} is no recording of calls", path.display()))
    }

    /// Describes its call and verdict in one line. The ledger has no arguments that were rejected.
    #[must_use]
    pub fn line(&self) -> String {
        match self.verdict.as_str() {
            "rejected" => format!("{}: rejected", self.tool),
            verdict => format!("{} {}: {verdict}", self.tool, self.arguments),
        }
    }
}

impl Recording {
    /// Begins a recording in a new file.
    ///
    /// # Errors
    /// When it cannot be made, or is there.
    pub fn to(path: &Path) -> Result<Self, Failure> {
        let mut options = OpenOptions::new();
        let made = options.write(true).create_new(true).mode(0o600).open(path);
        let made = made.doing(&format!("{} cannot be made", path.display()));
        made.map(|file| Self::To(Mutex::new(file)))
    }

    /// Takes the answers of a recording.
    ///
    /// # Errors
    /// As of [`RecordedCall::read_all`].
    pub fn from(path: &Path) -> Result<Self, Failure> {
        let all = RecordedCall::read_all(path)?;
        Ok(Self::From(Mutex::new(all.into())))
    }

    /// Returns the recorded answer to a call that is allowed, if calls are answered so.
    pub(crate) fn answer(
        &self,
        tool: &str,
        arguments: &Value,
        number: u32,
    ) -> Option<Called<Answer>> {
        let Self::From(left) = self else {
            return None;
        };
        let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
        let is_this = |one: &RecordedCall| {
            one.tool == tool && one.arguments == *arguments && one.answer.is_some()
        };
        let found = left.iter().position(is_this);
        let found = found.and_then(|at| left.remove(at)?.answer);
        let answer = found.unwrap_or_else(|| RecordedAnswer {
            end: ToolEnd::Failed.name().to_owned(),
            blocks: vec![Block::text("This call is not in the recording.".to_owned())],
            structured: None,
        });
        let end = ENDS.into_iter().find(|end| end.name() == answer.end);
        let end = end.unwrap_or(ToolEnd::Unknown);
        let answer = Answer::replayed(number, end, answer.blocks, answer.structured);
        Some(Called {
            end,
            answer,
            details: json!({ "replayed": true }),
        })
    }

    /// Adds a call to the file.
    pub(crate) fn note(
        &self,
        tool: &str,
        arguments: &str,
        called: &Result<Answer, Refusal>,
    ) -> Result<(), Failure> {
        let Self::To(file) = self else {
            return Ok(());
        };
        let answer = |answer: &Answer| RecordedAnswer {
            end: answer.end.name().to_owned(),
            blocks: answer.blocks.clone(),
            structured: answer.structured.clone(),
        };
        let verdict = match called {
            Ok(_) => "allowed",
            Err(Refusal::Denied(_)) => "denied",
            Err(Refusal::Invalid(_) | Refusal::Limited(_)) => "rejected",
            Err(Refusal::Unknown(_) | Refusal::NeedsApproval { .. } | Refusal::Failed(_)) => {
                return Ok(());
            }
        };
        let text = || Value::String(arguments.to_owned());
        let call = RecordedCall {
            tool: tool.to_owned(),
            arguments: serde_json::from_str(arguments).unwrap_or_else(|_| text()),
            verdict: verdict.to_owned(),
            answer: called.as_ref().ok().map(answer),
        };
        let write = || -> io::Result<()> {
            let mut line = serde_json::to_vec(&call)?;
            line.push(b'\n');
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            file.write_all(&line)
        };
        write().doing("the call cannot be recorded")
    }
}
