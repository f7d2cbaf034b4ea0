//! Flows that are held while something is done to the cluster, and the packets that they lost.

use std::{collections::BTreeMap, net::IpAddr};

use tokio::{
    signal::unix::{SignalKind, signal},
    time::sleep,
};

use super::{
    Disruption, Names, Question,
    cluster::{Cluster, PAUSE},
    manifests::{self, PORT, SERVICE_PORT, pods_of},
    plan::Client,
    site::{Site, running},
};
use crate::{
    chain,
    findings::{Finding, State},
    probe::{Counters, Expect, Kind, Probe},
};

const FLOWS: &str = "flows";

pub(super) async fn findings(
    cluster: &Cluster,
    names: &Names,
    question: &Question,
    disruption: Disruption,
) -> Result<Vec<Finding>, String> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| chain(&error))?;
    let prepared = async {
        let site = Site::prepare(cluster, names, question).await?;
        let clients: Vec<(Client, Vec<Probe>)> =
            (0..site.nodes.len()).flat_map(|number| of_node(&site, number)).collect();
        for (client, flows) in &clients {
            let pod = manifests::holder(client, flows.clone(), &question.image);
            cluster.create(&pods_of(&client.namespace), &pod).await?;
        }
        running(cluster, &pods_of(&names.namespace), site.nodes.len() * 4).await?;
        // From here on each packet counts: what was lost before the first rows were written does
        // not.
        settled(cluster, &clients).await.map(|before| (clients, before))
    };
    let (clients, before) = tokio::select! {
        prepared = prepared => prepared?,
        _ = interrupt.recv() => return Ok(Vec::new()),
    };
    // Also where nobody watches: a script begins what it measures after this line.
    eprintln!("ovnkube: flows are held; Ctrl-C (SIGINT) ends them");
    let over = async {
        match disruption.duration {
            Some(duration) => sleep(duration).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = over => {}
        _ = interrupt.recv() => {}
    }
    // The last packets have their time, too.
    sleep(PAUSE * 3).await;
    let after = counters(cluster, &clients).await?;
    let mut findings = Vec::new();
    for (client, flows) in &clients {
        for flow in flows {
            let (before, after) = (before.get(&flow.name), after.get(&flow.name));
            findings.push(finding(&client.node, &flow.name, before, after, disruption.allowed));
        }
    }
    Ok(findings)
}

/// The clients of a node and their flows: its pod and the node itself, to both servers, the Service
/// and its node ports.
fn of_node(site: &Site, number: usize) -> [(Client, Vec<Probe>); 2] {
    let node = &site.nodes[number];
    let other = site.nodes.get((number + 1) % site.nodes.len());
    let other = other.filter(|other| other.name != node.name);
    let flows = |from: &str, kinds: &[Kind]| {
        let mut flows = Vec::new();
        let mut add = |what: &str, kinds: &[Kind], addresses: &[IpAddr], port: u16| {
            for (kind, address) in
                kinds.iter().flat_map(|kind| addresses.iter().map(move |to| (*kind, to)))
            {
                let name = format!("{from} to {what} {address}, {kind:?}");
                let to = address.to_string();
                flows.push(Probe { name, kind, to, port, expect: Expect::Open });
            }
        };
        add("pod on the node", kinds, &node.server, PORT);
        add("Service", &[Kind::Tcp, Kind::Udp], &site.web.addresses, SERVICE_PORT);
        if let Some([tcp, udp]) = site.web.node_ports {
            add("its node port", &[Kind::Tcp], &node.addresses, tcp);
            add("its node port", &[Kind::Udp], &node.addresses, udp);
        }
        if let Some(other) = other {
            add("pod on the other node", kinds, &other.server, PORT);
            if let Some([tcp, udp]) = site.web.node_ports {
                add("node port of the other node", &[Kind::Tcp], &other.addresses, tcp);
                add("node port of the other node", &[Kind::Udp], &other.addresses, udp);
            }
        }
        flows
    };
    let [pod, host] = Client::holders(&site.names.namespace, number, node);
    [
        (pod, flows(&format!("pod on {}", node.name), &[Kind::Tcp, Kind::Udp, Kind::Icmp])),
        // Echo requests of the node's network need a capability, which the image has not.
        (host, flows(&node.name, &[Kind::Tcp, Kind::Udp])),
    ]
}

