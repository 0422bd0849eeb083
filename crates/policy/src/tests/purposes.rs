//! Purposes of sessions: named sets of policies that only forbid.

use std::collections::BTreeMap;
use std::path::Path;

use atoll_cedar::{Case, Decision, Effect, cases};

use super::{Promoter, PromotionError, World, policies, promote, world};
use crate::*;

const ALL: [&str; 8] = [
    "review",
    "fix",
    "tests",
    "documentation",
    "dependencies",
    "release",
    "research",
    "data-analysis",
];
/// A profile with a model that its agent works with.
const AGENT: &str = "[trust]\nendpoints = [\"*.model.example\"]\n";
const WORKSPACE: &str = "/home/ann/src/app";

fn for_purpose(name: &str) -> World {
    let mut world = world().profile("agent", AGENT).with("agent");
    world.requested.purpose = Some(name.to_owned());
    world
}

fn decide(rules: &Rules, case: &Case) -> Decision {
    let mut case = case.clone();
    rules.state(&mut case);
    let layers = rules.policies().unwrap();
    case.ask(|question| layers.authorize(question)).unwrap()
}

/// Returns the case of a changed file in the workspace.
fn change(within: &str) -> Case {
    Case {
        action: "promote".to_owned(),
        resource: format!("{WORKSPACE}/{}", within.trim_end_matches('/')),
        within: Some(within.to_owned()),
        ..Case::default()
    }
}

fn request(method: &str, host: &str, path: &str) -> Case {
    Case {
        action: "request".to_owned(),
        resource: host.to_owned(),
        method: Some(method.to_owned()),
        path: Some(path.to_owned()),
        ..Case::default()
    }
}

/// The changes that each purpose allows, and the network that it sends to and reads from.
#[test]
fn each_purpose_allows_its_own_and_refuses_the_rest() {
    let code = change("src/main.rs");
    let test = change("tests/login.rs");
    let text = change("docs/guide.md");
    let lock = change("Cargo.lock");
    let news = change("CHANGELOG.md");
    let figure = change("figures/a.png");
    let ci = Case {
        control: true,
        ..change(".github/workflows/ci.yml")
    };
    let page = request("GET", "example.com", "/page");
    let package = request("GET", "pypi.org", "/simple/a/");
    let push = request("POST", "github.com", "/a/b.git/git-receive-pack");
    let fetch = request("POST", "github.com", "/a/b.git/git-upload-pack");
    let publish = request("PUT", "crates.io", "/api/v1/crates/new");
    let message = request("POST", "hooks.example.com", "/x");
    let port = Case {
        action: "publish".to_owned(),
        resource: "3000".to_owned(),
        ..Case::default()
    };
    let asked = [
        &code, &test, &text, &lock, &news, &figure, &ci, &page, &package, &push, &fetch, &publish,
        &message, &port,
    ];
    let table: BTreeMap<&str, &str> = [
        // code test text lock news figure ci | page package push fetch publish message | port
        ("review", "--------------"),
        ("fix", "+++-++-++++--+"),
        ("tests", "-+------+-+---"),
        ("documentation", "--+-+--++----+"),
        ("dependencies", "---+----+-+---"),
        ("release", "---++---++++--"),
        ("research", "--+-+--++-----"),
        ("data-analysis", "-----+-++----+"),
    ]
    .into();
    for name in ALL {
        let rules = for_purpose(name).rules();
        let found = asked.map(|case| match decide(&rules, case).effect {
            Effect::Allow => '+',
            Effect::Ask => '?',
            Effect::Deny => '-',
        });
        let found: String = found.iter().collect();
        assert_eq!(found, table[name], "{name}");
    }
}

