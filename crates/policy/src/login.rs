//! `[login.NAME]`: an agent's login file, or a settings file with keys in it, replaced in the
//! sandbox by a placeholder file.

mod issue;

use std::ops::Range;
use std::path::PathBuf;

use atoll_model::network::{CredentialName, FieldPath};

use crate::credential::parse_field;
use crate::document::{Complaint, Document, Section};
use crate::named::Tables;
use crate::origin::Sourced;
use crate::places::{Place, parse_place};
use crate::quoting::quoted;
pub use issue::{IssuedTo, LoginIssue};

/// The table's names in messages.
const TABLES: Tables = Tables {
    key: "login",
    table: "login.NAME",
};
const KEYS: [&str; 7] = [
    "file", "keep", "claims", "secrets", "hidden", "optional", "issue",
];
/// The longest name of a claim, bytes.
const CLAIM_BYTES_MAX: usize = 64;

/// A login file of these rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The name that credentials refer to.
    pub name: CredentialName,
    /// The file's path, absolute.
    pub file: PathBuf,
    /// Fields that are kept as they are in the placeholder file.
    pub keep: Vec<FieldPath>,
    /// Claims of web tokens that are kept as they are in the placeholder file.
    pub claims: Vec<String>,
    /// The kind of content, which determines the placeholder file.
    pub holds: Holds,
    /// True if a run goes on without it when the file is missing.
    pub optional: bool,
    /// The way to log in from the sandbox.
    pub issue: Option<LoginIssue>,
}

/// The kind of content of a login file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holds {
    /// A login: only named fields are kept.
    Login,
    /// Settings: everything is kept except these values, and any that look like a secret.
    Settings(Vec<FieldPath>),
    /// A copy of either: hidden, without a placeholder file.
    Copies,
}

/// A login file as written: its path may be relative to the home directory.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) name: CredentialName,
    pub(crate) file: Place,
    pub(crate) keep: Vec<FieldPath>,
    pub(crate) claims: Vec<String>,
    pub(crate) holds: Holds,
    pub(crate) optional: bool,
    pub(crate) issue: Option<LoginIssue>,
}

/// Reads all `[login.NAME]` tables.
pub(crate) fn read(document: &mut Document, top: &mut Section<'_>) -> Vec<Sourced<Written>> {
    TABLES.read(document, top, read_one)
}

fn read_one(
    document: &mut Document,
    mut section: Section<'_>,
    at: &Range<usize>,
    name: CredentialName,
) -> Option<Sourced<Written>> {
    let before = document.problem_count();
    let file = document.text(&mut section, "file", parse_place);
    let holds = read_holds(document, &mut section);
    let keep = document.list(&mut section, "keep", parse_field);
    let claims = document.list(&mut section, "claims", parse_claim);
    let optional = document.flag(&mut section, "optional");
    let issue = issue::read(document, &mut section);
    document.end(section, &KEYS);
    if document.problem_count() > before {
        return None;
    }
    let Some(file) = file else {
        let what = format!("[login.{name}] needs `file`: where it is, as \"~/.agent/auth.json\"");
        document.report(at, what, None);
        return None;
    };
    let written = Written {
        name,
        file: file.value,
        keep: keep.map_or_else(Vec::new, |list| values(list.value)),
        claims: claims.map_or_else(Vec::new, |list| values(list.value)),
        holds,
        optional: optional.is_some_and(|(flag, _)| flag.value),
        issue,
    };
    Some(Sourced::new(written, document.origin(at)))
}

/// Reads the kind of content, and refuses keys that do not go with it.
fn read_holds(document: &mut Document, section: &mut Section<'_>) -> Holds {
    let (has_secrets, is_hidden) = (section.holds("secrets"), section.holds("hidden"));
    let secrets = document.list(section, "secrets", parse_field);
    let hidden = document.flag(section, "hidden");
    if is_hidden {
        for key in ["keep", "claims", "issue"] {
            document.refuse(section, key, "of a `hidden` file nothing is read");
        }
    }
    if has_secrets {
        for key in ["claims", "issue"] {
            document.refuse(section, key, "`secrets` are of a file of settings");
        }
    }
    match (secrets, hidden) {
        (_, Some((flag, _))) if flag.value => Holds::Copies,
        (Some(list), _) => Holds::Settings(values(list.value)),
        (None, _) => Holds::Login,
    }
}

fn values<T>(list: Vec<Sourced<T>>) -> Vec<T> {
    list.into_iter().map(|one| one.value).collect()
}

fn parse_claim(text: &str) -> Result<String, Complaint> {
    let is_name =
        (1..=CLAIM_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
    match is_name {
        true => Ok(text.to_owned()),
        false => Err(format!("{text:?} is no name of a claim").into()),
    }
}

impl Login {
    /// Returns the entry for a copy of the login in another file, which is hidden.
    #[must_use]
    pub fn copy(&self, file: PathBuf) -> Self {
        Self {
            name: self.name.clone(),
            file,
            keep: Vec::new(),
            claims: Vec::new(),
            holds: Holds::Copies,
            optional: true,
            issue: None,
        }
    }

    /// Returns its lines in a profile, without the header.
    pub(crate) fn lines(&self) -> Vec<String> {
        let Self {
            name: _,
            file,
            keep,
            claims,
            holds,
            optional,
            issue,
        } = self;
        let list = |texts: Vec<String>| format!("[{}]", texts.join(", "));
        let mut lines = vec![format!("file = {}", quoted(&file.to_string_lossy()))];
        if !keep.is_empty() {
            let keep = keep.iter().map(|one| quoted(&one.to_string())).collect();
            lines.push(format!("keep = {}", list(keep)));
        }
        if !claims.is_empty() {
            let claims = claims.iter().map(|one| quoted(one)).collect();
            lines.push(format!("claims = {}", list(claims)));
        }
        match holds {
            Holds::Login => {}
            Holds::Settings(secrets) => {
                let secrets = secrets.iter().map(|one| quoted(&one.to_string())).collect();
                lines.push(format!("secrets = {}", list(secrets)));
            }
            Holds::Copies => lines.push("hidden = true".to_owned()),
        }
        if *optional {
            lines.push("optional = true".to_owned());
        }
        lines.extend(
            issue
                .iter()
                .map(|issue| format!("issue = {}", issue.text())),
        );
        lines
    }
}
