//! What tests of attacks leave out of a sandbox, one defence at a time, to see that an
//! attack fails for that defence and for nothing else. Only a build with the feature
//! `without_defences` has this, and no build that users get has the feature.
//!
//! What is part of the description is left out of it here. What the launcher does by
//! itself is named to it, and left out where it calls the kernel, in `sys`.

use std::ffi::{CStr, CString};

use atoll_frame::{Operation, Spec};

/// The variable that names the defences, with commas between them.
const SWITCH: &str = "ATOLL_TEST_WITHOUT";

fn is(defence: &str) -> bool {
    let list = std::env::var(SWITCH).unwrap_or_default();
    list.split(',').any(|one| one == defence)
}

/// The name of a process, from which it learns what to leave out.
pub(crate) fn name_of(process: &CStr) -> CString {
    let list = std::env::var(SWITCH).unwrap_or_default();
    let name = [process.to_bytes(), b":", list.as_bytes()].concat();
    CString::new(name).unwrap_or_default()
}

/// The description without what is to be left out.
pub(crate) fn leave_out(mut spec: Spec) -> Spec {
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
            (permission.execute, permission.change) = (true, true);
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
        Operation::Layer { path, lower, .. } if is("layer") => vec![writable(path, lower)],
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
