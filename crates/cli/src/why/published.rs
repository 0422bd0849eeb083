//! The published ports of a run: since when, by whom, for whom, and until when.

use atoll_engine::configuration::user_name;
use atoll_engine::tokens::now_s;
use atoll_ledger::{Event, RIGHTS_GIVEN_UP};
use atoll_model::network::PublishedPort;
use atoll_tokens::told_time;
use serde_json::{Value, json};

use super::{Story, text};
use crate::render::{Report, Style, counted, readable_time};

/// The most refused ports that are listed; the rest are counted.
const REFUSED_SHOWN_MAX: usize = 4;
/// The events that end a run.
const ENDS: [&str; 3] = ["run.closed", "run.failed", "run.interrupted"];

/// A port that was published.
struct Door {
    port: PublishedPort,
    /// The time, in the form of events.
    since: String,
    /// The person who published it; `None` if the run began with it.
    by: Option<String>,
    /// The first approver, if it took two.
    first: Option<String>,
    visits: u64,
}

/// The end of all published ports: its time and reason.
struct End {
    time: String,
    why: &'static str,
}

impl Story<'_> {
    /// Adds a line for each port: published, or requested and refused.
    pub(super) fn tell_published(&self, report: &mut Report) {
        let end = self.doors_end();
        for door in self.doors() {
            report.line("port", &self.told(&door, end.as_ref()));
        }
        let refused = self.unpublished();
        for line in refused.iter().take(REFUSED_SHOWN_MAX) {
            report.styled("port", line, Some(Style::Bad));
        }
        let more = refused.len().saturating_sub(REFUSED_SHOWN_MAX) as u64;
        if more > 0 {
            let more = counted(more, "further one was", "further ones were");
            report.line("port", &format!("{more} asked for and not published"));
        }
    }

    /// Returns the published ports as JSON.
    pub(super) fn published_json(&self) -> Value {
        let end = self.doors_end();
        let doors = self.doors();
        let told = doors.iter().map(|door| {
            json!({
                "port": door.port.outside,
                "inside": door.port.inside,
                "since": door.since,
                "by": door.by,
                "after": door.first,
                "visits": door.visits,
                "until": end.as_ref().map(|end| &end.time),
            })
        });
        told.collect()
    }

    fn told(&self, door: &Door, end: Option<&End>) -> String {
        let PublishedPort { outside, inside } = door.port;
        let by = match (&door.by, &door.first) {
            (None, _) => "from its start".to_owned(),
            (Some(by), None) => format!("by {by}"),
            (Some(by), Some(first)) => format!("by {by}, after a yes of {first}"),
        };
        let until = match end {
            None => "still open as far as the ledger knows".to_owned(),
            Some(end) => format!("closed {} ({})", readable_time(&end.time), end.why),
        };
        let visits = counted(door.visits, "visit", "visits");
        format!(
            "{inside} inside was published at 127.0.0.1:{outside} for programs of {} on this host, \
             {by}, {}; {visits}; {until}",
            self.visitors(),
            readable_time(&door.since)
        )
    }

    /// Describes whose programs can connect: the run's own person's and root's.
    fn visitors(&self) -> String {
        let uid = self.said("run.opened", "/principal/uid");
        let name = text(self.said("run.opened", "/principal/name")).unwrap_or_default();
        match uid.and_then(Value::as_u64) {
            Some(0) => "root, and of who became it by sudo,".to_owned(),
            Some(_) | None => format!("{name} and root"),
        }
    }

    fn doors(&self) -> Vec<Door> {
        let door = |port: PublishedPort, event: &Event| {
            let who = |member: &str| {
                let uid = event.body.get(member)?.as_u64()?;
                Some(user_name(u32::try_from(uid).ok()?))
            };
            Door {
                visits: self.visits(port),
                port,
                since: event.time.clone(),
                by: who("uid"),
                first: who("first_uid"),
            }
        };
        let begun = self.decision("network").and_then(|one| one.get("publish"));
        let begun = begun.and_then(Value::as_array).into_iter().flatten();
        let begun = begun.filter_map(|one| one.as_str()?.parse().ok());
        let opened = self.event("run.opened");
        let begun = begun.filter_map(|port| Some((port, opened?)));
        let later = self
            .events
            .iter()
            .filter(|one| one.kind == "port.published");
        let later = later.filter_map(|event| Some((port_of(event)?, event)));
        let all = begun.map(|(port, event)| Door {
            by: None,
            ..door(port, event)
        });
        let later = later.map(|(port, event)| door(port, event));
        all.chain(later).collect()
    }

    /// Returns the number of connections to a port: the event of a connection names its rule,
    /// `publish PORT`.
    fn visits(&self, port: PublishedPort) -> u64 {
        let rule = format!("publish {port} (");
        let is_visit = |event: &&Event| {
            event.kind == "flow.opened"
                && text(event.body.get("kind")).as_deref() == Some("published")
                && text(event.body.get("rule")).is_some_and(|own| own.starts_with(&rule))
        };
        self.events.iter().filter(is_visit).count() as u64
    }

    /// Returns the first event that ends all published ports.
    fn doors_end(&self) -> Option<End> {
        // All times are of one form, in UTC, some in whole seconds: the earliest comes first.
        let plain = |time: &str| time.trim_end_matches('Z').to_owned();
        let now = told_time(now_s()).unwrap_or_default();
        // What is to come may be after the run's own end, which nobody knows yet.
        let is_past = |time: &String| plain(time) <= plain(&now);
        let given_up = self.events.iter().filter_map(|event| {
            let is_all = event.body.get("network").and_then(Value::as_bool) == Some(true);
            let until = event.body.get("until").and_then(Value::as_u64);
            match (event.kind == RIGHTS_GIVEN_UP, is_all, until) {
                (true, true, _) => Some(event.time.clone()),
                (true, false, Some(time_s)) => told_time(time_s).filter(is_past),
                (true, false, None) | (false, _, _) => None,
            }
        });
        let tokens = self.decision("tokens").and_then(Value::as_array);
        let tokens = tokens.into_iter().flatten();
        let tokens = tokens.filter_map(|one| text(one.get("until")).filter(is_past));
        let mut ended = self.events.iter().rev();
        let ended = ended.find(|one| ENDS.contains(&one.kind.as_str()));
        let because = |why: &'static str| move |time: String| End { time, why };
        let all = given_up
            .map(because("the network was given up"))
            .chain(tokens.map(because("its token ended")))
            .chain(
                ended
                    .map(|over| over.time.clone())
                    .map(because("the run ended")),
            );
        all.min_by_key(|end| plain(&end.time))
    }

    /// Describes the ports that were requested and not published.
    fn unpublished(&self) -> Vec<String> {
        let mut waiting: Vec<(PublishedPort, String)> = Vec::new();
        let mut told = Vec::new();
        for event in self.events {
            let Some(port) = port_of(event) else {
                continue;
            };
            let when = readable_time(&event.time);
            match event.kind.as_str() {
                "port.agreed" => {
                    let uid = event.body.get("uid").and_then(Value::as_u64);
                    let by = uid.and_then(|uid| u32::try_from(uid).ok());
                    let by = by.map(user_name).unwrap_or_default();
                    waiting.retain(|(other, _)| *other != port);
                    let said = "said yes, and no second person did in time";
                    waiting.push((port, format!("{by} {said}, {when}")));
                }
                "port.published" => waiting.retain(|(other, _)| *other != port),
                "port.refused" => {
                    waiting.retain(|(other, _)| *other != port);
                    let why = text(event.body.get("why")).unwrap_or_default();
                    told.push(format!("{port} was not published, {when}: {why}"));
                }
                _ => {}
            }
        }
        let waiting = waiting.iter();
        told.extend(waiting.map(|(port, how)| format!("{port} was not published: {how}")));
        told
    }
}

