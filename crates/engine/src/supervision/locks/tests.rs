use std::os::unix::fs::symlink;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Returns what a file of this name and content names, as pairs of name and key; or why
/// nothing.
fn named(registry: Registry, path: &str, text: &str) -> Result<Vec<String>, String> {
    let workspace = tempfile::tempdir().unwrap();
    let file = LockFile::try_from(path.to_owned()).unwrap();
    std::fs::write(workspace.path().join(path), text).unwrap();
    let lock = read_one(workspace.path(), registry, &file)?;
    let written = serde_json::to_value(&lock).unwrap();
    let releases = written["releases"].as_object().unwrap();
    let of = |(name, keys): (&String, &Value)| {
        let keys = keys.as_array().unwrap().clone();
        let name = name.clone();
        keys.into_iter()
            .map(move |key| format!("{name}={}", key.as_str().unwrap()))
    };
    Ok(releases.iter().flat_map(of).collect())
}

fn npm_lock(content: &Value) -> Result<Vec<String>, String> {
    named(Registry::Npm, "package-lock.json", &content.to_string())
}

#[test]
fn lock_files_of_npm_are_read() {
    let tarball = "https://registry.npmjs.org/real/-/real-2.0.0.tgz";
    let packages = json!({
        "": {"name": "project", "version": "9.0.0", "dependencies": {"a": "^1"}},
        "packages/own": {"version": "9.0.0"},
        "node_modules/own": {"resolved": "packages/own", "link": true},
        "node_modules/a": {"version": "1.0.0"},
        "node_modules/a/node_modules/@s/b": {"version": "1.0.0-rc.1", "dependencies": {"c": "*"}},
        "node_modules/alias": {"name": "real", "version": "2.0.0", "resolved": tarball},
        "node_modules/unresolved": {"name": "other", "version": "3.0.0"},
        "node_modules/within": {"version": "1.0.0", "inBundle": true},
        "node_modules/mirror": {"version": "1.0.0", "resolved": "https://mirror.example/mirror/-/mirror-1.0.0.tgz"},
        "node_modules/git": {"version": "1.0.0", "resolved": "git+ssh://git@github.com/a/b.git#abc"},
        "node_modules/file": {"version": "file:../x"},
        "node_modules/..": {"version": "1.0.0"},
    });
    let expected = ["@s/b=1.0.0-rc.1", "a=1.0.0", "other=3.0.0", "real=2.0.0"];
    for version in [2, 3] {
        let lock = json!({"lockfileVersion": version, "packages": packages, "dependencies": {"old": {"version": "1.0.0"}}});
        assert_eq!(npm_lock(&lock).unwrap(), expected);
    }
    let old = json!({"lockfileVersion": 1, "dependencies": {
        "a": {"version": "1.0.0", "requires": {"b": "1"}, "dependencies": {"b": {"version": "2.0.0", "resolved": false}}},
        "within": {"version": "1.0.0", "bundled": true},
        "alias": {"version": "npm:real@1.0.0"},
        "git": {"version": "git+https://a.example/b.git#abc", "from": "b"},
        "real": {"version": "2.0.0", "resolved": tarball},
    }});
    assert_eq!(
        npm_lock(&old).unwrap(),
        ["a=1.0.0", "b=2.0.0", "real=2.0.0"]
    );
    for (text, said) in [
        ("", "it is not understood at line 1"),
        (
            "{\n\"lockfileVersion\": 3,\n!",
            "it is not understood at line 3",
        ),
        ("{}", "it is not understood"),
        ("{\"lockfileVersion\": 4}", "(version 4)"),
        (
            "{\"lockfileVersion\": 3}",
            "it names no exact release of npm",
        ),
        (
            "{\"lockfileVersion\": 3, \"packages\": []}",
            "it is not understood",
        ),
    ] {
        let why = named(Registry::Npm, "package-lock.json", text).unwrap_err();
        assert!(why.contains(said), "{text}: {why}");
    }
}

#[test]
fn cargo_lock_is_read() {
    let text = "version = 4\n\
        [[package]]\nname = 'own'\nversion = '1.0.0'\n\
        [[package]]\nname = 'Itoa_x'\nversion = '1.0.15+a'\nsource = 'registry+https://github.com/rust-lang/crates.io-index'\nchecksum = 'x'\n\
        [[package]]\nname = 'sparse'\nversion = '2.0.0'\nsource = 'sparse+https://index.crates.io/'\ndependencies = ['own']\n\
        [[package]]\nname = 'git'\nversion = '1.0.0'\nsource = 'git+https://a.example/b#abc'\n\
        [[package]]\nname = 'other'\nversion = '1.0.0'\nsource = 'registry+https://a.example/index'\n";
    let read = |text: &str| named(Registry::Cargo, "Cargo.lock", text);
    let expected = ["itoa-x=Itoa_x 1.0.15+a", "sparse=sparse 2.0.0"];
    assert_eq!(read(text).unwrap(), expected);
    assert_eq!(read(&text.replace("version = 4\n", "")).unwrap(), expected);
    for (text, said) in [
        (
            text.replace("version = 4\n", "version = 5\n"),
            "(version 5)",
        ),
        (
            text.replace("'own'", "own"),
            "it is not understood at line 3",
        ),
        (String::new(), "it names no exact release of cargo"),
    ] {
        let why = read(&text).unwrap_err();
        assert!(why.contains(said), "{why}");
    }
}

