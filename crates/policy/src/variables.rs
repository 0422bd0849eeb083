//! Names of environment variables: those passed by default, and those passed only by their exact
//! name.

use std::ffi::OsStr;

use atoll_model::network::trust_variables;

use crate::document::Complaint;

/// The variables that are passed by default.
pub(crate) const PASSED: [&str; 10] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "COLORTERM",
    "LANG",
    "LC_*",
    "TZ",
];

/// The prefix of Atoll's own variables; nobody else sets or passes them.
const OWN_PREFIX: &str = "ATOLL_";

/// The name of the variable that holds the run's id.
pub(crate) const RUN: &str = "ATOLL_RUN";

/// The name of the variable that holds the directory of outputs, if there is one.
pub(crate) const OUTPUTS: &str = "ATOLL_OUTPUTS";

/// Words in a name that mark the value as a secret.
const SECRET_WORDS: [&str; 19] = [
    "TOKEN",
    "TOKENS",
    "SECRET",
    "SECRETS",
    "PASSWORD",
    "PASSWORDS",
    "PASSWD",
    "PASSPHRASE",
    "PASS",
    "PWD",
    "KEY",
    "KEYS",
    "CREDENTIAL",
    "CREDENTIALS",
    "AUTH",
    "PAT",
    "COOKIE",
    "DSN",
    "NETRC",
];

/// Endings of words that mark it too (`GITHUBTOKEN`, `apikey`).
const SECRET_ENDINGS: [&str; 4] = ["TOKEN", "SECRET", "PASSWORD", "KEY"];

/// Names, or prefixes with `*`, of variables that lead to a service of the host or hold a secret
/// without saying so.
const HOST_SERVICES: [&str; 27] = [
    "AWS_*",
    "SSH_*",
    "GPG_*",
    "DBUS_*",
    "XAUTHORITY",
    "ICEAUTHORITY",
    "DISPLAY",
    "WAYLAND_*",
    "DOCKER_*",
    "CONTAINER_HOST",
    "PODMAN_*",
    "KUBECONFIG",
    "KRB5CCNAME",
    "XDG_RUNTIME_DIR",
    "GNOME_KEYRING_*",
    "SESSION_MANAGER",
    "PULSE_*",
    "PIPEWIRE_*",
    "TMUX*",
    "STY",
    "VSCODE_*",
    "DATABASE_URL",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "AZURE_*",
    "VAULT_*",
    "MYSQL_PWD",
    "AT_SPI_*",
];

/// Names of variables that make programs load or run something else.
const STEERING: [&str; 16] = [
    "LD_*",
    "DYLD_*",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "BASH_ENV",
    "BASH_FUNC_*",
    "ENV",
    "PROMPT_COMMAND",
    "NODE_OPTIONS",
    "PYTHONSTARTUP",
    "PERL5OPT",
    "PERL5LIB",
    "RUBYOPT",
    "JAVA_TOOL_OPTIONS",
    "GIT_*",
    "IFS",
];

/// A variable's name, or names with one `*` in place of any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern(String);

impl Pattern {
    /// Parses a name or pattern of variables to pass.
    pub(crate) fn parse_passed(text: &str) -> Result<Self, Complaint> {
        let pattern = Self::parse(text)?;
        if is_own(text) {
            return Err(format!("{text:?} is Atoll's own").into());
        }
        Ok(pattern)
    }

    /// Parses a name or pattern.
    pub(crate) fn parse(text: &str) -> Result<Self, Complaint> {
        let rest = text.replacen('*', "", 1);
        if rest.is_empty() && !text.is_empty() {
            return Err(Complaint::new(
                "\"*\" would name the whole environment",
                "name the variables, as \"RUST_LOG\" or \"CARGO_*\"",
            ));
        }
        if !is_name(&rest) {
            return Err(Complaint::new(
                format!("{text:?} is not a variable's name"),
                "write a name, or a beginning or end with one `*`, as \"CARGO_*\"",
            ));
        }
        Ok(Self(text.to_owned()))
    }

    pub(crate) fn built_in(text: &str) -> Self {
        Self(text.to_owned())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name, if it is a single one.
    pub(crate) fn exact(&self) -> Option<&str> {
        (!self.0.contains('*')).then_some(self.0.as_str())
    }

    /// Returns whether it matches this variable, wildcards included.
    pub(crate) fn matches(&self, name: &OsStr) -> bool {
        matches(&self.0, name)
    }

    /// Returns whether it passes this variable: a wildcard passes nothing that looks like a secret,
    /// leads to the host, steers programs, or is Atoll's own.
    pub(crate) fn passes(&self, name: &OsStr) -> bool {
        let Some(text) = name.to_str() else {
            return false;
        };
        let named = self.exact() == Some(text);
        self.matches(name) && !is_own(text) && (named || needs_its_name(text).is_none())
    }
}

fn matches(pattern: &str, name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    match pattern.split_once('*') {
        None => name == pattern.as_bytes(),
        Some((start, end)) => {
            name.len() >= start.len() + end.len()
                && name.starts_with(start.as_bytes())
                && name.ends_with(end.as_bytes())
        }
    }
}

/// Returns whether the text can be a variable's name.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'=' && byte != b'*')
}

/// Returns whether the name is one of Atoll's own.
pub(crate) fn is_own(name: &str) -> bool {
    name.starts_with(OWN_PREFIX)
}

/// Returns whether such a variable has a meaning to programs other than a secret: those passed by
/// default, those that steer programs, and those that Atoll sets itself.
pub(crate) fn is_for_something_else(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    let listed = |list: &[&str]| list.iter().any(|one| matches(one, OsStr::new(&upper)));
    let mut trusted = trust_variables("");
    listed(&PASSED)
        || listed(&STEERING)
        || upper.ends_with("_PROXY")
        || trusted.any(|(one, _)| one == name)
}

/// Returns why a variable is passed only by its exact name.
pub(crate) fn needs_its_name(name: &str) -> Option<&'static str> {
    let upper = name.to_ascii_uppercase();
    let is_secret_word = |word: &str| {
        SECRET_WORDS.contains(&word) || SECRET_ENDINGS.iter().any(|end| word.ends_with(end))
    };
    let listed = |list: &[&str]| list.iter().any(|one| matches(one, OsStr::new(&upper)));
    if upper == "PWD" || upper == "OLDPWD" {
        return None;
    }
    if upper
        .split(|c: char| !c.is_ascii_alphanumeric())
        .any(is_secret_word)
    {
        Some("it looks like a secret")
    } else if listed(&HOST_SERVICES) {
        Some("it leads to a service of the host or to its credentials")
    } else if listed(&STEERING) {
        Some("it makes programs load or run something else")
    } else {
        None
    }
}

/// Checks that anyone other than Atoll may set a variable of this name to this value.
pub(crate) fn check_variable(name: &str, value: &str) -> Result<(), String> {
    if !is_name(name) {
        return Err(format!("{name:?} is not a variable's name"));
    }
    if is_own(name) {
        return Err(format!("{name} is Atoll's own"));
    }
    if value.contains('\0') {
        return Err("a value cannot hold a NUL".to_owned());
    }
    Ok(())
}
