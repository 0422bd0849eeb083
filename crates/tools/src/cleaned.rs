//! Results before a model reads them: inert, masked, and cut to size, with every change counted.

use std::borrow::Cow;

use atoll_engine::printable::printable_lines;
use atoll_model::mask_secrets_in;
use serde_json::{Value, json};

/// A text that a model may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleaned {
    /// The text.
    pub text: String,
    /// Set where secrets of known kinds were masked.
    pub is_masked: bool,
    /// Set where control, invisible or invalid characters were written as escapes.
    pub is_escaped: bool,
    /// The end that was left out.
    pub rest: String,
}

/// Cleans a text: secrets of known kinds are masked, control characters, invisible ones and those
/// that turn the direction of text are written as escapes, and it is cut to this many bytes.
#[must_use]
pub fn clean(text: &[u8], bytes_max: usize) -> Cleaned {
    let masked = mask_secrets_in(text);
    let is_masked = matches!(masked, Cow::Owned(_));
    let mut shown = printable_lines(&masked);
    let is_escaped = shown.as_bytes() != &*masked;
    let rest = shown.split_off(shown.floor_char_boundary(bytes_max));
    Cleaned {
        rest,
        text: shown,
        is_masked,
        is_escaped,
    }
}

impl Cleaned {
    /// Adds the changes of another text.
    pub fn add(&mut self, other: &Self) {
        self.is_masked |= other.is_masked;
        self.is_escaped |= other.is_escaped;
        self.rest.push_str(&other.rest);
    }

    /// Describes the changes, for the ledger.
    #[must_use]
    pub fn details(&self) -> Value {
        json!({
            "masked": self.is_masked,
            "escaped": self.is_escaped,
            "cut-bytes": self.rest.len(),
        })
    }

    /// Describes the changes for the model, a sentence each.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let masked = self
            .is_masked
            .then(|| "Secrets in this result were masked.".to_owned());
        let escaped = self.is_escaped.then(|| {
            "Control or invisible characters in this result were written as escapes.".to_owned()
        });
        let cut = (!self.rest.is_empty()).then(|| {
            format!(
                "The last {} bytes of this result were left out.",
                self.rest.len()
            )
        });
        [masked, escaped, cut].into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_made_inert_and_every_change_is_told() {
        let key = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
        for (text, expected, notes) in [
            (&b"plain\ttext\n"[..], "plain\ttext\n", 0),
            (b"\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m", 1),
            ("a\u{202e}b\u{200b}".as_bytes(), "a\\u{202e}b\\u{200b}", 1),
            (b"caf\xe9", "caf\\xe9", 1),
        ] {
            let cleaned = clean(text, 1_000);
            assert_eq!(cleaned.text, expected);
            assert_eq!(cleaned.notes().count(), notes, "{expected}");
        }
        let cleaned = clean(format!("token {key}").as_bytes(), 1_000);
        assert!(!cleaned.text.contains(key) && cleaned.is_masked);
        let cleaned = clean("äöü".as_bytes(), 3);
        assert_eq!((&*cleaned.text, &*cleaned.rest), ("ä", "öü"));
    }
}
