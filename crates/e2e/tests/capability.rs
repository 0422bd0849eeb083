//! Runs that hold capability tokens: every request that is sent is carried by each of them, and
//! allowed by policies too.

use std::fs;
use std::time::Duration;

use e2e::World;
use e2e::internet::{Seen, events, is_possible, on_internet};

const OUTSIDE: &str = include_str!("capability/outside.py");

/// Has a person act out a scene.
fn scene(world: &World, scene: &str) -> Seen {
    let outside = world.top().join("outside.py");
    fs::write(&outside, OUTSIDE).unwrap();
    let command = format!("python3 '{}' \"$@\"", outside.display());
    let run = on_internet(world, &command).args(["sh", scene]);
    Seen::of(world, run.within(Duration::from_secs(300)).run())
}

fn check(seen: &Seen, lines: &[&str]) {
    let out = seen.output();
    for line in lines {
        let is_there = out.lines().any(|one| one == *line);
        assert!(is_there, "{line}: {}", seen.outcome);
    }
}

#[test]
fn what_leaves_has_to_be_carried_by_the_token_and_allowed_by_rules() {
    let world = World::new("what_leaves_has_to_be_carried_by_the_token_and_allowed_by_rules");
    if !is_possible(&world, &[]) {
        return;
    }
    let seen = scene(&world, "carried");
    check(
        &seen,
        &[
            "without 0 200 200 200 200",
            "wide 0 200 403 200 200",
            "narrow failed 200 403 403 000",
            "both 0 200 403 200 200",
            "unruled failed 000",
            "port 126",
            "published 0",
            "ledger False",
        ],
    );
    let out = seen.output();
    let why = out.lines().find(|line| line.starts_with("why")).unwrap();
    assert!(
        why.contains("403") && why.contains("the token does not carry it"),
        "{out}"
    );
    assert_eq!(seen.first.matches("GET /no ").count(), 1, "{}", seen.first);
    let opened = &events(&world, "run.opened")[0]["decision"]["tokens"][0];
    assert_eq!(opened["ids"].as_array().unwrap().len(), 1, "{opened}");
    assert_eq!(opened["sha256"].as_str().unwrap().len(), 64, "{opened}");
}

#[test]
fn a_token_counts_for_its_session_and_workspace_and_with_its_deployments_key() {
    let world =
        World::new("a_token_counts_for_its_session_and_workspace_and_with_its_deployments_key");
    if !is_possible(&world, &[]) {
        return;
    }
    let seen = scene(&world, "replayed");
    check(
        &seen,
        &[
            "session 0 200",
            "another 126",
            "none 126",
            "workspace 0 200",
            "elsewhere 126",
            "other-key 126",
            "changed 126",
            "huge 126",
        ],
    );
}

#[test]
fn what_is_open_ends_with_its_token() {
    let world = World::new("what_is_open_ends_with_its_token");
    if !is_possible(&world, &[]) {
        return;
    }
    let seen = scene(&world, "ended");
    check(
        &seen,
        &[
            "ended failed 200 tunnel ended True 000",
            "again 126",
            "said True",
            "why True True",
        ],
    );
}

#[test]
fn revoking_a_token_ends_what_runs_with_one_that_was_made_from_it() {
    let world = World::new("revoking_a_token_ends_what_runs_with_one_that_was_made_from_it");
    if !is_possible(&world, &[]) {
        return;
    }
    let seen = scene(&world, "revoked");
    check(
        &seen,
        &[
            "revoke 0",
            "revoked failed 200 tunnel ended True 000",
            "again 126",
            "said True",
            "beside 0 200",
            "shown 1 0",
        ],
    );
}

#[test]
fn what_a_person_gives_up_lasts_though_the_token_was_over() {
    let world = World::new("what_a_person_gives_up_lasts_though_the_token_was_over");
    if !is_possible(&world, &[]) {
        return;
    }
    let seen = scene(&world, "lasting");
    check(
        &seen,
        &[
            "given 0 False",
            "first 0",
            "later failed 000",
            "control 0 200",
        ],
    );
}

