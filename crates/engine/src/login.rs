//! Login files of agents: placeholders are put in their places, or the views that hold them are
//! not shown.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use atoll_model::{Access, Boundary, Mode, View, ViewKind};
use atoll_policy::{Holds, Login, Rules};
use atoll_sandbox::{HOME_FILE_BYTES_MAX, PlacedLayer, SandboxError, copies_beside};
use atoll_store::SettingsRecord;

use crate::PlaceError;
use crate::place::Placing;
use crate::repository;
use crate::supervision::{PlaceholderFile, furnish_login, has_changed};

/// The views of the boundary that are changed, by their paths in the sandbox.
#[derive(Default)]
pub(crate) struct Shown {
    /// Views that are not shown.
    pub(crate) hidden: Vec<PathBuf>,
    /// Views of single files, with the text shown instead.
    pub(crate) texts: Vec<(PathBuf, Vec<u8>)>,
}

/// Puts placeholders of login files into the layers, and removes the views in which there can
/// be none.
///
/// A file that does not exist is covered too: it may be created meanwhile.
///
/// # Errors
/// If a placeholder cannot be written.
pub(crate) fn place(
    placing: &mut Placing<'_>,
    boundary: &Boundary,
    layers: &mut Vec<PlacedLayer>,
) -> Result<Shown, PlaceError> {
    let mut shown = Shown::default();
    let all = with_copies(placing.request.rules)?;
    // Where each leads, looked up once for all files.
    let of_home = boundary.views.iter().filter(is_of_home);
    let led: Vec<(&View, PathBuf)> = of_home
        .filter_map(|view| Some((view, view.host.canonicalize().ok()?)))
        .collect();
    for login in &all {
        let Some((directory, file)) = real(login) else {
            continue;
        };
        // What a link leads to can be read by its own name.
        let target = file.canonicalize().ok();
        for (view, host) in &led {
            let is_led_to = target.as_ref().is_some_and(|to| to.starts_with(host));
            if !(file.starts_with(host) || is_led_to) || shown.hidden.contains(&view.inside) {
                continue;
            }
            let is_alone = view.host == login.file || *host == file;
            let layer = layers.iter().find(|layer| layer.inside == view.inside);
            match layer.filter(|layer| layer.lower == directory && !is_alone) {
                Some(layer) => {
                    cover(placing, login, layer)?;
                    let is_apart = target.as_ref().is_none_or(|to| *to == file || !is_led_to);
                    if !is_apart {
                        placing.notices.push(not_shown(view, login));
                        shown.hidden.push(view.inside.clone());
                    }
                }
                None => alone(placing, (boundary, view), (login, is_alone), &mut shown),
            }
        }
    }
    repository::place(placing, boundary, layers, &mut shown)?;
    let is_hidden = |inside: &PathBuf| shown.hidden.contains(inside);
    layers.retain(|layer| !is_hidden(&layer.inside));
    placing.layers.retain(|layer| !is_hidden(&layer.inside));
    Ok(shown)
}

/// Returns all login files, and the copies that exist beside them now.
pub(crate) fn with_copies(rules: &Rules) -> Result<Vec<Login>, SandboxError> {
    let mut all: Vec<Login> = rules.logins().cloned().collect();
    for login in rules.logins() {
        for file in copies_beside(&login.file)? {
            if !all.iter().any(|one| one.file == file) {
                all.push(login.copy(file));
            }
        }
    }
    Ok(all)
}

/// Handles a view without a layer that has the file at its top: a view of one settings file is
/// shown with the placeholder's text, any other not at all.
fn alone(
    placing: &mut Placing<'_>,
    (boundary, view): (&Boundary, &View),
    (login, is_alone): (&Login, bool),
    shown: &mut Shown,
) {
    let handover = placing.request.handover;
    let stands = handover.and_then(|handover| handover.stands_for(&login.file));
    let stood = stands.and_then(|stands| stands.stood.as_ref());
    let can_be = is_alone && boundary.mode == Mode::Full && view.access != Access::ReadOnly;
    let text = stands.and_then(|stands| stands.text.as_ref());
    let text = text.filter(|text| can_be && stood.is_some() && is_small(text));
    match text {
        Some(text) => shown.texts.push((view.inside.clone(), text.clone())),
        // Nothing of it is a secret.
        None if !is_alone && stood.is_some_and(|stood| !stood.has_secrets) => {}
        None => {
            if login.file.symlink_metadata().is_ok() {
                placing.notices.push(not_shown(view, login));
                shown.hidden.push(view.inside.clone());
            } else if is_alone {
                // It may come before the view is made.
                shown.hidden.push(view.inside.clone());
            }
        }
    }
}