#[test]
fn lock_files_of_python_are_read() {
    let requirements = "# made by pip-compile\n\
        --index-url https://pypi.org/simple\n\
        six==1.17.0\n  \
        Left_Pad [a,b] == 1.0 ; python_version < '4'  # why\n\
        hashed==2.0 \\\n    --hash=sha256:ab \\\n    --hash=sha256:cd\r\n\
        windows==3.0\r\n\
        -r other.txt\n-e git+https://a.example/b#egg=x==1.0\n\
        range>=1.0\nboth>=1.0,==1.5\nupper==1.0,<2\nany==1.*\nstrict===1.0\nfree\n\
        url @ https://a.example/x==1.0.whl\n#no==1.0\nodd==1.0-beta\nmore==1.0 --global-option=x\n";
    let read = |text: &str| named(Registry::Pip, "requirements.txt", text);
    let expected = ["hashed=0!2", "left-pad=0!1", "six=0!1.17", "windows=0!3"];
    assert_eq!(read(requirements).unwrap(), expected);
    let open = read("# a list\nsix>=1\n").unwrap_err();
    assert_eq!(
        open,
        "it names no exact release of pip's registry: line 2 wants name==VERSION, as pip freeze \
         prints it"
    );
    // Of a continued line its first counts.
    let open = read("-r a.txt\\\n b\nsix \\\n >=1\n").unwrap_err();
    assert!(open.contains(": line 3 wants"), "{open}");
    let none = read("--index-url https://a.example\n").unwrap_err();
    assert!(none.ends_with("registry"), "{none}");

    let uv = "version = 1\n[[package]]\nname = 'own'\nversion = '1'\nsource = { editable = '.' }\n\
        [[package]]\nname = 'six'\nversion = '1.17.0'\nsource = { registry = 'https://pypi.org/simple' }\n\
        wheels = [{ url = 'https://files.pythonhosted.org/x', hash = 'sha256:x', size = 1 }]\n\
        [[package]]\nname = 'other'\nversion = '1.0'\nsource = { registry = 'https://a.example/simple' }\n\
        [[package]]\nname = 'git'\nversion = '1.0'\nsource = { git = 'https://a.example/b' }\n";
    let read_uv = |text: &str| named(Registry::Pip, "uv.lock", text);
    assert_eq!(read_uv(uv).unwrap(), ["six=0!1.17"]);
    let newer = uv.replace("version = 1\n", "version = 2\n");
    assert!(read_uv(&newer).unwrap_err().contains("(version 2)"));

    let poetry = "[[package]]\nname = 'six'\nversion = '1.17.0'\nfiles = [{ file = 'x', hash = 'y' }]\n\
        [[package]]\nname = 'git'\nversion = '1.0'\n[package.source]\ntype = 'git'\nurl = 'x'\n\
        [metadata]\nlock-version = '2.1'\n";
    let read_poetry = |text: &str| named(Registry::Pip, "poetry.lock", text);
    assert_eq!(read_poetry(poetry).unwrap(), ["six=0!1.17"]);
    assert!(
        read_poetry("[[package]]\nname = 1")
            .unwrap_err()
            .contains("line 2")
    );
}

#[test]
fn a_lock_file_is_a_regular_file_of_the_workspace_itself() {
    let (workspace, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let at = |path: &str| workspace.path().join(path);
    for (path, directory) in [
        ("good", true),
        ("fifo", true),
        ("huge", true),
        ("bytes", true),
        ("linked", false),
    ] {
        if directory {
            std::fs::create_dir(at(path)).unwrap();
        }
    }
    let text = "six==1.17.0\n";
    std::fs::write(at("good/a.txt"), text).unwrap();
    std::fs::write(elsewhere.path().join("a.txt"), text).unwrap();
    symlink(elsewhere.path().join("a.txt"), at("outside.txt")).unwrap();
    symlink("good/a.txt", at("inside.txt")).unwrap();
    symlink("good", at("linked")).unwrap();
    std::fs::write(at("bytes/a.txt"), b"six==1.0 # \xff\n").unwrap();
    std::fs::create_dir(at("directory.txt")).unwrap();
    let fifo = at("fifo/a.txt");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        Mode::RWXU,
        0,
    )
    .unwrap();
    let huge = std::fs::File::create(at("huge/a.txt")).unwrap();
    huge.set_len(FILE_BYTES_MAX + 1).unwrap();
    let read = |path: &str| {
        let file = LockFile::try_from(path.to_owned()).unwrap();
        read_one(workspace.path(), Registry::Pip, &file).map(|lock| lock.count())
    };
    assert_eq!(read("good/a.txt"), Ok(1));
    for (path, said) in [
        ("outside.txt", "symbolic link"),
        ("inside.txt", "symbolic link"),
        ("linked/a.txt", "symbolic link"),
        ("none.txt", "there is no such file"),
        ("good/a.txt/b.txt", "there is no such file"),
        ("directory.txt", "no regular file"),
        ("fifo/a.txt", "no regular file"),
        ("huge/a.txt", "larger than 32 MiB"),
        ("bytes/a.txt", "no text"),
    ] {
        let why = read(path).unwrap_err();
        assert!(why.contains(said), "{path}: {why}");
    }
}

