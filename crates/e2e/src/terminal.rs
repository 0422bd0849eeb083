use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use crate::Outcome;
use crate::canary::Canaries;
use crate::processes::end;

/// A program on a terminal, with the user's side of it in the test's hands.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    person: Option<File>,
    seen: Vec<u8>,
    /// The end of the last text that [`Terminal::expect`] has found.
    read_to: usize,
    bound: Duration,
    canaries: Option<Canaries>,
}

impl Terminal {
    pub(crate) fn start(
        mut command: Command,
        rows: u16,
        columns: u16,
        bound: Duration,
        canaries: Option<Canaries>,
    ) -> Self {
        let person =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        set_size(&person, rows, columns);
        let name = ptsname(&person, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let program = File::from(open(name, flags, Mode::empty()).unwrap());
        command
            .stdin(program.try_clone().unwrap())
            .stdout(program.try_clone().unwrap())
            .stderr(program);
        let child = command.spawn().unwrap();
        // Its copies of the program's side would keep the terminal open.
        drop(command);
        Self {
            child,
            person: Some(File::from(person)),
            seen: Vec::new(),
            read_to: 0,
            bound,
            canaries,
        }
    }

    /// Returns the process id of the program on it.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Types bytes.
    ///
    /// # Panics
    /// When the terminal was closed.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.person().write_all(bytes.as_ref()).unwrap();
    }

    /// Types a line.
    pub fn line(&mut self, text: &str) {
        self.send(format!("{text}\r"));
    }

    /// Resizes the window.
    pub fn resize(&mut self, rows: u16, columns: u16) {
        set_size(self.person(), rows, columns);
    }

    /// Waits for a text that was not found before, and returns the output up to its end.
    ///
    /// # Panics
    /// When it does not come within the bound, or the program ends before.
    pub fn expect(&mut self, text: &str) -> String {
        let end = Instant::now() + self.bound;
        loop {
            let new = &self.seen[self.read_to..];
            let at = new
                .windows(text.len())
                .position(|part| part == text.as_bytes());
            if let Some(at) = at {
                let shown = String::from_utf8_lossy(&new[..at + text.len()]).into_owned();
                self.read_to += at + text.len();
                return shown;
            }
            let open = self.pump(Duration::from_millis(50));
            assert!(
                open && Instant::now() < end,
                "waited for {text:?} on the terminal, saw:\n{}",
                self.shown()
            );
        }
    }

    /// Returns everything shown so far.
    #[must_use]
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    /// Returns everything shown so far, as raw bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.seen
    }

    /// Returns the terminal's settings.
    ///
    /// # Panics
    /// When it was closed.
    #[must_use]
    pub fn settings(&self) -> Termios {
        tcgetattr(self.person.as_ref().unwrap()).unwrap()
    }

    /// Closes the user's window.
    pub fn close(&mut self) {
        self.person = None;
    }

    /// Waits for the program's end, showing what it writes until then.
    ///
    /// # Panics
    /// When that takes longer than the bound.
    #[must_use]
    pub fn wait(&mut self) -> Outcome {
        let end = Instant::now() + self.bound;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(
                Instant::now() < end,
                "did not end; the terminal shows:\n{}",
                self.shown()
            );
            if self.person.is_none() || !self.pump(Duration::from_millis(20)) {
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        while self.person.is_some() && self.has_more() && self.pump(Duration::ZERO) {}
        Outcome {
            status,
            stdout: self.seen.clone(),
            stderr: Vec::new(),
        }
    }

    fn person(&mut self) -> &mut File {
        self.person.as_mut().expect("the terminal was closed")
    }

    fn has_more(&self) -> bool {
        let Some(person) = &self.person else {
            return false;
        };
        let mut one = [PollFd::new(person, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut one, Some(&now)).is_ok_and(|count| count > 0)
            && one[0].revents().contains(PollFlags::IN)
    }

    /// Reads the available output; `false` when nobody holds the program's side anymore.
    fn pump(&mut self, wait: Duration) -> bool {
        let Some(person) = &mut self.person else {
            return false;
        };
        let wait = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        let mut one = [PollFd::new(&*person, PollFlags::IN)];
        if poll(&mut one, Some(&wait)).unwrap_or(0) == 0 {
            return true;
        }
        let mut part = [0; 16 * 1024];
        match person.read(&mut part) {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.seen.extend_from_slice(&part[..count]);
                true
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        end(&mut self.child);
        while self.person.is_some() && self.has_more() && self.pump(Duration::ZERO) {}
        if let Some(canaries) = &self.canaries {
            canaries.wrote("terminal", &self.seen);
        }
    }
}

fn set_size(person: impl std::os::fd::AsFd, rows: u16, columns: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(person, size).unwrap();
}
