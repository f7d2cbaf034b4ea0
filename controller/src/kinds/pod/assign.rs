//! Assigns addresses to pods, lets pods wait for addresses, and releases them.
//!
//! A pod's annotation is the record, as far as it can be true: a user can write it, too. What the
//! pod's node reports of a running pod comes first; what an annotation claims counts only inside
//! the subnets of the pod's node, and only if nothing else has it. A pod whose claim does not count
//! gets a new address, unless it had its network before. All records are read before any new
//! address is given.
//!
//! An address is free again when its pod is gone or has ended *and* the pod's port has left the
//! northbound database. Two pods never share an address: the second pod waits, and is woken when
//! the address becomes free.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use contract::{
    annotation::PodNetwork,
    mac::Mac,
    names::{ClusterPolicyKey, PodKey},
    ovn,
};
use ipnet::IpNet;
use kubeapi::object::Object;

use crate::{
    allocate::{
        addresses::{Exhausted, Taken},
        pod_network::{Assigned, pod_network},
    },
    few::give_back,
    key::{AnyPolicy, CustomKey, Dirty, Key, NodeName},
    kinds::pod::{
        found::FoundPort,
        object::{Annotated, Pod, Reported},
        problem::{ClaimProblem, PodProblem},
    },
    problem::Problem,
    status_writeback::RowsState,
    world::{Kept, Place, Store},
};

/// The evidence of a pod's addresses. Of several pods, those with the first kind are assigned
/// first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Record {
    /// A port that agrees with an annotation or with the node's report; or a port of this pod, and
    /// no usable annotation.
    WithPort,
    /// The report of the pod's node.
    Reported,
    /// An annotation.
    Alone,
    None,
}

/// What a pod may be assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// What its record says. Records of other pods have not been read yet.
    Records,
    /// A new address as well.
    NewAddresses,
}

impl Store {
    /// Reports that the northbound database has exactly the rows that `key` should have: addresses
    /// that they no longer use become free, and pods that waited for them get them.
    ///
    /// To be called only if the key has not become dirty since its rows were computed.
    pub fn settled(&mut self, key: &Key, dirty: &mut Dirty<'_>) {
        let pod = match key {
            Key::Pod(pod) => {
                self.check_names_of_pod(pod);
                pod
            }
            Key::Set(set) => return self.settled_set(set, dirty),
            Key::Policy(policy) => {
                self.check_names(policy);
                return self.settled_policy(&AnyPolicy::Namespaced(policy.clone()), dirty);
            }
            Key::ClusterPolicy(policy) => {
                self.rows_written(policy);
                return self
                    .settled_policy(&AnyPolicy::Cluster(ClusterPolicyKey::clone(policy)), dirty);
            }
            Key::Custom(of) => {
                let CustomKey { kind, namespace } = &**of;
                self.custom_stands(*kind, namespace, RowsState::Ready);
                return self
                    .settled_policy(&AnyPolicy::Custom(*kind, Arc::clone(namespace)), dirty);
            }
            Key::Namespace(namespace) => {
                return self.settled_policy(&AnyPolicy::Multicast(Arc::clone(namespace)), dirty);
            }
            Key::Cluster
            | Key::Node(_)
            | Key::Gateway(_)
            | Key::Transit(_)
            | Key::SourceNat(_)
            | Key::Isolation(_)
            | Key::Service(_)
            | Key::Chassis(_) => return,
        };
        // Rows that are kept were not compared, so the port may still use its addresses. A set that
        // still has one would allow the next pod what this one was allowed.
        if self.kept(key) == Kept::ALL || self.policies.sets.is_pending(pod) {
            return;
        }
        let had_port = self.found.remove(pod).is_some();
        let left = self.leaving.remove(pod).unwrap_or_default();
        give_back(&mut self.found);
        give_back(&mut self.leaving);
        // A pod that was assigned the addresses of its own port at the start still has them.
        let kept = self
            .assigned(pod)
            .map(|network| network.addresses.iter().map(IpNet::addr).collect::<Vec<_>>())
            .unwrap_or_default();
        let free: Vec<IpAddr> =
            left.into_iter().filter(|address| !kept.contains(address)).collect();
        // All of them before a pod is woken: a dual-stack pod needs an address of each family at
        // once.
        free.iter().for_each(|address| self.addresses.release(pod, *address));
        free.into_iter().for_each(|address| self.wake(address, dirty));
        // Its port could not stay, so there is nothing left that a new address would cut off.
        if had_port && self.trouble(pod).is_some() {
            self.reassign(pod, dirty);
        }
    }

