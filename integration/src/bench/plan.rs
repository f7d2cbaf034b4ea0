//! The plan of a run: what is measured, on which pods. The command makes it, and the driver on the node reads
//! it.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use integration::{Daemon, Node, Pod};
use serde::{Deserialize, Serialize};

use super::measurements::{Contestant, Process};

/// Pods of a phase: as many as the largest usual number of calls at once, so that each caller has a pod.
const USUAL_PODS: usize = 100;
/// Numbers of calls at once that are also measured with other pods on the node: without any competition, and
/// under load.
const WITH_PORTS: [usize; 2] = [1, 32];

/// Size of the measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Size {
    /// Pods that each contestant adds and deletes in each round.
    pub(crate) pods: usize,
    /// Pods of a phase with fewer than 32 calls at once, or of upstream's plugin; at least the number of calls
    /// at once.
    pub(crate) few_pods: usize,
    /// Stale attachments that one GC removes. The valid attachments are the pods that stay.
    pub(crate) stale: usize,
    /// Rounds that count, without the warm-up.
    pub(crate) rounds: u32,
    /// The first of them, in which upstream's plugin takes part.
    pub(crate) slow_rounds: u32,
    /// Numbers of calls at the same time while no other pod is attached; 1 first.
    pub(crate) at_once: Vec<usize>,
    /// Numbers of pods that are attached already; 0 first.
    pub(crate) ports: Vec<usize>,
    /// Numbers of calls at the same time while other pods are attached.
    pub(crate) at_once_with_ports: Vec<usize>,
    /// Contestants that attach pods.
    pub(crate) contestants: Vec<Contestant>,
}

/// The input of the driver.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) size: Size,
    /// The first `size.pods` come and go; the others stay. Logical port, namespace and manifest exist.
    pub(crate) pods: Vec<Pod>,
    /// MTU of the pods.
    pub(crate) mtu: u32,
    /// Path of upstream's plugin.
    pub(crate) upstream: Option<PathBuf>,
    /// The daemons whose CPU time counts, with their process IDs.
    pub(crate) daemons: Vec<(Process, u32)>,
}

/// Deviations from the usual size.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Wanted {
    /// Less than two minutes: what the gates need, in fewer rounds.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Pods that each contestant adds and deletes in each round.
    #[arg(long, value_name = "N")]
    pub(crate) pods: Option<usize>,
    /// Rounds that count; one more comes before them, to warm up.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// How many calls at the same time; 1 is always among them, because of its gates.
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub(crate) at_once: Option<Vec<usize>>,
    /// How many pods are attached already while others come and go; 0 is always among them.
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub(crate) ports: Option<Vec<usize>>,
    /// Contestants to measure.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub(crate) contestants: Option<Vec<Contestant>>,
    /// Path of upstream's plugin, to measure it with this project's server.
    #[arg(long, value_name = "FILE")]
    pub(crate) upstream: Option<PathBuf>,
}

impl Size {
    /// The usual size, or the quick one, with the deviations in `wanted`.
    pub(crate) fn new(wanted: Wanted) -> Result<Self> {
        let Wanted { quick, pods, rounds, at_once, ports, contestants, upstream } = wanted;
        let (usual_at_once, usual_ports) =
            if quick { (&[1, 32, 100][..], &[][..]) } else { (&[1, 8, 32, 100][..], &[100, 250][..]) };
        let at_once = with(1, at_once.unwrap_or_else(|| usual_at_once.to_vec()));
        let few_pods = pods.unwrap_or(if quick { 16 } else { 60 });
        // At least one pod for each caller, also where `--pods` asks for fewer.
        let pods = at_once.iter().copied().fold(pods.unwrap_or(USUAL_PODS), usize::max);
        let contestants = contestants.unwrap_or_else(|| {
            let all = [Contestant::Floor, Contestant::Ours, Contestant::Bridge, Contestant::Upstream];
            all.into_iter().filter(|one| *one != Contestant::Upstream || upstream.is_some()).collect()
        });
        let size = Self {
            pods,
            few_pods,
            stale: 50.min(pods),
            rounds,
            slow_rounds: if quick { rounds.min(2) } else { rounds },
            at_once_with_ports: at_once.iter().copied().filter(|one| WITH_PORTS.contains(one)).collect(),
            at_once,
            ports: with(0, ports.unwrap_or_else(|| usual_ports.to_vec())),
            contestants,
        };
        ensure!(size.at_once[0] == 1, "0 calls at once measure nothing");
        ensure!(size.all_pods() <= 2000, "{} pods: the node has room for 2000", size.all_pods());
        ensure!(
            !size.contestants.contains(&Contestant::Upstream) || upstream.is_some(),
            "the contestant upstream needs the path of upstream's plugin: --upstream FILE"
        );
        Ok(size)
    }

    /// How many pods `contestant` adds and deletes in a round.
    pub(crate) fn share(&self, contestant: Contestant, at_once: usize) -> usize {
        let few = at_once < 32 || contestant == Contestant::Upstream;
        if few { self.few_pods.max(at_once).min(self.pods) } else { self.pods }
    }

    /// Whether `contestant` takes part in a round (0 is the warm-up) while `ports` other pods are attached.
    pub(crate) fn has_part(&self, contestant: Contestant, ports: usize, round: u32) -> bool {
        contestant != Contestant::Upstream || ports == 0 && round <= self.slow_rounds
    }

    /// Pods on the node: those that come and go, and those that stay.
    pub(crate) fn all_pods(&self) -> usize {
        self.pods + self.ports.last().copied().unwrap_or(0)
    }
}

/// `list` with `first` added, sorted, without duplicates.
fn with(first: usize, mut list: Vec<usize>) -> Vec<usize> {
    list.push(first);
    list.sort_unstable();
    list.dedup();
    list
}

impl Plan {
    /// The plan for `pods` on `node`.
    pub(crate) fn new(size: Size, pods: Vec<Pod>, node: &Node, upstream: Option<PathBuf>) -> Result<Self> {
        let pid = |daemon: &Daemon| daemon.pid().with_context(|| format!("{} is not running", daemon.name()));
        let daemons = vec![
            (Process::Server, pid(&node.server)?),
            (Process::OvsdbServer, pid(&node.ovsdb_server)?),
            (Process::Vswitchd, pid(&node.vswitchd)?),
            (Process::OvnController, pid(&node.ovn_controller)?),
        ];
        Ok(Self { size, pods, mtu: node.mtu, upstream, daemons })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_once_is_always_measured_and_a_size_that_measures_nothing_is_refused() {
        let wanted = Wanted { pods: Some(4), at_once: Some(vec![32, 8, 8]), ..Wanted::default() };
        let size = Size::new(wanted).unwrap();
        assert_eq!((size.at_once, size.pods), (vec![1, 8, 32], 32));
        assert_eq!((size.ports, size.at_once_with_ports), (vec![0, 100, 250], vec![1, 32]));
        let refused = |wanted: Wanted| assert!(Size::new(wanted.clone()).is_err(), "{wanted:?}");
        refused(Wanted { at_once: Some(vec![0]), ..Wanted::default() });
        refused(Wanted { pods: Some(3000), ..Wanted::default() });
        refused(Wanted { contestants: Some(vec![Contestant::Upstream]), ..Wanted::default() });
    }
}
