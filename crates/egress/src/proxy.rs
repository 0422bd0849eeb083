//! A proxy for programs that want one: their requests are handled as direct connections are.
//!
//! Where a program asks by CONNECT or SOCKS 5, the decision is as if it had made the connection
//! itself, and the answer is in the same protocol. Requests in absolute form (RFC 9112, 3.2.2) are
//! decided on one by one.

mod connect;
mod socks;
mod target;

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use atoll_model::network::{Flow, FlowKind, HostPart, Scheme};
use atoll_sys::funnel::original_destination;
use hyper::body::Incoming;
use hyper::{Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::denial_body::refusal;
use crate::destination::{self, Destination};
use crate::dropped_rights::DroppedRights;
use crate::inspect::{self, Answer, RecordError};
use crate::names::PROXY_NAME;
use crate::program_stream::{ProgramStream, reset};
use crate::proxy_reply::{ProxyProtocol, SOCKS_VERSION, answer, reply};
use crate::{Egress, dns, sandbox_api, tunnel};
use socks::{HandshakeError, Method, Read};
use target::Target;

/// The longest time a program may take to name its destination.
const ASKING_PATIENCE: Duration = Duration::from_secs(60);
/// The longest SOCKS message, bytes.
const SOCKS_BYTES_MAX: usize = 1024;

/// Serves one connection to the proxy.
pub(crate) async fn serve(egress: &Arc<Egress>, mut program: TcpStream) {
    let itself = itself(&program);
    let mut first = Vec::with_capacity(SOCKS_BYTES_MAX);
    // Until it is known which it is.
    while connect::BEGINNING.starts_with(&first) && first.len() < connect::BEGINNING.len() {
        match patiently(egress, program.read_buf(&mut first)).await {
            Some(Ok(got)) if got > 0 => {}
            Some(Ok(_) | Err(_)) | None => return reset(program),
        }
    }
    if first.first() == Some(&SOCKS_VERSION) {
        by_socks(egress, program, first, itself).await;
    } else if first.starts_with(connect::BEGINNING) {
        by_connect(egress, program, first, itself).await;
    } else {
        by_requests(egress, ProgramStream::with(program, first), itself).await;
    }
}

/// Returns the record of a connection to the proxy of which nothing else is known: a request that
/// cannot be parsed would have led nowhere. Its port is 0 where the connection was handed over: it
/// has no original destination then.
fn itself(program: &TcpStream) -> Flow {
    let port = match (original_destination(program.as_fd()), program.local_addr()) {
        (Ok(meant), Ok(local)) if meant != local => meant.port(),
        (Ok(_) | Err(_), _) => 0,
    };
    Flow {
        kind: FlowKind::Tunnel,
        host: PROXY_NAME.to_owned(),
        address: None,
        via: None,
        port,
        rule: None,
        request: None,
        limit: None,
        credentials: Vec::new(),
        login: None,
        policies: 0,
    }
}

/// Awaits a program's part of the handshake. Returns `None` when it takes too long or the run ends.
async fn patiently<T>(egress: &Egress, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        done = timeout(ASKING_PATIENCE, work) => done.ok(),
        () = egress.run_ended() => None,
    }
}

async fn by_connect(
    egress: &Arc<Egress>,
    mut program: TcpStream,
    mut bytes: Vec<u8>,
    itself: Flow,
) {
    let head = loop {
        match connect::read(&bytes) {
            Ok(None) => {}
            read => break read,
        }
        match patiently(egress, program.read_buf(&mut bytes)).await {
            Some(Ok(got)) if got > 0 => {}
            Some(Ok(_) | Err(_)) | None => return reset(program),
        }
    };
    match head {
        Ok(Some((target, length))) => {
            let rest = bytes.split_off(length);
            let program = ProgramStream::asked(program, rest, ProxyProtocol::Connect);
            connect(egress, program, target).await;
        }
        Ok(None) => reset(program),
        Err(why) => {
            egress
                .control
                .refuse(itself, format!("what it asks by CONNECT: {why}"));
            let text = refusal("CONNECT", why);
            let _ = program.write_all(&answer("400 Bad Request", &text)).await;
            let _ = program.shutdown().await;
        }
    }
}

async fn by_socks(egress: &Arc<Egress>, mut program: TcpStream, mut bytes: Vec<u8>, itself: Flow) {
    let asked = patiently(egress, ask_by_socks(&mut program, &mut bytes)).await;
    let (why, last) = match asked.unwrap_or(Err(HandshakeError::Over)) {
        Ok(target) => {
            let program = ProgramStream::asked(program, bytes, ProxyProtocol::Socks);
            return connect(egress, program, target).await;
        }
        Err(HandshakeError::Over) => return reset(program),
        Err(HandshakeError::Malformed) => {
            let why = "what it says is none of SOCKS 5".to_owned();
            egress.control.refuse(itself, why);
            return reset(program);
        }
        Err(HandshakeError::Unknown) => {
            let why = "by SOCKS 5 it says who it is in no way that is known";
            (why, vec![SOCKS_VERSION, 0xff])
        }
        Err(HandshakeError::Unable(unable)) => (unable.why(), reply(unable as u8).to_vec()),
    };
    egress.control.refuse(itself, why.to_owned());
    let _ = program.write_all(&last).await;
    let _ = program.shutdown().await;
}