    /// Registers a pod's port that exists in the northbound database. No other pod gets its
    /// addresses before the key is settled. The pod itself gets them if the port was made for it
    /// and its node does not report others.
    ///
    /// To be called for every existing port before the observation that completes the store.
    /// Otherwise the addresses of a pod that was deleted while no controller ran could be assigned
    /// while its port still exists.
    pub fn found_port(&mut self, key: &PodKey, port: FoundPort) {
        self.leaving.entry(key.clone()).or_default().extend(&port.addresses);
        // Earlier, `assign_all` holds them: a pod whose annotation agrees with its port comes
        // first.
        if self.is_complete() {
            port.addresses.iter().for_each(|address| {
                self.addresses.hold(key, *address);
            });
        }
        self.found.insert(key.clone(), port);
    }

    /// The first assignment, when all kinds have been listed. Pods whose records and ports agree
    /// come first, because they run. Then the addresses of all other ports are held until the ports
    /// are gone. Then the other records are read, and only then are new addresses assigned. Among
    /// equals the oldest pod comes first.
    pub(crate) fn assign_all(&mut self, dirty: &mut Dirty<'_>) {
        let pods = self.in_order(self.pods.iter().map(|(key, _)| key));
        let with_port = pods.partition_point(|(record, _)| *record == Record::WithPort);
        let (with_port, others) = pods.split_at(with_port);
        self.read_records(with_port, dirty);
        // A record alone must not win an address that another pod's port still has.
        for (key, addresses) in &self.leaving {
            addresses.iter().for_each(|address| {
                self.addresses.hold(key, *address);
            });
        }
        self.read_records(others, dirty);
        // After all records are read: the highest address in use is known only now.
        self.go_on_behind();
        self.give_new(&pods, dirty);
    }

