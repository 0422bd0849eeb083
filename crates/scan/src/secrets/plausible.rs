//! Tests of values that no expression can do: whether one is a password or a key, or stands for one.

use memchr::memmem;
use serde::Deserialize;

use super::entropy;

/// A test of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Check {
    /// A password, in quotes or not.
    Password,
    /// A key: letters and digits without sense.
    Key,
    /// A long key, as beside the name of its issuer alone.
    Strict,
    /// A name and a password, in base64.
    Basic,
    /// Any text in base64.
    Stored,
    /// A value that is assigned to a name.
    Assigned,
}

/// A value and how it is written.
#[derive(Clone, Copy)]
pub(super) struct Value<'a> {
    pub(super) text: &'a str,
    pub(super) is_quoted: bool,
}

/// The name that a value is assigned to.
pub(super) struct Name<'a> {
    /// The part before [`word`](Self::word), in lower case, without signs at its end.
    pub(super) before: &'a str,
    /// The word that makes it one of a secret, in lower case.
    pub(super) word: &'a str,
    /// Set where the word begins after a sign, or in upper case after lower case.
    pub(super) is_word: bool,
    /// Set where it is a function's, which is called with the value.
    pub(super) is_called: bool,
}

/// Parts of texts that stand for a secret, in lower case.
const PLACEHOLDERS: [&str; 51] = [
    "example",
    "changeme",
    "change-me",
    "change_me",
    "changeit",
    "placeholder",
    "your_",
    "your-",
    "yourpass",
    "yourkey",
    "yourtoken",
    "yoursecret",
    "yourapi",
    "my_secret",
    "my-secret",
    "mysecret",
    "xxxx",
    "****",
    "....",
    "${",
    "{{",
    "}}",
    "$(",
    "%(",
    "<%",
    "redacted",
    "masked",
    "dummy",
    "insert",
    "replace",
    "todo",
    "fixme",
    "process.env",
    "os.environ",
    "getenv",
    "env.",
    "undefined",
    "not-real",
    "notreal",
    "fake",
    "goes_here",
    "goes-here",
    "_here",
    "-here",
    "12345678",
    "test-",
    "test_",
    "-test",
    "_test",
    "testing",
    "sample",
];
/// Passwords that are none but the word for it, or a well-known default.
const WORDS: [&str; 38] = [
    "password",
    "passwd",
    "passphrase",
    "pass",
    "passw0rd",
    "pwd",
    "secret",
    "secrets",
    "token",
    "key",
    "apikey",
    "user",
    "username",
    "test",
    "testing",
    "tester",
    "foo",
    "bar",
    "foobar",
    "baz",
    "hello",
    "string",
    "null",
    "none",
    "nil",
    "true",
    "false",
    "value",
    "default",
    "sample",
    "demo",
    "mypassword",
    "mypass",
    "testpass",
    "testpassword",
    "dbpassword",
    "abc",
    "userpass",
];
/// Owners of a key: what stands before the word in its name, at its end.
const OWNERS: [&str; 54] = [
    "api",
    "app",
    "application",
    "access",
    "account",
    "admin",
    "auth",
    "authentication",
    "client",
    "consumer",
    "customer",
    "crypt",
    "crypto",
    "cipher",
    "decrypt",
    "decryption",
    "encrypt",
    "encryption",
    "hmac",
    "jwt",
    "license",
    "licence",
    "master",
    "private",
    "priv",
    "secret",
    "security",
    "service",
    "shared",
    "sign",
    "signing",
    "signature",
    "storage",
    "subscription",
    "webhook",
    "deploy",
    "deployment",
    "server",
    "ssh",
    "function",
    "host",
    "write",
    "root",
    "sas",
    "aes",
    "rsa",
    "gpg",
    "pgp",
    "cookie",
    "integration",
    "ingest",
    "bot",
    "db",
    "database",
];
/// Ends of names before `token` and `key` that make them something else.
const OTHERS: [&str; 36] = [
    "csrf",
    "xsrf",
    "next",
    "page",
    "pagination",
    "continuation",
    "cursor",
    "sync",
    "pad",
    "eos",
    "bos",
    "unk",
    "mask",
    "sep",
    "cls",
    "start",
    "stop",
    "end",
    "cancellation",
    "cancel",
    "lexer",
    "special",
    "public",
    "pub",
    "partition",
    "primary",
    "foreign",
    "cache",
    "sort",
    "idempotency",
    "dedup",
    "routing",
    "anti_forgery",
    "verification",
    "translation",
    "object",
];

