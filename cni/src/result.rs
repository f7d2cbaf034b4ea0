//! The CNI result, and what it looks like to runtimes of every version (SPEC.md, "Success"; conversions as in the Go library).

use std::net::IpAddr;

use contract::{mac::Mac, mtu::Mtu, names::IfName, spec_version::SpecVersion};
use ipnet::IpNet;
use podnet::{link::HostEnd, plan::Attachment};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What an ADD has made. Addresses belong to the interface in the pod, which is the second one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CniResult {
    /// The host's end and the pod's end of the veth.
    pub interfaces: [Interface; 2],
    pub ips: Vec<IpConfig>,
    pub routes: Vec<Route>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    pub mac: Mac,
    pub mtu: Mtu,
    /// Path of the namespace; none on the host.
    pub sandbox: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpConfig {
    pub address: IpNet,
    pub gateway: Option<IpAddr>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub destination: IpNet,
    pub next_hop: Option<IpAddr>,
}

impl CniResult {
    /// What the runtime is told of an attachment, of which `host` is the host's end and `netns` the path of the pod's namespace.
    pub fn of(attachment: &Attachment, host: &HostEnd, netns: &str) -> Self {
        let Attachment { identity, mac, mtu, addresses, routes, .. } = attachment;
        let gateway_of = |address: &IpNet| {
            routes
                .iter()
                .filter(|route| route.destination.prefix_len() == 0)
                .filter_map(|route| route.next_hop)
                .find(|gateway| gateway.is_ipv4() == address.addr().is_ipv4())
        };
        let interface = |name: &IfName, mac, sandbox| Interface { name: name.to_string(), mac, mtu: *mtu, sandbox };
        Self {
            interfaces: [interface(&host.name, host.mac, None), interface(&identity.if_name, *mac, Some(netns.to_owned()))],
            ips: addresses.iter().map(|address| IpConfig { address: *address, gateway: gateway_of(address) }).collect(),
            routes: routes.iter().map(|route| Route { destination: route.destination, next_hop: route.next_hop }).collect(),
        }
    }

    /// The result as a runtime that speaks `version` expects it.
    pub fn render(&self, version: SpecVersion) -> Value {
        let interfaces = self.interfaces.iter().map(|interface| {
            let Interface { name, mac, mtu, sandbox } = interface;
            with_optional(json!({"name": name, "mac": mac.to_string(), "mtu": mtu.bytes()}), "sandbox", sandbox.as_ref())
        });
        let ips = self.ips.iter().map(|IpConfig { address, gateway }| {
            with_optional(json!({"interface": 1, "address": address.to_string()}), "gateway", gateway.as_ref())
        });
        let routes = self
            .routes
            .iter()
            .map(|Route { destination, next_hop }| with_optional(json!({"dst": destination.to_string()}), "gw", next_hop.as_ref()));
        let newest = json!({
            "interfaces": interfaces.collect::<Vec<_>>(),
            "ips": ips.collect::<Vec<_>>(),
            "routes": routes.collect::<Vec<_>>(),
            "dns": {},
        });
        convert(newest, version)
    }
}

/// A result of version 1.0.0 or later, ours or upstream's, as a runtime that speaks `version` expects it. What is no result stays as it is.
pub fn convert(mut result: Value, version: SpecVersion) -> Value {
    if !result.is_object() {
        return result;
    }
    result["cniVersion"] = json!(version.as_str());
    if version < SpecVersion::V1_1_0 {
        items(&mut result, "interfaces").for_each(|interface| drop(interface.as_object_mut().map(|fields| fields.remove("mtu"))));
    }
    if version < SpecVersion::V1_0_0 {
        items(&mut result, "ips").for_each(|ip| ip["version"] = json!(if is_v4(&ip["address"]) { "4" } else { "6" }));
    }
    if version < SpecVersion::V0_3_0 {
        by_family(&mut result);
    }
    result
}

/// 0.1.0 and 0.2.0: one address of each family, with that family's routes; interfaces cannot be expressed.
fn by_family(result: &mut Value) {
    let routes: Vec<Value> = items(result, "routes").map(|route| route.clone()).collect();
    let ips: Vec<Value> = items(result, "ips").map(|ip| ip.clone()).collect();
    let Some(fields) = result.as_object_mut() else { return };
    fields.retain(|key, _| key == "cniVersion" || key == "dns");
    for (key, v4) in [("ip4", true), ("ip6", false)] {
        if let Some(ip) = ips.iter().find(|ip| is_v4(&ip["address"]) == v4) {
            let routes: Vec<&Value> = routes.iter().filter(|route| is_v4(&route["dst"]) == v4).collect();
            let family = json!({"ip": ip["address"], "routes": routes});
            fields.insert(key.to_owned(), with_optional(family, "gateway", ip.get("gateway")));
        }
    }
}

/// The objects of a list; whatever else another program has put into it is passed over.
fn items<'a>(result: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    result.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().filter(|item| item.is_object())
}

/// Whether an address with its prefix length is of IPv4.
fn is_v4(address: &Value) -> bool {
    address.as_str().is_some_and(|text| !text.contains(':'))
}

fn with_optional(mut value: Value, key: &str, optional: Option<&impl Serialize>) -> Value {
    if let Some(present) = optional {
        value[key] = json!(present);
    }
    value
}

/// A result that a runtime hands back, in any version: only what CHECK and DEL look at, and everything optional.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PrevResult {
    pub interfaces: Vec<PrevInterface>,
    pub ips: Vec<PrevIp>,
    pub routes: Vec<PrevRoute>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PrevInterface {
    pub name: String,
    pub mac: String,
    pub mtu: Option<u32>,
    pub sandbox: String,
}

#[derive(Debug, Clone, Deserialize)]
pub struct PrevIp {
    pub address: IpNet,
    pub gateway: Option<IpAddr>,
    /// Index into the interfaces.
    pub interface: Option<usize>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct PrevRoute {
    pub dst: IpNet,
    pub gw: Option<IpAddr>,
}

impl PrevResult {
    /// The addresses of the interface `if_name` inside a sandbox. Chained plugins may have added others.
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
