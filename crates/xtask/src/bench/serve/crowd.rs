//! Another tenant's create and exec, beside a tenant that is at the bound of everything at once and
//! clients without a key.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Client, Sandbox, Server, add, milliseconds};
use crate::bench::ledger::Measured;

pub(super) const CREATE_RATIO: &str = "create beside a crowd against quiet, slowest hundredth";
pub(super) const EXEC_RATIO: &str = "exec beside a crowd against quiet, slowest hundredth";
const CREATE_MIDDLE: &str = "create beside a crowd against quiet, median";
const EXEC_MIDDLE: &str = "exec beside a crowd against quiet, median";

/// The sandboxes that one tenant may have, and has.
const SANDBOXES: usize = 20;
/// Its bodies of which half has come, and as many of nobody's.
const HALF_BODIES: usize = 64;
/// The connections by HTTP/2 of nobody's, and the streams in each.
const CONNECTIONS: usize = 5;
const STREAMS: u32 = 100;
/// A body that costs much to understand, bytes.
const BIG_BODY: usize = 4 << 20;
/// The pause between two attempts of each of those who go on trying.
const TRIES_EVERY: Duration = Duration::from_millis(10);

/// Measures quiet and crowded rounds in turn.
pub(super) fn beside(
    program: &Path,
    directory: &Path,
    rounds: usize,
    all: &mut Vec<Measured>,
) -> Result<()> {
    eprintln!("beside a crowd: {rounds}");
    let server = Server::with_sandboxes(program, directory, 0, None, SANDBOXES)?;
    let other = key_of(program, directory, "other")?;
    let mut client = server.client()?;
    client.key = other;
    let warm = |client: &mut Client| (0..20).try_for_each(|_| round(client).map(drop));
    warm(&mut client)?;
    let quiet = measured(&mut client, rounds)?;
    let is_over = AtomicBool::new(false);
    let crowd = Crowd::gather(&server)?;
    let crowded = thread::scope(|scope| -> Result<_> {
        scope.spawn(|| crowd.try_more(&server, &is_over));
        scope.spawn(|| nobody_tries(&server, &is_over));
        let crowded = warm(&mut client).and_then(|()| measured(&mut client, rounds));
        is_over.store(true, Ordering::Relaxed);
        crowded
    })?;
    let of = |values: &[f64], share: f64| {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = (sorted.len() as f64 * share) as usize;
        sorted.get(at).copied().unwrap_or(f64::NAN)
    };
    for (name, share, quiet, crowded) in [
        (CREATE_RATIO, 0.99, &quiet.0, &crowded.0),
        (EXEC_RATIO, 0.99, &quiet.1, &crowded.1),
        (CREATE_MIDDLE, 0.5, &quiet.0, &crowded.0),
        (EXEC_MIDDLE, 0.5, &quiet.1, &crowded.1),
    ] {
        add(
            all,
            name,
            "times",
            vec![of(crowded, share) / of(quiet, share)],
        );
    }
    add(all, "create, quiet", "ms", quiet.0);
    add(all, "exec, quiet", "ms", quiet.1);
    add(all, "create, beside a crowd", "ms", crowded.0);
    add(all, "exec, beside a crowd", "ms", crowded.1);
    Ok(())
}

fn round(client: &mut Client) -> Result<(f64, Vec<f64>)> {
    let (create, sandbox) = milliseconds(|| client.create())?;
    let execs = (0..5).map(|_| Ok(milliseconds(|| client.exec(&sandbox))?.0));
    let execs = execs.collect::<Result<_>>()?;
    client.kill(&sandbox)?;
    Ok((create, execs))
}

fn measured(client: &mut Client, rounds: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let (mut creates, mut execs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (create, of_round) = round(client)?;
        creates.push(create);
        execs.extend(of_round);
    }
    Ok((creates, execs))
}

fn key_of(program: &Path, directory: &Path, tenant: &str) -> Result<String> {
    let made = Command::new(program)
        .args([
            "serve", "keys", "create", "--name", tenant, "--tenant", tenant, "--json",
        ])
        .env("HOME", directory)
        .output()?;
    let made: serde_json::Value = serde_json::from_slice(&made.stdout)?;
    let key = made.get("key").and_then(|key| key.as_str());
    Ok(key.context("no key was made")?.to_owned())
}

/// All that one tenant may have, and what nobody has sent by half.
struct Crowd {
    sandboxes: Vec<Sandbox>,
    _open: Vec<TcpStream>,
}

impl Crowd {
    fn gather(server: &Server) -> Result<Self> {
        let mut client = server.client()?;
        let sandboxes: Vec<Sandbox> = (0..SANDBOXES)
            .map(|_| client.create())
            .collect::<Result<_>>()?;
        ensure!(
            client.create().is_err(),
            "the bound of sandboxes is another"
        );
        let mut open = Vec::new();
        for sandbox in &sandboxes {
            for _ in 0..8 {
                let mut client = server.client()?;
                client.start(sandbox, &["/bin/sleep", "600"])?;
                open.push(client.write);
            }
        }
        let key = server.client()?.key();
        for headers in [key.as_str(), ""] {
            for _ in 0..HALF_BODIES {
                let mut stream = server.client()?.write;
                let head = format!(
                    "POST /v2/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n{headers}\r\n{{"
                );
                stream.write_all(head.as_bytes())?;
                open.push(stream);
            }
        }
        for _ in 0..CONNECTIONS {
            open.push(streams_by_half(server)?);
        }
        Ok(Self {
            sandboxes,
            _open: open,
        })
    }

    /// Asks for more than the tenant may have, and for what it may.
    fn try_more(&self, server: &Server, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            let Ok(mut client) = server.client() else {
                return;
            };
            let _ = client.create();
            for sandbox in self.sandboxes.iter().take(2) {
                let Ok(mut client) = server.client() else {
                    return;
                };
                let _ = client.exec(sandbox);
            }
            thread::sleep(TRIES_EVERY);
        }
    }
}

/// Opens a connection of streams that have begun, and of which nothing more comes (RFC 9113).
fn streams_by_half(server: &Server) -> Result<TcpStream> {
    let mut stream = server.client()?.write;
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    // POST, http, the path and the authority, by the static table (RFC 7541).
    let mut head = vec![0x83, 0x86, 0x04, 13];
    head.extend(b"/v2/sandboxes");
    head.extend([0x01, 9]);
    head.extend(b"localhost");
    for number in 0..STREAMS {
        let length = u32::try_from(head.len())?.to_be_bytes();
        sent.extend(length.get(1..).unwrap_or_default());
        sent.extend([1, 4]);
        sent.extend((2 * number + 1).to_be_bytes());
        sent.extend(&head);
    }
    stream.write_all(&sent)?;
    Ok(stream)
}

/// Sends big bodies without a key.
fn nobody_tries(server: &Server, is_over: &AtomicBool) {
    let body = "[],".repeat(BIG_BODY / 3);
    let head = format!(
        "POST /v2/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    while !is_over.load(Ordering::Relaxed) {
        let Ok(client) = server.client() else { return };
        let mut stream = client.write;
        let _ = stream.write_all(head.as_bytes());
        let _ = stream.write_all(body.as_bytes());
        let _ = stream.read(&mut [0; 1024]);
        thread::sleep(TRIES_EVERY);
    }
}
