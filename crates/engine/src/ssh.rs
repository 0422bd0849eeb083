//! The files by which ssh and git in the sandbox use SSH keys, and the socket of their agent.

use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use atoll_model::network::{
    HostPart, SSH_AGENT, SSH_CONFIGURATION, SSH_DIRECTORY, SshGrant, SshKeys,
};
use atoll_model::{Boundary, Mode};

use crate::PlaceError;
use crate::place_error::state_error;
use crate::supervision::SshHandover;

/// The longest path of a socket, bytes (unix(7)), without the NUL after it.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The SSH files of one run, removed with it.
#[derive(Debug)]
pub(crate) struct SshPlace {
    directory: PathBuf,
    listener: Option<OwnedFd>,
}

impl Drop for SshPlace {
    fn drop(&mut self) {
        // Else they go with the run: nothing of them is secret.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl SshPlace {
    /// Makes the files in a run's directory; none if no key may be used.
    pub(crate) fn make(
        run: &Path,
        boundary: &Boundary,
        signing: Option<&SshHandover>,
    ) -> Result<Option<Self>, PlaceError> {
        let network = &boundary.network;
        let Some(signing) = signing.filter(|_| !network.ssh.is_empty() && !network.is_empty())
        else {
            return Ok(None);
        };
        let directory = run.join("ssh");
        let error = state_error("making", &directory);
        let made = || -> io::Result<(Self, PathBuf)> {
            if directory.symlink_metadata().is_ok() {
                std::fs::remove_dir_all(&directory)?;
            }
            DirBuilder::new().mode(0o755).create(&directory)?;
            let real = directory.canonicalize()?;
            let listener = None;
            let directory = real.clone();
            Ok((
                Self {
                    directory,
                    listener,
                },
                real,
            ))
        };
        let (mut place, directory) = made().map_err(error)?;
        let shown = match boundary.mode {
            Mode::Full => PathBuf::from(SSH_DIRECTORY),
            Mode::Fence => directory.clone(),
        };
        if shown.join(SSH_AGENT).as_os_str().len() > SOCKET_PATH_BYTES_MAX {
            return Err(PlaceError::LongSocket(shown.join(SSH_AGENT)));
        }
        let files = files(&shown, &network.ssh, signing.keys());
        for (name, text) in files {
            let path = directory.join(name);
            std::fs::write(&path, text).map_err(state_error("writing", &path))?;
            allow(&path, 0o644).map_err(state_error("writing", &path))?;
        }
        let path = directory.join(SSH_AGENT);
        place.listener = Some(listen(&directory).map_err(state_error("listening at", &path))?);
        Ok(Some(place))
    }

    /// Returns the directory of the files.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Takes the listener of the agent's socket.
    pub(crate) fn take_listener(&mut self) -> Option<OwnedFd> {
        self.listener.take()
    }
}

fn allow(path: &Path, mode: u32) -> io::Result<()> {
    std::fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Listens in a directory, however long its path is. Every program in the sandbox may connect,
/// whatever its user id there; no other process can reach the socket.
fn listen(directory: &Path) -> io::Result<OwnedFd> {
    let open = File::open(directory)?;
    let short = format!("/proc/self/fd/{}/{SSH_AGENT}", open.as_raw_fd());
    let listener = UnixListener::bind(&short)?;
    allow(&directory.join(SSH_AGENT), 0o666)?;
    Ok(listener.into())
}

/// Returns the files by name: the configuration, the host keys, and the public keys.
fn files(shown: &Path, grants: &[SshGrant], keys: &[SshKeys]) -> Vec<(String, String)> {
    let at = |name: &str| {
        // ssh_config(5): a percent sign begins a token.
        let path = shown.join(name).display().to_string().replace('%', "%%");
        format!("\"{path}\"")
    };
    let mut configuration = String::new();
    let mut known = String::new();
    let mut files = Vec::new();
    for grant in grants {
        let Some(its) = keys.iter().find(|one| one.name == grant.name) else {
            continue;
        };
        let host = match &grant.host {
            HostPart::Name(name) => name.to_string(),
            HostPart::Address(address) => address.to_string(),
        };
        configuration.push_str(&format!("Host {host}\n    User {}\n", grant.user));
        if grant.port != 22 {
            configuration.push_str(&format!("    Port {}\n", grant.port));
        }
        for (number, key) in its.keys.iter().enumerate() {
            let name = match number {
                0 => format!("{}.pub", grant.name),
                _ => format!("{}-{number}.pub", grant.name),
            };
            let line = format!("{} {} {}\n", key.kind, key.key, plain(&key.comment));
            configuration.push_str(&format!("    IdentityFile {}\n", at(&name)));
            files.push((name, line));
        }
        let listed = match grant.port {
            22 => host,
            port => format!("[{host}]:{port}"),
        };
        for key in &its.host_keys {
            known.push_str(&format!("{listed} {} {}\n", key.kind, key.key));
        }
    }
    configuration.push_str(&format!(
        "Host *\n    IdentityAgent {}\n    IdentitiesOnly yes\n    ForwardAgent no\n    \
         UserKnownHostsFile {}\n    GlobalKnownHostsFile /dev/null\n    \
         StrictHostKeyChecking yes\n    UpdateHostKeys no\n    \
         PreferredAuthentications publickey\n",
        at(SSH_AGENT),
        at("known_hosts"),
    ));
    files.push((SSH_CONFIGURATION.to_owned(), configuration));
    files.push(("known_hosts".to_owned(), known));
    files
}

/// Removes control characters, so that a comment is one line.
fn plain(text: &str) -> String {
    text.chars().filter(|one| !one.is_control()).collect()
}