#[test]
fn what_is_wrong_about_a_token_is_told_before_it_is_of_no_use() {
    let world = World::new("what_is_wrong_about_a_token_is_told_before_it_is_of_no_use");
    let at = |script: &str| world.host_shell(&format!("cd \"$HOME\"; {script}")).run();
    let none = at("\"$ATOLL\" token key").expect_status(125);
    none.is_clear_error(["no token was issued here", "try: atoll token issue"]);
    let issued = "\"$ATOLL\" token issue --allow 'connect a.example:443' --until 1h >wide";
    let _ = at(issued).success();
    assert_eq!(at("\"$ATOLL\" token key").success().out().trim().len(), 64);
    // What narrows it to nothing, or says more than it has.
    let narrowed = |more: &str| {
        let script = format!("\"$ATOLL\" token attenuate wide {more} >narrow");
        at(&script).success().err()
    };
    let lost = narrowed("--allow 'connect b.example:443'");
    assert!(
        lost.contains("the token before does not carry 'connect b.example:443'"),
        "{lost}"
    );
    assert!(
        lost.contains("the narrower token carries nothing"),
        "{lost}"
    );
    let nothing = at("\"$ATOLL\" token show narrow").expect_status(1).out();
    assert!(
        nothing.contains("It does not count: no right is in all of its blocks"),
        "{nothing}"
    );
    let part =
        narrowed("--allow 'connect b.example:443' --allow 'request GET https://a.example/*'");
    assert!(
        part.contains("does not carry 'connect b.example:443'"),
        "{part}"
    );
    assert!(
        !part.contains("carries nothing") && !part.contains("a.example/"),
        "{part}"
    );
    let shown = at("\"$ATOLL\" token show narrow").success().out();
    assert!(
        shown.contains("It counts, for request GET https://a.example/*, until "),
        "{shown}"
    );
    let longer = narrowed("--until 2h");
    assert!(
        longer.contains("the token before ends earlier, at "),
        "{longer}"
    );
    // The controls: what is narrower says nothing, and the first block says why it begins so.
    assert_eq!(narrowed("--until 10m --allow 'connect a.example:443'"), "");
    let shown = at("\"$ATOLL\" token show wide").success().out();
    assert!(shown.contains("(a minute before it was issued"), "{shown}");
    let absent = at("\"$ATOLL\" token issue --allow 'publish 1' --workspace /nonexist");
    let absent = absent.expect_status(125);
    absent.is_clear_error(["--workspace /nonexist is not usable"]);
    // Which of several files is wrong is told.
    let wrong = |script: &str, told: &str| {
        let wrong = at(&format!("echo none >wrong; \"$ATOLL\" {script}"));
        assert_ne!(wrong.code(), 0, "{wrong}");
        wrong.is_clear_error([told]);
    };
    wrong(
        "token attenuate wrong --until 1m",
        "the token in wrong is not narrowed",
    );
    wrong("token revoke wrong", "the token in wrong is not revoked");
    wrong(
        "run --token wide --token wrong -- true",
        "--token wrong is not usable",
    );
    // A token that lies in the workspace is the program's as well.
    let _ = at(&format!(
        "cp wide '{}'",
        world.workspace().join("inside").display()
    ))
    .success();
    let seen = |path: &str| {
        world
            .atoll(["run", "--discard", "--token", path, "--", "true"])
            .run()
    };
    let inside = seen(&world.workspace().join("inside").display().to_string()).success();
    assert!(inside.err().contains("lies in the workspace"), "{inside}");
    let outside = seen(&world.home().join("wide").display().to_string()).success();
    assert!(
        !outside.err().contains("lies in the workspace"),
        "{outside}"
    );
    let why = world.atoll(["why", "last"]).run().success().out();
    assert!(
        why.contains("token") && why.contains("(atoll token list)"),
        "{why}"
    );
}

/// A token for a single run counts in the first that holds it, and in no other: not later, not at
/// the same time, and not by a token made from it.
#[test]
fn a_token_of_one_run_counts_in_the_first_alone() {
    let world = World::new("a_token_of_one_run_counts_in_the_first_alone");
    let token = |name: &str, words: &[&str]| {
        let made = world.atoll(["token"]).args(words).run().success();
        let path = world.top().join(name);
        world.write(&path, made.out());
        path.display().to_string()
    };
    let right = "request GET http://example.com/*";
    let run = |token: &str| {
        let run = world.atoll(["run", "--discard", "--token", token]);
        run.args(["--allow", "example.com", "--", "true"]).run()
    };
    let issued = token("issued", &["issue", "--once", "--allow", right]);
    let narrowed = token("narrowed", &["attenuate", &issued, "--until", "1h"]);
    let shown = world.atoll(["token", "show", &narrowed]).run().success();
    assert!(
        shown.out().contains("once in the first run that holds it"),
        "{shown}"
    );
    // A run that does not come to it takes nothing away.
    let elsewhere = token("elsewhere", &["attenuate", &issued, "--session", "other"]);
    let _ = run(&elsewhere).expect_status(126);
    let _ = run(&narrowed).success();
    for again in [
        &issued,
        &narrowed,
        &token("later", &["attenuate", &issued, "--until", "2h"]),
    ] {
        run(again)
            .expect_status(126)
            .says(["it counts in one run alone, and that was run "]);
        let shown = world.atoll(["token", "show", again]).run().expect_status(1);
        assert!(shown.out().contains("it counts in run "), "{shown}");
    }
    // Two at once, of one that was narrowed to it: one of them wins.
    let wide = token("wide", &["issue", "--allow", right]);
    for round in 0..3 {
        let once = token(&format!("once-{round}"), &["attenuate", &wide, "--once"]);
        let copy = token(
            &format!("copy-{round}"),
            &["attenuate", &once, "--until", "1h"],
        );
        let mut codes = std::thread::scope(|scope| {
            let both = [&once, &copy].map(|token| scope.spawn(|| run(token).code()));
            both.map(|one| one.join().unwrap())
        });
        codes.sort_unstable();
        assert_eq!(codes, [0, 126]);
    }
    // What it was made from counts as before, in any.
    let _ = run(&wide).success();
    let _ = run(&wide).success();
    // Where nobody can tell, it counts in none.
    let fresh = token("fresh", &["attenuate", &wide, "--once"]);
    let bound = world.state().join("atoll/tokens/bound");
    assert!(bound.is_file());
    world.write(&bound, "no list");
    let _ = run(&fresh).expect_status(126);
    let _ = run(&wide).success();
    fs::remove_file(&bound).unwrap();
    if is_possible(&world, &[]) {
        let script =
            "curl -sS -m 5 --noproxy '*' -o /dev/null -w '%{http_code}\\n' http://example.com/a";
        let options = ["--token", &fresh, "--allow", "example.com"];
        for expected in ["200", ""] {
            let seen = e2e::internet::online(&world, &options, script);
            assert_eq!(seen.output().trim(), expected, "{}", seen.outcome);
        }
    }
}

