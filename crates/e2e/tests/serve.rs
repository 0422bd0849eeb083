//! `atoll serve`: unmodified SDKs, strangers, and processes that end at any time.

mod artifacts;
mod built;
mod conformance;
mod desktop;
mod forms;
mod limits;
mod managed;
mod retention;
mod shares;
mod tool_callbacks;
mod tool_limits;
mod tools;
mod volumes;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::internet::{is_possible, on_internet, on_servers};
use e2e::traces::{events, until_none, verify_ledger};
use e2e::{
    Avoidable, Invocation, Outcome, Running, World, cache, children_of, descendants_of, is_alive,
    kill, python_site, remains, status_field, wait_until,
};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::registries::further;

/// The longest time that a client's checks take on a busy machine.
const LONG: Duration = Duration::from_secs(300);

/// The longest time that a front takes to begin.
const SOON: Duration = Duration::from_secs(30);

/// A running server, with the key that it has made.
struct Server {
    running: Running,
    url: String,
    key: String,
    /// All that it tells at its begin.
    told: String,
}

impl Server {
    fn start(world: &World) -> Self {
        // It builds nothing by itself then.
        Self::with(world, &["--network", "closed"])
    }

    fn with(world: &World, options: &[&str]) -> Self {
        let serve = world.atoll(["serve", "--listen", "127.0.0.1:0"]);
        let running = serve.args(options).within(LONG).start();
        Self::of(running, None)
    }

    /// Waits until it serves. Its key is the one that it makes, or the one that is given.
    fn of(running: Running, key: Option<&str>) -> Self {
        let told = running.until_stdout("Ctrl-C");
        let word = |name: &str| {
            let mut lines = told.lines();
            let found = lines.find_map(|line| line.trim().strip_prefix(&format!("export {name}=")));
            found.unwrap_or_else(|| panic!("{told}")).to_owned()
        };
        Self {
            url: word("E2B_API_URL"),
            key: key.map_or_else(|| word("E2B_API_KEY"), str::to_owned),
            told: told.clone(),
            running,
        }
    }

    /// Returns the front, which is a child of the server.
    fn front(&self) -> u32 {
        let is_front = |name: &str| name == "atoll-front";
        wait_until("the front", SOON, || {
            let children = children_of(self.running.pid());
            children
                .iter()
                .find(|one| is_front(&one.name))
                .map(|one| one.pid)
        })
    }

    /// Makes a request; returns its status and body.
    fn ask(&self, world: &World, method: &str, path: &str, body: &str) -> (u32, Value) {
        let curl = world
            .host("curl")
            .args(["-sS", "-X", method, "-w", "\n%{http_code}"]);
        let curl = curl.args(["-H", &format!("X-API-Key: {}", self.key), "-d", body]);
        let answer = curl
            .arg(format!("{}{path}", self.url))
            .run()
            .success()
            .out();
        let (body, status) = answer.rsplit_once('\n').unwrap();
        (
            status.parse().unwrap(),
            serde_json::from_str(body).unwrap_or(Value::Null),
        )
    }

    /// Makes a sandbox; returns its id and token.
    fn make(&self, world: &World) -> (String, String) {
        let (status, made) = self.ask(world, "POST", "/v2/sandboxes", "{}");
        assert_eq!(status, 201, "{made}");
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        (text("sandboxID"), text("envdAccessToken"))
    }

    /// Returns the sandboxes that are listed.
    fn listed(&self, world: &World) -> Vec<String> {
        let (_, list) = self.ask(world, "GET", "/v2/sandboxes", "");
        let id = |one: &Value| one["sandboxID"].as_str().unwrap().to_owned();
        list.as_array().unwrap().iter().map(id).collect()
    }

    /// Returns the name below which the ports of sandboxes are.
    fn domain(&self) -> String {
        let domain = self.told.split("E2B_DOMAIN=").nth(1).unwrap();
        domain.split_whitespace().next().unwrap().to_owned()
    }

    /// Ends it as a person does.
    fn end(self) -> Outcome {
        self.running.signal(Signal::INT);
        self.running.wait().success()
    }

    fn client(&self, client: Invocation) -> Outcome {
        let client = client
            .env("E2B_API_URL", &self.url)
            .env("E2B_SANDBOX_URL", &self.url)
            .env("E2B_VOLUME_API_URL", &self.url);
        client.env("E2B_API_KEY", &self.key).within(LONG).run()
    }
}

/// Returns the path of a client's checks.
fn checks(name: &str) -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo or xtask sets it");
    PathBuf::from(package).join("tests/serve").join(name)
}

fn all_passed(outcome: &Outcome) {
    all_passed_of(outcome, 6);
}

fn all_passed_of(outcome: &Outcome, least: usize) {
    let out = outcome.out();
    assert!(out.lines().count() >= least, "{outcome}");
    assert!(out.lines().all(|line| line.starts_with("ok ")), "{outcome}");
    assert_eq!(outcome.code(), 0, "{outcome}");
}

/// Has a client of somebody else's drive a server.
fn client_works(world: &World, package: &str, script: &str, least: usize) {
    let Some(site) = python_site(world, package) else {
        return;
    };
    let server = Server::start(world);
    let python = world.host(site.join("bin/python")).arg(checks(script));
    let python = python.env("E2B_DOMAIN", server.domain());
    all_passed_of(&server.client(python), least);
    let _ = server.end();
}

#[test]
fn the_sandbox_of_langchain_works_unmodified() {
    let world = World::new("the_sandbox_of_langchain_works_unmodified");
    let package = "langchain-e2b";
    client_works(&world, package, "langchain_client.py", 6);
}

#[test]
fn the_sandbox_of_the_agents_sdk_works_unmodified() {
    let world = World::new("the_sandbox_of_the_agents_sdk_works_unmodified");
    let package = "openai-agents";
    client_works(&world, package, "agents_client.py", 6);
}

/// Returns a key of another tenant.
fn key_of_another(world: &World) -> String {
    let create = world.atoll([
        "serve", "keys", "create", "--name", "other", "--tenant", "other",
    ]);
    create.run().success().out().trim().to_owned()
}

#[test]
fn the_sdk_of_opensandbox_works_unmodified() {
    let world = World::new("the_sdk_of_opensandbox_works_unmodified");
    let package = "opensandbox-code-interpreter";
    let Some(site) = python_site(&world, package) else {
        return;
    };
    let server = Server::start(&world);
    let python = world.host(site.join("bin/python"));
    let python = python.arg(checks("opensandbox_client.py"));
    let python = python.env("OPEN_SANDBOX_DOMAIN", format!("{}/opensandbox", server.url));
    let python = python.env("OPEN_SANDBOX_API_KEY", &server.key);
    let python = python.env("OTHER_KEY", key_of_another(&world));
    all_passed_of(&server.client(python), 10);
    let _ = server.end();
    verify_ledger(&world);
}

#[test]
fn clients_of_jupyter_work_unmodified() {
    let world = World::new("clients_of_jupyter_work_unmodified");
    let package = "jupyter_kernel_client";
    let Some(site) = python_site(&world, package) else {
        return;
    };
    let server = Server::start(&world);
    let python = world.host(site.join("bin/python"));
    let python = python.arg(checks("kernels_client.py"));
    let python = python.env("JUPYTER_URL", format!("{}/jupyter", server.url));
    let python = python.env("JUPYTER_TOKEN", &server.key);
    let python = python.env("OTHER_KEY", key_of_another(&world));
    all_passed_of(&server.client(python), 13);
    let _ = server.end();
    verify_ledger(&world);
}

