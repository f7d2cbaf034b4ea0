//! What a node has to know of the cluster's Services: a reduction of the API server's objects. Pure.
//!
//! | kept of | what |
//! |---|---|
//! | each Service | addresses, ports, health check |
//! | EndpointSlices | those with a UDP port, an endpoint of this node, or an endpoint outside of the overlay |
//!
//! So a node of a large cluster keeps little more than its DNS servers.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use ipnet::IpNet;
use kubeapi::services::{Condition, Protocol, Traffic};
use podnet::conntrack::{Stale, Translated};

use super::{
    destination::{self, Candidate, Destination},
    reduced::{Endpoint, Service, ServiceKey, ServicePort, Slice, SlicePort},
};

/// Addresses in a range that show whether OVN serves it. The first one alone could be that of a Service which
/// OVN does not serve for a reason of its own; each more costs the switch a look at all of its flows.
const SAMPLES: usize = 3;

/// A health check that this node has to answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HealthCheck {
    pub(crate) service: ServiceKey,
    /// The number of ready endpoints on this node.
    pub(crate) local_endpoints: usize,
}

/// What the management port has to know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The ranges of Services' addresses, each with the addresses of some Services in it.
    pub(crate) ranges: BTreeMap<IpNet, Vec<IpAddr>>,
    /// Whether these are all: before, others may exist.
    pub(crate) are_all_ranges: bool,
    /// What the host's kernel has to translate. `None` until Services and slices are known.
    pub(crate) destinations: Option<Arc<[Destination]>>,
}

impl Facts {
    /// Without an API server: the ranges that the options name.
    pub(crate) fn of_options(ranges: &[IpNet]) -> Self {
        let ranges = ranges.iter().map(|range| (range.trunc(), Vec::new())).collect();
        Self { ranges, are_all_ranges: true, destinations: Some(Arc::from([])) }
    }
}

/// Connections that a change has made stale, and those that are right again.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Moves {
    pub(crate) stale: BTreeSet<Stale>,
    pub(crate) valid: BTreeSet<Stale>,
}

/// The endpoints of each UDP address and port of a Service. Without an address: of its NodePort.
type UdpEndpoints = BTreeMap<(Option<IpAddr>, u16), BTreeSet<SocketAddr>>;

/// The state of all Services.
#[derive(Debug)]
pub(crate) struct Known {
    node: String,
    /// The subnets of all pods.
    cluster: Vec<IpNet>,
    /// Where OVN balances what a node's addresses get under `externalTrafficPolicy: Local`.
    local_traffic: [IpAddr; 2],
    /// The ranges that the options name.
    configured: Vec<IpNet>,
    ranges: BTreeMap<ServiceKey, Vec<IpNet>>,
    are_all_ranges: bool,
    services: HashMap<ServiceKey, Service>,
    slices: HashMap<ServiceKey, Slice>,
    /// The slices of each Service.
    of_service: HashMap<ServiceKey, BTreeSet<ServiceKey>>,
    /// The cluster's addresses of Services with a port.
    addresses: BTreeSet<IpAddr>,
    udp: HashMap<ServiceKey, UdpEndpoints>,
    destinations: BTreeMap<ServiceKey, Vec<Destination>>,
    /// All of them, unless one has changed.
    all_destinations: Option<Arc<[Destination]>>,
    are_all_services: bool,
    are_all_slices: bool,
    health_checks: BTreeMap<u16, ServiceKey>,
}

impl Known {
    pub(crate) fn new(
        node: &str,
        cluster: &[IpNet],
        configured: &[IpNet],
        local_traffic: [IpAddr; 2],
    ) -> Self {
        Self {
            node: node.to_owned(),
            cluster: cluster.to_vec(),
            local_traffic,
            configured: configured.iter().map(IpNet::trunc).collect(),
            ranges: BTreeMap::new(),
            are_all_ranges: false,
            services: HashMap::new(),
            slices: HashMap::new(),
            of_service: HashMap::new(),
            addresses: BTreeSet::new(),
            udp: HashMap::new(),
            destinations: BTreeMap::new(),
            all_destinations: None,
            are_all_services: false,
            are_all_slices: false,
            health_checks: BTreeMap::new(),
        }
    }

