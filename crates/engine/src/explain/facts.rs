//! The facts that decided a question: those that give another answer when one of them is changed
//! alone.

use std::collections::BTreeSet;

use atoll_cedar::edited::text_of;
use atoll_cedar::{Case, Deciding, Effect, Served};
use atoll_model::WorkspaceMode;
use atoll_model::conduct::REPUTATION_MAX;
use atoll_policy::{Requested, RequestedProfile};

use super::asking::Asking;
use super::verdict::rank;

/// The most values named by policies that are tried for one member.
const VALUES_MAX: usize = 32;
/// Methods that everybody knows.
pub const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
const LEVELS: [&str; 5] = ["none", "low", "medium", "high", "full"];
/// The highest confidence, percent.
const CONFIDENCE_MAX: u8 = 100;
const MODES: [&str; 3] = ["strict", "layered", "permissive"];
const NOT_STATED: &str = "not stated";

/// A fact, and a value of it that gives another answer.
pub struct Fact {
    /// The member's name in the context of policies.
    pub member: &'static str,
    /// The value now.
    pub now: String,
    /// The other value.
    pub other: String,
    /// The answer with the other value.
    pub effect: Effect,
}

/// The values that policies name, to be tried.
#[derive(Default)]
struct Named {
    texts: BTreeSet<String>,
    numbers: BTreeSet<u64>,
}

/// One value of a member, and the question with it.
type Variation = (String, Requested, Case);

/// Returns every fact that matters, with the value that changes most.
pub fn that_matter(asking: &Asking<'_>) -> Vec<Fact> {
    let named = named(asking);
    let own = asking.verdict.effect;
    let mut facts = Vec::new();
    for (member, now, values) in variations(asking, &named) {
        let mut found: Option<(String, Effect)> = None;
        for (other, requested, case) in values {
            if other == now {
                continue;
            }
            let Some(effect) = asking.effect(&requested, &case) else {
                continue;
            };
            let distance = |effect: Effect| rank(effect).abs_diff(rank(own));
            let is_further = found
                .as_ref()
                .is_none_or(|(_, best)| distance(effect) > distance(*best));
            if effect != own && is_further {
                found = Some((other, effect));
            }
        }
        if let Some((other, effect)) = found {
            facts.push(Fact {
                member,
                now,
                other,
                effect,
            });
        }
    }
    facts
}

/// Collects the texts and numbers in the policies that took part in the decision.
fn named(asking: &Asking<'_>) -> Named {
    let mut named = Named::default();
    let all = asking.verdict.of_policies.iter();
    let policies = all.flat_map(|(_, one)| one.deciding.iter().chain(&one.others));
    for policy in policies {
        for literal in literals(&asking.deciders.files, policy) {
            match literal.parse() {
                Ok(number) => named.numbers.insert(number),
                Err(_) => named.texts.insert(literal),
            };
        }
    }
    named
}

/// Texts and numbers as they stand in a policy.
fn literals(
    files: &[(atoll_cedar::Layer, Vec<atoll_cedar::PolicyFile>)],
    policy: &Deciding,
) -> Vec<String> {
    let text = text_of(files, policy).unwrap_or_default();
    let mut found = Vec::new();
    for (at, part) in text.split('"').enumerate() {
        if at % 2 == 1 {
            found.push(part.to_owned());
            continue;
        }
        let words = part.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let is_number = |word: &&str| word.parse::<u64>().is_ok();
        found.extend(words.filter(is_number).map(str::to_owned));
    }
    found.truncate(VALUES_MAX);
    found
}

/// Returns each member with its value and the others to try.
fn variations(asking: &Asking<'_>, named: &Named) -> Vec<(&'static str, String, Vec<Variation>)> {
    let mut all = stated(asking, named);
    match asking.case.action.as_str() {
        "request" => all.extend(of_request(asking, named)),
        "connect" => {
            let looks = ["into", "past"].map(|look| (look.to_owned(), look));
            let look = asking
                .case
                .look
                .clone()
                .unwrap_or_else(|| "into".to_owned());
            all.push((
                "look",
                look,
                of_case(asking, looks, |case, look| {
                    case.look = Some(look.to_owned());
                }),
            ));
            all.push(ports(asking, named));
        }
        "promote" => all.push(flag(asking, "control", asking.case.control, |case, on| {
            case.control = on;
        })),
        "run" => all.extend(of_run(asking)),
        _ => {}
    }
    all
}

fn of_case<Value>(
    asking: &Asking<'_>,
    values: impl IntoIterator<Item = (String, Value)>,
    set: impl Fn(&mut Case, Value),
) -> Vec<Variation> {
    let of = |(told, value): (String, Value)| {
        let mut case = asking.case.clone();
        set(&mut case, value);
        (told, asking.requested.clone(), case)
    };
    values.into_iter().map(of).collect()
}

