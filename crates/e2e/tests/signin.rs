//! Logins from a sandbox: the issuer's tokens stay outside, placeholders go in, and the login file
//! that the agent writes is written outside with the real tokens.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use e2e::holders;
use e2e::internet::{events, is_possible, on_servers};
use e2e::{Avoidable, Outcome, World, cache, program_exists};

const SERVERS: &str = include_str!("signin/servers.py");
const AGENT: &str = include_str!("signin/agent.py");
const NAMES: &[&str] = &[
    "example.com",
    "auth.openai.com",
    "api.openai.com",
    "oauth2.googleapis.com",
    "cloudcode-pa.googleapis.com",
    "platform.claude.com",
    "api.anthropic.com",
];
/// The login files, the only places where tokens belong.
const LOGINS: &[&str] = &[
    "home/.agent/auth.json",
    "home/.codex/auth.json",
    "home/.gemini/oauth_creds.json",
    "home/.local/share/opencode/auth.json",
    "home/.claude/.credentials.json",
];
const REAL: &str = "sk-ant-oat01-r3alK3yOfTh1sT3stWh1chN0bodyM4yS33in";
const RENEWAL: &str = "sk-ant-ort01-an0th3rOfTh1sT3stWh1chN0bodyM4yS33in";
const CANARY: &str = "c4n4ryOfTh1sT3stWh1chN0bodyM4yS33in";
const CURL: &str = "curl -sS -m 20 --noproxy '*'";

const PROFILE: &str = r#"
[network]
allow = ["example.com"]
[home]
layer = [".agent"]
[login.agent]
file = "~/.agent/auth.json"
keep = ["mode", "tokens.expires"]
optional = true
[login.agent.issue]
token = "https://example.com/oauth/token"
command = ["agent", "login"]
callback = 14555
access = "tokens.access"
refresh = "tokens.refresh"
[credential.agent]
source = { login = "agent", field = "tokens.access" }
to = "example.com"
paths = ["/v1/**"]
place = { header = "authorization", form = "Bearer {}" }
optional = true
"#;

fn world(name: &str) -> Option<World> {
    let world = World::new(name);
    world.profile("agent", PROFILE);
    for (file, text) in [("real", REAL), ("renewal", RENEWAL), ("canary", CANARY)] {
        world.write(world.top().join(file), text);
        world.canary(text, &[&[file], LOGINS].concat());
    }
    is_possible(&world, &["openssl"]).then_some(world)
}

fn auth(world: &World) -> PathBuf {
    world.home().join(".agent/auth.json")
}

/// Runs Atoll with these words, where the issuer is.
fn online(world: &World, words: &[&str]) -> Outcome {
    let run = on_servers(world, SERVERS, NAMES, "\"$ATOLL\" \"$@\"");
    let run = run.env("ISSUERS", NAMES.join(" ")).arg("sh").args(words);
    run.within(Duration::from_secs(240)).run()
}

/// As [`online`] at a terminal, where this answer is typed.
fn at_a_terminal(world: &World, words: &[&str], answer: &str) -> Outcome {
    let run = on_servers(world, SERVERS, NAMES, "\"$ATOLL\" \"$@\"");
    let run = run.env("ISSUERS", NAMES.join(" ")).env("ANSWER", answer);
    let run = run.arg("sh").args(words);
    run.within(Duration::from_secs(240)).run()
}

/// Runs a login with this shell script in place of the agent.
fn login(world: &World, script: &str) -> Outcome {
    let words = ["login", "agent", "--profile", "agent", "--yes", "--"];
    online(world, &[&words[..], &["sh", "-c", script]].concat())
}

fn requests(world: &World) -> String {
    fs::read_to_string(world.top().join("internet/requests")).unwrap_or_default()
}

/// Checks that none of the tokens is in the output, nor in any file but those that have them.
fn nowhere(world: &World, said: &Outcome, further: &[PathBuf]) {
    let mut find = world.host("grep").arg("-rlaF");
    for secret in [REAL, RENEWAL, CANARY] {
        assert!(!said.out().contains(secret), "{secret}: {said}");
        assert!(!said.err().contains(secret), "{secret}: {said}");
        find = find.args(["-e", secret]);
    }
    let found = find.arg(world.top()).run().out();
    let own = ["real", "renewal", "canary", "internet/requests"];
    let own = own.map(|name| world.top().join(name));
    let mut others: Vec<&str> = found.lines().collect();
    assert!(others.contains(&own[0].to_str().unwrap()), "{found}");
    others.retain(|one| {
        !own.iter()
            .chain(further)
            .any(|own| own.to_str() == Some(one))
    });
    assert_eq!(others, Vec::<&str>::new(), "{said}");
}

