//! The definitions of the commands about the ledger.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

/// Verify and read the tamper-evident record of everything that ran.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct LedgerArguments {
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub action: LedgerAction,
}

/// What to do with the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
#[allow(missing_docs)]
pub enum LedgerAction {
    Verify(VerifyLedgerArguments),
    Tail(TailLedgerArguments),
    Show(ShowLedgerArguments),
    Query(QueryLedgerArguments),
    Key(KeyLedgerArguments),
    /// Sign how far the ledger is now, and print that checkpoint.
    Checkpoint,
    Witness(WitnessLedgerArguments),
    Prove(ProveLedgerArguments),
    CheckProof(CheckProofArguments),
    Export(ExportLedgerArguments),
    Shred(ShredLedgerArguments),
    Hold(HoldLedgerArguments),
    /// End a hold, so that what it kept can be shredded and swept.
    Release(HoldLedgerArguments),
}

/// Destroy the keys of what is sealed in the ledger, for good
///
/// Commands, paths and errors' words are sealed with a key of each run. The events stay, and
/// their hashes; `verify` passes as before. It cannot be taken back.
/// Example: atoll ledger shred fix-login, atoll ledger shred --older-than 90d
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
#[group(required = true, multiple = false)]
pub struct ShredLedgerArguments {
    /// A session, by its name or id, a tenant, or a run: its whole id, or last.
    #[arg(value_name = "SESSION|TENANT|RUN")]
    pub what: Option<String>,

    /// Of all runs that began longer ago than this: as 12h, 90d.
    #[arg(long, value_name = "TIME")]
    pub older_than: Option<String>,
}

/// Keep data from being shredded and swept
///
/// Of sessions and tenants also what is to come.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct HoldLedgerArguments {
    /// A session, by its name or id, a tenant, or a run: its whole id, or last.
    #[arg(value_name = "SESSION|TENANT|RUN")]
    pub what: String,
}

/// Print the public key that checks the ledger's checkpoints
///
/// Example: atoll ledger key, atoll ledger key rotate
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct KeyLedgerArguments {
    /// What to do with the key. Default: print it.
    #[command(subcommand)]
    pub action: Option<KeyAction>,
}

/// What to do with the ledger's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub enum KeyAction {
    /// Put another key in its place, by a hand-over that the ledger records
    ///
    /// Both keys sign it, so that `verify` follows from either: whoever has the old one, and
    /// what witnesses were given, goes on to count. The old one signs nothing more.
    #[command(verbatim_doc_comment)]
    Rotate,
    /// Sign with a new key because the one that has signed is lost
    ///
    /// What the old key has signed cannot be checked any more: whoever checks the ledger needs
    /// the new key, and witnesses a new file. The ledger tells for ever that it was so. First
    /// look for a copy of the directory ledger-key: putting it back costs nothing of this.
    #[command(verbatim_doc_comment)]
    Lost,
}

/// Print the last events: time, type, run, outcome
///
/// Example: atoll ledger tail -n 50, atoll ledger tail -f
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct TailLedgerArguments {
    /// How many events.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 10)]
    pub number: u64,

    /// Go on printing events as they are written, until interrupted. Default: off.
    #[arg(long, short)]
    pub follow: bool,

    /// Print JSON, one object a line: all of each event. Default: a table.
    #[arg(long)]
    pub json: bool,
}

/// Print the events of one run, or all: time, type, run, outcome
///
/// Example: atoll ledger show last, atoll ledger show last --json
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct ShowLedgerArguments {
    /// The run: its id, its beginning or end, or `last`. Default: all runs.
    #[arg(value_name = "RUN")]
    pub run: Option<String>,

    /// Print JSON, one object a line: all of each event. Default: a table.
    #[arg(long)]
    pub json: bool,
}

/// Check digests, chain and signatures: find a change, a cut, a swap
///
/// With --witness it finds as well what fits in itself: a ledger that was rolled back,
/// forked or written anew with everything that belongs to it.
/// Example: atoll ledger verify --witness /mnt/elsewhere/checkpoints
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct VerifyLedgerArguments {
    /// A file of checkpoints that a witness has: each must be of this ledger. Repeatable.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub witness: Vec<PathBuf>,

    /// The key that must have signed, as `atoll ledger key` printed it. Default: this
    /// deployment's own.
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
}

