//! The layers that sandboxes begin with: homes, and root's changes of systems, that nothing writes to
//! any more. They are held while somebody has them, as those of templates are.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use atoll_engine::sandboxes::{KeptHome, MadeAt, UPPER, remove_home};
use atoll_store::home_name;

use super::answers::fault;
use super::answers::refusal;
use super::begun::Begun;
use super::begun::changes_beside;
use super::catalogue::Catalogue;
use super::holding::Hold;
use super::list::List;
use super::living::Living;
use super::paused::{Paused, Record};
use super::server::Server;
use crate::protocol::{Filed, Kind, Refusal};

/// The homes that are kept, in the state directory.
pub(super) const HOMES: &str = "served/homes";
/// The most layers of a home; one more, and they are made one by a copy.
pub(super) const DEPTH_MAX: usize = 8;
/// The most layers of root's changes, besides those of the template.
const CHANGED_MAX: usize = 3;

/// The most layers of a system that are mounted upon each other.
const MOUNTED_MAX: usize = 11;

/// The layers of a sandbox as they are at one moment, and the way they were made.
pub(super) struct Frozen {
    pub(super) begun: Begun,
    pub(super) filed: Filed,
}

/// The layers of a server, and the homes of its paused sandboxes.
pub(super) struct Layers {
    pub(super) server: Arc<Server>,
    pub(super) list: Arc<List>,
    pub(super) catalogue: Arc<Catalogue>,
    /// The uses of each.
    pub(super) held: super::holding::Held,
}

impl Layers {
    pub(super) fn new(server: &Arc<Server>, list: &Arc<List>) -> Arc<Self> {
        Arc::new(Self {
            server: Arc::clone(server),
            list: Arc::clone(list),
            catalogue: Arc::new(Catalogue {
                server: Arc::clone(server),
            }),
            held: super::holding::Held::default(),
        })
    }

