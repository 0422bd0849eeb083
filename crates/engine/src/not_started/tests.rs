use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;

fn program(place: &Path) {
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::write(place, "").unwrap();
}

fn told(showing: &Showing) -> (&str, bool, String) {
    let file = showing.file.file_name().unwrap().to_str().unwrap();
    (file, showing.is_there, showing.lines.join("\n"))
}

#[test]
fn a_program_that_no_profile_shows_is_shown_by_one_that_says_its_directory() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    let at = |name: &str| place.join(name);
    let shown = |program: &Path| showing(program, "codex", &at("config")).unwrap();
    let plain = at("tools/codex");
    program(&plain);
    let lines = |directories: &[&str]| {
        let all: Vec<String> = directories
            .iter()
            .map(|one| format!("{:?}", at(one).to_str().unwrap()))
            .collect();
        format!(
            "extends = [\"codex\"]\ncommands = [\"codex\"]\n[files]\nread = [{}]",
            all.join(",")
        )
    };
    assert_eq!(
        told(&shown(&plain)),
        ("codex.toml", false, lines(&["tools"]))
    );
    // A package manager's link leads to another place of the same installation, or elsewhere.
    program(&at("node/lib/cli.js"));
    fs::create_dir_all(at("node/bin")).unwrap();
    symlink("../lib/cli.js", at("node/bin/codex")).unwrap();
    assert_eq!(told(&shown(&at("node/bin/codex"))).2, lines(&["node"]));
    fs::create_dir_all(at("links")).unwrap();
    symlink("../tools/codex", at("links/codex")).unwrap();
    assert_eq!(
        told(&shown(&at("links/codex"))).2,
        lines(&["links", "tools"])
    );
    // A name that no profile can have; one that is taken.
    program(&at("tools/a.sh"));
    assert_eq!(told(&shown(&at("tools/a.sh"))).0, "own.toml");
    program(&at("config/profiles/other.toml"));
    program(&at("tools/other"));
    assert_eq!(told(&shown(&at("tools/other"))).0, "other-shown.toml");
    // One's own profile gets the lines.
    program(&at("config/profiles/codex.toml"));
    let read = format!("[files]\nread = [{:?}]", at("tools").to_str().unwrap());
    assert_eq!(told(&shown(&plain)), ("codex.toml", true, read));
}
