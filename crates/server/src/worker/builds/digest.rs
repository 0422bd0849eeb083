//! The digest of all that a template is built from, as the server finds it.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;

use super::super::answers::fault;
use super::super::builds::Templates;
use super::super::template::Record;
use crate::protocol::{BuildPlan, BuildStep, Kind, Refusal};

const MIB: u64 = 1 << 20;
/// The bytes of an upload that are read at once.
const BLOCK_BYTES: usize = 64 * 1024;

impl Templates {
    /// Returns the digest of all that a template is built from: of uploads by their content, not by
    /// what clients say of it.
    pub(super) async fn digest_of(
        self: &Arc<Self>,
        id: &str,
        base: &Record,
        plan: &BuildPlan,
    ) -> Result<String, Refusal> {
        let most = self
            .server
            .configuration
            .defaults
            .disk_mib
            .saturating_mul(MIB);
        let mut digest = Sha256::new();
        let mut add = |text: &[u8]| {
            digest.update((text.len() as u64).to_le_bytes());
            digest.update(text);
        };
        add(base.digest.as_bytes());
        for step in &plan.steps {
            let step = match step {
                BuildStep::Copy { upload, .. } => {
                    let file = self.upload_place(id, upload);
                    add(&content_digest(&file, most).await?);
                    let mut told = step.clone();
                    if let BuildStep::Copy { upload, .. } = &mut told {
                        upload.clear();
                    }
                    told
                }
                other => other.clone(),
            };
            add(&serde_json::to_vec(&step).map_err(|error| fault(&error))?);
        }
        add(&serde_json::to_vec(&(&plan.start, &plan.ready)).map_err(|error| fault(&error))?);
        let digest = digest.finalize();
        Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// Returns whether an upload is packed.
pub(super) fn is_gzip(file: &Path) -> Result<bool, Refusal> {
    let mut first = [0; 2];
    let read = fs::File::open(file).and_then(|mut file| file.read(&mut first));
    match read {
        Ok(_) => Ok(first == [0x1f, 0x8b]),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let what = "the files of a COPY were not uploaded";
            Err(Refusal::new(Kind::Invalid, what))
        }
        Err(error) => Err(fault(&error)),
    }
}

/// Returns the digest of an upload's content; that it is packed, and when, is no part of it.
async fn content_digest(file: &Path, most: u64) -> Result<Vec<u8>, Refusal> {
    let is_packed = match is_gzip(file) {
        // That it is not there is told at its step.
        Err(refusal) if refusal.kind == Kind::Invalid => return Ok(Vec::new()),
        packed => packed?,
    };
    let file = file.to_owned();
    let digest = spawn_blocking(move || -> std::io::Result<Vec<u8>> {
        let file = fs::File::open(file)?;
        let mut content: Box<dyn Read> = match is_packed {
            true => Box::new(MultiGzDecoder::new(file).take(most)),
            false => Box::new(file),
        };
        let mut digest = Sha256::new();
        let mut block = vec![0; BLOCK_BYTES];
        loop {
            match content.read(&mut block)? {
                0 => return Ok(digest.finalize().to_vec()),
                got => digest.update(block.get(..got).unwrap_or_default()),
            }
        }
    });
    let digest = digest.await.map_err(|error| fault(&error))?;
    digest.map_err(|error| {
        Refusal::new(
            Kind::Invalid,
            format!("the files of a COPY cannot be read: {error}"),
        )
    })
}
