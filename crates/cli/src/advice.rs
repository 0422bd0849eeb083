//! Advice on the next step after a run that failed, for each kind of error. The error's own text
//! says what happened and why.

use std::io;
use std::path::Path;

use atoll_engine::room;
use atoll_engine::shell::{existing, word, word_beside};
use atoll_engine::{CallError, PlaceError, delegation};
use atoll_frame::Stage;
use atoll_layer::{CheckpointError, SealError};
use atoll_ledger::{
    FileFault, LedgerError, PrivateFault, Refused, SessionError, SigningError, StateError,
};
use atoll_model::network::{LockFile, Registry};
use atoll_model::{Call, LimitKey};
use atoll_policy::{Problem, ProfileError};
use atoll_sandbox::{Host, SandboxError};
use atoll_store::{AuthorityError, RunError, VaultError};

const EAGAIN: i32 = 11;
const REPORT: &str = "this is a defect of Atoll: please report it, with the command line";
const DOCTOR: &str = "atoll doctor says what this machine lacks, and the setting that helps";
const ANOTHER_WORKSPACE: &str = "atoll run --workspace DIR -- … names another workspace";

/// The run that an error is about, in the words that commands take.
pub struct About<'a> {
    /// The requested call.
    pub call: &'a Call,
    /// The name of the profile that decided.
    pub profile: &'a str,
    /// The limits set by options.
    pub limits: &'a [LimitKey],
}

