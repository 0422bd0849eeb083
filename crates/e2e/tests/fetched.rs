//! Credentials that are fetched outside when a request needs them: once, after it was allowed and
//! recorded, and by nothing that a sandbox can see.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use e2e::internet::{events, is_possible, on_servers};
use e2e::{Outcome, World, is_root, write_program};
use serde_json::Value;

const SERVERS: &str = include_str!("credentials/servers.py");
const SEARCH: &str = include_str!("credentials/search.py");
const RUN: &str = include_str!("credentials/run.sh");
const PRINTS: &str = include_str!("fetched/prints.py");
const NAMES: &[&str] = &["example.com", "other.example"];
/// The key that the origins demand.
const REAL: &str = "ghp_r3alK3yOfTh1sT3stWh1chN0bodyM4yS33in";
const CURL: &str = "curl -sS -m 60 --noproxy '*'";
const AUTH: &str = "-H \"Authorization: Bearer $TOKEN\"";

/// Returns a world with a profile that has a command for the key, if there can be one.
fn world(name: &str, how: &str, further: &str) -> Option<World> {
    let world = World::new(name);
    world.write(world.top().join("real"), REAL);
    world.canary(REAL, &["real"]);
    write_program(&world.top().join("prints.py"), PRINTS);
    to_go(&world, how, further);
    is_possible(&world, &["openssl", "python3"]).then_some(world)
}

/// Sets the behaviour of the command.
fn to_go(world: &World, how: &str, further: &str) {
    let top = world.top().display();
    world.profile(
        "bound",
        &format!(
            "[network]\nallow = ['example.com', 'other.example']\n[credential.hub]\n\
             source = {{ command = ['{top}/prints.py', '{top}', '{how}']{further} }}\n\
             to = 'example.com'\npaths = ['/v1/**']\nplace = {{ header = 'authorization', form = 'Bearer {{}}' }}\n\
             variable = 'TOKEN'\nshape = 'ghp_{}'\n",
            "*".repeat(36)
        ),
    );
}

/// Runs a shell script in a sandbox, where the origins are.
fn online(world: &World, script: &str) -> Outcome {
    online_as(world, "\"$ATOLL\" run --discard \"$@\"", script)
}

/// As [`online`], by this command line.
fn online_as(world: &World, command: &str, script: &str) -> Outcome {
    let run = on_servers(world, SERVERS, NAMES, command).env("CANARY_OUTSIDE", "of-the-person");
    run.args(["sh", "--profile", "bound", "--", "sh", "-c", script])
        .run()
}

/// Returns the requests that have reached the origins.
fn requests(world: &World) -> String {
    fs::read_to_string(world.top().join("internet/requests")).unwrap_or_default()
}

/// Returns the runs of the command.
fn runs(world: &World) -> Vec<Value> {
    let runs = fs::read_to_string(world.top().join("runs")).unwrap_or_default();
    let runs = runs.lines().map(|line| serde_json::from_str(line).unwrap());
    runs.collect()
}

fn forget_runs(world: &World) {
    let _ = fs::remove_file(world.top().join("runs"));
}

/// Checks that the real key is on disk only in the file that the test has put it into, and in the
/// origins' records.
fn is_nowhere_on_disk(world: &World) {
    let top = world.top();
    let grep = world.host("grep").args(["-rlaF", REAL]).arg(top).run();
    let own = ["/real", "/internet/requests"].map(|name| format!("{}{name}", top.display()));
    let found = grep.out();
    let mut others = found
        .lines()
        .filter(|line| !own.iter().any(|own| own == line));
    assert_eq!(others.next(), None, "{found}");
    assert!(found.contains("/real"), "{found}");
}

