//! A run's connections to the outside, as the side that records them sees it: the
//! process that carries them is started when the first one comes, and nothing it wants
//! to send on goes before it is on disk.

use std::collections::HashMap;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use atoll_model::RunId;
use atoll_model::network::{
    Carriage, FLOW_MESSAGE_BYTES_MAX, Flow, FlowEnd, FlowOrder, FlowReport, Network,
};
use atoll_store::{Durability, Ledger, LedgerError};
use atoll_sys::{descriptor, process, socket};
use serde_json::{Value, json};

use crate::Carrier;

/// How long the carrier may take to end once there is nothing more to carry.
const FAREWELL: Duration = Duration::from_secs(3);

/// How long an order may take to be taken.
const ORDER_PATIENCE: Duration = Duration::from_secs(1);
const ORDER_PAUSE: Duration = Duration::from_micros(200);

/// How many refusals are kept for the run's summary.
const REFUSED_MAX: usize = 1024;

const SIGKILL: i32 = 9;

/// The name by which this program is started to carry connections, by the line at its
/// descriptor 3: whoever starts sandboxes with a network has to do so when called this.
pub const OUTSIDE: &CStr = c"atoll-egress";

/// Something that a program did not reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What it would have been.
    pub flow: Flow,
    /// Why not.
    pub why: String,
    /// How often it was tried.
    pub count: u64,
}

/// What came of a run's connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flows {
    /// How many were made.
    pub made: u64,
    /// From the program, bytes.
    pub up_bytes: u64,
    /// To the program, bytes.
    pub down_bytes: u64,
    /// What was refused, in order.
    pub refused: Vec<Refused>,
    /// Why there was no more from some moment on, if there was not.
    pub failure: Option<String>,
}

/// The recording side.
#[derive(Debug)]
pub struct Outside<'a> {
    run: &'a RunId,
    ledger: &'a Ledger,
    network: &'a Network,
    state: State,
    open: HashMap<u64, Flow>,
    flows: Flows,
    unrecorded: Option<LedgerError>,
}

#[derive(Debug)]
enum State {
    /// Nobody carries.
    None,
    /// The first connection has not come yet.
    Listening(Vec<OwnedFd>),
    /// This process carries.
    Carrying { line: OwnedFd, pid: u32 },
}

impl<'a> Outside<'a> {
    /// For a run's network.
    #[must_use]
    pub fn new(run: &'a RunId, ledger: &'a Ledger, network: &'a Network) -> Self {
        Self {
            run,
            ledger,
            network,
            state: State::None,
            open: HashMap::new(),
            flows: Flows::default(),
            unrecorded: None,
        }
    }

    /// Starts the process that carries, with what the connections come to.
    fn start(&mut self, listeners: &[OwnedFd]) {
        match begin(self.network, listeners) {
            Ok((line, pid)) => self.state = State::Carrying { line, pid },
            Err(error) => self.fail(format!("nobody could be started to carry them: {error}")),
        }
    }

    fn fail(&mut self, why: String) {
        self.flows.failure.get_or_insert(why);
    }

    /// Takes one report, and records what it tells.
    fn hear(&mut self, message: &[u8]) -> Result<(), LedgerError> {
        let Ok(report) = serde_json::from_slice::<FlowReport>(message) else {
            self.fail("what carried them said something unknown".to_owned());
            return Ok(());
        };
        match report {
            FlowReport::Open { id, flow } => {
                self.record("flow.opened", opened(id, &flow), Durability::Durable)?;
                self.flows.made = self.flows.made.saturating_add(1);
                self.open.insert(id, flow);
                let told = match &self.state {
                    State::Carrying { line, .. } => order(line, FlowOrder::Recorded { id }),
                    State::None | State::Listening(_) => true,
                };
                if !told {
                    self.end_carrier();
                    self.fail("what carried them did not listen any more".to_owned());
                }
                Ok(())
            }
            FlowReport::Closed { id, end } => match self.open.remove(&id) {
                None => Ok(()),
                Some(_) => self.close(id, &end),
            },
            FlowReport::Refused { flow, why, count } => self.refuse(Refused { flow, why, count }),
        }
    }

    fn close(&mut self, id: u64, end: &FlowEnd) -> Result<(), LedgerError> {
        self.flows.up_bytes = self.flows.up_bytes.saturating_add(end.up_bytes);
        self.flows.down_bytes = self.flows.down_bytes.saturating_add(end.down_bytes);
        self.record("flow.closed", closed(id, end), Durability::Buffered)
    }

    fn refuse(&mut self, refused: Refused) -> Result<(), LedgerError> {
        self.record("flow.refused", refusal(&refused), Durability::Buffered)?;
        let is_same = |one: &&mut Refused| one.flow == refused.flow && one.why == refused.why;
        if let Some(known) = self.flows.refused.iter_mut().find(is_same) {
            known.count = refused.count;
        } else if self.flows.refused.len() < REFUSED_MAX {
            self.flows.refused.push(refused);
        }
        Ok(())
    }

    fn record(&self, kind: &str, body: Value, durability: Durability) -> Result<(), LedgerError> {
        let recorded = self.ledger.record_flow(self.run, kind, &body, durability);
        recorded.map(drop)
    }

    /// Takes every report that is there. Whether there can be more.
    fn hear_all(&mut self) -> bool {
        let mut message = vec![0_u8; FLOW_MESSAGE_BYTES_MAX];
        loop {
            let State::Carrying { line, .. } = &self.state else {
                return false;
            };
            let got = match socket::receive(line.as_fd(), &mut message) {
                Ok((0, _)) => return false,
                Ok((got, _)) => got,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            };
            if let Err(error) = self.hear(message.get(..got).unwrap_or_default()) {
                self.unrecorded.get_or_insert(error);
                return false;
            }
        }
    }

