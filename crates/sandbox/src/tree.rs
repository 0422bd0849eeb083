//! The plan of a boundary's file tree: a closed list of steps.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use atoll_frame::{Operation, Permission, Source, WHOLE};
use atoll_model::{
    Access, Boundary, INPUTS_DIRECTORY, OUTPUTS_DIRECTORY, View, ViewKind, VolumeMount,
};

use atoll_sys::landlock::Rights;

use crate::execution;
use crate::unshown::unshown;
use crate::{Host, PlacedLayer, Placement, SandboxError, WorkspacePlace};

/// The device nodes that exist in the sandbox.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// The links that programs expect in /dev.
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("dev/fd", "/proc/self/fd"),
    ("dev/stdin", "/proc/self/fd/0"),
    ("dev/stdout", "/proc/self/fd/1"),
    ("dev/stderr", "/proc/self/fd/2"),
    ("dev/ptmx", "pts/ptmx"),
];
/// Parts of /proc that show or change the machine rather than the sandbox.
const PROC_SEALED: [&str; 4] = ["bus", "fs", "irq", "sys"];
const PROC_HIDDEN: [&str; 11] = [
    "cmdline",
    "config.gz",
    "kcore",
    "keys",
    "key-users",
    "kmsg",
    "kallsyms",
    "sched_debug",
    "sysrq-trigger",
    "timer_list",
    "latency_stats",
];
const PROC_HIDDEN_DIRECTORIES: [&str; 3] = ["acpi", "asound", "scsi"];

/// The machine's processors, which can be read: programs size their pools by these files, and some
/// do not start without.
pub(crate) const PROCESSORS: &str = "/sys/devices/system/cpu";

/// The number of inodes for each MiB of a file system in memory.
pub(crate) const INODES_PER_MIB: u64 = 256;
/// The most terminals open in the sandbox at once.
const TERMINALS_MAX: u32 = 64;
/// The largest file that is copied into a home directory, bytes.
pub const HOME_FILE_BYTES_MAX: u64 = 100 * 1024;

/// The steps, and the program's permissions.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) operations: Vec<Operation>,
    pub(crate) permissions: Vec<Permission>,
    made: BTreeSet<PathBuf>,
}

/// Plans the tree of a boundary. `workspace` is the person's directory.
pub(crate) fn plan(
    boundary: &Boundary,
    workspace: &Path,
    placement: &Placement,
    host: &Host,
) -> Result<Plan, SandboxError> {
    let mut plan = Plan::default();
    plan.fixed_places(boundary, placement);
    // What is root's own alone lies over nothing, and comes before what is shown in it.
    let is_seen = |layer: &&PlacedLayer| {
        let mut views = boundary.views.iter();
        views.any(|view| view.inside == layer.inside)
    };
    let own = placement.layers.iter().filter(|layer| !is_seen(layer));
    for layer in own {
        plan.layer_over(layer)?;
    }
    for (path, to) in &placement.links {
        plan.link(path, to);
    }
    // Also where it lies in one of these, as below /var.
    if !plan.made.contains(&boundary.home) {
        plan.memory(&boundary.home, 0o700);
    }
    plan.devices()?;
    plan.processes(boundary.nesting)?;
    plan.processors()?;
    let shown = boundary.views.iter().filter(|view| placement.shows(view));
    let mut mounted: Vec<Mounted<'_>> = shown.map(Mounted::View).collect();
    mounted.push(Mounted::Workspace(workspace));
    // A parent before what lies beneath it, whatever kind each is.
    mounted.sort_by_key(|one| one.inside().components().count());
    for one in mounted {
        match one {
            Mounted::View(view) => {
                plan.find_repository(view, boundary, placement);
                let before = plan.operations.len();
                plan.view(view, placement, host)?;
                plan.refuse_other_repository(view, before, placement)?;
            }
            Mounted::Workspace(path) => plan.workspace(path, placement, host)?,
        }
    }
    for mount in &boundary.volumes {
        plan.volume(mount)?;
    }
    if let Some(trust) = &placement.trust {
        plan.trust(trust, boundary, placement)?;
    }
    if let Some(accounts) = &placement.accounts {
        plan.accounts(accounts)?;
    }
    plan.template(boundary, placement)?;
    if let Some(outputs) = &placement.outputs {
        plan.outputs(&outputs.directory)?;
    }
    plan.inputs(placement)?;
    if let Some(ssh) = &placement.ssh {
        plan.ssh(ssh, boundary, placement)?;
    }
    for (path, content) in &boundary.files {
        plan.memory_file(path, content.clone());
    }
    // The kernel knows files, not the links to them that lists usually name.
    let real = |program: &PathBuf| program.canonicalize().unwrap_or_else(|_| program.clone());
    let programs: Vec<PathBuf> = boundary.programs.iter().map(real).collect();
    if !programs.is_empty() {
        let steps = execution::close(&plan.operations, &programs);
        plan.operations.extend(steps);
    }
    plan.permit(boundary, &programs, workspace, placement);
    Ok(plan)
}

