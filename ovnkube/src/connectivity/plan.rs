//! Which tests there are: each client with what it tries, and the outcome that is right. Pure.

use std::net::IpAddr;

use super::{
    manifests::{OTHER_PORT, PORT, SERVICE_PORT},
    offered::OuterAddresses,
    site::{CLUSTER_POLICIES, Node, Site},
};
use crate::probe::{Expect, Kind, Plan, Probe};

/// The headings of the report, in this order.
pub(super) const SUBJECTS: [&str; 11] = [
    "test",
    "pods on one node",
    "pods on two nodes",
    "Services",
    "outer addresses",
    "node ports",
    "hosts",
    "DNS",
    "world",
    "policies",
    CLUSTER_POLICIES,
];
/// The port of each kubelet.
const KUBELET: u16 = 10_250;
const API_SERVER: u16 = 443;

/// A pod that tries.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) app: String,
    pub(super) node: String,
    pub(super) host_network: bool,
    /// Ports that it serves.
    serve: Vec<u16>,
    pub(super) tests: Vec<Test>,
}

/// One test.
#[derive(Debug, Clone)]
pub(super) struct Test {
    pub(super) subject: &'static str,
    pub(super) probe: Probe,
    /// What to do if it fails.
    pub(super) next: String,
}

impl Client {
    fn new(namespace: &str, app: &str, number: usize, node: &Node) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: format!("{app}-{number}"),
            app: app.to_owned(),
            node: node.name.clone(),
            host_network: false,
            serve: Vec::new(),
            tests: Vec::new(),
        }
    }

    /// Clients that hold flows and try nothing: a pod, and the node itself.
    pub(super) fn holders(namespace: &str, number: usize, node: &Node) -> [Self; 2] {
        let host = Self { host_network: true, ..Self::new(namespace, "host", number, node) };
        [Self::new(namespace, "friend", number, node), host]
    }

    pub(super) fn plan(&self) -> Plan {
        let probes = self.tests.iter().map(|test| test.probe.clone()).collect();
        Plan { serve: self.serve.clone(), probes, flows: Vec::new() }
    }

    /// Adds a test for each of the addresses.
    fn try_all(
        &mut self,
        of: &Of<'_>,
        kind: Kind,
        addresses: &[IpAddr],
        port: u16,
        expect: Expect,
    ) {
        for address in addresses {
            let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
            self.test(of, kind, &address.to_string(), port, expect, family);
        }
    }

    fn test(&mut self, of: &Of<'_>, kind: Kind, to: &str, port: u16, expect: Expect, family: &str) {
        let word = if expect == Expect::Closed { ", forbidden" } else { "" };
        let mut name = format!("{}{word}, {} {family}, {}", of.what, shown(kind), self.node);
        // Outcomes are found by their names; a node may have several addresses of a family.
        if self.tests.iter().any(|test| test.probe.name == name) {
            name = format!("{name}, {to}");
        }
        let probe = Probe { name, kind, to: to.to_owned(), port, expect };
        let next = next(of.subject, self, to, port);
        self.tests.push(Test { subject: of.subject, probe, next });
    }
}

/// What a test is about.
#[derive(Clone, Copy)]
struct Of<'a> {
    subject: &'static str,
    what: &'a str,
}

/// Probes as people call them.
fn shown(kind: Kind) -> &'static str {
    match kind {
        Kind::Tcp => "TCP",
        Kind::TcpBulk => "TCP 1 MB",
        Kind::Connect => "TCP connect",
        Kind::Udp => "UDP",
        Kind::UdpFull => "UDP of the MTU",
        Kind::Icmp => "ICMP",
        Kind::Dns => "lookup",
    }
}

fn next(subject: &str, client: &Client, to: &str, port: u16) -> String {
    let Client { namespace, name, node, .. } = client;
    match subject {
        "policies" | CLUSTER_POLICIES => {
            format!(
                "repeat with --keep, then ovnkube policy explain {namespace}/{name} {to} {port}"
            )
        }
        "pods on two nodes" => {
            format!(
                "ovnkube status on {node}: its tunnels and MTU; UDP port 6081 between the nodes"
            )
        }
        "DNS" => "kubectl -n kube-system get pods,endpointslices -l k8s-app=kube-dns".to_owned(),
        "world" => format!("ovnkube status on {node}: its gateway; then the router behind it"),
        _ => format!("ovnkube status on {node}; repeat with --keep to look at {namespace}/{name}"),
    }
}

