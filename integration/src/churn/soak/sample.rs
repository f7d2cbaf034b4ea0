//! One sample of every quantity that could grow.

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;

use super::{
    pod_queue::Times,
    quantity::{Demand, Quantity},
    trend::median,
};
use crate::{Daemon, Lab, Node, Program, eventually};

/// Limit of the wait for the daemons to finish the work of the last calls. ovs-vswitchd and
/// ovn-controller need far less; after it, the difference is a finding.
const SETTLING: Duration = Duration::from_secs(10);

/// The values after so many cycles, while no call is under way.
#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    /// Completed cycles.
    pub cycle: usize,
    /// Seconds since the first sample.
    pub seconds: f64,
    /// Values by quantity; the JSON keys are the names in the table.
    pub values: BTreeMap<Quantity, f64>,
}

/// Prints one value per line, in the order of [`NODE`].
const SCRIPT: &str = "
    cat /proc/sys/net/netfilter/nf_conntrack_count 2>/dev/null || echo 0
    ovs-ofctl dump-aggregate br-int | sed 's/.*flow_count=//'
    wc -l </proc/self/mountinfo
    find /run /etc/cni/net.d /etc/openvswitch /var/lib/cni /var/log/openvswitch -xdev -not -type d | wc -l
    for file in /etc/openvswitch/conf.db /var/log/openvswitch/ovn-k8s-cni-overlay.log /var/log/openvswitch/ovnkube.log; do
        du --apparent-size --bytes $file | cut -f 1
    done";
const NODE: [Quantity; 7] = [
    Quantity::Connections,
    Quantity::Flows,
    Quantity::Mounts,
    Quantity::Files,
    Quantity::Database,
    Quantity::PluginLog,
    Quantity::ServerLog,
];

impl Sample {
    /// Takes a sample now, after ovn-controller has caught up with the northbound database.
    pub(super) fn take(lab: &Lab, node: &Node, cycle: usize, began: Instant) -> Result<Self> {
        lab.central.sync()?;
        let mut values = of_node(node)?;
        for program in Program::ALL {
            values.extend(of_process(program, node.daemon(program))?);
        }
        Ok(Self { cycle, seconds: began.elapsed().as_secs_f64(), values })
    }

    /// Takes samples until all quantities with the demand `Same` equal those of `first`, or the
    /// time is over.
    pub(super) fn take_settled(
        lab: &Lab,
        node: &Node,
        cycle: usize,
        began: Instant,
        first: &Self,
    ) -> Result<Self> {
        let mut last = None;
        let settled = eventually("the node is as before", SETTLING, || {
            let sample = Self::take(lab, node, cycle, began)?;
            let same = |(quantity, value): &(&Quantity, &f64)| {
                quantity.demand() != Demand::Same || first.values.get(quantity) == Some(value)
            };
            let other = sample
                .values
                .iter()
                .find(|pair| !same(pair))
                .map(|(quantity, value)| format!("{quantity}: {value}"));
            last = Some(sample.clone());
            ensure!(other.is_none(), "{}", other.unwrap_or_default());
            Ok(sample)
        });
        // After the limit the last sample counts: the report shows the difference.
        settled.or_else(|error| last.ok_or(error))
    }

    /// Adds the median durations of the calls since the sample before.
    pub(super) fn with_times(mut self, Times { adds, dels }: &Times) -> Self {
        let milliseconds = |times: &[Duration]| {
            median(times.iter().map(|time| time.as_secs_f64() * 1e3).collect())
        };
        self.values.insert(Quantity::AddTime, milliseconds(adds));
        self.values.insert(Quantity::DelTime, milliseconds(dels));
        self
    }

    /// Adds the size of the database, which has just been compacted.
    pub(super) fn with_compacted(mut self) -> Self {
        if let Some(size) = self.values.get(&Quantity::Database).copied() {
            self.values.insert(Quantity::Compacted, size);
        }
        self
    }
}

/// Makes ovsdb-server rewrite its file with the current rows only, without their history
/// (ovsdb-server(1)).
pub(super) fn compact(node: &Node) -> Result<()> {
    node.run(["ovs-appctl", "-t", "ovsdb-server", "ovsdb-server/compact"]).map(drop)
}

fn of_node(node: &Node) -> Result<BTreeMap<Quantity, f64>> {
    let census = node.census()?;
    let counts = [
        (Quantity::Ports, census.count("Port")),
        (Quantity::Interfaces, census.count("Interface")),
        (Quantity::Limits, census.count("QoS") + census.count("Queue")),
        (Quantity::Links, census.count("link")),
        (Quantity::Namespaces, census.count("netns")),
    ];
    let output = node.shell(SCRIPT)?;
    let numbers: Vec<f64> = output
        .lines()
        .map(|line| line.trim().parse().with_context(|| format!("{line:?} is not a number")))
        .collect::<Result<_>>()?;
    ensure!(
        numbers.len() == NODE.len(),
        "{} values instead of {}:\n{output}",
        numbers.len(),
        NODE.len()
    );
    let scaled = |(quantity, number): (Quantity, f64)| match quantity {
        Quantity::Database | Quantity::PluginLog | Quantity::ServerLog => {
            (quantity, number / 1024.0)
        }
        _ => (quantity, number),
    };
    Ok(counts
        .into_iter()
        .map(|(quantity, count)| (quantity, count as f64))
        .chain(NODE.into_iter().zip(numbers).map(scaled))
        .collect())
}

fn of_process(process: Program, daemon: &Daemon) -> Result<[(Quantity, f64); 5]> {
    let pid = daemon.running_pid()?;
    let dir = format!("/proc/{pid}");
    let memory = fs::read_to_string(format!("{dir}/smaps_rollup"))
        .with_context(|| format!("memory of {}", daemon.name()))?;
    let entries =
        |name: &str| Ok::<_, anyhow::Error>(fs::read_dir(format!("{dir}/{name}"))?.count() as f64);
    Ok([
        (Quantity::Rss(process), kilobytes(&memory, "Rss:")?),
        (Quantity::Own(process), kilobytes(&memory, "Anonymous:")?),
        (Quantity::Pss(process), kilobytes(&memory, "Pss:")?),
        (Quantity::Descriptors(process), entries("fd")?),
        (Quantity::Threads(process), entries("task")?),
    ])
}

fn kilobytes(rollup: &str, field: &str) -> Result<f64> {
    let line = rollup
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .with_context(|| format!("no {field} in {rollup}"))?;
    line.split_whitespace()
        .next()
        .and_then(|number| number.parse().ok())
        .with_context(|| format!("{field} has {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_by_its_name() {
        let rollup = "55d0-7ffe ---p 00000000 00:00 0 [rollup]\nRss:                8340 kB\n\
                      Pss:                8111 kB\nPss_Dirty: 5 kB\n";
        assert_eq!(
            (kilobytes(rollup, "Rss:").unwrap(), kilobytes(rollup, "Pss:").unwrap()),
            (8340.0, 8111.0)
        );
        assert!(kilobytes(rollup, "Uss:").is_err());
    }
}
