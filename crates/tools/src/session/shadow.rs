//! Calls that run on a copy first: their change set is decided about, and exactly it is applied.

mod promoting;

use std::path::Path;
use std::sync::Arc;

use atoll_checkpoint::{RowChange, Statement, shadow_statement};
use atoll_engine::failure::{Doing, Failure, Kind};
use atoll_engine::sandboxes::Sandbox;
use atoll_engine::shadow::{self, FileChanges};
use atoll_engine::tools::Called;
use atoll_model::{Shadow, ToolEffect, ToolEnd};
use atoll_sql::Class;
use serde_json::{Map, Value, json};

use super::typed::rendered;
use super::{Begun, Session};
use crate::answer::Answer;
use crate::block::Block;
use crate::database::{self, Copied, Database};
use crate::exec::Program;
use crate::openapi::HttpRequest;
use crate::runner::Runner;
use crate::shadow::{ChangeSet, ShadowEnd};
use crate::tool::{Command, OfUpstream, SandboxLife, Work};
use crate::upstream::Upstream;
use crate::upstream::calls::NoResult;
use crate::upstream::connection::Connection;
use crate::upstream::frames::Given;

/// The directory of archives of databases, in the state directory.
const ARCHIVES: &str = "shadow";

/// A shadow run that has ended.
struct Ran {
    called: Called<Answer>,
    change: ChangeSet,
    effect: Effect,
}

/// The way in which a change set is applied.
enum Effect {
    Files(Box<FileChanges>),
    Rows(Arc<Sandbox>, Vec<RowChange>),
    Request(Box<HttpRequest>),
}

/// The end of a shadow run: with a change set, or as the call has failed there.
enum Came {
    Through(Box<Ran>),
    Failed(Box<Called<Answer>>),
}

/// Returns the number of runs on a copy that come before the effect of a call; none where it has no
/// effect.
pub(super) fn shadows(begun: &Begun<'_>) -> Option<Shadow> {
    let has_effect = match &begun.tool.work {
        Work::Upstream(upstream, OfUpstream::Statement) => {
            let statement = begun.arguments.get("statement").and_then(Value::as_str);
            // One that is refused is told so on the usual way.
            upstream.database().is_some_and(|database| {
                let judged = database.rules.judge(statement.unwrap_or_default());
                judged.is_ok_and(|judged| judged.class != Class::Select)
            })
        }
        Work::Upstream(..) | Work::Command(_) => begun.tool.effect != ToolEffect::Read,
    };
    begun.shadow.filter(|_| has_effect)
}

/// Carries out a call on a copy, and what it changed there in the place itself.
pub(super) fn shadowed<R: Runner>(
    session: &Session<R>,
    begun: &Begun<'_>,
    times: Shadow,
    directory: &Path,
) -> Called<Answer> {
    let shadowing = Shadowing { session, begun };
    shadowing.all(times, directory).unwrap_or_else(|failure| {
        begun.is_fault.set(true);
        shadowing.ended(shadowing.without(), None, end_of(&failure), None)
    })
}

impl Begun<'_> {
    /// Returns its program.
    pub(super) fn program(&self, command: &Command, directory: &Path) -> Result<Program, Failure> {
        let (words, stdin) = rendered(command, self.arguments).map_err(Failure::new)?;
        Ok(Program {
            command: words,
            stdin,
            timeout: self.timeout,
            file: command.file.as_ref().map(|path| directory.join(path)),
            parent: self.id.clone(),
            cancel: self.cancel.clone(),
        })
    }
}

/// A call with its shadow runs.
struct Shadowing<'a, R> {
    session: &'a Session<R>,
    begun: &'a Begun<'a>,
}

