//! The plan of a run: what is measured, on which pods. The command makes it, and the driver on the node reads
//! it.

use std::{net::IpAddr, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use integration::{Daemon, Node};
use ipnet::IpNet;
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
    /// Pods of a slow phase, i.e. fewer than 32 calls at once or a slow contestant; at least the number of
    /// calls at once.
    pub(crate) few_pods: usize,
    /// Stale attachments that one GC removes. The valid attachments are the pods that stay.
    pub(crate) stale: usize,
    /// Rounds that count, without the warm-up.
    pub(crate) rounds: u32,
    /// Rounds that slow contestants take part in: the first of `rounds`.
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
    /// The first `size.pods` come and go; the others stay.
    pub(crate) pods: Vec<PlannedPod>,
    /// MTU of the pods.
    pub(crate) mtu: u32,
    /// Path of upstream's plugin.
    pub(crate) upstream: Option<PathBuf>,
    /// The daemons whose CPU time counts, with their process IDs.
    pub(crate) daemons: Vec<(Process, u32)>,
}

/// A pod whose logical port, namespace and manifest exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlannedPod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) iface_id: String,
    pub(crate) mac: String,
    pub(crate) address: IpNet,
    pub(crate) gateway: IpAddr,
    /// Path of the network namespace, as seen from the node.
    pub(crate) netns: PathBuf,
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
    #[arg(long, value_name = "N")]
    pub(crate) rounds: Option<u32>,
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
        ensure!(at_once.first() == Some(&1), "0 calls at once measure nothing");
        let most = at_once.last().copied().unwrap_or(1);
        let few_pods = pods.unwrap_or(if quick { 16 } else { 60 });
        // At least one pod for each caller, also where `--pods` asks for fewer.
        let pods = pods.unwrap_or(USUAL_PODS).max(most);
        let ports = with(0, ports.unwrap_or_else(|| usual_ports.to_vec()));
        let all = pods + ports.last().copied().unwrap_or(0);
        ensure!((1..=2000).contains(&all), "{all} pods: the node has room for 2000");
        let rounds = rounds.unwrap_or(5);
        let slow_rounds = if quick { rounds.min(2) } else { rounds };
        ensure!(rounds > 0, "0 rounds measure nothing");
        let at_once_with_ports =
            at_once.iter().copied().filter(|at_once| WITH_PORTS.contains(at_once)).collect();
        let contestants = contestants.unwrap_or_else(|| {
            let all = [Contestant::Floor, Contestant::Ours, Contestant::Bridge, Contestant::Upstream];
            all.into_iter().filter(|one| *one != Contestant::Upstream || upstream.is_some()).collect()
        });
        ensure!(
            !contestants.contains(&Contestant::Upstream) || upstream.is_some(),
            "the contestant upstream needs the path of upstream's plugin: --upstream FILE"
        );
        Ok(Self {
            pods,
            few_pods,
            stale: 50.min(pods),
            rounds,
            slow_rounds,
            at_once,
            ports,
            at_once_with_ports,
            contestants,
        })
    }

    /// How many pods `contestant` adds and deletes in a round.
    pub(crate) fn share(&self, contestant: Contestant, at_once: usize) -> usize {
        if at_once < 32 || contestant.is_slow() {
            self.few_pods.max(at_once).min(self.pods)
        } else {
            self.pods
        }
    }

    /// Whether `contestant` takes part in a round (0 is the warm-up) while `ports` other pods are attached.
    pub(crate) fn has_part(&self, contestant: Contestant, ports: usize, round: u32) -> bool {
        !contestant.is_slow() || ports == 0 && round <= self.slow_rounds
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
    pub(crate) fn new(
        size: Size,
        pods: &[integration::Pod],
        node: &Node,
        upstream: Option<PathBuf>,
    ) -> Result<Self> {
        let Node { ovsdb_server, vswitchd, ovn_controller, server, mtu, .. } = node;
        let pid = |daemon: &Daemon| daemon.pid().with_context(|| format!("{} is not running", daemon.name()));
        let daemons = vec![
            (Process::Server, pid(server)?),
            (Process::OvsdbServer, pid(ovsdb_server)?),
            (Process::Vswitchd, pid(vswitchd)?),
            (Process::OvnController, pid(ovn_controller)?),
        ];
        Ok(Self { size, pods: pods.iter().map(PlannedPod::of).collect(), mtu: *mtu, upstream, daemons })
    }
}

impl PlannedPod {
    fn of(pod: &integration::Pod) -> Self {
        Self {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            iface_id: pod.port(),
            mac: pod.mac.clone(),
            address: pod.addresses[0],
            gateway: pod.gateways[0],
            netns: pod.netns.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_once_is_always_measured_and_the_pods_suffice_for_the_most() {
        let size =
            Size::new(Wanted { pods: Some(4), at_once: Some(vec![32, 8, 8]), ..Wanted::default() }).unwrap();
        assert_eq!((size.at_once, size.pods), (vec![1, 8, 32], 32));
        assert_eq!((size.ports, size.at_once_with_ports), (vec![0, 100, 250], vec![1, 32]));
    }

    #[test]
    fn the_slow_ones_take_part_in_fewer_rounds_where_it_has_to_be_quick() {
        let (quick, usual) = (true, false);
        for (form, rounds) in [(quick, 2), (usual, 5)] {
            let size = Size::new(Wanted { quick: form, ..Wanted::default() }).unwrap();
            let parts =
                |contestant| (0..=size.rounds).filter(|round| size.has_part(contestant, 0, *round)).count();
            assert_eq!((parts(Contestant::Upstream), parts(Contestant::Ours)), (1 + rounds, 6));
            assert!(!size.has_part(Contestant::Upstream, 100, 1) && size.has_part(Contestant::Ours, 100, 1));
        }
    }

    #[test]
    fn a_size_that_measures_nothing_is_refused() {
        let refused = |wanted: Wanted| assert!(Size::new(wanted.clone()).is_err(), "{wanted:?}");
        refused(Wanted { rounds: Some(0), ..Wanted::default() });
        refused(Wanted { at_once: Some(vec![0]), ..Wanted::default() });
        refused(Wanted { pods: Some(3000), ..Wanted::default() });
        refused(Wanted { ports: Some(vec![1990]), ..Wanted::default() });
    }
}
