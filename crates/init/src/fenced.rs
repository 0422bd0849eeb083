//! A fence: a sandbox without namespaces, confined by refusals alone.

use atoll_fence::{Places, become_reaper};
use atoll_frame::{Permission, SandboxSpec, Stage};
use atoll_sys::landlock::Rights;
use atoll_sys::{credentials, process};

use crate::{At, Failure, join_groups};

/// SIGHUP, SIGINT, SIGQUIT, SIGTSTP, SIGTTIN and SIGTTOU.
const BY_TERMINAL: [i32; 6] = [1, 2, 3, 20, 21, 22];
/// The longest time that a judged call can block its judge, milliseconds.
const INTERVAL_MS: u16 = 100;

/// Does the part of building a sandbox that a fence needs: this process becomes the reaper of
/// orphaned processes, and drops its rights.
pub(crate) fn enclose(spec: &SandboxSpec) -> Result<(), Failure> {
    join_groups(spec)?;
    process::set_name(c"atoll-init").at(Stage::Start)?;
    become_reaper().at(Stage::Start)?;
    // The program shares this session: what its terminal sends is not meant for this.
    BY_TERMINAL.into_iter().for_each(process::ignore_signal);
    // No call of the program's may hold up its judge, who watches over it too.
    process::interrupt_every(INTERVAL_MS).at(Stage::Start)?;
    credentials::keep_capabilities(0).at(Stage::Rights)?;
    credentials::forbid_new_privileges().at(Stage::Rights)?;
    credentials::forbid_inspection().at(Stage::Rights)
}

/// Returns the places that a spec lets its program read, write and connect to.
pub(crate) fn places(spec: &SandboxSpec) -> Places {
    let all = spec.permissions.iter();
    let of = |rights: Rights| {
        let has = |one: &&Permission| one.rights & rights.bits() == rights.bits();
        let given = all.clone().filter(has);
        given.map(|one| one.path.clone()).collect()
    };
    let services = all.clone().filter(|one| one.connect);
    Places {
        readable: of(Rights::READ),
        writable: of(Rights::CHANGE),
        services: services.map(|one| one.path.clone()).collect(),
    }
}
