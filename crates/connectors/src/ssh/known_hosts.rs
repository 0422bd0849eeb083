//! The keys of a host in known_hosts files (sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT").

use atoll_model::network::{HostPart, SSH_KEY_BYTES_MAX};
use aws_lc_rs::hmac;

use crate::ssh::decoded;

/// The most that is read of such a file, bytes.
pub const KNOWN_HOSTS_BYTES_MAX: usize = 1 << 20;

/// Returns the keys of a host at a port: the pinned ones, or else those that any of these files
/// accepts for it, without those that one of the files revokes. Certificate authorities are not
/// followed.
#[must_use]
pub fn host_keys(
    pinned: Option<Vec<Vec<u8>>>,
    texts: &[String],
    host: &HostPart,
    port: u16,
) -> Vec<Vec<u8>> {
    let name = name(host, port);
    let lines: Vec<Line<'_>> = texts.iter().flat_map(|text| lines(text)).collect();
    let is_its = |line: &&Line<'_>| line.marker.is_none() && matches(line.patterns, &name);
    let accepted = || {
        lines
            .iter()
            .filter(is_its)
            .map(|line| line.key.clone())
            .collect()
    };
    let keys: Vec<Vec<u8>> = pinned.unwrap_or_else(accepted);
    // Whatever it is revoked for, and in whichever of them: nobody knows who has it by now.
    let is_revoked =
        |line: &Line<'_>, key: &[u8]| line.marker == Some("revoked") && line.key == key;
    let mut once: Vec<Vec<u8>> = Vec::new();
    for key in keys {
        let is_revoked = lines.iter().any(|line| is_revoked(line, &key));
        if !is_revoked && !once.contains(&key) {
            once.push(key);
        }
    }
    once
}

/// One line of such a file.
struct Line<'a> {
    marker: Option<&'a str>,
    patterns: &'a str,
    key: Vec<u8>,
}

fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let first = words.next().filter(|word| !word.starts_with('#'))?;
        let (marker, patterns) = match first.strip_prefix('@') {
            Some(marker) => (Some(marker), words.next()?),
            None => (None, first),
        };
        let (kind, key) = (words.next()?, words.next()?);
        let key = decoded(key).filter(|key| is_of_kind(key, kind))?;
        Some(Line {
            marker,
            patterns,
            key,
        })
    })
}

/// Returns the name of a host there: with its port unless that is 22.
pub(crate) fn name(host: &HostPart, port: u16) -> String {
    match (host, port) {
        (HostPart::Name(name), 22) => name.to_string(),
        (HostPart::Address(address), 22) => address.to_string(),
        (HostPart::Name(name), port) => format!("[{name}]:{port}"),
        (HostPart::Address(address), port) => format!("[{address}]:{port}"),
    }
}

fn is_of_kind(key: &[u8], kind: &str) -> bool {
    let mut reader = crate::ssh::wire::Reader::new(key);
    key.len() <= SSH_KEY_BYTES_MAX && reader.string() == Some(kind.as_bytes())
}

/// Returns whether a list of patterns, or a name's hash, matches this name exactly. A key accepted
/// by a pattern with a wildcard was accepted for many hosts: it counts for none.
fn matches(patterns: &str, name: &str) -> bool {
    if let Some(digest) = patterns.strip_prefix("|1|") {
        return is_digest_of(digest, name).unwrap_or(false);
    }
    let mut all = patterns.split(',');
    all.any(|pattern| pattern.eq_ignore_ascii_case(name))
        && !patterns
            .split(',')
            .filter_map(|pattern| pattern.strip_prefix('!'))
            .any(|pattern| pattern.eq_ignore_ascii_case(name) || pattern.contains(['*', '?']))
}

