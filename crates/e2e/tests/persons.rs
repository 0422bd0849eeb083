//! Dual control: approvals that take two persons, on a small internet of each test's own.

use std::fs;
use std::os::unix::fs::chown;
use std::time::Duration;

use e2e::internet::{Seen, is_possible, on_internet};
use e2e::{World, id, is_root};

const OUTSIDE: &str = include_str!("persons/outside.py");
const CURL: &str =
    "curl -sS -m 60 --noproxy '*' -o /dev/null -w '%{http_code}\\n' http://example.com";

/// Has persons act with a run of this script; returns the user whose run it is, too.
fn played(world: &World, script: &str) -> (Seen, u32) {
    let owner = match is_root() {
        true => 61234,
        false => id().0,
    };
    let homes = world.top().join("homes");
    fs::create_dir(&homes).unwrap();
    let people = match is_root() {
        true => &[owner, 61235, 61236, 61299][..],
        false => &[owner],
    };
    for person in people {
        let home = homes.join(person.to_string());
        for directory in ["config/atoll", "state", "work"] {
            fs::create_dir_all(home.join(directory)).unwrap();
        }
        let config = "[approvals]\nwiden = 2\napprovers = [61235, '61236']\n";
        fs::write(home.join("config/atoll/config.toml"), config).unwrap();
        if is_root() {
            let own = |path: &str| chown(home.join(path), Some(*person), Some(*person)).unwrap();
            for path in [
                "",
                "config",
                "config/atoll",
                "config/atoll/config.toml",
                "state",
                "work",
            ] {
                own(path);
            }
        }
    }
    let outside = world.top().join("outside.py");
    fs::write(&outside, OUTSIDE).unwrap();
    let work = homes.join(owner.to_string()).join("work");
    let command = format!(
        "sh -c 'cd \"$0\" && exec python3 \"$@\"' '{}' '{}' \"$@\"",
        work.display(),
        outside.display()
    );
    let run = on_internet(world, &command).env("INTERNET", world.top().join("internet"));
    let who = if is_root() { "all" } else { "alone" };
    let run = run.args([
        "sh",
        &owner.to_string(),
        &homes.display().to_string(),
        script,
        who,
    ]);
    (
        Seen::of(world, run.within(Duration::from_secs(300)).run()),
        owner,
    )
}

#[test]
fn what_lasts_takes_two_persons() {
    let world = World::new("what_lasts_takes_two_persons");
    if !is_possible(&world, &["setpriv"]) {
        return;
    }
    let script = match is_root() {
        true => format!(
            "{CURL}/lease; {CURL}/lease; {CURL}/no; {CURL}/race; {CURL}/twice; \
             while [ ! -e over ]; do sleep 0.1; done"
        ),
        false => format!("{CURL}/lease; {CURL}/once"),
    };
    let (seen, owner) = played(&world, &script);
    let out = seen.output();
    let mut expected = vec![
        "first 0 True True".to_owned(),
        "beside a deaf one 0 True True".to_owned(),
        "it hears again 0 True".to_owned(),
        "again 126 True".to_owned(),
        "mapped True [[]]".to_owned(),
        "shown True".to_owned(),
        "reached before False".to_owned(),
        "ended 0".to_owned(),
    ];
    let further: &[&str] = match is_root() {
        true => &[
            "a stranger [] 125",
            "root True",
            "the same is shown True True",
            "once is the owner's 126 True",
            "so is the end 126 None",
            "still before False",
            "second 0 True",
            "the narrower True 61235",
            "yes 0",
            "no 0 126",
            "race ['Agreed', 'Granted'] [0, 0]",
            "twice 0 True False",
            "by others alone 0 True",
            "port 0 True True",
            "the port waits True True True 61234",
            "for the other one 0 True True",
            "recorded 61234 61234 61235",
            "reload 125 True",
            "why True True True",
            "for machines 3000 3999 61235 61234 True",
            "published atoll: http://127.0.0.1:3999 leads to port 3000 inside",
        ],
        false => &["denied 0", "once 0"],
    };
    expected.extend(further.iter().map(|&line| line.to_owned()));
    for line in expected {
        assert!(
            out.lines().any(|one| one == line),
            "{line} ({owner}): {}",
            seen.outcome
        );
    }
    let codes = ["200", "403"].map(|code| out.lines().filter(|line| *line == code).count());
    let expected = match is_root() {
        true => [4, 1],
        false => [1, 1],
    };
    assert_eq!(codes, expected, "{}", seen.outcome);
}

#[test]
fn a_run_that_nobody_could_be_the_second_person_of_does_not_start() {
    let world = World::new("a_run_that_nobody_could_be_the_second_person_of_does_not_start");
    let own = id().0;
    let another = if own == 61_235 { 61_236 } else { 61_235 };
    let start = |approvers: &str| {
        let config = format!("[approvals]\nwiden = 2\n{approvers}\n");
        fs::create_dir_all(world.config().join("atoll")).unwrap();
        fs::write(world.config().join("atoll/config.toml"), config).unwrap();
        world.atoll(["run", "--discard", "--", "true"]).run()
    };
    for (approvers, why) in [
        (
            "approvers = ['adaxx']".to_owned(),
            "config.toml:3) names \"adaxx\"",
        ),
        (format!("approvers = [{own}]"), "names nobody but you"),
        ("approvers = []".to_owned(), "`approvers` names nobody"),
        (
            String::new(),
            "config.toml:2) takes a second person, and `approvers` names nobody",
        ),
    ] {
        let refused = start(&approvers).expect_status(125);
        let what = "nobody here could say the second of two yeses";
        refused.is_clear_error([what, why, "try: approvers = ["]);
    }
    // The control: with another one it starts.
    let _ = start(&format!("approvers = [{another}]")).success();
}
