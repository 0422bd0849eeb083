use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, StatFs, mknodat, statfs};

use crate::canary::{self, Canaries};
use crate::invocation::IN_A_CHANGED_ROOT;
use crate::{Invocation, Outcome};

/// The magic numbers of file systems in memory, and of those that are layers themselves
/// (statfs(2)).
const NOT_A_DISK: [u64; 3] = [0x0102_1994, 0x794c_7630, 0x8584_58f6];

/// The avoidability of a skip: whether a host of this kind could have run the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Avoidable {
    /// The host could have run it, had it been set up for it.
    Yes,
    /// The host could not have run it.
    No,
}

/// A user's world for one test: a home, configuration, Atoll's state and a workspace, all new, all
/// removed at the end.
#[derive(Debug)]
pub struct World {
    top: PathBuf,
    name: String,
    canaries: Canaries,
}

impl World {
    /// Makes the world for the test of this name.
    ///
    /// # Panics
    /// When the directories cannot be made, or the test has another name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self::below(name, &base())
    }

    /// Makes the world for the test of this name in a directory on a disk.
    ///
    /// # Panics
    /// When the directories cannot be made, or the test has another name.
    #[must_use]
    pub fn below(name: &str, base: &Path) -> Self {
        let thread = std::thread::current();
        let called = thread.name().unwrap_or("main");
        assert!(
            called == "main" || called.ends_with(name),
            "{called} calls itself {name}"
        );
        let top = tempfile::Builder::new()
            .prefix(canary::PREFIX)
            .tempdir_in(base)
            .expect("no directory for temporary files")
            .keep();
        // Not only its owner may enter: sandboxes of root run as someone else.
        fs::set_permissions(&top, fs::Permissions::from_mode(0o755)).unwrap();
        let top = top.canonicalize().unwrap();
        let world = Self {
            top,
            name: name.to_owned(),
            canaries: Canaries::new(),
        };
        for one in [
            world.home(),
            world.config(),
            world.state(),
            world.workspace(),
        ] {
            fs::create_dir(&one).unwrap();
            fs::set_permissions(&one, fs::Permissions::from_mode(0o755)).unwrap();
        }
        world
    }

    /// Returns the directory that holds all of it.
    #[must_use]
    pub fn top(&self) -> &Path {
        &self.top
    }

    /// Returns `HOME`.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.top.join("home")
    }

    /// Returns `XDG_CONFIG_HOME`.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.top.join("config")
    }

    /// Returns `XDG_STATE_HOME`.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.top.join("state")
    }

    /// Returns the workspace, in which programs start.
    #[must_use]
    pub fn workspace(&self) -> PathBuf {
        self.top.join("workspace")
    }

    /// Adds a value that must appear nowhere but in these files and directories, relative to the
    /// world's top, and in the records of a small internet's servers. From now on all output of the
    /// world's programs is kept; it is searched, with all files, when the world ends.
    ///
    /// # Panics
    /// When the value is too short to be looked for.
    pub fn canary(&self, value: impl AsRef<[u8]>, own: &[&str]) {
        let own = own.iter().chain(&["internet"]).map(Path::new);
        self.canaries
            .add(value.as_ref(), &own.collect::<Vec<&Path>>());
    }

    /// Searches for all such values now; returns their occurrences, a line each.
    ///
    /// # Panics
    /// When the search does not find what it has to find.
    #[must_use]
    pub fn canaries_found(&self) -> Vec<String> {
        self.canaries.found(&self.top)
    }

    /// Searches for them now and not any more: the rest of the test is the control, which shows
    /// them.
    ///
    /// # Panics
    /// When one is where it should not be.
    pub fn only_control_follows(&self) {
        let found = self.canaries_found();
        assert!(found.is_empty(), "{found:#?}");
        self.canaries.forget();
    }

    /// Returns a path in the workspace.
    #[must_use]
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.workspace().join(relative)
    }

    /// Writes a file of the workspace, or any with an absolute path, and makes the directories
    /// above it.
    ///
    /// # Panics
    /// When that does not work.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Reads a file of the workspace as text.
    ///
    /// # Panics
    /// When it cannot be read.
    #[must_use]
    pub fn read(&self, path: impl AsRef<Path>) -> String {
        let path = self.path(path);
        let bytes = fs::read(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns whether a path exists, even as a dangling link.
    #[must_use]
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).symlink_metadata().is_ok()
    }

    /// Writes a profile of the user's own.
    pub fn profile(&self, name: &str, text: &str) {
        self.write(
            self.config().join(format!("atoll/profiles/{name}.toml")),
            text,
        );
    }

    /// Returns an invocation of `atoll` with these arguments.
    pub fn atoll<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Invocation {
        self.host(program()).args(arguments)
    }

    /// Returns an invocation of `atoll run` with options and a shell script to run in the sandbox.
    pub fn run<S: AsRef<OsStr>>(
        &self,
        options: impl IntoIterator<Item = S>,
        script: &str,
    ) -> Invocation {
        self.atoll(["run"])
            .args(options)
            .args(["--", "sh", "-c", script])
    }

    /// Runs a shell script in a sandbox, with default options.
    #[must_use]
    pub fn run_inside(&self, script: &str) -> Outcome {
        self.run([""; 0], script).run()
    }

    /// Returns an invocation of a program of the host, in the same environment.
    pub fn host(&self, program: impl AsRef<OsStr>) -> Invocation {
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        let environment: Vec<(OsString, OsString)> = vec![
            ("PATH".into(), path),
            ("HOME".into(), self.home().into()),
            ("XDG_CONFIG_HOME".into(), self.config().into()),
            ("XDG_STATE_HOME".into(), self.state().into()),
            ("TERM".into(), "xterm-256color".into()),
            ("LANG".into(), "C.UTF-8".into()),
            ("ATOLL".into(), self::program().into()),
        ];
        Invocation::new(
            vec![program.as_ref().to_owned()],
            environment,
            self.workspace(),
            self.canaries.clone(),
        )
    }

    /// Returns an invocation of a shell script of the host, in which `$ATOLL` is the program.
    pub fn host_shell(&self, script: &str) -> Invocation {
        self.host("sh").args(["-c", script])
    }

    /// Returns an invocation of a host shell script as root of a mount namespace of its own, in
    /// which it can mount what nobody else sees. An ordinary user is root there by a user
    /// namespace, and `$ATOLL` returns to the user's own id.
    ///
    /// # Panics
    /// When that way back cannot be written.
    pub fn mount_shell(&self, script: &str) -> Invocation {
        self.apart(script, "--mount")
    }

    /// As [`Self::mount_shell`], with a network of its own, on which it can have any address.
    ///
    /// # Panics
    /// When the way back cannot be written.
    pub fn network_shell(&self, script: &str) -> Invocation {
        self.apart(script, "--net")
    }

    fn apart(&self, script: &str, further: &str) -> Invocation {
        if is_root() {
            let private = ["unshare", "--mount", further, "--propagation", "private"];
            return self.host_shell(script).under(private);
        }
        let back = self.as_the_user("atoll-as-the-user", &program());
        let own = ["unshare", "--user", "--map-root-user", "--mount", further];
        self.host_shell(script).env("ATOLL", back).under(own)
    }

    /// Returns a program that starts another from a [`Self::network_shell`] as the user who runs
    /// these tests; for root the program itself.
    ///
    /// # Panics
    /// When it cannot be written.
    #[must_use]
    pub fn as_the_user(&self, name: &str, program: &Path) -> PathBuf {
        if is_root() {
            return program.to_owned();
        }
        let (user, group) = id();
        let back = self.top.join(name);
        let text = format!(
            "#!/bin/sh\nexec unshare --user --map-user={user} --map-group={group} -- '{}' \"$@\"\n",
            program.display()
        );
        write_program(&back, &text);
        back
    }

    /// Returns a program that starts another as on a host whose root can make no user namespaces:
    /// in a changed root directory the kernel makes none, and allows everything else. For root; the
    /// host's settings stay as they are.
    ///
    /// # Panics
    /// When it cannot be written.
    #[must_use]
    pub fn without_user_namespaces(&self, program: &Path) -> PathBuf {
        let name = program.file_name().unwrap().to_string_lossy();
        let path = self.top.join(format!("{name}-in-a-changed-root"));
        let words = IN_A_CHANGED_ROOT.map(|word| format!("'{}'", word.replace('\'', "'\\''")));
        let words = words.join(" ");
        let text = format!("#!/bin/sh\nexec {words} '{}' \"$@\"\n", program.display());
        write_program(&path, &text);
        path
    }

    /// Returns the id of the run started last.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn last_run(&self) -> String {
        let runs = self.runs();
        let started = |run: &&serde_json::Value| {
            run["started-at-ms"]
                .as_u64()
                .or_else(|| run["started_at_ms"].as_u64())
        };
        let last = runs.iter().max_by_key(started).expect("there is no run");
        last["run"].as_str().unwrap().to_owned()
    }

    /// Returns the newest segment of the ledger.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn segment(&self) -> PathBuf {
        let entries = fs::read_dir(self.state().join("atoll/ledger")).unwrap();
        let mut found: Vec<PathBuf> = entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|end| end == "seg"))
            .collect();
        found.sort();
        found.pop().unwrap()
    }

    /// Returns all runs, the newest first.
    ///
    /// # Panics
    /// When they cannot be listed.
    #[must_use]
    pub fn runs(&self) -> Vec<serde_json::Value> {
        let listed = self.atoll(["runs", "--all", "--json"]).run().success();
        listed.json().as_array().unwrap().clone()
    }

    /// Reports that this test cannot run here; the test then returns.
    ///
    /// # Panics
    /// When the report cannot be written.
    pub fn skip(&self, reason: &str, avoidable: Avoidable) {
        note_skip(&self.name, reason, avoidable);
    }

    /// Reports that a row of this test's table cannot be tried here, though others can.
    ///
    /// # Panics
    /// When the report cannot be written.
    pub fn skip_row(&self, id: &str, reason: &str, avoidable: Avoidable) {
        note_skip(&format!("row {id}"), reason, avoidable);
    }
}

