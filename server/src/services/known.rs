//! What a node has to know of the cluster's Services: a reduction of the API server's objects.
//! Pure.
//!
//! | kept of | what |
//! |---|---|
//! | each Service | what it says, what it claims and costs |
//! | EndpointSlices | ports, and how many endpoints there are |
//! | those with a UDP port, an endpoint of this node, or an endpoint outside of the overlay | the endpoints |
//!
//! So a node of a large cluster keeps little more than its DNS servers. What of a Service is served
//! is decided as in the controller ([`Claims`], [`Priced`], [`Quotas`]).

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use contract::names::{ServiceKey, SliceKey};
use ipnet::IpNet;
use kubeapi::services::{
    API_SERVER, AddressField, Claim, Claims, Condition, Endpoint, Place, Priced, Protocol, Quotas,
    Service, ServicePort, Slice, Traffic,
};
use podnet::conntrack::{Stale, StaleEnd, Translated};

use super::{
    ServicesConfig,
    destination::{self, Candidate, Destination, OfNode},
};

/// Addresses in a range that show whether OVN serves it. The first one alone could be that of a
/// Service which OVN does not serve for a reason of its own; each more costs the switch a look at
/// all of its flows.
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
    /// Each with the namespace of the Service.
    pub(crate) stale: BTreeMap<Stale, Arc<str>>,
    pub(crate) valid: BTreeSet<Stale>,
}

/// The endpoints of each UDP address and port of a Service. Without an address: of its NodePort.
type UdpEndpoints = BTreeMap<(Option<IpAddr>, u16), BTreeSet<SocketAddr>>;

/// The state of all Services.
#[derive(Debug)]
pub(crate) struct Known {
    node: String,
    /// The node's zone of the data centre.
    zone: Option<Arc<str>>,
    /// The subnets of all pods.
    cluster: Vec<IpNet>,
    /// The ranges of OVN itself.
    reserved: Vec<IpNet>,
    /// Where OVN balances what a node's addresses get under `externalTrafficPolicy: Local`.
    local_traffic: [IpAddr; 2],
    /// The ranges that the options name.
    configured: Vec<IpNet>,
    ranges: BTreeMap<Arc<str>, Box<[IpNet]>>,
    are_all_ranges: bool,
    services: HashMap<ServiceKey, Service>,
    slices: HashMap<SliceKey, Slice>,
    /// The slices of each Service.
    of_service: HashMap<ServiceKey, BTreeSet<SliceKey>>,
    claims: Claims,
    quotas: Quotas,
    /// How many ports of each Service fit into its own bounds.
    ports: HashMap<ServiceKey, usize>,
    /// The addresses of each node, while any Service has `externalIPs`.
    nodes: HashMap<Arc<str>, Box<[IpAddr]>>,
    nodes_are: Nodes,
    /// The addresses of the API servers.
    api_servers: BTreeSet<IpAddr>,
    /// The cluster's addresses of Services that are served.
    addresses: BTreeSet<IpAddr>,
    udp: HashMap<ServiceKey, UdpEndpoints>,
    destinations: BTreeMap<ServiceKey, Vec<Destination>>,
    /// All of them, unless one has changed.
    all_destinations: Option<Arc<[Destination]>>,
    are_all_services: bool,
    are_all_slices: bool,
    health_checks: BTreeMap<u16, ServiceKey>,
}

/// Whether the nodes' addresses are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nodes {
    /// Nobody has asked for them.
    NotNeeded,
    Awaited,
    /// They are, or the API server does not tell.
    Settled,
}

