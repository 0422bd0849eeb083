//! Paths to fields of an agent's login file.

use std::fmt;
use std::str::FromStr;

/// The longest login file, bytes.
pub const LOGIN_FILE_BYTES_MAX: usize = 64 * 1024;

/// The name that stands for any member.
const ANY: &str = "*";

/// The path of a member in a JSON document, as the names that lead to it: `tokens.access_token`. A
/// `*` is any member; the elements of a list have the path of the list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath(Vec<String>);

/// The error for a text that is not a path of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a field is 1 to 8 names of members with dots between them, each of 1 to 64 characters \
     besides dots and quotes, or `*` for any"
)]
pub struct InvalidFieldPath;

impl FieldPath {
    /// The most names of one path.
    pub const NAMES_MAX: usize = 8;
    /// The longest name, bytes.
    pub const NAME_BYTES_MAX: usize = 64;

    /// Returns whether it leads to one member only.
    #[must_use]
    pub fn is_of_one(&self) -> bool {
        self.0.iter().all(|name| name != ANY)
    }

    /// Returns whether these names follow it.
    #[must_use]
    pub fn leads_along<Name: AsRef<str>>(&self, names: &[Name]) -> bool {
        let fits = |(own, name): (&String, &Name)| own == ANY || own == name.as_ref();
        self.0.len() == names.len() && self.0.iter().zip(names).all(fits)
    }
}

impl FromStr for FieldPath {
    type Err = InvalidFieldPath;

    fn from_str(text: &str) -> Result<Self, InvalidFieldPath> {
        let is_plain = |letter: char| !letter.is_control() && letter != '"' && letter != '\\';
        let is_name = |name: &&str| {
            (1..=Self::NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(is_plain)
        };
        let names: Vec<&str> = text.split('.').collect();
        if names.len() > Self::NAMES_MAX || !names.iter().all(is_name) {
            return Err(InvalidFieldPath);
        }
        Ok(Self(names.into_iter().map(str::to_owned).collect()))
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0.join("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_known_by_the_names_that_lead_to_it() {
        let path = |text: &str| text.parse::<FieldPath>();
        let one = path("tokens.access_token").unwrap();
        assert_eq!(one.to_string(), "tokens.access_token");
        assert!(one.is_of_one());
        assert!(one.leads_along(&["tokens", "access_token"]));
        assert!(!one.leads_along(&["tokens"]));
        assert!(!one.leads_along(&["tokens", "access_token", "more"]));
        assert!(!one.leads_along(&["tokens", "refresh_token"]));
        let any = path("*.type").unwrap();
        assert!(!any.is_of_one());
        assert!(any.leads_along(&["openai", "type"]));
        assert!(!any.leads_along(&["type"]));
        let (long, deep) = ("a".repeat(65), ["a"; 9].join("."));
        for wrong in [
            "", ".", "a.", ".a", "a..b", "a\"b", "a\\b", "a\nb", &long, &deep,
        ] {
            assert_eq!(path(wrong), Err(InvalidFieldPath), "{wrong:?}");
        }
    }
}
