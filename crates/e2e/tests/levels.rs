//! Trust levels of a program: one call moved through allow, ask and deny by each fact.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use e2e::World;
use e2e::internet::{Seen, events, is_possible, on_internet, online};

const OUTSIDE: &str = include_str!("approvals/outside.py");
const CURL: &str = "curl -sS -m 5 --noproxy '*' -w '%{http_code}\\n'";

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Became {
    Allowed,
    /// The request waited for an approval, and was sent nowhere.
    Asked,
    Denied,
}
use Became::{Allowed, Asked, Denied};

/// Returns the outcomes of a read and of a post in a run with these options.
fn became(world: &World, options: &[&str]) -> [Became; 2] {
    let script =
        format!("{CURL} http://example.com/read; {CURL} -d text http://example.com/write; true");
    let options = [&["--allow", "example.com"], options].concat();
    let seen = online(world, &options, &script);
    let asked = events(world, "approval.asked");
    let opened = format!("{:?}", events(world, "flow.opened"));
    ["read", "write"].map(|name| {
        let path = format!("/{name}");
        let is_asked = asked.iter().any(|one| one["path"] == path.as_str());
        match (seen.first.contains(&path), is_asked) {
            // Whatever goes out is in the record, at every level.
            (true, false) => {
                assert!(opened.contains(&path), "{opened}");
                Allowed
            }
            (false, true) => Asked,
            (false, false) => Denied,
            (true, true) => panic!("it went out unanswered: {}", seen.outcome),
        }
    })
}

#[test]
fn one_call_moves_through_allow_ask_and_deny_by_each_fact() {
    let world = World::new("one_call_moves_through_allow_ask_and_deny_by_each_fact");
    if !is_possible(&world, &[]) {
        return;
    }
    let model = world.top().join("model.toml");
    world.write(&model, "[trust]\nendpoints = [\"example.com\"]\n");
    let model = model.display().to_string();
    let by_trust: &[(&[&str], [Became; 2])] = &[
        (&[], [Allowed, Allowed]),
        (&["--trust", "none"], [Denied, Denied]),
        (&["--trust", "low"], [Allowed, Denied]),
        (&["--trust", "medium"], [Allowed, Asked]),
        (
            &["--trust", "medium", "--mode", "strict"],
            [Allowed, Denied],
        ),
        (
            &["--trust", "medium", "--mode", "permissive"],
            [Allowed, Allowed],
        ),
        (&["--trust", "high"], [Allowed, Allowed]),
        (&["--trust", "full"], [Allowed, Allowed]),
        (&["--preset", "production-backend"], [Allowed, Denied]),
        (&["--preset", "development-assistant"], [Allowed, Asked]),
        (
            &["--trust", "medium", "--profile", &model],
            [Allowed, Allowed],
        ),
        (&["--ask", "example.com"], [Asked, Asked]),
        (
            &["--ask", "example.com", "--mode", "strict"],
            [Denied, Denied],
        ),
        (
            &["--ask", "example.com", "--trust", "full"],
            [Allowed, Allowed],
        ),
    ];
    for (options, expected) in by_trust {
        assert_eq!(became(&world, options), *expected, "{options:?}");
    }
    let policies = "@id(\"release\") @approve(\"person\") permit(principal, action == Action::\"request\", resource) when { context.sends && context has task && context.task == \"release\" };\n\
         @id(\"rest\") permit(principal, action == Action::\"request\", resource);\n\
         @id(\"support\") forbid(principal, action == Action::\"request\", resource) when { context.sends && context has purpose && context.purpose == \"support\" };\n";
    world.write(world.config().join("atoll/own.cedar"), policies);
    let by_task: &[(&[&str], [Became; 2])] = &[
        (&[], [Allowed, Allowed]),
        (&["--task", "release"], [Allowed, Asked]),
        (&["--purpose", "support"], [Allowed, Denied]),
        (
            &["--purpose", "support", "--task", "release"],
            [Allowed, Denied],
        ),
    ];
    for (options, expected) in by_task {
        assert_eq!(became(&world, options), *expected, "{options:?}");
    }
}

/// A GET that a server may take for another method does not count as one.
#[test]
fn what_is_sent_in_disguise_is_sent() {
    let world = World::new("what_is_sent_in_disguise_is_sent");
    if !is_possible(&world, &[]) {
        return;
    }
    let script = format!(
        "{CURL} -H 'X-HTTP-Method-Override: DELETE' http://example.com/override; \
         {CURL} -X GET -d text http://example.com/body; \
         {CURL} -H 'Connection: Upgrade' -H 'Upgrade: websocket' -H 'Sec-WebSocket-Version: 13' \
         -H 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==' http://example.com/socket; \
         {CURL} http://example.com/plain; true"
    );
    let arrived = |level: &str| {
        let seen = online(
            &world,
            &["--allow", "example.com", "--trust", level],
            &script,
        );
        ["/override", "/body", "/socket", "/plain"].map(|path| seen.first.contains(path))
    };
    assert_eq!(arrived("low"), [false, false, false, true]);
    // The control: at a level without policies all of them arrive.
    assert_eq!(arrived("high"), [true; 4]);
}