/// All clients: on each node the same ones. The other node is the next one, of the last node the
/// first.
pub(super) fn clients(site: &Site, world: Option<&(String, u16)>) -> Vec<Client> {
    let mut clients = Vec::new();
    for (number, node) in site.nodes.iter().enumerate() {
        let other =
            site.nodes.get((number + 1) % site.nodes.len()).filter(|other| other.name != node.name);
        let places = Places { site, number, node, other, far: other.unwrap_or(node) };
        clients.extend([
            places.friend(world),
            places.stranger(),
            places.closed(),
            places.itself(),
            places.host(),
        ]);
        clients.extend(places.of_other_namespace());
    }
    clients
}

/// The servers as seen from one node.
struct Places<'a> {
    site: &'a Site,
    number: usize,
    node: &'a Node,
    /// `None` in a cluster of one node.
    other: Option<&'a Node>,
    /// The other node, if there is one.
    far: &'a Node,
}

impl Places<'_> {
    fn client(&self, app: &str) -> Client {
        Client::new(&self.site.names.namespace, app, self.number, self.node)
    }

    /// The pod without restrictions, whom policies let in.
    fn friend(&self, world: Option<&(String, u16)>) -> Client {
        let Self { site, node, other, .. } = self;
        let mut client = self.client("friend");
        let near = Of { subject: "pods on one node", what: "pod to pod" };
        for kind in [Kind::Tcp, Kind::Udp, Kind::Icmp, Kind::UdpFull] {
            client.try_all(&near, kind, &node.server, PORT, Expect::Open);
        }
        if let Some(other) = other {
            let far = Of { subject: "pods on two nodes", what: "pod to a pod of the other node" };
            for kind in [Kind::Tcp, Kind::TcpBulk, Kind::Udp, Kind::Icmp, Kind::UdpFull] {
                client.try_all(&far, kind, &other.server, PORT, Expect::Open);
            }
        }
        let service = Of { subject: "Services", what: "cluster address" };
        for kind in [Kind::Tcp, Kind::Udp] {
            client.try_all(&service, kind, &site.web.addresses, SERVICE_PORT, Expect::Open);
        }
        let api_server = Of { subject: "Services", what: "API server" };
        client.try_all(&api_server, Kind::Connect, &site.kubernetes, API_SERVER, Expect::Open);
        self.outer_addresses(&mut client, "pod to");
        self.node_ports(&mut client, "pod to");
        let own = Of { subject: "hosts", what: "pod to its node" };
        client.try_all(&own, Kind::Connect, &node.addresses, KUBELET, Expect::Open);
        if let Some(other) = other {
            let other_host = Of { subject: "hosts", what: "pod to the other node" };
            client.try_all(&other_host, Kind::Connect, &other.addresses, KUBELET, Expect::Open);
        }
        if site.has_dns {
            let names =
                [format!("web.{}.svc", site.names.namespace), "kubernetes.default.svc".to_owned()];
            for (what, name) in
                ["name of a Service", "name of the API server"].into_iter().zip(names)
            {
                client.test(
                    &Of { subject: "DNS", what },
                    Kind::Dns,
                    &name,
                    SERVICE_PORT,
                    Expect::Open,
                    "any family",
                );
            }
        }
        if let Some((host, port)) = world {
            let outside = Of { subject: "world", what: "pod to the world" };
            client.test(&outside, Kind::Connect, host, *port, Expect::Open, "any family");
        }
        let allowed = Of { subject: "policies", what: "ingress, by label" };
        client.try_all(&allowed, Kind::Tcp, &node.guarded, PORT, Expect::Open);
        client.try_all(
            &Of { what: "ingress, another port", ..allowed },
            Kind::Tcp,
            &self.far.guarded,
            OTHER_PORT,
            Expect::Closed,
        );
        client.try_all(
            &Of { what: "ingress, another protocol", ..allowed },
            Kind::Udp,
            &self.far.guarded,
            PORT,
            Expect::Closed,
        );
        client.try_all(
            &Of { what: "ingress of a Service", ..allowed },
            Kind::Tcp,
            &site.guarded.addresses,
            SERVICE_PORT,
            Expect::Open,
        );
        self.ruled(&mut client, "by label", Expect::Open);
        client
    }

    /// Addresses of Services that are not the cluster's own. From pods alone: a host without a
    /// route to the world reaches none of them.
    fn outer_addresses(&self, client: &mut Client, who: &str) {
        let OuterAddresses { external, balanced } = &self.site.outer;
        if let Ok(addresses) = external {
            let what = format!("{who} externalIPs");
            let of = Of { subject: "outer addresses", what: &what };
            for kind in [Kind::Tcp, Kind::Udp] {
                client.try_all(&of, kind, addresses, SERVICE_PORT, Expect::Open);
            }
        }
        if let Ok(addresses) = balanced {
            let what = format!("{who} a load balancer");
            let of = Of { subject: "outer addresses", what: &what };
            client.try_all(&of, Kind::Tcp, addresses, SERVICE_PORT, Expect::Open);
        }
    }

    /// Tries the pods that policies of the whole cluster guard, on the other node. `what`: the
    /// client; `expect`: whether it may connect to their port.
    fn ruled(&self, client: &mut Client, what: &str, expect: Expect) {
        for (kind, addresses) in &self.far.ruled {
            let what = format!("{}, {what}", kind.name());
            let of = Of { subject: CLUSTER_POLICIES, what: &what };
            client.try_all(&of, Kind::Tcp, addresses, PORT, expect);
            if expect == Expect::Open {
                let what = format!("{what}, another port");
                let port = Of { what: &what, ..of };
                client.try_all(&port, Kind::Tcp, addresses, OTHER_PORT, Expect::Closed);
                let what = format!("{}, another protocol", kind.name());
                let protocol = Of { what: &what, ..of };
                client.try_all(&protocol, Kind::Udp, addresses, PORT, Expect::Closed);
            }
        }
    }

    fn node_ports(&self, client: &mut Client, who: &str) {
        let Some([tcp, udp]) = self.site.web.node_ports else { return };
        let what = format!("{who} its node");
        let own = Of { subject: "node ports", what: &what };
        client.try_all(&own, Kind::Tcp, &self.node.addresses, tcp, Expect::Open);
        client.try_all(&own, Kind::Udp, &self.node.addresses, udp, Expect::Open);
        if let Some(other) = self.other {
            let what = format!("{who} the other node");
            client.try_all(
                &Of { subject: "node ports", what: &what },
                Kind::Tcp,
                &other.addresses,
                tcp,
                Expect::Open,
            );
        }
    }

    /// The pod whom policies do not let in.
    fn stranger(&self) -> Client {
        let mut client = self.client("stranger");
        let of = Of { subject: "policies", what: "ingress, another label" };
        client.try_all(&of, Kind::Tcp, &self.node.guarded, PORT, Expect::Closed);
        let far = Of { what: "ingress, another label, far", ..of };
        client.try_all(&far, Kind::Tcp, &self.far.guarded, PORT, Expect::Closed);
        let service = Of { what: "ingress of a Service, another label", ..of };
        client.try_all(
            &service,
            Kind::Tcp,
            &self.site.guarded.addresses,
            SERVICE_PORT,
            Expect::Closed,
        );
        self.ruled(&mut client, "another label", Expect::Closed);
        client
    }

    /// The pod that may connect to one place only.
    fn closed(&self) -> Client {
        let mut client = self.client("closed");
        let of = Of { subject: "policies", what: "egress, by label" };
        client.try_all(&of, Kind::Tcp, &self.far.server, PORT, Expect::Open);
        let port = Of { what: "egress, another port", ..of };
        client.try_all(&port, Kind::Tcp, &self.far.server, OTHER_PORT, Expect::Closed);
        let protocol = Of { what: "egress, another protocol", ..of };
        client.try_all(&protocol, Kind::Udp, &self.far.server, PORT, Expect::Closed);
        client
    }

    /// The pod that is its own backend.
    fn itself(&self) -> Client {
        let mut client = self.client("self");
        client.serve = vec![PORT];
        let hairpin = Of { subject: "Services", what: "pod to itself" };
        for kind in [Kind::Tcp, Kind::Udp] {
            client.try_all(&hairpin, kind, &self.node.hairpin, SERVICE_PORT, Expect::Open);
        }
        client
    }

    /// The node itself.
    fn host(&self) -> Client {
        let mut client = self.client("host");
        client.host_network = true;
        let own = Of { subject: "hosts", what: "node to its pod" };
        client.try_all(&own, Kind::Tcp, &self.node.server, PORT, Expect::Open);
        if let Some(other) = self.other {
            let far = Of { subject: "hosts", what: "node to a pod of the other" };
            client.try_all(&far, Kind::Tcp, &other.server, PORT, Expect::Open);
        }
        let service = Of { subject: "Services", what: "node to a cluster address" };
        client.try_all(&service, Kind::Tcp, &self.site.web.addresses, SERVICE_PORT, Expect::Open);
        self.node_ports(&mut client, "node to");
        client
    }

    fn of_other_namespace(&self) -> [Client; 2] {
        let client = |app: &str, what: &str, expect: Expect| {
            let mut client = Client::new(&self.site.names.other, app, self.number, self.node);
            let of = Of { subject: "policies", what };
            client.try_all(&of, Kind::Tcp, &self.far.guarded, PORT, expect);
            if app == "friend" {
                // Of the same label, and in another namespace.
                self.ruled(&mut client, "another namespace", Expect::Closed);
            }
            client
        };
        [
            client("friend", "ingress, by namespace", Expect::Open),
            client("stranger", "ingress, by namespace, another label", Expect::Closed),
        ]
    }
}

#[cfg(test)]
mod tests;
