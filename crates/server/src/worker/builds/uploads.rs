//! Files that are uploaded for a build.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use atoll_engine::sandboxes::remove_home;
use sha2::{Digest, Sha256};
use tokio::fs::{File, create_dir_all, read_dir, remove_file, rename};
use tokio::io::AsyncWriteExt;

use super::super::answers::fault;
use super::super::answers::name;
use super::super::builds::Templates;
use super::super::held::Held;
use super::super::room::For;
use crate::line::{Frame, Reader};
use crate::protocol::{Kind, Refusal, Upload};

const MIB: u64 = 1 << 20;
/// The most uploads of a build.
const UPLOADS_MAX: usize = 100;

impl Templates {
    /// Removes what was uploaded to the server before.
    pub(in crate::worker) fn clear_uploads(&self) {
        let _ = remove_home(&self.uploads());
    }

    /// Returns the directory of uploaded files.
    pub(super) fn uploads(&self) -> PathBuf {
        self.server.engine.state().join("served/uploads")
    }

    /// Returns the place of an upload. What clients call it says nothing about its content.
    pub(super) fn upload_place(&self, template: &str, upload: &str) -> PathBuf {
        let named = Sha256::digest(upload.as_bytes());
        let named: String = named.iter().map(|byte| format!("{byte:02x}")).collect();
        self.uploads().join(format!("{template}.{named}"))
    }

    /// Lists what was uploaded for a template.
    async fn uploaded(&self, template: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let Ok(mut all) = read_dir(self.uploads()).await else {
            return found;
        };
        let own = format!("{template}.");
        while let Ok(Some(one)) = all.next_entry().await {
            if one.file_name().to_string_lossy().starts_with(&own) {
                found.push(one.path());
            }
        }
        found
    }

    /// Removes what was uploaded for a template.
    pub(super) async fn drop_uploads(&self, template: &str) {
        for one in self.uploaded(template).await {
            let _ = remove_file(one).await;
        }
    }

    /// Takes the frames that follow as the content of an upload.
    pub(in crate::worker) async fn take_upload(
        self: &Arc<Self>,
        ask: &Upload,
        held: &mut Held,
        reader: &mut Reader,
    ) -> Result<(), Refusal> {
        let tenant = self.builds.of_token(&ask.template, &ask.token)?;
        held.charge(&self.server.shares, &tenant, true)?;
        self.server.room.check(For::File)?;
        let error = |error: std::io::Error| fault(&error);
        create_dir_all(self.uploads()).await.map_err(error)?;
        let had = self.uploaded(&ask.template).await;
        if had.len() >= UPLOADS_MAX {
            let what = format!("a build has {UPLOADS_MAX} uploads at most");
            return Err(Refusal::new(Kind::Quota, what).advise("copy a directory at once"));
        }
        let new = self.uploads().join(format!("new{}", name(20)?));
        let taken = self.take_into(&new, &had, ask, reader).await;
        if taken.is_err() {
            let _ = remove_file(&new).await;
        }
        taken
    }

    /// Takes the frames that follow into a new file, and puts that in its place.
    async fn take_into(
        self: &Arc<Self>,
        new: &Path,
        had: &[PathBuf],
        ask: &Upload,
        reader: &mut Reader,
    ) -> Result<(), Refusal> {
        let error = |error: std::io::Error| fault(&error);
        let mut file = File::create(new).await.map_err(error)?;
        let most = self
            .server
            .configuration
            .defaults
            .disk_mib
            .saturating_mul(MIB);
        let sizes = had.iter().filter_map(|one| one.metadata().ok());
        // All of a build together.
        let mut bytes: u64 = sizes.map(|facts| facts.len()).sum();
        loop {
            match reader.next::<()>().await {
                Ok(Some(Frame::Content(_, content))) => {
                    bytes += content.len() as u64;
                    if bytes > most {
                        let what =
                            format!("uploads have {} MiB at most here, together", most / MIB);
                        return Err(Refusal::new(Kind::Invalid, what));
                    }
                    file.write_all(&content).await.map_err(error)?;
                }
                Ok(Some(Frame::End)) => break,
                Ok(_) | Err(_) => {
                    let what = "the content has not come to its end";
                    return Err(Refusal::new(Kind::Invalid, what));
                }
            }
        }
        file.flush().await.map_err(error)?;
        // What has begun to be built is not changed any more.
        self.builds.of_token(&ask.template, &ask.token)?;
        let place = self.upload_place(&ask.template, &ask.upload);
        rename(new, &place).await.map_err(error)
    }
}
