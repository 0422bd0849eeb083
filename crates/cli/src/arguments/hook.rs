//! The definitions of `atoll hook`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Decide on an agent's own tools, as its hook
///
/// The agent starts it before it uses a tool (Claude Code and Codex as PreToolUse, Gemini CLI as
/// BeforeTool), writes the call to its standard input and reads the decision. Policies decide, and
/// the ledger has it. A shell command is rewritten so that it is carried out in the sandbox of the
/// agent's session. The agent's other tools are decided on, and not contained: for that start the
/// agent itself beneath `atoll run`. `atoll init AGENT --hook` names it in the agent's settings.
///
/// The exit status is 2, which agents take as a denial, if there is no decision.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(
    verbatim_doc_comment,
    override_usage = "atoll hook <AGENT>\n       atoll hook <AGENT> --session ID --workspace DIR -- COMMAND"
)]
pub struct HookArguments {
    /// The agent.
    pub agent: HookAgent,

    /// The agent's session, in whose sandbox the command is carried out. Set by what the hook writes.
    #[arg(long, value_name = "ID", requires = "command")]
    pub session: Option<String>,

    /// The directory that the session works on. Set by what the hook writes.
    #[arg(long, value_name = "DIR", requires = "command")]
    pub workspace: Option<PathBuf>,

    /// The digest of what a person has approved in the agent. Set by what the hook writes.
    #[arg(long, value_name = "DIGEST", requires = "command")]
    pub agreed: Option<String>,

    /// The text of a shell command, after `--`.
    #[arg(
        value_name = "COMMAND",
        last = true,
        requires = "session",
        requires = "workspace"
    )]
    pub command: Option<String>,
}

/// An agent that has hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum HookAgent {
    Claude,
    Codex,
    Gemini,
}

impl HookAgent {
    /// Returns its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
        }
    }

    /// Returns its name of the event before a tool is used.
    #[must_use]
    pub fn event(self) -> &'static str {
        match self {
            Self::Claude | Self::Codex => "PreToolUse",
            Self::Gemini => "BeforeTool",
        }
    }
}
