//! Rules on git repositories by name: `{ preset = "git-push", repositories = [...] }`.

use std::ops::Range;

use atoll_model::network::{
    Conditions, Destination, Meant, PathPattern, Ports, Request, Scheme, Way,
};

use crate::document::{Complaint, Document, Section};
use crate::network::likely::shown;
use crate::network::rule::{Effect, parse_destination, texts};
use crate::quoting::quoted;
use crate::words::among;

/// The hint on how to write a repository.
const FORM: &str = "as a host and a path, as in its URL: \"github.com/owner/name\"";

/// The allowed use of repositories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Read,
    Push,
}

impl Use {
    /// Returns the services that git then requests (gitprotocol-http(5)).
    fn services(self) -> &'static [&'static str] {
        match self {
            Self::Read => &["git-upload-pack"],
            Self::Push => &["git-upload-pack", "git-receive-pack"],
        }
    }
}

/// A repository: its host, and its path there without `.git`.
#[derive(Clone, Debug)]
struct Repository {
    to: Destination,
    path: String,
}

/// Reads a table that names a preset and repositories, as the rules for each of them.
pub(crate) fn read(
    document: &mut Document,
    mut section: Section<'_>,
    at: &Range<usize>,
    effect: Effect,
) -> Vec<Meant> {
    let before = document.problem_count();
    let usage = document.text(&mut section, "preset", parse_use);
    let repositories = texts(document, &mut section, "repositories", at, parse_repository);
    document.end(section, &["preset", "repositories"]);
    if effect == Effect::Deny {
        let hint = "deny its URL, as \"https://github.com/owner/name/**\"".to_owned();
        document.report(at, "a preset only allows".to_owned(), Some(hint));
    }
    if repositories.is_none() && document.problem_count() == before {
        let what = "a preset in a rule needs `repositories`: those that it is for".to_owned();
        let hint = "without them it stands in the list: presets = [\"git-read\"]".to_owned();
        document.report(at, what, Some(hint));
    }
    let (Some(usage), Some(repositories)) = (usage, repositories) else {
        return Vec::new();
    };
    if document.problem_count() > before {
        return Vec::new();
    }
    let rules = repositories.iter().map(|one| one.rules(usage.value));
    match rules.collect::<Option<Vec<_>>>() {
        Some(rules) => rules.into_iter().flatten().collect(),
        None => {
            let what = "a repository's path is none of a URL".to_owned();
            document.report(at, what, Some(FORM.to_owned()));
            Vec::new()
        }
    }
}

fn parse_use(text: &str) -> Result<Use, Complaint> {
    match text {
        "git-read" => Ok(Use::Read),
        "git-push" => Ok(Use::Push),
        _ => Err(among(text, &["git-read", "git-push"])),
    }
}

fn parse_repository(text: &str) -> Result<Repository, Complaint> {
    // A host that is none says itself what is wrong with it.
    let named = match text.split_once('/').filter(|_| !is_remote(text)) {
        Some((host, _)) => Repository::read(text).ok_or_else(|| parse_destination(host).err()),
        None => Err(None),
    };
    named.map_err(|host| {
        let what = format!("{:?} is no repository", shown(text));
        match (meant(text), host) {
            (Some(meant), _) => Complaint::new(
                what,
                format!("write {meant:?}: the host and the path alone"),
            ),
            (None, Some(complaint)) => complaint,
            (None, None) => Complaint::new(what, FORM),
        }
    })
}

/// Returns whether a text has the form of a git remote.
fn is_remote(text: &str) -> bool {
    let first = text.split('/').next().unwrap_or_default();
    text.contains("://") || first.contains('@')
}

impl Repository {
    /// Parses the name of a repository in a rule: neither all repositories of an owner nor a query.
    fn read(text: &str) -> Option<Self> {
        let (host, path) = text.split_once('/')?;
        let path = path.strip_suffix(".git").unwrap_or(path);
        let is_whole = path.is_empty() || path.ends_with('/') || path.contains(['*', '?', '#']);
        if is_whole || is_remote(text) {
            return None;
        }
        let mut to = parse_destination(host).ok()?;
        if to.ports == Ports::Web {
            to.ports = Ports::of(Scheme::Https);
        }
        Some(Self {
            to,
            path: path.to_owned(),
        })
    }
}

