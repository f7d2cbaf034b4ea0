//! A Service `lasting` with one port, whose backends a test starts by itself: for connections that
//! last.

use oracle::world::{
    self as model, AddressType, Endpoint, EndpointPort, EndpointSlice, Protocol, Service,
    ServicePort, ServiceType, TrafficPolicy,
};

use crate::support::site::Site;

/// Where the backend of the lasting connection listens, and the node port that leads to it.
pub(crate) const TARGET: u16 = 9000;
pub(crate) const NODE_PORT: u16 = 31_900;
pub(crate) const CLUSTER_IP: &str = "10.96.0.12";
const PORT_NAME: &str = "echo";

/// Tells of the Service `lasting` with one port and no endpoints yet.
pub(crate) fn announce(
    site: &Site<'_>,
    protocol: Protocol,
    external_traffic_policy: TrafficPolicy,
) {
    let port = ServicePort {
        name: Some(PORT_NAME),
        protocol,
        port: TARGET,
        target_port: Some(TARGET),
        node_port: Some(NODE_PORT),
    };
    let service = Service {
        kind: ServiceType::NodePort,
        external_traffic_policy,
        ..Service::named("lasting", &[CLUSTER_IP], vec![port])
    };
    let world = model::World { services: vec![service], ..model::World::default() };
    world.manifests().services.into_iter().for_each(|object| site.api.put(object));
}

/// Tells of the Service's backends, each with a port of its own: so each has a slice. None empties
/// a slice.
pub(crate) fn serve(site: &Site<'_>, protocol: Protocol, backends: [(model::Pod, Option<u16>); 2]) {
    let slices = backends.map(|(pod, port)| EndpointSlice {
        name: format!("lasting-{}", pod.node),
        address_type: AddressType::Ipv4,
        ports: vec![EndpointPort {
            name: Some(PORT_NAME),
            protocol: Some(protocol),
            port: port.or(Some(TARGET)),
        }],
        endpoints: port.map(|_| Endpoint::of(&pod)).into_iter().collect(),
        ..EndpointSlice::of("lasting", 1, Vec::new())
    });
    let world = model::World { slices: slices.into(), ..model::World::default() };
    world.manifests().slices.into_iter().for_each(|object| site.api.put(object));
}
