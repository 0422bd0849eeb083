//! Each rule is shown to find a bad sample and to leave a good one alone.

mod shapes;

use std::path::PathBuf;

use super::dependencies::Graph;
use super::rules::Rules;
use super::source;
use super::specification::Ran;
use super::{Finding, budgets, check, commits, dependencies, falling, modules, seeds};
use crate::tree::{SourceFile, Tree};

const RULES: &str = include_str!("../../../../tidy.toml");

fn rules() -> Rules {
    let mut rules: Rules = toml::from_str(RULES).unwrap();
    rules.specification.clauses = [("C".to_owned(), 1)].into();
    rules.long_files.clear();
    rules.falling = Default::default();
    rules
}

fn tree(files: &[(&str, &str)]) -> Tree {
    let specification = ("SPECIFICATION.md", "| C1 | promise | pending | |");
    let given = files.iter().any(|(path, _)| *path == specification.0);
    let files = files.iter().chain((!given).then_some(&specification));
    Tree {
        root: PathBuf::from("/lagoon/atoll"),
        files: files
            .map(|(path, text)| SourceFile {
                path: (*path).to_owned(),
                text: (*text).to_owned(),
            })
            .collect(),
    }
}

/// Returns the findings as `path:line: what`.
fn found(files: &[(&str, &str)]) -> Vec<String> {
    lines(check(&tree(files), &rules(), None))
}

fn lines(findings: Vec<Finding>) -> Vec<String> {
    let first = |finding: Finding| finding.to_string().lines().next().unwrap().to_owned();
    findings.into_iter().map(first).collect()
}

/// Joins a word that the check would refuse in this very file.
fn split(one: &str, other: &str) -> String {
    format!("{one}{other}")
}

#[test]
fn masking_leaves_only_code() {
    let cases = [
        ("a // b", "a     "),
        ("a /* b /* c */ d */ e", "a                   e"),
        ("a \"{\\\"}\" b", "a \"\"\"\"\"\" b"),
        ("r#\"{\"# b", "\"\"\"\"\"\" b"),
        ("br\"{\" b", "b\"\"\"\" b"),
        ("'{' 'a '\\'' b", "\"\"\" 'a \"\"\"\" b"),
        ("r#fn for<'a> b", "r#fn for<'a> b"),
    ];
    for (input, expected) in cases {
        assert_eq!(source::mask(input), expected, "{input}");
    }
}

#[test]
fn functions_are_measured() {
    let text = "fn a(x: [u8; 2]) {\n    // why\n\n    b('}');\n}\ntrait T { fn c(); }\n\
                #[test]\n/// doc\npub fn d<'a>() where T: U {}\ntype F = fn(u8) -> u8;\n";
    let functions = source::functions(&source::mask(text));
    let seen: Vec<_> = functions
        .iter()
        .map(|function| {
            (
                function.name.as_str(),
                function.line,
                function.lines,
                function.is_test,
            )
        })
        .collect();
    assert_eq!(seen, [("a", 1, 3, false), ("d", 9, 1, true)]);
}

#[test]
fn test_items_are_left_out() {
    let text =
        "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() {}\n}\n#[cfg(test)]\nmod c;\nfn d() {}\n";
    let without = source::without_tests(&source::mask(text));
    let names: Vec<_> = source::functions(&without)
        .into_iter()
        .map(|found| found.name)
        .collect();
    assert_eq!(names, ["a", "d"]);
    assert_eq!(without.lines().count(), text.lines().count());
}

#[test]
fn what_only_tests_of_attacks_compile_is_left_out() {
    let text = "fn a() {\n    #[cfg(feature = \"without_defences\")]\n    if b() {\n        return;\n    }\n    \
                c();\n}\n#[cfg(feature = \"another\")]\nfn d() {}\n#[cfg(not(feature = \"without_defences\"))]\n\
                fn e() {}\n";
    let without = source::without_tests(&source::mask(text));
    let names: Vec<_> = source::functions(&without)
        .into_iter()
        .map(|found| (found.name, found.lines))
        .collect();
    let expected = [("a", 3), ("d", 1), ("e", 1)].map(|(name, lines)| (name.to_owned(), lines));
    assert_eq!(names, expected);
    assert_eq!(without.lines().count(), text.lines().count());
}

