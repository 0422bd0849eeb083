//! Signing keys: of several values, for AWS signatures of some regions and services.

use std::ops::Range;
use std::path::{Path, PathBuf};

use atoll_model::SecretName;
use atoll_model::network::{Part, SignatureScope};

use super::{WrittenSource, parse_secret, parse_variable};
use crate::document::{Complaint, Document, Section};
use crate::places::{Place, parse_place};
use crate::quoting::quoted;

/// The values of a key, in the order in which they are written; the last one is for temporary keys.
pub const KEY_PARTS: [Part; 3] = [Part::KeyId, Part::Secret, Part::Token];

/// The variables in which programs look for such a key.
const VARIABLES: [&str; 3] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
];

/// The file of AWS's command line with keys, and the one with all other settings of its profiles.
const PROFILES: &str = "~/.aws/credentials";
const SETTINGS: &str = "~/.aws/config";

pub(super) const SOURCES: &str = "{ environment = [\"AWS_ACCESS_KEY_ID\", \"AWS_SECRET_ACCESS_KEY\"] }, \
     { aws-profile = \"default\" }, { vault = [\"aws-id\", \"aws-secret\"] }, { command = [\"aws\", \
     \"configure\", \"export-credentials\", \"--format\", \"process\"] }";

/// The source of a key's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// Variables of Atoll's own environment, in the order of [`KEY_PARTS`]. The last of three may
    /// be unset.
    Variables(Vec<String>),
    /// Secrets of the vault, in that order.
    Vault(Vec<SecretName>),
    /// A profile in the files of AWS's command line.
    Profile {
        /// The profile's name.
        name: String,
        /// The file with its values, absolute.
        file: PathBuf,
        /// The file with its settings, which can name a command that prints the values, absolute.
        settings: PathBuf,
    },
}

/// The source of a key's values, as written.
#[derive(Clone, Debug)]
pub(super) enum Written {
    Variables(Vec<String>),
    Vault(Vec<SecretName>),
    Profile {
        name: String,
        file: Place,
        settings: Place,
    },
}

impl Written {
    pub(super) fn is_of_vault(&self) -> bool {
        match self {
            Self::Vault(_) => true,
            Self::Variables(_) | Self::Profile { .. } => false,
        }
    }

    pub(super) fn resolved(self, home: &Path) -> KeySource {
        match self {
            Self::Variables(names) => KeySource::Variables(names),
            Self::Vault(secrets) => KeySource::Vault(secrets),
            Self::Profile {
                name,
                file,
                settings,
            } => KeySource::Profile {
                name,
                file: file.resolve(home),
                settings: settings.resolve(home),
            },
        }
    }

    /// Returns the default variables in the sandbox.
    pub(super) fn variables(&self) -> Vec<(Part, String)> {
        match self {
            Self::Variables(names) => KEY_PARTS.into_iter().zip(names.clone()).collect(),
            Self::Vault(_) | Self::Profile { .. } => usual_variables(),
        }
    }
}

/// Returns the variables in which programs look for a key.
pub(super) fn usual_variables() -> Vec<(Part, String)> {
    KEY_PARTS
        .into_iter()
        .zip(VARIABLES.map(str::to_owned))
        .collect()
}

impl KeySource {
    /// Returns the host's variables.
    pub(crate) fn variables(&self) -> &[String] {
        match self {
            Self::Variables(names) => names,
            Self::Vault(_) | Self::Profile { .. } => &[],
        }
    }

    /// Formats the source as written in a profile.
    pub(super) fn line(&self) -> String {
        let list = |names: Vec<String>| names.join(", ");
        match self {
            Self::Variables(names) => {
                let names = names.iter().map(|name| quoted(name)).collect();
                format!("{{ environment = [{}] }}", list(names))
            }
            Self::Vault(secrets) => {
                let names = secrets.iter().map(|one| quoted(one.as_str())).collect();
                format!("{{ vault = [{}] }}", list(names))
            }
            Self::Profile { name, .. } => format!("{{ aws-profile = {} }}", quoted(name)),
        }
    }
}

/// Reads a source of several values, if one is written.
pub(super) fn read_source(
    document: &mut Document,
    section: &mut Section<'_>,
    at: &Range<usize>,
) -> Option<Written> {
    if section.holds_list("environment") {
        let names = listed(document, section, "environment", parse_variable)?;
        return of_key(document, names, at).map(Written::Variables);
    }
    if section.holds_list("vault") {
        let secrets = listed(document, section, "vault", parse_secret)?;
        return of_key(document, secrets, at).map(Written::Vault);
    }
    let name = document.text(section, "aws-profile", parse_profile)?.value;
    let file = parse_place(PROFILES).ok()?;
    let settings = parse_place(SETTINGS).ok()?;
    Some(Written::Profile {
        name,
        file,
        settings,
    })
}

/// Reads the variables in the sandbox.
pub(super) fn read_variables(
    document: &mut Document,
    section: &mut Section<'_>,
    at: &Range<usize>,
) -> Option<Vec<(Part, String)>> {
    let names = listed(document, section, "variable", parse_variable)?;
    let names = of_key(document, names, at)?;
    Some(KEY_PARTS.into_iter().zip(names).collect())
}

fn listed<T>(
    document: &mut Document,
    section: &mut Section<'_>,
    key: &'static str,
    parse: impl Fn(&str) -> Result<T, Complaint>,
) -> Option<Vec<T>> {
    let before = document.problem_count();
    let list = document.list(section, key, parse)?.value;
    let values = list.into_iter().map(|one| one.value).collect();
    (document.problem_count() == before).then_some(values)
}

