//! The listeners on a sandbox's network, seen from outside: the kernel's table is read once a
//! second while the number of sockets changes. No process in the sandbox is involved, or can
//! delay it.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use atoll_model::network::{Listener, ListensAt};

use crate::disk::Family;
use crate::launcher::children_of;

/// The time of the first look after the network was made: most runs are over by then.
const FIRST_LOOK: Duration = Duration::from_millis(500);
/// The interval of reading the number of sockets, which takes 40 us. Reading the tables takes 9
/// ms on a kernel with room for 262,144 connections of all networks, all of which it goes
/// through.
const INTERVAL: Duration = Duration::from_secs(1);
/// The longest time without reading the tables: as many sockets may have ended as have begun.
const UNCHANGED: Duration = Duration::from_secs(10);
/// The most listeners known at a time; further ones are ignored.
const KNOWN_MAX: usize = 256;
/// The most listeners remembered of a run.
const SEEN_MAX: usize = 256;
/// The most bytes of a table that are read: listeners come first in it.
const TABLE_BYTES_MAX: u64 = 256 << 10;
/// The most listeners whose program is looked up, in case a program opens them without end.
const NAMED_MAX: usize = 64;
/// The most descriptors inspected in one such lookup.
const DESCRIPTORS_MAX: usize = 8192;
/// The longest name of a program (proc_pid_comm(5)), bytes.
const NAME_BYTES_MAX: usize = 64;

/// The watch over the listeners of one sandbox.
#[derive(Debug)]
pub struct Listening {
    launcher: u32,
    /// The first process of the sandbox, once it was found.
    inside: Option<u32>,
    next: Instant,
    /// The number of sockets before the last look.
    counted: Option<[u64; 2]>,
    /// The time of the next look if the number stays the same.
    anyway: Instant,
    /// Atoll's own sockets, by inode.
    own: Vec<u64>,
    /// The present listeners.
    now: Vec<Socket>,
    /// All listeners so far, each once.
    seen: Vec<Listener>,
    named: usize,
}

/// A listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Socket {
    inode: u64,
    listener: Listener,
}

impl Listening {
    /// Starts to watch a launcher's sandbox, in which `own` are Atoll's own sockets.
    pub fn of(launcher: u32, own: &[OwnedFd]) -> Self {
        let first = Instant::now() + FIRST_LOOK;
        let inode = |socket: &OwnedFd| rustix::fs::fstat(socket).ok().map(|facts| facts.st_ino);
        Self {
            launcher,
            inside: None,
            next: first,
            counted: None,
            anyway: first,
            own: own.iter().filter_map(inode).collect(),
            now: Vec::new(),
            seen: Vec::new(),
            named: 0,
        }
    }

    /// Returns the time of the next look.
    pub fn due(&self) -> Instant {
        self.next
    }

    /// Returns the present listeners.
    pub fn now(&self) -> Vec<Listener> {
        self.now.iter().map(|one| one.listener.clone()).collect()
    }

    /// Returns all listeners of the run, each once.
    pub fn into_seen(self) -> Vec<Listener> {
        self.seen
    }

    /// Looks if it is time to. Returns the listeners that have not been returned before.
    pub fn look(&mut self) -> Vec<Listener> {
        let now = Instant::now();
        if now < self.next {
            return Vec::new();
        }
        self.next = now + INTERVAL;
        // First: what begins to listen while the tables are read makes them be read again.
        let counted = self.inside.and_then(counted);
        if counted.is_some() && counted == self.counted && now < self.anyway {
            return Vec::new();
        }
        (self.counted, self.anyway) = (counted, now + UNCHANGED);
        self.look_now()
    }

