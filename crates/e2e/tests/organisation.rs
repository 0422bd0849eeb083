//! The organisation's signed layer: nothing starts without the policies that its pinned key has
//! signed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use atoll_store::{Day, Manifest, OrganisationKey, Signed};
use e2e::{Avoidable, Outcome, World, can_be_ordinary_root, is_root, program_exists};

const VERIFIER: &str = include_str!("organisation/verify.py");
const BOUNDS: &str = "[require]\ndeny-publishing = true\n";
const NO_ECHO: &str = "@id(\"no-echo\") forbid(principal, action == Action::\"run\", resource in Program::\"echo\");\n";

/// An organisation's layer in a directory that anybody could have written.
struct Acme {
    directory: PathBuf,
    key: String,
}

fn key_file(world: &World, name: &str) -> String {
    world.top().join(name).display().to_string()
}

fn made_key(world: &World, file: &str, name: &str) -> String {
    let file = key_file(world, file);
    let arguments = ["policy", "organisation", "key", &file, "--name", name];
    world
        .atoll(arguments)
        .run()
        .success()
        .out()
        .trim()
        .to_owned()
}

fn organisation(world: &World, arguments: &[&str]) -> Outcome {
    let all = ["policy", "organisation"].iter().chain(arguments);
    world.atoll(all).run()
}

fn sign(world: &World, acme: &Acme, options: &[&str]) -> Outcome {
    let (directory, key) = (
        acme.directory.display().to_string(),
        key_file(world, "acme.key"),
    );
    organisation(
        world,
        &[&["sign", &directory, "--key", &key], options].concat(),
    )
}

/// Returns a layer that is named, signed and pinned.
fn acme(world: &World) -> Acme {
    let acme = Acme {
        directory: world.top().join("acme"),
        key: made_key(world, "acme.key", "acme.example"),
    };
    world.write(acme.directory.join("organisation.toml"), BOUNDS);
    world.write(acme.directory.join("own.cedar"), NO_ECHO);
    let named = format!("organisation = {{ directory = {:?} }}\n", acme.directory);
    world.write(world.config().join("atoll/config.toml"), named);
    sign(world, &acme, &[])
        .success()
        .says(["number 1", "2 files"]);
    let _ = organisation(world, &["trust", &acme.key]).success();
    acme
}

/// Signs the layer of [`acme()`] as it began, with a day that nobody can sign any more.
fn sign_over(world: &World, acme: &Acme, serial: u64, day: &str) {
    let files = [
        ("organisation.toml", BOUNDS.as_bytes()),
        ("own.cedar", NO_ECHO.as_bytes()),
    ];
    let list = Manifest::of(
        Signed::Layer,
        "acme.example",
        serial,
        Day::parse(day),
        files,
    )
    .unwrap();
    let key = OrganisationKey::read(&world.top().join("acme.key")).unwrap();
    world.write(
        acme.directory.join("organisation.sig"),
        list.sign(&[key]).unwrap(),
    );
}

fn started(world: &World, command: &[&str]) -> Outcome {
    world.atoll(["run", "--discard", "--"]).args(command).run()
}

/// Checks that nothing starts, and that the error names the reason and a remedy.
fn stopped(world: &World, words: &[&str]) {
    let stopped = started(world, &["sh", "-c", "echo it started"]).expect_status(125);
    assert!(!stopped.out().contains("it started"), "{stopped}");
    stopped.is_clear_error(words.iter().copied());
}

