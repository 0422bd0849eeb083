//! The program's command and environment, in which every value of a credential is replaced by
//! its placeholder.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use atoll_model::network::CredentialName;
use atoll_sys::environment;
use zeroize::Zeroizing;

use super::CredentialBundle;

/// A transferred value, with its credential's name and its placeholder.
pub(super) struct Value {
    pub(super) name: CredentialName,
    pub(super) value: Zeroizing<Vec<u8>>,
    pub(super) stands: String,
}

impl std::fmt::Debug for Value {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Value").finish_non_exhaustive()
    }
}

/// A command and environment with placeholders in place of all values of credentials.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The changed variables of the environment.
    pub variables: Vec<(OsString, OsString)>,
    /// The credentials whose values the command contained.
    pub replaced: BTreeSet<CredentialName>,
}

impl CredentialBundle {
    /// Returns the first of these texts that contains the value of a credential, and the
    /// credential.
    pub fn held_in<'t, Text>(
        &self,
        texts: impl IntoIterator<Item = (Text, &'t OsStr)>,
    ) -> Option<(Text, &CredentialName)> {
        texts.into_iter().find_map(|(what, text)| {
            let mut values = self.values.iter();
            let held = values.find(|one| find(text.as_bytes(), &one.value).is_some())?;
            Some((what, &held.name))
        })
    }

    /// Replaces the values of credentials by placeholders in a command, and in this process's
    /// environment, from which variables with values are removed. To be called when all
    /// credentials are read, while no other thread uses the environment: the values are
    /// forgotten.
    pub fn told(&mut self, command: &[OsString]) -> Told {
        let values = std::mem::take(&mut self.values);
        let mut told = Told::default();
        for word in command {
            let (word, found) = without(word.as_bytes(), &values);
            told.replaced.extend(found.into_iter().cloned());
            told.command.push(OsString::from_vec(word));
        }
        for (name, text) in std::env::vars_os() {
            let text = Zeroizing::new(text.into_vec());
            let (changed, found) = without(&text, &values);
            if !found.is_empty() {
                environment::take(&name, |_| ());
                told.variables.push((name, OsString::from_vec(changed)));
            }
        }
        told
    }
}

/// Returns the position of a value in a text.
fn find(text: &[u8], value: &[u8]) -> Option<usize> {
    let mut all = text.windows(value.len().max(1));
    all.position(|part| part == value)
}

/// Returns the spans of values in a text, each with its value's index, sorted. Spans may
/// contain one another or overlap.
fn spans(text: &[u8], values: &[Value]) -> Vec<(usize, usize, usize)> {
    let mut spans = Vec::new();
    for (which, one) in values.iter().enumerate() {
        let mut from = 0;
        while let Some(at) = text
            .get(from..)
            .and_then(|rest| find(rest, &one.value))
            .filter(|_| !one.value.is_empty())
        {
            spans.push((from + at, from + at + one.value.len(), which));
            from += at + 1;
        }
    }
    spans.sort_unstable();
    spans
}

/// Replaces values in a text by placeholders; returns also the credentials found. Overlapping
/// values are replaced together, by the placeholder of the longest, of equal ones the first.
fn without<'v>(text: &[u8], values: &'v [Value]) -> (Vec<u8>, BTreeSet<&'v CredentialName>) {
    let mut found = BTreeSet::new();
    let mut whole: Vec<(usize, usize, usize)> = Vec::new();
    let length = |which: usize| values.get(which).map_or(0, |one| one.value.len());
    for (from, until, which) in spans(text, values) {
        found.extend(values.get(which).map(|one| &one.name));
        match whole.last_mut() {
            Some(last) if from < last.1 => {
                last.1 = last.1.max(until);
                if length(which) > length(last.2) {
                    last.2 = which;
                }
            }
            _ => whole.push((from, until, which)),
        }
    }
    let mut made = Vec::with_capacity(text.len());
    let mut at = 0;
    for (from, until, which) in whole {
        made.extend_from_slice(text.get(at..from).unwrap_or_default());
        made.extend(values.get(which).iter().flat_map(|one| one.stands.bytes()));
        at = until;
    }
    made.extend_from_slice(text.get(at..).unwrap_or_default());
    (made, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_for_values_takes_their_places() {
        let value = |name: &str, value: &str, stands: &str| Value {
            name: name.parse().unwrap(),
            value: Zeroizing::new(value.as_bytes().to_vec()),
            stands: stands.to_owned(),
        };
        let values = [
            value("a", "key-one", "<a>"),
            value("b", "key-one-and-more", "<b>"),
            value("c", "more-of-it", "<c>"),
            value("d", "key-one", "<d>"),
            value("e", "aaa", "key-one"),
        ];
        for (text, expected, names) in [
            ("nothing", "nothing", ""),
            ("x key-one y key-one", "x <a> y <a>", "ad"),
            ("key-one-and-more!", "<b>!", "abd"),
            ("key-one-and-more-of-it!", "<b>!", "abcd"),
            ("more-of-itkey-one", "<c><a>", "acd"),
            // What stands for one is not looked through.
            ("aaa", "key-one", "e"),
            ("-aaaa-", "-key-one-", "e"),
        ] {
            let (made, found) = without(text.as_bytes(), &values);
            assert_eq!(String::from_utf8(made).unwrap(), expected);
            let found: Vec<&str> = found.iter().map(|one| one.as_str()).collect();
            assert_eq!(found.concat(), names, "{text}");
        }
    }
}
