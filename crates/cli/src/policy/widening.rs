//! The comparison of a run's policies with new ones: whether these allow more.

use atoll_cedar::{Property, Verdict};
use atoll_engine::prover::Programs;
use atoll_policy::Compared;

use super::proof::{proven, refutation};

/// The result of comparing new policies with those before.
pub(super) enum Widens {
    /// Proven to allow nothing more.
    No,
    /// This is, in lines.
    Yes(Vec<String>),
    /// Nobody can say, for this reason.
    Unknown(String),
}

/// Compares policies of a run with those before them.
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
