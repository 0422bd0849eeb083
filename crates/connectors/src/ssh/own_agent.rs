//! The client of the person's own agent, which holds keys and signs (draft-ietf-sshm-ssh-agent).

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::ssh::key::is_signed_by_own;
use crate::ssh::wire::{Reader, Writer};

/// The failure messages of an agent: today's, and those of older agents.
const FAILURES: [u8; 3] = [5, 30, 102];
const REQUEST_IDENTITIES: u8 = 11;
const IDENTITIES_ANSWER: u8 = 12;
const SIGN_REQUEST: u8 = 13;
const SIGN_RESPONSE: u8 = 14;

/// The longest answer, bytes: the limit of OpenSSH.
const ANSWER_BYTES_MAX: usize = 256 << 10;
/// The most keys of an agent.
const IDENTITIES_MAX: usize = 1024;
/// The longest time an agent may take: it may ask its person, or wait for a touch.
const PATIENCE: Duration = Duration::from_secs(120);

/// A key of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The public key in wire format.
    pub key: Vec<u8>,
}

/// The reason for which an agent does not answer.
#[derive(Debug, thiserror::Error)]
pub enum OwnAgentError {
    /// A failed system call.
    #[error("it does not answer: {0}")]
    Kernel(#[from] io::Error),
    /// An answer that is not one of an agent.
    #[error("it answers something else than an agent does")]
    Form,
    /// A refusal to sign.
    #[error("it refuses to sign")]
    Refused,
    /// A signature that is not valid for the key and the data.
    #[error("its signature is not one of this key for this")]
    Unsigned,
}

/// A connection to the agent.
#[derive(Debug)]
pub struct OwnAgent(UnixStream);

impl OwnAgent {
    /// Connects to the agent at this socket.
    ///
    /// # Errors
    /// [`OwnAgentError::Kernel`].
    pub fn connect(path: &Path) -> Result<Self, OwnAgentError> {
        Self::of(UnixStream::connect(path)?)
    }

    /// Wraps a connection to an agent.
    ///
    /// # Errors
    /// [`OwnAgentError::Kernel`].
    pub fn from_connection(connection: OwnedFd) -> Result<Self, OwnAgentError> {
        Self::of(connection.into())
    }

    fn of(stream: UnixStream) -> Result<Self, OwnAgentError> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self(stream))
    }

    /// Returns the connection, to hand it to the signer.
    #[must_use]
    pub fn into_connection(self) -> OwnedFd {
        self.0.into()
    }

    /// Returns the keys of the agent.
    ///
    /// # Errors
    /// [`OwnAgentError`].
    pub fn identities(&mut self) -> Result<Vec<Identity>, OwnAgentError> {
        let answer = self.ask(&Writer::new().byte(REQUEST_IDENTITIES).done())?;
        read_identities(&answer).ok_or(OwnAgentError::Form)
    }

    /// Returns a signature by one of its keys, in wire format. After an error other than
    /// [`OwnAgentError::Refused`] an answer may still be on its way: the connection must not be
    /// used again.
    pub(crate) fn sign(
        &mut self,
        key: &[u8],
        data: &[u8],
        flags: u32,
    ) -> Result<Vec<u8>, OwnAgentError> {
        let asked = Writer::new().byte(SIGN_REQUEST).string(key).string(data);
        let answer = self.ask(&asked.number(flags).done())?;
        let mut reader = Reader::new(&answer);
        match reader.byte() {
            Some(SIGN_RESPONSE) => {}
            Some(other) if FAILURES.contains(&other) => return Err(OwnAgentError::Refused),
            Some(_) | None => return Err(OwnAgentError::Form),
        }
        let signature = reader.string().ok_or(OwnAgentError::Form)?;
        reader.end().ok_or(OwnAgentError::Form)?;
        match is_signed_by_own(key, signature, data) {
            true => Ok(signature.to_vec()),
            false => Err(OwnAgentError::Unsigned),
        }
    }

    fn ask(&mut self, message: &[u8]) -> Result<Vec<u8>, OwnAgentError> {
        self.0.write_all(&Writer::new().string(message).done())?;
        let mut length = [0; 4];
        self.0.read_exact(&mut length)?;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > ANSWER_BYTES_MAX {
            return Err(OwnAgentError::Form);
        }
        let mut answer = vec![0; length];
        self.0.read_exact(&mut answer)?;
        Ok(answer)
    }
}

fn read_identities(answer: &[u8]) -> Option<Vec<Identity>> {
    let mut reader = Reader::new(answer);
    if reader.byte()? != IDENTITIES_ANSWER {
        return None;
    }
    let count = usize::try_from(reader.number()?).ok()?;
    if count > IDENTITIES_MAX {
        return None;
    }
    let mut found = Vec::new();
    for _ in 0..count {
        let (key, _comment) = (reader.string()?.to_vec(), reader.string()?);
        found.push(Identity { key });
    }
    Some(found)
}
