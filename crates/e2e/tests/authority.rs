//! The certificate authority that sandboxes trust: its place, and that programs in a sandbox accept
//! its certificates without being told.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use atoll_ledger::StateDir;
use atoll_model::RunId;
use atoll_model::network::Network;
use atoll_store::CertificateAuthority;
use e2e::traces::events;
use e2e::{Avoidable, World, expect_same, program_exists, tree};
use serde_json::{Value, json};

/// The options of a run with inspection.
const ALLOW: [&str; 4] = ["--discard", "--allow", "localhost", "--no-tty"];

/// Serves one page within TLS, and waits until it does.
const SERVER: &str = "
openssl s_server -quiet -accept 8443 -www -cert leaf.pem -key leaf.key -cert_chain chain.pem >/dev/null 2>&1 &
server=$!
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    python3 -c 'import socket; socket.create_connection((\"localhost\", 8443))' 2>/dev/null && break
    sleep 0.2
done
";

/// Makes a server's certificate: of an authority like those that runs get. It is valid for
/// localhost, and claims another name besides where one is named.
fn certificates(world: &World, name: &str) {
    let made = world.atoll(["ca", "rotate"]).run().success();
    made.says(["is the certificate authority now"]);
    certificates_of_present(world, name);
}

fn certificates_of_present(world: &World, name: &str) {
    let state = StateDir::open(&world.state().join("atoll")).unwrap();
    let authority = CertificateAuthority::read(&state).unwrap().unwrap();
    let rule = json!({ "to": "localhost", "origin": "this test" });
    let network: Network = serde_json::from_value(json!({ "allow": [rule], "deny": [] })).unwrap();
    let run = RunId::new(1_700_000_000, 7);
    let hour = Duration::from_secs(3600);
    let issued = authority
        .issue(&run, &network, SystemTime::now(), hour)
        .unwrap();
    world.write("chain.pem", &issued.certificate);
    world.write("run.key", &issued.key);
    world.write("extension", format!("subjectAltName=DNS:{name}\n"));
    let _ = world
        .host_shell(
            "openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=leaf \
             -keyout leaf.key -out leaf.req 2>/dev/null && \
             openssl x509 -req -in leaf.req -CA chain.pem -CAkey run.key -CAcreateserial -days 1 \
             -extfile extension -out leaf.pem 2>/dev/null && rm run.key leaf.req extension",
        )
        .run()
        .success();
}

fn is_possible(world: &World) -> bool {
    let missing = ["openssl", "curl", "python3"]
        .into_iter()
        .find(|program| !program_exists(program));
    if let Some(missing) = missing {
        world.skip(&format!("{missing} is not installed"), Avoidable::Yes);
    }
    missing.is_none()
}

/// Programs, each with a command that visits a server, and with nothing in their environment.
const CLIENTS: [(&str, &str); 7] = [
    ("curl", "curl -sS -o /dev/null https://localhost:8443/"),
    ("wget", "wget -q -O /dev/null https://localhost:8443/"),
    (
        "python3",
        "/usr/bin/python3 -c 'import urllib.request as u; u.urlopen(\"https://localhost:8443/\").read()'",
    ),
    (
        "node",
        "node -e 'require(\"https\").get(\"https://localhost:8443/\", a => process.exit(0)).on(\"error\", e => { console.error(e); process.exit(1) })'",
    ),
    (
        "git",
        "git ls-remote https://localhost:8443/x 2>&1 | grep -q 'not valid: is this a git repository'",
    ),
    (
        "openssl",
        "openssl s_client -verify_return_error -verify_hostname localhost -connect localhost:8443 </dev/null >/dev/null 2>&1",
    ),
    ("java", "java Client.java"),
];

/// Programs that bring certificates of their own: they have to be configured.
const TOLD: [&str; 1] = ["node"];

const JAVA: &str = "
public class Client {
    public static void main(String[] arguments) throws Exception {
        var page = new java.net.URL(\"https://localhost:8443/\").openConnection();
        ((javax.net.ssl.HttpsURLConnection) page).getResponseCode();
    }
}
";

fn has(world: &World, program: &str) -> bool {
    let compiles = || {
        let listed = world.host_shell("java --list-modules").run();
        listed.out().contains("jdk.compiler")
    };
    program_exists(program) && (program != "java" || compiles())
}

/// Returns each client's verdict on the server: 0 when it accepts it.
fn judged(world: &World, options: &[&str]) -> Vec<(String, i32, i32)> {
    world.write("Client.java", JAVA);
    let mut script = SERVER.to_owned();
    for (program, command) in CLIENTS {
        if !has(world, program) {
            world.skip(&format!("{program} is not installed"), Avoidable::Yes);
            continue;
        }
        let quoted = command.replace('\'', "'\\''");
        script.push_str(&format!(
            "sh -c '{quoted}'; told=$?\n\
             env -i PATH=\"$PATH\" HOME=\"$HOME\" sh -c '{quoted}'; echo \"judged {program} $told $?\"\n"
        ));
    }
    script.push_str("kill $server\n");
    let ran = world
        .run(options, &script)
        .within(Duration::from_secs(120))
        .run();
    let shown = ran.out();
    let lines = shown
        .lines()
        .filter_map(|line| line.strip_prefix("judged "));
    let parsed = lines.map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let status = |at: usize| words[at].parse().unwrap();
        (words[0].to_owned(), status(1), status(2))
    });
    let parsed: Vec<_> = parsed.collect();
    assert!(!parsed.is_empty(), "{}{}", ran.out(), ran.err());
    parsed
}

