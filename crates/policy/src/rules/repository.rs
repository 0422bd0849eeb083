//! The git repository of a workspace, by rules.

use std::path::Path;

use atoll_model::{Access, Keep, Layering, View, ViewKind, WorkspaceMode};

use super::workspace::of_workspace;
use crate::Notice;
use crate::origin::{Origin, Sourced};
use crate::repository::SharedRepository;

use super::Rules;

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
