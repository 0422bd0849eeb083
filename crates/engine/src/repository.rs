//! The configuration of the workspace's repository, if that lies outside the workspace: secrets
//! in it do not enter the sandbox.

use atoll_layer::{Configuration, configurations};
use atoll_model::{Boundary, PlaceholderState, ViewKind};
use atoll_sandbox::PlacedLayer;

use crate::PlaceError;
use crate::login::{Shown, lay};
use crate::place::Placing;
use crate::supervision::{PlaceholderFile, settings_digest};

/// Writes placeholders of the repository's configuration into its layer. If that fails, or
/// there is no layer and there are secrets, the repository is not shown, with a notice.
pub(crate) fn place(
    placing: &mut Placing<'_>,
    boundary: &Boundary,
    layers: &[PlacedLayer],
    shown: &mut Shown,
) -> Result<(), PlaceError> {
    let mut views = boundary.views.iter();
    let view = views.find(|view| view.kind == ViewKind::Repository);
    let (Some(view), Some(repository)) = (view, placing.request.rules.repository()) else {
        return Ok(());
    };
    let layer = layers.iter().find(|layer| layer.inside == view.inside);
    let why = match (
        configurations(&repository.common, repository.identity),
        layer,
    ) {
        (Ok(all), Some(layer)) => {
            return all.into_iter().try_for_each(|one| {
                let name = one.name.clone();
                lay(placing, (&name, true), Some(stands(one)), layer)
            });
        }
        (Ok(all), None) => match all.iter().find(|one| one.has_secrets) {
            None => return Ok(()),
            Some(one) => format!(
                "there are secrets in its {}, and it has no layer here, so that nothing else can stand \
                 in its place",
                one.name.display()
            ),
        },
        (Err(error), _) => error.to_string(),
    };
    placing.notices.push(format!(
        "git does not work in this worktree, whose repository {} is not shown: {why}",
        view.host.display()
    ));
    shown.hidden.push(view.inside.clone());
    Ok(())
}

fn stands(one: Configuration) -> PlaceholderFile {
    PlaceholderFile {
        mode: one.text.is_some().then_some(one.mode),
        stood: Some(PlaceholderState {
            digest: one.text.as_deref().map(settings_digest),
            has_secrets: one.has_secrets,
        }),
        text: one.text,
    }
}
