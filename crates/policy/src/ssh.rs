//! `[ssh.NAME]`: SSH keys that never enter a sandbox, and the hosts that they log in to.

use std::ops::Range;
use std::path::PathBuf;

use atoll_model::SecretName;
use atoll_model::network::{
    CredentialName, HostPart, SSH_AGENT, SSH_CONFIGURATION, SSH_DIRECTORY, SshGrant,
};

use crate::document::{Complaint, Document, Section};
use crate::named::Tables;
use crate::network::rule::texts;
use crate::origin::Sourced;
use crate::places::{Place, parse_place};
use crate::quoting::quoted;

const TABLES: Tables = Tables {
    key: "ssh",
    table: "ssh.NAME",
};
const KEYS: [&str; 5] = ["to", "user", "key", "host-keys", "sign-commits"];
/// The port of SSH (RFC 4253, section 4.1).
const PORT: u16 = 22;
/// The default user: git services have everybody log in as this one.
const USER: &str = "git";
/// The longest user name, bytes.
const USER_BYTES_MAX: usize = 64;

/// The source of an SSH key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SshKeySource {
    /// The person's agent: its key with this fingerprint (`SHA256:…`), or any that it has.
    Agent(Option<String>),
    /// A file of the host, absolute.
    File(PathBuf),
    /// A secret of the vault.
    Vault(SecretName),
}

/// An SSH grant of these rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshRule {
    /// The grant: the host, port and user that the key logs in to.
    pub grant: SshGrant,
    /// The source of the key.
    pub source: SshKeySource,
    /// The host keys as written, `KIND BASE64`; empty for those that the person has already
    /// accepted.
    pub host_keys: Vec<String>,
}

/// A grant as written: a file's path may be relative to the home directory.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) rule: SshRule,
    pub(crate) file: Option<Place>,
}

/// Reads all `[ssh.NAME]` tables.
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
    let to = document.text(&mut section, "to", parse_to);
    let user = document.text(&mut section, "user", parse_user);
    let (source, file) = read_key(document, &mut section).unzip();
    let host_keys = texts(document, &mut section, "host-keys", at, parse_host_key);
    let signs_commits = document.flag(&mut section, "sign-commits");
    document.end(section, &KEYS);
    if document.problem_count() > before {
        return None;
    }
    let missing = match (&to, &source) {
        (None, _) => "`to`: the host that it logs in to, as \"github.com\"",
        (_, None) => {
            "`key`: as \"SHA256:…\" of your agent (ssh-add -l), or { file = \"~/.ssh/id_ed25519\" }"
        }
        (Some(_), Some(_)) => "",
    };
    let (Some(to), Some(source)) = (to, source) else {
        document.report(at, format!("[ssh.{name}] needs {missing}"), None);
        return None;
    };
    let (host, port) = to.value;
    let origin = document.origin(at);
    let grant = SshGrant {
        name,
        host,
        port,
        user: user.map_or_else(|| USER.to_owned(), |user| user.value),
        signs_commits: signs_commits.is_some_and(|(flag, _)| flag.value),
        origin: origin.to_string(),
    };
    let rule = SshRule {
        grant,
        source,
        host_keys: host_keys.unwrap_or_default(),
    };
    let file = file.flatten();
    Some(Sourced::new(Written { rule, file }, origin))
}

/// Parses a host with an optional port.
fn parse_to(text: &str) -> Result<(HostPart, u16), Complaint> {
    let wrong = || {
        Complaint::new(
            format!("{text:?} is no host that a key logs in to"),
            "name one, as \"github.com\" or \"git.example.com:2222\"",
        )
    };
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or_else(wrong)?)),
        None => match text.split_once(':') {
            Some((_, port)) if port.contains(':') => (text, None),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = match port {
        None => PORT,
        Some(port) => port.parse().map_err(|_| wrong())?,
    };
    let host = host.parse::<HostPart>().map_err(|_| wrong())?;
    if port == 0 || matches!(&host, HostPart::Name(name) if name.is_this_host()) {
        return Err(wrong());
    }
    Ok((host, port))
}

fn parse_user(text: &str) -> Result<String, Complaint> {
    let is_of_user = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@+~".contains(&byte);
    let is_user = (1..=USER_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_of_user);
    match is_user {
        true => Ok(text.to_owned()),
        false => Err(format!("{text:?} is no user's name").into()),
    }
}