fn note_skip(name: &str, reason: &str, avoidable: Avoidable) {
    println!("skipped: {reason}");
    let Some(file) = std::env::var_os("ATOLL_SKIP_FILE") else {
        return;
    };
    let word = match avoidable {
        Avoidable::Yes => "avoidable",
        Avoidable::No => "unavoidable",
    };
    let mut options = fs::File::options();
    let mut file = options.append(true).create(true).open(file).unwrap();
    // One write, because other tests write to the same file.
    file.write_all(format!("{name}\t{reason}\t{word}\n").as_bytes())
        .unwrap();
}

/// Runs `atoll` and expects that it succeeds.
///
/// # Panics
/// When it does not.
pub fn fine(world: &World, arguments: &[&str]) -> Outcome {
    world.atoll(arguments).run().success()
}

impl Drop for World {
    fn drop(&mut self) {
        let found = match std::thread::panicking() {
            true => Vec::new(),
            false => self.last_search(),
        };
        self.remove();
        assert!(found.is_empty(), "{}: {found:#?}", self.name);
    }
}

impl World {
    fn last_search(&self) -> Vec<String> {
        if self.canaries.are_told() {
            canary::open_for_search(&self.top);
        }
        self.canaries.found(&self.top)
    }

    fn remove(&self) {
        if std::env::var_os("ATOLL_E2E_KEEP").is_some() {
            eprintln!("kept: {}", self.top.display());
            return;
        }
        if fs::remove_dir_all(&self.top).is_ok() {
            return;
        }
        // Overlay's work directories and what tests closed themselves need rights first; what
        // ends a run whose window closed may write its last meanwhile.
        let until = Instant::now() + Duration::from_secs(20);
        let removed = loop {
            open_up(&self.top);
            let removed = fs::remove_dir_all(&self.top);
            if removed.is_ok() || std::thread::panicking() || Instant::now() > until {
                break removed;
            }
            std::thread::sleep(Duration::from_millis(100));
        };
        if !std::thread::panicking() {
            removed.unwrap_or_else(|why| panic!("{} is left behind: {why}", self.top.display()));
        }
    }
}