#[test]
fn an_agent_logs_in_inside_and_its_tokens_stay_outside() {
    let Some(world) = world("an_agent_logs_in_inside_and_its_tokens_stay_outside") else {
        return;
    };
    let words = [
        "login",
        "agent",
        "--profile",
        "agent",
        "--yes",
        "--",
        "python3",
        "-c",
        AGENT,
    ];
    let outcome = online(&world, &words);
    let what = format!("{outcome}\n{}", requests(&world));
    assert_eq!(outcome.code(), 0, "{what}");
    // The browser came back by a port of this host, and the issuer was asked once.
    let browsed = fs::read_to_string(world.top().join("internet/browsed")).unwrap_or_default();
    assert!(
        browsed.contains("http://127.0.0.1:14555/callback?code=good"),
        "{what}"
    );
    assert!(browsed.ends_with("in\n"), "{browsed}");
    assert_eq!(
        requests(&world)
            .matches("POST example.com /oauth/token")
            .count(),
        1,
        "{what}"
    );
    // Outside are the real ones, for their owner alone.
    let file = auth(&world);
    let written: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(written["tokens"]["access"], REAL);
    assert_eq!(written["tokens"]["refresh"], RENEWAL);
    assert_eq!(
        (&written["mode"], &written["tokens"]["expires"]),
        (&"chat".into(), &1_900_000_000_i64.into())
    );
    let modes = [file.clone(), file.parent().unwrap().to_owned()];
    let modes = modes.map(|path| fs::metadata(path).unwrap().permissions().mode() & 0o777);
    assert_eq!(modes, [0o600, 0o700]);
    // Inside was what stands for them.
    let line = outcome.out();
    let answer = line
        .lines()
        .find_map(|line| line.strip_prefix("answer "))
        .unwrap();
    let answer: serde_json::Value = serde_json::from_str(answer).unwrap();
    let access = answer["access_token"].as_str().unwrap();
    assert!(
        access.starts_with("sk-ant-oat01-") && access.len() == REAL.len(),
        "{what}"
    );
    assert_eq!(
        (&answer["expires_in"], &answer["pin"]),
        (&3600.into(), &0.into()),
        "{what}"
    );
    nowhere(&world, &outcome, std::slice::from_ref(&file));
    let recorded = events(&world, "login.written");
    assert_eq!(recorded.len(), 1, "{recorded:?}");
    // From then on it is logged in.
    let script = format!(
        "A=$(sed -n 's/.*\"access\":\"\\([^\"]*\\)\".*/\\1/p' ~/.agent/auth.json); cat ~/.agent/auth.json; \
         {CURL} -H \"Authorization: Bearer $A\" https://example.com/v1/one"
    );
    let outcome = online(
        &world,
        &[
            "run",
            "--discard",
            "--profile",
            "agent",
            "--",
            "sh",
            "-c",
            &script,
        ],
    );
    assert!(
        outcome.out().contains("welcome"),
        "{outcome}\n{}",
        requests(&world)
    );
    nowhere(&world, &outcome, &[file]);
}

#[test]
fn nobody_is_asked_for_tokens_in_a_run_by_which_nobody_logs_in() {
    let Some(world) = world("nobody_is_asked_for_tokens_in_a_run_by_which_nobody_logs_in") else {
        return;
    };
    fs::create_dir_all(auth(&world).parent().unwrap()).unwrap();
    let ask = |path: &str| {
        format!("{CURL} -d 'grant_type=authorization_code&code=good' 'https://example.com{path}'; ")
    };
    let paths = [
        "/oauth/token",
        "/oauth//token",
        "/OAuth/Token/",
        "/oauth/%74oken",
        "/oauth/token;x=1?y=2",
    ];
    let script: String = paths.map(ask).concat();
    // The control: another path is asked, and answered as it is.
    let script = format!("{script}{CURL} https://example.com/v1/who");
    let outcome = online(
        &world,
        &[
            "run",
            "--discard",
            "--profile",
            "agent",
            "--",
            "sh",
            "-c",
            &script,
        ],
    );
    let what = format!("{outcome}\n{}", requests(&world));
    let refused = outcome.out().matches("nobody logs in by this run").count();
    assert_eq!(refused, paths.len(), "{what}");
    assert!(outcome.out().contains("who are you?"), "{what}");
    assert!(outcome.out().contains("atoll login"), "{what}");
    assert!(!requests(&world).contains("POST"), "{what}");
    assert!(!events(&world, "flow.refused").is_empty(), "{what}");
}

#[test]
fn whatever_an_issuer_answers_no_token_comes_in() {
    let Some(world) = world("whatever_an_issuer_answers_no_token_comes_in") else {
        return;
    };
    let cases = [
        ("good", "200", "Bearer"),
        ("pieces", "200", "Bearer"),
        ("halves", "200", "Bearer"),
        ("packed", "502", "packed"),
        ("elsewhere", "502", "leads elsewhere"),
        ("huge", "502", "more than 65536 bytes"),
        ("other", "502", "no access token"),
        ("twice", "502", "two members of one name"),
        ("scope", "502", "second field"),
        ("html", "502", "no JSON"),
        ("pending", "400", "authorization_pending"),
        ("refused", "403", "invalid_request"),
        ("client", "401", "invalid_client"),
    ];
    let ask = |(code, _, _): (&str, &str, &str)| {
        format!(
            "echo; echo case {code}; {CURL} -i --compressed -d 'grant_type=authorization_code&code={code}' \
             https://example.com/oauth/token; "
        )
    };
    let script: String = cases.map(ask).concat();
    let script = format!(
        "{script} echo; echo case put; {CURL} -X PUT -d x https://example.com/oauth/token; true"
    );
    let outcome = login(&world, &script);
    let what = format!("{outcome}\n{}", requests(&world));
    for (code, status, said) in cases {
        let from = outcome.out();
        let (_, from) = from.split_once(&format!("case {code}\n")).expect(&what);
        let (own, _) = from.split_once("\ncase ").unwrap_or((from, ""));
        assert!(
            own.contains(&format!(" {status} ")) || own.contains(&format!(" {status}\r")),
            "{code}: {what}"
        );
        assert!(
            own.contains(said) && !own.to_lowercase().contains("set-cookie"),
            "{code}: {what}"
        );
    }
    assert!(outcome.out().contains("by POST alone"), "{what}");
    assert!(!requests(&world).contains("PUT"), "{what}");
    // The agent has written nothing, so nothing is.
    assert_ne!(outcome.code(), 0, "{what}");
    assert!(
        outcome.err().contains("the agent has written none"),
        "{what}"
    );
    assert!(!auth(&world).exists(), "{what}");
    nowhere(&world, &outcome, &[]);
}

