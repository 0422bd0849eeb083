//! Layers and homes of templates that a build or a create uses: nobody removes them meanwhile.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use atoll_engine::sandboxes::System;
use atoll_engine::sandboxes::remove_home;
use tokio::task::spawn_blocking;

use super::answers::fault;
use super::answers::name;
use super::layered::Layers;
use super::living::Living;
use super::template::FORM;
use super::template::REPLACED;
use super::template::Record;
use super::template::Template;
use crate::protocol::{Kind, Refusal};

/// The uses of each.
pub(super) type Held = Mutex<BTreeMap<String, usize>>;

/// Uses of some of them, until it is dropped. What was made by it, and is no template's then, is
/// removed.
pub(super) struct Hold {
    layers: Arc<Layers>,
    used: Mutex<Vec<Used>>,
}

struct Used {
    id: String,
    is_fresh: bool,
}

impl Layers {
    /// Removes layers and homes that no template has, as a build that did not come to its end
    /// leaves them, and what was uploaded.
    pub(super) fn find_layers(&self) {
        self.drop_old();
        let paused = self
            .server
            .store
            .paused()
            .map_or(usize::MAX, |all| all.len());
        let is_known = paused == self.list.all_paused().len();
        for one in self.catalogue.all_templates().unwrap_or_default() {
            let is_replaced = one.name.contains(REPLACED);
            if is_known && is_replaced && self.users_of(&one).is_ok_and(|users| users == 0) {
                let _ = self.server.store.remove_template(&one.id);
            }
        }
        let (all, rows) = (
            self.catalogue.all_templates(),
            self.server.store.templates(),
        );
        let (Ok(all), Ok(rows), Ok(mut had)) = (all, rows, self.begun_with()) else {
            return;
        };
        if all.len() != rows.len() || !is_known {
            // Of another version of Atoll, which has their files.
            return;
        }
        had.extend(all.iter().flat_map(Template::files));
        let there = fs::read_dir(self.layers()).into_iter().flatten().flatten();
        for one in there.filter(|one| {
            let name = one.file_name().to_string_lossy().into_owned();
            !had.contains(&name)
        }) {
            let _ = remove_home(&one.path());
        }
    }

    /// Removes templates whose layers have an earlier form.
    fn drop_old(&self) {
        for row in self.server.store.templates().unwrap_or_default() {
            let record = serde_json::from_str::<Record>(&row.record);
            if record.is_ok_and(|record| record.form < FORM) {
                let (name, id) = (&row.name, &row.id);
                eprintln!(
                    "atoll serve: template {name} ({id}) was built by an earlier version of Atoll, \
                     and is removed: build it again"
                );
                let _ = self.server.store.remove_template(id);
            }
        }
    }

    pub(super) fn hold_layers(self: &Arc<Self>) -> Arc<Hold> {
        Arc::new(Hold {
            layers: Arc::clone(self),
            used: Mutex::default(),
        })
    }

    /// Removes those of these that no template, no sandbox and nobody who holds them has.
    pub(super) fn drop_files(&self, ids: impl Iterator<Item = String>) {
        let ids: Vec<String> = ids.filter(|id| !self.is_mounted(id)).collect();
        let (Ok(all), Ok(begun_with)) = (self.catalogue.all_templates(), self.begun_with()) else {
            return;
        };
        for id in ids {
            let is_had = all
                .iter()
                .any(|one| one.record.files().any(|own| *own == id));
            // Looked at before and after: a pause and its end move one from the living to the paused,
            // and back.
            if is_had || begun_with.contains(&id) || self.is_mounted(&id) {
                continue;
            }
            // Out of the way before anybody can take it again.
            let gone = self.layer(&format!("gone-{id}"));
            let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            let moved = !held.contains_key(&id) && fs::rename(self.layer(&id), &gone).is_ok();
            drop(held);
            if moved {
                let _ = remove_home(&gone);
            }
        }
    }
}

impl Hold {
    /// Adds all that a template has.
    pub(super) fn add(&self, record: &Record) -> Result<(), Refusal> {
        self.add_all(record.files())
    }

    /// Adds layers.
    pub(super) fn add_all<'a>(
        &self,
        layers: impl IntoIterator<Item = &'a String>,
    ) -> Result<(), Refusal> {
        for id in layers {
            self.count(id.clone(), false);
            if !self.layers.layer(id).is_dir() {
                let what = "the files of the template or snapshot have just been removed";
                return Err(Refusal::new(Kind::NotFound, what).advise("make it again"));
            }
        }
        Ok(())
    }

    /// Makes an id for what is to be made.
    pub(super) fn fresh(&self) -> Result<String, Refusal> {
        let id = format!("layer{}", name(20)?);
        self.count(id.clone(), true);
        Ok(id)
    }

    fn count(&self, id: String, is_fresh: bool) {
        let held = &self.layers.held;
        let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
        *held.entry(id.clone()).or_default() += 1;
        drop(held);
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.push(Used { id, is_fresh });
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let used = std::mem::take(&mut *self.used.lock().unwrap_or_else(PoisonError::into_inner));
        let mut held = self
            .layers
            .held
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for one in &used {
            if let Some(count) = held.get_mut(&one.id) {
                *count -= 1;
                if *count == 0 {
                    held.remove(&one.id);
                }
            }
        }
        drop(held);
        let fresh: Vec<String> = used
            .into_iter()
            .filter_map(|one| one.is_fresh.then_some(one.id))
            .collect();
        if fresh.is_empty() {
            return;
        }
        let layers = Arc::clone(&self.layers);
        // What is left of them is removed at the next start.
        let _ = std::thread::Builder::new().spawn(move || layers.drop_files(fresh.into_iter()));
    }
}

impl Layers {
    pub(super) fn layers(&self) -> PathBuf {
        self.server.engine.state().join("served/layers")
    }

    pub(super) fn layer(&self, id: &str) -> PathBuf {
        self.layers().join(id)
    }

    /// Returns the system of sandboxes that stand on a template.
    pub(super) fn system_of(&self, template: &Template) -> System {
        let layers = template.record.layers.iter();
        System {
            name: template.id.clone(),
            layers: layers.map(|id| self.layer(id)).collect(),
            over_host: template.record.over_host,
            roots: template.record.roots.clone(),
            changed: Vec::new(),
            begins: None,
        }
    }

    /// Counts the sandboxes and snapshots that stand on a template.
    pub(super) fn users_of(&self, one: &Template) -> Result<usize, Refusal> {
        let snapshots = self
            .server
            .store
            .snapshots()
            .map_err(|error| fault(&error))?;
        let snapshots = snapshots.iter().filter(|kept| kept.shipped == one.id);
        Ok(self.list.stand_on(&one.id) + snapshots.count())
    }

    /// Removes the files of a template that no other one, and no sandbox, has.
    pub(super) async fn drop_layers(self: &Arc<Self>, record: &Record) {
        let (own, ids) = (Arc::clone(self), record.files().cloned());
        let ids: Vec<String> = ids.collect();
        let _ = spawn_blocking(move || own.drop_files(ids.into_iter())).await;
    }

    /// Returns whether a living sandbox began with a layer.
    fn is_mounted(&self, id: &str) -> bool {
        let has = |one: &Arc<Living>| one.spec.layers.iter().any(|own| own == id);
        self.list.all_living().iter().any(has)
    }
}
