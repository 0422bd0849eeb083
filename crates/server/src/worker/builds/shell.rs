//! The state that the steps of a build change, and how they and their ends are told.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use atoll_engine::remedies::fetching_option;
use atoll_model::RESIDENT;

use super::super::process::Process;
use super::super::template::Record;
use crate::configuration::NetworkWord;
use crate::protocol::{BuildStep, End, Kind, Refusal, StartAsk, describe_limit};

/// The most variables of a template, and bytes of one.
const VARIABLES_MAX: usize = 64;
const VARIABLE_BYTES_MAX: usize = 4_096;
/// The exit status of a copy for a user where there is root alone.
const NO_USERS: u8 = 78;
/// The search path where no step has set another.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The state that steps change.
pub(super) struct Shell {
    /// The program that runs commands.
    pub(super) program: &'static str,
    pub(super) user: String,
    pub(super) directory: Option<String>,
    pub(super) environment: BTreeMap<String, String>,
}

impl Shell {
    /// Returns the request that runs a command.
    pub(super) fn ask(&self, command: &str) -> StartAsk {
        let words = [self.program, "-l", "-c", command];
        StartAsk {
            command: words.map(str::to_owned).to_vec(),
            environment: self.environment.clone(),
            directory: self.directory.clone(),
            user: Some(self.user.clone()),
            ..StartAsk::default()
        }
    }

    /// Puts variables in the place of `$NAME` and `${NAME}`, as a Dockerfile has it; one that is not
    /// set is empty.
    pub(super) fn expanded(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            out.push_str(before);
            let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            let braced = after.strip_prefix('{').and_then(|one| one.split_once('}'));
            let (name, left) = match braced {
                Some((name, left)) if name.chars().all(is_name) => (name, left),
                _ => after.split_at(after.find(|one| !is_name(one)).unwrap_or(after.len())),
            };
            match (name, self.environment.get(name)) {
                ("", _) => out.push('$'),
                (_, Some(value)) => out.push_str(value),
                ("PATH", None) => out.push_str(PATH),
                _ => {}
            }
            rest = left;
        }
        out + rest
    }

    /// Returns a path, which may be relative to the directory.
    pub(super) fn place(&self, path: &str) -> String {
        let here = self.directory.as_deref().unwrap_or(RESIDENT.home);
        Path::new(here).join(path).to_string_lossy().into_owned()
    }
}

/// The names at the root of a system over the host's that are the host's, or the sandbox's own.
const HOSTS: [&str; 12] = [
    "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "opt", "nix", "gnu", "var",
];
/// The most directories at the root that the steps of a build make.
const ROOTS_MAX: usize = 16;

/// Adds the names of the directories at the root which steps make: only those that are known before
/// can be made there.
pub(super) fn with_roots(base: Record, steps: &[BuildStep]) -> Record {
    let mut shell = Shell {
        program: "",
        user: String::new(),
        directory: base.directory.clone(),
        environment: base.environment.clone(),
    };
    let mut roots = base.roots.clone();
    for step in steps {
        let at = match step {
            BuildStep::Environment(variables) => {
                let all = variables.iter();
                let all = all.map(|(name, value)| (name.clone(), shell.expanded(value)));
                let all: Vec<(String, String)> = all.collect();
                shell.environment.extend(all);
                continue;
            }
            BuildStep::Directory(directory) => {
                let at = shell.place(&shell.expanded(directory));
                shell.directory = Some(at.clone());
                at
            }
            BuildStep::Copy { to, .. } => shell.place(to),
            BuildStep::Run { command, .. } => {
                for name in made_at_root(command) {
                    let is_hosts = base.over_host && HOSTS.contains(&&*name);
                    if !is_hosts && !roots.contains(&name) && roots.len() < ROOTS_MAX {
                        roots.push(name);
                    }
                }
                continue;
            }
            BuildStep::User(_) => continue,
        };
        let mut parts = Path::new(&at).components().skip(1);
        let Some(Component::Normal(name)) = parts.next() else {
            continue;
        };
        let name = name.to_string_lossy().into_owned();
        let is_hosts = base.over_host && HOSTS.contains(&&*name);
        // A file at the root cannot be; most directories have no dot in their names.
        let is_copied = matches!(step, BuildStep::Copy { .. });
        let is_file = is_copied && parts.next().is_none() && at.contains('.');
        if !is_hosts && !is_file && !roots.contains(&name) && roots.len() < ROOTS_MAX {
            roots.push(name);
        }
    }
    Record { roots, ..base }
}

