//! `atoll tools clean`.

use std::fs::File;
use std::io::{self, Read};

use atoll_engine::failure::{Doing, Failure};
use atoll_tools::{Pii, clean_answer};
use serde_json::json;

use crate::arguments::CleanArguments;
use crate::output::Output;

/// The longest text, bytes.
const TEXT_BYTES_MAX: u64 = 16 << 20;

/// Prints a text as results of tools are given to a model.
pub(super) fn clean(arguments: &CleanArguments, output: &Output) -> Result<u8, Failure> {
    let unread = "the text cannot be read";
    let mut from: Box<dyn Read> = match &arguments.file {
        Some(path) => Box::new(File::open(path).doing(unread)?),
        None => Box::new(io::stdin().lock()),
    };
    let mut text = Vec::new();
    let limited = from
        .by_ref()
        .take(TEXT_BYTES_MAX + 1)
        .read_to_end(&mut text);
    limited.doing(unread)?;
    if text.len() as u64 > TEXT_BYTES_MAX {
        let why = format!("it is longer than {} MiB", TEXT_BYTES_MAX >> 20);
        return Err(Failure::new("the text is not cleaned").because(why));
    }
    let pii = match arguments.keep_personal_data {
        true => Pii::Keep,
        false => Pii::Mask,
    };
    let cleaned = clean_answer(&text, pii);
    let notes: Vec<String> = cleaned.notes().collect();
    if arguments.json {
        output.json(&json!({ "text": cleaned.text, "notes": notes, "changes": cleaned.details() }));
        return Ok(0);
    }
    output.result(&cleaned.text);
    notes
        .iter()
        .for_each(|note| output.say(&format!("{note}\n")));
    Ok(0)
}
