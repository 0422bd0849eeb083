//! The answer to a call of a tool, and the refusals of one.

use std::time::Duration;

use atoll_engine::NeedsApproval;
use atoll_engine::failure::Failure;
use atoll_engine::tools::Called;
use atoll_model::{Ending, Reason, RunId, ToolEnd, format_duration};
use serde_json::{Value, json};

use crate::block::{Block, text_of};
use crate::cleaned::{Cleaned, clean, clean_texts, defuse};
use crate::exec::{Ran, RanEnd, described};
use crate::filter::{Filter, Pii};
use crate::json;
use crate::limits::Exceeded;
use crate::shadow::{ShadowEnd, ShadowReport};
use crate::tool::{Output, Tool, Work};
use crate::upstream::calls::NoResult;
use crate::upstream::frames::{Asks, Given};

/// The most bytes of a failed program's error output that are given to the caller.
const ERROR_BYTES_MAX: usize = 8 << 10;
/// The longest form of a call as it was sent that is recorded, bytes.
const SENT_BYTES_MAX: usize = 16 << 10;
/// The part of a failed program's error output that is looked at for that.
const ERROR_BYTES_READ: usize = 64 << 10;
/// The most bytes of a result that are no text, in base64: with the largest text, they fit a line.
const DATA_BYTES_MAX: usize = 3 << 20;
/// The largest result that is read as JSON, bytes.
const JSON_BYTES_MAX: usize = 4 << 20;

/// The answer of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The number of the call in its session.
    pub number: u32,
    /// The way that it ended.
    pub end: ToolEnd,
    /// The parts of its result, or of its failure.
    pub blocks: Vec<Block>,
    /// Its result, if that is JSON.
    pub structured: Option<Value>,
    /// The changes of its result, a sentence each.
    pub notes: Vec<String>,
    /// The end of its text that was left out.
    pub rest: String,
    /// The sentences of policies for the person.
    pub told: Vec<String>,
    /// The run of the sandbox that it ran in.
    pub run: Option<RunId>,
    /// The questions of an upstream, which has no result until they are answered.
    pub asks: Option<Asks>,
    /// The number of rows that its statement has changed, if it is one and that is known.
    pub rows: Option<u64>,
    /// The end of its change set, if it had a shadow run.
    pub shadow: Option<Box<ShadowReport>>,
}

/// The reason why a tool did not answer.
#[derive(Debug)]
pub enum Refusal {
    /// There is no such tool for this caller.
    Unknown(String),
    /// The arguments are none that the tool takes: every reason.
    Invalid(Vec<String>),
    /// Policies ask an approver, and nobody was asked.
    NeedsApproval {
        /// The question.
        asked: NeedsApproval,
        /// The arguments as they were judged.
        arguments: String,
    },
    /// A limit or a breaker is in its way, as is recorded.
    Limited(Exceeded),
    /// Refused, and recorded.
    Denied(Vec<Reason>),
    /// No decision, or no record of it, could be made: if it was begun, its end is unknown.
    Failed(Box<Failure>),
}

impl Answer {
    /// Makes one without a result.
    fn new(number: u32, end: ToolEnd, run: Option<RunId>) -> Self {
        Self {
            number,
            end,
            blocks: Vec::new(),
            structured: None,
            notes: Vec::new(),
            rest: String::new(),
            told: Vec::new(),
            run,
            asks: None,
            rows: None,
            shadow: None,
        }
    }

    /// Makes it of a recording.
    pub(crate) fn replayed(
        number: u32,
        end: ToolEnd,
        blocks: Vec<Block>,
        structured: Option<Value>,
    ) -> Self {
        Self {
            blocks,
            structured,
            ..Self::new(number, end, None)
        }
    }

    /// Makes it of a program that has ended.
    pub(crate) fn of(tool: &Tool, number: u32, ran: &Ran, timeout: Duration) -> Called<Self> {
        let end = match &ran.end {
            RanEnd::TimedOut => ToolEnd::TimedOut,
            RanEnd::Cancelled => ToolEnd::Interrupted,
            RanEnd::Ended(Ending::Exited { status: 0 }) => ToolEnd::Done,
            RanEnd::Ended(Ending::Interrupted) => ToolEnd::Interrupted,
            RanEnd::Ended(_) => ToolEnd::Failed,
        };
        let answer = Self::new(number, end, Some(ran.run.clone()));
        match end {
            ToolEnd::Done => answer.of_result(tool, ran),
            ToolEnd::TimedOut => {
                let what = format!("it did not end within {}", format_duration(timeout));
                answer.failed(tool, what, ran)
            }
            ToolEnd::Failed | ToolEnd::Interrupted | ToolEnd::Unknown => {
                let what = match &ran.end {
                    RanEnd::Ended(ending) => described(ending),
                    RanEnd::TimedOut | RanEnd::Cancelled => "its caller ended it".to_owned(),
                };
                answer.failed(tool, what, ran)
            }
        }
    }

