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

/// A text with what stands for values in their places, and whose these were.
fn without<'v>(text: &[u8], values: &'v [Value]) -> (Vec<u8>, Vec<&'v CredentialName>) {
    let mut text = text.to_vec();
    let mut found = Vec::new();
    for Value {
        name,
        value,
        stands,
    } in values
    {
        let mut from = 0;
        while let Some(at) = text.get(from..).and_then(|rest| find(rest, value)) {
            let begin = from + at;
            text.splice(begin..begin + value.len(), stands.bytes());
            from = begin + stands.len();
            found.push(name);
        }
    }
    (text, found)
}