/// Models stay reachable for every purpose, and no purpose allows a live workspace.
#[test]
fn a_model_goes_on_working_for_every_purpose_and_nothing_unseen_does() {
    for name in ALL {
        let rules = for_purpose(name).rules();
        let effect = |case: &Case| decide(&rules, case).effect;
        for action in ["resolve", "connect", "request"] {
            let model = Case {
                action: action.to_owned(),
                ..request("POST", "a.model.example", "/v1/messages")
            };
            let model = match action {
                "request" => model,
                _ => Case {
                    method: None,
                    path: None,
                    ..model
                },
            };
            assert_eq!(effect(&model), Effect::Allow, "{name} {action}");
        }
        for within in [
            "CLAUDE.md",
            "docs/AGENTS.md",
            "figures/.claude/settings.json",
        ] {
            assert_eq!(effect(&change(within)), Effect::Deny, "{name} {within}");
        }
        let elsewhere = Case {
            within: None,
            ..change("docs/guide.md")
        };
        assert_eq!(effect(&elsewhere), Effect::Deny, "{name}");
        let unseen = Case {
            action: "connect".to_owned(),
            resource: "a.model.example".to_owned(),
            port: Some(22),
            look: Some("past".to_owned()),
            ..Case::default()
        };
        assert_eq!(effect(&unseen), Effect::Deny, "{name}");
        let mut live = for_purpose(name);
        live.requested.live = true;
        let why = live.reasons()[0].clone();
        assert!(why.why.contains(&format!("purpose-{name}-live")), "{why:?}");
        assert!(
            why.rule.starts_with(&format!("purpose/{name}.cedar:")),
            "{why:?}"
        );
        assert!(why.how_to_ask.contains("--purpose NAME"), "{why:?}");
    }
}

/// They are decided on as `cargo xtask bench purpose` does: a request with its connection and its
/// name.
#[test]
fn the_labelled_actions_of_the_first_part_are_decided_as_they_are_labelled() {
    let text = include_str!("../../purposes/corpus/development.toml");
    let all: toml::Table = toml::from_str(text).unwrap();
    let rules: BTreeMap<&str, Rules> = ALL.map(|name| (name, labelled_rules(name))).into();
    let mut seen: BTreeMap<(String, bool), usize> = BTreeMap::new();
    for one in all["action"].as_array().unwrap() {
        let mut one = one.as_table().unwrap().clone();
        let mut said = |key: &str| one.remove(key).unwrap();
        let (purpose, on) = (said("purpose"), said("on").as_bool().unwrap());
        let (purpose, reason) = (purpose.as_str().unwrap(), said("reason"));
        let mut case: Case = one.try_into().unwrap();
        let within = case.resource.strip_prefix("/home/me/project/");
        case.within = within.map(str::to_owned);
        let connection = Case {
            action: "connect".to_owned(),
            resource: case.resource.clone(),
            ..Case::default()
        };
        let is_request = case.action == "request";
        let asked = is_request
            .then_some(connection)
            .into_iter()
            .chain([case.clone()]);
        let effects = asked.map(|case| decide(&rules[purpose], &case).effect);
        let is_allowed = effects
            .collect::<Vec<_>>()
            .iter()
            .all(|one| *one == Effect::Allow);
        assert_eq!(is_allowed, on, "{purpose}: {reason}: {case:?}");
        *seen.entry((purpose.to_owned(), on)).or_default() += 1;
    }
    for name in ALL {
        for on in [true, false] {
            assert!(seen[&(name.to_owned(), on)] >= 8, "{name} {on}");
        }
    }
}

/// A condition as deep as its list is long would fail where the stack is small, as in a thread of
/// the egress process: every error denies.
#[test]
fn the_longest_list_of_a_purpose_is_decided_on_in_a_small_thread() {
    const STACK_BYTES: usize = 3 << 19;
    let decided = || {
        let effect = |name: &str, case: &Case| decide(&for_purpose(name).rules(), case);
        for (name, within) in [
            ("tests", "a/testng.xml"),
            ("release", "a/cartfile.resolved"),
            ("fix", "src/main.rs"),
        ] {
            let found = effect(name, &change(within));
            assert_eq!(found.effect, Effect::Allow, "{name}: {}", found.why());
        }
        let last = request("POST", "ghcr.io", "/v2/a/b/blobs/uploads");
        let found = effect("release", &last);
        assert_eq!(found.effect, Effect::Allow, "{}", found.why());
    };
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    thread.spawn(decided).unwrap().join().unwrap();
}

fn labelled_rules(name: &str) -> Rules {
    let mut world = world().with("claude");
    world.requested.purpose = Some(name.to_owned());
    world.rules()
}

