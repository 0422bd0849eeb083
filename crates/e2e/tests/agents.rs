//! Agents at work, with a model that demands its key and has its answers ready under the name
//! of a real one: a turn runs a command, which makes a file and tries to reach somebody else;
//! another one tries to get hold of the key, or to send it away.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use e2e::internet::{events, is_possible, on_servers, without_namespaces};
use e2e::{Avoidable, Outcome, World, cache, is_root};

const LONG: Duration = Duration::from_secs(300);
const MODEL: &str = include_str!("agents/servers.py");
const SEARCH: &str = include_str!("credentials/search.py");
const ATTACK: &str = include_str!("agents/attack.sh");
const NAMES: &[&str] = &[
    "api.openai.com",
    "api.anthropic.com",
    "generativelanguage.googleapis.com",
    "example.com",
    "other.example",
];
/// What the model demands.
const KEY: &str = "sk-proj-r3alK3yOfTh1sT3stWh1chN0Ag3ntM4yS33iNf1lesN0rInM3m0";
/// What the model has the agent do.
const COMMAND: &str = "echo made by an agent > made.txt; cat made.txt; \
                       curl -sS -m 60 http://example.com/ 2>&1 || echo kept in";

/// What attacks meanwhile, and what waits for its end.
const BEGIN: &str = "setsid sh attack.sh >/dev/null 2>&1 </dev/null & echo made by an agent > made.txt; \
     cat made.txt; curl -sS -m 60 http://other.example/ 2>&1 || echo kept in";
const WAIT: &str = "for one in $(seq 1 80); do tail -n 1 attack.out | grep -q OVER && break; \
                    sleep 0.3; done; tail -n 1 attack.out";

/// Where a package of npm lies in the cache, if this file of it is there.
fn package(world: &World, file: &str) -> Option<PathBuf> {
    let path = cache().map(|cache| cache.join("npm/node_modules").join(file));
    let found = path.filter(|path| path.is_file());
    if found.is_none() {
        let reason = format!("{file} is not in ATOLL_TEST_CACHE");
        world.skip(&reason, Avoidable::Yes);
    }
    found
}

/// How a run is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// With namespaces.
    Full,
    /// Where there are none: the workspace is the program's own.
    Fence,
}

/// Runs an agent by a shell script, where the model is.
fn at_work(
    world: &World,
    mode: Mode,
    commands: &[&str],
    options: &[&str],
    script: &str,
) -> Outcome {
    let npm = cache().unwrap().join("npm");
    world.write(world.top().join("real"), KEY);
    world.write(world.top().join("search.py"), SEARCH);
    let atoll = match mode {
        Mode::Full => "$ATOLL".to_owned(),
        Mode::Fence => without_namespaces(world).display().to_string(),
    };
    // Nobody but Atoll has the key in its environment.
    let command = format!(
        "sh -c 'OPENAI_API_KEY=$(cat \"$REAL\"); export OPENAI_API_KEY; exec \"{atoll}\" run --keep \"$@\"' sh \"$@\""
    );
    let run = on_servers(world, MODEL, NAMES, &command);
    let commands = serde_json::to_string(commands).unwrap();
    let run = run.env("COMMANDS", commands);
    let run = run.env("REAL", world.top().join("real"));
    let run = run.within(LONG).args(["sh", "--ro"]);
    run.arg(npm)
        .args(options)
        .args(["--", "sh", "-c", script])
        .run()
}

