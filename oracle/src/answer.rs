//! The model: which endpoints may answer a client that connects to an address and port.
//!
//! Each rule stands under the sentence that it follows: of the API reference (Service of `v1`,
//! `EndpointSlice` of `discovery.k8s.io/v1`), or of Kubernetes' page on Services. Where these leave
//! a choice, the comment says which one is taken, and why.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use ipnet::IpNet;

use crate::{
    probe::{Client, Probe},
    world::{
        AddressType, CLUSTER_RANGES, Endpoint, EndpointPort, EndpointSlice, HEADLESS, Node,
        PROXY_NAME, Protocol, SERVICE_RANGES, Service, ServicePort, ServiceType, TrafficPolicy,
        World,
    },
};

/// What a client finds at an address and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// No Service has this address and port.
    NoService,
    /// A Service has it, but no endpoint for this client: the connection is refused at once.
    Refused,
    /// One of these answers.
    OneOf(BTreeSet<SocketAddr>),
}

/// What the client of `probe` finds.
pub fn answer(world: &World, probe: &Probe) -> Answer {
    let mut found: Vec<(Precedence, BTreeSet<SocketAddr>)> = Vec::new();
    for service in world.services.iter().filter(|service| is_served(service)) {
        for port in service.ports.iter().filter(|port| port.protocol == probe.protocol) {
            if let Some((field, policy)) = reached(world, service, port, probe) {
                let precedence = Precedence { field, created: service.created, uid: service.uid() };
                let endpoints =
                    endpoints(world, service, port, policy, &probe.client, probe.address);
                found.push((precedence, endpoints));
            }
        }
    }
    // Several Services may write the same address: the API server gives `clusterIPs` and node ports
    // to one each, and nothing else. Nothing in the reference says which of them answers, but that
    // the answer must not be another one from moment to moment, from node to node, and from pods to
    // hosts is what a user expects.
    match found.into_iter().min_by(|(a, _), (b, _)| a.cmp(b)) {
        None => Answer::NoService,
        Some((_, endpoints)) if endpoints.is_empty() => Answer::Refused,
        Some((_, endpoints)) => Answer::OneOf(endpoints),
    }
}

/// Which of several Services answers: the smallest one.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Precedence {
    field: Field,
    /// The older one. Of two of the same second, the one whose UID is smaller.
    created: u8,
    uid: String,
}

/// The field in which a Service has the address, by how many may write it: `clusterIPs` are the API
/// server's to give, the status is written by controllers, and `externalIPs` by every user of a
/// namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Field {
    ClusterIp,
    NodePort,
    LoadBalancer,
    ExternalIp,
}

/// Whether the cluster's own proxy serves the Service at all.
///
/// > Setting this to "None" makes a "headless service" (no virtual IP), which is useful when direct
/// > endpoint connections are preferred and proxying is not required.
///
/// > externalName is the external reference that discovery mechanisms will return as an alias for
/// > this service […]. No proxying will be involved.
///
/// The label `service.kubernetes.io/service-proxy-name` leaves the Service to another proxy, and
/// `service.kubernetes.io/headless` to none ("Well-Known Labels").
fn is_served(service: &Service) -> bool {
    service.kind != ServiceType::ExternalName
        && !service.cluster_ips.is_empty()
        && !service.labels.contains(&PROXY_NAME)
        && !service.labels.contains(&HEADLESS)
}

