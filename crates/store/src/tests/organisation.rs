use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;

use super::*;

const FILES: [(&str, &[u8]); 2] = [
    ("organisation.toml", b"forbid-dangerous = true\n"),
    ("own.cedar", b"permit(principal, action, resource);\n"),
];
const DAY: Duration = Duration::from_secs(86_400);

struct Signer {
    _temporary: tempfile::TempDir,
    key: OrganisationKey,
}

fn signer(name: &str) -> Signer {
    let temporary = tempfile::tempdir().unwrap();
    let key = OrganisationKey::make(&temporary.path().join("key"), name).unwrap();
    Signer {
        _temporary: temporary,
        key,
    }
}

fn list(serial: u64, until: Option<&str>) -> Manifest {
    let until = until.map(|day| Day::parse(day).unwrap());
    Manifest::of(Signed::Layer, "acme.example", serial, until, FILES).unwrap()
}

fn signed(manifest: &Manifest, signer: &Signer) -> String {
    manifest.sign(std::slice::from_ref(&signer.key)).unwrap()
}

fn opened(note: &[u8], signer: &Signer) -> Result<Manifest, OrganisationFault> {
    Manifest::open(Signed::Layer, note, signer.key.verifier())
}

/// Returns the note of any text, signed as the signer signs.
fn note_of(text: &str, signer: &Signer) -> String {
    format!("{text}\n{}", signer.key.signing().line(text))
}

#[test]
fn a_key_is_its_owners_alone_and_never_written_over() {
    use std::os::unix::fs::PermissionsExt;
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("key");
    assert!(OrganisationKey::read(&path).is_err());
    let made = OrganisationKey::make(&path, "acme.example").unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    let read = OrganisationKey::read(&path).unwrap();
    assert_eq!(read.verifier(), made.verifier());
    assert!(OrganisationKey::make(&path, "acme.example").is_err());
    assert_eq!(
        OrganisationKey::read(&path).unwrap().verifier(),
        made.verifier()
    );
    for name in ["", "a b", "a+b", "a\nb"] {
        let other = temporary.path().join("other");
        assert!(OrganisationKey::make(&other, name).is_err(), "{name:?}");
        assert!(!other.exists());
    }
    let shown = format!("{made:?}");
    let kept = std::fs::read_to_string(&path).unwrap();
    // Base64 has that sign too.
    let secret = kept.trim().splitn(5, '+').last().unwrap();
    assert!(kept.starts_with("PRIVATE+KEY+acme.example+") && !shown.contains(secret));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(OrganisationKey::read(&path).is_err());
}

#[test]
fn a_list_is_read_as_it_was_signed() {
    let acme = signer("acme.example");
    for list in [
        list(1, None),
        list(9_007_199_254_740_991, Some("2027-02-28")),
    ] {
        let note = signed(&list, &acme);
        let read = opened(note.as_bytes(), &acme).unwrap();
        assert_eq!(read, list);
        read.check(FILES).unwrap();
    }
    let note = signed(&list(7, Some("2027-01-31")), &acme);
    let text = note.split_once("\n\n").unwrap().0;
    assert_eq!(
        text,
        "atoll organisation v1\nacme.example\nserial 7\nuntil 2027-01-31\n\
         ce01bd14f2c9f23744b5a52e9ba284cce58ca98cbdf826a44a62f006a4de4f42  organisation.toml\n\
         ae6f3bbc10d4275226be91b066f1cc3f381fdfef0924005ad6d9c410c2f9d5df  own.cedar"
    );
}

#[test]
fn no_byte_of_a_note_can_be_another() {
    let acme = signer("acme.example");
    let note = signed(&list(7, Some("2027-01-31")), &acme).into_bytes();
    assert!(opened(&note, &acme).is_ok());
    for at in 0..note.len() {
        for change in [0x01, 0x20, 0x80] {
            let mut altered = note.clone();
            altered[at] ^= change;
            assert!(opened(&altered, &acme).is_err(), "byte {at} ^ {change:#x}");
        }
        let mut shorter = note.clone();
        shorter.remove(at);
        assert!(opened(&shorter, &acme).is_err(), "without byte {at}");
        assert!(opened(&note[..at], &acme).is_err(), "up to byte {at}");
    }
}

