//! Credentials: read from profiles alone, shown as written, and replaced by placeholders in the
//! sandbox.

use atoll_model::network::{
    ClientAuthentication, Ingredient, Part, Placeholder, Request, Scheme, Target, TokenGrant,
    TokenRequest,
};

use super::*;
use crate::{CommandProgram, CommandSource, TokenSource, remarks};

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
        labels: None,
        living: None,
        changes: None,
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
fn a_run_goes_without_an_optional_credential_that_is_not_there() {
    let text = format!("{GITHUB}optional = true\n[environment]\npass = ['GITHUB_TOKEN']\n");
    let world = world().profile("p", &text).with("p");
    let without = granted(&world, &[]);
    assert_eq!(variable(&without, "GITHUB_TOKEN"), None);
    assert_eq!(without.network.credentials, Vec::new());
    let with = granted(&world, &[("github", "stands")]);
    assert_eq!(variable(&with, "GITHUB_TOKEN"), Some("stands"));
    assert_eq!(with.network.credentials.len(), 1);
    // What is set by name is somebody's own word, where there is no credential.
    let set = format!("{text}set = {{ GITHUB_TOKEN = 'mine' }}\n");
    let world = super::world().profile("p", &set).with("p");
    assert_eq!(
        variable(&granted(&world, &[]), "GITHUB_TOKEN"),
        Some("mine")
    );
    let with = granted(&world, &[("github", "stands")]);
    assert_eq!(variable(&with, "GITHUB_TOKEN"), Some("stands"));
    // Its source never goes in, whatever became of it.
    let outside = super::world()
        .profile("p", &text)
        .with("p")
        .variable("GITHUB_TOKEN", "real");
    assert_eq!(variable(&granted(&outside, &[]), "GITHUB_TOKEN"), None);
    // Who has another use for its variable says so under any name.
    let over = "extends = ['base']\n[network]\nallow = ['models.example']\n[credential.mine]\n\
                source = { environment = 'GITHUB_TOKEN' }\nto = 'models.example'\n\
                place = { header = 'x-key' }\n";
    let world = super::world()
        .profile("base", &text)
        .profile("p", over)
        .with("p");
    let boundary = granted(&world, &[("mine", "stands")]);
    assert_eq!(boundary.network.credentials.len(), 1);
    assert_eq!(variable(&boundary, "GITHUB_TOKEN"), Some("stands"));
    // One that is missing takes no place among those that a run may have.
    let mut many = GITHUB.to_owned();
    for index in 0..20 {
        many += &format!(
            "[credential.c{index}]\nsource = {{ environment = 'C{index}' }}\nto = 'api.github.com'\n\
             place = {{ header = 'x-key' }}\noptional = true\n"
        );
    }
    let world = super::world().profile("p", &many).with("p");
    let _ = granted(&world, &[("github", "stands"), ("c7", "other")]);
    let found: Vec<String> = (0..16).map(|index| format!("c{index}")).collect();
    let mut all: Vec<(&str, &str)> = found.iter().map(|name| (name.as_str(), "x")).collect();
    all.push(("github", "stands"));
    let Verdict::Deny(reasons) = decided(&world, &all) else {
        panic!("allowed");
    };
    assert!(reasons[0].why.contains("16 of them"), "{reasons:?}");
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
            "source = { command = ['/bin/true'] }\nto = 'a.example'\n\
             place = { body = 'key' }\nvariable = 'T'\n"
                .to_owned(),
            "which no field of a body can have",
        ),
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
            with("{ environment = 'T' }", "{ helper = 'T' }"),
            "unknown key `helper`",
        ),
        (with("{ environment = 'T' }", "{ command = 'T' }"), "list"),
        (
            with("{ environment = 'T' }", "{ command = [] }"),
            "is empty",
        ),
        (
            with("{ environment = 'T' }", "{ command = ['./helper'] }"),
            "not an absolute path",
        ),
        (
            with("{ environment = 'T' }", "{ command = ['~/../helper'] }"),
            "the home directory",
        ),
        (
            with("{ environment = 'T' }", "{ command = [''] }"),
            "not an absolute path",
        ),
        (
            with("{ environment = 'T' }", "{ command = ['helper'] }"),
            "needs `variable`",
        ),
        (
            with(
                "{ environment = 'T' }",
                "{ command = ['helper'], timeout = '1h' }",
            ),
            "is not 1s to 300s",
        ),
        (
            with(
                "{ environment = 'T' }",
                "{ environment = 'T', timeout = '3s' }",
            ),
            "how long a `command` may take",
        ),
        (
            with(
                "{ environment = 'T' }",
                "{ environment = 'T', command = ['helper'] }",
            ),
            "`source` is one of",
        ),
        (
            format!("{whole}\nshape = 'ghp_****************'"),
            "the value is known",
        ),
        (
            with(
                "{ environment = 'T' }",
                "{ command = ['helper'] }\nvariable = 'T'\nshape = 'ghp_****'",
            ),
            "where letters and digits are random",
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
            with("header = 'x-key'", "body = 'a b'"),
            "no name of a parameter",
        ),
        (
            with("header = 'x-key'", "body = 'a', form = '{}'"),
            "`place` is one of",
        ),
        (
            format!("{whole}\nmethod = 'GET'"),
            "did you mean `methods`?",
        ),
        (format!("{whole}\nmethods = ['G T']"), "a method is a word"),
        (format!("{whole}\nscheme = 'ftp'"), "is not known here"),
        (
            format!("{whole}\nothers = 'hidden'"),
            "write \"masked\" or \"refused\"",
        ),
        (
            format!(
                "{}\nothers = 'masked'",
                with("header = 'x-key'", "body = 'a'")
            ),
            "for a credential in a header or a parameter",
        ),
        (
            with("{ environment = 'T' }", "{ vault = 't' }") + "\nvariable = 'T'\noptional = true",
            "a secret of the vault and a command have to be there",
        ),
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
fn a_command_is_what_the_person_has_written_and_none_of_the_workspace() {
    let of = |source: &str| {
        let text = GITHUB.replace("{ environment = \"GITHUB_TOKEN\" }", source);
        let text = text.replace(
            "place =",
            "variable = 'T'\nshape = 'ghp_************'\nplace =",
        );
        world().profile("p", &text).with("p")
    };
    let world = of("{ command = ['~/bin/helper', 'a b', '--x'], timeout = '1m' }");
    let rules = world.rules();
    let credential = rules.credentials().next().unwrap();
    let expected = CredentialSource::Command(CommandSource {
        program: CommandProgram::At("/home/ann/bin/helper".into()),
        arguments: vec!["a b".to_owned(), "--x".to_owned()],
        patience: std::time::Duration::from_secs(60),
    });
    assert_eq!(credential.source, expected);
    let shown = rules.show();
    let again = super::world()
        .profile("shown", &shown)
        .with("shown")
        .rules();
    assert_eq!(again.credentials().next(), Some(credential), "{shown}");
    for (command, may_start) in [
        ("helper", true),
        ("/home/ann/src/helper", true),
        ("/home/ann/src/app/helper", false),
    ] {
        let world = of(&format!("{{ command = ['{command}'] }}"));
        let decided = decided(&world, &[("github", "stands")]);
        assert_eq!(matches!(decided, Verdict::Allow(_)), may_start, "{command}");
    }
}

