//! The writable parts of a run: each a layer, a copy, or the host's files with a checkpoint.

mod resumed;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use atoll_layer::{IdShift, RelativePath, checkpoint, control_paths};
use atoll_ledger::Durability;
use atoll_model::{Access, Boundary, Input, Keep, View, ViewKind, WorkspaceMode};
use atoll_policy::Grant;
use atoll_sandbox::{IDS, Placement, WorkspacePlace, furnish_trust, identity_base, make_layer};
use atoll_store::{
    InputFacts, LayerHow, LayerKind, LayerRecord, OverlayXattrs, RunRecord, RunState, update_run,
};
use rustix::fs::FlockOperation;

use crate::fallback::Offered;
use crate::home::Home;
use crate::kept::Kept;
use crate::place_error::state_error;
use crate::served::{ServedPlace, make_empty, make_home};
use crate::slug::slug;
use crate::ssh::SshPlace;
use crate::trust::Trust;
use crate::{PlaceError, Request, fencing, inputs, kept, login, outputs, rooted, volume_place};

/// The directory of layers in a run's directory.
const LAYERS: &str = "layers";
/// The name of the workspace's layer.
const WORKSPACE: &str = "workspace";

/// The layers and files that [`place`] has made.
pub(crate) struct Placed {
    pub(crate) placement: Placement,
    pub(crate) notices: Vec<String>,
    /// The certificate authority that its programs trust.
    pub(crate) trust: Option<Trust>,
    /// The files by which its programs use SSH keys.
    pub(crate) ssh: Option<SshPlace>,
    /// Its inputs.
    pub(crate) inputs: Vec<InputFacts>,
    /// Layers over parts of the home that the profile's next run continues.
    pub(crate) kept: Vec<Kept>,
    /// Locks of layers that several runs share, held while this one runs.
    _locks: Vec<File>,
}

/// Makes the layers for one run and enters them into its record.
pub(crate) fn place(
    request: &Request<'_>,
    grant: &Grant,
    record: &mut RunRecord,
) -> Result<Placed, PlaceError> {
    let boundary = grant.boundary();
    let served = ServedPlace::of(request)?;
    let mut placing = Placing::new(request, grant);
    if let Some(earlier) = request.resume {
        placing.take_over(earlier)?;
    }
    let workspace = placing.workspace(boundary.workspace)?;
    let of_person = |(view, _): &(&View, Keep)| view.kind != ViewKind::System;
    let views = boundary.views.iter().filter_map(layered).filter(of_person);
    let empty = make_empty(request.state.path())?;
    let (system, further) = rooted::place(&mut placing, boundary, &empty)?;
    let trust = Trust::of(request, boundary)?;
    if let Some(trust) = trust.as_ref().filter(|_| boundary.root) {
        furnish_trust(&system, trust.files(), placing.base)?;
    }
    let mut layers = system;
    for (view, keep) in views {
        layers.extend(placing.view(view, keep, boundary)?);
    }
    kept::tell_absent(&mut placing, boundary);
    let login::Shown { mut hidden, texts } = login::place(&mut placing, boundary, &mut layers)?;
    placing.kept.iter().try_for_each(Kept::note)?;
    volume_place::check(&placing.offered, boundary)?;
    let fence = fencing::place(&mut placing, boundary)?;
    let inputs = inputs::stage(request.state, &placing.run_dir(), request.call, boundary)?;
    // Their copies are shown.
    hidden.extend(boundary.inputs.all.iter().map(Input::inside));
    let outputs = outputs::place(request, boundary, placing.base, &inputs.all)?;
    let ssh = SshPlace::make(&placing.run_dir(), boundary, request.signing)?;
    let notices = placing.offered.notices(boundary, placing.base);
    placing.notices.extend(notices);
    record.layers = placing.layers;
    record.base = placing.base;
    note_layers(request, record)?;
    Ok(Placed {
        placement: Placement {
            workspace,
            layers,
            base: placing.base,
            further,
            unmapped: placing.offered.unmapped,
            empty,
            trust: trust.as_ref().map(|trust| trust.files().to_path_buf()),
            accounts: served.filter(|_| !boundary.root).map(|one| one.accounts),
            template: request.home.and_then(Home::template),
            frozen: request.home.and_then(Home::frozen),
            outputs,
            inputs: inputs.directory,
            links: rooted::links(request.home, boundary.root)?,
            ssh: ssh.as_ref().map(|ssh| ssh.directory().to_path_buf()),
            hidden,
            texts,
            repository: request.rules.repository().map(|found| found.identity),
            fence,
        },
        notices: placing.notices,
        trust,
        ssh,
        inputs: inputs.all,
        kept: placing.kept,
        _locks: placing.locks,
    })
}

