//! `atoll ports` and `atoll publish`: requests to live runs.

use std::time::{Duration, Instant};

use atoll_engine::control::{directory, meant, none_goes_on, refused, runs_of, unanswered};
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::printable::printable;
use atoll_engine::supervision::{Answer, ControlError, Flows, Question, ask, ask_until, spoken_to};
use atoll_model::RunId;
use atoll_model::network::{Listener, ListensAt, Network, Published, PublishedPort};
use atoll_sandbox::Declined;
use serde_json::{Value, json};

use crate::approvals::{persons, same_port};
use crate::arguments::{PortsArguments, PublishArguments};
use crate::ask_key::AskKey;
use crate::output::Output;

/// The most ports the end of a run names.
const SHOWN_MAX: usize = 5;
/// The first of the ports that the kernel assigns by itself (ip(7)).
const HANDED_OUT: u16 = 32_768;
/// The time a run has to report what listens in it.
const ANSWERING: Duration = Duration::from_secs(5);

/// Shows the listening ports of live runs.
///
/// # Errors
/// When there is no such run, or it does not answer.
pub fn ports(arguments: &PortsArguments, output: &Output) -> Result<u8, Failure> {
    let Some(directory) = directory()? else {
        return nothing(arguments, output);
    };
    let runs = match &arguments.run {
        Some(text) => vec![meant(&directory, text, &crate::finding::tell)?],
        None => spoken_to(&directory).doing("the runs cannot be listed")?,
    };
    let mut told = Vec::new();
    for run in runs {
        let until = Instant::now() + ANSWERING;
        match ask_until(&directory, &run, &Question::Ports {}, until) {
            Ok(Answer::Ports {
                listening,
                published,
            }) => told.push((run, listening, published)),
            Ok(Answer::Refused(declined)) => return Err(refused(&run, declined)),
            Ok(
                Answer::Published(_)
                | Answer::Approvals { .. }
                | Answer::Approval(_)
                | Answer::GivenUp { .. }
                | Answer::Compared { .. }
                | Answer::Reloaded(_)
                | Answer::Executing { .. }
                | Answer::Exec(_)
                | Answer::Denied(_)
                | Answer::NeedsApproval { .. }
                | Answer::Done {}
                | Answer::Agreed(_),
            ) => {
                return Err(unanswered(&run, &ControlError::Strange));
            }
            // One of several has ended meanwhile.
            Err(ControlError::Gone) if arguments.run.is_none() => {}
            Err(ControlError::Silent(_)) if arguments.run.is_none() => output.warn(&format!(
                "run {run} does not answer, and is left out; atoll stop {run} ends it"
            )),
            Err(error) => return Err(unanswered(&run, &error)),
        }
    }
    if told.is_empty() {
        return nothing(arguments, output);
    }
    if arguments.json {
        let told = told.iter().map(|(run, listening, published)| {
            let published = published.iter().map(published_json).collect::<Vec<_>>();
            json!({ "run": run, "listening": listening, "published": published })
        });
        output.json(&told.collect());
        return Ok(0);
    }
    for (run, listening, published) in &told {
        output.result(&table(run, listening, published));
    }
    Ok(0)
}

/// Publishes a port of a live run.
///
/// # Errors
/// When there is no such run, or it refuses.
pub fn publish(arguments: &PublishArguments, output: &Output) -> Result<u8, Failure> {
    let port = PublishedPort {
        outside: arguments.to.unwrap_or(arguments.port),
        inside: arguments.port,
    };
    let directory = runs_of(arguments.of.as_deref())?.ok_or_else(none_goes_on)?;
    let run = meant(&directory, &arguments.run, &crate::finding::tell)?;
    match ask(&directory, &run, &Question::Publish(port)) {
        Ok(Answer::Agreed(_)) if arguments.json => {
            output.json(&json!({ "inside": port.inside, "agreed": true }));
        }
        Ok(Answer::Agreed(second)) => output.say(&format!(
            "Agreed. It takes two persons: port {} is published once {} says the same within two \
             minutes:\n  {}\n",
            port.inside,
            persons(&second),
            same_port(&run, port, second.owner)
        )),
        Ok(Answer::Published(published)) if arguments.json => {
            output.json(&published_json(&published));
        }
        Ok(Answer::Published(published)) => output.result(&door(published.port)),
        Ok(Answer::Refused(declined)) => return Err(refused(&run, declined)),
        Ok(
            Answer::Ports { .. }
            | Answer::Approvals { .. }
            | Answer::Approval(_)
            | Answer::GivenUp { .. }
            | Answer::Compared { .. }
            | Answer::Reloaded(_)
            | Answer::Executing { .. }
            | Answer::Exec(_)
            | Answer::Denied(_)
            | Answer::NeedsApproval { .. }
            | Answer::Done {},
        ) => {
            return Err(unanswered(&run, &ControlError::Strange));
        }
        Err(error) => return Err(unanswered(&run, &error)),
    }
    Ok(0)
}

/// Formats a line for a published port.
pub(crate) fn door(port: PublishedPort) -> String {
    let PublishedPort { outside, inside } = port;
    format!("atoll: http://127.0.0.1:{outside} leads to port {inside} inside\n")
}

