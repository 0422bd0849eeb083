//! Login files: read from profiles alone, shown as written, and refused if they contradict each
//! other.

use std::path::Path;

use super::*;
use crate::{CredentialSource, Holds, LoginSource};

const LOGIN: &str = r#"
[network]
allow = ["api.example.com"]
[home]
layer = [".agent"]
[login.agent]
file = "~/.agent/auth.json"
keep = ["mode", "*.expires"]
claims = ["email"]
optional = true
issue = { token = "https://api.example.com/oauth/token", command = ["agent", "login"], callback = 1455, access = "tokens.access", refresh = "tokens.refresh" }
[credential.agent]
source = { login = "agent", field = "tokens.access" }
to = "api.example.com"
place = { header = "authorization", form = "Bearer {}" }
optional = true
[credential.renewal]
source = { login = "agent", field = "tokens.refresh" }
to = "api.example.com"
paths = ["/oauth/token"]
place = { refresh = "refresh_token" }
optional = true
"#;

#[test]
fn a_login_file_and_its_fields_are_read_and_shown() {
    let rules = world().profile("p", LOGIN).with("p").rules();
    let login = rules.logins().next().unwrap();
    assert_eq!(login.file, Path::new("/home/ann/.agent/auth.json"));
    assert!(login.optional && login.claims == ["email"]);
    assert!(login.keep[1].leads_along(&["openai", "expires"]));
    let sources: Vec<_> = rules.credentials().map(|one| one.source.clone()).collect();
    let field = |field: &str| {
        CredentialSource::Login(LoginSource {
            login: "agent".parse().unwrap(),
            field: field.parse().unwrap(),
            renew: None,
        })
    };
    assert_eq!(sources, [field("tokens.access"), field("tokens.refresh")]);
    // What stands for it is in the file: no variable is made.
    assert!(rules.credentials().all(|one| one.variables.is_empty()));
    let shown = rules.show();
    for line in [
        "[login.agent]",
        "file = \"/home/ann/.agent/auth.json\"",
        "keep = [\"mode\", \"*.expires\"]",
        "claims = [\"email\"]",
        "issue = { token = \"https://api.example.com/oauth/token\", command = [\"agent\", \"login\"], callback = 1455, access = \"tokens.access\", refresh = \"tokens.refresh\" }",
        "source = { login = \"agent\", field = \"tokens.access\" }",
        "place = { refresh = \"refresh_token\" }",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert!(!shown.contains("variable ="), "{shown}");
    // An extending profile's stands in its place.
    let other = "extends = ['p']\n[login.agent]\nfile = '~/.other/auth.json'\n";
    let world = world().profile("p", LOGIN).profile("q", other).with("q");
    let rules = world.rules();
    let files: Vec<_> = rules.logins().map(|login| login.file.clone()).collect();
    assert_eq!(files, [Path::new("/home/ann/.other/auth.json")]);
}

#[test]
fn a_file_of_settings_says_what_of_it_is_secret_and_a_copy_says_nothing() {
    let settings = "[login.agent]\nfile = '~/.agent/settings.json'\nkeep = ['env.MODEL']\n\
                    secrets = ['pins.*']\noptional = true\n";
    let copy = "[login.copy]\nfile = '~/.agent/settings.json.bak'\nhidden = true\n";
    let with = |text: &str| world().profile("p", text).with("p").compile();
    let rules = with(&format!("{settings}{copy}")).unwrap();
    let holds: Vec<_> = rules.logins().map(|login| login.holds.clone()).collect();
    let pins = vec!["pins.*".parse().unwrap()];
    assert_eq!(holds, [Holds::Settings(pins), Holds::Copies]);
    let shown = rules.show();
    for line in [
        "keep = [\"env.MODEL\"]",
        "secrets = [\"pins.*\"]",
        "hidden = true",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    // What is shown is read as the same.
    let again = with(&shown).unwrap();
    assert!(again.logins().eq(rules.logins()), "{shown}");
    let issue = "issue = { token = 'https://api.example.com/t', command = ['a'], access = 'a' }\n";
    for text in [
        format!("{settings}claims = ['email']\n"),
        format!("{settings}hidden = true\nclaims = ['email']\n"),
        format!("{settings}{issue}"),
        format!("{copy}keep = ['mode']\n"),
        format!("{copy}claims = ['email']\n"),
        settings.replace("pins.*", "pins..x"),
        settings.replace("['pins.*']", "'pins.*'"),
    ] {
        assert!(with(&text).is_err(), "{text}");
    }
}

/// The files in which people keep keys, of the agents with a shipped profile.
#[test]
fn the_profiles_of_agents_name_their_files_of_settings() {
    for (profile, files) in [
        (
            "claude",
            &[
                ".claude.json",
                ".claude/settings.json",
                ".claude/.claude.json",
                ".claude/.config.json",
            ][..],
        ),
        ("codex", &[".codex/config.toml"]),
        ("gemini", &[".gemini/settings.json"]),
        (
            "opencode",
            &[
                ".config/opencode/opencode.json",
                ".config/opencode/opencode.jsonc",
            ],
        ),
        ("openclaw", &[".openclaw/openclaw.json"]),
    ] {
        let rules = world().with(profile).rules();
        for file in files {
            let path = Path::new("/home/ann").join(file);
            let is_it = |login: &&crate::Login| login.file == path;
            let login = rules
                .logins()
                .find(is_it)
                .unwrap_or_else(|| panic!("{file}"));
            assert!(
                matches!(login.holds, Holds::Settings(_)) && login.optional,
                "{file}"
            );
        }
    }
}

#[test]
fn how_a_login_is_issued_is_said_whole() {
    let whole = "token = \"https://api.example.com/oauth/token\", command = [\"agent\", \"login\"], \
                 callback = 1455, access = \"tokens.access\"";
    let with = |issue: &str| {
        let login = format!("[login.agent]\nfile = '~/.agent/auth.json'\nissue = {{ {issue} }}\n");
        world().profile("p", &login).with("p").compile()
    };
    assert!(with(whole).is_ok());
    let vault = whole.replace(
        "access = \"tokens.access\"",
        "vault = { refresh = \"agent-refresh\" }",
    );
    let shown = with(&vault).unwrap().show();
    assert!(
        shown.contains("vault = { refresh = \"agent-refresh\" } }"),
        "{shown}"
    );
    let scopes = "callback = 1455, scopes = [\"openid\", \"https://example.com/auth\"], \
                  without = [\"tokens.account\"]";
    let shown = with(&whole.replace("callback = 1455", scopes)).unwrap();
    assert!(shown.show().contains(scopes), "{}", shown.show());
    for (part, other) in [
        ("https://", "http://"),
        ("https://api.example.com", "https://127.0.0.1"),
        ("command = [\"agent\", \"login\"], ", ""),
        ("\"agent\", \"login\"", ""),
        ("callback = 1455", "callback = 80"),
        ("callback = 1455", "callback = 70000"),
        ("\"tokens.access\"", "\"*.access\""),
        ("access =", "refresh ="),
        ("access =", "more ="),
        (
            "\"tokens.access\"",
            "\"tokens.access\", vault = { access = \"a\" }",
        ),
        ("access = \"tokens.access\"", "vault = {}"),
        ("access = \"tokens.access\"", "vault = { token = \"a\" }"),
        ("callback", "hosts = [\"https://example.com\"], callback"),
        ("callback", "scopes = \"openid\", callback"),
        ("callback", "without = [\"*.account\"], callback"),
    ] {
        assert!(with(&whole.replace(part, other)).is_err(), "{other}");
    }
}

#[test]
fn a_run_by_which_somebody_logs_in_reaches_its_issuer_alone() {
    let profile = LOGIN
        .replace(
            "allow = [\"api.example.com\"]",
            "allow = [\"*.example.com\", \"other.example\", \"*.example.org:*\"]\npublish = [\"3000\"]",
        )
        .replace("command =", "hosts = [\"in.example.org\", \"out.example\"], command =");
    let login = |profile: &str, way: &dyn Fn(&mut Requested)| {
        let mut world = world().profile("p", profile).with("p");
        world.requested.login = Some("agent".parse().unwrap());
        world.requested.publish = vec!["1455".to_owned()];
        way(&mut world.requested);
        world
    };
    let boundary = login(&profile, &|_| {}).boundary();
    let reached: Vec<String> = boundary
        .network
        .allow
        .iter()
        .map(|rule| rule.to.to_string())
        .collect();
    assert_eq!(reached, ["api.example.com:443", "in.example.org:443"]);
    assert!(boundary.network.is_inspected() && boundary.network.credentials.is_empty());
    let ports: Vec<u16> = boundary
        .network
        .publish
        .iter()
        .map(|one| one.port.inside)
        .collect();
    assert_eq!(ports, [1455]);
    // The control: any other run of the profile reaches all of it.
    let other = world().profile("p", &profile).with("p").boundary();
    assert_eq!(other.network.allow.len(), 3);
    // Where its issuer is not reached, or unseen, nobody logs in.
    let closed = profile.replace("\"*.example.com\", ", "");
    for world in [
        login(&closed, &|_| {}),
        login(&closed, &|asked| {
            asked.tunnel = vec!["api.example.com:443".to_owned()]
        }),
        login(&profile, &|asked| {
            asked.login = Some("none".parse().unwrap())
        }),
    ] {
        assert!(
            world
                .reasons()
                .iter()
                .any(|one| one.what.contains("logging in as"))
        );
    }
    // What is denied stays so, and what would let everything pass does not.
    let denied = login(&profile, &|asked| {
        asked.deny = vec!["in.example.org".to_owned()];
        asked.learn = true;
    });
    let network = denied.boundary().network;
    assert!(!network.deny.is_empty() && network.learn.is_none());
}

#[test]
fn a_file_is_known_to_be_read_as_it_is() {
    let text = format!("{LOGIN}[files]\nread = ['~/notes']\n");
    let rules = world().profile("p", &text).with("p").rules();
    let workspace = Path::new("/home/ann/src/app");
    for (file, is_shown) in [
        ("/home/ann/.agent/auth.json", false),
        ("/home/ann/notes/auth.json", true),
        ("/home/ann/src/app/auth.json", true),
        ("/usr/share/auth.json", true),
        ("/srv/auth.json", false),
    ] {
        assert_eq!(
            rules.shows_as_it_is(Path::new(file), workspace),
            is_shown,
            "{file}"
        );
    }
}

#[test]
fn logins_that_contradict_each_other_let_nothing_start() {
    for (from, to, said) in [
        (
            "login = \"agent\", field = \"tokens.a",
            "login = \"none\", field = \"tokens.a",
            "no [login.none]",
        ),
        ("tokens.refresh", "tokens.access", "same field"),
        (
            "[credential.agent]",
            "[login.other]\nfile = '~/.agent/auth.json'\n[credential.agent]",
            "of the same file",
        ),
    ] {
        nothing_starts(&LOGIN.replace(from, to), said);
    }
    // Atoll renews logins alone: settings it never writes.
    let of_settings = |line: &str| match line.split(' ').next() {
        Some("keep" | "issue") => String::new(),
        Some("claims") => "secrets = []\n".to_owned(),
        _ => format!("{line}\n"),
    };
    let settings: String = LOGIN.lines().map(of_settings).collect();
    let field = "field = \"tokens.access\"";
    let renew = "renew = { token = 'https://api.example.com/oauth/token', client = 'c', \
                 refresh = 'tokens.refresh' }";
    nothing_starts(
        &settings.replace(field, &format!("{field}, {renew}")),
        "what is renewed is in a login file",
    );
}

/// Checks that no run starts with this profile, for this reason.
fn nothing_starts(profile: &str, said: &str) {
    let world = world().profile("p", profile).with("p");
    let facts = Facts {
        now: crate::tests::now(),
        mode: atoll_model::Mode::Full,
        host: &world.host,
        environment: &world.environment,
        placeholders: &[],
        labels: None,
        living: None,
        changes: None,
    };
    let Verdict::Deny(reasons) = decide(&world.rules(), &world.call, &facts) else {
        panic!("{said}");
    };
    assert!(
        reasons.iter().any(|one| one.why.contains(said)),
        "{said}: {reasons:?}"
    );
}

#[test]
fn what_is_no_login_is_told() {
    for (from, to, said) in [
        ("file = \"~/.agent/auth.json\"\n", "", "needs `file`"),
        ("~/.agent/auth.json", "auth.json", "absolute"),
        ("\"*.expires\"", "\"a..b\"", "a field is"),
        (
            "claims = [\"email\"]",
            "claims = [\"\"]",
            "no name of a claim",
        ),
        ("keep =", "kept =", "keep"),
        ("tokens.access\"", "tokens.*\"", "many fields"),
        (", field = \"tokens.access\"", "", "needs `field`"),
        (
            "login = \"agent\", field = \"tokens.access\"",
            "environment = \"A\", field = \"a\"",
            "it is of a `login`",
        ),
        (
            "login = \"agent\", field = \"tokens.refresh\"",
            "environment = \"TOKEN\"",
            "`refresh` is for what renews",
        ),
        ("[login.agent]", "[login.\"a b\"]", "letters, digits"),
    ] {
        let text = LOGIN.replacen(from, to, 1);
        assert_ne!(text, LOGIN, "{from}");
        let problems = check(text.as_bytes(), "p.toml");
        let told = problems
            .iter()
            .map(|one| format!("{} {:?}\n", one.what, one.hint))
            .collect::<String>();
        assert!(told.contains(said), "{said}: {told}");
    }
    let alone = "[login.agent]\nfile = '~/.agent/auth.json'\n";
    for world in [world().project(alone), world().organisation(alone)] {
        let told = world.error();
        assert!(told.contains("login"), "{told}");
    }
}

#[test]
fn how_a_login_is_renewed_is_read_and_shown_as_it_is_written() {
    let renew = "renew = { token = \"https://login.example.com/oauth/token\", client = \"a client\", form = \"json\", \
                 scope = [\"one\"], refresh = \"tokens.refresh\", expires = \"tokens.expires\", noted = \"last\" }";
    let field = "field = \"tokens.access\"";
    let with = |renew: &str| LOGIN.replacen(field, &format!("{field}, {renew}"), 1);
    let rules = world().profile("p", &with(renew)).with("p").rules();
    let shown = rules.show();
    assert!(shown.contains(renew), "{shown}");
    let credential = rules.credentials().next().unwrap();
    let CredentialSource::Login(source) = &credential.source else {
        panic!("{credential:?}");
    };
    let by = rules.renewed_by(source).unwrap();
    assert_eq!(by.as_str(), "renewal");
    for (wrong, said) in [
        (
            with("renew = { client = \"a\" }"),
            "needs `token`, `client` and `refresh`",
        ),
        (
            with(&renew.replace("https:", "http:")),
            "begins with https://",
        ),
        (
            with(&renew.replace("\"json\"", "\"xml\"")),
            "no way in which a token is asked for",
        ),
        (
            with(&renew.replace("tokens.expires", "*.expires")),
            "many fields",
        ),
        (with(&renew.replace("noted", "notes")), "notes"),
        (
            with(&renew.replace("form =", "published = \"a\", published-sent = true, form =")),
            "leave one of both out",
        ),
        (
            LOGIN.replace(
                "field = \"tokens.refresh\"",
                &format!("field = \"tokens.refresh\", {renew}"),
            ),
            "not for what it is renewed by",
        ),
        (
            with(renew).replacen(
                "place = { header = \"authorization\", form = \"Bearer {}\" }",
                "place = { body = \"token\" }",
                1,
            ),
            "a login that is renewed",
        ),
    ] {
        let problems = check(wrong.as_bytes(), "p.toml");
        let told = problems.iter().any(|one| one.what.contains(said));
        assert!(told, "{said}: {problems:?}");
    }
    for published in ["published = \"a-secret\"", "published-sent = true"] {
        let renew = renew.replace("form =", &format!("{published}, form ="));
        let shown = world().profile("p", &with(&renew)).with("p").rules().show();
        assert!(shown.contains(&renew), "{shown}");
    }
    let other = with(&renew.replace("tokens.refresh", "tokens.other"));
    let rules = world().profile("p", &other).with("p").rules();
    let refused = rules.login_refusals();
    assert!(
        refused
            .iter()
            .any(|(_, why, _)| why.contains("of the `refresh` field")),
        "{refused:?}"
    );
}
