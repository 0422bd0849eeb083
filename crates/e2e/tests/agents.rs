//! Agents at work, with a model that demands its key and has its answers ready under the name of a
//! real one: a turn runs a command, which makes a file and tries to reach another host; another one
//! tries to get hold of the key, or to send it away.

#[path = "agents/unheld.rs"]
mod unheld;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use e2e::internet::{MODELS, events, is_possible, on_servers, without_namespaces};
use e2e::{Avoidable, Outcome, World, cache, is_root};

const LONG: Duration = Duration::from_secs(300);
const MODEL: &str = include_str!("agents/servers.py");
const SEARCH: &str = include_str!("credentials/search.py");
const ATTACK: &str = include_str!("agents/attack.sh");
/// The key that the model demands.
const KEY: &str = "sk-proj-r3alK3yOfTh1sT3stWh1chN0Ag3ntM4yS33iNf1lesN0rInM3m0";

/// The provider of a model, and the form in which it takes its key.
struct Provider {
    host: &'static str,
    /// The variable with the key.
    variable: &'static str,
    /// The credential of the agents' profiles.
    credential: &'static str,
    /// The header that carries it, and the words before it there.
    field: &'static str,
    words: &'static str,
    /// The prefix of its keys.
    kind: &'static str,
    key: &'static str,
}

const OPENAI: Provider = Provider {
    host: "api.openai.com",
    variable: "OPENAI_API_KEY",
    credential: "openai",
    field: "Authorization",
    words: "Bearer ",
    kind: "sk-proj-",
    key: KEY,
};
const ANTHROPIC: Provider = Provider {
    host: "api.anthropic.com",
    variable: "ANTHROPIC_API_KEY",
    credential: "anthropic",
    field: "X-Api-Key",
    words: "",
    kind: "sk-ant-api03-",
    // Those of Anthropic are longer; this one can be part of a host's name too.
    key: "sk-ant-api03-r3alK3yOfTh1sT3stWh1chN0Ag3ntM4yS33iNf1lesM3m0",
};
const GOOGLE: Provider = Provider {
    host: "generativelanguage.googleapis.com",
    variable: "GEMINI_API_KEY",
    credential: "gemini",
    field: "X-Goog-Api-Key",
    words: "",
    kind: "AIza",
    // As long as those of Google.
    key: "AIzaSyR3alK3yOfTh1sT3stN0Ag3ntM4yS33iNM",
};

impl Provider {
    /// Returns the text that its model receives when it is shown the key.
    fn shown(&self) -> String {
        match self.field {
            "Authorization" => format!("{}{}", self.words, self.key),
            field => format!("{field} {}", self.key),
        }
    }

    /// Returns the script of an agent of this provider that was talked into an attack.
    fn attack(&self, world: &World) -> String {
        let [settings, state] = [world.config(), world.state()].map(|one| one.join("atoll"));
        let of = [
            ("settings", settings.to_str().unwrap()),
            ("state", state.to_str().unwrap()),
            ("variable", self.variable),
            ("model", self.host),
            ("field", self.field),
            ("words", self.words),
            ("kind", self.kind),
        ];
        let of = of.map(|(name, value)| format!("{name}='{value}'\n"));
        format!("{}{ATTACK}", of.concat())
    }
}
/// The command that the model has the agent run.
const COMMAND: &str = "echo made by an agent > made.txt; cat made.txt; \
                       curl -sS -m 60 http://example.com/ 2>&1 || echo kept in";

/// The command that starts the attack in the background, and the one that waits for its end.
const BEGIN: &str = "setsid sh attack.sh >/dev/null 2>&1 </dev/null & echo made by an agent > made.txt; \
     cat made.txt; curl -sS -m 60 http://other.example/ 2>&1 || echo kept in";
const WAIT: &str = "timeout 24 sh -c 'until tail -n 1 attack.out | grep -q OVER; do sleep 0.3; done'; \
     tail -n 1 attack.out";

/// Returns the path of a file of an npm package in the cache, if it is there; else the test is
/// skipped.
fn package(world: &World, file: &str) -> Option<PathBuf> {
    let path = cache().map(|cache| cache.join("npm/node_modules").join(file));
    let found = path.filter(|path| path.is_file());
    if found.is_none() {
        let reason = format!("{file} is not in ATOLL_TEST_CACHE");
        world.skip(&reason, Avoidable::Yes);
    }
    found
}

/// The way in which a run is sandboxed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// With namespaces.
    Full,
    /// Without namespaces: the program works in the workspace itself.
    Fence,
}

/// Runs an agent by a shell script, where the model is reachable.
fn at_work(
    world: &World,
    provider: &Provider,
    mode: Mode,
    commands: &[&str],
    options: &[&str],
    script: &str,
) -> Outcome {
    let npm = cache().unwrap().join("npm");
    world.write(world.top().join("real"), provider.key);
    world.canary(provider.key, &["real"]);
    world.write(world.top().join("search.py"), SEARCH);
    let variable = provider.variable;
    let atoll = match mode {
        Mode::Full => "$ATOLL".to_owned(),
        Mode::Fence => without_namespaces(world).display().to_string(),
    };
    // Nobody but Atoll has the key in its environment.
    let command = format!(
        "sh -c '{variable}=$(cat \"$REAL\"); export {variable}; exec \"{atoll}\" run --keep \"$@\"' sh \"$@\""
    );
    let run = on_servers(world, MODEL, MODELS, &command);
    let commands = serde_json::to_string(commands).unwrap();
    let run = run.env("COMMANDS", commands);
    let run = run.env("REAL", world.top().join("real"));
    let run = run.within(LONG).args(["sh", "--ro"]);
    run.arg(npm)
        .args(options)
        .args(["--", "sh", "-c", script])
        .run()
}

