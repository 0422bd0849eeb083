//! Decides on labelled actions by the policies of purposes: each action as in a run for that
//! purpose, a connection with its name, a request with its connection and its name. Prints JSON: an
//! entry for each action.
//!
//! `cargo xtask bench purpose` calls it: `purposes FILE…`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a measurement ends where something is wrong"
)]

use std::ffi::OsStr;
use std::path::PathBuf;

use atoll_cedar::{Case, Decision, Effect};
use atoll_model::WorkspaceMode;
use atoll_policy::{
    HostFacts, NoProfiles, PolicySources, Requested, RequestedProfile, Rules, Sources, TrustList,
    compile,
};
use serde::Deserialize;
use serde_json::{Value, json};

/// The workspace of the run.
const WORKSPACE: &str = "/home/me/project";

/// A file of labelled actions.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Corpus {
    action: Vec<Labelled>,
}

/// An action, and whether it belongs to the purpose.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Labelled {
    purpose: String,
    on: bool,
    reason: String,
    action: String,
    resource: String,
    port: Option<u16>,
    look: Option<String>,
    scheme: Option<String>,
    method: Option<String>,
    path: Option<String>,
    #[serde(default)]
    body: bool,
    #[serde(default)]
    control: bool,
    workspace: Option<WorkspaceMode>,
    #[serde(default)]
    root: bool,
    #[serde(default)]
    nesting: bool,
    #[serde(default)]
    terminal: bool,
}

impl Labelled {
    fn case(&self) -> Case {
        let beneath = format!("{WORKSPACE}/");
        let within = self.resource.strip_prefix(&beneath);
        Case {
            action: self.action.clone(),
            resource: self.resource.clone(),
            port: self.port,
            look: self.look.clone(),
            scheme: self.scheme.clone(),
            method: self.method.clone(),
            path: self.path.clone(),
            body: self.body,
            control: self.control,
            within: within
                .filter(|_| self.action == "promote")
                .map(str::to_owned),
            workspace: self.workspace,
            root: self.root,
            nesting: self.nesting,
            terminal: self.terminal,
            ..Case::default()
        }
    }
}

/// Returns the rules of an agent's run for a purpose, without policies that people wrote.
fn rules(purpose: &str) -> Rules {
    let trust = TrustList::default();
    let sources = Sources {
        organisation: None,
        user_config: None,
        user_profiles: &NoProfiles,
        project: None,
        trust: &trust,
        policies: PolicySources::default(),
    };
    let requested = Requested {
        profile: Some(RequestedProfile::Named("claude".to_owned())),
        purpose: Some(purpose.to_owned()),
        ..Requested::default()
    };
    let home = PathBuf::from("/home/me");
    let host = HostFacts {
        memory_bytes: 16 << 30,
        uid: 1000,
        gid: 1000,
        state_dir: home.join(".local/state/atoll"),
        config_dir: home.join(".config/atoll"),
        home,
    };
    let rules = compile(&sources, &requested, OsStr::new("claude"), &host).unwrap();
    assert_eq!(rules.narrowed(), [purpose], "it has policies");
    rules
}

/// Returns the questions that a run asks before an action happens: the action itself, and those
/// that it depends on.
fn asked(case: &Case) -> Vec<Case> {
    let host = |action: &str| Case {
        action: action.to_owned(),
        resource: case.resource.clone(),
        ..Case::default()
    };
    let is_name = case.resource.parse::<std::net::IpAddr>().is_err();
    let mut all = Vec::new();
    if is_name && ["connect", "request"].contains(&case.action.as_str()) {
        all.push(host("resolve"));
    }
    if case.action == "request" {
        let port = match case.scheme.as_deref() {
            Some("http") => Some(80),
            Some(_) | None => None,
        };
        all.push(Case {
            port: case.port.or(port),
            ..host("connect")
        });
    }
    all.push(case.clone());
    all
}

/// Returns whether the action happens, and else the policies that deny it.
fn decide(rules: &Rules, labelled: &Labelled) -> (bool, Vec<String>) {
    let mut by = Vec::new();
    let mut is_allowed = true;
    for mut case in asked(&labelled.case()) {
        rules.state(&mut case);
        let layers = rules.policies().unwrap();
        let decided = case.ask(|question| layers.authorize(question));
        let decided =
            decided.unwrap_or_else(|why| panic!("{} {}: {why}", case.action, case.resource));
        let denied = denied_by(decided);
        is_allowed &= denied.is_none();
        by.extend(denied.unwrap_or_default());
    }
    by.sort();
    by.dedup();
    (is_allowed, by)
}

/// Returns the policies and errors that deny; `None` if it is allowed. Where nothing permits it no
/// policy denies.
fn denied_by(decided: Decision) -> Option<Vec<String>> {
    if decided.effect == Effect::Allow {
        return None;
    }
    let deciding = decided.deciding.iter().map(|one| one.id.to_string());
    Some(deciding.chain(decided.errors).collect())
}

fn main() {
    let mut all: Vec<Value> = Vec::new();
    for path in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&path).unwrap();
        let corpus: Corpus = toml::from_str(&text).unwrap_or_else(|why| panic!("{path}: {why}"));
        let mut of_purpose: Option<(String, Rules)> = None;
        for one in corpus.action {
            let known = of_purpose.take().filter(|(name, _)| *name == one.purpose);
            let (name, rules) = known.unwrap_or_else(|| (one.purpose.clone(), rules(&one.purpose)));
            let (is_allowed, by) = decide(&rules, &one);
            of_purpose = Some((name, rules));
            all.push(json!({
                "purpose": one.purpose, "on": one.on, "allowed": is_allowed, "by": by,
                "action": one.action, "resource": one.resource, "method": one.method,
                "path": one.path, "reason": one.reason,
            }));
        }
    }
    println!("{}", Value::Array(all));
}

#[cfg(test)]
mod tests {
    use atoll_cedar::{Layer, Layers, PolicyFile};

    use super::*;

    #[test]
    fn default_deny_is_no_allowance() {
        let text =
            "permit(principal, action == Action::\"resolve\", resource == Host::\"a.example\");";
        let file = PolicyFile {
            name: "own.cedar".to_owned(),
            content: text.as_bytes().to_vec(),
        };
        let layers = Layers::compile(&[(Layer::User, vec![file])], &Default::default()).unwrap();
        for (host, expected) in [("a.example", None), ("b.example", Some(Vec::new()))] {
            let case = Case {
                action: "resolve".to_owned(),
                resource: host.to_owned(),
                ..Case::default()
            };
            let decided = case.ask(|question| layers.authorize(question)).unwrap();
            assert_eq!(denied_by(decided), expected, "{host}");
        }
    }
}
