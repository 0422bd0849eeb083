//! Races: somebody exchanges a directory for a link that leads outside, again and again,
//! while changes are written to the workspace and taken back.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use e2e::{Entry, World, tree};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::harness::weakened;

/// How long each race is run.
const RACE: Duration = Duration::from_secs(4);
/// How long the control may take to lose.
const CONTROL_MAX: Duration = Duration::from_secs(60);

/// Exchanges two names until it is dropped.
struct Swapper {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Swapper {
    fn start(one: PathBuf, other: PathBuf) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut count = 0;
            while !told.load(Ordering::Relaxed) {
                if renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).is_ok() {
                    count += 1;
                }
            }
            count
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }

    fn finish(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

type Outside = std::collections::BTreeMap<PathBuf, Entry>;

/// A workspace whose `dir` can be exchanged for a link to `outside`.
fn furnish(test: &str) -> (World, Outside) {
    let world = World::new(test);
    world.write("dir/file", "text\n");
    world.write(world.top().join("outside/file"), "untouched\n");
    symlink(world.top().join("outside"), world.top().join("link")).unwrap();
    let outside = tree(&world.top().join("outside"));
    (world, outside)
}

fn swapper(world: &World) -> Swapper {
    Swapper::start(world.path("dir"), world.top().join("link"))
}

fn outside(world: &World) -> Outside {
    tree(&world.top().join("outside"))
}

/// The control: the same race against somebody who writes by paths.
fn careless_loses(test: &str) {
    let (world, before) = furnish(test);
    let swapper = swapper(&world);
    let end = Instant::now() + CONTROL_MAX;
    let mut lost = false;
    while !lost && Instant::now() < end {
        for _ in 0..100 {
            // What a careful but path-bound program does: looks first.
            let path = world.path("dir/file");
            if world
                .path("dir")
                .symlink_metadata()
                .is_ok_and(|facts| facts.is_dir())
            {
                let _ = fs::write(path, "evil\n");
            }
        }
        lost = outside(&world) != before;
    }
    swapper.finish();
    assert!(lost, "the race is lost by nobody, so it tests nothing");
}

#[test]
fn a_swapped_directory_leads_no_apply_and_no_undo_outside() {
    const TEST: &str = "a_swapped_directory_leads_no_apply_and_no_undo_outside";
    if weakened(TEST).is_none() {
        return;
    }
    careless_loses(TEST);
    let (world, before) = furnish(TEST);
    let script = "echo evil > dir/file; for n in $(seq 40); do echo evil > dir/new$n; done; mkdir dir/sub; \
                  echo evil > dir/sub/file";
    let _ = world.run(["--keep"], script).run().success();
    let swapping = swapper(&world);
    let end = Instant::now() + RACE;
    let (mut applied, mut undone) = (0, 0);
    while Instant::now() < end {
        applied += u32::from(world.atoll(["apply", "last", "--force"]).run().code() == 0);
        assert!(
            outside(&world) == before,
            "apply GOT outside: {:?}",
            outside(&world)
        );
        undone += u32::from(world.atoll(["undo", "last", "--force"]).run().code() == 0);
        assert!(
            outside(&world) == before,
            "undo GOT outside: {:?}",
            outside(&world)
        );
        let _ = world.atoll(["apply", "last", "--take-back"]).run();
    }
    let swaps = swapping.finish();
    println!("swapped {swaps} times; {applied} applied, {undone} undone [AML.T0105]");
    assert!(swaps > 100, "nothing was swapped");
}

#[test]
fn a_swapped_directory_leads_no_live_run_and_no_checkpoint_outside() {
    const TEST: &str = "a_swapped_directory_leads_no_live_run_and_no_checkpoint_outside";
    if weakened(TEST).is_none() {
        return;
    }
    let (world, before) = furnish(TEST);
    let swapping = swapper(&world);
    let end = Instant::now() + RACE;
    let mut ran = 0;
    while Instant::now() < end {
        let script = "for n in $(seq 20); do echo evil > dir/file; echo evil > dir/new; rm -f dir/new; done 2>/dev/null";
        ran += u32::from(world.run(["--live"], script).run().code() != 125);
        assert!(
            outside(&world) == before,
            "a live run GOT outside: {:?}",
            outside(&world)
        );
        let _ = world.atoll(["undo", "last", "--force"]).run();
        assert!(
            outside(&world) == before,
            "undo GOT outside: {:?}",
            outside(&world)
        );
    }
    let swaps = swapping.finish();
    println!("swapped {swaps} times; {ran} live runs [AML.T0105]");
    assert!(swaps > 100 && ran > 0, "{swaps} swaps, {ran} runs");
}