#[test]
fn another_form_of_the_same_is_none_even_when_it_is_signed() {
    let acme = signer("acme.example");
    let digest = "0".repeat(64);
    let good = format!("atoll organisation v1\nacme.example\nserial 7\n{digest}  a.cedar\n");
    assert!(opened(note_of(&good, &acme).as_bytes(), &acme).is_ok());
    let changed = |from: &str, to: &str| {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good);
        text
    };
    let all = [
        changed("v1", "v2"),
        changed("serial 7", "serial 07"),
        changed("serial 7", "serial +7"),
        changed("serial 7", "serial 0"),
        changed("serial 7", "serial 9007199254740993"),
        changed("serial 7\n", "serial 7\nuntil 2027-02-29\n"),
        changed("serial 7\n", "serial 7\nuntil 2027-2-28\n"),
        changed("serial 7\n", "until 2027-02-28\nserial 7\n"),
        changed("  a.cedar", " a.cedar"),
        changed("  a.cedar", "  ../a.cedar"),
        changed("  a.cedar", "  /etc/a.cedar"),
        changed("  a.cedar", "  a.toml"),
        changed("  a.cedar\n", &format!("  a.cedar\n{digest}  a.cedar\n")),
        changed("  a.cedar\n", &format!("  b.cedar\n{digest}  a.cedar\n")),
        changed("  a.cedar\n", "  a.cedar\n\n"),
        changed("  a.cedar\n", "  a.cedar\nmore\n"),
        changed(&digest, &"A".repeat(64)),
        changed(&digest, &"0".repeat(63)),
        "atoll organisation v1\nacme.example\nserial 7\n".to_owned(),
        "acme.example\n7\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n".to_owned(),
    ];
    for text in all {
        let found = opened(note_of(&text, &acme).as_bytes(), &acme);
        assert!(found.is_err(), "{text}");
    }
    let lines: String = (0..66)
        .map(|at| format!("{digest}  {at:03}.cedar\n"))
        .collect();
    let head = "atoll organisation v1\nacme.example\nserial 7\n";
    assert!(opened(note_of(&format!("{head}{lines}"), &acme).as_bytes(), &acme).is_err());
    let huge = note_of(&good, &acme) + &"\u{2014} x AAAA\n".repeat(10_000);
    assert!(opened(huge.as_bytes(), &acme).is_err());
}

#[test]
fn only_the_key_that_is_pinned_counts() {
    let (acme, other) = (signer("acme.example"), signer("acme.example"));
    let stranger = signer("other.example");
    let list = list(7, None);
    let note = signed(&list, &acme);
    let by_other = opened(note.as_bytes(), &other);
    assert!(matches!(by_other, Err(OrganisationFault::OtherKey(_))));
    // Of two signatures that of the pinned key counts, wherever it stands.
    let lines = [&acme, &other].map(|one| one.key.signing().line(&format!("{}\n", body(&note))));
    for lines in [lines.concat(), [&*lines[1], &*lines[0]].concat()] {
        let both = format!("{}\n\n{lines}", body(&note));
        assert_eq!(opened(both.as_bytes(), &acme).unwrap(), list);
        assert_eq!(opened(both.as_bytes(), &other).unwrap(), list);
        assert!(opened(both.as_bytes(), &stranger).is_err());
    }
    // One that is the key's by its name and id, and is not, spoils a good one beside it.
    let (name, encoded) = lines[0].trim_end().rsplit_once(' ').unwrap();
    let engine = base64::engine::general_purpose::STANDARD;
    let mut bytes = engine.decode(encoded).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    let forged = format!("{name} {}\n", engine.encode(bytes));
    let spoilt = format!("{}\n\n{}{forged}", body(&note), lines[0]);
    let found = opened(spoilt.as_bytes(), &acme);
    assert!(matches!(found, Err(OrganisationFault::BadSignature(_))));
    // A list of another organisation, signed by this key.
    let text = format!("{}\n", body(&note)).replacen("acme.example", "other.example", 1);
    let found = opened(note_of(&text, &acme).as_bytes(), &acme);
    assert!(matches!(found, Err(OrganisationFault::OtherName { .. })));
}

fn body(note: &str) -> &str {
    note.rsplit_once("\n\n").unwrap().0
}

#[test]
fn the_files_are_all_that_were_signed_and_no_others() {
    let list = list(7, None);
    let [bounds, own] = FILES;
    list.check([own, bounds]).unwrap();
    for (name, content) in FILES {
        for at in 0..content.len() {
            let mut altered = content.to_vec();
            altered[at] ^= 1;
            let other = FILES.into_iter().find(|one| one.0 != name).unwrap();
            let found = list.check([(name, &*altered), other]);
            assert!(matches!(found, Err(OrganisationFault::Altered(of)) if of == name));
        }
    }
    let added = list.check([bounds, own, ("z.cedar", b"".as_slice())]);
    assert!(matches!(added, Err(OrganisationFault::Added(name)) if name == "z.cedar"));
    let missing = list.check([bounds]);
    assert!(matches!(missing, Err(OrganisationFault::Missing(name)) if name == "own.cedar"));
    assert!(matches!(list.check([]), Err(OrganisationFault::Missing(_))));
    let renamed = list.check([bounds, ("z.cedar", own.1)]);
    assert!(matches!(renamed, Err(OrganisationFault::Added(_))));
    for files in [
        vec![("a.toml", b"".as_slice())],
        vec![],
        vec![("a/b.cedar", b"")],
    ] {
        assert!(Manifest::of(Signed::Layer, "acme.example", 1, None, files).is_err());
    }
}

