//! The denials of a run that Atoll has observed, except those of the network.

use atoll_engine::changes::{self, LayerChanges};
use atoll_engine::printable::printable;
use atoll_model::{Ending, LimitKey, Outcome};

use crate::render::{self, Denied};

/// Describes a stream of which only a part is kept; all of it was shown.
pub(crate) fn cut_output(stream: &str) -> Denied {
    Denied {
        what: format!("keeping {stream} beyond the limit output"),
        times: 1,
        limit: Some(LimitKey::Output),
    }
}

/// Returns the denials of a run that Atoll has observed.
pub(crate) fn denied(outcome: &Outcome, all: &[LayerChanges]) -> Vec<Denied> {
    let once = |what: String, limit| Denied {
        what,
        times: 1,
        limit,
    };
    let mut list = Vec::new();
    let kills = outcome.usage.memory_kills;
    if kills > 0 {
        list.push(Denied {
            what: "going beyond the limit memory: the kernel ended a process".to_owned(),
            times: kills,
            limit: Some(LimitKey::Memory),
        });
    } else if let Ending::Limited { limit } = outcome.ending {
        let name = render::limit_name(limit);
        let what = format!("going beyond the limit {name}: Atoll ended the run");
        list.push(once(what, LimitKey::parse(name).ok()));
    }
    let refused = outcome.usage.processes_refused;
    if refused > 0 {
        list.push(Denied {
            what: "starting a process beyond the limit processes".to_owned(),
            times: refused,
            limit: Some(LimitKey::Processes),
        });
    }
    let files = changes::refusals(all).map(|(path, why)| once(refusal_line(&path, why), None));
    list.extend(files);
    list
}

fn refusal_line(path: &[u8], why: &str) -> String {
    format!("taking over {}: {why}", printable(path))
}
