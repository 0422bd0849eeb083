//! The programs and packages that the tests need of the host, and their installation.

mod names;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use self::names::{NPM, PIP};
use super::dist::tools;
use super::{guest, mirror, solver};
use crate::command;
use crate::person;

/// A package of the system, and the sign that it is installed.
struct Package {
    name: &'static str,
    seen_by: Sign,
}

enum Sign {
    Program(&'static str),
    /// A program in one of the versioned directories of PostgreSQL.
    Postgres,
    /// The library of Clang, in one of its versioned directories.
    Clang,
    /// Modules that the system's own Python can import.
    PythonModules(&'static str),
}

/// The system's own Python: one from a home would be of no use in a sandbox.
pub(super) const PYTHON: &str = "/usr/bin/python3";

const PACKAGES: [Package; 33] = [
    program("bubblewrap", "bwrap"),
    program("runc", "runc"),
    program("podman", "podman"),
    program("crun", "crun"),
    program("chromium", "chromium"),
    program("libnss3-tools", "certutil"),
    program("hyperfine", "hyperfine"),
    program("uidmap", "newuidmap"),
    program("acl", "setfacl"),
    program("attr", "setfattr"),
    program("sqlite3", "sqlite3"),
    program("strace", "strace"),
    program("git", "git"),
    program("make", "make"),
    program("busybox-static", "busybox"),
    program("docker-registry", "docker-registry"),
    program("umoci", "umoci"),
    program("skopeo", "skopeo"),
    program("nodejs", "node"),
    program("npm", "npm"),
    program("qemu-system-x86", "qemu-system-x86_64"),
    program("mmdebstrap", "mmdebstrap"),
    program("e2fsprogs", "mke2fs"),
    program("openssl", "openssl"),
    program("golang-go", "go"),
    program("default-jdk-headless", "java"),
    program("gpgv", "gpgv"),
    program("openssh-server", "sshd"),
    program("dns2tcp", "dns2tcpd"),
    program("clamav-daemon", "clamd"),
    Package {
        name: "postgresql",
        seen_by: Sign::Postgres,
    },
    Package {
        name: "python3-psycopg2",
        seen_by: Sign::PythonModules("psycopg2"),
    },
    Package {
        name: "python3-venv",
        seen_by: Sign::PythonModules("venv, ensurepip"),
    },
];

/// The packages that the build itself needs: that of PostgreSQL's parser reads headers by Clang.
const BUILD: [Package; 1] = [Package {
    name: "libclang-dev",
    seen_by: Sign::Clang,
}];

/// Servers and other proxies, for `bench egress` alone.
const PEERS: [Package; 8] = [
    program("nginx-light", "nginx"),
    program("nghttp2-client", "h2load"),
    program("dnsmasq-base", "dnsmasq"),
    program("nftables", "nft"),
    program("openssl", "openssl"),
    program("socat", "socat"),
    program("mitmproxy", "mitmdump"),
    program("squid-openssl", "squid"),
];

/// The packages that `--nightly` needs besides: libFuzzer is C++.
const NIGHTLY_PACKAGES: [Package; 1] = [program("g++", "c++")];

/// Programs of crates.io, for `--nightly` alone, each in the cache.
const NIGHTLY_CARGO: [&str; 1] = ["cargo-fuzz@0.13.2"];

/// The test runner; any recent one that is installed will do.
const NEXTEST: &str = "cargo-nextest@0.9.143";

/// An environment of Python in the cache, made once for all tests, and what is installed in it.
struct Site {
    name: &'static str,
    packages: &'static [&'static str],
}

const SITES: [Site; 12] = [
    site("awscli", &["awscli", "boto3"]),
    site("e2b", &["e2b==2.63.0"]),
    site("e2b-code-interpreter", &["e2b-code-interpreter"]),
    site("e2b-desktop", &["e2b-desktop"]),
    site("langchain-e2b", &["langchain-e2b"]),
    site("openai-agents", &["openai-agents[e2b]"]),
    site(
        "in-toto-attestation",
        &["in-toto-attestation", "securesystemslib[crypto]"],
    ),
    site("mcp", &["mcp"]),
    site(
        "mcp-servers",
        &["mcp-server-fetch", "mcp-server-git", "mcp-server-time"],
    ),
    site("openapi-python-client", &["openapi-python-client"]),
    site(
        "opensandbox-code-interpreter",
        &["opensandbox-code-interpreter"],
    ),
    site(
        "jupyter_kernel_client",
        &["jupyter_kernel_client", "jupyter_server"],
    ),
];

const fn site(name: &'static str, packages: &'static [&'static str]) -> Site {
    Site { name, packages }
}

const fn program(name: &'static str, program: &'static str) -> Package {
    Package {
        name,
        seen_by: Sign::Program(program),
    }
}

/// Prints what is missing, installs it if that is allowed, and returns the project's own cache.
///
/// Guests, the solver and what packages need are for the nightly tier and for tests named by a filter
/// (`any`);
/// the tools of fuzzing are for `nightly` alone.
pub(crate) fn provide(install: bool, any: bool, nightly: bool) -> Result<PathBuf> {
    let cache = cache_directory()?;
    let (more, programs) = if nightly {
        (NIGHTLY_PACKAGES.as_slice(), NIGHTLY_CARGO.as_slice())
    } else {
        Default::default()
    };
    let missing: Vec<&str> = PACKAGES
        .iter()
        .chain(more)
        .filter(|package| !is_there(&package.seen_by))
        .map(|package| package.name)
        .collect();
    let npm: Vec<&str> = NPM
        .into_iter()
        .filter(|name| !npm_has(&cache, name))
        .collect();
    let pip: Vec<&str> = PIP
        .into_iter()
        .filter(|name| !pip_has(&cache, name))
        .collect();
    let sites: Vec<&str> = SITES
        .iter()
        .filter(|site| !site_marker(&cache, site.name, &pip).is_file())
        .map(|site| site.name)
        .collect();
    let mut cargo: Vec<&str> = programs
        .iter()
        .copied()
        .filter(|name| !cargo_has(&cache, name))
        .collect();
    if nextest(&cache).is_none() {
        cargo.push(NEXTEST);
    }
    let (guest, solver, tools) = match any {
        true => (
            guest::missing(&cache),
            solver::missing(&cache),
            tools::missing(&cache),
        ),
        false => Default::default(),
    };
    let mirror = mirror::missing(&cache);
    let lists = [
        ("apt", &missing),
        ("npm", &npm),
        ("pip", &pip),
        ("pip's files", &sites),
        ("cargo", &cargo),
        ("apt into the cache", &guest),
        ("pip into the cache", &solver),
        ("Debian into the cache", &mirror),
        ("several sources for packages", &tools),
    ];
    let verb = if install {
        "installing"
    } else {
        "would install (give --install)"
    };
    for (from, names) in lists.iter().filter(|(_, names)| !names.is_empty()) {
        println!("{verb} from {from}: {}", names.join(" "));
    }
    if install {
        install_all(&cache, &lists);
    }
    Ok(cache)
}

/// Installs what is named by each source. Tests that need what cannot be had skip, and say so; the
/// others still run.
fn install_all(cache: &Path, lists: &[(&str, &Vec<&str>)]) {
    for (from, names) in lists.iter().filter(|(_, names)| !names.is_empty()) {
        let installed = match *from {
            "apt" => without_services(|| install_apt(names)),
            "npm" => install_npm(cache, names),
            "pip's files" => install_sites(cache, names),
            "cargo" => install_cargo(cache, names),
            "apt into the cache" => guest::install(cache, names),
            "pip into the cache" => solver::install(cache),
            "Debian into the cache" => mirror::install(cache),
            "several sources for packages" => tools::install(cache, names),
            _ => install_pip(cache, names),
        };
        if let Err(error) = installed {
            println!("not installed from {from}: {error:#}");
        }
    }
}

/// Returns whether one of a directory's directories has this file.
fn below_one_of(directory: &str, file: &str) -> bool {
    let all = fs::read_dir(directory).into_iter().flatten().flatten();
    all.map(|one| one.path().join(file))
        .any(|file| file.is_file())
}

/// Prints which servers and proxies are missing, and installs them if that is allowed.
pub(crate) fn provide_peers(install: bool) -> Result<()> {
    provide_packages(&PEERS, install)
}

/// Prints what the build itself misses, and installs it if that is allowed.
pub(crate) fn provide_build(install: bool) -> Result<()> {
    provide_packages(&BUILD, install)
}

fn provide_packages(packages: &[Package], install: bool) -> Result<()> {
    let missing: Vec<&str> = packages
        .iter()
        .filter(|package| !is_there(&package.seen_by))
        .map(|package| package.name)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !install {
        println!(
            "would install (give --install) from apt: {}",
            missing.join(" ")
        );
        return Ok(());
    }
    println!("installing from apt: {}", missing.join(" "));
    without_services(|| install_apt(&missing))
}

/// The script that the distribution runs to ask whether a service may start.
const SERVICE_POLICY: &str = "/usr/sbin/policy-rc.d";
/// A policy that allows no service to start.
const NO_SERVICES: &str = "#!/bin/sh\nexit 101\n";

/// Installs packages without starting their services. A policy that exists already is the host's
/// own, and stays.
fn without_services(install: impl FnOnce() -> Result<()>) -> Result<()> {
    let policy = Path::new(SERVICE_POLICY);
    if policy.exists() {
        return install();
    }
    fs::write(policy, NO_SERVICES).with_context(|| format!("cannot write {SERVICE_POLICY}"))?;
    let installed = fs::set_permissions(policy, fs::Permissions::from_mode(0o755))
        .map_err(anyhow::Error::from)
        .and_then(|()| install());
    fs::remove_file(policy).with_context(|| format!("{SERVICE_POLICY} is left behind"))?;
    installed
}

/// Returns the path of a program of npm in the cache, if it exists.
pub(crate) fn npm_program(name: &str) -> Result<Option<PathBuf>> {
    let path = cache_directory()?.join("npm/node_modules/.bin").join(name);
    Ok(path.is_file().then_some(path))
}

/// Returns the path of a program of crates.io in the cache.
pub(crate) fn cargo_program(cache: &Path, name: &str) -> PathBuf {
    cache.join("cargo/bin").join(name)
}

/// Returns the path of cargo-nextest: the host's, or else that of the cache.
pub(crate) fn nextest(cache: &Path) -> Option<PathBuf> {
    let name = "cargo-nextest";
    let own = cargo_program(cache, name);
    command::find(name).or_else(|| own.is_file().then_some(own))
}

/// Returns the directory of the cache: below `/var` for root, because other users cannot enter
/// root's home.
pub(crate) fn cache_directory() -> Result<PathBuf> {
    let directory = if person::caller_id()? == 0 {
        PathBuf::from("/var/cache/atoll-test")
    } else {
        let home = std::env::var_os("HOME").context("HOME is not set")?;
        Path::new(&home).join(".cache/atoll-test")
    };
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755))?;
    Ok(directory)
}