#[test]
fn a_forged_login_file_of_an_agent_is_not_written() {
    let Some(world) = world("a_forged_login_file_of_an_agent_is_not_written") else {
        return;
    };
    let before = "{\"mode\": \"before\"}\n";
    fs::create_dir_all(auth(&world).parent().unwrap()).unwrap();
    world.write(auth(&world), before);
    fs::set_permissions(auth(&world), fs::Permissions::from_mode(0o600)).unwrap();
    let exchange = format!(
        "cd ~/.agent; {CURL} -d 'grant_type=authorization_code&code=good' https://example.com/oauth/token > given; \
         field() {{ sed -n \"s/.*\\\"$1\\\":\\\"\\([^\\\"]*\\)\\\".*/\\1/p\" given; }}; A=$(field access_token); \
         R=$(field refresh_token); "
    );
    for (write, said) in [
        ("true", "written none"),
        ("ln -s given auth.json", "written none"),
        ("mkfifo auth.json", "written none"),
        ("mkdir auth.json", "written none"),
        (
            "echo \"{\\\"tokens\\\": {\\\"refresh\\\": \\\"$A\\\"}}\" > auth.json",
            "not for it",
        ),
        (
            "echo \"{\\\"tokens\\\": {\\\"access\\\": \\\"x$A\\\"}}\" > auth.json",
            "neither a token",
        ),
        (
            "echo '{\"tokens\": {\"access\": \"sk-typed0123456789abcdef\"}}' > auth.json",
            "neither a token",
        ),
        (
            "echo \"{\\\"hooks\\\": \\\"evil\\\", \\\"tokens\\\": {\\\"access\\\": \\\"$A\\\"}}\" > auth.json",
            "neither a token",
        ),
        ("head -c 100000 /dev/zero > auth.json", "longer than 64 KiB"),
        ("echo not JSON > auth.json", "no JSON"),
    ] {
        let outcome = login(&world, &format!("{exchange}{write}"));
        assert_ne!(outcome.code(), 0, "{write}: {outcome}");
        assert!(outcome.err().contains(said), "{write}: {outcome}");
        assert_eq!(
            fs::read_to_string(auth(&world)).unwrap(),
            before,
            "{write}: {outcome}"
        );
        nowhere(&world, &outcome, &[]);
    }
    // The control: as it should be, also over the one that is there.
    let write = "echo \"{\\\"mode\\\": \\\"chat\\\", \\\"tokens\\\": {\\\"access\\\": \\\"$A\\\", \\\"refresh\\\": \\\"$R\\\"}}\" > auth.json";
    let outcome = login(&world, &format!("{exchange}{write}"));
    assert_eq!(outcome.code(), 0, "{outcome}");
    assert!(
        fs::read_to_string(auth(&world)).unwrap().contains(REAL),
        "{outcome}"
    );
}

/// Returns an agent that asks for tokens by itself, and writes its login file.
fn asking() -> String {
    format!(
        "cd ~/.agent; {CURL} -d 'grant_type=authorization_code&code=good' https://example.com/oauth/token > given; \
         A=$(sed -n 's/.*\"access_token\":\"\\([^\"]*\\)\".*/\\1/p' given); \
         echo \"{{\\\"tokens\\\": {{\\\"access\\\": \\\"$A\\\"}}}}\" > auth.json"
    )
}

#[test]
fn a_login_is_kept_after_a_yes_alone() {
    let Some(world) = world("a_login_is_kept_after_a_yes_alone") else {
        return;
    };
    let script = asking();
    let words = ["login", "agent", "--profile", "agent", "--", "sh", "-c"];
    let words = [&words[..], &[script.as_str()]].concat();
    for answer in ["", "n", "yess"] {
        let outcome = at_a_terminal(&world, &words, answer);
        assert_ne!(outcome.code(), 0, "{outcome}");
        assert!(outcome.out().contains("is not kept"), "{outcome}");
        assert!(!auth(&world).exists(), "{outcome}");
        nowhere(&world, &outcome, &[]);
    }
    let outcome = at_a_terminal(&world, &words, "y");
    assert_eq!(outcome.code(), 0, "{outcome}");
    let text = fs::read_to_string(auth(&world)).unwrap();
    assert!(text.contains(REAL), "{outcome}");
    nowhere(&world, &outcome, &[auth(&world)]);
    // One that is there is replaced after a yes alone, too.
    let before = "{\"mode\": \"before\"}\n";
    fs::write(auth(&world), before).unwrap();
    let outcome = at_a_terminal(&world, &words, "n");
    assert!(
        outcome.out().contains("in the place of the one"),
        "{outcome}"
    );
    assert_eq!(
        fs::read_to_string(auth(&world)).unwrap(),
        before,
        "{outcome}"
    );
}

