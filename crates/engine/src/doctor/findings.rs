//! The findings that follow from the facts: pure, so that every kind of host is a test.

use atoll_model::Mode;
use atoll_sandbox::{FENCE_LANDLOCK, Held, Trial, USER_NAMESPACE, Unified};

use super::facts::{Facts, Holding};
use super::finding::{Finding, Grade, Group, Holds};
use super::fixes;
use super::known::{self, Part, Reach};
use super::proving::proving;
use super::version::Version;
use crate::delegation::Step;

/// The oldest kernel that Atoll is made for.
const OLDEST: Version = Version::new(5, 15, 0);
/// Landlock's version that this build knows rules for, and the kernel that has it.
const LANDLOCK_KNOWN: u32 = 6;
/// The rights that each Landlock ABI version added, with the first kernel of each.
const LANDLOCK_ADDS: [(u32, &str, &str); 5] = [
    (2, "moves between directories", "5.19"),
    (3, "truncation", "6.2"),
    (4, "TCP ports, which a fence needs", "6.7"),
    (5, "control of devices", "6.10"),
    (6, "signals and abstract sockets", "6.12"),
];

/// Returns all findings.
pub fn diagnose(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![kernel(facts), launcher(facts)];
    match &facts.holding {
        Err(error) => findings.push(without_landlock(facts, error)),
        Ok(holding) => {
            findings.push(landlock(holding));
            findings.push(filter(facts, holding));
            findings.push(
                Finding::new(
                    Group::Kernel,
                    "no-new-privileges",
                    Grade::Good,
                    "set-user-id programs give nothing",
                )
                .promises(Holds::Whole, Holds::Whole),
            );
            let namespaces = namespaces(facts, holding);
            let has_mode = namespaces.grade != Grade::Missing;
            findings.push(namespaces);
            // Without any mode there is nothing to tell of what one gives.
            if has_mode {
                findings.push(copy_on_write(holding));
                findings.extend(of_mode(holding));
            }
            findings.push(groups(holding));
            findings.extend(limits(holding));
        }
    }
    findings.push(proving(&facts.provers));
    findings.extend(known_errors(facts));
    findings
}

/// Returns the mode that `atoll run` works in here; `None` if it does not start.
pub fn mode(facts: &Facts, findings: &[Finding]) -> Option<Mode> {
    let is_missing = findings.iter().any(|one| one.grade == Grade::Missing);
    let holding = facts.holding.as_ref().ok().filter(|_| !is_missing)?;
    holding.mode.as_ref().ok().copied()
}

fn kernel(facts: &Facts) -> Finding {
    let (release, version) = &facts.kernel;
    let found = match version {
        Some(version) if !release.starts_with(&version.to_string()) => {
            format!("Linux {release}, upstream's {version}")
        }
        Some(_) | None => format!("Linux {release}"),
    };
    let is_old = version.is_some_and(|version| version < OLDEST);
    let grade = if is_old { Grade::Missing } else { Grade::Good };
    let finding = Finding::new(Group::Kernel, "kernel", grade, found);
    if is_old {
        finding.because("Linux 5.15 or newer is needed")
    } else {
        finding
    }
}

fn launcher(facts: &Facts) -> Finding {
    let name = "launcher";
    let Err(error) = &facts.launcher else {
        let found = "starts from memory, tried";
        return Finding::new(Group::Kernel, name, Grade::Good, found);
    };
    let missing = Finding::new(Group::Kernel, name, Grade::Missing, error);
    if facts.settings.memory_programs == Some(2) {
        return missing
            .because("vm.memfd_noexec is 2, which forbids programs in memory")
            .mended_by([fixes::setting("vm.memfd_noexec", 1)]);
    }
    missing.because("a security module may forbid programs in memory: dmesg tells")
}

fn without_landlock(facts: &Facts, error: &str) -> Finding {
    Finding::new(Group::Kernel, "landlock", Grade::Missing, "not there")
        .because(error)
        .mended_by(fixes::landlock(facts))
        .promises(Holds::Not, Holds::Not)
}