/// What holds of each agent.
fn check(world: &World, mode: Mode, outcome: &Outcome) {
    let requests = fs::read_to_string(world.top().join("internet/requests")).unwrap_or_default();
    let what = format!("{outcome}\n{requests}");
    assert!(outcome.out().contains("ALL IS DONE"), "{what}");
    // The model was asked with the real key, by its own name, and heard what the command said.
    let asked = format!("Bearer {KEY}");
    assert!(
        requests
            .lines()
            .any(|line| line.starts_with("POST api.openai.com /v1/") && line.ends_with(&asked)),
        "{what}"
    );
    assert!(requests.contains("made by an agent"), "{what}");
    let reached = fs::read_to_string(world.top().join("internet/reached")).unwrap_or_default();
    assert_eq!(reached, "", "{what}");
    // Its file is a change of the run, and in a fence alone in the workspace.
    let is_fenced = outcome.err().contains("only fenced in");
    assert_eq!(is_fenced, mode == Mode::Fence, "{what}");
    assert_eq!(world.exists("made.txt"), is_fenced, "{what}");
    let changed = world.atoll(["diff", "last"]).run().success();
    assert!(
        changed.out().contains("made.txt") && changed.out().contains("+made by an agent"),
        "{changed}"
    );
    let opened = events(world, "flow.opened");
    assert!(
        opened.iter().any(|one| one["kind"] == "request"
            && one["method"] == "POST"
            && one["host"] == "api.openai.com"),
        "{opened:?}"
    );
    let refused = events(world, "flow.refused");
    let kept_in = ["example.com", "other.example"].map(serde_json::Value::from);
    assert!(
        refused.iter().any(|one| kept_in.contains(&one["host"])),
        "{refused:?}"
    );
    assert!(!what.contains(KEY) || requests.contains(KEY), "{what}");
    assert!(
        !outcome.out().contains(KEY) && !outcome.err().contains(KEY),
        "{what}"
    );
}

/// What holds besides after an attack on the key.
fn check_attack(world: &World, mode: Mode, outcome: &Outcome) {
    check(world, mode, outcome);
    let top = world.top();
    let read = |name: &str| {
        let whole = fs::read(top.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&whole).into_owned()
    };
    let requests = read("internet/requests");
    assert!(requests.contains("ATTACK OVER"), "{outcome}\n{requests}");
    let recorded = read("internet/recorded");
    let searched = read("searched");
    let what = format!("{outcome}\nRECORDED\n{recorded}\nSEARCHED\n{searched}");
    // Who records was reached by what may reach it, and by nothing with the key.
    assert!(recorded.contains("control-was-heard"), "{what}");
    let placeholder = searched_placeholder(world);
    assert!(placeholder.starts_with("sk-proj-") && placeholder.len() == KEY.len());
    for form in forms(world, KEY) {
        assert!(!recorded.contains(&form), "{form}\n{what}");
    }
    for line in recorded
        .lines()
        .filter(|line| line.contains(": ") || line.contains("HTTP/1"))
    {
        assert!(!line.contains(&placeholder), "{line}\n{what}");
    }
    let asked = read("internet/asked").to_ascii_lowercase();
    assert!(asked.contains("example.com"), "{asked}");
    assert!(!asked.contains("sk-proj-"), "{asked}");
    // Nobody but the process that puts it in holds it, of all that the run consists of.
    let has = |line: &str| searched.lines().any(|one| one == line);
    for process in ["atoll", "atoll-egress", "atoll-jail"] {
        assert!(has(&format!("read {process}")), "{process}: {what}");
    }
    let holders = searched.lines().filter(|line| line.starts_with("real "));
    let of_carrier = match is_root() {
        true => vec!["real atoll-egress memory"],
        false => Vec::new(),
    };
    assert_eq!(holders.collect::<Vec<_>>(), of_carrier, "{what}");
    assert!(is_root() || has("unread atoll-egress memory"), "{what}");
    let of_agent = |line: &&str| line.starts_with("inside-key") && line.ends_with(" environment");
    assert!(searched.lines().any(|line| of_agent(&line)), "{what}");
    let mut find = world.host("grep").arg("-rlaF");
    for form in forms(world, KEY) {
        find = find.args(["-e", &form]);
    }
    let found = find.arg(top).run().out();
    let own = ["/real", "/internet/requests"].map(|name| format!("{}{name}", top.display()));
    let others = found
        .lines()
        .filter(|line| !own.iter().any(|own| own == line));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&str>::new(), "{what}");
    tells_the_story(world, outcome);
}