    /// Looks at once.
    pub fn look_now(&mut self) -> Vec<Listener> {
        let inside = self
            .inside
            .or_else(|| children_of(self.launcher).first().copied());
        let Some(inside) = inside else {
            return Vec::new();
        };
        let tables = ["tcp", "tcp6"].map(|name| table(inside, name));
        if tables.iter().all(Result::is_err) {
            // It has ended, or this was somebody who helped it begin.
            self.inside = None;
            self.now.clear();
            return Vec::new();
        }
        self.inside = Some(inside);
        let mut found: Vec<Socket> = tables.into_iter().flatten().flatten().collect();
        found.retain(|one| !self.own.contains(&one.inode));
        found.sort_by_key(|one| one.listener.port);
        found.truncate(KNOWN_MAX);
        for one in &mut found {
            let known = self.now.iter().find(|known| known.inode == one.inode);
            one.listener.program = match known {
                Some(known) => known.listener.program.clone(),
                None => self.name(one.inode),
            };
        }
        self.now = found;
        let mut begun = Vec::new();
        for one in &self.now {
            let is_new = !self.seen.contains(&one.listener);
            if is_new && self.seen.len() < SEEN_MAX {
                self.seen.push(one.listener.clone());
                begun.push(one.listener.clone());
            }
        }
        begun
    }

    /// Returns the program that has a socket open.
    fn name(&mut self, inode: u64) -> Option<String> {
        self.named += 1;
        if self.named > NAMED_MAX {
            return None;
        }
        let wanted = format!("socket:[{inode}]");
        let mut left = DESCRIPTORS_MAX;
        let tasks = Family::of(self.launcher, None).tasks();
        let mut processes: Vec<u32> = tasks.into_iter().map(|(pid, _)| pid).collect();
        processes.dedup();
        processes.into_iter().find_map(|pid| {
            let entries = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
            for entry in entries.flatten() {
                left = left.checked_sub(1)?;
                let link = fs::read_link(entry.path()).ok();
                if link.is_some_and(|link| link.as_os_str().as_bytes() == wanted.as_bytes()) {
                    return name_of(pid);
                }
            }
            None
        })
    }
}

fn name_of(pid: u32) -> Option<String> {
    let mut name = Vec::new();
    let file = File::open(format!("/proc/{pid}/comm")).ok()?;
    file.take(NAME_BYTES_MAX as u64)
        .read_to_end(&mut name)
        .ok()?;
    let name = String::from_utf8_lossy(name.trim_ascii_end()).into_owned();
    Some(name).filter(|name| !name.is_empty())
}

/// Counts the TCP sockets in use on a process's network, by IPv4 and by IPv6: `inuse` of
/// `/proc/PID/net/sockstat` and `sockstat6` (proc_pid_net(5)), which includes listeners.
fn counted(pid: u32) -> Option<[u64; 2]> {
    let of = |name: &str, protocol: &str| {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{name}")).ok()?;
        let told = text.lines().find_map(|line| line.strip_prefix(protocol))?;
        let number = told.trim_start().strip_prefix("inuse ")?;
        number.split_ascii_whitespace().next()?.parse().ok()
    };
    // Where there is no IPv6 there is no such file.
    let sixth = of("sockstat6", "TCP6:").unwrap_or(0);
    Some([of("sockstat", "TCP:")?, sixth])
}

/// Reads the listeners from `/proc/PID/net/tcp` or `tcp6` (proc_pid_net(5)). They come before
/// all other sockets there, so that the rest is not even read.
fn table(pid: u32, name: &str) -> io::Result<Vec<Socket>> {
    let file = File::open(format!("/proc/{pid}/net/{name}"))?;
    let lines = BufReader::with_capacity(4096, file.take(TABLE_BYTES_MAX)).lines();
    let mut found = Vec::new();
    for line in lines.skip(1) {
        match listening(&line?) {
            Some(socket) => found.push(socket),
            None => break,
        }
    }
    Ok(found)
}

/// Parses one line, if it is a listener.
fn listening(line: &str) -> Option<Socket> {
    const LISTENING: &str = "0A";
    let mut fields = line.split_ascii_whitespace();
    let (address, port) = fields.nth(1)?.rsplit_once(':')?;
    let state = fields.nth(1)?;
    let inode = fields.nth(5)?.parse().ok()?;
    let listener = Listener {
        port: u16::from_str_radix(port, 16).ok()?,
        at: ListensAt::of(read_address(address)?),
        program: None,
    };
    (state == LISTENING).then_some(Socket { inode, listener })
}

