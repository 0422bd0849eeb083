//! The users of a system that root in a served sandbox changes.

use std::fs;
use std::io;
use std::path::Path;

use atoll_model::RESIDENT;

/// The ids of persons begin here (login.defs(5)).
const PERSONS_FROM: u32 = 1000;
/// The longest list of users that is changed, bytes.
const USERS_BYTES_MAX: u64 = 1 << 20;
/// The id of nobody.
const NOBODY: u32 = 65_534;

/// Makes the resident a user of the system whose /etc is in this directory, which no program writes
/// to meanwhile; a host's own persons are left out where it is a copy of the host's.
///
/// # Errors
/// The kernel's.
pub(crate) fn ensure_resident(etc: &Path, is_host: bool) -> io::Result<()> {
    let user = RESIDENT;
    let (name, uid, gid, home) = (user.name, user.uid, user.gid, user.home);
    add(
        &etc.join("passwd"),
        &format!("{name}:x:{uid}:{gid}::{home}:/bin/bash"),
        is_host,
    )?;
    add(&etc.join("group"), &format!("{name}:x:{gid}:"), is_host)
}

fn add(file: &Path, line: &str, is_host: bool) -> io::Result<()> {
    // A link could lead anywhere.
    let is_usual = |facts: fs::Metadata| facts.is_file() && facts.len() <= USERS_BYTES_MAX;
    if !fs::symlink_metadata(file).is_ok_and(is_usual) {
        return Ok(());
    }
    let text = fs::read(file)?;
    let text = String::from_utf8_lossy(&text);
    let name = line.split(':').next();
    let is_kept = |one: &&str| {
        let mut fields = one.split(':');
        if fields.next() == name {
            return false;
        }
        let id = fields.nth(1).and_then(|id| id.parse::<u32>().ok());
        !is_host || id.is_some_and(|id| id < PERSONS_FROM || id == NOBODY)
    };
    let mut lines: Vec<&str> = text.lines().filter(is_kept).collect();
    lines.push(line);
    fs::write(file, lines.join("\n") + "\n")
}
