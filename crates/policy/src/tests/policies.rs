//! Cedar policies beside the rules: asked after them, only taking away.

use atoll_cedar::{Known, PolicyFile};

use super::*;

const ALL: &str = "permit(principal, action, resource);";

fn denied(world: &World) -> String {
    let reasons = world.reasons();
    let told = |one: &Reason| format!("{}: {} [{}]", one.what, one.why, one.rule);
    reasons.iter().map(told).collect::<Vec<_>>().join("\n")
}

#[test]
fn without_policies_nothing_is_compiled_or_handed_over() {
    let world = world();
    assert!(world.rules().policies().is_none());
    assert!(world.grant().policies().is_none());
}

#[test]
fn a_policy_denies_what_the_rules_allow() {
    let check = |text: &str, expected: &str| {
        let forbid = format!("@id(\"no\") forbid(principal, {text});");
        assert_eq!(denied(&world().user_policies(&forbid)), expected, "{text}");
    };
    let by = "forbidden by policy no [user/own.cedar:1]";
    check(
        "action == Action::\"run\", resource in Program::\"true\"",
        &format!("running true: {by}"),
    );
    check(
        "action == Action::\"read\", resource == Path::\"/opt\"",
        &format!("showing /opt: {by}"),
    );
    check(
        "action == Action::\"write\", resource in Path::\"/home/ann/src\"",
        &format!("changing /home/ann/src/app: {by}"),
    );
    // What lies beneath a place that is shown cannot be cut out of it.
    check(
        "action == Action::\"read\", resource in Path::\"/usr/share/secret\"",
        &format!("showing /usr/share/secret: {by}"),
    );
    check(
        "action == Action::\"write\", resource == Path::\"/home/ann/src/app/a/b\"",
        &format!("changing /home/ann/src/app/a/b: {by}"),
    );
    let within =
        "forbid(principal, action == Action::\"read\", resource == Path::\"/home/ann/src/app/a\");";
    let reasons = world().user_policies(within).reasons();
    assert_eq!(
        reasons[0].how_to_ask,
        "a place in the workspace cannot be hidden: work elsewhere, or change the policy"
    );
    let nowhere =
        "forbid(principal, action == Action::\"read\", resource in Path::\"/srv/other\");";
    let _ = world().user_policies(nowhere).grant();
    // What is not about this run changes nothing.
    let other = "forbid(principal, action == Action::\"run\", resource in Program::\"curl\");";
    let _ = world().user_policies(other).grant();
    let other = "forbid(principal in Person::\"1001\", action, resource);";
    let _ = world().user_policies(other).grant();
}

#[test]
fn ports_and_credentials_are_asked_for() {
    let forbid =
        "@id(\"no\") forbid(principal, action == Action::\"publish\", resource == Port::\"3000\");";
    let mut published = world().user_policies(forbid);
    published.requested.publish = vec!["8080:3000".to_owned()];
    assert_eq!(
        denied(&published),
        "publishing port 8080:3000: forbidden by policy no [user/own.cedar:1]"
    );
    published.requested.publish = vec!["3001".to_owned()];
    let _ = published.grant();
}

#[test]
fn every_layer_with_an_opinion_has_to_allow() {
    let git = "@id(\"git-alone\") permit(principal, action == Action::\"run\", resource in Program::\"git\");";
    let all = world().user_policies(git).project_policies(ALL);
    assert_eq!(
        denied(&all),
        "running true: no policy permits it: policy git-alone permits only others [user/own.cedar:1]"
    );
    let _ = all.clone().command("git").grant();
    let organisation = world()
        .organisation_policies(git)
        .user_policies(ALL)
        .project_policies(ALL);
    assert_eq!(
        denied(&organisation),
        "running true: no policy permits it: policy git-alone permits only others [/etc/atoll/org.cedar:1]"
    );
    let _ = organisation.command("/usr/bin/git").grant();
}

