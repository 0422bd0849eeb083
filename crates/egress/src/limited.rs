//! Connections that are carried as they are, by rules that limit something.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use crate::limits::{Part, Way};
use crate::opening::Stop;

/// Carries one way until the end, and passes that on: each piece once it may pass.
pub(crate) async fn pump(
    part: &Part,
    way: Way,
    from: &ReadHalf<'_>,
    to: &mut WriteHalf<'_>,
    carried: &AtomicU64,
) -> Result<(), Stop> {
    let mut piece = vec![0; part.piece_bytes()];
    loop {
        from.readable().await?;
        let got = match from.try_read(&mut piece) {
            Ok(0) => return Ok(to.shutdown().await?),
            Ok(got) => got,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error.into()),
        };
        part.passed(way, got).await?;
        to.write_all(piece.get(..got).unwrap_or_default()).await?;
        carried.fetch_add(got as u64, Ordering::Relaxed);
    }
}
