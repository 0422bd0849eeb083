//! The users who can write a program that runs outside, or a path that leads to it.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// The owner shown for files of unmapped users (user_namespaces(7), "Unmapped user and group
/// IDs").
const UNMAPPED: u32 = 65_534;
/// The first group that is not the system's own. Lower ones, such as `staff` of /usr/local,
/// have the members that the host's owner chooses (Debian policy, 9.2.2; 100 is `users`).
const SYSTEM_GROUPS: u32 = 100;
/// The length of the id map of the initial user namespace (user_namespaces(7), "The initial
/// user namespace").
const ALL_NUMBERS: &str = "4294967295";
/// The extended attribute of an access control list, which grants rights besides the mode
/// (acl(5)).
const ACCESS_LIST: &str = "system.posix_acl_access";

/// The ids of this process, and their meaning for files.
struct Caller {
    user: u32,
    group: u32,
    /// True if there are users outside that are not mapped here.
    has_unmapped: bool,
    /// True if nobody else is in the group, according to the host's files.
    is_group_private: bool,
}

/// Returns the first component of a path that another user can write or replace.
pub(super) fn open_part(path: &Path) -> Option<PathBuf> {
    let caller = Caller::this();
    let is_open = |part: &Path| {
        let facts = part.metadata();
        facts.is_ok_and(|facts| caller.is_open(&facts, || has_access_list(part)))
    };
    path.ancestors()
        .find(|part| is_open(part))
        .map(Path::to_owned)
}

/// Returns a symbolic link that belongs to another user, or the first component of the path to
/// it that another user can write: who replaces a link chooses its target.
pub(super) fn open_link(link: &Path) -> Option<PathBuf> {
    let caller = Caller::this();
    let owner = link.symlink_metadata().map(|facts| facts.uid());
    match owner.is_ok_and(|owner| caller.is_own(owner)) {
        true => link.parent().and_then(open_part),
        false => Some(link.to_owned()),
    }
}

impl Caller {
    fn this() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        let user = rustix::process::geteuid().as_raw();
        let group = rustix::process::getegid().as_raw();
        Self {
            user,
            group,
            has_unmapped: read("/proc/self/uid_map").is_some_and(|map| is_part(&map)),
            is_group_private: match (read("/etc/passwd"), read("/etc/group")) {
                (Some(users), Some(groups)) => is_private(user, group, &users, &groups),
                (None, _) | (_, None) => false,
            },
        }
    }

    fn is_open(&self, facts: &Metadata, has_access_list: impl FnOnce() -> bool) -> bool {
        // Of a directory as /tmp nobody renames what is another's.
        let is_sticky = facts.is_dir() && facts.mode() & 0o1000 != 0;
        let by_group = facts.mode() & 0o020 != 0
            // Where there is a list, these bits are the most that anybody in it may do.
            && (!self.is_own_group(facts.gid()) || has_access_list());
        let by_others = facts.mode() & 0o002 != 0 || by_group;
        !self.is_own(facts.uid()) || by_others && !is_sticky
    }

    /// Returns whether an owner is root or the caller.
    fn is_own(&self, owner: u32) -> bool {
        // In a user namespace root outside is nobody, as all are that have no number
        // there: what they own is judged by its mode alone.
        [0, self.user].contains(&owner) || self.has_unmapped && owner == UNMAPPED
    }

    fn is_own_group(&self, group: u32) -> bool {
        group < SYSTEM_GROUPS || group == self.group && self.is_group_private
    }
}

/// Returns whether a `uid_map` leaves ids out.
fn is_part(map: &str) -> bool {
    map.split_ascii_whitespace().nth(2) != Some(ALL_NUMBERS)
}