/// Formats the notice at the run's terminal about a program that listens.
pub(crate) fn told(run: &RunId, listener: &Listener, key: Option<AskKey>) -> String {
    let named = named(listener);
    let port = listener.port;
    let how = match key {
        Some(key) => format!("Press {key} to publish it. Or"),
        None => "To publish it,".to_owned(),
    };
    match listener.at {
        ListensAt::Loopback | ListensAt::Everywhere => format!(
            "atoll: Port {named} is open inside. {how} run `atoll publish {run} {port}` in another \
             terminal."
        ),
        ListensAt::Elsewhere => format!(
            "atoll: Port {named} is open inside, at an address that cannot be published: let it \
             listen at 127.0.0.1"
        ),
    }
}

/// Formats the notice at the run's terminal about a port that its person wanted published. `None`
/// if that takes a second approval, which is reported with its approvers.
pub(crate) fn done(
    port: PublishedPort,
    done: &Result<Option<Published>, Declined>,
) -> Option<String> {
    let told = match done {
        Ok(None) => return None,
        Ok(Some(published)) => door(published.port).trim_end().to_owned(),
        Err(Declined { why, advice }) => {
            let why = printable(why.as_bytes());
            format!(
                "atoll: port {} is not published: {why}; {advice}",
                port.inside
            )
        }
    };
    Some(told)
}

/// Describes the ports that listened in a run that has ended and were not reachable; `None` if
/// there are none.
pub(crate) fn listened(flows: &Flows, network: &Network) -> Option<String> {
    let published = network.publish.iter().chain(&flows.published_later);
    let published: Vec<u16> = published.map(|one| one.port.inside).collect();
    let is_told = |one: &&Listener| one.port < HANDED_OUT && !published.contains(&one.port);
    let mut told: Vec<&Listener> = flows.listened.iter().filter(is_told).collect();
    told.sort_by_key(|one| one.port);
    told.dedup_by_key(|one| one.port);
    let is_of_host = |one: &&Listener| network.host_ports.contains(&one.port);
    let (of_host, told): (Vec<_>, Vec<_>) = told.into_iter().partition(is_of_host);
    let of_host = of_host.iter().map(|one| {
        format!(
            "{} inside leads to this host (--host-port): what listens there inside is never reached",
            one.port
        )
    });
    let lines: Vec<String> = publishable(&told).into_iter().chain(of_host).collect();
    (!lines.is_empty()).then(|| lines.join("; "))
}

fn publishable(told: &[&Listener]) -> Option<String> {
    let first = told.first()?.port;
    let shown: Vec<String> = told.iter().take(SHOWN_MAX).map(|one| named(one)).collect();
    let more = match told.len().saturating_sub(SHOWN_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let shown = shown.join(", ");
    Some(format!(
        "{shown}{more} listened inside; --publish {first} makes it reachable"
    ))
}

/// Returns the listeners as JSON.
pub(crate) fn listened_json(flows: &Flows) -> Value {
    json!(flows.listened)
}

pub(crate) fn published_json(one: &Published) -> Value {
    json!({ "port": one.port.outside, "inside": one.port.inside })
}

/// Describes a port, and the program that listens there as far as known.
fn named(listener: &Listener) -> String {
    let port = listener.port;
    match &listener.program {
        Some(program) => format!("{port} ({})", printable(program.as_bytes())),
        None => port.to_string(),
    }
}

fn table(run: &RunId, listening: &[Listener], published: &[Published]) -> String {
    let mut lines = vec![format!("run {run}")];
    for one in listening {
        let named = named(one);
        let doors = published.iter().filter(|it| it.port.inside == one.port);
        let doors: Vec<String> = doors
            .map(|it| format!("http://127.0.0.1:{}", it.port.outside))
            .collect();
        let how = match (doors.is_empty(), one.at) {
            (false, _) => format!("published: {}", doors.join(", ")),
            (true, ListensAt::Loopback) => "on the loopback, not published".to_owned(),
            (true, ListensAt::Everywhere) => "at every address, not published".to_owned(),
            (true, ListensAt::Elsewhere) => "at an address that nothing leads to".to_owned(),
        };
        lines.push(format!("  {named}: {how}"));
    }
    if listening.is_empty() {
        lines.push("  nothing listens inside".to_owned());
    }
    let is_quiet = |one: &&Published| listening.iter().all(|it| it.port != one.port.inside);
    for one in published.iter().filter(is_quiet) {
        let PublishedPort { outside, inside } = one.port;
        lines.push(format!(
            "  {inside}: nothing listens there yet, published: http://127.0.0.1:{outside}"
        ));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn nothing(arguments: &PortsArguments, output: &Output) -> Result<u8, Failure> {
    match &arguments.run {
        Some(_) => Err(none_goes_on()),
        None if arguments.json => {
            output.json(&json!([]));
            Ok(0)
        }
        None => {
            output.say("No runs are active.\n");
            Ok(0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_ports_are_not_advised_to_be_published() {
        let listener = |port| Listener {
            port,
            at: ListensAt::Loopback,
            program: None,
        };
        let flows = |ports: &[u16]| Flows {
            listened: ports.iter().copied().map(listener).collect(),
            ..Flows::default()
        };
        let network = Network {
            host_ports: vec![8765],
            ..Network::default()
        };
        let of_host = "8765 inside leads to this host (--host-port): what listens there inside is \
                       never reached";
        let other = "3000 listened inside; --publish 3000 makes it reachable";
        for (ports, expected) in [
            (&[][..], None),
            (&[3000], Some(other.to_owned())),
            (&[8765], Some(of_host.to_owned())),
            (&[8765, 3000], Some(format!("{other}; {of_host}"))),
        ] {
            assert_eq!(listened(&flows(ports), &network), expected);
        }
    }
}
