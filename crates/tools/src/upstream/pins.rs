//! The tools, prompts and resources of upstreams as a person has approved them: by their text, and
//! those with names by their place among the others too. Whatever an upstream offers otherwise is held
//! until it is approved as well.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use atoll_engine::configuration::read_optional;
use atoll_engine::failure::{Doing, Failure};
use serde::{Deserialize, Serialize};

use super::Upstream;
use super::frames::{Form, Offered};

/// The offers of an upstream, as approved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pins {
    /// Its program and arguments at that time, or its address.
    pub command: Vec<String>,
    /// Its tools, prompts and resources, in its order.
    pub tools: Vec<Offered>,
}

/// A difference between what is approved and what is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The kind of it.
    pub kind: Kind,
    /// The form of what differs.
    pub form: Form,
    /// The name of what differs.
    pub name: String,
}

/// The kind of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Something that was not there.
    Added,
    /// Something that is not there any more.
    Removed,
    /// Something that has another text, schema or place.
    Changed,
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
        let mut all = Vec::new();
        let mut add = |kind, of: &Offered| {
            all.push(Difference {
                kind,
                form: of.form,
                name: of.name.clone(),
            });
        };
        for pinned in &self.tools {
            match (self.is_as_pinned(pinned, offered), count(offered, pinned)) {
                (true, _) => {}
                (false, 0) => add(Kind::Removed, pinned),
                (false, _) => add(Kind::Changed, pinned),
            }
        }
        for one in offered {
            if count(&self.tools, one) == 0 {
                add(Kind::Added, one);
            }
        }
        all
    }

    /// Returns whether something is offered just as it was approved, and once.
    #[must_use]
    pub fn holds(&self, form: Form, name: &str, offered: &[Offered]) -> bool {
        let named = |one: &&Offered| one.form == form && one.name == name;
        let pinned = self.tools.iter().find(named);
        pinned.is_some_and(|pinned| self.is_as_pinned(pinned, offered))
    }

    /// Returns whether it is offered so, and those with names at its place: by it a caller may know
    /// them. A resource is known by its address alone.
    fn is_as_pinned(&self, pinned: &Offered, offered: &[Offered]) -> bool {
        let place = |all: &[Offered]| {
            let mut of_form = all.iter().filter(|one| one.form == pinned.form);
            of_form.position(|one| one.name == pinned.name)
        };
        let is_at_its_place = match pinned.form {
            Form::Tool | Form::Prompt => place(&self.tools) == place(offered),
            Form::Resource | Form::Template => true,
        };
        is_at_its_place && offered.contains(pinned) && count(offered, pinned) == 1
    }

    /// Returns the resource of an address, or the template that it is made by.
    #[must_use]
    pub fn resource(&self, uri: &str) -> Option<&Offered> {
        let of = |form| self.tools.iter().filter(move |one| one.form == form);
        let exact = of(Form::Resource).find(|one| one.name == uri);
        exact.or_else(|| of(Form::Template).find(|one| is_made_by(&one.name, uri)))
    }
}

/// Returns how many have the form and the name of one.
fn count(all: &[Offered], of: &Offered) -> usize {
    let same = |one: &&Offered| one.form == of.form && one.name == of.name;
    all.iter().filter(same).count()
}

