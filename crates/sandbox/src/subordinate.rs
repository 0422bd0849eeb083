//! The subordinate ids of an ordinary user (subuid(5)), and the host's set-user-id programs
//! that map them.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A range of ids: the first, and their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: u32,
    count: u32,
}

/// An ordinary user's subordinate ids, by which root in the sandbox gives files to other users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subordinate {
    uid: u32,
    gid: u32,
    uids: Range,
    gids: Range,
    programs: [PathBuf; 2],
}

/// The most subordinate ids that are mapped: with the user's own, as many as a sandbox of host
/// root has.
const COUNT_MAX: u32 = crate::IDS - 1;

impl Subordinate {
    /// Returns the ids of the user, if it has any and the host can map them.
    #[must_use]
    pub fn of(uid: u32, gid: u32) -> Option<Self> {
        let program = |name: &str| {
            let places = ["/usr/bin", "/bin", "/usr/local/bin", "/run/wrappers/bin"];
            let path = |place: &&str| Path::new(place).join(name);
            places.iter().map(path).find(|path| path.is_file())
        };
        let read = |path: &str| std::fs::read_to_string(path).ok();
        let name = read("/etc/passwd").and_then(|text| name_of(&text, uid));
        let range = |path: &str| find_range(&read(path)?, name.as_deref(), uid);
        Some(Self {
            uid,
            gid,
            uids: range("/etc/subuid")?,
            gids: range("/etc/subgid")?,
            programs: [program("newuidmap")?, program("newgidmap")?],
        })
    }

    /// Maps a process's ids: 0 is the user itself, those from 1 are its subordinate ids.
    ///
    /// # Errors
    /// The message of the programs that map.
    pub fn map(&self, pid: u32) -> io::Result<()> {
        let [uids, gids] = &self.programs;
        for (program, own, range) in [(uids, self.uid, self.uids), (gids, self.gid, self.gids)] {
            let numbers = [0, own, 1, 1, range.first, range.count.min(COUNT_MAX)];
            let output = Command::new(program)
                .arg(pid.to_string())
                .args(numbers.map(|number| number.to_string()))
                .stdin(Stdio::null())
                .output()?;
            if !output.status.success() {
                let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                return Err(io::Error::other(words));
            }
        }
        Ok(())
    }
}

/// Returns the name of an account in passwd(5).
fn name_of(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let number: u32 = fields.nth(1)?.parse().ok()?;
        (number == uid).then(|| name.to_owned())
    })
}

/// Returns the first range of a user in subuid(5), by its name or number.
fn find_range(text: &str, name: Option<&str>, uid: u32) -> Option<Range> {
    let number = uid.to_string();
    text.lines().find_map(|line| {
        let mut fields = line.trim().split(':');
        let whose = fields.next()?;
        let range = Range {
            first: fields.next()?.parse().ok()?,
            count: fields.next()?.parse().ok()?,
        };
        let is_own = Some(whose) == name || whose == number;
        (is_own && range.count > 0 && fields.next().is_none()).then_some(range)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_by_name_or_number() {
        let text = "other:1000:5\nme:100000:65536\n61234:300000:10\nbad\nempty:1:0\n";
        let found = |name, uid| find_range(text, name, uid).map(|range| (range.first, range.count));
        assert_eq!(found(Some("me"), 1), Some((100_000, 65_536)));
        assert_eq!(found(None, 61_234), Some((300_000, 10)));
        assert_eq!(found(Some("empty"), 2), None);
        assert_eq!(found(Some("bad"), 3), None);
        assert_eq!(found(None, 0), None);
    }

    #[test]
    fn names_are_found_by_number() {
        let text = "root:x:0:0::/root:/bin/sh\nme:x:1000:1000::/home/me:/bin/sh\nbad\n";
        assert_eq!(name_of(text, 1000).as_deref(), Some("me"));
        assert_eq!(name_of(text, 7), None);
    }
}
