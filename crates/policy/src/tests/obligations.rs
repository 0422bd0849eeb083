//! Each annotation on each action, against the table of `docs/policy.md`.

use std::collections::BTreeSet;
use std::path::Path;

use atoll_cedar::{Action, Asked, Decision, Effect, Facts as CedarFacts, Follows, Known, Look};
use atoll_cedar::{Policies, PolicyFile, Principal as CedarPrincipal, Question, carried};
use atoll_model::network::{HostName, HostPart, Part, Placeholder, Request, Scheme, Target};
use atoll_model::{CallTool, Mode, ToolEffect, ToolKind, ToolName};

use super::*;

const DOCUMENT: &str = include_str!("../../../../docs/policy.md");
const HEAD: &str = "| on |";
/// A profile with a credential and a network, so that questions on credentials and ports are asked.
const PROFILE: &str = r#"
[network]
allow = ["api.example.com"]
[credential.one]
source = { environment = "ONE" }
to = "api.example.com"
place = { header = "authorization", form = "Bearer {}" }
"#;

/// The outcome of an annotation, as the table names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cell {
    Asked,
    Done,
    Told,
    Idle,
    Denied,
}

impl Cell {
    fn parse(text: &str) -> Self {
        match text {
            "asked" => Self::Asked,
            "done" => Self::Done,
            "told" => Self::Told,
            "idle" => Self::Idle,
            "denied" => Self::Denied,
            other => panic!("no cell is {other:?}"),
        }
    }
}

/// Returns the rows of the table: an annotation, and its outcome for each action.
fn rows() -> Vec<(String, Vec<(Action, Cell)>)> {
    let cells = |line: &str| -> Vec<String> {
        let cells = line.trim_matches('|').split('|');
        cells
            .map(|cell| cell.trim().trim_matches('`').to_owned())
            .collect()
    };
    let mut lines = DOCUMENT.lines().skip_while(|line| !line.starts_with(HEAD));
    let head = cells(lines.next().expect("the table is there"));
    let action = |name: &String| {
        let mut all = Action::ALL.into_iter();
        all.find(|action| action.name() == name)
            .unwrap_or_else(|| panic!("no action is {name:?}"))
    };
    let actions: Vec<Action> = head[1..].iter().map(action).collect();
    assert_eq!(
        actions.iter().collect::<BTreeSet<_>>(),
        Action::ALL.iter().collect::<BTreeSet<_>>()
    );
    let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
    rows.map(|line| {
        let all = cells(line);
        assert_eq!(all.len(), head.len(), "{line}");
        let of = all[1..].iter().map(|cell| Cell::parse(cell));
        (all[0].clone(), actions.iter().copied().zip(of).collect())
    })
    .collect()
}

/// Returns a policy that would deny: a report-only one is a forbid.
fn policy(annotation: &str, action: Action) -> String {
    let effect = match annotation {
        "@report_only" => "forbid",
        _ => "permit",
    };
    let name = action.name();
    format!("@id(\"p\") {annotation} {effect}(principal, action == Action::\"{name}\", resource);")
}

/// Returns the outcome for an action at the start of a run.
fn at_start(text: &str, annotation: &str) -> Cell {
    let mut world = world()
        .profile("p", PROFILE)
        .with("p")
        .variable("ONE", "real")
        .user_policies(text);
    world.requested.publish = vec!["3000".to_owned()];
    let placeholders = [Placeholder {
        name: "one".parse().unwrap(),
        part: Part::Whole,
        text: "stands".to_owned(),
    }];
    let facts = Facts {
        placeholders: &placeholders,
        ..world.facts()
    };
    let grant = match decide(&world.rules(), &world.call, &facts) {
        Verdict::Allow(grant) => grant,
        Verdict::Ask(reasons) => {
            assert!(reasons[0].why.contains("policy p"), "{reasons:?}");
            return Cell::Asked;
        }
        Verdict::Deny(reasons) => {
            let told = [
                "is not carried out here, and policy p asks for it",
                "nobody here knows",
                "not without approval of \"lead\", by policy p",
            ];
            let is_told = |one: &Reason| told.iter().any(|told| one.why.contains(told));
            assert!(reasons.iter().any(is_told), "{reasons:?}");
            return Cell::Denied;
        }
    };
    let notices = grant.notices().iter().map(Notice::to_string);
    let notices: Vec<String> = notices.filter(|one| one.contains("own.cedar:1")).collect();
    let limit = grant.boundary().limits.wall_clock;
    match annotation {
        "@report_only" => assert!(
            notices.concat().contains("would have denied"),
            "{notices:?}"
        ),
        "@timeout(\"30m\")" => {
            assert_eq!(limit, Some(Duration::from_secs(1800)));
            return Cell::Done;
        }
        "@label(\"web\")" => {
            assert!(grant.labels().contains("web"), "{:?}", grant.labels());
            return Cell::Done;
        }
        // It is asked about where it is used, by who carries what it is put into.
        "@approve(\"person\")" => {
            assert!(text.contains("use_credential"), "{text}");
            assert!(world.rules().may_ask() && grant.policies().is_some());
            return Cell::Asked;
        }
        _ => assert!(notices.concat().contains("A sentence."), "{notices:?}"),
    }
    Cell::Told
}

