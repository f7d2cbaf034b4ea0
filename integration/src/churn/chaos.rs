//! Chaos: pods come and go while the plugin, the server and the daemons are killed at random
//! moments. Afterwards DEL has to remove everything that is left, and the pods that are attached
//! need to have their network.
//!
//! The lab calls the plugin as a container runtime does: a sandbox is owed a DEL from the moment
//! its ADD starts until a DEL of it succeeds. The same seed makes the same decisions; their effects
//! differ from run to run.
//!
//! | part | what it is |
//! |---|---|
//! | [`Chaos`] | how long, which seed; runs the round and judges the result |
//! | `worker` | a runtime: ADD and DEL of its pods |
//! | `destroyer` | kills daemons and starts them again |
//! | [`Tally`] | what was done |

use std::{
    slice,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use clap::Args;
use fastrand::Rng;

use super::{Actor, once_in, pause_up_to, round};
use crate::{Lab, Node, Pod, eventually};

mod destroyer;
mod tally;
mod worker;

use destroyer::Destroyer;
pub use tally::{Calls, Tally};
use worker::{Remains, Worker};

/// Runtime threads, and the pods of each: several calls are under way whenever a daemon is killed.
const WORKERS: usize = 4;
const PODS: usize = 5;
/// How long the daemons may take to reconnect to each other once nothing kills them any more. It
/// bounds a hang and measures no speed.
const RECOVERY: Duration = Duration::from_secs(60);

/// Kill the plugin, the server and the daemons at random moments while pods come and go; fail if a
/// DEL leaves anything behind.
#[derive(Debug, Clone, Args)]
pub struct Chaos {
    /// For how long.
    #[arg(long, default_value_t = 600)]
    pub seconds: u64,
    /// Makes the same decisions as another run; random unless given.
    #[arg(long)]
    pub seed: Option<u64>,
}

impl Chaos {
    /// Brings chaos to the first node of `lab`, reports progress to `say`, and returns what was
    /// done.
    ///
    /// # Errors
    /// If a call or a daemon fails for another reason than the injected faults, a pod lacks its
    /// network afterwards, or a DEL leaves something behind.
    pub fn run(&self, lab: &Lab, say: &mut dyn FnMut(&str)) -> Result<Tally> {
        let seed = self.seed.unwrap_or_else(|| fastrand::u64(..));
        say(&format!(
            "chaos for {} s; again with: integration chaos --seconds {} --seed {seed}",
            self.seconds, self.seconds
        ));
        self.run_with(lab, seed, say).with_context(|| format!("chaos with seed {seed}"))
    }

    fn run_with(&self, lab: &Lab, seed: u64, say: &mut dyn FnMut(&str)) -> Result<Tally> {
        let node = lab.node_with_server()?;
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
            eventually(&format!("DEL of {}", pod.sandbox), RECOVERY, || {
                node.runtime().del(pod)?.success()
            })?;
            tally.dels.succeeded += 1;
        }
        remains
            .namespaces
            .iter()
            .try_for_each(|pod| node.remove_namespaces(slice::from_ref(pod)))?;
        before.must_equal(&node.census()?).context("something is left")?;
        say("nothing is left");
        Ok(tally)
    }

    /// Runs the workers and the destroyer at once, until the time is over.
    fn storm(&self, node: &Node, pods: &[Pod], seed: u64) -> Result<(Tally, Remains)> {
        let end = Instant::now() + Duration::from_secs(self.seconds);
        let mut seeds = Rng::with_seed(seed);
        // Forks in a fixed order: each thread repeats its decisions with the same seed.
        let mut destroyer = Destroyer::new(node, seeds.fork());
        let mut workers: Vec<Worker<'_>> =
            pods.chunks(PODS).map(|pods| Worker::new(node, pods, seeds.fork())).collect();
        let mut actors: Vec<&mut dyn Actor> = vec![&mut destroyer];
        actors.extend(workers.iter_mut().map(|worker| worker as &mut dyn Actor));
        round(&mut actors, Some(end))?;
        let mut tally = Tally { daemons: destroyer.kills, ..Tally::default() };
        let mut remains = Remains::default();
        for worker in workers {
            let (done, left) = worker.into_parts();
            tally += done;
            remains += left;
        }
        Ok((tally, remains))
    }

    /// Waits until the witnesses and the pods whose last ADD succeeded reach each other, without
    /// another call of the plugin.
    fn network_is_back(&self, lab: &Lab, witnesses: &[Pod], attached: &[Pod]) -> Result<()> {
        let (first, second) = (&witnesses[0], &witnesses[1]);
        eventually("pods that were there before have their network", RECOVERY, || {
            lab.ping(first, second.address())
        })?;
        for pod in attached {
            eventually(
                &format!("{}, whose ADD succeeded, has its network", pod.sandbox),
                RECOVERY,
                || lab.ping(pod, first.address()),
            )?;
        }
        Ok(())
    }
}
