//! The speed of searching and masking secrets, on one thread: 200 of them over 1 GiB of each kind
//! of stream, and the time they add to one small request. Prints JSON.
//!
//! `cargo xtask bench identity` calls it, and defines the targets; alone it is `cargo run --release
//! -p atoll-egress --example masking [KIND]`.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a measurement ends where something is wrong"
)]

use std::time::Instant;

use atoll_egress::secret::{Masks, Placeholders, Secret, placeholder};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

/// The number of rounds of every measurement.
const ROUNDS: usize = 3;
const SECRETS: usize = 200;
const STREAM_BYTES: usize = 1 << 30;
const BLOCK_BYTES: usize = 16 << 20;
const CHUNK_BYTES: usize = 16 << 10;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn letters(&mut self, count: usize) -> String {
        let all = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        (0..count)
            .map(|_| char::from(all[self.next() as usize % 62]))
            .collect()
    }
}

fn secrets(random: &mut Random) -> Vec<String> {
    let of = |number: usize, random: &mut Random| match number % 5 {
        0 => format!("sk-ant-api03-{}", random.letters(95)),
        1 => format!("ghp_{}", random.letters(36)),
        2 => format!("sk-proj-{}", random.letters(48)),
        3 => random.letters(16),
        _ => format!("xoxb-123456789012-{}", random.letters(24)),
    };
    (0..SECRETS).map(|number| of(number, random)).collect()
}

fn percent(text: &[u8]) -> String {
    text.iter().map(|byte| format!("%{byte:02X}")).collect()
}

/// Returns the kinds of streams, a block of each.
fn kinds(secrets: &[String], random: &mut Random) -> Vec<(&'static str, Vec<u8>)> {
    let mut prose = Vec::new();
    let mut json = Vec::new();
    let mut mixed = Vec::new();
    let mut number = 0;
    while json.len() < BLOCK_BYTES {
        let words: Vec<String> = (0..12)
            .map(|_| {
                let length = 2 + random.next() as usize % 9;
                random.letters(length).to_lowercase()
            })
            .collect();
        let line = words.join(" ");
        prose.extend(format!("{line}.\n").bytes());
        json.extend(format!("{{\"text\":\"{line}\\n\\t\\\"quoted\\\"\"}},").bytes());
        mixed.extend(line.bytes());
        if random.next().is_multiple_of(20) {
            number += 1;
            let secret = secrets[number % SECRETS].as_bytes();
            let hexadecimal: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
            let form = match number % 4 {
                0 => String::from_utf8_lossy(secret).into_owned(),
                1 => STANDARD.encode([b"x:", secret].concat()),
                2 => percent(secret),
                _ => hexadecimal,
            };
            mixed.extend(format!(" {form} ").bytes());
        }
    }
    let noise: Vec<u8> = (0..BLOCK_BYTES / 8)
        .flat_map(|_| random.next().to_le_bytes())
        .collect();
    vec![
        ("prose", prose),
        ("JSON with escapes", json),
        ("prose with secrets in all forms", mixed),
        ("base64", STANDARD.encode(&noise).into_bytes()),
        (
            "all percent-encoded",
            percent(&noise[..BLOCK_BYTES / 3]).into_bytes(),
        ),
        ("noise", noise),
    ]
}

/// Returns the peak memory of this process, KiB (proc_pid_status(5), `VmHWM`).
fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let number = line.unwrap().split_whitespace().nth(1).unwrap();
    number.parse().unwrap()
}

/// Returns the speed at which this takes the chunks of a stream of that length, the block repeated,
/// MB/s.
fn rate(block: &[u8], stream_bytes: usize, mut take: impl FnMut(&[u8])) -> f64 {
    let chunks = block.chunks(CHUNK_BYTES).cycle();
    let start = Instant::now();
    for chunk in chunks.take(stream_bytes / CHUNK_BYTES) {
        take(chunk);
    }
    stream_bytes as f64 / start.elapsed().as_secs_f64() / 1e6
}

