//! The removal of single defences for attack tests, which shows that an attack fails because of
//! that defence and nothing else. It needs the feature `without_defences`, which no build for
//! users has.
//!
//! Defences that are part of the description are removed from it here. Those of the launcher
//! itself are passed to it by name, and skipped in `sys` where it calls the kernel.

use std::ffi::{CStr, CString};

use atoll_frame::{Operation, SandboxSpec};
use atoll_sys::landlock::Rights;

/// The variable that names the removed defences, separated by commas.
const SWITCH: &str = "ATOLL_TEST_WITHOUT";

fn is(defence: &str) -> bool {
    let list = std::env::var(SWITCH).unwrap_or_default();
    list.split(',').any(|one| one == defence)
}

/// Returns a process name that tells the process which defences to skip.
#[must_use]
pub fn name_of(process: &CStr) -> CString {
    let list = std::env::var(SWITCH).unwrap_or_default();
    let name = [process.to_bytes(), b":", list.as_bytes()].concat();
    CString::new(name).unwrap_or_default()
}

/// Removes defences from a description.
pub(crate) fn leave_out(mut spec: SandboxSpec) -> SandboxSpec {
    spec.operations = spec.operations.into_iter().flat_map(kept).collect();
    if is("set-id") {
        spec.deny_set_id = false;
    }
    if is("memory-programs") {
        spec.deny_memory_programs = false;
    }
    if is("landlock-6") {
        // Signals and abstract sockets, as on older kernels.
        spec.landlock_version = spec.landlock_version.min(5);
    }
    if is("landlock") {
        // Rights are asked for again where a description is checked.
        for permission in &mut spec.permissions {
            permission.rights |= Rights::EXECUTE.and(Rights::CHANGE).bits();
        }
    }
    spec
}

fn kept(operation: Operation) -> Vec<Operation> {
    let of_processes = |path: &[u8]| path.starts_with(b"proc/");
    match operation {
        Operation::Seal { path } if of_processes(&path) && is("proc-masks") => Vec::new(),
        Operation::HideFile { path, .. } if of_processes(&path) && is("proc-masks") => Vec::new(),
        Operation::HideDirectory { path } if of_processes(&path) && is("proc-masks") => Vec::new(),
        Operation::Seal { path } | Operation::Pin { path }
            if !of_processes(&path) && is("seals") =>
        {
            Vec::new()
        }
        Operation::Inexecutable { .. } if is("no-code") => Vec::new(),
        Operation::HideFile { path, .. } if !of_processes(&path) && is("covers") => Vec::new(),
        // The person's own places alone: the system's stay as they are.
        Operation::ReadOnly { path, source, .. } if !is_system(&source.path) && is("read-only") => {
            vec![writable(path, source)]
        }
        Operation::ReadOnly { path, source, .. } if !is_system(&source.path) && is("overlay") => {
            let sealed = path.clone();
            vec![writable(path, source), Operation::Seal { path: sealed }]
        }
        Operation::Layer { path, lower, .. } if is("layer") => {
            let lowest = lower.into_iter().last();
            lowest
                .map(|lower| writable(path, lower))
                .into_iter()
                .collect()
        }
        other => vec![other],
    }
}

fn writable(path: Vec<u8>, source: atoll_frame::Source) -> Operation {
    Operation::Writable {
        path,
        source,
        as_caller: true,
    }
}

fn is_system(path: &[u8]) -> bool {
    const SYSTEM: [&[u8]; 5] = [b"/usr", b"/etc", b"/bin", b"/lib", b"/sbin"];
    SYSTEM.iter().any(|system| path.starts_with(system))
}
