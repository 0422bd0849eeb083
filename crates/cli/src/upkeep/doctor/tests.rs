use std::path::{Path, PathBuf};

use atoll_engine::delegation::Step;
use atoll_engine::doctor::apparmor;
use atoll_engine::doctor::facts::{Facts, Holding, Settings, distribution};
use atoll_engine::doctor::finding::{Finding, Grade, Holds};
use atoll_engine::doctor::findings::{diagnose, mode};
use atoll_engine::doctor::fixes::with_landlock;
use atoll_engine::doctor::known::{KNOWN, Part, known, question};
use atoll_engine::doctor::version::{Version, of_kernel};
use atoll_model::Mode;
use atoll_sandbox::{First, Held, Trial, Unified, forecast};

use super::{show, status};
use crate::arguments::Requirement;
use crate::render::Paint;

fn version(text: &str) -> Version {
    Version::read(text).unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn versions_are_read_as_distributions_write_them() {
    let check = |release: &str, build: &str, signature: Option<&str>, expected: &str| {
        let found = of_kernel(release, build, signature).map(|found| found.to_string());
        assert_eq!(found.as_deref(), Some(expected), "{release} {build}");
    };
    let debian = "#1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1 (2024-02-01)";
    check("6.1.0-18-cloud-amd64", debian, None, "6.1.76");
    check("6.1.0-18-arm64", debian, None, "6.1.76");
    let newer = "#1 SMP PREEMPT_DYNAMIC Debian 6.12.117-1~deb12u1 (2026-11-14)";
    check("6.12.117+deb12-cloud-amd64", newer, None, "6.12.117");
    let ubuntu = "#31-Ubuntu SMP PREEMPT_DYNAMIC Sat Apr 20 00:40:06 UTC 2024";
    check("6.8.0-31-generic", ubuntu, None, "6.8");
    let signature = Some("Ubuntu 6.8.0-31.31-generic 6.8.1\n");
    check("6.8.0-31-generic", ubuntu, signature, "6.8.1");
    check("6.11.4-301.fc41.x86_64", "#1 SMP", None, "6.11.4");
    check("6.12.8-200.fc41.aarch64", "#1 SMP", None, "6.12.8");
    check("6.13.0-rc4", "#1 SMP", None, "6.13-rc4");
    check("6.13.0-0.rc4.36.fc42.x86_64", "#1 SMP", None, "6.13");
    check(
        "5.15.167.4-microsoft-standard-WSL2",
        "#1 SMP",
        None,
        "5.15.167",
    );
    check("6.18.44", "#1 SMP", None, "6.18.44");
    // What is written of another line does not count.
    check("6.6.9", "#1 SMP Debian 6.1.76-1", None, "6.6.9");
    for none in ["", "linux", "6", "x.y", "99999999999999999999.1"] {
        assert_eq!(of_kernel(none, "", None), None, "{none}");
    }
    assert_eq!(version("1.1.5+ds1").to_string(), "1.1.5");
    assert_eq!(version("1.4.0-rc.3").to_string(), "1.4-rc3");
}

#[test]
fn candidates_come_before_their_release() {
    let ordered = ["6.12.99", "6.13.0-rc1", "6.13.0-rc10", "6.13", "6.13.1"];
    for pair in ordered.windows(2) {
        assert!(version(pair[0]) < version(pair[1]), "{pair:?}");
    }
}

#[test]
fn ranges_end_where_an_error_was_mended() {
    let check = |part: Part, text: &str, name: &str, expected: bool| {
        let has = known(part, version(text)).any(|known| known.name == name);
        assert_eq!(has, expected, "{text} {name}");
    };
    let kernel = |text: &str, name: &str, expected| check(Part::Kernel, text, name, expected);
    for (text, expected) in [
        ("3.14.99", false),
        ("5.15.148", true),
        ("5.15.149", false),
        ("6.1.75", true),
        ("6.1.76", false),
        // A line that was not kept up.
        ("6.5.13", true),
        ("6.6.14", true),
        ("6.6.15", false),
        ("6.7.2", true),
        ("6.7.3", false),
        ("6.8.0-rc1", true),
        ("6.8", false),
        ("6.18.44", false),
    ] {
        kernel(text, "CVE-2024-1086", expected);
    }
    for (text, expected) in [("6.0.19", false), ("6.1", true), ("6.1.37", false)] {
        kernel(text, "CVE-2023-3269", expected);
    }
    for (text, expected) in [("5.15.24", true), ("5.15.25", false), ("5.17", false)] {
        kernel(text, "CVE-2022-0847", expected);
    }
    for (text, expected) in [("6.18.27", true), ("6.18.28", false), ("7.0.4", true)] {
        kernel(text, "CVE-2026-43284", expected);
    }
    let leak = "CVE-2024-21626";
    for (text, expected) in [
        ("1.0.0-rc92", false),
        ("1.0.0-rc93", true),
        ("1.1.11", true),
        ("1.1.12", false),
        ("1.2.0", false),
    ] {
        check(Part::Runc, text, leak, expected);
    }
    let masks = "CVE-2025-31133, CVE-2025-52565, CVE-2025-52881";
    for (text, expected) in [
        ("1.1.15", true),
        ("1.2.7", true),
        ("1.2.8", false),
        ("1.3.2", true),
        ("1.3.3", false),
        ("1.4.0-rc.2", true),
        ("1.4.0-rc.3", false),
    ] {
        check(Part::Runc, text, masks, expected);
    }
}

#[test]
fn the_table_of_known_errors_is_sound() {
    for known in &KNOWN {
        assert!(known.name.starts_with("CVE-20"), "{}", known.name);
        assert!(known.since < known.until, "{}", known.name);
        assert!(!known.affects(known.until), "{}", known.name);
        let ordered = known.mended.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(ordered, "{}", known.name);
        for mended in known.mended {
            assert!(*mended < known.until, "{}", known.name);
            assert!(!known.affects(*mended), "{} {mended}", known.name);
        }
    }
}

#[test]
fn the_distribution_is_asked_in_its_own_words() {
    let ubuntu = distribution("NAME=x\nID=ubuntu\nID_LIKE=debian\n");
    assert_eq!(ubuntu, ["ubuntu", "debian"]);
    let rocky = distribution("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n");
    let ask = |words: &[String]| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        question(&words, "CVE-1").unwrap_or_default()
    };
    assert!(ask(&ubuntu).starts_with("pro fix"));
    assert!(ask(&rocky).starts_with("rpm "));
    assert!(ask(&["debian".to_owned()]).starts_with("apt-get changelog"));
    assert_eq!(ask(&["arch".to_owned()]), "");
}