    /// The pods with their records, in the order in which they are assigned.
    fn in_order<'a>(&'a self, pods: impl Iterator<Item = &'a PodKey>) -> Vec<(Record, PodKey)> {
        let known = pods.filter_map(|key| Some((key, &self.pods.get(key)?.pod)));
        let mut pods: Vec<(Record, i64, PodKey)> =
            known.map(|(key, pod)| (self.record(key, pod), pod.created, key.clone())).collect();
        pods.sort_unstable();
        pods.into_iter().map(|(record, _, key)| (record, key)).collect()
    }

    fn read_records(&mut self, pods: &[(Record, PodKey)], dirty: &mut Dirty<'_>) {
        for (_, key) in pods.iter().filter(|(record, _)| *record != Record::None) {
            self.reassign_in(Turn::Records, key, dirty);
        }
    }

    /// New addresses for those whose records do not count, and for those without any.
    fn give_new(&mut self, pods: &[(Record, PodKey)], dirty: &mut Dirty<'_>) {
        for (_, key) in pods {
            if self.pods.get(key).is_some_and(|known| known.network.is_none()) {
                self.reassign(key, dirty);
            }
        }
    }

    /// Assigns, keeps or retires the network of a pod that has not changed otherwise. Returns
    /// whether its network changed.
    fn reassign(&mut self, key: &PodKey, dirty: &mut Dirty<'_>) -> bool {
        self.reassign_in(Turn::NewAddresses, key, dirty)
    }

    fn reassign_in(&mut self, turn: Turn, key: &PodKey, dirty: &mut Dirty<'_>) -> bool {
        let before = self.before(key);
        let has_changed = self.assign_in(turn, key);
        self.follow_pod(key, before, dirty);
        has_changed
    }

    /// The evidence of this pod's addresses.
    fn record(&self, key: &PodKey, pod: &Pod) -> Record {
        if let Some((record, _)) = self.network_in_use(key, pod) {
            return record;
        }
        match (&pod.annotated, self.leaving.get(key)) {
            (Annotated::Nothing | Annotated::Unusable(_), _) => Record::None,
            (Annotated::Network { network, .. }, Some(port))
                if network.addresses.iter().all(|net| port.contains(&net.addr())) =>
            {
                Record::WithPort
            }
            (Annotated::Network { .. }, _) if pod.reported == Reported::AsAnnotated => {
                Record::Reported
            }
            (Annotated::Network { .. }, _) => Record::Alone,
        }
    }

    /// Assigns, keeps or retires the network of a pod, or lets the pod wait. Returns whether its
    /// network changed.
    pub(crate) fn assign(&mut self, key: &PodKey) -> bool {
        self.assign_in(Turn::NewAddresses, key)
    }

    fn assign_in(&mut self, turn: Turn, key: &PodKey) -> bool {
        if !self.is_complete() {
            return false;
        }
        let Some(known) = self.pods.get(key) else { return false };
        if !known.pod.needs_network() {
            return self.retire(key);
        }
        if known.network.is_some() {
            self.announce(key);
            return false;
        }
        match self.find_network(turn, key) {
            Ok(Some(network)) => {
                self.waiting.remove(key);
                // From now on the annotation is the record, and no longer the port.
                let port = self.found.remove(key);
                let addresses: Vec<IpAddr> = network.addresses.iter().map(IpNet::addr).collect();
                let is_unmarked = port.is_some_and(|port| {
                    port.uid.is_none()
                        && port.mac == Some(network.mac)
                        && port.addresses == addresses
                });
                if let Some(known) = self.pods.get_mut(key) {
                    known.has_unmarked_port = is_unmarked;
                    known.network = Some(network);
                }
                addresses.into_iter().for_each(|address| self.tell_shared(key, address));
                self.announce(key);
                true
            }
            Ok(None) => {
                self.waiting.remove(key);
                false
            }
            Err(trouble) => {
                self.wait(key, trouble);
                false
            }
        }
    }

    /// The network for a pod that has none: that of its interface, its annotation's, or a new one.
    /// None as long as the pod is not scheduled; none without an annotation if its node is in
    /// another zone, where it is assigned.
    ///
    /// # Errors
    /// The reason why the pod has to wait.
    fn find_network(
        &mut self,
        turn: Turn,
        key: &PodKey,
    ) -> Result<Option<Arc<Assigned>>, PodProblem> {
        let Some(known) = self.pods.get(key) else { return Ok(None) };
        // A pod that may never be scheduled must not keep an address from others.
        let Some(name) = known.pod.node.clone() else { return Ok(None) };
        // Any other addresses would cut the pod off.
        if let Some((_, network)) = self.network_in_use(key, &known.pod)
            && self.addresses.claim(key, &network.addresses).is_ok()
        {
            return Ok(Some(self.short(network)));
        }
        let claim = match &known.pod.annotated {
            Annotated::Nothing => return self.new_network(turn, key, &name, None),
            Annotated::Unusable(why) => ClaimProblem::Unusable(why.clone()),
            Annotated::Network { network, .. } => {
                let network = Arc::clone(network);
                match self.claim(key, &name, &network) {
                    Ok(()) => return Ok(Some(network)),
                    Err(claim) => claim,
                }
            }
        };
        let Some(known) = self.pods.get(key) else { return Ok(None) };
        if let Some(network) = self.network_of_port(key, &known.pod)
            && self.addresses.claim(key, &network.addresses).is_ok()
        {
            return Ok(Some(self.short(network)));
        }
        if self.own_port(key, &known.pod).is_some() || known.pod.reported == Reported::AsAnnotated {
            return Err(PodProblem::Claim(claim));
        }
        self.new_network(turn, key, &name, Some(claim))
    }

    /// A new network for a pod of this zone, which may have claimed another one.
    fn new_network(
        &mut self,
        turn: Turn,
        key: &PodKey,
        name: &NodeName,
        ignored: Option<ClaimProblem>,
    ) -> Result<Option<Arc<Assigned>>, PodProblem> {
        let node = self.nodes.get(name);
        // The controller of another zone assigns the addresses of its own pods. While the zone is
        // unknown, the pod waits for it.
        if node.is_some_and(|node| !self.assigns(node)) {
            return ignored.map_or(Ok(None), |claim| Err(PodProblem::Claim(claim)));
        }
        let Some(node) = node.filter(|node| !node.subnets.is_empty()) else {
            return Err(PodProblem::NodeWithoutSubnet(Arc::clone(name)));
        };
        if turn == Turn::Records {
            return Ok(None);
        }
        let given = self.addresses.give(key, &node.subnets, |address| {
            self.foreign.is_used(address, |node| self.nodes.contains(node))
        });
        let given = given.map_err(|Exhausted { subnet }| PodProblem::NoFreeAddress {
            node: Arc::clone(name),
            subnet,
        })?;
        let network = pod_network(self.ranges.config(), given).map(|network| self.short(network));
        if let (Some(claim), Some(known)) = (ignored, self.pods.get(key)) {
            let uid = Arc::clone(&known.pod.uid);
            let why = PodProblem::IgnoredClaim(claim);
            self.outbox.problems.push(Problem::new(Object::Pod(key.clone()), &uid, &why));
        }
        Ok(network)
    }

    /// The network of the pod's interface, where its annotation does not tell: as its node reports
    /// it, or else as its port has it. Only in the subnets of a node of this zone. Who may annotate
    /// a pod can write neither.
    fn network_in_use(&self, key: &PodKey, pod: &Pod) -> Option<(Record, PodNetwork)> {
        if let Reported::Others(addresses) = &pod.reported {
            // The interface has the port's MAC, which need not derive from its address.
            let port = self.own_port(key, pod).filter(|port| {
                port.addresses.len() == addresses.len()
                    && port.addresses.iter().all(|address| addresses.contains(address))
            });
            if let Some(network) = self.network_of(pod, addresses, port.and_then(|port| port.mac)) {
                return Some((
                    if port.is_some() { Record::WithPort } else { Record::Reported },
                    network,
                ));
            }
        }
        let port = self.network_of_port(key, pod)?;
        match &pod.annotated {
            // Of a claim that did not count, the port may have been written before the annotation.
            Annotated::Network { network, .. }
                if pod.reported == Reported::AsAnnotated
                    || network
                        .addresses
                        .iter()
                        .map(IpNet::addr)
                        .eq(port.addresses.iter().map(IpNet::addr)) =>
            {
                None
            }
            Annotated::Network { .. } | Annotated::Nothing | Annotated::Unusable(_) => {
                Some((Record::WithPort, port))
            }
        }
    }

    /// The port that the database has for this pod.
    fn own_port(&self, key: &PodKey, pod: &Pod) -> Option<&FoundPort> {
        self.found.get(key).filter(|port| pod.is_of(port.uid.as_ref()))
    }

    fn network_of_port(&self, key: &PodKey, pod: &Pod) -> Option<PodNetwork> {
        let FoundPort { uid: _, mac, addresses } = self.own_port(key, pod)?;
        self.network_of(pod, addresses, Some((*mac)?))
    }

    /// The network with these addresses, if the subnets of the pod's node contain all of them.
    fn network_of(&self, pod: &Pod, addresses: &[IpAddr], mac: Option<Mac>) -> Option<PodNetwork> {
        let node =
            self.nodes.get(pod.node.as_ref()?).filter(|node| self.place(node) == Place::Here)?;
        let mut nets = Vec::with_capacity(addresses.len());
        for address in addresses {
            let subnet = node
                .subnets
                .iter()
                .find(|subnet| subnet.contains(address) && !ovn::reserved(subnet, *address))?;
            nets.push(IpNet::new(*address, subnet.prefix_len()).ok()?);
        }
        // A pod's network has at most one address of each family.
        let one_of_each = nets.iter().filter(|net| net.addr().is_ipv4()).count() <= 1
            && nets.iter().filter(|net| net.addr().is_ipv6()).count() <= 1;
        let network = pod_network(self.ranges.config(), nets).filter(|_| one_of_each)?;
        Some(PodNetwork { mac: mac.unwrap_or(network.mac), ..network })
    }

    /// The network in its compact form.
    fn short(&self, network: PodNetwork) -> Arc<Assigned> {
        let mut network = Assigned::from(network);
        network.shorten(&self.config);
        Arc::new(network)
    }

    /// Takes the network that the pod's annotation claims.
    fn claim(
        &mut self,
        key: &PodKey,
        node: &NodeName,
        network: &Assigned,
    ) -> Result<(), ClaimProblem> {
        let Some(known) = self.pods.get(key) else { return Ok(()) };
        self.check_reserved(network)?;
        // A pod that already runs with these addresses keeps them, even if a new pod could not
        // claim them.
        if !self.has_port(key, &known.pod, network) {
            self.check_claim(key, node, network)?;
            if known.pod.reported != Reported::AsAnnotated {
                self.check_subnets(node, network)?;
            }
            self.check_foreign(key, network)?;
        }
        let claim = self.addresses.claim(key, &network.addresses);
        claim.map_err(|Taken { address, by }| ClaimProblem::AddressTaken { address, by })
    }

    /// No pod may claim an address that OVN uses on a node's switch (`ovn::reserved`).
    fn check_reserved(&self, network: &Assigned) -> Result<(), ClaimProblem> {
        for address in network.addresses.iter().map(IpNet::addr) {
            if let Some((subnet, node)) = self.nodes.at(address)
                && ovn::reserved(subnet, address)
            {
                return Err(ClaimProblem::AddressReserved { address, node: Arc::clone(node) });
            }
        }
        Ok(())
    }

    /// Only the subnets of its node are routed to a pod. Elsewhere it would reach nothing, and an
    /// address of the world would be one of a pod in the sets of policies. Of a node that is not
    /// there, or not any more, those of the cluster count: a node that comes back has its former
    /// subnets.
    fn check_subnets(&self, node: &NodeName, network: &Assigned) -> Result<(), ClaimProblem> {
        let known =
            self.nodes.get(node).map(|node| &node.subnets).filter(|subnets| !subnets.is_empty());
        let is_inside = |address: IpAddr| match known {
            Some(subnets) => subnets.iter().any(|subnet| subnet.contains(&address)),
            None => self.config.is_of_pods(address),
        };
        match network.addresses.iter().map(IpNet::addr).find(|address| !is_inside(*address)) {
            Some(address) => Err(ClaimProblem::AddressOutside { address, node: Arc::clone(node) }),
            None => Ok(()),
        }
    }

    /// Whether the pod's own port has all of these addresses.
    fn has_port(&self, key: &PodKey, pod: &Pod, network: &Assigned) -> bool {
        let has = |port: &&FoundPort| {
            network.addresses.iter().all(|net| port.addresses.contains(&net.addr()))
        };
        self.own_port(key, pod).filter(has).is_some()
    }

    /// The creator of a pod may preset its annotation, but not with an address of routers, services
    /// or hosts, nor with one of another node's subnet, nor with the MAC of another port: a MAC of
    /// the router would attract the node's traffic, and an address of a host is answered by the pod
    /// on its node.
    fn check_claim(
        &self,
        key: &PodKey,
        node: &NodeName,
        network: &Assigned,
    ) -> Result<(), ClaimProblem> {
        for address in network.addresses.iter().map(IpNet::addr) {
            if self.ranges.config().is_infrastructure(address) {
                return Err(ClaimProblem::AddressNotForPods { address });
            }
            if let Some(host) = self.nodes.with_host_address(address) {
                return Err(ClaimProblem::AddressOfHost { address, node: Arc::clone(&host.name) });
            }
            if let Some((_, other)) = self.nodes.at(address).filter(|(_, other)| other != node) {
                return Err(ClaimProblem::AddressElsewhere { address, node: Arc::clone(other) });
            }
        }
        // A MAC that derives from the pod's own address belongs to no other port.
        let mac = network.mac;
        if network.addresses.iter().any(|net| Mac::from_ip(net.addr()) == mac) {
            return Ok(());
        }
        let subnets = self.nodes.get(node).map_or(&[][..], |node| &node.subnets);
        let [first, second, a, b, c, d] = mac.octets();
        // MACs of pods are `0a:58` and the IPv4 address: this one is reserved for another address
        // of the node, whether that address is in use or not.
        let of_address = [first, second] == [0x0a, 0x58]
            && subnets.iter().any(|subnet| subnet.contains(&IpAddr::from([a, b, c, d])));
        let management = self.nodes.get(node).and_then(|node| node.management_mac);
        let managements = ovn::managements(subnets)
            .into_iter()
            .map(|net| Mac::from_ip(net.addr()))
            .chain(management);
        let router = self.nodes.get(node).and_then(|node| node.router_mac);
        let mut of_node = managements.chain(ovn::port_mac(&ovn::gateways(subnets))).chain(router);
        let networks = self
            .pods_of(node)
            .filter(|other| *other != key)
            .filter_map(|other| self.assigned(other));
        if of_address
            || of_node.any(|other| other == mac)
            || networks.map(|network| network.mac).any(|other| other == mac)
        {
            return Err(ClaimProblem::MacTaken { mac, node: Arc::clone(node) });
        }
        Ok(())
    }

    /// The pod no longer needs its network; its addresses are free once its port is gone. Returns
    /// whether it had a network.
    pub(crate) fn retire(&mut self, key: &PodKey) -> bool {
        self.waiting.remove(key);
        self.outbox.forget(key);
        let Some(network) = self.pods.get_mut(key).and_then(|known| known.network.take()) else {
            return false;
        };
        // Not free yet: the port may still use them.
        self.leaving
            .entry(key.clone())
            .or_default()
            .extend(network.addresses.iter().map(IpNet::addr));
        true
    }

    /// A node's subnets or zone have changed: pods without addresses may get some. `gone`: the
    /// subnets that it has no longer.
    pub(crate) fn subnets_changed(
        &mut self,
        node: &NodeName,
        gone: &[IpNet],
        dirty: &mut Dirty<'_>,
    ) {
        gone.iter().for_each(|subnet| self.addresses.forget(subnet));
        let pods: BTreeSet<&PodKey> =
            self.pods.of_node(node).chain(self.waiting.for_node(node)).collect();
        // A node that comes back has pods with addresses, beside new ones: records come first here,
        // too.
        let pods = self.in_order(pods.into_iter());
        for (_, key) in &pods {
            self.reassign_in(Turn::Records, key, dirty);
        }
        self.give_new(&pods, dirty);
    }

    /// The addresses of a node's host have changed: a pod that claims one of the former may get it.
    pub(crate) fn host_changed(&mut self, node: &NodeName, dirty: &mut Dirty<'_>) {
        let pods: Vec<PodKey> = self.waiting.for_node(node).cloned().collect();
        for key in pods {
            self.reassign(&key, dirty);
        }
    }

    /// Continues behind the highest address in use of each subnet after a start.
    fn go_on_behind(&mut self) {
        for (_, known) in self.pods.iter() {
            let node = known.pod.node.as_ref().and_then(|node| self.nodes.get(node));
            let (Some(node), Some(network)) = (node, &known.network) else { continue };
            for subnet in &node.subnets {
                network
                    .addresses
                    .iter()
                    .for_each(|net| self.addresses.go_on_behind(subnet, net.addr()));
            }
        }
    }

    /// An address is free: pods that claim it come first, then one of the pods that wait for any
    /// address of its subnet.
    pub(crate) fn wake(&mut self, address: IpAddr, dirty: &mut Dirty<'_>) {
        let claimants: Vec<PodKey> = self.waiting.for_address(address).cloned().collect();
        let mut is_taken = false;
        for key in &claimants {
            is_taken |= self.reassign(key, dirty);
        }
        // One free address serves one pod, so the queue is woken until one pod has an address of
        // the subnet: one may lack an address of its other subnet, or find that its own claim
        // counts now.
        let Some((subnet, _)) = self.nodes.at(address) else { return };
        let subnet = *subnet;
        while !is_taken && let Some(next) = self.waiting.first_in(&subnet).cloned() {
            self.reassign(&next, dirty);
            is_taken = match self.assigned(&next) {
                Some(network) => network.addresses.iter().any(|net| subnet.contains(&net.addr())),
                // It waits for the same as before.
                None => self.waiting.first_in(&subnet) == Some(&next),
            };
        }
    }
}
