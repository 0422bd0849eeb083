//! Diffs as a person is shown them.

use super::skipping::{Avoidable, note_skip};
use super::support::*;
use crate::*;

fn shown(stand: &Stand, filter: &[RelativePath], options: &DiffOptions) -> String {
    let mut out = Vec::new();
    write_diff(&stand.paths, &stand.changes(), filter, &mut out, options).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_diff_is_unified_and_complete() {
    let (stand, _) = Stand::copy(
        &[
            write("file", "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\n"),
            write("gone", "bye"),
            write("tree/a", "1"),
            write("mode", "m"),
            link_to("link", "file"),
        ],
        &[
            write("file", "one\ntwo\n3\nfour\nfive\nsix\nseven\neight\n"),
            remove("gone"),
            remove("tree"),
            mode("mode", 0o755),
            remove("link"),
            link_to("link", "mode"),
            write("bin", b"\0\x01\x02"),
            write(".envrc", "run me\n"),
            directory("empty"),
        ],
    );
    let text = shown(
        &stand,
        &[],
        &DiffOptions {
            context: 1,
            ..DiffOptions::default()
        },
    );
    let expected = "\
# control file: b/.envrc: direnv runs it on entering the directory
diff --git a/.envrc b/.envrc
new file mode 100644
--- /dev/null
+++ b/.envrc
@@ -0,0 +1 @@
+run me
# Binary files /dev/null (0 B) and b/bin (3 B) differ
# new directory empty mode 0755
diff --git a/file b/file
--- a/file
+++ b/file
@@ -2,3 +2,3 @@
 two
-three
+3
 four
diff --git a/gone b/gone
deleted file mode 100644
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-bye
\\ No newline at end of file
diff --git a/link b/link
--- a/link
+++ b/link
@@ -1 +1 @@
-file
\\ No newline at end of file
+mode
\\ No newline at end of file
diff --git a/mode b/mode
old mode 100644
new mode 100755
# deleted directory tree mode 0755 (1 entry within)
diff --git a/tree/a b/tree/a
deleted file mode 100644
--- a/tree/a
+++ /dev/null
@@ -1 +0,0 @@
-1
\\ No newline at end of file
";
    assert_eq!(text, expected);
    let only = shown(&stand, &[path("gone")], &DiffOptions::default());
    assert_eq!(only.lines().count(), 7);
}

#[test]
fn content_cannot_command_the_terminal() {
    let evil =
        "\x1b]52;c;ZXZpbA==\x07\x1b[2J\u{9b}31m\rhidden \u{202e}desrever\u{2069} tab\there\n";
    let (stand, _) = Stand::copy(
        &[],
        &[
            write("evil", evil),
            write("name\x1b[2J\n+++ b/other", evil),
            write("raw", b"\xff\x80\x9b31m\n"),
        ],
    );
    for colour in [false, true] {
        let text = shown(
            &stand,
            &[],
            &DiffOptions {
                colour,
                ..DiffOptions::default()
            },
        );
        let ours = [
            "\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[36m",
        ];
        let mut rest = text.clone();
        if colour {
            for code in ours {
                rest = rest.replace(code, "");
            }
        }
        let bad = |letter: char| letter.is_control() && letter != '\n' && letter != '\t';
        assert!(
            !rest.contains(bad) && !rest.contains('\u{202e}'),
            "{rest:?}"
        );
        assert!(rest.contains("tab\there"), "{rest}");
        assert!(!rest.lines().any(|line| line == "+++ b/other"), "{rest}");
    }
}

#[test]
fn large_things_are_bounded() {
    let line = "x".repeat(5_000);
    let (stand, _) = Stand::copy(
        &[],
        &[
            write("large", vec![b'a'; 3 << 20]),
            write("long", &line),
            Edit::Sparse(path("hole"), 1 << 30),
        ],
    );
    let text = shown(&stand, &[], &DiffOptions::default());
    assert!(text.len() < 10_000, "{}", text.len());
    assert!(
        text.contains("b/large (3.0 MiB)") && text.contains("b/hole (1.0 GiB)"),
        "{text}"
    );
    assert!(text.contains("(3000 bytes more)"), "{text}");
}

/// git must be able to take the result, whatever changed; what a patch cannot say
/// is in its comments.
#[test]
fn git_can_apply_it() {
    let (stand, _) = Stand::copy(
        &[
            write("a", "1\n2\n3\n"),
            write("b c", "1"),
            write("gone", "x\n"),
            write("mode", "1\n"),
            write("quiet", "1\n"),
            write("both", "1\n"),
            write("tree/deep/a", "1\n"),
            write("tree/b", "1\n"),
            link_to("link", "a"),
            write("becomes-link", "1\n"),
            write("becomes-directory", "1\n"),
            write("was-directory/a", "1\n"),
        ],
        &[
            write("a", "1\n2\nthree\n4\n"),
            write("b c", "2"),
            remove("gone"),
            write("new", "n\n"),
            write("empty-file", ""),
            mode("mode", 0o755),
            mode("quiet", 0o600),
            write("both", "2\n"),
            mode("both", 0o700),
            remove("tree"),
            remove("link"),
            link_to("link", "b c"),
            link_to("new-link", "a"),
            write(".envrc", "run me\n"),
            write("bin", b"\0\x01\x02"),
            directory("empty"),
            write("made/here", "1\n"),
            remove("becomes-link"),
            link_to("becomes-link", "a"),
            remove("becomes-directory"),
            write("becomes-directory/a", "1\n"),
            remove("was-directory"),
            write("was-directory", "1\n"),
        ],
    );
    let text = shown(&stand, &[], &DiffOptions::default());
    assert!(text.contains("# quiet: mode 0600, was 0644\n"), "{text}");
    assert!(text.contains("# both: mode 0700, was 0644\n"), "{text}");
    let patch = stand.place.path().join("patch");
    std::fs::write(&patch, &text).unwrap();
    for check in [true, false] {
        let mut git = std::process::Command::new("git");
        git.args(["apply", "--unsafe-paths"]);
        if check {
            git.arg("--check");
        }
        match git.arg(&patch).current_dir(stand.host()).output() {
            Ok(output) => assert!(output.status.success(), "{output:?}\n{text}"),
            Err(error) => {
                note_skip(&format!("there is no git: {error}"), Avoidable::Yes);
                return;
            }
        }
    }
    let host = stand.host();
    let read = |name: &str| std::fs::read_to_string(host.join(name)).unwrap();
    let link = |name: &str| std::fs::read_link(host.join(name)).unwrap();
    assert_eq!(read("a"), "1\n2\nthree\n4\n");
    assert_eq!(read("b c"), "2");
    assert_eq!(read("both"), "2\n");
    assert_eq!(read("empty-file"), "");
    assert_eq!(read(".envrc"), "run me\n");
    assert_eq!(read("made/here"), "1\n");
    assert_eq!(read("becomes-directory/a"), "1\n");
    assert_eq!(read("was-directory"), "1\n");
    assert_eq!(link("link").as_os_str(), "b c");
    assert_eq!(link("new-link").as_os_str(), "a");
    assert_eq!(link("becomes-link").as_os_str(), "a");
    for gone in ["gone", "tree/deep/a", "tree/b", "bin"] {
        assert!(!host.join(gone).exists(), "{gone}");
    }
    let mode = |name: &str| {
        use std::os::unix::fs::PermissionsExt as _;
        host.join(name).metadata().unwrap().permissions().mode() & 0o100
    };
    assert_eq!(
        (mode("mode"), mode("both"), mode("quiet")),
        (0o100, 0o100, 0)
    );
}

#[test]
fn changes_of_another_directory_are_told_with_where_they_are() {
    let (stand, _) = Stand::copy(
        &[
            write("settings", "one\n"),
            write("tree/a", "1"),
            write("s", ""),
        ],
        &[
            write("settings", "two\n"),
            remove("tree"),
            directory("empty"),
            mode("s", 0o600),
        ],
    );
    let text = shown(
        &stand,
        &[],
        &DiffOptions {
            place: b"/home/ann/.agent/".to_vec(),
            ..DiffOptions::default()
        },
    );
    for line in [
        "# new directory /home/ann/.agent/empty mode 0755",
        "diff --git a/home/ann/.agent/settings b/home/ann/.agent/settings",
        "--- a/home/ann/.agent/settings",
        "+++ b/home/ann/.agent/settings",
        "# deleted directory /home/ann/.agent/tree mode 0755 (1 entry within)",
        "--- a/home/ann/.agent/tree/a",
        "+++ /dev/null",
        "# /home/ann/.agent/s: mode 0600, was 0644",
    ] {
        assert!(
            text.lines().any(|one| one == line),
            "{line:?} is not in\n{text}"
        );
    }
    // No line leads to the workspace, where this is not.
    assert!(!text.contains("a/settings b/settings"), "{text}");
}

/// Whatever is in files, git has the same bytes afterwards, in each spelling and in both ways.
#[test]
fn exact_patch_is_taken_byte_for_byte() {
    let long = format!("{}\n{}", "x".repeat(10_000), "y".repeat(3 << 20));
    let before: Vec<Edit> = vec![
        write("crlf", "one\r\ntwo\r\nthree\r\n"),
        write("bom", "\u{feff}one\ntwo\n"),
        write("feed", "one\n\x0ctwo\x0b\n"),
        write("latin", b"caf\xe9\nna\xefve\n".as_slice()),
        write("bidi", "a \u{202e}b\u{2069}\n\u{200b}\n\x1b[31m\n"),
        write("open-end", "one\ntwo"),
        write("long", "short\n"),
        write("bin", b"\0\x01\x02old".as_slice()),
        write("bin-gone", b"\0gone".as_slice()),
        write("bin-mode", b"\0mode".as_slice()),
        write("was-text", "text\n"),
        write("empty-gone", ""),
        write("mode", "m\n"),
        write("gone", "x\n"),
        write("moved/a", "1\n2\n3\n"),
        write("moved/bin", b"\0moved".as_slice()),
        write("name with space", "1\n"),
        write("n\u{e4}me\t\"q", "1\n"),
        link_to("link", "crlf"),
    ];
    let edits = vec![
        write("crlf", "one\r\n2\r\nthree\n\r\n"),
        write("bom", "\u{feff}one\n\u{feff}zwei\n"),
        write("feed", "one\x0c\n\x0czwei\x0b\n\x08\n"),
        write("latin", b"caf\xe9s\nna\xefve\n\xff\xfe\n".as_slice()),
        write(
            "bidi",
            "a \u{202e}c\u{2069}\n\u{200b}\u{2028}\n\x1b[32m\\x1b\n",
        ),
        write("open-end", "one\nzwei"),
        write("long", long.as_str()),
        write("bin", b"\0\x01\x02new\n".repeat(40)),
        remove("bin-gone"),
        write("bin-mode", b"\0mode2".as_slice()),
        mode("bin-mode", 0o755),
        write("was-text", b"now\0binary".as_slice()),
        remove("empty-gone"),
        write("new-empty", ""),
        write("new-bin", b"\0".as_slice()),
        write("new-bin-run", b"\x7fELF\0".as_slice()),
        mode("new-bin-run", 0o755),
        mode("mode", 0o755),
        remove("gone"),
        rename("moved", "there"),
        write("there/a", "1\n2\ndrei\n"),
        write("name with space", "2\n"),
        write("n\u{e4}me\t\"q", "2\n"),
        remove("link"),
        link_to("link", "b\u{f6}m"),
        write("dir/n\u{fc}/deep", "deep"),
    ];
    for spelling in [
        "git apply ../patch",
        "git apply - < ../patch",
        "git init -q . && git add -A && git -c core.autocrlf=false apply --index ../patch",
        "git init -q --object-format=sha256 . && git apply --whitespace=nowarn ../patch",
    ] {
        let is_256 = spelling.contains("sha256");
        let configuration = "[core]
	repositoryformatversion = 1
[extensions]
	objectformat = sha256
";
        let config = is_256.then(|| write(".git/config", configuration));
        let before: Vec<Edit> = before.iter().cloned().chain(config).collect();
        let (stand, _) = Stand::copy(&before, &edits);
        let host = stand.host();
        let shell = |script: &str| {
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", script]).current_dir(&host);
            shell.output().unwrap()
        };
        if !shell("git --version").status.success() {
            note_skip("there is no git", Avoidable::Yes);
            return;
        }
        let untouched = plain(&host);
        let mut patch = Vec::new();
        let changes = stand.changes();
        let options = DiffOptions::exact(Vec::new());
        let named = write_diff(&stand.paths, &changes, &[], &mut patch, &options).unwrap();
        assert_eq!(named, Vec::<String>::new());
        std::fs::write(host.join("../patch"), &patch).unwrap();
        let done = shell(spelling);
        assert!(done.status.success(), "{spelling}: {done:?}");
        let AfterTree::Copy { path, .. } = &stand.paths.after else {
            panic!("a copy");
        };
        assert_eq!(plain(&host), plain(path), "{spelling}");
        let back = shell("git apply -R ../patch");
        assert!(back.status.success(), "{spelling}: {back:?}");
        assert_eq!(plain(&host), untouched, "{spelling}");
    }
}

/// Returns the files of a tree, with what git keeps of each: whether it may be executed, its bytes.
fn plain(top: &std::path::Path) -> std::collections::BTreeMap<std::path::PathBuf, (bool, Vec<u8>)> {
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::PermissionsExt as _;
    let mut files = std::collections::BTreeMap::new();
    let mut waiting = vec![top.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let facts = path.symlink_metadata().unwrap();
            let content = match (facts.is_dir(), facts.is_symlink()) {
                (true, _) => {
                    if !path.ends_with(".git") {
                        waiting.push(path);
                    }
                    continue;
                }
                (_, true) => path.read_link().unwrap().as_os_str().as_bytes().to_vec(),
                _ => std::fs::read(&path).unwrap(),
            };
            let is_executable = !facts.is_symlink() && facts.permissions().mode() & 0o100 != 0;
            let name = path.strip_prefix(top).unwrap().to_owned();
            files.insert(name, (is_executable, content));
        }
    }
    files
}

