//! Root in the sandbox: the layers over the system, and an ordinary user's subordinate ids.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use atoll_model::{Access, Boundary, View, ViewKind};
use atoll_sandbox::{
    FurtherIds, PlacedLayer, Subordinate, furnish_part, furnish_system, make_layer,
};

use atoll_store::remove_directory;

use crate::home::{Home, LINKS, System, UPPER, WHOLE, part_name};
use crate::place::Placing;
use crate::place_error::state_error;
use crate::served::look_again;
use crate::{PlaceError, accounts, ranged};

/// The directory of root's changes of the system, in a run's directory.
pub(crate) const SYSTEM_LAYERS: &str = "layers/system";
/// The directories that are copied, so that a secret written on the host meanwhile does not
/// show.
const COPIED_SYSTEM: [&str; 2] = ["/etc", "/var/cache/debconf"];
/// The directory of the system that root in the sandbox has of its own, beneath the views.
pub(crate) const OWN_SYSTEM: &str = "/var";

/// The directories of the host that the lowest layer of templates has copies of.
pub(crate) const PARTS: [&str; 11] = [
    "/etc",
    "/var/cache/apt",
    "/var/cache/debconf",
    "/var/lib/apt",
    "/var/lib/dpkg",
    "/var/lib/pam",
    "/var/lib/python",
    "/var/lib/sgml-base",
    "/var/lib/systemd/deb-systemd-helper-enabled",
    "/var/lib/ucf",
    "/var/lib/xml-core",
];

/// The shortest time of preparation that is worth a notice.
const TOLD_FROM: Duration = Duration::from_millis(500);

const ONE_ID: &str = "root is the only user inside: further ids need a range for you in \
    /etc/subuid and /etc/subgid, and newuidmap (package uidmap); without them chown to others, \
    su and apt-get fail";

/// Returns what an ordinary user lacks whose sandboxes have no user but root.
#[must_use]
pub fn missing_ids() -> Option<&'static str> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let has_ids = uid.is_root() || Subordinate::of(uid.as_raw(), gid.as_raw()).is_some();
    (!has_ids).then_some(ONE_ID)
}

/// Makes a layer for each directory of the system that root in the sandbox can change, its own
/// first, and finds the user's subordinate ids.
pub(crate) fn place(
    placing: &mut Placing<'_>,
    boundary: &Boundary,
    empty: &Path,
) -> Result<(Vec<PlacedLayer>, Option<FurtherIds>), PlaceError> {
    let mut layers = Vec::new();
    if !boundary.root {
        return Ok((layers, None));
    }
    let begun = Instant::now();
    let mut further = None;
    let principal = &placing.request.call.principal;
    let subordinate = match placing.base {
        Some(_) => None,
        None => Subordinate::of(principal.uid, principal.gid),
    };
    if let Some(subordinate) = subordinate {
        let marked = ranged::mark(placing.request.state, placing.request.call.run());
        let mark = marked.map_err(state_error("marking", &placing.run_dir()))?;
        let mark = Arc::new(mark.into());
        further = Some(FurtherIds { subordinate, mark });
    } else if placing.base.is_none() {
        placing.notices.push(ONE_ID.to_owned());
    }
    let is_changed =
        |view: &&View| view.kind == ViewKind::System && view.access != Access::ReadOnly;
    let mut views: Vec<&View> = boundary.views.iter().filter(is_changed).collect();
    match placing.request.home.and_then(Home::system) {
        None => layers.extend(system(placing, empty, Path::new(OWN_SYSTEM), empty)?),
        Some(system) => {
            if !system.over_host {
                views.clear();
            }
            let is_own = |view: &&View| placing.base.is_some() && is_part(&view.inside);
            let (own, others): (Vec<_>, _) = views.into_iter().partition(is_own);
            layers.push(whole(placing, system, &own, empty)?);
            views = others;
        }
    }
    for view in views {
        layers.extend(system(placing, &view.host, &view.inside, empty)?);
    }
    let took = begun.elapsed();
    if took >= TOLD_FROM {
        placing.notices.push(format!(
            "root inside has a system of its own: to make its directories anew took {:.1} s before the \
             program started; without --root it starts at once (atoll help root)",
            took.as_secs_f64()
        ));
    }
    Ok((layers, further))
}

/// The directories at the root of a template that are the sandbox's own instead.
const OWN_PLACES: [&str; 4] = ["dev", "proc", "run", "tmp"];

/// The directories that images and builds often have at the root, where nothing can be made later.
pub(crate) const USUAL_PLACES: [&str; 9] = [
    "app",
    "code",
    "data",
    "home",
    "media",
    "mnt",
    "root",
    "srv",
    "workspace",
];