#[test]
fn a_command_is_run_once_when_an_allowed_request_needs_it() {
    let name = "a_command_is_run_once_when_an_allowed_request_needs_it";
    let Some(world) = world(name, "kubernetes", "") else {
        return;
    };
    // What needs none, and what is not allowed, has none fetched.
    let script = format!(
        "{CURL} -o /dev/null -w '%{{http_code}} ' https://example.com/v1/without; \
         {CURL} -o /dev/null -w '%{{http_code}} ' {AUTH} https://other.example/v1/elsewhere; \
         {CURL} -o /dev/null -w '%{{http_code}} ' {AUTH} https://example.com/v2/other-path; \
         {CURL} -o /dev/null -w '%{{http_code}}' -H \"X-Key: $TOKEN\" https://example.com/v1/other-header"
    );
    let outcome = online(&world, &script);
    assert_eq!(outcome.out(), "401 403 403 403", "{outcome}");
    assert_eq!(runs(&world), Vec::<Value>::new(), "{outcome}");
    assert!(!requests(&world).contains("ghp_"), "{outcome}");

    // Two hundred, fifty at once, wait for one run.
    let script = format!(
        "{CURL} --http1.1 -Z --parallel-immediate --parallel-max 50 {AUTH} 'https://example.com/v1/[1-200]'; \
         {CURL} -i --http1.1 {AUTH} https://example.com/v1/echo; echo \"is $TOKEN ${{#TOKEN}}\"; \
         cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'"
    );
    let outcome = online(&world, &script);
    let (out, reached) = (outcome.out(), requests(&world));
    assert_eq!(out.matches("welcome").count(), 201, "{outcome}");
    assert_eq!(reached.matches(&format!("Bearer {REAL}")).count(), 201);
    let [run] = &runs(&world)[..] else {
        panic!("{:?}", runs(&world));
    };
    // Nothing of what stands for it, and what is sent back is masked.
    assert!(!out.contains(REAL), "{outcome}");
    assert!(
        out.contains("is ghp_") && out.contains(" 40\n"),
        "{outcome}"
    );
    let (_, after) = out.split_once("\nis ").unwrap();
    let placeholder = after.split_whitespace().next().unwrap();
    let echoed = format!("x-key: it is {placeholder}, {placeholder}").to_ascii_lowercase();
    assert!(out.to_ascii_lowercase().contains(&echoed), "{outcome}");
    // It runs as the person, where nothing of the run is.
    assert_eq!(run["at"], "/", "{run}");
    assert_eq!(
        run["environment"]["CANARY_OUTSIDE"], "of-the-person",
        "{run}"
    );
    assert!(!run.to_string().contains(placeholder), "{run}");
    let open: Vec<&str> = run["open"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    // The last one is the directory that it looks at.
    assert_eq!(open[..3], ["0=/dev/null", "1=pipe", "2=pipe"], "{run}");
    assert!(
        open.iter()
            .skip(3)
            .all(|one| one.contains("/proc/") || one.contains("/fd")),
        "{run}"
    );
    let opened = events(&world, "flow.opened");
    let with = opened.iter().filter(|one| one["credential"] == "hub");
    assert_eq!(with.count(), 201, "{outcome}");
    is_nowhere_on_disk(&world);
}

#[test]
fn what_a_command_prints_is_held_by_itself_and_by_what_carries_alone() {
    let name = "what_a_command_prints_is_held_by_itself_and_by_what_carries_alone";
    let Some(world) = world(name, "lingers", ", timeout = '5m'") else {
        return;
    };
    world.write(world.top().join("search.py"), SEARCH);
    world.write(world.top().join("run.sh"), RUN);
    let script = "echo KEY=$TOKEN; curl -sS -m 300 --noproxy '*' -H \"Authorization: Bearer $TOKEN\" \
                  https://example.com/v1/one & echo READY; read go; wait";
    let command = format!("sh '{0}/run.sh' '{0}' \"$@\"", world.top().display());
    let run = on_servers(&world, SERVERS, NAMES, &command).env("KEYLESS", "1");
    let run = run.args(["sh", "--profile", "bound", "--", "sh", "-c", script]);
    let outcome = run.run();
    let searched = fs::read_to_string(world.top().join("searched")).unwrap_or_default();
    let what = format!("{outcome}\n{searched}");
    assert!(outcome.out().contains("welcome"), "{what}");
    let has = |line: &str| searched.lines().any(|one| one == line);
    for process in ["atoll", "atoll-egress", "atoll-jail", "prints.py", "curl"] {
        assert!(has(&format!("read {process}")), "{process}: {what}");
    }
    // The control: the search finds it where it has to be.
    assert!(has("real prints.py memory"), "{what}");
    assert!(has("placeholder curl arguments"), "{what}");
    let carrier = match is_root() {
        true => "real atoll-egress memory",
        false => "unread atoll-egress memory",
    };
    assert!(has(carrier), "{what}");
    let others = searched.lines().filter(|line| line.starts_with("real "));
    let others = others.filter(|line| ![carrier, "real prints.py memory"].contains(line));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&str>::new(), "{what}");
    is_nowhere_on_disk(&world);
}

