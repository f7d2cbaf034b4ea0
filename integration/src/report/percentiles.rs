//! Percentiles of what was measured. Pure.

use serde::{Deserialize, Serialize};

/// Nearest-rank percentiles; 0 where nothing was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Percentiles {
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Percentiles {
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        // The smallest value that at least `percent` percent of the values do not exceed.
        let [p50, p90, p99, max] = [50, 90, 99, 100].map(|percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100).max(1);
            sorted.get(rank - 1).copied().unwrap_or_default()
        });
        Self { p50, p90, p99, max }
    }
}

/// The median.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    Percentiles::of(values).p50
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_value_that_was_measured() {
        let hundred = Percentiles { p50: 50.0, p90: 90.0, p99: 99.0, max: 100.0 };
        assert_eq!(Percentiles::of((1..=100).rev().map(f64::from)), hundred);
        assert_eq!(
            Percentiles::of([11.0, 7.0, 9.0]),
            Percentiles { p50: 9.0, p90: 11.0, p99: 11.0, max: 11.0 }
        );
        assert_eq!(Percentiles::of([]), Percentiles::default());
    }
}
