//! Commands about Atoll itself: `gc`, `profile`, `trust`, `doctor`,
//! `completions`, `man`.

mod checking;
mod collecting;
mod doctor;
mod held;

use std::path::{Path, PathBuf};

use atoll_engine::configuration::{self, PROJECT_FILE, Places, PolicyFiles, write_configuration};
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::printable::printable;
use atoll_engine::shell::word;
use atoll_ledger::{Durability, Ledger, forget_tellings, host_text};
use atoll_policy::{
    PresetSummary, ProfileSummary, Requested, SourceFile, TrustList, check, check_policies, digest,
    list, nearest, presets,
};
use checking::check_profile;
use serde_json::json;

use crate::arguments::{
    CompletionsArguments, ListProfilesArguments, ManArguments, PresetsArguments, ProfileAction,
    ProfileArguments, ShowProfileArguments, TrustArguments, definition,
};
use crate::output::Output;
use crate::render::{Paint, Style};
use crate::reputation;
use crate::requested::requested_profile;
pub use collecting::gc;
pub use doctor::doctor;

/// Lists, shows or checks profiles.
pub fn profile(arguments: ProfileArguments, output: &Output) -> Result<u8, Failure> {
    match arguments.action {
        ProfileAction::List(arguments) => list_profiles(&arguments, output),
        ProfileAction::Show(arguments) => show_profile(&arguments, output),
        ProfileAction::Check(arguments) => check_profile(&arguments, output),
        ProfileAction::Presets(arguments) => show_presets(&arguments, output),
        ProfileAction::Reputation(arguments) => reputation::show(&arguments, output),
    }
}

fn list_profiles(arguments: &ListProfilesArguments, output: &Output) -> Result<u8, Failure> {
    let places = Places::read()?;
    let own = configuration::own_profiles(&places);
    let profiles = list(&own).doing("the profiles cannot be listed")?;
    if arguments.json {
        let profiles: Vec<serde_json::Value> = profiles.iter().map(profile_json).collect();
        output.json(&json!(profiles));
        return Ok(0);
    }
    let text: String = profiles
        .iter()
        .map(|one| profile_lines(one, output))
        .collect();
    output.result(&text);
    Ok(0)
}

fn show_presets(arguments: &PresetsArguments, output: &Output) -> Result<u8, Failure> {
    let mut shown = presets();
    if let Some(name) = &arguments.name {
        let known: Vec<&str> = shown.iter().map(|one| one.name).collect();
        shown.retain(|one| one.name == name);
        if shown.is_empty() {
            let failure = Failure::new(format!("there is no preset {name:?}"));
            return Err(match nearest(name, known.iter().copied()) {
                Some(meant) => failure.advise(format!("did you mean {meant}?")),
                None => failure.advise(format!("one of: {}", known.join(", "))),
            });
        }
    }
    if arguments.json {
        let json = |one: &PresetSummary| json!({ "name": one.name, "description": one.description, "content": one.content });
        output.json(&json!(shown.iter().map(json).collect::<Vec<_>>()));
        return Ok(0);
    }
    let text: String = match (&arguments.name, &shown[..]) {
        (Some(_), [one]) => one.content.to_owned(),
        (Some(_) | None, all) => preset_lines(all, output.paint),
    };
    output.result(&text);
    Ok(0)
}

/// Formats a line for each preset, with aligned descriptions.
fn preset_lines(all: &[PresetSummary], paint: Paint) -> String {
    let widest = all.iter().map(|one| one.name.len()).max().unwrap_or(0);
    let line = |one: &PresetSummary| {
        let name = paint.style(Style::Strong, &format!("{:<widest$}", one.name));
        format!("{name}  {}\n", one.description)
    };
    all.iter().map(line).collect()
}