fn accepted(world: &World, options: &[&str]) {
    for (program, told, untold) in judged(world, options) {
        assert_eq!(told, 0, "{program} with its environment, {options:?}");
        let is_content = untold == 0 || TOLD.contains(&program.as_str());
        assert!(is_content, "{program} with no environment, {options:?}");
    }
}

#[test]
fn programs_inside_trust_what_is_signed_for_their_run() {
    let world = World::new("programs_inside_trust_what_is_signed_for_their_run");
    if !is_possible(&world) {
        return;
    }
    certificates(&world, "localhost");
    accepted(&world, &ALLOW);
    // Where nothing is looked into, nothing of it is trusted.
    for (program, told, untold) in judged(&world, &["--discard"]) {
        assert!(told != 0 && untold != 0, "{program} trusts it anyway");
    }
}

#[test]
fn root_inside_and_live_workspaces_trust_it_too() {
    let world = World::new("root_inside_and_live_workspaces_trust_it_too");
    if !is_possible(&world) {
        return;
    }
    certificates(&world, "localhost");
    accepted(&world, &["--root", "--discard", "--allow", "localhost"]);
    accepted(&world, &["--live", "--keep", "--allow", "localhost"]);
}

#[test]
fn a_runs_authority_signs_for_no_other_host() {
    let world = World::new("a_runs_authority_signs_for_no_other_host");
    if !is_possible(&world) {
        return;
    }
    let check = "openssl verify -CAfile \"$SSL_CERT_FILE\" -untrusted chain.pem leaf.pem 2>&1";
    for (name, expected) in [
        ("localhost", "leaf.pem: OK"),
        ("www.localhost", "leaf.pem: OK"),
        ("example.com", "permitted subtree violation"),
        ("localhost,IP:127.0.0.1", "excluded subtree violation"),
    ] {
        certificates(&world, name);
        let told = world.run(ALLOW, check).run();
        assert!(told.out().contains(expected), "{name}: {}", told.out());
    }
    // What it signs is no authority either.
    let _ = world
        .host_shell(
            "printf 'basicConstraints=critical,CA:TRUE\nsubjectAltName=DNS:localhost\n' > ext && \
             openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=next \
             -keyout next.key -out next.req 2>/dev/null && \
             openssl x509 -req -in next.req -CA leaf.pem -CAkey leaf.key -CAcreateserial -days 1 \
             -extfile ext -out next.pem 2>/dev/null && cat leaf.pem chain.pem > both.pem",
        )
        .run()
        .success();
    let check = "openssl verify -CAfile \"$SSL_CERT_FILE\" -untrusted both.pem next.pem 2>&1";
    let told = world.run(ALLOW, check).run();
    assert_ne!(told.code(), 0, "{}", told.out());
}

#[test]
fn a_replaced_authority_is_trusted_for_a_while_and_a_revoked_one_not_at_all() {
    let world =
        World::new("a_replaced_authority_is_trusted_for_a_while_and_a_revoked_one_not_at_all");
    if !is_possible(&world) {
        return;
    }
    let check = "openssl verify -CAfile \"$SSL_CERT_FILE\" -untrusted chain.pem leaf.pem";
    let is_trusted = || world.run(ALLOW, check).run().code() == 0;
    certificates(&world, "localhost");
    assert!(is_trusted());
    // A sandbox that is there goes on with what it knows.
    let script = format!("echo ready; read line; {check} && echo trusted");
    let mut there = world.run(ALLOW, &script).start();
    let _ = there.until_stdout("ready");
    let said = world.atoll(["ca", "rotate"]).run().success();
    said.says(["30 days"]);
    assert!(is_trusted(), "the one before it");
    let _ = world.atoll(["ca", "rotate", "--revoke"]).run().success();
    assert!(!is_trusted(), "one that was revoked");
    there.send("\n");
    there.close_stdin();
    assert!(there.wait().out().contains("trusted"));
    // The new one is: with the same server's key.
    certificates_of_present(&world, "localhost");
    assert!(is_trusted());
}

