use std::fs;
use std::path::{Path, PathBuf};

use crate::{Outcome, World, cache};

/// The tree that `cargo xtask test` has unpacked: a newer release's parser, since that of
/// this distribution may not know user namespaces yet.
const TREE: &str = "guest/apparmor-1";
/// The loader that a machine needs for the parser to run and to read profiles.
const LOADER: &str = "usr/lib64/ld-linux-x86-64.so.2";
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const PARSER: &str = "usr/sbin/apparmor_parser";
const PROFILES: &str = "etc/apparmor.d";

/// AppArmor's own parser (apparmor_parser(8)).
#[derive(Debug)]
pub struct ProfileParser {
    tree: PathBuf,
}

impl ProfileParser {
    /// Finds the parser.
    ///
    /// # Errors
    /// In words, what is missing.
    pub fn find() -> Result<Self, String> {
        let cache = cache().ok_or("ATOLL_TEST_CACHE is not set")?;
        let tree = cache.join(TREE);
        match [LOADER, PARSER]
            .iter()
            .find(|name| !tree.join(name).is_file())
        {
            None => Ok(Self { tree }),
            Some(name) => Err(format!("there is no {}", tree.join(name).display())),
        }
    }

    /// Reads a profile and compiles it, without loading it.
    #[must_use]
    pub fn check(&self, world: &World, profile: &str) -> Outcome {
        world
            .host(self.tree.join(LOADER))
            .arg("--library-path")
            .arg(self.tree.join(LIBRARIES))
            .arg(self.tree.join(PARSER))
            .args(["--skip-kernel-load", "--skip-cache", "--base"])
            .arg(self.tree.join(PROFILES))
            .arg(profile)
            .run()
    }

    /// Returns the files that give another machine the parser too, with a script that starts it:
    /// absolute path, mode, content.
    ///
    /// # Panics
    /// When one cannot be read.
    #[must_use]
    pub fn files(&self) -> Vec<(String, u32, Vec<u8>)> {
        let script = format!(
            "#!/bin/sh\nexec /parser/{LOADER} --library-path /parser/{LIBRARIES} /parser/{PARSER} \
             --base /parser/{PROFILES} \"$@\"\n"
        );
        let mut files = vec![(
            "/usr/sbin/apparmor_parser".to_owned(),
            0o755,
            script.into_bytes(),
        )];
        let mut add = |name: &str, mode: u32| {
            let content = fs::read(self.tree.join(name)).expect(name);
            files.push((format!("/parser/{name}"), mode, content));
        };
        for name in [LOADER, PARSER] {
            add(name, 0o755);
        }
        add(&format!("{LIBRARIES}/libc.so.6"), 0o755);
        for folder in [
            "abi",
            "tunables",
            "tunables/home.d",
            "tunables/xdg-user-dirs.d",
        ] {
            let folder = format!("{PROFILES}/{folder}");
            for name in entries(&self.tree.join(&folder)) {
                add(&format!("{folder}/{name}"), 0o644);
            }
        }
        files
    }
}

/// Returns the names of the files of a directory.
fn entries(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.path().is_file());
    files
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}
