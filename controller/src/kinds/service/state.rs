//! The Services with their EndpointSlices, and those whose load balancers differ from node to node.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
};

use contract::{
    limits::Exceeded,
    names::{ServiceKey, SliceKey},
};
use kubeapi::services::{
    API_SERVER, Claim, Claims, Priced, Quotas, Service, ServicePort, Slice, Traffic,
};

use crate::{
    config::ClusterConfig, kinds::service::problem::ServiceProblem,
    rows::load_balancer::template_affinity,
};

/// The Services that a change concerns.
#[derive(Debug, Default)]
pub(crate) struct Concerned {
    /// Others, which serve more or less from now on.
    pub(crate) others: BTreeSet<ServiceKey>,
    /// Whether variables may stand for backends of the changed one, or did so.
    pub(crate) variables: bool,
}

/// A Service and its slices, one of which may come first.
#[derive(Debug, Default)]
pub struct Known {
    pub(crate) service: Option<Service>,
    /// Sorted by name.
    pub(crate) slices: Vec<(SliceKey, Slice)>,
    /// How many of its ports fit into the bounds of a Service: the first ones.
    pub(crate) ports: usize,
    /// Why the next one does not.
    pub(crate) exceeded: Option<Box<Exceeded>>,
    /// The trouble that was reported last.
    pub(crate) told: Option<Box<ServiceProblem>>,
    /// It is idled no longer, and the pods that it needs may not be there yet.
    pub(crate) in_grace: bool,
    /// When the changes happened whose rows are not in the database yet, in microseconds since
    /// 1970.
    pub(crate) triggers: Vec<i64>,
}

/// How a Service's load balancers depend on the nodes.
#[derive(Debug, Default)]
struct ByNode {
    /// They may differ from node to node.
    differ: bool,
    /// It has NodePorts.
    node_ports: bool,
    /// Some of their backends are hosts: if they are templates, variables stand for the backends.
    variables: bool,
    /// A hint names zones.
    zones: bool,
    /// Endpoints that are hosts.
    hosts: BTreeSet<IpAddr>,
}

/// More changes than this that wait for one transaction are not measured one by one.
pub(crate) const MOST_TRIGGERS: usize = 64;

/// The known Services.
#[derive(Debug, Default)]
pub(crate) struct Services {
    pub(crate) all: HashMap<ServiceKey, Box<Known>>,
    /// Which Service serves an address and port that several want.
    pub(crate) claims: Claims,
    /// Which Services of a namespace are served.
    pub(crate) quotas: Quotas,
    /// The addresses of the API servers.
    api_servers: BTreeSet<IpAddr>,
    pub(crate) of_slice: HashMap<SliceKey, ServiceKey>,
    /// Services whose load balancers depend on the nodes.
    per_node: BTreeSet<ServiceKey>,
    /// Services whose load balancers depend on the nodes because of their NodePorts alone.
    node_ports: BTreeSet<ServiceKey>,
    /// Of those in `per_node`, the ones with NodePorts, too.
    at_nodes: BTreeSet<ServiceKey>,
    /// Of those in `at_nodes`, the ones that can be templates: variables stand for their backends
    /// then.
    pub(crate) variables: BTreeSet<ServiceKey>,
    /// Of those in `per_node`, the ones with hints for zones.
    of_zones: BTreeSet<ServiceKey>,
    /// Of those in `per_node`, the ones with endpoints that are hosts, by their addresses.
    at_hosts: BTreeMap<IpAddr, BTreeSet<ServiceKey>>,
    /// Those that are idled no longer, for a while.
    pub(crate) in_grace: BTreeSet<ServiceKey>,
    /// Number of Services; `all` has those, too, of which only slices are known.
    services: usize,
}

impl Known {
    pub fn service(&self) -> Option<&Service> {
        self.service.as_ref()
    }

    /// Whether a connection to it is an event: it is idled, or was so a moment ago.
    pub fn awaits_pods(&self) -> bool {
        self.in_grace || self.service.as_ref().is_some_and(|service| service.idled)
    }