fn flag(
    asking: &Asking<'_>,
    member: &'static str,
    now: bool,
    set: impl Fn(&mut Case, bool),
) -> (&'static str, String, Vec<Variation>) {
    let other = [((!now).to_string(), !now)];
    (member, now.to_string(), of_case(asking, other, set))
}

fn ports(asking: &Asking<'_>, named: &Named) -> (&'static str, String, Vec<Variation>) {
    let numbers = named.numbers.iter().copied().chain([80, 443]);
    let numbers = numbers.filter_map(|number| u16::try_from(number).ok());
    let numbers = numbers.filter(|port| *port != 0);
    let is_plain = asking.case.scheme.as_deref() == Some("http");
    let now = asking.case.port.unwrap_or(if is_plain { 80 } else { 443 });
    let values = numbers.map(|port| (port.to_string(), port));
    let values = of_case(asking, values, |case, port| case.port = Some(port));
    ("port", now.to_string(), values)
}

fn of_request(asking: &Asking<'_>, named: &Named) -> Vec<(&'static str, String, Vec<Variation>)> {
    let case = &asking.case;
    let or = |value: &Option<String>, otherwise: &str| {
        value.clone().unwrap_or_else(|| otherwise.to_owned())
    };
    let methods = METHODS.map(|one| (one.to_owned(), one));
    let methods = of_case(asking, methods, |case, method| {
        case.method = Some(method.to_owned());
    });
    let schemes = ["https", "http"].map(|one| (one.to_owned(), one));
    let schemes = of_case(asking, schemes, |case, scheme| {
        case.scheme = Some(scheme.to_owned());
    });
    let paths = named.texts.iter().filter(|text| text.starts_with('/'));
    let paths = paths.map(|text| text.replace('*', "x"));
    let paths = paths
        .chain(["/".to_owned()])
        .map(|path| (path.clone(), path));
    let paths = of_case(asking, paths, |case, path| case.path = Some(path));
    vec![
        ("method", or(&case.method, "GET"), methods),
        flag(asking, "body", case.body, |case, on| case.body = on),
        ("path", or(&case.path, "/"), paths),
        ("scheme", or(&case.scheme, "https"), schemes),
        ports(asking, named),
    ]
}

fn of_run(asking: &Asking<'_>) -> Vec<(&'static str, String, Vec<Variation>)> {
    let modes = [
        WorkspaceMode::CopyOnWrite,
        WorkspaceMode::Live,
        WorkspaceMode::ReadOnly,
    ];
    let told = |mode: WorkspaceMode| {
        match mode {
            WorkspaceMode::CopyOnWrite => "copy-on-write",
            WorkspaceMode::Live => "live",
            WorkspaceMode::ReadOnly => "read-only",
        }
        .to_owned()
    };
    let case = &asking.case;
    let now = case.workspace.unwrap_or(WorkspaceMode::CopyOnWrite);
    let modes = modes.map(|mode| (told(mode), mode));
    let modes = of_case(asking, modes, |case, mode| case.workspace = Some(mode));
    vec![
        ("workspace", told(now), modes),
        flag(asking, "root", case.root, |case, on| case.root = on),
        flag(asking, "nesting", case.nesting, |case, on| {
            case.nesting = on
        }),
        flag(asking, "terminal", case.terminal, |case, on| {
            case.terminal = on
        }),
    ]
}

/// Returns the facts stated of a run, and the time.
fn stated(asking: &Asking<'_>, named: &Named) -> Vec<(&'static str, String, Vec<Variation>)> {
    let case = &asking.stated;
    let or = |value: &Option<String>| value.clone().unwrap_or_else(|| NOT_STATED.to_owned());
    let words = |known: &[&str]| -> Vec<String> {
        let known = known.iter().map(|one| (*one).to_owned());
        known.chain([NOT_STATED.to_owned()]).collect()
    };
    let texts: Vec<String> = named.texts.iter().cloned().collect();
    let names = texts.clone();
    let texts = [texts, vec![NOT_STATED.to_owned()]].concat();
    let value = |text: &String| (text != NOT_STATED).then(|| text.clone());
    let of = |values: &[String], set: &dyn Fn(&mut Requested, &mut Case, Option<String>)| {
        let of = |text: &String| {
            let (mut requested, mut case) = (asking.requested.clone(), asking.case.clone());
            set(&mut requested, &mut case, value(text));
            (text.clone(), requested, case)
        };
        values.iter().map(of).collect::<Vec<Variation>>()
    };
    let mut all = vec![
        (
            "trust",
            or(&case.trust),
            of(&words(&LEVELS), &|requested, case, level| {
                requested.trust.clone_from(&level);
                case.trust = level;
            }),
        ),
        (
            "task",
            or(&case.task),
            of(&texts, &|requested, case, task| {
                requested.task.clone_from(&task);
                case.task = task;
            }),
        ),
        (
            "purpose",
            or(&case.purpose),
            of(&texts, &|requested, case, purpose| {
                requested.purpose.clone_from(&purpose);
                case.purpose = purpose;
            }),
        ),
        (
            "profile",
            or(&case.profile),
            of(&names, &|requested, case, name| {
                requested.profile = name.clone().map(RequestedProfile::Named);
                case.profile = name;
            }),
        ),
    ];
    if asking.sources.is_some() {
        let modes = MODES.map(str::to_owned);
        let now = asking.requested.mode.clone();
        let now = now.unwrap_or_else(|| NOT_STATED.to_owned());
        all.push((
            "trust mode",
            now,
            of(&modes, &|requested, _, mode| {
                requested.mode = mode;
            }),
        ));
    }
    all.extend(of_the_question(asking, named));
    all
}

