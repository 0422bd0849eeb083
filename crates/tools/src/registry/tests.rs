use super::*;
use crate::tool::SandboxLife;

const GOOD: &str =
    "description = \"Counts.\"\nkind = \"command\"\ncommand = [\"wc\"]\neffect = \"read\"\n";

fn read(files: &[(&str, &str)]) -> (tempfile::TempDir, Registry) {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join(DIRECTORY)).unwrap();
    for (name, content) in files {
        fs::write(directory.path().join(name), content).unwrap();
    }
    let registry = Registry::read(directory.path(), directory.path());
    (directory, registry)
}

fn names(registry: &Registry) -> Vec<&str> {
    registry.tools().map(|tool| tool.name.as_str()).collect()
}

fn tool(name: &str, more: &str) -> String {
    format!("[tool.{name}]\n{GOOD}{more}\n")
}

#[test]
fn every_file_of_tools_counts() {
    let (_held, registry) = read(&[
        (
            FILE,
            &(tool("a", "") + &tool("b", "timeout = \"5s\"\nresult-bytes = \"1KiB\"")),
        ),
        (
            "tools/more.toml",
            &tool("c", "sandbox = \"session\"\nenabled = false"),
        ),
        ("tools/notes.txt", "not read"),
    ]);
    assert_eq!(registry.problems(), []);
    assert_eq!(names(&registry), ["a", "b", "c"]);
    let b = registry.tool("b").unwrap();
    assert_eq!((b.timeout.as_secs(), b.result_bytes), (5, 1_024));
    let c = registry.tool("c").unwrap();
    assert_eq!((c.life, c.enabled), (SandboxLife::Session, false));
    assert!(registry.tool("../a").is_none());
}

#[test]
fn mistakes_are_named_and_leave_others_alone() {
    for (content, why) in [
        (tool("x", "color = 1"), "unknown field `color`"),
        (
            tool("x", "").replace("effect = \"read\"", "effect = \"erase\""),
            "\"erase\" is none",
        ),
        (
            tool("x", "").replace("\"command\"\n", "\"magic\"\n"),
            "\"magic\" is none",
        ),
        (
            tool("x", "").replace("Counts.", " "),
            "tells a model nothing",
        ),
        (
            tool("x", "").replace("[\"wc\"]", "[]"),
            "the program is missing",
        ),
        (
            tool("x", "").replace("[\"wc\"]", "[\"wc\", \"{path}\"]"),
            "{path} is no argument",
        ),
        (tool("x", "timeout = \"2d\""), "a day at most"),
        (tool("x", "timeout = \"soon\""), "timeout: "),
        (tool("x", "result-bytes = \"1GiB\""), "1 MiB at most"),
        (
            tool("x", "limits = { colour = \"1\" }"),
            "there is no limit",
        ),
        (
            tool("x", "result = { type = \"object\" }"),
            "output = \"json\"",
        ),
        (tool("x", "arguments = { type = \"strin\" }"), "arguments: "),
        (tool("\"x y\"", ""), "is no name of a tool"),
        ("[tool.x]\n".to_owned(), "missing field"),
        (
            tool("x", "language = \"python\""),
            "a snippet alone has one",
        ),
        (snippet(""), "there are python, node and shell"),
        (
            snippet("language = \"python\"\ncommand = [\"x\"]"),
            "no command, stdin or arguments",
        ),
        ("tool = 1".to_owned(), "invalid type"),
        ("[upstreams]".to_owned(), "unknown field"),
        (tool("x__y", ""), "as tools of upstreams have"),
        (
            "[upstream.a_b]\ncommand = [\"x\"]".to_owned(),
            "no name of an upstream",
        ),
        (
            "[upstream.Atoll]\ncommand = [\"x\"]".to_owned(),
            "Atoll's own tools",
        ),
        (
            "[upstream.a]\ncommand = []".to_owned(),
            "one of command, url",
        ),
        (
            "[upstream.a]\ncommand = [\"x\"]\neffect = \"x\"".to_owned(),
            "\"x\" is none",
        ),
        (
            "[upstream.a]\ncommand = [\"x\"]\nurl = \"https://a.example\"".to_owned(),
            "one of command, url",
        ),
        (
            "[upstream.a]\nurl = \"https://user@a.example\"".to_owned(),
            "user",
        ),
        (
            "[upstream.a]\nopenapi = \"missing.yaml\"".to_owned(),
            "missing.yaml: No such file",
        ),
        (
            "[upstream.a.database]\nurl = \"postgresql://u:p@h/d\"\ntables.\"a.b\" = {}".to_owned(),
            "no password",
        ),
        (
            "[upstream.a.database]\nurl = \"mysql://u@h/d\"\ntables.\"a.b\" = {}".to_owned(),
            "postgresql://USER@HOST",
        ),
        (
            "[upstream.a.database]\nurl = \"sqlite:a\"\nstatements = [\"drop\"]\ntables.a = {}"
                .to_owned(),
            "is none of",
        ),
        (
            "[tool.walk]\nkind = \"builtin\"".to_owned(),
            "comes with Atoll",
        ),
        (
            "[tool.run]\nkind = \"builtin\"\ncommand = [\"x\"]".to_owned(),
            "no command, stdin or arguments",
        ),
        ("[tool.x".to_owned(), "line 1"),
    ] {
        let (_held, registry) = read(&[(FILE, &content), ("tools/b.toml", &tool("good", ""))]);
        assert_eq!(names(&registry), ["good"], "{content}");
        let problems = registry.problems();
        assert!(
            problems.len() == 1 && problems[0].why.contains(why),
            "{content}: {problems:?}"
        );
    }
}