#[test]
fn the_key_is_its_owners_alone_and_nothing_of_it_is_inside() {
    let world = World::new("the_key_is_its_owners_alone_and_nothing_of_it_is_inside");
    let none = world.atoll(["ca", "show"]).run().expect_status(125);
    none.is_clear_error(["there is no certificate authority yet"]);
    let before = tree(&world.workspace());
    let state = world.state().join("atoll");
    // Without a network that is looked into there is none, and no trace of one.
    let script = "ls /run/atoll; env | grep -c /run/atoll; true";
    for options in [
        &["--discard"][..],
        &["--discard", "--allow", "localhost:22"],
    ] {
        let ran = world.run(options, script).run().success();
        assert_eq!(ran.out().trim(), "0", "{options:?} {}", ran.err());
        assert!(!state.join("authority").exists(), "{options:?}");
    }
    let script = "ls /run/atoll/trust; cat /run/atoll/trust/* | grep -ac PRIVATE; \
         for one in /run/atoll/trust/authority.pem \"$SSL_CERT_FILE\" /etc/ssl/certs/ca-certificates.crt; do \
             (echo x >> \"$one\") 2>/dev/null && echo changed; rm -f \"$one\" 2>/dev/null; mv \"$one\" /tmp/x 2>/dev/null && echo gone; \
             chmod 666 \"$one\" 2>/dev/null && echo opened; test -s \"$one\" || echo lost $one; done; true";
    for root in [&["--root"][..], &[]] {
        let options = [&ALLOW[..], root].concat();
        let ran = world.run(options, script).run().success();
        let told: Vec<String> = ran.out().lines().map(str::to_owned).collect();
        // Root's own system is its own: the last of the three is in its layer.
        let expected = ["authority.pem", "ca-certificates.crt", "cacerts", "0"];
        let seen: Vec<_> = told.iter().take(4).collect();
        assert_eq!(seen, expected, "{}", ran.err());
        if root.is_empty() && fs::metadata("/etc/ssl/certs/ca-certificates.crt").is_ok() {
            assert_eq!(told.len(), 4, "{told:?}");
        }
    }
    expect_same(&before, &world.workspace());
    let mode = |path: PathBuf| fs::metadata(path).unwrap().mode() & 0o777;
    let file = state.join("authority/authority.json");
    assert_eq!(mode(state.join("authority")), 0o700);
    assert_eq!(mode(file.clone()), 0o600);
    let shown = world.atoll(["ca", "show"]).run().success().out();
    assert!(shown.contains("BEGIN CERTIFICATE") && !shown.contains("PRIVATE"));
    let shown = world.atoll(["ca", "show", "--json"]).run().success().json();
    assert_eq!(shown["path"], file.to_str().unwrap());
    let made = events(&world);
    let made: Vec<&Value> = made
        .iter()
        .filter(|event| event["type"] == "authority.made")
        .collect();
    assert_eq!(made.len(), 1);
    assert_eq!(made[0]["body"]["fingerprint"], shown["fingerprint"]);
    // Where others can read the key, nothing is signed with it.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let refused = world.run(ALLOW, "echo ran").run().expect_status(125);
    refused.is_clear_error(["is not yours alone", "chmod go= "]);
    assert!(!refused.out().contains("ran"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    world.write(&file, "{}");
    let refused = world.run(ALLOW, "echo ran").run().expect_status(125);
    refused.is_clear_error(["the certificate authority in", "cannot be used"]);
}

#[test]
fn runs_that_need_it_first_at_once_agree_on_one() {
    let world = World::new("runs_that_need_it_first_at_once_agree_on_one");
    let script = "sha256sum < /run/atoll/trust/authority.pem";
    let running: Vec<_> = (0..6).map(|_| world.run(ALLOW, script).start()).collect();
    let told: Vec<String> = running
        .into_iter()
        .map(|one| one.wait().success().out())
        .collect();
    assert!(told.iter().all(|one| *one == told[0]), "{told:?}");
    assert_eq!(told[0].trim().len(), 64 + 3);
}

#[test]
fn what_the_person_sets_stays() {
    let world = World::new("what_the_person_sets_stays");
    let print = "echo $SSL_CERT_FILE $CURL_CA_BUNDLE $NODE_EXTRA_CA_CERTS";
    let options = [
        &ALLOW[..],
        &["--env", "SSL_CERT_FILE=/mine", "--env", "CURL_CA_BUNDLE"],
    ]
    .concat();
    let ran = world
        .run(options, print)
        .env("CURL_CA_BUNDLE", "/passed")
        .run()
        .success();
    let expected = "/mine /passed /run/atoll/trust/authority.pem";
    assert_eq!(ran.out().trim(), expected);
    world.profile(
        "mine",
        "[network]\nallow = [\"localhost\"]\n[environment]\nset = { SSL_CERT_FILE = \"/of/profile\" }\n",
    );
    let options = ["--discard", "--no-tty", "--profile", "mine"];
    let ran = world.run(options, print).run().success();
    assert!(ran.out().starts_with("/of/profile "), "{}", ran.out());
}