#[test]
fn a_value_that_ends_is_fetched_anew_and_every_form_is_read() {
    let name = "a_value_that_ends_is_fetched_anew_and_every_form_is_read";
    let Some(world) = world(name, "short", "") else {
        return;
    };
    let script = format!(
        "{CURL} {AUTH} https://example.com/v1/one; {CURL} {AUTH} https://example.com/v1/two; sleep 5; \
         {CURL} {AUTH} https://example.com/v1/three"
    );
    let outcome = online(&world, &script);
    assert_eq!(outcome.out().matches("welcome").count(), 3, "{outcome}");
    let ran = runs(&world).len();
    // A slow machine may take longer than the first one holds.
    assert!((2..=3).contains(&ran), "{ran}: {outcome}");
    for how in ["git", "plain", "daemon"] {
        forget_runs(&world);
        to_go(&world, how, "");
        let script = format!(
            "{CURL} {AUTH} https://example.com/v1/{how}; {CURL} {AUTH} https://example.com/v1/again"
        );
        let outcome = online(&world, &script);
        assert_eq!(
            outcome.out().matches("welcome").count(),
            2,
            "{how}: {outcome}"
        );
        assert_eq!(runs(&world).len(), 1, "{how}: {outcome}");
    }
}

#[test]
fn a_command_that_gives_no_value_is_told_and_not_run_again_at_once() {
    let name = "a_command_that_gives_no_value_is_told_and_not_run_again_at_once";
    let Some(world) = world(name, "plain", "") else {
        return;
    };
    for (how, why) in [
        ("fails", "its command ended with status 3"),
        ("hangs", "its command took longer than 2 s"),
        ("floods", "it prints more than 65536 bytes"),
        ("silent", "it prints nothing"),
        ("weak", "shorter than 16 bytes"),
        ("expired", "has expired"),
        ("killed", "signal 9 ended its command"),
    ] {
        forget_runs(&world);
        let seconds = if how == "hangs" { 2 } else { 20 };
        to_go(&world, how, &format!(", timeout = '{seconds}s'"));
        let script = format!(
            "for i in $(seq 5); do {CURL} {AUTH} https://example.com/v1/$i & done; wait; \
             {CURL} https://example.com/v1/control"
        );
        let outcome = online(&world, &script);
        let told = "credential hub cannot be fetched: ";
        let (out, ledger) = (
            outcome.out(),
            world
                .atoll(["ledger", "show", "--json", "last"])
                .run()
                .out(),
        );
        assert_eq!(out.matches(why).count(), 5, "{how}: {outcome}");
        assert!(out.contains("who are you?"), "{how}: {outcome}");
        assert!(ledger.contains(why), "{how}: {ledger}");
        assert!(outcome.err().contains(why), "{how}: {outcome}");
        assert_eq!(out.matches(told).count(), 5, "{how}: {outcome}");
        // What it says may hold a key: it is for outside alone.
        let said = "status 3: not logged in with ***: run login first";
        for text in [&ledger, &outcome.err()] {
            assert_eq!(text.contains(said), how == "fails", "{how}: {text}");
        }
        assert!(!out.contains("logged in"), "{how}: {outcome}");
        let reached = requests(&world);
        assert!(!reached.contains("ghp_"), "{how}: {reached}");
        for text in [out, ledger, outcome.err()] {
            assert!(!text.contains(REAL), "{how}: {text}");
        }
        // A request that comes seconds later may have it run once more.
        assert!(runs(&world).len() <= 3, "{how}: {:?}", runs(&world));
        is_nowhere_on_disk(&world);
    }
    // However much is said beside, that is no error.
    to_go(&world, "floods-errors", "");
    let outcome = online(
        &world,
        &format!("{CURL} {AUTH} https://example.com/v1/loud"),
    );
    assert!(outcome.out().contains("welcome"), "{outcome}");
}

