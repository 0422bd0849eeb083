//! Packs of tools: signed by their maker, shown, and never more than what was shown.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use e2e::World;

const ABOUT: &str = "name = \"words\"\nversion = \"1.2\"\ndescription = \"Counts words.\"\n";
const TOOLS: &str = r#"
[tool.count]
description = "Counts the words of a file."
kind = "command"
command = ["wc", "-w", "--", "{path}"]
effect = "read"
profile = "own"
arguments.required = ["path"]
[tool.count.arguments.properties.path]
type = "string"
"#;
const PROFILE: &str = "[limits]\nprocesses = 20\n";

/// A maker of packs with a pack, and a person who may install it.
struct Maker {
    world: World,
    pack: PathBuf,
    key: String,
}

impl Maker {
    fn new(name: &str) -> Self {
        let world = World::new(name);
        let keys = world.top().join("keys");
        let _ = world
            .host("mkdir")
            .args(["-m", "700"])
            .arg(&keys)
            .run()
            .success();
        let pack = world.top().join("words");
        fs::create_dir(&pack).unwrap();
        fs::write(pack.join("pack.toml"), ABOUT).unwrap();
        fs::write(pack.join("tools.toml"), TOOLS).unwrap();
        fs::write(pack.join("own.profile.toml"), PROFILE).unwrap();
        let _ = world
            .host("chown")
            .args(["-R", "--reference"])
            .arg(world.top())
            .arg(&pack)
            .run();
        let own = Self {
            key: String::new(),
            world,
            pack,
        };
        let key = own.make_key("maker");
        Self { key, ..own }
    }

    fn key_file(&self, name: &str) -> PathBuf {
        self.world.top().join("keys").join(name)
    }

    fn make_key(&self, name: &str) -> String {
        let made = self.world.atoll(["policy", "organisation", "key"]);
        let made = made
            .arg(self.key_file(name))
            .args(["--name", "acme.example"]);
        made.run().success().out().trim().to_owned()
    }

    fn sign_by(&self, key: &str) {
        let run = self.world.atoll(["tools", "sign"]).arg(&self.pack);
        let signed = run.arg("--key").arg(self.key_file(key)).run().success();
        assert!(signed.out().starts_with("acme.example+"), "{signed}");
    }

    /// Installs it, with these words besides; returns the outcome.
    fn install(&self, words: &[&str]) -> e2e::Outcome {
        let run = self.world.atoll(["tools", "install"]).arg(&self.pack);
        run.args(words).run()
    }

    fn installed(&self) -> PathBuf {
        self.world.config().join("atoll/packs/words")
    }

    fn count(&self) -> e2e::Outcome {
        self.world
            .atoll(["tools", "call", "count", "path=note"])
            .run()
    }
}

#[test]
fn a_pack_is_installed_as_it_was_signed_and_counts_for_as_long_as_it_is_that() {
    let maker =
        Maker::new("a_pack_is_installed_as_it_was_signed_and_counts_for_as_long_as_it_is_that");
    let world = &maker.world;
    world.write("note", "one two three\n");
    maker.sign_by("maker");
    let nobody = maker.install(&["--yes"]).expect_status(125);
    nobody.is_clear_error(["whose signature counts", "--signer KEY"]);
    let unasked = maker.install(&["--signer", &maker.key]).expect_status(126);
    unasked.is_clear_error(["words is not installed", "at a terminal"]);
    let _ = maker.count().expect_status(125);
    let _ = maker.install(&["--signer", &maker.key, "--yes"]).success();
    assert_eq!(maker.count().success().out(), "3 note\n");
    let shown = world.atoll(["tools", "show", "count"]).run().success();
    assert!(shown.out().contains("words/own.profile.toml"), "{shown}");
    let _ = world.atoll(["tools", "check"]).run().success();
    // A later one of the same maker needs no key, an earlier one is none.
    fs::copy(maker.pack.join("pack.sig"), world.top().join("first.sig")).unwrap();
    let first = fs::read(maker.pack.join("tools.toml")).unwrap();
    fs::write(maker.pack.join("tools.toml"), TOOLS.replace("-w", "-l")).unwrap();
    maker.sign_by("maker");
    let _ = maker.install(&["--yes"]).success();
    assert_eq!(maker.count().success().out(), "1 note\n");
    fs::write(maker.pack.join("tools.toml"), first).unwrap();
    fs::copy(world.top().join("first.sig"), maker.pack.join("pack.sig")).unwrap();
    let earlier = maker.install(&["--yes"]).expect_status(125);
    earlier.is_clear_error(["it is number 1, and 2 was here"]);
    // What is changed, added or put in place of it afterwards takes its tools away.
    let tools = maker.installed().join("tools.toml");
    let good = fs::read(&tools).unwrap();
    for (change, why) in [
        ("changed", "tools.toml is not as it was signed"),
        ("added", "was not signed"),
        ("signed anew", "not the one that was approved"),
    ] {
        match change {
            "changed" => fs::write(&tools, TOOLS.replace("wc", "ls")).unwrap(),
            "added" => fs::write(maker.installed().join("more.profile.toml"), PROFILE).unwrap(),
            _ => {
                for name in ["tools.toml", "pack.sig"] {
                    let from = maker.pack.join(name);
                    fs::copy(from, maker.installed().join(name)).unwrap();
                }
            }
        }
        let gone = maker.count().expect_status(125);
        gone.is_clear_error(["there is no tool count"]);
        let checked = world.atoll(["tools", "check"]).run();
        assert!(checked.out().contains(why), "{change}: {checked}");
        let _ = fs::remove_file(maker.installed().join("more.profile.toml"));
        fs::write(&tools, &good).unwrap();
    }
    fs::write(maker.pack.join("tools.toml"), &good).unwrap();
    maker.sign_by("maker");
    maker.sign_by("maker");
    let _ = maker.install(&["--yes"]).success();
    let _ = maker.count().success();
    let _ = world.atoll(["tools", "uninstall", "words"]).run().success();
    let _ = maker.count().expect_status(125);
    let _ = world
        .atoll(["tools", "uninstall", "../atoll"])
        .run()
        .expect_status(125);
}

