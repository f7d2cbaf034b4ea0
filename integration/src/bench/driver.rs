//! The measuring process. It runs on the node, in the node's namespaces, so that calling a plugin takes one
//! exec and nothing else.
//!
//! For each number of pods that are already attached it runs several rounds. In a round, for each number of
//! calls at once, each contestant adds all pods and deletes them again, and the driver waits in between until
//! the daemons are idle. Then come the verbs that need no pod, turn by turn. The order of the contestants
//! rotates from round to round.

use std::{
    fs, io,
    path::Path,
    process::Command,
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use anyhow::{Context as _, Result, bail, ensure};
use contract::paths::PLUGIN_LOG;
use integration::{Pod, central::NORTHBOUND, command};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use podnet::netlink::Netlink;

use super::{
    floor::{self, Floor, FloorPod, delete_link},
    measurements::{Call, Cell, Contestant, Measurements, Phase, Process, Verb, milliseconds},
    plan::Plan,
    plugin::{self, BRIDGE, Plugin},
    processes::{CpuTimes, Growth, cpu_of_caller, cpu_of_daemons},
};
use crate::report::stage_log;

/// Calls at the same time in the phases that are not measured. It only affects how long the run takes.
const HURRY: usize = 8;
/// Calls of GC with nothing to remove, per round; a GC that removes attachments is called once.
const GC_OF_NOTHING: usize = 10;

/// Reads the plan from standard input and returns the measurements.
pub(crate) fn drive() -> Result<Measurements> {
    let plan: Plan = serde_json::from_reader(io::stdin().lock()).context("the plan")?;
    // Each caller has connections, a namespace and pipes; with 100 callers the usual soft limit of 1,024 is
    // too low.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).context("allow this process more descriptors")?;
    Driver::new(&plan)?.run()
}

/// How a contestant attaches pods: by a plugin, or, without one, as the floor does.
type Way = Option<Arc<Plugin>>;

/// A pod between its ADD and its DEL.
enum Attached {
    Floor(floor::Attached),
    Plugin(Box<plugin::Attached>),
}

/// The state of the whole run.
struct Driver<'a> {
    plan: &'a Plan,
    /// The pods that come and go.
    pods: Vec<FloorPod<'a>>,
    /// The attachments of the pods that stay, and their number.
    there: Vec<plugin::Attached>,
    filled: usize,
    floors: Vec<Floor>,
    ways: Vec<(Contestant, Way)>,
    /// Sandboxes so far: every ADD has a sandbox of its own.
    sandboxes: usize,
    phases: Vec<Phase>,
}

impl<'a> Driver<'a> {
    fn new(plan: &'a Plan) -> Result<Self> {
        let way = |contestant: &Contestant| {
            let plugin = match contestant {
                Contestant::Floor => None,
                Contestant::Ours => Some(Plugin::ours()),
                Contestant::Bridge => Some(Plugin::bridge()?),
                Contestant::Upstream => plan.upstream.as_deref().map(Plugin::upstream),
                Contestant::BinTrue => bail!("{contestant} attaches no pods"),
            };
            Ok((*contestant, plugin.map(Arc::new)))
        };
        let most = plan.size.at_once.iter().copied().fold(HURRY, usize::max);
        Ok(Self {
            plan,
            pods: plan.pods.iter().take(plan.size.pods).map(FloorPod::open).collect::<Result<_>>()?,
            there: Vec::new(),
            filled: 0,
            floors: (0..most).map(|_| Floor::open(plan.mtu)).collect::<Result<_>>()?,
            ways: plan.size.contestants.iter().map(way).collect::<Result<_>>()?,
            sandboxes: 0,
            phases: Vec::new(),
        })
    }