impl Known {
    pub(super) fn new(config: &ServicesConfig<'_>) -> Self {
        let ServicesConfig { node, ranges, reserved, local_traffic, ovs_run_dir: _ } = *config;
        let configured: Vec<IpNet> = ranges.iter().map(IpNet::trunc).collect();
        let reserved: Vec<IpNet> = reserved.iter().map(IpNet::trunc).collect();
        let mut claims = Claims::new(reserved.clone());
        claims.set_ranges(configured.clone());
        Self {
            node: node.to_owned(),
            zone: None,
            cluster: Vec::new(),
            reserved,
            local_traffic,
            configured,
            ranges: BTreeMap::new(),
            are_all_ranges: false,
            services: HashMap::new(),
            slices: HashMap::new(),
            of_service: HashMap::new(),
            claims,
            quotas: Quotas::default(),
            ports: HashMap::new(),
            nodes: HashMap::new(),
            nodes_are: Nodes::NotNeeded,
            api_servers: BTreeSet::new(),
            addresses: BTreeSet::new(),
            udp: HashMap::new(),
            destinations: BTreeMap::new(),
            all_destinations: None,
            are_all_services: false,
            are_all_slices: false,
            health_checks: BTreeMap::new(),
        }
    }

    /// The subnets of all pods. Before any Service.
    pub(crate) fn pods_are_in(&mut self, cluster: Vec<IpNet>) {
        let mut claims =
            Claims::new(cluster.iter().map(IpNet::trunc).chain(self.reserved.clone()).collect());
        claims.set_ranges(self.configured.clone());
        (self.claims, self.cluster) = (claims, cluster);
    }

    /// The node's zone of the data centre.
    pub(crate) fn zone(&mut self, zone: Option<Arc<str>>) -> Moves {
        if std::mem::replace(&mut self.zone, zone) == self.zone {
            return Moves::default();
        }
        self.derive_all(self.services.keys().cloned().collect())
    }

    /// All Services.
    pub(crate) fn all_services(&mut self, services: Vec<(ServiceKey, Service)>) -> Moves {
        let there: BTreeSet<ServiceKey> = services.iter().map(|(key, _)| key.clone()).collect();
        let gone: Vec<ServiceKey> =
            self.services.keys().filter(|key| !there.contains(*key)).cloned().collect();
        // Services are derived once at the end: one that goes may leave its place to one that
        // comes.
        let mut touched = BTreeSet::new();
        gone.into_iter().for_each(|key| self.put_service(&key, None, &mut touched));
        services
            .into_iter()
            .for_each(|(key, service)| self.put_service(&key, Some(service), &mut touched));
        let moves = self.derive_all(touched);
        self.are_all_services = true;
        moves
    }

    /// A Service, or that it is gone.
    pub(crate) fn service(&mut self, key: &ServiceKey, service: Option<Service>) -> Moves {
        let mut touched = BTreeSet::new();
        self.put_service(key, service, &mut touched);
        self.derive_all(touched)
    }

    fn put_service(
        &mut self,
        key: &ServiceKey,
        service: Option<Service>,
        touched: &mut BTreeSet<ServiceKey>,
    ) {
        if self.services.get(key) == service.as_ref() {
            return;
        }
        touched.insert(key.clone());
        let before = self.services.remove(key);
        touched.extend(self.claims.change(key, before.as_ref(), service.as_ref()));
        if let Some(before) = before {
            for address in &before.cluster_ips {
                self.addresses.remove(address);
            }
            if let Some(port) = before.health_check {
                self.health_checks.remove(&port);
            }
        }
        if let Some(service) = service {
            if let Some(port) = service.health_check {
                self.health_checks.insert(port, key.clone());
            }
            self.services.insert(key.clone(), service);
        }
        if self.nodes_are == Nodes::NotNeeded && self.claims.has_external_ips() {
            self.nodes_are = Nodes::Awaited;
        }
    }

    /// Whether the nodes' addresses have to be read.
    pub(crate) fn awaits_nodes(&self) -> bool {
        self.nodes_are == Nodes::Awaited
    }

