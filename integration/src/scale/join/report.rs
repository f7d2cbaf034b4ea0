//! The result of the world in which nodes join, as text for the terminal.

use std::fmt;

use super::{
    figures::{Half, Joined, Left, Restart},
    tables::{Count, Growth},
};

impl fmt::Display for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Joined {
            nodes,
            posted,
            last,
            waits,
            halves,
            constant,
            growth,
            southbound,
            usage,
            restart,
            left,
        } = self;
        writeln!(f, "{nodes} nodes with gateways joined in {posted:.2} s\n")?;
        writeln!(
            f,
            "  node created to its last row: {:.1} ms p50, {:.1} p99, {:.1} max; the last node's {last:.1}",
            waits.p50, waits.p99, waits.max
        )?;
        for (Half { cpu, transactions, bytes }, which) in halves.iter().zip(["first", "second"]) {
            writeln!(
                f,
                "  the {which} half: {transactions} transactions, {:.0} kB in the database's log, {cpu:.2} s CPU",
                *bytes as f64 / 1e3
            )?;
        }
        writeln!(f, "  memory: {:.1} MB (peak {:.1})", usage.rss, usage.peak_rss)?;
        let Restart { ready, transactions, nodes_written, cpu } = restart;
        writeln!(
            f,
            "  restart: ready {ready:.2} s; {transactions} transactions, {nodes_written} nodes written, {cpu:.2} s CPU"
        )?;
        let Left { deleted, behind, transactions, cpu, differences } = left;
        writeln!(
            f,
            "  the second half left: deleted in {deleted:.2} s, their rows gone {behind:.1} ms after the last answer; \
             {transactions} transactions, {cpu:.2} s CPU"
        )?;
        differences
            .iter()
            .try_for_each(|table| writeln!(f, "    now, and before they came: {table}"))?;
        writeln!(f, "\n  northbound: {} rows without nodes, and for each node:", constant.rows)?;
        tables(f, *nodes, growth)?;
        if !southbound.is_empty() {
            writeln!(f, "\n  southbound: rows and values with half of the nodes and with all:")?;
            for Growth { table, counts: [_, half, all] } in southbound {
                writeln!(
                    f,
                    "    {table:<32}{:>10}{:>10}{:>8.2} ×{:>12}{:>12}{:>8.2} ×",
                    half.rows,
                    all.rows,
                    ratio(half.rows, all.rows),
                    half.values,
                    all.values,
                    ratio(half.values, all.values)
                )?;
            }
        }
        writeln!(f)
    }
}

/// For each table, what a node of the first half added and what a node of the second half did.
fn tables(f: &mut fmt::Formatter<'_>, nodes: usize, growth: &[Growth]) -> fmt::Result {
    let half = nodes as f64 / 2.0;
    let line = |f: &mut fmt::Formatter<'_>, table: &str, [one, other]: [Count; 2]| {
        let each = |count: usize| count as f64 / half;
        writeln!(
            f,
            "    {table:<32}{:>10.2}{:>10.2}{:>14.2}{:>10.2}   {}",
            each(one.rows),
            each(other.rows),
            each(one.values),
            each(other.values),
            if other.rows > one.rows || other.values > one.values {
                "GROWS with the number of nodes"
            } else {
                "constant"
            }
        )
    };
    writeln!(f, "    {:<32}{:>20}{:>24}", "", "rows: first, second", "values: first, second")?;
    growth.iter().try_for_each(|growth| line(f, &growth.table, growth.added()))?;
    line(f, "together", Growth::added_in_all(growth))
}

/// Two if it grows as the nodes do, four if each node has something for each other one.
fn ratio(half: usize, all: usize) -> f64 {
    all as f64 / half.max(1) as f64
}