#[test]
fn long_files_need_a_reason_and_have_an_end() {
    let long = "\n".repeat(501);
    let too_long = "\n".repeat(1001);
    assert_eq!(
        found(&[("crates/model/src/a.rs", &long)]),
        ["crates/model/src/a.rs:1: 501 lines, more than 500"]
    );
    assert!(found(&[("crates/model/src/tests.rs", &too_long)]).is_empty());

    let mut rules = rules();
    let entry = |data: bool| super::rules::LongFile {
        path: "crates/model/src/a.rs".to_owned(),
        reason: "one table".to_owned(),
        data,
    };
    rules.long_files = vec![entry(false)];
    assert!(check(&tree(&[("crates/model/src/a.rs", &long)]), &rules, None).is_empty());
    assert_eq!(
        check(&tree(&[("crates/model/src/a.rs", &too_long)]), &rules, None).len(),
        1
    );
    assert_eq!(
        check(&tree(&[("crates/model/src/a.rs", "")]), &rules, None).len(),
        1
    );
    rules.long_files = vec![entry(true)];
    assert!(check(&tree(&[("crates/model/src/a.rs", &too_long)]), &rules, None).is_empty());
}

#[test]
fn long_functions_are_found() {
    let long = format!("\nfn long() {{\n{}}}\n", "    a();\n".repeat(69));
    assert_eq!(
        found(&[("crates/model/src/a.rs", &long)]),
        ["crates/model/src/a.rs:2: `long` has 71 lines, more than 70"]
    );
    let explained = format!("fn long() {{\n{}}}\n", "    // why\n\n".repeat(69));
    assert!(found(&[("crates/model/src/a.rs", &explained)]).is_empty());
}

#[test]
fn audited_lines_are_counted_without_tests() {
    let text = "fn a() {}\n// why\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n";
    let tree = tree(&[
        ("crates/sys/src/a.rs", text),
        ("crates/model/src/a.rs", "\n\n\n"),
    ]);
    assert_eq!(budgets::audited_lines(&tree, &rules()), 2);
}

#[test]
fn refused_words_are_found() {
    let unsafe_block = "fn a() { unsafe {} }";
    let mark = format!("// {}: later\n", split("TO", "DO"));
    let call = format!("fn a() {{ {}() }}", split("to", "do!"));
    let cases: [(&str, &str, &[&str]); 10] = [
        (
            "crates/model/src/a.rs",
            unsafe_block,
            &["crates/model/src/a.rs:1: `unsafe`"],
        ),
        ("crates/sys/src/a.rs", unsafe_block, &[]),
        (
            "crates/model/src/a.rs",
            "// unsafe\nstatic A: &str = \"unsafe\";",
            &[],
        ),
        (
            "crates/model/src/a.rs",
            &mark,
            &["crates/model/src/a.rs:1: a mark of unfinished work"],
        ),
        (
            "crates/model/src/a.rs",
            &call,
            &["crates/model/src/a.rs:1: a mark of unfinished work"],
        ),
        (
            "crates/model/src/file_utils.rs",
            "",
            &["crates/model/src/file_utils.rs:1: the name `file_utils`"],
        ),
        (
            "crates/model/src/a.rs",
            "\nmod helpers {}",
            &["crates/model/src/a.rs:2: the name `helpers`"],
        ),
        ("crates/model/src/a.rs", "mod commonplace {}", &[]),
        (
            "A.md",
            "see /lagoon/other/file",
            &["A.md:1: a path of this machine"],
        ),
        ("A.md", "see crates/lagoon/file and /tmp/file", &[]),
    ];
    for (path, text, expected) in cases {
        assert_eq!(found(&[(path, text)]), expected, "{text}");
    }
}

#[test]
fn places_of_the_build_are_not_looked_for() {
    let cases = [
        ("fn a() -> &str { env!(\"CARGO_MANIFEST_DIR\") }", 1),
        (
            "static A: &str = include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/a\"));",
            0,
        ),
        ("fn a() { std::env::var_os(\"CARGO_MANIFEST_DIR\"); }", 0),
        ("// env!(\"CARGO_MANIFEST_DIR\")", 0),
    ];
    for (text, count) in cases {
        let files = [("crates/model/src/tests.rs", text)];
        assert_eq!(found(&files).len(), count, "{text}");
    }
}