fn main() {
    let mut random = Random(0x1234_5678_9ABC_DEF1);
    let secrets = secrets(&mut random);
    let mut pairs = Vec::new();
    for (number, secret) in secrets.iter().enumerate() {
        let stands = placeholder(secret.as_bytes(), &[number as u8; 32]).unwrap();
        pairs.push((Secret::new(secret.clone().into_bytes()).unwrap(), stands));
    }
    let placeholders: Vec<Vec<u8>> = pairs.iter().map(|(_, stands)| stands.clone()).collect();
    let masks = Masks::new(pairs).unwrap();
    let finder = Placeholders::new(placeholders).unwrap();
    let only = std::env::args().nth(1);
    let is_wanted = |name: &str| {
        only.as_ref()
            .is_none_or(|only| name.contains(only.as_str()))
    };
    let kinds: Vec<_> = kinds(&secrets, &mut random)
        .into_iter()
        .filter(|(name, _)| is_wanted(name))
        .map(|(name, block)| (name, block, Vec::new(), Vec::new()))
        .collect();
    let measured = measure(&masks, &finder, kinds);
    let request_ns: Vec<f64> = (0..ROUNDS)
        .map(|_| request(&masks, &finder, &mut random))
        .collect();
    println!(
        "{}",
        json!({ "kinds": measured, "request_ns": request_ns, "memory_kib": memory_kib() })
    );
}

/// A kind of stream, a block of it, and the speeds at which it was masked and searched, MB/s.
type Kind = (&'static str, Vec<u8>, Vec<f64>, Vec<f64>);

/// Measures all kinds in turn, in several rounds.
fn measure(masks: &Masks, finder: &Placeholders, mut kinds: Vec<Kind>) -> Vec<Value> {
    let mut out = Vec::with_capacity(4 * CHUNK_BYTES);
    let mut grown_kib = vec![0; kinds.len()];
    for _ in 0..ROUNDS {
        for ((_, block, masked, searched), grown) in kinds.iter_mut().zip(&mut grown_kib) {
            let (mut mask, mut find) = (masks.stream(), finder.stream());
            let mut through = |chunk: &[u8]| {
                out.clear();
                mask.feed(chunk, &mut out);
            };
            // Whatever is set up at the first bytes is no growth.
            rate(block, block.len(), &mut through);
            let before_kib = memory_kib();
            masked.push(rate(block, STREAM_BYTES, &mut through));
            searched.push(rate(block, STREAM_BYTES, |chunk| find.feed(chunk).unwrap()));
            *grown = (*grown).max(memory_kib() - before_kib);
        }
    }
    let told = |((name, _, masked, searched), grown): (Kind, u64)| {
        json!({
            "name": name, "masked_mb_s": masked, "searched_mb_s": searched, "grown_kib": grown,
        })
    };
    kinds.into_iter().zip(grown_kib).map(told).collect()
}

/// Searches and masks a small request and its response. Returns the time for one, nanoseconds.
fn request(masks: &Masks, finder: &Placeholders, random: &mut Random) -> f64 {
    let mut headers = HeaderMap::new();
    for number in 0..16 {
        let name = HeaderName::from_bytes(format!("x-header-{number}").as_bytes()).unwrap();
        headers.insert(name, HeaderValue::from_str(&random.letters(40)).unwrap());
    }
    let body = vec![b'{'; 1024];
    let rounds = 100_000_u32;
    let mut out = Vec::new();
    let start = Instant::now();
    for _ in 0..rounds {
        assert!(finder.find(b"/v1/messages?beta=true").is_none());
        assert!(finder.find_in_headers(&headers).is_none());
        finder.stream().feed(&body).unwrap();
        masks.headers(&mut headers);
        let mut mask = masks.stream();
        mask.feed(&body, &mut out);
        mask.release(&mut out);
        out.clear();
    }
    start.elapsed().as_nanos() as f64 / f64::from(rounds)
}
