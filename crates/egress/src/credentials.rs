//! What no sandbox holds: the values of credentials, what stands inside for each, and
//! where they are put in.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use atoll_model::network::{
    Binding, CREDENTIAL_BYTES_MAX, CredentialName, HostPart, Network, Part, Place, Placeholder,
};
use atoll_sys::socket;
use hyper::HeaderMap;

use crate::secret::{self, Masks, Secret};

/// The credentials of one sandbox.
#[derive(Default)]
pub(crate) struct Credentials {
    held: Vec<Held>,
    /// What makes of their values in answers the placeholders again.
    masks: Option<Masks>,
}

/// One of them.
pub(crate) struct Held {
    pub(crate) binding: Binding,
    /// Which of its credential's values it is.
    pub(crate) part: Part,
    /// What stands for it inside: printable ASCII.
    pub(crate) placeholder: String,
    real: Secret,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Credentials").finish_non_exhaustive()
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Held").finish_non_exhaustive()
    }
}

impl Held {
    pub(crate) fn name(&self) -> &CredentialName {
        &self.binding.name
    }

    /// What it is: printable ASCII.
    pub(crate) fn real(&self) -> &[u8] {
        self.real.expose()
    }
}

impl Credentials {
    /// Takes the values that wait on a socket, a message for each of these, in their order.
    pub(crate) fn receive(
        network: &Network,
        placeholders: Vec<Placeholder>,
        values: Option<OwnedFd>,
    ) -> io::Result<Self> {
        let mut held = Vec::with_capacity(placeholders.len());
        let missing = || io::Error::from(io::ErrorKind::InvalidData);
        for placeholder in placeholders {
            let values = values.as_ref().ok_or_else(missing)?;
            let mut bindings = network.credentials.iter();
            let binding = bindings.find(|one| one.name == placeholder.name);
            let mut real = vec![0_u8; CREDENTIAL_BYTES_MAX];
            let (got, _) = socket::receive(values.as_fd(), &mut real)?;
            real.truncate(got);
            let real = Secret::new(real)?;
            let one = Held {
                binding: binding.ok_or_else(missing)?.clone(),
                part: placeholder.part,
                placeholder: placeholder.text,
                real,
            };
            let signs = matches!(one.binding.place, Place::SigV4(_));
            if one.real().is_empty() || one.placeholder.is_empty() || signs == one.part.is_whole() {
                return Err(missing());
            }
            held.push(one);
        }
        Self::masked(held)
    }

    fn masked(held: Vec<Held>) -> io::Result<Self> {
        if held.is_empty() {
            return Ok(Self::default());
        }
        let mut pairs = Vec::with_capacity(held.len());
        for one in &held {
            let secret = Secret::new(one.real().to_vec())?;
            pairs.push((secret, one.placeholder.as_bytes().to_vec()));
        }
        let masks = Masks::new(pairs).map_err(io::Error::other)?;
        Ok(Self {
            held,
            masks: Some(masks),
        })
    }

    /// Makes of every real value in headers or trailers the placeholder again.
    pub(crate) fn mask(&self, headers: &mut HeaderMap) {
        if let Some(masks) = &self.masks {
            masks.headers(headers);
        }
    }

    #[cfg(test)]
    pub(crate) fn of(held: Vec<(Binding, &str, &str)>) -> Self {
        let whole = |(binding, placeholder, real)| (binding, Part::Whole, placeholder, real);
        Self::of_parts(held.into_iter().map(whole).collect())
    }

    #[cfg(test)]
    pub(crate) fn of_parts(held: Vec<(Binding, Part, &str, &str)>) -> Self {
        let one = |(binding, part, placeholder, real): (Binding, Part, &str, &str)| Held {
            binding,
            part,
            placeholder: placeholder.to_owned(),
            real: Secret::new(real.as_bytes().to_vec()).unwrap(),
        };
        Self::masked(held.into_iter().map(one).collect()).unwrap()
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Held> {
        self.held.iter()
    }

    /// The one whose placeholder is part of a host's name, which servers of names would be
    /// asked for. Names have no case.
    pub(crate) fn within_host(&self, host: &str) -> Option<&Held> {
        self.iter()
            .find(|held| holds_in_any_case(host.as_bytes(), held.placeholder.as_bytes()))
    }

    /// The same for a connection: which, and why it is not made.
    pub(crate) fn misused_by(&self, host: &HostPart) -> Option<(CredentialName, String)> {
        match self.held.is_empty() {
            true => None,
            false => self.misused_in(&host.to_string()),
        }
    }

    /// The same for a name that is asked for.
    pub(crate) fn misused_in(&self, host: &str) -> Option<(CredentialName, String)> {
        let held = self.within_host(host)?;
        let name = held.name();
        let why = format!("the placeholder of credential {name} is in its name");
        Some((name.clone(), why))
    }
}

/// Whether one text is in another, whatever the case of letters.
pub(crate) fn holds_in_any_case(text: &[u8], part: &[u8]) -> bool {
    !part.is_empty()
        && text
            .windows(part.len())
            .any(|window| window.eq_ignore_ascii_case(part))
}

/// Whether one text is in another.
pub(crate) fn holds(text: &[u8], part: &[u8]) -> bool {
    let Some((first, rest)) = part.split_first() else {
        return false;
    };
    let mut text = text;
    while let Some(at) = text.iter().position(|byte| byte == first) {
        text = text.get(at + 1..).unwrap_or_default();
        if text.starts_with(rest) {
            return true;
        }
    }
    false
}

/// What stands inside for a value, by random numbers that nobody can guess.
///
/// # Errors
/// Why nothing can, in words.
pub fn disguise(real: &[u8]) -> Result<Vec<u8>, String> {
    let mut random = [0; 32];
    aws_lc_rs::rand::fill(&mut random)
        .map_err(|_| "there are no random numbers to make its placeholder of".to_owned())?;
    secret::placeholder(real, &random).map_err(|unfit| unfit.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_has_the_shape_of_what_it_stands_for_and_nothing_else_of_it() {
        let real = b"ghp_0123456789abcdefABCDEF012345678901";
        let made = disguise(real).unwrap();
        assert_eq!(made.len(), real.len());
        assert!(made.starts_with(b"ghp_"), "{made:?}");
        assert_ne!(made, disguise(real).unwrap());
        // Nobody knows what of an unknown kind is not secret.
        let made = disguise(b"550e8400-e29b-41d4-a716-446655440000").unwrap();
        assert!(!made.starts_with(b"550e8400-"), "{made:?}");
        assert!(disguise(b"password").unwrap_err().contains("shorter"));
    }

    #[test]
    fn parts_are_found_wherever_they_are() {
        for (text, part, is_in, in_any_case) in [
            ("abc", "bc", true, true),
            ("aab", "ab", true, true),
            ("abc", "BC", false, true),
            ("abc", "cd", false, false),
            ("", "a", false, false),
            ("a", "", false, false),
        ] {
            assert_eq!(holds(text.as_bytes(), part.as_bytes()), is_in);
            assert_eq!(
                holds_in_any_case(text.as_bytes(), part.as_bytes()),
                in_any_case
            );
        }
    }
}