impl About<'_> {
    /// Returns the possible next steps, the likeliest first.
    pub fn advices(&self, error: &CallError) -> Vec<String> {
        match error {
            CallError::Sandbox(SandboxError::Unenforceable { limit, .. }) => self.unheld(limit),
            CallError::NeedsApproval(_)
            | CallError::Unanswered(_)
            | CallError::Declined(_)
            | CallError::Refused(_)
            | CallError::Sandbox(_)
            | CallError::Ledger(_)
            | CallError::Run(_)
            | CallError::SharedLabels(_)
            | CallError::Limits(_)
            | CallError::Place(_) => vec![self.advice(error)],
        }
    }

    /// Returns the ways to start a run whose limit this host cannot enforce as it is.
    fn unheld(&self, limit: &str) -> Vec<String> {
        let steps = Host::read().map_or_else(|_| Vec::new(), |host| delegation::steps(&host));
        let mut ways = match steps.as_slice() {
            // One command is a next step; several are for who administers the host.
            [step] => vec![step.line()],
            _ => vec!["atoll doctor shows how a control group is given to you".to_owned()],
        };
        ways.push(if self.limits.iter().any(|key| key.name() == limit) {
            format!("without --limit {limit} it starts")
        } else {
            format!(
                "{} shows who asks for {limit}; without that, or with another --profile, it starts",
                self.show_profile()
            )
        });
        ways.push(format!(
            "a profile of your own with extends = [\"{}\"] and [dangerous] unenforced-limits = \
             true starts without holding {limit}, which is recorded",
            self.profile
        ));
        ways
    }

    /// Returns the next step.
    pub fn advice(&self, error: &CallError) -> String {
        match error {
            CallError::Refused(refused) => match refused {
                Refused::Denied(_) | Refused::NeedsApproval(_) => self.why(),
                Refused::Contradiction(_) => REPORT.to_owned(),
                Refused::Ledger(error) => ledger(error),
            },
            CallError::NeedsApproval(_) | CallError::Unanswered(_) | CallError::Limits(_) => {
                self.why()
            }
            CallError::Declined(declined) => declined.advice.clone(),
            CallError::Sandbox(error) => self.sandbox(error),
            CallError::Ledger(error) => ledger(error),
            CallError::Run(error) => self.run(error),
            CallError::SharedLabels(SessionError::Ledger(error)) => ledger(error),
            CallError::SharedLabels(SessionError::Private(_)) => {
                "ls -l on it shows whose it is; without --session the run starts".to_owned()
            }
            CallError::Place(error) => self.place(error),
        }
    }

    fn why(&self) -> String {
        format!("atoll why {}", self.call.run())
    }

    fn show_profile(&self) -> String {
        format!("atoll profile show {}", word(self.profile))
    }

    fn sandbox(&self, error: &SandboxError) -> String {
        match error {
            SandboxError::Launcher(error) => launcher(error),
            SandboxError::Making { stage, detail, .. } => self.making(*stage, detail),
            SandboxError::Source { path, .. } => format!(
                "ls -ld {} shows why; {} shows what asks for it",
                word(path),
                self.show_profile()
            ),
            SandboxError::MountInside { inner, .. } => {
                format!("umount {}; or {ANOTHER_WORKSPACE}", word(inner))
            }
            SandboxError::Unenforceable { .. } => DOCTOR.to_owned(),
            SandboxError::Roots { .. } => {
                "name files in PEM under [network] upstream-roots".to_owned()
            }
            SandboxError::Lock { registry, .. } => {
                let by = match registry {
                    Registry::Npm => "npm install --package-lock-only",
                    Registry::Pip => "pip freeze > requirements.txt, or uv lock",
                    Registry::Cargo => "cargo generate-lockfile",
                };
                format!(
                    "make it with the package manager outside ({by}), or name another one beneath the \
                     workspace with `lock` of the rule for {registry} under [network]: {}",
                    LockFile::understood(*registry)
                )
            }
            SandboxError::Publish { port, inside, .. } => format!(
                "--publish {}:{inside} takes another port of this host",
                another_port(*port)
            ),
            SandboxError::AnotherCall => REPORT.to_owned(),
            SandboxError::NoExec(_) => {
                "start the program in a run of its own: atoll run -- …".to_owned()
            }
            SandboxError::TooManyExecs(_) => "end one of them".to_owned(),
            SandboxError::Frozen => "try again".to_owned(),
            SandboxError::Kernel(_) => DOCTOR.to_owned(),
            SandboxError::TooLarge(_) | SandboxError::Word(_) | SandboxError::Words => {
                "give the data in a file or on standard input, and fewer variables with --env"
                    .to_owned()
            }
            SandboxError::Vanished => format!(
                "dmesg | tail tells whether the kernel ended it; atoll diff {} shows what it did",
                self.call.run()
            ),
            SandboxError::Host { error, .. } => on_this_machine(error),
        }
    }

    /// Returns the next step after a step of making the sandbox failed.
    fn making(&self, stage: Stage, detail: &str) -> String {
        match stage {
            Stage::Description => REPORT.to_owned(),
            Stage::Namespaces
            | Stage::Ids
            | Stage::Network
            | Stage::Root
            | Stage::Rights
            | Stage::Filter => DOCTOR.to_owned(),
            Stage::Landlock if detail.is_empty() => DOCTOR.to_owned(),
            Stage::Landlock => self.program_not_in_view(detail),
            Stage::ControlGroups => {
                "atoll doctor says which control groups are used; start the run again if they \
                 were changed meanwhile"
                    .to_owned()
            }
            Stage::Tree if detail.is_empty() => DOCTOR.to_owned(),
            Stage::Tree => format!(
                "ls -ld {} shows what is there; {} shows what asks for it",
                word(format!("/{}", detail.trim_start_matches('/'))),
                self.show_profile()
            ),
            Stage::Limits => format!(
                "{} shows the limits; --limit KEY=VALUE sets a lower one",
                self.show_profile()
            ),
            Stage::Terminal => {
                "atoll run --no-tty -- … runs it without a terminal of its own".to_owned()
            }
            Stage::Start => format!("{} shows which programs are there", self.show_profile()),
            Stage::Directory => format!(
                "ls -ld {} shows whether it is still there",
                word(self.call.directory())
            ),
        }
    }

    /// Returns the advice on a listed program that is not visible in the sandbox. Rights are
    /// granted on visible paths only, so such a program stops the run instead of being skipped.
    fn program_not_in_view(&self, detail: &str) -> String {
        let path = Path::new("/").join(detail.trim_start_matches('/'));
        let shown = path.display();
        match path.canonicalize() {
            Ok(real) if real != path => format!(
                "{shown} leads to {}: list that in [programs] execute, and show it inside",
                real.display()
            ),
            Ok(_) => format!(
                "{shown} is not in view inside: {} shows who lists it; show it too, or leave it out",
                self.show_profile()
            ),
            Err(_) => format!(
                "{shown} does not exist: {} shows who lists it",
                self.show_profile()
            ),
        }
    }

    fn run(&self, error: &RunError) -> String {
        match error {
            RunError::File(fault) => file(fault),
            RunError::Missing(_)
            | RunError::NoRuns
            | RunError::NoMatch { .. }
            | RunError::Ambiguous { .. }
            | RunError::Unreadable { .. } => "atoll runs lists what there is".to_owned(),
            RunError::Exists(_) => "start the run again".to_owned(),
            RunError::Newer { .. } => {
                "atoll --version; use the Atoll that wrote the record, or a newer one".to_owned()
            }
            RunError::Locked { run, .. } | RunError::Alive(run) => {
                format!("wait for the end of run {run}, then try again")
            }
            RunError::Busy { path, .. } => format!("fuser {} names it", word(path)),
            RunError::Mounted(path) => format!("umount {}, then try again", word(path)),
            RunError::Changed(run) => format!("atoll diff {run} shows what it is now"),
        }
    }

    fn place(&self, error: &PlaceError) -> String {
        let state = |error: &io::Error, path: &Path| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                format!("df {} shows the room left; {}", word(path), room::advice())
            }
            _ => owner(path),
        };
        match error {
            PlaceError::Layer(error) => self.sandbox(error),
            PlaceError::Checkpoint(CheckpointError::Tree(error)) => match error.source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => room::advice(),
                _ => format!("look at {}; or {ANOTHER_WORKSPACE}", error.path),
            },
            PlaceError::Checkpoint(CheckpointError::Destination { .. }) => {
                STATE_ELSEWHERE.to_owned()
            }
            PlaceError::Seal(SealError::Unread(_)) => {
                "mend that file, or run without --live".to_owned()
            }
            PlaceError::Seal(SealError::HooksAtTop(_)) => "run without --live".to_owned(),
            PlaceError::Seal(SealError::TooMany(_) | SealError::TooLarge(_)) => {
                format!("run it without --live; or {ANOTHER_WORKSPACE}")
            }
            PlaceError::Pipe(_) => ANOTHER_WORKSPACE.to_owned(),
            PlaceError::Shared { workspace, .. } => format!(
                "cp -a {} COPY makes a workspace of files of its own; or run without --live; {DOCTOR}",
                word(workspace)
            ),
            PlaceError::LongSocket(_) | PlaceError::Volume { .. } => STATE_ELSEWHERE.to_owned(),
            PlaceError::Input(_) => "atoll help artifacts tells what inputs can be".to_owned(),
            PlaceError::GivenBack(_) => room::advice(),
            PlaceError::System(..) => "atoll run without --root shows it read-only".to_owned(),
            PlaceError::Unmapped { .. } => "atoll run -- … without --live".to_owned(),
            PlaceError::Resume { run, .. } | PlaceError::NotResumable(run, _) => format!(
                "atoll diff {run} shows what it did; without --resume the run starts afresh"
            ),
            PlaceError::NotBegun(run, _) => {
                format!("atoll diff {run} shows the changes; atoll apply {run} checks nothing")
            }
            PlaceError::Modes(error) => {
                format!(
                    "look at {}; without --resume the run starts afresh",
                    error.path
                )
            }
            PlaceError::State { path, error, .. } => state(error, path),
            PlaceError::Authority(error) => authority(error),
            PlaceError::Ledger(error) => ledger(error),
            PlaceError::Kept(_) => {
                "atoll kept discard NAME begins anew; atoll kept lists the names".to_owned()
            }
            PlaceError::Run(error) => self.run(error),
        }
    }
}