fn is_small(text: &[u8]) -> bool {
    u64::try_from(text.len()).is_ok_and(|bytes| bytes <= HOME_FILE_BYTES_MAX)
}

/// Returns the directory and the path of a login file, without symbolic links.
pub(crate) fn real(login: &Login) -> Option<(PathBuf, PathBuf)> {
    let directory = login.file.parent()?.canonicalize().ok()?;
    let file = directory.join(login.file.file_name()?);
    Some((directory, file))
}

/// Returns whether a view shows a part of the person's home for a profile. A login file in any
/// other view is refused before anything starts.
fn is_of_home(view: &&View) -> bool {
    match view.kind {
        ViewKind::Home | ViewKind::Cache => true,
        ViewKind::System | ViewKind::Input | ViewKind::Repository => false,
    }
}

fn cover(placing: &mut Placing<'_>, login: &Login, layer: &PlacedLayer) -> Result<(), PlaceError> {
    let handover = placing.request.handover;
    let stands = handover.and_then(|handover| handover.stands_for(&login.file));
    let is_settings = matches!(login.holds, Holds::Settings(_));
    match login.file.file_name() {
        Some(name) => lay(placing, (name, is_settings), stands.cloned(), layer),
        None => Ok(()),
    }
}

/// Writes a placeholder file at the top of a layer, and notes it.
pub(crate) fn lay(
    placing: &mut Placing<'_>,
    (name, is_settings): (&OsStr, bool),
    stands: Option<PlaceholderFile>,
    layer: &PlacedLayer,
) -> Result<(), PlaceError> {
    let stands = stands.unwrap_or_default();
    let earlier = placing.layers.iter();
    let mut earlier = earlier.filter(|record| record.inside == layer.inside);
    if earlier.any(|record| is_taken_over(&record.settings, &layer.upper, name)) {
        // The run that goes on has made that of it.
        return Ok(());
    }
    furnish_login(layer, name, &stands, placing.base)?;
    let settings = is_settings.then(|| SettingsRecord {
        name: name.into(),
        stood: stands.stood.unwrap_or_default(),
    });
    // What is kept has noted it already.
    let mut kept = placing.kept.iter_mut();
    if let Some(kept) = kept.find(|kept| kept.is_at(&layer.inside)) {
        if let Some(settings) = settings {
            kept.stands(settings);
        }
        return Ok(());
    }
    let mut records = placing.layers.iter_mut();
    let record = records.find(|record| record.inside == layer.inside);
    if let Some(record) = record {
        if !record.logins.iter().any(|one| one == name) {
            record.logins.push(name.to_owned());
        }
        record.settings.retain(|one| one.name != Path::new(name));
        record.settings.extend(settings);
    }
    Ok(())
}

/// Returns whether a program has changed a settings file that had no keys in it: such a change
/// is like any other.
#[must_use]
pub fn is_taken_over(settings: &[SettingsRecord], upper: &Path, name: &OsStr) -> bool {
    let mut its = settings.iter().filter(|one| one.name == Path::new(name));
    its.any(|one| !one.stood.has_secrets && has_changed(upper, name, &one.stood))
}

fn not_shown(view: &View, login: &Login) -> String {
    let (inside, file) = (view.inside.display(), login.file.display());
    if view.host == login.file && matches!(login.holds, Holds::Settings(_)) {
        return format!(
            "{inside} is not shown: there are keys in it, and nothing else can stand in its place here"
        );
    }
    let why = match Path::parent(&login.file) == Some(view.host.as_path()) {
        true => "it has no layer here",
        false => "it is not at the top of a layer",
    };
    let kind = match login.holds {
        Holds::Login | Holds::Copies => "the login file",
        Holds::Settings(_) => "the file of settings with keys",
    };
    format!(
        "{inside} is not shown: {kind} {file} is in it, and {why}, so that nothing else can stand in its place"
    )
}