/// Returns the facts of an ordinary user on a host that lacks nothing.
fn whole() -> Facts {
    let groups = Held::Unified(Unified {
        parent: "/cg".into(),
        cpu: true,
        first: First::Nothing,
    });
    Facts {
        kernel: ("6.12.99".to_owned(), Version::read("6.12.99")),
        holding: Ok(Holding {
            landlock: 6,
            is_root: false,
            unmapped: false,
            mode: Ok(Mode::Full),
            trial: Trial::Works,
            limits: forecast(&groups, Mode::Full, false),
            groups,
            delegation: vec![Step::of_root("mkdir /cg/x && true")],
            state: ("/home/x/.local/state/atoll".into(), "ext4".to_owned(), true),
        }),
        launcher: Ok(()),
        settings: Settings::default(),
        modules: Some("capability,landlock,yama,apparmor".to_owned()),
        filters: (true, Some("kill_process errno user_notif".to_owned())),
        uid: 1000,
        program: Some(PathBuf::from("/usr/local/bin/atoll")),
        distribution: vec!["debian".to_owned()],
        programs: vec!["sudo", "modprobe", "update-grub"],
        runtimes: Vec::new(),
        provers: Ok("/usr/local/bin/atoll-prove, with /usr/bin/cvc5".to_owned()),
    }
}

