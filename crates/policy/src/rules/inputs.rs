//! Inputs that are asked for.

use atoll_model::{Access, Input, InputSource, Mode, Reason, View, ViewKind};

use super::Rules;
use crate::origin::{Origin, Sourced};
use crate::places::{forbidden_here, instead_of, is_plain_absolute};
use crate::refusal::reason;

const INPUT: Origin = Origin::CommandLine("--input");
/// The most inputs of a sandbox.
const INPUTS_MAX: usize = 100;

/// Returns the inputs that are asked for.
#[must_use]
pub fn inputs_of(rules: &Rules) -> &[Input] {
    &rules.inputs.all
}

/// Adds inputs to the rules. What lies on the host is a view besides, so that all that is decided about
/// places counts for it.
pub(crate) fn apply(rules: &mut Rules, inputs: &[Input]) {
    if inputs.len() > INPUTS_MAX {
        let what = format!("{} inputs", inputs.len());
        let why = format!("a sandbox has {INPUTS_MAX} of them at most");
        let instead = "put files that belong together into one directory";
        rules.refusals.push(reason(what, why, &INPUT, instead));
        return;
    }
    for input in inputs {
        let what = || format!("{INPUT} {}", input.name);
        if rules.inputs.all.iter().any(|one| one.name == input.name) {
            let why = "another input has this name";
            let instead = "give each a name of its own";
            rules.refusals.push(reason(what(), why, &INPUT, instead));
            continue;
        }
        rules.inputs.all.push(input.clone());
        let InputSource::Path(path) = &input.source else {
            continue;
        };
        let why = match is_plain_absolute(path) {
            true => forbidden_here(path, &rules.host),
            false => Some("it is not an absolute path free of `.` and `..`"),
        };
        if let Some(why) = why {
            let instead = instead_of(path, Some(&rules.host));
            let built_in = &Origin::BuiltIn;
            rules.refusals.push(reason(what(), why, built_in, instead));
            continue;
        }
        let view = View {
            host: path.components().collect(),
            inside: input.inside(),
            access: Access::ReadOnly,
            kind: ViewKind::Input,
            required: true,
        };
        let at = view.inside.clone();
        rules.views.insert(at, Sourced::new(view, INPUT));
    }
}

/// Returns the refusal of inputs that cannot be shown here.
pub(crate) fn refusal(rules: &Rules, mode: Mode) -> Option<Reason> {
    let shown = |input: &Input| match input.source {
        InputSource::Path(_) => rules.views.contains_key(&input.inside()),
        InputSource::Artifact(_) | InputSource::Download { .. } => true,
    };
    let (why, instead) = match mode {
        _ if rules.inputs.all.is_empty() => return None,
        Mode::Fence => (
            "this host gives no namespaces, so there is no place for them",
            "let user namespaces be made (atoll doctor says how), or leave them out",
        ),
        Mode::Full if !rules.inputs.all.iter().all(shown) => (
            "a rule keeps one of them from being shown",
            "leave it out, or ask who wrote that rule",
        ),
        Mode::Full => return None,
    };
    Some(reason("inputs (--input)", why, &Origin::BuiltIn, instead))
}
