//! Services and EndpointSlices: what is parsed keeps to its own rules, and the load balancers that
//! follow are addresses with addresses of the same family. They do not depend on the order in which
//! objects come.

use std::{collections::BTreeMap, net::SocketAddr};

use contract::{
    limits::SERVICE_BACKENDS,
    names::{ServiceKey, SliceKey},
};
use controller::{
    config::{ClusterConfig, ClusterSubnet},
    key::Key,
    kinds::{desired, node::object::Node},
    rows::{DesiredRow, Value},
    watch_event::{Seen, WatchEvent},
    world::Store,
};
use kubeapi::{
    services::{Family, RangeObject, Service, ServiceObject, Slice, SliceObject},
    watch::Watched,
};

use crate::LONGEST_ERROR;

/// Backends of a Service over all of its addresses, in the rows of both nodes, as switch and as
/// router.
const MOST_BACKENDS: usize = 4 * SERVICE_BACKENDS.most;

/// `data` is one object a line. What is no JSON is ignored, as a watch ends there.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut services = BTreeMap::<ServiceKey, Service>::new();
    let mut slices = BTreeMap::<SliceKey, Slice>::new();
    for line in text.lines() {
        if let Ok(Ok((key, service))) =
            serde_json::from_str::<ServiceObject>(line).map(Watched::value)
        {
            check_service(&service);
            services.insert(key, service);
        }
        if let Ok(Ok((key, slice))) = serde_json::from_str::<SliceObject>(line).map(Watched::value)
        {
            check_slice(&slice);
            slices.insert(key, slice);
        }
        // Nothing more is said of it: it is a list of networks.
        let _ = serde_json::from_str::<RangeObject>(line).map(Watched::value);
    }
    let services = || services.iter().map(|(key, service)| (key.clone(), service.clone()));
    let slices = || slices.iter().map(|(key, slice)| (key.clone(), slice.clone()));
    let applied = |is_reversed| {
        let services = services().map(|service| WatchEvent::Services(Seen::Applied(service)));
        let slices = slices().map(|slice| WatchEvent::Slices(Seen::Applied(slice)));
        let mut all: Vec<WatchEvent> = services.chain(slices).collect();
        if is_reversed {
            all.reverse();
        }
        all
    };
    let (first, second) = (store(applied(false)), store(applied(true)));
    for (key, service) in services() {
        let rows = desired(&first, &Key::Service(key.clone()));
        assert_eq!(rows, desired(&second, &Key::Service(key)), "the rows depend on the order");
        check_rows(&service, &rows);
    }
}

fn check_service(service: &Service) {
    assert!(
        service.ports.iter().all(|port| port.port != 0 && port.node_port != Some(0)),
        "{service:?}"
    );
    check_text(service.unusable.as_ref().map(ToString::to_string));
}

fn check_slice(slice: &Slice) {
    let is_of_family = |address| slice.family == Some(Family::of(&address));
    assert!(slice.endpoints.iter().all(|endpoint| is_of_family(endpoint.address)), "{slice:?}");
    assert!(slice.ports.iter().all(|port| port.port != Some(0)), "{slice:?}");
    check_text(slice.unusable.as_ref().map(ToString::to_string));
}

fn check_text(text: Option<String>) {
    let length = text.map_or(0, |text| text.len());
    assert!(length <= LONGEST_ERROR, "a text of {length} bytes");
}

fn check_rows(service: &Service, rows: &[DesiredRow]) {
    let mut names: Vec<&str> = rows.iter().map(|row| &*row.id.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), rows.len(), "two rows have one name");
    assert!(
        rows.is_empty() || !service.cluster_ips.is_empty(),
        "rows of a Service without an address"
    );
    let mut sum = 0;
    for (_, value) in rows.iter().flat_map(|row| &row.columns) {
        let Value::Lists(vips) = value else { continue };
        for (vip, backends) in vips {
            let vip: SocketAddr = vip.parse().expect("an address with a port");
            let backends: Vec<SocketAddr> = backends
                .split(',')
                .filter(|backend| !backend.is_empty())
                .map(|backend| backend.parse().expect("an address with a port"))
                .collect();
            assert!(
                backends.iter().all(|backend| backend.is_ipv4() == vip.is_ipv4()),
                "{vip}: {backends:?}"
            );
            assert!(backends.is_sorted_by(|one, next| one < next), "{vip}: {backends:?}");
            sum += backends.len();
        }
    }
    assert!(sum <= MOST_BACKENDS, "{sum} backends");
}

/// A store with two nodes, in two zones, that has seen this.
fn store(observations: Vec<WatchEvent>) -> Store {
    let subnet = |cidr: &str, host_length| ClusterSubnet {
        cidr: cidr.parse().expect("a subnet"),
        host_length,
    };
    let cluster_subnets = vec![subnet("10.244.0.0/16", 24), subnet("fd00:10:244::/48", 64)];
    let mut store = Store::new(ClusterConfig { cluster_subnets, ..ClusterConfig::default() });
    let node = |number: u8, zone: &str| Node {
        subnets: vec![format!("10.244.{number}.0/24").parse().expect("a subnet")],
        host_addresses: vec![[172, 30, 0, 10 + number].into()],
        topology_zone: Some(zone.into()),
        ..Node::named(&format!("node{number}"))
    };
    store.observe(
        WatchEvent::Nodes(Seen::All(vec![node(1, "east"), node(2, "west")])),
        &mut |_, _| (),
    );
    observations.into_iter().for_each(|observation| store.observe(observation, &mut |_, _| ()));
    store
}
