use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::placement::{IDS, identity_base, make_layer};

#[test]
fn kernel_ids_stay_in_their_range() {
    // systemd's "Users, Groups, UIDs and GIDs on systemd systems".
    let (first, last) = (1_879_048_192_u32, 2_147_483_647_u32);
    let mut bases = BTreeSet::new();
    for number in 0..200_000 {
        let base = identity_base(&format!("name-{number}"));
        assert!(base >= first && base.is_multiple_of(IDS), "{base}");
        assert!(
            base.checked_add(IDS - 1).is_some_and(|end| end <= last),
            "{base}"
        );
        bases.insert(base);
    }
    assert_eq!(bases.len(), 4_095, "every block is used");
    for name in ["", "\0", "a", "ü", "261121-093012-k7qd"] {
        assert_eq!(identity_base(name), identity_base(name));
        assert!(
            (first..=last - IDS).contains(&identity_base(name)),
            "{name:?}"
        );
    }
}

#[test]
fn a_layer_looks_like_what_lies_below() {
    let place = tempfile::tempdir().unwrap();
    let (below, directory) = (place.path().join("below"), place.path().join("run/layer"));
    fs::create_dir(&below).unwrap();
    fs::set_permissions(&below, fs::Permissions::from_mode(0o2750)).unwrap();
    let inside = std::path::Path::new("/home/person/project");
    let (layer, since) = make_layer(&directory, &below, inside, None).unwrap();
    assert_eq!((layer.lower, layer.inside), (below, inside.to_path_buf()));
    let mode = |path| fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!(mode(&layer.upper), 0o2750);
    assert_eq!(mode(&layer.work), 0o700);
    assert_eq!(mode(&directory), 0o700, "nobody else looks in");
    assert_eq!(
        since,
        fs::metadata(&layer.work).unwrap().modified().unwrap()
    );
    // Once more, as for a layer that outlives its run.
    fs::write(layer.upper.join("kept"), "").unwrap();
    let below = place.path().join("below");
    let (again, _) = make_layer(&directory, &below, inside, None).unwrap();
    assert!(again.upper.join("kept").exists());
    let missing = place.path().join("missing");
    assert!(make_layer(&directory, &missing, inside, None).is_err());
}
