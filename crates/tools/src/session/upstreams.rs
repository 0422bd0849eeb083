//! The upstreams of a session.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use atoll_engine::failure::{Doing, Failure};
use atoll_engine::tools::Called;
use atoll_model::CallId;
use serde_json::{Map, json};

use super::{Begun, Session, locked};
use crate::answer::Answer;
use crate::database;
use crate::runner::Runner;
use crate::tool::OfUpstream;
use crate::upstream::Upstream;
use crate::upstream::connection::Connection;
use crate::upstream::frames::Offered;

impl<R: Runner> Session<R> {
    /// Calls a tool of an upstream: one of an MCP server only if that offers it just as it was
    /// approved.
    pub(super) fn call_upstream(
        &self,
        begun: &Begun<'_>,
        upstream: &Arc<Upstream>,
        of: &OfUpstream,
    ) -> Result<Called<Answer>, Failure> {
        let none = Map::new();
        let mut arguments = begun.arguments.as_object().unwrap_or(&none);
        let request;
        let name = match of {
            OfUpstream::Mcp(name, _) => name,
            OfUpstream::Statement => database::TOOL,
            OfUpstream::Operation(base, operation) => {
                let wanted = operation.request(base, begun.arguments);
                request = json!(wanted.map_err(Failure::new)?);
                arguments = request.as_object().unwrap_or(&none);
                &operation.id
            }
        };
        let connection = self.connection(upstream, &begun.id)?;
        let offered = connection.offered();
        let offered = offered.doing("the upstream cannot be used")?;
        if let OfUpstream::Mcp(name, pins) = of
            && !pins.holds(name, &offered)
        {
            return Ok(Answer::held(
                begun.number(),
                &upstream.name,
                connection.run(),
            ));
        }
        let result = connection.call(name, arguments, begun.timeout, begun.cancel);
        let run = connection.run();
        Ok(Answer::of_upstream(begun.tool, begun.number(), run, result))
    }

    /// Returns the session's connection with an upstream, made by the first call, and again where it
    /// is gone.
    fn connection(
        &self,
        upstream: &Arc<Upstream>,
        parent: &CallId,
    ) -> Result<Arc<Connection>, Failure> {
        let slot = {
            let mut all = locked(&self.connections);
            Arc::clone(all.entry(upstream.name.clone()).or_default())
        };
        // Others begin at the same time.
        let mut slot = locked(&slot);
        let is_good = |one: &&Arc<Connection>| !one.is_gone() && one.is_of(upstream);
        if let Some(connection) = slot.as_ref().filter(is_good) {
            return Ok(Arc::clone(connection));
        }
        *slot = None;
        let (sandbox, served) = self.runner.upstream(upstream, parent)?;
        let started = Connection::start(sandbox, upstream, parent, served);
        let connection = Arc::new(started?);
        *slot = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// Returns the tools that an upstream offers, as it says now.
    ///
    /// # Errors
    /// When it cannot be started, or does not speak MCP.
    pub fn offered(&self, upstream: &Arc<Upstream>) -> Result<Vec<Offered>, Failure> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let id = CallId {
            run: self.id.clone(),
            exec: None,
            tool: Some(number),
        };
        let offered = self.connection(upstream, &id)?.offered();
        offered.doing("the upstream cannot be used")
    }
}
