//! `ovnkube policy explain`: why a pod may connect to another one, or may not. The API server's objects and
//! the northbound database are read, and nothing is written.
//!
//! ```text
//! API server ─▶ Objects ─▶ verdict: what the policies say ─┐
//!                                                          ├─▶ Page ─▶ standard output
//! northbound database ─▶ ACLs ─▶ what OVN does ────────────┘
//! ```
//!
//! The two are made independently of each other (docs/decisions/one-model-of-policies.md), so that a
//! difference between them is found.

use std::{
    io::{Write as _, stdout},
    net::IpAddr,
    time::Duration,
};

use acl::Packet;
use contract::{
    names::{IfaceId, Network},
    policy_annotation::Enforcement,
};
use kubeapi::{ApiServer, Connection};
use ovsdb::{Client, Monitor, State};
use tokio::time::timeout;
use verdict::{Direction, Place, Policies, side};

use crate::{chain, control_plane};

mod database;
mod objects;
mod page;
mod question;

pub use question::{Command, Question};

use self::{
    database::Database,
    objects::{Objects, PodFacts, Unanswered},
    page::Page,
};

/// Where the command reads.
#[derive(Debug, Clone)]
pub struct ExplainConfig {
    pub api_server: ApiServer,
    pub northbound: control_plane::Database,
    /// How long the database may take.
    pub patience: Duration,
}

/// Answers the question on standard output; errors go to standard error. Returns whether the database does
/// what the policies say.
pub fn explain(config: &ExplainConfig, question: &Question) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let answer = match runtime {
        Ok(runtime) => runtime.block_on(answer(config, question)),
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

/// The text, and whether the database does what the policies say.
async fn answer(config: &ExplainConfig, question: &Question) -> Result<(String, bool), String> {
    let api = Connection::open(config.api_server.clone());
    let names =
        [&question.client, &question.server].map(|key| IfaceId::new(key, &Network::Default).to_string());
    let objects = async {
        Objects::read(&api, &question.client, &question.server).await.map_err(|error| error.to_string())
    };
    let database = read(config, [&names[0], &names[1]]);
    let (objects, database) = tokio::join!(objects, database);
    let (objects, database) = (objects?, database?);
    let (pages, mut is_carried) = pages(question, &objects, &database, &names)?;
    let mut text = pages.join("\n");
    for unread in &objects.unread {
        is_carried = false;
        text += &format!("\nWithout policies that could not be read: {unread}\n");
    }
    Ok((text, is_carried))
}

/// A page for each family that both pods have addresses of.
fn pages(
    question: &Question,
    objects: &Objects,
    database: &Database,
    names: &[String; 2],
) -> Result<(Vec<String>, bool), String> {
    let (namespaces, cluster) = (objects.namespaces(), objects.policies_of_cluster());
    let enforced = objects.network_policies(&[Enforcement::Enforced]);
    let all = objects.network_policies(&[Enforcement::Enforced, Enforcement::DryRun]);
    // Both ends are pods: no node's address is one of theirs, and no name stands for one.
    let policies = Policies {
        namespaces: &namespaces,
        nodes: &[],
        names: &[],
        policies: &enforced,
        cluster_policies: &cluster,
    };
    let with_dry_runs = Policies { policies: &all, ..policies };
    let Objects { client, server, .. } = objects;
    let (client_labels, server_labels) = (client.labels(), server.labels());
    let (client_ports, server_ports) = (client.ports(), server.ports());
    let (mut pages, mut is_carried) = (Vec::new(), true);
    for is_ipv6 in [false, true] {
        let of_family = |pod: &PodFacts| pod.addresses.iter().copied().find(|ip| ip.is_ipv6() == is_ipv6);
        let Some(addresses @ (from, to)) = of_family(client).zip(of_family(server)) else { continue };
        let connection = side::Connection {
            client: client.end(&client_labels, &client_ports, from),
            server: server.end(&server_labels, &server_ports, to),
            place: Place { is_ipv6, protocol: question.protocol, port: question.port },
        };
        let packet = packet(question, addresses);
        let end = |direction, name: &str| page::End {
            side: policies.side(direction, connection),
            with_dry_runs: with_dry_runs.side(direction, connection),
            carried: database.carries(name, direction, &packet),
        };
        let page = Page {
            question,
            objects,
            addresses: [from, to],
            ends: [end(Direction::Egress, &names[0]), end(Direction::Ingress, &names[1])],
        };
        is_carried &= page.is_carried();
        pages.push(page.text());
    }
    if pages.is_empty() { Err(Unanswered::NoFamily.to_string()) } else { Ok((pages, is_carried)) }
}

fn packet(question: &Question, (source, destination): (IpAddr, IpAddr)) -> Packet<'static> {
    let protocol = match question.protocol {
        verdict::Protocol::Tcp => "tcp",
        verdict::Protocol::Udp => "udp",
        verdict::Protocol::Sctp => "sctp",
    };
    Packet { source, destination, protocol, port: question.port, inport: None, outport: None }
}

/// Reads the database, without a copy of it: a few rows of a database that may be large.
async fn read(config: &ExplainConfig, names: [&str; 2]) -> Result<Database, String> {
    let control_plane::Database { endpoints, .. } = &config.northbound;
    let (client, _updates) =
        Client::start(endpoints.clone(), "OVN_Northbound", Monitor::new(), config.northbound.options());
    let read = async { Database::read(&client.connected().await, names).await };
    match timeout(config.patience, read).await {
        Ok(read) => read.map_err(|error| format!("the northbound database {endpoints}: {}", chain(&error))),
        Err(_) => Err(match &*client.state().borrow() {
            State::Connected(_) => {
                format!("the northbound database {endpoints}: no answer within {:?}", config.patience)
            }
            State::Disconnected(why) => format!("the northbound database {endpoints}: {}", chain(why)),
        }),
    }
}