    /// The addresses of all nodes.
    pub(crate) fn all_nodes(&mut self, nodes: Vec<(Arc<str>, Box<[IpAddr]>)>) -> Moves {
        let there: BTreeSet<Arc<str>> = nodes.iter().map(|(name, _)| Arc::clone(name)).collect();
        let gone: Vec<Arc<str>> =
            self.nodes.keys().filter(|name| !there.contains(*name)).cloned().collect();
        let mut touched = BTreeSet::new();
        // First those that come: an address that moves from one node to another is never nobody's.
        nodes.into_iter().for_each(|(name, now)| touched.extend(self.put_node(name, now)));
        gone.into_iter().for_each(|name| touched.extend(self.put_node(name, Box::default())));
        self.nodes_are = Nodes::Settled;
        self.derive_all(touched)
    }

    /// The addresses of a node; none if it is gone.
    pub(crate) fn node(&mut self, name: Arc<str>, addresses: Box<[IpAddr]>) -> Moves {
        let touched = self.put_node(name, addresses);
        self.derive_all(touched)
    }

    fn put_node(&mut self, name: Arc<str>, addresses: Box<[IpAddr]>) -> BTreeSet<ServiceKey> {
        let before = self.nodes.remove(&name).unwrap_or_default();
        let touched = self.claims.change_own(&before, &addresses);
        if !addresses.is_empty() {
            self.nodes.insert(name, addresses);
        }
        touched
    }

    /// The API server does not tell the nodes' addresses.
    pub(crate) fn no_nodes(&mut self) -> Moves {
        self.nodes_are = Nodes::Settled;
        Moves::default()
    }

    /// All slices.
    pub(crate) fn all_slices(&mut self, slices: Vec<(SliceKey, Slice)>) -> Moves {
        self.are_all_slices = true;
        let there: BTreeSet<SliceKey> = slices.iter().map(|(key, _)| key.clone()).collect();
        let gone: Vec<SliceKey> =
            self.slices.keys().filter(|key| !there.contains(*key)).cloned().collect();
        // Services are derived once at the end: an endpoint may move from one slice to another.
        let mut touched = BTreeSet::new();
        gone.into_iter().for_each(|key| self.put_slice(&key, None, &mut touched));
        slices.into_iter().for_each(|(key, slice)| self.put_slice(&key, Some(slice), &mut touched));
        self.derive_all(touched)
    }

    /// A slice, or that it is gone.
    pub(crate) fn slice(&mut self, key: &SliceKey, slice: Option<Slice>) -> Moves {
        let mut touched = BTreeSet::new();
        self.put_slice(key, slice, &mut touched);
        self.derive_all(touched)
    }