/// The tool runs in LibreChat's server, which makes a token for each of its users.
#[test]
fn the_code_tool_of_librechat_works_unmodified() {
    let world = World::new("the_code_tool_of_librechat_works_unmodified");
    let modules = cache().map(|cache| cache.join("npm/node_modules"));
    let Some(modules) = modules.filter(|npm| npm.join("@librechat/agents").is_dir()) else {
        let why = "@librechat/agents of npm is not in ATOLL_TEST_CACHE";
        return world.skip(why, Avoidable::Yes);
    };
    let script = || world.host("node").arg(checks("librechat.mjs"));
    let keys = world.top();
    let _ = script().arg("keys").arg(keys).run().success();
    let issuer = format!(
        "network = 'closed'\n[[issuer]]\nurl = 'https://chat.example.com'\naudience = 'atoll'\nkeys = '{}'\n",
        keys.join("public.json").display()
    );
    world.write("serve.toml", issuer);
    let server = Server::with(&world, &["--config", "serve.toml"]);
    let client = script().env("NODE_MODULES", modules).env("KEYS", keys);
    let client = client.env("CODE_URL", format!("{}/librechat", server.url));
    let client = client.env("CODE_KEY", &server.key);
    let client = client.env("OTHER_KEY", key_of_another(&world));
    all_passed_of(&server.client(client), 6);
    let _ = server.end();
    verify_ledger(&world);
}

#[test]
fn a_client_is_generated_from_the_description() {
    let world = World::new("a_client_is_generated_from_the_description");
    let package = "openapi-python-client";
    client_works(&world, package, "generated_client.py", 2);
}

#[test]
fn the_sdk_of_python_works_unmodified() {
    let world = World::new("the_sdk_of_python_works_unmodified");
    let Some(site) = python_site(&world, "e2b") else {
        return;
    };
    let server = Server::start(&world);
    let python = world.host(site.join("bin/python")).arg(checks("client.py"));
    all_passed(&server.client(python));
    let _ = server.end();
    verify_ledger(&world);
}

/// The page's program, and its `serve.toml`.
#[test]
fn the_page_on_serving_works() {
    let world = World::new("the_page_on_serving_works");
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo or xtask sets it");
    let page = fs::read_to_string(PathBuf::from(package).join("../../docs/serve.md")).unwrap();
    let block = |language: &str| {
        let block = page
            .split(&format!("```{language}\n"))
            .nth(1)
            .expect("it has one");
        block.split("```").next().expect("it ends").to_owned()
    };
    world.write(world.config().join("atoll/serve.toml"), block("toml"));
    let right = world.atoll(["serve", "--check"]).run().success();
    let told = "right: http://127.0.0.1:3000, network registries\nsandboxes' files, in ";
    assert!(right.out().starts_with(told), "{right}");
    let Some(site) = python_site(&world, "e2b") else {
        return;
    };
    let server = Server::with(&world, &["--network", "closed"]);
    let scripts = page.split("```python\n").skip(1);
    let scripts: Vec<&str> = scripts.filter_map(|one| one.split("```").next()).collect();
    for (script, expected) in scripts.iter().zip(["42\n\n", "made\nhello\n\n"]) {
        world.write("page.py", *script);
        let outcome = server.client(world.host(site.join("bin/python")).arg("page.py"));
        assert_eq!(outcome.success().out(), expected);
    }
    assert_eq!(scripts.len(), 2);
    for shell in page.split("```sh\n").skip(1) {
        let script = shell.split("```").next().expect("it ends");
        let script = format!("set -e; PATH=$(dirname \"$ATOLL\"):$PATH; {script}");
        let shell = world.host_shell(&script).env("ATOLL_URL", &server.url);
        let ran = shell
            .env("ATOLL_API_KEY", &server.key)
            .within(LONG)
            .run()
            .success();
        assert!(
            ["greeting", "kept", "port_token", "session.noted"]
                .iter()
                .any(|word| ran.out().contains(word)),
            "{ran}"
        );
    }
    let _ = server.end();
}

#[test]
fn the_sdk_of_node_works_unmodified() {
    let world = World::new("the_sdk_of_node_works_unmodified");
    let modules = cache().map(|cache| cache.join("npm"));
    let Some(modules) = modules.filter(|npm| npm.join("node_modules/e2b").is_dir()) else {
        world.skip("e2b of npm is not in ATOLL_TEST_CACHE", Avoidable::Yes);
        return;
    };
    let server = Server::start(&world);
    let node = world
        .host("node")
        .arg(checks("client.mjs"))
        .env("E2B_MODULES", modules);
    all_passed(&server.client(node));
    let _ = server.end();
}

#[test]
fn strangers_reach_nothing() {
    let world = World::new("strangers_reach_nothing");
    // The processes of those made ahead are not counted.
    world.write("serve.toml", "[warm]\nsandboxes = 0\n");
    let server = Server::with(&world, &["--config", "serve.toml"]);
    let create = [
        "serve", "keys", "create", "--name", "other", "--tenant", "other",
    ];
    let other = world.atoll(create).run().success().out();
    let administrator = world.atoll(create).args(["--role", "administrator"]);
    let administrator = administrator.run().success().out();
    let strangers = world.host("python3").arg(checks("strangers.py"));
    let strangers = strangers.env("URL", &server.url).env("KEY", &server.key);
    let strangers = strangers.env("OTHER_KEY", other.trim());
    let strangers = strangers.env("OTHER_ADMINISTRATOR", administrator.trim());
    let strangers = strangers.env("SERVER", server.running.pid().to_string());
    let strangers = strangers
        .env("HOST_HOME", world.home())
        .env("HOST_STATE", world.state());
    all_passed(&strangers.within(LONG).run());
    let _ = server.end();
}

/// An id is public: what runs code or reads files takes more.
#[test]
fn an_id_of_a_sandbox_opens_nothing() {
    let world = World::new("an_id_of_a_sandbox_opens_nothing");
    let server = Server::start(&world);
    let python = world.host("python3").arg(checks("ids.py"));
    let python = python.env("URL", &server.url).env("KEY", &server.key);
    let python = python.env("OTHER_KEY", key_of_another(&world));
    all_passed_of(&python.within(LONG).run(), 7);
    let _ = server.end();
    verify_ledger(&world);
}

/// Makes a sandbox with one of the words for a network.
fn makes_a_sandbox_with(world: &World, network: &str) {
    let server = Server::with(world, &["--network", network]);
    let (id, _) = server.make(world);
    assert_eq!(server.listed(world), [id]);
    let _ = server.end();
}

#[test]
fn registries_make_a_sandbox() {
    let world = World::new("registries_make_a_sandbox");
    makes_a_sandbox_with(&world, "registries");
}

#[test]
fn the_internet_makes_a_sandbox() {
    let world = World::new("the_internet_makes_a_sandbox");
    makes_a_sandbox_with(&world, "internet");
}

#[test]
fn the_own_api_works() {
    let world = World::new("the_own_api_works");
    let server = Server::start(&world);
    let own = world.host("python3").arg(checks("own.py"));
    let mut own = own.env("URL", &server.url).env("KEY", &server.key);
    let held = world.atoll(["doctor", "--json"]).run().json();
    let by = held["limits-held-by"]["memory"].as_str();
    if by.is_some_and(|by| by.starts_with("cgroup")) {
        own = own.env("MEMORY_IS_HELD", "1");
    }
    all_passed(&own.within(LONG).run());
    let _ = server.end();
}

