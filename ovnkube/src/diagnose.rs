//! `ovnkube diagnose`: the life of a pod's network as a time line, and the first thing in it that
//! is wrong. Nothing is written.
//!
//! ```text
//! API server ──────────▶ created, scheduled, annotated, events, ready ─┐
//! northbound database ─▶ port ─────────────────────────────────────────┤
//! southbound database ─▶ claimed, flows, addresses that two ports have ┼─▶ Report
//! its node ────────────▶ interface, daemons, MTU, CNI configuration ───┤
//! the node's server ───▶ the pod's own network namespace ──────────────┤
//! that namespace ──────▶ what the pod reaches ─────────────────────────┘
//! ```

use std::process::ExitCode;

use contract::{
    annotation::POD_NETWORKS,
    names::{IfaceId, Network, PodKey},
};
use kubeapi::{Connection, Trouble};
use serde_json::Value;

use crate::{
    api_query::get,
    findings::{self, Finding, Format, Report, ReportedFinding, State},
    node_pods::NodeServers,
    status::{
        Reach, StatusConfig, THAT_MACHINE,
        databases::{self, NORTHBOUND, SOUTHBOUND, connect},
        node,
    },
    trace::topology::Topology,
};

mod add;
mod inside;
mod interface;
mod life;
mod reach;
mod rows;

const KIND: &str = "Diagnosis";
const TIME_LINE: &str = "time line";
const CAUSES: &str = "causes";
const VERDICT: &str = "verdict";

/// Which pod is looked at.
#[derive(Debug, Clone)]
pub struct PodQuestion {
    pub pod: PodKey,
    /// Only this machine is asked.
    pub here: bool,
    pub format: Format,
}

/// What the API server says of the pod.
enum Known {
    Pod(Box<Value>),
    Absent,
    /// It is not known, does not answer, or does not let this user read it.
    Unknown,
}

/// Prints the diagnosis. The exit status is the report's.
pub fn run(config: &StatusConfig, question: &PodQuestion) -> ExitCode {
    findings::run(report(config, question), question.format)
}

async fn report(config: &StatusConfig, question: &PodQuestion) -> Report {
    let config = &if question.here { config.here() } else { config.clone() };
    let key = &question.pod;
    let port = IfaceId::new(key, &Network::Default).to_string();
    let ((known, mut findings), (rows, topology), interface) = tokio::join!(
        of_api(config, key),
        of_databases(config, &port),
        interface::findings(&config.machine, &port),
    );
    let pod = match &known {
        Known::Pod(pod) => Some(&**pod),
        Known::Absent | Known::Unknown => None,
    };
    let node = pod.and_then(|pod| pod["spec"]["nodeName"].as_str());
    let is_host = pod.is_some_and(|pod| pod["spec"]["hostNetwork"] == true);
    let has_network = !is_host && !matches!(known, Known::Absent);
    if has_network {
        match topology.as_ref().and_then(|it| rows::of_other_zone(it, node?, key)) {
            Some(elsewhere) => findings.push(elsewhere),
            None => findings.extend(rows),
        }
        findings.extend(interface.clone());
        if config.machine.recorded.is_none() {
            findings.extend(add::finding(key));
        }
        if !interface.is_empty() {
            let (inside, gateways) = inside::findings(&config.machine, question).await;
            findings.extend(inside);
            let host_link = interface.iter().find_map(|found| found.details.get("interface"));
            if let (None, Some(link)) =
                (&config.machine.recorded, host_link.and_then(Value::as_str))
            {
                let link = link.to_owned();
                findings
                    .extend(reach::findings(&config.api_server, key, link, node, gateways).await);
            }
        } else if let Some(node) = node {
            findings.extend(elsewhere(config, key, node).await);
        }
    }
    // Before what it waits for, the pod is not ready: the last of its life.
    findings.extend(pod.map(life::ready));
    let addresses = pod.map(life::addresses).unwrap_or_default();
    findings.extend(topology.iter().flat_map(|it| rows::twice(it, &port, &addresses)));
    let is_here = !interface.is_empty();
    if is_here || node.is_some() || question.here {
        // Only what is wrong: the rest is `ovnkube status`.
        let here = node::findings(&config.machine, node.filter(|_| !is_here)).await;
        findings.extend(here.into_iter().filter(|finding| finding.state > State::Skipped));
    }
    let verdict = verdict(key, &known, is_host, &findings);
    if question.here {
        // That nobody else was asked was asked for.
        let is_elsewhere =
            |found: &Finding| found.subject == CAUSES && found.state == State::Skipped;
        findings.retain(|found| !is_elsewhere(found));
    }
    // In one place, after the verdict: the first that is wrong is that of the pod's life.
    findings.sort_by_key(|found| found.subject != TIME_LINE);
    findings.push(verdict);
    Report::new(KIND, findings)
}

/// What the pod's node says, in the pod of its server.
async fn elsewhere(config: &StatusConfig, key: &PodKey, node: &str) -> Vec<Finding> {
    let api = match &config.api_server {
        Reach::Known(api_server) => Some(Connection::open(api_server.clone())),
        Reach::NotGiven | Reach::Unusable(_) => None,
    };
    let servers = NodeServers::new(&config.machine.socket, &config.namespace, api);
    if servers.is_here(node).await {
        return vec![interface::none_on(node)];
    }
    match servers.found(node, &["diagnose", &key.to_string(), "--here"]).await {
        Ok(found) => {
            let has_interface = found.iter().any(|found| found.name == interface::INTERFACE);
            let none = (!has_interface).then(|| interface::none_on(node));
            none.into_iter().chain(found.into_iter().filter_map(of_node)).collect()
        }
        Err(why) => {
            let why = format!("not looked at: the server of node {node} sees it, and {why}");
            let finding = Finding::new(inside::INSIDE, "namespace", State::Skipped, &why);
            vec![finding.next(&format!("ovnkube diagnose {key} on {node}"))]
        }
    }
}

