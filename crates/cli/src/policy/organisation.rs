//! `atoll policy organisation`: an organisation's layer signed, checked, and its key pinned.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use atoll_engine::configuration::organisation::{self, Layer, Pin, Place, SIGNATURE};
use atoll_engine::configuration::{Places, read_optional};
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::printable::printable;
use atoll_ledger::{Durability, VerifierKey, host_text};
use atoll_policy::{Problem, check, check_policies};
use atoll_store::{Day, Manifest, OrganisationFault, OrganisationKey, Signed};
use serde_json::{Value, json};

use crate::arguments::{
    OrganisationAction, OrganisationKeyArguments, SignOrganisationArguments,
    StatusOrganisationArguments, TrustOrganisationArguments, VerifyOrganisationArguments,
};
use crate::output::Output;
use crate::render;

/// Signs a layer, checks it, or pins who signs it.
pub(super) fn organisation(action: OrganisationAction, output: &Output) -> Result<u8, Failure> {
    match action {
        OrganisationAction::Key(arguments) => key(&arguments, output),
        OrganisationAction::Sign(arguments) => sign(&arguments, output),
        OrganisationAction::Verify(arguments) => verify(&arguments, output),
        OrganisationAction::Trust(arguments) => trust(&arguments, output),
        OrganisationAction::Status(arguments) => status(&arguments, output),
    }
}

fn key(arguments: &OrganisationKeyArguments, output: &Output) -> Result<u8, Failure> {
    let path = std::path::absolute(&arguments.file).doing("FILE is not usable")?;
    let shown = path.display();
    let found = match &arguments.name {
        Some(name) => OrganisationKey::make(&path, name),
        None => OrganisationKey::read(&path),
    };
    let found = found.map_err(|fault| match arguments.name {
        None => Failure::new(format!("there is no key in {shown}"))
            .because(&fault)
            .advise("with --name NAME one is made there"),
        Some(_) if path.symlink_metadata().is_ok() => Failure::new("no key was made")
            .because(format!("{shown} is there already"))
            .advise("without --name the key that there is is printed"),
        Some(_) => Failure::new("no key was made").because(&fault),
    })?;
    if arguments.name.is_some() {
        output.say(&format!(
            "A key was made in {shown}: it signs, so keep it to yourself. This is pinned:\n"
        ));
    }
    output.result(&format!("{}\n", found.verifier()));
    Ok(0)
}

fn sign(arguments: &SignOrganisationArguments, output: &Output) -> Result<u8, Failure> {
    let directory = absolute(&arguments.directory)?;
    let not_signed = |why: String| Failure::new("nothing is signed").because(why);
    let until = match &arguments.until {
        None => None,
        Some(text) => Some(Day::parse(text).ok_or_else(|| {
            not_signed(format!("--until {text:?} is no day"))
                .advise("a day is written as --until 2027-06-30")
        })?),
    };
    if let Some(until) = until.filter(|until| Day::of(seconds()) > *until) {
        return Err(not_signed(format!("--until {until} is over"))
            .advise("a layer that is over stops every run: name a day to come, or none"));
    }
    let mut keys = Vec::with_capacity(arguments.key.len());
    for file in &arguments.key {
        let file = std::path::absolute(file).doing("--key is not usable")?;
        let key = OrganisationKey::read(&file).map_err(|fault| {
            not_signed(fault.to_string())
                .advise("atoll policy organisation key FILE --name NAME makes a key")
        })?;
        keys.push(key);
    }
    let layer = Layer::of(&directory)?;
    if let Some(problem) = problems(&layer).first() {
        return Err(not_signed(problem.to_string())
            .advise("a layer with mistakes stops every run: correct that line first"));
    }
    let path = directory.join(SIGNATURE);
    let signers: Vec<&VerifierKey> = keys.iter().map(OrganisationKey::verifier).collect();
    let before = last_serial(&path, &signers)?;
    let serial = serial(&arguments.serial, before)?;
    let name = signers.first().map_or("", |key| key.name());
    let unfit = |fault: OrganisationFault| not_signed(fault.to_string());
    let manifest =
        Manifest::of(Signed::Layer, name, serial, until, layer.named()).map_err(unfit)?;
    let note = manifest.sign(&keys).map_err(unfit)?;
    write(&path, note.as_bytes(), 0o644)?;
    let files = render::counted(manifest.files().count() as u64, "file", "files");
    output.say(&format!(
        "{name}, number {serial}{}: {files} signed, in {}.\n",
        until_when(&manifest),
        path.display()
    ));
    Ok(0)
}

