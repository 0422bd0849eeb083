use std::time::{Duration, SystemTime, UNIX_EPOCH};

use atoll_ledger::{Holds, StateDir};
use atoll_model::RunId;
use atoll_store::RunState;

use super::{Class, Goes, Item, Kind, Rules, due};

const DAY: Duration = Duration::from_secs(24 * 3_600);

fn now() -> SystemTime {
    UNIX_EPOCH + 1_000 * DAY
}

fn item(kind: Kind, id: &str, days: u32, bytes: u64) -> Item {
    Item {
        kind,
        id: id.to_owned(),
        bytes,
        since: now() - days * DAY,
        runs: vec![RunId::new(1, 1)],
        tenant: None,
        stays: None,
    }
}

fn holds(directory: &std::path::Path) -> Holds {
    let state = StateDir::open(&directory.join("state")).unwrap();
    Holds::read(&state).unwrap()
}

#[test]
fn rules_are_read_and_mistakes_refused() {
    let check = |text: &str, class: Class, age: Option<u32>, size: Option<u64>| {
        let rules = Rules::parse(text).unwrap();
        assert_eq!(rules.age(class), age.map(|days| days * DAY), "{text}");
        assert_eq!(rules.size(class), size, "{text}");
    };
    check("", Class::Layer, Some(30), None);
    check("", Class::Log, Some(30), None);
    check("", Class::Event, Some(90), None);
    for class in [Class::Sandbox, Class::Artifact, Class::Evidence] {
        check("", class, None, None);
    }
    let layer = "layer = { age = \"7d\", size = \"10GiB\" }";
    check(layer, Class::Layer, Some(7), Some(10 << 30));
    check("[event]\nage = \"never\"", Class::Event, None, None);
    check("evidence.age = \"365d\"", Class::Evidence, Some(365), None);
    for wrong in [
        "evidence.size = \"1GiB\"",
        "layers.age = \"7d\"",
        "layer.age = 7",
        "layer.age = \"soon\"",
        "layer.size = \"much\"",
        "layer.count = 3",
    ] {
        assert!(Rules::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn things_go_by_age_and_by_the_size_of_their_class() {
    let directory = tempfile::tempdir().unwrap();
    let holds = holds(directory.path());
    let check = |rules: &str, items: &[Item], expected: &[&str]| {
        let rules = Rules::parse(rules).unwrap();
        let gone = due(items, &rules, &holds, now());
        let mut gone: Vec<&str> = gone.iter().map(|one| one.id.as_str()).collect();
        gone.sort_unstable();
        assert_eq!(gone, expected, "{rules:?}");
    };
    let kept = Kind::Run(RunState::Kept);
    let items = [
        item(Kind::Run(RunState::Discarded), "discarded", 0, 1),
        item(Kind::Run(RunState::Applied), "applied", 40, 1),
        item(kept, "kept", 40, 1),
        item(Kind::Checkpoint, "checkpoint", 40, 1),
        item(Kind::UndoNotes, "notes", 20, 1),
        item(Kind::Artifacts, "artifacts", 400, 1),
        item(Kind::Paused, "paused", 400, 1),
        item(Kind::Events, "events", 100, 1),
        item(Kind::Volume, "volume", 400, 1),
    ];
    check(
        "",
        &items,
        &["applied", "checkpoint", "discarded", "events"],
    );
    let ages =
        "layer.age = \"20d\"\nevent.age = \"never\"\nsandbox.age = \"1d\"\nartifact.age = \"400d\"";
    let gone = [
        "applied",
        "artifacts",
        "checkpoint",
        "discarded",
        "kept",
        "notes",
        "paused",
    ];
    check(ages, &items, &gone);
    // The oldest goes first. What goes on, and what nobody has decided about, pushes nothing out.
    let living = Item {
        stays: Some("it goes on"),
        ..item(kept, "living", 9, 50)
    };
    let applied = Kind::Run(RunState::Applied);
    let sizes = [
        item(applied, "new", 1, 30),
        item(applied, "old", 3, 30),
        item(kept, "undecided", 9, 500),
        item(Kind::Checkpoint, "older", 4, 30),
        living,
    ];
    let rule = |size: u32| format!("layer = {{ age = \"never\", size = \"{size}\" }}");
    check(&rule(90), &sizes, &[]);
    check(&rule(89), &sizes, &["older"]);
    check(&rule(59), &sizes, &["old", "older"]);
    check(&rule(1), &sizes, &["new", "old", "older"]);
}

#[test]
fn ends_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let holds = holds(directory.path());
    let rules = Rules::default();
    let goes = |item: Item| item.goes(&rules, &holds);
    assert_eq!(
        goes(item(Kind::Checkpoint, "one", 1, 1)),
        Goes::At(now() + 29 * DAY)
    );
    assert_eq!(
        goes(item(Kind::Run(RunState::Kept), "one", 1, 1)),
        Goes::Never
    );
    let living = Item {
        stays: Some("it goes on"),
        ..item(Kind::Run(RunState::Running), "one", 1, 1)
    };
    assert_eq!(goes(living), Goes::Stays("it goes on"));
}
