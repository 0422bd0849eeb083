//! `atoll login`: an agent logs in inside a sandbox, and its tokens stay on the host.
//!
//! The agent's own command runs with an empty workspace. The egress process intercepts the issuer's
//! responses; the file that the agent writes has placeholders for the tokens, and is written on the
//! host with the real ones injected.

mod compose;
mod keeping;
mod merge;
mod place;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use atoll_egress::secret::LOGIN_BYTES_MAX;
use atoll_engine::Request;
use atoll_engine::configuration::{self, Places, PolicyFiles};
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::not_started;
use atoll_model::RunId;
use atoll_policy::{Login, LoginIssue, Requested, Rules, misspelt};
use atoll_sandbox::{CaughtToken, Handover, Signals};
use atoll_store::RunRecord;
use keeping::Keeping;
use rustix::fs::OFlags;
use zeroize::Zeroizing;

use crate::arguments::{LoginArguments, RunArguments};
use crate::output::Output;
use crate::render;
use crate::requested::requested_profile;
use crate::run::carry_out;
use crate::status::STATUS_OWN_ERROR;
use crate::terminal::{Typed, typed};

/// The time limit for a login.
const PATIENCE: &str = "10m";
/// Words of commands by which a key would be typed into the sandbox.
const KEY_WORDS: [&str; 2] = ["api-key", "api_key"];

/// Words of commands by which a code is typed elsewhere: no browser comes back.
const CODE_WORDS: [&str; 2] = ["device", "headless"];

/// The most characters in which a mistyped agent's name differs from the intended one.
const SLIPS_MAX: usize = 2;

/// The exit status for a command that is not found, as shells have it.
const STATUS_NOT_FOUND: u8 = 127;

/// Agents that profiles which ship log in, and how they are installed.
const AGENTS: [(&str, &str); 4] = [
    ("claude", "npm install -g @anthropic-ai/claude-code"),
    ("codex", "npm install -g @openai/codex"),
    ("gemini", "npm install -g @google/gemini-cli"),
    ("opencode", "npm install -g opencode-ai"),
];

/// The results of a login run.
struct Gathered {
    run: RunId,
    /// The login file that the agent has written.
    file: Result<Zeroizing<Vec<u8>>, String>,
    tokens: Vec<CaughtToken>,
}

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
    let (login, issue) = chosen(&rules, arguments)?;
    let command = command_of(arguments, issue)?;
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
    let status = carry_out(&run, (None, output), &mut |request, record| {
        gathered = Some(gather(request, record, login));
    })?;
    let gathered = gathered.ok_or_else(|| Failure::new("the run of the login has not ended"))??;
    if gathered.tokens.is_empty() && status == STATUS_NOT_FOUND {
        let run = &gathered.run;
        let told = format!("atoll why {run} tells what was started");
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
            Failure::new("the rules of this login cannot be made")
                .because(&error)
                .advise(error)
        })
}

/// Returns the name of the profile for the run.
fn profile_of(arguments: &LoginArguments, rules: &Rules) -> OsString {
    let named = arguments.profile.clone();
    named.unwrap_or_else(|| rules.profile().into())
}

/// Returns the login to issue: that of the agent's name, or the only one.
fn chosen<'a>(
    rules: &'a Rules,
    arguments: &LoginArguments,
) -> Result<(&'a Login, &'a LoginIssue), Failure> {
    let all: Vec<(&Login, &LoginIssue)> = rules
        .logins()
        .filter_map(|login| Some((login, login.issue.as_ref()?)))
        .collect();
    let is_named = |login: &Login| arguments.agent == OsStr::new(login.name.as_str());
    let named = all.iter().find(|(login, _)| is_named(login));
    match (named, all.as_slice()) {
        (Some(one), _) | (None, [one]) => Ok(*one),
        (None, _) => {
            let agent = arguments.agent.to_string_lossy().into_owned();
            let profile = rules.profile();
            let failure = Failure::new(format!("{agent} cannot be logged in inside"));
            let agents = AGENTS.iter().map(|(agent, _)| *agent);
            let failure = match misspelt(&agent, agents, SLIPS_MAX) {
                Some(near) => failure.advise(format!("did you mean atoll login {near}?")),
                None => failure,
            };
            Err(failure
                .because(format!(
                    "the profile {profile} does not say how: no [login.{agent}] of it has `issue`"
                ))
                .advise(
                    "log in outside, with the agent's own command: its login file is used inside",
                )
                .advise("a profile of your own can say how: docs/credentials.md"))
        }
    }
}

fn command_of(arguments: &LoginArguments, issue: &LoginIssue) -> Result<Vec<OsString>, Failure> {
    let command = match arguments.command.is_empty() {
        true => issue.command.iter().map(OsString::from).collect(),
        false => arguments.command.clone(),
    };
    match has_word(&command, &KEY_WORDS) {
        false => Ok(command),
        true => Err(Failure::new("a key is not typed into a sandbox")
            .because("a login by key needs no issuer: whatever is typed would be inside as it is")
            .advise("atoll secret set NAME keeps it, and a [credential] with source = { vault = \"NAME\" } uses it")
            .advise("or export it, as the page on the agent tells: inside something else stands for it")),
    }
}