/// The directory of a served sandbox's template in it.
pub const TEMPLATE_DIRECTORY: &str = "/run/atoll/template";

/// The file with the memory of a served sandbox's interpreter, in it.
pub const FROZEN_FILE: &str = "/run/atoll/frozen";

/// The other name of the home in a sandbox that has a template.
const DATA: &str = "/mnt/data";

/// The files of users and groups (passwd(5), group(5)).
pub const ACCOUNTS: [&str; 2] = ["passwd", "group"];

enum Mounted<'a> {
    View(&'a View),
    Workspace(&'a Path),
}

impl Mounted<'_> {
    fn inside(&self) -> &Path {
        match self {
            Self::View(view) => &view.inside,
            Self::Workspace(path) => path,
        }
    }
}

impl Plan {
    fn fixed_places(&mut self, boundary: &Boundary, placement: &Placement) {
        let memory: &[(&str, u32)] = if boundary.root {
            // Its /var is a layer, and /run is where its services write.
            &[
                ("/tmp", 0o1777),
                ("/dev/shm", 0o1777),
                ("/run", 0o755),
                ("/run/lock", 0o1777),
                ("/root", 0o700),
                ("/home", 0o755),
                ("/srv", 0o755),
            ]
        } else {
            &[("/tmp", 0o1777), ("/var/tmp", 0o1777), ("/dev/shm", 0o1777)]
        };
        for (path, mode) in memory {
            let is_layer =
                |layer: &PlacedLayer| layer.places().iter().any(|place| place == Path::new(path));
            if !placement.layers.iter().any(is_layer) {
                self.memory(Path::new(path), *mode);
            }
        }
        for path in ["/proc", "/run"] {
            self.directory(Path::new(path), false);
        }
        if boundary.nesting {
            // Empty: container programs look here, and mount over it.
            self.directory(Path::new("/sys/fs/cgroup"), false);
        }
        if !boundary.root {
            self.directory(Path::new("/var"), false);
            self.link(Path::new("/var/run"), b"/run");
        }
    }

    /// Adds a writable directory in the sandbox's own memory.
    fn memory(&mut self, path: &Path, mode: u32) {
        if let Some(parent) = path.parent() {
            self.directory(parent, false);
        }
        self.operations.push(Operation::Memory {
            path: relative(path),
            mode,
        });
        self.made.insert(path.to_path_buf());
    }

    /// Shows files of users and groups in place of the host's, where that has them.
    fn accounts(&mut self, accounts: &Path) -> Result<(), SandboxError> {
        for name in ACCOUNTS {
            let place = Path::new("/etc").join(name);
            if place.symlink_metadata().is_ok_and(|facts| facts.is_file()) {
                self.operations.push(Operation::ReadOnlyFile {
                    path: relative(&place),
                    source: source(&accounts.join(name))?,
                    as_caller: false,
                });
            }
        }
        Ok(())
    }

