//! The controls of the attack: each of its ways gets a key, or brings it out, where the attacker is
//! not sandboxed.

use std::fs;
use std::process::{Command, Stdio};

use e2e::internet::{MODELS, is_possible, on_servers};
use e2e::{Avoidable, World, can_be_ordinary_root, is_root};

use super::{ANTHROPIC, GOOGLE, MODEL, OPENAI, Provider, verdicts};

const UNHELD: &str = include_str!("unheld.py");
/// Mounts empty directories for temporary files, in which only the test's directory is visible.
/// Arguments: that directory, then the command.
const APART: &str = "set -e; top=$1; shift; mount --rbind \"$top\" /mnt; \
     for place in /tmp /var/tmp /dev/shm; do mount -t tmpfs none $place; done; \
     mkdir -p \"$top\"; mount --rbind /mnt \"$top\"; cd \"$PWD\"; exec \"$@\"";

/// The place where it shows that a way has got the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// In the output of the way itself.
    Printed,
    /// In one of the requests that a recorder at a server has got, after a line with its
    /// address, its port and the name that TLS asked for.
    Recorded,
    /// In the queries to the name server, in lower case.
    Asked,
    /// In datagrams sent by UDP.
    Datagrams,
    /// In the first bytes of a connection that speaks no protocol known here.
    First,
    /// In the model's records.
    Model,
}

use Seen::{Asked, Datagrams, First, Model, Printed, Recorded};

/// Each way, and its traces: all of these texts at once, where `{key}` is the key, `{shown}` the
/// header that carries it, `{host}` the model and `{variable}` the variable.
const WAYS: &[(&str, Seen, &[&str])] = &[
    (
        "environments of all processes",
        Printed,
        &["{variable}={key}"],
    ),
    ("arguments of all processes", Printed, &["--key={key}"]),
    ("memory of all processes", Printed, &["by-memory: {key}"]),
    ("keyrings", Printed, &["kept {key}"]),
    (
        "files of the home, of the system and of temporary directories",
        Printed,
        &[
            "{\"home\": \"{key}\"}",
            "/tmp {key}",
            "/var/tmp {key}",
            "/dev/shm {key}",
        ],
    ),
    (
        "what Atoll keeps",
        Printed,
        &["config/atoll {key}", "state/atoll {key}"],
    ),
    ("open files of all processes", Printed, &["opened {key}"]),
    (
        "its header for another host",
        Recorded,
        &[
            "AT 93.184.216.34 443 example.com",
            "GET /header ",
            "\n{shown}\n",
        ],
    ),
    (
        "the same without TLS",
        Recorded,
        &["AT 93.184.216.34 80 -", "GET /plain ", "\n{shown}\n"],
    ),
    (
        "a host that is not allowed",
        Recorded,
        &[
            "AT 93.184.216.35 443 other.example",
            "GET /header ",
            "\n{shown}\n",
        ],
    ),
    (
        "basic authentication",
        Recorded,
        &["GET /basic ", "\nAuthorization: Basic {basic}\n"],
    ),
    ("a query", Recorded, &["GET /query?key={key} "]),
    (
        "a query with escapes",
        Recorded,
        &["GET /query?key={escaped} "],
    ),
    ("a path", Recorded, &["GET /{key} "]),
    (
        "a cookie",
        Recorded,
        &["GET /cookie ", "\nCookie: session={key}\n"],
    ),
    (
        "the name of a client",
        Recorded,
        &["GET /client ", "\nUser-Agent: {key}\n"],
    ),
    (
        "the name of a header",
        Recorded,
        &["GET /name ", "\n{key}: 1\n"],
    ),
    ("the question for a name", Asked, &["\n{key}.example.com\n"]),
    (
        "the question for a name, of another tool",
        Asked,
        &["\n{key}.tool.example.com\n"],
    ),
    ("a body", Recorded, &["POST /body ", "\n\nkey={key}\n"]),
    (
        "a body in base64",
        Recorded,
        &["POST /base64 ", "\n\n{base64}\n"],
    ),
    (
        "a body in hexadecimal digits",
        Recorded,
        &["POST /digits ", "\n\n{digits}\n"],
    ),
    (
        "a file in several parts",
        Recorded,
        &[
            "POST /parts ",
            "name=\"file\"; filename=\"inside-key\"",
            "\n\n{key}\n",
        ],
    ),
    (
        "a repository of git",
        Recorded,
        &["GET /a.git/info/refs", "\nAuthorization: Basic {basic}\n"],
    ),
    (
        "a WebSocket",
        Recorded,
        &["GET /socket ", "\nUpgrade: websocket\n", "\n{shown}\n"],
    ),
    (
        "a WebSocket of the model, as a subprotocol",
        Model,
        &["SUBPROTOCOL openai-insecure-api-key.{key}\n"],
    ),
    (
        "a redirect",
        Recorded,
        &[
            "AT 93.184.216.34 443 example.com",
            "GET /redirected ",
            "\n{shown}\n",
        ],
    ),
    ("an answer that repeats it", Printed, &["X-Echo: ", "{key}"]),
    (
        "the name of the model at another address",
        Recorded,
        &[
            "AT 93.184.216.34 443 {host}",
            "GET /v1/elsewhere ",
            "\n{shown}\n",
        ],
    ),
    (
        "the name of the model in Host",
        Recorded,
        &[
            "AT 93.184.216.34 443 example.com",
            "GET /v1/host ",
            "\nHost: {host}\n",
            "\n{shown}\n",
        ],
    ),
    (
        "the model without TLS",
        Recorded,
        &["AT 93.184.216.37 80 -", "GET /v1/plain ", "\n{shown}\n"],
    ),
    (
        "the model at another port",
        Recorded,
        &[
            "AT 93.184.216.37 8443 {host}",
            "GET /v1/port ",
            "\n{shown}\n",
        ],
    ),
    (
        "the authentication of a proxy",
        Recorded,
        &[
            "AT 93.184.216.38 3128 -",
            "CONNECT example.com:443 ",
            "\nProxy-Authorization: Bearer {key}\n",
        ],
    ),
    (
        "a datagram",
        Datagrams,
        &["53 b'{key}'\n", "443 b'{key}'\n"],
    ),
    ("bytes of no protocol", First, &["b'{key}'\n"]),
];

