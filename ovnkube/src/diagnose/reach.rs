//! What the pod itself reaches: its gateways, the other nodes, the cluster's DNS and API server.
//! Asked by the server of its node, with sockets in the pod's network namespace.

use std::net::IpAddr;

use contract::{names::PodKey, ovn::managements};
use kubeapi::{Connection, Trouble};
use podnet::{
    pod_look::wire::InsideRequest,
    reach::wire::{REACH_PATH, ReachAnswer, ReachKind, ReachRequest, ReachTarget, Reached},
};
use serde_json::Value;

use crate::{
    findings::{Finding, State},
    node_server,
    status::{
        Machine, Reach,
        api::{get, list},
        cluster::subnets,
    },
};

const REACHED: &str = "reached from the pod";
/// Other nodes that are asked.
const MOST_NODES: usize = 8;
/// Services that each pod is told of: the namespace, the name, and how to ask its first port.
const SERVICES: [(&str, &str, ReachKind); 2] =
    [("kube-system", "kube-dns", ReachKind::Dns), ("default", "kubernetes", ReachKind::Connect)];

/// A place that the pod may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    name: String,
    target: ReachTarget,
    /// For `ovnkube trace`.
    to: String,
}

/// `node`: the pod's own.
pub(super) async fn findings(
    machine: &Machine,
    api_server: &Reach<kubeapi::ApiServer>,
    pod: &PodKey,
    node: Option<&str>,
    gateways: Vec<IpAddr>,
) -> Vec<Finding> {
    if machine.recorded.is_some() {
        return Vec::new();
    }
    let mut places: Vec<Place> = gateways.into_iter().map(of_gateway).collect();
    let mut findings = Vec::new();
    if let Reach::Known(api_server) = api_server {
        match places_of_cluster(&Connection::open(api_server.clone()), node).await {
            Ok(more) => places.extend(more),
            Err(trouble) => {
                let why = format!("nodes and Services are not asked: {trouble}");
                findings.push(Finding::new(REACHED, "cluster", State::Skipped, &why));
            }
        }
    }
    let inside =
        InsideRequest { namespace: pod.namespace().to_owned(), name: pod.name().to_owned() };
    let targets = places.iter().map(|place| place.target).collect();
    let request = ReachRequest { pod: Some(inside), targets };
    let body = serde_json::to_vec(&request).unwrap_or_default();
    // A server that does not answer is a finding already; an older one cannot.
    if let Ok(answer) = node_server::ask::<ReachAnswer>(&machine.socket, REACH_PATH, body).await {
        findings.extend(answer.problem.map(|problem| {
            Finding::new(REACHED, "places", State::Skipped, &format!("not asked: {problem}"))
        }));
        let answered = places.iter().zip(&answer.replies);
        findings.extend(answered.map(|(place, reply)| finding(pod, place, reply)));
    }
    findings
}

fn of_gateway(address: IpAddr) -> Place {
    let target = ReachTarget { kind: ReachKind::Echo, address, port: 0 };
    Place { name: format!("gateway {address}"), target, to: address.to_string() }
}

async fn places_of_cluster(api: &Connection, own: Option<&str>) -> Result<Vec<Place>, Trouble> {
    let mut places = Vec::new();
    let nodes = list(api, "/api/v1/nodes", "").await?;
    let others = nodes.items.iter().filter(|node| node["metadata"]["name"].as_str() != own);
    for node in others.take(MOST_NODES) {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        places.extend(managements(&subnets(node)).into_iter().map(|management| Place {
            name: format!("node {name}"),
            target: ReachTarget { kind: ReachKind::Echo, address: management.addr(), port: 0 },
            to: management.addr().to_string(),
        }));
    }
    for (namespace, name, kind) in SERVICES {
        let services = format!("/api/v1/namespaces/{namespace}/services");
        if let Some(service) = get(api, &services, name).await? {
            places.extend(of_service(&service, &format!("{namespace}/{name}"), kind));
        }
    }
    Ok(places)
}

/// The first port of the Service, at each of its addresses.
fn of_service(service: &Value, name: &str, kind: ReachKind) -> Vec<Place> {
    let spec = &service["spec"];
    let port = spec["ports"][0]["port"].as_u64().and_then(|port| u16::try_from(port).ok());
    let addresses = spec["clusterIPs"].as_array().into_iter().flatten();
    let addresses = addresses.filter_map(|address| address.as_str()?.parse().ok());
    let place = |(address, port)| Place {
        name: format!("Service {name}"),
        target: ReachTarget { kind, address, port },
        to: format!("svc/{name}"),
    };
    addresses.filter_map(|address| Some((address, port?))).map(place).collect()
}

fn finding(pod: &PodKey, place: &Place, reply: &Reached) -> Finding {
    let Place { name, target: ReachTarget { kind, address, port }, to } = place;
    let (what, how) = match kind {
        ReachKind::Echo => ("to an echo request".to_owned(), "--icmp".to_owned()),
        ReachKind::Connect => (format!("over TCP at port {port}"), format!("--tcp {port}")),
        ReachKind::Dns => (format!("over UDP at port {port}"), format!("--udp {port}")),
    };
    let said = match reply {
        Reached::Answered => {
            return Finding::new(REACHED, name, State::Ok, &format!("{address} answers {what}"));
        }
        Reached::Refused(why) => format!("{address} does not answer {what}: {why}"),
        Reached::Silent => format!("{address} does not answer {what}"),
    };
    // A policy may want it so.
    Finding::new(REACHED, name, State::Warning, &said)
        .next(&format!("ovnkube trace {pod} {to} {how}, which names the policy if one forbids it"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_without_an_answer_leads_to_the_command_that_names_the_policy() {
        let pod = PodKey::new("shop", "cart").unwrap();
        let service = json!({"spec": {
            "clusterIPs": ["10.96.0.10", "fd00:10:96::a"], "ports": [{"port": 53}]
        }});
        let places = of_service(&service, "kube-system/kube-dns", ReachKind::Dns);
        assert_eq!(places.len(), 2);
        let silent = finding(&pod, &places[0], &Reached::Silent);
        assert_eq!(silent.state, State::Warning);
        let next = silent.next.unwrap_or_default();
        assert!(next.starts_with("ovnkube trace shop/cart svc/kube-system/kube-dns --udp 53"));
        assert_eq!(finding(&pod, &places[1], &Reached::Answered).state, State::Ok);
        let headless = json!({"spec": {"clusterIPs": ["None"], "ports": [{"port": 53}]}});
        assert_eq!(of_service(&headless, "a/b", ReachKind::Dns), []);
    }
}