    /// All Services.
    pub(crate) fn all_services(&mut self, services: Vec<(ServiceKey, Service)>) -> Moves {
        let there: BTreeSet<ServiceKey> = services.iter().map(|(key, _)| Arc::clone(key)).collect();
        let gone: Vec<ServiceKey> =
            self.services.keys().filter(|key| !there.contains(*key)).cloned().collect();
        let mut moves = Moves::default();
        gone.into_iter().for_each(|key| moves.add(self.service(&key, None)));
        services.into_iter().for_each(|(key, service)| moves.add(self.service(&key, Some(service))));
        self.are_all_services = true;
        moves
    }

    /// A Service, or that it is gone.
    pub(crate) fn service(&mut self, key: &ServiceKey, service: Option<Service>) -> Moves {
        if self.services.get(key) == service.as_ref() {
            return Moves::default();
        }
        if let Some(before) = self.services.remove(key) {
            for address in &before.cluster {
                self.addresses.remove(address);
            }
            if let Some(port) = before.health_check {
                self.health_checks.remove(&port);
            }
        }
        if let Some(service) = service {
            if !service.ports.is_empty() {
                self.addresses.extend(&service.cluster);
            }
            if let Some(port) = service.health_check {
                self.health_checks.insert(port, Arc::clone(key));
            }
            self.services.insert(Arc::clone(key), service);
        }
        self.derive(key)
    }

    /// All slices.
    pub(crate) fn all_slices(&mut self, slices: Vec<(ServiceKey, Slice)>) -> Moves {
        self.are_all_slices = true;
        let there: BTreeSet<ServiceKey> = slices.iter().map(|(key, _)| Arc::clone(key)).collect();
        let gone: Vec<ServiceKey> = self.slices.keys().filter(|key| !there.contains(*key)).cloned().collect();
        // Services are derived once at the end: an endpoint may move from one slice to another.
        let mut touched = BTreeSet::new();
        gone.into_iter().for_each(|key| self.put_slice(&key, None, &mut touched));
        slices.into_iter().for_each(|(key, slice)| self.put_slice(&key, Some(slice), &mut touched));
        self.derive_all(touched)
    }

    /// A slice, or that it is gone.
    pub(crate) fn slice(&mut self, key: &ServiceKey, slice: Option<Slice>) -> Moves {
        let mut touched = BTreeSet::new();
        self.put_slice(key, slice, &mut touched);
        self.derive_all(touched)
    }

    fn put_slice(&mut self, key: &ServiceKey, slice: Option<Slice>, touched: &mut BTreeSet<ServiceKey>) {
        let slice = slice.filter(|slice| self.matters(slice));
        if self.slices.get(key) == slice.as_ref() {
            return;
        }
        if let Some(service) = self.slices.remove(key).and_then(|before| before.service) {
            if let Some(slices) = self.of_service.get_mut(&service) {
                slices.remove(key);
                if slices.is_empty() {
                    self.of_service.remove(&service);
                }
            }
            touched.insert(service);
        }
        if let Some(slice) = slice {
            if let Some(service) = &slice.service {
                self.of_service.entry(Arc::clone(service)).or_default().insert(Arc::clone(key));
                touched.insert(Arc::clone(service));
            }
            self.slices.insert(Arc::clone(key), slice);
        }
    }

    fn matters(&self, slice: &Slice) -> bool {
        let is_udp = slice.ports.iter().any(|port| port.protocol == Protocol::Udp);
        let is_near = |endpoint: &Endpoint| self.is_local(endpoint) || self.is_outside(endpoint.address);
        slice.service.is_some() && (is_udp || slice.endpoints.iter().any(is_near))
    }

    fn is_local(&self, endpoint: &Endpoint) -> bool {
        Traffic::Local.admits(endpoint.node.as_deref(), &self.node)
    }

    /// Whether the address is that of a host. Without the subnets of pods there is none.
    fn is_outside(&self, address: IpAddr) -> bool {
        let mut family =
            self.cluster.iter().filter(|net| net.addr().is_ipv4() == address.is_ipv4()).peekable();
        family.peek().is_some() && family.all(|net| !net.contains(&address))
    }

    /// Objects of the ranges: all of them.
    pub(crate) fn all_ranges(&mut self, ranges: Vec<(ServiceKey, Vec<IpNet>)>) {
        self.ranges = ranges.into_iter().collect();
        self.are_all_ranges = true;
    }

    /// One of these objects, or that it is gone.
    pub(crate) fn range(&mut self, key: ServiceKey, range: Option<Vec<IpNet>>) {
        match range {
            Some(nets) => drop(self.ranges.insert(key, nets)),
            None => drop(self.ranges.remove(&key)),
        }
    }

