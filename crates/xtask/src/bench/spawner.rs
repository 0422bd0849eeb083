//! Many sandboxes from one process, whose launcher stays: the program that makes
//! them measures itself, since starting it would cost more than what it does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::measure::Measured;
use super::scenarios::Place;
use crate::command;

/// The time in which sandboxes follow one another, two at a time, seconds.
const SUSTAINED_SECONDS: usize = 60;
/// The number of sandboxes alive at once.
const IDLE: usize = 500;

const NOTHING: &str = "int main(void) { return 0; }\n";
const WAITS: &str = "#include <unistd.h>
int main(void) {
    char some[64];
    if (write(1, \"r\", 1) != 1) return 1;
    while (read(0, some, sizeof some) > 0) {}
    return 0;
}
";

/// Measures both ways to start the program in turn, then many for a while, then many at once.
pub(crate) fn measure(place: &Place, rounds: usize) -> Result<Vec<Measured>> {
    let nothing = compile(&place.directory, "nothing", NOTHING)?;
    let waits = compile(&place.directory, "waits", WAITS)?;
    let turns = ask(place, &nothing, "rounds", rounds)?;
    let sustained = ask(place, &nothing, "sustained", SUSTAINED_SECONDS)?;
    let idle = ask(place, &waits, "idle", IDLE)?;
    let one = |name: &str, field: &str| -> Result<Measured> {
        let times = turns.get(field).and_then(Value::as_array);
        let times = times.with_context(|| format!("no {field}"))?;
        Ok(Measured {
            name: name.to_owned(),
            whole_ms: times
                .iter()
                .filter_map(Value::as_f64)
                .map(|microseconds| microseconds / 1e3)
                .collect(),
            ..Measured::default()
        })
    };
    let mut spawner = one("spawner", "contained_us")?;
    spawner.facts = vec![
        format!("two at a time for {SUSTAINED_SECONDS} s: {sustained}"),
        format!("{IDLE} at once: {idle}"),
    ];
    Ok(vec![one("plain", "plain_us")?, spawner])
}

fn ask(place: &Place, program: &Path, what: &str, number: usize) -> Result<Value> {
    let mut asked = Command::new(&place.program);
    asked
        .arg(place.directory.join("state"))
        .arg(program)
        .args([what, &number.to_string()]);
    Ok(serde_json::from_str(&command::output(&mut asked)?)?)
}

/// Compiles a static program, which starts the fastest.
fn compile(directory: &Path, name: &str, source: &str) -> Result<PathBuf> {
    let (program, file) = (directory.join(name), directory.join(format!("{name}.c")));
    fs::write(&file, source)?;
    let mut compiler = Command::new("cc");
    compiler
        .args(["-O2", "-static", "-o"])
        .arg(&program)
        .arg(&file);
    command::output(&mut compiler)?;
    Ok(program)
}
