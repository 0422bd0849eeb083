//! Other programs that start something in a boundary, and hyperfine as a
//! second opinion on our own clock.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::measure::{Contender, Measured, Prepared};
use super::scenarios::Place;
use crate::command;

/// The program that all peers start, so that only their boundaries differ.
const PROGRAM: &str = "/usr/bin/true";

const BUBBLEWRAP: [&str; 9] = [
    "--unshare-all",
    "--ro-bind",
    "/",
    "/",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--tmpfs",
];

pub(crate) fn start(place: &Place) -> Result<Prepared> {
    let contender = |name, command| Contender {
        name,
        command,
        directory: place.workspace.clone(),
        afterwards: None,
        times_itself: false,
    };
    let mut contenders = vec![
        contender("plain", vec![PROGRAM.to_owned()]),
        contender("atoll", place.atoll(&[PROGRAM])),
    ];
    let mut absent = Vec::new();
    match command::find("bwrap") {
        Some(path) => {
            let mut words = vec![path.to_string_lossy().into_owned()];
            words.extend(
                BUBBLEWRAP
                    .iter()
                    .chain(&["/tmp", PROGRAM])
                    .map(|word| (*word).to_owned()),
            );
            contenders.push(contender("bubblewrap", words));
        }
        None => absent.push(("bubblewrap", "not installed".to_owned())),
    }
    match command::find("runc") {
        Some(path) => match bundle(&path, &place.directory) {
            Ok(words) => contenders.push(contender("runc", words)),
            Err(error) => absent.push(("runc", format!("{error:#}"))),
        },
        None => absent.push(("runc", "not installed".to_owned())),
    }
    Ok(Prepared {
        contenders,
        absent,
        directory: place.directory.clone(),
    })
}

/// Makes an OCI bundle over the host's own programs; returns the command that runs it.
fn bundle(runc: &Path, directory: &Path) -> Result<Vec<String>> {
    let bundle = directory.join("bundle");
    let rootfs = bundle.join("rootfs");
    fs::create_dir_all(rootfs.join("usr"))?;
    let mut shared = vec!["/usr".to_owned()];
    for name in ["bin", "lib", "lib64"] {
        let original = Path::new("/").join(name);
        if let Ok(target) = fs::read_link(&original) {
            symlink(target, rootfs.join(name))?;
        } else if original.is_dir() {
            fs::create_dir(rootfs.join(name))?;
            shared.push(original.to_string_lossy().into_owned());
        }
    }
    let mut spec = Command::new(runc);
    spec.args(["spec", "--bundle"]).arg(&bundle);
    if crate::person::caller_id()? != 0 {
        spec.arg("--rootless");
    }
    command::output(&mut spec)?;
    let path = bundle.join("config.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
    let process = config.get_mut("process").and_then(Value::as_object_mut);
    let process = process.context("the specification of runc has no process")?;
    process.insert("terminal".to_owned(), json!(false));
    process.insert("args".to_owned(), json!([PROGRAM]));
    let mounts = config.get_mut("mounts").and_then(Value::as_array_mut);
    let mounts = mounts.context("the specification of runc has no mounts")?;
    mounts.extend(shared.iter().map(|path| {
        json!({"destination": path, "type": "bind", "source": path, "options": ["rbind", "ro"]})
    }));
    fs::write(&path, serde_json::to_string(&config)?)?;
    let words = |path: PathBuf| path.to_string_lossy().into_owned();
    Ok(vec![
        words(runc.to_path_buf()),
        "--root".to_owned(),
        words(directory.join("state-of-runc")),
        "run".to_owned(),
        "--bundle".to_owned(),
        words(bundle),
        format!("bench-{}", std::process::id()),
    ])
}

/// Measures the same commands in blocks, for the record; verdicts rest on the turns, which share
/// good and bad moments of the machine.
pub(crate) fn hyperfine(prepared: &Prepared, rounds: usize) -> Result<Vec<Measured>> {
    let Some(program) = command::find("hyperfine") else {
        return Ok(Vec::new());
    };
    let mut measured = Vec::new();
    for contender in &prepared.contenders {
        let export = prepared.directory.join("hyperfine.json");
        let mut hyperfine = Command::new(&program);
        hyperfine
            .current_dir(&contender.directory)
            .args([
                "-N",
                "--warmup",
                "5",
                "--style",
                "none",
                "--runs",
                &rounds.max(2).to_string(),
            ])
            .arg("--export-json")
            .arg(&export)
            .arg(contender.command.join(" "));
        let mut one = Measured {
            name: format!("{} (hyperfine)", contender.name),
            command: contender.command.clone(),
            ..Measured::default()
        };
        match command::output(&mut hyperfine) {
            Ok(_) => one.whole_ms = times(&fs::read_to_string(&export)?)?,
            Err(error) => one.failure = Some(format!("{error:#}")),
        }
        measured.push(one);
    }
    Ok(measured)
}

pub(crate) fn times(export: &str) -> Result<Vec<f64>> {
    let export: Value = serde_json::from_str(export)?;
    let times = export.pointer("/results/0/times").and_then(Value::as_array);
    let times = times.context("hyperfine wrote no times")?;
    Ok(times
        .iter()
        .filter_map(Value::as_f64)
        .map(|seconds| seconds * 1e3)
        .collect())
}
