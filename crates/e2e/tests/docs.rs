//! What the documents tell people to type works, and shows what they say.

use std::path::{Path, PathBuf};

use std::time::Duration;

use e2e::{World, internet, program_exists};

/// Making the layers of a system takes its time on a cold disk.
const LONG: Duration = Duration::from_secs(300);

/// The top of the project: the documents are there.
fn project() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo or xtask sets it");
    Path::new(&package).join("../..")
}

fn document(name: &str) -> String {
    std::fs::read_to_string(project().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// What changes from run to run: ids, times, sizes, people.
fn without_particulars(text: &str) -> Vec<String> {
    text.lines()
        .map(|line| {
            let words = line.split_whitespace().map(|word| {
                let digits = word.bytes().filter(u8::is_ascii_digit).count();
                if digits > 0 && !word.starts_with('-') {
                    "#"
                } else {
                    word
                }
            });
            words.collect::<Vec<_>>().join(" ")
        })
        .filter(|line| {
            // The figures of use, and what this host cannot enforce, differ between hosts.
            !line.starts_with("time") && !line.starts_with("limits")
        })
        .collect()
}

/// The commands of a transcript, each with what it printed.
fn transcript(block: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push((command.to_owned(), String::new())),
            (None, Some((_, printed))) => {
                printed.push_str(line);
                printed.push('\n');
            }
            (None, None) => {}
        }
    }
    commands
}

/// Runs a line as a person's shell would, who has installed `atoll`.
fn shell(world: &World, script: &str) -> String {
    let script = format!("PATH=$(dirname \"$ATOLL\"):$PATH; {script}");
    world.host_shell(&script).run().out()
}

/// The same on a terminal, with this answer to what is asked at the end.
fn shell_on_terminal(world: &World, script: &str, answer: &str) -> String {
    let script = format!("PATH=$(dirname \"$ATOLL\"):$PATH; {script}");
    let shell = world.host_shell(&script).env("NO_COLOR", "1");
    let mut terminal = shell.on_terminal(24, 100);
    terminal.expect(QUESTION_END);
    terminal.line(answer);
    terminal.wait().out()
}

/// Where an answer is typed.
const QUESTION_END: &str = "[?]: ";

#[test]
fn the_transcript_of_the_readme_is_real() {
    let world = World::new("the_transcript_of_the_readme_is_real");
    let readme = document("README.md");
    let block = readme
        .split("```")
        .nth(1)
        .expect("the README begins with a transcript");
    let commands = transcript(block);
    assert!(commands.len() >= 4, "{commands:?}");
    for (command, printed) in commands {
        let answer = printed
            .lines()
            .find_map(|line| line.split_once(QUESTION_END));
        let shown = match answer {
            Some((_, answer)) => shell_on_terminal(&world, &command, answer),
            None => shell(&world, &format!("exec 2>&1; {command}")),
        };
        let (shown, printed) = (without_particulars(&shown), without_particulars(&printed));
        // The id of who runs the tests stands in one line only.
        let same = |line: &&String| !line.contains("uid=") && !line.is_empty() && *line != "#";
        let shown: Vec<_> = shown.iter().filter(same).collect();
        let printed: Vec<_> = printed.iter().filter(same).collect();
        assert_eq!(shown, printed, "{command}");
    }
}

#[test]
fn the_commands_about_root_inside_work() {
    let world = World::new("the_commands_about_root_inside_work");
    let text = document("docs/root.md");
    let block = text.split("```console").nth(1).expect("it has commands");
    let block = block.split("```").next().expect("it ends");
    let commands = transcript(block);
    assert_eq!(commands.len(), 3, "{commands:?}");
    for (command, _) in commands {
        // As ordinary users have it on Debian: without the programs of root.
        let script = format!("PATH=$(dirname \"$ATOLL\"):/usr/bin:/bin; {command}");
        let ended = world.host_shell(&script).within(LONG).run().success();
        let shows = command.contains("cat /etc/motd");
        assert!(!shows || ended.out() == "changed\n", "{ended}");
    }
}

