//! Limits on the depth of a policy, so that no stack overflows.

use serde_json::Value;

use super::{compiled, facts, faults, file, principal};
use crate::depth::{DEPTH_MAX, Depth};
use crate::{Asked, Known, Policies, Question, remarks};

const HEAD: &str = "forbid(principal, action == Action::\"connect\", resource)";

fn when(condition: &str) -> String {
    format!("@id(\"row\") {HEAD} when {{ {condition} }};")
}

/// Texts that Cedar nests without a bracket around them: the start, a part to be repeated, and the
/// end.
const ROWS: [(&str, &str, &str); 23] = [
    ("", "true && ", "true"),
    ("", "true || ", "true"),
    ("", "1 < 2 && true || ", "true"),
    ("", "if true then true else ", "true"),
    ("", "if true || false then true else ", "true"),
    ("", "1 + ", "1 > 2"),
    ("", "1 * ", "1 > 2"),
    ("", "1 - ", "1 > 2"),
    ("", "context.labels.a.b || ", "true"),
    ("", "context has a.b.c && ", "true"),
    ("", "[1].contains(1) || ", "true"),
    ("", "true } unless { ", "true"),
    ("", "principal is Agent in Agent::\"a\" && ", "true"),
    ("context", "[\"a\"]", " == 1"),
    ("context", " [ \"a\" ]\n", " == 1"),
    ("principal", "[\"a\"].b", " == 1"),
    ("{\"a\": 1}", "[\"a\"]", " == 1"),
    ("[1]", "[\"a\"]", " == 1"),
    ("\"a\"", "[\"a\"]", " == 1"),
    ("(true)", "[\"a\"]", " == 1"),
    ("ip(\"127.0.0.1\")", "[\"a\"]", " == 1"),
    ("[1]", ".contains(1)", ""),
    (
        "",
        "context.a like \"*\" && principal is Agent && context has \"a\" && ",
        "true",
    ),
];

/// Texts that Cedar refuses while it builds its tree, and that must not overflow a stack before
/// that.
const REFUSED: [(&str, &str, &str); 11] = [
    ("ip", "(\"127.0.0.1\")", ""),
    ("context.a", "(1)", ""),
    ("", "1 == ", "1"),
    ("", "1 in ", "1"),
    ("", "1 / ", "1"),
    ("", "1 % ", "1"),
    ("", "!", "true"),
    ("1 == ", "-", "1"),
    ("context", " has a", ""),
    ("context.a", " like \"a\"", ""),
    ("principal", " is Agent", ""),
];

/// Returns the depth of Cedar's own tree, in whose JSON each operator is an object with its name as
/// the only key.
fn of_tree(text: &str) -> usize {
    let set: cedar_policy::PolicySet = text.parse().unwrap();
    let policy = set.policies().next().unwrap().to_json().unwrap();
    let clauses = policy["conditions"].as_array().unwrap();
    let deepest = clauses.iter().map(|one| objects(&one["body"])).max();
    clauses.len() + deepest.unwrap_or(0) / 2
}

