//! Figures and goals. Pure.

use std::fmt;

use serde::Serialize;

use super::{paths::PATHS, round::Round, site::Network};
use crate::report::{
    environment::Environment,
    gate::Gate,
    percentiles::{Percentiles, median},
};

/// `services.json`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) environment: Option<Environment>,
    pub(crate) rounds: Both<Vec<Round>>,
    /// In the order of [`PATHS`].
    pub(crate) paths: Vec<Both<Figures>>,
}

/// The same of each network.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Both<T> {
    ours: T,
    reference: T,
}

/// One path of one side, turn by turn.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Figures {
    /// Of each request, one after the other: connected and answered.
    pub(crate) microseconds: Vec<Vec<u32>>,
    /// Megabits a second of one stream.
    pub(crate) megabits: Vec<f64>,
}

impl Figures {
    /// Requests a second, of each turn.
    fn rates(&self) -> Vec<f64> {
        let rate = |turn: &Vec<u32>| {
            let seconds = turn.iter().copied().map(f64::from).sum::<f64>() / 1e6;
            turn.len() as f64 / seconds.max(f64::EPSILON)
        };
        self.microseconds.iter().map(rate).collect()
    }

    /// Median of the turns.
    fn requests_a_second(&self) -> f64 {
        median(self.rates())
    }

    /// The 99th percentile of each turn.
    fn p99s(&self) -> Vec<f64> {
        let p99 = |turn: &Vec<u32>| Percentiles::of(turn.iter().copied().map(f64::from)).p99;
        self.microseconds.iter().map(p99).collect()
    }

    /// The 99th percentile of all requests.
    fn p99(&self) -> f64 {
        Percentiles::of(self.microseconds.iter().flatten().map(|taken| f64::from(*taken) / 1e3)).p99
    }

    /// Median of the turns.
    fn megabits_a_second(&self) -> f64 {
        median(self.megabits.iter().copied())
    }
}

