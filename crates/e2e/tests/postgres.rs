//! PostgreSQL with a password that is not in the sandbox: the real server and its clients, and
//! misbehaving servers and programs. In a sandbox, and for an ordinary user in a fence too.

use std::fs;
use std::path::Path;
use std::time::Duration;

use e2e::internet::{events, is_possible, measured, measuring, on_servers, without_namespaces};
use e2e::{Avoidable, Outcome, World, cache, id, is_root};

const LONG: Duration = Duration::from_secs(300);
const SERVERS: &str = include_str!("postgres/servers.py");
const RAW: &str = include_str!("postgres/raw.py");
const PERSON: &str = include_str!("postgres/person.py");
const CLIENT: &str = include_str!("postgres/client.py");
const SEARCH: &str = include_str!("credentials/search.py");
const RUN: &str = include_str!("credentials/run.sh");
const NAMES: &[&str] = &["db.example", "late.example"];
/// The password of every user on these servers.
const REAL: &str = "r3alP4ssw0rdOfTheD4tabaseN0bodyS33s";

const REAL_ONE: &str = r#"
[network]
allow = ["db.example:5432"]

[environment]
set = { PGHOST = "db.example", PGUSER = "app", PGDATABASE = "shop", PGCONNECT_TIMEOUT = "60" }

[credential.shop]
source = { environment = "SHOP_PASSWORD" }
to = "db.example"
place = { postgres = { user = "app", database = ["shop", "second"] } }
variable = "PGPASSWORD"
"#;

/// Returns a world with a profile of this text, if there can be one with a real server.
fn world(name: &str, profile: &str) -> Option<World> {
    let world = World::new(name);
    world.profile("bound", profile);
    world.write(world.top().join("real"), REAL);
    world.canary(REAL, &["real", "outside.sh"]);
    world.write(world.top().join("fetched"), "f3tchedP4ssw0rdOfTheD4tabase");
    world.write("raw.py", RAW);
    world.write("client.py", CLIENT);
    if !is_possible(&world, &["openssl", "psql"]) {
        return None;
    }
    let servers = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut programs = servers.flatten().map(|one| one.path().join("bin/postgres"));
    if !programs.any(|one| one.is_file()) {
        world.skip("PostgreSQL is not installed", Avoidable::Yes);
        return None;
    }
    Some(world)
}

/// Runs a shell script where these servers are: in a sandbox, and then for an ordinary user in a
/// fence. Each result is checked.
fn everywhere(world: &World, servers: &str, script: &str, check: impl Fn(&Outcome)) {
    check(&outcome(world, servers, "\"$ATOLL\"", script));
    if !is_root() {
        let outcome = outcome(world, servers, "\"$FENCED\"", script);
        let _ = outcome.says(["only fenced in"]);
        check(&outcome);
    }
}

fn outcome(world: &World, servers: &str, atoll: &str, script: &str) -> Outcome {
    let script_at = world.top().join("script.sh");
    fs::write(&script_at, script).unwrap();
    let text = format!(
        "SHOP_PASSWORD=$(cat '{}'); export SHOP_PASSWORD\nscript=$(cat '{}')\n{atoll} run --discard --profile bound -- sh -c \"$script\"\n",
        world.top().join("real").display(),
        script_at.display()
    );
    let path = world.top().join("outside.sh");
    fs::write(&path, text).unwrap();
    let run = on_servers(world, SERVERS, NAMES, &format!("sh '{}'", path.display()));
    let run = run.env("FENCED", without_namespaces(world));
    let run = run
        .env("SERVERS", servers)
        .env("CLIENT_ID", id().0.to_string());
    run.env("INTERNET_PORTS", "7").within(LONG).run()
}

/// Returns the records of the test's own server.
fn fake(world: &World) -> String {
    fs::read_to_string(world.top().join("internet/fake")).unwrap_or_default()
}

#[test]
fn a_program_of_node_queries_alone_and_in_a_pool() {
    let name = "a_program_of_node_queries_alone_and_in_a_pool";
    let modules = cache().map(|cache| cache.join("npm/node_modules"));
    let Some(modules) = modules.filter(|modules| modules.join("pg").is_dir()) else {
        World::new(name).skip("pg of npm is not in ATOLL_TEST_CACHE", Avoidable::Yes);
        return;
    };
    let profile = format!("{REAL_ONE}\n[files]\nread = [{modules:?}]\n");
    let Some(world) = world(name, &profile) else {
        return;
    };
    world.write("client.js", include_str!("postgres/client.js"));
    let script = format!("node client.js '{}/pg'", modules.display());
    everywhere(&world, "real", &script, |outcome| {
        assert_eq!(
            outcome.out(),
            "app given false\napp given true\n190\n28000 ask the person\n",
            "{outcome}"
        );
    });
}