#[test]
fn so_many_releases_are_refused() {
    let workspace = tempfile::tempdir().unwrap();
    let write = |path: &str, count: usize| {
        let lines = (0..count).map(|at| format!("p{at}==1.0\n"));
        std::fs::write(workspace.path().join(path), lines.collect::<String>()).unwrap();
    };
    write("a.txt", LOCKED_MAX);
    write("b.txt", 1);
    let network = |locks: &[&str]| {
        let locks = locks.iter().map(|path| format!("\"{path}\""));
        let locks = locks.collect::<Vec<_>>().join(",");
        let rule = format!(
            r#"{{"to":"pypi.org:443","requests":{{"packages":{{"registry":"pip","names":["*"],"locks":[{locks}]}}}},"origin":"x"}}"#
        );
        serde_json::from_str::<Network>(&format!(r#"{{"allow":[{rule}],"deny":[]}}"#)).unwrap()
    };
    let memory = read(&network(&["a.txt"]), workspace.path())
        .unwrap()
        .unwrap();
    let handed = descriptor::read_from_start(std::os::fd::AsFd::as_fd(&memory), LOCKED_BYTES_MAX);
    assert!(serde_json::from_slice::<Locks>(&handed.unwrap()).is_ok());
    assert!(descriptor::is_sealed(std::os::fd::AsFd::as_fd(&memory)).unwrap());
    let refused = read(&network(&["a.txt", "b.txt"]), workspace.path()).unwrap_err();
    assert!(refused.to_string().contains("100000 releases"), "{refused}");
    assert!(read(&network(&[]), workspace.path()).unwrap().is_none());
}

proptest! {
    /// No content makes a reader fail other than with a reason; the reason repeats nothing of
    /// it.
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}|(\\[\\[package\\]\\]\n|[a-z]+ ?= ?['\"0-9a-z.]+\n|[a-z]+==[0-9.a-z*]+[ ;\\\\]*\n|[{}\",:a-z0-9/ ]){0,40}") {
        for (registry, path) in [
            (Registry::Npm, "package-lock.json"),
            (Registry::Cargo, "Cargo.lock"),
            (Registry::Pip, "a.txt"),
            (Registry::Pip, "uv.lock"),
            (Registry::Pip, "poetry.lock"),
        ] {
            match named(registry, path, &text) {
                Ok(releases) => prop_assert!(!releases.is_empty()),
                Err(why) => prop_assert!(why.len() < 120 && why.starts_with("it "), "{}", why),
            }
        }
    }

    /// A line of requirements names what it says, or nothing.
    #[test]
    fn a_line_names_what_it_says(
        name in "[A-Za-z][A-Za-z0-9._-]{0,10}[a-z0-9]",
        version in "[0-9]{1,3}(\\.[0-9]{1,3}){0,3}",
        before in "[ -~]{0,6}",
        after in "[ -~]{0,6}",
    ) {
        let expected = format!(
            "{}={}",
            Registry::Pip.normal(&name),
            atoll_model::network::normal_version(&version).unwrap()
        );
        let read = |line: &str| named(Registry::Pip, "a.txt", line);
        prop_assert_eq!(read(&format!("{name}=={version}")).unwrap(), vec![expected.clone()]);
        if let Ok(found) = read(&format!("{before}{name}{after}=={version}")) {
            prop_assert_eq!(found.len(), 1);
            let found = &found[0];
            // Its name is all that stands before.
            let whole = format!("{before}{name}{after}");
            let stated = whole.split('[').next().unwrap_or_default();
            let stated = stated.split(" --hash").next().unwrap_or_default().trim();
            let normal = Registry::Pip.normal(stated);
            let (name, _) = found.split_once('=').unwrap();
            prop_assert!(name == normal, "{} {}", found, whole);
        }
    }
}