fn changed(change: impl FnOnce(&mut Facts, &mut Holding)) -> Facts {
    let mut facts = whole();
    let Ok(mut holding) = std::mem::replace(&mut facts.holding, Err(String::new())) else {
        panic!("it holds");
    };
    change(&mut facts, &mut holding);
    if facts.holding.as_ref().is_err_and(String::is_empty) {
        facts.holding = Ok(holding);
    }
    facts
}

fn finding(facts: &Facts, name: &str) -> Finding {
    let mut all = diagnose(facts).into_iter();
    all.find(|one| one.name == name).expect(name)
}

fn fenced(facts: &mut Facts, holding: &mut Holding, trial: Trial) {
    let _ = facts;
    holding.mode = Ok(Mode::Fence);
    holding.limits = forecast(&holding.groups, Mode::Fence, false);
    holding.trial = trial;
}

#[test]
fn a_host_that_lacks_nothing_ends_with_0() {
    let facts = whole();
    let findings = diagnose(&facts);
    assert_eq!(mode(&facts, &findings), Some(Mode::Full));
    assert_eq!(status(&findings, Some(Mode::Full), &[]), 0);
    let lacking: Vec<_> = findings
        .iter()
        .filter(|one| one.grade > Grade::Note)
        .collect();
    assert!(lacking.is_empty(), "{lacking:?}");
}

#[test]
fn what_is_missing_comes_with_a_command() {
    let refused = || Trial::NoNamespaces(std::io::ErrorKind::PermissionDenied.into());
    let check = |facts: Facts, name: &str, grade: Grade, expected: &str| {
        let found = finding(&facts, name);
        assert_eq!(found.grade, grade, "{found:?}");
        let fixes: Vec<_> = found.fixes.iter().map(Step::line).collect();
        let all = format!("{}\n{}", found.why.unwrap_or_default(), fixes.join("\n"));
        assert!(all.contains(expected), "{all}");
    };
    let namespaces = "user-namespaces";
    let setting = |set: fn(&mut Settings)| {
        changed(|facts, holding| {
            set(&mut facts.settings);
            fenced(facts, holding, Trial::NoRights);
        })
    };
    let weaker = Grade::Weaker;
    check(
        setting(|settings| settings.max_user_namespaces = Some(0)),
        namespaces,
        weaker,
        "sysctl -w user.max_user_namespaces=15000",
    );
    check(
        setting(|settings| settings.unprivileged_clone = Some(0)),
        namespaces,
        weaker,
        "sysctl -w kernel.unprivileged_userns_clone=1",
    );
    let apparmor = |settings: &mut Settings| settings.apparmor_restricts = Some(1);
    check(
        setting(apparmor),
        namespaces,
        weaker,
        "/usr/local/bin/atoll doctor --apparmor-profile > /etc/apparmor.d/atoll && \
         apparmor_parser -r /etc/apparmor.d/atoll",
    );
    let mut nameless = setting(apparmor);
    nameless.program = Some("/home/x/{a}/atoll".into());
    let fallback = "kernel.apparmor_restrict_unprivileged_userns=0";
    check(nameless, namespaces, weaker, fallback);
    let filtered = changed(|facts, holding| fenced(facts, holding, refused()));
    check(filtered, namespaces, weaker, "as in containers");
    let overlay = changed(|_, holding| holding.trial = Trial::NoOverlay);
    check(overlay, namespaces, Grade::Missing, "modprobe overlay");
    let refused = changed(|facts, _| {
        facts.launcher = Err("EACCES".to_owned());
        facts.settings.memory_programs = Some(2);
    });
    check(refused, "launcher", Grade::Missing, "vm.memfd_noexec=1");
    let covered = changed(|_, holding| holding.trial = Trial::NoProc);
    check(covered, namespaces, Grade::Missing, "covered");
    let without = changed(|facts, _| facts.holding = Err("no Landlock".to_owned()));
    let words = "lsm=landlock,yama,apparmor";
    check(without, "landlock", Grade::Missing, words);
    let old = changed(|_, holding| holding.landlock = 2);
    check(old, "landlock", weaker, "left out: truncation, TCP ports");
    let copied = changed(|_, holding| holding.state.2 = false);
    check(copied, "copy-on-write", weaker, "XDG_STATE_HOME");
    let nowhere = changed(|_, holding| holding.groups = Held::Nowhere("why".to_owned()));
    check(nowhere, "control-groups", weaker, "mkdir /cg/x");
    let ancient = changed(|facts, _| facts.kernel = ("5.14".to_owned(), Version::read("5.14")));
    check(ancient, "kernel", Grade::Missing, "5.15");
}

