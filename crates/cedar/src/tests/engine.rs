//! Single questions: default deny, forbid over permit, errors, report-only policies, and the schema.

use std::ffi::OsString;
use std::path::Path;

use atoll_model::WorkspaceMode;
use atoll_model::network::{HostName, HostPart, PublishedPort, Request, Scheme, Target};

use super::{compiled, facts, principal};
use crate::vocabulary::Vocabulary;
use crate::{Action, Asked, Decision, Effect, Exec, Facts, Follows, Look, Question, SCHEMA};

fn read(text: &str) -> Decision {
    ask(text, Asked::Read(Path::new("/srv/a")), &facts())
}

fn ask(text: &str, asked: Asked<'_>, facts: &Facts) -> Decision {
    let principal = principal();
    compiled(text).authorize(&Question {
        principal: &principal,
        asked,
        facts,
    })
}

const PERMIT: &str = "@id(\"open\") permit(principal, action == Action::\"read\", resource);";

#[test]
fn forbid_beats_permit_and_nothing_is_denied() {
    let forbid = "@id(\"closed\") @reason(\"it is secret\") forbid(principal, action, resource in Path::\"/srv\");";
    let elsewhere = "forbid(principal, action, resource in Path::\"/srv/ab\");";
    let check = |texts: &[&str], effect, why: &str| {
        let found = read(&texts.join("\n"));
        assert_eq!(
            (found.effect, found.why().as_str()),
            (effect, why),
            "{texts:?}"
        );
    };
    check(&[""], Effect::Deny, "no policy permits it");
    check(
        &[PERMIT],
        Effect::Allow,
        "permitted by policy open (/policies/test.cedar:1)",
    );
    check(&[elsewhere], Effect::Deny, "no policy permits it");
    check(
        &[PERMIT, elsewhere],
        Effect::Allow,
        "permitted by policy open (/policies/test.cedar:1)",
    );
    let closed = "forbidden by policy closed, it is secret (/policies/test.cedar:2)";
    check(&[PERMIT, forbid], Effect::Deny, closed);
    let found = read(&[PERMIT, forbid].join("\n"));
    assert_eq!(
        found.why_inside(),
        "forbidden by policy closed, it is secret"
    );
}

/// Cedar skips a policy that fails, a forbid too; here both deny.
#[test]
fn a_policy_that_fails_denies() {
    let fails = "(principal, action, resource) when { context.time * 9223372036854775807 > 1 };";
    for effect in ["permit", "forbid"] {
        let found = read(&format!("{PERMIT}\n@id(\"broken\") {effect}{fails}"));
        assert_eq!(found.effect, Effect::Deny, "{effect}");
        assert_eq!(found.errors.len(), 1, "{effect}");
        assert!(found.why().contains("overflow"), "{}", found.why());
        assert_eq!(
            found.why_inside(),
            "its policies cannot tell, which is a denial"
        );
    }
    // One that is not about this does not.
    let elsewhere = "forbid(principal, action == Action::\"call\", resource) when { context.time * 9223372036854775807 > 1 };";
    assert_eq!(
        read(&format!("{PERMIT}\n{elsewhere}")).effect,
        Effect::Allow
    );
}

#[test]
fn report_only_policy_is_told_and_does_not_count() {
    let report_only = "@id(\"later\") @report_only forbid(principal, action, resource);";
    let found = read(&format!("{PERMIT}\n{report_only}"));
    assert_eq!(found.effect, Effect::Allow);
    assert_eq!(found.reported.len(), 1);
    assert_eq!(&*found.reported[0].id, "later");
    let found = read("@report_only permit(principal, action, resource);");
    assert_eq!((found.effect, found.reported.len()), (Effect::Deny, 1));
}

fn request(text: &str, path: &str) -> Decision {
    let host: HostPart = "api.example.com".parse().unwrap();
    let target = Target::parse(path).unwrap();
    let request = Request {
        host: &host,
        port: 443,
        scheme: Scheme::Https,
        method: "GET",
        target: &target,
    };
    ask(text, Asked::Request(&request, Follows::Nothing), &facts())
}

const REQUESTS: &str = "@id(\"open\") permit(principal, action == Action::\"request\", resource);";

