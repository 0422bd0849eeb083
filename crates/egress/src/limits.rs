//! The limits of rules, and of the whole run, counted over a run.
//!
//! A rule with limits has a budget, which it shares with the other rules of its profile table. Each
//! of its flows is a part of the budget while it lasts, and asks before any byte of it passes.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use atoll_model::format_bytes;
use atoll_model::network::{Frequency, Limit, Network, NetworkLimits, NetworkRule, RuleLimits};
use tokio::time::sleep_until;

/// The largest piece of a limited flow that is carried at once, bytes.
const PIECE_BYTES_MAX: u64 = 16 * 1024;
/// The number of pieces carried a second where a rate is held.
const PIECES_PER_SECOND: u64 = 8;
/// The longest pause for a rate: beyond it a flow waits for ever anyway.
const PAUSE_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The direction: from the program (up), or to it (down).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the program.
    Up,
    /// To the program.
    Down,
}

/// The budgets of all rules with limits, and that of the whole run.
#[derive(Debug, Default)]
pub(crate) struct Budgets {
    rules: Vec<Arc<Budget>>,
    run: Option<Arc<Budget>>,
}

/// The remaining budget of one table of a profile, or of the whole run.
#[derive(Debug)]
struct Budget {
    limits: RuleLimits,
    /// Set for the budget of the whole run, which alone limits the bytes of both directions.
    run: Option<NetworkLimits>,
    origin: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The time at which the token bucket of requests is full again.
    full: Option<Instant>,
    /// The number of open flows.
    open: u32,
    up: DirectionUsage,
    down: DirectionUsage,
}

/// The traffic in one direction.
#[derive(Clone, Copy, Debug, Default)]
struct DirectionUsage {
    bytes: u64,
    /// Set when a flow has ended because the budget was spent.
    is_spent: bool,
    /// The time at which all bytes let through so far have passed, at the rate that is held.
    passed: Option<Instant>,
}

/// A flow, as a part of its rule's budget and of the run's.
#[derive(Debug)]
pub struct BudgetShare {
    /// One of them at least.
    budgets: Vec<Arc<Budget>>,
    /// The rule as it is reported.
    rule: String,
    until: Option<Instant>,
    /// The bytes of its body that were let through.
    body: Mutex<u64>,
    excess: OnceLock<Excess>,
}

/// The first demand of a flow on its budget.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BudgetRequest {
    /// A tunnel: bytes in both directions.
    Tunnel,
    /// A request: the bytes of its head, and of its body if its length is declared.
    Request { head: u64, body: Option<u64> },
}

/// An exceeded limit.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", self.why())]
pub struct Excess {
    pub(crate) limit: Limit,
    /// The limit as it is written in the profile.
    said: String,
    /// The rule as it is reported, without its place in the profile.
    pub(crate) rule: String,
    /// The time until there is room again, where there will be.
    pub(crate) again: Option<Duration>,
}

impl Excess {
    /// Returns the reason as a sentence: the same for every flow.
    pub(crate) fn why(&self) -> String {
        let what = match self.limit {
            Limit::Requests => "there are more requests than its rule allows",
            Limit::Connections => "there are more at once than its rule allows",
            Limit::Upload => "more would be sent than its rule allows in a run",
            Limit::Download => "more would come back than its rule allows in a run",
            Limit::Body => "its body is longer than its rule allows",
            Limit::Duration => "it takes longer than its rule allows",
            Limit::NetworkBytes => "more would be carried than the run may carry",
            Limit::RunConnections => "there are more at once than the run may have",
        };
        format!("{what} ({})", self.said)
    }
}

impl Budgets {
    /// Returns the budgets of a network's rules.
    pub(crate) fn new(network: &Network) -> Self {
        let mut budgets = Self {
            rules: Vec::new(),
            run: (!network.limits.is_empty()).then(|| Arc::new(Budget::of_run(network.limits))),
        };
        for rule in network.allow.iter().filter(|rule| !rule.limits.is_empty()) {
            if budgets.of(rule).is_none() {
                budgets.rules.push(Arc::new(Budget {
                    limits: rule.limits.clone(),
                    run: None,
                    origin: rule.origin.clone(),
                    state: Mutex::default(),
                }));
            }
        }
        budgets
    }

    fn of(&self, rule: &NetworkRule) -> Option<&Arc<Budget>> {
        let is_its = |one: &&Arc<Budget>| one.origin == rule.origin && one.limits == rule.limits;
        self.rules.iter().find(is_its)
    }

