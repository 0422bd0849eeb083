#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use super::*;
use crate::{SealError, control_paths};

fn path(text: impl AsRef<[u8]>) -> RelativePath {
    RelativePath::new(text.as_ref()).unwrap()
}

/// A home and a workspace in it.
struct Made {
    top: tempfile::TempDir,
}

impl Made {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir_all(top.path().join("ws/.git/objects")).unwrap();
        let made = Self { top };
        made.write("ws/.git/HEAD", "ref: refs/heads/main\n");
        fs::create_dir_all(made.at("ws/.git/refs")).unwrap();
        made
    }

    fn at(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text.replace("TOP", self.top.path().to_str().unwrap())).unwrap();
    }

    fn environment(&self) -> GitEnvironment {
        let home = self.top.path().as_os_str().to_os_string();
        let mut environment = GitEnvironment::read(|name| (name == "HOME").then(|| home.clone()));
        // Not this host's.
        environment.system = vec![self.at("etc/gitconfig")];
        environment
    }

    fn named(&self, roots: &[&str]) -> Named {
        let roots = roots.iter().map(path);
        Named::find(&self.at("ws"), &self.environment(), roots)
    }

    fn has(&self, roots: &[&str], file: &str) -> bool {
        self.named(roots).has(&path(file), false, false)
    }
}

