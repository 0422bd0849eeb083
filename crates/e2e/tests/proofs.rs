//! `atoll policy prove` and `diff`, with the real prover and the real solver: properties that hold
//! of every request, and counterexamples to those that do not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::{Avoidable, Outcome, World, cache, fine, write_program};

/// Returns the solver; `None` where it or the prover is not installed.
fn solver(world: &World) -> Option<PathBuf> {
    let program = PathBuf::from(std::env::var_os("ATOLL_BIN").unwrap());
    if !program.with_file_name("atoll-prove").is_file() {
        world.skip("the prover is not beside atoll", Avoidable::Yes);
        return None;
    }
    let found = cache().map(|cache| cache.join("solver/cvc5"));
    let found = found.filter(|program| program.is_file());
    if found.is_none() {
        world.skip("the solver cvc5 is not installed", Avoidable::Yes);
    }
    found
}

/// Runs `atoll policy` with a solver.
fn policy<'a>(
    world: &World,
    solver: &Path,
    arguments: impl IntoIterator<Item = &'a str>,
) -> Outcome {
    let invocation = world.atoll(["policy"]).args(arguments).env("CVC5", solver);
    invocation.within(Duration::from_secs(300)).run()
}

/// Checks one property of a file of policies, and the texts that have to be printed.
fn check(world: &World, solver: &Path, text: &str, property: &[&str], status: i32, says: &[&str]) {
    world.write("new.cedar", text);
    let arguments = ["prove", "new.cedar"]
        .into_iter()
        .chain(property.iter().copied());
    let found = policy(world, solver, arguments);
    assert_eq!(found.code(), status, "{property:?} of {text}\n{found}");
    for word in says {
        assert!(found.out().contains(word), "{word}: {found}");
    }
    // What two versions differ in is allowed by either.
    if status == 1 && !["--every-policy-matters", "--same"].contains(&property[0]) {
        shown(world, &found, property[0] == "--never-errors");
    }
}

/// Checks a counterexample: it is a question that anybody can put, and Atoll answers as was said.
fn shown(world: &World, found: &Outcome, is_failure: bool) {
    let out = found.out();
    let command = out
        .lines()
        .find_map(|line| line.trim().strip_prefix("atoll "));
    let command = command.unwrap_or_else(|| panic!("no command: {found}"));
    let script = format!("\"$ATOLL\" {command}");
    let asked = world.host_shell(&script).run();
    let is_asked = asked.out().starts_with("to be approved: ");
    let expected = if is_failure || is_asked { 126 } else { 0 };
    assert_eq!(asked.code(), expected, "{command}\n{asked}");
    if is_failure {
        assert!(asked.out().contains("cannot tell"), "{asked}");
    }
}

const WEB: &str = "@id(\"web\") permit(principal, action in [Action::\"resolve\", Action::\"connect\", Action::\"request\"], resource in Host::\"*.example.com\");\n";

#[test]
fn each_property_is_proven_or_refuted_by_a_request() {
    let world = World::new("each_property_is_proven_or_refuted_by_a_request");
    let Some(solver) = solver(&world) else {
        return;
    };
    let check = |text: &str, property: &[&str], status: i32, says: &[&str]| {
        check(&world, &solver, text, property, status, says);
    };
    // A port plus one is a number; a number times the greatest one is none.
    let sum = "permit(principal, action == Action::\"connect\", resource) when { context.port + 1 > 80 };\n";
    check(sum, &["--never-errors"], 0, &["proven   never-errors"]);
    let product = sum.replace("context.port + 1", "context.port * 9223372036854775807");
    check(&product, &["--never-errors"], 1, &["refuted  never-errors"]);

    let metadata = ["--nobody-reaches", "169.254.169.254"];
    check(
        WEB,
        &metadata,
        0,
        &["proven   nobody-reaches 169.254.169.254"],
    );
    let any = WEB.replace("resource in Host::\"*.example.com\"", "resource is Host");
    check(
        &any,
        &metadata,
        1,
        &["connect 169.254.169.254", "permitted by policy web"],
    );
    let block = ["--nobody-reaches", "10.0.0.0/8"];
    check(&any, &block, 1, &["connect 10."]);
    let closed = format!(
        "{any}forbid(principal, action in [Action::\"connect\", Action::\"request\"], resource) when {{ context has ip && context.ip.isInRange(ip(\"10.0.0.0/8\")) }};\n"
    );
    check(&closed, &block, 0, &[]);
    // Half of it is not enough.
    check(&closed.replace("/8", "/9"), &block, 1, &["connect 10."]);
    check(
        WEB,
        &["--nobody-reaches", "a.example.com"],
        1,
        &["resolve a.example.com"],
    );
    check(WEB, &["--nobody-reaches", "example.com"], 0, &[]);
    check(
        WEB,
        &["--nobody-reaches", "*.b.example.com"],
        1,
        &[".b.example.com"],
    );
    check(WEB, &["--nobody-reaches", "*.example.org"], 0, &[]);

    let trust = [
        "--never-allows",
        "connect",
        "--where",
        "context has trust && context.trust == \"none\"",
    ];
    check(WEB, &trust, 1, &["trust \"none\""]);
    let trusted = format!(
        "{WEB}forbid(principal, action == Action::\"connect\", resource) unless {{ context has trust && context.trust != \"none\" }};\n"
    );
    check(&trusted, &trust, 0, &[]);
    check(WEB, &["--never-allows", "publish"], 1, &["publish 3000"]);

    world.write("old.cedar", WEB);
    let tightens = ["--only-tightens", "old.cedar"];
    check(
        &trusted,
        &tightens,
        0,
        &["proven   only-tightens old.cedar"],
    );
    let wider = format!(
        "{WEB}permit(principal, action == Action::\"connect\", resource == Host::\"api.example.org\") when {{ context.port == 22 }};\n"
    );
    check(
        &wider,
        &tightens,
        1,
        &[
            "connect api.example.org, port 22",
            "in the other version denied: no policy permits it",
        ],
    );
    let same = ["--same", "old.cedar"];
    let again = WEB.replace("resource in", "resource is Host in");
    check(&again, &same, 0, &["proven   same old.cedar"]);
    check(&trusted, &same, 1, &["refuted  same old.cedar"]);
}