#[test]
fn a_login_needs_a_yes_a_place_and_a_way() {
    let Some(world) = world("a_login_needs_a_yes_a_place_and_a_way") else {
        return;
    };
    let asked = world.atoll(["login", "agent", "--profile", "agent"]).run();
    assert!(
        asked.code() != 0 && asked.err().contains("--yes"),
        "{asked}"
    );
    let unknown = world.atoll(["login", "--yes", "openclaw"]).run();
    assert!(unknown.err().contains("does not say how"), "{unknown}");
    let words = [
        "login",
        "--yes",
        "agent",
        "--profile",
        "agent",
        "--",
        "agent",
        "login",
        "--with-api-key",
    ];
    let key = world.atoll(words).run();
    assert!(
        key.code() != 0 && key.err().contains("atoll secret set"),
        "{key}"
    );
    // What is wrong is told before anybody would be asked.
    let unknown = world.atoll(["login", "openclaw"]).run();
    assert!(unknown.err().contains("does not say how"), "{unknown}");
    let mistyped = world.atoll(["login", "--yes", "cdx"]).run();
    mistyped.is_clear_error(["did you mean atoll login codex?"]);
    let none = world.atoll(["login"]).run().expect_status(125);
    none.is_clear_error([
        "no agent is named",
        "atoll login codex",
        "atoll login gemini",
    ]);
    // By a code, so that no port is needed.
    let missing = "login --yes agent --profile agent -- no-such-agent device";
    let missing = world.atoll(missing.split(' ')).run().expect_status(125);
    missing.is_clear_error(["is not installed"]);
    let agent = [
        "login",
        "--yes",
        "agent",
        "--profile",
        "agent",
        "--",
        "true",
    ];
    // Where another test has the port, it is taken too.
    let held = std::net::TcpListener::bind(("127.0.0.1", 14555));
    let taken = world.atoll(agent).run();
    taken.is_clear_error(["port 14555", "cannot be had", "ss -ltnp"]);
    drop(held);
    let directory = auth(&world).parent().unwrap().to_owned();
    // Where nothing was installed nothing was made either.
    assert!(!directory.exists(), "{missing}");
    for words in ["http://", "run 2"] {
        assert!(!missing.err().contains(words), "{missing}");
    }
    fs::create_dir_all(directory.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("nowhere", &directory).unwrap();
    let dangling = world.atoll(agent).run();
    dangling.is_clear_error(["is a link to nowhere, which is not there"]);
    fs::remove_file(&directory).unwrap();
    fs::create_dir_all(&directory).unwrap();
    std::os::unix::fs::symlink("elsewhere", auth(&world)).unwrap();
    let link = world.atoll(agent).run();
    assert!(
        link.code() != 0 && link.err().contains("a symbolic link"),
        "{link}"
    );
}

/// Returns a program of the cache, and lets the profile show it in a sandbox.
fn package(world: &World, profile: &str, program: &str) -> Option<String> {
    let npm = cache().map(|cache| cache.join("npm"));
    let found = npm.map(|npm| (npm.join("node_modules").join(program), npm));
    let Some((program, npm)) = found.filter(|(path, _)| path.is_file()) else {
        world.skip(
            &format!("{program} is not in ATOLL_TEST_CACHE"),
            Avoidable::Yes,
        );
        return None;
    };
    let text = format!(
        "extends = [{profile:?}]\n[files]\nread = [{:?}]\n",
        npm.display().to_string()
    );
    world.profile("test-of-it", &text);
    Some(program.to_str().unwrap().to_owned())
}

const CODEX: &str = "@openai/codex/bin/codex.js";

/// Checks that Codex logs in with these words.
fn codex_logs_in(world: &World, program: &str, words: &[&str]) {
    let login = ["login", "codex", "--profile", "test-of-it", "--yes", "--"];
    let outcome = online(world, &[&login[..], &["node", program], words].concat());
    let what = format!("{outcome}\n{}", requests(world));
    assert_eq!(outcome.code(), 0, "{what}");
    let file = world.home().join(".codex/auth.json");
    let written: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(written["tokens"]["access_token"], REAL, "{what}");
    assert_eq!(written["tokens"]["refresh_token"], RENEWAL, "{what}");
    assert_eq!(written["tokens"]["account_id"], "account-1", "{what}");
    let identity = written["tokens"]["id_token"].as_str().unwrap();
    assert_eq!(identity.split('.').count(), 3, "{what}");
    nowhere(world, &outcome, &[file]);
    // It takes what was written for its own.
    let status = world.host("node").args([program, "login", "status"]).run();
    assert!(
        status.to_string().contains("Logged in using ChatGPT"),
        "{status}"
    );
}

#[test]
fn codex_logs_in_inside_and_its_tokens_stay_outside() {
    let Some(world) = world("codex_logs_in_inside_and_its_tokens_stay_outside") else {
        return;
    };
    if let Some(program) = package(&world, "codex", CODEX).filter(|_| program_exists("node")) {
        codex_logs_in(&world, &program, &["login"]);
    }
}

#[test]
fn codex_logs_in_by_a_code_of_a_device_too() {
    let Some(world) = world("codex_logs_in_by_a_code_of_a_device_too") else {
        return;
    };
    if let Some(program) = package(&world, "codex", CODEX).filter(|_| program_exists("node")) {
        codex_logs_in(&world, &program, &["login", "--device-auth"]);
        let asked = requests(&world);
        let polled = asked.matches("/api/accounts/deviceauth/token").count();
        assert!(polled > 1, "{asked}");
    }
}

#[test]
fn opencode_logs_in_inside_and_its_tokens_stay_outside() {
    let Some(world) = world("opencode_logs_in_inside_and_its_tokens_stay_outside") else {
        return;
    };
    let program = "opencode-linux-x64/bin/opencode";
    let Some(program) = package(&world, "opencode", program) else {
        return;
    };
    let login = [
        "login",
        "opencode",
        "--profile",
        "test-of-it",
        "--yes",
        "--",
    ];
    let own = ["auth", "login", "--provider", "openai", "--method"];
    let method = "ChatGPT Pro/Plus (browser)";
    let words = [&login[..], &[program.as_str()], &own, &[method]].concat();
    let outcome = online(&world, &words);
    let what = format!("{outcome}\n{}", requests(&world));
    assert_eq!(outcome.code(), 0, "{what}");
    let file = world.home().join(".local/share/opencode/auth.json");
    let written: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let own = &written["openai"];
    assert_eq!(
        (&own["access"], &own["refresh"]),
        (&REAL.into(), &RENEWAL.into()),
        "{what}"
    );
    assert_eq!(
        (&own["type"], &own["accountId"]),
        (&"oauth".into(), &"account-1".into()),
        "{what}"
    );
    nowhere(&world, &outcome, &[file]);
}

#[test]
fn claude_code_logs_in_inside_and_its_tokens_stay_outside() {
    let Some(world) = world("claude_code_logs_in_inside_and_its_tokens_stay_outside") else {
        return;
    };
    let program = format!("@anthropic-ai/claude-code-linux-{}/claude", npm_machine());
    let Some(program) = package(&world, "claude", &program) else {
        return;
    };
    let words = ["login", "claude", "--profile", "test-of-it", "--", &program];
    let words = [&words[..], &["auth", "login"]].concat();
    let outcome = at_a_terminal(&world, &words, "y");
    let what = format!("{outcome}\n{}", requests(&world));
    assert_eq!(outcome.code(), 0, "{what}");
    let file = world.home().join(".claude/.credentials.json");
    let written: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let own = &written["claudeAiOauth"];
    assert_eq!(
        (&own["accessToken"], &own["refreshToken"]),
        (&REAL.into(), &RENEWAL.into()),
        "{what}"
    );
    assert!(
        own["expiresAt"].as_u64().unwrap() > 1_700_000_000_000,
        "{what}"
    );
    assert_eq!(own["scopes"][0], "user:inference", "{what}");
    // Whose account it is it has been told in what stands for it alone.
    assert!(requests(&world).contains("\"code\":\"good\""), "{what}");
    for member in ["accountUuid", "organizationUuid"] {
        assert!(own.get(member).is_none(), "{member}: {written}");
    }
    nowhere(&world, &outcome, &[file]);
    // It takes what was written for its own.
    let status = world.host(&program).args(["auth", "status"]).run();
    assert!(status.out().contains("\"loggedIn\": true"), "{status}");
}

/// Returns npm's name for this machine's architecture.
fn npm_machine() -> &'static str {
    match cfg!(target_arch = "aarch64") {
        true => "arm64",
        false => "x64",
    }
}

