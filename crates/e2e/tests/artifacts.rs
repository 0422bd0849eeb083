//! Outputs: files that programs put out and never see again, and the artifacts that they become.

use std::fs;

use e2e::traces::verify_ledger;
use e2e::{Outcome, World, is_root, python_site};
use serde_json::Value;

/// The scanners that come with Atoll.
const SCANNERS: usize = 6;

/// Runs a shell script with a directory of outputs.
fn putting_out(world: &World, script: &str) -> Outcome {
    world.write("inside.sh", script);
    world
        .atoll(["run", "--outputs", "--discard", "--", "sh", "./inside.sh"])
        .run()
}

fn list(world: &World) -> Vec<Value> {
    let listed = world.atoll(["artifacts", "list", "--json"]).run().success();
    listed.json().as_array().unwrap().clone()
}

fn id(one: &Value) -> &str {
    one["id"].as_str().unwrap()
}

/// Each attempt is made for its output, and for a file of the home, where it succeeds.
#[test]
fn outputs_are_put_out_and_never_seen_again() {
    let world = World::new("outputs_are_put_out_and_never_seen_again");
    world.write(
        "attempts.py",
        r##"
import json, os, sys
place = sys.argv[1]
told = {}
def tried(name, what):
    try:
        what()
        told[name] = "yes"
    except OSError as error:
        told[name] = os.strerror(error.errno)
one, other = place + "/one", place + "/other"
def put(text):
    with open(one, "w") as file:
        file.write(text)
def add():
    with open(one, "a") as file:
        file.write(" more")
tried("create", lambda: put("first"))
tried("write", lambda: put("second"))
tried("append", add)
def read_from(flags):
    file = os.open(one, flags)
    return os.read(file, 1)
tried("read", lambda: read_from(os.O_RDONLY))
tried("read and write", lambda: read_from(os.O_RDWR))
def reopen():
    file = os.open(one, os.O_WRONLY)
    return os.open("/proc/self/fd/%d" % file, os.O_RDONLY)
tried("open again", reopen)
tried("list", lambda: os.listdir(place))
tried("walk", lambda: os.close(os.open(place, os.O_RDONLY | os.O_DIRECTORY)))
tried("remove", lambda: os.unlink(one))
put("second")
add()
tried("rename", lambda: os.rename(one, other))
tried("rename from", lambda: os.rename(one, "/tmp/taken"))
open("/tmp/own", "w").close()
tried("rename to", lambda: os.rename("/tmp/own", one))
tried("directory", lambda: os.mkdir(place + "/directory"))
tried("symbolic link", lambda: os.symlink("/etc/passwd", place + "/link"))
tried("pipe", lambda: os.mkfifo(place + "/pipe"))
def socket():
    import socket
    socket.socket(socket.AF_UNIX).bind(place + "/socket")
tried("socket", socket)
def execute():
    with open(place + "/program", "w") as file:
        file.write("#!/bin/sh\n")
    os.chmod(place + "/program", 0o755)
    if os.spawnl(os.P_WAIT, place + "/program", "program") == 127:
        raise PermissionError(13, "")
tried("execute", execute)
json.dump(told, sys.stdout)
"##,
    );
    let attempts = |place: &str| {
        let script = format!("mkdir -p ~/place; exec python3 attempts.py {place}");
        let outcome = putting_out(&world, &script).success();
        serde_json::from_str::<Value>(&outcome.out()).unwrap()
    };
    let (outputs, control) = (attempts("/outputs"), attempts("$HOME/place"));
    let refused = [
        "read",
        "read and write",
        "open again",
        "list",
        "walk",
        "remove",
        "rename",
        "rename from",
        "rename to",
        "directory",
        "symbolic link",
        "pipe",
        "socket",
        "execute",
    ];
    for name in ["create", "write", "append"] {
        assert_eq!(outputs[name], "yes", "{name}: {outputs}");
    }
    for name in refused {
        assert_ne!(outputs[name], "yes", "{name}: {outputs}");
        // A move to and from another mount works nowhere.
        if !["rename from", "rename to"].contains(&name) {
            assert_eq!(control[name], "yes", "{name}: {control}");
        }
    }
    let all = list(&world);
    assert_eq!(all.len(), 2, "{all:?}");
    assert_eq!(all[0]["name"], "one");
    assert_eq!(all[0]["bytes"], "second more".len());
    verify_ledger(&world);
}