fn is_there(sign: &Sign) -> bool {
    match sign {
        Sign::Program(name) => command::find(name).is_some(),
        Sign::Postgres => {
            below_one_of("/usr/lib/postgresql", "bin/initdb") || command::find("initdb").is_some()
        }
        Sign::Clang => {
            std::env::var_os("LIBCLANG_PATH").is_some()
                || below_one_of("/usr/lib", "lib/libclang.so")
        }
        Sign::PythonModules(names) => {
            let mut ask = Command::new(PYTHON);
            command::output(ask.args(["-c", &format!("import {names}")])).is_ok()
        }
    }
}

fn npm_has(cache: &Path, package: &str) -> bool {
    let name = package.rsplit_once('@').map_or(package, |(name, _)| name);
    cache.join("npm/node_modules").join(name).is_dir()
}

fn pip_has(cache: &Path, package: &str) -> bool {
    // A wheel's name has neither extras nor dashes (PEP 427).
    let (name, version) = package.split_once("==").unwrap_or((package, ""));
    let name = name.split('[').next().unwrap_or(name);
    let prefixes = [name, &name.replace('-', "_")].map(|name| format!("{name}-{version}"));
    let files = fs::read_dir(cache.join("pip/wheels"))
        .into_iter()
        .flatten()
        .flatten();
    files
        .into_iter()
        .map(|file| file.file_name().to_string_lossy().into_owned())
        .any(|file| prefixes.iter().any(|prefix| file.starts_with(prefix)))
}