#[test]
fn the_commands_about_the_organisation_work() {
    let world = World::new("the_commands_about_the_organisation_work");
    let text = document("docs/organisation.md");
    let mut blocks = text.split("```console").skip(1);
    for (count, is_named) in [(4, false), (2, true)] {
        let block = blocks.next().expect("it has commands");
        let block = block.split("```").next().expect("it ends");
        let commands = transcript(block);
        assert_eq!(commands.len(), count, "{commands:?}");
        if is_named {
            let line = text
                .lines()
                .find(|line| line.starts_with("organisation = "));
            let place = world.path("acme").display().to_string();
            let line = line.expect("what is in config.toml");
            let line = line.replace("/home/you/acme", &place);
            world.write(world.config().join("atoll/config.toml"), line);
        }
        for (command, _) in commands {
            let script = format!("PATH=$(dirname \"$ATOLL\"):$PATH; {command}");
            let _ = world.host_shell(&script).run().success();
        }
    }
    let status = world.atoll(["policy", "organisation", "status"]).run();
    assert!(status.success().out().contains("until 2099-12-31"));
    let _ = world.run_inside("true").success();
}

#[test]
fn the_commands_about_tokens_work() {
    let world = World::new("the_commands_about_tokens_work");
    let text = document("docs/tokens.md");
    let block = text.split("```console").nth(1).expect("it has commands");
    let block = block.split("```").next().expect("it ends");
    let commands = transcript(block);
    assert_eq!(commands.len(), 7, "{commands:?}");
    for (command, _) in commands {
        let script = format!("PATH=$(dirname \"$ATOLL\"):$PATH; {command}");
        let ended = world.host_shell(&script).within(LONG).run().success();
        match command.split(' ').nth(2) {
            Some("show") => {
                let out = ended.out();
                assert!(out.contains("\n  allow use-credential github\n"), "{ended}");
                assert!(out.contains("\nIt counts, for request GET "), "{ended}");
            }
            Some("list") => assert!(ended.out().contains("  allow request GET"), "{ended}"),
            Some(_) | None => {}
        }
    }
    let script = "PATH=$(dirname \"$ATOLL\"):$PATH; atoll token show ~/.atoll-tokens/narrow.token";
    let revoked = world.host_shell(script).run();
    assert!(
        revoked
            .out()
            .ends_with("It does not count: it is revoked.\n"),
        "{revoked}"
    );
    let script = "PATH=$(dirname \"$ATOLL\"):$PATH; atoll token issue --allow 'publish 1' --until 1s; \
                  sleep 2; atoll token list; atoll token revoke 18a7";
    let ended = world.host_shell(script).run();
    assert!(ended.out().contains("  ended  allow publish 1"), "{ended}");
    assert!(ended.out().contains("  revoked  allow"), "{ended}");
    let neither = "18a7 is neither a file nor the beginning of an id";
    assert!(ended.err().contains(neither), "{ended}");
}

#[test]
fn the_commands_about_nesting_work() {
    let world = World::new("the_commands_about_nesting_work");
    if !program_exists("bwrap") {
        world.skip("bubblewrap is not installed", e2e::Avoidable::Yes);
        return;
    }
    let text = document("docs/nesting.md");
    let block = text.split("```console").nth(1).expect("it has commands");
    let block = block.split("```").next().expect("it ends");
    let commands = transcript(block);
    assert_eq!(commands.len(), 2, "{commands:?}");
    for (command, _) in commands {
        let script = format!("PATH=$(dirname \"$ATOLL\"):$PATH; {command}");
        let _ = world.host_shell(&script).within(LONG).run().success();
    }
}

/// Runs a line as a person's shell would, where there is a small internet.
fn online(world: &World, command: &str) -> String {
    let line = format!("exec 2>&1; atoll() {{ \"$ATOLL\" \"$@\"; }}; {command}");
    let shell = internet::on_internet(world, "sh -c \"$1\"")
        .arg("sh")
        .arg(line);
    shell.within(LONG).run().out()
}

