//! Makes a sandbox over a directory, works in it, looks at what changed, and ends it.
//!
//! Usage: `sandbox DIRECTORY [HOST [URL]…]`: the sandbox reaches HOST, and fetches each URL.

use std::io::{Read, Write};

use atoll_engine::failure::{Doing, Failure};
use atoll_engine::roles;
use atoll_engine::sandboxes::{CreateSandbox, Engine, PriorAnswer, Requested, Workspace};
use atoll_launcher::LAUNCHER;

fn main() -> Result<(), Failure> {
    let arguments: Vec<_> = std::env::args_os().collect();
    if let Some(status) = roles::take(&arguments) {
        std::process::exit(status.into());
    }
    let texts: Option<Vec<&str>> = arguments.iter().map(|one| one.to_str()).collect();
    let Some([_, directory, network @ ..]) = texts.as_deref() else {
        eprintln!("usage: sandbox DIRECTORY [HOST [URL]...]");
        std::process::exit(2);
    };
    work(directory, network)
}

fn work(directory: &str, network: &[&str]) -> Result<(), Failure> {
    let workspace = std::fs::canonicalize(directory).doing("find the directory")?;
    let allow = network.iter().take(1).map(ToString::to_string).collect();
    let sandbox = Engine::open(LAUNCHER)?.create(&CreateSandbox {
        workspace: Workspace::Directory(workspace.clone()),
        requested: Requested {
            allow,
            ..Requested::default()
        },
        discard: false,
        is_attended: false,
        home: None,
        template: None,
        frozen: None,
        made_at: None,
        system: None,
        answer: PriorAnswer::Nobody,
        parent: None,
        begins_with: None,
    })?;
    let exec = |command: &[&str]| -> Result<(), Failure> {
        let output = sandbox.exec(command.iter().copied())?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        println!("{:?} {}", output.ending, stdout.trim());
        Ok(())
    };
    exec(&["sh", "-c", "echo one > made; echo first"])?;
    exec(&["sh", "-c", "cat made; exit 3"])?;
    let mut file = sandbox.create_file(&workspace.join("given"), 0o644)?;
    file.write_all(b"from outside\n").doing("write a file")?;
    exec(&["cat", "given"])?;
    for url in network.iter().skip(1) {
        exec(&["curl", "-sS", "-m", "20", url])?;
    }
    let mut text = String::new();
    let mut made = sandbox.open(&workspace.join("made"))?;
    made.read_to_string(&mut text).doing("read a file")?;
    println!("read {}", text.trim());
    let layers = sandbox.changes()?;
    for change in layers.iter().flat_map(|layer| &layer.set.changes) {
        println!("changed {}", change.path);
    }
    sandbox.kill()
}