/// Checks that a key has two or three values, all different.
fn of_key<T: PartialEq>(
    document: &mut Document,
    values: Vec<T>,
    at: &Range<usize>,
) -> Option<Vec<T>> {
    let mut rest = &values[..];
    let mut is_clear = (2..=KEY_PARTS.len()).contains(&values.len());
    while let Some((first, further)) = rest.split_first() {
        is_clear &= !further.contains(first);
        rest = further;
    }
    if is_clear {
        return Some(values);
    }
    let what = "a key that signs has two values, or three: its id, its secret, and a session token";
    document.report(at, what.to_owned(), Some(format!("as {SOURCES}")));
    None
}

/// Reads the regions and services of signatures.
pub(super) fn read_scope(
    document: &mut Document,
    within: &mut Section<'_>,
) -> Option<SignatureScope> {
    let (at, mut section) = document.placed(within, "sigv4", "credential.NAME.place.sigv4")?;
    let regions = read_names(document, &mut section, "region");
    let services = read_names(document, &mut section, "service");
    document.end(section, &["region", "service"]);
    match (regions, services) {
        (Some(regions), Some(services)) => Some(SignatureScope { regions, services }),
        (_, _) => {
            let what = "`sigv4` needs `region` and `service`: what signatures are for, as { region \
                        = \"eu-west-1\", service = \"s3\" }";
            document.report(&at, what.to_owned(), None);
            None
        }
    }
}

fn read_names(
    document: &mut Document,
    section: &mut Section<'_>,
    key: &'static str,
) -> Option<Vec<String>> {
    if section.holds_text(key) {
        let one = document.text(section, key, parse_name)?;
        return Some(vec![one.value]);
    }
    listed(document, section, key, parse_name).filter(|names| !names.is_empty())
}

fn parse_name(text: &str) -> Result<String, Complaint> {
    if SignatureScope::is_name(text) {
        return Ok(text.to_owned());
    }
    Err(Complaint::new(
        format!("{text:?} is no region and no service"),
        "write it as signatures have it: \"eu-west-1\", \"s3\", \"dynamodb\"; each by itself",
    ))
}

fn parse_profile(text: &str) -> Result<String, Complaint> {
    let is_plain = |byte: u8| (b' '..=b'~').contains(&byte) && !b"[]".contains(&byte);
    if (1..=128).contains(&text.len()) && text.trim() == text && text.bytes().all(is_plain) {
        return Ok(text.to_owned());
    }
    Err(format!("{text:?} is no name of a profile in {PROFILES}").into())
}

/// The kind of value that a source gives.
#[derive(Clone, Copy)]
pub(super) enum Gives {
    /// The values of a key.
    Key,
    /// The output of a command: a single value, or a key if one is needed.
    Command,
    /// A single value.
    Value,
}

/// Returns why a source and a place do not fit together, with a hint.
pub(super) fn mismatch(
    gives: Gives,
    place_signs: bool,
    variables: &[(Part, String)],
) -> Option<(&'static str, String)> {
    let named = || {
        "write variable = [\"KEY_ID\", \"KEY_SECRET\", \"KEY_TOKEN\"], or leave it out".to_owned()
    };
    match (gives, place_signs) {
        (Gives::Key | Gives::Command, true) if variables.len() < 2 => Some((
            "`variable` names one, and the key has several values",
            named(),
        )),
        // What is not known yet may have a session token.
        (Gives::Command, true) if variables.len() < KEY_PARTS.len() => Some((
            "`variable` names two, and what its command prints may have a session token too",
            named(),
        )),
        (Gives::Value | Gives::Command, false) if variables.len() > 1 => Some((
            "`variable` names several, and the credential is one value",
            "write variable = \"TOKEN\"".to_owned(),
        )),
        (Gives::Key | Gives::Command, true) | (Gives::Value | Gives::Command, false) => None,
        (Gives::Value, true) => Some((
            "`sigv4` signs with a key of two values or three",
            format!("write `source` as one of: {SOURCES}"),
        )),
        (Gives::Key, false) => Some((
            "`source` is a key of several values, which signs and is put in nowhere",
            "write place = { sigv4 = { region = \"eu-west-1\", service = \"s3\" } }".to_owned(),
        )),
    }
}

/// Returns a remark on narrower alternatives, for a check of a profile; it follows the one on
/// restrictions that AWS cannot be asked for.
pub(super) fn remark(source: &WrittenSource) -> &'static str {
    match matches!(source, WrittenSource::Command(_)) {
        true => {
            "; its command can, by a role with a session policy (aws sts assume-role --policy …, for \
             --duration-seconds as few as the work takes); what its services answer the program has, also \
             keys that they give out"
        }
        false => {
            "; a key that a `command` prints, or credential_process of a profile, ends by itself and can be \
             of a narrower role; what its services answer the program has, also keys that they give out"
        }
    }
}

/// Formats the place as written in a profile.
pub(super) fn scope_line(scope: &SignatureScope) -> String {
    let list = |names: &[String]| {
        let names: Vec<_> = names.iter().map(|name| quoted(name)).collect();
        names.join(", ")
    };
    format!(
        "sigv4 = {{ region = [{}], service = [{}] }}",
        list(&scope.regions),
        list(&scope.services)
    )
}
