//! Random histories of a small cluster, and what has to be true at every moment of them.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
};

use contract::{
    names::{ServiceKey, SliceKey},
    ovn,
};
use kubeapi::services::Family;
use proptest::prelude::*;

use crate::{
    config::Interconnect,
    key::Part,
    kinds::{desired_part, service::template_use::TemplateUse},
    rows::{DesiredPart, DesiredRow, Piece, RowSet, Value, load_balancer::Protocol},
    world::tests::history::events::{Event, Families, NodeIs, ServiceIs, SliceIs, events},
};

use super::*;

mod events;

/// The objects of the API server, and the ports in the database.
#[derive(Debug, Default)]
struct World {
    uids: u32,
    nodes: BTreeMap<NodeName, Node>,
    pods: BTreeMap<PodKey, Pod>,
    services: BTreeMap<ServiceKey, Service>,
    slices: BTreeMap<SliceKey, Slice>,
    ports: HashMap<PodKey, FoundPort>,
    /// The keys that changes of the store have concerned.
    dirty: RefCell<BTreeSet<Key>>,
    /// Whether NodePorts are templates.
    has_templates: bool,
}

fn number(pod: u8) -> PodKey {
    key(&format!("p{pod}"))
}

/// The addresses with this last part in a node's subnets, with the subnets' prefix lengths.
fn nets(node: u8, last: u8, families: Families) -> Vec<IpNet> {
    let (v4, v6) =
        (net(&format!("10.244.{node}.{last}/29")), net(&format!("fd00:{node}::{last}/125")));
    match families {
        Families::V4 => vec![v4],
        Families::V6 => vec![v6],
        Families::Both => vec![v4, v6],
    }
}

fn service_of(number: u8, is: ServiceIs) -> Option<Service> {
    let (inside, outside, node_port) = match is {
        ServiceIs::Gone => return None,
        ServiceIs::Headless => return Some(Service::default()),
        ServiceIs::With(inside, outside) => (inside, outside, None),
        ServiceIs::WithNodePort(outside) => {
            (Traffic::Cluster, outside, Some(30_000 + u16::from(number)))
        }
    };
    let port =
        ServicePort { name: None, protocol: Protocol::Tcp, port: 80, target: None, node_port };
    Some(Service {
        cluster_ips: [IpAddr::from([10, 96, 0, number + 1])].into(),
        external_ips: [IpAddr::from([192, 0, 2, number + 1])].into(),
        ports: [port].into(),
        internal: inside,
        external: outside,
        ..Service::default()
    })
}

fn slice_of(number: u8, is: SliceIs) -> Option<Slice> {
    let SliceIs::Of { service, node, is_host, is_ready, hints } = is else { return None };
    let address = if is_host { [172, 18, 0, node] } else { [10, 244, node, 100 + number] };
    let hints = hints.then(|| Box::new(Hints { zones: ["east".into()].into(), nodes: [].into() }));
    let condition = if is_ready { Condition::Ready } else { Condition::Serving };
    Some(Slice {
        service: Some(ServiceKey::new("shop", &format!("s{service}")).unwrap()),
        family: Some(Family::V4),
        ports: [SlicePort { name: None, protocol: Protocol::Tcp, port: Some(8080) }].into(),
        endpoints: [Endpoint {
            address: IpAddr::from(address),
            condition,
            node: Some(format!("n{node}").into()),
            hints,
        }]
        .into(),
        endpoints_count: 1,
        triggered: None,
        unusable: None,
    })
}

/// Only the pods of this zone have ports here.
fn is_local(store: &Store, pod: &Pod) -> bool {
    pod.node.as_ref().is_some_and(|node| store.is_local(node))
}

/// The pod as the store keeps it.
fn shortened(store: &Store, pod: &Pod) -> Pod {
    let mut pod = pod.clone();
    if let Annotated::Network { network, .. } = &mut pod.annotated {
        Arc::make_mut(network).shorten(&store.config);
    }
    pod
}

/// The port of a pod that has this network.
fn port(pod: &Pod, network: &Assigned) -> FoundPort {
    let addresses = network.addresses.iter().map(IpNet::addr).collect();
    FoundPort { uid: Some(Arc::clone(&pod.uid)), mac: Some(network.mac), addresses }
}

