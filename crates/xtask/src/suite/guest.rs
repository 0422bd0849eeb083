//! The parts of a guest of `crates/e2e/src/guest.rs`: two kernels of the distribution and
//! AppArmor's parser, unpacked into the cache and installed nowhere, and a small disk.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::command;
use crate::person;

/// The folder of each kernel and the package that depends on the newest of its kind.
const KERNELS: [(&str, &str); 2] = [
    ("new", "linux-image-6.12-cloud-amd64"),
    ("old", "linux-image-cloud-amd64"),
];

/// The file name of the disk, which changes with its content.
const DISK: &str = "disk-1.img";
/// The packages on the disk, besides the smallest system that there is.
const DISK_PACKAGES: &str = "dbus,dbus-user-session,libpam-systemd,login,systemd,systemd-sysv";
/// The command that adds the guest's ordinary user, whose user id the checks know.
const DISK_USER: &str = "chroot \"$1\" useradd --create-home --uid 1000 --shell /bin/bash person";
/// The command that removes what no check needs.
const DISK_WITHOUT: &str =
    "rm -rf \"$1\"/usr/share/doc \"$1\"/usr/share/locale \"$1\"/usr/share/man";
const DISK_SIZE: &str = "700M";

/// The directory of AppArmor's parser and its libraries, which changes with its content. It is from
/// the first release whose parser knows user namespaces.
const PARSER: &str = "apparmor-1";
const PARSER_RELEASE: &str = "trixie";

/// Returns the missing parts, by the names that [`install`] takes.
pub(super) fn missing(cache: &Path) -> Vec<&'static str> {
    if cfg!(not(target_arch = "x86_64")) {
        return Vec::new();
    }
    let own = directory(cache);
    let has_kernel = |folder: &str| own.join(folder).is_dir();
    let kernels = KERNELS.iter().filter(|(folder, _)| !has_kernel(folder));
    let disk = (!own.join(DISK).is_file()).then_some(DISK);
    let parser = (!own.join(PARSER).is_dir()).then_some(PARSER);
    let packages = kernels.map(|(_, package)| *package);
    packages.chain(disk).chain(parser).collect()
}

/// Makes the parts of these names.
pub(super) fn install(cache: &Path, names: &[&str]) -> Result<()> {
    let own = directory(cache);
    fs::create_dir_all(&own)?;
    anyhow::ensure!(
        person::caller_id()? == 0,
        "needs root, as its owners do: {}",
        names.join(" ")
    );
    command::output(Command::new("apt-get").args(["--quiet=2", "update"]))?;
    for (folder, package) in KERNELS
        .iter()
        .filter(|(_, package)| names.contains(package))
    {
        unpack_kernel(&own, folder, package)
            .with_context(|| format!("{package} could not be unpacked"))?;
    }
    if names.contains(&DISK) {
        make_disk(&own).context("the disk could not be made")?;
    }
    if names.contains(&PARSER) {
        unpack_parser(&own).context("AppArmor's parser could not be unpacked")?;
    }
    Ok(())
}

fn directory(cache: &Path) -> PathBuf {
    cache.join("guest")
}

/// Unpacks the kernel and its module for overlays; the rest is built in.
fn unpack_kernel(own: &Path, folder: &str, package: &str) -> Result<()> {
    let work = tempfile::tempdir_in(own)?;
    let depends = command::output(Command::new("apt-cache").args(["depends", package]))?;
    let newest = depends
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: linux-image-"))
        .with_context(|| format!("{package} depends on no kernel"))?;
    let mut download = Command::new("apt-get");
    download.args(["--quiet=2", "download"]);
    download.arg(format!("linux-image-{newest}"));
    command::output(download.current_dir(work.path()))?;
    let archive = the_one(work.path(), "linux-image-")?;
    let content = work.path().join("content");
    command::output(
        Command::new("dpkg-deb")
            .arg("-x")
            .arg(archive)
            .arg(&content),
    )?;

    let made = work.path().join("made");
    fs::create_dir(&made)?;
    fs::rename(
        the_one(&content.join("boot"), "vmlinuz-")?,
        made.join("vmlinuz"),
    )?;
    let modules = the_one(&content.join("lib/modules"), "")?;
    let overlay = the_one(&modules.join("kernel/fs/overlayfs"), "overlay.ko")?;
    if overlay.extension().is_some_and(|end| end == "xz") {
        command::output(Command::new("xz").arg("--decompress").arg(&overlay))?;
    }
    fs::rename(
        overlay.with_file_name("overlay.ko"),
        made.join("overlay.ko"),
    )?;
    fs::rename(made, own.join(folder))?;
    Ok(())
}

/// Returns the only entry of a directory whose name begins like this.
fn the_one(directory: &Path, begin: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut found = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(begin));
    let first = found.next().map(|entry| entry.path());
    first.with_context(|| format!("no {begin}… in {}", directory.display()))
}

/// Makes the disk: this host's release of the distribution, since `atoll` is
/// linked with its libraries.
fn make_disk(own: &Path) -> Result<()> {
    let release = fs::read_to_string("/etc/os-release")?;
    let name = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .context("/etc/os-release has no VERSION_CODENAME")?;
    let work = tempfile::tempdir_in(own)?;
    let (tree, disk) = (work.path().join("tree"), work.path().join(DISK));
    let mut make = Command::new("mmdebstrap");
    make.args(["--quiet", "--variant=minbase"])
        .arg(format!("--include={DISK_PACKAGES}"))
        .arg(format!("--customize-hook={DISK_USER}"))
        .arg(format!("--customize-hook={DISK_WITHOUT}"));
    command::output(make.arg(name).arg(&tree))?;
    let mut format = Command::new("mke2fs");
    format.args(["-q", "-t", "ext4", "-O", "^has_journal", "-d"]);
    command::output(format.arg(&tree).arg(&disk).arg(DISK_SIZE))?;
    File::open(&disk)?.sync_all()?;
    fs::rename(disk, own.join(DISK))?;
    Ok(())
}

/// Unpacks the parser with what it needs; nothing of it is installed or set up.
fn unpack_parser(own: &Path) -> Result<()> {
    let work = tempfile::tempdir_in(own)?;
    let tree = work.path().join("tree");
    let mut make = Command::new("mmdebstrap");
    make.args(["--quiet", "--variant=extract", "--include=apparmor"]);
    command::output(make.arg(PARSER_RELEASE).arg(&tree))?;
    fs::rename(tree, own.join(PARSER))?;
    Ok(())
}
