//! The rows of a Service: its load balancers, and the rules that limit their clients.
//!
//! ```text
//! ports of the Service ─┐
//! endpoints of slices ──┴▶ Port: backends ─▶ Front: addresses that they serve
//!                                              ├─ of all nodes, with variables (`service/variables.rs`)
//!                                              ├─ the same on all nodes ─▶ one row for each protocol, in a group
//!                                              └─ by node ─▶ PerNode (`service/per_node.rs`)
//! ```
//!
//! Which backends a connection may get is kube-proxy's rule ([`kubeapi::services::chosen`]). Names
//! and options of rows are upstream's. Column values follow ovn-nb(5), "Load_Balancer TABLE".

use std::{
    collections::BTreeMap,
    fmt::Write,
    net::{IpAddr, SocketAddr},
};

use contract::{names::ServiceKey, ovn};
use kubeapi::services::{
    AddressField, Condition, Endpoint, Family, Service, ServicePort, Traffic, chosen,
};

use crate::{
    config::{ClusterConfig, Masquerade},
    kinds::{node::object::Node, service::state::Known},
    rows::{
        LoadBalancer, RowSet, Table,
        load_balancer::{Options, Protocol, WithoutBackend, template_affinity},
    },
    world::Store,
};

mod per_node;
mod source_ranges;
pub(crate) mod variables;

/// Backends by address and port, as the column `vips` has them.
type Vips = BTreeMap<Box<str>, String>;

/// A port of a Service, and what can serve it.
struct Port<'a> {
    port: &'a ServicePort,
    /// IPv4 and IPv6, each sorted by address. One may be there twice: while the slices of a Service
    /// are rearranged, an endpoint may be in two of them, in two states.
    backends: [Vec<Backend<'a>>; 2],
}

/// An endpoint with the port that it serves.
#[derive(Clone, Copy)]
struct Backend<'a> {
    address: SocketAddr,
    endpoint: &'a Endpoint,
    condition: Condition,
}

/// Addresses with one port, whose connections get the same backends.
pub(crate) struct Front<'a> {
    service: &'a Service,
    port: &'a Port<'a>,
    at: At,
    /// Which backends connections from pods may get.
    inside: Traffic,
    /// Which backends connections from outside may get.
    outside: Traffic,
    /// In rows of nodes, whether they differ or not: as upstream, to be able to take over its rows.
    with_nodes: bool,
}

/// Where connections arrive.
enum At {
    /// At these addresses, and the port of the Service.
    Addresses(Vec<IpAddr>),
    /// At all addresses of each node that are of a family of the Service, and this port.
    Nodes(u16),
}

/// The rows of the Service `key`; none if it has no address in the cluster (headless,
/// `ExternalName`).
pub fn service(store: &Store, key: &ServiceKey) -> RowSet {
    let Some((service, known)) =
        store.service(key).filter(|(service, _)| !service.cluster_ips.is_empty())
    else {
        return Vec::new();
    };
    let ports = ports(store, key, service, known);
    let fronts = ports.iter().flat_map(|port| fronts(store, key, port, service));
    let (templates, fronts): (Vec<_>, Vec<_>) = fronts.partition(|front| front.is_template(store));
    let (by_node, everywhere): (Vec<_>, Vec<_>) =
        fronts.into_iter().partition(|front| front.differs_by_node(&store.config));

    let mut vips: BTreeMap<Protocol, Vips> = BTreeMap::new();
    for front in &everywhere {
        let vips = vips.entry(front.port.port.protocol).or_default();
        front
            .add(vips, front.addresses(None), |family| spell(&front.port.usable(family, |_| true)));
    }
    let options = options(service, known, &store.config);
    let load_balancer = |(protocol, vips)| LoadBalancer {
        service: key.clone(),
        protocol,
        part: "cluster".to_owned(),
        vips,
        options: options.clone(),
        on: vec![Table::LoadBalancerGroup.row(ovn::CLUSTER_LB_GROUP)],
        or_on: Vec::new(),
    };
    let mut rows: Vec<LoadBalancer> = vips.into_iter().map(load_balancer).collect();
    if !by_node.is_empty() {
        rows.extend(per_node::load_balancers(store, key, &by_node, &options));
    }
    if !templates.is_empty() {
        rows.extend(variables::load_balancers(store, key, service, &templates, &options));
    }
    let limits = source_ranges::rules(store, key, service);
    rows.into_iter().map(Into::into).chain(limits.into_iter().map(Into::into)).collect()
}

fn options(service: &Service, known: &Known, config: &ClusterConfig) -> Options {
    let is_event = config.empty_lb_events && known.awaits_pods();
    let without_backend = if is_event { WithoutBackend::Event } else { WithoutBackend::Reject };
    Options {
        without_backend,
        skip_snat: false,
        affinity: service.affinity,
        template: None,
        hairpin: config.masquerade(Masquerade::Hairpin),
    }
}

/// The ports of the Service that get load balancers.
fn ports<'a>(
    store: &Store,
    key: &ServiceKey,
    service: &'a Service,
    known: &'a Known,
) -> Vec<Port<'a>> {
    store.served_ports(key, service).iter().map(|port| Port::new(port, service, known)).collect()
}

