//! A run's questions to a person, their answers, and the person who ended the run, from the
//! ledger's events.

use atoll_engine::configuration::user_name;
use atoll_engine::printable::printable;
use atoll_ledger::Event;
use atoll_sandbox::Stopped;
use serde_json::{Value, json};

use crate::render::Denied;

/// The most answers that a line names; the rest are counted.
const NAMED_MAX: usize = 8;

/// Describes that a person ended a run.
pub fn stopped(stopped: Stopped) -> String {
    stopped_by(stopped.by.uid, stopped.approval.map(u64::from))
}

/// Describes the same from the details of a run's last event, if a person ended the run.
pub fn stopped_of_event(details: Option<&Value>) -> Option<String> {
    let stopped = details?.get("stopped")?;
    let uid = stopped.get("uid")?.as_u64()?;
    let approval = stopped.get("approval").and_then(Value::as_u64);
    Some(stopped_by(u32::try_from(uid).ok()?, approval))
}

fn stopped_by(uid: u32, approval: Option<u64>) -> String {
    let how = match approval {
        Some(number) => format!("the answer to question .{number}"),
        None => "atoll stop".to_owned(),
    };
    format!("stopped by {} ({how})", user_name(uid))
}

/// Describes a run's questions and their answers in one line; none where there was no question.
pub fn line<'a>(events: impl Iterator<Item = &'a Event>) -> Option<String> {
    let all = questions(events);
    let told: Vec<String> = all.iter().take(NAMED_MAX).map(Question::told).collect();
    let more = match all.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let count = all.len() as u64;
    let counted = crate::render::counted(count, "question", "questions");
    (count > 0).then(|| format!("{counted}: {}{more}", told.join(", ")))
}

/// Returns the rules by which a person was asked, each once, with the numbers of its questions, and
/// how many further questions there were.
pub fn reasons<'a>(events: impl Iterator<Item = &'a Event>) -> Vec<String> {
    let mut all: Vec<(&str, Vec<String>)> = Vec::new();
    let asked = questions(events);
    for one in asked.iter().take(NAMED_MAX) {
        let Some(rule) = one.asked.body.get("rule").and_then(Value::as_str) else {
            continue;
        };
        let number = format!(".{}", number(one.asked).unwrap_or_default());
        match all.iter_mut().find(|(known, _)| *known == rule) {
            Some((_, numbers)) => numbers.push(number),
            None => all.push((rule, vec![number])),
        }
    }
    let told = |(rule, numbers): (&str, Vec<String>)| {
        format!("{}: {}", numbers.join(", "), printable(rule.as_bytes()))
    };
    let more = asked.len().saturating_sub(NAMED_MAX);
    let more = (more > 0).then(|| format!("and {more} more"));
    all.into_iter().map(told).chain(more).collect()
}

/// Returns a run's questions and their answers as JSON.
pub fn json<'a>(events: impl Iterator<Item = &'a Event>) -> Vec<Value> {
    questions(events).iter().map(Question::json).collect()
}

/// Returns the requests that the program gave up before anybody answered: no program received a
/// denial of these.
pub fn given_up<'a>(events: impl Iterator<Item = &'a Event>) -> Vec<Denied> {
    let left = questions(events).into_iter().filter(|one| {
        let why = one.answer.and_then(|answer| answer.body.get("why"));
        why.and_then(Value::as_str) == Some("left") && one.said("method").is_some()
    });
    let denied = left.map(|one| Denied {
        what: match one.agreed {
            None => format!(
                "{}: a person was asked, and the program left before an answer",
                one.call()
            ),
            Some(_) => format!(
                "{}: one person said yes, and the program left before a second one did",
                one.call()
            ),
        },
        times: 1,
        limit: None,
    });
    denied.collect()
}

/// A question with its answer, if it has one.
struct Question<'a> {
    asked: &'a Event,
    /// The first person's approval, under dual control.
    agreed: Option<&'a Event>,
    answer: Option<&'a Event>,
}

fn number(event: &Event) -> Option<u64> {
    event.body.get("approval")?.as_u64()
}

