//! Signing keys: read, shown as written, and replaced by placeholders in the sandbox.

use atoll_model::network::{Part, Place, Placeholder};

use super::*;
use crate::{CredentialSource, KeySource, remarks};

const AWS: &str = r#"
[credential.aws]
source = { environment = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"] }
to = "*.s3.eu-west-1.amazonaws.com"
place = { sigv4 = { region = "eu-west-1", service = ["s3", "sts"] } }
"#;

fn environment(world: &World, parts: &[(Part, &str)]) -> Vec<(String, String)> {
    let one = |(part, text): &(Part, &str)| Placeholder {
        name: "aws".parse().unwrap(),
        part: *part,
        text: (*text).to_owned(),
    };
    let placeholders: Vec<_> = parts.iter().map(one).collect();
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
    let Verdict::Allow(grant) = decide(&world.rules(), &world.call, &facts) else {
        panic!("denied");
    };
    let all = grant.boundary().environment.iter();
    let text = |text: &std::ffi::OsString| text.to_str().unwrap().to_owned();
    let all = all.map(|(name, value)| (text(name), text(value)));
    all.filter(|(name, _)| name.starts_with("AWS") || name.starts_with("R2"))
        .collect()
}

#[test]
fn each_value_of_a_key_has_a_variable_inside() {
    let world = |text: &str| {
        let world = super::world().profile("p", text).with("p");
        world
            .variable("AWS_ACCESS_KEY_ID", "real")
            .variable("AWS_SECRET_ACCESS_KEY", "real")
            .variable("AWS_SESSION_TOKEN", "real")
    };
    let passing = format!(
        "{AWS}[environment]\npass = ['AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY', 'AWS_SESSION_TOKEN']\n"
    );
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let both = [(Part::Secret, "s"), (Part::KeyId, "i")];
    let expected = [
        pair("AWS_ACCESS_KEY_ID", "i"),
        pair("AWS_SECRET_ACCESS_KEY", "s"),
    ];
    assert_eq!(environment(&world(&passing), &both), expected);
    let all = [both[0], both[1], (Part::Token, "t")];
    let with = environment(&world(&passing), &all);
    assert_eq!(with[2], pair("AWS_SESSION_TOKEN", "t"));
    let named = format!("{AWS}variable = ['R2_ID', 'R2_SECRET', 'R2_TOKEN']\n");
    let expected = [
        pair("R2_ID", "i"),
        pair("R2_SECRET", "s"),
        pair("R2_TOKEN", "t"),
    ];
    assert_eq!(environment(&world(&named), &all), expected);
}

#[test]
fn a_key_is_shown_as_it_is_written() {
    let secret = |name: &str| name.parse::<atoll_model::SecretName>().unwrap();
    let list =
        "environment = [\"AWS_ACCESS_KEY_ID\", \"AWS_SECRET_ACCESS_KEY\", \"AWS_SESSION_TOKEN\"]";
    for (source, expected) in [
        (
            "aws-profile = \"work\"",
            KeySource::Profile {
                name: "work".to_owned(),
                file: "/home/ann/.aws/credentials".into(),
                settings: "/home/ann/.aws/config".into(),
            },
        ),
        (
            "vault = [\"one\", \"two\"]",
            KeySource::Vault(vec![secret("one"), secret("two")]),
        ),
        (
            "environment = [\"ONE\", \"TWO\"]",
            KeySource::Variables(vec!["ONE".to_owned(), "TWO".to_owned()]),
        ),
    ] {
        let text = AWS.replace(list, source);
        let rules = world().profile("p", &text).with("p").rules();
        let credential = rules.credentials().next().unwrap();
        assert_eq!(credential.source, CredentialSource::Key(expected));
        let Place::SigV4(scope) = &credential.binding.place else {
            panic!("{credential:?}");
        };
        assert_eq!(scope.regions, ["eu-west-1"]);
        assert_eq!(scope.services, ["s3", "sts"]);
        assert_eq!(
            credential.binding.to_string(),
            "https *.s3.eu-west-1.amazonaws.com:443, in AWS signatures for s3, sts in eu-west-1"
        );
        let shown = rules.show();
        let again = world().profile("shown", &shown).with("shown").rules();
        assert_eq!(again.credentials().next(), Some(credential), "{shown}");
    }
    let told = |text: &str| remarks(text.as_bytes(), "p.toml").remove(0).1;
    assert!(told(AWS).contains("also keys that they give out"));
    assert!(told(AWS).contains("a key that a `command` prints"));
    let printed = AWS.replace(list, "command = [\"aws-key\"]");
    assert!(told(&printed).contains("its command can, by a role with a session policy"));
}

#[test]
fn a_command_that_prints_a_key_is_shown_as_it_is_written() {
    let list = "{ environment = [\"AWS_ACCESS_KEY_ID\", \"AWS_SECRET_ACCESS_KEY\", \"AWS_SESSION_TOKEN\"] }";
    let source = "{ command = [\"aws-key\", \"--profile\", \"work\"], timeout = \"60s\" }";
    for (further, names) in [
        (
            "",
            [
                "AWS_ACCESS_KEY_ID",
                "AWS_SECRET_ACCESS_KEY",
                "AWS_SESSION_TOKEN",
            ],
        ),
        (
            "variable = ['R2_ID', 'R2_SECRET', 'R2_TOKEN']",
            ["R2_ID", "R2_SECRET", "R2_TOKEN"],
        ),
    ] {
        let text = format!("{}{further}\n", AWS.replace(list, source));
        let world = super::world().profile("p", &text).with("p");
        let rules = world.rules();
        let credential = rules.credentials().next().unwrap();
        assert!(matches!(credential.source, CredentialSource::Command(_)));
        let parts = [Part::KeyId, Part::Secret, Part::Token];
        let expected = parts.into_iter().zip(names.map(str::to_owned));
        assert_eq!(credential.variables, expected.collect::<Vec<_>>());
        let again = super::world().profile("shown", &rules.show());
        let again = again.with("shown").rules();
        assert_eq!(again.credentials().next(), Some(credential));
        let all = parts.into_iter().zip(["i", "s", "t"]).collect::<Vec<_>>();
        let values: Vec<_> = environment(&world, &all);
        let expected = names.into_iter().zip(["i", "s", "t"]);
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(values, expected.collect::<Vec<_>>());
    }
}

#[test]
fn what_is_no_key_is_told() {
    let with = |from: &str, to: &str| {
        assert!(AWS.contains(from), "{from}");
        AWS.replace(from, to)
    };
    let list = "[\"AWS_ACCESS_KEY_ID\", \"AWS_SECRET_ACCESS_KEY\", \"AWS_SESSION_TOKEN\"]";
    let scope = "sigv4 = { region = \"eu-west-1\", service = [\"s3\", \"sts\"] }";
    for (text, said) in [
        (
            with(list, "\"AWS_ACCESS_KEY_ID\""),
            "signs with a key of two values",
        ),
        (with(list, "[]"), "two values, or three"),
        (with(list, "[\"ONE\"]"), "two values, or three"),
        (with(list, "[\"ONE\", \"ONE\"]"), "two values, or three"),
        (
            with(list, "[\"A\", \"B\", \"C\", \"D\"]"),
            "two values, or three",
        ),
        (with(list, "[\"A\", \"PATH\"]"), "steers programs"),
        (
            with(list, "[\"A\", \"B\"], aws-profile = \"a\""),
            "unknown key `aws-profile`",
        ),
        (
            with(&format!("environment = {list}"), "aws-profile = \"a]\""),
            "no name of a profile",
        ),
        (
            with(&format!("environment = {list}"), "aws-profile = 7"),
            "aws-profile",
        ),
        (with(scope, "header = \"x-key\""), "is put in nowhere"),
        (
            with(scope, &format!("{scope}, header = \"x-key\"")),
            "`place` is one of",
        ),
        (
            with("region = \"eu-west-1\", ", ""),
            "needs `region` and `service`",
        ),
        (
            with("[\"s3\", \"sts\"]", "[]"),
            "needs `region` and `service`",
        ),
        (with("\"eu-west-1\"", "\"*\""), "no region and no service"),
        (with("\"eu-west-1\"", "\"a/b\""), "no region and no service"),
        (with("region =", "regions ="), "did you mean `region`?"),
        (
            with(&format!("environment = {list}"), "command = ['aws-key']") + "variable = 'ONE'",
            "`variable` names one, and the key has several values",
        ),
        (
            with(&format!("environment = {list}"), "command = ['aws-key']")
                + "variable = ['ONE', 'TWO']",
            "may have a session token too",
        ),
        (
            with(&format!("environment = {list}"), "command = ['aws-key']") + "shape = 'jwt'",
            "has the shape of AWS's",
        ),
        (
            with(&format!("environment = {list}"), "command = ['aws-key']") + "optional = true",
            "a secret of the vault and a command have to be there",
        ),
        (
            with(
                &format!("environment = {list}"),
                "oauth = { token = 'https://a.example/', client = 'a', secret = { vault = 'a' } }",
            ) + "variable = 'ONE'",
            "has a token as its source, which gives one value",
        ),
        (
            with(&format!("environment = {list}"), "vault = ['one', 'two']") + "optional = true",
            "a secret of the vault and a command have to be there",
        ),
        (format!("{AWS}shape = 'jwt'"), "the value is known"),
        (format!("{AWS}variable = 'ONE'"), "`variable` names one"),
        (format!("{AWS}variable = ['ONE']"), "two values, or three"),
    ] {
        let problems = check(text.as_bytes(), "p.toml");
        let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert!(told.join("\n").contains(said), "{said}: {told:?}\n{text}");
    }
    let one = "[credential.a]\nsource = { environment = 'T' }\nto = 'a.example'\n\
               place = { header = 'x-key' }\nvariable = ['ONE', 'TWO']";
    let told = check(one.as_bytes(), "p.toml")[0].to_string();
    assert!(told.contains("`variable` names several"), "{told}");
    assert_eq!(check(AWS.as_bytes(), "p.toml"), Vec::new());
}

#[test]
fn a_run_goes_without_an_optional_key_that_is_not_there() {
    let text = format!("{AWS}optional = true\n");
    let world = super::world().profile("p", &text).with("p");
    let world = world.variable("AWS_ACCESS_KEY_ID", "real");
    let rules = world.rules();
    assert!(rules.credentials().next().unwrap().optional);
    let again = super::world().profile("shown", &rules.show());
    let again = again.with("shown").rules();
    assert_eq!(again.credentials().next(), rules.credentials().next());
    // Nothing of its source goes in as it is.
    assert_eq!(environment(&world, &[]), Vec::new());
    let both = [(Part::KeyId, "i"), (Part::Secret, "s")];
    assert_eq!(environment(&world, &both).len(), 2);
    // One of any of its variables stands in its place.
    let other = "[credential.own]\nsource = { environment = 'AWS_SECRET_ACCESS_KEY' }\n\
                 to = 'a.example'\nplace = { header = 'x-key' }\n";
    let world = super::world().profile("p", &text);
    let world = world.profile("q", &format!("extends = ['p']\n{other}"));
    let rules = world.with("q").rules();
    let names = rules.credentials().map(|one| one.binding.name.to_string());
    assert_eq!(names.collect::<Vec<_>>(), ["own"]);
}
