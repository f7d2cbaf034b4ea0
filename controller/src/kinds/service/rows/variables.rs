//! NodePorts with variables for the addresses of nodes, and the variables that stand for backends.
//!
//! Names are upstream's. The row of a chassis with its variables is in
//! `kinds/service/templates.rs`.

use std::net::SocketAddr;

use contract::{names::ServiceKey, ovn};
use kubeapi::services::{Family, Service};

use crate::{
    kinds::{
        node::object::Node,
        service::rows::{At, Front, Vips, fronts, per_node, ports, spell},
    },
    rows::{
        LoadBalancer, Table,
        load_balancer::{Options, Protocol},
    },
    world::Store,
};

/// The beginning of the name of each variable with an address of a node.
pub(crate) const NODE_ADDRESS: &str = "NODEIP_";

/// The variable with a node's address of this family and number, from 0.
pub(crate) fn node_address(family: Family, number: usize) -> String {
    format!("{NODE_ADDRESS}{family}_{number}")
}

/// The variable with the backends that routers have for a NodePort: the name of its load balancer,
/// with the port, spelled as a variable may be called.
fn name_of_backends(
    key: &ServiceKey,
    protocol: Protocol,
    node_port: u16,
    family: Family,
) -> String {
    let part = format!("{node_port}_node_router_template_{family}");
    let name = ovn::load_balancer(key, protocol.as_str(), &part);
    name.replace('_', "__").replace(['/', '-'], "_")
}

/// The load balancers of NodePorts with variables instead of nodes' addresses: for each family one
/// of all switches and one of all routers, as upstream's. Where hosts are backends, a variable
/// stands for the backends on routers, too: each has another address for its own host.
pub(crate) fn load_balancers(
    store: &Store,
    key: &ServiceKey,
    service: &Service,
    fronts: &[Front<'_>],
    options: &Options,
) -> Vec<LoadBalancer> {
    let mut rows = Vec::new();
    for (index, family, addresses) in families(store, service) {
        for protocol in Protocol::ALL {
            let (mut switch, mut router) = (Vips::new(), Vips::new());
            for front in fronts.iter().filter(|front| front.port.port.protocol == protocol) {
                let At::Nodes(port) = front.at else { continue };
                let backends = front.port.usable(index, |_| true);
                let on_switches = spell(&backends);
                let on_routers = if has_host_of_zone(store, &backends) {
                    format!("^{}", name_of_backends(key, protocol, port, family))
                } else {
                    on_switches.clone()
                };
                for number in 0..addresses {
                    let vip: Box<str> = format!("^{}:{port}", node_address(family, number)).into();
                    switch.insert(vip.clone(), on_switches.clone());
                    router.insert(vip, on_routers.clone());
                }
            }
            let groups = [
                ("switch", ovn::SWITCH_LB_GROUP, switch),
                ("router", ovn::ROUTER_LB_GROUP, router),
            ];
            let groups = groups.into_iter().filter(|(.., vips)| !vips.is_empty());
            rows.extend(groups.map(|(on, group, vips)| LoadBalancer {
                service: key.clone(),
                protocol,
                part: format!("node_{on}_template_{family}"),
                vips,
                options: Options { template: Some(family), ..options.clone() },
                on: vec![Table::LoadBalancerGroup.row(group)],
                or_on: Vec::new(),
            }));
        }
    }
    rows
}

/// The variables that stand for backends of the Service on the router of `node`, with these
/// backends.
pub(crate) fn variables(store: &Store, key: &ServiceKey, node: &Node) -> Vec<(Box<str>, String)> {
    let Some((service, known)) = store.service(key) else { return Vec::new() };
    let ports = ports(store, key, service, known);
    let fronts = ports
        .iter()
        .flat_map(|port| fronts(store, key, port, service))
        .filter(|front| front.is_template(store));
    let fronts: Vec<Front<'_>> = fronts.collect();
    let mut variables = Vec::new();
    for (index, family, _) in families(store, service) {
        for front in &fronts {
            let At::Nodes(port) = front.at else { continue };
            let backends = front.port.usable(index, |_| true);
            if has_host_of_zone(store, &backends) {
                let name = name_of_backends(key, front.port.port.protocol, port, family);
                variables.push((name.into(), spell(&per_node::from_router(backends, node, store))));
            }
        }
    }
    variables
}

/// The families in which nodes have NodePorts of the Service: index, family, and the largest number
/// of addresses of a node.
fn families(store: &Store, service: &Service) -> impl Iterator<Item = (usize, Family, usize)> {
    let all = [Family::V4, Family::V6].into_iter().zip(store.template_addresses()).enumerate();
    let all = all.map(|(index, (family, addresses))| (index, family, addresses));
    all.filter(|(_, family, addresses)| {
        *addresses > 0 && service.cluster_ips.iter().any(|address| Family::of(address) == *family)
    })
}

/// Whether one of the backends is a host of this zone.
fn has_host_of_zone(store: &Store, backends: &[SocketAddr]) -> bool {
    let mut hosts =
        backends.iter().map(SocketAddr::ip).filter(|address| !store.config.is_of_pods(*address));
    hosts.any(|address| store.is_host_of_zone(address))
}