#[test]
fn every_shipped_purpose_says_what_it_is_for_and_is_without_a_remark() {
    let all = purposes([].iter());
    let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ALL);
    for one in &all {
        assert!(one.description.len() > 40, "{}", one.name);
        let file = atoll_cedar::PolicyFile {
            name: one.file.clone(),
            content: one.content.clone().into_bytes(),
        };
        let read = atoll_cedar::Policies::compile(&[file], atoll_cedar::Known::default()).unwrap();
        assert_eq!(atoll_cedar::remarks(&read), [], "{}", one.name);
        for (told, does) in read.list() {
            assert_eq!(does, "forbid", "{}", told.id);
            assert!(
                told.id.starts_with(&format!("purpose-{}-", one.name)),
                "{}",
                told.id
            );
            assert!(told.reason.is_some(), "{}", told.id);
        }
    }
}

#[test]
fn a_name_that_nobody_has_written_policies_for_narrows_nothing_and_says_so() {
    for text in ["support", "release 1.2", "fix the tests", "a"] {
        let world = for_purpose(text);
        assert!(world.rules().policies().is_none() && world.rules().narrowed().is_empty());
        let told = world.notices();
        assert!(
            told.contains(&format!("purpose {text:?} narrows nothing: it is a text")),
            "{told}"
        );
        assert_eq!(told.lines().count(), 1, "{told}");
    }
    // In a file one that is there is meant.
    let profile = "[trust]\npurpose = \"reviews\"\n";
    let world = super::world().profile("p", profile).with("p");
    let error = world.error();
    assert!(
        error.contains("user/p.toml:2") && error.contains("there is no purpose \"reviews\""),
        "{error}"
    );
}

#[test]
fn a_purpose_of_people_only_forbids_and_adds_to_the_one_that_ships() {
    let own = |text: &str| {
        let mut world = for_purpose("review");
        world.policies[1].push(policies(
            "/home/ann/.config/atoll/review.purpose.cedar",
            text,
        ));
        world
    };
    let opens = "// Own.\n\n  permit(principal, action, resource);";
    let error = own(opens).error();
    assert!(
        error.contains("review.purpose.cedar:3:3: a purpose only forbids, and this permits"),
        "{error}"
    );
    assert_eq!(
        check_policies(&policies("own.purpose.cedar", opens))[0].column,
        3
    );
    assert!(check_policies(&policies("own.cedar", opens)).is_empty());
    let idle = own("@report_only forbid(principal, action, resource);").error();
    assert!(idle.contains("@report_only does not"), "{idle}");
    let asks = own("@approve(\"person\") forbid(principal, action, resource);").error();
    assert!(asks.contains("@approve is for what is permitted"), "{asks}");
    let more = "@id(\"own\") forbid(principal, action == Action::\"request\", resource == Host::\"b.model.example\");";
    let rules = own(more).rules();
    let to = |host: &str| decide(&rules, &request("POST", host, "/v1/messages"));
    assert_eq!(to("a.model.example").effect, Effect::Allow);
    assert_eq!(&*to("b.model.example").deciding[0].id, "own");
    assert_eq!(decide(&rules, &change("a.md")).effect, Effect::Deny);
    // Where that is not what the run is for, its file counts for nothing, mistakes too.
    let mut other = own("permit(");
    other.requested.purpose = Some("fix".to_owned());
    assert_eq!(other.rules().narrowed(), ["fix"]);
}

/// Lower layers only add to a run's purposes.
#[test]
fn no_project_takes_a_purpose_away() {
    let review = format!("{AGENT}purpose = \"review\"\n");
    let narrowed = |world: &World| world.rules().narrowed();
    let own = || {
        world()
            .profile("agent", &review)
            .profile("free", "description = \"free\"\n")
            .config("default-profile = \"agent\"\n")
    };
    assert_eq!(narrowed(&own()), ["review"]);
    let named = own().project("profile = \"free\"\n");
    assert_eq!(narrowed(&named), ["review"]);
    let added = own().project("[trust]\npurpose = \"tests\"\n");
    assert_eq!(narrowed(&added), ["review", "tests"]);
    let stated = |mut world: World| {
        world.requested.purpose = Some("fix".to_owned());
        world
    };
    // A person's own word stands above the profile's, and takes away nothing that others add.
    assert_eq!(narrowed(&stated(own())), ["fix"]);
    assert_eq!(narrowed(&stated(added.clone())), ["fix", "tests"]);
    let held = stated(own()).organisation("[trust]\npurpose = \"documentation\"\n");
    assert_eq!(narrowed(&held), ["fix", "documentation"]);
    let told: Vec<(&str, String)> = held.rules().stated_trust();
    let said = |key: &str| told.iter().find(|one| one.0 == key).unwrap().1.clone();
    assert_eq!(said("purpose"), "fix");
    assert_eq!(
        said("purpose-policies"),
        "purpose/fix.cedar, purpose/documentation.cedar"
    );
    // Both count: what one of them takes over, the other does not.
    assert_eq!(
        decide(&held.rules(), &change("src/a.rs")).effect,
        Effect::Deny
    );
    assert_eq!(
        decide(&held.rules(), &change("docs/a.md")).effect,
        Effect::Allow
    );
}

