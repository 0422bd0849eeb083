//! Questions as people write them: on the command line, and as tests beside a policy file.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use atoll_model::conduct::REPUTATION_MAX;
use atoll_model::network::{HostName, HostPart, PublishedPort, Request, Scheme, Target};
use atoll_model::{CallTool, Mode, ToolEffect, ToolKind, ToolName, ToolUndo, WorkspaceMode};
use serde::{Deserialize, Serialize};

use crate::flattened::flattened;
use crate::obligation::carried;
use crate::{
    Action, ArtifactFacts, Asked, ChangeFacts, Decision, Effect, Exec, Facts, Follows, Look,
    Principal, Question, Served, ShadowFacts,
};

/// The most cases in one file.
const CASES_MAX: usize = 2_000;

/// One question. Each field that is absent has the default named in its comment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Case {
    /// The case's name, for people.
    pub name: String,
    /// The action, as `connect`.
    pub action: String,
    /// The resource: a program, a path, a host, a credential or a port.
    pub resource: String,
    /// The person's user number. Default: 1000.
    pub person: Option<u32>,
    /// The acting session. Default: none, so the person acts.
    pub session: Option<String>,
    /// The port of a connection (default: 443), or the host's port of a published one (default: the
    /// same).
    pub port: Option<u16>,
    /// The handling of a connection, `into` (inspected) or `past` (tunnelled). Default: `into`.
    pub look: Option<String>,
    /// The scheme, `http` or `https`. Default: `https`.
    pub scheme: Option<String>,
    /// The method. Default: `GET`.
    pub method: Option<String>,
    /// The path of a request, with its query. Default: `/`.
    pub path: Option<String>,
    /// True if the request has a body. Default: false.
    pub body: bool,
    /// True if other programs run the applied file. Default: false.
    pub control: bool,
    /// The path in the run's workspace of an applied file, as `docs/guide.md`, or of a created
    /// directory, as `docs/`. Default: none, so it lies outside the workspace.
    pub within: Option<String>,
    /// The artifact that is promoted. Default: none, so a change of a run is.
    pub artifact: Option<ArtifactFacts>,
    /// The change set of a shadow run that is promoted. Default: none.
    pub change: Option<ShadowFacts>,
    /// True if the host is one of the agent's models. Default: false.
    pub model: bool,
    /// The workspace mode. Default: `copy-on-write`.
    pub workspace: Option<WorkspaceMode>,
    /// True if the program is root in its sandbox. Default: false.
    pub root: bool,
    /// True if the program may create namespaces. Default: false.
    pub nesting: bool,
    /// True if the program has a terminal. Default: false.
    pub terminal: bool,
    /// The kind of a tool. Default: `command`.
    pub kind: Option<String>,
    /// The worst that a tool does. Default: `write`.
    pub effect: Option<String>,
    /// True if two calls of a tool do no more than one. Default: false.
    pub idempotent: bool,
    /// The way in which a tool's call is taken back. Default: `none`.
    pub undo: Option<String>,
    /// The arguments of a tool's call, as JSON text. Default: none.
    pub json: Option<String>,
    /// The arguments of an exec after the program's own name. Default: none.
    pub arguments: Vec<String>,
    /// The directory that an exec starts in. Default: `/`.
    pub directory: Option<String>,
    /// The id of an exec's sandbox. Default: `sandbox`.
    pub sandbox: Option<String>,
    /// The seconds for which a run is allowed more. Default: none, so as long as it goes on.
    pub seconds: Option<u64>,
    /// The operation by which a run is administered. Default: `reload`.
    pub operation: Option<String>,
    /// The run that made a change. Default: none.
    #[serde(rename = "run")]
    pub run_of: Option<String>,
    /// The user number of who started the run that made a change. Default: none.
    pub made_by: Option<u32>,
    /// The number of paths that are written at once. Default: none.
    pub paths: Option<u64>,
    /// The result of the checks of these changes: `passed` or `failed`. Default: none.
    pub checks: Option<String>,
    /// The time, seconds since 1970. Default: 0 in a test, now for a question.
    pub time: u64,
    /// The sandbox mode. Default: `full`.
    pub mode: Option<Mode>,
    /// The profile. Default: `default`.
    pub profile: Option<String>,
    /// The session's task.
    pub task: Option<String>,
    /// The session's purpose.
    pub purpose: Option<String>,
    /// The agent's stated confidence, percent.
    pub confidence: Option<u8>,
    /// The level of trust.
    pub trust: Option<String>,
    /// The labels of the data that the session has touched.
    pub labels: Option<BTreeSet<String>>,
    /// The agent's reputation, points. Default: 0.
    pub reputation: Option<u8>,
    /// The caller of a server that the sandbox was made for. Default: none.
    pub served: Option<Served>,
    /// True if anything that needs approval is denied. Tests cannot set it.
    #[serde(skip)]
    pub is_strict: bool,
    /// The expected decision: `allow`, `ask` or `deny`.
    pub expect: Option<Expected>,
    /// The id of the policy expected to decide.
    pub by: Option<String>,
}

