//! The transfer of SSH keys to the signing process, and the agent's socket for programs in the
//! sandbox.
//!
//! A private key is in this process only while its file is read: then it waits in the kernel,
//! as credentials do (see `handover.rs`). The connection to the person's agent is used by the
//! signing process only.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use atoll_frame::Operation;
use atoll_model::Boundary;
use atoll_model::network::{
    CARRIAGE_BYTES_MAX, CredentialName, Network, SSH_AGENT, SSH_CONFIGURATION, SSH_DIRECTORY,
    Signer, SshKeys,
};
use atoll_sys::socket;

use crate::tree::{Plan, relative, source};
use crate::{Placement, SandboxError, outside};

/// The name (argv 0) with which this program is started as the signing process, controlled by
/// the socket at descriptor 3: a program that starts sandboxes with SSH keys has to handle it.
pub const SIGNER: &CStr = c"atoll-signer";

/// The keys of a run: their public parts, and the socket with the private ones.
#[derive(Debug)]
pub struct SshHandover {
    keys: Vec<SshKeys>,
    agent: Option<OwnedFd>,
    receiver: OwnedFd,
    sender: OwnedFd,
    own: Vec<CredentialName>,
}

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

impl SshHandover {
    /// Creates a bundle without keys.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new() -> io::Result<Self> {
        let (receiver, sender) = socket::pair()?;
        Ok(Self {
            keys: Vec::new(),
            agent: None,
            receiver,
            sender,
            own: Vec::new(),
        })
    }

    /// Takes a connection to the person's agent, which signs with its keys.
    pub fn take_agent(&mut self, connection: OwnedFd) {
        self.agent = Some(connection);
    }

    /// Adds the keys of a grant that the agent has.
    pub fn add(&mut self, keys: SshKeys) {
        self.keys.push(keys);
    }

    /// Adds the key of a grant that was read from a file; the caller must overwrite the text.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn add_own(&mut self, keys: SshKeys, text: &[u8]) -> io::Result<()> {
        socket::send(self.sender.as_fd(), text, &[])?;
        self.own.push(keys.name.clone());
        self.keys.push(keys);
        Ok(())
    }

    /// Returns the public keys.
    #[must_use]
    pub fn keys(&self) -> &[SshKeys] {
        &self.keys
    }

    /// Starts the signing process. Returns the socket for requests, and the process id.
    pub(crate) fn start(&self, network: &Network) -> io::Result<(OwnedFd, u32)> {
        let told = Signer {
            grants: network.ssh.clone(),
            keys: self.keys.clone(),
            has_agent: self.agent.is_some(),
            own: self.own.clone(),
        };
        let message = serde_json::to_vec(&told)?;
        if message.len() > CARRIAGE_BYTES_MAX {
            return Err(io::Error::other("there are too many keys of SSH"));
        }
        let (line, far) = socket::pair()?;
        let mut with: Vec<BorrowedFd<'_>> = vec![far.as_fd()];
        with.extend(self.agent.as_ref().map(AsFd::as_fd));
        with.extend((!self.own.is_empty()).then(|| self.receiver.as_fd()));
        let (start, pid) = outside::start(SIGNER, &message, &with)?;
        drop(start);
        Ok((line, pid))
    }
}
