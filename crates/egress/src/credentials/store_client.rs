//! Client of the credential store outside the sandbox: what is sent to it, and what it sends.

use std::os::fd::AsFd;
use std::time::Duration;

use atoll_model::network::{CredentialName, LOGIN_FILE_BYTES_MAX};
use atoll_sys::socket;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::Egress;
use crate::control_channel::CommandMessage;

/// The longest time for the store to have a value ready, and for it to be written. The store waits
/// less than the first for another run.
pub(super) const READING: Duration = Duration::from_secs(50);
pub(super) const WRITING: Duration = Duration::from_secs(20);
/// The longest message, bytes: a file's tokens with each letter escaped.
const MESSAGE_BYTES_MAX: usize = 2 * LOGIN_FILE_BYTES_MAX;

/// A connection to the store.
pub(super) struct CredentialStoreClient {
    socket: UnixDatagram,
    /// The stored value, as it is called in messages.
    what: &'static str,
}

impl CredentialStoreClient {
    /// Connects to the store of this value of a credential.
    ///
    /// # Errors
    /// The reason why there is none.
    pub(super) async fn of(
        egress: &Egress,
        name: &CredentialName,
        what: &'static str,
    ) -> Result<Self, String> {
        let nobody = || format!("nobody keeps {what}");
        let mut heard = egress.control.renewal(name).map_err(|_| nobody())?;
        match heard.recv().await {
            Some(CommandMessage::Renewing(Some(socket))) => {
                let socket = UnixDatagram::from_std(socket.into()).map_err(|_| nobody())?;
                Ok(Self { socket, what })
            }
            Some(
                CommandMessage::Renewing(None)
                | CommandMessage::Running(_)
                | CommandMessage::Ran(_),
            )
            | None => Err(nobody()),
        }
    }

    /// Receives a message from the store, in this time.
    ///
    /// # Errors
    /// The reason why nothing was received.
    pub(super) async fn receive<T: DeserializeOwned>(
        &self,
        patience: Duration,
    ) -> Result<T, String> {
        let mut message = Zeroizing::new(vec![0; MESSAGE_BYTES_MAX]);
        let receive = || socket::receive(self.socket.as_fd(), &mut message);
        let received = timeout(patience, self.socket.async_io(Interest::READABLE, receive)).await;
        let late = |_| format!("{}: it took too long", self.what);
        let (got, _) = received.map_err(late)?.map_err(|_| self.gone())?;
        if got == 0 {
            return Err(self.gone());
        }
        let said = message.get(..got).unwrap_or_default();
        serde_json::from_slice(said).map_err(|_| self.unclear())
    }

    /// Sends a value to the store.
    ///
    /// # Errors
    /// The reason why it was not sent.
    pub(super) async fn send(&self, given: &impl Serialize) -> Result<(), String> {
        let mut message = Zeroizing::new(Vec::with_capacity(MESSAGE_BYTES_MAX));
        let written = serde_json::to_writer(&mut *message, given);
        written.map_err(|_| self.unclear())?;
        let send = || socket::send(self.socket.as_fd(), &message, &[]);
        let sent = self.socket.async_io(Interest::WRITABLE, send).await;
        sent.map_err(|_| self.gone())
    }

    /// Returns the reason for a message that is out of place.
    pub(super) fn unclear(&self) -> String {
        format!("who keeps {} says something unknown", self.what)
    }

    fn gone(&self) -> String {
        format!("nobody keeps {} any more", self.what)
    }
}
