//! The files in which programs look for trusted certificates.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use atoll_frame::Operation;
use atoll_model::network::{TRUST_AUTHORITY, TRUST_BUNDLE, TRUST_DIRECTORY, TRUST_JAVA};
use atoll_model::{Access, Boundary, View, ViewKind};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::tree::{Plan, relative, source};
use crate::{PlacedLayer, Placement, SandboxError};

/// The trust stores of common systems, with the file that replaces each in the sandbox.
const PLACES: [(&str, &str); 12] = [
    ("/etc/ssl/certs/ca-certificates.crt", TRUST_BUNDLE),
    ("/etc/ssl/certs/ca-bundle.crt", TRUST_BUNDLE),
    ("/etc/ssl/cert.pem", TRUST_BUNDLE),
    ("/etc/ssl/ca-bundle.pem", TRUST_BUNDLE),
    ("/etc/pki/tls/cert.pem", TRUST_BUNDLE),
    ("/etc/pki/tls/certs/ca-bundle.crt", TRUST_BUNDLE),
    (
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
        TRUST_BUNDLE,
    ),
    ("/usr/lib/ssl/cert.pem", TRUST_BUNDLE),
    ("/etc/ssl/certs/java/cacerts", TRUST_JAVA),
    ("/etc/pki/java/cacerts", TRUST_JAVA),
    ("/etc/pki/ca-trust/extracted/java/cacerts", TRUST_JAVA),
    (
        "/etc/ca-certificates/extracted/java-cacerts.jks",
        TRUST_JAVA,
    ),
];

/// Directories whose entries are JDKs: of distributions, of vendors' packages, and those unpacked by
/// hand.
const JDKS: [&str; 6] = [
    "/usr/lib/jvm",
    "/usr/lib64/jvm",
    "/usr/java",
    "/opt",
    "/opt/java",
    "/usr/local",
];

/// Directories below a home whose entries are JDKs: of SDKMAN, JetBrains, asdf and mise.
const JDKS_OF_PERSON: [&str; 4] = [
    ".sdkman/candidates/java",
    ".jdks",
    ".asdf/installs/java",
    ".local/share/mise/installs/java",
];

/// The trust store of a JDK, and of one before version 9.
const STORES: [&str; 2] = ["lib/security/cacerts", "jre/lib/security/cacerts"];

/// The places for an administrator's certificates, from which the trust stores are rebuilt: by
/// update-ca-certificates of Debian and its derivatives, update-ca-trust of Fedora, trust of
/// Arch, update-ca-certificates of SUSE.
const FURTHER: [&str; 4] = [
    "/usr/local/share/ca-certificates/atoll.crt",
    "/etc/pki/ca-trust/source/anchors/atoll.pem",
    "/etc/ca-certificates/trust-source/anchors/atoll.pem",
    "/etc/pki/trust/anchors/atoll.pem",
];

impl Plan {
    /// Shows the files of `trust`, a directory of Atoll's own, and puts them where programs
    /// look. No program in the sandbox can change them there.
    pub(crate) fn trust(
        &mut self,
        trust: &Path,
        boundary: &Boundary,
        placement: &Placement,
    ) -> Result<(), SandboxError> {
        self.read_only(trust, Path::new(TRUST_DIRECTORY), false, placement)?;
        if boundary.root {
            // Root inside installs packages that renew these files: in its own layer they
            // have what is trusted already.
            return Ok(());
        }
        let mut covered: BTreeSet<PathBuf> = BTreeSet::new();
        let usual = PLACES.map(|(place, file)| (PathBuf::from(place), file, Shown::OfSystem));
        let of_jdks = stores(&boundary.home).map(|store| (store, TRUST_JAVA, Shown::ReadOnly));
        for (place, file, shown) in usual.into_iter().chain(of_jdks) {
            // What a link leads to serves whoever follows it.
            let Ok(real) = place.canonicalize() else {
                continue;
            };
            let is_here = real.is_file() && shown.holds(&real, boundary, placement);
            if !is_here || !covered.insert(real.clone()) {
                continue;
            }
            self.operations.push(Operation::ReadOnlyFile {
                path: relative(&real),
                source: source(&trust.join(file))?,
                as_caller: false,
            });
        }
        Ok(())
    }
}

/// The views that a trust store has to be in to be replaced.
enum Shown {
    /// Those of the system; files that the person has put there stay.
    OfSystem,
    /// All that nobody changes: a JDK's own store is nobody's file.
    ReadOnly,
}

impl Shown {
    /// Returns whether a file of the host is shown at its own path, by such a view.
    fn holds(&self, path: &Path, boundary: &Boundary, placement: &Placement) -> bool {
        let holds = |view: &&View| path.starts_with(&view.inside);
        let nearest = boundary
            .views
            .iter()
            .filter(holds)
            .max_by_key(|view| view.inside.components().count());
        nearest.is_some_and(|view| {
            let is_kind = match self {
                Self::OfSystem => view.kind == ViewKind::System,
                Self::ReadOnly => {
                    let is_changed = placement.layers.iter().any(|layer| layer.holds(path));
                    view.access == Access::ReadOnly
                        && placement.shows(view)
                        && !is_changed
                        && is_store(path, &view.host)
                }
            };
            is_kind && view.host == view.inside
        })
    }
}