#[test]
fn nothing_starts_but_with_what_was_signed() {
    let world = World::new("nothing_starts_but_with_what_was_signed");
    let acme = acme(&world);
    let place = |name: &str| acme.directory.join(name);
    let fine = || {
        let _ = started(&world, &["true"]).success();
    };
    fine();
    started(&world, &["echo", "hello"])
        .expect_status(126)
        .says(["no-echo", "own.cedar:1"]);
    let published = world.atoll(["run", "--discard", "--publish", "8080", "--", "true"]);
    published
        .run()
        .expect_status(126)
        .says(["organisation.toml"]);

    let altered = NO_ECHO.replace("no-echo", "no-ech0");
    world.write(place("own.cedar"), altered);
    stopped(&world, &["own.cedar is not as it was signed"]);
    world.write(place("own.cedar"), NO_ECHO);
    fine();

    world.write(
        place("more.cedar"),
        "permit(principal, action, resource);\n",
    );
    stopped(&world, &["more.cedar is there and was not signed"]);
    fs::rename(place("more.cedar"), place("more.txt")).unwrap();
    fine();

    fs::rename(place("own.cedar"), place("other.cedar")).unwrap();
    stopped(&world, &["other.cedar is there and was not signed"]);
    fs::remove_file(place("other.cedar")).unwrap();
    stopped(&world, &["own.cedar was signed and is not there"]);
    world.write(place("own.cedar"), NO_ECHO);
    fs::remove_file(place("organisation.toml")).unwrap();
    stopped(&world, &["organisation.toml was signed and is not there"]);
    world.write(place("organisation.toml"), BOUNDS);
    fine();

    // A link counts by what it leads to, which is read once.
    world.write(world.top().join("elsewhere"), NO_ECHO);
    fs::remove_file(place("own.cedar")).unwrap();
    symlink(world.top().join("elsewhere"), place("own.cedar")).unwrap();
    fine();
    world.write(world.top().join("elsewhere"), "");
    stopped(&world, &["own.cedar is not as it was signed"]);
    fs::remove_file(world.top().join("elsewhere")).unwrap();
    stopped(&world, &["own.cedar cannot be read", "link"]);
    fs::remove_file(place("own.cedar")).unwrap();
    fs::create_dir(place("own.cedar")).unwrap();
    stopped(&world, &["own.cedar cannot be read"]);
    fs::remove_dir(place("own.cedar")).unwrap();
    world.write(place("own.cedar"), NO_ECHO);
    // Who can write there does not matter: what is there does.
    fs::set_permissions(&acme.directory, fs::Permissions::from_mode(0o777)).unwrap();
    fine();

    let signature = world.read(place("organisation.sig"));
    for (text, why) in [
        (
            signature.replacen("serial 1", "serial 2", 1),
            "does not hold",
        ),
        (
            signature.replacen("acme.example", "acme.exampl3", 1),
            "does not hold",
        ),
        (
            signature[..signature.len() - 9].to_owned(),
            "no signed list",
        ),
        (String::new(), "no signed list"),
        ("x".repeat(100_000), "no signed list"),
    ] {
        world.write(place("organisation.sig"), text);
        stopped(&world, &["organisation.sig", why]);
    }
    fs::remove_file(place("organisation.sig")).unwrap();
    stopped(&world, &["organisation.sig", "has to be signed"]);
    world.write(place("organisation.sig"), &signature);
    fine();
    fs::rename(&acme.directory, world.top().join("gone")).unwrap();
    stopped(&world, &["organisation.sig"]);
    fs::rename(world.top().join("gone"), &acme.directory).unwrap();
    fine();
}

