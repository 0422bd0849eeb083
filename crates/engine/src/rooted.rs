//! Root in the sandbox: the layers over the system, and an ordinary user's subordinate ids.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use atoll_model::{Access, Boundary, ViewKind};
use atoll_sandbox::{FurtherIds, PlacedLayer, Subordinate, furnish_system, make_layer};

use atoll_store::remove_directory;

use crate::home::{Home, LINKS, ROOTS, System, part_name};
use crate::place::Placing;
use crate::place_error::state_error;
use crate::{PlaceError, accounts, ranged};

/// The directory of root's changes of the system, in a run's directory.
pub(crate) const SYSTEM_LAYERS: &str = "layers/system";
/// The directories that are copied, so that a secret written on the host meanwhile does not
/// show.
const COPIED_SYSTEM: [&str; 2] = ["/etc", "/var/cache/debconf"];
/// The directory of the system that root in the sandbox has of its own, beneath the views.
const OWN_SYSTEM: &str = "/var";

/// The shortest time of preparation that is worth a notice.
const TOLD_FROM: Duration = Duration::from_millis(500);

const ONE_ID: &str = "root is the only user inside: further ids need a range for you in \
    /etc/subuid and /etc/subgid, and newuidmap (package uidmap); without them chown to others, \
    su and apt-get fail";

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
        let marked = ranged::mark(placing.request.state, &placing.request.call.run);
        let mark = marked.map_err(state_error("marking", &placing.run_dir()))?;
        let mark = Arc::new(mark.into());
        further = Some(FurtherIds { subordinate, mark });
    } else if placing.base.is_none() {
        placing.notices.push(ONE_ID.to_owned());
    }
    let of_template = placing.request.home.and_then(Home::system);
    if let Some(system) = of_template.filter(|system| !system.over_host) {
        return Ok((template(placing, system, empty)?, further));
    }
    layers.extend(system(placing, empty, Path::new(OWN_SYSTEM), empty)?);
    if let Some(system) = of_template {
        layers.extend(template(placing, system, empty)?);
    }
    for view in &boundary.views {
        if view.kind == ViewKind::System && view.access != Access::ReadOnly {
            layers.extend(system(placing, &view.host, &view.inside, empty)?);
        }
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
const OWN_PLACES: [&str; 5] = ["dev", "proc", "run", "sys", "tmp"];

/// The directories that images and builds often have at the root, where nothing can be made later.
const USUAL_PLACES: [&str; 9] = [
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

/// Makes a layer over each directory at the root of a template's own.
fn template(
    placing: &mut Placing<'_>,
    system: &System,
    empty: &Path,
) -> Result<Vec<PlacedLayer>, PlaceError> {
    let mut layers = Vec::new();
    for inside in roots(system).map_err(state_error("reading", empty))? {
        let mut over = parts(system, &inside);
        let lower = over.pop().unwrap_or_else(|| empty.to_path_buf());
        layers.push(layer(placing, &lower, over, &inside)?);
    }
    Ok(layers)
}

/// Returns the directories at the root of a template, from the list that lies beside each layer.
fn roots(system: &System) -> io::Result<BTreeSet<PathBuf>> {
    let usual = USUAL_PLACES.iter().map(|name| Path::new("/").join(name));
    let mut all: BTreeSet<PathBuf> = usual.collect();
    for layer in &system.layers {
        for name in fs::read_to_string(layer.join(ROOTS))?.lines() {
            if !OWN_PLACES.contains(&name) {
                all.insert(Path::new("/").join(name));
            }
        }
    }
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
    let Some(lowest) = system.and_then(|system| system.layers.last()) else {
        return Ok(Vec::new());
    };
    let text = fs::read_to_string(lowest.join(LINKS)).map_err(state_error("reading", lowest))?;
    let link = |line: &str| {
        let (name, to) = line.split_once('\t')?;
        // Where the sandbox has a directory of its own there can be no link.
        let is_taken = OWN_PLACES.contains(&name) || USUAL_PLACES.contains(&name);
        (!is_taken).then(|| (Path::new("/").join(name), to.as_bytes().to_vec()))
    };
    Ok(text.lines().filter_map(link).collect())
}

/// Returns a part of the system in the layers of a template that have it, the topmost first.
fn parts(system: &System, inside: &Path) -> Vec<PathBuf> {
    let name = part_name(inside);
    let all = system.layers.iter().map(|layer| layer.join(&name));
    all.filter(|part| part.is_dir()).collect()
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
    let directory = changes.join(part_name(inside));
    let upper = directory.join("upper");
    let before = upper.symlink_metadata().ok();
    // One that was mounted without waiting for the disk is refused again, also after a sudden end.
    remove_directory(&directory.join("work"))
        .map_err(|error| state_error("removing", &directory)(io::Error::other(error)))?;
    // The topmost is what the directory itself looks like, until root has changed that.
    let top = over.first().map_or(lower, PathBuf::as_path);
    let (mut layer, _) = make_layer(&directory, top, inside, placing.base)?;
    if let Some(before) = before {
        let again = lchown(&upper, Some(before.uid()), Some(before.gid()));
        let again = again.and_then(|()| fs::set_permissions(&upper, before.permissions()));
        again.map_err(state_error("giving back", &upper))?;
    }
    layer.lower = lower.to_path_buf();
    layer.over = over;
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
    if placing.request.call.served.is_some() && inside == Path::new("/etc") {
        let ensured = accounts::ensure_resident(&layer.upper, true);
        ensured.map_err(state_error("writing", &layer.upper))?;
    }
    Ok(Some(layer))
}
