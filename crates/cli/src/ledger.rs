//! `atoll ledger`: the record of everything that ran, verified, read, signed and proven.

mod listing;
mod proofs;
mod query;
pub(crate) mod shredding;
mod telemetry;
mod witness;

use std::path::{Path, PathBuf};
use std::time::Duration;

use atoll_engine::configuration::Places;
use atoll_engine::events;
use atoll_engine::export::ocsf;
use atoll_engine::failure::{Doing, Failure, Kind};
use atoll_engine::printable::{printable, printable_json};
use atoll_engine::transparency::{When, checkpoint, give_each, unproven};
use atoll_ledger::{
    Against, Damage, Event, Filter, Ledger, Severity, SigningError, StateDir, Verified,
    VerifierKey, VerifyError, VerifyReport, WitnessFile, export_tiles,
};

use crate::advice;
use crate::arguments::{
    ExportFormat, ExportLedgerArguments, KeyAction, LedgerAction, LedgerArguments, ProveAction,
    ShowLedgerArguments, TailLedgerArguments, VerifyLedgerArguments,
};
use crate::output::Output;
use crate::render;
use listing::Listing;

/// The interval at which `ledger tail --follow` looks for more.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);
/// Events named in a message.
const NAMED_MAX: usize = 8;

/// Carries out one of its commands.
pub fn ledger(arguments: LedgerArguments, output: &Output) -> Result<u8, Failure> {
    let state = || {
        let places = Places::read()?;
        match places.state.exists() {
            true => places.read_state(),
            false => Err(Failure::new("there is no ledger yet")
                .because(format!("{} does not exist", places.state.display()))
                .advise("atoll run -- COMMAND starts a run, and the ledger with it")),
        }
    };
    match arguments.action {
        LedgerAction::Verify(arguments) => verify(&state()?, &arguments, output),
        LedgerAction::Tail(arguments) => tail(&state()?, &arguments, output),
        LedgerAction::Show(arguments) => show(&state()?, &arguments, output),
        LedgerAction::Query(arguments) => query::query(&state()?, &arguments, output),
        LedgerAction::Key(arguments) => match arguments.action {
            None => key(output),
            Some(action) => exchange(&state()?, action, output),
        },
        LedgerAction::Checkpoint => {
            let state = state()?;
            let checkpoint = checkpoint(&state)?;
            output.result(checkpoint.text());
            give_each(&state, &checkpoint, When::Asked).map(|()| 0)
        }
        LedgerAction::Witness(arguments) => witness::give(&state()?, &arguments, output),
        LedgerAction::Prove(arguments) => match arguments.action {
            ProveAction::Inclusion(arguments) => proofs::inclusion(&state()?, &arguments, output),
            ProveAction::Consistency(arguments) => {
                proofs::consistency(&state()?, &arguments, output)
            }
        },
        // Without the ledger: wherever the proof was sent to.
        LedgerAction::CheckProof(arguments) => proofs::check(&arguments, output),
        LedgerAction::Shred(arguments) => shredding::shred(&state()?, &arguments, output),
        LedgerAction::Hold(arguments) => shredding::hold(&state()?, &arguments, true, output),
        LedgerAction::Release(arguments) => shredding::hold(&state()?, &arguments, false, output),
        LedgerAction::Export(arguments) => export(&state()?, &arguments, output),
    }
}

/// Signs how far the ledger is, at the end of a run, and gives that to the witness. Where
/// that cannot be done the run is as good as ever: its events are on disk.
pub fn sign_end(ledger: &Ledger, state: &StateDir, workspace: &Path, output: &Output) {
    let safe = "what is in the ledger is safe";
    match ledger.checkpoint(state) {
        Err(error) => {
            let why = printable(error.to_string().as_bytes());
            output.warn(&format!(
                "the ledger's end could not be signed: {why}; {safe}: {}",
                advice::signing(&error)
            ));
        }
        Ok(checkpoint) => {
            if let Err(failure) = give_each(state, &checkpoint, When::RunEnds { workspace }) {
                let why = failure.why.unwrap_or_default();
                output.warn(&format!(
                    "{} ({}), so that no witness has the ledger's end; {safe}: atoll ledger \
                     witness names another, --never none",
                    failure.what,
                    printable(why.as_bytes())
                ));
            }
        }
    }
}

