//! The rules that keep pods from addresses of a load balancer whose clients are limited
//! (`loadBalancerSourceRanges`). Nodes limit hosts and clients outside of the cluster.

use std::{collections::BTreeMap, net::IpAddr};

use contract::{
    names::ServiceKey,
    ovn::{self, ObjectId},
    remainder::remainder,
};
use ipnet::IpNet;
use kubeapi::services::{Family, Protocol, Service, ServicePort};

use crate::{
    rows::{
        Acl,
        acl::{Action, Direction, Tier},
        port_group::port_group,
    },
    select::matching::{either, ip, spelled},
    world::Store,
};

/// Before all policies: these rules allow nothing, and what they drop is not for policies to allow.
const PRIORITY: i64 = 2000;

/// One rule for each family of the limited addresses. Where another Service serves a limited
/// address, it is that one's to limit.
pub(crate) fn rules(store: &Store, key: &ServiceKey, service: &Service) -> Vec<Acl> {
    let Some(ranges) = &service.source_ranges else { return Vec::new() };
    let rule = |(family, name)| {
        let ip = ip(family);
        let mut by_addresses: BTreeMap<Vec<IpAddr>, Vec<&ServicePort>> = BTreeMap::new();
        for port in store.served_ports(key, service) {
            let served = store.served_addresses(key, service, port).map(|(_, address)| address);
            let limited =
                served.filter(|it| Family::of(it) == family && ranges.addresses.contains(it));
            by_addresses.entry(limited.collect()).or_default().push(port);
        }
        by_addresses.remove(&Vec::new());
        let clients = ranges.of(*by_addresses.keys().flatten().next()?)?;
        let term = |(addresses, ports): (&Vec<IpAddr>, &Vec<&ServicePort>)| {
            format!("{ip}.dst == {} && {}", list(addresses), of_ports(ports))
        };
        let terms = by_addresses.iter().map(term);
        let terms =
            terms.map(|term| if by_addresses.len() == 1 { term } else { format!("({term})") });
        let mut matching = either(terms.collect());
        let clients: Vec<IpNet> = clients.collect();
        // Without a range of the family nobody may connect, as on nodes. OVN makes a flow of each
        // network that is listed; of `!= {…}` it would make the product of the clients' bits.
        if !clients.is_empty() {
            let others = remainder(family.everything(), &clients);
            if others.is_empty() {
                return None;
            }
            matching += &format!(" && {ip}.src == {}", list(&others));
        }
        Some(Acl {
            id: ObjectId::source_ranges(key, name),
            // It has a port on each node's switch: a match that names no group counts on all of
            // them.
            of: port_group(ovn::CLUSTER_PORT_GROUP),
            direction: Direction::FromPortAsSent,
            tier: Tier::NetworkPolicy,
            priority: PRIORITY,
            matching,
            action: Action::Drop,
            log: None,
            needs: Vec::new(),
        })
    };
    [(Family::V4, "v4"), (Family::V6, "v6")].into_iter().filter_map(rule).collect()
}

/// Connections to one of these ports.
fn of_ports(ports: &[&ServicePort]) -> String {
    let of_protocol = |protocol: Protocol| {
        let ports = ports.iter().filter(|port| port.protocol == protocol);
        let numbers: Vec<u16> = ports.map(|port| port.port).collect();
        (!numbers.is_empty()).then(|| format!("{}.dst == {}", spelled(protocol), list(&numbers)))
    };
    either(Protocol::ALL.into_iter().filter_map(of_protocol).collect())
}

/// A set of OVN's expression language.
fn list(values: &[impl ToString]) -> String {
    let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
    format!("{{{}}}", texts.join(", "))
}
