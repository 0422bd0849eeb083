//! Questions, and their translation into Cedar's terms.

mod members;
mod needs;
mod tool;

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use atoll_model::network::{CredentialName, HostName, HostPart, PublishedPort, Request};
use atoll_model::{CallTool, Mode, WorkspaceMode};
use cedar_policy::{Context, Entities, Entity, EntityUid, RestrictedExpression};

use crate::quoting::quoted;
use crate::vocabulary::{Kind, Vocabulary};
use crate::{Action, ArtifactFacts, Facts};
pub(crate) use needs::Needs;

use members::{
    address, long, made_by, of_artifact, of_changes, of_exec, of_request, of_server, sends, text,
    texts, truth,
};

/// The most directories above a path.
const PATH_DEPTH_MAX: usize = 256;
/// The longest text in a question, bytes.
const TEXT_BYTES_MAX: usize = 32 << 10;

/// The principal: the person, or a session on the person's behalf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The person's user number on this host, as reported by the kernel.
    pub person: u32,
    /// The session that acts for the person; `None` if the person acts directly.
    pub session: Option<String>,
}

/// The handling of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Inspected: its requests are judged one by one.
    Into,
    /// Tunnelled: its bytes pass unseen.
    Past,
}

/// The content that follows a request head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follows {
    /// Nothing.
    Nothing,
    /// A request body.
    Body,
    /// WebSocket messages, in both directions.
    Messages,
}

/// An exec: a program to start in a sandbox that is there.
#[derive(Clone, Copy, Debug)]
pub struct Exec<'a> {
    /// The program, as it is called or as a path.
    pub program: &'a str,
    /// The arguments after the program's own name.
    pub arguments: &'a [OsString],
    /// The working directory at its start.
    pub directory: &'a Path,
    /// The id of the sandbox.
    pub sandbox: &'a str,
    /// True if the program has a terminal.
    pub terminal: bool,
}

