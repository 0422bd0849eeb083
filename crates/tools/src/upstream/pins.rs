//! The tools of upstreams as a person has approved them: by their text, and by their place among the
//! others. Whatever an upstream offers otherwise is held until it is approved too.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use atoll_engine::configuration::read_optional;
use atoll_engine::failure::{Doing, Failure};
use serde::{Deserialize, Serialize};

use super::Upstream;
use super::frames::Offered;

/// The tools of an upstream, as approved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pins {
    /// Its program and arguments at that time, or its address.
    pub command: Vec<String>,
    /// Its tools, in its order.
    pub tools: Vec<Offered>,
}

/// A difference between what is approved and what is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// A tool that was not there.
    Added(String),
    /// A tool that is not there any more.
    Removed(String),
    /// A tool that has another text, schema or place.
    Changed(String),
}

fn path(state: &Path, upstream: &str) -> PathBuf {
    state.join("tools").join(format!("{upstream}.json"))
}

impl Pins {
    /// Makes those of what an upstream offers.
    #[must_use]
    pub fn of(upstream: &Upstream, tools: Vec<Offered>) -> Self {
        Self {
            command: upstream.words(),
            tools,
        }
    }

    /// Reads those of an upstream; `None` if none of its tools was approved.
    ///
    /// # Errors
    /// Describes why they cannot be read.
    pub fn read(state: &Path, upstream: &Upstream) -> Result<Option<Self>, String> {
        let read = read_optional(&path(state, &upstream.name));
        let file = read.map_err(|failure| failure.why.unwrap_or(failure.what))?;
        let Some(file) = file else {
            return Ok(None);
        };
        let pins = serde_json::from_slice(&file.content).map_err(|error| error.to_string())?;
        Ok(Some(pins))
    }

    /// Writes them: whoever reads them sees the ones or the others.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn write(&self, state: &Path, upstream: &Upstream) -> Result<(), Failure> {
        let path = path(state, &upstream.name);
        let write = || -> io::Result<()> {
            fs::create_dir_all(state.join("tools"))?;
            let beside = path.with_extension(format!("{}.new", std::process::id()));
            let mut file = fs::File::create(&beside)?;
            file.write_all(&serde_json::to_vec_pretty(self)?)?;
            file.sync_all()?;
            fs::rename(&beside, &path)
        };
        write().doing("the approved tools cannot be written")
    }

    /// Returns whether they are of this program.
    #[must_use]
    pub fn are_of(&self, upstream: &Upstream) -> bool {
        self.command == upstream.words()
    }

    /// Returns how what is offered differs.
    #[must_use]
    pub fn differences(&self, offered: &[Offered]) -> Vec<Difference> {
        let named = |all: &[Offered], name: &str| all.iter().any(|one| one.name == name);
        let mut all = Vec::new();
        for (at, pinned) in self.tools.iter().enumerate() {
            let name = pinned.name.clone();
            match (offered.get(at) == Some(pinned), named(offered, &name)) {
                (true, _) => {}
                (false, true) => all.push(Difference::Changed(name)),
                (false, false) => all.push(Difference::Removed(name)),
            }
        }
        for (at, one) in offered.iter().enumerate() {
            let is_second = offered.iter().take(at).any(|other| other.name == one.name);
            let name = || one.name.clone();
            match (named(&self.tools, &one.name), is_second) {
                (false, _) => all.push(Difference::Added(name())),
                (true, true) => all.push(Difference::Changed(name())),
                (true, false) => {}
            }
        }
        all
    }

    /// Returns whether a tool is offered just as it was approved, at its place.
    #[must_use]
    pub fn holds(&self, name: &str, offered: &[Offered]) -> bool {
        let at = self.tools.iter().position(|one| one.name == name);
        at.is_some_and(|at| {
            let twice = |one: &&Offered| one.name == name;
            self.tools.get(at) == offered.get(at) && offered.iter().filter(twice).count() == 1
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn offered(name: &str, description: &str) -> Offered {
        Offered {
            name: name.to_owned(),
            title: None,
            description: Some(description.to_owned()),
            arguments: json!({ "type": "object" }),
            result: None,
        }
    }

    #[test]
    fn what_is_offered_otherwise_is_not_held_to_be_approved() {
        let (a, b) = (offered("a", "one"), offered("b", "two"));
        let pins = Pins {
            command: Vec::new(),
            tools: vec![a.clone(), b.clone()],
        };
        assert_eq!(pins.differences(&[a.clone(), b.clone()]), []);
        let holds = |offered: &[Offered]| (pins.holds("a", offered), pins.holds("b", offered));
        let more = [a.clone(), b.clone(), offered("c", "new")];
        assert_eq!(holds(&more), (true, true));
        assert_eq!(pins.differences(&more), [Difference::Added("c".to_owned())]);
        assert!(!pins.holds("c", &more));
        // A rug pull, a swap, a removal, a second one of a name.
        assert_eq!(holds(&[offered("a", "other"), b.clone()]), (false, true));
        assert_eq!(holds(&[b.clone(), a.clone()]), (false, false));
        assert_eq!(holds(std::slice::from_ref(&b)), (false, false));
        let twice = [a.clone(), b, a];
        assert_eq!(holds(&twice), (false, true));
        assert_eq!(
            pins.differences(&twice),
            [Difference::Changed("a".to_owned())]
        );
    }
}
