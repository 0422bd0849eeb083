//! Volumes of a served sandbox, as this host can show them.

use atoll_model::Boundary;

use crate::PlaceError;
use crate::fallback::Offered;

/// Refuses volumes whose files cannot be shown as the program's own: it could read and change none.
pub(crate) fn check(offered: &Offered<'_>, boundary: &Boundary) -> Result<(), PlaceError> {
    let mut mounts = boundary.volumes.iter();
    match mounts.find(|mount| !offered.maps(&mount.host)) {
        None => Ok(()),
        Some(mount) => Err(PlaceError::Volume {
            name: mount.name.clone(),
            why: offered.why_unmapped(&mount.host),
        }),
    }
}
