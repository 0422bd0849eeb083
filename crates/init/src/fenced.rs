//! A sandbox without namespaces: its program is held by what it may not do.

use atoll_fence::{Places, become_reaper};
use atoll_frame::{Spec, Stage};
use atoll_sys::{credentials, process};

use crate::{At, Failure, join_groups};

/// SIGHUP, SIGINT, SIGQUIT, SIGTSTP, SIGTTIN and SIGTTOU.
const BY_TERMINAL: [i32; 6] = [1, 2, 3, 20, 21, 22];
/// How long a judged call can wait at most.
const INTERVAL_MS: u16 = 100;

/// What is left of building a sandbox: this process becomes the one to which
/// processes without a parent come, and gives its rights up.
pub(crate) fn enclose(spec: &Spec) -> Result<(), Failure> {
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

/// Where a spec lets its program read and write.
pub(crate) fn places(spec: &Spec) -> Places {
    let of = |given: fn(&atoll_frame::Permission) -> bool| {
        let permissions = spec.permissions.iter().filter(|one| given(one));
        permissions.map(|one| one.path.clone()).collect()
    };
    Places {
        readable: of(|one| one.read),
        writable: of(|one| one.change),
        services: of(|one| one.connect),
    }
}