const OAUTH: &str = r#"
[network]
allow = ["api.example.com"]
[credential.api]
source = { oauth = { token = "https://login.example.com/oauth/token", client = "one", secret = { vault = "client" } } }
to = "api.example.com"
place = { header = "authorization", form = "Bearer {}" }
variable = "TOKEN"
"#;
const CLIENT: &str = "client = \"one\", secret = { vault = \"client\" }";

#[test]
fn a_token_is_asked_for_as_it_is_written() {
    let shown_again = |text: &str| {
        let rules = world().profile("p", text).with("p").rules();
        let shown = rules.show();
        let again = world().profile("shown", &shown).with("shown").rules();
        let credential = rules.credentials().next().unwrap().clone();
        assert_eq!(again.credentials().next(), Some(&credential), "{shown}");
        match credential.source {
            CredentialSource::Token(token) => match *token {
                TokenSource {
                    request: TokenRequest::OAuth(request),
                    secrets,
                } => (request, secrets),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    };
    let (least, _) = shown_again(OAUTH);
    assert_eq!(least.authentication, ClientAuthentication::Basic);
    assert_eq!(least.grant, TokenGrant::ClientCredentials);
    assert!(least.is_broad() && least.revoke.is_none());
    for (by, ingredients) in [
        (
            "client = 'one', secret = { environment = 'CLIENT' }, authentication = 'post', scope = ['read', 'a:b/c'], \
             audience = 'https://api.example.com', revoke = 'https://login.example.com/revoke', timeout = '5s'",
            &[Ingredient::ClientSecret][..],
        ),
        (
            "client = 'one', grant = 'refresh', refresh = { file = '~/token' }",
            &[Ingredient::RefreshToken][..],
        ),
        (
            "client = 'one', secret = { vault = 'client' }, grant = 'exchange', subject = { vault = 'subject' }, \
             subject-type = 'jwt', resource = ['https://a.example/', 'urn:b']",
            &[Ingredient::ClientSecret, Ingredient::SubjectToken][..],
        ),
    ] {
        let (request, secrets) = shown_again(&OAUTH.replace(CLIENT, by));
        assert_eq!(request.ingredients(), ingredients, "{by}");
        assert_eq!(secrets.len(), ingredients.len(), "{by}");
    }
    // What it is asked for by is not inside, nor where a program can read it.
    let of =
        |by: &str| OAUTH.replace("vault = \"client\"", by) + "[environment]\npass = ['CLIENT']\n";
    let world = world()
        .profile("p", &of("environment = 'CLIENT'"))
        .with("p")
        .variable("CLIENT", "real");
    let boundary = granted(&world, &[("api", "stands")]);
    assert_eq!(variable(&boundary, "CLIENT"), None);
    assert_eq!(variable(&boundary, "TOKEN"), Some("stands"));
    for (file, may_start) in [("~/secret", true), ("/home/ann/src/app/secret", false)] {
        let text = of(&format!("file = '{file}'"));
        let world = super::world().profile("p", &text).with("p");
        let decided = decided(&world, &[("api", "stands")]);
        assert_eq!(matches!(decided, Verdict::Allow(_)), may_start, "{file}");
    }
}

#[test]
fn a_token_that_nobody_could_give_is_a_mistake() {
    let with = |from: &str, to: &str| OAUTH.replace(from, to);
    let endpoint = "https://login.example.com/oauth/token";
    for (text, said) in [
        (
            with(endpoint, "http://login.example.com/token"),
            "begins with https://",
        ),
        (
            with(endpoint, "https://host.atoll.internal:8443/"),
            "is on this host",
        ),
        (with(endpoint, "https://127.0.0.1/"), "is on this host"),
        (
            with(endpoint, "https://user:word@login.example.com/"),
            "nothing before it",
        ),
        (with(CLIENT, ""), "needs `secret`"),
        (
            with(CLIENT, "secret = { vault = 'a' }"),
            "needs `token` and `client`",
        ),
        (with(CLIENT, "client = 'a'"), "needs `secret`"),
        (
            with(CLIENT, "client = 'a', grant = 'refresh'"),
            "needs `refresh`",
        ),
        (
            with(CLIENT, "client = 'a', grant = 'exchange'"),
            "needs `subject`",
        ),
        (
            with(CLIENT, "client = 'a', grant = 'password'"),
            "is no grant",
        ),
        (
            with(CLIENT, &format!("{CLIENT}, refresh = {{ vault = 'b' }}")),
            "is for grant",
        ),
        (
            with(CLIENT, &format!("{CLIENT}, subject-type = 'jwt'")),
            "is for grant",
        ),
        (
            with(CLIENT, &format!("{CLIENT}, authentication = 'jwt'")),
            "\"basic\" or \"post\"",
        ),
        (
            with(CLIENT, &format!("{CLIENT}, scope = 'a'")),
            "must be a list",
        ),
        (
            with(CLIENT, &format!("{CLIENT}, scope = ['a b']")),
            "is no scope",
        ),
        (
            with(CLIENT, &format!("{CLIENT}, resource = 'a'")),
            "is no URI",
        ),
        (
            with(CLIENT, &format!("{CLIENT}, timeout = '1h'")),
            "is not 1s to 300s",
        ),
        (
            with(CLIENT, &format!("{CLIENT}, scopes = ['a']")),
            "did you mean `scope`?",
        ),
        (with("{ vault = \"client\" }", "{ }"), "`secret` is one of"),
        (
            with("{ vault = \"client\" }", "'in the clear'"),
            "must be a table",
        ),
        (with("variable = \"TOKEN\"", ""), "needs `variable`"),
        (
            with(
                "header = \"authorization\", form = \"Bearer {}\"",
                "body = 'a'",
            ),
            "has a token as its source",
        ),
        (
            with("variable =", "optional = true\nvariable ="),
            "so has what a token takes",
        ),
        (
            with(
                "secret = { vault = \"client\" } }",
                "secret = { vault = \"client\" } }, vault = 'a'",
            ),
            "`source` is one of",
        ),
    ] {
        let problems = check(text.as_bytes(), "p.toml");
        let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert!(told.join("\n").contains(said), "{said}: {told:?}\n{text}");
    }
    assert_eq!(check(OAUTH.as_bytes(), "p.toml"), Vec::new());
}

#[test]
fn a_token_that_could_be_narrower_is_told_of() {
    for (further, broad, kept) in [
        ("", true, true),
        (", scope = ['read']", false, true),
        (", revoke = 'https://login.example.com/revoke'", true, false),
        (
            ", audience = 'a', revoke = 'https://login.example.com/revoke'",
            false,
            false,
        ),
    ] {
        let text = OAUTH.replace(CLIENT, &format!("{CLIENT}{further}"));
        let told = remarks(text.as_bytes(), "p.toml");
        let told: Vec<&str> = told.iter().map(|(_, text)| text.as_str()).collect();
        let said = told.join("\n");
        assert_eq!(said.contains("ask for less"), broad, "{further}: {said}");
        assert_eq!(
            said.contains("good until it expires"),
            kept,
            "{further}: {said}"
        );
        assert!(!said.contains("used as it is"), "{said}");
    }
}

#[test]
fn a_token_of_an_app_is_for_what_is_named() {
    const APP: &str = "app = 123, installation = 456, key = { vault = 'app-key' }";
    let of = |app: &str| {
        let oauth = "oauth = { token = \"https://login.example.com/oauth/token\", client = \"one\", secret = { vault = \"client\" } }";
        OAUTH.replace(oauth, &format!("github-app = {{ {app} }}"))
    };
    assert_ne!(of(APP), OAUTH);
    for (further, said) in [
        (
            "",
            "all repositories of the installation: `repositories` names some; it may do",
        ),
        (
            ", repositories = ['website']",
            "it may do all that the app may",
        ),
        (
            ", permissions = { contents = 'read' }",
            "all repositories of the installation",
        ),
        (
            ", repositories = ['website', 'a.b'], permissions = { contents = 'write', pull_requests = 'read' }, \
             api = 'https://git.example.com/api/v3', timeout = '5s'",
            "",
        ),
    ] {
        let text = of(&format!("{APP}{further}"));
        let rules = world().profile("p", &text).with("p").rules();
        let shown = rules.show();
        let again = world().profile("shown", &shown).with("shown").rules();
        let credential = rules.credentials().next().unwrap();
        assert_eq!(again.credentials().next(), Some(credential), "{shown}");
        let told = remarks(text.as_bytes(), "p.toml");
        assert_eq!(told.is_empty(), said.is_empty(), "{told:?}");
        assert!(told.iter().all(|(_, text)| text.contains(said)), "{told:?}");
    }
    for (app, said) in [
        (
            "app = 123, installation = 456".to_owned(),
            "needs `app`, `installation` and `key`",
        ),
        (APP.replace("123", "0"), "is no number of GitHub's"),
        (APP.replace("123", "'-1'"), "is no number of GitHub's"),
        (format!("{APP}, repositories = []"), "is empty"),
        (
            format!("{APP}, repositories = ['owner/name']"),
            "without its owner",
        ),
        (
            format!("{APP}, permissions = {{ contents = 'all' }}"),
            "is not \"read\"",
        ),
        (
            format!("{APP}, permissions = {{ \"a b\" = 'read' }}"),
            "no name of a permission",
        ),
        (
            format!("{APP}, api = 'http://git.example.com'"),
            "begins with https://",
        ),
        (
            format!("{APP}, api = 'https://git.example.com/?a'"),
            "has no query",
        ),
        (format!("{APP}, repos = ['a']"), "unknown key `repos`"),
    ] {
        let problems = check(of(&app).as_bytes(), "p.toml");
        let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert!(told.join("\n").contains(said), "{said}: {told:?}\n{app}");
    }
    assert_eq!(check(of(APP).as_bytes(), "p.toml"), Vec::new());
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
                place = { query = 'key' }\nothers = 'masked'\noptional = true\n\
                [credential.third]\nsource = { environment = 'THIRD' }\nto = 'api.github.com'\n\
                place = { body = 'client_secret' }\n";
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
    assert_eq!(all(&rules).len(), 3, "{shown}");
    assert_eq!(shown.matches("others = \"masked\"").count(), 1, "{shown}");
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

#[test]
fn an_optional_credential_that_is_there_and_reaches_nothing_is_told_of() {
    let nowhere = GITHUB.replace("allow = [\"api.github.com\"]", "allow = [\"example.com\"]")
        + "optional = true\n";
    let never = "credential github is never used at api.github.com:443: no rule";
    let told = |text: &str, placeholders: &[(&str, &str)]| {
        let world = world()
            .profile("p", text)
            .with("p")
            .variable("GITHUB_TOKEN", "real");
        let Verdict::Allow(grant) = decided(&world, placeholders) else {
            panic!("denied");
        };
        let notices = grant.notices().iter().map(ToString::to_string);
        let told = notices.filter(|text| text.contains(never)).count();
        (told, world.rules().unusable_optional().len())
    };
    assert_eq!(told(&nowhere, &[("github", "stands")]), (1, 1));
    // One that is not there is not missed.
    assert_eq!(told(&nowhere, &[]), (0, 1));
    let reached = format!("{GITHUB}optional = true\n");
    assert_eq!(told(&reached, &[("github", "stands")]), (0, 0));
}

#[test]
fn an_optional_credential_of_ones_own_that_is_not_there_is_told_of() {
    let text = format!("{GITHUB}optional = true\n");
    let told = |profile: &str, placeholders: &[(&str, &str)]| {
        let world = world().profile("p", &text).with(profile);
        let Verdict::Allow(grant) = decided(&world, placeholders) else {
            panic!("denied");
        };
        let notices = grant.notices().iter().map(ToString::to_string);
        notices
            .filter(|text| text.contains("the run goes without credential"))
            .collect::<Vec<_>>()
    };
    let [line] = &told("p", &[])[..] else {
        panic!("not one line");
    };
    assert!(
        line.contains("GITHUB_TOKEN is not usable or not set"),
        "{line}"
    );
    assert!(told("p", &[("github", "stands")]).is_empty());
    // An agent has several keys, of which one is enough.
    assert!(told("opencode", &[]).is_empty());
}

#[test]
fn a_variable_that_was_asked_for_and_is_stood_for_is_told_of() {
    let told = |options: &[&str], placeholders: &[(&str, &str)]| {
        let mut world = world()
            .profile("p", &format!("{GITHUB}optional = true\n"))
            .with("p")
            .variable("GITHUB_TOKEN", "real");
        for option in options {
            world.requested.environment.push((*option).into());
        }
        let Verdict::Allow(grant) = decided(&world, placeholders) else {
            panic!("denied");
        };
        let notices = grant.notices().iter().map(ToString::to_string);
        notices
            .filter(|text| {
                text.contains("stands for credential github")
                    || text.contains("`--env` passes the value as is")
            })
            .count()
    };
    let there = [("github", "stands")];
    assert_eq!(told(&["GITHUB_TOKEN"], &there), 1);
    assert_eq!(told(&["GITHUB_TOKEN=mine"], &there), 1);
    assert_eq!(told(&[], &there), 0);
    assert_eq!(told(&["OTHER=x"], &there), 0);
    // A value goes in where nothing stands for one: that is told, too.
    assert_eq!(told(&["GITHUB_TOKEN=mine"], &[]), 1);
    assert_eq!(told(&["GITHUB_TOKEN"], &[]), 0);
}
