//! Tests of reading the host, planning for it and watching it. Those that need a real sandbox
//! are end-to-end tests.

mod disk;
mod groups;
mod host;
mod leftovers;
mod mountinfo;
mod placement;
mod reclaim;
mod session;
#[path = "../../sys/src/tests/skipping.rs"]
pub(crate) mod skipping;
mod tree;

use std::path::{Path, PathBuf};

use atoll_model::network::Network;
use atoll_model::{
    Access, Boundary, Limits, SyscallRights, TerminalRights, View, ViewKind, WorkspaceMode,
};

use crate::{Host, MountPoint};

/// A host with only what a test gives it.
fn host() -> Host {
    Host {
        mounts: Vec::new(),
        groups: Vec::new(),
        landlock: 7,
        is_root: false,
        unmapped: false,
        uid: 1000,
        gid: 1000,
    }
}

fn mount(path: &Path, kind: &str, options: &str) -> MountPoint {
    MountPoint {
        path: path.to_path_buf(),
        kind: kind.to_owned(),
        options: options.into(),
    }
}

fn limits() -> Limits {
    Limits {
        tmp_bytes: 1 << 26,
        ..Limits::for_run(4 << 30)
    }
}

fn boundary(home: &Path, views: Vec<View>) -> Boundary {
    Boundary {
        mode: atoll_model::Mode::Full,
        profile: "test".to_owned(),
        workspace: WorkspaceMode::CopyOnWrite,
        home: home.to_path_buf(),
        views,
        volumes: Vec::new(),
        files: Vec::new(),
        environment: Vec::new(),
        limits: limits(),
        terminal: TerminalRights::default(),
        syscalls: SyscallRights::default(),
        programs: Vec::new(),
        root: false,
        system: None,
        nesting: false,
        outputs: None,
        inputs: atoll_model::Inputs::default(),
        network: Network::default(),
    }
}

fn view(host: impl Into<PathBuf>, kind: ViewKind) -> View {
    let host = host.into();
    View {
        inside: host.clone(),
        host,
        access: Access::ReadOnly,
        kind,
        required: true,
    }
}