/// The field by which the probe reaches the Service's port, and the traffic policy under which it
/// does; none if it does not reach it.
fn reached(
    world: &World,
    service: &Service,
    port: &ServicePort,
    probe: &Probe,
) -> Option<(Field, TrafficPolicy)> {
    let address = probe.address;
    // > internalTrafficPolicy describes how nodes distribute service traffic they receive on the
    // > ClusterIP.
    if probe.port == port.port && service.cluster_ips.contains(&address) {
        return Some((Field::ClusterIp, service.internal_traffic_policy));
    }
    // > externalIPs is a list of IP addresses for which nodes in the cluster will also accept
    // > traffic for this service.
    //
    // > Setting this to "VIP" indicates that traffic is delivered to the node with the destination
    // > set to the load-balancer's IP and port. Setting this to "Proxy" indicates that traffic is
    // > delivered to the node or pod with the destination set to the node's IP and node port or the
    // > pod's IP and port.
    //
    // > These IPs are not managed by Kubernetes. The user is responsible for ensuring that traffic
    // > arrives at a node with this IP.
    //
    // So an address that Kubernetes does manage has no meaning there: of a pod, a Service, or a
    // node.
    let of_balancer =
        || service.ingress.iter().any(|ingress| ingress.ip == address && !ingress.is_proxy);
    let of_user = || service.external_ips.contains(&address) && !is_of_cluster(world, address);
    let outside = [(Field::LoadBalancer, of_balancer()), (Field::ExternalIp, of_user())];
    if let Some((field, _)) = outside.into_iter().find(|(_, has)| *has && probe.port == port.port) {
        // > Note that traffic sent to an External IP or LoadBalancer IP from within the cluster
        // > will always get "Cluster" semantics
        return Some((field, TrafficPolicy::Cluster));
    }
    // > nodePort: The port on each node on which this service is exposed when type is NodePort or
    // > LoadBalancer.
    //
    // On each address of the node in a family of the Service. Another node's address is that node's
    // to answer.
    let Client { node, .. } = &probe.client;
    let same_family = service.cluster_ips.iter().any(|ip| ip.is_ipv4() == address.is_ipv4());
    if port.node_port == Some(probe.port) && same_family && node.addresses().contains(&address) {
        // > but clients sending to a NodePort from within the cluster may need to take traffic
        // > policy into account when picking a node
        //
        // The client has picked its own node, whose proxy need not tell it from a client of a
        // ClusterIP, and kube-proxy's does not.
        return Some((Field::NodePort, TrafficPolicy::Cluster));
    }
    None
}

/// Whether the address is of the cluster itself.
fn is_of_cluster(world: &World, address: IpAddr) -> bool {
    let contains = |range: &&str| {
        range.parse::<IpNet>().expect("it is written as a network").contains(&address)
    };
    world.nodes.iter().any(|node| node.addresses().contains(&address))
        || SERVICE_RANGES.iter().chain(&CLUSTER_RANGES).any(contains)
}

/// An endpoint with the address and the port that a connection to the Service's port goes to.
struct Candidate<'a> {
    to: SocketAddr,
    endpoint: &'a Endpoint,
}

/// The endpoints that may answer.
fn endpoints(
    world: &World,
    service: &Service,
    port: &ServicePort,
    policy: TrafficPolicy,
    client: &Client,
    address: IpAddr,
) -> BTreeSet<SocketAddr> {
    let slices = world.slices.iter().filter(|slice| is_of(slice, service));
    let mut candidates: Vec<Candidate<'_>> =
        slices.flat_map(|slice| candidates(slice, port, address.is_ipv4())).collect();
    if policy == TrafficPolicy::Local {
        // > If set to "Local", the proxy will assume that pods only want to talk to endpoints of
        // > the service on the same node as the pod, dropping the traffic if there are no local
        // > endpoints.
        //
        // The page on internal traffic policy says "behaves as if the Service has zero endpoints
        // (for Pods on that Node)", which is refusing: a client learns at once what a drop tells it
        // after a timeout.
        candidates.retain(|candidate| candidate.endpoint.node_name == Some(client.node.name()));
    }
    let mut ready: Vec<&Candidate<'_>> =
        candidates.iter().filter(|candidate| is_ready(candidate.endpoint, service)).collect();
    if ready.is_empty() {
        // Of the page on virtual IPs, "Traffic to terminating endpoints": without a ready endpoint
        // that the policy allows, those that terminate and still serve.
        ready = candidates
            .iter()
            .filter(|candidate| serves_until_the_end(candidate.endpoint))
            .collect();
    } else if policy == TrafficPolicy::Cluster {
        ready = nearest(ready, &client.node);
    }
    ready.into_iter().map(|candidate| candidate.to).collect()
}

/// > you can find all of the slices for a given service by listing EndpointSlices in the service's
/// > namespace whose `kubernetes.io/service-name` label contains the service's name.
fn is_of(slice: &EndpointSlice, service: &Service) -> bool {
    slice.namespace == service.namespace
        && slice.service.as_ref() == Some(&service.name)
        && !slice.labels.contains(&HEADLESS)
}

