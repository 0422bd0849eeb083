//! `atoll sandbox exec` and `shell`: a program in a sandbox of a server, on this terminal.

use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::thread;

use atoll_engine::failure::{Doing, Failure};
use atoll_model::TerminalRights;
use atoll_sandbox::SIGWINCH;
use atoll_sys::descriptor::wait_readable;
use atoll_sys::process::{next_signal, signals_as_descriptor};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use ureq::http::Response;
use ureq::{Body, SendBody};

use super::{Server, pairs, sandbox_path, text_of};
use crate::arguments::{ExecSandboxArguments, ShellSandboxArguments};
use crate::console::RawTerminal;
use crate::escape::EscapeFilter;
use crate::terminal::terminal_size;

/// The most of standard input that is passed on at once, bytes.
const INPUT_BYTES: usize = 64 * 1024;
/// The status for a program that is not found, as shells have it.
const STATUS_NOT_FOUND: u8 = 127;
/// The shell of a sandbox: bash where it is there.
const SHELL: &str = "command -v bash >/dev/null && exec bash -il; exec sh -il";

/// The time after which somebody is told that they wait, milliseconds.
const WAITS_MS: u32 = 3_000;
/// The statuses of a program that a limit of time ended, or another one, as `atoll run` has them.
const STATUS_LATE: u8 = 124;
const STATUS_LIMITED: u8 = 137;
/// The status of a program that writes where nobody reads, as shells have it: 128 and SIGPIPE.
const STATUS_UNREAD: u8 = 141;

const SIGHUP: u8 = 1;
const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;

/// Runs a program to its end; returns its status.
pub(super) fn exec(server: &Server, arguments: &ExecSandboxArguments) -> Result<u8, Failure> {
    let has_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if arguments.tty && !has_terminal {
        return Err(Failure::new("--tty needs a terminal")
            .because("standard input or output is something else"));
    }
    let request = json!({
        "command": arguments.command,
        "environment": pairs(&arguments.env, "--env")?,
        "directory": arguments.directory,
    });
    ran(
        server,
        &arguments.id,
        request,
        has_terminal && !arguments.no_tty,
    )
}

/// Opens a shell; returns its status.
pub(super) fn shell(server: &Server, arguments: &ShellSandboxArguments) -> Result<u8, Failure> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Failure::new("a shell needs a terminal")
            .because("standard input or output is something else")
            .advise("atoll sandbox exec ID -- COMMAND runs a single command"));
    }
    let mut environment = json!({});
    if let (Ok(name), Some(all)) = (std::env::var("TERM"), environment.as_object_mut()) {
        all.insert("TERM".to_owned(), name.into());
    }
    let request = json!({ "command": ["sh", "-c", SHELL], "environment": environment });
    ran(server, &arguments.id, request, true)
}

/// Runs a program on this process's streams, or on its terminal.
fn ran(server: &Server, id: &str, mut request: Value, terminal: bool) -> Result<u8, Failure> {
    // Before any thread: each would have its own.
    let signals = signals_as_descriptor(&[SIGINT, SIGTERM, SIGWINCH]);
    let signals = signals.doing("signals cannot be taken over")?;
    let is_fed = terminal || !io::stdin().is_terminal();
    if let Some(all) = request.as_object_mut() {
        all.insert("input".to_owned(), is_fed.into());
        if terminal {
            all.insert("terminal".to_owned(), size());
        }
    }
    let process = Arc::new(OnceLock::new());
    pass_signals(server, &process, signals);
    let started = server.json("POST", &sandbox_path(id, "/processes"), &request)?;
    let pid = text_of(&started, "pid");
    let process = process.get_or_init(|| sandbox_path(id, &format!("/processes/{pid}")));
    let stdin = io::stdin();
    let raw = terminal.then(|| RawTerminal::take(&stdin)).flatten();
    let ended = followed(server, process, is_fed);
    if let Some(raw) = raw {
        raw.give_back();
    }
    ended
}