/// A login waits where a policy requires an approval before its credential is used.
#[test]
fn a_login_by_a_credential_that_policies_ask_about_waits_for_a_person() {
    let name = "a_login_by_a_credential_that_policies_ask_about_waits_for_a_person";
    let Some(world) = world(name, REAL_ONE) else {
        return;
    };
    let policy = "@id(\"uses\") @approve(\"person\")\n\
                  permit(principal, action == Action::\"use_credential\", resource);\n";
    world.write(world.config().join("atoll/own.cedar"), policy);
    let shown = world.top().join("shown");
    for (word, expected) in [("grant", "7\n"), ("deny", "")] {
        let atoll = format!(
            "(until \"$ATOLL\" approvals show 1 >'{}' 2>/dev/null; do sleep 0.1; done; \
             \"$ATOLL\" approvals {word} 1 >/dev/null 2>&1) & \"$ATOLL\"",
            shown.display()
        );
        let outcome = outcome(&world, "real", &atoll, "psql -At -c 'select 3 + 4'");
        assert_eq!(outcome.out(), expected, "{outcome}");
        let shown = fs::read_to_string(&shown).unwrap();
        for text in [
            "host: db.example",
            "user: app",
            "credentials: shop",
            "policy uses",
        ] {
            assert!(shown.contains(text), "{text}: {shown}");
        }
        if word == "deny" {
            assert!(
                outcome.err().contains("a person was asked, and said no"),
                "{outcome}"
            );
            assert!(!refused(&world).is_empty(), "{outcome}");
        }
    }
}

/// Returns the reasons of refusals in the last run.
fn refused(world: &World) -> Vec<String> {
    let refused = events(world, "flow.refused");
    let why = refused.iter().filter_map(|one| one["why"].as_str());
    why.map(str::to_owned).collect()
}

#[test]
fn clients_of_postgres_sign_in_without_a_password() {
    let name = "clients_of_postgres_sign_in_without_a_password";
    let Some(world) = world(name, REAL_ONE) else {
        return;
    };
    let ask = "select current_user, current_database(), ssl from pg_stat_ssl where pid = pg_backend_pid()";
    let script = format!(
        "for mode in disable prefer require verify-full; do PGSSLMODE=$mode psql -At -c \"{ask}\" 2>&1; done; \
         PGPASSWORD= psql -At second -c 'select current_database()'; \
         psql -At -c '\\conninfo' | grep -o 'SSL connection'; \
         PGSSLMODE=verify-full PGHOST=$(getent hosts db.example | cut -d' ' -f1) psql -c 'select 1' 2>&1 | grep -c 'does not match\\|refused\\|failed'; \
         psql -At -c 'create table t (a text)' -c \"copy t from program 'echo x'\" 2>&1 | tail -1; \
         seq 1 50000 | psql -q -c 'copy t from stdin'; psql -At -c 'select count(*) from t'; psql -At -c 'copy t to stdout' | wc -l; \
         psql -c 'drop table t'; \
         psql -At other -c 'select 1'; psql -At -U owner -c 'select 1'; \
         env"
    );
    everywhere(&world, "real", &script, |outcome| {
        let told = outcome.out();
        let lines: Vec<&str> = told.lines().collect();
        assert!(lines.len() > 12, "{outcome}");
        assert_eq!(lines[..4], ["app|shop|t"; 4], "{outcome}");
        assert_eq!(lines[4..7], ["second", "SSL connection", "1"], "{outcome}");
        assert!(
            lines[7].contains("HINT") || lines[7].contains("must be"),
            "{outcome}"
        );
        assert_eq!(lines[8..11], ["50000", "50000", "DROP TABLE"], "{outcome}");
        assert!(!told.contains(REAL), "{outcome}");
        assert!(told.contains("PGPASSWORD="), "{outcome}");
        let told = outcome.err();
        assert!(told.contains("FATAL:  Atoll: user \"app\", database \"other\": credential shop signs in to other databases than this one"), "{outcome}");
        assert!(
            told.contains("HINT:  ask the person who started this"),
            "{outcome}"
        );
        assert!(
            told.contains("user \"owner\", database \"shop\": credential shop signs in as app"),
            "{outcome}"
        );
        let _ = outcome.says(["postgres: signed in to app@db.example/shop"]);
        let opened = events(&world, "flow.opened");
        let of = |database: &str| {
            let mut all = opened.iter();
            all.find(|one| one["database"] == database).cloned()
        };
        let one = of("second").unwrap();
        assert_eq!(one["kind"], "postgres");
        assert_eq!(one["user"], "app");
        assert_eq!(one["credential"], "shop");
        assert_eq!(one["host"], "db.example");
        assert!(of("other").is_none(), "{opened:?}");
        let closed = events(&world, "flow.closed");
        let moved = |one: &serde_json::Value| one["up_bytes"].as_u64() > Some(200_000);
        assert!(closed.iter().any(moved), "{closed:?}");
    });
}

