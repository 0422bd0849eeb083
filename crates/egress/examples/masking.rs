//! How fast secrets are found and masked: 200 of them over 1 GiB of each kind of stream,
//! and what that adds to one small request.
//!
//! `cargo run --release -p atoll-egress --example masking [KIND]`

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

/// Kinds of streams, a block of each.
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

fn memory_kib() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    line.unwrap_or_default()
        .replace("VmHWM:", "")
        .trim()
        .to_owned()
}

fn main() {
    let mut random = Random(0x1234_5678_9ABC_DEF1);
    let secrets = secrets(&mut random);
    let start = Instant::now();
    let mut pairs = Vec::new();
    for (number, secret) in secrets.iter().enumerate() {
        let stands = placeholder(secret.as_bytes(), &[number as u8; 32]).unwrap();
        pairs.push((Secret::new(secret.clone().into_bytes()).unwrap(), stands));
    }
    let placeholders: Vec<Vec<u8>> = pairs.iter().map(|(_, stands)| stands.clone()).collect();
    let masks = Masks::new(pairs).unwrap();
    let finder = Placeholders::new(placeholders).unwrap();
    println!("made ready in {:?}", start.elapsed());
    let only = std::env::args().nth(1);
    let is_wanted = |name: &str| {
        only.as_ref()
            .is_none_or(|only| name.contains(only.as_str()))
    };
    for (name, block) in kinds(&secrets, &mut random) {
        if !is_wanted(name) {
            continue;
        }
        let mut out = Vec::new();
        let (mut mask, mut find) = (masks.stream(), finder.stream());
        let start = Instant::now();
        for chunk in block
            .chunks(CHUNK_BYTES)
            .cycle()
            .take(STREAM_BYTES / CHUNK_BYTES)
        {
            out.clear();
            mask.feed(chunk, &mut out);
        }
        let masked = start.elapsed().as_secs_f64();
        let start = Instant::now();
        for chunk in block
            .chunks(CHUNK_BYTES)
            .cycle()
            .take(STREAM_BYTES / CHUNK_BYTES)
        {
            find.feed(chunk).unwrap();
        }
        let found = start.elapsed().as_secs_f64();
        let rate = |seconds: f64| STREAM_BYTES as f64 / seconds / 1e6;
        println!(
            "{name}: masked {:.0} MB/s, searched {:.0} MB/s; memory at most {}",
            rate(masked),
            rate(found),
            memory_kib()
        );
    }
    request(&masks, &finder, &mut random);
}

/// Searches and masks what a small request and its answer have.
fn request(masks: &Masks, finder: &Placeholders, random: &mut Random) {
    let mut headers = HeaderMap::new();
    for number in 0..16 {
        let name = HeaderName::from_bytes(format!("x-header-{number}").as_bytes()).unwrap();
        headers.insert(name, HeaderValue::from_str(&random.letters(40)).unwrap());
    }
    let body = vec![b'{'; 1024];
    let rounds = 100_000;
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
    println!(
        "a request of 1 KiB each way: {:?}",
        start.elapsed() / rounds
    );
}
