//! A running upstream, as a session has it: its sandbox, its client process, and the calls under way.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use atoll_engine::failure::{Doing, Failure};
use atoll_engine::roles;
use atoll_engine::sandboxes::{Exec, PROXY, PriorAnswer, Sandbox, variable_in};
use atoll_engine::supervision::ExecRequest;
use atoll_model::network::{TRUST_BUNDLE, TRUST_DIRECTORY};
use atoll_model::{CallId, Ending, RunId, ServedExec};
use atoll_sys::{process, socket};
use rustix::process::{Pid, Signal, kill_process};

use super::calls::{Calling, Heard, LOOK, NoResult, SAID_WAITING_MAX};
use super::client::CLIENT;
use super::frames::{Given, News, Offered, Order, Speak, Trust, read, write};
use super::{Upstream, Way};
use crate::block::Block;
use crate::exec::{content, described};

/// The longest time for an upstream to begin.
const BEGINS_WITHIN: Duration = Duration::from_secs(60);
/// The longest time for its client process to take an order.
const ORDERED_WITHIN: Duration = Duration::from_secs(5);
/// The time in which a client process ends by itself.
const LEAVES_WITHIN: Duration = Duration::from_secs(3);
/// The longest reason why there is no connection, bytes.
const REASON_BYTES_MAX: usize = 1 << 10;
/// The time in which a program is seen to have ended that has closed its output.
const ENDS_WITHIN: Duration = Duration::from_millis(500);
const NOT_FOUND: &str = "its program is not in the sandbox: give its table a profile that shows the \
    program's directory and what it needs, by [files] read";
/// The part of its error output that is kept, bytes.
const ERRORS_BYTES_MAX: usize = 4 << 10;

/// The offers of an upstream by now.
enum Offer {
    Pending,
    There(Vec<Offered>),
    Gone(String),
}

/// The news of its client process.
struct Told {
    offer: Mutex<Offer>,
    changed: Condvar,
    waiting: Mutex<HashMap<u64, SyncSender<Heard>>>,
    /// The number of times that it has said what it offers.
    offers: AtomicU64,
    errors: Mutex<Vec<u8>>,
}

/// A running upstream.
pub(crate) struct Connection {
    sandbox: Arc<Sandbox>,
    /// The description that it was started by.
    place: String,
    told: Arc<Told>,
    line: Mutex<UnixStream>,
    next: AtomicU64,
    /// Its program, if it has one, ends with this.
    exec: Option<Mutex<Exec>>,
    client: u32,
    /// True if the client process has something to do before its end.
    ends_itself: bool,
}

