//! The places for control groups (cgroups(7)): in version 2 if it has the controllers, in
//! version 1 if those are there (also on hybrid hosts), nowhere if neither is ours.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Host;

/// The controllers that are required.
pub(crate) const CONTROLLERS: [&str; 2] = ["memory", "pids"];

/// A group's file that lists the controllers it could pass on.
const AVAILABLE: &str = "cgroup.controllers";
/// A group's file that lists the controllers it passes on.
pub(crate) const ON: &str = "cgroup.subtree_control";

/// The control group support of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// Version 2.
    Unified(Unified),
    /// Version 1: the directories of the controllers that are there.
    Separate {
        /// `memory`.
        memory: PathBuf,
        /// `pids`.
        pids: PathBuf,
        /// `cpu`, which only some limits need.
        cpu: Option<PathBuf>,
    },
    /// No groups, with the reason.
    Nowhere(String),
}

/// A place for groups in version 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unified {
    /// The directory for the groups.
    pub parent: PathBuf,
    /// True if processor time can be limited too.
    pub cpu: bool,
    /// The preparation that is necessary.
    pub first: First,
}

/// The preparation for a group with controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// Nothing.
    Nothing,
    /// Switch the controllers on.
    SwitchOn,
    /// Move Atoll's own processes out of the directory, then switch the controllers on: no
    /// group but the root may have both ("no internal processes").
    Leave,
}

impl Held {
    /// Returns why processor time cannot be limited; `None` if it can.
    #[must_use]
    pub fn no_cpu(&self) -> Option<String> {
        match self {
            Self::Unified(Unified { cpu: true, .. }) | Self::Separate { cpu: Some(_), .. } => None,
            Self::Unified(Unified { parent, .. }) => {
                Some(format!("{} has no cpu controller", parent.display()))
            }
            Self::Separate { cpu: None, .. } => Some("no cpu controller was found".to_owned()),
            Self::Nowhere(why) => Some(why.clone()),
        }
    }
}

/// Finds the place where this process can make control groups, without making any.
#[must_use]
pub fn detect(host: &Host) -> Held {
    let unified = unified(host);
    if let Ok(Some(unified)) = unified {
        return Held::Unified(unified);
    }
    let separate = |controller: &str| -> Option<PathBuf> {
        let mut mounts = host.mounts.iter().rev();
        let mount = mounts.find(|mount| mount.kind == "cgroup" && mount.has_option(controller))?;
        let (_, group) = host
            .groups
            .iter()
            .find(|(controllers, _)| controllers.split(',').any(|one| one == controller))?;
        let directory = beneath(&mount.path, group)?;
        is_writable(&directory).then_some(directory)
    };
    match (separate("memory"), separate("pids"), unified) {
        (Some(memory), Some(pids), _) => Held::Separate {
            memory,
            pids,
            cpu: separate("cpu"),
        },
        (_, _, Err(Shared(group))) => Held::Nowhere(format!(
            "other processes are in the control group {}, so its controllers cannot be switched on",
            group.display()
        )),
        _ if host.uid == 0 => Held::Nowhere("no memory and pids controllers were found".to_owned()),
        _ => Held::Nowhere("no control group is delegated to this user".to_owned()),
    }
}

/// A group that would do if it had no other members.
struct Shared(PathBuf);

/// Returns the place in version 2, the first of:
/// 1. this process's own group, if systemd has delegated it and it has no other members.
///    Groups elsewhere are systemd's, which may switch controllers off there;
/// 2. the nearest group above with the controllers on that this user may write to;
/// 3. the root of all groups, whose controllers root may switch on;
/// 4. this process's own group, if systemd does not manage it and it has no other members.
fn unified(host: &Host) -> Result<Option<Unified>, Shared> {
    let mount = host.mounts.iter().rev();
    let mount = mount.into_iter().find(|mount| mount.kind == "cgroup2");
    let own = host.groups.iter().find(|(names, _)| names.is_empty());
    let (Some(mount), Some((_, own))) = (mount, own) else {
        return Ok(None);
    };
    let Some(own) = beneath(&mount.path, own) else {
        return Ok(None);
    };
    let top = is_top(&mount.path).then_some(mount.path.as_path());
    let enterable = Some(own.as_path()) != top && may_switch_on(&own);
    let unit = Unit::of(&own);
    let alone = enterable && has_only_ours(&own);
    let entered = |own: PathBuf| Unified {
        cpu: lists(&own, AVAILABLE, &["cpu"]),
        parent: own,
        first: First::Leave,
    };
    if alone && unit == Unit::Delegated {
        return Ok(Some(entered(own)));
    }
    let on = |directory: &&Path| lists(directory, ON, &CONTROLLERS) && is_open(directory);
    let above = own.ancestors();
    let mut above = above.take_while(|directory| directory.starts_with(&mount.path));
    if let Some(parent) = above.find(on) {
        return Ok(Some(switched_on(parent, top)));
    }
    match (top.filter(|top| may_switch_on(top)), alone, unit) {
        (Some(top), _, _) => Ok(Some(switched_on(top, Some(top)))),
        (None, true, Unit::None) => Ok(Some(entered(own))),
        (None, false, Unit::None | Unit::Delegated) if enterable => Err(Shared(own)),
        (None, _, Unit::None | Unit::Delegated | Unit::Managed) => Ok(None),
    }
}