fn parse_host_key(text: &str) -> Result<String, Complaint> {
    let mut words = text.split(' ');
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    let is_key = match (words.next(), words.next(), words.next()) {
        (Some(kind), Some(key), None) => {
            !kind.is_empty() && key.len() >= 32 && key.bytes().all(is_base64)
        }
        _ => false,
    };
    match is_key {
        true => Ok(text.to_owned()),
        false => Err(Complaint::new(
            format!("{text:?} is no host's key"),
            "as \"ssh-ed25519 AAAA…\", without the host's name",
        )),
    }
}

fn parse_of_agent(text: &str) -> Result<Option<String>, Complaint> {
    let is_fingerprint = |text: &&str| {
        let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/".contains(&byte);
        let digest = text.strip_prefix("SHA256:");
        digest.is_some_and(|digest| digest.len() == 43 && digest.bytes().all(is_base64))
    };
    match text {
        "agent" => Ok(None),
        other if is_fingerprint(&other) => Ok(Some(other.to_owned())),
        other => Err(Complaint::new(
            format!("{other:?} is no key"),
            "as \"SHA256:…\" (ssh-add -l shows it), \"agent\" for every key of your agent, \
             { file = \"~/.ssh/id_ed25519\" } or { vault = \"NAME\" }",
        )),
    }
}

fn read_key(
    document: &mut Document,
    within: &mut Section<'_>,
) -> Option<(SshKeySource, Option<Place>)> {
    if within.holds_text("key") {
        let of_agent = document.text(within, "key", parse_of_agent)?;
        return Some((SshKeySource::Agent(of_agent.value), None));
    }
    let (at, mut section) = document.placed(within, "key", "ssh.NAME.key")?;
    let file = document.text(&mut section, "file", parse_place);
    let secret = document.text(&mut section, "vault", |text| {
        let secret = text.parse::<SecretName>();
        secret.map_err(|error| Complaint::from(format!("{text:?}: {error}")))
    });
    document.end(section, &["file", "vault"]);
    match (file, secret) {
        // Where it is becomes clear with the home directory.
        (Some(place), None) => Some((SshKeySource::File(PathBuf::new()), Some(place.value))),
        (None, Some(secret)) => Some((SshKeySource::Vault(secret.value), None)),
        (_, _) => {
            let what = "`key` is one of: \"SHA256:…\", \"agent\", { file = \"~/.ssh/id_ed25519\" }, \
                        { vault = \"NAME\" }";
            document.report(&at, what.to_owned(), None);
            None
        }
    }
}

/// Returns the variables by which ssh and git find this directory's files; the one for git's
/// connections only if a key can log in.
pub(crate) fn variables(logs_in: bool) -> impl Iterator<Item = (&'static str, String)> {
    let agent = ("SSH_AUTH_SOCK", format!("{SSH_DIRECTORY}/{SSH_AGENT}"));
    let connections = logs_in.then(|| {
        let command = format!("ssh -F '{SSH_DIRECTORY}/{SSH_CONFIGURATION}'");
        ("GIT_SSH_COMMAND", command)
    });
    std::iter::once(agent).chain(connections)
}

impl SshRule {
    pub(crate) fn place(&self) -> String {
        match &self.grant.host {
            HostPart::Name(name) => format!("{name}:{}", self.grant.port),
            HostPart::Address(address) if address.is_ipv6() => {
                format!("[{address}]:{}", self.grant.port)
            }
            HostPart::Address(address) => format!("{address}:{}", self.grant.port),
        }
    }

    /// Returns its lines in a profile, without the header.
    pub(crate) fn lines(&self) -> Vec<String> {
        let key = match &self.source {
            SshKeySource::Agent(None) => quoted("agent"),
            SshKeySource::Agent(Some(fingerprint)) => quoted(fingerprint),
            SshKeySource::File(path) => {
                format!("{{ file = {} }}", quoted(&path.to_string_lossy()))
            }
            SshKeySource::Vault(secret) => format!("{{ vault = {} }}", quoted(secret.as_str())),
        };
        let mut lines = vec![
            format!("to = {}", quoted(&self.place())),
            format!("user = {}", quoted(&self.grant.user)),
            format!("key = {key}"),
        ];
        if !self.host_keys.is_empty() {
            let keys: Vec<String> = self.host_keys.iter().map(|key| quoted(key)).collect();
            lines.push(format!("host-keys = [{}]", keys.join(", ")));
        }
        if self.grant.signs_commits {
            lines.push("sign-commits = true".to_owned());
        }
        lines
    }
}
