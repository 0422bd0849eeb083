//! The registry: tools by their names, from `tools.toml` and `tools/*.toml` beside the profiles, and
//! from installed packs.

mod packs;
mod upstreams;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use atoll_engine::configuration::read_optional;
use atoll_engine::failure::{Doing, Failure};
use atoll_model::ToolName;
use serde::Deserialize;

use crate::guard::Guard;
use crate::keys::Keys;
use crate::limits::{self, Bounds};
use crate::pack::{FILE, Pack};
use crate::results::Results;
use crate::tool::{Tool, Written};
use crate::upstream::pins::Pins;
use crate::upstream::{self, Upstream};

/// The directory of more files of tools.
const DIRECTORY: &str = "tools";
/// The file with the names of tools that are switched off, a line each.
const SWITCHES: &str = "tools.off";
/// The most files of tools.
const FILES_MAX: usize = 256;
/// The most tools.
const TOOLS_MAX: usize = 4_096;

/// Something in a file of tools that is wrong: no tool of that name, or of that file, counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: String,
    /// The table, as `tool.NAME` or `upstream.NAME`, if it is about one.
    pub table: Option<String>,
    /// The description of what is wrong.
    pub why: String,
}

/// The tools that are described, and what is wrong with others.
#[derive(Debug, Default)]
pub struct Registry {
    tools: BTreeMap<ToolName, Arc<Tool>>,
    upstreams: BTreeMap<String, Arc<Upstream>>,
    pub(crate) session: Option<Bounds>,
    pub(crate) caller: Option<Bounds>,
    has_bad_bounds: bool,
    problems: Vec<Problem>,
}

/// A file of tools.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    tool: BTreeMap<String, toml::Value>,
    #[serde(default)]
    upstream: BTreeMap<String, toml::Value>,
    session: Option<toml::Value>,
    caller: Option<toml::Value>,
}

impl Registry {
    /// Reads the files in a configuration directory, and the approved tools in that of the state. A
    /// file or a tool that is wrong is a [`Problem`], and the others count.
    #[must_use]
    pub fn read(configuration: &Path, state: &Path) -> Self {
        let mut registry = Self::default();
        let mut twice = BTreeSet::new();
        match files(configuration) {
            Ok(files) if files.len() <= FILES_MAX => {
                for file in files {
                    registry.add_file(&file, &mut twice);
                }
            }
            Ok(files) => {
                let why = format!("{} files, and {FILES_MAX} at most", files.len());
                registry.problem(&configuration.join(DIRECTORY), None, why);
            }
            Err(error) => registry.problem(configuration, None, error.to_string()),
        }
        registry.add_packs(configuration, state, &mut twice);
        registry.check_prefixes();
        for upstream in registry.upstreams.clone().values() {
            registry.add_of(upstream, state, &mut twice);
            registry.check_named(upstream);
        }
        if registry.tools.len() > TOOLS_MAX {
            let why = format!("{} tools, and {TOOLS_MAX} at most", registry.tools.len());
            registry.problem(configuration, None, why);
            registry.tools.clear();
        }
        if registry.has_bad_bounds {
            let why = "limits cannot be read: no tool can be called".to_owned();
            registry.problem(configuration, None, why);
            registry.tools.clear();
        }
        match off(configuration) {
            Ok(off) => registry.switch_off(&off),
            Err(failure) => {
                let why = failure.why.unwrap_or(failure.what);
                registry.problem(&configuration.join(SWITCHES), None, why);
                // Nobody knows which ones are off.
                registry.tools.clear();
            }
        }
        registry
    }

