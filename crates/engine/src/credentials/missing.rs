//! The hint that an agent about to start has neither a key nor a login. Without it the agent would
//! ask for one, or fail, in words that do not mention what a run is given.

use std::ffi::OsString;
use std::path::Path;

use atoll_model::network::Part;
use atoll_policy::{CredentialSource, Rules, agent_of};

use crate::supervision::CredentialBundle;

/// The most variables that are named.
const VARIABLES_MAX: usize = 3;
/// The arguments with which an agent needs neither.
const NEEDS_NONE: [&str; 4] = ["--version", "-V", "--help", "-h"];

/// Returns the name of an agent at the beginning of a sentence.
fn called(agent: &str) -> String {
    let mut letters = agent.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

/// Returns the hint; none where a key or a login is there, or the program is not the agent of a
/// shipped profile.
pub fn hint(
    rules: &Rules,
    command: &[OsString],
    handover: Option<&CredentialBundle>,
) -> Option<String> {
    let (program, words) = command.split_first()?;
    let agent = agent_of(Path::new(program).file_name()?.to_str()?)?;
    let is_one = |word: &OsString| NEEDS_NONE.iter().any(|one| word == one);
    let parts = [Part::Whole, Part::KeyId, Part::Secret, Part::Token];
    let is_there = handover.is_some_and(|handover| {
        let mut all = rules.credentials().map(|one| &one.binding.name);
        all.any(|name| parts.iter().any(|part| handover.has(name, *part)))
    });
    if is_there || words.iter().any(is_one) {
        return None;
    }
    let login = rules.logins().next()?;
    let variables = rules.credentials().filter_map(|one| match &one.source {
        CredentialSource::Variable(name) => Some(name.as_str()),
        CredentialSource::File(_)
        | CredentialSource::Vault(_)
        | CredentialSource::Command(_)
        | CredentialSource::Token(_)
        | CredentialSource::Login(_)
        | CredentialSource::Key(_) => None,
    });
    let variables: Vec<&str> = variables.take(VARIABLES_MAX).collect();
    let by_key = match variables.split_last() {
        None => String::new(),
        Some((last, [])) => format!("set {last}, or "),
        Some((last, others)) => format!("set {} or {last}, or ", others.join(", ")),
    };
    let by_login = match (rules.logins().find(|one| one.issue.is_some()), agent) {
        (Some(login), _) => format!("log in by `atoll login {}`", login.name),
        (None, agent) => format!("have {agent} keep one in {}, outside", login.file.display()),
    };
    let called = called(agent);
    Some(format!(
        "No {called} key or login found; {called} may prompt for one: {by_key}{by_login}"
    ))
}
