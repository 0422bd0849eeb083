//! From what the solver found to a request that somebody can make.
//!
//! The solver's names are any text. Here they become names, paths and addresses that stand where
//! its names stand: of what policies name they are in the same. Whether the policies then decide
//! as the solver says is asked of Atoll itself.

use std::collections::BTreeSet;

use atoll_cedar::{Action, Case, Served};
use atoll_model::network::{HostName, Target};
use atoll_model::{Mode, WorkspaceMode};
use cedar_policy::{Context, EntityUid, EvalResult, Record};
use cedar_policy_symcc::Env;

use crate::world::{self, is_beneath, is_called, is_host_in};

/// The longest text that is taken over, bytes.
const TEXT_BYTES_MAX: usize = 1_024;
/// Words of a path that have a name.
const WORDS_NAMED: usize = 12;

/// Takes one thing away that a case says, or says it as is usual.
type Simpler = fn(&mut Case, &Case);

/// Each thing of a case that may not matter.
pub(crate) const SIMPLER: [Simpler; 24] = [
    |case, _| case.task = None,
    |case, _| case.purpose = None,
    |case, _| case.trust = None,
    |case, _| case.confidence = None,
    |case, _| case.labels = None,
    |case, _| case.served = None,
    |case, _| case.session = None,
    |case, _| case.mode = None,
    |case, _| case.profile = None,
    |case, _| case.look = None,
    |case, _| case.scheme = None,
    |case, _| case.workspace = None,
    |case, _| (case.root, case.nesting) = (false, false),
    |case, _| case.terminal = false,
    |case, _| case.control = false,
    |case, _| case.within = None,
    |case, _| case.model = false,
    |case, _| case.body = false,
    |case, usual| case.person = usual.person,
    |case, usual| case.time = usual.time,
    |case, _| case.port = case.port.map(|_| 80),
    |case, _| case.port = case.port.map(|_| 443),
    |case, _| case.method = case.method.as_ref().map(|_| "GET".to_owned()),
    |case, _| case.path = case.path.as_ref().map(|_| "/".to_owned()),
];

/// The requests that a finding can stand for, the likeliest first.
pub(crate) fn cases(found: &Env, action: Action, named: &BTreeSet<EntityUid>) -> Vec<Case> {
    let request = &found.request;
    let (Some(principal), Some(resource), Some(context)) =
        (request.principal(), request.resource(), request.context())
    else {
        return Vec::new();
    };
    let within = |kind: &str, name: &String| {
        let one = named.iter().find(|one| {
            one.type_name().basename() == kind && one.id().unescaped() == name.as_str()
        });
        one.is_some_and(|one| one == resource || found.entities.is_ancestor_of(one, resource))
    };
    let Some(kind) = world::resource(action) else {
        return Vec::new();
    };
    let all = world::names(named, kind);
    let holds: Vec<&String> = all.iter().filter(|name| within(kind, name)).collect();
    let own = resource.id().unescaped();
    let resources = match kind {
        "Host" => hosts(own, &all, &holds, address(context)),
        "Path" => paths(own, &all, &holds),
        "Program" => programs(own, &all, &holds),
        "Port" => others(own, &all, ["3000", "3001", "3002", "8080"].iter()),
        _ => others(own, &all, ["other", "another", "some-other"].iter()),
    };
    let mut case = Case {
        action: action.name().to_owned(),
        ..Case::default()
    };
    who(found, principal, named, &mut case);
    facts(context, &mut case);
    let mut cases = Vec::new();
    for resource in resources {
        let case = Case {
            resource,
            ..case.clone()
        };
        cases.extend(of_action(context, action, case));
    }
    cases
}

fn who(found: &Env, principal: &EntityUid, named: &BTreeSet<EntityUid>, case: &mut Case) {
    let persons = world::names(named, "Person");
    let free = (1_000..u32::MAX).find(|number| !persons.contains(&number.to_string()));
    case.person = free;
    let is_one = |one: &&EntityUid| {
        let is_person = one.type_name().basename() == "Person";
        is_person && (*one == principal || found.entities.is_ancestor_of(one, principal))
    };
    if let Some(one) = named.iter().find(is_one) {
        case.person = one.id().unescaped().parse().ok();
    }
    if principal.type_name().basename() == "Session" {
        let name = principal.id().unescaped();
        let sessions = world::names(named, "Session");
        let is_named = sessions.iter().any(|one| one == name);
        case.session = Some(if is_named { name } else { "any" }.to_owned());
    }
}

fn facts(context: &Context, case: &mut Case) {
    case.time = long(context, "time")
        .and_then(|time| u64::try_from(time).ok())
        .unwrap_or(0);
    case.mode = match text(context, "mode").as_deref() {
        Some("fence") => Some(Mode::Fence),
        Some(_) | None => None,
    };
    case.profile = text(context, "profile").filter(|name| name != "default");
    case.task = text(context, "task");
    case.purpose = text(context, "purpose");
    case.trust = text(context, "trust");
    case.confidence = long(context, "confidence").and_then(|one| u8::try_from(one).ok());
    case.labels = context.get("labels").as_ref().and_then(texts);
    case.served = record(context, "served").as_ref().map(served);
}