#[test]
fn a_program_that_is_not_there_or_could_be_written_inside_lets_nothing_start() {
    let world =
        World::new("a_program_that_is_not_there_or_could_be_written_inside_lets_nothing_start");
    let inside = world.workspace().join("helper");
    write_program(&inside, "#!/bin/sh\necho 0123456789abcdefghijkl\n");
    let led = world.top().join("led");
    std::os::unix::fs::symlink(&inside, &led).unwrap();
    let start = |command: &str| {
        let credential = format!(
            "[credential.a]\nsource = {{ command = ['{command}'] }}\nto = 'example.com'\n\
             place = {{ header = 'x-key' }}\nvariable = 'KEY'\n"
        );
        world.profile("bound", &credential);
        let run = [
            "run",
            "--discard",
            "--profile",
            "bound",
            "--",
            "sh",
            "-c",
            "echo started ${#KEY}",
        ];
        world.atoll(run).run()
    };
    // It ends outside, and a program inside decides where.
    let (hop, chain) = (world.workspace().join("hop"), world.top().join("chain"));
    std::os::unix::fs::symlink("/bin/true", &hop).unwrap();
    std::os::unix::fs::symlink(&hop, &chain).unwrap();
    let argument = format!("true', '--file={}", inside.display());
    for (command, why) in [
        (chain.to_str().unwrap(), "is in the workspace"),
        (&argument, "of its command is in the workspace"),
        ("no-such-program-here", "is no program here"),
        ("/etc/passwd", "is no program here"),
        (inside.to_str().unwrap(), "is in the workspace"),
        (led.to_str().unwrap(), "is in the workspace"),
    ] {
        let refused = start(command);
        assert!(!refused.out().contains("started"), "{refused}");
        refused.is_clear_error([why]);
    }
    // Nor one of the workspace of another run, or one that others can write.
    let other = world.top().join("other");
    world.write(other.join("file"), "");
    let keep = ["run", "--workspace", other.to_str().unwrap(), "--", "true"];
    let tool = other.join("tool");
    write_program(&tool, "#!/bin/sh\necho 0123456789abcdefghijkl\n");
    let started = start(tool.to_str().unwrap()).success();
    assert_eq!(started.out(), "started 40\n", "{started}");
    let _ = world.atoll(keep).run().success();
    start(tool.to_str().unwrap()).is_clear_error(["in that of another run"]);
    let by_all = world.top().join("by-all");
    write_program(&by_all, "#!/bin/sh\necho 0123456789abcdefghijkl\n");
    fs::set_permissions(&by_all, fs::Permissions::from_mode(0o777)).unwrap();
    start(by_all.to_str().unwrap()).is_clear_error(["others than you can write"]);
    // The control, of links as well.
    let fine = world.top().join("fine");
    std::os::unix::fs::symlink("/bin/true", &fine).unwrap();
    let started = start(fine.to_str().unwrap()).success();
    assert_eq!(started.out(), "started 40\n", "{started}");
    let started = start("true").success();
    assert_eq!(started.out(), "started 40\n", "{started}");
}

