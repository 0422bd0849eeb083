//! What this host can enforce, why not more, and what helps.

use std::path::Path;

use atoll_sandbox::{Held, Host, Unified, detect_groups};
use serde_json::{Value, json};

use crate::arguments::DoctorArguments;
use crate::configuration::Places;
use crate::failure::Failure;
use crate::output::Output;
use crate::render::Style;

/// One thing that was looked at.
struct Finding {
    name: &'static str,
    grade: Grade,
    found: String,
    fix: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Grade {
    /// As it should be.
    Good,
    /// Weaker, and recorded so.
    Weaker,
    /// `atoll run` does not start.
    Missing,
}

/// Landlock's version that this build knows rules for.
const LANDLOCK_KNOWN: u32 = 6;
/// What its later versions brought.
const LANDLOCK_ADDS: [(u32, &str); 4] = [
    (2, "renames"),
    (3, "truncation"),
    (5, "device control"),
    (6, "signals and abstract sockets"),
];

/// Reports on the host; 1 when `atoll run` cannot start.
pub fn doctor(arguments: &DoctorArguments, output: &Output) -> Result<u8, Failure> {
    let places = Places::read()?;
    let mut findings = vec![kernel()];
    match Host::read() {
        Err(error) => findings.push(Finding {
            name: "landlock",
            grade: Grade::Missing,
            found: error.to_string(),
            fix: Some("add landlock to the lsm= list of the kernel's command line".to_owned()),
        }),
        Ok(host) => {
            findings.push(landlock(&host));
            findings.push(user_namespaces(&host));
            findings.push(groups(&host));
            findings.push(state(&host, &places));
        }
    }
    let missing = findings
        .iter()
        .any(|finding| finding.grade == Grade::Missing);
    if arguments.json {
        let list: Vec<Value> = findings.iter().map(as_json).collect();
        output.json(&json!({ "can-run": !missing, "findings": list }));
    } else {
        let text: String = findings
            .iter()
            .map(|finding| as_text(finding, output))
            .collect();
        output.result(&text);
    }
    Ok(u8::from(missing))
}

fn kernel() -> Finding {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    let mut numbers = release
        .split(['.', '-'])
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let old = version < (5, 15);
    Finding {
        name: "kernel",
        grade: if old { Grade::Missing } else { Grade::Good },
        found: format!("Linux {release}"),
        fix: old.then(|| "Linux 5.15 or newer is needed".to_owned()),
    }
}

fn landlock(host: &Host) -> Finding {
    let weaker = host.landlock < LANDLOCK_KNOWN;
    Finding {
        name: "landlock",
        grade: if weaker { Grade::Weaker } else { Grade::Good },
        found: format!("version {}", host.landlock),
        fix: weaker.then(|| {
            let more = LANDLOCK_ADDS
                .iter()
                .filter(|(version, _)| host.landlock < *version);
            let more: Vec<&str> = more.map(|(_, what)| *what).collect();
            format!("a newer kernel also confines {}", more.join(", "))
        }),
    }
}

fn user_namespaces(host: &Host) -> Finding {
    let name = "user-namespaces";
    let setting =
        |path: &str| -> Option<u64> { std::fs::read_to_string(path).ok()?.trim().parse().ok() };
    let good = |found: &str| Finding {
        name,
        grade: Grade::Good,
        found: found.to_owned(),
        fix: None,
    };
    let missing = |found: &str, fix: &str| Finding {
        name,
        grade: Grade::Missing,
        found: found.to_owned(),
        fix: Some(fix.to_owned()),
    };
    if setting("/proc/sys/user/max_user_namespaces") == Some(0) {
        return missing(
            "none may be made (user.max_user_namespaces is 0)",
            "sysctl -w user.max_user_namespaces=10000",
        );
    }
    if host.uid == 0 {
        return good("root makes them");
    }
    if setting("/proc/sys/kernel/unprivileged_userns_clone") == Some(0) {
        return missing(
            "ordinary users may not make them (kernel.unprivileged_userns_clone is 0)",
            "sysctl -w kernel.unprivileged_userns_clone=1",
        );
    }
    if setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1) {
        return missing(
            "AppArmor gives ordinary users' namespaces no rights \
             (kernel.apparmor_restrict_unprivileged_userns is 1)",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        );
    }
    good("ordinary users make them")
}