    fn put_slice(
        &mut self,
        key: &SliceKey,
        slice: Option<Slice>,
        touched: &mut BTreeSet<ServiceKey>,
    ) {
        let slice = slice.filter(|slice| slice.service.is_some()).map(|slice| self.reduced(slice));
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
                self.of_service.entry(service.clone()).or_default().insert(key.clone());
                touched.insert(service.clone());
            }
            self.slices.insert(key.clone(), slice);
        }
    }

    /// What a node keeps of a slice.
    fn reduced(&self, slice: Slice) -> Slice {
        let is_udp = slice.ports.iter().any(|port| port.protocol == Protocol::Udp);
        let is_near =
            |endpoint: &Endpoint| self.is_local(endpoint) || self.is_outside(endpoint.address);
        let endpoints = if is_udp || slice.endpoints.iter().any(is_near) {
            slice.endpoints
        } else {
            Box::default()
        };
        Slice { endpoints, triggered: None, unusable: None, ..slice }
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
    pub(crate) fn all_ranges(&mut self, ranges: Vec<(Arc<str>, Box<[IpNet]>)>) -> Moves {
        self.ranges = ranges.into_iter().collect();
        self.are_all_ranges = true;
        self.follow_ranges()
    }

    /// One of these objects, or that it is gone.
    pub(crate) fn range(&mut self, name: Arc<str>, range: Option<Box<[IpNet]>>) -> Moves {
        match range {
            Some(nets) => drop(self.ranges.insert(name, nets)),
            None => drop(self.ranges.remove(&name)),
        }
        self.follow_ranges()
    }

    fn follow_ranges(&mut self) -> Moves {
        let objects: Vec<IpNet> = self.ranges.values().flatten().copied().collect();
        // As in the controller: what the options name counts where there are no objects.
        let ranges = if objects.is_empty() { self.configured.clone() } else { objects };
        let touched = self.claims.set_ranges(ranges);
        self.derive_all(touched)
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
            let local = local.filter(|endpoint| {
                endpoint.condition == Condition::Ready && self.is_local(endpoint)
            });
            let addresses: BTreeSet<IpAddr> = local.map(|endpoint| endpoint.address).collect();
            (*port, HealthCheck { service: key.clone(), local_endpoints: addresses.len() })
        };
        self.health_checks.iter().map(check).collect()
    }

    /// Whether all is known that decides what of the Services is served, and by which endpoints.
    pub(crate) fn is_complete(&self) -> bool {
        self.are_all_services && self.are_all_slices && self.nodes_are != Nodes::Awaited
    }

    /// What is stale among the connections that there are: what changed while nobody looked. Only
    /// for [complete](Self::is_complete) knowledge.
    pub(crate) fn stale_among(&self, connections: &BTreeSet<Translated>) -> BTreeSet<Stale> {
        let mut endpoints = UdpEndpoints::new();
        for (at, of_service) in self.udp.values().flatten() {
            endpoints.entry(*at).or_default().extend(of_service);
        }
        let stale = |Translated { to, by }: &Translated| {
            let (address, port) = (to.ip(), to.port());
            if let Some(known) = endpoints.get(&(Some(address), port)) {
                let stale = Stale { address: Some(address), port, end: StaleEnd::Endpoint(*by) };
                return (!known.contains(by)).then_some(stale);
            }
            if self.is_of_range(address) {
                return Some(Stale { address: Some(address), port, end: StaleEnd::Any });
            }
            // Another program of the host may translate the same port; its clients are translated
            // anew.
            let known = endpoints.get(&(None, port))?;
            (!known.contains(by)).then_some(Stale {
                address: None,
                port,
                end: StaleEnd::Endpoint(*by),
            })
        };
        connections.iter().filter_map(stale).collect()
    }

    /// Whether the address belongs to a range of Services' addresses.
    fn is_of_range(&self, address: IpAddr) -> bool {
        self.configured
            .iter()
            .chain(self.ranges.values().flatten())
            .any(|range| range.contains(&address))
    }

    fn slices_of<'a>(
        &'a self,
        service: &ServiceKey,
    ) -> impl Iterator<Item = &'a Slice> + Clone + use<'a> {
        let slices = self.of_service.get(service);
        slices.into_iter().flatten().filter_map(|key| self.slices.get(key))
    }

    /// Derives what is kept of these Services and their slices, and of others that serve more or
    /// less because of them.
    fn derive_all(&mut self, services: BTreeSet<ServiceKey>) -> Moves {
        let mut all = services.clone();
        for key in &services {
            if key.as_str() == API_SERVER {
                all.extend(self.follow_api_servers(key));
            }
            all.extend(self.price(key));
        }
        let mut moves = Moves::default();
        all.iter().for_each(|key| moves.add(self.derive(key)));
        moves
    }

    /// Returns the Services that are served from now on, or no longer.
    fn price(&mut self, key: &ServiceKey) -> BTreeSet<ServiceKey> {
        let Some(service) = self.services.get(key) else {
            self.ports.remove(key);
            return self.quotas.set(key, None);
        };
        let priced = Priced::of(service, self.slices_of(key));
        self.ports.insert(key.clone(), priced.ports);
        self.quotas.set(key, Some((self.claims.claimant(key, service), priced.cost)))
    }

    /// Returns the Services with `externalIPs` that are addresses of API servers from now on, or no
    /// longer.
    fn follow_api_servers(&mut self, key: &ServiceKey) -> BTreeSet<ServiceKey> {
        let endpoints = self.slices_of(key).flat_map(|slice| &slice.endpoints);
        let now: BTreeSet<IpAddr> = endpoints.map(|endpoint| endpoint.address).collect();
        let before = std::mem::replace(&mut self.api_servers, now);
        let [before, now] =
            [&before, &self.api_servers].map(|all| all.iter().copied().collect::<Vec<IpAddr>>());
        self.claims.change_own(&before, &now)
    }

    /// The ports of the Service that are served.
    fn served_ports<'a>(&self, key: &ServiceKey, service: &'a Service) -> &'a [ServicePort] {
        let fit = self.ports.get(key).copied().unwrap_or_default();
        let served = if self.quotas.admits(key) { fit } else { 0 };
        &service.ports[..served.min(service.ports.len())]
    }

    /// The addresses at which the Service serves the port.
    fn served_addresses<'a>(
        &'a self,
        key: &'a ServiceKey,
        service: &'a Service,
        port: &'a ServicePort,
    ) -> impl Iterator<Item = (AddressField, IpAddr)> + 'a {
        let is_served = |(_, address): &(AddressField, IpAddr)| {
            self.claims.serves(key, &Claim::new(*address, port))
        };
        service.addresses().filter(is_served)
    }

    /// Derives what is kept of a Service and its slices together.
    fn derive(&mut self, key: &ServiceKey) -> Moves {
        if let Some(service) = self.services.get(key)
            && !self.served_ports(key, service).is_empty()
        {
            self.addresses.extend(&service.cluster_ips);
        }
        let destinations = self.destinations(key);
        if self.destinations.get(key).map_or(&[][..], Vec::as_slice) != destinations {
            self.all_destinations = None;
        }
        if destinations.is_empty() {
            self.destinations.remove(key);
        } else {
            self.destinations.insert(key.clone(), destinations);
        }
        let now = self.udp_endpoints(key);
        let none = UdpEndpoints::new();
        let before = self.udp.get(key).unwrap_or(&none);
        let mut moves = Moves::between(key.namespace(), before, &now);
        // What the first list has was there before.
        if self.are_all_services {
            moves.add_untranslated(key.namespace(), before, &now);
        }
        if now.is_empty() {
            self.udp.remove(key);
        } else {
            self.udp.insert(key.clone(), now);
        }
        moves
    }

    /// The endpoints that a connection may be translated to. One that is terminating and still
    /// serves may go on with the connections that it has.
    fn udp_endpoints(&self, key: &ServiceKey) -> UdpEndpoints {
        let mut all = UdpEndpoints::new();
        let Some(service) = self.services.get(key) else { return all };
        let served = self.served_ports(key, service).iter();
        for port in served.filter(|port| port.protocol == Protocol::Udp) {
            let endpoints = self.endpoints(key, port);
            let endpoints = endpoints
                .filter(|(endpoint, _)| condition(service, endpoint) != Condition::Neither);
            let endpoints: BTreeSet<SocketAddr> =
                endpoints.map(|(endpoint, port)| SocketAddr::new(endpoint.address, port)).collect();
            let of_family =
                |is_v4: bool| endpoints.iter().copied().filter(move |it| it.is_ipv4() == is_v4);
            for (_, address) in self.served_addresses(key, service, port) {
                all.entry((Some(address), port.port))
                    .or_default()
                    .extend(of_family(address.is_ipv4()));
            }
            if let Some(node_port) = port.node_port {
                let known = all.entry((None, node_port)).or_default();
                known.extend(&endpoints);
                // What the host's kernel translates its node port to: OVN goes on from there.
                known.extend(
                    service.cluster_ips.iter().map(|address| SocketAddr::new(*address, port.port)),
                );
                if service.external == Traffic::Local {
                    let local = destination::of_family_of(&service.cluster_ips, self.local_traffic);
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
            let numbers = slice.targets(port);
            numbers
                .flat_map(|number| slice.endpoints.iter().map(move |endpoint| (endpoint, number)))
        })
    }

    /// What the host's kernel has to translate for a Service.
    fn destinations(&self, key: &ServiceKey) -> Vec<Destination> {
        let Some(service) = self.services.get(key) else { return Vec::new() };
        let of_port = |port| {
            let endpoints = self.endpoints(key, port).map(|(endpoint, port)| Candidate {
                address: SocketAddr::new(endpoint.address, port),
                condition: condition(service, endpoint),
                is_local: self.is_local(endpoint),
                is_host: self.is_outside(endpoint.address),
                hints: endpoint.hints.as_deref(),
            });
            let served = self.served_addresses(key, service, port);
            let outside = served.filter(|(field, _)| *field != AddressField::ClusterIps);
            let outside: Vec<IpAddr> = outside.map(|(_, address)| address).collect();
            let endpoints: Vec<Candidate<'_>> = endpoints.collect();
            let place = Place { node: &self.node, zone: self.zone.as_deref() };
            let node = OfNode { place, local_traffic: self.local_traffic };
            destination::of_port(node, service, port, &outside, &endpoints)
        };
        self.served_ports(key, service).iter().flat_map(of_port).collect()
    }
}

