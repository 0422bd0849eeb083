//! `atoll data`: what is kept about a run, a session or a tenant.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use atoll_data::retention::{Class, Goes, Item, Kind, Place, Rules, kept};
use atoll_engine::configuration::Places;
use atoll_engine::events::{open_ledger, seals};
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::printable::printable;
use atoll_ledger::{Evidence, Holds, format_time, runs_of};
use atoll_model::{RunId, format_bytes};
use atoll_store::Store;
use serde_json::{Value, json};

use crate::arguments::{AboutDataArguments, DataAction, DataArguments};
use crate::meant::Meant;
use crate::output::Output;
use crate::render::counted;
use crate::serve::existing_store;

/// Carries out `atoll data`.
///
/// # Errors
/// When nothing is known of what is asked about, or it cannot be read.
pub fn data(arguments: &DataArguments, output: &Output) -> Result<u8, Failure> {
    match &arguments.action {
        DataAction::About(arguments) => about(arguments, output),
    }
}

fn about(arguments: &AboutDataArguments, output: &Output) -> Result<u8, Failure> {
    let places = Places::read()?;
    let rules = Rules::read(&places)?;
    let meant = Meant::find(&places.read_state()?, &arguments.what, None)?;
    let state = places.open_state()?;
    let ledger = open_ledger(&state)?;
    let store = existing_store(&places)?;
    let place = Place {
        state: &state,
        ledger: &ledger,
        store: store.as_ref().map(|store| store as &dyn Store),
    };
    let runs = runs_of(&state, &BTreeSet::from([meant.what.clone()]));
    let runs = runs.doing("the ledger cannot be read")?;
    let holds = Holds::read(&state).doing("what is held cannot be told")?;
    let is_of = |item: &Item| {
        let of_tenant = item.tenant.clone().map(Evidence::Tenant);
        of_tenant.as_ref() == Some(&meant.what) || item.runs.iter().any(|run| runs.contains(run))
    };
    let mut items = kept(&place)?;
    items.retain(is_of);
    items.sort_by_key(|item| (item.kind.class(), item.kind.name(), item.since));
    let seals = seals(&state)?;
    let shredded: Vec<&RunId> = runs.iter().filter(|run| seals.is_shredded(run)).collect();
    let is_held = holds.has(&meant.what);
    if arguments.json {
        output.json(&json!({
            "about": about_json(&meant.what),
            "held": is_held,
            "items": items.iter().map(|one| item_json(one, &rules, &holds)).collect::<Vec<_>>(),
            "shredded": shredded,
        }));
        return Ok(0);
    }
    output.say(&format!("Kept about {}:\n", meant.name));
    for item in &items {
        output.result(&line(item, &rules, &holds));
    }
    if items.is_empty() {
        output.say("  nothing but the events of the ledger\n");
    }
    if !shredded.is_empty() {
        let runs = counted(shredded.len() as u64, "run", "runs");
        output.say(&format!(
            "Shredded: the sealed content of {runs}; digests remain.\n"
        ));
    }
    if is_held {
        let what = &arguments.what;
        output.say(&format!(
            "Held: nothing of it is removed or shredded before `atoll ledger release {}`.\n",
            printable(what.as_bytes())
        ));
    }
    Ok(0)
}

fn about_json(what: &Evidence) -> Value {
    match what {
        Evidence::Run(run) => json!({ "run": run.as_str() }),
        Evidence::Session(session) => json!({ "session": session.as_str() }),
        Evidence::Tenant(tenant) => json!({ "tenant": tenant }),
    }
}

fn line(item: &Item, rules: &Rules, holds: &Holds) -> String {
    let class = item.kind.class().map_or("", Class::name);
    let goes = match item.goes(rules, holds) {
        Goes::At(at) if at <= SystemTime::now() => "goes at the next sweep".to_owned(),
        Goes::At(at) => format!("goes {}", format_time(at)),
        Goes::Never => "stays until it is removed".to_owned(),
        Goes::Stays(why) => format!("stays: {why}"),
        Goes::Held => "held".to_owned(),
    };
    let room = match item.kind {
        Kind::Sealed => "key kept".to_owned(),
        Kind::Run(_)
        | Kind::Checkpoint
        | Kind::UndoNotes
        | Kind::Download
        | Kind::Artifacts
        | Kind::Hook
        | Kind::Paused
        | Kind::Snapshot
        | Kind::Events
        | Kind::Template
        | Kind::Volume => format_bytes(item.bytes),
    };
    let (kind, id) = (item.kind.name(), printable(item.id.as_bytes()));
    format!("  {class:<8}  {kind:<14}  {id}  {room:>9}  {goes}\n")
}

/// Describes a thing for machines.
pub fn item_json(item: &Item, rules: &Rules, holds: &Holds) -> Value {
    let milliseconds = |time: SystemTime| {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    };
    let (goes_ms, why) = match item.goes(rules, holds) {
        Goes::At(at) => (Some(milliseconds(at)), None),
        Goes::Never => (None, None),
        Goes::Stays(why) => (None, Some(why)),
        Goes::Held => (None, Some("held")),
    };
    json!({
        "class": item.kind.class().map(Class::name),
        "kind": item.kind.name(),
        "id": item.id,
        "bytes": item.bytes,
        "since_ms": milliseconds(item.since),
        "goes_ms": goes_ms,
        "stays": why,
        "runs": item.runs,
        "tenant": item.tenant,
    })
}
