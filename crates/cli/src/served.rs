//! The approvals that sandboxes of a server wait for, by its API.

use atoll_engine::configuration::Places;

use crate::approvals::Served;
use crate::output::Output;
use crate::{sandbox, serve};

/// Returns the open questions of the server whose key is in the environment; none without a key. A
/// server that does not answer is a warning: the person's own runs are listed all the same.
pub fn approvals(output: &Output) -> Served {
    if !sandbox::has_key() {
        let runs = Places::read().is_ok_and(|places| serve::is_running(&places));
        let hint = match runs {
            true => {
                "A server runs here. Set ATOLL_API_KEY to list what its sandboxes wait for, too \
                 (atoll serve keys create --scope read makes a key).\n"
            }
            false => "",
        };
        return Served {
            open: Vec::new(),
            hint: hint.to_owned(),
        };
    }
    let open = sandbox::approvals().unwrap_or_else(|failure| {
        let why = failure
            .why
            .map_or_else(String::new, |why| format!(": {why}"));
        output.warn(&format!(
            "{}{why}; its approvals are left out",
            failure.what
        ));
        Vec::new()
    });
    let hint = match open.is_empty() {
        true => "",
        false => {
            "Answer those of a server by POST /v1/sandboxes/ID/approvals/NUMBER (atoll help \
             serve); atoll approvals list --json has their digests.\n"
        }
    };
    Served {
        open,
        hint: hint.to_owned(),
    }
}