fn questions<'a>(events: impl Iterator<Item = &'a Event>) -> Vec<Question<'a>> {
    let mut all: Vec<Question<'a>> = Vec::new();
    for event in events {
        match event.kind.as_str() {
            "approval.asked" => all.push(Question {
                asked: event,
                agreed: None,
                answer: None,
            }),
            "approval.agreed" => {
                let is_meant = |one: &&mut Question<'_>| number(one.asked) == number(event);
                if let Some(one) = all.iter_mut().find(is_meant) {
                    one.agreed = Some(event);
                }
            }
            "approval.granted" | "approval.denied" => {
                let is_meant = |one: &&mut Question<'_>| number(one.asked) == number(event);
                if let Some(one) = all.iter_mut().find(is_meant) {
                    one.answer = Some(event);
                } else if event.body.get("action").is_some() {
                    // It was put to nobody, and denied: there is no other event of it.
                    all.push(Question {
                        asked: event,
                        agreed: None,
                        answer: Some(event),
                    });
                }
            }
            _ => {}
        }
    }
    all
}

impl Question<'_> {
    fn said(&self, member: &str) -> Option<&str> {
        self.asked.body.get(member)?.as_str()
    }

    /// Describes the call that the question is about.
    fn call(&self) -> String {
        if self.said("action") == Some("promote") {
            let count = self.asked.body.get("changes").and_then(Value::as_u64);
            let count = crate::render::counted(count.unwrap_or(0), "change", "changes");
            return format!("taking over {count}");
        }
        // Of a caller of a server: a sandbox, or an exec in one.
        if let (Some(_), Some(what)) = (self.said("action"), self.said("what")) {
            return printable(what.as_bytes());
        }
        let word = |member| self.said(member).unwrap_or_default();
        let port = self.asked.body.get("port").and_then(Value::as_u64);
        let text = match (self.said("method"), word("scheme"), port) {
            (Some(method), "https", Some(443)) | (Some(method), "http", Some(80)) => {
                format!(
                    "{method} {}://{}{}",
                    word("scheme"),
                    word("host"),
                    word("path")
                )
            }
            (Some(method), scheme, port) => {
                let port = port.unwrap_or_default();
                format!(
                    "{method} {scheme}://{}:{port}{}",
                    word("host"),
                    word("path")
                )
            }
            (None, _, port) => format!("{} port {}", word("host"), port.unwrap_or_default()),
        };
        printable(text.as_bytes())
    }

    /// Describes the question's outcome.
    fn told(&self) -> String {
        let number = number(self.asked).unwrap_or_default();
        let of = |member: &str| self.answer.and_then(|answer| answer.body.get(member));
        let text = |member: &str| of(member).and_then(Value::as_str);
        let name = |event: Option<&Event>| {
            let uid = event?.body.get("uid")?.as_u64()?;
            Some(user_name(u32::try_from(uid).ok()?))
        };
        let by = name(self.answer).map(|name| format!(" by {name}"));
        let after = name(self.agreed).map(|name| format!(", after a yes of {name}"));
        let by = by.unwrap_or_default() + &after.unwrap_or_default();
        let seconds = of("seconds").and_then(Value::as_u64).unwrap_or_default();
        let what = match (text("for"), text("why")) {
            (Some("once"), _) => "granted once".to_owned(),
            (Some("run"), _) => "granted until the run ended".to_owned(),
            (Some(_), _) => format!("granted for {seconds} s"),
            (None, Some("person")) => "denied".to_owned(),
            (None, Some("left")) => "given up before an answer".to_owned(),
            (None, Some("unseconded")) => "not said yes to by a second person in time".to_owned(),
            (None, Some("late")) => "not answered in time".to_owned(),
            (None, Some("ended")) => "open when the run ended".to_owned(),
            (None, Some(_)) => "denied without an answer".to_owned(),
            (None, None) => "covered by another answer, or open".to_owned(),
        };
        format!(".{number} ({}) {what}{by}", self.call())
    }

    fn json(&self) -> Value {
        let asked = |member: &str| self.asked.body.get(member);
        let of = |member: &str| self.answer.and_then(|answer| answer.body.get(member));
        let kind = self.answer.map(|answer| answer.kind.as_str());
        json!({
            "action": asked("action"),
            "approval": asked("approval"),
            "changes": asked("changes"),
            "digest": asked("digest"),
            "host": asked("host"),
            "port": asked("port"),
            "method": asked("method"),
            "path": asked("path"),
            "rule": asked("rule"),
            "answer": kind.and_then(|kind| kind.strip_prefix("approval.")),
            "for": of("for"),
            "why": of("why"),
            "uid": of("uid"),
            "first-uid": self.agreed.and_then(|agreed| agreed.body.get("uid")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::why::event;

    #[test]
    fn every_question_is_told_with_its_answer() {
        let asked = |number: u64, path: &str| {
            event(
                "approval.asked",
                json!({ "approval": number, "host": "api.example.com", "port": 443,
                        "method": "POST", "path": path, "scheme": "https" }),
            )
        };
        let events = [
            asked(1, "/v1/a"),
            asked(2, "/v1/b"),
            asked(3, "/v1/c"),
            event(
                "approval.agreed",
                json!({ "approval": 2, "for": "run", "uid": 0 }),
            ),
            event(
                "approval.granted",
                json!({ "approval": 1, "for": "once", "uid": 0 }),
            ),
            event(
                "approval.denied",
                json!({ "approval": 2, "why": "person", "uid": 0 }),
            ),
            event("approval.denied", json!({ "approval": 3, "why": "left" })),
        ];
        assert_eq!(
            line(events.iter()).as_deref(),
            Some(
                "3 questions: .1 (POST https://api.example.com/v1/a) granted once by root, \
                 .2 (POST https://api.example.com/v1/b) denied by root, after a yes of root, \
                 .3 (POST https://api.example.com/v1/c) given up before an answer"
            )
        );
        let left = given_up(events.iter());
        assert_eq!(left.len(), 1);
        assert_eq!(
            left.first().map(|one| one.what.as_str()),
            Some(
                "POST https://api.example.com/v1/c: a person was asked, and the program left \
                 before an answer"
            )
        );
        // Of two persons one has said yes.
        let agreed = [
            asked(4, "/v1/d"),
            event(
                "approval.agreed",
                json!({ "approval": 4, "for": "run", "uid": 0 }),
            ),
            event("approval.denied", json!({ "approval": 4, "why": "left" })),
        ];
        let left = given_up(agreed.iter());
        let what = left
            .first()
            .map(|one| one.what.as_str())
            .unwrap_or_default();
        assert!(
            what.contains("one person said yes, and the program left"),
            "{what}"
        );
        let told = Value::from(json(events.iter()));
        assert_eq!(told.pointer("/1/answer"), Some(&json!("denied")));
        assert_eq!(line([].iter()), None);
    }

    #[test]
    fn reasons_beyond_those_named_are_counted() {
        let asked = |number: usize| {
            event(
                "approval.asked",
                json!({ "approval": number, "host": "api.example.com", "port": 443,
                        "method": "POST", "path": "/", "scheme": "https", "rule": "own.cedar:1" }),
            )
        };
        for (count, more) in [(NAMED_MAX, None), (NAMED_MAX + 3, Some("and 3 more"))] {
            let events: Vec<Event> = (1..=count).map(asked).collect();
            let told = reasons(events.iter());
            let first = told.first().map(String::as_str).unwrap_or_default();
            assert!(first.starts_with(".1, .2, "), "{told:?}");
            assert_eq!(told.get(1).map(String::as_str), more, "{told:?}");
        }
    }

    #[test]
    fn what_was_put_to_nobody_is_told_too() {
        let about = |number: u64, why: Option<&str>| {
            json!({ "action": "promote", "approval": number, "changes": 3, "digest": "5f0c",
                    "rule": "own.cedar:1", "why": why })
        };
        let events = [
            event("approval.denied", about(1, Some("unattended"))),
            event("approval.asked", about(2, None)),
            event("approval.denied", about(2, Some("person"))),
            // Without an action it is an answer to what is not known here.
            event("approval.denied", json!({ "approval": 3, "why": "late" })),
        ];
        assert_eq!(
            line(events.iter()).as_deref(),
            Some(
                "2 questions: .1 (taking over 3 changes) denied without an answer, \
                 .2 (taking over 3 changes) denied"
            )
        );
        let told = json(events.iter());
        let whys: Vec<&Value> = told.iter().map(|one| &one["why"]).collect();
        assert_eq!(whys, ["unattended", "person"]);
        for one in &told {
            assert_eq!(
                (
                    &one["action"],
                    &one["changes"],
                    &one["digest"],
                    &one["rule"]
                ),
                (
                    &json!("promote"),
                    &json!(3),
                    &json!("5f0c"),
                    &json!("own.cedar:1")
                )
            );
        }
        assert_eq!(reasons(events.iter()), [".1, .2: own.cedar:1"]);
        assert!(given_up(events.iter()).is_empty());
    }

    #[test]
    fn who_ended_a_run_is_told_with_how_they_said_it() {
        let told = |details: Value| stopped_of_event(Some(&details));
        assert_eq!(
            told(json!({ "stopped": { "uid": 0, "pid": 1 } })).as_deref(),
            Some("stopped by root (atoll stop)")
        );
        let answer = json!({ "stopped": { "uid": 0, "pid": 1, "approval": 2 } });
        assert_eq!(
            told(answer).as_deref(),
            Some("stopped by root (the answer to question .2)")
        );
        assert_eq!(told(json!({ "exit": 0 })), None);
    }
}
