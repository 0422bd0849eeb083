//! Tests of which programs are trusted, and of malformed answers.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use atoll_cedar::{Case, Property, Proving, Subject, Verdict};

use super::{Programs, places, program};

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Makes a directory beneath one of root's, so that its surroundings are no project; returns also
/// its canonical path.
fn directory() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let real = directory.path().canonicalize().unwrap();
    (directory, real)
}

#[test]
fn a_prover_is_believed_only_where_nobody_else_writes() {
    let (_kept, base) = directory();
    // Beside the project's directory, not in what is around it.
    let (_elsewhere, trusted) = directory();
    let here = base.join("project");
    let own = trusted.join("atoll-prove");
    write(&own, "");
    write(&here.join("bin/atoll-prove"), "");
    let find = |places: &[PathBuf]| program("atoll-prove", None, places, &here);
    assert_eq!(find(std::slice::from_ref(&trusted)).unwrap(), own);
    // What lies in the project is passed over for the next one, also by a link.
    let inside = here.join("bin");
    let both = [inside.clone(), trusted.clone()];
    assert_eq!(find(&both).unwrap(), own);
    let why = find(std::slice::from_ref(&inside)).unwrap_err();
    assert!(why.contains("present directory"), "{why}");
    let linked = base.join("linked");
    fs::create_dir(&linked).unwrap();
    symlink(inside.join("atoll-prove"), linked.join("atoll-prove")).unwrap();
    assert!(find(std::slice::from_ref(&linked)).is_err());
    // Neither a file nor a directory that others can write.
    for place in [own.as_path(), trusted.as_path()] {
        fs::set_permissions(place, fs::Permissions::from_mode(0o777)).unwrap();
        let why = find(std::slice::from_ref(&trusted)).unwrap_err();
        assert!(why.contains("others can change"), "{why}");
        fs::set_permissions(place, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(&own, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(find(std::slice::from_ref(&trusted)).is_err(), "no program");
}

#[test]
fn no_prover_is_taken_from_the_project_around() {
    let (_kept, base) = directory();
    let (_elsewhere, trusted) = directory();
    let (project, here) = (base.join("project"), base.join("project/sub/directory"));
    write(&project.join("bin/atoll-prove"), "");
    write(&trusted.join("atoll-prove"), "");
    fs::create_dir_all(&here).unwrap();
    let find = |places: &[PathBuf]| program("atoll-prove", None, places, &here);
    let both = [project.join("bin"), trusted.clone()];
    // What is root's, and marked by nothing, is no project.
    let is_root = rustix::process::getuid().is_root();
    let found = match is_root {
        true => project.join("bin/atoll-prove"),
        false => trusted.join("atoll-prove"),
    };
    assert_eq!(find(&both).unwrap(), found);
    // Also where a nearer directory looks like a project.
    for mark in [project.join("atoll.toml"), here.join(".git")] {
        fs::write(mark, "").unwrap();
        assert_eq!(find(&both).unwrap(), trusted.join("atoll-prove"));
    }
    let why = find(&both[..1]).unwrap_err();
    assert!(why.contains("as the present directory"), "{why}");
}

#[test]
fn a_solver_that_is_named_is_not_replaced_by_another_one() {
    let (_kept, here) = directory();
    let (_elsewhere, place) = directory();
    write(&place.join("cvc5"), "");
    let places = places(None, place.as_os_str());
    assert!(program("cvc5", None, &places, &here).is_ok());
    let why = program("cvc5", Some("/nothing/cvc5".as_ref()), &places, &here).unwrap_err();
    assert!(why.contains("/nothing/cvc5"), "{why}");
}

#[test]
fn places_that_are_relative_are_none() {
    let found = places(Some("/beside".into()), "relative:/usr/bin::.".as_ref());
    assert_eq!(found, ["/beside", "/usr/bin"].map(PathBuf::from));
}

/// Returns the verdicts of such a prover on two properties.
fn said(script: &str) -> Vec<Verdict> {
    let (_kept, base) = directory();
    let prover = base.join("atoll-prove");
    write(&prover, &format!("#!/bin/sh\n{script}\n"));
    let programs = Programs {
        prover,
        solver: PathBuf::from("/nothing/cvc5"),
    };
    let asked = Proving {
        subject: Subject::default(),
        properties: vec![Property::NeverErrors, Property::EveryPolicyMatters],
        solver: programs.solver.clone(),
        seconds: 1,
        usual: Case::default(),
    };
    let mut all = Vec::new();
    // A file just written may still be open for writing in another test's child.
    for _ in 0..50 {
        all.clear();
        programs.prove(&asked, |verdict| all.push(verdict));
        let is_busy = |one: &Verdict| matches!(one, Verdict::Unknown(why) if why.contains("busy"));
        if !all.iter().any(is_busy) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    all
}

/// The positive control is the first line of each.
#[test]
fn what_a_prover_leaves_out_is_no_proof() {
    for script in [
        "cat >/dev/null; echo '\"proven\"'",
        "echo '\"proven\"'; exit 1",
        "echo '\"proven\"'; echo proven; echo '\"proven\"'",
        "echo '\"proven\"'; echo '{\"proven\": true}'",
        "echo '\"proven\"'; printf '\"proven\"'",
        "echo '\"proven\"'; head -c 2000000 /dev/zero",
    ] {
        let found = said(script);
        assert_eq!(found.len(), 2, "{script}: {found:?}");
        assert_eq!(found[0], Verdict::Proven, "{script}");
        assert!(
            matches!(found[1], Verdict::Unknown(_)),
            "{script}: {found:?}"
        );
    }
}

#[test]
fn what_a_prover_that_fails_says_is_told() {
    let why = |script: &str| match &said(script)[0] {
        Verdict::Unknown(why) => why.clone(),
        other => panic!("{script}: {other:?}"),
    };
    let told = why("echo a library is missing >&2; printf 'libc\\033[2J.so.6\\n' >&2; exit 127");
    assert!(told.contains("a library is missing / libc"), "{told}");
    assert!(!told.contains('\u{1b}'), "{told:?}");
    // Of very much the last, and nobody waits for what holds it open.
    let told = why("seq 1 100000 >&2; sleep 5 >/dev/null & exit 1");
    assert!(told.ends_with("says: 99998 / 99999 / 100000"), "{told}");
    let told = why("exit 1");
    assert!(told.contains("another version of Atoll"), "{told}");
}