    /// Returns every tool, by its name.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<Tool>> {
        self.tools.values()
    }

    /// Returns the tool of a name.
    #[must_use]
    pub fn tool(&self, name: &str) -> Option<&Arc<Tool>> {
        let name = ToolName::parse(name).ok()?;
        self.tools.get(&name)
    }

    /// Returns what is wrong.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    fn problem(&mut self, file: &Path, table: Option<(&str, &str)>, why: String) {
        self.problems.push(Problem {
            file: file.display().to_string(),
            table: table.map(|(kind, name)| format!("{kind}.{name}")),
            why,
        });
    }

    fn add_file(&mut self, path: &Path, twice: &mut BTreeSet<String>) {
        let mut file: File = match read(path) {
            Ok(Some(file)) => file,
            Ok(None) => return,
            Err(why) => {
                // Nobody knows what it limits.
                self.has_bad_bounds |= may_limit(path);
                return self.problem(path, None, why);
            }
        };
        for (of, written) in [
            ("session", file.session.take()),
            ("caller", file.caller.take()),
        ] {
            if let Some(written) = written {
                self.add_bounds(path, of, written);
            }
        }
        self.add_parsed(file, path, None, twice);
    }

    fn add_parsed(
        &mut self,
        file: File,
        path: &Path,
        pack: Option<&Pack>,
        twice: &mut BTreeSet<String>,
    ) {
        for (name, written) in file.upstream {
            self.add_upstream(path, &name, written, pack, twice);
        }
        for (name, written) in file.tool {
            let tool = written.try_into().map_err(|error| error.to_string());
            let tool = tool.and_then(|one: Written| one.read(&name, &path.display().to_string()));
            let bound = |tool| packs::bound(tool, pack);
            match tool.and_then(bound) {
                Ok(tool) => self.add(tool, path, twice),
                Err(why) => self.problem(path, Some(("tool", &name)), why.trim_end().to_owned()),
            }
        }
    }

    /// Adds the limits of every session, or caller. Where they cannot be read, none is unlimited.
    fn add_bounds(&mut self, path: &Path, of: &str, written: toml::Value) {
        let read = written.try_into().map_err(|error| error.to_string());
        let read = read.and_then(|written: limits::Written| match of {
            "session" => written.read_of_session(),
            _ => written.read(),
        });
        let to = match of {
            "session" => &mut self.session,
            _ => &mut self.caller,
        };
        let why = match (&to, read) {
            (None, Ok(bounds)) => {
                *to = Some(bounds);
                return;
            }
            (Some(_), Ok(_)) => "described twice".to_owned(),
            (_, Err(why)) => why.trim_end().to_owned(),
        };
        self.has_bad_bounds = true;
        self.problem(path, None, format!("[{of}]: {why}"));
    }

    fn add_upstream(
        &mut self,
        path: &Path,
        name: &str,
        written: toml::Value,
        pack: Option<&Pack>,
        twice: &mut BTreeSet<String>,
    ) {
        // No tool has such a name.
        let key = format!("upstream {name}");
        let read = written.try_into().map_err(|error| error.to_string());
        let file = path.display().to_string();
        let read = read.and_then(|one: upstream::Written| one.read(name, &file));
        let bound = |upstream| packs::bound_upstream(upstream, pack);
        let read = read.and_then(bound);
        let why = match read {
            Ok(upstream) if !twice.contains(&key) && !self.upstreams.contains_key(name) => {
                self.upstreams.insert(name.to_owned(), Arc::new(upstream));
                return;
            }
            Ok(_) => {
                self.upstreams.remove(name);
                twice.insert(key);
                "described twice: none of them counts".to_owned()
            }
            Err(why) => why.trim_end().to_owned(),
        };
        self.problem(path, Some(("upstream", name)), why);
    }

    /// Returns everything that has a breaker, by the name that it goes by.
    #[must_use]
    pub fn counted(&self) -> BTreeSet<String> {
        self.tools.values().map(|tool| tool.counted()).collect()
    }

    /// Returns the upstream of a name.
    #[must_use]
    pub fn upstream(&self, name: &str) -> Option<&Arc<Upstream>> {
        self.upstreams.get(name)
    }

    /// Adds a tool. Names that differ in their case alone are the same to a person.
    fn add(&mut self, tool: Tool, path: &Path, twice: &mut BTreeSet<String>) {
        let name = tool.name.clone();
        let key = name.as_str().to_ascii_lowercase();
        let same = |one: &ToolName| one.as_str().eq_ignore_ascii_case(&key);
        let before = self.tools.keys().find(|one| same(one)).cloned();
        if let Some(before) = before {
            self.tools.remove(&before);
            twice.insert(key);
        } else if !twice.contains(&key) {
            self.tools.insert(name, Arc::new(tool));
            return;
        }
        let why = "described twice: none of them counts".to_owned();
        self.problem(path, Some(("tool", name.as_str())), why);
    }

    fn switch_off(&mut self, off: &BTreeSet<String>) {
        for (name, tool) in &mut self.tools {
            if off.contains(name.as_str())
                && let Some(tool) = Arc::get_mut(tool)
            {
                tool.enabled = false;
            }
        }
    }
}

/// Returns whether a file that cannot be read could have limits of sessions or callers.
fn may_limit(path: &Path) -> bool {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let begins = |line: &str| {
        let line = line.trim_start().trim_start_matches('[').trim_start();
        line.starts_with("session") || line.starts_with("caller")
    };
    text.lines().any(begins)
}

fn read(path: &Path) -> Result<Option<File>, String> {
    let read = read_optional(path).map_err(|failure| failure.why.unwrap_or(failure.what))?;
    let Some(file) = read else {
        return Ok(None);
    };
    parsed(&file.content).map(Some)
}

fn parsed(content: &[u8]) -> Result<File, String> {
    let text = std::str::from_utf8(content).map_err(|_| "it is not UTF-8".to_owned())?;
    toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())
}