/// What somebody types who has nothing but the program, in the order of the page.
#[test]
fn the_commands_of_the_quickstart_work() {
    let world = World::new("the_commands_of_the_quickstart_work");
    if !internet::is_possible(&world, &[]) {
        return;
    }
    let page = document("docs/quickstart.md");
    assert!(page.lines().count() <= 60, "it is a page");
    let blocks = page.split("```console").skip(1);
    let commands = blocks.filter_map(|block| block.split("```").next());
    let commands: Vec<_> = commands.flat_map(transcript).collect();
    assert_eq!(commands.len(), 15, "{commands:?}");
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    // People who set nothing have it there.
    let usual = "unset XDG_CONFIG_HOME; TOKEN=ghp_0123456789abcdefghijABCDEFGHIJklmnop";
    for (command, printed) in commands {
        let typed = format!("{usual}; exec 2>&1; {command}");
        let shown = match command.contains("curl") {
            true if command.contains("--ask") => answered(&world, &command),
            true => online(&world, &typed),
            false => {
                let script = format!("PATH=$(dirname \"$ATOLL\"):$PATH; {typed}");
                let shell = world.host_shell(&script).env("HOME", world.home());
                shell.run().out()
            }
        };
        assert!(!shown.contains("error:"), "{command}: {shown}");
        let mut rest = shown.lines().map(words);
        for line in printed.lines().map(words) {
            // What a question was drawn with stands before what the program writes then.
            let found = rest.any(|shown| shown.starts_with(&line) || shown.ends_with(&line));
            assert!(found || line.is_empty(), "{command}: {line}: {shown}");
        }
    }
    assert!(!world.exists("made-here.txt"), "it was taken back");
}

/// The same at a terminal, with a yes.
fn answered(world: &World, command: &str) -> String {
    let line = format!("atoll() {{ \"$ATOLL\" \"$@\"; }}; {command}");
    let shell = internet::on_internet(world, "sh -c \"$1\"")
        .arg("sh")
        .arg(line);
    let mut terminal = shell.within(LONG).on_terminal(40, 100);
    terminal.expect("A letter, then Enter: ");
    terminal.send("o\r");
    terminal.wait().out()
}

#[test]
fn the_commands_about_the_network_work() {
    let world = World::new("the_commands_about_the_network_work");
    for program in ["python3", "ip", "curl"] {
        if !program_exists(program) {
            world.skip(&format!("{program} is not installed"), e2e::Avoidable::Yes);
            return;
        }
    }
    let text = document("docs/network.md");
    let block = text.split("```console").nth(1).expect("it has commands");
    let block = block.split("```").next().expect("it ends");
    let commands = transcript(block);
    assert_eq!(commands.len(), 3, "{commands:?}");
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    for (command, printed) in commands {
        let shown = online(&world, &command);
        let mut rest = shown.lines().map(words);
        for line in printed.lines().map(words) {
            // How often a name was asked for is the resolver's business.
            let found = rest.any(|shown| shown.starts_with(&line));
            assert!(found && !line.is_empty(), "{command}: {line}: {shown}");
        }
    }
    let readme = document("README.md");
    let mut parts = readme.split('`').skip(1).step_by(2);
    let command = parts
        .find(|part| part.starts_with("atoll run --allow"))
        .expect("the README has a command");
    let shown = online(&world, command);
    assert!(shown.starts_with("this is 93.184.216.34\n"), "{shown}");
}