    /// Makes it of a call that failed before there was a result.
    pub(crate) fn of_failure(number: u32, failure: &Failure) -> Called<Self> {
        let mut text = failure.what.clone();
        if let Some(why) = &failure.why {
            text = format!("{text}: {why}");
        }
        for one in &failure.reasons {
            text = format!("{text}\n{}: {} ({})", one.what, one.why, one.rule);
        }
        let text = clean(text.as_bytes(), ERROR_BYTES_MAX, Pii::Keep).text;
        let details = json!({ "failure": text });
        let answer = Self {
            blocks: vec![Block::text(text)],
            ..Self::new(number, ToolEnd::Failed, None)
        };
        called(answer, details)
    }

    fn of_result(mut self, tool: &Tool, ran: &Ran) -> Called<Self> {
        let content = match &ran.file {
            None => &ran.stdout,
            Some(Ok(content)) => content,
            Some(Err(why)) => {
                self.end = ToolEnd::Failed;
                return self.failed(tool, format!("its result cannot be read: {why}"), ran);
            }
        };
        let Work::Command(command) = &tool.work else {
            return self.failed(tool, "it is no program".to_owned(), ran);
        };
        let cleaned = match command.output {
            Output::Text => clean(content, tool.result_bytes, tool.filter.pii),
            Output::Json => match structured(tool, content) {
                Ok((value, cleaned)) => {
                    self.structured = Some(value);
                    cleaned
                }
                Err(why) => {
                    self.end = ToolEnd::Failed;
                    return self.failed(tool, why, ran);
                }
            },
        };
        self.take(cleaned, content.len(), ran)
    }

    fn failed(self, tool: &Tool, what: String, ran: &Ran) -> Called<Self> {
        let errors = match ran.stderr.is_empty() {
            true => &ran.stdout,
            false => &ran.stderr,
        };
        // Its end is shown: cut once it is masked, so that no part of a secret is left over.
        let from = errors.len().saturating_sub(ERROR_BYTES_READ);
        let errors = errors.get(from..).unwrap_or_default();
        let mut cleaned = clean(errors, usize::MAX, tool.filter.pii);
        if tool.filter.hides() && !errors.is_empty() {
            cleaned = Cleaned {
                left_out: 1,
                ..Cleaned::default()
            };
        }
        let from = cleaned.text.len().saturating_sub(ERROR_BYTES_MAX);
        cleaned.text.drain(..cleaned.text.ceil_char_boundary(from));
        let mut called = self.take(cleaned, errors.len(), ran);
        let what = clean(what.as_bytes(), ERROR_BYTES_MAX, tool.filter.pii).text;
        let shown = called.answer.text();
        let text = match shown.trim_end() {
            "" => what,
            shown => format!("{what}\n{shown}"),
        };
        called.answer.blocks = vec![Block::text(text)];
        called
    }

    fn take(mut self, cleaned: Cleaned, bytes: usize, ran: &Ran) -> Called<Self> {
        self.notes.extend(cleaned.notes());
        if ran.lost > 0 {
            let lost = ran.lost;
            self.notes
                .push(format!("{lost} bytes of its output were not kept."));
        }
        let ending = match &ran.end {
            RanEnd::Ended(ending) => json!(ending),
            RanEnd::TimedOut | RanEnd::Cancelled => Value::Null,
        };
        let details = json!({
            "run": ran.run.as_str(),
            "ending": ending,
            "bytes": bytes,
            "lost-bytes": ran.lost,
            "changed": cleaned.details(),
        });
        self.rest = cleaned.rest;
        self.blocks = vec![Block::text(cleaned.text)];
        called(self, details)
    }

    /// Makes it of the result of an upstream's tool.
    pub(crate) fn of_upstream(
        tool: &Tool,
        number: u32,
        run: &RunId,
        result: Result<Given, NoResult>,
    ) -> Called<Self> {
        let given = result
            .as_ref()
            .ok()
            .and_then(|given| given.structured.as_ref());
        let rows = given
            .and_then(|all| all.get("changed"))
            .and_then(Value::as_u64);
        let mut called = Self::of_given(tool, number, run, result);
        // Also where it is too large to be given: the rows are changed.
        called.answer.rows = rows;
        called
    }