#[test]
fn gemini_logs_in_inside_and_its_login_is_renewed_outside() {
    let Some(world) = world("gemini_logs_in_inside_and_its_login_is_renewed_outside") else {
        return;
    };
    let program = "@google/gemini-cli/bundle/gemini.js";
    let Some(program) = package(&world, "gemini", program).filter(|_| program_exists("node"))
    else {
        return;
    };
    // As its profile has it log in, but for the program's place.
    let shown = world.atoll(["profile", "show", "gemini"]).run().success();
    let shown = shown.out();
    let (_, words) = shown.split_once("command = [\"sh\"").unwrap();
    let (words, _) = words.split_once("\"gemini\"").unwrap();
    let own: Vec<String> = serde_json::from_str(&format!("[\"sh\"{words}\"node\"]")).unwrap();
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    let further = [program.as_str(), "--list-extensions"];
    let login = ["login", "gemini", "--profile", "test-of-it", "--"];
    let outcome = at_a_terminal(&world, &[&login[..], &own, &further].concat(), "y");
    let what = format!("{outcome}\n{}", requests(&world));
    assert_eq!(outcome.code(), 0, "{what}");
    let file = world.home().join(".gemini/oauth_creds.json");
    let text = fs::read_to_string(&file).unwrap();
    let written: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(written["access_token"], REAL, "{what}");
    assert_eq!(written["refresh_token"], RENEWAL, "{what}");
    assert!(
        written["scope"]
            .as_str()
            .unwrap()
            .contains("https://www.googleapis.com/auth/"),
        "{text}"
    );
    let ends = written["expiry_date"].as_u64().unwrap();
    assert!(ends > 1_700_000_000_000, "{text}");
    nowhere(&world, &outcome, std::slice::from_ref(&file));
    // When it has ended, it is renewed outside, and the agent works on.
    let ended = text.replace(&ends.to_string(), "1700000000000");
    fs::write(&file, &ended).unwrap();
    let script = format!(
        "GOOGLE_GENAI_USE_GCA=true exec node {program} --skip-trust --model gemini-2.5-flash --prompt 'do the work'; "
    );
    let words = [
        "run",
        "--discard",
        "--profile",
        "test-of-it",
        "--",
        "sh",
        "-c",
        &script,
    ];
    let outcome = online(&world, &words);
    let what = format!("{outcome}\n{}", requests(&world));
    assert!(outcome.out().contains("ALL IS DONE"), "{what}");
    let next = REAL.replace("r3al", "n3xt");
    let text = fs::read_to_string(&file).unwrap();
    let written: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(written["access_token"], next, "{what}");
    assert_eq!(written["refresh_token"], RENEWAL, "{what}");
    assert!(
        written["expiry_date"].as_u64().unwrap() > 1_700_000_000_000,
        "{text}"
    );
    assert!(outcome.err().contains("login gemini"), "{what}");
    assert!(!outcome.out().contains(&next), "{what}");
    nowhere(&world, &outcome, &[file]);
}

