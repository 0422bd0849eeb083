//! Levels of trust: every cell of the table in docs/levels.md, and the files that may set one.

use atoll_cedar::{
    Asked, Effect, Facts as CedarFacts, Follows, Look as Carried, Principal, Question,
};
use atoll_model::network::{CredentialName, HostName, HostPart, Request, Scheme, Target};
use atoll_model::{LimitKey, Mode, ViewKind};

use super::*;

const PAGE: &str = include_str!("../../../../docs/levels.md");
const PROFILE: &str = r#"
[trust]
endpoints = ["model.example.com"]
[home]
read = [".config/tool"]
[network]
allow = ["api.example.com", "model.example.com", "db.example.com:5432", "github.com:22"]
ask = ["asked.example.com"]
publish = ["3000"]
[credential.KEY]
source = { environment = "KEY" }
to = "api.example.com"
place = { header = "authorization", form = "Bearer {}" }
[ssh.deploy]
to = "github.com"
key = "agent"
"#;

/// Returns the rows of the table that begins with this heading, each a list of cells.
fn table(heading: &str) -> Vec<Vec<&'static str>> {
    let (_, section) = PAGE.split_once(heading).unwrap();
    let rows = section.lines().skip_while(|line| !line.starts_with('|'));
    let rows = rows.take_while(|line| line.starts_with('|'));
    let cells = rows.map(|line| {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().trim_matches('`')).collect()
    });
    cells.collect()
}

fn trusted(level: &str, mode: &str) -> World {
    let mut world = world().profile("p", PROFILE).with("p");
    world.requested.trust = Some(level.to_owned());
    world.requested.mode = Some(mode.to_owned());
    world
}

fn word(effect: Effect) -> &'static str {
    match effect {
        Effect::Allow => "allow",
        Effect::Ask => "ask",
        Effect::Deny => "deny",
    }
}

/// Returns the strictest effect of the policies on these.
fn policed(rules: &Rules, asked: &[Asked<'_>]) -> Effect {
    let Some(layers) = rules.policies() else {
        return Effect::Allow;
    };
    let principal = Principal {
        person: 1000,
        session: Some("run".to_owned()),
    };
    let facts = CedarFacts::new(0, Mode::Full, "p");
    let effects = asked.iter().map(|asked| {
        let question = Question {
            principal: &principal,
            asked: *asked,
            facts: &facts,
        };
        let decision = layers.authorize(&question);
        decision.within(atoll_cedar::carried(asked.action())).effect
    });
    let rank = |one: &Effect| match one {
        Effect::Deny => 2,
        Effect::Ask => 1,
        Effect::Allow => 0,
    };
    effects.max_by_key(rank).unwrap()
}

fn host(name: &str) -> HostPart {
    name.parse().unwrap()
}

/// Returns the outcome of a request, by rules and policies.
fn request(rules: &Rules, name: &str, method: &str, follows: Follows) -> &'static str {
    let (host, target) = (host(name), Target::parse("/v1").unwrap());
    let request = Request {
        host: &host,
        port: 443,
        scheme: Scheme::Https,
        method,
        target: &target,
    };
    let network = rules.network();
    if network.request(&request).is_err() {
        return "deny";
    }
    let named = HostName::parse(name).unwrap();
    let connect = Asked::Connect {
        host: &host,
        port: 443,
        look: Carried::Into,
    };
    let asked = [
        Asked::Resolve(&named),
        connect,
        Asked::Request(&request, follows),
    ];
    match policed(rules, &asked) {
        Effect::Allow if network.asks_of_request(&request).is_some() => "ask",
        effect => word(effect),
    }
}

fn unseen(rules: &Rules) -> &'static str {
    let host = host("db.example.com");
    if rules.network().connection(&host, 5432).is_err() {
        return "deny";
    }
    let connect = Asked::Connect {
        host: &host,
        port: 5432,
        look: Carried::Past,
    };
    word(policed(rules, &[connect]))
}

fn given(is_there: bool, rules: &Rules, asked: Asked<'_>) -> &'static str {
    match is_there {
        true => word(policed(rules, &[asked])),
        false => "deny",
    }
}

fn started(level: &str, mode: &str, change: impl Fn(&mut Requested)) -> &'static str {
    let mut world = world();
    world.requested.trust = Some(level.to_owned());
    world.requested.mode = Some(mode.to_owned());
    change(&mut world.requested);
    match world.decide() {
        Verdict::Allow(_) => "allow",
        Verdict::Ask(_) => "ask",
        Verdict::Deny(_) => "deny",
    }
}

