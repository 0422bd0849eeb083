//! What stands inside for a file of an agent's settings that has keys among them.
//!
//! It is the file with other texts in the places of its secrets. Those are what a profile names,
//! what is beneath names such as `env` and `headers`, the values of names such as `apiKey`, and
//! whatever in any text has the shape of a key ([`words`]); numbers in such places are 0. A secret
//! that was found is replaced wherever else it stands. A text that names a variable or a file in
//! place of a secret stays. Where a secret was replaced, comments are left out.
//!
//! What the program inside has made of it can be taken over: [`restore`] puts the real values back
//! where what stands for them is still at its place.

mod tree;
mod words;

use atoll_model::network::FieldPath;
use atoll_model::{Masked, Stood};
use atoll_sys::memory;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::login::{Known, other};
use tree::{Leaf, Spot, Tree};
pub use tree::{SETTINGS_BYTES_MAX, SettingsForm};

/// Shorter secrets are not looked for in other texts: they could stand anywhere, bytes.
const SOUGHT_BYTES_MIN: usize = 8;

/// What stands for a file, and where it differs from that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What stands for it: without a secret the file as it is.
    pub text: Vec<u8>,
    /// Where something else stands in it.
    pub masked: Vec<Masked>,
}

impl Settings {
    /// What a record of the run says of it.
    #[must_use]
    pub fn stood(&self) -> Stood {
        Stood {
            digest: Some(digest(&self.text)),
            masked: self.masked.clone(),
            is_unfit: false,
        }
    }
}

/// What tells a text that stood for settings from any other: its SHA-256, in hexadecimal digits.
#[must_use]
pub fn digest(text: &[u8]) -> String {
    let bytes = Sha256::digest(text);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Why nothing can stand for a file of settings, or nothing of it be taken over. Nothing of it is
/// in the words.
#[derive(Debug, thiserror::Error)]
pub enum SettingsUnfit {
    /// It cannot be read.
    #[error("it is no {0}")]
    Syntax(&'static str),
    /// It is nested too deeply.
    #[error(
        "its objects and lists are more than {} within each other",
        tree::DEPTH_MAX
    )]
    Deep,
    /// It is too much.
    #[error("it is longer than {} KiB", SETTINGS_BYTES_MAX / 1024)]
    Long,
    /// It would go in all the same.
    #[error("a secret of it stands in the name of a member, too")]
    Kept,
    /// Something that stands for a secret is not where it was.
    #[error("what stands for a secret of it was moved to another place")]
    Moved,
    /// The value outside is gone.
    #[error("a secret of it is not there outside any more")]
    Gone,
    /// There is no text to put in a value's place.
    #[error("{0}")]
    Unfit(String),
}

/// What stands inside for a file of settings. `known` says what stands for a field that is the
/// source of a credential, `secrets` names further values that do not go in, and `keep` those that
/// do, but for what has the shape of a key. Memory that held any of it is overwritten.
///
/// # Errors
/// [`SettingsUnfit`]: then nothing may be shown of it.
pub fn mask(
    form: SettingsForm,
    file: &[u8],
    (secrets, keep): (&[FieldPath], &[FieldPath]),
    known: Known<'_>,
) -> Result<Settings, SettingsUnfit> {
    memory::erasing(|| {
        let mut tree = Tree::read(form, file)?;
        let mut found = Found::default();
        tree.visit(&mut |spot, leaf| match leaf {
            Leaf::Text(text) => found.look(spot, text, (secrets, keep), known),
            Leaf::Number(is_zero) => {
                *is_zero = is_secret(spot, None, secrets, keep);
                if *is_zero {
                    let at = spot.pointer.clone();
                    found.masked.push(Masked { at, text: None });
                }
                Ok(())
            }
        })?;
        let raw = std::str::from_utf8(file).unwrap_or_default();
        if found.masked.is_empty() && words::keys_in(raw).is_empty() {
            let (text, masked) = (file.to_vec(), Vec::new());
            return Ok(Settings { text, masked });
        }
        tree.visit(&mut |spot, leaf| match leaf {
            Leaf::Text(text) => found.look_again(spot, text),
            Leaf::Number(_) => Ok(()),
        })?;
        let text = tree.text()?;
        match found.is_in(&text) {
            true => Err(SettingsUnfit::Kept),
            false => Ok(Settings {
                text: text.as_bytes().to_vec(),
                masked: found.masked,
            }),
        }
    })
}

/// What a program has made of what stood for a file, with the real values of the file `outside`
/// where what stands for them is where it was.
///
/// # Errors
/// [`SettingsUnfit`]: then nothing can be taken over.
pub fn restore(
    form: SettingsForm,
    now: &[u8],
    outside: &[u8],
    masked: &[Masked],
) -> Result<Zeroizing<String>, SettingsUnfit> {
    memory::erasing(|| {
        let mut real = Vec::new();
        let is_masked = |spot: &Spot| masked.iter().any(|one| one.at == spot.pointer);
        Tree::read(form, outside)?.visit(&mut |spot, leaf| {
            if let (Leaf::Text(text), true) = (leaf, is_masked(spot)) {
                real.push((spot.pointer.clone(), Zeroizing::new(text.clone())));
            }
            Ok(())
        })?;
        let mut tree = Tree::read(form, now)?;
        tree.visit(&mut |spot, leaf| match leaf {
            Leaf::Text(text) => put_back(spot, text, masked, &real),
            // What was there is not known, and 0 may be what is meant now.
            Leaf::Number(_) if is_masked(spot) => Err(SettingsUnfit::Moved),
            Leaf::Number(_) => Ok(()),
        })?;
        let text = tree.text()?;
        let stands = |one: &Masked| {
            let stands = one.text.as_deref().filter(|text| is_sought(text));
            stands.is_some_and(|stands| text.contains(stands))
        };
        match masked.iter().any(stands) {
            true => Err(SettingsUnfit::Moved),
            false => Ok(text),
        }
    })
}