#[test]
fn a_lease_for_one_login_is_for_no_other() {
    let name = "a_lease_for_one_login_is_for_no_other";
    let profile = REAL_ONE.replace("allow =", "ask =");
    let Some(world) = world(name, &profile) else {
        return;
    };
    let (person, answers) = (world.top().join("person.py"), world.top().join("answers"));
    fs::write(&person, PERSON).unwrap();
    let atoll = format!(
        "python3 '{}' '{}' &\n\"$ATOLL\"",
        person.display(),
        answers.display()
    );
    let script = "psql -At -c 'select 1'; psql -At -c 'select 2'; psql -At second -c 'select 3'";
    let outcome = outcome(&world, "real", &atoll, script);
    assert_eq!(outcome.out(), "1\n2\n", "{outcome}");
    let _ = outcome.says(["a person was asked, and said no"]);
    let login = |database: &str| {
        format!(
            "[\"postgres\", {{\"database\": \"{database}\", \"user\": \"app\"}}, [\"shop\"], true]\n"
        )
    };
    let answers = fs::read_to_string(answers).unwrap();
    assert_eq!(answers, login("shop") + &login("second"), "{outcome}");
    let opened = events(&world, "flow.opened");
    let by: Vec<_> = opened.iter().map(|one| one["approval"].as_u64()).collect();
    assert_eq!(by, [Some(1), Some(1)], "{opened:?}");
    // The control: what nobody is asked about signs in to both.
    world.profile("bound", REAL_ONE);
    let free = self::outcome(&world, "real", "\"$ATOLL\"", script);
    assert_eq!(free.out(), "1\n2\n3\n", "{free}");
}

#[test]
fn what_the_page_on_postgres_writes_works() {
    let name = "what_the_page_on_postgres_writes_works";
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo or xtask sets it");
    let page = Path::new(&package).join("../../docs/postgres.md");
    let page = fs::read_to_string(page).unwrap();
    let profile = page.split("```toml").nth(1).unwrap();
    let profile = profile.split("```").next().unwrap();
    let profile = profile.replace("db.example.com", "db.example");
    let Some(world) = world(name, &profile) else {
        return;
    };
    let script = "psql -At -c 'select current_user'; psql -At postgresql://app@db.example/shop -c 'select 1'";
    everywhere(&world, "real", script, |outcome| {
        assert_eq!(outcome.out(), "app\n1\n", "{outcome}");
        let _ = outcome.says(["postgres: signed in to app@db.example/shop 2 times"]);
    });
}

#[test]
fn a_program_of_python_queries_and_cancels() {
    let Some(world) = world("a_program_of_python_queries_and_cancels", REAL_ONE) else {
        return;
    };
    let found = world
        .host("/usr/bin/python3")
        .args(["-c", "import psycopg2"]);
    if found.run().code() != 0 {
        return world.skip("psycopg2 is not installed", Avoidable::Yes);
    }
    everywhere(&world, "real", "/usr/bin/python3 client.py", |outcome| {
        assert_eq!(
            outcome.out(),
            "app\nshop\n1000000\ncanceled\nstill there\nnotice\n",
            "{outcome}"
        );
        let opened = events(&world, "flow.opened");
        let cancel = |one: &&serde_json::Value| one["kind"] == "postgres" && one["user"].is_null();
        assert_eq!(opened.iter().filter(cancel).count(), 1, "{opened:?}");
    });
}

