//! The traces that a run might leave on its host, taken before and compared afterwards.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::remains::{adopt_orphans, alive, files, groups, mounts, recorded_runs};
use crate::{Entry, Running, World, tree};

/// The longest time for the end of a sandbox, on a machine however busy: a longer wait is a hang.
pub const GONE_WITHIN: Duration = Duration::from_secs(60);
/// The user ids that Atoll allocates itself, as root without user namespaces.
const USERS_OF_RUNS: std::ops::RangeInclusive<u32> = 1_879_048_192..=2_147_483_647;
/// The interval at which the host is checked.
const LOOK: Duration = Duration::from_millis(2);

/// Makes this process adopt every orphan beneath it, so that this test's processes can be counted.
///
/// # Panics
/// When other tests run in the same process: whose processes are counted then?
pub fn alone() {
    let is_alone = std::env::var_os("NEXTEST").is_some();
    assert!(is_alone, "needs a process of its own: cargo nextest run");
    adopt_orphans();
}

/// The state of the host that a test can see and a run might change.
#[derive(Debug)]
pub struct Traces {
    files: BTreeMap<PathBuf, u64>,
    mounts: Vec<String>,
    shared_memory: BTreeMap<PathBuf, u64>,
}

impl Traces {
    /// Takes the traces.
    ///
    /// # Panics
    /// When the first run does not succeed.
    #[must_use]
    pub fn take(world: &World) -> Self {
        // What is made once, such as the state directory, is there from here on.
        let _ = world
            .atoll(["run", "--discard", "--", "true"])
            .run()
            .success();
        Self {
            files: lasting_files(world),
            mounts: mounts(world.top()),
            shared_memory: shared_memory(),
        }
    }

    /// Checks that no process, control group or mount is left.
    ///
    /// # Panics
    /// When one is.
    pub fn expect_no_processes(&self, world: &World, what: &str) {
        let left = until_none(alive);
        assert!(left.is_empty(), "{what}: alive: {left:?}");
        let left = until_none(|| groups(&recorded_runs(&world.state())));
        assert!(left.is_empty(), "{what}: control groups: {left:?}");
        assert_eq!(mounts(world.top()), self.mounts, "{what}: mounts");
    }

    /// Checks that nothing at all is left.
    ///
    /// # Panics
    /// When something is.
    pub fn expect_same(&self, world: &World, what: &str) {
        self.expect_no_processes(world, what);
        let now = lasting_files(world);
        let new: Vec<_> = now
            .keys()
            .filter(|path| !self.files.contains_key(*path))
            .collect();
        assert!(new.is_empty(), "{what}: files: {new:?}");
        let shared = shared_memory();
        let new: Vec<_> = shared
            .keys()
            .filter(|path| !self.shared_memory.contains_key(*path))
            .collect();
        assert!(new.is_empty(), "{what}: shared memory: {new:?}");
    }
}

/// Returns the entries of the machine's shared memory that could come from a run of this user,
/// without those of the tests themselves.
fn shared_memory() -> BTreeMap<PathBuf, u64> {
    let own = rustix::process::geteuid().as_raw();
    let is_of_a_run = |path: &Path| {
        let owner = fs::symlink_metadata(path).map(|facts| facts.uid());
        owner.is_ok_and(|owner| owner == own || USERS_OF_RUNS.contains(&owner))
    };
    let mut all = files(Path::new("/dev/shm"));
    all.retain(|path, _| !is_of_a_test(path) && is_of_a_run(path));
    all
}

fn is_of_a_test(path: &Path) -> bool {
    let own = |part: std::path::Component<'_>| {
        part.as_os_str()
            .as_encoded_bytes()
            .starts_with(b"atoll-e2e-")
    };
    path.components().any(own)
}

/// Returns all of a world's files except the ledger, which is there to grow, and the records of
/// failed runs, which `atoll why` and `atoll gc` work with.
fn lasting_files(world: &World) -> BTreeMap<PathBuf, u64> {
    let mut all = files(world.top());
    let state = world.state().join("atoll");
    let failed: Vec<PathBuf> = all
        .keys()
        .filter(|path| path.ends_with("record.json"))
        .filter(|path| fs::read_to_string(path).is_ok_and(|text| text.contains("\"failed\"")))
        .filter_map(|path| path.parent().map(Path::to_path_buf))
        .collect();
    let kept_apart = |path: &Path| {
        path.starts_with(state.join("ledger"))
            // Made for the first run that lasts, and there from then on; what is in it counts.
            || path == state.join("control")
            || failed.iter().any(|run| path.starts_with(run))
    };
    all.retain(|path, _| !kept_apart(path));
    all
}

/// Returns the status of a command line that ends in time.
#[must_use]
pub fn end_of(running: &mut Running) -> Option<i32> {
    use std::os::unix::process::ExitStatusExt;
    let end = Instant::now() + GONE_WITHIN;
    loop {
        if let Some(status) = running.status() {
            return Some(status.code().unwrap_or(128 + status.signal().unwrap_or(0)));
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(LOOK);
    }
}

/// Repeats a query until its result is empty; returns the last one.
pub fn until_none<T>(mut ask: impl FnMut() -> Vec<T>) -> Vec<T> {
    let end = Instant::now() + GONE_WITHIN;
    loop {
        let found = ask();
        if found.is_empty() || Instant::now() >= end {
            return found;
        }
        std::thread::sleep(LOOK);
    }
}

/// Returns content, mode and owner of everything beneath a directory, but no times.
#[must_use]
pub fn contents(directory: &Path) -> BTreeMap<PathBuf, Entry> {
    let mut all = tree(directory);
    all.values_mut().for_each(|entry| entry.modified = None);
    all
}

/// Returns the events of the ledger.
///
/// # Panics
/// When it cannot be shown.
#[must_use]
pub fn events(world: &World) -> Vec<serde_json::Value> {
    let shown = world.atoll(["ledger", "show", "--json"]).run().success();
    shown
        .out()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Checks that the ledger is whole.
///
/// # Panics
/// When it is not.
pub fn verify_ledger(world: &World) {
    let verified = world.atoll(["ledger", "verify"]).run();
    assert_eq!(verified.code(), 0, "{verified}");
}
