//! Reads Atoll's configuration, the directories of its state, and facts about the host and the
//! caller.

mod compiled;
pub mod organisation;
mod own;

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use atoll_layer::GitEnvironment;
use atoll_ledger::{StateDir, StateError};
use atoll_model::Principal;
use atoll_policy::{
    AllowedHost, HostFacts, NoProfiles, PolicySources, ProfileError, ProfileSource, Requested,
    Rules, SharedRepository, SignedBy, SourceFile, Sources, TrustList,
};
use atoll_store::hold_for_removal;
use rustix::fs::OFlags;

pub use own::{allow_for_project, read_trust, write_configuration};

use crate::failure::{Doing, Failure};
use crate::printable::printable;

/// The file of a project's own requests, at the top of its workspace.
pub const PROJECT_FILE: &str = "atoll.toml";
/// The most policy files in one directory.
const POLICY_FILES_MAX: usize = 64;
/// The largest configuration file, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The directories that the environment names.
#[derive(Clone, Debug)]
pub struct Places {
    /// The user's home directory.
    pub home: PathBuf,
    /// `$XDG_CONFIG_HOME/atoll`.
    pub config: PathBuf,
    /// `$XDG_STATE_HOME/atoll`.
    pub state: PathBuf,
}

fn unusable_state(error: StateError) -> Failure {
    Failure::new("Atoll's state cannot be used")
        .because(&error)
        .advise(error)
}

impl Places {
    /// Reads them from the environment (XDG Base Directory Specification).
    ///
    /// # Errors
    /// Without a usable `HOME`.
    pub fn read() -> Result<Self, Failure> {
        let home = std::env::var_os("HOME")
            .map(PathBuf::from)
            .filter(|home| home.is_absolute());
        let home = home.ok_or_else(|| {
            Failure::new("HOME is not set to an absolute path")
                .advise("set HOME to your home directory, as in HOME=/home/you atoll …")
        })?;
        let base = |variable: &str, fallback: &str| {
            // A relative path is to be ignored, says the specification.
            std::env::var_os(variable)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
                .unwrap_or_else(|| home.join(fallback))
                .join("atoll")
        };
        let config = base("XDG_CONFIG_HOME", ".config");
        let state = base("XDG_STATE_HOME", ".local/state");
        Ok(Self {
            config: settled(&config),
            state: settled(&state),
            home: settled(&home),
        })
    }

    /// Opens the state for writing.
    ///
    /// # Errors
    /// When it is not the caller's or cannot be written.
    pub fn open_state(&self) -> Result<StateDir, Failure> {
        let state = StateDir::open(&self.state).map_err(unusable_state)?;
        crate::ranged::reclaim_leftovers(&state);
        hold_for_removal(&state);
        Ok(state)
    }

    /// Opens the state for reading, if there is any.
    ///
    /// # Errors
    /// When it is not the caller's or cannot be read.
    pub fn read_state(&self) -> Result<StateDir, Failure> {
        if !self.state.exists() {
            return Err(Failure::new("there are no runs yet")
                .because(format!("{} does not exist", self.state.display()))
                .advise("atoll run -- COMMAND starts one"));
        }
        let state = StateDir::open_read_only(&self.state).map_err(unusable_state)?;
        crate::ranged::reclaim_leftovers(&state);
        Ok(state)
    }

    /// Returns the path of the organisation's public key, as the person has pinned it.
    #[must_use]
    pub fn organisation_key(&self) -> PathBuf {
        self.config.join(organisation::KEY)
    }

    /// Returns the path of the digests of trusted project files.
    #[must_use]
    pub fn trust_file(&self) -> PathBuf {
        self.config.join("trusted.toml")
    }

    /// Returns the path of the hosts that the person has allowed for projects.
    #[must_use]
    pub fn allowed_file(&self) -> PathBuf {
        self.config.join("allowed.toml")
    }
}