#[test]
fn a_project_widens_nothing_and_is_told_so() {
    let text = "@id(\"wide\")\npermit(principal, action in [Action::\"resolve\", Action::\"connect\"], resource == Host::\"example.com\");
permit(principal, action == Action::\"publish\", resource == Port::\"3000\");
permit(principal, action == Action::\"use_credential\", resource == Credential::\"KEY\");";
    let world = world().project_policies(text);
    assert!(world.boundary().network.is_empty());
    let notices = world.notices();
    for told in [
        "reaching example.com is not allowed by a project's policy (wide): --allow example.com does, or a profile of your own (/home/ann/src/app/atoll.cedar:1)",
        "publishing port 3000 is not allowed by a project's policy",
        "using credential KEY is not allowed by a project's policy",
    ] {
        assert!(notices.contains(told), "{told}\n{notices}");
    }
    let mut allowed = world.clone();
    allowed.requested.allow = vec!["example.com".to_owned()];
    assert!(
        !allowed.notices().contains("reaching example.com"),
        "{}",
        allowed.notices()
    );
}

#[test]
fn what_is_carried_past_policies_on_requests_is_told() {
    let text = "@id(\"no-a\")\nforbid(principal, action == Action::\"request\", resource) when { context.path like \"/a*\" };";
    let told = "policy no-a judges requests, but example.com:8114 (--allow) is carried unseen, past it; if it speaks HTTP, 'http://example.com:8114' in its place has its requests judged (user/own.cedar:1)";
    let with = |text: &str, allow: &str| {
        let mut world = world().user_policies(text);
        world.requested.allow = vec![allow.to_owned()];
        world.notices()
    };
    assert_eq!(with(text, "example.com:8114"), told);
    for (allow, is_told) in [
        ("example.com", false),
        ("http://example.com:8114", false),
        ("example.com:443", false),
        ("example.com:443-444", true),
        ("example.com:*", true),
        ("*.example.com:8114", true),
        ("10.1.2.3:8114", true),
    ] {
        let notices = with(text, allow);
        assert_eq!(
            notices.contains("carried unseen"),
            is_told,
            "{allow}\n{notices}"
        );
    }
    let mut tunnel = world().user_policies(text);
    tunnel.requested.tunnel = vec!["example.com:443".to_owned()];
    let notices = tunnel.notices();
    assert!(
        notices.contains("'https://example.com' in its place"),
        "{notices}"
    );
    let on = |scope: &str| format!("forbid(principal, {scope});");
    for (scope, is_told) in [
        (
            "action == Action::\"request\", resource == Host::\"example.com\"",
            true,
        ),
        (
            "action == Action::\"request\", resource == Host::\"other.example\"",
            false,
        ),
        (
            "action == Action::\"request\", resource in Host::\"*.com\"",
            true,
        ),
        (
            "action == Action::\"request\", resource in Host::\"*.example\"",
            false,
        ),
        (
            "action in [Action::\"request\", Action::\"connect\"], resource",
            false,
        ),
    ] {
        let notices = with(&on(scope), "example.com:8114");
        assert_eq!(
            notices.contains("carried unseen"),
            is_told,
            "{scope}\n{notices}"
        );
    }
}

#[test]
fn an_untrusted_file_is_not_even_read() {
    let mut world = world().project_policies("permit(");
    assert!(
        world
            .error()
            .starts_with("/home/ann/src/app/atoll.cedar:1:"),
        "{}",
        world.error()
    );
    world.trust = TrustList::default();
    assert!(
        world
            .notices()
            .contains("atoll.cedar is not trusted: nobody has trusted its content")
    );
}

#[test]
fn a_broken_file_stops_every_run_with_its_line() {
    let world = world()
        .organisation_policies("permit(principal, action, resource)\nwhen { context.nothing };");
    assert!(
        world.error().starts_with("/etc/atoll/org.cedar:2:"),
        "{}",
        world.error()
    );
}

#[test]
fn obligations_are_carried_out_or_deny() {
    let permit = |annotation: &str, action: &str| {
        format!(
            "@id(\"p\") {annotation} permit(principal, action == Action::\"{action}\", resource);"
        )
    };
    let timed = world().user_policies(&permit("@timeout(\"30m\")", "run"));
    assert_eq!(
        timed.boundary().limits.wall_clock,
        Some(Duration::from_secs(1800))
    );
    assert_eq!(
        timed.grant().wall_clock_by(),
        Some("policy p (user/own.cedar:1)")
    );
    let mut tighter = timed.clone();
    tighter.requested.timeout = Some(Duration::from_secs(60));
    assert_eq!(
        tighter.boundary().limits.wall_clock,
        Some(Duration::from_secs(60))
    );
    assert_eq!(tighter.grant().wall_clock_by(), None);
    let logged = world().user_policies(&permit("@log(\"It was started.\")", "run"));
    assert!(
        logged
            .notices()
            .contains("running true: It was started. (user/own.cedar:1)")
    );
    let report_only = world().user_policies(
        "@id(\"later\") @report_only forbid(principal, action == Action::\"run\", resource);",
    );
    assert!(
        report_only.notices().contains(
            "policy later does not count yet (@report_only), and would have denied running true"
        ),
        "{}",
        report_only.notices()
    );
    let check = |annotation: &str, action: &str, told: &str| {
        let found = denied(&world().user_policies(&permit(annotation, action)));
        assert!(found.contains(told), "{annotation} {action}: {found}");
    };
    check(
        "@approve(\"person\")",
        "read",
        "policies cannot tell: @approve is not carried out here, and policy p asks for it",
    );
    check("@checkpoint", "run", "@checkpoint is not carried out here");
    check(
        "@timeout(\"1h\")",
        "read",
        "@timeout is not carried out here",
    );
    check("@quarantine", "run", "@quarantine, which nobody here knows");
}

/// A run that needs an approval is granted to a person who has approved exactly it.
#[test]
fn a_run_is_granted_to_what_a_person_has_agreed_to() {
    let asks =
        "@id(\"p\") @approve(\"person\") permit(principal, action == Action::\"run\", resource);";
    let world = world().user_policies(asks);
    let with = |world: &World, rules: &Rules| decide(rules, &world.call, &world.facts());
    let asked = |world: &World, rules: &Rules| match with(world, rules) {
        Verdict::Ask(reasons) => reasons,
        other => panic!("{other:?}"),
    };
    let mut rules = world.rules();
    assert!(rules.ask_about_runs() && rules.agreed().is_none());
    let first = asked(&world, &rules);
    assert_eq!(first[0].what, "running true");
    assert_eq!(first[0].why, "a person is asked by policy p");
    assert!(first[0].how_to_ask.starts_with("nobody can be asked here"));
    let agreed = agreement(&rules, &world.call, &first);
    rules.agree(agreed.clone());
    assert!(matches!(with(&world, &rules), Verdict::Allow(_)));
    assert_eq!(rules.agreed(), Some(agreed.as_str()));
    // Another command, place or version of what decides is something else.
    let other = world.clone().command("false");
    assert!(
        asked(&other, &rules)[0]
            .why
            .ends_with("; you have agreed to something else")
    );
    let mut argument = world.clone();
    argument.words().push("--force".into());
    let _ = asked(&argument, &rules);
    let mut elsewhere = world.clone();
    elsewhere.start_in("/home/ann/src/app", "/home/ann/src/app/sub");
    let _ = asked(&elsewhere, &rules);
    let mut option = world.clone();
    option.requested.allow = vec!["example.com".to_owned()];
    let mut rules = option.rules();
    rules.agree(agreed);
    let _ = asked(&option, &rules);
    rules.disagree("you said no");
    assert!(asked(&option, &rules)[0].why.ends_with("; you said no"));
    // What is denied is not asked about, and who is not a person is nobody.
    let forbids = "forbid(principal, action == Action::\"run\", resource);";
    assert!(matches!(
        world.clone().organisation_policies(forbids).decide(),
        Verdict::Deny(_)
    ));
    let lead = asks.replace("person\"", "lead\"");
    assert!(matches!(
        super::world().user_policies(&lead).decide(),
        Verdict::Deny(_)
    ));
}

#[test]
fn the_policys_version_covers_every_file() {
    let digest = |world: &World| world.grant().policy_digest().to_owned();
    let all = [
        world(),
        world().organisation_policies(ALL),
        world().user_policies(ALL),
        world().project_policies(ALL),
        world().user_policies(&format!("{ALL} // other")),
    ];
    let mut digests: Vec<String> = all.iter().map(digest).collect();
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), 5);
    assert_eq!(
        digest(&world().user_policies(ALL)),
        digest(&world().user_policies(ALL))
    );
}