/// A policy compares one reading of a path, and a server may use another one.
#[test]
fn a_path_of_several_readings_is_denied_where_policies_are_about_paths() {
    let when = |text: &str| {
        format!(
            "{REQUESTS}\n@id(\"paths\") forbid(principal, action == Action::\"request\", resource) when {{ {text} }};"
        )
    };
    let unclear = [
        "//admin/x",
        "/x/../admin/y",
        "/a/..%2fadmin",
        "/%2561dmin",
        "/;a/admin",
        "/a%5cb",
    ];
    let about = [
        "context.loose.path like \"/admin*\"",
        "context[\"path\"] like \"/admin*\"",
        "context[\"p\\u{61}th\"] like \"/admin*\"",
        "context.segments has s1 && context.segments.s1 == \"admin\"",
        "context.loose.depth > 9",
        "context.path == \"/context.unclear\" // context.unclear\n",
        "context.path == \"/a\\\"context.unclear\"",
    ];
    for text in about {
        let text = when(text);
        assert_eq!(request(&text, "/b").effect, Effect::Allow, "{text}");
        for path in unclear {
            let found = request(&text, path);
            assert_eq!(found.effect, Effect::Deny, "{text} {path}");
            let why = "policies cannot tell: policy paths is about paths, and";
            assert!(found.why().starts_with(why), "{}", found.why());
        }
    }
    assert_eq!(request(&when(about[0]), "/%41dmin/").effect, Effect::Deny);
    let permit = "permit(principal, action == Action::\"request\", resource) when { context.path like \"/v1/*\" };";
    assert_eq!(request(permit, "/v1/x").effect, Effect::Allow);
    assert_eq!(request(permit, "/v1/../x").effect, Effect::Deny);
}

/// A policy about something else or somebody else, and one that handles such paths.
#[test]
fn a_path_of_several_readings_is_left_to_policies_that_are_not_misled() {
    let forbid =
        |scope: &str, when: &str| format!("{REQUESTS}\nforbid({scope}) when {{ {when} }};");
    let (any, path) = (
        "principal, action == Action::\"request\", resource",
        "context.loose.path like \"/admin*\"",
    );
    for text in [
        REQUESTS.to_owned(),
        forbid(any, "context.loose.method == \"POST\""),
        forbid(any, "context.path == \"/admin\" && !context.unclear"),
        forbid(
            "principal == Person::\"7\", action == Action::\"request\", resource",
            path,
        ),
        forbid(
            "principal in Person::\"7\", action == Action::\"request\", resource",
            path,
        ),
        forbid(
            "principal is Agent, action == Action::\"request\", resource",
            path,
        ),
        forbid(
            "principal, action == Action::\"request\", resource == Host::\"b.example.com\"",
            path,
        ),
        forbid("principal, action == Action::\"read\", resource", "true"),
        format!("{REQUESTS}\n@report_only forbid({any}) when {{ {path} }};"),
    ] {
        assert_eq!(request(&text, "//x").effect, Effect::Allow, "{text}");
    }
    for scope in [
        "principal in Person::\"1000\", action == Action::\"request\", resource",
        "principal is Session, action == Action::\"request\", resource",
        "principal is Session in Person::\"1000\", action == Action::\"request\", resource",
        "principal, action == Action::\"request\", resource in Host::\"*.example.com\"",
        any,
    ] {
        let text = forbid(scope, path);
        assert_eq!(request(&text, "//x").effect, Effect::Deny, "{text}");
    }
    assert_eq!(
        request(&forbid(any, "context.unclear"), "//x").effect,
        Effect::Deny
    );
}

#[test]
fn facts_that_nobody_states_are_not_there() {
    let text = "permit(principal, action, resource) when { context has trust && context.trust == \"high\" };";
    assert_eq!(read(text).effect, Effect::Deny);
    let stated = Facts {
        trust: Some("high".to_owned()),
        ..facts()
    };
    let found = ask(text, Asked::Read(Path::new("/srv")), &stated);
    assert_eq!(found.effect, Effect::Allow);
}