/// Returns the mistakes in the files of a layer.
fn problems(layer: &Layer) -> Vec<Problem> {
    let bounds = layer.bounds.iter();
    let bounds = bounds.flat_map(|file| check(&file.content, &file.name));
    bounds
        .chain(layer.policies.iter().flat_map(check_policies))
        .collect()
}

/// Returns the greatest serial number that these keys have signed there.
fn last_serial(path: &Path, keys: &[&VerifierKey]) -> Result<u64, Failure> {
    let Some(note) = read_optional(path)? else {
        return Ok(0);
    };
    let signed = keys
        .iter()
        .filter_map(|key| Manifest::open(Signed::Layer, &note.content, key).ok());
    signed.map(|one| one.serial()).max().ok_or_else(|| {
        Failure::new("nothing is signed")
            .because(format!(
                "none of these keys has signed {}, so its number is not known",
                path.display()
            ))
            .advise("name a key that did as well (--key again), or move that file away")
    })
}

fn serial(text: &str, before: u64) -> Result<u64, Failure> {
    let asked = match text {
        "next" => before.checked_add(1),
        number => number.parse().ok(),
    };
    let why = format!("--serial {text}: it has to be a number greater than {before}");
    asked.filter(|one| *one > before).ok_or_else(|| {
        Failure::new("nothing is signed")
            .because(why)
            .advise("without --serial it is the next one")
    })
}

fn verify(arguments: &VerifyOrganisationArguments, output: &Output) -> Result<u8, Failure> {
    let key = match &arguments.key {
        None => None,
        Some(text) => Some(parsed(text)?),
    };
    let place = match (&arguments.directory, key) {
        (directory, Some(key)) => Place {
            directory: match directory {
                Some(directory) => absolute(directory)?,
                None => here()?.directory,
            },
            pins: vec![Pin {
                path: PathBuf::from("--key"),
                key,
            }],
        },
        (Some(directory), None) => Place {
            directory: absolute(directory)?,
            pins: here()?.pins,
        },
        (None, None) => here()?,
    };
    if place.pins.is_empty() {
        return Err(Failure::new("there is nothing to check by")
            .because("no key is pinned")
            .advise("atoll policy organisation verify DIRECTORY --key KEY"));
    }
    let (_, manifests) = place.read()?;
    let today = Day::of(seconds());
    for manifest in &manifests {
        if manifest.until().is_some_and(|until| today > until) {
            let until = organisation::until(manifest).unwrap_or_default();
            let why = format!("{}: it counted until {until}", place.directory.display());
            return Err(Failure::new("the layer is over")
                .because(why)
                .advise("have the organisation sign it anew"));
        }
    }
    if arguments.json {
        output.json(&in_json(&place, &manifests));
    } else {
        output.result(&in_words(&place, &manifests));
    }
    Ok(0)
}

fn trust(arguments: &TrustOrganisationArguments, output: &Output) -> Result<u8, Failure> {
    let key = parsed(&arguments.key)?;
    let places = Places::read()?;
    let path = places.organisation_key();
    let found = match arguments.replace {
        // Whatever is there, also what is no key.
        true => None,
        false => organisation::pinned(&path)?,
    };
    if let Some(found) = found.filter(|found| found.key != key) {
        return Err(Failure::new("another key is pinned already")
            .because(format!("{} has {}", path.display(), found.key))
            .advise(
                "--replace puts this one in its place: be sure that the organisation says so",
            ));
    }
    let state = places.open_state()?;
    let ledger = atoll_engine::events::open_ledger(&state)?;
    let body = json!({ "key": key.to_string(), "path": host_text(&path) });
    ledger
        .record(None, "organisation.trusted", body, Durability::Durable)
        .doing("the decision cannot be recorded")?;
    std::fs::create_dir_all(&places.config)
        .doing(&format!("{} cannot be made", places.config.display()))?;
    write(&path, format!("{key}\n").as_bytes(), 0o600)?;
    // Whatever mode the directory has.
    organisation::pinned(&path)?;
    output.say(&format!(
        "From now on nothing starts but with the layer of {} that this key ({}) has signed.\n",
        key.name(),
        key.short_id()
    ));
    if let Err(failure) = here().and_then(|place| place.read()) {
        output.warn(&format!(
            "until that is there nothing starts at all: {}",
            failure.why.as_ref().unwrap_or(&failure.what)
        ));
        for advice in crate::hints::texts(&failure.hints) {
            output.say(&format!("try: {advice}\n"));
        }
    }
    Ok(0)
}

