//! Versions of the kernel and of other programs, and the upstream versions they contain.

use std::fmt;

/// A version as upstream counts: three numbers, then candidates before a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    numbers: [u32; 3],
    /// The number of a release candidate; the release itself stands above all.
    candidate: u32,
}

const RELEASED: u32 = u32::MAX;

impl Version {
    /// Creates the version of a release.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self {
            numbers: [major, minor, patch],
            candidate: RELEASED,
        }
    }

    /// Creates the version of a release candidate.
    pub const fn candidate(self, number: u32) -> Self {
        Self {
            numbers: self.numbers,
            candidate: number,
        }
    }

    /// Returns whether both are of one release line, which continues in the last number.
    pub const fn is_beside(self, other: Self) -> bool {
        let ([a, b, _], [c, d, _]) = (self.numbers, other.numbers);
        a == c && b == d
    }

    /// Reads a version at the beginning of a text: `6.11.4-301.fc41.x86_64`,
    /// `6.13.0-rc4`, `5.15.167.4-microsoft-standard-WSL2`, `1.1.5+ds1`.
    pub fn read(text: &str) -> Option<Self> {
        let ends = |one: char| !(one.is_ascii_digit() || one == '.');
        let (numbers, rest) = text.split_at(text.find(ends).unwrap_or(text.len()));
        let mut numbers = numbers.split('.').map(str::parse::<u32>);
        let mut next = || match numbers.next() {
            None | Some(Err(_)) => None,
            Some(Ok(number)) => Some(number),
        };
        let (major, minor) = (next()?, next()?);
        let version = Self::new(major, minor, next().unwrap_or(0));
        let candidate = rest.strip_prefix("-rc").map(|rest| {
            let rest = rest.trim_start_matches('.');
            let end = rest.find(|one: char| !one.is_ascii_digit());
            rest.split_at(end.unwrap_or(rest.len())).0.parse().ok()
        });
        match candidate {
            None => Some(version),
            // A candidate whose number cannot be read is the earliest one.
            Some(number) => Some(version.candidate(number.unwrap_or(0))),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(out, "{major}.{minor}")?;
        if patch > 0 {
            write!(out, ".{patch}")?;
        }
        match self.candidate {
            RELEASED => Ok(()),
            number => write!(out, "-rc{number}"),
        }
    }
}

/// Returns upstream's version of the running kernel: `release` and `build` are those of uname(2),
/// `signature` is Ubuntu's /proc/version_signature. Some distributions put only the first numbers
/// into the release.
pub fn of_kernel(release: &str, build: &str, signature: Option<&str>) -> Option<Version> {
    let told = Version::read(release)?;
    let signed = signature.and_then(|text| text.split_whitespace().last());
    // `#1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1 (2024-02-01)`
    let built = build.split_once("Debian ").map(|(_, after)| after);
    let further = [signed, built];
    let further = further.into_iter().flatten().filter_map(Version::read);
    Some(
        further
            .filter(|one| one.is_beside(told))
            .fold(told, Ord::max),
    )
}