fn verify(
    state: &StateDir,
    arguments: &VerifyLedgerArguments,
    output: &Output,
) -> Result<u8, Failure> {
    let against = Against {
        key: arguments.key.as_deref().map(read_key).transpose()?,
        witnesses: witnesses(&arguments.witness)?,
    };
    let nothing = |verified: &Verified| verified.witnessed == 0 && !arguments.witness.is_empty();
    match Ledger::verify_against(state, &against) {
        Ok(verified) if nothing(&verified) => Err(Failure::new("nothing was compared")
            .because("there is no checkpoint in what a witness was to have")
            .advise("atoll ledger witness FILE gives a checkpoint to a file")),
        Ok(verified) => {
            let checkpoint = match verified.checkpoint {
                Some(size) => format!(
                    "The newest checkpoint is of {}; its signature and root hold.\n",
                    render::counted(size, "event", "events")
                ),
                None => "There is no checkpoint yet: atoll ledger checkpoint makes one.\n".into(),
            };
            let witnessed = match arguments.witness.is_empty() {
                true => String::new(),
                false => format!(
                    "It is what was witnessed: {}.\n",
                    render::counted(verified.witnessed, "checkpoint", "checkpoints")
                ),
            };
            let lost = verified.keys_lost.iter().map(|seq| {
                format!(
                    "The key that had signed was lost before event {seq}: what it signed is not \
                     compared any more.\n"
                )
            });
            let lost: String = lost.collect();
            let shredded = shredding::proven(state)?;
            output.result(&format!(
                "The ledger is whole: {} in {}.\nroot {}\n{checkpoint}{witnessed}{lost}{shredded}",
                render::counted(verified.events, "event", "events"),
                render::counted(verified.segments, "segment", "segments"),
                verified.root
            ));
            Ok(0)
        }
        Err(VerifyError::Damaged(report)) => {
            for damage in &report.damage {
                output.result(&format!("{}\n", printable(damage.to_string().as_bytes())));
            }
            Err(not_whole(state, &report, &against).of_kind(Kind::Unproven))
        }
        Err(VerifyError::Unreadable(error)) => {
            Err(Failure::new("the ledger cannot be read").because(error))
        }
    }
}

/// Describes a ledger that is not whole, or not signed by the key that it was checked with.
fn not_whole(state: &StateDir, report: &VerifyReport, against: &Against) -> Failure {
    let is_foreign = |one: &Damage| one.severity == Severity::Foreign;
    if report.more == 0 && report.damage.iter().all(is_foreign) {
        let failure = Failure::new("what was signed is not signed by this key").because(
            "its key was lost or replaced, or somebody else has made this ledger; nothing in \
             it contradicts itself",
        );
        let is_own = |one: &Damage| one.place.line.is_none();
        return match against.key.is_none() && report.damage.iter().any(is_own) {
            true => failure.advise(advice::KEY_LOST),
            false => failure.advise("atoll ledger key, where the ledger is, prints its key now"),
        };
    }
    let more = match report.more {
        0 => String::new(),
        more => format!(" and {} more", render::grouped(more)),
    };
    let found = report.damage.len() as u64;
    let found = render::counted(found, "place is named above", "places are named above");
    Failure::new("the ledger is damaged")
        .because(format!("{found}{more}"))
        .advise(format!(
            "keep a copy of {}/ledger; it is evidence",
            state.path().display()
        ))
        .advise("atoll ledger show prints what can still be read")
}

/// Parses a key as `atoll ledger key` prints it.
fn read_key(text: &str) -> Result<VerifierKey, Failure> {
    VerifierKey::parse(text.trim())
        .doing("--key cannot be used")
        .map_err(|failure| failure.advise("atoll ledger key prints it, where the ledger is"))
}

fn witnesses(paths: &[PathBuf]) -> Result<Vec<WitnessFile>, Failure> {
    let read = |path: &PathBuf| WitnessFile::read(path).doing("--witness cannot be read");
    paths.iter().map(read).collect()
}

fn tail(state: &StateDir, arguments: &TailLedgerArguments, output: &Output) -> Result<u8, Failure> {
    let count = usize::try_from(arguments.number).unwrap_or(usize::MAX);
    let mut events =
        Ledger::tail(state, count, Filter::default()).doing("the ledger cannot be read")?;
    let listing = Listing::new(arguments.json, output);
    loop {
        let mut seals = events::followed(state)?;
        for event in events.by_ref() {
            let event = event.doing("the ledger is damaged there")?;
            let event = seals.open(state, event).map_err(events::unreadable)?;
            listing.write(&event);
        }
        if !arguments.follow {
            return Ok(0);
        }
        std::thread::sleep(FOLLOW_INTERVAL);
    }
}

fn show(state: &StateDir, arguments: &ShowLedgerArguments, output: &Output) -> Result<u8, Failure> {
    let run = match &arguments.run {
        None => None,
        Some(text) => Some(crate::finding::find_in_ledger(state, text)?),
    };
    let filter = Filter {
        run,
        ..Filter::default()
    };
    let seals = events::seals(state)?;
    let events = Ledger::events(state, filter).doing("the ledger cannot be read")?;
    let listing = Listing::new(arguments.json, output);
    for event in events {
        let event = event.doing("the ledger is damaged there")?;
        listing.write(&seals.open(event));
    }
    Ok(0)
}

