//! Tools: requests about them, and what is answered.

use atoll_tools::{Answers, Askable, Asks, Block, ChangedLists, Form};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::request::requests;

requests! {
    /// A request about tools.
    ToolsAsk {
        /// Lists what the caller may call of a form.
        ListTools { session: Option<String>, form: Form } -> Vec<ToolFacts>;
        /// Tells when such a list has changed.
        WatchTools { session: Option<String> } -> (), then ChangedLists;
        /// Calls one. What is said meanwhile comes as content before the answer.
        CallTool(Box<CallToolAsk>) -> ToolReply;
        /// Tells whether a call would be carried out, without making it.
        MayCall { session: Option<String>, name: String, arguments: String } -> MayFacts;
        /// Reads on in a result that was cut.
        ReadResult { session: Option<String>, call: u32, from: usize } -> ResultPart;
        /// Ends a session, with its sandboxes.
        EndToolSession { session: String } -> ();
    }
}

/// The owner of a credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallerFacts {
    /// The tenant.
    pub tenant: String,
    /// The caller's name in it.
    pub name: String,
}

/// A call of a tool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CallToolAsk {
    /// The session of the caller's that it belongs to; that without a name if `None`.
    pub session: Option<String>,
    /// The tool.
    pub name: String,
    /// The arguments, as JSON text.
    pub arguments: String,
    /// The name by which the call is made once.
    pub key: Option<String>,
    /// True if the caller listens to what is said meanwhile.
    pub listens: bool,
    /// The answers to what an upstream asked when the call was made before.
    pub answers: Option<Answers>,
    /// The questions that an upstream may ask the caller.
    pub askable: Askable,
}

/// A tool, as its callers see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ToolFacts {
    /// Its name.
    pub name: String,
    /// Its name for people, if it has another one.
    pub title: Option<String>,
    /// The text that tells a model what it is for.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub arguments: Value,
    /// The JSON Schema of its result, if that is JSON.
    pub result: Option<Value>,
    /// The worst that it does: `read`, `write`, `send`, `merge` or `deploy`.
    pub effect: String,
    /// True if two calls do no more than one.
    pub idempotent: bool,
    /// The prompt or the resources that calls reach, as MCP describes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(ignore)]
    pub offers: Vec<Value>,
}

/// The result of a request for a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolReply {
    /// The tool has answered, or failed.
    Answer(Box<ToolAnswer>),
    /// There is no such tool for this caller.
    Unknown(String),
    /// The arguments are none that the tool takes: every reason.
    Invalid(Vec<String>),
    /// A limit or a breaker is in its way.
    Limited(LimitFacts),
    /// Policies refuse it.
    Denied(Vec<ReasonFacts>),
    /// Policies ask a person, and the client can ask one.
    NeedsApproval(ApprovalNeeded),
}

/// A limit in the way of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LimitFacts {
    /// The limit.
    pub why: String,
    /// The time after which the call may be made, seconds; `null` if a person has to do something.
    pub retry_after_s: Option<u64>,
}

/// A call that a person is asked about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ApprovalNeeded {
    /// The digest of what would be approved.
    pub agreement: String,
    /// The arguments as they were judged, as JSON text.
    pub arguments: String,
    /// The reasons to ask.
    pub reasons: Vec<ReasonFacts>,
}

/// The answer of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ToolAnswer {
    /// The id of the call, by which the ledger has it.
    pub call: String,
    /// The way that it ended: `done`, `failed`, `timed-out`, `interrupted` or `unknown`.
    pub end: String,
    /// The text of its result, or of its failure.
    pub text: String,
    /// The parts of its result, in the form of MCP.
    #[schema(value_type = Vec<Object>)]
    pub blocks: Vec<Block>,
    /// Its result, if that is JSON.
    pub structured: Option<Value>,
    /// The trust in its result: always `untrusted`.
    pub label: String,
    /// The changes of its result, a sentence each.
    pub notes: Vec<String>,
    /// The end of its change set, if it ran on a copy first: `end` (`applied`, `unchanged`, `denied`,
    /// `dropped`, `unknown`), `why`, `change` with `kind` and `digest`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub shadow: Option<Value>,
    /// The bytes at the end of its text that were left out, and can be read by the number of the
    /// call.
    pub rest_bytes: usize,
    /// The questions of an upstream, which has no result until they are answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub asks: Option<Asks>,
}

/// A part of the end of a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResultPart {
    /// Its text.
    pub text: String,
    /// The place of the next part, bytes after the cut; `null` at the end.
    pub next: Option<usize>,
}

/// A reason of a refusal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReasonFacts {
    /// The right that is refused.
    pub what: String,
    /// The reason.
    pub why: String,
    /// The rule, with its place.
    pub rule: String,
    /// The way to have it allowed.
    pub how_to_ask: String,
}

/// The verdict on a call that is not made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MayFacts {
    /// `allow`, `ask`, `deny`, or `invalid` where the arguments are none of the tool's.
    pub verdict: String,
    /// The reasons, where it is not `allow`.
    pub reasons: Vec<ReasonFacts>,
}