    pub fn slices(&self) -> impl Iterator<Item = &Slice> + Clone {
        self.slices.iter().map(|(_, slice)| slice)
    }

    /// How its load balancers depend on the nodes.
    fn by_node(&self, config: &ClusterConfig) -> ByNode {
        // Of a Service beyond its bounds nothing is served, and a hundred thousand endpoints are
        // not to be indexed.
        let is_served = |service: &&Service| self.ports > 0 && !service.cluster_ips.is_empty();
        let Some(service) = self.service.as_ref().filter(is_served) else {
            return ByNode::default();
        };
        let node_ports = service.ports.iter().any(|port| port.node_port.is_some());
        let by_policy = service.internal == Traffic::Local
            || service.external == Traffic::Local
                && (node_ports || service.outside().next().is_some());
        let endpoints = || self.slices().flat_map(|slice| &slice.endpoints);
        let hosts = endpoints()
            .map(|endpoint| endpoint.address)
            .filter(|address| !config.is_of_pods(*address));
        let hosts: BTreeSet<IpAddr> = hosts.collect();
        let hints = || endpoints().filter_map(|endpoint| endpoint.hints.as_deref());
        let differ = by_policy
            || node_ports && !template_affinity(service)
            || !hosts.is_empty()
            || hints().next().is_some();
        let variables = node_ports
            && service.external == Traffic::Cluster
            && template_affinity(service)
            && !hosts.is_empty();
        let zones = hints().any(|hints| !hints.zones.is_empty());
        ByNode { differ, node_ports, variables, zones, hosts }
    }

    fn is_empty(&self) -> bool {
        self.service.is_none() && self.slices.is_empty()
    }

    fn price(&self) -> Option<(&Service, Priced)> {
        let service = self.service.as_ref()?;
        Some((service, Priced::of(service, self.slices())))
    }
}

impl Services {
    pub(crate) fn new(config: &ClusterConfig) -> Self {
        let ClusterConfig { cluster_subnets, join_subnets, transit_subnets, masquerade, .. } =
            config;
        let of_ovn = join_subnets.iter().chain(transit_subnets).chain(masquerade);
        let mut claims = Claims::new(
            cluster_subnets.iter().map(|subnet| subnet.cidr).chain(of_ovn.copied()).collect(),
        );
        claims.set_ranges(config.service_cidrs.clone());
        Self { claims, ..Self::default() }
    }

    pub(crate) fn get(&self, key: &ServiceKey) -> Option<&Known> {
        self.all.get(key).map(|known| &**known)
    }

