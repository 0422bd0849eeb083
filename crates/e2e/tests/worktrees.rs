//! Workspaces whose git repository lies outside: linked worktrees and submodules. Git works in the
//! sandbox, its changes are reviewed like those of the workspace, and changes that all worktrees
//! share need an approval of their own. A forged `.git` shows nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::{Avoidable, Outcome, World, can_be_ordinary_root, is_root, program_exists, tree};

/// Git on a busy machine takes a while.
const LONG: Duration = Duration::from_secs(180);
const NONE: [&str; 0] = [];

/// Makes a repository `main` with one commit. The workspace is its worktree with the branch `work`,
/// and `other` one with the branch `other`.
const WORKTREES: &str = "set -eu; cd \"$1\"; git init -q -b main main; cd main; \
    git config user.name T; git config user.email t@example.org; git config commit.gpgsign false; \
    echo one > a; echo of-main > secret; git add a; git commit -q -m first; \
    git worktree add -q ../workspace -b work; git worktree add -q ../other -b other";

fn worktrees(name: &str) -> Option<World> {
    made(name, WORKTREES)
}

/// Returns a world in which a script was run, whose argument is the world's top.
fn made(name: &str, script: &str) -> Option<World> {
    let world = World::new(name);
    if !program_exists("git") {
        world.skip("git is not installed", Avoidable::Yes);
        return None;
    }
    let top = world.top().to_path_buf();
    let shell = world.host("sh").args(["-c", script, "sh"]).arg(top);
    let _ = shell.within(LONG).run().success();
    Some(world)
}

fn shared(world: &World) -> PathBuf {
    world.top().join("main/.git")
}

/// Runs git outside, without any optional writes.
fn git(world: &World, directory: &str, arguments: &[&str]) -> String {
    let place = world.top().join(directory);
    let git = world.host("git").arg("--no-optional-locks").arg("-C");
    let done = git.arg(place).args(arguments).within(LONG).run();
    done.success().out()
}

fn inside(world: &World, options: &[&str], script: &str) -> Outcome {
    let options = ["--keep"].iter().chain(options);
    let run = world.run(options, &format!("set -eu\n{script}"));
    run.within(LONG).run()
}

fn decided(world: &World, arguments: &[&str]) -> Outcome {
    world.atoll(arguments).within(LONG).run()
}

/// Returns all that a directory holds, and the main worktree's own state.
fn of_main(world: &World) -> (Vec<u8>, String, String) {
    let index = fs::read(shared(world).join("index")).unwrap();
    let head = fs::read_to_string(shared(world).join("HEAD")).unwrap();
    let status = git(world, "main", &["status", "--short", "--branch"]);
    (index, head, status)
}