/// The decision that a test expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expected {
    /// Allowed.
    Allow,
    /// Allowed once somebody approves.
    Ask,
    /// Denied.
    Deny,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cases {
    #[serde(default)]
    case: Vec<Case>,
}

/// Reads a file of tests, one `[[case]]` table each.
///
/// # Errors
/// Describes what is wrong with the file, with the line.
pub fn cases(text: &str) -> Result<Vec<Case>, String> {
    let read: Cases = toml::from_str(text).map_err(|error| error.to_string())?;
    let all = read.case;
    if all.is_empty() || all.len() > CASES_MAX {
        return Err(format!(
            "a file of tests has 1 to {CASES_MAX} [[case]]s, and this has {}",
            all.len()
        ));
    }
    match all.iter().position(|case| case.expect.is_none()) {
        Some(at) => Err(format!(
            "case {} says nothing of what it expects: expect = \"deny\"",
            at + 1
        )),
        None => Ok(all),
    }
}

impl Case {
    /// Returns this case with these lines applied, each written as in a `[[case]]` table.
    ///
    /// # Errors
    /// Describes what is wrong with the lines.
    pub fn with(&self, lines: &[String]) -> Result<Self, String> {
        let text = lines.join("\n");
        let said: toml::Table = toml::from_str(&text).map_err(|error| error.to_string())?;
        let read: Self = toml::from_str(&text).map_err(|error| error.to_string())?;
        let says = |name: &str| said.contains_key(name);
        Ok(Self {
            person: if says("person") {
                read.person
            } else {
                self.person
            },
            time: if says("time") { read.time } else { self.time },
            ..read
        })
    }

    /// Asks the question as a run does: an obligation that is not carried out for the action turns
    /// an allowance into a denial.
    ///
    /// # Errors
    /// Describes the part of the case that cannot be asked.
    pub fn ask(&self, decide: impl FnOnce(&Question<'_>) -> Decision) -> Result<Decision, String> {
        let principal = Principal {
            person: self.person.unwrap_or(1000),
            session: self.session.clone(),
        };
        let facts = self.facts();
        let put = |asked: Asked<'_>| {
            let decision = decide(&Question {
                principal: &principal,
                asked,
                facts: &facts,
            });
            Ok(decision.within(carried(asked.action())))
        };
        for (what, said) in [("action", &self.action), ("resource", &self.resource)] {
            if said.is_empty() {
                return Err(format!("{what} is missing"));
            }
        }
        let action = Action::named(&self.action);
        if let Some(action) = action {
            self.says_nothing(action)?;
        }
        let name = &self.resource;
        match action {
            Some(Action::Run) => put(self.run()),
            Some(Action::Exec) => put(Asked::Exec(self.exec(&self.arguments()))),
            Some(Action::Read) => put(Asked::Read(&self.place()?)),
            Some(Action::Write) => put(Asked::Write(&self.place()?)),
            Some(Action::Promote) => put(self.promotion(&self.place()?)?),
            Some(Action::Resolve) => {
                let name = HostName::parse(name)
                    .map_err(|error| format!("{name:?} is no name: {error}"))?;
                put(Asked::Resolve(&name))
            }
            Some(Action::Connect) => put(Asked::Connect {
                host: &self.host()?,
                port: self.port.unwrap_or(443),
                look: self.look()?,
            }),
            Some(Action::Request) => {
                let target = self.path.as_deref().unwrap_or("/");
                let target = Target::parse(target).map_err(|error| error.to_string())?;
                let host = self.host()?;
                let request = self.request(&host, &target)?;
                put(Asked::Request(&request, self.follows()))
            }
            Some(Action::UseCredential) => {
                let name = name
                    .parse()
                    .map_err(|_| format!("{name:?} is no credential's name"))?;
                put(Asked::UseCredential(&name))
            }
            Some(Action::Publish) => {
                let mut port: PublishedPort =
                    name.parse().map_err(|_| format!("{name:?} is no port"))?;
                port.outside = self.port.unwrap_or(port.outside);
                put(Asked::Publish(port))
            }
            Some(Action::Restore) => put(Asked::Restore { run: name }),
            Some(Action::Escalate) => put(self.escalation()),
            Some(Action::Administer) => put(self.administration()),
            Some(Action::Call) => put(Asked::Call(&self.call()?)),
            None => Err(self.unasked()),
        }
    }

