//! A goal of a measurement, and whether it is met.

use std::fmt;

use serde::Serialize;

/// One goal, and whether it is met.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Gate {
    pub(crate) demand: String,
    pub(crate) measured: String,
    pub(crate) goal: String,
    pub(crate) holds: bool,
}

impl Gate {
    pub(crate) fn all_hold(gates: &[Self]) -> bool {
        gates.iter().all(|gate| gate.holds)
    }

    /// Zero means: not measured.
    pub(crate) fn at_most(demand: &str, unit: &str, measured: f64, goal: f64) -> Self {
        let holds = measured > 0.0 && measured <= goal;
        Self { holds, ..Self::of_figures(demand, unit, measured, ("≤", goal)) }
    }

    /// Zero means: not measured.
    pub(crate) fn less_than(demand: &str, unit: &str, measured: f64, goal: f64) -> Self {
        let holds = measured > 0.0 && measured < goal;
        Self { holds, ..Self::of_figures(demand, unit, measured, ("<", goal)) }
    }

    /// A time that may be too short to be measured.
    pub(crate) fn within(demand: &str, measured: f64, goal: f64) -> Self {
        Self { holds: measured <= goal, ..Self::of_figures(demand, "ms", measured, ("≤", goal)) }
    }

    fn of_figures(demand: &str, unit: &str, measured: f64, (sign, goal): (&str, f64)) -> Self {
        let text = |number: f64| format!("{number:.2} {unit}");
        let (measured, goal) = (text(measured), format!("{sign} {}", text(goal)));
        Self { demand: demand.to_owned(), measured, goal, holds: false }
    }

    /// Zero means: not measured.
    pub(crate) fn no_more(demand: &str, measured: u64, goal: u64) -> Self {
        let holds = measured > 0 && measured <= goal;
        Self {
            demand: demand.to_owned(),
            measured: measured.to_string(),
            goal: format!("≤ {goal}"),
            holds,
        }
    }

    pub(crate) fn exactly(demand: &str, measured: u64, goal: u64) -> Self {
        let holds = measured == goal;
        Self {
            demand: demand.to_owned(),
            measured: measured.to_string(),
            goal: format!("= {goal}"),
            holds,
        }
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { demand, measured, goal, holds } = self;
        write!(
            f,
            "{demand:<72}{measured:>12}   {goal:<12} {}",
            if *holds { "held" } else { "MISSED" }
        )
    }
}
