//! Execs: the program that a run begins with, and those that are started in its sandbox later.

use std::collections::BTreeSet;

use super::*;
use crate::Granted;
use atoll_model::{Administer, Asker, ChangeLimits, Escalate, Served, ServedExec};

/// The verdict on one call as a run's own program and as an exec in its sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Allowed,
    Asked,
    Denied,
}

fn called(policies: &str, command: &[&str], path: Option<&str>) -> World {
    let mut world = match policies {
        "" => world(),
        _ => world().user_policies(policies),
    };
    *world.words() = command.iter().map(OsString::from).collect();
    match path {
        Some(path) => world.variable("PATH", path),
        None => world,
    }
}

fn end<G>(verdict: &Verdict<G>) -> Ends {
    match verdict {
        Verdict::Allow(_) => Ends::Allowed,
        Verdict::Ask(_) => Ends::Asked,
        Verdict::Deny(_) => Ends::Denied,
    }
}

fn exec(world: &World) -> Verdict<ExecGrant> {
    decide_exec(
        &world.rules(),
        &world.call,
        &world.facts(),
        &BTreeSet::new(),
    )
}

/// Checks that a run and an exec of this command end so.
fn check(policies: &str, command: &[&str], path: Option<&str>, expected: Ends) {
    let world = called(policies, command, path);
    let what = format!("{policies} {command:?} {path:?}");
    assert_eq!(end(&exec(&world)), expected, "an exec: {what}");
    assert_eq!(end(&world.decide()), expected, "a run: {what}");
}

const NO_CURL: &str =
    "forbid(principal, action == Action::\"exec\", resource == Program::\"/usr/bin/curl\");";
const ONLY_GIT: &str =
    "permit(principal, action == Action::\"exec\", resource in Program::\"git\");";

#[test]
fn exec_without_policies_is_allowed() {
    check("", &["curl"], None, Ends::Allowed);
    let other = "forbid(principal, action == Action::\"read\", resource == Path::\"/x\");";
    check(other, &["curl"], None, Ends::Allowed);
}

#[test]
fn exec_forbidden_by_path_is_denied_by_every_name() {
    for program in [
        "/usr/bin/curl",
        "curl",
        "/bin/curl",
        "//usr//bin/./curl",
        "/usr/lib/../bin/curl",
        "../../../../usr/bin/curl",
    ] {
        check(NO_CURL, &[program], None, Ends::Denied);
    }
    check(NO_CURL, &["curl"], Some("/opt/bin:/usr/bin"), Ends::Denied);
    check(NO_CURL, &["curl"], Some("/opt/bin:/bin"), Ends::Denied);
    // The control: others, and the same name elsewhere.
    for program in ["wget", "/usr/bin/wget", "/opt/curl", "./curl"] {
        check(NO_CURL, &[program], None, Ends::Allowed);
    }
    check(NO_CURL, &["curl"], Some("/opt/bin"), Ends::Allowed);
    let reasons = called(NO_CURL, &["curl"], None).reasons();
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    assert_eq!(reasons[0].what, "executing curl");
    assert_eq!(reasons[0].rule, "user/own.cedar:1");
}

#[test]
fn exec_permitted_by_name_denies_others() {
    for program in ["git", "/usr/bin/git", "./git"] {
        check(ONLY_GIT, &[program], None, Ends::Allowed);
    }
    check(ONLY_GIT, &["/usr/bin/curl"], None, Ends::Denied);
    // A name can be any file of that name: it is not the one that is permitted.
    let by_path =
        "permit(principal, action == Action::\"exec\", resource == Program::\"/usr/bin/git\");";
    check(by_path, &["/usr/bin/git"], None, Ends::Allowed);
    check(by_path, &["git"], None, Ends::Denied);
}