#[test]
fn a_real_server_that_asks_for_less_than_scram_is_not_signed_in_to() {
    let name = "a_real_server_that_asks_for_less_than_scram_is_not_signed_in_to";
    let further = r#"
[credential.old]
source = { environment = "OLD" }
to = "db.example"
place = { postgres = { user = "old", database = "legacy" } }

[credential.open]
source = { environment = "OPEN" }
to = "db.example"
place = { postgres = { user = "open", database = "shop" } }

[credential.fetched]
source = { command = ["cat", "FETCHED"] }
to = "db.example"
place = { postgres = { user = "fetched", database = "second" } }
variable = "FETCHED"

[credential.wrong]
source = { environment = "WRONG" }
to = "db.example"
place = { postgres = { user = "another", database = "shop" } }
"#;
    let Some(world) = world(name, "") else {
        return;
    };
    let fetched = world.top().join("fetched");
    let further = further.replace("\"cat\", \"FETCHED\"", &format!("\"cat\", {fetched:?}"));
    world.profile("bound", &format!("{REAL_ONE}{further}"));
    // Clients that would do without TLS try again without it.
    let script = "export PGSSLMODE=require; psql -At -c 'select 1'; psql -U fetched second -At -c 'select current_user'; \
         psql -U old legacy -c 'select 1'; psql -U open -c 'select 1'; psql -U another -c 'select 1'";
    let set = "OLD=old-r3alP4ssw0rdOfTheD4tabase OPEN=open-r3alP4ssw0rdOfTheD4tabase WRONG=wrong-r3alP4ssw0rdOfTheD4tabase";
    let with = |atoll: &str| format!("env {set} {atoll}");
    let outcome = outcome(&world, "real", &with("\"$ATOLL\""), script);
    assert_eq!(outcome.out(), "1\nfetched\n", "{outcome}");
    let told = outcome.err();
    for wanted in [
        "asks for an MD5 of the password",
        "it lets everybody in without a password",
        "password authentication failed for user \"another\"",
    ] {
        assert!(told.contains(wanted), "{wanted}: {outcome}");
    }
    let closed = events(&world, "flow.closed");
    let unreached = closed.iter().filter(|one| one["unreached"] == true);
    assert_eq!(unreached.count(), 3, "{closed:?}");
    // Who alone is told of them.
    let _ = outcome.says(["failed", "signing in to db.example:5432 as user old"]);
}

const WITHOUT_TLS: &str = r#"
[network]
allow = ["private.example:5432", "mixed.example:5432", "db.example:5432", "10.1.2.3:5432"]

[environment]
set = { PGUSER = "app", PGDATABASE = "shop", PGCONNECT_TIMEOUT = "60" }

[credential.plain]
source = { environment = "SHOP_PASSWORD" }
to = ["private.example", "mixed.example", "db.example"]
place = { postgres = { user = "app", database = "shop", tls = "none" } }
variable = "PGPASSWORD"

[credential.secure]
source = { environment = "SECURE" }
to = ["private.example", "db.example"]
place = { postgres = { user = "app", database = "second" } }

[credential.old]
source = { environment = "OLD" }
to = "private.example"
place = { postgres = { user = "old", database = "legacy", tls = "none" } }

[credential.fetched]
source = { environment = "FETCHED" }
to = "private.example"
place = { postgres = { user = "fetched", database = "second", tls = "none" } }
"#;