    /// Shows the files of a served sandbox's template, and the memory of its interpreter.
    fn template(&mut self, boundary: &Boundary, placement: &Placement) -> Result<(), SandboxError> {
        if let Some(template) = &placement.template {
            self.read_only(template, Path::new(TEMPLATE_DIRECTORY), false, placement)?;
            // Where code that models write expects its files. Root's own may have something there.
            let is_at = |mount: &VolumeMount| mount.inside.starts_with(DATA);
            if !boundary.root && !boundary.volumes.iter().any(is_at) {
                self.link(Path::new(DATA), boundary.home.as_os_str().as_bytes());
            }
        }
        if let Some(frozen) = &placement.frozen {
            self.memory_file(Path::new(FROZEN_FILE), Vec::new());
            self.operations.push(Operation::ReadOnlyFile {
                path: relative(Path::new(FROZEN_FILE)),
                source: source(frozen)?,
                as_caller: false,
            });
        }
        Ok(())
    }

    /// Adds the directory of inputs, in which nothing is executed.
    fn inputs(&mut self, placement: &Placement) -> Result<(), SandboxError> {
        let Some(inputs) = &placement.inputs else {
            return Ok(());
        };
        let inside = Path::new(INPUTS_DIRECTORY);
        self.vacant(inside, "inputs go there")?;
        self.read_only(inputs, inside, false, placement)?;
        let path = relative(inside);
        self.operations.push(Operation::Inexecutable { path });
        Ok(())
    }

    /// Refuses a place of Atoll's own at which something else is shown.
    fn vacant(&self, inside: &Path, why: &str) -> Result<(), SandboxError> {
        match self.made.contains(inside) {
            false => Ok(()),
            true => Err(SandboxError::Source {
                path: inside.to_path_buf(),
                error: std::io::Error::other(format!("it is shown in the sandbox, and {why}")),
            }),
        }
    }

    /// Adds the directory of outputs. Its owner is no id of the sandbox where there is another one.
    fn outputs(&mut self, outputs: &Path) -> Result<(), SandboxError> {
        let inside = Path::new(OUTPUTS_DIRECTORY);
        self.vacant(inside, "outputs go there")?;
        self.directory(inside, false);
        self.operations.push(Operation::Writable {
            path: relative(inside),
            source: source(outputs)?,
            as_caller: false,
        });
        self.operations.push(Operation::Inexecutable {
            path: relative(inside),
        });
        Ok(())
    }

    fn devices(&mut self) -> Result<(), SandboxError> {
        for name in DEVICES {
            let path = Path::new("/dev").join(name);
            let place = relative(&path);
            self.operations.push(Operation::File {
                path: place.clone(),
                mode: 0o666,
                content: Vec::new(),
            });
            self.operations.push(Operation::Device {
                path: place,
                source: source(&path)?,
            });
        }
        for (path, to) in DEVICE_LINKS {
            self.link(&Path::new("/").join(path), to.as_bytes());
        }
        self.directory(Path::new("/dev/pts"), false);
        self.operations.push(Operation::Terminals {
            path: b"dev/pts".to_vec(),
            max: TERMINALS_MAX,
        });
        Ok(())
    }

    fn processes(&mut self, nesting: bool) -> Result<(), SandboxError> {
        if nesting {
            // Where a part of it is covered, the kernel gives no /proc to any namespace
            // beneath; and what a nested one shows need not be covered here.
            self.operations.push(Operation::Processes {
                path: b"proc".to_vec(),
            });
            return Ok(());
        }
        let null = source(Path::new("/dev/null"))?;
        let place = |name: &str| format!("proc/{name}").into_bytes();
        // What the host's /proc does not have, the sandbox's has not either.
        let exists = |name: &&str| Path::new("/proc").join(name).symlink_metadata().is_ok();
        self.operations.push(Operation::Processes {
            path: b"proc".to_vec(),
        });
        for name in PROC_SEALED.iter().filter(|name| exists(name)) {
            self.operations.push(Operation::Seal { path: place(name) });
        }
        for name in PROC_HIDDEN.iter().filter(|name| exists(name)) {
            self.operations.push(Operation::HideFile {
                path: place(name),
                null: null.clone(),
            });
        }
        for name in PROC_HIDDEN_DIRECTORIES.iter().filter(|name| exists(name)) {
            self.operations
                .push(Operation::HideDirectory { path: place(name) });
        }
        Ok(())
    }

