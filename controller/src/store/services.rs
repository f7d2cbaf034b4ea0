//! The Services with their EndpointSlices, and those whose load balancers differ from node to node.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    net::IpAddr,
    sync::Arc,
};

use contract::{
    limits::Exceeded,
    names::{ServiceKey, SliceKey},
};
use ipnet::IpNet;
use kubeapi::services::{API_SERVER, AddressField, Claim, Claims, Priced, Quotas, Refusal};

use super::{Service, ServicePort, Slice, Store, Traffic, fanout};
use crate::{
    config::ClusterConfig,
    key::Dirty,
    rows::load_balancer::template_affinity,
    trouble::{ServiceTrouble, Trouble},
};

/// A Service and its slices, one of which may come first.
#[derive(Debug, Default)]
pub struct Known {
    service: Option<Service>,
    /// Sorted by name.
    slices: Vec<(SliceKey, Slice)>,
    /// How many of its ports fit into the bounds of a Service: the first ones.
    ports: usize,
    /// Why the next one does not.
    exceeded: Option<Box<Exceeded>>,
    /// The trouble that was reported last.
    told: Option<Box<ServiceTrouble>>,
    /// It is idled no longer, and the pods that it needs may not be there yet.
    in_grace: bool,
    /// When the changes happened whose rows are not in the database yet, in microseconds since 1970.
    triggers: Vec<i64>,
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
const MOST_TRIGGERS: usize = 64;

/// The known Services.
#[derive(Debug, Default)]
pub(super) struct Services {
    all: HashMap<ServiceKey, Box<Known>>,
    /// Which Service serves an address and port that several want.
    claims: Claims,
    /// Which Services of a namespace are served.
    quotas: Quotas,
    /// The addresses of the API servers.
    api_servers: BTreeSet<IpAddr>,
    of_slice: HashMap<SliceKey, ServiceKey>,
    /// Services whose load balancers depend on the nodes.
    per_node: BTreeSet<ServiceKey>,
    /// Services whose load balancers depend on the nodes because of their NodePorts alone.
    node_ports: BTreeSet<ServiceKey>,
    /// Of those in `per_node`, the ones with NodePorts, too.
    at_nodes: BTreeSet<ServiceKey>,
    /// Of those in `at_nodes`, the ones that can be templates: variables stand for their backends then.
    variables: BTreeSet<ServiceKey>,
    /// Of those in `per_node`, the ones with hints for zones.
    of_zones: BTreeSet<ServiceKey>,
    /// Of those in `per_node`, the ones with endpoints that are hosts, by their addresses.
    at_hosts: BTreeMap<IpAddr, BTreeSet<ServiceKey>>,
    /// Those that are idled no longer, for a while.
    in_grace: BTreeSet<ServiceKey>,
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
        // Of a Service beyond its bounds nothing is served, and a hundred thousand endpoints are not to be indexed.
        let is_served = |service: &&Service| self.ports > 0 && !service.cluster_ips.is_empty();
        let Some(service) = self.service.as_ref().filter(is_served) else { return ByNode::default() };
        let node_ports = service.ports.iter().any(|port| port.node_port.is_some());
        let by_policy = service.internal == Traffic::Local
            || service.external == Traffic::Local && (node_ports || service.outside().next().is_some());
        let endpoints = || self.slices().flat_map(|slice| &slice.endpoints);
        let hosts =
            endpoints().map(|endpoint| endpoint.address).filter(|address| !config.is_of_pods(*address));
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

/// The Services that a change concerns.
#[derive(Debug, Default)]
struct Concerned {
    /// Others, which serve more or less from now on.
    others: BTreeSet<ServiceKey>,
    /// Whether variables may stand for backends of the changed one, or did so.
    variables: bool,
}

impl Services {
    pub(super) fn new(config: &ClusterConfig) -> Self {
        let ClusterConfig { cluster_subnets, join_subnets, transit_subnets, masquerade, .. } = config;
        let of_ovn = join_subnets.iter().chain(transit_subnets).chain(masquerade);
        let mut claims =
            Claims::new(cluster_subnets.iter().map(|subnet| subnet.cidr).chain(of_ovn.copied()).collect());
        claims.set_ranges(config.service_cidrs.clone());
        Self { claims, ..Self::default() }
    }

    pub(super) fn get(&self, key: &ServiceKey) -> Option<&Known> {
        self.all.get(key).map(|known| &**known)
    }

    /// Services, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&ServiceKey, &Service)> {
        self.all.iter().filter_map(|(key, known)| Some((key, known.service()?)))
    }

    pub(super) fn slices(&self) -> impl Iterator<Item = &SliceKey> {
        self.of_slice.keys()
    }

