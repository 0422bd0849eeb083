//! The end of a build: the layer and the home that its sandbox leaves.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use atoll_engine::sandboxes::{KeptHome, make_template_layer, remove_home};
use tokio::task::spawn_blocking;

use super::super::answers::fault;
use super::super::answers::refusal;
use super::super::begun::Begun;
use super::super::builds::Templates;
use super::super::holding::Hold;
use super::super::lifecycle::{Reason, Transition};
use super::super::living::Living;
use super::super::template::Record;
use crate::protocol::{Kind, Refusal};

/// A sandbox that is gone, and what it leaves.
pub(super) struct Left {
    pub(super) home: KeptHome,
    /// The directory of root's changes.
    pub(super) changes: PathBuf,
}

impl Templates {
    /// Ends a sandbox, and keeps what it leaves.
    pub(super) async fn leave(
        self: &Arc<Self>,
        living: &Arc<Living>,
        why: &'static str,
        hold: &Arc<Hold>,
    ) -> Result<Left, Refusal> {
        let left = living.life.pass(Transition::Pause { memory: false });
        left.map_err(|state| {
            let what = format!("the sandbox of the build has ended: {state}");
            Refusal::new(Kind::NoSandbox, what)
        })?;
        let (own, of, hold) = (Arc::clone(self), Arc::clone(living), Arc::clone(hold));
        let kept = spawn_blocking(move || {
            fs::create_dir_all(own.layers.layers()).map_err(|error| fault(&error))?;
            let (home, changes) = (
                own.layers.layer(&hold.fresh()?),
                own.layers.layer(&hold.fresh()?),
            );
            let home = of.sandbox.kill_keeping_all(&home, &changes);
            let home = home.map_err(|failure| refusal(&failure))?;
            Ok(Left { home, changes })
        });
        let kept: Result<Left, Refusal> = kept.await.map_err(|error| fault(&error)).flatten();
        match kept {
            Ok(left) => {
                self.list.remove_living(&living.spec.id);
                let _ = living.life.pass(Transition::Abandon(Reason::Build(why)));
                self.idempotency.forget_requests(living);
                self.webhooks.note_killed(living, why);
                Ok(left)
            }
            Err(refusal) => {
                let why = format!("it could not be kept: {}", refusal.what);
                let why = Reason::NotKept(why);
                self.sandboxes.abandon(living, why).await;
                Err(refusal)
            }
        }
    }

    /// Makes the layer of what a build leaves, and the home that sandboxes begin with.
    pub(super) async fn layer_of(
        self: &Arc<Self>,
        left: Left,
        base: &Record,
        hold: &Arc<Hold>,
    ) -> Result<Record, Refusal> {
        let (templates, base, hold) = (Arc::clone(self), base.clone(), Arc::clone(hold));
        let made = spawn_blocking(move || {
            let id = hold.fresh()?;
            let layer = templates.layers.layer(&id);
            let made = make_template_layer(&left.changes, left.home.base, &layer);
            let _ = remove_home(&left.changes);
            made.map_err(|failure| refusal(&failure))?;
            let mut layers = base.layers.clone();
            layers.insert(0, id);
            let is_empty = fs::read_dir(&left.home.path).is_ok_and(|mut all| all.next().is_none());
            if is_empty {
                let _ = remove_home(&left.home.path);
            }
            let own = left.home.path.file_name().filter(|_| !is_empty);
            let own = own.map(|name| name.to_string_lossy().into_owned());
            // On an ordinary user's server it began with a copy.
            let beneath = base.home.iter().filter(|_| left.home.base.is_some());
            let mut begun = Begun {
                home: own.into_iter().chain(beneath.cloned()).collect(),
                system: Vec::new(),
                base: left.home.base,
            };
            templates.layers.flatten(&mut begun, &hold)?;
            Ok(Record {
                layers,
                home: begun.home,
                base: begun.base,
                ..base
            })
        });
        made.await.map_err(|error| fault(&error)).flatten()
    }
}
