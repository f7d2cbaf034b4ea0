//! The measured figures of the world in which nodes join, and its goals. Pure.

use serde::{Deserialize, Serialize};

use super::{
    Reading,
    tables::{Count, Growth},
};
use crate::{
    report::{gate::Gate, percentiles::Percentiles},
    scale::process::Usage,
};

/// Limit for the time in which the API server takes all nodes, in seconds: beyond it, another world
/// is measured.
const WINDOW: f64 = 11.0;
/// Limit for the wait of a node for its rows, in milliseconds: a node's server takes longer to
/// start.
const WAIT: f64 = 1_000.0;
/// Limits for a restart in seconds, and for the peak of memory in MB: those of 500 nodes with
/// 10,000 pods.
const SECONDS: f64 = 2.0;
const MEMORY: f64 = 60.0;
/// Limit for the cost of a half of the nodes, as a multiple of the half that joined before. Nodes
/// that cost something for each other node would make it 3. The processor time has this much room
/// besides, in seconds: what the process does anyway in the time in which nodes join.
const SAME_COST: f64 = 1.3;
const ANYWAY: f64 = 0.1;

/// Times are in seconds unless the field says otherwise.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Joined {
    pub(crate) nodes: usize,
    /// In which the API server took all of them.
    pub(crate) posted: f64,
    /// From the API server's answer to the creation of a node until its last row was committed, in
    /// milliseconds: of the node that came last, and of all.
    pub(crate) last: f64,
    pub(crate) waits: Percentiles,
    pub(crate) halves: [Half; 2],
    /// Rows and values of the database without nodes.
    pub(crate) constant: Count,
    /// The tables of the northbound database that grow.
    pub(crate) growth: Vec<Growth>,
    /// The same of the southbound database, if there is one; without its beginning.
    pub(crate) southbound: Vec<Growth>,
    /// Of the control plane, when all nodes have their rows.
    pub(crate) usage: Usage,
    pub(crate) restart: Restart,
    pub(crate) left: Left,
}

/// What half of the nodes cost the control plane and the database.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Half {
    pub(crate) cpu: f64,
    pub(crate) transactions: u64,
    /// Bytes that the database's log grew by.
    pub(crate) bytes: u64,
}

/// From the start of a process that finds everything in its desired state.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Restart {
    pub(crate) ready: f64,
    pub(crate) transactions: u64,
    pub(crate) nodes_written: usize,
    pub(crate) cpu: f64,
}

/// The second half of the nodes leaves.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Left {
    /// In which the API server deleted them.
    pub(crate) deleted: f64,
    /// From its last answer until the last row was gone, in milliseconds.
    pub(crate) behind: f64,
    pub(crate) transactions: u64,
    pub(crate) cpu: f64,
    /// Tables that do not have what they had before these nodes came.
    pub(crate) differences: Vec<String>,
}

impl Half {
    pub(super) fn between(before: &Reading, after: &Reading) -> Self {
        Self {
            cpu: after.cpu - before.cpu,
            transactions: after.transactions - before.transactions,
            bytes: after.bytes.saturating_sub(before.bytes),
        }
    }
}

impl Joined {
    /// Every goal.
    pub(crate) fn gates(&self) -> Vec<Gate> {
        let Self {
            nodes, posted, last, waits, halves: [first, second], usage, restart, left, ..
        } = self;
        let [one, other] = Growth::added_in_all(&self.growth);
        let half = nodes / 2;
        vec![
            Gate::at_most("nodes created within", "s", *posted, WINDOW),
            Gate::at_most("node created to its last row, p99", "ms", waits.p99, WAIT),
            Gate::at_most("the last node's", "ms", *last, WAIT),
            // The first nodes also bring what there is once.
            Gate::no_more(
                &format!("rows that {half} further nodes add to those of {half}"),
                other.rows as u64,
                one.rows as u64,
            ),
            Gate::no_more("values in these rows", other.values as u64, one.values as u64),
            Gate::at_most(
                "CPU of the second half",
                "s",
                second.cpu,
                SAME_COST * first.cpu + ANYWAY,
            ),
            Gate::at_most(
                "database log of the second half",
                "kB",
                second.bytes as f64 / 1e3,
                SAME_COST * first.bytes as f64 / 1e3,
            ),
            Gate::at_most("memory, peak", "MB", usage.peak_rss, MEMORY),
            Gate::at_most("restart until ready", "s", restart.ready, SECONDS),
            Gate::exactly("transactions of a restart", restart.transactions, 0),
            Gate::exactly("nodes written by a restart", restart.nodes_written as u64, 0),
            Gate::exactly(
                "tables with more or less after half has left",
                left.differences.len() as u64,
                0,
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_the_limits() -> Joined {
        let half = Half { cpu: 1.0, transactions: 30, bytes: 1_000 };
        let counts = [(0, 0), (10, 40), (20, 80)].map(|(rows, values)| Count { rows, values });
        Joined {
            nodes: 20,
            posted: WINDOW,
            last: WAIT,
            waits: Percentiles { p99: WAIT, ..Percentiles::default() },
            halves: [half, Half { cpu: 1.4, bytes: 1_300, ..half }],
            constant: Count::default(),
            growth: vec![Growth { table: "NAT".to_owned(), counts }],
            southbound: Vec::new(),
            usage: Usage { peak_rss: MEMORY, ..Usage::default() },
            restart: Restart { ready: SECONDS, transactions: 0, nodes_written: 0, cpu: 0.1 },
            left: Left {
                deleted: 1.0,
                behind: 10.0,
                transactions: 3,
                cpu: 0.1,
                differences: Vec::new(),
            },
        }
    }

    fn missed(joined: &Joined) -> Vec<String> {
        joined.gates().into_iter().filter(|gate| !gate.holds).map(|gate| gate.demand).collect()
    }

    type Spoil = fn(&mut Joined);

    #[test]
    fn each_gate_of_joining_nodes_is_missed_beyond_its_limit() {
        assert!(missed(&at_the_limits()).is_empty());
        let beyond: [(Spoil, &str); 12] = [
            (|joined| joined.posted = 11.1, "nodes created within"),
            (|joined| joined.waits.p99 = 1_001.0, "node created to its last row, p99"),
            (|joined| joined.last = 1_001.0, "the last node's"),
            (
                |joined| joined.growth[0].counts[2].rows = 21,
                "rows that 10 further nodes add to those of 10",
            ),
            (|joined| joined.growth[0].counts[2].values = 81, "values in these rows"),
            (|joined| joined.halves[1].cpu = 1.5, "CPU of the second half"),
            (|joined| joined.halves[1].bytes = 1_400, "database log of the second half"),
            (|joined| joined.usage.peak_rss = 60.1, "memory, peak"),
            (|joined| joined.restart.ready = 2.1, "restart until ready"),
            (|joined| joined.restart.transactions = 1, "transactions of a restart"),
            (|joined| joined.restart.nodes_written = 1, "nodes written by a restart"),
            (
                |joined| joined.left.differences.push("NAT: 2 (2) and 3 (3)".to_owned()),
                "tables with more or less after half has left",
            ),
        ];
        for (spoil, demand) in beyond {
            let mut joined = at_the_limits();
            spoil(&mut joined);
            assert_eq!(missed(&joined), [demand]);
        }
    }
}
