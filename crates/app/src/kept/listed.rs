//! What `atoll kept` lists.

use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use atoll_model::{format_bytes, format_duration};
use atoll_store::{DiskUsage, KeptName, KeptRecord, StateDir, host_text, list_kept};
use serde_json::json;

use crate::configuration::Places;
use crate::escape::printable;
use crate::failure::{Doing, Failure};
use crate::output::Output;
use crate::render::Style;

/// Lists all that is kept.
pub(super) fn list(is_json: bool, output: &Output) -> Result<u8, Failure> {
    let places = Places::read()?;
    let all = match places.state.exists() {
        true => known(&places.read_state()?, output)?,
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
    let width = all.iter().map(|(name, ..)| name.as_str().len()).max();
    let width = width.unwrap_or_default();
    let heading = format!(
        "{:<width$}  {:>9}  {:<8}  DIRECTORY",
        "NAME", "SIZE", "USED"
    );
    let mut text = output.paint.style(Style::Strong, &heading) + "\n";
    for (name, record, usage) in all {
        let used = SystemTime::UNIX_EPOCH + Duration::from_millis(record.used_at_ms);
        let ago = format_duration(now.duration_since(used).unwrap_or_default());
        text.push_str(&format!(
            "{:<width$}  {:>9}  {ago:<8}  {} (profile {}, run {})\n",
            name.as_str(),
            format_bytes(usage.bytes),
            printable(record.host.as_os_str().as_bytes()),
            printable(record.profile.as_bytes()),
            record.run,
        ));
    }
    text
}

/// All that is kept and can be read.
pub(super) fn known(
    state: &StateDir,
    output: &Output,
) -> Result<Vec<(KeptName, KeptRecord, DiskUsage)>, Failure> {
    let mut known = Vec::new();
    for (name, read) in list_kept(state).doing("what is kept cannot be listed")? {
        match read {
            Ok((record, usage)) => known.push((name, record, usage)),
            Err(error) => output.warn(&error.to_string()),
        }
    }
    Ok(known)
}