    /// What the management port has to know now.
    pub(crate) fn facts(&mut self) -> Facts {
        let is_complete = self.is_complete();
        let all = self
            .all_destinations
            .get_or_insert_with(|| self.destinations.values().flatten().cloned().collect());
        // Before both are known, a Service may seem to have no endpoint.
        let destinations = is_complete.then(|| Arc::clone(all));
        let ranges = self.configured.iter().chain(self.ranges.values().flatten());
        let some = |range: &IpNet| {
            let all = self.addresses.range(range.network()..=range.broadcast());
            all.take(SAMPLES).copied().collect()
        };
        Facts {
            ranges: ranges.map(|range| (*range, some(range))).collect(),
            are_all_ranges: self.are_all_ranges,
            destinations,
        }
    }

    /// The health checks that this node has to answer, by port.
    pub(crate) fn health_checks(&self) -> BTreeMap<u16, HealthCheck> {
        let check = |(port, key): (&u16, &ServiceKey)| {
            let local = self.slices_of(key).flat_map(|slice| &slice.endpoints);
            let local =
                local.filter(|endpoint| endpoint.condition == Condition::Ready && self.is_local(endpoint));
            let addresses: BTreeSet<IpAddr> = local.map(|endpoint| endpoint.address).collect();
            (*port, HealthCheck { service: Arc::clone(key), local_endpoints: addresses.len() })
        };
        self.health_checks.iter().map(check).collect()
    }

    /// Whether all Services and their endpoints are known.
    pub(crate) fn is_complete(&self) -> bool {
        self.are_all_services && self.are_all_slices
    }

    /// What is stale among the connections that there are: what changed while nobody looked. Only for
    /// [complete](Self::is_complete) knowledge.
    pub(crate) fn stale_among(&self, connections: &BTreeSet<Translated>) -> BTreeSet<Stale> {
        let mut endpoints = UdpEndpoints::new();
        for (at, of_service) in self.udp.values().flatten() {
            endpoints.entry(*at).or_default().extend(of_service);
        }
        let stale = |Translated { to, by }: &Translated| {
            let (address, port) = (to.ip(), to.port());
            if let Some(known) = endpoints.get(&(Some(address), port)) {
                let stale = Stale { address: Some(address), port, endpoint: Some(*by) };
                return (!known.contains(by)).then_some(stale);
            }
            if self.is_of_range(address) {
                return Some(Stale { address: Some(address), port, endpoint: None });
            }
            // Another program of the host may translate the same port; its clients are translated anew.
            let known = endpoints.get(&(None, port))?;
            (!known.contains(by)).then_some(Stale { address: None, port, endpoint: Some(*by) })
        };
        connections.iter().filter_map(stale).collect()
    }

    /// Whether the address belongs to a range of Services' addresses.
    fn is_of_range(&self, address: IpAddr) -> bool {
        self.configured.iter().chain(self.ranges.values().flatten()).any(|range| range.contains(&address))
    }

