#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;

use super::*;

fn text_of(path: Option<OsString>) -> Option<String> {
    path.map(|path| String::from_utf8_lossy(path.as_bytes()).into_owned())
}

#[test]
fn a_git_file_has_one_line_with_a_path() {
    let check = |text: &[u8], expected: Option<&str>| {
        assert_eq!(text_of(gitdir(text)).as_deref(), expected, "{text:?}");
    };
    check(
        b"gitdir: /a/.git/worktrees/x\n",
        Some("/a/.git/worktrees/x"),
    );
    check(
        b"gitdir: ../.git/modules/part",
        Some("../.git/modules/part"),
    );
    check(b"gitdir: /a b\r\n", Some("/a b"));
    check(b"gitdir: /a\n/b\n", None);
    check(b"gitdir: /a\0b\n", None);
    check(b"gitdir: \n", None);
    check(b"gitdir:/a\n", None);
    check(b"GITDIR: /a\n", None);
    check(b" gitdir: /a\n", None);
    check(b"\n", None);
    check(b"", None);
}

#[test]
fn a_path_is_resolved_without_looking() {
    let check = |directory: &str, named: &str, expected: &str| {
        let found = resolved(Path::new(directory), OsStr::new(named));
        assert_eq!(found, Path::new(expected), "{named}");
    };
    check("/a/b", "../.git/modules/x", "/a/.git/modules/x");
    check("/a/b", "/c/./d//e/../f", "/c/d/f");
    check("/a", "../../../..", "/");
    check("/a/.git/worktrees/x", "../..", "/a/.git");
}

/// A repository `main` with a worktree `wt`, and a submodule `part`, as git writes them.
struct Made {
    top: tempfile::TempDir,
    uid: u32,
}

impl Made {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let made = Self { top, uid };
        for git in ["main/.git", "main/.git/modules/part", "else/.git"] {
            for name in ["objects", "refs/heads"] {
                fs::create_dir_all(made.at(git).join(name)).unwrap();
            }
            made.write(&format!("{git}/HEAD"), "ref: refs/heads/main\n");
        }
        for workspace in ["wt", "main/part", "forged"] {
            fs::create_dir_all(made.at(workspace)).unwrap();
        }
        let own = "main/.git/worktrees/wt";
        fs::create_dir_all(made.at(own)).unwrap();
        made.write(&format!("{own}/commondir"), "../..\n");
        made.write(&format!("{own}/gitdir"), &made.line("", "wt/.git"));
        made.write("wt/.git", &made.line("gitdir: ", own));
        let config = "[core]\n\tworktree = ../../../part\n";
        made.write("main/.git/modules/part/config", config);
        made.write("main/part/.git", "gitdir: ../.git/modules/part\n");
        made
    }

    fn at(&self, path: &str) -> PathBuf {
        self.top.path().canonicalize().unwrap().join(path)
    }

    fn line(&self, before: &str, path: &str) -> String {
        format!("{before}{}\n", self.at(path).display())
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.at(path), text).unwrap();
    }

    fn found(&self, workspace: &str) -> Result<Option<Repository>, NoRepository> {
        repository(&self.at(workspace), self.uid)
    }

    fn shown(&self, workspace: &str) -> Option<(PathBuf, Option<String>)> {
        let found = self.found(workspace).ok()??;
        Some((found.common, text_of(found.worktree)))
    }
}

#[test]
fn worktrees_and_submodules_are_found() {
    let made = Made::new();
    let main = (made.at("main/.git"), Some("wt".to_owned()));
    assert_eq!(made.shown("wt"), Some(main.clone()));
    let part = (made.at("main/.git/modules/part"), None);
    assert_eq!(made.shown("main/part"), Some(part));
    // Newer versions of git write relative paths where they are asked to.
    made.write("main/.git/worktrees/wt/gitdir", "../../../../wt/.git\n");
    made.write("wt/.git", "gitdir: ../main/.git/worktrees/wt\n");
    assert_eq!(made.shown("wt"), Some(main));
    // What is whole in itself, or no repository, needs nothing and no word.
    assert_eq!(made.found("main"), Ok(None));
    assert_eq!(made.found("forged"), Ok(None));
    made.write("forged/.git", "gitdir: ./inner\n");
    assert_eq!(made.found("forged"), Ok(None));
    fs::remove_file(made.at("forged/.git")).unwrap();
    symlink("inner", made.at("forged/.git")).unwrap();
    fs::create_dir(made.at("forged/inner")).unwrap();
    assert_eq!(made.found("forged"), Ok(None));
}

