//! The git repository of a workspace that is a linked worktree or a submodule.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use atoll_model::{Access, Boundary, Keep, Layering, View, ViewKind, WorkspaceMode};

use crate::Notice;
use crate::origin::{Origin, Sourced};
use crate::refusal::of_workspace;
use crate::rules::Rules;

/// The directory that all worktrees of the workspace's repository share, outside the workspace.
/// Whoever says so has made sure that it names the workspace back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedRepository {
    /// Where it is, free of symbolic links.
    pub common: PathBuf,
    /// The name of the workspace's own directory in `worktrees` there; none where the workspace
    /// is the only checkout.
    pub worktree: Option<OsString>,
    /// Its device and inode, when that was made sure.
    pub identity: (u64, u64),
}

impl Rules {
    /// Shows the repository of the workspace: changed in a layer where the workspace is, otherwise
    /// for reading. It is a part of the workspace: where that could not be, it is not shown either,
    /// which is told; what is shown there already stays as it is.
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

    /// Says why git does not work inside, where the workspace's repository is not shown.
    pub fn tell_no_repository(&mut self, workspace: &Path, why: &str) {
        let text = format!(
            "git does not work in {}, whose repository lies outside and is not shown: {why}",
            workspace.display()
        );
        self.notice(text, Origin::BuiltIn);
    }

    /// The workspace's repository, where that is shown besides.
    #[must_use]
    pub fn repository(&self) -> Option<&SharedRepository> {
        self.repository.as_ref()
    }
}

fn is_repository(view: &View) -> bool {
    view.kind == ViewKind::Repository
}

/// Leaves the repository out for a program without namespaces, and says so: there what was looked
/// at is found again only by its path, where something else may be.
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

/// The same boundary without the repository, where it has one, and what is told of that where
/// policies do not let it be shown.
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
