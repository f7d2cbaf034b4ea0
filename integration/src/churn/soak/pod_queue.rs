//! The pods of a soak: a queue in which the oldest go and new ones come, each with a name, UID and
//! sandbox that was never used before.

use std::{
    collections::VecDeque,
    ops::ControlFlow,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    Lab, Node, Outcome, Pod,
    churn::{Actor, round},
};

/// One pod in so many has rate limits, so that rows of `QoS` and `Queue` come and go, too.
const LIMITED: usize = 5;

/// The attached pods, and the addresses for the next ones.
pub(super) struct PodQueue<'lab> {
    lab: &'lab Lab,
    node: &'lab Node,
    at_once: usize,
    /// The oldest first.
    attached: VecDeque<Attached>,
    /// Addresses that no pod has.
    free: VecDeque<Seat>,
    /// Failed calls and pings, one line each.
    pub(super) failures: Vec<String>,
}

/// An address of the node, and the number of pods that have had it.
struct Seat {
    pod: Pod,
    pods: usize,
}

/// A pod, its address, and the result of its ADD.
struct Attached {
    seat: Seat,
    pod: Pod,
    limits: Limits,
    result: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limits {
    Some,
    None,
}

/// One of several callers of the plugin.
struct Caller<'round> {
    node: &'round Node,
    /// The next cycle that no caller has taken.
    next: &'round AtomicUsize,
    going: &'round [Attached],
    coming: &'round [Attached],
    done: Vec<Cycle>,
}

/// The calls of a cycle that has ended.
struct Cycle {
    index: usize,
    del: Option<Called>,
    add: Option<Called>,
}

/// How long a call took, and its result.
type Called = Result<(Duration, Value)>;

/// Durations of the calls of a round.
#[derive(Debug, Default)]
pub(super) struct Times {
    pub(super) adds: Vec<Duration>,
    pub(super) dels: Vec<Duration>,
}

impl Seat {
    fn next(&mut self) -> Pod {
        self.pods += 1;
        self.pod = self.pod.recreated();
        let mut pod = self.pod.clone();
        pod.name = format!("{}-{}", pod.name, self.pods);
        pod
    }
}

impl<'lab> PodQueue<'lab> {
    pub(super) fn new(lab: &'lab Lab, node: &'lab Node, pods: usize, at_once: usize) -> Self {
        // Twice as many addresses as pods: addresses of detached pods become free only at the end
        // of a round.
        let free = (0..2 * pods).map(|_| Seat { pod: lab.plan_pod(node), pods: 0 }).collect();
        Self { lab, node, at_once, attached: VecDeque::new(), free, failures: Vec::new() }
    }

    /// Attaches the first pods.
    pub(super) fn fill(&mut self, pods: usize) -> Result<Times> {
        let limits = (0..pods)
            .map(|number| if number % LIMITED == 0 { Limits::Some } else { Limits::None })
            .collect();
        let coming = self.prepare(limits)?;
        self.work(&mut [], coming)
    }

    /// Replaces the `cycles` oldest pods: each cycle detaches one and then attaches a new one.
    pub(super) fn round(&mut self, cycles: usize) -> Result<Times> {
        let mut going: Vec<Attached> = self.attached.drain(..cycles).collect();
        // The number of pods with limits stays constant, so that the rows of limits can be
        // compared.
        let coming = self.prepare(going.iter().map(|attached| attached.limits).collect())?;
        let times = self.work(&mut going, coming)?;
        self.tidy(going)?;
        Ok(times)
    }

    /// Detaches all pods.
    pub(super) fn empty(&mut self) -> Result<()> {
        let mut going: Vec<Attached> = self.attached.drain(..).collect();
        self.work(&mut going, Vec::new())?;
        self.tidy(going)
    }

    /// Pings the oldest pod from the newest one.
    pub(super) fn see_network(&mut self) -> Result<()> {
        let (Some(oldest), Some(newest)) = (self.attached.front(), self.attached.back()) else {
            return Ok(());
        };
        if let Err(error) = self.lab.ping(&newest.pod, oldest.pod.address()) {
            self.failures.push(format!("{error:#}"));
        }
        Ok(())
    }