#[test]
fn a_policy_that_decides_nothing_is_found() {
    let world = World::new("a_policy_that_decides_nothing_is_found");
    let Some(solver) = solver(&world) else {
        return;
    };
    let check = |text: &str, status: i32, says: &[&str]| {
        check(
            &world,
            &solver,
            text,
            &["--every-policy-matters"],
            status,
            says,
        );
    };
    check(WEB, 0, &["proven   every-policy-matters"]);
    let never = "@id(\"never\") forbid(principal, action == Action::\"connect\", resource) when { context.port < 80 && context.port > 443 };\n";
    check(
        &format!("{WEB}{never}"),
        1,
        &["policy never", "about nothing that can be asked"],
    );
    // No port is that high, which only Atoll knows.
    let high = never.replace(
        "context.port < 80 && context.port > 443",
        "context.port > 70000",
    );
    check(
        &format!("{WEB}{high}"),
        1,
        &["policy never", "about nothing that can be asked"],
    );
    let narrow = "@id(\"narrow\") permit(principal, action == Action::\"connect\", resource in Host::\"*.a.example.com\") when { context.port == 443 };\n";
    check(
        &format!("{WEB}{narrow}"),
        1,
        &["policy narrow", "changes nothing"],
    );
    let other = narrow.replace(".example.com", ".example.org");
    check(&format!("{WEB}{other}"), 0, &[]);
    // What is done besides is something too, where no other policy has it done.
    let web = WEB.replace("permit(", "@label(\"web\") permit(");
    for (annotation, status) in [
        ("@rate(\"10/m\")", 0),
        ("@label(\"web, crm\")", 0),
        ("@label(\"web\")", 1),
        ("", 1),
    ] {
        let says: &[&str] = match status {
            0 => &["proven   every-policy-matters"],
            _ => &["policy narrow", "changes nothing"],
        };
        let narrow = narrow.replace("permit(", &format!("{annotation} permit("));
        check(&format!("{web}{narrow}"), status, says);
    }
}

/// Every shipped profile, in Cedar: none of its rules fails, and the address at which clouds give
/// out a machine's secrets is reached by none.
#[test]
fn shipped_profiles_are_proven() {
    let world = World::new("shipped_profiles_are_proven");
    let Some(solver) = solver(&world) else {
        return;
    };
    let listed = fine(&world, &["profile", "list", "--json"]).json();
    let mut count = 0;
    for profile in listed.as_array().unwrap() {
        let name = profile["name"].as_str().unwrap();
        count += 1;
        let found = policy(&world, &solver, ["prove", name, "--json"]);
        let told = found.json();
        for one in told["properties"].as_array().unwrap() {
            assert_eq!(one["verdict"], "proven", "{name}: {found}");
        }
        let _ = found.success();
    }
    assert!(count > 10, "{listed}");
}

/// Every shipped preset, including those that are a level of trust.
#[test]
fn shipped_presets_are_proven() {
    let world = World::new("shipped_presets_are_proven");
    let Some(solver) = solver(&world) else {
        return;
    };
    let listed = fine(&world, &["profile", "presets", "--json"]).json();
    let mut count = 0;
    for preset in listed.as_array().unwrap() {
        let name = preset["name"].as_str().unwrap();
        count += 1;
        // What is no file of its own is named by one.
        let text = fine(&world, &["profile", "presets", name]).out();
        let text = match (text.contains("\nlevel = "), text.contains("[network]")) {
            (true, _) => format!("[trust]\npreset = \"{name}\"\n"),
            (_, true) => text,
            (_, false) => format!("[network]\npresets = [\"{name}\"]\n"),
        };
        world.write("preset.toml", text);
        let found = policy(&world, &solver, ["prove", "./preset.toml", "--json"]);
        let told = found.json();
        assert!(told["properties"].as_array().unwrap().len() >= 2, "{found}");
        for one in told["properties"].as_array().unwrap() {
            assert_eq!(one["verdict"], "proven", "{name}: {found}");
        }
    }
    assert!(count > 10, "{listed}");
    // One that reaches there is found out.
    world.write("preset.toml", "[network]\nallow = [\"169.254.169.254\"]\n");
    let found = policy(&world, &solver, ["prove", "./preset.toml"]).expect_status(1);
    assert!(
        found
            .out()
            .contains("refuted  nobody-reaches 169.254.169.254"),
        "{found}"
    );
}

const LEVELS: [&str; 5] = ["none", "low", "medium", "high", "full"];
const MODES: [&str; 3] = ["strict", "layered", "permissive"];
/// The actions that leave or enter the sandbox, and the use of a credential for them.
const OUTSIDE: [&str; 5] = ["resolve", "connect", "request", "use_credential", "publish"];

