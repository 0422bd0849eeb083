//! The templates and snapshots that sandboxes are made from, by their names.

use std::sync::Arc;

use atoll_store::Snapshot;

use super::answers::fault;
use super::server::Server;
use super::template::DEFAULT_TAG;
use super::template::DESKTOP;
use super::template::Template;
use super::template::no_template;
use crate::protocol::{Kind, Refusal, TEMPLATES};

/// The names of templates and snapshots.
pub(super) struct Catalogue {
    pub(super) server: Arc<Server>,
}

impl Catalogue {
    /// Returns the templates of all tenants.
    pub(super) fn all_templates(&self) -> Result<Vec<Template>, Refusal> {
        let all = self
            .server
            .store
            .templates()
            .map_err(|error| fault(&error))?;
        Ok(all.into_iter().filter_map(Template::of).collect())
    }

    /// Finds a template of a tenant that was built, by its id or name.
    pub(super) fn template_named(
        &self,
        tenant: &str,
        named: &str,
    ) -> Result<Option<Template>, Refusal> {
        let named = named.strip_suffix(DEFAULT_TAG).unwrap_or(named);
        let all = self.all_templates()?;
        let is_it = |one: &Template| one.tenant == tenant && (one.id == named || one.name == named);
        Ok(all.into_iter().find(is_it))
    }

    /// Finds the template that a sandbox stands on; `None` for a shipped one.
    pub(super) fn template_of(&self, shipped: &str) -> Result<Option<Template>, Refusal> {
        if crate::protocol::TEMPLATES.contains(&shipped) {
            return Ok(None);
        }
        let all = self.all_templates()?;
        let found = all.into_iter().find(|one| one.id == shipped);
        let gone = || {
            let what = format!("the template {shipped} that it stands on is not there any more");
            Refusal::new(Kind::NotFound, what)
        };
        found.map(Some).ok_or_else(gone)
    }

    /// Refuses the name of a snapshot for a template.
    pub(super) fn check_no_snapshot(&self, tenant: &str, named: &str) -> Result<(), Refusal> {
        match self.snapshot_named(tenant, named) {
            Ok(_) => Err(taken("snapshot", named)),
            Err(refusal) if refusal.kind == Kind::NotFound => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }

    /// Refuses a name for a snapshot that another one has, or a template.
    pub(super) fn check_free(
        &self,
        tenant: &str,
        named: &str,
        is_snapshot: bool,
    ) -> Result<(), Refusal> {
        let there = match () {
            () if is_snapshot => "snapshot",
            () if TEMPLATES.contains(&named) || named == DESKTOP => "shipped template",
            () if self.template_named(tenant, named)?.is_some() => "template",
            () => return Ok(()),
        };
        Err(taken(there, named))
    }

    pub(super) fn snapshots_of(&self, tenant: &str) -> Result<Vec<Snapshot>, Refusal> {
        let mut all = self
            .server
            .store
            .snapshots()
            .map_err(|error| fault(&error))?;
        all.retain(|one| one.tenant == tenant && one.is_whole && !one.layers.is_empty());
        Ok(all)
    }

    /// Finds a snapshot of a tenant, by its id or name.
    pub(super) fn snapshot_named(&self, tenant: &str, named: &str) -> Result<Snapshot, Refusal> {
        let own = self.snapshots_of(tenant)?;
        let is_it = |one: &&Snapshot| one.id == named || one.name.as_deref() == Some(named);
        own.iter()
            .find(is_it)
            .cloned()
            .ok_or_else(|| no_template(named))
    }
}

pub(super) fn taken(what: &str, named: &str) -> Refusal {
    let what = format!("there is a {what} {named:?} already");
    Refusal::new(Kind::Exists, what).advise("take another name, or delete that first")
}
