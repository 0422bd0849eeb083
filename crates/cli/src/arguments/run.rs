//! The definition of `atoll run`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use atoll_model::network::CredentialName;
use clap::{Args, ValueHint};

use crate::ask_key::AskKey;

const EXAMPLES: &str = "\
Exit status:
  N        the command's own status
  124      a time limit ended it (--timeout, --limit wall-clock=… or idle=…)
  125      an error of Atoll's own; the command may not have started
  126      denied by policy, or found but not executable
  127      the command was not found inside the boundary
  128 + n  signal n ended it (137: killed, also by the memory or the disk limit)

Examples:
  atoll run -- npm test
      Run the tests of this directory. The network is off, the home directory is
      empty, and what is written goes to a layer to look at afterwards.

  atoll run --profile codex -- codex
      Run a coding agent with what it needs and nothing else. At its end, see the
      changes and choose to apply, keep or discard them.

  atoll run --discard --timeout 30s --limit memory=512MiB -- ./untrusted-script
      Try something out; nothing of it stays.

  atoll run --ro ~/data --env SEED=7 -- python3 analyse.py
      Let the program read one more directory, and set a variable.

  atoll run --preset npm --allow 'GET https://api.example.com/v1/**' -- npm test
      Let it reach the packages of npm, and read one API.

  atoll run --resume last -- cargo test
      Go on where the last run stopped, with its changes in place.

What a profile alone can say, a file that --profile names: credentials and keys that stay
outside, repositories of git by name, packages by name, age or lock file, limits of a rule,
proxies, what is denied. `atoll profile show NAME` prints one to start from, `atoll profile
check FILE` reads yours; atoll help profiles has every key.

Afterwards: `atoll diff`, `atoll apply RUN`, `atoll discard RUN`, `atoll why`.";

/// Run a program inside a boundary; what it writes is kept apart
///
/// The program sees the system read-only, an empty home directory and the
/// workspace. What it writes there goes to a layer of Atoll's own; the real
/// directory changes only when that layer is applied.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(
    verbatim_doc_comment,
    after_long_help = EXAMPLES,
    override_usage = "atoll run [OPTIONS] -- COMMAND [ARGUMENT]..."
)]
pub struct RunArguments {
    /// The login that is issued in it; none for a run that is asked for as one.
    #[arg(skip)]
    pub login: Option<CredentialName>,

    /// What the program may see, use and change: a profile's name or file
    ///
    /// Default: what the project's trusted atoll.toml names, else the one for the command
    /// (as `rust` for cargo), else `default`. `atoll profile list` lists them. A value
    /// with a `/` or ending in `.toml` is a file.
    /// Example: --profile rust, --profile ./ci.toml
    #[arg(long, value_name = "NAME|FILE", value_hint = ValueHint::FilePath, verbatim_doc_comment)]
    pub profile: Option<OsString>,

