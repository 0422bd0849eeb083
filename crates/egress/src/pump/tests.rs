//! Both directions of a tunnel, in a run with a credential.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::*;
use crate::secret::HOLD;
use crate::tests::{PLACEHOLDER, REAL, keyed, pair};

/// Long enough for bytes that are not held back.
const QUIET: Duration = Duration::from_millis(20);

/// Runs one direction in a task: returns its input, its output, and the outcome.
async fn carried(way: Direction) -> (TcpStream, TcpStream, JoinHandle<bool>) {
    let (near, mut from) = pair().await;
    let (mut to, far) = pair().await;
    let [out, back] = Scan::both(&keyed());
    let mut scan = if way == Direction::Up { out } else { back };
    let work = tokio::spawn(async move {
        let (from, _) = from.split();
        let (_, mut to) = to.split();
        let bytes = AtomicU64::new(0);
        pump(None, way, &mut scan, &from, &mut to, &bytes)
            .await
            .is_ok()
    });
    (near, far, work)
}

/// Sends these pieces with pauses between them, by a clock that stands still meanwhile. Returns the
/// output, and whether the direction ends well.
async fn pieces(way: Direction, pieces: &[&[u8]]) -> (Vec<u8>, bool) {
    let (mut near, mut far, work) = carried(way).await;
    let write = async {
        for piece in pieces {
            if near.write_all(piece).await.is_err() {
                return;
            }
            sleep(QUIET).await;
        }
        let _ = near.shutdown().await;
    };
    let mut seen = Vec::new();
    let ((), read) = tokio::join!(write, far.read_to_end(&mut seen));
    let ended = work.await.unwrap();
    assert!(read.is_ok() || !ended);
    (seen, ended)
}

fn written(value: &str) -> Vec<Vec<u8>> {
    let hexadecimal: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
    let wide: Vec<u8> = value.bytes().flat_map(|byte| [byte, 0]).collect();
    vec![
        value.as_bytes().to_vec(),
        hexadecimal.into_bytes(),
        STANDARD.encode(format!("a{value}")).into_bytes(),
        wide,
    ]
}

#[tokio::test(start_paused = true)]
async fn pump_placeholder_ends_connection() {
    let other: String = PLACEHOLDER.chars().rev().collect();
    for (value, ends_well) in [(PLACEHOLDER, false), (other.as_str(), true)] {
        for text in written(value) {
            let all = [&b"before "[..], &text, b" after"].concat();
            for cut in [0, 8, 7 + text.len() / 2, 7 + text.len() - 3] {
                let (first, rest) = all.split_at(cut);
                let (seen, ended) = pieces(Direction::Up, &[first, rest]).await;
                assert_eq!(ended, ends_well, "{cut} of {all:?}");
                match ends_well {
                    true => assert_eq!(seen, all, "{cut}"),
                    false => assert_eq!(seen, first, "{cut} of {all:?}"),
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pump_real_value_is_masked_at_its_length() {
    for (real, standing) in written(REAL).into_iter().zip(written(PLACEHOLDER)) {
        let around = |value: &[u8]| [&b"\x01\x02"[..], value, b"\x03\n"].concat();
        let (all, masked) = (around(&real), around(&standing));
        for cut in [0, 6, 2 + real.len() / 2, all.len() - 2] {
            let (first, rest) = all.split_at(cut);
            let (seen, ended) = pieces(Direction::Down, &[first, rest]).await;
            assert!(ended);
            // Few bytes go on at once: too few to be of use.
            let from = if cut > 2 && cut <= 9 { cut } else { 0 };
            assert_eq!(seen.len(), all.len());
            assert_eq!(seen[from..], masked[from..], "{cut} of {all:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pump_interactive_bytes_pass_at_once() {
    for way in [Direction::Up, Direction::Down] {
        let (letters, row) = typed(way).await;
        assert!(letters < HOLD, "{way:?} {letters:?}");
        // A long row that could be a value's beginning waits a little, and no longer.
        let expected = if way == Direction::Down {
            HOLD
        } else {
            Duration::ZERO
        };
        assert!(row >= expected && row < expected + QUIET, "{way:?} {row:?}");
    }
}

/// Returns the time that letters take, one after the other, and then a row of them.
async fn typed(way: Direction) -> (Duration, Duration) {
    let (mut near, mut far, work) = carried(way).await;
    let began = Instant::now();
    for letter in "ls -l\r\n".bytes() {
        near.write_all(&[letter]).await.unwrap();
        let mut echo = [0];
        far.read_exact(&mut echo).await.unwrap();
        assert_eq!(echo, [letter]);
    }
    let letters = began.elapsed();
    let began = Instant::now();
    near.write_all(b"mysql_native_password\0").await.unwrap();
    let mut row = [0; 22];
    far.read_exact(&mut row).await.unwrap();
    let waited = began.elapsed();
    near.shutdown().await.unwrap();
    assert!(work.await.unwrap());
    assert_eq!(far.read(&mut row).await.unwrap(), 0);
    (letters, waited)
}

#[tokio::test(start_paused = true)]
async fn pump_other_bytes_pass_unchanged() {
    let mut state = 7_u64;
    let all: Vec<u8> = (0..3 << 20)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect();
    let some = [&all[..1 << 20], &all[1 << 20..]];
    for way in [Direction::Up, Direction::Down] {
        let (seen, ended) = pieces(way, &some).await;
        assert!(ended && seen == all, "{way:?}");
    }
}