/// Returns the path without symbolic links, also where its end does not exist yet.
fn settled(path: &Path) -> PathBuf {
    for ancestor in path.ancestors() {
        if let Ok(real) = ancestor.canonicalize() {
            let rest = path.strip_prefix(ancestor).unwrap_or(Path::new(""));
            return if rest.as_os_str().is_empty() {
                real
            } else {
                real.join(rest)
            };
        }
    }
    path.to_path_buf()
}

/// The sources of policy, read once.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyFiles {
    organisation: organisation::Layer,
    user_config: Option<SourceFile<'static>>,
    profiles: UserProfiles,
    project: Option<SourceFile<'static>>,
    /// The project files that the person has trusted.
    pub trust: TrustList,
    user_policies: Vec<SourceFile<'static>>,
    project_policies: Vec<SourceFile<'static>>,
    /// The hosts that the person has allowed for the workspace, as rules.
    allowed: Vec<AllowedHost>,
    /// The workspace, in which the project's files are.
    workspace: Option<PathBuf>,
}

impl PolicyFiles {
    /// Reads the files of all layers, the project's from `workspace`.
    ///
    /// # Errors
    /// When one is there and cannot be read, and where the organisation's layer is not what it
    /// has signed.
    pub fn read(places: &Places, workspace: Option<&Path>) -> Result<Self, Failure> {
        let project = workspace.map(|workspace| read_optional(&workspace.join(PROJECT_FILE)));
        let project = project.transpose()?.flatten();
        let project_policies = workspace.map(read_project_policies).transpose()?;
        let user_config = read_optional(&places.config.join("config.toml"))?;
        Ok(Self {
            organisation: organisation::read(places, user_config.as_ref())?,
            user_config,
            profiles: UserProfiles {
                directory: places.config.join("profiles"),
            },
            // It also tells what was there.
            trust: match workspace {
                Some(_) => read_trust(places)?,
                None => TrustList::default(),
            },
            allowed: match workspace {
                Some(workspace) => own::read_allowed(places)?.of(workspace),
                None => Vec::new(),
            },
            project,
            user_policies: read_policies(&places.config)?,
            project_policies: project_policies.unwrap_or_default(),
            workspace: workspace.map(Path::to_owned),
        })
    }

    /// Returns every policy file, including those of a project that nobody has trusted.
    pub fn policies(&self) -> impl Iterator<Item = &SourceFile<'static>> {
        let above = self.organisation.policies.iter().chain(&self.user_policies);
        above.chain(&self.project_policies)
    }

    /// Compiles these files and a request into rules, and returns them with the signer of the
    /// organisation's layer.
    ///
    /// # Errors
    /// [`ProfileError`].
    pub fn compile(
        &self,
        requested: &Requested,
        program: &OsStr,
        host: &HostFacts,
    ) -> Result<Rules, ProfileError> {
        let requested = Requested {
            allowed: self.allowed.clone(),
            ..requested.clone()
        };
        compiled::compile(self, &requested, program, host)
    }

    /// Returns the signer of the organisation's layer; none where no key for it is pinned.
    #[must_use]
    pub fn signed(&self) -> Option<&SignedBy> {
        self.organisation.signed.as_ref()
    }

    /// Returns the files in the form that policy takes.
    #[must_use]
    pub fn sources(&self) -> Sources<'_> {
        self.sources_by(match self.profiles.directory.is_dir() {
            true => &self.profiles,
            false => &NoProfiles,
        })
    }

    fn sources_by<'a>(&'a self, user_profiles: &'a dyn ProfileSource) -> Sources<'a> {
        Sources {
            organisation: self.organisation.bounds.as_ref(),
            user_config: self.user_config.as_ref(),
            user_profiles,
            project: self.project.as_ref(),
            trust: &self.trust,
            policies: PolicySources {
                organisation: &self.organisation.policies,
                user: &self.user_policies,
                project: &self.project_policies,
                directory: self.workspace.as_deref(),
            },
        }
    }
}

