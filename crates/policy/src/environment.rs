//! The program's environment: picked from the caller's by name, never taken as a whole.

mod git;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use atoll_model::network::{
    JAVA_VARIABLE, Look, Network, Part, Place, SshGrant, TRUST_DIRECTORY, age_variables,
    audit_variable, database_trust_variable, trust_variables,
};
use atoll_model::{Call, Mode, OUTPUTS_DIRECTORY};

use crate::Notice;
use crate::credential::Credential;
use crate::origin::Origin;
use crate::rules::Rules;
use crate::source::Facts;
use crate::ssh;
use crate::variables::{OUTPUTS, RUN, needs_its_name};

/// The program's variables, and notices about them.
pub(crate) struct Environment {
    /// The variables, sorted by name, each name once.
    pub(crate) variables: Vec<(OsString, OsString)>,
    pub(crate) notices: Vec<Notice>,
}

impl Rules {
    /// Returns whether the rules set the variable, in place of the caller's value.
    #[must_use]
    pub fn sets_variable(&self, name: &str) -> bool {
        self.environment.set.contains_key(name)
    }
}

/// Builds the environment: variables that the rules pass, then those that they set, then Atoll's
/// own. The variables that name Atoll's certificate authority, if requests are inspected, and those
/// on the least age of package releases are set if nothing else sets them.
pub(crate) fn build(
    rules: &Rules,
    call: &Call,
    facts: &Facts<'_>,
    network: &Network,
) -> Environment {
    let mut notices = Vec::new();
    let mut variables = passed(rules, facts, &mut notices);
    let is_denied = |name: &OsStr| {
        let denied = &rules.environment.denied;
        denied.iter().any(|pattern| pattern.value.matches(name))
    };
    let home = rules.host.home.clone().into_os_string();
    if !is_denied(OsStr::new("HOME")) {
        variables.insert(OsString::from("HOME"), home);
    }
    if rules.root.value {
        for name in ["USER", "LOGNAME"].map(OsString::from) {
            // Only what is there already: a denied one stays away.
            if let Some(value) = variables.get_mut(&name) {
                *value = OsString::from("root");
            }
        }
        if let Some(path) = variables.get_mut(OsStr::new("PATH")) {
            add_programs_of_root(path);
        }
    }
    // npm makes no difference between upper and lower case in the names of its own.
    let is_chosen = |name: &str| {
        let mut names = variables.keys();
        names.any(|one| one.eq_ignore_ascii_case(name))
    };
    let mut ways = age_variables(network, facts.now);
    ways.extend(audit_variable(network));
    ways.retain(|(name, _)| !is_chosen(name));
    // Elsewhere the stores of JDKs are replaced.
    let without_stores = rules.root() || facts.mode == Mode::Fence;
    let trust = trusting(network).filter(|(name, _)| without_stores || *name != JAVA_VARIABLE);
    for (name, value) in trust.chain(ways) {
        if !is_denied(OsStr::new(name)) {
            let chosen = variables.entry(OsString::from(name));
            chosen.or_insert_with(|| OsString::from(value));
        }
    }
    for (name, value) in &rules.environment.set {
        variables.insert(OsString::from(name), value.value.clone());
    }
    for credential in rules.credentials() {
        for (part, name) in &credential.variables {
            let variable = OsString::from(name);
            match placeholder(credential, *part, facts).filter(|_| !is_denied(&variable)) {
                Some(text) => variables.insert(variable, text),
                // What stands in its variable then is what somebody has set by name.
                None if credential.optional => continue,
                None => variables.remove(&variable),
            };
        }
    }
    for (name, value) in logins(network) {
        if !is_denied(OsStr::new(name)) && !rules.environment.set.contains_key(name) {
            variables.insert(OsString::from(name), OsString::from(value));
        }
    }
    git::add_settings(rules, &mut variables, &is_denied);
    notices.extend(denied_placeholders(rules, facts));
    notices.extend(asked_for_and_stood_for(rules, facts));
    notices.extend(asked_for_in_vain(rules, &variables));
    variables.extend(own(rules, call, facts));
    Environment {
        variables: variables.into_iter().collect(),
        notices,
    }
}

/// Returns the variables that nobody else sets.
fn own(rules: &Rules, call: &Call, facts: &Facts<'_>) -> Vec<(OsString, OsString)> {
    let has_outputs = rules.outputs.is_there(facts.mode, rules.nesting.value);
    let run = (RUN, call.run().as_str());
    let outputs = has_outputs.then_some((OUTPUTS, OUTPUTS_DIRECTORY));
    let all = [Some(run), outputs].into_iter().flatten();
    all.map(|(name, value)| (name.into(), value.into()))
        .collect()
}

/// Returns the variables by which ssh and git find granted keys.
fn logins(network: &Network) -> impl Iterator<Item = (&'static str, String)> {
    // Where no host of theirs is reached, git finds its own way to others.
    let is_reached = |grant: &SshGrant| {
        let look = network.connection(&grant.host, grant.port);
        look.is_ok_and(|(_, look)| look == Look::Past)
    };
    let logs_in = network.ssh.iter().any(is_reached);
    let is_any = !network.ssh.is_empty();
    is_any
        .then(|| ssh::variables(logs_in))
        .into_iter()
        .flatten()
}

/// Returns the variables that name Atoll's certificate authority, if anything is inspected.
fn trusting(network: &Network) -> impl Iterator<Item = (&'static str, String)> {
    let inspected = network.is_inspected();
    let usual = inspected.then(|| trust_variables(TRUST_DIRECTORY));
    let mut bindings = network.credentials.iter();
    let signs_in = bindings.any(|one| matches!(one.place, Place::Postgres(_)));
    let of_database = inspected && signs_in;
    let of_database = of_database.then(|| database_trust_variable(TRUST_DIRECTORY));
    usual.into_iter().flatten().chain(of_database)
}

