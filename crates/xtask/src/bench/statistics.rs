//! Medians and such of a few hundred numbers.

use serde::Serialize;

#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) count: usize,
    pub(crate) median: f64,
    pub(crate) mean: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
}

/// Summarises the numbers; `None` without any.
pub(crate) fn summarise(numbers: &[f64]) -> Option<Summary> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let middle = count / 2;
    let median = if count % 2 == 1 {
        *sorted.get(middle)?
    } else {
        (sorted.get(middle.checked_sub(1)?)? + sorted.get(middle)?) / 2.0
    };
    // The smallest number that at least so many in 100 do not exceed.
    let most = |of_hundred: usize| {
        let place = (count * of_hundred).div_ceil(100).saturating_sub(1);
        sorted.get(place).copied()
    };
    let length = u32::try_from(count).map_or(f64::NAN, f64::from);
    Some(Summary {
        count,
        median,
        mean: sorted.iter().sum::<f64>() / length,
        min: *sorted.first()?,
        max: *sorted.last()?,
        p95: most(95)?,
        p99: most(99)?,
    })
}