/// The rest of the tree is as it is without outputs.
#[test]
fn everything_else_is_as_without_outputs() {
    let world = World::new("everything_else_is_as_without_outputs");
    let script = "set -e; test \"$ATOLL_OUTPUTS\" = /outputs; cat /etc/passwd >/dev/null; \
                  ls /usr /etc /tmp /proc >/dev/null; echo 1 >/tmp/a; echo 2 >>~/b; echo 3 >c; \
                  cat /tmp/a ~/b c; python3 -c 'import json, ssl, ctypes'; cp /tmp/a /outputs/; \
                  mv ~/b /outputs/b; ls -d /outputs; sh -c 'cd / && pwd'";
    let outcome = putting_out(&world, script).success();
    assert_eq!(outcome.out(), "1\n2\n3\n/outputs\n/\n");
    if is_root() {
        let outcome = putting_out(&world, "ls /").success();
        assert!(outcome.out().contains("outputs"), "{}", outcome.out());
    }
    assert_eq!(list(&world).len(), 2);
}

#[test]
fn what_waits_is_shown_and_given_out_once_it_is_promoted() {
    let world = World::new("what_waits_is_shown_and_given_out_once_it_is_promoted");
    let outcome = putting_out(
        &world,
        "printf 'a,b\\n1,\\033[31m2\\n' >/outputs/table.csv; head -c 3000000 /dev/zero >/outputs/zeros; chmod 0 /outputs/zeros",
    );
    outcome.success().says(["2 outputs wait as artifacts"]);
    let all = list(&world);
    let (table, zeros) = (&all[0], &all[1]);
    assert_eq!(table["media"], "text/plain");
    assert_eq!(table["state"], "held");
    assert_eq!(zeros["bytes"], 3_000_000);
    let shown = world
        .atoll(["artifacts", "show", id(table)])
        .run()
        .success();
    for line in ["name    \"table.csv\"", "state   held", "| a,b"] {
        assert!(shown.out().contains(line), "{shown}");
    }
    assert!(!shown.out().contains('\u{1b}'));
    let get = |one: &Value| world.atoll(["artifacts", "get", id(one)]).run();
    get(table)
        .expect_status(126)
        .is_clear_error(["waits for a decision", "artifacts promote"]);
    let promoted = world.atoll(["artifacts", "promote", id(table), id(zeros), "--to", "."]);
    promoted.run().success().says(["2 artifacts are promoted"]);
    let written = fs::read(world.workspace().join("table.csv")).unwrap();
    assert_eq!(written, b"a,b\n1,\x1b[31m2\n");
    assert_eq!(get(table).success().stdout, written);
    let zeros_written = fs::read(world.workspace().join("zeros")).unwrap();
    assert_eq!(zeros_written, vec![0; 3_000_000]);
    // What is there is not replaced, and what is decided stays.
    let again = world.atoll(["artifacts", "promote", id(table), "--to", "."]);
    again
        .run()
        .expect_status(125)
        .is_clear_error(["exists already"]);
    let rejected = world.atoll(["artifacts", "reject", id(table)]);
    rejected
        .run()
        .expect_status(125)
        .is_clear_error(["is promoted"]);
    verify_ledger(&world);
}

#[test]
fn what_is_rejected_is_given_to_nobody() {
    let world = World::new("what_is_rejected_is_given_to_nobody");
    let _ = putting_out(&world, "echo text >/outputs/a").success();
    let all = list(&world);
    let rejected = ["artifacts", "reject", id(&all[0]), "--why", "not wanted"];
    let _ = world.atoll(rejected).run().success();
    for command in ["get", "promote"] {
        let refused = world.atoll(["artifacts", command, id(&all[0])]).run();
        assert_ne!(refused.code(), 0);
        refused.is_clear_error(["is rejected", "not wanted"]);
    }
    let none = world.atoll(["artifacts", "get", "0000"]).run();
    none.expect_status(125)
        .is_clear_error(["no artifact \"0000\""]);
}

