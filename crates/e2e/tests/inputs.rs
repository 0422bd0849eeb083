//! Inputs: what is put into a sandbox by a name, to be read as it was.

use std::fs;
use std::os::unix::fs::symlink;

use e2e::traces::verify_ledger;
use e2e::{Outcome, World};
use serde_json::Value;

/// Runs a shell script with these inputs.
fn with(world: &World, inputs: &[&str], script: &str) -> Outcome {
    world.write("inside.sh", script);
    let inputs = inputs.iter().flat_map(|one| ["--input", one]);
    let run = ["run", "--discard"].into_iter().chain(inputs);
    world.atoll(run.chain(["--", "sh", "./inside.sh"])).run()
}

fn staged(world: &World) -> Vec<Value> {
    let show = world.atoll(["ledger", "show", "--json"]).run().success();
    let events = show.out();
    let events = events
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|one| one["type"] == "input.staged").collect()
}

/// Each attempt on an input is made on a file of the workspace too, where it succeeds.
#[test]
fn inputs_are_read_and_not_changed() {
    let world = World::new("inputs_are_read_and_not_changed");
    world.write("sales.csv", "region,rows\nnorth,42\n");
    world.write("data/sub/one", "1");
    world.write("data/tool", "#!/bin/sh\necho ran\n");
    symlink("sub/one", world.path("data/link")).unwrap();
    let script = r#"
cat /inputs/sales /inputs/tree/sub/one /inputs/tree/link
attempts() {
    (echo more >>"$1/sub/one") 2>/dev/null && echo append
    (echo new >"$1/new") 2>/dev/null && echo create
    mv "$1/sub/one" "$1/sub/two" 2>/dev/null && echo rename
    chmod 755 "$1/tool" 2>/dev/null && echo chmod
    "$1/tool" 2>/dev/null
    rm -rf "$1/sub" 2>/dev/null && echo remove
    true
}
echo; echo inputs:; attempts /inputs/tree; rm /inputs/sales 2>/dev/null && echo removed
echo workspace:; attempts ./data
"#;
    let out = with(&world, &["sales=sales.csv", "tree=data"], script)
        .success()
        .out();
    let expected = "region,rows\nnorth,42\n11\ninputs:\nworkspace:\nappend\ncreate\nrename\nchmod\nran\nremove\n";
    assert_eq!(out, expected);
    let staged = staged(&world);
    assert_eq!(staged.len(), 2, "{staged:?}");
    let sum = world
        .host("sha256sum")
        .args(["sales.csv"])
        .run()
        .success()
        .out();
    assert_eq!(staged[0]["body"]["sha256"].as_str(), sum.split(' ').next());
    assert_eq!(staged[0]["body"]["media"], "text/plain");
    assert_eq!(staged[1]["body"]["files"], 4, "{staged:?}");
    assert_eq!(
        staged[1]["body"]["dirHash"].as_str().map(str::len),
        Some(64)
    );
    verify_ledger(&world);
}

#[test]
fn inputs_that_are_none_are_refused() {
    let world = World::new("inputs_that_are_none_are_refused");
    world.write("a.txt", "text");
    fs::create_dir(world.path("out")).unwrap();
    symlink("/etc/passwd", world.path("out/link")).unwrap();
    world.write(".ssh-like/id_ed25519", "key");
    let refused = |input: &str, says: &[&str]| {
        let outcome = with(&world, &[input], "echo started");
        assert_eq!(outcome.out(), "", "{input}");
        let _ = outcome
            .expect_status(125)
            .is_clear_error(says.iter().copied());
    };
    refused("a.txt", &["has a name, =, and a path"]);
    refused("../x=a.txt", &["letters, digits"]);
    refused("x=none.txt", &["none.txt"]);
    refused("x=out", &["leads out of it"]);
    refused("x=artifact:1234", &["no artifact 1234"]);
    let twice = with(&world, &["x=a.txt", "x=a.txt"], "echo started");
    let _ = twice
        .expect_status(126)
        .is_clear_error(["another input has this name"]);
    let own = format!("x={}", world.state().display());
    fs::create_dir_all(world.state()).unwrap();
    let _ = with(&world, &[&own], "echo started").expect_status(126);
    // The control.
    assert_eq!(
        with(&world, &["x=a.txt"], "cat /inputs/x").success().out(),
        "text"
    );
    assert_eq!(staged(&world).len(), 1);
}