#[test]
fn what_was_put_back_or_is_over_stops_every_run() {
    let world = World::new("what_was_put_back_or_is_over_stops_every_run");
    let acme = acme(&world);
    let place = |name: &str| acme.directory.join(name);
    let _ = started(&world, &["true"]).success();
    let first = world.read(place("organisation.sig"));
    sign(&world, &acme, &[]).success().says(["number 2"]);
    let _ = started(&world, &["true"]).success();
    world.write(place("organisation.sig"), &first);
    stopped(&world, &["number 1", "number 2", "put back"]);
    // Nor is it, once the layer is the first one as a whole.
    let _ = sign(&world, &acme, &["--serial", "2"]).success();
    stopped_or_fine(&world, true);
    sign(&world, &acme, &["--serial", "2"])
        .expect_status(125)
        .says(["greater than 2"]);
    // Another list under the same number.
    world.write(place("organisation.sig"), &first);
    world.write(place("own.cedar"), "");
    let _ = sign(&world, &acme, &["--serial", "2"]).success();
    stopped(&world, &["number 2", "another list"]);
    world.write(place("own.cedar"), NO_ECHO);
    let _ = sign(&world, &acme, &["--serial", "7", "--until", "9999-12-31"]).success();
    stopped_or_fine(&world, true);
    sign(&world, &acme, &["--until", "2020-02-29"])
        .expect_status(125)
        .is_clear_error(["--until 2020-02-29 is over"]);
    stopped_or_fine(&world, true);
    sign(&world, &acme, &["--until", "9999-12-30"])
        .success()
        .says(["number 8, until 9999-12-30"]);
    sign_over(&world, &acme, 9, "2020-02-29");
    stopped(&world, &["until 2020-02-29"]);
    let verified = organisation(&world, &["verify"]).expect_status(125);
    verified.is_clear_error(["until 2020-02-29"]);
    // What stops everything is told all the same.
    let status = organisation(&world, &["status"]).expect_status(125);
    assert!(status.out().contains("number 9"), "{status}");
    let status = organisation(&world, &["status", "--json"]).expect_status(125);
    assert_eq!(status.json()["signed"][0]["serial"], 9);
    assert_eq!(status.json()["pins"][0]["key"], acme.key.as_str());
    for wrong in ["2020-02-30", "tomorrow", "2027-6-1"] {
        sign(&world, &acme, &["--until", wrong])
            .expect_status(125)
            .says(["no day"]);
    }
    // What is remembered is gone: nothing is known of before, and it counts again.
    world.write(place("organisation.sig"), &first);
    stopped(&world, &["put back"]);
    fs::remove_dir_all(world.state().join("atoll/organisation")).unwrap();
    stopped_or_fine(&world, true);
}

fn stopped_or_fine(world: &World, is_fine: bool) {
    let ended = started(world, &["true"]);
    assert_eq!(ended.code() == 0, is_fine, "{ended}");
}

#[test]
fn who_has_signed_is_named_wherever_it_counts() {
    let world = World::new("who_has_signed_is_named_wherever_it_counts");
    let acme = acme(&world);
    let id = acme.key.split('+').nth(1).unwrap();
    let signed = format!("signed by acme.example, number 1 (key {id})");
    let _ = started(&world, &["true"]).success();
    let shown = world.atoll(["policy", "show"]).run().success();
    assert!(shown.out().contains(&signed), "{shown}");
    world
        .atoll(["policy", "check"])
        .run()
        .success()
        .says([&*signed]);
    let why = world.atoll(["why", "last"]).run().success();
    assert!(why.out().contains("acme.example, number 1"), "{why}");
    let why = world
        .atoll(["why", "last", "--json"])
        .run()
        .success()
        .json();
    let recorded = &why["decision"]["organisation"];
    assert_eq!(recorded["name"], "acme.example");
    assert_eq!(recorded["serial"], 1);
    assert_eq!(recorded["key"], id);
    let status = organisation(&world, &["status", "--json"]).success().json();
    assert_eq!(status["signed"][0]["key"], acme.key.as_str());
    assert_eq!(status["signed"][0]["serial"], 1);
    assert_eq!(
        status["files"],
        serde_json::json!(["organisation.toml", "own.cedar"])
    );
    let status = organisation(&world, &["status"]).success();
    assert!(
        status.out().contains("by acme.example, number 1"),
        "{status}"
    );
    assert_eq!(
        organisation(&world, &["verify", "--json"]).success().json()["signed"][0]["serial"],
        1
    );
    let _ = world.atoll(["ledger", "verify"]).run().success();
    // Without a pin nobody asks, and nothing says so.
    let other = World::new("who_has_signed_is_named_wherever_it_counts");
    let _ = started(&other, &["echo", "hello"]).success();
    let why = other
        .atoll(["why", "last", "--json"])
        .run()
        .success()
        .json();
    assert!(why["decision"].get("organisation").is_none(), "{why}");
    let _ = organisation(&other, &["status"]).success();
}

