//! The CNI result, in the form of each CNI version (SPEC.md, "Success"; conversions as in the Go
//! library).

use std::net::IpAddr;

use contract::{mac::Mac, mtu::Mtu, names::IfName, spec_version::SpecVersion};
use ipnet::IpNet;
use podnet::{link::HostEnd, plan::Attachment};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The result of an ADD. Addresses belong to the interface in the pod, which is the second one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CniResult {
    /// The host's end and the pod's end of the veth.
    pub interfaces: [Interface; 2],
    pub ips: Vec<IpConfig>,
    pub routes: Vec<Route>,
}

/// An interface of the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    pub mac: Mac,
    pub mtu: Mtu,
    /// Path of the network namespace; `None` on the host.
    pub sandbox: Option<String>,
}

/// An address of the pod, with its prefix length, and the gateway of its family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpConfig {
    pub address: IpNet,
    pub gateway: Option<IpAddr>,
}

/// A route in the pod. Without a next hop, the destination is on the link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub destination: IpNet,
    pub next_hop: Option<IpAddr>,
}

impl CniResult {
    /// The result of an attachment. `host` is the host's end, `netns` the path of the pod's
    /// namespace.
    pub fn of(attachment: &Attachment, host: &HostEnd, netns: &str) -> Self {
        let Attachment { identity, mac, mtu, addresses, routes, .. } = attachment;
        // The next hop of the default route of the address's family.
        let gateway_of = |address: &IpNet| {
            routes
                .iter()
                .filter(|route| route.destination.prefix_len() == 0)
                .filter_map(|route| route.next_hop)
                .find(|gateway| gateway.is_ipv4() == address.addr().is_ipv4())
        };
        let interface = |name: &IfName, mac, sandbox| Interface {
            name: name.to_string(),
            mac,
            mtu: *mtu,
            sandbox,
        };
        Self {
            interfaces: [
                interface(&host.name, host.mac, None),
                interface(&identity.if_name, *mac, Some(netns.to_owned())),
            ],
            ips: addresses
                .iter()
                .map(|address| IpConfig { address: *address, gateway: gateway_of(address) })
                .collect(),
            routes: routes
                .iter()
                .map(|route| Route { destination: route.destination, next_hop: route.next_hop })
                .collect(),
        }
    }

    /// The result in the form of `version`.
    pub fn render(&self, version: SpecVersion) -> Value {
        let interfaces = self.interfaces.iter().map(|interface| {
            let Interface { name, mac, mtu, sandbox } = interface;
            with_optional(
                json!({"name": name, "mac": mac.to_string(), "mtu": mtu.bytes()}),
                "sandbox",
                sandbox.as_ref(),
            )
        });
        let ips = self.ips.iter().map(|IpConfig { address, gateway }| {
            with_optional(
                // The index of the pod's end in `interfaces`.
                json!({"interface": 1, "address": address.to_string()}),
                "gateway",
                gateway.as_ref(),
            )
        });
        let routes = self.routes.iter().map(|Route { destination, next_hop }| {
            with_optional(json!({"dst": destination.to_string()}), "gw", next_hop.as_ref())
        });
        let newest = json!({
            "interfaces": interfaces.collect::<Vec<_>>(),
            "ips": ips.collect::<Vec<_>>(),
            "routes": routes.collect::<Vec<_>>(),
            "dns": {},
        });
        convert(newest, version)
    }
}

/// Converts a result of version 1.0.0 or later, this plugin's or upstream's, to the form of
/// `version`. A value that is not an object stays as it is.
pub fn convert(mut result: Value, version: SpecVersion) -> Value {
    if !result.is_object() {
        return result;
    }
    result["cniVersion"] = json!(version.as_str());
    // 1.1.0 added `mtu`; up to 0.4.0 each address names its family; up to 0.2.0 there is one of
    // each family.
    if version < SpecVersion::V1_1_0 {
        items(&mut result, "interfaces").for_each(|interface| {
            drop(interface.as_object_mut().map(|fields| fields.remove("mtu")))
        });
    }
    if version < SpecVersion::V1_0_0 {
        items(&mut result, "ips")
            .for_each(|ip| ip["version"] = json!(if is_v4(&ip["address"]) { "4" } else { "6" }));
    }
    if version < SpecVersion::V0_3_0 {
        by_family(&mut result);
    }
    result
}

/// 0.1.0 and 0.2.0: one address of each family, with the routes of that family. Interfaces cannot
/// be expressed.
fn by_family(result: &mut Value) {
    let routes: Vec<Value> = items(result, "routes").map(|route| route.clone()).collect();
    let ips: Vec<Value> = items(result, "ips").map(|ip| ip.clone()).collect();
    let Some(fields) = result.as_object_mut() else { return };
    fields.retain(|key, _| key == "cniVersion" || key == "dns");
    for (key, v4) in [("ip4", true), ("ip6", false)] {
        if let Some(ip) = ips.iter().find(|ip| is_v4(&ip["address"]) == v4) {
            let routes: Vec<&Value> =
                routes.iter().filter(|route| is_v4(&route["dst"]) == v4).collect();
            let family = json!({"ip": ip["address"], "routes": routes});
            fields.insert(key.to_owned(), with_optional(family, "gateway", ip.get("gateway")));
        }
    }
}

/// The objects of a list. Other elements, from another program's result, are skipped.
fn items<'a>(result: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    result
        .get_mut(key)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .filter(|item| item.is_object())
}

/// Whether an address with a prefix length is an IPv4 address.
fn is_v4(address: &Value) -> bool {
    address.as_str().is_some_and(|text| !text.contains(':'))
}

fn with_optional(mut value: Value, key: &str, optional: Option<&impl Serialize>) -> Value {
    if let Some(present) = optional {
        value[key] = json!(present);
    }
    value
}

/// A stored result that a runtime passes back, in any version. Has only the fields that CHECK and
/// DEL read, and all lists are optional.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PrevResult {
    pub interfaces: Vec<PrevInterface>,
    pub ips: Vec<PrevIp>,
    pub routes: Vec<PrevRoute>,
}

/// An interface of a stored result.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PrevInterface {
    pub name: String,
    pub mac: String,
    /// Bytes; `None` before 1.1.0.
    pub mtu: Option<u32>,
    /// Path of the network namespace; empty on the host.
    pub sandbox: String,
}

/// An address of a stored result.
#[derive(Debug, Clone, Deserialize)]
pub struct PrevIp {
    pub address: IpNet,
    pub gateway: Option<IpAddr>,
    /// Index into [`PrevResult::interfaces`].
    pub interface: Option<usize>,
}

/// A route of a stored result.
#[derive(Debug, Clone, Deserialize)]
pub struct PrevRoute {
    pub dst: IpNet,
    pub gw: Option<IpAddr>,
}

impl PrevResult {
    /// The addresses of the interface `if_name` inside a sandbox. Chained plugins may have added
    /// others.
    pub fn addresses_of<'a>(&'a self, if_name: &'a str) -> impl Iterator<Item = &'a PrevIp> {
        self.ips.iter().filter(move |ip| {
            ip.interface
                .and_then(|index| self.interfaces.get(index))
                .is_some_and(|interface| interface.name == if_name && !interface.sandbox.is_empty())
        })
    }
}

#[cfg(test)]
mod tests;
