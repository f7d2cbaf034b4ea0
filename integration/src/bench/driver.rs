//! What measures. It runs on a thread in the node's namespaces, so that calling a plugin takes one
//! exec and nothing else.
//!
//! For each number of pods that are already attached it runs several rounds. In a round, for each
//! number of calls at once, each contestant adds all pods and deletes them again, and the driver
//! waits in between until the daemons are idle. Then come the verbs that need no pod, turn by turn.
//! The order of the contestants rotates from round to round.

use std::{
    collections::BTreeMap,
    fs, iter,
    ops::Range,
    path::Path,
    sync::{
        Barrier, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use contract::paths::PLUGIN_LOG;
use integration::{Lab, Node, Pod, process::allow_descriptors, threads};

use super::{
    Size,
    floor::{Floor, FloorPod},
    measurements::{Call, Cell, Contestant, Phase, Process, Verb},
    plugin::{self, Plugin},
    processes::{CpuTimes, Growth, cpu_of_caller, cpu_of_daemons, holdings},
};
use crate::report::{milliseconds, stage_log};

/// Calls at the same time in the phases that are not measured. It only affects how long the run
/// takes.
const HURRY: usize = 8;
/// Calls of GC with nothing to remove, per round; a GC that removes attachments is called once.
const GC_OF_NOTHING: usize = 10;
/// Attachments that it removes. The valid attachments are the pods that stay.
const STALE: usize = 50;
/// Calls at the same time that are measured with other pods, too: without any competition, and
/// under load.
const WITH_OTHERS: [usize; 2] = [1, 32];

/// The state of the whole run.
pub(crate) struct Driver<'a> {
    lab: &'a Lab,
    node: &'a Node,
    size: &'a Size,
    /// The first `size.pods` come and go; the others stay. Logical port, namespace and manifest
    /// exist.
    pods: &'a [Pod],
    floors: Vec<Floor>,
    ours: Plugin<'a>,
    /// The contestants that attach pods: by a plugin, or, without one, as the floor does.
    ways: Vec<(Contestant, Option<Plugin<'a>>)>,
    /// The pods that stay.
    there: Vec<Pod>,
    /// Sandboxes so far: every ADD has a sandbox of its own.
    sandboxes: usize,
    phases: Vec<Phase>,
}

impl<'a> Driver<'a> {
    /// To be called in the namespaces of the lab's node.
    pub(crate) fn new(
        lab: &'a Lab,
        size: &'a Size,
        pods: &'a [Pod],
        upstream: Option<&Path>,
    ) -> Result<Self> {
        // Each caller has connections, a namespace and pipes; with 100 callers the usual soft limit
        // of 1,024 is too low.
        allow_descriptors()?;
        let node = &lab.nodes[0];
        let ours = Plugin::ours(node);
        let mut ways = vec![
            (Contestant::Floor, None),
            (Contestant::Ours, Some(ours.clone())),
            (Contestant::Bridge, Some(Plugin::bridge(node)?)),
        ];
        ways.extend(
            upstream.map(|program| (Contestant::Upstream, Some(Plugin::upstream(node, program)))),
        );
        let most = size.at_once.last().copied().unwrap_or(1);
        Ok(Self {
            lab,
            node,
            size,
            pods,
            floors: (0..most).map(|_| Floor::open(node.mtu)).collect::<Result<_>>()?,
            ours,
            ways,
            there: Vec::new(),
            sandboxes: 0,
            phases: Vec::new(),
        })
    }

    pub(crate) fn run(mut self) -> Result<(Vec<Phase>, Vec<Growth>)> {
        let size = self.size;
        let mut before = BTreeMap::new();
        for &ports in &size.ports {
            self.fill(ports)?;
            for round in 0..=size.rounds {
                eprintln!(
                    "bench: {ports} pods there, round {round} of {} (0 is the warm-up)",
                    size.rounds
                );
                for &at_once in &size.at_once {
                    for (contestant, way) in self.ways.clone() {
                        let is_on_switch =
                            matches!(contestant, Contestant::Floor | Contestant::Ours);
                        if ports == 0 || is_on_switch && WITH_OTHERS.contains(&at_once) {
                            let add = Cell { verb: Verb::Add, ports, at_once, contestant };
                            self.pods(add, way.as_ref(), round)?;
                        }
                    }
                }
                if ports == 0 {
                    self.programs(round);
                }
                self.garbage(ports, round)?;
                // After the warm-up, so that caches and thread pools that are filled once are in
                // it.
                if before.is_empty() {
                    before = holdings(self.node)?;
                }
                self.ways.rotate_left(1);
            }
        }
        self.empty()?;
        self.read_stages()?;
        Ok((self.phases, Growth::since(&before, self.node)?))
    }

    /// Copies of the pods of a range, each with the next sandbox. The beginning of its ID is
    /// unique: the link is named after it, and the log shows it.
    fn fresh(&mut self, range: Range<usize>) -> Vec<Pod> {
        let mut pods = self.pods[range].to_vec();
        for pod in &mut pods {
            self.sandboxes += 1;
            pod.sandbox = format!("{:012x}{:0<52}", self.sandboxes, "be");
        }
        pods
    }

    /// Attaches further pods until `ports` stay.
    fn fill(&mut self, ports: usize) -> Result<()> {
        let new = self.fresh(self.size.pods + self.there.len()..self.size.pods + ports);
        self.hurry(&new, |pod| self.ours.add(pod).0).context("ADD for a pod that stays")?;
        self.there.extend(new);
        self.settle()
    }

    /// Runs calls that are not measured, all of which must succeed.
    fn hurry(&self, pods: &[Pod], call: impl Fn(&Pod) -> Call + Sync) -> Result<()> {
        let done = |pod: &Pod| call(pod).error.map_or(Ok(()), |error| Err(anyhow!(error)));
        threads::on_threads(HURRY, pods, done).map(drop)
    }

    /// Waits until the work of a phase is done. Otherwise it would slow down the next one:
    /// ovs-vswitchd takes 12 ms to remove a port, long after DEL has returned.
    fn settle(&self) -> Result<()> {
        // Open vSwitch first: changes that ovs-vswitchd makes to its database are new work for
        // ovn-controller.
        self.floors[0].settle()?;
        // Once: each repetition of `Central::sync` would be new work for ovn-northd, which has the
        // least priority.
        let synced = self.lab.central.nbctl(["--wait=hv", "sync"]);
        synced.map(drop).context("ovn-controller does not come to rest")
    }

    /// Detaches the pods that stay, and removes the bridge.
    fn empty(&mut self) -> Result<()> {
        self.hurry(&self.there, |pod| self.ours.del(pod, None))
            .context("DEL for a pod that stayed")?;
        self.node.shell(plugin::REMOVE_BRIDGE).context("remove the bridge and its reservations")?;
        self.settle()
    }

    /// Adds all pods and deletes them again.
    fn pods(&mut self, add: Cell, way: Option<&Plugin<'_>>, round: u32) -> Result<()> {
        let Cell { contestant, at_once, .. } = add;
        let first = self.phases.len();
        let pods = self.fresh(0..self.size.share(contestant, at_once));
        let opened = pods.iter().map(FloorPod::open).collect::<Result<Vec<_>>>()?;
        let added = self.measure(add, round, &opened, |floor, pod| match way {
            None => floor.add(pod),
            Some(plugin) => plugin.add(pod.pod),
        })?;
        let attached: Vec<_> =
            added.into_iter().filter_map(|(pod, result)| Some((pod, result?))).collect();
        // CHECK is measured one call at a time only.
        if let Some(plugin) = way
            && at_once == 1
            && contestant != Contestant::Upstream
        {
            let calls =
                attached.iter().map(|(pod, result)| plugin.check(pod.pod, result)).collect();
            self.push_serial(Cell { verb: Verb::Check, ..add }, round, calls);
        }
        self.measure(Cell { verb: Verb::Del, ..add }, round, &attached, |floor, (pod, result)| {
            match way {
                None => (floor.del(pod, result), ()),
                Some(plugin) => (plugin.del(pod.pod, Some(result)), ()),
            }
        })?;
        if self.phases[first..]
            .iter()
            .all(|phase| phase.calls.iter().all(|call| call.error.is_none()))
        {
            return Ok(());
        }
        // The leftovers of failed calls go: a port of a failed pod would disturb the next
        // contestant.
        self.hurry(&pods, |pod| self.ours.del(pod, None))
            .context("DEL for what a failed call has left")?;
        self.settle()
    }

    /// The verbs that need no pod, turn by turn with `/bin/true`.
    fn programs(&mut self, round: u32) {
        let mut programs = vec![
            (Verb::Version, Contestant::BinTrue, Plugin::bin_true(self.node)),
            (Verb::Status, Contestant::Ours, self.ours.clone()),
        ];
        let ways = self.ways.iter().cloned();
        programs
            .extend(ways.filter_map(|(contestant, way)| Some((Verb::Version, contestant, way?))));
        let mut calls: BTreeMap<_, Vec<Call>> = BTreeMap::new();
        for _ in 0..self.size.pods {
            programs.rotate_left(1);
            for (verb, contestant, plugin) in &programs {
                calls.entry((*verb, *contestant)).or_default().push(plugin.plain(*verb));
            }
        }
        for ((verb, contestant), calls) in calls {
            self.push_serial(Cell { verb, ports: 0, at_once: 1, contestant }, round, calls);
        }
    }

    /// Measures GC with nothing to remove, and GC of stale attachments.
    fn garbage(&mut self, ports: usize, round: u32) -> Result<()> {
        let stale = self.fresh(0..STALE.min(self.size.pods));
        self.hurry(&stale, |pod| self.ours.add(pod).0)
            .context("ADD for a pod that becomes stale")?;
        self.settle()?;
        let all = [&self.there[..], &stale].concat();
        let nothing = (0..GC_OF_NOTHING).map(|_| self.ours.gc(&all, &[])).collect();
        let something = vec![self.ours.gc(&self.there, &stale)];
        for (verb, calls) in [(Verb::Gc, nothing), (Verb::GcStale, something)] {
            self.push_serial(
                Cell { verb, ports, at_once: 1, contestant: Contestant::Ours },
                round,
                calls,
            );
        }
        self.settle()
    }

    /// Measures a phase until the daemons are idle: what they do after a call belongs to it.
    /// Returns what `work` makes of each item beside the call.
    fn measure<'t, T: Sync, R: Send>(
        &mut self,
        cell: Cell,
        round: u32,
        items: &'t [T],
        work: impl Fn(&Floor, &T) -> (Call, R) + Sync,
    ) -> Result<Vec<(&'t T, R)>> {
        let (before, of_caller) = (cpu_of_daemons(self.node)?, cpu_of_caller(cell.contestant)?);
        let (wall, done) = closed_loop(&self.floors[..cell.at_once], items, work)?;
        // Before the wait, which starts a program, too.
        let of_caller = cpu_of_caller(cell.contestant)? - of_caller;
        self.settle()?;
        let of_daemons = cpu_of_daemons(self.node)?.into_iter();
        let mut cpu: CpuTimes =
            of_daemons.map(|(process, now)| (process, (now - before[&process]).max(0.0))).collect();
        cpu.insert(Process::Caller, of_caller);
        let (calls, rest): (Vec<Call>, Vec<_>) =
            done.into_iter().map(|(item, (call, rest))| (call, (item, rest))).unzip();
        if let Some(error) = calls.iter().find_map(|call| call.error.as_ref()) {
            eprintln!(
                "bench: {}, {}, {} at once: {error}",
                cell.contestant, cell.verb, cell.at_once
            );
        }
        self.phases.push(Phase { cell, round, wall, calls, cpu });
        Ok(rest)
    }

    fn push_serial(&mut self, cell: Cell, round: u32, calls: Vec<Call>) {
        if !calls.is_empty() {
            let wall = calls.iter().map(|call| call.duration).sum();
            self.phases.push(Phase { cell, round, wall, calls, cpu: CpuTimes::new() });
        }
    }

    /// Adds the stage times of the plugin's ADDs, from its log.
    fn read_stages(&mut self) -> Result<()> {
        let adds = stage_log::adds(&fs::read_to_string(PLUGIN_LOG).context(PLUGIN_LOG)?);
        ensure!(!adds.is_empty(), "{PLUGIN_LOG} has no line of an ADD that is done");
        let phases = self.phases.iter_mut().filter(|phase| phase.cell.verb == Verb::Add);
        for call in phases.flat_map(|phase| &mut phase.calls) {
            // The floor has measured its own parts, and its calls have no sandbox.
            if let Some(times) =
                call.sandbox.get(..stage_log::SHOWN).and_then(|shown| adds.get(shown))
            {
                call.parts = times.parts(call.duration);
            }
        }
        Ok(())
    }
}

/// Runs `work` on every item; each worker takes the next item as soon as it has finished one.
/// Returns the wall time in milliseconds, and the items with their results.
fn closed_loop<'t, T: Sync, R: Send>(
    workers: &[Floor],
    items: &'t [T],
    work: impl Fn(&Floor, &T) -> R + Sync,
) -> Result<(f64, Vec<(&'t T, R)>)> {
    let (next, ready, began) = (AtomicUsize::new(0), Barrier::new(workers.len()), OnceLock::new());
    let done = threads::at_once(workers, |worker| {
        // The barrier releases all workers at once: the time to start the threads is outside the
        // measurement.
        ready.wait();
        began.get_or_init(Instant::now);
        let taken = iter::from_fn(|| items.get(next.fetch_add(1, Ordering::Relaxed)));
        Ok(taken.map(|item| (item, work(worker, item))).collect::<Vec<_>>())
    })?;
    Ok((
        milliseconds(began.get().context("a worker")?.elapsed()),
        done.into_iter().flatten().collect(),
    ))
}