    pub(super) fn paths<'a>(&self, layers: impl IntoIterator<Item = &'a String>) -> Vec<PathBuf> {
        layers.into_iter().map(|id| self.layer(id)).collect()
    }

    /// Makes the directory of homes that are kept.
    pub(super) fn make_kept_homes(&self) -> Result<(), Refusal> {
        fs::create_dir_all(self.kept_homes()).map_err(|error| fault(&error))
    }

    /// Returns the layers that sandboxes which are paused, and snapshots, begin with.
    pub(super) fn begun_with(&self) -> Result<BTreeSet<String>, Refusal> {
        let snapshots = self
            .server
            .store
            .snapshots()
            .map_err(|error| fault(&error))?;
        let mut all = BTreeSet::new();
        for one in snapshots.iter().filter(|one| !one.layers.is_empty()) {
            // Of one that cannot be read it is not known which they are.
            let begun: Begun = serde_json::from_str(&one.layers).map_err(|error| fault(&error))?;
            all.extend(begun.all().cloned());
        }
        for one in self.server.store.paused().map_err(|error| fault(&error))? {
            let record = serde_json::from_str::<Record>(&one.record);
            all.extend(record.map_err(|error| fault(&error))?.begun.all().cloned());
        }
        for one in self.list.all_paused() {
            all.extend(one.begun().all().cloned());
        }
        Ok(all)
    }

    /// Removes those of these layers that nobody has any more; nobody waits for that.
    pub(super) fn release_layers(self: &Arc<Self>, layers: Vec<String>) {
        if !layers.is_empty() {
            let own = Arc::clone(self);
            // What is left of them is removed at the next start.
            let remove = move || own.drop_files(layers.into_iter());
            let _ = std::thread::Builder::new().spawn(remove);
        }
    }

    /// Returns where the home of a sandbox is made, and root's changes of its system: where they are
    /// kept while it is paused.
    pub(super) fn made_at(&self, id: &str) -> Result<Option<MadeAt>, Refusal> {
        self.make_kept_homes()?;
        Ok(Some(MadeAt {
            home: self.kept(id),
            system: self.kept_changes(id),
        }))
    }

    /// Returns the home that a sandbox begins with; on an ordinary user's server, a copy of its own.
    pub(super) fn begin_home(
        &self,
        id: &str,
        begun: &Begun,
        is_kept: bool,
    ) -> Result<Option<KeptHome>, Refusal> {
        let is_fresh = !is_kept && begun.home.is_empty();
        if is_fresh {
            return Ok(None);
        }
        self.make_kept_homes()?;
        let mut home = KeptHome {
            path: self.kept(id),
            base: begun.base,
            layers: self.paths(&begun.home),
        };
        if begun.base.is_none() {
            let from = std::mem::take(&mut home.layers).pop();
            if let Some(path) = from.filter(|_| !is_kept) {
                let from = KeptHome {
                    path,
                    ..home.clone()
                };
                let copied = self.server.engine.copy_home(&from, &home.path);
                copied.map_err(|failure| refusal(&failure))?;
            }
        }
        Ok(Some(home))
    }

    /// Returns root's changes of a system that a sandbox begins with: a directory that it goes on in,
    /// and the layers beneath.
    pub(super) fn begin_system(
        &self,
        id: &str,
        begun: &Begun,
        is_kept: bool,
    ) -> Result<(Option<PathBuf>, Vec<PathBuf>), Refusal> {
        let own = self.kept_changes(id);
        let layers = self.paths(&begun.system);
        if begun.base.is_some() {
            return Ok((is_kept.then_some(own), layers));
        }
        if let Some(from) = layers.first().filter(|_| !is_kept) {
            let copied = self.server.engine.copy_system(from, &own);
            copied.map_err(|failure| refusal(&failure))?;
        }
        let goes_on = is_kept || !layers.is_empty();
        Ok((goes_on.then_some(own), Vec::new()))
    }

    /// Makes layers of what a living sandbox has, which stands still meanwhile: a copy of what is its
    /// own, over those that it began with.
    pub(super) fn freeze_living(
        &self,
        living: &Living,
        hold: &Arc<Hold>,
    ) -> Result<Frozen, Refusal> {
        let mut begun = living.spec.begun.clone();
        // It can end meanwhile, and nobody else may have what it began with.
        hold.add_all(begun.all())?;
        self.check_depth(&begun, &living.spec.shipped)?;
        fs::create_dir_all(self.layers()).map_err(|error| fault(&error))?;
        let (home, system) = (hold.fresh()?, hold.fresh()?);
        let (to, changes) = (self.layer(&home), self.layer(&system));
        let copied = match living.spec.rooted {
            None => living.sandbox.copy_home(&to),
            Some(_) => living.sandbox.copy_all(&to, &changes),
        };
        begun.base = copied.map_err(|failure| refusal(&failure))?.base;
        if begun.base.is_none() {
            // What it began with is a part of it.
            begun = Begun::default();
        }
        begun.home.insert(0, home);
        if living.spec.rooted.is_some() {
            begun.system.insert(0, system);
        }
        let filed = match self.flatten(&mut begun, hold)? {
            true => Filed::Flattened,
            false => Filed::Copied,
        };
        Ok(Frozen { begun, filed })
    }

    /// Makes layers of what a paused sandbox has: from then on it goes on over them. Nobody has it go
    /// on meanwhile.
    pub(super) fn freeze_paused(
        self: &Arc<Self>,
        paused: &Paused,
        hold: &Arc<Hold>,
    ) -> Result<Frozen, Refusal> {
        let (home, changes) = (self.kept(&paused.id), self.kept_changes(&paused.id));
        let mut begun = paused.begun();
        let mut filed = Filed::Shared;
        if begun.base.is_none() {
            begun = self.copy_paused(paused, hold)?;
            filed = Filed::Copied;
        } else if home.exists() {
            if begun.home.len() > DEPTH_MAX {
                let what = "its files lie in too many layers, which could not be made one";
                return Err(Refusal::new(Kind::Unavailable, what)
                    .advise("remove what is too long or too deep in it, and try again"));
            }
            let before = begun.clone();
            begun.home.insert(0, hold.fresh()?);
            if changes.exists() {
                self.check_depth(&begun, paused.shipped())?;
                begun.system.insert(0, hold.fresh()?);
            }
            // Written down first: from here on the next server comes to the same.
            self.set_begun(paused, &begun)?;
            if let Err(error) = self.move_to_layers(&paused.id, &begun) {
                let is_moved = begun.home.first().is_some_and(|to| self.layer(to).exists());
                if !is_moved {
                    self.set_begun(paused, &before)?;
                }
                return Err(fault(&error));
            }
        }
        let before = begun.home.clone();
        if begun.base.is_some() && self.flatten(&mut begun, hold)? {
            self.set_begun(paused, &begun)?;
            self.release_layers(before);
            filed = Filed::Flattened;
        }
        Ok(Frozen { begun, filed })
    }

    /// Copies what a paused sandbox has, on an ordinary user's server.
    fn copy_paused(&self, paused: &Paused, hold: &Arc<Hold>) -> Result<Begun, Refusal> {
        let mut begun = Begun::default();
        fs::create_dir_all(self.layers()).map_err(|error| fault(&error))?;
        let home = KeptHome {
            path: self.kept(&paused.id),
            base: None,
            layers: Vec::new(),
        };
        let to = hold.fresh()?;
        let copied = self.server.engine.copy_home(&home, &self.layer(&to));
        copied.map_err(|failure| refusal(&failure))?;
        begun.home.push(to);
        let changes = self.kept_changes(&paused.id);
        if changes.exists() {
            let to = hold.fresh()?;
            let copied = self.server.engine.copy_system(&changes, &self.layer(&to));
            copied.map_err(|failure| refusal(&failure))?;
            begun.system.push(to);
        }
        Ok(begun)
    }

    /// Writes down the layers that a paused sandbox begins with.
    fn set_begun(&self, paused: &Paused, begun: &Begun) -> Result<(), Refusal> {
        let row = paused.row_with(begun)?;
        self.server
            .store
            .pause(&row)
            .map_err(|error| fault(&error))?;
        paused.set_begun(begun);
        Ok(())
    }

    /// Refuses one layer of root's changes more than can be mounted.
    pub(super) fn check_depth(&self, begun: &Begun, shipped: &str) -> Result<(), Refusal> {
        let template = self.catalogue.template_of(shipped)?;
        let beneath = template.map_or(0, |one| one.record.layers.len());
        let most = MOUNTED_MAX.saturating_sub(beneath).min(CHANGED_MAX);
        if begun.system.len() < most {
            return Ok(());
        }
        let what =
            format!("root's changes of its system lie in {most} layers, as many as there can be");
        Err(Refusal::new(Kind::Invalid, what)
            .advise("build a template with these changes, and begin with that"))
    }

    /// Makes the layers of a home one if there are too many; returns whether it did.
    pub(super) fn flatten(&self, begun: &mut Begun, hold: &Arc<Hold>) -> Result<bool, Refusal> {
        if begun.home.len() <= DEPTH_MAX {
            return Ok(false);
        }
        let one = hold.fresh()?;
        let flat = self
            .server
            .engine
            .flatten_home(&self.paths(&begun.home), &self.layer(&one));
        flat.map_err(|failure| refusal(&failure))?;
        begun.home = vec![one];
        Ok(true)
    }

    /// Moves what a sandbox that is paused has to its topmost layers, where they are not there yet.
    /// Again and again it comes to the same: the server can end between any two steps.
    pub(super) fn move_to_layers(&self, id: &str, begun: &Begun) -> std::io::Result<()> {
        let (home, changes) = (self.kept(id), self.kept_changes(id));
        fs::create_dir_all(self.layers())?;
        let missing = |layers: &[String]| {
            let to = layers.first().map(|one| self.layer(one));
            to.filter(|to| !to.exists())
        };
        if let Some(to) = missing(&begun.home) {
            // One over layers has its files in a directory of that.
            match begun.home.len() {
                1 => move_home(&home, &to)?,
                _ => move_home(&home.join(UPPER), &to)?,
            }
            let _ = remove_home(&home);
        }
        match missing(&begun.system) {
            Some(to) => fs::rename(&changes, &to),
            None => Ok(()),
        }
    }
}

