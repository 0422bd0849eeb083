//! Sandboxes that live: made, worked in by execs and files, looked at, and ended, by any program
//! that links this library.
//!
//! A program that gives them a network takes the [roles](crate::roles) first. Start reading at
//! [`Engine::create`]. Each sandbox is a run like any other: decided, recorded,
//! supervised by [`call`](crate::call) on a thread of its own, and spoken to by an [`Owner`].

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

use atoll_ledger::{Ledger, StateDir};
pub use atoll_model::network::{ApprovalScope, CallDigest, Scope};
use atoll_model::{CallId, Ending, LimitKey, Mode, RunId, Served};
use atoll_policy::HostFacts;
pub use atoll_policy::{Outputs, PriorAnswer, Requested, RequestedProfile};
pub use atoll_sandbox::{
    Change, Decision, Entry, EntryKind, FROZEN_FILE, FileChange, FileServer, FileWatch, InUse,
    Pending, Size, TEMPLATE_DIRECTORY, disk_bytes,
};
use atoll_sandbox::{Host, Spawner, detect_groups, forecast, in_use, memory_in_use};
use atoll_store::load_run;

use crate::CallError;
use crate::changes::{self, LayerChanges};
use crate::configuration::{self, Places};
use crate::control::{refused, stand_still, unanswered};
use crate::failure::{Doing, Failure};
pub use crate::home::{Home, KeptHome, LINKS, MadeAt, System, UPPER, WHOLE, part_name};
pub use crate::layer_copies::LayerCopies;
use crate::run::read_machine;
pub use crate::supervision::ExecRequest;
use crate::supervision::{Answer, ControlError, Owner, Question, owner};

mod ahead;
mod approving;
mod exec;
mod finishing;
pub(crate) mod home;
mod host_layer;
mod named;
mod nobody;
mod preparing;
mod recorded;
mod serving;
pub(crate) mod shadowing;
mod sleeping;
mod supervised;
mod templates;
mod volumes;
mod wanted;

pub use crate::call::NeedsApproval;
pub use ahead::Assignment;
use ahead::Basis;
pub use approving::NotMade;
pub use exec::Exec;
pub use home::remove_home;
use named::Named;
pub use recorded::{FoundEvents, NamedRequest, ServedSession, WantedEvents};
pub use sleeping::Still;
pub use templates::{IMAGE, import_image, make_template_layer};
pub use volumes::{
    Staged, VolumeEntry, VolumeFiles, VolumeWrite, clear_staging, volume_files, volume_usage,
};

/// The proxy of every sandbox's network, which programs there ask for connections.
pub const PROXY: SocketAddrV4 = SocketAddrV4::new(atoll_egress::PROXY_ADDRESS, 80);

/// Everything that sandboxes share: the state, the ledger, and a launcher that stays.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    places: Places,
    pub(crate) state: StateDir,
    pub(crate) ledger: Ledger,
    host: HostFacts,
    machine: Host,
    mode: Mode,
    spawner: Spawner,
    named: Named,
}

/// The files that the programs of a sandbox work on.
#[derive(Clone, Debug)]
pub enum Workspace {
    /// A directory of the host, by a copy-on-write layer.
    Directory(PathBuf),
    /// A home of the sandbox's own, for a caller of a server. Its changes are gone with it.
    Own(Box<Served>),
}

/// A request for a sandbox that lives until it is ended.
#[derive(Clone, Debug)]
pub struct CreateSandbox {
    /// The files that its programs work on.
    pub workspace: Workspace,
    /// The profile, and hosts, limits and the like beyond it, as on the command line. By default
    /// the boundary of the default profile.
    pub requested: Requested,
    /// True if its changes are gone with it, and no run is kept but in the ledger.
    pub discard: bool,
    /// True if whatever needs a person's approval waits for [`Sandbox::decide`]; it is denied
    /// otherwise.
    pub is_attended: bool,
    /// The home that a served one begins with; it is moved, and back again if none is made.
    pub home: Option<KeptHome>,
    /// The places where its home, and root's changes of the system, are made where it begins with
    /// none: by whoever may give files to the ids of programs, or where these are the caller's.
    pub made_at: Option<MadeAt>,
    /// The files of a served one's template: a directory to read at [`TEMPLATE_DIRECTORY`].
    pub template: Option<PathBuf>,
    /// A file with the memory of its interpreter, to read at [`FROZEN_FILE`].
    pub frozen: Option<PathBuf>,
    /// The system of a served one whose programs are root, as a template has it.
    pub system: Option<System>,
    /// The answer of an approver about a served one, if one was asked.
    pub answer: PriorAnswer,
    /// The call of the tool that it is made for.
    pub parent: Option<Box<CallId>>,
    /// The copies of a run's layers in which it begins; the profile is chosen as for that run.
    pub begins_with: Option<Box<LayerCopies>>,
}