const STATE_ELSEWHERE: &str = "XDG_STATE_HOME=DIR keeps Atoll's state elsewhere";

/// Returns the next step after an error of the ledger.
pub fn ledger(error: &LedgerError) -> String {
    match error {
        LedgerError::File(fault) => file(fault),
        LedgerError::Body { .. } | LedgerError::Kind { .. } => REPORT.to_owned(),
        LedgerError::TooLarge { .. } => "give the data in a file or on standard input".to_owned(),
        LedgerError::Damaged { .. } => "atoll ledger verify shows where it is damaged".to_owned(),
        LedgerError::Busy { path, .. } => format!("fuser {} names it", word(path)),
        LedgerError::Seal(_) => {
            "the directory seals of Atoll's state holds the keys: it has to be yours alone"
                .to_owned()
        }
        LedgerError::RunExists(_) => "start the run again".to_owned(),
        LedgerError::Broken(_) => {
            "df and dmesg tell about the disk; then start the run again".to_owned()
        }
    }
}

/// The advice where the key that signed the ledger is missing.
pub const KEY_LOST: &str = "put the old ledger-key directory back; if it is lost for good: atoll ledger \
                            key lost, which the ledger tells for ever";

/// Returns the next step after an error of the ledger's key or its checkpoints.
pub fn signing(error: &SigningError) -> String {
    match error {
        SigningError::Private(PrivateFault::Open { path, .. }) => {
            format!("chmod go= {}", word(path))
        }
        SigningError::Private(other) => private(other),
        SigningError::Key { path, .. } => format!(
            "put back {} from a backup; without it, move the directories ledger and \
             ledger-key away together, which begins a new ledger",
            path.display()
        ),
        SigningError::NoRandom => REPORT.to_owned(),
        SigningError::File(fault) => file(fault),
        SigningError::Ledger(error) => ledger(error),
        SigningError::Empty => "atoll run -- COMMAND starts a run".to_owned(),
        SigningError::NotLost => "atoll ledger key rotate puts another in its place".to_owned(),
        SigningError::OtherKey => KEY_LOST.to_owned(),
        SigningError::Unfit(_) => "atoll ledger verify tells what is wrong".to_owned(),
    }
}

