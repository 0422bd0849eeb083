//! The scopes of arguments: paths beneath a directory, addresses beneath others. What is judged,
//! recorded and sent is the one form that each is written in.

mod beneath;
mod urls;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use url::Url;

pub(crate) use beneath::Place;

use crate::schema::Schema;

/// The scopes of a tool's arguments, by their names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scopes {
    /// The directory that paths are beneath, from that of the work; empty for that one itself.
    paths: BTreeMap<String, PathBuf>,
    /// The addresses that addresses are beneath.
    urls: BTreeMap<String, Vec<Url>>,
}

impl Scopes {
    /// Reads the scopes of arguments with this schema, with the first thing that is wrong with them.
    pub(crate) fn read(
        paths: &BTreeMap<String, String>,
        urls: &BTreeMap<String, Vec<String>>,
        arguments: &Schema,
    ) -> Result<Self, String> {
        let known: Vec<&str> = arguments.properties().collect();
        let is_unknown = |name: &&String| !known.contains(&name.as_str());
        if let Some(name) = paths.keys().chain(urls.keys()).find(is_unknown) {
            return Err(format!(
                "paths, urls: {name:?} is no argument of its schema"
            ));
        }
        let mut scopes = Self::default();
        for (name, root) in paths {
            let root = beneath::written(root).map_err(|why| format!("paths.{name}: {why}"))?;
            scopes.paths.insert(name.clone(), beneath::relative(&root));
        }
        for (name, all) in urls {
            let all: Result<_, _> = all.iter().map(|one| urls::allowed(one)).collect();
            let all = all.map_err(|why| format!("urls.{name}: {why}"))?;
            scopes.urls.insert(name.clone(), all);
        }
        Ok(scopes)
    }

    /// Returns whether no argument has one.
    pub(crate) fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.urls.is_empty()
    }

    /// Writes each argument that has a scope in the form that is judged and sent, if it is within its
    /// scope; `place` is where the tool sees its files.
    ///
    /// # Errors
    /// Describes every argument that is not.
    pub(crate) fn confine(&self, arguments: &mut Value, place: &Place) -> Result<(), Vec<String>> {
        let mut wrong = Vec::new();
        for (name, root) in &self.paths {
            let confined = |text: &str| {
                let path = beneath::written(text)?;
                place.check(root, &beneath::relative(&path))?;
                Ok(path)
            };
            wrong.extend(each_text(arguments, name, confined).err());
        }
        for (name, allowed) in &self.urls {
            let confined = |text: &str| urls::confined(text, allowed);
            wrong.extend(each_text(arguments, name, confined).err());
        }
        match wrong.is_empty() {
            true => Ok(()),
            false => Err(wrong),
        }
    }

    /// Describes them, for people.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        let paths = self.paths.iter().map(|(name, root)| {
            let root = match root.as_os_str().is_empty() {
                true => Path::new("."),
                false => root,
            };
            format!("{name} is a path beneath {}", root.display())
        });
        let urls = self.urls.iter().map(|(name, allowed)| {
            let allowed: Vec<&str> = allowed.iter().map(Url::as_str).collect();
            format!("{name} is beneath {}", allowed.join(" or "))
        });
        paths.chain(urls)
    }
}

/// Replaces the text of an argument, or each of a list.
fn each_text(
    arguments: &mut Value,
    name: &str,
    confined: impl Fn(&str) -> Result<String, String>,
) -> Result<(), String> {
    let one = |value: &mut Value| {
        let Value::String(text) = value else {
            return Err(format!("/{name}: it is no text"));
        };
        *text = confined(text).map_err(|why| format!("/{name}: {why}"))?;
        Ok(())
    };
    match arguments.get_mut(name) {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Array(members)) => members.iter_mut().try_for_each(one),
        Some(value) => one(value),
    }
}

#[cfg(test)]
mod tests;
