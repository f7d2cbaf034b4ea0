//! The measured figures of questions to many chassis, their goals, and the text on the terminal.
//! Pure.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::report::{gate::Gate, percentiles::Percentiles};

/// Limit for the time until the last of all chassis has answered, in milliseconds for each: the
/// database writes their rows one after the other.
const ANSWER: f64 = 2.0;
/// Limit for what databases and ovn-northd use for a question, in milliseconds for each chassis.
const PROCESSOR: f64 = 2.0;
/// Transactions of a question beside the one of each chassis: the question itself, and those of
/// ovn-northd, which passes the number on and says how far the southbound database and all chassis
/// are.
const OTHERS: usize = 8;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Applied {
    pub(crate) nodes: usize,
    /// How long nobody asked, and what was used meanwhile.
    pub(crate) quiet_seconds: u64,
    pub(crate) quiet: Costs,
    pub(crate) questions: Vec<Question>,
    /// Of all questions.
    pub(crate) asked: Costs,
}

/// One question, in milliseconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Question {
    /// From the question to the last chassis' answer, as the command says it.
    pub(crate) answered: f64,
    /// From the start of the command to its end.
    pub(crate) took: f64,
}

/// Processor time in milliseconds, and transactions.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Costs {
    pub(crate) northbound: f64,
    pub(crate) southbound: f64,
    pub(crate) northd: f64,
    pub(crate) northbound_transactions: u64,
    pub(crate) southbound_transactions: u64,
}

impl Costs {
    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            northbound: self.northbound - before.northbound,
            southbound: self.southbound - before.southbound,
            northd: self.northd - before.northd,
            northbound_transactions: self.northbound_transactions - before.northbound_transactions,
            southbound_transactions: self.southbound_transactions - before.southbound_transactions,
        }
    }

    fn processor(&self) -> f64 {
        self.northbound + self.southbound + self.northd
    }

    fn transactions(&self) -> u64 {
        self.northbound_transactions + self.southbound_transactions
    }
}

impl Applied {
    /// Every goal.
    pub(crate) fn gates(&self) -> Vec<Gate> {
        let nodes = self.nodes as f64;
        let questions = self.questions.len();
        let answered = Percentiles::of(self.questions.iter().map(|question| question.answered));
        let most = questions * (self.nodes + OTHERS);
        vec![
            Gate::exactly("transactions while nobody asks", self.quiet.transactions(), 0),
            Gate::at_most("answer of all, p50, for each node", "ms", answered.p50 / nodes, ANSWER),
            Gate::at_most(
                "processor time of a question, for each node",
                "ms",
                self.asked.processor() / (questions as f64 * nodes),
                PROCESSOR,
            ),
            Gate::no_more(
                "transactions of all questions",
                self.asked.transactions(),
                u64::try_from(most).unwrap_or(u64::MAX),
            ),
        ]
    }
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, quiet_seconds, quiet, questions, asked } = self;
        let of = |time: fn(&Question) -> f64| Percentiles::of(questions.iter().map(time));
        let (answered, took) = (of(|question| question.answered), of(|question| question.took));
        let count = questions.len() as f64;
        writeln!(f, "{nodes} nodes are asked whether an object is in force, {count} times")?;
        writeln!(
            f,
            "  nobody asks for {quiet_seconds} s: {} transactions, {:.0} ms of processor time",
            quiet.transactions(),
            quiet.processor()
        )?;
        writeln!(
            f,
            "  the last node has answered after {:.0} ms p50, {:.0} p90; the command takes \
             {:.0} p50, {:.0} p90",
            answered.p50, answered.p90, took.p50, took.p90
        )?;
        writeln!(
            f,
            "  a question: {:.0} ms of the northbound database, {:.0} of the southbound one, \
             {:.0} of ovn-northd; {:.0} transactions\n",
            asked.northbound / count,
            asked.southbound / count,
            asked.northd / count,
            asked.transactions() as f64 / count
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gate_of_questions_is_missed_beyond_its_limit() {
        let limits = Applied {
            nodes: 100,
            quiet_seconds: 10,
            quiet: Costs::default(),
            questions: vec![Question { answered: 200.0, took: 300.0 }; 2],
            asked: Costs {
                northbound: 100.0,
                southbound: 200.0,
                northd: 100.0,
                northbound_transactions: 12,
                southbound_transactions: 204,
            },
        };
        let missed = |figures: &Applied| -> Vec<String> {
            figures.gates().into_iter().filter(|gate| !gate.holds).map(|gate| gate.demand).collect()
        };
        assert!(missed(&limits).is_empty());
        type Spoil = fn(&mut Applied);
        let beyond: [(Spoil, &str); 4] = [
            (|figures| figures.quiet.southbound_transactions = 1, "transactions while nobody asks"),
            (
                |figures| figures.questions = vec![Question { answered: 201.0, took: 300.0 }; 2],
                "answer of all, p50, for each node",
            ),
            (|figures| figures.asked.northd = 101.0, "processor time of a question, for each node"),
            (
                |figures| figures.asked.southbound_transactions = 205,
                "transactions of all questions",
            ),
        ];
        for (spoil, demand) in beyond {
            let mut figures = limits.clone();
            spoil(&mut figures);
            assert_eq!(missed(&figures), [demand]);
        }
    }
}