/// Returns whether one of these is in a word of a command.
fn has_word(command: &[OsString], of: &[&str]) -> bool {
    let has = |word: &OsString| {
        let word = word.to_string_lossy().to_lowercase();
        of.iter().any(|one| word.contains(one))
    };
    command.iter().any(has)
}

/// Checks that the port for the browser's callback is free, before anybody logs in.
///
/// # Errors
/// When somebody else listens there.
fn is_free(callback: Option<u16>) -> Result<(), Failure> {
    let Some(port) = callback else {
        return Ok(());
    };
    match std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, port)) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::new(format!(
            "port {port}, at which the agent waits for the browser, cannot be had"
        ))
        .because(error)
        .advise(format!(
            "ss -ltnp 'sport = :{port}' shows who listens there: end that, and log in again"
        ))),
    }
}

/// An empty workspace, removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn make() -> Result<Self, Failure> {
        let failed = "there is no place for an empty workspace";
        // The standard library's hash seeds come from the kernel's random numbers.
        let random = std::hash::RandomState::new().build_hasher().finish();
        let name = format!("atoll-login-{random:016x}");
        let path = std::env::temp_dir().join(name);
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .doing(failed)?;
        Ok(Self(path.canonicalize().doing(failed)?))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing of the run is written there.
        let _ = std::fs::remove_dir(&self.0);
    }
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

/// Collects the results of a login before they are discarded. From here on this process holds
/// tokens: not before, since the process that has just made the sandbox has to be as any other.
fn gather(request: &Request<'_>, record: &RunRecord, login: &Login) -> Result<Gathered, Failure> {
    atoll_egress::hold_alone()
        .doing("this process cannot be closed to others, so it takes no token")?;
    let tokens = request.handover.map(Handover::caught);
    let tokens = tokens.transpose().doing("what was caught cannot be read")?;
    Ok(Gathered {
        run: record.run.clone(),
        file: written(request, record, login),
        tokens: tokens.unwrap_or_default(),
    })
}

/// Reads the login file that the sandboxed agent has written.
fn written(
    request: &Request<'_>,
    record: &RunRecord,
    login: &Login,
) -> Result<Zeroizing<Vec<u8>>, String> {
    let name = login.file.file_name().unwrap_or_default();
    let directory = login
        .file
        .parent()
        .and_then(|path| path.canonicalize().ok());
    let mut layers = record.layers.iter();
    let layer = layers.find(|layer| {
        let host = layer.host.canonicalize().ok();
        host.is_some() && host == directory && layer.logins.iter().any(|one| one == name)
    });
    let layer = layer.ok_or("its directory has no layer in such a run")?;
    read(&layer.upper_path(request.state, &record.run).join(name))
}

/// Reads a file that a sandboxed program has written.
fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY).bits();
    let flags = i32::try_from(flags).unwrap_or_default();
    let none = "the agent has written none";
    let facts = path.symlink_metadata().map_err(|_| none)?;
    // What is not there is a device, where something is below.
    if !facts.is_file() {
        return Err(none.to_owned());
    }
    let file = File::options().read(true).custom_flags(flags).open(path);
    let file = file.map_err(|error| error.to_string())?;
    if !file.metadata().is_ok_and(|facts| facts.is_file()) {
        return Err(none.to_owned());
    }
    let mut text = Zeroizing::new(Vec::with_capacity(LOGIN_BYTES_MAX + 1));
    let most = u64::try_from(LOGIN_BYTES_MAX + 1).unwrap_or(u64::MAX);
    let got = file.take(most).read_to_end(&mut text);
    got.map_err(|error| error.to_string())?;
    match text.len() <= LOGIN_BYTES_MAX {
        true => Ok(text),
        false => Err(format!("it is longer than {} KiB", LOGIN_BYTES_MAX / 1024)),
    }
}

/// Looks for the agent before anything is printed, opened or published.
///
/// # Errors
/// When it is looked up by name and this host has none, or none that the sandbox shows.
fn is_installed(command: &[OsString], rules: &Rules, login: &Login) -> Result<(), Failure> {
    let Some(program) = command
        .first()
        .filter(|name| !name.as_encoded_bytes().contains(&b'/'))
    else {
        return Ok(());
    };
    // A profile may have a PATH of its own.
    if rules.sets_variable("PATH") {
        return Ok(());
    }
    match not_started::found_inside(program, rules) {
        Some(Ok(())) => Ok(()),
        Some(Err(why)) => {
            let what = format!("nothing is written: {} is not logged in", login.name);
            Err(Failure::new(what).because(why))
        }
        None => Err(not_found(login)),
    }
}

/// Describes that the agent is not installed.
fn not_found(login: &Login) -> Failure {
    let name = &login.name;
    let failure = Failure::new(format!("nothing is written: {name} is not logged in")).because(
        format!("{name} is not installed, or not where programs inside are looked for"),
    );
    let installs = AGENTS.iter().find(|(agent, _)| *agent == name.as_str());
    match installs {
        Some((_, command)) => failure.advise(*command),
        None => failure.advise("install it as its makers say"),
    }
}

/// Describes a login that failed.
fn not_logged_in(run: &RunId, login: &Login, why: String) -> Failure {
    let what = format!("nothing is written: {} is not logged in", login.name);
    Failure::new(what)
        .because(why)
        .advise(format!("atoll why {run} tells what was refused"))
        .advise(format!(
            "atoll login {} tries again; or log in outside with the agent's own command",
            login.name
        ))
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
