//! Programs behave inside as they do outside; where they cannot, the end of the run says so.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use e2e::{Avoidable, World, fine, is_root, program_exists};

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().permissions().mode() & 0o7777
}

fn give(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn processors_are_shown_and_cannot_be_changed() {
    let world = World::new("processors_are_shown_and_cannot_be_changed");
    let place = "/sys/devices/system/cpu";
    if !Path::new(place).join("online").exists() {
        world.skip("this machine shows no processors in /sys", Avoidable::No);
        return;
    }
    let outside = fs::read_to_string(format!("{place}/online")).unwrap();
    let script = format!(
        "cat {place}/online; lscpu > /dev/null && ls /sys /sys/devices /sys/devices/system; \
         echo 1 > {place}/cpu0/uevent"
    );
    for options in [&["--discard"][..], &["--discard", "--root"]] {
        let ran = world.run(options, &script).run();
        let expected = format!(
            "{outside}/sys:\ndevices\n\n/sys/devices:\nsystem\n\n/sys/devices/system:\ncpu\n"
        );
        assert_eq!(ran.out(), expected, "{options:?}: {ran}");
        assert_ne!(ran.code(), 0, "it can be written: {ran}");
    }
}

#[test]
fn modes_of_directories_are_applied_as_given() {
    let world = World::new("modes_of_directories_are_applied_as_given");
    for (name, bits) in [
        ("shared", 0o2775),
        ("shared/inner", 0o2755),
        ("plain", 0o755),
    ] {
        fs::create_dir(world.path(name)).unwrap();
        give(&world.path(name), bits);
    }
    let script = "umask 002; mkdir shared/new shared/new/deep shared/no; chmod g-s shared/no; \
                  chmod 1777 plain; chmod 3770 shared/new; chmod g-s shared/inner; \
                  mkdir given; chmod 2755 given; touch given/file";
    let _ = world.run(["--keep"], script).run().success();
    let applied = world.atoll(["apply", "last"]).run();
    let _ = applied.says(["not applied: given", "set-group-ID"]);
    for (name, bits) in [
        ("shared", 0o2775),
        ("shared/new", 0o3770),
        ("shared/new/deep", 0o2775),
        ("shared/no", 0o775),
        ("shared/inner", 0o755),
        ("plain", 0o1777),
        ("given", 0o755),
        ("given/file", 0o664),
    ] {
        let found = mode(&world.path(name));
        assert_eq!(format!("{found:o}"), format!("{bits:o}"), "{name}");
    }
    let _ = fine(&world, &["undo", "last"]);
    assert_eq!(mode(&world.path("plain")), 0o755);
    assert_eq!(mode(&world.path("shared/inner")), 0o2755);
}

#[test]
fn hard_links_stay_one_file_or_are_named() {
    let world = World::new("hard_links_stay_one_file_or_are_named");
    world.write("one", "before\n");
    fs::hard_link(world.path("one"), world.path("two")).unwrap();
    let ran = world.run(["--keep"], "echo more >> one; cat two").run();
    let ran = ran.success();
    if is_root() {
        assert_eq!(ran.out(), "before\nmore\n");
    } else {
        let _ = ran.says(["files with several names (hard links)", "one"]);
    }
    let _ = fine(&world, &["apply", "last"]);
    let numbers = ["one", "two"].map(|name| world.path(name).metadata().unwrap().ino());
    assert_eq!(numbers[0] == numbers[1], is_root());
}

#[test]
fn directories_are_renamed_or_the_reason_is_named() {
    let world = World::new("directories_are_renamed_or_the_reason_is_named");
    let rename = |from: &str, to: &str| format!("import os; os.rename('{from}', '{to}')");
    for way in ["python", "git", "mv"] {
        fs::create_dir_all(world.path("there/below")).unwrap();
        world.write("there/below/file", "text\n");
        let script = match way {
            "python" => format!("python3 -c \"{}\"", rename("there", "gone")),
            "git" => "git init -q . && git add there && git mv there gone".to_owned(),
            _ => "mv there gone".to_owned(),
        };
        let ran = world.run(["--keep"], &format!("{script} && cat gone/below/file"));
        let ran = ran.run();
        match is_root() || way == "mv" {
            true => assert_eq!(ran.success().out(), "text\n", "{way}"),
            false => {
                assert_ne!(ran.code(), 0, "{way}: {ran}");
                let _ = ran.says(["cannot be renamed in a layer of an ordinary user", "--live"]);
            }
        }
    }
}

#[test]
fn changes_outside_meanwhile_are_named() {
    let world = World::new("changes_outside_meanwhile_are_named");
    world.write("kept", "before\n");
    world.write("below/replaced", "before\n");
    let mut running = world
        .run(["--keep"], "echo begun; read line; echo mine > own")
        .start();
    let _ = running.until_stdout("begun");
    world.write("new", "outside\n");
    world.write("other", "outside\n");
    fs::rename(world.path("other"), world.path("below/replaced")).unwrap();
    running.send("go\n");
    let ended = running.wait().success();
    let _ = ended.says(["changed outside meanwhile: ", "new", "below/replaced"]);
    let err = ended.err();
    let line = err.lines().find(|line| line.contains("outside meanwhile"));
    assert!(!line.unwrap().contains("kept"), "{ended}");
    // And nothing is said of a run beside which nothing changed.
    let quiet = world.run(["--discard"], "true").run().success();
    assert!(!quiet.err().contains("outside meanwhile"), "{quiet}");
}

#[test]
fn reserved_addresses_are_no_used_memory() {
    let world = World::new("reserved_addresses_are_no_used_memory");
    if !program_exists("java") {
        world.skip("java is not installed", Avoidable::Yes);
        return;
    }
    // A virtual machine of Java reserves more than it uses by far.
    world.write(
        "One.java",
        "class One { public static void main(String[] all) { System.out.println(\"one\"); } }",
    );
    let script = "java -XX:ReservedCodeCacheSize=1g -Xmx4g One.java; python3 -c \"import mmap; \
                  m = mmap.mmap(-1, 64 << 30, flags=mmap.MAP_PRIVATE | 0x4000); m[0] = 1; \
                  print('two')\"";
    let run = || world.run(["--discard", "--limit", "memory=1GiB"], script);
    assert_eq!(run().run().success().out(), "one\ntwo\n");
    if !is_root() {
        let fenced = run().without_namespaces().run().success();
        assert_eq!(fenced.out(), "one\ntwo\n");
    }
}
