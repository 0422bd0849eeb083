//! `[login.NAME]`: an agent's login file, or a settings file with keys in it, replaced in the
//! sandbox by a placeholder file.

mod issue;
mod narrow;

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use atoll_model::ViewKind;
use atoll_model::network::{CredentialName, FieldPath, Place as Spot};

use crate::credential::{CredentialSource, LoginSource};
use crate::document::{Complaint, Document, Section};
use crate::named::Tables;
use crate::network::rule::said;
use crate::origin::{Origin, Sourced};
use crate::places::{Place, parse_place};
use crate::rules::Rules;
use crate::show::quoted;
pub use issue::{IssuedTo, LoginIssue};
pub(crate) use narrow::narrow;

/// The table's names in messages.
const TABLES: Tables = Tables {
    key: "login",
    table: "login.NAME",
};
const KEYS: [&str; 7] = [
    "file", "keep", "claims", "secrets", "hidden", "optional", "issue",
];
/// The most login files of one run.
const LOGINS_MAX: usize = 32;
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
    name: CredentialName,
    file: Place,
    keep: Vec<FieldPath>,
    claims: Vec<String>,
    holds: Holds,
    optional: bool,
    issue: Option<LoginIssue>,
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

/// Parses the path of a field in a login file.
pub(crate) fn parse_field(text: &str) -> Result<FieldPath, Complaint> {
    text.parse::<FieldPath>()
        .map_err(|error| said(text, &error))
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

impl Rules {
    /// Returns the login files, sorted by name.
    pub fn logins(&self) -> impl Iterator<Item = &Login> {
        self.logins.values().map(|one| &one.value)
    }

    /// Returns the credential by which a login's access token is renewed.
    #[must_use]
    pub fn renewed_by(&self, source: &LoginSource) -> Option<&CredentialName> {
        let refresh = &source.renew.as_ref()?.refresh;
        let mut all = self.credentials().filter(|one| {
            let is_for = matches!(one.binding.place, Spot::Refresh(_));
            let is_it =
                |other: &LoginSource| other.login == source.login && other.field == *refresh;
            is_for && matches!(&one.source, CredentialSource::Login(other) if is_it(other))
        });
        all.next().map(|one| &one.binding.name)
    }

    /// Returns whether programs in the sandbox read a file where no placeholder file can replace
    /// it: in the workspace, the system, or a named input.
    #[must_use]
    pub fn shows_as_it_is(&self, file: &Path, workspace: &Path) -> bool {
        let views = self.views.values().map(|view| &view.value);
        let mut as_it_is = views.filter(|view| match view.kind {
            ViewKind::System | ViewKind::Input | ViewKind::Repository => true,
            ViewKind::Home | ViewKind::Cache => false,
        });
        file.starts_with(workspace) || as_it_is.any(|view| file.starts_with(&view.host))
    }

    /// Adds a file's logins: each replaces an extended profile's of the same name.
    pub(crate) fn add_logins(&mut self, written: Vec<Sourced<Written>>) {
        let home = self.host.home.clone();
        for one in written {
            let login = one.map(|written| Login {
                file: written.file.resolve(&home),
                name: written.name,
                keep: written.keep,
                claims: written.claims,
                holds: written.holds,
                optional: written.optional,
                issue: written.issue,
            });
            self.logins.insert(login.value.name.clone(), login);
        }
    }

    /// Returns whether a file holds a login and nothing else.
    fn is_login(&self, name: &CredentialName) -> bool {
        let login = self.logins.get(name);
        login.is_some_and(|login| login.value.holds == Holds::Login)
    }

    /// Returns the logins and their credentials that cannot be used as written, with the reasons.
    pub(crate) fn login_refusals(&self) -> Vec<(String, String, Origin)> {
        let mut refused = Vec::new();
        let mut files = BTreeSet::new();
        for (index, (name, one)) in self.logins.iter().enumerate() {
            let what = format!("login {name}");
            if index >= LOGINS_MAX {
                let why = format!("a run has {LOGINS_MAX} of them at most");
                refused.push((what, why, one.origin.clone()));
            } else if !files.insert(&one.value.file) {
                let why = "another one is of the same file".to_owned();
                refused.push((what, why, one.origin.clone()));
            }
        }
        let mut fields = BTreeSet::new();
        for (name, one) in &self.credentials {
            let CredentialSource::Login(source) = &one.value.source else {
                continue;
            };
            let why = if !self.logins.contains_key(&source.login) {
                format!("there is no [login.{}]", source.login)
            } else if !fields.insert((&source.login, source.field.clone())) {
                "another one has the same field of that login, and one text cannot stand for both"
                    .to_owned()
            } else if source.renew.is_some() && !self.is_login(&source.login) {
                "what is renewed is in a login file, and this is another".to_owned()
            } else if source.renew.is_some() && self.renewed_by(source).is_none() {
                "no credential with a place of { refresh = … } is of the `refresh` field of its `renew`"
                    .to_owned()
            } else {
                continue;
            };
            refused.push((format!("credential {name}"), why, one.origin.clone()));
        }
        refused
    }
}
