//! The facts that counted for a decision besides rules and policies: the data labels of the session
//! by then, and the rights that the run had dropped. Both are in the ledger.

use std::collections::{BTreeSet, HashMap};

use atoll_cedar::Case;
use atoll_ledger::{Event, Filter, LABEL_GAINED, Ledger, RIGHTS_GIVEN_UP, StateDir};
use atoll_model::network::{GivenUp, GivenUps, HostPart};
use atoll_model::{RunId, SessionId};
use serde_json::Value;

use crate::events::session_of;
use crate::failure::{Doing, Failure};
use crate::given_up::{is_of_token, take_given_up};

/// The labels and dropped rights of a run.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// The data labels.
    pub labels: BTreeSet<String>,
    /// The dropped rights.
    pub given_up: GivenUps,
}

/// Returns why something is denied whatever rules and policies say: the right to it was dropped.
pub fn why_denied(given_up: &GivenUps, case: &Case) -> Option<String> {
    let given = match case.action.as_str() {
        "resolve" | "connect" | "request" => {
            let host: HostPart = case.resource.parse().ok()?;
            given_up.host(&host, case.time)
        }
        "use_credential" => given_up.credential(&case.resource.parse().ok()?),
        "publish" => given_up.network(case.time),
        _ => None,
    };
    given.map(GivenUp::why)
}

impl Past {
    fn take(&mut self, event: &Event) {
        match event.kind.as_str() {
            LABEL_GAINED => {
                let label = event.body.get("label").and_then(Value::as_str);
                self.labels.extend(label.map(str::to_owned));
            }
            RIGHTS_GIVEN_UP => take_given_up(&mut self.given_up, &event.body),
            _ => {}
        }
    }
}

/// The pasts of all runs, as far as events were taken: in the order of the ledger.
#[derive(Default)]
pub struct Pasts {
    runs: HashMap<RunId, (Option<SessionId>, Past)>,
    sessions: HashMap<SessionId, Past>,
}

impl Pasts {
    /// Reads the labels and dropped rights of a run's session before the run's first event.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub fn before(state: &StateDir, opened: &Event) -> Result<Self, Failure> {
        let mut pasts = Self::default();
        let Some(session) = session_of(opened) else {
            return Ok(pasts);
        };
        let filter = Filter {
            session: Some(session),
            ..Filter::default()
        };
        for event in Ledger::events(state, filter).doing("the ledger cannot be read")? {
            let event =
                event.doing("the ledger is damaged there; atoll ledger verify tells more")?;
            if event.position.seq >= opened.position.seq {
                break;
            }
            pasts.take(&event);
        }
        Ok(pasts)
    }

    /// Takes an event of a run into account, for the run and its session.
    pub fn take(&mut self, event: &Event) {
        let Some(run) = &event.run else {
            return;
        };
        if event.kind == "run.opened" {
            return self.open(run, event);
        }
        if !matches!(event.kind.as_str(), LABEL_GAINED | RIGHTS_GIVEN_UP) {
            return;
        }
        let (session, past) = self.runs.entry(run.clone()).or_default();
        past.take(event);
        if let Some(session) = session
            && !is_of_token(&event.body)
        {
            let shared = self.sessions.entry(session.clone()).or_default();
            shared.take(event);
        }
    }

    /// Begins a run of a session with the labels and dropped rights of the runs before it.
    fn open(&mut self, run: &RunId, event: &Event) {
        let session = session_of(event);
        let begun = event.body.pointer("/decision/labels");
        let begun = begun.and_then(Value::as_array).into_iter().flatten();
        let begun: Vec<String> = begun.filter_map(Value::as_str).map(str::to_owned).collect();
        let mut past = Past::default();
        if let Some(session) = &session {
            let shared = self.sessions.entry(session.clone()).or_default();
            shared.labels.extend(begun.iter().cloned());
            past = shared.clone();
        }
        past.labels.extend(begun);
        self.runs.insert(run.clone(), (session, past));
    }

    /// Returns the labels and dropped rights of a run so far.
    pub fn of(&self, run: &RunId) -> Past {
        let known = self.runs.get(run);
        known.map(|(_, past)| past.clone()).unwrap_or_default()
    }

    /// Forgets a run that has ended; its session can go on.
    pub fn forget(&mut self, run: &RunId) {
        self.runs.remove(run);
    }
}

#[cfg(test)]
mod tests {
    use atoll_ledger::{Position, TreeHash};
    use serde_json::json;

    use super::*;

    fn event(run: &str, kind: &str, body: Value) -> Event {
        Event {
            run: Some(RunId::parse(run).unwrap()),
            position: Position {
                seq: 0,
                leaf: TreeHash::ZERO,
                segment: 1,
                offset: 0,
            },
            prev: TreeHash::ZERO,
            time: "2026-11-21T09:30:12.123456Z".to_owned(),
            kind: kind.to_owned(),
            body,
        }
    }

    fn labels(pasts: &Pasts, run: &str) -> Vec<String> {
        let past = pasts.of(&RunId::parse(run).unwrap());
        past.labels.into_iter().collect()
    }

    #[test]
    fn a_run_of_a_session_begins_with_what_those_before_it_have_come_to() {
        let [one, two, other] = [
            "260504-101112-aaaa",
            "260504-101113-bbbb",
            "260504-101114-cccc",
        ];
        let session = json!(SessionId::new(1_800_000_000, 7).as_str());
        let mut pasts = Pasts::default();
        let opened =
            |labels: Value| json!({ "session": session, "decision": { "labels": labels } });
        pasts.take(&event(one, "run.opened", opened(json!(["private"]))));
        pasts.take(&event(other, "run.opened", json!({})));
        assert_eq!(labels(&pasts, one), ["private"]);
        pasts.take(&event(
            one,
            "label.gained",
            json!({ "label": "untrusted", "by": "x" }),
        ));
        let given = json!({ "at": 5, "by": "program", "host": "*.example.com" });
        pasts.take(&event(one, "rights.given-up", given));
        assert_eq!(labels(&pasts, one), ["private", "untrusted"]);
        assert!(labels(&pasts, other).is_empty());
        // The next one has both, also where it could not begin and says of no label.
        pasts.forget(&RunId::parse(one).unwrap());
        pasts.take(&event(two, "run.opened", json!({ "session": session })));
        assert_eq!(labels(&pasts, two), ["private", "untrusted"]);
        let case = |resource: &str| Case {
            action: "connect".to_owned(),
            resource: resource.to_owned(),
            time: 9,
            ..Case::default()
        };
        let past = |run: &str| pasts.of(&RunId::parse(run).unwrap());
        let why = |run: &str, host: &str| why_denied(&past(run).given_up, &case(host));
        let told = why(two, "api.example.com").unwrap();
        assert!(told.starts_with(atoll_model::network::GIVEN_UP), "{told}");
        assert_eq!(why(two, "example.org"), None);
        assert_eq!(why(other, "api.example.com"), None);
    }
}
