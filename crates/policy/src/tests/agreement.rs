//! A profile is the Cedar that it is shown as: both decide alike on whatever is asked.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::IpAddr;

use atoll_cedar::{
    Asked, Effect, Exec, Facts as CedarFacts, Follows, Known, Look, Policies, PolicyFile,
    Principal as CedarPrincipal, Question, carried,
};
use atoll_model::network::{HostPart, Look as Carried, PublishedPort, Request, Scheme, Target};
use atoll_model::{Access, WorkspaceMode};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;

use super::*;

const WORKSPACE: &str = "/home/ann/src/app";
const HOSTS: [&str; 10] = [
    "example.com",
    "api.example.com",
    "a.b.api.example.com",
    "badexample.com",
    "other.org",
    "10.1.2.3",
    "192.0.2.1",
    "[2001:db8::1]",
    "[64:ff9b::a01:203]",
    "host.atoll.internal",
];
const PORTS: [u16; 6] = [22, 80, 443, 8000, 8080, 9999];
const METHODS: [&str; 5] = ["GET", "get", "POST", "HEAD", "DELETE"];
const TARGETS: [&str; 20] = [
    "/",
    "/v1",
    "/v1/",
    "/V1",
    "/v1/x",
    "/v1/x/x",
    "/v1/%78",
    "/v1/x?q=1",
    "/v1/x?q=2",
    "/v1//x",
    "/v1/../x",
    "/v1/;a",
    "/ab",
    "/aXb",
    "/v1/aXb",
    "/repos/o/git/x",
    "/repos/a/b/info",
    "/v1%2Fx",
    "/a/b/c/d/e/f/g/h/i/j/k/l/m/n",
    "*",
];
const PATHS: [&str; 14] = [
    "/",
    "/usr",
    "/usr/bin/git",
    "/etc/passwd",
    "/root/x",
    "/home/ann",
    "/home/ann/.agent",
    "/home/ann/.agent/log",
    "/home/ann/.agent/keys/one",
    "/home/ann/.config/tool/rc",
    "/home/ann/src",
    "/home/ann/src/app",
    "/home/ann/src/app/main.rs",
    "/home/ann/src/app/vendor/x",
];
/// Rules of `network.allow`, `network.deny` and `network.ask`, as files write them.
const RULES: [&str; 30] = [
    "'example.com'",
    "'api.example.com'",
    "'*.example.com'",
    "'*.example.com:443'",
    "'*'",
    "'*:*'",
    "'example.com:*'",
    "'example.com:22'",
    "'api.example.com:22,8000-8080'",
    "'10.0.0.0/8'",
    "'10.1.2.3:22'",
    "'[2001:db8::/32]:*'",
    "'host.atoll.internal:8080'",
    "'other.org:9999'",
    "'GET example.com'",
    "'GET https://example.com/v1/**'",
    "'https://example.com'",
    "'http://api.example.com:8080'",
    "'POST https://*.example.com/**/info'",
    "{ to = 'example.com', methods = ['GET', 'POST'], paths = ['/v1/**', '/a*b'] }",
    "{ to = '*', methods = ['DELETE'] }",
    "{ to = '*.example.com', paths = ['/v1/x?q=1', '/repos/*/git/**'] }",
    "{ to = 'other.org', carry = 'tunnel' }",
    "{ to = 'example.com', carry = 'tunnel' }",
    "{ to = 'example.com:8000', carry = 'requests' }",
    "{ to = '10.0.0.0/8', paths = ['/v1/**'] }",
    "{ to = 'example.com', requests = '10/m' }",
    "{ to = '*', upload = '1MiB' }",
    "{ to = 'example.com', paths = ['/a/b/c/d/e/f/g/h/i/j/k/l/m/**'] }",
    "{ to = 'host.atoll.internal:8080', methods = ['GET'] }",
];

fn rules(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<&'static str>> {
    vec(select(RULES.to_vec()), count)
}

/// Rules that only allow and deny can be: a limit or a way to carry is nothing to ask or deny.
fn plain_rules(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<&'static str>> {
    let is_plain = |rule: &&str| {
        let others = ["carry", "requests =", "upload"];
        !others.iter().any(|other| rule.contains(other))
    };
    vec(
        select(RULES.into_iter().filter(is_plain).collect::<Vec<_>>()),
        count,
    )
}

