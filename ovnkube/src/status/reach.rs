//! Whether the other nodes answer this one through their tunnels. Asked by this node's server: its
//! own echo requests from the management port, which policies let through.

use std::net::IpAddr;

use podnet::reach::wire::{
    MOST_TARGETS, REACH_PATH, ReachAnswer, ReachKind, ReachRequest, ReachTarget, Reached,
};
use serde_json::Value;

use super::{
    Machine,
    cluster::{MANAGEMENT, NODES},
    node::{NODE, SERVER, THIS_MACHINE},
};
use crate::{
    findings::{Finding, State},
    node_server,
};

/// Another node, and an address of its management port.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Peer {
    name: String,
    address: IpAddr,
}

/// `found`: what API server and this node's server have said.
pub(super) async fn findings(machine: &Machine, found: &[Finding]) -> Vec<Finding> {
    let peers = peers(found);
    if machine.recorded.is_some() || peers.is_empty() {
        return Vec::new();
    }
    let target =
        |peer: &Peer| ReachTarget { kind: ReachKind::Echo, address: peer.address, port: 0 };
    let request = ReachRequest { pod: None, targets: peers.iter().map(target).collect() };
    let body = serde_json::to_vec(&request).unwrap_or_default();
    // A server that does not answer is a finding already; an older one cannot.
    match node_server::ask::<ReachAnswer>(&machine.socket, REACH_PATH, body).await {
        Ok(answer) => verdict(&peers, &answer),
        Err(_) => Vec::new(),
    }
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
    peers.take(MOST_TARGETS).collect()
}

fn verdict(peers: &[Peer], answer: &ReachAnswer) -> Vec<Finding> {
    if let Some(problem) = &answer.problem {
        let why = format!("were not asked: {problem}");
        return vec![Finding::new(THIS_MACHINE, "other nodes", State::Unknown, &why)];
    }
    let silent = |(peer, reply): (&Peer, &Reached)| {
        let how = match reply {
            Reached::Answered => return None,
            Reached::Refused(why) => why.clone(),
            Reached::Silent => "no answer".to_owned(),
        };
        let Peer { name, address } = peer;
        let why =
            format!("its management port {address} does not answer through the tunnel: {how}");
        let next =
            format!("a firewall for UDP port 6081 between the two nodes; ovnkube status on {name}");
        let name = format!("node {name}");
        Some(Finding::new(THIS_MACHINE, &name, State::Failed, &why).next(&next))
    };
    let faults: Vec<Finding> = peers.iter().zip(&answer.replies).filter_map(silent).collect();
    if !faults.is_empty() {
        return faults;
    }
    let said = format!("{} addresses of management ports answer", answer.replies.len());
    vec![Finding::new(THIS_MACHINE, "other nodes", State::Ok, &said)]
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
        let mut answer = ReachAnswer {
            replies: vec![Reached::Answered, Reached::Answered, Reached::Silent],
            ..ReachAnswer::default()
        };
        let faults = verdict(&peers, &answer);
        assert_eq!(
            (faults.len(), &*faults[0].name, faults[0].state),
            (1, "node n4", State::Failed)
        );
        answer.replies[2] = Reached::Answered;
        assert_eq!(verdict(&peers, &answer)[0].state, State::Ok);
    }
}
