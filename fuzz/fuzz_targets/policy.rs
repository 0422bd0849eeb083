//! Policy files: a profile, a project's file and the organisation's, divided by
//! lines of a single `%`. The user's profile is always the one that is asked for;
//! the project and the organisation must never make it wider.

#![no_main]

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use atoll_model::{
    Access, Boundary, Call, Limits, Mode, Principal, RunId, Verdict, View, ViewKind, WorkspaceMode,
};
use atoll_policy::{
    Facts, HostFacts, NoProfiles, PolicySources, Requested, RequestedProfile, SourceFile, Sources,
    TrustList, check, compile, decide,
};
use libfuzzer_sys::fuzz_target;

const PROJECT: &str = "/home/ann/src/app/atoll.toml";
const VARIABLES: [&str; 8] = [
    "PATH",
    "HOME",
    "A",
    "A_B",
    "A_TOKEN",
    "NPM_TOKEN",
    "LC_ALL",
    "X",
];

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.splitn(3, |byte| *byte == b'%');
    let mut next = || parts.next().unwrap_or_default();
    let (profile, project, organisation) = (next(), next(), next());
    for part in [profile, project, organisation] {
        for name in ["p.toml", "atoll.toml", "organisation.toml", "config.toml"] {
            let _ = check(part, name);
        }
        let _ = TrustList::parse(&SourceFile::new("trust.toml", part));
    }
    let alone = World {
        profile,
        project: None,
        organisation: None,
    };
    let with_project = World {
        project: Some((project, true)),
        ..alone
    };
    let ignored = World {
        project: Some((project, false)),
        ..alone
    };
    let wide = alone.boundary();
    assert_eq!(ignored.boundary(), wide, "an untrusted project has a say");
    let narrow = with_project.boundary();
    if let (Some(narrow), Some(wide)) = (&narrow, &wide) {
        assert_rights_at_most(narrow, wide);
        assert_only_places_added(narrow, wide);
    }
    for (world, wide) in [(alone, wide), (with_project, narrow)] {
        let organisation = Some(organisation);
        let Some(narrow) = (World {
            organisation,
            ..world
        })
        .boundary() else {
            continue;
        };
        let wide = wide.expect("granted with the organisation, not without it");
        assert_rights_at_most(&narrow, &wide);
        for view in &narrow.views {
            assert!(wide.views.contains(view), "{view:?}");
        }
        for variable in &narrow.environment {
            assert!(wide.environment.contains(variable), "{variable:?}");
        }
    }
});

#[derive(Clone, Copy)]
struct World<'a> {
    profile: &'a [u8],
    /// The file, and whether the person has trusted it.
    project: Option<(&'a [u8], bool)>,
    organisation: Option<&'a [u8]>,
}

impl World<'_> {
    /// What is granted, after a look at what is never granted.
    fn boundary(&self) -> Option<Boundary> {
        let host = host();
        let mut trust = TrustList::default();
        if let Some((project, true)) = self.project {
            trust.trust(PROJECT, project);
        }
        let project = self
            .project
            .map(|(project, _)| SourceFile::new(PROJECT, project));
        let organisation = self
            .organisation
            .map(|text| SourceFile::new("/etc/atoll/organisation.toml", text));
        let sources = Sources {
            organisation: organisation.as_ref(),
            user_config: None,
            user_profiles: &NoProfiles,
            project: project.as_ref(),
            trust: &trust,
            policies: PolicySources::default(),
        };
        let requested = Requested {
            profile: Some(RequestedProfile::File(SourceFile::new(
                "/home/ann/p.toml",
                self.profile.to_vec(),
            ))),
            ..Requested::default()
        };
        let rules = compile(&sources, &requested, OsStr::new("true"), &host).ok()?;
        let _ = (rules.show(), rules.show_json());
        let environment = environment();
        let facts = Facts {
            mode: Mode::Full,
            host: &host,
            environment: &environment,
            now: SystemTime::UNIX_EPOCH,
            placeholders: &[],
        };
        match decide(&rules, &call(), &facts) {
            Verdict::Allow(grant) => {
                let boundary = grant.boundary().clone();
                assert_fixed_rules(&boundary, &host);
                Some(boundary)
            }
            Verdict::Ask(_) | Verdict::Deny(_) => None,
        }
    }
}

