//! Load balancers that depend on the node where a connection arrives: node ports, traffic policies
//! `Local`, topology hints, and endpoints that are hosts.
//!
//! Nodes to which the Service's rules look the same are one class, whose rows are computed once.
//! Equal rows of several nodes become one, as upstream's do: it has the name of the first node, and
//! `_merged`. If it is on every node, it is in a group instead of in a set of each switch and
//! router.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    net::{IpAddr, SocketAddr},
};

use contract::{names::ServiceKey, ovn};
use kubeapi::services::{Condition, Endpoint, Hints, Place, Traffic};

use crate::{
    config::Masquerade,
    kinds::{
        node::object::Node,
        service::rows::{At, Backend, Front, Port, Vips, family, spell},
    },
    rows::{
        LoadBalancer, RowName, Table,
        load_balancer::{Options, Protocol},
    },
    world::Store,
};

/// What distinguishes nodes: two of a class have the same rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Class<'a> {
    has_router: bool,
    /// The zone of the data centre, if a hint names zones.
    zone: Option<&'a str>,
    /// The node, if it differs from all others: it has a backend, or connections arrive at its
    /// addresses.
    node: Option<&'a str>,
}

/// What a load balancer of a node is attached to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum On {
    Both,
    Router,
    /// The router, with the client's address.
    LocalRouter,
    Switch,
}

/// A load balancer of one or several nodes.
struct Row<'a> {
    on: On,
    protocol: Protocol,
    /// The first of its nodes.
    node: &'a str,
    vips: Vips,
    switches: Vec<&'a str>,
    routers: Vec<&'a str>,
    is_merged: bool,
}

/// The rules of a node for one protocol.
#[derive(Default)]
struct Rules {
    has_router: bool,
    switch: Vips,
    router: Vips,
    local_router: Vips,
}

/// The load balancers of all nodes of the zone, for these fronts.
pub(crate) fn load_balancers(
    store: &Store,
    key: &ServiceKey,
    fronts: &[Front<'_>],
    options: &Options,
) -> Vec<LoadBalancer> {
    let of_nodes = Classes::new(fronts);
    let mut rows: Vec<Row<'_>> = Vec::new();
    // By a hash of what must be equal: where each row is.
    let mut equal: HashMap<u64, Vec<usize>> = HashMap::new();
    // The rows of each class: its second node joins those of the first.
    let mut classes: HashMap<Class<'_>, Vec<(On, usize)>> = HashMap::new();
    let (mut nodes, mut routers) = (0, 0);
    for node in store.local_nodes() {
        let class = of_nodes.of(node, store);
        nodes += 1;
        routers += usize::from(class.has_router);
        if let Some(known) = classes.get(&class) {
            for (on, place) in known {
                rows[*place].join(*on, &node.name);
            }
            continue;
        }
        let mut own = Vec::new();
        for protocol in Protocol::ALL {
            let of_protocol = fronts.iter().filter(|front| front.port.port.protocol == protocol);
            for (on, vips) in rules(of_protocol, node, store).rows() {
                let hash = hash(&(protocol, on == On::LocalRouter, &vips));
                let alike = equal.entry(hash).or_default();
                let is_equal = |place: &&usize| {
                    let row = &rows[**place];
                    row.protocol == protocol
                        && (row.on == On::LocalRouter) == (on == On::LocalRouter)
                        && row.vips == vips
                };
                let place = match alike.iter().find(is_equal) {
                    Some(place) => {
                        let place = *place;
                        rows[place].join(on, &node.name);
                        place
                    }
                    None => {
                        alike.push(rows.len());
                        rows.push(Row::new(on, protocol, &node.name, vips));
                        rows.len() - 1
                    }
                };
                own.push((on, place));
            }
        }
        classes.insert(class, own);
    }
    rows.into_iter().map(|row| row.load_balancer(key, options, nodes, routers)).collect()
}

/// Whether hints decide which backends a connection gets.
pub(crate) fn has_topology(port: &Port<'_>) -> bool {
    (0..2).any(|family| {
        let mut ready = port.backends[family]
            .iter()
            .filter(|backend| backend.condition == Condition::Ready)
            .peekable();
        ready.peek().is_some() && ready.all(|backend| backend.endpoint.hints.is_some())
    })
}

/// What of a node matters to some fronts.
struct Classes<'a> {
    zones: bool,
    /// Every node differs.
    all: bool,
    /// Nodes with backends that differ by them.
    nodes: HashSet<&'a str>,
    hosts: HashSet<IpAddr>,
}