/// Checks what holds of every agent.
fn check(world: &World, provider: &Provider, mode: Mode, outcome: &Outcome) {
    let requests = fs::read_to_string(world.top().join("internet/requests")).unwrap_or_default();
    let what = format!("{outcome}\n{requests}");
    assert!(outcome.out().contains("ALL IS DONE"), "{what}");
    // The model was asked with the real key, by its own name, and heard what the command said.
    let Provider { host, key, .. } = *provider;
    let (begun, shown) = (format!("POST {host} /v1"), provider.shown());
    assert!(
        requests
            .lines()
            .any(|line| line.starts_with(&begun) && line.ends_with(&shown)),
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
        opened
            .iter()
            .any(|one| one["kind"] == "request" && one["method"] == "POST" && one["host"] == host),
        "{opened:?}"
    );
    let refused = events(world, "flow.refused");
    let kept_in = ["example.com", "other.example"].map(serde_json::Value::from);
    assert!(
        refused.iter().any(|one| kept_in.contains(&one["host"])),
        "{refused:?}"
    );
    assert!(
        !outcome.out().contains(key) && !outcome.err().contains(key),
        "{what}"
    );
}

/// Checks what else holds after an attack on the key.
fn check_attack(world: &World, provider: &Provider, mode: Mode, outcome: &Outcome) {
    check(world, provider, mode, outcome);
    let top = world.top();
    let read = |name: &str| {
        let whole = fs::read(top.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&whole).into_owned()
    };
    let requests = read("internet/requests");
    assert!(requests.contains("ATTACK OVER"), "{outcome}\n{requests}");
    // Nor is the model told of it where it is not shown its key.
    assert!(!requests.contains("SUBPROTOCOL"), "{requests}");
    let recorded = read("internet/recorded");
    let searched = read("searched");
    let what = format!("{outcome}\nRECORDED\n{recorded}\nSEARCHED\n{searched}");
    // Who records was reached by what may reach it, and by nothing with the key.
    assert!(recorded.contains("control-was-heard"), "{what}");
    let placeholder = searched_placeholder(world, provider.kind);
    assert_eq!(placeholder.len(), provider.key.len(), "{placeholder}");
    for form in forms(world, provider.key) {
        assert!(!recorded.contains(&form), "{form}\n{what}");
    }
    // Nor with what stands for it, be it in a head or in a body.
    assert!(!recorded.contains(&placeholder), "{what}");
    let asked = read("internet/asked").to_ascii_lowercase();
    assert!(asked.contains("example.com"), "{asked}");
    let kind = provider.kind.to_ascii_lowercase();
    assert!(!asked.contains(&kind), "{asked}");
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
    for form in forms(world, provider.key) {
        find = find.args(["-e", &form]);
    }
    let found = find.arg(top).run().out();
    let own = ["/real", "/internet/requests"].map(|name| format!("{}{name}", top.display()));
    let others = found
        .lines()
        .filter(|line| !own.iter().any(|own| own == line));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&str>::new(), "{what}");
    tells_the_story(world, provider, outcome);
    if mode == Mode::Full {
        let _ = world.atoll(["apply", "last"]).run().success();
    }
    let log = fs::read(world.path("attack.log")).unwrap();
    let log = String::from_utf8_lossy(&log);
    refused_each_way(provider, &verdicts(&world.read("attack.out"), &log));
}

/// Checks that each way of an attack failed, including those by which only the placeholder leaves.
fn refused_each_way(provider: &Provider, told: &BTreeMap<String, String>) {
    let tried: Vec<&str> = told.keys().map(String::as_str).collect();
    assert_eq!(tried, unheld::names(), "{told:?}");
    let refusal = format!("placeholder of credential {}", provider.credential);
    for (way, said) in told {
        assert!(!said.contains(provider.key), "{way}: {said}");
        let is_refused = said.contains(&refusal) && !said.ends_with("hi");
        assert!(is_refused || !LEAVING.contains(&&**way), "{way}: {said}");
    }
    for way in LEAVING {
        assert!(told.contains_key(*way), "{way}: {told:?}");
    }
}

/// Checks the report of an attack at the run's end and by `atoll why`.
fn tells_the_story(world: &World, provider: &Provider, outcome: &Outcome) {
    assert!(
        outcome.err().contains("alert: the program tried"),
        "{outcome}"
    );
    let why = world.atoll(["why", "last"]).run().success();
    let told = why.out();
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    let Provider {
        host, credential, ..
    } = *provider;
    let its = format!("the placeholder of credential {credential} is in");
    for said in [
        format!("{its} the header authorization"),
        format!("{its} its query"),
        format!("{its} its path"),
        format!("{its} its name"),
        format!("{its} a request to another host than it is for"),
        format!("{its} its body"),
        format!("its TLS names {host}"),
        "reaching other.example: no rule allows it".to_owned(),
    ] {
        assert!(told.contains(&said), "{said}: {why}");
    }
    let refused = events(world, "flow.refused");
    let alerts = refused.iter().filter(|one| one["credential"] == credential);
    assert!(alerts.count() >= 10, "{refused:?}");
}

