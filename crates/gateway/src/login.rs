//! Login files of agents: something else stands in their places, or what holds them is not
//! shown.

use std::path::{Path, PathBuf};

use atoll_model::{Boundary, View, ViewKind};
use atoll_policy::Login;
use atoll_sandbox::{PlacedLayer, furnish_login};

use crate::PlaceError;
use crate::place::Placing;

/// Puts into the layers what stands for login files, and takes out of them those views in
/// which nothing can. Returns which views are not shown, by their paths inside.
///
/// A file that is not there has its place covered too: it may come meanwhile.
///
/// # Errors
/// Where what stands for one cannot be laid down.
pub(crate) fn place(
    placing: &mut Placing<'_>,
    boundary: &Boundary,
    layers: &mut Vec<PlacedLayer>,
) -> Result<Vec<PathBuf>, PlaceError> {
    let mut hidden = Vec::new();
    let rules = placing.request.rules;
    for login in rules.logins() {
        let Some((directory, file)) = real(login) else {
            continue;
        };
        for view in boundary.views.iter().filter(is_of_home) {
            let Ok(host) = view.host.canonicalize() else {
                continue;
            };
            if !file.starts_with(&host) || hidden.contains(&view.inside) {
                continue;
            }
            let layer = layers.iter().find(|layer| layer.inside == view.inside);
            match layer.filter(|layer| layer.lower == directory) {
                Some(layer) => cover(placing, login, layer)?,
                None if file.symlink_metadata().is_ok() => {
                    placing.notices.push(not_shown(view, login));
                    hidden.push(view.inside.clone());
                }
                None => {}
            }
        }
    }
    layers.retain(|layer| !hidden.contains(&layer.inside));
    placing
        .layers
        .retain(|layer| !hidden.contains(&layer.inside));
    Ok(hidden)
}

/// Where a login file really is, and its directory.
pub(crate) fn real(login: &Login) -> Option<(PathBuf, PathBuf)> {
    let directory = login.file.parent()?.canonicalize().ok()?;
    let file = directory.join(login.file.file_name()?);
    Some((directory, file))
}

/// Whether a view is of the person's home as a profile gives it: what else holds a login file
/// is refused before anything starts.
fn is_of_home(view: &&View) -> bool {
    match view.kind {
        ViewKind::Home | ViewKind::Cache => true,
        ViewKind::System | ViewKind::Input => false,
    }
}

fn cover(placing: &mut Placing<'_>, login: &Login, layer: &PlacedLayer) -> Result<(), PlaceError> {
    let handover = placing.request.handover;
    let text = handover.and_then(|handover| handover.stands_for(&login.file));
    let Some(name) = login.file.file_name() else {
        return Ok(());
    };
    furnish_login(layer, name, text, placing.base)?;
    // What is kept has noted it already.
    let mut kept = placing.kept.iter();
    if kept.any(|kept| kept.is_at(&layer.inside)) {
        return Ok(());
    }
    let mut records = placing.layers.iter_mut();
    let record = records.find(|record| record.inside == layer.inside);
    if let Some(record) = record
        && !record.logins.iter().any(|one| one == name)
    {
        record.logins.push(name.to_owned());
    }
    Ok(())
}

fn not_shown(view: &View, login: &Login) -> String {
    let why = match Path::parent(&login.file) == Some(view.host.as_path()) {
        true => "it has no layer here",
        false => "it is not at the top of a layer",
    };
    format!(
        "{} is not shown: the login file {} is in it, and {why}, so that nothing else can stand in its place",
        view.inside.display(),
        login.file.display()
    )
}
