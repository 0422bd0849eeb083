//! PostgreSQL passwords, each for one user and some databases.

use atoll_model::network::{
    Destination, HostPattern, Network, PostgresAccess, Reach, ServerTls, is_private,
};

use crate::document::{Complaint, Document, Section};
use crate::quoting::quoted;

/// The port of PostgreSQL (registered with IANA).
pub(super) const PORT: u16 = 5432;

/// An example for messages.
pub(super) const EXAMPLE: &str = "{ postgres = { user = \"app\", database = \"shop\" } }";

/// Reads the user, the databases and the use of TLS.
pub(super) fn read(document: &mut Document, within: &mut Section<'_>) -> Option<PostgresAccess> {
    let (at, mut section) =
        document.placed(within, "postgres", "credential.NAME.place.postgres")?;
    let before = document.problem_count();
    let user = document.text(&mut section, "user", parse_name);
    let databases = if section.holds_text("database") {
        let one = document.text(&mut section, "database", parse_name);
        one.map(|one| vec![one.value])
    } else {
        let list = document.list(&mut section, "database", parse_name);
        list.map(|list| list.value.into_iter().map(|one| one.value).collect())
    };
    let tls = document.text(&mut section, "tls", parse_tls);
    document.end(section, &["user", "database", "tls"]);
    match (user, databases.filter(|all| !all.is_empty())) {
        _ if document.problem_count() > before => None,
        (Some(user), Some(databases)) => Some(PostgresAccess {
            user: user.value,
            databases,
            tls: tls.map_or_else(ServerTls::default, |tls| tls.value),
        }),
        (_, _) => {
            let what = format!("`postgres` needs `user` and `database`, as {EXAMPLE}");
            document.report(&at, what, None);
            None
        }
    }
}

fn parse_name(text: &str) -> Result<String, Complaint> {
    match PostgresAccess::is_name(text) {
        true => Ok(text.to_owned()),
        false => Err(Complaint::new(
            format!("{text:?} is no name of a user or database"),
            "write it as the server has it, 63 bytes at most",
        )),
    }
}

fn parse_tls(text: &str) -> Result<ServerTls, Complaint> {
    match text {
        "required" => Ok(ServerTls::Required),
        "none" => Ok(ServerTls::None),
        _ => Err(Complaint::new(
            format!("{text:?} is nothing that TLS with a server can be"),
            "write tls = \"none\" for a server of a private network that speaks none, or nothing",
        )),
    }
}

/// Formats the place as written in a profile.
pub(super) fn line(access: &PostgresAccess) -> String {
    let databases: Vec<_> = access.databases.iter().map(|one| quoted(one)).collect();
    let tls = match access.tls {
        ServerTls::Required => "",
        ServerTls::None => ", tls = \"none\"",
    };
    format!(
        "postgres = {{ user = {}, database = [{}]{tls} }}",
        quoted(&access.user),
        databases.join(", ")
    )
}

/// Returns a remark for a check of a profile.
pub(super) fn remark(access: &PostgresAccess) -> &'static str {
    match access.tls {
        ServerTls::Required => "; what its user may there the program may",
        ServerTls::None => {
            "; what its user may there the program may; without TLS, who is on the way to the \
             server reads and changes what is asked there, and can guess at the password"
        }
    }
}

/// Returns why a password is never used at a destination, if it is not.
pub(crate) fn unused(
    network: &Network,
    access: &PostgresAccess,
    to: &Destination,
) -> Option<&'static str> {
    if let (ServerTls::None, HostPattern::Block(block)) = (access.tls, &to.host)
        && !is_private(block.first())
    {
        return Some("without TLS Atoll signs in to private networks alone");
    }
    match (network.reach_of(to), &to.host) {
        (_, HostPattern::Any | HostPattern::Beneath(_)) | (Reach::Unseen, _) => None,
        (Reach::Unreached, _) => Some("no rule of [network] allows it"),
        (Reach::Seen, _) => {
            Some("requests are looked for there; write carry = \"tunnel\" for that rule")
        }
    }
}
