use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use atoll_model::network::{TRUST_AUTHORITY, TRUST_BUNDLE, TRUST_JAVA};

use super::*;

/// Writes a file that looks like a host's trusted certificates.
fn bundle(place: &Place, text: &str) -> PathBuf {
    let path = place.state.path().join("bundle");
    std::fs::write(&path, text).unwrap();
    path
}

fn files(place: &Place, bundle: &Path) -> TrustFiles {
    let authority = CertificateAuthority::open(&place.state, SystemTime::now()).unwrap();
    let none = Path::new("/nothing/here");
    TrustFiles::with(&place.state, &authority, SystemTime::now(), &[none, bundle]).unwrap()
}

fn directories(place: &Place) -> usize {
    let entries = std::fs::read_dir(place.state.path().join("trust")).unwrap();
    let is_directory = |one: &std::fs::DirEntry| one.file_type().unwrap().is_dir();
    entries.flatten().filter(is_directory).count()
}

#[test]
fn the_files_hold_what_the_host_trusts_and_the_authority() {
    let place = Place::new();
    let of_host = bundle(&place, "# A comment\nwithout an end");
    let made = files(&place, &of_host);
    let read = |name: &str| std::fs::read(made.directory().join(name)).unwrap();
    let authority = CertificateAuthority::read(&place.state).unwrap().unwrap();
    let own = authority.certificate();
    assert_eq!(read(TRUST_AUTHORITY), own.as_bytes());
    let whole = format!("# A comment\nwithout an end\n{own}");
    assert_eq!(read(TRUST_BUNDLE), whole.as_bytes());
    assert_eq!(&read(TRUST_JAVA)[..4], [0xfe, 0xed, 0xfe, 0xed]);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(made.directory()), 0o755);
    for name in [TRUST_BUNDLE, TRUST_AUTHORITY, TRUST_JAVA] {
        assert_eq!(mode(&made.directory().join(name)), 0o444, "{name}");
    }
    assert_eq!(mode(made.directory().parent().unwrap()), 0o700);
    // Without anything that the host trusts the authority is all.
    let none = TrustFiles::with(&place.state, &authority, SystemTime::now(), &[]).unwrap();
    let bundle = std::fs::read(none.directory().join(TRUST_BUNDLE)).unwrap();
    assert_eq!(bundle, own.as_bytes());
}

#[test]
fn they_are_made_once_for_the_same_and_go_when_nobody_uses_them() {
    let place = Place::new();
    let of_host = bundle(&place, "one");
    let first = files(&place, &of_host);
    let inode = |files: &TrustFiles| std::fs::metadata(files.directory()).unwrap().ino();
    let again = files(&place, &of_host);
    assert_eq!(inode(&first), inode(&again));
    // The host trusts something else now: those that are in use stay.
    let second = files(&place, &bundle(&place, "another"));
    assert_ne!(first.directory(), second.directory());
    assert_eq!(directories(&place), 2);
    assert!(first.directory().join(TRUST_BUNDLE).exists());
    let gone = first.directory().to_path_buf();
    drop((first, again));
    let _ = CertificateAuthority::rotate(&place.state, SystemTime::now(), Duration::ZERO).unwrap();
    let third = files(&place, &of_host);
    assert!(!gone.exists());
    assert_eq!(directories(&place), 2);
    assert_ne!(second.directory(), third.directory());
    // What a sudden end has left half made is made anew.
    std::fs::create_dir(place.state.path().join("trust/new")).unwrap();
    std::fs::write(place.state.path().join("trust/new/cacerts"), "half").unwrap();
    let _ = CertificateAuthority::rotate(&place.state, SystemTime::now(), Duration::ZERO).unwrap();
    let fourth = files(&place, &of_host);
    let authority = CertificateAuthority::read(&place.state).unwrap().unwrap();
    let text = std::fs::read_to_string(fourth.directory().join(TRUST_AUTHORITY)).unwrap();
    assert_eq!(text, authority.certificate());
}

#[test]
fn those_who_need_them_first_at_once_get_the_same() {
    let place = Place::new();
    let of_host = bundle(&place, "one");
    let _ = CertificateAuthority::open(&place.state, SystemTime::now()).unwrap();
    let made: Vec<TrustFiles> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| files(&place, &of_host)))
            .collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let is_same = |one: &TrustFiles| one.directory() == made[0].directory();
    assert!(made.iter().all(is_same));
    assert_eq!(directories(&place), 1);
}