/// Enters the layers into the record of their run, before anything is written there: whoever looks after a
/// sudden end finds them by this.
fn note_layers(request: &Request<'_>, record: &RunRecord) -> Result<(), PlaceError> {
    if request.is_scratch() {
        return Ok(());
    }
    let placed = |kept: &mut RunRecord| kept.clone_from(record);
    update_run(request.state, &record.run, Durability::Buffered, placed)?;
    if let Some(earlier) = request.resume {
        let went_on = |kept: &mut RunRecord| kept.state = RunState::Discarded;
        update_run(request.state, &earlier.run, Durability::Buffered, went_on)?;
    }
    Ok(())
}

fn layered(view: &View) -> Option<(&View, Keep)> {
    match view.access {
        Access::ReadOnly => None,
        Access::Layer(layering) => Some((view, layering.keep)),
    }
}

/// Returns, for host root, the owner of the files in the layers. Layers that outlive a run
/// belong to their profile, so that its next run can continue them.
fn base_of(request: &Request<'_>, boundary: &Boundary) -> u32 {
    if let Some(base) = request.resume.and_then(|earlier| earlier.base) {
        return base;
    }
    if let Some(copies) = request.begins_with {
        return copies
            .of
            .base
            .unwrap_or_else(|| identity_base(request.call.run().as_str()));
    }
    let begun = request.home.and_then(Home::begins);
    if let Some(base) = begun.and_then(|home| home.base) {
        return base;
    }
    let shared = boundary
        .views
        .iter()
        .filter_map(layered)
        .any(|(view, keep)| keep == Keep::Profile && view.host.is_dir());
    if shared {
        identity_base(&boundary.profile)
    } else {
        identity_base(request.call.run().as_str())
    }
}

pub(crate) struct Placing<'a> {
    pub(crate) request: &'a Request<'a>,
    pub(crate) offered: Offered<'a>,
    pub(crate) base: Option<u32>,
    /// The labels that the run begins with.
    pub(crate) labels: &'a BTreeSet<String>,
    pub(crate) layers: Vec<LayerRecord>,
    /// Layers that are not part of the run's changes.
    pub(crate) kept: Vec<Kept>,
    pub(crate) locks: Vec<File>,
    pub(crate) notices: Vec<String>,
    /// Sockets, pipes and devices in the workspace.
    pub(crate) special: Vec<PathBuf>,
    /// Files of the workspace that have other names (hard links) outside it.
    pub(crate) shared: Vec<RelativePath>,
}

impl<'a> Placing<'a> {
    fn new(request: &'a Request<'a>, grant: &'a Grant) -> Self {
        let boundary = grant.boundary();
        Self {
            labels: grant.labels(),
            request,
            offered: Offered::new(
                request.host,
                request.state.path(),
                boundary,
                request.call.workspace(),
            ),
            base: request.host.is_root.then(|| base_of(request, boundary)),
            layers: Vec::new(),
            kept: Vec::new(),
            locks: Vec::new(),
            notices: Vec::new(),
            special: Vec::new(),
            shared: Vec::new(),
        }
    }
}