fn profile_lines(one: &ProfileSummary, output: &Output) -> String {
    let paint = output.paint;
    let name = paint.style(Style::Strong, &format!("{:<12}", one.name));
    let mut lines = match one.problems.first() {
        None => format!("{name} {}\n", printable(one.description.as_bytes())),
        Some(first) => {
            let place = format!("{}:{}:{}", first.file, first.line, first.column);
            let text = format!("broken: {place}: {}", first.what);
            let text = paint.style(Style::Bad, &printable(text.as_bytes()));
            format!("{name} {text}\n")
        }
    };
    let mut more = |text: &str| {
        let text = printable(format!("{:<12} {text}", "").as_bytes());
        lines.push_str(&format!("{}\n", paint.style(Style::Faint, &text)));
    };
    if one.problems.is_empty() && !one.file.starts_with("shipped/") {
        more(&format!("yours: {}", one.file));
    }
    if !one.problems.is_empty() {
        more(&format!(
            "atoll profile check {} shows all",
            word(&one.file)
        ));
    }
    if !one.commands.is_empty() {
        more(&format!("chosen for: {}", one.commands.join(", ")));
    }
    lines
}

fn profile_json(one: &ProfileSummary) -> serde_json::Value {
    let problems: Vec<String> = one.problems.iter().map(ToString::to_string).collect();
    json!({
        "name": one.name,
        "description": one.description,
        "commands": one.commands,
        "file": one.file,
        "problems": problems,
    })
}

fn show_profile(arguments: &ShowProfileArguments, output: &Output) -> Result<u8, Failure> {
    let places = Places::read()?;
    let files = PolicyFiles::read(&places, None)?;
    let requested = Requested {
        profile: Some(requested_profile(&arguments.name)?),
        ..Requested::default()
    };
    let host = configuration::host_facts(&places)?;
    let rules = files
        .compile(&requested, "".as_ref(), &host)
        .map_err(|error| {
            Failure::new("the profile cannot be used")
                .because(&error)
                .advise(error)
        })?;
    if arguments.json {
        output.json(&rules.show_json());
        return Ok(0);
    }
    let shown = rules.show();
    let lines = shown.lines().map(|line| printable(line.as_bytes()) + "\n");
    output.result(&lines.collect::<String>());
    Ok(0)
}

fn list_trusted(trusted: &TrustList, output: &Output) {
    if trusted.entries().is_empty() {
        output.say("No project's file is trusted.\n");
    }
    for one in trusted.entries() {
        output.result(&format!(
            "{}  {}\n",
            one.sha256,
            printable(one.path.as_bytes())
        ));
    }
}

/// Trusts a project's files as they are now, or takes that back.
pub fn trust(arguments: &TrustArguments, output: &Output) -> Result<u8, Failure> {
    let places = Places::read()?;
    let mut trusted = configuration::read_trust(&places)?;
    if arguments.list {
        list_trusted(&trusted, output);
        return Ok(0);
    }
    let directory = arguments
        .directory
        .clone()
        .unwrap_or_else(|| PathBuf::from("."));
    let directory = directory
        .canonicalize()
        .doing(&format!("{} cannot be used", directory.display()))?;
    let state = places.open_state()?;
    let ledger = atoll_engine::events::open_ledger(&state)?;
    // What is trusted no more, or comes back, is told again.
    forget_tellings(&state).doing("what was told cannot be forgotten")?;
    let mut there = Vec::new();
    if !arguments.revoke {
        there.extend(configuration::read_optional(&directory.join(PROJECT_FILE))?);
        there.extend(configuration::read_project_policies(&directory)?);
        // One of them with mistakes, and none is trusted.
        there.iter().try_for_each(refuse_mistakes)?;
    }
    let mut done = 0;
    // What is gone is trusted no more, either: it could come back without a word.
    for path in trusted_in(&trusted, &directory) {
        if there.iter().all(|file| file.name != path) {
            let path = Path::new(&path);
            done += usize::from(revoke(path, &mut trusted, (&places, &ledger), output)?);
        }
    }
    for file in &there {
        trust_one(file, &mut trusted, (&places, &ledger), output)?;
        done += 1;
    }
    if done > 0 {
        return Ok(0);
    }
    let name = directory.join(PROJECT_FILE);
    Err(match arguments.revoke {
        true => Failure::new(format!("{} is not trusted", name.display()))
            .advise("atoll trust --list shows what is"),
        false => Failure::new(format!("there is no {}", name.display()))
            .advise("atoll trust DIR names the project"),
    })
}

