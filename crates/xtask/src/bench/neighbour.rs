//! The latency of a sandbox's small requests while a neighbour uses up all that it may.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::measure::{Contender, Prepared};
use super::scenarios::{Place, Statistic, Target};
use crate::command;

/// The program that answers requests.
const NEIGHBOUR: &str = include_str!("neighbour.c");
/// The program that uses too much, a bomb: the one of the tests.
const BOMB: &str = include_str!("../../../e2e/tests/limits/bomb.c");
const REQUESTS: &str = "400";

/// The contender without a bomb; [`BOMBS`] has the others, each with the options of the bomb's run
/// and the bomb's arguments.
const QUIET: &str = "quiet";
const BOMBS: [(&str, &str, &str); 8] = [
    ("processes", "--limit processes=256", "processes 1000 0"),
    ("memory", "--limit memory=256MiB", "memory 1000 0"),
    ("disk", "--limit disk=64MiB", "disk 256 30000"),
    ("inodes", "--limit inodes=5000", "files 20000 30000"),
    ("output", "--timeout 2s", "output 100000 0"),
    ("connections", "--limit memory=256MiB", "connections 60 100"),
    ("processors", "--timeout 2s", "processors 4 1500"),
    ("sleeper", "--timeout 1s", "time 30000 0 deaf"),
];

/// The script of one turn. Bombs follow each other until the requests are answered; a turn in which
/// one cannot be started has no result.
const SCRIPT: &str = r#"
program=$1
shift
if [ $# -gt 0 ]; then
    rm -f refused
    export program
    setsid sh -c 'while :; do
        "$program" run --discard "$@" >/dev/null 2>last
        [ $? -ne 125 ] || { mv last refused; exit; }
    done' sh "$@" &
    bombs=$!
    sleep 0.3
fi
"$program" run --discard -- ./neighbour REQUESTS
status=$?
if [ -n "$bombs" ]; then
    kill -- -$bombs
    wait $bombs
    if [ -e refused ]; then
        cat refused >&2
        exit 1
    fi
fi
exit $status
"#;

pub(crate) fn targets() -> Vec<Target> {
    BOMBS
        .iter()
        .map(|(name, _, _)| Target {
            of: name,
            to: Some(QUIET),
            at_most: 1.5,
            by: Statistic::P99,
        })
        .collect()
}

pub(crate) fn prepare(place: &Place) -> Result<Prepared> {
    let names = || std::iter::once(QUIET).chain(BOMBS.iter().map(|(name, _, _)| *name));
    let mut prepared = Prepared {
        contenders: Vec::new(),
        absent: Vec::new(),
        directory: place.directory.clone(),
    };
    if command::find("cc").is_none() {
        let absent = names().map(|name| (name, "there is no C compiler".to_owned()));
        prepared.absent = absent.collect();
        return Ok(prepared);
    }
    compile(&place.workspace, "neighbour", NEIGHBOUR)?;
    compile(&place.workspace, "bomb", BOMB)?;
    let contender = |name, words: Vec<&str>| {
        let script = SCRIPT.replace("REQUESTS", REQUESTS);
        let program = place.program.to_string_lossy().into_owned();
        let front = ["sh", "-c", &script, "sh", &program];
        Contender {
            name,
            command: front
                .iter()
                .chain(&words)
                .map(|&it| it.to_owned())
                .collect(),
            directory: place.workspace.clone(),
            afterwards: None,
            times_itself: true,
        }
    };
    prepared.contenders.push(contender(QUIET, Vec::new()));
    for (name, options, words) in BOMBS {
        let options = options.split(' ').chain(["--", "./bomb"]);
        let words = options.chain(words.split(' ')).collect();
        prepared.contenders.push(contender(name, words));
    }
    Ok(prepared)
}

fn compile(directory: &Path, name: &str, source: &str) -> Result<()> {
    let file = directory.join(format!("{name}.c"));
    fs::write(&file, source)?;
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-static", "-pthread", "-o"]);
    command::output(compiler.arg(directory.join(name)).arg(file)).map(drop)
}
