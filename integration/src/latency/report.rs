//! Figures and goals. Pure.

use std::fmt;

use serde::Serialize;

use super::{change::Round, policies::Verdicts};
use crate::report::{environment::Environment, gate::Gate, percentiles::Percentiles};

/// `latency.json`.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    environment: Environment,
    measured: Vec<Measured>,
    policies: Vec<MeasuredPolicies>,
    gates: Vec<Gate>,
}

/// All rounds with one number of other Services.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    others: usize,
    /// Rows written by a bare transaction.
    pub(crate) floor: Vec<Round>,
    /// Objects written to the API server.
    pub(crate) ours: Vec<Round>,
    pub(crate) rates: Rates,
}

/// The same of policies.
#[derive(Debug, Serialize)]
pub(crate) struct MeasuredPolicies {
    others: usize,
    pub(crate) floor: Vec<Verdicts>,
    pub(crate) ours: Vec<Verdicts>,
}

/// Microseconds of connections that were made one after the other, turn by turn.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Rates {
    pub(crate) straight: Vec<Vec<u32>>,
    pub(crate) through: Vec<Vec<u32>>,
}

/// A change, by the time that it took in a round.
pub(super) type Change<R = Round> = (&'static str, fn(&R) -> f64);

const CREATED: Change = ("Service created, its address answers", |round| round.created);
const ADDED: Change = ("endpoint added, first connection to it", |round| round.added);
const REMOVED: Change = ("endpoint removed, last connection to it", |round| round.removed);
/// Not a change: the part of [`CREATED`] that is the API server's, or the database's.
const ANSWERED: Change = ("of the first: until the request is answered", |round| round.answered);

/// Limits of the median and of the 90th percentile without other Services, in milliseconds.
/// Upstream takes 29 to 33, 32 to 35, and 13 to 18.
const LIMITS: [(Change, f64, Option<f64>); 3] =
    [(CREATED, 15.0, Some(20.0)), (ADDED, 15.0, None), (REMOVED, 10.0, None)];
const FORBIDDEN: Change<Verdicts> =
    ("policy created, last connection that it forbids", |round| round.forbidden);
const ALLOWED: Change<Verdicts> =
    ("policy created, first connection that it allows", |round| round.allowed);
/// The same for policies. Upstream takes 16 to 19, and 21 to 26.
const LIMITS_OF_POLICIES: [(Change<Verdicts>, f64, Option<f64>); 2] =
    [(FORBIDDEN, 12.0, Some(15.0)), (ALLOWED, 14.0, None)];
/// Limit of a median with other Services or policies, as a multiple of that without.
const WITH_OTHERS: f64 = 1.5;

fn percentiles_of<R>(rounds: &[R], change: Change<R>) -> Percentiles {
    Percentiles::of(rounds.iter().map(change.1))
}

impl Measured {
    pub(crate) fn with(others: usize) -> Self {
        Self { others, floor: Vec::new(), ours: Vec::new(), rates: Rates::default() }
    }

    /// One line.
    pub(crate) fn summary(&self) -> String {
        let of = |rounds: &[Round]| {
            [CREATED, ADDED, REMOVED]
                .map(|change| format!("{:.1}", percentiles_of(rounds, change).p50))
                .join(", ")
        };
        format!(
            "with {} other Services: created, added, removed {} ms; floor {}",
            self.others,
            of(&self.ours),
            of(&self.floor)
        )
    }
}

impl MeasuredPolicies {
    pub(crate) fn with(others: usize) -> Self {
        Self { others, floor: Vec::new(), ours: Vec::new() }
    }

    /// One line.
    pub(crate) fn summary(&self) -> String {
        let of = |rounds: &[Verdicts]| {
            [FORBIDDEN, ALLOWED]
                .map(|change| format!("{:.1}", percentiles_of(rounds, change).p50))
                .join(", ")
        };
        format!(
            "with {} other policies: forbidden, allowed {} ms; floor {}",
            self.others,
            of(&self.ours),
            of(&self.floor)
        )
    }
}

/// Goals of rounds alone, and of those with so many others.
fn gates<R>(limits: &[(Change<R>, f64, Option<f64>)], phases: &[(usize, &[R])]) -> Vec<Gate> {
    let mut gates = Vec::new();
    let Some(((_, alone), with_others)) = phases.split_first() else { return gates };
    for (change, median, p90) in limits {
        let (what, of) = (change.0, percentiles_of(alone, *change));
        gates.push(Gate::within(&format!("{what}, median"), of.p50, *median));
        gates.extend(p90.map(|limit| Gate::within(&format!("{what}, p90"), of.p90, limit)));
    }
    for (others, rounds) in with_others {
        gates.extend(limits.iter().map(|(change, ..)| {
            let [measured, alone] =
                [*rounds, *alone].map(|rounds| percentiles_of(rounds, *change).p50);
            Gate::within(
                &format!("{}, median with {others} others", change.0),
                measured,
                WITH_OTHERS * alone,
            )
        }));
    }
    gates
}

impl Rates {
    /// Connections a second, and the 99th percentile of their milliseconds.
    fn figures(turns: &[Vec<u32>]) -> String {
        let milliseconds: Vec<f64> =
            turns.iter().flatten().map(|taken| f64::from(*taken) / 1e3).collect();
        let seconds = milliseconds.iter().sum::<f64>() / 1e3;
        let rate = milliseconds.len() as f64 / seconds.max(f64::EPSILON);
        format!("{rate:.0} ({:.2})", Percentiles::of(milliseconds).p99)
    }
}

impl Report {
    pub(crate) fn new(
        environment: Environment,
        measured: Vec<Measured>,
        policies: Vec<MeasuredPolicies>,
    ) -> Self {
        let services: Vec<_> = measured.iter().map(|of| (of.others, &*of.ours)).collect();
        let verdicts: Vec<_> = policies.iter().map(|of| (of.others, &*of.ours)).collect();
        let mut all = gates(&LIMITS, &services);
        all.extend(gates(&LIMITS_OF_POLICIES, &verdicts));
        Self { environment, measured, policies, gates: all }
    }

    /// Whether every goal is met.
    pub(crate) fn holds(&self) -> bool {
        Gate::all_hold(&self.gates)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{}", self.environment)?;
        writeln!(
            f,
            "Milliseconds, median (90th percentile); floor: the same rows, by one bare transaction."
        )?;
        for Measured { others, floor, ours, rates } in &self.measured {
            writeln!(
                f,
                "\n  {:<46}{:>16}{:>16}",
                format!("with {others} other Services"),
                "floor",
                "this"
            )?;
            for change in [CREATED, ADDED, REMOVED, ANSWERED] {
                line(f, change, floor, ours)?;
            }
            let [straight, through] =
                [&rates.straight, &rates.through].map(|turns| Rates::figures(turns));
            writeln!(
                f,
                "  connections a second, one at a time (p99): straight to the pod {straight}, \
                 through the Service {through}"
            )?;
        }
        for MeasuredPolicies { others, floor, ours } in &self.policies {
            writeln!(
                f,
                "\n  {:<46}{:>16}{:>16}",
                format!("with {others} other policies"),
                "floor",
                "this"
            )?;
            for change in [FORBIDDEN, ALLOWED] {
                line(f, change, floor, ours)?;
            }
        }
        writeln!(f)?;
        self.gates.iter().try_for_each(|gate| writeln!(f, "{gate}"))
    }
}

/// A line of the table.
fn line<R>(f: &mut fmt::Formatter<'_>, change: Change<R>, floor: &[R], ours: &[R]) -> fmt::Result {
    let of = |rounds: &[R]| {
        let Percentiles { p50, p90, .. } = percentiles_of(rounds, change);
        format!("{p50:.1} ({p90:.1})")
    };
    writeln!(f, "  {:<46}{:>16}{:>16}", change.0, of(floor), of(ours))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(others: usize, milliseconds: f64) -> Measured {
        let round = Round {
            created: milliseconds,
            answered: 1.0,
            added: milliseconds,
            removed: milliseconds,
        };
        Measured { others, floor: vec![round], ours: vec![round], rates: Rates::default() }
    }

    fn missed(measured: Vec<Measured>) -> Vec<String> {
        let environment = Environment::of_this_machine(0).unwrap();
        let report = Report::new(environment, measured, Vec::new());
        let missed = report.gates.iter().filter(|gate| !gate.holds).map(|gate| gate.demand.clone());
        missed.collect()
    }

    #[test]
    fn a_goal_is_missed_alone_and_with_others() {
        assert!(missed(vec![measured(0, 10.0), measured(5000, 15.0)]).is_empty());
        assert_eq!(
            missed(vec![measured(0, 11.0)]),
            ["endpoint removed, last connection to it, median"]
        );
        assert_eq!(missed(vec![measured(0, 8.0), measured(5000, 12.1)]).len(), 3);
    }

    #[test]
    fn policies_have_goals_of_their_own() {
        let of = |forbidden, allowed| vec![Verdicts { forbidden, allowed }];
        let gates = gates(&LIMITS_OF_POLICIES, &[(0, &of(12.1, 10.0)), (2000, &of(12.1, 15.1))]);
        let missed: Vec<&str> =
            gates.iter().filter(|gate| !gate.holds).map(|gate| &*gate.demand).collect();
        assert_eq!(
            missed,
            [
                "policy created, last connection that it forbids, median",
                "policy created, first connection that it allows, median with 2000 others",
            ]
        );
    }
}
