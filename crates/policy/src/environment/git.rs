//! Settings passed to git in its environment (git-config(1), `GIT_CONFIG_COUNT`): the passwords of
//! hosts, and the remotes reached by HTTPS instead of SSH. They are a convenience for programs and
//! enforce nothing.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use atoll_model::View;
use atoll_model::network::{
    Destination, HostName, HostPattern, Place, Ports, SSH_DIRECTORY, Scheme,
};

use crate::credential::Credential;
use crate::git_settings::GitSettings;
use crate::notice::Notice;
use crate::origin::Origin;
use crate::rules::Rules;

/// The name of the file of git's settings, in the home directory.
const FILE: &str = ".gitconfig";
const COUNT: &str = "GIT_CONFIG_COUNT";

/// The user name that git sends to a host that takes any (GitHub, GitLab and others check the
/// password alone).
const ANY_USER: &str = "git";

/// Adds git's settings to a program's variables, after those already there.
pub(crate) fn add_settings(
    rules: &Rules,
    variables: &mut BTreeMap<OsString, OsString>,
    is_denied: &dyn Fn(&OsStr) -> bool,
) {
    let has = |one: &&Credential| {
        let mut its = one.variables.iter();
        its.any(|(_, name)| variables.contains_key(OsStr::new(name)))
    };
    let entries: Vec<(String, String)> = rules
        .credentials()
        .filter(has)
        .flat_map(passwords)
        .chain(rules.git.iter().flat_map(|host| by_https(&host.value)))
        .chain(signing(rules))
        .chain(unsigned(rules))
        .collect();
    if entries.is_empty() || is_denied(OsStr::new(COUNT)) {
        return;
    }
    let there = match variables.get(OsStr::new(COUNT)) {
        None => Some(0),
        Some(count) => count.to_str().and_then(|count| count.parse::<usize>().ok()),
    };
    // What is no number git refuses by itself.
    let Some(there) = there else { return };
    for (at, (key, value)) in entries.iter().enumerate() {
        let at = there.saturating_add(at);
        variables.insert(format!("GIT_CONFIG_KEY_{at}").into(), key.into());
        variables.insert(format!("GIT_CONFIG_VALUE_{at}").into(), value.into());
    }
    let count = there.saturating_add(entries.len());
    variables.insert(COUNT.into(), count.to_string().into());
}

/// Returns the settings by which git finds a password's placeholder: no other helper is asked for
/// that host, and this one reads the variable.
fn passwords(credential: &Credential) -> Vec<(String, String)> {
    let (Place::Basic(user), [(_, variable)]) =
        (&credential.binding.place, &credential.variables[..])
    else {
        return Vec::new();
    };
    let scheme = credential.binding.requests.scheme.unwrap_or(Scheme::Https);
    let given = format!("printf 'password=%s\\n' \"${variable}\"");
    let mut entries = Vec::new();
    for url in credential.binding.to.iter().flat_map(|to| urls(scheme, to)) {
        let key = |name: &str| format!("credential.{url}.{name}");
        let given = match user.as_str() {
            "*" => {
                // A user in the URL goes before this one.
                entries.push((key("username"), ANY_USER.to_owned()));
                given.clone()
            }
            user => format!("printf 'username=%s\\n' {}; {given}", shell_word(user)),
        };
        entries.push((key("helper"), String::new()));
        let helper = format!("!f() {{ if test \"$1\" = get; then {given}; fi; }}; f");
        entries.push((key("helper"), helper));
    }
    entries
}

/// Returns the URLs of a destination, as git compares them.
fn urls(scheme: Scheme, to: &Destination) -> Vec<String> {
    let host = match &to.host {
        HostPattern::Exact(_) | HostPattern::Beneath(_) | HostPattern::Block(_) => &to.host,
        HostPattern::Any => return Vec::new(),
    };
    let of = |ports: Ports| Destination {
        host: host.clone(),
        ports,
    };
    let usual = Ports::of(scheme);
    let Ports::Listed(listed) = &to.ports else {
        return Vec::new();
    };
    let single = listed.iter().filter(|(first, last)| first == last);
    single
        .map(|port| Ports::Listed(vec![*port]))
        .map(|ports| match ports == usual {
            true => format!("{scheme}://{}", bare(&of(ports))),
            false => format!("{scheme}://{}", of(ports)),
        })
        .collect()
}

/// Returns a destination without its port.
fn bare(to: &Destination) -> String {
    let text = to.to_string();
    let host = text
        .rsplit_once(':')
        .map_or(text.as_str(), |(host, _)| host);
    host.to_owned()
}

/// Returns the settings of the key that signs commits: the first one allowed to.
fn signing(rules: &Rules) -> Vec<(String, String)> {
    let may = |one: &&crate::SshRule| one.grant.signs_commits;
    let entries = rules.ssh().find(may).map(|one| {
        let key = format!("{SSH_DIRECTORY}/{}.pub", one.grant.name);
        [("gpg.format", "ssh".to_owned()), ("user.signingkey", key)]
    });
    let entries = entries.into_iter().flatten();
    entries
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// Returns the settings without which a commit would wait for a key that is not inside.
fn unsigned(rules: &Rules) -> Vec<(String, String)> {
    let keys = ["commit.gpgsign", "tag.gpgsign"];
    let off = |key: &str| (key.to_owned(), "false".to_owned());
    match rules.leaves_unsigned() {
        true => keys.map(off).to_vec(),
        false => Vec::new(),
    }
}

/// Returns the settings that replace a host's SSH remotes by HTTPS.
fn by_https(host: &HostName) -> Vec<(String, String)> {
    let key = format!("url.https://{host}/.insteadOf");
    let forms = [
        format!("git@{host}:"),
        format!("ssh://git@{host}/"),
        format!("ssh://git@{host}:22/"),
    ];
    forms.into_iter().map(|form| (key.clone(), form)).collect()
}

/// Quotes a text as one word of a shell.
fn shell_word(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

impl Rules {
    /// Takes over the settings of the person's git.
    pub fn take_git(&mut self, settings: GitSettings) {
        self.git_settings = settings;
    }

    /// Returns the file of git's settings, where the sandbox shows no other one there.
    pub(crate) fn git_file(&self, workspace: &Path) -> Option<(PathBuf, Vec<u8>)> {
        let path = self.host.home.join(FILE);
        let touches = |view: &View| {
            view.inside != Path::new("/")
                && (path.starts_with(&view.inside) || view.inside.starts_with(&path))
        };
        let is_shown = self.views.values().any(|view| touches(&view.value));
        let is_free = !is_shown && !path.starts_with(workspace);
        let text = self.git_settings.text().filter(|_| is_free)?;
        Some((path, text.into_bytes()))
    }

    /// Returns whether commits are to be signed, and no key inside signs them.
    pub(crate) fn leaves_unsigned(&self) -> bool {
        let signs = self.ssh().any(|one| one.grant.signs_commits);
        self.git_settings.signs && !signs
    }

    /// Says that commits will not be signed.
    pub(crate) fn tell_unsigned(&self) -> Option<Notice> {
        self.leaves_unsigned().then(|| Notice {
            text: "git signs no commits inside, since your key stays outside; sign-commits lets \
                   Atoll sign with one of ssh"
                .to_owned(),
            origin: Origin::BuiltIn,
        })
    }
}