#[test]
fn a_commit_in_a_linked_worktree_is_taken_over_and_back() {
    let name = "a_commit_in_a_linked_worktree_is_taken_over_and_back";
    let Some(world) = worktrees(name) else {
        return;
    };
    let main = of_main(&world);
    let before = (tree(&shared(&world)), tree(&world.workspace()));
    let script = format!(
        "git status --short; git log --format=%s; echo two >> a; git diff --stat | tail -1
         git commit -q -a -m second; git checkout -q -b further; echo three > b; git add b
         git commit -q -m third; git log --format=%s; git fsck --strict; git status --short
         git worktree list | wc -l; ls {}",
        world.top().join("main").display()
    );
    let done = inside(&world, &[], &script).success();
    assert_eq!(
        done.out(),
        "first\n 1 file changed, 1 insertion(+)\nthird\nsecond\nfirst\n3\n"
    );
    // Nothing of it is outside: nor does the sandbox show the main worktree's files.
    assert!(before == (tree(&shared(&world)), tree(&world.workspace())));
    assert_eq!(git(&world, "workspace", &["log", "--format=%s"]), "first\n");

    let told = decided(&world, &["diff", "last", "--stat"]).success().out();
    for path in [
        "refs/heads/work",
        "refs/heads/further",
        "worktrees/workspace/HEAD",
    ] {
        let line = format!("{}/{path}\n", shared(&world).display());
        assert!(told.contains(&line), "{line}{told}");
    }
    let _ = decided(&world, &["apply", "last"]).success();
    assert_eq!(world.runs()[0]["state"], "applied");
    assert_eq!(
        git(&world, "workspace", &["log", "--format=%s"]),
        "third\nsecond\nfirst\n"
    );
    assert_eq!(
        git(&world, "workspace", &["branch", "--show-current"]),
        "further\n"
    );
    assert_eq!(git(&world, "workspace", &["status", "--short"]), "");
    let _ = git(&world, "main", &["fsck", "--strict"]);
    assert!(main == of_main(&world));

    // What somebody has made of it since is not lost: to undo leaves objects where they are.
    let third = git(&world, "workspace", &["rev-parse", "HEAD"]);
    let third = third.trim();
    let _ = git(&world, "main", &["branch", "kept", third]);
    let _ = decided(&world, &["undo", "last"]).success();
    assert_eq!(git(&world, "workspace", &["log", "--format=%s"]), "first\n");
    assert_eq!(
        git(&world, "workspace", &["branch", "--show-current"]),
        "work\n"
    );
    assert_eq!(git(&world, "workspace", &["status", "--short"]), "");
    assert_eq!(git(&world, "main", &["branch", "--list", "further"]), "");
    assert_eq!(
        git(&world, "main", &["log", "--format=%s", "kept"]),
        "third\nsecond\nfirst\n"
    );
    let _ = git(&world, "main", &["fsck", "--strict"]);
    assert!(main == of_main(&world));
    let _ = decided(&world, &["apply", "last"]).success();
    assert_eq!(
        git(&world, "workspace", &["log", "--format=%s"]),
        "third\nsecond\nfirst\n"
    );
}

/// Git checks out an index without checking its names again, and trusts an object by its name.
#[test]
fn a_forged_index_and_forged_objects_wait_for_a_yes() {
    let name = "a_forged_index_and_forged_objects_wait_for_a_yes";
    let Some(world) = worktrees(name) else {
        return;
    };
    let script = format!(
        "git=$(git rev-parse --git-dir); cd {}; old=$(git rev-parse refs/heads/work)
         cd \"$OLDPWD\"; mkdir zz; echo planted > zz/planted; git add zz
         LC_ALL=C sed -i 's#zz/planted#../planted#' \"$git/index\"; rm -r zz
         LC_ALL=C sed -i 's#\\.\\./planted#.././plant#' \"$git/index\"
         cd \"$git/../..\"; blob=$(echo forged | git hash-object -w --stdin)
         other=00$(echo $blob | cut -c3-); mkdir -p objects/00
         cp objects/$(echo $blob | cut -c-2)/$(echo $blob | cut -c3-) objects/00/$(echo $blob | cut -c3-)
         echo $other > refs/heads/of-a-forged-object; echo $blob > refs/heads/of-a-file
         echo 0123456789abcdef0123456789abcdef01234567 > refs/heads/of-nothing
         echo ref: refs/heads/main > worktrees/workspace/ORIG_HEAD
         git commit-tree -m whole $old^{{tree}} > refs/heads/whole",
        shared(&world).display()
    );
    let _ = inside(&world, &[], &script).success();
    let applied = decided(&world, &["apply", "last"]).success();
    let held = [
        "worktrees/workspace/index",
        "worktrees/workspace/ORIG_HEAD",
        "objects/00/",
        "refs/heads/of-a-forged-object",
        "refs/heads/of-a-file",
        "refs/heads/of-nothing",
    ];
    applied.says(held);
    assert!(!applied.err().contains("refs/heads/whole"), "{applied}");
    let branches = git(&world, "main", &["branch", "--format=%(refname:short)"]);
    assert_eq!(branches, "main\nother\nwhole\nwork\n");
    let _ = git(&world, "main", &["fsck", "--strict"]);
    let _ = git(&world, "workspace", &["checkout-index", "-f", "-a"]);
    assert!(!world.top().join("plant").exists());
    // With a yes git writes it: the control.
    let _ = decided(&world, &["apply", "last", "--control"]).success();
    let git = world.host("git").arg("-C").arg(world.workspace());
    let done = git.args(["ls-files"]).run();
    assert!(done.out().contains(".././plant"), "{done}");
}