/// The action asked about, with its resource and parameters.
#[derive(Clone, Copy, Debug)]
pub enum Asked<'a> {
    /// Starting a program.
    Run {
        /// The program, as it was called.
        program: &'a str,
        /// The workspace mode.
        workspace: WorkspaceMode,
        /// True if the program is root in its sandbox.
        root: bool,
        /// True if the program may create namespaces.
        nesting: bool,
        /// True if the program has a terminal.
        terminal: bool,
    },
    /// Starting a program in a sandbox that is there.
    Exec(Exec<'a>),
    /// Reading a path.
    Read(&'a Path),
    /// Writing a path.
    Write(&'a Path),
    /// Resolving a name.
    Resolve(&'a HostName),
    /// Opening a connection.
    Connect {
        /// The host.
        host: &'a HostPart,
        /// The port.
        port: u16,
        /// The handling.
        look: Look,
    },
    /// Sending a request, with what follows its head.
    Request(&'a Request<'a>, Follows),
    /// Injecting a credential.
    UseCredential(&'a CredentialName),
    /// Applying a change to the person's files.
    Promote {
        /// The path written to.
        path: &'a Path,
        /// The path in the run's workspace, if it lies there; that of a directory to create ends in
        /// `/`.
        within: Option<&'a str>,
        /// True if other programs run the file.
        control: bool,
        /// The artifact that is promoted to it, if one is.
        artifact: Option<&'a ArtifactFacts>,
    },
    /// Calling a tool.
    Call(&'a CallTool),
    /// Undoing what was written to the person's files.
    Restore {
        /// The id of the run that made the changes.
        run: &'a str,
    },
    /// Publishing a port.
    Publish(PublishedPort),
    /// Allowing a run more than its rules, for longer than once.
    Escalate {
        /// The run's id.
        run: &'a str,
        /// The time that this lasts, seconds; `None` for as long as the run goes on.
        seconds: Option<u64>,
    },
    /// Administering a run.
    Administer {
        /// The run's id.
        run: &'a str,
        /// The operation, as `reload`.
        operation: &'a str,
    },
}

impl Asked<'_> {
    /// Returns the action.
    #[must_use]
    pub fn action(&self) -> Action {
        match self {
            Self::Run { .. } => Action::Run,
            Self::Exec(_) => Action::Exec,
            Self::Read(_) => Action::Read,
            Self::Write(_) => Action::Write,
            Self::Resolve(_) => Action::Resolve,
            Self::Connect { .. } => Action::Connect,
            Self::Request(_, _) => Action::Request,
            Self::UseCredential(_) => Action::UseCredential,
            Self::Promote { .. } => Action::Promote,
            Self::Call(_) => Action::Call,
            Self::Restore { .. } => Action::Restore,
            Self::Publish(_) => Action::Publish,
            Self::Escalate { .. } => Action::Escalate,
            Self::Administer { .. } => Action::Administer,
        }
    }
}

impl Asked<'_> {
    /// Returns a policy that would permit it; `None` if the path is not UTF-8.
    #[must_use]
    pub fn permit(&self) -> Option<String> {
        let resource = match self {
            Self::Run { program, .. } | Self::Exec(Exec { program, .. }) => {
                let base = program.rsplit('/').next().unwrap_or_default();
                match base.is_empty() {
                    // A sandbox that lives is made for no program.
                    true => "is Program".to_owned(),
                    false => format!("in Program::{}", quoted(base)),
                }
            }
            Self::Read(path) | Self::Write(path) | Self::Promote { path, .. } => {
                format!("in Path::{}", quoted(path.to_str()?))
            }
            Self::Resolve(name) => format!("== Host::{}", quoted(name.as_str())),
            Self::Connect { host, .. } => format!("== Host::{}", quoted(&host_name(host))),
            Self::Request(request, _) => {
                format!("== Host::{}", quoted(&host_name(request.host)))
            }
            Self::UseCredential(name) => format!("== Credential::{}", quoted(name.as_str())),
            Self::Publish(port) => format!("== Port::\"{}\"", port.inside),
            Self::Call(call) => format!("== Tool::{}", quoted(call.tool.as_str())),
            Self::Restore { run } | Self::Escalate { run, .. } | Self::Administer { run, .. } => {
                format!("== Run::{}", quoted(run))
            }
        };
        let action = self.action().name();
        Some(format!(
            "permit(principal, action == Action::\"{action}\", resource {resource});"
        ))
    }
}

fn host_name(host: &HostPart) -> String {
    match host {
        HostPart::Name(name) => name.as_str().to_owned(),
        HostPart::Address(address) => address.to_string(),
    }
}

/// One question.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The principal.
    pub principal: &'a Principal,
    /// The action asked about.
    pub asked: Asked<'a>,
    /// The facts.
    pub facts: &'a Facts,
}

/// A question in Cedar's terms.
#[derive(Debug)]
pub(crate) struct CedarRequest {
    pub(crate) action: Action,
    pub(crate) resource: EntityUid,
    /// The ancestors of the resource.
    pub(crate) above: Vec<EntityUid>,
    pub(crate) entities: Entities,
    pub(crate) request: cedar_policy::Request,
    /// The reason why programs read the path of a request in different ways, if they do.
    pub(crate) unclear: Option<&'static str>,
}

/// An entity id and its ancestors.
type Placed = (EntityUid, Vec<EntityUid>);

impl Question<'_> {
    /// Translates the question into Cedar's terms, with those parts of a request that policies
    /// read.
    pub(crate) fn put(
        &self,
        words: &Arc<Vocabulary>,
        needs: Needs,
        known: impl Fn(&EntityUid) -> Vec<EntityUid>,
    ) -> Result<CedarRequest, String> {
        let action = self.asked.action();
        let (resource, above) = self.resource(words)?;
        let (principal, mut owners) = self.principal(words)?;
        let mut further: Vec<EntityUid> = owners.iter().flat_map(&known).collect();
        further.extend(known(&principal));
        owners.extend(further);
        let mut over = above.clone();
        over.extend(known(&resource));
        let of = |id: &EntityUid, above: &[EntityUid]| {
            Entity::new_no_attrs(id.clone(), above.iter().cloned().collect::<HashSet<_>>())
        };
        let mut all = vec![of(&principal, &owners), of(&resource, &over)];
        if let Asked::Call(call) = &self.asked
            && needs.arguments
        {
            all.extend(tool::arguments(words, call)?);
        }
        let entities = Entities::from_entities(all, None).map_err(|error| error.to_string())?;
        let mut members = self.facts(needs)?;
        self.members(words, needs, &mut members)?;
        let context = Context::from_pairs(members).map_err(|error| error.to_string())?;
        let id = words.action(action).ok_or("no such action")?.clone();
        let request = cedar_policy::Request::new(principal, id, resource.clone(), context, None);
        Ok(CedarRequest {
            action,
            resource,
            above: over,
            entities,
            request: request.map_err(|error| error.to_string())?,
            unclear: match &self.asked {
                Asked::Request(request, _) => request.target.unclear(),
                Asked::Run { .. } | Asked::Exec(_) | Asked::Read(_) | Asked::Write(_) => None,
                Asked::Resolve(_) => None,
                Asked::Connect { .. } | Asked::UseCredential(_) => None,
                Asked::Promote { .. } | Asked::Restore { .. } | Asked::Publish(_) => None,
                Asked::Escalate { .. } | Asked::Administer { .. } | Asked::Call(_) => None,
            },
        })
    }

    fn principal(&self, words: &Vocabulary) -> Result<Placed, String> {
        let person = id(words, Kind::Person, &self.principal.person.to_string())?;
        Ok(match &self.principal.session {
            None => (person, Vec::new()),
            Some(session) => (id(words, Kind::Session, session)?, vec![person]),
        })
    }

    fn resource(&self, words: &Vocabulary) -> Result<Placed, String> {
        match &self.asked {
            Asked::Run { program, .. } | Asked::Exec(Exec { program, .. }) => {
                let base = program.rsplit('/').next().unwrap_or_default();
                let mut above = Vec::new();
                if base != *program {
                    above.push(id(words, Kind::Program, base)?);
                }
                Ok((id(words, Kind::Program, program)?, above))
            }
            Asked::Read(path) | Asked::Write(path) | Asked::Promote { path, .. } => {
                place(words, path)
            }
            Asked::Resolve(name) => named(words, name),
            Asked::Connect { host, .. } => host_of(words, host),
            Asked::Request(request, _) => host_of(words, request.host),
            Asked::UseCredential(name) => {
                Ok((id(words, Kind::Credential, name.as_str())?, Vec::new()))
            }
            Asked::Publish(port) => {
                let inside = port.inside.to_string();
                Ok((id(words, Kind::Port, &inside)?, Vec::new()))
            }
            Asked::Call(call) => Ok((id(words, Kind::Tool, call.tool.as_str())?, Vec::new())),
            Asked::Restore { run }
            | Asked::Escalate { run, .. }
            | Asked::Administer { run, .. } => Ok((id(words, Kind::Run, run)?, Vec::new())),
        }
    }

    fn facts(&self, needs: Needs) -> Result<Vec<(String, RestrictedExpression)>, String> {
        let facts = self.facts;
        let mode = match facts.mode {
            Mode::Full => "full",
            Mode::Fence => "fence",
        };
        let time = i64::try_from(facts.time).unwrap_or(i64::MAX);
        let mut members = vec![
            long("time", time),
            text("mode", mode),
            text("profile", &facts.profile),
        ];
        let stated = [
            ("task", &facts.task),
            ("purpose", &facts.purpose),
            ("trust", &facts.trust),
        ];
        for (name, stated) in stated {
            members.extend(stated.as_deref().map(|stated| text(name, stated)));
        }
        let confidence = facts.confidence.filter(|_| needs.confidence).map(i64::from);
        members.extend(confidence.map(|confidence| long("confidence", confidence)));
        if let Some(labels) = facts.labels.as_ref().filter(|_| needs.labels) {
            members.push(texts("labels", labels));
        }
        if needs.reputation {
            members.push(long("reputation", facts.reputation.into()));
        }
        if let Some(served) = facts.served.as_ref().filter(|_| needs.served) {
            members.push(of_server(served)?);
        }
        Ok(members)
    }

    fn members(
        &self,
        words: &Vocabulary,
        needs: Needs,
        to: &mut Vec<(String, RestrictedExpression)>,
    ) -> Result<(), String> {
        match &self.asked {
            Asked::Read(_) | Asked::Write(_) | Asked::UseCredential(_) => {}
            Asked::Resolve(name) => to.push(truth("model", self.facts.is_model(name))),
            Asked::Exec(exec) => of_exec(exec, needs, to)?,
            Asked::Call(call) => tool::members(words, call, needs, to)?,
            Asked::Run {
                workspace,
                root,
                nesting,
                terminal,
                ..
            } => {
                let workspace = match workspace {
                    WorkspaceMode::CopyOnWrite => "copy-on-write",
                    WorkspaceMode::Live => "live",
                    WorkspaceMode::ReadOnly => "read-only",
                };
                to.push(text("workspace", workspace));
                to.push(truth("root", *root));
                to.push(truth("nesting", *nesting));
                to.push(truth("terminal", *terminal));
            }
            Asked::Connect { host, port, look } => {
                let look = match look {
                    Look::Into => "into",
                    Look::Past => "past",
                };
                to.push(long("port", i64::from(*port)));
                to.push(text("look", look));
                to.extend(address(host));
                to.push(truth("model", self.facts.is_model_at(host)));
            }
            Asked::Promote {
                control,
                within,
                artifact,
                ..
            } => {
                to.push(truth("control", *control));
                if let Some(artifact) = artifact {
                    to.push(of_artifact(artifact)?);
                }
                let within = within.map(|within| format!("/{}", within.to_ascii_lowercase()));
                to.extend(within.map(|within| text("within", &within)));
                of_changes(&self.facts.changes, to)?;
            }
            Asked::Restore { .. } => to.extend(made_by(&self.facts.changes)),
            Asked::Publish(port) => to.push(long("outside", i64::from(port.outside))),
            Asked::Escalate { seconds, .. } => {
                let seconds = seconds.map(|seconds| i64::try_from(seconds).unwrap_or(i64::MAX));
                to.extend(seconds.map(|seconds| long("seconds", seconds)));
            }
            Asked::Administer { operation, .. } => to.push(text("operation", operation)),
            Asked::Request(request, follows) => {
                to.push(truth("sends", sends(request, *follows)));
                to.push(truth("model", self.facts.is_model_at(request.host)));
                of_request(request, needs, to)?;
            }
        }
        Ok(())
    }
}

fn id(words: &Vocabulary, kind: Kind, text: &str) -> Result<EntityUid, String> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!("its name is longer than {TEXT_BYTES_MAX} bytes"));
    }
    let id = words.id(kind, text);
    id.ok_or_else(|| "the schema has no such kind".to_owned())
}