#[test]
fn security_modules_that_are_there_stay() {
    let check = |before: &str, after: &str| assert_eq!(with_landlock(before), after);
    check("capability,yama,apparmor", "landlock,yama,apparmor");
    check("lockdown,capability,landlock", "landlock,lockdown");
    let mut facts = changed(|facts, _| facts.holding = Err("no Landlock".to_owned()));
    facts.modules = None;
    // Without the names of the others, no command: it would switch them off.
    assert!(finding(&facts, "landlock").fixes.is_empty());
}

#[test]
fn statuses_tell_what_can_be_held() {
    use Requirement::{Fence, Full, Limits};
    let fence = changed(|facts, holding| fenced(facts, holding, Trial::NoRights));
    let nowhere = changed(|_, holding| {
        holding.groups = Held::Nowhere("why".to_owned());
        holding.limits = forecast(&holding.groups, Mode::Full, false);
    });
    let nothing = changed(|_, holding| holding.trial = Trial::NoRights);
    for (facts, required, expected) in [
        (&fence, &[][..], 1),
        (&fence, &[Fence], 0),
        (&fence, &[Full], 1),
        (&fence, &[Limits, Fence], 0),
        (&nowhere, &[], 1),
        (&nowhere, &[Full], 0),
        (&nowhere, &[Full, Limits], 1),
        (&nothing, &[], 3),
        (&nothing, &[Fence], 3),
    ] {
        let findings = diagnose(facts);
        let status = status(&findings, mode(facts, &findings), required);
        assert_eq!(status, expected, "{required:?}");
    }
}

#[test]
fn each_promise_is_told_for_both_modes() {
    let held = |facts: &Facts, name: &str| finding(facts, name).promise;
    let root = changed(|_, holding| holding.is_root = true);
    let (whole, moves) = (whole(), "moved-directories");
    assert_eq!(held(&whole, moves), Some((Holds::Partly, Holds::Whole)));
    assert_eq!(held(&root, moves), Some((Holds::Whole, Holds::Whole)));
    let network = held(&whole, "network");
    assert_eq!(network, Some((Holds::Whole, Holds::Partly)));
    let written = held(&whole, "copy-on-write");
    assert_eq!(written, Some((Holds::Whole, Holds::Not)));
    let old = changed(|_, holding| holding.landlock = 2);
    assert_eq!(held(&old, "landlock"), Some((Holds::Partly, Holds::Not)));
}

#[test]
fn known_errors_are_questions_to_the_distribution() {
    let mut facts = whole();
    facts.kernel = ("6.1.0-17-amd64".to_owned(), Version::read("6.1.69"));
    facts.runtimes = vec![(Part::Runc, "runc", version("1.1.5"))];
    let found = finding(&facts, "CVE-2024-1086");
    assert_eq!(found.grade, Grade::Note);
    let why = found.why.unwrap_or_default();
    for part in ["Linux 6.1.69", "6.1.76", "do not get at it"] {
        assert!(why.contains(part), "{why}");
    }
    assert!(found.fixes[0].command.contains("apt-get changelog"));
    let leak = finding(&facts, "CVE-2024-21626").why.unwrap_or_default();
    assert!(leak.contains("runc 1.1.5") && leak.contains("does not use it"));
    // They do not change the status: only the distribution knows.
    assert_eq!(status(&diagnose(&facts), Some(Mode::Full), &[]), 0);
}

