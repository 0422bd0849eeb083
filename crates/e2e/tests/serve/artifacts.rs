//! Artifacts of served sandboxes and tools: who sees them, who decides, who gets them.

use super::*;
use e2e::is_root;

/// Makes a request with a key; returns the status and the body as it came.
fn ask(world: &World, server: &Server, key: &str, method: &str, path: &str) -> (u32, Vec<u8>) {
    let curl = world
        .host("curl")
        .args(["-sS", "-X", method, "-w", "\n%{http_code}"]);
    let key = format!("X-API-Key: {}", key.trim());
    let curl = match method {
        "POST" => curl.args(["-d", "{}"]),
        _ => curl,
    };
    let outcome = curl
        .args(["-H", &key])
        .arg(format!("{}{path}", server.url))
        .run();
    let answer = outcome.success().stdout;
    let at = answer.iter().rposition(|byte| *byte == b'\n').unwrap();
    let status = std::str::from_utf8(&answer[at + 1..]).unwrap();
    (status.parse().unwrap(), answer[..at].to_vec())
}

fn read(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or(Value::Null)
}

#[test]
fn outputs_of_sandboxes_wait_for_an_approver() {
    let world = World::new("outputs_of_sandboxes_wait_for_an_approver");
    let server = Server::start(&world);
    let key = |options: &[&str]| {
        let create = world.atoll(["serve", "keys", "create"]).args(options);
        create.run().success().out()
    };
    let user = key(&["--name", "agent", "--role", "user"]);
    let approver = key(&["--name", "boss", "--role", "approver"]);
    let auditor = key(&["--name", "audits", "--role", "auditor"]);
    let operator = key(&["--name", "operates", "--role", "operator"]);
    let stranger = key(&[
        "--name",
        "boss",
        "--role",
        "administrator",
        "--tenant",
        "others",
    ]);
    let (sandbox, _) = server.make(&world);
    let script = "umask 0; printf 'result\\0' >/outputs/a.bin; head -c 3000000 /dev/zero >/outputs/b; \
                  cat /outputs/a.bin; ls /outputs; rm /outputs/a.bin; ls / >/dev/null && echo listed";
    let run = json!({ "command": ["sh", "-c", script] }).to_string();
    let (status, ran) = server.ask(
        &world,
        "POST",
        &format!("/v1/sandboxes/{sandbox}/run"),
        &run,
    );
    assert_eq!(status, 200, "{ran}");
    // The names are found only where programs are their owner's own user.
    let names = if is_root() { "" } else { "a.bin\nb\n" };
    assert_eq!(ran["stdout"], format!("{names}listed\n"), "{ran}");
    let read_file = format!("/v1/sandboxes/{sandbox}/files/content?path=/outputs/a.bin");
    assert_ne!(ask(&world, &server, &user, "GET", &read_file).0, 200);
    // Nothing is one before the end.
    let (_, none) = server.ask(&world, "GET", "/v1/artifacts", "");
    assert_eq!(none, json!([]));
    let (status, _) = server.ask(&world, "DELETE", &format!("/v1/sandboxes/{sandbox}"), "");
    assert!(status < 300);
    let listed = wait_until("the artifacts", SOON, || {
        let path = format!("/v1/artifacts?sandbox={sandbox}&state=held");
        let (_, list) = ask(&world, &server, &user, "GET", &path);
        let list = read(&list);
        (list.as_array()?.len() == 2).then_some(list)
    });
    let one = &listed[0];
    assert_eq!((&one["name"], &one["size"]), (&json!("a.bin"), &json!(7)));
    let id = one["id"].as_str().unwrap();
    let path = |what: &str| format!("/v1/artifacts/{id}{what}");
    let asked =
        |key: &str, method: &str, what: &str| ask(&world, &server, key, method, &path(what));
    // Each role, before it is promoted and after.
    let roles = [
        ("user", &user, [200, 200, 403, 403], 200),
        ("auditor", &auditor, [200, 200, 403, 403], 403),
        ("operator", &operator, [403, 403, 403, 403], 403),
        ("another tenant's", &stranger, [404, 404, 404, 404], 404),
    ];
    for (role, key, expected, _) in roles {
        let requests = [
            ("GET", ""),
            ("GET", "/statement"),
            ("GET", "/content"),
            ("POST", "/promote"),
        ];
        let statuses = requests.map(|(method, what)| asked(key, method, what).0);
        assert_eq!(statuses, expected, "{role}");
    }
    assert_eq!(
        asked(&approver, "GET", "/content"),
        (200, b"result\0".to_vec())
    );
    let (status, scanned) = asked(&approver, "POST", "/scan");
    assert_eq!(status, 200);
    let scans = read(&scanned)["scans"].as_array().unwrap().clone();
    assert_eq!(scans.len(), 6, "{scans:?}");
    assert!(
        scans.iter().all(|one| one["verdict"] == "clean"),
        "{scans:?}"
    );
    assert_eq!(asked(&auditor, "POST", "/scan").0, 403);
    assert_eq!(asked(&stranger, "POST", "/scan").0, 404);
    let (status, promoted) = asked(&approver, "POST", "/promote");
    assert_eq!(status, 200, "{promoted:?}");
    let promoted = read(&promoted);
    assert_eq!(
        (&promoted["state"], &promoted["decided_by"]),
        (&json!("promoted"), &json!("boss"))
    );
    assert_eq!(asked(&user, "GET", "/content"), (200, b"result\0".to_vec()));
    for (role, key, _, expected) in roles {
        assert_eq!(asked(key, "GET", "/content").0, expected, "{role}");
    }
    assert_eq!(asked(&approver, "POST", "/reject").0, 409);
    // What was changed on the disk is not given out as if it were whole.
    let other = listed[1]["id"].as_str().unwrap();
    let content = format!("/v1/artifacts/{other}/content");
    assert_eq!(
        ask(&world, &server, &approver, "GET", &content).1,
        vec![0; 3_000_000]
    );
    let directory = world.state().join("atoll/artifacts");
    let pack = fs::read_dir(&directory).unwrap().find_map(|entry| {
        let path = entry.unwrap().path();
        path.extension()
            .is_some_and(|end| end == "pack")
            .then_some(path)
    });
    let pack = pack.unwrap();
    let mut bytes = fs::read(&pack).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&pack, bytes).unwrap();
    let key = format!("X-API-Key: {}", approver.trim());
    let cut = world
        .host("curl")
        .args(["-sS", "-H", &key])
        .arg(format!("{}{content}", server.url));
    let cut = cut.run();
    assert_ne!(cut.code(), 0, "the answer has to be seen to be cut off");
    let _ = server.end();
    verify_ledger(&world);
}