/// Writes the policies of a level in a mode to a file of their own; returns its name and the text.
fn level(world: &World, level: &str, mode: &str) -> (String, String) {
    let shown = [
        "policy", "show", "default", "--trust", level, "--mode", mode,
    ];
    let shown = fine(world, &shown).out();
    let text = shown.find("// Trust level").map_or("", |at| &shown[at..]);
    let name = format!("{level}-{mode}.cedar");
    world.write(&name, format!("// Nothing besides.\n{text}"));
    (name, text.to_owned())
}

fn only_tightens(world: &World, solver: &Path, one: &str, other: &str) -> Outcome {
    policy(world, solver, ["prove", one, "--only-tightens", other])
}

/// Each level is stricter than the next higher one, and each mode than the next looser one:
/// anything denied or asked about there is not less so here. No policy of a level fails.
#[test]
fn lower_levels_and_stricter_modes_only_tighten() {
    let world = World::new("lower_levels_and_stricter_modes_only_tighten");
    let Some(solver) = solver(&world) else {
        return;
    };
    let mut said = 0;
    for one in LEVELS {
        for mode in MODES {
            let (_, text) = level(&world, one, mode);
            said += usize::from(!text.is_empty());
        }
    }
    assert!(said >= 8, "levels say something: {said}");
    let name = |level: &str, mode: &str| format!("{level}-{mode}.cedar");
    let mut pairs = 0;
    for (at, level) in LEVELS.iter().enumerate() {
        for (of, mode) in MODES.iter().enumerate() {
            let higher = LEVELS.get(at + 1).map(|higher| name(higher, mode));
            let looser = MODES.get(of + 1).map(|looser| name(level, looser));
            let mut arguments = vec![
                "prove".to_owned(),
                name(level, mode),
                "--never-errors".to_owned(),
            ];
            for other in higher.into_iter().chain(looser) {
                pairs += 1;
                arguments.extend(["--only-tightens".to_owned(), other]);
            }
            let found = policy(&world, &solver, arguments.iter().map(String::as_str));
            assert_eq!(found.code(), 0, "{found}");
        }
    }
    assert_eq!(pairs, 4 * 3 + 5 * 2);
    // None of them is the same in the other direction where it takes something away.
    for (one, other) in [
        ("low-strict", "none-strict"),
        ("medium-layered", "low-layered"),
        ("high-layered", "medium-layered"),
        ("medium-layered", "medium-strict"),
        ("medium-permissive", "medium-layered"),
    ] {
        let (one, other) = (format!("{one}.cedar"), format!("{other}.cedar"));
        let found = only_tightens(&world, &solver, &one, &other);
        assert_eq!(found.code(), 1, "{one} of {other}: {found}");
        shown(&world, &found, false);
    }
}

/// Each purpose narrows whatever people allow: everything, actions that are asked about, actions
/// with obligations. No policy of one fails, and each says something of its own.
#[test]
fn every_shipped_purpose_only_tightens() {
    let world = World::new("every_shipped_purpose_only_tightens");
    let Some(solver) = solver(&world) else {
        return;
    };
    let own = "@id(\"sent\") @approve(\"person\") permit(principal, action == Action::\"request\", resource) when { context.sends };\n\
               @id(\"read\") @rate(\"10/m\") permit(principal, action == Action::\"request\", resource) unless { context.sends };\n\
               @id(\"rest\") permit(principal, action in [Action::\"run\", Action::\"read\", Action::\"write\", Action::\"resolve\", Action::\"connect\", Action::\"use_credential\", Action::\"promote\", Action::\"publish\"], resource);\n";
    world.write("own.cedar", own);
    let listed = fine(&world, &["policy", "purposes", "--json"]).json();
    let all = listed.as_array().unwrap();
    assert_eq!(all.len(), 8);
    for one in all {
        let name = one["name"].as_str().unwrap();
        world.write("purpose.cedar", one["policies"].as_str().unwrap());
        let arguments = [
            "prove",
            "own.cedar",
            "purpose.cedar",
            "--never-errors",
            "--only-tightens",
            "own.cedar",
            "--seconds",
            "300",
        ];
        let found = policy(&world, &solver, arguments);
        assert_eq!(found.code(), 0, "{name}: {found}");
    }
    // It takes something away: the same is not proven the other way round.
    let review = all.iter().find(|one| one["name"] == "review").unwrap();
    let both = format!("{own}{}", review["policies"].as_str().unwrap());
    world.write("both.cedar", both);
    let found = only_tightens(&world, &solver, "own.cedar", "both.cedar").expect_status(1);
    shown(&world, &found, false);
    // One that opens something is found out.
    let opens = "@id(\"sent\") permit(principal, action == Action::\"request\", resource) when { context.sends };";
    let looser = format!("{opens}\n{}", own.split_once('\n').unwrap().1);
    world.write("looser.cedar", looser);
    let found = only_tightens(&world, &solver, "looser.cedar", "own.cedar").expect_status(1);
    shown(&world, &found, false);
}