#[test]
fn quotas_refuse_and_tell_when_to_come_again() {
    let world = World::new("quotas_refuse_and_tell_when_to_come_again");
    world.write(
        "quota.toml",
        "[defaults]\ntimeout_s = 60\n[quota]\nsandboxes = 2\ncreates_a_minute = 4\ntimeout_s = 60\n",
    );
    let server = Server::with(&world, &["--config", "quota.toml"]);
    let create = |body: &str| server.ask(&world, "POST", "/v2/sandboxes", body);
    let (status, told) = create("{\"timeout\":61}");
    assert_eq!(status, 400, "{told}");
    assert!(told.to_string().contains("quota.timeout_s"), "{told}");
    let body = "{\"timeout\":60}";
    let made: Vec<_> = (0..2).map(|_| create(body)).collect();
    assert!(made.iter().all(|(status, _)| *status == 201), "{made:?}");
    let (status, told) = create(body);
    assert_eq!(status, 429, "{told}");
    assert!(told.to_string().contains("quota.sandboxes"), "{told}");
    // Two of four are used up: what is refused costs nothing.
    for (_, one) in made {
        let id = one["sandboxID"].as_str().unwrap().to_owned();
        assert_eq!(
            server
                .ask(&world, "DELETE", &format!("/sandboxes/{id}"), "")
                .0,
            204
        );
        let (status, again) = create(body);
        assert_eq!(status, 201, "{again}");
        let id = again["sandboxID"].as_str().unwrap().to_owned();
        assert_eq!(
            server
                .ask(&world, "DELETE", &format!("/sandboxes/{id}"), "")
                .0,
            204
        );
    }
    let curl = world
        .host("curl")
        .args(["-sS", "-i", "-X", "POST", "-d", body]);
    let curl = curl.args(["-H", &format!("X-API-Key: {}", server.key)]);
    let refused = curl
        .arg(format!("{}/v2/sandboxes", server.url))
        .run()
        .success()
        .out();
    assert!(refused.starts_with("HTTP/1.1 429 "), "{refused}");
    assert!(
        refused.contains("\r\nretry-after: ") && refused.contains("creates_a_minute"),
        "{refused}"
    );
    let _ = server.end();
}

#[test]
fn sizes_of_all_sandboxes_together_are_bound() {
    let world = World::new("sizes_of_all_sandboxes_together_are_bound");
    world.write(
        "quota.toml",
        "[quota]\ncpus = 1000\nmemory_mib = 2500\ndisk_mib = 30000\n",
    );
    let server = Server::with(&world, &["--config", "quota.toml"]);
    let create = |body: &str| server.ask(&world, "POST", "/v1/sandboxes", body);
    let is_refused = |body: &str, name: &str| {
        let (status, told) = create(body);
        assert!(
            status == 429 && told.to_string().contains(&format!("quota.{name}")),
            "{body} {told}"
        );
    };
    is_refused("{\"memory_mib\":2501}", "memory_mib");
    is_refused("{\"disk_mib\":30001}", "disk_mib");
    let (status, first) = create("{\"memory_mib\":500,\"disk_mib\":20000}");
    assert_eq!(status, 201, "{first}");
    let (status, told) = create("{\"memory_mib\":2000,\"disk_mib\":10000}");
    assert_eq!(status, 201, "{told}");
    is_refused("{\"memory_mib\":4,\"disk_mib\":1}", "memory_mib");
    let id = first["sandbox"]["id"].as_str().unwrap();
    let path = format!("/v1/sandboxes/{id}");
    assert_eq!(server.ask(&world, "DELETE", &path, "").0, 200);
    // What is gone counts no more.
    is_refused("{\"memory_mib\":400,\"disk_mib\":20001}", "disk_mib");
    let (status, told) = create("{\"memory_mib\":400,\"disk_mib\":20000}");
    assert_eq!(status, 201, "{told}");
    let _ = server.end();
}

#[test]
fn the_shell_of_a_sandbox_is_a_terminal() {
    let world = World::new("the_shell_of_a_sandbox_is_a_terminal");
    let server = Server::start(&world);
    let client = |arguments: &[&str]| {
        let client = world.atoll(["sandbox"]).args(arguments).within(LONG);
        let client = client.env("ATOLL_URL", &server.url);
        client.env("ATOLL_API_KEY", &server.key)
    };
    let id = client(&["create"]).run().success().out().trim().to_owned();
    let mut shell = client(&["shell", &id]).on_terminal(30, 90);
    shell.expect("$ ");
    shell.send("tty; stty size; echo $((6*7))\n");
    shell.expect("/dev/pts/");
    shell.expect("30 90");
    shell.expect("42");
    // What could do harm on a person's terminal does not reach it.
    shell.send("printf '\\033]52;c;aGk=\\007done%s\\n' ed\n");
    shell.expect("doneed");
    shell.send("exec sh\n");
    shell.expect("$ ");
    shell.expect("$ ");
    shell.send("cat\n");
    shell.expect("cat");
    shell.send("read\n");
    shell.expect("read\r\nread");
    shell.send("\u{3}");
    shell.expect("$ ");
    shell.send("exit 9\n");
    let outcome = shell.wait();
    assert_eq!(outcome.code(), 9, "{outcome}");
    assert!(!outcome.out().contains("\u{1b}]52"), "{outcome}");
    let _ = client(&["shell", &id])
        .run()
        .expect_status(125)
        .is_clear_error(["needs a terminal", "atoll sandbox exec"]);
    let ports = client(&["ports", &id]).run().success();
    assert!(ports.err().contains("Nothing listens"), "{ports}");
    let logs = client(&["logs", &id]).run().success();
    assert!(logs.out().contains("exec 1"), "{logs}");
    let wrong = client(&["create", "--memory", "much"]).run();
    let _ = wrong.expect_status(125).is_clear_error(["--memory"]);
    let _ = server.end();
}

