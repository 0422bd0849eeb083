//! Labels: those of a run when it begins, the files that name them, and the approvals that Atoll's
//! own rule requires.

use std::collections::BTreeSet;
use std::path::Path;

use atoll_cedar::{
    Asked, Effect, Facts as CedarFacts, Follows, Look as Carried, Principal, Question,
};
use atoll_model::Mode;
use atoll_model::network::{HostPart, Request, Scheme, Target};

use super::*;

const SHOWN: &str = "[home]\nread = [\"notes/work\"]\n";

fn begun(world: &World) -> Vec<String> {
    world.grant().labels().iter().cloned().collect()
}

fn private(place: &str) -> World {
    let text = format!("{SHOWN}[labels]\nprivate = [\"{place}\"]\n");
    world().profile("p", &text).with("p")
}

#[test]
fn what_is_shown_of_a_private_place_counts_as_read() {
    for (place, expected) in [
        ("~/notes/work", true),
        ("~/notes", true),
        ("~/notes/work/customers", true),
        ("~/notes/other", false),
        ("~/not", false),
        ("/home/ann/src/app", true),
        ("/home/ann/src/app/data", true),
        ("/home/ann/src/other", false),
    ] {
        let labels = begun(&private(place));
        let expected: &[&str] = if expected { &["private"] } else { &[] };
        assert_eq!(labels, expected, "{place}");
    }
    // Nothing is noted where nobody asks for it.
    let plain = world().profile("p", SHOWN).with("p");
    assert!(begun(&plain).is_empty() && plain.rules().policies().is_none());
}

#[test]
fn policies_label_what_is_shown_and_everything_is_asked_with_it() {
    let labelling = "@label(\"crm, private\") permit(principal, action == Action::\"read\", resource in Path::\"/home/ann/notes\");\n\
         permit(principal, action == Action::\"read\", resource);\n";
    let shown = || world().profile("p", SHOWN).with("p");
    let labelled = shown().user_policies(labelling);
    assert_eq!(begun(&labelled), ["crm", "private"]);
    let forbids = "@id(\"seen\") forbid(principal, action == Action::\"run\", resource) when { context has labels && context.labels.contains(\"crm\") };";
    let denied = shown().user_policies(&format!("{labelling}{forbids}"));
    assert!(denied.reasons()[0].why.contains("policy seen"));
}

#[test]
fn what_earlier_runs_have_gained_is_there() {
    let mut world = private("~/elsewhere");
    world.requested.in_session = true;
    let mut rules = world.rules();
    rules.take_labels(BTreeSet::from(["untrusted".to_owned()]));
    let Verdict::Allow(grant) = decide(&rules, &world.call, &world.facts()) else {
        panic!("denied");
    };
    assert!(grant.labels().contains("untrusted"), "{:?}", grant.labels());
}

/// A project takes nothing away, whether it names places or another profile.
#[test]
fn a_project_and_the_organisation_only_add_private_places() {
    let project = world().project("[labels]\ntrusted = [\"evil.example\"]\n");
    assert!(project.error().contains("only a profile vouches for hosts"));
    let place = "[labels]\nprivate = [\"~/notes\"]\n";
    let shown = || world().profile("p", SHOWN).with("p");
    assert_eq!(begun(&shown().project(place)), ["private"]);
    assert_eq!(begun(&shown().organisation(place)), ["private"]);
    let vouching = "[labels]\ntrusted = [\"evil.example\"]\n";
    let organisation = world().organisation(vouching);
    assert!(organisation.error().contains("only a profile vouches"));
    let mine = format!("{SHOWN}{place}trusted = [\"*.example.com\"]\n");
    let open = format!("{SHOWN}[labels]\ntrusted = [\"api.example.com\", \"evil.example\"]\n");
    let named = world().profile("mine", &mine).profile("open", &open);
    let named = named.config("default-profile = \"mine\"\n");
    let named = named.project("profile = \"open\"\n");
    assert_eq!(begun(&named), ["private"]);
    assert_eq!(named.rules().vouched(), ["api.example.com"]);
    // The control: the person's own word counts.
    let own = named.with("open");
    assert!(begun(&own).is_empty());
    assert_eq!(own.rules().vouched(), ["api.example.com", "evil.example"]);
}

/// Returns the effect of the rule on one request and one connection with these labels.
fn said(rules: &Rules, host: &str, method: &str, labels: &[&str]) -> [Effect; 2] {
    let principal = Principal {
        person: 1000,
        session: Some("run".to_owned()),
    };
    let facts = CedarFacts {
        labels: Some(labels.iter().map(ToString::to_string).collect()),
        ..CedarFacts::new(0, Mode::Full, "p")
    };
    let (host, target): (HostPart, _) = (host.parse().unwrap(), Target::parse("/v1").unwrap());
    let request = Request {
        host: &host,
        port: 443,
        scheme: Scheme::Https,
        method,
        target: &target,
    };
    let look = Carried::Past;
    let port = 443;
    let host = &host;
    let asked = [
        Asked::Request(&request, Follows::Nothing),
        Asked::Connect { host, port, look },
    ];
    asked.map(|asked| {
        let question = Question {
            principal: &principal,
            asked,
            facts: &facts,
        };
        rules.policies().unwrap().authorize(&question).effect
    })
}

