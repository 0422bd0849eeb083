//! Credentials: read from profiles alone, shown as they are written, given inside as what
//! stands for them.

use atoll_model::network::{Part, Placeholder, Request, Scheme, Target};

use super::*;
use crate::remarks;

const GITHUB: &str = r#"
[network]
allow = ["api.github.com"]
[credential.github]
source = { environment = "GITHUB_TOKEN" }
to = "api.github.com"
place = { header = "authorization", form = "Bearer {}" }
"#;

fn decided(world: &World, placeholders: &[(&str, &str)]) -> Verdict<Grant> {
    let one = |(name, text): &(&str, &str)| Placeholder {
        name: name.parse().unwrap(),
        part: Part::Whole,
        text: (*text).to_owned(),
    };
    let placeholders: Vec<Placeholder> = placeholders.iter().map(one).collect();
    let facts = Facts {
        now: crate::tests::now(),
        mode: atoll_model::Mode::Full,
        host: &world.host,
        environment: &world.environment,
        placeholders: &placeholders,
    };
    decide(&world.rules(), &world.call, &facts)
}

fn granted(world: &World, placeholders: &[(&str, &str)]) -> Boundary {
    match decided(world, placeholders) {
        Verdict::Allow(grant) => grant.boundary().clone(),
        Verdict::Ask(reasons) | Verdict::Deny(reasons) => panic!("{reasons:?}"),
    }
}

fn variable<'a>(boundary: &'a Boundary, name: &str) -> Option<&'a str> {
    let mut all = boundary.environment.iter();
    all.find(|(one, _)| one == name)?.1.to_str()
}

#[test]
fn what_stands_for_a_credential_is_inside_and_its_source_is_not() {
    let text = GITHUB.replace("place =", "variable = 'GH_TOKEN'\nplace =")
        + "[environment]\npass = ['GITHUB_TOKEN', 'OTHER']\nset = { GH_TOKEN = 'set' }\n";
    let world = world()
        .profile("p", &text)
        .with("p")
        .variable("GITHUB_TOKEN", "real")
        .variable("GH_TOKEN", "another")
        .variable("OTHER", "passed");
    let boundary = granted(&world, &[("github", "stands")]);
    assert_eq!(variable(&boundary, "GH_TOKEN"), Some("stands"));
    assert_eq!(variable(&boundary, "GITHUB_TOKEN"), None);
    assert_eq!(variable(&boundary, "OTHER"), Some("passed"));
    let [binding] = &boundary.network.credentials[..] else {
        panic!("{:?}", boundary.network);
    };
    assert_eq!(
        binding.to_string(),
        "https api.github.com:443, in the header authorization as \"Bearer {}\""
    );
    // One that nobody has read lets nothing start.
    for placeholders in [&[][..], &[("other", "stands")]] {
        let Verdict::Deny(reasons) = decided(&world, placeholders) else {
            panic!("allowed");
        };
        assert_eq!(reasons[0].what, "credential github");
        assert_eq!(reasons[0].why, "its value was not read");
    }
    // Nor does one whose file the program could read itself.
    for (file, is_shown) in [
        ("~/token", false),
        ("/home/ann/src/app/token", true),
        ("/usr/share/token", true),
    ] {
        let text = GITHUB.replace(
            "environment = \"GITHUB_TOKEN\"",
            &format!("file = '{file}'"),
        );
        let text = text.replace("place =", "variable = 'GH_TOKEN'\nplace =");
        let world = super::world().profile("p", &text).with("p");
        let decided = decided(&world, &[("github", "stands")]);
        assert_eq!(matches!(decided, Verdict::Deny(_)), is_shown, "{file}");
    }
    // Where the organisation denies its variable it is not there either.
    let world = world.organisation("[deny]\nenvironment = ['GH_TOKEN']");
    let boundary = granted(&world, &[("github", "stands")]);
    assert_eq!(variable(&boundary, "GH_TOKEN"), None);
}

