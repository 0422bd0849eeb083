//! Files that a program plants to be applied: whatever apply makes of them, nothing outside
//! changes, and nothing arrives that takes rights or leads elsewhere.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use e2e::{World, tree};

use super::harness::{note_row, weakened};

struct Plant {
    id: &'static str,
    /// One run for each; `{top}` is the directory around the workspace.
    scripts: &'static [&'static str],
}

const PLANTS: &[Plant] = &[
    Plant {
        id: "planted-set-user-id",
        scripts: &["cp /bin/true tool; chmod 6755 tool; mkdir d; chmod 2777 d; echo text > text"],
    },
    Plant {
        id: "planted-set-user-id-on-what-was-there",
        scripts: &["chmod 4755 dir/file; chmod g+s dir"],
    },
    Plant {
        id: "planted-pipe",
        scripts: &["mkfifo pipe; rm dir/file; mkfifo dir/file"],
    },
    Plant {
        id: "planted-socket",
        scripts: &[
            "perl -MSocket -e 'socket(S,AF_UNIX,SOCK_STREAM,0); bind(S,sockaddr_un(q(socket)))'",
        ],
    },
    Plant {
        id: "planted-link-then-file",
        scripts: &[
            "rm -r dir; ln -s {top}/outside dir; ln -s {top}/outside/file link",
            "rm dir link; mkdir dir; echo evil > dir/file; echo evil > dir/new; echo evil > link",
        ],
    },
    Plant {
        id: "planted-link-for-a-directory",
        scripts: &[
            "echo evil > dir/file; echo evil > dir/new; mv dir other; ln -s {top}/outside dir",
        ],
    },
    Plant {
        id: "planted-link-that-goes-up",
        scripts: &[
            "rm dir/file; ln -s ../../outside/file dir/file; ln -s ../outside up",
            "rm dir/file up; echo evil > dir/file; mkdir up; echo evil > up/file",
        ],
    },
];

/// Returns the harm done, if any: a file with the owner's rights, an entry that is neither file,
/// directory nor link, or a change outside.
fn harm(world: &World, outside: &impl PartialEq<Outside>) -> Option<String> {
    let mut found = None;
    walk(&world.workspace(), &mut |path| {
        let facts = path.symlink_metadata().unwrap();
        let kind = facts.file_type();
        let special =
            kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device();
        if special || facts.permissions().mode() & 0o6000 != 0 && !kind.is_symlink() {
            found = Some(path.display().to_string());
        }
    });
    let changed = *outside != tree(&world.top().join("outside"));
    changed.then(|| "outside".to_owned()).or(found)
}

type Outside = std::collections::BTreeMap<std::path::PathBuf, e2e::Entry>;

fn walk(directory: &Path, see: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        see(&path);
        if path.symlink_metadata().unwrap().is_dir() {
            walk(&path, see);
        }
    }
}

fn furnish(test: &str) -> (World, Outside) {
    let world = World::new(test);
    world.write("dir/file", "text\n");
    world.write(world.top().join("outside/file"), "untouched\n");
    let outside = tree(&world.top().join("outside"));
    (world, outside)
}

#[test]
fn what_is_planted_is_not_taken_over() {
    const TEST: &str = "what_is_planted_is_not_taken_over";
    if weakened(TEST).is_none() {
        return;
    }
    for plant in PLANTS {
        let (world, outside) = furnish(TEST);
        let filled = |script: &str| script.replace("{top}", world.top().to_str().unwrap());
        for script in plant.scripts {
            let ran = world.run(["--keep"], &filled(script)).run().success();
            for options in [&[][..], &["--control", "--caches", "--ignored", "--force"]] {
                let arguments = ["apply", "last"].iter().chain(options.iter());
                let applied = world.atoll(arguments).run();
                let harm = harm(&world, &outside);
                assert!(
                    harm.is_none(),
                    "{} GOT THROUGH: {harm:?} {ran} {applied}",
                    plant.id
                );
            }
        }
        let _ = world.atoll(["undo", "last", "--force"]).run();
        let harm_of_undo = harm(&world, &outside);
        assert!(
            harm_of_undo.is_none(),
            "{} GOT THROUGH undo: {harm_of_undo:?}",
            plant.id
        );

        // A copy of what was left, made without care, brings it.
        let (world, outside) = furnish(TEST);
        let filled = |script: &str| script.replace("{top}", world.top().to_str().unwrap());
        let scripts: Vec<String> = plant.scripts.iter().map(|one| filled(one)).collect();
        // What the later scripts take away first is what a careless copy leaves.
        let careless = scripts.join("; ").replace("rm dir link; mkdir dir; ", "");
        let careless = careless
            .replace("rm dir/file up; ", "")
            .replace(" mkdir up;", "");
        let careless = match plant.id {
            "planted-link-for-a-directory" => {
                "cp -r dir copy; echo evil > copy/file; rm -r dir; ln -s {top}/outside dir; cp -r copy/. dir/"
                    .replace("{top}", world.top().to_str().unwrap())
            }
            _ => careless,
        };
        let done = world.host_shell(&careless).run();
        assert!(
            harm(&world, &outside).is_some(),
            "{} tests nothing: {done}",
            plant.id
        );
        println!(
            "{} [AML.T0105]: held; succeeds with a careless copy",
            plant.id
        );
        note_row(plant.id);
    }
}
