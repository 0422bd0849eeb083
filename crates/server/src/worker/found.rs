//! Remains of the server before: sandboxes that are paused, and homes that nobody has.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use atoll_engine::sandboxes::remove_home;
use atoll_store::home_name;

use super::begun::CHANGES;
use super::layered::Layers;
use super::lifecycle::{Life, Lifecycle};
use super::paused::{Paused, Record};

/// The attempts to remove one, and the time between two.
const REMOVALS: u32 = 20;
const AGAIN: Duration = Duration::from_millis(200);

impl Layers {
    /// Finds the paused sandboxes of the server before, and removes homes that nobody has.
    pub(super) fn find_paused(&self) {
        let found = match self.server.store.paused() {
            Ok(found) => found,
            // Whose homes those are is not known then: they stay.
            Err(error) => return eprintln!("atoll serve: {error}"),
        };
        let mut kept = BTreeSet::new();
        for one in found {
            let home = home_name(&one.id);
            let record = match serde_json::from_str::<Record>(&one.record) {
                Ok(record) => record,
                Err(error) => {
                    // Of another version of Atoll, which can have it go on.
                    eprintln!("atoll serve: sandbox {} stays paused: {error}", one.id);
                    kept.insert(format!("{home}{CHANGES}"));
                    kept.insert(home);
                    continue;
                }
            };
            let begun = record.begun.clone();
            // The server before may have ended while it moved them.
            if !begun.home.is_empty()
                && let Err(error) = self.move_to_layers(&one.id, &begun)
            {
                eprintln!("atoll serve: sandbox {}: {error}", one.id);
            }
            if begun.home.is_empty() && !self.kept(&one.id).is_dir() {
                self.forget_paused(&one.id);
                continue;
            }
            kept.insert(format!("{home}{CHANGES}"));
            kept.insert(home);
            let paused = Paused::of(
                one.id,
                one.tenant,
                record,
                Life::new(Lifecycle::Paused { memory: false }),
            );
            self.list.put_paused(paused);
        }
        let homes = fs::read_dir(self.kept_homes()).into_iter().flatten();
        let homes = homes.flatten();
        let left = homes.filter(|home| !kept.contains(&*home.file_name().to_string_lossy()));
        let left: Vec<PathBuf> = left.map(|home| home.path()).collect();
        // Nothing waits for that; what is left of them is removed at the next start.
        let _ = thread::Builder::new().spawn(move || {
            for path in left {
                // Programs of the server before may be ending just now, and still write there.
                for _ in 0..REMOVALS {
                    if fs::remove_file(&path).is_ok() || remove_home(&path).is_ok() {
                        break;
                    }
                    thread::sleep(AGAIN);
                }
            }
        });
    }
}
