//! The merging of a login into a file that has others beside it: everything else stays as it is
//! written.

use std::collections::{BTreeMap, BTreeSet};

use atoll_egress::secret::LOGIN_BYTES_MAX;
use atoll_model::network::{FieldPath, IssuedToken};
use atoll_policy::Login;
use serde::Deserialize;
use serde::de::IgnoredAny;
use zeroize::Zeroizing;

/// The members of an object in their order, with their values as they are written.
type Members<'a> = Vec<(String, &'a str)>;

/// The error for a file whose members cannot be told apart.
const NO_OBJECT: &str = "it is no JSON object";

/// The members of a file that belong to a login.
pub struct Own<'a> {
    /// The paths of members that belong to it as a whole.
    whole: BTreeSet<Vec<String>>,
    keep: &'a [FieldPath],
}

impl<'a> Own<'a> {
    /// Collects the objects in which its tokens are; of a file with tokens at the top level these
    /// members alone. Adds the members that the login keeps by name.
    pub fn of(login: &'a Login, fields: &BTreeMap<IssuedToken, FieldPath>) -> Self {
        let names = |field: &FieldPath| field.to_string().split('.').map(str::to_owned).collect();
        let mut whole = BTreeSet::new();
        for field in fields.values() {
            let mut names: Vec<String> = names(field);
            if names.len() > 1 {
                names.pop();
            }
            whole.insert(names);
        }
        let named = login.keep.iter().filter(|path| path.is_of_one());
        whole.extend(named.map(names));
        Self {
            whole,
            keep: &login.keep,
        }
    }

    /// Returns whether a member may stay as the agent has written it: it is kept, and is the
    /// login's.
    pub fn keeps(&self, names: &[String]) -> bool {
        let is_within = |one: &Vec<String>| names.starts_with(one);
        self.keep.iter().any(|path| path.leads_along(names)) && self.whole.iter().any(is_within)
    }

    fn is_whole(&self, names: &[String]) -> bool {
        self.whole.contains(names)
    }

    fn is_above(&self, names: &[String]) -> bool {
        let is_above = |one: &Vec<String>| one.len() > names.len() && one.starts_with(names);
        self.whole.iter().any(is_above)
    }

    /// Merges this login into the existing file, in place of its own members. All else stays as it
    /// was written.
    ///
    /// # Errors
    /// When both cannot be in one file; the message contains nothing of them.
    pub fn merged(&self, there: &[u8], new: &[u8]) -> Result<Zeroizing<Vec<u8>>, String> {
        let (there, new) = (text(there)?, text(new)?);
        let mut made = Zeroizing::new(String::with_capacity(there.len() + new.len()));
        self.merge(&mut Vec::new(), there, Some(new), &mut made)?;
        match made.len() <= LOGIN_BYTES_MAX {
            true => Ok(Zeroizing::new(made.as_bytes().to_vec())),
            false => Err(format!(
                "with this login it would be longer than {} KiB",
                LOGIN_BYTES_MAX / 1024
            )),
        }
    }

    fn merge(
        &self,
        names: &mut Vec<String>,
        there: &str,
        new: Option<&str>,
        made: &mut Zeroizing<String>,
    ) -> Result<(), String> {
        let there = members(there)?;
        let new = new.map_or_else(|| Ok(Vec::new()), members)?;
        let known: BTreeSet<&str> = there.iter().map(|(name, _)| name.as_str()).collect();
        let added = new
            .iter()
            .filter(|(name, _)| !known.contains(name.as_str()));
        let mut is_first = true;
        for (name, value, is_there) in there
            .iter()
            .map(|(name, value)| (name, value, true))
            .chain(added.map(|(name, value)| (name, value, false)))
        {
            let of_new = new.iter().find(|(one, _)| one == name);
            let of_new = of_new.map(|(_, value)| *value);
            names.push(name.clone());
            let mut within = Zeroizing::new(String::with_capacity(value.len()));
            if self.is_whole(names) {
                // A token that the new login has none of is none of it.
                within.push_str(of_new.unwrap_or_default());
            } else if !self.is_above(names) {
                within.push_str(if is_there { value } else { "" });
            } else if is_there && value.starts_with('{') {
                let of_new = of_new.filter(|value| value.starts_with('{'));
                self.merge(names, value, of_new, &mut within)?;
            } else {
                within.push_str(of_new.unwrap_or(value));
            }
            names.pop();
            if !within.is_empty() {
                made.push(if is_first { '{' } else { ',' });
                is_first = false;
                let name = serde_json::to_string(name).map_err(|error| error.to_string())?;
                made.push_str(&name);
                made.push(':');
                made.push_str(&within);
            }
        }
        made.push_str(if is_first { "{}" } else { "}" });
        Ok(())
    }
}

/// Removes the members at these paths from a file that an agent has written. All else stays as it
/// was written.
///
/// # Errors
/// When its members cannot be told apart; the message contains nothing of them.
pub fn without(file: &[u8], left_out: &[FieldPath]) -> Result<Zeroizing<Vec<u8>>, String> {
    if left_out.is_empty() {
        return Ok(Zeroizing::new(file.to_vec()));
    }
    let file = text(file)?;
    let mut made = Zeroizing::new(String::with_capacity(file.len()));
    leave_out(&mut Vec::new(), file, left_out, &mut made)?;
    Ok(Zeroizing::new(made.as_bytes().to_vec()))
}