/// Takes trust in a file back, if it was trusted.
fn revoke(
    path: &Path,
    trusted: &mut TrustList,
    (places, ledger): (&Places, &Ledger),
    output: &Output,
) -> Result<bool, Failure> {
    let name = path.to_string_lossy().into_owned();
    if !trusted.revoke(&name) {
        return Ok(false);
    }
    record_trust(ledger, "trust.revoked", json!({ "path": host_text(path) }))?;
    write_configuration(places, &places.trust_file(), &trusted.to_text())?;
    output.say(&format!(
        "{} is trusted no more.\n",
        printable(name.as_bytes())
    ));
    Ok(true)
}

/// Returns the trusted files of a project.
fn trusted_in(trusted: &TrustList, directory: &Path) -> Vec<String> {
    let file = directory.join(PROJECT_FILE).to_string_lossy().into_owned();
    let file = trusted.knows(&file).then_some(file);
    let policies = trusted.policies_in(Some(directory)).map(str::to_owned);
    file.into_iter().chain(policies).collect()
}

fn refuse_mistakes(file: &SourceFile<'static>) -> Result<(), Failure> {
    let problems = match file.name.ends_with(".cedar") {
        true => check_policies(file),
        false => check(&file.content, PROJECT_FILE),
    };
    problems.first().map_or(Ok(()), |problem| {
        let what = format!("{} has mistakes and is not trusted", file.name);
        Err(Failure::new(what).because(problem))
    })
}

/// Shows a file and trusts its present content.
fn trust_one(
    file: &SourceFile<'static>,
    trusted: &mut TrustList,
    (places, ledger): (&Places, &Ledger),
    output: &Output,
) -> Result<(), Failure> {
    let name = &file.name;
    output.say(
        &String::from_utf8_lossy(&file.content)
            .lines()
            .map(|line| format!("  {}\n", printable(line.as_bytes())))
            .collect::<String>(),
    );
    let sha256 = digest(&file.content);
    let body = json!({ "path": host_text(Path::new(&**name)), "sha256": sha256 });
    record_trust(ledger, "trust.given", body)?;
    trusted.trust(name, &file.content);
    write_configuration(places, &places.trust_file(), &trusted.to_text())?;
    output.say(&format!(
        "{} is trusted with this content ({sha256}); any change ends that.\n",
        printable(name.as_bytes())
    ));
    Ok(())
}

fn record_trust(ledger: &Ledger, kind: &str, body: serde_json::Value) -> Result<(), Failure> {
    let recorded = ledger.record(None, kind, body, Durability::Durable);
    recorded.map(drop).doing("the decision cannot be recorded")
}

/// Writes the completions of a shell.
pub fn completions(arguments: &CompletionsArguments, output: &Output) -> u8 {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut definition(), "atoll", &mut text);
    output.result(&String::from_utf8_lossy(&text));
    0
}

/// Writes the manual pages: to a directory, or the first to standard output.
pub fn man(arguments: &ManArguments, output: &Output) -> Result<u8, Failure> {
    match &arguments.directory {
        None => {
            let mut text = Vec::new();
            clap_mangen::Man::new(definition())
                .render(&mut text)
                .doing("no page could be made")?;
            output.result(&String::from_utf8_lossy(&text));
        }
        Some(directory) => {
            std::fs::create_dir_all(directory)
                .and_then(|()| clap_mangen::generate_to(definition(), directory))
                .doing(&format!("{} cannot be written", directory.display()))?;
            output.say(&format!("The pages are in {}.\n", directory.display()));
        }
    }
    Ok(0)
}
