//! The measuring process. It runs on the node, in the node's namespaces, so that calling a plugin takes one
//! exec and nothing else.
//!
//! For each number of pods that are already attached it runs several rounds. In a round, for each number of
//! calls at once, each contestant adds all pods and deletes them again, and the driver waits in between until
//! the daemons are idle. Then come the verbs that need no pod, turn by turn. The order of the contestants
//! rotates from round to round.

use std::{fs, io, sync::Arc};

use anyhow::{Context as _, Result, bail, ensure};
use contract::paths::PLUGIN_LOG;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::{
    bridge,
    closed_loop::{closed_loop, rotated},
    contestants::{Attached, Way},
    cpu::CpuTimes,
    floor::{Floor, FloorPod},
    measurements::{Call, Cell, Contestant, Measurements, Phase, Verb},
    netlink::Netlink,
    plan::{Plan, PlannedPod},
    plugin::{self, Plugin},
    processes::{Growth, Holding},
    settle::Settler,
    stage_log,
};

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

/// The state of the whole run.
struct Driver<'a> {
    plan: &'a Plan,
    /// The pods that come and go.
    pods: Vec<FloorPod<'a>>,
    /// The attachments of the pods that stay.
    there: Vec<(&'a PlannedPod, plugin::Attached)>,
    /// Number of pods that stay.
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
        let size = &plan.size;
        let most = size.at_once.iter().copied().max().unwrap_or(1).max(HURRY);
        Ok(Self {
            plan,
            pods: plan.pods.iter().take(size.pods).map(FloorPod::open).collect::<Result<_>>()?,
            there: Vec::new(),
            filled: 0,
            floors: (0..most).map(|_| Floor::open(plan.mtu)).collect::<Result<_>>()?,
            ways: size
                .contestants
                .iter()
                .map(|contestant| Ok((*contestant, Way::of(*contestant, plan.upstream.as_deref())?)))
                .collect::<Result<_>>()?,
            settler: Settler::open()?,
            sandboxes: 0,
            phases: Vec::new(),
            logged: Vec::new(),
        })
    }

    fn run(mut self) -> Result<Measurements> {
        let size = &self.plan.size;
        let mut before = None;
        for ports in &size.ports {
            self.fill(*ports)?;
            let at_once = if *ports == 0 { &size.at_once } else { &size.at_once_with_ports };
            for round in 0..=size.rounds {
                let name = if round == 0 {
                    "warm-up".to_owned()
                } else {
                    format!("round {round} of {}", size.rounds)
                };
                eprintln!("bench: {ports} pods there, {name}");
                for at_once in at_once {
                    for (contestant, way) in rotated(&self.ways, round) {
                        if !size.has_part(contestant, *ports, round) {
                            continue;
                        }
                        self.pods(
                            Cell { verb: Verb::Add, ports: *ports, at_once: *at_once, contestant },
                            &way,
                            round,
                        )?;
                    }
                }
                if *ports == 0 {
                    self.programs(round)?;
                }
                if size.contestants.contains(&Contestant::Ours) {
                    self.garbage(*ports, round)?;
                }
                // After the warm-up round, so that caches and thread pools that are filled once count as the
                // baseline.
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

    /// Attaches further pods until `ports` stay, once by each plugin that attaches pods.
    fn fill(&mut self, ports: usize) -> Result<()> {
        let pods: Vec<&PlannedPod> = self.plan.pods.iter().skip(self.pods.len()).take(ports).collect();
        let missing: Vec<(&PlannedPod, String)> =
            pods.into_iter().skip(self.filled).map(|pod| (pod, self.sandbox())).collect();
        for (contestant, plugin) in
            self.ways.iter().filter_map(|(contestant, way)| Some((contestant, way.staying(*contestant)?)))
        {
            let (_, added) = closed_loop(&mut self.floors[..HURRY], &missing, |_, (pod, sandbox)| {
                plugin.add(pod, sandbox)
            });
            for ((pod, _), (call, attached)) in missing.iter().zip(added) {
                let why = call.error.unwrap_or_default();
                self.there.push((
                    pod,
                    attached.with_context(|| format!("{contestant}, ADD for a pod that stays: {why}"))?,
                ));
            }
        }
        self.filled = ports;
        self.settler.settle()
    }

    /// Detaches the pods that [`Self::fill`] has attached, and removes the bridge.
    fn empty(&mut self) -> Result<()> {
        let there = std::mem::take(&mut self.there);
        self.of_all(&there, |(pod, attached)| attached.del(pod)).context("DEL for a pod that stayed")?;
        bridge::remove(&Netlink::open()?)?;
        self.settler.settle()
    }

    /// Adds all pods and deletes them again.
    fn pods(&mut self, add: Cell, way: &Way, round: u32) -> Result<()> {
        let Cell { contestant, at_once, .. } = add;
        let sandboxes: Vec<String> =
            (0..self.plan.size.share(contestant, at_once)).map(|_| self.sandbox()).collect();
        let cell = |verb| Cell { verb, ..add };

        let pods: Vec<(&FloorPod<'_>, &String)> = self.pods.iter().zip(&sandboxes).collect();
        let before = self.cpu(contestant)?;
        let (wall, added) = closed_loop(&mut self.floors[..at_once], &pods, |floor, (pod, sandbox)| {
            way.add(floor, pod, sandbox)
        });
        // Settle before the CPU times are read: what the daemons do after an ADD belongs to it.
        self.settler.settle()?;
        let (calls, attached): (Vec<Call>, Vec<Option<Attached>>) = added.into_iter().unzip();
        let phase = Phase { cell: add, round, wall, calls, cpu: self.cpu(contestant)?.since(&before) };
        if contestant == Contestant::Ours {
            self.logged.push((self.phases.len(), sandboxes.clone()));
        }
        let mut failed = phase.calls.iter().any(|call| call.error.is_some());
        self.push(phase);

        let attached: Vec<(&PlannedPod, Attached)> =
            self.pods.iter().zip(attached).filter_map(|(pod, attached)| Some((pod.pod, attached?))).collect();
        // CHECK is measured one call at a time only.
        if at_once == 1 && contestant != Contestant::Upstream {
            let checks: Vec<_> = attached.iter().filter_map(|(pod, attached)| attached.check(pod)).collect();
            if !checks.is_empty() {
                self.push_serial(cell(Verb::Check), round, checks);
            }
        }

        let before = self.cpu(contestant)?;
        let (wall, calls) = closed_loop(&mut self.floors[..at_once], &attached, |floor, (pod, attached)| {
            attached.del(floor, pod)
        });
        self.settler.settle()?;
        let cpu = self.cpu(contestant)?.since(&before);
        failed |= calls.iter().any(|call| call.error.is_some());
        self.push(Phase { cell: cell(Verb::Del), round, wall, calls, cpu });
        if failed { self.clear_up(&sandboxes) } else { Ok(()) }
    }

    /// Removes the leftovers of failed calls: a port of a failed pod would disturb the next contestant.
    fn clear_up(&mut self, sandboxes: &[String]) -> Result<()> {
        let plugin = Plugin::ours();
        let pods: Vec<(&PlannedPod, &String)> = self.pods.iter().map(|pod| pod.pod).zip(sandboxes).collect();
        self.of_all(&pods, |(pod, sandbox)| plugin.del(pod, sandbox))
            .context("DEL for what a failed call has left")?;
        self.settler.settle()
    }

    /// Runs calls that are not measured, all of which must succeed.
    fn of_all<T: Sync>(&mut self, pods: &[T], call: impl Fn(&T) -> Call + Sync) -> Result<()> {
        let (_, calls) = closed_loop(&mut self.floors[..HURRY], pods, |_, pod| call(pod));
        match calls.into_iter().find_map(|call| call.error) {
            Some(why) => bail!(why),
            None => Ok(()),
        }
    }

    /// The verbs that need no pod, turn by turn with `/bin/true`.
    fn programs(&mut self, round: u32) -> Result<()> {
        let ours = Arc::new(Plugin::ours());
        let mut programs = vec![
            (Verb::Version, Contestant::BinTrue, Arc::clone(&ours)),
            (Verb::Status, Contestant::Ours, ours),
        ];
        programs.extend(self.ways.iter().filter_map(|(contestant, way)| match way {
            Way::Floor => None,
            Way::Plugin(plugin) => Some((Verb::Version, *contestant, Arc::clone(plugin))),
        }));
        let mut calls = vec![Vec::new(); programs.len()];
        let order: Vec<usize> = (0..programs.len()).collect();
        for turn in 0..self.plan.size.pods {
            for index in rotated(&order, turn) {
                let (verb, contestant, plugin) = &programs[index];
                calls[index].push(match (verb, contestant) {
                    (_, Contestant::BinTrue) => plugin.bin_true(),
                    (Verb::Status, _) => plugin.status(),
                    _ => plugin.version(),
                });
            }
        }
        for ((verb, contestant, _), calls) in programs.into_iter().zip(calls) {
            self.push_serial(Cell { verb, ports: 0, at_once: 1, contestant }, round, calls);
        }
        Ok(())
    }

    /// Measures GC with nothing to remove, and GC of stale attachments.
    fn garbage(&mut self, ports: usize, round: u32) -> Result<()> {
        let plugin = Arc::new(Plugin::ours());
        let pods: Vec<(&PlannedPod, String)> =
            self.plan.pods.iter().take(self.plan.size.stale).map(|pod| (pod, self.sandbox())).collect();
        let (_, added) =
            closed_loop(&mut self.floors[..HURRY], &pods, |_, (pod, sandbox)| plugin.add(pod, sandbox));
        self.settler.settle()?;
        let stale: Vec<plugin::Attached> = added
            .into_iter()
            .map(|(call, attached)| {
                attached.with_context(|| {
                    format!("ADD for a pod that is to be stale: {}", call.error.unwrap_or_default())
                })
            })
            .collect::<Result<_>>()?;
        let stale: Vec<&plugin::Attached> = stale.iter().collect();
        let valid: Vec<&plugin::Attached> = self.there.iter().map(|(_, attached)| attached).collect();
        let all = [&valid[..], &stale].concat();
        let nothing = (0..GC_OF_NOTHING).map(|_| plugin.gc(&all, &[])).collect();
        let something = vec![plugin.gc(&valid, &stale)];
        for (verb, calls) in [(Verb::Gc, nothing), (Verb::GcStale, something)] {
            self.push_serial(Cell { verb, ports, at_once: 1, contestant: Contestant::Ours }, round, calls);
        }
        self.settler.settle()
    }

    fn push_serial(&mut self, cell: Cell, round: u32, calls: Vec<Call>) {
        let wall = calls.iter().map(|call| call.duration).sum();
        self.push(Phase { cell, round, wall, calls, cpu: [].into() });
    }

    fn push(&mut self, phase: Phase) {
        if let Some(error) = phase.calls.iter().find_map(|call| call.error.as_ref()) {
            let Cell { verb, at_once, contestant, .. } = phase.cell;
            eprintln!("bench: {contestant}, {verb}, {at_once} at once: {error}");
        }
        self.phases.push(phase);
    }

    fn cpu(&self, contestant: Contestant) -> Result<CpuTimes> {
        CpuTimes::now(&self.plan.daemons, contestant)
    }

    /// The next container ID. Its beginning is unique: the link is named after it, and the log shows it.
    fn sandbox(&mut self) -> String {
        self.sandboxes += 1;
        sandbox(self.sandboxes)
    }

    /// Adds the stage times of the plugin's ADDs, from its log.
    fn read_stages(&mut self) -> Result<()> {
        if self
            .logged
            .iter()
            .flat_map(|(phase, _)| &self.phases[*phase].calls)
            .all(|call| call.error.is_some())
        {
            return Ok(());
        }
        let log = fs::read_to_string(PLUGIN_LOG).with_context(|| format!("read {PLUGIN_LOG}"))?;
        let adds = stage_log::adds(&log);
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

fn sandbox(number: usize) -> String {
    format!("{number:012x}{:0<52}", "be")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_has_a_length_and_a_beginning_of_its_own() {
        assert_eq!(sandbox(7).len(), 64);
        assert_ne!(sandbox(7)[..stage_log::SHOWN], sandbox(8)[..stage_log::SHOWN]);
    }
}
