//! The files of ssh in a sandbox, and the agent's socket.

use std::path::Path;

use atoll_frame::Operation;
use atoll_model::Boundary;
use atoll_model::network::{SSH_AGENT, SSH_CONFIGURATION, SSH_DIRECTORY};

use crate::tree::{Plan, relative, source};
use crate::{Placement, SandboxError};

impl Plan {
    /// Shows the files of ssh and git, and the agent's socket, which through a mount of its own
    /// leads to the listener outside. ssh without options finds its configuration in the usual
    /// place, unless the person has put something there.
    pub(crate) fn ssh(
        &mut self,
        ssh: &Path,
        boundary: &Boundary,
        placement: &Placement,
    ) -> Result<(), SandboxError> {
        let inside = Path::new(SSH_DIRECTORY);
        self.read_only(ssh, inside, false, placement)?;
        self.operations.push(Operation::ReadOnlyFile {
            path: relative(&inside.join(SSH_AGENT)),
            source: source(&ssh.join(SSH_AGENT))?,
            as_caller: false,
        });
        let home = boundary.home.join(".ssh");
        let touches = |path: &Path| path.starts_with(&home) || home.starts_with(path);
        let mut shown = boundary.views.iter().map(|view| view.inside.as_path());
        if !shown.any(|path| path != Path::new("/") && touches(path)) {
            let path = ssh.join(SSH_CONFIGURATION);
            let error = |error| SandboxError::Source { path, error };
            // ssh takes one that is the program's own alone, so it does not lead to the other.
            let content = std::fs::read(ssh.join(SSH_CONFIGURATION)).map_err(error)?;
            self.memory_file(&home.join(SSH_CONFIGURATION), content);
        }
        Ok(())
    }
}
