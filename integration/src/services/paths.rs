//! Ways of packets on each side, by small requests one after the other and by a stream of bytes.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use integration::{Datapath, Pod, connections::Server, eventually, traffic::End, world::Machine};
use serde_json::{Value, json};

use super::{
    report::{Both, Figures},
    round::SERVICES,
    site::{Network, PATIENCE, Side, Site, idle},
};

/// Where requests are answered, and where a stream is read.
const PORTS: [u16; 2] = [8080, 8081];

/// How long and how often each path is measured: some thousand requests each time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turns {
    pub(crate) count: u8,
    pub(crate) time: Duration,
}

/// What is measured, in this order.
pub(super) const PATHS: [&str; 5] = [
    "pod to the world",
    "world to NodePort",
    "host to ClusterIP on the other node",
    "pod to ClusterIP on the other node",
    "the same, straight to the pod",
];

/// A way of packets: its beginning, and the addresses of [`PORTS`].
struct Path<'a>(End<'a>, [SocketAddr; 2]);

impl Site {
    /// Measures all paths of both sides in turn.
    pub(crate) fn paths(&self, turns: Turns, say: &dyn Fn(&str)) -> Result<Vec<Both<Figures>>> {
        let web = self.cluster.lab.world().addresses(Machine::Web)[0];
        let _web = self.serve(&End::World(Machine::Web), web)?;
        let mut figures: Vec<Both<Figures>> = PATHS.iter().map(|_| Both::default()).collect();
        let [ours, reference] = self.sides();
        let (server_of_ours, _one) = self.server_pod(ours)?;
        let (server_of_reference, _other) = self.server_pod(reference)?;
        let paths = [
            (ours, self.of_side(ours, web, &server_of_ours)?),
            (reference, self.of_side(reference, web, &server_of_reference)?),
        ];
        for (side, paths) in &paths {
            for (path, what) in paths.iter().zip(PATHS) {
                self.answers(path).with_context(|| format!("{}, {what}", side.network))?;
            }
        }
        if !self.cluster.has_kubelets() {
            self.pause_writers()?;
        }
        for (index, what) in PATHS.iter().enumerate() {
            for turn in 1..=turns.count {
                for (side, paths) in &paths {
                    let of_side = figures[index].of_mut(side.network);
                    self.turn(side, &paths[index], turns.time, of_side)
                        .with_context(|| format!("{}, {what}", side.network))?;
                    say(&format!(
                        "{what}, turn {turn} of {}, {}: {of_side}",
                        turns.count, side.network
                    ));
                }
            }
        }
        Ok(figures)
    }

    /// One turn of one path.
    fn turn(
        &self,
        side: &Side,
        path: &Path<'_>,
        time: Duration,
        figures: &mut Figures,
    ) -> Result<()> {
        let lab = &self.cluster.lab;
        self.answers(path)?;
        if side.network == Network::Ours && Datapath::of_lab() == Datapath::Netdev {
            // What is tracked of earlier connections between the same two ports keeps Open
            // vSwitch's userspace conntrack from translating one: "Unable to NAT due to tuple space
            // exhaustion".
            for node in &lab.nodes[..2] {
                node.run(["ovs-appctl", "dpctl/flush-conntrack"])?;
            }
        }
        let Path(from, [ask, pour]) = path;
        figures.microseconds.push(lab.repeated_from(from, *ask, time)?);
        figures.megabits.push(lab.poured(from, *pour, time)?.megabits());
        Ok(())
    }

    fn answers(&self, Path(from, [ask, _]): &Path<'_>) -> Result<()> {
        eventually("the address answers", PATIENCE, || {
            let [answers, _] = self.cluster.lab.ask(from, &[*ask], &[])?;
            ensure!(answers.iter().all(|answer| answer.address().is_some()), "{answers:?}");
            Ok(())
        })
    }

    /// The paths of a side, in the order of [`PATHS`].
    fn of_side<'a>(&'a self, side: &'a Side, web: IpAddr, server: &Pod) -> Result<[Path<'a>; 5]> {
        let name = &server.name;
        let ports: Vec<Value> = (80..)
            .zip(PORTS)
            .map(|(port, target)| json!({ "name": format!("port-{port}"), "port": port, "targetPort": target }))
            .collect();
        let spec = json!({ "type": "NodePort", "selector": { "name": name }, "ports": ports });
        let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name }, "spec": spec });
        let mut created = self.cluster.api.create(SERVICES, &service)?;
        if !self.cluster.has_kubelets() {
            self.cluster.write_endpoint(&created, server)?;
        }
        let spec = created["spec"].take();
        let address: IpAddr =
            spec["clusterIP"].as_str().context("the Service has no address")?.parse()?;
        let number = |port: usize, field: &str| {
            let number =
                spec["ports"][port][field].as_u64().with_context(|| format!("no {field}"))?;
            anyhow::Ok(u16::try_from(number)?)
        };
        let [server_node, client_node] = self.nodes(side);
        let of_node = self.cluster.lab.world().of_node(server_node)[0];
        let node_ports = [number(0, "nodePort")?, number(1, "nodePort")?];
        let at =
            |address: IpAddr, ports: [u16; 2]| ports.map(|port| SocketAddr::new(address, port));
        let pod = End::Pod(&side.client);
        Ok([
            Path(pod, at(web, PORTS)),
            Path(End::World(Machine::Client), at(of_node, node_ports)),
            Path(End::Node(client_node), at(address, [80, 81])),
            Path(pod, at(address, [80, 81])),
            Path(pod, at(server.address(), PORTS)),
        ])
    }

    /// A pod that serves on the first node of a side, as long as its servers are kept.
    fn server_pod(&self, side: &Side) -> Result<(Pod, [Server; 2])> {
        let [node, _] = self.nodes(side);
        let pod = idle(&self.cluster, &format!("server-{}", side.network), node)?;
        let servers = self.serve(&End::Pod(&pod), pod.address())?;
        Ok((pod, servers))
    }

    fn serve(&self, at: &End<'_>, address: IpAddr) -> Result<[Server; 2]> {
        let [answer, drain] = PORTS.map(|port| SocketAddr::new(address, port));
        Ok([self.cluster.lab.answering_at(at, &[answer])?, self.cluster.lab.draining(at, drain)?])
    }
}