/// Returns whether an address is made by a template (RFC 6570): of its expressions those of one
/// variable are known, `{name}` for what has no reserved character and `{+name}` for anything.
#[must_use]
pub fn is_made_by(template: &str, uri: &str) -> bool {
    let uri = uri.as_bytes();
    // The ends of those parts of the address that the template so far makes.
    let mut ends = vec![false; uri.len() + 1];
    let mut parts = template.split('{');
    let literal = parts.next().unwrap_or_default();
    if let Some(end) = ends.get_mut(literal.len()) {
        *end = uri.starts_with(literal.as_bytes());
    }
    for part in parts {
        let Some((name, literal)) = part.split_once('}') else {
            return false;
        };
        let (name, takes_all) = match name.strip_prefix('+') {
            Some(name) => (name, true),
            None => (name, false),
        };
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || !name.bytes().all(is_of_name) {
            return false;
        }
        let is_value =
            |byte: u8| takes_all || byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte);
        let mut is_within = false;
        let mut after = vec![false; uri.len() + 1];
        for (at, byte) in uri.iter().enumerate() {
            is_within = (is_within || ends.get(at) == Some(&true)) && is_value(*byte);
            let end = at + 1 + literal.len();
            let follows = uri.get(at + 1..end) == Some(literal.as_bytes());
            if let (true, Some(end)) = (is_within && follows, after.get_mut(end)) {
                *end = true;
            }
        }
        ends = after;
    }
    ends.last() == Some(&true)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn offered(name: &str, description: &str) -> Offered {
        Offered {
            form: Form::Tool,
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
        let held = |name, offered: &[Offered]| pins.holds(Form::Tool, name, offered);
        let holds = |offered: &[Offered]| (held("a", offered), held("b", offered));
        let differs = |kind, name: &str| Difference {
            kind,
            form: Form::Tool,
            name: name.to_owned(),
        };
        let more = [a.clone(), b.clone(), offered("c", "new")];
        assert_eq!(holds(&more), (true, true));
        assert_eq!(pins.differences(&more), [differs(Kind::Added, "c")]);
        assert!(!held("c", &more));
        // A rug pull, a swap, a removal, a second one of a name.
        assert_eq!(holds(&[offered("a", "other"), b.clone()]), (false, true));
        assert_eq!(holds(&[b.clone(), a.clone()]), (false, false));
        assert_eq!(holds(std::slice::from_ref(&b)), (false, false));
        let twice = [a.clone(), b, a];
        assert_eq!(holds(&twice), (false, true));
        assert_eq!(pins.differences(&twice), [differs(Kind::Changed, "a")]);
    }

    #[test]
    fn resources_are_known_by_their_addresses() {
        let of = |form, name: &str| Offered {
            form,
            ..offered(name, "text")
        };
        let one = of(Form::Resource, "a://one");
        let made = of(Form::Template, "a://made/{id}");
        let prompt = of(Form::Prompt, "one");
        let pins = Pins {
            command: Vec::new(),
            tools: vec![one.clone(), made.clone(), prompt.clone()],
        };
        // Others come before it, of its form and of others.
        let more = [
            offered("new", ""),
            of(Form::Resource, "a://zero"),
            one.clone(),
            made.clone(),
            prompt,
        ];
        assert!(pins.holds(Form::Resource, "a://one", &more));
        assert!(pins.holds(Form::Prompt, "one", &more));
        let other = Offered {
            description: None,
            ..one.clone()
        };
        assert!(!pins.holds(Form::Resource, "a://one", &[other, made.clone()]));
        assert_eq!(pins.resource("a://one"), Some(&one));
        assert_eq!(pins.resource("a://made/7"), Some(&made));
        assert_eq!(pins.resource("a://two"), None);
    }

    #[test]
    fn addresses_are_made_by_templates() {
        for (template, uri, expected) in [
            ("a://{id}/data", "a://123/data", true),
            ("a://{id}/data", "a:///data", false),
            ("a://{id}/data", "a://1/2/data", false),
            ("a://{+path}", "a://1/2/data?x", true),
            ("a://{x}-{y}", "a://1-2-3", true),
            ("a://{x}", "a://%C3%A4", true),
            ("a://{x}", "a://ä", false),
            ("a://{x*}", "a://1", false),
            ("a://{?x}", "a://?x=1", false),
            ("a://{x", "a://1", false),
            ("a://one", "a://one", true),
        ] {
            assert_eq!(is_made_by(template, uri), expected, "{template} {uri}");
        }
    }
}
