//! Templates that callers build: their layers, and what sandboxes made from them begin with.

mod copying;
mod debian;
mod digest;
mod holding;
mod image;
mod leaving;
mod progress;
mod shell;
mod steps;
mod uploads;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use atoll_model::RESIDENT;
use atoll_store::StoredTemplate;
use serde::{Deserialize, Serialize};

use super::callers::Caller;
use super::catalogue::Catalogue;
use super::common::Common;
use super::layered::Begun;
use super::layered::Layers;
use super::list::List;
use super::living::milliseconds;
use super::once::Idempotency;
use super::running::Programs;
use super::sandboxes::Sandboxes;
use super::webhooks::Webhooks;
use super::{Answer, Answered, fault, name, templates};
use crate::protocol::{
    BuildFacts, CODE_INTERPRETER, CreateAsk, Kind, Refusal, RequestBuild, RequestedBuild,
    StartBuild, TemplateFacts, TemplatesAsk,
};
pub(super) use holding::{Held, Hold};
pub(super) use progress::Builds;
pub(super) use steps::READY_LOOK;

/// The longest name of a template, bytes.
const NAME_BYTES_MAX: usize = 128;
/// The tag that a name has where none is written.
pub(super) const DEFAULT_TAG: &str = ":default";
/// The mark in the name of one that another has replaced.
const REPLACED: char = '@';
/// The most lines of a log in one answer.
const LINES_MAX: usize = 100;

/// The template that is shipped as its steps alone.
pub(super) const DESKTOP: &str = "desktop";

/// The beginning of the names that are no tenant's to give.
const OWN: &str = "atoll/";

/// The names of the templates of E2B's SDKs, and the shipped ones that take their place.
pub(crate) const MAPPED: [(&str, &str); 3] = [
    ("e2bdev/base", "base"),
    ("e2bdev/base:latest", "base"),
    ("e2bdev/code-interpreter:latest", CODE_INTERPRETER),
];

/// The form of layers: those of another one cannot be used.
const FORM: u32 = 1;

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
    pub(super) image: Option<image::ImageRecord>,
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

/// The templates of tenants, and their builds.
pub(super) struct Templates {
    pub(super) common: Arc<Common>,
    pub(super) list: Arc<List>,
    pub(super) webhooks: Arc<Webhooks>,
    pub(super) idempotency: Arc<Idempotency>,
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) layers: Arc<Layers>,
    pub(super) programs: Arc<Programs>,
    pub(super) sandboxes: Arc<Sandboxes>,
    pub(super) builds: Builds,
}

impl Templates {
    pub(super) fn new(sandboxes: &Arc<Sandboxes>) -> Arc<Self> {
        Arc::new(Self {
            common: Arc::clone(&sandboxes.common),
            list: Arc::clone(&sandboxes.list),
            webhooks: Arc::clone(&sandboxes.webhooks),
            idempotency: Arc::clone(&sandboxes.idempotency),
            catalogue: Arc::clone(&sandboxes.catalogue),
            layers: Arc::clone(&sandboxes.layers),
            programs: Arc::clone(&sandboxes.programs),
            sandboxes: Arc::clone(sandboxes),
            builds: Builds::default(),
        })
    }

    /// Carries out a request about templates.
    pub(super) async fn templates(
        self: &Arc<Self>,
        caller: &Caller,
        ask: TemplatesAsk,
    ) -> Result<Answered, Refusal> {
        match ask {
            TemplatesAsk::ListTemplates(ask) => {
                let mut all = self.catalogue.all_templates()?;
                all.retain(|one| one.tenant == caller.tenant);
                let own = all.iter().map(|one| self.template_facts(one));
                ask.answer(own.chain(self.interpreter_facts()).collect())
            }
            TemplatesAsk::GetTemplate(ask) => {
                let found = self.catalogue.template_named(&caller.tenant, &ask.id)?;
                let found = found.ok_or_else(|| no_template(&ask.id))?;
                ask.answer(self.template_facts(&found))
            }
            TemplatesAsk::RemoveTemplate(ask) => {
                self.common.can_make(caller)?;
                ask.answer(self.remove_template(caller, &ask.id).await?)
            }
            TemplatesAsk::RequestBuild(ask) => ask.answer(self.request_build(caller, &ask)?),
            TemplatesAsk::LinkUpload(ask) => {
                self.common.can_make(caller)?;
                ask.answer(self.builds.link(&caller.tenant, &ask.template)?)
            }
            TemplatesAsk::StartBuild(ask) => ask.answer(self.start_build(caller, &ask)?),
            TemplatesAsk::GetBuild(ask) => {
                let limit = ask.limit.clamp(1, LINES_MAX);
                let (template, build) = (&ask.template, &ask.build);
                let facts = self
                    .builds
                    .facts(&caller.tenant, template, build, ask.from, limit)?;
                ask.answer(facts)
            }
        }
    }

    fn template_facts(&self, one: &Template) -> TemplateFacts {
        let defaults = &self.common.configuration.defaults;
        TemplateFacts {
            id: one.id.clone(),
            name: one.name.clone(),
            created_ms: one.created_ms,
            digest: one.record.digest.clone(),
            user: one.record.user.clone(),
            cpus: self.common.processors(one.record.cpus),
            memory_mib: one.record.memory_mib.unwrap_or(defaults.memory_mib),
            sandboxes: self.list.stand_on(&one.id),
        }
    }