impl Check {
    /// Returns whether a value passes.
    pub(super) fn passes(self, value: Value<'_>) -> bool {
        match self {
            Self::Password => is_password(value),
            Self::Key => is_key(value.text, 16),
            Self::Strict => {
                is_key(value.text, 20)
                    && entropy(value.text.as_bytes()) >= 3.5
                    && !is_number(value.text)
            }
            Self::Basic => is_basic(value.text),
            Self::Stored => decoded(value.text).is_some_and(|text| !is_placeholder(&text)),
            Self::Assigned => false,
        }
    }
}

/// Returns whether a value that is assigned to a name is a secret.
pub(super) fn is_assigned(name: &Name<'_>, value: Value<'_>) -> bool {
    let ends = |all: &[&str]| all.iter().any(|end| name.before.ends_with(end));
    match name.word {
        "pass" | "auth" if name.is_called => false,
        "pass" | "auth" if !name.is_word && !name.before.ends_with("require") => false,
        "key" => {
            let is_owned = name.is_word || OWNERS.contains(&name.before);
            is_owned && ends(&OWNERS) && !ends(&OTHERS) && is_key(value.text, 16)
        }
        "auth" => is_key(value.text, 16),
        "token" => !ends(&OTHERS) && is_key(value.text, 16),
        "secret" => is_key(value.text, 12) || name.before.ends_with("client") && is_password(value),
        _ => is_password(value),
    }
}

/// Returns whether a text may be a password that a person or a program has chosen.
fn is_password(value: Value<'_>) -> bool {
    let text = value.text;
    let has_digit = text.bytes().any(|byte| byte.is_ascii_digit());
    let has_sign = text.bytes().any(|byte| b"!#$%^&*@?+~=".contains(&byte));
    let core = text
        .trim_matches(|one: char| !one.is_alphabetic())
        .to_ascii_lowercase();
    let is_word = core.is_empty() && !(value.is_quoted && has_digit && text.len() >= 6)
        || WORDS.contains(&core.as_str());
    text.len() >= 6
        && (has_digit || has_sign || text.len() >= 10 && !is_worded(text))
        && !is_word
        && !is_placeholder(text)
        && !is_reference(value)
        && entropy(text.as_bytes()) >= 2.0
}

/// Returns whether a text is a key: letters and digits without sense, no shorter than this.
fn is_key(text: &str, length: usize) -> bool {
    let count = |is: fn(&u8) -> bool| text.bytes().filter(is).count();
    let (digits, lower, upper) = (
        count(u8::is_ascii_digit),
        count(u8::is_ascii_lowercase),
        count(u8::is_ascii_uppercase),
    );
    let bits = entropy(text.as_bytes());
    let is_mixed = digits >= 2 || lower > 4 && upper > 4 && text.len() >= 24 && bits > 4.0;
    let value = Value {
        text,
        is_quoted: false,
    };
    text.len() >= length
        && is_mixed
        && lower + upper >= 2
        && bits >= if text.len() < 20 { 2.6 } else { 3.0 }
        && !is_worded(text)
        && !is_placeholder(text)
        && !is_reference(value)
}

/// Returns whether a text stands for a value: by its words, or since it is all the same, or a row.
fn is_placeholder(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let mut seen = [false; 256];
    for byte in text.bytes() {
        if let Some(seen) = seen.get_mut(usize::from(byte)) {
            *seen = true;
        }
    }
    let distinct = seen.iter().filter(|seen| **seen).count();
    let rows = [
        "0123456789",
        "1234567890",
        "abcdefgh",
        "qwertyui",
        "deadbeef",
        "0000000",
        "aaaaaaa",
    ];
    distinct < 4
        || text.starts_with('<')
        || text.starts_with('[')
        || rows
            .iter()
            .chain(&PLACEHOLDERS)
            .any(|part| lower.contains(part))
}

/// Returns whether a text in the form of a key stands for one, as in documents.
pub(super) fn is_sample(text: &[u8]) -> bool {
    let lower = text.to_ascii_lowercase();
    let rows = [
        "example",
        "xxxxxxxx",
        "********",
        "........",
        "00000000000",
        "0123456789abcdef",
        "1234567890abcdef",
        "abcdefghijklm",
    ];
    rows.iter()
        .any(|row| memmem::find(&lower, row.as_bytes()).is_some())
}