/// A level with a hole is refuted, by a request that goes through it.
#[test]
fn a_broken_level_is_refuted() {
    let world = World::new("a_broken_level_is_refuted");
    let Some(solver) = solver(&world) else {
        return;
    };
    let without = |text: &str, id: &str| {
        let kept: Vec<&str> = text
            .split_inclusive(";\n")
            .filter(|one| !one.contains(id))
            .collect();
        assert!(kept.concat().len() < text.len(), "{id}: {text}");
        kept.concat()
    };
    let (higher, _) = level(&world, "medium", "layered");
    let (_, low) = level(&world, "low", "layered");
    for (id, expected) in [
        ("level-low-sends", "request"),
        ("level-low-unseen", "connect"),
    ] {
        world.write("broken.cedar", without(&low, id));
        let found = only_tightens(&world, &solver, "broken.cedar", &higher).expect_status(1);
        assert!(
            found.out().contains("in the other version to be approved"),
            "{found}"
        );
        assert!(
            found
                .out()
                .contains(&format!("atoll policy ask {expected}")),
            "{found}"
        );
        shown(&world, &found, false);
    }
    let (_, none) = level(&world, "none", "strict");
    for action in OUTSIDE {
        let broken = none.replacen(&format!("Action::\"{action}\""), "Action::\"read\"", 1);
        assert_ne!(broken, none, "{action}");
        world.write("broken.cedar", broken);
        for other in OUTSIDE {
            let found = policy(
                &world,
                &solver,
                ["prove", "broken.cedar", "--never-allows", other],
            );
            assert_eq!(
                found.code(),
                i32::from(other == action),
                "{action} {other}: {found}"
            );
        }
    }
}

/// Policies as they are assembled for a run: at the lowest level nothing is reached in any mode,
/// whatever people have written; and where nobody is asked, nothing is reached that would be asked
/// about.
#[test]
fn nothing_is_reached_at_trust_level_none() {
    let world = World::new("nothing_is_reached_at_trust_level_none");
    let Some(solver) = solver(&world) else {
        return;
    };
    let asks = "@id(\"own\") @approve(\"person\") permit(principal, action == Action::\"connect\", resource);\n";
    world.write(world.config().join("atoll/own.cedar"), asks);
    let outside: Vec<&str> = OUTSIDE
        .iter()
        .flat_map(|one| ["--never-allows", one])
        .collect();
    for mode in MODES {
        let at = ["prove", "--trust", "none", "--mode", mode];
        let found = policy(
            &world,
            &solver,
            at.into_iter().chain(outside.iter().copied()),
        );
        assert_eq!(found.code(), 0, "{mode}: {found}");
        let found = policy(&world, &solver, at);
        assert!(
            found.out().contains("proven   only-tightens the user's"),
            "{found}"
        );
    }
    let at = ["prove", "--trust", "low", "--mode", "strict"];
    let found = policy(
        &world,
        &solver,
        at.into_iter().chain(outside.iter().copied()),
    );
    let found = found.expect_status(1);
    assert!(
        found.out().contains("proven   never-allows connect\n"),
        "{found}"
    );
    assert!(
        found.out().contains("refuted  never-allows resolve\n"),
        "{found}"
    );
    shown(&world, &found, false);
    let at = [
        "prove",
        "--trust",
        "low",
        "--mode",
        "layered",
        "--never-allows",
        "connect",
    ];
    let found = policy(&world, &solver, at).expect_status(1);
    assert!(
        found.out().contains("a person is asked by policy own"),
        "{found}"
    );
}

#[test]
fn lower_layers_only_tighten() {
    let world = World::new("lower_layers_only_tighten");
    let Some(solver) = solver(&world) else {
        return;
    };
    world.write(world.config().join("atoll/own.cedar"), WEB);
    // By itself it would open every host.
    let project = "@id(\"wide\") permit(principal, action == Action::\"connect\", resource);\n";
    world.write("atoll.cedar", project);
    let _ = world.atoll(["trust"]).run().success();
    let found = policy(&world, &solver, ["prove"]);
    assert!(
        found.out().contains("proven   only-tightens the user's"),
        "{found}"
    );
    assert!(found.out().contains("proven   nobody-reaches"), "{found}");
    // The project's alone does.
    let found = policy(
        &world,
        &solver,
        [
            "prove",
            "atoll.cedar",
            "--nobody-reaches",
            "169.254.169.254",
        ],
    );
    let _ = found.expect_status(1);
}

/// The organisation's layer is proven as its key has signed it, and nothing is proven of another.
#[test]
fn every_layer_below_the_signed_one_only_tightens() {
    let world = World::new("every_layer_below_the_signed_one_only_tightens");
    let Some(solver) = solver(&world) else {
        return;
    };
    let at = |name: &str| world.top().join(name).display().to_string();
    let (directory, key) = (at("acme"), at("acme.key"));
    world.write(world.top().join("acme/own.cedar"), WEB);
    let named = format!("organisation = {{ directory = {directory:?} }}\n");
    world.write(world.config().join("atoll/config.toml"), named);
    let organisation = |arguments: &[&str]| {
        let all = ["policy", "organisation"].iter().chain(arguments);
        world.atoll(all).run().success()
    };
    let public = organisation(&["key", &key, "--name", "acme.example"]).out();
    let _ = organisation(&["sign", &directory, "--key", &key]);
    let _ = organisation(&["trust", public.trim()]);
    // By itself it would open every host.
    let wide = "@id(\"wide\") permit(principal, action == Action::\"connect\", resource);\n";
    world.write(world.config().join("atoll/own.cedar"), wide);
    let found = policy(&world, &solver, ["prove"]);
    for proven in ["only-tightens the organisation's", "nobody-reaches"] {
        assert!(
            found.out().contains(&format!("proven   {proven}")),
            "{found}"
        );
    }
    world.write(world.top().join("acme/own.cedar"), wide);
    let found = policy(&world, &solver, ["prove"]).expect_status(125);
    found.says(["own.cedar is not as it was signed"]);
    // Signed by whom it may, it is another layer, and what was proven no longer is.
    let _ = organisation(&["sign", &directory, "--key", &key]);
    let found = policy(&world, &solver, ["prove"]);
    assert!(found.out().contains("refuted  nobody-reaches"), "{found}");
}

