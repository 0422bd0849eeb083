//! The files of volumes, read and written for callers without a sandbox. What changes one is recorded
//! before it happens.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use atoll_engine::sandboxes::{VolumeEntry, VolumeFiles, VolumeWrite, volume_files, volume_usage};
use atoll_model::VOLUME_INODES_MAX;
use atoll_store::{Scope, Volume};
use serde_json::json;
use tokio::task::spawn_blocking;

use super::answers::Answer;
use super::answers::Answered;
use super::answers::fault;
use super::answers::name;
use super::answers::refusal;
use super::caller::Caller;
use super::caller::check_maker;
use super::files::part;
use super::held::Held;
use super::room::For;
use super::tokens::is_equal;
use super::volumes;
use super::volumes::Volumes;
use super::volumes::{Use, is_full, no_volume};
use crate::line::{Frame, Reader, Writer};
use crate::protocol::{
    ContentAsk, ContentFacts, Credential, Kind, ReadContent, Refusal, WriteContent,
};

/// The longest path, bytes (PATH_MAX).
const PATH_BYTES_MAX: usize = 4096;
/// The deepest that a list goes.
const DEPTH_MAX: u32 = 64;
/// The time between two looks at the room that is left, while a file is written.
const COUNTED_EVERY: Duration = Duration::from_millis(500);
/// A count is good for as many times what it took.
const COUNT_SHARE: u32 = 10;
/// The unit of a file's disk usage, bytes (stat(2)).
const BLOCK_BYTES: u64 = 512;

/// The last counts of volumes, by id.
pub(super) type AllCounted = BTreeMap<String, Counted>;

/// The content of a volume, as counted, with what has been written by the API since.
#[derive(Debug)]
pub(super) struct Counted {
    bytes: u64,
    files: u64,
    until: Instant,
}

/// A request, and whoever makes it.
pub(super) struct Asked {
    credential: Credential,
    volume: String,
    trace: Option<String>,
}

impl Asked {
    pub(super) fn new(credential: Credential, volume: String, trace: Option<String>) -> Self {
        Self {
            credential,
            volume,
            trace,
        }
    }
}

impl Volumes {
    /// Carries out a request about files of a volume.
    pub(super) async fn content(
        self: &Arc<Self>,
        asked: Asked,
        ask: ContentAsk,
        held: &mut Held,
        reader: &mut Reader,
        writer: &mut Writer,
    ) -> Result<Answered, Refusal> {
        let (volume, caller) = self.reached(&asked).await?;
        held.charge(&self.server.shares, &volume.tenant, true)?;
        if ask.path().len() > PATH_BYTES_MAX {
            return Err(Refusal::new(Kind::Invalid, "the path is too long"));
        }
        let _held = match ask.change() {
            Some(change) => Some(
                self.begin_change(&asked, &volume, caller, &ask, change)
                    .await?,
            ),
            None => None,
        };
        let path = ask.path().to_owned();
        match ask {
            ContentAsk::StatContent(ask) => {
                let stat = move |files: &VolumeFiles| files.stat(&path);
                ask.answer(facts(self.with_files(&volume, &ask.path, stat).await?))
            }
            ContentAsk::ListContent(ask) => {
                let depth = ask.depth.min(DEPTH_MAX);
                let list = move |files: &VolumeFiles| files.list(&path, depth);
                let all = self.with_files(&volume, &ask.path, list).await?;
                ask.answer(all.into_iter().map(facts).collect())
            }
            ContentAsk::ReadContent(ask) => self.read_content(&volume, &ask, writer).await,
            ContentAsk::WriteContent(ask) => {
                ask.close(self.write_content(&volume, &ask, reader, writer).await?)
            }
            ContentAsk::MakeContentDirectory(ask) => {
                self.server.room.check(For::File)?;
                self.check_room(&volume, 0, true).await?;
                let (mode, parents) = (ask.mode, ask.parents);
                let make = move |files: &VolumeFiles| files.make_directory(&path, mode, parents);
                ask.answer(facts(self.with_files(&volume, &ask.path, make).await?))
            }
            ContentAsk::SetContentMode(ask) => {
                let mode = ask.mode;
                let set = move |files: &VolumeFiles| match mode {
                    Some(mode) => files.set_mode(&path, mode),
                    None => files.stat(&path),
                };
                ask.answer(facts(self.with_files(&volume, &ask.path, set).await?))
            }
            ContentAsk::RemoveContent(ask) => {
                let aside = name(20)?;
                let remove = move |files: &VolumeFiles| files.remove(&path, &aside);
                let removed = self.with_files(&volume, &ask.path, remove).await;
                self.forget_count(&volume.id);
                ask.answer(removed?)
            }
        }
    }