#[test]
fn a_pin_is_changed_only_when_that_is_said() {
    let world = World::new("a_pin_is_changed_only_when_that_is_said");
    let acme = acme(&world);
    let pin = world.config().join("atoll/organisation.pub");
    assert_eq!(world.read(&pin), format!("{}\n", acme.key));
    let _ = organisation(&world, &["trust", &acme.key]).success();
    let other = made_key(&world, "other.key", "acme.example");
    organisation(&world, &["trust", &other])
        .expect_status(125)
        .says(["--replace"]);
    stopped_or_fine(&world, true);
    let _ = organisation(&world, &["trust", &other, "--replace"]).success();
    stopped(&world, &["is not signed by acme.example"]);
    for wrong in ["", "acme.example", "acme.example+00000000+AAAA", "a b"] {
        let _ = organisation(&world, &["trust", wrong, "--replace"]).expect_status(125);
    }
    // Signed by both it counts for who has either.
    let both = key_file(&world, "other.key");
    let _ = sign(&world, &acme, &["--key", &both]).success();
    stopped_or_fine(&world, true);
    let _ = organisation(&world, &["trust", &acme.key, "--replace"]).success();
    stopped_or_fine(&world, true);
    // A pin that others can exchange is none.
    for (path, mode, back) in [
        (pin.clone(), 0o622, 0o600),
        (world.config().join("atoll"), 0o777, 0o755),
    ] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        stopped(&world, &["others can write to"]);
        fs::set_permissions(&path, fs::Permissions::from_mode(back)).unwrap();
        stopped_or_fine(&world, true);
    }
    let elsewhere = world.top().join("elsewhere.pub");
    fs::rename(&pin, &elsewhere).unwrap();
    symlink(&elsewhere, &pin).unwrap();
    stopped(&world, &["is a link"]);
    fs::remove_file(&pin).unwrap();
    fs::rename(&elsewhere, &pin).unwrap();
    stopped_or_fine(&world, true);
    world.write(&pin, "nonsense\n");
    stopped(&world, &["holds no key"]);
    // Without a pin what is named counts for nothing.
    fs::remove_file(&pin).unwrap();
    stopped(&world, &["no key is pinned", "trust"]);
    world.write(
        world.config().join("atoll/config.toml"),
        "organisation = { directory = \"acme\" }\n",
    );
    stopped(&world, &["config.toml:1", "absolute"]);
    world.write(
        world.config().join("atoll/config.toml"),
        "organisation = {}\n",
    );
    stopped(&world, &["config.toml:1", "directory"]);
    fs::remove_file(world.config().join("atoll/config.toml")).unwrap();
    let _ = started(&world, &["echo", "hello"]).success();
}

#[test]
fn who_pins_a_key_before_its_layer_is_there_is_told() {
    let world = World::new("who_pins_a_key_before_its_layer_is_there_is_told");
    let key = made_key(&world, "acme.key", "acme.example");
    let file = world.top().join("acme.pub");
    world.write(&file, format!("{key}\n"));
    // A file is no key.
    let file = file.display().to_string();
    organisation(&world, &["trust", &file])
        .expect_status(125)
        .is_clear_error(["$(cat "]);
    if Path::new("/etc/atoll").exists() {
        world.skip("this machine has a layer of its own", Avoidable::No);
        return;
    }
    let elsewhere = "organisation = { directory = ";
    let trusted = organisation(&world, &["trust", &key]).success();
    trusted.says(["nothing starts at all", elsewhere]);
    stopped(&world, &[elsewhere, "your own pin"]);
    let status = organisation(&world, &["status"]).expect_status(125);
    let out = status.out();
    assert!(out.contains(&key) && out.contains("/etc/atoll"), "{status}");
    let status = organisation(&world, &["status", "--json"]).expect_status(125);
    assert_eq!(status.json()["pins"][0]["key"], key.as_str());
    assert!(status.json()["refused"].is_string(), "{status}");
    // What is said to be done helps.
    fs::remove_file(world.config().join("atoll/organisation.pub")).unwrap();
    let _ = started(&world, &["true"]).success();
}

