//! How long a pod takes from its ADD until the first packet that it may send is answered, with and
//! without policies on it.
//!
//! A program in a pod starts after ADD has returned, so the client connects from then on. It waits
//! in the pod's namespace already: a program that starts takes longer than what is measured.
//!
//! Policies are there before the pod. If no other pod of its node is selected by them, their flows
//! come with it.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use integration::{
    Pod,
    connections::Server,
    peer::{Moment, Pace, Reply},
    traffic::End,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    super::site::PATIENCE,
    World,
    objects::{Directions, NUMBER, Name, POLICIES, Peers, policy, port},
};

const NAMESPACE: &str = "starts";
/// The number of the server that policies allow.
const SERVER: u8 = 0;
/// A port of the server that no policy allows.
const FORBIDDEN: u16 = 9_999;
/// The ACLs of a policy with both directions: one for pods and five for blocks in each.
const ACLS: usize = 12;

/// A pod that starts, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Start {
    /// From the beginning of ADD until it returns.
    pub(crate) added: f64,
    /// From there until the first connection is established.
    pub(crate) answered: f64,
}

impl Start {
    /// From the beginning of ADD until the first connection is established.
    pub(crate) fn whole(&self) -> f64 {
        self.added + self.answered
    }
}

/// All starts.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Starts {
    pub(crate) without: Vec<Start>,
    /// With policies that select no other pod of the node.
    pub(crate) first: Vec<Start>,
    /// With policies that select another pod of the node, too.
    pub(crate) further: Vec<Start>,
}

/// The server.
struct Place<'a> {
    world: &'a World,
    server: Pod,
    /// Where all pods may connect to the server.
    allowed: SocketAddr,
    /// Where only pods without policies may.
    forbidden: SocketAddr,
    _answering: Server,
}

/// Starts `count` pods of each kind, one after the other, in turn.
pub(crate) fn measure(world: &World, count: u16, say: &dyn Fn(&str)) -> Result<Starts> {
    let place = Place::prepare(world)?;
    say(&format!("{count} pods start without policies, and twice as many with {POLICIES}"));
    let mut starts = Starts::default();
    for number in 0..count {
        // Policies are in force from the first start to the last one.
        let look = number == 0 || number + 1 == count;
        let (start, open) = place.start(&format!("open-{number}"), false, look)?;
        starts.without.push(start);
        place.remove(&[open])?;
        let (start, first) = place.start(&format!("first-{number}"), true, look)?;
        starts.first.push(start);
        let (start, further) = place.start(&format!("further-{number}"), true, look)?;
        starts.further.push(start);
        place.remove(&[first, further])?;
    }
    place.leave()?;
    Ok(starts)
}

fn labels(with: bool) -> Value {
    json!({"app": if with { "closed" } else { "open" }})
}

impl<'a> Place<'a> {
    fn prepare(world: &'a World) -> Result<Self> {
        world.create_namespaces(&[NAMESPACE.to_owned()])?;
        let name = Name { namespace: NAMESPACE.to_owned(), name: "server".to_owned() };
        let mut server = world.sandbox(&name)?;
        world.create(&mut server, &json!({NUMBER: SERVER.to_string()}))?;
        world.add(&mut server)?;
        // Each policy allows the server at a port of its own, and only the last one the port that
        // is used.
        let allowed = port(POLICIES - 1);
        let answering = world.answering(&server, [allowed, FORBIDDEN])?;
        let peers =
            Peers { namespaces: vec![NAMESPACE.to_owned()], numbers: vec![SERVER, 1, 2, 3, 4] };
        for number in 0..POLICIES {
            let policy =
                policy(number, &json!({"matchLabels": labels(true)}), &peers, Directions::Both);
            world.create_policy(NAMESPACE, &policy)?;
        }
        world.until_acls(ACLS * usize::from(POLICIES))?;
        let at = |port| SocketAddr::new(server.address(), port);
        let (allowed, forbidden) = (at(allowed), at(FORBIDDEN));
        Ok(Self { world, server, allowed, forbidden, _answering: answering })
    }

    /// Starts a pod. `look` checks whether it reaches what it may not with policies.
    fn start(&self, name: &str, with: bool, look: bool) -> Result<(Start, Pod)> {
        let world = self.world;
        let mut pod =
            world.sandbox(&Name { namespace: NAMESPACE.to_owned(), name: name.to_owned() })?;
        let mut client = world.reaching(&pod, Pace::FAST.every)?;
        world.create(&mut pod, &labels(with))?;
        let begun = Moment::now();
        world.add(&mut pod)?;
        let returned = Moment::now();
        client.reach(self.allowed)?;
        let first = client.connections.first_by(self.allowed, PATIENCE)?;
        if look {
            let [replies, _] = world.cluster.lab.ask(&End::Pod(&pod), &[self.forbidden], &[])?;
            let expected = if with { Reply::Nothing } else { Reply::By(self.forbidden) };
            ensure!(replies == [expected], "{name}: {replies:?} instead of {expected:?}");
        }
        let added = returned.milliseconds_since(begun);
        Ok((Start { added, answered: first.answered.milliseconds_since(returned) }, pod))
    }

    /// Removes pods, and waits until nothing of them is left.
    fn remove(&self, pods: &[Pod]) -> Result<()> {
        pods.iter().try_for_each(|pod| self.world.remove(pod))?;
        self.world.cluster.lab.central.sync()
    }

    /// Removes the server, and the policies with their flows.
    fn leave(self) -> Result<()> {
        let world = self.world;
        (0..POLICIES).try_for_each(|number| world.delete_policy(NAMESPACE, number))?;
        world.remove(&self.server)?;
        world.until_acls(0)
    }
}