/// Returns the names at the root beneath which a command makes directories by `mkdir -p`, as far as
/// its text says so.
fn made_at_root(command: &str) -> Vec<String> {
    let mut found = Vec::new();
    for part in command.split([';', '&', '|', '\n', '(', ')']) {
        let mut words = part.split_whitespace().skip_while(|word| *word != "mkdir");
        let options = words.clone().filter(|word| word.starts_with('-'));
        if words.next().is_none() || !options.clone().any(|option| option.contains('p')) {
            continue;
        }
        let words = words.map(|word| word.trim_matches(['"', '\'']));
        for path in words.filter(|word| word.starts_with('/')).map(Path::new) {
            if let Some(Component::Normal(name)) = path.components().nth(1) {
                let name = name.to_string_lossy().into_owned();
                let is_plain = |one: char| one.is_alphanumeric() || "._-".contains(one);
                found.extend(Some(name).filter(|name| name.chars().all(is_plain)));
            }
        }
    }
    found
}

/// Says what a command that has failed may have lacked: the network to fetch something, or a
/// directory at the root.
pub(super) fn advised(refusal: Refusal, command: &str, network: NetworkWord) -> Refusal {
    let words = ["sh", "-c", command].map(Into::into);
    let fetches = fetching_option(&words);
    let of_registry = fetches.filter(|option| {
        let registries = NetworkWord::Registries.presets();
        registries
            .iter()
            .any(|preset| option.ends_with(&format!("--preset {preset}")))
    });
    match (fetches, of_registry, network) {
        (Some(_), Some(_), NetworkWord::Closed) => {
            return refusal.advise(
                "builds reach nothing here: network = \"registries\" in serve.toml, or atoll serve \
                 --network registries, opens package registries for builds and sandboxes",
            );
        }
        (Some(_), None, NetworkWord::Closed | NetworkWord::Registries) => {
            return refusal.advise(
                "builds reach no more than the network in serve.toml says: network = \"internet\" \
                 opens every public host",
            );
        }
        (Some(_), Some(_), NetworkWord::Registries | NetworkWord::Internet) => {
            return refusal.advise(
                "if its registry could not be reached: the server's machine has to reach it \
                 itself; a mirror needs network = \"internet\" in serve.toml",
            );
        }
        (None, ..) | (Some(_), None, NetworkWord::Internet) => {}
    }
    match command.contains("mkdir ") {
        true => refusal.advise(
            "at the root WORKDIR /x, COPY and mkdir -p /x make directories, and nothing else",
        ),
        false => refusal,
    }
}

/// Says where files can be copied to, where a copy to the root has failed.
pub(super) fn advised_of_copy(refusal: Refusal, to: &str) -> Refusal {
    if refusal.what.contains(&format!("exit status {NO_USERS}")) {
        return refusal.advise(
            "install newuidmap (package uidmap) on the server's machine, with a range for its user \
             in /etc/subuid and /etc/subgid; or leave --chown out",
        );
    }
    match Path::new(to).parent() == Some(Path::new("/")) {
        true => refusal.advise("at the root are directories alone: COPY to one, as in /app/"),
        false => refusal,
    }
}

/// Returns the arguments of the shell that has those who log in begin with a search path.
pub(super) fn told_path(path: &str) -> Vec<String> {
    const TELL: &str = r#"
[ -d /etc/profile.d ] || mkdir -p /etc/profile.d
quoted=$(printf %s "$1" | sed "s/'/'\\\\''/g")
printf "export PATH='%s'\n" "$quoted" > /etc/profile.d/path-of-template.sh
"#;
    ["-c", TELL, "sh", path].map(str::to_owned).to_vec()
}