fn groups(host: &Host) -> Finding {
    let held = detect_groups(host);
    let no_cpu = held.no_cpu();
    let place = match &held {
        Held::Unified(Unified { parent, .. }) => format!("version 2, beneath {}", parent.display()),
        Held::Separate { memory, .. } => format!("version 1, beneath {}", memory.display()),
        Held::Nowhere(why) => {
            format!("none: {why}; memory is held per process and by the supervisor")
        }
    };
    let found = match (&held, &no_cpu) {
        (Held::Unified(_) | Held::Separate { .. }, Some(why)) => {
            format!("{place}; time of the processor is not limited: {why}")
        }
        (Held::Unified(_) | Held::Separate { .. }, None) | (Held::Nowhere(_), _) => place,
    };
    let is_whole = no_cpu.is_none();
    Finding {
        name: "control-groups",
        grade: if is_whole { Grade::Good } else { Grade::Weaker },
        found,
        fix: (!is_whole).then(|| delegation(host)),
    }
}

/// How a group comes to be this user's.
fn delegation(host: &Host) -> String {
    // As sd_booted(3) sees it.
    let user = if host.uid == 0 { "" } else { "--user " };
    if Path::new("/run/systemd/system").is_dir() {
        return format!("systemd-run {user}--scope -p Delegate=yes atoll run -- COMMAND");
    }
    if host.uid == 0 {
        return "start atoll as the only process of a control group of its own, which has the \
                controllers memory, pids and cpu"
            .to_owned();
    }
    let top = host.mounts.iter().find(|mount| mount.kind == "cgroup2");
    let top = top.map(|mount| mount.path.as_path());
    let passes_on = |top: &&Path| {
        let there = std::fs::read_to_string(top.join("cgroup.controllers"));
        there.is_ok_and(|there| there.contains("memory"))
    };
    match top.filter(passes_on) {
        Some(top) => format!(
            "as root: cd {}; echo +memory +pids +cpu > cgroup.subtree_control; mkdir mine; chown \
             {} mine mine/cgroup.procs mine/cgroup.subtree_control; then start atoll as the only \
             process in it",
            top.display(),
            host.uid
        ),
        None => "have root make groups with the controllers memory, pids and cpu that are yours, \
                 and start atoll in them"
            .to_owned(),
    }
}

fn state(host: &Host, places: &Places) -> Finding {
    let kind = host
        .mount_of(&places.state)
        .map_or("unknown", |mount| mount.kind.as_str());
    let can_overlay = ["ext4", "ext3", "xfs", "btrfs", "tmpfs", "f2fs"].contains(&kind);
    Finding {
        name: "copy-on-write",
        grade: if can_overlay {
            Grade::Good
        } else {
            Grade::Weaker
        },
        found: if can_overlay {
            format!("overlayfs, in {} ({kind})", places.state.display())
        } else {
            format!(
                "the workspace is copied, because {} is on {kind}",
                places.state.display()
            )
        },
        fix: (!can_overlay)
            .then(|| "set XDG_STATE_HOME to a directory on ext4, xfs, btrfs or tmpfs".to_owned()),
    }
}

fn as_json(finding: &Finding) -> Value {
    json!({
        "name": finding.name,
        "grade": match finding.grade {
            Grade::Good => "good",
            Grade::Weaker => "weaker",
            Grade::Missing => "missing",
        },
        "found": finding.found,
        "fix": finding.fix,
    })
}

fn as_text(finding: &Finding, output: &Output) -> String {
    let (style, sign) = match finding.grade {
        Grade::Good => (Style::Good, "ok"),
        Grade::Weaker => (Style::Notable, "weaker"),
        Grade::Missing => (Style::Bad, "missing"),
    };
    let sign = output.paint.style(style, &format!("{sign:<8}"));
    let mut text = format!("{sign}{:<16} {}\n", finding.name, finding.found);
    if let Some(fix) = &finding.fix {
        text.push_str(&format!(
            "{:<24} {}\n",
            "",
            output.paint.style(Style::Faint, fix)
        ));
    }
    text
}