/// Parses an address as the kernel prints it: words in this machine's byte order.
fn read_address(text: &str) -> Option<IpAddr> {
    let word = |index: usize| {
        let digits = text.get(index * 8..index * 8 + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            let bytes: [u8; 16] = words.try_into().ok()?;
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn what_listens_is_read_as_the_kernel_tells_it() {
        let header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
        assert_eq!(listening(header), None);
        let line = |address: &str, state: &str| {
            format!(
                "   0: {address} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0 100 0 0 10 0"
            )
        };
        let found = listening(&line("0100007F:0BB8", "0A")).unwrap();
        assert_eq!((found.inode, found.listener.port), (4242, 3000));
        assert_eq!(listening(&line("0100007F:0BB8", "01")), None, "connected");
        for cut in [
            "",
            "0100007F",
            "0100007F:",
            ":0BB8",
            "01:0BB8",
            "0100007G:0BB8",
            "é100007F:0BB8",
        ] {
            assert_eq!(listening(&line(cut, "0A")), None, "{cut}");
        }
    }

    #[test]
    fn loopback_and_every_address_are_told_apart() {
        let mut looked = Vec::new();
        let all = ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"];
        let listeners: Vec<_> = all
            .iter()
            .filter_map(|at| TcpListener::bind(at).ok())
            .collect();
        for name in ["tcp", "tcp6"] {
            looked.extend(table(std::process::id(), name).unwrap_or_default());
        }
        assert!(!listeners.is_empty());
        for listener in &listeners {
            let at = listener.local_addr().unwrap();
            let inode = rustix::fs::fstat(listener).unwrap().st_ino;
            let found = looked.iter().find(|one| one.inode == inode).unwrap();
            let place = match at.ip().is_loopback() {
                true => ListensAt::Loopback,
                false => ListensAt::Everywhere,
            };
            assert_eq!((found.listener.port, found.listener.at), (at.port(), place));
        }
    }

    #[test]
    fn whatever_listens_is_counted_by_its_family() {
        // Others of this process's network may come and go meanwhile.
        let differs = |at: &str, family: usize| {
            (0..100).any(|_| {
                let before = counted(std::process::id()).unwrap();
                let listener = TcpListener::bind(at).unwrap();
                let with = counted(std::process::id()).unwrap();
                drop(listener);
                let after = counted(std::process::id()).unwrap();
                let grown =
                    with[family] == before[family] + 1 && with[1 - family] == before[1 - family];
                grown && after == before
            })
        };
        assert!(differs("127.0.0.1:0", 0));
        if TcpListener::bind("[::1]:0").is_ok() {
            assert!(differs("[::1]:0", 1));
        }
        assert_eq!(counted(u32::MAX), None);
    }

    #[test]
    fn a_listener_is_told_of_once_and_ours_never() {
        // A launcher with a first process that listens; this test is the one above both.
        let ours = TcpListener::bind("127.0.0.1:0").unwrap();
        let theirs = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = theirs.local_addr().unwrap().port();
        let script = "sleep 600 & echo; wait";
        let mut launcher = std::process::Command::new("sh")
            .args(["-c", script])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut begun = [0; 1];
        launcher
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut begun)
            .unwrap();
        let own = [OwnedFd::from(ours)];
        let mut listening = Listening::of(launcher.id(), &own);
        assert!(listening.look().is_empty(), "not yet");
        let found = listening.look_now();
        let ports: Vec<u16> = found.iter().map(|one| one.port).collect();
        assert!(ports.contains(&port), "{found:?}");
        let inode = rustix::fs::fstat(&own[0]).unwrap().st_ino;
        assert!(listening.now.iter().all(|one| one.inode != inode));
        let again = listening.look_now();
        assert!(again.iter().all(|one| one.port != port), "{again:?}");
        assert!(listening.now().iter().any(|one| one.port == port));
        // One more is a reason to look again; others of this network may end at that moment.
        let is_seen = (0..100).any(|_| {
            listening.next = Instant::now();
            listening.look();
            let further = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = further.local_addr().unwrap().port();
            listening.next = Instant::now();
            let found = listening.look();
            found.iter().any(|one| one.port == port)
        });
        assert!(is_seen);
        drop(theirs);
        listening.look_now();
        assert!(listening.now().iter().all(|one| one.port != port));
        assert!(listening.into_seen().iter().any(|one| one.port == port));
        for child in children_of(launcher.id()) {
            let pid = rustix::process::Pid::from_raw(i32::try_from(child).unwrap()).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        let _ = launcher.kill();
        let _ = launcher.wait();
    }
}
