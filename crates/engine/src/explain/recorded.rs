//! The recorded decisions of a run as questions that can be asked again, as far as the ledger has
//! what they were decided on.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use atoll_cedar::{Action, Case, Effect, Served};
use atoll_ledger::{Event, read_host_text, unread};
use atoll_model::network::{DENIED_BY, GIVEN_UP, GivenUps, NO_RULE, NoConsent, UNNAMED};
use atoll_model::{Mode, RunId, WorkspaceMode};
use atoll_policy::{EarlierPurposes, Requested};
use serde_json::Value;

use super::past::Past;
use crate::events::{seconds, session_of};

/// The reading of the command line that began a run, as the surface reads it now.
pub type ReadOptions<'a> = &'a dyn Fn(&[OsString]) -> Result<Requested, &'static str>;

/// A run's request, and the facts that are the same for all of its decisions.
pub struct Opening {
    /// The run.
    pub run: RunId,
    /// The request for the boundary.
    pub requested: Requested,
    /// The program.
    pub program: OsString,
    /// The workspace.
    pub workspace: PathBuf,
    /// The key of runs that have the same rules.
    pub key: String,
    person: u32,
    mode: Mode,
    /// The reputation of its agent at that time; zero if no policy asked for it.
    reputation: u8,
    /// The caller of a server that its sandbox was made for.
    served: Option<Served>,
}

/// A recorded question and its verdict then.
pub struct Put {
    /// The question, with the labels that the session had by then.
    pub case: Case,
    /// The rights the run had dropped by then.
    pub given_up: GivenUps,
    /// The verdict then.
    pub then: Effect,
    /// The number of times it was decided.
    pub count: u64,
}

impl Put {
    fn new(case: Case, then: Effect, count: u64) -> Self {
        Self {
            case,
            given_up: GivenUps::default(),
            then,
            count,
        }
    }
}

/// The reading of an event as a decision to be asked again.
pub enum Found {
    /// One or more questions.
    Questions(Vec<Put>),
    /// Decided, and not to be put again, for this reason.
    Unclear(&'static str),
    /// No decision, or one that another event records.
    Nothing,
}

/// Returns the purposes of the runs that a run continued, as far as its first event records them:
/// all runs of a session have the same purpose.
fn earlier(opened: &Event, in_session: bool) -> EarlierPurposes {
    let held = opened.body.pointer("/decision/purposes-held");
    let held = held.and_then(Value::as_array).into_iter().flatten();
    let narrowed: BTreeSet<String> = held.filter_map(Value::as_str).map(str::to_owned).collect();
    let stated = opened.body.pointer("/decision/purpose");
    let stated = stated.filter(|_| in_session || !narrowed.is_empty());
    EarlierPurposes {
        stated: stated.and_then(Value::as_str).map(str::to_owned),
        narrowed,
    }
}

/// Returns the caller of a server that a run was begun for, or given to.
fn served(event: &Event) -> Option<Served> {
    let served = event.body.get("served")?;
    let text = |name: &str| served.get(name).and_then(Value::as_str).map(str::to_owned);
    let notes = served.get("metadata").and_then(Value::as_array);
    let note = |pair: &Value| {
        let part = |at: usize| pair.get(at).and_then(Value::as_str);
        Some(format!("{}={}", part(0)?, part(1)?))
    };
    let volumes = served.get("volumes").and_then(Value::as_array);
    let volume = |one: &Value| {
        let part = |name: &str| one.get(name).and_then(Value::as_str);
        Some(format!("{}={}", part("name")?, part("access")?))
    };
    Some(Served {
        volumes: volumes.into_iter().flatten().filter_map(volume).collect(),
        tenant: text("tenant")?,
        caller: text("caller"),
        template: text("template").unwrap_or_default(),
        metadata: notes.into_iter().flatten().filter_map(note).collect(),
    })
}

impl Opening {
    /// Takes an event into account by which its sandbox, made ahead, became a caller's.
    pub fn take(&mut self, event: &Event) {
        if event.kind == "sandbox.assigned" {
            self.served = served(event);
        }
    }

