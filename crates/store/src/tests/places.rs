use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::processes::{helper, says};
use super::*;

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn the_state_directory_is_made_private() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("a/b/atoll");
    let state = StateDir::open(&path).unwrap();
    open_ledger(&state, SystemTime::now).unwrap();
    create_run(&state, &record(1)).unwrap();
    for made in [
        "a",
        "a/b",
        "a/b/atoll",
        "a/b/atoll/ledger",
        "a/b/atoll/open",
        "a/b/atoll/runs",
    ] {
        let mode = std::fs::metadata(temporary.path().join(made))
            .unwrap()
            .mode();
        assert_eq!(mode & 0o777, 0o700, "{made}");
    }
    let run = std::fs::metadata(state.run_dir(&run_id(1))).unwrap();
    assert_eq!(run.mode() & 0o777, 0o700);
    // A link to a directory of one's own is a choice of the person.
    symlink(&path, temporary.path().join("link")).unwrap();
    StateDir::open(&temporary.path().join("link")).unwrap();
}

#[test]
fn unusable_state_directories_are_refused_with_advice() {
    let temporary = tempfile::tempdir().unwrap();
    let open = temporary.path().join("open");
    std::fs::create_dir(&open).unwrap();
    chmod(&open, 0o770);
    let file = temporary.path().join("file");
    std::fs::write(&file, "").unwrap();
    for (path, expected) in [
        (PathBuf::from("relative"), "absolute"),
        (file.clone(), "is not a directory; move it away"),
        (file.join("below"), "a part of that path is a file"),
        (open.clone(), "chmod go-w"),
    ] {
        let error = StateDir::open(&path).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(error.contains(&*path.to_string_lossy()), "{error}");
    }
    assert!(StateDir::open_read_only(&temporary.path().join("missing")).is_err());
    if is_root() {
        let other = temporary.path().join("other");
        std::fs::create_dir(&other).unwrap();
        std::os::unix::fs::chown(&other, Some(12_345), None).unwrap();
        let error = StateDir::open(&other).unwrap_err().to_string();
        assert!(
            error.contains("belongs to user id 12345, but Atoll runs as 0"),
            "{error}"
        );
    } else {
        eprintln!("skipped: only root can make a directory of someone else's");
    }
}

#[test]
fn a_read_only_state_directory_is_an_error_that_says_so() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("state");
    let state = StateDir::open(&path).unwrap();
    note(&open_ledger(&state, SystemTime::now).unwrap(), 1);
    if !is_root() {
        chmod(&path, 0o500);
        let error = StateDir::open(&path).unwrap_err().to_string();
        assert!(error.contains("permission denied; make it"), "{error}");
        assert_eq!(
            Ledger::verify(&StateDir::open_read_only(&path).unwrap())
                .unwrap()
                .events,
            1
        );
        return chmod(&path, 0o700);
    }
    // Root may write everywhere, so another user must try.
    chmod(temporary.path(), 0o755);
    let program = temporary.path().join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let own = "chown -R 65534:65534 \"$1\" && chmod 500 \"$1\"";
    let status = std::process::Command::new("sh")
        .args(["-c", own, "sh"])
        .arg(&path)
        .status();
    assert!(status.unwrap().success());
    let template = helper("open", &path);
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.arg(&program).args(template.get_args());
    for (name, value) in template.get_envs() {
        command.env(name, value.unwrap());
    }
    match command.output() {
        Err(error) => eprintln!("skipped: setpriv cannot be run: {error}"),
        Ok(output) => {
            let said = says(&output.stdout).join("\n");
            assert!(
                said.contains("permission denied; make it readable and writable"),
                "{said}"
            );
            assert!(said.contains("XDG_STATE_HOME"), "{said}");
        }
    }
}

#[test]
fn a_full_disk_is_an_error_and_loses_nothing() {
    if !is_root() {
        return eprintln!("skipped: only root can mount a small file system");
    }
    let temporary = tempfile::tempdir().unwrap();
    let template = helper("fill", &temporary.path().join("state"));
    let mut command = std::process::Command::new("unshare");
    let script = "mount -t tmpfs -o size=256k,mode=700 none \"$1\" && shift && exec \"$@\"";
    command
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(temporary.path());
    command
        .arg(template.get_program())
        .args(template.get_args());
    for (name, value) in template.get_envs() {
        command.env(name, value.unwrap());
    }
    let output = command.output().unwrap();
    if !output.status.success() && says(&output.stdout).is_empty() {
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        return eprintln!("skipped: no mount namespace here: {why}");
    }
    let said = says(&output.stdout);
    let acknowledged = said
        .iter()
        .filter(|line| line.starts_with("acknowledged"))
        .count();
    assert!(acknowledged > 20, "{said:?}");
    let rest = &said[acknowledged..];
    assert!(
        rest[0].contains("no space is left on that file system; free some"),
        "{rest:?}"
    );
    assert_eq!(rest[1], format!("Ok({acknowledged})"), "{rest:?}");
    assert!(rest[2].contains("no space is left"), "{rest:?}");
    assert_eq!(rest[3], "0", "half a run was left behind");
}
