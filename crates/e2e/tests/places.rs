//! File systems as containers have them: overlays beneath everything, files mounted over files. A
//! feature that is unavailable is replaced by another, which is reported.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use e2e::{Avoidable, Outcome, World, can_be_ordinary_root, is_root};

/// Runs a host script as root of a mount namespace; `None` where that is impossible.
fn in_mount_namespace(world: &World, script: &str) -> Option<Outcome> {
    if !is_root() && !can_be_ordinary_root() {
        world.skip("nobody but root can mount here", Avoidable::No);
        return None;
    }
    Some(world.mount_shell(&format!("set -e\n{script}")).run())
}

/// Changes of every kind, shown, applied and undone, with owners.
const ROUND: &str = "
    \"$ATOLL\" run --keep -- sh -c 'stat -c %u:%g . text dir; echo two >> text; rm gone; mv dir moved; echo new > new'
    cat text
    \"$ATOLL\" diff last --stat
    \"$ATOLL\" apply last
    cat text new moved/in
    stat -c %u:%g text new moved moved/in
    test ! -e gone
    \"$ATOLL\" undo last
    cat text gone dir/in
    test ! -e new";

fn prepare(world: &World) {
    world.write("text", "one\n");
    world.write("gone", "gone\n");
    world.write("dir/in", "in\n");
}

/// Checks the output of [`ROUND`].
fn went_round(ended: Outcome) {
    let ended = ended.success();
    let (out, me) = (ended.out(), own());
    let inside = format!("{me}\n{me}\n{me}\none\n");
    assert!(out.starts_with(&inside), "{ended}");
    assert!(
        out.contains("M text") && out.contains("D gone") && out.contains("A new"),
        "{ended}"
    );
    // Root of the mount namespace looks from outside.
    let owners = "0:0\n".repeat(4);
    let end = format!("one\ntwo\nnew\nin\n{owners}");
    assert!(out.contains(&end), "{ended}");
    assert!(out.ends_with("one\ngone\nin\n"), "{ended}");
}

/// Returns the ids of the user who runs Atoll, inside and outside alike.
fn own() -> String {
    let (uid, gid) = e2e::id();
    format!("{uid}:{gid}")
}

fn lines_about(ended: &Outcome, word: &str) -> usize {
    let err = ended.err();
    err.lines().filter(|line| line.contains(word)).count()
}

#[test]
fn state_on_an_overlay_is_served_by_a_copy_with_the_right_owners() {
    let world = World::new("state_on_an_overlay_is_served_by_a_copy_with_the_right_owners");
    prepare(&world);
    let script = format!(
        "mkdir ../upper ../work ../lower
        options=lowerdir=../lower,upperdir=../upper,workdir=../work
        mount -t overlay -o $options,userxattr overlay \"$XDG_STATE_HOME\"
        {ROUND}"
    );
    let Some(ended) = in_mount_namespace(&world, &script) else {
        return;
    };
    assert_eq!(lines_about(&ended, "was copied"), 1, "{ended}");
    ended.says(["XDG_STATE_HOME"]);
    went_round(ended);
}

#[test]
fn a_workspace_on_an_overlay_is_served_and_said_where_it_was_copied() {
    let world = World::new("a_workspace_on_an_overlay_is_served_and_said_where_it_was_copied");
    let script = format!(
        "mkdir ../upper ../work ../lower
        options=lowerdir=../lower,upperdir=../upper,workdir=../work
        mount -t overlay -o $options,userxattr overlay .
        cd \"$PWD\"
        echo one > text; echo gone > gone; mkdir dir; echo in > dir/in
        {ROUND}"
    );
    let Some(ended) = in_mount_namespace(&world, &script) else {
        return;
    };
    // An ordinary user's files need no other owners inside.
    let copied = usize::from(is_root());
    assert_eq!(lines_about(&ended, "was copied"), copied, "{ended}");
    went_round(ended);
}

#[test]
fn a_run_on_a_copy_goes_on_in_it() {
    let world = World::new("a_run_on_a_copy_goes_on_in_it");
    prepare(&world);
    let script = "mkdir ../upper ../work ../lower
        options=lowerdir=../lower,upperdir=../upper,workdir=../work
        mount -t overlay -o $options,userxattr overlay \"$XDG_STATE_HOME\"
        \"$ATOLL\" run --keep -- sh -c 'echo two >> text'
        \"$ATOLL\" run --keep --resume last -- sh -c 'echo three >> text; rm gone'
        \"$ATOLL\" apply last
        cat text
        test ! -e gone
        \"$ATOLL\" ledger verify >&2";
    let Some(ended) = in_mount_namespace(&world, script) else {
        return;
    };
    assert_eq!(ended.success().out(), "one\ntwo\nthree\n");
}

