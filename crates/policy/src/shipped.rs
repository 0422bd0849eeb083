//! The profiles that ship with Atoll. Only requested ones are parsed; the commands that choose them
//! are repeated here, so that choosing parses nothing, and a test keeps both in step.

use crate::file::SourceFile;

/// A profile that ships with Atoll.
pub(crate) struct Shipped {
    pub(crate) name: &'static str,
    /// The file's name in messages and origins.
    pub(crate) file: &'static str,
    pub(crate) content: &'static str,
    /// The entries of its `commands`.
    pub(crate) commands: &'static [&'static str],
}

macro_rules! shipped {
    ($($name:literal: $commands:expr,)*) => {
        &[$(Shipped {
            name: $name,
            file: concat!("shipped/", $name, ".toml"),
            content: include_str!(concat!("../profiles/", $name, ".toml")),
            commands: &$commands,
        }),*]
    };
}

/// All profiles, in the order in which they are listed.
pub(crate) const ALL: &[Shipped] = shipped! {
    "default": [],
    "strict": [],
    "permissive": [],
    "rust": ["cargo", "rustc", "rustdoc", "rustfmt", "rustup", "cargo-clippy", "cargo-fmt"],
    "python": [
        "python", "python3", "pip", "pip3", "pipx", "pytest", "tox", "uv", "uvx", "poetry", "ruff",
        "mypy", "jupyter",
    ],
    "node": [
        "node", "npm", "npx", "pnpm", "pnpx", "yarn", "corepack", "bun", "bunx", "deno", "tsc",
    ],
    "go": ["go", "gofmt", "gopls", "golangci-lint", "staticcheck", "dlv"],
    "codex": ["codex"],
    "claude": ["claude"],
    "opencode": ["opencode"],
    "gemini": ["gemini"],
    "openclaw": ["openclaw"],
    "browser": [],
};

/// The agents that have a profile of their own, by their commands: without a key or a login none of
/// them does anything.
const AGENTS: [&str; 5] = ["codex", "claude", "opencode", "gemini", "openclaw"];

/// Returns the agent that a command starts, if it has a profile of its own.
#[must_use]
pub fn agent_of(command: &str) -> Option<&'static str> {
    AGENTS.into_iter().find(|agent| *agent == command)
}

impl Shipped {
    pub(crate) fn by_name(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|profile| profile.name == name)
    }

    pub(crate) fn by_command(command: &str) -> Option<&'static Self> {
        ALL.iter()
            .find(|profile| profile.commands.contains(&command))
    }

    /// Returns the preset of a language's package registry, which naming its profile on the command
    /// line implies. A command that chooses the profile does not.
    pub(crate) fn registry(&self) -> Option<&'static str> {
        match self.name {
            "rust" => Some("cargo"),
            "python" => Some("pip"),
            "node" => Some("npm"),
            "go" => Some("go"),
            _ => None,
        }
    }

    /// Returns why the profile's program does not work in a fence, if that is known.
    pub(crate) fn unfenced(&self) -> Option<&'static str> {
        match self.name {
            "opencode" => Some(
                "OpenCode aborts where namespaces are missing: it needs to read /proc of its own \
                 process, which nobody can in a fence",
            ),
            _ => None,
        }
    }

    pub(crate) fn source(&self) -> SourceFile<'static> {
        SourceFile::new(self.file, self.content.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_the_profiles_with_a_login_file() {
        let with_login = ALL.iter().filter(|one| one.content.contains("\n[login."));
        let commands: Vec<&str> = with_login.flat_map(|one| one.commands).copied().collect();
        assert_eq!(commands, AGENTS);
        assert_eq!(agent_of("claude"), Some("claude"));
        assert_eq!(agent_of("cargo"), None);
    }
}
