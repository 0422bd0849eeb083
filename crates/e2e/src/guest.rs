use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::{World, cache, program_exists};

/// The emulator: without help of the processor, which few test machines give.
const EMULATOR: &str = "qemu-system-x86_64";
/// The disk that `cargo xtask test` has made.
const DISK: &str = "disk-1.img";
/// The first process of every guest.
const INIT: &str = include_str!("../tests/guest/init.sh");
/// The longest time from a guest's start to its end.
const END: Duration = Duration::from_secs(15 * 60);
/// The interval at which its end is checked for.
const POLL: Duration = Duration::from_millis(100);

/// The kernel of a guest.
#[derive(Debug, Clone, Copy)]
pub enum Kernel {
    /// The newest that the distribution has.
    New,
    /// An older one, which has fewer means.
    Old,
}

/// An emulated machine: the distribution's kernel, a small disk of the distribution's, whose
/// changes are lost, and files from the test.
#[derive(Debug)]
pub struct Guest {
    /// Its kernel.
    pub kernel: Kernel,
    /// The command that replaces the first process.
    pub next: &'static str,
    /// Further words on the kernel's command line.
    pub words: &'static str,
    /// Files to be put on its disk: absolute path, mode, content.
    pub files: Vec<(String, u32, Vec<u8>)>,
}

/// The checks that a guest made until it ended.
#[derive(Debug)]
pub struct GuestReport {
    checks: BTreeMap<String, Option<String>>,
    problem: Option<String>,
}

impl Guest {
    /// Returns the first prerequisite of a guest that is missing, if any.
    #[must_use]
    pub fn missing() -> Option<String> {
        let programs = [EMULATOR, "busybox", "setpriv"];
        if let Some(name) = programs.iter().find(|name| !program_exists(name)) {
            return Some(format!("there is no {name}"));
        }
        let Some(directory) = directory() else {
            return Some("ATOLL_TEST_CACHE is not set".to_owned());
        };
        [
            "new/vmlinuz",
            "new/overlay.ko",
            "old/vmlinuz",
            "old/overlay.ko",
            DISK,
        ]
        .iter()
        .map(|name| directory.join(name))
        .find(|path| !path.is_file())
        .map(|path| format!("there is no {}", path.display()))
    }

    /// Starts it and waits for its end.
    ///
    /// # Panics
    /// When the emulator cannot be started.
    #[must_use]
    pub fn run(self, world: &World) -> GuestReport {
        let own = directory().unwrap();
        let kernel = own.join(match self.kernel {
            Kernel::New => "new",
            Kernel::Old => "old",
        });
        let [archive, console, told] =
            ["initramfs", "console", "told"].map(|name| world.top().join(name));
        fs::write(&archive, self.archive(&kernel.join("overlay.ko"))).unwrap();
        // On a busy machine the emulated timer comes late, which is no broken one.
        let words = format!(
            "console=ttyS0 quiet panic=-1 no_timer_check lsm=landlock,yama {}",
            self.words
        );
        let started = Instant::now();
        let mut running = world
            .host(EMULATOR)
            .args(["-accel", "tcg", "-cpu", "max", "-m", "1024", "-nodefaults"])
            .args(["-display", "none", "-no-reboot"])
            .args([Path::new("-kernel"), &kernel.join("vmlinuz")])
            .args([Path::new("-initrd"), &archive])
            .args(["-append", &words])
            .arg("-drive")
            .arg(format!(
                "file={},format=raw,if=none,id=disk,snapshot=on",
                own.join(DISK).display()
            ))
            .args(["-device", "nvme,drive=disk,serial=disk"])
            .args(["-serial", &format!("file:{}", console.display())])
            .args(["-serial", &format!("file:{}", told.display())])
            // A test that is killed takes its guest along.
            .under(["setpriv", "--pdeathsig", "KILL", "--"])
            .start();
        let mut problem = None;
        while running.status().is_none() {
            if started.elapsed() > END {
                problem = Some(format!("it did not end within {END:?}"));
                break;
            }
            std::thread::sleep(POLL);
        }
        drop(running);
        let told = GuestReport::read(&text(&told), &text(&console), problem);
        println!("the guest ended after {:?}", started.elapsed());
        told
    }