#[test]
fn a_run_reaches_neither_the_pin_nor_what_was_seen() {
    let world = World::new("a_run_reaches_neither_the_pin_nor_what_was_seen");
    let acme = acme(&world);
    let _ = started(&world, &["true"]).success();
    let pin = world.config().join("atoll/organisation.pub");
    let seen = world.state().join("atoll/organisation");
    let name = fs::read_dir(&seen).unwrap().flatten().map(|one| one.path());
    let seen = name
        .into_iter()
        .find(|path| !path.ends_with("lock"))
        .unwrap();
    let (pinned, remembered) = (world.read(&pin), world.read(&seen));
    for path in [&pin, &seen] {
        let script = format!(
            "cat {0}; echo x > {0}; rm -f {0}; mv {0} {0}.x",
            path.display()
        );
        let ended = world.run(["--live"], &script).run();
        assert!(!ended.out().contains("acme.example"), "{ended}");
    }
    assert_eq!((world.read(&pin), world.read(&seen)), (pinned, remembered));
    // Nor is it shown, whoever asks.
    for shown in [world.config().join("atoll"), pin.clone()] {
        let asked = world
            .atoll(["run", "--discard", "--ro"])
            .arg(&shown)
            .args(["--", "true"]);
        assert_ne!(asked.run().code(), 0, "{}", shown.display());
    }
    // Where a link leads to one that is kept in a workspace, a person looks at it first.
    let script = "mkdir -p .config/atoll; echo x > .config/atoll/organisation.pub; echo x > plain";
    let kept = world.run(["--apply"], script).run();
    kept.says(["not applied without --control", "organisation.pub"]);
    assert!(world.exists("plain") && !world.exists(".config/atoll/organisation.pub"));
    // A layer within reach of a run is no longer what was signed once it was changed.
    let within = world.path("acme");
    fs::rename(&acme.directory, &within).unwrap();
    let named = format!("organisation = {{ directory = {within:?} }}\n");
    world.write(world.config().join("atoll/config.toml"), named);
    let _ = world.run(["--live"], "true").run().success();
    let _ = world.run(["--live"], "rm acme/own.cedar").run();
    // A run is kept from files of policies; who is outside is not.
    if within.join("own.cedar").exists() {
        fs::remove_file(within.join("own.cedar")).unwrap();
    }
    stopped(&world, &["own.cedar was signed and is not there"]);
}

#[test]
fn keys_and_layers_with_mistakes_are_not_signed() {
    let world = World::new("keys_and_layers_with_mistakes_are_not_signed");
    let acme = acme(&world);
    let file = key_file(&world, "acme.key");
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let shown = organisation(&world, &["key", &file]).success();
    assert_eq!(shown.out().trim(), acme.key);
    let again = organisation(&world, &["key", &file, "--name", "acme.example"]);
    again
        .expect_status(125)
        .is_clear_error(["no key was made", "is there already"]);
    assert_eq!(
        organisation(&world, &["key", &file]).success().out().trim(),
        acme.key
    );
    let _ = organisation(&world, &["key", &key_file(&world, "none")]).expect_status(125);

    world.write(
        acme.directory.join("organisation.toml"),
        "[require]\nnothing = true\n",
    );
    sign(&world, &acme, &[])
        .expect_status(125)
        .says(["organisation.toml:2"]);
    world.write(acme.directory.join("organisation.toml"), BOUNDS);
    world.write(
        acme.directory.join("own.cedar"),
        "permit(principal, action, resource)\n",
    );
    sign(&world, &acme, &[])
        .expect_status(125)
        .says(["own.cedar:"]);
    world.write(acme.directory.join("own.cedar"), NO_ECHO);
    sign(&world, &acme, &[]).success().says(["number 2"]);
    // A number is not guessed where another key has signed before.
    let _ = made_key(&world, "other.key", "acme.example");
    let directory = acme.directory.display().to_string();
    let other = key_file(&world, "other.key");
    organisation(&world, &["sign", &directory, "--key", &other])
        .expect_status(125)
        .says(["its number is not known"]);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    sign(&world, &acme, &[])
        .expect_status(125)
        .says(["is not yours alone"]);
    let empty = world.top().join("empty");
    fs::create_dir(&empty).unwrap();
    let empty = empty.display().to_string();
    let _ = organisation(&world, &["sign", &empty, "--key", &other]).expect_status(125);
}

