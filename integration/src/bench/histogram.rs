//! The distribution of the times of a part: buckets whose bounds double. Pure.

use serde::Serialize;

/// Inclusive upper bounds in milliseconds. One more bucket counts longer times.
pub(crate) const BOUNDS: [f64; 14] =
    [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0];

/// Bars in steps of an eighth of the line's height.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Number of times in each bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Histogram([usize; BOUNDS.len() + 1]);

impl Histogram {
    pub(crate) fn of(times: &[f64]) -> Self {
        let mut buckets = [0; BOUNDS.len() + 1];
        for time in times {
            let index = BOUNDS.iter().position(|bound| time <= bound).unwrap_or(BOUNDS.len());
            buckets[index] += 1;
        }
        Self(buckets)
    }

    /// One character per bucket; the fullest bucket has the tallest bar.
    pub(crate) fn bars(&self) -> String {
        let most = self.0.iter().copied().max().unwrap_or(0);
        let bar = |count: &usize| match count {
            0 => '·',
            // At least the lowest bar for a bucket with any time in it: a single outlier must be visible.
            count => BARS[(count * BARS.len()).div_ceil(most) - 1],
        };
        self.0.iter().map(bar).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_bucket_whose_bound_it_does_not_exceed() {
        let histogram = Histogram::of(&[0.1, 0.25, 0.26, 8.0, 8.1, 9000.0]);
        assert_eq!(histogram.0, [2, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(histogram.bars(), "█▄···▄▄·······▄");
    }

    #[test]
    fn without_times_there_are_no_bars() {
        assert_eq!(Histogram::of(&[]).bars(), "···············");
    }
}
