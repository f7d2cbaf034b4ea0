//! A cluster of two nodes in a world: the control plane and a server on each node, three pods, and
//! two Services whose backend is on the second node.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use anyhow::{Result, ensure};
use integration::{
    Daemon, Families, Lab, Node, Pod, by_hand,
    connections::Server,
    lab::Blueprint,
    peer::Reply,
    traffic::{End, Lasting},
    world::Machine,
};
use oracle::world::{
    self as model, AddressType, Endpoint, EndpointPort, EndpointSlice, Ingress, Protocol, Service,
    ServicePort, ServiceType, TrafficPolicy,
};

use crate::support::{api::Api, managed};

/// Limit for rows, flows and rules to follow, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// How packets leave the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gateway {
    /// Not at all: without a gateway.
    None,
    /// Through the host's own stack.
    Local,
    /// Through OVN and the bridge.
    Shared,
    /// The same, and node ports are served by OVN, too.
    SharedNodePorts,
    /// Through OVN and the bridge, with a translation for each pod.
    SharedEachPod,
}

const EACH_POD: &str = "--disable-snat-multiple-gws";

impl Gateway {
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::None => &[],
            Self::Local => &["--gateway-mode=local"],
            Self::Shared => &["--gateway-mode=shared"],
            Self::SharedNodePorts => &["--gateway-mode=shared", "--nodeport"],
            Self::SharedEachPod => &["--gateway-mode=shared", EACH_POD],
        }
    }
}

/// A Service of the site, with a port that answers with the backend's address and one that answers
/// with the client's, both over TCP and UDP.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Served {
    name: &'static str,
    policy: TrafficPolicy,
    /// Number of its addresses, and of its node ports.
    number: u16,
}

/// Any node delivers to the backend.
pub(crate) const ANYWHERE: Served =
    Served { name: "anywhere", policy: TrafficPolicy::Cluster, number: 10 };
/// `externalTrafficPolicy: Local`.
pub(crate) const KEPT: Served = Served { name: "kept", policy: TrafficPolicy::Local, number: 11 };

/// Which of the two ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Says {
    /// The backend's address.
    Backend = 0,
    /// The client's address, as the backend sees it.
    Client = 1,
}

const TARGETS: [u16; 2] = [8080, 8081];
const PORTS: [u16; 2] = [80, 81];

impl Served {
    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        self.name
    }

    /// Its cluster addresses.
    pub(crate) fn cluster_ips(self) -> [IpAddr; 2] {
        self.addresses("10.96.0.", "fd00:10:96::")
    }

    /// Its external addresses.
    pub(crate) fn external_ips(self) -> [IpAddr; 2] {
        self.addresses("198.51.100.", "2001:db8:51::")
    }

    /// Its load balancer's addresses.
    pub(crate) fn ingress(self) -> [IpAddr; 2] {
        self.addresses("198.51.101.", "2001:db8:52::")
    }

    fn addresses(self, v4: &str, v6: &str) -> [IpAddr; 2] {
        let number = self.number;
        [format!("{v4}{number}"), format!("{v6}{number}")]
            .map(|text| text.parse().expect("an address"))
    }

    pub(crate) fn port(self, says: Says) -> u16 {
        PORTS[says as usize]
    }

    pub(crate) fn node_port(self, says: Says) -> u16 {
        30_000 + 100 * self.number + PORTS[says as usize]
    }

    fn object(self) -> Service {
        let ports = [(Protocol::Tcp, ["http", "who"]), (Protocol::Udp, ["http-u", "who-u"])];
        let ports = ports.into_iter().flat_map(|(protocol, names)| {
            [Says::Backend, Says::Client].map(|says| ServicePort {
                name: Some(names[says as usize]),
                protocol,
                port: self.port(says),
                target_port: Some(TARGETS[says as usize]),
                node_port: Some(self.node_port(says)),
            })
        });
        let addresses = self.cluster_ips().map(|ip| ip.to_string());
        Service {
            kind: ServiceType::LoadBalancer,
            external_ips: self.external_ips().into(),
            ingress: self.ingress().map(|ip| Ingress { ip, is_proxy: false }).into(),
            external_traffic_policy: self.policy,
            ..Service::named(self.name, &addresses.each_ref().map(String::as_str), ports.collect())
        }
    }

    fn slices(self, backend: &model::Pod) -> [EndpointSlice; 2] {
        let port = |name, protocol, port| EndpointPort {
            name: Some(name),
            protocol: Some(protocol),
            port: Some(port),
        };
        let ports = vec![
            port("http", Protocol::Tcp, TARGETS[0]),
            port("who", Protocol::Tcp, TARGETS[1]),
            port("http-u", Protocol::Udp, TARGETS[0]),
            port("who-u", Protocol::Udp, TARGETS[1]),
        ];
        let [v4, v6] = backend.addresses();
        [(AddressType::Ipv4, v4, "v4"), (AddressType::Ipv6, v6, "v6")].map(
            |(address_type, address, family)| EndpointSlice {
                name: format!("{}-{family}", self.name),
                address_type,
                ports: ports.clone(),
                endpoints: vec![Endpoint { address: address.to_string(), ..Endpoint::of(backend) }],
                ..EndpointSlice::of(self.name, 1, Vec::new())
            },
        )
    }
}

/// The cluster.
pub(crate) struct Site<'l> {
    pub(crate) lab: &'l Lab,
    pub(crate) api: Api,
    /// On the first node.
    pub(crate) here: Pod,
    /// On the second one: the backend.
    pub(crate) there: Pod,
    pub(crate) control_plane: Daemon,
    _backends: [Server; 2],
}