/// What the run's end and `atoll why` say of an attack.
fn tells_the_story(world: &World, outcome: &Outcome) {
    assert!(
        outcome.err().contains("alert: the program tried"),
        "{outcome}"
    );
    let why = world.atoll(["why", "last"]).run().success();
    let told = why.out();
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [
        "the placeholder of credential openai is in the header authorization",
        "the placeholder of credential openai is in its query",
        "the placeholder of credential openai is in its path",
        "the placeholder of credential openai is in its name",
        "the placeholder of credential openai is in a request to another host than it is for",
        "the placeholder of credential openai is in its body",
        "its TLS names api.openai.com",
        "reaching other.example: no rule allows it",
    ] {
        assert!(told.contains(said), "{said}: {why}");
    }
    let refused = events(world, "flow.refused");
    let alerts = refused.iter().filter(|one| one["credential"] == "openai");
    assert!(alerts.count() >= 10, "{refused:?}");
}

/// What stood for the key inside, as the attack found it.
fn searched_placeholder(world: &World) -> String {
    let shown = world.atoll(["diff", "last"]).run().success();
    let at = shown
        .out()
        .find("sk-proj-")
        .expect("it is among the changes");
    let rest = shown.out()[at..].to_owned();
    let is_of_it = |one: char| one.is_ascii_alphanumeric() || one == '-';
    let end = rest.find(|one| !is_of_it(one)).unwrap_or(rest.len());
    rest[..end].to_owned()
}

/// The forms in which a text is looked for; escaped for a URL or in JSON this one is as it is.
fn forms(world: &World, text: &str) -> Vec<String> {
    let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    let mut forms = vec![text.to_owned(), hex.clone(), hex.to_uppercase()];
    for skip in 0..3 {
        // What is the same wherever the text stands in what is encoded.
        let part = &text[skip..skip + (text.len() - skip) / 3 * 3];
        let encoded = world
            .host("sh")
            .args(["-c", "printf %s \"$1\" | base64 -w 0", "sh", part]);
        forms.push(encoded.run().success().out().trim().to_owned());
    }
    assert!(forms.iter().all(|form| form.len() > 40), "{forms:?}");
    forms
}

#[test]
fn codex_works_with_a_model_that_its_profile_lets_it_reach() {
    let world = World::new("codex_works_with_a_model_that_its_profile_lets_it_reach");
    if let Some(outcome) = codex(&world, Mode::Full, &[COMMAND], &[]) {
        check(&world, Mode::Full, &outcome);
    }
}

#[test]
fn codex_works_in_a_fence_too() {
    let world = World::new("codex_works_in_a_fence_too");
    if is_root() {
        return world.skip("root always has namespaces", Avoidable::No);
    }
    if let Some(outcome) = codex(&world, Mode::Fence, &[COMMAND], &[]) {
        check(&world, Mode::Fence, &outcome);
        assert!(
            outcome.err().contains(".codex can be read and not changed"),
            "{outcome}"
        );
    }
}

/// The turns of an attack.
fn attack(world: &World) -> Vec<&'static str> {
    world.write("attack.sh", ATTACK);
    [vec![BEGIN], vec![WAIT; 8]].concat()
}

const ALLOWED: [&str; 2] = ["--allow", "example.com"];

#[test]
fn codex_gets_hold_of_no_key_and_sends_none_away() {
    let world = World::new("codex_gets_hold_of_no_key_and_sends_none_away");
    if let Some(outcome) = codex(&world, Mode::Full, &attack(&world), &ALLOWED) {
        check_attack(&world, Mode::Full, &outcome);
    }
}

#[test]
fn codex_gets_hold_of_no_key_in_a_fence() {
    let world = World::new("codex_gets_hold_of_no_key_in_a_fence");
    if is_root() {
        return world.skip("root always has namespaces", Avoidable::No);
    }
    if let Some(outcome) = codex(&world, Mode::Fence, &attack(&world), &ALLOWED) {
        check_attack(&world, Mode::Fence, &outcome);
    }
}

