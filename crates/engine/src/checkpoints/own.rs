//! Targets of checkpoints that are Atoll's own.

use std::path::{Path, PathBuf};

use atoll_checkpoint::Target;
use atoll_ledger::StateDir;

use super::UNREAD;
use crate::configuration::Places;
use crate::failure::{Doing, Failure};

/// Refuses what Atoll's own state lies in, or lies in it: a restore would take back what is on record.
pub(super) fn refuse(state: &StateDir, targets: &[Target]) -> Result<(), Failure> {
    let places = Places::read()?;
    let own = [state.path(), &places.state, &places.config].map(real);
    for target in targets {
        let (Target::Files { path } | Target::Sqlite { path } | Target::Git { path }) = target
        else {
            continue;
        };
        let path = real(&std::path::absolute(path).doing(UNREAD)?);
        let meets = |own: &PathBuf| path.starts_with(own) || own.starts_with(&path);
        if own.iter().any(meets) {
            return Err(Failure::new(format!("no checkpoint of {target} is taken"))
                .because("Atoll's own state or configuration is there"));
        }
    }
    Ok(())
}

/// Returns a path free of links, as far as there is something at it.
fn real(path: &Path) -> PathBuf {
    let at = |above: &Path| {
        let rest = path.strip_prefix(above).ok()?;
        Some(above.canonicalize().ok()?.join(rest))
    };
    let real = path.ancestors().find_map(at);
    real.unwrap_or_else(|| path.to_owned())
}
