//! Profiles compiled to rules, and the one pure decision.
//!
//! A profile is a short TOML file that says what a program may see, use and change. [`compile`]
//! merges the requested profile with the layers above and below it (organisation, user, project,
//! command line) into [`Rules`], which keep the origin of every value. [`decide`] answers one call
//! by them.
//!
//! This crate never does I/O and never reads a clock or the environment: the contents of files, the
//! facts about the host and the caller are arguments. Only [`decide`] can make a [`Grant`]. Any
//! doubt on the way to one is a denial.
//!
//! Start reading at [`decide`], then [`compile`].

mod administration;
mod agreement;
mod allowed;
mod asking;
mod bounds;
mod call;
mod check;
mod checks;
mod compile;
mod compiled;
mod credential;
mod decide;
mod digest;
mod document;
mod environment;
mod error;
mod exec;
mod file;
mod git;
mod git_settings;
mod grant;
mod home;
mod inputs;
mod labels;
mod layers;
mod learnt;
mod levels;
mod load;
mod login;
mod merge;
mod named;
mod network;
mod notice;
mod origin;
mod persons;
mod places;
mod policies;
mod presets;
mod profile;
mod programs;
mod project;
mod promotion;
mod publishing;
mod purposes;
mod quoting;
mod refusal;
mod reload;
mod repository;
mod request;
mod rules;
mod settings;
mod shipped;
mod show;
mod signed;
mod source;
mod ssh;
mod suggest;
mod tool;
mod trust;
mod unjudged;
mod variables;
mod words;

pub use agreement::agreement;
pub use allowed::AllowedHosts;
pub use atoll_cedar::{ArtifactFacts, ShadowFacts};
pub use call::decide;
pub use check::{FileKind, ProfileSummary, check, list, remarks};
pub use checks::Checks;
pub use compile::compile;
pub use credential::{
    CommandProgram, CommandSource, Credential, CredentialSource, KEY_PARTS, KeySource, LoginSource,
    SecretSource, TokenSource,
};
pub use decide::outputs_rule;
pub use digest::digest;
pub use error::{Problem, ProfileError};
pub use file::SourceFile;
pub use git_settings::{GIT_KEYS, GitSettings};
pub use grant::{
    ChangeGrant, ExecGrant, Grant, Granted, HostGrant, Permission, PortGrant, ToolGrant,
};
pub use layers::organisation_directory;
pub use learnt::learnt_cedar;
pub use login::{Holds, IssuedTo, Login, LoginIssue};
pub use network::preset::{preset_for, preset_for_host, preset_leads_to, presets};
pub use network::repositories::Remote;
pub use network::rule::{mistyped_method, network_entry};
pub use notice::Notice;
pub use origin::Origin;
pub use persons::{Approver, Widened};
pub use policies::check_policies;
pub use presets::PresetSummary;
pub use promotion::{ChangeRulesError, change_rules, makers_read, taking_over};
pub use purposes::{PurposeSummary, purposes};
pub use reload::{Compared, Reconsidered, ReloadError, compared, reconsider};
pub use repository::SharedRepository;
pub use rules::{PriorAnswer, Rules, checks, inputs_of};
pub use shipped::agent_of;
pub use signed::SignedBy;
pub use source::{
    AllowedHost, Changes, EarlierPurposes, Facts, HostFacts, Living, Maker, NoProfiles, Outputs,
    PolicySources, ProfileSource, Promoted, Requested, RequestedProfile, Sources,
};
pub use ssh::{SshKeySource, SshRule};
pub use suggest::{misspelt, nearest};
pub use tool::offers_tool;
pub use trust::{TrustList, Trusted};

#[cfg(test)]
mod tests;
