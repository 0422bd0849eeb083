//! `atoll profile check`: the mistakes of a file, and the effect of its profile on this host.

use std::path::{Path, PathBuf};

use atoll_engine::configuration::{self, Places, PolicyFiles};
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::printable::printable;
use atoll_engine::secrets::existing;
use atoll_model::SecretName;
use atoll_policy::{
    FileKind, Requested, RequestedProfile, Rules, SourceFile, check, list, nearest, remarks,
};

use crate::arguments::CheckProfileArguments;
use crate::output::Output;
use crate::render::excerpt;

/// The subject of a check: a file, or a profile by its name.
struct Checked {
    /// The file or profile, as messages name it.
    name: String,
    /// The content; `None` for a profile that comes with Atoll.
    content: Option<Vec<u8>>,
    /// The profile, if it is one.
    requested: Option<RequestedProfile>,
}

/// Checks a file of policy, or a profile by its name.
pub fn check_profile(arguments: &CheckProfileArguments, output: &Output) -> Result<u8, Failure> {
    let places = Places::read()?;
    let checked = checked(&arguments.file, &places)?;
    let name = &checked.name;
    let content = checked.content.as_deref().unwrap_or_default();
    let problems = check(content, name);
    for problem in &problems {
        tell(&problem.to_string(), output);
        output.result(&excerpt(content, problem.line, problem.column));
    }
    if !problems.is_empty() {
        return Ok(1);
    }
    let mut notes: Vec<String> = Vec::new();
    for (line, remark) in remarks(content, name) {
        notes.push(format!("{name}:{line}: note: {remark}"));
    }
    if let Some(profile) = checked.requested {
        let requested = Requested {
            profile: Some(profile),
            ..Requested::default()
        };
        let files = PolicyFiles::read(&places, None)?;
        let host = configuration::host_facts(&places)?;
        match files.compile(&requested, "".as_ref(), &host) {
            Ok(rules) => {
                notes.extend(notices(&rules));
                notes.extend(missing(&rules, &places));
            }
            Err(error) => {
                tell(&format!("{name}: {error}"), output);
                return Ok(1);
            }
        }
    }
    output.say(&format!("{name}: no problems\n"));
    for note in notes {
        output.say(&format!("{}\n", printable(note.as_bytes())));
    }
    Ok(0)
}

/// Returns the notices of a run by these rules, or of one where everything were there.
fn notices(rules: &Rules) -> Vec<String> {
    let optional = rules.unusable_optional();
    let all = rules.notices().iter().chain(&optional);
    all.map(|notice| format!("{}: note: {}", notice.origin, notice.text))
        .collect()
}

/// Returns what the rules need and this host does not have, so that no run by them would start.
fn missing(rules: &Rules, places: &Places) -> Vec<String> {
    let absent = rules.absent_files();
    let absent = absent
        .iter()
        .map(|notice| format!("{}: warning: {}", notice.origin, notice.text));
    let mut all: Vec<String> = absent.collect();
    let wanted = rules.secrets_wanted();
    if wanted.is_empty() {
        return all;
    }
    // One that cannot be read is told by whatever uses it.
    let Ok(vault) = existing(places) else {
        return all;
    };
    let is_kept = |name: &SecretName| {
        let vault = vault.as_ref();
        vault.is_some_and(|vault| vault.secrets().contains_key(name))
    };
    let gone = wanted.iter().filter(|(name, _)| !is_kept(name));
    all.extend(gone.map(|(name, origin)| {
        format!(
            "{origin}: warning: the vault has no secret {name}, and no run by this starts without: \
             atoll secret set {name}"
        )
    }));
    all
}

fn tell(text: &str, output: &Output) {
    for line in text.lines() {
        output.result(&format!("{}\n", printable(line.as_bytes())));
    }
}

/// Reads a file, if there is one of that name or the name cannot be a profile's.
fn checked(path: &Path, places: &Places) -> Result<Checked, Failure> {
    let name = path.display().to_string();
    let is_named = !name.contains('/') && path.extension().is_none_or(|end| end != "toml");
    if is_named && !path.exists() {
        return by_name(name, places);
    }
    let content = std::fs::read(path)
        .doing(&format!("{name} cannot be read"))
        .map_err(|failure| failure.advise("atoll profile list names the files of your profiles"))?;
    let file = || SourceFile::new(name.clone(), content.clone());
    let requested = match FileKind::of(&name) {
        FileKind::Profile => Some(RequestedProfile::File(file())),
        FileKind::Project | FileKind::Organisation | FileKind::UserConfig => None,
    };
    Ok(Checked {
        requested,
        content: Some(content),
        name,
    })
}

fn by_name(name: String, places: &Places) -> Result<Checked, Failure> {
    let all = list(&configuration::own_profiles(places)).doing("the profiles cannot be listed")?;
    let Some(one) = all.iter().find(|one| one.name == name) else {
        let failure = Failure::new(format!("there is no profile {name:?}, and no such file"));
        let known: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        return Err(match nearest(&name, known) {
            Some(meant) => failure.advise(format!("did you mean {meant}?")),
            None => failure.advise("atoll profile list"),
        });
    };
    let file = PathBuf::from(&one.file);
    let content = match file.is_absolute() {
        true => Some(std::fs::read(&file).doing(&format!("{} cannot be read", one.file))?),
        false => None,
    };
    Ok(Checked {
        name: one.file.clone(),
        content,
        requested: Some(RequestedProfile::Named(name)),
    })
}
