//! A run's connections to the outside, as the side that records them sees it: the
//! process that carries them is started when the first one comes, and nothing it wants
//! to send on goes before it is on disk.

use std::collections::HashSet;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::Carrier;
use atoll_model::network::{
    Carriage, FLOW_MESSAGE_BYTES_MAX, Flow, FlowEnd, FlowOrder, FlowReport, Network,
};
use atoll_sys::{descriptor, process, socket};

/// How long the carrier may take to end once there is nothing more to carry.
const FAREWELL: Duration = Duration::from_secs(3);

/// How long an order may take to be taken.
const ORDER_PATIENCE: Duration = Duration::from_secs(1);
const ORDER_PAUSE: Duration = Duration::from_micros(200);

/// How many reports are taken before everything else has its turn: each can wait for
/// the disk.
const REPORTS_AT_ONCE_MAX: usize = 16;

/// How many refusals are kept for the run's summary.
const REFUSED_MAX: usize = 1024;

const SIGKILL: i32 = 9;

/// The name by which this program is started to carry connections, by the line at its
/// descriptor 3: whoever starts sandboxes with a network has to do so when called this.
pub const OUTSIDE: &CStr = c"atoll-egress";

/// What is to be recorded of a run's connections. What opens has to be on disk before
/// this returns; the rest need not.
#[derive(Clone, Copy, Debug)]
pub enum FlowNews<'a> {
    /// This is about to happen.
    Opened {
        /// Stands for it.
        id: u64,
        /// What it is.
        flow: &'a Flow,
    },
    /// It has ended.
    Closed {
        /// What stood for it.
        id: u64,
        /// How.
        end: &'a FlowEnd,
    },
    /// Something was refused.
    Refused(&'a Refused),
}

/// Who records: whether it is recorded. What is not is not let go on.
pub type Recorder<'a> = &'a mut dyn FnMut(&FlowNews<'_>) -> bool;

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
pub struct Outside<'a> {
    record: Recorder<'a>,
    network: &'a Network,
    state: State,
    open: HashSet<u64>,
    flows: Flows,
    /// Something could not be recorded.
    is_unrecorded: bool,
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
    pub fn new(network: &'a Network, record: Recorder<'a>) -> Self {
        Self {
            record,
            network,
            state: State::None,
            open: HashSet::new(),
            flows: Flows::default(),
            is_unrecorded: false,
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
    fn hear(&mut self, message: &[u8]) {
        let Ok(report) = serde_json::from_slice::<FlowReport>(message) else {
            return self.fail("what carried them said something unknown".to_owned());
        };
        match report {
            FlowReport::Open { id, flow } => {
                if !self.recorded(&FlowNews::Opened { id, flow: &flow }) {
                    return;
                }
                self.flows.made = self.flows.made.saturating_add(1);
                self.open.insert(id);
                let told = match &self.state {
                    State::Carrying { line, .. } => order(line, FlowOrder::Recorded { id }),
                    State::None | State::Listening(_) => true,
                };
                if !told {
                    self.end_carrier();
                    self.fail("what carried them did not listen any more".to_owned());
                }
            }
            FlowReport::Closed { id, end } => {
                if self.open.remove(&id) {
                    self.close(id, &end);
                }
            }
            FlowReport::Refused { flow, why, count } => self.refuse(Refused { flow, why, count }),
        }
    }

    fn close(&mut self, id: u64, end: &FlowEnd) {
        self.flows.up_bytes = self.flows.up_bytes.saturating_add(end.up_bytes);
        self.flows.down_bytes = self.flows.down_bytes.saturating_add(end.down_bytes);
        self.recorded(&FlowNews::Closed { id, end });
    }

    fn refuse(&mut self, refused: Refused) {
        self.recorded(&FlowNews::Refused(&refused));
        let is_same = |one: &&mut Refused| one.flow == refused.flow && one.why == refused.why;
        if let Some(known) = self.flows.refused.iter_mut().find(is_same) {
            known.count = refused.count;
        } else if self.flows.refused.len() < REFUSED_MAX {
            self.flows.refused.push(refused);
        }
    }

    /// Whether it is recorded.
    fn recorded(&mut self, news: &FlowNews<'_>) -> bool {
        self.is_unrecorded |= !(self.record)(news);
        !self.is_unrecorded
    }

    /// Takes reports that are there, not all of them where there are many: whoever waits
    /// for them watches over limits too. Whether there can be more.
    fn hear_some(&mut self) -> bool {
        let mut message = vec![0_u8; FLOW_MESSAGE_BYTES_MAX];
        for _ in 0..REPORTS_AT_ONCE_MAX {
            let State::Carrying { line, .. } = &self.state else {
                return false;
            };
            let got = match socket::receive(line.as_fd(), &mut message) {
                Ok((0, _)) => return false,
                Ok((got, _)) => got,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            };
            self.hear(message.get(..got).unwrap_or_default());
            if self.is_unrecorded {
                return false;
            }
        }
        true
    }

    /// Ends what carries, once it has told everything. Nothing is carried after this.
    #[must_use]
    pub fn finish(mut self) -> Flows {
        if let State::Carrying { line, .. } = &self.state {
            let _ = order(line, FlowOrder::End);
        }
        let until = Instant::now() + FAREWELL;
        while !self.is_unrecorded && self.hear_some() && Instant::now() < until {
            let State::Carrying { line, .. } = &self.state else {
                break;
            };
            let left = until.saturating_duration_since(Instant::now()).as_millis();
            let left = u32::try_from(left).unwrap_or(u32::MAX);
            let _ = descriptor::wait_readable([Some(line.as_fd())], Some(left));
        }
        self.end_carrier();
        for id in mem::take(&mut self.open) {
            let end = FlowEnd {
                failure: Some("nobody told of its end".to_owned()),
                ..FlowEnd::default()
            };
            self.close(id, &end);
        }
        mem::take(&mut self.flows)
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
                if !self.hear_some() {
                    self.end_carrier();
                    self.fail("what carried them has ended".to_owned());
                }
            }
        }
        // What cannot be recorded is not let go on.
        !self.is_unrecorded
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
