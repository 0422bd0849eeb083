mod checks;
mod credentials;
pub(crate) mod inputs;
mod labels;
mod logins;
mod repository;
mod ssh;
mod trust;
mod workspace;

pub use checks::checks;
pub use inputs::inputs_of;
pub(crate) use workspace::of_workspace;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;

use atoll_model::{
    InvalidLimit, LimitKey, Limits, OutputsRule, Reason, SyscallRights, TerminalRights, View,
    WorkspaceMode,
};

use atoll_model::network::{CredentialName, HostName, Network, NetworkLimits, Placeholder};

use crate::Notice;
use crate::checks::CheckRules;
use crate::compiled::Policies;
use crate::credential::Credential;
use crate::digest::PolicyDigest;
use crate::git_settings::GitSettings;
use crate::inputs::InputRules;
use crate::labels::LabelRules;
use crate::levels::TrustRules;
use crate::login::Login;
use crate::network::NetworkRules;
use crate::origin::{Origin, Sourced};
use crate::persons::Widened;
use crate::repository::SharedRepository;
use crate::signed::SignedBy;
use crate::source::{HostFacts, Outputs};
use crate::ssh::SshRule;
use crate::variables::{PASSED, Pattern};

/// Everything that decides on calls of one profile on one host, with the origin of each value.
/// Created by [`compile`](crate::compile); shown by [`Rules::show`] and [`Rules::show_json`].
#[derive(Clone, Debug)]
pub struct Rules {
    pub(crate) host: HostFacts,
    pub(crate) profile: Sourced<String>,
    /// The answer of a person before a run.
    pub(crate) answered: PriorAnswer,
    pub(crate) description: String,
    /// The profiles that it extends, in the order of merging.
    pub(crate) extended: Vec<String>,
    /// The commands that choose the profile.
    pub(crate) commands: Vec<Sourced<String>>,
    pub(crate) workspace: Sourced<WorkspaceMode>,
    pub(crate) forbid_live: Sourced<bool>,
    pub(crate) keep_caches: Sourced<bool>,
    /// True if programs are root in the sandbox, over a system changed in layers.
    pub(crate) root: Sourced<bool>,
    /// The template whose files are the system; the host's if `None`.
    pub(crate) system: Option<String>,
    /// True if programs may create namespaces of their own.
    pub(crate) nesting: Sourced<bool>,
    /// The request for a directory of outputs.
    pub(crate) outputs: Outputs,
    /// The fate of outputs.
    pub(crate) outputs_rule: Sourced<OutputsRule>,
    pub(crate) inputs: InputRules,
    /// The views by path in the sandbox, parents first.
    pub(crate) views: BTreeMap<PathBuf, Sourced<View>>,
    /// The git repository of the workspace, if it lies outside and is shown.
    pub(crate) repository: Option<SharedRepository>,
    pub(crate) denied_places: Vec<Sourced<PathBuf>>,
    pub(crate) environment: EnvironmentRules,
    pub(crate) limits: LimitRules,
    pub(crate) terminal: TerminalRules,
    pub(crate) syscalls: SyscallRules,
    pub(crate) programs: Vec<Sourced<PathBuf>>,
    pub(crate) network: NetworkRules,
    pub(crate) trust: TrustRules,
    pub(crate) labels: LabelRules,
    pub(crate) checks: CheckRules,
    /// The approvals needed to widen the rules while a run is going on.
    pub(crate) widened: Widened,
    pub(crate) credentials: BTreeMap<CredentialName, Sourced<Credential>>,
    pub(crate) logins: BTreeMap<CredentialName, Sourced<Login>>,
    /// Hosts whose SSH remotes git reaches by HTTPS.
    pub(crate) git: Vec<Sourced<HostName>>,
    /// The settings of the person's git.
    pub(crate) git_settings: GitSettings,
    pub(crate) ssh: BTreeMap<CredentialName, Sourced<SshRule>>,
    /// The reasons to deny every call; empty if there are none.
    pub(crate) refusals: Vec<Reason>,
    pub(crate) notices: Vec<Notice>,
    pub(crate) digest: String,
    /// The version of everything other than policies.
    pub(crate) rest: PolicyDigest,
    /// The Cedar policies; `None` if there are none.
    pub(crate) policies: Option<Arc<Policies>>,
    /// The signer of the organisation's layer; `None` if no signature is required.
    pub(crate) signed: Option<SignedBy>,
}

impl Rules {
    /// Returns the variables that these rules set regardless of the caller's environment, by name.
    pub fn variables_set(&self) -> impl Iterator<Item = (&str, &OsStr)> {
        let all = self.environment.set.iter();
        all.map(|(name, value)| (name.as_str(), value.value.as_os_str()))
    }

