use super::*;

/// Compares with a golden file. Run with `ATOLL_UPDATE_GOLDEN=1` to write the files anew, then read
/// the diff.
fn golden(name: &str, text: &str) {
    let path = format!(
        "{}/tests/golden/{name}",
        std::env::var("CARGO_MANIFEST_DIR").unwrap()
    );
    if std::env::var_os("ATOLL_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{path}");
}

/// Replaces the digest, which changes with every byte of every profile, comments too.
fn without_digest(text: &str, rules: &Rules) -> String {
    text.replace(rules.digest(), "sha256:…")
}

#[test]
fn shipped_profiles_show_as_they_did() {
    for shipped in crate::shipped::ALL {
        let world = world().with(shipped.name);
        let rules = world.rules();
        golden(
            &format!("{}.txt", shipped.name),
            &without_digest(&rules.show(), &rules),
        );
        let json = serde_json::to_string_pretty(&rules.show_json()).unwrap() + "\n";
        golden(
            &format!("{}.json", shipped.name),
            &without_digest(&json, &rules),
        );
        let told = world.notices();
        match shipped.name {
            // It is chosen by name alone, and says what it opens.
            "browser" => assert!(told.contains("more of the kernel"), "{told}"),
            name => assert_eq!(told, "", "{name}"),
        }
    }
}

#[test]
fn most_connections_are_shown_with_a_network() {
    let shown = |network: &str| {
        let rules = world().profile("p", network).with("p").rules();
        (rules.show(), rules.show_json()["rules"]["limits"].clone())
    };
    let (text, limits) = shown("network = { allow = [\"a.example\"] }");
    assert!(
        text.contains("# connections at once: 1024; built in\n"),
        "{text}"
    );
    let told = serde_json::json!({"key": "connections", "value": 1024, "from": "built in"});
    let told_of = |limits: &serde_json::Value| limits.as_array().unwrap().contains(&told);
    assert!(told_of(&limits), "{limits:#}");
    // The control: nothing connects where there is none.
    let (text, limits) = shown("network = \"none\"");
    assert!(
        !text.contains("connections at once") && !told_of(&limits),
        "{text}"
    );
}

#[test]
fn what_is_shown_can_be_pasted_into_a_profile() {
    let of_mine = r#"
extends = ["permissive"]
commands = ['x"y']
workspace = "live"
home.keep-caches = true
home.layer = ["a b"]
home.keep = ["c d"]
files.read = ["~/notes", "/srv/x"]
network = { allow = ["a.example", "*.b.example:22,8000-8080", "[2001:db8::/32]:*"], deny = ["*:25"] }
environment.set = { A = 't\ "', B = "l\nb" }
limits = { memory = 5234567, cpu = 1.5, idle = "1h30m500ms", disk = "1500K" }
programs.execute = ["/usr/bin", "~/bin"]
dangerous.unenforced-limits = true
"#;
    let world = world().profile("mine", of_mine);
    let names = crate::shipped::ALL.iter().map(|shipped| shipped.name);
    for name in names.chain(["mine"]) {
        let shown = world.clone().with(name).rules();
        let text = shown.show();
        assert_eq!(check(text.as_bytes(), "pasted.toml"), [], "{text}");
        let pasted = world
            .clone()
            .profile("pasted", &text)
            .with("pasted")
            .rules();
        let in_force = |rules: &Rules| {
            let mut told = rules.show_json()["rules"].clone();
            told.as_object_mut().unwrap().remove("profile");
            for row in told.as_object_mut().unwrap().values_mut() {
                for one in row.as_array_mut().unwrap() {
                    one.as_object_mut().unwrap().remove("from");
                }
                let rows = row.as_array_mut().unwrap();
                // Naming again what is passed anyway changes nothing.
                let mut seen = Vec::new();
                rows.retain(|one| {
                    !seen.contains(one) && {
                        seen.push(one.clone());
                        true
                    }
                });
            }
            told
        };
        assert_eq!(in_force(&pasted), in_force(&shown), "{text}");
        assert_eq!(pasted.description, shown.description);
        let commands = |rules: &Rules| -> Vec<String> {
            rules.commands.iter().map(|one| one.value.clone()).collect()
        };
        assert_eq!(commands(&pasted), commands(&shown));
        assert_eq!(pasted.keep_caches.value, shown.keep_caches.value);
    }
}