/// A living sandbox. Dropping it ends it.
pub struct Sandbox {
    run: RunId,
    wanted: CreateSandbox,
    /// The basis of its decision, for what is decided on it later.
    basis: Box<Basis>,
    /// The caller that it was given to, if it was made ahead.
    assigned: OnceLock<Box<Served>>,
    replacing: Mutex<()>,
    home: Arc<Home>,
    /// True while its processes stand still for a caller.
    is_still: AtomicBool,
    shared: Arc<Shared>,
    owner: Owner,
    supervised: Mutex<Option<JoinHandle<Result<Ending, CallError>>>>,
}

/// Returns a variable of a sandbox's programs: a credential's has its placeholder.
#[must_use]
pub fn variable_in<'a>(sandbox: &'a Sandbox, name: &str) -> Option<&'a OsStr> {
    let mut all = sandbox.basis.boundary().environment.iter();
    all.find(|(own, _)| own == name).map(|(_, value)| &**value)
}

/// An exec that has ended, with what it wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The way that it ended.
    pub ending: Ending,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
}

impl Engine {
    /// Opens the caller's own state. `launcher` is the launcher program's bytes.
    ///
    /// # Errors
    /// When the state cannot be used, or this host cannot hold a program.
    pub fn open(launcher: &[u8]) -> Result<Self, Failure> {
        let places = Places::read()?;
        let state = places.open_state()?;
        let ledger = crate::events::open_ledger(&state)?;
        let host = configuration::host_facts(&places)?;
        let (machine, mode) = read_machine()?;
        let spawner = Spawner::start(launcher, &machine).doing("the launcher cannot be started")?;
        let shared = Arc::new(Shared {
            places,
            state,
            ledger,
            host,
            machine,
            mode,
            spawner,
            named: Named::default(),
        });
        Ok(Self { shared })
    }

    /// Returns whether sandboxes can be made: whether there is a launcher for them.
    #[must_use]
    pub fn makes(&self) -> bool {
        self.shared.spawner.is_there()
    }

    /// Returns the directory of profiles, policies and tools.
    #[must_use]
    pub fn configuration(&self) -> &Path {
        &self.shared.places.config
    }

    /// Returns the directory of its state, on the disk that sandboxes write to.
    #[must_use]
    pub fn state(&self) -> &Path {
        self.shared.state.path()
    }

