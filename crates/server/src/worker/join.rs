//! Joins of a caller with a port of a sandbox: bytes go both ways until both have ended.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::time::timeout;

/// The longest time in which nothing comes from one side once the other has ended.
const LINGERS: Duration = Duration::from_secs(10);
/// The most that is read at once, bytes.
const BLOCK_BYTES: usize = 8 * 1024;

/// Copies both ways. A program that never closes what its caller has left holds nothing for long.
pub(super) async fn join(
    caller: impl AsyncRead + AsyncWrite + Unpin,
    port: impl AsyncRead + AsyncWrite + Unpin,
) -> io::Result<()> {
    let (from_caller, to_caller) = split(caller);
    let (from_port, to_port) = split(port);
    let moved = AtomicU64::new(0);
    let there = copy(from_caller, to_port, &moved);
    let back = copy(from_port, to_caller, &moved);
    tokio::pin!(there, back);
    tokio::select! {
        ended = &mut there => {
            ended?;
            finish(back, &moved).await
        }
        ended = &mut back => {
            ended?;
            finish(there, &moved).await
        }
    }
}

/// Goes on with one way for as long as something moves.
async fn finish(
    mut rest: impl Future<Output = io::Result<()>> + Unpin,
    moved: &AtomicU64,
) -> io::Result<()> {
    loop {
        let before = moved.load(Ordering::Relaxed);
        match timeout(LINGERS, &mut rest).await {
            Ok(ended) => return ended,
            Err(_) if moved.load(Ordering::Relaxed) == before => return Ok(()),
            Err(_) => {}
        }
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    moved: &AtomicU64,
) -> io::Result<()> {
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        let length = from.read(&mut block).await?;
        let Some(read @ [_, ..]) = block.get(..length) else {
            return to.shutdown().await;
        };
        to.write_all(read).await?;
        moved.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tokio::io::duplex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_port_that_its_caller_has_left_is_given_up() {
        let ((caller, mut front), (port, mut program)) = (duplex(100), duplex(100));
        let joined = tokio::spawn(join(caller, port));
        front.write_all(b"asked").await.unwrap();
        front.shutdown().await.unwrap();
        let mut asked = String::new();
        program.read_to_string(&mut asked).await.unwrap();
        assert_eq!(asked, "asked");
        // What still comes is passed on, however long all of it takes.
        for _ in 0..5 {
            tokio::time::sleep(LINGERS * 3 / 4).await;
            program.write_all(b"x").await.unwrap();
        }
        joined.await.unwrap().unwrap();
        let mut answered = String::new();
        front.read_to_string(&mut answered).await.unwrap();
        assert_eq!(answered, "xxxxx");
    }
}
