use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use atoll_cedar::{ArtifactFacts, ShadowFacts};
use atoll_model::network::{CredentialName, Placeholder, Published};
use atoll_model::{Call, Input, LimitKey, Mode};

use crate::TrustList;
use crate::file::SourceFile;

/// A source of the user's own profiles by name (without `.toml`). A user's profile replaces a
/// shipped one of the same name.
pub trait ProfileSource {
    /// Returns the names of all profiles. Called only when nothing else chooses a profile, to find
    /// one by command, and for suggestions.
    ///
    /// # Errors
    /// Describes why the names are not available; becomes a
    /// [`ProfileError::Unreadable`](crate::ProfileError::Unreadable).
    fn names(&self) -> Result<Vec<String>, String>;

    /// Returns the profile of this name, or `None` if there is none. The name consists of ASCII
    /// letters, digits, `-` and `_`, so it can be joined to a directory.
    ///
    /// # Errors
    /// Describes why an existing profile could not be read.
    fn lookup(&self, name: &str) -> Result<Option<SourceFile<'_>>, String>;
}

/// A [`ProfileSource`] without any profile.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProfiles;

impl ProfileSource for NoProfiles {
    fn names(&self) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }

    fn lookup(&self, _name: &str) -> Result<Option<SourceFile<'_>>, String> {
        Ok(None)
    }
}

/// The files that decide, from the highest layer to the lowest.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// The organisation's file; nothing below it allows what it forbids.
    pub organisation: Option<&'a SourceFile<'a>>,
    /// The user's `config.toml`.
    pub user_config: Option<&'a SourceFile<'a>>,
    /// The user's profiles.
    pub user_profiles: &'a dyn ProfileSource,
    /// The project's `atoll.toml`; counts only if `trust` has its content.
    pub project: Option<&'a SourceFile<'a>>,
    /// The project files that the person has trusted, by content.
    pub trust: &'a TrustList,
    /// Cedar policies, which only take away.
    pub policies: PolicySources<'a>,
}

/// The policy files of each layer. A file named `NAME.purpose.cedar` counts only for runs of that
/// purpose, and only forbids.
#[derive(Clone, Copy, Debug, Default)]
pub struct PolicySources<'a> {
    /// The organisation's files.
    pub organisation: &'a [SourceFile<'static>],
    /// The user's own files.
    pub user: &'a [SourceFile<'static>],
    /// The project's files; each counts only if the list of trusted files has its content.
    pub project: &'a [SourceFile<'static>],
    /// The directory of the project's files; trusted files that are missing there are reported.
    pub directory: Option<&'a Path>,
}

/// The purposes of earlier runs that a run continues, in their session or their layers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EarlierPurposes {
    /// The purpose that a person has stated: the fact that policies see.
    pub stated: Option<String>,
    /// The names of the purposes whose policies narrowed one of them, whoever stated them. They
    /// narrow this run too, which does not start if one of them has no policies any more.
    pub narrowed: BTreeSet<String>,
}

/// The request for a directory of outputs: programs create files in it, and neither read nor list
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outputs {
    /// None.
    #[default]
    None,
    /// One, wherever it can be held: not with nested sandboxes, where Landlock holds no files, and
    /// not in a fence.
    WherePossible,
    /// One, or nothing starts.
    Required,
}

impl Outputs {
    /// Returns whether there is one, in this mode and with or without nested sandboxes.
    pub(crate) fn is_there(self, mode: Mode, nesting: bool) -> bool {
        self != Self::None && mode == Mode::Full && !nesting
    }
}

/// The settings requested on the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requested {
    /// `--profile`; without it the project, the command or the user's configuration chooses, in
    /// this order, and finally `default`.
    pub profile: Option<RequestedProfile>,
    /// The login for which the run is started; it then reaches only the hosts of its issuer.
    pub login: Option<CredentialName>,
    /// `--live`: the workspace is written directly.
    pub live: bool,
    /// The workspace is changed in a layer, also where the profile has it live: a tool's shadow run.
    pub layered: bool,
    /// `--root`: root in the sandbox, over a system changed in layers.
    pub root: bool,
    /// A template's files are the system, of root in a served sandbox: the server's name for it.
    pub system: Option<String>,
    /// `--nesting`: namespaces of the program's own.
    pub nesting: bool,
    /// `--outputs`: a directory whose files become artifacts.
    pub outputs: Outputs,
    /// `--input`: what is put into the sandbox by a name.
    pub inputs: Vec<Input>,
    /// `--keep-caches`: the profile's next run sees the caches.
    pub keep_caches: bool,
    /// `--ro`: further paths to read, absolute, free of symbolic links.
    pub read_only_dirs: Vec<PathBuf>,
    /// `--rw`: further directories to change in layers of the run, absolute, free of symbolic links.
    pub read_write_dirs: Vec<PathBuf>,
    /// `--allow`: further destinations to reach.
    pub allow: Vec<String>,
    /// Destinations that the person has allowed for the workspace, at the terminal of earlier runs.
    pub allowed: Vec<AllowedHost>,
    /// `--tunnel`: further destinations, without inspection.
    pub tunnel: Vec<String>,
    /// `--preset`: shipped network or trust presets, by name.
    pub presets: Vec<String>,
    /// `--trust`: the level of trust.
    pub trust: Option<String>,
    /// `--mode`: the handling of approvals.
    pub mode: Option<String>,
    /// `--task`: the task, for policies.
    pub task: Option<String>,
    /// `--purpose`: the purpose.
    pub purpose: Option<String>,
    /// The purposes of the runs that it continues.
    pub earlier: EarlierPurposes,
    /// `--session`: the run shares the labels of earlier runs of a session.
    pub in_session: bool,
    /// `--deny`: destinations not to reach.
    pub deny: Vec<String>,
    /// `--ask`: further destinations, each with a person's approval.
    pub ask: Vec<String>,
    /// `--host-port`: ports of the sandbox's loopback that lead to the host's.
    pub host_ports: Vec<String>,
    /// `--publish`: ports in the sandbox that programs of the host can connect to.
    pub publish: Vec<String>,
    /// `--learn`: destinations that no rule mentions are reachable, to learn which are needed.
    pub learn: bool,
    /// `--limit KEY=VALUE`; may raise a profile's limit, never the organisation's. The last of
    /// several for one key counts.
    pub limits: Vec<(LimitKey, String)>,
    /// `--timeout`: the tighter of this and a requested `wall-clock` counts.
    pub timeout: Option<Duration>,
    /// `--env`: `NAME` to pass on or `NAME=VALUE` to set.
    pub environment: Vec<OsString>,
}

