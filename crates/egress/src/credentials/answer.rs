//! Reads a credential from a command's output: a plain value, Git's format, or Kubernetes'.
//!
//! Each is recognized by its beginning, and everything else is refused: mistaking some text for a
//! value would send it to a host. A signing key has a format of its own.

pub(super) mod key;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use zeroize::Zeroizing;

use super::values::FetchedValue;

/// The lines that Git's helpers print (git-credential(1)).
const PASSWORD: &[u8] = b"password=";
const EXPIRY: &[u8] = b"password_expiry_utc=";
/// The API group of `ExecCredential`, in any version.
const KUBERNETES: &str = "client.authentication.k8s.io/";

/// Reads a command's output.
///
/// # Errors
/// The reason why there is no value in it, without any of its text.
pub(super) fn read(output: &[u8]) -> Result<FetchedValue, String> {
    let text = output.trim_ascii();
    if text.is_empty() {
        return Err("it prints nothing".to_owned());
    }
    if text.starts_with(b"{") {
        return of_json(text);
    }
    let lines = || text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    if lines().any(|line| line.starts_with(PASSWORD)) {
        return of_git(lines());
    }
    if lines().count() > 1 {
        return Err("it prints several lines, of which none is password=".to_owned());
    }
    Ok(FetchedValue::new(text, None))
}

fn of_git<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Result<FetchedValue, String> {
    let (mut password, mut ends) = (None, None);
    for line in lines {
        if let Some(value) = line.strip_prefix(PASSWORD) {
            if password.replace(value).is_some() {
                return Err("it prints more than one password=".to_owned());
            }
        } else if let Some(value) = line.strip_prefix(EXPIRY) {
            let seconds = std::str::from_utf8(value)
                .ok()
                .and_then(|text| text.parse().ok());
            let at =
                seconds.and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
            ends = Some(at.ok_or("its password_expiry_utc= is no time")?);
        }
    }
    let password = password.filter(|value| !value.is_empty());
    let password = password.ok_or("its password= is empty")?;
    Ok(FetchedValue::new(password, ends))
}

/// The kind of a JSON object, whatever else is in it.
#[derive(Deserialize)]
struct ObjectKind {
    kind: Option<String>,
    #[serde(rename = "apiVersion")]
    version: Option<String>,
    #[serde(rename = "AccessKeyId")]
    access_key: Option<serde::de::IgnoredAny>,
}

/// `ExecCredential`, as plugins of Kubernetes' clients print it.
#[derive(Deserialize)]
struct ExecCredential {
    status: Option<ExecStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecStatus {
    token: Option<String>,
    expiration_timestamp: Option<String>,
}

fn of_json(text: &[u8]) -> Result<FetchedValue, String> {
    // What the library says of a mistake can have a part of the value in it.
    let unread = |_| "what it prints is no JSON that can be read".to_owned();
    let kind: ObjectKind = serde_json::from_slice(text).map_err(unread)?;
    let is_kubernetes = kind.version.is_some_and(|one| one.starts_with(KUBERNETES));
    if kind.kind.as_deref() == Some("ExecCredential") && is_kubernetes {
        let read: ExecCredential = serde_json::from_slice(text).map_err(unread)?;
        return of_kubernetes(read.status);
    }
    Err(match kind.access_key {
        Some(_) => "it prints keys of AWS, which sign requests and are put into none: write place = { sigv4 = … }".to_owned(),
        None => "it prints JSON of an unknown kind: an ExecCredential, the lines of a Git credential helper, \
                 or one plain line are read"
            .to_owned(),
    })
}

fn of_kubernetes(status: Option<ExecStatus>) -> Result<FetchedValue, String> {
    let status = status.ok_or("its ExecCredential has no status")?;
    let token = Zeroizing::new(status.token.unwrap_or_default());
    if token.is_empty() {
        return Err("its ExecCredential has no token: certificates cannot be put in".to_owned());
    }
    let ends = match status.expiration_timestamp {
        Some(text) => Some(time_of(&text).ok_or("its expirationTimestamp is no time")?),
        None => None,
    };
    Ok(FetchedValue::new(token.as_bytes(), ends))
}

/// Parses an RFC 3339 time.
pub(super) fn time_of(text: &str) -> Option<SystemTime> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    let seconds = u64::try_from(time.unix_timestamp()).ok()?;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<(String, Option<u64>), String> {
        let fresh = read(text.as_bytes())?;
        let ends = fresh
            .ends
            .map(|at| at.duration_since(UNIX_EPOCH).unwrap().as_secs());
        Ok((String::from_utf8(fresh.value.to_vec()).unwrap(), ends))
    }

    #[test]
    fn command_output_form_is_recognized() {
        let exec = |status: &str| {
            format!(
                "{{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1beta1\",\"spec\":{{}},\"status\":{status}}}\n"
            )
        };
        for (text, value, ends) in [
            ("abc==\n".to_owned(), "abc==", None),
            ("  abc \r\n\n".to_owned(), "abc", None),
            (
                "protocol=https\nhost=a\nusername=u\npassword=a=b\n".to_owned(),
                "a=b",
                None,
            ),
            (
                "password=x\npassword_expiry_utc=1700000000\n".to_owned(),
                "x",
                Some(1_700_000_000),
            ),
            (exec("{\"token\":\"t\"}"), "t", None),
            (
                exec("{\"token\":\"t\",\"expirationTimestamp\":\"2023-11-14T22:13:20Z\"}"),
                "t",
                Some(1_700_000_000),
            ),
            (
                exec(
                    "{\"token\":\"t\",\"expirationTimestamp\":\"2023-11-14T23:13:20.5+01:00\",\"more\":1}",
                ),
                "t",
                Some(1_700_000_000),
            ),
        ] {
            assert_eq!(of(&text), Ok((value.to_owned(), ends)), "{text}");
        }
    }

    #[test]
    fn command_output_invalid_is_refused_unrepeated() {
        for (text, why) in [
            ("", "prints nothing"),
            (" \n\n", "prints nothing"),
            ("one-of-them\ntwo-of-them", "several lines"),
            ("password=\n", "is empty"),
            (
                "password=one-of-them\npassword=two-of-them",
                "more than one",
            ),
            ("password=one-of-them\npassword_expiry_utc=soon", "no time"),
            (
                "password=one-of-them\npassword_expiry_utc=99999999999999999999999",
                "no time",
            ),
            ("{", "no JSON"),
            ("{\"kind\":3}", "no JSON"),
            ("{\"token\":\"one-of-them\"}", "unknown kind"),
            (
                "{\"kind\":\"ExecCredential\",\"status\":{\"token\":\"one-of-them\"}}",
                "unknown kind",
            ),
            (
                "{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1\"}",
                "no status",
            ),
            (
                "{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1\",\"status\":{\"clientCertificateData\":\"one-of-them\"}}",
                "no token",
            ),
            (
                "{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1\",\"status\":{\"token\":\"one-of-them\",\"expirationTimestamp\":\"soon\"}}",
                "no time",
            ),
            (
                "{\"Version\":1,\"AccessKeyId\":\"one-of-them\",\"SecretAccessKey\":\"two\"}",
                "keys of AWS",
            ),
        ] {
            let said = of(text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
            assert!(!said.contains("-of-them"), "{text}: {said}");
        }
    }
}
