//! What a Service costs, known from counts before anything is made of it.
//!
//! | unit | count |
//! |---|---|
//! | front end | an address and port where connections arrive; the node port of a port counts as one |
//! | backend | an endpoint and port, or a network of `loadBalancerSourceRanges`, once for each front end that has it; an EndpointSlice, once for each front end; and a network of those that the ranges leave out, once for each port |
//!
//! Each front end is a flow of ovn-northd and some elements of a node's nftables; each backend is
//! some 20 bytes of a row, and one or two flows of each node. What exceeds the limits is not
//! served: ports of a Service from the first one on that does not fit, and Services of a namespace
//! behind the older ones that use it up (`quota`).

use contract::limits::{self, Exceeded};

use super::{Family, Service, ServicePort, Slice};

/// The sizes of a Service, or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    pub front_ends: usize,
    pub backends: usize,
}

/// What a Service costs, and how many of its ports that is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Priced {
    pub cost: Cost,
    /// Ports that are served: the first ones.
    pub ports: usize,
    /// Why the next port is not served.
    pub exceeded: Option<Exceeded>,
}

impl Cost {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            front_ends: self.front_ends.saturating_add(other.front_ends),
            backends: self.backends.saturating_add(other.backends),
        }
    }

    pub(super) fn minus(self, other: Self) -> Self {
        Self {
            front_ends: self.front_ends.saturating_sub(other.front_ends),
            backends: self.backends.saturating_sub(other.backends),
        }
    }

    /// Whether one Service may cost as much.
    fn check(self) -> Result<(), Exceeded> {
        limits::SERVICE_FRONT_ENDS.check(self.front_ends)?;
        limits::SERVICE_BACKENDS.check(self.backends)
    }

    /// Whether all Services of a namespace may cost as much.
    pub(super) fn check_namespace(self) -> Result<(), Exceeded> {
        limits::NAMESPACE_FRONT_ENDS.check(self.front_ends)?;
        limits::NAMESPACE_BACKENDS.check(self.backends)
    }
}

impl Priced {
    /// The price of a Service with these slices.
    pub fn of<'a>(service: &Service, slices: impl Iterator<Item = &'a Slice> + Clone) -> Self {
        let mut priced = Self::default();
        // Of each port: nodes have the networks of clients, and OVN those of all others.
        let clients = service.source_ranges.as_ref().map_or(0, |ranges| {
            ranges
                .addresses
                .len()
                .saturating_mul(ranges.clients.len())
                .saturating_add(ranges.others)
        });
        let (addresses, claimed) = (service.addresses().count(), claimed_ports(service));
        for port in &service.ports[..claimed] {
            let front_ends = front_ends(addresses, port);
            // Each slice is looked at, whatever is in it.
            let of_slice = |slice: &Slice| slice.targets(port).count() * slice.endpoints_count;
            let backends: usize = slices.clone().map(of_slice).sum();
            if let Err(exceeded) =
                limits::PORT_BACKENDS.check(of_one_family(slices.clone(), of_slice))
            {
                return Self { exceeded: Some(exceeded), ..priced };
            }
            let lots = if service.affinity.is_some() { affinity_lots(backends) } else { backends };
            let backends = lots + slices.clone().count();
            let backends = front_ends.saturating_mul(backends).saturating_add(clients);
            let cost = priced.cost.plus(Cost { front_ends, backends });
            if let Err(exceeded) = cost.check() {
                return Self { exceeded: Some(exceeded), ..priced };
            }
            priced = Self { cost, ports: priced.ports + 1, exceeded: None };
        }
        if claimed < service.ports.len() && !service.cluster_ips.is_empty() {
            let all = service.ports.iter().map(|port| front_ends(addresses, port)).sum();
            priced.exceeded = limits::SERVICE_FRONT_ENDS.check(all).err();
        }
        priced
    }
}

/// The most that an address has: it is of one family.
fn of_one_family<'a>(
    slices: impl Iterator<Item = &'a Slice> + Clone,
    count: impl Fn(&Slice) -> usize,
) -> usize {
    let of = |family| slices.clone().filter(|slice| slice.family == Some(family)).map(&count).sum();
    Family::ALL.into_iter().map(of).max().unwrap_or_default()
}

/// So many backends have lots. With more of them, one might have none.
const MOST_WITH_LOTS: usize = 24;
/// The lots of a load balancer with affinity. Each is a bucket of Open vSwitch, of about 100 bytes,
/// and all are in one message of OpenFlow, which has 64 KiB at most.
const LOTS: usize = 256;

/// How long the list of so many backends is where clients have affinity.
pub fn affinity_lots(backends: usize) -> usize {
    if (2..=MOST_WITH_LOTS).contains(&backends) { LOTS } else { backends }
}

/// The front ends of a port of a Service with so many addresses.
fn front_ends(addresses: usize, port: &ServicePort) -> usize {
    addresses + usize::from(port.node_port.is_some())
}

/// How many of its ports a Service has front ends for, whatever its endpoints are. Only addresses
/// of these are claimed. A Service without an address in the cluster has none.
pub(super) fn claimed_ports(service: &Service) -> usize {
    if service.cluster_ips.is_empty() {
        return 0;
    }
    let addresses = service.addresses().count();
    let mut sum = 0;
    let fits = |port: &&ServicePort| {
        sum += front_ends(addresses, port);
        limits::SERVICE_FRONT_ENDS.check(sum).is_ok()
    };
    service.ports.iter().take_while(fits).count()
}