/// Two layers of the same files: policies with the same name in both are one policy in each, and
/// either alone decides the same.
#[test]
fn of_two_layers_with_one_policy_each_is_told_to_change_nothing() {
    let world = World::new("of_two_layers_with_one_policy_each_is_told_to_change_nothing");
    let Some(solver) = solver(&world) else {
        return;
    };
    let own = world.config().join("atoll");
    let closed = "@id(\"closed\") forbid(principal, action == Action::\"connect\", resource) when { context.port == 22 };\n";
    world.write(own.join("own.cedar"), closed);
    let matters = ["prove", "--every-policy-matters"];
    // The control: where one of them is, it does.
    let found = policy(&world, &solver, matters).success();
    assert!(
        found.out().contains("proven   every-policy-matters"),
        "{found}"
    );
    let (directory, key) = (
        own.display().to_string(),
        world.top().join("acme.key").display().to_string(),
    );
    let named = format!("organisation = {{ directory = {directory:?} }}\n");
    world.write(own.join("config.toml"), named);
    let organisation = |arguments: &[&str]| {
        let all = ["policy", "organisation"].iter().chain(arguments);
        world.atoll(all).run().success()
    };
    let public = organisation(&["key", &key, "--name", "acme.example"]).out();
    let _ = organisation(&["sign", &directory, "--key", &key]);
    let _ = organisation(&["trust", public.trim()]);
    let found = policy(&world, &solver, matters).expect_status(1);
    for layer in ["organisation", "user"] {
        let told = format!("own.cedar:1) of layer {layer} changes nothing");
        assert!(found.out().contains(&told), "{told}: {found}");
    }
}

/// A permit of one layer can be overruled by another layer's denial, whichever of them comes first.
#[test]
fn a_permit_that_another_layer_never_lets_count_is_told() {
    let world = World::new("a_permit_that_another_layer_never_lets_count_is_told");
    let Some(solver) = solver(&world) else {
        return;
    };
    let permit = |id: &str, host: &str| {
        format!(
            "@id(\"{id}\") permit(principal, action == Action::\"connect\", resource in Host::\"{host}\");\n"
        )
    };
    let proven = |own: &[(&str, &str)], project: &[(&str, &str)]| {
        let text = |all: &[(&str, &str)]| {
            let all = all.iter().map(|(id, host)| permit(id, host));
            all.collect::<String>()
        };
        world.write(world.config().join("atoll/own.cedar"), text(own));
        world.write("atoll.cedar", text(project));
        let _ = world.atoll(["trust"]).run().success();
        let found = policy(&world, &solver, ["prove", "--every-policy-matters"]);
        let out = found.out();
        let told: Vec<String> = ["own", "far", "near"]
            .iter()
            .filter(|id| out.contains(&format!("policy {id} (")) && out.contains("changes nothing"))
            .map(|id| (*id).to_owned())
            .collect();
        assert_eq!(found.code(), i32::from(!told.is_empty()), "{found}");
        told
    };
    let (own, near) = (("own", "*.example.com"), ("near", "*.a.example.com"));
    let far = ("far", "*.example.org");
    assert_eq!(proven(&[own], &[near, far]), ["far"]);
    assert_eq!(proven(&[near, far], &[own]), ["far"]);
    // Where they have nothing in common, neither lets through what the other one permits.
    assert_eq!(proven(&[own], &[far]), ["own", "far"]);
    // What is permitted by both is by either alone closed to all else: each is what its layer says.
    assert_eq!(proven(&[own], &[("near", "*.example.com")]), [""; 0]);
    assert_eq!(
        proven(&[own, far], &[near, ("web", "*.example.org")]),
        [""; 0]
    );
}

#[test]
fn without_a_solver_nothing_is_proven() {
    let world = World::new("without_a_solver_nothing_is_proven");
    if solver(&world).is_none() {
        return;
    }
    world.write("own.cedar", WEB);
    // One that is not there, one that answers nothing, one that an agent has put there.
    let planted = world.path("planted");
    let says =
        "#!/bin/sh\nwhile read -r line; do [ \"$line\" = '(check-sat)' ] && echo unsat; done\n";
    write_program(&planted, says);
    for (solver, status) in [
        (Path::new("/nothing/cvc5"), 3),
        (Path::new("/bin/true"), 2),
        (&planted, 3),
    ] {
        let found = policy(&world, solver, ["prove", "own.cedar"]).expect_status(status);
        assert!(!found.out().contains("proven "), "{found}");
        assert!(found.out().contains("unknown  nobody-reaches"), "{found}");
        let found = policy(&world, solver, ["diff", "own.cedar", "own.cedar"]);
        let _ = found.expect_status(status);
    }
    let missing = policy(&world, Path::new("/nothing/cvc5"), ["prove", "own.cedar"]);
    missing.says([
        "nothing is proven",
        "cvc5.github.io",
        "CVC5",
        "cargo xtask test --install",
    ]);
    policy(&world, &planted, ["prove", "own.cedar"]).says(["present directory"]);
    for wrong in [
        &["prove", "own.cedar", "--never-allows", "fly"][..],
        &["prove", "own.cedar", "--nobody-reaches", "not a host"],
        &["prove", "own.cedar", "--only-tightens", "nothing.cedar"],
        &["prove", "own.cedar", "--trust", "low"],
    ] {
        let found = policy(&world, Path::new("/bin/true"), wrong.iter().copied());
        let _ = found.expect_status(125);
    }
}

