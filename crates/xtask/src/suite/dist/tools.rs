//! The parts that packages are made of and tried with, in the cache: the C library that programs are
//! linked with, a clean system to install in, and tools of PyPI, npm and crates.io.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::super::needs;
use crate::command;

/// The release of Debian whose C library is the oldest that the program runs with.
const RELEASE: &str = "bullseye";
/// The directory of that C library; the number changes with its content.
const SYSROOT: &str = "sysroot-1";
const SYSROOT_PACKAGES: &str = "libc6-dev,libgcc-s1";
/// The command that has its links lead to itself rather than to the host.
const SYSROOT_LINKS: &str = "find \"$1\" -type l -lname '/*' | while read -r link; do \
     ln -sfnr \"$1$(readlink \"$link\")\" \"$link\"; done";

/// An archive of the same release: small, with an ordinary user and what Node.js and uv need, without
/// a compiler; the number changes with its content.
const CLEAN: &str = "clean-1.tar";
const CLEAN_PACKAGES: &str = "libatomic1,python3,python3-distutils";
const CLEAN_USER: &str = "chroot \"$1\" useradd --create-home --uid 1000 --shell /bin/sh person";

/// The environment of Python that packs a wheel, and has the installer that tries it.
const PYTHON: &str = "python";
const PYTHON_PACKAGES: [&str; 2] = ["wheel==0.48.0", "uv==0.13.9"];
/// The installer of packages of npm, for the clean system.
const NPM: &str = "npm/node_modules/npm";
const NPM_PACKAGE: &str = "npm@11.21.2";
/// The maker of the list of what the program consists of.
const SBOM: &str = "cargo/bin/cargo-cyclonedx";
const SBOM_PACKAGE: &str = "cargo-cyclonedx@0.5.9";

/// Each part, and the file or directory that is there once it is whole.
const PARTS: [(&str, &str); 5] = [
    ("Debian's C library", SYSROOT),
    ("a clean Debian", CLEAN),
    ("wheel and uv", PYTHON),
    (NPM_PACKAGE, NPM),
    (SBOM_PACKAGE, SBOM),
];

/// Returns the directory of all parts in the cache; tests know its name.
fn directory(cache: &Path) -> PathBuf {
    cache.join("packages")
}

/// Returns the directory of the C library that programs are linked with.
pub(super) fn sysroot(cache: &Path) -> PathBuf {
    directory(cache).join(SYSROOT)
}

/// Returns the Python that has the packer of wheels.
pub(super) fn python(cache: &Path) -> PathBuf {
    directory(cache).join(PYTHON).join("bin/python")
}

/// Returns the maker of the list of components.
pub(super) fn sbom(cache: &Path) -> PathBuf {
    directory(cache).join(SBOM)
}

/// Returns the missing parts, by the names that [`install`] takes.
pub(crate) fn missing(cache: &Path) -> Vec<&'static str> {
    if cfg!(not(target_arch = "x86_64")) {
        return Vec::new();
    }
    let is_missing = |(_, path): &&(&str, &str)| !directory(cache).join(path).exists();
    let those = PARTS.iter().filter(is_missing);
    those.map(|(name, _)| *name).collect()
}

/// Makes the parts of these names.
pub(crate) fn install(cache: &Path, names: &[&str]) -> Result<()> {
    let own = directory(cache);
    fs::create_dir_all(&own)?;
    for (name, path) in PARTS.iter().filter(|(name, _)| names.contains(name)) {
        let made = match *path {
            SYSROOT => make_sysroot(&own),
            CLEAN => make_clean(&own),
            PYTHON => make_python(&own),
            NPM => needs::install_npm(&own, &[NPM_PACKAGE]),
            _ => needs::install_cargo(&own, &[SBOM_PACKAGE]),
        };
        made.with_context(|| format!("{name} could not be made"))?;
    }
    Ok(())
}

fn make_sysroot(own: &Path) -> Result<()> {
    let work = tempfile::tempdir_in(own)?;
    let tree = work.path().join("tree");
    let mut make = Command::new("mmdebstrap");
    make.args(["--quiet", "--variant=extract"])
        .arg(format!("--include={SYSROOT_PACKAGES}"))
        .arg(format!("--extract-hook={SYSROOT_LINKS}"));
    command::output(make.arg(RELEASE).arg(&tree))?;
    fs::rename(tree, own.join(SYSROOT))?;
    Ok(())
}

fn make_clean(own: &Path) -> Result<()> {
    let work = tempfile::tempdir_in(own)?;
    let archive = work.path().join(CLEAN);
    let mut make = Command::new("mmdebstrap");
    make.args(["--quiet", "--variant=minbase"])
        .arg(format!("--include={CLEAN_PACKAGES}"))
        .arg(format!("--customize-hook={CLEAN_USER}"));
    command::output(make.arg(RELEASE).arg(&archive))?;
    File::open(&archive)?.sync_all()?;
    fs::rename(archive, own.join(CLEAN))?;
    Ok(())
}

fn make_python(own: &Path) -> Result<()> {
    let directory = own.join(PYTHON);
    let made = (|| {
        let mut create = Command::new(needs::PYTHON);
        command::output(create.args(["-m", "venv", "--clear"]).arg(&directory))?;
        let mut pip = Command::new(directory.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check"]);
        command::output(pip.args(PYTHON_PACKAGES)).map(drop)
    })();
    if made.is_err() {
        // Half of it would be taken for the whole.
        fs::remove_dir_all(&directory).ok();
    }
    made
}
