//! `atoll policy purposes`: the purposes a run can have, and the rights these take away.

use atoll_cedar::Layer;
use atoll_engine::configuration::Places;
use atoll_engine::failure::Failure;
use atoll_engine::printable::printable;
use atoll_policy::{PurposeSummary, Rules, nearest, purposes};
use serde_json::{Value, json};

use super::files_here;
use crate::arguments::PurposesArguments;
use crate::output::Output;

/// Lists the purposes, or prints the files of one.
///
/// # Errors
/// When policy files cannot be read, or there is no purpose of that name.
pub(super) fn list(arguments: &PurposesArguments, output: &Output) -> Result<u8, Failure> {
    let files = files_here(&Places::read()?)?;
    let all = purposes(files.policies());
    let is_meant = |one: &&PurposeSummary| {
        let name = arguments.name.as_ref();
        name.is_none_or(|name| one.name == *name)
    };
    let meant: Vec<&PurposeSummary> = all.iter().filter(is_meant).collect();
    if let (Some(name), []) = (&arguments.name, meant.as_slice()) {
        let names = all.iter().map(|one| one.name.as_str());
        let failure = Failure::new(format!("there is no purpose {name:?}"));
        return Err(match nearest(name, names) {
            Some(near) => failure.advise(format!("did you mean {near:?}?")),
            None => failure.advise("atoll policy purposes lists them"),
        });
    }
    if arguments.json {
        let member = |one: &&PurposeSummary| {
            json!({
                "name": one.name,
                "description": one.description,
                "file": one.file,
                "policies": one.content,
            })
        };
        let all: Vec<Value> = meant.iter().map(member).collect();
        output.json(&json!(all));
        return Ok(0);
    }
    for one in meant {
        match arguments.name {
            Some(_) => print(&one.content, output),
            None => {
                let line = format!("{:<16}  {}", one.name, one.description);
                let line = match one.file.starts_with('/') {
                    true => format!("{line} ({})", one.file),
                    false => line,
                };
                output.result(&format!("{}\n", printable(line.as_bytes())));
            }
        }
    }
    Ok(0)
}

/// Prints the policies of the purpose of a run by these rules.
pub(super) fn show(rules: &Rules, output: &Output) {
    let layers = rules.policy_files().iter();
    let of_purpose = layers.filter(|(layer, _)| *layer == Layer::Purpose);
    for file in of_purpose.flat_map(|(_, files)| files) {
        output.result("\n");
        print(&String::from_utf8_lossy(&file.content), output);
    }
}

fn print(text: &str, output: &Output) {
    let lines = text.lines().map(|line| printable(line.as_bytes()) + "\n");
    output.result(&lines.collect::<String>());
}