#[test]
fn what_a_level_asks_about_goes_out_with_a_yes() {
    let world = World::new("what_a_level_asks_about_goes_out_with_a_yes");
    if !is_possible(&world, &[]) {
        return;
    }
    let outside = world.top().join("outside.py");
    fs::write(&outside, OUTSIDE).unwrap();
    let command = format!("python3 '{}' \"$@\"", outside.display());
    let state = world.state().join("atoll").display().to_string();
    let script = "curl -sS -m 60 --noproxy '*' -d text http://example.com/later";
    let options = "--discard --allow example.com --trust medium";
    let run = on_internet(&world, &command).env("UNTIL", "0");
    let run = run.args(["sh", &state, options, script, "later"]);
    let seen = Seen::of(&world, run.within(Duration::from_secs(300)).run());
    assert!(seen.output().contains("granted 0"), "{}", seen.outcome);
    assert!(seen.first.contains("POST /later"), "{}", seen.outcome);
    let asked = events(&world, "approval.asked");
    let rule = asked[0]["rule"].as_str().unwrap();
    assert!(rule.contains("policy level-medium-sends"), "{rule}");
    let opened = events(&world, "flow.opened");
    assert_eq!(opened[0]["approval"], 1, "{opened:?}");
}

#[test]
fn a_level_holds_what_a_run_starts_with() {
    let world = World::new("a_level_holds_what_a_run_starts_with");
    let run = |options: &[&str]| {
        let run = world.atoll(["run", "--keep"]).args(options);
        run.args(["--", "sh", "-c", "ulimit -n; touch new"]).run()
    };
    let applying = |level: &str| {
        let run = world.atoll(["run", "--apply", "--trust", level]);
        run.args(["--", "touch", "new"]).run()
    };
    let refused = applying("low").expect_status(126);
    refused.says(["--apply is refused", "at trust level low a person decides"]);
    assert!(!world.exists("new"));
    let _ = applying("medium").success();
    assert!(world.exists("new"));
    let live = world.atoll(["run", "--live", "--trust", "low", "--", "true"]);
    live.run().expect_status(126).says([
        "trust level low (--trust) changes nothing directly",
        "leave out --live, or trust it further: --trust medium",
    ]);
    // Of a profile that shows something of the home, at none nothing is.
    fs::create_dir_all(world.home().join(".cargo/bin")).unwrap();
    let shown = |level: &str| {
        let run = world.atoll(["run", "--discard", "--profile", "rust", "--trust", level]);
        run.args(["--", "sh", "-c", "ls -d ~/.cargo/bin; ulimit -n"])
            .run()
    };
    let none = shown("none");
    none.says(["trust level none leaves these out: the network"]);
    assert!(
        !none.out().contains(".cargo") && none.out().contains("1024"),
        "{none}"
    );
    assert!(shown("high").success().out().contains(".cargo/bin"));
    // Nor is there a login, or what stands for it.
    let login = world.home().join(".codex/auth.json");
    world.write(
        &login,
        "{\"OPENAI_API_KEY\": \"sk-s3cret-0123456789abcdef0123456789\"}",
    );
    fs::set_permissions(&login, fs::Permissions::from_mode(0o600)).unwrap();
    let login = |level: &str| {
        let run = world.atoll(["run", "--discard", "--profile", "codex", "--trust", level]);
        let script = "echo began; cat ~/.codex/auth.json";
        run.args(["--", "sh", "-c", script]).run().out()
    };
    assert_eq!(login("none"), "began\n");
    let other = login("low");
    assert!(
        other.contains("OPENAI_API_KEY") && !other.contains("s3cret"),
        "{other}"
    );
    // A project lowers, and does not raise; nonsense is told.
    world.write("atoll.toml", "[trust]\nlevel = \"none\"\n");
    let _ = world.atoll(["trust"]).run().success();
    assert_eq!(run(&[]).success().out(), "1024\n");
    assert_ne!(run(&["--trust", "high"]).success().out(), "1024\n");
    run(&["--trust", "hihg"])
        .expect_status(125)
        .says(["--trust", "did you mean \"high\""]);
}