fn cell(level: &str, mode: &str, column: &str) -> &'static str {
    let rules = trusted(level, mode).rules();
    let is = |holds: bool| if holds { "allow" } else { "deny" };
    let key: CredentialName = "KEY".parse().unwrap();
    let ssh: CredentialName = "deploy".parse().unwrap();
    match column {
        "reads" => {
            let head = request(&rules, "api.example.com", "HEAD", Follows::Nothing);
            assert_eq!(
                head,
                request(&rules, "api.example.com", "GET", Follows::Nothing)
            );
            head
        }
        "sends" => {
            let post = request(&rules, "api.example.com", "POST", Follows::Body);
            for (method, follows) in [
                ("GET", Follows::Body),
                ("DELETE", Follows::Nothing),
                ("get", Follows::Nothing),
            ] {
                let other = request(&rules, "api.example.com", method, follows);
                assert_eq!(other, post, "{method}");
            }
            post
        }
        "model" => request(&rules, "model.example.com", "POST", Follows::Body),
        "unseen" => unseen(&rules),
        "asked" => request(&rules, "asked.example.com", "GET", Follows::Nothing),
        "credentials" => given(
            !rules.credentials.is_empty(),
            &rules,
            Asked::UseCredential(&key),
        ),
        "ssh" => given(!rules.ssh.is_empty(), &rules, Asked::UseCredential(&ssh)),
        "publish" => {
            let publish = rules.network().publish;
            let port = "3000".parse().unwrap();
            given(!publish.is_empty(), &rules, Asked::Publish(port))
        }
        "live" => {
            let live = started(level, mode, |requested| requested.live = true);
            let root = started(level, mode, |requested| requested.root = true);
            let nesting = started(level, mode, |requested| requested.nesting = true);
            assert_eq!([live, root], [nesting, live]);
            assert_eq!(started(level, mode, |_| {}), "allow");
            live
        }
        "home" => is(rules
            .views
            .values()
            .any(|view| view.value.kind == ViewKind::Home)),
        "apply" => is(rules.applies_unseen().is_ok()),
        "limits" => match rules.limits.limits.processes {
            256 => "tight",
            _ => "profile",
        },
        other => panic!("no column {other:?} is known"),
    }
}

#[test]
fn every_cell_of_the_table_of_trust_is_as_it_says() {
    let rows = table("## The table");
    let (heads, rows) = rows.split_first().unwrap();
    assert_eq!(heads[..2], ["level", "mode"]);
    let mut seen = Vec::new();
    for row in &rows[1..] {
        let (level, mode) = (row[0], row[1]);
        seen.push((level, mode));
        assert_eq!(row.len(), heads.len(), "{level} {mode}");
        for (column, said) in heads.iter().zip(row).skip(2) {
            assert_eq!(cell(level, mode, column), *said, "{level} {mode}: {column}");
        }
    }
    let all = ["none", "low", "medium", "high", "full"]
        .into_iter()
        .flat_map(|level| ["strict", "layered", "permissive"].map(|mode| (level, mode)));
    assert_eq!(seen, all.collect::<Vec<_>>());
}

#[test]
fn every_preset_of_the_table_is_what_it_says() {
    let rows = table("## Presets");
    assert_eq!(rows.len(), 2 + 4);
    for row in &rows[2..] {
        let mut world = world();
        world.requested.presets = vec![row[0].to_owned()];
        let rules = world.rules();
        let found = [rules.trust.level().name(), rules.trust.mode().name()];
        assert_eq!(found, row[1..], "{}", row[0]);
        let named = format!("[trust]\npreset = {:?}\n", row[0]);
        let rules = super::world().profile("p", &named).with("p").rules();
        let found = [rules.trust.level().name(), rules.trust.mode().name()];
        assert_eq!(found, row[1..], "{}", row[0]);
        assert!(presets().iter().any(|preset| preset.name == row[0]));
    }
    // What stands beside one is said more closely, and two contradict each other.
    let mut world = world();
    world.requested.presets = vec!["research".to_owned()];
    world.requested.mode = Some("strict".to_owned());
    let trust = world.rules().trust;
    assert_eq!(
        (trust.level().name(), trust.mode().name()),
        ("low", "strict")
    );
    world.requested.presets.push("public-chat".to_owned());
    assert!(world.error().contains("leave one out"));
}