/// Changes are asked about with the purpose of the run that made them.
#[test]
fn changes_are_taken_over_for_what_they_were_made_for() {
    let trust = TrustList::default();
    let ask_all = |purposes: &[&str], paths: &[(&str, bool)], is_link: bool| {
        let sources = Sources {
            organisation: None,
            user_config: None,
            user_profiles: &NoProfiles,
            project: None,
            trust: &trust,
            policies: PolicySources::default(),
        };
        let purposes: Vec<String> = purposes.iter().map(|one| (*one).to_owned()).collect();
        let promoter = Promoter {
            is_unseen: false,
            user: 1000,
            time: 1,
            makers: &|_| Ok(vec![super::maker()]),
            workspace: Some(Path::new(WORKSPACE)),
            purposes: &purposes,
        };
        let changes: Vec<Promoted<'_>> = paths
            .iter()
            .map(|(path, is_directory)| Promoted {
                path: Path::new(path),
                control: false,
                is_moved: false,
                is_directory: *is_directory,
                is_link,
                artifact: None,
            })
            .collect();
        match promote(&sources, &promoter, &changes) {
            Ok(promotion) => Ok(promotion.policy_digest.is_some()),
            Err(PromotionError::Refused(reasons)) => Err(reasons
                .iter()
                .map(|one| one.why.clone())
                .collect::<String>()),
            Err(error) => panic!("{error:?}"),
        }
    };
    let ask = |purposes: &[&str], paths: &[(&str, bool)]| ask_all(purposes, paths, false);
    let guide = "/home/ann/src/app/docs/deep/guide.md";
    let code = "/home/ann/src/app/src/main.rs";
    let new = "/home/ann/src/app/src/deep";
    assert_eq!(ask(&[], &[(code, false)]), Ok(false));
    assert_eq!(
        ask(&["documentation"], &[(guide, false), (new, true)]),
        Ok(true)
    );
    let refused = ask(&["documentation"], &[(guide, false), (code, false)]).unwrap_err();
    assert!(refused.contains("purpose-documentation-files"), "{refused}");
    assert!(ask(&["documentation", "review"], &[(guide, false)]).is_err());
    let beside = "/home/ann/docs/guide.md";
    let refused = ask(&["documentation"], &[(beside, false)]).unwrap_err();
    assert!(
        refused.contains("purpose-documentation-elsewhere"),
        "{refused}"
    );
    // A link that stands where a directory is refused is refused, and one elsewhere is what it is.
    let link = |purpose: &str, name: &str| {
        let path = format!("{WORKSPACE}/{name}");
        ask_all(&[purpose], &[(&path, false)], true)
    };
    for name in ["vendor", ".github", "deploy", "a/.cargo", "k8s"] {
        let refused = link("fix", name);
        assert!(refused.is_err(), "{name}");
        let path = format!("{WORKSPACE}/{name}");
        assert!(ask(&["fix"], &[(&path, false)]).is_ok(), "{name}");
    }
    assert_eq!(link("fix", "src/other"), Ok(true));
    // What takes over few things takes over no link that looks like a directory.
    for purpose in ALL.iter().filter(|one| **one != "fix") {
        for name in ["src/other", "vendor", ".vscode", "docs/.claude"] {
            let path = format!("{WORKSPACE}/{name}");
            let as_file = ask(&[purpose], &[(&path, false)]);
            assert!(
                as_file.is_ok() || link(purpose, name).is_err(),
                "{purpose} {name}"
            );
        }
        assert!(link(purpose, ".vscode").is_err(), "{purpose}");
        assert!(link(purpose, "docs/.claude").is_err(), "{purpose}");
    }
    // What has narrowed it and is gone does not open it.
    let gone = ask(&["own"], &[(guide, false)]).unwrap_err();
    assert!(gone.contains("no file of it any more"), "{gone}");
}

