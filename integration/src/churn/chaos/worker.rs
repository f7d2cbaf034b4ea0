//! A container runtime: its pods come and go, and some of its calls are killed.

use std::{
    ops::{AddAssign, ControlFlow},
    slice,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use nix::sys::signal::Signal;
use serde_json::json;

use super::{Actor, Calls, Tally, once_in, pause_up_to};
use crate::{Node, Outcome, Pod, Runtime, runtime::Running};

/// Deadline of an ADD, and how much longer its rollback, or a DEL, may take while everything around
/// it is killed. Together they exceed the 30 s that the plugin allows itself for a DEL.
const TIMEOUT: Duration = Duration::from_secs(10);
const CLEANING: Duration = Duration::from_secs(25);
/// The longest time until a call is killed. On an idle machine an ADD takes some 20 ms, so the kill
/// hits any of its stages; ten times longer, and most calls would have ended before.
const LIFE: Duration = Duration::from_millis(80);
/// The most sandboxes that wait for their DEL: a runtime does not let them pile up.
const MOST_OWED: usize = 6;
/// The longest time until a failed DEL is tried again; shorter than a daemon is away, so that
/// retries fail, too.
const BACKOFF: Duration = Duration::from_millis(100);

/// Codes of an ADD while daemons are killed, or when a DEL comes too early. Any other code is a
/// finding.
const ADD_CODES: &[u32] = &[3, 11, 101];
/// Of the daemons that are killed, a DEL needs the database only.
const DEL_CODES: &[u32] = &[11];

/// A runtime and its state.
pub(super) struct Worker<'node> {
    node: &'node Node,
    rng: Rng,
    runtime: Runtime<'node>,
    /// The pods, with their latest sandboxes.
    pods: Vec<Pod>,
    tally: Tally,
    remains: Remains,
}

/// What is left when the time is over.
#[derive(Debug, Default)]
pub(super) struct Remains {
    /// Sandboxes whose ADD was started and whose DEL has not succeeded yet.
    pub(super) owed: Vec<Pod>,
    /// Those of them whose ADD succeeded and whose pod has no newer sandbox.
    pub(super) attached: Vec<Pod>,
    /// Sandboxes whose network namespace is still there.
    pub(super) namespaces: Vec<Pod>,
}

impl<'node> Worker<'node> {
    pub(super) fn new(node: &'node Node, pods: &[Pod], rng: Rng) -> Self {
        let runtime = node.runtime().with("timeoutSeconds", json!(TIMEOUT.as_secs()));
        Self {
            node,
            rng,
            runtime,
            pods: pods.to_vec(),
            tally: Tally::default(),
            remains: Remains::default(),
        }
    }

    /// What it did, and what is left.
    pub(super) fn into_parts(self) -> (Tally, Remains) {
        (self.tally, self.remains)
    }

    /// Gives a pod a new sandbox. The old one may still be there: then the new one takes the port
    /// over.
    fn replace(&mut self, index: usize) -> Result<()> {
        let pod = self.pods[index].next_sandbox();
        self.pods[index] = pod.clone();
        self.node.add_namespaces(slice::from_ref(&pod))?;
        self.remains.namespaces.push(pod.clone());
        // Before the call: from here on the sandbox is owed a DEL, however its ADD ends.
        self.remains.owed.push(pod.clone());
        self.remains.attached.retain(|other| other.name != pod.name);

        let adding = self.runtime.call("ADD", Some(&pod)).start()?;
        let added = match self.rng.u8(..6) {
            0 => self.kill_soon(adding)?,
            1 => {
                // The runtime gives up on the ADD: its DEL starts while the ADD runs.
                pause_up_to(&mut self.rng, LIFE);
                let deleting = self.runtime.call("DEL", Some(&pod)).start()?;
                let deleted = deleting.wait()?;
                let ended = adding.wait()?;
                // Either may have come last: the sandbox is still owed a DEL, and its network is
                // not checked.
                count(&mut self.tally.dels, &deleted, DEL_CODES, "DEL")?;
                count(&mut self.tally.adds, &ended, ADD_CODES, "ADD")?;
                return Ok(());
            }
            _ => adding.wait()?,
        };
        count(&mut self.tally.adds, &added, ADD_CODES, "ADD")
            .with_context(|| pod.sandbox.clone())?;
        if added.status.success() {
            self.remains.attached.push(pod);
        }
        Ok(())
    }

    /// Sends the DEL that a sandbox is owed, before or after its namespace is deleted.
    fn take_away(&mut self, index: usize) -> Result<()> {
        let pod = self.remains.owed[index].clone();
        self.remains.attached.retain(|other| other.sandbox != pod.sandbox);
        let namespace_first = once_in(&mut self.rng, 3);
        if namespace_first {
            self.remove_namespace(&pod)?;
        }
        let deleting = self.runtime.call("DEL", Some(&pod)).start()?;
        let deleted =
            if once_in(&mut self.rng, 6) { self.kill_soon(deleting)? } else { deleting.wait()? };
        count(&mut self.tally.dels, &deleted, DEL_CODES, "DEL")
            .with_context(|| pod.sandbox.clone())?;
        if deleted.status.success() {
            self.remains.owed.remove(index);
            return self.remove_namespace(&pod);
        }
        pause_up_to(&mut self.rng, BACKOFF);
        Ok(())
    }

    fn kill_soon(&mut self, running: Running) -> Result<Outcome> {
        pause_up_to(&mut self.rng, LIFE);
        running.signal(Signal::SIGKILL)?;
        running.wait()
    }

    fn remove_namespace(&mut self, pod: &Pod) -> Result<()> {
        let Some(index) =
            self.remains.namespaces.iter().position(|other| other.sandbox == pod.sandbox)
        else {
            return Ok(());
        };
        self.remains.namespaces.swap_remove(index);
        self.node.remove_namespaces(slice::from_ref(pod))
    }
}

impl Actor for Worker<'_> {
    /// Gives a pod a new sandbox, or sends one of the DELs that wait if there are too many.
    fn turn(&mut self) -> Result<ControlFlow<()>> {
        let owed = self.remains.owed.len();
        if owed > MOST_OWED {
            let one = self.rng.usize(..owed);
            self.take_away(one)?;
        } else {
            let next = self.rng.usize(..self.pods.len());
            self.replace(next)?;
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Counts a call by how it ended. An end that no injected fault explains is an error.
fn count(calls: &mut Calls, outcome: &Outcome, codes: &[u32], verb: &str) -> Result<()> {
    // Within its deadline and the time for its rollback.
    ensure!(outcome.duration <= TIMEOUT + CLEANING, "{verb} took {:?}", outcome.duration);
    if outcome.status.code().is_none() {
        calls.killed += 1;
    } else if outcome.status.success() {
        calls.succeeded += 1;
    } else {
        let error = outcome.failure()?;
        ensure!(codes.contains(&error.code), "{verb} failed for no good reason: {error:?}");
        *calls.failed.entry(error.code).or_default() += 1;
    }
    Ok(())
}

impl AddAssign for Remains {
    fn add_assign(&mut self, other: Self) {
        let Self { owed, attached, namespaces } = other;
        self.owed.extend(owed);
        self.attached.extend(attached);
        self.namespaces.extend(namespaces);
    }
}