/// A host that a person has allowed for a project.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AllowedHost {
    /// The project's directory, absolute.
    pub directory: String,
    /// The profile of its runs.
    pub profile: String,
    /// The rule.
    pub to: String,
}

/// The profile that `--profile` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestedProfile {
    /// A user's or shipped profile, by name.
    Named(String),
    /// A file that the person named. It counts as the user's own.
    File(SourceFile<'static>),
}

/// The facts about the host that policy needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFacts {
    /// The host's memory, or the cgroup's if that is less, bytes.
    pub memory_bytes: u64,
    /// The user id that Atoll runs for.
    pub uid: u32,
    /// The group id that Atoll runs for.
    pub gid: u32,
    /// The user's home directory, absolute, free of symbolic links.
    pub home: PathBuf,
    /// The directory of runs, layers and the ledger; absolute, free of symbolic links.
    pub state_dir: PathBuf,
    /// The directory of the user's profiles and configuration; absolute, free of symbolic links.
    pub config_dir: PathBuf,
}

/// The facts at the time of one call.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The host; must be the one that the rules were compiled for.
    pub host: &'a HostFacts,
    /// The sandbox mode that this host supports.
    pub mode: Mode,
    /// The caller's environment, complete; policy picks from it.
    pub environment: &'a [(OsString, OsString)],
    /// The time of the call.
    pub now: SystemTime,
    /// The placeholder of each credential that was read.
    pub placeholders: &'a [Placeholder],
    /// For an exec, the labels of the data that the session has touched by now, those of the
    /// sandbox's grant included.
    pub labels: Option<&'a BTreeSet<String>>,
    /// For a call about a living sandbox beside its programs, what it has by now.
    pub living: Option<Living<'a>>,
    /// For a call about changes to the person's own files, what is known of them.
    pub changes: Option<Changes<'a>>,
}

/// The facts about changes that are written to the person's own files, or undone there.
#[derive(Clone, Copy, Debug)]
pub struct Changes<'a> {
    /// The changes to be written; none for an undo, which is asked about as a whole.
    pub written: &'a [Promoted<'a>],
    /// True if nobody has seen the changes: an option of the run asked to apply them before there
    /// were any.
    pub is_unseen: bool,
    /// The workspace of the run that made the changes; `None` if they were made elsewhere.
    pub workspace: Option<&'a Path>,
    /// Every run that may have made one of the changes, as far as they differ, or why that is
    /// unknown. They matter where [`makers_read`](crate::makers_read) says so.
    pub makers: Result<&'a [Maker], &'a str>,
    /// The result of the checks of exactly these changes, `passed` or `failed`, if they ran.
    pub checks: Option<&'a str>,
    /// The change set of a tool's shadow run, if they are one.
    pub shadowed: Option<&'a ShadowFacts>,
}

/// A change to be applied to the person's files.
#[derive(Clone, Copy, Debug)]
pub struct Promoted<'a> {
    /// The path to write to, absolute.
    pub path: &'a Path,
    /// True if other programs run the file.
    pub control: bool,
    /// True for a directory that was moved with all its content.
    pub is_moved: bool,
    /// True for a directory that is created; its entries are changes of their own.
    pub is_directory: bool,
    /// True for a symbolic link, which may stand for a directory.
    pub is_link: bool,
    /// The artifact that is promoted to the path; `None` for a change of a run.
    pub artifact: Option<&'a ArtifactFacts>,
}

/// The facts about a run that has made changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maker {
    /// The user number of who started it, if known.
    pub user: Option<u32>,
    /// Its profile.
    pub profile: String,
    /// The run's sandbox mode.
    pub mode: Mode,
    /// The run's level of trust.
    pub trust: Option<String>,
    /// True if anything that needs an approval is denied while the run is going on, and when an
    /// option of the run itself applies its changes.
    pub is_strict: bool,
    /// The run's task.
    pub task: Option<String>,
    /// The run's purpose.
    pub purpose: Option<String>,
    /// The confidence that the agent stated last, percent.
    pub confidence: Option<u8>,
    /// The labels of the data that the session has touched; `None` if they were not recorded.
    pub labels: Option<BTreeSet<String>>,
    /// The agent's reputation, points.
    pub reputation: u8,
}

/// The facts about a living sandbox.
#[derive(Clone, Copy, Debug)]
pub struct Living<'a> {
    /// The call that made it.
    pub call: &'a Call,
    /// The ports that are published.
    pub published: &'a [Published],
    /// True if its programs trust an authority of Atoll's, so that requests can be looked into.
    pub is_inspected: bool,
    /// The reason why a token of the sandbox does not carry the port that is to be published.
    pub token_refusal: Option<&'a str>,
}
