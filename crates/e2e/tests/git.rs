//! git with what no sandbox holds: passwords that are put in outside, keys that sign outside.
//! Real git, real servers, in a sandbox, and for an ordinary user in a fence too.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::fs;
use std::time::Duration;

use e2e::internet::{events, is_possible, on_servers, without_namespaces};
use e2e::{Outcome, World, id, is_root};

const LONG: Duration = Duration::from_secs(180);
const SERVERS: &str = include_str!("clients/servers.py");
/// The certificates of all that these servers are.
const NAMES: &[&str] = &["git.example"];
/// What the server demands.
const REAL: &str = "ghp_r3alP4ssw0rdOfTh1sT3stN0bodyS33s1t00";

/// Runs a shell script inside where the servers are: in a sandbox, and then for an ordinary
/// user in a fence. What came of each is checked. `before` is shell that runs outside first.
fn everywhere(world: &World, before: &str, script: &str, check: impl Fn(&Outcome)) {
    let fenced = without_namespaces(world);
    let run = |atoll: &str| {
        let script_at = world.top().join("script.sh");
        fs::write(&script_at, script).unwrap();
        let text = format!(
            "{before}\nscript=$(cat '{}')\nexec {atoll} run --discard --profile bound -- sh -c \"$script\"\n",
            script_at.display()
        );
        let path = world.top().join("outside.sh");
        fs::write(&path, text).unwrap();
        let run = on_servers(world, SERVERS, NAMES, &format!("sh '{}'", path.display()));
        let run = run.env("SERVERS", "git").env("FENCED", &fenced);
        let run = run.env("GIT_PASSWORD", REAL);
        let run = run.env("CLIENT_ID", id().0.to_string());
        run.env("INTERNET_PORTS", "7").within(LONG).run()
    };
    check(&run("\"$ATOLL\""));
    if !is_root() {
        let outcome = run("\"$FENCED\"");
        let _ = outcome.says(["only fenced in"]);
        check(&outcome);
    }
}

/// What the servers have written down under a name.
fn noted(world: &World, name: &str) -> String {
    fs::read_to_string(world.top().join("internet").join(name)).unwrap_or_default()
}

const COMMIT: &str = "git -c user.name=a -c user.email=a@example.com commit -q --allow-empty";

const BOUND: &str = r#"
[network]
allow = [{ preset = "git-push", repositories = ["git.example/repo"] }]

[credential.git]
source = { environment = "HUB_TOKEN" }
to = "git.example"
place = { basic = "*" }
"#;

#[test]
fn git_finds_its_password_and_pushes_to_what_is_named_alone() {
    let name = "git_finds_its_password_and_pushes_to_what_is_named_alone";
    let world = World::new(name);
    if !is_possible(&world, &["openssl", "git", "sshd"]) {
        return;
    }
    world.profile(
        "bound",
        &format!("{BOUND}\n[git]\nhttps-for-ssh = ['git.example']\n"),
    );
    let before = format!("export HUB_TOKEN={REAL}; unset GIT_PASSWORD");
    let script = format!(
        "export GIT_TERMINAL_PROMPT=0; git clone -q https://git.example/repo.git here && cd here && cat file && \
         {COMMIT} -m second && git push -q origin main && git rev-parse HEAD; \
         git ls-remote -q git@git.example:repo.git main | wc -l; \
         git fetch -q ssh://git@git.example/repo.git && echo fetched; \
         git push -q https://git.example/other.git main 2>&1 | grep -o 403 | head -1; \
         env; git config --show-origin --get-regexp . ; cat .git/config"
    );
    everywhere(&world, &before, &script, |outcome| {
        let told = outcome.out();
        let lines: Vec<&str> = told.lines().collect();
        assert!(lines.len() > 5, "{outcome}");
        assert_eq!(lines[0], "first", "{outcome}");
        assert_eq!(lines[2..5], ["1", "fetched", "403"], "{outcome}");
        assert!(!told.contains(REAL), "{outcome}");
        assert!(told.contains("HUB_TOKEN=ghp_"), "{outcome}");
        // What was pushed is there.
        let refs = noted(&world, "refs");
        assert!(
            refs.starts_with(&format!("{} commit\trefs/heads/main", lines[1])),
            "{refs} {outcome}"
        );
        let requests = noted(&world, "requests");
        assert!(!requests.contains("/other.git"), "{requests}");
        let opened = events(&world, "flow.opened");
        let with = opened.iter().filter(|one| one["credential"] == "git");
        assert!(with.count() >= 4, "{opened:?}");
    });
    // Without the credential the same server gives nothing.
    let open = BOUND.split("[credential").next().unwrap();
    world.profile("bound", open);
    everywhere(&world, "unset GIT_PASSWORD", &script, |outcome| {
        assert!(!outcome.out().contains("first"), "{outcome}");
        assert!(!noted(&world, "requests").is_empty());
    });
}