#[test]
fn nobody_below_a_layer_trusts_further_than_it_says() {
    let level = |world: &World| {
        let trust = world.rules().trust;
        (trust.level().name(), trust.mode().name())
    };
    // Unstated, all is as the profile says, and nothing of Cedar is compiled.
    assert_eq!(level(&world()), ("high", "layered"));
    assert!(world().rules().policies().is_none());
    let own = "[trust]\nlevel = \"medium\"\nmode = \"permissive\"\n";
    let world = || world().profile("p", own).with("p");
    assert_eq!(level(&world()), ("medium", "permissive"));
    // A project lowers, and does not raise.
    let project = |text: &str| world().project(text);
    assert_eq!(
        level(&project("[trust]\nlevel = \"low\"\nmode = \"strict\"\n")),
        ("low", "strict")
    );
    let raising = project("[trust]\nlevel = \"full\"\n");
    assert_eq!(level(&raising), ("medium", "permissive"));
    assert!(
        raising
            .notices()
            .contains("trust level \"full\" is ignored")
    );
    let endpoints = project("[trust]\nendpoints = [\"example.com\"]\n");
    assert!(endpoints.error().contains("only a profile names"));
    // The person does, and the organisation bounds that too.
    let mut person = project("[trust]\nlevel = \"low\"\n");
    person.requested.trust = Some("full".to_owned());
    assert_eq!(level(&person), ("full", "permissive"));
    let bounded = person.organisation("[trust]\nlevel = \"medium\"\nmode = \"layered\"\n");
    assert_eq!(level(&bounded), ("medium", "layered"));
    assert!(
        bounded
            .notices()
            .contains("more than the organisation allows")
    );
}

/// No option and no level replaces an approval that the organisation requires.
#[test]
fn what_others_ask_about_is_asked_at_full_trust_too() {
    let asked = |level: &str, mode: &str| {
        let mut world = trusted(level, mode)
            .organisation("[network]\nask = [\"api.example.com\"]\n")
            .project("[network]\nask = [\"model.example.com\"]\n");
        world.requested.ask = vec!["own.example.com".to_owned()];
        let rules = world.rules();
        ["api", "model", "own"].map(|name| {
            let name = format!("{name}.example.com");
            request(&rules, &name, "GET", Follows::Nothing)
        })
    };
    assert_eq!(asked("high", "layered"), ["ask", "ask", "ask"]);
    assert_eq!(asked("full", "layered"), ["ask", "ask", "allow"]);
    assert_eq!(asked("full", "permissive"), ["ask", "ask", "allow"]);
    assert_eq!(asked("full", "strict"), ["deny", "deny", "deny"]);
}

/// A level never widens: anything that no profile allows stays denied at each of them.
#[test]
fn no_level_opens_anything() {
    for level in ["none", "low", "medium", "high", "full"] {
        for mode in ["strict", "layered", "permissive"] {
            let rules = trusted(level, mode).rules();
            for method in ["GET", "POST"] {
                let other = request(&rules, "other.example.com", method, Follows::Nothing);
                assert_eq!(other, "deny", "{level} {mode}");
            }
            let mut bare = world();
            bare.requested.trust = Some(level.to_owned());
            bare.requested.mode = Some(mode.to_owned());
            assert!(bare.boundary().network.is_empty(), "{level} {mode}");
        }
    }
}

#[test]
fn learning_and_nonsense_are_refused() {
    let learning = |level: &str, mode: &str| started(level, mode, |one| one.learn = true);
    assert_eq!(learning("low", "layered"), "deny");
    assert_eq!(learning("high", "strict"), "deny");
    assert_eq!(learning("high", "layered"), "allow");
    let instead = |level: &str, mode: &str| {
        let mut world = world();
        world.requested.trust = Some(level.to_owned());
        world.requested.mode = Some(mode.to_owned());
        world.requested.learn = true;
        world.reasons()[0].how_to_ask.clone()
    };
    assert!(instead("low", "layered").ends_with("--trust medium"));
    assert!(instead("high", "strict").ends_with("--mode layered"));
    let mut world = world();
    world.requested.trust = Some("hihg".to_owned());
    assert!(world.error().contains("did you mean \"high\""));
    world.requested.trust = None;
    world.requested.task = Some("two\nlines".to_owned());
    assert!(world.error().contains("--task: it is one line"));
    for text in ["level = \"most\"", "endpoints = [\"a:1\"]", "other = 1"] {
        let profile = format!("[trust]\n{text}\n");
        let world = super::world().profile("p", &profile).with("p");
        assert!(world.error().contains("p.toml:2"), "{text}");
    }
    // What is one of trust is none of the network, and is named there.
    let profile = "[network]\npresets = [\"research\"]\n";
    let world = super::world().profile("p", profile).with("p");
    assert!(world.error().contains("under [trust]"));
}