#[test]
fn a_place_that_cannot_be_told_is_denied() {
    let text = "permit(principal, action, resource);";
    let bytes = std::os::unix::ffi::OsStrExt::from_bytes(b"/srv/\xff");
    let deep = "/a".repeat(300);
    for path in [
        Path::new("/srv/../etc"),
        Path::new("/srv/./a"),
        Path::new("srv"),
        Path::new::<std::ffi::OsStr>(bytes),
        Path::new(&deep),
    ] {
        let found = ask(text, Asked::Read(path), &facts());
        assert_eq!(
            (found.effect, found.errors.len()),
            (Effect::Deny, 1),
            "{path:?}"
        );
    }
    assert_eq!(
        ask(text, Asked::Read(Path::new("/")), &facts()).effect,
        Effect::Allow
    );
}

/// A name beneath another is in it, one with merely the same ending is not, and no name is in
/// itself.
#[test]
fn hosts_are_in_the_names_above_them() {
    let text =
        "permit(principal, action == Action::\"resolve\", resource in Host::\"*.example.com\");";
    let check = |name: &str, effect| {
        let name = HostName::parse(name).unwrap();
        assert_eq!(
            ask(text, Asked::Resolve(&name), &facts()).effect,
            effect,
            "{name}"
        );
    };
    check("api.example.com", Effect::Allow);
    check("a.b.example.com", Effect::Allow);
    check("API.Example.com.", Effect::Allow);
    check("example.com", Effect::Deny);
    check("badexample.com", Effect::Deny);
    check("example.com.evil.org", Effect::Deny);
}

#[test]
fn programs_are_in_their_base_names() {
    let text = "permit(principal, action == Action::\"run\", resource in Program::\"git\");";
    let check = |program: &str, effect| {
        let workspace = WorkspaceMode::CopyOnWrite;
        let asked = Asked::Run {
            program,
            workspace,
            root: false,
            nesting: false,
            terminal: false,
        };
        assert_eq!(ask(text, asked, &facts()).effect, effect, "{program}");
    };
    check("git", Effect::Allow);
    check("/usr/bin/git", Effect::Allow);
    check("/usr/bin/git/x", Effect::Deny);
    check("gitx", Effect::Deny);
}

/// Every request built for Cedar conforms to the schema that policies are validated against, so a
/// well-typed policy cannot fail on a missing member or one of another type.
#[test]
fn every_question_is_one_of_the_schema() {
    let words = Vocabulary::read().unwrap();
    let name = HostName::parse("api.example.com").unwrap();
    let key = "KEY".parse().unwrap();
    let target = Target::parse("/v1/%2e/x?q=1").unwrap();
    let workspace = WorkspaceMode::Live;
    let arguments = [OsString::from("push"), OsString::from("push")];
    for host in [
        HostPart::Name(name.clone()),
        "10.1.2.3".parse().unwrap(),
        "[2001:db8::1]".parse().unwrap(),
    ] {
        let request = Request {
            host: &host,
            port: 443,
            scheme: Scheme::Https,
            method: "GET",
            target: &target,
        };
        let all = [
            Asked::Run {
                program: "/usr/bin/git",
                workspace,
                root: true,
                nesting: true,
                terminal: true,
            },
            Asked::Exec(Exec {
                program: "/usr/bin/git",
                arguments: &arguments,
                directory: Path::new("/srv"),
                sandbox: "run-1",
                terminal: true,
            }),
            Asked::Read(Path::new("/srv/a")),
            Asked::Write(Path::new("/srv/a")),
            Asked::Resolve(&name),
            Asked::Connect {
                host: &host,
                port: 22,
                look: Look::Past,
            },
            Asked::Request(&request, Follows::Nothing),
            Asked::UseCredential(&key),
            Asked::Promote {
                path: Path::new("/srv/a"),
                within: Some("a"),
                control: true,
                artifact: None,
            },
            Asked::Restore { run: "run-1" },
            Asked::Publish(PublishedPort {
                outside: 8080,
                inside: 3000,
            }),
            Asked::Escalate {
                run: "run-1",
                seconds: Some(60),
            },
            Asked::Administer {
                run: "run-1",
                operation: "reload",
            },
        ];
        let facts = Facts {
            task: Some("t".to_owned()),
            purpose: Some("p".to_owned()),
            confidence: Some(70),
            trust: Some("low".to_owned()),
            labels: Some(["x".to_owned()].into()),
            reputation: 7,
            served: Some(crate::Served {
                tenant: "team-a".to_owned(),
                caller: Some("ci".to_owned()),
                template: "base".to_owned(),
                metadata: ["team=ml".to_owned()].into(),
                volumes: ["models=read".to_owned()].into(),
            }),
            ..facts()
        };
        let needs = crate::question::Needs {
            labels: true,
            confidence: true,
            reputation: true,
            segments: true,
            loose: true,
            arguments: true,
            served: true,
        };
        for asked in all {
            let principal = principal();
            let question = Question {
                principal: &principal,
                asked,
                facts: &facts,
            };
            let put = question.put(&words, needs, |_| Vec::new()).unwrap();
            let parts = &put.request;
            let checked = cedar_policy::Request::new(
                parts.principal().unwrap().clone(),
                parts.action().unwrap().clone(),
                parts.resource().unwrap().clone(),
                parts.context().unwrap().clone(),
                Some(&words.schema),
            );
            assert!(checked.is_ok(), "{asked:?}: {checked:?}");
        }
    }
}