/// A pack can have other objects than its index states, and an index of packs, too.
#[test]
fn packs_wait_for_a_yes_with_what_is_in_them_alone() {
    let name = "packs_wait_for_a_yes_with_what_is_in_them_alone";
    let Some(world) = worktrees(name) else {
        return;
    };
    let script = "echo two >> a; git commit -q -a -m second; git repack -q -a -d -b; \
        git multi-pack-index write; git branch of-a-pack; rm -f .git/ORIG_HEAD";
    let _ = inside(&world, &[], script).success();
    let applied = decided(&world, &["apply", "last"]).success();
    applied.says([".pack", ".idx", "multi-pack-index", "refs/heads/of-a-pack"]);
    assert_eq!(git(&world, "workspace", &["log", "--format=%s"]), "first\n");
    assert_eq!(git(&world, "main", &["branch", "--list", "of-a-pack"]), "");
    assert_eq!(tree(&shared(&world).join("objects/pack")).len(), 0);
    let _ = git(&world, "main", &["fsck", "--strict"]);
    let _ = decided(&world, &["apply", "last", "--control"]).success();
    assert_eq!(
        git(&world, "workspace", &["log", "--format=%s"]),
        "second\nfirst\n"
    );
    // Others may need what is in a pack since.
    let refused = decided(&world, &["undo", "last"]);
    assert_ne!(refused.code(), 0, "{refused}");
    refused.says(["branches may need these objects since", "--force"]);
    let _ = decided(&world, &["undo", "last", "--force"]).success();
    assert_eq!(git(&world, "workspace", &["log", "--format=%s"]), "first\n");
    let _ = git(&world, "main", &["fsck", "--strict"]);
}

/// Only files of the workspace can be applied by their paths: a repository is applied whole or not
/// at all.
#[test]
fn paths_take_over_nothing_of_a_repository() {
    let Some(world) = worktrees("paths_take_over_nothing_of_a_repository") else {
        return;
    };
    let before = tree(&shared(&world));
    let script = "mkdir refs; echo x > refs/x; git add refs; git commit -q -m second";
    let _ = inside(&world, &[], script).success();
    let _ = decided(&world, &["apply", "last", "refs"]).success();
    assert!(world.exists("refs/x"));
    assert!(before == tree(&shared(&world)));
}

