//! The checks of a run's changes.

use super::Rules;
use crate::checks::Checks;
use crate::origin::Sourced;

/// Returns the checks of these rules.
#[must_use]
pub fn checks(rules: &Rules) -> Checks {
    let texts = |list: &[Sourced<String>]| list.iter().map(|one| one.value.clone()).collect();
    let rules = &rules.checks;
    Checks {
        commands: texts(&rules.commands),
        judge: texts(&rules.judge),
        timeout: rules.timeout.value,
        applies: rules.applies.value,
    }
}
