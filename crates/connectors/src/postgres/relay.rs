//! The relay of an authenticated connection, in both directions.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use atoll_model::network::Flow;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::inspection::{ClientMessages, Inspection, ServerMessages};
use super::message::{self, ERROR, KEY, Message, NOTICE, READY, SETTING};
use super::program::Program;
use super::server::READY_PATIENCE;
use super::sessions::SessionEntry;
use super::startup::Key;
use super::stream::Stream;
use super::{AllowedConnection, FORBIDDEN, for_program};
use atoll_egress::Egress;
use atoll_egress::connector::{BudgetShare, Direction, Route, StopReason, late, passed};

/// The number of bytes carried at once: a record of TLS (RFC 8446, 5.1).
const BLOCK_BYTES: usize = 16 * 1024;
/// The most messages of a server before it is ready: each setting is one.
const MESSAGES_MAX: usize = 256;

/// The end of a connection.
pub(super) struct RelayEnd {
    /// Bytes from the program, and to it.
    pub(super) bytes: [u64; 2],
    pub(super) stopped: Option<StopReason>,
}

/// Tells the program that it is logged in, and carries bytes until both sides have ended.
pub(super) async fn carry(
    egress: &Egress,
    connection: &AllowedConnection<'_>,
    program: &mut Program,
    mut server: Stream,
    place_of: Route,
) -> RelayEnd {
    let carried = [AtomicU64::new(0), AtomicU64::new(0)];
    let [up, down] = &carried;
    let part = connection.part;
    // Whether a message to the program is not cut.
    let is_between = AtomicBool::new(true);
    let work = async {
        let begins = begin(egress, connection, program, &mut server, place_of, down);
        let late = || StopReason::Failed("the database server does not become ready".to_owned());
        let begun = timeout(READY_PATIENCE, begins).await.map_err(|_| late())?;
        // As long as it is there it can be asked to end what it does.
        let _present = begun?;
        let (from_program, to_program) = tokio::io::split(program.stream());
        let (from_server, to_server) = tokio::io::split(&mut server);
        let unsearched = || StopReason::Failed("there is nothing to look for".to_owned());
        let said = ClientMessages::new(egress.placeholders().ok_or_else(unsearched)?);
        let heard = ServerMessages::new(&egress.masks().ok_or_else(unsearched)?, &is_between);
        let to_server = pump(from_program, to_server, part, Direction::Up, said, up);
        let to_program = pump(from_server, to_program, part, Direction::Down, heard, down);
        tokio::pin!(to_program);
        tokio::select! {
            // Where the server has ended it, nobody hears what a program says.
            ended = &mut to_program => ended,
            ended = to_server => {
                ended?;
                to_program.await
            }
        }
    };
    let worked = tokio::select! {
        worked = work => worked,
        excess = late(part) => Err(StopReason::Beyond(excess)),
        why = egress.login_lost(connection.to, place_of, &connection.flow) => Err(StopReason::Failed(why)),
        () = egress.run_ended() => Err(StopReason::Failed("the sandbox ended".to_owned())),
    };
    let stopped = match worked.err() {
        Some(StopReason::Carries { found, place }) => {
            let flow = Flow {
                address: place_of.address(),
                via: egress.via(place_of),
                ..connection.flow.clone()
            };
            let why = egress.misused(flow, found, place);
            if is_between.into_inner() {
                program.deny(FORBIDDEN, &for_program(&why), "").await;
            }
            Some(StopReason::Failed(why))
        }
        stopped => stopped,
    };
    RelayEnd {
        bytes: carried.map(AtomicU64::into_inner),
        stopped,
    }
}

/// Passes on the server's messages until it is ready, and keeps its cancellation key.
async fn begin<'a>(
    egress: &Egress,
    connection: &AllowedConnection<'a>,
    program: &mut Program,
    server: &mut Stream,
    place: Route,
    down: &AtomicU64,
) -> Result<Option<SessionEntry<'a>>, StopReason> {
    program.send(&message::authentication_ok()).await?;
    let mut present = None;
    for _ in 0..MESSAGES_MAX {
        let mut message = Message::read(server).await?;
        match message.kind {
            KEY => {
                let key = key(&message.body).ok_or_else(unexpected)?;
                let by = (place, server.tls(), connection.approval);
                present = Some(connection.sessions.enter(connection.to, key, by));
            }
            READY | SETTING | NOTICE | ERROR => message.mask(egress),
            _ => return Err(unexpected()),
        }
        let bytes = message.encode();
        passed(connection.part, Direction::Down, bytes.len()).await?;
        program.send(&bytes).await?;
        down.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        match message.kind {
            READY => return Ok(present),
            ERROR => {
                let (state, text) = message.error();
                let why = format!("the database server refuses it: {text} ({state})");
                return Err(StopReason::Failed(why));
            }
            _ => {}
        }
    }
    Err(unexpected())
}

fn unexpected() -> StopReason {
    StopReason::Failed("the database server says what nobody says before it is ready".to_owned())
}

fn key(body: &[u8]) -> Option<Key> {
    let (process, rest) = body.split_first_chunk()?;
    Some(Key {
        process: u32::from_be_bytes(*process),
        secret: u32::from_be_bytes(rest.try_into().ok()?),
    })
}

/// Carries one direction to its end, and passes the end on.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    part: Option<&BudgetShare>,
    way: Direction,
    mut passing: impl Inspection,
    carried: &AtomicU64,
) -> Result<(), StopReason> {
    let bytes = part.map_or(BLOCK_BYTES, |part| part.piece_bytes().min(BLOCK_BYTES));
    let mut block = vec![0; bytes];
    let mut on = Vec::new();
    loop {
        on.clear();
        let got = match from.read(&mut block).await {
            Ok(got) => got,
            // Many end it so: where a message is cut, the other side finds that out.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
            Err(error) => return Err(error.into()),
        };
        if got == 0 {
            passing.end(&mut on);
            // Who has hung up need not be told.
            let _ = to.write_all(&on).await;
            let _ = to.shutdown().await;
            return Ok(());
        }
        passing.take(block.get(..got).unwrap_or_default(), &mut on)?;
        passed(part, way, got).await?;
        to.write_all(&on).await?;
        to.flush().await?;
        passing.sent();
        carried.fetch_add(on.len() as u64, Ordering::Relaxed);
    }
}