/// Secrets of the configuration do not go in, and nothing of them comes out again.
#[test]
fn secrets_of_a_repositorys_configuration_are_not_inside() {
    let name = "secrets_of_a_repositorys_configuration_are_not_inside";
    let Some(world) = worktrees(name) else {
        return;
    };
    let config = shared(&world).join("config");
    let plain = fs::read_to_string(&config).unwrap();
    let look = "git config --list; cat \"$(git rev-parse --git-common-dir)/config\"; \
        git config --get remote.origin.url || true";
    let done = world.run(["--discard"], look).within(LONG).run().success();
    assert!(done.out().contains(&plain), "{done}");
    let secrets = "[remote \"origin\"]\n\turl = https://ann:its-PW@example.org/a.git\n\
        [http \"https://example.org\"]\n\textraHeader = AUTHORIZATION: basic its-PW\n\
        [credential]\n\thelper = \"!echo password=its-PW\"\n[made]\n\tup = by hand\n";
    let whole = format!("{plain}{secrets}");
    fs::write(&config, &whole).unwrap();
    let script =
        format!("{look}; echo two >> a; git commit -q -a -m second; git config made.inside yes");
    let done = inside(&world, &[], &script).success();
    assert!(!done.out().contains("its-PW"), "{done}");
    assert!(
        done.out().contains("\nhttps://example.org/a.git\n"),
        "{done}"
    );
    assert!(done.out().contains("made.up=by hand"), "{done}");
    let told = decided(&world, &["diff", "last"]).success();
    told.says([
        "main/.git/config",
        "it was changed inside, where its keys are not in it",
    ]);
    assert!(!told.out().contains("its-PW"), "{told}");
    let _ = decided(&world, &["apply", "last", "--control"]).success();
    assert_eq!(fs::read_to_string(&config).unwrap(), whole);
    assert_eq!(
        git(&world, "workspace", &["log", "--format=%s"]),
        "second\nfirst\n"
    );
    let _ = decided(&world, &["undo", "last"]).success();
    // Where nothing can stand in its place, and where it cannot be read, there is no repository.
    for (options, text) in [
        (&["--live"][..], whole.as_str()),
        (&["--discard"], "no configuration\n"),
    ] {
        fs::write(&config, text).unwrap();
        let look = format!("{look}; test -e {} || echo unseen", config.display());
        let done = world.run(options, &look).within(LONG).run();
        assert_eq!(done.out(), "unseen\n", "{done}");
        done.says(["git does not work in this worktree"]);
    }
}

/// Files that the other worktrees rely on, and those that git runs: each is a control file, alone.
#[test]
fn what_worktrees_share_waits_for_a_yes_of_its_own() {
    let Some(world) = worktrees("what_worktrees_share_waits_for_a_yes_of_its_own") else {
        return;
    };
    let before = tree(&shared(&world));
    let script = format!(
        "cd {}; head=$(git rev-parse HEAD)
         printf '#!/bin/sh\\ntouch /tmp/ran\\n' > hooks/post-checkout; chmod +x hooks/post-checkout
         git config core.fsmonitor /tmp/ran; git config -f config.worktree core.pager /tmp/ran
         echo '* filter=x' > info/attributes; echo /tmp > objects/info/alternates
         echo ref: refs/heads/work > worktrees/other/HEAD; echo ref: refs/heads/work > HEAD
         echo $head > refs/heads/main; mkdir -p refs/replace
         git commit-tree -m forged $head^{{tree}} > /tmp/forged
         cp /tmp/forged refs/heads/other; cp /tmp/forged refs/heads/main
         cp /tmp/forged refs/replace/$head; cp /tmp/forged refs/tags-forged
         echo ref: refs/heads/main > refs/heads/alias; ln -s ../HEAD refs/heads/link
         rm -f logs/HEAD; cp index worktrees/other/index; rm index
         echo \"$head refs/heads/main\" > packed-refs
         mkdir -p modules/x worktrees/new; echo x > modules/x/config; echo y > worktrees/new/gitdir
         echo /tmp > worktrees/workspace/gitdir; echo x > worktrees/workspace/config.worktree
         cp /tmp/forged refs/heads/fine",
        shared(&world).display()
    );
    let _ = inside(&world, &[], &script).success();
    let told = decided(&world, &["diff", "last", "--stat"]).success().out();
    let ordinary: Vec<&str> = told
        .lines()
        .filter(|line| !line.contains("(control"))
        .collect();
    let is_fine = |line: &&&str| {
        let object = line.contains("/.git/objects/") && !line.contains("objects/info");
        object || line.ends_with("refs/heads/fine")
    };
    let others: Vec<&&str> = ordinary.iter().filter(|line| !is_fine(line)).collect();
    assert!(others.is_empty(), "{others:#?}\n{told}");
    assert!(
        ordinary
            .iter()
            .any(|line| line.ends_with("refs/heads/fine")),
        "{told}"
    );

    let applied = decided(&world, &["apply", "last"]).success();
    applied.says([
        "--control",
        "hooks/post-checkout",
        "worktrees/other/HEAD",
        "refs/heads/main",
    ]);
    let after = tree(&shared(&world));
    for (path, entry) in &before {
        assert!(
            after.get(path) == Some(entry) || path.is_dir(),
            "{}",
            path.display()
        );
    }
    let shown = git(
        &world,
        "main",
        &["for-each-ref", "--format=%(refname) %(contents:subject)"],
    );
    assert_eq!(
        shown,
        "refs/heads/fine forged\nrefs/heads/main first\nrefs/heads/other first\nrefs/heads/work first\n"
    );
    assert!(!shared(&world).join("hooks/post-checkout").exists());
    // With a yes all of it is taken over: the control.
    let _ = decided(&world, &["apply", "last", "--control"]).success();
    assert!(shared(&world).join("hooks/post-checkout").exists());
    let head = fs::read_to_string(shared(&world).join("worktrees/other/HEAD")).unwrap();
    assert_eq!(head, "ref: refs/heads/work\n");
    let _ = decided(&world, &["undo", "last"]).success();
    let _ = git(&world, "other", &["fsck", "--strict"]);
    assert!(!shared(&world).join("hooks/post-checkout").exists());
}