#[test]
fn the_client_at_the_command_line_works() {
    let world = World::new("the_client_at_the_command_line_works");
    let server = Server::start(&world);
    let client = |arguments: &[&str]| {
        let client = world.atoll(["sandbox"]).args(arguments).within(LONG);
        client
            .env("ATOLL_URL", &server.url)
            .env("ATOLL_API_KEY", &server.key)
            .run()
    };
    let own = format!("  export ATOLL_API_KEY={}\n", server.key);
    let url = format!("  export ATOLL_URL={}\n", server.url);
    let told = &server.told;
    assert!(told.contains(&own) && told.contains(&url), "{told}");
    let closed = [
        "create",
        "--network",
        "closed",
        "--cpus",
        "1",
        "--template",
        "base",
    ];
    let closed = client(&closed).success();
    assert!(closed.err().contains("network closed"), "{closed}");
    let _ = client(&["create", "--network", "internet"])
        .expect_status(125)
        .is_clear_error([
            "less than serve.toml says",
            "atoll serve --network internet",
        ]);
    // The server grants no more than it has itself.
    let _ = client(&["create", "--network", "example.com"])
        .expect_status(125)
        .is_clear_error(["closed"]);
    let made = client(&["create", "--metadata", "of=test", "--env", "NAME=value"]).success();
    let id = made.out().trim().to_owned();
    let script = "echo $NAME; echo told >&2; exit 7";
    let ran = client(&["exec", &id, "--", "sh", "-c", script]).expect_status(7);
    assert_eq!(
        (ran.out(), ran.err()),
        ("value\n".to_owned(), "told\n".to_owned())
    );
    let killed = client(&["exec", &id, "--", "sh", "-c", "kill -15 $$"]);
    let _ = killed.expect_status(143);
    let fed = world
        .atoll(["sandbox", "exec", &id, "--", "sort"])
        .stdin("b\na\n")
        .within(LONG);
    let fed = fed
        .env("ATOLL_URL", &server.url)
        .env("ATOLL_API_KEY", &server.key)
        .run();
    assert_eq!(fed.success().out(), "a\nb\n");
    let _ = client(&["exec", &id, "--", "no-such"]).expect_status(127);
    let _ = client(&["cp", ".", &format!("{id}:x")])
        .expect_status(125)
        .is_clear_error(["a directory"]);
    world.write("here", "content\n");
    let there = format!("{id}:dir/there");
    let _ = client(&["cp", "here", &there]).success();
    let listed = client(&["ls", &id, "dir"]).success();
    assert!(
        listed.out().contains("0644") && listed.out().ends_with("  there\n"),
        "{listed}"
    );
    let _ = client(&["cp", &there, "back"]).success();
    assert_eq!(world.read("back"), "content\n");
    let alive = client(&["list", "--json"]).success().json();
    assert_eq!(
        (&alive[0]["id"], &alive[0]["metadata"]["of"]),
        (&json!(id), &json!("test"))
    );
    let _ = client(&["kill", &id]).success();
    let gone = client(&["exec", &id, "--", "true"]).expect_status(125);
    let _ = gone.is_clear_error(["has ended", "a caller has ended it"]);
    let _ = client(&["cp", "here", "there"])
        .expect_status(125)
        .is_clear_error(["ID:PATH"]);
    let _ = client(&["create", "--env", "NAME"])
        .expect_status(125)
        .is_clear_error(["NAME=VALUE"]);
    let _ = server.end();
    let keyless = world.atoll(["sandbox", "list"]).run().expect_status(125);
    let _ = keyless.is_clear_error(["no key is set", "ATOLL_API_KEY"]);
    let nobody = world.atoll(["sandbox", "list"]).env("ATOLL_API_KEY", "x");
    let nobody = nobody
        .env("ATOLL_URL", "http://127.0.0.1:9")
        .run()
        .expect_status(125);
    let _ = nobody.is_clear_error(["cannot be asked", "atoll serve"]);
}

/// A sandbox is a run of the ledger, and so is what happens in it; its caller is a fact of both.
#[test]
fn what_is_served_is_recorded() {
    let world = World::new("what_is_served_is_recorded");
    let server = Server::start(&world);
    let body = json!({ "metadata": { "für": "ä" }, "envVars": { "SECRET": "in-clear" } });
    let (status, made) = server.ask(&world, "POST", "/v2/sandboxes", &body.to_string());
    assert_eq!(status, 201, "{made}");
    let id = made["sandboxID"].as_str().unwrap();
    let token = made["envdAccessToken"].as_str().unwrap();
    let message = json!({ "process": { "cmd": "/bin/true" } }).to_string();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    world.write("start", [&[0], &length[..], message.as_bytes()].concat());
    let start = world.host("curl").args(["-sS", "--data-binary", "@start"]);
    let start = start.args(["-H", &format!("E2b-Sandbox-Id: {id}")]);
    let start = start.args(["-H", &format!("X-Access-Token: {token}")]);
    let start = start
        .arg(format!("{}/process.Process/Start", server.url))
        .run()
        .success();
    assert!(start.out().contains("exit status 0"), "{start}");
    let (status, _) = server.ask(&world, "DELETE", &format!("/sandboxes/{id}"), "");
    assert_eq!(status, 204);
    let all = events(&world);
    let of = |kind: &str| {
        all.iter()
            .filter(|event| event["type"] == kind)
            .collect::<Vec<_>>()
    };
    // Those made ahead for whoever comes next are runs of their own.
    let opened = of("run.opened");
    let opened: Vec<_> = opened
        .into_iter()
        .filter(|event| event["body"]["served"]["sandbox"] == *id)
        .collect();
    assert_eq!(opened.len(), 1, "{all:?}");
    let served = &opened[0]["body"]["served"];
    assert_eq!(served["sandbox"], *id);
    assert_eq!(
        (&served["tenant"], &served["caller"]),
        (&json!("default"), &json!("first"))
    );
    assert_eq!(served["metadata"], json!([["für", "ä"]]));
    assert_eq!(of("exec.opened").len(), 1, "{all:?}");
    assert_eq!(of("exec.closed").len(), 1, "{all:?}");
    let closed = of("run.closed");
    let closed = closed.iter().filter(|one| one["run"] == opened[0]["run"]);
    assert_eq!(closed.count(), 1, "{all:?}");
    let whole = format!("{all:?}");
    assert!(
        !whole.contains("in-clear") && !whole.contains(&server.key),
        "{whole}"
    );
    let (_, told) = server.ask(&world, "GET", &format!("/events/sandboxes/{id}"), "");
    let kinds: Vec<&str> = told
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        ["sandbox.lifecycle.killed", "sandbox.lifecycle.created"]
    );
    let _ = server.end();
    verify_ledger(&world);
}

#[test]
fn a_front_that_ends_takes_no_sandbox_along() {
    let world = World::new("a_front_that_ends_takes_no_sandbox_along");
    let server = Server::start(&world);
    let (id, _) = server.make(&world);
    for _ in 0..3 {
        let front = server.front();
        kill(front, Signal::KILL);
        wait_until("another front", SOON, || {
            (server.front() != front).then_some(())
        });
        assert_eq!(server.listed(&world), std::slice::from_ref(&id));
    }
    let _ = server.end();
}

/// A front holds nothing: no file can be opened by it, and no other process is reached.
#[test]
fn a_front_has_no_right() {
    let world = World::new("a_front_has_no_right");
    let server = Server::start(&world);
    // Once it answers it has given up what it does not need.
    let _ = server.ask(&world, "GET", "/health", "");
    let front = server.front();
    let field = |name: &str| e2e::status_field(front, name).unwrap();
    assert_eq!(field("NoNewPrivs"), "1");
    assert_eq!(field("Seccomp"), "2");
    assert_eq!(u64::from_str_radix(&field("CapEff"), 16), Ok(0));
    let links = fs::read_dir(format!("/proc/{front}/fd")).unwrap().flatten();
    let links = links.filter_map(|link| fs::read_link(link.path()).ok());
    for link in links {
        let link = link.to_string_lossy().into_owned();
        let is_mere = ["/dev/null", "socket:", "pipe:", "anon_inode:"]
            .iter()
            .any(|of| link.starts_with(of));
        assert!(is_mere, "{link}");
    }
    let _ = server.end();
}