/// Returns the next step after an error of Atoll's state directory.
pub fn state(error: &StateError) -> String {
    match error {
        StateError::Relative(_) | StateError::NotADirectory(_) => {
            "XDG_STATE_HOME=DIR, an absolute path, keeps Atoll's state elsewhere".to_owned()
        }
        StateError::OwnedByOther { path, .. } => {
            format!("ls -ld {} shows whose it is; {STATE_ELSEWHERE}", word(path))
        }
        StateError::WritableByOthers { path, .. } => format!("chmod go-w {}", word(path)),
        StateError::File(fault) => file(fault),
    }
}

/// Returns the next step for a profile or a request that cannot be compiled into rules.
pub fn profile(error: &ProfileError) -> &'static str {
    // `profile check` reads profiles and `atoll.toml` only.
    let is_profile = |problem: &Problem| {
        !["config.toml", "organisation.toml", "trusted.toml"]
            .iter()
            .any(|name| Path::new(&problem.file).ends_with(name))
    };
    let is_policy = |problem: &Problem| problem.file.ends_with(".cedar");
    match error {
        ProfileError::Invalid(problems) if problems.iter().all(is_policy) => {
            "atoll policy check FILE finds all mistakes of a file"
        }
        ProfileError::Invalid(problems) if !problems.iter().all(is_profile) => {
            "correct that line, then try again"
        }
        ProfileError::Invalid(_) | ProfileError::Circle { .. } | ProfileError::TooMany { .. } => {
            "atoll profile check FILE finds all mistakes of a file"
        }
        ProfileError::Unknown { .. } => "atoll profile list",
        ProfileError::Unreadable { .. } => "ls -l shows whether you may read it",
        ProfileError::Request { .. } => "atoll run --help shows what each option takes",
    }
}

