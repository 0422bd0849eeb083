//! Fallbacks for file systems that lack a feature: a copy in place of a layer, or read-only
//! where a copy is not worth it.

use std::path::{Path, PathBuf};

use atoll_model::{Boundary, ViewKind, WorkspaceMode};
use atoll_sandbox::{Host, unmapped_mounts};

/// File systems that can hold the upper directory of an overlay, with its extended attributes.
const UPPER_FILE_SYSTEMS: [&str; 6] = ["ext4", "ext3", "xfs", "btrfs", "tmpfs", "f2fs"];

/// Returns whether copy-on-write layers can be kept in this directory; otherwise the workspace
/// is copied.
#[must_use]
pub fn holds_layers(host: &Host, state: &Path) -> bool {
    let on = host.mount_of(state);
    on.is_some_and(|on| UPPER_FILE_SYSTEMS.contains(&on.kind.as_str()))
}

/// The features of this host's file systems, for one run.
pub(crate) struct Offered<'a> {
    host: &'a Host,
    state: &'a Path,
    /// True if the state directory can hold an overlay's upper directory.
    state_holds_layers: bool,
    /// Mounts whose owners cannot be mapped.
    pub(crate) unmapped: Vec<PathBuf>,
    /// Directories that should have had a layer and are read-only.
    read_only: Vec<PathBuf>,
}

impl<'a> Offered<'a> {
    pub(crate) fn new(
        host: &'a Host,
        state: &'a Path,
        boundary: &Boundary,
        workspace: &Path,
    ) -> Self {
        Self {
            host,
            state,
            state_holds_layers: holds_layers(host, state),
            unmapped: unmapped_mounts(host, boundary, workspace),
            read_only: Vec::new(),
        }
    }

    /// Returns whether a directory can be the lower one of a layer.
    pub(crate) fn can_layer(&self, lower: &Path) -> bool {
        self.state_holds_layers && self.maps(lower)
    }

    /// Returns whether a path's files can be shown as the person's own.
    pub(crate) fn maps(&self, path: &Path) -> bool {
        let on = self.host.mount_of(path);
        !on.is_some_and(|mount| self.unmapped.contains(&mount.path))
    }

    /// Explains why a path cannot be shown as the person's own.
    pub(crate) fn why_unmapped(&self, path: &Path) -> String {
        if self.host.unmapped {
            "no user namespace can be made here, without which no files are shown with other \
             owners"
                .to_owned()
        } else {
            let kind = self.host.mount_of(path).map_or("?", |mount| &mount.kind);
            format!("it is on {kind}, which cannot show its files with other owners")
        }
    }

    /// Explains why there is no layer over a directory.
    pub(crate) fn why_no_layer(&self, lower: &Path) -> String {
        if self.state_holds_layers {
            self.why_unmapped(lower)
        } else {
            format!(
                "{} cannot hold one; set XDG_STATE_HOME to a directory on ext4, xfs, btrfs or tmpfs",
                self.state.display()
            )
        }
    }

    /// Explains why the workspace was copied, where [`Offered::notices`] does not.
    pub(crate) fn why_copied(&self, workspace: &Path) -> Option<String> {
        if self.host.unmapped {
            None
        } else if self.state_holds_layers {
            let kind = self
                .host
                .mount_of(workspace)
                .map_or("?", |mount| &mount.kind);
            Some(format!(
                "{} is on {kind}, which cannot show its files with other owners, so the \
                 workspace was copied; a workspace on ext4, xfs or btrfs avoids that",
                workspace.display()
            ))
        } else {
            Some(format!(
                "{} cannot hold a copy-on-write layer, so the workspace was copied; set \
                 XDG_STATE_HOME to a directory on ext4, xfs, btrfs or tmpfs to avoid that",
                self.state.display()
            ))
        }
    }

    /// Notes a directory that has no layer.
    pub(crate) fn without_layer(&mut self, path: &Path) {
        self.read_only.push(path.to_path_buf());
    }

    /// Returns notices about views, at most one line for each reason; and one if there is no
    /// user namespace, so that the program runs as Atoll's own user `base`.
    pub(crate) fn notices(&self, boundary: &Boundary, base: Option<u32>) -> Vec<String> {
        let mut notices = Vec::new();
        if let Some(base) = base.filter(|_| self.host.unmapped) {
            let workspace = match boundary.workspace {
                WorkspaceMode::CopyOnWrite | WorkspaceMode::Live => "works on a copy",
                WorkspaceMode::ReadOnly => "reads only what everybody may",
            };
            notices.push(format!(
                "no user namespace can be made here, so that the program is the host's user \
                 {base} and {workspace}; `atoll doctor` says how to get more"
            ));
        }
        if !self.read_only.is_empty() {
            notices.push(format!(
                "no layer can be made here for {}: shown read-only",
                list(&self.read_only)
            ));
        }
        let owned = boundary.views.iter().filter(|view| {
            // Asked of the kernel only where it matters.
            let is_asked = !self.unmapped.is_empty() && view.kind != ViewKind::System;
            let led = is_asked.then(|| view.host.canonicalize().ok()).flatten();
            led.is_some_and(|path| !self.maps(&path))
        });
        let owned: Vec<PathBuf> = owned.map(|view| view.inside.clone()).collect();
        if !owned.is_empty() {
            notices.push(format!(
                "owners cannot be mapped on {}: shown as it is, so that what only its owner may \
                 read cannot be read inside",
                list(&owned)
            ));
        }
        notices
    }
}

fn list(paths: &[PathBuf]) -> String {
    let names: Vec<String> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    names.join(", ")
}
