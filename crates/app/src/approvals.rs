//! `atoll approvals`: a person answers runs that go on.

use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::time::Duration;

use atoll_model::network::{AskedCall, Breadth, CallDigest, LEASE_SECONDS_MAX, Scope};
use atoll_model::{RunId, parse_duration};
use atoll_sandbox::{Answer, ControlError, Decision, Lease, Pending, Question, ask, spoken_to};
use serde_json::json;

use crate::arguments::{
    ApprovalsAction, ApprovalsArguments, DenyApprovalArguments, GrantApprovalArguments,
    ListApprovalsArguments, RevokeApprovalArguments, ShowApprovalArguments,
};
use crate::escape::printable;
use crate::failure::{Doing, Failure};
use crate::output::Output;
use crate::ports::{directory, meant, none_goes_on, refused, unanswered};
use crate::render::counted;

/// How long is waited for a run that has only just begun, before it is said to be gone.
pub(crate) const BEGINNING: Duration = Duration::from_secs(2);
pub(crate) const BEGINNING_PAUSE: Duration = Duration::from_millis(20);
/// How much of a text is shown in a list, characters.
const LISTED_CHARACTERS_MAX: usize = 100;

/// What one run has open.
struct Asking {
    run: RunId,
    pending: Vec<Pending>,
    leases: Vec<Lease>,
    /// How many leases there are besides.
    further: u32,
}

/// Answers runs.
///
/// # Errors
/// When there is no such question, or the run says no.
pub fn approvals(arguments: ApprovalsArguments, output: &Output) -> Result<u8, Failure> {
    match arguments.action {
        ApprovalsAction::List(arguments) => list(&arguments, output),
        ApprovalsAction::Show(arguments) => show(&arguments, output),
        ApprovalsAction::Grant(arguments) => grant(&arguments, output),
        ApprovalsAction::Deny(arguments) => deny(&arguments, output),
        ApprovalsAction::Revoke(arguments) => revoke(&arguments, output),
    }
}

fn list(arguments: &ListApprovalsArguments, output: &Output) -> Result<u8, Failure> {
    let all = match directory()? {
        Some(directory) => asking(&directory)?,
        None => Vec::new(),
    };
    if arguments.json {
        let told = all.iter().map(|one| {
            let Asking {
                run,
                pending,
                leases,
                further,
            } = one;
            json!({ "run": run, "pending": pending, "leases": leases, "further_leases": further })
        });
        output.json(&told.collect());
        return Ok(0);
    }
    let mut text = String::new();
    for one in &all {
        for pending in &one.pending {
            let call = line(&pending.call);
            let _ = writeln!(
                text,
                "{}.{}  waits ({} s left): {call}",
                one.run, pending.approval, pending.left_seconds
            );
        }
        for lease in &one.leases {
            let _ = writeln!(
                text,
                "{}.{}  lease ({}, used {}): {}",
                one.run,
                lease.approval,
                lasting(lease),
                counted(lease.uses, "time", "times"),
                covered(lease)
            );
        }
        if one.further > 0 {
            let _ = writeln!(text, "{}  and {} older leases", one.run, one.further);
        }
    }
    match text.is_empty() {
        true => output.say("Nothing waits for an answer.\n"),
        false => output.result(&text),
    }
    Ok(0)
}

fn show(arguments: &ShowApprovalArguments, output: &Output) -> Result<u8, Failure> {
    let directory = directory()?.ok_or_else(none_goes_on)?;
    let (run, number) = question(&directory, &arguments.question)?;
    let pending = shown(&directory, &run, number)?;
    match arguments.json {
        true => output.json(&json!({ "run": run, "pending": pending })),
        false => output.result(&whole(&run, &pending)),
    }
    Ok(0)
}

