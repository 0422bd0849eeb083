//! Sandboxes that begin with a template that was built.

use std::sync::Arc;
use std::time::Duration;

use atoll_model::ServedExec;

use super::caller::Caller;
use super::identity::Identity;
use super::living::Living;
use super::sandboxes::Sandboxes;
use super::template::Record;
use super::template::Template;
use crate::protocol::{CreateAsk, Refusal, StartAsk, TEMPLATES};

/// The longest time that a create waits for the program of its template.
const READY_WITHIN: Duration = Duration::from_secs(20);

impl Sandboxes {
    /// Returns the template that was built which a request names.
    pub(in crate::worker) fn built(
        &self,
        tenant: &str,
        ask: &CreateAsk,
    ) -> Result<Option<Template>, Refusal> {
        match TEMPLATES.contains(&ask.template.as_str()) {
            true => Ok(None),
            false => self.catalogue.template_named(tenant, &ask.template),
        }
    }

    /// Makes a sandbox from a template that was built.
    pub(in crate::worker) async fn create_from(
        self: &Arc<Self>,
        caller: &Caller,
        ask: CreateAsk,
        template: Template,
    ) -> Result<Arc<Living>, Refusal> {
        let begun = template.record.begun();
        let ask = CreateAsk {
            cpus: ask.cpus.or(template.record.cpus),
            memory_mib: ask.memory_mib.or(template.record.memory_mib),
            ..ask
        };
        let shipped = template.id.clone();
        let identity = Identity::new(&ask, shipped, begun)?.on(Some(template));
        self.create_as(caller, None, ask, identity).await
    }

    /// Starts the program that each sandbox of a template begins with, and waits until it is ready,
    /// for so long: a caller can look why it is not.
    pub(in crate::worker) async fn begin_program(
        self: &Arc<Self>,
        living: &Arc<Living>,
        record: &Record,
        caller: &Caller,
    ) {
        let Some(start) = &record.start else { return };
        let ask = |command: &String| StartAsk {
            command: ["/bin/sh", "-c", command].map(str::to_owned).to_vec(),
            ..StartAsk::default()
        };
        let by = ServedExec {
            caller: Some(caller.name.clone()),
            trace: caller.trace.clone(),
            ..ServedExec::default()
        };
        // Nobody reads it here: it is not held up by that.
        let started = self.programs.start(living, ask(start), by.clone()).await;
        let started = started.map(|(process, _)| process);
        if let (Ok(_), Some(ready)) = (started, &record.ready) {
            let ready = ask(ready);
            let _ = self
                .programs
                .wait_ready(living, &ready, &by, READY_WITHIN)
                .await;
        }
    }
}