/// The endpoints of one slice that back the port, in that family.
fn candidates<'a>(slice: &'a EndpointSlice, port: &ServicePort, ipv4: bool) -> Vec<Candidate<'a>> {
    // > addressType specifies the type of address carried by this EndpointSlice. All addresses in
    // > this slice must be the same type. […] No semantics are defined for the "FQDN" type.
    let is_family = match slice.address_type {
        AddressType::Ipv4 => ipv4,
        AddressType::Ipv6 => !ipv4,
        AddressType::Fqdn => false,
    };
    let numbers: Vec<u16> =
        slice.ports.iter().filter(|own| backs(own, port)).map(|own| target(own, port)).collect();
    let mut found = Vec::new();
    for endpoint in slice.endpoints.iter().filter(|_| is_family) {
        // An address that is not of the slice's type cannot be used.
        let address =
            endpoint.address.parse().ok().filter(|address: &IpAddr| address.is_ipv4() == ipv4);
        for number in &numbers {
            found.extend(
                address
                    .map(|address| Candidate { to: SocketAddr::new(address, *number), endpoint }),
            );
        }
    }
    found
}

/// > When considering the endpoints for a Service, this must match the 'name' field in the
/// > EndpointPort. Optional if only one ServicePort is defined on this service.
///
/// This project reads the second sentence so that a Service's only port, without a name, takes a
/// slice's port by whatever name, as OVN-Kubernetes always has: there is no other port that the
/// slice could mean.
fn backs(own: &EndpointPort, port: &ServicePort) -> bool {
    // > Must be UDP, TCP, or SCTP. Default is TCP.
    own.protocol.unwrap_or(Protocol::Tcp) == port.protocol
        && (port.name.is_none() || own.name == port.name)
}

/// > EndpointSlices used for other purposes may have a nil port.
///
/// > Number or name of the port to access on the pods targeted by the service. […] If this is not
/// > specified, the value of the 'port' field is used (an identity map).
///
/// A slice's port without a number means all ports of the endpoint; the Service says which of them.
fn target(own: &EndpointPort, port: &ServicePort) -> u16 {
    own.port.or(port.target_port).unwrap_or(port.port)
}

/// > ready indicates that this endpoint is ready to receive traffic, according to whatever system
/// > is managing the endpoint. A nil value should be interpreted as "true".
///
/// > publishNotReadyAddresses indicates that any agent which deals with endpoints for this Service
/// > should disregard any indications of ready/not-ready.
fn is_ready(endpoint: &Endpoint, service: &Service) -> bool {
    service.publish_not_ready_addresses || endpoint.ready.unwrap_or(true)
}

/// > serving indicates that this endpoint is able to receive traffic […]. A nil value should be
/// > interpreted as "true".
///
/// > terminating indicates that this endpoint is terminating. A nil value should be interpreted as
/// > "false".
fn serves_until_the_end(endpoint: &Endpoint) -> bool {
    endpoint.serving.unwrap_or(true) && endpoint.terminating.unwrap_or(false)
}

/// > forNodes indicates the node(s) this endpoint should be consumed by when using topology aware
/// > routing.
///
/// > forZones indicates the zone(s) this endpoint should be consumed by when using topology aware
/// > routing.
///
/// Hints count if every ready endpoint has one and at least one is for this client, otherwise all
/// endpoints are used (page on topology aware routing, "Safeguards"). Nodes come before zones.
fn nearest<'a>(ready: Vec<&'a Candidate<'a>>, node: &Node) -> Vec<&'a Candidate<'a>> {
    let name = node.name();
    let for_node = |endpoint: &Endpoint| endpoint.for_nodes.contains(&name);
    let for_zone =
        |endpoint: &Endpoint| node.zone.is_some_and(|zone| endpoint.for_zones.contains(&zone));
    let all = |has: fn(&Endpoint) -> bool| ready.iter().all(|candidate| has(candidate.endpoint));
    let only = |is: &dyn Fn(&Endpoint) -> bool| {
        let near: Vec<&Candidate<'_>> =
            ready.iter().filter(|candidate| is(candidate.endpoint)).copied().collect();
        Some(near).filter(|near| !near.is_empty())
    };
    let by_node = all(|endpoint| !endpoint.for_nodes.is_empty()).then(|| only(&for_node)).flatten();
    let by_zone =
        || all(|endpoint| !endpoint.for_zones.is_empty()).then(|| only(&for_zone)).flatten();
    by_node.or_else(by_zone).unwrap_or(ready)
}

#[cfg(test)]
mod tests;