#[test]
fn a_number_never_goes_back_and_means_one_list() {
    let place = Place::new();
    let acme = signer("acme.example");
    let seen = |list: &Manifest| {
        remember_manifest(&place.state, acme.key.verifier(), list, SystemTime::now())
    };
    seen(&list(7, None)).unwrap();
    seen(&list(7, None)).unwrap();
    let back = seen(&list(6, None));
    assert!(matches!(
        back,
        Err(OrganisationFault::RolledBack {
            found: 6,
            seen: 7,
            ..
        })
    ));
    let other = Manifest::of(
        Signed::Layer,
        "acme.example",
        7,
        None,
        [("z.cedar", b"".as_slice())],
    )
    .unwrap();
    assert!(matches!(
        seen(&other),
        Err(OrganisationFault::SameNumber { serial: 7, .. })
    ));
    seen(&list(7, None)).unwrap();
    seen(&list(9, None)).unwrap();
    assert!(seen(&list(7, None)).is_err());
    // Another key of its name goes on from there, and the key before it from where that is then.
    let next = signer("acme.example");
    let by_next = |list: &Manifest| {
        remember_manifest(&place.state, next.key.verifier(), list, SystemTime::now())
    };
    let back = by_next(&list(8, None));
    assert!(matches!(
        back,
        Err(OrganisationFault::RolledBack {
            found: 8,
            seen: 9,
            ..
        })
    ));
    by_next(&list(9, None)).unwrap();
    by_next(&list(10, None)).unwrap();
    assert!(seen(&list(9, None)).is_err());
    seen(&list(10, None)).unwrap();
    // One of another name is counted by itself.
    let other = signer("other.example");
    let by_other = remember_manifest(
        &place.state,
        other.key.verifier(),
        &Manifest::of(
            Signed::Layer,
            "other.example",
            1,
            None,
            [("z.cedar", b"".as_slice())],
        )
        .unwrap(),
        SystemTime::now(),
    );
    by_other.unwrap();
    // What was seen cannot be read: nothing counts, rather than anything.
    let directory = place.state.path().join("organisation");
    for entry in std::fs::read_dir(&directory).unwrap().flatten() {
        std::fs::write(entry.path(), b"{}").unwrap();
    }
    assert!(matches!(
        seen(&list(10, None)),
        Err(OrganisationFault::Unreadable { .. })
    ));
}

#[test]
fn what_is_over_stays_so_when_the_clock_goes_back() {
    let place = Place::new();
    let acme = signer("acme.example");
    let at = |day: &str, hours: u32| {
        let mut time = UNIX_EPOCH;
        while Day::of(time.duration_since(UNIX_EPOCH).unwrap().as_secs()).to_string() != day {
            time += DAY;
        }
        time + Duration::from_secs(3_600) * hours
    };
    let ends = list(1, Some("2027-01-31"));
    let seen = |time: SystemTime| remember_manifest(&place.state, acme.key.verifier(), &ends, time);
    seen(at("2027-01-30", 0)).unwrap();
    seen(at("2027-01-31", 23)).unwrap();
    assert!(matches!(
        seen(at("2027-02-01", 0)),
        Err(OrganisationFault::Expired { .. })
    ));
    // Set back, by an hour or by a year.
    assert!(matches!(
        seen(at("2027-01-31", 23)),
        Err(OrganisationFault::Expired { .. })
    ));
    assert!(matches!(
        seen(at("2026-01-31", 0)),
        Err(OrganisationFault::Expired { .. })
    ));
    // The next one counts, also by the clock that was set back.
    let longer = list(2, Some("2027-02-01"));
    let next = |time| remember_manifest(&place.state, acme.key.verifier(), &longer, time);
    next(at("2026-01-31", 0)).unwrap();
    assert!(matches!(
        next(at("2027-02-02", 0)),
        Err(OrganisationFault::Expired { .. })
    ));
    // One that has no last day is for ever.
    let ever = list(3, None);
    remember_manifest(
        &place.state,
        acme.key.verifier(),
        &ever,
        at("2030-01-01", 0),
    )
    .unwrap();
}

#[test]
fn days_have_one_form() {
    for text in ["1970-01-01", "2024-02-29", "2027-12-31", "9999-12-31"] {
        assert_eq!(Day::parse(text).unwrap().to_string(), text);
    }
    for text in [
        "2023-02-29",
        "2027-1-01",
        "2027-00-01",
        "2027-13-01",
        "2027-01-00",
        "2027-01-32",
        "1969-12-31",
        "10000-01-01",
        "2027-01",
        "2027-01-01T00",
        "+2027-01-01",
        "",
        "--",
        "2027-01-18446744073709551615",
        "18446744073709551615-01-01",
    ] {
        assert_eq!(Day::parse(text), None, "{text}");
    }
}
