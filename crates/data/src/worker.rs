//! The program of a scanner, inside its sandbox.

use std::io::{self, Read, Write};

use atoll_scan::{Finding, Rules, Scanner, VERSION, scan};
use serde::{Deserialize, Serialize};

/// The first argument by which the program `atoll` is a scanner; the scanner's name follows.
pub const SCAN_WORKER: &str = "scan-worker";

/// The answer of a scanner.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answer {
    pub(crate) version: u32,
    pub(crate) findings: Vec<Finding>,
}

/// Scans standard input by the scanner of this name, and writes what it has found; fails where it could
/// not look at all of it. First come the bytes of the rules and their number (8 bytes, the lowest
/// first), then the content.
///
/// # Errors
/// The reason.
pub fn work(scanner: &str) -> Result<(), String> {
    let scanner = Scanner::named(scanner).ok_or("there is no such scanner")?;
    let told = |error: io::Error| error.to_string();
    let mut input = io::stdin().lock();
    let mut length = [0; 8];
    input.read_exact(&mut length).map_err(told)?;
    let mut rules = String::new();
    let mut of_rules = (&mut input).take(u64::from_le_bytes(length));
    of_rules.read_to_string(&mut rules).map_err(told)?;
    let rules = match rules.is_empty() {
        true => Rules::built_in(),
        false => Rules::read(&rules),
    };
    let rules = rules.map_err(|error| format!("the rules: {error}"))?;
    let mut content = Vec::new();
    input.read_to_end(&mut content).map_err(told)?;
    let findings = scan(scanner, &content, &rules).map_err(|error| error.to_string())?;
    let answer = Answer {
        version: VERSION,
        findings,
    };
    let text = serde_json::to_vec(&answer).map_err(|error| error.to_string())?;
    io::stdout().lock().write_all(&text).map_err(told)
}
