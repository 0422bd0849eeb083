//! Real clients, which know of no proxy, and real servers: allowed requests work as if there were
//! no Atoll, and others reach nobody. In a sandbox, and for an ordinary user in a fence too.

use std::fs;
use std::time::Duration;

use e2e::internet::{events, is_possible, on_servers, without_namespaces};
use e2e::{Outcome, World, id, is_root};

const LONG: Duration = Duration::from_secs(120);
const SERVERS: &str = include_str!("clients/servers.py");
/// The certificates of all that these servers are.
const NAMES: &[&str] = &["example.com", "git.example", "db.example"];

/// Runs a shell script where these servers are, with these options: in a sandbox, and then for an
/// ordinary user in a fence. Each result is checked.
fn everywhere(
    world: &World,
    servers: &str,
    options: &[&str],
    script: &str,
    check: impl Fn(&Outcome),
) {
    let fenced = without_namespaces(world);
    let run = |atoll: &str| {
        let command = format!("{atoll} run --discard \"$@\"");
        let run = on_servers(world, SERVERS, NAMES, &command);
        let run = run.env("SERVERS", servers).env("FENCED", &fenced);
        let run = run.env("CLIENT_ID", id().0.to_string());
        let run = run.env("INTERNET_PORTS", "7").within(LONG);
        let run = run.arg("sh").args(options);
        run.args(["--", "sh", "-c", script]).run()
    };
    check(&run("\"$ATOLL\""));
    if !is_root() {
        let outcome = run("\"$FENCED\"");
        let _ = outcome.says(["only fenced in"]);
        check(&outcome);
    }
}

/// Returns the servers' records of a name.
fn noted(world: &World, name: &str) -> String {
    fs::read_to_string(world.top().join("internet").join(name)).unwrap_or_default()
}

const WEB: &[&str] = &["--allow", "example.com", "--allow", "93.184.216.34:7"];

#[test]
fn a_static_program_of_go_reaches_what_it_may() {
    let world = World::new("a_static_program_of_go_reaches_what_it_may");
    if !is_possible(&world, &["openssl", "go"]) {
        return;
    }
    world.write("client.go", include_str!("clients/client.go"));
    let built = world
        .host("go")
        .args(["build", "-o", "client", "client.go"]);
    let built = built.env("CGO_ENABLED", "0").env("GO111MODULE", "off");
    let _ = built.within(LONG).run().success();
    let script = "./client https://example.com/go http://example.com/go https://other.example/ http://93.184.216.35/ https://git.example/";
    everywhere(&world, "web", WEB, script, |outcome| {
        assert_eq!(
            outcome.out(),
            "200 HTTP/2.0 this is example.com\n200 HTTP/1.1 this is example.com\nfailed\nfailed\nfailed\n",
            "{outcome}"
        );
        assert_eq!(
            noted(&world, "requests"),
            "GET /go Go-http-client/2.0\nGET /go Go-http-client/1.1\n"
        );
    });
}

#[test]
fn a_static_program_of_c_and_one_of_rust_reach_what_they_may() {
    let world = World::new("a_static_program_of_c_and_one_of_rust_reach_what_they_may");
    if !is_possible(&world, &["openssl", "cc", "rustc"]) {
        return;
    }
    world.write("client.c", include_str!("clients/client.c"));
    world.write("client.rs", include_str!("clients/client.rs"));
    let build = "cc -static -o raw client.c && rustc --edition 2021 -o standard client.rs";
    let _ = world.host_shell(build).within(LONG).run().success();
    let script = "./raw 93.184.216.34 7 93.184.216.35 7 93.184.216.34 9 10.1.2.3 7; \
                  ./standard example.com:80 other.example:80";
    everywhere(&world, "web", WEB, script, |outcome| {
        assert_eq!(
            outcome.out(),
            "raw\nfailed\nfailed\nfailed\nthis is example.com\nfailed\n",
            "{outcome}"
        );
        assert_eq!(noted(&world, "reached"), "93.184.216.34 7\n");
        assert_eq!(noted(&world, "requests"), "GET /rust None\n");
    });
}

#[test]
fn javas_own_client_reaches_what_it_may() {
    let world = World::new("javas_own_client_reaches_what_it_may");
    if !is_possible(&world, &["openssl", "java"]) {
        return;
    }
    world.write("Client.java", include_str!("clients/Client.java"));
    let script = "java Client.java https://example.com/java http://example.com/java https://other.example/ http://93.184.216.35/";
    everywhere(&world, "web", WEB, script, |outcome| {
        assert_eq!(
            outcome.out(),
            "200 HTTP_2 this is example.com\n200 HTTP_1_1 this is example.com\nfailed\nfailed\n",
            "{outcome}"
        );
        let requests = noted(&world, "requests");
        assert_eq!(
            requests.matches("GET /java Java-http-client/").count(),
            2,
            "{requests}"
        );
    });
}

