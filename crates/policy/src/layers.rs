//! The files around a profile: the organisation's above it, the user's choice of profile.

use std::path::PathBuf;

use atoll_model::network::Meant;
use atoll_model::{LimitKey, WorkspaceMode};

use crate::document::{Complaint, Document, Section};
use crate::error::{Problem, ProfileError};
use crate::file::SourceFile;
use crate::labels::LabelSettings;
use crate::levels::TrustSettings;
use crate::network::ask::AskSettings;
use crate::network::rule::Effect;
use crate::network::upstream::{self, UpstreamSettings};
use crate::network::{read_rules, remarks};
use crate::origin::Sourced;
use crate::persons::PersonSettings;
use crate::places::{Place, parse_denied as parse_denied_place, parse_in_home};
use crate::settings::{
    SyscallSettings, TerminalSettings, only_tightened, read_limits, read_terminal,
};
use crate::variables::Pattern;
use crate::words::{Author, parse_profile_name, parse_workspace};

/// The organisation's file. Nothing below it allows again what it forbids.
#[derive(Clone, Debug, Default)]
pub(crate) struct Organisation {
    /// The highest limits that anyone may use.
    pub(crate) limits: Vec<(LimitKey, Sourced<String>)>,
    pub(crate) denials: Denials,
    /// The widest workspace mode.
    pub(crate) workspace: Option<Sourced<WorkspaceMode>>,
    pub(crate) syscalls: SyscallSettings,
    pub(crate) terminal: TerminalSettings,
    pub(crate) deny_root: Option<Sourced<bool>>,
    pub(crate) deny_publishing: Option<Sourced<bool>>,
    pub(crate) forbid_dangerous: Option<Sourced<bool>>,
    /// The upstream of connections from the host.
    pub(crate) upstream: UpstreamSettings,
    /// The network rules that require an approval for something allowed below.
    pub(crate) ask: AskSettings,
    /// The highest trust settings that anyone may use.
    pub(crate) trust: TrustSettings,
    /// Places with private data, whoever shows them.
    pub(crate) labels: LabelSettings,
    /// The number of persons needed to widen a run's rights.
    pub(crate) persons: PersonSettings,
}

impl Organisation {
    pub(crate) fn parse(file: &SourceFile<'_>) -> Result<Self, Vec<Problem>> {
        let (mut document, mut top) = Document::open(file)?;
        let mut organisation = Self {
            limits: read_limits(&mut document, &mut top),
            denials: Denials::read(&mut document, &mut top),
            trust: TrustSettings::read(&mut document, &mut top, Author::Profile),
            labels: LabelSettings::read(&mut document, &mut top, Author::Project),
            persons: PersonSettings::read(&mut document, &mut top),
            terminal: read_terminal(&mut document, &mut top, Author::Project),
            forbid_dangerous: document
                .flag(&mut top, "forbid-dangerous")
                .map(|(flag, _)| flag),
            ..Self::default()
        };
        document.text(&mut top, "description", |_| Ok(()));
        (organisation.upstream, organisation.ask) = read_network(&mut document, &mut top);
        if let Some(mut section) = document.section(&mut top, "require", "require") {
            organisation.workspace = document.text(&mut section, "workspace", parse_workspace);
            let mut required =
                |key| only_tightened(&mut document, &mut section, key, Author::Project, true);
            organisation.syscalls = SyscallSettings {
                deny_debugging: required("deny-debugging"),
                deny_sockets: required("deny-sockets"),
                deny_nesting: required("deny-nesting"),
            };
            organisation.deny_root = required("deny-root");
            organisation.deny_publishing = required("deny-publishing");
            let keys = [
                "workspace",
                "deny-debugging",
                "deny-sockets",
                "deny-nesting",
                "deny-root",
                "deny-publishing",
            ];
            document.end(section, &keys);
        }
        document.end(
            top,
            &[
                "description",
                "limits",
                "deny",
                "require",
                "terminal",
                "grants",
                "network",
                "trust",
                "labels",
                "approvals",
                "forbid-dangerous",
            ],
        );
        document.close(organisation)
    }
}