/// What policies are asked about, and events tell of.
const ACTIONS: [&str; 10] = [
    "run",
    "read",
    "write",
    "use_credential",
    "publish",
    "resolve",
    "connect",
    "request",
    "promote",
    "restore",
];

/// Print the events that fit all that is asked for
///
/// Example: atoll ledger query --type flow --host example.com --since 2026-11-21
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct QueryLedgerArguments {
    /// Of this run: its id, its beginning or end, or `last`. Default: any.
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,

    /// Of this session and its runs: its name or id. Default: any.
    #[arg(long, value_name = "NAME")]
    pub session: Option<String>,

    /// Of runs that this user has started: a number or a name. Default: any.
    #[arg(long, value_name = "USER")]
    pub principal: Option<String>,

    /// About this action of policies: run, read, write, use_credential, publish, resolve,
    /// connect, request, promote or restore. Default: any.
    #[arg(long, value_name = "ACTION", value_parser = ACTIONS, verbatim_doc_comment)]
    pub action: Option<String>,

    /// Of this type, or of those that begin with it and a dot. Default: any.
    #[arg(long = "type", value_name = "TYPE")]
    pub kind: Option<String>,

    /// With this verdict: allow, ask or deny; what was refused on its way is deny, what was
    /// opened allow. Default: any, or none.
    #[arg(long, value_name = "VERDICT", value_parser = ["allow", "ask", "deny"], verbatim_doc_comment)]
    pub verdict: Option<String>,

    /// About a host whose name has this in it. Default: any.
    #[arg(long, value_name = "TEXT")]
    pub host: Option<String>,

    /// About a path that has this in it. Default: any.
    #[arg(long, value_name = "TEXT")]
    pub path: Option<String>,

    /// Not before this time, UTC: the beginning of RFC 3339, or so long ago, as 12h, 90d.
    /// Default: the beginning.
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,

    /// Not after this time, or so long ago; a day is meant as a whole. Default: the end.
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,

    /// Print each event as it is in the ledger, a JSON object a line. Default: off.
    #[arg(long)]
    pub json: bool,
}

/// Give a checkpoint to a witness elsewhere
///
/// A checkpoint is made first. The file is added to; a command gets the checkpoint on its
/// standard input. Keep the file where whoever can write here cannot: another machine,
/// append-only storage.
/// Example: atoll ledger witness /mnt/elsewhere/checkpoints
/// Example: atoll ledger witness --url https://witness.example.com --key "$WITNESS_KEY"
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct WitnessLedgerArguments {
    /// The file that it is added to.
    #[arg(
        value_name = "FILE",
        required_unless_present_any = ["command", "never", "url"],
        conflicts_with_all = ["command", "url"],
        value_hint = ValueHint::FilePath
    )]
    pub file: Option<PathBuf>,

    /// Give it each checkpoint from now on, at the end of every run. There is one such
    /// witness; it is on record. Default: this one only.
    #[arg(long, verbatim_doc_comment)]
    pub always: bool,

    /// Give no checkpoint at the end of runs any more. Default: as it was.
    #[arg(long, conflicts_with_all = ["file", "command", "always", "url"])]
    pub never: bool,

    /// A witness on the network, which signs the checkpoint as well: where it takes them,
    /// before /add-checkpoint (C2SP's tlog-witness). The signed one is printed.
    #[arg(long, value_name = "URL", requires = "key", conflicts_with = "command")]
    pub url: Option<String>,

    /// The witness's own key, as it gives it out: NAME+ID+KEY.
    #[arg(long, value_name = "KEY", requires = "url")]
    pub key: Option<String>,

    /// The command that it is given to, with its arguments; the last option.
    #[arg(
        long,
        value_name = "COMMAND",
        num_args = 1..,
        allow_hyphen_values = true
    )]
    pub command: Vec<OsString>,
}

/// Prove something about the ledger to somebody without it
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct ProveLedgerArguments {
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub action: ProveAction,
}