/// Returns the repository of a git remote: an HTTPS or SSH URL, or `git@github.com:owner/name`.
fn meant(text: &str) -> Option<String> {
    let (rest, is_url) = match text.split_once("://") {
        Some((_, rest)) => (rest, true),
        None => (text, false),
    };
    let (authority, path) = match rest.split_once('/') {
        Some((authority, path)) if is_url => (authority, path),
        _ => rest.split_once(':')?,
    };
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let path = path.trim_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path);
    let name = format!("{host}/{path}");
    let is_plain = !name.contains(['@', '\\', ' ']);
    Repository::read(&name).filter(|_| is_plain)?;
    Some(name)
}

/// A repository and the use that git made of it, from one of its requests (gitprotocol-http(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    usage: Use,
    /// The host, with its port if that is not 443.
    host: String,
    /// The path on the host, as git requested it, without a leading `/`.
    path: String,
}

impl Remote {
    /// Returns the repository and use of a request, if it is git's; `is_push` gives the use where
    /// the path does not, since queries are not recorded. A path that could be read in several ways
    /// names no repository.
    #[must_use]
    pub fn of(request: &Request<'_>, is_push: bool) -> Option<Self> {
        let target = request.target;
        if request.scheme != Scheme::Https || target.unclear().is_some() {
            return None;
        }
        let path = target.path().strip_prefix('/')?;
        let (path, usage) = match path.strip_suffix("/info/refs") {
            Some(path) if is_push => (path, Use::Push),
            Some(path) => (path, Use::Read),
            None => match path.rsplit_once('/')? {
                (path, "git-upload-pack") => (path, Use::Read),
                (path, "git-receive-pack") => (path, Use::Push),
                (_, _) => return None,
            },
        };
        let host = match request.port {
            443 => request.host.to_string(),
            port => format!("{}:{port}", request.host),
        };
        // What a rule could not say is none that it can propose, and nothing of it is more
        // than a text to a shell.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/%+".contains(&byte);
        let is_named = path.bytes().all(is_plain);
        let remote = Self {
            usage,
            host,
            path: path.to_owned(),
        };
        Repository::read(&remote.name()).filter(|_| is_named)?;
        Some(remote)
    }

    /// Returns the name in a rule, as `github.com/owner/name`.
    fn name(&self) -> String {
        let path = self.path.strip_suffix(".git").unwrap_or(&self.path);
        format!("{}/{path}", self.host)
    }

    /// Formats it as an entry of a profile's list.
    #[must_use]
    pub fn entry(&self) -> String {
        let preset = match self.usage {
            Use::Read => "git-read",
            Use::Push => "git-push",
        };
        let name = quoted(&self.name());
        format!("{{ preset = \"{preset}\", repositories = [{name}] }}")
    }

    /// Formats it as rules of the command line, which has no such entry: git's first request, and
    /// the one with the data.
    #[must_use]
    pub fn options(&self) -> [String; 2] {
        let service = match self.usage {
            Use::Read => "git-upload-pack",
            Use::Push => "git-receive-pack",
        };
        let at = format!("https://{}/{}", self.host, self.path);
        [
            format!("GET {at}/info/refs?service={service}"),
            format!("POST {at}/{service}"),
        ]
    }
}

impl Repository {
    /// Returns the rules on git's requests: the listing of references, then the fetch or push, with
    /// and without `.git` at the end of the name.
    fn rules(&self, usage: Use) -> Option<[Meant; 2]> {
        let (mut asked, mut sent) = (Vec::new(), Vec::new());
        for name in [format!("/{}", self.path), format!("/{}.git", self.path)] {
            for service in usage.services() {
                asked.push(path(format!("{name}/info/refs?service={service}"))?);
                sent.push(path(format!("{name}/{service}"))?);
            }
        }
        Some([self.rule("GET", asked), self.rule("POST", sent)])
    }

    fn rule(&self, method: &str, paths: Vec<PathPattern>) -> Meant {
        Meant {
            way: Way::Usual,
            requests: Conditions {
                scheme: Some(Scheme::Https),
                methods: vec![method.to_owned()],
                paths,
                packages: None,
            },
            ..Meant::from(self.to.clone())
        }
    }
}

fn path(text: String) -> Option<PathPattern> {
    PathPattern::try_from(text).ok()
}