/// Returns the outcome of applying a change, or of an undo.
fn promoted(text: &str, is_undo: bool) -> Cell {
    let user = [policies("user/own.cedar", text)];
    let trust = TrustList::default();
    let sources = Sources {
        organisation: None,
        user_config: None,
        user_profiles: &BTreeMap::new(),
        project: None,
        trust: &trust,
        policies: PolicySources {
            user: &user,
            ..PolicySources::default()
        },
    };
    let promoter = Promoter {
        is_unseen: false,
        user: 1000,
        time: 1,
        workspace: None,
        purposes: &[],
        makers: &|_| Ok(vec![super::maker()]),
    };
    let change = Promoted {
        path: Path::new("/home/ann/src/app/a"),
        control: false,
        is_moved: false,
        is_directory: false,
        is_link: false,
        artifact: None,
    };
    let written: &[Promoted<'_>] = match is_undo {
        true => &[],
        false => &[change],
    };
    match promote(&sources, &promoter, written) {
        Ok(promotion) if !promotion.asked.is_empty() => {
            let what = match is_undo {
                true => format!("undoing what run {} changed", world().call.run()),
                false => crate::taking_over(change.path),
            };
            assert_eq!(promotion.asked[0].what, what);
            assert!(promotion.asked[0].why.contains("policy p"), "{promotion:?}");
            Cell::Asked
        }
        Ok(promotion) if promotion.has_checkpoint => Cell::Done,
        Ok(promotion) => {
            assert_eq!(promotion.notices.len(), 1, "{promotion:?}");
            Cell::Told
        }
        Err(PromotionError::Refused(_)) => Cell::Denied,
        Err(error) => panic!("{error:?}"),
    }
}

/// Returns the outcome for a program's network flow, by the policies as the egress process gets
/// them.
fn flow(text: &str, action: Action) -> Cell {
    let world = world().profile("p", PROFILE).with("p").user_policies(text);
    let rules = world.variable("ONE", "real").rules();
    let name = HostName::parse("api.example.com").unwrap();
    let host: HostPart = "api.example.com".parse().unwrap();
    let target = Target::parse("/v1").unwrap();
    let request = Request {
        host: &host,
        port: 443,
        scheme: Scheme::Https,
        method: "GET",
        target: &target,
    };
    let asked = match action {
        Action::Resolve => Asked::Resolve(&name),
        Action::Connect => Asked::Connect {
            host: &host,
            port: 443,
            look: Look::Into,
        },
        Action::Request => Asked::Request(&request, Follows::Nothing),
        Action::Escalate => Asked::Escalate {
            run: "run",
            seconds: None,
        },
        Action::Administer => Asked::Administer {
            run: "run",
            operation: "reload",
        },
        other => panic!("{other:?}"),
    };
    let decision = decided(&rules, asked);
    let obligations = &decision.obligations;
    match decision.effect {
        Effect::Deny => Cell::Denied,
        Effect::Ask if decision.asks_a_person() => Cell::Asked,
        Effect::Ask => Cell::Denied,
        Effect::Allow if !decision.reported.is_empty() => Cell::Idle,
        Effect::Allow => {
            let is_any = !obligations.rate.is_empty()
                || !obligations.label.is_empty()
                || !obligations.redact.is_empty();
            assert!(is_any, "{decision:?}");
            Cell::Done
        }
    }
}

