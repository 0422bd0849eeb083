//! Images of registries: fetched and unpacked in a sandbox, which reaches what its network allows,
//! and whose root the files belong to.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use atoll_engine::sandboxes::{import_image, remove_home};
use serde::Deserialize;
use serde_json::json;
use tokio::task::spawn_blocking;

use super::super::answers::fault;
use super::super::answers::refusal;
use super::super::builds::Templates;
use super::super::caller::Caller;
use super::super::holding::Hold;
use super::super::lifecycle::{Lifecycle, Reason};
use super::super::living::Living;
use super::super::template::ImageRecord;
use super::super::template::Record;
use super::super::wanted::Reach;
use super::super::window::Next;
use super::progress::{Log, Wanted};
use super::resident;
use crate::line::Stream;
use crate::protocol::{End, Kind, Refusal, RegistryLogin, StartAsk};

/// The network of a sandbox that fetches nothing.
const NOWHERE: Reach = Reach {
    name: "closed",
    presets: Vec::new(),
    allow: Vec::new(),
};
/// The program that fetches and unpacks an image.
const FETCH: &str = include_str!("../../interpreter/fetch.py");
/// The longest answer of it, bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// The beginning of the digest of a template that is an image alone.
const IMAGE: &str = "image:";

/// The answer of the program.
#[derive(Debug, Deserialize)]
pub(super) struct Fetched {
    /// The digest of its manifest.
    pub(super) digest: String,
    #[serde(default)]
    environment: BTreeMap<String, String>,
}

/// A program that finds or fetches files of others.
pub(super) struct Fetch<'a> {
    /// The name of what it fetches.
    pub(super) name: &'a str,
    pub(super) words: Vec<&'a str>,
    pub(super) login: Option<&'a RegistryLogin>,
}

/// An image that somebody wants.
pub(super) struct Wish<'a> {
    pub(super) caller: &'a Caller,
    /// Its name, for people.
    pub(super) image: &'a str,
    pub(super) login: Option<&'a RegistryLogin>,
    /// The file of the upload that it lies in, if it is of no registry.
    pub(super) layout: Option<&'a Path>,
}

/// The directory of a layout in the sandbox that it is unpacked in.
const LAYOUT: &str = "layout";
/// Unpacks an upload there.
const UNPACK: &str = "mkdir layout && tar -x --no-same-owner -f - -C layout";

impl Templates {
    /// Makes what a build begins with of an image; the tenant's own layer of it if there is one.
    pub(super) async fn import(
        self: &Arc<Self>,
        wish: &Wish<'_>,
        log: &Log,
        hold: &Arc<Hold>,
    ) -> Result<Record, Refusal> {
        match wish.layout {
            None => log.line(&format!("Looking for {}", wish.image), false),
            Some(_) => log.line("Looking into the layout", false),
        }
        let living = match wish.layout {
            None => self.begin_fetch(wish.caller, hold).await?,
            Some(_) => self.begin_fetch_in(wish.caller, NOWHERE, hold).await?,
        };
        let imported = self.import_in(&living, wish, log, hold).await;
        if imported.is_err() || living.life.is(Lifecycle::is_running) {
            self.sandboxes
                .end(&living, Reason::Build("its image is known"))
                .await;
        }
        imported
    }

    /// Makes the sandbox that files of others are fetched in: it reaches what `images` names alone.
    pub(super) async fn begin_fetch(
        self: &Arc<Self>,
        caller: &Caller,
        hold: &Arc<Hold>,
    ) -> Result<Arc<Living>, Refusal> {
        let allow = self.server.configuration.images();
        if allow.is_empty() {
            let what = "Image pulls are off; list registries under `images`";
            return Err(Refusal::new(Kind::Forbidden, what)
                .advise("images = [\"registry-1.docker.io\", …] in serve.toml allows them"));
        }
        let reach = Reach {
            name: "images",
            presets: Vec::new(),
            allow,
        };
        self.begin_fetch_in(caller, reach, hold).await
    }

    async fn begin_fetch_in(
        self: &Arc<Self>,
        caller: &Caller,
        reach: Reach,
        hold: &Arc<Hold>,
    ) -> Result<Arc<Living>, Refusal> {
        let wanted = Wanted {
            tenant: caller.tenant.clone(),
            name: "base".to_owned(),
            cpus: None,
            memory_mib: None,
        };
        let host = self.host_record("base", hold).await?;
        self.begin_build(caller, "base", &wanted, &host, Some(reach))
            .await
    }

