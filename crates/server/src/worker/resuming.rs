//! Paused sandboxes that go on, or end.

use std::sync::Arc;

use atoll_engine::sandboxes::{Sandbox, remove_home};
use atoll_model::ServedExec;
use serde_json::json;
use tokio::task::spawn_blocking;

use super::answers::fault;
use super::answers::refusal;
use super::answers::unanswered;
use super::caller::Caller;
use super::identity::Identity;
use super::lifecycle::{Reason, Transition};
use super::living::Living;
use super::paused::Paused;
use super::paused::Resuming;
use super::sandboxes::Sandboxes;
use super::sizes::Sizes;
use crate::protocol::{CreateAsk, Kind, Refusal};

impl Sandboxes {
    /// Has a paused sandbox go on where its processes stand still; `None` if these are gone. Nothing
    /// else happens to it meanwhile.
    pub(super) async fn awaken(
        self: &Arc<Self>,
        paused: &Arc<Paused>,
        caller: &Caller,
        timeout_s: Option<u64>,
    ) -> Result<Option<Arc<Living>>, Refusal> {
        let Some(living) = paused.sleeper() else {
            return Ok(None);
        };
        self.server.can_make(caller)?;
        let life = self.server.life(timeout_s.or(living.spec.ask.timeout_s))?;
        let _making = self.admit(&paused.tenant, Sizes::of_living(&living))?;
        if !self.memory.has_held(paused).await {
            // Some of it is gone, or has gone on by itself: its files are what is kept.
            return match self.memory.end_asleep(paused, Sandbox::end_still).await {
                true => Ok(None),
                false => Err(unanswered()),
            };
        }
        let Some(asleep) = paused.asleep().take() else {
            return Ok(None);
        };
        let by = ServedExec {
            caller: Some(caller.name.clone()),
            trace: caller.trace.clone(),
            ..ServedExec::default()
        };
        let of = Arc::clone(&living);
        let goes_on = spawn_blocking(move || of.sandbox.go_on(&by)).await;
        let goes_on = goes_on.map_err(|error| fault(&error));
        let goes_on = goes_on.and_then(|done| done.map_err(|failure| refusal(&failure)));
        if let Err(refusal) = goes_on {
            *paused.asleep() = Some(asleep);
            return Err(refusal);
        }
        if living.life.pass(Transition::Continue).is_err() {
            // It has ended meanwhile; its files were kept.
            self.volumes.release(&paused.id);
            return Ok(None);
        }
        living.sandbox.stay_no_more();
        living.live_for(life, false);
        drop(asleep);
        self.list.put_living(&living);
        self.take_on(&living, true);
        Ok(Some(living))
    }

    /// Has a paused sandbox go on; whoever comes meanwhile gets the same one.
    pub(super) async fn resume(
        self: &Arc<Self>,
        paused: &Arc<Paused>,
        caller: &Caller,
        timeout_s: Option<u64>,
    ) -> Result<Arc<Living>, Refusal> {
        let _turn = paused.turn.lock().await;
        let Some(_resuming) = Resuming::begin(paused) else {
            let ended = || {
                let what = format!("there is no sandbox {} any more", paused.id);
                Refusal::new(Kind::NoSandbox, what)
            };
            return self.list.living(&paused.id).ok_or_else(ended);
        };
        if let Some(living) = self.awaken(paused, caller, timeout_s).await? {
            self.list.remove_paused(&paused.id);
            self.layers.forget_paused(&paused.id);
            return Ok(living);
        }
        let record = paused.record.clone();
        let ask = CreateAsk {
            timeout_s: timeout_s.or(record.ask.timeout_s),
            ..record.ask
        };
        let identity = Identity {
            id: paused.id.clone(),
            token: record.token,
            port_token: record.port_token,
            template: self.catalogue.template_of(&record.shipped)?,
            reach: None,
            is_build: false,
            shipped: record.shipped,
            begun: paused.begun(),
            tool: None,
            is_kept: true,
        };
        // Who wakes one does not become its maker.
        let maker = record.caller;
        let made = self.create_as(caller, Some(maker), ask, identity).await;
        let living = made.map_err(|refusal| paused.kept_by(refusal))?;
        // It is answered for before its tree is made: what is kept is, until it is there.
        living.files.stat("/").await?;
        let _ = paused.life.pass(Transition::Abandon(Reason::Resumed));
        self.list.remove_paused(&paused.id);
        self.layers.forget_paused(&paused.id);
        Ok(living)
    }

    /// Ends a paused sandbox, for this reason: its home is removed.
    pub(super) async fn end_paused(
        self: &Arc<Self>,
        paused: &Arc<Paused>,
        why: &str,
    ) -> Result<(), Refusal> {
        let _turn = paused.stays().await?;
        if paused.is_asleep() && !self.memory.end_asleep(paused, Sandbox::kill).await {
            let what = format!("sandbox {} cannot be ended now", paused.id);
            return Err(Refusal::new(Kind::Unavailable, what).advise("end it again"));
        }
        let _ = paused.life.pass(Transition::Abandon(Reason::Caller));
        self.list.remove_paused(&paused.id);
        self.layers.forget_paused(&paused.id);
        let facts = json!({ "why": why });
        self.webhooks
            .note(&paused.tenant, &paused.id, "killed", &facts);
        let (home, changes) = (
            self.layers.kept(&paused.id),
            self.layers.kept_changes(&paused.id),
        );
        // One that cannot be removed now is at the next start.
        let removed = spawn_blocking(move || remove_home(&home).and(remove_home(&changes)));
        let _ = removed.await;
        self.layers
            .release_layers(paused.begun().all().cloned().collect());
        Ok(())
    }
}
