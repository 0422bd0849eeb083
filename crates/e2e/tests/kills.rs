//! Kills of each process of Atoll, at a random moment: nothing is left behind and nothing is lost.
//! Only processes that a test of this file has started are killed; they are found by descent, never
//! by name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use e2e::remains::{
    alive, collect_all_but, foreign_namespaces, groups, inhabitants, mounts, recorded_runs, uptime,
};
use e2e::traces::{
    GONE_WITHIN, Traces, alone, contents, end_of, events, until_none, verify_ledger,
};
use e2e::{Running, World, children_of, descendants_of, kill};
use rustix::process::Signal;

/// The rounds of kills of each process, always and in nightly runs.
const ROUNDS: u32 = 20;
const ROUNDS_NIGHTLY: u32 = 500;
/// The latest moment of a kill, counted from the start of its victim.
const KILL_AFTER_MAX: Duration = Duration::from_millis(40);

const KILL_EARLY_MAX: Duration = Duration::from_millis(6);

/// The process of a sandbox that is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    CommandLine,
    Launcher,
    Init,
    Program,
    /// All of Atoll, as when the kernel or a person ends it.
    CommandLineAndLauncher,
}

#[test]
fn a_killed_command_line_leaves_nothing() {
    kill_rounds(
        "a_killed_command_line_leaves_nothing",
        Victim::CommandLine,
        ROUNDS,
    );
}

#[test]
fn a_killed_launcher_leaves_nothing() {
    kill_rounds("a_killed_launcher_leaves_nothing", Victim::Launcher, ROUNDS);
}

#[test]
fn a_killed_first_process_leaves_nothing() {
    kill_rounds(
        "a_killed_first_process_leaves_nothing",
        Victim::Init,
        ROUNDS,
    );
}

#[test]
fn a_killed_program_leaves_nothing() {
    kill_rounds("a_killed_program_leaves_nothing", Victim::Program, ROUNDS);
}

#[test]
fn command_line_and_launcher_killed_together_leave_nothing() {
    let name = "command_line_and_launcher_killed_together_leave_nothing";
    kill_rounds(name, Victim::CommandLineAndLauncher, ROUNDS);
}

#[test]
fn killed_command_lines_leave_nothing_nightly() {
    let name = "killed_command_lines_leave_nothing_nightly";
    kill_rounds(name, Victim::CommandLine, ROUNDS_NIGHTLY);
}

#[test]
fn killed_launchers_leave_nothing_nightly() {
    let name = "killed_launchers_leave_nothing_nightly";
    kill_rounds(name, Victim::Launcher, ROUNDS_NIGHTLY);
}

#[test]
fn killed_first_processes_leave_nothing_nightly() {
    let name = "killed_first_processes_leave_nothing_nightly";
    kill_rounds(name, Victim::Init, ROUNDS_NIGHTLY);
}

#[test]
fn killed_programs_leave_nothing_nightly() {
    let name = "killed_programs_leave_nothing_nightly";
    kill_rounds(name, Victim::Program, ROUNDS_NIGHTLY);
}

#[test]
fn command_lines_and_launchers_killed_together_leave_nothing_nightly() {
    let name = "command_lines_and_launchers_killed_together_leave_nothing_nightly";
    kill_rounds(name, Victim::CommandLineAndLauncher, ROUNDS_NIGHTLY);
}

/// Kills one process of a sandbox in each round and checks for remains: for processes at once, for
/// control groups too, for records at the next command.
fn kill_rounds(name: &str, victim: Victim, rounds: u32) {
    alone();
    let world = World::new(name);
    let mut random = Random::seeded();
    let mut troubles = Troubles::default();
    for round in 0..rounds {
        kill_round(&world, victim, round, &mut random, &mut troubles);
        // Recorded with this one, and never again.
        let next = world.atoll(["run", "--discard", "--", "true"]).run();
        if next.code() != 0 {
            troubles.note(round, format!("the next run failed: {next}"));
        }
        let warned = next.err().matches("was interrupted earlier").count();
        if warned > 1 {
            troubles.note(
                round,
                format!("{warned} runs were told as interrupted at once"),
            );
        }
        let left = groups(&recorded_runs(&world.state()));
        if !left.is_empty() {
            troubles.note(
                round,
                format!("control groups after the next run: {left:?}"),
            );
            left.iter().for_each(|group| drop(fs::remove_dir(group)));
        }
    }
    verify_ledger(&world);
    troubles.add(check_events(&world, victim));
    troubles.add(check_records(&world));
    troubles.expect_none(&format!("{victim:?}, seed {:#x}", random.seed));
}