    /// Does the work of the control plane and of the runtime before an ADD: logical ports,
    /// namespaces, manifests.
    fn prepare(&mut self, limits: Vec<Limits>) -> Result<Vec<Attached>> {
        let seats: Vec<Seat> = self.free.drain(..limits.len()).collect();
        let coming: Vec<Attached> = seats
            .into_iter()
            .zip(limits)
            .map(|(mut seat, limits)| {
                let mut pod = seat.next();
                if limits == Limits::Some {
                    let limit = |way, rate: &str| {
                        (format!("kubernetes.io/{way}-bandwidth"), rate.to_owned())
                    };
                    pod.annotations = vec![limit("ingress", "100M"), limit("egress", "50M")];
                }
                Attached { pod, seat, limits, result: Value::Null }
            })
            .collect();
        let pods: Vec<Pod> = coming.iter().map(|attached| attached.pod.clone()).collect();
        self.lab.add_ports(&pods)?;
        self.node.add_namespaces(&pods)?;
        pods.iter().try_for_each(|pod| self.node.write_manifest(pod))?;
        Ok(coming)
    }

    /// Does the work of the control plane and of the runtime after a DEL.
    fn tidy(&mut self, gone: Vec<Attached>) -> Result<()> {
        let pods: Vec<Pod> = gone.iter().map(|attached| attached.pod.clone()).collect();
        self.lab.remove_pods(&pods)?;
        self.free.extend(gone.into_iter().map(|attached| attached.seat));
        Ok(())
    }

    /// Runs the cycles on several callers; each takes the next cycle as soon as it has finished
    /// one: DEL of `going`, then ADD of `coming`.
    fn work(&mut self, going: &mut [Attached], mut coming: Vec<Attached>) -> Result<Times> {
        let next = AtomicUsize::new(0);
        let cycles = going.len().max(coming.len());
        let (node, going, pods) = (self.node, &*going, coming.as_slice());
        let mut callers: Vec<Caller<'_>> = (0..self.at_once.min(cycles))
            .map(|_| Caller { node, next: &next, going, coming: pods, done: Vec::new() })
            .collect();
        let mut actors: Vec<&mut dyn Actor> =
            callers.iter_mut().map(|caller| caller as &mut dyn Actor).collect();
        round(&mut actors, None)?;
        let done: Vec<Cycle> = callers.into_iter().flat_map(|caller| caller.done).collect();
        let mut times = Times::default();
        for Cycle { index, del, add } in done {
            match del.transpose() {
                Ok(del) => times.dels.extend(del.map(|(time, _)| time)),
                Err(error) => self.failures.push(format!("{error:#}")),
            }
            match add.transpose() {
                Ok(None) => {}
                Ok(Some((time, result))) => {
                    times.adds.push(time);
                    coming[index].result = result;
                }
                Err(error) => self.failures.push(format!("{error:#}")),
            }
        }
        self.attached.extend(coming);
        Ok(times)
    }
}

impl Actor for Caller<'_> {
    fn turn(&mut self) -> Result<ControlFlow<()>> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let (old, new) = (self.going.get(index), self.coming.get(index));
        if old.is_none() && new.is_none() {
            return Ok(ControlFlow::Break(()));
        }
        let del = old.map(|old| call(self.node, "DEL", &old.pod, Some(&old.result)));
        let add = new.map(|new| call(self.node, "ADD", &new.pod, None));
        self.done.push(Cycle { index, del, add });
        Ok(ControlFlow::Continue(()))
    }
}

/// Makes one call, which must succeed.
fn call(node: &Node, verb: &str, pod: &Pod, prev_result: Option<&Value>) -> Called {
    let runtime = match prev_result {
        Some(result) => node.runtime().with("prevResult", result.clone()),
        None => node.runtime(),
    };
    let outcome: Outcome =
        runtime.with("cniVersion", json!("1.0.0")).call(verb, Some(pod)).run()?;
    let result =
        outcome.success().map_err(|error| error.context(format!("{verb} of {}", pod.name)))?;
    Ok((outcome.duration, result))
}
