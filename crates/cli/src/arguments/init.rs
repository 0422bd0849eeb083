//! The definitions of `atoll init`.

use clap::{Args, ValueEnum};

/// Name Atoll's tools in the configuration of an agent
///
/// The agent starts `atoll mcp` from then on, and calls the tools of your tools.toml by it, in their
/// sandboxes and by your policies. Its own tools stay as they are, unless `--hook` is given.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct InitArguments {
    /// The agent.
    pub agent: Agent,
    /// Name `atoll hook` instead: it decides on the agent's own tools, and contains its commands.
    #[arg(long)]
    pub hook: bool,
    /// Take it back.
    #[arg(long)]
    pub undo: bool,
}

/// An agent with a configuration of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum Agent {
    Codex,
    Claude,
    Opencode,
    Gemini,
}

impl Agent {
    /// Returns its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Codex => "codex",
            Self::Claude => "claude",
            Self::Opencode => "opencode",
            Self::Gemini => "gemini",
        }
    }
}
