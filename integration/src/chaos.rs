//! Chaos: pods come and go while the plugin, the server and the daemons are killed at random moments.
//! Afterwards DEL has to remove everything that is left, and the pods that are attached need to have their
//! network.
//!
//! The lab calls the plugin as a container runtime does: a sandbox is owed a DEL from the moment its ADD
//! starts until a DEL of it succeeds. The same seed makes the same decisions; their effects differ from run
//! to run.
//!
//! | part | what it is |
//! |---|---|
//! | [`Chaos`] | how long, which seed; starts the threads and judges the result |
//! | `worker` | one runtime's thread: ADD and DEL of its pods |
//! | `destroyer` | the thread that kills daemons and starts them again |
//! | [`Tally`] | what was done |

use std::{
    slice,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Args;
use fastrand::Rng;

use crate::{Lab, Node, Pod, eventually};

mod destroyer;
mod tally;
mod worker;

pub use tally::{Calls, Tally};
use worker::{Remains, Worker};

/// Runtime threads, and the pods of each: several calls are under way whenever a daemon is killed.
const WORKERS: usize = 4;
const PODS: usize = 5;
/// How long the daemons may take to reconnect to each other once nothing kills them any more. It bounds a
/// hang and measures no speed.
const RECOVERY: Duration = Duration::from_secs(60);

/// Kill the plugin, the server and the daemons at random moments while pods come and go; fail if a DEL leaves
/// anything behind.
#[derive(Debug, Clone, Args)]
pub struct Chaos {
    /// For how long.
    #[arg(long, default_value_t = 600)]
    pub seconds: u64,
    /// Makes the same decisions as another run; random unless given.
    #[arg(long)]
    pub seed: Option<u64>,
}

/// When the run ends: at a fixed time, or at the first failure that no injected fault explains.
struct Course {
    end: Instant,
    failed: AtomicBool,
}

impl Chaos {
    /// Brings chaos to the first node of `lab`, reports progress to `say`, and returns what was done.
    ///
    /// # Errors
    /// If a call or a daemon fails for another reason than the injected faults, a pod lacks its network
    /// afterwards, or a DEL leaves something behind.
    pub fn run(&self, lab: &Lab, say: &mut dyn FnMut(&str)) -> Result<Tally> {
        let seed = self.seed.unwrap_or_else(|| fastrand::u64(..));
        say(&format!(
            "chaos for {} s; again with: integration chaos --seconds {} --seed {seed}",
            self.seconds, self.seconds
        ));
        self.run_with(lab, seed, say).with_context(|| format!("chaos with seed {seed}"))
    }

    fn run_with(&self, lab: &Lab, seed: u64, say: &mut dyn FnMut(&str)) -> Result<Tally> {
        let node = lab.nodes.first().context("a lab has a node")?;
        if !node.server.is_running() {
            node.start_server()?;
        }
        // Two pods that no thread touches: their network has to survive all of it.
        let witnesses = lab.new_pods(node, 2)?;
        witnesses.iter().try_for_each(|pod| node.runtime().add(pod)?.success().map(drop))?;
        lab.ping(&witnesses[0], witnesses[1].address())?;
        let pods: Vec<Pod> = (0..WORKERS * PODS).map(|_| lab.plan_pod(node)).collect();
        lab.add_ports(&pods)?;
        pods.iter().try_for_each(|pod| node.write_manifest(pod))?;
        let before = node.census()?;

        let (mut tally, remains) = self.storm(node, &pods, seed)?;
        say(&format!("{tally}"));
        say(&format!(
            "{} pods are attached, {} sandboxes are owed a DEL",
            remains.attached.len(),
            remains.owed.len()
        ));

        // Before the DELs, which detach these pods.
        self.network_is_back(lab, &witnesses, &remains.attached)?;
        for pod in &remains.owed {
            eventually(&format!("DEL of {}", pod.sandbox), RECOVERY, || node.runtime().del(pod)?.success())?;
            tally.dels.succeeded += 1;
        }
        remains.namespaces.iter().try_for_each(|pod| node.remove_namespaces(slice::from_ref(pod)))?;
        before.must_equal(&node.census()?).context("something is left")?;
        say("nothing is left");
        Ok(tally)
    }

    /// Runs the workers and the destroyer at once, until the time is over.
    fn storm(&self, node: &Node, pods: &[Pod], seed: u64) -> Result<(Tally, Remains)> {
        let course = Course {
            end: Instant::now() + Duration::from_secs(self.seconds),
            failed: AtomicBool::new(false),
        };
        let mut seeds = Rng::with_seed(seed);
        let (mut tally, mut remains) = (Tally::default(), Remains::default());
        thread::scope(|scope| {
            // Forks in a fixed order: each thread repeats its decisions with the same seed.
            let (course, rng) = (&course, seeds.fork());
            let destroyer = scope.spawn(move || course.follow(|| destroyer::run(node, rng, course)));
            let workers: Vec<_> = pods
                .chunks(PODS)
                .map(|pods| (pods, seeds.fork()))
                .map(|(pods, rng)| {
                    scope.spawn(move || course.follow(|| Worker::new(node, pods, rng).run(course)))
                })
                .collect();
            for worker in workers {
                let (done, left) = join(worker.join())?;
                tally += done;
                remains += left;
            }
            tally.daemons = join(destroyer.join())?;
            Ok((tally, remains))
        })
    }

    /// Waits until the witnesses and the pods whose last ADD succeeded reach each other, without another call
    /// of the plugin.
    fn network_is_back(&self, lab: &Lab, witnesses: &[Pod], attached: &[Pod]) -> Result<()> {
        let (first, second) = (&witnesses[0], &witnesses[1]);
        eventually("pods that were there before have their network", RECOVERY, || {
            lab.ping(first, second.address())
        })?;
        for pod in attached {
            eventually(&format!("{}, whose ADD succeeded, has its network", pod.sandbox), RECOVERY, || {
                lab.ping(pod, first.address())
            })?;
        }
        Ok(())
    }
}

impl Course {
    /// Whether the run continues.
    fn goes_on(&self) -> bool {
        Instant::now() < self.end && !self.failed.load(Ordering::Relaxed)
    }

    /// Runs the part of one thread; if it fails, the other threads end soon.
    fn follow<T>(&self, part: impl FnOnce() -> Result<T>) -> Result<T> {
        let result = part();
        if result.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        result
    }
}

fn join<T>(result: thread::Result<Result<T>>) -> Result<T> {
    result.unwrap_or_else(|_| Err(anyhow!("a thread panicked (see above)")))
}

/// Waits for a random time, `longest` at most.
#[expect(clippy::disallowed_methods, reason = "a random pause is the purpose")]
fn pause(rng: &mut Rng, longest: Duration) {
    thread::sleep(longest.mul_f64(rng.f64_inclusive()));
}

/// True once in `times`.
fn once_in(rng: &mut Rng, times: usize) -> bool {
    rng.usize(..times) == 0
}

/// Checks that the call ended within its deadline and the time for its rollback.
fn in_time(what: &str, took: Duration, limit: Duration) -> Result<()> {
    ensure!(took <= limit, "{what} took {took:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_decisions_again_and_its_forks_differ() {
        let decide = |mut rng: Rng| (0..50).map(|_| once_in(&mut rng, 3)).collect::<Vec<_>>();
        assert_eq!(decide(Rng::with_seed(7)), decide(Rng::with_seed(7)));
        assert_ne!(decide(Rng::with_seed(7)), decide(Rng::with_seed(8)));
        let mut seeds = Rng::with_seed(7);
        assert_ne!(decide(seeds.fork()), decide(seeds.fork()));
        assert!([true, false].iter().all(|outcome| decide(Rng::with_seed(7)).contains(outcome)));
    }
}
