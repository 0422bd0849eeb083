//! The definitions of `atoll artifacts`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

/// List, show and promote what sandboxes have put out
///
/// A file that a program writes to /outputs (`atoll run --outputs`; always in a sandbox of a server
/// or a tool) becomes an artifact at the end: encrypted, with its digests and a signed statement of
/// where it is from. It waits: nobody gets its content before it is promoted.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(
    verbatim_doc_comment,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct ArtifactsArguments {
    /// Those of this tenant of a server on this machine. Default: those of your own runs and tools.
    #[arg(long, global = true, value_name = "NAME")]
    pub tenant: Option<String>,
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub action: ArtifactsAction,
}

/// The action on artifacts.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
#[allow(missing_docs)]
pub enum ArtifactsAction {
    #[command(alias = "ls")]
    List(ListArtifactsArguments),
    Show(ShowArtifactArguments),
    Get(GetArtifactArguments),
    Scan(ScanArtifactsArguments),
    Promote(PromoteArtifactsArguments),
    Reject(RejectArtifactArguments),
}

/// List artifacts, the newest run first
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct ListArtifactsArguments {
    /// Those of one run.
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// Those of one state: held, promoted or rejected. Default: all.
    #[arg(long, value_name = "STATE", value_parser = ["held", "promoted", "rejected"])]
    pub state: Option<String>,
    /// Print JSON: a list. Default: a line for each.
    #[arg(long)]
    pub json: bool,
}

/// Show what is known of an artifact, or the statement about it
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct ShowArtifactArguments {
    /// Its id, or the first digits of it.
    pub id: String,
    /// Print the signed statement about it and what came with it: an in-toto statement with SLSA
    /// provenance, in a DSSE envelope signed by the ledger's key (`atoll ledger key`).
    #[arg(long, conflicts_with = "json", verbatim_doc_comment)]
    pub statement: bool,
    /// Print JSON. Default: lines.
    #[arg(long)]
    pub json: bool,
}

/// Write the content of a promoted artifact to standard output
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct GetArtifactArguments {
    /// Its id, or the first digits of it.
    pub id: String,
}

/// Look for secrets, personal data and hostile content in artifacts
///
/// Each scanner runs in a sandbox of its own, without a network. What it says is kept with the
/// artifact (`show`). One that fails says nothing of the content: that counts as a finding.
/// Status 1 if there is one.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct ScanArtifactsArguments {
    /// Their ids, or the first digits of each. Default: all that wait.
    pub ids: Vec<String>,
    /// Rules for secrets in the format of gitleaks, in place of those built in; with
    /// `[extend] useDefault = true` beside them.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, verbatim_doc_comment)]
    pub rules: Option<PathBuf>,
    /// Print JSON: a list. Default: a line for each finding.
    #[arg(long)]
    pub json: bool,
}

/// Promote artifacts: their content is given out from then on
///
/// Policies decide (`promote`), and the decision is in the ledger first.
/// Example: atoll artifacts promote 3f9c --to ~/reports
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct PromoteArtifactsArguments {
    /// Their ids, or the first digits of each.
    #[arg(required = true)]
    pub ids: Vec<String>,
    /// Also write each to this directory, by its own name. A file that is there is not replaced.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub to: Option<PathBuf>,
    /// The reason, for the ledger.
    #[arg(long, value_name = "TEXT")]
    pub why: Option<String>,
}

/// Reject an artifact: its content is not given out
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct RejectArtifactArguments {
    /// Its id, or the first digits of it.
    pub id: String,
    /// The reason, for the ledger.
    #[arg(long, value_name = "TEXT")]
    pub why: Option<String>,
}
