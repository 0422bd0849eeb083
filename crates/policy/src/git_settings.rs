//! The settings of a person's git that are the same inside: values alone, of keys that run nothing
//! and hold no secret.

/// The keys, in lower case as git lists them (git-config(1)).
pub const GIT_KEYS: [&str; 36] = [
    "author.email",
    "author.name",
    "branch.autosetupmerge",
    "branch.autosetuprebase",
    "branch.sort",
    "color.ui",
    "column.ui",
    "commit.verbose",
    "committer.email",
    "committer.name",
    "core.autocrlf",
    "core.eol",
    "core.quotepath",
    "core.safecrlf",
    "core.whitespace",
    "diff.algorithm",
    "diff.colormoved",
    "diff.mnemonicprefix",
    "diff.renames",
    "fetch.prune",
    "init.defaultbranch",
    "log.date",
    "merge.conflictstyle",
    "merge.ff",
    "pull.ff",
    "pull.rebase",
    "push.autosetupremote",
    "push.default",
    "push.followtags",
    "rebase.autosquash",
    "rebase.autostash",
    "rebase.updaterefs",
    "rerere.enabled",
    "status.showuntrackedfiles",
    "user.email",
    "user.name",
];
/// The longest value, bytes.
const VALUE_BYTES_MAX: usize = 1024;

/// The settings of git outside that count inside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitSettings {
    values: Vec<(String, String)>,
    /// True if commits or tags are to be signed outside.
    pub(crate) signs: bool,
}

impl GitSettings {
    /// Takes settings as git lists them, each in effect: those of other keys, and values that are
    /// not one line, are left out. `signs` says whether commits or tags are to be signed.
    pub fn of(all: impl IntoIterator<Item = (String, String)>, signs: bool) -> Self {
        let is_plain =
            |value: &str| value.len() <= VALUE_BYTES_MAX && !value.chars().any(char::is_control);
        let all = all.into_iter();
        let values = all
            .filter(|(key, value)| GIT_KEYS.contains(&key.as_str()) && is_plain(value))
            .collect();
        Self { values, signs }
    }

    /// Returns the text of the file with these settings; `None` without any.
    pub(crate) fn text(&self) -> Option<String> {
        let line = |(key, value): &(String, String)| {
            let (section, name) = key.split_once('.').unwrap_or(("", key));
            let value = value.replace('\\', "\\\\").replace('"', "\\\"");
            format!("[{section}]\n\t{name} = \"{value}\"\n")
        };
        let text: String = self.values.iter().map(line).collect();
        (!text.is_empty()).then_some(text)
    }
}