/// Returns the names of the ways of the attack, sorted.
pub(super) fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = WAYS.iter().map(|(name, ..)| *name).collect();
    names.sort_unstable();
    names
}

/// Returns the variables in the texts of the table, with their values.
fn meanings(world: &World, provider: &Provider) -> Vec<(&'static str, String)> {
    let key = provider.key;
    let base64 = |text: &str| {
        let encoded = world.host("base64").args(["-w", "0"]).stdin(text);
        encoded.run().success().out()
    };
    let digits = |text: &str| -> String { text.bytes().map(|one| format!("{one:02x}")).collect() };
    vec![
        ("{base64}", base64(key)),
        ("{basic}", base64(&format!("key:{key}"))),
        ("{digits}", digits(key)),
        ("{escaped}", format!("%{}{}", digits(&key[..1]), &key[1..])),
        (
            "{shown}",
            format!("{}: {}{key}", provider.field, provider.words),
        ),
        ("{variable}", provider.variable.to_owned()),
        ("{host}", provider.host.to_owned()),
        ("{key}", key.to_owned()),
    ]
}

/// The result of the attack beside programs that have the key.
struct Unheld {
    told: std::collections::BTreeMap<String, String>,
    noted: Box<dyn Fn(&str) -> String>,
}

impl Unheld {
    /// Returns whether all these texts show for a way, in one place.
    fn is_seen(&self, way: &str, seen: Seen, texts: &[String]) -> bool {
        let places: Vec<String> = match seen {
            Printed => self.told.get(way).into_iter().cloned().collect(),
            Recorded => {
                let whole = self.noted_as("recorded");
                let parts = whole.split("\nAT ").map(|one| format!("AT {one}\n"));
                parts.collect()
            }
            Asked => vec![self.noted_as("asked")],
            Datagrams => vec![self.noted_as("datagrams")],
            First => vec![self.noted_as("first")],
            Model => vec![self.noted_as("requests")],
        };
        let has_all = |place: &String| texts.iter().all(|text| place.contains(text.as_str()));
        places.iter().any(has_all)
    }

    /// With a line's end before it, so that the first line is found as the others are.
    fn noted_as(&self, name: &str) -> String {
        format!("\n{}", (self.noted)(name))
    }
}

