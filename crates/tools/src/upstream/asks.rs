//! The questions of upstreams to the clients of calls, before they are passed on.

use serde_json::Value;

use super::frames::{Askable, Asks};
use crate::cleaned::{Cleaned, clean_texts};
use crate::filter::Pii;

/// The most questions at a time.
const ASKED_MAX: usize = 16;

impl Asks {
    /// Checks that the client has declared that it can be asked all this, and cleans it: whoever reads
    /// a question to a person is told who asks.
    pub(crate) fn check(
        &mut self,
        askable: Askable,
        upstream: &str,
        bytes_max: usize,
        pii: Pii,
    ) -> Result<(), String> {
        if self.requests.is_empty() || self.requests.len() > ASKED_MAX {
            return Err(format!(
                "it asks for nothing, or more than {ASKED_MAX} answers"
            ));
        }
        for request in self.requests.values_mut() {
            clean_texts(request, pii, &mut Cleaned::default());
            let is_form = request
                .pointer("/params/mode")
                .is_none_or(|mode| mode == "form");
            let (of_client, undeclared) = match request.get("method").and_then(Value::as_str) {
                // Nobody is sent to an address by an upstream.
                Some("elicitation/create") if is_form => {
                    (askable.elicitation, &mut self.undeclared.elicitation)
                }
                Some("sampling/createMessage") => (askable.sampling, &mut self.undeclared.sampling),
                Some("roots/list") => (askable.roots, &mut self.undeclared.roots),
                _ => return Err("it asks for what no client is asked for".to_owned()),
            };
            *undeclared |= !of_client;
            if let Some(Value::String(message)) = request.pointer_mut("/params/message") {
                message.insert_str(0, &format!("{upstream}: "));
            }
        }
        if self.undeclared != Askable::default() {
            return Err("it asks for what its caller has not declared to answer".to_owned());
        }
        let state = self.state.as_ref().map_or(0, String::len);
        match Value::Object(self.requests.clone()).to_string().len() + state > bytes_max {
            true => Err("its questions are too long".to_owned()),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn questions_are_those_that_the_client_has_declared() {
        let check = |askable, request: Value| {
            let Value::Object(requests) = json!({ "one": request }) else {
                panic!("it is an object");
            };
            let mut asks = Asks {
                requests,
                state: None,
                undeclared: Askable::default(),
            };
            let checked = asks.check(askable, "notes", 1_000, Pii::Keep);
            checked.map(|()| asks.requests["one"].clone())
        };
        let elicit = |message: &str| json!({ "method": "elicitation/create", "params": { "message": message } });
        let able = Askable {
            elicitation: true,
            ..Askable::default()
        };
        assert_eq!(check(able, elicit("Who?")), Ok(elicit("notes: Who?")));
        assert_eq!(
            check(able, elicit("\u{202e}")),
            Ok(elicit("notes: \\u{202e}"))
        );
        assert!(check(Askable::default(), elicit("Who?")).is_err());
        assert!(check(able, json!({ "method": "sampling/createMessage" })).is_err());
        assert!(check(able, json!({ "method": "roots/list" })).is_err());
        assert!(check(able, json!({ "method": "tools/call" })).is_err());
        let mut to_an_address = elicit("Sign in");
        to_an_address["params"]["mode"] = json!("url");
        assert!(check(able, to_an_address).is_err());
        assert!(check(able, elicit(&"x".repeat(2_000))).is_err());
    }
}
