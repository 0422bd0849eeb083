//! The definitions of the commands about Atoll itself: profiles, trust, the
//! machine, disk space, and help for shells.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;

/// Remove kept data whose time is over, and free its disk space
///
/// Runs that were gone on with (--resume) are removed, and those applied or taken back
/// more than 30 days ago. Kept, partly applied, failed and interrupted ones stay, unless
/// --older-than or retention.toml names an age. Checkpoints, undo notes and files of hooks
/// go after 30 days, events of a server's sandboxes after 90. `atoll help retention` has
/// all classes. Each removal is on record first, and a hold stops it. A session of which
/// no run is left has its labels in the ledger alone from then on.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct GcArguments {
    /// Remove every run whose state has not changed for so long
    ///
    /// Kept changes are thrown away with it, and applied ones can no longer be undone:
    /// of these, checkpoints and undo notes the age counts instead of that of the class
    /// layer. In s, m, h, d. Default: no changes are thrown away.
    /// Example: --older-than 30d
    #[arg(long, value_name = "TIME", verbatim_doc_comment)]
    pub older_than: Option<String>,

    /// Say what would go and how much it holds, and remove nothing. Default: off.
    #[arg(long)]
    pub dry_run: bool,

    /// Print JSON: one object, with sums by class and each thing. Default: text.
    #[arg(long)]
    pub json: bool,
}

/// List the rules for the network that come with Atoll, or show one
///
/// They are named by --preset, or by presets under [network] of a profile.
/// Example: atoll profile presets git-read
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct PresetsArguments {
    /// The one to show, as it is written. Default: a list of all.
    #[arg(value_name = "NAME")]
    pub name: Option<String>,

    /// Print JSON: one array, an object for each preset. Default: text.
    #[arg(long)]
    pub json: bool,
}

/// List, show and check profiles: what a program may see and do.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct ProfileArguments {
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub action: ProfileAction,
}

/// What to do with profiles.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
#[allow(missing_docs)]
pub enum ProfileAction {
    List(ListProfilesArguments),
    Show(ShowProfileArguments),
    Check(CheckProfileArguments),
    Presets(PresetsArguments),
    Reputation(ReputationArguments),
}

/// List the profiles, with the commands that choose them
///
/// Those of your own come with their file; one with mistakes is marked, with the first.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment, visible_alias = "ls")]
pub struct ListProfilesArguments {
    /// Print JSON: one array, an object for each profile. Default: text.
    #[arg(long)]
    pub json: bool,
}

/// Show all that a profile grants on this machine, defaults included
///
/// As a profile file, with where each value comes from in comments: paste what you
/// want to change into one of your own.
/// Example: atoll profile show rust > ~/.config/atoll/profiles/mine.toml
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct ShowProfileArguments {
    /// The profile's name, or its file.
    #[arg(value_name = "NAME|FILE", default_value = "default", value_hint = ValueHint::FilePath)]
    pub name: OsString,

    /// Print JSON: one object, each value with where it comes from. Default: a profile file.
    #[arg(long)]
    pub json: bool,
}

/// Tell what the runs by a profile have earned
///
/// It is worked out from the ledger: a run earns once you have applied its changes or said yes to
/// what it asked; attempts to get out, credentials on their way elsewhere, a no, a stop and what
/// you take back cost. Both are forgotten in time, the good sooner.
/// Example: atoll profile reputation codex
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct ReputationArguments {
    /// The profile's name. One of which no run is known has 0.
    #[arg(value_name = "NAME", default_value = "default")]
    pub name: String,

    /// Print JSON: one object. Default: text.
    #[arg(long)]
    pub json: bool,
}

/// Check a profile or a file: what is wrong, with line and suggestion
///
/// Notes say what is right and worth knowing, as that a credential is never used.
/// Example: atoll profile check ./atoll.toml
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct CheckProfileArguments {
    /// The profile's name, or the file to check.
    #[arg(value_name = "NAME|FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
}

/// Let a project's own rules count, for their present content
///
/// They are its `atoll.toml` and every `*.cedar` beside it, and shown first. The first can name a profile, show further
/// places and set variables, as you could; all else only tightens, and the organisation's file
/// stands above it. The others only take away. What changes has to be trusted again.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct TrustArguments {
    /// The project's directory. Default: the current directory.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub directory: Option<PathBuf>,

    /// No longer trust it. Default: trust it.
    #[arg(long)]
    pub revoke: bool,

    /// List what is trusted, with digests, and change nothing.
    #[arg(long, conflicts_with_all = ["directory", "revoke"])]
    pub list: bool,
}

const DOCTOR_STATUSES: &str = "\
Exit status:
  0        everything that Atoll can enforce anywhere is enforced here
  1        `atoll run` works, and something is weaker: a fence, or limits not held
  3        `atoll run` does not start
  125      wrong usage, or an error of Atoll's own
With --require: 0 when all that is named is held, 1 when not.";

/// Tell what this machine enforces, and how to mend what it cannot
///
/// What is weaker or missing comes with the reason and a command to paste. Nothing on
/// the machine is changed.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment, after_help = DOCTOR_STATUSES)]
pub struct DoctorArguments {
    /// Print JSON: one object, described in `atoll help doctor`. Default: text.
    #[arg(long)]
    pub json: bool,

    /// What the exit status is about; may be given again. Default: everything.
    /// Example: --require full --require limits
    #[arg(long, value_name = "WHAT", value_enum, verbatim_doc_comment)]
    pub require: Vec<Requirement>,

    /// Print a profile that lets this program make user namespaces, for AppArmor
    ///
    /// For hosts with kernel.apparmor_restrict_unprivileged_userns, as Ubuntu 24.04.
    /// Example: atoll doctor --apparmor-profile | sudo tee /etc/apparmor.d/atoll
    /// then:    sudo apparmor_parser -r /etc/apparmor.d/atoll
    #[arg(long, conflicts_with_all = ["json", "require"], verbatim_doc_comment)]
    pub apparmor_profile: bool,
}

/// What a script may ask of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Requirement {
    /// `atoll run` works, in whichever mode.
    Fence,
    /// `atoll run` works in namespaces.
    Full,
    /// No limit is held in part, or by nothing, that other hosts hold.
    Limits,
}

/// Print a completion script for a shell
///
/// Example: atoll completions bash > ~/.local/share/bash-completion/completions/atoll
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct CompletionsArguments {
    /// The shell.
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Write the manual pages, one for each command, into a directory
///
/// Example: atoll man ~/.local/share/man/man1
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct ManArguments {
    /// The directory. Default: the page of `atoll` itself, on standard output.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub directory: Option<PathBuf>,
}
