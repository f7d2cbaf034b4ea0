//! Random `EndpointSlice`s.

use proptest::{collection::vec, option, prelude::*, sample::select};

use super::{MOST_SERVICES, ZONES, protocol, service_name};
use crate::world::{
    AddressType, Endpoint, EndpointPort, EndpointSlice, HEADLESS, Node, Protocol, ServicePort,
    World,
};

/// A slice that does not know yet which Services, nodes and pods there are.
#[derive(Debug, Clone)]
pub(super) struct Sketch {
    /// The index of its Service. The largest one is of none that exists.
    service: usize,
    /// Whether it has the label that says so.
    is_labelled: bool,
    labels: Vec<&'static str>,
    address_type: AddressType,
    ports: Vec<Port>,
    endpoints: Vec<Place>,
    is_hinted: bool,
}

/// How the slice has a port of its Service.
#[derive(Debug, Clone, Copy)]
enum Port {
    Right { number: u16, says_protocol: bool },
    AllPorts,
    Missing,
    OtherProtocol(Protocol),
    OtherName,
}

#[derive(Debug, Clone)]
struct Place {
    at: At,
    conditions: [Option<bool>; 3],
    has_node_name: bool,
    /// Whether it has a hint, in a slice that has hints.
    is_hinted: bool,
    zones: Vec<&'static str>,
    nodes: Vec<u8>,
}

/// Where the endpoint is. Numbers are modulo what there is.
#[derive(Debug, Clone, Copy)]
enum At {
    Pod(u8),
    Host(u8),
    Outside,
    OtherFamily(u8),
    Garbage,
}

pub(super) fn sketch() -> impl Strategy<Value = Sketch> {
    let address_type = prop_oneof![
        6 => Just(AddressType::Ipv4),
        4 => Just(AddressType::Ipv6),
        1 => Just(AddressType::Fqdn),
    ];
    let labels = prop_oneof![12 => Just(vec![]), 1 => Just(vec![HEADLESS])];
    let whose = (0..=MOST_SERVICES, prop::bool::weighted(0.95), labels, address_type);
    (whose, vec(port(), 3), vec(place(), 1..=3), prop::bool::weighted(0.4)).prop_map(
        |((service, is_labelled, labels, address_type), ports, endpoints, is_hinted)| Sketch {
            service,
            is_labelled,
            labels,
            address_type,
            ports,
            endpoints,
            is_hinted,
        },
    )
}

fn port() -> impl Strategy<Value = Port> {
    let right = (8080..8084_u16, any::<bool>());
    prop_oneof![
        12 => right.prop_map(|(number, says_protocol)| Port::Right { number, says_protocol }),
        1 => Just(Port::AllPorts),
        1 => Just(Port::Missing),
        1 => protocol().prop_map(Port::OtherProtocol),
        1 => Just(Port::OtherName),
    ]
}

fn place() -> impl Strategy<Value = Place> {
    let at = prop_oneof![
        12 => any::<u8>().prop_map(At::Pod),
        2 => any::<u8>().prop_map(At::Host),
        1 => Just(At::Outside),
        1 => any::<u8>().prop_map(At::OtherFamily),
        1 => Just(At::Garbage),
    ];
    let (yes, no) = (Some(true), Some(false));
    // Ready, serving, terminating.
    let conditions = prop_oneof![
        4 => Just([yes, yes, no]),
        1 => Just([None, None, None]),
        2 => Just([no, yes, yes]),
        2 => Just([no, no, no]),
        1 => Just([no, no, yes]),
        1 => any::<[Option<bool>; 3]>(),
    ];
    let zones = select(vec![vec![ZONES[0]], vec![ZONES[1]], ZONES.to_vec()]);
    let hints = (prop::bool::weighted(0.9), option::weighted(0.8, zones), vec(1..=3_u8, 0..=1));
    (at, conditions, prop::bool::weighted(0.9), hints).prop_map(
        |(at, conditions, has_node_name, (is_hinted, zones, nodes))| Place {
            at,
            conditions,
            has_node_name,
            is_hinted,
            zones: zones.unwrap_or_default(),
            nodes,
        },
    )
}

impl Sketch {
    pub(super) fn slice(self, index: usize, world: &World) -> EndpointSlice {
        let (namespace, name) = service_name(self.service);
        let ports = world.services.get(self.service).map_or(
            vec![EndpointPort { name: None, protocol: None, port: Some(8080) }],
            |service| {
                service
                    .ports
                    .iter()
                    .zip(&self.ports)
                    .filter_map(|(port, own)| own.of(port))
                    .collect()
            },
        );
        let ipv6 = self.address_type == AddressType::Ipv6;
        let endpoints =
            self.endpoints.into_iter().map(|place| place.endpoint(world, ipv6, self.is_hinted));
        EndpointSlice {
            namespace,
            name: format!("{name}-{index}"),
            service: self.is_labelled.then_some(name),
            labels: self.labels,
            address_type: self.address_type,
            ports,
            endpoints: endpoints.collect(),
        }
    }
}

impl Port {
    fn of(self, port: &ServicePort) -> Option<EndpointPort> {
        let ServicePort { name, protocol, .. } = *port;
        match self {
            Self::Right { number, says_protocol } => {
                let says = says_protocol || protocol != Protocol::Tcp;
                Some(EndpointPort { name, protocol: says.then_some(protocol), port: Some(number) })
            }
            Self::AllPorts => Some(EndpointPort { name, protocol: Some(protocol), port: None }),
            Self::Missing => None,
            Self::OtherProtocol(protocol) => {
                Some(EndpointPort { name, protocol: Some(protocol), port: Some(8080) })
            }
            Self::OtherName => Some(EndpointPort {
                name: Some("other"),
                protocol: Some(protocol),
                port: Some(8080),
            }),
        }
    }
}

impl Place {
    fn endpoint(self, world: &World, ipv6: bool, is_hinted: bool) -> Endpoint {
        let family = usize::from(ipv6);
        let pod = |number: u8| &world.pods[usize::from(number) % world.pods.len()];
        let host = |number: u8| &world.nodes[usize::from(number) % world.nodes.len()];
        let (address, node) = match self.at {
            At::Pod(number) => {
                (pod(number).addresses()[family].to_string(), Some(pod(number).node))
            }
            At::Host(number) => {
                (host(number).addresses()[family].to_string(), Some(host(number).number))
            }
            At::Outside => ((if ipv6 { "2001:db8:9::9" } else { "192.0.2.9" }).to_owned(), None),
            At::OtherFamily(number) => {
                (pod(number).addresses()[1 - family].to_string(), Some(pod(number).node))
            }
            At::Garbage => ("no-address".to_owned(), None),
        };
        let name_of = |number: u8| Node { number, zone: None }.name();
        let [ready, serving, terminating] = self.conditions;
        let is_hinted = is_hinted && self.is_hinted;
        Endpoint {
            address,
            ready,
            serving,
            terminating,
            node_name: node.filter(|_| self.has_node_name).map(name_of),
            for_zones: if is_hinted { self.zones } else { Vec::new() },
            for_nodes: if is_hinted {
                self.nodes.into_iter().map(name_of).collect()
            } else {
                Vec::new()
            },
        }
    }
}