#[test]
fn comments_of_a_shown_profile_stay_comments() {
    let mut world = world();
    world.requested.read_only_dirs = vec!["/proc/x\n[dangerous]\nunenforced-limits = true".into()];
    let text = world.rules().show();
    assert!(text.contains("refused"), "{text}");
    assert!(!text.contains("\nunenforced-limits = true"), "{text}");
    assert_eq!(check(text.as_bytes(), "pasted.toml"), [], "{text}");
}

#[test]
fn every_layer_shows_where_a_value_comes_from() {
    let mut world = world()
        .profile(
            "p",
            "extends=['rust']\nworkspace='live'\nfiles.read=['/srv/data']\n\
                       [environment]\nset={A='1'}\n[programs]\nexecute=['/usr/bin']",
        )
        .with("p")
        .project("limits.processes = 100\nlimits.memory = '15G'")
        .organisation(
            "deny.home-read=['.cargo/git']\ndeny.environment=['AWS_*']\n\
                       deny.files=['/srv/other']\nlimits.cpu=2\nrequire.workspace='copy-on-write'",
        );
    world.requested.read_only_dirs = vec!["/home".into()];
    world.requested.environment = vec!["CI".into()];
    let rules = world.rules();
    golden("layers.txt", &without_digest(&rules.show(), &rules));
}

#[test]
fn the_table_of_commands_says_what_the_files_say() {
    for (summary, shipped) in list(&NoProfiles).unwrap().iter().zip(crate::shipped::ALL) {
        assert_eq!(summary.name, shipped.name);
        assert_eq!(summary.commands, shipped.commands, "{}", shipped.name);
        assert!(!summary.description.is_empty(), "{}", shipped.name);
        assert_eq!(summary.problems, [], "{}", shipped.name);
    }
}

#[test]
fn lists_hold_the_users_profiles_too() {
    let profiles = world()
        .profile("mine", "description = 'My own'\ncommands = ['make']")
        .profile("rust", "description = 'My Rust'")
        .profile("broken", "x")
        .profile("not a name", "")
        .profiles;
    let summaries = list(&profiles).unwrap();
    let by_name = |name: &str| summaries.iter().find(|one| one.name == name).unwrap();
    assert_eq!(by_name("mine").commands, ["make"]);
    assert_eq!(by_name("rust").description, "My Rust");
    assert_eq!(by_name("rust").file, "user/rust.toml");
    assert_eq!(by_name("broken").problems.len(), 1);
    assert_eq!(summaries.len(), crate::shipped::ALL.len() + 2);
}

#[test]
fn no_shipped_profile_shows_secrets_or_weakens() {
    const SECRETS: [&str; 17] = [
        ".ssh",
        ".aws",
        ".gnupg",
        ".netrc",
        ".kube",
        ".docker",
        ".npmrc",
        ".pypirc",
        ".config/gcloud",
        ".config/gh",
        ".cargo/credentials.toml",
        ".git-credentials",
        ".local/share/keyrings",
        ".pki",
        ".password-store",
        ".mozilla",
        ".bash_history",
    ];
    for shipped in crate::shipped::ALL {
        let boundary = world().with(shipped.name).boundary();
        assert!(!boundary.limits.dangerous_unenforced_limits);
        assert!(!boundary.terminal.clipboard, "{}", shipped.name);
        for view in &boundary.views {
            for secret in SECRETS {
                let secret = host().home.join(secret);
                assert!(
                    !crate::places::overlap(&secret, &view.inside),
                    "{}: {}",
                    shipped.name,
                    view.inside.display()
                );
            }
        }
    }
}

#[test]
fn agents_have_their_configuration_in_a_layer() {
    use atoll_model::{Access, Keep, Layering};
    for (agent, place) in [
        ("codex", ".codex"),
        ("claude", ".claude"),
        ("claude", ".claude.json"),
        ("opencode", ".config/opencode"),
        ("opencode", ".local/share/opencode"),
        ("gemini", ".gemini"),
        ("openclaw", ".openclaw"),
    ] {
        let boundary = world().command(agent).boundary();
        let place = host().home.join(place);
        let view = boundary.views.iter().find(|view| view.inside == place);
        // Of a single file there is a copy, which is the run's, and OpenClaw has keys and
        // history in one.
        let keep = match place.ends_with(".claude.json") || place.ends_with(".openclaw") {
            true => Keep::Run,
            false => Keep::Profile,
        };
        let layer = Access::Layer(Layering { keep });
        assert_eq!(view.map(|view| view.access), Some(layer), "{agent}");
        assert!(boundary.terminal.queries && boundary.terminal.title);
    }
}