#[test]
fn who_polls_with_a_code_of_a_device_is_given_its_tokens_at_last() {
    let Some(world) = world("who_polls_with_a_code_of_a_device_is_given_its_tokens_at_last") else {
        return;
    };
    // RFC 8628, 3.4 and 3.5.
    let kind = "urn:ietf:params:oauth:grant-type:device_code";
    let ask = format!(
        "{CURL} --data-urlencode grant_type={kind} -d device_code=d1 https://example.com/oauth/token"
    );
    let script = format!(
        "cd ~/.agent; for i in 1 2 3; do {ask} | tee given; echo; done; \
         sed 's/^.*\"access_token\":\"\\([^\"]*\\)\".*$/{{\"tokens\": {{\"access\": \"\\1\"}}}}/' given > auth.json"
    );
    let outcome = login(&world, &script);
    let what = format!("{outcome}\n{}", requests(&world));
    assert_eq!(outcome.code(), 0, "{what}");
    let out = outcome.out();
    let at = |text: &str| out.find(text).unwrap_or_else(|| panic!("{text}: {what}"));
    assert!(at("authorization_pending") < at("slow_down"), "{what}");
    assert!(at("\"interval\":7") < at("access_token"), "{what}");
    assert!(
        fs::read_to_string(auth(&world)).unwrap().contains(REAL),
        "{what}"
    );
    nowhere(&world, &outcome, &[auth(&world)]);
}

#[test]
fn whoever_logs_in_reaches_its_issuer_and_nobody_else() {
    let Some(world) = world("whoever_logs_in_reaches_its_issuer_and_nobody_else") else {
        return;
    };
    let wide = PROFILE.replace("allow = [\"example.com\"]", "allow = [\"*:443\"]");
    world.profile("agent", &wide);
    let script = format!(
        "{CURL} https://example.com/v1/who; {CURL} -o /dev/null -w 'then %{{http_code}}.' \
         https://api.openai.com/v1/who; ls -A; echo end"
    );
    let outcome = login(&world, &script);
    let what = format!("{outcome}\n{}", requests(&world));
    assert!(outcome.out().contains("who are you?"), "{what}");
    assert!(!requests(&world).contains("api.openai.com"), "{what}");
    // The workspace is empty.
    assert!(outcome.out().contains("then 000.end"), "{what}");
    // The control: any other run of the profile reaches both.
    let words = [
        "run",
        "--discard",
        "--profile",
        "agent",
        "--",
        "sh",
        "-c",
        &script,
    ];
    let other = online(&world, &words);
    assert!(requests(&world).contains("api.openai.com"), "{other}");
}