/// Each setting, with what it names and what it does not.
#[test]
fn settings_that_run_something_name_it() {
    let check = |text: &str, named: &[&str], others: &[&str]| {
        let made = Made::new();
        made.write("ws/.git/config", text);
        for file in named {
            assert!(made.has(&[], file), "{text} does not name {file}");
        }
        for file in others
            .iter()
            .chain(&["README.md", "src/x.rs", "hooks/useX.ts"])
        {
            assert!(!made.has(&[], file), "{text} names {file}");
        }
    };
    let of = |setting: &str, named: &[&str], others: &[&str]| {
        let (name, value) = setting.split_once('=').unwrap();
        let (place, key) = name.rsplit_once('.').unwrap();
        let section = match place.split_once('.') {
            Some((section, within)) => format!("{section} \"{within}\""),
            None => place.to_owned(),
        };
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        check(
            &format!("[{section}]\n{key} = \"{value}\"\n"),
            named,
            others,
        );
    };
    // A directory of hooks is one with all beneath it, from where hooks run.
    of(
        "core.hooksPath=tools/hooks",
        &["tools/hooks", "tools/hooks/pre-commit"],
        &["tools/x"],
    );
    of(
        "core.hooksPath=githooks",
        &["githooks/lib/x", "GitHooks/pre-push"],
        &["githooksx"],
    );
    of(
        "core.hooksPath=../tools/hooks/",
        &["tools/hooks/pre-commit"],
        &[],
    );
    of("core.hooksPath=~/ws/tools", &["tools/x"], &[]);
    of(
        "init.templateDir=template",
        &["template/hooks/pre-commit"],
        &[],
    );
    // Commands, with what they are given.
    of(
        "core.fsmonitor=./watch.sh",
        &["watch.sh"],
        &["other/watch.sh"],
    );
    of("core.fsmonitor=true", &[], &[]);
    of(
        "diff.external=tools/diff --x",
        &["tools/diff"],
        &["tools/x"],
    );
    of(
        "diff.pdf.textconv=sh tools/text.sh",
        &["tools/text.sh"],
        &[],
    );
    of("diff.pdf.command='tools/a b' x", &["tools/a b"], &[]);
    of(
        "filter.x.clean=FOO=tools/x sh -c 'a && tools/clean %f'",
        &["tools/x", "tools/clean"],
        &[],
    );
    of("filter.x.smudge=python3 filter.py", &["filter.py"], &[]);
    of("filter.x.process=awk -fprocess.awk", &["process.awk"], &[]);
    of(
        "merge.x.driver=\"$PWD/tools/merge\" %O %A",
        &["tools/merge"],
        &[],
    );
    of("merge.x.driver=${HERE}/tools/merge", &["tools/merge"], &[]);
    of(
        "credential.helper=!cd bin && ./x",
        &["bin/helper", "x"],
        &[],
    );
    of(
        "credential.helper=/usr/bin/gh auth git-credential",
        &[],
        &["auth/x", "gh/x"],
    );
    of(
        "core.sshCommand=ssh -F .ssh_config -i keys/id",
        &[".ssh_config", "keys/id"],
        &[],
    );
    of("core.editor=$HOME/ws/tools/edit", &["tools/edit"], &[]);
    of("core.pager=less | ~/ws/tools/page", &["tools/page"], &[]);
    of("pager.log=tools/page", &["tools/page"], &[]);
    of("sequence.editor=node tools", &["tools/index.js"], &[]);
    of("gpg.program=tools/gpg", &["tools/gpg"], &[]);
    of("gpg.ssh.program=tools/sign", &["tools/sign"], &[]);
    of("gpg.ssh.allowedSignersFile=.signers", &[".signers"], &[]);
    of(
        "core.gitProxy=tools/proxy for x.example",
        &["tools/proxy"],
        &[],
    );
    of("core.attributesFile=attributes", &["attributes"], &[]);
    of("core.askPass=tools/ask", &["tools/ask"], &[]);
    of("submodule.x.update=!tools/update", &["tools/update"], &[]);
    of("submodule.x.path=libs/x", &[], &["libs/x/a"]);
    of(
        "uploadpack.packObjectsHook=tools/pack",
        &["tools/pack"],
        &[],
    );
    of("mergetool.x.cmd=tools/merge $LOCAL", &["tools/merge"], &[]);
    of("difftool.x.path=tools/diff", &["tools/diff"], &[]);
    of("remote.x.uploadpack=tools/up", &["tools/up"], &[]);
    of("remote.x.receivepack=tools/up", &["tools/up"], &[]);
    of("remote.x.url=ext::tools/remote %S", &["tools/remote"], &[]);
    of(
        "remote.x.url=https://host.example/tools/x",
        &[],
        &["tools/x"],
    );
    of("trailer.x.cmd=tools/trailer", &["tools/trailer"], &[]);
    of("sendemail.toCmd=tools/to", &["tools/to"], &[]);
    of("sendemail.smtpServer=tools/send", &["tools/send"], &[]);
    of(
        "interactive.diffFilter=tools/filter",
        &["tools/filter"],
        &[],
    );
    of("browser.x.cmd=tools/browse", &["tools/browse"], &[]);
    of("man.x.path=tools/man", &["tools/man"], &[]);
    of("hook.x.command=tools/hook", &["tools/hook"], &[]);
    of(
        "lfs.customtransfer.x.path=tools/transfer",
        &["tools/transfer"],
        &[],
    );
    of("alias.x=!tools/x", &["tools/x"], &[]);
    of("alias.x=-c core.pager=tools/page log", &["tools/page"], &[]);
    of(
        "alias.t=!cargo test",
        &["test"],
        &["test/a.rs", "tests/a.rs"],
    );
    of("alias.st=status -sb", &[], &["src/status.rs"]);
    // What git runs nothing of.
    of("user.name=tools/x", &[], &["tools/x"]);
    of(
        "branch.main.merge=refs/heads/main",
        &[],
        &["refs/heads/main"],
    );
    of(
        "blame.ignoreRevsFile=.git-blame-ignore-revs",
        &[],
        &[".git-blame-ignore-revs"],
    );
    check("[diff.x]\ncommand = tools/old\n", &["tools/old"], &[]);
    check("", &[], &["tools/x"]);
    let made = Made::new();
    made.write("ws/.git/config", "[core]\nhooksPath = .\n");
    assert!(made.has(&[], "pre-commit"));
    for nothing in ["", "/", "~/", "/dev/null", "~"] {
        made.write(
            "ws/.git/config",
            &format!("[core]\nhooksPath = \"{nothing}\"\n"),
        );
        assert!(!made.has(&[], "pre-commit"), "{nothing}");
    }
}

