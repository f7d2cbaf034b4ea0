//! Services and their slices, as watches deliver them.

use std::net::IpAddr;

use contract::names::{ServiceKey, SliceKey};
use controller::{problem::Family, rows::load_balancer::Protocol};
use kubeapi::services::{Condition, Endpoint, Service, ServicePort, Slice, SlicePort, Traffic};

use crate::cluster::{host, node_name};

pub(crate) fn service_key(number: u32) -> ServiceKey {
    ServiceKey::new(&format!("ns{}", number % 3), &format!("s{number}")).unwrap()
}

pub(crate) fn slice_key(number: u32) -> SliceKey {
    SliceKey::new("ns0", &format!("slice{number}")).unwrap()
}

/// A Service with two ports. `kind`: 0 to 7, by which nodes' load balancers differ or not.
pub(crate) fn service(number: u32, kind: u32, generation: u32) -> (ServiceKey, Service) {
    let port = |name: &str, protocol, port, node_port| ServicePort {
        name: Some(name.into()),
        protocol,
        port,
        target: None,
        node_port,
    };
    let node_port = (kind == 3).then(|| 30_000 + u16::try_from(number).unwrap());
    let octet = u8::try_from(number).unwrap();
    let service = Service {
        uid: format!("service-{number}-{generation}").into(),
        cluster_ips: if kind == 7 { [].into() } else { [IpAddr::from([172, 16, 0, octet])].into() },
        external_ips: if kind == 6 {
            [IpAddr::from([203, 0, 113, octet])].into()
        } else {
            [].into()
        },
        ports: [port("web", Protocol::Tcp, 80, node_port), port("dns", Protocol::Udp, 53, None)]
            .into(),
        affinity: (kind == 4).then_some(60),
        internal: if kind == 5 { Traffic::Local } else { Traffic::Cluster },
        external: if kind == 6 { Traffic::Local } else { Traffic::Cluster },
        ..Service::default()
    };
    (service_key(number), service)
}

/// A slice with a pod of the node behind both ports. That of slice 1 is the host itself.
pub(crate) fn slice(number: u32, service: u32, node: u32) -> (SliceKey, Slice) {
    let port = |name: &str, protocol, port| SlicePort {
        name: Some(name.into()),
        protocol,
        port: Some(port),
    };
    let pod = format!("10.{}.{}.{}", node / 256, node % 256, 200 + number).parse().unwrap();
    let slice = Slice {
        service: Some(service_key(service)),
        family: Some(Family::V4),
        endpoints_count: 1,
        ports: [port("web", Protocol::Tcp, 8080), port("dns", Protocol::Udp, 5353)].into(),
        endpoints: [Endpoint {
            address: if number == 1 { host(node) } else { pod },
            condition: Condition::Ready,
            node: Some(node_name(node)),
            hints: None,
        }]
        .into(),
        triggered: None,
        unusable: None,
    };
    (slice_key(number), slice)
}
