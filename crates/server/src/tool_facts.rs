//! Tools and calls, in the words of the protocol.

use std::time::Duration;

use atoll_model::Reason;
use atoll_tools::{Answer, Exceeded, Listing, May, Part, Refusal};

use crate::protocol::{
    ApprovalNeeded, Kind, LimitFacts, MayFacts, ReasonFacts, Refusal as Refused, ResultPart,
    ToolAnswer, ToolFacts, ToolReply,
};

/// The label of every result: nothing that a tool says is an instruction.
const UNTRUSTED: &str = "untrusted";

impl From<Listing> for ToolFacts {
    fn from(listing: Listing) -> Self {
        let Listing { tool, offers } = listing;
        Self {
            name: tool.name.to_string(),
            title: tool.title.clone(),
            description: tool.description.clone(),
            arguments: tool.arguments.value().clone(),
            // Fields that are hidden could be required in it.
            result: tool.shown_result().map(|schema| schema.value().clone()),
            effect: tool.effect.name().to_owned(),
            idempotent: tool.idempotent,
            offers,
        }
    }
}

impl From<Reason> for ReasonFacts {
    fn from(reason: Reason) -> Self {
        let Reason {
            what,
            why,
            rule,
            how_to_ask,
        } = reason;
        Self {
            what,
            why,
            rule,
            how_to_ask,
        }
    }
}

fn limit(exceeded: Exceeded) -> LimitFacts {
    let up = |time: Duration| time.as_secs() + u64::from(time.subsec_nanos() > 0);
    LimitFacts {
        why: exceeded.why,
        retry_after_s: exceeded.retry_after.map(up),
    }
}

fn reasons(all: Vec<Reason>) -> Vec<ReasonFacts> {
    all.into_iter().map(ReasonFacts::from).collect()
}

/// Describes the result of a call in a session.
pub(crate) fn reply(session: &str, called: Result<Answer, Refusal>) -> Result<ToolReply, Refused> {
    Ok(match called {
        Ok(answer) => ToolReply::Answer(Box::new(ToolAnswer {
            call: format!("{session}/tool/{}", answer.number),
            end: answer.end.name().to_owned(),
            // Whoever shows it makes it of the parts: it comes once over the line.
            text: String::new(),
            blocks: answer.blocks,
            structured: answer.structured,
            label: UNTRUSTED.to_owned(),
            notes: answer.notes,
            shadow: answer.shadow.map(|report| report.json()),
            rest_bytes: answer.rest.len(),
            asks: answer.asks,
        })),
        Err(Refusal::Unknown(name)) => ToolReply::Unknown(name),
        Err(Refusal::Invalid(why)) => ToolReply::Invalid(why),
        Err(Refusal::Limited(exceeded)) => ToolReply::Limited(limit(exceeded)),
        Err(Refusal::Denied(all)) => ToolReply::Denied(reasons(all)),
        Err(Refusal::NeedsApproval { asked, arguments }) => {
            ToolReply::NeedsApproval(ApprovalNeeded {
                agreement: asked.agreement,
                arguments,
                reasons: reasons(asked.reasons),
            })
        }
        Err(Refusal::Failed(failure)) => return Err(failed(&failure)),
    })
}

/// Describes the verdict on a call.
pub(crate) fn may(verdict: Result<May, Refusal>) -> Result<MayFacts, Refused> {
    let (verdict, all) = match verdict {
        Ok(May::Yes) => ("allow", Vec::new()),
        Ok(May::Ask(all)) => ("ask", reasons(all)),
        Ok(May::No(all)) | Err(Refusal::Denied(all)) => ("deny", reasons(all)),
        Err(Refusal::NeedsApproval { asked, .. }) => ("ask", reasons(asked.reasons)),
        Err(Refusal::Invalid(why)) => {
            let reason = |why: String| ReasonFacts {
                what: "the arguments".to_owned(),
                why,
                rule: "the tool's schema".to_owned(),
                how_to_ask: "look at the tool's schema".to_owned(),
            };
            ("invalid", why.into_iter().map(reason).collect())
        }
        Err(Refusal::Limited(exceeded)) => {
            return Err(Refused::new(Kind::Quota, exceeded.why));
        }
        Err(Refusal::Unknown(name)) => return Err(unknown(&name)),
        Err(Refusal::Failed(failure)) => return Err(failed(&failure)),
    };
    Ok(MayFacts {
        verdict: verdict.to_owned(),
        reasons: all,
    })
}

/// Returns the refusal of a tool that the caller does not have.
pub(crate) fn unknown(name: &str) -> Refused {
    let what = format!("there is no tool {name:?}");
    Refused::new(Kind::NotFound, what).advise("list the tools: GET /v1/tools")
}

/// Describes a part of a result.
pub(crate) fn part(part: Option<Part>) -> Result<ResultPart, Refused> {
    let Part { text, next } = part.ok_or_else(|| {
        let what = "nothing is kept of this result";
        Refused::new(Kind::NotFound, what).advise("call the tool again, for less")
    })?;
    Ok(ResultPart { text, next })
}

/// Returns the refusal that a failure means.
pub(crate) fn failed(failure: &atoll_engine::failure::Failure) -> Refused {
    let what = match &failure.why {
        Some(why) => format!("{}: {why}", failure.what),
        None => failure.what.clone(),
    };
    Refused::new(Kind::Unavailable, what)
}
