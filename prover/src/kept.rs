//! Whether another version still has all done that the older one has done where it allows.

use atoll_cedar::{Action, Case, Effect, Owed, Verdict};

use crate::prover::{Prover, Side, asked};

impl Prover {
    /// Whether all that the old ones have done besides is done wherever the new ones allow, which
    /// is no more than what the old ones do.
    pub(crate) fn keeps(&mut self, new: &Side, old: &Side) -> Verdict {
        let mut unknown = None;
        for action in asked() {
            let unkept = match new.dropped_obligations(old, action) {
                Ok(unkept) => unkept,
                Err(why) => return Verdict::Unknown(why),
            };
            for one in unkept {
                let confirms = |case: &Case| looser(new, old, &one.owed, (action, case));
                match self.differs(&one.allowed, Some(&one.kept), action, &confirms) {
                    Verdict::Proven => {}
                    refuted @ Verdict::Refuted(_) => return refuted,
                    Verdict::Unknown(why) => {
                        let why = format!(
                            "what policies add to what they allow has changed, {}: {why}",
                            one.owed
                        );
                        unknown = unknown.or(Some(why));
                    }
                }
            }
        }
        unknown.map_or(Verdict::Proven, Verdict::Unknown)
    }
}

/// That one version allows without what the other one has done.
fn looser(new: &Side, old: &Side, owed: &Owed, (action, case): (Action, &Case)) -> Option<String> {
    let (before, now) = (old.decided(action, case)?, new.decided(action, case)?);
    let is_possible = now.at_most() != Effect::Deny && before.at_most() != Effect::Deny;
    let is_looser = is_possible && owed.is_of(&before) && !owed.is_of(&now);
    is_looser.then(|| {
        format!(
            "{}, and in the other version with {owed}: {}",
            now.why(),
            before.why()
        )
    })
}