    /// Holds a volume that is to be changed, and records that first.
    async fn begin_change(
        self: &Arc<Self>,
        asked: &Asked,
        volume: &Volume,
        caller: Option<String>,
        ask: &ContentAsk,
        change: &'static str,
    ) -> Result<volumes::Held, Refusal> {
        if volume.is_read_only {
            let what = format!("volume {} is a snapshot, which nobody changes", volume.name);
            return Err(Refusal::new(Kind::Forbidden, what)
                .advise("make a volume from it: POST /v1/volumes with `from`"));
        }
        let user = format!("content-{}", name(20)?);
        let ((), held) = self.hold(&user, || {
            // As it is now: it may have been removed meanwhile.
            let now = self.volume_named(&volume.tenant, &volume.id)?;
            Ok(((), vec![(now, Use::Write)]))
        })?;
        let record = json!({
            "tenant": volume.tenant,
            "caller": caller,
            "trace": asked.trace,
            "volume": volume.id,
            "name": volume.name,
            "path": ask.path(),
        });
        let own = Arc::clone(self);
        let recorded =
            spawn_blocking(move || own.server.engine.record_volume(change, record)).await;
        let recorded = recorded.map_err(|error| fault(&error))?;
        recorded.map_err(|failure| refusal(&failure))?;
        Ok(held)
    }

    /// Finds the volume of a request, by its own token or by a key; and the caller that the key tells.
    pub(super) async fn reached(&self, asked: &Asked) -> Result<(Volume, Option<String>), Refusal> {
        let found = self.server.store.volume(&asked.volume);
        let found = found.map_err(|error| fault(&error))?;
        if let (Credential::Key(token), Some(one)) = (&asked.credential, found)
            && one.is_whole
            && is_equal(token, &one.token)
        {
            return Ok((one, None));
        }
        let caller: Caller = self
            .callers
            .caller(&asked.credential, &[Scope::Files])
            .await?;
        check_maker(&caller).map_err(|_| no_volume(&asked.volume))?;
        let one = self.volume_named(&caller.tenant, &asked.volume)?;
        Ok((one, Some(caller.name)))
    }