/// The rows of all keys.
impl World {
    fn start(&self) -> Store {
        // In half of the histories.
        let interconnect = if self.has_templates { Interconnect::On } else { Interconnect::Off };
        let mut store = Store::new(ClusterConfig { interconnect, ..config() });
        self.ports.iter().for_each(|(key, port)| store.found_port(key, port.clone()));
        self.list(&mut store);
        while store.doubted().is_some() {
            self.observe(&mut store, WatchEvent::Cluster(None));
            self.list(&mut store);
        }
        store.use_templates(if self.has_templates {
            TemplateUse::WithNodePorts
        } else {
            TemplateUse::Never
        });
        store
    }

    fn observe(&self, store: &mut Store, observation: WatchEvent) {
        self.dirty.borrow_mut().extend(observe(store, observation));
    }

    fn list(&self, store: &mut Store) {
        self.observe(store, WatchEvent::Pods(Seen::All(self.pods.clone().into_iter().collect())));
        self.observe(store, WatchEvent::Nodes(Seen::All(self.nodes.values().cloned().collect())));
        let services = self.services.iter().map(|(key, service)| (key.clone(), service.clone()));
        self.observe(store, WatchEvent::Services(Seen::All(services.collect())));
        let slices = self.slices.iter().map(|(key, slice)| (key.clone(), slice.clone()));
        self.observe(store, WatchEvent::Slices(Seen::All(slices.collect())));
        self.observe(store, namespaces());
        self.observe(store, WatchEvent::Policies(Seen::All(Vec::new())));
        WatchEvent::no_optional_kinds().into_iter().for_each(|list| self.observe(store, list));
    }

    fn put(&mut self, store: &mut Store, key: PodKey, pod: Pod) {
        self.pods.insert(key.clone(), pod.clone());
        self.observe(store, WatchEvent::Pods(Seen::Applied((key, pod))));
    }

    fn alter(&mut self, store: &mut Store, pod: u8, alter: impl FnOnce(&mut Pod)) {
        let key = number(pod);
        if let Some(mut known) = self.pods.get(&key).cloned() {
            alter(&mut known);
            self.put(store, key, known);
        }
    }

    fn new_pod(&mut self, node: Option<u8>) -> Pod {
        self.uids += 1;
        Pod {
            node: node.map(|node| format!("n{node}").into()),
            created: self.uids.into(),
            ..Pod::with_uid(&format!("u{}", self.uids))
        }
    }