impl Connection {
    /// Starts an upstream in its sandbox, and waits until it says what it offers.
    ///
    /// # Errors
    /// When it cannot be started, or does not speak MCP.
    pub(crate) fn start(
        sandbox: Arc<Sandbox>,
        upstream: &Upstream,
        parent: &CallId,
        served: Option<ServedExec>,
    ) -> Result<Self, Failure> {
        let speak = speak(&sandbox, upstream)?;
        let program = upstream.program();
        let streams = nothing().and_then(|one| Ok([one.try_clone()?, one.try_clone()?, one]));
        let [from, to, mut errors] = streams.doing("the upstream cannot be started")?;
        let (mut from, mut to, mut exec) = (from, to, None);
        if !program.is_empty() {
            let pipe = || io::pipe().doing("no pipe can be made");
            let ((input, its), (out, output), (err, errors_end)) = (pipe()?, pipe()?, pipe()?);
            (from, to, errors) = (out.into(), its.into(), err.into());
            let request = ExecRequest {
                command: program,
                directory: None,
                environment: Vec::new(),
                served,
                answer: PriorAnswer::Nobody,
                parent: Some(Box::new(parent.clone())),
            };
            let streams = [input.into(), output.into(), errors_end.into()];
            exec = Some(Mutex::new(sandbox.start(request, streams, None)?));
        }
        let (near, far) = UnixStream::pair().doing("no line can be made")?;
        near.set_write_timeout(Some(ORDERED_WITHIN))
            .doing("no line can be made")?;
        let (dials, dialled) = socket::pair().doing("no line can be made")?;
        let client = start_client([from, to, far.into(), dialled]);
        let client = client.doing("the client process cannot be started")?;
        let dialler = Arc::clone(&sandbox);
        std::thread::spawn(move || serve_dials(&dialler, &dials));
        let told = Arc::new(Told {
            offer: Mutex::new(Offer::Pending),
            changed: Condvar::new(),
            waiting: Mutex::default(),
            offers: AtomicU64::new(0),
            errors: Mutex::default(),
        });
        let mut reading = near.try_clone().doing("no line can be made")?;
        let (listens, keeps) = (Arc::clone(&told), Arc::clone(&told));
        std::thread::spawn(move || listens.listen(&mut reading));
        std::thread::spawn(move || keeps.keep_errors(&mut File::from(errors)));
        let connection = Self {
            sandbox,
            place: upstream.place(),
            told,
            line: Mutex::new(near),
            next: AtomicU64::new(0),
            exec,
            client,
            ends_itself: matches!(upstream.way, Way::Database(_)),
        };
        write(&mut *locked(&connection.line), &speak).doing("the upstream cannot be used")?;
        connection.offered().map_err(|why| {
            let what = format!("upstream {} cannot be used", upstream.name);
            Failure::new(what).because(connection.with_errors(&why))
        })?;
        Ok(connection)
    }

    /// Returns the run of its sandbox.
    pub(crate) fn run(&self) -> &RunId {
        self.sandbox.run()
    }

    /// Returns whether it can be called no more.
    pub(crate) fn is_gone(&self) -> bool {
        self.sandbox.has_ended() || self.told.has_gone()
    }

    /// Returns whether it was started by this description.
    pub(crate) fn is_of(&self, upstream: &Upstream) -> bool {
        self.place == upstream.place()
    }

    /// Returns the number of times that it has said what it offers.
    pub(crate) fn offers(&self) -> u64 {
        self.told.offers.load(Ordering::Relaxed)
    }

    /// Returns what it offers by now, if it has said so.
    pub(crate) fn known(&self) -> Option<Vec<Offered>> {
        match &*locked(&self.told.offer) {
            Offer::There(offered) => Some(offered.clone()),
            Offer::Pending | Offer::Gone(_) => None,
        }
    }

