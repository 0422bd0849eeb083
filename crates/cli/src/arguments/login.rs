//! The definition of `atoll login`.

use std::ffi::OsString;

use clap::{Args, ValueHint};

const EXAMPLES: &str = "\
Examples:
  atoll login codex
      Codex logs in inside; ~/.codex/auth.json is written here.
  atoll login codex -- codex login --device-auth
      The same by a code that is typed in a browser anywhere.
  atoll login agent --profile ./agent.toml -- agent login --account work
      One that a profile of your own describes, by another command of it.";

/// Log an agent in from inside; its tokens stay outside
///
/// The agent's own login command runs in a sandbox, with nothing of this directory, for ten
/// minutes at most, and reaches who issues its tokens alone. What the issuer answers is caught on its way: inside is what stands for
/// the tokens. The login file that the agent has written is then written here, with the real
/// ones in it, or they go into the vault, as the profile says; and `atoll run -- codex` is
/// logged in.
///
/// The port at which the agent waits for the browser is open meanwhile at 127.0.0.1 and ::1
/// of this host, for you alone.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(
    verbatim_doc_comment,
    after_help = EXAMPLES,
    override_usage = "atoll login [OPTIONS] AGENT [-- COMMAND [ARGUMENT]...]"
)]
pub struct LoginArguments {
    /// The agent, by its command: what `atoll run -- AGENT` would start. Without one those are
    /// listed that ship.
    #[arg(value_name = "AGENT", default_value = "", hide_default_value = true)]
    pub agent: OsString,

    /// The profile that says how it logs in, by name or file. Default: the one for the command.
    #[arg(long, value_name = "NAME|FILE", value_hint = ValueHint::FilePath)]
    pub profile: Option<OsString>,

    /// Keep the login without asking. Default: asks on the terminal.
    #[arg(long)]
    pub yes: bool,

    /// How it logs in. Default: as the profile says.
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}
