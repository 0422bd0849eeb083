//! Named services of the host's own loopback, on a small internet of each test's own whose
//! servers listen there too.

use e2e::World;
use e2e::internet::{Seen, events, is_possible, on_internet, online};

const CURL: &str = "curl -sS -m 60 --noproxy '*'";
const PROXIED: &str = "curl -sS -m 60 --noproxy '' -p -x";

#[test]
fn a_named_service_of_the_host_is_reached_by_its_name_and_port() {
    let world = World::new("a_named_service_of_the_host_is_reached_by_its_name_and_port");
    if !is_possible(&world, &[]) {
        return;
    }
    let script = format!(
        "{CURL} http://host.atoll.internal/; \
         {PROXIED} http://proxy.atoll.internal:3128 http://HOST.atoll.internal./ ; \
         {PROXIED} socks5h://proxy.atoll.internal http://host.atoll.internal/; \
         python3 -c 'import socket; s = socket.create_connection((\"host.atoll.internal\", 22)); print(s.recv(64).decode().strip())'; \
         {CURL} http://host.atoll.internal:9000/; \
         {CURL} http://host.atoll.internal:443/ || echo no 443; \
         {CURL} http://host.atoll.internal:7/ || echo no 7"
    );
    // What listens on the loopback of IPv6 alone is reached too.
    let six = "mkdir \"$0/six\"; echo by IPv6 > \"$0/six/index.html\"; \
               python3 -m http.server -b ::1 -d \"$0/six\" 9000 > /dev/null 2>&1 & server=$!; \
               until curl -s -o /dev/null 'http://[::1]:9000/'; do sleep 0.1; done; \"$ATOLL\" run --discard \"$@\"; status=$?; kill $server; exit $status";
    let place = world.top().join("internet");
    let run = on_internet(&world, "sh -c \"$SIX\" \"$0\" \"$@\"")
        .env("SIX", six)
        .arg(&place)
        .args(["--allow", "host.atoll.internal:22,80"])
        .args(["--allow", "http://host.atoll.internal:9000"])
        .args(["--", "sh", "-c", &script]);
    let seen = Seen::of(&world, run.run());
    assert_eq!(
        seen.output(),
        "this is 127.0.0.1\nthis is 127.0.0.1\nthis is 127.0.0.1\nSSH-2.0-here\nby IPv6\nno 443\nno 7",
        "{}",
        seen.outcome
    );
    let reached = ["127.0.0.1 80"; 3].into_iter().chain(["127.0.0.1 22"]);
    assert_eq!(seen.reached, reached.collect::<Vec<_>>());
    let asked = seen.asked.iter().find(|name| name.contains("atoll"));
    assert_eq!(asked, None, "nobody is asked");
    assert!(seen.first.contains("GET / HTTP"), "{}", seen.first);
    let opened = events(&world, "flow.opened");
    let of = |port: u64| opened.iter().filter(move |one| one["port"] == port);
    assert_eq!(of(80).count(), 3, "{opened:?}");
    for one in &opened {
        assert_eq!(one["host"], "host.atoll.internal");
    }
    assert_eq!(of(22).next().unwrap()["address"], "127.0.0.1");
    assert_eq!(of(22).next().unwrap()["kind"], "tunnel");
    assert_eq!(of(9000).next_back().unwrap()["address"], "::1");
    assert_eq!(of(9000).next_back().unwrap()["path"], "/");
    let refused = events(&world, "flow.refused");
    for port in [7, 443] {
        let is_refused = |one: &serde_json::Value| one["port"] == port;
        assert!(refused.iter().any(is_refused), "{port}: {refused:?}");
    }
}

/// No other rule opens it, in whatever way it is tried.
#[test]
fn nothing_but_a_rule_that_names_it_opens_the_hosts_loopback() {
    let world = World::new("nothing_but_a_rule_that_names_it_opens_the_hosts_loopback");
    if !is_possible(&world, &[]) {
        return;
    }
    let proxy = "proxy.atoll.internal:3128";
    let ways = [
        format!("{CURL} http://host.atoll.internal/"),
        format!("{CURL} http://host.atoll.internal:22/"),
        format!(
            "{CURL} --resolve host.atoll.internal:80:93.184.216.34 http://host.atoll.internal/"
        ),
        format!("{PROXIED} http://{proxy} http://host.atoll.internal/"),
        format!("{PROXIED} http://{proxy} http://host.atoll.internal:22/"),
        format!("{PROXIED} http://{proxy} http://host.atoll.internal.:22/"),
        format!("{PROXIED} http://{proxy} http://127.0.0.1/"),
        format!("{PROXIED} http://{proxy} http://127.0.0.1:22/"),
        format!("{PROXIED} http://{proxy} 'http://[::1]:22/'"),
        format!("{PROXIED} http://{proxy} 'http://[::ffff:127.0.0.1]:22/'"),
        format!("{PROXIED} socks5h://{proxy} http://host.atoll.internal:22/"),
        format!("{PROXIED} socks5h://{proxy} http://127.0.0.1:22/"),
        format!("curl -sS -m 10 -x http://{proxy} http://host.atoll.internal/ -f"),
        format!("{CURL} http://loopback.example:22/"),
        format!("{CURL} http://mapped.example:22/"),
        format!("{CURL} -f http://loopback.example/"),
        format!("{CURL} -H 'Host: host.atoll.internal' -f http://example.com/"),
    ];
    let script: String = ways
        .iter()
        .map(|way| {
            format!(
                "{way} > got 2>&1; grep -q -e 'this is 127' -e SSH got && echo 'reached by {}'; ",
                way.replace('\'', "")
            )
        })
        .collect();
    let script = format!("cd /tmp; {script} {CURL} http://example.com/");
    for options in [
        &["--allow", "*", "--allow", "*:*"][..],
        &[
            "--allow",
            "*:22",
            "--allow",
            "*.internal:*",
            "--allow",
            "*.atoll.internal:*",
            "--allow",
            "example.com",
        ],
        &["--learn"],
        &[
            "--allow",
            "127.0.0.1:*",
            "--allow",
            "[::1]:*",
            "--allow",
            "example.com",
        ],
        &[
            "--allow",
            "0.0.0.0/0:*",
            "--allow",
            "[::/0]:*",
            "--allow",
            "*.example:*",
            "--allow",
            "example.com",
        ],
        &["--allow", "*:*", "--allow", "host.atoll.internal:8443"],
        &[
            "--allow",
            "*:*",
            "--allow",
            "host.atoll.internal:22,80",
            "--deny",
            "127.0.0.1:*",
        ],
        &[
            "--allow",
            "*:*",
            "--allow",
            "host.atoll.internal:22,80",
            "--deny",
            "host.atoll.internal",
        ],
    ] {
        let seen = online(&world, options, &script);
        assert_eq!(
            seen.output(),
            "this is 93.184.216.34",
            "{options:?} {}",
            seen.outcome
        );
        let is_own = |one: &&String| {
            one.starts_with("127.") || one.starts_with("::1") || one.starts_with("::ffff:127")
        };
        assert_eq!(seen.reached.iter().find(is_own), None, "{options:?}");
        let asked = seen.asked.iter().find(|name| name.contains("atoll"));
        assert_eq!(asked, None, "{options:?}");
    }
}