/// Returns the caller's variables that the rules pass.
fn passed(
    rules: &Rules,
    facts: &Facts<'_>,
    notices: &mut Vec<Notice>,
) -> BTreeMap<OsString, OsString> {
    let mut variables = BTreeMap::new();
    for (name, value) in facts.environment {
        let Some(origin) = passed_by(rules, name) else {
            continue;
        };
        if rules.credentials().any(|one| is_source(one, name)) {
            continue;
        }
        // Of a name given twice the first counts, as for getenv.
        if variables.contains_key(name) {
            continue;
        }
        let risk = name.to_str().and_then(needs_its_name);
        if let (Some(why), Origin::File { .. } | Origin::CommandLine(_)) = (risk, &origin) {
            notices.push(Notice {
                text: format!(
                    "{} is passed on, and {why}: the program can read and leak it",
                    name.to_string_lossy()
                ),
                origin,
            });
        }
        variables.insert(name.clone(), value.clone());
    }
    variables
}

/// Returns the placeholder of a part of a credential.
fn placeholder(credential: &Credential, part: Part, facts: &Facts<'_>) -> Option<OsString> {
    let mut all = facts.placeholders.iter();
    let found = all.find(|one| one.name == credential.binding.name && one.part == part)?;
    Some(OsString::from(&found.text))
}

/// Returns notices of credentials whose variable in the sandbox is denied, so that their program
/// goes without them.
fn denied_placeholders(rules: &Rules, facts: &Facts<'_>) -> impl Iterator<Item = Notice> {
    let all = rules.credentials_of(facts.placeholders).flat_map(|one| {
        let credential = &one.value;
        let variables = credential.variables.iter();
        variables.map(move |(_, variable)| (credential, variable))
    });
    all.filter_map(|(credential, variable)| {
        let name = OsStr::new(variable);
        let mut denied = rules.environment.denied.iter();
        let by = denied.find(|pattern| pattern.value.matches(name))?;
        Some(Notice {
            text: format!(
                "credential {} has no variable inside: {variable} is denied",
                credential.binding.name
            ),
            origin: by.origin.clone(),
        })
    })
}

/// Returns whether a variable of the host is the source of a credential; such a variable never
/// enters the sandbox.
fn is_source(credential: &Credential, name: &OsStr) -> bool {
    let mut all = credential.source.variables().into_iter();
    all.any(|variable| name == OsStr::new(variable))
}

/// Adds to a user's `PATH` the directories that some systems have in root's alone, with useradd,
/// ldconfig and the like. An empty one stays empty, since that is intended.
fn add_programs_of_root(path: &mut OsString) {
    if path.is_empty() {
        return;
    }
    for directory in ["/usr/local/sbin", "/usr/sbin", "/sbin"] {
        let is_there = std::env::split_paths(path).any(|one| one == Path::new(directory));
        if !is_there {
            path.push(":");
            path.push(directory);
        }
    }
}

/// Returns notices of variables named on the command line that are not set: without them the
/// program may not do what the person expects.
fn asked_for_in_vain(rules: &Rules, variables: &BTreeMap<OsString, OsString>) -> Vec<Notice> {
    let in_vain = rules.environment.pass.iter().filter_map(|pattern| {
        let name = pattern.value.exact()?;
        let is_asked_for = matches!(pattern.origin, Origin::CommandLine(_));
        (is_asked_for && !variables.contains_key(OsStr::new(name))).then(|| Notice {
            text: format!("{name} is not set, so the program does not get it"),
            origin: pattern.origin.clone(),
        })
    });
    in_vain.collect()
}

/// Returns notices of variables named on the command line that hold a credential's placeholder
/// instead of the expected value.
fn asked_for_and_stood_for(rules: &Rules, facts: &Facts<'_>) -> Vec<Notice> {
    let environment = &rules.environment;
    let is_asked_for = |origin: &Origin| matches!(origin, Origin::CommandLine(_));
    let option = |name: &str| {
        let set = environment.set.get(name).map(|one| &one.origin);
        let mut pass = environment.pass.iter();
        let passed = pass.find(|one| one.value.exact() == Some(name) && is_asked_for(&one.origin));
        let origin = set.filter(|origin| is_asked_for(origin));
        origin.or(passed.map(|one| &one.origin)).cloned()
    };
    let mut notices = Vec::new();
    for credential in rules.credentials() {
        for (part, name) in &credential.variables {
            let Some(origin) = option(name) else {
                continue;
            };
            let its = &credential.binding.name;
            let text = match placeholder(credential, *part, facts) {
                Some(_) => format!(
                    "{name} holds what stands for credential {its} inside, and not what --env says: a \
                     value of its own goes in under another name"
                ),
                None if environment.set.contains_key(name) => format!(
                    "{name}: `--env` passes the value as is. Export it instead and the program gets a \
                     placeholder. (credential {its})"
                ),
                None => continue,
            };
            notices.push(Notice { text, origin });
        }
    }
    notices
}

/// Returns the origin that passes this variable, unless it is denied. The last pattern that passes
/// it counts; some variables need their exact name.
fn passed_by(rules: &Rules, name: &OsStr) -> Option<Origin> {
    let environment = &rules.environment;
    if environment
        .denied
        .iter()
        .any(|pattern| pattern.value.matches(name))
    {
        return None;
    }
    environment
        .pass
        .iter()
        .rev()
        .find(|pattern| pattern.value.passes(name))
        .map(|pattern| pattern.origin.clone())
}