#[test]
fn exec_context_has_arguments_directory_and_sandbox() {
    for (condition, denied) in [
        ("context.arguments.contains(\"push\")", true),
        ("context.arguments.contains(\"git\")", false),
        ("context.directory == \"/home/ann/src/app\"", true),
        ("context.directory like \"/tmp*\"", false),
        ("context.sandbox == \"261121-093012-k7qd\"", true),
        ("context.terminal", false),
    ] {
        let text = format!(
            "forbid(principal in Person::\"1000\", action == Action::\"exec\", resource) when {{ {condition} }};"
        );
        let expected = if denied { Ends::Denied } else { Ends::Allowed };
        check(&text, &["git", "push", "origin"], None, expected);
    }
}

#[test]
fn exec_unreadable_for_policies_is_denied() {
    use std::os::unix::ffi::OsStringExt;
    let odd = || OsString::from_vec(b"a\xff".to_vec());
    let by_arguments = "forbid(principal, action == Action::\"exec\", resource) when { context.arguments.contains(\"x\") };";
    for (policies, command, expected) in [
        (NO_CURL, vec![odd()], Ends::Denied),
        (by_arguments, vec!["git".into(), odd()], Ends::Denied),
        (NO_CURL, vec!["git".into(), odd()], Ends::Allowed),
        (by_arguments, vec!["x".into(); 5000], Ends::Denied),
    ] {
        let mut world = world().user_policies(policies);
        *world.words() = command;
        assert_eq!(end(&exec(&world)), expected, "{policies}");
        assert_eq!(end(&world.decide()), expected, "{policies}");
    }
    let long = vec!["/opt/bin"; 257].join(":");
    check(NO_CURL, &["git"], Some(&long), Ends::Denied);
    check(NO_CURL, &["/usr/bin/git"], Some(&long), Ends::Allowed);
}

#[test]
fn exec_of_another_user_or_nowhere_is_denied() {
    let mut other = called("", &["git"], None);
    other.call.principal.uid = 1001;
    assert_eq!(end(&exec(&other)), Ends::Denied);
    for directory in ["src", "/home/../etc"] {
        let mut nowhere = called("", &["git"], None);
        nowhere.start_in("/home/ann/src/app", directory);
        assert_eq!(end(&exec(&nowhere)), Ends::Denied);
    }
    assert_eq!(end(&exec(&called("", &[""], None))), Ends::Denied);
    // A sandbox has directories beside its workspace.
    let mut elsewhere = called("", &["git"], None);
    elsewhere.start_in("/home/ann/src/app", "/tmp");
    assert_eq!(end(&exec(&elsewhere)), Ends::Allowed);
}

#[test]
fn exec_approval_is_of_exactly_this_exec() {
    let text = "@approve(\"person\") permit(principal, action == Action::\"exec\", resource);";
    check(text, &["git", "push"], None, Ends::Asked);
    let world = called(text, &["git", "push"], None);
    let mut rules = world.rules();
    let Verdict::Ask(asked) = exec(&world) else {
        panic!("it was to be asked");
    };
    // A path of it asks for the same, once.
    assert_eq!(asked.len(), 1, "{asked:?}");
    rules.agree(agreement(&rules, &world.call, &asked));
    let decided = |call: &Call| decide_exec(&rules, call, &world.facts(), &BTreeSet::new());
    assert_eq!(end(&decided(&world.call)), Ends::Allowed);
    let other = called(text, &["git", "push", "--force"], None);
    assert_eq!(end(&decided(&other.call)), Ends::Asked);
    assert!(rules.ask_about_runs());
}