    /// Shows the machine's processors, where the host has such files.
    fn processors(&mut self) -> Result<(), SandboxError> {
        let place = Path::new(PROCESSORS);
        if place.is_dir() {
            self.directory(place, false);
            self.operations.push(Operation::ReadOnlyWhole {
                path: relative(place),
                source: source(place)?,
            });
        }
        Ok(())
    }

    fn view(
        &mut self,
        view: &View,
        placement: &Placement,
        host: &Host,
    ) -> Result<(), SandboxError> {
        // Whatever is there outside now, or is not.
        if let Some((_, text)) = placement.texts.iter().find(|(at, _)| *at == view.inside) {
            self.memory_file(&view.inside, text.clone());
            return Ok(());
        }
        let facts = match view.host.symlink_metadata() {
            Ok(facts) => facts,
            Err(_) if !view.required => return Ok(()),
            Err(error) => {
                return Err(SandboxError::Source {
                    path: view.host.clone(),
                    error,
                });
            }
        };
        if facts.is_symlink() {
            return self.linked_view(view, placement, host);
        }
        if matches!(view.access, Access::Layer(_)) {
            let layers = &mut placement.layers.iter();
            match layers.find(|layer| layer.inside == view.inside) {
                Some(layer) if view.kind == ViewKind::System && host.is_root => {
                    return self.layer_over(layer);
                }
                Some(layer) => return self.layer(layer, host),
                // It is a part of one that is there already.
                None if placement.is_part(&view.inside) => return Ok(()),
                None if facts.is_file() => return self.copied_file(view, facts.size()),
                // No layer can be made here: it can be read, as any other view.
                None => {}
            }
        }
        if !facts.is_dir() {
            // Through a mount of its own a socket leads to whoever listens on
            // the host, a pipe to whoever reads there.
            if !facts.is_file() {
                return if view.required {
                    Err(special(&view.host))
                } else {
                    Ok(())
                };
            }
            self.file_place(&view.inside);
            let source = source(&view.host)?;
            let path = relative(&view.inside);
            self.operations.push(Operation::ReadOnlyFile {
                path,
                source,
                as_caller: is_as_caller(view.kind, &view.host, placement, host),
            });
            return Ok(());
        }
        if !host.is_root && host.mounts_within(&view.host).next().is_some() {
            return self.with_locked_mounts(view, host);
        }
        self.with_mounts(view, placement, host)
    }

    /// Marks the place of the workspace's repository as existing if a view around it shows it
    /// read-only as a whole: nothing can be made there.
    fn find_repository(&mut self, view: &View, boundary: &Boundary, placement: &Placement) {
        let is_around = |outer: &&View| {
            let path = &outer.inside;
            let is_above = view.inside.starts_with(path) && view.inside != *path;
            let is_whole = outer.host == *path && outer.access == Access::ReadOnly;
            is_above && is_whole && placement.shows(outer)
        };
        let mut views = boundary.views.iter();
        if view.kind == ViewKind::Repository
            && let Some(outer) = views.find(is_around)
        {
            let places = view.inside.ancestors();
            let places = places.take_while(|path| *path != outer.inside);
            self.made.extend(places.map(Path::to_path_buf));
        }
    }

    /// Refuses a directory in the repository's place that is not the one inspected before. The
    /// launcher mounts exactly what is planned here, or nothing.
    fn refuse_other_repository(
        &self,
        view: &View,
        before: usize,
        placement: &Placement,
    ) -> Result<(), SandboxError> {
        let planned = self.operations.get(before..).unwrap_or_default();
        let shown = planned.iter().find_map(|one| match one {
            Operation::Layer { lower, .. } => lower.last().map(|shown| (shown.device, shown.inode)),
            Operation::ReadOnly { source: shown, .. }
            | Operation::ReadOnlyWhole { source: shown, .. }
            | Operation::ReadOnlyFile { source: shown, .. } => Some((shown.device, shown.inode)),
            _ => None,
        });
        let is_other = shown.is_some() && shown != placement.repository;
        match view.kind == ViewKind::Repository && is_other {
            false => Ok(()),
            true => Err(SandboxError::Source {
                path: view.host.clone(),
                error: std::io::Error::other(
                    "something else took its place since it was looked at",
                ),
            }),
        }
    }