/// Returns whether PID namespaces with their own `/proc` can be made, and programs here keep keys
/// in the kernel.
fn is_possible_unheld(world: &World) -> bool {
    if !is_root() && !can_be_ordinary_root() {
        world.skip("no namespaces for an ordinary user", Avoidable::No);
        return false;
    }
    let mut tried = Command::new("unshare");
    if !is_root() {
        tried.args(["--user", "--map-root-user"]);
    }
    tried.args(["--pid", "--fork", "--mount", "--mount-proc", "true"]);
    let tried = tried.stderr(Stdio::null()).status();
    let is_possible = tried.is_ok_and(|status| status.success());
    if !is_possible {
        world.skip("no /proc of its own can be mounted here", Avoidable::No);
    }
    is_possible
}

fn unheld(world: &World, provider: &Provider) -> Unheld {
    world.write("attack.sh", provider.attack(world));
    let real = world.top().join("real");
    world.write(&real, provider.key);
    let unheld = world.top().join("unheld.py");
    world.write(&unheld, UNHELD);
    let apart = "unshare --pid --fork --mount --mount-proc --propagation private sh -c \"$APART\" sh \"$TOP\" \"$@\"";
    let run = on_servers(world, MODEL, MODELS, &format!("sh -c '{apart}' sh \"$@\""));
    let run = run
        .env("COMMANDS", "[]")
        .env("APART", APART)
        .env("TOP", world.top())
        .within(super::LONG);
    let run = run.args(["sh", "python3"]).arg(&unheld).arg(&real);
    let run = run.arg(provider.variable);
    let kept = [world.config().join("atoll"), world.state().join("atoll")];
    let outcome = run.args(kept).run().success();
    let log = String::from_utf8_lossy(&fs::read(world.path("attack.log")).unwrap()).into_owned();
    let ways = world.read("attack.out");
    assert!(ways.ends_with("ATTACK OVER\n"), "{outcome}\n{ways}\n{log}");
    let internet = world.top().join("internet");
    Unheld {
        told: verdicts(&ways, &log),
        noted: Box::new(move |name| {
            let bytes = fs::read(internet.join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).replace("\r\n", "\n")
        }),
    }
}

/// Checks that each way of the attack gets the key from an agent of this provider.
fn each_way_gets_the_key(world: &World, provider: &Provider) {
    if !is_possible(world, &["openssl", "git", "getent"]) || !is_possible_unheld(world) {
        return;
    }
    let unheld = unheld(world, provider);
    let tried: Vec<&str> = unheld.told.keys().map(String::as_str).collect();
    assert_eq!(tried, names());
    let meanings = meanings(world, provider);
    let mut missed = Vec::new();
    for (way, seen, texts) in WAYS {
        let texts = texts.iter().map(|text| {
            let text = meanings
                .iter()
                .fold((*text).to_owned(), |text, (word, meaning)| {
                    text.replace(word, meaning)
                });
            match seen {
                Asked => text.to_ascii_lowercase(),
                _ => text,
            }
        });
        let texts: Vec<String> = texts.collect();
        if !unheld.is_seen(way, *seen, &texts) {
            // What it printed is not repeated: it may have found more than was meant for it.
            missed.push(format!("{way}: {seen:?} {texts:?}"));
        }
    }
    assert!(
        missed.is_empty(),
        "{missed:#?}\nRECORDED\n{}",
        unheld.noted_as("recorded")
    );
}

#[test]
fn every_way_of_the_attack_gets_a_key_where_nothing_holds_it() {
    let world = World::new("every_way_of_the_attack_gets_a_key_where_nothing_holds_it");
    each_way_gets_the_key(&world, &OPENAI);
}

#[test]
fn every_way_of_the_attack_gets_a_key_of_anthropic_where_nothing_holds_it() {
    let world =
        World::new("every_way_of_the_attack_gets_a_key_of_anthropic_where_nothing_holds_it");
    each_way_gets_the_key(&world, &ANTHROPIC);
}

#[test]
fn every_way_of_the_attack_gets_a_key_of_google_where_nothing_holds_it() {
    let world = World::new("every_way_of_the_attack_gets_a_key_of_google_where_nothing_holds_it");
    each_way_gets_the_key(&world, &GOOGLE);
}