fn landlock(holding: &Holding) -> Finding {
    let found = format!("version {}", holding.landlock);
    let lacks = |(version, _, _): &&(u32, &str, &str)| holding.landlock < *version;
    let left_out: Vec<&str> = LANDLOCK_ADDS
        .iter()
        .filter(lacks)
        .map(|(_, what, _)| *what)
        .collect();
    let is_whole = holding.landlock >= LANDLOCK_KNOWN;
    let grade = if is_whole { Grade::Good } else { Grade::Weaker };
    let fence = if holding.landlock < FENCE_LANDLOCK {
        Holds::Not
    } else if is_whole {
        Holds::Whole
    } else {
        Holds::Partly
    };
    let full = if is_whole {
        Holds::Whole
    } else {
        Holds::Partly
    };
    let finding = Finding::new(Group::Kernel, "landlock", grade, found).promises(full, fence);
    let newest = LANDLOCK_ADDS.last().map_or("", |(_, _, kernel)| *kernel);
    if is_whole {
        finding
    } else {
        finding.because(format!(
            "left out: {}; Linux {newest} has all",
            left_out.join(", ")
        ))
    }
}

fn filter(facts: &Facts, holding: &Holding) -> Finding {
    let (has_filters, answers) = &facts.filters;
    let can_judge = answers.as_deref().is_none_or(|answers| {
        let mut answers = answers.split_whitespace();
        answers.any(|one| one == "user_notif")
    });
    let needs_judge = matches!(holding.mode, Ok(Mode::Fence));
    let (grade, found) = match (*has_filters, can_judge) {
        (false, _) => (Grade::Missing, "this kernel has no filters of system calls"),
        (true, false) if needs_judge => (Grade::Missing, "filters, without the judge of a fence"),
        (true, false) => (Grade::Good, "filters, without the judge of a fence"),
        (true, true) => (Grade::Good, "filters, and a judge in a fence"),
    };
    let holds = |is: bool| if is { Holds::Whole } else { Holds::Not };
    Finding::new(Group::Kernel, "seccomp", grade, found)
        .promises(holds(*has_filters), holds(*has_filters && can_judge))
}

/// Reports what prevents namespaces, and what helps.
fn namespaces(facts: &Facts, holding: &Holding) -> Finding {
    let name = "user-namespaces";
    let (why, fixes) = match &holding.trial {
        Trial::Works if holding.unmapped => return unmapped(facts, holding, name),
        Trial::Works => {
            let found = if holding.is_root {
                "root makes them, tried"
            } else {
                "ordinary users make them, tried"
            };
            return Finding::new(Group::Boundary, name, Grade::Good, found)
                .promises(Holds::Whole, Holds::Not);
        }
        Trial::NoOverlay => (
            "this kernel mounts no overlayfs in them".to_owned(),
            fixes::overlay(facts),
        ),
        Trial::NoMounts => ("nothing can be mounted in them".to_owned(), Vec::new()),
        Trial::NoProc => (
            "/proc cannot be mounted in them, because parts of the one here are covered, as in \
             containers"
                .to_owned(),
            Vec::new(),
        ),
        Trial::NoNamespaces(error) => fixes::forbidden(facts, holding, &error.to_string()),
        Trial::NoRights => fixes::forbidden(facts, holding, "they give no rights"),
        Trial::NoSystem => fixes::forbidden(facts, holding, "the system cannot be shown in them"),
    };
    // Without them a fence is left, if Landlock is able to hold one.
    let is_fenced = matches!(holding.mode, Ok(Mode::Fence));
    let (grade, found) = if is_fenced {
        (Grade::Weaker, "cannot be used: programs are only fenced in")
    } else {
        (Grade::Missing, "cannot be used")
    };
    let why = match &holding.mode {
        Err(error) => format!("{why}; {error}"),
        Ok(Mode::Full | Mode::Fence) => why,
    };
    Finding::new(Group::Boundary, name, grade, found)
        .because(why)
        .mended_by(fixes)
        .promises(Holds::Not, Holds::Not)
}

