//! Refusals as JSON, for programs: what was asked for, why it was refused, and how to ask for it.

use serde::Serialize;

/// Advice to the program when an option of the run decides: who decides, and where the decision is
/// shown.
pub(crate) const HOW_TO_ASK: &str = "Whoever started this run decides: there, `atoll why last` shows which option allows it. Trying again changes nothing.";

/// The JSON body of a response by Atoll.
#[derive(Serialize)]
pub(crate) struct DenialBody<'a> {
    pub(crate) what: &'a str,
    pub(crate) why: &'a str,
    pub(crate) rule: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) how_to_ask: Option<&'a str>,
}

impl DenialBody<'_> {
    /// Returns the body as text.
    pub(crate) fn text(&self) -> Vec<u8> {
        // Texts alone: they can be written.
        let mut text = serde_json::to_vec(self).unwrap_or_default();
        text.push(b'\n');
        text
    }
}

/// Renders the text for a program whose connection by the proxy is refused.
pub(crate) fn refusal(what: &str, why: &str) -> Vec<u8> {
    let told = DenialBody {
        what,
        why,
        rule: None,
        how_to_ask: Some(HOW_TO_ASK),
    };
    told.text()
}

/// Renders the text for a program whose host the proxy cannot reach.
pub(crate) fn failure(what: &str, why: &str) -> Vec<u8> {
    let told = DenialBody {
        what,
        why,
        rule: None,
        how_to_ask: None,
    };
    told.text()
}