    fn promotion<'a>(&'a self, path: &'a Path) -> Result<Asked<'a>, String> {
        Ok(Asked::Promote {
            path,
            within: self.within()?,
            control: self.control,
            artifact: self.artifact.as_ref(),
        })
    }

    fn follows(&self) -> Follows {
        match self.body {
            true => Follows::Body,
            false => Follows::Nothing,
        }
    }

    fn unasked(&self) -> String {
        let all = Action::ALL.map(Action::name);
        let (action, all) = (&self.action, all.join(", "));
        format!("{action:?} is nothing that is asked for; {all} are")
    }

    /// Describes how a decision differs from the expected one; `None` if it does not. An approval
    /// that nobody can give counts as a denial.
    #[must_use]
    pub fn difference(&self, found: &Decision) -> Option<String> {
        let expected = match self.expect {
            Some(Expected::Allow) => Effect::Allow,
            Some(Expected::Ask) => Effect::Ask,
            Some(Expected::Deny) => Effect::Deny,
            None => return None,
        };
        if found.at_most() != expected {
            return Some(format!(
                "it is {}, and {} was expected: {}",
                found.at_most(),
                expected,
                found.why()
            ));
        }
        let by = self.by.as_deref()?;
        let is_by = found.deciding.iter().any(|one| &*one.id == by);
        (!is_by).then(|| format!("policy {by} was to decide: {}", found.why()))
    }

    fn facts(&self) -> Facts {
        Facts {
            time: self.time,
            mode: self.mode.unwrap_or(Mode::Full),
            profile: self.profile.clone().unwrap_or_else(|| "default".to_owned()),
            task: self.task.clone(),
            purpose: self.purpose.clone(),
            confidence: self.confidence,
            trust: self.trust.clone(),
            labels: self.labels.clone(),
            reputation: self.reputation.unwrap_or(0).min(REPUTATION_MAX),
            served: self.served.clone(),
            changes: ChangeFacts {
                run: self.run_of.clone(),
                made_by: self.made_by,
                paths: self.paths,
                checks: self.checks.clone(),
                shadowed: self.change.clone(),
            },
            trusted: Vec::new(),
            models: match self.model {
                true => vec![self.resource.clone()],
                false => Vec::new(),
            },
            is_strict: self.is_strict,
        }
    }

