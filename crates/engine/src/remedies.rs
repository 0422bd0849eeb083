//! Hints for a failed program that needs something its sandbox does not have: a sandbox of its own,
//! or network access.

use std::ffi::OsString;

use atoll_model::network::{NO_NAME_SERVER, Network, Registry, age_words};
use atoll_store::RunRecord;

use crate::supervision::Flows;

/// Programs that make a sandbox of their own, or fail.
const NESTING_PROGRAMS: [&str; 9] = [
    "bwrap",
    "chrome",
    "chromium",
    "google-chrome",
    "electron",
    "flatpak",
    "podman",
    "buildah",
    "unshare",
];

/// Programs that fetch: their names, the arguments by which they do (none if they do little else),
/// and the option that lets them.
const FETCHING: [(&[&str], &[&str], &str); 9] = [
    (
        &["pip", "pip3", "uv", "poetry"],
        &["install", "download", "add", "sync"],
        "--preset pip",
    ),
    (
        &["npm", "pnpm", "yarn"],
        &["install", "i", "ci", "add", "update"],
        "--preset npm",
    ),
    (&["npx"], &[], "--preset npm"),
    (
        &["cargo"],
        &["fetch", "install", "update", "add", "build"],
        "--preset cargo",
    ),
    (&["go"], &["get", "install", "mod", "build"], "--preset go"),
    (
        &["git"],
        &["clone", "fetch", "pull", "ls-remote"],
        "--preset git-read",
    ),
    (
        &["apt", "apt-get"],
        &["install", "update"],
        "--root --preset apt",
    ),
    (&["curl", "wget"], &[], "--allow HOST"),
    (&["ssh", "scp"], &[], "--allow HOST:22"),
];

/// Returns the option to suggest for a command that names a program which makes namespaces of its
/// own.
pub fn nesting_hint(record: &RunRecord) -> Option<String> {
    let is_known = |word: &String| NESTING_PROGRAMS.contains(&word.as_str());
    let named = words(&record.command).find(is_known)?;
    Some(format!(
        "{named} makes namespaces of its own, which are refused here; \
         atoll run --nesting lets it, and atoll help nesting says what that opens"
    ))
}

/// Returns the option to suggest for a command that has no network and names a program which
/// fetches. The hint also says so if the level of trust leaves out the network altogether.
pub fn network_hint(command: &[OsString], is_closed: bool) -> Option<String> {
    let said: Vec<String> = words(command).collect();
    let has = |names: &[&str]| said.iter().find(|word| names.contains(&word.as_str()));
    let (named, option) = FETCHING.iter().find_map(|(names, verbs, option)| {
        let named = has(names).filter(|_| verbs.is_empty() || has(verbs).is_some())?;
        Some((named, option))
    })?;
    if is_closed {
        return Some(format!(
            "nothing outside can be reached here: trust level none opens no host; if {named} was \
             to fetch something, --trust low opens what rules allow (atoll help levels)"
        ));
    }
    Some(format!(
        "nothing outside can be reached here; if {named} was to fetch something, \
         atoll run {option} lets it (atoll help network)"
    ))
}

/// The programs that support a minimum age of releases, and their messages if they find none.
const CHOOSING: [(Registry, &[&str], &str); 2] = [
    (
        Registry::Npm,
        &["npm", "npx"],
        "ETARGET, no matching version with a date before",
    ),
    (
        Registry::Pip,
        &["pip", "pip3", "uv", "uvx"],
        "no matching distribution, or no version of a package",
    ),
];

/// Returns the reason why a program finds no release where only old ones are shown to it.
pub fn age_hint(record: &RunRecord, network: &Network) -> Option<String> {
    let said: Vec<String> = words(&record.command).collect();
    let (registry, named, message) = CHOOSING.iter().find_map(|(registry, names, message)| {
        let named = said.iter().find(|word| names.contains(&word.as_str()))?;
        Some((*registry, named, message))
    })?;
    let age = age_words(network.minimum_age(registry)?);
    Some(format!(
        "{named} chooses among releases of at least {age} ago, by minimum-age in a rule for \
         {registry}; where it finds none ({message}) ask for an older release, or change that rule"
    ))
}

/// Returns a hint that no name server answered: the programs' own messages seldom give that reason.
pub fn names_hint(flows: &Flows) -> Option<String> {
    let mut failed = flows.failed.iter();
    failed.find(|one| one.why.contains(NO_NAME_SERVER))?;
    Some(format!(
        "{NO_NAME_SERVER}, so nothing is reached by its name: look at /etc/resolv.conf and at \
         this host's own connection (getent hosts example.com)"
    ))
}

/// Returns the words of a command, also those of a script within it.
fn words(command: &[OsString]) -> impl Iterator<Item = String> {
    let words = command.iter().map(|word| word.to_string_lossy());
    words.flat_map(|word| {
        let parts = word.split(|letter: char| !letter.is_alphanumeric() && letter != '-');
        parts.map(str::to_owned).collect::<Vec<String>>()
    })
}

#[cfg(test)]
mod tests {
    use crate::supervision::Refused;
    use atoll_model::network::{Flow, FlowKind};

    use super::*;

    #[test]
    fn silent_name_servers_are_told_of() {
        let failed = |why: &str| Flows {
            failed: vec![Refused {
                flow: Flow {
                    kind: FlowKind::Request,
                    host: "registry.npmjs.org".to_owned(),
                    address: None,
                    via: None,
                    port: 443,
                    rule: None,
                    request: None,
                    limit: None,
                    login: None,
                    policies: 0,
                    credentials: Vec::new(),
                },
                why: why.to_owned(),
                count: 1,
            }],
            ..Flows::default()
        };
        let hint = names_hint(&failed(NO_NAME_SERVER)).unwrap();
        assert!(hint.contains("/etc/resolv.conf"), "{hint}");
        assert_eq!(names_hint(&failed("there is no such name")), None);
        assert_eq!(names_hint(&Flows::default()), None);
    }
}
