//! A template that was built, as it is kept.

use std::collections::BTreeMap;

use atoll_store::StoredTemplate;
use serde::{Deserialize, Serialize};

use super::begun::Begun;
use crate::protocol::{CreateAsk, Kind, Refusal};

/// The tag that a name has where none is written.
pub(super) const DEFAULT_TAG: &str = ":default";

/// The mark in the name of one that another has replaced.
pub(super) const REPLACED: char = '@';

/// The template that is shipped as its steps alone.
pub(super) const DESKTOP: &str = "desktop";

/// The form of layers: those of another one cannot be used.
pub(super) const FORM: u32 = 1;

/// All that sandboxes are made from a template by.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Record {
    /// The form of its layers.
    pub(super) form: u32,
    /// The ids of its layers, the topmost first.
    pub(super) layers: Vec<String>,
    /// True if the host's system lies beneath them.
    pub(super) over_host: bool,
    /// Names of directories at its root that its steps make.
    pub(super) roots: Vec<String>,
    /// True if the code interpreter is a part of it.
    pub(super) is_interpreter: bool,
    /// The layers of the home that sandboxes begin with, the topmost first.
    pub(super) home: Vec<String>,
    /// Made by host root: the first of the ids that the home's files belong to.
    pub(super) base: Option<u32>,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) user: String,
    pub(super) directory: Option<String>,
    pub(super) start: Option<String>,
    pub(super) ready: Option<String>,
    pub(super) cpus: Option<u32>,
    pub(super) memory_mib: Option<u64>,
    /// The digest of the host's system that its lowest layer is a copy of.
    pub(super) host: Option<String>,
    /// The digest of all that it was built from.
    pub(super) digest: String,
    /// The image at the bottom of it.
    pub(super) image: Option<ImageRecord>,
}

/// A template that was built.
#[derive(Clone, Debug)]
pub(super) struct Template {
    pub(super) id: String,
    pub(super) tenant: String,
    pub(super) name: String,
    pub(super) created_ms: u64,
    pub(super) record: Record,
}

/// The programs of a sandbox that are root or become other users.
#[derive(Clone, Debug)]
pub(super) struct Rooted {
    /// The user where none is named.
    pub(super) user: String,
    /// The directory where none is named.
    pub(super) directory: Option<String>,
}

impl Record {
    /// Returns the layers that sandboxes begin with.
    pub(super) fn begun(&self) -> Begun {
        Begun {
            home: self.home.clone(),
            system: Vec::new(),
            base: self.base.filter(|_| !self.home.is_empty()),
        }
    }

    /// Returns the names of its directories beside the layers of others.
    pub(super) fn files(&self) -> impl Iterator<Item = &String> {
        let of_image = self.image.iter();
        let of_image = of_image.flat_map(|image| [&image.layer].into_iter().chain(&image.home));
        self.layers.iter().chain(&self.home).chain(of_image)
    }
}

impl Template {
    pub(super) fn of(stored: StoredTemplate) -> Option<Self> {
        let record = serde_json::from_str::<Record>(&stored.record);
        let record = record.inspect_err(|error| {
            eprintln!("atoll serve: template {}: {error}", stored.id);
        });
        let record = record.ok().filter(|record| record.form == FORM);
        Some(Self {
            id: stored.id,
            tenant: stored.tenant,
            name: stored.name,
            created_ms: stored.created_ms,
            record: record?,
        })
    }

    /// Returns the names of its layers and homes.
    pub(super) fn files(&self) -> Vec<String> {
        self.record.files().cloned().collect()
    }

    pub(super) fn rooted(&self) -> Rooted {
        Rooted {
            user: self.record.user.clone(),
            directory: self.record.directory.clone(),
        }
    }
}

/// Returns the refusal for a template that is not there.
pub(super) fn no_template(named: &str) -> Refusal {
    let refusal = Refusal::new(Kind::NotFound, format!("there is no template {named:?}"));
    refusal.advise(match named {
        DESKTOP => "atoll template build desktop makes it, with the key of the tenant",
        _ => {
            "\"base\" and \"code-interpreter-v1\" are shipped; others are templates and snapshots of \
             the tenant's own"
        }
    })
}

/// Returns the variables of a sandbox: its template's, and over them those that are asked for.
pub(super) fn variables(template: Option<&Template>, ask: &CreateAsk) -> BTreeMap<String, String> {
    let mut all = template.map_or_else(BTreeMap::new, |one| one.record.environment.clone());
    all.extend(ask.environment.clone());
    all
}

/// The files of an image, which templates of a tenant share.
#[derive(Clone, Debug, serde::Serialize, Deserialize)]
pub(super) struct ImageRecord {
    pub(super) digest: String,
    pub(super) layer: String,
    pub(super) home: Option<String>,
    pub(super) base: Option<u32>,
    pub(super) environment: BTreeMap<String, String>,
}
