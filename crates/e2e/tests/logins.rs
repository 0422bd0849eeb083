//! Login files of agents: their tokens are injected outside, and in a sandbox placeholders take
//! their place.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use e2e::holders;
use e2e::internet::{events, is_possible, on_servers, without_namespaces};
use e2e::{Avoidable, Outcome, World, is_root, make_fifo};

const SERVERS: &str = include_str!("credentials/servers.py");
const NAMES: &[&str] = &["example.com", "other.example"];
const CURL: &str = "curl -sS -m 20 --noproxy '*'";
/// The token that the origins demand.
const REAL: &str = "sk-ant-oat01-r3alK3yOfTh1sT3stWh1chN0bodyM4yS33in";
const RENEWAL: &str = "sk-ant-ort01-an0th3rOfTh1sT3stWh1chN0bodyM4yS33in";
/// A token that nobody knows yet.
const UNKNOWN: &str = "c4n4ryOfTh1sT3stWh1chN0bodyM4yS33in";

const PROFILE: &str = r#"
[network]
allow = ["example.com", "other.example"]
[home]
layer = [".agent"]
[login.agent]
file = "~/.agent/auth.json"
keep = ["mode", "tokens.account_id", "tokens.expires"]
[credential.agent]
source = { login = "agent", field = "tokens.access" }
to = "example.com"
paths = ["/v1/**"]
place = { header = "authorization", form = "Bearer {}" }
[credential.agent-renewal]
source = { login = "agent", field = "tokens.refresh" }
to = "example.com"
paths = ["/oauth/token"]
place = { refresh = "refresh_token" }
"#;

/// The shell function by which a program in the sandbox reads a value of its login.
const FIELD: &str =
    "field() { sed -n \"s/.*\\\"$1\\\":\\\"\\([^\\\"]*\\)\\\".*/\\1/p\" ~/.agent/auth.json; }; ";

fn login() -> String {
    format!(
        "{{\"mode\": \"chat\", \"tokens\": {{\"access\": \"{REAL}\", \"refresh\": \"{RENEWAL}\", \
         \"account_id\": \"account-1\", \"expires\": 1900000000, \"unknown\": \"{UNKNOWN}\"}}, \
         \"pin\": 987654}}\n"
    )
}

/// Returns a world with a login, and a profile with this text.
fn world(name: &str, profile: &str) -> World {
    let world = World::new(name);
    world.profile("agent", profile);
    world.write(world.top().join("real"), REAL);
    for one in [REAL, RENEWAL, UNKNOWN] {
        world.canary(one, &["real", "sought", "home/.agent/auth.json"]);
    }
    let directory = world.home().join(".agent");
    fs::create_dir_all(&directory).unwrap();
    world.write(directory.join("auth.json"), login());
    world.write(directory.join("other.json"), "beside it\n");
    private(&world.home().join(".agent/auth.json"));
    world
}

