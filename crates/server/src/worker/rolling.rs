//! Sandboxes that go back to a snapshot.

use std::sync::Arc;
use std::time::SystemTime;

use atoll_engine::sandboxes::remove_home;
use tokio::task::spawn_blocking;

use super::answers::fault;
use super::answers::name;
use super::answers::refusal;
use super::begun::begun_of;
use super::begun::changes_beside;
use super::caller::Caller;
use super::identity::Identity;
use super::lifecycle::{Reason, Transition};
use super::living::Living;
use super::sandboxes::Sandboxes;
use crate::protocol::{CreateAsk, Kind, Refusal};

impl Sandboxes {
    /// Ends the programs of a sandbox, which goes on with the files of a snapshot: with its id, its
    /// tokens, sizes and network, until its time.
    pub(super) async fn roll_back(
        self: &Arc<Self>,
        living: &Arc<Living>,
        caller: &Caller,
        named: &str,
    ) -> Result<Arc<Living>, Refusal> {
        let snapshot = self.catalogue.snapshot_named(&living.spec.tenant, named)?;
        if snapshot.shipped != living.spec.shipped {
            let what = format!("the snapshot {named} is of another template");
            return Err(Refusal::new(Kind::Invalid, what)
                .advise("make a sandbox from it: the snapshot is its template"));
        }
        self.server.can_make(caller)?;
        let hold = self.layers.hold_layers();
        let begun = begun_of(&snapshot)?;
        hold.add_all(begun.all())?;
        let template = self.catalogue.template_of(&living.spec.shipped)?;
        let left = living.ends.borrow().duration_since(SystemTime::now());
        let ask = CreateAsk {
            timeout_s: Some(left.unwrap_or_default().as_secs().max(1)),
            ..self.record_ask(living)
        };
        let identity = Identity {
            id: living.spec.id.clone(),
            token: living.spec.token.clone(),
            port_token: living.spec.port_token.clone(),
            shipped: living.spec.shipped.clone(),
            reach: None,
            is_build: false,
            template,
            begun,
            tool: None,
            is_kept: false,
        };
        self.end_for(living).await?;
        let maker = Some(living.spec.caller.clone());
        let again = self.create_as(caller, maker, ask, identity).await;
        again.inspect_err(|_| {
            self.webhooks
                .note_killed(living, "it could not go back to a snapshot")
        })
    }

    /// Ends a sandbox that goes on as another one of its id.
    async fn end_for(self: &Arc<Self>, living: &Arc<Living>) -> Result<(), Refusal> {
        let left = self.layers.kept(&format!("gone{}", name(20)?));
        self.layers.make_kept_homes()?;
        let begun = living.life.pass(Transition::Pause { memory: false });
        begun.map_err(|state| {
            let what = format!("sandbox {} is ending: {state}", living.spec.id);
            Refusal::new(Kind::NoSandbox, what)
        })?;
        // What it had is out of the way at once, and removed while others go on.
        let (of, home) = (Arc::clone(living), left.clone());
        let killed = spawn_blocking(move || of.sandbox.kill_leaving(&home, &changes_beside(&home)));
        let killed = killed.await;
        let _ = std::thread::Builder::new()
            .spawn(move || remove_home(&left).and(remove_home(&changes_beside(&left))));
        let killed = killed.map_err(|error| fault(&error));
        let killed = killed.and_then(|done| done.map_err(|failure| refusal(&failure)));
        if killed.is_err() {
            self.abandon(living, Reason::RolledBack).await;
        }
        killed?;
        self.list.remove_living(&living.spec.id);
        let _ = living.life.pass(Transition::Abandon(Reason::RolledBack));
        self.idempotency.end_requests(living);
        self.layers
            .release_layers(living.spec.begun.all().cloned().collect());
        Ok(())
    }
}
