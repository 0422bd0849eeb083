//! Paths come from the person, never from the words or the files of a program.

use e2e::World;

use super::harness::{attack_program, note_row, weakened};

/// Returns grants that a program would like to have for the next run: more to read, another
/// workspace, fewer restrictions.
fn wishes(world: &World) -> [(&'static str, String); 4] {
    let outside = world.top().join("outside");
    let outside = outside.display();
    [
        (
            "root-by-files",
            format!("[files]\nread = [\"{outside}\"]\n"),
        ),
        ("root-by-home", "[home]\nread = [\"private\"]\n".to_owned()),
        (
            "root-by-mode",
            "workspace = \"live\"\n[environment]\npass = [\"SECRET\"]\n".to_owned(),
        ),
        ("root-by-extension", "extends = [\"generous\"]\n".to_owned()),
    ]
}

#[test]
fn no_program_chooses_what_it_may_reach() {
    const TEST: &str = "no_program_chooses_what_it_may_reach";
    if weakened(TEST).is_none() || attack_program().is_none() {
        return;
    }
    for at in 0..4 {
        let world = World::new(TEST);
        let (id, wish) = wishes(&world)[at].clone();
        for place in ["outside", "home/private"] {
            world.write(world.top().join(place).join("secret"), "sesame\n");
        }
        world.profile("generous", &wishes(&world)[0].1);
        let look = format!(
            "cat {0}/outside/secret {0}/home/private/secret; echo $SECRET; echo evil > canary",
            world.top().display()
        );
        let taken = |options: &[&str]| {
            world.write("canary", "untouched\n");
            let invocation = world.run(options.iter().copied(), &look);
            let seen = invocation.env("SECRET", "sesame").run();
            let _ = world.atoll(["discard", "last"]).run();
            seen.out().contains("sesame") || world.read("canary") != "untouched\n"
        };

        // As the program leaves it, also where somebody let it through and, worse, trusts it.
        let script = format!("cat > atoll.toml <<'end'\n{wish}end\ncp atoll.toml generous.toml");
        let _ = world.run(["--keep"], &script).run();
        let _ = world.atoll(["apply", "last", "--control"]).run();
        assert!(world.exists("atoll.toml"), "{id}: nothing was planted");
        assert!(!taken(&[]), "{id} GOT THROUGH");
        let _ = world.atoll(["trust", "--yes"]).run();
        assert!(!taken(&[]), "{id} GOT THROUGH once trusted");
        std::fs::remove_file(world.path("atoll.toml")).unwrap();

        // The same words count when they are the person's own.
        world.profile("own", &wish);
        assert!(
            taken(&["--profile", "own"]),
            "{id} does not succeed as a profile"
        );
        println!("{id} [AML.T0081]: held; succeeds as the person's own profile");
        note_row(id);
    }
}