#[test]
fn a_server_that_ends_leaves_nothing() {
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let world = World::new("a_server_that_ends_leaves_nothing");
        let server = Server::start(&world);
        for _ in 0..3 {
            let _ = server.make(&world);
        }
        let below: Vec<u32> = descendants_of(server.running.pid())
            .iter()
            .map(|one| one.pid)
            .collect();
        assert!(below.len() > 3, "{below:?}");
        server.running.signal(signal);
        let ended = server.running.wait();
        assert_eq!(ended.code() == 0, signal != Signal::KILL, "{ended}");
        let left = until_none(|| below.iter().copied().filter(|pid| is_alive(*pid)).collect());
        assert!(left.is_empty(), "{left:?} after {signal:?}");
        let runs = remains::recorded_runs(&world.state());
        let groups = until_none(|| remains::groups(&runs));
        assert!(groups.is_empty() || signal == Signal::KILL, "{groups:?}");
        // The next one finds the ledger as it should be, and tells of no sandbox.
        let keys = world
            .atoll(["serve", "keys", "create", "--name", "next"])
            .run()
            .success()
            .out();
        let serve = world
            .atoll(["serve", "--listen", "127.0.0.1:0"])
            .within(LONG)
            .start();
        let next = Server::of(serve, Some(keys.trim()));
        assert!(next.listed(&world).is_empty());
        let _ = next.end();
        verify_ledger(&world);
    }
}

#[test]
fn mistakes_are_told_before_anything_begins() {
    let world = World::new("mistakes_are_told_before_anything_begins");
    let toml = world.config().join("atoll/serve.toml");
    let check = |text: &str| {
        world.write(&toml, text);
        world.atoll(["serve", "--check"]).run()
    };
    let right = check("listen = '127.0.0.1:3333'\nnetwork = 'registries'\n[defaults]\ncpus = 1\n");
    let told = "right: http://127.0.0.1:3333, network registries\n";
    assert!(right.success().out().starts_with(told));
    for (text, words) in [
        ("listen = '0.0.0.0:3000'", ["not on the loopback", "TLS"]),
        (
            "lisen = '127.0.0.1:3000'",
            ["unknown field `lisen`", "atoll help serve"],
        ),
        ("network = 'all'", ["unknown variant `all`", "closed"]),
        ("[quota]\nsandboxes = 0", ["quota.sandboxes", "at least 1"]),
        (
            "[[issuer]]\nurl = 'http://login.example.com'\naudience = 'a'",
            ["issuer.url", "https://"],
        ),
        (
            "[[issuer]]\nurl = 'https://a'\naudience = 'a'\nkeys = '/nothing'",
            ["tokens of https://a", "issuer.keys"],
        ),
        (
            "[quota]\ntimeout_s = 10",
            ["defaults.timeout_s is 300", "quota.timeout_s, 10"],
        ),
    ] {
        let _ = check(text).expect_status(125).is_clear_error(words);
    }
    world.write(&toml, "");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let refused = world.atoll(["serve", "--listen", &at]).run();
    let _ = refused
        .expect_status(125)
        .is_clear_error(["nothing can listen at", "--listen"]);
    let role = world
        .atoll(["serve", "keys", "create", "--name", "x", "--role", "king"])
        .run();
    let _ = role
        .expect_status(125)
        .is_clear_error(["there is no role \"king\"", "administrator"]);
}

/// The protocols of systemd: a socket is handed over, and the begin is told.
#[test]
fn a_service_manager_hands_a_socket_over_and_is_told() {
    let world = World::new("a_service_manager_hands_a_socket_over_and_is_told");
    let told = std::os::unix::net::UnixDatagram::bind(world.path("notify")).unwrap();
    told.set_read_timeout(Some(SOON)).unwrap();
    let manager = "import os, socket, sys\n\
        s = socket.create_server(('127.0.0.1', 0))\n\
        os.dup2(s.fileno(), 3); os.set_inheritable(3, True)\n\
        print('at', s.getsockname()[1], flush=True)\n\
        os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()))\n\
        os.execv(os.environ['ATOLL'], ['atoll', 'serve', '--listen', '127.0.0.1:1'])\n";
    let manager = world.host("python3").args(["-c", manager]);
    let manager = manager
        .env("NOTIFY_SOCKET", world.path("notify"))
        .within(LONG);
    let running = manager.start();
    let text = running.until_stdout("Ctrl-C");
    let mut message = [0; 64];
    let got = told.recv(&mut message).unwrap();
    assert_eq!(&message[..got], b"READY=1");
    let port = text
        .lines()
        .find_map(|line| line.strip_prefix("at "))
        .unwrap();
    assert!(
        text.contains(&format!("Serving at http://127.0.0.1:{port},")),
        "{text}"
    );
    let url = |path: &str| format!("http://127.0.0.1:{port}{path}");
    let get = |path: &str| {
        world
            .host("curl")
            .args(["-sS", "-w", "%{http_code}"])
            .arg(url(path))
            .run()
    };
    assert_eq!(get("/ready").success().out(), "204");
    let numbers = get("/metrics").success().out();
    assert!(numbers.contains("\natoll_sandboxes 0\n"), "{numbers}");
    running.signal(Signal::TERM);
    let _ = running.wait().success();
}

#[test]
fn a_revoked_key_is_refused_at_once() {
    let world = World::new("a_revoked_key_is_refused_at_once");
    let server = Server::start(&world);
    let (_, _) = server.make(&world);
    let keys = world
        .atoll(["serve", "keys", "list", "--json"])
        .run()
        .success()
        .json();
    assert!(!keys.to_string().contains(&server.key), "{keys}");
    let id = keys[0]["id"].as_str().unwrap();
    let _ = world.atoll(["serve", "keys", "revoke", id]).run().success();
    let (status, told) = server.ask(&world, "GET", "/v2/sandboxes", "");
    assert_eq!(status, 401, "{told}");
    let _ = world
        .atoll(["serve", "keys", "revoke", id])
        .run()
        .expect_status(125);
    let _ = server.end();
}

/// A real OpenID provider: its tokens are taken, and go on to be once it is gone.
#[test]
fn a_person_with_a_token_of_an_issuer_calls() {
    let world = World::new("a_person_with_a_token_of_an_issuer_calls");
    let modules = cache().map(|cache| cache.join("npm/node_modules"));
    let Some(modules) = modules.filter(|npm| npm.join("oidc-provider").is_dir()) else {
        let why = "oidc-provider of npm is not in ATOLL_TEST_CACHE";
        world.skip(why, Avoidable::Yes);
        return;
    };
    let provider = world.host("node").arg(checks("provider.mjs"));
    let provider = provider.env("NODE_MODULES", modules).within(LONG).start();
    let told = provider.until_stdout("\n");
    let issuer = told.trim().strip_prefix("issuer ").unwrap().to_owned();
    let toml = format!(
        "[[issuer]]\nurl = {issuer:?}\naudience = \"atoll\"\ntenant_claim = \"org\"\n\
         roles_claim = \"groups\"\n[issuer.roles]\n\
         \"atoll-admins\" = \"administrator\"\n\"developers\" = \"user\"\n"
    );
    world.write(world.config().join("atoll/serve.toml"), toml);
    let create = ["serve", "keys", "create", "--name", "own"];
    let create = world.atoll(create).args(["--tenant", "team-a"]);
    let key = create.args(["--role", "administrator"]).run().success();
    let serve = world.atoll(["serve", "--listen", "127.0.0.1:0"]);
    let server = Server::of(serve.within(LONG).start(), Some(key.out().trim()));
    let person = world.host("python3").arg(checks("person.py"));
    let person = person.env("URL", &server.url).env("KEY", &server.key);
    all_passed(&person.env("ISSUER", &issuer).within(LONG).run());
    // Without its issuer a token is good for as long as the keys are known.
    provider.signal(Signal::KILL);
    let _ = provider.wait();
    let token = fs::read_to_string(world.path("token")).unwrap();
    let curl = |token: &str| {
        let curl = world.host("curl").args(["-sS", "-w", "\n%{http_code}"]);
        let curl = curl.args(["-H", &format!("Authorization: Bearer {token}")]);
        let told = curl.arg(format!("{}/v1/sandboxes", server.url)).run();
        told.success().out()
    };
    assert!(curl(&token).ends_with("\n200"), "{}", curl(&token));
    assert!(curl(&token[..token.len() - 4]).ends_with("\n401"));
    let _ = server.end();
    // Who begins without an issuer's keys is told why.
    let serve = world.atoll(["serve", "--listen", "127.0.0.1:0"]);
    let server = Server::of(serve.within(LONG).start(), Some(key.out().trim()));
    let curl = world.host("curl").args(["-sS", "-w", "\n%{http_code}"]);
    let curl = curl.args(["-H", &format!("X-API-Key: {token}")]);
    let told = curl.arg(format!("{}/v1/sandboxes", server.url)).run();
    let told = told.success().out();
    assert!(
        told.ends_with("\n503") && told.contains("cannot be asked"),
        "{told}"
    );
    assert!(server.listed(&world).is_empty());
    let _ = server.end();
    verify_ledger(&world);
}