    /// Returns what it offers, once it has said so.
    pub(crate) fn offered(&self) -> Result<Vec<Offered>, String> {
        let until = Instant::now() + BEGINS_WITHIN;
        let mut offer = locked(&self.told.offer);
        loop {
            match &*offer {
                Offer::There(tools) => return Ok(tools.clone()),
                Offer::Gone(why) => return Err(why.clone()),
                Offer::Pending => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err("it does not begin in time".to_owned());
            }
            let waited = self.told.changed.wait_timeout(offer, left);
            offer = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Adds the end of what it has written to its error output.
    fn with_errors(&self, why: &str) -> String {
        let until = Instant::now() + ENDS_WITHIN;
        let refused = loop {
            let Some(exec) = &self.exec else {
                break None;
            };
            match locked(exec).ended() {
                Ok(None) if Instant::now() < until => std::thread::sleep(LOOK),
                Ok(None) => break None,
                Ok(Some(Ending::NotFound)) => break Some(NOT_FOUND.to_owned()),
                Ok(Some(ending)) => break Some(described(&ending)),
                Err(failure) => {
                    break Some(match failure.why {
                        Some(why) => format!("{}: {why}", failure.what),
                        None => failure.what,
                    });
                }
            }
        };
        let errors = String::from_utf8_lossy(&locked(&self.told.errors)).into_owned();
        let all = [Some(why.to_owned()), refused, Some(errors)];
        let all: Vec<String> = all.into_iter().flatten().collect();
        all.join("\n").trim_end().to_owned()
    }

    /// Makes a call, and waits for the result: that of this call, and of no other.
    pub(crate) fn call(&self, calling: &Calling<'_>) -> Result<Given, NoResult> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, heard) = sync_channel(SAID_WAITING_MAX);
        locked(&self.told.waiting).insert(id, sender);
        let order = Order::Call {
            id,
            form: calling.form,
            name: calling.name.to_owned(),
            arguments: calling.arguments.clone(),
            answers: calling.answers.clone(),
            askable: calling.askable,
            listens: calling.listener.is_some(),
        };
        // Nobody answers those who wait once it has gone.
        let sent = match self.told.has_gone() {
            true => Err("it has ended".to_owned()),
            false => self.order(&order).map_err(|error| error.to_string()),
        };
        let given = match sent {
            Err(why) => Err(NoResult::NotSent(why)),
            Ok(()) => calling.wait(&heard, || self.with_errors("it has ended")),
        };
        locked(&self.told.waiting).remove(&id);
        if given.is_err() {
            let _ = self.order(&Order::Cancel { id });
        }
        given
    }

    fn order(&self, order: &Order) -> io::Result<()> {
        let written = write(&mut *locked(&self.line), order);
        if let Err(error) = &written
            && error.kind() != io::ErrorKind::InvalidData
        {
            // A part of it may be there: nothing after it would be understood.
            self.kill_client();
        }
        written
    }

    fn kill_client(&self) {
        let pid = i32::try_from(self.client).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // Not waited for yet, so the number is still its own.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let _ = locked(&self.line).shutdown(Shutdown::Write);
        let until = Instant::now() + LEAVES_WITHIN;
        while self.ends_itself && !self.told.has_gone() && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        self.kill_client();
        let _ = process::wait(Some(self.client), true);
    }
}

impl Told {
    /// Takes the news of the client process, until it is gone.
    fn listen(&self, from: &mut UnixStream) {
        let gone = loop {
            match read::<News>(from) {
                Ok(Some(News::Offered(offered))) => {
                    self.set(Offer::There(offered));
                    self.offers.fetch_add(1, Ordering::Relaxed);
                }
                Ok(Some(News::Said { id, said })) => {
                    // One that nobody has time for is dropped.
                    if let Some(sender) = locked(&self.waiting).get(&id) {
                        let _ = sender.try_send(Heard::Said(said));
                    }
                }
                Ok(Some(News::Failed { why })) => break why,
                Ok(Some(News::Result { id, given })) => self.give(id, given),
                Ok(Some(News::Error { id, why })) => {
                    let given = Given {
                        is_error: true,
                        ..Given::of(vec![Block::text(why)])
                    };
                    self.give(id, given);
                }
                Ok(None) => break "its client process has ended".to_owned(),
                Err(error) => break format!("its client process cannot be understood: {error}"),
            }
        };
        self.set(Offer::Gone(gone));
        // Whoever waits is told by that there is nobody who could answer.
        locked(&self.waiting).clear();
    }

    fn has_gone(&self) -> bool {
        matches!(&*locked(&self.offer), Offer::Gone(_))
    }

    fn set(&self, offer: Offer) {
        *locked(&self.offer) = offer;
        self.changed.notify_all();
    }

    /// Gives a result to whoever waits for it; one that nobody waits for is dropped.
    fn give(&self, id: u64, given: Given) {
        let sender = locked(&self.waiting).remove(&id);
        if let Some(sender) = sender {
            let _ = sender.send(Heard::Given(given));
        }
    }

    fn keep_errors(&self, from: &mut File) {
        let mut block = [0; 4 << 10];
        while let Ok(got @ 1..) = from.read(&mut block) {
            let mut errors = locked(&self.errors);
            errors.extend_from_slice(block.get(..got).unwrap_or_default());
            let more = errors.len().saturating_sub(ERRORS_BYTES_MAX);
            errors.drain(..more);
        }
    }
}

fn nothing() -> io::Result<OwnedFd> {
    let open = File::options().read(true).write(true).open("/dev/null");
    Ok(open?.into())
}

/// Starts the client process, with its descriptors.
fn start_client(own: [OwnedFd; 4]) -> io::Result<u32> {
    let nothing = nothing()?;
    let errors = io::stderr().as_fd().try_clone_to_owned()?;
    let own = own.iter().map(OwnedFd::as_fd);
    let standard = [nothing.as_fd(), nothing.as_fd(), errors.as_fd()];
    let all: Vec<BorrowedFd<'_>> = standard.into_iter().chain(own).collect();
    roles::start(CLIENT, &all)
}

/// Returns the way that the client process speaks.
fn speak(sandbox: &Sandbox, upstream: &Upstream) -> Result<Speak, Failure> {
    Ok(match &upstream.way {
        Way::Program(_) => Speak::Mcp,
        Way::Http(url) => Speak::McpByHttp {
            url: url.clone(),
            trust: trust(sandbox, upstream)?,
        },
        Way::OpenApi(_) => Speak::Http(trust(sandbox, upstream)?),
        Way::Database(database) => Speak::Sql(database.clone()),
    })
}

/// Returns what the client process trusts, and is trusted by.
fn trust(sandbox: &Sandbox, upstream: &Upstream) -> Result<Trust, Failure> {
    let header = |(name, text): (&String, &String)| {
        let value = filled(text, |variable| variable_in(sandbox, variable)?.to_str());
        let value = value.map_err(|why| Failure::new(format!("header {name}: {why}")))?;
        Ok((name.clone(), value))
    };
    Ok(Trust {
        roots: roots(sandbox)?,
        headers: upstream
            .headers
            .iter()
            .map(header)
            .collect::<Result<_, Failure>>()?,
    })
}

/// Puts variables into a text, where `{NAME}` stands for them.
fn filled<'a>(text: &str, variable: impl Fn(&str) -> Option<&'a str>) -> Result<String, String> {
    let mut parts = text.split('{');
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}').ok_or("a { has no }")?;
        let value = variable(name);
        let none = || format!("its sandbox has no variable {name}");
        whole.push_str(value.ok_or_else(none)?);
        whole.push_str(rest);
    }
    Ok(whole)
}