    /// Number of Services.
    pub(super) fn count(&self) -> usize {
        self.services
    }

    /// Services whose load balancers depend on the nodes.
    pub(super) fn per_node(&self) -> impl Iterator<Item = &ServiceKey> {
        self.per_node.iter()
    }

    /// Services whose load balancers depend on the nodes because of their NodePorts alone. With templates,
    /// that is how many addresses nodes have.
    pub(super) fn node_ports(&self) -> impl Iterator<Item = &ServiceKey> {
        self.node_ports.iter()
    }

    /// Those with NodePorts that cannot be templates, or whose backends need variables then.
    pub(super) fn at_nodes(&self) -> impl Iterator<Item = &ServiceKey> {
        self.at_nodes.iter()
    }

    /// Those whose backends need variables, if NodePorts are templates.
    pub(super) fn with_variables(&self) -> impl Iterator<Item = &ServiceKey> {
        self.variables.iter()
    }

    /// Those with NodePorts that can be templates.
    pub(super) fn templates(&self) -> impl Iterator<Item = &ServiceKey> {
        self.node_ports.iter().chain(&self.variables)
    }

    /// Whether variables may stand for backends one of which is this host.
    pub(super) fn has_variables_with(&self, host: &IpAddr) -> bool {
        self.with_endpoint(host).any(|service| self.variables.contains(service))
    }

    /// Those with hints for zones.
    pub(super) fn of_zones(&self) -> impl Iterator<Item = &ServiceKey> {
        self.of_zones.iter()
    }

    /// Those of which the address of a host is an endpoint.
    pub(super) fn with_endpoint(&self, host: &IpAddr) -> impl Iterator<Item = &ServiceKey> {
        self.at_hosts.get(host).into_iter().flatten()
    }

    /// The Service that is to serve the claim.
    fn serves(&self, key: &ServiceKey, address: IpAddr, port: &ServicePort) -> bool {
        self.claims.serves(key, &Claim::new(address, port))
    }

    /// Changes what a Service claims, before it is changed itself.
    fn claim(&mut self, key: &ServiceKey, after: Option<&Service>) -> BTreeSet<ServiceKey> {
        let before = self.all.get(key).and_then(|known| known.service());
        self.claims.change(key, before, after)
    }

    /// Follows the addresses of the API servers, if this is their Service.
    fn follow_api_servers(&mut self, key: &ServiceKey) -> BTreeSet<ServiceKey> {
        if key.as_str() != API_SERVER {
            return BTreeSet::new();
        }
        let slices = self.all.get(key).into_iter().flat_map(|known| known.slices());
        let now = slices.flat_map(|slice| &slice.endpoints).map(|endpoint| endpoint.address).collect();
        let before = std::mem::replace(&mut self.api_servers, now);
        let [before, now] =
            [&before, &self.api_servers].map(|all| all.iter().copied().collect::<Vec<IpAddr>>());
        self.claims.change_own(&before, &now)
    }

    /// Changes a Service or its slices, and follows the change in the indexes.
    fn change(
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
        let (ports, exceeded) = priced.map_or((0, None), |(_, priced)| (priced.ports, priced.exceeded));
        let cost = priced.map(|(service, priced)| (self.claims.claimant(key, service), priced.cost));
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

impl Store {
    /// A Service with its slices; none if there is no such Service.
    pub fn service(&self, key: &ServiceKey) -> Option<(&Service, &Known)> {
        let known = self.services.get(key)?;
        Some((known.service()?, known))
    }

    /// Number of Services.
    pub fn services(&self) -> usize {
        self.services.count()
    }

    /// The ports of the Service that get load balancers: all that fit into its bounds and its namespace's.
    pub(crate) fn served_ports<'a>(&self, key: &ServiceKey, service: &'a Service) -> &'a [ServicePort] {
        let fit = self.services.get(key).map_or(0, |known| known.ports);
        let served = if self.services.quotas.admits(key) { fit } else { 0 };
        &service.ports[..served.min(service.ports.len())]
    }