/// Writes a token, made from another or issued, and returns the words that give it to a call.
fn token(world: &World, file: &str, from: Option<&str>, rights: &[&str]) -> [String; 2] {
    let path = world.top().join(file).display().to_string();
    let allow = rights.iter().flat_map(|right| ["--allow", right]);
    let made = match from {
        Some(from) => world
            .atoll(["token", "attenuate"])
            .arg(world.top().join(from)),
        None => world.atoll(["token", "issue", "--until", "1h"]),
    };
    let made = made.args(allow).run().success();
    fs::write(&path, made.out()).unwrap();
    ["--token".to_owned(), path]
}

#[test]
fn a_call_of_a_tool_has_to_be_carried_by_the_token_and_allowed_by_policies() {
    let world =
        World::new("a_call_of_a_tool_has_to_be_carried_by_the_token_and_allowed_by_policies");
    let tool = |name: &str| {
        format!(
            "[tool.{name}]\ndescription = \"Says it.\"\nkind = \"command\"\n\
             command = [\"echo\", \"{name}\", \"{{path}}\"]\neffect = \"read\"\n\
             [tool.{name}.arguments.properties.path]\ntype = \"string\"\n"
        )
    };
    let tools = ["read", "list", "never"].map(tool).join("\n");
    world.write(world.config().join("atoll/tools.toml"), tools);
    let never = "@id(\"never\") forbid(principal, action == Action::\"call\", \
                 resource == Tool::\"never\");";
    world.write(world.config().join("atoll/own.cedar"), never);
    let wide = token(
        &world,
        "wide",
        None,
        &["call read", "call never", "call list"],
    );
    let narrow = token(&world, "narrow", Some("wide"), &["call read path=docs/*"]);
    let call = |words: &[String], called: &[&str]| {
        let run = world.atoll(["tools", "call"]);
        run.args(words).args(called).run()
    };
    let read = call(&narrow, &["read", "path=docs/a"]).success();
    assert_eq!(read.out(), "read docs/a\n");
    let _ = call(&wide, &["read", "path=else"]).success();
    for path in ["path=else", "path=docs/../key", "path=docs/%2e%2e/key"] {
        let refused = call(&narrow, &["read", path]).expect_status(126);
        refused.is_clear_error(["the token does not carry it", "call read"]);
    }
    // One that no call of is carried is not there; policies count as ever.
    let hidden = call(&narrow, &["list", "path=docs/a"]).expect_status(126);
    hidden.is_clear_error(["list cannot be called here"]);
    let _ = call(&wide, &["list", "path=docs/a"]).success();
    let _ = call(&wide, &["never", "path=docs/a"]).expect_status(126);
    let both = [wide.clone(), narrow.clone()].concat();
    let _ = call(&both, &["read", "path=else"]).expect_status(126);
    let may = call(&narrow, &["--dry-run", "read", "path=else"]).expect_status(126);
    assert!(may.out().starts_with("deny\n"), "{may}");
    let all = e2e::traces::events(&world);
    let first = |kind: &str| {
        let found = all.iter().find(|one| one["type"] == kind);
        found.unwrap()["body"].clone()
    };
    let told = first("tool.denied");
    assert_eq!(told["reasons"][0]["rule"], "token", "{told}");
    let opened = &first("tool.opened")["decision"]["tokens"][0];
    assert_eq!(opened["ids"].as_array().unwrap().len(), 2, "{opened}");
    let _ = world
        .atoll(["token", "revoke"])
        .arg(&wide[1])
        .run()
        .success();
    let _ = call(&narrow, &["read", "path=docs/a"]).expect_status(126);
}