/// Returns whether a text leads to a value elsewhere: a variable, a member, a file, an address.
fn is_reference(value: Value<'_>) -> bool {
    let text = value.text;
    // A pointer or reference in code, an alias in YAML.
    if !value.is_quoted && text.starts_with(['&', '*']) {
        return true;
    }
    let is_name = |part: &str| {
        let mut chars = part.chars();
        let first = chars
            .next()
            .is_some_and(|one| one.is_ascii_alphabetic() || one == '_');
        first && chars.all(|one| one.is_ascii_alphanumeric() || one == '_')
    };
    let variable = text
        .strip_prefix(['$', '%', '&', '@', ':'])
        .map(|rest| rest.trim_end_matches('%'));
    let is_variable =
        variable.is_some_and(|rest| is_name(rest) && !value.is_quoted || is_constant(rest));
    let has_parts = |sign: &str| text.contains(sign) && text.split(sign).all(is_name);
    let is_member = (has_parts(".") || has_parts("::") || has_parts("->")) && is_worded(text);
    // In code, a name without quotes; such as `db_password2`, not as `harbor2017`.
    let is_snake = !value.is_quoted && text.contains('_') && is_name(text) && is_worded(text);
    let is_path = ["/", "./", "../", "~/"]
        .iter()
        .any(|start| text.starts_with(start))
        && is_worded(text)
        || text.get(1..3) == Some(":\\");
    let is_address = text.contains("://") || text.starts_with("arn:") || text.starts_with("data:");
    is_variable
        || is_type(text)
        || is_constant(text)
        || is_member
        || is_snake
        || is_path
        || is_address
}

/// Returns whether a text is a constant's name, as `SERVICE_API_KEY_2`.
fn is_constant(text: &str) -> bool {
    let mut parts = text.split('_');
    let is_part = |part: &str| {
        part.bytes().all(|byte| byte.is_ascii_uppercase())
            || part.len() <= 2 && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    text.contains('_') && parts.all(is_part)
}

/// Returns whether most letters of a text are in words, as of a path, a sentence, or a name in code.
fn is_worded(text: &str) -> bool {
    let (mut of_words, mut all) = (0, 0);
    for part in text.split(|one: char| !one.is_ascii_alphanumeric()) {
        let part = part.trim_end_matches(|one: char| one.is_ascii_digit());
        all += part.bytes().filter(u8::is_ascii_alphabetic).count();
        // No word has a digit within.
        if part.bytes().any(|byte| byte.is_ascii_digit()) {
            continue;
        }
        // Upper case within a part begins a word, but where all of it is.
        let is_shouted = part.bytes().all(|byte| byte.is_ascii_uppercase());
        let mut length = 0;
        let mut has_vowel = false;
        for byte in part.bytes().chain([b'A']) {
            let is_end = byte.is_ascii_uppercase() && !is_shouted;
            if is_end {
                of_words += if length >= 3 && has_vowel { length } else { 0 };
                (length, has_vowel) = (0, false);
            }
            length += 1;
            has_vowel |= b"aeiouyAEIOUY".contains(&byte);
        }
        if is_shouted && length > 3 && has_vowel {
            of_words += length - 1;
        }
    }
    all > 0 && of_words * 10 >= all * 7
}

/// Returns whether a text is the name of a type or a function with a number in it, as
/// `Ed25519SigningKey`.
fn is_type(text: &str) -> bool {
    let is_name = text
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let mut letters = 0;
    let mut of_words = 0;
    for part in text.split(|one: char| !one.is_ascii_alphabetic()) {
        letters += part.len();
        let mut rest = part;
        while !rest.is_empty() {
            let tail = rest.get(1..).unwrap_or_default();
            let end = 1 + tail
                .find(|one: char| one.is_ascii_uppercase())
                .unwrap_or(tail.len());
            let (word, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
            let has_vowel = word.bytes().any(|byte| b"aeiouyAEIOUY".contains(&byte));
            of_words += if word.len() >= 3 && has_vowel {
                word.len()
            } else {
                0
            };
            rest = after;
        }
    }
    // A password has its number at the end, as `Harbor2017`.
    let capitals = text.bytes().filter(u8::is_ascii_uppercase).count();
    let is_ended = text.ends_with(|one: char| one.is_ascii_digit());
    is_name && !is_ended && capitals >= 2 && text.len() >= 8 && of_words * 10 >= letters * 7
}

fn is_number(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_digit() || b".-_".contains(&byte))
}

/// Returns whether a text is a name and a password, in base64 (RFC 7617).
fn is_basic(text: &str) -> bool {
    let Some(plain) = decoded(text) else {
        return false;
    };
    let Some((name, password)) = plain.split_once(':') else {
        return false;
    };
    let password = Value {
        text: password,
        is_quoted: true,
    };
    !name.contains(char::is_whitespace)
        && (is_password(password) || name.is_empty() && is_key(password.text, 16))
}

/// Returns the text that is in base64; `None` where it is no text.
fn decoded(text: &str) -> Option<String> {
    let bytes = crate::base64::decoded(text.as_bytes())?;
    let plain = String::from_utf8(bytes).ok()?;
    let is_text = plain.len() >= 6
        && plain
            .chars()
            .all(|one| !one.is_control() || one.is_whitespace());
    is_text.then_some(plain)
}
