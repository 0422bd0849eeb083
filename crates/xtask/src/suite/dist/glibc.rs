//! The C library that the program runs with: an old one, whose symbols all newer ones have too.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::command;

/// The newest version of the C library whose symbols the program may use.
const NEWEST: [u32; 2] = [2, 31];
/// The prefix of the versions of its symbols.
const PREFIX: &str = "GLIBC_";

/// The target whose programs are linked with a C library other than the host's; named, so that
/// scripts and macros of the build are linked with the host's.
pub(super) const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Returns cargo's arguments that compile and link with the C library of a directory.
pub(super) fn arguments(sysroot: &Path) -> Vec<String> {
    let sysroot = sysroot.display();
    // The compiler looks into the host's own directories first, but for these.
    let flags = [
        format!("--sysroot={sysroot}"),
        format!("-B{sysroot}/usr/lib/x86_64-linux-gnu"),
        format!("-B{sysroot}/lib/x86_64-linux-gnu"),
    ];
    let linked = flags.each_ref().map(|flag| format!("'-Clink-arg={flag}'"));
    let compiled = format!("CFLAGS_{}", TARGET.replace('-', "_"));
    vec![
        "--target".to_owned(),
        TARGET.to_owned(),
        format!("--config=target.{TARGET}.rustflags=[{}]", linked.join(",")),
        format!("--config=env.{compiled}='{}'", flags.join(" ")),
    ]
}

/// Refuses a program that needs a newer C library.
pub(super) fn check(program: &Path) -> Result<()> {
    // The versions that it requires as a whole, and those of its symbols.
    let mut list = Command::new("objdump");
    let listed = command::output(list.args(["-p", "-T"]).arg(program))?;
    ensure!(
        listed.contains(PREFIX),
        "{} is linked with no C library",
        program.display()
    );
    let newer = newer(&listed);
    let [major, minor] = NEWEST;
    ensure!(
        newer.is_empty(),
        "{} needs more than glibc {major}.{minor}: {}",
        program.display(),
        newer.join(", ")
    );
    Ok(())
}

/// Returns the versions in objdump's list that the oldest C library does not have.
pub(in crate::suite) fn newer(listed: &str) -> Vec<&str> {
    let words = listed.split(|letter: char| letter.is_whitespace() || "()".contains(letter));
    let versions = words.filter_map(|word| Some((word, word.strip_prefix(PREFIX)?)));
    let is_newer = |version: &str| {
        let parts: Result<Vec<u32>, _> = version.split('.').map(str::parse).collect();
        // One without a number is of features that were added later, or nobody else's business.
        parts.map_or(true, |parts| parts.get(..2).unwrap_or(&parts) > &NEWEST[..])
    };
    let those = versions.filter(|(_, version)| is_newer(version));
    let mut newer: Vec<&str> = those.map(|(word, _)| word).collect();
    newer.sort_unstable();
    newer.dedup();
    newer
}