#[test]
fn a_binding_holds_requests_to_the_letter() {
    let text = r#"
        [credential.a]
        source = { file = "~/token" }
        to = ["api.example.com", "*.example.org:8443", "*.atoll.internal:8443"]
        methods = ["GET", "POST"]
        paths = ["/v1/**"]
        place = { header = "X-Key" }
        variable = "KEY"
    "#;
    let rules = world().profile("p", text).with("p").rules();
    let credential = rules.credentials().next().unwrap();
    let file = CredentialSource::File("/home/ann/token".into());
    assert_eq!(credential.source, file);
    for (request, expected) in [
        ("GET https api.example.com 443 /v1/a", true),
        ("POST https api.example.com 443 /v1/a?b=c", true),
        ("GET https a.example.org 8443 /v1/a", true),
        ("GET https example.org 8443 /v1/a", false),
        ("GET https a.atoll.internal 8443 /v1/a", true),
        ("GET https host.atoll.internal 8443 /v1/a", false),
        ("GET https a.example.org 443 /v1/a", false),
        ("GET https api.example.com 8443 /v1/a", false),
        ("GET http api.example.com 443 /v1/a", false),
        ("GET http api.example.com 80 /v1/a", false),
        ("DELETE https api.example.com 443 /v1/a", false),
        ("get https api.example.com 443 /v1/a", false),
        ("GET https api.example.com 443 /v2/a", false),
        ("GET https api.example.com 443 /v1/../v2/a", false),
        ("GET https api.example.com 443 /v1/%2e%2e/v2", false),
        ("GET https api.example.com 443 /v1//a", false),
        ("GET https api.example.com.evil.example 443 /v1/a", false),
    ] {
        let words: Vec<&str> = request.split(' ').collect();
        let scheme = match words[1] {
            "http" => Scheme::Http,
            _ => Scheme::Https,
        };
        let (host, target) = (words[2].parse().unwrap(), Target::parse(words[4]).unwrap());
        let judged = Request {
            host: &host,
            port: words[3].parse().unwrap(),
            scheme,
            method: words[0],
            target: &target,
        };
        assert_eq!(credential.binding.holds(&judged), expected, "{request}");
    }
}

#[test]
fn what_is_no_credential_is_told() {
    let whole = "source = { environment = 'T' }\nto = 'a.example'\nplace = { header = 'x-key' }";
    let with = |from: &str, to: &str| {
        assert!(whole.contains(from), "{from}");
        whole.replace(from, to)
    };
    let rows: &[(String, &str)] = &[
        (with("'a.example'", "'*'"), "for hosts that it names"),
        (
            with("'a.example'", "'10.0.0.0/8'"),
            "for hosts that it names",
        ),
        (
            with("'a.example'", "'host.atoll.internal:8080'"),
            "a program can listen there",
        ),
        (
            format!("{whole}\nvariable = 'LD_PRELOAD'"),
            "steers programs",
        ),
        (format!("{whole}\nvariable = 'PATH'"), "steers programs"),
        (
            format!("{whole}\nvariable = 'https_proxy'"),
            "steers programs",
        ),
        (
            format!("{whole}\nvariable = 'SSL_CERT_FILE'"),
            "steers programs",
        ),
        (
            with("'a.example'", "'a.example:*'"),
            "for ports that it names",
        ),
        (with("'a.example'", "[]"), "`to` is empty"),
        (with("to = 'a.example'", ""), "needs `to`"),
        (with("source = { environment = 'T' }", ""), "needs `source`"),
        (with("place = { header = 'x-key' }", ""), "needs `place`"),
        (
            with("{ environment = 'T' }", "{ file = '~/t' }"),
            "needs `variable`",
        ),
        (with("{ environment = 'T' }", "{}"), "`source` is one of"),
        (
            with(
                "{ environment = 'T' }",
                "{ environment = 'T', file = '/t' }",
            ),
            "`source` is one of",
        ),
        (
            with("{ environment = 'T' }", "{ environment = 'ATOLL_RUN' }"),
            "Atoll's own",
        ),
        (
            with("{ environment = 'T' }", "{ command = 'T' }"),
            "unknown key `command`",
        ),
        (with("'x-key'", "'x-key', query = 'a'"), "`place` is one of"),
        (with("'x-key'", "'x-key', form = 'Bearer'"), "with {} once"),
        (with("'x-key'", "'x-key', form = '{} {}'"), "with {} once"),
        (with("'x-key'", "'host'"), "holds no credential"),
        (
            with("'x-key'", "'proxy-authorization'"),
            "holds no credential",
        ),
        (with("'x-key'", "'x key'"), "not a header's name"),
        (with("header = 'x-key'", "basic = 'a:b'"), "no user's name"),
        (
            with("header = 'x-key'", "query = 'a=b'"),
            "no name of a parameter",
        ),
        (
            format!("{whole}\nmethod = 'GET'"),
            "did you mean `methods`?",
        ),
        (format!("{whole}\nmethods = ['G T']"), "a method is a word"),
        (format!("{whole}\nscheme = 'ftp'"), "is not known here"),
    ];
    for (text, said) in rows {
        let text = format!("[credential.a]\n{text}");
        let problems = check(text.as_bytes(), "p.toml");
        let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert!(told.join("\n").contains(said), "{said}: {told:?}\n{text}");
    }
    let named = format!("[credential.\"a b\"]\n{whole}");
    assert_eq!(check(named.as_bytes(), "p.toml").len(), 1);
    assert_eq!(check(b"[credential]\na = 1", "p.toml").len(), 1);
    // The control.
    let text = format!("[credential.a]\n{whole}");
    assert_eq!(check(text.as_bytes(), "p.toml"), Vec::new());
}

