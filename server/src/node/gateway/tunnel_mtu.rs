//! Whether pods' largest packets pass between nodes, over the bridge's link.

use ipnet::IpNet;

use super::{
    GatewayReconciler,
    host::Host,
    plan::{self, Place},
};
use crate::conditions::Part;

impl GatewayReconciler {
    /// Remarks it if pods' largest packets do not pass between nodes.
    pub(super) fn remark_mtu(&mut self, host: &Host, place: &Place) {
        let tunnel = self.ties.identity.borrow().encap_ip;
        let of_tunnel = place.addresses.iter().map(IpNet::addr).find(|address| Some(*address) == tunnel);
        let needed = of_tunnel.map(|address| self.ties.mtu.bytes() + plan::tunnel_bytes(address));
        let too_small = host.mtu(&place.bridge).zip(needed).filter(|(mtu, needed)| mtu < needed);
        let remark = too_small.map(|(mtu, needed)| {
            format!(
                "MTU {mtu} of {} is too small for pods' packets of {} bytes (--mtu) in tunnels, which need \
                 {needed}: those are lost between nodes",
                place.bridge,
                self.ties.mtu.bytes()
            )
        });
        if remark == self.remark {
            return;
        }
        match &remark {
            Some(why) => {
                tracing::warn!(why, "the node's link is too small");
                self.ties.conditions.remark(Part::GATEWAY, why.clone());
            }
            None => {
                tracing::info!(bridge = place.bridge, "the node's link is large enough");
                self.ties.conditions.unremark(Part::GATEWAY);
            }
        }
        self.remark = remark;
    }
}