/// Reports that root isolates programs without user namespaces too: as users of Atoll's own.
fn unmapped(facts: &Facts, holding: &Holding, name: &str) -> Finding {
    let (why, fixes) = fixes::forbidden(facts, holding, "none can be made");
    let found = "none: programs of root are users of Atoll's own, and work on a copy";
    Finding::new(Group::Boundary, name, Grade::Weaker, found)
        .because(why)
        .mended_by(fixes)
        .promises(Holds::Partly, Holds::Not)
}

fn copy_on_write(holding: &Holding) -> Finding {
    let name = "copy-on-write";
    let (state, kind, holds) = &holding.state;
    let full = if *holds { Holds::Whole } else { Holds::Partly };
    if matches!(holding.mode, Ok(Mode::Fence)) {
        let found = "the workspace is written directly, after a checkpoint";
        return Finding::new(Group::Boundary, name, Grade::Weaker, found)
            .because("an overlay needs namespaces")
            .promises(Holds::Not, Holds::Not);
    }
    if holding.unmapped {
        let found = "the workspace is copied; root inside and live runs are refused";
        return Finding::new(Group::Boundary, name, Grade::Weaker, found)
            .because("without user namespaces no files are shown with other owners")
            .promises_on(holding, Holds::Partly, Holds::Not);
    }
    if *holds {
        let found = format!("overlayfs, in {} ({kind})", state.display());
        return Finding::new(Group::Boundary, name, Grade::Good, found).promises_on(
            holding,
            full,
            Holds::Not,
        );
    }
    Finding::new(
        Group::Boundary,
        name,
        Grade::Weaker,
        "the workspace is copied",
    )
    .because(format!("{} is on {kind}", state.display()))
    .mended_by([
        Step::of_caller("export XDG_STATE_HOME=DIRECTORY").with("one on ext4, xfs, btrfs or tmpfs")
    ])
    .promises_on(holding, full, Holds::Not)
}

/// Reports what a mode gives on every host that has it.
fn of_mode(holding: &Holding) -> [Finding; 3] {
    use Holds::{Partly, Whole};
    let is_fenced = matches!(holding.mode, Ok(Mode::Fence));
    let row =
        |name: &str, grade: Grade, found: &str| Finding::new(Group::Boundary, name, grade, found);
    let network = if is_fenced {
        row(
            "network",
            Grade::Note,
            "closed by a judge; the loopback is the host's",
        )
    } else {
        row(
            "network",
            Grade::Good,
            "closed: a namespace with nothing but its loopback",
        )
    };
    let nested = row(
        "nested-namespaces",
        Grade::Good,
        "programs can make none of their own",
    );
    let moves = match (is_fenced, holding.is_root) {
        (true, _) | (false, true) => row(
            "moved-directories",
            Grade::Good,
            "directories of the workspace can be renamed",
        ),
        (false, false) => row(
            "moved-directories",
            Grade::Note,
            "renaming a directory of the workspace is refused (EXDEV); mv copies it",
        ),
    };
    let moving = if holding.is_root { Whole } else { Partly };
    [
        network.promises_on(holding, Whole, Partly),
        nested.promises_on(holding, Whole, Whole),
        moves.promises_on(holding, moving, Whole),
    ]
}

