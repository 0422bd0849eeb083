//! The git repository of a workspace that is a linked worktree or a submodule.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use atoll_model::{Access, Boundary, Keep, Layering, View, ViewKind, WorkspaceMode};

use crate::Notice;
use crate::origin::{Origin, Sourced};
use crate::refusal::of_workspace;
use crate::rules::Rules;

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

impl Rules {
    /// Shows the repository of the workspace: in a layer if the workspace is, else read-only. It is
    /// treated as part of the workspace: if it could not be a workspace, it is not shown, with a
    /// notice. A view that is there already stays.
    pub fn show_repository(&mut self, workspace: &Path, shared: SharedRepository) {
        if self.views.contains_key(&shared.common) {
            return;
        }
        if let Some(refused) = of_workspace(self, &shared.common).first() {
            let why = format!("{}: {}", shared.common.display(), refused.why);
            self.tell_no_repository(workspace, &why);
            return;
        }
        let access = match self.workspace.value {
            WorkspaceMode::CopyOnWrite => Access::Layer(Layering { keep: Keep::Run }),
            WorkspaceMode::Live | WorkspaceMode::ReadOnly => Access::ReadOnly,
        };
        if self.workspace.value == WorkspaceMode::Live {
            let notice = unchanged(&shared.common, "in a live workspace");
            self.notices.push(notice);
        }
        let view = View {
            host: shared.common.clone(),
            inside: shared.common.clone(),
            access,
            kind: ViewKind::Repository,
            required: false,
        };
        let view = Sourced::built_in(view);
        self.views.insert(shared.common.clone(), view);
        self.repository = Some(shared);
    }

    /// Adds a notice on why git does not work in the sandbox, if the repository is not shown.
    pub fn tell_no_repository(&mut self, workspace: &Path, why: &str) {
        let text = format!(
            "git does not work in {}, whose repository lies outside and is not shown: {why}",
            workspace.display()
        );
        self.notice(text, Origin::BuiltIn);
    }

    /// Returns the workspace's repository, if it is shown separately.
    #[must_use]
    pub fn repository(&self) -> Option<&SharedRepository> {
        self.repository.as_ref()
    }
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

fn unchanged(common: &Path, place: &str) -> Notice {
    Notice {
        text: format!(
            "{place} the repository of this worktree ({}) can be read and not changed: git status, log \
             and diff work, git commit does not",
            common.display()
        ),
        origin: Origin::BuiltIn,
    }
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
