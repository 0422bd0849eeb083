//! `atoll approvals`: the answers of a person to the questions of running runs.

mod rows;
mod second;
mod served_rows;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use atoll_engine::control::{done, meant, none_goes_on, runs_of, unanswered};
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::printable::printable;
use atoll_engine::supervision::{Answer, ControlError, Question, Runs, ask, ask_until, spoken_to};
use atoll_model::network::{
    ApprovalScope, AskedCall, CallDigest, FlowKind, LEASE_SECONDS_MAX, Scope,
};
use atoll_model::{RunId, parse_duration};
use atoll_sandbox::{Decision, Lease, Pending, PortAgreed};
use serde_json::json;

use crate::arguments::{
    ApprovalsAction, ApprovalsArguments, DenyApprovalArguments, GrantApprovalArguments,
    ListApprovalsArguments, RevokeApprovalArguments, ShowApprovalArguments,
};
use crate::output::Output;
use crate::render::{counted, wrapped};
use crate::terminal::terminal_size;
pub(crate) use rows::{facts, words};
pub(crate) use second::{persons, same_port, second_of, told as told_of_two};
use second::{same, waiting_port};

/// The longest wait for one run while all are listed, and the longest for all of them together.
const LISTED_PATIENCE: Duration = Duration::from_secs(5);
const LISTING_PATIENCE: Duration = Duration::from_secs(30);
/// The longest text shown in a list, characters.
const LISTED_CHARACTERS_MAX: usize = 100;

/// The open questions and the leases of one run.
struct Asking {
    run: RunId,
    pending: Vec<Pending>,
    leases: Vec<Lease>,
    /// The number of leases that are not listed.
    further: u32,
    /// The port that waits for a second person's approval.
    port: Option<PortAgreed>,
}

impl Asking {
    fn json(&self) -> serde_json::Value {
        let Self {
            run,
            pending,
            leases,
            further,
            port,
        } = self;
        let mut told = json!({
            "run": run, "pending": pending, "leases": leases, "further_leases": further
        });
        if let (Some(port), Some(told)) = (port, told.as_object_mut()) {
            told.insert("port".to_owned(), json!(port));
        }
        told
    }
}

/// The open questions of a server, as its API has them.
#[derive(Default)]
pub struct Served {
    /// The questions.
    pub open: Vec<serde_json::Value>,
    /// A line on how they are answered, or listed; may be empty.
    pub hint: String,
}

/// Lists, shows or answers the questions of running runs, or revokes leases.
///
/// # Errors
/// When there is no such question, or the run declines.
pub fn approvals(
    arguments: ApprovalsArguments,
    of_server: &dyn Fn() -> Served,
    output: &Output,
) -> Result<u8, Failure> {
    let action = arguments.action.unwrap_or_default();
    match action {
        ApprovalsAction::List(arguments) => list(&arguments, of_server, output),
        ApprovalsAction::Show(arguments) => show(&arguments, output),
        ApprovalsAction::Grant(arguments) => grant(&arguments, output),
        ApprovalsAction::Deny(arguments) => deny(&arguments, output),
        ApprovalsAction::Revoke(arguments) => revoke(&arguments, output),
    }
}