/// Sandboxes of tools have outputs too, which belong to who calls.
#[test]
fn outputs_of_tools_are_artifacts() {
    let world = World::new("outputs_of_tools_are_artifacts");
    world.write(
        world.config().join("atoll/tools.toml"),
        "[tool.report]\ndescription = \"Writes a report.\"\nkind = \"command\"\n\
         command = [\"sh\", \"-c\", \"echo {{}} >/outputs/report; cat /outputs/report\"]\neffect = \"write\"\n",
    );
    let called = world.atoll(["tools", "call", "report"]).run();
    assert!(!called.out().contains("{}"), "{called}");
    let listed = world
        .atoll(["artifacts", "list", "--json"])
        .run()
        .success()
        .json();
    assert_eq!(listed[0]["name"], "report", "{listed}");
    let server = Server::start(&world);
    let _ = server.ask(&world, "POST", "/v1/tools/report/call", "{}");
    let (_, list) = server.ask(&world, "GET", "/v1/artifacts", "");
    assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
    assert_eq!(list[0]["name"], "report");
    let _ = server.end();
}

/// A caller's sandbox reads artifacts of its tenant that were promoted, and no others; so does a tool.
#[test]
fn sandboxes_read_promoted_artifacts() {
    let world = World::new("sandboxes_read_promoted_artifacts");
    world.write("model.txt", "weights");
    world.write(
        world.config().join("atoll/tools.toml"),
        format!(
            "[tool.show]\ndescription = \"Shows the model.\"\nkind = \"command\"\n\
             command = [\"cat\", \"/inputs/model\"]\neffect = \"read\"\n\
             inputs = {{ model = \"{}\" }}\n",
            world.path("model.txt").canonicalize().unwrap().display()
        ),
    );
    let server = Server::start(&world);
    let (sandbox, _) = server.make(&world);
    let path = format!("/v1/sandboxes/{sandbox}");
    let run = |path: &str, script: &str| {
        let body = json!({ "command": ["sh", "-c", script] }).to_string();
        server.ask(&world, "POST", &format!("{path}/run"), &body)
    };
    assert_eq!(run(&path, "echo data >/outputs/a").0, 200);
    assert!(server.ask(&world, "DELETE", &path, "").0 < 300);
    let id = wait_until("the artifact", SOON, || {
        let (_, list) = server.ask(&world, "GET", "/v1/artifacts", "");
        Some(list[0]["id"].as_str()?.to_owned())
    });
    let make = |inputs: Value| {
        let body = json!({ "inputs": inputs }).to_string();
        server.ask(&world, "POST", "/v1/sandboxes", &body)
    };
    let input = |id: &str| json!([{ "name": "data", "artifact": id }]);
    let (status, told) = make(input(&id));
    assert_eq!(status, 403, "{told}");
    assert!(told.to_string().contains("is not promoted"), "{told}");
    let tenant = ["artifacts", "--tenant", "default", "promote", &id];
    let _ = world.atoll(tenant).run().success();
    assert_eq!(make(input("ffff")).0, 403);
    assert_eq!(make(json!([{ "name": "../x", "artifact": id }])).0, 400);
    assert_eq!(make(json!([{ "name": "x", "path": "/etc/passwd" }])).0, 400);
    let (status, made) = make(input(&id));
    assert_eq!(status, 201, "{made}");
    let path = format!("/v1/sandboxes/{}", made["sandbox"]["id"].as_str().unwrap());
    let script = "cat /inputs/data; echo more 2>/dev/null >>/inputs/data || echo kept";
    assert_eq!(run(&path, script).1["stdout"], "data\nkept\n");
    // Of the host's files nothing is put into it.
    let (_, shown) = server.ask(&world, "POST", "/v1/tools/show/call", "{}");
    assert!(
        shown.to_string().contains("nothing else of the host"),
        "{shown}"
    );
    assert!(!shown.to_string().contains("weights"), "{shown}");
    let called = world.atoll(["tools", "call", "show"]).run().success();
    assert!(called.out().contains("weights"), "{called}");
    let _ = server.end();
    verify_ledger(&world);
}

