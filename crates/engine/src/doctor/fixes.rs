//! Commands that fix what is missing, with the programs this host has.

use std::path::Path;

use super::apparmor;
use super::facts::{Facts, Holding};
use crate::delegation::Step;

/// The file of kernel settings for the next start (sysctl.d(5)).
const SETTINGS: &str = "/etc/sysctl.d/60-atoll.conf";

/// Sets a setting of the kernel, now and for good.
pub fn setting(name: &str, value: u64) -> Step {
    Step::of_root(format!(
        "sysctl -w {name}={value} && echo {name}={value} >> {SETTINGS}"
    ))
}

/// Lets this program make namespaces, and no other; where AppArmor cannot name it, all.
pub fn profile(program: Option<&Path>) -> Step {
    match program.filter(|path| apparmor::profile(path).is_ok()) {
        Some(program) => Step::of_root(apparmor::installation(program)),
        None => setting("kernel.apparmor_restrict_unprivileged_userns", 0)
            .with("or have atoll where its path is plain, and ask again"),
    }
}

/// Brings the module.
pub fn overlay(facts: &Facts) -> Vec<Step> {
    let has = |name| facts.programs.contains(&name);
    let load = has("modprobe").then(|| {
        Step::of_root("modprobe overlay && echo overlay > /etc/modules-load.d/atoll.conf")
    });
    load.into_iter().collect()
}

/// Switches Landlock on, if the kernel has it and does not use it.
pub fn landlock(facts: &Facts) -> Vec<Step> {
    let has = |name| facts.programs.contains(&name);
    // Without the others' names a command would switch them off.
    let Some(modules) = &facts.modules else {
        return Vec::new();
    };
    let words = format!("lsm={}", with_landlock(modules.trim()));
    let command = if has("grubby") {
        format!("grubby --update-kernel=ALL --args={words}")
    } else if has("update-grub") {
        format!(
            "echo 'GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {words}\"' >> /etc/default/grub && \
             update-grub"
        )
    } else {
        return Vec::new();
    };
    vec![Step::of_root(command).with("then start the machine anew")]
}

/// Returns the list of security modules with Landlock in front: those left out of it would be
/// switched off.
pub fn with_landlock(modules: &str) -> String {
    let others = modules.split(',').filter(|one| {
        // These are always there, and not to be named.
        !matches!(*one, "" | "capability" | "landlock")
    });
    let all: Vec<&str> = ["landlock"].into_iter().chain(others).collect();
    all.join(",")
}

/// Returns what prevents namespaces, and what helps.
pub fn forbidden(facts: &Facts, holding: &Holding, told: &str) -> (String, Vec<Step>) {
    let settings = &facts.settings;
    if settings.max_user_namespaces == Some(0) {
        return (
            "user.max_user_namespaces is 0".to_owned(),
            vec![setting("user.max_user_namespaces", 15_000)],
        );
    }
    if settings.unprivileged_clone == Some(0) && !holding.is_root {
        return (
            "kernel.unprivileged_userns_clone is 0".to_owned(),
            vec![setting("kernel.unprivileged_userns_clone", 1)],
        );
    }
    if settings.apparmor_restricts == Some(1) && !holding.is_root {
        return (
            "AppArmor gives ordinary users' namespaces no rights \
             (kernel.apparmor_restrict_unprivileged_userns is 1)"
                .to_owned(),
            vec![profile(facts.program.as_deref())],
        );
    }
    let why = format!(
        "a try ended with: {told}. No setting says so: a filter of system calls, a security \
         module or a changed root directory does, as in containers"
    );
    (why, Vec::new())
}