/// Returns the outcome for a call of a tool.
fn of_tool(text: &str) -> Cell {
    let world = world().profile("p", PROFILE).with("p").user_policies(text);
    let action = atoll_model::Action::CallTool(Box::new(CallTool {
        tool: ToolName::parse("note").unwrap(),
        kind: ToolKind::Command,
        effect: ToolEffect::Write,
        idempotent: false,
        undo: atoll_model::ToolUndo::None,
        text: "{}".to_owned(),
        arguments: Vec::new(),
        key: None,
        spent: Vec::new(),
    }));
    match crate::decide(&world.rules(), &world.call.with(action), &world.facts()) {
        Verdict::Allow(Granted::Tool(grant)) if grant.wall_clock().is_some() => Cell::Done,
        Verdict::Allow(Granted::Tool(grant)) if grant.shadow().is_some() => Cell::Done,
        Verdict::Allow(Granted::Tool(grant)) if !grant.notices().is_empty() => Cell::Told,
        Verdict::Ask(_) => Cell::Asked,
        Verdict::Deny(_) => Cell::Denied,
        Verdict::Allow(other) => panic!("{other:?}"),
    }
}

fn decided(rules: &Rules, asked: Asked<'_>) -> Decision {
    let principal = CedarPrincipal {
        person: 1000,
        session: Some("run".to_owned()),
    };
    let facts = CedarFacts {
        labels: Some(BTreeSet::new()),
        ..CedarFacts::new(0, Mode::Full, "p")
    };
    let question = Question {
        principal: &principal,
        asked,
        facts: &facts,
    };
    let decision = rules.policies().unwrap().authorize(&question);
    decision.within(carried(asked.action()))
}

#[test]
fn every_annotation_on_every_action_is_as_the_table_says() {
    let rows = rows();
    let mut named = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for (annotation, cells) in &rows {
        named.insert(annotation.split(['@', '(']).nth(1).unwrap().to_owned());
        for (action, expected) in cells {
            let text = policy(annotation, *action);
            let found = match action {
                Action::Promote => promoted(&text, false),
                Action::Restore => promoted(&text, true),
                Action::Resolve
                | Action::Connect
                | Action::Request
                | Action::Escalate
                | Action::Administer => flow(&text, *action),
                Action::Call => of_tool(&text),
                _ => at_start(&text, annotation),
            };
            assert_eq!(found, *expected, "{annotation} on {}", action.name());
            seen.insert(found);
        }
    }
    assert_eq!(seen.len(), 5, "each kind of cell is somewhere: {seen:?}");
    let mut all: BTreeSet<String> = atoll_cedar::Obligation::ALL
        .iter()
        .map(|one| one.name().to_owned())
        .collect();
    all.extend(["report_only".to_owned(), "quarantine".to_owned()]);
    assert_eq!(named, all, "each annotation has a row");
}

/// A check reports every cell that denies, and no other cell of the table.
#[test]
fn a_check_tells_every_cell_that_is_denied() {
    for (annotation, cells) in rows() {
        for (action, expected) in cells {
            let file = PolicyFile {
                name: "/policies/table.cedar".to_owned(),
                content: policy(&annotation, action).into_bytes(),
            };
            let policies = Policies::compile(&[file], Known::default()).unwrap();
            let is_told = !atoll_cedar::refused(&policies).is_empty();
            let is_denied = expected == Cell::Denied;
            assert_eq!(is_told, is_denied, "{annotation} on {}", action.name());
        }
    }
}

/// The cells on the start of a run belong to questions that are asked: each by its resource.
#[test]
fn the_tables_questions_are_put() {
    for (action, resource) in [
        (Action::UseCredential, "Credential::\"one\""),
        (Action::Publish, "Port::\"3000\""),
        (Action::Write, "Path::\"/home/ann/src/app\""),
        (Action::Read, "Path::\"/home/ann/src/app\""),
        (Action::Run, "Program::\"true\""),
    ] {
        let name = action.name();
        let asks = format!(
            "@id(\"p\") @redact(\"a\") permit(principal, action == Action::\"{name}\", resource in {resource});"
        );
        assert_eq!(at_start(&asks, ""), Cell::Denied, "{asks}");
    }
}
