use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::*;

/// A repository with branches, a tag, a symbolic ref, and two stashes.
struct World {
    root: TempDir,
}

impl World {
    fn new() -> Self {
        let world = Self {
            root: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(world.dir("repo")).unwrap();
        world.git("init -q -b main .");
        world.commit("one");
        world.git("branch side");
        world.git("branch gone");
        world.git("tag -a v1 -m v1");
        world.git("symbolic-ref refs/remotes/origin/HEAD refs/heads/main");
        for name in ["first", "second"] {
            fs::write(world.dir("repo/file"), name).unwrap();
            world.git(&format!("stash push -q -m {name}"));
        }
        world
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn git(&self, words: &str) -> String {
        let mut git = Command::new("git");
        git.arg("-C").arg(self.dir("repo")).args(words.split(' '));
        git.env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap());
        git.envs([
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
        ]);
        for who in ["AUTHOR", "COMMITTER"] {
            git.env(format!("GIT_{who}_NAME"), "a")
                .env(format!("GIT_{who}_EMAIL"), "a@b");
        }
        let output = git.output().expect("git is needed");
        assert!(output.status.success(), "{words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn commit(&self, text: &str) {
        fs::write(self.dir("repo/file"), text).unwrap();
        self.git("add file");
        self.git(&format!("commit -q -m {text}"));
    }

    /// Returns all that a checkpoint covers.
    fn state(&self) -> String {
        let refs = self.git("for-each-ref --format=%(refname)=%(objectname)%(symref)");
        let refs: Vec<&str> = refs
            .lines()
            .filter(|line| !line.contains("refs/atoll"))
            .collect();
        let head = fs::read_to_string(self.dir("repo/.git/HEAD")).unwrap();
        format!("{}\n{head}{}", refs.join("\n"), self.git("stash list"))
    }

    fn take(&self) -> Taken {
        let target = Target::Git {
            path: self.dir("repo"),
        };
        take(&target, "g1", &self.dir("cp"), &Limits::default()).unwrap()
    }

    fn restore(&self, taken: &Taken, from: &str, kept: &str, overwrite: Overwrite) -> Restored {
        let (dir, kept) = (self.dir(from), self.dir(kept));
        restore(taken, &dir, &kept, overwrite, &Limits::default()).unwrap()
    }

    fn effect(&self) {
        self.commit("two");
        self.git("branch -f side main");
        self.git("branch -D -q gone");
        self.git("tag -d v1");
        self.git("branch made");
        self.git("symbolic-ref refs/remotes/origin/HEAD refs/heads/side");
        self.git("checkout -q --detach");
        self.git("stash drop -q");
        self.git("stash drop -q");
        self.git("reflog expire --expire=now --all");
        self.git("gc -q --prune=now");
    }

    fn atoll_refs(&self) -> usize {
        self.git("for-each-ref refs/atoll").lines().count()
    }
}

#[test]
fn restore_takes_back_every_ref_and_is_undone() {
    let world = World::new();
    let before = world.state();
    let mut taken = world.take();
    world.effect();
    let after = world.state();
    settle(&mut taken, &world.dir("cp")).unwrap();
    let listed = changes(&taken, &world.dir("cp")).unwrap();
    let names: Vec<&str> = listed.iter().map(|one| one.name.as_str()).collect();
    let expected = [
        "HEAD",
        "refs/heads/gone",
        "refs/heads/made",
        "refs/heads/main",
        "refs/heads/side",
        "refs/remotes/origin/HEAD",
        "refs/stash",
        "refs/tags/v1",
    ];
    assert_eq!(names, expected);
    assert!(listed.iter().all(|one| one.origin == Origin::Effect));
    let restored = world.restore(&taken, "cp", "kept", Overwrite::No);
    assert_eq!(restored.restored, expected);
    assert_eq!(restored.left, []);
    assert_eq!(world.state(), before);
    world.git("fsck --connectivity-only");
    // Not that of the stash, which is part of the state.
    world.git("reflog expire --expire=now HEAD refs/heads/main refs/heads/side");
    world.git("gc -q --prune=now");
    let kept = restored.kept.unwrap();
    let undone = world.restore(&kept, "kept", "undone", Overwrite::No);
    assert_eq!(undone.restored, expected);
    assert_eq!(world.state(), after);
    discard(&taken, &world.dir("cp")).unwrap();
    discard(&kept, &world.dir("kept")).unwrap();
    discard(&undone.kept.unwrap(), &world.dir("undone")).unwrap();
    assert_eq!(world.atoll_refs(), 0);
}

#[test]
fn refs_that_moved_since_are_conflicts() {
    let world = World::new();
    let mut taken = world.take();
    world.commit("two");
    world.git("branch -f side main");
    world.git("branch made");
    world.git("branch left");
    settle(&mut taken, &world.dir("cp")).unwrap();
    let two = world.git("rev-parse side");
    world.commit("three");
    world.git("branch -f made main");
    world.git("branch person");
    let three = world.git("rev-parse main");
    let restored = world.restore(&taken, "cp", "kept", Overwrite::No);
    assert_eq!(restored.restored, ["refs/heads/left", "refs/heads/side"]);
    let left: Vec<_> = restored
        .left
        .iter()
        .map(|one| (one.name.as_str(), one.origin))
        .collect();
    let expected = [
        ("refs/heads/made", Some(Origin::Both)),
        ("refs/heads/main", Some(Origin::Both)),
        ("refs/heads/person", Some(Origin::Since)),
    ];
    assert_eq!(left, expected);
    assert_eq!(world.git("rev-parse main"), three);
    assert_eq!(world.git("rev-parse made"), three);
    let restored = world.restore(&taken, "cp", "again", Overwrite::Yes);
    assert_eq!(restored.restored, ["refs/heads/made", "refs/heads/main"]);
    assert_eq!(world.git("rev-parse person"), three);
    assert_eq!(world.git("rev-parse main"), world.git("rev-parse gone"));
    // What was replaced is kept.
    assert_eq!(
        world.git(&format!("cat-file -t {}", two.trim())),
        "commit\n"
    );
    let kept = world.git("for-each-ref --format=%(objectname) refs/atoll/kept");
    assert!(
        kept.contains(two.trim()) && kept.contains(three.trim()),
        "{kept}"
    );
}

#[test]
fn nothing_that_the_configuration_names_is_run() {
    let world = World::new();
    let marker = world.dir("marker");
    let script = world.dir("script");
    fs::write(
        &script,
        format!("#!/bin/sh\necho $0 >> {}\ncat\n", marker.display()),
    )
    .unwrap();
    fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let mut taken = world.take();
    world.commit("two");
    fs::create_dir_all(world.dir("hooks")).unwrap();
    for hook in ["reference-transaction", "post-checkout", "pre-auto-gc"] {
        fs::copy(&script, world.dir("repo/.git/hooks").join(hook)).unwrap();
        fs::copy(&script, world.dir("hooks").join(hook)).unwrap();
    }
    let program = script.display();
    let keys = [
        "core.fsmonitor",
        "core.pager",
        "core.editor",
        "gpg.program",
        "credential.helper",
    ];
    for key in keys {
        world.git(&format!("config {key} {program}"));
    }
    world.git("config log.showSignature true");
    world.git(&format!(
        "config core.hooksPath {}",
        world.dir("hooks").display()
    ));
    world.git(&format!("config pager.log {program}"));
    let _ = fs::remove_file(&marker);
    settle(&mut taken, &world.dir("cp")).unwrap();
    let restored = world.restore(&taken, "cp", "kept", Overwrite::No);
    assert_eq!(restored.restored, ["refs/heads/main"]);
    discard(&taken, &world.dir("cp")).unwrap();
    assert!(!marker.exists(), "{}", fs::read_to_string(&marker).unwrap());
    // They would have been run.
    world.git("update-ref refs/heads/x main");
    assert!(marker.exists());
}

#[test]
fn restore_of_refs_is_resumed() {
    let world = World::new();
    let before = world.state();
    let mut taken = world.take();
    world.effect();
    let after = world.state();
    settle(&mut taken, &world.dir("cp")).unwrap();
    let (dir, kept) = (world.dir("cp"), world.dir("kept"));
    let limits = Limits::default();
    // A lock stops the transaction: nothing was restored.
    fs::write(world.dir("repo/.git/refs/heads/side.lock"), "").unwrap();
    let refused = restore(&taken, &dir, &kept, Overwrite::No, &limits).unwrap_err();
    assert!(refused.to_string().contains("side"), "{refused}");
    fs::remove_file(world.dir("repo/.git/refs/heads/side.lock")).unwrap();
    assert_eq!(world.state(), after);
    assert_eq!(resume(&taken, &dir, &kept, &limits).unwrap(), None);
    // A lock on HEAD stops it after the transaction, or within it.
    let restored = world.restore(&taken, "cp", "kept", Overwrite::No);
    world.git("checkout -q --detach");
    world.git("stash drop -q");
    let resumed = resume(&taken, &dir, &kept, &limits).unwrap().unwrap();
    assert_eq!(resumed, restored);
    assert_eq!(world.state(), before);
}

#[test]
fn directory_in_a_repository_is_no_repository() {
    let world = World::new();
    fs::create_dir(world.dir("repo/sub")).unwrap();
    let target = Target::Git {
        path: world.dir("repo/sub"),
    };
    let refused = take(&target, "g1", &world.dir("cp"), &Limits::default()).unwrap_err();
    assert!(
        refused.to_string().contains("not a git repository"),
        "{refused}"
    );
}

#[test]
fn id_that_was_used_before_is_refused() {
    let world = World::new();
    let taken = world.take();
    let count = world.atoll_refs();
    let again = take(&taken.target, "g1", &world.dir("cp2"), &Limits::default());
    assert!(matches!(again, Err(Error::Program { .. })), "{again:?}");
    assert_eq!(world.atoll_refs(), count);
    for id in [
        "",
        "kept",
        "A",
        "a/b",
        "-a",
        "a-k-1",
        "0123456789012345678901234",
    ] {
        let refused = take(&taken.target, id, &world.dir("cp3"), &Limits::default());
        assert!(matches!(refused, Err(Error::Id(_))), "{id}");
    }
}

#[test]
fn change_of_a_ref_names_its_old_value() {
    let object = |value: &str| super::Value {
        value: value.to_owned(),
        stash: Vec::new(),
    };
    let (old, new, other) = (object("aa"), object("bb"), object("ref: refs/heads/x"));
    let check = |from: Option<&super::Value>, to: Option<&super::Value>, expected: &str| {
        let line = super::change("R", from, to);
        assert_eq!(
            line.trim_start_matches("option no-deref\n").trim_end(),
            expected
        );
    };
    check(Some(&old), Some(&new), "update R bb aa");
    check(Some(&old), None, "delete R aa");
    check(None, Some(&new), "create R bb");
    check(Some(&old), Some(&old), "verify R aa");
    check(Some(&old), Some(&other), "verify R aa");
    // These are done after the transaction.
    check(Some(&other), Some(&new), "");
    check(None, Some(&other), "");
    check(Some(&other), None, "delete R");
}
