//! The budget of a session: so many calls of each effect, and so many changed rows. At a bound a person
//! is asked, whose yes lets it begin anew.

use atoll_model::ToolEffect;
use serde::Deserialize;

/// The bounds of a session's effects; none where nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Budget {
    read: Option<u64>,
    write: Option<u64>,
    send: Option<u64>,
    merge: Option<u64>,
    deploy: Option<u64>,
    rows: Option<u64>,
}

impl Budget {
    fn calls(&self, effect: ToolEffect) -> Option<u64> {
        match effect {
            ToolEffect::Read => self.read,
            ToolEffect::Write => self.write,
            ToolEffect::Send => self.send,
            ToolEffect::Merge => self.merge,
            ToolEffect::Deploy => self.deploy,
        }
    }
}

/// The effects of a session so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Spent {
    calls: [u64; ToolEffect::ALL.len()],
    rows: u64,
}

impl Spent {
    fn calls(&mut self, effect: ToolEffect) -> Option<&mut u64> {
        let mut all = ToolEffect::ALL.iter().zip(&mut self.calls);
        all.find(|(one, _)| **one == effect).map(|(_, count)| count)
    }

    /// Returns the bounds that a further call of this effect would pass.
    pub(crate) fn reached(&mut self, budget: &Budget, effect: ToolEffect) -> Vec<String> {
        let calls = self.calls(effect).map_or(0, |count| *count);
        let most = budget.calls(effect).filter(|most| calls >= *most);
        let of_calls = most.map(|most| format!("{most} calls of effect {}", effect.name()));
        let is_effect = effect != ToolEffect::Read;
        let most = budget.rows.filter(|most| is_effect && self.rows >= *most);
        let of_rows = most.map(|most| format!("{most} changed rows of databases"));
        of_calls.into_iter().chain(of_rows).collect()
    }

    /// Counts a call that begins.
    pub(crate) fn begin(&mut self, effect: ToolEffect) {
        if let Some(count) = self.calls(effect) {
            *count = count.saturating_add(1);
        }
    }

    /// Takes back one that was not made.
    pub(crate) fn take_back(&mut self, effect: ToolEffect) {
        if let Some(count) = self.calls(effect) {
            *count = count.saturating_sub(1);
        }
    }

    /// Begins anew, with a call of this effect.
    pub(crate) fn renew(&mut self, effect: ToolEffect) {
        *self = Self::default();
        self.begin(effect);
    }

    /// Counts the rows that a call has changed.
    pub(crate) fn end(&mut self, rows: u64) {
        self.rows = self.rows.saturating_add(rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_effect_has_its_own_bound_and_begins_anew() {
        let budget: Budget = toml::from_str("write = 2\nsend = 0").unwrap();
        let mut spent = Spent::default();
        assert_eq!(
            spent.reached(&budget, ToolEffect::Send),
            ["0 calls of effect send"]
        );
        for _ in 0..2 {
            assert!(spent.reached(&budget, ToolEffect::Write).is_empty());
            spent.begin(ToolEffect::Write);
        }
        assert_eq!(
            spent.reached(&budget, ToolEffect::Write),
            ["2 calls of effect write"]
        );
        assert!(spent.reached(&budget, ToolEffect::Read).is_empty());
        spent.take_back(ToolEffect::Write);
        assert!(spent.reached(&budget, ToolEffect::Write).is_empty());
        spent.begin(ToolEffect::Write);
        spent.renew(ToolEffect::Write);
        spent.begin(ToolEffect::Write);
        assert_eq!(spent.reached(&budget, ToolEffect::Write).len(), 1);
    }

    #[test]
    fn changed_rows_are_counted() {
        let budget: Budget = toml::from_str("rows = 10").unwrap();
        let mut spent = Spent::default();
        spent.end(9);
        assert!(spent.reached(&budget, ToolEffect::Write).is_empty());
        spent.end(1);
        assert_eq!(
            spent.reached(&budget, ToolEffect::Write),
            ["10 changed rows of databases"]
        );
        assert!(spent.reached(&budget, ToolEffect::Read).is_empty());
        assert!(toml::from_str::<Budget>("files = 1").is_err());
    }
}