/// Writes one event on one line: its canonical form, except that characters that deceive a terminal
/// are escaped as JSON allows.
fn write_event(event: &Event, output: &Output) {
    let line = event.canonical().unwrap_or_default();
    let line = printable_json(&String::from_utf8_lossy(&line));
    output.result(&format!("{line}\n"));
}

fn key(output: &Output) -> Result<u8, Failure> {
    let state = Places::read()?.open_state()?;
    let key = Ledger::key(&state).map_err(|error| {
        Failure::new("the ledger's key cannot be used")
            .because(&error)
            .advise(error)
    })?;
    output.result(&format!("{key}\n"));
    Ok(0)
}

/// Replaces the signing key, or one that is lost, and gives the new checkpoint to the witness.
fn exchange(read: &StateDir, action: KeyAction, output: &Output) -> Result<u8, Failure> {
    if !read.path().join("ledger").exists() {
        return Err(Failure::new("the ledger has no events yet")
            .because("there is nothing to hand over")
            .advise("atoll run -- COMMAND starts a run"));
    }
    let state = Places::read()?.open_state()?;
    let ledger = atoll_engine::events::open_ledger(&state)?;
    let failed = |error: SigningError| {
        Failure::new("the ledger's key cannot be exchanged")
            .because(&error)
            .advise(error)
    };
    let exchanged = match action {
        KeyAction::Rotate => ledger.rotate_key(&state),
        KeyAction::Lost => ledger.replace_lost_key(&state),
    };
    let key = exchanged.map_err(failed)?;
    output.result(&format!("{key}\n"));
    output.say("This is the new key: give it to whoever checks the ledger.\n");
    let checkpoint = ledger.checkpoint(&state).map_err(failed)?;
    give_each(&state, &checkpoint, When::Asked).map(|()| 0)
}

fn export(
    state: &StateDir,
    arguments: &ExportLedgerArguments,
    output: &Output,
) -> Result<u8, Failure> {
    match (&arguments.tiles, &arguments.otlp, arguments.format) {
        (Some(directory), _, _) => tiles(state, directory, output),
        (None, Some(to), _) => telemetry::send(state, to, arguments, output),
        (None, None, format) => {
            let format = format.unwrap_or(ExportFormat::Jsonl);
            lines(state, format, arguments.unsealed, output)
        }
    }
}

/// Writes every event on a line.
fn lines(
    state: &StateDir,
    format: ExportFormat,
    unsealed: bool,
    output: &Output,
) -> Result<u8, Failure> {
    let seals = unsealed.then(|| events::seals(state)).transpose()?;
    let names = rustix::system::uname();
    let host = names.nodename().to_string_lossy();
    for event in Ledger::events(state, Filter::default()).doing("the ledger cannot be read")? {
        let event = event.doing("the ledger is damaged there")?;
        let event = match &seals {
            Some(seals) => match format {
                ExportFormat::Jsonl => seals.open_with_proof(event),
                ExportFormat::Ocsf => seals.open(event),
            },
            None => event,
        };
        match format {
            ExportFormat::Jsonl => write_event(&event, output),
            ExportFormat::Ocsf => {
                let line = printable_json(&ocsf::ocsf(&event, &host).to_string());
                output.result(&format!("{line}\n"));
            }
        }
    }
    Ok(0)
}

fn tiles(state: &StateDir, directory: &Path, output: &Output) -> Result<u8, Failure> {
    let named = printable(directory.as_os_str().as_encoded_bytes());
    if directory.exists() && !directory.is_dir() {
        return Err(Failure::new(format!("{named} is no directory"))
            .because("an export is one, of many files")
            .advise("atoll ledger export --tiles DIR"));
    }
    let exported = export_tiles(state, directory)
        .map_err(|error| unproven("the ledger cannot be exported", error))?;
    output.say(&format!(
        "{}, {} of hashes, {} of events: {}\n",
        render::counted(exported.events, "event", "events"),
        render::counted(exported.tiles, "tile", "tiles"),
        render::counted(exported.bundles, "bundle", "bundles"),
        named
    ));
    if !exported.too_large.is_empty() {
        let named = exported.too_large.iter().take(NAMED_MAX);
        let named: Vec<String> = named.map(u64::to_string).collect();
        output.warn(&format!(
            "{} too large for a bundle, so that the bundles around them were left out ({}); \
             atoll ledger show prints them",
            render::counted(exported.too_large.len() as u64, "event is", "events are"),
            named.join(", ")
        ));
    }
    Ok(0)
}