    fn run(mut self) -> Result<Measurements> {
        let size = &self.plan.size;
        let mut begun = Vec::new();
        for &ports in &size.ports {
            self.fill(ports)?;
            for round in 0..=size.rounds {
                eprintln!("bench: {ports} pods there, round {round} of {} (0 is the warm-up)", size.rounds);
                for &at_once in if ports == 0 { &size.at_once } else { &size.at_once_with_ports } {
                    for (contestant, way) in rotated(&self.ways, round as usize) {
                        if size.has_part(contestant, ports, round) {
                            self.pods(Cell { verb: Verb::Add, ports, at_once, contestant }, &way, round)?;
                        }
                    }
                }
                if ports == 0 {
                    self.programs(round);
                }
                if size.contestants.contains(&Contestant::Ours) {
                    self.garbage(ports, round)?;
                }
                // After the warm-up, so that caches and thread pools that are filled once are in it.
                if begun.is_empty() {
                    begun = Growth::begin(&self.plan.daemons)?;
                }
            }
        }
        self.empty()?;
        self.read_stages()?;
        Ok(Measurements { phases: self.phases, processes: Growth::end(&begun, &self.plan.daemons)? })
    }

    /// Attaches further pods until `ports` stay, once by each network, so that each finds a node with other
    /// pods: this project's plugin, and `bridge` with an interface of its own.
    fn fill(&mut self, ports: usize) -> Result<()> {
        let pods = self.plan.pods.iter().skip(self.pods.len());
        let missing: Vec<&Pod> = pods.take(ports).skip(self.filled).collect();
        let missing: Vec<(&Pod, String)> = missing.into_iter().map(|pod| (pod, self.sandbox())).collect();
        for (contestant, way) in self.ways.clone() {
            let plugin = match (contestant, way) {
                (Contestant::Ours, Some(plugin)) => plugin,
                (Contestant::Bridge, Some(plugin)) => Arc::new(plugin.beside_others()),
                _ => continue,
            };
            let added = self.unmeasured(&missing, &plugin).with_context(|| contestant.to_string())?;
            self.there.extend(added);
        }
        self.filled = ports;
        self.settle()
    }

    /// Attaches pods outside of any measurement.
    fn unmeasured(&self, pods: &[(&Pod, String)], plugin: &Arc<Plugin>) -> Result<Vec<plugin::Attached>> {
        let attached = self.hurry(pods, |(pod, sandbox)| plugin.add(pod, sandbox));
        Ok(attached.context("ADD for a pod that is not measured")?.into_iter().flatten().collect())
    }

    /// Runs calls that are not measured, all of which must succeed.
    fn hurry<T: Sync, R: Send>(&self, items: &[T], call: impl Fn(&T) -> (Call, R) + Sync) -> Result<Vec<R>> {
        let (_, done) = closed_loop(&self.floors[..HURRY], items, |_, item| call(item));
        done.into_iter().map(|(call, result)| call.error.map_or(Ok(result), |why| bail!(why))).collect()
    }

    /// Waits until the work of a phase is done. Otherwise it would slow down the next one: ovs-vswitchd takes
    /// 12 ms to remove a port, long after DEL has returned.
    fn settle(&self) -> Result<()> {
        // Open vSwitch first: changes that ovs-vswitchd makes to its database are new work for ovn-controller.
        self.floors[0].settle()?;
        let sync = ["--timeout=30", "--db", NORTHBOUND, "--wait=hv", "sync"];
        command::output(Command::new("ovn-nbctl").args(sync))
            .map(drop)
            .context("ovn-controller does not come to rest")
    }

    /// Detaches the pods that [`Self::fill`] has attached, and removes the bridge.
    fn empty(&mut self) -> Result<()> {
        let there = std::mem::take(&mut self.there);
        self.hurry(&there, |attached| (attached.del(), ())).context("DEL for a pod that stayed")?;
        if Path::new("/sys/class/net").join(BRIDGE).exists() {
            delete_link(&Netlink::open()?, BRIDGE)?;
        }
        plugin::remove_reservations()?;
        self.settle()
    }

