//! Makes a sandbox over a directory, works in it, looks at what changed, and ends it.
//!
//! Usage: `sandbox DIRECTORY`.

use std::io::{Read, Write};
use std::path::Path;

use atoll_engine::failure::Failure;
use atoll_engine::roles;
use atoll_engine::sandboxes::{CreateSandbox, Engine, Requested};
use atoll_launcher::LAUNCHER;

fn main() {
    let arguments: Vec<_> = std::env::args_os().collect();
    if let Some(status) = roles::take(&arguments) {
        std::process::exit(status.into());
    }
    let Some(directory) = arguments.get(1) else {
        eprintln!("usage: sandbox DIRECTORY");
        std::process::exit(2);
    };
    if let Err(failure) = work(Path::new(directory)) {
        eprintln!("{failure:?}");
        std::process::exit(1);
    }
}

fn work(directory: &Path) -> Result<(), Failure> {
    let io = |error: std::io::Error| Failure::new("a file cannot be used").because(error);
    let engine = Engine::open(LAUNCHER)?;
    let workspace = directory.canonicalize().map_err(io)?;
    let sandbox = engine.create(&CreateSandbox {
        workspace: workspace.clone(),
        requested: Requested::default(),
        discard: false,
    })?;
    let first = sandbox.exec(["sh", "-c", "echo one > made; echo first"])?;
    let second = sandbox.exec(["sh", "-c", "cat made; echo two >> made; exit 3"])?;
    for output in [first, second] {
        let stdout = String::from_utf8_lossy(&output.stdout);
        println!("{:?} {}", output.ending, stdout.trim());
    }
    let mut text = String::new();
    let mut file = sandbox.open(&workspace.join("made"))?;
    file.read_to_string(&mut text).map_err(io)?;
    println!("read {}", text.replace('\n', " "));
    let mut file = sandbox.create_file(&workspace.join("given"), 0o644)?;
    file.write_all(b"from outside\n").map_err(io)?;
    let given = sandbox.exec(["cat", "given"])?;
    println!("given {}", String::from_utf8_lossy(&given.stdout).trim());
    for layer in sandbox.changes()? {
        for change in &layer.set.changes {
            println!("changed {}", change.path);
        }
    }
    sandbox.kill()
}
