//! Builds the program that goes on from a file with an interpreter's memory, as one static program
//! without a library: a crate of its own would bring in more than it may have.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "src/interpreter/thaw.rs";
/// The architecture that it is written for.
const ARCHITECTURE: &str = "x86_64";

fn main() {
    if let Err(why) = build() {
        println!("cargo::error=the program thaw could not be built: {why}");
        std::process::exit(1);
    }
}

fn build() -> Result<(), String> {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name: &str| env::var(name).map_err(|_| format!("cargo did not set {name}"));
    let program = PathBuf::from(variable("OUT_DIR")?).join("thaw");
    if variable("CARGO_CFG_TARGET_ARCH")? != ARCHITECTURE {
        return fs::write(&program, "").map_err(|error| error.to_string());
    }
    let mut command = Command::new(variable("RUSTC")?);
    command.args(["--edition", "2024", "--crate-name", "thaw"]);
    command.args(["--target", "x86_64-unknown-linux-gnu"]);
    let code = [
        "opt-level=s",
        "panic=abort",
        "relocation-model=pie",
        "target-feature=+crt-static",
        "strip=symbols",
        "link-args=-nostartfiles -nostdlib -static-pie",
    ];
    for option in code {
        command.args(["-C", option]);
    }
    let status = command.arg(SOURCE).arg("-o").arg(&program).status();
    match status.map_err(|error| format!("rustc: {error}"))? {
        status if status.success() => Ok(()),
        status => Err(format!("rustc ended with {status}")),
    }
}
