use std::fs;
use std::os::unix::fs::symlink;

use atoll_layer::{AfterTree, Bounds, IdShift, LayerPaths, XattrFlavour, changes};
use atoll_policy::Checks;

use super::*;

fn of(commands: &[&str], judge: &[&str], workspace: &Path) -> Judge {
    let texts = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
    let checks = Checks {
        commands: texts(commands),
        judge: texts(judge),
        timeout: std::time::Duration::from_secs(1),
        applies: false,
    };
    Judge::read(&checks, workspace).unwrap()
}

fn path(text: &str) -> RelativePath {
    RelativePath::new(text).unwrap()
}

fn workspace() -> tempfile::TempDir {
    let workspace = tempfile::tempdir().unwrap();
    for directory in ["src", "tests", "pkg/tests/deep", "docs"] {
        fs::create_dir_all(workspace.path().join(directory)).unwrap();
    }
    for file in ["check.sh", "src/a.py", "tests/a.py", "pkg/tests/deep/b"] {
        fs::write(workspace.path().join(file), "").unwrap();
    }
    workspace
}

#[test]
fn built_in_patterns_match_tests_and_what_configures_them() {
    let workspace = workspace();
    let judge = of(&["true"], &[], workspace.path());
    let deciding = [
        "tests",
        "tests/new.py",
        "a/b/tests/c/d",
        "TESTS/a.py",
        "conftest.py",
        "src/deep/ConfTest.py",
        "pytest.ini",
        "src/test_a.py",
        "a_test.go",
        "web/a.test.tsx",
        "jest.config.js",
        "package.json",
        "Cargo.lock",
        "crates/a/Cargo.toml",
        "makefile",
        "requirements-dev.txt",
        ".cargo/config.toml",
    ];
    for one in deciding {
        assert!(judge.decides(&path(one)), "{one}");
    }
    for one in [
        "src/a.py",
        "contest.py",
        "README.md",
        "src/testing.py",
        "latest/a",
        "",
    ] {
        assert!(!judge.decides(&path(one)), "{one}");
    }
}

#[test]
fn profile_adds_patterns_and_takes_out() {
    let workspace = workspace();
    let judge = of(
        &["./check.sh --all src"],
        &["docs/**", "!Cargo.lock"],
        workspace.path(),
    );
    // A command can change its directory first.
    for one in [
        "docs",
        "docs/a",
        "docs/b/c",
        "check.sh",
        "--all/tests",
        "sub/check.sh",
    ] {
        assert!(judge.decides(&path(one)), "{one}");
    }
    // A directory that a command names is what it is about.
    for one in ["Cargo.lock", "src/a.py", "a/docs/b", "sub/check"] {
        assert!(!judge.decides(&path(one)), "{one}");
    }
    let judge = of(
        &["cd sub && python3 -m unit.test ../ci/go.sh"],
        &[],
        workspace.path(),
    );
    for one in ["unit/test.py", "unit/test/a", "ci/go.sh", "other/go.sh"] {
        assert!(judge.decides(&path(one)), "{one}");
    }
    assert!(!judge.decides(&path("unit/other.py")));
}

#[test]
fn place_that_a_deciding_link_leads_to_decides() {
    let workspace = workspace();
    let at = |name: &str| workspace.path().join(name);
    fs::create_dir_all(at("real/suite")).unwrap();
    symlink("suite", at("real/way")).unwrap();
    symlink("../real/way", at("pkg/__tests__")).unwrap();
    symlink("/etc/passwd", at("tests/outside")).unwrap();
    let judge = of(&["true"], &[], workspace.path());
    for one in ["real/way", "real/suite", "real/suite/new"] {
        assert!(judge.decides(&path(one)), "{one}");
    }
    assert!(!judge.decides(&path("real/other")));
}

#[test]
fn invalid_pattern_is_refused() {
    let workspace = workspace();
    let checks = Checks {
        commands: vec!["true".to_owned()],
        judge: vec!["a{b".to_owned()],
        timeout: std::time::Duration::from_secs(1),
        applies: false,
    };
    assert!(Judge::read(&checks, workspace.path()).is_err());
}

/// A change of a directory above touches what decides in it.
#[test]
fn removed_directory_touches_what_it_held() {
    let (workspace, layer) = (workspace(), tempfile::tempdir().unwrap());
    let upper = layer.path().join("upper");
    fs::create_dir_all(upper.join("docs")).unwrap();
    let whiteout = |name: &str| {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        mknodat(
            CWD,
            upper.join(name),
            FileType::CharacterDevice,
            Mode::empty(),
            0,
        )
        .unwrap();
    };
    whiteout("tests");
    whiteout("src");
    // A link in place of a directory.
    symlink("/tmp", upper.join("pkg")).unwrap();
    let paths = LayerPaths {
        before: workspace.path().to_owned(),
        after: AfterTree::Overlay {
            upper,
            work: layer.path().join("work"),
            xattrs: XattrFlavour::User,
        },
        since: std::time::SystemTime::now(),
        put_back: None,
        ids: IdShift::None,
    };
    let set = changes(&paths, &Bounds::default()).unwrap();
    let judge = of(&["true"], &[], workspace.path());
    let touched = |name: &str| {
        let mut all = set.changes.iter();
        let change = all.find(|change| change.path == path(name)).unwrap();
        judge.touched(change).unwrap()
    };
    assert_eq!(touched("tests"), Touched::Itself);
    assert_eq!(touched("src"), Touched::Nothing);
    assert_eq!(touched("pkg"), Touched::Within(vec![path("pkg/tests")]));
}