/// Returns whether the cache has this version of a package, by the list that cargo keeps there.
fn cargo_has(cache: &Path, package: &str) -> bool {
    let (name, version) = package.rsplit_once('@').unwrap_or((package, ""));
    let list = fs::read_to_string(cache.join("cargo/.crates.toml")).unwrap_or_default();
    let listed = list.contains(&format!("\"{name} {version} ("));
    listed && cargo_program(cache, name).is_file()
}

fn install_apt(names: &[&str]) -> Result<()> {
    anyhow::ensure!(
        person::caller_id()? == 0,
        "needs root: apt-get install {}",
        names.join(" ")
    );
    let apt = || {
        let mut apt = Command::new("apt-get");
        apt.env("DEBIAN_FRONTEND", "noninteractive")
            .arg("--quiet=2");
        apt
    };
    command::output(apt().arg("update"))?;
    command::output(
        apt()
            .args(["install", "--yes", "--no-install-recommends"])
            .args(names),
    )?;
    Ok(())
}

pub(super) fn install_npm(cache: &Path, names: &[&str]) -> Result<()> {
    let mut npm = Command::new("npm");
    npm.args([
        "install",
        "--no-audit",
        "--no-fund",
        "--ignore-scripts",
        "--prefix",
    ]);
    command::output(npm.arg(cache.join("npm")).args(names))?;
    // OpenClaw would end its installation at the first start, where nobody may write. Its
    // script only cleans up after an older one, and takes this away.
    let pending = cache.join("npm/node_modules/openclaw/.openclaw-lifecycle-pending");
    match fs::remove_file(&pending) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", pending.display()))
        }
        _ => Ok(()),
    }
}

