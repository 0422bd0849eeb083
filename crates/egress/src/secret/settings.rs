//! The stand-in for an agent's settings file with keys in it.
//!
//! It is the file with its secrets replaced. Secrets are the values that a profile names, those
//! beneath names such as `env` and `headers`, those of names such as `apiKey`, and whatever in any
//! text has the shape of a key ([`words`]); numbers in such places become 0. A secret found once is
//! replaced wherever else it occurs. A text that refers to a variable or a file in place of a
//! secret stays. Comments are left out: nothing says what in them is a secret.

mod tree;
mod words;

use atoll_model::PlaceholderState;

use atoll_model::network::FieldPath;
use atoll_sys::memory;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::BYTES_MIN;
use super::login::{StandInLookup, stand_in_text};
use tree::{Leaf, Tree, ValuePath};
pub use tree::{SETTINGS_BYTES_MAX, SettingsForm};

/// The most values that are replaced: each is searched for in all others.
const REPLACED_MAX: usize = 4096;
/// The longest stand-in for settings, bytes.
const TEXT_BYTES_MAX: usize = 2 * 1024 * 1024;
/// The shortest secret that is searched for in other texts, bytes: a shorter one could occur
/// anywhere.
const SOUGHT_BYTES_MIN: usize = 8;

/// The stand-in for a settings file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its text; the file's own if that has no secret.
    pub text: Vec<u8>,
    /// Set if it differs from the file.
    pub has_secrets: bool,
}

impl Settings {
    /// Returns what a record of the run says of it.
    #[must_use]
    pub fn stood(&self) -> PlaceholderState {
        PlaceholderState {
            digest: Some(digest(&self.text)),
            has_secrets: self.has_secrets,
        }
    }
}

/// Returns the SHA-256 of a stand-in's text, in hexadecimal digits.
#[must_use]
pub fn digest(text: &[u8]) -> String {
    let bytes = Sha256::digest(text);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The reason why a settings file cannot have a stand-in. Its text contains nothing of the file.
#[derive(Debug, thiserror::Error)]
pub enum SettingsMaskError {
    /// The file cannot be parsed.
    #[error("it is no {0}")]
    Syntax(&'static str),
    /// The file is nested too deeply.
    #[error(
        "its objects and lists are more than {} within each other",
        tree::DEPTH_MAX
    )]
    Deep,
    /// The file is too long.
    #[error("it is longer than {} KiB", SETTINGS_BYTES_MAX / 1024)]
    Long,
    /// An object has two members of one name, which readers would interpret differently.
    #[error("an object of it has two members of one name")]
    Twice,
    /// The file has too many secrets.
    #[error("it has more than {REPLACED_MAX} secrets")]
    Many,
    /// The stand-in would be too long.
    #[error("what would stand for it is longer than {} KiB", TEXT_BYTES_MAX / 1024)]
    Large,
    /// A secret would enter the sandbox in the name of a member.
    #[error("a secret of it stands in the name of a member")]
    Kept,
    /// A value cannot have a placeholder.
    #[error("{0}")]
    Unfit(String),
}

/// The fields that a profile names.
#[derive(Clone, Copy, Debug, Default)]
pub struct FieldRules<'a> {
    /// Further values that do not enter the sandbox.
    pub secrets: &'a [FieldPath],
    /// Values that do, except for what has the shape of a key.
    pub keep: &'a [FieldPath],
}

/// Makes the stand-in for a settings file. `known` returns the stand-in for a field that is the
/// source of a credential. What this leaves on the stack is overwritten.
///
/// # Errors
/// [`SettingsMaskError`]: then nothing of the file may be shown.
pub fn mask(
    form: SettingsForm,
    file: &[u8],
    rules: FieldRules<'_>,
    known: StandInLookup<'_>,
) -> Result<Settings, SettingsMaskError> {
    let masked = masked(form, file, rules, known);
    memory::erase_stack();
    masked
}

fn masked(
    form: SettingsForm,
    file: &[u8],
    rules: FieldRules<'_>,
    known: StandInLookup<'_>,
) -> Result<Settings, SettingsMaskError> {
    let mut tree = Tree::read(form, file)?;
    let mut found = FoundSecrets::default();
    tree.visit_names(&mut |name| match words::keys_in(name).is_empty() {
        true => Ok(()),
        false => Err(SettingsMaskError::Kept),
    })?;
    tree.visit(&mut |spot, leaf| match leaf {
        Leaf::Text(text) => found.look(spot, text, rules, &mut *known),
        Leaf::Number(written, is_zero) => {
            *is_zero = is_secret_number(spot, written, rules);
            found.has_any |= *is_zero;
            Ok(())
        }
    })?;
    // All of the file is in the tree then.
    if !found.has_any && !tree.has_comment {
        let text = file.to_vec();
        return Ok(Settings {
            text,
            has_secrets: false,
        });
    }
    tree.visit(&mut |_, leaf| {
        if let Leaf::Text(text) = leaf {
            found.look_again(text);
        }
        Ok(())
    })?;
    let text = tree.text()?;
    if text.len() > TEXT_BYTES_MAX {
        return Err(SettingsMaskError::Large);
    }
    match found.is_in(&text) {
        true => Err(SettingsMaskError::Kept),
        false => Ok(Settings {
            text: text.as_bytes().to_vec(),
            has_secrets: true,
        }),
    }
}