/// A fixed address: the port of the loopback inside leads to the host's, by rule and on record.
#[test]
fn a_port_of_the_loopback_leads_to_the_host_by_rule() {
    let world = World::new("a_port_of_the_loopback_leads_to_the_host_by_rule");
    if !is_possible(&world, &[]) {
        return;
    }
    let script = format!(
        "{CURL} http://127.0.0.1/; {CURL} http://localhost:80/; {CURL} 'http://[::1]/' || echo no; \
         python3 -c 'import socket; s = socket.create_connection((\"127.0.0.1\", 22)); print(s.recv(64).decode().strip())' || echo no 22"
    );
    let run = |options: &[&str]| {
        let run = on_internet(&world, "\"$ATOLL\" run --discard \"$@\"");
        let run = run.arg("sh").args(options.iter().copied());
        Seen::of(&world, run.args(["--", "sh", "-c", &script]).run())
    };
    let seen = run(&["--host-port", "80", "--host-port=22"]);
    let lines = seen.output();
    assert!(
        lines.starts_with("this is 127.0.0.1\nthis is 127.0.0.1\n"),
        "{}",
        seen.outcome
    );
    assert!(lines.ends_with("SSH-2.0-here"), "{}", seen.outcome);
    let opened = events(&world, "flow.opened");
    assert!(opened.len() >= 4, "{opened:?}");
    for one in &opened {
        assert_eq!(one["host"], "host.atoll.internal");
        assert_eq!(one["kind"], "tunnel");
        assert!(
            one["rule"].as_str().unwrap().contains("--host-port"),
            "{one}"
        );
    }
    // A denial stands above it, as above any rule that allows.
    let seen = run(&["--host-port", "80", "--deny", "host.atoll.internal:80"]);
    assert_eq!(seen.reached, Vec::<String>::new(), "{}", seen.outcome);
    let refused = events(&world, "flow.refused");
    assert!(
        refused
            .iter()
            .any(|one| one["host"] == "host.atoll.internal" && one["port"] == 80),
        "{refused:?}"
    );
    // The control: without the option it is the sandbox's own loopback, and the run says so.
    let seen = run(&["--allow", "host.atoll.internal:80"]);
    assert_eq!(seen.reached, Vec::<String>::new(), "{}", seen.outcome);
}

#[test]
fn a_loopback_address_of_the_host_gets_a_hint() {
    let world = World::new("a_loopback_address_of_the_host_gets_a_hint");
    let script = "exec 3<>/dev/tcp/127.0.0.1/11434 # http://127.0.0.1:11434/v1";
    let run = world.atoll(["run", "--discard", "--", "bash", "-c", script]);
    let ended = run.run();
    let hint = "127.0.0.1:11434 is the sandbox's own loopback inside. To reach this host's service \
                add `--host-port 11434`, or `--allow host.atoll.internal:11434`";
    let joined = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined(ended.err()).contains(hint), "{ended}");
    let why = world.atoll(["why", "last"]).run().success();
    assert!(joined(why.out()).contains(hint), "{why}");
}

#[test]
fn ports_that_cannot_lead_to_the_host_are_refused_clearly() {
    let world = World::new("ports_that_cannot_lead_to_the_host_are_refused_clearly");
    for (options, words) in [
        (&["--host-port", "0"][..], "is no port"),
        (&["--host-port", "ollama"], "is no port"),
        (&["--host-port", "+80"], "is no port"),
        (
            &["--host-port", "3000", "--publish", "8080:3000"],
            "leads to this host already",
        ),
    ] {
        let run = world
            .atoll(["run", "--dry-run"])
            .args(options.iter().copied());
        let ended = run.args(["--", "true"]).run();
        assert_ne!(ended.code(), 0, "{ended}");
        let text = format!("{}{}", ended.out(), ended.err());
        assert!(text.contains(words), "{words}: {ended}");
    }
}
