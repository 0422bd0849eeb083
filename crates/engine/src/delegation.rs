//! The steps that give a user control groups of their own, by what manages them on the host:
//! systemd, or an administrator with the files of cgroups(7).

use std::path::{Path, PathBuf};

use atoll_sandbox::Host;

/// The directory by which systemd's own library detects systemd (sd_booted(3)).
const SYSTEMD: &str = "/run/systemd/system";
/// The directory for drop-ins of the service of every user's manager (systemd.unit(5)).
const DROP_IN: &str = "/etc/systemd/system/user@.service.d";

/// The manager of control groups on this host, which could delegate some.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Giver {
    /// systemd; the caller is root.
    System,
    /// systemd, by the user's own manager.
    UserManager,
    /// systemd, by the user's own manager, whose service has no cpu controller.
    UserManagerWithoutProcessor,
    /// systemd, which runs no manager for this user yet.
    NoUserManager,
    /// Root, by the files of version 2, mounted at this path.
    Unified(PathBuf),
    /// Root, by the files of version 1, with a directory for each controller.
    Separate(Vec<PathBuf>),
    /// Nobody: none are mounted.
    Nobody,
}

/// A command to type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The command.
    pub command: String,
    /// True if only root may run it.
    pub by_root: bool,
    /// A remark on it.
    pub remark: Option<&'static str>,
}

impl Step {
    /// Creates a command for root.
    pub fn of_root(command: impl Into<String>) -> Self {
        Self {
            command: command.into(),
            by_root: true,
            remark: None,
        }
    }

    /// Creates a command for the caller.
    pub fn of_caller(command: impl Into<String>) -> Self {
        Self {
            command: command.into(),
            by_root: false,
            remark: None,
        }
    }

    /// Adds a remark.
    #[must_use]
    pub fn with(mut self, remark: &'static str) -> Self {
        self.remark = Some(remark);
        self
    }

    /// Returns the step on one line.
    pub fn line(&self) -> String {
        let who = if self.by_root { "as root: " } else { "" };
        let remark = self.remark.map(|remark| format!("    # {remark}"));
        format!("{who}{}{}", self.command, remark.unwrap_or_default())
    }
}

/// Returns the steps that help where no control groups can be used.
pub fn steps(host: &Host) -> Vec<Step> {
    commands(&giver(host), host.uid)
}

fn giver(host: &Host) -> Giver {
    let manager = format!("/run/user/{}/systemd", host.uid);
    match (Path::new(SYSTEMD).is_dir(), host.uid) {
        (true, 0) => Giver::System,
        (true, uid) if Path::new(&manager).is_dir() => {
            if lacks_processor(host, uid) {
                Giver::UserManagerWithoutProcessor
            } else {
                Giver::UserManager
            }
        }
        (true, _) => Giver::NoUserManager,
        (false, _) => by_files(host),
    }
}

/// Returns whether the service of a user's manager has controllers, but not the cpu one.
fn lacks_processor(host: &Host, uid: u32) -> bool {
    let service = format!("user.slice/user-{uid}.slice/user@{uid}.service/cgroup.controllers");
    let mut mounts = host.mounts.iter().filter(|mount| mount.kind == "cgroup2");
    mounts.any(|mount| {
        let controllers = std::fs::read_to_string(mount.path.join(&service));
        controllers.is_ok_and(|list| !list.split_whitespace().any(|one| one == "cpu"))
    })
}

fn by_files(host: &Host) -> Giver {
    let unified = host.mounts.iter().rev().find(|mount| {
        let controllers = std::fs::read_to_string(mount.path.join("cgroup.controllers"));
        let has = |text: &str, wanted: &str| text.split_whitespace().any(|one| one == wanted);
        mount.kind == "cgroup2"
            && controllers.is_ok_and(|text| has(&text, "memory") && has(&text, "pids"))
    });
    if let Some(mount) = unified {
        return Giver::Unified(mount.path.clone());
    }
    let separate = ["memory", "pids", "cpu"].iter().filter_map(|controller| {
        let mount = host
            .mounts
            .iter()
            .rev()
            .find(|mount| mount.kind == "cgroup" && mount.has_option(controller))?;
        Some(mount.path.clone())
    });
    let separate: Vec<PathBuf> = separate.collect();
    match separate.len() {
        0 | 1 => Giver::Nobody,
        _ => Giver::Separate(separate),
    }
}