    /// The addresses at which the Service, and no other one, serves the port.
    pub(crate) fn served_addresses<'a>(
        &'a self,
        key: &'a ServiceKey,
        service: &'a Service,
        port: &'a ServicePort,
    ) -> impl Iterator<Item = (AddressField, IpAddr)> + 'a {
        service.addresses().filter(move |(_, address)| self.services.serves(key, *address, port))
    }

    /// Addresses of a node have changed, none of which is for `externalIPs`.
    pub(super) fn own_addresses_changed(
        &mut self,
        before: &[IpAddr],
        after: &[IpAddr],
        dirty: &mut Dirty<'_>,
    ) {
        if before != after {
            let others = self.services.claims.change_own(before, after);
            self.follow_others(others, dirty);
        }
    }

    /// The ranges of Services have changed.
    pub(super) fn service_ranges_changed(&mut self, ranges: Vec<IpNet>, dirty: &mut Dirty<'_>) {
        let others = self.services.claims.set_ranges(ranges);
        self.follow_others(others, dirty);
    }

    /// These Services serve more or less from now on.
    fn follow_others(&mut self, others: BTreeSet<ServiceKey>, dirty: &mut Dirty<'_>) {
        for key in others {
            self.tell_service(&key);
            fanout::service(&key, dirty);
            self.follow_variables(self.services.variables.contains(&key), dirty);
        }
    }

    /// Services with NodePorts that can be templates.
    pub fn template_services(&self) -> impl Iterator<Item = &ServiceKey> {
        self.services.templates()
    }

    /// Those of them whose backends may need variables, too.
    pub(crate) fn services_with_variables(&self) -> impl Iterator<Item = &ServiceKey> {
        self.services.with_variables()
    }

    /// Services that are idled no longer. The caller passes each to [`is_awake`](Self::is_awake) after a
    /// while.
    pub fn in_grace(&self) -> &BTreeSet<ServiceKey> {
        &self.services.in_grace
    }

    /// The Service has had time to get its pods: without one it refuses connections again.
    pub fn is_awake(&mut self, key: &ServiceKey, dirty: &mut Dirty<'_>) {
        if self.services.in_grace.remove(key) {
            let config = Arc::clone(&self.config);
            self.services.change(key, &config, |known| known.in_grace = false);
            fanout::service(key, dirty);
        }
    }

    /// When the changes of the Service's endpoints happened that have come since the last call, in
    /// microseconds since 1970.
    pub fn take_triggers(&mut self, key: &ServiceKey) -> Vec<i64> {
        self.services.all.get_mut(key).map(|known| std::mem::take(&mut known.triggers)).unwrap_or_default()
    }

    pub(super) fn replace_services(&mut self, services: Vec<(ServiceKey, Service)>, dirty: &mut Dirty<'_>) {
        let there: HashSet<&ServiceKey> = services.iter().map(|(key, _)| key).collect();
        let gone = self.services.iter().map(|(key, _)| key).filter(|key| !there.contains(key));
        let gone: Vec<ServiceKey> = gone.cloned().collect();
        gone.iter().for_each(|key| self.remove_service(key, dirty));
        services.into_iter().for_each(|(key, service)| self.put_service(key, service, dirty));
    }

    pub(super) fn put_service(&mut self, key: ServiceKey, service: Service, dirty: &mut Dirty<'_>) {
        let before = self.services.get(&key).and_then(Known::service);
        if before == Some(&service) {
            return;
        }
        let config = Arc::clone(&self.config);
        let (was_idled, is_idled) = (before.is_some_and(|before| before.idled), service.idled);
        let mut others = self.services.claim(&key, Some(&service));
        let concerned = self.services.change(&key, &config, |known| {
            known.in_grace = !is_idled && (known.in_grace || was_idled);
            known.service = Some(service);
        });
        if !is_idled && was_idled {
            self.services.in_grace.insert(key.clone());
        } else if is_idled {
            self.services.in_grace.remove(&key);
        }
        self.tell_service(&key);
        fanout::service(&key, dirty);
        self.may_need_variables(dirty);
        self.follow_variables(concerned.variables, dirty);
        others.extend(concerned.others);
        self.follow_others(others, dirty);
    }

    pub(super) fn remove_service(&mut self, key: &ServiceKey, dirty: &mut Dirty<'_>) {
        if self.services.get(key).and_then(Known::service).is_none() {
            return;
        }
        let config = Arc::clone(&self.config);
        let mut others = self.services.claim(key, None);
        let concerned = self.services.change(key, &config, |known| {
            (known.service, known.told, known.in_grace) = (None, None, false);
        });
        self.services.in_grace.remove(key);
        fanout::service(key, dirty);
        self.follow_variables(concerned.variables, dirty);
        others.extend(concerned.others);
        self.follow_others(others, dirty);
    }

    pub(super) fn replace_slices(&mut self, slices: Vec<(SliceKey, Slice)>, dirty: &mut Dirty<'_>) {
        let there: HashSet<&SliceKey> = slices.iter().map(|(key, _)| key).collect();
        let gone: Vec<SliceKey> =
            self.services.slices().filter(|key| !there.contains(key)).cloned().collect();
        gone.iter().for_each(|key| self.remove_slice(key, dirty));
        for (key, slice) in slices {
            // The change that it tells of may be long ago.
            self.put_slice(key, Slice { triggered: None, ..slice }, dirty);
        }
    }

    pub(super) fn put_slice(&mut self, key: SliceKey, mut slice: Slice, dirty: &mut Dirty<'_>) {
        let trigger = slice.triggered.take();
        // The label may have changed.
        if self.services.of_slice.get(&key).is_some_and(|service| Some(service) != slice.service.as_ref()) {
            self.remove_slice(&key, dirty);
        }
        let Some(service) = slice.service.clone() else { return };
        // Equal names share one allocation.
        for endpoint in &mut slice.endpoints {
            if let Some(name) = endpoint.node.as_ref().and_then(|name| self.nodes.name(name)) {
                endpoint.node = Some(Arc::clone(name));
            }
        }
        let before = self.services.get(&service).and_then(|known| known.slice(&key));
        if before == Some(&slice) {
            return;
        }
        let config = Arc::clone(&self.config);
        let concerned = self.services.change(&service, &config, |known| {
            match known.slices.binary_search_by(|(other, _)| other.cmp(&key)) {
                Ok(place) => known.slices[place].1 = slice,
                Err(place) => {
                    known.slices.reserve_exact(1);
                    known.slices.insert(place, (key.clone(), slice));
                }
            }
            if known.triggers.len() < MOST_TRIGGERS {
                known.triggers.extend(trigger);
            }
        });
        self.services.of_slice.entry(key).or_insert_with(|| service.clone());
        self.tell_service(&service);
        fanout::slice(&service, dirty);
        self.may_need_variables(dirty);
        self.follow_variables(concerned.variables, dirty);
        self.follow_others(concerned.others, dirty);
    }

    pub(super) fn remove_slice(&mut self, key: &SliceKey, dirty: &mut Dirty<'_>) {
        let Some(service) = self.services.of_slice.remove(key) else { return };
        let config = Arc::clone(&self.config);
        let others = |known: &mut Known| known.slices.retain(|(other, _)| other != key);
        let concerned = self.services.change(&service, &config, others);
        self.tell_service(&service);
        fanout::slice(&service, dirty);
        self.may_need_variables(dirty);
        self.follow_variables(concerned.variables, dirty);
        self.follow_others(concerned.others, dirty);
    }

    /// Queues an event if the Service or its slices have begun to have a value that cannot be used.
    fn tell_service(&mut self, key: &ServiceKey) {
        let trouble = self.service_trouble(key);
        let Some(known) = self.services.all.get_mut(key) else { return };
        if trouble.as_ref() == known.told.as_deref() {
            return;
        }
        known.told = trouble.clone().map(Box::new);
        if let (Some(why), Some(service)) = (trouble, &known.service) {
            let uid = Arc::clone(&service.uid);
            self.outbox.tell_service(Trouble { subject: key.clone(), uid, why });
        }
    }
}

