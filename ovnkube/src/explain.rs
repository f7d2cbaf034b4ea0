//! `ovnkube policy explain`: why a pod may connect to another end, or the other end to it, or why
//! not. The API server's objects and the northbound database are read, and nothing is written.
//!
//! ```text
//! API server ─▶ Objects ─▶ verdict: what the policies say ─┐
//!                                                          ├─▶ Page ─▶ standard output
//! northbound database ─▶ ACLs ─▶ what OVN does ────────────┘
//! ```
//!
//! The two are made independently of each other (docs/decisions/one-model-of-policies.md), so that
//! a difference between them is found.

use std::{
    collections::BTreeSet,
    io::{Write as _, stdout},
    net::IpAddr,
    time::Duration,
};

use acl::Packet;
use contract::{
    names::{IfaceId, Network},
    ovn::switch_to_router,
    policy_annotation::Enforcement,
};
use kubeapi::{ApiServer, Connection};
use ovsdb::{Client, Endpoint, Monitor, State};
use tokio::time::timeout;
use verdict::{
    Direction, Place, Policies,
    side::{self, Origin},
};

use crate::{
    chain, control_plane,
    findings::{Colour, Finding, Format, Report, State as Found},
};

mod api;
mod database;
mod ends;
mod model;
mod objects;
mod page;
mod question;
mod report;
mod targets;

pub use question::{Asked, Question};

use self::{
    api::Unanswered,
    database::{Asked as AskedPort, Database},
    ends::{Party, PodFacts},
    objects::Objects,
    page::Page,
    targets::ServiceFacts,
};

/// Where the command reads.
#[derive(Debug, Clone)]
pub struct ExplainConfig {
    pub api_server: ApiServer,
    pub northbound: control_plane::Database,
    /// How long the database may take.
    pub patience: Duration,
}

/// Answers the question on standard output; errors go to standard error. Returns whether the
/// database does what the policies say.
pub fn explain(config: &ExplainConfig, question: &Question, format: Format) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let answer = match runtime {
        Ok(runtime) => runtime.block_on(answer(config, question, format)),
        Err(error) => Err(format!("the runtime of this program: {}", chain(&error))),
    };
    match answer {
        Ok((text, is_carried)) => write!(stdout(), "{text}").is_ok() && is_carried,
        Err(error) => {
            eprintln!("ovnkube: {error}");
            false
        }
    }
}

/// The output, and whether the database does what the policies say.
async fn answer(
    config: &ExplainConfig,
    question: &Question,
    format: Format,
) -> Result<(String, bool), String> {
    let api = Connection::open(config.api_server.clone());
    let objects = Objects::read(&api, question).await.map_err(|error| error.to_string())?;
    let database = read(config, &ports(&objects), &objects.names()).await?;
    let (pages, mut is_carried) = pages(question, &objects, &database)?;
    is_carried &= objects.unread.is_empty();
    let output = match format {
        Format::Text => text(question, &objects, &pages),
        _ => report(question, &objects, pages).output(format, Colour::Plain),
    };
    Ok((output, is_carried))
}

fn text(question: &Question, objects: &Objects, pages: &[Printed]) -> String {
    let summary = objects.targets.service.as_ref().map(|service| {
        let mut text = summary(question, service, pages) + "\n";
        pages.iter().for_each(|page| text += &format!("  {}\n", page.title));
        service.left_out.iter().for_each(|why| text += &format!("  without {why}\n"));
        text
    });
    let pages = pages.iter().map(|page| page.text.clone());
    let mut text = summary.into_iter().chain(pages).collect::<Vec<_>>().join("\n");
    for unread in &objects.unread {
        text += &format!("\nWithout what could not be read: {unread}\n");
    }
    text
}

/// The same for programs.
fn report(question: &Question, objects: &Objects, pages: Vec<Printed>) -> Report {
    let service = objects.targets.service.as_ref().map(|service| {
        let allowed = allowed(&pages);
        let state = match allowed {
            0 => Found::Failed,
            some if some < pages.len() => Found::Warning,
            _ => Found::Ok,
        };
        let name = format!("Service {}", service.key.as_str());
        Finding::new("Service", &name, state, &summary(question, service, &pages))
            .with("backends", pages.len())
            .with("allowed", allowed)
            .with("leftOut", service.left_out.clone())
    });
    let unread = objects
        .unread
        .iter()
        .map(|unread| Finding::new("unread", "API server", Found::Unknown, &unread.to_string()));
    let pages = pages.into_iter().flat_map(|page| page.findings);
    Report::new("Explanation", service.into_iter().chain(pages).chain(unread).collect())
}

/// The logical ports that the connection may pass.
fn ports(objects: &Objects) -> BTreeSet<String> {
    let Objects { client, targets, .. } = objects;
    let servers = targets.all.iter().map(|target| &target.party);
    let own = [client].into_iter().chain(servers).filter_map(Party::pod).map(port);
    // The client's is passed by what leaves the switch.
    own.chain(client.pod().and_then(router_port)).collect()
}

fn port(pod: &PodFacts) -> String {
    IfaceId::new(&pod.key, &Network::Default).to_string()
}

fn router_port(pod: &PodFacts) -> Option<String> {
    pod.node.as_deref().map(switch_to_router)
}

