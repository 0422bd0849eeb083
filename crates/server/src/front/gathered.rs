//! A file that is written block by block.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use tokio::task::spawn_blocking;

/// The bytes that are gathered to be written at once.
const BLOCK_BYTES: usize = 512 * 1024;

/// Blocks that are gathered, so that each wait for a thread is for many.
pub(super) struct Gathered {
    file: Arc<File>,
    blocks: Vec<Bytes>,
    bytes: usize,
}

impl Gathered {
    pub(super) fn new(file: File) -> Self {
        Self {
            file: Arc::new(file),
            blocks: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds a block, and writes all once there are enough.
    pub(super) async fn put(&mut self, block: Bytes) -> io::Result<()> {
        self.bytes += block.len();
        self.blocks.push(block);
        match self.bytes >= BLOCK_BYTES {
            true => self.write().await,
            false => Ok(()),
        }
    }

    /// Writes all that is there.
    pub(super) async fn write(&mut self) -> io::Result<()> {
        self.bytes = 0;
        let (file, blocks) = (Arc::clone(&self.file), std::mem::take(&mut self.blocks));
        let write = move || {
            blocks
                .iter()
                .try_for_each(|block| (&*file).write_all(block))
        };
        spawn_blocking(write).await?
    }
}
