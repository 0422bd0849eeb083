//! The tokens that a run is given.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use atoll_ledger::StateDir;
use atoll_model::network::Network;
use atoll_model::{CallTool, RunId, SessionName, ToolName};
use atoll_store::TokenFiles;
use atoll_tokens::{Asked, Bound, Held, Holder, told_time};
use serde_json::{Value, json};

use super::{NO_KEY, UNUSABLE, file_told, now_s, public_key, text_in, without_nothing};
use crate::Tokens;
use crate::failure::{Doing, Failure, Kind};
use crate::printable::printable;

/// Tokens that were read and are this deployment's.
pub struct Given {
    held: Held,
    handed: Vec<u8>,
    files: TokenFiles,
}

/// Reads the tokens of a run, if it has any.
///
/// # Errors
/// When one of them is not valid, or does not grant a port that the run publishes.
pub fn read(
    paths: &[PathBuf],
    state: &StateDir,
    run: &RunId,
    session: Option<&str>,
    workspace: &Path,
    network: &Network,
) -> Result<Option<Given>, Failure> {
    if paths.is_empty() {
        return Ok(None);
    }
    let unusable = "--token is not usable";
    let texts = paths.iter().map(|path| text_in(path));
    let texts = texts.collect::<Result<Vec<_>, _>>()?;
    let files = TokenFiles::open(state, false).doing(UNUSABLE)?;
    let files = files.ok_or_else(|| Failure::new(unusable).because(NO_KEY))?;
    let key = public_key(&files)?;
    let revoked = files.revoked().doing(UNUSABLE)?;
    let holder = Holder {
        run: run.clone(),
        session: session.and_then(|name| SessionName::parse(name).ok()),
        // A path that is no text is none that a token names.
        workspace: workspace.to_str().unwrap_or_default().to_owned(),
        person: rustix::process::getuid().as_raw(),
        is_bound: false,
    };
    for (path, text) in paths.iter().zip(&texts) {
        let alone = Held::new(key, std::slice::from_ref(text), holder.clone());
        let unusable = format!("--token {} is not usable", file_told(path));
        let alone = alone.doing(&unusable).map_err(denied)?;
        counts(&alone, (path, &revoked), (session, workspace)).map_err(denied)?;
    }
    let held = Held::new(key, &texts, holder);
    let mut given = Given {
        held: held.doing(unusable).map_err(denied)?,
        handed: Vec::new(),
        files,
    };
    given.held.bind();
    for published in &network.publish {
        let port = published.port.inside;
        given.publishes(port).map_err(|why| {
            denied(Failure::new(format!("port {port} is not published")).because(why)).advise(
                format!("atoll token issue --allow 'publish {port}' carries it"),
            )
        })?;
    }
    // Last of all: a run that does not come so far takes none away from another.
    given.bind_to(run)?;
    given.handed = given.held.hand().doing(unusable)?;
    Ok(Some(given))
}

/// Checks that the token in a file is valid in this run.
fn counts(
    token: &Held,
    (path, revoked): (&Path, &BTreeSet<String>),
    (session, workspace): (Option<&str>, &Path),
) -> Result<(), Failure> {
    let file = file_told(path);
    let over = || {
        Failure::new(format!("--token {file} is of no use any more"))
            .advise(format!("atoll token show {file} tells what it carries"))
            .advise("atoll token issue --allow RIGHT issues another one")
    };
    let mut ids = token.tokens().flat_map(|token| token.ids());
    if ids.any(|id| revoked.contains(&id)) {
        return Err(over().because("it is revoked"));
    }
    if let Some(end) = token.end_s().filter(|end| *end <= now_s()) {
        let end = told_time(end).unwrap_or_default();
        return Err(over().because(format!("it has ended, at {end}")));
    }
    match token.stray() {
        Some(bound) => Err(elsewhere(&file, bound, session, workspace)),
        None => Ok(()),
    }
}