/// A layer's last day, and the day for which the second verifier is asked: one that no clock has
/// passed, for `sign` goes by the machine's.
const LAST_DAY: &str = "9999-12-31";

/// The verifier was written from the documents, with nothing of Atoll's.
#[test]
fn a_second_verifier_agrees() {
    let world = World::new("a_second_verifier_agrees");
    if !program_exists("python3") {
        world.skip("python3 is not installed", Avoidable::Yes);
        return;
    }
    let acme = acme(&world);
    let verifier = world.top().join("verify.py");
    world.write(&verifier, VERIFIER);
    let verify = |key: &str| {
        let called = world.host("python3").arg(&verifier).arg(&acme.directory);
        called.args([key, LAST_DAY]).run()
    };
    assert_eq!(
        verify(&acme.key).success().out(),
        "acme.example serial 1 2 files\n"
    );
    let other = made_key(&world, "other.key", "acme.example");
    assert_ne!(verify(&other).code(), 0);
    let both = key_file(&world, "other.key");
    let _ = sign(&world, &acme, &["--key", &both, "--until", LAST_DAY]).success();
    for key in [&acme.key, &other] {
        assert_eq!(
            verify(key).success().out(),
            "acme.example serial 2 2 files\n"
        );
    }
    // What the one refuses, the other does.
    let agree = |what: &str| {
        let arguments = [
            "verify",
            &acme.directory.display().to_string(),
            "--key",
            &acme.key,
        ];
        let ours = organisation(&world, &arguments);
        let theirs = verify(&acme.key);
        assert!(
            ours.code() != 0 && theirs.code() != 0,
            "{what}: {ours}\n{theirs}"
        );
    };
    let place = |name: &str| acme.directory.join(name);
    world.write(place("own.cedar"), format!("{NO_ECHO}\n"));
    agree("altered");
    world.write(place("own.cedar"), NO_ECHO);
    world.write(place("z.cedar"), "");
    agree("added");
    fs::remove_file(place("z.cedar")).unwrap();
    let note = world.read(place("organisation.sig"));
    world.write(
        place("organisation.sig"),
        note.replacen("serial 2", "serial 3", 1),
    );
    agree("another number");
    world.write(place("organisation.sig"), note);
    let _ = verify(&acme.key).success();
    sign_over(&world, &acme, 3, "2020-01-01");
    agree("over");
}

/// Runs a script as root of a mount namespace with another `/etc/atoll`.
fn on_machine(world: &World, script: &str) -> Option<Outcome> {
    if !is_root() && !can_be_ordinary_root() {
        world.skip("no user namespaces for ordinary users", Avoidable::Yes);
        return None;
    }
    let etc = world.top().join("etc");
    let prepare = format!(
        "set -e; mkdir {0}; cp -a /etc/. {0} 2>/dev/null || :; rm -rf {0}/atoll; mkdir -m 755 {0}/atoll; mount --bind {0} /etc\n",
        etc.display()
    );
    Some(world.mount_shell(&(prepare + script)).run())
}