#[test]
fn opencode_gets_hold_of_no_key_and_sends_none_away() {
    let world = World::new("opencode_gets_hold_of_no_key_and_sends_none_away");
    if let Some(outcome) = opencode(&world, Mode::Full, &attack(&world), &ALLOWED) {
        check_attack(&world, Mode::Full, &outcome);
    }
}

/// The blocks of a page that begin like this.
fn blocks<'a>(page: &'a str, kind: &str) -> Vec<&'a str> {
    let blocks = page.split(kind).skip(1);
    blocks
        .map(|block| block.split("```").next().unwrap())
        .collect()
}

/// What the page on an agent tells people to type, where the model is; and its profile.
fn page_works(world: &World, agent: &str, program: &str) {
    if !is_possible(world, &["openssl", "node"]) {
        return;
    }
    let Some(installed) = package(world, program) else {
        return;
    };
    let project = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../..");
    let page = fs::read_to_string(project.join(format!("docs/agents/{agent}.md"))).unwrap();
    for block in blocks(&page, "```toml") {
        world.profile("example", block);
        let shown = world.atoll(["profile", "show", "example"]).run().success();
        assert!(
            shown
                .out()
                .contains(&format!("extends: rust, python, node, {agent}")),
            "{shown}"
        );
        std::fs::remove_file(world.config().join("atoll/profiles/example.toml")).unwrap();
    }
    // It is installed where programs of the person are.
    let npm = cache().unwrap().join("npm");
    let shown =
        format!("extends = [\"{agent}\"]\ncommands = [\"{agent}\"]\n[files]\nread = [{npm:?}]\n");
    world.profile(agent, &shown);
    world.write(world.top().join("real"), KEY);
    let typed = blocks(&page, "```console").concat();
    let lines = typed.lines().filter_map(|line| line.strip_prefix("$ "));
    let lines: Vec<String> = lines
        .map(|line| match line.strip_suffix("=sk-…") {
            Some(export) => format!("{export}=$(cat \"$REAL\")"),
            None => line.to_owned(),
        })
        .collect();
    assert_eq!(lines.len(), 5, "{lines:?}");
    let script = format!(
        "set -e; atoll() {{ \"$ATOLL\" \"$@\"; }}; PATH='{}':$PATH; {}",
        installed.parent().unwrap().display(),
        lines.join("; ")
    );
    world.write(world.top().join("typed"), script);
    let command = format!("sh '{}'", world.top().join("typed").display());
    let run = on_servers(world, MODEL, NAMES, &command)
        .env("COMMANDS", serde_json::to_string(&[COMMAND]).unwrap())
        .env("REAL", world.top().join("real"))
        .within(LONG);
    let ended = run.run();
    let requests = fs::read_to_string(world.top().join("internet/requests")).unwrap_or_default();
    let what = format!("{ended}\n{requests}");
    assert_eq!(ended.code(), 0, "{what}");
    for said in [
        "ALL IS DONE",
        "+made by an agent",
        "reaching example.com: no rule allows it",
    ] {
        assert!(
            ended.out().contains(said) || ended.err().contains(said),
            "{said}: {what}"
        );
    }
    assert!(
        requests
            .lines()
            .any(|line| line.starts_with("POST ") && line.ends_with(KEY)),
        "{what}"
    );
    assert_eq!(world.read("made.txt"), "made by an agent\n", "{what}");
}

#[test]
fn the_page_on_codex_works() {
    let world = World::new("the_page_on_codex_works");
    // Its own models have tools of their own.
    world.write(
        world.home().join(".codex/config.toml"),
        "model = \"scripted\"\n",
    );
    page_works(&world, "codex", ".bin/codex");
}

#[test]
fn the_page_on_opencode_works() {
    let world = World::new("the_page_on_opencode_works");
    page_works(&world, "opencode", &opencode_program());
}

#[test]
fn the_page_on_gemini_works() {
    let world = World::new("the_page_on_gemini_works");
    page_works(&world, "gemini", ".bin/gemini");
}

