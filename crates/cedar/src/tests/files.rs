//! Contents of policy files, and the reporting of their errors.

use super::{faults, file};
use crate::{Known, POLICIES_MAX, Policies, SOURCE_BYTES_MAX};

const OPEN: &str = "permit(principal, action, resource);";

#[test]
fn mistakes_are_told_by_line_and_column() {
    let check = |text: &str, expected: &str| {
        let found = faults(text);
        let first = found.first().map(String::as_str).unwrap_or_default();
        assert!(first.starts_with(expected), "{text}\n{found:#?}");
    };
    check(
        "permit(principal, action, resource)\nwhen { context.tme > 1 };",
        "/policies/test.cedar:2:8: ",
    );
    check(
        "permit(principal, action,\n  resource) whn { true };",
        "/policies/test.cedar:2:13: ",
    );
    check(
        "permit(principal, action == Action::\"fly\", resource);",
        "/policies/test.cedar:1:",
    );
    check(
        "// ü\npermit(principal, action, resource == User::\"x\");",
        "/policies/test.cedar:2:",
    );
    // What is not stated everywhere is asked for first.
    check(
        "permit(principal, action, resource) when { context.trust == \"low\" };",
        "/policies/test.cedar:1:",
    );
    check(
        "permit(principal == ?principal, action, resource);",
        "/policies/test.cedar:1:1: ",
    );
    check(
        "@id(\"a\") permit(principal, action, resource);\n@id(\"a\") forbid(principal, action, resource);",
        "/policies/test.cedar:2:1: @id \"a\" is that of /policies/test.cedar:1 too",
    );
    check(
        "@rate(\"often\") permit(principal, action, resource);",
        "/policies/test.cedar:1:1: @rate: it is a number and a time",
    );
    check(
        "@approve(\"person\") forbid(principal, action, resource);",
        "/policies/test.cedar:1:1: @approve is for what is permitted",
    );
    check(
        "@report_only(\"x\") permit(principal, action, resource);",
        "/policies/test.cedar:1:1: @report_only has no value",
    );
}

#[test]
fn syntax_error_names_what_is_missing() {
    let check = |text: &str, expected: &str| {
        let found = faults(text);
        let first = found.first().map(String::as_str).unwrap_or_default();
        let told = first.strip_prefix("/policies/test.cedar:");
        assert_eq!(told, Some(expected), "{text}");
    };
    let missing = "a `;` is missing at the end of the policy";
    let open = OPEN.trim_end_matches(';');
    check(&format!("{open}\n{OPEN}"), &format!("1:36: {missing}"));
    check(
        &format!("{open} @id(\"b\") {OPEN}"),
        &format!("1:36: {missing}"),
    );
    check(
        &format!("{open} when {{ true }}\nforbid(principal, action, resource);"),
        &format!("1:50: {missing}"),
    );
    check(
        "permit(principal, action, resource",
        "1:35: unexpected end of input, expected `)` or `,`",
    );
    check(
        "permit(principal, action == Action::\"run, resource);",
        "1:37: the text that begins here has no closing `\"`",
    );
    check(
        "permit(principal, action, resource) when { [1, 2 };",
        "1:50: unexpected token `}`, expected `,` or `]`",
    );
}

/// Latin "a" and Cyrillic "а" are two texts that look alike.
#[test]
fn what_looks_alike_stands_in_comments_alone() {
    let id = |id: &str| format!("@id(\"{id}\") {OPEN}");
    assert_eq!(faults(&id("a")).len(), 0);
    for text in [
        id("\u{430}"),
        id("a\\u{430}"),
        "permit(principal, action, resource == Path::\"/srv/\u{430}\");".to_owned(),
        format!("// \u{202e}nothing\n{OPEN}"),
        format!("// zero\u{200b}width\n{OPEN}"),
        format!("\u{feff}{OPEN}"),
    ] {
        assert_eq!(faults(&text).len(), 1, "{text:?}");
    }
    let escaped = "permit(principal, action, resource == Path::\"/srv/\\u{430}\"); // ünï";
    assert_eq!(faults(escaped).len(), 0);
}

/// Cedar ends a comment at a lone carriage return: anything after it is code.
#[test]
fn a_line_ends_for_whoever_reads_it() {
    let check = |text: &str, expected: &str| {
        let found = faults(text);
        let first = found.first().map(String::as_str).unwrap_or_default();
        assert!(first.starts_with(expected), "{text:?} {found:?}");
    };
    let hidden = format!("{OPEN}\n// x\rforbid(principal, action, resource);");
    check(&hidden, "/policies/test.cedar:2:5: a carriage return");
    for text in [
        format!("// x\r{}", "(".repeat(20_000)),
        format!("// x\r{OPEN}\n"),
        format!("{OPEN}\r"),
        format!("{OPEN}\r\r\n"),
        format!("{OPEN} //\r"),
    ] {
        check(&text, "/policies/test.cedar:1:");
    }
    assert_eq!(faults(&format!("// x\r\n{OPEN}\r\n//\r\n")).len(), 0);
    let count = |text: &str| {
        Policies::compile(&[file(text)], Known::default())
            .unwrap()
            .len()
    };
    assert_eq!(count(&format!("// {OPEN}\r\n{OPEN} // {OPEN}\r\n")), 1);
}