impl<'a> Classes<'a> {
    fn new(fronts: &'a [Front<'a>]) -> Self {
        let backends = || fronts.iter().flat_map(|front| front.port.backends.iter().flatten());
        let local =
            fronts.iter().any(|front| [front.inside, front.outside].contains(&Traffic::Local));
        let all = fronts.iter().any(|front| matches!(front.at, At::Nodes(_)));
        let hints = || backends().filter_map(|backend| backend.endpoint.hints.as_deref());
        let of_hints = hints().flat_map(|hints| hints.nodes.iter()).map(|name| &**name);
        let of_endpoints =
            backends().filter(|_| local).filter_map(|backend| backend.endpoint.node.as_deref());
        Self {
            zones: hints().any(|hints| !hints.zones.is_empty()),
            all,
            nodes: of_endpoints.chain(of_hints).collect(),
            hosts: backends().map(|backend| backend.address.ip()).collect(),
        }
    }

    fn of<'n>(&self, node: &'n Node, store: &Store) -> Class<'n> {
        let has_router = store.has_gateway_router(&node.name);
        let is_host = || node.host_addresses.iter().any(|address| self.hosts.contains(address));
        let is_own = self.all || self.nodes.contains(&*node.name) || has_router && is_host();
        Class {
            has_router,
            zone: node.topology_zone.as_deref().filter(|_| self.zones),
            node: is_own.then_some(&*node.name),
        }
    }
}

/// The rules of a node.
fn rules<'a>(fronts: impl Iterator<Item = &'a Front<'a>>, node: &Node, store: &Store) -> Rules {
    let mut rules = Rules { has_router: store.has_gateway_router(&node.name), ..Rules::default() };
    for front in fronts {
        let port = front.port;
        let local = |family| port.usable(family, |backend| is_local(backend.endpoint, node));
        let all = |family| near(port, family, node);
        let addresses = front.addresses(Some(node));
        let by = |traffic: Traffic, family| match traffic {
            Traffic::Local => local(family),
            Traffic::Cluster => all(family),
        };
        if front.outside == Traffic::Local
            && let At::Nodes(node_port) = front.at
        {
            // The node sends what arrives at its addresses here: to keep the client's address, and
            // not to leave the node.
            let masquerade = store.config.masquerade(Masquerade::LocalTraffic);
            let masquerade = masquerade.map(|address| SocketAddr::new(address, node_port));
            let has = |family_of: &SocketAddr| {
                addresses.iter().any(|own| family(&own.ip()) == family(&family_of.ip()))
            };
            front.add(&mut rules.switch, masquerade.into_iter().filter(has).collect(), |family| {
                spell(&local(family))
            });
        }
        if rules.has_router {
            for address in &addresses {
                let backends = from_router(by(front.outside, family(&address.ip())), node, store);
                let local = front.outside == Traffic::Local && !backends.is_empty();
                let vips = if local { &mut rules.local_router } else { &mut rules.router };
                vips.insert(address.to_string().into(), spell(&backends));
            }
        }
        front.add(&mut rules.switch, addresses, |family| spell(&by(front.inside, family)));
    }
    rules
}

/// The backends as the gateway router of `node` reaches them. It cannot send to its own address:
/// the node takes such connections back from the masquerade address.
pub(crate) fn from_router(
    mut backends: Vec<SocketAddr>,
    node: &Node,
    store: &Store,
) -> Vec<SocketAddr> {
    let own = store.config.masquerade(Masquerade::Host);
    for backend in backends.iter_mut().filter(|backend| node.host_addresses.contains(&backend.ip()))
    {
        backend.set_ip(own[family(&backend.ip())]);
    }
    backends
}

