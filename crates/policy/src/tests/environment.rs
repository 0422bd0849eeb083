use super::*;

/// A variable, the profile's `pass`, and whether the variable arrives.
#[test]
fn variables_are_passed_by_name() {
    for (name, pass, arrives) in [
        ("PATH", "", true),
        ("TERM", "", true),
        ("LANG", "", true),
        ("LC_ALL", "", true),
        ("LC_TIME", "", true),
        ("TZ", "", true),
        ("USER", "", true),
        ("EDITOR", "", false),
        ("LANGUAGE", "", false),
        ("NPM_TOKEN", "", false),
        ("RUST_LOG", "'RUST_LOG'", true),
        ("RUST_LOG2", "'RUST_LOG'", false),
        ("rust_log", "'RUST_LOG'", false),
        ("CARGO_HOME", "'CARGO_*'", true),
        ("CARGO_", "'CARGO_*'", true),
        ("CARGO", "'CARGO_*'", false),
        ("X_FLAGS", "'*_FLAGS'", true),
        ("X_FLAGS_Y", "'*_FLAGS'", false),
        ("A_x_Z", "'A_*_Z'", true),
        ("A_Z", "'A_*_Z'", false),
        // Wildcards do not name what looks like a secret; its exact name does.
        ("CARGO_REGISTRY_TOKEN", "'CARGO_*'", false),
        ("CARGO_REGISTRIES_X_TOKEN", "'CARGO_*'", false),
        (
            "CARGO_REGISTRY_TOKEN",
            "'CARGO_*', 'CARGO_REGISTRY_TOKEN'",
            true,
        ),
        ("NPM_TOKEN", "'NPM_*'", false),
        ("NPM_TOKEN", "'*_TOKEN'", false),
        ("NPM_TOKEN", "'NPM_TOKEN'", true),
        ("npm_config__authToken", "'npm_*'", false),
        ("npm_config__auth", "'npm_*'", false),
        ("MY_SECRET", "'MY_*'", false),
        ("MY_SECRET_FILE", "'MY_*'", false),
        ("MY_PASSWORD", "'MY_*'", false),
        ("OPENAI_API_KEY", "'OPENAI_*'", false),
        ("OPENAI_APIKEY", "'OPENAI_*'", false),
        ("GITHUB_PAT", "'GITHUB_*'", false),
        ("DB_PASS", "'DB_*'", false),
        ("SENTRY_DSN", "'SENTRY_*'", false),
        ("AWS_REGION", "'AWS_*'", false),
        ("AWS_REGION", "'AWS_REGION'", true),
        ("SSH_AUTH_SOCK", "'SSH_*'", false),
        ("SSH_AUTH_SOCK", "'SSH_AUTH_SOCK'", true),
        ("DBUS_SESSION_BUS_ADDRESS", "'DBUS_*'", false),
        ("DISPLAY", "'DIS*'", false),
        ("WAYLAND_DISPLAY", "'WAYLAND_*'", false),
        ("XAUTHORITY", "'X*'", false),
        ("DOCKER_HOST", "'DOCKER_*'", false),
        ("GPG_AGENT_INFO", "'GPG_*'", false),
        ("XDG_RUNTIME_DIR", "'XDG_*'", false),
        ("XDG_DATA_HOME", "'XDG_*'", true),
        ("LD_PRELOAD", "'LD_*'", false),
        ("LD_PRELOAD", "'LD_PRELOAD'", true),
        ("NODE_OPTIONS", "'NODE_*'", false),
        ("BASH_ENV", "'BASH_*'", false),
        ("BASH_FUNC_ls%%", "'BASH_*'", false),
        ("GIT_SSH_COMMAND", "'GIT_*'", false),
        ("OLDPWD", "'OLD*'", true),
    ] {
        let world = world()
            .profile("p", &format!("environment.pass = [{pass}]"))
            .with("p")
            .variable(name, "value");
        let got = world.value(name);
        assert_eq!(
            got.as_deref() == Some("value"),
            arrives,
            "{name} by [{pass}]: {got:?}"
        );
    }
}

#[test]
fn root_inside_finds_the_programs_of_root() {
    for (path, expected) in [
        ("/usr/bin", "/usr/bin:/usr/local/sbin:/usr/sbin:/sbin"),
        (
            "/sbin:/usr/sbin:/bin",
            "/sbin:/usr/sbin:/bin:/usr/local/sbin",
        ),
        ("", ""),
    ] {
        let mut world = world().variable("PATH", path);
        assert_eq!(world.value("PATH").as_deref(), Some(path));
        world.requested.root = true;
        assert_eq!(world.value("PATH").as_deref(), Some(expected));
    }
    let mut without = world();
    without.requested.root = true;
    assert_eq!(without.value("PATH"), None);
}

#[test]
fn atolls_own_variables_come_from_atoll_alone() {
    let world = world()
        .profile("p", "environment.pass = ['A*']")
        .with("p")
        .variable("ATOLL_RUN", "forged")
        .variable("ATOLL_STATE", "forged");
    assert_eq!(
        world.value("ATOLL_RUN").as_deref(),
        Some("261121-093012-k7qd")
    );
    assert_eq!(world.value("ATOLL_STATE"), None);
    for option in ["ATOLL_RUN", "ATOLL_RUN=x", "=x", "", "A B=x", "A*"] {
        let mut world = world.clone();
        world.requested.environment = vec![option.into()];
        let error = world.error();
        assert!(error.starts_with("--env: "), "{option}: {error}");
    }
}

