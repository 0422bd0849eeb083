//! `atoll restrict`: drops rights of a live run for good.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use atoll_engine::control::{
    BEGINNING, BEGINNING_PAUSE, Named, directory, done, going_on, none_goes_on, unanswered,
};
use atoll_engine::failure::{Doing, Failure, Kind};
use atoll_engine::printable::printable;
use atoll_engine::supervision::{Answer, ControlError, Question, ask};
use atoll_model::network::{GivenUp, GivingUp, NoNetwork};
use atoll_model::{RunId, parse_duration};
use serde_json::Value;

use crate::arguments::RestrictArguments;
use crate::output::Output;

/// The host and port at which a sandboxed program asks Atoll.
const INSIDE: (&str, u16) = ("atoll.internal", 80);
/// The time the answer may take.
const INSIDE_PATIENCE: Duration = Duration::from_secs(30);
/// The longest answer, bytes.
const INSIDE_BYTES_MAX: u64 = 64 << 10;

/// Drops the named rights of a run.
///
/// # Errors
/// When nothing is named, there is no such run, or it has no room for more.
pub fn restrict(arguments: &RestrictArguments, output: &Output) -> Result<u8, Failure> {
    let said = read(arguments)?;
    let (who, given) = match &arguments.run {
        Some(text) => {
            let (run, given) = outside(text, &said)?;
            (format!("by {run}"), given)
        }
        None => ("by this run".to_owned(), inside(&said)?),
    };
    output.say(&given.told(&who));
    Ok(0)
}

/// The rights a run has dropped, in words.
struct Given {
    /// The rights dropped by this command.
    new: Vec<String>,
    /// The rights dropped before.
    before: Vec<String>,
}

impl Given {
    fn told(&self, who: &str) -> String {
        let list = |all: &[String]| printable(all.join(", ").as_bytes());
        let new = match self.new.as_slice() {
            [] => format!("Nothing more is given up {who}: all of that was given up before.\n"),
            new => format!("Given up {who}, for good: {}.\n", list(new)),
        };
        let before = match self.before.as_slice() {
            [] => String::new(),
            before => format!("Given up before: {}.\n", list(before)),
        };
        format!("{new}{before}It lasts until the run ends, and in a session for its later runs.\n")
    }
}

/// Asks the run that is meant, also one that has only just begun and does not listen yet.
fn outside(text: &str, said: &GivingUp) -> Result<(RunId, Given), Failure> {
    let named = Named::read(text, &crate::finding::tell)?;
    let question = Question::Restrict(said.clone());
    let until = Instant::now() + BEGINNING;
    loop {
        let directory = directory()?.ok_or_else(none_goes_on);
        let asked = directory.and_then(|directory| {
            let run = going_on(&directory, &named)?;
            let answer = ask(&directory, &run, &question);
            Ok((run, answer))
        });
        match asked {
            Ok((_, Err(ControlError::Gone))) | Err(_) if Instant::now() < until => {
                sleep(BEGINNING_PAUSE);
            }
            Ok((run, Ok(Answer::GivenUp { new, all }))) => {
                let before = all.iter().filter(|one| !new.contains(one));
                let told = |one: &GivenUp| one.what.to_string();
                let given = Given {
                    before: before.map(told).collect(),
                    new: new.iter().map(told).collect(),
                };
                return Ok((run, given));
            }
            Ok((run, answer)) => {
                done(&run, answer)?;
                return Err(unanswered(&run, &ControlError::Strange));
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// Reads the rights to drop.
fn read(arguments: &RestrictArguments) -> Result<GivingUp, Failure> {
    let host = |text: &String| {
        let what = printable(text.as_bytes());
        let read = text.clone().try_into();
        let read = read.doing(&format!("--deny-host {what} is not usable"));
        read.map_err(|failure| {
            failure.advise("atoll restrict RUN --deny-host '*.example.com' names hosts")
        })
    };
    let credential = |text: &String| {
        let what = printable(text.as_bytes());
        let read = text.parse();
        let read = read.doing(&format!("--no-credentials {what} is not usable"));
        read.map_err(|failure| {
            failure.advise("a credential's name is that in its profile: atoll profile show NAME")
        })
    };
    let deny_hosts = arguments.deny_hosts.iter().map(host);
    let no_credentials = arguments.no_credentials.iter().map(credential);
    let said = GivingUp {
        network: arguments.no_network.then_some(NoNetwork::None),
        deny_hosts: deny_hosts.collect::<Result<_, _>>()?,
        no_credentials: no_credentials.collect::<Result<_, _>>()?,
        until_seconds: arguments.until.as_deref().map(seconds).transpose()?,
    };
    match said.restrictions(0) {
        Ok(_) => Ok(said),
        Err(error) => Err(Failure::new("there is nothing that could be given up")
            .because(error)
            .advise("atoll restrict RUN --no-network gives all of the network up")
            .advise("atoll restrict --help shows what else can be")),
    }
}

fn seconds(text: &str) -> Result<u32, Failure> {
    let usable = format!("--until {} is not usable", printable(text.as_bytes()));
    let advised = |failure: Failure| failure.advise("atoll restrict RUN --until 10m");
    let time = parse_duration(text).doing(&usable).map_err(advised)?;
    let seconds = u32::try_from(time.as_secs());
    seconds.doing(&usable).map_err(advised)
}

/// Sends the request from inside the sandbox.
fn inside(said: &GivingUp) -> Result<Given, Failure> {
    let body = serde_json::to_vec(said).doing("it cannot be said")?;
    let failed = |error: std::io::Error| {
        Failure::new("no run is named, and this is not inside one that has a network")
            .because(error)
            .advise("atoll restrict last ... is about the run started last")
            .advise("a run without a network has none to give up")
    };
    let answer = exchange(&body).map_err(failed)?;
    let (head, text) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let told: Value = serde_json::from_str(text).unwrap_or_default();
    if head.starts_with("HTTP/1.1 200 ") {
        let list = |name: &str| {
            let all = told.get(name).and_then(Value::as_array).into_iter();
            let all = all.flatten().filter_map(|one| one.get("what")?.as_str());
            all.map(str::to_owned).collect::<Vec<_>>()
        };
        let new = list("new");
        let before = list("given_up");
        let before = before.into_iter().filter(|one| !new.contains(one));
        return Ok(Given {
            before: before.collect(),
            new,
        });
    }
    let why = told.get("why").and_then(Value::as_str).unwrap_or(head);
    let mut failure = Failure::new("it was not given up")
        .because(printable(why.as_bytes()))
        .advise("atoll restrict --no-network gives all of the network up");
    failure.kind = Kind::Denied;
    Err(failure)
}

fn exchange(body: &[u8]) -> std::io::Result<String> {
    let (host, _) = INSIDE;
    let mut stream = TcpStream::connect(INSIDE)?;
    stream.set_read_timeout(Some(INSIDE_PATIENCE))?;
    stream.set_write_timeout(Some(INSIDE_PATIENCE))?;
    let length = body.len();
    let head = format!(
        "POST /restrict HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), body].concat())?;
    let mut answer = String::new();
    stream.take(INSIDE_BYTES_MAX).read_to_string(&mut answer)?;
    Ok(answer)
}
