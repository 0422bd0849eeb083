//! Reads a signing key from a command's output: the format of AWS's `credential_process` ("Process
//! credential provider" of the reference guide of AWS's SDKs and tools).

use std::time::SystemTime;

use atoll_model::network::Part;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::time_of;
use crate::credentials::values::FetchedValues;

/// The advice after the reason why a command gives no key.
pub(in crate::credentials) const LOG_IN: &str = ": run it outside, and log in where it takes its \
    keys from (as by aws sso login)";
/// The advice on the expected format.
const FORM: &str = "a key that signs comes as JSON with Version 1, AccessKeyId and \
    SecretAccessKey, as aws configure export-credentials --format process prints it";

/// The supported version of the format.
const VERSION: u64 = 1;
/// The length of a key's id, bytes ("AccessKey" in the reference of AWS's IAM).
const ID_BYTES: std::ops::RangeInclusive<usize> = 16..=128;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PrintedKey {
    version: Option<u64>,
    access_key_id: Option<String>,
    secret_access_key: Option<String>,
    session_token: Option<String>,
    expiration: Option<String>,
}

/// Reads a command's output.
///
/// # Errors
/// The reason why there is no valid key in it, without any of its text.
pub(in crate::credentials) fn read(
    output: &[u8],
    now: SystemTime,
) -> Result<FetchedValues, String> {
    let text = output.trim_ascii();
    if text.is_empty() {
        return Err(format!("it prints nothing: {FORM}"));
    }
    // What the library says of a mistake can have a part of a value in it.
    let printed: PrintedKey = serde_json::from_slice(text)
        .map_err(|_| format!("what it prints is no key that can be read: {FORM}"))?;
    let value = |text: Option<String>| {
        let value = Zeroizing::new(text.unwrap_or_default().into_bytes());
        (!value.is_empty()).then_some(value)
    };
    let (id, secret) = (
        value(printed.access_key_id),
        value(printed.secret_access_key),
    );
    let token = value(printed.session_token);
    if printed.version != Some(VERSION) {
        return Err(format!("its Version is not {VERSION}: {FORM}"));
    }
    let id = id.ok_or_else(|| format!("it prints no AccessKeyId: {FORM}"))?;
    let secret = secret.ok_or_else(|| format!("it prints no SecretAccessKey: {FORM}"))?;
    let is_of_id = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    if !ID_BYTES.contains(&id.len()) || !id.iter().all(is_of_id) {
        return Err(format!(
            "its AccessKeyId is no id of a key, which has {} to {} letters and digits: {FORM}",
            ID_BYTES.start(),
            ID_BYTES.end()
        ));
    }
    let ends = match printed.expiration {
        Some(text) => Some(time_of(&text).ok_or_else(|| {
            "its Expiration is no time as RFC 3339 has it, as 2026-05-04T10:11:12Z".to_owned()
        })?),
        None => None,
    };
    if ends.is_some_and(|ends| ends <= now) {
        return Err(format!("the key that it prints has expired{LOG_IN}"));
    }
    let mut values = vec![(Part::KeyId, id), (Part::Secret, secret)];
    values.extend(token.map(|token| (Part::Token, token)));
    Ok(FetchedValues { values, ends })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    const NOW_S: u64 = 1_700_000_000;

    type KeyParts = (Vec<(Part, String)>, Option<u64>);

    fn of(text: &str) -> Result<KeyParts, String> {
        let got = read(text.as_bytes(), UNIX_EPOCH + Duration::from_secs(NOW_S))?;
        let values = got.values.iter();
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
        let values = values.map(|(part, value)| (*part, text(value)));
        let since = |ends: SystemTime| ends.duration_since(UNIX_EPOCH).unwrap().as_secs();
        Ok((values.collect(), got.ends.map(since)))
    }

    fn printed(more: &str) -> String {
        format!(
            "{{\"Version\":1,\"AccessKeyId\":\"ASIAONEOFTHEM0000001\",\"SecretAccessKey\":\"two-of-them\"{more}}}\n"
        )
    }

    #[test]
    fn printed_key_is_read_with_and_without_token() {
        let pair = |part, text: &str| (part, text.to_owned());
        let id = pair(Part::KeyId, "ASIAONEOFTHEM0000001");
        let secret = pair(Part::Secret, "two-of-them");
        let token = pair(Part::Token, "three-of-them");
        let two = vec![id.clone(), secret.clone()];
        let three = vec![id, secret, token];
        for (more, values, ends) in [
            ("", &two, None),
            (",\"SessionToken\":null,\"Expiration\":null", &two, None),
            // As tools write it that have none.
            (",\"SessionToken\":\"\"", &two, None),
            (",\"SessionToken\":\"three-of-them\"", &three, None),
            (
                ",\"SessionToken\":\"three-of-them\",\"Expiration\":\"2023-11-14T22:13:21Z\"",
                &three,
                Some(NOW_S + 1),
            ),
            (
                ",\"Expiration\":\"2023-11-14T23:14:20.5+01:00\",\"AccountId\":\"123456789012\"",
                &two,
                Some(NOW_S + 60),
            ),
        ] {
            assert_eq!(of(&printed(more)), Ok((values.clone(), ends)), "{more}");
        }
        assert!(of(&format!(" \r\n{}", printed(""))).is_ok());
    }

    #[test]
    fn printed_key_invalid_is_refused_unrepeated() {
        let with = |from: &str, to: &str| {
            let text = printed("");
            assert!(text.contains(from), "{from}");
            text.replace(from, to)
        };
        let long = "A".repeat(129);
        for (text, why) in [
            (String::new(), "prints nothing"),
            (" \n".to_owned(), "prints nothing"),
            ("one-of-them".to_owned(), "no key that can be read"),
            ("[\"one-of-them\"]".to_owned(), "no key that can be read"),
            ("{".to_owned(), "no key that can be read"),
            (format!("{}{}", printed(""), printed("")), "no key that can"),
            ("{}".to_owned(), "Version is not 1"),
            (with("\"Version\":1,", ""), "Version is not 1"),
            (with("\"Version\":1", "\"Version\":2"), "Version is not 1"),
            (
                with("\"Version\":1", "\"Version\":\"1\""),
                "no key that can",
            ),
            (with("\"Version\":1", "\"Version\":-1"), "no key that can"),
            (with("AccessKeyId", "accessKeyId"), "no AccessKeyId"),
            (with("\"ASIAONEOFTHEM0000001\"", "\"\""), "no AccessKeyId"),
            (with("\"ASIAONEOFTHEM0000001\"", "null"), "no AccessKeyId"),
            (with("\"ASIAONEOFTHEM0000001\"", "7"), "no key that can"),
            (
                with("ASIAONEOFTHEM0000001", "one-of-them-which-is"),
                "no id of a key",
            ),
            (with("ASIAONEOFTHEM0000001", "ASIAONE"), "no id of a key"),
            (with("ASIAONEOFTHEM0000001", &long), "no id of a key"),
            (with("SecretAccessKey", "Secret"), "no SecretAccessKey"),
            (with("\"two-of-them\"", "\"\""), "no SecretAccessKey"),
            (
                printed(",\"AccessKeyId\":\"ASIAONEOFTHEM0000002\""),
                "no key that can",
            ),
            (printed(",\"SessionToken\":3"), "no key that can"),
            (printed(",\"Expiration\":\"soon-of-them\""), "is no time"),
            (
                printed(",\"Expiration\":\"2023-11-14T22:13:20\""),
                "is no time",
            ),
            (printed(",\"Expiration\":\"\""), "is no time"),
            (printed(",\"Expiration\":1700000001"), "no key that can"),
            (
                printed(",\"Expiration\":\"2023-11-14T22:13:20Z\""),
                "has expired",
            ),
            (
                printed(",\"Expiration\":\"1969-01-01T00:00:00Z\""),
                "is no time",
            ),
        ] {
            let said = of(&text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
            assert!(
                !said.contains("-of-them") && !said.contains("ASIA"),
                "{text}: {said}"
            );
        }
    }
}