fn is_local(endpoint: &Endpoint, node: &Node) -> bool {
    Traffic::Local.admits(endpoint.node.as_deref(), &node.name)
}

/// The backends that a connection from the node may get, by the hints of the endpoints.
fn near(port: &Port<'_>, family: usize, node: &Node) -> Vec<SocketAddr> {
    fn hints<'a>(backend: &Backend<'a>) -> Option<&'a Hints> {
        backend.endpoint.hints.as_deref()
    }
    let place = Place { node: &node.name, zone: node.topology_zone.as_deref() };
    let ready =
        port.backends[family].iter().filter(|backend| backend.condition == Condition::Ready);
    let nearness = place.nearness(ready.map(hints));
    port.usable(family, |backend| place.admits(nearness, hints(backend)))
}

impl Rules {
    /// The rows of one node, in the order in which upstream makes them.
    fn rows(self) -> Vec<(On, Vips)> {
        let Self { has_router, switch, router, local_router } = self;
        if has_router && switch == router && local_router.is_empty() {
            return if switch.is_empty() { Vec::new() } else { vec![(On::Both, switch)] };
        }
        let rows = [(On::Router, router), (On::LocalRouter, local_router), (On::Switch, switch)];
        rows.into_iter().filter(|(_, vips)| !vips.is_empty()).collect()
    }
}

impl<'a> Row<'a> {
    fn new(on: On, protocol: Protocol, node: &'a str, vips: Vips) -> Self {
        let mut row = Self {
            on,
            protocol,
            node,
            vips,
            switches: Vec::new(),
            routers: Vec::new(),
            is_merged: false,
        };
        row.attach(on, node);
        row
    }

    fn attach(&mut self, on: On, node: &'a str) {
        match on {
            On::Both => {
                self.switches.push(node);
                self.routers.push(node);
            }
            On::Router | On::LocalRouter => self.routers.push(node),
            On::Switch => self.switches.push(node),
        }
    }

    /// Another load balancer is equal to this one.
    fn join(&mut self, on: On, node: &'a str) {
        self.is_merged = true;
        self.attach(on, node);
    }

    /// `nodes`, `routers`: how many there are in the zone.
    fn load_balancer(
        self,
        key: &ServiceKey,
        options: &Options,
        nodes: usize,
        routers: usize,
    ) -> LoadBalancer {
        let Self { on, protocol, node, vips, switches, routers: own_routers, is_merged } = self;
        let part = match on {
            On::Both => "node_router+switch",
            On::Router => "node_router",
            On::LocalRouter => "node_local_router",
            On::Switch => "node_switch",
        };
        let merged = if is_merged { "_merged" } else { "" };
        // A group instead of a link for each node: one node more or less changes nothing, also
        // while it has no router yet.
        let group = match (switches.len() == nodes, own_routers.len()) {
            (true, 0) => Some(ovn::SWITCH_LB_GROUP),
            (true, all) if all == routers => Some(ovn::CLUSTER_LB_GROUP),
            (true | false, _) => None,
        };
        let switches =
            switches.into_iter().map(|node| Table::LogicalSwitch.row(ovn::node_switch(node)));
        let routers =
            own_routers.into_iter().map(|node| Table::LogicalRouter.row(ovn::gateway_router(node)));
        let links: Vec<RowName> = switches.chain(routers).collect();
        let (on_rows, or_on) = match group {
            Some(group) => (vec![Table::LoadBalancerGroup.row(group)], links),
            None => (links, Vec::new()),
        };
        LoadBalancer {
            service: key.clone(),
            protocol,
            part: format!("{part}_{node}{merged}"),
            vips,
            options: Options { skip_snat: on == On::LocalRouter, ..options.clone() },
            on: on_rows,
            or_on,
        }
    }
}

fn hash(value: &impl std::hash::Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}