    /// Describes the shipped interpreter, where packages were built for it.
    fn interpreter_facts(&self) -> Option<TemplateFacts> {
        let (number, created_ms) = templates::built(self.common.engine.state())?;
        Some(TemplateFacts {
            id: CODE_INTERPRETER.to_owned(),
            name: CODE_INTERPRETER.to_owned(),
            created_ms,
            digest: format!("{CODE_INTERPRETER}/{number}"),
            user: resident(),
            cpus: self.common.processors(None),
            memory_mib: self.common.configuration.defaults.memory_mib,
            // It is everybody's, and how many others use it is nobody's business.
            sandboxes: 0,
        })
    }

    fn request_build(
        self: &Arc<Self>,
        caller: &Caller,
        ask: &RequestBuild,
    ) -> Result<RequestedBuild, Refusal> {
        self.common.can_make(caller)?;
        let (cpus, memory_mib) = (ask.cpus, ask.memory_mib);
        let named = ask.name.strip_suffix(DEFAULT_TAG).unwrap_or(&ask.name);
        let named = named.to_owned();
        let is_shipped = crate::protocol::TEMPLATES.contains(&&*named) || named.starts_with(OWN);
        if !is_name(&named) || is_shipped {
            let what = format!(
                "a template's name has up to {NAME_BYTES_MAX} letters, digits, '.', '_', '-', ':', \
                 '/', does not begin with {OWN} and is none of a shipped one"
            );
            return Err(Refusal::new(Kind::Invalid, what));
        }
        let sizes = CreateAsk {
            cpus,
            memory_mib,
            ..CreateAsk::default()
        };
        self.common.limits(&sizes)?;
        self.catalogue.check_no_snapshot(&caller.tenant, &named)?;
        let there = self.catalogue.template_named(&caller.tenant, &named)?;
        if there.is_none() {
            self.check_templates(&caller.tenant)?;
        }
        // Another one each time: sandboxes that are paused go on with the files they had.
        let id = format!("tpl{}", name(20)?);
        let begun = progress::Wanted {
            tenant: caller.tenant.clone(),
            name: named,
            cpus,
            memory_mib,
        };
        let (build, forgotten) = self.builds.request(&id, begun)?;
        if let Some(forgotten) = forgotten {
            let own = Arc::clone(self);
            tokio::spawn(async move { own.drop_uploads(&forgotten).await });
        }
        Ok(RequestedBuild {
            template: id,
            build,
        })
    }

    /// Refuses one template more than a tenant may have.
    fn check_templates(&self, tenant: &str) -> Result<(), Refusal> {
        let all = self.catalogue.all_templates()?;
        let most = self.common.configuration.quota.templates;
        if all.iter().filter(|one| one.tenant == tenant).count() < most {
            return Ok(());
        }
        let what = format!("the tenant has {most} templates, as many as it may");
        Err(Refusal::new(Kind::Quota, what)
            .advise("delete one, or raise quota.templates in serve.toml"))
    }

    fn start_build(self: &Arc<Self>, caller: &Caller, ask: &StartBuild) -> Result<(), Refusal> {
        self.common.can_make(caller)?;
        let wanted = self
            .builds
            .begin(&caller.tenant, &ask.template, &ask.build)?;
        let (own, caller, ask) = (Arc::clone(self), caller.clone(), ask.clone());
        tokio::spawn(async move {
            let StartBuild {
                template,
                build,
                plan,
            } = ask;
            let log = progress::Log::of(&own, &build, &caller);
            let built = own.build(&caller, &template, &wanted, *plan, &log).await;
            own.drop_uploads(&template).await;
            own.builds.end(&template, &build, built);
        });
        Ok(())
    }

    /// Keeps a template. The one that has its name gives it up, and is no more unless sandboxes or
    /// snapshots stand on it.
    async fn keep_template(
        self: &Arc<Self>,
        id: &str,
        wanted: &progress::Wanted,
        mut record: Record,
    ) -> Result<(), Refusal> {
        record.form = FORM;
        let stored = StoredTemplate {
            id: id.to_owned(),
            tenant: wanted.tenant.clone(),
            name: wanted.name.clone(),
            created_ms: milliseconds(SystemTime::now()),
            record: serde_json::to_string(&record).map_err(|error| fault(&error))?,
        };
        self.catalogue
            .check_no_snapshot(&wanted.tenant, &wanted.name)?;
        let before = self
            .catalogue
            .template_named(&wanted.tenant, &wanted.name)?;
        let Some(before) = before.filter(|before| before.name == wanted.name) else {
            self.check_templates(&wanted.tenant)?;
            return self
                .common
                .store
                .keep_template(&stored)
                .map_err(|error| fault(&error));
        };
        let replaced = self.common.store.replace_template(&before.id, &stored);
        replaced.map_err(|error| fault(&error))?;
        if self.layers.users_of(&before)? == 0 {
            let removed = self.common.store.remove_template(&before.id);
            removed.map_err(|error| fault(&error))?;
            self.layers.drop_layers(&before.record).await;
        }
        Ok(())
    }

    async fn remove_template(
        self: &Arc<Self>,
        caller: &Caller,
        named: &str,
    ) -> Result<(), Refusal> {
        let found = self.catalogue.template_named(&caller.tenant, named)?;
        let found = found.ok_or_else(|| no_template(named))?;
        let users = self.layers.users_of(&found)?;
        if users > 0 {
            let what = format!("{users} sandboxes and snapshots stand on template {named}");
            return Err(Refusal::new(Kind::Exists, what).advise("end or delete them first"));
        }
        self.common
            .store
            .remove_template(&found.id)
            .map_err(|error| fault(&error))?;
        self.layers.drop_layers(&found.record).await;
        Ok(())
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

fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:/".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(fits)
}

fn resident() -> String {
    RESIDENT.name.to_owned()
}
