use crate::{Database, Target};

fn check(text: &str, expected: &Database) {
    let target: Target = text.parse().unwrap();
    assert_eq!(target, Target::Postgres(expected.clone()), "{text}");
    assert_eq!(
        target.to_string().parse::<Target>().unwrap(),
        target,
        "{target}"
    );
    let json = serde_json::to_string(&target).unwrap();
    assert_eq!(serde_json::from_str::<Target>(&json).unwrap(), target);
    assert_eq!(
        toml::from_str::<Target>(&toml::to_string(&target).unwrap()).unwrap(),
        target
    );
}

#[test]
fn postgres_targets_are_read_as_written() {
    let shop = Database {
        database: "shop".into(),
        ..Database::default()
    };
    check("postgres:shop", &shop);
    check("postgres:///shop", &shop);
    let far = Database {
        host: Some("db.example".into()),
        port: Some(5433),
        user: Some("a@b".into()),
        sslmode: Some("verify-full".into()),
        ..shop.clone()
    };
    check(
        "postgres://a%40b@db.example:5433/shop?sslmode=verify-full",
        &far,
    );
    check(
        "postgres:postgresql://a%40b@db.example:5433/shop?sslmode=verify-full",
        &far,
    );
    let socket = Database {
        host: Some("/run/postgresql".into()),
        passfile: Some("/etc/pass file".into()),
        ..shop.clone()
    };
    check(
        "postgres://%2Frun%2Fpostgresql/shop?passfile=%2Fetc%2Fpass%20file",
        &socket,
    );
    check(
        "postgres:///shop?host=/run/postgresql&passfile=/etc/pass%20file",
        &socket,
    );
    let odd = Database {
        database: "//p\"?".into(),
        ..Database::default()
    };
    check("postgres:///%2F%2Fp%22%3F", &odd);
    let local = Database {
        host: Some("::1".into()),
        port: Some(1),
        ..shop
    };
    check("postgres://[::1]:1/shop", &local);
}

#[test]
fn path_targets_are_read_as_written() {
    for text in ["files:/a/b c", "sqlite:a:b.db", "git:."] {
        let target: Target = text.parse().unwrap();
        assert_eq!(target.to_string(), text);
        let json = serde_json::to_string(&target).unwrap();
        assert_eq!(serde_json::from_str::<Target>(&json).unwrap(), target);
    }
    let toml: Target = toml::from_str("kind = \"files\"\npath = \"/a\"").unwrap();
    assert_eq!(toml.to_string(), "files:/a");
    toml::from_str::<Target>("kind = \"files\"\npath = \"/a\"\nother = 1").unwrap_err();
}

#[test]
fn bad_targets_are_refused_without_their_passwords() {
    let cases = [
        ("/a", "no colon"),
        ("files:", "nothing is named"),
        ("mysql:x", "kind is not known"),
        ("postgres://u:hunter2@h/d", "password must not"),
        ("postgres:///d?password=hunter2", "password must not"),
        ("postgres://h", "names no database"),
        ("postgres://h/", "names no database"),
        ("postgres://h:x/d", "port is no number"),
        ("postgres://h/d?options=x", "parameter other than"),
        ("postgres://h/%zz", "percent-encoded"),
    ];
    for (text, why) in cases {
        let refused = text.parse::<Target>().unwrap_err().to_string();
        assert!(refused.contains(why), "{text}: {refused}");
        assert!(!refused.contains("hunter2"), "{refused}");
    }
}
