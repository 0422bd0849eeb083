//! The beginning of a connection that is tunnelled as it is: its first bytes are read until they
//! name the host that they are for. Where the server answers with a HelloRetryRequest (RFC 8446,
//! 4.1.4), the second ClientHello is read too.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use atoll_model::network::{HostName, HostPart};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::credentials::Credentials;
use crate::hello::{self, Hello};
use crate::limits::{BudgetShare, Direction, Excess, passed};
use crate::scan::Scan;
use crate::secret::Found;

/// The longest time a program may take over the whole ClientHello, once some of it is there: no
/// part of it is sent on before.
const HELLO_PATIENCE: Duration = Duration::from_secs(10);
/// The longest silence of the program after a HelloRetryRequest.
const AGAIN_PATIENCE: Duration = Duration::from_secs(30);
/// The longest ClientHello that is read, bytes.
const HELLO_BYTES_MAX: usize = 64 * 1024;
/// The number of bytes read at once.
const BLOCK_BYTES: usize = 4 * 1024;

/// The reason for which a connection ended before both sides had ended it.
#[derive(Debug)]
pub enum StopReason {
    /// Another host than the program asked for.
    ForAnother(String),
    /// A failed operation.
    Failed(String),
    /// An exceeded limit of its rule.
    Beyond(Excess),
    /// A credential's placeholder in what the program would send.
    Carries {
        /// The placeholder that was found.
        found: Found,
        /// The part of the flow it was in, in words.
        place: &'static str,
    },
}

impl StopReason {
    /// Returns the reason as a sentence.
    pub fn why(self) -> String {
        match self {
            Self::ForAnother(why) | Self::Failed(why) => why,
            Self::Beyond(excess) => excess.why(),
            Self::Carries { found, .. } => found.to_string(),
        }
    }
}

impl From<Found> for StopReason {
    fn from(found: Found) -> Self {
        let place = "what the program sends by a tunnel";
        Self::Carries { found, place }
    }
}

impl From<Excess> for StopReason {
    fn from(excess: Excess) -> Self {
        Self::Beyond(excess)
    }
}

impl From<io::Error> for StopReason {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Both sides of a connection at its beginning.
pub(crate) struct Opening<'a> {
    pub(crate) program: &'a mut TcpStream,
    pub(crate) server: &'a mut TcpStream,
    /// Bytes that were read from the program and not sent on yet.
    pub(crate) held: Vec<u8>,
    /// The bytes carried from the program.
    pub(crate) up: &'a AtomicU64,
    /// The bytes carried to the program.
    pub(crate) down: &'a AtomicU64,
    /// Its part of its rule's budget, where the rule has limits.
    pub(crate) part: Option<&'a BudgetShare>,
    /// The scans of outgoing and of incoming bytes.
    pub(crate) scans: &'a mut [Scan; 2],
}

/// The hosts that the first bytes may be for.
#[derive(Clone, Copy)]
enum AllowedHosts<'a> {
    /// The host of this name alone.
    One(&'a HostName),
    /// Any host at an address, except one that issues tokens of a login.
    NoIssuer(&'a Credentials),
    /// Any host at an address: the bytes are read for placeholders only.
    Anyone,
}

impl AllowedHosts<'_> {
    /// Returns the reason for which these bytes are for another host, where they are.
    fn refuses(self, hello: &Hello) -> Option<String> {
        match (self, hello) {
            (Self::One(name), hello) => hello
                .is_for_another(name)
                .then(|| format!("the connection is for another host than {name}: {hello}")),
            (Self::NoIssuer(credentials), Hello::Tls(Some(name))) => {
                let login = credentials.issued_by(name)?;
                Some(format!(
                    "{hello}, which issues tokens of login {login}: nobody would look for them in a tunnel"
                ))
            }
            (Self::NoIssuer(_), Hello::Malformed) => Some(format!(
                "{hello}, and tokens of a login could come in by it"
            )),
            (Self::NoIssuer(_), Hello::Other | Hello::Partial | Hello::Tls(None))
            | (Self::Anyone, _) => None,
        }
    }
}