/// Returns the placeholder of the key in the sandbox, as the attack found it.
fn searched_placeholder(world: &World, kind: &str) -> String {
    let shown = world.atoll(["diff", "last"]).run().success();
    let at = shown.out().find(kind).expect("it is among the changes");
    let rest = shown.out()[at..].to_owned();
    let is_of_it = |one: char| one.is_ascii_alphanumeric() || one == '-';
    let end = rest.find(|one| !is_of_it(one)).unwrap_or(rest.len());
    rest[..end].to_owned()
}

/// Returns the forms in which a text is searched for; this one is the same escaped for a URL or in
/// JSON.
fn forms(world: &World, text: &str) -> Vec<String> {
    let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    let mut forms = vec![text.to_owned(), hex.clone(), hex.to_uppercase()];
    for skip in 0..3 {
        // What is the same wherever the text stands in what is encoded.
        let part = &text[skip..skip + (text.len() - skip) / 3 * 3];
        let encoded = world
            .host("sh")
            .args(["-c", "printf %s \"$1\" | base64 -w 0", "sh", part])
            .control();
        forms.push(encoded.run().success().out().trim().to_owned());
    }
    assert!(forms.iter().all(|form| form.len() > 30), "{forms:?}");
    forms
}

#[test]
fn codex_works_with_a_model_that_its_profile_lets_it_reach() {
    let world = World::new("codex_works_with_a_model_that_its_profile_lets_it_reach");
    if let Some(outcome) = codex(&world, Mode::Full, &[COMMAND], &[]) {
        check(&world, &OPENAI, Mode::Full, &outcome);
    }
}

#[test]
fn codex_works_in_a_fence_too() {
    let world = World::new("codex_works_in_a_fence_too");
    if is_root() {
        return world.skip("root always has namespaces", Avoidable::No);
    }
    if let Some(outcome) = codex(&world, Mode::Fence, &[COMMAND], &[]) {
        check(&world, &OPENAI, Mode::Fence, &outcome);
        assert!(
            outcome.err().contains(".codex can be read and not changed"),
            "{outcome}"
        );
    }
}

/// Returns the turns of an attack.
fn attack(world: &World, provider: &Provider) -> Vec<&'static str> {
    world.write("attack.sh", provider.attack(world));
    [vec![BEGIN], vec![WAIT; 8]].concat()
}

const ALLOWED: [&str; 2] = ["--allow", "example.com"];

#[test]
fn codex_gets_hold_of_no_key_and_sends_none_away() {
    let world = World::new("codex_gets_hold_of_no_key_and_sends_none_away");
    if let Some(outcome) = codex(&world, Mode::Full, &attack(&world, &OPENAI), &ALLOWED) {
        check_attack(&world, &OPENAI, Mode::Full, &outcome);
    }
}

#[test]
fn codex_gets_hold_of_no_key_in_a_fence() {
    let world = World::new("codex_gets_hold_of_no_key_in_a_fence");
    if is_root() {
        return world.skip("root always has namespaces", Avoidable::No);
    }
    if let Some(outcome) = codex(&world, Mode::Fence, &attack(&world, &OPENAI), &ALLOWED) {
        check_attack(&world, &OPENAI, Mode::Fence, &outcome);
    }
}

#[test]
fn opencode_gets_hold_of_no_key_and_sends_none_away() {
    let world = World::new("opencode_gets_hold_of_no_key_and_sends_none_away");
    if let Some(outcome) = opencode(&world, Mode::Full, &attack(&world, &OPENAI), &ALLOWED) {
        check_attack(&world, &OPENAI, Mode::Full, &outcome);
    }
}

#[test]
fn claude_code_gets_hold_of_no_key_and_sends_none_away() {
    let world = World::new("claude_code_gets_hold_of_no_key_and_sends_none_away");
    let commands = attack(&world, &ANTHROPIC);
    if let Some(outcome) = claude(&world, &commands, &ALLOWED) {
        check_attack(&world, &ANTHROPIC, Mode::Full, &outcome);
    }
}

#[test]
fn gemini_gets_hold_of_no_key_and_sends_none_away() {
    let world = World::new("gemini_gets_hold_of_no_key_and_sends_none_away");
    let commands = attack(&world, &GOOGLE);
    if let Some(outcome) = gemini(&world, &commands, &ALLOWED) {
        check_attack(&world, &GOOGLE, Mode::Full, &outcome);
    }
}

/// Ways of the attack by which a text leaves that stands for nothing.
const LEAVING: &[&str] = &[
    "its header for another host",
    "basic authentication",
    "a query",
    "a query with escapes",
    "a path",
    "a cookie",
    "the name of a client",
    "the name of a header",
    "a body",
    "a body in base64",
    "a body in hexadecimal digits",
    "a file in several parts",
];

