//! Makes a sandbox over a directory, works in it, looks at what changed, and ends it.
//!
//! Usage: `sandbox LAUNCHER DIRECTORY`, where LAUNCHER is the file of the launcher program.

use std::io::{Read, Write};
use std::path::Path;

use atoll_engine::failure::Failure;
use atoll_engine::sandboxes::{CreateSandbox, Engine};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [launcher, directory] = arguments.as_slice() else {
        eprintln!("usage: sandbox LAUNCHER DIRECTORY");
        std::process::exit(2);
    };
    if let Err(failure) = work(Path::new(launcher), Path::new(directory)) {
        eprintln!("{failure:?}");
        std::process::exit(1);
    }
}

fn work(launcher: &Path, directory: &Path) -> Result<(), Failure> {
    let io = |error: std::io::Error| Failure::new("a file cannot be used").because(error);
    let engine = Engine::open(&std::fs::read(launcher).map_err(io)?)?;
    let workspace = directory.canonicalize().map_err(io)?;
    let sandbox = engine.create(&CreateSandbox {
        workspace: workspace.clone(),
    })?;
    let first = sandbox.exec(["sh", "-c", "echo one > made; echo first"])?;
    let second = sandbox.exec(["sh", "-c", "cat made; echo two >> made; exit 3"])?;
    println!(
        "{:?} {}",
        first.ending,
        String::from_utf8_lossy(&first.stdout).trim()
    );
    println!(
        "{:?} {}",
        second.ending,
        String::from_utf8_lossy(&second.stdout).trim()
    );
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