#[test]
fn the_command_line_passes_and_sets() {
    let mut world = world()
        .profile(
            "p",
            "environment.set = { A = 'profile', B = 2, C = 'profile' }",
        )
        .with("p")
        .variable("GITHUB_TOKEN", "t")
        .variable("A", "caller")
        .variable("HOME", "/elsewhere");
    world.requested.environment = vec![
        "GITHUB_TOKEN".into(),
        "A".into(),
        "C=x=y".into(),
        "NOT_SET_OUTSIDE".into(),
    ];
    for (name, value) in [
        ("GITHUB_TOKEN", Some("t")),
        ("A", Some("caller")),
        ("B", Some("2")),
        ("C", Some("x=y")),
        ("NOT_SET_OUTSIDE", None),
        ("HOME", Some("/home/ann")),
    ] {
        assert_eq!(world.value(name).as_deref(), value, "{name}");
    }
}

#[test]
fn each_name_is_given_once_and_the_first_value_counts() {
    let world = world()
        .variable("PATH", "/first")
        .variable("PATH", "/second");
    assert_eq!(world.value("PATH").as_deref(), Some("/first"));
    let names: Vec<OsString> = world
        .boundary()
        .environment
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let mut once = names.clone();
    once.sort();
    once.dedup();
    assert_eq!(names, once);
}

#[test]
fn values_need_not_be_utf_8_and_names_must() {
    use std::os::unix::ffi::OsStringExt as _;
    let mut world = world();
    let value = OsString::from_vec(b"/bin:\xff".to_vec());
    world.environment.push(("PATH".into(), value.clone()));
    world
        .environment
        .push((OsString::from_vec(b"LC_\xff".to_vec()), "x".into()));
    let environment = world.boundary().environment;
    assert!(environment.contains(&("PATH".into(), value)));
    assert_eq!(environment.len(), 3, "{environment:?}");
}

#[test]
fn a_secret_that_a_profile_passes_is_told() {
    let world = world()
        .profile("p", "environment.pass = ['NPM_TOKEN']")
        .with("p");
    assert_eq!(world.notices(), "");
    let told = world.variable("NPM_TOKEN", "t").notices();
    assert!(
        told.contains("NPM_TOKEN is passed on") && told.contains("user/p.toml:1"),
        "{told}"
    );
}

#[test]
fn a_secret_that_the_command_line_passes_is_told() {
    let mut world = world()
        .variable("NPM_TOKEN", "t")
        .variable("RUST_LOG", "debug");
    world.requested.environment = vec!["RUST_LOG".into(), "NPM_TOKEN".into(), "MY_KEY=1".into()];
    let told = world.notices();
    assert_eq!(
        told,
        "NPM_TOKEN is passed on, and it looks like a secret: the program can read and leak it \
         (--env)"
    );
}

#[test]
fn what_the_command_line_names_and_nobody_has_set_is_told() {
    let mut world = world()
        .profile(
            "p",
            "environment = { pass = ['RUST_LOG'], set = { B = 'b' } }",
        )
        .with("p")
        .variable("CI", "1");
    world.requested.environment = vec!["CI".into(), "HOME".into(), "A=".into()];
    assert_eq!(world.notices(), "");
    world.requested.environment = vec!["CII".into(), "B".into()];
    let told = "CII is not set, so the program does not get it (--env)\n\
        B is not set, so the program does not get it (--env)";
    assert_eq!(world.notices(), told);
    assert_eq!(world.value("B"), None);
}

#[test]
fn wildcards_on_the_command_line_lead_to_profiles() {
    let mut world = world();
    world.requested.environment = vec!["CI_*".into()];
    let error = world.error();
    assert!(error.contains("[environment] pass = [\"CI_*\"]"), "{error}");
}

/// The network rules of a profile, the variables that it sets, and those that name the certificate
/// authority to trust.
#[test]
fn programs_are_told_whom_to_trust_where_their_network_is_looked_into() {
    const BUNDLE: &str = "/run/atoll/trust/ca-certificates.crt";
    for (profile, expected) in [
        ("", None),
        ("network.allow = ['example.com:22']", None),
        ("network.deny = ['example.com']", None),
        ("network.allow = ['example.com']", Some(BUNDLE)),
        ("network.allow = ['*:*']", Some(BUNDLE)),
        (
            "network.allow = ['example.com']\nenvironment.set = { SSL_CERT_FILE = '/own' }",
            Some("/own"),
        ),
        (
            "network.allow = ['example.com']\nenvironment.pass = ['SSL_CERT_FILE']",
            Some("/of/host"),
        ),
    ] {
        let world = world()
            .profile("p", profile)
            .with("p")
            .variable("SSL_CERT_FILE", "/of/host");
        let found = world.value("SSL_CERT_FILE");
        assert_eq!(found.as_deref(), expected, "{profile}");
    }
    let world = world()
        .profile("p", "network.allow = ['example.com']")
        .with("p");
    for (name, file) in [
        ("NODE_EXTRA_CA_CERTS", "authority.pem"),
        ("GIT_SSL_CAINFO", "ca-certificates.crt"),
        ("REQUESTS_CA_BUNDLE", "ca-certificates.crt"),
    ] {
        let expected = format!("/run/atoll/trust/{file}");
        assert_eq!(world.value(name), Some(expected), "{name}");
    }
    assert_eq!(
        world.value("JAVA_TOOL_OPTIONS"),
        None,
        "a full sandbox replaces its stores"
    );
}
