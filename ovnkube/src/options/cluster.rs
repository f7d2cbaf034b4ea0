//! The cluster's network: its ranges of addresses, and the rules between them.

use std::net::IpAddr;

use contract::ovn::{Masquerade, nth};
use controller::config::{ClusterConfig, Interconnect, Multicast, Templates, Zone};
use ipnet::IpNet;

use super::{
    kind, networks,
    reading::Reading,
    settings::Origin,
    spec::Spec,
    table::{cluster as table, gateway, kubernetes, node, open_vswitch, roles},
    values,
};

/// A range of addresses, and the option that it comes from.
#[derive(Clone, Copy)]
struct Range {
    spec: &'static Spec,
    network: IpNet,
}

/// IP families.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Families {
    v4: bool,
    v6: bool,
}

pub(super) fn cluster(reading: &mut Reading) -> Option<ClusterConfig> {
    let cluster_subnets = reading.read(&table::CLUSTER_SUBNETS, networks::cluster_subnets);
    let service_cidrs = reading.read(&table::SERVICE_CIDRS, networks::one_of_each_family);
    let zone = zone(reading);
    let interconnect = reading.switch(&table::INTERCONNECT);
    let not_requested = reading.switch(&table::DISABLE_REQUESTEDCHASSIS);
    let legacy_annotations = reading.switch(&table::LEGACY_ANNOTATIONS);
    let stateless_policies = reading.switch(&table::STATELESS_NETPOL);
    let multicast = reading.switch(&table::MULTICAST);
    let acl_rate =
        reading.read(&table::ACL_RATE_LIMIT, |text| kind::number(text, 0, u32::MAX.into()));

    let of_pods = cluster_subnets
        .as_ref()
        .map(|subnets| Families::of(subnets.iter().map(|subnet| subnet.cidr)));
    // Without usable subnets both families count, so that the errors of the other ranges are
    // reported, too.
    let families = of_pods.unwrap_or(Families { v4: true, v6: true });
    let mut pair = |v4: &'static Spec, v6: &'static Spec| {
        // A range of a family that pods do not have is still parsed, for its errors.
        let v4 =
            range(reading, v4, |text| networks::v4(text).map(IpNet::V4)).filter(|_| families.v4);
        let v6 =
            range(reading, v6, |text| networks::v6(text).map(IpNet::V6)).filter(|_| families.v6);
        [v4, v6].into_iter().flatten().collect::<Vec<Range>>()
    };
    let join = pair(&table::V4_JOIN_SUBNET, &table::V6_JOIN_SUBNET);
    let transit = pair(&table::V4_TRANSIT_SUBNET, &table::V6_TRANSIT_SUBNET);

    // Load balancers name the masquerade addresses of both families, whatever families pods have.
    let masquerades = [
        range(reading, &table::V4_MASQUERADE_SUBNET, |text| networks::v4(text).map(IpNet::V4)),
        range(reading, &table::V6_MASQUERADE_SUBNET, |text| networks::v6(text).map(IpNet::V6)),
    ];
    let in_use =
        |range: &Range| if range.network.addr().is_ipv4() { families.v4 } else { families.v6 };
    let masquerade: Vec<Range> = masquerades.iter().copied().flatten().filter(in_use).collect();
    let templates = match reading.read_given(&table::SVC_TEMPLATE, kind::switch) {
        Some(true) => Templates::Always,
        Some(false) => Templates::Never,
        None => Templates::AsFound,
    };
    let encap_port = reading.read(&open_vswitch::ENCAP_PORT, |text| kind::number(text, 1, 65535));
    let mtu = reading.read(&node::MTU, values::mtu);
    let snat_per_pod = reading.switch(&gateway::SNAT_MULTIPLE_GWS);
    let empty_lb_events = reading.switch(&kubernetes::OVN_EMPTY_LB_EVENTS);

    if let (Some(of_pods), Some(services)) = (of_pods, &service_cidrs) {
        same_families(reading, of_pods, Families::of(services.iter().copied()));
    }
    let hairpin_addresses = masquerade.iter().filter_map(|range| hairpin(reading, range)).collect();
    let networks_of = |ranges: &[Range]| ranges.iter().map(|range| range.network).collect();
    let (join_subnets, transit_subnets) = (networks_of(&join), networks_of(&transit));
    let pods = cluster_subnets
        .iter()
        .flatten()
        .map(|subnet| Range { spec: &table::CLUSTER_SUBNETS, network: subnet.cidr });
    let services = service_cidrs
        .iter()
        .flatten()
        .map(|network| Range { spec: &table::SERVICE_CIDRS, network: *network });
    // Only ranges in use: `of_family` has left out those of other families.
    no_overlaps(
        reading,
        &pods.chain(services).chain(join).chain(masquerade).chain(transit).collect::<Vec<_>>(),
    );

    let [v4, v6] = masquerades;
    let masquerade = [v4?.network, v6?.network];
    Some(ClusterConfig {
        zone: zone?,
        interconnect: match interconnect? {
            false => Interconnect::Off,
            true if is_node_zone(reading) => Interconnect::NodeZones,
            true => Interconnect::On,
        },
        cluster_subnets: cluster_subnets?,
        service_cidrs: service_cidrs?,
        join_subnets,
        transit_subnets,
        hairpin_addresses,
        masquerade,
        mtu: mtu?,
        encap_port: u16::try_from(encap_port?).ok()?,
        snat_per_pod: snat_per_pod?,
        empty_lb_events: empty_lb_events?,
        templates,
        requested_chassis: !not_requested?,
        legacy_annotations: legacy_annotations?,
        acl_logging_rate_limit: u32::try_from(acl_rate?).ok()?,
        stateless_policies: stateless_policies?,
        multicast: if multicast? { Multicast::On } else { Multicast::Off },
    })
}