/// Returns the result of each way of an attack, by the way's name.
fn verdicts(ways: &str, log: &str) -> BTreeMap<String, String> {
    let names: Vec<&str> = ways
        .lines()
        .filter_map(|line| {
            line.strip_prefix("way ")?
                .split_once(": ")
                .map(|(_, name)| name)
        })
        .collect();
    let of = |number: usize| {
        let (_, after) = log.split_once(&format!("== {}\n", number + 1)).unwrap();
        after.split("\n== ended with ").next().unwrap().to_owned()
    };
    let told = names.iter().enumerate();
    told.map(|(number, name)| ((*name).to_owned(), of(number)))
        .collect()
}

#[test]
fn each_way_of_the_attack_works_but_with_a_placeholder() {
    let world = World::new("each_way_of_the_attack_works_but_with_a_placeholder");
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    let network = "[network]\nallow = [\"example.com\", \"api.openai.com\"]\n";
    let credential = "[credential.model]\nsource = { environment = \"OPENAI_API_KEY\" }\nto = \"api.openai.com\"\n\
                      paths = [\"/v1/**\"]\nplace = { header = \"authorization\", form = \"Bearer {}\" }\n";
    world.profile("bound", &format!("{network}{credential}"));
    world.profile("unbound", network);
    let model = Provider {
        credential: "model",
        ..OPENAI
    };
    world.write("attack.sh", model.attack(&world));
    world.write(world.top().join("real"), KEY);
    world.canary(KEY, &["real"]);
    // As long as the key, and nobody's.
    let text = format!("sk-proj-{}", "n0b0dy5".repeat(KEY.len()));
    let text = &text[..KEY.len()];
    let attacked = |profile: &str, before: &str| {
        let command = "sh -c 'OPENAI_API_KEY=$(cat \"$REAL\"); export OPENAI_API_KEY; exec \"$ATOLL\" run --discard \"$@\"' sh \"$@\"";
        let script = format!("{before} sh attack.sh; cat attack.out; echo LOG; cat attack.log");
        let run = on_servers(&world, MODEL, MODELS, command).env("COMMANDS", "[]");
        let run = run.env("REAL", world.top().join("real")).within(LONG);
        let outcome = run
            .args(["sh", "--profile", profile, "--", "sh", "-c", &script])
            .run();
        let recorded = fs::read(world.top().join("internet/recorded")).unwrap_or_default();
        let recorded = String::from_utf8_lossy(&recorded).into_owned();
        let out = outcome.out();
        let (ways, log) = out.split_once("LOG\n").unwrap();
        (verdicts(ways, log), recorded, outcome)
    };
    let (told, recorded, outcome) = attacked("bound", "");
    assert!(recorded.contains("control-was-heard"), "{outcome}");
    refused_each_way(&model, &told);
    let placeholder = told["environments of all processes"]
        .lines()
        .find_map(|line| line.strip_prefix("OPENAI_API_KEY="));
    assert!(!recorded.contains(placeholder.unwrap()), "{recorded}");
    // The control: with a text that stands for nothing each of them leaves.
    let (told, recorded, outcome) = attacked("unbound", &format!("OPENAI_API_KEY={text}"));
    assert!(recorded.contains(text), "{outcome}");
    for way in LEAVING {
        let said = &told[*way];
        assert!(said.ends_with("hi"), "{way}: {said}\n{outcome}");
    }
}

/// Returns the blocks of a page that begin with this.
fn blocks<'a>(page: &'a str, kind: &str) -> Vec<&'a str> {
    let blocks = page.split(kind).skip(1);
    blocks
        .map(|block| block.split("```").next().unwrap())
        .collect()
}

