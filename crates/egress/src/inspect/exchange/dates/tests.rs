//! Tests of registries' responses, readable and not.

use super::*;
use proptest::prelude::*;

fn project(registry: Registry, name: &str) -> Project {
    let name = name.to_owned();
    Project { registry, name }
}

/// Returns the date of a file, in seconds; 0 if it cannot be read.
fn found(registry: Registry, name: &str, text: &str, key: &str) -> Result<Option<u64>, String> {
    let dates = read(&project(registry, name), text.as_bytes())?;
    Ok(match dates.get(key) {
        Some(ReleaseDate::At(time)) => {
            let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
            Some(since.as_secs())
        }
        Some(ReleaseDate::Unread) => Some(0),
        None => None,
    })
}

#[test]
fn release_date_is_rfc_3339() {
    for (text, expected) in [
        // The second after the one that it is in.
        ("2026-11-21T09:30:12Z", Some(1_795_253_413)),
        ("2026-11-21T09:30:12.999Z", Some(1_795_253_413)),
        ("2026-11-21T10:30:12+01:00", Some(1_795_253_413)),
        ("2026-11-21T09:30:12.000000+00:00", Some(1_795_253_413)),
        ("1970-01-01T00:00:00Z", Some(1)),
        ("1969-12-31T23:59:59Z", None),
        ("2026-11-21", None),
        ("2026-11-21T09:30:12", None),
        ("2026-13-21T09:30:12Z", None),
        ("1795253412", None),
        ("", None),
        ("-2026-11-21T09:30:12Z", None),
        ("2026-11-21T09:30:12Z ", None),
    ] {
        let time = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let expected = expected.map_or(ReleaseDate::Unread, |seconds| {
            ReleaseDate::At(time(seconds))
        });
        assert_eq!(ReleaseDate::read(text), expected, "{text:?}");
    }
}

#[test]
fn npm_release_dates_are_by_version() {
    let of = |text: &str, version: &str| found(Registry::Npm, "a", text, version);
    let text = r#"{"name":"a","versions":{"1.0.0":{}},"time":{"created":"2001-01-01T00:00:00Z",
        "modified":"2001-01-01T00:00:00Z","1.0.0":"1970-01-01T00:01:00Z","2.0.0":7,"3.0.0":null,
        "4.0.0":{"a":[1]},"5.0.0":["1970-01-01T00:01:00Z"],"6.0.0":true,"unpublished":{"name":"x"},
        "7.0.0":"1970-01-01T00:01:00Z","7.0.0":"1970-01-01T00:01:00Z"}}"#;
    for (version, expected) in [
        ("1.0.0", Some(61)),
        ("1.0", None),
        ("v1.0.0", None),
        ("created", None),
        ("modified", None),
        ("2.0.0", Some(0)),
        ("3.0.0", Some(0)),
        ("4.0.0", Some(0)),
        ("5.0.0", Some(0)),
        ("6.0.0", Some(0)),
        // Told twice.
        ("7.0.0", Some(0)),
        ("8.0.0", None),
    ] {
        assert_eq!(of(text, version), Ok(expected), "{version}");
    }
    for wrong in [
        "",
        "<html>",
        "{}",
        r#"{"name":"a"}"#,
        r#"{"name":"a","time":{}"#,
        r#"{"name":"a","time":[]}"#,
        r#"{"name":"a","time":{},"time":{}}"#,
        r#"{"name":"b","time":{"1.0.0":"1970-01-01T00:01:00Z"}}"#,
    ] {
        assert!(of(wrong, "1.0.0").is_err(), "{wrong}");
    }
    let deep = format!(r#"{{"name":"a","x":{},"time":{{}}}}"#, "[".repeat(100_000));
    assert!(of(&deep, "1.0.0").is_err());
}

