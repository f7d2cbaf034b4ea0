//! A node's gateway: what the node has set up, for the controller's rows.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;

use super::{GatewayMode, value};
use crate::{
    annotation::{AnnotationError, list_or_single, one_per_family},
    mac::Mac,
};

/// How a node's gateway router reaches the physical network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateway {
    /// The name of the port that stands for the node's bridge in OVN, such as `br-ex_n1`.
    /// ovn-controller names its patch ports after it.
    pub interface: String,
    /// MAC address of the bridge.
    pub mac: Mac,
    /// The addresses of the gateway router on the physical network, with the prefix length of its
    /// networks. At least one, at most one of each family.
    pub addresses: Vec<IpNet>,
    /// The next routers of the physical network. At most one of each family; none if the node has
    /// no default route.
    pub next_hops: Vec<IpAddr>,
    /// The VLAN of the physical network; none if its packets have no tag.
    pub vlan: Option<u16>,
}

impl Gateway {
    /// Whether the interface is that of a bridge of this node: `<bridge>_<node>`. Any other name
    /// may be that of a pod's port, or of another node's bridge.
    pub fn is_of(&self, node: &str) -> bool {
        let bridge = self.interface.strip_suffix(node).and_then(|rest| rest.strip_suffix('_'));
        bridge.is_some_and(|bridge| !bridge.is_empty())
    }
}

/// The entry as upstream's nodes write it. `ip-address` and `next-hop` are the older, single-stack
/// spelling.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct GatewayJson {
    interface_id: String,
    mac_address: String,
    ip_addresses: Option<Vec<String>>,
    ip_address: Option<String>,
    next_hops: Option<Vec<String>>,
    next_hop: Option<String>,
    vlan_id: Option<String>,
}

/// More than one address of a family has no effect on a router's port here. The limit bounds the
/// work for a hostile annotation.
const MOST_ADDRESSES: usize = 2;

/// An entry to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayEntry {
    pub mode: GatewayMode,
    /// The name of the bridge.
    pub bridge: String,
    pub gateway: Gateway,
    /// Whether the gateway router serves node ports.
    pub node_ports: bool,
}

impl GatewayEntry {
    /// The entry as upstream's nodes write it, with the older spelling for a single address.
    pub(super) fn json(&self) -> serde_json::Value {
        let Self { mode, bridge, gateway, node_ports } = self;
        let Gateway { interface, mac, addresses, next_hops, vlan } = gateway;
        let texts = |list: &mut dyn Iterator<Item = String>| list.collect::<Vec<_>>();
        let addresses = texts(&mut addresses.iter().map(IpNet::to_string));
        let next_hops = texts(&mut next_hops.iter().map(IpAddr::to_string));
        let mut entry = serde_json::json!({
            "mode": mode.name(),
            "bridge-id": bridge,
            "interface-id": interface,
            "mac-address": mac.to_string(),
            "ip-addresses": addresses,
            "next-hops": next_hops,
            "node-port-enable": node_ports.to_string(),
            "vlan-id": vlan.unwrap_or_default().to_string(),
        });
        if let [single] = &addresses[..] {
            entry["ip-address"] = single.as_str().into();
        }
        if let [single] = &next_hops[..] {
            entry["next-hop"] = single.as_str().into();
        }
        entry
    }
}

impl Gateway {
    /// Reads the entry of a gateway that is shared or local.
    pub(super) fn read(entry: &serde_json::Value) -> Result<Self, AnnotationError> {
        let GatewayJson {
            interface_id,
            mac_address,
            ip_addresses,
            ip_address,
            next_hops,
            next_hop,
            vlan_id,
        } = GatewayJson::deserialize(entry)?;
        let addresses: Vec<IpNet> = list_or_single(
            ("ip-addresses", ip_addresses),
            ("ip-address", ip_address),
            "an address with its prefix length",
        )?;
        if addresses.is_empty() || addresses.len() > MOST_ADDRESSES {
            return value::refuse(
                "ip-addresses",
                &format!("{} entries", addresses.len()),
                "one or two addresses",
            );
        }
        one_per_family("ip-addresses", &value::addresses_of(&addresses))?;
        let next_hops: Vec<IpAddr> =
            list_or_single(("next-hops", next_hops), ("next-hop", next_hop), "an IP address")?;
        one_per_family("next-hops", &next_hops)?;
        let vlan = match vlan_id.as_deref() {
            None | Some("" | "0") => None,
            Some(text) => {
                let id = value::value::<u16>("vlan-id", text, "a VLAN (1 to 4094), or 0")?;
                if id > 4094 {
                    return value::refuse("vlan-id", text, "a VLAN (1 to 4094), or 0");
                }
                Some(id)
            }
        };
        Ok(Self {
            interface: value::plain("interface-id", &interface_id)?,
            mac: value::mac(&mac_address)?,
            addresses,
            next_hops,
            vlan,
        })
    }
}
