use super::*;

#[test]
fn the_profile_is_chosen_by_the_first_to_name_one() {
    let project = "profile = 'node'";
    let mine = "commands = ['make', 'cargo']";
    for (what, world, chosen, from) in [
        ("nothing", world(), "default", "built in"),
        (
            "a path",
            world().command("/home/ann/.cargo/bin/cargo"),
            "rust",
            "shipped/rust.toml:2",
        ),
        (
            "agent",
            world().command("codex"),
            "codex",
            "shipped/codex.toml:3",
        ),
        (
            "config",
            world().config("\ndefault-profile = 'strict'"),
            "strict",
            "user/config.toml:2",
        ),
        (
            "command over config",
            world().command("uv").config("default-profile = 'strict'"),
            "python",
            "shipped/python.toml:2",
        ),
        (
            "a user's profile over a shipped one",
            world().command("cargo").profile("mine", mine),
            "mine",
            "user/mine.toml:1",
        ),
        (
            "project over command",
            world().command("cargo").project(project),
            "node",
            "/home/ann/src/app/atoll.toml:1",
        ),
        (
            "an untrusted project says nothing",
            world().command("cargo").untrusted_project(project),
            "rust",
            "shipped/rust.toml:2",
        ),
        (
            "option over project",
            world().command("cargo").project(project).with("strict"),
            "strict",
            "--profile",
        ),
    ] {
        let rules = world.rules();
        assert_eq!(rules.profile(), chosen, "{what}");
        assert_eq!(rules.profile.origin.to_string(), from, "{what}");
    }
}

#[test]
fn a_file_can_be_a_profile() {
    let mut world = world().command("cargo");
    let file = SourceFile::new(
        "/x/ci.toml",
        b"extends=['python']\nterminal.title=true".as_slice(),
    );
    world.requested.profile = Some(RequestedProfile::File(file));
    assert_eq!(world.boundary().profile, "ci");
    assert!(world.boundary().terminal.title);
    assert!(world.views().contains(&"/home/ann/.pyenv".to_owned()));
}

#[test]
fn unknown_profiles_are_refused_with_the_nearest_name() {
    for (world, holds) in [
        (world().with("codx"), "did you mean \"codex\"?"),
        (
            world().with("mine").profile("mine2", ""),
            "did you mean \"mine2\"?",
        ),
        (world().with("../../etc/x"), "there is no profile"),
        (world().with(""), "there is no profile"),
        (
            world().with("p").profile("p", "\nextends=['rusty']"),
            "(user/p.toml:2); did you mean \"rust\"?",
        ),
        (world().project("profile='nod'"), "did you mean \"node\"?"),
        (
            world().config("default-profile='no-such'"),
            "user/config.toml:1",
        ),
    ] {
        let error = world.error();
        assert!(error.contains(holds), "{error}");
        assert!(
            error.contains("the profiles are") && error.contains("openclaw"),
            "{error}"
        );
    }
}

#[test]
fn circles_are_errors_and_diamonds_are_not() {
    let circle = world()
        .profile("a", "extends = ['b']")
        .profile("b", "extends = ['c']")
        .profile("c", "extends = ['a']")
        .with("a")
        .error();
    assert!(circle.contains("a → b → c → a"), "{circle}");
    assert!(circle.contains("user/c.toml:1"), "{circle}");
    let diamond = world()
        .profile("a", "extends = ['b', 'c']")
        .profile("b", "extends = ['d']")
        .profile("c", "extends = ['d']")
        .profile("d", "terminal.title = true")
        .with("a");
    assert_eq!(diamond.rules().extended, ["d", "b", "c"]);
    assert!(diamond.boundary().terminal.title);
}

#[test]
fn a_users_profile_can_stand_in_place_of_the_shipped_one_and_extend_it() {
    let world = world()
        .profile("rust", "extends = ['rust']\n[home]\nread = ['mine']")
        .command("codex");
    let views = world.views();
    assert!(views.contains(&"/home/ann/mine".to_owned()), "{views:?}");
    assert!(views.contains(&"/home/ann/.rustup".to_owned()), "{views:?}");
    assert_eq!(world.rules().extended, ["rust", "rust", "python", "node"]);
}

#[test]
fn chains_have_an_end() {
    let mut long = world().with("p0");
    for number in 0..40 {
        long = long.profile(
            &format!("p{number}"),
            &format!("extends=['p{}']", number + 1),
        );
    }
    let error = long.profile("p40", "").error();
    assert!(error.contains("more than 32 others"), "{error}");
}

#[test]
fn a_broken_profile_denies_rather_than_falling_back() {
    for world in [
        world()
            .profile("mine", "commands = ['make'")
            .command("make"),
        world().profile("mine", "nonsense = 1").with("mine"),
        world().config("nonsense = 1"),
        world().organisation("nonsense = 1"),
        world().project("nonsense = 1"),
    ] {
        assert!(matches!(world.compile(), Err(ProfileError::Invalid(_))));
    }
    // What nobody has trusted cannot stop anything either.
    assert!(world().untrusted_project("nonsense = ").compile().is_ok());
}

#[test]
fn a_broken_profile_stops_only_what_it_may_be_meant_for() {
    for (text, command, stops) in [
        ("nonsense = 1", "ls", false),
        ("commands = ['make'\nfalse", "ls", false),
        ("commands = ['make'\n", "cmake", false),
        ("commands = ['make'", "make", true),
        ("commands = [make]", "make", true),
        (
            "commands = [\"\"\"\nmake\"\"\"]\nnonsense = 1",
            "make",
            true,
        ),
        ("commands = [\"m\\u0061ke\"]\nnonsense = 1", "make", true),
        ("commands = ['make']\nnonsense = 1", "/usr/bin/make", true),
        ("commands = ['make']\nnonsense = 1", "make.sh", false),
    ] {
        let world = world().profile("mine", text).command(command);
        match world.compile() {
            Err(ProfileError::Invalid(_)) if stops => {}
            Ok(rules) if !stops => {
                let notices = rules.notices();
                assert_eq!(notices.len(), 1, "{text} {command}");
                let told = notices[0].to_string();
                assert!(
                    told.contains("mine") && told.contains("user/mine.toml:"),
                    "{told}"
                );
            }
            other => panic!("{text} {command}: {other:?}"),
        }
    }
    // What stands in place of a shipped profile is not passed over for it.
    let shadow = world().profile("rust", "nonsense = 1").command("cargo");
    assert!(matches!(shadow.compile(), Err(ProfileError::Invalid(_))));
    // Another profile is chosen by name: nobody looks at the broken one.
    let named = world().profile("mine", "x").with("rust").command("make");
    assert_eq!(named.rules().notices(), []);
}

struct Unreadable;

impl ProfileSource for Unreadable {
    fn names(&self) -> Result<Vec<String>, String> {
        Err("permission denied".to_owned())
    }

    fn lookup(&self, _: &str) -> Result<Option<SourceFile<'_>>, String> {
        Err("permission denied".to_owned())
    }
}

#[test]
fn profiles_that_cannot_be_read_deny() {
    let trust = TrustList::default();
    let sources = Sources {
        organisation: None,
        user_config: None,
        user_profiles: &Unreadable,
        project: None,
        trust: &trust,
        policies: PolicySources::default(),
    };
    for profile in [None, Some(RequestedProfile::Named("rust".to_owned()))] {
        let requested = Requested {
            profile,
            ..Requested::default()
        };
        let result = compile(&sources, &requested, OsStr::new("ls"), &host());
        assert!(matches!(result, Err(ProfileError::Unreadable { .. })));
    }
}