/// Returns the user's own profiles, readable even where other configuration is not.
pub fn own_profiles(places: &Places) -> impl ProfileSource {
    UserProfiles {
        directory: places.config.join("profiles"),
    }
}

/// The user's profiles, one file each.
#[derive(Clone, Debug, PartialEq)]
struct UserProfiles {
    directory: PathBuf,
}

impl ProfileSource for UserProfiles {
    fn names(&self) -> Result<Vec<String>, String> {
        let error = |error: std::io::Error| format!("{}: {error}", self.directory.display());
        let entries = match std::fs::read_dir(&self.directory) {
            Err(missing) if missing.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(error)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let path = entry.map_err(error)?.path();
            let name = path.file_stem().and_then(|name| name.to_str());
            if let (Some(name), Some("toml")) =
                (name, path.extension().and_then(|end| end.to_str()))
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    fn lookup(&self, name: &str) -> Result<Option<SourceFile<'_>>, String> {
        let path = self.directory.join(format!("{name}.toml"));
        read_optional(&path).map_err(|failure| failure.why.unwrap_or(failure.what))
    }
}

/// Reads a directory's policy files, in the order of their names.
///
/// # Errors
/// When the directory or one of them is there and cannot be read, or there are too many.
pub fn read_policies(directory: &Path) -> Result<Vec<SourceFile<'static>>, Failure> {
    let paths = policy_paths(directory)?;
    let files = paths.iter().map(|path| read_optional(path));
    files.filter_map(Result::transpose).collect()
}

/// Reads the policies of a project's directory, where others than the person may write: no link is
/// followed.
///
/// # Errors
/// As of [`read_policies`], and where one is a link.
pub fn read_project_policies(directory: &Path) -> Result<Vec<SourceFile<'static>>, Failure> {
    let paths = policy_paths(directory)?;
    let files = paths.iter().map(|path| read_unfollowed(path));
    files.filter_map(Result::transpose).collect()
}

/// Returns the paths of a directory's policy files, in the order of their names.
fn policy_paths(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let what = || format!("the policies in {} cannot be read", directory.display());
    let entries = match std::fs::read_dir(directory) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        other => other.doing(&what())?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.doing(&what())?.path();
        if path.extension().is_some_and(|end| end == "cedar") {
            paths.push(path);
        }
    }
    if paths.len() > POLICY_FILES_MAX {
        let why = format!("there are {}, and {POLICY_FILES_MAX} at most", paths.len());
        return Err(Failure::new(what()).because(why));
    }
    paths.sort();
    paths.retain(|path| !is_lock(path));
    Ok(paths)
}

/// Returns whether a path is the lock that an editor (Emacs) leaves beside a file that is being
/// changed: a dangling link whose target names the holder.
fn is_lock(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    name.starts_with(b".#") && path.is_symlink() && !path.exists()
}

/// Reads a configuration file that may be missing.
///
/// # Errors
/// When it is there and cannot be read, is a link to nothing, or is larger than any such file.
pub fn read_optional(path: &Path) -> Result<Option<SourceFile<'static>>, Failure> {
    read_file(path, OFlags::NONBLOCK)
}

/// Reads a file that may be missing, and refuses a link.
fn read_unfollowed(path: &Path) -> Result<Option<SourceFile<'static>>, Failure> {
    if path.is_symlink() {
        return Err(
            Failure::new(format!("{} is a link, and is not followed", path.display()))
                .because("a project's policies are files in its own directory")
                .advise("put the file itself there, or give the link another name"),
        );
    }
    read_file(path, OFlags::NONBLOCK | OFlags::NOFOLLOW)
}