/// A server's sandboxes meet the rule of their profile as soon as they end.
#[test]
fn a_rule_promotes_outputs_of_sandboxes() {
    let world = World::new("a_rule_promotes_outputs_of_sandboxes");
    world.profile("default", "extends = [\"lets-go\"]\n");
    world.profile("lets-go", "outputs = \"promote\"\n");
    let server = Server::start(&world);
    let user = world.atoll([
        "serve", "keys", "create", "--name", "agent", "--role", "user",
    ]);
    let user = user.run().success().out();
    let (sandbox, _) = server.make(&world);
    let script = "echo fine >/outputs/fine; echo '4111 1111 1111 1111' >/outputs/card";
    let run = json!({ "command": ["sh", "-c", script] }).to_string();
    let at = format!("/v1/sandboxes/{sandbox}/run");
    assert_eq!(server.ask(&world, "POST", &at, &run).0, 200);
    let (status, _) = server.ask(&world, "DELETE", &format!("/v1/sandboxes/{sandbox}"), "");
    assert!(status < 300);
    let patience = std::time::Duration::from_secs(60);
    let all = e2e::wait_until("both have met their rule", patience, || {
        let (_, all) = server.ask(&world, "GET", "/v1/artifacts", "");
        let all = all.as_array()?.clone();
        let is_scanned = |one: &Value| one["scans"].as_array().is_some_and(|all| !all.is_empty());
        let promoted = all.iter().filter(|one| one["state"] == "promoted").count();
        (promoted == 1 && all.iter().all(is_scanned)).then_some(all)
    });
    for one in &all {
        let content = format!("/v1/artifacts/{}/content", one["id"].as_str().unwrap());
        let (status, body) = ask(&world, &server, &user, "GET", &content);
        match one["name"].as_str().unwrap() {
            "fine" => assert_eq!((status, body.as_slice()), (200, &b"fine\n"[..])),
            _ => assert_eq!(status, 403, "{}", String::from_utf8_lossy(&body)),
        }
    }
    let _ = server.end();
}
