//! The settings of the person's git, resolved by git itself outside, with what it includes.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use atoll_policy::GitSettings;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The longest time that git may take: what it includes may be anything.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest list that is read, bytes.
const LIST_BYTES_MAX: u64 = 1 << 20;

/// The places of git. In `PATH` could be one that a program inside has written, or a directory that
/// one can write to.
const PROGRAMS: [&str; 2] = ["/usr/bin/git", "/usr/local/bin/git"];

/// Returns whether a program and its directory can be written by root alone.
fn is_of_system(program: &Path) -> bool {
    let is_roots = |path: &Path| {
        let facts = path.metadata();
        facts.is_ok_and(|facts| facts.uid() == 0 && facts.mode() & 0o022 == 0)
    };
    is_roots(program) && program.parent().is_some_and(is_roots)
}

/// A git that lists its settings, meanwhile.
pub struct Listing(Option<Child>);

impl Listing {
    /// Starts git where the person has settings of their own.
    #[must_use]
    pub fn start(workspace: &Path, home: &Path) -> Self {
        let variable = |name: &str| std::env::var_os(name).map(std::path::PathBuf::from);
        let configuration = variable("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
        let own = variable("GIT_CONFIG_GLOBAL");
        let usual = [home.join(".gitconfig"), configuration.join("git/config")];
        if !own.into_iter().chain(usual).any(|file| file.is_file()) {
            return Self(None);
        }
        let Some(git) = PROGRAMS.iter().map(Path::new).find(|git| is_of_system(git)) else {
            return Self(None);
        };
        // Of the person's own configuration alone: that of the repository names files to include.
        let list = [
            "--no-pager",
            "config",
            "--global",
            "--includes",
            "--null",
            "--list",
        ];
        let kept = ["HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL"];
        let kept = kept
            .into_iter()
            .filter_map(|name| Some((name, std::env::var_os(name)?)));
        let git = Command::new(git)
            .args(list)
            .current_dir(workspace)
            .env_clear()
            .envs(kept)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        Self(git.ok())
    }

    /// Returns the settings; none where git does not list them in time.
    #[must_use]
    pub fn finish(mut self) -> GitSettings {
        let list = self.0.as_mut().and_then(read);
        list.map(|list| settings(&list)).unwrap_or_default()
    }
}

/// Ends git, which may hang or have closed its output and go on.
impl Drop for Listing {
    fn drop(&mut self) {
        if let Some(git) = &mut self.0 {
            let _ = git.kill();
            let _ = git.wait();
        }
    }
}

fn read(git: &mut Child) -> Option<Vec<u8>> {
    let mut output = git.stdout.take()?.take(LIST_BYTES_MAX);
    let until = std::time::Instant::now() + PATIENCE;
    let mut list = Vec::new();
    let mut part = [0; 4096];
    loop {
        let left = until.checked_duration_since(std::time::Instant::now())?;
        let left = Timespec::try_from(left).ok()?;
        let mut waits = [PollFd::new(output.get_ref(), PollFlags::IN)];
        if poll(&mut waits, Some(&left)).ok()? == 0 {
            return None;
        }
        match output.read(&mut part).ok()? {
            0 => return Some(list),
            got => list.extend_from_slice(part.get(..got)?),
        }
    }
}

/// Reads a list of settings, the last of each key in effect.
fn settings(list: &[u8]) -> GitSettings {
    let text = String::from_utf8_lossy(list);
    let all = text.split('\0').filter(|setting| !setting.is_empty());
    // A key without a value means true.
    let all = all.map(|setting| setting.split_once('\n').unwrap_or((setting, "true")));
    let all: BTreeMap<String, String> = all
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let is_on = |key| {
        let value = all.get(key).map(String::as_str);
        !matches!(value, None | Some("false" | "no" | "off" | "0" | ""))
    };
    let signs = is_on("commit.gpgsign") || is_on("tag.gpgsign");
    GitSettings::of(all, signs)
}
