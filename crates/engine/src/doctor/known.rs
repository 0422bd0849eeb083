//! Errors of kernels and of runtimes that are known to have let programs out, by
//! upstream's versions. A few well-known ones, not a scanner: distributions mend older
//! versions, so a version in a range is a question to the distribution and no verdict.

use super::version::Version;

/// The component with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The kernel.
    Kernel,
    /// The OCI runtime `runc`.
    Runc,
}

/// The reachability of an error's code for a sandboxed program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The calls that it needs are allowed: only a newer kernel helps.
    Open,
    /// Something of the boundary stands before it, in these words.
    Closed(&'static str),
    /// The error is in a program that Atoll does not use.
    Unused,
}

/// A known error.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The part that has it.
    pub part: Part,
    /// The name of the error.
    pub name: &'static str,
    /// A description of the error.
    pub what: &'static str,
    /// The first version with it.
    pub since: Version,
    /// The first version without it, for each maintained release line.
    pub mended: &'static [Version],
    /// The version from which on no release line has it.
    pub until: Version,
    /// The reach of programs in a sandbox.
    pub reach: Reach,
}

const fn v(major: u32, minor: u32, patch: u32) -> Version {
    Version::new(major, minor, patch)
}

const NO_RULES: Reach =
    Reach::Closed("programs have no right over any network, nor a socket that takes packet rules");
const NO_MOUNTS: Reach = Reach::Closed("programs have no right to mount, nor the calls");

/// The known errors of kernels that Atoll runs on, and of runtimes on the same machine. Ranges are
/// those of the CVE records and of the kernel's stable lines.
pub const KNOWN: [Known; 11] = [
    Known {
        part: Part::Kernel,
        name: "CVE-2022-0185",
        what: "an overflow in fsconfig's parameters",
        since: v(5, 1, 0),
        mended: &[v(5, 15, 16), v(5, 16, 2)],
        until: v(5, 17, 0),
        reach: NO_MOUNTS,
    },
    Known {
        part: Part::Kernel,
        name: "CVE-2022-0847",
        what: "Dirty Pipe: files that can be read are overwritten in memory",
        since: v(5, 8, 0),
        mended: &[v(5, 15, 25), v(5, 16, 11)],
        until: v(5, 17, 0),
        reach: Reach::Open,
    },
    Known {
        part: Part::Kernel,
        name: "CVE-2022-34918",
        what: "an overflow in sets of nf_tables",
        since: v(5, 8, 0),
        mended: &[v(5, 15, 54), v(5, 18, 11)],
        until: v(5, 19, 0),
        reach: NO_RULES,
    },
    Known {
        part: Part::Kernel,
        name: "CVE-2022-2588",
        what: "memory used after it was freed, in the classifier cls_route",
        since: v(2, 6, 12),
        mended: &[v(5, 15, 61), v(5, 18, 18), v(5, 19, 2)],
        until: v(6, 0, 0),
        reach: NO_RULES,
    },
    Known {
        part: Part::Kernel,
        name: "CVE-2023-0386",
        what: "overlayfs copies set-user-id files up from where they mean nothing",
        since: v(5, 11, 0),
        mended: &[v(5, 15, 91), v(6, 1, 9)],
        until: v(6, 2, 0),
        reach: NO_MOUNTS,
    },
    Known {
        part: Part::Kernel,
        name: "CVE-2023-32233",
        what: "memory used after it was freed, in anonymous sets of nf_tables",
        since: v(3, 13, 0),
        mended: &[v(5, 15, 111), v(6, 1, 28), v(6, 2, 15), v(6, 3, 2)],
        until: v(6, 4, 0),
        reach: NO_RULES,
    },
    Known {
        part: Part::Kernel,
        name: "CVE-2023-3269",
        what: "StackRot: memory maps used after they were freed",
        since: v(6, 1, 0),
        mended: &[v(6, 1, 37), v(6, 3, 11), v(6, 4, 1)],
        until: v(6, 5, 0),
        reach: Reach::Open,
    },
    Known {
        part: Part::Kernel,
        name: "CVE-2024-1086",
        what: "memory freed twice by verdicts of nf_tables",
        since: v(3, 15, 0),
        mended: &[v(5, 15, 149), v(6, 1, 76), v(6, 6, 15), v(6, 7, 3)],
        until: v(6, 8, 0),
        reach: NO_RULES,
    },
    Known {
        part: Part::Kernel,
        name: "CVE-2026-43284",
        what: "Dirty Frag: IPsec decrypts pages of files in place",
        since: v(4, 11, 0),
        mended: &[
            v(5, 15, 205),
            v(6, 1, 171),
            v(6, 6, 138),
            v(6, 12, 87),
            v(6, 18, 28),
            v(7, 0, 5),
        ],
        until: v(7, 1, 0),
        reach: NO_RULES,
    },
    Known {
        part: Part::Runc,
        name: "CVE-2024-21626",
        what: "a directory of the host is left open to containers",
        since: v(1, 0, 0).candidate(93),
        mended: &[],
        until: v(1, 1, 12),
        reach: Reach::Unused,
    },
    Known {
        part: Part::Runc,
        name: "CVE-2025-31133, CVE-2025-52565, CVE-2025-52881",
        what: "masked paths and the console lead writes to files of the host",
        since: v(0, 0, 0),
        mended: &[v(1, 2, 8), v(1, 3, 3)],
        until: v(1, 4, 0).candidate(3),
        reach: Reach::Unused,
    },
];

impl Known {
    /// Returns whether a version, as upstream made it, has the error.
    pub fn affects(&self, version: Version) -> bool {
        let beside = |mended: &&Version| mended.is_beside(version);
        let mended = self.mended.iter().find(beside).unwrap_or(&self.until);
        self.since <= version && version < *mended
    }

    /// Returns the versions without it, in words.
    pub fn mended_in(&self) -> Vec<String> {
        let all = self.mended.iter().chain([&self.until]);
        all.map(ToString::to_string).collect()
    }
}

/// Returns the known errors of a component's version, by upstream's ranges.
pub fn known(part: Part, version: Version) -> impl Iterator<Item = &'static Known> {
    let of_part = KNOWN.iter().filter(move |known| known.part == part);
    of_part.filter(move |known| known.affects(version))
}

/// Returns the command that asks a distribution whether it has fixed an error in the running
/// kernel; `like` has the words of ID and ID_LIKE of os-release(5).
pub fn question(like: &[&str], name: &str) -> Option<String> {
    let is = |names: &[&str]| like.iter().any(|one| names.contains(one));
    if is(&["ubuntu"]) {
        Some(format!("pro fix --dry-run {name}"))
    } else if is(&["debian"]) {
        Some(format!(
            "apt-get changelog linux-image-$(uname -r) | grep {name}"
        ))
    } else if is(&["fedora", "rhel", "centos"]) {
        Some(format!(
            "rpm -q --changelog kernel-core-$(uname -r) | grep {name}"
        ))
    } else if is(&["suse", "opensuse"]) {
        Some(format!("rpm -q --changelog kernel-default | grep {name}"))
    } else {
        None
    }
}