fn groups(holding: &Holding) -> Finding {
    let no_cpu = holding.groups.no_cpu();
    let found = match &holding.groups {
        Held::Unified(Unified { parent, .. }) => format!("version 2, beneath {}", parent.display()),
        Held::Separate { memory, .. } => format!("version 1, beneath {}", memory.display()),
        Held::Nowhere(why) => format!("none: {why}"),
    };
    let holds = match (&holding.groups, &no_cpu) {
        (Held::Nowhere(_), _) => Holds::Not,
        (Held::Unified(_) | Held::Separate { .. }, None) => Holds::Whole,
        (Held::Unified(_) | Held::Separate { .. }, Some(_)) => Holds::Partly,
    };
    let (grade, why) = match holds {
        Holds::Whole => (Grade::Good, None),
        Holds::Partly => (
            Grade::Weaker,
            no_cpu.map(|why| format!("time of the processor is not limited: {why}")),
        ),
        Holds::Not => (
            Grade::Weaker,
            Some("memory is held for each process, and watched".to_owned()),
        ),
    };
    let fixes = if grade == Grade::Good {
        Vec::new()
    } else {
        holding.delegation.clone()
    };
    let mut finding = Finding::new(Group::Limits, "control-groups", grade, found)
        .mended_by(fixes)
        .promises(holds, holds);
    finding.why = why;
    finding
}

fn limits(holding: &Holding) -> Vec<Finding> {
    let is_fenced = matches!(holding.mode, Ok(Mode::Fence));
    let one = |held: &atoll_model::Enforcement| {
        let (limit, by) = (held.limit.as_str(), held.by.as_str());
        let (grade, why) = match (limit, by) {
            // So on every host: what is written to layers is counted from time to time.
            ("disk" | "inodes", _) => (Grade::Note, Some("it can be passed for a moment")),
            ("tmp", "none") if is_fenced => (Grade::Note, Some("it counts as disk")),
            (_, "none") => (Grade::Weaker, Some("a run that asks for it is refused")),
            ("processes", "rlimit, in part") if is_fenced => (
                Grade::Note,
                Some("counted together with your other processes"),
            ),
            (_, by) if by.ends_with("in part") => (
                Grade::Weaker,
                Some(
                    "what the kernel keeps for pipes, sockets and page tables is not counted, the rest from time to time",
                ),
            ),
            (_, _) => (Grade::Good, None),
        };
        let holds = match (by, by.ends_with("in part")) {
            ("none", _) => Holds::Not,
            (_, true) => Holds::Partly,
            (_, false) => Holds::Whole,
        };
        let (full, fence) = match (limit, by) {
            ("processes", "rlimit" | "rlimit, in part") | ("tmp", _) => {
                (Holds::Whole, Holds::Partly)
            }
            (_, _) => (holds, holds),
        };
        let mut finding = Finding::new(Group::Limits, limit, grade, by).promises(full, fence);
        finding.why = why.map(str::to_owned);
        finding
    };
    // What is said of namespaces anyway is no limit.
    let limits = holding.limits.iter();
    limits
        .filter(|held| held.limit != USER_NAMESPACE)
        .map(one)
        .collect()
}

fn known_errors(facts: &Facts) -> Vec<Finding> {
    let like: Vec<&str> = facts.distribution.iter().map(String::as_str).collect();
    let kernel = facts
        .kernel
        .1
        .map(|version| (Part::Kernel, "Linux", version));
    let runtimes = facts.runtimes.iter().copied();
    let row = |(part, program, version): (Part, &'static str, Version)| {
        let like = like.clone();
        known::known(part, version).map(move |known| {
            let question = match part {
                Part::Kernel => known::question(&like, known.name),
                Part::Runc => None,
            };
            let reach = match known.reach {
                Reach::Open => "Programs in a sandbox get at it".to_owned(),
                Reach::Closed(what) => format!("Programs in a sandbox do not get at it: {what}"),
                Reach::Unused => "Atoll does not use it".to_owned(),
            };
            let why = format!(
                "upstream's {program} {version} has it; mended in {}. Your distribution may have \
                 mended it. {reach}",
                known.mended_in().join(", ")
            );
            Finding::new(Group::Known, known.name, Grade::Note, known.what)
                .because(why)
                .mended_by(question.map(|ask| Step::of_caller(ask).with("says whether it has")))
        })
    };
    kernel.into_iter().chain(runtimes).flat_map(row).collect()
}