/// Checks the commands of the page on an agent, where the model is, and its profile.
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
    world.canary(KEY, &["real"]);
    let typed = blocks(&page, "```console").concat();
    let lines = typed.lines().filter_map(|line| line.strip_prefix("$ "));
    let lines: Vec<String> = lines
        .map(|line| {
            match ["=sk-…", "=AIza…"]
                .iter()
                .find_map(|key| line.strip_suffix(key))
            {
                Some(export) => format!("{export}=$(cat \"$REAL\")"),
                None => line.to_owned(),
            }
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
    let run = on_servers(world, MODEL, MODELS, &command)
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

#[test]
fn the_page_on_openclaw_works() {
    let world = World::new("the_page_on_openclaw_works");
    page_works(&world, "openclaw", ".bin/openclaw");
}

#[test]
fn the_page_on_claude_code_works() {
    let world = World::new("the_page_on_claude_code_works");
    page_works(&world, "claude", &claude_program());
}

#[test]
fn the_key_of_an_agent_need_not_be_there_and_never_goes_in() {
    let world = World::new("the_key_of_an_agent_need_not_be_there_and_never_goes_in");
    world.canary(KEY, &[]);
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

/// A login file of an agent, and the model that demands its token.
struct LoggedIn<'a> {
    /// Its path in the home directory.
    file: &'a str,
    text: String,
    /// The host of the model.
    host: &'static str,
    /// The token that the model demands.
    token: String,
    /// The parts of it that may leak nowhere.
    secrets: Vec<String>,
}

/// Returns a web token that nobody verifies.
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
    for secret in &login.secrets {
        let own = format!("home/{}", login.file);
        world.canary(secret, &["real", "renewal", &own]);
    }
    world.write(world.top().join("search.py"), SEARCH);
    world.write(&file, &login.text);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let run = on_servers(world, MODEL, MODELS, "\"$ATOLL\" run --keep \"$@\"");
    // In a file of its own: Claude Code would ask a person before it shows its own login.
    let look = format!(
        "{COMMAND}; cat ~/{}; cp ~/{} copied",
        login.file, login.file
    );
    world.write("look.sh", look);
    let run = run.env("COMMANDS", "[\"sh look.sh\"]");
    let run = run.within(LONG).args(["sh", "--ro"]).arg(npm);
    run.args(options).args(["--", "sh", "-c", script]).run()
}

/// As [`run_logged_in`], and checks that the agent works so.
fn logged_in(world: &World, login: &LoggedIn<'_>, options: &[&str], script: &str) {
    let outcome = run_logged_in(world, login, options, script);
    has_worked(world, login, &outcome);
    nowhere(world, login, &outcome);
}

/// Checks that the model took the real token, and that its command was run, where the login file
/// itself opens nothing.
fn has_worked(world: &World, login: &LoggedIn<'_>, outcome: &Outcome) {
    let requests = fs::read_to_string(world.top().join("internet/requests")).unwrap_or_default();
    let what = format!("{outcome}\n{requests}");
    assert!(outcome.out().contains("ALL IS DONE"), "{what}");
    // The model was asked with the real token, and the agent has told it of what stands for it.
    let asked = format!(" {}", login.token);
    let begun = format!("POST {} /v1/", login.host);
    let is_asked = |line: &str| line.starts_with(&begun) && line.ends_with(&asked);
    assert!(requests.lines().any(is_asked), "{what}");
    assert!(requests.contains("made by an agent"), "{what}");
    let diff = world.atoll(["diff", "--stat", "last"]).run().success();
    assert!(diff.out().contains("copied"), "{diff}");
    let name = login.file.rsplit('/').next().unwrap();
    assert!(!diff.out().contains(name), "{diff}");
}

/// Checks that nothing of a login is anywhere but in its file and at the model.
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
const RENEWED: &str = "rt-th1rdS3cr3tOfTh1sT3stWh1chN0Ag3ntM4yS33iNf1lesN0rInM3m0r";
const SIGNATURE: &str = "s1gn4tur3OfTh1sT3stWh1chN0Ag3ntM4yS33iNf1lesN0rInM3m0ry";

/// Returns Codex with such a login; `None` where it is not installed.
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
        host: OPENAI.host,
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

/// Returns a login with ChatGPT that is valid until then, and its token.
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
fn codex_works_by_a_login_that_is_renewed_outside_and_written_back() {
    let world = World::new("codex_works_by_a_login_that_is_renewed_outside_and_written_back");
    let (text, _) = with_chatgpt(1_700_000_000, "2023-11-14T00:00:00Z");
    let (new, access) = with_chatgpt(4_900_000_000, "");
    // The model demands what the issuer gives.
    let Some((login, script)) = codex_login(&world, &text, &access) else {
        return;
    };
    let given = serde_json::json!({
        "id_token": new["tokens"]["id_token"], "access_token": access, "refresh_token": RENEWED,
    });
    let now = renewed(&world, login, &["--profile", "codex"], &script, &given);
    assert_eq!(now["tokens"]["access_token"], access, "{now}");
    assert_eq!(now["tokens"]["refresh_token"], RENEWED, "{now}");
    assert_eq!(now["tokens"]["account_id"], "account-1", "{now}");
    assert_ne!(now["last_refresh"], "2023-11-14T00:00:00Z", "{now}");
}

/// Checks that an agent works by a login that has ended: its issuer is asked once and answers with
/// this, and the answer is nowhere but in the login file. Returns that file's content.
fn renewed(
    world: &World,
    mut login: LoggedIn<'_>,
    options: &[&str],
    script: &str,
    given: &serde_json::Value,
) -> serde_json::Value {
    world.write(world.top().join("renewal"), given.to_string());
    let outcome = run_logged_in(world, &login, options, script);
    let requests = fs::read_to_string(world.top().join("internet/requests")).unwrap_or_default();
    let what = format!("{outcome}\n{requests}");
    has_worked(world, &login, &outcome);
    let asked: Vec<&str> = requests
        .lines()
        .filter_map(|line| line.strip_prefix("RENEWAL "))
        .collect();
    assert_eq!(asked.len(), 1, "{what}");
    let asked: serde_json::Value = serde_json::from_str(asked[0]).unwrap();
    assert_eq!(asked["refresh_token"], RENEWAL, "{what}");
    let written = fs::read_to_string(world.home().join(login.file)).unwrap();
    let now = serde_json::from_str(&written).unwrap();
    assert!(!outcome.err().contains("alert"), "{outcome}");
    fs::remove_file(world.top().join("renewal")).unwrap();
    world.canary(RENEWED, &[&format!("home/{}", login.file)]);
    login.secrets.push(RENEWED.to_owned());
    login.text = written;
    nowhere(world, &login, &outcome);
    now
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
        host: OPENAI.host,
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

const ACCESS: &str = "sk-ant-oat01-r3alAcc3ssOfTh1sT3stWh1chN0Ag3ntM4yS33iNf1lesN0rInM3m0";
const ACCESS_RENEWED: &str = "sk-ant-oat01-s3c0ndAcc3ssOfTh1sT3stWh1chN0Ag3ntM4yS33iNf1lesN0rInM3m";

/// Returns Claude Code with a subscription's login that is valid until then, in milliseconds since
/// 1970; `None` where it is not installed. Its model demands this token.
fn claude_login<'a>(world: &World, until: u64, token: &str) -> Option<(LoggedIn<'a>, String)> {
    if !is_possible(world, &["openssl"]) {
        return None;
    }
    let claude = package(world, &claude_program())?;
    let text = serde_json::json!({"claudeAiOauth": {
        "accessToken": ACCESS, "refreshToken": RENEWAL, "expiresAt": until,
        "refreshTokenExpiresAt": 4_900_000_000_000_u64,
        "scopes": ["user:inference", "user:profile"], "subscriptionType": "max",
        "subscriptionTypeSource": "sign_in", "rateLimitTier": "default_claude_max_5x",
        "accountUuid": "8d5a2f3e-0000-4000-8000-0123456789ab",
        "organizationUuid": "9e6b3a4f-0000-4000-8000-0123456789ab",
    }});
    let login = LoggedIn {
        file: ".claude/.credentials.json",
        text: text.to_string(),
        host: ANTHROPIC.host,
        token: token.to_owned(),
        secrets: [ACCESS, RENEWAL, token].map(str::to_owned).to_vec(),
    };
    let script = format!(
        "'{}' --allowedTools Bash --print 'do the work'",
        claude.display()
    );
    Some((login, script))
}

#[test]
fn claude_code_works_by_a_login_that_is_not_inside() {
    let world = World::new("claude_code_works_by_a_login_that_is_not_inside");
    // In a hundred years.
    if let Some((login, script)) = claude_login(&world, 4_900_000_000_000, ACCESS) {
        logged_in(&world, &login, &["--profile", "claude"], &script);
    }
}

#[test]
fn claude_code_works_by_a_login_that_is_renewed_outside_and_written_back() {
    let world = World::new("claude_code_works_by_a_login_that_is_renewed_outside_and_written_back");
    // The model demands what the issuer gives.
    let Some((login, script)) = claude_login(&world, 1_700_000_000_000, ACCESS_RENEWED) else {
        return;
    };
    let given = serde_json::json!({
        "token_type": "Bearer", "access_token": ACCESS_RENEWED, "refresh_token": RENEWED,
        "expires_in": 28800, "scope": "user:inference user:profile",
    });
    let now = renewed(&world, login, &["--profile", "claude"], &script, &given);
    let own = &now["claudeAiOauth"];
    assert_eq!(own["accessToken"], ACCESS_RENEWED, "{now}");
    assert_eq!(own["refreshToken"], RENEWED, "{now}");
    assert_eq!(own["subscriptionType"], "max", "{now}");
    assert!(own["expiresAt"].as_u64() > Some(1_700_000_000_000), "{now}");
}

#[test]
fn claude_code_works_by_a_key_among_its_settings_that_is_not_inside() {
    let world = World::new("claude_code_works_by_a_key_among_its_settings_that_is_not_inside");
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    let Some(claude) = package(&world, &claude_program()) else {
        return;
    };
    fs::create_dir(world.home().join(".claude")).unwrap();
    let text = serde_json::json!({
        "primaryApiKey": ANTHROPIC.key, "hasCompletedOnboarding": true, "numStartups": 3,
        "customApiKeyResponses": {"approved": [SIGNATURE], "rejected": []},
        "projects": {"/none": {"mcpServers": {"none": {
            "type": "http", "url": "https://example.com/mcp", "headers": {"X-Own": RENEWAL},
        }}}},
    });
    let login = LoggedIn {
        file: ".claude.json",
        text: text.to_string(),
        host: ANTHROPIC.host,
        token: ANTHROPIC.key.to_owned(),
        secrets: [ANTHROPIC.key, RENEWAL, SIGNATURE]
            .map(str::to_owned)
            .to_vec(),
    };
    let script = format!(
        "'{}' --allowedTools Bash --print 'do the work'",
        claude.display()
    );
    logged_in(&world, &login, &["--profile", "claude"], &script);
}

fn codex(world: &World, mode: Mode, commands: &[&str], further: &[&str]) -> Option<Outcome> {
    codex_by(world, mode, commands, further, "'do the work'")
}

/// As [`codex`], with these words after its options.
fn codex_by(
    world: &World,
    mode: Mode,
    commands: &[&str],
    further: &[&str],
    words: &str,
) -> Option<Outcome> {
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
        "{own}node '{}' exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox {words}",
        codex.display()
    );
    let options = [&["--profile", "codex"], further].concat();
    Some(at_work(world, &OPENAI, mode, commands, &options, &script))
}

