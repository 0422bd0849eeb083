//! The sandboxes that tools run in.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use atoll_engine::failure::Failure;
use atoll_engine::sandboxes::{
    CreateSandbox, Engine, Outputs, PriorAnswer, Requested, Sandbox, Workspace,
};
use atoll_engine::supervision::keep_variables;
use atoll_model::{CallId, RunId, ServedExec, ToolEffect};

use crate::exec::{Program, Ran, run};
use crate::tool::{SandboxLife, Tool};
use crate::upstream::Upstream;

/// The sandboxes of a session.
pub trait Runner: Send + Sync {
    /// Returns the boundary of a tool's sandbox, by whose rules its calls are decided.
    fn boundary(&self, tool: &Tool) -> CreateSandbox;

    /// Runs a program of a tool in its sandbox, to its end.
    ///
    /// # Errors
    /// When there is no sandbox, or the program is refused there.
    fn run(&self, tool: &Tool, program: &Program) -> Result<Ran, Failure>;

    /// Ends the sandboxes that live for the session.
    fn close(&self);

    /// Returns the sandbox that a call of a tool would be made in, if it is there already.
    fn sandbox_of(&self, tool: &Tool) -> Option<Arc<Sandbox>>;

    /// Makes a sandbox of its own for a shadow run, whose changes stay in a layer over the workspace.
    ///
    /// # Errors
    /// When there is none.
    fn copy(&self, requested: &Requested, parent: &CallId) -> Result<Sandbox, Failure>;

    /// Returns the sandbox of an upstream in this session, made by the first call, and whose programs
    /// are started in it.
    ///
    /// # Errors
    /// When there is none.
    fn upstream(
        &self,
        upstream: &Upstream,
        parent: &CallId,
    ) -> Result<(Arc<Sandbox>, Option<ServedExec>), Failure>;
}

/// Sandboxes over a directory of the host, in copy-on-write layers.
pub struct LocalRunner {
    engine: Engine,
    workspace: PathBuf,
    /// The session's living sandboxes, by their boundary.
    living: Mutex<BTreeMap<String, Arc<Sandbox>>>,
    /// The runs of sandboxes that have ended, and whose changes are kept.
    kept: Mutex<Vec<RunId>>,
}

impl LocalRunner {
    /// Makes it for a directory.
    #[must_use]
    pub fn new(engine: Engine, workspace: &Path) -> Self {
        keep_variables();
        Self {
            engine,
            workspace: workspace.to_owned(),
            living: Mutex::default(),
            kept: Mutex::default(),
        }
    }

    /// Ends the living sandboxes, and returns the runs whose changes are kept for review.
    pub fn end(&self) -> Vec<RunId> {
        self.close();
        std::mem::take(&mut *locked(&self.kept))
    }

    fn finish(&self, sandbox: &Sandbox) -> Result<(), Failure> {
        if self.engine.finish(sandbox)? {
            locked(&self.kept).push(sandbox.run().clone());
        }
        Ok(())
    }

    fn wanted(&self, requested: &Requested, discard: bool) -> CreateSandbox {
        over(&self.workspace, requested.clone(), discard)
    }

    fn make(&self, wanted: CreateSandbox, parent: &CallId) -> Result<Sandbox, Failure> {
        let parent = Some(Box::new(parent.clone()));
        self.engine.create(&CreateSandbox { parent, ..wanted })
    }

    /// Returns the session's sandbox of a key, made by the first call.
    fn living(
        &self,
        key: String,
        requested: &Requested,
        parent: &CallId,
    ) -> Result<Arc<Sandbox>, Failure> {
        let mut living = locked(&self.living);
        if let Some(sandbox) = living.get(&key).filter(|one| !one.has_ended()) {
            return Ok(Arc::clone(sandbox));
        }
        let made = self.make(self.wanted(requested, false), parent)?;
        let sandbox = Arc::new(made);
        living.insert(key, Arc::clone(&sandbox));
        Ok(sandbox)
    }
}

/// Returns the request for a sandbox over a directory of the host, in copy-on-write layers.
#[must_use]
pub fn over(workspace: &Path, requested: Requested, discard: bool) -> CreateSandbox {
    CreateSandbox {
        workspace: Workspace::Directory(workspace.to_owned()),
        requested,
        discard,
        is_attended: false,
        home: None,
        made_at: None,
        template: None,
        frozen: None,
        system: None,
        answer: PriorAnswer::Nobody,
        parent: None,
        begins_with: None,
    }
}

impl Runner for LocalRunner {
    fn boundary(&self, tool: &Tool) -> CreateSandbox {
        // A session's sandbox is that of tools that write, too.
        let is_read_alone = tool.effect == ToolEffect::Read && tool.life == SandboxLife::Call;
        self.wanted(&tool.requested, is_read_alone)
    }

    fn run(&self, tool: &Tool, program: &Program) -> Result<Ran, Failure> {
        match tool.life {
            SandboxLife::Session => {
                let key = tool.sandbox_key().unwrap_or_default();
                let sandbox = self.living(key, &tool.requested, &program.parent)?;
                run(&sandbox, program, None)
            }
            SandboxLife::Call => {
                let sandbox = self.make(self.boundary(tool), &program.parent)?;
                let ran = run(&sandbox, program, None);
                // What a result is made of is there; that the sandbox is gone is part of the call.
                self.finish(&sandbox)?;
                ran
            }
        }
    }

    fn close(&self) {
        let living = std::mem::take(&mut *locked(&self.living));
        for sandbox in living.values() {
            let _ = self.finish(sandbox);
        }
    }

    fn sandbox_of(&self, tool: &Tool) -> Option<Arc<Sandbox>> {
        let living = locked(&self.living);
        let sandbox = living.get(&tool.sandbox_key()?)?;
        (!sandbox.has_ended()).then(|| Arc::clone(sandbox))
    }

    fn copy(&self, requested: &Requested, parent: &CallId) -> Result<Sandbox, Failure> {
        let requested = Requested {
            layered: true,
            // Nothing leaves it but what is decided about.
            outputs: Outputs::None,
            ..requested.clone()
        };
        self.make(self.wanted(&requested, false), parent)
    }

    fn upstream(
        &self,
        upstream: &Upstream,
        parent: &CallId,
    ) -> Result<(Arc<Sandbox>, Option<ServedExec>), Failure> {
        let key = upstream.sandbox_key();
        let sandbox = self.living(key, &upstream.requested, parent)?;
        Ok((sandbox, None))
    }
}

impl Drop for LocalRunner {
    fn drop(&mut self) {
        self.end();
    }
}

fn locked<T>(one: &Mutex<T>) -> MutexGuard<'_, T> {
    one.lock().unwrap_or_else(PoisonError::into_inner)
}