fn objects(read: &Value) -> usize {
    match read {
        Value::Array(all) => all.iter().map(objects).max().unwrap_or(0),
        Value::Object(all) => 1 + all.values().map(objects).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn of_text(text: &str) -> usize {
    let mut depth = Depth::default();
    text.chars().for_each(|one| depth.take(one));
    depth.end()
}

#[test]
fn no_policy_is_deeper_than_its_text_tells() {
    for (first, part, last) in ROWS {
        for many in [1, 2, 10, 40] {
            for (open, close) in [("", ""), ("true && (", ")"), ("[[", "]].contains([true])")] {
                let row = format!("{first}{}{last}", part.repeat(many));
                if part.contains('}') && !open.is_empty() {
                    continue;
                }
                let text = when(&format!("{open}{row}{close}"));
                let (told, is) = (of_text(&text), of_tree(&text));
                assert!(told >= is, "{told} {is}: {text}");
                assert!(told <= 4 * is + 8, "{told} {is}: {text}");
            }
        }
    }
}

/// Each `||` nests one level deeper: 900 of them overflowed the stack.
#[test]
fn a_condition_that_is_too_deep_is_told_with_its_id_and_what_to_write() {
    for by in [" || ", " && "] {
        let row = |long: usize| {
            let all = (0..long).map(|port| format!("context.port == {port}"));
            all.collect::<Vec<_>>()
        };
        let found = faults(&when(&row(200).join(by)));
        assert!(
            matches!(found.as_slice(), [one] if one.starts_with("/policies/test.cedar:1:1: policy row is 20")
                && one.contains(".contains(x)")),
            "{found:?}"
        );
        assert_eq!(faults(&when(&row(100).join(by))), Vec::<String>::new());
        // What it says to write.
        let grouped: Vec<String> = row(200)
            .chunks(8)
            .map(|some| format!("({})", some.join(by)))
            .collect();
        assert_eq!(faults(&when(&grouped.join(by))), Vec::<String>::new());
    }
    let ports: Vec<String> = (0..200).map(|port| port.to_string()).collect();
    let listed = when(&format!("[{}].contains(context.port)", ports.join(", ")));
    assert_eq!(faults(&listed), Vec::<String>::new());
    let found = faults(&when(&["true"; 900].join("||")));
    assert!(
        found[0].contains("policy row is 903 operators deep"),
        "{found:?}"
    );
}

/// All clauses form one chain, and each policy is reported where it begins.
#[test]
fn what_is_too_deep_is_counted_over_all_clauses_of_one_policy() {
    let clauses = |many: usize| format!("{HEAD} {};", "when { true }\n".repeat(many));
    assert_eq!(faults(&clauses(100)), Vec::<String>::new());
    let two = format!("{}\n// A comment.\n\n{}", clauses(100), clauses(200));
    let found = faults(&two);
    let expected = "/policies/test.cedar:104:1: the policy that begins here is 203 operators deep";
    assert!(found[0].starts_with(expected), "{found:?}");
    // None of these is an operator.
    let texts = when(&format!("context.host == \"{}\"", "a || b && ".repeat(200)));
    let found = faults(&format!("{texts} // {}\n", "a || ".repeat(900)));
    assert!(!found.iter().any(|one| one.contains("deep")), "{found:?}");
    // One that nothing ends is not begun either.
    let found = faults(&format!("{HEAD} when {{ {}", "true ||".repeat(900)));
    assert!(found[0].contains("operators deep"), "{found:?}");
}

/// Cedar doubles each, so thirty nested ones become a thousand million.
#[test]
fn what_doubles_all_before_it_stands_in_itself_a_few_times_alone() {
    let nested = |many: usize| {
        let begin = "principal".to_owned();
        let row = (0..many).fold(begin, |row, _| format!("({row} is Agent in Agent::\"a\")"));
        faults(&when(&row))
    };
    for many in [8, 12, 31] {
        let found = nested(many);
        assert!(
            matches!(found.as_slice(), [one] if one.contains("operators deep")),
            "{found:?}"
        );
    }
    let row = (0..12).fold("1".to_owned(), |row, _| {
        format!("({row} + 1is Agent//\nin Agent::\"a\")")
    });
    assert!(faults(&when(&row))[0].contains("operators deep"));
    // Fewer are read, and of another type than is asked for.
    assert!(nested(6)[0].contains("unexpected type"), "{:?}", nested(6));
    assert_eq!(nested(1), Vec::<String>::new());
    let beside = ["principal is Agent in Agent::\"a\""; 40].join(" && ");
    assert_eq!(faults(&when(&beside)), Vec::<String>::new());
    let member = "context.host is Host in Host::\"a\" && context.instance";
    assert!(!faults(&when(member))[0].contains("deep"));
}

/// A policy at the depth limit is read, linted, printed and decided on by a thread with a small
/// stack, and a deeper one is refused there.
#[test]
fn the_deepest_policy_takes_no_more_than_a_thread_has() {
    let all = ROWS.iter().chain(&REFUSED).flat_map(|(first, part, last)| {
        let of = |many: usize| when(&format!("{first}{}{last}", part.repeat(many)));
        let most = 8_000 / part.len();
        let fits = (1..=most).take_while(|many| of_text(&of(*many)) <= DEPTH_MAX);
        [of(fits.last().unwrap()), of(most)]
    });
    let all: Vec<String> = all.collect();
    let checked = std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(move || all.iter().for_each(|text| use_it(text)));
    checked.unwrap().join().unwrap();
    assert_eq!(compiled(&when("true")).len(), 1);
}

fn use_it(text: &str) {
    let Ok(policies) = Policies::compile(&[file(text)], Known::default()) else {
        return;
    };
    let _ = (remarks(&policies), policies.canonical_texts());
    let (principal, facts) = (principal(), facts());
    let question = Question {
        principal: &principal,
        asked: Asked::Read(std::path::Path::new("/srv")),
        facts: &facts,
    };
    let _ = policies.authorize(&question);
}
