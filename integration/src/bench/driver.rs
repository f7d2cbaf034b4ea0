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
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use anyhow::{Context as _, Result, bail, ensure};
use contract::paths::PLUGIN_LOG;
use integration::Pod;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use podnet::netlink::Netlink;

use super::{
    floor::{self, Floor, FloorPod, delete_link, milliseconds},
    measurements::{Call, Cell, Contestant, Measurements, Phase, Verb},
    plan::Plan,
    plugin::{self, BRIDGE, Plugin},
    processes::{CpuTimes, Growth, Holding, cpu_times},
    settle::Settler,
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
    settler: Settler,
    /// Sandboxes so far: every ADD has a sandbox of its own.
    sandboxes: usize,
    phases: Vec<Phase>,
    /// Indexes in `phases` of the plugin's ADDs, with their sandboxes.
    logged: Vec<(usize, Vec<String>)>,
}

impl<'a> Driver<'a> {
    fn new(plan: &'a Plan) -> Result<Self> {
        let way = |contestant: &Contestant| {
            let plugin = match contestant {
                Contestant::Floor => None,
                Contestant::Ours => Some(Plugin::ours()),
                Contestant::Bridge => Some(Plugin::bridge()?),
                Contestant::Upstream => {
                    let program = plan.upstream.as_deref().context("no path of upstream's plugin")?;
                    Some(Plugin::upstream(program))
                }
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
            settler: Settler::open()?,
            sandboxes: 0,
            phases: Vec::new(),
            logged: Vec::new(),
        })
    }