#[test]
fn a_database_is_reached_by_its_name_with_tls_and_without() {
    let world = World::new("a_database_is_reached_by_its_name_with_tls_and_without");
    if !is_possible(&world, &["openssl", "psql"]) {
        return;
    }
    let ask = "select case when ssl then version else 'plain' end from pg_stat_ssl where pid = pg_backend_pid()";
    let script = format!(
        "ask() {{ psql -At \"host=$1 user=tester dbname=postgres connect_timeout=10 $2\" -c \"$3\" 2>&1 | tail -1; }}; \
         ask db.example sslmode=disable \"{ask}\"; \
         ask db.example 'sslmode=verify-full sslrootcert=authority.pem' \"{ask}\"; \
         ask db.example sslmode=prefer \"select count(*), sum(length(x)) from (select repeat('x', 1000) as x from generate_series(1, 20000)) t\"; \
         ask db.example sslmode=disable 'create table t (a int); insert into t values (7); select a from t'; \
         for host in other.example 93.184.216.35; do \
         psql \"host=$host user=tester dbname=postgres sslmode=disable\" -c 'select 1' >/dev/null 2>&1 || echo refused; done"
    );
    // The server's own authority, which the program holds it to.
    let authority = world.top().join("internet/trusted.pem");
    let script = format!("cp '{}' authority.pem; {script}", authority.display());
    let place = world.top().join("internet");
    let options = [
        "--allow",
        "db.example:5432",
        "--ro",
        place.to_str().unwrap(),
    ];
    everywhere(&world, "db", &options, &script, |outcome| {
        assert_eq!(
            outcome.out(),
            "plain\nTLSv1.3\n20000|20000000\n7\nrefused\nrefused\n",
            "{outcome}"
        );
        assert_eq!(events(&world, "flow.closed").len(), 4);
    });
}

const REPOSITORY: &str = "https://git.example/repo.git";

#[test]
fn git_clones_over_https_and_a_push_is_refused() {
    let world = World::new("git_clones_over_https_and_a_push_is_refused");
    if !is_possible(&world, &["openssl", "git", "sshd"]) {
        return;
    }
    let script = format!(
        "git clone -q {REPOSITORY} here && cd here && cat file && wc -c < large && \
         echo second > file && git -c user.name=a -c user.email=a@example.com commit -qam second && \
         git push origin main 2>&1 | grep -o 403; git pull -q && echo pulled"
    );
    let read = format!("GET {REPOSITORY}/info/refs?service=git-upload-pack");
    let fetch = format!("POST {REPOSITORY}/git-upload-pack");
    let options = ["--allow", &read, "--allow", &fetch];
    everywhere(&world, "git", &options, &script, |outcome| {
        assert_eq!(outcome.out(), "first\n3000000\n403\npulled\n", "{outcome}");
        let requests = noted(&world, "requests");
        assert!(!requests.contains("git-receive-pack"), "{requests}");
        let refused = events(&world, "flow.refused");
        assert!(
            refused
                .iter()
                .any(|one| one["path"] == "/repo.git/info/refs"),
            "{refused:?}"
        );
    });
    // With a rule for all of it the same push gets there.
    let allowed = format!("{script}; true");
    everywhere(
        &world,
        "git",
        &["--allow", "https://git.example"],
        &allowed,
        |outcome| {
            assert_eq!(outcome.out(), "first\n3000000\npulled\n", "{outcome}");
            let requests = noted(&world, "requests");
            assert!(
                requests.contains("POST /repo.git/git-receive-pack"),
                "{requests}"
            );
        },
    );
}

#[test]
fn git_clones_and_pushes_over_ssh_by_name() {
    let world = World::new("git_clones_and_pushes_over_ssh_by_name");
    if !is_possible(&world, &["openssl", "git", "ssh", "sshd"]) {
        return;
    }
    let place = world.top().join("internet");
    let at = place.display();
    let script = format!(
        "install -m 600 '{at}/client' key; \
         export GIT_SSH_COMMAND=\"ssh -i $PWD/key -F /dev/null -o IdentitiesOnly=yes -o StrictHostKeyChecking=yes -o UserKnownHostsFile='{at}/known' -o ConnectTimeout=10\"; \
         git clone -q ssh://server@git.example{at}/server/repo.git here && cd here && cat file && wc -c < large && \
         echo second > file && git -c user.name=a -c user.email=a@example.com commit -qam second && \
         git push -q origin main && git rev-parse HEAD; \
         git ls-remote ssh://server@other.example{at}/server/repo.git >/dev/null 2>&1 || echo refused"
    );
    let read = place.to_str().unwrap();
    everywhere(
        &world,
        "git",
        &["--allow", "git.example:22", "--ro", read],
        &script,
        |outcome| {
            let told = outcome.out();
            let lines: Vec<&str> = told.lines().collect();
            assert_eq!(lines[..2], ["first", "3000000"], "{outcome}");
            assert_eq!(lines[3..], ["refused"], "{outcome}");
            // What was pushed is there.
            let refs = noted(&world, "refs");
            assert!(
                refs.starts_with(&format!("{} commit\trefs/heads/main", lines[2])),
                "{refs} {outcome}"
            );
        },
    );
}