/// What the page says can be written is read, and means what it says.
#[test]
fn what_the_page_on_the_network_writes_is_a_profile() {
    let world = World::new("what_the_page_on_the_network_writes_is_a_profile");
    let text = document("docs/network.md");
    let block = text.split("```toml").nth(1).expect("it has a profile");
    let block = block.split("```").next().expect("it ends");
    world.profile("page", block);
    let told = shell(&world, "atoll profile show page --json");
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let values: Vec<_> = told["rules"]["network"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| format!("{} {}", row["key"], row["value"]).replace('"', ""))
        .collect();
    assert_eq!(
        values,
        [
            "allow example.com",
            "allow *.example.com:443,8000-8080",
            "allow db.example.net:5432",
            "allow 10.1.0.0/16:*",
            "deny www.example.com:*",
        ]
    );
    let requests = text
        .split("```toml")
        .nth(2)
        .expect("it has one with requests");
    let requests = requests.split("```").next().expect("it ends");
    world.profile("requests", requests);
    let told = shell(&world, "atoll profile show requests");
    for line in [
        "\"GET https://api.example.com/v1/**\"",
        "paths = [\"/v1/**\", \"/status\"]",
        "{ to = \"pinned.example.com:443\", carry = \"tunnel\" }",
        "\"DELETE api.example.com:*\"",
        "https://pypi.org",
    ] {
        assert!(told.contains(line), "{line} is not in {told}");
    }
    // Each text in the tables is a rule, or the name of a preset.
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let hosts: Vec<&str> = rows
        .filter_map(|row| row.split('|').nth(1))
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect();
    assert!(hosts.len() >= 7, "{hosts:?}");
    let presets = text.split("## Presets").nth(1).expect("a section");
    let presets = presets.split("\n## ").next().expect("its end");
    for host in hosts {
        // A limit stands in a table.
        if host.contains(" = ") {
            let table = format!("network.allow = [{{ to = \"example.com\", {host} }}]");
            world.profile("limited", &table);
            let told = shell(&world, "atoll profile show limited");
            assert!(told.contains(host), "{host} is not in {told}");
            continue;
        }
        let option = match presets.contains(&format!("`{host}`")) {
            true => "--preset",
            false => "--allow",
        };
        let run = format!("atoll run --discard {option} '{host}' -- echo fine");
        assert_eq!(shell(&world, &run), "fine\n", "{host}");
    }
    // What else stands there is a profile as well.
    let blocks = text.split("```toml").skip(3);
    let blocks: Vec<_> = blocks.filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 4, "{blocks:?}");
    for block in blocks {
        world.profile("further", block);
        let told = shell(&world, "atoll profile show further");
        assert!(told.contains("[network]"), "{block}: {told}");
    }
}

#[test]
fn the_commands_about_credentials_work() {
    let world = World::new("the_commands_about_credentials_work");
    let text = document("docs/credentials.md");
    let block = text.split("```toml").nth(1).expect("it has an example");
    let block = block.split("```").next().expect("it ends");
    world.profile("example", block);
    let told = shell(&world, "atoll profile show example");
    for line in ["[credential.github]", "paths = [\"/repos/**\"]"] {
        assert!(told.contains(line), "{line} is not in {told}");
    }
    let others = [
        ("of-a-model", ["others = \"masked\"", "[credential.model]"]),
        ("of-a-command", ["shape = \"jwt\"", "[credential.cluster]"]),
        (
            "of-a-token",
            ["scope = [\"orders:read\"]", "[credential.orders]"],
        ),
        (
            "of-an-app",
            ["repositories = [\"website\"]", "[credential.github]"],
        ),
        (
            "of-an-agent",
            ["to = [\"models.example.com:443\"]", "[credential.codex]"],
        ),
        (
            "of-a-login",
            ["[login.agent]", "source = { login = \"agent\", field ="],
        ),
        ("of-settings", ["secrets = [\"pins.*\"]", "hidden = true"]),
        (
            "of-a-renewal",
            [
                "renew = { token = \"https://login",
                "[credential.agent-renewal]",
            ],
        ),
    ];
    let mut blocks = text.split("```toml").skip(2);
    for (name, lines) in others {
        let block = blocks.next().expect("it has one of each");
        let block = block.split("```").next().expect("it ends");
        world.profile(name, block);
        let told = shell(&world, &format!("atoll profile show {name}"));
        for line in lines {
            assert!(told.contains(line), "{line} is not in {told}");
        }
    }
    let block = text.split("```console").nth(1).expect("it has commands");
    let block = block.split("```").next().expect("it ends");
    let commands = transcript(block);
    assert_eq!(commands.len(), 4, "{commands:?}");
    let token = "ghp_0123456789abcdefghijABCDEFGHIJklmnop";
    assert!(block.contains(token));
    world.canary(token, &["home/.config/token"]);
    let home = world.home();
    for (command, printed) in commands {
        // People who set nothing have it there.
        let script = format!("PATH=$(dirname \"$ATOLL\"):$PATH; unset XDG_CONFIG_HOME; {command}");
        let ended = world.host_shell(&script).env("HOME", &home).run().success();
        let is_check = command.contains("profile check");
        let told = format!("{}{}", ended.out(), ended.err());
        match is_check {
            true => assert!(told.contains("cannot ask the target"), "{told}"),
            false => assert_eq!(ended.out(), printed, "{command}"),
        }
    }
}