#[test]
fn configuration_is_read_wherever_git_reads_it() {
    let check = |write: &[(&str, &str)], roots: &[&str], named: &str| {
        let made = Made::new();
        assert!(!made.has(roots, named), "{named} is named by nothing");
        for (name, text) in write {
            made.write(name, text);
        }
        assert!(made.has(roots, named), "{write:?} does not name {named}");
        assert_eq!(made.named(roots).unread, None, "{write:?}");
    };
    let hooks = "[core]\nhooksPath = tools\n";
    let include = "[include]\npath = more\n";
    let conditional = "[includeIf \"onbranch:x\"]\npath = more\n";
    for file in [
        "etc/gitconfig",
        ".gitconfig",
        ".config/git/config",
        "ws/.git/config.worktree",
    ] {
        check(&[(file, hooks)], &[], "tools/x");
    }
    check(
        &[(".gitconfig", "[core]\nhooksPath = TOP/ws/tools\n")],
        &[],
        "tools/x",
    );
    check(&[(".gitconfig", include), ("more", hooks)], &[], "tools/x");
    check(
        &[("ws/.git/config", conditional), ("ws/.git/more", hooks)],
        &[],
        "tools/x",
    );
    // A file that is included is one of configuration, whether or not it is there.
    let own = "[include]\npath = ../.gitconfig-of-all\n";
    check(&[("ws/.git/config", own)], &[], ".gitconfig-of-all");
    let far = "[include]\npath = ~/ws/config/git\n";
    check(&[("etc/gitconfig", far)], &[], "config/git");
    // Repositories beneath, around and beside.
    check(
        &[("ws/a/b/.git/config", hooks), ("ws/a/b/.git/HEAD", "")],
        &["a/b"],
        "a/b/tools/x",
    );
    check(
        &[(".git/config", "[core]\nhooksPath = ws/tools\n")],
        &[],
        "tools/x",
    );
    check(
        &[
            ("ws/w/.git", "gitdir: ../.bare/worktrees/w\n"),
            ("ws/.bare/config", hooks),
            ("ws/.bare/worktrees/w/commondir", "../..\n"),
        ],
        &["w"],
        "w/tools/x",
    );
    check(
        &[
            ("ws/.git/config", hooks),
            ("ws/.git/worktrees/w/gitdir", "TOP/ws/w/.git\n"),
        ],
        &[],
        "w/tools/x",
    );
    check(
        &[
            ("ws/s/.git", "gitdir: ../.git/modules/s\n"),
            (
                "ws/.git/modules/s/config",
                "[core]\nworktree = ../../../s\nfsmonitor = ./watch\n",
            ),
        ],
        &["s"],
        "s/watch",
    );
    check(
        &[("etc/gitconfig", hooks), ("ws/new/x", "")],
        &["new"],
        "new/tools/x",
    );
}

#[test]
fn links_outside_lead_to_what_is_named() {
    let made = Made::new();
    made.write("ws/scripts/hooks/x", "");
    made.write("ws/lib/commit.sh", "");
    made.write("ws/.git/config", "[core]\nhooksPath = tools/hooks\n");
    symlink("scripts", made.at("ws/tools")).unwrap();
    symlink(
        "../../lib/commit.sh",
        made.at("ws/scripts/hooks/pre-commit"),
    )
    .unwrap();
    fs::create_dir(made.at("ws/.git/hooks")).unwrap();
    symlink("../../push.sh", made.at("ws/.git/hooks/pre-push")).unwrap();
    made.write("ws/push.sh", "");
    symlink("../../missing.sh", made.at("ws/.git/hooks/post-merge")).unwrap();
    symlink("ws/gitconfig", made.at(".gitconfig")).unwrap();
    made.write("ws/gitconfig", "[alias]\nx = !TOP/other/x\n");
    symlink(made.at("ws/bin"), made.at("other")).unwrap();
    fs::create_dir(made.at("ws/bin")).unwrap();
    for file in [
        "tools/hooks/new",
        "scripts/hooks/new",
        "lib/commit.sh",
        "push.sh",
        "missing.sh",
        "gitconfig",
        "bin/x",
    ] {
        assert!(made.has(&[], file), "{file}");
    }
    for file in ["lib/other.sh", "scripts/other", "bin/other"] {
        assert!(!made.has(&[], file), "{file}");
    }
}

