//! The worth of Atoll to a person: from an empty home to an agent that is logged in, and whose work
//! is reviewed, pushed and applied, with real programs, and no secret in the sandbox at any time.

use std::fs;
use std::time::Duration;

use e2e::internet::{MODELS, events, is_possible, on_servers};
use e2e::{Avoidable, World, cache, id, is_root};

const LONG: Duration = Duration::from_secs(400);
const MODEL: &str = include_str!("agents/servers.py");
const SEARCH: &str = include_str!("credentials/search.py");
const GIT: &str = include_str!("clients/servers.py");
const DAY: &str = include_str!("worth/day.py");
/// The token that the agent's issuer gives at a login: a web token, for the account `account-1`.
const TOKEN: &str = concat!(
    "eyJhbGciOiAiUlMyNTYiLCAidHlwIjogIkpXVCJ9.",
    "eyJlbWFpbCI6ICJhbm5AZXhhbXBsZS5jb20iLCAiZXhwIjogNDkwMDAwMDAwMCwgInN1YiI6ICJ1c2VyLW9mLXRoaXMtdGVz",
    "dCIsICJodHRwczovL2FwaS5vcGVuYWkuY29tL2F1dGgiOiB7ImNoYXRncHRfYWNjb3VudF9pZCI6ICJhY2NvdW50LTEiLCAi",
    "Y2hhdGdwdF9wbGFuX3R5cGUiOiAicHJvIn19.YS1zMWduYXR1cmVPZlRoMXNUM3N0",
);
const RENEWAL: &str = "rt-r3newalOfTh1sT3stWh1chN0Ag3ntM4yS33iNf1lesN0rInM3m0ry";
const PASSWORD: &str = "ghp_r3alP4ssw0rdOfTh1sT3stN0bodyS33s1t00";
/// The wait for a person to look: the agent waits for half a minute at most with each command.
const LOOK: &str = "for one in $(seq 250); do test -e seen && break; sleep 0.1; done";
/// The commands that the model has the agent run: mend it, run it, wait until somebody has looked,
/// push it.
const COMMANDS: [&str; 7] = [
    "printf %s \"$HUB_TOKEN\" > inside-key; cp ~/.codex/auth.json inside-login; sed -i 's/a - b/a + b/' app.py && python3 test.py",
    "setsid python3 app.py >/dev/null 2>&1 </dev/null & for one in $(seq 100); do \
     curl -sS http://127.0.0.1:3000/sum 2>/dev/null && break; sleep 0.1; done",
    LOOK,
    LOOK,
    LOOK,
    "rm seen && echo it was seen",
    "git commit -qm 'Add, and take nothing away' app.py && git push -q origin HEAD:main && \
     echo pushed $(git rev-parse HEAD); cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' > environments",
];

