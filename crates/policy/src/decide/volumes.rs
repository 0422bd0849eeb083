//! Volumes of a served sandbox: the places where one may be mounted.

use std::path::{Component, Path};

use atoll_model::{Boundary, Call, Reason, VolumeMount};

use crate::origin::Origin;
use crate::places::{is_plain_absolute, overlap};
use crate::refusal::reason;
use crate::rules::Rules;

/// The directories of the system, and those that a sandbox has of its own: nothing is mounted there.
/// In its home and in /tmp it makes sockets and pipes, which no volume is to hold.
const TAKEN: [&str; 22] = [
    "bin",
    "boot",
    "dev",
    "etc",
    "gnu",
    "home",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "nix",
    "opt",
    "proc",
    "root",
    "run",
    "sbin",
    "srv",
    "sys",
    "tmp",
    "usr",
    "var",
    "lost+found",
];

const INSTEAD: &str = "mount it beneath /mnt, as /mnt/NAME, or in a directory of its own, as /data";

/// Returns the volumes of a served sandbox.
pub(super) fn of(call: &Call) -> Vec<VolumeMount> {
    let served = call.served();
    served.map_or_else(Vec::new, |served| served.volumes.clone())
}

/// Returns refusals of volumes that would hide something, or be shared beyond their files.
pub(super) fn refusals(rules: &Rules, boundary: &Boundary) -> Vec<Reason> {
    let mut reasons = Vec::new();
    for (at, mount) in boundary.volumes.iter().enumerate() {
        let others = boundary.volumes.iter().take(at);
        if let Some(why) = why_not(mount, others) {
            let what = format!("volume {} at {}", mount.name, mount.inside.display());
            reasons.push(reason(what, why, &Origin::BuiltIn, INSTEAD));
        }
    }
    if rules.root.value && !boundary.volumes.is_empty() {
        reasons.push(reason(
            "a volume",
            "root changes every directory around it, and could make sockets and pipes in it",
            &rules.root.origin,
            "make the sandbox from a template that is shipped, or leave the volume out",
        ));
    }
    if rules.nesting.value && !boundary.volumes.is_empty() {
        reasons.push(reason(
            "a volume",
            "with nesting Landlock holds no files, and programs of two sandboxes could make sockets \
             and pipes to each other in it",
            &rules.nesting.origin,
            "leave nesting out of serve.toml, or the volume",
        ));
    }
    reasons
}

fn why_not<'a>(
    mount: &VolumeMount,
    mut others: impl Iterator<Item = &'a VolumeMount>,
) -> Option<&'static str> {
    let inside = &mount.inside;
    if !is_plain_absolute(inside) {
        return Some("it is not an absolute path free of `.` and `..`");
    }
    let first = inside.components().find_map(|part| match part {
        Component::Normal(name) => Some(name),
        _ => None,
    });
    let Some(first) = first else {
        return Some("it is the whole system");
    };
    if TAKEN
        .iter()
        .any(|taken| Path::new(first) == Path::new(taken))
    {
        return Some("the system, or the sandbox, has a directory of its own there");
    }
    if others.any(|other| overlap(&other.inside, inside)) {
        return Some("another volume is there, or beneath");
    }
    None
}
