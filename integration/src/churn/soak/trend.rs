//! First value, last value and slope of a series. Pure.

use serde::Serialize;

/// The trend of a series.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Trend {
    /// At the start.
    pub first: f64,
    /// At the end.
    pub last: f64,
    /// The smallest value.
    pub least: f64,
    /// The largest value.
    pub most: f64,
    /// Slope per 1,000 cycles, over the second half only: what a program allocates while it warms
    /// up is not a leak.
    pub slope: f64,
    /// Rise of the line with this slope over the second half.
    pub growth: f64,
}

/// Fewest points of a half: a series with fewer than twice as many is used as a whole.
const POINTS: usize = 4;

impl Trend {
    /// The trend of points (completed cycles, value) in the order of time; `None` for an empty
    /// series.
    ///
    /// The slope is the median of the slopes between all pairs of points (Theil and Sen), which a
    /// few outliers do not move.
    pub fn of(points: &[(f64, f64)]) -> Option<Self> {
        let (&(_, first), &(_, last)) = (points.first()?, points.last()?);
        let half = if points.len() < 2 * POINTS { points } else { &points[points.len() / 2..] };
        let slope =
            median(pairs(half).map(|((x, y), (later, value))| (value - y) / (later - x)).collect());
        let span = half.last()?.0 - half.first()?.0;
        let values = || points.iter().map(|(_, value)| *value);
        Some(Self {
            first,
            last,
            least: values().fold(f64::INFINITY, f64::min),
            most: values().fold(f64::NEG_INFINITY, f64::max),
            slope: slope * 1e3,
            growth: slope * span,
        })
    }
}

type Pair = ((f64, f64), (f64, f64));

fn pairs(points: &[(f64, f64)]) -> impl Iterator<Item = Pair> {
    let later = |index: usize| points[index + 1..].iter().copied();
    points
        .iter()
        .copied()
        .enumerate()
        .flat_map(move |(index, point)| later(index).map(move |other| (point, other)))
        .filter(|((x, _), (later, _))| later > x)
}

/// The middle value, or the mean of the two middle values; 0 for an empty list.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.get(middle), values.len() % 2) {
        (None, _) => 0.0,
        (Some(value), 1) => *value,
        (Some(value), _) => f64::midpoint(values[middle - 1], *value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(value: impl Fn(u32) -> f64) -> Vec<(f64, f64)> {
        (0..=100_u32).map(|sample| (f64::from(sample) * 100.0, value(sample))).collect()
    }

    #[test]
    fn a_leak_has_a_slope_and_noise_has_none() {
        // 64 bytes a cycle are 62.5 kB per 1,000 cycles, and 312.5 kB in 5,000.
        let leak = Trend::of(&series(|sample| 9000.0 + 6.25 * f64::from(sample))).unwrap();
        assert!((leak.slope - 62.5).abs() < 1e-6 && (leak.growth - 312.5).abs() < 1e-6, "{leak:?}");
        let noise = Trend::of(&series(|sample| 9000.0 + f64::from(sample * 7919 % 64))).unwrap();
        assert!(noise.growth.abs() < 10.0, "{noise:?}");
    }

    #[test]
    fn warming_up_is_no_growth_and_neither_is_one_bad_moment() {
        let warm = Trend::of(&series(
            |sample| if sample < 40 { 50.0 * f64::from(sample) } else { 2000.0 },
        ))
        .unwrap();
        assert_eq!((warm.slope, warm.first, warm.last), (0.0, 0.0, 2000.0));
        let spike = Trend::of(&series(|sample| if sample == 77 { 900.0 } else { 5.0 })).unwrap();
        assert_eq!((spike.slope, spike.most), (0.0, 900.0));
    }

    #[test]
    fn few_points_are_all_looked_at() {
        assert_eq!(Trend::of(&[(0.0, 10.0), (1000.0, 14.0)]).unwrap().slope, 4.0);
        assert_eq!(Trend::of(&[(0.0, 10.0)]).unwrap().slope, 0.0);
        assert_eq!(Trend::of(&[]), None);
    }
}