impl Placing<'_> {
    fn workspace(&mut self, mode: WorkspaceMode) -> Result<WorkspacePlace, PlaceError> {
        match mode {
            WorkspaceMode::ReadOnly => Ok(WorkspacePlace::ReadOnly),
            WorkspaceMode::Live => self.live(),
            WorkspaceMode::CopyOnWrite if self.request.call.served().is_some() => self.home(),
            WorkspaceMode::CopyOnWrite if self.can_overlay() => self.overlay(),
            WorkspaceMode::CopyOnWrite => self.copy(),
        }
    }

    /// Returns whether the workspace is given as a layer. A run that continues one with a copy
    /// has a copy.
    fn can_overlay(&self) -> bool {
        let is_copy =
            |layer: &LayerRecord| layer.kind == LayerKind::Workspace && layer.how == LayerHow::Copy;
        self.offered.can_layer(self.request.call.workspace()) && !self.layers.iter().any(is_copy)
    }

    /// Returns a layer's path in the run's directory. A scratch run has the workspace's right
    /// there: there is less to make and to remove.
    fn below(&self, name: &str) -> PathBuf {
        if self.request.is_scratch() && name == WORKSPACE {
            PathBuf::new()
        } else {
            Path::new(LAYERS).join(name)
        }
    }

    /// Returns a layer's directory among the copies in which the sandbox begins.
    fn copied(&self, name: &str) -> Option<PathBuf> {
        let copies = self.request.begins_with?;
        Some(copies.directory.join(name))
    }

    fn xattrs(&self) -> OverlayXattrs {
        if self.base.is_some() {
            OverlayXattrs::Trusted
        } else {
            OverlayXattrs::User
        }
    }

    fn overlay(&mut self) -> Result<WorkspacePlace, PlaceError> {
        let workspace = self.request.call.workspace();
        let below = self.below(WORKSPACE);
        let copied = self.copied(WORKSPACE);
        let directory = copied.unwrap_or_else(|| self.run_dir().join(&below));
        let (mut layer, since) = make_layer(&directory, workspace, workspace, self.base)?;
        layer.volatile = self.request.is_scratch();
        let how = LayerHow::Overlay {
            xattrs: self.xattrs(),
        };
        self.note_workspace(how, below.join("upper"), since);
        Ok(WorkspacePlace::Layer(layer))
    }

    /// Makes the home of a served sandbox.
    fn home(&mut self) -> Result<WorkspacePlace, PlaceError> {
        let below = PathBuf::from("upper");
        let home = self.run_dir().join(&below);
        let home = make_home(&home, self.base, self.request.home)?;
        self.note_workspace(LayerHow::Copy, below, self.request.now());
        Ok(home)
    }

    fn copy(&mut self) -> Result<WorkspacePlace, PlaceError> {
        let below = Path::new(LAYERS).join(WORKSPACE).join("copy");
        let copy = self.run_dir().join(&below);
        if let Some(copies) = self.request.begins_with {
            let why = "here there can be no layer over its workspace";
            return Err(PlaceError::NotBegun(copies.of.run.clone(), why));
        }
        if self.request.resume.is_none() {
            let why = self.offered.why_copied(self.request.call.workspace());
            self.notices.extend(why);
            let ids = self
                .base
                .map_or(IdShift::None, |base| IdShift::Base { base, count: IDS });
            let since = self.checkpoint(&copy, ids)?;
            self.note_workspace(LayerHow::Copy, below, since);
        } else if let Some(earlier) = self.request.resume
            && !copy.is_dir()
        {
            return Err(PlaceError::NotResumable(
                earlier.run.clone(),
                "it worked in a layer, and here there can be none",
            ));
        }
        Ok(WorkspacePlace::Copy(copy))
    }

    fn live(&mut self) -> Result<WorkspacePlace, PlaceError> {
        let below = PathBuf::from("checkpoint");
        let workspace = self.request.call.workspace();
        if !self.offered.maps(workspace) {
            return Err(PlaceError::Unmapped {
                path: workspace.to_owned(),
                why: self.offered.why_unmapped(workspace),
            });
        }
        let since = self.checkpoint(&self.run_dir().join(&below), IdShift::None)?;
        self.note_workspace(LayerHow::Live, below, since);
        let sealed = control_paths(workspace, self.request.git)?;
        Ok(WorkspacePlace::Live {
            sealed,
            covered: self.special.clone(),
        })
    }

    /// Copies the workspace as it is now; returns the time when the copy was complete.
    fn checkpoint(&mut self, to: &Path, ids: IdShift) -> Result<SystemTime, PlaceError> {
        if let Some(parent) = to.parent() {
            std::fs::create_dir_all(parent).map_err(state_error("making", parent))?;
        }
        let facts = checkpoint(self.request.call.workspace(), to, ids, &mut |_| {})?;
        for skipped in &facts.skipped {
            self.notices
                .push(format!("not copied: {}: {}", skipped.path, skipped.why));
            let path = self.request.call.workspace().join(skipped.path.as_os_str());
            let is_special = |facts: std::fs::Metadata| {
                let kind = facts.file_type();
                !(kind.is_file() || kind.is_dir() || kind.is_symlink())
            };
            if path.symlink_metadata().is_ok_and(is_special) {
                self.special.push(path);
            }
        }
        self.shared = facts.shared;
        Ok(facts.finished)
    }

    fn note_workspace(&mut self, how: LayerHow, upper: PathBuf, since: SystemTime) {
        if self
            .layers
            .iter()
            .any(|layer| layer.kind == LayerKind::Workspace)
        {
            // Taken over from the run that this one resumes.
            return;
        }
        let workspace = self.request.call.workspace().to_owned();
        self.layers.insert(
            0,
            LayerRecord {
                name: WORKSPACE.to_owned(),
                host: workspace.clone(),
                inside: workspace,
                kind: LayerKind::Workspace,
                how,
                upper,
                since: stamp(since),
                shared: false,
                logins: Vec::new(),
                settings: Vec::new(),
                worktree: None,
            },
        );
    }

    /// Makes a layer over a directory of the home.
    fn view(
        &mut self,
        view: &View,
        keep: Keep,
        boundary: &Boundary,
    ) -> Result<Option<atoll_sandbox::PlacedLayer>, PlaceError> {
        let Ok(host_path) = view.host.canonicalize() else {
            return Ok(None);
        };
        if !host_path.is_dir() {
            return Ok(None);
        }
        let is_whole = self.request.host.mounts_within(&host_path).next().is_none();
        // Elsewhere a mount within is an error: what the profile names has to be there.
        let is_needed = view.kind != ViewKind::Repository;
        if !self.offered.can_layer(&host_path) || !(is_whole || is_needed) {
            self.offered.without_layer(&view.inside);
            return Ok(None);
        }
        let name = slug(&view.inside);
        let copied = self.copied(&name);
        // Nothing that runs have kept counts there, and nothing is kept of it.
        let keep = copied.as_ref().map_or(keep, |_| Keep::Run);
        let is_configuration = view.kind == ViewKind::Home;
        let shared = match keep {
            Keep::Run => None,
            Keep::Profile if is_configuration => {
                match kept::place(self, view, &host_path, boundary) {
                    Some(layer) => return Ok(Some(layer)),
                    None => None,
                }
            }
            Keep::Profile => self.lock_shared(&format!("{}-{name}", boundary.profile))?,
        };
        let (below, directory) = match &shared {
            Some(below) => (
                below.clone(),
                self.request.state.shared_layers_dir().join(below),
            ),
            None => {
                let below = Path::new(LAYERS).join(&name);
                let directory = copied.unwrap_or_else(|| self.run_dir().join(&below));
                (below, directory)
            }
        };
        let (mut layer, since) = make_layer(&directory, &host_path, &view.inside, self.base)?;
        layer.volatile = self.request.is_scratch() && shared.is_none();
        if !self.layers.iter().any(|layer| layer.name == name) {
            self.layers.push(LayerRecord {
                name,
                host: host_path,
                inside: view.inside.clone(),
                kind: match view.kind {
                    ViewKind::Cache => LayerKind::Cache,
                    ViewKind::Repository => LayerKind::Repository,
                    ViewKind::Home | ViewKind::System | ViewKind::Input => LayerKind::Home,
                },
                how: LayerHow::Overlay {
                    xattrs: self.xattrs(),
                },
                upper: below.join("upper"),
                since: stamp(since),
                shared: shared.is_some(),
                logins: Vec::new(),
                settings: Vec::new(),
                worktree: self.worktree_of(view),
            });
        }
        Ok(Some(layer))
    }

    /// Returns, for the repository's directory, the name of the workspace's own worktree in it.
    fn worktree_of(&self, view: &View) -> Option<OsString> {
        let repository = self.request.rules.repository()?;
        let is_it = view.kind == ViewKind::Repository;
        repository.worktree.clone().filter(|_| is_it)
    }

    /// Takes a shared layer for this run. One in use by another run is left alone: two overlays
    /// on one directory would destroy each other's work.
    fn lock_shared(&mut self, name: &str) -> Result<Option<PathBuf>, PlaceError> {
        let directory = self.request.state.shared_layers_dir().join(name);
        std::fs::create_dir_all(&directory).map_err(state_error("making", &directory))?;
        let lock = File::open(&directory).map_err(state_error("opening", &directory))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                self.locks.push(lock);
                Ok(Some(PathBuf::from(name)))
            }
            Err(_) => {
                self.notices.push(format!(
                    "the kept cache {name} is in use by another run; this run has a fresh one"
                ));
                Ok(None)
            }
        }
    }

    pub(crate) fn run_dir(&self) -> PathBuf {
        run_dir(self.request)
    }
}

/// Returns the directory of a call's run.
pub(crate) fn run_dir(request: &Request<'_>) -> PathBuf {
    let run = request.call.run();
    match request.is_scratch() {
        true => request.state.scratch_dir(run),
        false => request.state.run_dir(run),
    }
}

pub(crate) fn stamp(time: SystemTime) -> (i64, u32) {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    (
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        since.subsec_nanos(),
    )
}
