//! The measuring process. It runs on the node, in the node's namespaces, so that calling the plugin is an exec and nothing else.
//!
//! A round: for each number of calls at once, each contestant adds all pods and deletes them again, and everything settles in between;
//! then the verbs that need no pod, turn by turn. The order of the contestants rotates from round to round.

use std::{
    fs, io,
    sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
use contract::paths::PLUGIN_LOG;

use super::{
    cpu::CpuTimes,
    floor::{self, Floor, FloorPod, milliseconds},
    measurements::{Call, Cell, Contestant, Measurements, Phase, Verb},
    plan::{Plan, PlannedPod},
    plugin,
    settle::Settler,
    stage_log,
};

/// Reads the plan on standard input and returns what was measured.
pub(crate) fn drive() -> Result<Measurements> {
    let plan: Plan = serde_json::from_reader(io::stdin().lock()).context("the plan")?;
    Driver::new(&plan)?.run()
}

/// Everything that lasts for the whole run.
struct Driver<'a> {
    plan: &'a Plan,
    pods: Vec<FloorPod<'a>>,
    floors: Vec<Floor>,
    settler: Settler,
    /// Sandboxes so far: every ADD has one of its own.
    sandboxes: usize,
    phases: Vec<Phase>,
    /// Where in `phases` the ADDs of the plugin are, with their sandboxes.
    logged: Vec<(usize, Vec<String>)>,
}

/// A pod of a contestant between its ADD and its DEL.
enum Attached {
    Floor(floor::Attached),
    Ours(plugin::Attached),
}

/// A call that needs no pod.
struct Program {
    verb: Verb,
    contestant: Contestant,
    call: fn() -> Call,
    calls: Vec<Call>,
}

impl<'a> Driver<'a> {
    fn new(plan: &'a Plan) -> Result<Self> {
        let most = plan.size.at_once.iter().copied().max().unwrap_or(1);
        Ok(Self {
            plan,
            pods: plan.pods.iter().map(FloorPod::open).collect::<Result<_>>()?,
            floors: (0..most).map(|_| Floor::open(plan.mtu)).collect::<Result<_>>()?,
            settler: Settler::open()?,
            sandboxes: 0,
            phases: Vec::new(),
            logged: Vec::new(),
        })
    }

    fn run(mut self) -> Result<Measurements> {
        for round in 0..=self.plan.size.rounds {
            let name = if round == 0 { "warm-up".to_owned() } else { format!("round {round} of {}", self.plan.size.rounds) };
            eprintln!("bench: {name}");
            for at_once in self.plan.size.at_once.clone() {
                for contestant in rotated([Contestant::Floor, Contestant::Ours], round) {
                    self.pods(contestant, at_once, round)?;
                }
            }
            self.programs(round);
        }
        self.read_stages()?;
        Ok(Measurements { phases: self.phases })
    }

