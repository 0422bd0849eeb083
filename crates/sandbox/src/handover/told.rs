//! What a program is told in words by whoever starts it, in which no value of a credential stays.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use atoll_model::network::CredentialName;
use atoll_sys::environment;
use zeroize::Zeroizing;

use super::Handover;

/// A value that was handed on, whose it is, and what stands for it.
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

/// What a program is told by whoever starts it, with what stands for credentials wherever a
/// value of one stood.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// What the variables of the environment hold that held a value.
    pub variables: Vec<(OsString, OsString)>,
    /// Whose values the command held.
    pub replaced: BTreeSet<CredentialName>,
}

impl Handover {
    /// Which of these texts holds the value of which credential, where one does.
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

    /// Puts what stands for credentials in the places of their values in a command, and in the
    /// variables of this process's environment, where such a one is empty then. To be called
    /// when all are read, while no other thread uses the environment: the values are forgotten.
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

/// Where the one is within the other.
fn find(text: &[u8], value: &[u8]) -> Option<usize> {
    let mut all = text.windows(value.len().max(1));
    all.position(|part| part == value)
}

/// Where values stand in a text: from, until, which, sorted. One can lie in another, or begin in
/// its end.
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

/// A text with what stands for values in their places, and whose these were. What several share
/// has what stands for the longest of them, of the same value for the first.
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
