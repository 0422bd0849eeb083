use atoll_engine::explain::past::Pasts;
use atoll_ledger::{Position, TreeHash};
use atoll_model::network::NO_RULE;

use super::*;

const RUN: &str = "261121-093012-k7qd";

pub(crate) fn event(kind: &str, body: Value) -> Event {
    Event {
        position: Position {
            seq: 0,
            leaf: TreeHash::ZERO,
            segment: 1,
            offset: 0,
        },
        prev: TreeHash::ZERO,
        time: "2026-11-21T09:30:12.123456Z".to_owned(),
        run: RunId::parse(RUN).ok(),
        kind: kind.to_owned(),
        body,
    }
}

pub(super) fn opened(verdict: &str, decision: Value) -> Event {
    event(
        "run.opened",
        json!({
            "verdict": verdict,
            "decision": decision,
            "principal": { "uid": 1, "gid": 1, "name": "ada" },
            "command": ["make", "a b"],
            "workspace": "/srv/p",
            "directory": "/srv/p/sub",
            "terminal": false,
        }),
    )
}

/// Returns the dropped rights of a run without a session.
fn given_up(events: &[Event]) -> GivenUps {
    let mut pasts = Pasts::default();
    events.iter().for_each(|event| pasts.take(event));
    pasts.of(&RunId::parse(RUN).expect("a run id")).given_up
}

pub(super) fn told(events: &[Event]) -> String {
    let run = RunId::parse(RUN).expect("a run id");
    let story = Story {
        run: &run,
        events,
        session: None,
        home: Path::new("/home/ada"),
        configuration: Path::new("/home/ada/.config/atoll"),
        explained: Vec::new(),
        is_alive: true,
        state: None,
        given_up: given_up(events),
    };
    story.text(Paint::new(false))
}

#[test]
fn a_denial_names_its_rule_and_layer() {
    let decision = json!({ "profile": "strict", "policy": "sha256:x", "chosen-by": "--profile" });
    let reasons = json!([{
        "what": "--live",
        "why": "the workspace is never live here",
        "rule": "shipped/strict.toml:3",
        "how_to_ask": "leave out --live",
    }]);
    let text = told(&[
        opened("deny", decision),
        event(
            "run.denied",
            json!({ "verdict": "deny", "reasons": reasons }),
        ),
    ]);
    assert_eq!(
        text,
        "\
Run 261121-093012-k7qd  make 'a b'
  asked     by ada in /srv/p/sub, 2026-11-21 09:30:12 UTC
  decided   denied by profile strict (--profile); nothing was started
  denied    --live: the workspace is never live here
  rule      shipped/strict.toml:3 (a profile that comes with Atoll)
  to do     leave out --live
  more      atoll ledger show 261121-093012-k7qd
            atoll profile show strict
"
    );
}

#[test]
fn how_far_a_run_was_trusted_is_told_with_who_said_so() {
    let decision = json!({
        "profile": "p", "policy": "sha256:x", "trust": "low", "trust-mode": "layered",
        "trust-by": "ep.toml:3", "task": "fix the login", "purpose": "support",
    });
    let text = told(&[opened("allow", decision)]);
    let lines =
        "  trust     low, layered (ep.toml:3)\n  task      fix the login\n  purpose   support\n";
    assert!(text.contains(lines), "{text}");
    let unstated = json!({ "profile": "p", "policy": "sha256:x" });
    let text = told(&[opened("allow", unstated)]);
    assert!(!text.contains("trust"), "{text}");
}

