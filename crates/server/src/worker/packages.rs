//! The Python packages of the shipped interpreter: pip installs them in a sandbox that reaches PyPI,
//! to read, and nothing else, whatever network the server's sandboxes have.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use atoll_engine::failure::{Doing, Failure};
use atoll_engine::printable::printable;
use atoll_engine::sandboxes::{
    CreateSandbox, Engine, PriorAnswer, Requested, Sandbox, Workspace, remove_home,
};
use atoll_engine::supervision::ExecRequest;
use atoll_model::{Ending, LimitKey, Served};

use super::answers::refusal;
use super::room::For;
use super::templates;
use super::warm::Prewarm;
use crate::configuration::NetworkWord;
use crate::protocol::CODE_INTERPRETER;

/// The packages where none are named.
pub const USUAL: [&str; 13] = [
    "beautifulsoup4",
    "ipython",
    "lxml",
    "matplotlib",
    "numpy",
    "openpyxl",
    "pandas",
    "pillow",
    "requests",
    "scikit-learn",
    "scipy",
    "seaborn",
    "sympy",
];
/// The one command that installs them.
const COMMAND: &str = "atoll template build code-interpreter-v1";

/// A request for packages.
pub struct Wanted<'a> {
    /// Their names, as pip takes them.
    pub packages: &'a [&'a str],
    /// Further destinations, as of `--allow`.
    pub allow: &'a [String],
    /// Whoever has asked, as the ledger has it.
    pub by: &'a str,
    /// The name of the directory that they are made in, which no other caller has.
    pub scratch: &'a str,
}

/// Installs packages; returns their directory, which sandboxes begin with from now on. `begun` gets
/// the sandbox as soon as it is there, `shown` each line of pip's.
///
/// # Errors
/// When no sandbox can be made, or pip fails.
pub fn install(
    engine: &Engine,
    wanted: &Wanted<'_>,
    begun: impl FnOnce(&Arc<Sandbox>),
    shown: impl Fn(&str) + Sync,
) -> Result<PathBuf, Failure> {
    let place = templates::place(engine.state());
    fs::create_dir_all(&place).doing("the template has no place")?;
    let sandbox = Arc::new(engine.create(&asked(wanted))?);
    begun(&sandbox);
    run_pip(engine, &sandbox, wanted.packages, &shown)?;
    let new = place.join(wanted.scratch);
    remove_home(&new)?;
    sandbox.kill_keeping_home(&new)?;
    let done = place.join(next(&place).to_string());
    templates::furnish_in(&new).doing("the interpreter cannot be written")?;
    fs::rename(&new, &done).doing("the template cannot be put in its place")?;
    Ok(done)
}

/// Returns a number that no build has had.
fn next(place: &Path) -> u64 {
    let all = fs::read_dir(place).into_iter().flatten().flatten();
    let numbers = all.filter_map(|one| one.file_name().to_str()?.parse::<u64>().ok());
    numbers.max().unwrap_or(0) + 1
}

/// Returns the request for the sandbox: it reaches PyPI, to read.
fn asked(wanted: &Wanted<'_>) -> CreateSandbox {
    CreateSandbox {
        workspace: Workspace::Own(Box::new(Served {
            sandbox: "template".to_owned(),
            caller: Some(wanted.by.to_owned()),
            template: CODE_INTERPRETER.to_owned(),
            ..Served::default()
        })),
        requested: Requested {
            presets: vec!["pip".to_owned()],
            allow: wanted.allow.to_vec(),
            limits: [
                (LimitKey::Memory, "4GiB".to_owned()),
                (LimitKey::Disk, "20GiB".to_owned()),
            ]
            .into(),
            ..Requested::default()
        },
        discard: true,
        is_attended: false,
        home: None,
        template: None,
        frozen: None,
        made_at: None,
        system: None,
        answer: PriorAnswer::Nobody,
        parent: None,
        begins_with: None,
    }
}

