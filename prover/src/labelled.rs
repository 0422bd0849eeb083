//! Whether a label that another version adds to what a session gains only takes away.

use std::collections::BTreeSet;

use atoll_cedar::{Action, Owed, Reach, Verdict};

use crate::prover::{Prover, Side, asked};

impl Prover {
    /// Whether the new ones allow nothing to a session for a label that it has by them and would
    /// not have by the old ones. Nothing refutes it: a request would have to follow another one.
    pub(crate) fn gains_nothing(&mut self, new: &Side, old: &Side) -> Verdict {
        let added = match self.added(new, old) {
            Ok(added) => added,
            Err(why) => return Verdict::Unknown(why),
        };
        for label in added {
            for action in asked() {
                if let Err(why) = self.is_narrower_with(new, &label, action) {
                    return Verdict::Unknown(format!(
                        "@label({label:?}) is added, and it is not proven that nothing is allowed \
                         by having that label ({}): {why}",
                        action.name()
                    ));
                }
            }
        }
        Verdict::Proven
    }

    /// The labels that a session may gain by the new ones where it does not by the old ones.
    fn added(&mut self, new: &Side, old: &Side) -> Result<BTreeSet<String>, String> {
        let mut added = BTreeSet::new();
        for action in asked() {
            for one in old.dropped_obligations(new, action)? {
                let Owed::Label(label) = one.owed else {
                    continue;
                };
                let same = self.differs(&one.allowed, Some(&one.kept), action, &|_| None);
                if same != Verdict::Proven {
                    added.insert(label);
                }
            }
        }
        Ok(added)
    }

    /// Whether all that is allowed to a session with this label is allowed to it without, and all
    /// that is done besides is done either way.
    fn is_narrower_with(&mut self, side: &Side, label: &str, action: Action) -> Result<(), String> {
        if let Some(policy) = side.layers.owes_by_label(label, action)? {
            return Err(format!("what is done besides depends on it, by {policy}"));
        }
        for reach in [Reach::Possible, Reach::Unasked] {
            let Some((with, without)) = side.canonical(action, reach)?.by_label(label, action)?
            else {
                continue;
            };
            match self.differs(&with, Some(&without), action, &|_| None) {
                Verdict::Proven => {}
                Verdict::Refuted(_) | Verdict::Unknown(_) => {
                    return Err(
                        "policies ask for it, and more may be allowed where it is".to_owned()
                    );
                }
            }
        }
        Ok(())
    }
}