#[test]
fn who_has_signed_the_organisations_layer_is_told() {
    let decision = json!({
        "profile": "p", "policy": "sha256:x",
        "organisation": { "key": "0a1b2c3d", "name": "acme.example", "serial": 7 },
    });
    let line = "  signed    the organisation's layer, by acme.example, number 7 (key 0a1b2c3d)\n";
    let text = told(&[opened("allow", decision)]);
    assert!(text.contains(line), "{text}");
    let text = told(&[opened("allow", json!({ "profile": "p" }))]);
    assert!(!text.contains("signed"), "{text}");
    // By the policies that came later it is another one.
    let later = |signed: Value| {
        let mut body = json!({ "from": "sha256:x", "pid": 8, "to": "sha256:y", "uid": 7 });
        body["signed"] = signed;
        told(&[
            opened("allow", json!({ "profile": "p" })),
            event("policy.reloaded", body),
        ])
    };
    let text = later("acme.example, number 8 (key 0a1b2c3d)".into());
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains("; signed by acme.example, number 8 (key 0a1b2c3d)"),
        "{text}"
    );
    let text = later(Value::Null);
    assert!(
        text.contains("reloaded") && !text.contains("signed"),
        "{text}"
    );
}

#[test]
fn a_limit_that_ended_a_run_comes_with_a_command_that_raises_it() {
    let decision = json!({
        "profile": "mine",
        "chosen-by": "/home/ada/.config/atoll/profiles/mine.toml:2",
        "workspace-mode": "copy-on-write",
        "network": "none",
        "home-read": ["/home/ada/.cargo", "b", "c", "d", "e", "f", "g"],
        "syscalls": ["deny-sockets"],
        "limits": { "memory-bytes": 1_610_612_736, "processes": 64, "wall-clock-ms": 1_500, "cpu-millis": 1_500 },
        "limits-asked-for": ["memory", "processes", "cpu", "wall-clock"],
    });
    let closed = json!({
        "ending": { "how": "limited", "limit": "wall-clock" },
        "status": 124,
        "enforcement": { "memory": "supervisor, in part", "swap": "none", "tmp": "tmpfs" },
        "details": { "exit": 124, "kept": true },
    });
    let seen = json!({ "count": 3, "denied": ["one", "two"], "limits": ["memory", "processes"] });
    let text = told(&[
        opened("allow", decision),
        event("run.closed", closed),
        event("denials.seen", seen),
        event("run.discarded", json!({ "state": "kept" })),
    ]);
    for line in [
        "  decided   allowed by profile mine (it is for this command:",
        "  boundary  /srv/p copy-on-write; the system read-only; network: none",
        "            the home is empty but for these, to read: ~/.cargo, b, c, d, e, f\n            and 1 more",
        "            refused besides: deny-sockets",
        "            limits: memory 1.5 GiB, processes 64, cpu 1.5, wall-clock 1.5 s;",
        "            limits not held here: swap; held in part: memory (atoll doctor tells",
        "  outcome   ended: the time limit was reached",
        "  denied    one\n            two\n            … and 1 more\n            No further denials recorded",
        "  after     discarded, 2026-11-21 09:30:12 UTC",
        "  allow     atoll run --limit memory=3GiB -- make 'a b'",
        "            atoll run --limit processes=128 -- make 'a b'",
        "            atoll run --limit wall-clock=3s -- make 'a b'",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
}

/// With the network and the home left out by the level of trust, only a level allows more, and
/// nothing does if the organisation has set it.
#[test]
fn at_trust_level_none_no_rule_is_advised() {
    let of = |level: &str, by: &str| {
        let decision = json!({
            "profile": "p", "policy": "sha256:x", "trust": level, "trust-mode": "layered",
            "trust-by": by,
        });
        let refused = json!({ "host": "example.com", "port": 443, "why": NO_RULE });
        told(&[opened("allow", decision), event("flow.refused", refused)])
    };
    let none = of("none", "--trust");
    assert!(
        none.contains("allow     atoll run --trust low -- make"),
        "{none}"
    );
    assert!(
        !none.contains("--allow") && !none.contains("[network]"),
        "{none}"
    );
    let bound = of("none", "/etc/atoll/organisation.toml:2");
    assert!(!bound.contains("  allow "), "{bound}");
    let low = of("low", "--trust");
    assert!(low.contains("--allow example.com"), "{low}");
}

#[test]
fn what_it_touched_and_gave_up_and_why_a_person_was_asked_is_told() {
    let decision = json!({ "profile": "p", "labels": ["private"] });
    let by = "a person is asked by policy labels-sends, both were read";
    let asked = |approval: u64| {
        json!({ "approval": approval, "host": "a.example", "port": 443, "method": "POST",
                "path": "/x", "scheme": "https", "rule": by })
    };
    let text = told(&[
        opened("allow", decision),
        event(
            "label.gained",
            json!({ "label": "untrusted", "by": "web.example" }),
        ),
        event(
            "rights.given-up",
            json!({ "at": 5, "by": "program", "host": "*.b.example" }),
        ),
        event("approval.asked", asked(1)),
        event("approval.asked", asked(2)),
        event(
            "login.written",
            json!({ "login": "codex", "file": "/home/ada/auth.json", "replaced": false }),
        ),
        event("secret.set", json!({ "login": "codex", "name": "token" })),
    ]);
    for words in [
        "label     private, from its beginning",
        "untrusted, by web.example",
        "given up  host *.b.example, by the program itself at 1970-01-01T00:00:05Z",
        ".1, .2: a person is asked by policy labels-sends",
        "the login codex was written to /home/ada/auth.json, which was not there",
        "its tokens were put into the vault: token",
    ] {
        let told = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.contains(&words), "{words:?} is not in\n{text}");
    }
}