/// The prover is neither beside the program nor in `PATH`: the error says how to get it.
#[test]
fn without_the_prover_nothing_is_proven() {
    let world = World::new("without_the_prover_nothing_is_proven");
    let Some(solver) = solver(&world) else {
        return;
    };
    world.write("own.cedar", WEB);
    let alone = world.top().join("alone");
    fs::create_dir(&alone).unwrap();
    fs::copy(std::env::var_os("ATOLL_BIN").unwrap(), alone.join("atoll")).unwrap();
    let script = format!(
        "CVC5={} {}/atoll policy prove own.cedar",
        solver.display(),
        alone.display()
    );
    let found = world.host_shell(&script).run().expect_status(3);
    found.says(["nothing is proven", "atoll-prove", "cargo xtask prover"]);
    // Once, and not with each property.
    let told = format!("{}{}", found.out(), found.err());
    assert_eq!(told.matches("cargo xtask prover").count(), 1, "{found}");
    // In PATH it is found.
    let beside = PathBuf::from(std::env::var_os("ATOLL_BIN").unwrap());
    let script = format!(
        "PATH=\"$PATH:{}\" {script}",
        beside.parent().unwrap().display()
    );
    let found = world
        .host_shell(&script)
        .within(Duration::from_secs(300))
        .run();
    assert!(found.out().contains("proven   never-errors"), "{found}");
}

/// A prover that somebody else could have written is reported, and not run.
#[test]
fn a_prover_that_others_can_change_is_told_and_not_run() {
    let world = World::new("a_prover_that_others_can_change_is_told_and_not_run");
    let own = world.top().join("own.cedar");
    world.write(&own, WEB);
    let alone = world.top().join("alone");
    fs::create_dir(&alone).unwrap();
    fs::copy(std::env::var_os("ATOLL_BIN").unwrap(), alone.join("atoll")).unwrap();
    let (prover, solver) = (alone.join("atoll-prove"), alone.join("cvc5"));
    let ran = world.top().join("ran");
    let program = format!("#!/bin/sh\necho >> \"{}\"\n", ran.display());
    write_program(&prover, &program);
    write_program(&solver, &program);
    // From a directory in which no agent works, so that nothing else is said of it.
    let script = format!(
        "cd / && {}/atoll policy prove {}",
        alone.display(),
        own.display()
    );
    let prove = || world.host_shell(&script).without_env("CVC5").run();
    let mode = |mode| fs::set_permissions(&prover, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o757);
    let found = prove().expect_status(3);
    found.says([
        "nothing is proven",
        "atoll-prove is not used",
        "others can change",
    ]);
    assert!(!ran.exists(), "{found}");
    // The control: as its owner's alone it is run.
    mode(0o755);
    let found = prove();
    assert!(
        !found.err().contains("is not used") && ran.exists(),
        "{found}"
    );
}

#[test]
fn versions_of_a_file_are_compared() {
    let world = World::new("versions_of_a_file_are_compared");
    let Some(solver) = solver(&world) else {
        return;
    };
    world.write("old.cedar", WEB);
    world.write("new.cedar", format!("{}@id(\"late\") forbid(principal, action == Action::\"connect\", resource) when {{ context.port != 443 }};\n", WEB.replace("*.example.com", "*.example.org")));
    let diff = |old, new| policy(&world, &solver, ["diff", old, new]);
    let found = diff("old.cedar", "new.cedar").expect_status(1);
    for word in [
        "changed  policy web",
        "added    policy late",
        "more is allowed:",
        "less is allowed:",
        ".example.org",
        ".example.com",
    ] {
        assert!(found.out().contains(word), "{word}: {found}");
    }
    let found = diff("old.cedar", "old.cedar").success();
    assert!(
        found
            .out()
            .contains("nothing more is allowed\nnothing less is allowed\n"),
        "{found}"
    );
}

/// A version that denies because nobody fulfils its obligation, or can give its approval, is not
/// tightened by one without an obligation, or with another approver.
#[test]
fn what_is_denied_for_its_obligations_is_not_allowed_by_a_tighter_version() {
    let world =
        World::new("what_is_denied_for_its_obligations_is_not_allowed_by_a_tighter_version");
    let Some(solver) = solver(&world) else {
        return;
    };
    let one = |annotation: &str, action: &str| {
        format!(
            "@id(\"p\") {annotation} permit(principal, action == Action::\"{action}\", resource);\n"
        )
    };
    let tightens = ["--only-tightens", "old.cedar"];
    for (old, new, action) in [
        ("@redact(\"authorization\")", "", "request"),
        (
            "@redact(\"authorization\")",
            "@redact(\"header:a\")",
            "request",
        ),
        ("@approve(\"lead\")", "@approve(\"person\")", "connect"),
        ("@approve(\"lead\")", "@approve(\"person\")", "request"),
        (
            "@approve(\"lead, person\")",
            "@approve(\"person\")",
            "promote",
        ),
        ("@approve(\"lead\")", "@approve(\"person\")", "run"),
        ("@approve(\"lead\")", "", "run"),
    ] {
        let (denied, open) = (one(old, action), one(new, action));
        world.write("old.cedar", &denied);
        let says = ["refuted  only-tightens", "in the other version denied: "];
        check(&world, &solver, &open, &tightens, 1, &says);
        // The control: in the other direction all is taken away.
        world.write("old.cedar", &open);
        check(&world, &solver, &denied, &tightens, 0, &["proven"]);
        let never = ["--never-allows", action];
        check(&world, &solver, &denied, &never, 0, &["proven"]);
        check(&world, &solver, &open, &never, 1, &["refuted"]);
        // A check tells that it denies, and nothing of the other.
        world.write("denied.cedar", &denied);
        let checked = world.atoll(["policy", "check", "denied.cedar"]).run();
        let checked = checked.expect_status(1);
        assert!(checked.out().contains("it denies"), "{checked}");
        let _ = fine(&world, &["policy", "check", "old.cedar"]);
    }
}