    /// Returns the initial file system, in cpio's format "newc".
    fn archive(&self, overlay: &Path) -> Vec<u8> {
        let busybox = std::env::var_os("PATH").and_then(|path| {
            let mut all = std::env::split_paths(&path).map(|one| one.join("busybox"));
            all.find(|one| one.is_file())
        });
        let mut archive = Archive::default();
        for directory in ["bin", "dev", "root"] {
            archive.directory(directory);
        }
        archive.file("init", 0o755, INIT.as_bytes());
        archive.file("next", 0o644, self.next.as_bytes());
        archive.file("overlay.ko", 0o644, &fs::read(overlay).unwrap());
        archive.file("bin/busybox", 0o755, &fs::read(busybox.unwrap()).unwrap());
        archive.link("bin/sh", "busybox");
        for (path, mode, content) in &self.files {
            let path = format!("files{path}");
            let above: Vec<&Path> = Path::new(&path).ancestors().skip(1).collect();
            for one in above.iter().rev().filter(|one| **one != Path::new("")) {
                archive.directory(one.to_str().unwrap());
            }
            archive.file(&path, *mode, content);
        }
        archive.end()
    }
}

impl GuestReport {
    fn read(told: &str, console: &str, problem: Option<String>) -> Self {
        let mut checks = BTreeMap::new();
        for line in told.lines() {
            let words: Vec<&str> = line.trim_end().splitn(4, ' ').collect();
            match words.as_slice() {
                ["CHECK", name, "ok"] => checks.insert((*name).to_owned(), None),
                ["CHECK", name, "FAIL", seen] => {
                    checks.insert((*name).to_owned(), Some(seen.replace('~', "\n")))
                }
                ["TIME", ..] => {
                    println!("{}", line.trim_end());
                    None
                }
                _ => None,
            };
        }
        let has_ended = told.lines().any(|line| line.trim_end() == "CHECKS done");
        let stopped = || format!("it stopped early:\n{told}\n---\n{console}");
        let problem = problem.or_else(|| (!has_ended).then(String::new));
        Self {
            checks,
            problem: problem.map(|problem| format!("{problem}; {}", stopped())),
        }
    }

    /// Checks that for each of these prefixes of names there are so many checks and no others, and
    /// that all succeeded.
    ///
    /// # Panics
    /// When they are not, or did not; all that failed is named.
    pub fn expect(&self, expected: &[(&str, usize)]) {
        let mut wrong: Vec<String> = self.problem.clone().into_iter().collect();
        for (name, seen) in &self.checks {
            if let Some(seen) = seen {
                wrong.push(format!("{name}: {seen}"));
            }
            if !expected.iter().any(|(prefix, _)| name.starts_with(prefix)) {
                wrong.push(format!("{name} is none of those that are expected"));
            }
        }
        for (prefix, count) in expected {
            let names = self.checks.keys().filter(|name| name.starts_with(prefix));
            let names: Vec<_> = names.collect();
            if names.len() != *count {
                let came = names.len();
                wrong.push(format!("{came} instead of {count} of {prefix}: {names:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// An archive in cpio's format "newc" (initramfs buffer format in the kernel's
/// documentation).
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    fn directory(&mut self, path: &str) {
        self.entry(path, 0o040_755, b"");
    }

    fn file(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entry(path, 0o100_000 | mode, content);
    }

    fn link(&mut self, path: &str, to: &str) {
        self.entry(path, 0o120_777, to.as_bytes());
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(content.len()).unwrap();
        let name = u32::try_from(path.len() + 1).unwrap();
        let header = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in header {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn end(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, b"");
        self.bytes
    }
}

fn directory() -> Option<PathBuf> {
    cache().map(|cache| cache.join("guest"))
}

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::GuestReport;

    fn read(told: &str) -> GuestReport {
        GuestReport::read(told, "", None)
    }

    #[test]
    fn report_names_everything_that_failed() {
        let whole = "CHECK a-one ok\nCHECK a-two ok\nCHECK b-one ok\nCHECKS done\n";
        read(whole).expect(&[("a-", 2), ("b-", 1)]);
        let failing = |told: &str, expected: &[(&str, usize)]| {
            let failed = std::panic::catch_unwind(|| read(told).expect(expected));
            *failed.unwrap_err().downcast::<String>().unwrap()
        };
        let told = "CHECK a-one FAIL saw~this\nCHECK b-one FAIL nothing\nCHECK c-one ok\n";
        let said = failing(told, &[("a-", 2), ("b-", 1)]);
        for words in [
            "it stopped early",
            "a-one: saw\nthis",
            "b-one: nothing",
            "c-one is none",
            "1 instead of 2 of a-",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }
}