/// The login to a server of a private network works without TLS where that is configured, by SCRAM
/// alone; no other server's does, and no other login.
#[test]
fn a_login_without_tls_is_for_private_networks_alone() {
    let name = "a_login_without_tls_is_for_private_networks_alone";
    let Some(world) = world(name, WITHOUT_TLS) else {
        return;
    };
    let ask = "select current_user, ssl from pg_stat_ssl where pid = pg_backend_pid()";
    let script = format!(
        "ask() {{ echo \"$1: $(shift; psql -At \"$@\" 2>&1 | tr '\\n' ' ')\"; }}; \
         export PGSSLMODE=disable; \
         ask private -h private.example -c \"{ask}\"; \
         echo \"cancel: $(timeout -s INT 10 psql -h private.example -c 'select pg_sleep(300)' 2>&1 | tr '\\n' ' ')\"; \
         ask public -h db.example -c 'select 1'; ask both -h mixed.example -c 'select 1'; \
         ask secure -h db.example second -c \"{ask}\"; ask required -h private.example second -c 'select 1'; \
         ask md5 -h private.example -U old legacy -c 'select 1'; \
         ask cleartext -h private.example -U fetched second -c 'select 1'"
    );
    let set = format!(
        "env SECURE={REAL} OLD=old-r3alP4ssw0rdOfTheD4tabase FETCHED=f3tchedP4ssw0rdOfTheD4tabase"
    );
    let ways = match is_root() {
        true => vec!["\"$ATOLL\""],
        false => vec!["\"$ATOLL\"", "\"$FENCED\""],
    };
    for atoll in ways {
        let outcome = outcome(&world, "real", &format!("{set} {atoll}"), &script);
        let told = outcome.out();
        for (what, said) in [
            ("private", "app|f "),
            ("cancel", "canceling statement due to user request"),
            ("public", "only for private networks"),
            ("both", "only for private networks"),
            // The control: the same server at its public address, by TLS.
            ("secure", "app|t "),
            // Where it is not said it does without a certificate for its name nowhere.
            ("required", "it is for another name"),
            ("md5", "asks for an MD5 of the password"),
            ("cleartext", "asks for the password itself"),
        ] {
            let mut lines = told.lines();
            let line = lines.find_map(|line| line.strip_prefix(&format!("{what}: ")));
            let line = line.unwrap_or_else(|| panic!("{what}: {outcome}"));
            assert!(line.contains(said), "{what}: {line}\n{outcome}");
        }
        assert!(!told.contains(REAL), "{outcome}");
        // Nothing was dialled for what is refused.
        let opened = events(&world, "flow.opened");
        let plain = opened.iter().filter(|one| one["credential"] == "plain");
        let places: Vec<_> = plain.map(|one| one["address"].as_str().unwrap()).collect();
        assert_eq!(places, ["10.1.2.3", "10.1.2.3"], "{opened:?}");
        let whys = refused(&world);
        let strays = whys.iter().filter(|why| why.contains("private networks"));
        assert_eq!(strays.count(), 2, "{whys:?}");
    }
}

fn fakes() -> String {
    let databases = [
        "good",
        "unbound",
        "trust",
        "cleartext",
        "md5",
        "gss",
        "signature",
        "unproven",
        "iterations",
        "few",
        "nonce",
        "early",
        "never",
        "long",
    ];
    let databases = databases.map(|one| format!("'{one}'")).join(", ");
    format!(
        r#"
[network]
allow = ["late.example:5432,6001-6004", "wrong.example:5432", "unknown.example:5432"]

[environment]
set = {{ PGUSER = "app", PGCONNECT_TIMEOUT = "120", PGSSLMODE = "disable" }}

[credential.fake]
source = {{ environment = "SHOP_PASSWORD" }}
to = ["late.example:5432,6001-6004", "wrong.example:5432", "unknown.example:5432"]
place = {{ postgres = {{ user = "app", database = [{databases}] }} }}
variable = "PGPASSWORD"
"#
    )
}

