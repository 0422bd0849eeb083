mod asking;
mod conduct;
mod locks;
mod network;
mod packages;
mod releases;
mod requests;

use std::time::Duration;

use crate::*;

#[test]
fn run_ids_carry_their_time_and_refuse_everything_else() {
    let id = RunId::new(1_795_253_412, 0b00111_00111_10110_01100);
    assert_eq!(id.as_str(), "261121-093012-77pc");
    assert_eq!(RunId::parse(id.as_str()).as_ref(), Ok(&id));
    for wrong in [
        "",
        "..",
        "261121-093012-77p",
        "261121-093012-77p/",
        "261121_093012-77pc",
        "261121-093012-77pu",
    ] {
        assert!(RunId::parse(wrong).is_err(), "{wrong:?}");
    }
    assert_eq!(&RunId::new(951_782_400, 0).as_str()[..6], "000229");
}

#[test]
fn sizes() {
    for (text, bytes) in [
        ("0", 0),
        ("12", 12),
        ("1K", 1024),
        ("1kb", 1000),
        ("2GiB", 2 << 30),
        ("3 M", 3 << 20),
    ] {
        assert_eq!(parse_bytes(text), Ok(bytes), "{text:?}");
    }
    for wrong in ["", "K", "-1", "1.5G", "1X", "99999999999T", "0x10"] {
        assert!(parse_bytes(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn durations() {
    for (text, ms) in [
        ("250ms", 250),
        ("90s", 90_000),
        ("1h30m", 5_400_000),
        ("1d", 86_400_000),
    ] {
        assert_eq!(
            parse_duration(text),
            Ok(Duration::from_millis(ms)),
            "{text:?}"
        );
    }
    for wrong in [
        "",
        "5",
        "0s",
        "1m1h",
        "1s1s",
        "-1s",
        "1.5s",
        "s",
        "99999999999999999999s",
    ] {
        assert!(parse_duration(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn quantities_for_people() {
    for (bytes, text) in [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (20 << 30, "20 GiB"),
        (u64::MAX, "16384 PiB"),
    ] {
        assert_eq!(format_bytes(bytes), text);
    }
    for (ms, text) in [
        (7, "7 ms"),
        (1_500, "1.5 s"),
        (90_000, "1 min 30 s"),
        (7_260_000, "2 h 1 min"),
        (172_799_999, "47 h 59 min"),
        (172_800_000, "2 d 0 h"),
        (2_682_000_000, "31 d 1 h"),
    ] {
        assert_eq!(format_duration(Duration::from_millis(ms)), text);
    }
}

#[test]
fn limits_are_set_by_name() {
    let host = 16 << 30;
    let mut limits = Limits::for_run(host);
    assert_eq!(limits.memory_bytes, 12 << 30);
    for (key, value) in [
        ("memory", "50%"),
        ("swap", "0"),
        ("processes", "64"),
        ("cpu", "1.5"),
        ("wall-clock", "90s"),
        ("idle", "none"),
    ] {
        limits
            .set(LimitKey::parse(key).unwrap(), value, host)
            .unwrap();
    }
    assert_eq!(limits.memory_bytes / 1_000_000, (8_u64 << 30) / 1_000_000);
    assert_eq!(limits.cpu_millis, Some(1_500));
    assert_eq!(limits.wall_clock, Some(Duration::from_secs(90)));
    for (key, value) in [
        ("memory", "0"),
        ("memory", "200%"),
        ("processes", "0"),
        ("processes", "many"),
        ("cpu", "NaN"),
        ("cpu", "-1"),
        ("wall-clock", "0s"),
        ("disk", "none"),
    ] {
        assert!(
            limits
                .set(LimitKey::parse(key).unwrap(), value, host)
                .is_err(),
            "{key}={value}"
        );
    }
    assert!(
        LimitKey::parse("memroy")
            .unwrap_err()
            .to_string()
            .contains("memory, swap")
    );
}

#[test]
fn tightening_never_loosens() {
    let mut project = Limits::for_run(16 << 30);
    project.wall_clock = None;
    project.processes = 10;
    let mut user = Limits::for_run(16 << 30);
    user.wall_clock = Some(Duration::from_secs(5));
    user.processes = 20;
    user.dangerous_unenforced_limits = true;
    project.tighten(&user);
    assert_eq!(project.wall_clock, Some(Duration::from_secs(5)));
    assert_eq!(project.processes, 10);
    assert!(!project.dangerous_unenforced_limits);
}

#[test]
fn exit_statuses_are_those_of_shells() {
    for (ending, status) in [
        (Ending::Exited { status: 3 }, 3),
        (Ending::Signalled { signal: 9 }, 137),
        (
            Ending::Limited {
                limit: LimitHit::WallClock,
            },
            124,
        ),
        (Ending::NotFound, 127),
        (Ending::NotExecutable, 126),
    ] {
        assert_eq!(ending.exit_status(), status);
    }
}

#[test]
fn every_wall_has_a_technique_of_atlas() {
    for (call, wall) in TOLD_CALLS {
        let technique = wall.technique();
        let number = technique.id.strip_prefix("AML.T").unwrap();
        assert!(number.len() == 4 && number.bytes().all(|one| one.is_ascii_digit()));
        assert!(!technique.name.is_empty());
        let told = Attempt::told(call.as_bytes(), 7, 3).unwrap();
        let expected = (*wall, *call, 7, 3);
        assert_eq!((told.wall, told.call, told.pid, told.count), expected);
        assert_eq!(wall.to_string(), wall.name());
    }
    // What no filter tells of is not believed.
    for call in ["", "read", "mount ", "Mount", "mount\0", "moun"] {
        assert_eq!(Attempt::told(call.as_bytes(), 1, 1), None, "{call:?}");
    }
}

#[test]
fn a_run_began_when_its_name_says() {
    for seconds in [946_684_800, 951_868_799, 1_795_253_412, 4_102_444_799] {
        let id = RunId::new(seconds, 7);
        assert_eq!(id.began_seconds(), Some(seconds), "{id}");
    }
    for nonsense in ["260229", "261301", "260001", "260400", "260431"] {
        let id = RunId::parse(&format!("{nonsense}-000000-0000")).unwrap();
        assert_eq!(id.began_seconds(), None, "{id}");
    }
    for nonsense in ["240000", "006000", "000060"] {
        let id = RunId::parse(&format!("261121-{nonsense}-0000")).unwrap();
        assert_eq!(id.began_seconds(), None, "{id}");
    }
}
