//! Whether the other nodes answer this one through their tunnels: echo requests from the management
//! port to theirs, which policies let through.

use std::net::IpAddr;

use podnet::reach::{PATIENCE, Reply, Target, TargetKind, reach};
use serde_json::Value;
use tokio::task::spawn_blocking;

use super::{
    Machine,
    cluster::{MANAGEMENT, NODES},
    node::{NODE, SERVER, THIS_MACHINE},
};
use crate::findings::{Finding, State};

/// Addresses that are asked, at once.
const MOST_PEERS: usize = 1000;

/// Another node, and an address of its management port.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Peer {
    name: String,
    address: IpAddr,
}

/// `found`: what API server and this node's server have said.
pub(super) async fn findings(machine: &Machine, found: &[Finding]) -> Vec<Finding> {
    let mut peers = peers(found);
    if machine.recorded.is_some() || peers.is_empty() {
        return Vec::new();
    }
    let all = peers.len();
    peers.truncate(MOST_PEERS);
    let target = |peer: &Peer| Target { kind: TargetKind::Echo, address: peer.address, port: 0 };
    let targets: Vec<Target> = peers.iter().map(target).collect();
    let asked = spawn_blocking(move || reach(None, &targets, PATIENCE)).await;
    match asked.map_err(std::io::Error::other).flatten() {
        Ok(replies) => verdict(&peers, &replies, all),
        Err(error) => vec![others(State::Unknown, &format!("were not asked: {error}"))],
    }
}

fn others(state: State, said: &str) -> Finding {
    Finding::new(THIS_MACHINE, "other nodes", state, said)
}

/// The nodes that are well, without this machine's own, which its server names.
fn peers(found: &[Finding]) -> Vec<Peer> {
    let is_server = |finding: &&Finding| finding.subject == THIS_MACHINE && finding.name == SERVER;
    let own = found.iter().find(is_server).and_then(|server| server.details.get(NODE));
    let Some(own) = own.and_then(Value::as_str) else { return Vec::new() };
    let others = found.iter().filter(|finding| {
        finding.subject == NODES && finding.name != own && finding.state != State::Failed
    });
    let peers = others.flat_map(|node| {
        let addresses = node.details.get(MANAGEMENT).and_then(Value::as_array);
        let addresses = addresses.into_iter().flatten().filter_map(Value::as_str);
        let peer = |text: &str| Some(Peer { name: node.name.clone(), address: text.parse().ok()? });
        addresses.filter_map(peer).collect::<Vec<_>>()
    });
    peers.collect()
}

/// `all`: how many addresses there are.
fn verdict(peers: &[Peer], replies: &[Reply], all: usize) -> Vec<Finding> {
    let mut answered = 0_usize;
    let mut faults = Vec::new();
    let (mut unsent, mut unrouted) = (None, Vec::new());
    for (Peer { name, address }, reply) in peers.iter().zip(replies) {
        let how = match reply {
            Reply::Answered => {
                answered += 1;
                continue;
            }
            Reply::Unsent(why) => {
                unsent = Some(why);
                continue;
            }
            Reply::NoRoute => {
                unrouted.push(format!("{name} ({address})"));
                continue;
            }
            Reply::Refused(why) => why,
            Reply::Silent => "no answer",
        };
        let why =
            format!("its management port {address} does not answer through the tunnel: {how}");
        let next = format!(
            "a firewall for the tunnels (UDP port 6081) between the two nodes; ovnkube status on \
             {name}"
        );
        let name = format!("node {name}");
        faults.push(Finding::new(THIS_MACHINE, &name, State::Failed, &why).next(&next));
    }
    if let Some(first) = unrouted.first() {
        let why = format!(
            "this node has no route to {} addresses of management ports, such as that of {first}",
            unrouted.len()
        );
        faults.push(others(State::Failed, &why).next("ip route; ip address show ovn-k8s-mp0"));
    }
    match unsent {
        Some(why) => faults.push(others(State::Skipped, &format!("not asked: {why}"))),
        None if faults.is_empty() => {
            let said = format!("{answered} of {all} addresses of management ports answer");
            faults.push(others(State::Ok, &said));
        }
        None => {}
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_are_well_are_asked_and_one_that_is_silent_is_named() {
        let node = |name: &str, state, addresses: &[&str]| {
            Finding::new(NODES, name, state, "…").with(MANAGEMENT, addresses.to_vec())
        };
        let found = [
            node("n1", State::Ok, &["10.244.0.2"]),
            node("n2", State::Ok, &["10.244.1.2", "fd00:1::2"]),
            node("n3", State::Failed, &["10.244.2.2"]),
            node("n4", State::Warning, &["10.244.3.2"]),
        ];
        assert_eq!(peers(&found), []);
        let server = Finding::new(THIS_MACHINE, SERVER, State::Ok, "…").with(NODE, "n1");
        let peers = peers(&[&found[..], &[server]].concat());
        let addresses: Vec<String> = peers.iter().map(|peer| peer.address.to_string()).collect();
        assert_eq!(addresses, ["10.244.1.2", "fd00:1::2", "10.244.3.2"]);
        let mut replies = vec![Reply::Answered, Reply::Answered, Reply::Silent];
        let faults = verdict(&peers, &replies, 3);
        let first = (&*faults[0].name, faults[0].state);
        assert_eq!((faults.len(), first), (1, ("node n4", State::Failed)));
        replies[2] = Reply::Answered;
        assert_eq!(verdict(&peers, &replies, 3)[0].state, State::Ok);
        replies[2] = Reply::Unsent("Permission denied".to_owned());
        assert_eq!(verdict(&peers, &replies, 3)[0].state, State::Skipped);
        // Its own fault is one finding, however many nodes there are.
        let faults = verdict(&peers, &[Reply::NoRoute, Reply::NoRoute, Reply::NoRoute], 3);
        assert_eq!((faults.len(), &*faults[0].name), (1, "other nodes"));
        assert!(faults[0].summary.contains("no route to 3 addresses"), "{faults:?}");
    }
}
