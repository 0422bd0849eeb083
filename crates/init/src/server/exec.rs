//! The last steps of an exec in its own process: streams, terminal, limits, its Landlock domain.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use atoll_frame::{ExecSpec, ExecTerminal, Report, SPEC_BYTES_MAX, Stage, Terminal, User};
use atoll_sys::landlock::Ruleset;
use atoll_sys::terminal::WindowSize;
use atoll_sys::{credentials, descriptor, process, socket, terminal};

use super::{EINVAL, Server, failed};
use crate::{At, Failure, O_NOCTTY, O_RDWR, SIGTTOU, text};

impl Server<'_> {
    /// Becomes an exec; returns only where that fails.
    pub(super) fn execute(&self, status: &OwnedFd, descriptors: Vec<OwnedFd>) -> u8 {
        let report = match self.become_exec(status, descriptors) {
            Err(failure) => failed(&failure),
            Ok(program) => {
                let pid = std::process::id();
                let report = Report::Executing { pid }.to_bytes();
                // An exec that the host side has given up does not begin any more.
                if socket::send(status.as_fd(), &report, &[]).is_err() {
                    return 127;
                }
                let error = program.execute().raw_os_error().unwrap_or(EINVAL);
                Report::NotExecuted { error }.to_bytes()
            }
        };
        let _ = socket::send(status.as_fd(), &report, &[]);
        127
    }

    /// Does everything before the execution, in the exec's process.
    fn become_exec(
        &self,
        status: &OwnedFd,
        descriptors: Vec<OwnedFd>,
    ) -> Result<process::Program, Failure> {
        let prepared = self.prepared;
        let mut descriptors = descriptors.into_iter();
        let (spec, program) = described(descriptors.next()).at(Stage::Description)?;
        let own;
        let streams: Vec<OwnedFd> = descriptors.collect();
        let standard = match (spec.terminal, streams.as_slice(), self.side) {
            (ExecTerminal::None, [input, output, error], _) => {
                terminal::lead_session(None).at(Stage::Start)?;
                [input, output, error].map(AsFd::as_fd)
            }
            (ExecTerminal::Given, [input, output, error], _) => {
                terminal::lead_session(Some(input.as_fd())).at(Stage::Terminal)?;
                [input, output, error].map(AsFd::as_fd)
            }
            (ExecTerminal::Own(size), [], _) => {
                own = open_terminal(status, size).at(Stage::Terminal)?;
                [own.as_fd(); 3]
            }
            (ExecTerminal::Session, [], Some(side)) => {
                process::lead_group(0).at(Stage::Start)?;
                process::ignore_signal(SIGTTOU);
                let group = std::process::id();
                terminal::set_foreground(side.as_fd(), group).at(Stage::Terminal)?;
                [side.as_fd(); 3]
            }
            _ => return Err(io::ErrorKind::InvalidInput.into()).at(Stage::Description),
        };
        for (number, fd) in standard.into_iter().enumerate() {
            descriptor::place_at(fd, number as i32).at(Stage::Start)?;
        }
        descriptor::close_on_exec_from(3).at(Stage::Start)?;
        let directory = text(&spec.directory).at(Stage::Directory)?;
        let _ = process::change_mode_mask(spec.mode_mask);
        process::change_directory(&directory).at(Stage::Directory)?;
        process::reset_signals().at(Stage::Start)?;
        // Here and not in the server: what programs run out of, it has.
        for limit in &prepared.limits {
            credentials::limit_resource(limit.resource, limit.value).at(Stage::Limits)?;
        }
        // Where they share one, it is in it already.
        let rules = prepared.rules_of_exec().filter(|_| !prepared.shares_domain);
        rules.map_or(Ok(()), Ruleset::enter).at(Stage::Landlock)?;
        // The last of all: root's rights end with it.
        if let Some(User { uid, gid }) = spec.user {
            credentials::become_user(uid, gid).at(Stage::Ids)?;
        }
        Ok(program)
    }
}

/// Reads the sealed description of an exec.
fn described(memory: Option<OwnedFd>) -> io::Result<(ExecSpec, process::Program)> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let memory = memory.ok_or_else(invalid)?;
    if !descriptor::is_sealed(memory.as_fd())? {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let bytes = descriptor::read_from_start(memory.as_fd(), SPEC_BYTES_MAX)?;
    let mut spec = ExecSpec::from_bytes(&bytes).map_err(io::Error::other)?;
    let texts = |list: Vec<Vec<u8>>| list.iter().map(|one| text(one)).collect();
    let arguments: io::Result<Vec<CString>> = texts(std::mem::take(&mut spec.arguments));
    let search = spec
        .environment
        .iter()
        .find_map(|variable| variable.strip_prefix(b"PATH="))
        .unwrap_or(b"/usr/local/bin:/usr/bin:/bin")
        .to_vec();
    let environment: io::Result<Vec<CString>> = texts(std::mem::take(&mut spec.environment));
    let program = process::Program::new(arguments?, environment?, &search);
    Ok((spec, program.ok_or_else(invalid)?))
}

/// Opens a terminal in the sandbox, makes it that of a session of this process's own, and hands its
/// other side to the host.
fn open_terminal(status: &OwnedFd, size: Terminal) -> io::Result<OwnedFd> {
    let Terminal { rows, columns } = size;
    let multiplexer = descriptor::open_for_writing(c"/dev/pts/ptmx", O_RDWR | O_NOCTTY)?;
    let side = terminal::open_pair(&multiplexer)?;
    terminal::set_window_size(multiplexer.as_fd(), WindowSize { rows, columns })?;
    terminal::lead_session(Some(side.as_fd()))?;
    let report = Report::Terminal.to_bytes();
    socket::send(status.as_fd(), &report, &[multiplexer.as_fd()])?;
    Ok(side)
}