#[test]
fn tool_that_is_described_twice_does_not_count() {
    for other in ["a", "A"] {
        let (_held, registry) = read(&[
            (FILE, &tool("a", "")),
            ("tools/b.toml", &tool(other, "")),
            ("tools/c.toml", &tool("a", "")),
        ]);
        assert!(names(&registry).is_empty(), "{other}");
        assert_eq!(registry.problems().len(), 2);
    }
}

fn snippet(more: &str) -> String {
    format!("[tool.x]\ndescription = \"Runs.\"\nkind = \"snippet\"\neffect = \"write\"\n{more}")
}

#[test]
fn upstream_that_is_described_twice_does_not_count() {
    let upstream = "[upstream.a]\ncommand = [\"x\"]";
    let (_held, registry) = read(&[
        (FILE, upstream),
        ("tools/b.toml", upstream),
        ("tools/c.toml", upstream),
    ]);
    assert!(registry.upstream("a").is_none());
    assert_eq!(registry.problems().len(), 2);
}

/// Nobody is unlimited because of a mistake.
#[test]
fn limits_that_cannot_be_read_leave_no_tool() {
    for limits in [
        "[session]\nmost = 1\n[caller]\nrates = [\"1/m\"]",
        "[caller]\nrate = [\"1/w\"]",
        "[session]\nmost = 1\n[other]",
        "[session",
        "session.most = \"1\"",
    ] {
        let (_held, registry) = read(&[(FILE, &tool("a", "")), ("tools/b.toml", limits)]);
        assert!(names(&registry).is_empty(), "{limits}");
        let problems = registry.problems();
        let said = problems
            .iter()
            .any(|one| one.why.contains("no tool can be called"));
        assert!(said && problems.len() == 2, "{limits}: {problems:?}");
    }
    let limits = "[session]\nmost = 1\n[caller]\nrate = [\"1/m\"]";
    let (_held, registry) = read(&[(FILE, &tool("a", "")), ("tools/b.toml", limits)]);
    assert_eq!(names(&registry), ["a"]);
}

#[test]
fn registry_is_read_again_when_a_file_changes() {
    let (held, _) = read(&[(FILE, &tool("a", ""))]);
    let switches = ToolSwitches::new(held.path(), held.path());
    let first = switches.registry();
    assert!(Arc::ptr_eq(&first, &switches.registry()));
    fs::write(held.path().join("tools/more.toml"), tool("b", "")).unwrap();
    assert_eq!(names(&switches.registry()), ["a", "b"]);
    let name = ToolName::parse("a").unwrap();
    switches.switch(&name, false).unwrap();
    assert!(!switches.registry().tool("a").unwrap().enabled);
    switches.switch(&name, true).unwrap();
    assert!(switches.registry().tool("a").unwrap().enabled);
}

/// Nobody knows which tools are off then.
#[test]
fn switches_that_cannot_be_read_leave_no_tool() {
    let (held, _) = read(&[(FILE, &tool("a", "")), (SWITCHES, "\u{0}")]);
    fs::write(held.path().join(SWITCHES), [0xff]).unwrap();
    let registry = Registry::read(held.path(), held.path());
    assert!(names(&registry).is_empty());
    assert_eq!(registry.problems().len(), 1);
}