impl<R: Runner> Shadowing<'_, R> {
    fn all(&self, times: Shadow, directory: &Path) -> Result<Called<Answer>, Failure> {
        let mut first: Option<Box<Ran>> = None;
        for number in 0..times.times() {
            let ran = match self.once(directory, number) {
                Ok(Came::Through(ran)) => ran,
                Err(failure) => {
                    first.map_or(Ok(()), |first| self.discard(*first))?;
                    return Err(failure);
                }
                Ok(Came::Failed(called)) => {
                    first.map_or(Ok(()), |first| self.discard(*first))?;
                    let why = "the shadow run failed".to_owned();
                    return Ok(self.ended(*called, None, ShadowEnd::Dropped(why), None));
                }
            };
            first = match first {
                None => Some(ran),
                Some(first) if first.change.facts.digest == ran.change.facts.digest => {
                    self.discard(*ran)?;
                    Some(first)
                }
                Some(first) => {
                    let change = first.change.clone();
                    self.discard(*first)?;
                    self.discard(*ran)?;
                    let why = "it changed something else when it ran again".to_owned();
                    let (end, called) = (ShadowEnd::Dropped(why), self.without());
                    return Ok(self.ended(called, Some(change), end, None));
                }
            };
        }
        match first {
            Some(ran) => self.promote(*ran),
            None => Err(Failure::new("nothing ran")),
        }
    }

    /// Runs a call on a copy of its own.
    fn once(&self, directory: &Path, number: usize) -> Result<Came, Failure> {
        match &self.begun.tool.work {
            Work::Command(command) => self.command(command, directory),
            Work::Upstream(upstream, OfUpstream::Statement) => match upstream.database() {
                Some(database) if database.is_file() => self.file(upstream),
                Some(database) => self.rows(upstream, database, number),
                None => Err(no_copy("it is no database")),
            },
            Work::Upstream(upstream, OfUpstream::Operation(base, operation)) => {
                let staging = upstream.staging().ok_or_else(|| no_copy(NO_STAGING))?;
                let request = operation.request(base, self.begun.arguments);
                let request = request.map_err(Failure::new)?;
                let first = operation.request(staging, self.begun.arguments);
                let first = first.map_err(Failure::new)?;
                self.request(upstream, request, first)
            }
            Work::Upstream(_, OfUpstream::Mcp { .. }) => Err(no_copy(NO_MCP)),
        }
    }

    fn command(&self, command: &Command, directory: &Path) -> Result<Came, Failure> {
        if self.begun.tool.life == SandboxLife::Session {
            let why = "its sandbox lives for the session: `shadow = true` in its table ends that";
            return Err(no_copy(why));
        }
        let sandbox = self.copy()?;
        let program = self.begun.program(command, directory)?;
        let ran = crate::exec::run(&sandbox, &program, None)?;
        let called = Answer::of(self.begun.tool, self.begun.number(), &ran, program.timeout);
        self.files(&sandbox, called)
    }

    /// Has a statement carried out on a database that is a file in the layer.
    fn file(&self, upstream: &Arc<Upstream>) -> Result<Came, Failure> {
        let sandbox = Arc::new(self.copy()?);
        let connection = Connection::start(Arc::clone(&sandbox), upstream, &self.begun.id, None)?;
        let none = Map::new();
        let arguments = self.begun.arguments.as_object().unwrap_or(&none);
        let result = connection.call(&self.begun.calling(database::TOOL, arguments));
        drop(connection);
        let called =
            Answer::of_upstream(self.begun.tool, self.begun.number(), sandbox.run(), result);
        self.files(&sandbox, called)
    }

    /// Makes a sandbox that nothing leaves but by its layer.
    fn copy(&self) -> Result<Sandbox, Failure> {
        let sandbox = self
            .session
            .runner
            .copy(&self.begun.tool.requested, &self.begun.id)?;
        match shadow::refuse_unheld(&sandbox) {
            Ok(()) => Ok(sandbox),
            Err(failure) => {
                // Nothing ran in it.
                let _ = self.session.engine.finish(&sandbox);
                Err(failure)
            }
        }
    }

    /// Reads what a call has changed in the layer of its sandbox.
    fn files(&self, sandbox: &Sandbox, called: Called<Answer>) -> Result<Came, Failure> {
        let changes =
            shadow::changes_of(&self.session.engine, sandbox, self.begun.tool.name.as_str())?;
        if called.end != ToolEnd::Done {
            changes.discard(&self.session.engine)?;
            return Ok(Came::Failed(Box::new(called)));
        }
        Ok(Came::Through(Box::new(Ran {
            called,
            change: ChangeSet::of_files(&changes),
            effect: Effect::Files(Box::new(changes)),
        })))
    }

    /// Has a statement carried out on a copy of its database.
    fn rows(
        &self,
        upstream: &Arc<Upstream>,
        database: &Database,
        number: usize,
    ) -> Result<Came, Failure> {
        let Copied { target, role } = database.copied().ok_or_else(|| no_copy(NO_COPY))?;
        let statement = self
            .begun
            .arguments
            .get("statement")
            .and_then(Value::as_str);
        let judged = database.rules.judge(statement.unwrap_or_default());
        let judged = judged.map_err(Failure::new)?;
        // By its rules it is decided.
        let (sandbox, _) = self.session.runner.upstream(upstream, &self.begun.id)?;
        let archives = self.session.engine.state().join(ARCHIVES);
        let archive = archives.join(format!("{}-{}", self.begun.id.run, self.begun.number()));
        std::fs::create_dir_all(&archive).doing("there is no room for a copy")?;
        let statement = Statement {
            text: &judged.text,
            returns_rows: judged.returns_rows,
            role,
            timeout: self.begun.timeout,
        };
        let name = copy_name(self.begun, number);
        let changed = shadow_statement(target, statement, &name, &archive);
        let _ = std::fs::remove_dir_all(&archive);
        let changed = match changed {
            Ok(changed) => changed,
            Err(error) => {
                let failure = Failure::new("the statement cannot be shadowed").because(error);
                let called = Answer::of_failure(self.begun.number(), &failure);
                return Ok(Came::Failed(Box::new(called)));
            }
        };
        let result = database.result(&changed);
        let given = Given {
            sent: Some(judged.text),
            structured: Some(result.clone()),
            ..Given::of(vec![Block::text(result.to_string())])
        };
        let run = sandbox.run();
        let tool = self.begun.tool;
        let called = Answer::of_upstream(tool, self.begun.number(), run, Ok(given));
        if called.end != ToolEnd::Done {
            return Ok(Came::Failed(Box::new(called)));
        }
        let (tool, of) = (tool.name.as_str(), target.database.clone());
        let change = ChangeSet::of_rows(tool, &upstream.name, &of, &changed.changes);
        Ok(Came::Through(Box::new(Ran {
            called,
            change,
            effect: Effect::Rows(sandbox, changed.changes),
        })))
    }

    /// Sends a request to staging: the same, but for the address that its path is below.
    fn request(
        &self,
        upstream: &Arc<Upstream>,
        request: HttpRequest,
        first: HttpRequest,
    ) -> Result<Came, Failure> {
        let Work::Upstream(_, OfUpstream::Operation(_, operation)) = &self.begun.tool.work else {
            return Err(no_copy(NO_STAGING));
        };
        let sent = self.send(upstream, &operation.id, &first)?;
        let status = match &sent {
            Ok(given) => given.status.filter(|status| (200..300).contains(status)),
            Err(_) => None,
        };
        let run = self
            .session
            .runner
            .upstream(upstream, &self.begun.id)?
            .0
            .run()
            .clone();
        let called = Answer::of_upstream(self.begun.tool, self.begun.number(), &run, sent);
        let Some(status) = status else {
            return Ok(Came::Failed(Box::new(called)));
        };
        let (tool, upstream) = (self.begun.tool.name.as_str(), &upstream.name);
        let change = ChangeSet::of_request(tool, upstream, &operation.id, &request, status);
        Ok(Came::Through(Box::new(Ran {
            called,
            change,
            effect: Effect::Request(Box::new(request)),
        })))
    }

    fn send(
        &self,
        upstream: &Arc<Upstream>,
        operation: &str,
        request: &HttpRequest,
    ) -> Result<Result<Given, NoResult>, Failure> {
        let request = json!(request);
        let none = Map::new();
        let arguments = request.as_object().unwrap_or(&none);
        let connection = self.session.connection(upstream, &self.begun.id)?;
        connection.offered().doing("the upstream cannot be used")?;
        Ok(connection.call(&self.begun.calling(operation, arguments)))
    }

    /// Removes a shadow run that is not applied.
    fn discard(&self, ran: Ran) -> Result<(), Failure> {
        match ran.effect {
            Effect::Files(changes) => changes.discard(&self.session.engine),
            Effect::Rows(..) | Effect::Request(_) => Ok(()),
        }
    }

    /// Returns an answer without a result.
    fn without(&self) -> Called<Answer> {
        Answer::of_failure(self.begun.number(), &Failure::new(""))
    }
}

const NO_MCP: &str = "an MCP server has no copy of what it changes";
const NO_STAGING: &str = "its upstream names no `staging`";
const NO_COPY: &str = "its database names no `copy`";

fn no_copy(why: &str) -> Failure {
    Failure::new("there is no copy to run it on first")
        .because(why)
        .of_kind(Kind::Denied)
}

/// Returns what a failure before an apply means.
fn end_of(failure: &Failure) -> ShadowEnd {
    let why = match &failure.why {
        Some(why) => format!("{}: {why}", failure.what),
        None => failure.what.clone(),
    };
    match failure.kind {
        Kind::Denied => ShadowEnd::Denied(why),
        Kind::Failed | Kind::Unproven => ShadowEnd::Dropped(why),
    }
}

/// Returns a name that no other copy has.
fn copy_name(begun: &Begun<'_>, number: usize) -> String {
    let whole = format!("{} {} {number}", begun.id.run, begun.number());
    let digest = crate::shadow::digest(&json!(whole));
    let digits = digest.chars().skip("sha256:".len()).take(20);
    format!("s{}", digits.collect::<String>())
}
