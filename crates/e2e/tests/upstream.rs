//! Hosts whose connections go on through an upstream proxy, and which trust authorities of their
//! own.

use std::fs;
use std::time::Duration;

use e2e::World;
use e2e::internet::{Seen, events, is_possible, on_internet};

const CORPORATE: &str = include_str!("upstream/corporate.py");
const CURL: &str = "curl -sS -m 60 --noproxy '*'";
const SPEAK: &str = "python3 -c 'import socket, sys; \
     print(socket.create_connection((sys.argv[1], 22), 60).recv(64).decode().strip())'";

const LONG: Duration = Duration::from_secs(300);

/// Makes an authority of its own, and a certificate by it, beside the small internet.
fn certify(world: &World) {
    let place = world.top().join("corporate");
    fs::create_dir(&place).unwrap();
    fs::write(place.join("corporate.py"), CORPORATE).unwrap();
    let script = "new='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'; \
        openssl req -x509 $new -keyout ca.key -out ca.pem -days 2 -subj /CN=corporate && \
        openssl req $new -keyout leaf.key -out leaf.csr -subj /CN=example.com && \
        echo subjectAltName=DNS:example.com > names && \
        openssl x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
            -extfile names -out leaf.pem";
    let _ = world.host_shell(script).dir(&place).run().success();
}

/// Runs a script in a sandbox with a profile that has these lines about the network.
fn online(world: &World, profile: &str, options: &[&str], script: &str) -> (Seen, Vec<String>) {
    let place = world.top().join("corporate");
    let _ = fs::remove_file(place.join("proxied"));
    let roots = place.join("ca.pem");
    let profile = profile.replace("CA", &roots.display().to_string());
    world.profile("corporate", &format!("[network]\n{profile}\n"));
    let place = place.display();
    let command = format!(
        "python3 '{place}/corporate.py' '{place}' \"$ATOLL\" run --discard --profile corporate \"$@\""
    );
    let run = on_internet(world, &command).env("INTERNET_PORTS", "22 80");
    let run = run.arg("sh").args(options).args(["--", "sh", "-c", script]);
    let seen = Seen::of(world, run.within(LONG).run());
    let proxied = fs::read_to_string(format!("{place}/proxied")).unwrap_or_default();
    (seen, proxied.lines().map(str::to_owned).collect())
}

#[test]
fn connections_go_on_by_the_upstream_proxy_of_a_profile() {
    let world = World::new("connections_go_on_by_the_upstream_proxy_of_a_profile");
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    certify(&world);
    let lines = "upstream-proxy = 'http://me:p%40ss%20word@127.0.0.1:3128'\n\
                 no-proxy = ['six.example']\nupstream-roots = ['CA']";
    let allow = [
        "--allow",
        "example.com:22,80,443",
        "--allow",
        "intranet.example:22",
        "--allow",
        "six.example",
        "--allow",
        "*:22",
        "--allow",
        "host.atoll.internal:22",
    ];
    let script = format!(
        "{CURL} http://example.com/; {CURL} https://example.com/; {SPEAK} example.com; \
         {SPEAK} intranet.example; {SPEAK} host.atoll.internal; {CURL} http://six.example/; \
         {SPEAK} 93.184.216.35; \
         for to in other.example 10.1.2.3 169.254.169.254; do \
         {SPEAK} $to 2> /dev/null || echo not $to; done"
    );
    let (seen, proxied) = online(&world, lines, &allow, &script);
    let ssh = "SSH-2.0-here";
    assert_eq!(
        seen.output(),
        format!(
            "this is 93.184.216.34\nsafe\n{ssh}\n{ssh}\n{ssh}\nthis is 2606:2800:220:1::1\n{ssh}\n\
             not other.example\nnot 10.1.2.3\nnot 169.254.169.254"
        ),
        "{}",
        seen.outcome
    );
    // What was asked of the proxy, and of nobody else; what `*` alone allows was not.
    let connect = |to: &str| format!("CONNECT {to} HTTP/1.1");
    let asked = [
        "example.com:80",
        "example.com:443",
        "example.com:22",
        "intranet.example:22",
        "93.184.216.35:22",
    ];
    assert_eq!(proxied, asked.map(connect));
    let others = seen.asked.iter().find(|name| *name != "six.example");
    assert_eq!(others, None, "names are the proxy's business");
    let opened = events(&world, "flow.opened");
    for one in &opened {
        let is_direct = one["host"] == "six.example" || one["host"] == "host.atoll.internal";
        let via = if is_direct {
            serde_json::Value::Null
        } else {
            "http://127.0.0.1:3128".into()
        };
        assert_eq!(one["via"], via, "{one}");
        assert_eq!(one["address"].is_null(), !is_direct, "{one}");
    }
    assert!(opened.len() >= 7, "{opened:?}");
    // The password is nowhere.
    let told = world
        .atoll(["ledger", "show", "--json", "last"])
        .run()
        .success();
    assert!(told.out().contains("http://127.0.0.1:3128"));
    let shown = world
        .atoll(["profile", "show", "corporate"])
        .run()
        .success();
    for text in [told.out(), shown.out(), seen.outcome.err()] {
        assert!(
            !text.contains("ss word") && !text.contains("p%40ss"),
            "{text}"
        );
    }
}

