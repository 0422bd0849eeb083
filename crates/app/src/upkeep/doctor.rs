//! What this host can enforce, why not more, and what helps.

use atoll_model::Mode;
use atoll_sandbox::{Held, Host, Unified, detect_groups};
use serde_json::{Value, json};

use crate::arguments::DoctorArguments;
use crate::configuration::Places;
use crate::delegation;
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
            findings.push(limits(&host));
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
    // Without them a fence is left, if Landlock is able to hold one.
    let is_fenced = matches!(host.mode(), Ok(Mode::Fence));
    let missing = |found: &str, fix: &str| Finding {
        name,
        grade: if is_fenced {
            Grade::Weaker
        } else {
            Grade::Missing
        },
        found: match is_fenced {
            true => format!("{found}: programs are only fenced in (docs/fence.md)"),
            false => found.to_owned(),
        },
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
    let restricted = setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1);
    if restricted && !matches!(host.mode(), Ok(Mode::Full)) {
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
        fix: (!is_whole).then(|| delegation::steps(host).join("\n")),
    }
}

/// What the summary of a run does not repeat each time.
fn limits(host: &Host) -> Finding {
    let held = detect_groups(host);
    let (grade, mut found) = match &held {
        Held::Unified(_) | Held::Separate { .. } => (
            Grade::Good,
            "held, but disk and inodes in part: they are watched, and can be passed for a moment"
                .to_owned(),
        ),
        Held::Nowhere(_) => (
            Grade::Weaker,
            "in part: memory (for each process, and watched; not what the kernel keeps for pipes, \
             sockets and page tables), disk and inodes (watched); not: swap, cpu"
                .to_owned(),
        ),
    };
    let counts_swap = match &held {
        Held::Separate { memory, .. } => memory.join("memory.memsw.limit_in_bytes").exists(),
        Held::Unified(_) | Held::Nowhere(_) => true,
    };
    if !counts_swap {
        found.push_str("; not: swap, which this kernel does not count");
    }
    if let (Held::Separate { .. }, Some(why)) = (&held, held.no_cpu()) {
        found.push_str(&format!("; not: cpu, because {why}"));
    }
    Finding {
        name: "limits",
        grade,
        found,
        fix: (grade != Grade::Good).then(|| {
            "a profile or option that asks for swap or cpu is refused here; the others start"
                .to_owned()
        }),
    }
}

fn state(host: &Host, places: &Places) -> Finding {
    let kind = host
        .mount_of(&places.state)
        .map_or("unknown", |mount| mount.kind.as_str());
    if let Ok(Mode::Fence) = host.mode() {
        return Finding {
            name: "copy-on-write",
            grade: Grade::Weaker,
            found: "not in a fence: the workspace is written directly, after a checkpoint"
                .to_owned(),
            fix: None,
        };
    }
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
        for line in fix.lines() {
            let line = output.paint.style(Style::Faint, line);
            text.push_str(&format!("{:<24} {line}\n", ""));
        }
    }
    text
}
