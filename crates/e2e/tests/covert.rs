//! Covert channels: names within the beginning of TLS, bytes within names. Seen from outside, with
//! a control that gets through.

use std::fs;

use e2e::World;
use e2e::internet::{Seen, events, is_possible, on_internet, online};

/// With Encrypted Client Hello (RFC 9849) the readable name is the outer one: it has to be the one
/// that was asked for.
#[test]
fn a_hidden_name_does_not_stand_for_the_one_that_can_be_read() {
    let world = World::new("a_hidden_name_does_not_stand_for_the_one_that_can_be_read");
    if !is_possible(&world, &[]) {
        return;
    }
    world.write("hidden.py", include_str!("covert/hidden.py"));
    let options = ["--allow", "example.com", "--tunnel", "example.com:8443"];
    let seen = online(&world, &options, "python3 hidden.py");
    assert_eq!(
        seen.output(),
        "443 example.com a hello\n443 other.example an alert\n\
         8443 example.com the end\n8443 other.example the end",
        "{}",
        seen.outcome
    );
    // What is looked into is answered by Atoll, which has no key for what is hidden; a
    // tunnel carries the one that is for whom was asked.
    assert_eq!(seen.first.lines().count(), 1, "{}", seen.first);
    assert!(seen.first.contains("\\x16\\x03"), "{}", seen.first);
    let refused = events(&world, "flow.refused");
    let named = |one: &&serde_json::Value| {
        one["why"]
            .as_str()
            .is_some_and(|why| why.contains("its TLS names other.example"))
    };
    assert_eq!(refused.iter().filter(named).count(), 2, "{refused:?}");
}

/// The technique of dns2tcp: a connection in DNS queries and their answers.
#[test]
fn no_byte_gets_out_within_names() {
    let world = World::new("no_byte_gets_out_within_names");
    if !is_possible(&world, &["dns2tcpd", "dns2tcpc"]) {
        return;
    }
    let settings = world.top().join("dns2tcpd.conf");
    let text = "listen = 93.184.216.38\nport = 53\ndomain = t.tunnel.example\n\
                resources = echo:93.184.216.34:7\n";
    fs::write(&settings, text).unwrap();
    let client = "import socket, subprocess, sys, time\n\
        server = subprocess.Popen([\"dns2tcpc\", \"-z\", \"t.tunnel.example\", \"-r\", \"echo\", \"-l\", \"2222\", \"93.184.216.38\"])\n\
        said, until = b\"\", time.time() + 4\n\
        while not said and time.time() < until:\n\
        \x20   time.sleep(0.2)\n\
        \x20   try:\n\
        \x20       with socket.create_connection((\"127.0.0.1\", 2222), 1) as one:\n\
        \x20           one.settimeout(4)\n\
        \x20           one.sendall(b\"through\")\n\
        \x20           said = one.recv(64)\n\
        \x20   except OSError: pass\n\
        server.kill()\n\
        print(said.decode() or \"nothing\")\n";
    world.write("client.py", client);
    let heard = world.top().join("heard");
    let with_server = format!(
        "sh -c 'dns2tcpd -F -d 3 -f {0} >{1} 2>&1 & server=$!; until grep -q Listen {1}; do sleep 0.05; done; \"$@\"; status=$?; kill $server; exit $status' sh",
        settings.display(),
        heard.display()
    );
    // It writes down whatever reaches it.
    let has_heard = || {
        fs::read_to_string(&heard)
            .unwrap()
            .contains("Receive query")
    };
    let run = |command: &str| {
        let run = on_internet(
            &world,
            &format!("{with_server} {command} python3 client.py"),
        );
        Seen::of(&world, run.run())
    };
    let outside = run("");
    assert_eq!(
        outside.output(),
        "through",
        "the control: {}",
        outside.outcome
    );
    assert!(
        has_heard() && outside.reached == ["93.184.216.34 7"],
        "{:?}",
        outside.reached
    );
    for rule in ["example.com", "*.example.com", "93.184.216.35"] {
        let seen = run(&format!("\"$ATOLL\" run --discard --allow '{rule}' --"));
        assert_eq!(seen.output(), "nothing", "{}", seen.outcome);
        assert!(
            !has_heard() && seen.reached.is_empty(),
            "{rule}: {:?}",
            seen.reached
        );
    }
}
