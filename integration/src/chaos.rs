//! Chaos: pods come and go while the plugin, the server and the daemons are killed at random moments. Afterwards nothing may be left
//! that a DEL does not remove, and the pods that were attached must have their network.
//!
//! Behaves as a runtime does: a sandbox is owed a DEL from the moment its ADD is started until a DEL of it succeeds. A seed makes the
//! same decisions again; what they meet differs from run to run.
//!
//! | part | what it is |
//! |---|---|
//! | [`Chaos`] | how long, which seed; begins and judges |
//! | `worker` | one runtime's thread: ADD and DEL of its pods |
//! | `destroyer` | the thread that kills daemons and starts them again |
//! | `dice` | random numbers of a seed |
//! | [`Tally`] | what was done |

use std::{
    slice,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Args;

use crate::{Lab, Node, Pod, eventually};

mod destroyer;
mod dice;
mod tally;
mod worker;

use dice::Dice;
pub use tally::{Calls, Tally};
use worker::{Remains, Worker};

/// How many runtimes call at once, and how many pods each of them has.
const WORKERS: usize = 4;
const PODS: usize = 5;
/// How long the daemons may take to find each other again when nobody disturbs them any more.
const RECOVERY: Duration = Duration::from_secs(60);

/// Kill the plugin, the server and the daemons at random moments while pods come and go; fail if a DEL leaves anything behind.
#[derive(Debug, Clone, Args)]
pub struct Chaos {
    /// For how long.
    #[arg(long, default_value_t = 600)]
    pub seconds: u64,
    /// Makes the same decisions as another run; chosen by the clock unless given.
    #[arg(long)]
    pub seed: Option<u64>,
}

/// When it is over: at a time, or as soon as something went wrong that nobody did on purpose.
struct Course {
    end: Instant,
    failed: AtomicBool,
}

impl Chaos {
    /// Brings chaos to the first node of `lab`, tells `say` what it does, and returns what was done.
    pub fn run(&self, lab: &Lab, say: &mut dyn FnMut(&str)) -> Result<Tally> {
        let seed = self.seed.unwrap_or_else(dice::seed_of_the_clock);
        say(&format!("chaos for {} s; again with: integration chaos --seconds {} --seed {seed}", self.seconds, self.seconds));
        self.run_with(lab, seed, say).with_context(|| format!("chaos with seed {seed}"))
    }

    fn run_with(&self, lab: &Lab, seed: u64, say: &mut dyn FnMut(&str)) -> Result<Tally> {
        let node = lab.nodes.first().context("a lab has a node")?;
        if !node.server.is_running() {
            node.start_server()?;
        }
        let witnesses = lab.new_pods(node, 2)?;
        witnesses.iter().try_for_each(|pod| node.runtime().add(pod)?.success().map(drop))?;
        lab.ping(&witnesses[0], witnesses[1].address())?;
        let pods: Vec<Pod> = (0..WORKERS * PODS).map(|_| lab.plan_pod(node)).collect();
        lab.add_ports(&pods)?;
        pods.iter().try_for_each(|pod| node.write_manifest(pod))?;
        let before = node.census()?;

        let (mut tally, remains) = self.storm(node, &pods, seed)?;
        say(&format!("{tally}"));
        say(&format!("{} pods are attached, {} sandboxes are owed a DEL", remains.attached.len(), remains.owed.len()));

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

    /// Everything at once, until the time is over.
    fn storm(&self, node: &Node, pods: &[Pod], seed: u64) -> Result<(Tally, Remains)> {
        let course = Course { end: Instant::now() + Duration::from_secs(self.seconds), failed: AtomicBool::new(false) };
        let mut seeds = Dice::new(seed);
        let (mut tally, mut remains) = (Tally::default(), Remains::default());
        thread::scope(|scope| {
            let (course, dice) = (&course, seeds.fork());
            let destroyer = scope.spawn(move || course.follow(|| destroyer::run(node, dice, course)));
            let workers: Vec<_> = pods
                .chunks(PODS)
                .map(|pods| (pods, seeds.fork()))
                .map(|(pods, dice)| scope.spawn(move || course.follow(|| Worker::new(node, pods, dice).run(course))))
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

    /// Pods that were attached before, and those whose last ADD succeeded, reach each other without another call of the plugin.
    fn network_is_back(&self, lab: &Lab, witnesses: &[Pod], attached: &[Pod]) -> Result<()> {
        let (first, second) = (&witnesses[0], &witnesses[1]);
        eventually("pods that were there before have their network", RECOVERY, || lab.ping(first, second.address()))?;
        for pod in attached {
            eventually(&format!("{}, whose ADD succeeded, has its network", pod.sandbox), RECOVERY, || lab.ping(pod, first.address()))?;
        }
        Ok(())
    }
}

impl Course {
    /// Whether there is still something to do.
    fn goes_on(&self) -> bool {
        Instant::now() < self.end && !self.failed.load(Ordering::Relaxed)
    }

    /// Runs one thread's part; where it fails, the others end soon.
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

/// Lets some random time pass, less than `longest`.
#[expect(clippy::disallowed_methods, reason = "chaos comes at moments that nothing announces")]
fn pause(dice: &mut Dice, longest: Duration) {
    thread::sleep(longest.mul_f64(dice.fraction()));
}

/// The call ended within what its deadline and its rollback allow.
fn in_time(what: &str, took: Duration, limit: Duration) -> Result<()> {
    ensure!(took <= limit, "{what} took {took:?}");
    Ok(())
}