fn read_network(document: &mut Document, top: &mut Section<'_>) -> (UpstreamSettings, AskSettings) {
    let Some(mut section) = document.section(top, "network", "network") else {
        return Default::default();
    };
    let ask = AskSettings::read_narrowing(document, &mut section);
    let settings = UpstreamSettings::read_public(document, &mut section);
    document.end(section, &[&["ask"][..], &upstream::KEYS].concat());
    (settings, ask)
}

/// `[deny]`: places and variables that are not shown, hosts that are not reached, for every run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Denials {
    pub(crate) places: Vec<Sourced<Place>>,
    pub(crate) environment: Vec<Sourced<Pattern>>,
    pub(crate) network: Vec<Sourced<Meant>>,
}

impl Denials {
    /// Returns remarks on its rules, each with its line.
    pub(crate) fn remarks(&self) -> Vec<(u32, String)> {
        remarks(self.network.iter())
    }

    pub(crate) fn read(document: &mut Document, top: &mut Section<'_>) -> Self {
        let Some(mut section) = document.section(top, "deny", "deny") else {
            return Self::default();
        };
        let home = document.list(&mut section, "home-read", parse_in_home);
        let files = document.list(&mut section, "files", parse_denied_place);
        let environment = document.list(&mut section, "environment", Pattern::parse);
        let network = read_rules(
            document,
            &mut section,
            "network",
            "deny.network",
            Effect::Deny,
        );
        document.end(section, &["home-read", "files", "environment", "network"]);
        let home = home.map(|list| list.value).unwrap_or_default();
        let mut places: Vec<Sourced<Place>> = home
            .into_iter()
            .map(|place| place.map(Place::Home))
            .collect();
        places.extend(files.map(|list| list.value).unwrap_or_default());
        Self {
            places,
            environment: environment.map(|list| list.value).unwrap_or_default(),
            network,
        }
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.places.extend(other.places);
        self.environment.extend(other.environment);
        self.network.extend(other.network);
    }
}

/// The user's `config.toml`.
#[derive(Clone, Debug, Default)]
pub(crate) struct UserConfig {
    pub(crate) default_profile: Option<Sourced<String>>,
    /// The directory of the organisation's layer, if it is not the machine's.
    pub(crate) organisation: Option<PathBuf>,
    /// The number of persons needed to widen a run's rights.
    pub(crate) persons: PersonSettings,
}

impl UserConfig {
    pub(crate) fn parse(file: &SourceFile<'_>) -> Result<Self, Vec<Problem>> {
        let (mut document, mut top) = Document::open(file)?;
        let default_profile = document.text(&mut top, "default-profile", parse_profile_name);
        let mut directory = None;
        if let Some((at, mut section)) = document.placed(&mut top, "organisation", "organisation") {
            directory = document.text(&mut section, "directory", parse_directory);
            document.end(section, &["directory"]);
            if directory.is_none() && document.problem_count() == 0 {
                document.report(&at, "needs `directory`".to_owned(), None);
            }
        }
        let persons = PersonSettings::read(&mut document, &mut top);
        document.end(top, &["default-profile", "organisation", "approvals"]);
        document.close(Self {
            default_profile,
            organisation: directory.map(|directory| directory.value),
            persons,
        })
    }
}

fn parse_directory(text: &str) -> Result<PathBuf, Complaint> {
    match text.starts_with('/') {
        true => Ok(PathBuf::from(text)),
        false => Err(format!("{text:?} is not an absolute path").into()),
    }
}

/// Returns the directory of the organisation's signed layer that a user's `config.toml` names.
///
/// # Errors
/// [`ProfileError::Invalid`]: the file has problems, so it is unknown whether it names one.
pub fn organisation_directory(config: &SourceFile<'_>) -> Result<Option<PathBuf>, ProfileError> {
    let config = UserConfig::parse(config).map_err(ProfileError::Invalid)?;
    Ok(config.organisation)
}
