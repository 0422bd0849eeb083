//! The program's side, with TLS or without, up to its startup packet.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::message;
use super::startup::{self, Key, Packet, PacketError, Startup};
use atoll_egress::Egress;
use atoll_egress::connector::{Destination, ProgramStream};

/// The longest time a program may take up to its startup packet.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest time it may take to read why it is denied.
const FAREWELL: Duration = Duration::from_secs(5);
/// The first byte of TLS that was not negotiated first (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;

/// A stream in both directions.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A program's connection.
pub(super) struct Program {
    stream: Box<dyn Stream>,
    is_tls: bool,
}

/// A program's first request.
pub(super) enum FirstRequest {
    /// A login.
    Startup { program: Program, startup: Startup },
    /// The cancellation of another connection's query.
    Cancel { program: Program, key: Key },
    /// A request that is refused.
    Refused { program: Program, why: &'static str },
    /// None: the program is gone, or no answer can be sent to it.
    Over,
}

/// Reads a program's first request.
pub(super) async fn begin(
    egress: &Egress,
    arrival: ProgramStream,
    to: &Destination,
) -> FirstRequest {
    // What is read of it is kept out here, so that it can be told that it took too long.
    let mut program = match timeout(PATIENCE, Program::new(egress, arrival, to)).await {
        Ok(Ok(program)) => program,
        Ok(Err(_)) | Err(_) => return FirstRequest::Over,
    };
    let mut asked = EncryptionRequests::default();
    let said = timeout(PATIENCE, async {
        loop {
            match program.packet().await? {
                Ok(Packet::Tls) if !asked.tls && !program.is_tls => {
                    asked.tls = true;
                    if !program.begin_tls(egress, to).await? {
                        program.send(b"N").await?;
                    }
                }
                Ok(Packet::Gss) if !asked.gss && !program.is_tls => {
                    asked.gss = true;
                    program.send(b"N").await?;
                }
                packet => return Ok::<_, io::Error>(packet),
            }
        }
    });
    let said = match said.await {
        Ok(Ok(said)) => said,
        Ok(Err(_)) => return FirstRequest::Over,
        Err(_) => Err(PacketError::Refused(
            "the program took too long to say who it is",
        )),
    };
    match said {
        Ok(Packet::Startup(startup)) => FirstRequest::Startup { program, startup },
        Ok(Packet::Cancel(key)) => FirstRequest::Cancel { program, key },
        Ok(Packet::Tls | Packet::Gss) => FirstRequest::Refused {
            program,
            why: "it asks again what it was answered",
        },
        Err(invalid) => FirstRequest::Refused {
            program,
            why: invalid.why(),
        },
    }
}

/// The encryption requests of a program so far.
#[derive(Default)]
struct EncryptionRequests {
    tls: bool,
    gss: bool,
}

impl Program {
    /// Wraps a connection of which nothing has been read; one that begins with TLS at once has
    /// asked for it thereby (PostgreSQL 17, `sslnegotiation=direct`).
    async fn new(
        egress: &Egress,
        mut arrival: ProgramStream,
        to: &Destination,
    ) -> io::Result<Self> {
        while arrival.first().is_empty() {
            if arrival.read_first().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let is_direct = arrival.first().first() == Some(&HANDSHAKE);
        let mut program = Self {
            stream: Box::new(arrival),
            is_tls: false,
        };
        if is_direct && !program.accept(egress, to).await? {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(program)
    }

    /// Reads a first packet, and not a byte more: bytes sent in the clear before TLS never count as
    /// sent within it (CVE-2021-23214).
    async fn packet(&mut self) -> io::Result<Result<Packet, PacketError>> {
        let mut header = [0; 4];
        self.stream.read_exact(&mut header).await?;
        let length = match startup::length(header) {
            Ok(length) => length,
            Err(invalid) => return Ok(Err(invalid)),
        };
        let mut packet = vec![0; length - header.len()];
        self.stream.read_exact(&mut packet).await?;
        Ok(startup::read(&packet))
    }

    /// Begins TLS where the sandbox trusts an authority of Atoll's. Returns whether it did.
    async fn begin_tls(&mut self, egress: &Egress, to: &Destination) -> io::Result<bool> {
        if !egress.is_trusted() {
            return Ok(false);
        }
        self.send(b"S").await?;
        self.accept(egress, to).await
    }

    async fn accept(&mut self, egress: &Egress, to: &Destination) -> io::Result<bool> {
        let Some(config) = egress.database_config(&to.host) else {
            return Ok(false);
        };
        let config = config?;
        let nothing: Box<dyn Stream> = Box::new(tokio::io::empty());
        let plain = std::mem::replace(&mut self.stream, nothing);
        match TlsAcceptor::from(config).accept(plain).await {
            Ok(stream) => {
                self.stream = Box::new(stream);
                self.is_tls = true;
                Ok(true)
            }
            Err(error) => {
                let said = match error.kind() {
                    io::ErrorKind::UnexpectedEof => "it hung up".to_owned(),
                    _ => error.to_string(),
                };
                let why = format!("TLS with the program did not begin: {said}");
                egress.refuse(to.flow(), why);
                Err(error)
            }
        }
    }

    /// Sends bytes to the program.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Tells the program why it is denied, and ends the connection.
    pub(super) async fn deny(&mut self, state: &str, text: &str, hint: &str) {
        self.end_with(&message::error(state, text, hint)).await;
    }

    /// Ends the connection with these last bytes.
    pub(super) async fn end_with(&mut self, bytes: &[u8]) {
        // Whoever does not read it finds the connection ended.
        let _ = timeout(FAREWELL, async {
            self.send(bytes).await?;
            self.stream.shutdown().await
        })
        .await;
    }

    /// Returns once the program is gone, or sends something where it is to wait: that byte is lost.
    pub(super) async fn is_gone(&mut self) {
        let _ = self.stream.read_u8().await;
    }

    /// Returns the stream in both directions.
    pub(super) fn stream(&mut self) -> &mut (impl AsyncRead + AsyncWrite + Send + Unpin + use<>) {
        &mut self.stream
    }
}
