//! Warnings about changes that an apply leaves in the layer.

use atoll_layer::{ChangeKind, ChangeSet, Plan, RelativePath};

use super::Work;
use crate::changes::{self, LayerChanges};
use crate::notice::Notice;
use crate::printable::printable;
use crate::undo_report::UndoReport;

/// The advice on new files that cannot be given to the workspace's owner, since they are in another
/// user's directory.
const FOREIGN_OWNER: &str = "a new file is for whoever owns the workspace, and lies in a \
    directory of somebody else's: atoll diff shows it, and its owner can copy it by hand";

impl Work<'_> {
    /// Tells of the paths that force will overwrite.
    pub(super) fn tell_force(&self, report: &UndoReport, force: bool, command: &str) {
        if force && !report.changed.is_empty() {
            self.surface.notice(Notice::Overwriting {
                report: Box::new(report.clone()),
                command: command.to_owned(),
            });
        }
    }

    /// Warns of the changes that are not applied, by the paths that people know.
    pub(super) fn tell_refused(&self, one: &LayerChanges, plan: &Plan) {
        let shown = |path: &RelativePath| printable(&changes::shown_path(one, path.as_bytes()));
        for refusal in &plan.refused {
            let (path, why) = (shown(&refusal.path), &refusal.why);
            self.surface.warn(format!("not applied: {path}: {why}"));
        }
        let mut refused = plan.refused.iter();
        if refused.any(|one| one.why.starts_with("foreign")) {
            self.surface.warn(FOREIGN_OWNER.to_owned());
        }
        if !plan.held_control.is_empty() {
            let names: Vec<String> = plan.held_control.iter().map(shown).collect();
            self.surface.warn(format!(
                "not applied without --control, because other programs run them: {}",
                names.join(", ")
            ));
        }
        let unremoved: Vec<String> = plan.unremoved.iter().map(shown).collect();
        if let Some(text) = unremoved_told(&unremoved) {
            self.surface.warn(text);
        }
    }

    /// Warns of a repository made in the sandbox whose configuration is held back: git does not
    /// recognise it then.
    pub(super) fn tell_unwhole(&self, plan: &Plan, set: &ChangeSet) {
        let is_new = |path: &RelativePath| {
            let mut changes = set.changes.iter();
            changes.any(|one| one.path == *path && one.kind == ChangeKind::Added)
        };
        let held = plan.held_control.iter().filter(|path| is_new(path));
        let of_git = held.map(ToString::to_string).find_map(|path| {
            let place = path.strip_suffix(".git/config")?;
            let is_whole = place.is_empty() || place.ends_with('/');
            is_whole.then(|| place.trim_end_matches('/').to_owned())
        });
        if let Some(place) = of_git {
            let (name, config) = match place.as_str() {
                "" => ("this repository", ".git/config".to_owned()),
                name => (name, format!("{name}/.git/config")),
            };
            self.surface.warn(format!(
                "{name} is not whole without {config}, which can name programs for git to run: look at \
                 it, then apply with --control"
            ));
        }
    }
}

/// The most paths named of those that stay.
const NAMES_MAX: usize = 16;

/// Returns the warning about entries that stay because something is left out.
pub(crate) fn unremoved_told(paths: &[String]) -> Option<String> {
    let names: Vec<&str> = paths.iter().take(NAMES_MAX).map(String::as_str).collect();
    let more = match paths.len().saturating_sub(names.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let names = names.join(", ");
    (!names.is_empty()).then(|| {
        format!(
            "not removed or replaced: {names}{more}: what is not applied may be their content, \
             moved; apply that too (--caches, --ignored, --control), or these paths alone"
        )
    })
}