/// A reload reads a purpose's files anew, and fails without them.
#[test]
fn a_reload_does_not_go_on_without_what_narrowed_the_run() {
    let own = "forbid(principal, action == Action::\"publish\", resource);";
    let mut world = for_purpose("own");
    world.policies[1].push(policies("/c/own.purpose.cedar", own));
    let rules = world.rules();
    assert_eq!(rules.narrowed(), ["own"]);
    let trust = TrustList::default();
    let sources = |user: &'static [SourceFile<'static>]| (user, &trust);
    let reloaded = |(user, trust): (&'static [SourceFile<'static>], &TrustList)| {
        rules.reloaded(&Sources {
            organisation: None,
            user_config: None,
            user_profiles: &NoProfiles,
            project: None,
            trust,
            policies: PolicySources {
                user,
                ..PolicySources::default()
            },
        })
    };
    let gone = reloaded(sources(&[])).unwrap_err().to_string();
    assert!(gone.contains("purpose own narrows this run"), "{gone}");
    let again = vec![policies("/c/own.purpose.cedar", &format!("{own}\n{own}"))];
    let again = reloaded(sources(Vec::leak(again))).unwrap();
    assert_eq!(again.narrowed(), ["own"]);
    assert_ne!(again.digest(), rules.digest());
}

/// Cases of a person's own can test a purpose in the same terms.
#[test]
fn a_case_says_where_in_the_workspace_a_change_lies_and_who_is_a_model() {
    let text = "[[case]]\naction = \"promote\"\nresource = \"/w/docs/a.md\"\nwithin = \"docs/a.md\"\nexpect = \"allow\"\n\
                [[case]]\naction = \"connect\"\nresource = \"a.example\"\nmodel = true\nexpect = \"allow\"\n";
    assert_eq!(cases(text).unwrap().len(), 2);
    let rules = for_purpose("documentation").rules();
    let layers = rules.policies().unwrap();
    let wrong = |case: Case| case.ask(|question| layers.authorize(question)).unwrap_err();
    for within in [
        "guide.md",
        "/docs/guide.md",
        "",
        "s/guide.md",
        "docs//guide.md",
    ] {
        let case = Case {
            resource: "/w/docs/guide.md".to_owned(),
            within: Some(within.to_owned()),
            ..change("docs/guide.md")
        };
        let is_end = within == "guide.md";
        match is_end {
            // The workspace may be that directory.
            true => assert!(case.ask(|question| layers.authorize(question)).is_ok()),
            false => assert!(wrong(case).contains("within is the end of"), "{within}"),
        }
    }
    let address = Case {
        model: true,
        ..request("GET", "192.0.2.1", "/")
    };
    assert!(wrong(address).contains("models are known by their names"));
    let of_other = Case {
        model: true,
        ..change("a.md")
    };
    assert!(wrong(of_other).contains("model says nothing of promote"));
}

/// A policy may permit by the stated purpose, which only a person sets.
#[test]
fn what_projects_and_organisations_add_is_no_fact() {
    let releaser = "[trust]\npurpose = \"release\"\n";
    let fact = |world: World| world.rules().trust.purpose();
    let plain = || world().profile("releaser", releaser).project(releaser);
    assert_eq!(fact(plain()), None);
    assert_eq!(plain().rules().narrowed(), ["release"]);
    // Nor by the name of a profile that says so.
    let chosen = plain().project("profile = \"releaser\"\n");
    assert_eq!(fact(chosen.clone()), None);
    assert_eq!(chosen.rules().narrowed(), ["release"]);
    assert_eq!(fact(plain().organisation(releaser)), None);
    assert_eq!(fact(plain().with("releaser")), Some("release".to_owned()));
    let only = "forbid(principal, action == Action::\"request\", resource);\n\
                @id(\"narrow\") forbid(principal, action == Action::\"run\", resource) \
                unless { context has purpose && context.purpose == \"release\" };";
    let started = |mut world: World| {
        world.policies[1].push(policies("/c/a.cedar", only));
        let run = Case {
            action: "run".to_owned(),
            resource: "/bin/true".to_owned(),
            ..Case::default()
        };
        decide(&world.rules(), &run).effect
    };
    assert_eq!(started(plain()), Effect::Deny);
    assert_eq!(started(plain().with("releaser")), Effect::Allow);
}

