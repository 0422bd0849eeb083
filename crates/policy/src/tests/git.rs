//! Git and SSH: repositories by name, passwords that git finds, keys that sign outside the sandbox.

use atoll_model::network::{Network, Placeholder, Request, Scheme, Target};

use super::*;

fn granted(world: &World, mode: atoll_model::Mode) -> Boundary {
    let placeholders = [Placeholder {
        name: "hub".parse().unwrap(),
        part: atoll_model::network::Part::Whole,
        text: "stands".to_owned(),
    }];
    let facts = Facts {
        now: crate::tests::now(),
        mode,
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

/// Returns git's settings, as it reads them.
fn told(boundary: &Boundary) -> Vec<(String, String)> {
    let variable = |name: &str| {
        let mut all = boundary.environment.iter();
        let found = all.find(|(one, _)| one == name)?;
        Some(found.1.to_str().unwrap().to_owned())
    };
    let count = variable("GIT_CONFIG_COUNT").map_or(0, |count| count.parse().unwrap());
    let one = |at: usize| {
        let key = variable(&format!("GIT_CONFIG_KEY_{at}")).unwrap();
        (key, variable(&format!("GIT_CONFIG_VALUE_{at}")).unwrap())
    };
    (0..count).map(one).collect()
}

fn allows(network: &Network, text: &str) -> bool {
    let (method, url) = text.split_once(' ').unwrap();
    let rest = url.strip_prefix("https://").unwrap();
    let (host, target) = rest.split_at(rest.find('/').unwrap());
    let (host, target) = (host.parse().unwrap(), Target::parse(target).unwrap());
    let request = Request {
        host: &host,
        port: 443,
        scheme: Scheme::Https,
        method,
        target: &target,
    };
    network.request(&request).is_ok()
}

#[test]
fn a_preset_opens_the_repositories_that_are_named_alone() {
    let read = [
        "GET https://github.com/me/app/info/refs?service=git-upload-pack",
        "GET https://github.com/me/app.git/info/refs?service=git-upload-pack",
        "POST https://github.com/me/app.git/git-upload-pack",
    ];
    let push = [
        "GET https://github.com/me/app.git/info/refs?service=git-receive-pack",
        "POST https://github.com/me/app/git-receive-pack",
    ];
    let never = [
        "GET https://github.com/me/app",
        "GET https://github.com/me/app2/info/refs?service=git-upload-pack",
        "GET https://github.com/me/app/info/refs",
        "DELETE https://github.com/me/app.git/git-receive-pack",
        "POST https://github.com/me/other.git/git-receive-pack",
        "POST https://gitlab.com/me/app.git/git-receive-pack",
    ];
    for (preset, pushes) in [("git-read", false), ("git-push", true)] {
        for name in ["github.com/me/app", "github.com/me/app.git"] {
            let rule = format!("{{ preset = '{preset}', repositories = ['{name}'] }}");
            let world = world().profile("p", &format!("[network]\nallow = [{rule}]"));
            let network = world.with("p").rules().network();
            for text in read {
                assert!(allows(&network, text), "{preset} {text}");
            }
            for text in push {
                assert_eq!(allows(&network, text), pushes, "{preset} {text}");
            }
            for text in never {
                assert!(!allows(&network, text), "{preset} {text}");
            }
        }
    }
    for (rule, holds) in [
        ("{ preset = 'git-push' }", "needs `repositories`"),
        (
            "{ preset = 'npm', repositories = ['a.example/b'] }",
            "git-read",
        ),
        ("{ preset = 'git-push', repositories = [] }", "is empty"),
        (
            "{ preset = 'git-push', repositories = ['a.example'] }",
            "no repository",
        ),
        (
            "{ preset = 'git-push', repositories = ['a.example/*'] }",
            "no repository",
        ),
        (
            "{ preset = 'git-push', repositories = ['a.example/b/'] }",
            "no repository",
        ),
        (
            "{ preset = 'git-push', repositories = ['https://a.example/b'] }",
            "no ",
        ),
        (
            "{ preset = 'git-push', repositories = ['a.example/a/../b'] }",
            "none of a URL",
        ),
    ] {
        let text = format!("[network]\nallow = [{rule}]");
        let error = world().profile("p", &text).with("p").error();
        assert!(error.contains(holds), "{rule}: {error}");
    }
    let text = "[network]\ndeny = [{ preset = 'git-push', repositories = ['a.example/b'] }]";
    let error = world().profile("p", text).with("p").error();
    assert!(error.contains("only allows"), "{error}");
}

const HUB: &str = "[credential.hub]\nsource = { environment = 'HUB_TOKEN' }\nto = 'hub.example'\n";

#[test]
fn git_is_told_where_it_finds_a_password() {
    let helper = |variable: &str, user: &str| {
        format!(
            "!f() {{ if test \"$1\" = get; then {user}printf 'password=%s\\n' \"${variable}\"; fi; }}; f"
        )
    };
    let key = |url: &str, name: &str| format!("credential.{url}.{name}");
    let any = |url: &str| {
        vec![
            (key(url, "username"), "git".to_owned()),
            (key(url, "helper"), String::new()),
            (key(url, "helper"), helper("HUB_TOKEN", "")),
        ]
    };
    let named = vec![
        (key("https://hub.example", "helper"), String::new()),
        (
            key("https://hub.example", "helper"),
            helper("HUB_TOKEN", "printf 'username=%s\\n' 'o'\\''neil'; "),
        ),
    ];
    for (text, expected) in [
        (
            format!("{HUB}place = {{ basic = '*' }}"),
            any("https://hub.example"),
        ),
        (
            format!("{HUB}place = {{ basic = '*' }}").replace("hub.example'", "hub.example:8443'"),
            any("https://hub.example:8443"),
        ),
        (
            format!("{HUB}scheme = 'http'\nplace = {{ basic = '*' }}"),
            any("http://hub.example"),
        ),
        (format!("{HUB}place = {{ basic = \"o'neil\" }}"), named),
        (
            format!("{HUB}place = {{ header = 'authorization' }}"),
            vec![],
        ),
        (
            "[git]\nhttps-for-ssh = ['hub.example']\n".to_owned(),
            [
                "git@hub.example:",
                "ssh://git@hub.example/",
                "ssh://git@hub.example:22/",
            ]
            .map(|form| {
                (
                    "url.https://hub.example/.insteadOf".to_owned(),
                    form.to_owned(),
                )
            })
            .to_vec(),
        ),
    ] {
        let world = world().profile("p", &text).with("p");
        let boundary = granted(&world, atoll_model::Mode::Full);
        assert_eq!(told(&boundary), expected, "{text}");
    }
    // Behind what somebody else tells git, and not where that is denied.
    let text = format!(
        "{HUB}place = {{ basic = '*' }}\n[environment.set]\nGIT_CONFIG_COUNT = '1'\n\
         GIT_CONFIG_KEY_0 = 'a.b'\nGIT_CONFIG_VALUE_0 = 'c'\n"
    );
    let world = world().profile("p", &text).with("p");
    let all = told(&granted(&world, atoll_model::Mode::Full));
    assert_eq!(all[0], ("a.b".to_owned(), "c".to_owned()));
    assert_eq!(all[1..], any("https://hub.example"));
    let denied = format!("{HUB}place = {{ basic = '*' }}");
    let world = super::world().profile("p", &denied).with("p");
    let world = world.organisation("[deny]\nenvironment = ['GIT_*']");
    assert!(told(&granted(&world, atoll_model::Mode::Full)).is_empty());
}

const SSH: &str =
    "[network]\nallow = ['hub.example:22']\n[ssh.hub]\nto = 'hub.example'\nkey = 'agent'\n";

#[test]
fn a_key_is_for_one_host_and_user() {
    let text = format!("{SSH}sign-commits = true\n");
    let world = world().profile("p", &text).with("p");
    let boundary = granted(&world, atoll_model::Mode::Full);
    let [grant] = &boundary.network.ssh[..] else {
        panic!("{:?}", boundary.network);
    };
    assert_eq!(grant.to_string(), "git@hub.example");
    assert!(grant.signs_commits);
    let of_git = [
        ("gpg.format".to_owned(), "ssh".to_owned()),
        (
            "user.signingkey".to_owned(),
            "/run/atoll/ssh/hub.pub".to_owned(),
        ),
    ];
    assert_eq!(told(&boundary), of_git);
    let mut all = boundary.environment.iter();
    let socket = all.find(|(name, _)| name == "SSH_AUTH_SOCK").unwrap();
    assert_eq!(socket.1, "/run/atoll/ssh/agent");
    // Whoever passes the host's own on gets this one.
    let passed = format!("{SSH}[environment]\npass = ['SSH_AUTH_SOCK']\n");
    let world = super::world().profile("p", &passed).with("p");
    let world = world.variable("SSH_AUTH_SOCK", "/run/user/1000/agent");
    let boundary = granted(&world, atoll_model::Mode::Full);
    assert!(boundary.environment.contains(socket));
    for (text, notice) in [
        (SSH.to_owned(), None),
        (
            SSH.replace(":22", ":2222"),
            Some("no rule of [network] allows hub.example:22"),
        ),
        (
            SSH.replace("hub.example:22", "hub.example:443")
                .replace("to = 'hub.example'", "to = 'hub.example:443'"),
            Some("carry = \"tunnel\""),
        ),
    ] {
        let rules = super::world().profile("p", &text).with("p").rules();
        let mut notices = rules.notices().iter().map(|one| one.text.as_str());
        match notice {
            Some(notice) => assert!(notices.any(|one| one.contains(notice)), "{text}"),
            None => assert!(!notices.any(|one| one.contains("ssh")), "{text}"),
        }
    }
}

#[test]
fn what_is_no_key_of_ssh_is_told() {
    let fingerprint = "a".repeat(43);
    for (from, to, holds) in [
        ("to = 'hub.example'\n", "", "needs `to`"),
        ("key = 'agent'\n", "", "needs `key`"),
        ("'hub.example'", "'*'", "no host"),
        ("'hub.example'", "'*.hub.example'", "no host"),
        ("'hub.example'", "'10.0.0.0/8'", "no host"),
        ("'hub.example'", "'hub.example:0'", "no host"),
        ("'hub.example'", "'hub.example:*'", "no host"),
        ("'hub.example'", "'git@hub.example'", "no host"),
        ("'hub.example'", "'host.atoll.internal'", "no host"),
        ("'agent'", "'SHA256:short'", "no key"),
        ("'agent'", "'~/.ssh/id'", "no key"),
        ("'agent'", "{}", "`key` is one of"),
        ("'agent'", "{ file = '/a', vault = 'b' }", "`key` is one of"),
        ("'agent'", "'agent'\nuser = 'a b'", "no user's name"),
        (
            "'agent'",
            "'agent'\nhost-keys = ['ssh-ed25519']",
            "no host's key",
        ),
        ("'agent'", "'agent'\nhost-keys = []", "is empty"),
        ("'agent'", "'agent'\nforward = true", "unknown key"),
    ] {
        let section = SSH.split_once("[ssh.hub]").unwrap().1;
        assert!(section.contains(from), "{from}");
        let text = format!("[ssh.hub]{}", section.replace(from, to));
        let error = world().profile("p", &text).with("p").error();
        assert!(error.contains(holds), "{text}: {error}");
    }
    // What is shown is read as the same.
    for key in [
        "'agent'".to_owned(),
        format!("'SHA256:{fingerprint}'"),
        "{ file = '~/.ssh/id' }".to_owned(),
        "{ vault = 'deploy' }".to_owned(),
    ] {
        let text = SSH.replace("'agent'", &key);
        let rules = world().profile("p", &text).with("p").rules();
        let again = world().profile("p", &rules.show()).with("p").rules();
        let one = |rules: &Rules| {
            let rule = rules.ssh().next().unwrap().clone();
            (rule.source, rule.grant.to_string())
        };
        assert_eq!(one(&rules), one(&again), "{key}");
    }
    for section in [
        "[git]\nhttps-for-ssh = ['a.example']",
        "[ssh.a]\nto = 'a.example'\nkey = 'agent'",
    ] {
        let error = world().project(section).error();
        assert!(error.contains("a profile of your own"), "{error}");
    }
}

#[test]
fn a_key_that_can_be_read_inside_signs_nothing() {
    for (file, is_shown) in [
        ("~/.ssh/id", false),
        ("/home/ann/src/app/id", true),
        ("/usr/share/id", true),
    ] {
        let text = SSH.replace("'agent'", &format!("{{ file = '{file}' }}"));
        let world = world().profile("p", &text).with("p");
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
        let decided = decide(&world.rules(), &world.call, &facts);
        assert_eq!(matches!(decided, Verdict::Deny(_)), is_shown, "{file}");
    }
}

#[test]
fn git_is_led_to_keys_that_reach_a_host_alone() {
    let variable = |text: &str, name: &str| {
        let world = world().profile("p", text).with("p");
        let boundary = granted(&world, atoll_model::Mode::Full);
        boundary.environment.iter().any(|(one, _)| one == name)
    };
    assert!(variable(SSH, "GIT_SSH_COMMAND"));
    for unused in [
        SSH.replace("'hub.example:22'", "'other.example:22'"),
        SSH.replace(
            "'hub.example:22'",
            "{ to = 'hub.example:22', carry = 'requests' }",
        ),
    ] {
        assert!(!variable(&unused, "GIT_SSH_COMMAND"), "{unused}");
        // Commits are signed all the same.
        assert!(variable(&unused, "SSH_AUTH_SOCK"), "{unused}");
    }
}

#[test]
fn a_remote_is_no_repository_and_what_is_meant_is_told() {
    let told = |name: &str| {
        let text =
            format!("[network]\nallow = [{{ preset = 'git-push', repositories = ['{name}'] }}]");
        world().profile("p", &text).with("p").error()
    };
    for remote in [
        "https://github.com/me/project",
        "https://github.com/me/project.git",
        "https://ada:password@github.com/me/project.git/",
        "git@github.com:me/project.git",
        "ssh://git@github.com/me/project",
    ] {
        let error = told(remote);
        assert!(
            error.contains("write \"github.com/me/project\""),
            "{remote}: {error}"
        );
        assert!(!error.contains("password"), "{error}");
    }
    for other in [
        "github.com",
        "github.com/me/*",
        "git@github.com",
        &"a://".repeat(10_000),
    ] {
        let error = told(other);
        assert!(error.contains("is no repository"), "{other}: {error}");
        assert!(!error.contains("write \""), "{error}");
    }
    let error = world()
        .profile("p", "git.https-for-ssh = ['192.0.2.1']")
        .with("p")
        .error();
    assert!(error.contains("remotes by an address stay"), "{error}");
    let error = world()
        .profile("p", "[network]\npresets = ['git-push']")
        .with("p")
        .error();
    assert!(
        error.contains("repositories = [\"github.com/owner/name\"]"),
        "{error}"
    );
    for (registry, name) in [
        ("pypi", "pip"),
        ("pypi.org", "pip"),
        ("npmjs", "npm"),
        ("crates.io", "cargo"),
    ] {
        let text = format!("network.deny = [{{ registry = '{registry}', packages = ['a'] }}]");
        let error = world().profile("p", &text).with("p").error();
        assert!(
            error.contains(&format!("write registry = \"{name}\"")),
            "{error}"
        );
    }
}