/// Returns whether `SALT|DIGEST` is the HMAC-SHA1 of the name under that salt, as ssh writes it
/// with `HashKnownHosts`. The hash hides the name from readers, and protects nothing.
fn is_digest_of(digest: &str, name: &str) -> Option<bool> {
    let (salt, digest) = digest.split_once('|')?;
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &decoded(salt)?);
    Some(hmac::sign(&key, name.as_bytes()).as_ref() == decoded(digest)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";
    const OTHER: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIAIEKRI4GZBNyEDjKuY8NX5NxIxFPYLDLTEpWUjlvuHG";

    fn found(text: &str, host: &str, port: u16) -> Vec<String> {
        let keys = host_keys(None, &[text.to_owned()], &host.parse().unwrap(), port);
        keys.iter().map(|key| crate::ssh::encoded(key)).collect()
    }

    #[test]
    fn known_hosts_match_exact_host_and_port() {
        let line = |patterns: &str, key: &str| format!("{patterns} ssh-ed25519 {key} comment\n");
        // As `ssh-keygen -H` writes example.com.
        let salt = crate::ssh::encoded(b"twenty bytes of salt");
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, b"twenty bytes of salt");
        let digest = crate::ssh::encoded(hmac::sign(&key, b"example.com").as_ref());
        let hashed = format!("|1|{salt}|{digest}");
        for (text, host, port, count) in [
            (line("example.com", ONE), "example.com", 22, 1),
            (line("EXAMPLE.com", ONE), "example.com", 22, 1),
            (line("a,example.com,b", ONE), "example.com", 22, 1),
            (line("example.com", ONE), "other.example", 22, 0),
            (line("example.com", ONE), "example.com", 2222, 0),
            (line("[example.com]:2222", ONE), "example.com", 2222, 1),
            (line("*.com", ONE), "example.com", 22, 0),
            (line("*", ONE), "example.com", 22, 0),
            (line("example.com,!example.com", ONE), "example.com", 22, 0),
            (line(&hashed, ONE), "example.com", 22, 1),
            (line(&hashed, ONE), "other.example", 22, 0),
            (line("192.0.2.7", ONE), "192.0.2.7", 22, 1),
            (
                line("@cert-authority example.com", ONE),
                "example.com",
                22,
                0,
            ),
            (
                line("example.com", ONE) + &line("@revoked *", ONE),
                "example.com",
                22,
                0,
            ),
            (
                line("example.com", ONE) + &line("example.com", OTHER),
                "example.com",
                22,
                2,
            ),
            (
                line("example.com", ONE) + &line("example.com", ONE),
                "example.com",
                22,
                1,
            ),
            (line("#example.com", ONE), "example.com", 22, 0),
            (format!("example.com ssh-rsa {ONE}\n"), "example.com", 22, 0),
            (
                "example.com ssh-ed25519\nexample.com ssh-ed25519 ???\n".to_owned(),
                "example.com",
                22,
                0,
            ),
        ] {
            assert_eq!(found(&text, host, port).len(), count, "{text}");
        }
    }

    /// A key revoked in one file is revoked for every file and pin that names it.
    #[test]
    fn known_hosts_revocation_holds_across_files() {
        let host = "example.com".parse().unwrap();
        let own = format!("example.com ssh-ed25519 {ONE}\nexample.com ssh-ed25519 {OTHER}\n");
        let revoked = format!("@revoked * ssh-ed25519 {ONE}\n");
        let (one, other) = (decoded(ONE).unwrap(), decoded(OTHER).unwrap());
        let pinned = vec![one.clone(), other.clone()];
        for texts in [[own.clone(), revoked.clone()], [revoked, own.clone()]] {
            for pinned in [None, Some(pinned.clone())] {
                let keys = host_keys(pinned, &texts, &host, 22);
                assert_eq!(keys, std::slice::from_ref(&other), "{texts:?}");
            }
        }
        let keys = |pinned| host_keys(pinned, std::slice::from_ref(&own), &host, 22);
        assert_eq!(keys(None), pinned, "the control");
        assert_eq!(keys(Some(vec![one.clone()])), [one], "another control");
    }
}