    /// Services, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ServiceKey, &Service)> {
        self.all.iter().filter_map(|(key, known)| Some((key, known.service()?)))
    }

    pub(crate) fn slices(&self) -> impl Iterator<Item = &SliceKey> {
        self.of_slice.keys()
    }

    /// Number of Services.
    pub(crate) fn count(&self) -> usize {
        self.services
    }

    /// Services whose load balancers depend on the nodes.
    pub(crate) fn per_node(&self) -> impl Iterator<Item = &ServiceKey> {
        self.per_node.iter()
    }

    /// Services whose load balancers depend on the nodes because of their NodePorts alone. With
    /// templates, that is how many addresses nodes have.
    pub(crate) fn node_ports(&self) -> impl Iterator<Item = &ServiceKey> {
        self.node_ports.iter()
    }

    /// Those with NodePorts that cannot be templates, or whose backends need variables then.
    pub(crate) fn at_nodes(&self) -> impl Iterator<Item = &ServiceKey> {
        self.at_nodes.iter()
    }

    /// Those whose backends need variables, if NodePorts are templates.
    pub(crate) fn with_variables(&self) -> impl Iterator<Item = &ServiceKey> {
        self.variables.iter()
    }

    /// Those with NodePorts that can be templates.
    pub(crate) fn templates(&self) -> impl Iterator<Item = &ServiceKey> {
        self.node_ports.iter().chain(&self.variables)
    }

    /// Whether variables may stand for backends one of which is this host.
    pub(crate) fn has_variables_with(&self, host: &IpAddr) -> bool {
        self.with_endpoint(host).any(|service| self.variables.contains(service))
    }

    /// Those with hints for zones.
    pub(crate) fn of_zones(&self) -> impl Iterator<Item = &ServiceKey> {
        self.of_zones.iter()
    }

    /// Those of which the address of a host is an endpoint.
    pub(crate) fn with_endpoint(&self, host: &IpAddr) -> impl Iterator<Item = &ServiceKey> {
        self.at_hosts.get(host).into_iter().flatten()
    }

    /// The Service that is to serve the claim.
    pub(crate) fn serves(&self, key: &ServiceKey, address: IpAddr, port: &ServicePort) -> bool {
        self.claims.serves(key, &Claim::new(address, port))
    }

    /// Changes what a Service claims, before it is changed itself.
    pub(crate) fn claim(
        &mut self,
        key: &ServiceKey,
        after: Option<&Service>,
    ) -> BTreeSet<ServiceKey> {
        let before = self.all.get(key).and_then(|known| known.service());
        self.claims.change(key, before, after)
    }

    /// Follows the addresses of the API servers, if this is their Service.
    fn follow_api_servers(&mut self, key: &ServiceKey) -> BTreeSet<ServiceKey> {
        if key.as_str() != API_SERVER {
            return BTreeSet::new();
        }
        let slices = self.all.get(key).into_iter().flat_map(|known| known.slices());
        let now =
            slices.flat_map(|slice| &slice.endpoints).map(|endpoint| endpoint.address).collect();
        let before = std::mem::replace(&mut self.api_servers, now);
        let [before, now] =
            [&before, &self.api_servers].map(|all| all.iter().copied().collect::<Vec<IpAddr>>());
        self.claims.change_own(&before, &now)
    }

    /// Changes a Service or its slices, and follows the change in the indexes.
    pub(crate) fn change(
        &mut self,
        key: &ServiceKey,
        config: &ClusterConfig,
        change: impl FnOnce(&mut Known),
    ) -> Concerned {
        let known = self.all.entry(key.clone()).or_default();
        let was_there = known.service.is_some();
        let ByNode { hosts: before, variables: had_variables, .. } = known.by_node(config);
        change(known);
        let priced = known.price();
        let (ports, exceeded) =
            priced.map_or((0, None), |(_, priced)| (priced.ports, priced.exceeded));
        let cost =
            priced.map(|(service, priced)| (self.claims.claimant(key, service), priced.cost));
        let mut others = self.quotas.set(key, cost);
        others.remove(key);
        (known.ports, known.exceeded) = (ports, exceeded.map(Box::new));
        let is_there = known.service.is_some();
        let ByNode { differ, node_ports, variables, zones, hosts } = known.by_node(config);
        for host in before.difference(&hosts) {
            if let Some(services) = self.at_hosts.get_mut(host) {
                services.remove(key);
                if services.is_empty() {
                    self.at_hosts.remove(host);
                }
            }
        }
        for host in hosts.difference(&before) {
            self.at_hosts.entry(*host).or_default().insert(key.clone());
        }
        for (index, is_in) in [
            (&mut self.per_node, differ),
            (&mut self.node_ports, node_ports && !differ),
            (&mut self.at_nodes, node_ports && differ),
            (&mut self.variables, variables),
            (&mut self.of_zones, zones),
        ] {
            if is_in {
                index.insert(key.clone());
            } else {
                index.remove(key);
            }
        }
        if known.is_empty() {
            self.all.remove(key);
        }
        self.services = self.services + usize::from(is_there) - usize::from(was_there);
        others.extend(self.follow_api_servers(key));
        Concerned { others, variables: variables || had_variables }
    }
}

impl Known {
    pub(crate) fn slice(&self, key: &SliceKey) -> Option<&Slice> {
        let place = self.slices.binary_search_by(|(other, _)| other.cmp(key)).ok()?;
        Some(&self.slices[place].1)
    }
}
