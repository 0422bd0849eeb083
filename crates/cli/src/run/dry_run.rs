//! `atoll run --dry-run`: what a run would be granted.

use std::fs::File;

use atoll_engine::failure::Failure;
use atoll_engine::preview;
use atoll_engine::printable::printable;
use atoll_engine::run::refused::denied;
use atoll_model::{Call, Reason, Verdict};
use atoll_policy::{Facts, Grant, Rules};
use serde_json::json;

use crate::arguments::RunArguments;
use crate::conclusion::write_told;
use crate::output::{Output, json_text};

/// Prints the boundary that the run would have. Returns the exit status.
///
/// # Errors
/// When it would be denied, with the reasons.
pub(super) fn show(
    rules: &Rules,
    call: &Call,
    facts: &Facts<'_>,
    arguments: &RunArguments,
    json: Option<&File>,
    output: &Output,
) -> Result<u8, Failure> {
    let verdict = preview::<Grant>(rules, call, facts);
    if let Verdict::Deny(reasons) = verdict {
        return Err(denied("the policy would deny this run", &reasons));
    }
    let asked = match &verdict {
        Verdict::Ask(asked) => asked.as_slice(),
        Verdict::Allow(_) | Verdict::Deny(_) => &[],
    };
    if arguments.json.is_some() {
        let mut shown = rules.show_json();
        if let Some(shown) = shown.as_object_mut() {
            shown.insert("mode".to_owned(), json!(facts.mode));
            shown.insert("workspace-directory".to_owned(), json!(call.workspace()));
            shown.insert("asks".to_owned(), json!(asked));
        }
        return write_told(arguments, json, &json_text(&shown), output).map(|()| 0);
    }
    let shown = rules.show();
    let lines = shown.lines().map(|line| printable(line.as_bytes()) + "\n");
    output.result(&lines.collect::<String>());
    if let Verdict::Allow(grant) = &verdict {
        for notice in grant.notices() {
            output.warn(&notice.to_string());
        }
    }
    let told = |one: &Reason| format!("{}: {} ({})", one.what, one.why, one.rule);
    for one in asked {
        output.warn(&format!("a person is asked first: {}", told(one)));
    }
    let workspace = printable(call.workspace().as_os_str().as_encoded_bytes());
    output.say(&format!("Workspace: {workspace}. Nothing was started.\n"));
    Ok(0)
}
