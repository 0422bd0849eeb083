//! The user that something runs as: the caller, or an ordinary user that is nothing but a user id;
//! each with a fresh home and a clean environment.
//!
//! The ordinary user needs no account. Everything that it has to read lies in a [`Stage`], because
//! the project itself may be in a home that nobody else can enter.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::command;

/// The user and group id of the ordinary user, which no account has.
const ORDINARY_ID: u32 = 61234;

const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The variables of the caller's environment that tests and benchmarks may see.
const PASSED_ON: [&str; 6] = [
    "CI",
    "LANG",
    "TERM",
    "TZ",
    "RUST_TEST_THREADS",
    "ATOLL_GOLDEN",
];

/// A directory that everyone can read, removed on drop.
pub(crate) struct Stage {
    directory: TempDir,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// The user who started this task.
    Caller,
    Ordinary,
}

pub(crate) struct Person {
    pub(crate) label: &'static str,
    pub(crate) home: PathBuf,
    pub(crate) temporary: PathBuf,
    who: Who,
    path: String,
}

/// The files that the tests of one person append to: what they could not do, and the rows of tables
/// that they went through.
pub(crate) struct Reports {
    pub(crate) skips: PathBuf,
    pub(crate) rows: PathBuf,
}

impl Reports {
    /// Returns what is in a file, however broken.
    pub(crate) fn read(path: &Path) -> String {
        String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
    }
}

/// Returns the user id of this process.
pub(crate) fn caller_id() -> Result<u32> {
    let status = fs::metadata("/proc/self").context("/proc has to be mounted")?;
    Ok(status.uid())
}

/// Returns the users to run as: root also runs everything as the ordinary user, if setpriv(1) is
/// installed.
pub(crate) fn everyone() -> Result<Vec<Who>> {
    let root = caller_id()? == 0;
    let both = root && command::find("setpriv").is_some();
    Ok(if both {
        vec![Who::Caller, Who::Ordinary]
    } else {
        vec![Who::Caller]
    })
}

/// Returns the arguments of setpriv(1) that become the ordinary user.
fn as_ordinary_user() -> [String; 4] {
    [
        format!("--reuid={ORDINARY_ID}"),
        format!("--regid={ORDINARY_ID}"),
        "--clear-groups".to_owned(),
        "--".to_owned(),
    ]
}

impl Stage {
    pub(crate) fn below(base: &Path, prefix: &str) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix(prefix)
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir_in(base)
            .with_context(|| format!("cannot make a directory in {}", base.display()))?;
        // The umask may have taken rights away.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
        Ok(Self { directory })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Links a large program, or else copies it, to where everyone can start it.
    pub(crate) fn link(&self, source: &Path, name: &str) -> Result<PathBuf> {
        let target = self.path().join(name);
        match fs::hard_link(source, &target) {
            Ok(()) => Ok(target),
            Err(_) => self.place(source, name),
        }
    }

    /// Copies a program to where everyone can start it.
    pub(crate) fn place(&self, source: &Path, name: &str) -> Result<PathBuf> {
        let target = self.path().join(name);
        // What debuggers read is most of a test build, and tests copy programs.
        let mut strip = Command::new("strip");
        strip.args(["--strip-debug", "-o"]).arg(&target).arg(source);
        if command::output(&mut strip).is_err() {
            fs::copy(source, &target)
                .with_context(|| format!("cannot copy {}", source.display()))?;
        }
        fs::set_permissions(&target, fs::Permissions::from_mode(0o755))?;
        Ok(target)
    }

    /// Makes a person with a fresh home and a directory for temporary files in the stage.
    pub(crate) fn person(&self, who: Who) -> Result<Person> {
        let (label, folder) = match who {
            Who::Caller if caller_id()? == 0 => ("root", "root"),
            Who::Caller => ("ordinary user", "caller"),
            Who::Ordinary => ("ordinary user", "ordinary"),
        };
        let own = self.path().join(folder);
        let (home, temporary) = (own.join("home"), own.join("tmp"));
        // Tests of root become other users in what they make for temporary use.
        for (directory, mode) in [(&own, 0o755), (&home, 0o700), (&temporary, 0o711)] {
            fs::create_dir(directory)?;
            fs::set_permissions(directory, fs::Permissions::from_mode(mode))?;
        }
        let person = Person {
            label,
            home,
            temporary,
            who,
            path: reachable_path(),
        };
        let reports = person.reports();
        for file in [&reports.skips, &reports.rows] {
            fs::write(file, "")?;
        }
        for path in [
            &own,
            &person.home,
            &person.temporary,
            &reports.skips,
            &reports.rows,
        ] {
            person.own(path)?;
        }
        Ok(person)
    }