#[test]
fn a_workspace_whose_owners_cannot_be_mapped_is_not_given_live_but_for_reading() {
    let world =
        World::new("a_workspace_whose_owners_cannot_be_mapped_is_not_given_live_but_for_reading");
    if !is_root() {
        return world.skip("only root's ids are mapped", Avoidable::No);
    }
    world.profile("reading", "workspace = \"read-only\"\n");
    let script = "mkdir ../upper ../work ../lower
        options=lowerdir=../lower,upperdir=../upper,workdir=../work
        mount -t overlay -o $options overlay .
        cd \"$PWD\"
        echo open > open; echo closed > closed; chmod 600 closed
        \"$ATOLL\" run --profile reading -- sh -c 'cat open; cat closed || echo refused; echo x > new || echo read-only'
        \"$ATOLL\" run --live -- sh -c 'echo x > new' || echo status $?
        ls";
    let Some(ended) = in_mount_namespace(&world, script) else {
        return;
    };
    ended.is_clear_error(["overlay", "owners", "without --live"]);
    assert_eq!(
        ended.out(),
        "open\nrefused\nread-only\nstatus 125\nclosed\nopen\n",
        "{ended}"
    );
}

#[test]
fn other_directories_on_an_overlay_can_be_read() {
    let world = World::new("other_directories_on_an_overlay_can_be_read");
    world.profile(
        "caching",
        "[home]\nread = [\".tool\"]\ncache = [\".cached\"]\n",
    );
    let script = "mkdir ../upper ../work ../lower ../upper2 ../work2
        options=lowerdir=../lower,upperdir=../upper,workdir=../work
        mount -t overlay -o $options,userxattr overlay \"$HOME\"
        mount -t overlay -o lowerdir=../lower,upperdir=../upper2,workdir=../work2,userxattr overlay \"$XDG_STATE_HOME\"
        mkdir \"$HOME/.tool\" \"$HOME/.cached\"
        echo tool > \"$HOME/.tool/file\"; echo cached > \"$HOME/.cached/file\"
        \"$ATOLL\" run --profile caching --keep -- sh -c 'cat ~/.tool/file ~/.cached/file; echo x > ~/.cached/new || echo read-only'";
    let Some(ended) = in_mount_namespace(&world, script) else {
        return;
    };
    let ended = ended.success();
    assert_eq!(ended.out(), "tool\ncached\nread-only\n", "{ended}");
    assert_eq!(lines_about(&ended, "shown read-only"), 1, "{ended}");
    let mapped = usize::from(is_root());
    assert_eq!(lines_about(&ended, "owners cannot"), mapped, "{ended}");
}

#[test]
fn a_host_whose_root_is_an_overlay_runs_programs_of_root() {
    let world = World::new("a_host_whose_root_is_an_overlay_runs_programs_of_root");
    if !is_root() {
        return world.skip("only root can change its root", Avoidable::No);
    }
    prepare(&world);
    // As in a container: one overlay, the kernel's file systems, files over /etc.
    let script = format!(
        "here=$PWD
        mkdir ../memory
        mount -t tmpfs tmpfs ../memory
        cd ../memory
        mkdir upper work new
        mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work overlay new
        test -d \"new$here\" && test -x \"new$ATOLL\" || {{ echo elsewhere; exit; }}
        for one in dev proc sys; do mount --rbind /$one new/$one; done
        echo '127.0.0.1 localhost of-the-container' > hosts
        touch new/etc/hosts
        mount --bind hosts new/etc/hosts
        mkdir new/old-root
        cd new
        pivot_root . old-root
        umount -l /old-root
        cd \"$here\"
        stat -f -c %T / >&2
        \"$ATOLL\" run -- cat /etc/hosts
        \"$ATOLL\" run -- sh -c 'cat /etc/shadow || echo unread; echo x > /etc/new || echo unwritten'
        # What comes from below is not moved in one step: that is said, nothing is lost.
        \"$ATOLL\" run --keep -- sh -c 'mv dir moved; echo new > new'
        \"$ATOLL\" apply last || echo status $?
        test ! -e new
        cat dir/in
        cp -a dir fresh; rm -r dir; mv fresh dir
        \"$ATOLL\" discard last >&2
        {ROUND}"
    );
    let Some(ended) = in_mount_namespace(&world, &script) else {
        return;
    };
    let out = ended.out();
    if out == "elsewhere\n" {
        return world.skip("tests lie on another mount than /", Avoidable::No);
    }
    ended.says(["overlayfs", "was copied"]);
    let first = "127.0.0.1 localhost of-the-container\nunread\nunwritten\nstatus 125\nin\n";
    ended.is_clear_error(["below an overlay", "one step", "nothing was changed"]);
    assert!(out.starts_with(first), "{ended}");
    let rest = out.strip_prefix(first).unwrap().as_bytes().to_vec();
    went_round(Outcome {
        stdout: rest,
        ..ended
    });
}