    /// Returns a digest of the host's system, by which a layer of it is known again; `None` where
    /// sandboxes stand on the host's own.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn host_digest(&self) -> Result<Option<String>, Failure> {
        let is_root = self.shared.machine.is_root;
        is_root.then(host_layer::digest).transpose()
    }

    /// Makes a layer of the host's system, in a new directory: the lowest one of templates over it.
    ///
    /// # Errors
    /// When it cannot be kept.
    pub fn make_host_layer(&self, layer: &Path) -> Result<(), Failure> {
        host_layer::make(layer)
    }

    /// Returns whether this host enforces a limit of sandboxes; one that is asked for and cannot be
    /// enforced is refused.
    #[must_use]
    pub fn enforces(&self, limit: LimitKey) -> bool {
        let (host, mode) = (&self.shared.machine, self.shared.mode);
        let all = forecast(&detect_groups(host), mode, host.unmapped);
        let mut found = all.iter().filter(|one| one.limit == limit.name());
        found.any(|one| one.by != "none")
    }

    /// Makes a sandbox: decided, recorded, and ready for execs.
    ///
    /// # Errors
    /// When it is refused, or cannot be made.
    pub fn create(&self, wanted: &CreateSandbox) -> Result<Sandbox, Failure> {
        let made = self.create_watched(wanted, |_| ());
        made.map_err(NotMade::failure)
    }

    /// Makes a sandbox as [`Engine::create`] does, and calls `ended` once it is gone, however that
    /// came: from another thread, and before [`Sandbox::kill`] returns.
    ///
    /// # Errors
    /// [`NotMade`]; of a served one also that policies ask about it.
    pub fn create_watched(
        &self,
        wanted: &CreateSandbox,
        ended: impl FnOnce(&Result<Ending, CallError>) + Send + 'static,
    ) -> Result<Sandbox, NotMade> {
        let mut wanted = wanted.clone();
        if let Workspace::Directory(directory) = &mut wanted.workspace {
            *directory = directory
                .canonicalize()
                .doing("the workspace cannot be used")
                .map_err(NotMade::Failed)?;
        }
        let (ready, is_ready) = channel();
        let line = owner().doing("no line to the sandbox can be made");
        let (owner, owned) = line.map_err(NotMade::Failed)?;
        let kept = wanted.clone();
        let system = wanted.system.clone();
        let is_root = self.shared.machine.is_root;
        let home = Home::new(
            wanted.home.take(),
            wanted
                .made_at
                .take()
                .filter(|_| is_root || system.is_none()),
            wanted.template.clone(),
            wanted.frozen.clone(),
            system,
        );
        let own = Arc::clone(&home);
        let shared = Arc::clone(&self.shared);
        let supervised = std::thread::Builder::new().spawn(move || {
            let told = ready.clone();
            let outcome = supervised::supervise(&shared, &wanted, &own, &owned, ready);
            ended(&outcome);
            outcome.inspect_err(|error| {
                let _ = told.send(Err(NotMade::of(error)));
            })
        });
        let supervised = supervised.doing("no thread can be made");
        let supervised = supervised.map_err(NotMade::Failed)?;
        let gone = || Err(NotMade::Failed(Failure::new("the sandbox was not made")));
        let basis = is_ready.recv().unwrap_or_else(|_| gone())?;
        Ok(Sandbox {
            run: basis.call.run().clone(),
            wanted: kept,
            basis,
            assigned: OnceLock::new(),
            replacing: Mutex::new(()),
            home,
            is_still: AtomicBool::new(false),
            shared: Arc::clone(&self.shared),
            owner,
            supervised: Mutex::new(Some(supervised)),
        })
    }
}

impl Sandbox {
    /// Returns its run, by which everything is recorded.
    #[must_use]
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Starts a program on these streams: standard input, output and error. Without a terminal they
    /// are pipes, which the program gets as they are; with one of this size they are copied from
    /// and to it.
    ///
    /// # Errors
    /// When the sandbox is gone; a refusal is the answer of [`Exec::wait`].
    pub fn start(
        &self,
        request: ExecRequest,
        streams: [OwnedFd; 3],
        terminal: Option<Size>,
    ) -> Result<Exec, Failure> {
        let connection = self.owner.exec(request, streams, terminal);
        Ok(Exec {
            run: self.run.clone(),
            connection: connection.map_err(|error| unanswered(&self.run, &error))?,
            asked: None,
        })
    }

