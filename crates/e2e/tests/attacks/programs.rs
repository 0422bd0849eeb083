//! Ways to run another program where only listed ones may be executed.

use std::path::PathBuf;

use e2e::{Outcome, World};

use super::harness::{Attack, Control, Prey, Technique, try_all};

use Control::Without;
use Technique::CommandInterpreter;

const LISTED: &[&str] = &["--discard", "--profile", "listed"];

/// Prepares a run that lists the shell, its loader, and the workspace's program `listed`: a copy of
/// the attacking program, which itself is not listed.
fn unlisted(world: &World) -> Prey {
    let real = |path: &str| PathBuf::from(path).canonicalize().ok();
    let mut programs: Vec<PathBuf> = [
        "/bin/sh",
        "/lib64/ld-linux-x86-64.so.2",
        "/lib/ld-linux-aarch64.so.1",
    ]
    .into_iter()
    .filter_map(real)
    .collect();
    let _ = world
        .host_shell("cp attack listed; cp /usr/bin/printf made")
        .run()
        .success();
    programs.push(world.path("listed"));
    let quoted: Vec<String> = programs.iter().map(|path| format!("{path:?}")).collect();
    let text = format!("[programs]\nexecute = [{}]\n", quoted.join(", "));
    world.profile("listed", &text);
    let loader = programs[1].to_str().unwrap().to_owned();
    Prey {
        names: vec![("loader", loader)],
        taken: Box::new(|_, outcome: &Outcome| outcome.out().contains("taken")),
    }
}

const fn other(id: &'static str, script: &'static str, control: Control) -> Attack {
    Attack::new(id, CommandInterpreter, script, unlisted, control).options(LISTED)
}

const ATTACKS: &[Attack] = &[
    other(
        "program-not-listed",
        "./attack executed",
        Without("landlock,no-code"),
    ),
    other(
        "program-not-listed-of-the-system",
        "/usr/bin/printf taken",
        Without("landlock,no-code"),
    ),
    other(
        "program-not-listed-by-another-path",
        "/proc/self/cwd/attack executed; /proc/self/root$PWD/attack executed; exec ./../workspace/attack executed",
        Without("landlock,no-code"),
    ),
    other(
        "program-made-under-a-listed-name",
        "while IFS= read -r line; do :; done < /dev/null; PATH=$PWD:$PATH; cd /tmp; attack executed",
        Without("landlock,no-code"),
    ),
    other(
        "program-in-memory-by-its-path",
        "./listed from-memory path ./attack executed",
        Without("memory-programs"),
    ),
    other(
        "program-in-memory-by-its-descriptor",
        "./listed from-memory descriptor ./attack executed",
        Without("memory-programs"),
    ),
    other(
        "program-by-a-listed-loader",
        "{loader} /usr/bin/printf taken; {loader} --preload /usr/bin/printf /usr/bin/printf taken",
        Without("no-code"),
    ),
    other(
        "program-made-by-a-listed-loader",
        "{loader} ./made taken; {loader} $PWD/made taken",
        Without("no-code"),
    ),
    other(
        "program-mapped-as-code",
        "./listed map /usr/bin/printf; ./listed map ./made; ./listed map ./attack",
        Without("no-code"),
    ),
];

#[test]
fn only_listed_programs_are_executed() {
    try_all("only_listed_programs_are_executed", ATTACKS);
}