    /// The directory to work on
    ///
    /// Default: the current directory. Never `/`, the home directory itself, one that
    /// holds Atoll's own state or, for root, one within /usr, /etc, /opt and such.
    /// Example: --workspace ~/src/project
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, verbatim_doc_comment)]
    pub workspace: Option<PathBuf>,

    /// Write straight to the workspace, after a checkpoint that `atoll undo` returns to
    ///
    /// For when an editor outside must see changes at once. Control files (git hooks,
    /// CI files, editor tasks …) that exist stay read-only; new ones are shown apart
    /// at the end. Sockets and pipes that exist lead nowhere. Default: off, writes go
    /// to a layer.
    #[arg(long, conflicts_with_all = ["apply", "resume"], verbatim_doc_comment)]
    pub live: bool,

    /// Be root inside, over a system that can be changed in layers
    ///
    /// For apt-get install, pip install, useradd, chown and such. The host's system stays
    /// as it is: what changes of it belongs to the run and is never applied. What only
    /// root may read on the host is not there. Not with --live. Default: off.
    #[arg(long, conflicts_with = "live", verbatim_doc_comment)]
    pub root: bool,

    /// Let the program make sandboxes of its own: namespaces, and mounts in them
    ///
    /// For an agent's own bwrap, a browser's sandbox, rootless Podman. More of the kernel
    /// can be reached, Landlock holds no files (the mounts alone do), and attempts to get
    /// out are refused unheard. Not with --live. Default: off.
    #[arg(long, conflicts_with = "live", verbatim_doc_comment)]
    pub nesting: bool,

    /// Give the program a directory, /outputs, whose files wait as artifacts for a decision
    ///
    /// The program creates files there and writes to them. It cannot read, list, rename or
    /// remove them, nor make directories. At the end each becomes an artifact, encrypted and
    /// with a signed statement of where it is from: `atoll artifacts` lists, shows and promotes
    /// them. ATOLL_OUTPUTS holds the path. Not with --nesting. Default: off.
    #[arg(long, conflicts_with = "nesting", verbatim_doc_comment)]
    pub outputs: bool,

    /// Let the profile's next run see the package and build caches that this one fills
    ///
    /// Those that the profile names (`[home] cache`, as ~/.npm); the home outside stays as it
    /// is. Default: what the profile says (`[home] keep-caches`), else off.
    #[arg(long, verbatim_doc_comment)]
    pub keep_caches: bool,

    /// One more directory or file that the program may read, at the same path inside
    ///
    /// Can be given several times. Default: none.
    /// Example: --ro ~/data --ro /srv/models
    #[arg(long, value_name = "DIR", value_hint = ValueHint::AnyPath, verbatim_doc_comment)]
    pub ro: Vec<PathBuf>,

    /// Put a file, a directory or an artifact into the sandbox, as /inputs/NAME
    ///
    /// The program reads a copy, which is recorded with its digest before it starts: later
    /// changes of the original make no difference. SOURCE is a path, artifact:ID, promoted, or
    /// https://…#sha256=DIGEST, fetched outside, once.
    /// A profile's [inputs] bounds sizes, numbers and types. Not executable: --ro shows
    /// programs. Can be given several times. Default: none.
    /// Example: --input sales=~/data/2026.csv --input model=artifact:4f1c
    #[arg(long, value_name = "NAME=SOURCE", verbatim_doc_comment)]
    pub input: Vec<OsString>,

    /// One more directory that the program may change, in a layer of its own
    ///
    /// As in the workspace nothing is written to it before `atoll apply`. It is at the same
    /// path inside, and neither in the workspace nor around it. Can be given several times.
    /// Default: none.
    /// Example: --rw ~/src/library
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, verbatim_doc_comment)]
    pub rw: Vec<PathBuf>,

    /// A host that the program may reach, or requests to it; can be given several times
    ///
    /// HOST is a name, `*.` and a name for all beneath it, an address, a block of
    /// addresses, or `*` for all of the internet; after a colon come ports. Without
    /// them those of the web are meant, 80 and 443. Private addresses are reached only
    /// where one is named. Methods before it, or a URL, allow those requests alone; in a
    /// path `*` stands for a part of a segment, `**` for any number of segments.
    /// Default: what the profile names; without one, nothing.
    /// Example: --allow github.com --allow db.example.com:5432 --allow 10.1.0.0/16:443
    ///          --allow 'GET,HEAD https://api.example.com/v1/**'
    #[arg(long, value_name = "HOST[:PORT]|REQUESTS", verbatim_doc_comment)]
    pub allow: Vec<String>,

    /// A host that the program may reach, where nothing is looked into; as --allow
    ///
    /// For protocols of their own at the ports of the web, and for programs that trust
    /// only the certificate of the host itself. Default: none.
    /// Example: --tunnel pinned.example.com:443
    #[arg(long, value_name = "HOST[:PORT]", verbatim_doc_comment)]
    pub tunnel: Vec<String>,

    /// Rules for the network that come with Atoll, as npm, or how far to trust, as research
    ///
    /// `atoll profile presets` lists them, and shows one. Can be given several times. Those
    /// that say how far to trust are a level and a mode: production-backend,
    /// development-assistant, research, public-chat (atoll help levels).
    /// Default: what the profile names.
    /// Example: --preset npm --preset git-read
    #[arg(long, value_name = "NAME", verbatim_doc_comment)]
    pub preset: Vec<String>,

    /// How far the program is trusted: none, low, medium, high, full
    ///
    ///   none    no network, no credentials, nothing of the home directory, tight limits
    ///   low     reads from the hosts that the profile allows, sends nothing
    ///   medium  a person is asked before it sends, but to its model
    ///   high    what the profile says
    ///   full    what the profile says, and what it would ask about without a question
    /// No level allows what the profile does not. All are recorded. The table: atoll help levels.
    /// Default: what the profile names, else high.
    /// Example: --trust low
    #[arg(long, value_name = "LEVEL", verbatim_doc_comment)]
    pub trust: Option<String>,

    /// What becomes of questions: strict denies them, layered asks you, permissive allows them
    ///
    /// What the organisation or a project asks about is asked in permissive too.
    /// Default: what the profile names, else layered.
    /// Example: --mode strict
    #[arg(long, value_name = "MODE", verbatim_doc_comment)]
    pub mode: Option<String>,

    /// What is to be done, for policies that ask for it (context.task)
    ///
    /// Nothing inside can change it. Default: not stated.
    /// Example: --task release-notes
    #[arg(long, value_name = "TEXT", verbatim_doc_comment)]
    pub task: Option<String>,

    /// What it is for: a purpose that narrows what it may do (atoll policy purposes), or a text
    /// for policies that ask for it (context.purpose)
    ///
    /// Nothing inside can change it. Default: not stated.
    /// Example: --purpose support
    #[arg(long, value_name = "TEXT", verbatim_doc_comment)]
    pub purpose: Option<String>,

    /// A host that the program may not reach by that name, whatever allows it; as --allow
    ///
    /// Without ports all are denied; a URL denies at its scheme's port alone. An address
    /// of a denied name is denied only where it is named too.
    /// Default: what the profile denies.
    /// Example: --allow '*' --deny '*.example.com:*' --deny 'DELETE api.example.org'
    #[arg(long, value_name = "HOST[:PORT]|REQUESTS", verbatim_doc_comment)]
    pub deny: Vec<String>,

    /// A host that the program may reach each time that a person says so; as --allow
    ///
    /// What it wants waits meanwhile, two minutes at most: the question is drawn on the
    /// program's terminal; `atoll approvals` shows it elsewhere, and grants or denies it
    /// there. A question beats whatever allows the same.
    /// Default: what the profile asks about.
    /// Example: --ask api.example.com --ask 'POST https://api.example.org/v1/**'
    #[arg(long, value_name = "HOST[:PORT]|REQUESTS", verbatim_doc_comment)]
    pub ask: Vec<String>,

    /// Ask nobody: what a rule asks about is denied at once
    ///
    /// For runs that nobody watches. Default: off.
    #[arg(long, conflicts_with = "ask_key", verbatim_doc_comment)]
    pub no_ask: bool,

    /// The key that brings a question to the terminal
    ///
    /// It is pressed where a program has the whole screen, after the bell has told of
    /// a question, or where one was put off; and where a program inside has begun to
    /// listen, to publish that port. At all other times it is the program's.
    /// Default: ctrl-]
    /// Example: --ask-key ctrl-o
    #[arg(long, value_name = "KEY", verbatim_doc_comment)]
    pub ask_key: Option<AskKey>,

    /// A port inside to visit from this host; can be given several times
    ///
    /// Who connects to it at 127.0.0.1 or [::1] of this host comes to the program that
    /// listens on the port inside, at its loopback or at all addresses; nothing has to
    /// listen there yet. Only your own connections and root's are taken. Another port of
    /// the host stands before it. Not in a fence. Default: what the profile names.
    /// Example: --publish 3000 --publish 8080:80
    #[arg(long, value_name = "[HOSTPORT:]PORT", verbatim_doc_comment)]
    pub publish: Vec<String>,

    /// A port at which a service of this host is reached inside, at 127.0.0.1 as outside
    ///
    /// For programs that insist on 127.0.0.1, as an agent with a local model: connections to
    /// that port of the sandbox's loopback lead to this host's, as --allow
    /// host.atoll.internal:PORT would allow it, and are recorded as that. Nothing inside can
    /// listen on it. Can be given several times. Not in a fence. Default: none.
    /// Example: --host-port 11434
    #[arg(long, value_name = "PORT", verbatim_doc_comment)]
    pub host_port: Vec<String>,

    /// Let everything on the internet be reached that no rule denies, to learn of it
    ///
    /// At the end the smallest rules are shown that allow what was reached, for a
    /// profile. Private addresses stay out of reach. Only for what you would trust with
    /// the internet: what it can read, it can send anywhere. Default: off.
    #[arg(long, verbatim_doc_comment)]
    pub learn: bool,

    /// How much the program may use, by name; can be given several times
    ///
    ///   memory=SIZE      all processes together  (default: 75% of the machine's)
    ///   swap=SIZE        beyond that             (default: 0)
    ///   processes=N      at once, with threads   (default: 4096)
    ///   open-files=N     of each process         (default: 65536)
    ///   disk=SIZE        written                 (default: 20GiB)
    ///   inodes=N         files created           (default: 2000000)
    ///   tmp=SIZE         /tmp, and /dev/shm      (default: 25% of the machine's memory)
    ///   cpu=N            processors, as 1.5      (default: none, all at low weight)
    ///   wall-clock=TIME  from start to end       (default: none)
    ///   idle=TIME        without input or output (default: none)
    ///   output=SIZE      kept of each stream     (default: 64MiB; all of it is shown)
    ///   network-bytes=SIZE  of all connections   (default: none)
    ///   network-rate=SIZE   of them, a second    (default: none)
    ///   connections=N       of them, at once     (default: none)
    /// SIZE: bytes, or with K, M, G, T (powers of 1024); memory and tmp also take 50%.
    /// TIME: as 500ms, 90s, 5m, 1h30m. A profile can set other defaults.
    /// Example: --limit memory=2GiB --limit processes=64
    #[arg(long, value_name = "KEY=VALUE", verbatim_doc_comment)]
    pub limit: Vec<String>,

    /// End the program after this time; short for --limit wall-clock=TIME
    ///
    /// In ms, s, m, h, d. Default: none. The exit status is then 124.
    /// Example: --timeout 90s, --timeout 1h30m
    #[arg(long, value_name = "TIME", verbatim_doc_comment)]
    pub timeout: Option<String>,

    /// A variable to pass on, or to set; can be given several times
    ///
    /// Default: PATH, HOME, USER, LOGNAME, SHELL, TERM, COLORTERM, LANG, LC_*, TZ and
    /// what the profile names. The program can read and leak whatever is passed.
    /// Example: --env CI --env RUST_LOG=debug
    #[arg(long, value_name = "NAME|NAME=VALUE", verbatim_doc_comment)]
    pub env: Vec<OsString>,

    /// At the end, apply the changes, but for control files and conflicts
    ///
    /// Default: ask on a terminal, otherwise keep. Where a signal or a limit ended the
    /// program they are kept.
    #[arg(long, group = "ending", verbatim_doc_comment)]
    pub apply: bool,

    /// At the end, keep the changes for later, without asking
    ///
    /// Default: ask on a terminal, otherwise keep.
    #[arg(long, group = "ending", verbatim_doc_comment)]
    pub keep: bool,

    /// At the end, throw the changes away, without asking
    ///
    /// Default: ask on a terminal, otherwise keep.
    #[arg(long, group = "ending", verbatim_doc_comment)]
    pub discard: bool,

    /// Go on in the layer of an earlier run, with its changes in place
    ///
    /// RUN is a run's id, its beginning or end, or `last`.
    /// Default: a fresh layer.
    /// Example: --resume last, --resume k7qd
    #[arg(long, value_name = "RUN", verbatim_doc_comment)]
    pub resume: Option<String>,

    /// What this run is a part of: several runs of one task, by a name of yours
    ///
    /// The first run of a name begins the session. It is a log in the ledger, apart from what
    /// carries its runs, and goes on when any of them dies: `atoll sessions`, `atoll why
    /// --session NAME`. Nothing is allowed by it. Letters, digits, `.`, `_` and `-`.
    /// Default: none.
    /// Example: --session fix-login
    #[arg(long, value_name = "NAME", verbatim_doc_comment)]
    pub session: Option<String>,

    /// A token that has to carry everything that leaves; can be given several times
    ///
    /// FILE has one of `atoll token issue`. It allows nothing by itself: rules and policies are
    /// asked as ever, and of several tokens each has to carry what leaves.
    /// Default: none.
    /// Example: --token agent.token
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, verbatim_doc_comment)]
    pub token: Vec<PathBuf>,

    /// Write how the run went to FILE, as JSON; `-` is standard error
    ///
    /// Default: not written.
    /// Example: --json result.json
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, verbatim_doc_comment)]
    pub json: Option<PathBuf>,

    /// Say what would be granted, and start nothing
    ///
    /// The boundary is printed as `atoll profile show` prints a profile, with --json as JSON.
    /// The exit status is 126 if the run would be denied. Nothing is recorded. Default: off.
    #[arg(long, verbatim_doc_comment)]
    pub dry_run: bool,

    /// Say nothing but what the program says, errors and alerts
    ///
    /// No summary, no notices, no question at the end: the changes are kept. Default: off.
    #[arg(long, short, verbatim_doc_comment)]
    pub quiet: bool,

    /// Give the program a terminal of its own, even where Atoll has none
    ///
    /// Default: a terminal when standard input and output are one, otherwise pipes.
    #[arg(long, conflicts_with = "no_tty", verbatim_doc_comment)]
    pub tty: bool,

    /// Give the program pipes, even on a terminal
    ///
    /// Default: a terminal when standard input and output are one, otherwise pipes.
    #[arg(long, verbatim_doc_comment)]
    pub no_tty: bool,

    /// The program and its arguments, after `--`
    ///
    /// It is looked up in PATH inside the boundary; no shell is involved.
    /// Example: -- sh -c 'echo "$HOME"'
    #[arg(
        value_name = "COMMAND",
        required = true,
        num_args = 1..,
        trailing_var_arg = true,
        value_hint = ValueHint::CommandWithArguments,
        verbatim_doc_comment
    )]
    pub command: Vec<OsString>,
}

