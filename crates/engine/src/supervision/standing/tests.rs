use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};

use atoll_model::PlaceholderState;
use atoll_sandbox::make_layer;
use sha2::{Digest, Sha256};

use super::{furnish_login, is_written_outside};
use crate::supervision::PlaceholderFile;

#[test]
fn what_stands_for_a_login_is_laid_down_and_nothing_is_followed() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    fs::create_dir(path("lower")).unwrap();
    fs::write(path("lower/auth.json"), "of the host").unwrap();
    fs::write(path("outside"), "outside").unwrap();
    let (layer, _) = make_layer(&path("layer"), &path("lower"), &path("inside"), None).unwrap();
    let upper = layer.upper.join("auth.json");
    let furnish = |text: Option<&str>| {
        let stands = PlaceholderFile {
            text: text.map(|text| text.as_bytes().to_vec()),
            ..PlaceholderFile::default()
        };
        furnish_login(&layer, OsStr::new("auth.json"), &stands, None).unwrap();
    };
    // Whatever a former program has left there, it is a file of its own then.
    let former: [&dyn Fn(); 5] = [
        &|| {},
        &|| symlink(path("outside"), &upper).unwrap(),
        &|| symlink("nowhere", &upper).unwrap(),
        &|| fs::hard_link(path("outside"), &upper).unwrap(),
        &|| furnish(None),
    ];
    for leave in former {
        leave();
        furnish(Some("it stands"));
        let facts = upper.symlink_metadata().unwrap();
        assert!(facts.is_file() && facts.nlink() == 1, "{facts:?}");
        assert_eq!(facts.permissions().mode() & 0o7777, 0o600);
        assert_eq!(fs::read_to_string(&upper).unwrap(), "it stands");
        fs::remove_file(&upper).unwrap();
    }
    // Without a text it is what hides a file below.
    furnish(Some("it stands"));
    furnish(None);
    let facts = upper.symlink_metadata().unwrap();
    assert!(
        facts.file_type().is_char_device() && facts.rdev() == 0,
        "{facts:?}"
    );
    // A directory of an older run shows what is below, and may hold it, unless it hides that.
    for text in [None, Some("it stands")] {
        fs::remove_file(&upper).unwrap();
        fs::create_dir_all(upper.join("deeper")).unwrap();
        fs::write(upper.join("deeper/copy"), "of the host").unwrap();
        furnish(text);
        assert!(!upper.is_dir());
    }
    fs::remove_file(&upper).unwrap();
    fs::create_dir(&upper).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&upper, "user.overlay.opaque", b"y", flags).unwrap();
    furnish(Some("it stands"));
    assert!(upper.is_dir());
    assert_eq!(fs::read_to_string(path("outside")).unwrap(), "outside");
    assert_eq!(
        fs::read_to_string(path("lower/auth.json")).unwrap(),
        "of the host"
    );
}

#[test]
fn settings_that_somebody_else_has_written_since_are_known() {
    let place = tempfile::tempdir().unwrap();
    let (host, upper) = (place.path().join("host"), place.path().join("upper"));
    let name = OsStr::new("settings.json");
    let digest = Sha256::digest("it stood");
    let digest = digest.iter().map(|byte| format!("{byte:02x}"));
    let stood = |digest: Option<String>| PlaceholderState {
        digest,
        has_secrets: false,
    };
    let was = stood(Some(digest.collect()));
    for (now, was, is_it) in [
        (Some("it stood"), &was, false),
        (Some("what a program made"), &was, false),
        (Some("with a key"), &was, true),
        (None, &was, true),
        (None, &stood(None), false),
        (Some("with a key"), &stood(None), true),
    ] {
        for directory in [&host, &upper] {
            let _ = fs::remove_dir_all(directory);
            fs::create_dir(directory).unwrap();
        }
        fs::write(upper.join(name), "what a program made").unwrap();
        if let Some(now) = now {
            fs::write(host.join(name), now).unwrap();
        }
        assert_eq!(
            is_written_outside(&host, &upper, name, was),
            is_it,
            "{now:?}"
        );
    }
    fs::remove_file(host.join(name)).unwrap();
    // Of a link nobody can tell.
    symlink("elsewhere", host.join(name)).unwrap();
    assert!(is_written_outside(&host, &upper, name, &was));
}