#[test]
fn a_pack_that_is_not_its_makers_or_asks_for_more_is_not_installed() {
    let maker = Maker::new("a_pack_that_is_not_its_makers_or_asks_for_more_is_not_installed");
    let world = &maker.world;
    let other = maker.make_key("other");
    let key = ["--signer", &*maker.key, "--yes"];
    let refused = |why: &str| {
        let refused = maker.install(&key).expect_status(125);
        refused.is_clear_error([why]);
        assert!(!maker.installed().exists(), "{why}");
    };
    refused("it is not signed");
    maker.sign_by("maker");
    fs::write(
        maker.pack.join("own.profile.toml"),
        "[network]\nallow = [\"*\"]\n",
    )
    .unwrap();
    refused("own.profile.toml is not as it was signed");
    fs::write(maker.pack.join("own.profile.toml"), PROFILE).unwrap();
    symlink("/etc/passwd", maker.pack.join("link")).unwrap();
    refused("\"link\" is no file that a pack has");
    fs::remove_file(maker.pack.join("link")).unwrap();
    let _ = maker
        .install(&["--signer", &other, "--yes"])
        .expect_status(125);
    // Signed, and more than a pack may say.
    let sign = |tools: &str| {
        fs::write(maker.pack.join("tools.toml"), tools).unwrap();
        maker.sign_by("maker");
    };
    sign(&TOOLS.replace("\"own\"", "\"theirs\""));
    world.profile("theirs", "[network]\nallow = [\"*\"]\n");
    refused("the pack has no theirs.profile.toml");
    sign(&TOOLS.replace("profile = \"own\"\n", ""));
    refused("one of the pack's own is missing");
    let extends = "extends = [\"theirs\"]\n";
    fs::write(maker.pack.join("own.profile.toml"), extends).unwrap();
    sign(TOOLS);
    refused("a profile of a pack extends no other");
    fs::write(maker.pack.join("own.profile.toml"), PROFILE).unwrap();
    sign(&format!("[session]\ncalls = 9\n{TOOLS}"));
    refused("limits its own tools alone");
    let document = "[upstream.pets]\nprofile = \"own\"\nurl = \"https://example.com\"\nopenapi = \"/etc/hosts\"\n";
    sign(document);
    refused("the pack has no such file");
    // A name that is taken would take away both.
    sign(TOOLS);
    let own = TOOLS.replace("profile = \"own\"\n", "");
    world.write(world.config().join("atoll/tools.toml"), &own);
    refused("there is another tool count");
    world.write("note", "one two three\n");
    let _ = maker.count().success();
    world.write(world.config().join("atoll/tools.toml"), "");
    // The other key is no maker's of it, later either.
    let archive = world.top().join("words.tar.gz");
    let made = world.host("tar").arg("-C").arg(world.top());
    let _ = made.arg("-czf").arg(&archive).arg("words").run().success();
    let install = |words: &[&str]| {
        world
            .atoll(["tools", "install"])
            .arg(&archive)
            .args(words)
            .run()
    };
    let _ = install(&["--signer", &other, "--yes"]).expect_status(125);
    let _ = install(&key).success();
    assert_eq!(maker.count().success().out(), "3 note\n");
    fs::remove_file(maker.pack.join("pack.sig")).unwrap();
    maker.sign_by("other");
    let _ = maker.install(&["--yes"]).expect_status(125);
    // An archive that holds something else is none.
    for (words, why) in [
        (["-s", "/etc/passwd", "bad"], "is no file of a pack"),
        (["", "", ""], "it has no pack.toml"),
    ] {
        let bad = world.top().join("bad");
        let _ = world.host("rm").arg("-rf").arg(&bad).run();
        fs::create_dir(&bad).unwrap();
        if !words[0].is_empty() {
            symlink(words[1], bad.join("pack.toml")).unwrap();
        }
        let made = world.host("tar").arg("-C").arg(world.top());
        let _ = made.arg("-cf").arg(&archive).arg("bad").run().success();
        let refused = install(&key).expect_status(125);
        refused.is_clear_error([why]);
    }
}