    /// Returns the name of the profile that these rules come from.
    #[must_use]
    pub fn profile(&self) -> &str {
        &self.profile.value
    }

    /// Returns whether programs may create namespaces of their own.
    #[must_use]
    pub fn nesting(&self) -> bool {
        self.nesting.value
    }

    /// Returns the approvals needed before a run gets more rights than these rules grant, for
    /// longer than once.
    #[must_use]
    pub fn widened(&self) -> &Widened {
        &self.widened
    }

    /// Returns whether anything outside can be reached.
    #[must_use]
    pub fn reaches_outside(&self) -> bool {
        !self.network.boundary().is_empty()
    }

    /// Returns the network: the reachable destinations, and the published ports.
    #[must_use]
    pub fn network(&self) -> Network {
        self.network.boundary()
    }

    /// Returns the network with the bindings of the credentials that have these placeholders.
    pub(crate) fn boundary_network(&self, placeholders: &[Placeholder]) -> Network {
        let all = self.credentials_of(placeholders);
        let bindings = all.map(|one| one.value.binding.clone());
        Network {
            credentials: bindings.collect(),
            ssh: self.ssh().map(|one| one.grant.clone()).collect(),
            limits: NetworkLimits::of(&self.limits.limits),
            ..self.network.boundary()
        }
    }

    /// Returns the credentials that a run with these placeholders has or needs; an optional one
    /// that was not found is left out.
    pub(crate) fn credentials_of(
        &self,
        placeholders: &[Placeholder],
    ) -> impl Iterator<Item = &Sourced<Credential>> {
        self.credentials.values().filter(|one| {
            let name = &one.value.binding.name;
            !one.value.optional || placeholders.iter().any(|found| found.name == *name)
        })
    }

    /// Returns whether programs are root in the sandbox.
    #[must_use]
    pub fn root(&self) -> bool {
        self.root.value
    }

    /// Returns the origin that chose the profile: an option, a line of a file, or `built in`.
    #[must_use]
    pub fn chosen_by(&self) -> &Origin {
        &self.profile.origin
    }

    /// Returns the profiles that the chosen one extends, in the order of merging.
    #[must_use]
    pub fn extends(&self) -> &[String] {
        &self.extended
    }

    /// Returns the limits that a file or an option has set, in place of Atoll's defaults.
    #[must_use]
    pub fn limits_asked_for(&self) -> Vec<LimitKey> {
        let of_someone = |(key, origin): (&LimitKey, &Origin)| match origin {
            Origin::BuiltIn => None,
            Origin::CommandLine(_) | Origin::File { .. } => Some(*key),
        };
        self.limits.origins.iter().filter_map(of_someone).collect()
    }

    /// Returns the limits that an option has set.
    #[must_use]
    pub fn limits_of_options(&self) -> Vec<LimitKey> {
        let mut keys = self.limits_asked_for();
        keys.retain(|key| matches!(self.limits.origin(*key), Origin::CommandLine(_)));
        keys
    }

    /// Returns the version of the policy: `sha256:` and the digest of every file and option that
    /// these rules were compiled from.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns the notices for the person, as in [`Grant::notices`](crate::Grant::notices).
    #[must_use]
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// Drops the notices that are not wanted.
    pub fn retain_notices(&mut self, is_wanted: impl FnMut(&Notice) -> bool) {
        self.notices.retain(is_wanted);
    }

    /// Creates the default rules.
    pub(crate) fn built_in(host: &HostFacts, profile: Sourced<String>) -> Self {
        let no = || Sourced::built_in(false);
        Self {
            host: host.clone(),
            profile,
            description: String::new(),
            extended: Vec::new(),
            commands: Vec::new(),
            workspace: Sourced::built_in(WorkspaceMode::CopyOnWrite),
            forbid_live: no(),
            keep_caches: no(),
            root: no(),
            system: None,
            nesting: no(),
            outputs: Outputs::None,
            outputs_rule: Sourced::built_in(OutputsRule::Hold),
            inputs: InputRules::default(),
            views: BTreeMap::new(),
            repository: None,
            denied_places: Vec::new(),
            environment: EnvironmentRules {
                pass: PASSED
                    .iter()
                    .map(|name| Sourced::built_in(Pattern::built_in(name)))
                    .collect(),
                set: BTreeMap::new(),
                denied: Vec::new(),
            },
            limits: LimitRules {
                limits: Limits::for_run(host.memory_bytes),
                origins: BTreeMap::new(),
                memory_most: None,
                cpu_most: None,
                unenforced: Origin::BuiltIn,
            },
            terminal: TerminalRules {
                queries: no(),
                clipboard: no(),
                title: no(),
            },
            syscalls: SyscallRules {
                deny_debugging: no(),
                deny_sockets: no(),
                deny_nesting: no(),
            },
            programs: Vec::new(),
            network: NetworkRules::default(),
            trust: TrustRules::default(),
            labels: LabelRules::default(),
            checks: CheckRules::default(),
            widened: Widened::default(),
            credentials: BTreeMap::new(),
            logins: BTreeMap::new(),
            git: Vec::new(),
            git_settings: GitSettings::default(),
            ssh: BTreeMap::new(),
            refusals: Vec::new(),
            notices: Vec::new(),
            digest: String::new(),
            rest: PolicyDigest::new(),
            policies: None,
            answered: PriorAnswer::default(),
            signed: None,
        }
    }