/// Returns the files of tools, in the order in which they are read.
fn files(configuration: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    let entries = match fs::read_dir(configuration.join(DIRECTORY)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        entries => Some(entries?),
    };
    for entry in entries.into_iter().flatten() {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "toml") {
            all.push(path);
        }
    }
    all.sort();
    all.insert(0, configuration.join(FILE));
    Ok(all)
}

fn off(configuration: &Path) -> Result<BTreeSet<String>, Failure> {
    let file = read_optional(&configuration.join(SWITCHES))?;
    let content = file.map(|file| file.content.into_owned());
    let text = String::from_utf8(content.unwrap_or_default()).doing("it is not UTF-8")?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// The place of a file, by which a change is noticed.
type Stamp = (PathBuf, Option<(i64, i64, u64, u64)>);

/// The registry of a configuration directory, read again when its files change, and the switches
/// in it.
pub struct ToolSwitches {
    configuration: PathBuf,
    state: PathBuf,
    guard: Guard,
    results: Results,
    keys: Keys,
    read: Mutex<Option<(Vec<Stamp>, Arc<Registry>)>>,
}

impl ToolSwitches {
    /// Makes it of the directories of the configuration and of the state.
    #[must_use]
    pub fn new(configuration: &Path, state: &Path) -> Self {
        Self {
            configuration: configuration.to_owned(),
            state: state.to_owned(),
            guard: Guard::new(state),
            results: Results::default(),
            keys: Keys::default(),
            read: Mutex::default(),
        }
    }

    /// Returns the limits and breakers of its calls.
    #[must_use]
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Returns the keys of calls.
    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Returns the rests of results that were cut.
    pub(crate) fn results(&self) -> &Results {
        &self.results
    }

    /// Returns the registry as its files are now.
    pub fn registry(&self) -> Arc<Registry> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let before = read.as_ref().map(|(_, registry)| Arc::clone(registry));
        let now = self.stamps(before.as_deref());
        if let Some((then, registry)) = &*read
            && *then == now
        {
            return Arc::clone(registry);
        }
        let registry = Registry::read(&self.configuration, &self.state);
        let registry = Arc::new(registry);
        // The files that it names for the first time are looked at again by the next caller.
        *read = Some((now, Arc::clone(&registry)));
        registry
    }

    /// Returns the places of all files, those that a registry names too.
    fn stamps(&self, registry: Option<&Registry>) -> Vec<Stamp> {
        let stamp = |path: PathBuf| {
            let found = fs::metadata(&path).ok();
            let found =
                found.map(|found| (found.mtime(), found.mtime_nsec(), found.size(), found.ino()));
            (path, found)
        };
        let files = files(&self.configuration).unwrap_or_default();
        let pins = fs::read_dir(self.state.join("tools"));
        let pins = pins
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        let mut pins: Vec<PathBuf> = pins.collect();
        pins.sort();
        let others = [self.configuration.join(SWITCHES)];
        let upstreams = registry.into_iter().flat_map(|one| one.upstreams.values());
        let documents = upstreams.filter_map(|one| one.document().map(Path::to_owned));
        files
            .into_iter()
            .chain(others)
            .chain(pins)
            .chain(documents)
            .chain(packs::paths(&self.configuration, &self.state))
            .map(stamp)
            .collect()
    }

    /// Approves the tools of an upstream.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn pin(&self, upstream: &Upstream, pins: &Pins) -> Result<(), Failure> {
        pins.write(&self.state, upstream)
    }

    /// Returns the approved tools of an upstream, if there are any.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn pins(&self, upstream: &Upstream) -> Result<Option<Pins>, Failure> {
        Pins::read(&self.state, upstream).doing("the approved tools cannot be read")
    }

    /// Switches a tool on or off, for every caller, until it is switched again.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn switch(&self, name: &ToolName, on: bool) -> Result<(), Failure> {
        fs::create_dir_all(&self.configuration).doing("the switch cannot be written")?;
        let directory = fs::File::open(&self.configuration);
        let directory = directory.doing("the switch cannot be written")?;
        // Of two at once, the second sees what the first has switched.
        rustix::fs::flock(&directory, rustix::fs::FlockOperation::LockExclusive)
            .doing("the switch cannot be written")?;
        let mut off = off(&self.configuration)?;
        match on {
            true => off.remove(name.as_str()),
            false => off.insert(name.as_str().to_owned()),
        };
        let text: String = off.iter().map(|name| format!("{name}\n")).collect();
        self.write(&text).doing("the switch cannot be written")
    }

    /// Replaces the file of switches: whoever reads it sees the one or the other.
    fn write(&self, text: &str) -> io::Result<()> {
        let path = self.configuration.join(SWITCHES);
        let beside = self
            .configuration
            .join(format!("{SWITCHES}.{}", std::process::id()));
        let mut file = fs::File::create(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, &path)
    }
}

#[cfg(test)]
mod tests;
