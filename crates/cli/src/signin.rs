//! `atoll login`: an agent logs in inside a sandbox, and its tokens stay on the host.
//!
//! The agent's own command runs with an empty workspace. The egress process intercepts the issuer's
//! responses; the file that the agent writes has placeholders for the tokens, and is written on the
//! host with the real ones injected.

use std::ffi::OsString;

use atoll_engine::configuration::{self, Places, PolicyFiles};
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::logins::keeping::Keeping;
use atoll_engine::logins::{
    AGENTS, CODE_WORDS, Scratch, chosen, command_of, gather, has_word, is_free, is_installed,
    not_found, not_logged_in,
};
use atoll_policy::{Requested, Rules};
use atoll_sandbox::Signals;

use crate::arguments::{LoginArguments, RunArguments};
use crate::output::Output;
use crate::requested::requested_profile;
use crate::run::{begin, carry_out};
use crate::status::STATUS_OWN_ERROR;
use crate::terminal::{Typed, typed};

/// The time limit for a login.
const PATIENCE: &str = "10m";

/// The exit status for a command that is not found, as shells have it.
const STATUS_NOT_FOUND: u8 = 127;

/// Logs an agent in; returns the exit status.
pub fn login(arguments: &LoginArguments, output: &Output) -> Result<u8, Failure> {
    if arguments.agent.is_empty() {
        let ways = AGENTS
            .iter()
            .map(|(agent, _)| format!("atoll login {agent}"));
        let failure = Failure::new("no agent is named").because("these can be logged in inside");
        return Err(ways.fold(failure, Failure::advise));
    }
    // What is in the login file already is read before the sandbox is made. Inside the limit is the
    // same without this.
    atoll_egress::leave_no_core().doing("core dumps cannot be forbidden")?;
    let places = Places::read()?;
    let rules = rules_of(arguments, &places)?;
    let (login, issue) = chosen(&rules, &arguments.agent)?;
    let command = command_of(&arguments.command, issue)?;
    let callback = issue.callback.filter(|_| !has_word(&command, &CODE_WORDS));
    if !arguments.yes && !output.can_ask {
        let agent = atoll_engine::shell::command_line(std::slice::from_ref(&arguments.agent));
        return Err(
            Failure::new("nobody can be asked whether the login is kept")
                .because("standard input or error is no terminal")
                .advise(format!(
                    "atoll login --yes {agent} keeps it without a question"
                )),
        );
    }
    is_installed(&command, &rules, login)?;
    is_free(callback)?;
    let keeping = Keeping::prepare(&places, &rules, (login, issue))?;
    if arguments.yes {
        keeping.unasked(&places, login)?;
    }
    let workspace = Scratch::make()?;
    let run = RunArguments {
        login: Some(login.name.clone()),
        profile: Some(profile_of(arguments, &rules)),
        workspace: Some(workspace.0.clone()),
        publish: callback.iter().map(u16::to_string).collect(),
        timeout: Some(PATIENCE.to_owned()),
        discard: true,
        command,
        ..RunArguments::default()
    };
    tell(&keeping, callback, output);
    let mut gathered = None;
    let status = carry_out(&run, begin(), (None, output), &mut |request, record| {
        gathered = Some(gather(request, record, login));
    })?;
    let gathered = gathered.ok_or_else(|| Failure::new("the run of the login has not ended"))??;
    if gathered.tokens.is_empty() && status == STATUS_NOT_FOUND {
        let run = &gathered.run;
        let told = format!("`atoll why {run}` shows what was started");
        return Err(not_found(login).advise(told));
    }
    if gathered.tokens.is_empty() {
        let host = &issue.token.host;
        let why = format!("{host} has given no token; the agent ended with status {status}");
        return Err(not_logged_in(&gathered.run, login, why));
    }
    let kept = keeping.checked(&gathered, login)?;
    if !arguments.yes && !agreed(&keeping, output)? {
        output.say("The login is not kept; its tokens are forgotten here.\n");
        return Ok(STATUS_OWN_ERROR);
    }
    kept.keep(&places, (&gathered, login))?;
    output.say(&format!(
        "The login {} is in {}.\n",
        login.name,
        keeping.place()
    ));
    Ok(0)
}

/// Compiles the rules under which the agent would run.
fn rules_of(arguments: &LoginArguments, places: &Places) -> Result<Rules, Failure> {
    let files = PolicyFiles::read(places, None)?;
    let profile = arguments.profile.as_deref().map(requested_profile);
    let requested = Requested {
        profile: profile.transpose()?,
        ..Requested::default()
    };
    let host = configuration::host_facts(places)?;
    files
        .compile(&requested, &arguments.agent, &host)
        .map_err(|error| {
            Failure::new("This login's rules are invalid")
                .because(&error)
                .advise(error)
        })
}

/// Returns the name of the profile for the run.
fn profile_of(arguments: &LoginArguments, rules: &Rules) -> OsString {
    let named = arguments.profile.clone();
    named.unwrap_or_else(|| rules.profile().into())
}

fn tell(keeping: &Keeping<'_>, callback: Option<u16>, output: &Output) {
    let port = match callback {
        Some(port) => format!("; the browser comes back to http://127.0.0.1:{port} meanwhile"),
        None => String::new(),
    };
    output.say(&format!(
        "Open in a browser what the agent prints, and log in there{port}. It has 10 minutes. \
         Its tokens stay outside: they are kept in {} at the end.\n",
        keeping.place()
    ));
}

/// Asks whether the login is to be written.
fn agreed(keeping: &Keeping<'_>, output: &Output) -> Result<bool, Failure> {
    let signals = Signals::take().doing("signals cannot be taken over")?;
    output.say(&format!("Keep the login in {}? [y/N] ", keeping.asked()));
    Ok(match typed(&signals, None) {
        Typed::Line(line) => matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"),
        Typed::Left | Typed::Late => false,
    })
}