impl Store {
    /// What of the Service cannot be used, or is not served: the first that matters.
    fn service_trouble(&self, key: &ServiceKey) -> Option<ServiceTrouble> {
        let known = self.services.get(key)?;
        let service = known.service.as_ref()?;
        let of_slices = || known.slices().find_map(|slice| slice.unusable.clone());
        let unusable = service.unusable.clone().or_else(of_slices).map(ServiceTrouble::Unusable);
        let refused = || {
            Some(match self.services.claims.refusal(key, service)? {
                Refusal::Reserved { address } => ServiceTrouble::ReservedAddress { address },
                Refusal::Taken { claim, by } => ServiceTrouble::AddressTaken { claim, by },
            })
        };
        let outside = || {
            let address = *service.cluster_ips.iter().find(|address| self.ranges.lack(**address))?;
            Some(ServiceTrouble::OutsideOfRanges { address })
        };
        unusable.or_else(|| self.oversize(key, known, service)).or_else(refused).or_else(outside)
    }

    /// The bound that keeps some of the Service's ports from being served.
    fn oversize(&self, key: &ServiceKey, known: &Known, service: &Service) -> Option<ServiceTrouble> {
        if let Some(exceeded) = self.services.quotas.exceeded(key) {
            return Some(ServiceTrouble::NamespaceTooLarge(exceeded));
        }
        let (exceeded, first) = (*known.exceeded.as_deref()?, service.ports.get(known.ports)?.port);
        Some(ServiceTrouble::TooLarge { exceeded, first })
    }

    /// The ranges have changed: queues events for Services that are outside of them now.
    pub(super) fn tell_services(&mut self) {
        let keys: Vec<ServiceKey> = self.services.iter().map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| self.tell_service(key));
    }
}

impl Known {
    fn slice(&self, key: &SliceKey) -> Option<&Slice> {
        let place = self.slices.binary_search_by(|(other, _)| other.cmp(key)).ok()?;
        Some(&self.slices[place].1)
    }
}
