//! Races: a directory is exchanged for a link that leads outside, again and again, while changes
//! are written to the workspace and undone.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use e2e::{Entry, World, tree};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::harness::weakened;

/// The length of each race.
const RACE: Duration = Duration::from_secs(4);
/// The longest time for the control to lose.
const CONTROL_MAX: Duration = Duration::from_secs(60);

/// The number of exchanges in a burst, an even one; then everything is in its place for a while.
const BURST: u64 = 64;
const CALM: Duration = Duration::from_millis(15);

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
                    // Now and then somebody gets through the first looks.
                    if count % BURST == 0 {
                        std::thread::sleep(CALM);
                    }
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

/// Returns a workspace whose `dir` can be exchanged for a link to `outside`, and that `outside`.
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

/// Runs the control: the same race against a process that writes by paths.
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
    let end = Instant::now() + RACE;
    let (mut swaps, mut applied, mut undone) = (0, 0, 0);
    let decide = |arguments: &[&str]| u32::from(world.atoll(arguments).run().code() == 0);
    let mut rounds = 0;
    while Instant::now() < end {
        let swapping = swapper(&world);
        applied += decide(&["apply", "last", "--force"]);
        swaps += swapping.finish();
        assert!(
            outside(&world) == before,
            "apply GOT outside: {:?}",
            outside(&world)
        );
        // Nobody is in the way: what was cut short is taken back, and all applied.
        settle(&world);
        let _ = decide(&["apply", "last", "--take-back"]);
        let _ = decide(&["undo", "last", "--force"]);
        rounds += decide(&["apply", "last", "--force"]);
        let swapping = swapper(&world);
        undone += decide(&["undo", "last", "--force"]);
        swaps += swapping.finish();
        assert!(
            outside(&world) == before,
            "undo GOT outside: {:?}",
            outside(&world)
        );
        settle(&world);
        let _ = decide(&["apply", "last", "--take-back"]);
        let _ = decide(&["undo", "last", "--force"]);
    }
    println!(
        "{swaps} swaps, {rounds} rounds; {applied} applied and {undone} undone meanwhile [AML.T0105]"
    );
    assert!(swaps > 100 && rounds > 0, "{swaps} swaps, {rounds} rounds");
}

/// Puts the directory back where it belongs.
fn settle(world: &World) {
    let (one, other) = (world.path("dir"), world.top().join("link"));
    if one.is_symlink() {
        renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
    }
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