/// Returns the port that an event is about.
fn port_of(event: &Event) -> Option<PublishedPort> {
    let number = |member: &str| {
        let number = event.body.get(member)?.as_u64()?;
        u16::try_from(number).ok()
    };
    event.kind.starts_with("port.").then_some(())?;
    Some(PublishedPort {
        outside: number("host_port")?,
        inside: number("port")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::why::tests::{event, opened, told};

    #[test]
    fn ports_are_told_with_since_when_by_whom_for_whom_and_until_when() {
        let begun = || json!({ "profile": "default", "network": { "allow": [], "deny": [], "publish": ["8080:3000"] } });
        let door = |kind: &str, at: u64, further: Value| {
            let mut body = json!({ "host_port": at, "port": 4000 });
            let (Some(members), Some(further)) = (body.as_object_mut(), further.as_object()) else {
                unreachable!("both are objects")
            };
            members.extend(further.clone());
            event(kind, body)
        };
        let visit = |rule: &str| event("flow.opened", json!({ "kind": "published", "rule": rule }));
        let both = json!({ "uid": 0, "first_uid": 4_000_000_000_u32 });
        let mut events = vec![
            opened("allow", begun()),
            visit("publish 8080:3000 (--publish)"),
            visit("publish 8080:3000 (--publish)"),
            door("port.agreed", 4000, json!({ "uid": 4_000_000_000_u32 })),
            door("port.published", 4000, both),
            visit("publish 4000 (atoll publish)"),
            door("port.agreed", 4001, json!({ "uid": 0 })),
            door("port.refused", 4002, json!({ "why": "policies say no" })),
        ];
        let open = told(&events)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        assert!(
            open.contains("2 visits; still open as far as the ledger knows"),
            "{open}"
        );
        events.push(event("run.closed", json!({ "status": 0 })));
        let text = told(&events)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        let closed = "closed 2026-11-21 09:30:12 UTC (the run ended)";
        let to = "for programs of ada and root on this host";
        for line in [
            format!("port 3000 inside was published at 127.0.0.1:8080 {to}, from its start, 2026-11-21 09:30:12 UTC; 2 visits; {closed}"),
            format!("4000 inside was published at 127.0.0.1:4000 {to}, by root, after a yes of 4000000000, 2026-11-21 09:30:12 UTC; 1 visit; {closed}"),
            "4002:4000 was not published, 2026-11-21 09:30:12 UTC: policies say no".to_owned(),
            "4001:4000 was not published: root said yes, and no second person did in time, 2026-11-21 09:30:12 UTC".to_owned(),
        ] {
            assert!(text.contains(&line), "{line}: {text}");
        }
        // What was given up before closed it.
        events.insert(
            2,
            event(
                "rights.given-up",
                json!({ "at": 0, "by": "program", "until": 1_700_000_000 }),
            ),
        );
        let text = told(&events)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        assert!(text.contains("closed 2023-11-14 22:13:20"), "{text}");
        assert!(text.contains("(the network was given up)"), "{text}");
        // A run that has ended in this very second has ended.
        let now = format!(
            "{}.999999Z",
            told_time(now_s()).unwrap().trim_end_matches('Z')
        );
        let mut over = event("run.closed", json!({ "status": 0 }));
        over.time = now;
        let text = told(&[opened("allow", begun()), over]);
        assert!(text.contains("(the run ended)"), "{text}");
        // Without any port nothing is told of one.
        let none = told(&[opened("allow", json!({ "profile": "default" }))]);
        assert!(!none.contains("port "), "{none}");
    }
}