#[test]
fn exact_patch_names_what_it_leaves_out() {
    let (stand, _) = Stand::copy(
        &[],
        &[Edit::Sparse(path("hole"), 1 << 30), write("a", "1\n")],
    );
    let mut patch = Vec::new();
    let options = DiffOptions::exact(Vec::new());
    let named = write_diff(&stand.paths, &stand.changes(), &[], &mut patch, &options).unwrap();
    assert_eq!(named, ["hole"]);
    let text = String::from_utf8(patch).unwrap();
    assert!(text.contains("+++ b/a\n@@ -0,0 +1 @@\n+1\n"), "{text}");
    assert!(text.contains("b/hole (1.0 GiB)"), "{text}");
}

/// Whoever applies a patch has to know that it is not whole.
#[test]
fn entries_that_a_patch_leaves_out_are_named() {
    let names: Vec<String> = (0..=10_000)
        .map(|number| format!("many/{number}"))
        .collect();
    let mut before: Vec<Edit> = names.iter().map(|name| write(name, "")).collect();
    before.push(write("few/a", "1\n"));
    let (stand, _) = Stand::copy(&before, &[remove("many"), remove("few")]);
    let mut out = Vec::new();
    let options = DiffOptions::exact(Vec::new());
    let left_out = write_diff(&stand.paths, &stand.changes(), &[], &mut out, &options).unwrap();
    assert_eq!(left_out, ["many"]);
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("# many is not in this patch"), "{text}");
    assert!(text.contains("--- a/few/a"), "{text}");
}
