//! Random files of every layer: a lower layer never widens, and nothing exceeds the organisation's
//! bounds.

use atoll_model::{Access, WorkspaceMode};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::places::overlap;

const PLACES: [&str; 8] = [".a", ".a/b", ".a/b/c", ".b", ".c/d", ".c", "data", "data/x"];
const NAMES: [&str; 7] = ["A", "A_B", "A_*", "*_B", "NPM_TOKEN", "LC_ALL", "X"];
const MEMORY: [&str; 5] = ["1G", "20%", "4G", "60%", "64G"];
const MODES: [&str; 3] = ["copy-on-write", "live", "read-only"];

fn places() -> impl Strategy<Value = Vec<&'static str>> {
    vec(proptest::sample::select(PLACES.as_slice()), 0..4)
}

/// Returns few places, so that most files leave something to grant.
fn few_places() -> impl Strategy<Value = Vec<&'static str>> {
    vec(proptest::sample::select(PLACES.as_slice()), 0..2)
}

fn quoted(list: &[&str], prefix: &str) -> String {
    let texts: Vec<String> = list
        .iter()
        .map(|text| format!("'{prefix}{text}'"))
        .collect();
    format!("[{}]", texts.join(", "))
}

/// Returns settings that profiles and projects share: only one list of `[home]` each, so that no
/// place is named twice.
fn settings() -> impl Strategy<Value = String> {
    let one = proptest::sample::select(["read", "layer", "cache"].as_slice());
    (
        (one, places(), places()),
        vec(
            proptest::sample::select(["A", "A_B", "A_*", "*_B", "X"].as_slice()),
            0..3,
        ),
        option::of(proptest::sample::select(MEMORY.as_slice())),
        option::of(2_u64..9_000),
        option::of(1_u64..100),
        option::of(proptest::sample::select(MODES.as_slice())),
    )
        .prop_map(
            |((list, home, files), pass, memory, processes, seconds, mode)| {
                let mut text = format!(
                    "home.{list} = {}\nfiles.read = {}\nenvironment.pass = {}\n",
                    quoted(&home, ""),
                    quoted(&files, "/srv/"),
                    quoted(&pass, "")
                );
                if let Some(memory) = memory {
                    text += &format!("limits.memory = '{memory}'\n");
                }
                if let Some(processes) = processes {
                    text += &format!("limits.processes = {processes}\n");
                }
                if let Some(seconds) = seconds {
                    text += &format!("limits.wall-clock = '{seconds}s'\n");
                }
                if let Some(mode) = mode {
                    text += &format!("workspace = '{mode}'\n");
                }
                text
            },
        )
}

fn profile() -> impl Strategy<Value = String> {
    (settings(), any::<[bool; 7]>()).prop_map(|(text, [a, b, c, d, e, f, g])| {
        format!(
            "{text}terminal.queries={a}\nterminal.clipboard={b}\nterminal.title={c}\n\
             syscalls.deny-debugging={d}\nsyscalls.deny-sockets={e}\nforbid-live={f}\n\
             dangerous.unenforced-limits={g}\n"
        )
    })
}

fn denials() -> impl Strategy<Value = String> {
    let names = vec(proptest::sample::select(NAMES.as_slice()), 0..3);
    (few_places(), few_places(), names).prop_map(|(home, files, names)| {
        format!(
            "deny.home-read = {}\ndeny.files = {}\ndeny.environment = {}\n",
            quoted(&home, ""),
            quoted(&files, "/srv/"),
            quoted(&names, "")
        )
    })
}

fn project() -> impl Strategy<Value = String> {
    (settings(), denials(), any::<[bool; 3]>()).prop_map(|(text, denials, [a, b, c])| {
        let mut text = text + &denials;
        for (on, line) in [
            (a, "terminal.title = false\n"),
            (b, "syscalls.deny-sockets = true\n"),
            (c, "forbid-live = true\n"),
        ] {
            if on {
                text += line;
            }
        }
        text
    })
}

fn organisation() -> impl Strategy<Value = String> {
    (
        denials(),
        option::of(proptest::sample::select(MEMORY.as_slice())),
        option::of(1_u64..100),
        option::of(proptest::sample::select(MODES.as_slice())),
        any::<[bool; 3]>(),
    )
        .prop_map(|(mut text, memory, seconds, mode, [a, b, c])| {
            if let Some(memory) = memory {
                text += &format!("limits.memory = '{memory}'\n");
            }
            if let Some(seconds) = seconds {
                text += &format!("limits.wall-clock = '{seconds}s'\n");
            }
            if let Some(mode) = mode {
                text += &format!("require.workspace = '{mode}'\n");
            }
            for (on, line) in [
                (a, "terminal.clipboard = false\n"),
                (b, "require.deny-debugging = true\n"),
                (c, "forbid-dangerous = true\n"),
            ] {
                if on {
                    text += line;
                }
            }
            text
        })
}

fn with_variables(mut world: World) -> World {
    for name in [
        "PATH",
        "A",
        "A_B",
        "A_C",
        "C_B",
        "X",
        "NPM_TOKEN",
        "LC_ALL",
        "A_TOKEN",
    ] {
        world = world.variable(name, "v");
    }
    world
}