#[test]
fn the_schema_names_every_action_and_no_other() {
    let words = Vocabulary::read().unwrap();
    let mut named: Vec<String> = words
        .schema
        .actions()
        .map(|one| one.id().unescaped().to_owned())
        .collect();
    named.sort();
    let mut all: Vec<&str> = Action::ALL.iter().map(|one| one.name()).collect();
    all.sort_unstable();
    assert_eq!(named, all);
    assert!(
        Action::ALL
            .iter()
            .enumerate()
            .all(|(at, one)| one.number() == at)
    );
    assert!(SCHEMA.is_ascii());
}

#[test]
fn who_acts_is_in_who_started_it() {
    let check = |scope: &str, effect| {
        let found = read(&format!("permit({scope}, action, resource);"));
        assert_eq!(found.effect, effect, "{scope}");
    };
    check("principal in Person::\"1000\"", Effect::Allow);
    check("principal == Session::\"run-1\"", Effect::Allow);
    check("principal in Person::\"1001\"", Effect::Deny);
    check("principal == Person::\"1000\"", Effect::Deny);
}

/// The number of ancestors is given by the length of the name, and a program can choose that: the
/// longest possible names are decided on, also with policies about each ancestor.
#[test]
fn the_deepest_things_are_decided_on_in_bounded_time() {
    use std::fmt::Write as _;
    use std::time::{Duration, Instant};
    // 127 labels are the most that a name has room for.
    let host = ["a"; 127].join(".");
    let name = HostName::parse(&host).unwrap();
    assert!(HostName::parse(&["a"; 128].join(".")).is_err());
    let path = "/a".repeat(256);
    let begin = Instant::now();
    let mut text = String::new();
    for depth in 1..127 {
        let above = ["a"; 127][..depth].join(".");
        writeln!(
            text,
            "forbid(principal, action == Action::\"resolve\", resource in Host::\"*.b.{above}\");"
        )
        .unwrap();
    }
    for depth in 1..256 {
        writeln!(
            text,
            "forbid(principal, action == Action::\"read\", resource in Path::\"{}/b\");",
            "/a".repeat(depth)
        )
        .unwrap();
    }
    let open = "permit(principal, action in [Action::\"resolve\", Action::\"read\"], resource);\n";
    let resolve = |text: &str| ask(text, Asked::Resolve(&name), &facts()).effect;
    let reads = |text: &str, path: &str| ask(text, Asked::Read(Path::new(path)), &facts()).effect;
    let permitted = format!("{open}{text}");
    assert_eq!(resolve(&permitted), Effect::Allow);
    assert_eq!(reads(&permitted, &path), Effect::Allow);
    // Its root is above it as what is next to it is.
    for above in ["*.a", &format!("*.{}", ["a"; 126].join("."))] {
        let closed =
            format!("{permitted}forbid(principal, action, resource in Host::\"{above}\");");
        assert_eq!(resolve(&closed), Effect::Deny, "{above}");
    }
    for above in ["/", "/a", &"/a".repeat(255)] {
        let closed =
            format!("{permitted}forbid(principal, action, resource in Path::\"{above}\");");
        assert_eq!(reads(&closed, &path), Effect::Deny, "{above}");
    }
    assert_eq!(reads(&permitted, &"/a".repeat(257)), Effect::Deny);
    // Long enough for any machine, and far too short for what grows with each step.
    assert!(begin.elapsed() < Duration::from_secs(60));
}