/// Returns the facts that no option of a run states.
fn of_the_question(
    asking: &Asking<'_>,
    named: &Named,
) -> [(&'static str, String, Vec<Variation>); 5] {
    [
        tenants(asking, named),
        confidence(asking, named),
        reputations(asking, named),
        labels(asking, named),
        times(asking, named),
    ]
}

/// Varies the confidence around the numbers that policies name, and without one stated.
fn confidence(asking: &Asking<'_>, named: &Named) -> (&'static str, String, Vec<Variation>) {
    let told = |stated: Option<u8>| {
        stated.map_or_else(|| NOT_STATED.to_owned(), |percent| percent.to_string())
    };
    let numbers = named.numbers.iter().flat_map(|number| around(*number));
    let numbers = numbers.filter_map(|number| u8::try_from(number).ok());
    let numbers = numbers.filter(|percent| *percent <= CONFIDENCE_MAX);
    let values = numbers.map(Some).chain([None]);
    let values = values.map(|stated| (told(stated), stated));
    let values = of_case(asking, values, |case, stated| case.confidence = stated);
    ("confidence", told(asking.stated.confidence), values)
}

/// Varies the reputation around the numbers that policies name, and without one.
fn reputations(asking: &Asking<'_>, named: &Named) -> (&'static str, String, Vec<Variation>) {
    let numbers = named.numbers.iter().flat_map(|number| around(*number));
    let numbers = numbers.filter_map(|number| u8::try_from(number).ok());
    let numbers = numbers.filter(|points| *points <= REPUTATION_MAX);
    let values = numbers
        .chain([0])
        .map(|points| (points.to_string(), points));
    let values = of_case(asking, values, |case, points| {
        case.reputation = Some(points);
    });
    let now = asking.stated.reputation.unwrap_or(0);
    ("reputation", now.to_string(), values)
}

/// Varies the labels: each stated one left out, each that policies name added, and none stated.
fn labels(asking: &Asking<'_>, named: &Named) -> (&'static str, String, Vec<Variation>) {
    type Labels = Option<BTreeSet<String>>;
    let told = |stated: &Labels| match stated {
        None => NOT_STATED.to_owned(),
        Some(labels) if labels.is_empty() => "none".to_owned(),
        Some(labels) => labels.iter().cloned().collect::<Vec<_>>().join(", "),
    };
    let now = &asking.stated.labels;
    let own = now.clone().unwrap_or_default();
    let without = own.iter().map(|label| {
        let others = own.iter().filter(|one| *one != label);
        others.cloned().collect::<BTreeSet<_>>()
    });
    let further = named.texts.iter().map(|label| {
        let mut more = own.clone();
        more.insert(label.clone());
        more
    });
    let values = without.chain(further).map(Some).chain([None]);
    let values = values.map(|stated| (told(&stated), stated));
    let values = of_case(asking, values, |case, stated| case.labels = stated);
    ("labels", told(now), values)
}

/// Varies the tenant whose sandbox it is, and that it is one of a server.
fn tenants(asking: &Asking<'_>, named: &Named) -> (&'static str, String, Vec<Variation>) {
    let now = &asking.stated.served;
    let told = |served: &Option<Served>| {
        let tenant = served.as_ref().map(|served| served.tenant.clone());
        tenant.unwrap_or_else(|| NOT_STATED.to_owned())
    };
    let others = named.texts.iter().map(|tenant| Served {
        tenant: tenant.clone(),
        ..now.clone().unwrap_or_default()
    });
    let values = others.map(Some).chain([None]);
    let values = values.map(|served| (told(&served), served));
    let values = of_case(asking, values, |case, served| case.served = served);
    ("served.tenant", told(now), values)
}

/// Varies the time around the numbers that policies name.
fn times(asking: &Asking<'_>, named: &Named) -> (&'static str, String, Vec<Variation>) {
    let times = named.numbers.iter().flat_map(|time| around(*time));
    let times = times.map(|time| (time.to_string(), time));
    let times = of_case(asking, times, |case, time| case.time = time);
    ("time", asking.stated.time.to_string(), times)
}

fn around(number: u64) -> [u64; 3] {
    [number.saturating_sub(1), number, number.saturating_add(1)]
}
