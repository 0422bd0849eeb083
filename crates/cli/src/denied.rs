//! The denials of a run: those of the network as they happen, the others at its end.

use atoll_engine::changes::{self, LayerChanges};
use atoll_engine::printable::printable;
use atoll_model::{Ending, LimitKey, Outcome};
use atoll_sandbox::{Allowance, Declined, Denial};

use crate::ask_key::AskKey;
use crate::render::{self, Denied, ascii};

/// The names by which terminals that show notifications of programs (OSC 9) go.
const NOTIFYING: [&str; 5] = ["ghostty", "iTerm.app", "kitty", "WezTerm", "xterm-kitty"];

/// Formats the line about something that was just denied: it is ASCII, so that no name can be more
/// than a part of it.
pub(crate) fn told(denial: &Denial, key: Option<AskKey>) -> String {
    let Denial { rule, why, .. } = denial;
    let how = key.map_or_else(
        || "atoll why last tells more".to_owned(),
        |key| format!("{key} allows it"),
    );
    format!(
        "atoll: denied: {}: {}; {how}",
        ascii(&printable(rule.as_bytes())),
        ascii(&printable(why.as_bytes()))
    )
}

/// Formats the line about what a person has allowed.
pub(crate) fn allowed(rule: &str, lasts: Allowance, done: &Result<(), Declined>) -> String {
    match done {
        Ok(()) => format!(
            "atoll: {} is allowed {}; let the program try again",
            ascii(&printable(rule.as_bytes())),
            lasts.told()
        ),
        Err(Declined { why, advice }) => {
            let why = printable(why.as_bytes());
            format!(
                "atoll: {} is not allowed: {why}; {advice}",
                ascii(&printable(rule.as_bytes()))
            )
        }
    }
}

/// Returns a line as a notification of the person's terminal, or a bell where it has none: the
/// screen is the program's.
pub(crate) fn notification(told: &str) -> Vec<u8> {
    let names = ["TERM_PROGRAM", "TERM"].map(|name| std::env::var(name).unwrap_or_default());
    match names.iter().any(|name| NOTIFYING.contains(&name.as_str())) {
        true => format!("\x1b]9;{}\x07", ascii(told)).into_bytes(),
        false => b"\x07".to_vec(),
    }
}

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