/// Each level is recorded with who has set it, and a denial by it names it.
#[test]
fn a_level_is_told_of_and_blamed_by_its_name() {
    let world = World::new("a_level_is_told_of_and_blamed_by_its_name");
    let run = |options: &[&str], script: &str| {
        let run = world.atoll(["run", "--keep"]).args(options);
        run.args(["--", "sh", "-c", script]).run()
    };
    let [stated, unstated] = ["stated", "unstated"].map(|name| {
        let path = world.top().join(name);
        path.display().to_string()
    });
    let options = ["--trust", "low", "--task", "tidy", "--json", &stated];
    let _ = run(&options, "true").success();
    let told = fs::read_to_string(&stated).unwrap();
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(
        [
            &told["trust"],
            &told["trust-mode"],
            &told["trust-by"],
            &told["task"]
        ],
        ["low", "layered", "--trust", "tidy"]
    );
    let why = world.atoll(["why", "last"]).run().success();
    let lines = "trust     low, layered (--trust)\n  task      tidy\n";
    assert!(why.out().contains(lines), "{why}");
    let shown = world
        .atoll(["why", "last", "--json"])
        .run()
        .success()
        .json();
    assert_eq!(shown["decision"]["trust-by"], "--trust");
    let _ = run(&["--json", &unstated], "true").success();
    let other = fs::read_to_string(&unstated).unwrap();
    assert!(!other.contains("trust"), "{other}");
    let plain = world.atoll(["why", "last"]).run().success();
    assert!(!plain.out().contains("trust  "), "{plain}");
    // At none no option opens anything but a level.
    let fetching = "curl -sS -m 5 http://example.com/; false";
    let none = run(&["--trust", "none", "--allow", "example.com"], fetching);
    none.says([
        "trust level none leaves these out: the network",
        "trust level none opens no host",
        "--trust low",
    ]);
    assert!(!format!("{none}").contains("atoll run --allow"), "{none}");
    // The control: without a level the option is told.
    let open = run(&[], fetching);
    open.says(["add `--allow HOST`"]);
    let limited = run(&["--trust", "none", "--limit", "wall-clock=1h"], "true");
    limited.says(["limit wall-clock of --limit: trust level none holds it at 10m"]);
    let silent = run(&["--mode", "permissive"], "true").success();
    assert!(
        !format!("{silent}").contains("without a question"),
        "{silent}"
    );
}

/// A question names the policy once, and the refusal of a tunnel names a rule under which requests
/// are inspected.
#[test]
fn a_level_says_how_to_be_asked_and_what_it_reads() {
    let world = World::new("a_level_says_how_to_be_asked_and_what_it_reads");
    let asked = world.atoll(["policy", "ask", "request", "api.example.com"]);
    let asked = asked.args(["--method", "POST", "--trust", "medium"]).run();
    let told = "to be approved: a person is asked by policy level-medium-sends, what is sent is \
                asked about at trust level medium\n";
    assert!(asked.out().starts_with(told), "{asked}");
    let unseen = world.atoll(["policy", "ask", "connect", "api.example.com"]);
    let unseen = unseen.args(["--look", "past", "--trust", "low"]).run();
    assert!(
        unseen
            .out()
            .contains("as --allow 'GET https://HOST:PORT/**'"),
        "{unseen}"
    );
    if !is_possible(&world, &[]) {
        return;
    }
    let script = format!("{CURL} -d text http://example.com/; true");
    let options = ["--allow", "example.com", "--trust", "low"];
    let seen = online(&world, &options, &script);
    assert!(
        seen.output()
            .contains("how far this run is trusted decides"),
        "{}",
        seen.outcome
    );
    let options = ["--ask", "example.com", "--mode", "strict"];
    let seen = online(&world, &options, &script);
    let refused = format!("{:?}", events(&world, "flow.refused"));
    assert!(
        refused
            .contains("which would ask a person: mode strict denies what mode layered asks about"),
        "{} {refused}",
        seen.outcome
    );
}

fn page() -> String {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap();
    fs::read_to_string(Path::new(&package).join("../../docs/levels.md")).unwrap()
}

/// Returns the rows of the page's table of levels, the headings first.
fn rows(page: &str) -> Vec<Vec<&str>> {
    let (_, section) = page.split_once("## The table").unwrap();
    let lines = section.lines().skip_while(|line| !line.starts_with('|'));
    let lines = lines.take_while(|line| line.starts_with('|'));
    let cells = lines.map(|line| line.trim_matches('|').split('|').map(str::trim));
    cells.map(Iterator::collect).collect()
}