/// Stated facts are visible to policies, of a run and of its connections.
#[test]
fn task_and_purpose_are_facts_that_policies_see() {
    let forbid = "@id(\"support\") forbid(principal, action == Action::\"run\", resource) when { context has purpose && context.purpose == \"support\" && context has task && context.task == \"t\" && context has trust && context.trust == \"medium\" };";
    let mut world = world().user_policies(forbid);
    let _ = world.grant();
    world.requested.purpose = Some("support".to_owned());
    world.requested.task = Some("t".to_owned());
    let _ = world.grant();
    world.requested.trust = Some("medium".to_owned());
    assert!(world.reasons()[0].why.contains("policy support"));
    let mut world = super::world().profile("p", PROFILE_OPEN).with("p");
    world.requested.trust = Some("medium".to_owned());
    world.requested.purpose = Some("support".to_owned());
    let grant = world.grant();
    let (layers, _, facts) = atoll_cedar::take(grant.policies().unwrap()).unwrap();
    assert_eq!(facts.trust.as_deref(), Some("medium"));
    assert_eq!(facts.purpose.as_deref(), Some("support"));
    assert!(layers.ask_about(&[atoll_cedar::Action::Request]));
    assert!(world.rules().may_ask());
}

/// Stated facts are recorded with their origin; others are not.
#[test]
fn what_is_stated_is_told_with_who_has_stated_it() {
    let mut world = super::world()
        .profile("p", "[trust]\nlevel = \"low\"\n")
        .with("p");
    let told = |world: &World| {
        let stated = world.rules().stated_trust().into_iter();
        let stated: Vec<String> = stated.map(|(key, text)| format!("{key} {text}")).collect();
        stated.join("; ")
    };
    let by_file = told(&world);
    assert!(
        by_file.starts_with("trust low; trust-mode layered; trust-by ")
            && by_file.ends_with(".toml:2"),
        "{by_file}"
    );
    world.requested.mode = Some("strict".to_owned());
    world.requested.task = Some("t".to_owned());
    world.requested.purpose = Some("p".to_owned());
    let both = told(&world);
    assert!(
        both.ends_with(".toml:2, --mode; task t; purpose p") && both.contains("trust-mode strict"),
        "{both}"
    );
    assert_eq!(told(&super::world()), "");
}

/// A denial by the level alone names the origin of the level, and the way to get the right.
#[test]
fn a_level_that_refuses_says_so_itself() {
    let refused = |change: fn(&mut Requested)| {
        let mut world = super::world();
        world.requested.trust = Some("low".to_owned());
        change(&mut world.requested);
        let reasons = world.reasons();
        let [reason] = &reasons[..] else {
            panic!("{reasons:?}");
        };
        (
            reason.why.clone(),
            reason.rule.clone(),
            reason.how_to_ask.clone(),
        )
    };
    let (why, rule, instead) = refused(|one| one.live = true);
    assert_eq!(why, "trust level low (--trust) changes nothing directly");
    assert_eq!(rule, "--trust");
    assert_eq!(
        instead,
        "leave out --live, or trust it further: --trust medium"
    );
    let (why, _, instead) = refused(|one| one.nesting = true);
    assert_eq!(
        why,
        "trust level low (--trust) gives neither root nor nesting"
    );
    assert!(
        instead.starts_with("leave out root and nesting, or"),
        "{instead}"
    );
    // The organisation's level is nobody's to raise.
    let mut bound = super::world().organisation("[trust]\nlevel = \"low\"\n");
    bound.requested.live = true;
    let instead = bound.reasons()[0].how_to_ask.clone();
    assert!(
        instead.starts_with("leave out --live, or ask who wrote ") && !instead.contains("medium"),
        "{instead}"
    );
}