    async fn import_in(
        self: &Arc<Self>,
        living: &Arc<Living>,
        wish: &Wish<'_>,
        log: &Log,
        hold: &Arc<Hold>,
    ) -> Result<Record, Refusal> {
        let Wish {
            caller,
            image,
            login,
            layout,
        } = *wish;
        if let Some(upload) = layout {
            self.unpack(living, upload, log).await?;
        }
        let named = if image.is_empty() { "its image" } else { image };
        let fetch = |what| {
            let mut words = ["/usr/bin/python3", "-I", "-c", FETCH, what, image].to_vec();
            words.extend(layout.map(|_| LAYOUT));
            Fetch {
                name: named,
                words,
                login,
            }
        };
        let found = self.fetch(living, &fetch("find"), log).await?;
        let digest = format!("{IMAGE}{}", found.digest);
        log.line(&format!("{named} is {}", found.digest), false);
        let all = self.catalogue.all_templates()?;
        let mut known = all.iter().filter(|one| one.tenant == caller.tenant);
        if let Some(known) =
            known.find_map(|one| one.record.image.as_ref().filter(|one| one.digest == digest))
        {
            log.line("its files are here: CACHED", false);
            return Ok(known.as_record());
        }
        let fetched = self.fetch(living, &fetch("fetch"), log).await?;
        if fetched.digest != found.digest {
            let what = format!("{image} has just become another image");
            return Err(Refusal::new(Kind::Unavailable, what).advise("build again"));
        }
        let made = self.take_image(living, digest, fetched, hold).await;
        made.map(|image| image.as_record())
    }

    /// Unpacks an uploaded layout in the sandbox.
    async fn unpack(
        self: &Arc<Self>,
        living: &Arc<Living>,
        upload: &Path,
        log: &Log,
    ) -> Result<(), Refusal> {
        let words = ["/bin/sh", "-c", UNPACK];
        let ask = StartAsk {
            command: words.map(str::to_owned).to_vec(),
            user: Some("root".to_owned()),
            directory: Some(atoll_model::RESIDENT.home.to_owned()),
            input: true,
            ..StartAsk::default()
        };
        self.run_logged(living, ask, Some(upload), log).await
    }

    /// Ends the sandbox, and makes a layer of what was unpacked in it.
    pub(super) async fn take_image(
        self: &Arc<Self>,
        living: &Arc<Living>,
        digest: String,
        fetched: Fetched,
        hold: &Arc<Hold>,
    ) -> Result<ImageRecord, Refusal> {
        let left = self.leave(living, "its image is there", hold).await?;
        let (own, hold) = (Arc::clone(self), Arc::clone(hold));
        let made = spawn_blocking(move || {
            let (id, home_id) = (hold.fresh()?, hold.fresh()?);
            let (layer, home) = (own.layers.layer(&id), own.layers.layer(&home_id));
            let imported = import_image(&left.home, &layer, &home);
            let _ = remove_home(&left.changes);
            let _ = remove_home(&left.home.path);
            let home = imported.map_err(|failure| refusal(&failure))?;
            Ok(ImageRecord {
                digest,
                layer: id,
                home: home.as_ref().map(|_| home_id),
                base: home.and_then(|home| home.base),
                environment: fetched.environment,
            })
        });
        made.await.map_err(|error| fault(&error)).flatten()
    }

    /// Runs the program in the sandbox; its login goes to its input, and is not recorded.
    pub(super) async fn fetch(
        self: &Arc<Self>,
        living: &Arc<Living>,
        of: &Fetch<'_>,
        log: &Log,
    ) -> Result<Fetched, Refusal> {
        let ask = StartAsk {
            command: of.words.iter().map(|word| (*word).to_owned()).collect(),
            user: Some("root".to_owned()),
            directory: Some(atoll_model::RESIDENT.home.to_owned()),
            input: true,
            ..StartAsk::default()
        };
        let (process, mut reading) = self.programs.start(living, ask, log.by.clone()).await?;
        let login = of
            .login
            .map(|login| json!({ "user": login.user, "password": login.password }));
        let login = serde_json::to_vec(&login).map_err(|error| fault(&error))?;
        process.write(&login).await?;
        process.close_input().await?;
        let mut answer = Vec::new();
        let mut why = String::new();
        let end = loop {
            match reading.next().await {
                Next::Content(Stream::Output, content) => {
                    let room = ANSWER_BYTES_MAX.saturating_sub(answer.len());
                    answer.extend_from_slice(
                        content.get(..room.min(content.len())).unwrap_or_default(),
                    );
                }
                Next::Content(_, content) => {
                    for line in String::from_utf8_lossy(&content).lines() {
                        log.line(line, false);
                        line.clone_into(&mut why);
                    }
                }
                Next::End(end) => break end,
            }
        };
        match end {
            End::Exited(0) => serde_json::from_slice(&answer).map_err(|error| fault(&error)),
            _ => {
                let what = format!("{} cannot be had: {why}", of.name);
                let refusal = Refusal::new(Kind::Invalid, what);
                Err(match of.words.contains(&LAYOUT) {
                    true => refusal,
                    false => refusal.advise(
                        "images in serve.toml names the registries, and what they redirect to",
                    ),
                })
            }
        }
    }
}

impl ImageRecord {
    pub(super) fn as_record(&self) -> Record {
        Record {
            layers: vec![self.layer.clone()],
            over_host: false,
            home: self.home.iter().cloned().collect(),
            base: self.base,
            environment: self.environment.clone(),
            user: resident(),
            digest: self.digest.clone(),
            image: Some(self.clone()),
            ..Record::default()
        }
    }
}