/// Names come from programs: they lead nowhere, and reach no terminal as they are.
#[test]
fn odd_names_are_names() {
    let world = World::new("odd_names_are_names");
    let script = r#"python3 - <<'END'
for name in [b"\x1b[2J\n", b"--to", b"\xff\xfe", b"a b", b".bashrc"]:
    open(b"/outputs/" + name, "wb").write(name)
END"#;
    let _ = putting_out(&world, script).success();
    let listed = world.atoll(["artifacts", "list"]).run().success();
    assert!(!listed.out().contains('\u{1b}'));
    assert_eq!(listed.out().lines().count(), 5, "{}", listed.out());
    for one in list(&world) {
        let promote = world.atoll(["artifacts", "promote", id(&one), "--to", "."]);
        if one["name"] == ".bashrc" {
            // Shells run it: somebody has to be asked.
            let refused = promote.run().expect_status(126);
            refused.is_clear_error(["nobody can be asked", "bash"]);
            assert!(!world.workspace().join(".bashrc").exists());
        } else {
            let _ = promote.run().success();
        }
    }
    assert_eq!(fs::read(world.workspace().join("--to")).unwrap(), b"--to");
}

#[test]
fn policies_decide_what_is_promoted() {
    let world = World::new("policies_decide_what_is_promoted");
    world.write(
        world.config().join("atoll/own.cedar"),
        r#"@id("no-secrets") @reason("keys are not promoted")
           forbid(principal, action == Action::"promote", resource == Path::"/outputs/a.key");"#,
    );
    let _ = putting_out(&world, "echo 1 >/outputs/a.key; echo 2 >/outputs/a.txt").success();
    let all = list(&world);
    let promote = |one: &Value| world.atoll(["artifacts", "promote", id(one)]).run();
    promote(&all[0])
        .expect_status(126)
        .is_clear_error(["keys are not promoted"]);
    let _ = promote(&all[1]).success();
    assert_eq!(list(&world)[0]["state"], "held");
    assert_eq!(list(&world)[1]["state"], "promoted");
}

#[test]
fn outputs_of_a_run_with_a_sudden_end_are_kept() {
    let world = World::new("outputs_of_a_run_with_a_sudden_end_are_kept");
    world.write("inside.sh", "echo half >/outputs/a; echo there; sleep 600");
    let running = world
        .atoll(["run", "--outputs", "--discard", "--", "sh", "./inside.sh"])
        .start();
    let _ = running.until_stdout("there");
    running.signal(rustix::process::Signal::KILL);
    let _ = running.wait();
    let all = e2e::wait_until(
        "the run is found ended",
        std::time::Duration::from_secs(30),
        || {
            let all = list(&world);
            (!all.is_empty()).then_some(all)
        },
    );
    assert_eq!(all[0]["interrupted"], true);
    let shown = world
        .atoll(["artifacts", "show", id(&all[0])])
        .run()
        .success();
    for line in ["its run was cut off", "| half"] {
        assert!(shown.out().contains(line), "{shown}");
    }
    let left = fs::read_dir(world.state().join("atoll/outputs")).unwrap();
    assert_eq!(left.count(), 0);
}

/// Each scanner runs in a sandbox; what it says is kept, and asked about before the artifact is
/// promoted.
#[test]
fn scanners_look_at_what_waits() {
    let world = World::new("scanners_look_at_what_waits");
    let script = r#"
echo 'nothing to see' >/outputs/clean.txt
printf 'one\ntoken = gh%s_q7Zr2Kx9Wm4Tn8Vb3Hc6Yd5Lg1Js0PfQ7zR2\n' p >/outputs/notes.txt
echo '4111 1111 1111 1111' >/outputs/card.txt
printf '#!/bin/sh\n' >/outputs/picture.png
printf 'X5O!P%%@AP[4\\PZX54(P^)7CC)7}$EICAR-STANDARD-%s-TEST-FILE!$H+H*' ANTIVIRUS >/outputs/harmless.txt
printf '7z\274\257\047\034' >/outputs/other.7z
"#;
    let _ = putting_out(&world, script).success();
    let scanned = world
        .atoll(["artifacts", "scan", "--json"])
        .run()
        .expect_status(1);
    let scanned = scanned.json();
    let all = list(&world);
    let verdicts = |name: &str| -> Vec<String> {
        let id = id(all.iter().find(|one| one["name"] == name).unwrap());
        let mut told = scanned.as_array().unwrap().iter();
        let told = told.find(|one| one["id"] == id).unwrap();
        let scans = told["scans"].as_array().unwrap();
        assert_eq!(scans.len(), SCANNERS, "{told}");
        let open = scans.iter().filter(|one| one["verdict"] != "clean");
        let words = open.map(|one| {
            let rule = one["findings"][0]["rule"].as_str().unwrap_or_default();
            format!(
                "{} {} {rule}",
                one["scanner"].as_str().unwrap(),
                one["verdict"].as_str().unwrap()
            )
        });
        words.collect()
    };
    assert!(verdicts("clean.txt").is_empty());
    assert_eq!(verdicts("notes.txt"), ["secrets found github-token"]);
    assert_eq!(verdicts("card.txt"), ["personal-data found card"]);
    assert_eq!(verdicts("picture.png"), ["programs found script"]);
    assert!(verdicts("other.7z").contains(&"archives failed ".to_owned()));
    assert_eq!(verdicts("harmless.txt"), ["malware found eicar_test_file"]);
    for one in &all {
        let promoted = world.atoll(["artifacts", "promote", id(one)]).run();
        if one["name"] == "clean.txt" {
            let _ = promoted.success();
        } else {
            let refused = promoted.expect_status(126);
            refused.is_clear_error(["nobody can be asked", "scanner"]);
        }
    }
    let notes = all.iter().find(|one| one["name"] == "notes.txt").unwrap();
    let shown = world
        .atoll(["artifacts", "show", id(notes)])
        .run()
        .success();
    assert!(shown.out().contains("github-token, line 2"), "{shown}");
    verify_ledger(&world);
}