/// Its licence lets nobody hand it on: who runs the tests puts it into the cache, or does
/// without this one.
#[test]
fn the_page_on_claude_code_works() {
    let world = World::new("the_page_on_claude_code_works");
    let architecture = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "x64",
    };
    let file = format!("@anthropic-ai/claude-code-linux-{architecture}/claude");
    let installed = cache().map(|cache| cache.join("npm/node_modules").join(&file));
    if !installed.is_some_and(|installed| installed.is_file()) {
        let reason = "Claude Code is not in ATOLL_TEST_CACHE, and is not to be handed on";
        return world.skip(reason, Avoidable::No);
    }
    page_works(&world, "claude", &file);
}

#[test]
fn the_key_of_an_agent_need_not_be_there_and_never_goes_in() {
    let world = World::new("the_key_of_an_agent_need_not_be_there_and_never_goes_in");
    let script =
        "echo \"key=${OPENAI_API_KEY-none}\"; cat /proc/*/environ | grep -c r3alK3yOf; true";
    let run = [
        "run",
        "--discard",
        "--profile",
        "codex",
        "--env",
        "OPENAI_API_KEY",
    ];
    let run = || world.atoll(run).args(["--", "sh", "-c", script]);
    let real = run().env("OPENAI_API_KEY", KEY).run().success();
    assert!(real.out().starts_with("key=sk-proj-"), "{real}");
    assert!(real.out().ends_with("\n0\n"), "{real}");
    for unset in [run(), run().env("OPENAI_API_KEY", "")] {
        let unset = unset.run().success();
        assert_eq!(unset.out(), "key=none\n0\n", "{unset}");
        assert!(!unset.err().contains("credential"), "{unset}");
    }
    let short = run().env("OPENAI_API_KEY", "a-short-one").run().success();
    assert_eq!(short.out(), "key=none\n0\n", "{short}");
    let _ = short.says([
        "credential openai is left out",
        "OPENAI_API_KEY",
        "shorter than 16",
    ]);
    // Without `optional` it has to be there; with it, all else still has to be right.
    for (further, said) in [("", "~/key cannot be read"), ("optional = true\n", "")] {
        let text = format!(
            "[credential.a]\nsource = {{ file = \"~/key\" }}\nto = \"example.com\"\n\
             place = {{ header = \"x-key\" }}\nvariable = \"KEY\"\n{further}"
        );
        world.profile("of-a-file", &text);
        let run = || {
            let run = world.run(
                ["--discard", "--profile", "of-a-file"],
                "echo \"${KEY-none}\"",
            );
            run.run()
        };
        if said.is_empty() {
            assert_eq!(run().success().out(), "none\n");
            std::fs::create_dir(world.home().join("key")).unwrap();
        }
        let failed = run();
        let said = said.replace('~', &world.home().display().to_string());
        assert!(!failed.out().contains("none"), "{failed}");
        assert!(failed.err().contains(&said), "{failed}");
    }
}

/// A login file of an agent whose model demands this.
struct LoggedIn<'a> {
    /// Where it is in the home directory.
    file: &'a str,
    text: String,
    /// What the model demands.
    token: String,
    /// What of it goes nowhere.
    secrets: Vec<String>,
}

