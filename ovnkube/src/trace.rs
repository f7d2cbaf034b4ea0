//! `ovnkube trace`: where the first packet of a connection ends, and which object of Kubernetes
//! decides. Nothing is sent, and nothing is written.
//!
//! ```text
//! question ─▶ ends ◀─ API server, southbound database
//!              │
//!              │   arrival: what a node makes of a packet that is not from a pod
//!              ▼  ▼
//!        packet ─▶ ovn-trace ─▶ steps ─▶ way ◀─ objects ◀─ northbound database
//!              │                          │
//!              └─▶ servers of nodes       ▼
//!                  (their switches) ───▶ Report, with the verdict at its end
//! ```

use std::{cell, net::IpAddr, process::ExitCode};

use contract::names::PodKey;
use kubeapi::Connection;
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::{
    api_query::{list, page},
    control_plane::Database,
    explain::Asked,
    findings::{self, Finding, Report, State},
    node_pods::NodeServers,
    status::{
        Reach, StatusConfig,
        databases::{NORTHBOUND, SOUTHBOUND, connect},
    },
};

mod arrival;
mod arriving;
mod crossing;
mod ends;
mod follow;
mod frontends;
mod node;
mod objects;
mod outside;
mod physical;
mod program;
mod question;
mod steps;
pub(crate) mod topology;
mod way;
mod ways;

pub use question::TraceQuestion;

use self::{
    ends::{Destination, EndFinder, NoEnd, PacketStart, families},
    node::NodeFacts,
    topology::{Binding, Topology},
};

const KIND: &str = "Trace";
const ENDS: &str = "ends";
const VERDICT: &str = "verdict";
/// What begins the name of a node's own port ([`contract::ovn::management_port`]).
const NODE_PORT_PREFIX: &str = "k8s-";

/// Answers the question. The exit status is the verdict's.
pub fn run(config: &StatusConfig, question: &TraceQuestion) -> ExitCode {
    findings::run(report(config, question), question.format)
}

/// Where the packet is followed.
struct TracePlaces<'a> {
    question: &'a TraceQuestion,
    southbound: &'a Database,
    /// `None`: it is not known, or does not answer.
    api: Option<Connection>,
    north: Option<ovsdb::Connection>,
    topology: Topology,
    servers: NodeServers<'a>,
    /// Read when a question needs them.
    nodes: OnceCell<Vec<NodeFacts>>,
}

impl TracePlaces<'_> {
    fn finder(&self) -> EndFinder<'_> {
        let (api, north) = (self.api.as_ref(), self.north.as_ref());
        EndFinder { api, north, topology: &self.topology, untold: cell::OnceCell::new() }
    }
}

async fn report(config: &StatusConfig, question: &TraceQuestion) -> Report {
    let mut findings = Vec::new();
    let api = api(config, &mut findings).await;
    let (south, north) = tokio::join!(
        connect(&config.southbound, SOUTHBOUND),
        connect(&config.northbound, NORTHBOUND)
    );
    let topology = match south {
        Ok(south) => Topology::read(&south).await,
        Err(why) => Err(why),
    };
    let north = match north {
        Ok(north) => Some(north),
        Err(why) => {
            let why = format!("{why}: flows have no names of policies and Services");
            let finding = Finding::new("sources", "northbound", State::Warning, &why);
            findings.push(finding.next("--nb-address, or run it where the database is"));
            None
        }
    };
    let (topology, southbound) = match (topology, &config.southbound) {
        (Ok(topology), Reach::Known(southbound)) => (topology, southbound),
        (Err(why), _) => return without_database(question, findings, &why),
        (Ok(_), _) => return without_database(question, findings, "it is not known"),
    };
    let servers = NodeServers::new(&config.machine.socket, &config.namespace, api.clone());
    let nodes = OnceCell::new();
    let places = TracePlaces { question, southbound, api, north, topology, servers, nodes };
    let from = match places.sender().await {
        PacketOrigin::Inside(from) => from,
        PacketOrigin::Outside(client) => {
            match places.way_from_outside(client).await {
                Ok((found, verdicts)) => findings.extend(found.into_iter().chain(verdicts)),
                Err(why) => findings.push(no_end(question, why)),
            }
            return Report::new(KIND, findings);
        }
    };
    let finder = places.finder();
    let start = finder.start(&from).await;
    let destination = finder.destination(&question.to, question.protocol).await;
    if let Some(why) = finder.untold.get() {
        let why = format!("{why}: only what the databases have is known");
        findings.push(Finding::new("sources", "API server", State::Warning, &why));
    }
    let (start, destination) = match (start, destination) {
        (Ok(start), Ok(destination)) => (start, destination),
        (Err(why), _) | (_, Err(why)) => {
            findings.push(no_end(question, why));
            return Report::new(KIND, findings);
        }
    };
    let pairs = families(&start, &destination);
    if pairs.is_empty() {
        let why = "the two ends have no address of a family in common";
        findings.push(Finding::new(VERDICT, &pair(question), State::Failed, why));
    }
    findings.extend(described(&places, &start, &destination));
    let start = start.port;
    let mut verdicts = Vec::new();
    for (from_address, to) in pairs {
        let of_host = match start.port.strip_prefix(NODE_PORT_PREFIX) {
            Some(node) => places.way_from_node(node, to).await,
            None => None,
        };
        let (found, verdict) = match of_host {
            Some(outcome) => outcome,
            None => places.follow(start, (from_address, to), &destination).await,
        };
        findings.extend(found);
        verdicts.push(verdict);
    }
    findings.extend(verdicts);
    Report::new(KIND, findings)
}

