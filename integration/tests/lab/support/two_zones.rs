//! Zones on one machine: each has OVN's databases of its own, nodes with their servers, and a
//! controller. A cluster manager numbers the nodes of all. The API server is the test's.

use std::{
    net::{IpAddr, SocketAddr},
    path::Path,
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Daemon, Lab, Node, Pod, by_hand,
    central::Central,
    eventually, executable, fabric, mounts,
    peer::Reply,
    traffic::{End, Flow, Lasting},
};
use serde_json::json;

use crate::support::api::Api;

/// Limit for rows, flows and tunnels to follow, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// How long nothing may be written after a start.
pub(crate) const QUIET: Duration = Duration::from_secs(5);
/// The port of a server.
pub(crate) const PORT: u16 = 8080;
/// Rows of a node in another zone: a port, a chassis and, in each family, routes to its pods, to its
/// gateway router, and to the source of what its host forwards.
pub(crate) const WAY: usize = 2 + 2 * 3;
const SUBNETS: [&str; 2] = [
    "--cluster-subnets=10.244.0.0/16/24,fd00:10:244::/48",
    "--k8s-service-cidrs=10.96.0.0/16,fd00:10:96::/112",
];

/// The zones `a`, with the lab's own databases and the first half of its nodes, and `b`.
pub(crate) struct TwoZones<'l> {
    pub(crate) manager: Daemon,
    pub(crate) a: Zone<'l>,
    pub(crate) b: Zone<'l>,
}

impl<'l> TwoZones<'l> {
    /// All of them, running. `of_b`: the central part of zone `b`.
    pub(crate) fn start(lab: &'l Lab, of_b: &'l Central, api: &Api) -> Result<Self> {
        let (in_a, in_b) = lab.nodes.split_at(lab.nodes.len().div_ceil(2));
        // The lab's nodes have begun in the first zone's database. ovn-controller 23.03 may end by
        // SIGSEGV where its database becomes another one while it writes.
        for node in in_b {
            let remote = format!("external_ids:ovn-remote={}", of_b.southbound_address());
            node.ovn_controller.stop()?;
            node.vsctl(["set", "Open_vSwitch", ".", &remote])?;
            node.start_ovn_controller()?;
            let chassis = node.name.as_str();
            eventually("the node is in its zone's database", SOON, || {
                of_b.sbctl(["get", "Chassis", chassis, "name"]).map(drop)
            })?;
            lab.central.sbctl(["--if-exists", "chassis-del", chassis])?;
        }
        lab.nodes.iter().for_each(|node| tell_node(api, node));
        let manager = manager(api);
        manager.spawn()?;
        let a = Zone::start("a", &lab.central, in_a, api)?;
        let b = Zone::start("b", of_b, in_b, api)?;
        for node in &lab.nodes {
            eventually("the node has said what other zones need", SOON, || {
                let needed =
                    ["node-id", "node-transit-switch-port-ifaddr", "zone-name", "node-encap-ips"];
                let missing = needed.iter().find(|key| annotation(api, &node.name, key).is_none());
                ensure!(missing.is_none(), "{} has no {missing:?}", node.name);
                Ok(())
            })?;
        }
        Ok(Self { manager, a, b })
    }
}

/// The cluster manager, not running yet.
pub(crate) fn manager(api: &Api) -> Daemon {
    let role = "--init-cluster-manager=manager".to_owned();
    process(api, "manager", role, &["--enable-interconnect".to_owned()])
}

/// An annotation of a node, by its name after `k8s.ovn.org/`.
pub(crate) fn annotation(api: &Api, node: &str, key: &str) -> Option<String> {
    api.annotation(node, &format!("k8s.ovn.org/{key}"))
}

/// A zone: its databases, its nodes, its controller.
pub(crate) struct Zone<'l> {
    pub(crate) name: &'l str,
    pub(crate) central: &'l Central,
    pub(crate) nodes: &'l [Node],
    pub(crate) controller: Daemon,
}