/// Returns the size of this terminal.
fn size() -> Value {
    match terminal_size() {
        Some(size) => json!({ "rows": size.rows, "columns": size.columns }),
        None => json!({ "rows": 24, "columns": 80 }),
    }
}

/// Follows a program to its end; returns its status.
fn followed(server: &Server, process: &str, is_fed: bool) -> Result<u8, Failure> {
    if is_fed {
        feed(server, process)?;
    }
    let path = format!("{process}/output");
    let mut screen = Screen::new();
    let mut from = 0;
    loop {
        let answer = server.ask("GET", &format!("{path}?from={from}"), SendBody::none())?;
        // A stream that broke off goes on from where it was.
        match follow(answer, &mut from, &mut screen)? {
            Followed::Ended(status) => {
                screen.finish();
                return Ok(status);
            }
            Followed::BrokenOff => {}
            // As it would have been told, had it written to that pipe itself.
            Followed::Unread => {
                let body = json!({ "number": SIGHUP });
                let _ = server.json("POST", &format!("{process}/signal"), &body);
                return Ok(STATUS_UNREAD);
            }
        }
    }
}

/// Standard output and error; on a terminal without what could do harm there.
struct Screen {
    out: Option<EscapeFilter>,
    err: Option<EscapeFilter>,
}

impl Screen {
    fn new() -> Self {
        let filter =
            |is_terminal: bool| is_terminal.then(|| EscapeFilter::new(TerminalRights::default()));
        Self {
            out: filter(io::stdout().is_terminal()),
            err: filter(io::stderr().is_terminal()),
        }
    }

    fn write(&mut self, content: &[u8], is_error: bool) -> io::Result<()> {
        let filter = if is_error {
            &mut self.err
        } else {
            &mut self.out
        };
        let mut shown = Vec::new();
        match filter {
            Some(filter) => filter.push(content, &mut shown),
            None => shown.extend_from_slice(content),
        }
        put(&shown, is_error)
    }

    /// Leaves the terminal as it was.
    fn finish(mut self) {
        for (filter, is_error) in [(&mut self.out, false), (&mut self.err, true)] {
            if let Some(filter) = filter {
                let mut shown = Vec::new();
                filter.finish(&mut shown);
                filter.restore(&mut shown);
                // A terminal that is gone needs nothing.
                let _ = put(&shown, is_error);
            }
        }
    }
}

fn put(content: &[u8], is_error: bool) -> io::Result<()> {
    if is_error {
        return io::stderr().lock().write_all(content);
    }
    let mut out = io::stdout().lock();
    out.write_all(content).and_then(|()| out.flush())
}

/// Passes standard input on, in a thread of its own: the program may end before all of it is read.
fn feed(server: &Server, process: &str) -> Result<(), Failure> {
    let (server, path) = (server.clone(), format!("{process}/input"));
    let fed = thread::Builder::new().spawn(move || {
        let mut block = vec![0; INPUT_BYTES];
        while let Ok(got @ 1..) = io::stdin().lock().read(&mut block) {
            let mut part = io::Cursor::new(block.get(..got).unwrap_or_default().to_vec());
            if server
                .ask("POST", &path, SendBody::from_reader(&mut part))
                .is_err()
            {
                return;
            }
        }
        // A program that has ended has no input to close.
        let _ = server.ask("DELETE", &path, SendBody::none());
    });
    fed.map(drop).doing("standard input cannot be passed on")
}