#[test]
fn what_the_page_on_git_writes_is_a_profile() {
    let world = World::new("what_the_page_on_git_writes_is_a_profile");
    let text = document("docs/git.md");
    let blocks: Vec<&str> = text.split("```toml").skip(1).collect();
    assert_eq!(blocks.len(), 2);
    for (block, lines) in blocks.into_iter().zip([
        &["[credential.github]", "https-for-ssh = ["][..],
        &["[ssh.github]", "sign-commits = true", "host-keys = ["],
    ]) {
        let block = block.split("```").next().expect("it ends");
        world.profile("example", block);
        let told = shell(&world, "atoll profile show example");
        for line in lines {
            assert!(told.contains(line), "{line} is not in {told}");
        }
        // What is shown can be pasted.
        world.profile("pasted", &told);
        assert!(shell(&world, "atoll profile show pasted").contains(lines[0]));
    }
}

#[test]
fn every_command_that_documents_name_exists() {
    let world = World::new("every_command_that_documents_name_exists");
    let mut seen = std::collections::BTreeSet::new();
    for name in [
        "README.md",
        "docs/quickstart.md",
        "docs/profiles.md",
        "docs/apply.md",
        "docs/kept.md",
        "docs/ledger.md",
        "docs/outcome.md",
        "docs/doctor.md",
        "docs/root.md",
        "docs/nesting.md",
        "docs/network.md",
        "docs/network-inside.md",
        "docs/trust.md",
        "docs/levels.md",
        "docs/purposes.md",
        "docs/labels.md",
        "docs/reputation.md",
        "docs/secrets.md",
        "docs/credentials.md",
        "docs/git.md",
        "docs/agents/codex.md",
        "docs/agents/claude.md",
        "docs/agents/opencode.md",
        "docs/agents/gemini.md",
        "docs/agents/openclaw.md",
    ] {
        for part in document(name).split('`').skip(1).step_by(2) {
            let mut words = part.split_whitespace();
            if words.next() != Some("atoll") {
                continue;
            }
            if let Some(word) = words
                .next()
                .filter(|word| word.bytes().all(|b| b.is_ascii_lowercase()))
            {
                seen.insert(word.to_owned());
            }
        }
    }
    assert!(seen.contains("run") && seen.contains("why"), "{seen:?}");
    for command in seen {
        let _ = world.atoll([command.as_str(), "--help"]).run().success();
    }
}

#[test]
fn the_commands_about_taking_changes_over_and_back_work() {
    let world = World::new("the_commands_about_taking_changes_over_and_back_work");
    let run = world.run(["--keep"], "echo a > a.txt; mkdir d; echo b > d/b");
    let _ = run.run().success();
    let text = document("docs/apply.md");
    let block = text.split("```console\n").nth(1);
    let block = block.and_then(|rest| rest.split("```").next());
    let commands = transcript(block.unwrap_or_default());
    let mut seen = Vec::new();
    for (command, _) in &commands {
        let command = format!("PATH=$(dirname \"$ATOLL\"):$PATH; {command}");
        let _ = world.host_shell(&command).run().success();
        seen.push((world.exists("a.txt"), world.exists("d/b")));
    }
    let expected = [
        (false, false),
        (true, false),
        (true, true),
        (true, true),
        (false, false),
        (true, true),
        (true, true),
    ];
    assert_eq!(seen, expected, "{commands:?}");
    assert!(world.runs().is_empty());
}