#[test]
fn what_the_machine_pins_counts_for_everybody() {
    let world = World::new("what_the_machine_pins_counts_for_everybody");
    let script = r#"
fails() { wanted=$1; shift; if "$ATOLL" "$@" > out 2>&1; then echo "passed: $wanted"; exit 9; fi
  grep -q -- "$wanted" out || { echo "not said: $wanted"; cat out; exit 9; }; }
run="run --discard --"
key=$("$ATOLL" policy organisation key ../acme.key --name acme.example 2>/dev/null)
printf '@id("no-echo") forbid(principal, action == Action::"run", resource in Program::"echo");\n' > /etc/atoll/own.cedar
# As ever: what root has written counts.
"$ATOLL" $run true
fails no-echo $run echo hello
# Pinned, it has to be signed.
echo "$key" > /etc/atoll/organisation.pub
fails "has to be signed" $run true
"$ATOLL" policy organisation sign /etc/atoll --key ../acme.key
"$ATOLL" $run true
fails no-echo $run echo hello
"$ATOLL" policy organisation status | grep -q "number 1"
chmod 666 /etc/atoll/organisation.pub
fails "others can write to" $run true
chmod 644 /etc/atoll/organisation.pub
chmod 777 /etc/atoll
fails "others can write to" $run true
chmod 755 /etc/atoll
echo >> /etc/atoll/own.cedar
fails "own.cedar is not as it was signed" $run true
"$ATOLL" policy organisation sign /etc/atoll --key ../acme.key
"$ATOLL" $run true
# No directory of the user's stands in its place, nor beside it.
mkdir -p "$XDG_CONFIG_HOME/atoll" ../mine
printf 'permit(principal, action, resource);\n' > ../mine/own.cedar
mine=$("$ATOLL" policy organisation key ../mine.key --name mine 2>/dev/null)
"$ATOLL" policy organisation sign ../mine --key ../mine.key
echo "organisation = { directory = \"$(realpath ../mine)\" }" > "$XDG_CONFIG_HOME/atoll/config.toml"
"$ATOLL" policy organisation trust "$mine"
fails "there are two" $run true
rm /etc/atoll/organisation.pub
fails "there are two" $run true
rm "$XDG_CONFIG_HOME/atoll/config.toml"
# The user's own pin holds for the machine's layer too.
fails "is not signed by mine" $run true
"$ATOLL" policy organisation trust "$key" --replace
"$ATOLL" $run true
rm /etc/atoll/*
fails "has to be signed" $run true
echo all of it
"#;
    if let Some(ended) = on_machine(&world, script) {
        let ended = ended.success();
        assert!(ended.out().ends_with("all of it\n"), "{ended}");
    }
}

#[test]
fn what_is_proven_is_the_signed_layer() {
    let world = World::new("what_is_proven_is_the_signed_layer");
    let acme = acme(&world);
    // Whether the prover is there or not: it is asked about nothing that was not signed.
    let listed = world.atoll(["policy", "show"]).run().success();
    assert!(listed.out().contains("no-echo"), "{listed}");
    world.write(acme.directory.join("own.cedar"), "");
    for command in [
        &["policy", "prove"][..],
        &["policy", "show"],
        &["policy", "check"],
        &["policy", "ask", "run", "echo"],
        &["policy", "explain", "request", "example.com"],
        &["policy", "organisation", "status"],
        &["profile", "show", "default"],
    ] {
        let ended = world.atoll(command).run().expect_status(125);
        ended.says(["own.cedar is not as it was signed"]);
    }
    // Nor are changes taken over.
    world.write(acme.directory.join("own.cedar"), NO_ECHO);
    let _ = world.run(["--keep"], "echo x > made").run().success();
    world.write(acme.directory.join("own.cedar"), "");
    let _ = world.atoll(["apply", "last"]).run().expect_status(125);
    assert!(!world.exists("made"));
    world.write(acme.directory.join("own.cedar"), NO_ECHO);
    let _ = world.atoll(["apply", "last"]).run().success();
    assert!(world.exists(Path::new("made")));
}