fn list(
    arguments: &ListApprovalsArguments,
    of_server: &dyn Fn() -> Served,
    output: &Output,
) -> Result<u8, Failure> {
    let (all, deaf) = match runs_of(arguments.of.as_deref())? {
        Some(directory) => asking(&directory)?,
        None => Default::default(),
    };
    for run in deaf {
        output.warn(&format!("run {run} does not answer, and is left out"));
    }
    // A server has nothing of another user's runs.
    let served = match &arguments.of {
        None => of_server(),
        Some(_) => Served::default(),
    };
    if arguments.json {
        let told = all.iter().map(Asking::json);
        output.json(&told.chain(served.open).collect());
        return Ok(0);
    }
    let mut text = String::new();
    for one in &all {
        for pending in &one.pending {
            let call = line(&pending.call);
            let _ = writeln!(
                text,
                "{}.{}  waits{} ({} s left): {call}",
                one.run,
                pending.approval,
                match pending.agreed {
                    Some(_) => " for a second person",
                    None => "",
                },
                pending.left_seconds
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
        text.extend(one.port.iter().map(|port| waiting_port(&one.run, port)));
        if one.further > 0 {
            let _ = writeln!(text, "{}  and {} older leases", one.run, one.further);
        }
    }
    text.push_str(&served_rows::lines(&served.open));
    match text.is_empty() {
        true => output.say("Nothing waits for an answer.\n"),
        false => output.result(&text),
    }
    output.say(&served.hint);
    Ok(0)
}

fn show(arguments: &ShowApprovalArguments, output: &Output) -> Result<u8, Failure> {
    let directory = runs_of(arguments.of.as_deref())?.ok_or_else(none_goes_on)?;
    let (run, number) = question(&directory, &arguments.question)?;
    let pending = shown(&directory, &run, number)?;
    match arguments.json {
        true => output.json(&json!({ "run": run, "pending": pending })),
        false => output.result(&whole(&run, &pending, columns(output))),
    }
    Ok(0)
}

fn grant(arguments: &GrantApprovalArguments, output: &Output) -> Result<u8, Failure> {
    let scope = scope(arguments)?;
    let breadth = match arguments.whole_rule {
        true => ApprovalScope::Rule,
        false => ApprovalScope::Same,
    };
    if (scope, breadth) == (Scope::Once, ApprovalScope::Rule) {
        return Err(Failure::new("--whole-rule is for more than once")
            .because("once is exactly what was shown")
            .advise("atoll approvals grant QUESTION --run --whole-rule"));
    }
    let directory = runs_of(arguments.of.as_deref())?.ok_or_else(none_goes_on)?;
    let (run, approval) = question(&directory, &arguments.question)?;
    let pending = shown(&directory, &run, approval)?;
    let digest: CallDigest = match &arguments.digest {
        Some(text) => {
            let read = text.parse::<CallDigest>().doing("--digest is not usable");
            read.map_err(|failure| failure.advise("atoll approvals show QUESTION tells it"))?
        }
        None => pending.digest,
    };
    let decision = Decision::Grant { scope, breadth };
    let question = Question::Decide {
        approval,
        digest,
        decision,
    };
    match ask(&directory, &run, &question) {
        Ok(Answer::Agreed(second)) => {
            output.say(&format!(
                "Agreed: {}\nIt takes two persons, and goes out once {} says the same within {} s:\n  {}\n",
                line(&pending.call),
                persons(&second),
                pending.left_seconds,
                same(&run, approval, (scope, breadth), second.owner)
            ));
        }
        answer => {
            done(&run, answer)?;
            output.say(&format!("Granted: {}\n", line(&pending.call)));
        }
    }
    Ok(0)
}

fn deny(arguments: &DenyApprovalArguments, output: &Output) -> Result<u8, Failure> {
    let directory = runs_of(arguments.of.as_deref())?.ok_or_else(none_goes_on)?;
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
    let directory = runs_of(None)?.ok_or_else(none_goes_on)?;
    let (run, approval) = question(&directory, &arguments.lease)?;
    decide(&directory, &run, Question::Revoke { approval })?;
    output.say(&format!("Lease {run}.{approval} has ended.\n"));
    Ok(0)
}

/// Returns the open questions of all runs, and the runs that did not answer in time.
fn asking(directory: &Runs) -> Result<(Vec<Asking>, Vec<RunId>), Failure> {
    let runs = spoken_to(directory).doing("the runs cannot be listed")?;
    let (mut all, mut deaf) = (Vec::new(), Vec::new());
    let until = Instant::now() + LISTING_PATIENCE;
    for run in runs {
        let until = until.min(Instant::now() + LISTED_PATIENCE);
        match ask_until(directory, &run, &Question::Approvals {}, until) {
            Ok(Answer::Approvals {
                pending,
                leases,
                further,
                port,
            }) => all.push(Asking {
                run,
                pending,
                leases,
                further,
                port,
            }),
            // It has ended meanwhile.
            Err(ControlError::Gone) => {}
            Err(ControlError::Silent(_) | ControlError::Another(_) | ControlError::Strange) => {
                deaf.push(run)
            }
            other => done(&run, other)?,
        }
    }
    let has_some =
        |one: &Asking| !one.pending.is_empty() || !one.leases.is_empty() || one.port.is_some();
    all.retain(has_some);
    Ok((all, deaf))
}

/// Returns the run and the number that `RUN.NUMBER`, or a number alone, means.
fn question(directory: &Runs, text: &str) -> Result<(RunId, u32), Failure> {
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
        return Ok((meant(directory, run, &crate::finding::tell)?, number));
    }
    let is_it = |one: &Asking| {
        one.pending.iter().any(|it| it.approval == number)
            || one.leases.iter().any(|it| it.approval == number)
    };
    let (mut all, _) = asking(directory)?;
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

/// Resolves a number that no run has open: if exactly one run goes on, that run reports its
/// outcome.
fn closed(directory: &Runs, number: u32) -> Result<(RunId, u32), Failure> {
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

fn shown(directory: &Runs, run: &RunId, approval: u32) -> Result<Pending, Failure> {
    match ask(directory, run, &Question::Approval { approval }) {
        Ok(Answer::Approval(pending)) => Ok(*pending),
        other => match done(run, other) {
            Ok(()) => Err(unanswered(run, &ControlError::Strange)),
            Err(failure) => Err(failure),
        },
    }
}

fn decide(directory: &Runs, run: &RunId, question: Question) -> Result<(), Failure> {
    done(run, ask(directory, run, &question))
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

/// Describes, in a few words, a flow whose content is not inspected.
fn in_short(kind: FlowKind) -> &'static str {
    match kind {
        FlowKind::SshLogin => "a key of SSH signs in",
        FlowKind::CommitSignature => "a key of SSH signs a commit or a tag",
        FlowKind::Name
        | FlowKind::Tunnel
        | FlowKind::Request
        | FlowKind::Published
        | FlowKind::Fetch
        | FlowKind::Revocation
        | FlowKind::Postgres => "a connection that nobody looks into",
    }
}

/// Returns a call in one line: the host first, since that is what counts. Its text can neither
/// begin a line of its own nor hide anything.
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
        return format!("{place}: {}", in_short(call.kind));
    };
    let body = match &request.body {
        Some(body) => format!(" with {}", counted(body.bytes, "byte", "bytes")),
        None => String::new(),
    };
    format!(
        "{place} ({}): {} {}{body}",
        request.scheme,
        shown(&request.method),
        shown(&request.path)
    )
}

/// Returns the line printed at a run's own terminal when the run waits for an approval.
pub(crate) fn told(run: &RunId, question: &Pending) -> String {
    let number = question.approval;
    let call = line(&question.call);
    let why = printable(question.call.rule.as_bytes());
    format!(
        "atoll: waits for a person: {call} (why: {why}); `atoll approvals show {run}.{number}` and `grant` or \
         `deny` in another terminal"
    )
}

/// Describes the scope of a lease in one line.
fn covered(lease: &Lease) -> String {
    match lease.breadth {
        ApprovalScope::Same => line(&lease.call),
        ApprovalScope::Rule => format!(
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

/// Returns all facts of a question: those that Atoll has parsed from the call first, the program's
/// own words last and marked as such. For a terminal of so many columns, each continuation line
/// begins with a mark, so that no text of a program begins a line there.
fn whole(run: &RunId, pending: &Pending, columns: Option<usize>) -> String {
    let rows = [facts(run, pending), words(&pending.call)].concat();
    let lines = rows.iter().flat_map(|(name, value)| {
        let row = format!("{name}: {value}");
        match columns {
            Some(columns) => wrapped(&row, columns),
            None => vec![row],
        }
    });
    lines.fold(String::new(), |text, line| text + &line + "\n")
}

/// Returns the width of the terminal that results are shown on.
fn columns(output: &Output) -> Option<usize> {
    let size = terminal_size().filter(|_| output.is_terminal)?;
    (size.columns > 0).then_some(size.columns.into())
}

#[cfg(test)]
mod tests;