    /// Adds all pods and deletes them again.
    fn pods(&mut self, add: Cell, way: &Way, round: u32) -> Result<()> {
        let Cell { contestant, at_once, .. } = add;
        let share = self.plan.size.share(contestant, at_once);
        let sandboxes: Vec<String> = (0..share).map(|_| self.sandbox()).collect();
        let pods: Vec<(&FloorPod<'_>, &String)> = self.pods.iter().zip(&sandboxes).collect();
        let before = self.cpu(contestant)?;
        let (wall, added) = closed_loop(&self.floors[..at_once], &pods, |floor, (pod, sandbox)| match way {
            None => {
                let (call, attached) = floor.add(pod, sandbox);
                (call, attached.map(Attached::Floor))
            }
            Some(plugin) => {
                let (call, attached) = plugin.add(pod.pod, sandbox);
                (call, attached.map(|attached| Attached::Plugin(Box::new(attached))))
            }
        });
        let (calls, attached): (Vec<Call>, Vec<Option<Attached>>) = added.into_iter().unzip();
        let attached: Vec<Attached> = attached.into_iter().flatten().collect();
        let mut failed = self.push_settled(add, round, (wall, calls), &before)?;

        // CHECK is measured one call at a time only.
        if at_once == 1 && contestant != Contestant::Upstream {
            let plugins = attached.iter().filter_map(|attached| match attached {
                Attached::Floor(_) => None,
                Attached::Plugin(attached) => Some(attached.check()),
            });
            self.push_serial(Cell { verb: Verb::Check, ..add }, round, plugins.collect());
        }

        let before = self.cpu(contestant)?;
        let measured = closed_loop(&self.floors[..at_once], &attached, |floor, attached| match attached {
            Attached::Floor(attached) => floor.del(attached),
            Attached::Plugin(attached) => attached.del(),
        });
        failed |= self.push_settled(Cell { verb: Verb::Del, ..add }, round, measured, &before)?;
        if !failed {
            return Ok(());
        }
        // The leftovers of failed calls go: a port of a failed pod would disturb the next contestant.
        let (plugin, pods) = (Plugin::ours(), self.pods.iter().map(|pod| pod.pod).zip(&sandboxes));
        self.hurry(&pods.collect::<Vec<_>>(), |(pod, sandbox)| (plugin.del(pod, sandbox), ()))
            .context("DEL for what a failed call has left")?;
        self.settle()
    }

    /// The verbs that need no pod, turn by turn with `/bin/true`.
    fn programs(&mut self, round: u32) {
        let bin_true = (Verb::Version, Contestant::BinTrue, Arc::new(Plugin::bin_true()));
        let mut programs = vec![bin_true, (Verb::Status, Contestant::Ours, Arc::new(Plugin::ours()))];
        programs.extend(
            self.ways.iter().filter_map(|(contestant, way)| {
                Some((Verb::Version, *contestant, Arc::clone(way.as_ref()?)))
            }),
        );
        let mut calls = vec![Vec::new(); programs.len()];
        for turn in 0..self.plan.size.pods {
            for index in (0..programs.len()).map(|index| (index + turn) % programs.len()) {
                let (verb, _, plugin) = &programs[index];
                calls[index].push(plugin.plain(*verb));
            }
        }
        for ((verb, contestant, _), calls) in programs.into_iter().zip(calls) {
            self.push_serial(Cell { verb, ports: 0, at_once: 1, contestant }, round, calls);
        }
    }

    /// Measures GC with nothing to remove, and GC of stale attachments.
    fn garbage(&mut self, ports: usize, round: u32) -> Result<()> {
        let plugin = Arc::new(Plugin::ours());
        let pods = self.plan.pods.iter().take(self.plan.size.stale);
        let pods: Vec<(&Pod, String)> = pods.map(|pod| (pod, self.sandbox())).collect();
        let stale = self.unmeasured(&pods, &plugin)?;
        self.settle()?;
        let stale: Vec<&plugin::Attached> = stale.iter().collect();
        let valid: Vec<&plugin::Attached> = self.there.iter().collect();
        let all = [&valid[..], &stale].concat();
        let nothing = (0..GC_OF_NOTHING).map(|_| plugin.gc(&all, &[])).collect();
        let something = vec![plugin.gc(&valid, &stale)];
        for (verb, calls) in [(Verb::Gc, nothing), (Verb::GcStale, something)] {
            self.push_serial(Cell { verb, ports, at_once: 1, contestant: Contestant::Ours }, round, calls);
        }
        self.settle()
    }

    /// Adds a phase once the daemons are idle: what they do after a call belongs to it. Returns whether a
    /// call has failed.
    fn push_settled(
        &mut self,
        cell: Cell,
        round: u32,
        (wall, calls): (f64, Vec<Call>),
        before: &CpuTimes,
    ) -> Result<bool> {
        // Before the wait, which starts a program, too.
        let caller = cpu_of_caller(cell.contestant)?;
        self.settle()?;
        let now = cpu_of_daemons(&self.plan.daemons)?.into_iter().chain([(Process::Caller, caller)]);
        let since = |(process, now)| (process, f64::max(now - before.get(&process).unwrap_or(&now), 0.0));
        let cpu = now.map(since).collect();
        let error = calls.iter().find_map(|call| call.error.as_ref());
        if let Some(error) = error {
            eprintln!("bench: {}, {}, {} at once: {error}", cell.contestant, cell.verb, cell.at_once);
        }
        let has_failed = error.is_some();
        self.phases.push(Phase { cell, round, wall, calls, cpu });
        Ok(has_failed)
    }

    fn push_serial(&mut self, cell: Cell, round: u32, calls: Vec<Call>) {
        if !calls.is_empty() {
            let wall = calls.iter().map(|call| call.duration).sum();
            self.phases.push(Phase { cell, round, wall, calls, cpu: CpuTimes::new() });
        }
    }

    fn cpu(&self, contestant: Contestant) -> Result<CpuTimes> {
        let caller = (Process::Caller, cpu_of_caller(contestant)?);
        Ok(cpu_of_daemons(&self.plan.daemons)?.into_iter().chain([caller]).collect())
    }

    /// The next container ID. Its beginning is unique: the link is named after it, and the log shows it.
    fn sandbox(&mut self) -> String {
        self.sandboxes += 1;
        format!("{:012x}{:0<52}", self.sandboxes, "be")
    }

    /// Adds the stage times of the plugin's ADDs, from its log.
    fn read_stages(&mut self) -> Result<()> {
        let is_ours = |cell: Cell| (cell.verb, cell.contestant) == (Verb::Add, Contestant::Ours);
        let phases = self.phases.iter_mut().filter(|phase| is_ours(phase.cell));
        let mut calls =
            phases.flat_map(|phase| &mut phase.calls).filter(|call| call.error.is_none()).peekable();
        if calls.peek().is_none() {
            return Ok(());
        }
        let adds = stage_log::adds(&fs::read_to_string(PLUGIN_LOG).context(PLUGIN_LOG)?);
        ensure!(!adds.is_empty(), "{PLUGIN_LOG} has no line of an ADD that is done");
        for call in calls {
            if let Some(times) = adds.get(&call.sandbox[..stage_log::SHOWN]) {
                call.parts = times.parts(call.duration);
            }
        }
        Ok(())
    }
}

/// Runs `work` on every item; each worker takes the next item as soon as it has finished one. Returns the
/// wall time in milliseconds and the results in the order of the items.
fn closed_loop<T: Sync, R: Send>(
    workers: &[Floor],
    items: &[T],
    work: impl Fn(&Floor, &T) -> R + Sync,
) -> (f64, Vec<R>) {
    let (next, ready, done) = (AtomicUsize::new(0), Barrier::new(workers.len() + 1), Mutex::new(Vec::new()));
    let run = |worker| {
        ready.wait();
        while let index = next.fetch_add(1, Ordering::Relaxed)
            && let Some(item) = items.get(index)
        {
            let result = work(worker, item);
            done.lock().expect("no worker panics here").push((index, result));
        }
    };
    let run = &run;
    let began = thread::scope(|scope| {
        workers.iter().for_each(|worker| drop(scope.spawn(move || run(worker))));
        // The barrier releases all workers at once: the time to start the threads is outside the measurement.
        ready.wait();
        Instant::now()
    });
    let wall = milliseconds(began.elapsed());
    let mut done = done.into_inner().expect("no worker panics here");
    done.sort_by_key(|(index, _)| *index);
    (wall, done.into_iter().map(|(_, result)| result).collect())
}

/// The same list, starting at another item, so that each contestant comes first in some round.
fn rotated<T: Clone>(list: &[T], turn: usize) -> Vec<T> {
    let (before, after) = list.split_at(turn % list.len().max(1));
    [after, before].concat()
}
