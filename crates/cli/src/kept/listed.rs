//! The list that `atoll kept` prints.

use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use atoll_engine::configuration::Places;
use atoll_engine::failure::Failure;
use atoll_engine::kept_changes;
use atoll_engine::printable::printable;
use atoll_ledger::host_text;
use atoll_model::{format_bytes, format_duration};
use atoll_store::{DiskUsage, KeptName, KeptRecord};
use serde_json::json;

use crate::output::Output;
use crate::render::Style;

/// Lists all that is kept.
pub(super) fn list(is_json: bool, output: &Output) -> Result<u8, Failure> {
    let places = Places::read()?;
    let all = match places.state.exists() {
        true => kept_changes::known(&places.read_state()?, output)?,
        false => Vec::new(),
    };
    if is_json {
        let told = all.iter().map(|(name, record, usage)| {
            json!({
                "name": name.as_str(),
                "profile": record.profile,
                "directory": host_text(&record.host),
                "bytes": usage.bytes,
                "files": usage.entries,
                "last_run": record.run,
                "used_at_ms": record.used_at_ms,
            })
        });
        output.json(&told.collect());
        return Ok(0);
    }
    if all.is_empty() {
        output.say("Nothing is kept. Runs of a profile with [home] keep do that.\n");
        return Ok(0);
    }
    output.result(&table(&all, output));
    Ok(0)
}

fn table(all: &[(KeptName, KeptRecord, DiskUsage)], output: &Output) -> String {
    let now = SystemTime::now();
    let rows = all.iter().map(|(name, record, usage)| {
        let used = SystemTime::UNIX_EPOCH + Duration::from_millis(record.used_at_ms);
        let ago = format_duration(now.duration_since(used).unwrap_or_default());
        let cells = [
            printable(record.profile.as_bytes()),
            format_bytes(usage.bytes),
            format!("{ago} ago"),
        ];
        let rest = format!(
            "{} (name {name}, run {})",
            printable(record.host.as_os_str().as_bytes()),
            record.run
        );
        (cells, rest)
    });
    let headings = ["PROFILE", "SIZE", "USED"].map(str::to_owned);
    let rows: Vec<([String; 3], String)> = std::iter::once((headings, "DIRECTORY".to_owned()))
        .chain(rows)
        .collect();
    let mut widths = [0; 3];
    for (cells, _) in &rows {
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = cell.chars().count().max(*width);
        }
    }
    let [profile_width, size_width, used_width] = widths;
    let lines = rows.iter().map(|([profile, size, used], rest)| {
        format!("{profile:profile_width$}  {size:>size_width$}  {used:used_width$}  {rest}\n")
    });
    let text: String = lines.collect();
    match text.split_once('\n') {
        Some((heading, rest)) => {
            format!("{}\n{rest}", output.paint.style(Style::Strong, heading))
        }
        None => text,
    }
}