#[test]
fn lines_fit_a_terminal_and_commands_stay_whole() {
    let facts = changed(|facts, holding| {
        facts.settings.apparmor_restricts = Some(1);
        fenced(facts, holding, Trial::NoRights);
    });
    let findings = diagnose(&facts);
    let told = |columns| {
        let mode = mode(&facts, &findings);
        show::text(&findings, mode, &facts, Paint::new(false), columns)
    };
    for columns in [40, 64, 80, 120] {
        let text = told(Some(columns));
        let is_command = |line: &&str| line.contains("sudo") || line.contains("atoll run ");
        for line in text.lines().filter(|line| !is_command(line)) {
            let fits = line.chars().count() <= columns;
            // Names of settings are not cut.
            assert!(fits || !line.trim().contains(' '), "{columns}: {line}");
        }
        assert!(text.contains(
            "sudo sh -c '/usr/local/bin/atoll doctor --apparmor-profile > \
             /etc/apparmor.d/atoll && apparmor_parser -r /etc/apparmor.d/atoll'"
        ));
    }
    // What is piped has a line for each thing.
    let text = told(None);
    assert!(text.contains("\nweaker  user-namespaces   cannot be used"));
    assert!(!text.contains('\x1b'), "{text}");
}

#[test]
fn the_document_for_machines_has_its_form() {
    let facts = whole();
    let findings = diagnose(&facts);
    let mut document = show::document(&findings, mode(&facts, &findings), &facts, 0);
    // As it is written.
    document.sort_all_objects();
    let golden = include_str!("golden.json");
    let text = format!("{document:#}\n");
    if std::env::var_os("ATOLL_UPDATE_GOLDEN").is_some() {
        let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
        let path = Path::new(&package).join("src/upkeep/doctor/golden.json");
        std::fs::write(path, &text).expect("golden.json");
        return;
    }
    assert_eq!(text, golden);
}

#[test]
fn a_profile_names_only_paths_that_are_no_patterns() {
    let path = Path::new("/home/ada/my tools/atoll");
    let profile = apparmor::profile(path).expect("plain");
    assert!(profile.contains("profile atoll \"/home/ada/my tools/atoll\" flags=(unconfined) {"));
    assert!(profile.contains("  userns,\n"));
    for pattern in [
        "/a*/atoll",
        "/a{b}/atoll",
        "/a\"/atoll",
        "/a\\/atoll",
        "/a[b]/atoll",
        "/a\n/atoll",
        "/a'/atoll",
        "atoll",
        "",
    ] {
        assert!(apparmor::profile(Path::new(pattern)).is_err(), "{pattern}");
    }
}

#[test]
fn root_without_user_namespaces_is_full_and_weaker() {
    let mut facts = changed(|facts, holding| {
        (holding.is_root, holding.unmapped) = (true, true);
        holding.limits = forecast(&holding.groups, Mode::Full, true);
        facts.settings.max_user_namespaces = Some(0);
    });
    let findings = diagnose(&facts);
    assert_eq!(mode(&facts, &findings), Some(Mode::Full));
    assert_eq!(status(&findings, Some(Mode::Full), &[]), 1);
    let graded = |name: &str| {
        let found = findings.iter().find(|one| one.name == name);
        found.map(|one| (one.grade, one.fixes.len()))
    };
    assert_eq!(graded("user-namespaces"), Some((Grade::Weaker, 1)));
    assert_eq!(graded("copy-on-write"), Some((Grade::Weaker, 0)));
    // It is no limit, and told once.
    assert_eq!(graded("user-namespace"), None);
    // With no right to other namespaces either, nothing starts.
    if let Ok(holding) = &mut facts.holding {
        holding.trial = Trial::NoRights;
        holding.mode = Err("no rights".to_owned());
    }
    let findings = diagnose(&facts);
    assert_eq!(mode(&facts, &findings), None);
}