fn leave_out(
    names: &mut Vec<String>,
    object: &str,
    left_out: &[FieldPath],
    made: &mut Zeroizing<String>,
) -> Result<(), String> {
    made.push('{');
    let mut is_first = true;
    for (name, value) in members(object)? {
        names.push(name.clone());
        if !left_out.iter().any(|path| path.leads_along(names)) {
            made.push_str(if is_first { "" } else { "," });
            is_first = false;
            let name = serde_json::to_string(&name).map_err(|error| error.to_string())?;
            made.push_str(&name);
            made.push(':');
            match value.starts_with('{') && names.len() < FieldPath::NAMES_MAX {
                true => leave_out(names, value, left_out, made)?,
                false => made.push_str(value),
            }
        }
        names.pop();
    }
    made.push('}');
    Ok(())
}

fn text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| "it is no UTF-8".to_owned())
}

fn members(text: &str) -> Result<Members<'_>, String> {
    // The words of an error could have what is in it.
    serde_json::from_str::<IgnoredAny>(text).map_err(|_| NO_OBJECT.to_owned())?;
    let mut rest = text.trim_start().strip_prefix('{').ok_or(NO_OBJECT)?;
    let mut all: Members<'_> = Vec::new();
    loop {
        rest = rest.trim_start().trim_start_matches(',').trim_start();
        if rest.starts_with('}') {
            return Ok(all);
        }
        let (name, after) = next::<String>(rest)?;
        let after = after.trim_start().strip_prefix(':').ok_or(NO_OBJECT)?;
        let value = after.trim_start();
        let (_, after) = next::<IgnoredAny>(value)?;
        let value = value.strip_suffix(after).ok_or(NO_OBJECT)?;
        if all.iter().any(|(one, _)| *one == name) {
            return Err("an object of it has two members of one name".to_owned());
        }
        all.push((name, value));
        rest = after;
    }
}

/// Reads the value with which a text begins, and returns the rest.
fn next<'a, T: Deserialize<'a>>(text: &'a str) -> Result<(T, &'a str), String> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<T>();
    let value = values.next().and_then(Result::ok).ok_or(NO_OBJECT)?;
    let rest = text.get(values.byte_offset()..).ok_or(NO_OBJECT)?;
    Ok((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(fields: &[&str], keep: &[&str], there: &str, new: &str) -> Result<String, String> {
        let path = |text: &&str| text.parse::<FieldPath>().unwrap();
        let login = Login {
            name: "agent".parse().unwrap(),
            file: "/home/ann/.agent/auth.json".into(),
            keep: keep.iter().map(path).collect(),
            claims: Vec::new(),
            holds: atoll_policy::Holds::Login,
            optional: true,
            issue: None,
        };
        let fields = IssuedToken::ALL.into_iter().zip(fields.iter().map(path));
        let own = Own::of(&login, &fields.collect());
        let made = own.merged(there.as_bytes(), new.as_bytes())?;
        Ok(String::from_utf8(made.to_vec()).unwrap())
    }

    #[test]
    fn other_logins_of_a_file_stay_as_they_are_written() {
        let of_others = "{\"anthropic\": {\"type\": \"oauth\", \"refresh\":\"sk-\\u0061\", \"expires\": 1.0e400},\n\
                         \"openai\": {\"type\": \"api\", \"key\": \"sk-old\"}, \"google\": {\"key\" : \"AI\"}}";
        let fields = ["openai.access", "openai.refresh"];
        let keep = ["*.type"];
        let new = "{\"openai\":{\"type\":\"oauth\",\"access\":\"new\"},\"google\":{\"key\":null},\"more\":1}";
        assert_eq!(
            merged(&fields, &keep, of_others, new).unwrap(),
            "{\"anthropic\":{\"type\": \"oauth\", \"refresh\":\"sk-\\u0061\", \"expires\": 1.0e400},\
             \"openai\":{\"type\":\"oauth\",\"access\":\"new\"},\"google\":{\"key\" : \"AI\"}}"
        );
        assert_eq!(
            merged(&fields, &keep, "{}", new).unwrap(),
            "{\"openai\":{\"type\":\"oauth\",\"access\":\"new\"}}"
        );
        // What is kept by name on top belongs to it, a key beside it does not.
        let there = "{\"mode\":\"key\",\"KEY\":\"sk-typed\",\"tokens\":null}";
        let new = "{\"mode\":\"chat\",\"KEY\":null,\"tokens\":{\"access\":\"new\"}}";
        assert_eq!(
            merged(&["tokens.access"], &["mode"], there, new).unwrap(),
            "{\"mode\":\"chat\",\"KEY\":\"sk-typed\",\"tokens\":{\"access\":\"new\"}}"
        );
        // No token of the old login stays beside one of the new.
        let there = "{\"access\":\"old\",\"refresh\":\"old\",\"else\":1}";
        assert_eq!(
            merged(&["access", "refresh"], &[], there, "{\"access\":\"new\"}").unwrap(),
            "{\"access\":\"new\",\"else\":1}"
        );
        let there = "{\"a\":{\"b\":{\"access\":\"old\"},\"c\":2},\"d\":3}";
        let new = "{\"a\":{\"b\":{\"access\":\"new\"},\"c\":9}}";
        assert_eq!(
            merged(&["a.b.access"], &[], there, new).unwrap(),
            "{\"a\":{\"b\":{\"access\":\"new\"},\"c\":2},\"d\":3}"
        );
    }

    #[test]
    fn what_cannot_be_merged_is_refused_in_words() {
        let long = format!("{{\"other\":\"{}\"}}", "x".repeat(LOGIN_BYTES_MAX));
        for there in [
            "",
            "renewed",
            "[]",
            "{\"a\":1,\"a\":2}",
            "{\"a\":1} x",
            &long,
        ] {
            let made = merged(&["openai.access"], &[], there, "{\"openai\":{}}");
            assert!(
                made.is_err_and(|why| !why.contains("renewed")),
                "{there:.20}"
            );
        }
    }
}
