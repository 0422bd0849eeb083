//! Prewarmed namespaces for sandboxes of root: ids of their own, and a network with nothing but its
//! own loopback.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use atoll_frame::{Identity, Nesting};
use atoll_sys::descriptor;
use atoll_sys::process::{self, Namespaces, Side};
use atoll_sys::{credentials, network};

use crate::open_path;

const CLONE_NEWNET: i32 = 0x4000_0000;

/// The prewarmed namespaces of a sandbox of root, created before its description arrives if the
/// host side asks for it.
#[derive(Default)]
pub(crate) struct Ahead {
    pub(crate) holder: Option<Holder>,
    pub(crate) network: Option<OwnedFd>,
}

impl Ahead {
    /// Creates what can be created; failures are retried, and reported, when the rest is needed.
    pub(crate) fn make() -> Self {
        let holder = Holder::begin().ok();
        let network = holder.as_ref().and_then(|_| own_network().ok());
        Self { holder, network }
    }

    /// For a shifted identity: makes the user namespace that the sandbox joins last have these ids.
    /// No other identity needs it.
    pub(crate) fn hold_ids_of(&mut self, identity: Identity, nesting: Nesting) -> io::Result<()> {
        let holder = self.holder.take();
        if let Identity::Shifted { base, count, .. } = identity {
            let mut holder = holder.map_or_else(Holder::begin, Ok)?;
            holder.map(base, count, nesting)?;
            self.holder = Some(holder);
        }
        Ok(())
    }
}

/// The settings that a holder receives as one byte, the index here.
const LIMITED: [Nesting; 3] = [Nesting::Refused, Nesting::ButGroups, Nesting::All];

/// A process that keeps a user namespace of its own open until another process does. It ends once
/// the ids are mapped; the sandbox's namespaces are created in the meantime.
pub(crate) struct Holder {
    pid: u32,
    namespace: Option<OwnedFd>,
    go: OwnedFd,
    done: OwnedFd,
}

impl Holder {
    fn begin() -> io::Result<Self> {
        let (ready, go) = descriptor::pipe()?;
        let (done_here, done) = descriptor::pipe()?;
        let child = match process::divide(Namespaces::USER, None)? {
            Side::Child => {
                drop(go);
                drop(done_here);
                hold_ids(&ready, &done)
            }
            Side::Parent(child) => child,
        };
        Ok(Self {
            pid: child.pid,
            namespace: None,
            go,
            done: done_here,
        })
    }

    /// Maps the ids from 0 on to those from a base on, and limits the namespaces beneath.
    fn map(&mut self, base: u32, count: u32, nesting: Nesting) -> io::Result<()> {
        let (pid, map) = (self.pid, format!("0 {base} {count}"));
        fs::write(format!("/proc/{pid}/uid_map"), &map)?;
        fs::write(format!("/proc/{pid}/gid_map"), &map)?;
        self.namespace = Some(open_path(format!("/proc/{pid}/ns/user").as_bytes())?);
        let which = LIMITED.iter().position(|one| *one == nesting);
        let word = which.and_then(|number| u8::try_from(number).ok());
        descriptor::write_all(&self.go, &[word.ok_or(io::ErrorKind::InvalidInput)?])
    }

    /// Returns the namespace, once the namespaces beneath it are limited.
    pub(crate) fn finish(self) -> io::Result<OwnedFd> {
        let mut answer = [0_u8; 1];
        let limited = descriptor::read(self.done.as_fd(), &mut answer)? == 1;
        process::wait(Some(self.pid), true)?;
        let namespace = self.namespace.filter(|_| limited);
        namespace.ok_or_else(|| io::ErrorKind::PermissionDenied.into())
    }
}

/// Limits the namespaces beneath, in the namespace's first process.
fn hold_ids(ready: &OwnedFd, done: &OwnedFd) -> ! {
    let limit = || -> io::Result<()> {
        let mut word = [0_u8; 1];
        if descriptor::read(ready.as_fd(), &mut word)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let [number] = word;
        let nesting = LIMITED.get(usize::from(number));
        let nesting = *nesting.ok_or(io::ErrorKind::InvalidData)?;
        for (name, value) in atoll_init::namespace_limits(nesting) {
            fs::write(format!("/proc/sys/user/{name}"), value)?;
        }
        descriptor::write_all(done, b"d")
    };
    process::exit_now(u8::from(limit().is_err()))
}

/// Leaves the network for one with nothing but its own loopback.
pub(crate) fn own_network() -> io::Result<OwnedFd> {
    credentials::leave_namespaces(CLONE_NEWNET)?;
    network::with_loopback()
}
