use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use atoll_model::network::{CredentialName, Placeholder};
use atoll_model::{LimitKey, Mode};

use crate::TrustList;

/// One file that was read for policy: what to call it in messages, and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile<'a> {
    /// The file's absolute path, for messages and, for a project's file, the path
    /// that is looked up in the [`TrustList`].
    pub name: Cow<'a, str>,
    /// Its content as read.
    pub content: Cow<'a, [u8]>,
}

impl<'a> SourceFile<'a> {
    /// A file from its path and content, borrowed or owned.
    pub fn new(name: impl Into<Cow<'a, str>>, content: impl Into<Cow<'a, [u8]>>) -> Self {
        Self {
            name: name.into(),
            content: content.into(),
        }
    }
}

/// Where the user's own profiles are looked up by name (without `.toml`). A
/// user's profile stands in place of a shipped one of the same name.
pub trait ProfileSource {
    /// The names of all profiles. Asked only when nothing else chooses a profile,
    /// to find one by command, and for suggestions.
    ///
    /// # Errors
    /// Why the names could not be had; ends in a [`ProfileError::Unreadable`](crate::ProfileError::Unreadable).
    fn names(&self) -> Result<Vec<String>, String>;

    /// The profile of that name, or `None` when there is none. The name is made of
    /// ASCII letters, digits, `-` and `_`, so it can be joined to a directory.
    ///
    /// # Errors
    /// Why a profile that exists could not be read.
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
    /// The organisation's file; what it forbids, nothing below it allows.
    pub organisation: Option<&'a SourceFile<'a>>,
    /// The user's `config.toml`.
    pub user_config: Option<&'a SourceFile<'a>>,
    /// The user's profiles.
    pub user_profiles: &'a dyn ProfileSource,
    /// The project's `atoll.toml`; counts only when `trust` knows its content.
    pub project: Option<&'a SourceFile<'a>>,
    /// Which project files the person has trusted, by content.
    pub trust: &'a TrustList,
    /// Policies in Cedar, which only take away.
    pub policies: PolicySources<'a>,
}

/// The files of policies of each layer. One that is called `NAME.purpose.cedar` counts only where
/// that is what a run is for, and only forbids.
#[derive(Clone, Copy, Debug, Default)]
pub struct PolicySources<'a> {
    /// The organisation's.
    pub organisation: &'a [SourceFile<'static>],
    /// The user's own.
    pub user: &'a [SourceFile<'static>],
    /// The project's; each counts only when the list of trusted files knows its content.
    pub project: &'a [SourceFile<'static>],
    /// Where those lie: what is trusted there and gone is told.
    pub directory: Option<&'a Path>,
}

/// What the runs before one were for, where it goes on in their session or their layers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EarlierPurposes {
    /// What a person has stated: the fact that policies see.
    pub stated: Option<String>,
    /// Whose policies narrowed one of them, by their names, whoever has said so. They narrow this
    /// one too; where one of them has no policies any more, it does not begin.
    pub narrowed: BTreeSet<String>,
}

/// What the person asked for on the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requested {
    /// `--profile`; without it the project, the command or the user's
    /// configuration chooses, in this order, and finally `default`.
    pub profile: Option<RequestedProfile>,
    /// The login that somebody logs in by, who then reaches nothing but what issues it.
    pub login: Option<CredentialName>,
    /// `--live`: write straight to the workspace.
    pub live: bool,
    /// `--root`: root inside, over a system that can be changed in layers.
    pub root: bool,
    /// `--nesting`: namespaces of the program's own.
    pub nesting: bool,
    /// `--ro`: further paths to read, absolute, free of symbolic links.
    pub read_only_dirs: Vec<PathBuf>,
    /// `--allow`: further destinations to reach.
    pub allow: Vec<String>,
    /// `--tunnel`: further destinations, where what is sent is not looked into.
    pub tunnel: Vec<String>,
    /// `--preset`: rules for the network, or a level of trust, that come with Atoll, by name.
    pub presets: Vec<String>,
    /// `--trust`: how far the program is trusted.
    pub trust: Option<String>,
    /// `--mode`: what becomes of questions.
    pub mode: Option<String>,
    /// `--task`: what is to be done, for policies.
    pub task: Option<String>,
    /// `--purpose`: what for.
    pub purpose: Option<String>,
    /// What the runs that it goes on with were for.
    pub earlier: EarlierPurposes,
    /// `--session`: the run goes on with what earlier ones have touched.
    pub in_session: bool,
    /// `--deny`: destinations not to reach.
    pub deny: Vec<String>,
    /// `--ask`: further destinations, each time with a person's yes.
    pub ask: Vec<String>,
    /// `--publish`: ports inside that programs of the host can visit.
    pub publish: Vec<String>,
    /// `--learn`: what no rule speaks of can be reached, to learn of it.
    pub learn: bool,
    /// `--limit KEY=VALUE`; may raise what a profile says, never what the
    /// organisation says. Of several for one key the last counts.
    pub limits: Vec<(LimitKey, String)>,
    /// `--timeout`: the tighter of this and a requested `wall-clock` counts.
    pub timeout: Option<Duration>,
    /// `--env`: `NAME` to pass on or `NAME=VALUE` to set.
    pub environment: Vec<OsString>,
}

/// The profile that `--profile` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestedProfile {
    /// A user's or shipped profile by its name.
    Named(String),
    /// A file that the person named. It counts as the user's own.
    File(SourceFile<'static>),
}

/// What the host is like, as far as policy must know.
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
    /// Where Atoll keeps runs, layers and the ledger; absolute, free of symbolic links.
    pub state_dir: PathBuf,
    /// Where the user's profiles and configuration are; absolute, free of symbolic links.
    pub config_dir: PathBuf,
}

/// What is true at the time of one call.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The host; must be the one that the rules were compiled for.
    pub host: &'a HostFacts,
    /// What this host can hold a program with.
    pub mode: Mode,
    /// The caller's environment, complete; policy picks from it.
    pub environment: &'a [(OsString, OsString)],
    /// The time of the call.
    pub now: SystemTime,
    /// What stands inside for each credential, once that was read.
    pub placeholders: &'a [Placeholder],
}
