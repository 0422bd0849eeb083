//! The export to an OpenTelemetry collector by OTLP/HTTP: read from the ledger, so that no run
//! waits for it.

use std::thread::sleep;
use std::time::Duration;

use atoll_egress::post::{Address, Headers, PostError, Reply, post};
use atoll_engine::events;
use atoll_engine::export::otlp::{Batch, Follower, Message};
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::printable::printable;
use atoll_ledger::{Event, Filter, Ledger, LedgerError, Sent, StateDir};
use serde_json::Value;

use super::FOLLOW_INTERVAL;
use crate::arguments::ExportLedgerArguments;
use crate::output::Output;
use crate::render;

/// The variable with additional request headers, as OpenTelemetry's own programs read it:
/// `name=value,name=value`.
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
/// Events in one message, at most.
const BATCH_EVENTS_MAX: usize = 512;
/// The time a collector has to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most attempts to send one message, without `--follow`.
const TRIES: u32 = 5;
/// The pause before the second attempt, and the longest pause before any.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The collector's address and the number of attempts.
struct Collector<'a> {
    named: &'a str,
    address: Address,
    headers: Headers,
    tries: Option<u32>,
}

/// The reason a message was not delivered.
enum Undelivered {
    /// May be retried, perhaps only after some seconds.
    Perhaps(String, Option<u64>),
    /// Would be refused again.
    Never(String),
}

/// Sends the events that were not sent there yet; with `--follow` also those that happen from then
/// on.
pub(super) fn send(
    state: &StateDir,
    named: &str,
    arguments: &ExportLedgerArguments,
    output: &Output,
) -> Result<u8, Failure> {
    let collector = Collector::new(named, arguments.follow, output)?;
    let names = rustix::system::uname();
    let host = names.nodename().to_string_lossy().into_owned();
    let kept = Sent::read(state, named).doing("how far it was sent cannot be read")?;
    let mut sent = kept.filter(|_| !arguments.again);
    let mut follower = Follower::default();
    let mut events = Ledger::events(state, Filter::default()).doing("the ledger cannot be read")?;
    let (mut batch, mut last, mut total) = (Batch::default(), None, 0);
    let read_seals = || {
        arguments
            .unsealed
            .then(|| events::followed(state))
            .transpose()
    };
    let mut seals = read_seals()?;
    loop {
        let next = events.next().map(checked).transpose()?;
        let Some(event) = next else {
            total += collector.deliver(state, &host, (&mut batch, last.take()), output)?;
            if sent.take().is_some() {
                return Err(cut_off());
            }
            if !arguments.follow {
                break;
            }
            sleep(FOLLOW_INTERVAL);
            // What was shredded meanwhile is told no more.
            seals = read_seals()?;
            continue;
        };
        let event = match &mut seals {
            Some(seals) => seals.open(state, event).map_err(events::unreadable)?,
            None => event,
        };
        let position = &event.position;
        if let Some(until) = sent {
            follower.follow(&event, None);
            if position.seq == until.seq {
                if position.leaf != until.leaf {
                    return Err(Failure::new("the ledger is another than what was sent")
                        .because(format!("event {} is not the one that was sent", until.seq))
                        .advise("--again sends all of this one"));
                }
                sent = None;
            }
            continue;
        }
        follower.follow(&event, Some(&mut batch));
        last = Some(Sent {
            seq: position.seq,
            leaf: position.leaf,
        });
        if batch.events() >= BATCH_EVENTS_MAX {
            total += collector.deliver(state, &host, (&mut batch, last.take()), output)?;
        }
    }
    let counted = render::counted(total, "event", "events");
    output.say(&format!(
        "{counted} sent to {}\n",
        printable(named.as_bytes())
    ));
    Ok(0)
}

fn cut_off() -> Failure {
    Failure::new("the ledger is shorter than what was sent")
        .because("the last event that was sent there is not in it")
        .advise("atoll ledger verify says whether it is whole; --again sends all of it")
}

fn checked(event: Result<Event, LedgerError>) -> Result<Event, Failure> {
    event.doing("the ledger is damaged there")
}