fn commands(giver: &Giver, uid: u32) -> Vec<Step> {
    let own = format!("atoll-user-{uid}");
    let scope = |manager: &str| {
        Step::of_caller(format!(
            "systemd-run {manager}--scope -p Delegate=yes atoll run -- COMMAND"
        ))
    };
    match giver {
        Giver::System => vec![scope("")],
        Giver::UserManager => vec![scope("--user ")],
        Giver::UserManagerWithoutProcessor => vec![
            Step::of_root(format!(
                "mkdir -p {DROP_IN} && printf '[Service]\\nDelegate=cpu memory pids\\n' > \
                 {DROP_IN}/delegate.conf && systemctl daemon-reload"
            ))
            .with("once; it counts from your next login on"),
            scope("--user "),
        ],
        Giver::NoUserManager => vec![
            Step::of_root(format!("loginctl enable-linger {uid}")).with("once"),
            scope("--user "),
        ],
        // Whoever is in the group goes into one beneath: none has both processes and
        // controllers to pass on.
        Giver::Unified(mount) if uid == 0 => vec![Step::of_root(format!(
            "cd {} && mkdir -p others && for pid in $(cat cgroup.procs); do echo $pid > \
             others/cgroup.procs; done; echo +memory +pids +cpu > cgroup.subtree_control",
            mount.display()
        ))],
        Giver::Unified(mount) => vec![
            Step::of_root(format!(
                "cd {} && echo +memory +pids +cpu > cgroup.subtree_control && mkdir -p {own} && \
                 chown {uid} {own} {own}/cgroup.procs {own}/cgroup.subtree_control",
                mount.display()
            ))
            .with("then start atoll as the only process in it"),
        ],
        Giver::Separate(mounts) => {
            let groups: Vec<String> = mounts
                .iter()
                .map(|mount| mount.join(&own).display().to_string())
                .collect();
            let all = groups.join(" ");
            vec![
                Step::of_root(format!("mkdir -p {all} && chown -R {uid} {all}")),
                Step::of_root(format!(
                    "for group in {all}; do echo PID > $group/cgroup.procs; done"
                ))
                .with("PID is the number of the shell that starts atoll: echo $$"),
            ]
        }
        Giver::Nobody => vec![Step::of_root("mount -t cgroup2 none /sys/fs/cgroup")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_there_is_named() {
        let steps = |giver: &Giver| commands(giver, 1000);
        let text = |giver: &Giver| {
            let steps = steps(giver).into_iter().map(|step| step.command);
            steps.collect::<Vec<_>>().join("\n")
        };
        for giver in [
            Giver::System,
            Giver::UserManager,
            Giver::UserManagerWithoutProcessor,
            Giver::NoUserManager,
        ] {
            assert!(text(&giver).contains("systemd-run"), "{giver:?}");
        }
        assert!(!text(&Giver::System).contains("--user"));
        for giver in [
            Giver::Unified("/cg".into()),
            Giver::Separate(vec!["/cg/memory".into(), "/cg/pids".into()]),
            Giver::Nobody,
        ] {
            let text = text(&giver);
            assert!(
                !text.contains("systemd") && !text.contains("loginctl"),
                "{text}"
            );
            assert!(steps(&giver).iter().all(|step| step.by_root), "{text}");
        }
        let separate = text(&Giver::Separate(vec![
            "/cg/memory".into(),
            "/cg/pids".into(),
        ]));
        assert!(
            separate.contains("chown -R 1000 /cg/memory/atoll-user-1000 /cg/pids/atoll-user-1000"),
            "{separate}"
        );
    }
}