/// A profile's rule has outputs scanned at the end, and promoted where nothing is found and policies let
/// them go; all else waits.
#[test]
fn a_rule_promotes_what_is_clean() {
    let world = World::new("a_rule_promotes_what_is_clean");
    for rule in ["hold", "scan", "promote"] {
        let text = format!("extends = [\"default\"]\noutputs = \"{rule}\"\n");
        world.profile(&format!("by-{rule}"), &text);
    }
    world.write(
        world.config().join("atoll/own.cedar"),
        r#"@id("small-texts") @reason("only small texts go out unseen")
           forbid(principal, action == Action::"promote", resource)
           when { context has artifact && context.artifact.bytes > 1000 };
           @id("no-cards") @reason("cards never")
           forbid(principal, action == Action::"promote", resource)
           when { context has artifact && context.artifact.found.contains("card") };
           @id("scanned") @reason("only what was scanned")
           forbid(principal, action == Action::"promote", resource)
           unless { context has artifact && context.artifact.scans.contains("secrets=clean") };
           @id("asked") @approve("person") @reason("somebody looks at tables")
           permit(principal, action == Action::"promote", resource == Path::"/outputs/table.csv");
           permit(principal, action, resource);"#,
    );
    let script = r#"
echo 'nothing to see' >/outputs/clean.txt
echo '4111 1111 1111 1111' >/outputs/card.txt
printf 'one\ntoken = gh%s_q7Zr2Kx9Wm4Tn8Vb3Hc6Yd5Lg1Js0PfQ7zR2\n' p >/outputs/notes.txt
head -c 2000 /dev/zero | tr '\0' a >/outputs/large.txt
echo 'a,b' >/outputs/table.csv
echo 'alias ls=rm' >/outputs/.bashrc
"#;
    let run = |rule: &str, script: &str| {
        let profile = format!("by-{rule}");
        let options = ["run", "--outputs", "--discard", "--profile", &profile];
        world.write("inside.sh", script);
        let run = world.atoll(options).args(["--", "sh", "./inside.sh"]);
        run.run().success()
    };
    let state = |name: &str| {
        let all = list(&world);
        let one = all.iter().find(|one| one["name"] == name).unwrap().clone();
        let shown = world.atoll(["artifacts", "show", "--json", id(&one)]).run();
        let scans = shown.success().json()["scans"].as_array().unwrap().len();
        (one["state"].as_str().unwrap().to_owned(), scans)
    };
    let held = |scans| ("held".to_owned(), scans);
    let ran = run("hold", "echo 1 >/outputs/clean.txt");
    ran.says(["1 output waits as an artifact"]);
    assert_eq!(state("clean.txt"), held(0));
    let ran = run("scan", "echo 1 >/outputs/clean.txt");
    ran.says(["output \"clean.txt\" waits (clean)"]);
    assert_eq!(state("clean.txt"), held(SCANNERS));
    let ran = run("promote", script);
    ran.says(["output \"clean.txt\" is promoted"]);
    assert_eq!(state("clean.txt"), ("promoted".to_owned(), SCANNERS));
    for (name, why) in [
        ("card.txt", "cards never"),
        ("notes.txt", "only what was scanned"),
        ("large.txt", "only small texts go out unseen"),
        ("table.csv", "somebody looks at tables"),
        (".bashrc", "built in"),
    ] {
        assert_eq!(state(name), held(SCANNERS), "{name}");
        let line = format!("output \"{name}\" waits (");
        let told = ran.err();
        let told = told.lines().find(|told| told.contains(&line)).unwrap();
        assert!(told.contains(why), "{told}");
    }
    let all = list(&world);
    let clean = all.iter().find(|one| one["name"] == "clean.txt").unwrap();
    assert_eq!(clean["decided"]["by"], "rule");
    // What a person promotes is scanned first.
    let _ = run("hold", "echo '4111 1111 1111 1111' >/outputs/card.txt");
    let all = list(&world);
    let card = all.iter().find(|one| one["name"] == "card.txt").unwrap();
    world
        .atoll(["artifacts", "promote", id(card)])
        .run()
        .expect_status(126)
        .is_clear_error(["cards never"]);
    verify_ledger(&world);
}