/// Returns the entity of a path with every directory above it. A path with `.` or `..` is refused,
/// since it can denote another place than it seems to.
fn place(words: &Vocabulary, path: &Path) -> Result<Placed, String> {
    let text = path.to_str();
    let text = text.ok_or_else(|| format!("{} is not UTF-8", path.display()))?;
    let is_plain = text.starts_with('/') && text.split('/').all(|part| part != "." && part != "..");
    if !is_plain {
        return Err(format!(
            "{text:?} is not an absolute path free of `.` and `..`"
        ));
    }
    let above: Vec<&str> = path.ancestors().skip(1).filter_map(Path::to_str).collect();
    if above.len() > PATH_DEPTH_MAX {
        return Err(format!(
            "{text:?} lies beneath more than {PATH_DEPTH_MAX} directories"
        ));
    }
    let above = above.into_iter().map(|one| id(words, Kind::Path, one));
    let above = above.collect::<Result<_, _>>()?;
    // Without a '/' at its end, and without two of them together.
    let own: std::path::PathBuf = path.components().collect();
    let own = own.to_str().unwrap_or(text);
    Ok((id(words, Kind::Path, own)?, above))
}

fn host_of(words: &Vocabulary, host: &HostPart) -> Result<Placed, String> {
    match host {
        HostPart::Name(name) => named(words, name),
        HostPart::Address(address) => {
            Ok((id(words, Kind::Host, &address.to_string())?, Vec::new()))
        }
    }
}

/// Returns the entity of a host name with its ancestors, `*.` before each parent domain.
fn named(words: &Vocabulary, name: &HostName) -> Result<Placed, String> {
    let above = name.as_str().match_indices('.').map(|(at, _)| {
        let rest = name.as_str().get(at..).unwrap_or_default();
        id(words, Kind::Host, &format!("*{rest}"))
    });
    let above = above.collect::<Result<_, _>>()?;
    Ok((id(words, Kind::Host, name.as_str())?, above))
}