    /// Adds a directory and the mounts within it, which would appear empty otherwise.
    fn with_mounts(
        &mut self,
        view: &View,
        placement: &Placement,
        host: &Host,
    ) -> Result<(), SandboxError> {
        let as_caller = |path: &Path| is_as_caller(view.kind, path, placement, host);
        let here = as_caller(&view.host);
        self.read_only(&view.host, &view.inside, here, placement)?;
        for mount in host.mounts_within(&view.host) {
            let Ok(rest) = mount.path.strip_prefix(&view.host) else {
                continue;
            };
            let (from, inside) = (&mount.path, view.inside.join(rest));
            if is_ordinary(&mount.kind) && from.is_dir() {
                self.made.insert(inside.clone());
                self.read_only(from, &inside, as_caller(from), placement)?;
            } else if is_ordinary(&mount.kind) && from.is_file() {
                self.operations.push(Operation::ReadOnlyFile {
                    path: relative(&inside),
                    source: source(from)?,
                    as_caller: as_caller(from),
                });
            }
        }
        Ok(())
    }

    /// Adds a directory with mounts within it, for an ordinary user: in the user namespace the
    /// kernel allows neither without the other, and so no overlay of it. A directory of the
    /// system is shown as it is, with unsafe entries covered; one of the person's is left out.
    fn with_locked_mounts(&mut self, view: &View, host: &Host) -> Result<(), SandboxError> {
        let error = |error| SandboxError::Source {
            path: view.host.clone(),
            error,
        };
        if view.kind != ViewKind::System {
            return match host.mounts_within(&view.host).next() {
                Some(inner) if view.required => Err(error(std::io::Error::other(format!(
                    "{} is mounted inside it, and an ordinary user can show neither without the \
                     other; name directories beside the mount, or run as root",
                    inner.path.display()
                )))),
                _ => Ok(()),
            };
        }
        self.directory(&view.inside, true);
        self.operations.push(Operation::ReadOnlyWhole {
            path: relative(&view.inside),
            source: source(&view.host)?,
        });
        let kernel: Vec<&Path> = host
            .mounts_within(&view.host)
            .filter(|mount| !is_ordinary(&mount.kind))
            .map(|mount| mount.path.as_path())
            .collect();
        let found = unshown(&view.host, &kernel).map_err(error)?;
        let null = source(Path::new("/dev/null"))?;
        let inside = |path: &Path| {
            let rest = path.strip_prefix(&view.host).unwrap_or(path);
            relative(&view.inside.join(rest))
        };
        self.operations
            .extend(found.files.iter().map(|path| Operation::HideFile {
                path: inside(path),
                null: null.clone(),
            }));
        self.operations.extend(
            found
                .directories
                .iter()
                .map(|path| Operation::HideDirectory { path: inside(path) }),
        );
        Ok(())
    }

    /// Adds a symbolic link: as itself if its target is shown anyway (as /bin → usr/bin),
    /// otherwise as a view of its target.
    fn linked_view(
        &mut self,
        view: &View,
        placement: &Placement,
        host: &Host,
    ) -> Result<(), SandboxError> {
        let error = |error| SandboxError::Source {
            path: view.host.clone(),
            error,
        };
        let at_root = view.host.parent() == Some(Path::new("/"));
        if view.kind == ViewKind::System && view.access != Access::ReadOnly && !at_root {
            // A part of /var: what it leads to is shown where it is, or nowhere.
            return Ok(());
        }
        if view.kind == ViewKind::System && at_root {
            let to = std::fs::read_link(&view.host).map_err(error)?;
            self.link(&view.inside, to.as_os_str().as_bytes());
            return Ok(());
        }
        match view.host.canonicalize() {
            Ok(host_path) => {
                let followed = View {
                    host: host_path,
                    ..view.clone()
                };
                self.view(&followed, placement, host)
            }
            Err(_) if !view.required => Ok(()),
            Err(cause) => Err(error(cause)),
        }
    }