/// Two agents in two worktrees: commits of one are no conflict of the other's, but changes of both
/// to one branch are, and then nothing is written anywhere.
#[test]
fn commits_of_two_worktrees_are_taken_over_beside_each_other() {
    let name = "commits_of_two_worktrees_are_taken_over_beside_each_other";
    let Some(world) = worktrees(name) else {
        return;
    };
    let many = "for n in 1 2 3 4 5 6 7 8 9; do echo $n >> a; git commit -q -a -m $n; done";
    let other = world.top().join("other").to_string_lossy().into_owned();
    let _ = inside(&world, &[], many).success();
    let first = world.last_run();
    let more = format!("cd {other}; echo x > x; git add x; {many}");
    let _ = inside(&world, &["--workspace", &other], &more).success();
    let second = world.last_run();
    for run in [&first, &second] {
        let _ = decided(&world, &["apply", run]).success();
    }
    for place in ["workspace", "other"] {
        let count = git(&world, place, &["rev-list", "--count", "HEAD"]);
        assert_eq!(count, "10\n", "{place}");
        assert_eq!(git(&world, place, &["status", "--short"]), "");
    }
    let _ = git(&world, "main", &["fsck", "--strict"]);

    let _ = inside(
        &world,
        &[],
        "echo new > new; git add new; git commit -q -m inside",
    )
    .success();
    let outside = ["commit", "-q", "--allow-empty", "-m", "outside"];
    let _ = git(&world, "workspace", &outside);
    let refused = decided(&world, &["apply", "last"]);
    assert_ne!(refused.code(), 0, "{refused}");
    refused.says(["refs/heads/work", "nothing was written"]);
    assert!(!world.exists("new"));
    assert_eq!(
        git(&world, "workspace", &["log", "-1", "--format=%s"]),
        "outside\n"
    );
}