/// The proxy sees every name, and resolves it: a name can be a message.
#[test]
fn names_are_on_disk_before_a_proxy_is_asked_and_not_without_end() {
    let world = World::new("names_are_on_disk_before_a_proxy_is_asked_and_not_without_end");
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    certify(&world);
    let client = "import socket, time\n\
                  def ask(name):\n\
                  \x20   with socket.create_connection((\"proxy.atoll.internal\", 3128), 60) as one:\n\
                  \x20       one.sendall(f\"CONNECT {name}:22 HTTP/1.1\\r\\nHost: {name}:22\\r\\n\\r\\n\".encode())\n\
                  \x20       return one.recv(4096).split()[1].decode()\n\
                  began = time.monotonic()\n\
                  came = [ask(f\"n{number}.example.com\") for number in range(1200)]\n\
                  print(came.count(\"502\"), came.count(\"403\"), ask(\"n0.example.com\"), int(time.monotonic() - began))\n";
    world.write("names.py", client);
    let lines = "upstream-proxy = 'http://me:p%40ss%20word@127.0.0.1:3128'";
    let ledger = world.state().join("atoll/ledger");
    std::os::unix::fs::symlink(ledger, world.top().join("corporate/ledger")).unwrap();
    let allow = ["--allow", "*.example.com:22"];
    let (seen, proxied) = online(&world, lines, &allow, "python3 names.py");
    let told = seen.output();
    let told: Vec<usize> = told.split(' ').map(|one| one.parse().unwrap()).collect();
    let [asked, refused, again, seconds] = told[..] else {
        panic!("{}", seen.outcome);
    };
    // What was asked for once costs nothing more.
    assert_eq!((asked + refused, again), (1200, 502), "{}", seen.outcome);
    assert!(
        asked >= 512 && asked <= 512 + 4 * (seconds + 1),
        "{asked} in {seconds} s"
    );
    assert!(refused > 0, "{asked} in {seconds} s");
    assert_eq!(proxied.len(), asked + 1);
    let recorded = proxied
        .iter()
        .filter(|line| line.ends_with(" HTTP/1.1 recorded"));
    assert_eq!(recorded.count(), asked + 1, "{proxied:?}");
    let names = events(&world, "flow.opened");
    let names = names.iter().filter(|one| one["kind"] == "name");
    assert_eq!(names.count(), asked);
}

#[test]
fn what_goes_wrong_upstream_is_told() {
    let world = World::new("what_goes_wrong_upstream_is_told");
    if !is_possible(&world, &["openssl"]) {
        return;
    }
    certify(&world);
    let allow = ["--allow", "example.com"];
    let script = format!("{CURL} http://example.com/; {CURL} https://example.com/");
    for (lines, why) in [
        (
            "upstream-proxy = 'http://me:wrong@127.0.0.1:3128'",
            "user and password (407)",
        ),
        (
            "upstream-proxy = 'http://127.0.0.1:3129'",
            "the upstream proxy cannot be reached",
        ),
        (
            "upstream-proxy = 'http://nowhere.invalid:3128'",
            "DNS lookup of the upstream proxy failed",
        ),
    ] {
        let (seen, _) = online(&world, lines, &allow, &script);
        assert!(seen.output().contains(why), "{}", seen.outcome);
        assert!(
            seen.reached.is_empty(),
            "never straight: {:?}",
            seen.reached
        );
    }
    // Without the authority its certificates are nobody's.
    let (seen, _) = online(&world, "", &allow, &format!("{CURL} https://example.com/"));
    assert!(
        seen.output().contains("nobody that this host trusts"),
        "{}",
        seen.outcome
    );
    let (seen, _) = online(
        &world,
        "upstream-roots = ['CA']",
        &allow,
        &format!("{CURL} https://example.com/"),
    );
    assert_eq!(seen.output(), "safe", "{}", seen.outcome);
    // What is no certificate starts nothing.
    for (lines, why) in [
        ("upstream-roots = ['/etc/hostname']", "no certificate in it"),
        ("upstream-roots = ['/nowhere.pem']", "cannot be trusted"),
    ] {
        let (seen, _) = online(&world, lines, &allow, "echo started");
        assert_eq!(seen.output(), "", "{}", seen.outcome);
        let _ = seen.outcome.says([why]);
    }
}

#[test]
fn a_proxy_of_the_environment_is_told_and_not_used() {
    let world = World::new("a_proxy_of_the_environment_is_told_and_not_used");
    let told = |options: &[&str], value: &str| {
        let run = world.run(options, "true").env("https_proxy", value);
        run.run()
            .success()
            .err()
            .contains("https_proxy is set and not used")
    };
    assert!(told(&["--allow", "example.com"], "http://127.0.0.1:9"));
    assert!(!told(&["--allow", "example.com"], ""));
    assert!(
        !told(&[], "http://127.0.0.1:9"),
        "without a network there is nothing to say"
    );
    world.profile("own", "[network]\nupstream-proxy = 'http://127.0.0.1:9'\n");
    assert!(!told(
        &["--profile", "own", "--allow", "example.com"],
        "http://127.0.0.1:9"
    ));
}