    /// Adds all pods and deletes them again.
    fn pods(&mut self, contestant: Contestant, at_once: usize, round: u32) -> Result<()> {
        let sandboxes: Vec<String> = (0..self.pods.len()).map(|index| sandbox(self.sandboxes + index)).collect();
        self.sandboxes += sandboxes.len();
        let cell = |verb| Cell { verb, at_once, contestant };

        let pods: Vec<(&FloorPod<'_>, &String)> = self.pods.iter().zip(&sandboxes).collect();
        let before = self.cpu(contestant)?;
        let (wall, added) = closed_loop(&mut self.floors[..at_once], &pods, |floor, (pod, sandbox)| add(contestant, floor, pod, sandbox));
        self.settler.settle()?;
        let (calls, attached): (Vec<Call>, Vec<Option<Attached>>) = added.into_iter().unzip();
        let phase = Phase { cell: cell(Verb::Add), round, wall, calls, cpu: self.cpu(contestant)?.since(&before) };
        if contestant == Contestant::Ours {
            self.logged.push((self.phases.len(), sandboxes.clone()));
        }
        self.phases.push(phase);

        let attached: Vec<(&PlannedPod, Attached)> =
            self.pods.iter().zip(attached).filter_map(|(pod, attached)| Some((pod.pod, attached?))).collect();
        if at_once == 1 && contestant == Contestant::Ours {
            let checks: Vec<_> = attached.iter().filter_map(|(pod, attached)| check(pod, attached)).collect();
            self.push_serial(cell(Verb::Check), round, checks);
        }

        let before = self.cpu(contestant)?;
        let (wall, calls) = closed_loop(&mut self.floors[..at_once], &attached, |floor, (pod, attached)| del(floor, pod, attached));
        self.settler.settle()?;
        let cpu = self.cpu(contestant)?.since(&before);
        self.phases.push(Phase { cell: cell(Verb::Del), round, wall, calls, cpu });
        Ok(())
    }

    /// The verbs that need no pod, turn by turn with `/bin/true`.
    fn programs(&mut self, round: u32) {
        let program = |verb, contestant, call| Program { verb, contestant, call, calls: Vec::new() };
        let mut programs = [
            program(Verb::Version, Contestant::BinTrue, plugin::bin_true),
            program(Verb::Version, Contestant::Ours, plugin::version),
            program(Verb::Status, Contestant::Ours, plugin::status),
        ];
        for turn in 0..self.plan.size.pods {
            for index in rotated([0, 1, 2], turn) {
                let call = (programs[index].call)();
                programs[index].calls.push(call);
            }
        }
        for Program { verb, contestant, calls, .. } in programs {
            self.push_serial(Cell { verb, at_once: 1, contestant }, round, calls);
        }
    }

    fn push_serial(&mut self, cell: Cell, round: u32, calls: Vec<Call>) {
        let wall = calls.iter().map(|call| call.duration).sum();
        self.phases.push(Phase { cell, round, wall, calls, cpu: [].into() });
    }

    fn cpu(&self, contestant: Contestant) -> Result<CpuTimes> {
        CpuTimes::now(&self.plan.daemons, contestant)
    }

    /// Adds what the plugin's log says of its ADDs.
    fn read_stages(&mut self) -> Result<()> {
        if self.logged.iter().flat_map(|(phase, _)| &self.phases[*phase].calls).all(|call| call.error.is_some()) {
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

fn add(contestant: Contestant, floor: &mut Floor, pod: &FloorPod<'_>, sandbox: &str) -> (Call, Option<Attached>) {
    match contestant {
        Contestant::Floor => {
            let (call, attached) = floor.add(pod, sandbox);
            (call, attached.map(Attached::Floor))
        }
        Contestant::Ours => {
            let (call, attached) = plugin::add(pod.pod, sandbox);
            (call, attached.map(Attached::Ours))
        }
        Contestant::BinTrue => (plugin::bin_true(), None),
    }
}

fn del(floor: &mut Floor, pod: &PlannedPod, attached: &Attached) -> Call {
    match attached {
        Attached::Floor(attached) => floor.del(attached),
        Attached::Ours(attached) => plugin::del(pod, attached),
    }
}

fn check(pod: &PlannedPod, attached: &Attached) -> Option<Call> {
    match attached {
        Attached::Floor(_) => None,
        Attached::Ours(attached) => Some(plugin::check(pod, attached)),
    }
}

/// Lets every worker take the next item as soon as it is done with one. The wall time in milliseconds, and the results in the order of
/// the items.
fn closed_loop<W: Send, T: Sync, R: Send>(workers: &mut [W], items: &[T], work: impl Fn(&mut W, &T) -> R + Sync) -> (f64, Vec<R>) {
    let next = AtomicUsize::new(0);
    let ready = Barrier::new(workers.len() + 1);
    let (next, ready, work) = (&next, &ready, &work);
    thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .map(|worker| {
                scope.spawn(move || {
                    ready.wait();
                    let turns = std::iter::from_fn(|| {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        Some((index, items.get(index)?))
                    });
                    turns.map(|(index, item)| (index, work(worker, item))).collect::<Vec<_>>()
                })
            })
            .collect();
        ready.wait();
        let began = Instant::now();
        let results = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        let mut results: Vec<(usize, R)> = results.flatten().collect();
        let wall = milliseconds(began.elapsed());
        results.sort_by_key(|(index, _)| *index);
        (wall, results.into_iter().map(|(_, result)| result).collect())
    })
}

/// The same list, begun elsewhere: nobody is always first.
fn rotated<T: Copy, const N: usize>(mut list: [T; N], turn: impl TryInto<usize>) -> [T; N] {
    list.rotate_left(turn.try_into().unwrap_or_default() % N);
    list
}

/// Container id number `number`, whose beginning is unique: the link is named after it, and the log shows it.
fn sandbox(number: usize) -> String {
    format!("{number:012x}{:0<52}", "be")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_worked_on_once_and_results_keep_their_order() {
        let items: Vec<usize> = (0..100).collect();
        let (_, results) = closed_loop(&mut [0, 0, 0], &items, |done, item| {
            *done += 1;
            item * 2
        });
        assert_eq!(results, items.iter().map(|item| item * 2).collect::<Vec<_>>());
    }

    #[test]
    fn everybody_is_first_in_turn() {
        assert_eq!([0, 1, 2].map(|turn: usize| rotated(['a', 'b'], turn)), [['a', 'b'], ['b', 'a'], ['a', 'b']]);
    }

    #[test]
    fn a_sandbox_has_a_length_and_a_beginning_of_its_own() {
        assert_eq!(sandbox(7).len(), 64);
        assert_ne!(sandbox(7)[..stage_log::SHOWN], sandbox(8)[..stage_log::SHOWN]);
    }
}
