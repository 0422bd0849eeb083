//! PostgreSQL passwords in profiles: read, shown as written, and refused.

use atoll_model::network::{HostPart, Part, Placeholder};

use super::*;
use crate::{check, remarks};

const SHOP: &str = r#"
[network]
allow = ["db.example.com:5432"]
[credential.shop]
source = { environment = "SHOP_PASSWORD" }
to = "db.example.com"
place = { postgres = { user = "app", database = ["shop", "second"] } }
variable = "PGPASSWORD"
"#;

fn boundary(world: &World) -> Boundary {
    let placeholders = [Placeholder {
        name: "shop".parse().unwrap(),
        part: Part::Whole,
        text: "stands".to_owned(),
    }];
    let facts = Facts {
        now: crate::tests::now(),
        mode: atoll_model::Mode::Full,
        host: &world.host,
        environment: &world.environment,
        placeholders: &placeholders,
        labels: None,
        living: None,
        changes: None,
    };
    match decide(&world.rules(), &world.call, &facts) {
        Verdict::Allow(grant) => grant.boundary().clone(),
        Verdict::Ask(reasons) | Verdict::Deny(reasons) => panic!("{reasons:?}"),
    }
}

#[test]
fn a_password_of_postgres_is_for_a_user_and_databases_alone() {
    let world = world().profile("p", SHOP).with("p");
    let boundary = boundary(&world);
    let value = |name: &str| {
        let mut all = boundary.environment.iter();
        let found = all.find(|(one, _)| one == name);
        found.and_then(|(_, value)| value.to_str())
    };
    assert_eq!(value("PGPASSWORD"), Some("stands"));
    assert_eq!(value("SHOP_PASSWORD"), None);
    // The program finds whose certificate it sees.
    assert!(boundary.network.is_inspected());
    assert_eq!(
        value("PGSSLROOTCERT"),
        Some("/run/atoll/trust/ca-certificates.crt")
    );
    let [binding] = &boundary.network.credentials[..] else {
        panic!("{:?}", boundary.network);
    };
    assert_eq!(
        binding.to_string(),
        "db.example.com:5432, in a login to PostgreSQL as app, database shop, second"
    );
    let at = |host: &str, port| {
        let host: HostPart = host.parse().unwrap();
        binding.postgres_at(&host, port).cloned()
    };
    let access = at("db.example.com", 5432).unwrap();
    for (user, database, holds) in [
        ("app", "shop", true),
        ("app", "second", true),
        ("app", "Shop", false),
        ("app", "app", false),
        ("owner", "shop", false),
    ] {
        assert_eq!(access.holds(user, database), holds, "{user} {database}");
    }
    for (host, port) in [("db.example.com", 5433), ("example.com", 5432)] {
        assert!(at(host, port).is_none(), "{host}:{port}");
    }
    // What is shown is read as the same.
    let shown = world.rules().show();
    let line = r#"place = { postgres = { user = "app", database = ["shop", "second"] } }"#;
    assert!(shown.contains(line), "{shown}");
    let again = super::world().profile("p", &shown).with("p").rules();
    let both =
        [&world.rules(), &again].map(|rules| rules.credentials().cloned().collect::<Vec<_>>());
    assert_eq!(both[0], both[1]);
    // A later one of the same name stands in its place.
    let other = SHOP.replace("\"app\"", "\"reader\"");
    let narrower = format!("extends = ['p']\n{other}");
    let layered = super::world()
        .profile("p", SHOP)
        .profile("q", &narrower)
        .with("q");
    let rules = layered.rules();
    assert_eq!(rules.credentials().count(), 1);
    assert!(rules.show().contains("user = \"reader\""));
    assert_ne!(rules.digest(), world.rules().digest());
}

