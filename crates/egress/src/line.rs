//! The line to who records: nothing is sent on before it says so.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use atoll_model::network::{FLOW_MESSAGE_BYTES_MAX, Flow, FlowEnd, FlowOrder, FlowReport};
use atoll_sys::socket;
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::oneshot;

use crate::refusals::Refusals;

/// The line, and what waits for an answer on it.
#[derive(Debug)]
pub(crate) struct Line {
    /// Of messages in order: to the runtime the same as datagrams.
    socket: UnixDatagram,
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<()>>>,
    refusals: Mutex<Refusals>,
}

/// A flow that is recorded: it may go on. Its end is told by [`Opened::close`].
#[derive(Debug)]
pub(crate) struct Opened {
    id: u64,
    since: Instant,
}

impl Line {
    /// Over a socket that keeps messages apart, and does not block.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            socket: UnixDatagram::from_std(socket.into())?,
            next: AtomicU64::new(1),
            waiting: Mutex::default(),
            refusals: Mutex::default(),
        })
    }

    async fn send(&self, report: &FlowReport) -> io::Result<()> {
        let message = serde_json::to_vec(report)?;
        let send = || socket::send(self.socket.as_fd(), &message, &[]);
        self.socket.async_io(Interest::WRITABLE, send).await
    }

    /// Has a flow recorded, and waits until it is.
    ///
    /// # Errors
    /// When nobody records any more.
    pub(crate) async fn open(&self, flow: Flow) -> io::Result<Opened> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (recorded, wait) = oneshot::channel();
        let waiting = || self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting().insert(id, recorded);
        let sent = self.send(&FlowReport::Open { id, flow }).await;
        if let Err(error) = sent {
            waiting().remove(&id);
            return Err(error);
        }
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        wait.await.map_err(gone)?;
        let since = Instant::now();
        Ok(Opened { id, since })
    }

    /// Tells of something refused, the first time that it is.
    pub(crate) async fn refuse(&self, flow: Flow, why: String) {
        let told = {
            let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
            refusals.count(flow, why)
        };
        if let Some(report) = told {
            // Nobody listens: then it is about to end anyway.
            let _ = self.send(&report).await;
        }
    }

    /// Hears what is recorded, until there is to be no more.
    pub(crate) async fn hear(&self) {
        let mut buffer = vec![0_u8; FLOW_MESSAGE_BYTES_MAX];
        loop {
            let receive = || socket::receive(self.socket.as_fd(), &mut buffer);
            let received = self.socket.async_io(Interest::READABLE, receive).await;
            let got = match received {
                Ok((0, _)) | Err(_) => break,
                Ok((got, _)) => got,
            };
            let message = buffer.get(..got).unwrap_or_default();
            match serde_json::from_slice(message) {
                Ok(FlowOrder::Recorded { id }) => self.recorded(id),
                Ok(FlowOrder::End) | Err(_) => break,
            }
        }
        // Whoever still waits learns that it is not recorded.
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.clear();
    }

    fn recorded(&self, id: u64) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waits) = waiting.remove(&id) {
            // It may have gone meanwhile.
            let _ = waits.send(());
        }
    }

    /// Tells at the end of what was refused more than once.
    pub(crate) async fn tell_refusals(&self) {
        let refusals = {
            let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *refusals)
        };
        for report in refusals.rest() {
            if self.send(&report).await.is_err() {
                return;
            }
        }
    }
}

impl Opened {
    /// Tells of the flow's end.
    pub(crate) async fn close(self, line: &Line, bytes: [u64; 2], failure: Option<String>) {
        let [up_bytes, down_bytes] = bytes;
        let spent = self.since.elapsed().as_micros();
        let end = FlowEnd {
            up_bytes,
            down_bytes,
            duration_us: u64::try_from(spent).unwrap_or(u64::MAX),
            failure,
        };
        // Nobody listens: then it is found interrupted.
        let _ = line.send(&FlowReport::Closed { id: self.id, end }).await;
    }
}