#[test]
fn pypi_release_dates_are_by_file() {
    let of = |text: &str, path: &str| found(Registry::Pip, "left-pad", text, path);
    let text = r#"{"name":"Left_Pad","meta":{"api-version":"1.1"},"files":[
        {"filename":"a","url":"https://files.pythonhosted.org/packages/a/a-1.tar.gz#sha256=0","upload-time":"1970-01-01T00:01:00Z"},
        {"filename":"b","url":"https://files.pythonhosted.org/packages/b/b-1%21.tar.gz"},
        {"filename":"c","url":"https://evil.example/packages/c","upload-time":"1970-01-01T00:01:00Z"},
        {"filename":"d","url":"../../packages/d","upload-time":"1970-01-01T00:01:00Z"},
        {"filename":"e","url":"https://files.pythonhosted.org.evil.example/e","upload-time":"1970-01-01T00:01:00Z"}]}"#;
    for (path, expected) in [
        ("/packages/a/a-1.tar.gz", Some(61)),
        ("/packages/A/a-1.tar.gz", None),
        ("/packages/b/b-1%21.tar.gz", Some(0)),
        ("/packages/b/b-1!.tar.gz", None),
        ("/packages/c", None),
        ("/packages/d", None),
        ("/e", None),
        ("a", None),
    ] {
        assert_eq!(of(text, path), Ok(expected), "{path}");
    }
    assert!(of(&text.replace("Left_Pad", "other"), "/e").is_err());
    assert!(of("<a href='https://files.pythonhosted.org/packages/a'>", "/e").is_err());
}

#[test]
fn crates_index_release_dates_are_by_version() {
    let of = |text: &str, key: &str| found(Registry::Cargo, "inflector", text, key);
    let text = "{\"name\":\"Inflector\",\"vers\":\"1.0.0\",\"pubtime\":\"1970-01-01T00:01:00Z\"}\n\
                {\"name\":\"Inflector\",\"vers\":\"1.0.1+x\",\"deps\":[]}\n";
    for (key, expected) in [
        ("Inflector 1.0.0", Some(61)),
        ("inflector 1.0.0", None),
        ("Inflector 1.0.1+x", Some(0)),
        ("Inflector 1.0.1", None),
    ] {
        assert_eq!(of(text, key), Ok(expected), "{key}");
    }
    assert!(of("{\"name\":\"Inflector\"}\n", "Inflector 1.0.0").is_err());
    assert!(of("not found", "Inflector 1.0.0").is_err());
}

#[test]
fn release_dates_are_bounded() {
    let many = |count: usize| -> [(Registry, String); 3] {
        let each = |write: &dyn Fn(usize) -> String, between: &str| {
            (0..count).map(write).collect::<Vec<_>>().join(between)
        };
        let times = each(&|at| format!("\"{at}\":0"), ",");
        let files = each(&|at| format!("{{\"url\":\"{FILES}/{at}\"}}"), ",");
        let lines = each(&|at| format!("{{\"name\":\"a\",\"vers\":\"{at}\"}}"), "\n");
        [
            (
                Registry::Npm,
                format!("{{\"name\":\"a\",\"time\":{{{times}}}}}"),
            ),
            (
                Registry::Pip,
                format!("{{\"name\":\"a\",\"files\":[{files}]}}"),
            ),
            (Registry::Cargo, lines),
        ]
    };
    for (registry, text) in many(FILES_MAX) {
        let dates = read(&project(registry, "a"), text.as_bytes()).unwrap();
        assert_eq!(dates.len(), FILES_MAX);
    }
    for (registry, text) in many(FILES_MAX + 1) {
        let error = read(&project(registry, "a"), text.as_bytes()).unwrap_err();
        assert!(error.contains("more than 200000 files"), "{error}");
    }
}

proptest! {
    /// No input makes the reader fail; one that is no document has no date.
    #[test]
    fn release_dates_any_bytes_never_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
        for registry in Registry::ALL {
            if let Ok(dates) = read(&project(registry, "a"), &text) {
                prop_assert!(dates.is_empty());
            }
        }
    }

    /// A date is never read as an earlier one.
    #[test]
    fn release_date_is_rounded_up(seconds in 0_i64..253_402_300_000, offset in -14_i32..=14) {
        let offset = time::UtcOffset::from_hms(i8::try_from(offset).unwrap(), 0, 0).unwrap();
        let at = OffsetDateTime::from_unix_timestamp(seconds).unwrap().to_offset(offset);
        let (hours, _, _) = offset.as_hms();
        let sign = if hours < 0 { '-' } else { '+' };
        let text = format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{sign}{:02}:00",
            at.year(), u8::from(at.month()), at.day(), at.hour(), at.minute(), at.second(), hours.abs()
        );
        prop_assume!(at.year() >= 1 && at.year() <= 9999);
        let expected = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap() + 1);
        prop_assert_eq!(ReleaseDate::read(&text), ReleaseDate::At(expected));
    }
}