/// Returns whether a group is the user's alone: it has the same number, and no other member in
/// the files of passwd(5) and group(5).
fn is_private(user: u32, group: u32, users: &str, groups: &str) -> bool {
    let number = group.to_string();
    let of = |line: &str, field: usize| line.split(':').nth(field).map(str::to_owned);
    let is_others =
        |line: &str| of(line, 3).as_ref() == Some(&number) && of(line, 2) != Some(user.to_string());
    let name = |line: &str| (of(line, 2) == Some(user.to_string())).then(|| of(line, 0))?;
    let own: Vec<String> = users.lines().filter_map(name).collect();
    let has_others = |line: &str| {
        let members = of(line, 3).unwrap_or_default();
        let mut members = members.split(',').map(str::trim);
        let is_other = |member: &str| !member.is_empty() && !own.iter().any(|own| own == member);
        of(line, 2).as_ref() == Some(&number) && members.any(is_other)
    };
    user == group && !users.lines().any(is_others) && !groups.lines().any(has_others)
}

/// Returns whether a file has an access control list, or that is unknown.
fn has_access_list(path: &Path) -> bool {
    let found = rustix::fs::getxattr(path, ACCESS_LIST, &mut [0_u8; 0][..]);
    !matches!(found, Err(Errno::NODATA | Errno::OPNOTSUPP))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_group_is_ones_own_where_nobody_else_is_in_it() {
        let users = "root:x:0:0::/:\nme:x:1000:1000::/:\nyou:x:1001:1001::/:\n";
        let groups = "root:x:0:\nme:x:1000:me\nyou:x:1001:\n";
        assert!(is_private(1000, 1000, users, groups));
        assert!(is_private(5000, 5000, users, groups));
        // A shared one, a further member, and somebody whose first group it is.
        assert!(!is_private(1000, 1001, users, groups));
        assert!(!is_private(1000, 1000, users, "me:x:1000:me,you\n"));
        let further = format!("{users}she:x:1002:1000::/:\n");
        assert!(!is_private(1000, 1000, &further, groups));
    }

    #[test]
    fn what_nobody_owns_is_ones_own_in_a_user_namespace_alone() {
        assert!(!is_part("         0          0 4294967295\n"));
        assert!(is_part("         0       1000          1\n"));
        let caller = |has_unmapped| Caller {
            user: rustix::process::geteuid().as_raw() + 1,
            group: 1,
            has_unmapped,
            is_group_private: false,
        };
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&file, Some(UNMAPPED), None).unwrap();
            let facts = file.metadata().unwrap();
            assert!(caller(false).is_open(&facts, || false));
            assert!(!caller(true).is_open(&facts, || false));
        } else {
            let facts = file.metadata().unwrap();
            assert!(caller(true).is_open(&facts, || false));
        }
    }

    #[test]
    fn what_a_group_of_others_or_a_list_lets_write_is_open() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let facts = |mode: u32| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&file, mode).unwrap();
            file.metadata().unwrap()
        };
        let own = facts(0o775);
        let caller = |is_group_private| Caller {
            user: own.uid(),
            group: own.gid(),
            has_unmapped: false,
            is_group_private,
        };
        assert!(!caller(true).is_open(&own, || false));
        let is_system = own.gid() < SYSTEM_GROUPS;
        assert_eq!(caller(false).is_open(&own, || false), !is_system);
        assert!(caller(true).is_open(&own, || true));
        // Without that bit nobody in a list can write.
        assert!(!caller(true).is_open(&facts(0o755), || true));
    }

    #[test]
    fn a_list_of_who_may_write_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&file, mode).unwrap();
        assert!(!has_access_list(&file));
        assert_eq!(open_part(&file), None);
        // Version 2: the owner, user 12345, the group, the mask and others (linux/posix_acl_xattr.h).
        let mut list = 2_u32.to_le_bytes().to_vec();
        let none = u32::MAX;
        for (tag, allowed, id) in [
            (1_u16, 7_u16, none),
            (2, 7, 12_345),
            (4, 5, none),
            (16, 7, none),
            (32, 5, none),
        ] {
            list.extend(tag.to_le_bytes());
            list.extend(allowed.to_le_bytes());
            list.extend(id.to_le_bytes());
        }
        let flags = rustix::fs::XattrFlags::empty();
        match rustix::fs::setxattr(&file, ACCESS_LIST, &list, flags) {
            // Not every file system has them.
            Err(Errno::OPNOTSUPP) => return,
            set => set.unwrap(),
        }
        assert!(has_access_list(&file));
        assert_eq!(open_part(&file), Some(file));
    }
}