#[test]
fn profiles_and_policies_bound_inputs() {
    let world = World::new("profiles_and_policies_bound_inputs");
    world.write("small.txt", "text");
    world.write("large.txt", "x".repeat(2000));
    fs::write(world.path("picture.png"), b"\x89PNG\r\n\x1a\n").unwrap();
    let secret = world.home().join("data/secret.txt");
    world.write(&secret, "text");
    world.write(
        world.config().join("atoll/profiles/bounded.toml"),
        "extends = [\"default\"]\n[inputs]\nbytes = 1000\nfiles = 1\ntypes = [\"text/*\"]\n",
    );
    world.write(
        world.config().join("atoll/own.cedar"),
        format!(
            "@id(\"none\") @reason(\"it is secret\") forbid(principal, action == Action::\"read\", \
             resource == Path::\"{}\"); @id(\"all\") permit(principal, action, resource);",
            secret.canonicalize().unwrap().display()
        ),
    );
    let run = |inputs: &[&str]| {
        let inputs = inputs.iter().flat_map(|one| ["--input", one]);
        let run = ["run", "--discard", "--profile", "bounded"]
            .into_iter()
            .chain(inputs);
        world.atoll(run.chain(["--", "ls", "/inputs"])).run()
    };
    assert_eq!(run(&["a=small.txt"]).success().out(), "a\n");
    let _ = run(&["a=large.txt"])
        .expect_status(125)
        .is_clear_error(["larger than 1000 B"]);
    let _ = run(&["a=picture.png"])
        .expect_status(125)
        .is_clear_error(["is image/png", "text/*"]);
    let _ = run(&["a=small.txt", "b=small.txt"])
        .expect_status(125)
        .is_clear_error(["directories than 1"]);
    let _ = run(&[&format!("a={}", secret.display())])
        .expect_status(126)
        .is_clear_error(["it is secret"]);
}

/// An artifact goes into another sandbox once it is promoted, and the statement about what comes of it
/// has its digest.
#[test]
fn promoted_artifacts_are_inputs_of_others() {
    let world = World::new("promoted_artifacts_are_inputs_of_others");
    let put = |run: &[&str], script: &str| {
        let run = ["run", "--discard", "--outputs"].iter().chain(run);
        world.atoll(run.chain(&["--", "sh", "-c", script])).run()
    };
    let list = || {
        world
            .atoll(["artifacts", "list", "--json"])
            .run()
            .success()
            .json()
    };
    let _ = put(&[], "echo first >/outputs/a").success();
    let first = list();
    let id = first[0]["id"].as_str().unwrap();
    let input = format!("a=artifact:{}", &id[..8]);
    let copy = "cp /inputs/a /outputs/b";
    let _ = put(&["--input", &input], copy)
        .expect_status(125)
        .is_clear_error(["is not promoted"]);
    let _ = world.atoll(["artifacts", "promote", id]).run().success();
    let _ = put(&["--input", &input], copy).success();
    let all = list();
    let second = all
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["name"] == "b")
        .unwrap();
    assert_eq!(second["sha256"], first[0]["sha256"]);
    let statement = world.atoll([
        "artifacts",
        "show",
        "--statement",
        second["id"].as_str().unwrap(),
    ]);
    let envelope = statement.run().success().json();
    let decode = "import base64, sys; print(base64.b64decode(sys.argv[1]).decode())";
    let payload = envelope["payload"].as_str().unwrap();
    let decoded = world
        .host("python3")
        .args(["-c", decode, payload])
        .run()
        .success();
    let used = &decoded.json()["predicate"]["buildDefinition"]["resolvedDependencies"];
    assert_eq!(used[0]["name"], "a");
    assert_eq!(used[0]["uri"], format!("urn:atoll:artifact:{id}"));
    assert_eq!(used[0]["digest"]["sha256"], first[0]["sha256"]);
}

/// A download is fetched once, outside of the sandbox, which reaches no network.
#[test]
fn downloads_have_the_digest_that_was_named() {
    let world = World::new("downloads_have_the_digest_that_was_named");
    world.write("served/model.bin", "weights");
    let serve = "import http.server, sys\nclass H(http.server.SimpleHTTPRequestHandler):\n    def log_message(self, *_): pass\n\
                 server = http.server.HTTPServer(('127.0.0.1', 0), H)\nprint(server.server_address[1], flush=True)\nserver.serve_forever()";
    let served = world
        .host("python3")
        .args(["-c", serve])
        .dir(world.path("served"))
        .start();
    let port = served.until_stdout("\n").trim().to_owned();
    let digest = world
        .host("sha256sum")
        .args(["served/model.bin"])
        .run()
        .success()
        .out();
    let digest = digest.split(' ').next().unwrap();
    let input = |digest: &str| format!("m=http://127.0.0.1:{port}/model.bin#sha256={digest}");
    let other = "0".repeat(64);
    let refused = with(&world, &[&input(&other)], "cat /inputs/m");
    let _ = refused
        .expect_status(125)
        .is_clear_error(["its SHA-256 digest is", digest]);
    let _ = with(&world, &[&input("12")], "cat /inputs/m").expect_status(125);
    let first = with(&world, &[&input(digest)], "cat /inputs/m").success();
    assert_eq!(first.out(), "weights");
    served.signal(rustix::process::Signal::TERM);
    let _ = served.wait();
    assert_eq!(
        with(&world, &[&input(digest)], "cat /inputs/m")
            .success()
            .out(),
        "weights"
    );
    assert_eq!(staged(&world)[0]["body"]["sha256"], digest);
    // It goes by age, as all that is kept.
    let rules = world.config().join("atoll/retention.toml");
    world.write(rules, "layer.age = \"1ms\"\n");
    let _ = world.atoll(["gc"]).run().success();
    let again = with(&world, &[&input(digest)], "cat /inputs/m").expect_status(125);
    let _ = again.is_clear_error(["cannot be fetched"]);
}