#[test]
fn scopes_narrow_what_a_key_may() {
    let world = World::new("scopes_narrow_what_a_key_may");
    let server = Server::start(&world);
    let scopes = world.host("python3").arg(checks("scopes.py"));
    let scopes = scopes.env("URL", &server.url).env("KEY", &server.key);
    all_passed(&scopes.within(LONG).run());
    let create = ["serve", "keys", "create", "--name", "narrow", "--json"];
    let create = world.atoll(create).args(["--scope", "exec"]);
    let made = create.args(["--scope", "read"]).run().success().json();
    assert_eq!(made["scopes"], json!(["read", "exec"]), "{made}");
    let key = made["key"].as_str().unwrap().to_owned();
    let narrow = Server { key, ..server };
    assert!(narrow.listed(&world).is_empty());
    let (status, told) = narrow.ask(&world, "POST", "/v2/sandboxes", "{}");
    assert_eq!(status, 403, "{told}");
    let listed = world.atoll(["serve", "keys", "list"]).run().success();
    assert!(
        listed.out().contains("default  narrow for read, exec\n"),
        "{listed}"
    );
    let wrong = world.atoll(["serve", "keys", "create", "--name", "x", "--scope", "all"]);
    let wrong = wrong.run().expect_status(125);
    let _ = wrong.is_clear_error(["no scope \"all\"", "read, create, exec, files, ports"]);
    let _ = narrow.end();
}

/// With a name the server speaks TLS, under an authority that can sign for that name alone.
#[test]
fn a_server_with_a_name_speaks_tls() {
    let world = World::new("a_server_with_a_name_speaks_tls");
    let toml = "[tls]\ndomain = 'atoll.localhost'\n";
    world.write(world.config().join("atoll/serve.toml"), toml);
    let server = Server::start(&world);
    let port = server.url.rsplit(':').next().unwrap().to_owned();
    // By the address: few programs resolve such a name.
    assert_eq!(server.url, format!("https://127.0.0.1:{port}"));
    assert_eq!(server.domain(), format!("atoll.localhost:{port}"));
    let by_name = format!("https://atoll.localhost:{port}");
    let named = server.told.split("SSL_CERT_FILE=").nth(1).unwrap();
    let authority = named.split_whitespace().next().unwrap().to_owned();
    let curl = |arguments: &[&str]| {
        let curl = world.host("curl").args(["-sS", "--cacert"]).arg(&authority);
        curl.args(arguments).run()
    };
    let key = format!("X-API-Key: {}", server.key);
    let made = curl(&["-H", &key, "-d", "{}", &format!("{by_name}/v2/sandboxes")]);
    let made = made.success().json();
    let id = made["sandboxID"].as_str().unwrap().to_owned();
    let run = "{\"command\": [\"bash\", \"-c\", \"mkdir w; cd w; echo page > index.html; \
        python3 -m http.server 8000 >/dev/null 2>&1 & \
        until (exec 3<>/dev/tcp/127.0.0.1/8000) 2>/dev/null; do sleep 0.1; done\"]}";
    let at = format!("{}/v1/sandboxes/{id}/run", server.url);
    let ran = curl(&["-H", &key, "-d", run, &at]).success().json();
    assert_eq!(ran["exit"], 0, "{ran}");
    for version in ["--http1.1", "--http2"] {
        let at = format!("https://8000-{id}.atoll.localhost:{port}/index.html");
        let told = curl(&[version, "-w", "%{http_version}", &at]).success();
        let expected = if version == "--http2" {
            "page\n2"
        } else {
            "page\n1.1"
        };
        assert_eq!(told.out(), expected);
    }
    // A form whose content is there before its head is read.
    let big = world.top().join("big");
    fs::write(&big, vec![b'x'; 8 << 20]).unwrap();
    let form = format!("file=@{};filename=big", big.display());
    let token = format!(
        "X-Access-Token: {}",
        made["envdAccessToken"].as_str().unwrap()
    );
    let at = format!("https://49983-{id}.atoll.localhost:{port}/files");
    for version in ["--http1.1", "--http2"] {
        let sent = curl(&[version, "-f", "-H", &token, "-F", &form, &at]).success();
        assert_eq!(sent.json()[0]["path"], "/home/user/big", "{sent}");
    }
    let build = [
        "-H",
        &key,
        "-d",
        "{\"name\": \"mine\"}",
        &format!("{by_name}/v3/templates"),
    ];
    let template = curl(&build).success().json();
    let template = template["templateID"].as_str().unwrap();
    let at = format!("{by_name}/templates/{template}/files/0123");
    for version in ["--http1.1", "--http2"] {
        let link = curl(&[version, "-H", &key, &at]).success().json();
        let url = link["url"].as_str().unwrap();
        assert!(url.starts_with(&format!("{by_name}/")), "{version}: {url}");
    }
    let listed = world.atoll(["sandbox", "list", "--json"]);
    let listed = listed
        .env("ATOLL_URL", &server.url)
        .env("ATOLL_API_KEY", &server.key);
    let trusting = listed.clone().env("SSL_CERT_FILE", &authority).run();
    assert!(trusting.success().out().contains(&id));
    let _ = listed
        .run()
        .expect_status(125)
        .is_clear_error(["certificate"]);
    // By its address too, and by no other name.
    let at = format!("https://127.0.0.1:{port}/health");
    let _ = curl(&[&at]).success();
    let other = curl(&[
        "--connect-to",
        "::127.0.0.1:",
        &format!("https://other.example:{port}/"),
    ]);
    assert_eq!(other.code(), 60, "{other}");
    let strange = world.host("curl").args(["-sS", &server.url]).run();
    assert_eq!(strange.code(), 60, "{strange}");
    let _ = server.end();
    // Beyond the loopback that is enough; without it, it is not.
    world.write(
        world.config().join("atoll/serve.toml"),
        format!("listen = '0.0.0.0:3000'\n{toml}"),
    );
    let right = world.atoll(["serve", "--check"]).run().success();
    let told = "right: https://0.0.0.0:3000, network closed\n";
    assert!(right.out().starts_with(told), "{right}");
}