/// Lines of a profile that are there or are not.
fn some_of(lines: &[&'static str]) -> impl Strategy<Value = String> + use<> {
    proptest::sample::subsequence(lines.to_vec(), 0..=lines.len()).prop_map(|all| all.join("\n"))
}

prop_compose! {
    fn profile()(
        allow in rules(1..5),
        deny in plain_rules(0..3),
        ask in plain_rules(0..4),
        workspace in select(vec!["copy-on-write", "copy-on-write", "read-only", "live"]),
        publish in some_of(&["'3000',", "'8080:80',"]),
        system in some_of(&["root = true", "nesting = true"]),
        home in some_of(&[
            "layer = ['.agent']",
            "read = ['.agent/keys', '.config/tool']",
        ]),
        files in some_of(&["read = ['/srv/data', '~/src/app/vendor']"]),
        credential in any::<bool>(),
        trust in some_of(&["endpoints = ['api.example.com']"]),
        purpose in prop_oneof![5 => Just(""), 1 => Just("purpose = 'review'")],
        level in select(vec!["none", "low", "medium", "medium", "high", "high", "high", "full"]),
        mode in select(vec!["strict", "layered", "layered", "permissive"]),
        labels in some_of(&["private = ['~/.agent']"]),
    ) -> String {
        let list = |all: Vec<&str>| all.join(", ");
        let (allow, deny, ask) = (list(allow), list(deny), list(ask));
        let credential = match credential {
            true => "[credential.one]\nsource = { environment = 'ONE' }\nto = 'api.example.com'\n\
                     place = { header = 'authorization', form = 'Bearer {}' }\n",
            false => "",
        };
        format!(
            "workspace = '{workspace}'\n[network]\nallow = [{allow}]\ndeny = [{deny}]\n\
             ask = [{ask}]\npublish = [{publish}]\n[system]\n{system}\n[home]\n{home}\n\
             [files]\n{files}\n[trust]\nlevel = '{level}'\nmode = '{mode}'\n{trust}\n{purpose}\n\
             [labels]\n{labels}\n{credential}"
        )
    }
}

/// One question, as numbers into the lists above.
#[derive(Clone, Copy, Debug)]
struct Pick {
    kind: usize,
    host: usize,
    port: usize,
    method: usize,
    target: usize,
    path: usize,
    flags: [bool; 3],
    mode: WorkspaceMode,
}

prop_compose! {
    fn pick()(
        kind in 0..16_usize,
        host in prop_oneof![2 => 0..2_usize, 1 => 0..HOSTS.len()],
        port in prop_oneof![2 => Just(2_usize), 1 => 0..PORTS.len()],
        method in 0..METHODS.len(),
        target in 0..TARGETS.len(),
        path in 0..PATHS.len(),
        flags in any::<[bool; 3]>(),
        mode in select(vec![WorkspaceMode::CopyOnWrite, WorkspaceMode::ReadOnly, WorkspaceMode::Live]),
    ) -> Pick {
        Pick { kind, host, port, method, target, path, flags, mode }
    }
}

/// The profile in both forms.
struct Both {
    rules: Rules,
    shown: Policies,
    text: String,
    facts: CedarFacts,
    session: CedarPrincipal,
    person: CedarPrincipal,
}

impl Both {
    /// Returns `None` for a profile that has mistakes.
    fn of(profile: &str) -> Option<Self> {
        let world = world().profile("p", profile).with("p");
        let rules = world.compile().ok()?;
        let text = rules.show_cedar(Some(Path::new(WORKSPACE)));
        let file = PolicyFile {
            name: "shown.cedar".to_owned(),
            content: text.clone().into_bytes(),
        };
        let shown = Policies::compile(&[file], Known::default());
        let shown = shown.unwrap_or_else(|faults| panic!("{faults:?}\n{text}"));
        let (person, session) = crate::policies::principals(&world.call);
        let facts = crate::policies::cedar_facts(&rules, &world.call, &world.facts());
        Some(Self {
            rules,
            shown,
            text,
            facts,
            session,
            person,
        })
    }

    fn question<'a>(&'a self, asked: Asked<'a>, facts: &'a CedarFacts) -> Question<'a> {
        let principal = match asked {
            Asked::Run { .. }
            | Asked::Promote { .. }
            | Asked::Restore { .. }
            | Asked::Escalate { .. }
            | Asked::Administer { .. } => &self.person,
            _ => &self.session,
        };
        Question {
            principal,
            asked,
            facts,
        }
    }

    /// Decides by the compiled rules: their own answer, and the layers beside them.
    fn by_rules(&self, asked: Asked<'_>, facts: &CedarFacts) -> Effect {
        let of_rules = self.of_rules(asked);
        let Some(layers) = self.rules.policies() else {
            return of_rules;
        };
        let decision = layers.authorize(&self.question(asked, facts));
        let decision = decision.within(carried(asked.action()));
        assert!(decision.errors.is_empty(), "{asked:?}: {decision:?}");
        stricter(of_rules, decision.effect)
    }

    fn by_text(&self, asked: Asked<'_>, facts: &CedarFacts) -> Effect {
        let decision = self.shown.authorize(&self.question(asked, facts));
        assert!(
            decision.errors.is_empty(),
            "{asked:?}: {decision:?}\n{}",
            self.text
        );
        decision.within(carried(asked.action())).effect
    }

    fn of_rules(&self, asked: Asked<'_>) -> Effect {
        let rules = &self.rules;
        let network = rules.network();
        let is = |allowed: bool| if allowed { Effect::Allow } else { Effect::Deny };
        let asks = |allowed: bool, asked: bool| match (allowed, asked) {
            (true, true) => Effect::Ask,
            (allowed, _) => is(allowed),
        };
        match asked {
            Asked::Run {
                workspace,
                root,
                nesting,
                ..
            } => {
                let rank = |mode: WorkspaceMode| match mode {
                    WorkspaceMode::ReadOnly => 0,
                    WorkspaceMode::CopyOnWrite => 1,
                    WorkspaceMode::Live => 2,
                };
                let narrower = rank(workspace) <= rank(rules.workspace.value);
                is(narrower && (!root || rules.root()) && (!nesting || rules.nesting()))
            }
            Asked::Exec(_)
            | Asked::Call(_)
            | Asked::Restore { .. }
            | Asked::Escalate { .. }
            | Asked::Administer { .. } => Effect::Allow,
            Asked::Read(path) => is(self.nearest(path).is_some()),
            Asked::Write(path) => is(self.nearest(path) == Some(true)),
            Asked::Resolve(name) => is(network.name(name).is_ok()),
            Asked::Connect { host, port, look } => {
                let found = network.connection(host, port);
                let allowed = match (look, &found) {
                    (_, Err(_)) => false,
                    (Look::Into, Ok(_)) => true,
                    (Look::Past, Ok((_, carried))) => *carried == Carried::Past,
                };
                let asked = look == Look::Past && network.asks_of_connection(host, port).is_some();
                asks(allowed, asked)
            }
            Asked::Request(request, _) => asks(
                network.request(request).is_ok(),
                network.asks_of_request(request).is_some(),
            ),
            Asked::UseCredential(name) => is(rules.credentials.contains_key(name)),
            Asked::Promote { .. } => is(rules.workspace.value != WorkspaceMode::ReadOnly),
            Asked::Publish(port) => is(network.publish.iter().any(|one| one.port == port)),
        }
    }

    /// Returns whether the nearest place above a path can be changed; `None` if it is not shown.
    fn nearest(&self, path: &Path) -> Option<bool> {
        let views = self.rules.views.values().map(|view| {
            let changes = matches!(view.value.access, Access::Layer(_));
            (view.value.host.as_path(), changes)
        });
        let changes = self.rules.workspace.value != WorkspaceMode::ReadOnly;
        let all = views.chain([(Path::new(WORKSPACE), changes)]);
        let above = all.filter(|(place, _)| path.starts_with(place));
        let nearest = above.max_by_key(|(place, _)| place.components().count());
        nearest.map(|(_, changes)| changes)
    }

    fn check(&self, asked: Asked<'_>, labels: bool, profile: &str, seen: &mut Seen) {
        let labels = labels && self.rules.notes_labels();
        let all = ["private", "untrusted"].map(str::to_owned);
        let facts = CedarFacts {
            labels: labels.then(|| BTreeSet::from(all)),
            ..self.facts.clone()
        };
        let (rules, text) = (self.by_rules(asked, &facts), self.by_text(asked, &facts));
        // What policies cannot express is denied by the text.
        let is_told = self
            .text
            .contains("its path has more segments than have names")
            || self.text.contains("what rules before it limit is longer");
        let agrees = rules == text || is_told && rank(text) > rank(rules);
        assert!(
            agrees,
            "{asked:?}: {rules} by the rules, {text} by the text\n{profile}\n{}",
            self.text
        );
        seen.count(rules);
    }
}

