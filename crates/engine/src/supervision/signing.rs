//! The transfer of SSH keys to the signing process, and the agent's socket for programs in the
//! sandbox.
//!
//! A private key is in this process only while its file is read: then it waits in the kernel,
//! as credentials do (see `handover.rs`). The connection to the person's agent is used by the
//! signing process only.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use atoll_model::network::{CARRIAGE_BYTES_MAX, CredentialName, Network, Signer, SshKeys};
use atoll_sys::socket;

use super::outside;

/// The name (argv 0) under which the signing process is started; the socket at descriptor 3
/// controls it.
pub(crate) const SIGNER: &CStr = c"atoll-signer";

/// The keys of a run: their public parts, and the socket with the private ones.
#[derive(Debug)]
pub struct SshHandover {
    keys: Vec<SshKeys>,
    agent: Option<OwnedFd>,
    receiver: OwnedFd,
    sender: OwnedFd,
    own: Vec<CredentialName>,
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
