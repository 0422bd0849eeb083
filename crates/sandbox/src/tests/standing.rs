use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};

use crate::{Stands, furnish_login, make_layer};

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
        let stands = Stands {
            text: text.map(|text| text.as_bytes().to_vec()),
            ..Stands::default()
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
    // A directory hides it as well.
    fs::remove_file(&upper).unwrap();
    fs::create_dir(&upper).unwrap();
    furnish(Some("it stands"));
    assert!(upper.is_dir());
    assert_eq!(fs::read_to_string(path("outside")).unwrap(), "outside");
    assert_eq!(
        fs::read_to_string(path("lower/auth.json")).unwrap(),
        "of the host"
    );
}
