//! Volumes: made, copied, removed, and mounted in sandboxes. Their files are in [`super::content`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::SystemTime;

use atoll_engine::sandboxes::{clear_staging, remove_home, volume_files, volume_usage};
use atoll_model::VolumeMount;
use atoll_store::{Scope, Volume};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::answers::Answer;
use super::answers::Answered;
use super::answers::fault;
use super::answers::name;
use super::answers::refusal;
use super::caller::Caller;
use super::caller::check_maker;
use super::callers::Callers;
use super::list::List;
use super::living::Living;
use super::room::For;
use super::server::Server;
use crate::protocol::{Kind, MountAsk, OwnVolume, Refusal, VolumeAsk, VolumeFacts, VolumesAsk};
use crate::rfc3339::milliseconds;

const MIB: u64 = 1 << 20;
/// The longest name of a volume, bytes.
const NAME_BYTES_MAX: usize = 128;
/// The most volumes of one sandbox.
const MOUNTS_MAX: usize = 16;

/// The beginning of a volume's id.
const VOLUME: &str = "vol";
/// The most sandboxes that a refusal names.
const NAMED_MAX: usize = 8;

/// The users of volumes, by name: a sandbox's id, or what nothing else is called.
pub(super) type Uses = BTreeMap<String, Vec<(String, Use)>>;

/// The use of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Reading its files.
    Read,
    /// Changing its files. Several may at once, as in any directory.
    Write,
    /// Copying all of it: nothing changes it meanwhile.
    Copy,
    /// Removing it: nothing else uses it.
    Remove,
}

/// Volumes that are used for as long as this is there, or until the sandbox that has them is gone.
pub(super) struct Held {
    volumes: Arc<Volumes>,
    user: Option<String>,
}

impl Held {
    /// Leaves it to the end of the sandbox.
    pub(super) fn keep(mut self) {
        self.user = None;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(user) = self.user.take() {
            self.volumes.release(&user);
        }
    }
}

/// The volumes of a server, and their files.
pub(super) struct Volumes {
    pub(super) server: Arc<Server>,
    pub(super) list: Arc<List>,
    pub(super) callers: Arc<Callers>,
    /// The users of volumes.
    pub(super) uses: Mutex<Uses>,
    pub(super) counted: Mutex<super::content::AllCounted>,
    /// Held while they are counted, and one is begun.
    pub(super) making: tokio::sync::Mutex<()>,
}

impl Volumes {
    pub(super) fn new(server: &Arc<Server>, list: &Arc<List>, callers: &Arc<Callers>) -> Arc<Self> {
        Arc::new(Self {
            server: Arc::clone(server),
            list: Arc::clone(list),
            callers: Arc::clone(callers),
            uses: Mutex::default(),
            counted: Mutex::default(),
            making: tokio::sync::Mutex::default(),
        })
    }

    /// Returns the directory of a volume.
    pub(super) fn volume_place(&self, id: &str) -> PathBuf {
        self.server.engine.state().join("served/volumes").join(id)
    }

    /// Removes volumes that were not made to their end, or removed, and files that were being written.
    pub(super) fn find_volumes(&self) {
        let all = self.server.store.volumes(None).unwrap_or_else(|error| {
            eprintln!("atoll serve: {error}");
            Vec::new()
        });
        for one in all {
            match one.is_whole {
                true => drop(clear_staging(&self.volume_place(&one.id))),
                false => self.drop_volume(&one.id),
            }
        }
    }

    /// Removes a volume that is not whole: its files first, so that it is found until they are gone.
    fn drop_volume(&self, id: &str) {
        self.forget_count(id);
        match remove_home(&self.volume_place(id)) {
            Ok(()) => drop(self.server.store.remove_volume(id)),
            Err(failure) => eprintln!("atoll serve: {}", refusal(&failure).what),
        }
    }

