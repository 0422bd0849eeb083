//! Retention of a server's data: its events, snapshots and paused sandboxes go by the rules, unless a tenant is
//! held.

use super::*;
use e2e::fine;

fn rules(world: &World, text: &str) {
    world.write(world.config().join("atoll/retention.toml"), text);
}

/// Returns the kinds of what is kept of the first tenant.
fn kinds(world: &World) -> Vec<String> {
    let told = fine(world, &["data", "about", "tenant:default", "--json"]).json();
    let kinds = told["items"].as_array().unwrap().iter();
    let kinds = kinds.map(|one| one["kind"].as_str().unwrap().to_owned());
    // Those of its runs are of other classes.
    kinds
        .filter(|one| ["events", "paused sandbox", "snapshot"].contains(&one.as_str()))
        .collect()
}

/// Has a sandbox that has ended, and one that is paused, with a snapshot.
fn lived(world: &World, server: &Server) {
    let (ended, _) = server.make(world);
    let (paused, _) = server.make(world);
    let path = format!("/sandboxes/{paused}/snapshots");
    let (status, made) = server.ask(world, "POST", &path, "{}");
    assert_eq!(status, 201, "{made}");
    let (status, _) = server.ask(world, "DELETE", &format!("/sandboxes/{ended}"), "");
    assert_eq!(status, 204);
    let (status, _) = server.ask(world, "POST", &format!("/sandboxes/{paused}/pause"), "{}");
    assert_eq!(status, 204);
}

const AT_ONCE: &str = "sandbox.age = \"1ms\"\nevent.age = \"1ms\"\n";

#[test]
fn a_server_sweeps_what_it_keeps() {
    let world = World::new("a_server_sweeps_what_it_keeps");
    let server = Server::start(&world);
    let key = server.key.clone();
    lived(&world, &server);
    let all = ["events", "events", "paused sandbox", "snapshot"];
    let mut kept = kinds(&world);
    kept.sort_unstable();
    assert_eq!(kept, all);
    rules(&world, AT_ONCE);
    fine(&world, &["gc"]).says(["A server runs: it sweeps"]);
    assert_eq!(kinds(&world).len(), all.len());
    let _ = server.end();
    // A tenant that is held keeps all of it.
    fine(&world, &["ledger", "hold", "default"]).says(["Held: tenant default"]);
    fine(&world, &["gc"]).says(["under a hold"]);
    assert_eq!(kinds(&world).len(), all.len());
    let _ = fine(&world, &["ledger", "release", "tenant:default"]);
    // The next server sweeps by itself: of the paused one its end is an event, for now.
    let serve = world.atoll(["serve", "--listen", "127.0.0.1:0", "--network", "closed"]);
    let server = Server::of(serve.within(LONG).start(), Some(&key));
    let is_swept = || {
        let left = kinds(&world);
        (!left.iter().any(|one| one != "events") && left.len() < 2).then_some(())
    };
    wait_until("the sweep", SOON, is_swept);
    // The files go behind the record.
    let homes = world.state().join("atoll/served/homes");
    let are_gone = || (fs::read_dir(&homes).map_or(0, Iterator::count) == 0).then_some(());
    wait_until("the homes", SOON, are_gone);
    let _ = server.end();
    // And without a server all the rest goes.
    let _ = fine(&world, &["gc"]);
    assert_eq!(kinds(&world), [""; 0]);
    let removed = fine(
        &world,
        &["ledger", "query", "--type", "data.removed", "--json"],
    )
    .out();
    for kind in ["events", "paused sandbox", "snapshot"] {
        assert!(
            removed.contains(&format!("\"kind\":\"{kind}\"")),
            "{removed}"
        );
    }
    verify_ledger(&world);
}

#[test]
fn without_a_server_all_of_it_goes_by_hand() {
    let world = World::new("without_a_server_all_of_it_goes_by_hand");
    let server = Server::start(&world);
    lived(&world, &server);
    let _ = server.end();
    rules(&world, AT_ONCE);
    let dry = fine(&world, &["gc", "--dry-run", "--json"]).json();
    assert_eq!(dry["classes"]["sandbox"]["count"], 2, "{dry}");
    assert_eq!(dry["classes"]["event"]["count"], 1, "{dry}");
    fine(&world, &["gc"]).says(["1 paused sandbox removed", "1 snapshot removed"]);
    let homes = world.state().join("atoll/served/homes");
    assert_eq!(fs::read_dir(homes).map_or(0, Iterator::count), 0);
    // The sandbox that was paused has no end yet, and the next server notes it.
    assert_eq!(kinds(&world), ["events"]);
}