/// Two nodes in a world, without a control plane.
pub(crate) fn blueprint() -> Blueprint {
    Lab::of_nodes(2).families(Families::Dual).empty().world()
}

impl<'l> Site<'l> {
    /// Starts everything, and waits until the nodes are ready.
    pub(crate) fn start(lab: &'l Lab, gateway: Gateway) -> Result<Self> {
        let api = Api::start()?;
        let model = [(1, 3), (2, 3)].map(|(node, host)| model::Pod { node, host });
        let served = [ANYWHERE, KEPT];
        let world = model::World {
            nodes: [1, 2].map(|number| model::Node { number, zone: None }).into(),
            pods: model.to_vec(),
            services: served.map(Served::object).into(),
            slices: served.iter().flat_map(|served| served.slices(&model[1])).collect(),
        };
        let objects = world.manifests();
        for object in [objects.nodes, objects.pods, objects.services, objects.slices].concat() {
            api.put(object);
        }
        let each_pod = (gateway == Gateway::SharedEachPod).then(|| EACH_POD.to_owned());
        let control_plane =
            api.master_with(each_pod.into_iter().chain([format!("--mtu={}", lab.nodes[0].mtu)]));
        control_plane.spawn()?;
        for node in &lab.nodes {
            start_server(node, &api, gateway)?;
        }
        lab.nodes.iter().try_for_each(managed::ready)?;
        let [here, there] = [0, 1].map(|position: usize| attach(lab, &lab.nodes[position]));
        let (here, there) = (here?, there?);
        let at =
            |port: u16| there.addresses.iter().map(move |net| SocketAddr::new(net.addr(), port));
        let own: Vec<SocketAddr> = at(TARGETS[0]).collect();
        let backends = [
            lab.answering(&there, &own)?,
            lab.mirroring(&End::Pod(&there), &at(TARGETS[1]).collect::<Vec<_>>())?,
        ];
        Ok(Self { lab, api, here, there, control_plane, _backends: backends })
    }

    /// Starts the node's server again, with another gateway.
    pub(crate) fn restart(&self, node: &Node, gateway: Gateway) -> Result<()> {
        node.server.stop()?;
        start_server(node, &self.api, gateway)
    }

    /// The same, with these options besides.
    pub(crate) fn restart_with(
        &self,
        node: &Node,
        gateway: Gateway,
        options: &[&str],
    ) -> Result<()> {
        node.server.stop()?;
        let options = gateway.options().iter().chain(options).map(|option| (*option).to_owned());
        node.server.set_arguments(arguments(node, &self.api).into_iter().chain(options));
        node.start_server()
    }

    /// The addresses of a pod, one per family.
    pub(crate) fn of_pod(pod: &Pod) -> Vec<IpAddr> {
        pod.addresses.iter().map(|net| net.addr()).collect()
    }

    /// Long connections of the first node's pod to the world, in each family.
    pub(crate) fn pod_to_world(&self) -> Result<Lasting<'_>> {
        let to =
            self.lab.world().addresses(Machine::Web).into_iter().map(|ip| SocketAddr::new(ip, 7));
        self.lab.lasting(End::Pod(&self.here), End::World(Machine::Web), to)
    }

    /// Long connections of the world to the first node itself, in each family.
    pub(crate) fn world_to_node(&self) -> Result<Lasting<'l>> {
        world_to_node(self.lab)
    }

    /// [`Lab::answers`], soon.
    pub(crate) fn answers(
        &self,
        what: &str,
        from: &End<'_>,
        expected: &[(SocketAddr, IpAddr)],
    ) -> Result<()> {
        self.lab.answers(what, from, expected, SOON)
    }

    /// Checks that no question from there is answered.
    pub(crate) fn nothing_answers(&self, from: &End<'_>, to: &[SocketAddr]) -> Result<()> {
        for (protocol, replies) in ["TCP", "UDP"].iter().zip(self.lab.ask(from, to, to)?) {
            for (to, reply) in to.iter().zip(replies) {
                ensure!(
                    !matches!(reply, Reply::By(_)),
                    "{protocol} to {to} from {from}: {reply:?}"
                );
            }
        }
        Ok(())
    }
}

/// Long connections of the world to the first node itself, in each family, as of an administrator.
pub(crate) fn world_to_node(lab: &Lab) -> Result<Lasting<'_>> {
    let node = &lab.nodes[0];
    let to = lab.world().of_node(node).into_iter().map(|ip| SocketAddr::new(ip, 22));
    lab.lasting(End::World(Machine::Client), End::Node(node), to)
}

/// The pod that the world's objects have on this node.
fn attach(lab: &Lab, node: &Node) -> Result<Pod> {
    let pod = lab.plan_pod(node);
    node.add_namespaces(std::slice::from_ref(&pod))?;
    by_hand::attach(node, &pod)?;
    Ok(pod)
}

fn start_server(node: &Node, api: &Api, gateway: Gateway) -> Result<()> {
    let options = gateway.options().iter().map(|option| (*option).to_owned());
    node.server.set_arguments(arguments(node, api).into_iter().chain(options));
    node.start_server()
}

fn arguments(node: &Node, api: &Api) -> Vec<String> {
    vec![
        format!("--init-node={}", node.name),
        format!("--k8s-apiserver={}", api.url()),
        format!("--mtu={}", node.mtu),
        "--cluster-subnets=10.244.0.0/16/24,fd00:10:244::/48".to_owned(),
        "--k8s-service-cidrs=10.96.0.0/16,fd00:10:96::/112".to_owned(),
    ]
}