impl Given {
    /// Returns whether they may carry some call of a tool.
    pub(crate) fn may_call(&self, tool: &ToolName) -> bool {
        self.held.may_call(tool.as_str())
    }

    /// Checks that they carry a call of a tool now.
    ///
    /// # Errors
    /// Why they do not.
    pub(crate) fn calls(&self, call: &CallTool) -> Result<(), String> {
        if self.is_revoked() {
            return Err("the token is revoked".to_owned());
        }
        let arguments = serde_json::from_str(&call.text).map_err(|error| error.to_string())?;
        let (tool, arguments) = (call.tool.as_str(), &arguments);
        self.held.carry(Asked::Call { tool, arguments }, now_s())
    }

    /// Binds tokens that are valid in a single run to this one, on disk before any of them counts.
    fn bind_to(&self, run: &RunId) -> Result<(), Failure> {
        let unbound = "--token cannot be bound to this run";
        let mut ids = Vec::new();
        for token in self.held.tokens() {
            ids.extend(token.once().doing(unbound)?);
        }
        if ids.is_empty() {
            return Ok(());
        }
        let other = self.files.bind(&ids, run).doing(unbound).map_err(denied)?;
        other.map_or(Ok(()), |other| {
            Err(denied(
                Failure::new("--token carries nothing in this run")
                    .because(format!(
                        "it counts in one run alone, and that was run {other}"
                    ))
                    .advise("atoll token issue --once … issues another one"),
            ))
        })
    }
}

/// Describes which of these files the sandboxed program can see in its workspace.
pub fn seen_inside(paths: &[PathBuf], workspace: &Path) -> Vec<String> {
    let is_seen = |path: &&PathBuf| {
        let real = path.canonicalize();
        path.as_os_str() != "-" && real.is_ok_and(|real| real.starts_with(workspace))
    };
    let told = |path: &PathBuf| {
        let path = printable(path.as_os_str().as_encoded_bytes());
        format!("{path} lies in the workspace: the program can read the token and copy it")
    };
    paths.iter().filter(is_seen).map(told).collect()
}

/// Describes a token that is bound to another session or workspace.
fn elsewhere(file: &str, bound: Bound, session: Option<&str>, workspace: &Path) -> Failure {
    let failure = Failure::new(format!("--token {file} carries nothing in this run"));
    match bound {
        Bound::Session(only) => {
            let own = session.map_or("none".to_owned(), |name| format!("session {name}"));
            let only = only.as_str();
            failure
                .because(format!(
                    "it counts in session {only} alone, and this run is of {own}"
                ))
                .advise(format!("atoll run --session {only} …"))
        }
        Bound::Workspace(only) => {
            let only = printable(only.as_bytes());
            failure
                .because(format!(
                    "it counts in workspace {only} alone, and this run is in {}",
                    workspace.display()
                ))
                .advise(format!("atoll run --workspace {only} …"))
        }
    }
}

fn denied(failure: Failure) -> Failure {
    failure.of_kind(Kind::Denied)
}

impl Tokens for Given {
    fn handed(&self) -> &[u8] {
        &self.handed
    }

    fn told(&self) -> Value {
        let one = |token: &atoll_tokens::Token| {
            let until = token.end_s().ok().flatten().and_then(told_time);
            without_nothing(json!({
                "ids": token.ids(), "sha256": token.digest(), "until": until,
            }))
        };
        Value::Array(self.held.tokens().map(one).collect())
    }

    fn end_s(&self) -> Option<u64> {
        self.held.end_s()
    }

    fn is_revoked(&self) -> bool {
        let Ok(revoked) = self.files.revoked() else {
            return true;
        };
        let mut ids = self.held.tokens().flat_map(|token| token.ids());
        ids.any(|id| revoked.contains(&id))
    }

    fn publishes(&self, port: u16) -> Result<(), String> {
        self.held.carry(Asked::Publish(port), now_s())
    }
}