/// An id in another form than questions use would forbid nothing.
#[test]
fn names_stand_in_the_form_in_which_they_are_asked_for() {
    let check = |kind: &str, id: &str, is_good: bool| {
        let text =
            format!("forbid(principal, action, resource) when {{ resource == {kind}::\"{id}\" }};");
        let found = faults(&text);
        let is_told = found.iter().any(|one| one.contains("stands for nothing"));
        assert_eq!(!is_told, is_good, "{text} {found:?}");
    };
    for (kind, good, bad) in [
        ("Host", "example.com", "Example.com"),
        ("Host", "*.example.com", "*"),
        ("Host", "10.1.2.3", "010.1.2.3"),
        ("Host", "2001:db8::1", "2001:DB8::1"),
        ("Host", "xn--bcher-kva.example", "example.com."),
        ("Host", "host.atoll.internal", "https://example.com"),
        ("Host", "a_b.example.com", "example.com:443"),
        ("Path", "/srv/a", "/srv/a/"),
        ("Path", "/", "srv"),
        ("Path", "/a b", "/srv/../etc"),
        ("Path", "/.a", "/srv//a"),
        ("Program", "git", "bin/"),
        ("Port", "3000", "0"),
        ("Port", "65535", "65536"),
        ("Port", "1", "01"),
        ("Credential", "github", ""),
    ] {
        check(kind, good, true);
        check(kind, bad, false);
    }
    let person = |id: &str| {
        faults(&format!(
            "permit(principal in Person::\"{id}\", action, resource);"
        ))
        .len()
    };
    assert_eq!((person("1000"), person("ann"), person("+1")), (0, 1, 1));
}

#[test]
fn a_file_has_an_end() {
    let refused = |text: String, why: &str| {
        let found = faults(&text);
        assert!(
            found.iter().any(|one| one.contains(why)),
            "{why}: {:?}",
            found.first()
        );
    };
    refused(
        " ".repeat(SOURCE_BYTES_MAX + 1),
        "longer than 1048576 bytes",
    );
    refused(
        format!("{OPEN}\n").repeat(POLICIES_MAX + 1),
        "more than 4000 policies",
    );
    let nested = |depth: usize| {
        let (open, close) = ("(".repeat(depth), ")".repeat(depth));
        format!("permit(principal, action, resource) when {{ {open}true{close} }};")
    };
    refused(nested(40), "brackets are open");
    assert_eq!(faults(&nested(20)), Vec::<String>::new());
    let set = |many: usize| {
        let all: Vec<String> = (1..=many).map(|one| one.to_string()).collect();
        format!(
            "permit(principal, action, resource) when {{ [{}].contains(context.time) }};",
            all.join(",")
        )
    };
    refused(set(300), "more than 256 entries");
    assert_eq!(faults(&set(256)), Vec::<String>::new());
    refused(
        format!(
            "permit(principal, action, resource) when {{ {}true }};",
            "true && ".repeat(2000)
        ),
        "a policy is longer",
    );
    // Brackets and commas of texts and comments are none.
    let texts = format!(
        "permit(principal, action, resource) when {{ context.mode == \"{}\" }}; // {}",
        "([{,".repeat(300),
        "((".repeat(50)
    );
    assert_eq!(faults(&texts), Vec::<String>::new());
    let bytes = crate::PolicyFile {
        name: "/x.cedar".to_owned(),
        content: b"//\n\xff".to_vec(),
    };
    let found = Policies::compile(&[bytes], Known::default()).unwrap_err();
    assert_eq!(found[0].to_string(), "/x.cedar:2:1: it is not UTF-8");
}

proptest::proptest! {
    /// Reading a file returns, whatever is in it.
    #[test]
    fn any_text_is_read_or_refused(text in "[ -~\n]{0,300}", bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
        let _ = faults(&text);
        let any = crate::PolicyFile { name: "x".to_owned(), content: bytes };
        let _ = Policies::compile(&[any], Known::default());
    }
}

/// Cedar reports it once for each action and each type of principal.
#[test]
fn one_mistake_about_every_action_is_told_once() {
    let check = |condition: &str, expected: &[&str]| {
        let text = format!("forbid(principal, action, resource) when {{ {condition} }};");
        assert_eq!(faults(&text), expected, "{text}");
    };
    check(
        "context.port == 22",
        &[
            "/policies/test.cedar:1:44: `port` is not in the context of every action\n  \
           name the actions, as action in [Action::\"connect\", Action::\"request\"]",
        ],
    );
    check(
        "context.trust == \"low\"",
        &["/policies/test.cedar:1:44: `trust` is not always known\n  \
           ask for it first: context has trust && ..."],
    );
}

#[test]
fn two_policies_on_one_line_are_told_apart() {
    let two = format!("{OPEN} {OPEN}");
    let told = "two policies begin on line 1: give them @id, or lines of their own";
    assert!(faults(&two)[0].ends_with(told), "{:?}", faults(&two));
    assert_eq!(faults(&format!("@id(\"a\") {OPEN} {OPEN}")).len(), 0);
    let same = format!("@id(\"a\") {OPEN} @id(\"a\") {OPEN}");
    assert!(faults(&same)[0].contains("@id \"a\" is that of"));
}