    fn workspace(
        &mut self,
        path: &Path,
        placement: &Placement,
        host: &Host,
    ) -> Result<(), SandboxError> {
        match &placement.workspace {
            WorkspacePlace::Layer(layer) => self.layer(layer, host)?,
            WorkspacePlace::Copy(copy) => {
                self.directory(path, true);
                let source = source(copy)?;
                self.operations.push(Operation::Writable {
                    path: relative(path),
                    source,
                    // Its owners are shifted already.
                    as_caller: false,
                });
            }
            WorkspacePlace::Live { sealed, covered } => {
                refuse_mounts_within(path, host)?;
                self.directory(path, true);
                let workspace = source(path)?;
                let path_inside = relative(path);
                self.operations.push(Operation::Writable {
                    path: path_inside,
                    source: workspace,
                    as_caller: true,
                });
                self.seal(path, sealed);
                let null = source(Path::new("/dev/null"))?;
                self.operations
                    .extend(covered.iter().map(|path| Operation::HideFile {
                        path: relative(path),
                        null: null.clone(),
                    }));
            }
            WorkspacePlace::ReadOnly => {
                let as_caller = is_as_caller(ViewKind::Input, path, placement, host);
                self.read_only(path, path, as_caller, placement)?;
            }
        }
        self.made.insert(path.to_path_buf());
        Ok(())
    }

    /// Mounts a volume: the same files in each sandbox, so that a change is seen at once. It holds
    /// no socket and no pipe ([`Plan::permit`]), which would lead from one sandbox to another.
    fn volume(&mut self, mount: &VolumeMount) -> Result<(), SandboxError> {
        self.directory(&mount.inside, true);
        let path = relative(&mount.inside);
        self.operations.push(Operation::Writable {
            path: path.clone(),
            source: source(&mount.host)?,
            as_caller: true,
        });
        if mount.read_only {
            self.operations.push(Operation::Seal { path });
        }
        self.made.insert(mount.inside.clone());
        Ok(())
    }

    /// Makes paths below the workspace read-only. The directories that lead to them become
    /// mounts too: a mount cannot be renamed and replaced by a new directory.
    fn seal(&mut self, workspace: &Path, sealed: &[PathBuf]) {
        let mut pinned: Vec<&Path> = sealed
            .iter()
            .flat_map(|path| path.ancestors().skip(1))
            .filter(|path| path.starts_with(workspace) && *path != workspace)
            .collect();
        pinned.sort();
        pinned.dedup();
        let pins = pinned.into_iter().map(|path| Operation::Pin {
            path: relative(path),
        });
        self.operations.extend(pins);
        let seals = sealed.iter().map(|path| Operation::Seal {
            path: relative(path),
        });
        self.operations.extend(seals);
    }

    fn layer(&mut self, layer: &PlacedLayer, host: &Host) -> Result<(), SandboxError> {
        refuse_mounts_within(&layer.lower, host)?;
        self.layer_over(layer)
    }

    fn layer_over(&mut self, layer: &PlacedLayer) -> Result<(), SandboxError> {
        let path = match &*layer.parts {
            [] => {
                self.directory(&layer.inside, true);
                relative(&layer.inside)
            }
            _ => WHOLE.to_bytes().to_vec(),
        };
        let over = layer.over.iter();
        self.operations.push(Operation::Layer {
            path,
            own: layer.own,
            lower: over
                .chain([&layer.lower])
                .map(|one| source(one))
                .collect::<Result<_, _>>()?,
            upper: source(&layer.upper)?,
            work: source(&layer.work)?,
            linked: layer.linked,
            volatile: layer.volatile,
        });
        for part in &layer.parts {
            self.directory(part, true);
            let path = relative(part);
            self.operations.push(Operation::Part { path });
        }
        self.made.extend(layer.places().iter().cloned());
        Ok(())
    }

    pub(crate) fn read_only(
        &mut self,
        from: &Path,
        inside: &Path,
        as_caller: bool,
        placement: &Placement,
    ) -> Result<(), SandboxError> {
        self.directory(inside, true);
        self.operations.push(Operation::ReadOnly {
            path: relative(inside),
            source: source(from)?,
            empty: source(&placement.empty)?,
            as_caller,
        });
        Ok(())
    }

