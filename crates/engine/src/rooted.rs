//! Root in the sandbox: the layers over the system, and an ordinary user's subordinate ids.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use atoll_model::{Access, Boundary, ViewKind};
use atoll_sandbox::{FurtherIds, PlacedLayer, Subordinate, furnish_system, make_layer};

use crate::place::Placing;
use crate::place_error::state_error;
use crate::slug::slug;
use crate::{PlaceError, ranged};

/// The directory of root's changes of the system, in a run's directory.
const SYSTEM_LAYERS: &str = "layers/system";
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
    layers.extend(system(placing, empty, Path::new(OWN_SYSTEM), empty)?);
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
    let directory = placing.run_dir().join(SYSTEM_LAYERS).join(slug(inside));
    let (mut layer, _) = make_layer(&directory, lower, inside, placing.base)?;
    layer.volatile = placing.request.is_scratch();
    if let Some(why) = furnish_system(&layer, from, placing.base, placing.request.host)? {
        if inside.starts_with(OWN_SYSTEM) {
            return refused(why);
        }
        placing.notices.push(why);
        return Ok(None);
    }
    Ok(Some(layer))
}
