//! Paths as written in profiles, and the places that no boundary may show.

use std::path::{Component, Path, PathBuf};

use crate::HostFacts;
use crate::document::Complaint;

/// The directories of the operating system that are shown by default. The sandbox leaves out those
/// that a host does not have.
pub(crate) const SYSTEM: [&str; 11] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/gnu",
];

/// The host's directories that root in a sandbox sees in its own, otherwise empty /var: those of
/// package managers and of packages' scripts.
pub(crate) const CHANGED_BY_PACKAGES: [&str; 13] = [
    "/var/cache/apt",
    "/var/cache/debconf",
    "/var/lib/apk",
    "/var/lib/apt",
    "/var/lib/dpkg",
    "/var/lib/pam",
    "/var/lib/pacman",
    "/var/lib/python",
    "/var/lib/rpm",
    "/var/lib/sgml-base",
    "/var/lib/systemd/deb-systemd-helper-enabled",
    "/var/lib/ucf",
    "/var/lib/xml-core",
];

/// Directories of the system whose files a daemon of the host manages: root in a sandbox can only
/// read them, as everybody can.
pub(crate) const LEFT_AS_IT_IS: [&str; 2] = ["/nix", "/gnu"];

/// Trees that are never shown, with the reason.
const NEVER: [(&str, &str); 5] = [
    ("/proc", "the sandbox has a /proc of its own"),
    ("/sys", "it would show and change the kernel's state"),
    ("/dev", "the sandbox has a small /dev of its own"),
    ("/run", "it holds the sockets of the host's services"),
    ("/var/run", "it holds the sockets of the host's services"),
];

/// A path outside the system's directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Absolute(PathBuf),
    /// Relative to the home directory, never empty.
    Home(PathBuf),
}

impl Place {
    pub(crate) fn resolve(&self, home: &Path) -> PathBuf {
        match self {
            Self::Absolute(path) => path.clone(),
            Self::Home(path) => home.join(path),
        }
    }
}

/// Parses an absolute path without `.` and `..`.
pub(crate) fn parse_absolute(text: &str) -> Result<PathBuf, Complaint> {
    let path = Path::new(text);
    if text.starts_with('~') {
        return Err(Complaint::new(
            format!("{text:?} is not an absolute path"),
            "places in the home directory go to [home] or to [files]",
        ));
    }
    if !is_plain_absolute(path) {
        return Err(format!("{text:?} is not an absolute path free of `.` and `..`").into());
    }
    match forbidden(path) {
        Some(why) => Err(refusal(path, why)),
        None => Ok(path.components().collect()),
    }
}

/// Parses a path relative to the home directory, without `.` and `..`.
pub(crate) fn parse_in_home(text: &str) -> Result<PathBuf, Complaint> {
    let wrong = |hint: &str| {
        Complaint::new(
            format!("{text:?} is not a place relative to the home directory"),
            hint,
        )
    };
    if let Some(rest) = text.strip_prefix("~/") {
        return Err(wrong(&format!("write {rest:?}")));
    }
    if text.starts_with('/') {
        return Err(wrong("absolute paths go to [files] read"));
    }
    let path = Path::new(text);
    if is_plain_relative(path) && text != "~" {
        Ok(path.components().collect())
    } else {
        Err(wrong(
            "it must not be empty or the home itself, and be free of `.` and `..`",
        ))
    }
}

/// Parses an absolute path or one that starts with `~/`.
pub(crate) fn parse_place(text: &str) -> Result<Place, Complaint> {
    match text.strip_prefix("~/") {
        Some(rest) => parse_in_home(rest).map(Place::Home),
        None if text == "~" => Err(refusal(Path::new(text), "it is the home directory itself")),
        None => parse_absolute(text).map(Place::Absolute),
    }
}

/// Parses a place to be denied, which may also be one that is never shown.
pub(crate) fn parse_denied(text: &str) -> Result<Place, Complaint> {
    let path = Path::new(text);
    match text.strip_prefix("~/") {
        Some(rest) => parse_in_home(rest).map(Place::Home),
        None if is_plain_absolute(path) => Ok(Place::Absolute(path.components().collect())),
        None => Err(format!("{text:?} is not an absolute path free of `.` and `..`").into()),
    }
}

/// Returns whether the path starts at the root and has no `.`, `..` or NUL.
pub(crate) fn is_plain_absolute(path: &Path) -> bool {
    path.is_absolute() && path.components().skip(1).all(is_normal) && is_literal(path)
}

fn is_plain_relative(path: &Path) -> bool {
    path.components().next().is_some() && path.components().all(is_normal) && is_literal(path)
}

fn is_normal(component: Component<'_>) -> bool {
    matches!(component, Component::Normal(_))
}

/// Returns whether the text has no `.` component, which `components` skips in the middle, and no
/// NUL.
fn is_literal(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    !bytes.contains(&0) && bytes.split(|byte| *byte == b'/').all(|part| part != b".")
}

fn refusal(path: &Path, why: &str) -> Complaint {
    Complaint::new(
        format!("{} is never shown: {why}", path.display()),
        instead_of(path, None),
    )
}

/// Returns the alternative to showing a place that is never shown: a part of it if it only contains
/// such a place, nothing if it lies in one.
pub(crate) fn instead_of(path: &Path, host: Option<&HostFacts>) -> &'static str {
    let own = host.map(|host| [host.state_dir.as_path(), host.config_dir.as_path()]);
    let mut trees = NEVER
        .iter()
        .map(|(tree, _)| Path::new(*tree))
        .chain(own.into_iter().flatten());
    if trees.any(|tree| path.starts_with(tree)) {
        "leave it out: nothing in there is ever shown; name a copy elsewhere if a file is needed"
    } else {
        "name what is needed beneath it, or elsewhere"
    }
}

/// Returns why a path is never shown on any host.
pub(crate) fn forbidden(path: &Path) -> Option<&'static str> {
    if path == Path::new("/") {
        return Some("it is the whole system");
    }
    if path == Path::new("/tmp") {
        return Some("the sandbox has a /tmp of its own");
    }
    NEVER
        .iter()
        .find(|(tree, _)| overlap(path, Path::new(tree)))
        .map(|(_, why)| *why)
}

/// Returns why a path is never shown on this host; also for the home directory, Atoll's own
/// directories, and any that contain them.
pub(crate) fn forbidden_here(path: &Path, host: &HostFacts) -> Option<&'static str> {
    if let Some(why) = forbidden(path) {
        return Some(why);
    }
    if overlap(path, &host.home) && parts(path).count() <= parts(&host.home).count() {
        return Some(if path == host.home {
            "it is the home directory itself"
        } else {
            "it holds the home directory"
        });
    }
    if overlap(path, &host.state_dir) {
        return Some("Atoll's own state is there");
    }
    if overlap(path, &host.config_dir) {
        return Some("Atoll's own configuration is there");
    }
    None
}

/// Returns whether one path is the other or lies beneath it. This is called some hundred times at
/// each start, so it walks the bytes once; an empty path overlaps all.
pub(crate) fn overlap(left: &Path, right: &Path) -> bool {
    let (mut left, mut right) = (parts(left), parts(right));
    loop {
        match (left.next(), right.next()) {
            (Some(one), Some(other)) if one == other => {}
            (Some(_), Some(_)) => return false,
            (None, _) | (_, None) => return true,
        }
    }
}

/// Returns the components of a path without `..`.
fn parts(path: &Path) -> impl Iterator<Item = &[u8]> {
    let parts = path
        .as_os_str()
        .as_encoded_bytes()
        .split(|byte| *byte == b'/');
    parts.filter(|part| !part.is_empty() && *part != b".")
}