/// Returns the certificates that programs of the sandbox trust: those of its egress too.
fn roots(sandbox: &Sandbox) -> Result<String, Failure> {
    let bundle = format!("{TRUST_DIRECTORY}/{TRUST_BUNDLE}");
    let places = [
        &*bundle,
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
    ];
    let read = |place: &&str| content(sandbox, Path::new(place)).ok();
    let read = places.iter().find_map(read).unwrap_or_default();
    String::from_utf8(read).doing("the certificates of its sandbox cannot be read")
}

/// Makes connections with the proxy of the sandbox's network, for as long as the client process asks
/// for them.
fn serve_dials(sandbox: &Sandbox, client: &OwnedFd) {
    let mut files = None;
    let mut asked = [0; 1];
    while let Ok((1.., _)) = socket::receive(client.as_fd(), &mut asked) {
        let dialled = match files.take() {
            Some(server) => Ok(server),
            None => sandbox.files(),
        };
        let dialled = dialled.and_then(|server| {
            let dialled = server.dial(PROXY.into()).doing(
                "its sandbox reaches nobody: give its table a profile, or allow, with the host",
            )?;
            files = Some(server);
            Ok(dialled)
        });
        let sent = match dialled {
            Ok(proxy) => socket::send(client.as_fd(), b"k", &[proxy.as_fd()]),
            Err(failure) => {
                let why = failure.why.unwrap_or_default();
                let why = format!("{}: {why}", failure.what);
                let why = why
                    .as_bytes()
                    .get(..REASON_BYTES_MAX)
                    .unwrap_or(why.as_bytes());
                socket::send(client.as_fd(), why, &[])
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

fn locked<T>(one: &Mutex<T>) -> MutexGuard<'_, T> {
    one.lock().unwrap_or_else(PoisonError::into_inner)
}