#[test]
fn files_mounted_over_files_of_the_system_are_shown() {
    let world = World::new("files_mounted_over_files_of_the_system_are_shown");
    // As Docker does it, and with what a socket in there would be.
    world.write("hosts", "127.0.0.1 localhost of-the-container\n");
    let script = "mount --bind hosts /etc/hosts
        \"$ATOLL\" run -- sh -c 'cat /etc/hosts; test -s /etc/passwd && echo passwd
            echo x >> /etc/hosts || echo unwritten; echo x > /etc/new || echo unwritten'";
    let Some(ended) = in_mount_namespace(&world, script) else {
        return;
    };
    let ended = ended.success();
    assert_eq!(
        ended.out(),
        "127.0.0.1 localhost of-the-container\npasswd\nunwritten\nunwritten\n",
        "{ended}"
    );
}

#[test]
fn an_ordinary_user_of_a_container_is_served_and_reaches_no_socket() {
    let world = World::new("an_ordinary_user_of_a_container_is_served_and_reaches_no_socket");
    if !is_root() {
        return world.skip("only root can mount for another user", Avoidable::No);
    }
    for directory in [
        world.workspace(),
        world.home(),
        world.state(),
        world.config(),
    ] {
        std::os::unix::fs::chown(&directory, Some(61_234), Some(61_234)).unwrap();
    }
    world.write("hosts", "127.0.0.1 localhost of-the-container\n");
    // A part of the system with a socket, and a directory that is closed to listing.
    let part = world.top().join("etc");
    fs::create_dir_all(part.join("closed")).unwrap();
    fs::write(part.join("hosts"), "below\n").unwrap();
    fs::write(part.join("passwd"), "root:x:0:0::/:/bin/sh\n").unwrap();
    let open = fs::Permissions::from_mode(0o666);
    let mut listeners = Vec::new();
    for name in ["socket", "closed/socket"] {
        listeners.push(UnixListener::bind(part.join(name)).unwrap());
        fs::set_permissions(part.join(name), open.clone()).unwrap();
    }
    e2e::make_fifo(&part.join("pipe"));
    fs::set_permissions(part.join("closed"), fs::Permissions::from_mode(0o711)).unwrap();
    let script = "mount --bind ../etc /etc
        mount --bind hosts /etc/hosts
        exec setpriv --reuid 61234 --regid 61234 --clear-groups \"$ATOLL\" run -- sh -c '
            cat /etc/hosts
            echo x > /etc/new || echo unwritten
            python3 - <<END
import socket
for path in [\"/etc/socket\", \"/etc/closed/socket\"]:
    try:
        socket.socket(socket.AF_UNIX).connect(path)
        print(\"reached\")
    except OSError:
        print(\"unreached\")
END
            test -p /etc/pipe && echo pipe || echo no pipe'";
    let Some(ended) = in_mount_namespace(&world, script) else {
        return;
    };
    let ended = ended.success();
    assert_eq!(
        ended.out(),
        "127.0.0.1 localhost of-the-container\nunwritten\nunreached\nunreached\nno pipe\n",
        "{ended}"
    );
}

/// Attempts of a member of a group on files that only root and the group may use.
const AS_MEMBER: &str = r#"id -G
cat "$1/data" || echo unread
echo x >> "$1/data" || echo unwritten
touch "$1/room/new" || echo unmade
mv "$1/room/old" "$1/room/moved" || echo unmoved
chgrp 4242 "$1/own" || echo unchanged
python3 - "$1/socket" <<END
import socket, sys
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
    print("reached")
except OSError:
    print("unreached")
END
"#;

#[test]
fn rights_of_further_groups_show_files_and_change_nothing() {
    let world = World::new("rights_of_further_groups_show_files_and_change_nothing");
    if !is_root() {
        return world.skip("only root can give another user a group", Avoidable::No);
    }
    for directory in [
        world.workspace(),
        world.home(),
        world.state(),
        world.config(),
    ] {
        std::os::unix::fs::chown(&directory, Some(61_234), Some(61_234)).unwrap();
    }
    // Root's, and open to the group 4242: in the system, and in the workspace.
    let mut listeners = Vec::new();
    for place in [world.top().join("etc"), world.path("part")] {
        fs::create_dir_all(place.join("room")).unwrap();
        listeners.push(UnixListener::bind(place.join("socket")).unwrap());
        for (name, mode) in [("data", 0o660), ("room/old", 0o660), ("own", 0o644)] {
            fs::write(place.join(name), "data\n").unwrap();
            fs::set_permissions(place.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        for name in ["", "room", "socket"] {
            fs::set_permissions(place.join(name), fs::Permissions::from_mode(0o770)).unwrap();
        }
        for name in ["", "data", "room", "room/old", "socket"] {
            std::os::unix::fs::chown(place.join(name), Some(0), Some(4_242)).unwrap();
        }
        std::os::unix::fs::chown(place.join("own"), Some(61_234), Some(61_234)).unwrap();
    }
    fs::write(world.top().join("etc/hosts"), "").unwrap();
    fs::set_permissions(world.top().join("etc"), fs::Permissions::from_mode(0o755)).unwrap();
    world.write("hosts", "");
    world.write("try", AS_MEMBER);
    let before = e2e::tree(&world.workspace());
    let member = "setpriv --reuid 61234 --regid 61234 --groups 4242";
    let tried = |locked: &str, inside: &str| {
        let script = format!("mount --bind ../etc /etc\n{locked}\n{member} {inside}");
        in_mount_namespace(&world, &script).unwrap().success()
    };
    let outside = "sh -c 'test -w /etc/data && echo writable; test -w /etc/room && echo writable'";
    assert!(tried("", outside).out().ends_with("writable\nwritable\n"));
    // The numbers are not told, but the kernel knows them: the group's files can be
    // read, as outside. Nothing of the system can be changed or reached.
    let of_the_system = "61234 65534\ndata\nunwritten\nunmade\nunmoved\nunchanged\nunreached\n";
    for locked in ["", "mount --bind hosts /etc/hosts"] {
        let ended = tried(locked, "\"$ATOLL\" run -- sh ./try /etc");
        assert_eq!(ended.out(), of_the_system, "{locked}: {ended}");
    }
    // In a layer they cannot be changed either: others' files do not fit into it.
    let ended = tried("", "\"$ATOLL\" run --keep -- sh ./try part");
    assert_eq!(ended.out(), of_the_system, "{ended}");
    assert!(e2e::tree(&world.workspace()) == before, "{ended}");
    // Live is live: the person's rights, those of the person's groups among them. Only
    // sockets stay covered.
    let ended = tried("", "\"$ATOLL\" run --live --keep -- sh ./try part");
    assert_eq!(ended.out(), "61234 65534\ndata\nunchanged\nunreached\n");
    assert_eq!(world.read("part/data"), "data\nx\n");
    assert!(world.exists("part/room/moved") && !world.exists("part/room/old"));
    let _ = tried("", "\"$ATOLL\" undo last");
    assert_eq!(world.read("part/data"), "data\n");
    assert!(world.exists("part/room/old") && !world.exists("part/room/new"));
}

#[test]
fn an_ordinary_users_copy_holds_the_files_of_others() {
    let world = World::new("an_ordinary_users_copy_holds_the_files_of_others");
    if !is_root() {
        return world.skip("only root can have files for another user", Avoidable::No);
    }
    world.write("theirs", "theirs\n");
    world.write("open/theirs", "theirs\n");
    fs::set_permissions(world.path("open"), fs::Permissions::from_mode(0o777)).unwrap();
    for directory in [world.workspace(), world.home(), world.config()] {
        std::os::unix::fs::chown(&directory, Some(61_234), Some(61_234)).unwrap();
    }
    let script = "mkdir ../upper ../work ../lower
        mount -t overlay -o lowerdir=../lower,upperdir=../upper,workdir=../work overlay \"$XDG_STATE_HOME\"
        chown 61234:61234 \"$XDG_STATE_HOME\"
        exec setpriv --reuid 61234 --regid 61234 --clear-groups sh -ec '
            \"$ATOLL\" run --keep -- sh -c \"cat theirs open/theirs; echo new > open/new\"
            \"$ATOLL\" diff last --stat
            \"$ATOLL\" apply last
            stat -c %u:%n theirs open open/theirs open/new'";
    let Some(ended) = in_mount_namespace(&world, script) else {
        return;
    };
    assert_eq!(lines_about(&ended, "was copied"), 1, "{ended}");
    assert_eq!(
        ended.success().out(),
        "theirs\ntheirs\nA open/new\n0:theirs\n0:open\n0:open/theirs\n61234:open/new\n"
    );
}
