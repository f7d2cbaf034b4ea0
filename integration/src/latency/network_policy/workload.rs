//! Kube-burner's workload `network-policy` with its own measurement, at the size of one node: ten
//! namespaces with ten pods each, which a policy closes, and then twenty policies in each
//! namespace, while clients try the connections that these will allow. A policy is ready when the
//! last of its connections is established.
//!
//! Kube-burner counts from the policy's `creationTimestamp`, which has seconds; here it is the
//! moment before the request. A policy allows 250 connections; of these some are tried, each of
//! another pod.

use std::{
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    thread::park_timeout,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use integration::{
    Pod,
    connections::{Reaching, Server},
    eventually,
    peer::Moment,
    threads::on_threads,
};
use serde::Serialize;
use serde_json::json;

use super::{
    super::site::PATIENCE,
    World,
    objects::{Directions, FIVE, NUMBER, Name, POLICIES, Peers, deny_all, policy, port},
};

/// Namespaces, and pods in each.
const TEN: u8 = 10;
/// Policies that are created in a second, unless all are at once: kube-burner's default.
const RATE: u32 = 20;
/// Requests at the same time, when all are.
const AT_ONCE: usize = 8;

/// How the policies come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Arrival {
    AtARate,
    AtOnce,
}

impl Arrival {
    pub(crate) const ALL: [Self; 2] = [Self::AtARate, Self::AtOnce];

    /// Connections of a policy, and how often each is tried until it is established: hundreds of
    /// policies that wait at the same time would keep the processors busy.
    fn tries(self) -> (u8, Duration) {
        match self {
            Self::AtARate => (FIVE, Duration::from_millis(5)),
            Self::AtOnce => (1, Duration::from_millis(20)),
        }
    }
}

/// The times of all policies that came in one way.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) arrival: Arrival,
    /// Seconds that their creation took.
    pub(crate) created_in: f64,
    pub(crate) policies: Vec<Ready>,
}

/// A policy, in milliseconds from its creation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Ready {
    /// Until the request is answered.
    pub(crate) created: f64,
    /// Until the first of its connections is established.
    pub(crate) min_ready: f64,
    /// Until the last one is.
    pub(crate) ready: f64,
}

/// A connection that a policy allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Allowed {
    /// Index of the pod that begins it.
    from: usize,
    to: SocketAddr,
}

/// Policy `number` of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PolicyOf {
    namespace: u8,
    number: u8,
}

impl PolicyOf {
    /// All of them, in the order of their creation.
    fn all() -> Vec<Self> {
        (0..TEN)
            .flat_map(|namespace| (0..POLICIES).map(move |number| Self { namespace, number }))
            .collect()
    }

    /// The namespaces and numbers of the pods that it allows.
    fn peers(self) -> [[u8; FIVE as usize]; 2] {
        let Self { namespace, number } = self;
        [namespace + number, number].map(|first| [0, 1, 2, 3, 4].map(|index| (first + index) % TEN))
    }

    /// Some of the connections that it allows, between the pods with these indexes: from another
    /// namespace each, to another pod each.
    fn connections(self, count: u8) -> Vec<(usize, usize)> {
        let [namespaces, numbers] = self.peers();
        let connection = |index: u8| {
            let from = pod(
                namespaces[usize::from(index)],
                numbers[usize::from((self.number + index) % FIVE)],
            );
            let to = pod(self.namespace, (self.number + 3 * index) % TEN);
            // A pod reaches itself without a policy.
            (
                from,
                if from == to {
                    pod(self.namespace, (self.number + 3 * index + FIVE) % TEN)
                } else {
                    to
                },
            )
        };
        (0..count).map(connection).collect()
    }
}

/// The index of a pod.
fn pod(namespace: u8, number: u8) -> usize {
    usize::from(TEN * namespace + number)
}

fn namespace(number: u8) -> String {
    format!("network-policy-perf-{number}")
}

/// The workload's pods.
pub(crate) struct Workload<'a> {
    world: &'a World,
    pods: Vec<Pod>,
    _answering: Vec<Server>,
}

impl<'a> Workload<'a> {
    pub(crate) fn prepare(world: &'a World, say: &dyn Fn(&str)) -> Result<Self> {
        say("attaching the pods of the workload");
        world.create_namespaces(&(0..TEN).map(namespace).collect::<Vec<_>>())?;
        let all: Vec<(u8, u8)> =
            (0..TEN).flat_map(|of| (0..TEN).map(move |number| (of, number))).collect();
        let start = |&(of, number): &(u8, u8)| {
            let mut pod = world
                .sandbox(&Name { namespace: namespace(of), name: format!("{of}-{number}") })?;
            world.create(&mut pod, &json!({NUMBER: number.to_string()}))?;
            world.add(&mut pod)?;
            let answering = world.answering(&pod, (0..POLICIES).map(port))?;
            Ok((pod, answering))
        };
        let (pods, answering) = on_threads(AT_ONCE, &all, start)?.into_iter().unzip();
        (0..TEN).try_for_each(|of| world.create_policy(&namespace(of), &deny_all()))?;
        Ok(Self { world, pods, _answering: answering })
    }