impl RunArguments {
    /// The login that is issued in it.
    #[must_use]
    pub fn login(&self) -> Option<&CredentialName> {
        self.login.as_ref()
    }

    /// The options that shape the boundary and what is kept, a word each (`--allow=example.com`), for saying
    /// them again. Of a variable that is set, not its value.
    #[must_use]
    pub fn boundary_options(&self) -> Vec<OsString> {
        let flags = [
            ("--live", self.live),
            ("--root", self.root),
            ("--nesting", self.nesting),
            ("--outputs", self.outputs),
            ("--keep-caches", self.keep_caches),
            ("--learn", self.learn),
            ("--no-ask", self.no_ask),
            ("--discard", self.discard),
        ];
        let paths = |list: &[PathBuf]| list.iter().map(OsString::from).collect::<Vec<_>>();
        let texts = |list: &[String]| list.iter().map(OsString::from).collect::<Vec<_>>();
        let valued = [
            ("--profile", self.profile.iter().cloned().collect()),
            ("--workspace", paths(self.workspace.as_slice())),
            ("--ro", paths(&self.ro)),
            ("--input", self.input.clone()),
            ("--rw", paths(&self.rw)),
            ("--token", paths(&self.token)),
            ("--allow", texts(&self.allow)),
            ("--tunnel", texts(&self.tunnel)),
            ("--preset", texts(&self.preset)),
            ("--trust", texts(self.trust.as_slice())),
            ("--mode", texts(self.mode.as_slice())),
            ("--task", texts(self.task.as_slice())),
            ("--purpose", texts(self.purpose.as_slice())),
            ("--deny", texts(&self.deny)),
            ("--ask", texts(&self.ask)),
            ("--publish", texts(&self.publish)),
            ("--host-port", texts(&self.host_port)),
            ("--limit", texts(&self.limit)),
            ("--timeout", texts(self.timeout.as_slice())),
            ("--env", self.env.iter().map(|one| name_of(one)).collect()),
        ];
        let flags = flags.into_iter().filter(|(_, given)| *given);
        let flags = flags.map(|(name, _)| OsString::from(name));
        let valued = valued.into_iter().flat_map(|(name, values)| {
            let word = move |value: OsString| {
                let mut word = OsString::from(format!("{name}="));
                word.push(value);
                word
            };
            values.into_iter().map(word)
        });
        flags.chain(valued).collect()
    }
}

/// A variable without its value, which can be a secret.
fn name_of(variable: &OsStr) -> OsString {
    let bytes = variable.as_bytes();
    match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) => {
            let name = bytes.get(..at).unwrap_or_default();
            OsString::from_vec([name, b"=..."].concat())
        }
        None => variable.to_owned(),
    }
}
