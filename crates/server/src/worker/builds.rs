//! Templates that callers build: their layers, and what sandboxes made from them begin with.

mod copying;
mod debian;
mod digest;
mod image;
mod leaving;
mod progress;
mod shell;
mod steps;
mod uploads;

use std::sync::Arc;
use std::time::SystemTime;

use atoll_model::RESIDENT;
use atoll_store::StoredTemplate;

use super::answers::Answer;
use super::answers::Answered;
use super::answers::fault;
use super::answers::name;
use super::caller::Caller;
use super::catalogue::Catalogue;
use super::layered::Layers;
use super::list::List;
use super::once::Idempotency;
use super::running::Programs;
use super::sandboxes::Sandboxes;
use super::server::Server;
use super::template::DEFAULT_TAG;
use super::template::FORM;
use super::template::Record;
use super::template::Template;
use super::template::no_template;
use super::templates;
use super::webhooks::Webhooks;
use crate::protocol::{
    BuildFacts, CODE_INTERPRETER, CreateAsk, Kind, Refusal, RequestBuild, RequestedBuild,
    StartBuild, TemplateFacts, TemplatesAsk,
};
use crate::rfc3339::milliseconds;
pub(super) use progress::Builds;

/// The longest name of a template, bytes.
const NAME_BYTES_MAX: usize = 128;

/// The most lines of a log in one answer.
const LINES_MAX: usize = 100;

/// The beginning of the names that are no tenant's to give.
const OWN: &str = "atoll/";

/// The names of the templates of E2B's SDKs, and the shipped ones that take their place.
pub(crate) const MAPPED: [(&str, &str); 3] = [
    ("e2bdev/base", "base"),
    ("e2bdev/base:latest", "base"),
    ("e2bdev/code-interpreter:latest", CODE_INTERPRETER),
];

/// The templates of tenants, and their builds.
pub(super) struct Templates {
    pub(super) server: Arc<Server>,
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
            server: Arc::clone(&sandboxes.server),
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
                self.server.can_make(caller)?;
                ask.answer(self.remove_template(caller, &ask.id).await?)
            }
            TemplatesAsk::RequestBuild(ask) => ask.answer(self.request_build(caller, &ask)?),
            TemplatesAsk::LinkUpload(ask) => {
                self.server.can_make(caller)?;
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
        let defaults = &self.server.configuration.defaults;
        TemplateFacts {
            id: one.id.clone(),
            name: one.name.clone(),
            created_ms: one.created_ms,
            digest: one.record.digest.clone(),
            user: one.record.user.clone(),
            cpus: self.server.processors(one.record.cpus),
            memory_mib: one.record.memory_mib.unwrap_or(defaults.memory_mib),
            sandboxes: self.list.stand_on(&one.id),
        }
    }

    /// Describes the shipped interpreter, where packages were built for it.
    fn interpreter_facts(&self) -> Option<TemplateFacts> {
        let (number, created_ms) = templates::built(self.server.engine.state())?;
        Some(TemplateFacts {
            id: CODE_INTERPRETER.to_owned(),
            name: CODE_INTERPRETER.to_owned(),
            created_ms,
            digest: format!("{CODE_INTERPRETER}/{number}"),
            user: resident(),
            cpus: self.server.processors(None),
            memory_mib: self.server.configuration.defaults.memory_mib,
            // It is everybody's, and how many others use it is nobody's business.
            sandboxes: 0,
        })
    }

    fn request_build(
        self: &Arc<Self>,
        caller: &Caller,
        ask: &RequestBuild,
    ) -> Result<RequestedBuild, Refusal> {
        self.server.can_make(caller)?;
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
        self.server.limits(&sizes)?;
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
        let most = self.server.configuration.quota.templates;
        if all.iter().filter(|one| one.tenant == tenant).count() < most {
            return Ok(());
        }
        let what = format!("the tenant has {most} templates, as many as it may");
        Err(Refusal::new(Kind::Quota, what)
            .advise("delete one, or raise quota.templates in serve.toml"))
    }

    fn start_build(self: &Arc<Self>, caller: &Caller, ask: &StartBuild) -> Result<(), Refusal> {
        self.server.can_make(caller)?;
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
                .server
                .store
                .keep_template(&stored)
                .map_err(|error| fault(&error));
        };
        let replaced = self.server.store.replace_template(&before.id, &stored);
        replaced.map_err(|error| fault(&error))?;
        if self.layers.users_of(&before)? == 0 {
            let removed = self.server.store.remove_template(&before.id);
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
        self.server
            .store
            .remove_template(&found.id)
            .map_err(|error| fault(&error))?;
        self.layers.drop_layers(&found.record).await;
        Ok(())
    }
}

fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:/".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(fits)
}

fn resident() -> String {
    RESIDENT.name.to_owned()
}
