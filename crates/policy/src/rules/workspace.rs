//! Places that cannot be workspaces.

use std::path::Path;

use atoll_model::{Access, Reason, View, ViewKind};

use super::Rules;
use crate::origin::{Origin, Sourced};
use crate::places;
use crate::places::overlap;
use crate::refusal::{denial, reason};

const BUILT_IN: &str = "built in";

const CHOOSE_ANOTHER: &str = "start it in a project's own directory, or name one with --workspace";

/// Returns the reasons why a directory cannot be a workspace.
pub(crate) fn of_workspace(rules: &Rules, workspace: &Path) -> Vec<Reason> {
    let what = format!("the workspace {}", workspace.display());
    let mut reasons = Vec::new();
    if let Some(why) = fixed(rules, workspace) {
        reasons.push(reason(what.clone(), why, &BUILT_IN, CHOOSE_ANOTHER));
    }
    if let Some(refusal) = in_the_system(rules, workspace) {
        reasons.push(refusal);
    }
    for denied in &rules.denied_places {
        if let Some(why) = denial(denied, workspace) {
            reasons.push(reason(
                what.clone(),
                why,
                &denied.origin,
                "choose another directory, or ask who wrote that rule",
            ));
        }
    }
    // Of a directory that can be none anyway that is no further reason.
    if let Some(view) = rules.views.get(workspace)
        && reasons.is_empty()
    {
        let instead = match view.origin {
            Origin::CommandLine(_) => "leave that option out: the workspace is shown without it",
            Origin::File { .. } | Origin::BuiltIn => "work elsewhere, or use another profile",
        };
        let why = "the same directory is shown in another way already";
        reasons.push(reason(what, why, &view.origin, instead));
    }
    reasons.extend(of_writable(rules, workspace));
    reasons
}

/// Returns refusals of further directories to change that overlap the workspace: a file in both would
/// have two layers.
fn of_writable(rules: &Rules, workspace: &Path) -> Vec<Reason> {
    let is_layer =
        |view: &View| view.kind == ViewKind::Input && matches!(view.access, Access::Layer(_));
    let layers = rules.views.values().filter(|view| is_layer(&view.value));
    let overlapping = layers.filter(|view| overlap(&view.value.host, workspace));
    overlapping
        .map(|view| {
            reason(
                format!("{} {}", view.origin, view.value.host.display()),
                "it is in the workspace or around it",
                &BUILT_IN,
                "leave it out: the workspace can be changed; or choose --workspace",
            )
        })
        .collect()
}

/// Returns the refusal of a workspace in a system directory for a run by root, which sees these
/// directories as parts of one read-only overlay, in which no workspace can be mounted.
fn in_the_system(rules: &Rules, workspace: &Path) -> Option<Reason> {
    let is_above = |view: &&Sourced<View>| {
        let above = &view.value.inside;
        view.value.kind == ViewKind::System && workspace != above && workspace.starts_with(above)
    };
    let above = rules.views.values().find(is_above)?;
    (rules.host.uid == 0).then(|| {
        let system = above.value.inside.display();
        reason(
            format!("the workspace {}", workspace.display()),
            format!(
                "it lies in {system}, a directory of the system, which is read-only as a whole \
                 for what root starts"
            ),
            &above.origin,
            format!(
                "work on a copy: cp -a {} /srv/, then --workspace there; or start Atoll as the \
                 ordinary user that owns it",
                workspace.display()
            ),
        )
    })
}

fn fixed(rules: &Rules, workspace: &Path) -> Option<&'static str> {
    if !places::is_plain_absolute(workspace) {
        return Some("it is not an absolute path free of `.` and `..`");
    }
    if places::SYSTEM
        .iter()
        .any(|system| workspace == Path::new(system))
    {
        return Some("it is a directory of the operating system");
    }
    places::forbidden_here(workspace, &rules.host)
}