#[test]
fn git_itself_runs_what_is_named() {
    let made = Made::new();
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        let git = git.current_dir(made.at("ws")).args(words);
        let git = git.env("HOME", made.top.path()).env_remove("GIT_DIR");
        git.env("GIT_CONFIG_NOSYSTEM", "1").output()
    };
    if git(&["init", "-q"]).is_err() {
        return;
    }
    for (number, (key, value, file)) in [
        (
            "core.hooksPath",
            "tools/hooks",
            "tools/hooks/post-index-change",
        ),
        ("core.fsmonitor", "./watch.sh", "watch.sh"),
        ("filter.x.clean", "sh ./clean.sh", "clean.sh"),
        ("alias.x", "!sh ./alias.sh", "alias.sh"),
    ]
    .into_iter()
    .enumerate()
    {
        git(&["config", key, value]).unwrap();
        let ran = made.at(&format!("ran-{number}"));
        made.write(
            &format!("ws/{file}"),
            &format!("#!/bin/sh\ntouch {}\n", ran.display()),
        );
        let program = made.at(&format!("ws/{file}"));
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(program, executable).unwrap();
        made.write("ws/.gitattributes", "a filter=x\n");
        made.write("ws/a", &number.to_string());
        let _ = git(&["status"]);
        let _ = git(&["add", "a"]);
        let _ = git(&["x"]);
        assert!(ran.exists(), "git does not run {file}");
        assert!(made.has(&[], file), "{file}");
    }
}

#[test]
fn files_that_git_passes_over_are_no_doubt() {
    let made = Made::new();
    assert_eq!(made.named(&[]).unread, None);
    let unread = |prepare: &dyn Fn(&Made)| {
        let made = Made::new();
        prepare(&made);
        made.named(&[]).unread.is_some()
    };
    assert!(!unread(
        &|made| symlink("/dev/null", made.at(".gitconfig")).unwrap()
    ));
    assert!(unread(
        &|made| fs::create_dir_all(made.at(".gitconfig")).unwrap()
    ));
    assert!(unread(
        &|made| made.write(".gitconfig", "[include]\npath = ~other/x\n")
    ));
    assert!(unread(
        &|made| made.write(".gitconfig", "[include]\npath = .gitconfig\n")
    ));
    let large = "#".repeat(2 << 20);
    assert!(unread(&|made| made.write(".gitconfig", &large)));
    let paths: String = (0..51_000).map(|at| format!("a/{at} ")).collect();
    let many = format!("[alias]\na = {paths}\n");
    assert!(unread(&|made| made.write(".gitconfig", &many)));
}

#[test]
fn what_is_named_is_sealed() {
    let made = Made::new();
    made.write(
        "ws/.git/config",
        "[core]\nhooksPath = tools/hooks\nfsmonitor = ./watch\n[alias]\nx = !cargo test\n",
    );
    made.write("ws/tools/hooks/x", "");
    made.write("ws/watch", "");
    made.write("ws/test/x", "");
    made.write("ws/n/.git/config", "[core]\nhooksPath = own\n");
    made.write("ws/n/own/x", "");
    let sealed = control_paths(&made.at("ws"), &made.environment()).unwrap();
    let expected = [
        ".git/config",
        ".git/HEAD",
        "n/.git/config",
        "n/own",
        "tools/hooks",
        "watch",
    ];
    let expected: Vec<PathBuf> = expected.iter().map(|at| made.at("ws").join(at)).collect();
    let expected: Vec<_> = expected
        .into_iter()
        .filter(|at| !at.ends_with("HEAD"))
        .collect();
    assert_eq!(sealed, expected);
    made.write("ws/.git/config", "[core]\nhooksPath = .\n");
    let sealed = control_paths(&made.at("ws"), &made.environment());
    assert_eq!(sealed, Err(SealError::HooksAtTop(made.at("ws"))));
}
