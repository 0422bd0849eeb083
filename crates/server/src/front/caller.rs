//! Callers, and sandboxes as one caller reaches them: every dialect asks the worker by these.

use std::sync::Arc;

use super::ask::{Front, Line, within};
use super::exec::{Ran, collect};
use crate::protocol::{
    Ask, Credential, End, InAsk, Refusal, Request, Start, StartAsk, StartedFacts,
};

/// A sender of requests, by the credential that came with them.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) front: Arc<Front>,
    pub(crate) credential: Credential,
}

/// A sandbox, for one caller.
#[derive(Clone)]
pub(crate) struct Sandbox {
    pub(crate) caller: Caller,
    pub(crate) id: String,
}

impl Caller {
    pub(crate) fn new(front: &Arc<Front>, credential: Credential) -> Self {
        Self {
            front: Arc::clone(front),
            credential,
        }
    }

    /// Returns a sandbox, which may not be there.
    pub(crate) fn sandbox(&self, id: &str) -> Sandbox {
        Sandbox {
            caller: self.clone(),
            id: id.to_owned(),
        }
    }

    /// Begins a request.
    pub(crate) async fn begin<R: Request<Of: Into<Ask>>>(
        &self,
        ask: R,
    ) -> Result<Line<R::Reply, R::Then>, Refusal> {
        self.begin_once(None, ask).await
    }

    /// Begins a request that is carried out once, however often it comes with this name.
    pub(crate) async fn begin_once<R: Request<Of: Into<Ask>>>(
        &self,
        once: Option<String>,
        ask: R,
    ) -> Result<Line<R::Reply, R::Then>, Refusal> {
        let credential = self.credential.clone();
        self.front.begin(credential, once, ask).await
    }

    /// Makes a request that has one answer.
    pub(crate) async fn call<R: Request<Of: Into<Ask>>>(
        &self,
        ask: R,
    ) -> Result<R::Reply, Refusal> {
        self.begin(ask).await?.reply().await
    }
}

impl Sandbox {
    /// Begins a request of it.
    pub(crate) async fn begin<R: Request<Of: Into<InAsk>>>(
        &self,
        ask: R,
    ) -> Result<Line<R::Reply, R::Then>, Refusal> {
        self.caller.begin(within(&self.id, ask)).await
    }

    /// Makes a request of it that has one answer.
    pub(crate) async fn call<R: Request<Of: Into<InAsk>>>(
        &self,
        ask: R,
    ) -> Result<R::Reply, Refusal> {
        self.begin(ask).await?.reply().await
    }

    /// Starts an exec; returns what follows it, and the number of its process.
    pub(crate) async fn start(
        &self,
        ask: StartAsk,
    ) -> Result<(Line<StartedFacts, End>, u32), Refusal> {
        let mut line = self.begin(Start(Box::new(ask))).await?;
        let pid = line.reply().await?.pid;
        Ok((line, pid))
    }

    /// Runs an exec to its end, and keeps so much of each output.
    pub(crate) async fn run(&self, ask: StartAsk, bytes_max: usize) -> Result<Ran, Refusal> {
        let (line, _) = self.start(ask).await?;
        collect(line, bytes_max).await
    }
}