    /// Removes the directory; unlike on drop, a failure is an error.
    pub(crate) fn close(self) -> Result<()> {
        let path = self.path().to_path_buf();
        self.directory
            .close()
            .with_context(|| format!("{} is left behind", path.display()))
    }
}

impl Person {
    /// Returns a command that runs as this person, with a clean environment.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = match self.who {
            Who::Caller => Command::new(program),
            Who::Ordinary => {
                let mut command = Command::new("setpriv");
                command.args(as_ordinary_user()).arg(program);
                command
            }
        };
        self.clean(&mut command);
        command
    }

    /// Writes a script that starts a program as this person and passes its arguments on; the rest
    /// of the environment stays. Returns its path.
    pub(crate) fn starter(&self, program: &Path, script: &Path) -> Result<PathBuf> {
        let words = match self.who {
            Who::Caller => String::new(),
            Who::Ordinary => format!("setpriv {} ", as_ordinary_user().join(" ")),
        };
        let (home, temporary) = (self.home.display(), self.temporary.display());
        let reports = self.reports();
        let text = format!(
            "#!/bin/sh\nexport HOME={home} TMPDIR={temporary} ATOLL_SKIP_FILE={} ATOLL_RAN_FILE={}\n\
             exec {words}{} \"$@\"\n",
            reports.skips.display(),
            reports.rows.display(),
            program.display(),
        );
        fs::write(script, text)?;
        fs::set_permissions(script, fs::Permissions::from_mode(0o755))?;
        Ok(script.to_path_buf())
    }

    /// Returns the files that this person's tests append to.
    pub(crate) fn reports(&self) -> Reports {
        Reports {
            skips: self.temporary.join("skips"),
            rows: self.temporary.join("rows"),
        }
    }

    /// Gives a command this person's environment and nothing of the caller's.
    fn clean(&self, command: &mut Command) {
        command.env_clear().current_dir(&self.home);
        for name in PASSED_ON {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command
            .env("PATH", &self.path)
            .env("HOME", &self.home)
            .env("TMPDIR", &self.temporary)
            .stdin(std::process::Stdio::null());
    }

    /// Makes this person the owner of a file or directory.
    pub(crate) fn own(&self, path: &Path) -> Result<()> {
        if self.who == Who::Ordinary {
            chown(path, Some(ORDINARY_ID), Some(ORDINARY_ID))?;
        }
        Ok(())
    }

    /// Returns whether this person can enter a directory of the caller's.
    pub(crate) fn can_enter(&self, directory: &Path) -> bool {
        self.who == Who::Caller || everyone_can_enter(directory)
    }

    /// Puts a directory first in this person's `PATH`.
    pub(crate) fn prefer(&mut self, directory: &Path) {
        self.path = format!("{}:{}", directory.display(), self.path);
    }
}

/// Returns `PATH` without directories in a home, which neither another user nor a sandbox can
/// enter.
fn reachable_path() -> String {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let inherited = std::env::var("PATH").unwrap_or_default();
    let mut kept: Vec<&str> = Vec::new();
    for directory in inherited.split(':').chain(SYSTEM_PATH.split(':')) {
        let at_home = home
            .as_ref()
            .is_some_and(|home| home.parent().is_some() && Path::new(directory).starts_with(home));
        let usable = directory.starts_with('/') && everyone_can_enter(Path::new(directory));
        if usable && !at_home && !kept.contains(&directory) {
            kept.push(directory);
        }
    }
    kept.join(":")
}

/// Returns whether any user can enter the directory and all above it.
pub(crate) fn everyone_can_enter(directory: &Path) -> bool {
    directory.ancestors().all(|ancestor| {
        fs::metadata(ancestor).is_ok_and(|status| status.is_dir() && status.mode() & 0o001 != 0)
    })
}