    /// Begins a flow that a rule has allowed. Returns `None` where neither the rule nor the run has
    /// limits.
    ///
    /// # Errors
    /// [`Excess`]: it may not begin.
    pub(crate) fn begin(
        &self,
        rule: &NetworkRule,
        asked: BudgetRequest,
    ) -> Result<Option<BudgetShare>, Excess> {
        let of_rule = match rule.limits.is_empty() {
            true => None,
            // All such rules have theirs: what has none is not let pass unlimited.
            false => Some(self.of(rule).ok_or_else(|| Excess {
                limit: Limit::Connections,
                said: "nothing counts them".to_owned(),
                rule: rule.to_string(),
                again: None,
            })?),
        };
        let budgets: Vec<&Arc<Budget>> = self.run.iter().chain(of_rule).collect();
        if budgets.is_empty() {
            return Ok(None);
        }
        let now = Instant::now();
        let lasts = rule.limits.duration_ms;
        let mut share = BudgetShare {
            budgets: Vec::with_capacity(budgets.len()),
            rule: rule.to_string(),
            until: lasts.and_then(|ms| now.checked_add(Duration::from_millis(ms.get()))),
            body: Mutex::new(0),
            excess: OnceLock::new(),
        };
        for budget in budgets {
            // What has begun in one ends with the share.
            budget.begin(asked, now).map_err(|excess| Excess {
                rule: share.rule.clone(),
                ..excess
            })?;
            share.budgets.push(Arc::clone(budget));
        }
        Ok(Some(share))
    }
}

impl Budget {
    fn of_run(run: NetworkLimits) -> Self {
        let connections = run
            .connections
            .map(|most| u32::try_from(most).unwrap_or(u32::MAX));
        Self {
            limits: RuleLimits {
                connections: connections.and_then(NonZeroU32::new),
                rate: run.rate.and_then(NonZeroU64::new),
                ..RuleLimits::default()
            },
            run: Some(run),
            origin: String::new(),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn excess(&self, limit: Limit) -> Excess {
        let (limit, said) = match (self.run, limit) {
            (Some(run), Limit::Connections) => {
                let most = run.connections.unwrap_or_default();
                (Limit::RunConnections, format!("--limit connections={most}"))
            }
            (Some(run), Limit::NetworkBytes) => {
                let most = format_bytes(run.bytes.unwrap_or_default());
                (limit, format!("--limit network-bytes={most}"))
            }
            (_, limit) => (limit, self.limits.said(limit)),
        };
        Excess {
            limit,
            said,
            rule: String::new(),
            again: None,
        }
    }

    fn begin(&self, asked: BudgetRequest, now: Instant) -> Result<(), Excess> {
        let mut state = self.state();
        let (head, body) = match asked {
            BudgetRequest::Tunnel => (0, None),
            BudgetRequest::Request { head, body } => (head, body),
        };
        if self
            .limits
            .body
            .zip(body)
            .is_some_and(|(most, body)| body > most)
        {
            return Err(self.excess(Limit::Body));
        }
        let all = head.saturating_add(body.unwrap_or_default());
        if !self.has_room(&state, all) {
            return Err(self.excess(Limit::NetworkBytes));
        }
        if !state.up.has_room(all, self.limits.upload.map(u64::from)) {
            return Err(self.excess(Limit::Upload));
        }
        if !state.down.has_room(0, self.limits.download.map(u64::from)) {
            return Err(self.excess(Limit::Download));
        }
        if self
            .limits
            .connections
            .is_some_and(|most| state.open >= most.get())
        {
            return Err(Excess {
                again: Some(Duration::from_secs(1)),
                ..self.excess(Limit::Connections)
            });
        }
        if let (Some(most), BudgetRequest::Request { .. }) = (self.limits.requests, asked) {
            take(&mut state.full, most, now).map_err(|again| Excess {
                again: Some(again),
                ..self.excess(Limit::Requests)
            })?;
        }
        state.up.bytes = state.up.bytes.saturating_add(head);
        state.open = state.open.saturating_add(1);
        Ok(())
    }

    /// Returns whether the whole run may carry this many bytes more.
    fn has_room(&self, state: &State, bytes: u64) -> bool {
        let most = self.run.and_then(|run| run.bytes);
        let carried = state.up.bytes.checked_add(state.down.bytes);
        let all = carried.and_then(|carried| carried.checked_add(bytes));
        let is_spent = state.up.is_spent || state.down.is_spent;
        most.is_none_or(|most| !is_spent && all.is_some_and(|all| all <= most))
    }

    /// Lets this many bytes of a flow pass. Returns the time from which they may.
    ///
    /// # Errors
    /// The limit that they would exceed.
    fn pass(&self, way: Direction, bytes: u64, now: Instant) -> Result<Option<Instant>, Limit> {
        let mut state = self.state();
        let has_room = self.has_room(&state, bytes);
        let (limit, carried, most) = match way {
            Direction::Up => (Limit::Upload, &mut state.up, self.limits.upload),
            Direction::Down => (Limit::Download, &mut state.down, self.limits.download),
        };
        if !has_room || !carried.has_room(bytes, most.map(u64::from)) {
            carried.is_spent = true;
            return Err(if has_room { limit } else { Limit::NetworkBytes });
        }
        carried.bytes = carried.bytes.saturating_add(bytes);
        let Some(rate) = self.limits.rate else {
            return Ok(None);
        };
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.get());
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).min(PAUSE_MAX);
        let begins = carried.passed.map_or(now, |passed| passed.max(now));
        // Whoever has it wait for longer waits as long as all that is.
        let passed = begins.checked_add(takes).unwrap_or(begins);
        carried.passed = Some(passed);
        Ok(Some(passed))
    }
}