#[test]
fn connections_are_judged_by_what_is_handed_over() {
    let forbid = "@id(\"no\") forbid(principal, action == Action::\"connect\", resource == Host::\"example.com\");";
    let mut world = world().user_policies(forbid);
    // Nothing is reached, so nobody judges.
    assert!(world.grant().policies().is_none());
    world.requested.allow = vec!["example.com".to_owned()];
    let grant = world.grant();
    let (layers, principal, facts) = atoll_cedar::take(grant.policies().unwrap()).unwrap();
    assert_eq!(principal.session.as_deref(), Some("261121-093012-k7qd"));
    let host = "example.com".parse().unwrap();
    let asked = atoll_cedar::Asked::Connect {
        host: &host,
        port: 443,
        look: atoll_cedar::Look::Into,
    };
    let question = atoll_cedar::Question {
        principal: &principal,
        asked,
        facts: &facts,
    };
    assert_eq!(
        layers.authorize(&question).effect,
        atoll_cedar::Effect::Deny
    );
    assert!(atoll_cedar::take(b"{}").is_err());
}

#[test]
fn promotion_is_asked_for_change_by_change() {
    let forbid = "@id(\"no\") forbid(principal, action == Action::\"promote\", resource in Path::\"/home/ann/src/app/secret\");
@id(\"hooks\") forbid(principal, action == Action::\"promote\", resource) when { context.control };";
    let files = [policies("user/own.cedar", forbid)];
    let trust = TrustList::default();
    let ask = |user: &[SourceFile<'static>], changes: &[Promoted<'_>]| {
        let policies = PolicySources {
            user,
            ..PolicySources::default()
        };
        let sources = Sources {
            organisation: None,
            user_config: None,
            user_profiles: &NoProfiles,
            project: None,
            trust: &trust,
            policies,
        };
        let promoter = Promoter {
            is_unseen: false,
            user: 1000,
            time: 1,
            workspace: None,
            purposes: &[],
            makers: &|_| Ok(vec![maker()]),
        };
        promote(&sources, &promoter, changes)
    };
    let change = |path: &'static str, control, is_moved| Promoted {
        path: std::path::Path::new(path),
        control,
        is_moved,
        is_directory: false,
        is_link: false,
        artifact: None,
    };
    let good = change("/home/ann/src/app/a", false, false);
    let bad = change("/home/ann/src/app/secret/b", false, false);
    let hook = change("/home/ann/src/app/Makefile", true, false);
    let moved = change("/home/ann/src/app/c", false, true);
    let open = "permit(principal, action == Action::\"promote\", resource);";
    let both = [
        policies("user/own.cedar", forbid),
        policies("user/p.cedar", open),
    ];
    let promotion = ask(&both, &[good]).unwrap();
    assert!(promotion.policy_digest.is_some() && !promotion.has_checkpoint);
    let kept = [policies(
        "user/p.cedar",
        "@checkpoint permit(principal, action == Action::\"promote\", resource);",
    )];
    assert!(ask(&kept, &[good]).unwrap().has_checkpoint);
    let refused = match ask(&files, &[good, bad, hook, moved]) {
        Err(PromotionError::Refused(reasons)) => reasons,
        other => panic!("{other:?}"),
    };
    let whats: Vec<&str> = refused.iter().map(|one| one.what.as_str()).collect();
    let app = "taking over /home/ann/src/app";
    assert_eq!(
        whats,
        [
            format!("{app}/secret/b"),
            format!("{app}/Makefile"),
            format!("{app}/c")
        ]
    );
    assert_eq!(ask(&[], &[bad, moved]), Ok(Promotion::default()));
    let broken = [policies("user/own.cedar", "permit(")];
    assert!(matches!(
        ask(&broken, &[good]),
        Err(PromotionError::Broken(_))
    ));
}