#[test]
fn facades_open_only_their_names() {
    let cases = [
        ("use atoll_policy::Grant;", 0),
        ("use atoll_policy::{Grant, Rules};", 1),
        ("fn a(x: atoll_ledger::Ledger) {}", 1),
        ("use atoll_ledger::*;", 1),
        ("use atoll_ledger as s;", 1),
        (
            "// atoll_ledger::Ledger\n#[cfg(test)]\nuse atoll_ledger::Ledger;",
            0,
        ),
    ];
    for (text, count) in cases {
        assert_eq!(
            found(&[("crates/sandbox/src/a.rs", text)]).len(),
            count,
            "{text}"
        );
        assert!(
            found(&[("crates/engine/src/a.rs", text)]).is_empty(),
            "{text}"
        );
    }
}

#[test]
fn links_lead_somewhere() {
    let cases = [
        (
            "[a](B.md) [b](crates/model) [c](https://x.example/y) [d](#here)",
            0,
        ),
        ("[a](C.md)", 1),
        ("[a](../B.md)", 1),
        ("`[a](C.md)`\n```\n[a](C.md)\n```\n", 0),
        ("[a]: C.md", 1),
        ("![a](B.md#part)", 0),
    ];
    for (text, count) in cases {
        let files = [
            ("A.md", text),
            ("B.md", ""),
            ("crates/model/src/lib.rs", ""),
        ];
        assert_eq!(found(&files).len(), count, "{text}");
    }
}

#[test]
fn the_specification_is_held_by_tests() {
    let test = "#[test]\nfn holds() {}\nfn other() {}\n";
    let table = "const ROWS: [&str; 1] = [\"row-one\"];";
    let cases = [
        ("| C1 | promise | works | `holds` |", 0),
        ("| C1 | promise | works | `row-one` |", 0),
        ("| C1 | promise | works | |", 1),
        ("| C1 | promise | works | `absent` |", 1),
        ("| C1 | promise | works | `other` |", 1),
        (
            "| C1 | promise | partial | tests: `holds` missing: `--root` |",
            0,
        ),
        ("| C1 | promise | partial | `holds` |", 1),
        ("| C1 | promise | pending | `holds` |", 1),
        ("| C1 | promise | done | |", 1),
        (
            "| C1 | a \\| b | pending | |\n| C1 | promise | pending | |",
            1,
        ),
        (
            "| C1 | promise | pending | |\n| C2 | promise | pending | |",
            1,
        ),
        ("nothing", 1),
    ];
    for (text, count) in cases {
        let files = [
            ("SPECIFICATION.md", text),
            ("crates/model/src/tests.rs", test),
            ("crates/e2e/tests/run.rs", table),
        ];
        assert_eq!(found(&files).len(), count, "{text}");
    }
}

#[test]
fn named_tests_were_run() {
    let files = [
        (
            "SPECIFICATION.md",
            "| C1 | promise | works | `a`, `b_slow` |",
        ),
        (
            "crates/model/src/tests.rs",
            "#[test]\nfn a() {}\n#[test]\nfn b_slow() {}\n",
        ),
    ];
    let cases = [
        ("full\nran x::y$tests::a\nleft-out x::y$tests::b_slow\n", 0),
        ("full\nran x::y$tests::a\n", 1),
        ("full\nran x::y$a\nran x::y$other::b_slow\n", 0),
        ("nightly\n", 2),
        ("quick\n", 0),
        ("filtered\n", 0),
    ];
    for (ran, count) in cases {
        let findings = check(&tree(&files), &rules(), Some(&Ran::parse(ran)));
        assert_eq!(findings.len(), count, "{ran}");
    }
}