impl<'a> Collector<'a> {
    fn new(named: &'a str, follows: bool, output: &Output) -> Result<Self, Failure> {
        let address = Address::parse(named)
            .doing("--otlp cannot be used")
            .map_err(|failure| {
                failure.advise("--otlp http://127.0.0.1:4318 is a collector of this machine's")
            })?;
        let mut headers = Headers::default();
        let given = std::env::var(HEADERS).unwrap_or_default();
        for one in given.split(',').filter(|one| !one.trim().is_empty()) {
            let (name, value) = one.split_once('=').unwrap_or((one, ""));
            headers
                .add(name.trim(), value.trim())
                .doing("OTEL_EXPORTER_OTLP_HEADERS cannot be used")?;
        }
        if address.is_open() {
            output
                .warn("what is sent can be read by whoever is on the way: https:// would keep it");
        }
        let tries = (!follows).then_some(TRIES);
        Ok(Self {
            named,
            address,
            headers,
            tries,
        })
    }

    /// Sends a batch, and stores that it was sent. Returns its number of events.
    fn deliver(
        &self,
        state: &StateDir,
        host: &str,
        (batch, last): (&mut Batch, Option<Sent>),
        output: &Output,
    ) -> Result<u64, Failure> {
        let Some(last) = last else {
            return Ok(0);
        };
        let count = batch.events() as u64;
        for message in std::mem::take(batch).messages(host) {
            self.send(&message, output)?;
        }
        last.keep(state, self.named)
            .doing("how far it was sent cannot be kept")?;
        Ok(count)
    }

    fn send(&self, message: &Message, output: &Output) -> Result<(), Failure> {
        let mut pause = PAUSE;
        for tried in 1.. {
            match self.try_once(message, output) {
                Ok(()) => break,
                Err(Undelivered::Perhaps(why, after))
                    if self.tries.is_none_or(|all| tried < all) =>
                {
                    let wait = after.map_or(pause, Duration::from_secs).min(PAUSE_MAX);
                    if tried == 1 {
                        let why = printable(why.as_bytes());
                        let further = match self.tries {
                            Some(all) => format!("{} times more, for some 15 s", all - 1),
                            None => "until it does".to_owned(),
                        };
                        output.warn(&format!(
                            "the collector does not take it yet: {why}; it is tried {further}"
                        ));
                    }
                    sleep(wait);
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                Err(Undelivered::Perhaps(why, _) | Undelivered::Never(why)) => {
                    return Err(Failure::new("the collector has not taken it")
                        .because(printable(why.as_bytes()))
                        .advise(format!(
                            "what was sent before is kept; atoll ledger export --otlp {} goes on from there",
                            printable(self.named.as_bytes())
                        )));
                }
            }
        }
        Ok(())
    }

    fn try_once(&self, message: &Message, output: &Output) -> Result<(), Undelivered> {
        let body = message.body.to_string().into_bytes();
        let kind = "application/json";
        let told = post(
            &self.address,
            message.path,
            &self.headers,
            kind,
            body,
            PATIENCE,
        );
        let reply =
            told.map_err(|unsent: PostError| Undelivered::Perhaps(unsent.to_string(), None))?;
        self.read(message, &reply, output)
    }

    /// Reads a collector's response (OTLP, "OTLP/HTTP Response").
    fn read(&self, message: &Message, reply: &Reply, output: &Output) -> Result<(), Undelivered> {
        let said: Value = serde_json::from_slice(&reply.body).unwrap_or(Value::Null);
        let status = reply.status;
        let path = message.path;
        match status {
            200..300 => {
                let partly = said.get("partialSuccess");
                let why = partly.and_then(|partly| partly.get("errorMessage")?.as_str());
                if let Some(why) = why.filter(|why| !why.is_empty()) {
                    let why = printable(why.as_bytes());
                    output.warn(&format!("the collector has not taken all of it: {why}"));
                }
                Ok(())
            }
            429 | 502 | 503 | 504 => {
                let why = format!("{path} answers {status}");
                Err(Undelivered::Perhaps(why, reply.retry_after_seconds))
            }
            _ => {
                let why = said.get("message").and_then(Value::as_str).unwrap_or("");
                let why = match why {
                    "" => format!("{path} answers {status}"),
                    why => format!("{path} answers {status}: {why}"),
                };
                Err(Undelivered::Never(why))
            }
        }
    }
}
