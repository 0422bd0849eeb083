//! What no sandbox holds: the values of credentials, what stands inside for each, and
//! where they are put in.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use atoll_model::network::{
    Binding, CREDENTIAL_BYTES_MAX, CredentialName, HostPart, Network, Placeholder,
};
use atoll_sys::{memory, socket};

/// How many characters of a placeholder nobody can guess, at least.
const UNKNOWN_MIN: usize = 20;

/// The credentials of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Credentials(Vec<Held>);

/// One of them.
pub(crate) struct Held {
    pub(crate) binding: Binding,
    /// What stands for it inside: printable ASCII.
    pub(crate) placeholder: String,
    real: Vec<u8>,
}

impl fmt::Debug for Held {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Held").finish_non_exhaustive()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        memory::erase(&mut self.real);
    }
}

impl Held {
    pub(crate) fn name(&self) -> &CredentialName {
        &self.binding.name
    }

    /// What it is: printable ASCII.
    pub(crate) fn real(&self) -> &[u8] {
        &self.real
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
            let one = Held {
                binding: binding.ok_or_else(missing)?.clone(),
                placeholder: placeholder.text,
                real,
            };
            if one.real.is_empty() || one.placeholder.is_empty() {
                return Err(missing());
            }
            held.push(one);
        }
        Ok(Self(held))
    }

    #[cfg(test)]
    pub(crate) fn of(held: Vec<(Binding, &str, &str)>) -> Self {
        let one = |(binding, placeholder, real): (Binding, &str, &str)| Held {
            binding,
            placeholder: placeholder.to_owned(),
            real: real.as_bytes().to_vec(),
        };
        Self(held.into_iter().map(one).collect())
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Held> {
        self.0.iter()
    }

    /// The one whose placeholder is part of a host's name, which servers of names would be
    /// asked for. Names have no case.
    pub(crate) fn within_host(&self, host: &str) -> Option<&Held> {
        self.iter()
            .find(|held| holds_in_any_case(host.as_bytes(), held.placeholder.as_bytes()))
    }

    /// The same for a connection: which, and why it is not made.
    pub(crate) fn misused_by(&self, host: &HostPart) -> Option<(CredentialName, String)> {
        if self.0.is_empty() {
            return None;
        }
        let held = self.within_host(&host.to_string())?;
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

/// What stands inside for a value, in its shape: what comes before its last `_` or `-` among
/// the first characters stays, as does every character that is no letter or digit, and the
/// rest becomes others of its kind.
fn placeholder(real: &[u8], random: &mut impl FnMut(&mut [u8])) -> Vec<u8> {
    const PREFIX_MAX: usize = 12;
    let beginning = real
        .get(..PREFIX_MAX.min(real.len() / 3))
        .unwrap_or_default();
    let last = beginning.iter().rposition(|byte| b"_-".contains(byte));
    let prefix = last.map_or(0, |at| at + 1);
    let mut unknown = 0;
    let mut one = |kind: &[u8]| loop {
        let mut byte = [0];
        random(&mut byte);
        let [byte] = byte;
        // Each of them as likely as the others.
        let even = 256 - 256 % kind.len();
        if usize::from(byte) < even {
            return kind
                .get(usize::from(byte) % kind.len())
                .copied()
                .unwrap_or(b'x');
        }
    };
    let mut made = Vec::with_capacity(real.len().max(UNKNOWN_MIN));
    for (at, byte) in real.iter().enumerate() {
        let kind: &[u8] = match byte {
            _ if at < prefix => {
                made.push(*byte);
                continue;
            }
            b'0'..=b'9' => b"0123456789",
            b'a'..=b'z' => b"abcdefghijklmnopqrstuvwxyz",
            b'A'..=b'Z' => b"ABCDEFGHIJKLMNOPQRSTUVWXYZ",
            b'_' | b'-' | b'.' => {
                made.push(*byte);
                continue;
            }
            // Others mean something in some place of a request.
            _ => b"abcdefghijklmnopqrstuvwxyz",
        };
        unknown += 1;
        made.push(one(kind));
    }
    while unknown < UNKNOWN_MIN {
        unknown += 1;
        made.push(one(b"abcdefghijklmnopqrstuvwxyz0123456789"));
    }
    made
}

/// What stands inside for a value, by random numbers that nobody can guess. None where there
/// are no such.
#[must_use]
pub fn disguise(real: &[u8]) -> Option<Vec<u8>> {
    let source = rustls::crypto::aws_lc_rs::default_provider().secure_random;
    let mut is_random = true;
    let mut random = |bytes: &mut [u8]| is_random &= source.fill(bytes).is_ok();
    let made = placeholder(real, &mut random);
    is_random.then_some(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_has_the_shape_of_what_it_stands_for_and_nothing_else_of_it() {
        let mut state = 1_u8;
        let mut random = |bytes: &mut [u8]| {
            for byte in bytes {
                state = state.wrapping_mul(197).wrapping_add(91);
                *byte = state;
            }
        };
        let real = b"ghp_0123456789abcdefABCDEF012345678901";
        let made = placeholder(real, &mut random);
        assert_eq!(made.len(), real.len());
        assert!(made.starts_with(b"ghp_"), "{made:?}");
        assert_ne!(made, real);
        let kind = |byte: &u8| (byte.is_ascii_digit(), byte.is_ascii_lowercase());
        assert!(made.iter().map(kind).eq(real.iter().map(kind)));
        let short = placeholder(b"pass", &mut random);
        assert!(short.len() >= UNKNOWN_MIN);
        let first = disguise(real).unwrap();
        assert_ne!(first, disguise(real).unwrap());
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
