//! Values fetched at once: a single one, or all of a signing key.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use atoll_model::network::Part;
#[cfg(test)]
use atoll_model::network::{Binding, Fetch, Fetched, Network, Placeholder};
use zeroize::Zeroizing;

use super::Credentials;
use crate::secret::Secret;

/// A value just fetched.
pub(super) struct FetchedValue {
    pub(super) value: Zeroizing<Vec<u8>>,
    /// Its expiry, if known.
    pub(super) ends: Option<SystemTime>,
}

impl FetchedValue {
    pub(super) fn new(value: &[u8], ends: Option<SystemTime>) -> Self {
        Self {
            value: Zeroizing::new(value.to_vec()),
            ends,
        }
    }
}

/// The values just fetched together.
pub(super) struct FetchedValues {
    pub(super) values: Vec<(Part, Zeroizing<Vec<u8>>)>,
    pub(super) ends: Option<SystemTime>,
}

impl From<FetchedValue> for FetchedValues {
    fn from(fresh: FetchedValue) -> Self {
        Self {
            values: vec![(Part::Whole, fresh.value)],
            ends: fresh.ends,
        }
    }
}

/// Values that were fetched together, and are used only together: the id of one key and the secret
/// of another sign nothing.
#[derive(Clone)]
pub(crate) struct Values(Arc<[(Part, Arc<Secret>)]>);

impl fmt::Debug for Values {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Values").finish_non_exhaustive()
    }
}

impl Values {
    /// Returns the value of a part, if there is one: not every key has a session token.
    pub(crate) fn part(&self, part: Part) -> Option<&Arc<Secret>> {
        let mut all = self.0.iter();
        all.find(|(one, _)| *one == part).map(|(_, secret)| secret)
    }

    /// Returns the value, if it is a single one.
    pub(crate) fn whole(&self) -> Option<&Arc<Secret>> {
        self.part(Part::Whole)
    }

    /// Returns whether this is one of them.
    pub(super) fn has(&self, secret: &Arc<Secret>) -> bool {
        self.0.iter().any(|(_, own)| Arc::ptr_eq(own, secret))
    }

    /// Returns whether they are the same as these: a known value keeps its place in memory.
    pub(super) fn are(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && other.0.iter().all(|(_, secret)| self.has(secret))
    }
}

impl From<Arc<Secret>> for Values {
    fn from(secret: Arc<Secret>) -> Self {
        Self([(Part::Whole, secret)].into())
    }
}

impl Credentials {
    /// Accepts what was fetched, if all of it is fit: from here on it is masked.
    ///
    /// # Errors
    /// The reason why it is not, without any of its text.
    pub(super) fn accept_all(&self, index: usize, got: FetchedValues) -> Result<Values, String> {
        let name = self.get(index).ok_or("there is none")?.name();
        let mut values = Vec::with_capacity(got.values.len());
        for (part, value) in got.values {
            let is_its = |index: &usize| {
                let held = self.get(*index);
                held.is_some_and(|held| held.part == part && held.name() == name)
            };
            let of_part = (0..self.held.len()).find(is_its).ok_or("there is none")?;
            values.push((part, self.accept(of_part, value, got.ends)?));
        }
        Ok(Values(values.into()))
    }
}

#[cfg(test)]
impl Values {
    pub(crate) fn of(all: &[(Part, &str)]) -> Self {
        let one = |(part, text): &(Part, &str)| {
            let secret = Secret::new(text.as_bytes().to_vec()).unwrap();
            (*part, Arc::new(secret))
        };
        Self(all.iter().map(one).collect())
    }
}