impl Opening<'_> {
    /// Waits until either side sends. The program's first bytes are sent on if they are for no host
    /// but the one it asked for; to an address, if they name no host that issues tokens of a login.
    pub(crate) async fn pass(
        mut self,
        host: &HostPart,
        credentials: &Credentials,
    ) -> Result<(), StopReason> {
        let whom = match host {
            HostPart::Name(name) => AllowedHosts::One(name),
            HostPart::Address(_) if credentials.are_issued() => AllowedHosts::NoIssuer(credentials),
            HostPart::Address(_) if credentials.placeholders().is_some() => AllowedHosts::Anyone,
            HostPart::Address(_) => return self.send(self.held.len()).await,
        };
        if self.held.is_empty() {
            // Not by readiness: that may be told when there is nothing to read.
            let mut seen = [0];
            self.held.reserve(BLOCK_BYTES);
            tokio::select! {
                got = self.program.read_buf(&mut self.held) => got?,
                peeked = self.server.peek(&mut seen) => return peeked.map(drop).map_err(StopReason::from),
            };
        }
        match self.hello(whom, 0).await? {
            Hello::Tls(_) => self.begin_tls(whom).await,
            Hello::Other | Hello::Partial | Hello::Malformed => self.send(self.held.len()).await,
        }
    }

    /// Reads until the bytes from this offset are known to be a ClientHello, or not.
    async fn hello(&mut self, whom: AllowedHosts<'_>, after: usize) -> Result<Hello, StopReason> {
        let late = Instant::now() + HELLO_PATIENCE;
        let hello = loop {
            let bytes = self.held.get(after..).unwrap_or_default();
            match hello::read(bytes) {
                Hello::Partial if bytes.len() < HELLO_BYTES_MAX => {}
                Hello::Partial => break Hello::Malformed,
                hello => break hello,
            }
            if self.read(late).await? == 0 {
                break Hello::Partial;
            }
        };
        if let Some(why) = whom.refuses(&hello) {
            return Err(StopReason::ForAnother(why));
        }
        if hello != Hello::Other {
            let [out, _] = &*self.scans;
            let bytes = self.held.get(after..).unwrap_or_default();
            // As it is sent, and as it is read where it lies in several records.
            for text in [bytes, &hello::message(bytes).0] {
                let place = "the beginning of TLS";
                out.apart(text)
                    .map_err(|found| StopReason::Carries { found, place })?;
            }
        }
        Ok(hello)
    }

    /// Sends the ClientHello, and waits for the server's answer: only then is it known whether
    /// there will be a second one.
    async fn begin_tls(mut self, whom: AllowedHosts<'_>) -> Result<(), StopReason> {
        let Some(end) = hello::end(&self.held) else {
            return Err(StopReason::Failed(
                "the beginning of TLS has no end".to_owned(),
            ));
        };
        self.send(end).await?;
        if self.asks_again().await? {
            let begin = self.second_begins().await?;
            if self.held.get(begin) == Some(&hello::ALERT) {
                let why = "the program broke TLS off where it was to begin again";
                return Err(StopReason::Failed(why.to_owned()));
            }
            match self.hello(whom, begin).await? {
                Hello::Tls(_) => {}
                Hello::Other | Hello::Partial | Hello::Malformed => {
                    let why = "TLS was to begin again, and did not";
                    return Err(StopReason::Failed(why.to_owned()));
                }
            }
        }
        self.send(self.held.len()).await
    }

    /// Returns whether the server asks for a second ClientHello. Its bytes are passed on.
    async fn asks_again(&mut self) -> Result<bool, StopReason> {
        let mut said = Vec::with_capacity(BLOCK_BYTES);
        let mut masked = Vec::new();
        let asks = loop {
            if let Some(asks) = hello::asks_again(&said) {
                break asks;
            }
            let before = said.len();
            if self.server.read_buf(&mut said).await? == 0 {
                break false;
            }
            let new = said.get(before..).unwrap_or_default();
            passed(self.part, Direction::Down, new.len()).await?;
            let [_, back] = &mut *self.scans;
            let on = back.at(new, false, &mut masked)?;
            self.program.write_all(on).await?;
            self.down.fetch_add(on.len() as u64, Ordering::Relaxed);
        };
        if asks {
            // The program waits for all of it; else what is held back goes on later.
            let [_, back] = &mut *self.scans;
            let rest = back.end();
            self.program.write_all(&rest).await?;
            self.down.fetch_add(rest.len() as u64, Ordering::Relaxed);
        }
        Ok(asks)
    }

    /// Returns the offset of the second ClientHello in the program's further bytes: early data, and
    /// a record for middlebox compatibility, may come before it.
    async fn second_begins(&mut self) -> Result<usize, StopReason> {
        let mut at = 0;
        loop {
            let late = Instant::now() + AGAIN_PATIENCE;
            let rest = self.held.get(at..).unwrap_or_default();
            match hello::passes_over(rest) {
                Some(0) => return Ok(at),
                Some(length) => at += length,
                None if self.held.len() > HELLO_BYTES_MAX => {
                    // What was sent too early is nobody's any more.
                    self.send(at).await?;
                    at = 0;
                    if self.read(late).await? == 0 {
                        return Ok(at);
                    }
                }
                None => {
                    if self.read(late).await? == 0 {
                        return Ok(at);
                    }
                }
            }
        }
    }

    async fn read(&mut self, late: Instant) -> Result<usize, StopReason> {
        match timeout_at(late, self.program.read_buf(&mut self.held)).await {
            Ok(got) => Ok(got?),
            Err(_) => Err(StopReason::Failed(
                "the beginning of TLS took too long".to_owned(),
            )),
        }
    }

    /// Sends on this many of the bytes that are held.
    async fn send(&mut self, count: usize) -> Result<(), StopReason> {
        let first: Vec<u8> = self.held.drain(..count).collect();
        let [out, _] = &mut *self.scans;
        out.at(&first, true, &mut Vec::new())?;
        passed(self.part, Direction::Up, first.len()).await?;
        self.server.write_all(&first).await?;
        self.up.fetch_add(first.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