/// Passes signals on to the program, whose end tells of them, and the size of this terminal. Before
/// it is started, which an approver may have to agree to, they end this client.
fn pass_signals(server: &Server, process: &Arc<OnceLock<String>>, signals: OwnedFd) {
    let (server, process) = (server.clone(), Arc::clone(process));
    // Without a thread they have no effect; the server ends the program with its sandbox.
    let _ = thread::Builder::new().spawn(move || {
        let waits = wait_readable([Some(signals.as_fd())], Some(WAITS_MS));
        if waits.is_ok_and(|[is_there]| !is_there) && process.get().is_none() {
            eprintln!("atoll: not started yet: an approver may have to agree; Ctrl-C gives up");
        }
        loop {
            let ready = wait_readable([Some(signals.as_fd())], None);
            if ready.is_err() {
                return;
            }
            while let Ok(Some(number)) = next_signal(signals.as_fd()) {
                let Some(process) = process.get() else {
                    if number != SIGWINCH {
                        std::process::exit(128 + number);
                    }
                    continue;
                };
                let _ = match number {
                    SIGWINCH => server.json("POST", &format!("{process}/terminal"), &size()),
                    _ => {
                        let body = json!({ "number": number });
                        server.json("POST", &format!("{process}/signal"), &body)
                    }
                };
            }
        }
    });
}

/// The end of a stream of output.
enum Followed {
    /// The program has ended, with this status.
    Ended(u8),
    /// The stream broke off.
    BrokenOff,
    /// Nobody reads it any more.
    Unread,
}

/// Writes what a program writes; returns its status once it has ended, or none if the stream broke
/// off.
fn follow(
    answer: Response<Body>,
    from: &mut u64,
    screen: &mut Screen,
) -> Result<Followed, Failure> {
    let reader = BufReader::new(answer.into_body().into_reader());
    let (mut kind, mut id, mut data) = (String::new(), None, Value::Null);
    for line in reader.lines() {
        let Ok(line) = line else {
            return Ok(Followed::BrokenOff);
        };
        if let Some(text) = line.strip_prefix("event: ") {
            text.clone_into(&mut kind);
        } else if let Some(text) = line.strip_prefix("id: ") {
            id = text.parse().ok();
        } else if let Some(text) = line.strip_prefix("data: ") {
            data = serde_json::from_str(text).unwrap_or_default();
        } else if line.is_empty() {
            match kind.as_str() {
                "output" => match write(&data, screen)? {
                    true => {}
                    false => return Ok(Followed::Unread),
                },
                "lost" => eprintln!(
                    "atoll: {} bytes of output are lost",
                    text_of(&data, "bytes")
                ),
                "end" => return ended(&data).map(Followed::Ended),
                _ => {}
            }
            *from = id.unwrap_or(*from);
            kind.clear();
        }
    }
    Ok(Followed::BrokenOff)
}

/// Writes a part of the output; returns false where nobody reads it any more.
fn write(data: &Value, screen: &mut Screen) -> Result<bool, Failure> {
    let content = data
        .get("base64")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let content = BASE64_STANDARD.decode(content);
    let content = content.doing("the output is not understood")?;
    let is_error = data.get("stream").is_some_and(|stream| stream == "stderr");
    match screen.write(&content, is_error) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => written.doing("the output cannot be written").map(|()| true),
    }
}

/// Returns the status for an end: the program's own, or 128 and the signal.
fn ended(data: &Value) -> Result<u8, Failure> {
    let number = |name: &str| data.get(name).and_then(Value::as_u64);
    match (number("exited"), number("signalled")) {
        (Some(status), _) => Ok(u8::try_from(status).unwrap_or(u8::MAX)),
        (None, Some(signal)) => Ok(u8::try_from(128 + signal).unwrap_or(u8::MAX)),
        (None, None) if text_of(data, "otherwise").starts_with("there is no such program") => {
            eprintln!("atoll: there is no such program in the sandbox");
            Ok(STATUS_NOT_FOUND)
        }
        (None, None) if data.get("limited").is_some() => {
            let limit = text_of(data, "limited");
            eprintln!("atoll: the program was ended: the {limit} limit was reached");
            Ok(match limit.as_str() {
                "wall-clock" | "idle" => STATUS_LATE,
                _ => STATUS_LIMITED,
            })
        }
        (None, None) => {
            let why = ["gone", "otherwise"]
                .map(|name| text_of(data, name))
                .concat();
            Err(Failure::new("the program did not come to its end").because(why))
        }
    }
}