fn grant(arguments: &GrantApprovalArguments, output: &Output) -> Result<u8, Failure> {
    let scope = scope(arguments)?;
    let breadth = match arguments.whole_rule {
        true => Breadth::Rule,
        false => Breadth::Same,
    };
    if (scope, breadth) == (Scope::Once, Breadth::Rule) {
        return Err(Failure::new("--whole-rule is for more than once")
            .because("once is exactly what was shown")
            .advise("atoll approvals grant QUESTION --run --whole-rule"));
    }
    let directory = directory()?.ok_or_else(none_goes_on)?;
    let (run, approval) = question(&directory, &arguments.question)?;
    let pending = shown(&directory, &run, approval)?;
    let digest: CallDigest = match &arguments.digest {
        Some(text) => {
            let read = text.parse::<CallDigest>().doing("--digest is not usable");
            read.map_err(|failure| failure.advise("atoll approvals show QUESTION tells it"))?
        }
        None => pending.digest,
    };
    decide(
        &directory,
        &run,
        Question::Decide {
            approval,
            digest,
            decision: Decision::Grant { scope, breadth },
        },
    )?;
    output.say(&format!("Granted: {}\n", line(&pending.call)));
    Ok(0)
}

fn deny(arguments: &DenyApprovalArguments, output: &Output) -> Result<u8, Failure> {
    let directory = directory()?.ok_or_else(none_goes_on)?;
    let (run, approval) = question(&directory, &arguments.question)?;
    let pending = shown(&directory, &run, approval)?;
    let decision = match arguments.stop {
        true => Decision::Stop {},
        false => Decision::Deny {},
    };
    let digest = pending.digest;
    decide(
        &directory,
        &run,
        Question::Decide {
            approval,
            digest,
            decision,
        },
    )?;
    output.say(&format!("Denied: {}\n", line(&pending.call)));
    if arguments.stop {
        output.say(&format!("Stopped {run}.\n"));
    }
    Ok(0)
}

fn revoke(arguments: &RevokeApprovalArguments, output: &Output) -> Result<u8, Failure> {
    let directory = directory()?.ok_or_else(none_goes_on)?;
    let (run, approval) = question(&directory, &arguments.lease)?;
    decide(&directory, &run, Question::Revoke { approval })?;
    output.say(&format!("Lease {run}.{approval} has ended.\n"));
    Ok(0)
}

/// What all runs have open.
fn asking(directory: &OwnedFd) -> Result<Vec<Asking>, Failure> {
    let runs = spoken_to(directory).doing("the runs cannot be listed")?;
    let mut all = Vec::new();
    for run in runs {
        match ask(directory, &run, &Question::Approvals {}) {
            Ok(Answer::Approvals {
                pending,
                leases,
                further,
            }) => all.push(Asking {
                run,
                pending,
                leases,
                further,
            }),
            // It has ended meanwhile.
            Err(ControlError::Gone) => {}
            other => done(&run, other)?,
        }
    }
    all.retain(|one| !one.pending.is_empty() || !one.leases.is_empty());
    Ok(all)
}

/// The run and the number that are meant by `RUN.NUMBER`, or by a number alone.
fn question(directory: &OwnedFd, text: &str) -> Result<(RunId, u32), Failure> {
    let none = || {
        Failure::new(format!(
            "there is no question {:?}",
            printable(text.as_bytes())
        ))
        .because("a question is a run and a number, as k7qd.1")
        .advise("atoll approvals list shows what waits")
    };
    let (run, number) = match text.rsplit_once('.') {
        Some((run, number)) => (Some(run), number),
        None => (None, text),
    };
    let number: u32 = number.parse().map_err(|_| none())?;
    if let Some(run) = run {
        return Ok((meant(directory, run)?, number));
    }
    let is_it = |one: &Asking| {
        one.pending.iter().any(|it| it.approval == number)
            || one.leases.iter().any(|it| it.approval == number)
    };
    let mut all = asking(directory)?;
    all.retain(is_it);
    match <[Asking; 1]>::try_from(all) {
        Ok([one]) => Ok((one.run, number)),
        Err(all) if all.is_empty() => closed(directory, number),
        Err(_) => Err(
            Failure::new(format!("more than one run has a question {number}"))
                .because("its number is each run's own")
                .advise("name the run too, as `atoll approvals list` does"),
        ),
    }
}