/// Makes the graph of a workspace of two crates and one package from outside.
fn graph(dependency: &str, kind: &str) -> Graph {
    Graph::parse(&format!(
        r#"{{"packages":[
            {{"id":"frame","name":"atoll-frame","manifest_path":"/a/crates/frame/Cargo.toml"}},
            {{"id":"cli","name":"atoll-cli","manifest_path":"/a/crates/cli/Cargo.toml"}},
            {{"id":"serde","name":"serde","manifest_path":"/b/serde/Cargo.toml"}}],
          "workspace_members":["frame","cli"],
          "resolve":{{"nodes":[
            {{"id":"cli","deps":[{{"pkg":"serde","dep_kinds":[{{"kind":null}}]}}]}},
            {{"id":"frame","deps":[{{"pkg":"{dependency}","dep_kinds":[{{"kind":{kind}}}]}}]}}]}}}}"#
    ))
    .unwrap()
}

#[test]
fn dependencies_follow_the_map() {
    let manifest = "[package]\nname = \"x\"\n[lints]\nworkspace = true\n";
    let files = [
        ("crates/frame/Cargo.toml", manifest),
        ("crates/cli/Cargo.toml", manifest),
    ];
    let cases: [(&str, &str, &[&str]); 4] = [
        (
            "serde",
            "null",
            &["crates/frame/Cargo.toml:1: `frame` brings in `serde`"],
        ),
        ("serde", "\"dev\"", &[]),
        (
            "cli",
            "\"build\"",
            &[
                "crates/frame/Cargo.toml:1: `frame` depends on `cli`",
                "crates/frame/Cargo.toml:1: `frame` brings in `serde`",
            ],
        ),
        ("cli", "\"dev\"", &[]),
    ];
    for (dependency, kind, expected) in cases {
        let graph = graph(dependency, kind);
        let findings = dependencies::check(&tree(&files), &rules(), &graph);
        assert_eq!(lines(findings), expected, "{dependency} {kind}");
    }
}

#[test]
fn what_a_crate_may_never_bring_in_is_refused() {
    let manifest = "[package]\nname = \"x\"\n[lints]\nworkspace = true\n";
    let files = [
        ("crates/frame/Cargo.toml", manifest),
        ("crates/cli/Cargo.toml", manifest),
    ];
    let mut rules = rules();
    let cli = rules.crates.get_mut("cli").unwrap();
    cli.never = vec!["serde".to_owned()];
    let findings = dependencies::check(&tree(&files), &rules, &graph("serde", "\"dev\""));
    assert_eq!(
        lines(findings),
        ["crates/cli/Cargo.toml:1: `cli` brings in `serde`"]
    );
}

#[test]
fn every_crate_is_on_the_map_with_the_lints() {
    let files = [
        ("crates/frame/Cargo.toml", "[lints]\n"),
        ("crates/cli/Cargo.toml", ""),
    ];
    let mut rules = rules();
    rules.crates.remove("cli");
    let findings = dependencies::check(&tree(&files), &rules, &graph("serde", "\"dev\""));
    assert_eq!(
        lines(findings),
        [
            "crates/cli/Cargo.toml:1: own lints",
            "crates/cli/Cargo.toml:1: `cli` is not on the map",
            "crates/frame/Cargo.toml:1: own lints",
        ]
    );
}

#[test]
fn seeds_are_few_and_small_and_belong_to_a_target() {
    let targets = ["a".to_owned(), "b".to_owned()];
    let seeds = |list: &[(&str, u64)]| {
        let list: Vec<_> = list
            .iter()
            .map(|(path, bytes)| (format!("fuzz/corpus/{path}"), *bytes))
            .collect();
        lines(seeds::findings(&targets, &list, &rules()))
    };
    assert_eq!(seeds(&[("a/x", 1), ("b/x", 4096)]), [""; 0]);
    assert_eq!(
        seeds(&[("a/x", 4097), ("c/x", 1)]),
        [
            "fuzz/corpus/a/x:1: 4097 bytes, more than 4096",
            "fuzz/corpus/c/x:1: a seed of no target",
            "fuzz/Cargo.toml:1: the target `b` has 0 seeds, not 1 to 12",
        ]
    );
    let many: Vec<(String, u64)> = (0..13)
        .map(|number| (format!("fuzz/corpus/a/{number}"), 1))
        .collect();
    assert_eq!(seeds::findings(&targets, &many, &rules()).len(), 2);
}

