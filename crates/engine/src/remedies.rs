//! Hints for a failed program that needs something its sandbox does not have: a sandbox of its own,
//! or network access.

use std::ffi::OsString;

use atoll_model::network::{NO_NAME_SERVER, Network, Registry, age_words};
use atoll_store::RunRecord;

use crate::loopback;
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

/// Returns the option of `atoll run` that lets a command fetch, if it names a program that does.
pub fn fetching_option(command: &[OsString]) -> Option<&'static str> {
    fetching(command).map(|(_, option)| option)
}

/// Returns the program of a command that fetches, by its name, and the option that lets it.
fn fetching(command: &[OsString]) -> Option<(String, &'static str)> {
    let texts: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    if !loopback::named(texts.iter().map(AsRef::as_ref)).is_empty() {
        // No host of the network: that hint is another one.
        return None;
    }
    let started = started(command);
    FETCHING.iter().find_map(|(names, verbs, option)| {
        let is_verb = |word: &String| verbs.contains(&word.as_str());
        let mut programs = started.iter();
        let (named, _) = programs.find(|(program, words)| {
            let fetches = verbs.is_empty() || words.iter().any(is_verb);
            names.contains(&program.as_str()) && fetches
        })?;
        Some((named.clone(), *option))
    })
}

/// Returns the option to suggest for a command that has no network and names a program which
/// fetches. The hint also says so if the level of trust leaves out the network altogether.
pub fn network_hint(command: &[OsString], is_closed: bool) -> Option<String> {
    let (named, option) = fetching(command)?;
    if is_closed {
        return Some(format!(
            "This run has no network: trust level none opens no host. To let {named} fetch, raise it \
             with `--trust low` and allow a host (atoll help levels)."
        ));
    }
    Some(format!(
        "This run has no network. To let {named} fetch, add `{option}`. (atoll help network)"
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
    let started = started(&record.command);
    let (registry, named, message) = CHOOSING.iter().find_map(|(registry, names, message)| {
        let mut programs = started.iter().map(|(program, _)| program);
        let named = programs.find(|word| names.contains(&word.as_str()))?;
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

/// Words before a program's name in a script: of the shell, and of programs that start another.
const BEFORE: [&str; 18] = [
    "!", "command", "do", "else", "env", "exec", "if", "nice", "nohup", "sudo", "then", "time",
    "timeout", "until", "while", "xargs", "{", "}",
];

/// Returns the programs that a command starts, as far as it says so, each with its arguments: its own,
/// and those of a script among its words.
fn started(command: &[OsString]) -> Vec<(String, Vec<String>)> {
    let words: Vec<String> = command
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let scripts = words
        .iter()
        .filter(|word| word.contains(char::is_whitespace));
    let parts = scripts.flat_map(|script| script.split([';', '&', '|', '\n', '(', ')', '`']));
    let parts = parts.map(|part| part.split_whitespace().map(str::to_owned).collect());
    let parts: Vec<Vec<String>> = parts.collect();
    let all = std::iter::once(words).chain(parts);
    all.filter_map(|words| program_of(&words)).collect()
}

/// Returns the program that these words start, by its name alone, and its arguments.
fn program_of(words: &[String]) -> Option<(String, Vec<String>)> {
    let is_before = |word: &String| {
        let is_value = word.contains('=') || word.starts_with(|first: char| first.is_ascii_digit());
        BEFORE.contains(&word.as_str()) || word.starts_with('-') || is_value
    };
    let at = words.iter().position(|word| !is_before(word))?;
    let name = words.get(at)?.rsplit('/').next()?.to_owned();
    let rest = words.get(at + 1..).unwrap_or_default();
    match rest {
        [option, module, rest @ ..] if name.starts_with("python") && option == "-m" => {
            Some((module.clone(), rest.to_vec()))
        }
        _ => Some((name, rest.to_vec())),
    }
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
    fn network_hint_is_about_programs_that_are_started() {
        let hint = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            network_hint(&words, false)
        };
        for (words, option) in [
            (&["npm", "install"][..], Some("--preset npm")),
            (&["sh", "-c", "cd x && CI=1 npm ci"], Some("--preset npm")),
            (
                &["python3", "-m", "pip", "install", "x"],
                Some("--preset pip"),
            ),
            (
                &["timeout", "5", "/usr/bin/curl", "x"],
                Some("--allow HOST"),
            ),
            (&["sh", "-c", "if curl x; then y; fi"], Some("--allow HOST")),
            (&["npm", "test"], None),
            (&["cat", "/root/.ssh/id_rsa"], None),
            (&["sh", "-c", "cat ~/.ssh/config; exit 3"], None),
            (&["sh", "-c", "echo curl is nice"], None),
        ] {
            let told = hint(words);
            assert_eq!(told.is_some(), option.is_some(), "{words:?}: {told:?}");
            let option = option.unwrap_or_default();
            assert!(told.unwrap_or_default().contains(option), "{words:?}");
        }
    }

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
        assert_eq!(names_hint(&failed("no such host")), None);
        assert_eq!(names_hint(&Flows::default()), None);
    }
}