impl<'l> Zone<'l> {
    /// The zone with its controller and the servers of its nodes, running.
    pub(crate) fn start(
        name: &'l str,
        central: &'l Central,
        nodes: &'l [Node],
        api: &Api,
    ) -> Result<Self> {
        let zone = Self::control(name, central, nodes, api)?;
        nodes.iter().try_for_each(|node| zone.serve(node, api))?;
        Ok(zone)
    }

    /// The zone with its controller.
    pub(crate) fn control(
        name: &'l str,
        central: &'l Central,
        nodes: &'l [Node],
        api: &Api,
    ) -> Result<Self> {
        let (northbound, southbound) = (central.northbound_address(), central.southbound_address());
        central.nbctl(["init", "--", "set", "NB_Global", ".", &format!("name={name}")])?;
        let databases =
            [format!("--nb-address={northbound}"), format!("--sb-address={southbound}")];
        let options = [&databases[..], &of_zone(name)].concat();
        let role = format!("--init-ovnkube-controller=controller-{name}");
        let controller = process(api, &format!("controller-{name}"), role, &options);
        controller.spawn()?;
        Ok(Self { name, central, nodes, controller })
    }

    /// Starts the node's server in this zone.
    pub(crate) fn serve(&self, node: &Node, api: &Api) -> Result<()> {
        Self::serve_at(self.name, &self.central.southbound_address(), node, api)
    }

    /// The same in a zone whose southbound database is here.
    pub(crate) fn serve_at(name: &str, southbound: &str, node: &Node, api: &Api) -> Result<()> {
        Self::serve_with(&of_zone(name), southbound, node, api)
    }

    /// The same with these options of the zone.
    pub(crate) fn serve_with(
        options: &[String],
        southbound: &str,
        node: &Node,
        api: &Api,
    ) -> Result<()> {
        let database = format!("--sb-address={southbound}");
        let own = [format!("--init-node={}", node.name), format!("--mtu={}", node.mtu), database];
        node.server.set_arguments([&own[..], options, &common(api)].concat());
        node.start_server()
    }

    /// Waits until the zone has tunnels to these nodes of another zone.
    pub(crate) fn has_tunnels_to(&self, nodes: &[Node]) -> Result<()> {
        eventually("the chassis of the other zone are there", SOON, || {
            for node in nodes {
                let key = "other_config:is-remote";
                let remote = self.central.sbctl(["get", "Chassis", &node.name, key])?;
                ensure!(remote.contains("true"), "{}: {remote}", node.name);
                let port = format!("logical_port=tstor-{}", node.name);
                let port = ["--bare", "--columns=chassis", "find", "Port_Binding", &port];
                let bound = self.central.sbctl(port)?;
                ensure!(!bound.trim().is_empty(), "{} is not bound", node.name);
            }
            Ok(())
        })
    }

    /// What the zone's databases have of a node of another zone: its port, its routes, its chassis.
    pub(crate) fn rows_of(&self, node: &Node) -> Result<Vec<String>> {
        let of_node = |output: String| -> Vec<String> {
            output.split_whitespace().map(str::to_owned).collect()
        };
        let find = |table: &str, column: &str, condition: String| {
            let column = format!("--columns={column}");
            self.central.nbctl(["--bare", &column, "find", table, &condition])
        };
        let name = &node.name;
        let port = find("Logical_Switch_Port", "name", format!("name=tstor-{name}"))?;
        let routes = find(
            "Logical_Router_Static_Route",
            "ip_prefix",
            format!("external_ids:ic-node={name}"),
        )?;
        let hostname = format!("hostname={name}");
        let chassis =
            self.central.sbctl(["--bare", "--columns=name", "find", "Chassis", &hostname])?;
        Ok([port, routes, chassis].into_iter().flat_map(of_node).collect())
    }
}

pub(crate) fn of_zone(name: &str) -> [String; 2] {
    [format!("--zone={name}"), "--enable-interconnect".to_owned()]
}

fn common(api: &Api) -> Vec<String> {
    let api = format!("--k8s-apiserver={}", api.url());
    [api].into_iter().chain(SUBNETS.map(str::to_owned)).collect()
}