#[test]
fn exec_time_limit_and_log_are_carried_out() {
    let text = "@timeout(\"5m\") @log(\"Watched.\") permit(principal, action == Action::\"exec\", resource is Program);\n\
        @timeout(\"1m\") permit(principal, action == Action::\"exec\", resource == Program::\"/usr/bin/git\");";
    for (command, seconds) in [("git", 60), ("/usr/bin/git", 60), ("true", 300)] {
        let world = called(text, &[command], None);
        let Verdict::Allow(grant) = exec(&world) else {
            panic!("{command} was to be allowed");
        };
        assert_eq!(grant.wall_clock(), Some(Duration::from_secs(seconds)));
        assert!(grant.wall_clock_by().unwrap().contains("user/own.cedar:"));
        assert_eq!(grant.policy_digest(), world.rules().digest());
        let notices: Vec<String> = grant.notices().iter().map(Notice::to_string).collect();
        assert_eq!(notices.len(), 1, "{notices:?}");
        assert!(notices[0].contains("Watched."), "{notices:?}");
        let limit = world.boundary().limits.wall_clock;
        assert_eq!(limit, Some(Duration::from_secs(seconds)));
    }
}

#[test]
fn exec_labels_are_those_of_now() {
    let text = "forbid(principal, action == Action::\"exec\", resource) when { context has labels && context.labels.contains(\"web\") };";
    let world = called(text, &["git"], None);
    let labels = BTreeSet::from(["web".to_owned()]);
    let decide = |labels| decide_exec(&world.rules(), &world.call, &world.facts(), labels);
    assert_eq!(end(&decide(&labels)), Ends::Denied);
    assert_eq!(end(&decide(&BTreeSet::new())), Ends::Allowed);
}

/// Returns the world of a sandbox that a server has made for this tenant's caller.
fn served(policies: &str, tenant: &str) -> World {
    let mut world = called(policies, &["curl"], None);
    world.call.place = Place::Served(Box::new(Served {
        tenant: tenant.to_owned(),
        caller: Some("maker".to_owned()),
        template: "base".to_owned(),
        metadata: [("team".to_owned(), "ml".to_owned())].into(),
        ..Served::default()
    }));
    world
}

#[test]
fn exec_and_run_know_tenant_and_notes() {
    for condition in [
        "context has served && context.served.tenant == \"team-b\"",
        "context has served.caller && context.served.caller == \"maker\" && context.served.tenant != \"team-a\"",
        "context has served && context.served.metadata.contains(\"team=ml\") && context.served.tenant like \"*-b\"",
    ] {
        for action in ["run", "exec"] {
            let text = format!(
                "forbid(principal, action == Action::\"{action}\", resource) when {{ {condition} }};"
            );
            let ends = |world: &World| match action {
                "exec" => end(&exec(world)),
                _ => end(&world.decide()),
            };
            assert_eq!(ends(&served(&text, "team-b")), Ends::Denied, "{text}");
            assert_eq!(ends(&served(&text, "team-a")), Ends::Allowed, "{text}");
            let unserved = called(&text, &["curl"], None);
            assert_eq!(ends(&unserved), Ends::Allowed, "{text}");
        }
    }
}

#[test]
fn exec_caller_is_who_starts_it() {
    let text = "forbid(principal, action == Action::\"exec\", resource) unless { context has served.caller && context.served.caller == \"maker\" };";
    let mut world = served(text, "team-a");
    assert_eq!(end(&exec(&world)), Ends::Allowed);
    for caller in [Some("other".to_owned()), None] {
        let by = ServedExec {
            caller,
            ..ServedExec::default()
        };
        let served = world.call.served().unwrap().clone();
        world.call.place = Place::Served(Box::new(served.by(&by)));
        assert_eq!(end(&exec(&world)), Ends::Denied, "{by:?}");
    }
}