fn kill_round(
    world: &World,
    victim: Victim,
    round: u32,
    random: &mut Random,
    troubles: &mut Troubles,
) {
    let mark = format!("mark-{}-{round}", std::process::id());
    let script = format!(
        ": {mark}; echo {round} > made-{round}; (setsid sleep 1000 & sleep 1000 & wait) & \
         nohup sleep 1000 > /dev/null 2>&1 & while :; do sleep 1000; done"
    );
    let mut running = world.run(["--keep"], &script).within(GONE_WITHIN).start();
    let command_line = running.pid();
    if find(victim, &mut running).is_none() {
        troubles.note(round, "the victim never came into being".to_owned());
        return;
    }
    // While a sandbox is made, there is more to hit in a shorter time.
    let latest = if random.next().is_multiple_of(2) {
        KILL_AFTER_MAX
    } else {
        KILL_EARLY_MAX
    };
    std::thread::sleep(random.duration(latest));
    // Once more: the first child of the launcher may be one that it needs for a moment.
    let pids = find(victim, &mut running).unwrap_or_default();
    let sandbox: Vec<u32> = descendants_of(command_line)
        .iter()
        .map(|one| one.pid)
        .collect();
    let namespaces: BTreeSet<PathBuf> = sandbox
        .iter()
        .flat_map(|pid| foreign_namespaces(*pid))
        .collect();
    pids.iter().for_each(|pid| kill(*pid, Signal::KILL));
    let killed = uptime();

    match end_of(&mut running) {
        None => {
            troubles.note(round, format!("the command line hangs; {:?} live", alive()));
            kill(command_line, Signal::KILL);
        }
        Some(code) if !expected(victim).contains(&code) => {
            troubles.note(round, format!("the command line ended with {code}"));
        }
        Some(_) => {}
    }
    let sandbox = (command_line, &namespaces, killed);
    look_around(world, victim, round, sandbox, troubles);
}

/// Records the remains some time after the kill.
fn look_around(
    world: &World,
    victim: Victim,
    round: u32,
    (command_line, namespaces, killed): (u32, &BTreeSet<PathBuf>, u64),
    troubles: &mut Troubles,
) {
    let left = until_none(|| {
        collect_all_but(command_line);
        alive()
            .into_iter()
            .filter(|one| one.pid != command_line)
            .collect()
    });
    if !left.is_empty() {
        troubles.note(round, format!("alive: {left:?}"));
        left.iter().for_each(|one| kill(one.pid, Signal::KILL));
    }
    let left = until_none(|| inhabitants(namespaces, killed));
    if !left.is_empty() {
        troubles.note(round, format!("in its namespaces: {left:?}"));
    }
    if victim != Victim::CommandLineAndLauncher {
        // Nobody is left to remove them otherwise, until the next command.
        let left = until_none(|| groups(&recorded_runs(&world.state())));
        if !left.is_empty() {
            troubles.note(round, format!("control groups: {left:?}"));
            left.iter().for_each(|group| drop(fs::remove_dir(group)));
        }
    }
    let left = mounts(world.top());
    if !left.is_empty() {
        troubles.note(round, format!("mounts: {left:?}"));
    }
}

/// Returns the user namespace of a process, where it still exists.
fn user_namespace(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/user")).ok()
}