    pub(crate) fn notice(&mut self, text: String, origin: Origin) {
        self.notices.push(Notice { text, origin });
    }
}

/// The variables that the program gets.
#[derive(Clone, Debug)]
pub(crate) struct EnvironmentRules {
    pub(crate) pass: Vec<Sourced<Pattern>>,
    pub(crate) set: BTreeMap<String, Sourced<OsString>>,
    pub(crate) denied: Vec<Sourced<Pattern>>,
}

/// The limits, with the origin of each.
#[derive(Clone, Debug)]
pub(crate) struct LimitRules {
    pub(crate) limits: Limits,
    /// The origins; a limit without one has its default.
    pub(crate) origins: BTreeMap<LimitKey, Origin>,
    /// The memory, bytes, that the organisation allows at most.
    pub(crate) memory_most: Option<Sourced<u64>>,
    /// The processor time, thousandths of a processor, that the organisation allows at most.
    pub(crate) cpu_most: Option<Sourced<u64>>,
    pub(crate) unenforced: Origin,
}

/// The result of tightening a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tightened {
    /// The new limit is in force.
    Counts,
    /// The new limit is the same as the old one.
    Same,
    /// The new limit is looser; the old one stays in force.
    Looser,
}

impl LimitRules {
    pub(crate) fn origin(&self, key: LimitKey) -> Origin {
        self.origins.get(&key).cloned().unwrap_or(Origin::BuiltIn)
    }

    /// Sets a limit, tighter or looser.
    pub(crate) fn set(
        &mut self,
        key: LimitKey,
        text: &str,
        origin: Origin,
        memory_bytes: u64,
    ) -> Result<(), InvalidLimit> {
        self.limits.set(key, text, memory_bytes)?;
        self.origins.insert(key, origin);
        Ok(())
    }

    /// Sets a limit only if it is tighter.
    pub(crate) fn tighten(
        &mut self,
        key: LimitKey,
        text: &str,
        origin: Origin,
        memory_bytes: u64,
    ) -> Result<Tightened, InvalidLimit> {
        let mut wanted = self.limits.clone();
        wanted.set(key, text, memory_bytes)?;
        let mut tightest = self.limits.clone();
        tightest.tighten(&wanted);
        if tightest != self.limits {
            self.limits = tightest;
            self.origins.insert(key, origin);
            Ok(Tightened::Counts)
        } else if wanted == self.limits {
            Ok(Tightened::Same)
        } else {
            Ok(Tightened::Looser)
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct TerminalRules {
    pub(crate) queries: Sourced<bool>,
    pub(crate) clipboard: Sourced<bool>,
    pub(crate) title: Sourced<bool>,
}

impl TerminalRules {
    pub(crate) fn rights(&self) -> TerminalRights {
        TerminalRights {
            queries: self.queries.value,
            clipboard: self.clipboard.value,
            title: self.title.value,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct SyscallRules {
    pub(crate) deny_debugging: Sourced<bool>,
    pub(crate) deny_sockets: Sourced<bool>,
    pub(crate) deny_nesting: Sourced<bool>,
}

impl SyscallRules {
    pub(crate) fn rights(&self) -> SyscallRights {
        SyscallRights {
            deny_debugging: self.deny_debugging.value,
            deny_sockets: self.deny_sockets.value,
        }
    }
}

impl Rules {
    /// Records the signer of the organisation's layer that these rules come from.
    pub fn take_signed(&mut self, signed: Option<SignedBy>) {
        self.signed = signed;
    }

    /// Returns the signer of the organisation's layer; `None` if no key for it is pinned.
    #[must_use]
    pub fn signed(&self) -> Option<&SignedBy> {
        self.signed.as_ref()
    }
}

/// The outcome of asking a person.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PriorAnswer {
    /// Nobody was asked.
    #[default]
    Nobody,
    /// The person approved this [`agreement`](crate::agreement()).
    Agreed(String),
    /// The person did not approve, for this reason.
    Denied(&'static str),
}