    /// Does something with the files of a volume, on a thread for as long as the disk takes.
    async fn with_files<T: Send + 'static>(
        self: &Arc<Self>,
        volume: &Volume,
        path: &str,
        work: impl FnOnce(&VolumeFiles) -> io::Result<T> + Send + 'static,
    ) -> Result<T, Refusal> {
        let (own, place) = (Arc::clone(self), self.volume_place(&volume.id));
        let done = spawn_blocking(move || work(&own.server.engine.open_volume(&place)?)).await;
        let done = done.map_err(|error| fault(&error))?;
        done.map_err(|error| Refusal::of_file(path, &error))
    }

    async fn read_content(
        self: &Arc<Self>,
        volume: &Volume,
        ask: &ReadContent,
        writer: &mut Writer,
    ) -> Result<Answered, Refusal> {
        let at = ask.path.clone();
        let open = move |files: &VolumeFiles| {
            let file = files.read(&at)?;
            let size = file.metadata()?.len();
            Ok((file, size))
        };
        let (file, size) = self.with_files(volume, &ask.path, open).await?;
        let sent = async {
            writer.reply(ask, part(size, ask.range)).await?;
            writer.descriptor(file.as_fd()).await
        };
        Ok(Answered::Written(sent.await))
    }

    /// Hands over a file to write, and puts it in its place once all of it has come.
    async fn write_content(
        self: &Arc<Self>,
        volume: &Volume,
        ask: &WriteContent,
        reader: &mut Reader,
        writer: &mut Writer,
    ) -> Result<ContentFacts, Refusal> {
        self.server.room.check(For::File)?;
        self.check_room(volume, 0, false).await?;
        let staged = name(20)?;
        let stage = move |files: &VolumeFiles| files.stage(&staged);
        let staged = self.with_files(volume, &ask.path, stage).await?;
        let came = async {
            let handed = async {
                writer.reply(ask, ()).await?;
                writer.descriptor(staged.file.as_fd()).await?;
                reader.next::<()>().await
            };
            tokio::select! {
                came = handed => match came {
                    Ok(Some(Frame::End)) => {
                        self.check_room(volume, size(&staged.file), true).await
                    }
                    Ok(_) | Err(_) => {
                        Err(Refusal::new(Kind::Invalid, "the content has not come to its end"))
                    }
                },
                refusal = self.no_room(volume, &staged.file) => Err(refusal),
            }
        };
        let came = came.await;
        let to = VolumeWrite {
            path: ask.path.clone(),
            mode: ask.mode,
            replaces: ask.replaces,
        };
        let finish = move |files: &VolumeFiles| match came {
            Ok(()) => files.finish(&staged, &to).map(Ok),
            Err(refusal) => {
                files.abandon(&staged);
                Ok(Err(refusal))
            }
        };
        let entry = self.with_files(volume, &ask.path, finish).await??;
        Ok(facts(entry))
    }

    fn all_counted(&self) -> MutexGuard<'_, AllCounted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a volume counted anew by whoever needs it next.
    pub(super) fn forget_count(&self, volume: &str) {
        self.all_counted().remove(volume);
    }

    /// Checks that a volume has room for a file of this size, which counts from now on if it is taken.
    async fn check_room(&self, volume: &Volume, bytes: u64, takes: bool) -> Result<(), Refusal> {
        let is_good = |one: &Counted| Instant::now() < one.until;
        let is_counted = self.all_counted().get(&volume.id).is_some_and(is_good);
        if !is_counted {
            let files = volume_files(&self.volume_place(&volume.id));
            let (most, begun) = (volume.bytes_max, Instant::now());
            let counted = spawn_blocking(move || volume_usage(&files, most)).await;
            let (bytes, files) = counted.map_err(|error| fault(&error))?;
            let counted = Counted {
                bytes,
                files,
                until: Instant::now() + begun.elapsed() * COUNT_SHARE,
            };
            self.all_counted().insert(volume.id.clone(), counted);
        }
        let mut counts = self.all_counted();
        let Some(counted) = counts.get_mut(&volume.id) else {
            // It is being removed.
            return Err(no_volume(&volume.name));
        };
        let with = counted.bytes.saturating_add(bytes);
        if with > volume.bytes_max || counted.files >= VOLUME_INODES_MAX {
            return Err(is_full(&volume.name, volume.bytes_max));
        }
        if takes {
            counted.bytes = with;
            counted.files += 1;
        }
        Ok(())
    }

    /// Waits until there is no room left for a file that is being written.
    async fn no_room(&self, volume: &Volume, file: &File) -> Refusal {
        loop {
            tokio::time::sleep(COUNTED_EVERY).await;
            let room = match self.server.room.check(For::File) {
                Ok(()) => self.check_room(volume, size(file), false).await,
                refused => refused,
            };
            if let Err(refusal) = room {
                return refusal;
            }
        }
    }
}

/// Returns the room that a file takes on the disk.
fn size(file: &File) -> u64 {
    file.metadata()
        .map_or(0, |facts| facts.blocks() * BLOCK_BYTES)
}

fn facts(entry: VolumeEntry) -> ContentFacts {
    let nanoseconds = |time: i128| i64::try_from(time).unwrap_or_default();
    ContentFacts {
        path: entry.path,
        kind: entry.kind.to_owned(),
        size: entry.size,
        mode: entry.mode,
        uid: entry.uid,
        gid: entry.gid,
        accessed_ns: nanoseconds(entry.accessed_ns),
        modified_ns: nanoseconds(entry.modified_ns),
        changed_ns: nanoseconds(entry.changed_ns),
        target: entry.target,
    }
}
