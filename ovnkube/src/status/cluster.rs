//! What the API server says: the control plane's leader and replicas, and the nodes.

use std::collections::BTreeMap;

use contract::{
    node_annotation::{CHASSIS_ID, NEXT_ZONE, NODE_SUBNETS, ZONE},
    ovn::managements,
};
use ipnet::IpNet;
use k8s_openapi::jiff::Timestamp;
use kubeapi::{Connection, Trouble};
use serde_json::Value;

use super::{CHASSIS, Reach, StatusConfig, objects};
use crate::{
    api_query as api,
    control_plane::LEASE,
    findings::{Finding, State},
};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces";
/// The kubelet renews its Lease each 10 s; after 40 s without, the node is not ready.
const RENEWED: i64 = 40;
/// Seconds between two clocks from which on certificates and Leases are at risk.
const SKEW: i64 = 5;

/// What a kubelet lacks before it stops pods.
const PRESSURES: [&str; 3] = ["DiskPressure", "MemoryPressure", "PIDPressure"];

const CONTROL_PLANE: &str = "control plane";
/// The detail of a node with the addresses of its management port.
pub(super) const MANAGEMENT: &str = "management";
pub(super) const NODES: &str = "nodes";
const NO_NODE: &str = "there is no such node";

/// Whether it says that the node that is asked about is not there.
pub(super) fn is_absent_node(finding: &Finding) -> bool {
    finding.subject == NODES && finding.summary == NO_NODE
}

pub(super) async fn findings(config: &StatusConfig, node: Option<&str>) -> Vec<Finding> {
    let StatusConfig { api_server: reach, namespace, machine, .. } = config;
    let now = machine.now();
    let skipped = |state, why: &str| vec![Finding::new(CONTROL_PLANE, "API server", state, why)];
    let api_server = match reach {
        Reach::Known(api_server) => api_server,
        Reach::NotGiven => {
            return skipped(
                State::Skipped,
                "not asked: no kubeconfig is given (--k8s-kubeconfig FILE)",
            );
        }
        Reach::Unusable(why) => return skipped(State::Unknown, why),
    };
    let api = Connection::open(api_server.clone());
    let mut findings = match api::page(&api, "/version").await {
        Ok(version) => {
            let version = version["gitVersion"].as_str().unwrap_or("of an unknown version");
            let said = format!("{} answers, Kubernetes {version}", api.url());
            vec![
                Finding::new(CONTROL_PLANE, "API server", State::Ok, &said)
                    .with("version", version),
            ]
        }
        Err(trouble) => {
            let said =
                format!("cannot be asked, so that only this machine's part is known: {trouble}");
            let finding = Finding::new(CONTROL_PLANE, "API server", State::Unknown, &said);
            return vec![finding.next(&format!("curl -k {}/readyz", api.url()))];
        }
    };
    let (leader, workloads, nodes, objects) = tokio::join!(
        leader(&api, namespace, now),
        workloads(&api, namespace),
        nodes(&api, node, now),
        objects::findings(&api, node),
    );
    if let Some(absent) = nodes.iter().find(|found| is_absent_node(found)) {
        findings.push(absent.clone());
        return findings;
    }
    findings.push(leader);
    findings.extend(workloads);
    findings.extend(nodes);
    findings.extend(objects);
    findings
}

fn unread(subject: &'static str, name: &str, trouble: &Trouble) -> Finding {
    let finding =
        Finding::new(subject, name, State::Unknown, &format!("cannot be read: {trouble}"));
    if trouble.code == Some(403) {
        return finding.next(
            "kubectl auth can-i --list, and the page reference/report.md for the rights that are needed",
        );
    }
    finding
}

async fn leader(api: &Connection, namespace: &str, now: Timestamp) -> Finding {
    let lease = match api::get(api, &format!("{LEASES}/{namespace}/leases"), LEASE).await {
        Ok(Some(lease)) => lease,
        Ok(None) => {
            let why = format!("no Lease {namespace}/{LEASE}: no control plane has run here");
            return Finding::new(CONTROL_PLANE, "leader", State::Failed, &why)
                .next(&format!("kubectl -n {namespace} get pods"));
        }
        Err(trouble) => return unread(CONTROL_PLANE, "leader", &trouble),
    };
    of_lease(&lease["spec"], now, namespace)
}