fn run_pip(
    engine: &Engine,
    sandbox: &Sandbox,
    packages: &[&str],
    shown: &(impl Fn(&str) + Sync),
) -> Result<(), Failure> {
    let options = [
        "python3",
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--no-cache-dir",
        "--no-warn-script-location",
        "--only-binary=:all:",
        "--progress-bar=off",
        "--target",
        templates::PACKAGES,
    ];
    let command = options.iter().chain(packages);
    let request = ExecRequest {
        command: command.map(Into::into).collect(),
        directory: None,
        environment: vec![
            "TMPDIR=/home/user".into(),
            "PIP_ROOT_USER_ACTION=ignore".into(),
        ],
        served: None,
        answer: PriorAnswer::Nobody,
        parent: None,
    };
    let pipe = || io::pipe().doing("no pipe can be made");
    let ((nothing, _), (out, out_end), (err, err_end)) = (pipe()?, pipe()?, pipe()?);
    let streams = [nothing.into(), out_end.into(), err_end.into()];
    let mut exec = sandbox.start(request, streams, None)?;
    let last = thread::scope(|scope| {
        let errors = scope.spawn(|| read(err, shown));
        let _ = read(out, shown);
        errors.join().unwrap_or_default()
    });
    let ending = exec.wait()?;
    if ending == (Ending::Exited { status: 0 }) {
        return Ok(());
    }
    // What pip writes then is that there is no such package.
    match engine.unreached(sandbox.run()) {
        Some(why) => Err(Failure::new("PyPI could not be reached")
            .because(why)
            .advise(
                "this machine has to reach pypi.org and files.pythonhosted.org itself; --allow HOST \
                 opens a mirror that /etc/pip.conf names",
            )),
        None => Err(Failure::new("pip could not install the packages")
            .because(if last.is_empty() {
                format!("{ending:?}")
            } else {
                last
            })
            .advise("python3 with pip is needed on this machine (apt install python3-pip)")),
    }
}

/// Shows lines as they come; returns the last.
fn read(from: io::PipeReader, shown: &impl Fn(&str)) -> String {
    let mut last = String::new();
    for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
        last = printable(&line);
        shown(&last);
    }
    last
}

/// A server's own build of the packages, at most one.
#[derive(Default)]
pub(super) struct InBackground {
    has_begun: AtomicBool,
    sandbox: Mutex<Option<Arc<Sandbox>>>,
}

impl InBackground {
    fn sandbox(&self) -> Option<Arc<Sandbox>> {
        let mut sandbox = self.sandbox.lock().unwrap_or_else(PoisonError::into_inner);
        sandbox.take()
    }
}

impl Prewarm {
    /// Has the usual packages installed beside everything else, once, where a sandbox with the
    /// interpreter is asked for, none were installed, and the configuration does not close the
    /// network: only what closes it there speaks against the server's own connections.
    pub(super) fn install_packages_later(self: &Arc<Self>) {
        let own = &self.packages;
        if own.has_begun.load(Ordering::Relaxed)
            || templates::built(self.server.engine.state()).is_some()
            || self.server.room.check(For::Ahead).is_err()
            || own.has_begun.swap(true, Ordering::Relaxed)
        {
            return;
        }
        if self.server.configuration.network == Some(NetworkWord::Closed) {
            eprintln!(
                "atoll serve: {CODE_INTERPRETER} has the packages of this machine alone, since \
                 network = \"closed\"; {COMMAND} installs {}",
                USUAL.join(", ")
            );
            return;
        }
        let own = Arc::clone(self);
        // Of its own: it waits for pip for minutes, and nobody for it.
        let begun = thread::Builder::new().spawn(move || own.install_packages());
        if let Err(error) = begun {
            eprintln!("atoll serve: {CODE_INTERPRETER} is not built: {error}");
        }
    }

    fn install_packages(&self) {
        eprintln!(
            "atoll serve: {CODE_INTERPRETER} was never built here: installing {} from PyPI in the \
             background; network = \"closed\" in serve.toml keeps it from that",
            USUAL.join(", ")
        );
        let wanted = Wanted {
            packages: &USUAL,
            allow: &[],
            by: "atoll serve",
            scratch: "new-of-server",
        };
        let keep = |sandbox: &Arc<Sandbox>| {
            let own = &self.packages.sandbox;
            *own.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(sandbox));
            // The server may have come to its end meanwhile.
            if self.server.is_draining() {
                let _ = sandbox.kill();
            }
        };
        match install(&self.server.engine, &wanted, keep, |_| {}) {
            Ok(_) => eprintln!(
                "atoll serve: {CODE_INTERPRETER} is built: sandboxes that are made from now on have \
                 its packages"
            ),
            Err(_) if self.server.is_draining() => {}
            Err(failure) => eprintln!(
                "atoll serve: {CODE_INTERPRETER} was not built: {}; {COMMAND} on this machine tries \
                 again",
                refusal(&failure).told()
            ),
        }
        drop(self.packages.sandbox());
    }

    /// Ends a build that goes on.
    pub(super) fn end_packages(&self) {
        if let Some(sandbox) = self.packages.sandbox() {
            let _ = sandbox.kill();
        }
    }
}