/// Applies a change by one of these runs, under a policy that forbids it when this holds.
fn taken_over(when: &str, makers: &Result<Vec<Maker>, String>) -> Result<(), PromotionError> {
    taken_over_by(when, makers, false).map(drop)
}

/// Applies the change, perhaps by an option of the run itself. Returns the number of approvals
/// required.
fn taken_over_by(
    when: &str,
    makers: &Result<Vec<Maker>, String>,
    is_unseen: bool,
) -> Result<usize, PromotionError> {
    let text = format!(
        "permit(principal, action == Action::\"promote\", resource);
         forbid(principal, action == Action::\"promote\", resource) when {{ {when} }};"
    );
    let user = [policies("user/own.cedar", &text)];
    let trust = TrustList::default();
    let sources = Sources {
        organisation: None,
        user_config: None,
        user_profiles: &NoProfiles,
        project: None,
        trust: &trust,
        policies: PolicySources {
            user: &user,
            ..PolicySources::default()
        },
    };
    let promoter = Promoter {
        is_unseen,
        user: 1000,
        time: 1,
        makers: &|asks_for_reputation| {
            assert_eq!(asks_for_reputation, when.contains("reputation"));
            makers.clone()
        },
        workspace: None,
        purposes: &[],
    };
    let path = std::path::Path::new("/home/ann/src/app/a");
    let change = Promoted {
        path,
        control: false,
        is_moved: false,
        is_directory: false,
        is_link: false,
        artifact: None,
    };
    promote(&sources, &promoter, &[change]).map(|promotion| promotion.asked.len())
}

#[test]
fn each_fact_of_the_run_is_in_the_question_about_its_changes() {
    type Set<'a> = &'a dyn Fn(&mut Maker);
    let facts: [(&str, Set<'_>); 9] = [
        ("context.profile == \"codex\"", &|run| {
            run.profile = "codex".to_owned();
        }),
        ("context.mode == \"fence\"", &|run| {
            run.mode = atoll_model::Mode::Fence;
        }),
        ("context has trust && context.trust == \"low\"", &|run| {
            run.trust = Some("low".to_owned());
        }),
        ("context has task && context.task == \"t\"", &|run| {
            run.task = Some("t".to_owned());
        }),
        ("context has purpose && context.purpose == \"p\"", &|run| {
            run.purpose = Some("p".to_owned());
        }),
        (
            "context has confidence && context.confidence < 50",
            &|run| run.confidence = Some(40),
        ),
        (
            "context has labels && context.labels.contains(\"untrusted\")",
            &|run| run.labels = Some(["untrusted".to_owned()].into()),
        ),
        ("context.reputation > 50", &|run| run.reputation = 51),
        ("context.time == 2", &|_| {}),
    ];
    for (when, set) in facts {
        assert_eq!(taken_over(when, &Ok(vec![maker()])), Ok(()), "{when}");
        let mut run = maker();
        set(&mut run);
        let is_same = run == maker();
        // Of several runs each may have made it.
        for makers in [
            vec![run.clone()],
            vec![maker(), run.clone()],
            vec![run, maker()],
        ] {
            match taken_over(when, &Ok(makers)) {
                Err(PromotionError::Refused(reasons)) => assert_eq!(reasons.len(), 1, "{when}"),
                found => assert_eq!((found, is_same), (Ok(()), true), "{when}"),
            }
        }
    }
}

#[test]
fn what_cannot_be_told_of_the_run_denies() {
    let labels = "context has labels && context.labels.contains(\"untrusted\")";
    let unnoted = Maker {
        labels: None,
        ..maker()
    };
    let untold = |when: &str, makers: Result<Vec<Maker>, String>| match taken_over(when, &makers) {
        Err(PromotionError::Untold(why)) => Some(why),
        Ok(()) => None,
        other => panic!("{other:?}"),
    };
    let why = untold(labels, Ok(vec![maker(), unnoted.clone()])).unwrap();
    assert!(why.contains("noted none"), "{why}");
    assert_eq!(untold("context.control", Ok(vec![unnoted])), None);
    let why = untold("context.control", Err("it is damaged".to_owned()));
    assert_eq!(why.as_deref(), Some("it is damaged"));
    assert!(untold("context.control", Ok(Vec::new())).is_some());
}

/// A mode belongs to the run: once it is over, the person who applies its changes can be asked.
#[test]
fn what_a_strict_run_has_changed_is_asked_about_where_a_person_takes_it_over() {
    let run = Maker {
        is_strict: true,
        ..maker()
    };
    let ask = "false };\n@approve(\"person\") permit(principal, action == Action::\"promote\", resource) when { true";
    for (makers, is_unseen) in [(maker(), false), (maker(), true), (run.clone(), false)] {
        assert_eq!(taken_over_by(ask, &Ok(vec![makers]), is_unseen), Ok(1));
    }
    // By an option of its own nobody is.
    let refused = taken_over_by(ask, &Ok(vec![maker(), run.clone()]), true);
    assert!(
        matches!(refused, Err(PromotionError::Refused(_))),
        "{refused:?}"
    );
    // What forbids does so either way.
    for is_unseen in [false, true] {
        let refused = taken_over_by("true", &Ok(vec![run.clone()]), is_unseen);
        assert!(
            matches!(refused, Err(PromotionError::Refused(_))),
            "{refused:?}"
        );
    }
}

/// A profile shown in Cedar compiles, and as a layer of its own changes nothing.
#[test]
fn every_shipped_profile_is_a_text_that_compiles() {
    for profile in crate::list(&NoProfiles).unwrap() {
        let text = world().with(&profile.name).rules().show_cedar(None);
        let file = PolicyFile {
            name: "shown.cedar".to_owned(),
            content: text.clone().into_bytes(),
        };
        let compiled = atoll_cedar::Policies::compile(&[file], Known::default());
        let compiled =
            compiled.unwrap_or_else(|faults| panic!("{}: {faults:?}\n{text}", profile.name));
        assert!(compiled.len() > 3, "{}", profile.name);
        assert_eq!(atoll_cedar::refused(&compiled), [], "{}", profile.name);
    }
}

/// Whoever edits a policy that no question is asked about would take it for a rule. Of the places
/// that programs are executed from none is asked about.
#[test]
fn a_shown_profile_has_no_policy_that_nobody_asks_about() {
    let profiles = crate::list(&NoProfiles).unwrap();
    let shipped = profiles.iter().map(|profile| world().with(&profile.name));
    let listed = "[programs]\nexecute = [\"/usr/bin\"]\n";
    let listed = world().profile("listed", listed).with("listed");
    for world in shipped.chain([listed]) {
        let text = world.rules().show_cedar(None);
        let execs = text.matches("Action::\"exec\"").count();
        let any = "permit(principal, action == Action::\"exec\", resource is Program);";
        assert!(execs == 1 && text.contains(any), "{text}");
        let file = PolicyFile {
            name: "shown.cedar".to_owned(),
            content: text.clone().into_bytes(),
        };
        let compiled = atoll_cedar::Policies::compile(&[file], Known::default()).unwrap();
        let remarks = atoll_cedar::remarks(&compiled);
        let unasked = |one: &atoll_cedar::Remark| one.what.contains("nothing asks for");
        assert!(!remarks.iter().any(unasked), "{remarks:?}\n{text}");
    }
}

#[test]
fn a_shown_profile_as_a_layer_allows_its_own_run() {
    let mut world = world().with("rust");
    let here = std::path::Path::new("/home/ann/src/app");
    let text = world.rules().show_cedar(Some(here));
    let without = world.rules().show_cedar(None);
    let _ = world.grant();
    // Without the lines of the workspace nothing runs there, and what is missing is told.
    let closed = world.clone().user_policies(&without);
    let advice = "add permit(principal, action == Action::\"read\", resource in \
                  Path::\"/home/ann/src/app\"); to user/own.cedar, or ask who wrote it";
    assert_eq!(closed.reasons()[0].how_to_ask, advice);
    world = world.user_policies(&text);
    let _ = world.grant();
    world.requested.read_only_dirs = vec!["/srv/other".into()];
    let told = denied(&world);
    assert!(
        told.starts_with("showing /srv/other: no policy permits it: policy own.cedar:")
            && told.contains(" permits only others [user/own.cedar:"),
        "{told}"
    );
}

/// The documented example decides as its comments say.
#[test]
fn documented_example_on_changes_decides_as_told() {
    let document = include_str!("../../../../docs/policy.md");
    let (_, changes) = document.split_once("### Changes").unwrap();
    let (_, example) = changes.split_once("```cedar\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let user = [policies("user/own.cedar", example)];
    let trust = TrustList::default();
    let sources = Sources {
        organisation: None,
        user_config: None,
        user_profiles: &NoProfiles,
        project: None,
        trust: &trust,
        policies: PolicySources {
            user: &user,
            ..PolicySources::default()
        },
    };
    let paths: Vec<PathBuf> = (0..101)
        .map(|one| PathBuf::from(format!("/home/ann/src/app/{one}")))
        .collect();
    let written: Vec<Promoted<'_>> = paths
        .iter()
        .map(|path| Promoted {
            path,
            control: false,
            is_moved: false,
            is_directory: false,
            is_link: false,
            artifact: None,
        })
        .collect();
    // No change stands for an undo.
    for (made_by, changes, expected) in [
        (Some(1000), 1, Some(0)),
        (Some(1000), 100, Some(0)),
        (Some(1000), 101, Some(101)),
        (Some(1000), 0, Some(0)),
        (Some(1001), 1, None),
        (Some(1001), 0, None),
        (None, 1, None),
        (None, 0, None),
    ] {
        let promoter = Promoter {
            is_unseen: false,
            user: 1000,
            time: 1,
            workspace: None,
            purposes: &[],
            makers: &|_| {
                Ok(vec![Maker {
                    user: made_by,
                    ..maker()
                }])
            },
        };
        let decided = promote(&sources, &promoter, &written[..changes]);
        let asked = decided.ok().map(|promotion| promotion.asked.len());
        assert_eq!(asked, expected, "{made_by:?} {changes}");
    }
}

/// An undo is asked about as an apply is: a denial, an error and an unknown maker deny it.
#[test]
fn undo_is_decided_by_policies() {
    let trust = TrustList::default();
    let decide = |text: &str, makers: Result<Vec<Maker>, String>| {
        let user = [policies("user/own.cedar", text)];
        let sources = Sources {
            organisation: None,
            user_config: None,
            user_profiles: &NoProfiles,
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
            makers: &|_| makers.clone(),
        };
        promote(&sources, &promoter, &[])
    };
    let known = || Ok(vec![maker()]);
    let denied = decide(
        "@id(\"never\") forbid(principal, action == Action::\"restore\", resource);",
        known(),
    );
    let Err(PromotionError::Refused(reasons)) = denied else {
        panic!("{denied:?}")
    };
    assert!(reasons[0].why.contains("never"), "{reasons:?}");
    assert!(!reasons[0].how_to_ask.is_empty());
    // What one policy is about says nothing of the other.
    let promote_alone = "forbid(principal, action == Action::\"promote\", resource);";
    assert_eq!(
        decide(promote_alone, Err("no".to_owned())).map(drop),
        Ok(())
    );
    let permit = "permit(principal, action == Action::\"restore\", resource);";
    assert_eq!(decide(permit, known()).map(drop), Ok(()));
    assert_eq!(
        decide(permit, Err("the ledger is gone".to_owned())),
        Err(PromotionError::Untold("the ledger is gone".to_owned()))
    );
    let erring = format!(
        "{permit}\nforbid(principal, action == Action::\"restore\", resource) \
         when {{ context.time + 9223372036854775807 > 0 }};"
    );
    let denied = decide(&erring, known());
    assert!(
        matches!(denied, Err(PromotionError::Refused(_))),
        "{denied:?}"
    );
}
