//! The beginning of a connection that is carried as it is: its first bytes are read until
//! they tell whom they are for. Where TLS begins twice, since the server asks the program
//! to (RFC 8446, 4.1.4), the second beginning is read too.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use atoll_model::network::{HostName, HostPart};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::credentials::Credentials;
use crate::hello::{self, Hello};
use crate::limits::{Excess, Part, Way, passed};
use crate::scan::Scan;
use crate::secret::Found;

/// How long a program may take over the first bytes of TLS, all together, once some are there: no
/// part of them is sent on before.
const HELLO_PATIENCE: Duration = Duration::from_secs(10);
/// How long it may say nothing where a server asks it to begin again.
const AGAIN_PATIENCE: Duration = Duration::from_secs(30);
/// The longest beginning of TLS that is read, bytes.
const HELLO_BYTES_MAX: usize = 64 * 1024;
/// How much is read at once, bytes.
const BLOCK_BYTES: usize = 4 * 1024;

/// Why a connection ended before both sides had ended it.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It was for another host than was asked for.
    ForAnother(String),
    /// Something went wrong.
    Failed(String),
    /// Its rule allows no more.
    Beyond(Excess),
    /// The program would send what stands for a credential: which, and in what it was seen.
    Carries {
        /// It.
        found: Found,
        /// In what, in words.
        place: &'static str,
    },
}

impl Stop {
    /// Why, in words.
    pub(crate) fn why(self) -> String {
        match self {
            Self::ForAnother(why) | Self::Failed(why) => why,
            Self::Beyond(excess) => excess.why(),
            Self::Carries { found, .. } => found.to_string(),
        }
    }
}

impl From<Found> for Stop {
    fn from(found: Found) -> Self {
        let place = "what the program sends by a tunnel";
        Self::Carries { found, place }
    }
}

impl From<Excess> for Stop {
    fn from(excess: Excess) -> Self {
        Self::Beyond(excess)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Both sides of a connection at its beginning.
pub(crate) struct Opening<'a> {
    pub(crate) program: &'a mut TcpStream,
    pub(crate) server: &'a mut TcpStream,
    /// What was read of the program's side and not sent on yet.
    pub(crate) held: Vec<u8>,
    /// From the program, bytes.
    pub(crate) up: &'a AtomicU64,
    /// To the program, bytes.
    pub(crate) down: &'a AtomicU64,
    /// Its part of what its rule allows, where that limits something.
    pub(crate) part: Option<&'a Part>,
    /// How what leaves and what comes back is looked at.
    pub(crate) scans: &'a mut [Scan; 2],
}

/// Whom the first bytes may be for.
#[derive(Clone, Copy)]
enum Whom<'a> {
    /// The host of this name alone.
    One(&'a HostName),
    /// Whoever is at an address, but nobody by whom tokens of a login are issued.
    NoIssuer(&'a Credentials),
    /// Whoever is at an address: it is read for what it carries.
    Anyone,
}

impl Whom<'_> {
    /// Why these are for somebody else, where they are.
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
    /// Waits for whoever speaks first. What the program says first is sent on if it is for
    /// nobody but who it asked for; to an address, if it names nobody who issues a login.
    pub(crate) async fn pass(
        mut self,
        host: &HostPart,
        credentials: &Credentials,
    ) -> Result<(), Stop> {
        let whom = match host {
            HostPart::Name(name) => Whom::One(name),
            HostPart::Address(_) if credentials.are_issued() => Whom::NoIssuer(credentials),
            HostPart::Address(_) if credentials.placeholders().is_some() => Whom::Anyone,
            HostPart::Address(_) => return self.send(self.held.len()).await,
        };
        if self.held.is_empty() {
            // Not by readiness: that may be told when there is nothing to read.
            let mut seen = [0];
            self.held.reserve(BLOCK_BYTES);
            tokio::select! {
                got = self.program.read_buf(&mut self.held) => got?,
                peeked = self.server.peek(&mut seen) => return peeked.map(drop).map_err(Stop::from),
            };
        }
        match self.hello(whom, 0).await? {
            Hello::Tls(_) => self.begin_tls(whom).await,
            Hello::Other | Hello::Partial | Hello::Malformed => self.send(self.held.len()).await,
        }
    }

    /// Reads until it is known what begins after so many bytes.
    async fn hello(&mut self, whom: Whom<'_>, after: usize) -> Result<Hello, Stop> {
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
            return Err(Stop::ForAnother(why));
        }
        if hello != Hello::Other {
            let [out, _] = &*self.scans;
            let bytes = self.held.get(after..).unwrap_or_default();
            // As it is sent, and as it is read where it lies in several records.
            for text in [bytes, &hello::message(bytes).0] {
                let place = "the beginning of TLS";
                out.apart(text)
                    .map_err(|found| Stop::Carries { found, place })?;
            }
        }
        Ok(hello)
    }

    /// Sends the beginning of TLS, and waits for what the server makes of it: only then is
    /// it known whether there will be another one.
    async fn begin_tls(mut self, whom: Whom<'_>) -> Result<(), Stop> {
        let Some(end) = hello::end(&self.held) else {
            return Err(Stop::Failed("the beginning of TLS has no end".to_owned()));
        };
        self.send(end).await?;
        if self.asks_again().await? {
            let begin = self.second_begins().await?;
            if self.held.get(begin) == Some(&hello::ALERT) {
                let why = "the program broke TLS off where it was to begin again";
                return Err(Stop::Failed(why.to_owned()));
            }
            match self.hello(whom, begin).await? {
                Hello::Tls(_) => {}
                Hello::Other | Hello::Partial | Hello::Malformed => {
                    let why = "TLS was to begin again, and did not";
                    return Err(Stop::Failed(why.to_owned()));
                }
            }
        }
        self.send(self.held.len()).await
    }

    /// Whether the server wants TLS to begin again. What it says is passed on.
    async fn asks_again(&mut self) -> Result<bool, Stop> {
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
            passed(self.part, Way::Down, new.len()).await?;
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

    /// Where the second beginning lies in what the program has said meanwhile: data that
    /// it sent too early, and a record that old machines on the way want, come before it.
    async fn second_begins(&mut self) -> Result<usize, Stop> {
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

    async fn read(&mut self, late: Instant) -> Result<usize, Stop> {
        match timeout_at(late, self.program.read_buf(&mut self.held)).await {
            Ok(got) => Ok(got?),
            Err(_) => Err(Stop::Failed(
                "the beginning of TLS took too long".to_owned(),
            )),
        }
    }

    /// Sends on so many of the bytes that are held.
    async fn send(&mut self, count: usize) -> Result<(), Stop> {
        let first: Vec<u8> = self.held.drain(..count).collect();
        let [out, _] = &mut *self.scans;
        out.at(&first, true, &mut Vec::new())?;
        passed(self.part, Way::Up, first.len()).await?;
        self.server.write_all(&first).await?;
        self.up.fetch_add(first.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
