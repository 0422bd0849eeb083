//! Tunnels, which nobody inspects, in a run with a credential: the placeholder does not leave by
//! one, and the real value does not come back by one.

use std::fs;

use e2e::internet::{events, is_possible, on_servers};
use e2e::{Outcome, World};

const SERVERS: &str = include_str!("tunnels/servers.py");
const SAY: &str = include_str!("tunnels/say.py");
/// The key that the servers know.
const REAL: &str = "ghp_r3alK3yOfTunn3lsTh4tN0bodyM4yS33in00";
const BLOCKED: &str =
    "Blocked: placeholder sent to a host that the credential is not bound to (credential github";
const NETWORK: &str = r#"
[network]
allow = [
    { to = "tunnel.example:7000", carry = "tunnel" },
    { to = "tunnel.example:7001", carry = "tunnel", upload = "50MiB", rate = "50MiB/s" },
    { to = "tunnel.example:7002", carry = "tunnel" },
    { to = "93.184.216.38:7000", carry = "tunnel" },
]
"#;
const CREDENTIAL: &str = r#"
[credential.github]
source = { environment = "GITHUB_TOKEN" }
to = "example.com"
place = { header = "authorization" }
"#;

fn online(world: &World, script: &str) -> Outcome {
    let command = "sh -c 'GITHUB_TOKEN=$(cat \"$REAL\"); export GITHUB_TOKEN; exec \"$ATOLL\" run --discard \"$@\"' sh \"$@\"";
    let run = on_servers(world, SERVERS, &["tunnel.example"], command);
    let run = run.env("REAL", world.top().join("real"));
    run.args(["sh", "--profile", "bound", "--", "sh", "-c", script])
        .run()
}

/// Returns the data that has reached the servers, whatever bytes it was.
fn recorded(world: &World) -> Vec<Vec<u8>> {
    let path = world.top().join("internet/recorded");
    let text = fs::read_to_string(path).unwrap_or_default();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let line = |line: &str| line.as_bytes().chunks(2).map(byte).collect();
    text.lines().map(line).collect()
}

fn holds(all: &[Vec<u8>], part: &str) -> bool {
    let part = part.as_bytes();
    let mut all = all.iter();
    all.any(|one| one.windows(part.len()).any(|window| window == part))
}

/// Returns the rows of the program in the sandbox.
fn rows() -> Vec<&'static str> {
    let row = |line: &'static str| line.strip_prefix("    (\"")?.split('"').next();
    let rows: Vec<&str> = SAY.lines().filter_map(row).collect();
    assert!(rows.len() > 12, "{rows:?}");
    rows
}

#[test]
fn a_placeholder_leaves_by_no_tunnel_and_no_real_value_comes_back() {
    let name = "a_placeholder_leaves_by_no_tunnel_and_no_real_value_comes_back";
    let world = World::new(name);
    world.profile("bound", &format!("{NETWORK}{CREDENTIAL}"));
    world.write(world.top().join("real"), REAL);
    world.canary(REAL, &["real"]);
    world.write("say.py", SAY);
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    let script = "echo \"is $GITHUB_TOKEN\"; python3 say.py \"$GITHUB_TOKEN\"";
    let outcome = online(&world, script).success();
    let out = outcome.out();
    let placeholder = out.lines().find_map(|line| line.strip_prefix("is "));
    let placeholder = placeholder.unwrap();
    let reached = recorded(&world);
    for row in rows() {
        let told = format!("{row} not");
        assert!(out.lines().any(|line| line == told), "{told}: {outcome}");
    }
    let hexadecimal = |text: &str| -> String {
        let digits = text.bytes().map(|byte| format!("{byte:02x}"));
        digits.collect()
    };
    for form in [placeholder.to_owned(), hexadecimal(placeholder)] {
        assert!(!holds(&reached, &form), "{reached:?}");
    }
    // What the server tells is what stands for it, as long as that; a pause changes nothing.
    for line in ["+key ", "+split "] {
        assert!(out.contains(&format!("{line}{placeholder}")), "{outcome}");
    }
    let told = format!("+hex {}", hexadecimal(placeholder));
    assert!(out.contains(&told), "{outcome}");
    assert!(!out.contains(REAL), "{outcome}");
    assert!(!out.contains(&hexadecimal(REAL)), "{outcome}");
    assert!(
        out.contains("typed ls -l; a longer command than that\n"),
        "{outcome}"
    );
    // Each of them is told of.
    let refused = events(&world, "flow.refused");
    for place in ["tunnel.example", "93.184.216.38"] {
        let is_it = |one: &&serde_json::Value| {
            let why = one["why"].as_str().unwrap_or_default();
            one["credential"] == "github"
                && one["host"] == place
                && one["kind"] == "tunnel"
                && why.contains(BLOCKED)
        };
        assert!(refused.iter().any(|one| is_it(&one)), "{refused:?}");
    }
    assert!(outcome.err().contains("alert"), "{outcome}");
    let why = world.atoll(["why", "last"]).run().success();
    let words: Vec<String> = why.out().split_whitespace().map(str::to_owned).collect();
    assert!(words.join(" ").contains(BLOCKED), "{why}");
    let closed = format!("{:?}", events(&world, "flow.closed"));
    assert!(closed.contains("in what the program sends"), "{closed}");

    // The control: another text of its length goes all these ways.
    let other: String = placeholder.chars().rev().collect();
    let outcome = online(&world, &format!("python3 say.py '{other}'")).success();
    let all_come_back = |outcome: &Outcome| {
        for row in rows() {
            let told = format!("{row} came back");
            let out = outcome.out();
            assert!(out.lines().any(|line| line == told), "{told}: {outcome}");
        }
    };
    all_come_back(&outcome);
    assert!(holds(&recorded(&world), &other));
    assert!(!outcome.err().contains("alert"), "{outcome}");
    // And the same text, in a run without the credential; so does the real value come back.
    world.profile("bound", NETWORK);
    let script = format!(
        "python3 say.py '{placeholder}' >out; grep -v '^+' out; grep -c '^+key ghp_r3' out"
    );
    let outcome = online(&world, &script).success();
    all_come_back(&outcome);
    assert!(outcome.out().ends_with("\n1\n"), "{outcome}");
    assert!(holds(&recorded(&world), placeholder));
}