fn file(fault: &FileFault) -> String {
    if fault.is_out_of_space() {
        return room::advice();
    }
    if fault.is_of_the_disk() {
        return "df and dmesg tell about the disk; then start the run again".to_owned();
    }
    owner(fault.path())
}

fn owner(path: &Path) -> String {
    let there = word(existing(path));
    format!("ls -ld {there} shows whose it is; {STATE_ELSEWHERE}")
}

/// Returns the advice where the launcher, an executable file in memory, cannot be started.
fn launcher(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "sysctl vm.memfd_noexec: 2 forbids programs in memory, which the launcher is; a \
             security module may forbid them too (dmesg)"
                .to_owned()
        }
        _ => on_this_machine(error),
    }
}

/// Returns the advice that a failed system call on the host suggests.
fn on_this_machine(error: &io::Error) -> String {
    let text = match error.kind() {
        io::ErrorKind::OutOfMemory => "free shows the memory left; end something, then try again",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => return room::advice(),
        _ if error.raw_os_error() == Some(EAGAIN) => {
            "ulimit -u is the number of your processes allowed; end some, then try again"
        }
        _ if matches!(error.raw_os_error(), Some(23 | 24)) => {
            "ulimit -n is the number of open files allowed; raise it, then try again"
        }
        _ => DOCTOR,
    };
    text.to_owned()
}

/// Returns a port close to another one that every user may bind.
fn another_port(port: u16) -> u16 {
    match port {
        0..1024 => 8000 + port,
        u16::MAX => port - 1,
        _ => port + 1,
    }
}

#[cfg(test)]
mod tests;

/// Returns the next step where a private file cannot be used.
pub fn private(fault: &PrivateFault) -> String {
    match fault {
        PrivateFault::File(fault) => match fault.is_out_of_space() {
            true => room::advice(),
            false => STATE_ELSEWHERE.to_owned(),
        },
        PrivateFault::Open { path, .. } => format!(
            "make it yours alone: chmod go= {}; what someone may have read is to be replaced",
            word(path)
        ),
        PrivateFault::NoFile { path, .. } => {
            format!("look at what it is: ls -l {}", word(path))
        }
        PrivateFault::Locked { .. } => "start it again".to_owned(),
    }
}

/// The advice where a vault or its key is lost.
const LOST: &str = "Without it the secrets are lost: remove each of `atoll secret list` by \
                    `atoll secret rm NAME …`, then put them in again";

/// Returns the next step where a vault cannot be used.
pub fn vault(error: &VaultError) -> String {
    match error {
        VaultError::Private(fault) => private(fault),
        VaultError::Unreadable { path, .. } if path.ends_with("secrets.json") => format!(
            "mv {} {}, and put the secrets in again: atoll secret set NAME",
            word(path),
            word_beside(path, ".broken")
        ),
        VaultError::Unreadable { path, .. } | VaultError::KeyMissing(path) => format!(
            "bring {} back from where you keep copies. {LOST}",
            path.display()
        ),
        VaultError::NoRandom => "start it again, once the host is up".to_owned(),
        VaultError::Full => "atoll secret rm NAME makes room".to_owned(),
    }
}

/// Returns the next step where a certificate authority cannot be used.
pub fn authority(error: &AuthorityError) -> String {
    match error {
        AuthorityError::Private(fault) => match fault {
            PrivateFault::Open { path, .. } => format!(
                "chmod go= {}; and if someone may have read it: atoll ca rotate --revoke",
                word(path)
            ),
            other => private(other),
        },
        AuthorityError::Unreadable { path, .. } => format!(
            "mv {} {}; the next run makes a new one",
            word(path),
            word_beside(path, ".broken")
        ),
        AuthorityError::Certificate(_) => REPORT.to_owned(),
    }
}
