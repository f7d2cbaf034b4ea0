//! What an administrator should know of a gateway that works.

use std::{collections::BTreeSet, net::IpAddr};

use contract::mtu::tunnel_bytes;
use ipnet::IpNet;

use super::{GatewayMode, GatewayReconciler, bridge::Seen, host::Host, next_hop, plan::Place};
use crate::{conditions::Part, node::object::NodeView};

impl GatewayReconciler {
    /// Shows all remarks in `/readyz?verbose`, and logs those that are new. `failed`: what failed
    /// beside the gateway itself.
    pub(super) fn remark(
        &mut self,
        host: &Host,
        seen: &Seen,
        place: &Place,
        failed: Option<String>,
    ) {
        let all = [
            self.small_link(host, place),
            self.other_way_out(host, seen, place),
            self.other_address(place),
        ];
        let remarks: Vec<String> = all.into_iter().flatten().chain(failed).collect();
        if remarks == self.remarks {
            return;
        }
        for why in remarks.iter().filter(|remark| !self.remarks.contains(remark)) {
            tracing::warn!(why, "the node's gateway");
        }
        if self.remarks.iter().any(|remark| !remarks.contains(remark)) {
            tracing::info!(left = remarks.len(), "the node's gateway: a remark is over");
        }
        if remarks.is_empty() {
            self.ties.conditions.unremark(Part::GATEWAY);
        } else {
            self.ties.conditions.remark(Part::GATEWAY, remarks.join("; "));
        }
        self.remarks = remarks;
    }

    /// Whether pods' largest packets do not pass between nodes, over the bridge's link.
    fn small_link(&self, host: &Host, place: &Place) -> Option<String> {
        let tunnel = self.ties.identity.borrow().encap_ip;
        let of_tunnel =
            place.addresses.iter().map(IpNet::addr).find(|address| Some(*address) == tunnel)?;
        let needed = self.ties.mtu.bytes() + tunnel_bytes(of_tunnel);
        let mtu = host.mtu(&place.bridge).filter(|mtu| *mtu < needed)?;
        Some(format!(
            "MTU {mtu} of {} is too small for pods' packets of {} bytes (--mtu) in tunnels, which need \
             {needed}: those are lost between nodes",
            place.bridge,
            self.ties.mtu.bytes()
        ))
    }

    /// Whether a default route leads elsewhere: the gateway does not follow it.
    fn other_way_out(&self, host: &Host, seen: &Seen, place: &Place) -> Option<String> {
        if self.config.interface.is_some() {
            return None;
        }
        let nic = seen.bridges.get(&place.bridge).and_then(|bridge| bridge.uplink(&place.bridge));
        let own: BTreeSet<&str> = nic.into_iter().chain([place.bridge.as_str()]).collect();
        let elsewhere: Vec<&str> = next_hop::elsewhere(&host.routes, &own).into_iter().collect();
        (!elsewhere.is_empty()).then(|| {
            format!(
                "the default route is over {}, the gateway stays with {}: --gateway-interface names another one",
                elsewhere.join(" and "),
                place.bridge
            )
        })
    }

    /// Whether the node is known to others by addresses of other interfaces alone.
    fn other_address(&self, place: &Place) -> Option<String> {
        let view =
            self.ties.view.as_ref().filter(|_| self.config.mode == GatewayMode::Shared)?.borrow();
        let NodeView::There(node) = &*view else { return None };
        let is_on_bridge =
            |address: &IpAddr| place.addresses.iter().any(|net| net.addr() == *address);
        let is_elsewhere = !node.addresses.is_empty() && !node.addresses.iter().any(is_on_bridge);
        let addresses: Vec<String> = node.addresses.iter().map(ToString::to_string).collect();
        is_elsewhere.then(|| {
            format!(
                "none of the node's InternalIPs ({}) is on {}: pods' packets to other nodes and to the API server \
                 leave by the gateway's next hop, which has to know their network; --gateway-mode local uses \
                 the host's routes",
                addresses.join(", "),
                place.bridge
            )
        })
    }
}