    fn run(&self) -> Asked<'_> {
        Asked::Run {
            program: &self.resource,
            workspace: self.workspace.unwrap_or(WorkspaceMode::CopyOnWrite),
            root: self.root,
            nesting: self.nesting,
            terminal: self.terminal,
        }
    }

    fn escalation(&self) -> Asked<'_> {
        Asked::Escalate {
            run: &self.resource,
            seconds: self.seconds,
        }
    }

    fn administration(&self) -> Asked<'_> {
        Asked::Administer {
            run: &self.resource,
            operation: self.operation.as_deref().unwrap_or("reload"),
        }
    }

    fn call(&self) -> Result<CallTool, String> {
        let tool = ToolName::parse(&self.resource).map_err(|error| error.to_string())?;
        let kind = self.kind.as_deref().unwrap_or("command");
        let effect = self.effect.as_deref().unwrap_or("write");
        let undo = self.undo.as_deref().unwrap_or("none");
        let text = self.json.as_deref().unwrap_or("{}");
        let arguments: serde_json::Value =
            serde_json::from_str(text).map_err(|error| format!("json: {error}"))?;
        Ok(CallTool {
            tool,
            kind: ToolKind::named(kind).ok_or_else(|| format!("{kind:?} is no kind of tool"))?,
            effect: ToolEffect::named(effect)
                .ok_or_else(|| format!("{effect:?} is no effect of a tool"))?,
            idempotent: self.idempotent,
            undo: ToolUndo::named(undo).ok_or_else(|| format!("{undo:?} is no way to undo"))?,
            text: text.to_owned(),
            arguments: flattened(&arguments)?,
            key: None,
            spent: Vec::new(),
        })
    }

    fn arguments(&self) -> Vec<OsString> {
        self.arguments.iter().map(OsString::from).collect()
    }

    fn exec<'a>(&'a self, arguments: &'a [OsString]) -> Exec<'a> {
        Exec {
            program: &self.resource,
            arguments,
            directory: Path::new(self.directory.as_deref().unwrap_or("/")),
            sandbox: self.sandbox.as_deref().unwrap_or("sandbox"),
            terminal: self.terminal,
        }
    }

    fn request<'a>(
        &'a self,
        host: &'a HostPart,
        target: &'a Target,
    ) -> Result<Request<'a>, String> {
        let scheme = self.scheme()?;
        Ok(Request {
            host,
            port: self.port.unwrap_or(scheme.port()),
            scheme,
            method: self.method.as_deref().unwrap_or("GET"),
            target,
        })
    }

    fn place(&self) -> Result<PathBuf, String> {
        let place = PathBuf::from(&self.resource);
        let is_plain = self
            .resource
            .split('/')
            .all(|part| part != "." && part != "..");
        match place.is_absolute() && is_plain {
            true => Ok(place),
            false => Err(format!(
                "{:?} is not an absolute path free of `.` and `..`",
                self.resource
            )),
        }
    }

    /// Returns the path in the workspace.
    fn within(&self) -> Result<Option<&str>, String> {
        let Some(within) = self.within.as_deref() else {
            return Ok(None);
        };
        let path = within.strip_suffix('/').unwrap_or(within);
        let above = self.resource.strip_suffix(path);
        let is_end = above.is_some_and(|above| above.ends_with('/') && above.len() > 1);
        match is_end && !path.is_empty() && path.split('/').all(|part| !part.is_empty()) {
            true => Ok(Some(within)),
            false => Err(format!(
                "within is the end of {:?}, as it lies in the workspace: {within:?} is none",
                self.resource
            )),
        }
    }

    /// Rejects fields that are not of this action, which would otherwise be ignored.
    fn says_nothing(&self, action: Action) -> Result<(), String> {
        use Action::{
            Administer, Call, Connect, Escalate, Exec, Promote, Publish, Request, Resolve, Restore,
            Run,
        };
        let said: [(&str, bool, &[Action]); 28] = [
            ("port", self.port.is_some(), &[Connect, Request, Publish]),
            ("look", self.look.is_some(), &[Connect]),
            ("scheme", self.scheme.is_some(), &[Request]),
            ("method", self.method.is_some(), &[Request]),
            ("path", self.path.is_some(), &[Request]),
            ("body", self.body, &[Request]),
            ("control", self.control, &[Promote]),
            ("within", self.within.is_some(), &[Promote]),
            ("artifact", self.artifact.is_some(), &[Promote]),
            ("change", self.change.is_some(), &[Promote]),
            ("run", self.run_of.is_some(), &[Promote]),
            ("made_by", self.made_by.is_some(), &[Promote, Restore]),
            ("paths", self.paths.is_some(), &[Promote]),
            ("checks", self.checks.is_some(), &[Promote]),
            ("model", self.model, &[Resolve, Connect, Request]),
            ("workspace", self.workspace.is_some(), &[Run]),
            ("root, nesting", self.root || self.nesting, &[Run]),
            ("terminal", self.terminal, &[Run, Exec]),
            ("arguments", !self.arguments.is_empty(), &[Exec]),
            ("directory", self.directory.is_some(), &[Exec]),
            ("sandbox", self.sandbox.is_some(), &[Exec]),
            ("seconds", self.seconds.is_some(), &[Escalate]),
            ("operation", self.operation.is_some(), &[Administer]),
            ("kind", self.kind.is_some(), &[Call]),
            ("effect", self.effect.is_some(), &[Call]),
            ("idempotent", self.idempotent, &[Call]),
            ("undo", self.undo.is_some(), &[Call]),
            ("json", self.json.is_some(), &[Call]),
        ];
        let mut wrong = said.iter();
        match wrong.find(|(_, is_said, of)| *is_said && !of.contains(&action)) {
            None => Ok(()),
            Some((name, _, of)) => {
                let of: Vec<&str> = of.iter().map(|one| one.name()).collect();
                let action = action.name();
                Err(format!(
                    "{name} says nothing of {action}: it is of {}",
                    of.join(", ")
                ))
            }
        }
    }

    fn host(&self) -> Result<HostPart, String> {
        let name = &self.resource;
        let host = name.parse();
        match host.map_err(|error| format!("{name:?} is no host: {error}"))? {
            HostPart::Address(_) if self.model => Err(format!(
                "{name:?} is an address, and models are known by their names"
            )),
            host => Ok(host),
        }
    }

    fn look(&self) -> Result<Look, String> {
        match self.look.as_deref() {
            None | Some("into") => Ok(Look::Into),
            Some("past") => Ok(Look::Past),
            Some(other) => Err(format!("look is \"into\" or \"past\", not {other:?}")),
        }
    }

    fn scheme(&self) -> Result<Scheme, String> {
        match self.scheme.as_deref() {
            None | Some("https") => Ok(Scheme::Https),
            Some("http") => Ok(Scheme::Http),
            Some(other) => Err(format!("scheme is \"http\" or \"https\", not {other:?}")),
        }
    }
}