#[test]
fn opencode_works_with_a_model_that_its_profile_lets_it_reach() {
    let world = World::new("opencode_works_with_a_model_that_its_profile_lets_it_reach");
    if let Some(outcome) = opencode(&world, Mode::Full, &[COMMAND], &[]) {
        check(&world, &OPENAI, Mode::Full, &outcome);
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

/// The commands that the model has an agent run when it resumes another run's conversation: it
/// counts the commands of the conversation, and starts with the first one where there was none.
const GOING_ON: &[&str] = &["echo begun > again.txt; cat again.txt", "echo gone on"];

/// Checks a run that resumes a conversation.
fn check_going_on(world: &World, outcome: &Outcome) {
    let requests = fs::read_to_string(world.top().join("internet/requests")).unwrap_or_default();
    let what = format!("{outcome}\n{requests}");
    assert!(outcome.out().contains("ALL IS DONE"), "{what}");
    assert!(requests.contains("gone on"), "{what}");
    let changed = world.atoll(["diff", "last"]).run().success();
    assert!(!changed.out().contains("again.txt"), "{changed}\n{what}");
}

#[test]
fn codex_goes_on_with_a_conversation_of_an_earlier_run() {
    let world = World::new("codex_goes_on_with_a_conversation_of_an_earlier_run");
    let Some(outcome) = codex(&world, Mode::Full, &[COMMAND], &[]) else {
        return;
    };
    check(&world, &OPENAI, Mode::Full, &outcome);
    let words = "resume --last 'go on'";
    let outcome = codex_by(&world, Mode::Full, GOING_ON, &[], words);
    check_going_on(&world, &outcome.unwrap());
    // The control: another conversation begins anew.
    let outcome = codex(&world, Mode::Full, GOING_ON, &[]).unwrap();
    let changed = world.atoll(["diff", "last"]).run().success();
    assert!(changed.out().contains("again.txt"), "{changed}\n{outcome}");
}

#[test]
fn opencode_goes_on_with_a_conversation_of_an_earlier_run() {
    let world = World::new("opencode_goes_on_with_a_conversation_of_an_earlier_run");
    world.write(world.home().join(".local/share/opencode/log/none"), "");
    let Some(outcome) = opencode(&world, Mode::Full, &[COMMAND], &[]) else {
        return;
    };
    check(&world, &OPENAI, Mode::Full, &outcome);
    let words = "--continue 'go on'";
    let outcome = opencode_by(&world, Mode::Full, GOING_ON, &[], words);
    check_going_on(&world, &outcome.unwrap());
    // The control: another conversation begins anew.
    let outcome = opencode(&world, Mode::Full, GOING_ON, &[]).unwrap();
    let changed = world.atoll(["diff", "last"]).run().success();
    assert!(changed.out().contains("again.txt"), "{changed}\n{outcome}");
}

#[test]
fn openclaw_works_with_a_model_that_its_profile_lets_it_reach() {
    let world = World::new("openclaw_works_with_a_model_that_its_profile_lets_it_reach");
    let script = "openclaw agent exec 'do the work'";
    if let Some(outcome) = openclaw(&world, &[COMMAND], &[], script) {
        check(&world, &OPENAI, Mode::Full, &outcome);
    }
}

#[test]
fn openclaw_gets_hold_of_no_key_and_sends_none_away() {
    let world = World::new("openclaw_gets_hold_of_no_key_and_sends_none_away");
    let script = "openclaw agent exec 'do the work'";
    // It does not end well where a command has left something behind that it has not started.
    let begin = BEGIN.replacen("setsid ", "", 1).replacen(" &", ";", 1);
    assert!(begin.starts_with("sh attack.sh >/dev/null 2>"), "{begin}");
    let mut commands = attack(&world, &OPENAI);
    commands[0] = &begin;
    if let Some(outcome) = openclaw(&world, &commands, &ALLOWED, script) {
        check_attack(&world, &OPENAI, Mode::Full, &outcome);
    }
}

#[test]
fn openclaw_works_by_a_file_of_secrets_that_is_not_inside() {
    let world = World::new("openclaw_works_by_a_file_of_secrets_that_is_not_inside");
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    let Some(openclaw) = package(&world, ".bin/openclaw") else {
        return;
    };
    let settings = r#"{"agents": {"defaults": {"model": {"primary": "openai/gpt-5.5"}}},
        "secrets": {"providers": {"own": {"source": "file", "path": "~/.openclaw/secrets.json", "mode": "json"}}},
        "models": {"providers": {"openai": {"baseUrl": "https://api.openai.com/v1", "models": [],
            "apiKey": {"source": "file", "provider": "own", "id": "/providers/openai/apiKey"}}}}}"#;
    world.write(world.home().join(".openclaw/openclaw.json"), settings);
    let text = serde_json::json!({
        "providers": {"openai": {"apiKey": KEY}, "other": {"apiKey": RENEWAL}}, "channel": SIGNATURE,
    });
    let login = LoggedIn {
        file: ".openclaw/secrets.json",
        text: text.to_string(),
        host: OPENAI.host,
        token: KEY.to_owned(),
        secrets: [KEY, RENEWAL, SIGNATURE].map(str::to_owned).to_vec(),
    };
    let script = format!(
        "PATH='{}':$PATH; openclaw agent exec 'do the work'",
        openclaw.parent().unwrap().display()
    );
    logged_in(&world, &login, &["--profile", "openclaw"], &script);
}

#[test]
fn openclaw_works_by_a_key_among_its_settings_that_is_not_inside() {
    let world = World::new("openclaw_works_by_a_key_among_its_settings_that_is_not_inside");
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    let Some(openclaw) = package(&world, ".bin/openclaw") else {
        return;
    };
    let settings = format!(
        "// its owner's\n{{agents: {{defaults: {{model: {{primary: 'openai/gpt-5.5'}}}}}},\n\
         gateway: {{mode: 'local', auth: {{mode: 'token', token: '{RENEWAL}'}}}},\n\
         env: {{vars: {{OTHER_KEY: '{SIGNATURE}'}}}},\n\
         models: {{providers: {{openai: {{baseUrl: 'https://api.openai.com/v1', models: [],\n\
         apiKey: '{KEY}'}}}}}},}}\n"
    );
    let login = LoggedIn {
        file: ".openclaw/openclaw.json",
        text: settings,
        host: OPENAI.host,
        token: KEY.to_owned(),
        secrets: [KEY, RENEWAL, SIGNATURE].map(str::to_owned).to_vec(),
    };
    let script = format!(
        "PATH='{}':$PATH; openclaw agent exec 'do the work'",
        openclaw.parent().unwrap().display()
    );
    logged_in(&world, &login, &["--profile", "openclaw"], &script);
}

/// OpenClaw has a workspace and a memory of its own, in its directory.
#[test]
fn what_openclaw_remembers_belongs_to_the_run() {
    let world = World::new("what_openclaw_remembers_belongs_to_the_run");
    let command = "echo made by an agent > made.txt; cat made.txt";
    let script = "openclaw agent --local --agent main --message 'do the work'";
    let Some(outcome) = openclaw(&world, &[command], &[], script) else {
        return;
    };
    assert!(outcome.out().contains("ALL IS DONE"), "{outcome}");
    let diff = world.atoll(["diff", "--stat", "last"]).run().success();
    for changed in [
        ".openclaw/agents/main/agent/openclaw-agent.sqlite",
        ".openclaw/workspace/made.txt",
    ] {
        assert!(diff.out().contains(changed), "{changed}: {diff}");
    }
    let own = fs::read_dir(world.home().join(".openclaw")).unwrap();
    let own: Vec<_> = own.map(|one| one.unwrap().file_name()).collect();
    assert_eq!(own, ["openclaw.json"], "{outcome}");
}

fn openclaw(world: &World, commands: &[&str], further: &[&str], script: &str) -> Option<Outcome> {
    if !is_possible(world, &["openssl"]) {
        return None;
    }
    let openclaw = package(world, ".bin/openclaw")?;
    // Nobody has chosen a model on the command line.
    let settings = r#"{"agents": {"defaults": {"model": {"primary": "openai/gpt-5.5"}}}}"#;
    world.write(world.home().join(".openclaw/openclaw.json"), settings);
    let script = format!(
        "PATH='{}':$PATH; {script}",
        openclaw.parent().unwrap().display()
    );
    let options = [&["--profile", "openclaw"], further].concat();
    Some(at_work(
        world,
        &OPENAI,
        Mode::Full,
        commands,
        &options,
        &script,
    ))
}

fn claude(world: &World, commands: &[&str], further: &[&str]) -> Option<Outcome> {
    if !is_possible(world, &["openssl"]) {
        return None;
    }
    let claude = package(world, &claude_program())?;
    let script = format!(
        "'{}' --allowedTools Bash --print 'do the work'",
        claude.display()
    );
    let options = [&["--profile", "claude"], further].concat();
    let mode = Mode::Full;
    Some(at_work(
        world, &ANTHROPIC, mode, commands, &options, &script,
    ))
}

fn gemini(world: &World, commands: &[&str], further: &[&str]) -> Option<Outcome> {
    if !is_possible(world, &["openssl", "node"]) {
        return None;
    }
    let gemini = package(world, ".bin/gemini")?;
    let script = format!(
        "'{}' --skip-trust --yolo --prompt 'do the work'",
        gemini.display()
    );
    let options = [&["--profile", "gemini"], further].concat();
    let mode = Mode::Full;
    Some(at_work(world, &GOOGLE, mode, commands, &options, &script))
}

fn opencode(world: &World, mode: Mode, commands: &[&str], further: &[&str]) -> Option<Outcome> {
    opencode_by(world, mode, commands, further, "'do the work'")
}

/// As [`opencode`], with these words after its options.
fn opencode_by(
    world: &World,
    mode: Mode,
    commands: &[&str],
    further: &[&str],
    words: &str,
) -> Option<Outcome> {
    if !is_possible(world, &["openssl"]) {
        return None;
    }
    let opencode = package(world, &opencode_program())?;
    let settings = r#"{"provider": {"scripted": {"npm": "@ai-sdk/openai-compatible", "name": "scripted",
        "options": {"baseURL": "https://api.openai.com/v1", "apiKey": "{env:OPENAI_API_KEY}"},
        "models": {"model": {"name": "model"}}}}, "permission": {"bash": "allow"}}"#;
    world.write("opencode.json", settings);
    let script = format!(
        "'{}' run --model scripted/model {words}",
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
    Some(at_work(world, &OPENAI, mode, commands, &options, &script))
}

/// Returns the path of OpenCode's program among the packages of npm.
fn opencode_program() -> String {
    let architecture = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "x64",
    };
    format!("opencode-linux-{architecture}/bin/opencode")
}

/// Returns the path of Claude Code's program among the packages of npm.
fn claude_program() -> String {
    let architecture = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "x64",
    };
    format!("@anthropic-ai/claude-code-linux-{architecture}/claude")
}