#[test]
fn what_an_agent_is_given_goes_into_the_vault_where_its_profile_says_so() {
    let Some(world) = world("what_an_agent_is_given_goes_into_the_vault_where_its_profile_says_so")
    else {
        return;
    };
    let vault = PROFILE
        .replace(
            "access = \"tokens.access\"\nrefresh = \"tokens.refresh\"",
            "vault = { access = \"agent-access\", refresh = \"agent-refresh\" }",
        )
        .replace(
            "source = { login = \"agent\", field = \"tokens.access\" }",
            "source = { vault = \"agent-access\" }\nvariable = \"AGENT_TOKEN\"",
        )
        .replace(
            "form = \"Bearer {}\" }\noptional = true",
            "form = \"Bearer {}\" }",
        );
    world.profile("agent", &vault);
    let ask = |code: &str| {
        format!(
            "{CURL} -d 'grant_type=authorization_code&code={code}' https://example.com/oauth/token"
        )
    };
    // Without it a run says how it is got.
    let without = world
        .atoll(["run", "--profile", "agent", "--", "true"])
        .run();
    without.is_clear_error(["agent-access", "atoll login agent"]);
    // Nothing is kept of an answer that gives nothing.
    let none = login(&world, &ask("pending"));
    assert!(
        none.code() != 0 && none.err().contains("has given no token"),
        "{none}"
    );
    let outcome = login(&world, &ask("good"));
    let what = format!("{outcome}\n{}", requests(&world));
    assert_eq!(outcome.code(), 0, "{what}");
    assert!(!auth(&world).exists(), "{what}");
    let listed = world.atoll(["secret", "list"]).run();
    for name in ["agent-access", "agent-refresh"] {
        assert!(listed.out().contains(name), "{listed}");
    }
    assert_eq!(events(&world, "secret.set").len(), 2, "{what}");
    // No file has it but sealed, and from then on it is put in.
    nowhere(&world, &outcome, &[]);
    let script =
        format!("{CURL} -H \"Authorization: Bearer $AGENT_TOKEN\" https://example.com/v1/one");
    let words = [
        "run",
        "--discard",
        "--profile",
        "agent",
        "--",
        "sh",
        "-c",
        &script,
    ];
    let used = online(&world, &words);
    assert!(
        used.out().contains("welcome"),
        "{used}\n{}",
        requests(&world)
    );
    nowhere(&world, &used, &[]);
}

/// The egress process does not inspect a tunnel, so tokens would come in through one as they are.
#[test]
fn no_tunnel_leads_to_an_issuer_not_by_its_address_either() {
    let Some(world) = world("no_tunnel_leads_to_an_issuer_not_by_its_address_either") else {
        return;
    };
    fs::create_dir_all(auth(&world).parent().unwrap()).unwrap();
    let address = "93.184.216.34:443";
    let rule = format!("allow = [\"example.com\", {{ to = {address:?}, carry = \"tunnel\" }}]");
    world.profile(
        "agent",
        &PROFILE.replace("allow = [\"example.com\"]", &rule),
    );
    let there = "--connect-to ::93.184.216.34:443";
    let ask = "-d 'grant_type=authorization_code&code=good'";
    let script = format!(
        "{CURL} {there} {ask} https://example.com/oauth/token 2>&1; echo; \
         {CURL} {there} -k {ask} https://EXAMPLE.com./oauth/token 2>&1; echo; \
         {CURL} {there} -k https://other.example/v1/who 2>&1; {CURL} -k https://93.184.216.34/v1/who 2>&1; true"
    );
    let words = ["run", "--discard", "--profile", "agent", "--", "sh", "-c"];
    let outcome = online(&world, &[&words[..], &[&script]].concat());
    let what = format!("{outcome}\n{}", requests(&world));
    assert!(!requests(&world).contains("POST"), "{what}");
    // The control: whom it names otherwise, and nobody, is reached.
    assert_eq!(outcome.out().matches("who are you?").count(), 2, "{what}");
    let refused = events(&world, "flow.refused");
    let by_name = |one: &&serde_json::Value| {
        one["why"]
            .to_string()
            .contains("issues tokens of login agent")
    };
    assert_eq!(refused.iter().filter(by_name).count(), 2, "{refused:?}");
    nowhere(&world, &outcome, &[]);
    // While somebody logs in there is no tunnel at all.
    let outcome = login(&world, &script);
    let what = format!("{outcome}\n{}", requests(&world));
    assert_eq!(requests(&world), "", "{what}");
    nowhere(&world, &outcome, &[]);
}

#[test]
fn the_port_for_the_browser_is_open_only_where_one_comes_back() {
    let Some(world) = world("the_port_for_the_browser_is_open_only_where_one_comes_back") else {
        return;
    };
    let script = "python3 -m http.server -b 127.0.0.1 14555 >/dev/null 2>&1 & sleep 8";
    // Whoever comes back comes until the login is over.
    let ended = world.top().join("ended");
    let command = format!(
        "sh -c '(\"$ATOLL\" \"$@\"; touch \"{0}\") & until [ -e \"{0}\" ]; do \
         curl -s -m 5 --noproxy \"*\" -o /dev/null http://127.0.0.1:14555/ && echo visited && break; \
         sleep 0.1; done; wait' sh \"$@\"",
        ended.display()
    );
    for (word, is_open) in [("browser", true), ("--device-auth", false)] {
        let _ = fs::remove_file(&ended);
        let words = ["login", "agent", "--profile", "agent", "--yes", "--"];
        let run = on_servers(&world, SERVERS, NAMES, &command);
        let run = run.env("ISSUERS", NAMES.join(" ")).arg("sh").args(words);
        let outcome = run.args(["sh", "-c", script, "sh", word]).run();
        assert_eq!(
            outcome.out().contains("visited"),
            is_open,
            "{word}: {outcome}"
        );
        let told = outcome.err().contains("127.0.0.1:14555");
        assert_eq!(told, is_open, "{word}: {outcome}");
    }
}