/// The condition of an endpoint of this Service.
fn condition(service: &Service, endpoint: &Endpoint) -> Condition {
    if service.publish_not_ready { Condition::Ready } else { endpoint.condition }
}

impl Moves {
    /// What becomes of a Service's connections.
    fn between(namespace: &str, before: &UdpEndpoints, now: &UdpEndpoints) -> Self {
        let mut moves = Self::default();
        let namespace: Arc<str> = namespace.into();
        for ((address, port), endpoints) in before {
            let stale =
                |end| (Stale { address: *address, port: *port, end }, Arc::clone(&namespace));
            let to = |endpoint: &SocketAddr| stale(StaleEnd::Endpoint(*endpoint));
            match (now.get(&(*address, *port)), address) {
                (Some(now), _) => moves.stale.extend(endpoints.difference(now).map(to)),
                (None, Some(_)) => moves.stale.extend([stale(StaleEnd::Any)]),
                // Other programs of the host may use the same port: only what was translated is
                // stale.
                (None, None) => moves.stale.extend(endpoints.iter().map(to)),
            }
        }
        for ((address, port), endpoints) in now {
            let valid = |end: StaleEnd| Stale { address: *address, port: *port, end };
            if address.is_some() {
                moves.valid.insert(valid(StaleEnd::Any));
            }
            moves
                .valid
                .extend(endpoints.iter().map(|endpoint| valid(StaleEnd::Endpoint(*endpoint))));
        }
        moves
    }

    /// A client that sent to an address and port before there was the Service has a connection to
    /// the address itself, and keeps it for as long as it sends.
    fn add_untranslated(&mut self, namespace: &str, before: &UdpEndpoints, now: &UdpEndpoints) {
        let only_in = |some: &UdpEndpoints, other: &UdpEndpoints| -> Vec<Stale> {
            let new = some.keys().filter(|key| !other.contains_key(key));
            new.map(|(address, port)| Stale {
                address: *address,
                port: *port,
                end: StaleEnd::Itself,
            })
            .collect()
        };
        let namespace: Arc<str> = namespace.into();
        self.stale
            .extend(only_in(now, before).into_iter().map(|stale| (stale, Arc::clone(&namespace))));
        self.valid.extend(only_in(before, now));
    }

    /// Adds later moves.
    fn add(&mut self, later: Self) {
        self.stale.retain(|stale, _| !later.valid.contains(stale));
        self.valid.retain(|valid| !later.stale.contains_key(valid));
        self.stale.extend(later.stale);
        self.valid.extend(later.valid);
    }
}

#[cfg(test)]
mod tests;