pub(crate) fn process(api: &Api, name: &str, role: String, options: &[String]) -> Daemon {
    let log = Path::new(mounts::LOGS).join(format!("central/{name}.out"));
    let program = || Ok(Command::new(executable::under_test(executable::SERVER)?));
    let file = format!("--logfile={}", log.with_extension("log").display());
    let arguments: Vec<String> =
        [role, file].into_iter().chain(common(api)).chain(options.iter().cloned()).collect();
    Daemon::new(name.to_owned(), log, program, arguments)
}

/// The node as it joins: with subnets, which the lab has chosen, and nothing else.
pub(crate) fn tell_node(api: &Api, node: &Node) {
    let subnets: Vec<String> = node.subnets.iter().map(ToString::to_string).collect();
    let annotations = json!({"k8s.ovn.org/node-subnets": json!({"default": subnets}).to_string()});
    let metadata = json!({"name": node.name, "uid": node.name, "annotations": annotations});
    let status =
        json!({"addresses": [{"type": "InternalIP", "address": fabric::address(node.index)}]});
    api.put(json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}));
}

/// A new pod with this label.
pub(crate) fn new_pod(lab: &Lab, api: &Api, node: &Node, app: &str) -> Result<Pod> {
    let mut pod = lab.plan_pod(node);
    pod.namespace = "lab".to_owned();
    node.add_namespaces(std::slice::from_ref(&pod))?;
    let annotations = json!({"k8s.ovn.org/pod-networks": pod.annotation().to_string()});
    api.put(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "lab", "name": pod.name, "uid": pod.uid, "labels": {"app": app}, "annotations": annotations},
        "spec": {"nodeName": node.name, "containers": [{"name": "main", "image": "none"}]},
    }));
    by_hand::attach(node, &pod)?;
    Ok(pod)
}

/// Waits until TCP connections from the pod to these places are answered by these, or by none.
pub(crate) fn reach(
    lab: &Lab,
    what: &str,
    from: &Pod,
    to: &[SocketAddr],
    by: Option<&[SocketAddr]>,
) -> Result<()> {
    eventually(what, SOON, || {
        let [replies, _] = lab.ask(&End::Pod(from), to, &[])?;
        let is_right = |(place, reply): (usize, &Reply)| match by {
            Some(by) => *reply == Reply::By(by[place]),
            None => !matches!(reply, Reply::By(_)),
        };
        ensure!(replies.iter().enumerate().all(is_right), "{to:?}: {replies:?}");
        Ok(())
    })
}

pub(crate) fn pings(lab: &Lab, what: &str, from: &Pod, to: &Pod) -> Result<()> {
    eventually(what, SOON, || {
        to.addresses.iter().map(|net| net.addr()).try_for_each(|ip: IpAddr| lab.ping(from, ip))
    })
}

/// What goes on between two pods: packets each 5 ms each way, and connections.
pub(crate) struct Talk<'l> {
    flows: [Flow; 2],
    connections: [Lasting<'l>; 2],
}

impl<'l> Talk<'l> {
    pub(crate) fn begin(lab: &'l Lab, here: &'l Pod, there: &'l Pod) -> Result<Self> {
        let at = |pod: &Pod| -> Vec<SocketAddr> {
            pod.addresses.iter().map(|net| SocketAddr::new(net.addr(), PORT)).collect()
        };
        let lasting = |from, to| lab.lasting(End::Pod(from), End::Pod(to), at(to));
        let connections = [lasting(here, there)?, lasting(there, here)?];
        Ok(Self { flows: [lab.flow(here, there)?, lab.flow(there, here)?], connections })
    }

    /// Ends it. No connection has broken, and no silence was longer than this.
    pub(crate) fn end(self, what: &str, longest: Duration) -> Result<()> {
        for connection in self.connections {
            connection.end().with_context(|| what.to_owned())?;
        }
        for flow in self.flows {
            let echoes = flow.stop()?;
            eprintln!("{what}: {echoes:?}");
            ensure!(echoes.silence() < longest, "{what}: {echoes:?}");
        }
        Ok(())
    }
}