fn status(arguments: &StatusOrganisationArguments, output: &Output) -> Result<u8, Failure> {
    let places = Places::read()?;
    let config = read_optional(&places.config.join("config.toml"))?;
    let place = Place::of(&places, config.as_ref())?;
    // As at the start of a run: also what was put back, or is over.
    let layer = match organisation::read(&places, config.as_ref()) {
        Ok(layer) => layer,
        Err(failure) => {
            tell_refused(&place, &failure, arguments.json, output);
            return Err(failure);
        }
    };
    let (_, manifests) = place.read()?;
    if arguments.json {
        output.json(&in_json(&place, &manifests));
        return Ok(0);
    }
    output.result(&match (layer.is_empty(), manifests.is_empty()) {
        (true, true) => "no organisation says anything here, and no key is pinned\n".to_owned(),
        (false, true) => {
            let files = render::counted(layer.files().count() as u64, "file", "files");
            format!(
                "{}: {files}, whoever has written them: no key is pinned\n",
                place.directory.display()
            )
        }
        (_, false) => in_words(&place, &manifests),
    });
    Ok(0)
}

/// Names the place of a layer that stops every run, and its required signer, so that it can be
/// found.
fn tell_refused(place: &Place, failure: &Failure, is_json: bool, output: &Output) {
    // What is signed is told, whether it counts or not.
    let manifests = place.read().map(|(_, manifests)| manifests);
    let manifests = manifests.unwrap_or_default();
    if is_json {
        let mut told = in_json(place, &manifests);
        if let Some(members) = told.as_object_mut() {
            members.insert("refused".to_owned(), json!(failure.why));
        }
        output.json(&told);
    } else {
        output.result(&in_words(place, &manifests));
    }
}

/// Describes the last day of validity.
fn until_when(manifest: &Manifest) -> String {
    let until = organisation::until(manifest);
    until.map_or_else(String::new, |until| format!(", until {until}"))
}

fn in_words(place: &Place, manifests: &[Manifest]) -> String {
    let mut text = String::new();
    let mut line = |name: &str, said: &str| {
        text.push_str(&format!("{name:<12}  {}\n", printable(said.as_bytes())));
    };
    line("directory", &place.directory.display().to_string());
    for (at, pin) in place.pins.iter().enumerate() {
        if let Some(manifest) = manifests.get(at) {
            let signed = format!(
                "by {}, number {}{}",
                manifest.name(),
                manifest.serial(),
                until_when(manifest)
            );
            line("signed", &signed);
        }
        line("key", &format!("{} ({})", pin.key, pin.path.display()));
    }
    if let Some(manifest) = manifests.first() {
        for file in manifest.files() {
            line("file", file);
        }
    }
    text
}

fn in_json(place: &Place, manifests: &[Manifest]) -> Value {
    let signed = place.pins.iter().zip(manifests).map(|(pin, manifest)| {
        json!({
            "name": manifest.name(),
            "serial": manifest.serial(),
            "until": organisation::until(manifest),
            "key": pin.key.to_string(),
            "pinned-in": host_text(&pin.path),
        })
    });
    let files = manifests.first().map(|one| one.files().collect::<Vec<_>>());
    let pins = place.pins.iter();
    let pins = pins.map(|pin| json!({ "key": pin.key.to_string(), "path": host_text(&pin.path) }));
    json!({
        "directory": host_text(&place.directory),
        "pins": pins.collect::<Vec<_>>(),
        "signed": signed.collect::<Vec<_>>(),
        "files": files.unwrap_or_default(),
    })
}

/// Returns the place of the layer that counts here.
fn here() -> Result<Place, Failure> {
    let places = Places::read()?;
    let config = read_optional(&places.config.join("config.toml"))?;
    Place::of(&places, config.as_ref())
}

fn parsed(text: &str) -> Result<VerifierKey, Failure> {
    VerifierKey::parse(text.trim()).map_err(|why| {
        let failure = Failure::new("this is no key")
            .because(why)
            .advise("a key is one word, as atoll policy organisation key FILE prints it");
        match Path::new(text).is_file() {
            true => failure.advise(format!("of what a file holds: \"$(cat {text})\"")),
            false => failure,
        }
    })
}

fn absolute(directory: &Path) -> Result<PathBuf, Failure> {
    let what = format!("{} cannot be used", directory.display());
    directory.canonicalize().doing(&what)
}

fn seconds() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

/// Replaces a file, whole or not at all.
fn write(path: &Path, content: &[u8], mode: u32) -> Result<(), Failure> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    let written = match std::fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => options.open(&new).and_then(|mut file| {
            file.write_all(content)?;
            file.sync_all()?;
            std::fs::rename(&new, path)
        }),
    };
    written.doing(&format!("{} cannot be written", path.display()))
}