/// A number that no run has open: where one run alone goes on, it tells what became of it.
fn closed(directory: &OwnedFd, number: u32) -> Result<(RunId, u32), Failure> {
    let runs = spoken_to(directory).doing("the runs cannot be listed")?;
    match <[RunId; 1]>::try_from(runs) {
        Ok([run]) => Ok((run, number)),
        Err(_) => Err(
            Failure::new(format!("no run has a question or a lease {number}"))
                .because("it is answered already, or is over, or was never put")
                .advise("atoll approvals list shows what waits, and what was granted for longer"),
        ),
    }
}

fn shown(directory: &OwnedFd, run: &RunId, approval: u32) -> Result<Pending, Failure> {
    match ask(directory, run, &Question::Approval { approval }) {
        Ok(Answer::Approval(pending)) => Ok(*pending),
        other => match done(run, other) {
            Ok(()) => Err(unanswered(run, &ControlError::Strange)),
            Err(failure) => Err(failure),
        },
    }
}

fn decide(directory: &OwnedFd, run: &RunId, question: Question) -> Result<(), Failure> {
    done(run, ask(directory, run, &question))
}

/// Whether a run has done what it was told.
pub(crate) fn done(run: &RunId, answer: Result<Answer, ControlError>) -> Result<(), Failure> {
    match answer {
        Ok(Answer::Done {}) => Ok(()),
        Ok(Answer::Refused(declined)) => Err(refused(run, declined)),
        Ok(
            Answer::Ports { .. }
            | Answer::Published(_)
            | Answer::Approvals { .. }
            | Answer::Approval(_),
        ) => Err(unanswered(run, &ControlError::Strange)),
        Err(error) => Err(unanswered(run, &error)),
    }
}

fn scope(arguments: &GrantApprovalArguments) -> Result<Scope, Failure> {
    let Some(text) = &arguments.time else {
        return Ok(if arguments.run {
            Scope::Run
        } else {
            Scope::Once
        });
    };
    let time = parse_duration(text).doing("--for is not usable");
    let time =
        time.map_err(|failure| failure.advise("atoll approvals grant QUESTION --for 15m"))?;
    let seconds = u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
    if !(1..=LEASE_SECONDS_MAX).contains(&seconds) {
        return Err(Failure::new(format!("--for {text} is not usable"))
            .because("it is for a second at least and a day at most")
            .advise("atoll approvals grant QUESTION --for 15m"));
    }
    Ok(Scope::Seconds { seconds })
}

/// A call in one line: host first, since that is what counts; nothing in it can be a line of
/// its own, or hide.
pub(crate) fn line(call: &AskedCall) -> String {
    let shown = |text: &str| {
        let text = printable(text.as_bytes());
        match text.chars().count() > LISTED_CHARACTERS_MAX {
            true => {
                let beginning: String = text.chars().take(LISTED_CHARACTERS_MAX).collect();
                format!("{beginning}…")
            }
            false => text,
        }
    };
    // The end of a host says whose it is: its beginning is anybody's.
    let host = printable(call.host.as_bytes());
    let place = match host.chars().count().checked_sub(LISTED_CHARACTERS_MAX) {
        Some(over @ 1..) => {
            let end: String = host.chars().skip(over).collect();
            format!("…{end} port {}", call.port)
        }
        Some(0) | None => format!("{host} port {}", call.port),
    };
    if let Some(login) = &call.login {
        let (user, database) = (shown(&login.user), shown(&login.database));
        return format!("{place}: signs in as user {user} to database {database}");
    }
    let Some(request) = &call.request else {
        return format!("{place}: a connection that nobody looks into");
    };
    let body = match &request.body {
        Some(body) => format!(" with {} bytes", body.bytes),
        None => String::new(),
    };
    format!(
        "{place} ({}): {} {}{body}",
        request.scheme,
        shown(&request.method),
        shown(&request.path)
    )
}

