//! The git repository of a workspace that is a linked worktree or a submodule.

use std::ffi::OsString;
use std::path::PathBuf;

use atoll_model::{Boundary, View, ViewKind};

use crate::Notice;
use crate::origin::Origin;

/// The directory outside the workspace that all worktrees of its repository share. The caller has
/// checked that it names the workspace back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedRepository {
    /// The directory's path, free of symbolic links.
    pub common: PathBuf,
    /// The name of the workspace's own directory in `worktrees` there; `None` if the workspace is
    /// the only checkout.
    pub worktree: Option<OsString>,
    /// The directory's device and inode at the time of that check.
    pub identity: (u64, u64),
}

fn is_repository(view: &View) -> bool {
    view.kind == ViewKind::Repository
}

/// Removes the repository from a fence's boundary, and returns a notice of that: without namespaces
/// the checked directory is found again only by its path, where something else may be by then.
pub(crate) fn in_a_fence(boundary: &mut Boundary) -> Option<Notice> {
    let common = boundary.views.iter().find(|view| is_repository(view))?;
    let text = format!(
        "git does not work in this worktree: in a fence its repository {} is not shown",
        common.host.display()
    );
    boundary.views.retain(|view| !is_repository(view));
    let origin = Origin::BuiltIn;
    Some(Notice { text, origin })
}

/// Returns the boundary without the repository if it has one, with the notice for policies that
/// refuse it.
pub(crate) fn without(boundary: &Boundary) -> Option<(Boundary, Notice)> {
    let mut without = boundary.clone();
    let common = boundary.views.iter().find(|view| is_repository(view))?;
    without.views.retain(|view| !is_repository(view));
    let text = format!(
        "git does not work in this worktree: policies do not let its repository {} be shown and \
         changed",
        common.host.display()
    );
    let origin = Origin::BuiltIn;
    Some((without, Notice { text, origin }))
}