impl DirectionUsage {
    fn has_room(&self, bytes: u64, most: Option<u64>) -> bool {
        let fits = |most| self.bytes.checked_add(bytes).is_some_and(|all| all <= most);
        !self.is_spent && most.is_none_or(fits)
    }
}

/// Takes one token out of a bucket that holds as many as there may be requests in the period, and
/// refills evenly.
///
/// # Errors
/// The time until there is one.
fn take(full: &mut Option<Instant>, most: Frequency, now: Instant) -> Result<(), Duration> {
    let whole = most.per.duration();
    let each = whole / most.count.get();
    let after = full.map_or(now, |full| full.max(now)) + each;
    let empty = after.saturating_duration_since(now);
    if empty > whole {
        return Err(empty - whole);
    }
    *full = Some(after);
    Ok(())
}

impl BudgetShare {
    /// Lets this many bytes pass. Returns the time from which they may, if that is not now.
    ///
    /// # Errors
    /// [`Excess`]: they may not, and nothing more of this flow may.
    pub(crate) fn pass(&self, way: Direction, bytes: u64) -> Result<Option<Instant>, Excess> {
        if let Some(excess) = self.excess.get() {
            return Err(excess.clone());
        }
        let now = Instant::now();
        if self.until.is_some_and(|until| until <= now) {
            return Err(self.end(Limit::Duration));
        }
        let body_max = self.budgets.iter().find_map(|budget| budget.limits.body);
        if let (Direction::Up, Some(most)) = (way, body_max) {
            let mut body = self.body.lock().unwrap_or_else(PoisonError::into_inner);
            *body = body.saturating_add(bytes);
            if *body > most {
                return Err(self.end(Limit::Body));
            }
        }
        let mut passed = None;
        for budget in &self.budgets {
            match budget.pass(way, bytes, now) {
                Ok(from) => passed = passed.max(from),
                Err(limit) => return Err(self.end_by(budget, limit)),
            }
        }
        Ok(passed)
    }

    /// Lets this many bytes pass, and waits until they may.
    ///
    /// # Errors
    /// [`Excess`]: they may not, and nothing more of this flow may.
    pub(crate) async fn passed(&self, way: Direction, bytes: usize) -> Result<(), Excess> {
        if let Some(from) = self.pass(way, bytes as u64)? {
            sleep_until(from.into()).await;
        }
        Ok(())
    }

    /// Returns the best number of bytes to carry at once.
    pub fn piece_bytes(&self) -> usize {
        let rates = self.budgets.iter().filter_map(|budget| budget.limits.rate);
        let rate = rates.min().map(|rate| rate.get() / PIECES_PER_SECOND);
        let piece = rate.map_or(PIECE_BYTES_MAX, |piece| piece.clamp(1, PIECE_BYTES_MAX));
        usize::try_from(piece).unwrap_or(1)
    }

    /// Returns when the flow has reached its longest duration.
    pub(crate) async fn late(&self) -> Excess {
        match self.until {
            Some(until) => sleep_until(until.into()).await,
            None => std::future::pending().await,
        }
        self.end(Limit::Duration)
    }

    /// Returns the limit that has ended it, if one has.
    pub(crate) fn excess(&self) -> Option<&Excess> {
        self.excess.get()
    }

    /// Ends it by a limit of its rule.
    fn end(&self, limit: Limit) -> Excess {
        let of_rule = self.budgets.iter().find(|budget| budget.run.is_none());
        let said = of_rule.map_or_else(String::new, |budget| budget.limits.said(limit));
        self.note(Excess {
            limit,
            said,
            rule: self.rule.clone(),
            again: None,
        })
    }

    fn end_by(&self, budget: &Budget, limit: Limit) -> Excess {
        self.note(Excess {
            rule: self.rule.clone(),
            ..budget.excess(limit)
        })
    }

    /// Keeps the first excess, and returns it.
    fn note(&self, excess: Excess) -> Excess {
        self.excess.get_or_init(|| excess).clone()
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        for budget in &self.budgets {
            let mut state = budget.state();
            state.open = state.open.saturating_sub(1);
        }
    }
}

/// Waits as [`BudgetShare::late`] does; for ever if the flow is not limited.
pub async fn late(part: Option<&BudgetShare>) -> Excess {
    match part {
        Some(part) => part.late().await,
        None => std::future::pending().await,
    }
}

/// Waits as [`BudgetShare::passed`] does; not at all if the flow is not limited.
pub async fn passed(
    part: Option<&BudgetShare>,
    way: Direction,
    bytes: usize,
) -> Result<(), Excess> {
    match part {
        Some(part) => part.passed(way, bytes).await,
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