/// A web token that nobody checks.
fn web_token(claims: &serde_json::Value, signature: &str) -> String {
    let part = |text: &str| {
        const LETTERS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut encoded = String::new();
        for three in text.as_bytes().chunks(3) {
            let bits = three
                .iter()
                .fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
            let bits = bits << (8 * (3 - three.len()));
            for place in 0..=three.len() {
                let letter = (bits >> (18 - 6 * place)) & 63;
                encoded.push(char::from(LETTERS[letter as usize]));
            }
        }
        encoded
    };
    let header = part(r#"{"alg":"RS256","typ":"JWT"}"#);
    format!("{header}.{}.{signature}", part(&claims.to_string()))
}

/// Runs an agent that is logged in by its file, without any key in Atoll's environment.
fn run_logged_in(world: &World, login: &LoggedIn<'_>, options: &[&str], script: &str) -> Outcome {
    use std::os::unix::fs::PermissionsExt;
    let npm = cache().unwrap().join("npm");
    let file = world.home().join(login.file);
    world.write(world.top().join("real"), &login.token);
    world.write(world.top().join("search.py"), SEARCH);
    world.write(&file, &login.text);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let run = on_servers(world, MODEL, NAMES, "\"$ATOLL\" run --keep \"$@\"");
    let commands = format!(
        "{COMMAND}; cat ~/{}; cp ~/{} copied",
        login.file, login.file
    );
    let run = run.env("COMMANDS", serde_json::to_string(&[commands]).unwrap());
    let run = run.within(LONG).args(["sh", "--ro"]).arg(npm);
    run.args(options).args(["--", "sh", "-c", script]).run()
}

/// The same, and that it works so.
fn logged_in(world: &World, login: &LoggedIn<'_>, options: &[&str], script: &str) {
    let outcome = run_logged_in(world, login, options, script);
    let requests = fs::read_to_string(world.top().join("internet/requests")).unwrap_or_default();
    let what = format!("{outcome}\n{requests}");
    assert!(outcome.out().contains("ALL IS DONE"), "{what}");
    // The model was asked with the real token, and the agent has told it of what stands for it.
    let asked = format!("Bearer {}", login.token);
    let is_asked =
        |line: &str| line.starts_with("POST api.openai.com /v1/") && line.ends_with(&asked);
    assert!(requests.lines().any(is_asked), "{what}");
    assert!(requests.contains("made by an agent"), "{what}");
    let diff = world.atoll(["diff", "--stat", "last"]).run().success();
    assert!(diff.out().contains("copied"), "{diff}");
    assert!(!diff.out().contains("auth.json"), "{diff}");
    nowhere(world, login, &outcome);
}

/// Nothing of a login is anywhere but where it was, and at the model.
fn nowhere(world: &World, login: &LoggedIn<'_>, outcome: &Outcome) {
    let file = world.home().join(login.file);
    let mut find = world.host("grep").arg("-rlaF");
    for secret in &login.secrets {
        for form in forms(world, secret) {
            assert!(
                !outcome.out().contains(&form) && !outcome.err().contains(&form),
                "{outcome}"
            );
            find = find.args(["-e", &form]);
        }
    }
    let found = find.arg(world.top()).run().out();
    let own = [
        file.clone(),
        world.top().join("real"),
        world.top().join("internet/requests"),
    ];
    let is_own = |line: &&str| own.iter().any(|own| own.to_str() == Some(line));
    assert!(
        found.lines().any(|line| Some(line) == file.to_str()),
        "{found}"
    );
    let others: Vec<&str> = found.lines().filter(|line| !is_own(line)).collect();
    assert_eq!(others, Vec::<&str>::new(), "{outcome}");
    assert_eq!(fs::read_to_string(&file).unwrap(), login.text, "{outcome}");
}

const RENEWAL: &str = "rt-an0th3rS3cr3tOfTh1sT3stWh1chN0Ag3ntM4yS33iNf1lesN0rInM3m0";
const SIGNATURE: &str = "s1gn4tur3OfTh1sT3stWh1chN0Ag3ntM4yS33iNf1lesN0rInM3m0ry";

/// Codex, with such a login; none where it is not installed.
fn codex_login<'a>(
    world: &World,
    text: &serde_json::Value,
    token: &str,
) -> Option<(LoggedIn<'a>, String)> {
    if !is_possible(world, &["openssl", "node"]) {
        return None;
    }
    let codex = package(world, "@openai/codex/bin/codex.js")?;
    let settings = "model = \"scripted\"\nmodel_provider = \"openai-by-login\"\n\
                    [model_providers.openai-by-login]\nname = \"openai\"\nbase_url = \"https://api.openai.com/v1\"\n\
                    requires_openai_auth = true\nwire_api = \"responses\"\nsupports_websockets = false\n\
                    [shell_environment_policy]\ninherit = \"all\"\nignore_default_excludes = true\n";
    world.write(world.home().join(".codex/config.toml"), settings);
    let login = LoggedIn {
        file: ".codex/auth.json",
        text: text.to_string(),
        token: token.to_owned(),
        secrets: vec![RENEWAL.to_owned(), SIGNATURE.to_owned(), KEY.to_owned()],
    };
    let script = format!(
        "node '{}' exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox 'do the work'",
        codex.display()
    );
    Some((login, script))
}