/// What is told where a run goes on of a question that it puts.
pub(crate) fn told(run: &RunId, question: &Pending) -> String {
    let number = question.approval;
    let call = line(&question.call);
    format!(
        "atoll: waits for a person: {call}; `atoll approvals show {run}.{number}` and `grant` or \
         `deny` in another terminal"
    )
}

/// For what a lease is, in one line.
fn covered(lease: &Lease) -> String {
    match lease.breadth {
        Breadth::Same => line(&lease.call),
        Breadth::Rule => format!(
            "whatever {} asks about",
            printable(lease.call.rule.as_bytes())
        ),
    }
}

fn lasting(lease: &Lease) -> String {
    match lease.left_seconds {
        Some(seconds) => format!("{seconds} s left"),
        None => "until the run ends".to_owned(),
    }
}

/// All that is known of a question: what Atoll has read of the call first, the program's own
/// words last and marked as such.
pub(crate) fn whole(run: &RunId, pending: &Pending) -> String {
    let rows = [facts(run, pending), words(&pending.call)].concat();
    rows.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{name}: {value}");
        text
    })
}

/// What Atoll has read of what a question is about, a name and a text each.
pub(crate) fn facts(run: &RunId, pending: &Pending) -> Vec<(&'static str, String)> {
    let call = &pending.call;
    let mut rows: Vec<(&str, String)> = vec![
        ("question", format!("{run}.{}", pending.approval)),
        ("host", printable(call.host.as_bytes())),
        ("port", call.port.to_string()),
    ];
    match &call.request {
        None => rows.push((
            "what",
            "a connection: nobody looks into what it carries, both ways".to_owned(),
        )),
        Some(request) => {
            let what = match request.is_web_socket {
                true => "a request that opens a WebSocket: its messages are not asked about",
                false => "a request",
            };
            rows.push(("what", format!("{what} by {}", request.scheme)));
            rows.push(("method", printable(request.method.as_bytes())));
            rows.push(("path", printable(request.path.as_bytes())));
            if let Some(body) = &request.body {
                rows.push((
                    "body",
                    format!("{} bytes, SHA-256 {}", body.bytes, body.digest),
                ));
            }
        }
    }
    if let Some(login) = &call.login {
        rows.push(("user", printable(login.user.as_bytes())));
        rows.push(("database", printable(login.database.as_bytes())));
    }
    if !call.credentials.is_empty() {
        let names: Vec<&str> = call.credentials.iter().map(|one| one.as_str()).collect();
        rows.push(("credentials", names.join(", ")));
    }
    rows.push(("rule", printable(call.rule.as_bytes())));
    rows.push(("waiting", waiting(pending)));
    rows.push(("digest", pending.digest.to_string()));
    rows
}

/// The program's own words in it.
pub(crate) fn words(call: &AskedCall) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    let request = call.request.as_ref();
    let query = request.and_then(|one| one.query.as_deref());
    let body = request.and_then(|one| one.body.as_ref());
    let quoted = |text: &str| format!("\"{}\"", printable(text.as_bytes()));
    rows.extend(query.map(|query| ("the program's own words, query", quoted(query))));
    for header in request.map_or(&[][..], |one| &one.telling_headers) {
        let name = printable(header.name.as_bytes());
        let header = format!("{name}: {}", quoted(&header.value));
        rows.push(("the program's own words, header", header));
    }
    if let Some(request) = request.filter(|one| one.further_headers > 0) {
        let further = format!("{}, with a digest alone", request.further_headers);
        rows.push(("the program's own words, further headers", further));
    }
    rows.extend(body.map(|body| {
        let words = "the program's own words, body begins";
        (words, quoted(&body.beginning))
    }));
    rows
}

fn waiting(pending: &Pending) -> String {
    let equal = match pending.waiting {
        1 => String::new(),
        equal => format!("{equal} equal calls, "),
    };
    format!("{equal}{} s left", pending.left_seconds)
}

#[cfg(test)]
mod tests;