    /// Creates all policies, and deletes them when they are ready.
    pub(crate) fn measure(&self, arrival: Arrival, say: &dyn Fn(&str)) -> Result<Measured> {
        let (count, every) = arrival.tries();
        let allowed = |of: PolicyOf| {
            let connections = of.connections(count).into_iter();
            let to = |to: usize| SocketAddr::new(self.pods[to].address(), port(of.number));
            connections.map(|(from, at)| Allowed { from, to: to(at) }).collect::<Vec<_>>()
        };
        let policies: Vec<(PolicyOf, Vec<Allowed>)> =
            PolicyOf::all().into_iter().map(|of| (of, allowed(of))).collect();
        say("no connection of the workload is established yet");
        self.none_is_established(&policies)?;
        let clients = on_threads(AT_ONCE, &self.pods, |pod| {
            Ok(Mutex::new(self.world.reaching(pod, every)?))
        })?;
        say(&format!("creating {} policies ({arrival:?})", policies.len()));
        let begun = Instant::now();
        let create = |(of, allowed): &(PolicyOf, Vec<Allowed>)| self.create(*of, allowed, &clients);
        let created = match arrival {
            Arrival::AtARate => at_a_rate(&policies, create)?,
            Arrival::AtOnce => on_threads(AT_ONCE, &policies, create)?,
        };
        let created_in = begun.elapsed().as_secs_f64();
        let ready = policies
            .iter()
            .zip(created)
            .map(|((_, allowed), created)| created.ready(allowed, &clients));
        let policies = ready.collect::<Result<_>>()?;
        drop(clients);
        on_threads(AT_ONCE, &PolicyOf::all(), |of| {
            self.world.delete_policy(&namespace(of.namespace), of.number)
        })?;
        self.world.until_acls(0)?;
        Ok(Measured { arrival, created_in, policies })
    }

    fn none_is_established(&self, policies: &[(PolicyOf, Vec<Allowed>)]) -> Result<()> {
        let asked = |from: usize| {
            let all = policies
                .iter()
                .flat_map(|(_, allowed)| allowed)
                .filter(move |allowed| allowed.from == from);
            all.map(|allowed| allowed.to).collect::<Vec<SocketAddr>>()
        };
        let all: Vec<(&Pod, Vec<SocketAddr>)> =
            self.pods.iter().enumerate().map(|(from, pod)| (pod, asked(from))).collect();
        eventually("the pods are closed", PATIENCE, || {
            on_threads(AT_ONCE, &all, |(pod, places)| self.world.must_not_reach(pod, places))
                .map(drop)
        })
    }

    /// Lets clients try the policy's connections, and creates it.
    fn create(
        &self,
        of: PolicyOf,
        allowed: &[Allowed],
        clients: &[Mutex<Reaching>],
    ) -> Result<Created> {
        for allowed in allowed {
            locked(&clients[allowed.from]).reach(allowed.to)?;
        }
        let [namespaces, numbers] = of.peers();
        let peers = Peers {
            namespaces: namespaces.into_iter().map(namespace).collect(),
            numbers: numbers.to_vec(),
        };
        let policy = policy(of.number, &json!({}), &peers, Directions::Ingress);
        let begun = Moment::now();
        self.world.create_policy(&namespace(of.namespace), &policy)?;
        Ok(Created { begun, answered: Moment::now() })
    }
}

/// A policy that was created.
#[derive(Debug, Clone, Copy)]
struct Created {
    begun: Moment,
    answered: Moment,
}

impl Created {
    /// Waits for its connections.
    fn ready(self, allowed: &[Allowed], clients: &[Mutex<Reaching>]) -> Result<Ready> {
        let mut times = Vec::new();
        for Allowed { from, to } in allowed {
            let first = locked(&clients[*from]).connections.first_by(*to, PATIENCE)?;
            let time = first.answered.milliseconds_since(self.begun);
            ensure!(time > 0.0, "{to} was reached {time} ms before a policy allowed it");
            times.push(time);
        }
        times.sort_by(f64::total_cmp);
        let (min_ready, ready) = (times[0], times[times.len() - 1]);
        Ok(Ready { created: self.answered.milliseconds_since(self.begun), min_ready, ready })
    }
}

/// Does this with one item after the other, so many in a second.
fn at_a_rate<T, R>(items: &[T], act: impl Fn(&T) -> Result<R>) -> Result<Vec<R>> {
    let begun = Instant::now();
    let mut done = Vec::new();
    for (number, item) in (0..).zip(items) {
        let due = begun + Duration::from_secs(1) * number / RATE;
        while let Some(left) =
            due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
        {
            park_timeout(left);
        }
        done.push(act(item)?);
    }
    Ok(done)
}

fn locked(client: &Mutex<Reaching>) -> MutexGuard<'_, Reaching> {
    client.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_connections_of_a_policy_are_allowed_and_of_other_pods_each() {
        let all = PolicyOf::all();
        assert_eq!(all.len(), 200);
        for policy in all {
            let [namespaces, numbers] = policy.peers();
            let connections = policy.connections(FIVE);
            for (from, to) in &connections {
                let [of, number] = [from / usize::from(TEN), from % usize::from(TEN)];
                assert!(namespaces.iter().any(|known| usize::from(*known) == of), "{policy:?}");
                assert!(numbers.iter().any(|known| usize::from(*known) == number), "{policy:?}");
                assert!(
                    from != to && to / usize::from(TEN) == usize::from(policy.namespace),
                    "{policy:?}"
                );
            }
            let clients: HashSet<usize> = connections.iter().map(|(from, _)| *from).collect();
            let servers: HashSet<usize> = connections.iter().map(|(_, to)| *to).collect();
            assert_eq!((clients.len(), servers.len()), (5, 5), "{policy:?}");
        }
    }
}