    /// Copies a single file that the program may change: the copy is in the home directory's
    /// memory and ends with the run.
    fn copied_file(&mut self, view: &View, bytes: u64) -> Result<(), SandboxError> {
        if bytes > HOME_FILE_BYTES_MAX {
            return Ok(());
        }
        let error = |error| SandboxError::Source {
            path: view.host.clone(),
            error,
        };
        let content = std::fs::read(&view.host).map_err(error)?;
        if let Some(parent) = view.inside.parent() {
            self.directory(parent, true);
        }
        self.operations.push(Operation::File {
            path: relative(&view.inside),
            mode: 0o600,
            content,
        });
        Ok(())
    }

    /// Adds a file in the sandbox's own memory.
    pub(crate) fn memory_file(&mut self, path: &Path, content: Vec<u8>) {
        if let Some(parent) = path.parent() {
            self.directory(parent, true);
        }
        self.made.insert(path.to_path_buf());
        self.operations.push(Operation::File {
            path: relative(path),
            mode: 0o600,
            content,
        });
    }

    /// Makes a directory and those above it, unless they exist already.
    fn directory(&mut self, path: &Path, owned: bool) {
        let mut missing: Vec<&Path> = path
            .ancestors()
            .take_while(|one| *one != Path::new("/") && !self.made.contains(*one))
            .collect();
        missing.reverse();
        for one in missing {
            let operation = Operation::Directory {
                path: relative(one),
                mode: 0o755,
                owned,
            };
            self.operations.push(operation);
            self.made.insert(one.to_path_buf());
        }
    }

    /// Makes an empty file for a mount to cover.
    fn file_place(&mut self, path: &Path) {
        if self.made.contains(path) {
            return;
        }
        if let Some(parent) = path.parent() {
            self.directory(parent, true);
        }
        self.made.insert(path.to_path_buf());
        let path = relative(path);
        self.operations.push(Operation::File {
            path,
            mode: 0o600,
            content: Vec::new(),
        });
    }

    fn link(&mut self, path: &Path, to: &[u8]) {
        if let Some(parent) = path.parent() {
            self.directory(parent, false);
        }
        self.operations.push(Operation::Link {
            path: relative(path),
            to: to.to_vec(),
        });
        self.made.insert(path.to_path_buf());
    }

    /// Adds the same rights for Landlock, so that a mistake in the mounts alone does not open
    /// anything.
    fn permit(
        &mut self,
        boundary: &Boundary,
        programs: &[PathBuf],
        workspace: &Path,
        placement: &Placement,
    ) {
        let tops = match &placement.outputs {
            None => vec![PathBuf::from("/")],
            Some(outputs) => self.permit_outputs(outputs.lists_root),
        };
        let mut give = |path: &Path, execute: bool, change: bool, device: bool| {
            let path = path.as_os_str().as_bytes().to_vec();
            self.permissions.push(permission(
                path,
                [
                    (true, Rights::READ),
                    (execute, Rights::EXECUTE),
                    (change, Rights::CHANGE),
                    (device, Rights::DEVICE),
                ],
            ));
        };
        for top in tops {
            give(&top, programs.is_empty(), false, false);
        }
        for program in programs {
            give(program, true, false, false);
        }
        let own: &[&str] = if boundary.root {
            &[
                "/tmp", "/dev/shm", "/proc", "/run", "/root", "/home", "/srv",
            ]
        } else {
            &["/tmp", "/var/tmp", "/dev/shm", "/proc"]
        };
        for path in own {
            give(Path::new(path), false, true, false);
        }
        give(Path::new("/dev"), false, false, true);
        give(&boundary.home, false, true, false);
        if !matches!(placement.workspace, WorkspacePlace::ReadOnly) {
            give(workspace, false, true, false);
        }
        for place in placement.layers.iter().flat_map(PlacedLayer::places) {
            give(place, false, true, false);
        }
        let changed = boundary.volumes.iter().filter(|mount| !mount.read_only);
        self.permissions.extend(changed.map(|mount| {
            let path = mount.inside.as_os_str().as_bytes().to_vec();
            permission(path, [(true, Rights::READ), (true, Rights::CHANGE_FILES)])
        }));
    }