fn install_pip(cache: &Path, names: &[&str]) -> Result<()> {
    let environment = cache.join("pip/environment");
    let mut create = Command::new(PYTHON);
    command::output(create.args(["-m", "venv"]).arg(&environment))?;
    // One by one: each with the versions that it asks for.
    for name in names {
        let mut pip = Command::new(environment.join("bin/pip"));
        pip.args([
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--only-binary=:all:",
        ]);
        let _ = command::output(pip.arg("--dest").arg(cache.join("pip/wheels")).arg(name))?;
    }
    Ok(())
}

/// Returns the file that says that an environment is whole; it is made anew where packages are.
fn site_marker(cache: &Path, name: &str, missing: &[&str]) -> PathBuf {
    let marker = if missing.is_empty() { "whole" } else { "" };
    cache.join("pip/sites").join(name).join(marker)
}

/// Makes environments of Python from the files of pip in the cache.
fn install_sites(cache: &Path, names: &[&str]) -> Result<()> {
    for site in SITES.iter().filter(|site| names.contains(&site.name)) {
        let directory = cache.join("pip/sites").join(site.name);
        let mut create = Command::new(PYTHON);
        command::output(create.args(["-m", "venv", "--clear"]).arg(&directory))?;
        let mut pip = Command::new(directory.join("bin/pip"));
        pip.args(["install", "--quiet", "--no-index", "--find-links"]);
        command::output(pip.arg(cache.join("pip/wheels")).args(site.packages))?;
        fs::write(directory.join("whole"), "")?;
    }
    Ok(())
}

pub(super) fn install_cargo(cache: &Path, names: &[&str]) -> Result<()> {
    let mut cargo = command::cargo();
    cargo.args(["install", "--quiet", "--locked", "--root"]);
    command::output(cargo.arg(cache.join("cargo")).args(names)).map(drop)
}