/// The rule holds for what a killed run has left, but for the promotion: it can be half of a file.
#[test]
fn a_rule_promotes_nothing_of_a_sudden_end() {
    let world = World::new("a_rule_promotes_nothing_of_a_sudden_end");
    world.profile(
        "lets-go",
        "extends = [\"default\"]\noutputs = \"promote\"\n",
    );
    let options = [
        "run",
        "--outputs",
        "--discard",
        "--profile",
        "lets-go",
        "--",
    ];
    let script = "echo half >/outputs/a; echo there; sleep 600";
    let running = world.atoll(options).args(["sh", "-c", script]).start();
    let _ = running.until_stdout("there");
    running.signal(rustix::process::Signal::KILL);
    let _ = running.wait();
    let patience = std::time::Duration::from_secs(30);
    e2e::wait_until("the run is found ended", patience, || {
        (!list(&world).is_empty()).then_some(())
    });
    let next = world
        .atoll(options)
        .args(["sh", "-c", "echo whole >/outputs/b"]);
    let _ = next.run().success();
    let all = list(&world);
    let states = all.iter().map(|one| {
        let text = |name: &str| one[name].as_str().unwrap().to_owned();
        (text("name"), text("state"))
    });
    let states: Vec<_> = states.collect();
    let pair = |name: &str, state: &str| (name.to_owned(), state.to_owned());
    assert_eq!(states, [pair("b", "promoted"), pair("a", "held")]);
}

/// A run that is cut off by a limit of its time has left what may be half of a file, too.
#[test]
fn a_rule_promotes_nothing_of_a_run_that_was_cut_off() {
    let world = World::new("a_rule_promotes_nothing_of_a_run_that_was_cut_off");
    world.profile(
        "lets-go",
        "extends = [\"default\"]\noutputs = \"promote\"\n",
    );
    let options = ["run", "--outputs", "--discard", "--profile", "lets-go"];
    let script = "echo half >/outputs/a; sleep 600";
    let run = world
        .atoll(options)
        .args(["--timeout", "1s", "--", "sh", "-c", script]);
    run.run().says(["output \"a\" waits (its run was cut off)"]);
    assert_eq!(list(&world)[0]["state"], "held");
}

/// clamd(8), given signatures of its own.
#[test]
fn clamav_looks_too_where_it_runs() {
    let world = World::new("clamav_looks_too_where_it_runs");
    let database = world.path("signatures");
    fs::create_dir_all(&database).unwrap();
    world.write(
        "signatures/own.ndb",
        "Own.Test.Harmless-1:0:*:61746f6c6c2d6f776e2d6d61726b6572\n",
    );
    let socket = world.path("clamd.sock");
    let configuration = format!(
        "LocalSocket {}\nDatabaseDirectory {}\nForeground yes\nLogFile {}\n",
        socket.display(),
        database.display(),
        world.path("clamd.log").display()
    );
    world.write("clamd.conf", &configuration);
    let clamd = world.host("clamd").arg("-c").arg(world.path("clamd.conf"));
    let clamd = clamd.start();
    let patience = std::time::Duration::from_secs(60);
    e2e::wait_until("clamd listens", patience, || socket.exists().then_some(()));
    let script = "echo plain >/outputs/plain; echo 'an atoll-own-marker' >/outputs/marked";
    let _ = putting_out(&world, script).success();
    let scan = |socket: &std::path::Path| {
        let scan = world.atoll(["artifacts", "scan", "--json"]);
        let scan = scan.env("ATOLL_CLAMD", socket);
        let told = scan.run().expect_status(1).json();
        let words = told.as_array().unwrap().iter().map(|one| {
            let scans = one["scans"].as_array().unwrap();
            let by = scans.iter().find(|one| one["scanner"] == "clamav").unwrap();
            let rule = by["findings"][0]["rule"].as_str().unwrap_or_default();
            format!("{} {rule}", by["verdict"].as_str().unwrap())
        });
        let mut words: Vec<String> = words.collect();
        words.sort();
        words
    };
    assert_eq!(
        scan(&socket),
        ["clean ", "found Own.Test.Harmless-1.UNOFFICIAL"]
    );
    clamd.signal(rustix::process::Signal::TERM);
    let _ = clamd.wait();
    // One that is gone is no pass.
    assert_eq!(scan(&socket), ["failed ", "failed "]);
}

