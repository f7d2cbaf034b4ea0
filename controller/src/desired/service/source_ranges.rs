//! The rules that keep pods from addresses of a load balancer whose clients are limited
//! (`loadBalancerSourceRanges`). Nodes limit hosts and clients outside of the cluster.

use std::net::IpAddr;

use contract::{
    names::ServiceKey,
    ovn::{self, ObjectId},
};
use ipnet::IpNet;
use kubeapi::services::{Family, Protocol};

use super::super::{
    cluster::port_group,
    matching::{either, ip, spelled},
};
use crate::{
    rows::{
        Acl,
        acl::{Action, Direction, Tier},
    },
    store::Service,
};

/// Before all policies: these rules allow nothing, and what they drop is not for policies to allow.
const PRIORITY: i64 = 2000;

/// One rule for each family of the limited addresses.
pub(super) fn rules(key: &ServiceKey, service: &Service) -> Vec<Acl> {
    let Some(ranges) = &service.source_ranges else { return Vec::new() };
    let Some(ports) = ports(service) else { return Vec::new() };
    let rule = |(family, name)| {
        let ip = ip(family);
        let of_family = ranges.addresses.iter().filter(|address| Family::of(address) == family);
        let addresses: Vec<IpAddr> = of_family.copied().collect();
        let clients = ranges.of(*addresses.first()?)?;
        let mut matching = format!("{ip}.dst == {} && {ports}", list(&addresses));
        let clients: Vec<IpNet> = clients.collect();
        // Without a range of the family nobody may connect, as on nodes.
        if !clients.is_empty() {
            matching += &format!(" && {ip}.src != {}", list(&clients));
        }
        Some(Acl {
            id: ObjectId::source_ranges(key, name),
            // It has a port on each node's switch: a match that names no group counts on all of them.
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

/// The Service's ports; none if it has none.
fn ports(service: &Service) -> Option<String> {
    let of_protocol = |protocol: Protocol| {
        let ports = service.ports.iter().filter(|port| port.protocol == protocol);
        let numbers: Vec<u16> = ports.map(|port| port.port).collect();
        (!numbers.is_empty()).then(|| format!("{}.dst == {}", spelled(protocol), list(&numbers)))
    };
    let terms: Vec<String> = Protocol::ALL.into_iter().filter_map(of_protocol).collect();
    (!terms.is_empty()).then(|| either(terms))
}

/// A set of OVN's expression language.
fn list(values: &[impl ToString]) -> String {
    let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
    format!("{{{}}}", texts.join(", "))
}