/// Waits for the victim and returns its process id, or ids.
fn find(victim: Victim, running: &mut Running) -> Option<Vec<u32>> {
    let command_line = running.pid();
    let child = |pid: u32| children_of(pid).first().map(|one| one.pid);
    // The command line has another child for a moment, which tries whether there can be user
    // namespaces: it is in one of its own, and has no program of its own.
    let its_namespace = user_namespace(command_line);
    let launcher = |pid: u32| {
        let mut children = children_of(pid).into_iter();
        let found = children
            .find(|one| one.name == "atoll-jail" || user_namespace(one.pid) == its_namespace);
        found.map(|one| one.pid)
    };
    // The launcher has other children for a moment, who make ids and a network.
    let first = |launcher: u32| {
        let mut children = children_of(launcher).into_iter();
        let init = children.find(|one| one.name == "atoll-init");
        init.map(|one| one.pid)
    };
    let end = Instant::now() + GONE_WITHIN;
    while Instant::now() < end && running.status().is_none() {
        let found = match victim {
            Victim::CommandLine => Some(vec![command_line]),
            Victim::Launcher => launcher(command_line).map(|pid| vec![pid]),
            Victim::Init => launcher(command_line).and_then(first).map(|pid| vec![pid]),
            Victim::Program => launcher(command_line)
                .and_then(first)
                .and_then(child)
                .map(|pid| vec![pid]),
            Victim::CommandLineAndLauncher => {
                launcher(command_line).map(|pid| vec![command_line, pid])
            }
        };
        if found.is_some() {
            return found;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    None
}

/// Returns the statuses with which the command line can end when this process is killed: its own
/// signal, an error of its own, or the program's end.
fn expected(victim: Victim) -> &'static [i32] {
    match victim {
        Victim::CommandLine | Victim::CommandLineAndLauncher => &[137],
        Victim::Launcher => &[125],
        Victim::Init | Victim::Program => &[125, 137],
    }
}

/// Checks that each run was opened once and closed once; a killed command line closes none.
fn check_events(world: &World, victim: Victim) -> Vec<String> {
    const CLOSING: [&str; 4] = ["run.closed", "run.denied", "run.failed", "run.interrupted"];
    let mut kinds: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for event in events(world) {
        if let (Some(run), Some(kind)) = (event["run"].as_str(), event["type"].as_str()) {
            kinds
                .entry(run.to_owned())
                .or_default()
                .push(kind.to_owned());
        }
    }
    let by_itself = matches!(victim, Victim::CommandLine | Victim::CommandLineAndLauncher);
    let is_wrong = |kinds: &[String]| {
        let count = |wanted: &[&str]| {
            kinds
                .iter()
                .filter(|kind| wanted.contains(&kind.as_str()))
                .count()
        };
        let interrupted = count(&["run.interrupted"]);
        count(&["run.opened"]) != 1 || count(&CLOSING) != 1 || (interrupted > 0 && !by_itself)
    };
    kinds
        .iter()
        .filter(|(_, kinds)| is_wrong(kinds))
        .map(|(run, kinds)| format!("run {run} is recorded as {kinds:?}"))
        .collect()
}

/// Checks that no record states that its run is going on, and that no data of a killed run is lost.
fn check_records(world: &World) -> Vec<String> {
    let mut troubles = Vec::new();
    for record in world.runs() {
        let run = record["run"].as_str().unwrap().to_owned();
        if record["state"] == "running" {
            troubles.push(format!("the record of run {run} says that it is running"));
        }
        let upper = world
            .state()
            .join("atoll/runs")
            .join(&run)
            .join("layers/workspace/upper");
        for made in fs::read_dir(upper).into_iter().flatten().flatten() {
            let name = made.file_name().to_string_lossy().into_owned();
            let diff = world.atoll(["diff", &run]).run();
            if !diff.out().contains(&name) {
                let state = record["state"].as_str().unwrap_or_default();
                let said = diff.err();
                troubles.push(format!("run {run}, {state}, made {name}: {}", said.trim()));
            }
        }
    }
    troubles
}

#[test]
fn what_a_killed_run_wrote_can_be_applied() {
    alone();
    for victim in [
        Victim::CommandLine,
        Victim::Launcher,
        Victim::CommandLineAndLauncher,
    ] {
        let world = World::new("what_a_killed_run_wrote_can_be_applied");
        world.write("kept", "before\n");
        world.write("removed", "before\n");
        let script =
            "echo after > kept; rm removed; mkdir d; echo new > d/new; echo made; sleep 1000";
        let mut running = world.run(["--keep"], script).start();
        running.until_stdout("made");
        let pids = find(victim, &mut running).unwrap();
        pids.iter().for_each(|pid| kill(*pid, Signal::KILL));
        let _ = end_of(&mut running).expect("the command line hangs");
        assert_eq!(world.read("kept"), "before\n", "{victim:?}");
        let told = world
            .atoll(["run", "--discard", "--", "true"])
            .run()
            .success();
        if victim != Victim::Launcher {
            told.says(["was interrupted earlier"]);
        }
        let run = world.last_run();
        let diff = world.atoll(["diff", &run]).run().success();
        for name in ["kept", "removed", "d/new"] {
            assert!(
                diff.out().contains(name),
                "{victim:?}: {name} is not in the diff\n{diff}"
            );
        }
        let _ = world.atoll(["apply", &run]).run().success();
        assert_eq!(world.read("kept"), "after\n");
        assert_eq!(world.read("d/new"), "new\n");
        assert!(!world.exists("removed"));
        let _ = world.atoll(["undo", &run]).run().success();
        assert_eq!(world.read("kept"), "before\n");
        assert_eq!(world.read("removed"), "before\n");
        assert!(!world.exists("d"));
    }
}

#[test]
fn a_killed_run_that_keeps_nothing_leaves_no_files() {
    alone();
    let world = World::new("a_killed_run_that_keeps_nothing_leaves_no_files");
    for victim in [Victim::CommandLine, Victim::CommandLineAndLauncher] {
        let before = Traces::take(&world);
        let mut running = world
            .run(
                ["--discard"],
                "mkdir d; echo x > d/x; echo made; sleep 1000",
            )
            .start();
        running.until_stdout("made");
        let pids = find(victim, &mut running).unwrap();
        pids.iter().for_each(|pid| kill(*pid, Signal::KILL));
        let _ = end_of(&mut running).expect("the command line hangs");
        let _ = until_none(alive);
        let _ = world
            .atoll(["run", "--discard", "--", "true"])
            .run()
            .success();
        before.expect_same(&world, &format!("{victim:?}"));
    }
}

#[test]
fn a_killed_run_can_be_resumed() {
    alone();
    let world = World::new("a_killed_run_can_be_resumed");
    let mut running = world
        .run(["--keep"], "echo one > one; echo made; sleep 1000")
        .start();
    running.until_stdout("made");
    kill(running.pid(), Signal::KILL);
    let _ = end_of(&mut running);
    let _ = world
        .atoll(["run", "--discard", "--", "true"])
        .run()
        .success();
    let interrupted = world.last_run();
    let resumed = world
        .run(
            ["--keep", "--resume", &interrupted],
            "cat one; echo two > two",
        )
        .run();
    assert_eq!(resumed.success().out(), "one\n");
    let _ = world.atoll(["apply", "last"]).run().success();
    assert_eq!(
        (world.read("one"), world.read("two")),
        ("one\n".into(), "two\n".into())
    );
}

#[test]
fn a_killed_live_run_can_be_undone() {
    alone();
    let world = World::new("a_killed_live_run_can_be_undone");
    world.write("file", "before\n");
    let mut running = world
        .run(["--live"], "echo after > file; echo made; sleep 1000")
        .start();
    running.until_stdout("made");
    kill(running.pid(), Signal::KILL);
    let _ = end_of(&mut running);
    assert_eq!(world.read("file"), "after\n");
    let _ = world
        .atoll(["run", "--discard", "--", "true"])
        .run()
        .success();
    let run = world.last_run();
    // Nobody saw its end, so that what came later cannot be told from it.
    let refused = world.atoll(["undo", &run]).run().expect_status(125);
    refused.is_clear_error(["nobody saw its end", "--force"]);
    assert_eq!(world.read("file"), "after\n");
    let undo = world.atoll(["undo", &run, "--force"]);
    let _ = undo.run().success();
    assert_eq!(world.read("file"), "before\n");
}

/// The number of files of each kind of change for the kills during an apply.
const APPLIED_FILES: u32 = 120;

#[test]
fn a_killed_apply_can_be_finished_or_taken_back() {
    apply_rounds("a_killed_apply_can_be_finished_or_taken_back", ROUNDS);
}

#[test]
fn killed_applies_can_be_finished_or_taken_back_nightly() {
    apply_rounds(
        "killed_applies_can_be_finished_or_taken_back_nightly",
        ROUNDS_NIGHTLY,
    );
}

fn apply_rounds(name: &str, rounds: u32) {
    alone();
    let world = World::new(name);
    let mut random = Random::seeded();
    let mut cut_short = 0;
    let mut troubles = Troubles::default();
    let change = format!(
        "for i in $(seq {APPLIED_FILES}); do echo new-$i > d/new-$i; echo more >> d/changed-$i; \
         rm d/gone-$i; mkdir -p e/$i; ln -s ../../d/new-$i e/$i/link; mv d/from-$i e/$i/to; \
         chmod 700 d/mode-$i; done; rm -r whole"
    );
    for round in 0..rounds {
        let _ = fs::remove_dir_all(world.path("d"));
        let _ = fs::remove_dir_all(world.path("e"));
        for i in 1..=APPLIED_FILES {
            for kind in ["changed", "gone", "from", "mode"] {
                world.write(format!("d/{kind}-{i}"), format!("{kind} {i}\n"));
            }
            world.write(format!("whole/{i}/file"), "whole\n");
        }
        let before = contents(&world.workspace());
        let _ = world.run(["--keep"], &change).run().success();
        let run = world.last_run();

        let mut applying = world.atoll(["apply", &run]).start();
        let took = until_journal(&world, &run, &mut applying);
        std::thread::sleep(random.duration(APPLY_KILLED_AFTER_MAX));
        kill(applying.pid(), Signal::KILL);
        let status = end_of(&mut applying);
        let backwards = random.next().is_multiple_of(2);
        let option = if backwards { "--take-back" } else { "--finish" };
        let settled = world.atoll(["apply", &run, option]).run();
        let now = contents(&world.workspace());
        let was_cut_short = settled.code() == 0;
        cut_short += u32::from(was_cut_short);
        let is_before = now == before;
        let is_after = is_changed(&world);
        let right = match (was_cut_short, backwards) {
            (true, true) => is_before,
            (true, false) => is_after,
            // It was killed before its first step or after its last.
            (false, _) => is_before || is_after,
        };
        if !right {
            troubles.note(
                round,
                format!(
                    "{option} after {took:?}, apply ended with {status:?}: before {is_before}, \
                     after {is_after}: {settled}"
                ),
            );
        }
    }
    verify_ledger(&world);
    troubles.expect_none(&format!("seed {:#x}", random.seed));
    assert!(
        cut_short > 0,
        "not one of {rounds} kills came in the middle of an apply"
    );
}

const APPLY_KILLED_AFTER_MAX: Duration = Duration::from_millis(150);

/// Waits until the apply writes its journal.
fn until_journal(world: &World, run: &str, applying: &mut Running) -> Duration {
    let begun = Instant::now();
    let directory = world.state().join("atoll/runs").join(run).join("journals");
    let has_journal = || fs::read_dir(&directory).is_ok_and(|names| names.count() > 0);
    while applying.status().is_none() && !has_journal() && begun.elapsed() < GONE_WITHIN {
        std::thread::sleep(Duration::from_micros(200));
    }
    begun.elapsed()
}

/// Returns whether every change of the apply is there, to the last.
fn is_changed(world: &World) -> bool {
    let reads = |path: String, text: String| {
        fs::read_to_string(world.path(path)).is_ok_and(|found| found == text)
    };
    let mode = |path: String| {
        use std::os::unix::fs::PermissionsExt;
        fs::metadata(world.path(path))
            .is_ok_and(|facts| facts.permissions().mode() & 0o777 == 0o700)
    };
    (1..=APPLIED_FILES).all(|i| {
        reads(format!("d/new-{i}"), format!("new-{i}\n"))
            && reads(format!("d/changed-{i}"), format!("changed {i}\nmore\n"))
            && !world.exists(format!("d/gone-{i}"))
            && !world.exists(format!("d/from-{i}"))
            && reads(format!("e/{i}/to"), format!("from {i}\n"))
            && reads(format!("e/{i}/link"), format!("new-{i}\n"))
            && mode(format!("d/mode-{i}"))
    }) && !world.exists("whole")
        && contents(&world.workspace()).len() == usize::try_from(APPLIED_FILES * 6 + 2).unwrap()
}

/// All failures together, so that a nightly run reports more than its first kill.
#[derive(Default)]
struct Troubles(Vec<String>);

impl Troubles {
    fn note(&mut self, round: u32, what: String) {
        self.0.push(format!("round {round}: {what}"));
    }

    fn add(&mut self, more: Vec<String>) {
        self.0.extend(more);
    }

    fn expect_none(&self, of: &str) {
        assert!(
            self.0.is_empty(),
            "{of}: {} troubles\n{}",
            self.0.len(),
            self.0.join("\n")
        );
    }
}

/// Random numbers, from a seed that a failure prints.
struct Random {
    seed: u64,
    state: u64,
}

impl Random {
    fn seeded() -> Self {
        // The standard library's hash seeds come from the kernel's random numbers.
        let seed = std::hash::RandomState::new().build_hasher().finish() | 1;
        Self { seed, state: seed }
    }

    /// xorshift64 (Marsaglia).
    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    fn duration(&mut self, max: Duration) -> Duration {
        let max = u64::try_from(max.as_micros()).unwrap();
        Duration::from_micros(self.next() % max)
    }
}