/// Purposes that narrowed continued runs narrow this one too, whoever stated them.
#[test]
fn what_narrowed_earlier_runs_narrows_those_that_go_on() {
    let earlier = |stated: Option<&str>, narrowed: &[&str]| {
        let mut world = world().profile("agent", AGENT).with("agent");
        world.requested.earlier = EarlierPurposes {
            stated: stated.map(str::to_owned),
            narrowed: narrowed.iter().map(|one| (*one).to_owned()).collect(),
        };
        world
    };
    let found = |world: &World| {
        let rules = world.rules();
        (rules.trust.purpose(), rules.narrowed())
    };
    let two = earlier(Some("fix"), &["fix", "review"]);
    let both = ["fix", "review"].map(str::to_owned).to_vec();
    assert_eq!(found(&two), (Some("fix".to_owned()), both));
    // What others had added is no fact now either.
    let added = earlier(None, &["review"]);
    assert_eq!(found(&added), (None, vec!["review".to_owned()]));
    // Nothing that anybody says now takes it away.
    let tests = "[trust]\npurpose = \"tests\"\n";
    let mut said = added.clone().profile("agent", tests);
    assert_eq!(said.rules().narrowed(), ["tests", "review"]);
    said.requested.purpose = Some("fix".to_owned());
    assert_eq!(said.rules().narrowed(), ["fix", "review"]);
    let other = two.profile("agent", tests);
    assert_eq!(other.rules().narrowed(), ["fix", "tests", "review"]);
    // Nor does it go on where the file of it is gone.
    let gone = earlier(Some("own"), &["own"]).error();
    assert!(
        gone.contains("purpose own has narrowed what this run goes on with"),
        "{gone}"
    );
    assert!(earlier(Some("text"), &[]).rules().narrowed().is_empty());
}

/// A misspelling allows nothing: neither rights that the purpose would have taken away, nor those
/// that the profile's own does.
#[test]
fn a_text_that_is_nearly_a_purpose_starts_nothing() {
    let slips = [
        ("reveiw", "review"),
        ("reviews", "review"),
        ("Review", "review"),
        ("test", "tests"),
        ("document", "documentation"),
        ("release-2", "release"),
        ("data analysis", "data-analysis"),
        ("dependency", "dependencies"),
    ];
    for (slip, meant) in slips {
        let error = for_purpose(slip).error();
        let told = format!("--purpose: there is no purpose {slip:?}");
        assert!(error.contains(&told), "{error}");
        let told = format!("did you mean {meant:?}?");
        assert!(error.contains(&told), "{error}");
    }
    // One of people's own is meant too, and what a session has kept goes on.
    let mut world = for_purpose("acmee");
    let own = "// Own.\nforbid(principal, action, resource);";
    let file = policies("/home/ann/.config/atoll/acme.purpose.cedar", own);
    world.policies[1].push(file);
    assert!(world.error().contains("did you mean \"acme\"?"));
    world.requested.purpose = None;
    world.requested.earlier.stated = Some("acmee".to_owned());
    assert!(world.rules().narrowed().is_empty());
}

#[test]
fn a_text_without_policies_does_not_take_the_place_of_a_purpose() {
    let review = "[trust]\npurpose = \"review\"\n";
    let typed = |text: &str| {
        let mut world = world().profile("agent", review).with("agent");
        world.requested.purpose = Some(text.to_owned());
        world
    };
    let other = typed("support");
    assert_eq!(other.rules().narrowed(), ["review"]);
    assert_eq!(other.rules().trust.purpose(), Some("support".to_owned()));
    let told = other.notices();
    assert!(
        told.contains("\"review\" (user/agent.toml:2) goes on narrowing"),
        "{told}"
    );
    // The control: one that has policies takes its place.
    assert_eq!(typed("fix").rules().narrowed(), ["fix"]);
}