fn requested() -> impl Strategy<Value = Requested> {
    (
        any::<bool>(),
        option::of(proptest::sample::select(
            ["/srv/data", "/srv/.a/b"].as_slice(),
        )),
        option::of(proptest::sample::select(MEMORY.as_slice())),
        option::of(proptest::sample::select(
            ["A", "NPM_TOKEN", "X=1"].as_slice(),
        )),
    )
        .prop_map(|(live, ro, memory, variable)| Requested {
            live,
            read_only_dirs: ro.into_iter().map(PathBuf::from).collect(),
            limits: memory
                .into_iter()
                .map(|text| (atoll_model::LimitKey::Memory, text.to_owned()))
                .collect(),
            environment: variable.into_iter().map(OsString::from).collect(),
            ..Requested::default()
        })
}

fn width(mode: WorkspaceMode) -> u8 {
    match mode {
        WorkspaceMode::ReadOnly => 0,
        WorkspaceMode::CopyOnWrite => 1,
        WorkspaceMode::Live => 2,
    }
}

fn granted(world: &World) -> Option<Boundary> {
    match world.decide() {
        Verdict::Allow(grant) => Some(grant.boundary().clone()),
        Verdict::Ask(_) | Verdict::Deny(_) => None,
    }
}

/// Checks that limits, the workspace, terminal and system calls are at most as wide.
fn assert_rights_at_most(narrow: &Boundary, wide: &Boundary) {
    let mut tightened = narrow.limits.clone();
    tightened.tighten(&wide.limits);
    assert_eq!(tightened, narrow.limits);
    assert!(width(narrow.workspace) <= width(wide.workspace));
    let (left, right) = (narrow.terminal, wide.terminal);
    assert!(left.queries <= right.queries);
    assert!(left.clipboard <= right.clipboard);
    assert!(left.title <= right.title);
    assert!(narrow.syscalls.deny_debugging >= wide.syscalls.deny_debugging);
    assert!(narrow.syscalls.deny_sockets >= wide.syscalls.deny_sockets);
    assert!(narrow.nesting <= wide.nesting);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// An organisation's file only takes away: everything granted with it was granted without it,
    /// and each part of the boundary is at most as wide as before.
    #[test]
    fn an_organisation_only_tightens(
        profile in profile(),
        project in option::of(project()),
        organisation in organisation(),
        requested in requested(),
    ) {
        let mut without = with_variables(world().profile("p", &profile));
        if let Some(project) = project {
            without = without.project(&project);
        }
        without.requested = requested;
        let without = without.with("p");
        let with = without.clone().organisation(&organisation);
        if let Some(narrow) = granted(&with) {
            let wide = granted(&without).expect("granted with the organisation, not without it");
            assert_rights_at_most(&narrow, &wide);
            for view in &narrow.views {
                prop_assert!(wide.views.contains(view), "{view:?}");
            }
            for variable in &narrow.environment {
                prop_assert!(wide.environment.contains(variable), "{variable:?}");
            }
        }
    }

    /// A trusted project may name places; everything else it can only tighten. An untrusted one
    /// changes nothing at all.
    #[test]
    fn a_project_only_tightens_but_for_the_places_it_names(
        profile in profile(),
        project in project(),
        organisation in option::of(organisation()),
    ) {
        let mut without = with_variables(world().profile("p", &profile)).with("p");
        if let Some(organisation) = organisation {
            without = without.organisation(&organisation);
        }
        let untrusted = without.clone().untrusted_project(&project);
        prop_assert_eq!(granted(&untrusted), granted(&without));
        let trusted = without.clone().project(&project);
        if let (Some(narrow), Some(wide)) = (granted(&trusted), granted(&without)) {
            assert_rights_at_most(&narrow, &wide);
            let rules = trusted.rules();
            for view in &narrow.views {
                let origin = rules.views[&view.inside].origin.to_string();
                prop_assert!(wide.views.contains(view) || origin.starts_with(PROJECT), "{view:?}");
            }
        }
    }

    /// Whatever the layers set: nothing denied or forbidden is in view, secrets pass only by name,
    /// and parents come first.
    #[test]
    fn no_grant_goes_beyond_the_fixed_rules(
        profile in profile(),
        project in project(),
        organisation in organisation(),
        requested in requested(),
    ) {
        let mut world = with_variables(world().profile("p", &profile))
            .project(&project)
            .organisation(&organisation);
        world.requested = requested;
        let world = world.with("p");
        if let Some(boundary) = granted(&world) {
            let rules = world.rules();
            for (index, view) in boundary.views.iter().enumerate() {
                prop_assert!(crate::places::forbidden_here(&view.host, &world.host).is_none());
                for denied in &rules.denied_places {
                    prop_assert!(!overlap(&denied.value, &view.host));
                }
                for later in boundary.views.iter().skip(index + 1) {
                    prop_assert!(!view.inside.starts_with(&later.inside));
                }
                let writable = !matches!(view.access, Access::ReadOnly);
                prop_assert!(!writable || view.inside.starts_with("/home/ann"));
            }
            for (name, _) in &boundary.environment {
                for denied in &rules.environment.denied {
                    prop_assert!(!denied.value.matches(name), "{name:?}");
                }
                prop_assert!(name != "A_TOKEN");
            }
            prop_assert!(!boundary.limits.dangerous_unenforced_limits || !organisation.contains("forbid"));
        }
    }

    /// No input ends in a panic, and a file that `check` accepts is accepted again.
    #[test]
    fn any_text_is_read_without_panic(text in "[a-z\\[\\]={}'\".,#\n\\\\é-]{0,80}", bytes in vec(any::<u8>(), 0..40)) {
        for name in ["p.toml", "atoll.toml", "organisation.toml", "config.toml"] {
            let _ = check(text.as_bytes(), name);
            let _ = check(&bytes, name);
        }
        let _ = TrustList::parse(&SourceFile::new("trust.toml", bytes));
    }
}
