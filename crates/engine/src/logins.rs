//! Logins of agents that are issued in a run, whose tokens stay outside.

pub mod compose;
pub mod keeping;
pub mod merge;
pub mod place;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use atoll_egress::secret::LOGIN_BYTES_MAX;
use atoll_model::RunId;
use atoll_policy::{Login, LoginIssue, Rules, misspelt};
use atoll_store::RunRecord;
use rustix::fs::OFlags;
use zeroize::Zeroizing;

use crate::Request;
use crate::failure::{Doing, Failure};
use crate::not_started;
use crate::supervision::{CaughtToken, CredentialBundle};

/// Agents that profiles which ship log in, and how they are installed.
pub const AGENTS: [(&str, &str); 4] = [
    ("claude", "npm install -g @anthropic-ai/claude-code"),
    ("codex", "npm install -g @openai/codex"),
    ("gemini", "npm install -g @google/gemini-cli"),
    ("opencode", "npm install -g opencode-ai"),
];
/// Words of commands by which a code is typed elsewhere: no browser comes back.
pub const CODE_WORDS: [&str; 2] = ["device", "headless"];
/// Words of commands by which a key would be typed into the sandbox.
const KEY_WORDS: [&str; 2] = ["api-key", "api_key"];
/// The most characters in which a mistyped agent's name differs from the intended one.
const SLIPS_MAX: usize = 2;

/// The results of a login run.
pub struct Gathered {
    /// The run.
    pub run: RunId,
    /// The login file that the agent has written.
    pub file: Result<Zeroizing<Vec<u8>>, String>,
    /// The tokens that were caught on their way.
    pub tokens: Vec<CaughtToken>,
}

/// Returns the login to issue: that of the agent's name, or the only one.
///
/// # Errors
/// When there is none, or several.
pub fn chosen<'a>(rules: &'a Rules, agent: &OsStr) -> Result<(&'a Login, &'a LoginIssue), Failure> {
    let all: Vec<(&Login, &LoginIssue)> = rules
        .logins()
        .filter_map(|login| Some((login, login.issue.as_ref()?)))
        .collect();
    let is_named = |login: &Login| agent == OsStr::new(login.name.as_str());
    let named = all.iter().find(|(login, _)| is_named(login));
    match (named, all.as_slice()) {
        (Some(one), _) | (None, [one]) => Ok(*one),
        (None, _) => {
            let agent = agent.to_string_lossy().into_owned();
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
                .advise("a profile of your own can say how: atoll help credentials"))
        }
    }
}

/// Returns the command that logs the agent in.
///
/// # Errors
/// When it is one for a key.
pub fn command_of(typed: &[OsString], issue: &LoginIssue) -> Result<Vec<OsString>, Failure> {
    let command = match typed.is_empty() {
        true => issue.command.iter().map(OsString::from).collect(),
        false => typed.to_vec(),
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
pub fn has_word(command: &[OsString], of: &[&str]) -> bool {
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
pub fn is_free(callback: Option<u16>) -> Result<(), Failure> {
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
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// Makes it, for the caller alone.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn make() -> Result<Self, Failure> {
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

/// Collects the results of a login before they are discarded. From here on this process holds
/// tokens: not before, since the process that has just made the sandbox has to be as any other.
///
/// # Errors
/// When this process cannot be closed to others, or they cannot be read.
pub fn gather(
    request: &Request<'_>,
    record: &RunRecord,
    login: &Login,
) -> Result<Gathered, Failure> {
    atoll_egress::hold_alone()
        .doing("this process cannot be closed to others, so it takes no token")?;
    let tokens = request.handover.map(CredentialBundle::caught);
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
pub fn is_installed(command: &[OsString], rules: &Rules, login: &Login) -> Result<(), Failure> {
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
pub fn not_found(login: &Login) -> Failure {
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
pub fn not_logged_in(run: &RunId, login: &Login, why: String) -> Failure {
    let what = format!("nothing is written: {} is not logged in", login.name);
    Failure::new(what)
        .because(why)
        .advise(format!("`atoll why {run}` shows what was refused"))
        .advise(format!(
            "atoll login {} tries again; or log in outside with the agent's own command",
            login.name
        ))
}