#[test]
fn a_server_that_takes_less_than_a_whole_login_gets_none() {
    let name = "a_server_that_takes_less_than_a_whole_login_gets_none";
    let Some(world) = world(name, &fakes()) else {
        return;
    };
    let script = "ask() { what=$1; shift; psql -At \"$@\" -c 'select 1' >\"out.$what\" 2>&1 || echo \"failed\" >>\"out.$what\"; }; \
         ask never host=late.example' dbname=never' & \
         ask nothing host=late.example' dbname=good port=6004' & \
         for how in good unbound trust cleartext md5 gss signature unproven iterations few nonce early long; do ask $how \"host=late.example dbname=$how\"; done; \
         for port in 6001 6002 6003; do ask $port \"host=late.example dbname=good port=$port\"; done; \
         ask wrong 'host=wrong.example dbname=good'; ask unknown 'host=unknown.example dbname=good'; wait; \
         for one in out.*; do echo \"$one: $(tr '\\n' ' ' <\"$one\")\"; done";
    everywhere(&world, "fake", script, |outcome| {
        let told = outcome.out();
        let told_of = |how: &str| {
            let mut lines = told.lines();
            let line = lines.find_map(|line| line.strip_prefix(&format!("out.{how}: ")));
            line.unwrap_or_else(|| panic!("{how}: {outcome}"))
                .to_owned()
        };
        // The controls: the same server, where it does what it should.
        for how in ["good", "unbound"] {
            assert_eq!(told_of(how), "fake ", "{outcome}");
        }
        for (how, why) in [
            ("trust", "lets everybody in without a password"),
            ("cleartext", "asks for the password itself"),
            ("md5", "asks for an MD5"),
            ("gss", "another way of signing in"),
            ("signature", "does not prove that it knows the password"),
            ("unproven", "leaves SCRAM before its end"),
            ("iterations", "more than 65536 iterations"),
            ("few", "fewer than 4096"),
            ("nonce", "does not go on from Atoll's"),
            ("early", "leaves SCRAM before its end"),
            ("long", "no length of one"),
            ("never", "does not answer"),
            ("6001", "speaks no TLS"),
            ("6002", "cannot be reached by TLS"),
            ("6003", "does not say whether it speaks TLS"),
            ("nothing", "does not answer"),
            ("wrong", "it is for another name"),
            ("unknown", "signed by itself"),
        ] {
            let told = told_of(how);
            assert!(told.contains("FATAL:  Atoll: "), "{how}: {outcome}");
            assert!(told.ends_with("failed "), "{how}: {outcome}");
            assert!(told.contains(why), "{how}: {outcome}");
        }
        let fake = fake(&world);
        let has = |line: &str| fake.lines().any(|one| one == line);
        assert!(
            has("good SCRAM-SHA-256-PLUS p=tls-server-end-point"),
            "{fake}"
        );
        assert!(has("good right") && has("good Q"), "{fake}");
        assert!(
            has("unbound SCRAM-SHA-256 y") && has("unbound right"),
            "{fake}"
        );
        for never in ["in the clear", "without TLS", "answered", "wrong"] {
            assert!(!fake.contains(never), "{fake}");
        }
        // Nothing of a login goes to who speaks no TLS or is another one.
        for line in ["after N b''", "after E b''", "after nothing b''"] {
            assert!(has(line), "{fake}");
        }
        let startups = fake.lines().filter(|line| *line == "startup good app");
        assert_eq!(startups.count(), 1, "{fake}");
    });
}

#[test]
fn a_program_says_as_whom_it_signs_in_in_one_way() {
    let name = "a_program_says_as_whom_it_signs_in_in_one_way";
    let Some(world) = world(name, &fakes()) else {
        return;
    };
    everywhere(&world, "fake", "python3 raw.py late.example", |outcome| {
        assert_eq!(
            outcome.out().lines().collect::<Vec<_>>(),
            [
                "whole in",
                "in pieces in",
                "too long 28000",
                "huge 28000",
                "short 28000",
                "2.0 28000",
                "no end 28000",
                "user twice 28000",
                "User 28000",
                "another user 28000 with a hint",
                "another database 28000 with a hint",
                "no database 28000 with a hint",
                "replication 28000",
                "endpoint 28000",
                "settings in",
                "placeholder 28000",
                "GSS, then TLS NS",
                "GSS twice 28000",
                "ahead of TLS S alert",
                "TLS at once in",
                "own was ended",
                "slow 28000",
                "slow took long",
            ],
            "{outcome}"
        );
        let fake = fake(&world);
        let startups = fake.lines().filter(|line| line.starts_with("startup"));
        let startups: Vec<&str> = startups.collect();
        assert_eq!(startups, ["startup good app"; 5], "{fake}");
        // One of five had the key of a connection that was there.
        let cancels = fake.lines().filter(|line| line.starts_with("cancel"));
        assert_eq!(
            cancels.collect::<Vec<_>>(),
            ["cancel (4242, 777)"],
            "{fake}"
        );
        let refused = refused(&world);
        for wanted in [
            "the program took too long to say who it is",
            "it wants to end what no connection of this sandbox does",
            "it asks for replication, which is not signed in to",
            "it names a parameter twice",
            "it asks again what it was answered",
            "it speaks another version of the protocol than 3.0",
            "the placeholder of credential fake is in what the program signs in with",
        ] {
            assert!(
                refused.iter().any(|one| one == wanted),
                "{wanted}: {refused:?}"
            );
        }
        let _ = outcome.says(["alert: the program tried once"]);
    });
}