#[test]
fn a_repository_that_does_not_name_the_workspace_back_is_not_shown() {
    let made = Made::new();
    let refused = |text: &str| {
        made.write("forged/.git", text);
        made.found("forged").unwrap_err()
    };
    for place in [
        "main/.git/worktrees/wt",
        "main/.git/modules/part",
        "main/.git",
        "else/.git",
    ] {
        let error = refused(&made.line("gitdir: ", place));
        assert_eq!(error, NoRepository::NotBack(made.at(place)));
    }
    let gone = made.at("gone");
    assert_eq!(
        refused(&made.line("gitdir: ", "gone")),
        NoRepository::NotThere(gone)
    );
    let form = NoRepository::Form(made.at("forged/.git").display().to_string());
    assert_eq!(refused("gitdir: /a\n\n"), form);
    assert!(matches!(
        refused(&"x".repeat(9_000)),
        NoRepository::Unreadable(..)
    ));
    let root = refused("gitdir: /\n");
    assert!(matches!(
        root,
        NoRepository::NotBack(_) | NoRepository::Foreign(_)
    ));
    symlink(made.at("main"), made.at("link")).unwrap();
    let through = made.at("link/.git/worktrees/wt");
    let error = refused(&made.line("gitdir: ", "link/.git/worktrees/wt"));
    assert_eq!(error, NoRepository::Through(through));
    fs::remove_file(made.at("forged/.git")).unwrap();
    symlink(made.at("main/.git"), made.at("forged/.git")).unwrap();
    assert_eq!(made.found("forged"), Err(NoRepository::Link));
}

/// Each part of the links in both directions counts, and so does their owner.
#[test]
fn a_worktree_is_one_only_as_git_makes_it() {
    type Break = (&'static str, fn(&Made));
    let cases: [Break; 8] = [
        ("the common directory is another one", |made| {
            made.write(
                "main/.git/worktrees/wt/commondir",
                &made.line("", "else/.git"),
            );
        }),
        ("it names no common directory", |made| {
            fs::remove_file(made.at("main/.git/worktrees/wt/commondir")).unwrap();
        }),
        ("it names another worktree", |made| {
            made.write(
                "main/.git/worktrees/wt/gitdir",
                &made.line("", "forged/.git"),
            );
        }),
        ("it names something else in this one", |made| {
            made.write("main/.git/worktrees/wt/gitdir", &made.line("", "wt/.not"));
        }),
        ("what it names is a link", |made| {
            let file = made.at("main/.git/worktrees/wt/gitdir");
            fs::rename(&file, made.at("elsewhere")).unwrap();
            symlink(made.at("elsewhere"), file).unwrap();
        }),
        ("it lies elsewhere", |made| {
            fs::rename(made.at("main/.git/worktrees"), made.at("main/.git/trees")).unwrap();
            made.write("wt/.git", &made.line("gitdir: ", "main/.git/trees/wt"));
        }),
        ("what it leads to is no repository", |made| {
            fs::remove_dir_all(made.at("main/.git/objects")).unwrap();
        }),
        ("its objects are a link", |made| {
            fs::rename(made.at("main/.git/objects"), made.at("objects")).unwrap();
            symlink(made.at("objects"), made.at("main/.git/objects")).unwrap();
        }),
    ];
    for (what, spoil) in cases {
        let made = Made::new();
        assert!(made.shown("wt").is_some(), "{what}");
        spoil(&made);
        assert!(made.found("wt").is_err(), "{what}");
    }
    let made = Made::new();
    let foreign = repository(&made.at("wt"), made.uid + 1);
    assert_eq!(foreign, Err(NoRepository::Foreign(made.at("wt/.git"))));
    // A workspace in the repository's own directory.
    fs::create_dir_all(made.at("main/.git/tree")).unwrap();
    made.write(
        "main/.git/tree/.git",
        &made.line("gitdir: ", "main/.git/worktrees/wt"),
    );
    let back = made.line("", "main/.git/tree/.git");
    made.write("main/.git/worktrees/wt/gitdir", &back);
    let holds = NoRepository::Holds(made.at("main/.git"));
    assert_eq!(made.found("main/.git/tree"), Err(holds));
}

/// Copies of a configuration, password files and files that a configuration names are not shown,
/// nor are the lock files that git makes beside it.
#[test]
fn what_lies_beside_a_configuration_is_hidden_where_it_may_have_secrets() {
    let made = Made::new();
    let shown = made.found("wt").unwrap().unwrap();
    let config = "[include]\n\tpath = more.inc\n[lfs \"index\"]\n\tx = lfs\n";
    made.write("main/.git/config", config);
    let hidden = [
        ".config.swp",
        ".git-credentials",
        "CONFIG.old",
        "config.lock",
        "config.orig",
        "config~",
        "credentials",
        "more.inc",
        "my-credential-file",
    ];
    for name in hidden
        .iter()
        .chain(&["other", "index", "lfs", "FETCH_HEAD"])
    {
        made.write(&format!("main/.git/{name}"), "its-PW");
    }
    let all = configurations(&shown.common, shown.identity).unwrap();
    let names_of = |has_secrets: bool, has_text: bool| {
        let all = all
            .iter()
            .filter(|one| one.has_secrets == has_secrets && one.text.is_some() == has_text);
        let mut names: Vec<&str> = all.map(|one| one.name.to_str().unwrap()).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(names_of(true, false), hidden);
    assert_eq!(names_of(false, true), ["config"]);
    assert_eq!(
        names_of(false, false),
        ["config.worktree", "config.worktree.lock"]
    );
}