#[test]
fn the_tokens_of_a_run_are_named_and_so_is_the_end_of_one_while_it_went_on() {
    let of = |until: &str| {
        let token = json!({ "ids": ["0123456789abcdef0123456789abcdef"], "until": until });
        let opened = json!({ "verdict": "allow", "decision": { "tokens": [token] } });
        let closed = json!({ "ending": { "how": "exited", "status": 0 }, "status": 0 });
        let text = told(&[event("run.opened", opened), event("run.closed", closed)]);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let early = of("1970-01-01T00:00:00Z");
    assert!(
        early.contains("token 0123456789abcdef, until 1970-01-01T00:00:00Z"),
        "{early}"
    );
    let line = "given up network, by the end of its token at 1970-01-01T00:00:00Z";
    assert!(early.contains(line), "{early}");
    // The control: one that goes on has given nothing up.
    let later = of("2999-01-01T00:00:00Z");
    assert!(
        later.contains("until 2999") && !later.contains("given up"),
        "{later}"
    );
}

#[test]
fn what_is_missing_in_the_ledger_is_told_as_missing() {
    let text = told(&[event("run.interrupted", json!({ "why": "it died" }))]);
    for words in [
        "unknown: its opening",
        "interrupted: it died",
        "No denials recorded (kernel refusals are not reported).",
    ] {
        assert!(text.contains(words), "{words:?} is not in\n{text}");
    }
    let failed = json!({ "what": "the run did not come to its end", "why": "no space" });
    let text = told(&[event("run.failed", failed)]);
    assert!(text.contains("its end: no space"), "{text}");
}

#[test]
fn denials_of_a_run_that_goes_on_are_told() {
    let refused = |host: &str| {
        let body =
            json!({ "kind": "tunnel", "host": host, "port": 443, "why": NO_RULE, "count": 2 });
        event("flow.refused", body)
    };
    let allowed = opened("allow", json!({ "profile": "p", "policy": "sha256:x" }));
    let so_far = [
        allowed,
        refused("a.example"),
        refused("b.example"),
        refused("a.example"),
    ];
    let text = told(&so_far);
    for line in [
        "  outcome   not yet: it is running",
        &format!("  denied    reaching a.example:443: {NO_RULE}\n"),
        &format!("            reaching b.example:443: {NO_RULE}\n"),
        "            No further denials recorded so far (kernel refusals are not",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    assert_eq!(text.matches("reaching a.example:443").count(), 1, "{text}");
    // At its end the record of all denials counts.
    let closed = json!({ "ending": { "how": "exited", "status": 0 }, "status": 0 });
    let seen = json!({ "count": 1, "denied": ["one"], "limits": [] });
    let ended = [event("run.closed", closed), event("denials.seen", seen)];
    let text = told(&[so_far.as_slice(), ended.as_slice()].concat());
    assert!(!text.contains("reaching a.example:443"), "{text}");
    assert!(text.contains("No further denials recorded ("), "{text}");
}

#[test]
fn rules_are_named_with_their_layer() {
    for (rule, layer) in [
        ("built in", "Atoll's own rules"),
        ("--ro", "the command line"),
        ("shipped/strict.toml:3", "comes with Atoll"),
        ("preset/npm.toml:3", "come with Atoll"),
        ("/etc/atoll/organisation.toml:4", "organisation"),
        ("/srv/p/atoll.toml:1", "project"),
        ("/home/ada/.config/atoll/profiles/x.toml:9", "your own"),
    ] {
        assert!(layer_of(rule).contains(layer), "{rule}: {}", layer_of(rule));
    }
}

#[test]
fn a_refused_request_is_told_with_the_narrowest_rule_that_allows_it() {
    let refused = |body: Value| event("flow.refused", body);
    let request = |method: &str, host: &str, path: &str| {
        refused(json!({
            "kind": "request", "host": host, "port": 443, "scheme": "https", "method": method, "path": path,
            "why": "no rule allows it", "count": 1,
        }))
    };
    let other = |host: &str, port: u16, why: &str| {
        refused(json!({ "kind": "tunnel", "host": host, "port": port, "why": why, "count": 1 }))
    };
    let run = opened(
        "allow",
        json!({ "profile": "default", "chosen-by": "built in" }),
    );
    let text = told(&[
        run,
        request("POST", "api.example.com", "/v1/x"),
        request("POST", "api.example.com", "/v1/x"),
        request("GET", "pypi.org", "/simple/a/"),
        request("X'$(id)'", "odd.example", "/'$(id)'"),
        other("db.example", 5432, "no rule allows it"),
        other("a b", 0, "no rule allows it"),
        other("evil.example", 443, "evil.example is denied by --deny"),
    ]);
    for line in [
        "atoll run --allow 'POST https://api.example.com/v1/x' --preset pip --allow https://odd.example --allow db.example:5432 -- ",
        "presets = [\"pip\"]",
        "allow = [\"POST https://api.example.com/v1/x\", \"https://odd.example\", \"db.example:5432\"]",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    let (_, allowed) = text.split_once("  allow ").unwrap();
    assert!(
        !allowed.contains("evil.example") && !allowed.contains("$(id)"),
        "{text}"
    );
}

#[test]
fn what_a_proposed_preset_leads_to_is_not_opened_whole_besides() {
    let name = |host: &str| {
        event(
            "flow.refused",
            json!({ "kind": "name", "host": host, "why": "no rule allows it", "count": 1 }),
        )
    };
    let of = |hosts: &[&str]| {
        let run = opened("allow", json!({ "profile": "codex" }));
        let refused = hosts.iter().map(|host| name(host));
        told(&std::iter::once(run).chain(refused).collect::<Vec<_>>())
    };
    let both = of(&["github.com", "api.github.com"]);
    assert!(
        both.contains("atoll run --preset github-read -- "),
        "{both}"
    );
    assert!(!both.contains("--allow github.com"), "{both}");
    // Without the preset, and elsewhere, the host is proposed.
    assert!(of(&["github.com"]).contains("--allow github.com"));
    assert!(of(&["api.github.com", "a.example"]).contains("--allow a.example"));
}

#[test]
fn a_command_that_fetches_where_nothing_can_be_reached_is_told_how() {
    let of = |decision: Value, status: u64, words: &[&str]| {
        let mut run = opened("allow", decision);
        run.body["command"] = json!(words);
        let closed = json!({ "ending": { "how": "exited", "status": status }, "status": status });
        told(&[run, event("run.closed", closed)]).replace("\n            ", " ")
    };
    let fetch = ["curl", "http://example.com/"];
    let none = json!({ "network": "none" });
    let hint = "to do     This run has no network. To let curl fetch, add `--allow HOST`.";
    let text = of(none.clone(), 6, &fetch);
    assert!(text.contains(hint), "{text}");
    let closed = json!({ "network": "none", "trust": "none" });
    let text = of(closed, 6, &fetch);
    assert!(text.contains("with `--trust low`"), "{text}");
    // Nothing of it where it went well, reached something, or does not fetch.
    for text in [
        of(none.clone(), 0, &fetch),
        of(json!({ "network": { "allow": ["a"] } }), 6, &fetch),
        of(none, 1, &["false"]),
    ] {
        assert!(!text.contains("can be reached here"), "{text}");
    }
}

#[test]
fn what_was_allowed_and_not_reached_is_told_with_its_reason() {
    let asked = |flow: u64| {
        event(
            "flow.opened",
            json!({ "flow": flow, "kind": "request", "host": "api.example.com", "port": 443, "scheme": "https", "method": "GET", "path": "/v1" }),
        )
    };
    let ended = |flow: u64, unreached: bool| {
        let failure = "the host's certificate is not accepted: it has expired";
        event(
            "flow.closed",
            json!({ "flow": flow, "failure": failure, "unreached": unreached }),
        )
    };
    let text = told(&[
        opened(
            "allow",
            json!({ "profile": "default", "chosen-by": "built in" }),
        ),
        asked(1),
        asked(2),
        asked(3),
        ended(2, true),
        ended(1, true),
        ended(3, false),
    ]);
    let line = "GET https://api.example.com/v1: the host's certificate is not accepted: it has expired (2 times)";
    let folded = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(folded.contains(&format!("failed {line}")), "{text}");
    assert!(
        folded.contains("to do where an authority of your own"),
        "{text}"
    );
}

#[test]
fn a_command_to_try_has_the_options_that_the_run_had() {
    let mut run = opened(
        "allow",
        json!({ "profile": "codex", "chosen-by": "--profile", "limits": { "wall-clock-ms": 1_500 } }),
    );
    run.body["options"] = json!([
        "--root",
        "--profile=codex",
        "--ro=/srv/a b",
        "--allow=GET https://a.example/**",
        "--timeout=1500ms",
        "--limit=memory=1GiB",
        "--env=TOKEN=...",
    ]);
    let ending = json!({ "ending": { "how": "limited", "limit": "wall-clock" }, "status": 124 });
    let text = told(&[run, event("run.closed", ending)]);
    let again = "atoll run --root --profile codex --ro '/srv/a b' --allow 'GET https://a.example/**' --limit memory=1GiB --env TOKEN=... --limit wall-clock=3s -- make 'a b'";
    assert!(text.contains(again), "{text}");
}

#[test]
fn the_port_and_the_profile_are_those_of_the_command() {
    let mut run = opened(
        "allow",
        json!({ "profile": "mine", "chosen-by": "--profile" }),
    );
    run.body["command"] = json!(["curl", "http://host.atoll.internal:18090/x"]);
    run.body["options"] = json!(["--discard", "--profile=./mine.toml"]);
    let name = json!({ "kind": "name", "host": "host.atoll.internal", "why": "no rule allows it", "count": 4 });
    // What is no host's is nothing to allow.
    let reverse = json!({ "kind": "name", "host": "1.2.0.192.in-addr.arpa", "why": "no rule allows it", "count": 1 });
    let text = told(&[
        run,
        event("flow.refused", reverse),
        event("flow.refused", name),
    ]);
    let (_, allowed) = text.split_once("  allow ").unwrap();
    assert!(!allowed.contains("arpa"), "{text}");
    for line in [
        "atoll run --discard --profile ./mine.toml --allow host.atoll.internal:18090 -- curl",
        "atoll profile show ./mine.toml",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
}

#[test]
fn a_remote_of_git_is_told_as_a_repository() {
    let refused = |method: &str, host: &str, path: &str| {
        event(
            "flow.refused",
            json!({
                "kind": "request", "host": host, "port": 443, "scheme": "https", "method": method,
                "path": path, "why": "no rule allows it", "count": 1,
            }),
        )
    };
    let run = |command: &[&str]| {
        let mut run = opened(
            "allow",
            json!({ "profile": "default", "chosen-by": "built in" }),
        );
        run.body["command"] = json!(command);
        run
    };
    let refs = "/team/app.git/info/refs";
    let text = told(&[
        run(&["git", "clone", "https://git.example.com/team/app.git"]),
        refused("GET", "git.example.com", refs),
    ]);
    for line in [
        "--allow 'GET https://git.example.com/team/app.git/info/refs?service=git-upload-pack' --allow \
         https://git.example.com/team/app.git/git-upload-pack",
        "allow = [{ preset = \"git-read\", repositories = [\"git.example.com/team/app\"] }]",
    ] {
        let line = line.replace("--allow https", "--allow 'POST https");
        assert!(text.contains(&line), "{line:?} is not in\n{text}");
    }
    // A push asks at the same path: the command tells, or what was let pass before it.
    let pushed = "allow = [{ preset = \"git-push\", repositories = [\"github.com/team/app\"] }]";
    let text = told(&[
        run(&["sh", "-c", "git add . && git push"]),
        refused("GET", "github.com", refs),
    ]);
    assert!(text.contains(pushed), "{text}");
    let fetched = json!({
        "flow": 1, "kind": "request", "host": "github.com", "port": 443, "scheme": "https",
        "method": "GET", "path": refs,
    });
    let text = told(&[
        run(&["agent"]),
        event("flow.opened", fetched),
        refused("GET", "github.com", refs),
    ]);
    assert!(text.contains(pushed), "{text}");
    // A page of a repository is none of git's requests.
    let text = told(&[
        run(&["curl"]),
        refused("GET", "git.example.com", "/team/app/tree"),
    ]);
    assert!(!text.contains("repositories"), "{text}");
}

#[test]
fn remedies_of_a_served_sandbox_are_its_servers() {
    let mut served = opened(
        "allow",
        json!({ "profile": "served", "limits": { "memory-bytes": 1_073_741_824 }, "network": "none" }),
    );
    if let Some(body) = served.body.as_object_mut() {
        body.insert(
            "served".to_owned(),
            json!({ "sandbox": "i1", "tenant": "default" }),
        );
    }
    let exec = |exec: u32, command: &str, ending: Value| {
        [
            event(
                "exec.opened",
                json!({ "exec": exec, "command": ["sh", "-c", command] }),
            ),
            event("exec.closed", json!({ "exec": exec, "ending": ending })),
        ]
    };
    let limited = json!({ "how": "limited", "limit": "memory" });
    let failed = json!({ "how": "exited", "status": 1 });
    let mut events = vec![served];
    events.extend(exec(1, "eat", limited));
    events.extend(exec(2, "pip install pandas", failed));
    let told = told(&events);
    for expected in [
        "limit     exec 1 (sh -c eat) ended: the memory limit was reached",
        "allow     atoll sandbox create --memory 2048M\n",
        "          memory_mib = 2048    # serve.toml, [defaults]\n",
        "          network = \"registries\"    # serve.toml\n",
    ] {
        assert!(told.contains(expected), "{told}");
    }
    assert!(!told.contains("atoll run"), "{told}");
    let refused = |host: &str| {
        event(
            "flow.refused",
            json!({ "host": host, "port": 443, "why": NO_RULE }),
        )
    };
    events.push(refused("example.com"));
    let told = super::tests::told(&events);
    for expected in ["network = \"internet\"", "ask = [\"example.com\"]"] {
        assert!(told.contains(expected), "{told}");
    }
    assert!(!told.contains("atoll run"), "{told}");
}
