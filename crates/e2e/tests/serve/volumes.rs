//! Volumes: unmodified SDKs, strangers, what programs plant, and servers that are killed.

use e2e::traces::verify_ledger;
use e2e::{Avoidable, World, cache, python_site};

use super::{LONG, Server, all_passed_of, checks};

#[test]
fn volumes_of_the_sdk_of_python_work_unmodified() {
    let world = World::new("volumes_of_the_sdk_of_python_work_unmodified");
    let Some(site) = python_site(&world, "e2b") else {
        return;
    };
    let server = Server::start(&world);
    let python = world.host(site.join("bin/python"));
    all_passed_of(&server.client(python.arg(checks("volumes_client.py"))), 8);
    let _ = server.end();
    verify_ledger(&world);
}

#[test]
fn volumes_of_the_sdk_of_node_work_unmodified() {
    let world = World::new("volumes_of_the_sdk_of_node_work_unmodified");
    let modules = cache().map(|cache| cache.join("npm"));
    let Some(modules) = modules.filter(|npm| npm.join("node_modules/e2b").is_dir()) else {
        world.skip("e2b of npm is not in ATOLL_TEST_CACHE", Avoidable::Yes);
        return;
    };
    let server = Server::start(&world);
    let node = world.host("node").arg(checks("volumes_client.mjs"));
    all_passed_of(&server.client(node.env("E2B_MODULES", modules)), 1);
    let _ = server.end();
}

#[test]
fn volumes_are_kept_apart_and_hold_nothing_planted() {
    let world = World::new("volumes_are_kept_apart_and_hold_nothing_planted");
    let python = world.host("python3").arg(checks("volumes.py"));
    let run = python.env("CONFIG", world.config()).within(LONG).run();
    all_passed_of(&run, 9);
    verify_ledger(&world);
}