    fn happen(&mut self, store: &mut Store, event: &Event) {
        match *event {
            Event::Appear { pod, node } => {
                let fresh = self.new_pod(Some(node));
                self.put(store, number(pod), fresh);
            }
            Event::Pending(pod) => {
                let fresh = self.new_pod(None);
                self.put(store, number(pod), fresh);
            }
            Event::Schedule { pod, node } => self.alter(store, pod, |pod| {
                pod.node.get_or_insert_with(|| format!("n{node}").into());
            }),
            Event::Claim { pod, node, last, families } => {
                let claim = nets(node, last, families)
                    .iter()
                    .map(|net| format!("{:?}", net.to_string()))
                    .collect::<Vec<_>>()
                    .join(",");
                let mac = contract::mac::Mac::from_ip(nets(node, last, families)[0].addr());
                let text =
                    format!(r#"{{"default":{{"mac_address":"{mac}","ip_addresses":[{claim}]}}}}"#);
                let fresh = annotated(self.new_pod(Some(node)), &text);
                self.put(store, number(pod), fresh);
            }
            Event::Unusable { pod, node } => {
                let fresh = Pod {
                    annotated: Annotated::Unusable("not JSON".to_owned()),
                    ..self.new_pod(Some(node))
                };
                self.put(store, number(pod), fresh);
            }
            Event::Garble(pod) => self.alter(store, pod, |pod| {
                pod.annotated = Annotated::Unusable("not JSON".to_owned())
            }),
            Event::Strip(pod) => self.alter(store, pod, |pod| pod.annotated = Annotated::Nothing),
            Event::End(pod) => self.alter(store, pod, |pod| pod.phase = Phase::Ended),
            Event::Delete(pod) => {
                self.pods.remove(&number(pod));
                self.observe(store, WatchEvent::Pods(Seen::Deleted(number(pod))));
            }
            Event::Settle(pod) => {
                let key = number(pod);
                if store.kept(&Key::Pod(key.clone())) == Kept::NOTHING {
                    let is_local = self.pods.get(&key).is_some_and(|pod| is_local(store, pod));
                    match store.assigned(&key).filter(|_| is_local) {
                        Some(network) => {
                            self.ports.insert(key.clone(), port(&self.pods[&key], network))
                        }
                        None => self.ports.remove(&key),
                    };
                }
                let woken = dirtied(|dirty| store.settled(&Key::Pod(key), dirty));
                self.dirty.borrow_mut().extend(woken);
            }
            Event::Node { node: number, is } => {
                let named = Node::named(&format!("n{number}"));
                let node = match is {
                    NodeIs::Gone => {
                        self.nodes.remove(&named.name);
                        self.observe(store, WatchEvent::Nodes(Seen::Deleted(named.name)));
                        return;
                    }
                    NodeIs::WithoutSubnet => named,
                    NodeIs::With(families) => Node {
                        subnets: nets(number, 0, families),
                        chassis: Some(format!("c{number}")),
                        id: Some(number.into()),
                        transit: vec![net(&format!("100.88.0.{number}/16"))],
                        host_addresses: vec![IpAddr::from([172, 18, 0, number])],
                        topology_zone: Some(["east", "west"][usize::from(number % 2)].into()),
                        ..named
                    },
                    NodeIs::WithOtherSubnet => {
                        Node { subnets: nets(number + 2, 0, Families::V4), ..named }
                    }
                    NodeIs::OfAnotherZone => Node {
                        subnets: nets(number, 0, Families::V4),
                        zone: Some(Zone("far".to_owned())),
                        chassis: Some(format!("c{number}")),
                        id: Some(number.into()),
                        transit: vec![net(&format!("100.88.0.{number}/16"))],
                        ..named
                    },
                };
                self.nodes.insert(Arc::clone(&node.name), node.clone());
                let before = store.node(&node.name).map(|before| before.subnets.clone());
                self.observe(store, WatchEvent::Nodes(Seen::Applied(node.clone())));
                if node.subnets.is_empty() {
                    assert_eq!(
                        store.node(&node.name).unwrap().subnets,
                        before.unwrap_or_default(),
                        "what is lost goes on to count"
                    );
                }
            }
            Event::Write => {
                for annotation in store.take_annotations() {
                    let Some(known) = self
                        .pods
                        .get(&annotation.pod)
                        .filter(|known| known.uid == annotation.uid)
                        .cloned()
                    else {
                        continue;
                    };
                    self.put(
                        store,
                        annotation.pod.clone(),
                        annotated(known, &annotation.annotations()[POD_NETWORKS]),
                    );
                }
            }
            Event::Service { service, is } => {
                let key = ServiceKey::new("shop", &format!("s{service}")).unwrap();
                match service_of(service, is) {
                    Some(new) => {
                        self.services.insert(key.clone(), new.clone());
                        self.observe(store, WatchEvent::Services(Seen::Applied((key, new))));
                    }
                    None => {
                        self.services.remove(&key);
                        self.observe(store, WatchEvent::Services(Seen::Deleted(key)));
                    }
                }
            }
            Event::Slice { slice, is } => {
                let key = SliceKey::new("shop", &format!("slice{slice}")).unwrap();
                match slice_of(slice, is) {
                    Some(new) => {
                        self.slices.insert(key.clone(), new.clone());
                        self.observe(store, WatchEvent::Slices(Seen::Applied((key, new))));
                    }
                    None => {
                        self.slices.remove(&key);
                        self.observe(store, WatchEvent::Slices(Seen::Deleted(key)));
                    }
                }
            }
            Event::Routers(ref nodes) => {
                let nodes = nodes.iter().map(|node| format!("n{node}").into()).collect();
                let woken = dirtied(|dirty| store.gateway_routers(nodes, dirty));
                self.dirty.borrow_mut().extend(woken);
            }
            Event::Listed(ref changes) => {
                for (pod, node) in changes {
                    match node {
                        Some(node) => {
                            let fresh = self.new_pod(Some(*node));
                            self.pods.insert(number(*pod), fresh);
                        }
                        None => drop(self.pods.remove(&number(*pod))),
                    }
                }
                self.list(store);
                // A held list is repeated until it is accepted.
                while store.doubted().is_some() {
                    self.observe(store, WatchEvent::Cluster(None));
                    self.list(store);
                }
                assert_eq!(
                    store.pods.iter().map(|(key, _)| key).collect::<BTreeSet<_>>(),
                    self.pods.keys().collect(),
                    "what is in no list is gone"
                );
            }
            Event::Restart => {
                let running = self.running(store);
                *store = self.start();
                for (key, network) in running {
                    let now = store.assigned(&key).map(|network| &network.addresses);
                    assert_eq!(
                        now,
                        Some(&network.addresses),
                        "{key} runs, and its annotation is {:?}",
                        self.pods[&key].annotated
                    );
                }
            }
        }
    }

    /// Running pods: their ports have their addresses, and their nodes are in this zone.
    fn running(&self, store: &Store) -> Vec<(PodKey, Arc<Assigned>)> {
        let running = |(key, found): (&PodKey, &FoundPort)| {
            let known = store.pods.get(key)?;
            let network =
                known.network.as_ref().filter(|network| *found == port(&known.pod, network))?;
            let node =
                self.nodes.get(known.pod.node.as_ref()?).filter(|node| node.zone.is_none())?;
            let good = |net: &IpNet| {
                node.subnets
                    .iter()
                    .any(|subnet| subnet.contains(net) && !ovn::reserved(subnet, net.addr()))
            };
            network.addresses.iter().all(good).then(|| (key.clone(), Arc::clone(network)))
        };
        self.ports.iter().filter_map(running).collect()
    }

    /// At every moment an address has one pod at most, and no pod has an address that another pod's
    /// port still has.
    fn check_owners(&self, store: &Store) -> Result<(), TestCaseError> {
        let mut owners: HashMap<IpAddr, &PodKey> = HashMap::new();
        for (key, known) in store.pods.iter() {
            prop_assert!(known.network.is_none() || known.pod.needs_network());
            // Texts of annotations are kept only as long as something may be written over them.
            let pod = Pod { texts: self.pods[key].texts.clone(), ..known.pod.clone() };
            prop_assert_eq!(&pod, &shortened(store, &self.pods[key]));
            for net in known.network.iter().flat_map(|network| &network.addresses) {
                prop_assert_eq!(owners.insert(net.addr(), key), None, "shared {}", net);
                prop_assert_eq!(store.addresses.owner(net.addr()), Some(key));
            }
        }
        for (key, port) in &self.ports {
            for address in &port.addresses {
                prop_assert!(
                    owners.get(address).is_none_or(|owner| *owner == key),
                    "{} has the address of {key}'s port",
                    owners[address]
                );
            }
        }
        Ok(())
    }

    /// Once all ports are as desired, every pod without an address has a reason that is true now.
    fn check_waiting(&self, store: &Store) -> Result<(), TestCaseError> {
        let networks = store.pods.iter().filter_map(|(_, known)| known.network.as_ref());
        let in_use: BTreeSet<IpAddr> =
            networks.flat_map(|network| network.addresses.iter().map(IpNet::addr)).collect();
        // A pod whose rows are kept keeps the addresses that its port may have.
        let kept = |address: IpAddr| {
            store
                .addresses
                .owner(address)
                .is_some_and(|key| store.kept(&Key::Pod(key.clone())) == Kept::ALL)
        };
        let troubles: HashMap<&PodKey, &PodProblem> = store.troubles().collect();
        for (key, pod) in &self.pods {
            let node = pod.node.as_ref().and_then(|node| store.node(node));
            let elsewhere = node.is_some_and(|node| node.zone.is_some());
            match (store.assigned(key), troubles.get(key)) {
                (Some(_), trouble) => prop_assert_eq!(trouble, None),
                (None, None) => {
                    prop_assert!(
                        !pod.needs_network()
                            || pod.node.is_none()
                            || pod.annotated == Annotated::Nothing && elsewhere
                    )
                }
                (None, Some(PodProblem::NodeWithoutSubnet(_))) => {
                    prop_assert!(!elsewhere && node.is_none_or(|node| node.subnets.is_empty()));
                }
                (None, Some(PodProblem::NoFreeAddress { subnet, .. })) => {
                    prop_assert!(
                        !elsewhere && node.is_some_and(|node| node.subnets.contains(subnet))
                    );
                    let free = subnet.hosts().filter(|address| {
                        !ovn::reserved(subnet, *address)
                            && !in_use.contains(address)
                            && !kept(*address)
                    });
                    prop_assert_eq!(free.collect::<Vec<_>>(), Vec::<IpAddr>::new());
                }
                // What it has from elsewhere cannot be changed here.
                (None, Some(PodProblem::Claim(claim))) => self.check_claim(store, key, claim)?,
                (
                    None,
                    Some(why @ (PodProblem::IgnoredClaim(_) | PodProblem::PortNumbers { .. })),
                ) => {
                    prop_assert!(false, "it waits for nothing: {why}");
                }
            }
        }
        prop_assert!(
            troubles.keys().all(|key| self.pods.contains_key(key)),
            "a pod that is gone waits"
        );
        // Every address that is taken has a reason, too.
        for (node, last) in (1..5).flat_map(|node| (0..8).map(move |last| (node, last))) {
            for net in nets(node, last, Families::Both) {
                let wanted = in_use.contains(&net.addr()) || kept(net.addr());
                prop_assert_eq!(store.addresses.owner(net.addr()).is_some(), wanted, "{}", net);
            }
        }
        Ok(())
    }

    /// A pod that waits because of its claim had a port, or is another zone's; and the reason is
    /// true now.
    fn check_claim(
        &self,
        store: &Store,
        key: &PodKey,
        claim: &ClaimProblem,
    ) -> Result<(), TestCaseError> {
        let pod = &self.pods[key];
        let node = pod.node.as_ref().and_then(|node| store.node(node));
        let had_port = store.found.get(key).is_some_and(|port| pod.is_of(port.uid.as_ref()));
        prop_assert!(had_port || node.is_some_and(|node| node.zone.is_some()), "{}", claim);
        match claim {
            ClaimProblem::AddressTaken { address, by } => {
                let has_it = store.assigned(by).is_some_and(|network| {
                    network.addresses.iter().any(|net| net.addr() == *address)
                });
                let is_kept = store.kept(&Key::Pod(by.clone())) == Kept::ALL
                    && store.addresses.owner(*address) == Some(by);
                prop_assert!(has_it || is_kept);
                prop_assert!(by != key);
            }
            ClaimProblem::AddressReserved { address, node } => {
                let subnets = &store.node(node).unwrap().subnets;
                prop_assert!(subnets.iter().any(|subnet| ovn::reserved(subnet, *address)));
            }
            ClaimProblem::AddressOfHost { address, node } => {
                prop_assert!(store.node(node).unwrap().host_addresses.contains(address));
            }
            ClaimProblem::AddressElsewhere { address, node: other } => {
                let subnets = &store.node(other).unwrap().subnets;
                prop_assert!(subnets.iter().any(|subnet| subnet.contains(address)));
                prop_assert_ne!(Some(other), pod.node.as_ref());
            }
            ClaimProblem::AddressOutside { address, node: own } => {
                prop_assert_eq!(Some(own), pod.node.as_ref());
                let mut subnets = node.iter().flat_map(|node| &node.subnets);
                prop_assert!(!subnets.any(|subnet| subnet.contains(address)));
            }
            ClaimProblem::Unusable(_) => {
                prop_assert!(matches!(pod.annotated, Annotated::Unusable(_)))
            }
            // All pods claim addresses that may be claimed.
            ClaimProblem::AddressOfPort { .. }
            | ClaimProblem::AddressNotForPods { .. }
            | ClaimProblem::MacTaken { .. } => prop_assert!(false, "{}", claim),
        }
        Ok(())
    }

    /// Every key whose rows differ from those `before` was told of.
    fn check_fan_out(
        &self,
        store: &Store,
        before: &BTreeMap<Key, RowSet>,
    ) -> Result<(), TestCaseError> {
        rows_differ_only_of(&self.dirty.take(), before, &rows(store), &"a step")
    }

    /// The large values of a key are the sum of its parts.
    fn check_parts(store: &Store) -> Result<(), TestCaseError> {
        let addresses = (1..5).flat_map(|node| (0..8).map(move |last| (node, last)));
        let addresses = addresses.flat_map(|(node, last)| nets(node, last, Families::Both));
        let addresses: Vec<Part> = addresses.map(|net| Part::Address(net.addr())).collect();
        for (key, rows) in rows(store) {
            let mut whole = Vec::new();
            let mut entries = Vec::new();
            for DesiredRow { id, columns, .. } in rows {
                for (column, value) in columns {
                    let mut add =
                        |piece| whole.push(DesiredPart { row: id.clone(), column, piece });
                    match value {
                        Value::Elements(texts) => {
                            texts.into_iter().for_each(|text| add(Piece::Element(text)))
                        }
                        Value::Entries(pairs) => {
                            entries.extend(pairs.keys().map(|key| Part::Entry((&**key).into())));
                            pairs.into_iter().for_each(|(key, value)| add(Piece::Entry(key, value)));
                        }
                        Value::Datum(_)
                        | Value::Match(_)
                        | Value::Pairs(_)
                        // Compared as a whole: no key with such a value has parts.
                        | Value::Lists(_)
                        | Value::References(_)
                        | Value::Including(_)
                        | Value::Parts { .. } => {}
                    }
                }
            }
            let parts =
                addresses.iter().chain(&entries).filter_map(|part| desired_part(store, &key, part));
            let absent =
                |part: &DesiredPart| matches!(part.piece, Piece::NoElement(_) | Piece::NoEntry(_));
            let (_, present): (Vec<_>, Vec<_>) = parts.partition(absent);
            prop_assert!(present.iter().all(|part| whole.contains(part)), "{}: {:?}", key, present);
            prop_assert_eq!(present.len(), whole.len(), "{}: {:?}", key, whole);
        }
        Ok(())
    }

    /// Once all annotations are written, they match the pods' networks.
    fn check_records(&self, store: &Store) -> Result<(), TestCaseError> {
        for (key, pod) in &self.pods {
            let pod = shortened(store, pod);
            if let Some(own) = store.assigned(key).filter(|_| is_local(store, &pod)) {
                let is_own = matches!(&pod.annotated, Annotated::Network { network, .. } if **network == *own);
                prop_assert!(is_own, "{key} has {own:?}, its record says {:?}", pod.annotated);
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn two_pods_never_share_an_address_and_nobody_waits_for_nothing(events in events()) {
        let mut world = World::default();
        let mut store = world.start();
        for event in &events {
            world.happen(&mut store, event);
            world.check_owners(&store)?;
        }
        // Pods may wait for each other in a chain, which is at most as long as there are pods.
        for _ in 0..8 {
            (0..8).for_each(|pod| world.happen(&mut store, &Event::Settle(pod)));
        }
        world.happen(&mut store, &Event::Write);
        world.check_owners(&store)?;
        world.check_waiting(&store)?;
        world.check_records(&store)?;
        prop_assert_eq!(store.take_annotations(), vec![], "each is written once");
    }
}

proptest! {
    // All rows of all keys are computed before and after each event: 0.1 s for a case.
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    /// A change that concerns a key of which nobody is told leaves wrong rows for ever; so does a
    /// part that is not what the whole has.
    #[test]
    fn whatever_changes_the_rows_of_a_key_makes_the_key_dirty(
        (events, has_templates) in (events(), any::<bool>())
    ) {
        let mut world = World { has_templates, ..World::default() };
        let mut store = world.start();
        for event in &events {
            let before = rows(&store);
            world.dirty.take();
            world.happen(&mut store, event);
            // At a start, all keys are dirty.
            if !matches!(event, Event::Restart) {
                world.check_fan_out(&store, &before)?;
            }
            World::check_parts(&store)?;
        }
    }
}

/// A node whose zone annotation is lost goes on to be of the zone that it was of: its pods have no
/// ports here, and nothing of them has to outlast a restart.
#[test]
fn a_pod_of_another_zone_has_no_port_here_even_when_its_node_no_longer_says_so() {
    let mut world = World { has_templates: true, ..World::default() };
    let mut store = world.start();
    for event in [
        Event::Node { node: 2, is: NodeIs::OfAnotherZone },
        Event::Node { node: 2, is: NodeIs::With(Families::V6) },
        Event::Claim { pod: 2, node: 2, last: 3, families: Families::V6 },
        Event::Settle(2),
    ] {
        world.happen(&mut store, &event);
    }
    assert!(store.assigned(&number(2)).is_some());
    let rows = desired(&store, &Key::Pod(number(2)));
    assert!(rows.iter().all(|row| row.id.table != Table::LogicalSwitchPort), "{rows:?}");
    assert_eq!(world.ports, HashMap::new());
    world.happen(&mut store, &Event::Strip(2));
    world.happen(&mut store, &Event::Restart);
}