fn rank(effect: Effect) -> u8 {
    match effect {
        Effect::Allow => 0,
        Effect::Ask => 1,
        Effect::Deny => 2,
    }
}

fn stricter(one: Effect, two: Effect) -> Effect {
    if rank(one) > rank(two) { one } else { two }
}

/// The number of comparisons by answer: an answer that never comes up proves nothing.
#[derive(Debug, Default)]
struct Seen {
    profiles: usize,
    mistaken: usize,
    allowed: usize,
    asked: usize,
    denied: usize,
}

impl Seen {
    fn count(&mut self, effect: Effect) {
        match effect {
            Effect::Allow => self.allowed += 1,
            Effect::Ask => self.asked += 1,
            Effect::Deny => self.denied += 1,
        }
    }
}

/// Asks both forms of a profile one question.
fn put(both: &Both, pick: Pick, profile: &str, seen: &mut Seen) {
    let host: HostPart = HOSTS[pick.host].parse().unwrap();
    let port = PORTS[pick.port];
    let path = Path::new(PATHS[pick.path]);
    let [one, two, labels] = pick.flags;
    let mut check = |asked: Asked<'_>| both.check(asked, labels, profile, seen);
    match pick.kind {
        0 => check(Asked::Run {
            program: "git",
            workspace: pick.mode,
            root: one,
            nesting: two,
            terminal: labels,
        }),
        1 => check(Asked::Exec(Exec {
            program: "/usr/bin/git",
            arguments: &[],
            directory: path,
            sandbox: "run",
            terminal: one,
        })),
        2 => check(Asked::Read(path)),
        3 => check(Asked::Write(path)),
        4 => check(Asked::UseCredential(
            &if one { "one" } else { "two" }.parse().unwrap(),
        )),
        5 => check(Asked::Publish(PublishedPort {
            inside: if one { 3000 } else { 80 },
            outside: if two { 3000 } else { 8080 },
        })),
        6 => check(Asked::Promote {
            path,
            within: None,
            control: one,
            artifact: None,
        }),
        14 => check(Asked::Escalate {
            run: "run",
            seconds: one.then_some(60),
        }),
        15 => check(Asked::Administer {
            run: "run",
            operation: "reload",
        }),
        7 => {
            if let HostPart::Name(name) = &host {
                check(Asked::Resolve(name));
            }
        }
        8 | 9 => {
            let look = if one { Look::Into } else { Look::Past };
            // One of these addresses is asked about as the other one too.
            let of_4: Option<HostPart> = nat_64(&host).map(HostPart::Address);
            for host in [Some(&host), of_4.as_ref()].into_iter().flatten() {
                if of_4.is_none() || host != &HOSTS[pick.host].parse::<HostPart>().unwrap() {
                    check(Asked::Connect { host, port, look });
                }
            }
        }
        _ => {
            if nat_64(&host).is_some() {
                return;
            }
            let target = Target::parse(TARGETS[pick.target]).unwrap();
            let request = Request {
                host: &host,
                port,
                scheme: if one { Scheme::Https } else { Scheme::Http },
                method: METHODS[pick.method],
                target: &target,
            };
            let follows = if two { Follows::Body } else { Follows::Nothing };
            check(Asked::Request(&request, follows));
        }
    }
}

