use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use super::*;

struct Place {
    top: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("agent")).unwrap();
        Self { top }
    }

    fn file(&self) -> PathBuf {
        self.top.path().join("agent/auth.json")
    }

    fn put(&self, text: &str) {
        fs::write(self.file(), text).unwrap();
        fs::set_permissions(self.file(), fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn lock(&self, patience: Duration) -> Result<LoginLock, LoginFileError> {
        LoginLock::take(&self.file(), &self.own(), patience, &|| true)
    }

    fn own(&self) -> PathBuf {
        self.top.path().join("own")
    }

    /// Returns the other entries of the directory.
    fn left(&self) -> Vec<String> {
        let names = |place: &Path| -> Vec<String> {
            let all = fs::read_dir(place).unwrap();
            all.map(|one| one.unwrap().file_name().into_string().unwrap())
                .collect()
        };
        let mut all = names(&self.own());
        all.retain(|name| !name.ends_with(".lock"));
        all.extend(names(&self.top.path().join("agent")));
        all
    }
}

#[test]
fn a_login_file_is_replaced_whole_with_its_mode_and_by_one_at_a_time() {
    let place = Place::new();
    place.put("old");
    fs::set_permissions(place.file(), fs::Permissions::from_mode(0o640)).unwrap();
    let lock = place.lock(Duration::ZERO).unwrap();
    let held = place.lock(Duration::from_millis(60));
    assert!(matches!(held, Err(LoginFileError::Held)), "{held:?}");
    let before = lock.read().unwrap().unwrap();
    assert!(before.is_open());
    lock.write(Some(&before), b"new").unwrap();
    assert_eq!(fs::read(place.file()).unwrap(), b"new");
    let mode = fs::metadata(place.file()).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o640);
    assert_eq!(place.left(), ["auth.json"]);
    drop(lock);
    // One that a killed run has left behind is in nobody's way.
    let lock = place.lock(Duration::ZERO).unwrap();
    fs::write(place.own().join(&lock.new), "left behind").unwrap();
    let before = lock.read().unwrap().unwrap();
    lock.write(Some(&before), b"newer").unwrap();
    assert_eq!(place.left(), ["auth.json"]);
}

#[test]
fn what_somebody_else_has_put_there_meanwhile_stays() {
    let place = Place::new();
    let lock = || place.lock(Duration::ZERO).unwrap();
    let target = place.top.path().join("target");
    fs::write(&target, "target").unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).unwrap();
    let away = || fs::remove_file(place.file()).unwrap();
    let swaps: [(&dyn Fn(), &str); 6] = [
        (&|| place.put("theirs"), "somebody has changed it"),
        (&away, "somebody has changed it"),
        (
            &|| {
                away();
                symlink(&target, place.file()).unwrap();
            },
            "symbolic link",
        ),
        (
            &|| {
                away();
                fs::create_dir(place.file()).unwrap();
            },
            "no regular file",
        ),
        (
            &|| {
                away();
                fs::hard_link(&target, place.file()).unwrap();
            },
            "further names",
        ),
        (
            &|| {
                fs::set_permissions(place.file(), fs::Permissions::from_mode(0o622)).unwrap();
            },
            "others than its owner can write",
        ),
    ];
    for (swap, said) in swaps {
        place.put("old");
        let lock = lock();
        let before = lock.read().unwrap().unwrap();
        swap();
        let facts = place.file().symlink_metadata().map(|facts| facts.ino());
        let error = lock.write(Some(&before), b"new").unwrap_err();
        assert!(error.to_string().contains(said), "{said}: {error}");
        let after = place.file().symlink_metadata().map(|facts| facts.ino());
        assert_eq!(facts.ok(), after.ok(), "{said}");
        assert_eq!(fs::read(&target).unwrap(), b"target", "{said}");
        // Nothing but the lock.
        let left: Vec<_> = fs::read_dir(place.own()).unwrap().flatten().collect();
        let is_lock = |one: &fs::DirEntry| one.path().extension() == Some(OsStr::new("lock"));
        assert!(left.iter().all(is_lock), "{said}: {left:?}");
        match place.file().is_dir() {
            true => fs::remove_dir(place.file()).unwrap(),
            false => drop(fs::remove_file(place.file())),
        }
    }
}

#[test]
fn a_login_file_is_made_where_there_is_none_and_nowhere_else() {
    let place = Place::new();
    let lock = place.lock(Duration::ZERO).unwrap();
    assert!(lock.read().unwrap().is_none());
    lock.write(None, b"first").unwrap();
    let mode = fs::metadata(place.file()).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    let error = lock.write(None, b"second").unwrap_err();
    assert!(matches!(error, LoginFileError::Changed), "{error}");
    assert_eq!(fs::read(place.file()).unwrap(), b"first");
    let long = vec![b'x'; LOGIN_FILE_BYTES_MAX + 1];
    let before = lock.read().unwrap();
    let error = lock.write(before.as_ref(), &long).unwrap_err();
    assert!(matches!(error, LoginFileError::Long(_)), "{error}");
    assert_eq!(place.left(), ["auth.json"]);
}

#[test]
fn who_sees_the_directory_of_a_login_does_not_hold_up_its_renewal() {
    let place = Place::new();
    place.put("old");
    // As a program could inside, where it is shown.
    let seen = File::open(place.top.path().join("agent")).unwrap();
    flock(&seen, FlockOperation::NonBlockingLockExclusive).unwrap();
    let file = File::open(place.file()).unwrap();
    flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    let lock = place.lock(Duration::ZERO).unwrap();
    let before = lock.read().unwrap().unwrap();
    lock.write(Some(&before), b"new").unwrap();
    let held = place.lock(Duration::ZERO);
    assert!(matches!(held, Err(LoginFileError::Held)), "{held:?}");
    drop(lock);
    let _ = place.lock(Duration::ZERO).unwrap();
}
