//! The quotas of volumes: counted like a sandbox's own layers. What several sandboxes write there
//! counts for each of them.

use std::path::Path;
use std::time::Instant;

use atoll_model::{LimitHit, VOLUME_INODES_MAX, VolumeMount};

use super::{Count, DiskWatch};

impl DiskWatch {
    /// Also watches the volumes that can be changed, each for its own quota. Deleted files that
    /// programs hold open count as the sandbox's own.
    pub(crate) fn and_volumes(mut self, mounts: &[VolumeMount]) -> Self {
        let changed = mounts.iter().filter(|mount| !mount.read_only);
        let watch = |mount: &VolumeMount| {
            let place = vec![mount.host.clone()];
            Self::new(place, mount.bytes_max, VOLUME_INODES_MAX, Instant::now())
        };
        self.volumes = changed.map(watch).collect();
        self
    }

    pub(super) fn check_volumes(&mut self, now: Instant) -> Option<LimitHit> {
        let mut volumes = self.volumes.iter_mut();
        let hit = volumes.find_map(|volume| volume.check_own(now));
        hit.map(|_| LimitHit::Volume)
    }
}

/// Counts the bytes, files and directories in a volume, up to the first beyond these limits.
#[must_use]
pub fn volume_usage(place: &Path, bytes_max: u64) -> (u64, u64) {
    let count = Count::of(&[place.to_path_buf()], bytes_max, VOLUME_INODES_MAX);
    (count.bytes, count.inodes)
}