fn codex_logged_in(world: &World, text: &serde_json::Value, token: &str) {
    if let Some((login, script)) = codex_login(world, text, token) {
        logged_in(world, &login, &["--profile", "codex"], &script);
    }
}

/// A login with ChatGPT that is valid until then, and its token.
fn with_chatgpt(until: u64, renewed: &str) -> (serde_json::Value, String) {
    let claims = serde_json::json!({
        "email": "ann@example.com", "exp": until, "sub": "user-of-this-test",
        "https://api.openai.com/auth": {"chatgpt_account_id": "account-1", "chatgpt_plan_type": "pro"},
    });
    let identity = web_token(&claims, SIGNATURE);
    let access = web_token(&claims, &format!("a-{SIGNATURE}"));
    let text = serde_json::json!({
        "auth_mode": "chatgpt", "OPENAI_API_KEY": null,
        "tokens": {"id_token": identity, "access_token": access, "refresh_token": RENEWAL, "account_id": "account-1"},
        "last_refresh": renewed,
    });
    (text, access)
}

#[test]
fn codex_works_by_a_login_with_chatgpt_that_is_not_inside() {
    let world = World::new("codex_works_by_a_login_with_chatgpt_that_is_not_inside");
    let now = std::process::Command::new("date")
        .args(["-u", "+%FT%TZ"])
        .output()
        .unwrap();
    let now = String::from_utf8(now.stdout).unwrap();
    // In a hundred years.
    let (text, access) = with_chatgpt(4_900_000_000, now.trim());
    codex_logged_in(&world, &text, &access);
}

#[test]
fn codex_is_told_that_its_login_is_renewed_outside() {
    let world = World::new("codex_is_told_that_its_login_is_renewed_outside");
    let (text, access) = with_chatgpt(1_700_000_000, "2023-11-14T00:00:00Z");
    let Some((login, script)) = codex_login(&world, &text, &access) else {
        return;
    };
    let outcome = run_logged_in(&world, &login, &["--profile", "codex"], &script);
    let refused = events(&world, "flow.refused");
    let renewal = refused.iter().find(|one| one["host"] == "auth.openai.com");
    let renewal = renewal.unwrap_or_else(|| panic!("{refused:?} {outcome}"));
    assert!(
        renewal["why"].to_string().contains("would renew its login"),
        "{renewal}"
    );
    assert!(renewal.get("credential").is_none(), "{renewal}");
    assert!(!outcome.err().contains("alert"), "{outcome}");
    nowhere(&world, &login, &outcome);
}

#[test]
fn codex_works_by_a_login_with_a_key_that_is_not_inside() {
    let world = World::new("codex_works_by_a_login_with_a_key_that_is_not_inside");
    let text = serde_json::json!({"auth_mode": "apikey", "OPENAI_API_KEY": KEY, "tokens": null});
    codex_logged_in(&world, &text, KEY);
}

#[test]
fn opencode_works_by_a_login_that_is_not_inside() {
    let world = World::new("opencode_works_by_a_login_that_is_not_inside");
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    let Some(opencode) = package(&world, &opencode_program()) else {
        return;
    };
    let settings = r#"{"provider": {"openai": {"options": {"baseURL": "https://api.openai.com/v1"},
        "models": {"model": {"name": "model"}}}}, "permission": {"bash": "allow", "external_directory": "allow"}}"#;
    world.write("opencode.json", settings);
    let text = serde_json::json!({
        "openai": {"type": "api", "key": KEY},
        "other": {"type": "oauth", "refresh": RENEWAL, "access": SIGNATURE, "expires": 1},
    });
    let login = LoggedIn {
        file: ".local/share/opencode/auth.json",
        text: text.to_string(),
        token: KEY.to_owned(),
        secrets: vec![RENEWAL.to_owned(), SIGNATURE.to_owned(), KEY.to_owned()],
    };
    let options = [
        "--profile",
        "opencode",
        "--env",
        "OPENCODE_DISABLE_MODELS_FETCH=1",
        "--env",
        "OPENCODE_DISABLE_AUTOUPDATE=1",
    ];
    let script = format!(
        "'{}' run --model openai/model 'do the work'",
        opencode.display()
    );
    logged_in(&world, &login, &options, &script);
}