#[cfg(test)]
impl Credentials {
    /// Builds the credentials for a key that a command prints, with a placeholder for each of its
    /// values.
    pub(crate) fn of_printed(binding: &Binding, all: &[(Part, &str)]) -> Self {
        let network = Network {
            credentials: vec![binding.clone()],
            ..Network::default()
        };
        let placeholder = |(part, text): &(Part, &str)| Placeholder {
            name: binding.name.clone(),
            part: *part,
            text: (*text).to_owned(),
        };
        let fetched = Fetched {
            name: binding.name.clone(),
            by: Fetch::Command { patience_s: 1 },
        };
        let placeholders = all.iter().map(placeholder).collect();
        Self::receive(&network, placeholders, &[fetched], None).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use atoll_model::network::{Conditions, Others, Place, SignatureScope};

    use super::*;
    use crate::secret::key_placeholders;

    const ID: &str = "ASIAR3ALK3YOFTH1ST3S";
    const SECRET: &str = "r3alS3cr3t/0fTh1sT3st+Wh1chN0bodyM4yS33i";
    const TOKEN: &str = "FwoGr3alT0k3n/OfTh1sT3st+Wh1chN0bodyM4yS33InAnyPlace==";

    fn binding(name: &str) -> Binding {
        Binding {
            name: name.parse().unwrap(),
            to: vec!["s3.eu-west-1.amazonaws.com:443".parse().unwrap()],
            requests: Conditions::default(),
            place: Place::SigV4(SignatureScope {
                regions: vec!["eu-west-1".to_owned()],
                services: vec!["s3".to_owned()],
            }),
            others: Others::Refused,
        }
    }

    fn got(all: &[(Part, &str)]) -> FetchedValues {
        let one = |(part, text): &(Part, &str)| (*part, Zeroizing::new(text.as_bytes().to_vec()));
        FetchedValues {
            values: all.iter().map(one).collect(),
            ends: None,
        }
    }

    fn printed() -> (Credentials, [String; 3]) {
        let all = key_placeholders().unwrap();
        let texts = all.clone().map(|(_, text)| text);
        let all: Vec<_> = all.iter().map(|(part, text)| (*part, &**text)).collect();
        (Credentials::of_printed(&binding("aws"), &all), texts)
    }

    #[test]
    fn key_values_are_masked_once_fetched() {
        let (credentials, [id, secret, token]) = printed();
        let shown = |text: &str| {
            let masks = credentials.masks().unwrap();
            let masked = masks.whole(text.as_bytes());
            masked.map(|masked| String::from_utf8(masked).unwrap())
        };
        for real in [ID, SECRET, TOKEN] {
            assert_eq!(shown(real), None);
        }
        let key = [
            (Part::KeyId, ID),
            (Part::Secret, SECRET),
            (Part::Token, TOKEN),
        ];
        let values = credentials.accept_all(0, got(&key)).unwrap();
        for (part, real) in key {
            assert_eq!(values.part(part).unwrap().expose(), real.as_bytes());
            let masked = shown(real).unwrap();
            assert!(masked != real && masked.len() == real.len(), "{masked}");
        }
        assert!(values.whole().is_none());
        assert_eq!(shown(ID).unwrap().len(), id.len());
        assert_eq!(shown(SECRET).unwrap().len(), secret.len());
        // The same again is the same, without a token it is another one.
        let again = credentials.accept_all(1, got(&key)).unwrap();
        assert!(again.are(&values) && values.are(&again));
        let without = credentials.accept_all(2, got(&key[..2])).unwrap();
        assert!(without.part(Part::Token).is_none());
        assert!(!without.are(&values) && !values.are(&without));
        assert!(values.has(without.part(Part::Secret).unwrap()));
        // All parts have one source, which is asked once for all of them.
        let [one, other] =
            [0, 2].map(|index| std::ptr::from_ref(credentials.source(index).unwrap().1));
        assert_eq!(one, other);
        // A value that is for another part, or has a placeholder in it, is none.
        for (secret, why) in [
            (ID, "the value of another credential"),
            (&*format!("{token}x"), "has a placeholder in it"),
            ("short", "shorter than 16 bytes"),
            ("r3alS3cr3t/0fTh1sT3st\n+Wh1chN0body", "not one line"),
        ] {
            let told = credentials.accept_all(0, got(&[key[0], (Part::Secret, secret)]));
            let told = told.unwrap_err();
            assert!(told.contains(why) && !told.contains("r3al"), "{told}");
        }
    }
}
