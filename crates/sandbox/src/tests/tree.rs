use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use atoll_frame::{Operation, Permission, Source};
use atoll_model::{Access, Boundary, Keep, Layering, View, ViewKind, VolumeMount};

use atoll_sys::landlock::Rights;

use super::{boundary, host, mount, view};
use crate::tree::{PROCESSORS, Plan, plan};
use crate::{OutputsPlace, PlacedLayer, Placement, SandboxError, WorkspacePlace, make_layer};

/// A host in a temporary directory: a system, a home, a workspace in it.
struct World {
    _place: tempfile::TempDir,
    root: PathBuf,
}

impl World {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        for directory in [
            "usr/lib",
            "etc",
            "home/project/.git/hooks",
            "home/.tool",
            "empty",
        ] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        for file in ["etc/hosts", "home/.config", "home/project/file"] {
            fs::write(root.join(file), "content").unwrap();
        }
        Self {
            _place: place,
            root,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn workspace(&self) -> PathBuf {
        self.path("home/project")
    }

    fn layer(&self, name: &str, lower: &Path) -> PlacedLayer {
        let directory = self.path("state").join(name);
        make_layer(&directory, lower, lower, None).unwrap().0
    }

    fn placement(&self, workspace: WorkspacePlace) -> Placement {
        Placement {
            workspace,
            layers: Vec::new(),
            base: None,
            further: None,
            unmapped: Vec::new(),
            empty: self.path("empty"),
            trust: None,
            accounts: None,
            template: None,
            frozen: None,
            outputs: None,
            inputs: None,
            links: Vec::new(),
            ssh: None,
            repository: None,
            hidden: Vec::new(),
            texts: Vec::new(),
            fence: None,
        }
    }

    fn copy_on_write(&self) -> Placement {
        let layer = self.layer("workspace", &self.workspace());
        self.placement(WorkspacePlace::Layer(layer))
    }

    /// Returns the boundary of a usual profile.
    fn boundary(&self) -> Boundary {
        let layered = View {
            access: Access::Layer(Layering { keep: Keep::Run }),
            ..view(self.path("home/.config"), ViewKind::Home)
        };
        boundary(
            &self.path("home"),
            vec![
                view(self.path("usr"), ViewKind::System),
                view(self.path("etc"), ViewKind::System),
                view(self.path("home/.tool"), ViewKind::Home),
                layered,
                View {
                    required: false,
                    ..view(self.path("missing"), ViewKind::System)
                },
            ],
        )
    }

    fn plan(&self, boundary: &Boundary, placement: &Placement) -> Plan {
        plan(boundary, &self.workspace(), placement, &host()).unwrap()
    }

    /// Renders a plan as text, with the world's directory as `/T` and without what is specific
    /// to this machine.
    fn text(&self, plan: &Plan) -> String {
        let root = self.root.to_str().unwrap();
        let shown = |path: &[u8]| {
            let path = String::from_utf8_lossy(path).into_owned();
            path.replace(root, "/T")
                .replace(root.trim_start_matches('/'), "T")
        };
        let mut text = String::new();
        for operation in &plan.operations {
            let path = path_of(operation);
            // The steps to where the world's place is are this machine's.
            let above = self.root.strip_prefix("/").unwrap().as_os_str().as_bytes();
            let is_step = matches!(operation, Operation::Directory { .. });
            if is_step && above.starts_with(path) && path != above {
                continue;
            }
            // Which of these are there depends on the kernel.
            if path.starts_with(b"proc/") {
                continue;
            }
            let sources: String = sources_of(operation)
                .iter()
                .map(|one| format!(" < {}", shown(&one.path)))
                .collect();
            text += &format!(
                "{} {}{}{sources}\n",
                kind(operation),
                shown(path),
                rest(operation)
            );
        }
        for Permission {
            path,
            rights,
            connect,
        } in &plan.permissions
        {
            assert!(!connect, "only a fence needs it");
            let has = |wanted: Rights| rights & wanted.bits() == wanted.bits();
            let rights = [
                (has(Rights::READ), 'r'),
                (has(Rights::EXECUTE), 'x'),
                (has(Rights::CHANGE), 'w'),
                (has(Rights::DEVICE), 'd'),
            ];
            let rights: String = rights
                .iter()
                .map(|(given, letter)| if *given { *letter } else { '-' })
                .collect();
            text += &format!("may {rights} {}\n", shown(path));
        }
        text
    }
}

fn kind(operation: &Operation) -> String {
    let text = format!("{operation:?}");
    text.split([' ', '{']).next().unwrap().to_lowercase()
}

/// Renders the numbers of a step.
fn rest(operation: &Operation) -> String {
    match operation {
        Operation::Directory { mode, owned, .. } => {
            format!(" {mode:o}{}", if *owned { " owned" } else { "" })
        }
        Operation::Link { to, .. } => format!(" -> {}", String::from_utf8_lossy(to)),
        Operation::File { mode, content, .. } => format!(" {mode:o} {} bytes", content.len()),
        Operation::Memory { mode, .. } => format!(" {mode:o}"),
        Operation::ReadOnly { as_caller, .. } | Operation::ReadOnlyFile { as_caller, .. } => {
            (if *as_caller { " as caller" } else { "" }).to_owned()
        }
        Operation::Terminals { max, .. } => format!(" {max}"),
        _ => String::new(),
    }
}

fn path_of(operation: &Operation) -> &[u8] {
    match operation {
        Operation::Directory { path, .. }
        | Operation::Link { path, .. }
        | Operation::File { path, .. }
        | Operation::Memory { path, .. }
        | Operation::ReadOnly { path, .. }
        | Operation::ReadOnlyFile { path, .. }
        | Operation::Layer { path, .. }
        | Operation::ReadOnlyWhole { path, .. }
        | Operation::Writable { path, .. }
        | Operation::Seal { path }
        | Operation::Pin { path }
        | Operation::Part { path }
        | Operation::Inexecutable { path }
        | Operation::Device { path, .. }
        | Operation::Terminals { path, .. }
        | Operation::Processes { path }
        | Operation::HideFile { path, .. }
        | Operation::HideDirectory { path } => path,
    }
}

fn sources_of(operation: &Operation) -> Vec<&Source> {
    match operation {
        Operation::ReadOnly { source, empty, .. } => vec![source, empty],
        Operation::ReadOnlyFile { source, .. }
        | Operation::ReadOnlyWhole { source, .. }
        | Operation::Writable { source, .. }
        | Operation::Device { source, .. } => vec![source],
        Operation::HideFile { null, .. } => vec![null],
        Operation::Layer {
            lower, upper, work, ..
        } => lower.iter().chain([upper, work]).collect(),
        Operation::Directory { .. }
        | Operation::Link { .. }
        | Operation::File { .. }
        | Operation::Memory { .. }
        | Operation::Seal { .. }
        | Operation::Pin { .. }
        | Operation::Part { .. }
        | Operation::Inexecutable { .. }
        | Operation::Terminals { .. }
        | Operation::Processes { .. }
        | Operation::HideDirectory { .. } => Vec::new(),
    }
}

/// Checks what holds for every plan.
fn check(world: &World, boundary: &Boundary, plan: &Plan, placed: &[PathBuf]) {
    let mut made: Vec<&[u8]> = Vec::new();
    for operation in &plan.operations {
        let path = path_of(operation);
        let shown = String::from_utf8_lossy(path);
        assert!(!path.is_empty() && !path.starts_with(b"/"), "{shown}");
        assert!(
            Path::new(&*shown)
                .components()
                .all(|one| one.as_os_str() != ".."),
            "{shown}"
        );
        assert!(path == b"run" || !path.starts_with(b"run/"), "{shown}");
        // A parent before what lies beneath it.
        if let Some(at) = path.iter().rposition(|byte| *byte == b'/') {
            let mut above = path[..at].split(|byte| *byte == b'/').scan(0, |end, part| {
                *end += part.len() + 1;
                Some(*end - 1)
            });
            let covered = match operation {
                // What is shown or sealed may lie within something shown before.
                Operation::Seal { .. }
                | Operation::Pin { .. }
                | Operation::Inexecutable { .. }
                | Operation::ReadOnly { .. } => above.any(|end| made.contains(&&path[..end])),
                _ => made.contains(&&path[..at]),
            };
            assert!(covered, "{shown} comes before its parent");
        }
        if matches!(
            operation,
            Operation::Directory { .. } | Operation::Link { .. }
        ) {
            assert!(!made.contains(&path), "{shown} is made twice");
        }
        made.push(path);
        for source in sources_of(operation) {
            let path = Path::new(std::ffi::OsStr::from_bytes(&source.path));
            let known = boundary
                .views
                .iter()
                .any(|view| path.starts_with(&view.host))
                || path == world.workspace()
                || path == world.path("empty")
                || path.parent() == Some(Path::new("/dev"))
                || path == Path::new(PROCESSORS)
                || placed.iter().any(|place| path.starts_with(place));
            assert!(known, "{} was never named", path.display());
            let facts = path.symlink_metadata().unwrap();
            assert_eq!((source.device, source.inode), (facts.dev(), facts.ino()));
        }
    }
    for permission in &plan.permissions {
        assert!(permission.path.starts_with(b"/"));
        assert_ne!(permission.rights, 0);
    }
}

#[test]
fn the_usual_plan_is_what_was_reviewed() {
    let world = World::new();
    let (boundary, placement) = (world.boundary(), world.copy_on_write());
    let plan = world.plan(&boundary, &placement);
    check(&world, &boundary, &plan, &[world.path("state")]);
    assert_eq!(world.text(&plan), include_str!("../golden/plan.txt"));
}

#[test]
fn volume_is_planned_without_sockets_and_pipes() {
    for read_only in [false, true] {
        let world = World::new();
        let host = world.path("volume");
        fs::create_dir(&host).unwrap();
        let boundary = Boundary {
            volumes: vec![VolumeMount {
                id: "vol1".to_owned(),
                name: "models".to_owned(),
                host: host.clone(),
                inside: "/mnt/models".into(),
                read_only,
                bytes_max: 1 << 20,
            }],
            ..world.boundary()
        };
        let plan = world.plan(&boundary, &world.copy_on_write());
        let at = |path: &[u8]| path == b"mnt/models";
        let steps = plan.operations.iter().filter(|one| at(path_of(one)));
        let steps: Vec<String> = steps.map(kind).collect();
        let expected: &[&str] = match read_only {
            true => &["directory", "writable", "seal"],
            false => &["directory", "writable"],
        };
        assert_eq!(steps, expected);
        let inside = |one: &&Permission| one.path == b"/mnt/models";
        let rights: Vec<_> = plan.permissions.iter().filter(inside).collect();
        assert_eq!(rights.len(), usize::from(!read_only));
        let expected = Rights::READ.and(Rights::CHANGE_FILES).bits();
        assert!(rights.iter().all(|one| one.rights == expected));
    }
}

#[test]
fn every_kind_of_workspace_is_planned() {
    let world = World::new();
    let sealed = vec![world.workspace().join(".git/hooks")];
    let copy = world.path("copy");
    fs::create_dir(&copy).unwrap();
    let places = [
        WorkspacePlace::Layer(world.layer("workspace", &world.workspace())),
        WorkspacePlace::Copy(copy.clone()),
        WorkspacePlace::Live {
            sealed,
            covered: Vec::new(),
        },
        WorkspacePlace::ReadOnly,
    ];
    let inside = world.workspace();
    let inside = inside.strip_prefix("/").unwrap().as_os_str().as_bytes();
    let boundary = world.boundary();
    for workspace in places {
        let placement = world.placement(workspace);
        let plan = world.plan(&boundary, &placement);
        check(
            &world,
            &boundary,
            &plan,
            &[world.path("state"), copy.clone()],
        );
        let steps: Vec<String> = plan
            .operations
            .iter()
            .filter(|one| path_of(one).starts_with(inside))
            .map(kind)
            .collect();
        let changes = plan.permissions.iter().any(|one| {
            one.rights & Rights::CHANGE.bits() == Rights::CHANGE.bits()
                && one.path.ends_with(inside)
        });
        let expected: (&[&str], bool) = match placement.workspace {
            WorkspacePlace::Layer(_) => (&["directory", "layer"], true),
            WorkspacePlace::Copy(_) => (&["directory", "writable"], true),
            WorkspacePlace::Live { .. } => (&["directory", "writable", "pin", "seal"], true),
            WorkspacePlace::ReadOnly => (&["directory", "readonly"], false),
        };
        assert_eq!(steps, expected.0);
        assert_eq!(changes, expected.1);
    }
}

#[test]
fn views_come_in_order_of_depth_whatever_order_they_have() {
    let world = World::new();
    let mut boundary = world.boundary();
    // A view within the workspace, and one above it, named the wrong way round.
    boundary
        .views
        .insert(0, view(world.workspace().join(".git"), ViewKind::Input));
    boundary
        .views
        .push(view(world.path("home"), ViewKind::Input));
    let placement = world.copy_on_write();
    let plan = world.plan(&boundary, &placement);
    let position = |name: &str| {
        let wanted = world.path(name);
        let wanted = wanted.strip_prefix("/").unwrap().as_os_str().as_bytes();
        plan.operations
            .iter()
            .position(|one| {
                path_of(one) == wanted
                    && matches!(one, Operation::ReadOnly { .. } | Operation::Layer { .. })
            })
            .unwrap()
    };
    assert!(position("home") < position("home/project"));
    assert!(position("home/project") < position("home/project/.git"));
}

#[test]
fn mounts_within_a_layer_are_refused_and_within_a_view_shown() {
    let world = World::new();
    let placement = world.copy_on_write();
    let boundary = world.boundary();
    let mut here = host();
    here.mounts = vec![mount(&world.workspace().join(".git"), "ext4", "rw")];
    let refused = plan(&boundary, &world.workspace(), &placement, &here).unwrap_err();
    assert!(
        matches!(refused, SandboxError::MountInside { .. }),
        "{refused}"
    );
    let live = world.placement(WorkspacePlace::Live {
        sealed: Vec::new(),
        covered: Vec::new(),
    });
    assert!(plan(&boundary, &world.workspace(), &live, &here).is_err());
    // Of mounts in a view only those with files are shown; to root each on its own.
    here.is_root = true;
    here.mounts = vec![
        mount(&world.path("usr/lib"), "ext4", "rw"),
        mount(&world.path("etc"), "ext4", "rw"),
        mount(&world.path("usr/gone"), "ext4", "rw"),
    ];
    let shown = plan(&boundary, &world.workspace(), &placement, &here).unwrap();
    check(&world, &boundary, &shown, &[world.path("state")]);
    let nested = |plan: &Plan| {
        plan.operations
            .iter()
            .filter(|one| matches!(one, Operation::ReadOnly { .. }))
            .filter(|one| path_of(one).ends_with(b"usr/lib"))
            .count()
    };
    assert_eq!(nested(&shown), 1);
    here.mounts = vec![mount(&world.path("usr/lib"), "proc", "rw")];
    let hidden = plan(&boundary, &world.workspace(), &placement, &here).unwrap();
    assert_eq!(nested(&hidden), 0);
}

#[test]
fn mounts_that_an_ordinary_user_cannot_part_from_are_shown_with_what_lies_above() {
    let world = World::new();
    let placement = world.copy_on_write();
    fs::create_dir_all(world.path("etc/kernel")).unwrap();
    fs::write(world.path("etc/kernel/inner"), "").unwrap();
    let _listener = UnixListener::bind(world.path("etc/socket")).unwrap();
    let mut here = host();
    here.mounts = vec![
        mount(&world.path("etc/hosts"), "ext4", "rw"),
        mount(&world.path("etc/kernel"), "proc", "rw"),
    ];
    let steps = |host: &crate::Host, boundary: &Boundary| -> Vec<String> {
        let plan = plan(boundary, &world.workspace(), &placement, host).unwrap();
        check(&world, boundary, &plan, &[world.path("state")]);
        let etc = world.path("etc");
        let etc = etc.strip_prefix("/").unwrap().as_os_str().as_bytes();
        let beneath = |one: &&Operation| path_of(one).starts_with(etc);
        plan.operations
            .iter()
            .filter(beneath)
            .map(|one| {
                let rest = String::from_utf8_lossy(&path_of(one)[etc.len()..]).into_owned();
                format!("{}{rest}", kind(one))
            })
            .collect()
    };
    let boundary = world.boundary();
    assert_eq!(
        steps(&here, &boundary),
        [
            "directory",
            "readonlywhole",
            "hidefile/socket",
            "hidedirectory/kernel"
        ]
    );
    // Root shows each on its own, and so the directory without its sockets.
    here.is_root = true;
    assert_eq!(
        steps(&here, &boundary),
        ["directory", "readonly", "readonlyfile/hosts"]
    );
    // What is not the system's can have sockets at any time: it is not shown.
    here.is_root = false;
    let mut boundary = world.boundary();
    boundary.views.retain(|view| view.host != world.path("etc"));
    boundary
        .views
        .push(view(world.path("etc"), ViewKind::Input));
    let error = plan(&boundary, &world.workspace(), &placement, &here).unwrap_err();
    assert!(error.to_string().contains("mounted inside it"), "{error}");
    boundary.views.last_mut().unwrap().required = false;
    assert_eq!(steps(&here, &boundary), Vec::<String>::new());
}

#[test]
fn what_lies_where_owners_cannot_be_mapped_is_shown_as_it_is() {
    let world = World::new();
    let mut placement = world.copy_on_write();
    let boundary = world.boundary();
    let mut here = host();
    here.is_root = true;
    here.mounts = vec![mount(&world.path("home"), "overlay", "rw")];
    let as_caller = |placement: &Placement| {
        let plan = plan(&boundary, &world.workspace(), placement, &here).unwrap();
        let found = plan.operations.iter().find_map(|one| match one {
            Operation::ReadOnly { as_caller, .. } if path_of(one).ends_with(b"home/.tool") => {
                Some(*as_caller)
            }
            _ => None,
        });
        found.unwrap()
    };
    assert!(as_caller(&placement));
    placement.unmapped = vec![world.path("home")];
    assert!(!as_caller(&placement));
}

#[test]
fn what_is_missing_is_an_error_only_where_it_is_required() {
    let world = World::new();
    let placement = world.copy_on_write();
    let mut boundary = world.boundary();
    boundary
        .views
        .push(view(world.path("gone"), ViewKind::Input));
    let error = plan(&boundary, &world.workspace(), &placement, &host()).unwrap_err();
    assert!(matches!(error, SandboxError::Source { .. }), "{error}");
    boundary.views.last_mut().unwrap().required = false;
    let plan = world.plan(&boundary, &placement);
    assert!(
        !plan
            .operations
            .iter()
            .any(|one| path_of(one).ends_with(b"gone"))
    );
}

#[test]
fn sockets_and_pipes_of_the_host_are_not_shown() {
    let world = World::new();
    let placement = world.copy_on_write();
    let socket = world.path("home/.tool/socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    let link = world.path("home/.tool/link");
    symlink(&socket, &link).unwrap();
    for path in [socket, link, PathBuf::from("/dev/null")] {
        let mut boundary = world.boundary();
        boundary.views.push(view(&path, ViewKind::Input));
        let error = plan(&boundary, &world.workspace(), &placement, &host()).unwrap_err();
        assert!(error.to_string().contains("socket"), "{error}");
        boundary.views.last_mut().unwrap().required = false;
        let planned = world.plan(&boundary, &placement);
        check(&world, &boundary, &planned, &[world.path("state")]);
        let named = path.strip_prefix("/").unwrap().as_os_str().as_bytes();
        let shown = planned
            .operations
            .iter()
            .any(|one| path_of(one) == named && matches!(one, Operation::ReadOnlyFile { .. }));
        assert!(!shown, "{}", path.display());
    }
}

#[test]
fn a_link_shows_what_it_leads_to() {
    let world = World::new();
    let placement = world.copy_on_write();
    symlink(world.path("home/.tool"), world.path("home/alias")).unwrap();
    symlink("nowhere", world.path("home/dangling")).unwrap();
    let mut boundary = world.boundary();
    boundary
        .views
        .push(view(world.path("home/alias"), ViewKind::Home));
    let dangling = view(world.path("home/dangling"), ViewKind::Home);
    boundary.views.push(View {
        required: false,
        ..dangling.clone()
    });
    let planned = world.plan(&boundary, &placement);
    let tool = world.path("home/.tool").as_os_str().as_bytes().to_vec();
    assert!(planned.operations.iter().any(|one| {
        path_of(one).ends_with(b"home/alias")
            && matches!(one, Operation::ReadOnly { source, .. } if source.path == tool)
    }));
    boundary.views.push(dangling);
    assert!(plan(&boundary, &world.workspace(), &placement, &host()).is_err());
}

#[test]
fn a_single_file_that_can_be_changed_is_a_copy() {
    let world = World::new();
    let placement = world.copy_on_write();
    let boundary = world.boundary();
    let config = world.path("home/.config");
    let copied = |plan: &Plan| {
        plan.operations.iter().find_map(|one| match one {
            Operation::File {
                path,
                content,
                mode,
            } if path.ends_with(b"home/.config") => Some((content.clone(), *mode)),
            _ => None,
        })
    };
    let content = b"content".to_vec();
    assert_eq!(
        copied(&world.plan(&boundary, &placement)),
        Some((content, 0o600))
    );
    fs::write(&config, vec![0; 100 * 1024]).unwrap();
    assert!(copied(&world.plan(&boundary, &placement)).is_some());
    fs::write(&config, vec![0; 100 * 1024 + 1]).unwrap();
    assert!(
        copied(&world.plan(&boundary, &placement)).is_none(),
        "too large to be copied"
    );
}

#[test]
fn programs_are_executed_only_from_where_it_is_allowed() {
    let world = World::new();
    let placement = world.copy_on_write();
    let mut boundary = world.boundary();
    let executes = |plan: &Plan| -> Vec<String> {
        let given = plan
            .permissions
            .iter()
            .filter(|one| one.rights & Rights::EXECUTE.bits() != 0);
        given
            .map(|one| String::from_utf8(one.path.clone()).unwrap())
            .collect()
    };
    assert_eq!(executes(&world.plan(&boundary, &placement)), ["/"]);
    boundary.programs = vec![PathBuf::from("/usr/bin"), PathBuf::from("/usr/lib")];
    assert_eq!(
        executes(&world.plan(&boundary, &placement)),
        ["/usr/bin", "/usr/lib"]
    );
}

/// Returns the steps that close a tree in which only these programs may be executed.
fn closing(programs: &[&str]) -> Vec<(&'static str, String)> {
    let world = World::new();
    std::fs::create_dir_all(world.path("usr/bin")).unwrap();
    std::fs::write(world.path("usr/bin/tool"), "").unwrap();
    let mut boundary = world.boundary();
    boundary.programs = programs.iter().map(PathBuf::from).collect();
    boundary
        .programs
        .extend([world.path("usr/bin/tool"), world.path("home/.tool")]);
    let plan = world.plan(&boundary, &world.copy_on_write());
    let root = world
        .root
        .to_str()
        .unwrap()
        .trim_start_matches('/')
        .to_owned();
    plan.operations
        .iter()
        .filter_map(|operation| {
            let kind = match operation {
                Operation::Pin { .. } => "pin",
                Operation::Inexecutable { .. } => "close",
                _ => return None,
            };
            let path = String::from_utf8_lossy(path_of(operation)).replace(&root, "T");
            Some((kind, path))
        })
        .collect()
}

#[test]
fn where_programs_are_listed_the_rest_is_not_code() {
    let steps = closing(&[]);
    let has = |kind: &str, path: &str| steps.contains(&(kind, path.to_owned()));
    for closed in [
        "tmp",
        "var/tmp",
        "dev/shm",
        "T/home",
        "T/usr",
        "T/etc",
        "T/home/project",
    ] {
        assert!(has("close", closed), "{closed}: {steps:?}");
    }
    assert!(has("pin", "T/usr/bin/tool"), "{steps:?}");
    // A whole mount that is listed stays as it is.
    assert!(!has("close", "T/home/.tool"), "{steps:?}");
    assert!(!has("pin", "T/home/.tool"), "{steps:?}");
    // What stays open is a mount of its own before the one around it is closed.
    let at = |kind: &str| steps.iter().position(|(one, _)| *one == kind);
    let last_pin = steps.iter().rposition(|(one, _)| *one == "pin");
    assert!(last_pin < at("close"), "{steps:?}");
    // A listed directory with a mount in it, which would be hidden.
    let world = World::new();
    let around = closing(&["/dev"]);
    assert!(
        !around.contains(&("close", "dev/shm".to_owned())),
        "{around:?}"
    );
    let plan = world.plan(&world.boundary(), &world.copy_on_write());
    let closes = |one: &Operation| matches!(one, Operation::Inexecutable { .. });
    assert!(!plan.operations.iter().any(closes), "nothing is listed");
}

/// The directory that was inspected is the one that is mounted: one put in its place meanwhile
/// is not.
#[test]
fn a_repository_in_whose_place_another_directory_is_refuses_the_run() {
    for has_layer in [true, false] {
        let world = World::new();
        let common = world.path("home/main");
        fs::create_dir(&common).unwrap();
        let facts = fs::metadata(&common).unwrap();
        let mut placement = world.copy_on_write();
        placement.repository = Some((facts.dev(), facts.ino()));
        let layered = Access::Layer(Layering { keep: Keep::Run });
        let shown = View {
            access: if has_layer { layered } else { Access::ReadOnly },
            required: false,
            ..view(common.clone(), ViewKind::Repository)
        };
        placement
            .layers
            .extend(has_layer.then(|| world.layer("repository", &common)));
        let boundary = boundary(&world.path("home"), vec![shown]);
        let planned = || plan(&boundary, &world.workspace(), &placement, &host());
        assert!(planned().is_ok(), "{has_layer}");
        fs::rename(&common, world.path("home/away")).unwrap();
        fs::create_dir(&common).unwrap();
        let error = planned().unwrap_err().to_string();
        assert!(error.contains("something else took its place"), "{error}");
    }
}

#[test]
fn only_parts_of_a_whole_layer_are_shown() {
    let world = World::new();
    let lower = world.path("home/whole");
    fs::create_dir(&lower).unwrap();
    let mut layer = world.layer("whole", &lower);
    layer.inside = PathBuf::from("/");
    layer.parts = vec![PathBuf::from("/app"), PathBuf::from("/etc")];
    let mut placement = world.copy_on_write();
    placement.layers.push(layer);
    let etc = View {
        access: Access::Layer(Layering { keep: Keep::Run }),
        ..view(PathBuf::from("/etc"), ViewKind::System)
    };
    let boundary = boundary(&world.path("home"), vec![etc]);
    let plan = plan(&boundary, &world.workspace(), &placement, &host()).unwrap();
    let mounts: Vec<&Operation> = plan
        .operations
        .iter()
        .filter(|one| matches!(one, Operation::Layer { .. } | Operation::Part { .. }))
        .collect();
    let paths: Vec<&[u8]> = mounts.iter().map(|one| path_of(one)).collect();
    assert_eq!(paths.get(..3), Some(&[&b".whole"[..], b"app", b"etc"][..]));
    // The host's own directory is not shown beneath, or in place of, the part.
    let is_etc = |one: &&Operation| path_of(one) == b"etc";
    let at_etc: Vec<&Operation> = plan.operations.iter().filter(is_etc).collect();
    assert!(
        matches!(
            *at_etc,
            [Operation::Directory { .. }, Operation::Part { .. }]
        ),
        "{at_etc:?}"
    );
}

/// All that may be done beneath the root may be done with outputs (landlock(7)): nothing may but
/// listing, and that where it has to be.
#[test]
fn outputs_are_deposited_and_nothing_else() {
    let world = World::new();
    let outputs = world.path("outputs");
    fs::create_dir(&outputs).unwrap();
    for lists_root in [false, true] {
        let mut placement = world.copy_on_write();
        placement.outputs = Some(OutputsPlace {
            directory: outputs.clone(),
            lists_root,
        });
        let boundary = world.boundary();
        let plan = world.plan(&boundary, &placement);
        let covers = |one: &&Permission| Path::new("/outputs").starts_with(shown_path(&one.path));
        let rights: Vec<_> = plan.permissions.iter().filter(covers).collect();
        assert_eq!(rights.len(), 2);
        for one in rights {
            let expected = match one.path.as_slice() {
                b"/" if lists_root => Rights::LIST.bits(),
                b"/" => 0,
                _ => Rights::DEPOSIT.bits(),
            };
            assert_eq!(one.rights, expected, "{one:?}");
        }
        // Everything else at the root can be read as ever.
        let links = |one: &&Operation| !matches!(one, Operation::Link { .. });
        let made = plan.operations.iter().filter(links).map(path_of);
        let tops = made.filter_map(|path| path.split(|byte| *byte == b'/').next());
        for top in tops.filter(|top| !top.is_empty() && *top != b"outputs") {
            let path = [b"/", top].concat();
            let mut given = plan.permissions.iter();
            assert!(
                given.any(|one| one.path == path
                    && one.rights & Rights::READ.bits() == Rights::READ.bits()),
                "{}",
                path.escape_ascii()
            );
        }
        let steps = plan
            .operations
            .iter()
            .filter(|one| path_of(one) == b"outputs");
        let steps: Vec<String> = steps.map(kind).collect();
        assert_eq!(steps, ["directory", "writable", "inexecutable"]);
    }
}

#[test]
fn a_directory_that_is_shown_is_none_for_outputs() {
    let world = World::new();
    let mut placement = world.copy_on_write();
    placement.outputs = Some(OutputsPlace {
        directory: world.path("empty"),
        lists_root: true,
    });
    let shown = View {
        inside: PathBuf::from("/outputs"),
        ..view(world.path("home"), ViewKind::Input)
    };
    let boundary = boundary(&world.path("home"), vec![shown]);
    let error = plan(&boundary, &world.workspace(), &placement, &host()).unwrap_err();
    assert!(error.to_string().contains("outputs go there"), "{error}");
}

fn shown_path(path: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(path))
}