fn put_back(
    spot: &Spot,
    text: &mut String,
    masked: &[Masked],
    real: &[(String, Zeroizing<String>)],
) -> Result<(), SettingsUnfit> {
    let its = |one: &&Masked| one.at == spot.pointer && one.text.as_ref() == Some(text);
    if masked.iter().any(|one| its(&one)) {
        let mut real = real.iter().filter(|(at, _)| *at == spot.pointer);
        let (_, value) = real.next().ok_or(SettingsUnfit::Gone)?;
        value.as_str().clone_into(text);
    }
    Ok(())
}

fn is_sought(text: &str) -> bool {
    text.len() >= SOUGHT_BYTES_MIN
}

/// Secrets that were found, and what stands for them.
#[derive(Default)]
struct Found {
    masked: Vec<Masked>,
    /// Each with what stands for it.
    replaced: Vec<(Zeroizing<String>, String)>,
}

impl Found {
    /// Puts something else in the place of a text that is a secret, or of those in it.
    fn look(
        &mut self,
        spot: &Spot,
        text: &mut String,
        (secrets, keep): (&[FieldPath], &[FieldPath]),
        known: &mut dyn FnMut(&[String], &[u8]) -> Result<Option<String>, String>,
    ) -> Result<(), SettingsUnfit> {
        let is_reference = words::is_reference(text);
        let stands = match is_reference {
            true => None,
            false => known(&spot.names, text.as_bytes()).map_err(SettingsUnfit::Unfit)?,
        };
        let made = match stands {
            Some(stands) => {
                self.note(text, &stands);
                stands
            }
            None if !is_reference && is_secret(spot, Some(text), secrets, keep) => {
                let from = words::scheme_bytes(text);
                let (scheme, value) = text.split_at_checked(from).unwrap_or(("", text));
                let stands = other(value);
                self.note(value, &stands);
                format!("{scheme}{stands}")
            }
            None => self.without_keys(text),
        };
        self.put(spot, text, made);
        Ok(())
    }

    /// The same for what was found elsewhere.
    fn look_again(&mut self, spot: &Spot, text: &mut String) -> Result<(), SettingsUnfit> {
        let mut made = Zeroizing::new(text.clone());
        for (real, stands) in &self.replaced {
            if is_sought(real) && made.contains(real.as_str()) {
                *made = made.replace(real.as_str(), stands);
            }
        }
        self.put(spot, text, made.to_string());
        Ok(())
    }

    fn put(&mut self, spot: &Spot, text: &mut String, made: String) {
        if made == *text {
            return;
        }
        let at = spot.pointer.clone();
        self.masked.retain(|one| one.at != at);
        self.masked.push(Masked {
            at,
            text: Some(made.clone()),
        });
        *text = made;
    }

    /// A text with something else in the places of what has the shape of a key.
    fn without_keys(&mut self, text: &str) -> String {
        let mut made = String::with_capacity(text.len());
        let mut at = 0;
        for key in words::keys_in(text) {
            let (before, real) = (text.get(at..key.start), text.get(key.clone()));
            let real = real.unwrap_or_default();
            let stands = other(real);
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

    /// Whether a secret is still in a text.
    fn is_in(&self, text: &str) -> bool {
        let mut sought = self.replaced.iter().filter(|(real, _)| is_sought(real));
        sought.any(|(real, _)| {
            let quoted = serde_json::to_string(real.as_str()).map(Zeroizing::new);
            let escaped = quoted.as_deref().map(|quoted| quoted.trim_matches('"'));
            text.contains(real.as_str()) || escaped.is_ok_and(|escaped| text.contains(escaped))
        })
    }
}

/// Whether a value does not go in, by where it is. A number has no text.
fn is_secret(spot: &Spot, text: Option<&str>, secrets: &[FieldPath], keep: &[FieldPath]) -> bool {
    if keep.iter().any(|path| path.leads_along(&spot.names)) || text == Some("") {
        return false;
    }
    if secrets.iter().any(|path| path.leads_along(&spot.names)) {
        return true;
    }
    let (name, above) = match spot.names.split_last() {
        Some((name, above)) => (name.as_str(), above),
        None => ("", &[][..]),
    };
    let Some(text) = text else {
        return words::is_secret(name, "");
    };
    let is_of_flag = spot
        .before
        .as_deref()
        .is_some_and(|word| words::is_flag(word));
    let is_held = above.iter().any(|name| words::is_holder(name)) && !words::is_plain(text);
    is_of_flag || is_held || words::is_secret(name, text)
}

#[cfg(test)]
mod tests;