#[test]
fn secrets_that_a_login_replaces_are_named_before_they_are() {
    let Some(world) = world("secrets_that_a_login_replaces_are_named_before_they_are") else {
        return;
    };
    let vault = PROFILE
        .replace(
            "access = \"tokens.access\"\nrefresh = \"tokens.refresh\"",
            "vault = { access = \"agent-access\", refresh = \"agent-refresh\" }",
        )
        .replace(
            "source = { login = \"agent\", field = \"tokens.access\" }",
            "source = { vault = \"agent-access\" }\nvariable = \"AGENT_TOKEN\"",
        )
        .replace(
            "form = \"Bearer {}\" }\noptional = true",
            "form = \"Bearer {}\" }",
        );
    world.profile("agent", &vault);
    let mine = "sk-mine-0123456789abcdefghijABCDEFGHIJ";
    world.canary(mine, &[]);
    let set = world.atoll(["secret", "set", "agent-access"]).stdin(mine);
    let _ = set.run().success();
    let script = format!(
        "{CURL} -d 'grant_type=authorization_code&code=good' https://example.com/oauth/token"
    );
    let words = ["login", "agent", "--profile", "agent", "--", "sh", "-c"];
    let words = [&words[..], &[script.as_str()]].concat();
    let outcome = at_a_terminal(&world, &words, "n");
    let said = outcome.out();
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("replaces agent-access?"), "{outcome}");
    assert!(!said.contains("replaces agent-refresh"), "{outcome}");
    let show = || world.atoll(["secret", "list"]).run().success().out();
    assert!(!show().contains("agent-refresh"), "{outcome}");
    // Nobody is asked with --yes, so nothing of somebody else's is replaced.
    let outcome = login(&world, &script);
    assert_ne!(outcome.code(), 0, "{outcome}");
    assert!(
        outcome
            .err()
            .contains("no login has put these there: agent-access"),
        "{outcome}"
    );
    // The control: after a yes it is, and the next time it is the login's own.
    let outcome = at_a_terminal(&world, &words, "y");
    assert_eq!(outcome.code(), 0, "{outcome}");
    assert!(show().contains("agent-refresh"), "{outcome}");
    let outcome = login(&world, &script);
    assert_eq!(outcome.code(), 0, "{outcome}");
}

#[test]
fn no_process_but_the_one_that_carries_holds_tokens_of_a_login() {
    let name = "no_process_but_the_one_that_carries_holds_tokens_of_a_login";
    let Some(world) = world(name) else {
        return;
    };
    for (token, key) in [(REAL, "access_token"), (RENEWAL, "refresh_token")] {
        let _ = fs::remove_file(world.top().join("go"));
        world.write(holders::sought(&world), token);
        world.canary(token, &["sought"]);
        let command = holders::searching_beside(&world);
        let run = on_servers(&world, SERVERS, NAMES, &command);
        let script = format!(
            "T=$({CURL} -d 'grant_type=authorization_code&code=good' https://example.com/oauth/token); \
             export T; echo \"KEY=$(echo \"$T\" | sed 's/.*\"{key}\": *\"\\([^\"]*\\)\".*/\\1/')\"; \
             sh -c 'echo READY; read go'"
        );
        let words = ["login", "agent", "--profile", "agent", "--yes", "--"];
        let outcome = holders::without_variable(&world, run)
            .env("ISSUERS", NAMES.join(" "))
            .arg("sh")
            .args(words)
            .args(["sh", "-c", &script])
            .within(Duration::from_secs(240))
            .run();
        let what = format!("{key} {outcome}");
        assert!(outcome.out().contains("KEY=sk-ant-"), "{what}");
        holders::expect_held_by(&world, &["atoll-egress"], &what);
        nowhere(&world, &outcome, &[holders::sought(&world)]);
    }
}

/// `atoll login` has the tokens while it asks whether to keep the login.
#[test]
fn who_asks_whether_a_login_is_kept_leaves_no_core_dump_and_nobody_looks_into_it() {
    let name = "who_asks_whether_a_login_is_kept_leaves_no_core_dump_and_nobody_looks_into_it";
    let Some(world) = world(name) else {
        return;
    };
    if !holders::dumps_are_files(&world) {
        return;
    }
    world.write(holders::sought(&world), REAL);
    world.canary(REAL, &["sought"]);
    let look = holders::looking(&world);
    let command = format!("sh -c '{}' sh \"$ATOLL\" \"$@\"", holders::UNBOUNDED);
    let run = on_servers(&world, SERVERS, NAMES, &command);
    let run = run.env("ISSUERS", NAMES.join(" ")).env("ANSWER", "y");
    let script = asking();
    let words = [
        "login",
        "agent",
        "--profile",
        "agent",
        "--",
        "sh",
        "-c",
        &script,
    ];
    let run = run.env("LOOK", look).arg("sh").args(words);
    let outcome = run.within(Duration::from_secs(240)).run();
    holders::expect_no_dump_of_looked_at(&world, &outcome.to_string());
    // It was ended before it was answered.
    assert!(!auth(&world).exists(), "{outcome}");
    nowhere(&world, &outcome, &[holders::sought(&world)]);
}