/// What of each turn is compared.
type Compared = (&'static str, fn(&Figures) -> Vec<f64>);

const COMPARED: [Compared; 3] = [
    ("requests a second", Figures::rates),
    ("99th percentile", Figures::p99s),
    ("bytes a second", |figures| figures.megabits.clone()),
];

impl Both<Figures> {
    /// Ours, as a multiple of the other network's of the same turn.
    fn ratios(&self, (_, of): Compared) -> Vec<f64> {
        let Both { ours, reference } = self.each(of);
        ours.into_iter()
            .zip(reference)
            .map(|(ours, reference)| ours / reference.max(f64::EPSILON))
            .collect()
    }
}

impl<T> Both<T> {
    pub(crate) fn of_mut(&mut self, network: Network) -> &mut T {
        match network {
            Network::Ours => &mut self.ours,
            Network::Reference => &mut self.reference,
        }
    }

    fn each<R>(&self, of: impl Fn(&T) -> R) -> Both<R> {
        Both { ours: of(&self.ours), reference: of(&self.reference) }
    }
}

/// A part of a round.
type Part = (&'static str, fn(&Round) -> f64);

const ANSWERED: Part = ("pod ready, its Service answers on the other node", |round| round.answered);
const PARTS: [Part; 3] = [
    ANSWERED,
    ("  of it, until an EndpointSlice has the pod", |round| round.listed),
    ("  of it, from there on", |round| round.answered - round.listed),
];

impl Report {
    fn percentiles(&self, (_, of): Part) -> Both<Percentiles> {
        self.rounds.each(|rounds| Percentiles::of(rounds.iter().map(of)))
    }

    /// What must not be later here than there. None where no rounds were measured.
    fn gates(&self) -> Vec<Gate> {
        if self.rounds.ours.is_empty() {
            return Vec::new();
        }
        let Both { ours, reference } = self.percentiles(ANSWERED);
        let less = |what, ours, theirs| {
            Gate::less_than(&format!("{}, {what}", ANSWERED.0), "ms", ours, theirs)
        };
        vec![
            less("median", ours.p50, reference.p50),
            less("90th percentile", ours.p90, reference.p90),
        ]
    }

    /// How the ways of packets relate, and no figure of either side: those of an emulated processor
    /// mean nothing.
    fn write_ratios(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let turns = self.paths.first().map_or(0, |path| path.ours.megabits.len());
        let (ours, reference) = (Network::Ours, Network::Reference);
        writeln!(
            f,
            "{ours} network's ÷ {reference}'s: median (lowest to highest) of {turns} turns of each.\n"
        )?;
        write!(f, "  {:<42}", "")?;
        COMPARED.iter().try_for_each(|(name, _)| write!(f, "{name:>26}"))?;
        for (what, path) in PATHS.iter().zip(&self.paths) {
            write!(f, "\n  {what:<42}")?;
            for compared in COMPARED {
                let ratios = path.ratios(compared);
                let lowest = ratios.iter().copied().fold(f64::INFINITY, f64::min);
                let Percentiles { p50, max, .. } = Percentiles::of(ratios);
                write!(f, "{:>26}", format!("{p50:.2} ({lowest:.2} to {max:.2})"))?;
            }
        }
        writeln!(f)
    }

    /// Whether every goal is met.
    pub(crate) fn holds(&self) -> bool {
        Gate::all_hold(&self.gates())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(environment) = &self.environment {
            writeln!(f, "\n{environment}")?;
        }
        if self.rounds.ours.is_empty() {
            return self.write_ratios(f);
        }
        writeln!(
            f,
            "Milliseconds, median (90th percentile), of {} pods on each side.",
            self.rounds.ours.len()
        )?;
        writeln!(f, "\n  {:<52}{:>16}{:>16}", "", Network::Reference, Network::Ours)?;
        for part in PARTS {
            let Both { ours, reference } =
                self.percentiles(part).each(|of| format!("{:.1} ({:.1})", of.p50, of.p90));
            writeln!(f, "  {:<52}{reference:>16}{ours:>16}", part.0)?;
        }
        writeln!(
            f,
            "\nRequests a second, one at a time (99th percentile in ms); Mbit/s of one stream.\n"
        )?;
        for (what, paths) in PATHS.iter().zip(&self.paths) {
            let Both { ours, reference } = paths.each(Figures::to_string);
            writeln!(f, "  {what:<42}{reference:>26}{ours:>26}")?;
        }
        writeln!(f)?;
        self.gates().iter().try_for_each(|gate| writeln!(f, "{gate}"))
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (requests, megabits) = (self.requests_a_second(), self.megabits_a_second());
        write!(f, "{requests:.0} ({:.2}); {megabits:.0}", self.p99())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missed(ours: &[f64], reference: &[f64]) -> Vec<String> {
        let rounds = |answered: &[f64]| {
            let round = |answered: &f64| Round { listed: 1.0, answered: *answered };
            answered.iter().map(round).collect::<Vec<_>>()
        };
        let mut report = Report::default();
        report.rounds.of_mut(Network::Ours).extend(rounds(ours));
        report.rounds.of_mut(Network::Reference).extend(rounds(reference));
        let missed = report.gates().into_iter().filter(|gate| !gate.holds).map(|gate| gate.demand);
        missed.filter_map(|demand| demand.rsplit(", ").next().map(str::to_owned)).collect()
    }

    #[test]
    fn later_than_kube_proxy_is_a_missed_goal_of_its_own_in_median_and_tail() {
        assert!(missed(&[10.0, 11.0], &[12.0, 13.0]).is_empty());
        assert_eq!(missed(&[10.0, 14.0], &[12.0, 13.0]), ["90th percentile"]);
        assert_eq!(missed(&[12.0, 12.5], &[12.0, 13.0]), ["median"]);
    }

    #[test]
    fn ways_of_packets_are_compared_turn_by_turn() {
        let figures = |taken: [u32; 3], megabits: [f64; 3]| Figures {
            microseconds: taken.map(|taken| vec![taken, taken]).into(),
            megabits: megabits.into(),
        };
        let ours = figures([200, 400, 900], [5.0, 1.0, 9.0]);
        let reference = figures([100, 400, 300], [10.0, 10.0, 10.0]);
        let report = Report { paths: vec![Both { ours, reference }], ..Report::default() };
        assert!(report.holds());
        let text = report.to_string();
        let line =
            text.lines().find(|line| line.contains(PATHS[0])).expect("the first path has a line");
        let columns = ["0.50 (0.33 to 1.00)", "2.00 (1.00 to 3.00)", "0.50 (0.10 to 0.90)"];
        let found: Vec<_> = columns.iter().map(|column| line.find(column)).collect();
        assert!(found.iter().all(Option::is_some) && found.is_sorted(), "{line}");
    }
}
