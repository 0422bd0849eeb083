//! The upstreams of a session.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use atoll_engine::failure::{Doing, Failure};
use atoll_engine::tools::Called;
use atoll_model::CallId;
use serde_json::{Map, Value, json};

use super::listing::{ChangedLists, Listing, Seen};
use super::typed::uri_of;
use super::{Begun, Session, Slot, locked};
use crate::answer::Answer;
use crate::block::Block;
use crate::database;
use crate::runner::Runner;
use crate::tool::{OfUpstream, Tool, Work};
use crate::upstream::Upstream;
use crate::upstream::calls::Calling;
use crate::upstream::connection::Connection;
use crate::upstream::frames::{Askable, Asks, Form, Given, Offered};
use crate::upstream::pins::Pins;

/// Returns whether what is called is offered just as it was approved.
fn is_as_approved(pins: &Pins, form: Form, name: &str, offered: &[Offered]) -> bool {
    match form {
        Form::Resource | Form::Template => {
            let pinned = pins.resource(name);
            pinned.is_some_and(|one| pins.holds(one.form, &one.name, offered))
        }
        Form::Tool | Form::Prompt => pins.holds(form, name, offered),
    }
}

impl Begun<'_> {
    /// Returns the call of its upstream, without answers.
    pub(super) fn calling<'c>(
        &'c self,
        name: &'c str,
        arguments: &'c Map<String, Value>,
    ) -> Calling<'c> {
        Calling {
            form: Form::Tool,
            name,
            arguments,
            answers: None,
            askable: self.askable,
            pii: self.tool.filter.pii,
            timeout: self.timeout,
            cancel: self.cancel,
            // Nobody can tell what of it would be hidden.
            listener: self.listener.filter(|_| !self.tool.filter.hides()),
        }
    }
}

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
        let (form, name) = match of {
            OfUpstream::Mcp {
                form: Form::Resource,
                ..
            } => (Form::Resource, uri_of(begun.arguments)),
            OfUpstream::Mcp { form, name, .. } => (*form, &**name),
            OfUpstream::Statement => (Form::Tool, database::TOOL),
            OfUpstream::Operation(base, operation) => {
                let wanted = operation.request(base, begun.arguments);
                request = json!(wanted.map_err(Failure::new)?);
                arguments = request.as_object().unwrap_or(&none);
                (Form::Tool, &*operation.id)
            }
        };
        let connection = self.connection(upstream, &begun.id)?;
        let offered = connection.offered();
        let offered = offered.doing("the upstream cannot be used")?;
        if let OfUpstream::Mcp { pins, .. } = of
            && !is_as_approved(pins, form, name, &offered)
        {
            return Ok(Answer::held(
                begun.number(),
                &upstream.name,
                connection.run(),
            ));
        }
        let answers = begun.answers.map(|answers| self.pending.take(answers));
        let mut result = connection.call(&Calling {
            form,
            answers: answers.transpose().map_err(Failure::new)?,
            ..begun.calling(name, arguments)
        });
        if let Ok(given) = &mut result {
            self.pass_questions(begun, upstream, given);
        }
        let run = connection.run();
        Ok(Answer::of_upstream(begun.tool, begun.number(), run, result))
    }

    /// Has what an upstream asks be answered by the client, if that can be, with a handle of its state.
    fn pass_questions(&self, begun: &Begun<'_>, upstream: &Upstream, given: &mut Given) {
        let Some(asks) = &mut given.asks else {
            return;
        };
        let filter = &begun.tool.filter;
        // Nobody can tell what of a question would be hidden.
        let askable = match filter.hides() {
            true => Askable::default(),
            false => begun.askable,
        };
        let bytes_max = upstream.result_bytes;
        let checked = asks.check(askable, &upstream.name, bytes_max, filter.pii);
        let kept = checked.and_then(|()| self.pending.keep(begun.tool, begun.arguments, asks));
        if let Err(why) = kept {
            let undeclared = Asks {
                undeclared: asks.undeclared,
                ..Asks::default()
            };
            *given = Given {
                is_error: true,
                asks: Some(undeclared),
                ..Given::of(vec![Block::text(why)])
            };
        }
    }

    /// Returns the session's connection with an upstream, made by the first call, and again where it
    /// is gone.
    pub(super) fn connection(
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

    /// Lists what the caller may call of a form. What an upstream does not offer as it was approved,
    /// as far as that is known, is left out.
    pub fn listing(&self, form: Form) -> Vec<Listing> {
        let of_form = self.tools().into_iter().filter(|tool| tool.form() == form);
        let listing = |tool: Arc<Tool>| {
            let upstream = match &tool.work {
                Work::Upstream(upstream, _) => Some(upstream),
                Work::Command(_) => None,
            };
            let known = upstream.and_then(|one| self.known(one)?.known());
            let offers = tool.listed(known.as_deref())?;
            Some(Listing { tool, offers })
        };
        of_form.filter_map(listing).collect()
    }

    /// Returns the connection with an upstream, if there is one by now.
    fn known(&self, upstream: &Upstream) -> Option<Arc<Connection>> {
        let slot = locked(&self.connections).get(&upstream.name).cloned();
        let connection = slot?.try_lock().ok()?.clone();
        connection.filter(|one| !one.is_gone() && one.is_of(upstream))
    }

    /// Returns which lists are other than they were when `seen` was set, and sets it.
    pub fn changed_lists(&self, seen: &mut Option<Seen>) -> ChangedLists {
        let registry = self.registry();
        let connections: Vec<Slot> = locked(&self.connections).values().cloned().collect();
        let offers = connections.iter().filter_map(|slot| {
            let connection = slot.try_lock().ok()?.clone()?;
            Some(connection.offers())
        });
        let offers = offers.sum();
        if let Some(seen) = seen
            && Arc::ptr_eq(&seen.registry, &registry)
            && seen.offers == offers
        {
            return ChangedLists::default();
        }
        let lists = [Form::Tool, Form::Prompt, Form::Resource].map(|form| {
            let mut hasher = DefaultHasher::new();
            for Listing { tool, offers } in self.listing(form) {
                let arguments = tool.arguments.value();
                let text = json!([tool.name.as_str(), tool.description, arguments, offers]);
                text.to_string().hash(&mut hasher);
            }
            hasher.finish()
        });
        let before = seen.as_ref().map_or(lists, |seen| seen.lists);
        let changed = |at: usize| lists.get(at) != before.get(at);
        *seen = Some(Seen {
            registry,
            offers,
            lists,
        });
        ChangedLists {
            tools: changed(0),
            prompts: changed(1),
            resources: changed(2),
        }
    }

    /// Returns what an upstream offers, as it says now.
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