#[test]
fn no_interpreter_of_the_workspace_runs_outside() {
    let name = "no_interpreter_of_the_workspace_runs_outside";
    let Some(world) = world(name, "plain", "") else {
        return;
    };
    let by_name = PRINTS.replace("#!/usr/bin/python3 -I", "#!/usr/bin/env python3");
    assert_ne!(by_name, PRINTS);
    write_program(&world.top().join("prints.py"), &by_name);
    let mark = world.top().join("mark");
    let other = format!(
        "#!/bin/sh\ntouch '{}'\nexec /usr/bin/python3 \"$@\"\n",
        mark.display()
    );
    let script = format!("{CURL} {AUTH} https://example.com/v1/one");
    // The control is the same script where no program inside writes.
    for (place, runs_there) in [
        (world.workspace(), false),
        (world.top().to_path_buf(), true),
    ] {
        let bin = place.join("bin");
        fs::create_dir_all(&bin).unwrap();
        write_program(&bin.join("python3"), &other);
        forget_runs(&world);
        let command = format!(
            "env PATH='{0}':\"$PATH\" NODE_OPTIONS=x BASH_ENV=x GIT_CONFIG_GLOBAL='{0}/gc' LESSOPEN='|{0}/open %s' \
             \"$ATOLL\" run --discard \"$@\"",
            bin.display()
        );
        let outcome = online_as(&world, &command, &script);
        assert!(outcome.out().contains("welcome"), "{outcome}");
        assert_eq!(mark.exists(), runs_there, "{outcome}");
        let [run] = &runs(&world)[..] else {
            panic!("{:?}", runs(&world));
        };
        let environment = &run["environment"];
        assert_eq!(environment["CANARY_OUTSIDE"], "of-the-person", "{run}");
        assert!(environment["NODE_OPTIONS"].is_null(), "{run}");
        assert!(environment["BASH_ENV"].is_null(), "{run}");
        for leading in ["GIT_CONFIG_GLOBAL", "LESSOPEN"] {
            assert_eq!(environment[leading].is_string(), runs_there, "{run}");
        }
    }
}

#[test]
fn a_command_that_a_later_run_could_have_written_is_not_run() {
    let name = "a_command_that_a_later_run_could_have_written_is_not_run";
    let Some(world) = world(name, "plain", "") else {
        return;
    };
    let (top, tools) = (world.top().to_path_buf(), world.top().join("tools"));
    fs::create_dir(&tools).unwrap();
    write_program(&tools.join("prints.py"), PRINTS);
    world.profile(
        "bound",
        &format!(
            "[network]\nallow = ['example.com']\n[credential.hub]\n\
             source = {{ command = ['{}/prints.py', '{}', 'plain'] }}\nto = 'example.com'\n\
             place = {{ header = 'authorization', form = 'Bearer {{}}' }}\nvariable = 'TOKEN'\n",
            tools.display(),
            top.display()
        ),
    );
    let script = format!(
        "touch started; until [ -e go ]; do sleep 0.1; done; {CURL} {AUTH} https://example.com/v1/one"
    );
    // The control is another run that begins as late, elsewhere.
    for (place, runs_then) in [("elsewhere", 1), ("tools", 0)] {
        let place = top.join(place);
        fs::create_dir_all(&place).unwrap();
        forget_runs(&world);
        for left in ["started", "go"] {
            let _ = fs::remove_file(world.workspace().join(left));
        }
        let command = format!(
            "sh -c 'atoll=$1; shift; (until [ -e \"{0}/started\" ]; do sleep 0.1; done; \
             \"$atoll\" run --live --workspace \"{1}\" -- true; touch \"{0}/go\") & \
             exec \"$atoll\" run --live \"$@\"' sh \"$ATOLL\" \"$@\"",
            world.workspace().display(),
            place.display()
        );
        let outcome = online_as(&world, &command, &script);
        assert_eq!(runs(&world).len(), runs_then, "{outcome}");
        let is_served = outcome.out().contains("welcome");
        assert_eq!(is_served, runs_then == 1, "{outcome}");
    }
}

#[test]
fn a_command_that_leaves_its_group_holds_up_no_end() {
    let name = "a_command_that_leaves_its_group_holds_up_no_end";
    let Some(world) = world(name, "leaves", ", timeout = '5m'") else {
        return;
    };
    let command = "\"$ATOLL\" run --discard --timeout 20s \"$@\"";
    let script = format!("{CURL} -m 400 {AUTH} https://example.com/v1/one; sleep 400");
    let outcome = online_as(&world, command, &script);
    assert_ne!(outcome.code(), 0, "{outcome}");
    assert!(world.top().join("has-left").exists(), "{outcome}");
    assert_eq!(runs(&world).len(), 1, "{outcome}");
}