/// The zone of this process.
pub(super) fn zone(reading: &mut Reading) -> Option<Zone> {
    if is_node_zone(reading) {
        return reading.read_given(&roles::INIT_NODE, values::node_name).map(Zone);
    }
    reading.read(&table::ZONE, networks::zone)
}

/// Whether the node is a zone of its name: with a controller in one process with its server, if
/// zones are connected. Upstream's programs since 2026 know nothing else, and no option for it.
fn is_node_zone(reading: &Reading) -> bool {
    let has = |spec| reading.settings.given(spec).is_some();
    let is_alone = has(&roles::INIT_NODE) && has(&roles::INIT_OVNKUBE_CONTROLLER);
    let is_connected = &reading.settings.value(&table::INTERCONNECT).value;
    is_alone && !has(&table::ZONE) && kind::switch(is_connected) == Ok(true)
}

fn range(
    reading: &mut Reading,
    spec: &'static Spec,
    parse: impl FnOnce(&str) -> Result<IpNet, String>,
) -> Option<Range> {
    reading.read(spec, parse).map(|network| Range { spec, network })
}

fn same_families(reading: &mut Reading, of_pods: Families, of_services: Families) {
    if of_pods != of_services {
        let (pods, services) =
            (named(reading, &table::CLUSTER_SUBNETS), named(reading, &table::SERVICE_CIDRS));
        let (of_pods, of_services) = (of_pods.name(), of_services.name());
        reading.problems.add(format!(
            "{pods} gives pods {of_pods}, {services} gives services {of_services}: give both the same \
             families"
        ));
    }
}

/// The hairpin address of a masquerade subnet: a pod that reaches itself through a service has this
/// source.
fn hairpin(reading: &mut Reading, range: &Range) -> Option<IpAddr> {
    // Three bits: 8 addresses, the smallest network that has the fifth.
    let room = range.network.max_prefix_len() - range.network.prefix_len();
    if room < 3 {
        let problem =
            format!("{}: the network has to have at least 8 addresses", named(reading, range.spec));
        reading.problems.add(problem);
    }
    nth(&range.network, u128::from(Masquerade::Hairpin as u8)).map(|address| address.addr())
}

/// CIDRs overlap only if one contains the base of the other.
fn no_overlaps(reading: &mut Reading, ranges: &[Range]) {
    for (index, one) in ranges.iter().enumerate() {
        for other in &ranges[index + 1..] {
            if one.network.contains(&other.network.network())
                || other.network.contains(&one.network.network())
            {
                let (first, second) = (named(reading, one.spec), named(reading, other.spec));
                let (a, b) = (one.network, other.network);
                reading.problems.add(format!(
                    "{first} {a} and {second} {b} overlap: give each addresses of its own"
                ));
            }
        }
    }
}

/// The option as it was given; a default is marked as such.
fn named(reading: &Reading, spec: &'static Spec) -> String {
    let setting = reading.settings.value(spec);
    let default = if setting.origin == Origin::Default { " (its default)" } else { "" };
    format!("{}{default}", setting.origin.names(spec))
}

impl Families {
    fn of(networks: impl Iterator<Item = IpNet>) -> Self {
        networks.fold(Self { v4: false, v6: false }, |families, network| match network {
            IpNet::V4(_) => Self { v4: true, ..families },
            IpNet::V6(_) => Self { v6: true, ..families },
        })
    }

    fn name(self) -> &'static str {
        match (self.v4, self.v6) {
            (true, true) => "IPv4 and IPv6",
            (false, true) => "IPv6",
            (_, false) => "IPv4",
        }
    }
}