/// Each file is written by the author of the workspace, and leads to something that git did not
/// make for it.
#[test]
fn a_forged_git_file_shows_nothing() {
    let Some(world) = worktrees("a_forged_git_file_shows_nothing") else {
        return;
    };
    let top = world.top().to_path_buf();
    let ssh = world.home().join(".ssh");
    world.write(ssh.join("id_ed25519"), "the key");
    let script = "cd \"$1\"; git init -q elsewhere; git -C elsewhere worktree add -q --orphan \
        -b x ../its; git init -q --bare bare.git; ln -s main/.git linked; cp -r main/.git copied; \
        mkdir shaped; cp -r main/.git shaped/.git; rm -rf shaped/.git/worktrees";
    let shell = world.host("sh").args(["-c", script, "sh"]).arg(&top);
    let _ = shell.run().success();
    let real = world.read(".git");
    let at = |rest: &str| format!("gitdir: {}\n", top.join(rest).display());
    let ssh = ssh.display().to_string();
    let forged = [
        (
            format!("gitdir: {ssh}\n"),
            "no git directory|name this directory back",
        ),
        (
            at("elsewhere/.git/worktrees/its"),
            "does not name this directory back",
        ),
        (at("elsewhere/.git"), "does not name this directory back"),
        (at("bare.git"), "does not name this directory back"),
        (at("main/.git"), "does not name this directory back"),
        (
            at("main/.git/worktrees/other"),
            "does not name this directory back",
        ),
        (at("linked/worktrees/workspace"), "through a symbolic link"),
        (at("missing/.git/worktrees/x"), "no git directory"),
        (at("shaped/.git"), "does not name this directory back"),
        (
            "gitdir: /\n".to_owned(),
            "another user|name this directory back",
        ),
        (format!("{real}and more\n"), "not what git writes"),
        ("x".repeat(20_000), "too large"),
    ];
    let look = format!(
        "git status 2>/dev/null || echo no git; for one in {} {ssh} {}; do \
         test ! -e $one || echo seen $one; done",
        ["main", "elsewhere", "bare.git", "linked", "shaped"]
            .map(|one| top.join(one).display().to_string())
            .join(" "),
        top.join("its").display()
    );
    for (text, why) in &forged {
        fs::write(world.path(".git"), text).unwrap();
        let done = world.run(["--discard"], &look).within(LONG).run().success();
        assert_eq!(done.out(), "no git\n", "{text}{done}");
        let said = done.err();
        assert!(why.split('|').any(|why| said.contains(why)), "{text}{done}");
        done.says(["git does not work in"]);
    }
    // A link in its place, and a common directory that is named elsewhere.
    fs::remove_file(world.path(".git")).unwrap();
    std::os::unix::fs::symlink(top.join("main/.git"), world.path(".git")).unwrap();
    let done = world.run(["--discard"], &look).within(LONG).run().success();
    done.says(["symbolic link that leads out"]);
    assert_eq!(done.out(), "no git\n");
    fs::remove_file(world.path(".git")).unwrap();
    fs::write(world.path(".git"), &real).unwrap();
    let common = shared(&world).join("worktrees/workspace/commondir");
    fs::write(
        &common,
        format!("{}\n", top.join("elsewhere/.git").display()),
    )
    .unwrap();
    let done = world.run(["--discard"], &look).within(LONG).run().success();
    assert_eq!(done.out(), "no git\n", "{done}");
    // As git wrote it, it is shown: the control.
    fs::write(&common, "../..\n").unwrap();
    let done = world.run(["--discard"], &look).within(LONG).run().success();
    let main = top.join("main");
    assert!(
        done.out().ends_with(&format!("seen {}\n", main.display())),
        "{done}"
    );
    assert!(!done.err().contains("git does not work"), "{done}");
}

/// The owner of a repository, its place, and denied paths decide besides the directories that it
/// names.
#[test]
fn a_repository_that_may_not_be_shown_is_told_of() {
    let name = "a_repository_that_may_not_be_shown_is_told_of";
    let Some(world) = worktrees(name) else {
        return;
    };
    let run = || {
        let script = "git log --format=%s || echo none";
        world
            .run(["--discard"], script)
            .within(LONG)
            .run()
            .success()
    };
    assert_eq!(run().out(), "first\n");
    let denied = format!(
        "[deny]\nfiles = [\"{}\"]\n",
        world.top().join("main").display()
    );
    world.write("atoll.toml", denied);
    let _ = decided(&world, &["trust"]).success();
    let closed = run();
    assert_eq!(closed.out(), "none\n", "{closed}");
    closed.says(["git does not work in", "is denied"]);
    fs::remove_file(world.path("atoll.toml")).unwrap();
    // Policies about what is shown leave it out, where they would refuse the run.
    let policy = format!(
        "permit (principal, action, resource);\n@id(\"x\") forbid (principal, action == Action::\"read\", \
         resource in Path::\"{}\");\n",
        world.top().join("main").display()
    );
    world.write(world.config().join("atoll/own.cedar"), policy);
    let done = run();
    assert_eq!(done.out(), "none\n", "{done}");
    done.says(["policies do not let its repository"]);
    fs::remove_file(world.config().join("atoll/own.cedar")).unwrap();
    if is_root() {
        let common = shared(&world);
        std::os::unix::fs::chown(common, Some(65_000), None).unwrap();
        let done = run();
        assert_eq!(done.out(), "none\n", "{done}");
        done.says(["belongs to another user"]);
    }
}