/// A shredded run leaves digests alone; a hold keeps its artifacts as it keeps the rest.
#[test]
fn shredding_destroys_the_content_of_artifacts() {
    let world = World::new("shredding_destroys_the_content_of_artifacts");
    let _ = putting_out(&world, "echo one >/outputs/a").success();
    let _ = putting_out(&world, "echo two >/outputs/b").success();
    let all = list(&world);
    let run = all[0]["run"].as_str().unwrap();
    let ledger = |command: &str| world.atoll(["ledger", command, run]).run();
    let _ = ledger("hold").success();
    assert_ne!(ledger("shred").code(), 0);
    assert_eq!(list(&world)[0]["destroyed"], false);
    let _ = ledger("release").success();
    ledger("shred").success().says(["artifacts of 1 run"]);
    let after = list(&world);
    assert_eq!(after[0]["destroyed"], true);
    assert_eq!(after[0]["sha256"], all[0]["sha256"]);
    let refused = world.atoll(["artifacts", "promote", id(&all[0])]).run();
    refused.expect_status(125).is_clear_error(["was destroyed"]);
    let other = world.atoll(["artifacts", "promote", id(&all[1]), "--to", "."]);
    let _ = other.run().success();
    assert_eq!(world.read(world.workspace().join("a")), "one\n");
    let pack = world.state().join(format!("atoll/artifacts/{run}.pack"));
    assert!(!pack.exists());
    verify_ledger(&world);
}

/// The statement is one that other verifiers accept: in-toto's own for what it says, and
/// securesystemslib's for the signature, by the key that `atoll ledger key` prints.
#[test]
fn others_verify_the_statement() {
    let world = World::new("others_verify_the_statement");
    let Some(site) = python_site(&world, "in-toto-attestation") else {
        return;
    };
    world.write("given/one", "input");
    let script = "cp /inputs/given/one /outputs/a; echo other >/outputs/b";
    let run = ["run", "--outputs", "--discard", "--input", "given=given"];
    let run = world.atoll(run.into_iter().chain(["--", "sh", "-c", script]));
    let _ = run.run().success();
    let all = list(&world);
    let statement = world.atoll(["artifacts", "show", "--statement", id(&all[0])]);
    let statement = statement.run().success().out();
    let key = world.atoll(["ledger", "key"]).run().success().out();
    let verify = r#"
import base64, json, sys
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from google.protobuf import json_format
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey
key, text, digest = sys.argv[1:4]
name, short, typed = key.strip().split("+", 2)
raw = base64.b64decode(typed)[1:]
public = SSlibKey(short, "ed25519", "ed25519", {"public": raw.hex()})
envelope = Envelope.from_dict(json.loads(text))
envelope.verify([public], 1)
message = json_format.Parse(envelope.payload, statement_pb2.Statement())
statement = Statement.copy_from_pb(message)
statement.validate()
assert digest in [one.digest["sha256"] for one in statement.pb.subject]
# One that was changed, or is signed by another.
forged = json.loads(text)
payload = base64.b64decode(forged["payload"]).replace(digest.encode(), b"0" * 64)
forged["payload"] = base64.b64encode(payload).decode()
other = SSlibKey(short, "ed25519", "ed25519", {"public": "00" * 32})
for envelope, key in [(Envelope.from_dict(forged), public), (Envelope.from_dict(json.loads(text)), other)]:
    try:
        envelope.verify([key], 1)
    except VerificationError:
        continue
    raise SystemExit("a forged statement passes")
print("verified")
"#;
    let digest = all[0]["sha256"].as_str().unwrap();
    let verified = world
        .host(site.join("bin/python"))
        .args(["-c", verify, &key, &statement, digest])
        .run()
        .success();
    assert_eq!(verified.out(), "verified\n");
}