/// Who sends the packet.
enum PacketOrigin {
    Inside(Asked),
    /// A machine outside of the cluster, with this address.
    Outside(IpAddr),
}

impl TracePlaces<'_> {
    /// The sender: an address may be a pod's, a node's, or of another machine.
    async fn sender(&self) -> PacketOrigin {
        let Asked::Address(address) = &self.question.from else {
            return PacketOrigin::Inside(self.question.from.clone());
        };
        if self.topology.holder(*address).is_some() {
            return PacketOrigin::Inside(self.question.from.clone());
        }
        let nodes = self.nodes().await.unwrap_or_default();
        let owner = nodes.iter().find(|facts| facts.addresses.contains(address));
        if let Some(facts) = owner {
            return PacketOrigin::Inside(Asked::Node(facts.name.clone()));
        }
        match self.pod_elsewhere(*address).await {
            Some(pod) => PacketOrigin::Inside(Asked::Pod(pod)),
            None => PacketOrigin::Outside(*address),
        }
    }

    /// The pod of another zone with the address: only the API server knows it.
    async fn pod_elsewhere(&self, address: IpAddr) -> Option<PodKey> {
        let api = self.api.as_ref().filter(|_| self.topology.has_other_zones())?;
        let own = address.to_string();
        let has = |pod: &&Value| {
            let all = pod["status"]["podIPs"].as_array().into_iter().flatten();
            pod["spec"]["hostNetwork"] != true && all.into_iter().any(|it| it["ip"] == *own)
        };
        // The API server looks for the first address of a pod only.
        for fields in [format!("status.podIP={address}"), String::new()] {
            let pods = list(api, "/api/v1/pods", &fields).await.ok()?;
            if let Some(pod) = pods.items.iter().find(has) {
                let metadata = &pod["metadata"];
                let (namespace, name) = (metadata["namespace"].as_str()?, &metadata["name"]);
                return PodKey::new(namespace, name.as_str()?).ok();
            }
        }
        None
    }
}

/// The API server, if it answers. A finding says if it does not.
async fn api(config: &StatusConfig, findings: &mut Vec<Finding>) -> Option<Connection> {
    let found = |state, why: &str| Finding::new("sources", "API server", state, why);
    match &config.api_server {
        Reach::Known(api_server) => {
            let api = Connection::open(api_server.clone());
            match page(&api, "/version").await {
                Ok(_) => Some(api),
                // It answers, and may be asked for objects.
                Err(trouble) if trouble.code.is_some_and(|code| code < 500) => Some(api),
                Err(trouble) => {
                    let why = format!("{trouble}: only what the databases have is known");
                    findings.push(found(State::Warning, &why));
                    None
                }
            }
        }
        Reach::NotGiven => {
            let why = "not asked: no kubeconfig is given (--k8s-kubeconfig FILE)";
            findings.push(found(State::Skipped, why));
            None
        }
        Reach::Unusable(why) => {
            findings.push(found(State::Warning, why));
            None
        }
    }
}

fn without_database(question: &TraceQuestion, mut findings: Vec<Finding>, why: &str) -> Report {
    let why = format!("the southbound database is not read: {why}");
    let finding = Finding::new(VERDICT, &pair(question), State::Unknown, &why);
    findings.push(finding.next("ovnkube status, or --sb-address"));
    Report::new(KIND, findings)
}

fn pair(question: &TraceQuestion) -> String {
    format!("{} to {}", question.from, question.to)
}

fn no_end(question: &TraceQuestion, why: NoEnd) -> Finding {
    let (state, why) = match why {
        NoEnd::Absent(why) => (State::Failed, format!("not delivered: {why}")),
        NoEnd::Unknown(why) => (State::Unknown, why),
    };
    let finding = Finding::new(VERDICT, &pair(question), state, &why);
    match why.starts_with("not delivered: there is no ") {
        true => finding.next("kubectl get pods, services, nodes"),
        false => finding,
    }
}

/// What is known of the ends.
fn described(
    places: &TracePlaces<'_>,
    start: &PacketStart<'_>,
    destination: &Destination,
) -> Vec<Finding> {
    let of_port = |name: String, binding: &Binding, addresses: &[IpAddr]| {
        let datapath = places.topology.datapath(binding);
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let (addresses, mac) = (addresses.join(", "), binding.mac.map(|mac| mac.to_string()));
        let mac = mac.unwrap_or_default();
        let said = format!("{addresses}, {mac}, port {} on {}", binding.port, datapath.name);
        let is_up = binding.is_up || binding.is_remote();
        let state = if is_up { State::Ok } else { State::Warning };
        let said = match state {
            State::Ok => said,
            _ => format!("{said}; its flows are not installed on a node yet"),
        };
        let finding = Finding::new(ENDS, &name, state, &said)
            .with("port", binding.port.as_str())
            .with("key", binding.key)
            .with("datapath", datapath.name)
            .with("datapathKey", datapath.key);
        match state {
            State::Ok => finding,
            _ => finding.next("ovnkube status"),
        }
    };
    let question = places.question;
    let mut findings = vec![of_port(question.from.to_string(), start.port, &start.addresses)];
    match destination.port.as_deref().and_then(|port| places.topology.port(port)) {
        Some(binding) => {
            let addresses = &destination.addresses;
            findings.push(of_port(question.to.to_string(), binding, addresses));
        }
        None => {
            let addresses: Vec<String> =
                destination.addresses.iter().map(ToString::to_string).collect();
            let said = format!("{}, {}", addresses.join(", "), question.packet());
            findings.push(Finding::new(ENDS, &question.to.to_string(), State::Ok, &said));
        }
    }
    findings
}

#[cfg(test)]
mod tests;