/// The addresses that lead to a port. The traffic policies decide on different ones of them
/// (Service API).
fn fronts<'a>(
    store: &Store,
    key: &ServiceKey,
    port: &'a Port<'a>,
    service: &'a Service,
) -> Vec<Front<'a>> {
    let mut fronts = Vec::with_capacity(3);
    let node_port = port.port.node_port.map(|node_port| Front {
        service,
        port,
        at: At::Nodes(node_port),
        inside: Traffic::Cluster,
        outside: service.external,
        with_nodes: true,
    });
    fronts.extend(node_port);
    let served = store.served_addresses(key, service, port.port);
    let (inside, outside): (Vec<_>, Vec<_>) =
        served.partition(|(field, _)| *field == AddressField::ClusterIps);
    let of = |served: Vec<(AddressField, IpAddr)>| {
        served.into_iter().map(|(_, address)| address).collect()
    };
    let (mut inside, outside): (Vec<IpAddr>, Vec<IpAddr>) = (of(inside), of(outside));
    match service.external {
        Traffic::Cluster if service.internal == Traffic::Cluster => inside.extend(outside),
        external => {
            if !outside.is_empty() {
                fronts.push(Front {
                    service,
                    port,
                    at: At::Addresses(outside),
                    inside: Traffic::Cluster,
                    outside: external,
                    with_nodes: true,
                });
            }
        }
    }
    fronts.push(Front {
        service,
        port,
        at: At::Addresses(inside),
        inside: service.internal,
        // Upstream's gateway routers balance these addresses, too: to all backends.
        outside: Traffic::Cluster,
        with_nodes: service.internal == Traffic::Local,
    });
    fronts
}

impl<'a> Port<'a> {
    fn new(port: &'a ServicePort, service: &Service, known: &'a Known) -> Self {
        let mut backends = [Vec::new(), Vec::new()];
        for slice in known.slices() {
            // Two slices may have different numbers: pods choose what a named port is.
            for target in slice.targets(port) {
                for endpoint in &slice.endpoints {
                    let condition = if service.publish_not_ready {
                        Condition::Ready
                    } else {
                        endpoint.condition
                    };
                    if condition != Condition::Neither {
                        let address = SocketAddr::new(endpoint.address, target);
                        backends[family(&endpoint.address)].push(Backend {
                            address,
                            endpoint,
                            condition,
                        });
                    }
                }
            }
        }
        for backends in &mut backends {
            backends.sort_by_key(|backend| backend.address);
        }
        Self { port, backends }
    }

    /// The backends among those that satisfy `which` that may get connections.
    fn usable(
        &self,
        family: usize,
        which: impl Fn(&Backend<'_>) -> bool + Copy,
    ) -> Vec<SocketAddr> {
        let backends = self.backends[family].iter().filter(|backend| which(backend));
        let chosen = chosen(backends, |backend| backend.condition);
        let mut addresses: Vec<SocketAddr> = chosen.map(|backend| backend.address).collect();
        addresses.dedup();
        addresses
    }
}

impl Front<'_> {
    /// Whether the load balancers of nodes may differ.
    fn differs_by_node(&self, config: &ClusterConfig) -> bool {
        self.with_nodes || self.has_hosts(config) || per_node::has_topology(self.port)
    }

    /// Whether a backend is a host. On its own node it has another address then.
    fn has_hosts(&self, config: &ClusterConfig) -> bool {
        let is_host = |address: &SocketAddr| !config.is_of_pods(address.ip());
        (0..2).any(|family| self.port.usable(family, |_| true).iter().any(is_host))
    }

    /// Whether these are addresses of nodes that a variable can stand for: the backends are the
    /// same everywhere, but for a node's own host.
    fn is_template(&self, store: &Store) -> bool {
        store.uses_templates()
            && matches!(self.at, At::Nodes(_))
            && self.outside == Traffic::Cluster
            && template_affinity(self.service)
            && !per_node::has_topology(self.port)
    }

    /// The addresses and the port; those of `node`, if connections arrive at nodes.
    fn addresses(&self, node: Option<&Node>) -> Vec<SocketAddr> {
        match (&self.at, node) {
            (At::Addresses(addresses), _) => addresses
                .iter()
                .map(|address| SocketAddr::new(*address, self.port.port.port))
                .collect(),
            (At::Nodes(port), Some(node)) => {
                let has = |family: &Family| {
                    self.service.cluster_ips.iter().any(|own| Family::of(own) == *family)
                };
                let families = [Family::V4, Family::V6].into_iter().filter(has);
                let addresses = families.flat_map(|family| node.node_port_addresses(family));
                addresses.map(|address| SocketAddr::new(address, *port)).collect()
            }
            (At::Nodes(_), _) => Vec::new(),
        }
    }

    /// Adds the backends of each address. `of_family`: the text for IPv4 and for IPv6.
    fn add(
        &self,
        vips: &mut Vips,
        addresses: Vec<SocketAddr>,
        of_family: impl Fn(usize) -> String,
    ) {
        let mut texts: [Option<String>; 2] = [None, None];
        for address in addresses {
            let family = family(&address.ip());
            let text = texts[family].get_or_insert_with(|| of_family(family));
            vips.insert(address.to_string().into(), text.clone());
        }
    }
}

/// The index of an address's family.
fn family(address: &IpAddr) -> usize {
    usize::from(address.is_ipv6())
}

fn spell(backends: &[SocketAddr]) -> String {
    // `255.255.255.255:65535,`
    let mut text = String::with_capacity(backends.len() * 22);
    for (place, backend) in backends.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        // Writing to a string does not fail.
        let _ = write!(text, "{comma}{backend}");
    }
    text
}

#[cfg(test)]
mod tests;