    fn uses(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a user of volumes is gone.
    pub(super) fn release(&self, user: &str) {
        self.uses().remove(user);
    }

    /// Takes volumes for a user, all or none. `find` returns them: as they are while nobody else takes
    /// or removes one.
    pub(super) fn hold<T>(
        self: &Arc<Self>,
        user: &str,
        find: impl FnOnce() -> Result<(T, Vec<(Volume, Use)>), Refusal>,
    ) -> Result<(T, Held), Refusal> {
        let mut uses = self.uses();
        let (found, wanted) = find()?;
        for (volume, wanted) in &wanted {
            let is_against =
                |(id, other): &&(String, Use)| *id == volume.id && is_against(*wanted, *other);
            let users = uses.iter();
            let mut users = users.filter_map(|(user, all)| {
                let (_, other) = all.iter().find(is_against)?;
                Some((user.as_str(), *other))
            });
            if let Some((first, other)) = users.next() {
                let all = std::iter::once(first).chain(users.map(|(user, _)| user));
                return Err(refused(volume, *wanted, other, &sandboxes(all)));
            }
        }
        let wanted = wanted
            .into_iter()
            .map(|(volume, wanted)| (volume.id, wanted));
        uses.insert(user.to_owned(), wanted.collect());
        let held = Held {
            volumes: Arc::clone(self),
            user: Some(user.to_owned()),
        };
        Ok((found, held))
    }

    fn volumes_of(&self, tenant: &str) -> Result<Vec<Volume>, Refusal> {
        let all = self.server.store.volumes(Some(tenant));
        let mut all = all.map_err(|error| fault(&error))?;
        all.retain(|one| one.is_whole);
        Ok(all)
    }

    /// Finds a volume of a tenant by its id, or its name.
    pub(super) fn volume_named(&self, tenant: &str, named: &str) -> Result<Volume, Refusal> {
        let own = self.volumes_of(tenant)?;
        let by_id = own.iter().find(|one| one.id == named);
        let found = by_id.or_else(|| own.iter().find(|one| one.name == named));
        found.cloned().ok_or_else(|| no_volume(named))
    }

    /// Finds the volumes that a sandbox is to have, and takes them for it.
    pub(super) async fn mount(
        self: &Arc<Self>,
        tenant: &str,
        sandbox: &str,
        asked: &[MountAsk],
    ) -> Result<(Vec<VolumeMount>, Held), Refusal> {
        if asked.len() > MOUNTS_MAX {
            let what = format!("a sandbox has {MOUNTS_MAX} volumes at most");
            return Err(Refusal::new(Kind::Invalid, what));
        }
        let (mounts, held) = self.hold(sandbox, || {
            let mut mounts = Vec::new();
            let mut wanted = Vec::new();
            for one in asked {
                let volume = self.volume_named(tenant, &one.name)?;
                let read_only = one.read_only || volume.is_read_only;
                mounts.push(VolumeMount {
                    id: volume.id.clone(),
                    name: volume.name.clone(),
                    host: volume_files(&self.volume_place(&volume.id)),
                    inside: PathBuf::from(&one.path),
                    read_only,
                    bytes_max: volume.bytes_max,
                });
                let access = if read_only { Use::Read } else { Use::Write };
                wanted.push((volume, access));
            }
            Ok((mounts, wanted))
        })?;
        let changed = mounts.iter().filter(|mount| !mount.read_only).cloned();
        let changed: Vec<VolumeMount> = changed.collect();
        if changed.is_empty() {
            return Ok((mounts, held));
        }
        let full = spawn_blocking(move || {
            let is_full =
                |one: &VolumeMount| volume_usage(&one.host, one.bytes_max).0 > one.bytes_max;
            changed.into_iter().find(is_full)
        });
        match full.await.map_err(|error| fault(&error))? {
            None => Ok((mounts, held)),
            Some(full) => Err(is_full(&full.name, full.bytes_max)),
        }
    }

    /// Carries out a request about volumes.
    pub(super) async fn volumes(
        self: &Arc<Self>,
        caller: &Caller,
        ask: VolumesAsk,
    ) -> Result<Answered, Refusal> {
        check_maker(caller)?;
        // Whoever does not reach files gets no token for them.
        let own = |one: Volume| {
            let token = Some(one.token.clone()).filter(|_| caller.scopes.has(Scope::Files));
            let volume = self.volume_facts(one);
            OwnVolume { volume, token }
        };
        match ask {
            VolumesAsk::ListVolumes(ask) => {
                let all = self.volumes_of(&caller.tenant)?;
                ask.answer(all.into_iter().map(|one| self.volume_facts(one)).collect())
            }
            VolumesAsk::GetVolume(ask) => {
                ask.answer(own(self.volume_named(&caller.tenant, &ask.id)?))
            }
            VolumesAsk::MakeVolume(ask) => {
                ask.answer(own(self.make_volume(caller, ask.0.clone(), false).await?))
            }
            VolumesAsk::SnapshotVolume(ask) => {
                let of = self.volume_named(&caller.tenant, &ask.id)?;
                let copy = VolumeAsk {
                    name: match &ask.name {
                        Some(named) => named.clone(),
                        None => format!("snapshot-{}", name(12)?),
                    },
                    size_mib: Some(of.bytes_max.div_ceil(MIB)),
                    from: Some(of.id),
                };
                ask.answer(own(self.make_volume(caller, copy, true).await?))
            }
            VolumesAsk::RemoveVolume(ask) => ask.answer(self.remove_volume(caller, &ask.id).await?),
        }
    }

    /// Makes a volume, empty or with the files of another one: recorded first, and on disk before this
    /// returns.
    async fn make_volume(
        self: &Arc<Self>,
        caller: &Caller,
        ask: VolumeAsk,
        is_read_only: bool,
    ) -> Result<Volume, Refusal> {
        self.server.room.check(For::Sandbox)?;
        let VolumeAsk {
            name: named,
            size_mib,
            from,
        } = ask;
        check_name(&named)?;
        let most = self.server.configuration.quota.volume_mib;
        let size_mib = size_mib.unwrap_or(most);
        if !(1..=most).contains(&size_mib) {
            let what = format!("size_mib is {size_mib}, and it is 1 to {most} here");
            return Err(Refusal::new(Kind::Invalid, what)
                .advise("quota.volume_mib in serve.toml is the most"));
        }
        // Counted with those that are being made, one after the other.
        let one_by_one = self.making.lock().await;
        let own = self.server.store.volumes(Some(&caller.tenant));
        let own = own.map_err(|error| fault(&error))?;
        if own.iter().any(|one| one.name == named) {
            let what = format!("there is a volume {named:?} already");
            return Err(Refusal::new(Kind::Exists, what).advise("take another name"));
        }
        let quota = self.server.configuration.quota.volumes;
        if own.len() >= quota {
            let what = format!("the tenant has {quota} volumes, as many as it may");
            return Err(Refusal::new(Kind::Quota, what)
                .advise("delete one, or raise quota.volumes in serve.toml"));
        }
        let begun = Volume {
            id: format!("{VOLUME}{}", name(20)?),
            tenant: caller.tenant.clone(),
            name: named,
            token: name(40)?,
            bytes_max: size_mib.saturating_mul(MIB),
            is_read_only,
            origin: None,
            created_ms: milliseconds(SystemTime::now()),
            is_whole: false,
        };
        let (from, held) = self.hold(&begun.id, || match from {
            None => Ok((None, Vec::new())),
            Some(from) => {
                let of = self.volume_named(&caller.tenant, &from)?;
                Ok((Some(of.clone()), vec![(of, Use::Copy)]))
            }
        })?;
        let begun = Volume {
            origin: from.map(|of| of.id),
            ..begun
        };
        self.server
            .store
            .keep_volume(&begun)
            .map_err(|error| fault(&error))?;
        drop(one_by_one);
        let (own, record) = (Arc::clone(self), about(caller, &begun));
        let made = spawn_blocking(move || own.begin_volume(begun, record)).await;
        drop(held);
        made.map_err(|error| fault(&error)).flatten()
    }

    /// Makes the directory of a volume that is written down, or removes all of it.
    fn begin_volume(&self, begun: Volume, record: Value) -> Result<Volume, Refusal> {
        let place = self.volume_place(&begun.id);
        let origin = begun.origin.as_deref().map(|id| self.volume_place(id));
        let make = || {
            if let Some(origin) = &origin {
                let (bytes, _) = volume_usage(&volume_files(origin), begun.bytes_max);
                if bytes > begun.bytes_max {
                    return Err(is_full(&begun.name, begun.bytes_max));
                }
            }
            let recorded = self.server.engine.record_volume("created", record);
            recorded.map_err(|failure| refusal(&failure))?;
            let made = self.server.engine.make_volume(&place, origin.as_deref());
            made.map_err(|failure| refusal(&failure))?;
            let whole = Volume {
                is_whole: true,
                ..begun.clone()
            };
            let kept = self.server.store.keep_volume(&whole);
            kept.map(|()| whole).map_err(|error| fault(&error))
        };
        make().inspect_err(|_| self.drop_volume(&begun.id))
    }

    /// Removes a volume that nothing uses: recorded first.
    async fn remove_volume(self: &Arc<Self>, caller: &Caller, named: &str) -> Result<(), Refusal> {
        let user = format!("remove-{}", name(20)?);
        let (one, held) = self.hold(&user, || {
            let one = self.volume_named(&caller.tenant, named)?;
            Ok((one.clone(), vec![(one, Use::Remove)]))
        })?;
        let (own, record) = (Arc::clone(self), about(caller, &one));
        let removed = spawn_blocking(move || {
            let _held = held;
            let recorded = own.server.engine.record_volume("removed", record);
            recorded.map_err(|failure| refusal(&failure))?;
            let gone = Volume {
                is_whole: false,
                ..one
            };
            let marked = own.server.store.keep_volume(&gone);
            marked.map_err(|error| fault(&error))?;
            own.drop_volume(&gone.id);
            Ok(())
        });
        removed.await.map_err(|error| fault(&error)).flatten()
    }

    fn volume_facts(&self, one: Volume) -> VolumeFacts {
        let living = self.list.all_living();
        let has = |of: &&Arc<Living>| of.spec.volumes.iter().any(|mount| mount.id == one.id);
        let users = living.iter().filter(has);
        VolumeFacts {
            sandboxes: users.map(|one| one.spec.id.clone()).collect(),
            id: one.id,
            name: one.name,
            size_mib: one.bytes_max / MIB,
            read_only: one.is_read_only,
            from: one.origin,
            created_ms: one.created_ms,
        }
    }
}

/// Describes what is done with a volume, for the ledger.
fn about(caller: &Caller, one: &Volume) -> Value {
    json!({
        "tenant": caller.tenant,
        "caller": caller.name,
        "trace": caller.trace,
        "volume": one.id,
        "name": one.name,
        "read-only": one.is_read_only,
        "from": one.origin,
    })
}

fn check_name(text: &str) -> Result<(), Refusal> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let begins = |byte: &u8| byte.is_ascii_alphanumeric();
    let is_name = text.len() <= NAME_BYTES_MAX
        && text.as_bytes().first().is_some_and(begins)
        && text.bytes().all(fits);
    let what = || {
        format!(
            "a volume's name has up to {NAME_BYTES_MAX} letters, digits, '.', '_', '-', and begins \
             with a letter or digit"
        )
    };
    is_name
        .then_some(())
        .ok_or_else(|| Refusal::new(Kind::Invalid, what()))
}