    /// Adds the rights to outputs. Returns the other directories at the root: what may be done
    /// beneath the root itself may be done in all of them (landlock(7)), and outputs are not read.
    fn permit_outputs(&mut self, lists_root: bool) -> Vec<PathBuf> {
        let path = OUTPUTS_DIRECTORY.as_bytes().to_vec();
        self.permissions.extend([
            permission(path, [(true, Rights::DEPOSIT)]),
            permission(b"/".to_vec(), [(lists_root, Rights::LIST)]),
        ]);
        let root = Path::new("/");
        // What a link leads to has rights of its own.
        let is_link = |path: &Path| {
            let at = relative(path);
            let mut links = self.operations.iter();
            links.any(|one| matches!(one, Operation::Link { path, .. } if *path == at))
        };
        let made = self.made.iter().filter(|path| {
            let is_top = path.parent() == Some(root) && *path != Path::new(OUTPUTS_DIRECTORY);
            is_top && !is_link(path)
        });
        made.cloned().collect()
    }
}

/// Returns a permission with those of these rights that are given.
pub(crate) fn permission<const N: usize>(path: Vec<u8>, rights: [(bool, Rights); N]) -> Permission {
    let given = rights.into_iter().filter(|(given, _)| *given);
    Permission {
        path,
        rights: given.fold(0, |bits, (_, rights)| bits | rights.bits()),
        connect: false,
    }
}

/// Returns whether a path's files should look like the program's own. Those of the system keep
/// their owners, so that what only root can read stays unreadable; those that the person named
/// are the person's, if owners can be mapped.
fn is_as_caller(kind: ViewKind, path: &Path, placement: &Placement, host: &Host) -> bool {
    let on = host.mount_of(path);
    let is_mapped = !on.is_some_and(|mount| placement.unmapped.contains(&mount.path));
    kind != ViewKind::System && is_mapped
}

pub(crate) fn refuse_mounts_within(outer: &Path, host: &Host) -> Result<(), SandboxError> {
    match host.mounts_within(outer).next() {
        None => Ok(()),
        Some(inner) => Err(SandboxError::MountInside {
            outer: outer.to_path_buf(),
            inner: inner.path.clone(),
        }),
    }
}

/// Returns the error for a path that is neither a file nor a directory.
fn special(path: &Path) -> SandboxError {
    let error = std::io::Error::other("it is a socket, a pipe or a device, not a file");
    SandboxError::Source {
        path: path.to_path_buf(),
        error,
    }
}

/// Returns whether a mount holds files, rather than showing the kernel or a daemon.
fn is_ordinary(kind: &str) -> bool {
    const KERNEL: [&str; 20] = [
        "proc",
        "sysfs",
        "devtmpfs",
        "devpts",
        "cgroup",
        "cgroup2",
        "securityfs",
        "debugfs",
        "tracefs",
        "bpf",
        "pstore",
        "configfs",
        "fusectl",
        "mqueue",
        "hugetlbfs",
        "autofs",
        "binfmt_misc",
        "efivarfs",
        "rpc_pipefs",
        "nsfs",
    ];
    !KERNEL.contains(&kind)
}

/// Identifies a host path, so that the launcher can verify it.
pub(crate) fn source(path: &Path) -> Result<Source, SandboxError> {
    let error = |error| SandboxError::Source {
        path: path.to_path_buf(),
        error,
    };
    let facts = path.symlink_metadata().map_err(error)?;
    Ok(Source {
        path: path.as_os_str().as_bytes().to_vec(),
        device: facts.dev(),
        inode: facts.ino(),
    })
}

/// Returns a path in the sandbox without its leading slash.
pub(crate) fn relative(path: &Path) -> Vec<u8> {
    let bytes = path.as_os_str().as_bytes();
    bytes.strip_prefix(b"/").unwrap_or(bytes).to_vec()
}
