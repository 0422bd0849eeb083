//! `atoll help`: the help of commands, and the documents that are part of the program.

use atoll_engine::failure::Failure;
use atoll_policy::nearest;

use crate::arguments::definition;
use crate::documents::{DOCUMENTS, document, list, shown};
use crate::output::Output;
use crate::terminal::terminal_size;

/// The columns of a terminal that does not report its size.
const COLUMNS: usize = 80;

/// Prints the help of a command, a document, or both where they share a name; without a name the
/// help of `atoll` and the list of documents.
///
/// # Errors
/// Where there is nothing of that name.
pub fn help(words: &[String], output: &Output) -> Result<u8, Failure> {
    let mut all = definition();
    all.build();
    let Some(topic) = words.first() else {
        print(&mut all);
        output.result(&format!(
            "\nDocuments, by `atoll help NAME`:\n{}",
            list(output.paint)
        ));
        return Ok(0);
    };
    let found = document(topic).filter(|_| words.len() == 1);
    match (command(&mut all, words), found) {
        (None, None) => return Err(unknown(&all, words)),
        (Some(command), found) => {
            print(command);
            if found.is_some() {
                output.result("\n");
            }
        }
        (None, Some(_)) => {}
    }
    if let Some(document) = found {
        let columns = || terminal_size().map_or(COLUMNS, |size| usize::from(size.columns));
        output.result(&match output.is_terminal {
            true => shown(document.markdown, output.paint, columns()),
            false => document.markdown.to_owned(),
        });
    }
    Ok(0)
}

fn print(command: &mut clap::Command) {
    // Whoever asked for help and closed the pipe has had enough of it.
    let _ = command.print_long_help();
}

fn command<'a>(all: &'a mut clap::Command, words: &[String]) -> Option<&'a mut clap::Command> {
    let mut words = words.iter();
    words.try_fold(all, |within, word| within.find_subcommand_mut(word))
}

/// Names what was probably meant, at the word that is not known.
fn unknown(all: &clap::Command, words: &[String]) -> Failure {
    let mut within = all;
    let mut known: Vec<&str> = DOCUMENTS.iter().map(|one| one.name).collect();
    let mut before = Vec::new();
    for word in words {
        match within.find_subcommand(word) {
            Some(found) => within = found,
            None => break,
        }
        before.push(word.as_str());
        known.clear();
    }
    let written = words.get(before.len()).map_or("", String::as_str);
    known.extend(within.get_subcommands().map(clap::Command::get_name));
    let what = match before.is_empty() {
        true => format!("there is no command and no document {written:?}"),
        false => format!("atoll {} has no command {written:?}", before.join(" ")),
    };
    let failure = Failure::new(what);
    let help: String = before.iter().map(|word| format!(" {word}")).collect();
    let failure = match nearest(written, known) {
        Some(meant) => failure.advise(format!("atoll help{help} {meant}")),
        None => failure,
    };
    failure.advise(format!("atoll help{help} lists them"))
}
