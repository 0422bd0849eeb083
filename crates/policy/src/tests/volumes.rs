//! Volumes of served sandboxes: where they may be mounted, and what policies see of them.

use super::*;
use atoll_model::{Served, VolumeMount};

fn mounted(policies: &str, nesting: bool, paths: &[&str]) -> Verdict<Grant> {
    let mut world = match policies {
        "" => world(),
        _ => world().user_policies(policies),
    };
    let mount = |path: &&str| VolumeMount {
        id: "vol1".to_owned(),
        name: "models".to_owned(),
        host: "/var/lib/atoll/served/volumes/vol1/files".into(),
        inside: path.into(),
        read_only: false,
        bytes_max: 1 << 20,
    };
    world.requested.nesting = nesting;
    world.call.place = Place::Served(Box::new(Served {
        tenant: "team-a".to_owned(),
        volumes: paths.iter().map(mount).collect(),
        ..Served::default()
    }));
    world.decide()
}

#[test]
fn volume_is_mounted_in_a_directory_of_its_own() {
    let check = |paths: &[&str], allowed: bool| {
        let verdict = mounted("", false, paths);
        assert_eq!(matches!(verdict, Verdict::Allow(_)), allowed, "{paths:?}");
        if let Verdict::Allow(grant) = verdict {
            assert_eq!(grant.boundary().volumes.len(), paths.len());
        }
    };
    check(&["/mnt/models"], true);
    check(&["/data"], true);
    check(&["/mnt/a", "/mnt/b"], true);
    for path in [
        "/",
        "/usr",
        "/usr/x",
        "/etc/x",
        "/proc/x",
        "/run/atoll",
        "/dev/shm/x",
        "/tmp/x",
        "/home/user/x",
        "/var/x",
        "/mnt/../etc",
        "/mnt/./x",
        "mnt",
        "",
    ] {
        check(&[path], false);
    }
    check(&["/mnt/a", "/mnt/a/b"], false);
    check(&["/mnt/a/b", "/mnt/a"], false);
    check(&["/mnt/a", "/mnt/a"], false);
}

#[test]
fn volume_with_nesting_is_denied() {
    assert!(matches!(mounted("", true, &[]), Verdict::Allow(_)));
    assert!(matches!(mounted("", true, &["/mnt/a"]), Verdict::Deny(_)));
}

#[test]
fn policies_see_volumes_and_their_access() {
    let policy = |volume: &str| {
        format!(
            "forbid(principal, action == Action::\"run\", resource) \
             when {{ context has served && context.served.volumes.contains(\"{volume}\") }};"
        )
    };
    let denied = mounted(&policy("models=write"), false, &["/mnt/a"]);
    assert!(matches!(denied, Verdict::Deny(_)));
    let allowed = mounted(&policy("models=read"), false, &["/mnt/a"]);
    assert!(matches!(allowed, Verdict::Allow(_)));
}
