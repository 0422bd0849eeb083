//! The commands in the documents work, and print what the documents show.

use std::path::{Path, PathBuf};

use std::time::Duration;

use e2e::{World, internet, program_exists};

/// Making the layers of a system takes its time on a cold disk.
const LONG: Duration = Duration::from_secs(300);

/// Returns the top of the project, where the documents are.
fn project() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo or xtask sets it");
    Path::new(&package).join("../..")
}

fn document(name: &str) -> String {
    std::fs::read_to_string(project().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns every page in `docs/`, by its path in the project.
fn pages() -> Vec<String> {
    let files = e2e::tree(&project().join("docs")).into_keys();
    let pages = files.filter(|path| path.extension().is_some_and(|end| end == "md"));
    let pages: Vec<String> = pages
        .map(|path| format!("docs/{}", path.display()))
        .collect();
    assert!(pages.len() > 30, "{pages:?}");
    pages
}

/// Returns the blocks of a page in this language, or in none.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fences = page.split("```").skip(1).step_by(2);
    fences
        .filter_map(|block| block.split_once('\n'))
        .filter(|(named, _)| *named == language)
        .map(|(_, block)| block)
        .collect()
}

/// Returns a command without the remark behind it.
fn without_remark(line: &str) -> &str {
    let line = line.split("   ").next().unwrap_or_default();
    line.split(" # ").next().unwrap_or_default().trim_end()
}

/// Removes from a text what changes from run to run: ids, times, sizes, people.
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

/// Returns the commands of a transcript, each with its output.
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

/// Runs a line as the shell of a user who has installed `atoll` would.
fn shell(world: &World, script: &str) -> String {
    let script = format!("PATH=$(dirname \"$ATOLL\"):$PATH; {script}");
    world.host_shell(&script).run().out()
}

/// As [`shell`] on a terminal, with this answer to the question at the end.
fn shell_on_terminal(world: &World, script: &str, answer: &str) -> String {
    let script = format!("PATH=$(dirname \"$ATOLL\"):$PATH; {script}");
    let shell = world.host_shell(&script).env("NO_COLOR", "1");
    let mut terminal = shell.on_terminal(24, 100);
    terminal.expect(QUESTION_END);
    terminal.line(answer);
    terminal.wait().out()
}

/// The prompt at which an answer is typed.
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
    assert_eq!(commands.len(), 8, "{commands:?}");
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

/// Runs a line as a user's shell would, where there is a small internet.
fn online(world: &World, command: &str) -> String {
    let line = format!("exec 2>&1; atoll() {{ \"$ATOLL\" \"$@\"; }}; {command}");
    let shell = internet::on_internet(world, "sh -c \"$1\"")
        .arg("sh")
        .arg(line);
    shell.within(LONG).run().out()
}

/// The page's commands in its order, for a user who has nothing but the program.
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

/// Runs a command of the page at a terminal, with an approval.
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

/// The settings that the page shows are read, and have the meaning that it states.
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
            "of-a-cluster",
            ["service-account = \"reader\"", "[credential.cluster]"],
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
    for name in pages().into_iter().chain(["README.md".to_owned()]) {
        for part in document(&name).split('`').skip(1).step_by(2) {
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
fn the_commands_about_checks_work() {
    let world = World::new("the_commands_about_checks_work");
    let text = document("docs/apply.md");
    let profile = text.split("```toml\n").nth(1);
    let profile = profile.and_then(|rest| rest.split("```").next()).unwrap();
    // A host may have no Rust.
    assert!(profile.contains("\"cargo test\""), "{profile}");
    world.write(
        "checked.toml",
        profile.replace("cargo test", "test \\\"$(cat answer)\\\" = 4"),
    );
    world.write("lint.sh", "");
    let block = text.split("```console\n").nth(2);
    let block = block.and_then(|rest| rest.split("```").next());
    let commands = transcript(block.unwrap_or_default());
    assert_eq!(commands.len(), 2, "{commands:?}");
    for (command, _) in commands {
        let command = format!("PATH=$(dirname \"$ATOLL\"):$PATH; {command}");
        let _ = world.host_shell(&command).run().success();
    }
    assert_eq!(world.read("answer"), "4\n");
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
fn the_commands_about_artifacts_work() {
    let world = World::new("the_commands_about_artifacts_work");
    let text = document("docs/artifacts.md");
    let block = text.split("```console\n").nth(1);
    let block = block.and_then(|rest| rest.split("```").next());
    let commands = transcript(block.unwrap_or_default());
    assert!(commands.len() > 4, "{commands:?}");
    // A host may have no jq: its one use here is to read an id.
    let jq = "jq() { python3 -c 'import json, sys; print(json.load(sys.stdin)[0][\"id\"])'; }";
    for (command, _) in commands {
        let command = format!("{jq}; PATH=$(dirname \"$ATOLL\"):$PATH; {command}");
        let outcome = world.host_shell(&command).run().success();
        if command.contains(" get ") {
            assert_eq!(outcome.out(), "42 rows\n");
        }
    }
    assert_eq!(
        world.read(world.workspace().join("report.txt")),
        "42 rows\n"
    );
}

#[test]
fn the_commands_about_checkpoints_work() {
    let world = World::new("the_commands_about_checkpoints_work");
    let text = document("docs/checkpoints.md");
    let block = text.split("```console\n").nth(1);
    let block = block.and_then(|rest| rest.split("```").next());
    let commands = transcript(block.unwrap_or_default());
    assert!(commands.len() > 4, "{commands:?}");
    let jq = "jq() { python3 -c 'import json, sys; print(json.load(sys.stdin)[0][\"id\"])'; }";
    for (command, _) in commands {
        let command = format!("{jq}; PATH=$(dirname \"$ATOLL\"):$PATH; {command}");
        let _ = world.host_shell(&command).run().success();
    }
    assert_eq!(world.read("site/page"), "1\n");
    assert_eq!(world.read("site/other"), "mine\n");
    // The tools that the page describes are some.
    let tools = text.split("```toml\n").nth(1).unwrap();
    let tools = tools.split("```").next().unwrap();
    world.write(world.config().join("atoll/tools.toml"), tools);
    let _ = world.atoll(["tools", "check"]).run().success();
    let rule = text.split("```cedar\n").nth(1).unwrap();
    let rule = rule.split("```").next().unwrap();
    world.write(world.config().join("atoll/own.cedar"), rule);
    let asked = world
        .atoll(["tools", "call", "migrate", "--dry-run"])
        .run()
        .success();
    assert!(asked.out().starts_with("allow"), "{asked}");
}

#[test]
fn the_commands_about_retention_work() {
    let world = World::new("the_commands_about_retention_work");
    let text = document("docs/retention.md");
    let commands = transcript(blocks(&text, "console").first().unwrap());
    assert!(commands.len() > 7, "{commands:?}");
    for (command, _) in commands {
        let command = format!("PATH=$(dirname \"$ATOLL\"):$PATH; {command}");
        let _ = world.host_shell(&command).run().success();
    }
    // What is held was kept, and what it sets down is a rule.
    assert_eq!(world.runs().len(), 1);
    let rules = world.config().join("atoll/retention.toml");
    world.write(rules, blocks(&text, "toml").first().unwrap());
    let _ = world.atoll(["gc", "--dry-run"]).run().success();
}

#[test]
fn the_commands_about_shadow_runs_work() {
    let world = World::new("the_commands_about_shadow_runs_work");
    let text = document("docs/shadow.md");
    let [tools, upstreams] = blocks(&text, "toml")[..] else {
        panic!("the page has a tool and upstreams");
    };
    world.write(world.config().join("atoll/tools.toml"), tools);
    let [rule] = blocks(&text, "cedar")[..] else {
        panic!("the page has one rule");
    };
    world.write(world.config().join("atoll/own.cedar"), rule);
    let commands = blocks(&text, "console");
    let commands: Vec<_> = commands.into_iter().flat_map(transcript).collect();
    assert_eq!(commands.len(), 3, "{commands:?}");
    for (command, _) in commands {
        let script = format!("PATH=$(dirname \"$ATOLL\"):$PATH; {command}");
        let _ = world.host_shell(&script).run().success();
    }
    assert_eq!(world.read("notes.txt"), "two\n");
    // The upstreams that the page describes are some.
    let document = "openapi: 3.0.3\ninfo: { title: T, version: \"1\" }\npaths: {}\n";
    world.write(world.config().join("atoll/tickets.yaml"), document);
    world.write(world.config().join("atoll/tools.toml"), upstreams);
    let _ = world.atoll(["tools", "check"]).run().success();
}

#[test]
fn commands_of_execs_work() {
    let world = World::new("commands_of_execs_work");
    world.write(world.workspace().join("here"), "outside\n");
    let text = document("docs/exec.md");
    let block = text.split("```console\n").nth(1);
    let block = block.and_then(|rest| rest.split("```").next());
    let commands = transcript(block.unwrap_or_default());
    assert_eq!(commands.len(), 4, "{commands:?}");
    let script = "echo changed > made; echo up; while [ ! -e done ]; do sleep 0.05; done";
    let running = world
        .atoll(["run", "--keep", "--", "sh", "-c", script])
        .start();
    running.until_stdout("up");
    let shown: Vec<String> = commands
        .iter()
        .map(|(command, _)| {
            let command = format!("PATH=$(dirname \"$ATOLL\"):$PATH; {command}");
            world.host_shell(&command).run().success().out()
        })
        .collect();
    for (shown, expected) in shown.iter().zip(["here\nmade\n", "1\n", "/tmp\n", "made"]) {
        assert!(shown.contains(expected), "{shown:?}");
    }
    let _ = world.atoll(["stop", "last"]).run().success();
    let _ = running.wait();
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
    // What this host gives, as a run has it.
    let summary = world.path("summary.json");
    let run = world.run(["--json", summary.to_str().expect("text")], "true");
    let _ = run.run().success();
    let given: serde_json::Value = serde_json::from_str(&world.read(summary)).expect("JSON");
    let held = given["limits-held-by"].as_array().expect("a list").iter();
    // A file system's use is watched on every host, and can be passed for a moment.
    let weaker = held
        .filter(|one| one["limit"] != "disk" && one["limit"] != "inodes")
        .filter_map(|one| one["by"].as_str())
        .any(|by| by == "none" || by.ends_with(", in part"));
    let expected = i32::from(given["mode"] != "full" || weaker);
    let mut ran = 0;
    for command in commands {
        if command.contains("sudo") {
            // In a guest that has AppArmor, by the tests of guests.
            assert!(command.contains("apparmor"), "{command}");
            continue;
        }
        let script = format!("PATH=$(dirname \"$ATOLL\"):$PATH; {command}");
        let ended = world.host_shell(&script).run().expect_status(expected);
        assert!(!ended.out().is_empty(), "{command}: {given:#}: {ended}");
        ran += 1;
    }
    assert_eq!(ran, 1);
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

/// Returns whether a test opens this page by its name.
fn is_opened(page: &str, sources: &[String]) -> bool {
    let by_name = [
        format!("document(\"{page}\")"),
        format!("join(\"../../{page}\")"),
        format!("include_str!(\"../../../{page}\")"),
    ];
    let is_of_an_agent = |source: &String| {
        let name = page.strip_prefix("docs/agents/");
        let name = name.and_then(|name| name.strip_suffix(".md"));
        let opens = ["docs/agents/{", "agent}.md"].concat();
        name.is_some_and(|name| source.contains(&format!("\"{name}\""))) && source.contains(&opens)
    };
    let opens = |source: &String| by_name.iter().any(|opening| source.contains(opening));
    sources
        .iter()
        .any(|source| opens(source) || is_of_an_agent(source))
}

/// Returns the sources beneath a directory of the project.
fn sources(directory: &str) -> Vec<String> {
    let directory = project().join(directory);
    let files = e2e::tree(&directory).into_keys();
    let files = files.filter(|path| path.extension().is_some_and(|end| end == "rs"));
    files
        .map(|path| std::fs::read_to_string(directory.join(path)).expect("a source"))
        .collect()
}

/// Every description, policy and command of the page, as they stand there.
#[test]
fn page_on_tools_works() {
    let world = World::new("page_on_tools_works");
    world.write("README.md", "one two three\n");
    let text = document("docs/tools.md");
    let note = "[tool.note]\ndescription = \"Notes.\"\nkind = \"command\"\ncommand = [\"cat\"]\n\
                stdin = \"{*}\"\neffect = \"write\"\narguments.properties.count.type = \"integer\"\n";
    let described = blocks(&text, "toml");
    assert_eq!(described.len(), 9, "{described:?}");
    let of_upstream = |block: &&str| block.contains("[upstream.");
    let (upstream, tools): (Vec<_>, Vec<_>) = described.into_iter().partition(of_upstream);
    world.write(
        world.config().join("atoll/tools.toml"),
        format!("{note}\n{}", tools.join("\n")),
    );
    let [policies] = blocks(&text, "cedar")[..] else {
        panic!("the page has one block of policies");
    };
    // As the page says, a permit of one's own closes all else.
    let others = "permit(principal, action == Action::\"call\", resource);";
    world.write(
        world.config().join("atoll/own.cedar"),
        format!("{policies}\n{others}\n"),
    );
    let commands: Vec<_> = blocks(&text, "console")
        .into_iter()
        .flat_map(transcript)
        .collect();
    assert_eq!(commands.len(), 11, "{commands:?}");
    for (command, _) in &commands {
        let script = format!("PATH=$(dirname \"$ATOLL\"):$PATH; {command}");
        let _ = world.host_shell(&script).run().success();
    }
    let counted = shell(&world, "atoll tools call count_words path=README.md");
    assert_eq!(counted, "3 README.md\n");
    let asked = ["tools", "call", "note", "count=3", "--dry-run"];
    let asked = world.atoll(asked).run().success();
    assert!(asked.to_string().contains("small-notes"), "{asked}");
    world.write(
        world.config().join("atoll/tools/upstream.toml"),
        upstream.join("\n"),
    );
    let pets = include_str!("tool_upstreams/pets.yaml");
    world.write(world.config().join("atoll/tools/pets.yaml"), pets);
    for name in ["pets", "shop"] {
        world.profile(name, "");
    }
    let checked = world.atoll(["tools", "check"]).run().expect_status(1);
    assert!(checked.out().contains("atoll tools pin git"), "{checked}");
    assert_eq!(checked.out().lines().count(), 1, "{checked}");
    let listed = world.atoll(["tools", "list"]).run().success();
    for name in ["pets__listPets", "pets__addPet", "shop__query"] {
        assert!(listed.out().contains(name), "{listed}");
    }
}

#[test]
fn every_page_is_opened_by_a_test() {
    let sources = sources("crates/e2e/tests");
    assert!(!is_opened("docs/another.md", &sources));
    let mut unopened = pages();
    unopened.retain(|page| !is_opened(page, &sources));
    assert!(unopened.is_empty(), "no test opens {unopened:?}");
}

#[test]
fn the_tests_that_the_page_on_takeovers_names_exist() {
    let page = document("docs/takeover.md");
    let rows = page.lines().filter(|line| line.starts_with("| tests |"));
    let names: Vec<&str> = rows
        .flat_map(|row| row.split('`').skip(1).step_by(2))
        .collect();
    assert!(names.len() >= 10, "{names:?}");
    let sources = sources("crates");
    for name in names {
        let is_there = |source: &String| source.contains(&format!("fn {name}()"));
        assert!(sources.iter().any(is_there), "{name}");
    }
}

/// The page documents every member of the document that a run writes.
#[test]
fn the_page_on_outcomes_names_every_member() {
    let world = World::new("the_page_on_outcomes_names_every_member");
    let page = document("docs/outcome.md");
    let summary = world.top().join("summary.json");
    for (profile, code) in [("default", 0), ("nobody-wrote-this", 125)] {
        let run = world.atoll(["run", "--profile", profile, "--json"]);
        let run = run.arg(&summary).args(["--", "true"]);
        let _ = run.run().expect_status(code);
        let told: serde_json::Value = serde_json::from_str(&world.read(&summary)).expect("JSON");
        let mut names: Vec<&String> = told.as_object().expect("an object").keys().collect();
        assert!(names.len() >= 6, "{told:#}");
        names.retain(|name| !page.contains(&format!("`{name}`")));
        assert!(names.is_empty(), "{profile}: {names:?}: {told:#}");
    }
}

#[test]
fn the_page_on_attempts_names_what_a_run_records() {
    let world = World::new("the_page_on_attempts_names_what_a_run_records");
    let page = document("docs/attempts.md");
    let summary = world.top().join("summary.json");
    let run = world
        .atoll(["run", "--discard", "--json"])
        .arg(&summary)
        .args([
            "--",
            "sh",
            "-c",
            "mount -t tmpfs none /mnt; unshare --user true; true",
        ]);
    let _ = run.run().success();
    let told: serde_json::Value = serde_json::from_str(&world.read(&summary)).expect("JSON");
    let attempts = told["attempts"].as_array().expect("a list");
    assert_eq!(attempts.len(), 2, "{told:#}");
    for attempt in attempts {
        let text = |name: &str| attempt[name].as_str().expect("text").to_owned();
        let wall = format!("| `{}` |", text("wall"));
        let row = page.lines().find(|line| line.starts_with(&wall));
        let row = row.unwrap_or_else(|| panic!("{attempt:#}"));
        for name in ["call", "atlas"] {
            assert!(row.contains(&text(name)), "{row}: {attempt:#}");
        }
    }
}

#[test]
fn what_the_page_on_profiles_writes_is_read() {
    let world = World::new("what_the_page_on_profiles_writes_is_read");
    let page = document("docs/profiles.md");
    let written = blocks(&page, "toml");
    assert_eq!(written.len(), 3);
    let [own, organisation, project] = written[..] else {
        unreachable!()
    };
    world.profile("service", own);
    let shown = shell(&world, "atoll profile show service");
    for line in ["memory = \"4GiB\"", "wall-clock = \"30m\"", "/srv/fixtures"] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    world.write("atoll.toml", project);
    let trusted = shell(&world, "exec 2>&1; atoll trust && atoll profile show");
    for line in ["RUST_BACKTRACE", "uploads.example.com", ".gitconfig"] {
        assert!(trusted.contains(line), "{line}: {trusted}");
    }
    // Where `/etc/atoll` is another one.
    world.write("acme/organisation.toml", organisation);
    let own = "mkdir ../etc && cp -R /etc/. ../etc/ 2>/dev/null; mkdir -p ../etc/atoll && \
               cp acme/organisation.toml ../etc/atoll/ && mount --bind ../etc /etc && \
               \"$ATOLL\" profile show service";
    let told = world.mount_shell(own).run().success().out();
    for line in ["pastebin.com", "deploy.example.com"] {
        assert!(told.contains(line), "{line}: {told}");
    }
    assert!(!shown.contains("pastebin.com"), "{shown}");
}

#[test]
fn the_commands_of_the_page_on_ledgers_work() {
    let world = World::new("the_commands_of_the_page_on_ledgers_work");
    let page = document("docs/ledger.md");
    let session = ["--session", "fix-login", "--no-tty"];
    let _ = world.run(session, "true").run().success();
    let commands = page
        .lines()
        .filter_map(|line| line.strip_prefix("    atoll "));
    let commands: Vec<&str> = commands.map(without_remark).collect();
    assert!(commands.len() >= 8, "{commands:?}");
    for command in commands {
        let ended = world.atoll(command.split_whitespace()).run();
        let _ = ended.success();
    }
    if !program_exists("python3") {
        return world.skip("python3 is not installed", e2e::Avoidable::Yes);
    }
    let written = blocks(&page, "python");
    let verified = world.host("python3").args(["-c", written[0]]);
    let verified = verified.arg(world.state().join("atoll/ledger"));
    let events = e2e::traces::events(&world).len();
    let told = verified.run().success().out();
    assert!(
        told.starts_with(&format!("{events} events, root ")),
        "{told}"
    );
}

#[test]
fn the_page_on_the_network_inside_says_what_is_answered() {
    let world = World::new("the_page_on_the_network_inside_says_what_is_answered");
    if !internet::is_possible(&world, &["openssl"]) {
        return;
    }
    let page = document("docs/network-inside.md");
    let written: serde_json::Value = serde_json::from_str(blocks(&page, "json")[0]).expect("JSON");
    let options = ["--allow", "GET http://example.com/**"];
    let ask = "curl -sS --noproxy '*' -d x http://example.com/issues";
    let seen = internet::online(&world, &options, ask);
    let told = seen.outcome.json();
    let names = |object: &serde_json::Value| {
        let members = object.as_object().expect("an object");
        members.keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(names(&told), names(&written), "{told}");
    assert_eq!(told["why"], written["why"], "{told}");
    // The variables for programs that insist, then a command for names alone.
    let lines: Vec<&str> = blocks(&page, "")[0].lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    for (line, more) in [(lines[0], "curl -sS"), (lines[1], "")] {
        let line = line.replace("https://example.com/", "http://example.com/");
        let script = match more {
            "" => line,
            more => format!("{line} {more} http://example.com/"),
        };
        let seen = internet::online(&world, &options, &script);
        assert_eq!(seen.output(), "this is 93.184.216.34", "{}", seen.outcome);
    }
}

#[test]
fn the_commands_of_the_page_on_giving_up_work() {
    let world = World::new("the_commands_of_the_page_on_giving_up_work");
    if !internet::is_possible(&world, &[]) {
        return;
    }
    let page = document("docs/restrict.md");
    let written = blocks(&page, "");
    let lines = |block: &str| -> Vec<String> {
        let lines = block.lines().map(without_remark);
        lines.map(str::to_owned).collect()
    };
    let (outside, inside) = (lines(written[0]), lines(written[1]));
    assert_eq!((outside.len(), inside.len()), (4, 4), "{written:?}");
    let profile = "[network]\nallow = [\"example.com\", \"api.github.com\"]\n\
                   [credential.github]\nsource = { environment = \"TOKEN\" }\n\
                   to = \"api.github.com\"\nplace = { header = \"authorization\" }\n";
    world.profile("bound", profile);
    let asked = |line: &String| {
        let line = line.replace(
            "curl ",
            "curl -sS --noproxy '*' -o answer -w '%{http_code}' ",
        );
        format!("echo \"inside $({line})\"")
    };
    let inside: Vec<String> = inside.iter().map(asked).collect();
    let said = |line: &String| format!("{line}; echo \"outside $?\"");
    let outside: Vec<String> = outside.iter().map(said).collect();
    let wait = "until test -e done; do sleep 0.05; done";
    for (script, then, by, expected) in [
        (
            format!("touch begun; {wait}"),
            outside.join("\n"),
            "person",
            "outside 0",
        ),
        (
            format!("{}\ntouch begun; {wait}", inside.join("\n")),
            String::new(),
            "program",
            "inside 200",
        ),
    ] {
        let typed = format!(
            "exec 2>&1; rm -f begun done; atoll() {{ \"$ATOLL\" \"$@\"; }}; export TOKEN=a-token-of-somebody; \
             atoll run --live --profile bound -- sh -c \"$1\" & until test -e begun; do sleep 0.05; done\n\
             {then}\ntouch done; wait"
        );
        let shell = internet::on_internet(&world, "sh -c \"$1\" sh \"$2\"")
            .arg("sh")
            .args([typed, script]);
        let seen = shell.within(LONG).run();
        let told = seen.out();
        let came = told.lines().filter(|line| *line == expected).count();
        assert_eq!(came, 4, "{by}: {seen}");
        let given = internet::events(&world, "rights.given-up");
        let text = serde_json::to_string(&given).expect("JSON");
        for what in ["*.example.com", "github", "until", "network"] {
            assert!(text.contains(what), "{by}: {what}: {text}");
        }
        assert!(given.iter().all(|one| one["by"] == by), "{text}");
    }
}