    /// Ends what carries, once it has told everything. Nothing is carried after this.
    ///
    /// # Errors
    /// What could not be recorded.
    pub fn finish(mut self) -> Result<Flows, LedgerError> {
        if let State::Carrying { line, .. } = &self.state {
            let _ = order(line, FlowOrder::End);
        }
        let until = Instant::now() + FAREWELL;
        while self.unrecorded.is_none() && self.hear_all() && Instant::now() < until {
            let State::Carrying { line, .. } = &self.state else {
                break;
            };
            let left = until.saturating_duration_since(Instant::now()).as_millis();
            let left = u32::try_from(left).unwrap_or(u32::MAX);
            let _ = descriptor::wait_readable([Some(line.as_fd())], Some(left));
        }
        self.end_carrier();
        for id in mem::take(&mut self.open).into_keys() {
            let end = FlowEnd {
                failure: Some("nobody told of its end".to_owned()),
                ..FlowEnd::default()
            };
            self.close(id, &end)?;
        }
        match self.unrecorded.take() {
            Some(error) => Err(error),
            None => Ok(mem::take(&mut self.flows)),
        }
    }

    fn end_carrier(&mut self) {
        if let State::Carrying { line, pid } = mem::replace(&mut self.state, State::None) {
            drop(line);
            // It leads a group of its own, whose number is nobody else's before the wait.
            let _ = process::signal_group(pid, SIGKILL);
            let _ = process::wait(Some(pid), true);
        }
    }
}

impl Drop for Outside<'_> {
    fn drop(&mut self) {
        self.end_carrier();
    }
}

impl Carrier for Outside<'_> {
    fn take(&mut self, listeners: Vec<OwnedFd>) {
        self.state = State::Listening(listeners);
    }

    fn waits_on(&self) -> Vec<BorrowedFd<'_>> {
        match &self.state {
            State::None => Vec::new(),
            State::Listening(listeners) => listeners.iter().map(AsFd::as_fd).collect(),
            State::Carrying { line, .. } => vec![line.as_fd()],
        }
    }

    fn attend(&mut self) -> bool {
        match mem::replace(&mut self.state, State::None) {
            State::None => {}
            State::Listening(listeners) => self.start(&listeners),
            carrying @ State::Carrying { .. } => {
                self.state = carrying;
                if !self.hear_all() {
                    self.end_carrier();
                    self.fail("what carried them has ended".to_owned());
                }
            }
        }
        // What cannot be recorded is not let go on.
        self.unrecorded.is_none()
    }
}

fn begin(network: &Network, listeners: &[OwnedFd]) -> io::Result<(OwnedFd, u32)> {
    let (line, far) = socket::pair()?;
    let carriage = Carriage {
        network: network.clone(),
    };
    let message = serde_json::to_vec(&carriage)?;
    if message.len() > FLOW_MESSAGE_BYTES_MAX {
        return Err(io::Error::other("there are too many destinations"));
    }
    let with: Vec<BorrowedFd<'_>> = listeners.iter().map(AsFd::as_fd).collect();
    socket::send(line.as_fd(), &message, &with)?;
    let program = OwnedFd::from(File::open("/proc/self/exe")?);
    let nothing = OwnedFd::from(File::options().read(true).write(true).open("/dev/null")?);
    let standard = [
        nothing.as_fd(),
        nothing.as_fd(),
        nothing.as_fd(),
        far.as_fd(),
    ];
    let pid = process::spawn_from_memory(&program, OUTSIDE, &standard)?;
    descriptor::never_block(line.as_fd())?;
    Ok((line, pid))
}

/// Whether an order was taken: whoever carries takes them at once, but for a moment when
/// there are many. That it is gone is found by itself.
fn order(line: &OwnedFd, order: FlowOrder) -> bool {
    let Ok(message) = serde_json::to_vec(&order) else {
        return false;
    };
    let until = Instant::now() + ORDER_PATIENCE;
    loop {
        match socket::send(line.as_fd(), &message, &[]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(()) | Err(_) => return true,
        }
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(ORDER_PAUSE);
    }
}

fn flow_body(flow: &Flow) -> Value {
    let mut body = json!({ "kind": flow.kind, "host": flow.host });
    if let Some(body) = body.as_object_mut() {
        if flow.port != 0 {
            body.insert("port".to_owned(), flow.port.into());
        }
        if let Some(address) = flow.address {
            body.insert("address".to_owned(), address.to_string().into());
        }
        if let Some(rule) = &flow.rule {
            body.insert("rule".to_owned(), rule.as_str().into());
        }
    }
    body
}

fn opened(id: u64, flow: &Flow) -> Value {
    let mut body = flow_body(flow);
    if let Some(body) = body.as_object_mut() {
        body.insert("flow".to_owned(), id.into());
    }
    body
}

fn closed(id: u64, end: &FlowEnd) -> Value {
    let mut body = json!({
        "flow": id,
        "up_bytes": end.up_bytes,
        "down_bytes": end.down_bytes,
        "duration_us": end.duration_us,
    });
    if let (Some(body), Some(failure)) = (body.as_object_mut(), &end.failure) {
        body.insert("failure".to_owned(), failure.as_str().into());
    }
    body
}

fn refusal(refused: &Refused) -> Value {
    let mut body = flow_body(&refused.flow);
    if let Some(body) = body.as_object_mut() {
        body.insert("why".to_owned(), refused.why.as_str().into());
        body.insert("count".to_owned(), refused.count.into());
    }
    body
}