    fn run(mut self) -> Result<Measurements> {
        let size = &self.plan.size;
        let mut before = None;
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
                if before.is_none() {
                    before = Some(Holding::of_all(&self.plan.daemons)?);
                }
            }
        }
        self.empty()?;
        self.read_stages()?;
        let processes = Growth::since(&before.unwrap_or_default(), &self.plan.daemons)?;
        Ok(Measurements { phases: self.phases, processes })
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
        self.settler.settle()
    }

    /// Attaches pods outside of any measurement.
    fn unmeasured(&mut self, pods: &[(&Pod, String)], plugin: &Arc<Plugin>) -> Result<Vec<plugin::Attached>> {
        let (_, added) =
            closed_loop(&mut self.floors[..HURRY], pods, |_, (pod, sandbox)| plugin.add(pod, sandbox));
        let attached =
            |(call, attached): (Call, Option<_>)| attached.with_context(|| call.error.unwrap_or_default());
        added.into_iter().map(attached).collect::<Result<_>>().context("ADD for a pod that is not measured")
    }

    /// Detaches the pods that [`Self::fill`] has attached, and removes the bridge.
    fn empty(&mut self) -> Result<()> {
        let there = std::mem::take(&mut self.there);
        self.of_all(&there, plugin::Attached::del).context("DEL for a pod that stayed")?;
        if Path::new("/sys/class/net").join(BRIDGE).exists() {
            delete_link(&Netlink::open()?, BRIDGE)?;
        }
        plugin::remove_reservations()?;
        self.settler.settle()
    }

    /// Adds all pods and deletes them again.
    fn pods(&mut self, add: Cell, way: &Way, round: u32) -> Result<()> {
        let Cell { contestant, at_once, .. } = add;
        let share = self.plan.size.share(contestant, at_once);
        let sandboxes: Vec<String> = (0..share).map(|_| self.sandbox()).collect();
        let pods: Vec<(&FloorPod<'_>, &String)> = self.pods.iter().zip(&sandboxes).collect();
        let before = self.cpu(contestant)?;
        let (wall, added) =
            closed_loop(&mut self.floors[..at_once], &pods, |floor, (pod, sandbox)| match way {
                None => {
                    let (call, attached) = floor.add(pod, sandbox);
                    (call, attached.map(Attached::Floor))
                }
                Some(plugin) => {
                    let (call, attached) = plugin.add(pod.pod, sandbox);
                    (call, attached.map(|attached| Attached::Plugin(Box::new(attached))))
                }
            });
        if contestant == Contestant::Ours {
            self.logged.push((self.phases.len(), sandboxes.clone()));
        }
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
        let measured =
            closed_loop(&mut self.floors[..at_once], &attached, |floor, attached| match attached {
                Attached::Floor(attached) => floor.del(attached),
                Attached::Plugin(attached) => attached.del(),
            });
        failed |= self.push_settled(Cell { verb: Verb::Del, ..add }, round, measured, &before)?;
        if failed { self.clear_up(&sandboxes) } else { Ok(()) }
    }

    /// Removes the leftovers of failed calls: a port of a failed pod would disturb the next contestant.
    fn clear_up(&mut self, sandboxes: &[String]) -> Result<()> {
        let plugin = Plugin::ours();
        let pods: Vec<(&Pod, &String)> = self.pods.iter().map(|pod| pod.pod).zip(sandboxes).collect();
        self.of_all(&pods, |(pod, sandbox)| plugin.del(pod, sandbox))
            .context("DEL for what a failed call has left")?;
        self.settler.settle()
    }

    /// Runs calls that are not measured, all of which must succeed.
    fn of_all<T: Sync>(&mut self, pods: &[T], call: impl Fn(&T) -> Call + Sync) -> Result<()> {
        let (_, calls) = closed_loop(&mut self.floors[..HURRY], pods, |_, pod| call(pod));
        calls.into_iter().find_map(|call| call.error).map_or(Ok(()), |why| bail!(why))
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
        let order: Vec<usize> = (0..programs.len()).collect();
        for turn in 0..self.plan.size.pods {
            for index in rotated(&order, turn) {
                let (verb, contestant, plugin) = &programs[index];
                let has_answer = *verb == Verb::Version && *contestant != Contestant::BinTrue;
                calls[index].push(if has_answer { plugin.version() } else { plugin.plain(*verb) });
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
        self.settler.settle()?;
        let stale: Vec<&plugin::Attached> = stale.iter().collect();
        let valid: Vec<&plugin::Attached> = self.there.iter().collect();
        let all = [&valid[..], &stale].concat();
        let nothing = (0..GC_OF_NOTHING).map(|_| plugin.gc(&all, &[])).collect();
        let something = vec![plugin.gc(&valid, &stale)];
        for (verb, calls) in [(Verb::Gc, nothing), (Verb::GcStale, something)] {
            self.push_serial(Cell { verb, ports, at_once: 1, contestant: Contestant::Ours }, round, calls);
        }
        self.settler.settle()
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
        self.settler.settle()?;
        let since = |(process, now)| (process, f64::max(now - before.get(&process).unwrap_or(&now), 0.0));
        let cpu = self.cpu(cell.contestant)?.into_iter().map(since).collect();
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
        cpu_times(&self.plan.daemons, contestant)
    }

    /// The next container ID. Its beginning is unique: the link is named after it, and the log shows it.
    fn sandbox(&mut self) -> String {
        self.sandboxes += 1;
        format!("{:012x}{:0<52}", self.sandboxes, "be")
    }

    /// Adds the stage times of the plugin's ADDs, from its log.
    fn read_stages(&mut self) -> Result<()> {
        let calls = self.logged.iter().flat_map(|(phase, _)| &self.phases[*phase].calls);
        if calls.clone().all(|call| call.error.is_some()) {
            return Ok(());
        }
        let adds = stage_log::adds(&fs::read_to_string(PLUGIN_LOG).context(PLUGIN_LOG)?);
        ensure!(!adds.is_empty(), "{PLUGIN_LOG} has no line of an ADD that is done");
        for (phase, sandboxes) in &self.logged {
            for (call, sandbox) in self.phases[*phase].calls.iter_mut().zip(sandboxes) {
                if let Some(times) = adds.get(&sandbox[..stage_log::SHOWN]) {
                    call.parts = times.parts(call.duration);
                }
            }
        }
        Ok(())
    }
}

/// Runs `work` on every item; each worker takes the next item as soon as it has finished one. Returns the
/// wall time in milliseconds and the results in the order of the items.
fn closed_loop<W: Send, T: Sync, R: Send>(
    workers: &mut [W],
    items: &[T],
    work: impl Fn(&mut W, &T) -> R + Sync,
) -> (f64, Vec<R>) {
    let (next, ready) = (&AtomicUsize::new(0), &Barrier::new(workers.len() + 1));
    let work = &work;
    thread::scope(|scope| {
        let start = |worker| {
            let worker: &mut W = worker;
            scope.spawn(move || {
                ready.wait();
                let mut done = Vec::new();
                while let index = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(item) = items.get(index)
                {
                    done.push((index, work(&mut *worker, item)));
                }
                done
            })
        };
        let threads: Vec<_> = workers.iter_mut().map(start).collect();
        // The barrier releases all workers at once: the time to start the threads is outside the measurement.
        ready.wait();
        let began = Instant::now();
        let results = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        let mut results: Vec<(usize, R)> = results.flatten().collect();
        let wall = milliseconds(began.elapsed());
        results.sort_by_key(|(index, _)| *index);
        (wall, results.into_iter().map(|(_, result)| result).collect())
    })
}

/// The same list, starting at another item, so that each contestant comes first in some round.
fn rotated<T: Clone>(list: &[T], turn: usize) -> Vec<T> {
    let (before, after) = list.split_at(turn % list.len().max(1));
    [after, before].concat()
}
