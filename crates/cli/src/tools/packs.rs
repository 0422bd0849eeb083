//! `atoll tools install`, `uninstall` and `sign`: packs of tools, shown before they count.

use std::io::{self, Read};
use std::path::{Component, Path};

use atoll_engine::configuration::Places;
use atoll_engine::failure::{Doing, Failure, Kind};
use atoll_engine::printable::printable;
use atoll_ledger::VerifierKey;
use atoll_store::OrganisationKey;
use atoll_tools::{PACK_BYTES_MAX, Pack, PackFiles, Registry, Tool, ToolSwitches, pack_files};

use super::profile;
use crate::arguments::{InstallToolsArguments, SignToolsArguments};
use crate::consent::consent;
use crate::output::Output;

/// The first bytes of a file of gzip (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Shows a pack, and installs it if the person agrees.
pub(super) fn install(
    tools: &ToolSwitches,
    arguments: &InstallToolsArguments,
    output: &Output,
) -> Result<u8, Failure> {
    let shown = printable(arguments.path.as_os_str().as_encoded_bytes());
    let failed = format!("{shown} cannot be installed");
    let files = match arguments.path.is_dir() {
        true => pack_files(&arguments.path),
        false => archived(&arguments.path),
    };
    let files = files.doing(&failed)?;
    let name = Pack::name_in(&files).doing(&failed)?;
    let before = Pack::before(&name, &Places::read()?.state).doing(&failed)?;
    let key = signer(arguments, before.as_ref().map(|(key, _)| key), &failed)?;
    let pack = Pack::of(files, &key).doing(&failed)?;
    if let Some((_, serial)) = before.filter(|(_, serial)| *serial > pack.serial()) {
        let why = format!("it is number {}, and {serial} was here", pack.serial());
        return Err(Failure::new(failed)
            .because(why)
            .advise("ask its maker for the latest one"));
    }
    let within = Registry::of_pack(&pack);
    if let Some(problem) = within.problems().first() {
        return Err(Failure::new(failed).because(super::told(problem)));
    }
    refuse_doubles(&tools.registry(), &within, &pack).doing(&failed)?;
    let agreed = match (arguments.yes, output.can_ask) {
        (true, _) => Ok(()),
        (false, false) => Err("nobody can be asked here"),
        (false, true) => consent(&rows(&pack, &within), "install it", output)?,
    };
    agreed.map_err(|why| {
        let failure = Failure::new(format!("{name} is not installed")).because(why);
        let failure = failure.advise(format!("atoll tools install {shown}, at a terminal"));
        failure.of_kind(Kind::Denied)
    })?;
    tools.install(&pack)?;
    let count = within.tools().count();
    output.say(&format!(
        "{name} {} is installed: {count} tools. Servers among them need `atoll tools pin`, too.\n",
        printable(pack.version().as_bytes())
    ));
    Ok(0)
}

/// Removes a pack.
pub(super) fn uninstall(tools: &ToolSwitches, name: &str, output: &Output) -> Result<u8, Failure> {
    tools.uninstall(name)?;
    output.say(&format!("{} is removed.\n", printable(name.as_bytes())));
    Ok(0)
}

/// Signs a pack.
pub(super) fn sign(arguments: &SignToolsArguments, output: &Output) -> Result<u8, Failure> {
    let file = std::path::absolute(&arguments.key).doing("--key is not usable")?;
    let key = OrganisationKey::read(&file).doing("--key is not usable");
    let key = key.map_err(|failure| {
        failure.advise("atoll policy organisation key FILE --name NAME makes a key")
    })?;
    let (name, serial) = Pack::sign(&arguments.directory, &key)?;
    output.say(&format!(
        "{name}, number {serial}, is signed. Who installs it names this key:\n"
    ));
    output.result(&format!("{}\n", key.verifier()));
    Ok(0)
}

/// Returns the key that has to have signed it.
fn signer(
    arguments: &InstallToolsArguments,
    before: Option<&VerifierKey>,
    failed: &str,
) -> Result<VerifierKey, Failure> {
    let named = arguments.signer.as_deref();
    let named = named.map(|text| VerifierKey::parse(text.trim()));
    let named = named.transpose().doing("--signer is no key")?;
    match (named, before) {
        (Some(named), _) => Ok(named),
        (None, Some(before)) => Ok(before.clone()),
        (None, None) => Err(Failure::new(failed)
            .because("nobody has said whose signature counts")
            .advise("--signer KEY names its maker's key, as they give it out")),
    }
}

/// Refuses a pack with a tool of a name that is taken: neither would count.
fn refuse_doubles(there: &Registry, within: &Registry, pack: &Pack) -> Result<(), String> {
    let own = format!("packs/{}/", pack.name());
    let is_taken = |tool: &Tool| {
        let before = there.tool(tool.name.as_str());
        before.is_some_and(|before| !before.file.contains(&own))
    };
    match within.tools().find(|tool| is_taken(tool)) {
        Some(tool) => Err(format!("there is another tool {}", tool.name)),
        None => Ok(()),
    }
}

/// Returns the rows shown to the person: what it is, and all that it says, line by line.
fn rows(pack: &Pack, within: &Registry) -> Vec<String> {
    let text = |text: &str| printable(text.as_bytes());
    let mut rows = vec![
        format!("pack {} {}", pack.name(), text(pack.version())),
        format!("  {}", text(pack.description())),
        format!("  signed by {}, number {}", pack.key(), pack.serial()),
    ];
    for tool in within.tools() {
        let (effect, of) = (tool.effect.name(), profile(tool));
        rows.push(format!(
            "  tool {} ({effect}), profile {}",
            tool.name,
            text(of)
        ));
    }
    for (name, bytes) in pack.files() {
        rows.push(format!("{}:", text(name)));
        let content = String::from_utf8_lossy(bytes);
        rows.extend(content.lines().map(|line| format!("  {}", text(line))));
    }
    rows
}

/// Reads the files of an archive: all of one directory, or of none.
fn archived(path: &Path) -> Result<PackFiles, String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    let most = PACK_BYTES_MAX as u64 * 2;
    let read = file.take(most + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    let text: Box<dyn Read> = match bytes.starts_with(&GZIP) {
        true => Box::new(flate2::read::GzDecoder::new(&*bytes)),
        false => Box::new(&*bytes),
    };
    unpacked(text.take(most)).map_err(|error| error.to_string())?
}

fn unpacked(from: impl Read) -> io::Result<Result<PackFiles, String>> {
    let mut files = PackFiles::new();
    let mut total = 0;
    for entry in tar::Archive::new(from).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        if entry.header().entry_type().is_dir() {
            continue;
        }
        let is_plain =
            |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        let is_one = entry.header().entry_type().is_file() && path.components().all(is_plain);
        let name = path.file_name().and_then(|name| name.to_str());
        let (true, Some(name)) = (is_one, name) else {
            return Ok(Err(format!("{:?} is no file of a pack", path.display())));
        };
        let mut content = Vec::new();
        let read = entry.by_ref().take(PACK_BYTES_MAX as u64 + 1);
        total += io::copy(&mut { read }, &mut content)?;
        if total > PACK_BYTES_MAX as u64 {
            return Ok(Err(format!("it is larger than {PACK_BYTES_MAX} bytes")));
        }
        if files.insert(name.to_owned(), content).is_some() {
            return Ok(Err(format!("{name:?} is in it twice")));
        }
    }
    Ok(Ok(files))
}