fn private(path: &std::path::Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

fn auth(world: &World) -> PathBuf {
    world.home().join(".agent/auth.json")
}

fn online(world: &World, script: &str) -> Outcome {
    let run = on_servers(world, SERVERS, NAMES, "\"$ATOLL\" run --keep \"$@\"");
    let script = format!("{FIELD}{script}");
    run.args(["sh", "--profile", "agent", "--", "sh", "-c", &script])
        .run()
}

/// Runs a script where there are no servers.
fn run(world: &World, script: &str) -> Outcome {
    world
        .run(
            ["--keep", "--profile", "agent"],
            &format!("{FIELD}{script}"),
        )
        .run()
}

/// Checks that none of these is in the output, nor in any file of the world but those.
fn nowhere(world: &World, said: &Outcome, but: &[PathBuf]) {
    let mut find = world.host("grep").arg("-rlaF");
    for secret in [REAL, RENEWAL, UNKNOWN] {
        assert!(
            !said.out().contains(secret) && !said.err().contains(secret),
            "{said}"
        );
        find = find.args(["-e", secret]);
    }
    let found = find.arg(world.top()).run().out();
    let mut others: Vec<&str> = found.lines().collect();
    assert!(others.contains(&auth(world).to_str().unwrap()), "{found}");
    others.retain(|one| !but.iter().any(|but| but.to_str() == Some(one)));
    assert_eq!(others, Vec::<&str>::new(), "{said}");
}

#[test]
fn a_login_is_used_and_what_stands_for_it_is_inside() {
    let world = world("a_login_is_used_and_what_stands_for_it_is_inside", PROFILE);
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    let script = format!(
        "cat ~/.agent/auth.json; echo; A=$(field access); R=$(field refresh); \
         {CURL} -H \"Authorization: Bearer $A\" https://example.com/v1/one; \
         {CURL} -H \"Authorization: Bearer $A\" -d @$HOME/.agent/auth.json https://example.com/v1/told; \
         {CURL} -H \"Authorization: Bearer $A\" https://other.example/v1/two; \
         {CURL} -H 'Content-Type: application/json' -d \"{{\\\"refresh_token\\\": \\\"$R\\\"}}\" https://example.com/oauth/token; \
         {CURL} -H \"Authorization: Bearer $R\" https://example.com/v1/three; \
         echo changed > ~/.agent/changed; cat ~/.agent/other.json; \
         find / -xdev -name auth.json -exec cat {{}} + 2>/dev/null; cat /proc/[0-9]*/environ | tr '\\0' '\\n'"
    );
    let outcome = online(&world, &script);
    let requests = fs::read_to_string(world.top().join("internet/requests")).unwrap_or_default();
    let what = format!("{outcome}\n{requests}");
    // Put in where it is for, also beside what stands for all of the login; nowhere else.
    assert_eq!(outcome.out().matches("welcome").count(), 2, "{what}");
    assert_eq!(requests.lines().count(), 2, "{what}");
    assert_eq!(
        requests.matches(&format!("Bearer {REAL}")).count(),
        2,
        "{what}"
    );
    assert!(
        !requests.contains(RENEWAL) && !requests.contains(UNKNOWN),
        "{what}"
    );
    // Its shape, and of its values those that are kept.
    let shown = outcome.out().lines().next().unwrap_or_default().to_owned();
    let stands: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(stands["mode"], "chat", "{what}");
    assert_eq!(stands["tokens"]["account_id"], "account-1", "{what}");
    assert_eq!(stands["tokens"]["expires"], 1_900_000_000, "{what}");
    assert_eq!(stands["pin"], 0, "{what}");
    let access = stands["tokens"]["access"].as_str().unwrap();
    assert!(
        access.starts_with("sk-ant-oat01-") && access.len() == REAL.len(),
        "{what}"
    );
    // Whoever would renew it is told what to do; that is no alert, and the rest is.
    assert!(outcome.out().contains("log in again outside"), "{what}");
    let refused = events(&world, "flow.refused");
    let renewing =
        |one: &&serde_json::Value| one["why"].to_string().contains("would renew its login");
    assert!(
        refused
            .iter()
            .find(renewing)
            .is_some_and(|one| one.get("credential").is_none()),
        "{refused:?}"
    );
    let alerts = refused.iter().filter(|one| one.get("credential").is_some());
    assert_eq!(alerts.count(), 2, "{refused:?}");
    assert!(outcome.out().contains("beside it"), "{what}");
    let own = ["real", "internet/requests"].map(|name| world.top().join(name));
    nowhere(&world, &outcome, &[&own[..], &[auth(&world)]].concat());
    // It is no change of the run, and what is beside it is.
    let diff = world.atoll(["diff", "last"]).run().success();
    assert!(
        diff.out().contains("+changed") && !diff.out().contains("auth.json"),
        "{diff}"
    );
    let _ = world.atoll(["apply", "last", "--control"]).run().success();
    assert_eq!(fs::read_to_string(auth(&world)).unwrap(), login());
    assert_eq!(
        fs::read_to_string(world.home().join(".agent/changed")).unwrap(),
        "changed\n"
    );
}

#[test]
fn whatever_a_program_does_with_a_login_is_its_own_and_not_taken_over() {
    let name = "whatever_a_program_does_with_a_login_is_its_own_and_not_taken_over";
    let world = world(name, PROFILE);
    for script in [
        "rm ~/.agent/auth.json; ls ~/.agent; cat ~/.agent/auth.json",
        "mv ~/.agent/auth.json ~/.agent/moved.json; cat ~/.agent/*; cat ~/.agent/auth.json",
        "ln ~/.agent/auth.json ~/.agent/linked.json; rm ~/.agent/auth.json; cat ~/.agent/*",
        "rm ~/.agent/auth.json; mkdir ~/.agent/auth.json; touch ~/.agent/auth.json/in; ls -R ~/.agent",
        "rm ~/.agent/auth.json; ln -s other.json ~/.agent/auth.json; cat ~/.agent/auth.json",
        "echo '{\"own\": \"text\"}' > ~/.agent/auth.json; chmod 644 ~/.agent/auth.json",
        "rm -rf ~/.agent/* ~/.agent; mv ~/.agent ~/elsewhere; cat ~/elsewhere/*; true",
    ] {
        let outcome = run(&world, &format!("{script}; true")).success();
        nowhere(&world, &outcome, &[world.top().join("real"), auth(&world)]);
        let diff = world.atoll(["diff", "--stat", "last"]).run().success();
        assert!(!diff.out().contains("auth.json"), "{script}: {diff}");
        let again = world
            .atoll([
                "run",
                "--keep",
                "--resume",
                "last",
                "--profile",
                "agent",
                "--",
            ])
            .args(["sh", "-c", "cat ~/.agent/auth.json; ls -A ~/.agent; true"])
            .run()
            .success();
        nowhere(&world, &again, &[world.top().join("real"), auth(&world)]);
        if !script.contains("mkdir") {
            assert!(
                again.out().contains("\"account_id\":\"account-1\""),
                "{script}: {again}"
            );
        }
        let applied = world.atoll(["apply", "last", "--control"]).run();
        assert_eq!(
            fs::read_to_string(auth(&world)).unwrap(),
            login(),
            "{script}: {applied}"
        );
        let _ = world.atoll(["undo", "last"]).run();
        world.write(world.home().join(".agent/other.json"), "beside it\n");
    }
}

#[test]
fn a_login_that_comes_meanwhile_is_not_seen() {
    let with = PROFILE.replace("auth.json\"", "auth.json\"\noptional = true");
    let with = with.replace("place =", "optional = true\nplace =");
    let without = "[home]\nlayer = [\".agent\"]\n";
    for (profile, is_seen) in [(with.as_str(), false), (without, true)] {
        let world = world("a_login_that_comes_meanwhile_is_not_seen", profile);
        fs::remove_file(auth(&world)).unwrap();
        let script = "echo begun; read line; cat ~/.agent/auth.json; ls -A ~/.agent; true";
        let begun = world.run(["--discard", "--profile", "agent"], script);
        let mut begun = match is_seen {
            true => begun.control().start(),
            false => begun.start(),
        };
        let _ = begun.until_stdout("begun");
        world.write(auth(&world), login());
        begun.send("go on\n");
        let outcome = begun.wait().success();
        assert_eq!(outcome.out().contains(REAL), is_seen, "{outcome}");
        assert_eq!(outcome.out().contains("auth.json"), is_seen, "{outcome}");
        assert!(outcome.out().contains("other.json"), "{outcome}");
    }
}

#[test]
fn a_forged_login_file_lets_nothing_start() {
    let world = world("a_forged_login_file_lets_nothing_start", PROFILE);
    assert!(
        run(&world, "echo started")
            .success()
            .out()
            .contains("started")
    );
    let (file, kept) = (auth(&world), world.home().join("kept.json"));
    fs::rename(&file, &kept).unwrap();
    let deep = format!("{}1{}", "{\"a\":".repeat(2_000), "}".repeat(2_000));
    let huge = format!("{{\"tokens\": {{\"access\": \"{}\"}}}}", "x".repeat(70_000));
    let write = |text: &str| {
        fs::write(&file, text).unwrap();
        private(&file);
    };
    let forged: [(&dyn Fn(), &str); 12] = [
        (&|| symlink(&kept, &file).unwrap(), "symbolic link"),
        (&|| symlink("/nowhere", &file).unwrap(), "symbolic link"),
        (&|| fs::hard_link(&kept, &file).unwrap(), "further names"),
        (&|| make_fifo(&file), "no regular file"),
        (&|| fs::create_dir(&file).unwrap(), "no regular file"),
        (
            &|| drop(std::os::unix::net::UnixListener::bind(&file).unwrap()),
            "no regular file",
        ),
        (&|| write(&deep), "within each other"),
        (&|| write(&huge), "longer than 64 KiB"),
        (&|| write("not JSON"), "no JSON"),
        (
            &|| write("{\"tokens\": {\"access\": 1}}"),
            "no text in its field tokens.access",
        ),
        (
            &|| write("{\"tokens\": {\"access\": \"short\"}}"),
            "shorter than 16",
        ),
        (
            &|| {
                write(&login());
                fs::set_permissions(&file, fs::Permissions::from_mode(0o622)).unwrap();
            },
            "others than its owner can write",
        ),
    ];
    for (forge, said) in forged {
        forge();
        let outcome = run(&world, "echo started; cat ~/.agent/auth.json");
        assert!(
            !outcome.out().contains("started") && outcome.code() != 0,
            "{said}: {outcome}"
        );
        assert!(outcome.err().contains(said), "{said}: {outcome}");
        assert!(!outcome.err().contains(REAL), "{said}: {outcome}");
        match file.is_dir() && !file.is_symlink() {
            true => fs::remove_dir(&file).unwrap(),
            false => fs::remove_file(&file).unwrap(),
        }
    }
    if is_root() {
        write(&login());
        std::os::unix::fs::chown(&file, Some(61_235), None).unwrap();
        let outcome = run(&world, "echo started");
        assert!(
            outcome.err().contains("belongs to user id 61235"),
            "{outcome}"
        );
        fs::remove_file(&file).unwrap();
    }
    let missing = run(&world, "echo started");
    assert!(
        !missing.out().contains("started") && missing.code() != 0,
        "{missing}"
    );
    fs::rename(&kept, &file).unwrap();
    assert!(
        run(&world, "echo started")
            .success()
            .out()
            .contains("started")
    );
}

#[test]
fn where_nothing_can_stand_for_a_login_what_holds_it_is_not_shown() {
    let name = "where_nothing_can_stand_for_a_login_what_holds_it_is_not_shown";
    let script = "cat ~/.agent/auth.json ~/.agent/other.json; ls -A ~; true";
    for home in [
        "read = [\".agent\"]",
        "layer = [\".agent/auth.json\"]",
        "layer = [\".agent/deeper\"]\nread = [\".agent\"]",
    ] {
        let world = world(name, &PROFILE.replace("layer = [\".agent\"]", home));
        fs::create_dir(world.home().join(".agent/deeper")).unwrap();
        let outcome = run(&world, script).success();
        assert!(
            !outcome.out().contains("account-1") && !outcome.out().contains("beside it"),
            "{outcome}"
        );
        let _ = outcome.says(["is not shown: the login file", "auth.json"]);
        nowhere(&world, &outcome, &[world.top().join("real"), auth(&world)]);
    }
    // What the person names itself is not left out silently.
    let world = world(name, PROFILE);
    let directory = world.home().join(".agent");
    for options in [
        vec!["--ro".to_owned(), directory.display().to_string()],
        vec!["--workspace".to_owned(), directory.display().to_string()],
    ] {
        let all = [
            vec!["--discard".to_owned(), "--profile".into(), "agent".into()],
            options,
        ]
        .concat();
        let outcome = world.run(all, "echo started").run();
        assert!(
            !outcome.out().contains("started") && outcome.code() != 0,
            "{outcome}"
        );
        assert!(outcome.err().contains("can be read inside"), "{outcome}");
    }
}

#[test]
fn in_a_fence_what_holds_a_login_is_not_shown() {
    let world = world("in_a_fence_what_holds_a_login_is_not_shown", PROFILE);
    if is_root() {
        return world.skip("root always has namespaces", Avoidable::No);
    }
    let script = format!(
        "cat ~/.agent/other.json '{0}/auth.json' '{0}/other.json'; true",
        world.home().join(".agent").display()
    );
    let fenced = |world: &World| {
        let atoll = without_namespaces(world);
        let run = world.host(atoll).args([
            "run",
            "--keep",
            "--profile",
            "agent",
            "--",
            "sh",
            "-c",
            &script,
        ]);
        run.dir(world.workspace()).run()
    };
    let outcome = fenced(&world);
    assert!(outcome.err().contains("only fenced in"), "{outcome}");
    assert!(
        outcome.err().contains("is not shown: the login file"),
        "{outcome}"
    );
    assert!(!outcome.out().contains("beside it"), "{outcome}");
    nowhere(&world, &outcome, &[world.top().join("real"), auth(&world)]);
    // Without a login it is.
    world.only_control_follows();
    world.profile("agent", "[home]\nlayer = [\".agent\"]\n");
    let outcome = fenced(&world);
    assert!(outcome.out().contains("beside it"), "{outcome}");
}

#[test]
fn what_a_run_changes_of_an_agents_own_waits_for_a_yes_but_for_its_history() {
    let world =
        World::new("what_a_run_changes_of_an_agents_own_waits_for_a_yes_but_for_its_history");
    // Without that, its history is kept apart from the run's changes.
    world.profile("mine", "extends = [\"codex\"]\nhome.layer = [\".codex\"]\n");
    let own = world.home().join(".codex");
    fs::create_dir_all(&own).unwrap();
    world.write(own.join("config.toml"), "model = \"mine\"\n");
    let script = "mkdir -p ~/.codex/sessions ~/.codex/hooks; echo said > ~/.codex/sessions/one.jsonl; \
                  echo planted > ~/.codex/hooks/one.sh; echo planted > ~/.codex/config.toml; \
                  ln -s ../../planted ~/.codex/log";
    let run = world
        .run(["--keep", "--profile", "mine"], script)
        .run()
        .success();
    assert!(run.err().contains("control"), "{run}");
    let stat = world.atoll(["diff", "--stat", "last"]).run().success();
    for (name, is_control) in [
        ("sessions/one.jsonl", false),
        ("config.toml", true),
        ("hooks/one.sh", true),
        ("/log", true),
    ] {
        let line = stat.out();
        let line = line
            .lines()
            .find(|line| line.contains(name))
            .unwrap_or_else(|| panic!("{name}: {stat}"));
        assert_eq!(line.contains("control:"), is_control, "{line}");
    }
    let applied = world.atoll(["apply", "last"]).run().success();
    assert!(
        applied.err().contains("not applied without --control"),
        "{applied}"
    );
    assert_eq!(
        fs::read_to_string(own.join("sessions/one.jsonl")).unwrap(),
        "said\n"
    );
    assert_eq!(
        fs::read_to_string(own.join("config.toml")).unwrap(),
        "model = \"mine\"\n"
    );
    assert!(!own.join("hooks/one.sh").exists() && !own.join("log").is_symlink());
    let _ = world.atoll(["apply", "last", "--control"]).run().success();
    assert_eq!(
        fs::read_to_string(own.join("config.toml")).unwrap(),
        "planted\n"
    );
    let _ = world.atoll(["undo", "last"]).run().success();
    assert_eq!(
        fs::read_to_string(own.join("config.toml")).unwrap(),
        "model = \"mine\"\n"
    );
}

#[test]
fn no_process_but_the_one_that_carries_holds_a_login() {
    let name = "no_process_but_the_one_that_carries_holds_a_login";
    let world = world(name, PROFILE);
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    // Each of its values: what is put in, what renews it, and what nobody has heard of, which
    // is not kept.
    let held: [(&str, &[&str]); 3] = [
        (REAL, &["atoll-egress"]),
        (RENEWAL, &["atoll-egress"]),
        (UNKNOWN, &[]),
    ];
    for (real, holders) in held {
        let _ = fs::remove_file(world.top().join("go"));
        world.write(holders::sought(&world), real);
        let command = holders::searching(&world);
        let run = on_servers(&world, SERVERS, NAMES, &command);
        let script = format!(
            "{FIELD}export A=$(field access); {CURL} -H \"Authorization: Bearer $A\" https://example.com/v1/one; \
             echo KEY=$A; sh -c 'echo READY; read go'; {CURL} -H \"Authorization: Bearer $A\" https://example.com/v1/one"
        );
        let outcome = holders::without_variable(&world, run)
            .args(["sh", "--profile", "agent", "--", "sh", "-c", &script])
            .run();
        assert_eq!(outcome.out().matches("welcome").count(), 2, "{outcome}");
        holders::expect_held_by(&world, holders, &format!("{real} {outcome}"));
    }
}

/// Each of the agents that have a profile is covered, in the same words.
#[test]
fn an_agent_without_a_key_or_a_login_is_told_of_before_it_starts() {
    let world = World::new("an_agent_without_a_key_or_a_login_is_told_of_before_it_starts");
    let real = "sk-k3yOfTh1sT3stWh1chN0bodyM4yS33in0123456789";
    world.canary(real, &[]);
    for (agent, key, login) in [
        ("claude", "ANTHROPIC_API_KEY", "atoll login claude"),
        ("codex", "OPENAI_API_KEY", "atoll login codex"),
        ("gemini", "GEMINI_API_KEY", "atoll login gemini"),
        ("opencode", "ANTHROPIC_API_KEY", "atoll login opencode"),
        (
            "openclaw",
            "OPENAI_API_KEY",
            ".openclaw/secrets.json, outside",
        ),
    ] {
        e2e::write_program(&world.path(agent), "#!/bin/sh\necho started\n");
        let started = |profile: &str, key: Option<&str>, word: &str| {
            let command = format!("./{agent}");
            let run = world.atoll([
                "run",
                "--discard",
                "--profile",
                profile,
                "--",
                &command,
                word,
            ]);
            let run = key.into_iter().fold(run, |run, key| run.env(key, real));
            let ended = run.run().success();
            assert!(ended.out().contains("started"), "{ended}");
            ended.err()
        };
        let told = started(agent, None, "");
        let called = agent[..1].to_uppercase() + &agent[1..];
        let hint = format!("atoll: No {called} key or login found; {called} may prompt for one: ");
        assert!(told.contains(&hint), "{told}");
        assert!(told.contains(key) && told.contains(login), "{told}");
        // The controls: with a key, for what needs none, and by another profile.
        for (profile, key, word) in [
            (agent, Some(key), ""),
            (agent, None, "--version"),
            ("default", None, ""),
        ] {
            let told = started(profile, key, word);
            assert!(!told.contains("key or login found"), "{told}");
        }
    }
}