    /// Runs a program without input to its end.
    ///
    /// # Errors
    /// When it is refused, or cannot be started.
    pub fn exec<'a>(&self, command: impl IntoIterator<Item = &'a str>) -> Result<Output, Failure> {
        let request = ExecRequest {
            command: command.into_iter().map(Into::into).collect(),
            directory: None,
            environment: Vec::new(),
            served: None,
            answer: PriorAnswer::Nobody,
            parent: None,
        };
        let pipe = || std::io::pipe().doing("no pipe can be made");
        let ((nothing, _), (mut out, out_end), (mut err, err_end)) = (pipe()?, pipe()?, pipe()?);
        let streams = [nothing.into(), out_end.into(), err_end.into()];
        let mut exec = self.start(request, streams, None)?;
        let reads_errors = std::thread::spawn(move || {
            let mut text = Vec::new();
            err.read_to_end(&mut text).map(|_| text)
        });
        let mut stdout = Vec::new();
        out.read_to_end(&mut stdout)
            .doing("its output cannot be read")?;
        let stderr = reads_errors.join().unwrap_or_else(|_| Ok(Vec::new()));
        Ok(Output {
            ending: exec.wait()?,
            stdout,
            stderr: stderr.doing("its output cannot be read")?,
        })
    }

    /// Opens a regular file by its absolute path in the sandbox, with the rights of its programs.
    ///
    /// # Errors
    /// When there is no such file, or they may not read it.
    pub fn open(&self, path: &Path) -> Result<File, Failure> {
        self.opened(path, None)
    }

    /// Opens a regular file to write it from empty, or makes it with these permission bits.
    ///
    /// # Errors
    /// When its programs may not write there.
    pub fn create_file(&self, path: &Path, mode: u16) -> Result<File, Failure> {
        self.opened(path, Some(mode))
    }

    fn opened(&self, path: &Path, writing: Option<u16>) -> Result<File, Failure> {
        let opened = self.files()?.open(path, writing);
        opened.doing(&format!(
            "{} cannot be opened in the sandbox",
            path.display()
        ))
    }

    /// Starts a file server in it, with the rights of its programs, for one caller at a time.
    ///
    /// # Errors
    /// When the sandbox does not answer.
    pub fn files(&self) -> Result<FileServer, Failure> {
        let served = self.owner.files();
        let served = served.map_err(|error| unanswered(&self.run, &error))?;
        served.map_err(|declined| refused(&self.run, declined))
    }

    /// Returns the memory that it uses now, bytes, where it is known.
    #[must_use]
    pub fn memory_bytes(&self) -> Option<u64> {
        memory_in_use(&self.shared.machine, &self.run, self.owner.launcher())
    }

    /// Measures the resources that it uses now.
    #[must_use]
    pub fn in_use(&self) -> InUse {
        let begun = self.home.begins().map(|home| home.layers.clone());
        let mut files = begun.unwrap_or_default();
        files.push(self.home_path());
        in_use(
            &self.shared.machine,
            &self.run,
            self.owner.launcher(),
            &files,
        )
    }

    /// Reads what its programs have changed, at one moment: it stands still meanwhile. Of a sandbox
    /// whose changes are discarded there is no record to read them by.
    ///
    /// # Errors
    /// When it cannot stand still, or its changes cannot be read.
    pub fn changes(&self) -> Result<Vec<LayerChanges>, Failure> {
        let state = &self.shared.state;
        let frozen = stand_still(state, &self.run)?;
        let record = load_run(state, &self.run).doing("its record cannot be read")?;
        let changes = changes::read(state, &record)?;
        match frozen.is_none_or(|frozen| frozen.has_held()) {
            true => Ok(changes),
            false => Err(Failure::new("it went on while its changes were read")),
        }
    }

    /// Ends it, with everything that runs in it. Its changes are kept for a decision.
    ///
    /// # Errors
    /// When it did not come to its end as it should have.
    pub fn kill(&self) -> Result<(), Failure> {
        // Kept until it is gone: whoever else ends it waits for that.
        let mut kept = self.supervised();
        let Some(supervised) = kept.take() else {
            return Ok(());
        };
        if let Err(failure) = self.ask_to_end() {
            *kept = Some(supervised);
            return Err(failure);
        }
        match supervised.join() {
            Ok(ended) => ended.map(drop).doing("it did not come to its end"),
            Err(_) => Err(Failure::new("it did not come to its end")),
        }
    }

    fn ask_to_end(&self) -> Result<(), Failure> {
        match self.owner.ask(Question::Stop {}) {
            Ok(Answer::Refused(declined)) => Err(refused(&self.run, declined)),
            // It ends by itself, or was ended by somebody else.
            Ok(_) | Err(ControlError::Gone) => Ok(()),
            Err(error) => Err(unanswered(&self.run, &error)),
        }
    }

    /// Returns whether it is gone.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        !self.is_there()
    }

    fn supervised(&self) -> MutexGuard<'_, Option<JoinHandle<Result<Ending, CallError>>>> {
        self.supervised
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn is_there(&self) -> bool {
        let supervised = self.supervised();
        supervised
            .as_ref()
            .is_some_and(|supervised| !supervised.is_finished())
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // Who wants to know how it ended ends it itself.
        let _ = self.kill();
    }
}