fn codex(world: &World, mode: Mode, commands: &[&str], further: &[&str]) -> Option<Outcome> {
    if !is_possible(world, &["openssl", "node"]) {
        return None;
    }
    let codex = package(world, "@openai/codex/bin/codex.js")?;
    let settings = "model = \"scripted\"\nmodel_provider = \"openai-by-key\"\n\
                    [model_providers.openai-by-key]\nname = \"openai\"\nbase_url = \"https://api.openai.com/v1\"\n\
                    env_key = \"OPENAI_API_KEY\"\nwire_api = \"responses\"\nsupports_websockets = false\n\
                    [shell_environment_policy]\ninherit = \"all\"\nignore_default_excludes = true\n";
    world.write(world.home().join(".codex/config.toml"), settings);
    // In a fence what a profile gives in a layer can only be read, and Codex writes there.
    let own = match mode {
        Mode::Full => "",
        Mode::Fence => "cp -RL ~/.codex ~/codex && export CODEX_HOME=~/codex && ",
    };
    let script = format!(
        "{own}node '{}' exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox 'do the work'",
        codex.display()
    );
    let options = [&["--profile", "codex"], further].concat();
    Some(at_work(world, mode, commands, &options, &script))
}

#[test]
fn opencode_works_with_a_model_that_its_profile_lets_it_reach() {
    let world = World::new("opencode_works_with_a_model_that_its_profile_lets_it_reach");
    if let Some(outcome) = opencode(&world, Mode::Full, &[COMMAND], &[]) {
        check(&world, Mode::Full, &outcome);
    }
}

#[test]
fn opencode_aborts_in_a_fence_and_it_is_told_why() {
    let world = World::new("opencode_aborts_in_a_fence_and_it_is_told_why");
    if is_root() {
        return world.skip("root always has namespaces", Avoidable::No);
    }
    let Some(outcome) = opencode(&world, Mode::Fence, &[COMMAND], &[]) else {
        return;
    };
    assert!(!outcome.out().contains("ALL IS DONE"), "{outcome}");
    let outcome = outcome.expect_status(134);
    let _ = outcome.says([
        "OpenCode aborts where namespaces are missing",
        "/proc of its own process",
        "atoll doctor says how",
    ]);
}

fn opencode(world: &World, mode: Mode, commands: &[&str], further: &[&str]) -> Option<Outcome> {
    if !is_possible(world, &["openssl"]) {
        return None;
    }
    let opencode = package(world, &opencode_program())?;
    let settings = r#"{"provider": {"scripted": {"npm": "@ai-sdk/openai-compatible", "name": "scripted",
        "options": {"baseURL": "https://api.openai.com/v1", "apiKey": "{env:OPENAI_API_KEY}"},
        "models": {"model": {"name": "model"}}}}, "permission": {"bash": "allow"}}"#;
    world.write("opencode.json", settings);
    let script = format!(
        "'{}' run --model scripted/model 'do the work'",
        opencode.display()
    );
    let options = [
        "--profile",
        "opencode",
        "--env",
        "OPENCODE_DISABLE_MODELS_FETCH=1",
        "--env",
        "OPENCODE_DISABLE_AUTOUPDATE=1",
    ];
    let options = [&options, further].concat();
    Some(at_work(world, mode, commands, &options, &script))
}

/// Where OpenCode's program lies among the packages of npm.
fn opencode_program() -> String {
    let architecture = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "x64",
    };
    format!("opencode-linux-{architecture}/bin/opencode")
}
