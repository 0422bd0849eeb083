//! What is asked of a run while it goes on: policy decides that too.

use std::io;
use std::os::fd::OwnedFd;

use atoll_model::Reason;
use atoll_model::network::{Published, PublishedPort};
use atoll_policy::decide_publishing;
use atoll_sandbox::Declined;
use atoll_store::{StateDir, control_directory};

use crate::Request;

/// The directory of the sockets at which runs are spoken to.
pub(crate) fn directory(state: &StateDir) -> io::Result<OwnedFd> {
    let opened = control_directory(state, true).map_err(io::Error::other)?;
    opened.ok_or(io::ErrorKind::NotFound.into())
}

/// Who decides whether a port is published.
pub(crate) fn decider(
    request: &Request<'_>,
) -> impl Fn(PublishedPort, &[Published]) -> Result<Published, Declined> {
    let (rules, mode) = (request.rules, request.facts.mode);
    move |port, already| decide_publishing(rules, already, port, mode).map_err(declined)
}

fn declined(reasons: Vec<Reason>) -> Declined {
    let whys = reasons
        .iter()
        .map(|one| format!("{}: {} ({})", one.what, one.why, one.rule));
    let advice = reasons.first().map(|one| one.how_to_ask.clone());
    Declined {
        why: whys.collect::<Vec<_>>().join("; "),
        advice: advice.unwrap_or_default(),
    }
}