/// A page for each family that both ends have addresses of.
fn pages(
    question: &Question,
    objects: &Objects,
    database: &Database,
) -> Result<(Vec<Printed>, bool), String> {
    let (namespaces, cluster) = (objects.namespaces(), objects.policies_of_cluster());
    let enforced = objects.network_policies(&[Enforcement::Enforced]);
    let all = objects.network_policies(&[Enforcement::Enforced, Enforcement::DryRun]);
    let (nodes, names) = (objects.nodes(), database.names());
    let policies = Policies {
        namespaces: &namespaces,
        nodes: &nodes,
        names: &names,
        policies: &enforced,
        cluster_policies: &cluster,
    };
    let with_dry_runs = Policies { policies: &all, ..policies };
    let firewall = objects.firewall();
    let Objects { client, targets, .. } = objects;
    let client_facts = client.facts();
    let (mut pages, mut is_carried) = (Vec::new(), true);
    let of_families =
        targets.all.iter().flat_map(|target| [false, true].map(|is_ipv6| (target, is_ipv6)));
    for (target, is_ipv6) in of_families {
        let server = &target.party;
        let server_facts = server.facts();
        let Some((from, to)) = client.address(is_ipv6).zip(server.address(is_ipv6)) else {
            continue;
        };
        let place = Place { is_ipv6, protocol: question.protocol, port: target.port };
        let of_own_node = |pod: &PodFacts| client.is_own_node(pod, from, &objects.nodes);
        let origin = match server.pod().is_some_and(of_own_node) {
            true => Origin::OwnNode,
            false => Origin::Elsewhere,
        };
        let connection = side::Connection {
            client: client_facts.end(from),
            server: server_facts.end(to),
            place,
            origin,
        };
        let packet = packet(place, (from, to));
        let is_itself =
            client.pod().zip(server.pod()).is_some_and(|(one, other)| one.key == other.key);
        let end = |direction: Direction, pod: &PodFacts, asked: AskedPort<'_>| page::End {
            side: policies.side(direction, connection),
            with_dry_runs: with_dry_runs.side(direction, connection),
            does: database.does(pod, asked, &packet),
        };
        let leaving = objects.leaving(server, to).map(|pod| {
            let (client, router) = (port(pod), router_port(pod).unwrap_or_default());
            let asked = AskedPort::Leaving { client: &client, router: &router };
            page::Leaving {
                namespace: pod.key.namespace(),
                answer: firewall.answer(to, place, &nodes, &names),
                does: database.does(pod, asked, &packet),
            }
        });
        let page = Page {
            question,
            objects,
            target,
            addresses: [from, to],
            egress: client
                .pod()
                .filter(|_| !is_itself)
                .map(|pod| end(Direction::Egress, pod, AskedPort::Client(&port(pod)))),
            leaving,
            ingress: server
                .pod()
                .filter(|_| !is_itself)
                .map(|pod| end(Direction::Ingress, pod, AskedPort::Server(&port(pod)))),
            is_itself,
        };
        is_carried &= page.is_carried();
        pages.push(Printed {
            title: page.title(),
            text: page.text(),
            findings: page.findings(),
            allows: page.allows(),
        });
    }
    // A Service may be without backends.
    let is_answer = !pages.is_empty() || targets.service.is_some();
    if is_answer { Ok((pages, is_carried)) } else { Err(Unanswered::NoFamily.to_string()) }
}

/// What is said of one connection.
struct Printed {
    title: String,
    text: String,
    findings: Vec<Finding>,
    allows: bool,
}

fn allowed(pages: &[Printed]) -> usize {
    pages.iter().filter(|page| page.allows).count()
}

/// What is said of a Service, in a line.
fn summary(question: &Question, service: &ServiceFacts, pages: &[Printed]) -> String {
    let ServiceFacts { key, addresses, left_out } = service;
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let (addresses, protocol) = (addresses.join(", "), question.protocol.name());
    let allowed = allowed(pages);
    let verdict = match (pages.len(), left_out.len()) {
        (0, 0) => "no backend takes connections from this client, whatever policies say".to_owned(),
        (all, _) => format!("allowed to {allowed} of {all} backends"),
    };
    format!("Service {} ({addresses}), {protocol} port {}: {verdict}", key.as_str(), question.port)
}

fn packet(place: Place, (source, destination): (IpAddr, IpAddr)) -> Packet<'static> {
    let protocol = match place.protocol {
        verdict::Protocol::Tcp => "tcp",
        verdict::Protocol::Udp => "udp",
        verdict::Protocol::Sctp => "sctp",
    };
    Packet { source, destination, protocol, port: place.port, inport: None, outport: None }
}

/// Reads the database, without a copy of it: a few rows of a database that may be large.
async fn read(
    config: &ExplainConfig,
    ports: &BTreeSet<String>,
    names: &BTreeSet<&str>,
) -> Result<Database, String> {
    let control_plane::Database { endpoints, .. } = &config.northbound;
    let is_absent = |endpoint: &Endpoint| match endpoint {
        Endpoint::Unix(path) => !path.exists(),
        _ => false,
    };
    if endpoints.iter().all(is_absent) {
        return Err(format!(
            "the northbound database: there is no socket {endpoints}: --nb-address, or run it \
             where the database is"
        ));
    }
    let (client, _updates) = Client::start(
        endpoints.clone(),
        "OVN_Northbound",
        Monitor::new(),
        config.northbound.options(),
    );
    let read = async { Database::read(&client.connected().await, ports, names).await };
    match timeout(config.patience, read).await {
        Ok(read) => {
            read.map_err(|error| format!("the northbound database {endpoints}: {}", chain(&error)))
        }
        Err(_) => Err(match &*client.state().borrow() {
            State::Connected(_) => {
                format!(
                    "the northbound database {endpoints}: no answer within {:?}",
                    config.patience
                )
            }
            State::Disconnected(why) => {
                format!("the northbound database {endpoints}: {}", chain(why))
            }
        }),
    }
}