#[test]
fn what_is_no_password_of_postgres_is_told() {
    for (from, to, what) in [
        ("user = \"app\", ", "", "needs `user` and `database`"),
        (
            "[\"shop\", \"second\"]",
            "[]",
            "needs `user` and `database`",
        ),
        (
            "user = \"app\"",
            "user = \"a\\u0000b\"",
            "no name of a user or database",
        ),
        ("\"shop\"", "\"\"", "no name of a user or database"),
        ("user = \"app\"", "user = \"app\", tls = false", "tls"),
        (
            "user = \"app\"",
            "user = \"app\", tls = \"prefer\"",
            "nothing that TLS with a server can be",
        ),
        ("to = ", "paths = [\"/a\"]\nto = ", "are about requests"),
        ("to = ", "scheme = \"https\"\nto = ", "are about requests"),
        (
            "\"db.example.com\"",
            "\"host.atoll.internal:5432\"",
            "can listen there",
        ),
        ("\"db.example.com\"", "\"*:5432\"", "hosts that it names"),
    ] {
        let text = SHOP.replacen(from, to, 1);
        assert_ne!(text, SHOP, "{from}");
        let problems = check(text.as_bytes(), "p.toml");
        let problems: String = problems.iter().map(ToString::to_string).collect();
        assert!(problems.contains(what), "{what}: {problems}");
    }
}

#[test]
fn a_password_that_is_never_used_is_told_of() {
    let notices = |allow: &str| {
        let text = SHOP.replace("\"db.example.com:5432\"", allow);
        let rules = world().profile("p", &text).with("p").rules();
        let all = rules.notices().iter().map(|one| one.text.clone());
        all.collect::<Vec<_>>().join("\n")
    };
    assert_eq!(notices("\"db.example.com:5432\""), "");
    let none = notices("\"db.example.com\"");
    assert!(
        none.contains("never used at db.example.com:5432: no rule"),
        "{none}"
    );
    let into = notices("{ to = \"db.example.com:5432\", carry = \"requests\" }");
    assert!(into.contains("carry = \"tunnel\""), "{into}");
    let told = remarks(SHOP.as_bytes(), "p.toml");
    let told = told.into_iter().map(|(_, text)| text).collect::<String>();
    assert!(
        told.contains("what its user may there the program may"),
        "{told}"
    );
    assert!(!told.contains("methods"), "{told}");
}

#[test]
fn a_login_without_tls_is_said_and_told_of() {
    let plain = SHOP.replacen("user = \"app\"", "user = \"app\", tls = \"none\"", 1);
    assert_ne!(plain, SHOP);
    let rules = |text: &str| world().profile("p", text).with("p").rules();
    let shown = rules(&plain).show();
    let line = r#"database = ["shop", "second"], tls = "none" } }"#;
    assert!(shown.contains(line), "{shown}");
    assert_ne!(rules(&plain).digest(), rules(SHOP).digest());
    // That TLS is required can be said, and is what nothing says.
    let said = SHOP.replacen("user = \"app\"", "user = \"app\", tls = \"required\"", 1);
    let kept = |text: &str| rules(text).credentials().cloned().collect::<Vec<_>>();
    assert_eq!(kept(&said), kept(SHOP));
    assert_ne!(kept(&plain), kept(SHOP));
    assert_eq!(kept(&shown), kept(&plain));
    let with = world().profile("p", &plain).with("p");
    let boundary = boundary(&with);
    let binding = boundary.network.credentials.first().unwrap();
    assert!(binding.to_string().ends_with(", without TLS"), "{binding}");
    let told = |text: &str| {
        let told = remarks(text.as_bytes(), "p.toml").into_iter();
        told.map(|(_, text)| text).collect::<String>()
    };
    assert!(told(&plain).contains("without TLS, who is on the way"));
    assert!(!told(SHOP).contains("without TLS"));
    // An address that is none of a private network is told of, before anybody waits for it.
    let notices = |address: &str| {
        let text = plain.replace("db.example.com", address);
        let all = rules(&text);
        let all = all.notices().iter().map(|one| one.text.clone());
        all.collect::<Vec<_>>().join("\n")
    };
    assert_eq!(notices("10.1.2.3"), "");
    let public = notices("93.184.216.34");
    assert!(public.contains("private networks alone"), "{public}");
}
