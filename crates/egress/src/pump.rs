//! One direction of a tunnel.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BufMut;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use crate::limits::{BudgetShare, Direction, passed};
use crate::opening::StopReason;
use crate::scan::Scan;

/// The largest block that is carried at once, bytes.
const BLOCK_BYTES: usize = 128 * 1024;

/// Carries one direction to its end, and passes the end on: each piece once its rule's limits let
/// it pass. No buffer is held while nothing comes: most connections are idle most of the time.
///
/// # Errors
/// [`StopReason`]: nothing more passes.
pub(crate) async fn pump(
    part: Option<&BudgetShare>,
    way: Direction,
    scan: &mut Scan,
    from: &ReadHalf<'_>,
    to: &mut WriteHalf<'_>,
    carried: &AtomicU64,
) -> Result<(), StopReason> {
    let piece_bytes = part.map_or(BLOCK_BYTES, BudgetShare::piece_bytes);
    loop {
        tokio::select! {
            ready = from.readable() => ready?,
            late = scan.late() => {
                write(to, &late, carried).await?;
                continue;
            }
        }
        let mut block = Vec::with_capacity(piece_bytes);
        let mut masked = Vec::new();
        loop {
            block.clear();
            match from.try_read_buf(&mut (&mut block).limit(piece_bytes)) {
                Ok(0) => {
                    write(to, &scan.end(), carried).await?;
                    return Ok(to.shutdown().await?);
                }
                Ok(got) => {
                    let on = scan.at(&block, got == piece_bytes, &mut masked)?;
                    passed(part, way, got).await?;
                    write(to, on, carried).await?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        write(to, &scan.pause(), carried).await?;
    }
}

async fn write(to: &mut WriteHalf<'_>, bytes: &[u8], carried: &AtomicU64) -> io::Result<()> {
    if !bytes.is_empty() {
        to.write_all(bytes).await?;
        carried.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
