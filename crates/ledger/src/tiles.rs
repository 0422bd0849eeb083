//! Export of the ledger as a directory to serve to clients of C2SP's tiled logs (tlog-tiles).

use std::path::{Path, PathBuf};

use crate::proof::{ProofFault, Prover};
use crate::{FileFault, LedgerError, StateDir};

/// The width of a full tile in hashes, and of a full bundle in events.
const TILE_WIDTH: usize = 256;
/// The height of the subtree that a full tile represents.
const TILE_HEIGHT: usize = 8;

/// The result of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportedTiles {
    /// The number of events that the checkpoint covers.
    pub events: u64,
    /// The number of tiles of hashes.
    pub tiles: u64,
    /// The number of bundles of events.
    pub bundles: u64,
    /// The events that are too large for a bundle, whose lengths have 16 bits: their bundles
    /// are left out. Their hashes are there.
    pub too_large: Vec<u64>,
}

/// Writes the newest checkpoint and the tiles and bundles of its tree. Files of an earlier export
/// may stay: tiles do not change. The checkpoint is written last.
///
/// # Errors
/// [`ProofFault`].
pub fn export_tiles(state: &StateDir, directory: &Path) -> Result<ExportedTiles, ProofFault> {
    let mut exported = ExportedTiles::default();
    let mut bundle = Bundle::default();
    let prover = Prover::read_with(state, |event| {
        let seq = event.position.seq;
        let bytes = event.canonical().map_err(|why| LedgerError::Body {
            kind: event.kind.clone(),
            why,
        })?;
        match u16::try_from(bytes.len()) {
            Ok(length) => {
                bundle.content.extend_from_slice(&length.to_be_bytes());
                bundle.content.extend_from_slice(&bytes);
            }
            Err(_) => bundle.too_large.push(seq),
        }
        bundle.width += 1;
        if bundle.width == TILE_WIDTH {
            std::mem::take(&mut bundle).write(directory, seq, &mut exported)?;
        }
        Ok(())
    })?;
    exported.events = prover.checkpoint().size();
    if bundle.width > 0 {
        bundle.write(directory, exported.events - 1, &mut exported)?;
    }
    for level in 0.. {
        let hashes = prover.tree().level(level * TILE_HEIGHT);
        if hashes.is_empty() {
            break;
        }
        for (number, tile) in hashes.chunks(TILE_WIDTH).enumerate() {
            let place = tile_path(&level.to_string(), number as u64, tile.len());
            let bytes: Vec<u8> = tile.iter().flat_map(|hash| *hash.as_bytes()).collect();
            write(&directory.join(place), &bytes)?;
            exported.tiles += 1;
        }
    }
    let checkpoint = prover.checkpoint().text();
    write(&directory.join("checkpoint"), checkpoint.as_bytes())?;
    Ok(exported)
}

/// A bundle of events, each after its length.
#[derive(Default)]
struct Bundle {
    content: Vec<u8>,
    width: usize,
    too_large: Vec<u64>,
}

impl Bundle {
    /// Writes the bundle that ends with this event.
    fn write(
        mut self,
        directory: &Path,
        last: u64,
        exported: &mut ExportedTiles,
    ) -> Result<(), LedgerError> {
        if !self.too_large.is_empty() {
            exported.too_large.append(&mut self.too_large);
            return Ok(());
        }
        let number = last / TILE_WIDTH as u64;
        let place = tile_path("entries", number, self.width);
        write(&directory.join(place), &self.content)?;
        exported.bundles += 1;
        Ok(())
    }
}

/// Returns the path of a tile: `tile/0/x001/x234/067`, and `.p/112` after it for one of 112 hashes
/// that is not full.
fn tile_path(level: &str, number: u64, width: usize) -> PathBuf {
    let digits = number.to_string();
    let digits = format!("{}{digits}", "0".repeat((3 - digits.len() % 3) % 3));
    let mut place = PathBuf::from("tile").join(level);
    let parts = digits.len() / 3;
    let part = |at: usize| digits.get(at * 3..at * 3 + 3).unwrap_or_default();
    for at in 1..parts {
        place.push(format!("x{}", part(at - 1)));
    }
    let last = part(parts.saturating_sub(1));
    match width {
        TILE_WIDTH => place.join(last),
        width => place.join(format!("{last}.p")).join(width.to_string()),
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), LedgerError> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let directory = path.parent().unwrap_or(path);
    let written = std::fs::create_dir_all(directory)
        .and_then(|()| std::fs::write(&new, bytes))
        .and_then(|()| std::fs::rename(&new, path));
    Ok(written.map_err(FileFault::on("write", path))?)
}
