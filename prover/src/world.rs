//! Which requests there are: what the solver has to know of names, paths and numbers, so that it
//! finds none that nobody can make.
//!
//! Each of these is a sentence about every request that Atoll puts, said as a policy that forbids
//! its opposite. What is not said here leaves the solver more requests than there are: then it
//! can find one that does not exist, which is told as such, and what it proves holds all the same.

use std::collections::BTreeSet;
use std::net::IpAddr;

use atoll_cedar::Action;
use cedar_policy::{EntityUid, Policy, PolicyId};

/// The latest time that anything is proven of, seconds since 1970: the end of the year 9999.
const TIME_MAX: i64 = 253_402_300_799;
/// How many words of a path have a name: as in the schema.
const WORDS_NAMED: usize = 12;

/// An address is nobody's name, and so no model's.
const NO_MODEL: &str = "context has ip && context.model";

/// What an action is done with, as the schema names it; nothing where nobody asks for it.
pub(crate) fn resource(action: Action) -> Option<&'static str> {
    match action {
        Action::Run | Action::Exec => Some("Program"),
        Action::Read | Action::Write | Action::Promote => Some("Path"),
        Action::Resolve | Action::Connect | Action::Request => Some("Host"),
        Action::UseCredential => Some("Credential"),
        Action::Publish => Some("Port"),
        Action::Escalate | Action::Administer => Some("Run"),
        Action::Call => None,
    }
}

/// Policies that forbid what no request is, where policies with this text name these entities and
/// a run is trusted so.
pub(crate) fn impossible(
    action: Action,
    named: &BTreeSet<EntityUid>,
    text: &str,
    trust: Option<&str>,
) -> Result<Vec<Policy>, String> {
    let mut all = of_context(action, text);
    if let Some(level) = trust {
        let level = quoted(level);
        all.push(format!("!(context has trust && context.trust == {level})"));
    }
    all.extend(of_principals(named));
    match resource(action) {
        Some("Host") => all.extend(of_hosts(&names(named, "Host"), action)),
        Some("Path") => all.extend(of_trees(&names(named, "Path"), "Path", is_beneath)),
        Some("Program") => all.extend(of_trees(&names(named, "Program"), "Program", is_called)),
        Some(_) | None => {}
    }
    let policy = |(at, condition): (usize, String)| {
        let text = format!(
            "forbid(principal, action == Action::\"{}\", resource) when {{ {condition} }};",
            action.name()
        );
        let id = PolicyId::new(format!("no request {at}"));
        Policy::parse(Some(id), text).map_err(|error| format!("{condition}: {error}"))
    };
    all.into_iter().enumerate().map(policy).collect()
}

/// The names of this kind that policies speak of.
pub(crate) fn names(named: &BTreeSet<EntityUid>, kind: &str) -> Vec<String> {
    let of = named
        .iter()
        .filter(|one| one.type_name().basename() == kind);
    of.map(|one| one.id().unescaped().to_owned()).collect()
}

fn of_context(action: Action, text: &str) -> Vec<String> {
    let mut all = vec![
        one_of("context.mode", &["full", "fence"]),
        between("context.time", TIME_MAX),
        format!(
            "context has confidence && {}",
            between("context.confidence", i64::from(u8::MAX))
        ),
    ];
    let port = || between("context.port", i64::from(u16::MAX));
    match action {
        Action::Run => {
            let modes = ["copy-on-write", "live", "read-only"];
            all.push(one_of("context.workspace", &modes));
        }
        Action::Connect => {
            all.extend([port(), one_of("context.look", &["into", "past"])]);
            all.push(NO_MODEL.to_owned());
        }
        Action::Publish => all.push(between("context.outside", i64::from(u16::MAX))),
        Action::Request => {
            all.extend([port(), one_of("context.scheme", &["http", "https"])]);
            all.push("context has bytes".to_owned());
            all.push(NO_MODEL.to_owned());
            let reads = "[\"GET\", \"HEAD\"].contains(context.method)";
            all.push(format!("!({reads}) && !context.sends"));
            all.extend(of_words(text));
        }
        Action::Read | Action::Write | Action::Resolve | Action::UseCredential => {}
        Action::Promote => {
            let wrong = ["*//*", "*/./*", "*/../*", "*/.", "*/.."];
            let wrong = wrong.map(|one| format!("context.within like \"{one}\""));
            let is_wrong = wrong.join(" || ");
            let is_inner = "context.within like \"/*\" && context.within != \"/\"";
            all.push(format!(
                "context has within && (!({is_inner}) || {is_wrong})"
            ));
        }
        Action::Exec => {}
        Action::Escalate => all.push("context has seconds && context.seconds < 0".to_owned()),
        Action::Call | Action::Administer => {}
    }
    all
}

