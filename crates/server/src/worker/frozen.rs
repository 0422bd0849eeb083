//! The interpreter with its libraries loaded, kept in a file that the interpreters of further
//! sandboxes go on from: each shares the pages that it does not write. The file is made in a
//! sandbox of the same tenant and template, without a network, and is read by those alone.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use atoll_engine::sandboxes::{
    CreateSandbox, PriorAnswer, TEMPLATE_DIRECTORY, Workspace, remove_home,
};
use atoll_model::{RESIDENT, Served, ServedExec};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::answers::fault;
use super::answers::name;
use super::answers::refusal;
use super::process::{NotStarted, Process};
use super::room::For;
use super::templates::environment;
use super::templates::{IMPORTED, READ_EARLY};
use super::warm::Prewarm;
use crate::protocol::{CODE_INTERPRETER, End, Kind, Refusal, StartAsk};

/// The time after which one is made anew, or tried again.
const RENEWED_AFTER: Duration = Duration::from_secs(60 * 60);
/// The number of sandboxes after which one is made anew.
const USES_MAX: u32 = 10_000;
/// The time for which one stays that others have taken the place of: a sandbox may be about to begin
/// with it, once an approver has answered.
const LINGERS: Duration = Duration::from_secs(15 * 60);
/// The longest time for making one.
const MADE_WITHIN: Duration = Duration::from_secs(60);
/// The most that are kept.
const ALL_MAX: usize = 256;
/// The longest one, bytes.
const BYTES_MAX: u64 = 512 << 20;
/// The name of the file in the home where it is made, and of the program that makes it.
const FILE: &str = ".frozen";
const PROGRAM: &str = "frozen.py";

/// The time that the first requests of a sandbox have for themselves.
const FIRST_REQUESTS: Duration = Duration::from_millis(500);

/// The marks of one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Marks {
    tenant: String,
    template: String,
    /// The directory of the interpreter.
    files: PathBuf,
}

impl Marks {
    /// Returns those of a sandbox that is wanted, if it has an interpreter.
    pub(super) fn of(tenant: &str, wanted: &CreateSandbox) -> Option<Self> {
        let template = wanted.system.as_ref().map(|system| system.name.clone());
        wanted.template.as_ref().map(|files| Self {
            tenant: tenant.to_owned(),
            template: template.unwrap_or_else(|| CODE_INTERPRETER.to_owned()),
            files: files.clone(),
        })
    }
}

/// All that are kept.
#[derive(Default)]
pub(super) struct Frozen {
    all: Mutex<BTreeMap<Marks, Kept>>,
    /// Held while one is made: one after the other.
    turn: tokio::sync::Mutex<()>,
}

struct Kept {
    /// None where it could not be made.
    file: Option<PathBuf>,
    made: Instant,
    used: Instant,
    uses: u32,
}

impl Frozen {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Marks, Kept>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the file, if there is one now.
    pub(super) fn file(&self, marks: &Marks) -> Option<PathBuf> {
        let mut all = self.all();
        let kept = all.get_mut(marks)?;
        kept.uses = kept.uses.saturating_add(1);
        kept.used = Instant::now();
        kept.file.clone()
    }

    fn is_current(&self, marks: &Marks) -> bool {
        let all = self.all();
        let kept = all.get(marks);
        kept.is_some_and(|kept| kept.made.elapsed() < RENEWED_AFTER && kept.uses < USES_MAX)
    }

    /// Keeps one, and removes those that nobody begins with any more, later. A sandbox that has one
    /// open goes on with it; another kernel of it begins without.
    fn keep(&self, marks: Marks, file: Option<PathBuf>) {
        let mut gone = Vec::new();
        let mut all = self.all();
        let kept = Kept {
            file,
            made: Instant::now(),
            used: Instant::now(),
            uses: 0,
        };
        gone.extend(all.insert(marks, kept));
        let is_over = |_: &Marks, kept: &mut Kept| kept.used.elapsed() > RENEWED_AFTER;
        gone.extend(all.extract_if(.., is_over).map(|(_, kept)| kept));
        while all.len() > ALL_MAX {
            let oldest = all.iter().min_by_key(|(_, kept)| kept.made);
            let Some(marks) = oldest.map(|(marks, _)| marks.clone()) else {
                break;
            };
            gone.extend(all.remove(&marks));
        }
        drop(all);
        let files: Vec<PathBuf> = gone.into_iter().filter_map(|kept| kept.file).collect();
        tokio::spawn(async move {
            sleep(LINGERS).await;
            for file in files {
                let _ = fs::remove_file(file);
            }
        });
    }
}

impl Prewarm {
    fn frozen_place(&self) -> PathBuf {
        self.server.engine.state().join("served/frozen")
    }

    /// Removes those of an earlier own: a kernel may have come since that they do not fit.
    pub(super) fn find_frozen(&self) {
        let _ = remove_home(&self.frozen_place());
    }

    /// Makes the file of these marks in a sandbox that is wanted as this one is, unless there is a
    /// current one, or nobody may. It is for speed alone: without it interpreters begin by themselves.
    pub(super) async fn keep_interpreter(self: &Arc<Self>, marks: &Marks, wanted: &CreateSandbox) {
        // Nobody waits for that of others.
        let Ok(_turn) = self.frozen.turn.try_lock() else {
            return;
        };
        if self.frozen.is_current(marks) || self.server.room.check(For::Ahead).is_err() {
            return;
        }
        let made = self.frozen_of(marks, wanted).await;
        let made = made.unwrap_or_else(|refusal| {
            let why = refusal.what;
            eprintln!("atoll serve: no interpreter is kept in a file: {why}");
            None
        });
        self.frozen.keep(marks.clone(), made);
    }