/// The checkouts of a bare repository that lie in it: to show it would show all of them.
#[test]
fn a_repository_that_holds_its_worktrees_is_not_shown() {
    let name = "a_repository_that_holds_its_worktrees_is_not_shown";
    let script = "set -eu; cd \"$1\"; git init -q main; cd main; git config user.name T; \
        git config user.email t@example.org; git commit -q --allow-empty -m first; \
        git clone -q --bare . ../bare.git; cd ../bare.git; git worktree add -q one -b one; \
        git worktree add -q two -b two; echo of-two > two/file; \
        git worktree add -q ../workspace -b three";
    let Some(world) = made(name, script) else {
        return;
    };
    let one = world
        .top()
        .join("bare.git/one")
        .to_string_lossy()
        .into_owned();
    let look = format!("git log --format=%s || echo none; ls -d {one}/../two || echo unseen");
    let options = ["--discard", "--workspace", &one];
    let done = world.run(options, &look).within(LONG).run().success();
    assert_eq!(done.out(), "none\nunseen\n", "{done}");
    done.says(["git does not work in", "holds this directory"]);
    // One that lies beside is shown, with what lies in it: it is a part of that repository.
    let done = world
        .run(["--discard"], "git log --format=%s")
        .within(LONG)
        .run();
    assert_eq!(done.success().out(), "first\n");
}

#[test]
fn a_submodules_directory_is_a_workspace() {
    let name = "a_submodules_directory_is_a_workspace";
    let script = "set -eu; cd \"$1\"; git init -q -b main part; cd part; git config user.name T; \
        git config user.email t@example.org; echo one > a; git add a; git commit -q -m first; \
        cd ..; git init -q -b main whole; cd whole; \
        git -c protocol.file.allow=always submodule --quiet add ../part lib; \
        git config user.name T; git config user.email t@example.org; git commit -q -m whole; \
        git -C lib config user.name T; git -C lib config user.email t@example.org";
    let Some(world) = made(name, script) else {
        return;
    };
    let lib = world.top().join("whole/lib");
    assert!(
        fs::read_to_string(lib.join(".git"))
            .unwrap()
            .starts_with("gitdir: ../")
    );
    let place = lib.to_string_lossy().into_owned();
    let script = format!(
        "cd {place}; git status --short; echo two >> a; git commit -q -a -m second
         git log --format=%s; git fsck --strict; ls -A ..; git -C .. log 2> /dev/null || echo no git",
    );
    let done = inside(&world, &["--workspace", &place], &script).success();
    assert_eq!(done.out(), "second\nfirst\n.git\nlib\nno git\n", "{done}");
    assert_eq!(git(&world, "whole/lib", &["log", "--format=%s"]), "first\n");
    let _ = decided(&world, &["apply", &world.last_run()]).success();
    assert_eq!(world.runs()[0]["state"], "applied");
    assert_eq!(
        git(&world, "whole/lib", &["log", "--format=%s"]),
        "second\nfirst\n"
    );
    assert_eq!(git(&world, "whole/lib", &["status", "--short"]), "");
    let _ = git(&world, "whole/lib", &["fsck", "--strict"]);
    assert_eq!(git(&world, "whole", &["status", "--short"]), " M lib\n");
    let _ = decided(&world, &["undo", &world.last_run()]).success();
    assert_eq!(git(&world, "whole/lib", &["log", "--format=%s"]), "first\n");
    assert_eq!(git(&world, "whole", &["status", "--short"]), "");
    // Another directory's git directory, which does not name the workspace back.
    let forged = format!(
        "gitdir: {}\n",
        world.top().join("whole/.git/modules/lib").display()
    );
    fs::write(world.path(".git"), forged).unwrap();
    let done = world
        .run(["--discard"], "git log || echo none")
        .run()
        .success();
    assert_eq!(done.out(), "none\n");
    done.says(["does not name this directory back"]);
}