fn texts(found: &EvalResult) -> Option<BTreeSet<String>> {
    let EvalResult::Set(all) = found else {
        return None;
    };
    let texts = all.iter().filter_map(|one| match one {
        EvalResult::String(text) => Some(text.clone()),
        _ => None,
    });
    Some(texts.collect())
}

fn served(found: &Record) -> Served {
    let text = |name: &str| match found.get(name) {
        Some(EvalResult::String(text)) => Some(text.clone()),
        _ => None,
    };
    Served {
        tenant: text("tenant").unwrap_or_default(),
        caller: text("caller"),
        template: text("template").unwrap_or_default(),
        metadata: found.get("metadata").and_then(texts).unwrap_or_default(),
        volumes: found.get("volumes").and_then(texts).unwrap_or_default(),
    }
}

/// The same with what is of its action: of a request one for each path that can be meant.
fn of_action(context: &Context, action: Action, mut case: Case) -> Vec<Case> {
    let port = |name| long(context, name).and_then(|port| u16::try_from(port).ok());
    let truth = |name| matches!(context.get(name), Some(EvalResult::Bool(true)));
    match action {
        Action::Run => {
            case.workspace = match text(context, "workspace").as_deref() {
                Some("live") => Some(WorkspaceMode::Live),
                Some("read-only") => Some(WorkspaceMode::ReadOnly),
                Some(_) | None => None,
            };
            case.root = truth("root");
            case.nesting = truth("nesting");
            case.terminal = truth("terminal");
        }
        Action::Exec => {
            case.terminal = truth("terminal");
            case.directory = text(context, "directory");
            case.sandbox = text(context, "sandbox");
            if let Some(EvalResult::Set(all)) = context.get("arguments") {
                let texts = all.iter().filter_map(|one| match one {
                    EvalResult::String(text) => Some(text.clone()),
                    _ => None,
                });
                case.arguments = texts.collect();
            }
        }
        Action::Connect => {
            case.model = truth("model");
            case.port = port("port");
            case.look = text(context, "look").filter(|look| look != "into");
        }
        Action::Publish => case.port = port("outside"),
        Action::Promote => {
            case.control = truth("control");
            if let Some(within) = text(context, "within").as_deref().and_then(inner) {
                // Beneath what it is in, it is in the same.
                let path = within.trim_end_matches('/');
                case.resource = format!("{}/{path}", case.resource.trim_end_matches('/'));
                case.within = Some(within.to_owned());
            }
        }
        Action::Resolve => case.model = truth("model"),
        Action::Request => {
            case.model = truth("model");
            case.port = port("port");
            case.scheme = text(context, "scheme").filter(|scheme| scheme != "https");
            let methods = methods(context);
            let targets = targets(context);
            let each = methods.iter().flat_map(|method| {
                let of = |target: &String| Case {
                    method: Some(method.clone()),
                    body: truth("sends") && ["GET", "HEAD"].contains(&method.as_str()),
                    path: Some(target.clone()),
                    ..case.clone()
                };
                targets.iter().map(of).collect::<Vec<_>>()
            });
            return each.collect();
        }
        Action::Read | Action::Write | Action::UseCredential => {}
        Action::Escalate => {
            let seconds = long(context, "seconds");
            case.seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
        }
        Action::Administer => case.operation = text(context, "operation"),
        Action::Call => {}
    }
    vec![case]
}

/// A path in a workspace, as a case says it, of one as policies compare it.
fn inner(within: &str) -> Option<&str> {
    let inner = within.strip_prefix('/')?;
    let parts = inner.strip_suffix('/').unwrap_or(inner);
    let is_part = |part: &str| !["", ".", ".."].contains(&part);
    parts.split('/').all(is_part).then_some(inner)
}

fn methods(context: &Context) -> Vec<String> {
    let own = text(context, "method");
    let loose = record(context, "loose").and_then(|loose| match loose.get("method") {
        Some(EvalResult::String(method)) => Some(method.clone()),
        _ => None,
    });
    let is_method =
        |one: &String| !one.is_empty() && one.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let mut all: Vec<String> = own.into_iter().chain(loose).filter(is_method).collect();
    all.extend(["GET", "OTHER"].map(str::to_owned));
    all
}