#[test]
fn a_projects_file_names_no_credential() {
    for world in [world().project(GITHUB), world().organisation(GITHUB)] {
        let told = world.error();
        assert!(told.contains("credential"), "{told}");
    }
    // One that nobody trusts is not even read.
    let rules = world().untrusted_project(GITHUB).rules();
    assert_eq!(rules.credentials().count(), 0);
}

#[test]
fn a_profile_stands_over_what_it_extends_and_shows_what_is_in_force() {
    let over = "extends = ['base']\n[credential.github]\nsource = { file = '/srv/token' }\n\
                to = 'api.github.com'\nscheme = 'http'\nmethods = ['GET']\npaths = ['/a \"b\"/*']\n\
                place = { basic = 'git' }\nvariable = 'TOKEN'\n\
                [credential.other]\nsource = { environment = 'OTHER' }\nto = 'api.github.com'\n\
                place = { query = 'key' }\n";
    let over = over.replace(" \"b\"", "");
    let world = world()
        .profile("base", GITHUB)
        .profile("p", &over)
        .with("p");
    let rules = world.rules();
    let shown = rules.show();
    let again = super::world()
        .profile("shown", &shown)
        .with("shown")
        .rules();
    let all = |rules: &Rules| rules.credentials().cloned().collect::<Vec<_>>();
    assert_eq!(all(&rules), all(&again), "{shown}");
    assert_eq!(all(&rules).len(), 2, "{shown}");
    assert!(
        shown.contains("source = { file = \"/srv/token\" }"),
        "{shown}"
    );
    let json = rules.show_json().to_string();
    assert!(json.contains("/srv/token"), "{json}");
    // Nobody may have two in one variable.
    let twice = GITHUB.replace("[network]", "[network]\ndeny = []").replace(
        "[credential.github]",
        "[credential.b]\nsource = { environment = 'GITHUB_TOKEN' }\nto = 'api.github.com'\n\
         place = { header = 'b' }\n[credential.github]",
    );
    let world = super::world().profile("p", &twice).with("p");
    let Verdict::Deny(reasons) = decided(&world, &[("github", "a"), ("b", "b")]) else {
        panic!("allowed");
    };
    assert!(reasons[0].why.contains("same variable"), "{reasons:?}");
}

#[test]
fn what_is_never_put_in_and_what_cannot_be_narrowed_is_said() {
    for (allow, said) in [
        ("'api.github.com'", None),
        ("'*'", None),
        ("'GET https://api.github.com/**'", None),
        (
            "{ to = 'api.github.com', carry = 'tunnel' }",
            Some("what a tunnel carries"),
        ),
        ("'other.example'", Some("no rule of [network] allows it")),
        (
            "'api.github.com:8443'",
            Some("no rule of [network] allows it"),
        ),
        (
            "'http://api.github.com'",
            Some("no rule of [network] allows it"),
        ),
    ] {
        let text = GITHUB.replace("\"api.github.com\"]", &format!("{allow}]"));
        let rules = world().profile("p", &text).with("p").rules();
        let told: Vec<String> = rules.notices().iter().map(Notice::to_string).collect();
        let told = told.join("\n");
        match said {
            Some(said) => assert!(told.contains(said), "{allow}: {told}"),
            None => assert!(!told.contains("credential"), "{allow}: {told}"),
        }
    }
    let told = remarks(GITHUB.as_bytes(), "p.toml");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].0, 4);
    assert!(
        told[0]
            .1
            .contains("cannot ask the target for a narrower one; `methods`"),
        "{told:?}"
    );
    assert_eq!(remarks(b"description = 'a'", "p.toml"), Vec::new());
}