/// The most directories at the root of a template, each of which is a mount.
const ROOTS_MAX: usize = 128;

/// Returns whether a directory of the host's system is a copy in the lowest layer of templates.
fn is_part(inside: &Path) -> bool {
    PARTS.iter().any(|one| inside == Path::new(one))
}

/// Makes the one layer of all directories of a template that lie over nothing of the host's; the
/// lowest layer of one over the host has copies of these views.
fn whole(
    placing: &mut Placing<'_>,
    system: &System,
    views: &[&View],
    empty: &Path,
) -> Result<PlacedLayer, PlaceError> {
    let root = Path::new("/");
    let mut whole = layer(placing, empty, parts(system, root), root)?;
    let mut roots = roots(system).map_err(state_error("reading", empty))?;
    if system.over_host {
        // Those that the boundary does not show are not shown.
        roots.retain(|name| !is_part(&root.join(name)));
        let at_root = views
            .iter()
            .filter(|view| view.inside.parent() == Some(root));
        roots.extend(at_root.filter_map(|view| Some(view.inside.file_name()?.to_owned())));
        roots.extend(Path::new(OWN_SYSTEM).file_name().map(OsStr::to_owned));
        let own = Path::new(OWN_SYSTEM);
        if make_part(placing, &whole, own)? {
            let why = furnish_part(&whole, own, placing.base)?;
            why.map_or(Ok(()), |why| {
                Err(PlaceError::System(own.to_path_buf(), why))
            })?;
        }
    }
    if roots.len() > ROOTS_MAX {
        let why = format!("it has more than {ROOTS_MAX} directories at its root");
        return Err(PlaceError::System(root.to_path_buf(), why));
    }
    for name in &roots {
        make_part(placing, &whole, &root.join(name))?;
    }
    whole.parts = roots.iter().map(|name| root.join(name)).collect();
    Ok(whole)
}

/// Makes a directory at the root of the upper one of a template's own layer; returns whether it was
/// not there, and in no layer beneath.
fn make_part(
    placing: &Placing<'_>,
    whole: &PlacedLayer,
    inside: &Path,
) -> Result<bool, PlaceError> {
    let Some(name) = inside.file_name() else {
        return Ok(false);
    };
    let place = whole.upper.join(name);
    let mut there = std::iter::once(&whole.upper).chain(&whole.over);
    if there.any(|one| one.join(name).is_dir()) {
        return Ok(false);
    }
    let make = || -> io::Result<()> {
        fs::DirBuilder::new().mode(0o755).create(&place)?;
        match placing.base {
            Some(base) => lchown(&place, Some(base), Some(base)),
            None => Ok(()),
        }
    };
    make().map_err(state_error("making", &place))?;
    Ok(true)
}

/// Returns the names of the directories at the root of a template's own: those of its layers, and
/// usual ones.
fn roots(system: &System) -> io::Result<BTreeSet<OsString>> {
    let mut all: BTreeSet<OsString> = USUAL_PLACES.iter().map(OsString::from).collect();
    let links = links_of(system)?;
    let is_link = |name: &&String| links.iter().any(|(link, _)| link == *name);
    let further = system.roots.iter().filter(|name| !is_link(name));
    all.extend(further.map(OsString::from));
    for layer in parts(system, Path::new("/")) {
        for entry in fs::read_dir(layer)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                all.insert(entry.file_name());
            }
        }
    }
    all.retain(|name| !OWN_PLACES.iter().any(|own| name == own));
    Ok(all)
}

/// Returns the links at the root of a template's own system.
pub(crate) fn links(
    home: Option<&Home>,
    is_root: bool,
) -> Result<Vec<(PathBuf, Vec<u8>)>, PlaceError> {
    let system = home
        .and_then(Home::system)
        .filter(|one| !one.over_host && is_root);
    let Some(system) = system else {
        return Ok(Vec::new());
    };
    let reading = state_error("reading", Path::new(LINKS));
    let mut links = links_of(system).map_err(reading)?;
    // Where the sandbox has a directory of its own there can be no link.
    links.retain(|(name, _)| !OWN_PLACES.contains(&&**name) && !USUAL_PLACES.contains(&&**name));
    let at_root = |(name, to): (String, String)| (Path::new("/").join(name), to.into_bytes());
    Ok(links.into_iter().map(at_root).collect())
}

/// Returns the links in the layer of an image, each with what it leads to.
fn links_of(system: &System) -> io::Result<Vec<(String, String)>> {
    let lowest = system.layers.last().filter(|_| !system.over_host);
    let text = lowest.map(|lowest| fs::read_to_string(lowest.join(LINKS)));
    let text = text.transpose()?.unwrap_or_default();
    let link = |line: &str| {
        let (name, to) = line.split_once('\t')?;
        Some((name.to_owned(), to.to_owned()))
    };
    Ok(text.lines().filter_map(link).collect())
}