    /// Reads the event that opened a run.
    ///
    /// # Errors
    /// When a member of it cannot be read any more.
    pub fn of(event: &Event, read: ReadOptions<'_>) -> Result<Self, &'static str> {
        let run = event.run.clone().ok_or("the run has no name")?;
        let sealed = ["command", "workspace"];
        let mut members = sealed.into_iter().filter_map(|name| event.body.get(name));
        if let Some(why) = members.find_map(unread) {
            return Err(why);
        }
        let words = |name: &str| -> Vec<OsString> {
            let list = event.body.get(name).and_then(Value::as_array);
            list.into_iter()
                .flatten()
                .filter_map(read_host_text)
                .collect()
        };
        let command = words("command");
        let options = words("options");
        let directory = event.body.get("directory").and_then(read_host_text);
        let directory = PathBuf::from(directory.unwrap_or_default());
        let options = options.into_iter().map(|word| absolute(word, &directory));
        let begin = ["atoll", "run"].map(OsString::from).into_iter();
        let line: Vec<OsString> = begin
            .chain(options)
            .chain(["--".into()])
            .chain(command.clone())
            .collect();
        let workspace = event.body.get("workspace").and_then(read_host_text);
        let key = format!("{workspace:?} {line:?}");
        let requested = read(&line)?;
        // The option that says so is not one of its boundary.
        let in_session = session_of(event).is_some();
        let earlier = earlier(event, in_session);
        let key = format!("{key} {earlier:?}");
        let mode = event.body.pointer("/decision/mode").cloned();
        let mode = mode.and_then(|mode| serde_json::from_value(mode).ok());
        let reputation = event.body.pointer("/decision/reputation");
        let reputation = reputation.and_then(Value::as_u64);
        let person = event.body.pointer("/principal/uid").and_then(Value::as_u64);
        Ok(Self {
            run,
            requested: Requested {
                in_session,
                earlier,
                ..requested
            },
            program: command.into_iter().next().unwrap_or_default(),
            workspace: PathBuf::from(workspace.ok_or("the run's workspace is not told")?),
            key,
            person: person
                .and_then(|uid| u32::try_from(uid).ok())
                .ok_or("who has started the run is not told")?,
            mode: mode.unwrap_or(Mode::Full),
            reputation: reputation
                .and_then(|points| u8::try_from(points).ok())
                .unwrap_or(0),
            served: served(event),
        })
    }

    /// Returns the questions that an event of the run decided, with the facts that counted for them
    /// by then.
    pub fn questions(&self, event: &Event, past: &Past) -> Found {
        let mut found = self.answered(event);
        if let Found::Questions(puts) = &mut found {
            for put in puts {
                put.case.labels = Some(past.labels.clone());
                put.given_up.clone_from(&past.given_up);
            }
        }
        found
    }

    fn answered(&self, event: &Event) -> Found {
        let said = |member: &str| event.body.get(member).and_then(Value::as_str);
        match event.kind.as_str() {
            "run.opened" => self.opened(event),
            "run.denied" => self.denied(event),
            "flow.opened" if event.body.get("approval").is_some() => Found::Nothing,
            "flow.opened" => self.flow(event, Effect::Allow, 1),
            // About what a run has changed, which replays nothing.
            "approval.asked" if event.body.get("action").is_some() => Found::Nothing,
            "approval.asked" => self.flow(event, Effect::Ask, 1),
            "flow.refused" => {
                let why = said("why").unwrap_or_default();
                if NoConsent::Unattended.why() == why {
                    // Nobody was asked, so no other event has the question.
                    return self.flow(event, Effect::Ask, again(event));
                }
                if NO_CONSENT.iter().any(|one| one.why() == why) {
                    return Found::Nothing;
                }
                if let Some(why) = not_of_rules(event, why) {
                    return Found::Unclear(why);
                }
                self.flow(event, Effect::Deny, again(event))
            }
            "port.published" => self.port(event, Effect::Allow),
            "port.refused" => Found::Unclear("a port was refused for more than rules"),
            "apply.started" => Found::Unclear("the paths of changes are not in the ledger"),
            _ => Found::Nothing,
        }
    }

    fn case(&self, event: &Event, action: Action, resource: &str) -> Case {
        Case {
            action: action.name().to_owned(),
            resource: resource.to_owned(),
            person: Some(self.person),
            session: Some(self.run.to_string()),
            time: seconds(&event.time),
            mode: Some(self.mode),
            reputation: Some(self.reputation),
            served: self.served.clone(),
            ..Case::default()
        }
    }

    fn opened(&self, event: &Event) -> Found {
        let Some(program) = self.program.to_str().filter(|name| !name.is_empty()) else {
            return Found::Unclear("the program's name is no text");
        };
        let decision = |member: &str| event.body.pointer(&format!("/decision/{member}"));
        let is = |member: &str| decision(member).and_then(Value::as_bool) == Some(true);
        if event.body.get("verdict").and_then(Value::as_str) != Some("allow") {
            // Its denial says what of it was refused.
            return Found::Nothing;
        }
        let workspace = decision("workspace-mode").cloned();
        let case = Case {
            session: None,
            workspace: workspace.and_then(|mode| serde_json::from_value(mode).ok()),
            root: is("root"),
            nesting: is("nesting"),
            terminal: is("terminal"),
            ..self.case(event, Action::Run, program)
        };
        let then = match decision("agreed").is_some() {
            true => Effect::Ask,
            false => Effect::Allow,
        };
        Found::Questions(vec![Put::new(case, then, 1)])
    }

    /// Returns the question a run was denied for, as far as its reasons name it.
    fn denied(&self, event: &Event) -> Found {
        let reasons = event.body.get("reasons").and_then(Value::as_array);
        let reasons = reasons.into_iter().flatten();
        let what = reasons.filter_map(|one| one.get("what").and_then(Value::as_str));
        let of = |what: &str| {
            let (doing, with) = what.split_once(' ')?;
            let action = match doing {
                "running" => Action::Run,
                "showing" => Action::Read,
                "changing" => Action::Write,
                "credential" => Action::UseCredential,
                _ => return None,
            };
            let case = self.case(event, action, with);
            let case = match action == Action::Run {
                true => Case {
                    session: None,
                    workspace: self.requested.live.then_some(WorkspaceMode::Live),
                    root: self.requested.root,
                    nesting: self.requested.nesting,
                    ..case
                },
                false => case,
            };
            let is_asked = event.body.get("verdict").and_then(Value::as_str) == Some("ask");
            let then = match is_asked {
                true => Effect::Ask,
                false => Effect::Deny,
            };
            Some(Put::new(case, then, 1))
        };
        let all: Vec<Put> = what.filter_map(of).collect();
        match all.is_empty() {
            true => Found::Unclear("a run was refused for something that is no question"),
            false => Found::Questions(all),
        }
    }

    fn flow(&self, event: &Event, then: Effect, count: u64) -> Found {
        let said = |member: &str| event.body.get(member).and_then(Value::as_str);
        let port = event.body.get("port").and_then(Value::as_u64);
        let port = port.and_then(|port| u16::try_from(port).ok());
        let Some(host) = said("host").filter(|host| !host.starts_with('(')) else {
            return Found::Unclear("there were too many, and only their number was recorded");
        };
        let has_request = said("method").is_some();
        let case = match said("kind") {
            Some("name") => self.case(event, Action::Resolve, host),
            Some("request") => return self.request(event, then, count),
            None if has_request => return self.request(event, then, count),
            Some("tunnel" | "postgres") | None => Case {
                port,
                ..self.case(event, Action::Connect, host)
            },
            Some("published") if then == Effect::Allow => return self.port(event, then),
            Some("published") => return Found::Unclear("a visit was another user's"),
            Some("ssh-login" | "commit-signature") => {
                return self.credentials(event, then, Vec::new());
            }
            Some(_) => return Found::Unclear("what Atoll asks for itself has rules of its own"),
        };
        let put = Put::new(case, then, count);
        match then {
            Effect::Allow => self.credentials(event, then, vec![put]),
            Effect::Ask | Effect::Deny => Found::Questions(vec![put]),
        }
    }

    fn request(&self, event: &Event, then: Effect, count: u64) -> Found {
        let said = |member: &str| event.body.get(member).and_then(Value::as_str);
        let port = event.body.get("port").and_then(Value::as_u64);
        let (Some(host), Some(path)) = (said("host"), said("path")) else {
            return Found::Unclear("the request was not recorded");
        };
        if let Some(why) = event.body.get("path").and_then(unread) {
            return Found::Unclear(why);
        }
        if path.ends_with('…') {
            return Found::Unclear("of a long path the beginning alone was recorded");
        }
        let text = |member: &str| said(member).map(str::to_owned);
        let confidence = event.body.get("confidence").and_then(Value::as_u64);
        let case = Case {
            port: port.and_then(|port| u16::try_from(port).ok()),
            scheme: text("scheme"),
            method: text("method"),
            path: Some(path.to_owned()),
            body: event.body.get("body_bytes").is_some(),
            confidence: confidence.and_then(|percent| u8::try_from(percent).ok()),
            ..self.case(event, Action::Request, host)
        };
        let put = Put::new(case, then, count);
        match then {
            Effect::Allow => self.credentials(event, then, vec![put]),
            Effect::Ask | Effect::Deny => Found::Questions(vec![put]),
        }
    }

    /// Adds the credentials that are injected to the questions of the event itself.
    fn credentials(&self, event: &Event, then: Effect, mut all: Vec<Put>) -> Found {
        let names = event.body.get("credential").and_then(Value::as_str);
        for name in names.into_iter().flat_map(|names| names.split(',')) {
            all.push(Put::new(
                self.case(event, Action::UseCredential, name),
                then,
                1,
            ));
        }
        match all.is_empty() {
            true => Found::Unclear("which key signed was not recorded"),
            false => Found::Questions(all),
        }
    }

    fn port(&self, event: &Event, then: Effect) -> Found {
        let number = |member: &str| event.body.get(member).and_then(Value::as_u64);
        let Some(inside) = number("port") else {
            return Found::Unclear("the port was not recorded");
        };
        let outside = number("host_port").and_then(|port| u16::try_from(port).ok());
        let case = Case {
            port: outside,
            ..self.case(event, Action::Publish, &inside.to_string())
        };
        Found::Questions(vec![Put::new(case, then, 1)])
    }
}

/// Returns the number of refusals that no earlier event counts: a refusal is recorded at its first
/// time, and again at the end with the number of all.
fn again(event: &Event) -> u64 {
    let count = event.body.get("count").and_then(Value::as_u64);
    match count.unwrap_or(1) {
        count @ 0..=1 => count.max(1),
        count => count - 1,
    }
}

const NO_CONSENT: [NoConsent; 8] = [
    NoConsent::Person,
    NoConsent::Cooling,
    NoConsent::Late,
    NoConsent::Unseconded,
    NoConsent::TooMany,
    NoConsent::Left,
    NoConsent::Ended,
    NoConsent::Mismatch,
];

/// Returns why a refusal came from neither rules nor policies, if so.
fn not_of_rules(event: &Event, why: &str) -> Option<&'static str> {
    let has = |member: &str| event.body.get(member).is_some();
    if has("credential") {
        return Some("a credential's placeholder was on its way elsewhere");
    }
    if has("limit") {
        return Some("a limit of a rule was reached");
    }
    if has("address") {
        return Some("it was refused for its address");
    }
    let begins = [
        GIVEN_UP,
        NO_RULE,
        UNNAMED,
        "forbidden by ",
        "no policy permits it",
        "policies cannot tell",
        "to be approved, by ",
    ];
    let is_of_rules = begins.iter().any(|begin| why.starts_with(begin)) || why.contains(DENIED_BY);
    (!is_of_rules).then_some("it was refused for something that is not recorded")
}

/// Makes the file of `--profile` absolute, from the directory in which the run began.
fn absolute(word: OsString, directory: &Path) -> OsString {
    let file = word
        .to_str()
        .and_then(|text| text.strip_prefix("--profile="));
    match file.filter(|file| file.contains('/') || file.ends_with(".toml")) {
        Some(file) => {
            let mut word = OsString::from("--profile=");
            word.push(directory.join(file));
            word
        }
        None => word,
    }
}