/// The leader as the Lease has it. `now` is this machine's time.
fn of_lease(spec: &Value, now: Timestamp, namespace: &str) -> Finding {
    let holder = spec["holderIdentity"].as_str().unwrap_or_default();
    let lasts = spec["leaseDurationSeconds"].as_i64().unwrap_or_default();
    let age = age(&spec["renewTime"], now);
    let next = format!("kubectl -n {namespace} get pods, and the log of the control plane");
    match age {
        _ if holder.is_empty() => Finding::new(
            CONTROL_PLANE,
            "leader",
            State::Failed,
            "none leads: the Lease has no holder",
        )
        .next(&next),
        Some(age) if age > lasts => {
            let why = format!(
                "none leads: {holder} renewed its Lease {age} s ago, and it lasts {lasts} s"
            );
            Finding::new(CONTROL_PLANE, "leader", State::Failed, &why).next(&next)
        }
        Some(age) => {
            let age = age.max(0);
            Finding::new(
                CONTROL_PLANE,
                "leader",
                State::Ok,
                &format!("{holder}, renewed {age} s ago"),
            )
            .with("holder", holder)
            .with("renewedSeconds", age)
        }
        None => Finding::new(
            CONTROL_PLANE,
            "leader",
            State::Unknown,
            "the Lease has no time of renewal",
        ),
    }
}

/// Seconds since the time; negative if it is yet to come.
fn age(time: &Value, now: Timestamp) -> Option<i64> {
    let time: Timestamp = time.as_str()?.parse().ok()?;
    Some(now.as_second() - time.as_second())
}

/// Deployments and DaemonSets of the namespace. None is no fault: services of systemd may run the
/// programs.
async fn workloads(api: &Connection, namespace: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (kind, fields) in [
        ("deployments", ["replicas", "readyReplicas", "updatedReplicas"]),
        ("daemonsets", ["desiredNumberScheduled", "numberReady", "updatedNumberScheduled"]),
    ] {
        match api::list(api, &format!("/apis/apps/v1/namespaces/{namespace}/{kind}"), "").await {
            Ok(listed) => findings.extend(
                listed.items.iter().map(|object| workload(object, kind, fields, namespace)),
            ),
            Err(trouble) => findings.push(unread(CONTROL_PLANE, kind, &trouble)),
        }
    }
    findings
}

fn workload(object: &Value, kind: &str, fields: [&str; 3], namespace: &str) -> Finding {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let [wanted, ready, updated] =
        fields.map(|field| object["status"][field].as_i64().unwrap_or_default());
    let containers = object["spec"]["template"]["spec"]["containers"].as_array();
    let image =
        containers.and_then(|all| all.first()).and_then(|container| container["image"].as_str());
    let image = image.unwrap_or("no image");
    let (state, more) = match () {
        () if ready < wanted => (State::Failed, String::new()),
        () if updated < wanted => (State::Warning, format!(", {updated} of the current release")),
        () => (State::Ok, String::new()),
    };
    let said = format!("{ready} of {wanted} ready{more}, {image}");
    let finding = Finding::new(CONTROL_PLANE, name, state, &said)
        .with("ready", ready)
        .with("wanted", wanted)
        .with("updated", updated)
        .with("image", image);
    match state {
        State::Ok => finding,
        _ => finding.next(&format!("kubectl -n {namespace} describe {kind} {name}")),
    }
}

async fn nodes(api: &Connection, only: Option<&str>, now: Timestamp) -> Vec<Finding> {
    let fields = only.map(|name| format!("metadata.name={name}")).unwrap_or_default();
    let of_nodes = format!("{LEASES}/kube-node-lease/leases");
    let (nodes, leases) =
        tokio::join!(api::list(api, "/api/v1/nodes", &fields), api::list(api, &of_nodes, &fields),);
    let listed = match nodes {
        Ok(listed) => listed,
        Err(trouble) => return vec![unread(NODES, "nodes", &trouble)],
    };
    let mut findings = Vec::new();
    if let (Some(name), true) = (only, listed.items.is_empty()) {
        findings.push(Finding::new(NODES, name, State::Failed, NO_NODE).next("kubectl get nodes"));
    }
    let renewed: BTreeMap<String, i64> = match leases {
        Ok(leases) => leases
            .items
            .iter()
            .filter_map(|lease| {
                let name = lease["metadata"]["name"].as_str()?.to_owned();
                Some((name, age(&lease["spec"]["renewTime"], now)?))
            })
            .collect(),
        Err(trouble) => {
            findings.push(unread(NODES, "clocks", &trouble));
            BTreeMap::new()
        }
    };
    for node in &listed.items {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        findings.push(of_node(node, name, renewed.get(name).copied()));
    }
    if !listed.is_whole {
        findings.push(Finding::new(
            NODES,
            "nodes",
            State::Unknown,
            "there are more than are looked at here",
        ));
    }
    findings
}