/// Paths by the whole, by their words, by how deep they are, and by the liberal reading.
fn targets(context: &Context) -> Vec<String> {
    let query = text(context, "query").map(|query| format!("?{query}"));
    let mut all = Vec::new();
    all.extend(text(context, "path"));
    let segments = record(context, "segments");
    all.extend(
        segments
            .as_ref()
            .and_then(|words| by_words(words, long(context, "depth"))),
    );
    if let Some(loose) = record(context, "loose") {
        if let Some(EvalResult::String(path)) = loose.get("path") {
            all.push(path.clone());
        }
        let depth = match loose.get("depth") {
            Some(EvalResult::Long(depth)) => Some(*depth),
            _ => None,
        };
        if let Some(EvalResult::Record(words)) = loose.get("segments") {
            all.extend(by_words(words, depth));
        }
    }
    all.push("/".to_owned());
    let unclear = matches!(context.get("unclear"), Some(EvalResult::Bool(true)));
    if unclear {
        let twice: Vec<String> = all.iter().map(|path| format!("{path}//x")).collect();
        all.extend(twice);
    }
    let whole = |path: String| path + query.as_deref().unwrap_or_default();
    let all = all.into_iter().map(whole);
    let mut all: Vec<String> = all.filter(|one| Target::parse(one).is_ok()).collect();
    all.dedup();
    all
}

fn by_words(words: &Record, depth: Option<i64>) -> Option<String> {
    let depth = usize::try_from(depth?).ok()?;
    let count = depth.min(2 * WORDS_NAMED);
    let word = |name: String| match words.get(name) {
        Some(EvalResult::String(word)) if !word.is_empty() => Some(word.clone()),
        _ => None,
    };
    let each = (1..=count).map(|at| {
        let first = word(format!("s{at}"));
        let last = || word(format!("e{}", count + 1 - at));
        first.or_else(last).unwrap_or_else(|| "x".to_owned())
    });
    Some(format!("/{}", each.collect::<Vec<_>>().join("/")))
}

fn hosts(
    own: &str,
    all: &[String],
    holds: &[&String],
    address: Option<std::net::IpAddr>,
) -> Vec<String> {
    if all.iter().any(|one| one == own) && !own.starts_with("*.") {
        return vec![own.to_owned()];
    }
    if let Some(address) = address {
        return vec![address.to_string()];
    }
    // The longest one is within all others.
    let deepest = holds.iter().max_by_key(|name| name.len());
    let fresh = ["x", "other", "some.other"].map(|one| match deepest {
        Some(over) => format!("{one}.{}", over.trim_start_matches("*.")),
        None => format!("{one}.example"),
    });
    let plain = ["other.invalid", "other.test"].map(str::to_owned);
    let given = HostName::parse(own).is_ok().then(|| own.to_owned());
    let candidates = given.into_iter().chain(fresh).chain(plain);
    same(candidates, all, holds, is_host_in)
}

fn paths(own: &str, all: &[String], holds: &[&String]) -> Vec<String> {
    if all.iter().any(|one| one == own) {
        return vec![own.to_owned()];
    }
    let deepest = holds.iter().max_by_key(|name| name.len());
    let over = deepest.map_or("", |over| over.trim_end_matches('/'));
    let candidates = ["x", "other", "some/other"].map(|one| format!("{over}/{one}"));
    same(candidates.into_iter(), all, holds, is_beneath)
}

fn programs(own: &str, all: &[String], holds: &[&String]) -> Vec<String> {
    if all.iter().any(|one| one == own) {
        return vec![own.to_owned()];
    }
    let candidates = match holds.first() {
        Some(over) => ["/usr/bin", "/opt", "/x"].map(|place| format!("{place}/{over}")),
        None => ["x", "other", "another"].map(str::to_owned),
    };
    same(candidates.into_iter(), all, holds, is_called)
}

/// Those of the candidates that nobody names, and that are in just these.
fn same(
    candidates: impl Iterator<Item = String>,
    all: &[String],
    holds: &[&String],
    is_in: fn(&str, &str) -> bool,
) -> Vec<String> {
    let is_same = |one: &String| {
        let agrees = |name: &String| is_in(one, name) == holds.contains(&name);
        !all.contains(one) && all.iter().all(agrees)
    };
    candidates.filter(is_same).take(1).collect()
}

fn others<'a>(
    own: &str,
    all: &[String],
    mut candidates: impl Iterator<Item = &'a &'a str>,
) -> Vec<String> {
    if all.iter().any(|one| one == own) {
        return vec![own.to_owned()];
    }
    let free = candidates.find(|one| !all.iter().any(|name| name == *one));
    free.map(|one| (*one).to_owned()).into_iter().collect()
}

/// The address of a host, and of several ones the first.
fn address(context: &Context) -> Option<std::net::IpAddr> {
    let Some(EvalResult::ExtensionValue(written)) = context.get("ip") else {
        return None;
    };
    let quoted = written.split('"').nth(1)?;
    quoted.split('/').next()?.parse().ok()
}

fn text(context: &Context, name: &str) -> Option<String> {
    match context.get(name) {
        Some(EvalResult::String(text)) if text.len() <= TEXT_BYTES_MAX => Some(text),
        _ => None,
    }
}

fn long(context: &Context, name: &str) -> Option<i64> {
    match context.get(name) {
        Some(EvalResult::Long(number)) => Some(number),
        _ => None,
    }
}

fn record(context: &Context, name: &str) -> Option<Record> {
    match context.get(name) {
        Some(EvalResult::Record(record)) => Some(record),
        _ => None,
    }
}