    fn of_given(
        tool: &Tool,
        number: u32,
        run: &RunId,
        result: Result<Given, NoResult>,
    ) -> Called<Self> {
        let answer = |end| Self::new(number, end, Some(run.clone()));
        let without = |end, why: String| {
            let mut answer = answer(end);
            let why = clean(why.as_bytes(), ERROR_BYTES_MAX, tool.filter.pii).text;
            let details = json!({ "run": run.as_str(), "failure": why });
            answer.blocks = vec![Block::text(why)];
            called(answer, details)
        };
        let given = match result {
            Ok(given) => given,
            Err(none) => {
                let (end, why) = unanswered(none, tool.timeout);
                return without(end, why);
            }
        };
        let Given {
            mut blocks,
            mut structured,
            is_error,
            sent,
            asks,
            status: _,
        } = given;
        let data: usize = blocks.iter().map(Block::data_bytes).sum();
        if data > DATA_BYTES_MAX {
            let what = format!("its result has {data} bytes of data, and {DATA_BYTES_MAX} at most");
            return without(ToolEnd::Failed, what);
        }
        if let (Some(value), false) = (&structured, is_error)
            && let Err(why) = check(tool, value)
        {
            return without(ToolEnd::Failed, why);
        }
        let mut noted = Cleaned::default();
        if tool.filter.hides() {
            blocks = hidden(blocks, &tool.filter, &mut noted);
        }
        clean_blocks(&mut blocks, tool, &mut noted);
        if let Some(value) = &mut structured {
            noted.hidden += tool.filter.hide(value);
            clean_texts(value, tool.filter.pii, &mut noted);
        }
        let is_large = |value: &Value| value.to_string().len() > tool.result_bytes;
        if structured.as_ref().is_some_and(is_large) {
            let what = "its result is too large, and JSON is not cut".to_owned();
            return without(ToolEnd::Failed, what);
        }
        let details = json!({
            "run": run.as_str(),
            "parts": blocks.len(),
            "data-bytes": data,
            "changed": noted.details(),
            "sent": sent.map(|sent| recorded(&sent)),
            "asks": asks.as_ref().map(|asks| recorded(&json!(asks.requests).to_string())),
        });
        let mut answer = answer(match is_error {
            true => ToolEnd::Failed,
            false => ToolEnd::Done,
        });
        answer.notes.extend(noted.notes());
        answer.rest = noted.rest;
        (answer.blocks, answer.structured, answer.asks) = (blocks, structured, asks);
        called(answer, details)
    }

    /// Makes it of a call that was not made, since the upstream offers its tool otherwise than a
    /// person has approved it.
    pub(crate) fn held(number: u32, upstream: &str, run: &RunId) -> Called<Self> {
        let what = format!(
            "Held: the upstream offers this tool otherwise than a person has approved it. Nothing \
             was called. `atoll tools pin {upstream}` shows the difference, and approves it."
        );
        let answer = Self {
            blocks: vec![Block::text(what)],
            ..Self::new(number, ToolEnd::Failed, Some(run.clone()))
        };
        called(answer, json!({ "run": run.as_str(), "held": true }))
    }

    /// Has it tell the end of its change set: without one that was applied it is no result.
    pub(crate) fn with_shadow(mut called: Called<Self>, report: ShadowReport) -> Called<Self> {
        let sentence = report.sentence();
        let sentence = clean(sentence.as_bytes(), ERROR_BYTES_MAX, Pii::Keep).text;
        if let Some(details) = called.details.as_object_mut() {
            let change = report.change.as_ref();
            let digest = change.map(|change| change.facts.digest.clone());
            let shadow = json!({ "end": report.end.name(), "digest": digest });
            details.insert("shadow".to_owned(), shadow);
        }
        let answer = &mut called.answer;
        let failed = match report.end {
            ShadowEnd::Applied | ShadowEnd::Unchanged => {
                answer.notes.push(sentence);
                answer.shadow = Some(Box::new(report));
                return called;
            }
            ShadowEnd::Denied(_) | ShadowEnd::Dropped(_) => ToolEnd::Failed,
            ShadowEnd::Unknown(_) => ToolEnd::Unknown,
        };
        let text = match answer.text().trim() {
            "" => sentence,
            text => format!("{sentence}\n{text}"),
        };
        answer.blocks = vec![Block::text(text)];
        (answer.structured, answer.asks) = (None, None);
        answer.rest.clear();
        if matches!(answer.end, ToolEnd::Done | ToolEnd::Failed) {
            answer.end = failed;
        }
        answer.shadow = Some(Box::new(report));
        called.end = called.answer.end;
        called
    }

