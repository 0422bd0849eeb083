//! A small internet of a test's own: a name server and servers at public and private addresses,
//! which record their clients.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::{Avoidable, Invocation, Outcome, World, program_exists, write_program};

/// The program that is the internet: it takes a directory for its records, and a command.
pub const PROGRAM: &str = include_str!("internet/internet.py");
/// The script that makes certificates there: it takes the directory, names, `--`, and a command.
const SIGNED: &str = include_str!("internet/signed.sh");

/// The hosts that `tests/agents/servers.py` serves: the models of the agents, the hosts that renew
/// their logins, and two strangers.
pub const MODELS: &[&str] = &[
    "api.openai.com",
    "api.anthropic.com",
    "generativelanguage.googleapis.com",
    "auth.openai.com",
    "platform.claude.com",
    "example.com",
    "other.example",
];

/// A program that was run, and the traffic that the internet saw of it.
#[derive(Debug)]
pub struct Seen {
    /// The program's result.
    pub outcome: Outcome,
    /// The names that the name server was asked to resolve.
    pub asked: Vec<String>,
    /// The destinations reached: `address port`, or `udp port`.
    pub reached: Vec<String>,
    /// The first bytes of each connection, a line each, as Python writes them.
    pub first: String,
}

impl Seen {
    /// Returns the result of a program on the small internet of this world, with its traffic.
    #[must_use]
    pub fn of(world: &World, outcome: Outcome) -> Self {
        Self {
            outcome,
            asked: noted(world, "asked"),
            reached: noted(world, "reached"),
            first: noted(world, "first").join("\n"),
        }
    }

    /// Returns the program's output, trimmed.
    #[must_use]
    pub fn output(&self) -> String {
        self.outcome.out().trim().to_owned()
    }
}

/// Returns the small internet's records of a name.
fn noted(world: &World, name: &str) -> Vec<String> {
    let path = world.top().join("internet").join(name);
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Returns whether a small internet can be made here, with these programs too; else the test is
/// skipped.
#[must_use]
pub fn is_possible(world: &World, further: &[&str]) -> bool {
    let needed = ["python3", "ip", "curl"].iter().chain(further);
    let missing = needed.into_iter().find(|program| !program_exists(program));
    if let Some(missing) = missing {
        world.skip(&format!("{missing} is not installed"), Avoidable::Yes);
    }
    missing.is_none()
}

/// Returns a shell command on a new small internet.
pub fn on_internet(world: &World, command: &str) -> Invocation {
    let internet = world.top().join("internet");
    let _ = fs::remove_dir_all(&internet);
    fs::create_dir(&internet).unwrap();
    fs::write(internet.join("internet.py"), PROGRAM).unwrap();
    let place = internet.display();
    let command = format!("exec python3 '{place}/internet.py' '{place}' {command}");
    world.network_shell(&command)
}

/// Returns a shell command on a new small internet with servers of the test's own: a Python
/// program, which is given the internet's directory and the command to run while the servers are
/// up. For each of these names there is a certificate that the host trusts.
pub fn on_servers(world: &World, servers: &str, names: &[&str], command: &str) -> Invocation {
    let place = world.top().join("internet");
    let names = names.join(" ");
    let at = place.display();
    let servers_at = world.top().join("servers.py");
    fs::write(&servers_at, servers).unwrap();
    let signed = world.top().join("signed.sh");
    fs::write(&signed, SIGNED).unwrap();
    let around = format!(
        "sh '{}' '{at}' {names} -- python3 '{}' '{at}' {command}",
        signed.display(),
        servers_at.display()
    );
    on_internet(world, &around).env("INTERNET_PORTS", "7 22")
}

/// Returns a program that starts Atoll, on a small internet, as the ordinary user, who may make no
/// namespaces there: its runs are fenced in.
///
/// # Panics
/// When it cannot be written.
#[must_use]
pub fn without_namespaces(world: &World) -> PathBuf {
    let (user, group) = crate::id();
    let atoll = std::env::var("ATOLL_BIN").unwrap();
    let forbid = "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv \
                  --inh-caps=-all --ambient-caps=-all --bounding-set=-all \"$@\"";
    let text = format!(
        "#!/bin/sh\nexec unshare --user --map-user={} --map-group={} --keep-caps sh -c '{forbid}' sh '{atoll}' \"$@\"\n",
        user, group
    );
    let path = world.top().join("atoll-without-namespaces");
    write_program(&path, &text);
    path
}

/// Returns shell words that run a command and record the peak of its egress process's own memory,
/// KiB.
#[must_use]
pub fn measuring(world: &World) -> String {
    let to = world.top().join("measured");
    format!(
        "sh -c '\"$@\" & run=$!; most=0; while kill -0 $run 2>/dev/null; do \
         for p in $(pgrep -P $run -x atoll-egress); do \
         now=$(sed -n \"s/^RssAnon:[^0-9]*\\([0-9]*\\).*/\\1/p\" /proc/$p/status 2>/dev/null); \
         if [ \"${{now:-0}}\" -gt $most ]; then most=$now; echo $most >\"{}\"; fi; done; \
         sleep 0.05; done; wait $run' sh",
        to.display()
    )
}

/// Returns the record of [`measuring`], KiB.
///
/// # Panics
/// When nothing was carried.
#[must_use]
pub fn measured(world: &World) -> u64 {
    let text = fs::read_to_string(world.top().join("measured"));
    text.expect("nothing was carried").trim().parse().unwrap()
}

/// Runs a shell script in a sandbox, with these options, on a small internet.
#[must_use]
pub fn online(world: &World, options: &[&str], script: &str) -> Seen {
    let run = on_internet(world, "\"$ATOLL\" run --discard \"$@\"");
    let run = run.arg("sh").args(options).args(["--", "sh", "-c", script]);
    Seen::of(world, run.run())
}

/// Returns the bodies of the last run's events of a type.
#[must_use]
pub fn events(world: &World, kind: &str) -> Vec<Value> {
    let told = world
        .atoll(["ledger", "show", "--json", "last"])
        .run()
        .success();
    let events: Vec<Value> = told
        .out()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let wanted = events.iter().filter(|event| event["type"] == kind);
    wanted.map(|event| event["body"].clone()).collect()
}
