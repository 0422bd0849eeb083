//! Tells how many texts of each label read like instructions to a model: `LABEL FLAGGED OF`, a line each.
//! The file that is named has a JSON list `[LABEL, TEXT]` on each line.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader};

use atoll_scan::instructions::reads_like_instructions;

fn main() -> Result<(), Box<dyn Error>> {
    let mut all: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let path = std::env::args_os().nth(1).ok_or("name a file")?;
    for line in BufReader::new(File::open(path)?).lines() {
        let (label, text): (String, String) = serde_json::from_str(&line?)?;
        let (flagged, count) = all.entry(label).or_default();
        *flagged += u64::from(reads_like_instructions(&text));
        *count += 1;
    }
    for (label, (flagged, count)) in all {
        println!("{label} {flagged} {count}");
    }
    Ok(())
}
