//! The host's part of the facts: links, addresses and default routes, as read from the kernel.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
};

use contract::mac::Mac;
use ipnet::IpNet;
use netlink_packet_route::AddressFamily;
use podnet::link;

use super::{next_hop::DefaultRoute, nic::Nic};
use crate::node::{
    host_addresses::{self, HostAddress},
    open_vswitch::default_route,
};

/// What the kernel knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Host {
    links: BTreeMap<String, SeenLink>,
    addresses: Vec<HostAddress>,
    pub(super) routes: Vec<DefaultRoute>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SeenLink {
    index: u32,
    mac: Option<Mac>,
    mtu: u32,
}

impl Host {
    /// Reads everything.
    pub(super) async fn read(masquerade: [IpNet; 2]) -> io::Result<Self> {
        let links = link::list().await.map_err(io::Error::other)?;
        let links: BTreeMap<String, SeenLink> = links
            .into_iter()
            .filter(|link| !link.is_veth || link.alias.is_empty())
            .map(|link| (link.name, SeenLink { index: link.index, mac: link.mac, mtu: link.mtu }))
            .collect();
        let name_of = |index: u32| {
            links.iter().find(|(_, link)| link.index == index).map(|(name, _)| name.clone())
        };
        let routes = default_route::routes().await?;
        let routes = routes.into_iter().filter_map(|(family, route)| {
            let is_v4 = family == AddressFamily::Inet;
            Some(DefaultRoute { link: name_of(route.link)?, via: route.via, is_v4 })
        });
        let routes = routes.collect();
        Ok(Self { routes, addresses: host_addresses::read(masquerade).await?, links })
    }

    /// Whether there is such a link.
    pub(super) fn has(&self, name: &str) -> bool {
        self.links.contains_key(name)
    }

    /// The link as a NIC.
    pub(super) fn nic(&self, name: &str) -> Option<Nic> {
        let SeenLink { index, mac, mtu } = self.links.get(name)?;
        Some(Nic { name: name.to_owned(), index: *index, mac: (*mac)?, mtu: *mtu })
    }

    /// The name of the link with this index.
    pub(super) fn name_of(&self, index: u32) -> Option<&str> {
        self.links.iter().find(|(_, link)| link.index == index).map(|(name, _)| name.as_str())
    }

    /// The link's MTU, in bytes.
    pub(super) fn mtu(&self, name: &str) -> Option<u32> {
        Some(self.links.get(name)?.mtu)
    }

    /// The link's MAC address.
    pub(super) fn mac(&self, name: &str) -> Option<Mac> {
        self.links.get(name)?.mac
    }

    /// The link's addresses for other machines, one of each family: those in `known` first.
    pub(super) fn addresses_on(&self, name: &str, known: &[IpAddr]) -> Vec<IpNet> {
        let Some(SeenLink { index, .. }) = self.links.get(name) else { return Vec::new() };
        let here: Vec<&HostAddress> =
            self.addresses.iter().filter(|host| host.link == *index).collect();
        let of_family = |is_v4: bool| {
            let mut all =
                here.iter().map(|host| host.address).filter(|net| net.addr().is_ipv4() == is_v4);
            let named = all.clone().find(|net| known.contains(&net.addr()));
            named.or_else(|| all.next())
        };
        [true, false].into_iter().filter_map(of_family).collect()
    }

    /// All addresses for other machines.
    pub(super) fn all_addresses(&self) -> BTreeSet<IpAddr> {
        self.addresses.iter().map(|host| host.address.addr()).collect()
    }
}
