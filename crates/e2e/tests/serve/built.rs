//! Builds of templates: what they report, and the list of what was built.

use std::fs;
use std::process::Command;

use e2e::{Avoidable, World};
use rustix::process::geteuid;
use serde_json::json;

use super::{LONG, Server};

#[test]
fn built_interpreter_is_listed() {
    let world = World::new("built_interpreter_is_listed");
    let none = world.atoll(["template", "list"]).run().expect_status(125);
    let _ = none.is_clear_error(["no key is set"]);
    let built = world
        .state()
        .join("atoll/served/templates/code-interpreter-v1/3");
    fs::create_dir_all(built.join("site")).unwrap();
    let told = world.atoll(["template", "list"]).run().success();
    assert!(
        told.out().contains("code-interpreter-v1  build 3"),
        "{told}"
    );
    let server = Server::start(&world);
    let (_, list) = server.ask(&world, "GET", "/v1/templates", "");
    assert_eq!(list[0]["id"], "code-interpreter-v1", "{list}");
    assert_eq!(list.as_array().map(Vec::len), Some(1), "{list}");
    // To E2B's SDKs it is no template of the team's.
    let (_, list) = server.ask(&world, "GET", "/templates", "");
    assert_eq!(list, json!([]));
    let _ = server.end();
}

#[test]
fn unreached_registry_is_named() {
    let world = World::new("unreached_registry_is_named");
    if !geteuid().is_root() {
        return world.skip("only root takes the network away", Avoidable::No);
    }
    let build = world.atoll(["template", "build", "code-interpreter-v1", "six"]);
    let build = build.under(["unshare", "--net", "--"]).within(LONG);
    let failed = build.run().expect_status(125);
    let _ = failed.is_clear_error(["PyPI could not be reached", "has to reach pypi.org"]);
}

/// A user without an account, and so without a range of ids.
const NOBODY: &str = "64207";

#[test]
fn copies_work_without_further_ids() {
    let world = World::new("copies_work_without_further_ids");
    let mut serve = world.atoll(["serve", "--listen", "127.0.0.1:0"]);
    let mut check = world.atoll(["serve", "--check"]);
    if geteuid().is_root() {
        let mut own = Command::new("chown");
        let own = own.args(["-R", NOBODY]).arg(world.top()).status();
        assert!(own.unwrap().success());
        let other = [
            "setpriv",
            "--reuid",
            NOBODY,
            "--regid",
            NOBODY,
            "--clear-groups",
        ];
        serve = serve.under(other);
        check = check.under(other);
    }
    let checked = check.run().success();
    assert!(checked.out().contains("package uidmap"), "{checked}");
    let server = Server::of(serve.within(LONG).start(), None);
    world.write("from/here", "content\n");
    let build = |name: &str, dockerfile: &str| {
        world.write("from/Dockerfile", dockerfile);
        let build = world.atoll(["template", "build", name, "--file", "from/Dockerfile"]);
        let build = build.env("ATOLL_URL", &server.url).within(LONG);
        build.env("ATOLL_API_KEY", &server.key).run()
    };
    let copy = "FROM atoll/base\nWORKDIR /app/dir\nCOPY here /app/there\n\
                RUN grep content /app/there && touch /app/dir/x\n";
    let built = build("copied", copy).success();
    assert!(built.out().starts_with("tpl"), "{built}");
    let _ = build(
        "owned",
        "FROM atoll/base\nCOPY --chown=root here /app/there\n",
    )
    .success();
    let refused = build(
        "others",
        "FROM atoll/base\nCOPY --chown=33 here /app/there\n",
    );
    let _ = refused
        .expect_status(125)
        .is_clear_error(["newuidmap (package uidmap)"]);
    let _ = server.end();
}

/// A server in a network of its own, where there is nothing but its loopback.
#[test]
fn interpreter_is_built_in_background() {
    let world = World::new("interpreter_is_built_in_background");
    if !geteuid().is_root() {
        return world.skip("only root takes the network away", Avoidable::No);
    }
    let start = |options: &[&str], key: Option<&str>| {
        let serve = world
            .atoll(["serve", "--listen", "127.0.0.1:0"])
            .args(options);
        let script = "ip link set lo up && exec \"$@\"";
        let serve = serve.under(["unshare", "--net", "--", "sh", "-c", script, "sh"]);
        Server::of(serve.within(LONG).start(), key)
    };
    let ask = |server: &Server, arguments: &[&str]| {
        let pid = server.running.pid().to_string();
        let curl = world
            .host("nsenter")
            .args(["-t", &pid, "-n", "curl", "-sS"]);
        let curl = curl.args(["-H", &format!("X-API-Key: {}", server.key)]);
        curl.args(arguments).within(LONG).run().success()
    };
    let make = |server: &Server| {
        let body = json!({ "templateID": "code-interpreter-v1" }).to_string();
        let url = format!("{}/v2/sandboxes", server.url);
        ask(server, &["-d", &body, &url]).json()
    };
    let server = start(&[], None);
    let made = make(&server);
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    let (id, token) = (text("sandboxID"), text("envdAccessToken"));
    server.running.until_stderr("installing beautifulsoup4");
    let execute = |code: &str| {
        let body = json!({ "code": code }).to_string();
        let headers = [
            format!("E2b-Sandbox-Id: {id}"),
            "E2b-Sandbox-Port: 49999".to_owned(),
            format!("X-Access-Token: {token}"),
            "Content-Type: application/json".to_owned(),
        ];
        let mut arguments = vec!["-d", &body];
        headers.iter().for_each(|one| arguments.extend(["-H", one]));
        let url = format!("{}/execute", server.url);
        arguments.push(&url);
        ask(&server, &arguments).out()
    };
    let told = execute("import no_such_module");
    for expected in [
        "ModuleNotFoundError",
        "pip install no_such_module",
        "atoll template build code-interpreter-v1",
    ] {
        assert!(told.contains(expected), "{told}");
    }
    server
        .running
        .until_stderr("was not built: PyPI could not be reached");
    // Once; and not at all where the network was closed by whoever set it up.
    make(&server);
    let key = server.key.clone();
    let _ = server.end();
    let server = start(&["--network", "closed"], Some(&key));
    make(&server);
    server
        .running
        .until_stderr("network = \"closed\"; atoll template build code-interpreter-v1");
    let _ = server.end();
}