pub(super) fn no_volume(named: &str) -> Refusal {
    Refusal::new(Kind::NotFound, format!("there is no volume {named:?}"))
}

pub(super) fn is_full(name: &str, bytes_max: u64) -> Refusal {
    let what = format!(
        "volume {name} has no room: it may take {} MiB",
        bytes_max / MIB
    );
    Refusal::new(Kind::NoSpace, what).advise("remove files of it, or mount it read-only")
}

/// Returns whether a use cannot begin while another one goes on.
fn is_against(wanted: Use, other: Use) -> bool {
    match (wanted, other) {
        (Use::Remove, _) | (_, Use::Remove) => true,
        (Use::Write, Use::Copy) | (Use::Copy, Use::Write) => true,
        (Use::Read | Use::Write | Use::Copy, _) => false,
    }
}

/// Names the sandboxes among the users of a volume, as a clause; whatever else uses it has a dash in
/// its name, or is a volume.
fn sandboxes<'a>(users: impl Iterator<Item = &'a str>) -> String {
    let is_other = |user: &&str| user.contains('-') || user.starts_with(VOLUME);
    let mut named: Vec<&str> = users.filter(|user| !is_other(user)).collect();
    let more = named.len().saturating_sub(NAMED_MAX);
    named.truncate(NAMED_MAX);
    match (named.as_slice(), more) {
        ([], _) => String::new(),
        (named, 0) => format!(" by {}", named.join(", ")),
        (named, more) => format!(" by {} and {more} others", named.join(", ")),
    }
}

fn refused(volume: &Volume, wanted: Use, other: Use, by: &str) -> Refusal {
    let (why, advice) = match (wanted, other) {
        (_, Use::Remove) => return no_volume(&volume.name),
        (Use::Remove, _) => ("it is in use", "end the sandboxes that have it"),
        (Use::Copy, _) => (
            "it is changed just now",
            "end the sandboxes that have it, or pause them",
        ),
        (Use::Read | Use::Write, _) => ("it is being copied", "try again in a moment"),
    };
    let what = format!("volume {}: {why}{by}", volume.name);
    Refusal::new(Kind::Exists, what).advise(advice)
}