/// Data after a login is searched like everything else, and without the real password.
#[test]
fn a_placeholder_is_neither_asked_nor_copied_into_a_database() {
    let name = "a_placeholder_is_neither_asked_nor_copied_into_a_database";
    let Some(world) = world(name, REAL_ONE) else {
        return;
    };
    // The test's own words do not have it.
    let cut = REAL.replacen("w0rd", "#w0rd", 1);
    // A row that is asked for, and one of what is copied, each in several forms.
    let script = |key: &str| {
        format!(
            "KEY={key}; told() {{ echo \"$1: $(grep -h FATAL out.$1 || tail -n 1 out.$1)\"; }}; \
             ask() {{ row=$1; shift; psql -At \"$@\" >out.$row 2>&1; told $row; }}; \
             copy() {{ row=$1; {{ seq 1 20000; cat; }} | psql -q -c 'copy t from stdin' >out.$row 2>&1; told $row; }}; \
             psql -q -c 'drop table if exists t' -c 'create table t (a text)' 2>/dev/null; \
             ask query -c \"select length('$KEY')\"; ask bound -v key=$KEY -c 'select 1' -f bound.sql; \
             ask base64 -c \"select length('$(printf %s $KEY | base64 -w0)')\"; \
             ask hex -c \"select length('$(printf %s $KEY | od -An -tx1 | tr -d ' \\n')')\"; \
             ask name -c \"set application_name = '$KEY'\" -c 'select 7'; \
             echo $KEY | copy plain; printf 'a:%s' $KEY | base64 -w0 | copy in-base64; \
             {{ printf %s $KEY | head -c 9; sleep 1; printf %s $KEY | tail -c +10; echo; }} | copy with-a-pause; \
             psql -At -c 'select count(*) from t'; \
             psql -qAt -c \"select replace('{cut}', '#', '')\" -c \"do \\$\\$ begin raise notice '%', replace('{cut}', '#', ''); end \\$\\$\" 2>&1; \
             echo \"is $PGPASSWORD\""
        )
    };
    world.write("bound.sql", "select length(:'key');\n");
    let rows = [
        ("query", "35"),
        ("bound", "35"),
        ("base64", "48"),
        ("hex", "70"),
        ("name", "7"),
        ("plain", ""),
        ("in-base64", ""),
        ("with-a-pause", ""),
    ];
    everywhere(&world, "real", &script("$PGPASSWORD"), |outcome| {
        let out = outcome.out();
        for (row, _) in rows {
            let mut lines = out.lines();
            let line = lines.find_map(|line| line.strip_prefix(&format!("{row}: ")));
            let line = line.unwrap_or_else(|| panic!("{row}: {outcome}"));
            assert!(
                !line.is_empty() && line.parse::<u32>().is_err(),
                "{row}: {line}"
            );
        }
        // Nothing of what was copied has stayed.
        let last: Vec<&str> = out.lines().rev().take(4).collect();
        let placeholder = last[0].strip_prefix("is ").unwrap();
        assert_eq!(last[3], "0", "{outcome}");
        // What comes back is what stands for it.
        assert_eq!(last[2], placeholder, "{outcome}");
        let notice = format!("NOTICE:  {placeholder}");
        assert_eq!(last[1], notice, "{outcome}");
        let whys = refused(&world);
        let words =
            "the placeholder of credential shop is in what the program says to the database";
        for form in ["", " within base64", " as hexadecimal digits"] {
            let why = format!("{words}{form}, which the credential is not bound to");
            assert!(whys.contains(&why), "{why}: {whys:?}");
        }
        let told = "query: FATAL:  Atoll: the placeholder of credential shop is in what";
        assert!(out.contains(told), "{outcome}");
        assert!(outcome.err().contains("alert"), "{outcome}");
    });
    // The control: another text of its length.
    let other = "a-text-that-stands-for-nothing-at-l";
    everywhere(&world, "real", &script(other), |outcome| {
        let out = outcome.out();
        for (row, said) in rows {
            let told = format!("{row}: {said}");
            assert!(out.lines().any(|line| line == told), "{told}: {outcome}");
        }
        assert!(out.contains("\n60003\n"), "{outcome}");
        assert!(!outcome.err().contains("alert"), "{outcome}");
    });
}

#[test]
fn what_is_copied_passes_in_little_memory_slow() {
    let name = "what_is_copied_passes_in_little_memory_slow";
    let Some(world) = world(name, REAL_ONE) else {
        return;
    };
    // 1 GiB out of the database, and a part of that into it.
    let script = "psql -At -c \"copy (select repeat('x', 1048575) from generate_series(1, 1024)) to stdout\" | wc -c; \
         psql -q -c 'create unlogged table t (a text)'; \
         head -c 150000000 /dev/zero | tr '\\0' x | fold -w 999999 | psql -q -c 'copy t from stdin'; \
         psql -At -c 'select sum(length(a)) from t'";
    let outcome = outcome(
        &world,
        "real",
        &format!("{} \"$ATOLL\"", measuring(&world)),
        script,
    );
    assert_eq!(outcome.out(), "1073741824\n150000000\n", "{outcome}");
    let most = measured(&world);
    assert!(most < 64 * 1024, "{most} KiB: {outcome}");
}

