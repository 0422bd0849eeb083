//! The index leaves out no policy that could decide.

use std::path::Path;

use atoll_model::WorkspaceMode;
use atoll_model::network::{
    CredentialName, HostName, HostPart, PublishedPort, Request, Scheme, Target,
};
use proptest::collection::vec;
use proptest::prelude::*;

use super::{facts, file, principal};
use crate::{Asked, Exec, Follows, Known, Look, Policies, Principal, Question};

/// Returns policies with scopes and conditions of which some are ill-typed for some questions, and
/// some fail.
fn policy() -> impl Strategy<Value = String> {
    let effect = prop::sample::select(vec!["permit", "forbid"]);
    let report_only = prop::sample::select(vec!["", "", "", "@report_only "]);
    let principal = prop::sample::select(vec![
        "principal",
        "principal == Session::\"run-1\"",
        "principal in Person::\"1000\"",
        "principal in Group::\"team\"",
        "principal in Group::\"all\"",
        "principal is Session",
        "principal is Person",
    ]);
    let about = prop::sample::select(vec![
        ("action", "resource"),
        ("action == Action::\"request\"", "resource"),
        ("action == Action::\"request\"", "resource is Host"),
        (
            "action == Action::\"request\"",
            "resource == Host::\"api.example.com\"",
        ),
        (
            "action == Action::\"request\"",
            "resource in Host::\"*.example.com\"",
        ),
        (
            "action == Action::\"request\"",
            "resource is Host in Host::\"*.com\"",
        ),
        (
            "action in [Action::\"connect\", Action::\"request\", Action::\"connect\"]",
            "resource in Host::\"*.example.com\"",
        ),
        (
            "action in [Action::\"connect\", Action::\"resolve\"]",
            "resource == Host::\"10.1.2.3\"",
        ),
        ("action == Action::\"read\"", "resource in Path::\"/srv\""),
        ("action == Action::\"read\"", "resource in Path::\"/\""),
        (
            "action in [Action::\"read\", Action::\"write\"]",
            "resource == Path::\"/srv/a\"",
        ),
        (
            "action == Action::\"read\"",
            "resource is Path in Path::\"/srv/a\"",
        ),
        ("action == Action::\"run\"", "resource in Program::\"git\""),
        (
            "action == Action::\"publish\"",
            "resource == Port::\"3000\"",
        ),
        (
            "action == Action::\"use_credential\"",
            "resource == Credential::\"KEY\"",
        ),
    ]);
    let condition = prop::sample::select(vec![
        "",
        "",
        "when { context.time > 1 }",
        "when { context.time < 1 }",
        // Fails: more than a whole number can be.
        "when { context.time * 9223372036854775807 > 1 }",
        "unless { context has task }",
    ]);
    (effect, report_only, principal, about, condition).prop_map(
        |(effect, report_only, principal, (action, resource), condition)| {
            format!("{report_only}{effect}({principal}, {action}, {resource}) {condition};\n")
        },
    )
}

#[test]
fn every_question_is_answered_as_by_all_policies() {
    let mut known = Known::default();
    known.add("Person::\"1000\"", "Group::\"team\"").unwrap();
    known.add("Group::\"team\"", "Group::\"all\"").unwrap();
    known.add("Group::\"all\"", "Group::\"team\"").unwrap();
    let mut counts = [0_usize; 3];
    let counted = std::cell::RefCell::new(&mut counts);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(150));
    runner
        .run(&vec(policy(), 0..12), |texts| {
            let policies = Policies::compile(&[file(&texts.concat())], known.clone());
            let policies = policies.unwrap_or_else(|faults| panic!("{faults:?}"));
            ask_all(&policies, &mut counted.borrow_mut());
            Ok(())
        })
        .unwrap();
    let [allowed, denied, failed] = counts;
    assert!(allowed > 100 && denied > 100 && failed > 100, "{counts:?}");
}

fn ask_all(policies: &Policies, counts: &mut [usize; 3]) {
    let person = Principal {
        person: 1000,
        session: None,
    };
    let facts = facts();
    let names =
        ["api.example.com", "example.com", "other.org"].map(|one| HostName::parse(one).unwrap());
    let address: HostPart = "10.1.2.3".parse().unwrap();
    let key = "KEY".parse::<CredentialName>().unwrap();
    let target = Target::parse("/v1").unwrap();
    let hosts: Vec<HostPart> = names
        .iter()
        .cloned()
        .map(HostPart::Name)
        .chain([address])
        .collect();
    let requests: Vec<Request<'_>> = hosts
        .iter()
        .map(|host| Request {
            host,
            port: 443,
            scheme: Scheme::Https,
            method: "GET",
            target: &target,
        })
        .collect();
    let mut all = vec![
        Asked::Read(Path::new("/")),
        Asked::Read(Path::new("/srv/a")),
        Asked::Read(Path::new("/srv/a/b")),
        Asked::Write(Path::new("/srv/a")),
        Asked::UseCredential(&key),
        Asked::Publish(PublishedPort {
            outside: 3000,
            inside: 3000,
        }),
    ];
    for program in ["git", "/usr/bin/git", "cargo"] {
        let workspace = WorkspaceMode::CopyOnWrite;
        all.push(Asked::Run {
            program,
            workspace,
            root: false,
            nesting: false,
            terminal: false,
        });
    }
    all.extend(["git", "/usr/bin/git"].map(|program| {
        Asked::Exec(Exec {
            program,
            arguments: &[],
            directory: Path::new("/srv"),
            sandbox: "run-1",
            terminal: false,
        })
    }));
    all.extend(names.iter().map(Asked::Resolve));
    all.extend(hosts.iter().map(|host| Asked::Connect {
        host,
        port: 443,
        look: Look::Into,
    }));
    all.extend(
        requests
            .iter()
            .map(|one| Asked::Request(one, Follows::Nothing)),
    );
    for principal in [&person, &principal()] {
        for asked in &all {
            let question = Question {
                principal,
                asked: *asked,
                facts: &facts,
            };
            let found = policies.authorize(&question);
            let whole = policies.authorize_unindexed(&question);
            let without_reported = crate::Decision {
                reported: Vec::new(),
                ..found.clone()
            };
            assert_eq!(without_reported, whole, "{asked:?}");
            let at = match (found.errors.is_empty(), found.effect) {
                (false, _) => 2,
                (true, crate::Effect::Allow) => 0,
                (true, _) => 1,
            };
            counts[at] += 1;
        }
    }
}