/// Refuses variables that no program could have.
pub(super) fn check_variables(all: &BTreeMap<String, String>) -> Result<(), Refusal> {
    let is_odd = |(name, value): (&String, &String)| {
        name.is_empty()
            || name.contains(['=', '\0'])
            || value.contains('\0')
            || name.len() + value.len() > VARIABLE_BYTES_MAX
    };
    if all.len() <= VARIABLES_MAX && !all.iter().any(is_odd) {
        return Ok(());
    }
    let what =
        format!("a template has {VARIABLES_MAX} variables of {VARIABLE_BYTES_MAX} bytes at most");
    Err(Refusal::new(Kind::Invalid, what))
}

/// Waits until a start command has failed.
pub(super) async fn failed(program: &Process) -> Refusal {
    program.window.ended().await;
    match program.window.over() {
        // Others it has left behind may be what is waited for.
        None | Some(End::Exited(0)) => std::future::pending().await,
        Some(end) => {
            let what = format!("the start command has failed: {}", ended(&end));
            Refusal::new(Kind::Invalid, what)
        }
    }
}

pub(super) fn as_root(words: Vec<String>, shell: &Shell) -> StartAsk {
    let program = shell.program.to_owned();
    StartAsk {
        command: std::iter::once(program).chain(words).collect(),
        directory: Some("/".to_owned()),
        user: Some("root".to_owned()),
        ..StartAsk::default()
    }
}

/// Tells a step as a Dockerfile has it.
pub(super) fn told(step: &BuildStep) -> String {
    match step {
        BuildStep::Copy { from, to, .. } => format!("COPY {from} {to}"),
        BuildStep::Run { command, .. } => format!("RUN {command}"),
        BuildStep::Environment(variables) => {
            let names: Vec<&str> = variables.keys().map(String::as_str).collect();
            format!("ENV {}", names.join(" "))
        }
        BuildStep::Directory(directory) => format!("WORKDIR {directory}"),
        BuildStep::User(user) => format!("USER {user}"),
    }
}

pub(super) fn ended(end: &End) -> String {
    match end {
        End::Exited(status) => format!("exit status {status}"),
        End::Signalled(signal) => format!("signal {signal}"),
        End::Limited(limit) => describe_limit(limit),
        End::Otherwise(why) | End::Gone(why) => why.clone(),
        End::Late => "its time was over".to_owned(),
        End::TooSlow => "its output was read too slowly".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_fetch_are_told_of_the_network() {
        let advice = |command: &str, network| {
            let refusal = Refusal::new(Kind::Invalid, "it has failed");
            advised(refusal, command, network)
                .advice
                .unwrap_or_default()
        };
        let (closed, registries) = (NetworkWord::Closed, NetworkWord::Registries);
        let all = [
            ("pip install pandas", closed, "\"registries\""),
            ("set -e; apt-get update", closed, "\"registries\""),
            ("curl -O https://example.com/x", closed, "\"internet\""),
            ("curl -O https://example.com/x", registries, "\"internet\""),
            ("pip install pandas", registries, "has to reach it itself"),
            ("mkdir /x", closed, "WORKDIR"),
        ];
        for (command, network, expected) in all {
            let told = advice(command, network);
            assert!(told.contains(expected), "{command}: {told}");
        }
        assert_eq!(advice("make", closed), "");
        assert_eq!(advice("curl example.com", NetworkWord::Internet), "");
    }

    #[test]
    fn directories_at_the_root_are_seen_in_commands() {
        for (command, expected) in [
            ("mkdir -p /x", vec!["x"]),
            ("set -e; mkdir -pm 700 /x/y \"/z\" && cd /x", vec!["x", "z"]),
            ("apt-get update\nmkdir --parents /srv2", vec!["srv2"]),
            ("mkdir /x", vec![]),
            ("echo -p /x; mkdir -p x ./y", vec![]),
            ("mkdir -p /$NAME /../x", vec![]),
        ] {
            assert_eq!(made_at_root(command), expected, "{command}");
        }
    }
}