/// Returns whether a file can be a trust store, by its name and size, and is on the file system of
/// its view: what is mounted in that may not be there inside.
fn is_store(path: &Path, view: &Path) -> bool {
    const BYTES_MAX: u64 = 4 << 20;
    let is_named = path.file_name().is_some_and(|name| {
        let name = name.as_encoded_bytes();
        name == b"cacerts" || name.starts_with(b"java-cacerts")
    });
    let (facts, of_view) = (path.symlink_metadata(), view.symlink_metadata());
    let on_one = facts.ok().zip(of_view.ok());
    is_named && on_one.is_some_and(|(one, two)| one.dev() == two.dev() && one.len() <= BYTES_MAX)
}

/// Returns where the trust stores of JDKs may be: of those in usual places.
fn stores(home: &Path) -> impl Iterator<Item = PathBuf> {
    let of_person = JDKS_OF_PERSON.map(|below| home.join(below));
    let places = JDKS.map(PathBuf::from).into_iter().chain(of_person);
    let entries = places
        .filter_map(|place| fs::read_dir(place).ok())
        .flatten();
    let jdks = entries.flatten().map(|entry| entry.path());
    jdks.flat_map(|jdk| STORES.map(|store| jdk.join(store)))
}

/// Puts the files of `trust` into root's layers over the system, where programs look and where
/// packages take them from to rebuild the trust stores. `base` is the kernel's id of the id 0
/// in the sandbox, if that is not the caller's.
///
/// # Errors
/// [`SandboxError::Host`].
pub fn furnish_trust(
    layers: &[PlacedLayer],
    trust: &Path,
    base: Option<u32>,
) -> Result<(), SandboxError> {
    let put = |path: &Path, file: &str, is_new: bool| -> io::Result<()> {
        let of = |layer: &&PlacedLayer| layer.holds(path);
        let deepest = |layer: &&PlacedLayer| layer.inside.components().count();
        let Some(layer) = layers.iter().filter(of).max_by_key(deepest) else {
            return Ok(());
        };
        let Some((parent, name)) = directory(layer, path, base)? else {
            return Ok(());
        };
        replace(&parent, name, &fs::read(trust.join(file))?, base, is_new)
    };
    let all = || -> io::Result<()> {
        for (place, file) in PLACES {
            if let Ok(real) = Path::new(place).canonicalize() {
                put(&real, file, false)?;
            }
        }
        for place in FURTHER {
            put(Path::new(place), TRUST_AUTHORITY, true)?;
        }
        Ok(())
    };
    all().map_err(SandboxError::host(
        "what programs of root inside trust could not be laid down",
    ))
}

/// Opens the directory in a layer that contains a path, making it if the host has one; returns
/// it with the path's name. `None` if anything but directories leads to it: an earlier program
/// has put that there, and following it would lead to the host's own files.
fn directory<'a>(
    layer: &PlacedLayer,
    path: &'a Path,
    base: Option<u32>,
) -> io::Result<Option<(OwnedFd, &'a Path)>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut place = rustix::fs::open(&layer.upper, flags, Mode::empty())?;
    let mut host = layer.inside.clone();
    let Ok(rest) = path.strip_prefix(&layer.inside) else {
        return Ok(None);
    };
    let Some(name) = path.file_name() else {
        return Ok(None);
    };
    for part in rest.parent().into_iter().flat_map(Path::components) {
        let Component::Normal(part) = part else {
            return Ok(None);
        };
        host.push(part);
        if !host.symlink_metadata().is_ok_and(|facts| facts.is_dir()) {
            return Ok(None);
        }
        match rustix::fs::mkdirat(&place, part, Mode::from_raw_mode(0o755)) {
            Ok(()) => own(&place, Path::new(part), base)?,
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        place = match rustix::fs::openat2(&place, part, flags, Mode::empty(), resolve) {
            Err(Errno::LOOP | Errno::NOTDIR) => return Ok(None),
            opened => opened?,
        };
    }
    Ok(Some((place, Path::new(name))))
}

/// Replaces a file; makes a missing one only if `is_new`.
fn replace(
    parent: &OwnedFd,
    name: &Path,
    content: &[u8],
    base: Option<u32>,
    is_new: bool,
) -> io::Result<()> {
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(facts) if FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile => {
            rustix::fs::unlinkat(parent, name, AtFlags::empty())?;
        }
        Err(Errno::NOENT) if is_new => {}
        // A former program has removed it, or put something else there: so it stays.
        Ok(_) | Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o644))?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644))?;
    File::from(file).write_all(content)?;
    own(parent, name, base)
}

/// Gives a new file to root in the sandbox.
fn own(parent: &OwnedFd, name: &Path, base: Option<u32>) -> io::Result<()> {
    let Some(base) = base else { return Ok(()) };
    let id = Some(rustix::fs::Uid::from_raw(base));
    let group = Some(rustix::fs::Gid::from_raw(base));
    Ok(rustix::fs::chownat(
        parent,
        name,
        id,
        group,
        AtFlags::SYMLINK_NOFOLLOW,
    )?)
}