fn read_file(path: &Path, flags: OFlags) -> Result<Option<SourceFile<'static>>, Failure> {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    let failed =
        |why: String| Failure::new(format!("{} cannot be read", path.display())).because(why);
    // A pipe that an earlier program has left there must not hold Atoll up.
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    let opened = std::fs::File::options()
        .read(true)
        .custom_flags(flags)
        .open(path);
    let file = match opened {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            // Whoever made the link meant what it says to count.
            return match path.is_symlink() {
                true => Err(
                    failed("it is a link to a file that is not there".to_owned())
                        .advise("make that file, or remove the link"),
                ),
                false => Ok(None),
            };
        }
        other => other.map_err(|error| failed(error.to_string()))?,
    };
    if !file
        .metadata()
        .map_err(|error| failed(error.to_string()))?
        .is_file()
    {
        return Err(failed("it is not a regular file".to_owned()));
    }
    let mut content = Vec::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut content)
        .map_err(|error| failed(error.to_string()))?;
    if content.len() as u64 > FILE_BYTES_MAX {
        return Err(failed(format!("it is larger than {FILE_BYTES_MAX} bytes")));
    }
    Ok(Some(SourceFile::new(
        path.to_string_lossy().into_owned(),
        content,
    )))
}

/// Returns the facts about the host and the caller that policy uses.
///
/// # Errors
/// When the host's memory cannot be read.
pub fn host_facts(places: &Places) -> Result<HostFacts, Failure> {
    Ok(HostFacts {
        memory_bytes: host_memory()?,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        home: places.home.clone(),
        state_dir: places.state.clone(),
        config_dir: places.config.clone(),
    })
}

/// Returns the environment by which git on the host finds its configuration.
#[must_use]
pub fn git_environment() -> GitEnvironment {
    GitEnvironment::read(|name| std::env::var_os(name))
}

/// Returns the path with all links followed. Where it is missing or cannot be inspected, its parent
/// is followed instead.
#[must_use]
pub fn real_path(path: &Path) -> PathBuf {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Ok(real), _, _) => real,
        (Err(_), Some(parent), Some(name)) => real_path(parent).join(name),
        (Err(_), _, _) => path.to_owned(),
    }
}

/// Shows a workspace's git repository that is outside of it, or records the reason why not.
pub fn take_repository(rules: &mut Rules, workspace: &Path, host: &HostFacts) {
    match atoll_layer::repository(workspace, host.uid) {
        Ok(None) => {}
        Ok(Some(found)) => {
            let shared = SharedRepository {
                common: found.common,
                worktree: found.worktree,
                identity: found.identity,
            };
            rules.show_repository(workspace, shared);
        }
        Err(error) => rules.tell_no_repository(workspace, &printable(error.to_string().as_bytes())),
    }
}

/// Returns the host's memory, bytes (sysinfo(2)).
fn host_memory() -> Result<u64, Failure> {
    let facts = rustix::system::sysinfo();
    Ok(facts.totalram as u64 * u64::from(facts.mem_unit))
}

/// Returns the caller, as identified by the kernel.
#[must_use]
pub fn principal() -> Principal {
    let uid = rustix::process::geteuid().as_raw();
    Principal {
        uid,
        gid: rustix::process::getegid().as_raw(),
        name: user_name(uid),
    }
}

/// Returns the user's name in the host's user database, or the number.
pub fn user_name(uid: u32) -> String {
    let mut users = users().into_iter();
    let named = users.find_map(|(name, number)| (number == uid).then_some(name));
    named.unwrap_or_else(|| uid.to_string())
}

/// Returns the number of a user.
pub fn user_number(name: &str) -> Option<u32> {
    let mut users = users().into_iter();
    users.find_map(|(user, number)| (user == name).then_some(number))
}

/// Returns all users, by passwd(5).
fn users() -> Vec<(String, u32)> {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        Some((name, fields.nth(1)?.parse().ok()?))
    };
    users.lines().filter_map(user).collect()
}

/// Returns the complete environment.
#[must_use]
pub fn environment() -> Vec<(OsString, OsString)> {
    std::env::vars_os().collect()
}