/// The obligations of policies that allow are those of a tighter version too, wherever it allows.
#[test]
fn what_is_done_besides_is_done_by_a_tighter_version() {
    let world = World::new("what_is_done_besides_is_done_by_a_tighter_version");
    let Some(solver) = solver(&world) else {
        return;
    };
    let one = |annotation: &str, action: &str, beneath: &str| {
        format!(
            "@id(\"p\") {annotation} permit(principal, action == Action::\"{action}\", resource{beneath});\n"
        )
    };
    let tightens = ["--only-tightens", "old.cedar"];
    let proven = |new: &str| check(&world, &solver, new, &tightens, 0, &["proven"]);
    let refuted = |new: &str, lost: &str| {
        let says = ["refuted  only-tightens", lost];
        check(&world, &solver, new, &tightens, 1, &says);
    };
    for (annotation, stricter, looser, action) in [
        (
            "@redact(\"header:x-internal\")",
            "@redact(\"header:x-internal, header:y\")",
            "@redact(\"header:y\")",
            "request",
        ),
        (
            "@rate(\"10/m\")",
            "@rate(\"9/m\")",
            "@rate(\"11/m\")",
            "connect",
        ),
        (
            "@label(\"web\")",
            "@label(\"web, crm\")",
            "@label(\"crm\")",
            "connect",
        ),
        (
            "@timeout(\"30m\")",
            "@timeout(\"20m\")",
            "@timeout(\"31m\")",
            "run",
        ),
        (
            "@checkpoint",
            "@checkpoint @log(\"A.\")",
            "@log(\"A.\")",
            "promote",
        ),
    ] {
        let old = one(annotation, action, "");
        world.write("old.cedar", &old);
        let name = annotation.split('(').next().unwrap();
        let lost = format!("in the other version with {name}");
        proven(&old);
        proven(&one(stricter, action, ""));
        let forbid = "forbid(principal, action, resource) when { context.time > 7 };\n";
        proven(&format!("// Moved.\n{forbid}{old}"));
        refuted(&one("", action, ""), &lost);
        refuted(&one(looser, action, ""), &lost);
    }
    // The same annotations of fewer things are not the same where another policy allows the rest.
    let beneath = " in Host::\"*.example.com\"";
    let redacted = |beneath| one("@redact(\"header:a\")", "request", beneath);
    let bare = one("", "request", beneath).replace("\"p\"", "\"q\"");
    world.write("old.cedar", redacted("") + &bare);
    refuted(
        &(redacted(" == Host::\"a.example.com\"") + &bare),
        "in the other version with @redact(\"header:a\")",
    );
    proven(&redacted(beneath));
    proven(&redacted(" == Host::\"a.example.com\""));
    // Two versions differ in it, whichever is the older.
    world.write("new.cedar", one("", "request", ""));
    world.write("old.cedar", redacted(""));
    let found = policy(&world, &solver, ["diff", "old.cedar", "new.cedar"]).expect_status(1);
    for word in ["more is allowed:", "@redact", "nothing less is allowed"] {
        assert!(found.out().contains(word), "{word}: {found}");
    }
    let found = policy(&world, &solver, ["diff", "new.cedar", "old.cedar"]).expect_status(1);
    assert!(found.out().contains("nothing more is allowed\n"), "{found}");
}

/// A session gains a label, and the question about its next action includes it.
#[test]
fn a_label_more_is_tighter_only_where_nothing_is_allowed_by_it() {
    let world = World::new("a_label_more_is_tighter_only_where_nothing_is_allowed_by_it");
    let Some(solver) = solver(&world) else {
        return;
    };
    let rule = |annotation: &str, host: &str, condition: &str| {
        format!(
            "{annotation} permit(principal, action == Action::\"connect\", resource == Host::\"{host}\") when {{ {condition} }};\n"
        )
    };
    let gains = |annotation: &str| rule(annotation, "a.example.com", "true");
    let tightens = ["--only-tightens", "old.cedar"];
    let asks = |name: &str| format!("context has labels && context.labels.contains(\"{name}\")");
    let any = "context has labels && context.labels.containsAny([\"x\", \"z\"])";
    let unless = |condition: &str| {
        let all = "permit(principal, action == Action::\"connect\", resource in Host::\"*.example.org\");\n";
        format!(
            "{all}forbid(principal, action == Action::\"connect\", resource) unless {{ {condition} }};\n"
        )
    };
    for (rest, is_tighter) in [
        // Whoever has the label may do more by it.
        (rule("", "b.example.com", &asks("x")), false),
        (rule("", "b.example.com", any), false),
        (unless(&asks("x")), false),
        (
            rule(
                "",
                "b.example.com",
                "context has labels && context.labels == [\"x\"]",
            ),
            false,
        ),
        // Without it something is done that is not done with it.
        (
            rule(
                "@rate(\"1/m\")",
                "b.example.com",
                &format!("!({})", asks("x")),
            ) + &rule("", "b.example.com", "true"),
            false,
        ),
        // By another one, by none, or by what is allowed without it as well.
        (rule("", "b.example.com", &asks("y")), true),
        (rule("", "b.example.com", "true"), true),
        (
            rule("", "b.example.com", &format!("!({})", asks("x"))),
            true,
        ),
        (
            rule(
                "",
                "b.example.com",
                &format!("({}) && context.port == 443", asks("x")),
            ) + &rule("", "b.example.com", "context.port < 1000"),
            true,
        ),
    ] {
        world.write("old.cedar", gains("") + &rest);
        let (status, says): (i32, &[&str]) = match is_tighter {
            true => (0, &["proven   only-tightens"]),
            false => (2, &["unknown  only-tightens", "@label(\"x\") is added"]),
        };
        let new = gains("@label(\"x\")") + &rest;
        check(&world, &solver, &new, &tightens, status, says);
        // What the older version gives as well is not added.
        world.write("old.cedar", gains("@label(\"x\")") + &rest);
        check(&world, &solver, &new, &tightens, 0, &["proven"]);
    }
    // Where it is refuted in one direction it is refuted for both.
    let rest = rule("", "b.example.com", &asks("x"));
    world.write("old.cedar", gains("") + &rest);
    let new = gains("@label(\"x\")") + &rest;
    check(
        &world,
        &solver,
        &new,
        &["--same", "old.cedar"],
        1,
        &["refuted"],
    );
}