#[test]
fn cycles_of_modules_are_found() {
    type Files<'a> = &'a [(&'a str, &'a str)];
    let cases: [(Files<'_>, &[&str]); 7] = [
        (
            &[("a.rs", "use crate::b::B;"), ("b.rs", "use crate::c::C;")],
            &[],
        ),
        (
            &[("a.rs", "use crate::b::B;"), ("b.rs", "use crate::a::A;")],
            &["a", "b"],
        ),
        (
            &[
                ("a.rs", "use crate::{x, b::{B, D}};"),
                ("b.rs", ""),
                ("b/inner.rs", "crate::c::f();"),
                ("c.rs", "use super::a;"),
            ],
            &["a", "b", "c"],
        ),
        (
            &[
                ("lib.rs", "pub use b::{B, C as D};"),
                ("a.rs", "use crate::D;"),
                ("b.rs", "use crate::a::A;"),
            ],
            &["a", "b"],
        ),
        (
            &[
                ("lib.rs", "pub use b::{\n    B,\n    C,\n};"),
                ("a.rs", "use crate::{\n    d::D,\n};"),
                ("b.rs", "use crate::a::A;"),
                ("d.rs", ""),
            ],
            &[],
        ),
        (
            &[
                ("a.rs", "// use crate::b::B;"),
                ("b.rs", "use crate::a::A;"),
            ],
            &[],
        ),
        (
            &[
                ("a.rs", "#[cfg(test)]\nuse crate::b::B;"),
                ("b.rs", "use crate::a::A;"),
            ],
            &[],
        ),
    ];
    for (files, expected) in cases {
        let files: Vec<(String, &str)> = files
            .iter()
            .map(|(path, text)| (format!("crates/frame/src/{path}"), *text))
            .collect();
        let files: Vec<(&str, &str)> = files
            .iter()
            .map(|(path, text)| (path.as_str(), *text))
            .collect();
        assert_eq!(
            modules::in_cycles(&modules::read(&tree(&files), "frame")),
            expected,
            "{files:?}"
        );
    }
}

#[test]
fn falling_counts_neither_rise_nor_stay_high() {
    let text = "/// What is known.\npub struct A;\nfn f((a, b): (u8, u8)) {}\n";
    let files = [("crates/frame/src/a.rs", text)];
    for (allowed, expected) in [(0, 2), (1, 0), (2, 2)] {
        let mut rules = rules();
        rules
            .falling
            .doc_openers
            .insert("frame".to_owned(), allowed);
        rules
            .falling
            .tuple_parameters
            .insert("frame".to_owned(), allowed);
        assert_eq!(
            falling::check(&tree(&files), &rules).len(),
            expected,
            "{allowed}"
        );
    }
}

#[test]
fn openers_and_tuples_are_counted() {
    let cases = [
        ("/// What is known.\n/// Where it is.\nfn f() {}", 1, 0),
        (
            "/// Whatever comes.\n/// A reader. That it ends.\nfn f() {}",
            0,
            0,
        ),
        ("//! The same again.\n", 1, 0),
        ("fn f(a: (u8, u8), g: fn(u8)) {}", 0, 0),
        (
            "fn f(\n    (a, b): (A, B),\n    (c, _): (C, D),\n) {}",
            0,
            2,
        ),
    ];
    for (text, openers, tuples) in cases {
        let file = SourceFile {
            path: "crates/frame/src/a.rs".to_owned(),
            text: text.to_owned(),
        };
        assert_eq!(falling::doc_openers(&file), openers, "{text}");
        assert_eq!(falling::tuple_parameters(&file), tuples, "{text}");
    }
}

#[test]
fn subjects_of_commits_have_an_area() {
    let cases = [
        ("egress: refuse an empty length", true),
        ("egress, model: refuse it", true),
        ("Refuse it", false),
        ("egress: Refuse it", false),
        ("egress: refuse it.", false),
        ("a sentence that tells: something", true),
        ("The sentence: something", false),
    ];
    for (subject, is_right) in cases {
        assert_eq!(commits::wrong(subject).is_none(), is_right, "{subject}");
    }
    assert!(commits::wrong(&format!("egress: {}", "x".repeat(65))).is_some());
}