/// Of what another machine has found, what only it can see.
fn of_node(found: ReportedFinding) -> Option<Finding> {
    let is_of_time_line = [interface::INTERFACE, add::ADD].contains(&found.name.as_str());
    let heading = match found.subject.as_str() {
        inside::INSIDE => inside::INSIDE,
        TIME_LINE if is_of_time_line => TIME_LINE,
        node::THIS_MACHINE => THAT_MACHINE,
        _ => return None,
    };
    Some(found.under(heading))
}

async fn of_api(config: &StatusConfig, key: &PodKey) -> (Known, Vec<Finding>) {
    let found = |state, why: &str| vec![Finding::new(CAUSES, "API server", state, why)];
    let api = match &config.api_server {
        Reach::Known(api_server) => Connection::open(api_server.clone()),
        Reach::NotGiven => {
            let why = "not asked: no kubeconfig is given (--k8s-kubeconfig FILE)";
            return (Known::Unknown, found(State::Skipped, why));
        }
        Reach::Unusable(why) => return (Known::Unknown, found(State::Unknown, why)),
    };
    let collection = format!("/api/v1/namespaces/{}/pods", key.namespace());
    let pod = match get(&api, &collection, key.name()).await {
        Ok(Some(pod)) => pod,
        Ok(None) => return (Known::Absent, Vec::new()),
        Err(trouble) => return (Known::Unknown, vec![unread("pod", &trouble, "get pods")]),
    };
    let mut findings = life::findings(&pod);
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    findings.extend(life::events(&api, key, uid).await);
    (Known::Pod(Box::new(pod)), findings)
}

/// What could not be read, and the right that is missing if that is why.
fn unread(what: &str, trouble: &Trouble, right: &str) -> Finding {
    let finding = Finding::new(CAUSES, "API server", State::Unknown, &format!("{what}: {trouble}"));
    match trouble.code {
        Some(401 | 403) => finding.next(&format!("kubectl auth can-i {right}")),
        Some(429) => {
            finding.next("kubectl get --raw /debug/api_priority_and_fairness/dump_priority_levels")
        }
        _ => finding.next("kubectl get --raw /readyz?verbose"),
    }
}

/// The rows of the pod's port, and all ports if they could be read.
async fn of_databases(config: &StatusConfig, port: &str) -> (Vec<Finding>, Option<Topology>) {
    let (north, south) = tokio::join!(
        connect(&config.northbound, NORTHBOUND),
        connect(&config.southbound, SOUTHBOUND)
    );
    let silent = |name: &str, why: &str, reach_is_given: bool| {
        let state = if reach_is_given { State::Failed } else { State::Skipped };
        let (said, next) = match reach_is_given {
            true => ("does not answer", "ovnkube status"),
            false => {
                ("not asked", "--nb-address and --sb-address, or run it where the databases are")
            }
        };
        Finding::new(CAUSES, name, state, &format!("{said}: {why}")).next(next)
    };
    let is_given = |reach: &Reach<_>| !matches!(reach, Reach::NotGiven);
    let mut findings = Vec::new();
    match &north {
        Ok(north) => findings.push(rows::committed(north, port).await),
        Err(why) => findings.push(silent("northbound", why, is_given(&config.northbound))),
    }
    let south = match south {
        Ok(south) => south,
        Err(why) => {
            findings.push(silent("southbound", &why, is_given(&config.southbound)));
            return (findings, None);
        }
    };
    match Topology::read(&south).await {
        Ok(topology) => {
            let claimed = rows::claimed(&topology, port);
            let is_missing = claimed.iter().any(|finding| finding.state == State::Failed);
            findings.extend(claimed);
            if let (true, Ok(north)) = (is_missing, &north) {
                let northd = databases::northd(north, &south).await;
                findings.extend((northd.state > State::Skipped).then_some(northd));
            }
            (findings, Some(topology))
        }
        Err(why) => {
            findings.push(silent("southbound", &why, true));
            (findings, None)
        }
    }
}

/// The first thing that is wrong, in the order of the pod's life.
fn verdict(key: &PodKey, known: &Known, is_host: bool, findings: &[Finding]) -> Finding {
    let name = key.to_string();
    let found = |state, said: &str| Finding::new(VERDICT, &name, state, said);
    if let Known::Absent = known {
        return found(State::Failed, "there is no such pod")
            .next(&format!("kubectl -n {} get pods", key.namespace()));
    }
    let of_state = |state| findings.iter().find(|finding| finding.state == state);
    // A readiness that is missing follows from what is before it, or from the pod itself.
    let first = of_state(State::Failed).or_else(|| of_state(State::Warning));
    match first {
        Some(first) => {
            let said = format!("first of what is wrong: {}: {}", first.name, first.summary);
            let verdict = found(first.state, &said);
            match &first.next {
                Some(next) => verdict.next(next),
                None => verdict,
            }
        }
        None if is_host => found(State::Ok, "is in its node's network, and OVN has no part in it"),
        None => match of_state(State::Unknown) {
            Some(unknown) => {
                found(State::Unknown, &format!("nothing else is wrong; {}", unknown.summary))
            }
            None => found(State::Ok, "its network is complete"),
        },
    }
}

/// The annotation with the pod's addresses.
fn annotation(pod: &Value) -> Option<&str> {
    pod["metadata"]["annotations"][POD_NETWORKS].as_str()
}
