//! A node as other machines see it: its addresses, its gateway, and the source of what its host
//! forwards to pods. Read from the annotations of its object.

use std::{collections::BTreeMap, net::IpAddr};

use contract::{
    node_annotation::{Gateway, GatewayMode, NodeAnnotations},
    ovn::forwarded_source,
};
use ipnet::IpNet;
use serde_json::Value;

#[derive(Debug, Clone)]
pub(super) struct NodeFacts {
    pub(super) name: String,
    /// At which other machines find it, the one of its gateway or its object first.
    pub(super) addresses: Vec<IpAddr>,
    pub(super) mode: GatewayMode,
    /// Its gateway router's place in the physical network.
    pub(super) gateway: Option<Gateway>,
    /// The sources of what its host forwards, at most one of each family. None: the management
    /// port's address.
    pub(super) forwarded: Vec<IpAddr>,
}

impl NodeFacts {
    /// `object`: as the API server has it.
    pub(super) fn of(object: &Value) -> Option<Self> {
        let name = object["metadata"]["name"].as_str()?.to_owned();
        let annotations: BTreeMap<String, String> = object["metadata"]["annotations"]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect();
        let read = NodeAnnotations(&annotations);
        let config = read.gateway();
        let own = object["status"]["addresses"].as_array().map(Vec::as_slice).unwrap_or_default();
        let own = own.iter().filter(|address| address["type"] != "Hostname");
        let own = own.filter_map(|address| address["address"].as_str()?.parse().ok());
        let of_host = read.host_cidrs().unwrap_or_default();
        let of_gateway = config.place.iter().flat_map(|place| &place.addresses);
        let mut addresses: Vec<IpAddr> = Vec::new();
        for address in of_gateway.map(IpNet::addr).chain(own).chain(of_host.iter().map(IpNet::addr))
        {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        let join = read.join_addresses().unwrap_or_default();
        let forwarded = match read.forwarded_source() {
            true => join.iter().filter_map(forwarded_source).collect(),
            false => Vec::new(),
        };
        let mode = config.mode.unwrap_or(GatewayMode::Disabled);
        Some(Self { name, addresses, mode, gateway: config.place, forwarded })
    }

    /// Its first address of the family.
    pub(super) fn address(&self, is_ipv6: bool) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| address.is_ipv6() == is_ipv6)
    }
}
