//! The facts of a comparison: the host, the node's place in the physical network, the ports of the
//! bridge.

use std::{collections::BTreeSet, net::IpAddr};

use contract::node_annotation::NodeAnnotations;
use ipnet::IpNet;
use tokio::time::Instant;
use uplink::flows::Datapath;

use super::{
    GRACE, GatewayReconciler, Waiting,
    bridge::{Seen, SeenBridge},
    host::Host,
    next_hop,
    plan::{self, BridgePorts, Place},
};
use crate::node::object::NodeView;

impl GatewayReconciler {
    pub(super) async fn host(&self) -> Result<Host, Waiting> {
        let host = Host::read(self.config.masquerade).await;
        host.map_err(|error| {
            Waiting::failed(format!("the host's links and routes cannot be read: {error}"))
        })
    }

    /// The interface to the outside: the one that is configured, or else the bridge of the gateway
    /// that is there, or else that of the default routes. Those come and go, with a lease, a tunnel
    /// or a router advertisement of whatever machine; a gateway that followed them would end the
    /// connections of all pods each time.
    pub(super) fn interface(&self, host: &Host, seen: &Seen) -> Result<String, Waiting> {
        let own = if self.config.interface.is_none() { self.own_bridge(host, seen) } else { None };
        let chosen = || next_hop::interface(self.config.interface.as_ref(), &host.routes);
        own.map_or_else(chosen, Ok).map_err(|why| Waiting::event(why.to_string()))
    }

    /// The bridge of the gateway, or at a start that of the gateway before, unless its NIC is gone.
    fn own_bridge(&self, host: &Host, seen: &Seen) -> Option<String> {
        let is_there = |place: &&Place| seen.bridges.contains_key(&place.bridge);
        let finished = self.finished.as_ref().filter(is_there).map(|place| place.bridge.clone());
        let has_nic = |name: &String| {
            let bridge = &seen.bridges[name];
            bridge.uplink(name).is_some_and(|nic| {
                host.has(nic) || bridge.port(nic).is_some_and(|port| !port.is_link())
            })
        };
        finished.or_else(|| seen.marked().into_iter().find(has_nic))
    }

    /// The node's place in the physical network.
    pub(super) fn place(
        &mut self,
        host: &Host,
        interface: &str,
        bridge: &str,
    ) -> Result<Place, Waiting> {
        let mac = host
            .mac(bridge)
            .ok_or_else(|| Waiting::failed(format!("Open vSwitch has not made link {bridge}")))?;
        let known = self.known_addresses();
        let addresses = host.addresses_on(bridge, &known);
        if addresses.is_empty() {
            return Err(Waiting::event(format!("bridge {bridge} has no address yet")));
        }
        let links = BTreeSet::from([interface, bridge]);
        // A default route that leads elsewhere for a while takes nothing from the router behind the
        // bridge.
        let before = self.finished.as_ref().filter(|before| before.bridge == bridge);
        let before = before.map_or_else(
            || self.published_next_hops(bridge, &addresses),
            |it| it.next_hops.clone(),
        );
        let next_hops = next_hop::next_hops(&self.config.next_hops, &host.routes, &links, &before);
        let has_family =
            |hop: &IpAddr| addresses.iter().any(|net| net.addr().is_ipv4() == hop.is_ipv4());
        let next_hops = next_hops.into_iter().filter(has_family).collect();
        Ok(self.with_lapsed(Place { bridge: bridge.to_owned(), mac, addresses, next_hops }))
    }

    /// The next hops that the server before this start has published for the same bridge and
    /// addresses.
    fn published_next_hops(&self, bridge: &str, addresses: &[IpNet]) -> Vec<IpAddr> {
        let Some(view) = &self.ties.view else { return Vec::new() };
        let NodeView::There(seen) = &*view.borrow() else { return Vec::new() };
        let published = NodeAnnotations(&seen.annotations).gateway().place;
        let interface = plan::interface_id(bridge, &self.ties.node);
        let same = published.filter(|it| it.interface == interface && it.addresses == addresses);
        same.map(|it| it.next_hops).unwrap_or_default()
    }

    /// The place, with what the bridge's link has lost of a family for less than [`GRACE`].
    fn with_lapsed(&mut self, seen: Place) -> Place {
        let before = self.finished.as_ref().filter(|before| before.bridge == seen.bridge);
        let kept = before.map(|before| seen.clone().with_lost_families_of(before));
        let Some(kept) = kept.filter(|kept| *kept != seen) else {
            self.lapsed = None;
            return seen;
        };
        let since = *self.lapsed.get_or_insert_with(Instant::now);
        if since.elapsed() < GRACE { kept } else { seen }
    }

    /// The addresses at which other nodes know this one: that of tunnels first.
    pub(super) fn known_addresses(&mut self) -> Vec<IpAddr> {
        let mut known: Vec<IpAddr> =
            self.ties.identity.borrow_and_update().encap_ip.into_iter().collect();
        if let Some(view) = &self.ties.view
            && let NodeView::There(seen) = &*view.borrow()
        {
            known.extend(&seen.addresses);
        }
        known
    }

    /// The numbers of the bridge's ports.
    pub(super) fn ports(&self, name: &str, bridge: &SeenBridge) -> Result<BridgePorts, Waiting> {
        let uplink = bridge.uplink(name).ok_or_else(|| {
            Waiting::event(format!(
                "bridge {name} has no uplink: none of its ports is a NIC, or several are; \
                 ovs-vsctl br-set-external-id {name} bridge-uplink NIC names it"
            ))
        })?;
        let port = bridge.port(uplink);
        let number = port.and_then(|port| port.number).ok_or_else(|| {
            let error = port.and_then(|port| port.error.clone());
            let why = error
                .unwrap_or_else(|| "ovs-vswitchd has not opened it yet: is it running?".to_owned());
            Waiting::event(format!("uplink {uplink} of bridge {name}: {why}"))
        })?;
        if let Some(members) = port.map(|port| port.members).filter(|members| *members > 1) {
            return Err(Waiting::event(format!(
                "uplink {uplink} of bridge {name} is a bond of Open vSwitch with {members} interfaces, which the \
                 bridge's flows cannot tell apart: use a bond of the kernel, or one interface"
            )));
        }
        let patch = plan::patch_port(name, &self.ties.node);
        Ok(BridgePorts {
            uplink: number,
            patch: bridge.port(&patch).and_then(|port| port.number),
            others: bridge.others(&[uplink, &patch, name]),
            datapath: if bridge.in_user_space { Datapath::Userspace } else { Datapath::Kernel },
        })
    }
}