/// The counters once each flow has had an answer.
async fn settled(
    cluster: &Cluster,
    clients: &[(Client, Vec<Probe>)],
) -> Result<BTreeMap<String, Counters>, String> {
    let wanted: usize = clients.iter().map(|(_, flows)| flows.len()).sum();
    let mut counted = BTreeMap::new();
    for _ in 0..60 {
        counted = counters(cluster, clients).await.unwrap_or_default();
        let answered = counted.values().filter(|counters| counters.sent > counters.lost).count();
        if answered == wanted {
            return Ok(counted);
        }
        sleep(PAUSE).await;
    }
    let silent = clients.iter().flat_map(|(_, flows)| flows);
    let silent = silent.filter(|flow| {
        counted.get(&flow.name).is_none_or(|counters| counters.sent == counters.lost)
    });
    let names: Vec<&str> = silent.map(|flow| flow.name.as_str()).collect();
    Err(format!(
        "flows without an answer before anything is done: {}; try ovnkube connectivity test",
        names.join("; ")
    ))
}

/// The last counters of each flow.
async fn counters(
    cluster: &Cluster,
    clients: &[(Client, Vec<Probe>)],
) -> Result<BTreeMap<String, Counters>, String> {
    let mut found = BTreeMap::new();
    for (client, flows) in clients {
        let log = cluster.log(&client.namespace, &client.name, Some(flows.len() * 2)).await?;
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Counters>(line).ok());
        found.extend(lines.map(|counters| (counters.flow.clone(), counters)));
    }
    Ok(found)
}

fn finding(
    node: &str,
    name: &str,
    before: Option<&Counters>,
    after: Option<&Counters>,
    allowed: u64,
) -> Finding {
    let (Some(before), Some(after)) = (before, after) else {
        return Finding::new(FLOWS, name, State::Failed, "its client says nothing any more")
            .next(&format!("ovnkube status on {node}"));
    };
    let sent = after.sent.saturating_sub(before.sent);
    let lost = after.lost.saturating_sub(before.lost);
    let broken = after.broken.saturating_sub(before.broken);
    let said = format!(
        "{lost} of {sent} packets lost, {broken} connections broken, longest gap {} ms",
        after.gap_ms
    );
    let is_well = lost <= allowed && (broken == 0 || allowed > 0) && sent > 0;
    let finding = match is_well {
        true => Finding::new(FLOWS, name, State::Ok, &said),
        false => {
            Finding::new(FLOWS, name, State::Failed, &format!("{said}; {allowed} may be lost"))
                .next(&format!("ovnkube status on {node}, and its logs at that time"))
        }
    };
    finding
        .with("sent", sent)
        .with("lost", lost)
        .with("broken", broken)
        .with("gapMilliseconds", after.gap_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_lost_packet_more_than_is_allowed_is_a_failure_and_what_was_lost_before_is_none() {
        let counters =
            |sent, lost, broken| Counters { flow: "f".to_owned(), sent, lost, broken, gap_ms: 5 };
        let before = counters(10, 4, 1);
        for (after, allowed, state) in [
            (counters(100, 4, 1), 0, State::Ok),
            (counters(100, 5, 1), 0, State::Failed),
            (counters(100, 5, 1), 1, State::Ok),
            (counters(100, 6, 1), 1, State::Failed),
            (counters(100, 4, 2), 0, State::Failed),
            // Nothing was sent: nothing is proven.
            (counters(10, 4, 1), 0, State::Failed),
        ] {
            assert_eq!(
                finding("n", "f", Some(&before), Some(&after), allowed).state,
                state,
                "{after:?} {allowed}"
            );
        }
        assert_eq!(finding("n", "f", Some(&before), None, 9).state, State::Failed);
    }
}