/// Performs the SOCKS handshake, and returns the destination. Bytes beyond it stay in `bytes`.
async fn ask_by_socks(
    program: &mut TcpStream,
    bytes: &mut Vec<u8>,
) -> Result<Target, HandshakeError> {
    match read_message(program, bytes, socks::greeting).await? {
        Some(Method::Nothing) => write(program, &[SOCKS_VERSION, 0]).await?,
        Some(Method::Password) => {
            write(program, &[SOCKS_VERSION, 2]).await?;
            read_message(program, bytes, socks::password).await?;
            write(program, &[1, 0]).await?;
        }
        None => return Err(HandshakeError::Unknown),
    }
    let asked = read_message(program, bytes, socks::request).await?;
    asked.map_err(HandshakeError::Unable)
}

async fn write(program: &mut TcpStream, bytes: &[u8]) -> Result<(), HandshakeError> {
    let said = program.write_all(bytes).await;
    said.map_err(|_| HandshakeError::Over)
}

/// Reads until one message is whole, and removes it from `bytes`.
async fn read_message<T>(
    program: &mut TcpStream,
    bytes: &mut Vec<u8>,
    read: impl Fn(&[u8]) -> Read<T>,
) -> Result<T, HandshakeError> {
    loop {
        match read(bytes) {
            Read::Whole(found, length) => {
                let rest = bytes.split_off(length.min(bytes.len()));
                *bytes = rest;
                return Ok(found);
            }
            Read::Malformed => return Err(HandshakeError::Malformed),
            Read::Partial if bytes.len() > SOCKS_BYTES_MAX => {
                return Err(HandshakeError::Malformed);
            }
            Read::Partial => {}
        }
        match program.read_buf(bytes).await {
            Ok(got) if got > 0 => {}
            Ok(_) | Err(_) => return Err(HandshakeError::Over),
        }
    }
}

/// Carries a program's connection to the destination it has asked for, if that is allowed: as if it
/// had connected there itself.
async fn connect(egress: &Arc<Egress>, program: ProgramStream, target: Target) {
    match destination_of(egress, target) {
        Ok(to) if to.is_sandbox_api() => {
            let mut program = program;
            if program.grant().await.is_ok() {
                sandbox_api::serve(egress, program).await;
            }
        }
        Ok(to) => tunnel::judge(egress, program, to).await,
        Err((to, why)) => tunnel::refuse(egress, program, to.flow(), why).await,
    }
}

/// Returns the destination a program asks for: its address may stand for a name.
fn destination_of(egress: &Egress, target: Target) -> Result<Destination, (Destination, String)> {
    let Target { host, port } = target;
    let to = match host {
        HostPart::Address(address) => {
            destination::of_address(egress, SocketAddr::new(address, port))?
        }
        HostPart::Name(_) => Destination { host, port },
    };
    let why = if to.is_proxy() {
        "a proxy leads to no proxy"
    } else if dns::is_name_server(SocketAddr::new([0, 0, 0, 0].into(), port)) {
        // What is asked there is not seen.
        "names are asked for without a proxy"
    } else {
        return Ok(to);
    };
    Err((to, why.to_owned()))
}

/// Answers requests in absolute form.
async fn by_requests(egress: &Arc<Egress>, program: ProgramStream, itself: Flow) {
    // One at a time by HTTP/1: where it leads, so that it ends when that is given up.
    let carried = Mutex::new(None::<HostPart>);
    let answer = |request| answer_one(Arc::clone(egress), itself.clone(), &carried, request);
    let served = inspect::serve_1(program, answer);
    let host = || {
        carried
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    };
    let denied = |all: &DroppedRights| host().and_then(|host| all.host(&host));
    let served = tokio::select! {
        served = served => served,
        _ = egress.policies.dropped.denied(denied) => return,
        () = egress.run_ended() => return,
    };
    // What can be told the program of a mistake hyper has told.
    if let Err(error) = served
        && error.is_parse()
    {
        let why = format!("what it asks is no request that can be read in one way: {error}");
        egress.control.refuse(itself, why);
    }
}

async fn answer_one(
    egress: Arc<Egress>,
    itself: Flow,
    carried: &Mutex<Option<HostPart>>,
    request: Request<Incoming>,
) -> Result<Response<Answer>, RecordError> {
    let target = match (request.uri().scheme_str(), request.uri().authority()) {
        (Some("http"), Some(authority)) => parse_authority(authority.as_str()),
        (_, _) => None,
    };
    let Some(target) = target else {
        let why = "a proxy is asked by CONNECT, by SOCKS 5, or for http:// with a host";
        egress.control.refuse(itself, why.to_owned());
        return Ok(inspect::unclear(request.method().as_str(), why));
    };
    let to = match destination_of(&egress, target) {
        Ok(to) => to,
        Err((to, why)) => {
            egress.control.refuse(to.flow(), why.clone());
            return Ok(inspect::unclear(request.method().as_str(), &why));
        }
    };
    if to.is_sandbox_api() {
        return sandbox_api::answer(egress, request).await;
    }
    // What is denied from the beginning is answered.
    let is_denied = egress.policies.dropped.host(&to.host).is_some();
    *carried.lock().unwrap_or_else(PoisonError::into_inner) = (!is_denied).then(|| to.host.clone());
    match inspect::Origin::new(&to, Scheme::Http) {
        Some(asked) => inspect::answer(egress, Arc::new(asked), request).await,
        None => {
            let why = "its host cannot be written";
            egress.control.refuse(to.flow(), why.to_owned());
            Ok(inspect::unclear(request.method().as_str(), why))
        }
    }
}

/// Parses a request's authority: its host, and its port, by default 80.
fn parse_authority(authority: &str) -> Option<Target> {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, target::port(port)?),
        _ => (authority, 80),
    };
    let host = host.parse().ok()?;
    Some(Target { host, port })
}

#[cfg(test)]
mod tests;