#[test]
fn exec_in_approved_sandbox_needs_own_approval() {
    let text = "@approve(\"person\") permit(principal, action == Action::\"exec\", resource);";
    let world = served(text, "team-a");
    let mut rules = world.rules();
    let decided = |rules: &Rules| decide_exec(rules, &world.call, &world.facts(), &BTreeSet::new());
    for (answer, why) in [
        (PriorAnswer::Nobody, ""),
        (PriorAnswer::Agreed("sha256:of-the-sandbox".to_owned()), ""),
        (PriorAnswer::Denied("they said no"), "; they said no"),
    ] {
        rules.take_answer(answer);
        let Verdict::Ask(reasons) = decided(&rules) else {
            panic!("it is not asked about");
        };
        let told = &reasons[0].why;
        assert!(
            told.ends_with(why) && !told.contains("something else"),
            "{told}"
        );
        assert!(reasons[0].how_to_ask.contains("approver"), "{reasons:?}");
        let agreement = agreement(&rules, &world.call, &reasons);
        let mut agreed = rules.clone();
        agreed.take_answer(PriorAnswer::Agreed(agreement));
        assert_eq!(end(&decided(&agreed)), Ends::Allowed);
    }
}

#[test]
fn escalation_and_administration_are_asked_of_policies() {
    let decide = |world: &World| {
        let (rules, facts) = (world.rules(), world.facts());
        let by = Asker { uid: 1000, pid: 7 };
        let is_allowed = |action| {
            let decided = crate::decide(&rules, &world.call.with(action), &facts);
            matches!(decided, Verdict::Allow(Granted::Permission(_)))
        };
        let lease = |seconds| {
            is_allowed(Action::Escalate(Escalate {
                by,
                approval: 1,
                seconds,
            }))
        };
        let reload = is_allowed(Action::Administer(Administer::ReloadPolicies { by }));
        [lease(Some(60)), lease(Some(3600)), lease(None), reload]
    };
    for (policies, expected) in [
        ("", [true; 4]),
        (
            "forbid(principal, action == Action::\"escalate\", resource) unless { context has seconds && context.seconds < 600 };",
            [true, false, false, true],
        ),
        (
            "forbid(principal, action == Action::\"administer\", resource) when { context.operation == \"reload\" };",
            [true, true, true, false],
        ),
        (
            "forbid(principal == Person::\"1001\", action in [Action::\"escalate\", Action::\"administer\"], resource);",
            [true; 4],
        ),
        // What the session has touched is not known here.
        (
            "forbid(principal, action == Action::\"escalate\", resource) when { context has labels && context.labels.contains(\"web\") };",
            [false, false, false, true],
        ),
        // Who has said yes already is not asked again.
        (
            "@approve(\"person\") permit(principal, action == Action::\"escalate\", resource);",
            [false, false, false, true],
        ),
    ] {
        assert_eq!(
            decide(&called(policies, &["git"], None)),
            expected,
            "{policies}"
        );
    }
}

#[test]
fn limits_of_a_living_sandbox_stay_within_the_organisations() {
    let decide = |world: &World, memory_bytes, cpu_millis| {
        let action = Action::ChangeLimits(ChangeLimits {
            memory_bytes,
            cpu_millis,
        });
        crate::decide(&world.rules(), &world.call.with(action), &world.facts())
    };
    let bound =
        called("", &["git"], None).organisation("limits = { memory = '1GiB', cpu = '1.5' }\n");
    for (memory, cpu, expected) in [
        (Some(1 << 30), Some(1_500), None),
        (Some((1 << 30) + 1), None, Some("limit memory")),
        (None, Some(1_501), Some("limit cpu")),
    ] {
        match (decide(&bound, memory, cpu), expected) {
            (Verdict::Allow(Granted::Permission(_)), None) => {}
            (Verdict::Deny(reasons), Some(what)) => assert_eq!(reasons[0].what, what),
            (other, _) => panic!("{other:?}"),
        }
    }
    let free = called("", &["git"], None);
    let granted = decide(&free, Some(u64::MAX), None);
    assert!(matches!(granted, Verdict::Allow(_)), "{granted:?}");
    let policy = "forbid(principal, action == Action::\"administer\", resource) \
                  when { context.operation == \"limits\" };";
    let denied = decide(&called(policy, &["git"], None), Some(1), None);
    assert!(matches!(denied, Verdict::Deny(_)), "{denied:?}");
}