/// The process that launchers are forked from is the worker's child of their name.
#[test]
fn spawner_that_is_killed_is_started_again() {
    let world = World::new("spawner_that_is_killed_is_started_again");
    let server = Server::start(&world);
    let (before, _) = server.make(&world);
    for signal in [Signal::KILL, Signal::STOP] {
        let all = descendants_of(server.running.pid());
        let name = |pid| status_field(pid, "Name");
        let is_launcher = |pid: u32| name(pid).is_some_and(|name| name == "atoll-jail");
        let is_spawner = |pid: u32| {
            let parent = status_field(pid, "PPid").and_then(|pid| pid.parse().ok());
            is_launcher(pid) && !parent.is_some_and(is_launcher)
        };
        let all = all.iter().map(|one| one.pid);
        // All before one is ended: its launchers have another parent then.
        let spawners: Vec<u32> = all.filter(|pid| is_spawner(*pid)).collect();
        spawners.into_iter().for_each(|pid| kill(pid, signal));
        assert_eq!(server.ask(&world, "GET", "/ready", "").0, 204);
        let (after, _) = server.make(&world);
        assert!(server.listed(&world).contains(&after));
    }
    // What it had made goes on.
    assert!(server.listed(&world).contains(&before));
}

/// A server that is to end makes no sandbox any more, and goes on until those that live are gone.
#[test]
fn a_server_that_drains_goes_on_until_its_sandboxes_are_gone() {
    let world = World::new("a_server_that_drains_goes_on_until_its_sandboxes_are_gone");
    let toml = "drain_s = 600\n";
    world.write(world.config().join("atoll/serve.toml"), toml);
    let server = Server::start(&world);
    let (id, _) = server.make(&world);
    assert_eq!(server.ask(&world, "GET", "/ready", "").0, 204);
    server.running.signal(Signal::TERM);
    wait_until("it is not ready", SOON, || {
        (server.ask(&world, "GET", "/ready", "").0 == 503).then_some(())
    });
    let (status, told) = server.ask(&world, "POST", "/v2/sandboxes", "{}");
    assert_eq!(status, 503, "{told}");
    assert_eq!(server.listed(&world), std::slice::from_ref(&id));
    let (status, _) = server.ask(&world, "DELETE", &format!("/sandboxes/{id}"), "");
    assert_eq!(status, 204);
    let _ = server.running.wait().success();
    // A second signal waits for nothing.
    let keys = world.atoll(["serve", "keys", "create", "--name", "next"]);
    let key = keys.run().success().out();
    let serve = world
        .atoll(["serve", "--listen", "127.0.0.1:0"])
        .within(LONG);
    let next = Server::of(serve.start(), Some(key.trim()));
    let _ = next.make(&world);
    next.running.signal(Signal::TERM);
    wait_until("it is not ready", SOON, || {
        (next.ask(&world, "GET", "/ready", "").0 == 503).then_some(())
    });
    next.running.signal(Signal::TERM);
    let _ = next.running.wait().success();
}

#[test]
fn a_backup_of_the_store_can_be_restored() {
    let world = World::new("a_backup_of_the_store_can_be_restored");
    let server = Server::start(&world);
    let file = world.path("store.sqlite");
    let backup = || world.atoll(["serve", "backup"]).arg(&file).run();
    let _ = backup().success();
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let _ = backup()
        .expect_status(125)
        .is_clear_error(["store.sqlite", "exists"]);
    let keys = world.atoll(["serve", "keys", "create", "--name", "later"]);
    let later = keys.run().success().out();
    let listed = |key: &str| {
        let curl = world
            .host("curl")
            .args(["-sS", "-o", "/dev/null", "-w", "%{http_code}"]);
        let curl = curl.args(["-H", &format!("X-API-Key: {}", key.trim())]);
        curl.arg(format!("{}/v2/sandboxes", server.url))
            .run()
            .success()
            .out()
    };
    assert_eq!(listed(&later), "200");
    // Of a server that runs: what was made since is gone.
    let _ = world.atoll(["serve", "restore"]).arg(&file).run().success();
    assert_eq!((&*listed(&later), &*listed(&server.key)), ("401", "200"));
    world.write("other", "no database");
    let other = world
        .atoll(["serve", "restore"])
        .arg(world.path("other"))
        .run();
    let _ = other
        .expect_status(125)
        .is_clear_error(["other", "is not restored"]);
    assert_eq!(listed(&server.key), "200");
    // A damaged one is none: nothing is changed by it.
    let mut damaged = fs::read(&file).unwrap();
    let half = damaged.len() / 2;
    damaged[4096..].iter_mut().for_each(|byte| *byte = 0xff);
    assert!(half > 4096);
    world.write("damaged", damaged);
    let damaged = world.atoll(["serve", "restore"]).arg(world.path("damaged"));
    let _ = damaged.run().expect_status(125);
    assert_eq!(listed(&server.key), "200");
    let _ = server.end();
}

/// A caller's trace is in the ledger, the log and the answer; a log has no query.
#[test]
fn a_trace_goes_through_everything() {
    let world = World::new("a_trace_goes_through_everything");
    let server = Server::start(&world);
    let id = "4bf92f3577b34da6a3ce929d0e0e4736";
    let curl = |path: &str, body: &str| {
        let curl = world
            .host("curl")
            .args(["-sS", "-D", "/dev/stderr", "-d", body]);
        let curl = curl.args(["-H", &format!("X-API-Key: {}", server.key)]);
        let curl = curl.args(["-H", &format!("traceparent: 00-{id}-00f067aa0ba902b7-01")]);
        curl.arg(format!("{}{path}", server.url)).run().success()
    };
    let made = curl("/v1/sandboxes?secret=word", "{}");
    assert!(
        made.err().contains(&format!("atoll-trace-id: {id}")),
        "{made}"
    );
    let sandbox = made.json()["sandbox"]["id"].as_str().unwrap().to_owned();
    let _ = curl(
        &format!("/v1/sandboxes/{sandbox}/run"),
        "{\"command\": [\"true\"]}",
    );
    let of = |kind: &str| {
        let all = events(&world);
        let event = all.iter().find(|event| event["type"] == kind).cloned();
        event.unwrap_or_else(|| panic!("{all:?}"))["body"]["served"].clone()
    };
    assert_eq!(of("run.opened")["trace"], id);
    assert_eq!(of("exec.opened"), json!({ "caller": "first", "trace": id }));
    let key = server.key.clone();
    let ended = server.end();
    let log = ended.err();
    let lines = log.lines().filter(|line| line.contains(id));
    let lines: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let targets: Vec<&Value> = lines.iter().map(|line| &line["target"]).collect();
    assert_eq!(
        targets,
        ["/v1/sandboxes", &*format!("/v1/sandboxes/{sandbox}/run")]
    );
    assert!(!log.contains("secret=word") && !log.contains(&key), "{log}");
}

/// Under each word sandboxes reach that and no more; a call waits for an approver.
#[test]
fn served_networks_reach_what_their_word_says() {
    let world = World::new("served_networks_reach_what_their_word_says");
    if !is_possible(&world, &[]) {
        return;
    }
    let command = format!("python3 '{}'", checks("network.py").display());
    let run = on_internet(&world, &command).env("CONFIG", world.config());
    all_passed_of(&run.within(LONG).run(), 5);
    verify_ledger(&world);
}

