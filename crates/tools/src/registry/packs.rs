//! Packs in the registry.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use atoll_engine::failure::Failure;

use super::{Registry, ToolSwitches, parsed};
use crate::pack::{self, FILE, Pack};
use crate::tool::Tool;
use crate::upstream::Upstream;

impl Registry {
    /// Returns what a pack has in it, as if there were nothing else.
    #[must_use]
    pub fn of_pack(pack: &Pack) -> Self {
        let mut registry = Self::default();
        let directory = Path::new(pack::DIRECTORY).join(pack.name());
        registry.add_tools_of(pack, &directory, &mut BTreeSet::new());
        registry
    }

    pub(super) fn add_packs(
        &mut self,
        configuration: &Path,
        state: &Path,
        twice: &mut BTreeSet<String>,
    ) {
        match pack::directories(configuration) {
            Ok(packs) => packs
                .iter()
                .for_each(|pack| self.add_pack(pack, state, twice)),
            Err(error) => self.problem(configuration, None, error.to_string()),
        }
    }

    fn add_pack(&mut self, directory: &Path, state: &Path, twice: &mut BTreeSet<String>) {
        match Pack::installed(directory, state) {
            Ok(pack) => self.add_tools_of(&pack, directory, twice),
            Err(why) => self.problem(directory, None, why),
        }
    }

    fn add_tools_of(&mut self, pack: &Pack, directory: &Path, twice: &mut BTreeSet<String>) {
        let path = directory.join(FILE);
        match parsed(pack.tools()) {
            Ok(file) if file.session.is_some() || file.caller.is_some() => {
                let why = "a pack limits its own tools alone".to_owned();
                self.problem(&path, None, why);
            }
            Ok(file) => self.add_parsed(file, &path, Some(pack), twice),
            Err(why) => self.problem(&path, None, why),
        }
    }
}

impl ToolSwitches {
    /// Installs a pack, as it was shown.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn install(&self, pack: &Pack) -> Result<(), Failure> {
        pack.install(&self.configuration, &self.state)
    }

    /// Removes an installed pack.
    ///
    /// # Errors
    /// When there is none, or it cannot be removed.
    pub fn uninstall(&self, name: &str) -> Result<(), Failure> {
        Pack::uninstall(name, &self.configuration)
    }
}

/// Has the boundary of a tool be of its pack's own profile.
pub(super) fn bound(mut tool: Tool, pack: Option<&Pack>) -> Result<Tool, String> {
    pack.map_or(Ok(()), |pack| pack.bound(&mut tool.requested))?;
    Ok(tool)
}

/// As [`bound`], for an upstream; its document is the pack's own.
pub(super) fn bound_upstream(
    mut upstream: Upstream,
    pack: Option<&Pack>,
) -> Result<Upstream, String> {
    let Some(pack) = pack else {
        return Ok(upstream);
    };
    pack.bound(&mut upstream.requested)?;
    // Who installs a pack does not lend it what copies databases here.
    if upstream
        .database()
        .is_some_and(|one| one.copied().is_some())
    {
        return Err("database: copy: it is none of a pack".to_owned());
    }
    match upstream.document().is_some_and(|path| !pack.has(path)) {
        true => Err("openapi: the pack has no such file".to_owned()),
        false => Ok(upstream),
    }
}

/// Returns the paths of all files of packs, by which a change of one is noticed.
pub(super) fn paths(configuration: &Path, state: &Path) -> Vec<PathBuf> {
    let mut directories = pack::directories(configuration).unwrap_or_default();
    directories.push(state.join(pack::DIRECTORY));
    let within = |directory: PathBuf| fs::read_dir(directory).into_iter().flatten().flatten();
    let entries = directories.into_iter().flat_map(within);
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    all.sort();
    all
}