/// What to prove.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
#[allow(missing_docs)]
pub enum ProveAction {
    Inclusion(ProveInclusionArguments),
    Consistency(ProveConsistencyArguments),
}

/// Prove that an event, or every event of a run, is in the ledger
///
/// The newest checkpoint has to cover it: atoll ledger checkpoint makes one.
/// Example: atoll ledger prove inclusion last --to proofs
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct ProveInclusionArguments {
    /// The event's number (its seq), or a run: its id, its beginning or end, or `last`.
    #[arg(value_name = "SEQ|RUN")]
    pub what: String,

    /// Write each proof to DIR/SEQ.tlog-proof, for atoll ledger check-proof and other
    /// checkers of C2SP's proofs. The event is in it. Default: nothing is written.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, verbatim_doc_comment)]
    pub to: Option<PathBuf>,

    /// Print JSON. Default: off.
    #[arg(long)]
    pub json: bool,
}

/// Prove that the ledger only grew since it had so many events
///
/// Example: atoll ledger prove consistency 120 --to proofs
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct ProveConsistencyArguments {
    /// How many events there were: the size of a checkpoint that somebody has.
    #[arg(value_name = "SIZE")]
    pub size: u64,

    /// Write the proof to DIR/SIZE-SIZE.consistency, for atoll ledger check-proof. Default:
    /// nothing is written.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, verbatim_doc_comment)]
    pub to: Option<PathBuf>,

    /// Print JSON. Default: off.
    #[arg(long)]
    pub json: bool,
}

/// Check a proof without the ledger
///
/// One of consistency needs the checkpoint from before, as a witness has it.
/// Example: atoll ledger check-proof 12.tlog-proof --key "$KEY"
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct CheckProofArguments {
    /// The proof.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    /// The ledger's key, as `atoll ledger key` printed it.
    #[arg(long, value_name = "KEY")]
    pub key: String,

    /// A file of checkpoints from before, as a witness has it. Repeatable.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub witness: Vec<PathBuf>,

    /// A proof that the key was replaced by another: of an event `key.rotated`, as `atoll
    /// ledger prove inclusion SEQ` writes it. --key is the one before or the one after.
    /// Repeatable.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, verbatim_doc_comment)]
    pub handover: Vec<PathBuf>,

    /// Print JSON. Default: off.
    #[arg(long)]
    pub json: bool,
}

/// Write the ledger as others read it
///
/// Tiles are those of C2SP's tlog-tiles: a directory to be served by any web server.
/// OCSF is what tools that watch over machines read. A collector of OpenTelemetry gets
/// traces, logs and metrics, each event once; OTEL_EXPORTER_OTLP_HEADERS goes along.
/// Example: atoll ledger export --tiles /srv/log
/// Example: atoll ledger export --format ocsf > events.jsonl
/// Example: atoll ledger export --otlp http://127.0.0.1:4318 --follow
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
#[command(group = clap::ArgGroup::new("form").required(true).args(["tiles", "format", "otlp"]))]
pub struct ExportLedgerArguments {
    /// Write checkpoint, tiles of hashes and bundles of events to this directory.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub tiles: Option<PathBuf>,

    /// Print every event on a line, in this form.
    #[arg(long, value_name = "FORM")]
    pub format: Option<ExportFormat>,

    /// Decrypt sealed fields if the key is here; a collector of OpenTelemetry then gets the names
    /// of programs alone. Default: they stay sealed.
    #[arg(long, conflicts_with = "tiles")]
    pub unsealed: bool,

    /// Send what was not sent there yet to a collector, by OTLP/HTTP: https://HOST[:PORT][/PATH]
    /// or http://….
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub otlp: Option<String>,

    /// Go on with what happens, until interrupted. Default: off.
    #[arg(long, requires = "otlp", conflicts_with_all = ["tiles", "format"])]
    pub follow: bool,

    /// Send everything, whatever was sent before. Default: off.
    #[arg(long, requires = "otlp", conflicts_with_all = ["tiles", "format"])]
    pub again: bool,
}

/// A form of events for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ExportFormat {
    /// As they are in the ledger.
    Jsonl,
    /// The Open Cybersecurity Schema Framework, version 1.6.0.
    Ocsf,
}