/// Policies decide by tenant, caller and notes: whether a sandbox is made, what is executed in it
/// and what it reaches.
#[test]
fn policies_see_who_calls_and_for_whom() {
    let world = World::new("policies_see_who_calls_and_for_whom");
    if !is_possible(&world, &[]) {
        return;
    }
    let script = checks("policies.py");
    let check = "who_calls_and_for_whom_is_known";
    let command = format!("python3 '{}' {check}", script.display());
    let run = on_internet(&world, &command).env("CONFIG", world.config());
    all_passed_of(&run.within(LONG).run(), 1);
    verify_ledger(&world);
}

/// Requests that policies ask about wait for an approver.
#[test]
fn sandboxes_and_execs_wait_for_an_approver() {
    let world = World::new("sandboxes_and_execs_wait_for_an_approver");
    let script = world.host("python3").arg(checks("policies.py"));
    let script = script.arg("sandboxes_and_execs_wait_for_an_approver");
    let script = script.env("CONFIG", world.config());
    all_passed_of(&script.within(LONG).run(), 1);
    verify_ledger(&world);
}

/// A template is built with packages of PyPI, and its interpreter driven by E2B's own SDK.
#[test]
fn the_sdk_of_the_code_interpreter_works_unmodified() {
    let world = World::new("the_sdk_of_the_code_interpreter_works_unmodified");
    let package = "e2b-code-interpreter";
    let Some(site) = python_site(&world, package) else {
        return;
    };
    let build = |packages: &[&str]| {
        let hosts = ["pypi.org", "files.pythonhosted.org"];
        let reached: Option<Vec<_>> = hosts.iter().map(|host| further(&world, host)).collect();
        let mut build = world.atoll(["template", "build", "code-interpreter-v1"]);
        for address in reached?.concat() {
            build = build.args(["--allow", &address]);
        }
        Some(build.args(packages).within(LONG).run())
    };
    let built = build(&["pandas", "matplotlib"]);
    let has_packages = built.is_some();
    match built {
        Some(built) => assert!(built.success().out().ends_with("code-interpreter-v1/1\n")),
        None => world.skip("PyPI is not reached", Avoidable::Yes),
    }
    if let Some(none) = build(&["no-such-package-zzz"]) {
        let _ = none
            .expect_status(125)
            .is_clear_error(["pip could not install"]);
    }
    let odd = world.atoll(["template", "build", "other"]).run();
    let _ = odd
        .expect_status(125)
        .is_clear_error(["no template \"other\"", "code-interpreter-v1"]);
    let server = Server::start(&world);
    let script = checks("interpreter_client.py");
    let mut python = world.host(site.join("bin/python")).arg(script);
    if has_packages {
        python = python.env("HAS_PACKAGES", "1");
    }
    all_passed_of(&server.client(python), 12);
    let _ = server.end();
}

/// Files outlive their sandbox where they are to, and nothing else does.
#[test]
fn pauses_snapshots_and_forks_keep_files() {
    let world = World::new("pauses_snapshots_and_forks_keep_files");
    let python = world.host("python3").arg(checks("kept.py"));
    let run = python.env("CONFIG", world.config()).within(LONG).run();
    all_passed_of(&run, 17);
    verify_ledger(&world);
}

/// Memory outlives a pause where there is room, and never what holds a program.
#[test]
fn pauses_keep_memory_where_there_is_room() {
    let world = World::new("pauses_keep_memory_where_there_is_room");
    let python = world.host("python3").arg(checks("asleep.py"));
    let run = python.env("CONFIG", world.config()).within(LONG).run();
    all_passed_of(&run, 11);
    verify_ledger(&world);
}

/// Servers are killed at any moment of a pause, a resume, a fork, a snapshot and a roll back.
#[test]
fn servers_killed_at_any_moment_lose_nothing_slow() {
    let world = World::new("servers_killed_at_any_moment_lose_nothing_slow");
    let python = world.host("python3").arg(checks("kills.py"));
    let run = python.env("CONFIG", world.config()).within(LONG).run();
    all_passed_of(&run, 9);
    verify_ledger(&world);
}

/// Templates are built by E2B's own SDK: of steps, and of images of registries, also hostile ones.
#[test]
fn templates_are_built_of_steps_and_images() {
    let world = World::new("templates_are_built_of_steps_and_images");
    let programs = ["docker-registry", "umoci", "skopeo", "busybox", "openssl"];
    let Some(site) = python_site(&world, "e2b").filter(|_| is_possible(&world, &programs)) else {
        return;
    };
    let python = site.join("bin/python");
    let command = format!(
        "'{}' '{}'",
        python.display(),
        checks("templates.py").display()
    );
    let servers = fs::read_to_string(checks("registry.py")).unwrap();
    let names = ["git.example", "unknown.example"];
    let run = on_servers(&world, &servers, &names, &command).env("CONFIG", world.config());
    all_passed_of(&run.within(LONG).run(), 14);
    verify_ledger(&world);
}

/// Programs make namespaces of their own where the server lets them, and nowhere else.
#[test]
fn nesting_is_what_the_server_grants() {
    let script = "unshare --user --map-root-user --mount mount -t tmpfs none /tmp && echo nested";
    for (toml, expected) in [("", ""), ("nesting = true\n", "nested\n")] {
        let world = World::new("nesting_is_what_the_server_grants");
        world.write("serve.toml", toml);
        let server = Server::with(&world, &["--config", "serve.toml"]);
        let (id, _) = server.make(&world);
        let body = json!({ "command": ["sh", "-c", script] }).to_string();
        let (status, ran) = server.ask(&world, "POST", &format!("/v1/sandboxes/{id}/run"), &body);
        assert_eq!(
            (status, &ran["stdout"]),
            (200, &json!(expected)),
            "{toml} {ran}"
        );
        let _ = server.end();
    }
}

/// Events of sandboxes reach a receiver, signed, once or more often, and no other place.
#[test]
fn webhooks_are_told_and_signed() {
    let world = World::new("webhooks_are_told_and_signed");
    let python = world.host("python3").arg(checks("webhooks.py"));
    let run = python.env("CONFIG", world.config()).within(LONG).run();
    all_passed_of(&run, 5);
    verify_ledger(&world);
}

/// A create takes a sandbox that was made ahead where policies give the caller the same rights, and
/// nobody gets what another had.
#[test]
fn sandboxes_made_ahead_are_given_as_policies_say() {
    let world = World::new("sandboxes_made_ahead_are_given_as_policies_say");
    let package = "e2b-code-interpreter";
    let Some(site) = python_site(&world, package) else {
        return;
    };
    let python = world.host(site.join("bin/python")).arg(checks("warm.py"));
    let python = python
        .env("CONFIG", world.config())
        .env("STATE", world.state());
    all_passed_of(&python.within(LONG).run(), 9);
    verify_ledger(&world);
}

/// Interpreters share a file with what they have loaded, and nothing else.
#[test]
fn interpreters_go_on_from_a_file() {
    let world = World::new("interpreters_go_on_from_a_file");
    let package = "e2b-code-interpreter";
    let Some(site) = python_site(&world, package) else {
        return;
    };
    let python = world.host(site.join("bin/python")).arg(checks("frozen.py"));
    let python = python
        .env("CONFIG", world.config())
        .env("STATE", world.state());
    all_passed_of(&python.within(LONG).run(), 5);
    verify_ledger(&world);
}