/// The commands of the page about policies that need the solver.
#[test]
fn the_commands_about_proofs_work() {
    let world = World::new("the_commands_about_proofs_work");
    let Some(solver) = solver(&world) else {
        return;
    };
    let project = std::env::var_os("CARGO_MANIFEST_DIR").unwrap();
    let text = fs::read_to_string(Path::new(&project).join("../../docs/policy.md")).unwrap();
    let block = text
        .split("```cedar\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    world.write(world.config().join("atoll/own.cedar"), block);
    world.write("old.cedar", block);
    world.write("new.cedar", block);
    let part = text
        .split("## Proofs")
        .nth(1)
        .expect("it has a part about proofs");
    let commands = part
        .split("```console\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let mut count = 0;
    for command in commands.lines().filter_map(|line| line.strip_prefix("$ ")) {
        count += 1;
        let command = command.replace("~/.config", "\"$XDG_CONFIG_HOME\"");
        let script = format!("PATH=$(dirname \"$ATOLL\"):$PATH; {command}");
        let shell = world.host_shell(&script).env("CVC5", &solver);
        let ended = shell.within(Duration::from_secs(300)).run();
        assert_eq!(ended.code(), 0, "{command}\n{ended}");
    }
    assert!(count >= 4, "{commands}");
}

/// Needs neither prover nor solver: nothing is asked of them.
#[test]
fn where_no_policies_count_there_is_nothing_to_prove() {
    let world = World::new("where_no_policies_count_there_is_nothing_to_prove");
    let check = || world.atoll(["policy", "check", "--prove"]).run();
    let none = check().success();
    let told = "There are no policies here: there is nothing to prove.";
    assert!(none.err().contains(told), "{none}");
    // A project's file that nobody trusts is checked and does not count.
    world.write("atoll.cedar", WEB);
    let untrusted = check().success();
    assert!(untrusted.err().contains("no problems"), "{untrusted}");
    let told = "None of them counts here: there is nothing to prove.";
    assert!(untrusted.err().contains(told), "{untrusted}");
    // The control: what has a mistake is not let through.
    world.write("atoll.cedar", "permit(principal, action, resource");
    let _ = check().expect_status(1);
    // And doctor says whether there is anything to prove with, without a weaker word.
    let doctor = world.atoll(["doctor", "--json"]).run().json();
    let findings = doctor["findings"].as_array().unwrap();
    let prover = findings.iter().find(|one| one["name"] == "prover").unwrap();
    let grade = prover["grade"].as_str().unwrap();
    assert!(["ok", "note"].contains(&grade), "{prover}");
    let bare = world
        .atoll(["doctor", "--json"])
        .env("CVC5", "/nothing/cvc5")
        .run();
    let findings = bare.json()["findings"].as_array().unwrap().clone();
    let prover = findings.iter().find(|one| one["name"] == "prover").unwrap();
    assert_eq!(prover["grade"], "note", "{prover}");
}

/// The presence of the programs is no evidence that they prove anything.
#[test]
fn the_doctor_tries_a_proof() {
    let world = World::new("the_doctor_tries_a_proof");
    let Some(solver) = solver(&world) else {
        return;
    };
    let doctor = |solver: &Path| {
        let doctor = world.atoll(["doctor"]).env("CVC5", solver);
        let told = doctor.within(Duration::from_secs(120)).run().out();
        told.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let told = doctor(&solver);
    assert!(told.contains("a trivial proof was found"), "{told}");
    for (script, says) in [
        ("exit 0", "are there, and prove nothing: "),
        (
            "while read -r line; do [ \"$line\" = '(check-sat)' ] && echo unsat; done",
            "are not to be believed",
        ),
    ] {
        let place = world.top().join("solvers");
        fs::create_dir_all(&place).unwrap();
        let fake = place.join("cvc5");
        write_program(&fake, &format!("#!/bin/sh\n{script}\n"));
        let told = doctor(&fake);
        assert!(told.contains(says), "{says}: {told}");
        assert!(told.contains("nothing is proven of policies"), "{told}");
    }
}