#[test]
fn nothing_but_what_carries_holds_the_password_of_a_database() {
    let name = "nothing_but_what_carries_holds_the_password_of_a_database";
    let profile = REAL_ONE.replace("SHOP_PASSWORD", "GITHUB_TOKEN");
    let Some(world) = world(name, &profile) else {
        return;
    };
    world.write(world.top().join("search.py"), SEARCH);
    world.write(world.top().join("run.sh"), RUN);
    let script = "set -- /usr/lib/postgresql/*/bin/psql; \
         \"$1\" -At -c \"select 'welcome'\" -c '\\! echo KEY=$PGPASSWORD; echo READY; read go; echo on' -c \"select 'welcome'\"";
    let command = format!(
        "sh '{}' '{}' \"$@\"",
        world.top().join("run.sh").display(),
        world.top().display()
    );
    let run = on_servers(&world, SERVERS, NAMES, &command);
    let run = run
        .env("SERVERS", "real")
        .env("CLIENT_ID", id().0.to_string());
    let run = run.env("INTERNET_PORTS", "7").within(LONG);
    let run = run
        .arg("sh")
        .args(["--profile", "bound", "--", "sh", "-c", script]);
    let outcome = run.run();
    let searched = fs::read_to_string(world.top().join("searched")).unwrap_or_default();
    let what = format!("{outcome}\n{searched}");
    assert_eq!(outcome.out().matches("welcome").count(), 2, "{what}");
    let has = |line: &str| searched.lines().any(|one| one == line);
    for process in ["atoll", "atoll-egress", "atoll-jail", "psql"] {
        assert!(
            has(&format!("read {process}")),
            "{process} was not read: {what}"
        );
    }
    let holders = searched.lines().filter(|line| line.starts_with("real "));
    // The control: what carries has it, which only root can see.
    let of_carrier = match is_root() {
        true => vec!["real atoll-egress memory"],
        false => Vec::new(),
    };
    assert_eq!(holders.collect::<Vec<_>>(), of_carrier, "{what}");
    assert!(is_root() || has("unread atoll-egress memory"), "{what}");
    assert!(has("placeholder psql environment"), "{what}");
    let found = world
        .host("grep")
        .args(["-rlaF", REAL])
        .arg(world.top())
        .run()
        .out();
    let own = world.top().join("real");
    let others: Vec<&str> = found
        .lines()
        .filter(|line| *line != own.to_str().unwrap())
        .collect();
    assert_eq!(others, Vec::<&str>::new(), "{what}");
}

/// A policy forbids connecting from the start, and the login while a run goes on.
#[test]
fn a_login_is_closed_by_a_policy_of_its_action() {
    let name = "a_login_is_closed_by_a_policy_of_its_action";
    let Some(world) = world(name, REAL_ONE) else {
        return;
    };
    let ask = "psql -At -c 'select 1'";
    let own = world.config().join("atoll/own.cedar");
    everywhere(&world, "real", ask, |outcome| {
        assert_eq!(outcome.out(), "1\n", "{outcome}");
    });
    for action in ["resolve", "connect"] {
        let forbid = format!("forbid(principal, action == Action::\"{action}\", resource);\n");
        world.write(&own, forbid);
        everywhere(&world, "real", &format!("{ask}; true"), |outcome| {
            assert_eq!(outcome.out(), "", "{action} {outcome}");
        });
    }
    let later = format!(
        "cat >'{}' <<END\n@id(\"late\") forbid(principal, action == Action::\"use_credential\", resource) when {{ context.time >= $(($(date +%s) + 15)) }};\nEND\n\"$ATOLL\"",
        own.display()
    );
    let script = format!("for i in $(seq 60); do {ask} || break; sleep 1; done; echo ended $i");
    let outcome = outcome(&world, "real", &later, &script);
    let told = outcome.out();
    assert!(told.starts_with("1\n"), "{outcome}");
    let ended = told
        .lines()
        .last()
        .and_then(|line| line.strip_prefix("ended "));
    let times: u32 = ended.unwrap().parse().unwrap();
    assert!(times < 60, "{outcome}");
    assert!(
        refused(&world).iter().any(|why| why.contains("late")),
        "{outcome}"
    );
}