    fn slices_of<'a>(&'a self, service: &ServiceKey) -> impl Iterator<Item = &'a Slice> + use<'a> {
        let slices = self.of_service.get(service);
        slices.into_iter().flatten().filter_map(|key| self.slices.get(key))
    }

    fn derive_all(&mut self, services: BTreeSet<ServiceKey>) -> Moves {
        let mut moves = Moves::default();
        services.iter().for_each(|key| moves.add(self.derive(key)));
        moves
    }

    /// Derives what is kept of a Service and its slices together.
    fn derive(&mut self, key: &ServiceKey) -> Moves {
        let destinations = self.destinations(key);
        if self.destinations.get(key).map_or(&[][..], Vec::as_slice) != destinations {
            self.all_destinations = None;
        }
        if destinations.is_empty() {
            self.destinations.remove(key);
        } else {
            self.destinations.insert(Arc::clone(key), destinations);
        }
        let now = self.udp_endpoints(key);
        let none = UdpEndpoints::new();
        let before = self.udp.get(key).unwrap_or(&none);
        let mut moves = Moves::between(before, &now);
        // What the first list has was there before.
        if self.are_all_services {
            moves.add_untranslated(before, &now);
        }
        if now.is_empty() {
            self.udp.remove(key);
        } else {
            self.udp.insert(Arc::clone(key), now);
        }
        moves
    }

    /// The endpoints that a connection may be translated to. One that is terminating and still serves may go
    /// on with the connections that it has.
    fn udp_endpoints(&self, key: &ServiceKey) -> UdpEndpoints {
        let mut all = UdpEndpoints::new();
        let Some(service) = self.services.get(key) else { return all };
        for port in service.ports.iter().filter(|port| port.protocol == Protocol::Udp) {
            let endpoints = self.endpoints(key, port);
            let endpoints =
                endpoints.filter(|(endpoint, _)| service.condition(endpoint) != Condition::Neither);
            let endpoints: BTreeSet<SocketAddr> =
                endpoints.map(|(endpoint, port)| SocketAddr::new(endpoint.address, port)).collect();
            let of_family = |is_v4: bool| endpoints.iter().copied().filter(move |it| it.is_ipv4() == is_v4);
            for address in service.cluster.iter().chain(&service.external) {
                all.entry((Some(*address), port.port)).or_default().extend(of_family(address.is_ipv4()));
            }
            if let Some(node_port) = port.node_port {
                let known = all.entry((None, node_port)).or_default();
                known.extend(&endpoints);
                // What the host's kernel translates its node port to: OVN goes on from there.
                known.extend(service.cluster.iter().map(|address| SocketAddr::new(*address, port.port)));
                if service.outside == Traffic::Local {
                    let local = destination::of_family_of(&service.cluster, self.local_traffic);
                    known.extend(local.map(|address| SocketAddr::new(address, node_port)));
                }
            }
        }
        all
    }

    /// The endpoints of a Service's port, each with its own number of that port.
    fn endpoints<'a>(
        &'a self,
        key: &ServiceKey,
        port: &'a ServicePort,
    ) -> impl Iterator<Item = (&'a Endpoint, u16)> + use<'a> {
        self.slices_of(key).flat_map(move |slice| {
            let same = |other: &&SlicePort| other.name == port.name && other.protocol == port.protocol;
            let number = slice.ports.iter().find(same).map(|port| port.port);
            slice.endpoints.iter().filter_map(move |endpoint| Some((endpoint, number?)))
        })
    }

    /// What the host's kernel has to translate for a Service.
    fn destinations(&self, key: &ServiceKey) -> Vec<Destination> {
        let Some(service) = self.services.get(key) else { return Vec::new() };
        let of_port = |port| {
            let endpoints = self.endpoints(key, port).map(|(endpoint, port)| Candidate {
                address: SocketAddr::new(endpoint.address, port),
                condition: service.condition(endpoint),
                is_local: self.is_local(endpoint),
                is_host: self.is_outside(endpoint.address),
            });
            destination::of_port(service, port, &endpoints.collect::<Vec<_>>(), self.local_traffic)
        };
        service.ports.iter().flat_map(of_port).collect()
    }
}

impl Moves {
    fn between(before: &UdpEndpoints, now: &UdpEndpoints) -> Self {
        let mut moves = Self::default();
        for ((address, port), endpoints) in before {
            let stale = |endpoint: Option<SocketAddr>| Stale { address: *address, port: *port, endpoint };
            match (now.get(&(*address, *port)), address) {
                (Some(now), _) => {
                    moves.stale.extend(endpoints.difference(now).map(|endpoint| stale(Some(*endpoint))))
                }
                (None, Some(_)) => drop(moves.stale.insert(stale(None))),
                // Other programs of the host may use the same port: only what was translated is stale.
                (None, None) => moves.stale.extend(endpoints.iter().map(|endpoint| stale(Some(*endpoint)))),
            }
        }
        for ((address, port), endpoints) in now {
            let valid = |endpoint: Option<SocketAddr>| Stale { address: *address, port: *port, endpoint };
            if address.is_some() {
                moves.valid.insert(valid(None));
            }
            moves.valid.extend(endpoints.iter().map(|endpoint| valid(Some(*endpoint))));
        }
        moves
    }

    /// A client that sent to a node port before there was one has a connection to the host itself, and keeps
    /// it for as long as it sends.
    fn add_untranslated(&mut self, before: &UdpEndpoints, now: &UdpEndpoints) {
        let only_in = |some: &UdpEndpoints, other: &UdpEndpoints| -> Vec<Stale> {
            let node_ports = some.keys().filter(|key| key.0.is_none() && !other.contains_key(key));
            node_ports.map(|(_, port)| Stale { address: None, port: *port, endpoint: None }).collect()
        };
        self.stale.extend(only_in(now, before));
        self.valid.extend(only_in(before, now));
    }

    /// Adds later moves.
    fn add(&mut self, later: Self) {
        self.stale.retain(|stale| !later.valid.contains(stale));
        self.valid.retain(|valid| !later.stale.contains(valid));
        self.stale.extend(later.stale);
        self.valid.extend(later.valid);
    }
}

#[cfg(test)]
mod tests;
