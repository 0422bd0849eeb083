//! How a user gets control groups of their own, by what is there to give them:
//! systemd, or an administrator with the files of cgroups(7).

use std::path::{Path, PathBuf};

use atoll_sandbox::Host;

/// What systemd's own library looks at (sd_booted(3)).
const SYSTEMD: &str = "/run/systemd/system";

/// What an administrator types follows; the shell is the one that starts `atoll`.
const GIVEN_BY_ROOT: &str = "to have one, as root, with your shell's number (echo $$) for PID:";

/// Who or what could give control groups on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Giver {
    /// systemd, to root.
    System,
    /// systemd, by the user's own manager.
    UserManager,
    /// systemd, which runs no manager for this user yet.
    NoUserManager,
    /// Root, by the files of version 2, mounted here.
    Unified(PathBuf),
    /// Root, by the files of version 1: a directory for each controller.
    Separate(Vec<PathBuf>),
    /// Nobody: none are mounted.
    Nobody,
}

/// What helps where no control groups can be used: commands, one a line.
pub fn steps(host: &Host) -> Vec<String> {
    commands(&giver(host), host.uid)
}

fn giver(host: &Host) -> Giver {
    let manager = format!("/run/user/{}/systemd", host.uid);
    match (Path::new(SYSTEMD).is_dir(), host.uid) {
        (true, 0) => Giver::System,
        (true, _) if Path::new(&manager).is_dir() => Giver::UserManager,
        (true, _) => Giver::NoUserManager,
        (false, _) => by_files(host),
    }
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

fn commands(giver: &Giver, uid: u32) -> Vec<String> {
    let own = format!("atoll-user-{uid}");
    match giver {
        Giver::System => {
            vec!["systemd-run --scope -p Delegate=yes atoll run -- COMMAND".to_owned()]
        }
        Giver::UserManager => {
            vec!["systemd-run --user --scope -p Delegate=yes atoll run -- COMMAND".to_owned()]
        }
        Giver::NoUserManager => vec![
            format!("loginctl enable-linger {uid}    # as root, once"),
            "systemd-run --user --scope -p Delegate=yes atoll run -- COMMAND".to_owned(),
        ],
        Giver::Unified(_) if uid == 0 => vec![
            "as root: start atoll as the only process of a control group of its own, which has \
             the controllers memory, pids and cpu"
                .to_owned(),
        ],
        Giver::Unified(mount) => vec![format!(
            "as root: cd {}; echo +memory +pids +cpu > cgroup.subtree_control; mkdir {own}; chown \
             {uid} {own} {own}/cgroup.procs {own}/cgroup.subtree_control; then start atoll as \
             the only process in it",
            mount.display()
        )],
        Giver::Separate(mounts) => {
            let groups: Vec<String> = mounts
                .iter()
                .map(|mount| mount.join(&own).display().to_string())
                .collect();
            let all = groups.join(" ");
            vec![
                GIVEN_BY_ROOT.to_owned(),
                format!("mkdir -p {all}"),
                format!("chown -R {uid} {all}"),
                format!("for group in {all}; do echo PID > $group/cgroup.procs; done"),
            ]
        }
        Giver::Nobody => {
            vec!["mount -t cgroup2 none /sys/fs/cgroup    # as root; then atoll doctor".to_owned()]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_there_is_named() {
        let text = |giver: &Giver| commands(giver, 1000).join("\n");
        for giver in [Giver::System, Giver::UserManager, Giver::NoUserManager] {
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
            assert!(text.contains("as root"), "{text}");
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