/// Returns whether a secret is searched for elsewhere, too: a mere word could occur there by
/// itself.
fn is_sought(text: &str) -> bool {
    let has_digit = text.bytes().any(|byte| byte.is_ascii_digit());
    text.len() >= BYTES_MIN || (text.len() >= SOUGHT_BYTES_MIN && has_digit)
}

/// The secrets that were found, with their replacements.
#[derive(Default)]
struct FoundSecrets {
    /// Set if there is any.
    has_any: bool,
    /// Each secret with its replacement.
    replaced: Vec<(Zeroizing<String>, String)>,
}

impl FoundSecrets {
    /// Replaces a text that is a secret, or the secrets in it.
    fn look(
        &mut self,
        spot: &ValuePath,
        text: &mut String,
        rules: FieldRules<'_>,
        known: StandInLookup<'_>,
    ) -> Result<(), SettingsMaskError> {
        let is_reference = words::is_reference(text);
        let stands = match is_reference {
            true => None,
            false => known(&spot.names, text.as_bytes()).map_err(SettingsMaskError::Unfit)?,
        };
        let made = match stands {
            Some(stands) => {
                self.note(text, &stands);
                stands
            }
            None if !is_reference && is_secret(spot, text, rules) => {
                let from = words::scheme_bytes(text);
                let (scheme, value) = text.split_at_checked(from).unwrap_or(("", text));
                let stands = stand_in_text(value);
                self.note(value, &stands);
                format!("{scheme}{stands}")
            }
            None => self.without_keys(text),
        };
        if self.replaced.len() > REPLACED_MAX {
            return Err(SettingsMaskError::Many);
        }
        self.has_any |= made != *text;
        *text = made;
        Ok(())
    }

    /// Replaces the secrets that were found elsewhere.
    fn look_again(&self, text: &mut String) {
        for (real, stands) in &self.replaced {
            if is_sought(real) && text.contains(real.as_str()) {
                *text = text.replace(real.as_str(), stands);
            }
        }
    }

    /// Returns a text with everything of the shape of a key replaced.
    fn without_keys(&mut self, text: &str) -> String {
        let mut made = String::with_capacity(text.len());
        let mut at = 0;
        for key in words::keys_in(text) {
            let (before, real) = (text.get(at..key.start), text.get(key.clone()));
            let real = real.unwrap_or_default();
            let stands = stand_in_text(real);
            self.note(real, &stands);
            made.push_str(before.unwrap_or_default());
            made.push_str(&stands);
            at = key.end;
        }
        made.push_str(text.get(at..).unwrap_or_default());
        made
    }

    fn note(&mut self, real: &str, stands: &str) {
        let real = Zeroizing::new(real.to_owned());
        self.replaced.push((real, stands.to_owned()));
    }

    /// Returns whether a secret is still in a text.
    fn is_in(&self, text: &str) -> bool {
        let mut sought = self.replaced.iter().filter(|(real, _)| is_sought(real));
        sought.any(|(real, _)| {
            let quoted = serde_json::to_string(real.as_str()).map(Zeroizing::new);
            let escaped = quoted.as_deref().map(|quoted| quoted.trim_matches('"'));
            text.contains(real.as_str()) || escaped.is_ok_and(|escaped| text.contains(escaped))
        })
    }
}

/// Returns whether a text is secret by where it is.
fn is_secret(spot: &ValuePath, text: &str, rules: FieldRules<'_>) -> bool {
    if text.is_empty() {
        return false;
    }
    named(spot, rules).unwrap_or_else(|| {
        let before = spot.before.as_deref();
        is_beneath(spot, text)
            || before.is_some_and(|word| words::is_flag(word, text))
            || words::is_secret(own_name(spot), text)
    })
}

/// Returns whether a number is secret by where it is.
fn is_secret_number(spot: &ValuePath, number: &str, rules: FieldRules<'_>) -> bool {
    named(spot, rules).unwrap_or_else(|| {
        let before = spot.before.as_deref();
        is_beneath(spot, number)
            || before.is_some_and(|word| words::is_flag(word, ""))
            || words::is_secret(own_name(spot), "")
    })
}

/// Returns whether the profile names a value as secret; `None` if it names it neither way.
fn named(spot: &ValuePath, rules: FieldRules<'_>) -> Option<bool> {
    let is_of = |paths: &[FieldPath]| paths.iter().any(|path| path.leads_along(&spot.names));
    match (is_of(rules.keep), is_of(rules.secrets)) {
        (true, _) => Some(false),
        (false, true) => Some(true),
        (false, false) => None,
    }
}

fn own_name(spot: &ValuePath) -> &str {
    spot.names.last().map_or("", String::as_str)
}

/// Returns whether a value is within something that is handed to others, or within an object named
/// like a secret.
fn is_beneath(spot: &ValuePath, text: &str) -> bool {
    let above = spot.names.split_last().map_or(&[][..], |(_, above)| above);
    let mut above = above.iter().skip(spot.referring);
    let is_held = spot.names.iter().any(|name| words::is_holder(name));
    // What is short enough for a word tells nothing of names that only perhaps are of secrets.
    let is_of_secrets = above.any(|name| words::is_secret(name, "x"));
    (is_held || is_of_secrets) && !words::is_plain(text)
}

#[cfg(test)]
mod tests;
