//! A real browser in a sandbox: it visits a server inside and a page outside, trusts the right
//! authorities, and shows why a page is refused.

use std::fs;
use std::path::Path;
use std::time::Duration;

use e2e::internet::{Seen, events, is_possible, on_servers};
use e2e::{World, is_root};

const LONG: Duration = Duration::from_secs(300);
const SERVERS: &str = include_str!("browser/servers.py");
const COLOUR: &str = include_str!("browser/colour.py");
/// The programs that browsers need and that are not installed by default.
const PROGRAMS: &[&str] = &["chromium", "certutil", "openssl"];

/// Chromium refuses to be root, whatever that is worth.
fn front() -> &'static str {
    match is_root() {
        true => "unshare --user --map-user=1000 --map-group=1000",
        false => "",
    }
}

/// Returns a block of the page, by its beginning.
fn of_page(kind: &str) -> String {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo or xtask sets it");
    let page = Path::new(&package).join("../../docs/browser.md");
    let text = fs::read_to_string(page).unwrap();
    let begin = format!("```{kind}\n");
    let block = text.split(&begin).nth(1).expect("it has such a block");
    block.split("```").next().expect("it ends").to_owned()
}

#[test]
fn the_page_on_browsers_works_slow() {
    let world = World::new("the_page_on_browsers_works_slow");
    if !is_possible(&world, PROGRAMS) {
        return;
    }
    world.write(
        "page.html",
        "<p id=x></p><script>x.textContent = 'rendered ' + 6 * 7</script>",
    );
    let command = of_page("console");
    let command = command.trim().strip_prefix("$ ").expect("a command");
    let command = command.replace("-- chromium", &format!("-- {} chromium", front()));
    let script = format!("PATH=$(dirname \"$ATOLL\"):$PATH; {command}");
    let shown = world.host_shell(&script).within(LONG).run().success();
    assert!(shown.out().contains("rendered 42"), "{shown}");
    // An agent with a browser is a profile of both.
    world.profile("mine", &of_page("toml"));
    let told = world.atoll(["profile", "show", "mine"]).run().success();
    assert!(told.out().contains("nesting = true"), "{told}");
}

/// Runs a script in a sandbox by the profile, with one page allowed, where `shot NAME URL` makes a
/// picture and prints its colour, and `text URL` prints a page's text.
fn browse(world: &World, options: &[&str], script: &str) -> Seen {
    world.write("colour.py", COLOUR);
    world.write(
        "site/index.html",
        "<body style='margin:0;background:#14aa3c'>inside</body>",
    );
    let front = front();
    let browser =
        format!("{front} chromium --headless --no-first-run --disable-background-networking");
    let script = format!(
        "shot() {{ {browser} --window-size=300,300 --screenshot=\"$PWD/$1.png\" \"$2\" >said 2>&1 || cat said; \
           python3 colour.py \"$1.png\"; }}\n\
         text() {{ {browser} --dump-dom \"$1\" 2>said || cat said; }}\n\
         python3 -m http.server --bind 127.0.0.1 -d site 3000 >/dev/null 2>&1 &\n\
         for one in $(seq 600); do curl -sS -o /dev/null http://127.0.0.1:3000/ 2>/dev/null && break; sleep 0.1; done\n\
         {script}\nkill $!"
    );
    let run = on_servers(
        world,
        SERVERS,
        &["example.com"],
        "\"$ATOLL\" run --keep --allow 'GET https://example.com/allowed/**' \"$@\"",
    );
    let run = run.within(LONG).arg("sh").args(options);
    Seen::of(world, run.args(["--", "sh", "-c", &script]).run())
}

#[test]
fn a_browser_sees_a_server_inside_and_the_page_that_is_allowed_slow() {
    let world = World::new("a_browser_sees_a_server_inside_and_the_page_that_is_allowed_slow");
    if !is_possible(&world, PROGRAMS) {
        return;
    }
    let script = format!(
        "shot before https://example.com/allowed/page\n{}\n\
         shot inside http://127.0.0.1:3000/\n\
         shot outside https://example.com/allowed/page\n\
         text https://example.com/denied/page\n\
         text https://other.example/",
        of_page("sh")
    );
    let seen = browse(&world, &["--profile", "browser"], &script);
    let colours: Vec<String> = seen
        .outcome
        .out()
        .lines()
        .filter_map(|line| line.strip_prefix("colour ").map(str::to_owned))
        .collect();
    // The control: a browser that trusts nobody else makes no picture of a page within TLS.
    assert_eq!(colours, ["none", "14aa3c", "0a64c8"], "{}", seen.outcome);
    let out = seen.outcome.out();
    assert!(
        out.contains("no rule allows it") && out.contains("how_to_ask"),
        "{}",
        seen.outcome
    );
    assert!(!out.contains("a page of the outside"), "{}", seen.outcome);
    let requests = fs::read_to_string(world.top().join("internet/requests")).unwrap();
    assert!(
        requests.lines().all(|path| path.starts_with("/allowed/")),
        "{requests}"
    );
    let refused = events(&world, "flow.refused");
    let is_refused = |host: &str, path: Option<&str>| {
        let is_it = |one: &&serde_json::Value| one["host"] == host && one["path"].as_str() == path;
        refused.iter().any(|one| is_it(&one))
    };
    assert!(
        is_refused("example.com", Some("/denied/page")),
        "{refused:?}"
    );
    assert!(is_refused("other.example", None), "{refused:?}");
    // What it made is a change of the run.
    let changed = world.atoll(["diff", "last", "--stat"]).run().success();
    assert!(changed.out().contains("outside.png"), "{changed}");
}

/// The browser works without namespaces of its own too, where its own sandbox is left out.
#[test]
fn a_browser_without_its_own_sandbox_needs_no_nesting_slow() {
    let world = World::new("a_browser_without_its_own_sandbox_needs_no_nesting_slow");
    if !is_possible(&world, PROGRAMS) {
        return;
    }
    world.write("colour.py", COLOUR);
    world.write(
        "page.html",
        "<body style='margin:0;background:#14aa3c'>inside</body>",
    );
    let script = |flag: &str| {
        format!(
            "chromium --headless --no-first-run {flag} --window-size=300,300 --screenshot=\"$PWD/page.png\" \
             \"file://$PWD/page.html\" >said 2>&1; python3 colour.py page.png"
        )
    };
    let run = |flag: &str| world.run(["--discard"], &script(flag)).within(LONG).run();
    assert!(run("--no-sandbox").out().contains("colour 14aa3c"));
    assert!(run("").out().contains("none"), "the control");
}