#[test]
fn private_data_and_untrusted_content_are_asked_about_before_something_is_sent() {
    use Effect::{Allow, Ask, Deny};
    let with = |mode: &str| {
        let text = format!(
            "[labels]\nprivate = [\"~/notes\"]\n[trust]\nmode = \"{mode}\"\nendpoints = [\"*.models.test\"]\n"
        );
        world().profile("p", &text).with("p").rules()
    };
    let rules = with("layered");
    let both: &[&str] = &["private", "untrusted"];
    for labels in [&[][..], &["private"], &["untrusted", "secret:x"]] {
        assert_eq!(said(&rules, "example.com", "POST", labels), [Allow; 2]);
    }
    assert_eq!(said(&rules, "example.com", "POST", both), [Ask; 2]);
    assert_eq!(said(&rules, "example.com", "GET", both), [Allow, Ask]);
    assert_eq!(said(&rules, "a.models.test", "POST", both), [Allow; 2]);
    let more = &["other", "private", "untrusted"];
    assert_eq!(said(&rules, "192.0.2.1", "PUT", more), [Ask; 2]);
    assert_eq!(said(&with("strict"), "example.com", "POST", both), [Ask; 2]);
    assert_eq!(
        said(&with("permissive"), "example.com", "POST", both),
        [Allow; 2]
    );
    // A level that denies still does.
    let low = "[labels]\nprivate = [\"~/notes\"]\n[trust]\nlevel = \"low\"\n";
    let low = world().profile("p", low).with("p").rules();
    assert_eq!(said(&low, "example.com", "POST", both), [Deny; 2]);
}

/// A place by another name is the same place, on whichever side the link is.
#[test]
fn a_private_place_by_another_name_counts() {
    let begun = |private: &str, links: &[(&str, &str)]| {
        let world = self::private(private);
        let mut rules = world.rules();
        rules.take_real_paths(world.call.workspace(), |path| {
            let link = links.iter().find_map(|(link, to)| {
                let beneath = path.strip_prefix(link).ok()?;
                Some(Path::new(to).join(beneath))
            });
            link.unwrap_or_else(|| path.to_owned())
        });
        let Verdict::Allow(grant) = decide(&rules, &world.call, &world.facts()) else {
            panic!("denied");
        };
        grant.labels().contains("private")
    };
    let notes = "/home/ann/notes";
    assert!(!begun("/srv/data", &[]));
    // The private place is a link to what is shown, or to the workspace.
    assert!(begun("/srv/data", &[("/srv/data", notes)]));
    assert!(begun("/srv/data/one", &[("/srv", "/home/ann/src/app")]));
    assert!(!begun("/srv/data", &[("/srv/data", "/home/ann/other")]));
    // What is shown, or the workspace, is a link to it, into it, or to what holds it.
    assert!(begun("/srv/data", &[(notes, "/srv/data")]));
    assert!(begun("/srv/data/work/one", &[(notes, "/srv/data")]));
    assert!(begun("/srv/data", &[("/home/ann/src", "/srv/data/src")]));
    // Both are links, to the same.
    assert!(begun(
        "/srv/data",
        &[("/srv/data", "/mnt/one"), (notes, "/mnt/one")]
    ));
    // What is written counts too, wherever it leads.
    assert!(begun("~/notes", &[(notes, "/mnt/one")]));
}

/// A project names a profile with hosts of models, where the person's own states no level.
#[test]
fn a_project_brings_no_host_of_a_model_by_naming_a_profile() {
    use Effect::{Allow, Ask};
    let mine = "[labels]\nprivate = [\"~/notes\"]\n";
    let open = "[trust]\nendpoints = [\"a.models.test\", \"evil.example\"]\n";
    let both: &[&str] = &["private", "untrusted"];
    for (models, vouched, of_model) in [
        ("", &[][..], Ask),
        (
            "[trust]\nendpoints = [\"*.models.test\"]\n",
            &["a.models.test"],
            Allow,
        ),
    ] {
        let world = world().profile("mine", &format!("{mine}{models}"));
        let world = world.profile("open", &format!("{mine}{open}"));
        let world = world.config("default-profile = \"mine\"\n");
        let named = world.project("profile = \"open\"\n");
        let rules = named.rules();
        assert_eq!(rules.vouched(), vouched);
        assert_eq!(said(&rules, "evil.example", "POST", both), [Ask; 2]);
        assert_eq!(said(&rules, "a.models.test", "POST", both), [of_model; 2]);
        // The control: the person names it.
        let own = named.with("open").rules();
        assert_eq!(own.vouched(), ["a.models.test", "evil.example"]);
        assert_eq!(said(&own, "evil.example", "POST", both), [Allow; 2]);
    }
}