/// Returns a part of the system in the layers of a template that have it, the topmost first.
fn parts(system: &System, inside: &Path) -> Vec<PathBuf> {
    let name = name_of(inside);
    let all = system.layers.iter().map(|layer| layer.join(&name));
    all.filter(|part| part.is_dir()).collect()
}

/// Returns root's changes of a part of the system in the layers that it begins with, the topmost
/// first.
fn changed(placing: &Placing<'_>, inside: &Path) -> Vec<PathBuf> {
    let system = placing.request.home.and_then(Home::system);
    let all = system.map_or(&[][..], |system| &system.changed);
    let name = name_of(inside);
    let all = all.iter().map(|layer| layer.join(&name).join(UPPER));
    all.filter(|part| part.is_dir()).collect()
}

/// Returns the name of a part of the system in a template's layer, and of root's changes of it.
fn name_of(inside: &Path) -> String {
    match inside == Path::new("/") {
        true => WHOLE.to_owned(),
        false => part_name(inside),
    }
}

/// Makes a layer for root's changes of a directory.
fn layer(
    placing: &Placing<'_>,
    lower: &Path,
    over: Vec<PathBuf>,
    inside: &Path,
) -> Result<PlacedLayer, PlaceError> {
    let changes = placing.run_dir().join(SYSTEM_LAYERS);
    let changes = match placing.request.home {
        Some(home) => home.system_path(&changes),
        None => changes,
    };
    let directory = changes.join(name_of(inside));
    let upper = directory.join("upper");
    let before = upper.symlink_metadata().ok();
    // One that was mounted without waiting for the disk is refused again, also after a sudden end.
    remove_directory(&directory.join("work"))
        .map_err(|error| state_error("removing", &directory)(io::Error::other(error)))?;
    // The topmost is what the directory itself looks like, until root has changed that.
    let changed = changed(placing, inside);
    let top = changed.iter().chain(&over).next();
    let top = top.map_or(lower, PathBuf::as_path);
    let (mut layer, _) = make_layer(&directory, top, inside, placing.base)?;
    if let Some(before) = before {
        look_again(&upper, &before).map_err(state_error("giving back", &upper))?;
    }
    layer.lower = lower.to_path_buf();
    layer.own = u32::try_from(changed.len()).unwrap_or(u32::MAX);
    layer.over = changed.into_iter().chain(over).collect();
    // What is kept of it goes on without its work directory.
    layer.linked = placing.request.home.and_then(Home::system).is_none();
    layer.volatile = placing.request.is_scratch();
    Ok(layer)
}

/// Makes a layer over a directory of the system, for root in the sandbox. It is not part of the
/// run's record: its changes are never shown or applied.
fn system(
    placing: &mut Placing<'_>,
    from: &Path,
    inside: &Path,
    empty: &Path,
) -> Result<Option<PlacedLayer>, PlaceError> {
    // /bin and such are links on most systems, and stay what they are.
    if !from.symlink_metadata().is_ok_and(|facts| facts.is_dir()) {
        return Ok(None);
    }
    let is_copied = COPIED_SYSTEM.iter().any(|one| inside == Path::new(one));
    let lower = if is_copied { empty } else { from };
    // Without its layer it would be the host's own that is shown.
    let refused = |why: String| Err(PlaceError::System(inside.to_path_buf(), why));
    if !placing.offered.can_layer(lower) {
        return refused(placing.offered.why_no_layer(lower));
    }
    let over = placing.request.home.and_then(Home::system);
    let over = over.map_or_else(Vec::new, |system| parts(system, inside));
    let layer = layer(placing, lower, over, inside)?;
    // What was furnished when its template was made is there, but what only root may read now.
    let is_own = layer.lower != from || inside == Path::new(OWN_SYSTEM);
    let is_furnished = !layer.over.is_empty() && is_own;
    if is_furnished || placing.base.is_none() && !layer.over.is_empty() {
        return Ok(Some(layer));
    }
    if let Some(why) = furnish_system(&layer, from, placing.base, placing.request.host)? {
        if inside.starts_with(OWN_SYSTEM) {
            return refused(why);
        }
        placing.notices.push(why);
        return Ok(None);
    }
    if placing.request.call.served().is_some() && inside == Path::new("/etc") {
        let ensured = accounts::ensure_resident(&layer.upper, true);
        ensured.map_err(state_error("writing", &layer.upper))?;
    }
    Ok(Some(layer))
}
