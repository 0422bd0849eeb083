//! Whether a run is allowed more by other policies than by those that it has.

use atoll_cedar::{Property, Verdict};
use atoll_policy::Compared;

use super::proof::{proven, refutation};
use super::prover::Programs;

/// Whether something more is allowed than before.
pub(super) enum Widens {
    /// It is proven that nothing is.
    No,
    /// This is, in lines.
    Yes(Vec<String>),
    /// Nobody can say, for this reason.
    Unknown(String),
}

/// What can be said of whether policies of a run allow more than those before them.
pub(super) fn widens(
    programs: &Result<Programs, String>,
    (before, after, usual): Compared,
    seconds: u16,
) -> Widens {
    let mut answer = Widens::Unknown("nothing was answered".to_owned());
    let property = vec![Property::OnlyTightens(before)];
    let usual = &usual;
    let mut found = |verdict: Verdict| {
        answer = match verdict {
            Verdict::Proven => Widens::No,
            Verdict::Refuted(refuted) => Widens::Yes(refutation(&refuted, None, usual)),
            Verdict::Unknown(why) => Widens::Unknown(why),
        };
    };
    proven(programs, (&after, property), (seconds, usual), &mut found);
    answer
}
