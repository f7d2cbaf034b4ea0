//! Connections by every way into, out of and through the node: on each, one that lasts and many
//! fresh ones.

use std::{fmt, net::SocketAddr, time::Duration};

use anyhow::Result;
use integration::{
    connections::{Connections, Server},
    peer::{Kept, Moment, Pace},
    traffic::{Drip, Echo, End},
    world::Machine,
};
use serde::Serialize;

use super::site::{
    ANSWER, CLUSTER, ECHO, HOST, HOST_ANSWER, HOST_ECHO, HOST_LOCAL, INSIDE, LOCAL, Site,
};

/// The time between two bytes of a connection that lasts.
const BYTES: Duration = Duration::from_millis(100);
/// Shorter than the second after which TCP repeats a lost SYN: whatever is lost counts.
const FRESH: Pace = Pace { every: Duration::from_millis(50), patience: Duration::from_millis(900) };

pub(super) struct Traffic {
    ways: Vec<Way>,
    _echoes: Vec<Echo>,
    _servers: Vec<Server>,
}

struct Way {
    name: &'static str,
    lasting: Result<Drip>,
    fresh: Connections,
}

/// What became of all of it.
#[derive(Serialize)]
pub(super) struct Outcome(Vec<Row>);

#[derive(Serialize)]
struct Row {
    name: &'static str,
    lasting: Result<Kept, String>,
    answered: usize,
    refused: usize,
    /// Seconds, when those were begun that got no answer.
    lost: Vec<f64>,
    /// Milliseconds: the longest time that a fresh connection took.
    slowest: f64,
}

impl Traffic {
    /// Starts the servers and the clients; each connection has worked once.
    pub(super) fn start(site: &Site) -> Result<Self> {
        let (lab, world) = (&site.cluster.lab, site.cluster.lab.world());
        let (client, server) = (End::Pod(&site.client), End::Pod(&site.server));
        let (node, outside, web) =
            (End::Node(site.node()), End::World(Machine::Client), End::World(Machine::Web));
        let [pod, host, web_address] = [
            site.server.address(),
            world.of_node(site.node())[0],
            world.addresses(Machine::Web)[0],
        ];
        let (mut echoes, mut servers) = (Vec::new(), Vec::new());
        for (end, address, echo, answer) in [
            (&server, pod, ECHO, ANSWER),
            (&node, host, HOST_ECHO, HOST_ANSWER),
            (&web, web_address, ECHO, ANSWER),
        ] {
            echoes.push(lab.tcp_echo(end, SocketAddr::new(address, echo))?);
            servers.push(lab.answering_at(end, &[SocketAddr::new(address, answer)])?);
        }
        let straight = |address| [SocketAddr::new(address, ECHO), SocketAddr::new(address, ANSWER)];
        let [cluster, cluster_port] = site.addresses(CLUSTER)?;
        let [_, local_port] = site.addresses(LOCAL)?;
        let [of_host, of_host_port] = site.addresses(HOST)?;
        let [inside, _] = site.addresses(INSIDE)?;
        let [_, of_host_local_port] = site.addresses(HOST_LOCAL)?;
        let ways = [
            ("pod to pod", &client, straight(pod)),
            ("node to pod", &node, straight(pod)),
            ("pod to world", &client, straight(web_address)),
            ("node to world", &node, straight(web_address)),
            ("pod to ClusterIP", &client, cluster),
            ("pod to its own ClusterIP", &server, cluster),
            ("pod to ClusterIP of the host", &client, of_host),
            ("pod to NodePort", &client, cluster_port),
            ("node to ClusterIP", &node, cluster),
            ("node to ClusterIP, inside Local", &node, inside),
            ("node to ClusterIP of the host", &node, of_host),
            ("node to NodePort", &node, cluster_port),
            ("world to NodePort", &outside, cluster_port),
            ("world to NodePort, Local", &outside, local_port),
            ("world to NodePort of the host", &outside, of_host_port),
            ("world to NodePort of the host, Local", &outside, of_host_local_port),
        ];
        let ways = ways.into_iter().map(|(name, from, [echo, answer])| {
            let lasting = lab.drip(from, echo, BYTES);
            anyhow::Ok(Way { name, lasting, fresh: lab.connections_from(from, answer, FRESH)? })
        });
        let ways = ways.collect::<Result<_>>()?;
        Ok(Self { ways, _echoes: echoes, _servers: servers })
    }

    /// Ends all of it; times are from `start` on.
    pub(super) fn stop(self, start: Moment) -> Outcome {
        let rows = self.ways.into_iter().map(|Way { name, lasting, fresh }| {
            let all = fresh.all();
            let lost =
                fresh.unanswered().into_iter().map(|begun| begun.milliseconds_since(start) / 1e3);
            let refused = all.iter().filter(|connection| connection.by.is_none()).count();
            let took = all
                .iter()
                .map(|connection| connection.answered.milliseconds_since(connection.begun));
            Row {
                name,
                lasting: lasting.and_then(Drip::stop).map_err(|error| format!("{error:#}")),
                answered: all.len() - refused,
                refused,
                lost: lost.collect(),
                slowest: took.fold(0.0, f64::max),
            }
        });
        Outcome(rows.collect())
    }
}

impl Outcome {
    /// Whether every connection was kept, and every fresh one answered.
    pub(super) fn holds(&self) -> bool {
        self.0.iter().all(|row| {
            row.lasting.is_ok() && row.answered > 0 && row.refused == 0 && row.lost.is_empty()
        })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| way | bytes | longest silence | fresh, answered | refused | lost | slowest |\n|---|---|---|---|---|---|---|"
        )?;
        for Row { name, lasting, answered, refused, lost, slowest } in &self.0 {
            match lasting {
                Ok(Kept { bytes, slowest }) => write!(f, "| {name} | {bytes} | {slowest} ms ")?,
                Err(error) => write!(f, "| {name} | broken: {error} | ")?,
            }
            let at: Vec<String> = lost.iter().map(|at| format!(" {at:.1}")).collect();
            let at = if at.is_empty() { String::new() } else { format!(", at{} s", at.concat()) };
            writeln!(f, "| {answered} | {refused} | {}{at} | {slowest:.0} ms |", lost.len())?;
        }
        Ok(())
    }
}
