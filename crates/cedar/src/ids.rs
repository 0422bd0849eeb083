//! Entity ids in policies. Each has one canonical form, the one that questions use: an id in
//! another form would match nothing, and a forbid with it would forbid nothing.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use atoll_model::network::{CredentialName, HostName};

/// Describes the correct form of an id of this type if the id is not in it.
pub(crate) fn wrong(kind: &str, id: &str) -> Option<&'static str> {
    match kind {
        "Host" if !is_host(id) => Some(
            "a host is a name in lower case, one with `*.` before it for all beneath it, or an \
             address; all hosts are `resource is Host`",
        ),
        "Path" if !is_path(id) => {
            Some("a path is absolute, without `.`, `..`, `//` and a `/` at its end")
        }
        "Program" if id.is_empty() || id.ends_with('/') => {
            Some("a program is a base name, or a path as it is called by")
        }
        "Port" if !is_number(id, 1, u32::from(u16::MAX)) => {
            Some("a port is a number from 1 to 65535")
        }
        "Person" if !is_number(id, 0, u32::MAX) => Some("a person is named by user number: id -u"),
        "Credential" if id.parse::<CredentialName>().is_err() => {
            Some("a credential is named as in a profile")
        }
        _ => None,
    }
}

fn is_host(id: &str) -> bool {
    let name = id.strip_prefix("*.").unwrap_or(id);
    let is_name = HostName::parse(name).is_ok_and(|parsed| parsed.as_str() == name);
    let is_address = |address: IpAddr| address.to_canonical().to_string() == id;
    is_name || id.parse().is_ok_and(is_address)
}

fn is_path(id: &str) -> bool {
    let is_plain = id.split('/').all(|part| part != "." && part != "..");
    let same: PathBuf = Path::new(id).components().collect();
    id.starts_with('/') && is_plain && same.as_os_str() == id
}

fn is_number(id: &str, least: u32, most: u32) -> bool {
    let number: Option<u32> = id.parse().ok();
    number.is_some_and(|number| number.to_string() == id && (least..=most).contains(&number))
}
