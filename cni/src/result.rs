//! The CNI result, and what it looks like to runtimes of every version (SPEC.md, "Success"; conversions as in the Go library).

use std::net::IpAddr;

use contract::{mac::Mac, mtu::Mtu, spec_version::SpecVersion};
use ipnet::IpNet;
use serde::Deserialize;
use serde_json::{Map, Value, json};

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
    /// The result as a runtime that speaks `version` expects it.
    pub fn render(&self, version: SpecVersion) -> Value {
        let mut fields = Map::from_iter([("cniVersion".to_owned(), json!(version.as_str()))]);
        if version < SpecVersion::V0_3_0 {
            self.render_by_family(&mut fields);
        } else {
            self.render_by_interface(version, &mut fields);
        }
        fields.insert("dns".to_owned(), json!({}));
        Value::Object(fields)
    }

    /// 0.1.0 and 0.2.0: one address of each family, with that family's routes; interfaces cannot be expressed.
    fn render_by_family(&self, fields: &mut Map<String, Value>) {
        for (key, is_v4) in [("ip4", true), ("ip6", false)] {
            if let Some(ip) = self.ips.iter().find(|ip| ip.address.addr().is_ipv4() == is_v4) {
                let routes = self.routes.iter().filter(|route| route.destination.addr().is_ipv4() == is_v4).map(Route::render);
                let mut family = json!({"ip": ip.address.to_string(), "routes": routes.collect::<Vec<_>>()});
                if let Some(gateway) = ip.gateway {
                    family["gateway"] = json!(gateway);
                }
                fields.insert(key.to_owned(), family);
            }
        }
    }

    /// 0.3.0 and later. Before 1.0.0 an address also says its family; from 1.1.0 on an interface says its MTU.
    fn render_by_interface(&self, version: SpecVersion, fields: &mut Map<String, Value>) {
        let interface = |interface: &Interface| {
            let mut value = json!({"name": interface.name, "mac": interface.mac.to_string()});
            if version >= SpecVersion::V1_1_0 {
                value["mtu"] = json!(interface.mtu.bytes());
            }
            if let Some(sandbox) = &interface.sandbox {
                value["sandbox"] = json!(sandbox);
            }
            value
        };
        let ip = |ip: &IpConfig| {
            let mut value = json!({"interface": 1, "address": ip.address.to_string()});
            if let Some(gateway) = ip.gateway {
                value["gateway"] = json!(gateway);
            }
            if version < SpecVersion::V1_0_0 {
                value["version"] = json!(if ip.address.addr().is_ipv4() { "4" } else { "6" });
            }
            value
        };
        fields.insert("interfaces".to_owned(), self.interfaces.iter().map(interface).collect());
        fields.insert("ips".to_owned(), self.ips.iter().map(ip).collect());
        if !self.routes.is_empty() {
            fields.insert("routes".to_owned(), self.routes.iter().map(Route::render).collect());
        }
    }
}

impl Route {
    fn render(&self) -> Value {
        match self.next_hop {
            Some(gateway) => json!({"dst": self.destination.to_string(), "gw": gateway}),
            None => json!({"dst": self.destination.to_string()}),
        }
    }
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
