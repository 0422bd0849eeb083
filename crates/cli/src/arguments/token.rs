//! The definitions of `atoll token`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

const TOKEN_EXAMPLES: &str = "\
Examples:
  atoll token issue --allow 'request GET https://api.example.com/v1/*' --until 2h >token
  atoll token attenuate token --until 10m >narrower
  atoll token show narrower
  atoll run --token narrower --allow api.example.com -- agent
  atoll token revoke token             ends what holds it, or anything made from it";

/// Issue, narrow and revoke tokens that say what a run may do
///
/// What leaves a run that is given one has to be carried by it, and allowed by rules and
/// policies as ever. Whoever holds one can narrow it, without a key; nobody can widen it.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(
    verbatim_doc_comment,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = TOKEN_EXAMPLES
)]
pub struct TokenArguments {
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub action: TokenAction,
}

/// What to do with tokens.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
#[allow(missing_docs)]
pub enum TokenAction {
    Issue(IssueTokenArguments),
    #[command(alias = "narrow")]
    Attenuate(AttenuateTokenArguments),
    #[command(alias = "verify")]
    Show(ShowTokenArguments),
    Revoke(RevokeTokenArguments),
    List(ListTokensArguments),
    Key(KeyTokenArguments),
}

/// What a token carries, or is narrowed to
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct TermsArguments {
    /// Something that it carries. Can be repeated. One of
    ///   connect HOST:PORT, request METHOD URL, resolve HOST, use-credential NAME, publish PORT
    /// HOST is a name, *.NAME, an address or *; a URL's path may end with /*.
    /// Example: --allow 'request GET https://api.example.com/v1/*'
    #[arg(long = "allow", value_name = "RIGHT", verbatim_doc_comment)]
    pub allow: Vec<String>,

    /// When it ends: a time from now on, or RFC 3339. Default: never, or as before.
    /// Example: --until 10m, --until 2026-11-30T18:00:00Z
    #[arg(long, value_name = "TIME", verbatim_doc_comment)]
    pub until: Option<String>,

    /// It counts for runs of this session alone. Default: for any, or as before.
    #[arg(long, value_name = "NAME")]
    pub session: Option<String>,

    /// It counts for runs in this workspace alone. Default: in any, or as before.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub workspace: Option<PathBuf>,

    /// It counts in one run alone: the first that is started with it, or with anything made from
    /// it. Default: in any, or as before.
    #[arg(long, verbatim_doc_comment)]
    pub once: bool,
}

/// Issue a token, and print it
///
/// Whoever has it holds it: keep it as you keep a key.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct IssueTokenArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub terms: TermsArguments,
}

/// Narrow a token, and print the narrower one
///
/// It takes no key and asks nobody. What is not among the rights that are named here is not
/// carried any more; without any they stay as they are.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct AttenuateTokenArguments {
    /// The file that the token is in; `-` is standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    pub token: PathBuf,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub terms: TermsArguments,
}

/// Show what a token carries, and whether it counts
///
/// The status is 1 where it does not.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct ShowTokenArguments {
    /// The file that the token is in; `-` is standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    pub token: PathBuf,

    /// Print JSON: one object. Default: lines for people.
    #[arg(long)]
    pub json: bool,
}

/// Revoke a token, with everything that was made from it
///
/// Runs that hold one of them have no network any more, within two seconds.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct RevokeTokenArguments {
    /// The file that the token is in, `-` for standard input, or an id of `atoll token list`
    #[arg(value_name = "TOKEN|ID", value_hint = ValueHint::FilePath)]
    pub token: String,
}

/// Name the tokens that were issued
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct ListTokensArguments {
    /// Print JSON: one object. Default: lines for people.
    #[arg(long)]
    pub json: bool,
}

/// Print the public key by which tokens are known
///
/// It is made with the first token; before that there is none.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct KeyTokenArguments {}
