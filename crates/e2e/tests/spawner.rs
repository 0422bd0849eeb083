//! Many sandboxes from one process, whose launcher stays. The example program `spawner` makes them;
//! the checks are made from outside.

use std::path::PathBuf;

use e2e::remains::{adopt_orphans, alive};
use e2e::traces::{alone, until_none};
use e2e::{Avoidable, Invocation, World, children_of, is_root, kill};
use rustix::process::Signal;

/// Writes something and reads until the end.
const WAITS: &str = "#include <unistd.h>
int main(void) {
    char some[64];
    if (write(1, \"r\", 1) != 1) return 1;
    while (read(0, some, sizeof some) > 0) {}
    return 0;
}
";
const NOTHING: &str = "int main(void) { return 0; }\n";

fn spawner(world: &World, source: &str, what: &str, number: u32) -> Invocation {
    world.write("program.c", source);
    let compiler = ["-O2", "-static", "-o", "program", "program.c"];
    let _ = world.host("cc").args(compiler).run().success();
    let program = std::env::var_os("ATOLL_BIN_SPAWNER").unwrap();
    world
        .host(program)
        .arg(world.path("many"))
        .arg(world.workspace().join("program"))
        .args([what, &number.to_string()])
}

/// Checks that no process, mount or file of a sandbox is left.
fn nothing_is_left(world: &World) {
    let left = until_none(alive);
    assert!(left.is_empty(), "alive: {left:?}");
    let left = until_none(|| e2e::remains::mounts(world.top()));
    assert!(left.is_empty(), "mounts: {left:?}");
    for kept in ["scratch", "runs", "open"] {
        let directory: PathBuf = world.path("many/state").join(kept);
        let entries = std::fs::read_dir(&directory)
            .into_iter()
            .flatten()
            .flatten();
        let left: Vec<_> = entries.map(|entry| entry.path()).collect();
        assert!(left.is_empty(), "{kept}: {left:?}");
    }
}

#[test]
fn sandboxes_follow_one_another_from_a_launcher_that_stays() {
    alone();
    let world = World::new("sandboxes_follow_one_another_from_a_launcher_that_stays");
    let ended = spawner(&world, NOTHING, "sustained", 2).run().success();
    let told = ended.json();
    assert!(told["done"].as_u64().unwrap() > 10, "{ended}");
    for field in ["descriptors", "mounts", "children"] {
        assert_eq!(told["before"][field], told["after"][field], "{ended}");
    }
    nothing_is_left(&world);
}

/// On some file systems a process has to try whether owners can be mapped: two at the same time
/// must not wait for each other.
#[test]
fn sandboxes_made_at_once_do_not_wait_for_each_other() {
    alone();
    let world = World::new("sandboxes_made_at_once_do_not_wait_for_each_other");
    if !is_root() {
        world.skip("only root maps owners", Avoidable::No);
        return;
    }
    std::fs::create_dir(world.path("many")).unwrap();
    let mounted = "mount -t tmpfs memory many && exec \"$@\"";
    let front = ["unshare", "--mount", "sh", "-c", mounted, "sh"];
    let ended = spawner(&world, NOTHING, "sustained", 5)
        .under(front)
        .run()
        .success();
    assert!(ended.json()["done"].as_u64().unwrap() > 10, "{ended}");
    nothing_is_left(&world);
}

#[test]
fn sandboxes_end_with_who_made_them() {
    adopt_orphans();
    alone();
    let world = World::new("sandboxes_end_with_who_made_them");
    let running = spawner(&world, WAITS, "hold", 6).start();
    let _ = running.until_stdout("ready");
    let launchers: usize = children_of(running.pid())
        .iter()
        .map(|spawner| children_of(spawner.pid).len())
        .sum();
    // One more waits for the next sandbox.
    assert_eq!(launchers, 6 + 1);
    kill(running.pid(), Signal::KILL);
    let _ = running.wait();
    let left = until_none(alive);
    assert!(left.is_empty(), "alive: {left:?}");
}

#[test]
fn what_a_spawner_has_made_goes_on_without_it() {
    adopt_orphans();
    alone();
    let world = World::new("what_a_spawner_has_made_goes_on_without_it");
    let mut running = spawner(&world, WAITS, "hold", 4).start();
    let _ = running.until_stdout("ready");
    let of_host = children_of(running.pid());
    let [spawner] = of_host.as_slice() else {
        panic!("{of_host:?}")
    };
    kill(spawner.pid, Signal::KILL);
    running.send("\n");
    let ended = running.wait().success();
    let last = ended.out();
    let told: serde_json::Value = serde_json::from_str(last.lines().last().unwrap()).unwrap();
    assert_eq!(told["ended"]["sandboxes"], 4, "{ended}");
    // Another takes its place.
    assert_eq!(told["further"], serde_json::Value::Null, "{ended}");
    nothing_is_left(&world);
}

#[test]
fn a_spawner_makes_sandboxes_after_others_have_ended() {
    adopt_orphans();
    alone();
    let world = World::new("a_spawner_makes_sandboxes_after_others_have_ended");
    let mut running = spawner(&world, WAITS, "hold", 4).start();
    let _ = running.until_stdout("ready");
    running.send("\n");
    let ended = running.wait().success();
    let last = ended.out();
    let told: serde_json::Value = serde_json::from_str(last.lines().last().unwrap()).unwrap();
    assert_eq!(told["further"], serde_json::Value::Null, "{ended}");
    nothing_is_left(&world);
}