    /// Has the file of a sandbox that is wanted made for the next one, later, unless one is being made.
    pub(super) fn keep_interpreter_later(self: &Arc<Self>, marks: Marks, wanted: &CreateSandbox) {
        if self.frozen.is_current(&marks) || self.frozen.turn.try_lock().is_err() {
            return;
        }
        let (own, wanted) = (Arc::clone(self), wanted.clone());
        tokio::spawn(async move {
            sleep(FIRST_REQUESTS).await;
            own.keep_interpreter(&marks, &wanted).await;
        });
    }

    async fn frozen_of(
        self: &Arc<Self>,
        marks: &Marks,
        wanted: &CreateSandbox,
    ) -> Result<Option<PathBuf>, Refusal> {
        let (id, file) = (format!("i{}", name(20)?), name(20)?);
        let wanted = alone(marks, &id, wanted);
        let (own, asked, command) = (Arc::clone(self), wanted.clone(), command());
        let programs = [command.iter().map(Into::into).collect()];
        let may = spawn_blocking(move || own.server.engine.may_be_ahead(&asked, &programs)).await;
        let may = may.map_err(|error| fault(&error))?;
        if !may.map_err(|failure| refusal(&failure))? {
            return Ok(None);
        }
        let (sandbox, _life) = self
            .server
            .attempt(&wanted)
            .await?
            .map_err(|why| refusal(&why.failure()))?;
        let sandbox = Arc::new(sandbox);
        let ask = StartAsk {
            command,
            environment: variables(&id),
            ..StartAsk::default()
        };
        let (nobody, place) = (PriorAnswer::Nobody, self.server.place(&marks.tenant, &ask));
        let is_whole = async {
            let started =
                Process::start(&sandbox, ask, ServedExec::default(), nobody, place?).await;
            let (process, _reading) = started.map_err(|why| match why {
                NotStarted::Refused(refusal) => refusal,
                NotStarted::NeedsApproval(_) => {
                    Refusal::new(Kind::Forbidden, "policies ask about it")
                }
            })?;
            let _ = timeout(MADE_WITHIN, process.window.ended()).await;
            Ok(process.window.over() == Some(End::Exited(0)))
        };
        let is_whole: Result<bool, Refusal> = is_whole.await;
        let (home, file) = (
            self.frozen_place().join(&id),
            self.frozen_place().join(file),
        );
        // However it went, to end it takes as long as there are files to remove.
        let taken = spawn_blocking(move || {
            if !is_whole? {
                drop(sandbox);
                let what = "it has ended, or its time was over, before it was kept";
                return Err(Refusal::new(Kind::Unavailable, what));
            }
            fs::create_dir_all(home.parent().unwrap_or(&home)).map_err(|error| fault(&error))?;
            let kept = sandbox.kill_keeping_home(&home);
            let kept = kept.map_err(|failure| refusal(&failure))?;
            let taken = take(&kept.path.join(FILE), &file).map_err(|error| fault(&error));
            let _ = remove_home(&home);
            taken.map(|()| Some(file))
        });
        taken.await.map_err(|error| fault(&error))?
    }
}

/// Returns the request for a sandbox like this one, of nobody, with nothing but its template.
fn alone(marks: &Marks, id: &str, wanted: &CreateSandbox) -> CreateSandbox {
    let mut wanted = wanted.clone();
    wanted.workspace = Workspace::Own(Box::new(Served {
        sandbox: id.to_owned(),
        tenant: marks.tenant.clone(),
        template: marks.template.clone(),
        ..Served::default()
    }));
    (wanted.home, wanted.made_at, wanted.frozen) = (None, None, None);
    if let Some(system) = &mut wanted.system {
        system.begins = None;
        system.changed.clear();
    }
    wanted.requested.presets.clear();
    wanted.requested.allow.clear();
    wanted.requested.ask.clear();
    wanted
}

/// Takes the file out of the home of a sandbox that is gone, as one that nobody changes.
fn take(from: &Path, to: &Path) -> io::Result<()> {
    let facts = fs::symlink_metadata(from)?;
    if !facts.is_file() || facts.nlink() != 1 || facts.len() > BYTES_MAX {
        return Err(io::Error::other("it is no file, or too long"));
    }
    // Of whoever this is: the sandbox's programs have no part in it any more.
    let own = fs::metadata(to.parent().unwrap_or(to))?;
    chown(from, Some(own.uid()), Some(own.gid()))?;
    fs::set_permissions(from, Permissions::from_mode(0o444))?;
    fs::rename(from, to)
}

/// Returns the program that writes the file.
fn command() -> Vec<String> {
    [
        "python3".to_owned(),
        format!("{TEMPLATE_DIRECTORY}/{PROGRAM}"),
        format!("{}/{FILE}", RESIDENT.home),
        IMPORTED.join(","),
        READ_EARLY.join(","),
    ]
    .into()
}

/// Returns the variables that it begins with: those of an interpreter, and that the addresses of
/// functions are looked up at once. Each that is written later is a page of a sandbox's own.
fn variables(id: &str) -> BTreeMap<String, String> {
    let mut all = environment(id, true, BTreeMap::new());
    all.insert("LD_BIND_NOW".to_owned(), "1".to_owned());
    all
}