/// One node. `renewed`: the seconds since the kubelet renewed its Lease, by the node's clock and
/// this one.
fn of_node(node: &Value, name: &str, renewed: Option<i64>) -> Finding {
    let annotation = |key: &str| node["metadata"]["annotations"][key].as_str();
    let condition = |kind: &str| condition(node, kind);
    let is_true = |condition: &&Value| condition["status"] == "True";
    let is_ready = is_ready(node);
    let describe = format!("kubectl describe node {name}");
    let failed = |why: &str| Finding::new(NODES, name, State::Failed, why);
    let found = if !is_ready {
        let why = condition("Ready").and_then(|condition| condition["message"].as_str());
        failed(&format!("not ready: {}", why.unwrap_or("the kubelet has not reported yet")))
            .next(&describe)
    } else if condition("NetworkUnavailable").as_ref().is_some_and(is_true) {
        failed("ready, but its condition NetworkUnavailable is True").next(&describe)
    } else if annotation(NODE_SUBNETS).is_none() {
        failed("has no subnet for its pods: the cluster manager does not run, or has none left")
            .next("the log of the leader of the control plane")
    } else if annotation(CHASSIS_ID).is_none() {
        failed("its server has not written the chassis' id yet: no server runs there, or it cannot write")
            .next(&format!("ovnkube status on {name}"))
    } else if let Some(pressure) = PRESSURES.into_iter().filter_map(condition).find(is_true) {
        let kind = pressure["type"].as_str().unwrap_or_default();
        let why = pressure["message"].as_str().unwrap_or("the kubelet says no more");
        Finding::new(NODES, name, State::Warning, &format!("ready, and {kind}: {why}"))
            .next(&describe)
    } else if let Some(ahead) = renewed.filter(|age| *age < -SKEW) {
        let why = format!(
            "its clock is {} s ahead of this machine's: certificates and Leases may fail",
            -ahead
        );
        Finding::new(NODES, name, State::Warning, &why)
            .next(&format!("chronyc tracking on {name} and here"))
    } else if let Some(behind) = renewed.filter(|age| *age > RENEWED) {
        let why = format!(
            "it is ready, and its Lease is {behind} s old: its clock is behind this machine's, or its kubelet hangs"
        );
        Finding::new(NODES, name, State::Warning, &why)
            .next(&format!("chronyc tracking on {name} and here"))
    } else if let Some(next) = annotation(NEXT_ZONE) {
        let zone = annotation(ZONE).unwrap_or_default();
        let said = format!("ready, and about to move from zone {zone} to {next}");
        Finding::new(NODES, name, State::Warning, &said)
            .next(&format!("the log of the server on {name}: what the new zone lacks"))
    } else if subnets(node).is_empty() {
        let why = format!(
            "ready, and its subnets cannot be read: {}",
            annotation(NODE_SUBNETS).unwrap_or_default()
        );
        Finding::new(NODES, name, State::Warning, &why).next(&describe)
    } else {
        let subnets = subnets(node).iter().map(ToString::to_string).collect::<Vec<_>>();
        Finding::new(NODES, name, State::Ok, &format!("ready, pods in {}", subnets.join(", ")))
    };
    let management = managements(&subnets(node)).into_iter().map(|net| net.addr().to_string());
    let found = found.with("ready", is_ready).with(MANAGEMENT, management.collect::<Vec<_>>());
    let found = match annotation(ZONE) {
        Some(zone) => found.with("zone", zone),
        None => found,
    };
    match annotation(CHASSIS_ID) {
        Some(chassis) => found.with(CHASSIS, chassis),
        None => found,
    }
}

fn condition<'n>(node: &'n Value, kind: &str) -> Option<&'n Value> {
    node["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// The kubelet says so.
pub(crate) fn is_ready(node: &Value) -> bool {
    condition(node, "Ready").is_some_and(|condition| condition["status"] == "True")
}

/// The node's subnets of the cluster's own network.
pub(crate) fn subnets(node: &Value) -> Vec<IpNet> {
    let annotation = node["metadata"]["annotations"][NODE_SUBNETS].as_str().unwrap_or_default();
    let subnets: Value = serde_json::from_str(annotation).unwrap_or_default();
    let all = match &subnets["default"] {
        one @ Value::String(_) => std::slice::from_ref(one),
        Value::Array(all) => all,
        _ => &[],
    };
    all.iter().filter_map(|subnet| subnet.as_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests;