#[test]
fn an_agent_mends_a_program_and_pushes_it_from_an_empty_home_slow() {
    let world = World::new("an_agent_mends_a_program_and_pushes_it_from_an_empty_home_slow");
    if !is_possible(&world, &["openssl", "node", "git", "sshd"]) {
        return;
    }
    let npm = cache().map(|cache| cache.join("npm"));
    let codex = npm
        .clone()
        .map(|npm| npm.join("node_modules/@openai/codex/bin/codex.js"));
    let (Some(npm), Some(codex)) = (npm, codex.filter(|codex| codex.is_file())) else {
        return world.skip("Codex is not in ATOLL_TEST_CACHE", Avoidable::Yes);
    };
    let top = world.top().to_path_buf();
    let given = serde_json::json!({
        "access_token": TOKEN, "refresh_token": RENEWAL, "id_token": TOKEN,
        "token_type": "Bearer", "expires_in": 3600,
    });
    for one in [TOKEN, RENEWAL, PASSWORD] {
        world.canary(one, &["real", "renewal", "hub", "home/.codex/auth.json"]);
    }
    for (path, text) in [
        (top.join("real"), TOKEN),
        (top.join("renewal"), &given.to_string()),
        (top.join("hub"), PASSWORD),
        (top.join("search.py"), SEARCH),
        (top.join("git.py"), GIT),
        (top.join("day.py"), DAY),
    ] {
        world.write(path, text);
    }
    let words = [
        top.join("git.py"),
        top.join("internet"),
        "python3".into(),
        top.join("day.py"),
        npm,
        codex,
        top.join("hub"),
    ];
    let words = words.map(|word| format!("'{}'", word.display()));
    let command = format!("python3 {}", words.join(" "));
    let names = [MODELS, &["git.example"]].concat();
    let run = on_servers(&world, MODEL, &names, &command)
        .env("COMMANDS", serde_json::to_string(&COMMANDS).unwrap())
        .env("SERVERS", "git")
        .env("GIT_PASSWORD", PASSWORD)
        .env("CLIENT_ID", id().0.to_string())
        .env("INTERNET_PORTS", "7");
    let ended = run.within(LONG).run();
    let read = |name: &str| {
        let whole = fs::read(top.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&whole).into_owned()
    };
    let (requests, searched) = (read("internet/requests"), read("searched"));
    let what = format!("{ended}\nREQUESTS\n{requests}\nSEARCHED\n{searched}");
    assert_eq!(
        ended.out(),
        "logged in: 0\n\
         unasked: ConnectionRefusedError\n\
         seen from here: 2 + 3 = 5\n\
         ended: 0\n\
         took less than ten minutes: True\n\
         changed unasked: []\n\
         changed by taking over: ['work/app.py', 'work/environments', 'work/inside-key', 'work/inside-login']\n\
         taken over: True\n\
         the same commit here and there: True\n",
        "{what}"
    );
    // The agent did it by what it was told, and what it pushed is there.
    for said in ["mended", "2 + 3 = 5", "it was seen"] {
        assert!(requests.contains(said), "{said}: {what}");
    }
    let (_, pushed) = requests.split_once("pushed ").expect(&what);
    let commit = &pushed[..40];
    assert!(read("internet/refs").contains(commit), "{commit}: {what}");
    no_secret_is_inside(&world, &what, &searched);
    let published = events(&world, "port.published");
    assert_eq!(published.len(), 1, "{published:?}");
    let opened = events(&world, "flow.opened");
    for credential in ["codex-login", "hub"] {
        let with = |one: &&serde_json::Value| one["credential"] == credential;
        assert!(
            opened.iter().any(|one| with(&one)),
            "{credential}: {opened:?}"
        );
    }
    assert!(
        opened.iter().any(|one| one["kind"] == "published"),
        "{opened:?}"
    );
    let verified = world.atoll(["ledger", "verify"]).run();
    assert_eq!(verified.code(), 0, "{verified}");
}

/// Checks that the agent's own file has all environments in the sandbox, with the placeholders of both
/// secrets; the secrets themselves are in no file but those that a person gave, and in the memory of
/// one process.
fn no_secret_is_inside(world: &World, what: &str, searched: &str) {
    let environments = world.home().join("work/environments");
    let environments = fs::read(environments).expect(what);
    let environments = String::from_utf8_lossy(&environments);
    assert!(environments.contains("HUB_TOKEN=ghp_"), "{what}");
    let login = fs::read_to_string(world.home().join("work/inside-login")).expect(what);
    let login: serde_json::Value = serde_json::from_str(&login).expect(what);
    let stands = login["tokens"]["access_token"].as_str().expect(what);
    assert!(stands.starts_with("eyJ") && stands != TOKEN, "{what}");
    // What the model heard of it, which knows its key without that.
    let requests = what.split("\nREQUESTS\n").nth(1).expect(what);
    let heard = requests.lines().filter(|line| line.starts_with("tools "));
    let heard: Vec<&str> = heard.collect();
    assert!(!heard.is_empty(), "{what}");
    let top = world.top().display().to_string();
    let given = |name: &str| format!("{top}{name}");
    for (secret, at) in [
        (TOKEN, "/renewal"),
        (RENEWAL, "/renewal"),
        (PASSWORD, "/hub"),
    ] {
        assert!(!environments.contains(secret), "{what}");
        assert!(heard.iter().all(|one| !one.contains(secret)), "{what}");
        let find = world.host("grep").args(["-rlaF", secret]).arg(&top);
        let found = find.run().out();
        let (own, others): (Vec<_>, Vec<_>) = found.lines().partition(|line| {
            let known = ["/real", "/internet/requests", at];
            // Its login is where the agent's own login is, outside.
            let is_login = **line == world.home().join(".codex/auth.json").display().to_string();
            known.iter().any(|name| **line == given(name)) || is_login
        });
        assert!(own.contains(&given(at).as_str()), "{found}");
        assert_eq!(others, Vec::<&str>::new(), "{what}");
    }
    // In the memory of no process but the one that puts it in, which only root can see.
    let holders = searched.lines().filter(|line| line.starts_with("real "));
    let of_carrier = match is_root() {
        true => vec!["real atoll-egress memory"],
        false => Vec::new(),
    };
    assert_eq!(holders.collect::<Vec<_>>(), of_carrier, "{what}");
    let of_agent = |line: &str| line.starts_with("inside-key") && line.ends_with(" environment");
    assert!(searched.lines().any(of_agent), "{what}");
}