/// Moves a home, whatever permissions its programs have left it.
fn move_home(home: &Path, to: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    // Its parent is another one then, which takes the right to write to it (rename(2)).
    let mode = fs::symlink_metadata(home)?.permissions().mode();
    fs::set_permissions(home, fs::Permissions::from_mode(mode | 0o700))?;
    fs::rename(home, to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))
}

impl Layers {
    /// Returns the directory of a home that is kept.
    pub(super) fn kept(&self, id: &str) -> PathBuf {
        self.kept_homes().join(home_name(id))
    }

    /// Returns the directory of root's changes of a system that are kept.
    pub(super) fn kept_changes(&self, id: &str) -> PathBuf {
        changes_beside(&self.kept(id))
    }

    /// Removes what a sandbox that is gone has begun with, where something of it is left.
    pub(super) fn drop_kept(&self, id: &str) {
        let (home, changes) = (self.kept(id), self.kept_changes(id));
        if home.exists() || changes.exists() {
            // What is left of them is removed at the next start.
            let remove = move || remove_home(&home).and(remove_home(&changes));
            let _ = std::thread::Builder::new().spawn(remove);
        }
    }

    pub(super) fn kept_homes(&self) -> PathBuf {
        self.server.engine.state().join(HOMES)
    }

    pub(super) fn forget_paused(&self, id: &str) {
        if let Err(error) = self.server.store.unpause(id) {
            eprintln!("atoll serve: {error}");
        }
    }
}
