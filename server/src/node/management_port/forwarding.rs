//! Forwarding of packets that pods send to other hosts, and of the answers. Reads and writes the
//! host's settings; what is to be forwarded is decided by the routes.
//!
//! | family | setting | where |
//! |---|---|---|
//! | IPv4 | `forwarding` | interfaces with an address for other machines |
//! | IPv6 | `force_forwarding` (since Linux 6.17) | these and the management port |
//! | IPv6, older kernels | `forwarding` of all interfaces | the host |
//!
//! The last one turns a host that learns its routes by router advertisements into a router that
//! does not. So interfaces that accept advertisements are told first to go on with it (`accept_ra`
//! 2). No setting is taken back: another program may rely on it by then.

use std::{collections::BTreeSet, fs, io, path::PathBuf};

use ipnet::IpNet;
use nix::net::if_::if_indextoname;

use super::plan::INTERFACE;
use crate::node::host_addresses::{self, HostAddress};

/// A setting under `/proc/sys/net` with the value that it should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    family: &'static str,
    interface: String,
    name: &'static str,
    value: &'static str,
    /// Of a setting that netlink can write, the index of the interface: in a container `/proc/sys`
    /// is mounted read-only.
    pub(super) over_netlink: Option<u32>,
}

/// The interfaces over which other machines are reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Uplinks {
    pub(super) links: BTreeSet<u32>,
    has_v4: bool,
    has_v6: bool,
}

impl Uplinks {
    /// Reads them from the kernel.
    pub(super) async fn read(masquerade: [IpNet; 2]) -> io::Result<Self> {
        let addresses = host_addresses::read(masquerade).await?;
        let internal = host_addresses::internal_links().await?;
        let mut uplinks = Self::default();
        for HostAddress { link, address } in
            addresses.into_iter().filter(|host| !internal.contains(&host.link))
        {
            uplinks.links.insert(link);
            uplinks.has_v4 |= address.addr().is_ipv4();
            uplinks.has_v6 |= address.addr().is_ipv6();
        }
        Ok(uplinks)
    }

    fn names(&self) -> Vec<(u32, String)> {
        // An interface that is gone by now has no settings either.
        let name = |link: &u32| Some((*link, if_indextoname(*link).ok()?.into_string().ok()?));
        self.links.iter().filter_map(name).collect()
    }

    /// The settings that have another value now, in the order in which they have to be written.
    /// `families`: those of the node's subnets, IPv4 and IPv6.
    pub(super) fn differing(&self, families: [bool; 2]) -> Vec<Setting> {
        let names = self.names();
        let mut wanted = Vec::new();
        if families[0] && self.has_v4 {
            wanted.extend(names.iter().map(|(link, name)| Setting {
                over_netlink: Some(*link),
                ..Setting::new("ipv4", name, "forwarding", "1")
            }));
        }
        if families[1] && self.has_v6 {
            wanted.extend(forward_v6(&names.into_iter().map(|(_, name)| name).collect::<Vec<_>>()));
        }
        wanted.retain(|setting| setting.value().is_some_and(|value| value != setting.value));
        wanted
    }
}

fn forward_v6(uplinks: &[String]) -> Vec<Setting> {
    let all = Setting::new("ipv6", "all", "forwarding", "1");
    if all.value().is_some_and(|value| value == all.value) {
        return Vec::new();
    }
    let ports = || uplinks.iter().map(String::as_str).chain([INTERFACE]);
    let each: Vec<Setting> =
        ports().map(|name| Setting::new("ipv6", name, "force_forwarding", "1")).collect();
    // A kernel has the setting for all interfaces or for none.
    if each.iter().any(|setting| setting.value().is_some()) {
        return each;
    }
    let accepts = |setting: &Setting| setting.value().is_some_and(|value| value == "1");
    let accept = |name: &String| Setting::new("ipv6", name, "accept_ra", "2");
    uplinks.iter().map(accept).filter(accepts).chain([all]).collect()
}

impl Setting {
    fn new(family: &'static str, interface: &str, name: &'static str, value: &'static str) -> Self {
        Self { family, interface: interface.to_owned(), name, value, over_netlink: None }
    }

    fn path(&self) -> PathBuf {
        ["/proc/sys/net", self.family, "conf", &self.interface, self.name].iter().collect()
    }

    /// The present value. `None` if the kernel has no such setting.
    fn value(&self) -> Option<String> {
        Some(fs::read_to_string(self.path()).ok()?.trim().to_owned())
    }

    pub(super) fn write(&self) -> io::Result<()> {
        fs::write(self.path(), self.value)
    }
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "net.{}.conf.{}.{}={}", self.family, self.interface, self.name, self.value)
    }
}