    /// Returns the text of its parts.
    #[must_use]
    pub fn text(&self) -> String {
        text_of(&self.blocks)
    }

    /// Returns the size of its parts, bytes.
    pub(crate) fn bytes(&self) -> usize {
        let data: usize = self.blocks.iter().map(Block::data_bytes).sum();
        data + self.text().len()
    }

    /// Returns whether it is a result, and no failure.
    #[must_use]
    pub fn is_result(&self) -> bool {
        self.end == ToolEnd::Done
    }
}

/// Returns the way that a call without a result ends, and why.
fn unanswered(none: NoResult, timeout: Duration) -> (ToolEnd, String) {
    match none {
        NoResult::TimedOut => {
            let what = format!("it did not answer within {}", format_duration(timeout));
            (ToolEnd::TimedOut, what)
        }
        NoResult::Cancelled => (ToolEnd::Interrupted, "its caller ended it".to_owned()),
        NoResult::NotSent(why) => (ToolEnd::Failed, why),
        NoResult::Gone(why) => {
            let why = format!("{why}\nWhether the call had an effect is unknown.");
            (ToolEnd::Unknown, why)
        }
    }
}

fn called(answer: Answer, details: Value) -> Called<Answer> {
    Called {
        end: answer.end,
        answer,
        details,
    }
}

/// Returns a text as it is recorded.
fn recorded(text: &str) -> String {
    clean(text.as_bytes(), SENT_BYTES_MAX, Pii::Keep).text
}

/// Checks a result that is JSON.
fn check(tool: &Tool, result: &Value) -> Result<(), String> {
    let checked = tool.result.as_ref().map(|schema| schema.check(result));
    let wrong = |all: Vec<String>| match tool.filter.hides() {
        // They quote it.
        true => "its result is not as described".to_owned(),
        false => format!("its result is not as described: {}", all.join("; ")),
    };
    checked.unwrap_or(Ok(())).map_err(wrong)
}

/// Parses a result as JSON, checks it, and cleans each text in it; returns it with its own text.
fn structured(tool: &Tool, content: &[u8]) -> Result<(Value, Cleaned), String> {
    let text = std::str::from_utf8(content).map_err(|_| "its result is not UTF-8".to_owned())?;
    let value = json::parse(text, JSON_BYTES_MAX);
    let mut value = value.map_err(|error| format!("its result is no JSON: {error}"))?;
    check(tool, &value)?;
    let mut cleaned = Cleaned {
        hidden: tool.filter.hide(&mut value),
        ..Cleaned::default()
    };
    clean_texts(&mut value, tool.filter.pii, &mut cleaned);
    cleaned.text = value.to_string();
    if cleaned.text.len() > tool.result_bytes {
        let most = tool.result_bytes;
        return Err(format!(
            "its result is longer than {most} bytes, and JSON is not cut"
        ));
    }
    Ok((value, cleaned))
}

/// Hides fields in the parts that are JSON, and leaves other ones out.
fn hidden(blocks: Vec<Block>, filter: &Filter, noted: &mut Cleaned) -> Vec<Block> {
    let mut kept = Vec::new();
    for mut block in blocks {
        let content = block.content_mut();
        let shown = content.as_ref().and_then(|text| filter.hide_in(text));
        match (content, shown) {
            (Some(content), Some((text, hidden))) => {
                noted.hidden += hidden;
                *content = text;
                kept.push(block);
            }
            _ => noted.left_out += 1,
        }
    }
    kept
}

/// Cleans the texts of parts, which have so many bytes together, and notes what was changed.
fn clean_blocks(blocks: &mut [Block], tool: &Tool, noted: &mut Cleaned) {
    let mut left = tool.result_bytes;
    for text in blocks.iter_mut().flat_map(Block::texts_mut) {
        let mut cleaned = clean(text.as_bytes(), left, tool.filter.pii);
        left -= cleaned.text.len();
        cleaned.is_defused = defuse(&mut cleaned.text);
        noted.add(&cleaned);
        *text = cleaned.text;
    }
}