/// Describes a place whose controllers are on or, at the root, will be.
fn switched_on(parent: &Path, top: Option<&Path>) -> Unified {
    let cpu = lists(parent, ON, &["cpu"]);
    let can = top == Some(parent) && may_switch_on(parent);
    let adds_cpu = can && !cpu && lists(parent, AVAILABLE, &["cpu"]);
    let adds = can && !lists(parent, ON, &CONTROLLERS);
    Unified {
        parent: parent.to_path_buf(),
        cpu: cpu || adds_cpu,
        first: if adds || adds_cpu {
            First::SwitchOn
        } else {
            First::Nothing
        },
    }
}

/// Returns whether a directory is the root of all groups, which alone passes controllers on
/// while it has processes of its own.
fn is_top(directory: &Path) -> bool {
    directory.join(AVAILABLE).exists() && !directory.join("cgroup.events").exists()
}

/// The relation of a group to systemd, by attributes of its directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// Not managed by systemd.
    None,
    /// The whole of a unit that may make groups beneath.
    Delegated,
    /// Part of a unit in which systemd decides on controllers.
    Managed,
}

impl Unit {
    fn of(directory: &Path) -> Self {
        let has = |name: &str| {
            let mut value = [0_u8; 64];
            !["user", "trusted"].iter().all(|space| {
                rustix::fs::getxattr(directory, format!("{space}.{name}"), &mut value[..]).is_err()
            })
        };
        match (has("delegate"), has("invocation_id")) {
            (true, _) => Self::Delegated,
            (false, true) => Self::Managed,
            (false, false) => Self::None,
        }
    }
}

/// Returns a group's directory, from the hierarchy's mount point and the group's own path.
fn beneath(mount: &Path, group: &Path) -> Option<PathBuf> {
    let group = group.strip_prefix("/").ok()?;
    // A group outside of this namespace is told with dots.
    let is_inside = group
        .components()
        .all(|part| matches!(part, std::path::Component::Normal(_)));
    // Joined with nothing, a path would end in a slash.
    let joined = mount.components().chain(group.components()).collect();
    is_inside.then_some(joined)
}

/// Returns whether a file of a group lists all of these controllers.
fn lists(directory: &Path, file: &str, wanted: &[&str]) -> bool {
    fs::read_to_string(directory.join(file)).is_ok_and(|list| {
        wanted
            .iter()
            .all(|wanted| list.split_whitespace().any(|one| one == *wanted))
    })
}

/// Returns whether this user can switch the controllers on.
fn may_switch_on(directory: &Path) -> bool {
    lists(directory, AVAILABLE, &CONTROLLERS)
        && is_open(directory)
        && is_writable(&directory.join(ON))
}

/// Returns whether this user may make groups here and start processes in them.
fn is_open(directory: &Path) -> bool {
    is_writable(directory) && is_writable(&directory.join("cgroup.procs"))
}

/// Returns whether this process and its descendants are a group's only members.
fn has_only_ours(directory: &Path) -> bool {
    const GENERATIONS_MAX: usize = 8;
    let own = std::process::id();
    let is_ours = |pid: u32| {
        let mut line = std::iter::successors(Some(pid), |pid| parent_of(*pid));
        line.by_ref().take(GENERATIONS_MAX).any(|pid| pid == own)
    };
    fs::read_to_string(directory.join("cgroup.procs"))
        .is_ok_and(|list| list.lines().all(|line| line.parse().is_ok_and(is_ours)))
}

fn parent_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    parent.trim().parse().ok()
}

fn is_writable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
}