#[test]
fn the_commands_about_what_is_kept_work() {
    let world = World::new("the_commands_about_what_is_kept_work");
    world.write(world.home().join(".codex/config.toml"), "");
    let script = "mkdir ~/.codex/sessions; echo said > ~/.codex/sessions/one.jsonl; echo set > ~/.codex/config.toml";
    let run = world.run(["--keep", "--profile", "codex"], script);
    let _ = run.run().success();
    let text = document("docs/kept.md");
    let block = text.split("```console\n").nth(1);
    let block = block.and_then(|rest| rest.split("```").next());
    let commands = transcript(block.unwrap_or_default());
    assert!(commands.len() > 5, "{commands:?}");
    for (command, _) in commands {
        let command = format!("PATH=$(dirname \"$ATOLL\"):$PATH; {command}");
        let outcome = world.host_shell(&command).run().success();
        match command.ends_with("--control") {
            true => assert_eq!(world.read(world.home().join(".codex/config.toml")), "set\n"),
            false => assert_eq!(
                world.read(world.home().join(".codex/config.toml")),
                "",
                "{outcome}"
            ),
        }
    }
}

#[test]
fn the_commands_about_trust_work() {
    let world = World::new("the_commands_about_trust_work");
    if !program_exists("openssl") {
        world.skip("openssl is not installed", e2e::Avoidable::Yes);
        return;
    }
    let text = document("docs/trust.md");
    let block = text.split("```console").nth(1).expect("it has commands");
    let block = block.split("```").next().expect("it ends");
    let commands = transcript(block);
    assert_eq!(commands.len(), 3, "{commands:?}");
    for (command, printed) in commands {
        let shown = shell(&world, &format!("exec 2>&1; {command}"));
        let shown = without_particulars(&shown);
        for line in without_particulars(&printed) {
            assert!(shown.contains(&line), "{command}: {line}: {shown:?}");
        }
    }
}

#[test]
fn the_commands_about_secrets_work() {
    let world = World::new("the_commands_about_secrets_work");
    let text = document("docs/secrets.md");
    let block = text.split("```console").nth(1).expect("it has commands");
    let block = block.split("```").next().expect("it ends");
    let commands = transcript(block);
    assert_eq!(commands.len(), 4, "{commands:?}");
    for (command, printed) in commands {
        let shown = shell(&world, &format!("TOKEN=some-token; exec 2>&1; {command}"));
        let home = world.home().display().to_string();
        let config = world.config().display().to_string();
        let shown = shown.replace(&config, "~/.config").replace(&home, "~");
        // Which vault it is is random, and a secret is of the day on which it was kept.
        let printed = printed.split("vault-").next().unwrap_or_default();
        let printed = printed.split("  20").next().unwrap_or_default();
        assert!(shown.starts_with(printed.trim_end()), "{command}: {shown}");
    }
}

#[test]
fn the_commands_of_the_page_on_doctor_work() {
    let world = World::new("the_commands_of_the_page_on_doctor_work");
    let page = document("docs/doctor.md");
    let commands: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("    "))
        .collect();
    assert_eq!(commands.len(), 3, "{commands:?}");
    for command in commands {
        if command.contains("sudo") {
            // In a guest that has AppArmor, by the tests of guests.
            assert!(command.contains("apparmor"), "{command}");
            continue;
        }
        let ran = shell(&world, &format!("{command}; echo \"ended with $?\""));
        let ended = ["ended with 0\n", "ended with 1\n"];
        let ended = ended.iter().any(|end| ran.ends_with(end));
        assert!(ended, "{command}: {ran}");
    }
    // The members of the document are those of the page.
    let told = shell(&world, "atoll doctor --json; true");
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let finding = &told["findings"][0];
    for object in [&told, finding] {
        for name in object.as_object().expect("an object").keys() {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }
}