/// A workspace without a layer has a repository without one.
#[test]
fn a_live_workspace_reads_its_repository() {
    let Some(world) = worktrees("a_live_workspace_reads_its_repository") else {
        return;
    };
    let before = tree(&shared(&world));
    let script = "echo two >> a; git status --short; git diff | tail -1; git log --format=%s; \
        git commit -q -a -m second && echo committed; touch \"$(git rev-parse --git-dir)/x\" && echo made";
    let run = |options: &[&str]| world.run(options, script).within(LONG).run();
    let live = run(&["--live"]);
    assert_eq!(live.out(), " M a\n+two\nfirst\n", "{live}");
    live.says(["can be read and not changed", "git commit does not"]);
    assert_eq!(git(&world, "workspace", &["status", "--short"]), " M a\n");
    assert!(before == tree(&shared(&world)));
    let _ = decided(&world, &["undo", "last"]).success();
    assert_eq!(git(&world, "workspace", &["status", "--short"]), "");
    if !is_root() && can_be_ordinary_root() {
        let fenced = world
            .run(NONE, script)
            .without_namespaces()
            .within(LONG)
            .run();
        assert_eq!(fenced.out(), "", "{fenced}");
        fenced.says(["git does not work in this worktree: in a fence"]);
        assert!(before == tree(&shared(&world)));
        let _ = decided(&world, &["undo", "last"]).success();
    }
}

/// Root in a sandbox, nested views, a part of the repository that is shown for reading, a run that
/// resumes another's layers, and one that is discarded.
#[test]
fn a_worktree_is_whole_in_runs_of_all_kinds() {
    let Some(world) = worktrees("a_worktree_is_whole_in_runs_of_all_kinds") else {
        return;
    };
    let main = world.top().join("main").to_string_lossy().into_owned();
    let script = "echo x >> a; git commit -q -a -m x; git log --format=%s | wc -l";
    let before = tree(&shared(&world));
    let done = world
        .run(["--discard"], script)
        .within(LONG)
        .run()
        .success();
    assert_eq!(done.out(), "2\n");
    let done = world
        .run(["--discard", "--ro", &main], script)
        .within(LONG)
        .run();
    assert_eq!(done.success().out(), "2\n");
    let rooted = world
        .run(["--discard", "--root"], script)
        .within(LONG)
        .run();
    assert_eq!(rooted.success().out(), "2\n");
    // Named by the person, it is what the person says.
    let named = shared(&world).to_string_lossy().into_owned();
    let done = world
        .run(["--discard", "--ro", &named], script)
        .within(LONG)
        .run();
    assert_ne!(done.out(), "2\n", "{done}");
    assert!(before == tree(&shared(&world)));
    let _ = inside(&world, &[], script).success();
    let first = world.last_run();
    let done = inside(&world, &["--resume", &first], script).success();
    assert_eq!(done.out(), "3\n");
    let _ = decided(&world, &["apply", "last"]).success();
    assert_eq!(
        git(&world, "workspace", &["log", "--format=%s"]),
        "x\nx\nfirst\n"
    );
    let _ = git(&world, "main", &["fsck", "--strict"]);
    assert!(Path::new(&main).join("secret").exists());
}