/// A path has as many words as it is deep, and none of them has a `/`. A method reads the same in
/// capitals as the liberal reading says.
fn of_words(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    for of in ["context", "context.loose"] {
        all.push(between(&format!("{of}.depth"), i64::from(u16::MAX)));
        for number in 1..=WORDS_NAMED {
            for end in ["s", "e"] {
                let word = format!("{end}{number}");
                if !text.contains(&word) {
                    continue;
                }
                let has = format!("{of}.segments has {word}");
                all.push(format!("{has} && {of}.depth < {number}"));
                all.push(format!("!({has}) && {of}.depth >= {number}"));
                all.push(format!("{has} && {of}.segments.{word} like \"*/*\""));
            }
        }
    }
    let methods = text.split('"').filter(|word| {
        let is_capital = |byte: u8| byte.is_ascii_uppercase();
        !word.is_empty() && word.bytes().all(is_capital)
    });
    for method in methods.collect::<BTreeSet<_>>() {
        all.push(format!(
            "context.method == \"{method}\" && context.loose.method != \"{method}\""
        ));
    }
    all
}

/// Nobody is in a group, and a session is one person's.
fn of_principals(named: &BTreeSet<EntityUid>) -> Vec<String> {
    let mut all = Vec::new();
    for kind in ["Group", "Service", "Agent", "Subagent"] {
        let names = names(named, kind);
        all.extend(
            names
                .iter()
                .map(|name| format!("principal in {}", id(kind, name))),
        );
    }
    let persons = names(named, "Person");
    for (at, one) in persons.iter().enumerate() {
        for other in persons.iter().skip(at + 1) {
            let (one, other) = (id("Person", one), id("Person", other));
            all.push(format!("principal in {one} && principal in {other}"));
        }
    }
    for session in names(named, "Session") {
        let session = id("Session", &session);
        // What is the session itself is in no other one.
        all.push(format!("principal in {session} && principal != {session}"));
    }
    all
}

fn of_hosts(names: &[String], action: Action) -> Vec<String> {
    let mut all = of_trees(names, "Host", is_host_in);
    for name in names {
        if name.starts_with("*.") {
            all.push(format!("resource == {}", id("Host", name)));
        }
    }
    if action == Action::Resolve {
        return all;
    }
    for name in names {
        let host = id("Host", name);
        match name.parse::<IpAddr>() {
            Ok(address) if address.to_string() == *name => {
                let is = format!("context has ip && context.ip == ip(\"{address}\")");
                all.push(format!("resource == {host} && !({is})"));
                all.push(format!("{is} && resource != {host}"));
            }
            // An address is in no name, and no name is an address.
            Ok(_) | Err(_) => all.push(format!("context has ip && resource in {host}")),
        }
    }
    all
}

/// Names that are in each other, as a function of two names tells: what is in one is in all that
/// this is in, and in nothing beside them. A name is where it is.
fn of_trees(names: &[String], kind: &str, is_in: fn(&str, &str) -> bool) -> Vec<String> {
    let mut all = Vec::new();
    for one in names {
        let within = format!("resource in {}", id(kind, one));
        if !can_hold(kind, one) {
            all.push(format!("{within} && resource != {}", id(kind, one)));
        }
        if kind == "Path" && one == "/" {
            all.push(format!("!({within})"));
        }
        for other in names.iter().filter(|other| *other != one) {
            let beside = format!("resource in {}", id(kind, other));
            if is_in(one, other) {
                all.push(format!("{within} && !({beside})"));
            } else if one < other && !is_in(other, one) {
                all.push(format!("{within} && {beside}"));
            }
        }
    }
    all
}

/// Whether anything but itself can be in it.
fn can_hold(kind: &str, name: &str) -> bool {
    match kind {
        "Host" => name.starts_with("*."),
        "Program" => !name.contains('/'),
        _ => true,
    }
}

/// Whether a host is in a name that begins with `*.`.
pub(crate) fn is_host_in(one: &str, over: &str) -> bool {
    let plain = one.strip_prefix('*').unwrap_or(one);
    let is_name = one.parse::<IpAddr>().is_err();
    over.strip_prefix('*')
        .is_some_and(|end| is_name && one != over && plain.ends_with(end) && plain != end)
}

/// Whether a path is beneath a directory.
pub(crate) fn is_beneath(one: &str, over: &str) -> bool {
    one != over && std::path::Path::new(one).starts_with(over)
}

/// Whether a command as it is typed has this last name.
pub(crate) fn is_called(one: &str, over: &str) -> bool {
    one != over && one.rsplit('/').next() == Some(over)
}

fn one_of(member: &str, values: &[&str]) -> String {
    let values: Vec<String> = values.iter().map(|one| format!("\"{one}\"")).collect();
    format!("!([{}].contains({member}))", values.join(", "))
}

fn between(member: &str, most: i64) -> String {
    format!("({member} < 0 || {member} > {most})")
}

/// An entity as policies write it.
pub(crate) fn id(kind: &str, name: &str) -> String {
    format!("{kind}::{}", quoted(name))
}

/// A text as policies write it.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for one in text.chars() {
        match one {
            '"' | '\\' => out.extend(['\\', one]),
            ' '..='~' => out.push(one),
            other => out.push_str(&format!("\\u{{{:x}}}", u32::from(other))),
        }
    }
    out.push('"');
    out
}