fn host() -> HostFacts {
    HostFacts {
        memory_bytes: 16 << 30,
        uid: 1000,
        gid: 1000,
        home: PathBuf::from("/home/ann"),
        state_dir: PathBuf::from("/home/ann/.local/state/atoll"),
        config_dir: PathBuf::from("/home/ann/.config/atoll"),
    }
}

fn environment() -> Vec<(OsString, OsString)> {
    VARIABLES
        .iter()
        .map(|name| (name.into(), "v".into()))
        .collect()
}

fn call() -> Call {
    Call {
        run: RunId::new(1_795_253_412, 1),
        session: None,
        principal: Principal {
            uid: 1000,
            gid: 1000,
            name: "ann".to_owned(),
        },
        command: vec!["true".into()],
        options: Vec::new(),
        workspace: PathBuf::from("/home/ann/src/app"),
        directory: PathBuf::from("/home/ann/src/app"),
        terminal: false,
        lives: false,
    }
}

/// Whatever the files say.
fn assert_fixed_rules(boundary: &Boundary, host: &HostFacts) {
    let overlap = |one: &Path, other: &Path| one.starts_with(other) || other.starts_with(one);
    for (index, view) in boundary.views.iter().enumerate() {
        let path = &view.host;
        let plain = path.is_absolute() && path.components().all(|part| part.as_os_str() != "..");
        assert!(plain, "{path:?} is not plain");
        for own in [&host.state_dir, &host.config_dir] {
            assert!(!overlap(path, own), "{path:?} shows {own:?}");
        }
        for never in ["/proc", "/sys", "/dev", "/run"] {
            assert!(!overlap(path, Path::new(never)), "{path:?} shows {never}");
        }
        assert!(!host.home.starts_with(path), "{path:?} shows the home");
        let writable = !matches!(view.access, Access::ReadOnly);
        // Root inside changes the system in layers that are nobody else's.
        let layered = boundary.root && view.kind == ViewKind::System;
        let can_be_written = layered || path.starts_with(&host.home);
        assert!(!writable || can_be_written, "{path:?}");
        for later in boundary.views.iter().skip(index + 1) {
            assert!(!view.inside.starts_with(&later.inside), "{later:?} is late");
        }
    }
}

/// Limits, the workspace, terminal, system calls, programs: at most as wide.
fn assert_rights_at_most(narrow: &Boundary, wide: &Boundary) {
    let mut tightened: Limits = narrow.limits.clone();
    tightened.tighten(&wide.limits);
    assert_eq!(tightened, narrow.limits, "looser than {:?}", wide.limits);
    assert!(width(narrow.workspace) <= width(wide.workspace));
    let (one, other) = (narrow.terminal, wide.terminal);
    assert!(one.queries <= other.queries, "queries");
    assert!(one.clipboard <= other.clipboard, "clipboard");
    assert!(one.title <= other.title, "title");
    let (one, other) = (narrow.syscalls, wide.syscalls);
    assert!(one.deny_debugging >= other.deny_debugging, "debugging");
    assert!(one.deny_sockets >= other.deny_sockets, "sockets");
    assert!(narrow.root <= wide.root, "root");
    if !wide.programs.is_empty() {
        assert!(!narrow.programs.is_empty(), "everything may be executed");
        for program in &narrow.programs {
            let within = wide.programs.iter().any(|outer| program.starts_with(outer));
            assert!(within, "{program:?} is not in {:?}", wide.programs);
        }
    }
}

/// A person has trusted the places and variables that a project names; parts of
/// the system and secrets are not among them.
fn assert_only_places_added(narrow: &Boundary, wide: &Boundary) {
    let is_new = |view: &&View| !wide.views.contains(view);
    for view in narrow.views.iter().filter(is_new) {
        assert!(view.kind != ViewKind::System, "{view:?}");
    }
    for variable in &narrow.environment {
        let is_secret = variable.0.as_encoded_bytes().ends_with(b"_TOKEN");
        assert!(!is_secret || wide.environment.contains(variable));
    }
}

fn width(mode: WorkspaceMode) -> u8 {
    match mode {
        WorkspaceMode::ReadOnly => 0,
        WorkspaceMode::CopyOnWrite => 1,
        WorkspaceMode::Live => 2,
    }
}
