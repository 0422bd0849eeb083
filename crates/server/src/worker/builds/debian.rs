//! A minimal Debian system: its packages, as Debian has signed them, fetched and unpacked in one
//! sandbox, and set up in another one that is made of them.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::super::answers::name;
use super::super::builds::Templates;
use super::super::caller::Caller;
use super::super::holding::Hold;
use super::super::lifecycle::{Lifecycle, Reason};
use super::super::living::Living;
use super::super::template::ImageRecord;
use super::super::template::Record;
use super::super::template::Template;
use super::super::wanted::Reach;
use super::image::Fetch;
use super::progress::{Log, Wanted};
use crate::protocol::{Kind, Refusal, StartAsk};

/// The name of it, as an image and as a template.
pub(super) const DEBIAN: &str = "atoll/debian";
/// The program that fetches and unpacks its packages.
const FETCH: &str = include_str!("../../interpreter/debian.py");
/// The program that sets them up.
const SET_UP: &str = include_str!("../../interpreter/debian.sh");

/// The end of the first sandbox.
enum Found {
    /// A template of the same packages is there.
    Built(Box<Record>),
    /// The packages are unpacked.
    Unpacked(ImageRecord),
}

impl Templates {
    /// Makes what a build begins with of Debian's packages; the tenant's own template of the same
    /// packages if there is one.
    pub(super) async fn debian(
        self: &Arc<Self>,
        caller: &Caller,
        log: &Log,
        hold: &Arc<Hold>,
    ) -> Result<Record, Refusal> {
        log.line("Looking for Debian's packages", false);
        let living = self.begin_fetch(caller, hold).await?;
        let found = self.debian_in(&living, caller, log, hold).await;
        if found.is_err() || living.life.is(Lifecycle::is_running) {
            self.sandboxes
                .end(&living, Reason::Build("its packages are known"))
                .await;
        }
        let unpacked = match found? {
            Found::Built(record) => return Ok(*record),
            Found::Unpacked(image) => image.as_record(),
        };
        let wanted = Wanted {
            tenant: caller.tenant.clone(),
            name: DEBIAN.to_owned(),
            cpus: None,
            memory_mib: None,
        };
        let id = format!("tpl{}", name(20)?);
        let closed = Reach {
            name: "closed",
            presets: Vec::new(),
            allow: Vec::new(),
        };
        let living = self.begin_build(caller, &id, &wanted, &unpacked, Some(closed));
        let living = living.await?;
        let ask = StartAsk {
            command: ["/bin/sh", "-c", SET_UP].map(str::to_owned).to_vec(),
            directory: Some("/".to_owned()),
            user: Some("root".to_owned()),
            ..StartAsk::default()
        };
        if let Err(refusal) = self.run_logged(&living, ask, None, log).await {
            self.sandboxes
                .end(&living, Reason::Build("its packages could not be set up"))
                .await;
            return Err(refusal);
        }
        let left = self.leave(&living, "its packages are set up", hold).await?;
        let record = self.layer_of(left, &unpacked, hold).await?;
        self.keep_template(&id, &wanted, record.clone()).await?;
        Ok(record)
    }

    async fn debian_in(
        self: &Arc<Self>,
        living: &Arc<Living>,
        caller: &Caller,
        log: &Log,
        hold: &Arc<Hold>,
    ) -> Result<Found, Refusal> {
        let fetch = |what| Fetch {
            name: "Debian",
            words: ["/usr/bin/python3", "-I", "-c", FETCH, what].to_vec(),
            login: None,
        };
        let found = self.fetch(living, &fetch("find"), log).await?;
        let mut digest = Sha256::new();
        for part in [&*found.digest, FETCH, SET_UP] {
            digest.update(part);
        }
        let digest = digest.finalize();
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let digest = format!("debian:{digest}");
        let is_same = |one: &Template| one.name == DEBIAN && one.record.digest == digest;
        let before = self.catalogue.template_named(&caller.tenant, DEBIAN)?;
        if let Some(same) = before.filter(is_same) {
            log.line("the same packages are here: CACHED", false);
            hold.add(&same.record)?;
            return Ok(Found::Built(Box::new(same.record)));
        }
        let fetched = self.fetch(living, &fetch("fetch"), log).await?;
        if fetched.digest != found.digest {
            let what = "Debian has just released other packages";
            return Err(Refusal::new(Kind::Unavailable, what).advise("build again"));
        }
        let image = self.take_image(living, digest, fetched, hold).await?;
        Ok(Found::Unpacked(image))
    }
}
