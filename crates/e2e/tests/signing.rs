//! Signing keys: AWS's own programs sign with placeholders in a sandbox, and origins that verify
//! each signature with AWS's own library get those of the real key.

use std::fs;
use std::time::Duration;

use e2e::internet::{events, is_possible, measured, measuring, on_servers};
use e2e::{Avoidable, Outcome, World, aws, cache, holders};

const SERVERS: &str = include_str!("signing/servers.py");
const ATTACKS: &str = include_str!("signing/attacks.py");
const NAMES: &[&str] = &[
    "s3.eu-west-1.amazonaws.com",
    "dynamodb.eu-west-1.amazonaws.com",
    "sts.us-east-1.amazonaws.com",
    "sts.eu-west-1.amazonaws.com",
    "other.example",
];
/// The real id, secret and session token.
const REAL: [&str; 3] = [
    "ASIAR3ALK3YOFTH1ST3S",
    "r3alS3cr3t/0fTh1sT3st+Wh1chN0bodyM4yS33i",
    "FwoGr3alT0k3n/OfTh1sT3st+Wh1chN0bodyM4yS33InAnyPlace==",
];
const RULES: &str = r#"
[network]
allow = ["s3.eu-west-1.amazonaws.com", "dynamodb.eu-west-1.amazonaws.com", "sts.us-east-1.amazonaws.com", "sts.eu-west-1.amazonaws.com", "other.example"]
[environment]
set = { AWS_DEFAULT_REGION = "eu-west-1", AWS_PAGER = "" }
"#;
const KEY: &str = r#"
[credential.aws]
source = { environment = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"] }
to = ["s3.eu-west-1.amazonaws.com", "dynamodb.eu-west-1.amazonaws.com"]
place = { sigv4 = { region = "eu-west-1", service = ["s3", "dynamodb"] } }
"#;
/// A profile's credential for a field of bodies at one of those hosts.
const FIELD: &str = r#"
[credential.field]
source = { environment = "FIELD_KEY" }
to = "dynamodb.eu-west-1.amazonaws.com"
place = { body = "key" }
"#;
/// Each of AWS's programs takes seconds to start where much else goes on.
const LONG: Duration = Duration::from_secs(180);
const REAL_FIELD: &str = "f13ldK3yOfTh1sT3stWh1chN0bodyM4yS33";
/// Returns a world with a profile that has these credentials, and AWS's programs, if there can be
/// one.
fn world(name: &str, credential: &str) -> Option<World> {
    let world = World::new(name);
    world.profile("bound", &format!("{RULES}{credential}"));
    world.write(world.top().join("keys"), REAL.join(" ") + "\n");
    for one in [REAL[1], REAL[2], REAL_FIELD] {
        world.canary(one, &["keys", "home/.aws/credentials"]);
    }
    world.write(world.top().join("attacks.py"), ATTACKS);
    (is_possible(&world, &["openssl"]) && aws::is_there(&world)).then_some(world)
}

/// Runs a shell script in a sandbox, where the origins are and the real key is in Atoll's
/// environment alone.
fn online(world: &World, script: &str) -> Outcome {
    let site = aws::site();
    let command = "sh -c 'read -r AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN <\"$KEYS\"; \
         export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN; exec \"$ATOLL\" run --discard \"$@\"' sh \"$@\"";
    let run = on_servers(world, SERVERS, NAMES, command);
    let run = run.env("KEYS", world.top().join("keys"));
    let run = run.env("FIELD_KEY", REAL_FIELD).within(LONG);
    let script = format!("{}{script}", aws::inside());
    run.args(["sh", "--profile", "bound", "--ro", &site, "--", "sh", "-c"])
        .arg(script)
        .run()
}

/// Returns the requests that have reached the origins.
fn requests(world: &World) -> String {
    fs::read_to_string(world.top().join("internet/requests")).unwrap_or_default()
}

#[test]
fn programs_of_aws_sign_with_placeholders_and_are_served() {
    let name = "programs_of_aws_sign_with_placeholders_and_are_served";
    let Some(world) = world(name, KEY) else {
        return;
    };
    let boto = "import boto3, sys; s3 = boto3.client('s3'); \
        s3.put_object(Bucket='bucket', Key='a b+c/\\u00e9', Body=b'from boto3' * 1000); \
        print(len(s3.get_object(Bucket='bucket', Key='a b+c/\\u00e9')['Body'].read())); \
        print('range', len(s3.get_object(Bucket='bucket', Key='a b+c/\\u00e9', Range='bytes=0-3')['Body'].read())); \
        big = 'x' * 300000; \
        print(boto3.client('dynamodb').list_tables(ExclusiveStartTableName=big)['TableNames'])";
    let script = format!(
        "aws s3 ls; echo 'it is kept' >file; aws s3 cp file s3://bucket/key; aws s3 cp s3://bucket/key -; \
         echo \"big $(aws s3 cp s3://bucket/big - | wc -c)\"; aws dynamodb list-tables; curl -sS -m 20 --noproxy '*' \"$(aws s3 presign s3://bucket/key)\"; \
         python3 -c \"{boto}\"; echo \"id $AWS_ACCESS_KEY_ID\"; echo \"secret $AWS_SECRET_ACCESS_KEY\"; \
         cat /proc/[0-9]*/environ | tr '\\0' '\\n'"
    );
    let outcome = online(&world, &script).success();
    let (out, reached) = (outcome.out(), requests(&world));
    assert!(!reached.contains("WRONG "), "{reached}\n{outcome}");
    assert!(reached.lines().count() >= 8, "{reached}\n{outcome}");
    assert_eq!(out.matches("it is kept").count(), 2, "{outcome}\n{reached}");
    for said in [
        "03:04:05 welcome",
        "\"welcome\"",
        "10000\n",
        "range 4\n",
        "big 9437184\n",
        "['welcome', '3000",
    ] {
        assert!(out.contains(said), "{said}: {outcome}\n{reached}");
    }
    // Both forms, and bodies of each kind, were among them.
    for form in [
        "X-Amz-Signature=",
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        "'x-amz-target': 'DynamoDB_20120810.ListTables'",
    ] {
        assert!(reached.contains(form), "{form}: {reached}");
    }
    for real in REAL {
        assert!(!out.contains(real), "{outcome}");
    }
    let said = |name: &str| {
        let line = out.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().to_owned()
    };
    let (id, secret) = (said("id "), said("secret "));
    assert!(id.starts_with("ASIA") && id.len() == 20, "{id}");
    assert_eq!(secret.len(), 40);
    assert!(!reached.contains(&id) && !reached.contains(&secret));
    let opened = events(&world, "flow.opened");
    let with = opened.iter().filter(|one| one["credential"] == "aws");
    assert_eq!(with.count(), reached.lines().count(), "{opened:?}");
    assert!(!outcome.err().contains("alert"), "{outcome}");
}

/// Objects are transferred whole as AWS's programs do it by default: checksums after unsigned
/// bodies, several parts at once, and ranges of large objects.
#[test]
fn objects_go_and_come_whole_as_programs_of_aws_do_it_by_default() {
    let name = "objects_go_and_come_whole_as_programs_of_aws_do_it_by_default";
    let sts = KEY.replace(
        "\"dynamodb.eu-west-1.amazonaws.com\"]",
        "\"dynamodb.eu-west-1.amazonaws.com\", \"sts.eu-west-1.amazonaws.com\"]",
    );
    let sts = sts.replace("\"dynamodb\"]", "\"dynamodb\", \"sts\"]");
    let Some(world) = world(name, &sts) else {
        return;
    };
    let npm = cache().map(|cache| cache.join("npm/node_modules"));
    let Some(npm) = npm.filter(|npm| npm.join("@aws-sdk/lib-storage").is_dir()) else {
        world.skip(
            "AWS's library for JavaScript is not in ATOLL_TEST_CACHE",
            Avoidable::Yes,
        );
        return;
    };
    let npm = npm.display();
    world.profile(
        "bound",
        &format!("{RULES}{sts}[files]\nread = [\"{npm}\"]\n"),
    );
    world.write("defaults.py", include_str!("signing/defaults.py"));
    world.write("defaults.mjs", include_str!("signing/defaults.mjs"));
    let script = format!(
        "head -c 17825793 /dev/urandom >big; python3 defaults.py big; \
         aws s3 cp --quiet big s3://bucket/cli && aws s3 cp --quiet s3://bucket/cli back && \
         cmp big back && echo 'cli big right'; \
         AWS_REGION=eu-west-1 {npm}/.bin/node defaults.mjs '{npm}' big"
    );
    let outcome = online(&world, &script);
    let (out, reached) = (outcome.out(), requests(&world));
    let right = out.lines().filter(|line| line.ends_with(" right")).count();
    assert_eq!(
        (right, out.matches("WRONG").count()),
        (14, 0),
        "{outcome}\n{reached}"
    );
    assert!(!reached.contains("WRONG "), "{reached}\n{outcome}");
    for form in [
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        "'x-amz-trailer': 'x-amz-checksum-crc32'",
        "partNumber=3",
        "'range': 'bytes=83",
    ] {
        assert!(reached.contains(form), "{form}: {reached}");
    }
    assert!(!outcome.err().contains("alert"), "{outcome}");
}

#[test]
fn a_signature_of_anything_else_reaches_nobody() {
    let name = "a_signature_of_anything_else_reaches_nobody";
    let Some(world) = world(name, &format!("{KEY}{FIELD}")) else {
        return;
    };
    let attacks = world.top().join("attacks.py");
    fs::copy(&attacks, world.workspace().join("attacks.py")).unwrap();
    let script = "python3 attacks.py; aws sts get-caller-identity --region us-east-1; echo over";
    let outcome = online(&world, script).success();
    let (out, reached) = (outcome.out(), requests(&world));
    let sent = |line: &'static str| line.split_once("send(\"")?.1.split('"').next();
    let mut rows: Vec<&str> = ATTACKS.lines().filter_map(sent).collect();
    assert!(rows.len() > 35, "{rows:?}");
    rows.retain(|row| !row.is_empty());
    rows.extend([
        "control-id-in-body",
        "control-secret-in-body",
        "control-token-in-body",
    ]);
    rows.extend([
        "id-in-other-body",
        "secret-in-other-body",
        "token-in-other-body",
    ]);
    for row in &rows {
        let line = out
            .lines()
            .find(|line| line.starts_with(&format!("{row} ")));
        let line = line.unwrap_or_else(|| panic!("{row}: {outcome}"));
        let is_control = row.starts_with("control-");
        assert_eq!(line.contains(" 200 "), is_control, "{line}\n{reached}");
        let name = match *row {
            "field-in-body" => "field is in the body of a request that is signed",
            "field-in-object" | "field-in-long-body" => "field is in",
            _ => "aws",
        };
        assert_eq!(
            line.contains(&format!("403 the placeholder of credential {name}")),
            !is_control,
            "{line}\n{reached}"
        );
        let was_there = reached.contains(&format!("/{row}"));
        assert_eq!(was_there, is_control, "{row}: {reached}");
    }
    // Each value of the key is masked, also where it comes in parts.
    assert!(out.contains("comes-back True True"), "{outcome}");
    assert!(
        out.contains("comes-in-parts True True True True"),
        "{outcome}"
    );
    for real in [REAL[0], REAL[1], REAL[2], REAL_FIELD] {
        assert!(!out.contains(real), "{outcome}");
    }
    assert!(!reached.contains(REAL_FIELD), "{reached}");
    // Another service, though its host may be reached.
    assert!(!reached.contains("sts."), "{reached}\n{outcome}");
    assert!(!reached.contains("WRONG "), "{reached}");
    assert!(out.contains("over"), "{outcome}");
    let refused = events(&world, "flow.refused");
    let names = ["aws", "field"];
    let is_alert = |one: &&serde_json::Value| names.iter().any(|name| one["credential"] == *name);
    let attacks = rows.iter().filter(|row| !row.starts_with("control-"));
    assert!(
        refused.iter().filter(is_alert).count() >= attacks.count(),
        "{refused:?}"
    );
    assert!(outcome.err().contains("alert"), "{outcome}");
}

#[test]
fn a_body_in_pieces_passes_in_little_memory() {
    let name = "a_body_in_pieces_passes_in_little_memory";
    let Some(world) = world(name, KEY) else {
        return;
    };
    world.write("attacks.py", ATTACKS);
    let site = aws::site();
    let command = format!(
        "sh -c 'read -r AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN <\"$KEYS\"; \
         export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN; exec \"$@\"' sh \
         {} \"$ATOLL\" run --discard \"$@\"",
        measuring(&world)
    );
    let run = on_servers(&world, SERVERS, NAMES, &command);
    let run = run.env("KEYS", world.top().join("keys"));
    let script = format!("{}python3 attacks.py 134217728", aws::inside());
    let outcome = run
        .args(["sh", "--profile", "bound", "--ro", &site, "--", "sh", "-c"])
        .arg(script)
        .run()
        .success();
    let reached = requests(&world);
    assert!(outcome.out().contains("attacks.py 200"), "{outcome}");
    assert!(reached.starts_with("signed PUT"), "{reached}");
    let most = measured(&world);
    assert!((1..48 * 1024).contains(&most), "{most} KiB: {outcome}");
}

#[test]
fn a_key_that_signs_comes_from_a_profile_of_aws_and_from_the_vault() {
    let name = "a_key_that_signs_comes_from_a_profile_of_aws_and_from_the_vault";
    let from = |source: &str| {
        let variables = "{ environment = [\"AWS_ACCESS_KEY_ID\", \"AWS_SECRET_ACCESS_KEY\", \"AWS_SESSION_TOKEN\"] }";
        assert!(KEY.contains(variables));
        KEY.replace(variables, source)
    };
    let Some(world) = world(name, &from("{ aws-profile = \"work\" }")) else {
        return;
    };
    let [id, secret, token] = REAL;
    let file = world.home().join(".aws/credentials");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let script = "aws s3 ls; ls ~/.aws";
    let missing = online(&world, script).expect_status(125);
    missing.is_clear_error(["credential aws cannot be read from", "aws configure"]);
    let others = "[default]\naws_access_key_id = AKIAANOTHERKEY000001\n[work]\n";
    world.write(&file, others);
    let missing = online(&world, script).expect_status(125);
    missing.is_clear_error(["it has no aws_access_key_id there", "export-credentials"]);
    world.write(
        &file,
        format!(
            "{others}aws_access_key_id = {id}\naws_secret_access_key = {secret}\naws_session_token = {token}\n"
        ),
    );
    let outcome = online(&world, script);
    let reached = requests(&world);
    assert!(outcome.out().contains("welcome"), "{outcome}\n{reached}");
    assert!(reached.contains("signed GET"), "{reached}");
    assert!(outcome.err().contains("chmod go-rwx"), "{outcome}");

    let sealed = from("{ vault = [\"aws-id\", \"aws-secret\", \"aws-token\"] }");
    world.profile("bound", &format!("{RULES}{sealed}"));
    for (name, value) in [
        ("aws-id", secret),
        ("aws-secret", secret),
        ("aws-token", token),
    ] {
        let set = world.atoll(["secret", "set", name]);
        let _ = set.stdin(format!("{value}\n")).run().success();
    }
    let unfit = online(&world, script).expect_status(125);
    unfit.is_clear_error(["it is no id of a key that signs"]);
    let set = world.atoll(["secret", "set", "aws-id"]);
    let _ = set.stdin(format!("{id}\n")).run().success();
    let outcome = online(&world, script);
    let reached = requests(&world);
    assert!(outcome.out().contains("welcome"), "{outcome}\n{reached}");
    assert!(!outcome.out().contains(id), "{outcome}");
}

#[test]
fn half_a_key_lets_nothing_start_and_an_optional_one_need_not_be_there() {
    let name = "half_a_key_lets_nothing_start_and_an_optional_one_need_not_be_there";
    let world = World::new(name);
    world.profile("bound", &format!("{RULES}{KEY}optional = true\n"));
    let script = "echo \"id ${AWS_ACCESS_KEY_ID-none} ${AWS_SECRET_ACCESS_KEY-none}\"";
    let [id, secret, token] = REAL;
    for one in REAL {
        world.canary(one, &[]);
    }
    let run = |there: &[(&str, &str)]| {
        let run = world.run(["--discard", "--profile", "bound"], script);
        let with = |run: e2e::Invocation, (name, value): &(&str, &str)| run.env(name, value);
        there.iter().fold(run, with).run()
    };
    let key = [("AWS_ACCESS_KEY_ID", id), ("AWS_SECRET_ACCESS_KEY", secret)];
    assert_eq!(run(&[]).success().out(), "id none none\n");
    let there = run(&key).success();
    assert!(there.out().starts_with("id ASIA"), "{there}");
    assert!(
        !there.out().contains(id) && !there.out().contains("none"),
        "{there}"
    );
    for half in [&key[..1], &key[1..], &[("AWS_SESSION_TOKEN", token)]] {
        let failed = run(half).expect_status(125);
        failed.is_clear_error(["credential aws cannot be read from", "is not set"]);
    }
    let unfit = run(&[
        ("AWS_ACCESS_KEY_ID", secret),
        ("AWS_SECRET_ACCESS_KEY", secret),
    ]);
    let unfit = unfit.expect_status(125);
    unfit.is_clear_error(["it is no id of a key that signs"]);
}

#[test]
fn no_process_but_the_one_that_carries_holds_a_key_that_signs() {
    let name = "no_process_but_the_one_that_carries_holds_a_key_that_signs";
    let Some(world) = world(name, KEY) else {
        return;
    };
    world.write(holders::sought(&world), REAL[1]);
    world.canary(REAL[1], &["sought"]);
    let command = format!(
        "sh -c 'read -r AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN <\"$KEYS\"; \
         export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN; exec \"$@\"' sh {}",
        holders::searching(&world)
    );
    let run = on_servers(&world, SERVERS, NAMES, &command);
    let run = holders::without_variable(&world, run).env("KEYS", world.top().join("keys"));
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
}

/// A signature covers the whole request: it is not signed anew without a part.
#[test]
fn what_is_signed_and_taken_out_does_not_go() {
    let name = "what_is_signed_and_taken_out_does_not_go";
    let Some(world) = world(name, KEY) else {
        return;
    };
    let sent = |header: &str| {
        let policy = format!(
            "@id(\"out\") @redact(\"header:{header}\") permit(principal, action == Action::\"request\", resource);\n\
             @id(\"rest\") permit(principal, action, resource);\n"
        );
        world.write(world.config().join("atoll/own.cedar"), &policy);
        let outcome = online(&world, "aws s3 ls 2>&1; true").success();
        (requests(&world).lines().count(), outcome)
    };
    // The control: what no signature is of is taken out, and it goes.
    let (arrived, outcome) = sent("x-nothing");
    assert!(arrived > 0, "{outcome}");
    for header in ["x-amz-date", "authorization", "x-amz-content-sha256"] {
        let (arrived, outcome) = sent(header);
        assert_eq!(arrived, 0, "{header}: {outcome}");
    }
    let refused = format!("{:?}", events(&world, "flow.refused"));
    assert!(refused.contains("which its signature is of"), "{refused}");
}