/// Rights that are cut, left out or decided on are reported by their own names, and only if there
/// are any.
#[test]
fn what_a_level_takes_away_is_told_by_its_name() {
    let told = |change: fn(&mut Requested)| {
        let mut world = super::world();
        change(&mut world.requested);
        world.notices()
    };
    let limited = told(|one| {
        one.trust = Some("none".to_owned());
        one.limits.push((LimitKey::WallClock, "1h".to_owned()));
    });
    assert!(
        limited.contains("limit wall-clock of --limit: trust level none holds it at 10m"),
        "{limited}"
    );
    let shorter = told(|one| {
        one.trust = Some("none".to_owned());
        one.limits.push((LimitKey::WallClock, "1m".to_owned()));
    });
    assert!(!shorter.contains("wall-clock"), "{shorter}");
    let published = told(|one| {
        one.trust = Some("none".to_owned());
        one.publish.push("3000".to_owned());
    });
    assert!(
        published.contains("trust level none leaves these out: published ports"),
        "{published}"
    );
    let silent = told(|one| one.mode = Some("permissive".to_owned()));
    assert_eq!(silent, "");
    let answered = told(|one| {
        one.mode = Some("permissive".to_owned());
        one.ask.push("example.com".to_owned());
    });
    assert!(
        answered.contains("goes out without a question"),
        "{answered}"
    );
    let sends = told(|one| {
        one.mode = Some("permissive".to_owned());
        one.trust = Some("medium".to_owned());
        one.allow.push("example.com".to_owned());
    });
    assert!(sends.contains("goes out without a question"), "{sends}");
}

/// An address is reported as invalid, in words that fit it.
#[test]
fn an_address_is_no_endpoint() {
    let error = super::world()
        .profile("p", "[trust]\nendpoints = [\"192.0.2.2\"]\n")
        .with("p")
        .error();
    assert!(
        error.contains("is an address, which cannot be named here"),
        "{error}"
    );
    assert!(!error.contains("decimal numbers"), "{error}");
}

const PROFILE_OPEN: &str = "[network]\nallow = [\"api.example.com\"]\n";

/// A profile as shown grants the same, its trust too; agents name their models.
#[test]
fn what_is_shown_of_trust_can_be_pasted() {
    let mut one = trusted("medium", "strict");
    one.requested.presets.clear();
    let shown = one.rules().show();
    assert!(shown.contains("[trust]\nlevel = \"medium\""), "{shown}");
    for agent in ["codex", "claude", "opencode", "gemini", "openclaw"] {
        let rules = world().with(agent).rules();
        let endpoints = &rules.trust.endpoints;
        assert!(!endpoints.is_empty(), "{agent}");
        for one in endpoints {
            let reached = request(&rules, &one.value, "POST", Follows::Body);
            assert_eq!(reached, "allow", "{agent} {}", one.value);
        }
        let mut careful = world().with(agent);
        careful.requested.trust = Some("none".to_owned());
        let boundary = careful.boundary();
        assert!(boundary.network.is_empty(), "{agent}");
        assert!(boundary.network.credentials.is_empty(), "{agent}");
    }
}

/// A project's file cannot choose a profile that is trusted further than the one that counts
/// without it.
#[test]
fn no_project_raises_trust_by_naming_a_profile() {
    let level = |world: &World| {
        let trust = world.rules().trust;
        (trust.level().name(), trust.mode().name())
    };
    let low = "[trust]\nlevel = \"low\"\nmode = \"strict\"\nendpoints = [\"*.example.com\"]\n";
    let wide = "[trust]\nlevel = \"full\"\nmode = \"permissive\"\nendpoints = [\"api.example.com\", \"other.test\"]\n";
    let world = || {
        let world = world().profile("mine", low).profile("wide", wide);
        world.config("default-profile = \"mine\"\n")
    };
    for name in ["default", "wide"] {
        let named = world().project(&format!("profile = \"{name}\"\n"));
        assert_eq!(level(&named), ("low", "strict"), "{name}");
    }
    let named = world().project("profile = \"wide\"\n");
    let endpoints = |world: &World| -> Vec<String> {
        let all = world.rules().trust.endpoints;
        all.into_iter().map(|one| one.value).collect()
    };
    assert_eq!(endpoints(&named), ["api.example.com"]);
    let told = "more than the profile that counts without the project allows";
    assert!(named.notices().contains(told), "{}", named.notices());
    // Nor where nobody states a level: then it is that of `high`.
    let mut unstated = world().project("profile = \"wide\"\n");
    unstated.config = None;
    assert_eq!(level(&unstated), ("high", "layered"));
    assert_eq!(endpoints(&unstated), ["api.example.com", "other.test"]);
    // The controls: the person's own word counts, and a project may name what is trusted less.
    assert_eq!(level(&named.clone().with("wide")), ("full", "permissive"));
    let mut person = named.clone();
    person.requested.trust = Some("high".to_owned());
    assert_eq!(level(&person), ("high", "strict"));
    let mut lower = world().project("profile = \"mine\"\n");
    lower.config = None;
    assert_eq!(level(&lower), ("low", "strict"));
}

