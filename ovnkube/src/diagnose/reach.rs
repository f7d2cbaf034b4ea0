//! What the pod itself reaches: its gateways, the other nodes, the cluster's DNS and API server.
//! Asked with sockets in the pod's network namespace, which takes root on its node.

use std::{net::IpAddr, path::Path};

use contract::{names::PodKey, ovn::managements, paths::NETNS_DIR};
use kubeapi::{Connection, Trouble};
use podnet::{
    pod_look::netns_of,
    reach::{PATIENCE, Reply, Target, TargetKind, reach},
};
use serde_json::Value;
use tokio::task::spawn_blocking;

use crate::{
    api_query::{get, list},
    findings::{Finding, State},
    status::{
        Reach,
        cluster::{is_ready, subnets},
    },
};

/// Gateways that are asked: the pod may have any number of routes.
const MOST_GATEWAYS: usize = 4;
const REACHED: &str = "reached from the pod";
/// Other nodes that are asked.
const MOST_NODES: usize = 8;
/// Services that each pod is told of: the namespace, the name, and how to ask its first port.
const SERVICES: [(&str, &str, TargetKind); 2] =
    [("kube-system", "kube-dns", TargetKind::Dns), ("default", "kubernetes", TargetKind::Connect)];

/// A place that the pod may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    name: String,
    target: Target,
    /// For `ovnkube trace`.
    to: String,
}

/// `host_link`: the host's end of the pod's interface. `node`: the pod's own.
pub(super) async fn findings(
    api_server: &Reach<kubeapi::ApiServer>,
    pod: &PodKey,
    host_link: String,
    node: Option<&str>,
    gateways: Vec<IpAddr>,
) -> Vec<Finding> {
    // The kernel would ask for the link of a link-local one.
    let is_global = |gateway: &IpAddr| match gateway {
        IpAddr::V6(address) => !address.is_unicast_link_local(),
        IpAddr::V4(_) => true,
    };
    let gateways = gateways.into_iter().filter(is_global).take(MOST_GATEWAYS);
    let mut places: Vec<Place> = gateways.map(of_gateway).collect();
    let mut findings = Vec::new();
    let skipped = |what: &str, why: &str| {
        Finding::new(REACHED, what, State::Skipped, &format!("not asked: {why}"))
    };
    if let Reach::Known(api_server) = api_server {
        match places_of_cluster(&Connection::open(api_server.clone()), node).await {
            Ok(more) => places.extend(more),
            Err(trouble) => findings.push(skipped("nodes and Services", &trouble.to_string())),
        }
    }
    let targets: Vec<Target> = places.iter().map(|place| place.target).collect();
    let asked = spawn_blocking(move || {
        let netns = netns_of(&host_link, Path::new(NETNS_DIR))?;
        reach(Some(&netns), &targets, PATIENCE).map_err(|error| error.to_string())
    });
    match asked.await.map_err(|error| error.to_string()).flatten() {
        Ok(replies) => {
            let answered = places.iter().zip(&replies);
            findings.extend(answered.map(|(place, reply)| finding(pod, place, reply)));
        }
        Err(why) => findings.push(
            skipped("places", &why).next(&format!("ovnkube diagnose {pod}, as root on its node")),
        ),
    }
    findings
}

fn of_gateway(address: IpAddr) -> Place {
    let target = Target { kind: TargetKind::Echo, address, port: 0 };
    Place { name: format!("gateway {address}"), target, to: address.to_string() }
}

async fn places_of_cluster(api: &Connection, own: Option<&str>) -> Result<Vec<Place>, Trouble> {
    let mut places = Vec::new();
    let nodes = list(api, "/api/v1/nodes", "").await?;
    let is_other = |node: &&Value| node["metadata"]["name"].as_str() != own && is_ready(node);
    let others = nodes.items.iter().filter(is_other);
    for node in others.take(MOST_NODES) {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        places.extend(managements(&subnets(node)).into_iter().map(|management| Place {
            name: format!("node {name}"),
            target: Target { kind: TargetKind::Echo, address: management.addr(), port: 0 },
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

/// The first port of the protocol, at each address of the Service.
fn of_service(service: &Value, name: &str, kind: TargetKind) -> Vec<Place> {
    let spec = &service["spec"];
    let wanted = if kind == TargetKind::Dns { "UDP" } else { "TCP" };
    let is_wanted = |port: &&Value| port["protocol"].as_str().unwrap_or("TCP") == wanted;
    let port = spec["ports"].as_array().and_then(|all| all.iter().find(is_wanted));
    let port = port.and_then(|port| u16::try_from(port["port"].as_u64()?).ok());
    let addresses = spec["clusterIPs"].as_array().into_iter().flatten();
    let addresses = addresses.filter_map(|address| address.as_str()?.parse().ok());
    let place = |(address, port)| Place {
        name: format!("Service {name}"),
        target: Target { kind, address, port },
        to: format!("svc/{name}"),
    };
    addresses.filter_map(|address| Some((address, port?))).map(place).collect()
}

fn finding(pod: &PodKey, place: &Place, reply: &Reply) -> Finding {
    let Place { name, target: Target { kind, address, port }, to } = place;
    let (what, how) = match kind {
        TargetKind::Echo => ("to an echo request".to_owned(), "--icmp".to_owned()),
        TargetKind::Connect => (format!("over TCP at port {port}"), format!("--tcp {port}")),
        TargetKind::Dns => (format!("over UDP at port {port}"), format!("--udp {port}")),
    };
    let said = match reply {
        Reply::Answered => {
            return Finding::new(REACHED, name, State::Ok, &format!("{address} answers {what}"));
        }
        Reply::Unsent(why) => {
            let why = format!("{address} is not asked: {why}");
            return Finding::new(REACHED, name, State::Skipped, &why);
        }
        Reply::NoRoute => {
            let why = format!("the pod has no route to {address}");
            return Finding::new(REACHED, name, State::Failed, &why)
                .next("ip route, in the pod's network namespace");
        }
        Reply::Refused(why) => format!("{address} does not answer {what}: {why}"),
        Reply::Silent => format!("{address} does not answer {what}"),
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
            "clusterIPs": ["10.96.0.10", "fd00:10:96::a"],
            "ports": [{"port": 9153}, {"port": 53, "protocol": "UDP"}],
        }});
        let places = of_service(&service, "kube-system/kube-dns", TargetKind::Dns);
        assert_eq!(places.len(), 2);
        let silent = finding(&pod, &places[0], &Reply::Silent);
        assert_eq!(silent.state, State::Warning);
        let next = silent.next.unwrap_or_default();
        assert!(next.starts_with("ovnkube trace shop/cart svc/kube-system/kube-dns --udp 53"));
        assert_eq!(finding(&pod, &places[1], &Reply::Answered).state, State::Ok);
        let no_route = finding(&pod, &places[1], &Reply::NoRoute);
        assert_eq!(no_route.next.as_deref(), Some("ip route, in the pod's network namespace"));
        let headless =
            json!({"spec": {"clusterIPs": ["None"], "ports": [{"port": 53, "protocol": "UDP"}]}});
        assert_eq!(of_service(&headless, "a/b", TargetKind::Dns), []);
    }
}
