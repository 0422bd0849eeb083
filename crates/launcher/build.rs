//! Builds the launcher (`jail`, with `init` in it) as one static program and
//! hands its path to the library, which embeds the bytes.
//!
//! A plain `cargo build` must yield a working `atoll`, and cargo cannot yet embed
//! one package's program in another (artifact dependencies are unstable). So
//! this script runs a cargo of its own. That one needs a target directory of
//! its own: the outer cargo holds the lock of the usual one until this script
//! ends, and both would wait for each other for ever.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates that the launcher is made of.
const SOURCES: [&str; 6] = ["fence", "frame", "guest", "init", "jail", "sys"];
/// The profile in the workspace's Cargo.toml: small, and the same for debug and
/// release builds of `atoll`, so that tests meet the program that users get.
const PROFILE: &str = "jail";

fn main() {
    if let Err(why) = build() {
        println!("cargo::error=the launcher could not be built: {why}");
        std::process::exit(1);
    }
}

fn build() -> Result<(), String> {
    let variable = |name: &str| env::var(name).map_err(|_| format!("cargo did not set {name}"));
    let crates = PathBuf::from(variable("CARGO_MANIFEST_DIR")?).join("..");
    let workspace = crates.join("..");
    for source in SOURCES {
        println!("cargo::rerun-if-changed={}", crates.join(source).display());
    }
    println!(
        "cargo::rerun-if-changed={}",
        workspace.join("Cargo.toml").display()
    );
    println!(
        "cargo::rerun-if-changed={}",
        workspace.join("Cargo.lock").display()
    );
    let architecture = variable("CARGO_CFG_TARGET_ARCH")?;
    let target = format!("{architecture}-unknown-linux-gnu");
    let weakened = env::var_os("CARGO_FEATURE_WITHOUT_DEFENCES").is_some();
    let features = if weakened { "without_defences" } else { "" };
    let directory = shared(&PathBuf::from(variable("OUT_DIR")?), weakened);
    let mut command = cargo(&variable("CARGO")?, &workspace, &target, &directory);
    command.args(["--features", features]);
    run(&mut command)?;
    let program = directory.join(&target).join(PROFILE).join("atoll-jail");
    if !program.is_file() {
        return Err(format!("{} was not made", program.display()));
    }
    // The shared one may be built anew for others before the library is compiled.
    let own = PathBuf::from(variable("OUT_DIR")?).join("atoll-jail");
    std::fs::copy(&program, &own).map_err(|error| format!("{}: {error}", own.display()))?;
    println!("cargo::rustc-env=ATOLL_LAUNCHER={}", own.display());
    Ok(())
}

/// Returns the directory to build in, which all profiles share: the launcher is the same in each.
/// Two sets of features would build it anew in turns, so each has its own.
fn shared(own: &Path, weakened: bool) -> PathBuf {
    let name = if weakened { "weakened" } else { "ordinary" };
    // …/target/debug/build/atoll-launcher-…/out
    let target = own.ancestors().nth(4).unwrap_or(own);
    target.join("launcher").join(name)
}

fn cargo(cargo: &str, workspace: &Path, target: &str, directory: &Path) -> Command {
    let mut command = Command::new(cargo);
    command
        .current_dir(workspace)
        .args(["build", "--quiet", "--locked", "--package", "atoll-jail"])
        .args(["--profile", PROFILE, "--target", target, "--target-dir"])
        .arg(directory)
        // A program without an interpreter or libraries of the host's: nothing
        // there can change what it does, and it starts faster.
        .env(
            "RUSTFLAGS",
            "-C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs",
        );
    // What the outer cargo says about its own build is not meant for this one.
    for name in [
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_TARGET_DIR",
        "CARGO_BUILD_TARGET",
        "RUSTC_WORKSPACE_WRAPPER",
        "CARGO_MAKEFLAGS",
        "MAKEFLAGS",
    ] {
        command.env_remove(name);
    }
    command
}

fn run(command: &mut Command) -> Result<(), String> {
    let status = command
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("cargo ended with {status}"))
    }
}