fn open_up(directory: &Path) {
    let _ = fs::set_permissions(directory, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
    {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}

/// Returns the program under test.
fn program() -> PathBuf {
    std::env::var_os("ATOLL_BIN")
        .expect("ATOLL_BIN names the program to test")
        .into()
}

/// Returns the directory in which worlds are made: on a disk, as people's directories are.
fn base() -> PathBuf {
    let on_disk = |path: &Path| {
        statfs(path).is_ok_and(|StatFs { f_type, .. }| !NOT_A_DISK.contains(&(f_type as u64)))
    };
    let named = std::env::var_os("ATOLL_TEST_BASE").map(PathBuf::from);
    named
        .into_iter()
        .chain([std::env::temp_dir()])
        .find(|path| on_disk(path))
        .unwrap_or_else(|| PathBuf::from("/var/tmp"))
}

/// Returns whether this process is root.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns this user's and group's ids.
#[must_use]
pub fn id() -> (u32, u32) {
    (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    )
}

/// Returns whether the tests that take long are wanted.
#[must_use]
pub fn is_nightly() -> bool {
    std::env::var_os("ATOLL_NIGHTLY").is_some()
}

/// Returns the project's cache of programs installed for tests, if there is one.
#[must_use]
pub fn cache() -> Option<PathBuf> {
    std::env::var_os("ATOLL_TEST_CACHE").map(PathBuf::from)
}

/// Returns the Python environment in the cache that has a package of PyPI and what it needs.
pub(crate) fn site(package: &str) -> Option<PathBuf> {
    let site = cache()?.join("pip/sites").join(package);
    site.join("whole").is_file().then_some(site)
}

/// Returns the same, which nobody changes; where it is missing, the test is skipped.
#[must_use]
pub fn python_site(world: &World, package: &str) -> Option<PathBuf> {
    let site = site(package);
    if site.is_none() {
        let why = format!("{package} of PyPI is not in ATOLL_TEST_CACHE");
        world.skip(&why, Avoidable::Yes);
    }
    site
}

/// Returns whether the host has a program.
#[must_use]
pub fn program_exists(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
}

/// Returns whether an ordinary user can be root of namespaces of their own.
#[must_use]
pub fn can_be_ordinary_root() -> bool {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "--", "true"]);
    command
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Writes an executable program, from a process of its own: a file that a thread of the tests has
/// open for writing is inherited by a process that another thread starts at that moment, and until
/// that executes its program nobody can execute the file (`ETXTBSY`, execve(2)).
///
/// # Panics
/// When that does not work.
pub fn write_program(path: &Path, text: &str) {
    let mut command = Command::new("install");
    command.args(["-m", "755", "/dev/stdin"]).arg(path);
    let mut writing = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut to = writing.stdin.take().unwrap();
    to.write_all(text.as_bytes()).unwrap();
    drop(to);
    assert!(writing.wait().unwrap().success(), "{}", path.display());
}

/// Makes a named pipe.
///
/// # Panics
/// When that does not work.
pub fn make_fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
}
