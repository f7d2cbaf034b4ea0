//! What the switch of a node needs for multicast.

use std::collections::BTreeMap;

use contract::ovn;
use ipnet::IpNet;

use crate::{config::Multicast, world::Store};

/// The keys of a switch's `other_config` that [`of_switch`] gives values.
pub(crate) const SWITCH_KEYS: [&str; 5] =
    ["mcast_snoop", "mcast_querier", "mcast_eth_src", "mcast_ip4_src", "mcast_ip6_src"];

/// What the `other_config` of a node's switch has for multicast: it learns who has joined which
/// group, and asks in the name of the router's port.
pub(crate) fn of_switch(store: &Store, subnets: &[IpNet]) -> BTreeMap<&'static str, String> {
    let gateways = ovn::gateways(subnets);
    let Some(mac) = ovn::port_mac(&gateways).filter(|_| store.config.multicast == Multicast::On)
    else {
        return BTreeMap::new();
    };
    let switches = ["mcast_snoop", "mcast_querier"].map(|key| (key, "true".to_owned()));
    let sources = gateways.iter().map(|gateway| match gateway {
        IpNet::V4(v4) => ("mcast_ip4_src", v4.addr().to_string()),
        // MLD is sent from link-local addresses alone (RFC 3810 §5).
        IpNet::V6(_) => ("mcast_ip6_src", mac.link_local().to_string()),
    });
    switches.into_iter().chain([("mcast_eth_src", mac.to_string())]).chain(sources).collect()
}
