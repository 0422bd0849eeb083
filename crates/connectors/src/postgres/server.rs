//! The server's side: TLS that only the author of the profile can turn off, and a login that both
//! sides prove.

use std::io;
use std::time::Duration;

use atoll_model::network::ServerTls;
use aws_lc_rs::digest::{SHA256, SHA384, SHA512, digest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use x509_parser::oid_registry::{
    OID_PKCS1_MD5WITHRSAENC, OID_PKCS1_SHA1WITHRSA, OID_PKCS1_SHA256WITHRSA,
    OID_PKCS1_SHA384WITHRSA, OID_PKCS1_SHA512WITHRSA, OID_SIG_ECDSA_WITH_SHA256,
    OID_SIG_ECDSA_WITH_SHA384, OID_SIG_ECDSA_WITH_SHA512,
};
use x509_parser::parse_x509_certificate;

use super::message::{self, AUTHENTICATION, ERROR, Message};
use super::scram::{self, Binding, ClientFinal, ClientFirst};
use super::startup::{Startup, tls_request};
use super::stream::{Stream, strays};
use atoll_egress::Egress;
use atoll_egress::connector::{Destination, Route, why_not};

/// The longest time a server may take to accept a connection, to answer the request for TLS, and
/// for the handshake, each.
const DIAL_PATIENCE: Duration = Duration::from_secs(10);
/// The longest time of a login: some servers wake up for it.
const LOGIN_PATIENCE: Duration = Duration::from_secs(30);
/// The longest time from there until the server is ready.
pub(super) const READY_PATIENCE: Duration = Duration::from_secs(60);
/// The longest time a cancellation may take.
pub(super) const CANCEL_PATIENCE: Duration = Duration::from_secs(10);

/// SQLSTATEs of PostgreSQL's appendix A.
pub(super) const UNREACHED: &str = "08001";
pub(super) const REJECTED: &str = "08004";
const INVALID_PASSWORD: &str = "28P01";

/// The codes of `AuthenticationRequest`.
const SIGNED_IN: u32 = 0;
const SASL: u32 = 10;
const SASL_CONTINUE: u32 = 11;
const SASL_FINAL: u32 = 12;

/// A failed connection or login.
#[derive(Debug)]
pub(super) struct LoginError {
    /// The reason, for the record and for the program.
    pub(super) why: String,
    pub(super) state: &'static str,
    /// The server's own error message, which the program is sent unchanged.
    pub(super) said: Option<Vec<u8>>,
    /// Set when the server rejects the password.
    pub(super) is_wrong_password: bool,
    /// Set when another address of the host may do better.
    pub(super) is_elsewhere: bool,
}

impl LoginError {
    pub(super) fn new(state: &'static str, why: String) -> Self {
        Self {
            why,
            state,
            said: None,
            is_wrong_password: false,
            is_elsewhere: false,
        }
    }

    /// Returns the failure for a server that must not be trusted with the login.
    pub(super) fn rejected(why: &str) -> Self {
        Self::new(
            REJECTED,
            format!("the database server is not signed in to: {why}"),
        )
    }

    pub(super) fn ended(error: &io::Error) -> Self {
        let why = match error.kind() {
            io::ErrorKind::UnexpectedEof => "it ended the connection".to_owned(),
            _ => error.to_string(),
        };
        Self::new(
            REJECTED,
            format!("the database server cannot be signed in to: {why}"),
        )
    }

    fn late() -> Self {
        Self::new(UNREACHED, why_not(&io::ErrorKind::TimedOut.into()))
    }

    /// Returns the failure that the server's error message reports.
    fn of(message: &Message) -> Self {
        let (state, text) = message.error();
        Self {
            said: Some(message.encode()),
            is_wrong_password: state == INVALID_PASSWORD,
            ..Self::new(
                REJECTED,
                format!("the database server refuses it: {text} ({state})"),
            )
        }
    }
}

/// Connects to a server by TLS, and checks its certificate; or without, where the profile says so
/// and the address is one of a private network.
pub(super) async fn connect(
    egress: &Egress,
    to: &Destination,
    place: Route,
    tls: ServerTls,
) -> Result<Stream, LoginError> {
    if let Some(why) = strays(tls, place) {
        return Err(LoginError::rejected(why));
    }
    let dialled = timeout(DIAL_PATIENCE, egress.dial(to, place)).await;
    let dialled = dialled.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let mut dialled = dialled.map_err(|error| LoginError {
        is_elsewhere: true,
        ..LoginError::new(UNREACHED, why_not(&error))
    })?;
    match tls {
        ServerTls::Required => {}
        ServerTls::None => return Ok(Stream::Plain(dialled)),
    }
    let ended = |error: io::Error| LoginError::ended(&error);
    let asked = async {
        dialled.write_all(&tls_request()).await?;
        // One byte and no more: what a server, or who stands before it, sends along with it in
        // the clear is read as TLS, and is none (CVE-2021-23222).
        dialled.read_u8().await
    };
    let answer = timeout(DIAL_PATIENCE, asked).await;
    match answer.map_err(|_| LoginError::late())?.map_err(ended)? {
        b'S' => {}
        b'N' => return Err(LoginError::rejected("it speaks no TLS")),
        _ => {
            return Err(LoginError::rejected(
                "it does not say whether it speaks TLS",
            ));
        }
    }
    let connected = timeout(DIAL_PATIENCE, egress.connect_database(&to.host, dialled)).await;
    let connected = connected.map_err(|_| LoginError::late())?;
    let connected = connected.map_err(|error| LoginError::new(REJECTED, why_not(&error)))?;
    Ok(Stream::Tls(Box::new(connected)))
}

/// Authenticates. The server's messages from there on are left to be read.
pub(super) async fn sign_in(
    stream: &mut Stream,
    startup: &Startup,
    password: &[u8],
) -> Result<(), LoginError> {
    let login = login(stream, startup, password);
    timeout(LOGIN_PATIENCE, login)
        .await
        .map_err(|_| LoginError::late())?
}

async fn login(stream: &mut Stream, startup: &Startup, password: &[u8]) -> Result<(), LoginError> {
    send(stream, &startup.packet()).await?;
    let (code, mechanisms) = authentication_request(stream).await?;
    if code != SASL {
        return Err(LoginError::rejected(unusable(code)));
    }
    let begun = begin(stream, &mechanisms)?;
    let first = message::sasl_first(begun.0, &begun.1.first());
    send(stream, &first).await?;
    let server_first = expect_request(stream, SASL_CONTINUE).await?;
    let (last, proven): (_, ClientFinal) = begun
        .1
        .last(&server_first, password)
        .map_err(LoginError::rejected)?;
    send(stream, &message::sasl_last(&last)).await?;
    let server_last = expect_request(stream, SASL_FINAL).await?;
    proven.verify(&server_last).map_err(LoginError::rejected)?;
    expect_request(stream, SIGNED_IN).await.map(drop)
}

/// Chooses one of the mechanisms that the server offers.
fn begin(stream: &Stream, mechanisms: &[u8]) -> Result<(&'static str, ClientFirst), LoginError> {
    let offers = |name: &str| {
        let mut offered = mechanisms.split(|byte| *byte == 0);
        offered.any(|one| one == name.as_bytes())
    };
    let binding = match stream {
        Stream::Tls(stream) => {
            let certificates = stream.get_ref().1.peer_certificates();
            let certificate = certificates.and_then(<[_]>::first);
            let hash = certificate.and_then(|certificate| end_point(certificate));
            match (offers(scram::BOUND), hash) {
                (true, Some(hash)) => Binding::EndPoint(hash),
                (true, None) => Binding::Impossible,
                (false, _) => Binding::NotOffered,
            }
        }
        // It has no certificate to be bound to: who offers that stands before another server.
        Stream::Plain(_) if offers(scram::BOUND) => {
            return Err(LoginError::rejected(
                "it binds logins to a certificate, and is spoken to without TLS",
            ));
        }
        Stream::Plain(_) => Binding::Impossible,
    };
    if !offers(binding.mechanism()) {
        return Err(LoginError::rejected("it offers no SCRAM-SHA-256"));
    }
    let begun = ClientFirst::new(binding.clone()).map_err(LoginError::rejected)?;
    Ok((binding.mechanism(), begun))
}

/// Returns the hash of a certificate that a login is bound to (RFC 5929, section 4.1); `None` where
/// its signature has no hash of its own.
fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let (_, read) = parse_x509_certificate(certificate).ok()?;
    let signed = &read.signature_algorithm.algorithm;
    let is_one = |known: &[&x509_parser::asn1_rs::Oid<'static>]| known.contains(&signed);
    let algorithm = if is_one(&[
        &OID_PKCS1_MD5WITHRSAENC,
        &OID_PKCS1_SHA1WITHRSA,
        &OID_PKCS1_SHA256WITHRSA,
        &OID_SIG_ECDSA_WITH_SHA256,
    ]) {
        &SHA256
    } else if is_one(&[&OID_PKCS1_SHA384WITHRSA, &OID_SIG_ECDSA_WITH_SHA384]) {
        &SHA384
    } else if is_one(&[&OID_PKCS1_SHA512WITHRSA, &OID_SIG_ECDSA_WITH_SHA512]) {
        &SHA512
    } else {
        return None;
    };
    Some(digest(algorithm, certificate).as_ref().to_vec())
}

async fn send(stream: &mut Stream, bytes: &[u8]) -> Result<(), LoginError> {
    let sent = async {
        stream.write_all(bytes).await?;
        stream.flush().await
    };
    sent.await
        .map_err(|error: io::Error| LoginError::ended(&error))
}

/// Reads the server's next authentication request: its code and its data.
async fn authentication_request(stream: &mut Stream) -> Result<(u32, Vec<u8>), LoginError> {
    let message = Message::read(stream).await;
    let message = message.map_err(|error| LoginError::ended(&error))?;
    match (message.kind, message.body.split_first_chunk()) {
        (ERROR, _) => Err(LoginError::of(&message)),
        (AUTHENTICATION, Some((code, rest))) => Ok((u32::from_be_bytes(*code), rest.to_vec())),
        (_, _) => Err(LoginError::rejected("it says what is no part of a login")),
    }
}

async fn expect_request(stream: &mut Stream, code: u32) -> Result<Vec<u8>, LoginError> {
    match authentication_request(stream).await? {
        (other, rest) if other == code => Ok(rest),
        (_, _) => Err(LoginError::rejected("it leaves SCRAM before its end")),
    }
}

/// Returns the reason for which Atoll does not support an authentication method.
fn unusable(code: u32) -> &'static str {
    match code {
        SIGNED_IN => {
            "it lets everybody in without a password, and so does not prove that it is the one that knows it"
        }
        3 => "it asks for the password itself, and not for SCRAM-SHA-256",
        5 => "it asks for an MD5 of the password, and not for SCRAM-SHA-256",
        _ => "it asks for another way of signing in than SCRAM-SHA-256",
    }
}