#[test]
fn an_organisation_bounds_the_hosts_of_models() {
    let own =
        "[trust]\nlevel = \"low\"\nendpoints = [\"*.test\", \"a.models.test\", \"models.test\"]\n";
    let world = || world().profile("p", own).with("p");
    let endpoints = |world: &World| -> Vec<String> {
        let all = world.rules().trust.endpoints;
        all.into_iter().map(|one| one.value).collect()
    };
    let bounded = world().organisation("[trust]\nendpoints = [\"*.models.test\"]\n");
    assert_eq!(endpoints(&bounded), ["a.models.test"]);
    let told = "trust endpoint \"*.test\" is more than the organisation allows";
    assert!(bounded.notices().contains(told), "{}", bounded.notices());
    let none = world().organisation("[trust]\nendpoints = []\n");
    assert!(endpoints(&none).is_empty());
    // The control: where it names none, all count.
    let silent = world().organisation("[trust]\nlevel = \"low\"\n");
    assert_eq!(endpoints(&silent).len(), 3);
}

/// A profile shown in Cedar permits nothing that a run is denied, or needs an approval for.
#[test]
fn a_profile_in_cedar_is_no_wider_than_its_level() {
    let sent = |level: &str, mode: &str, name: &str, method: &str| {
        let text = trusted(level, mode).rules().show_cedar(None);
        let file = atoll_cedar::PolicyFile {
            name: "shown.cedar".to_owned(),
            content: text.into_bytes(),
        };
        let shown = atoll_cedar::Policies::compile(&[file], atoll_cedar::Known::default());
        let shown = shown.unwrap();
        let principal = Principal {
            person: 1000,
            session: Some("run".to_owned()),
        };
        let (host, target) = (host(name), Target::parse("/").unwrap());
        let request = Request {
            host: &host,
            port: 443,
            scheme: Scheme::Https,
            method,
            target: &target,
        };
        let question = Question {
            principal: &principal,
            asked: Asked::Request(&request, Follows::Nothing),
            facts: &CedarFacts::new(0, Mode::Full, "p"),
        };
        word(shown.authorize(&question).effect)
    };
    for (level, mode, posts) in [
        ("none", "layered", "deny"),
        ("low", "layered", "deny"),
        ("medium", "layered", "ask"),
        ("medium", "permissive", "allow"),
        ("high", "layered", "allow"),
    ] {
        assert_eq!(
            sent(level, mode, "api.example.com", "POST"),
            posts,
            "{level}"
        );
        let reads = if level == "none" { "deny" } else { "allow" };
        assert_eq!(
            sent(level, mode, "api.example.com", "GET"),
            reads,
            "{level}"
        );
    }
    assert_eq!(sent("high", "layered", "asked.example.com", "GET"), "ask");
    assert_eq!(sent("full", "layered", "asked.example.com", "GET"), "allow");
}

#[test]
fn a_question_is_put_with_what_the_rules_state() {
    let profile = "[trust]\nlevel = \"low\"\nmode = \"strict\"\n";
    let mut world = world().profile("p", profile).with("p");
    world.requested.task = Some("tidy".to_owned());
    let mut case = atoll_cedar::Case::default();
    world.rules().state(&mut case);
    assert_eq!(case.trust.as_deref(), Some("low"));
    assert_eq!(case.task.as_deref(), Some("tidy"));
    assert_eq!(case.profile.as_deref(), Some("p"));
    assert!(case.is_strict);
}