/// Runs behave as the table states, with each level in each mode.
#[test]
fn each_row_of_the_table_of_trust_holds_runs() {
    let world = World::new("each_row_of_the_table_of_trust_holds_runs");
    if !is_possible(&world, &[]) {
        return;
    }
    fs::create_dir_all(world.home().join(".cargo/bin")).unwrap();
    let page = page();
    let rows = rows(&page);
    let place = |head: &str| rows[0].iter().position(|one| *one == head).unwrap();
    assert_eq!(rows.len(), 2 + 5 * 3);
    let word = |became: Became| match became {
        Allowed => "allow",
        Asked => "ask",
        Denied => "deny",
    };
    for row in &rows[2..] {
        let trusted = ["--trust", row[0], "--mode", row[1]];
        let [reads, sends] = became(&world, &trusted);
        let [asked, _] = became(&world, &[&trusted[..], &["--ask", "example.com"]].concat());
        let cell = |head: &str| (head.to_owned(), row[place(head)].to_owned());
        let is = |head: &str, is: &str| (head.to_owned(), is.to_owned());
        assert_eq!(is("reads", word(reads)), cell("reads"), "{row:?}");
        assert_eq!(is("sends", word(sends)), cell("sends"), "{row:?}");
        assert_eq!(is("asked", word(asked)), cell("asked"), "{row:?}");
        // Whatever of these is denied is the run.
        for (head, option) in [("live", "--live"), ("apply", "--apply")] {
            let _ = fs::remove_file(world.workspace().join("new"));
            let run = world.atoll(["run", option]).args(trusted);
            let outcome = run.args(["--", "touch", "new"]).run();
            let seen = match (outcome.code(), world.exists("new")) {
                (0, true) => "allow",
                (126, false) => "deny",
                _ => panic!("{row:?} {option}: {outcome}"),
            };
            assert_eq!(is(head, seen), cell(head), "{row:?}: {outcome}");
        }
        let run = world.atoll(["run", "--discard", "--profile", "rust"]);
        let script = "test -d ~/.cargo/bin && echo shown; ulimit -n";
        let outcome = run.args(trusted).args(["--", "sh", "-c", script]).run();
        let out = outcome.success().out();
        let seen = |is: bool, yes: &'static str, no| if is { yes } else { no };
        let home = seen(out.contains("shown"), "allow", "deny");
        assert_eq!(is("home", home), cell("home"), "{row:?}");
        let limits = seen(out.ends_with("1024\n"), "tight", "profile");
        assert_eq!(is("limits", limits), cell("limits"), "{row:?}");
    }
}

#[test]
fn the_commands_of_the_page_on_levels_are_understood() {
    let world = World::new("the_commands_of_the_page_on_levels_are_understood");
    let page = page();
    let commands: Vec<Vec<&str>> = page
        .lines()
        .filter_map(|line| line.strip_prefix("$ atoll "))
        .map(|line| line.split_whitespace().collect())
        .collect();
    let ran: Vec<String> = commands
        .iter()
        .map(|words| world.atoll(words).run().out())
        .collect();
    let [shown, reads, posts] = &ran[..] else {
        panic!("{commands:?}");
    };
    assert!(
        shown.contains("level-low-sends") && shown.contains("forbid(principal"),
        "{shown}"
    );
    assert!(reads.starts_with("allowed"), "{reads}");
    assert!(posts.starts_with("to be approved"), "{posts}");
    // The other commands of the page are runs: each option of theirs is one.
    for words in ["--trust low", "--trust medium", "--preset public-chat"] {
        assert!(page.contains(&format!("atoll run {words} ")), "{words}");
        let run = world.atoll(["run", "--discard"]).args(words.split(' '));
        let _ = run.args(["--", "true"]).run().success();
    }
    // What policies of the page say is without mistakes.
    for (at, policies) in page.split("```cedar\n").skip(1).enumerate() {
        let file = world.top().join(format!("page-{at}.cedar"));
        world.write(&file, policies.split("```").next().unwrap());
        let file = file.display().to_string();
        let _ = world.atoll(["policy", "check", &file]).run().success();
    }
}

/// The reason for a refusal comes first, and anything else that was left out after it.
#[test]
fn a_refusal_is_told_before_what_was_left_out() {
    let world = World::new("a_refusal_is_told_before_what_was_left_out");
    let options = ["run", "--trust", "none", "--allow", "example.com"];
    let told = |more: &[&str], status: i32| {
        let run = world.atoll(options).args(more).args(["--", "true"]).run();
        run.expect_status(status).err()
    };
    let left_out = "trust level none leaves these out: the network";
    let refused = told(&["--live"], 126);
    let (error, warning) = (refused.find("error: "), refused.find(left_out));
    assert!(error.is_some() && error < warning, "{refused}");
    assert_eq!(refused.matches(left_out).count(), 1, "{refused}");
    // What is not refused is told of it as well, once.
    let started = told(&[], 0);
    assert_eq!(started.matches(left_out).count(), 1, "{started}");
}