/// Returns the address of IPv4 in one of `64:ff9b::/96`.
fn nat_64(host: &HostPart) -> Option<IpAddr> {
    match host {
        HostPart::Address(IpAddr::V6(address)) => {
            let octets = address.octets();
            let is_it = octets.starts_with(&[0, 0x64, 0xff, 0x9b]);
            is_it.then(|| IpAddr::from([octets[12], octets[13], octets[14], octets[15]]))
        }
        HostPart::Address(IpAddr::V4(_)) | HostPart::Name(_) => None,
    }
}

/// Compares so many profiles by so many questions each.
fn compare(profiles: u32, questions: usize) -> Seen {
    let seen = RefCell::new(Seen::default());
    let config = ProptestConfig {
        cases: profiles,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let ran =
        TestRunner::new(config).run(&(profile(), vec(pick(), questions)), |(profile, picks)| {
            let mut seen = seen.borrow_mut();
            let Some(both) = Both::of(&profile) else {
                seen.mistaken += 1;
                return Ok(());
            };
            seen.profiles += 1;
            for pick in picks {
                put(&both, pick, &profile, &mut seen);
            }
            Ok(())
        });
    ran.unwrap();
    seen.into_inner()
}

#[test]
fn shown_profile_decides_as_its_rules() {
    let seen = compare(120, 60);
    assert!(
        seen.profiles > 60 && seen.allowed > 300 && seen.asked > 30 && seen.denied > 300,
        "{seen:?}"
    );
}

#[test]
fn shown_profile_decides_as_its_rules_nightly() {
    // Where long tests are not wanted, a few profiles show that this one still works.
    let is_wanted = std::env::var_os("ATOLL_NIGHTLY").is_some();
    let seen = compare(if is_wanted { 8_000 } else { 10 }, 200);
    let all = seen.allowed + seen.asked + seen.denied;
    assert!(
        !is_wanted || all > 1_000_000 && seen.asked > 10_000,
        "{seen:?}"
    );
}
