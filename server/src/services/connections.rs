//! Removes stale connections: those that Open vSwitch tracks itself, where its datapath is in user space, and the
//! kernel's. A failure changes nothing for new connections, so it is logged and the rest goes on.

use std::{net::IpAddr, time::Duration};

use ovslog::LogRateLimit;
use podnet::{
    conntrack::{self, Stale},
    control_socket::ControlSocket,
};

/// How long ovs-vswitchd may take for one. It answers in milliseconds, unless it is busy with ten thousands of
/// connections; there will be another attempt.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Connections {
    pub(super) switch: ControlSocket,
    pub(super) failing: LogRateLimit,
}

impl Connections {
    pub(super) async fn remove(&mut self, stale: &[Stale]) {
        // What OVN does not translate is not for a Service there.
        let is_of_ovn = |stale: &&Stale| stale.address.is_some() || stale.endpoint.is_some();
        for one in stale.iter().filter(is_of_ovn) {
            let [original, reply] = tuples(one);
            let arguments: Vec<&str> =
                [&original, &reply].into_iter().flatten().map(String::as_str).collect();
            if let Err(error) = self.switch.ask("dpctl/flush-conntrack", &arguments, PATIENCE).await {
                self.failing.now(|times| {
                    tracing::warn!(%error, times, "ovs-vswitchd does not remove connections to endpoints that are gone")
                });
                break;
            }
        }
        if !conntrack::has_connections() {
            return;
        }
        match conntrack::flush_stale(stale).await {
            Ok(0) => {}
            Ok(removed) => tracing::debug!(removed, "removed tracked connections to endpoints that are gone"),
            Err(error) => self.failing.now(|times| {
                tracing::warn!(%error, times, "the kernel does not remove connections to endpoints that are gone")
            }),
        }
    }
}

/// The tuples of ovs-vswitchd(8), `dpctl/flush-conntrack`: of the first packet, and of the reply to it.
fn tuples(stale: &Stale) -> [Option<String>; 2] {
    let address = |direction: &str, address: IpAddr| match address {
        IpAddr::V4(v4) => format!("ct_nw_{direction}={v4},"),
        IpAddr::V6(v6) => format!("ct_ipv6_{direction}={v6},"),
    };
    let to = stale.address.map(|to| address("dst", to)).unwrap_or_default();
    let original = format!("{to}ct_nw_proto=17,ct_tp_dst={}", stale.port);
    let reply = stale.endpoint.map(|endpoint| {
        format!("{}ct_nw_proto=17,ct_tp_src={}", address("src", endpoint.ip()), endpoint.port())
    });
    [Some(original), reply]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tuples_are_those_of_ovs_vswitchd() {
        let texts = |stale: Stale| tuples(&stale).into_iter().flatten().collect::<Vec<_>>();
        let service = Stale { address: Some([10, 96, 0, 10].into()), port: 53, endpoint: None };
        assert_eq!(texts(service), ["ct_nw_dst=10.96.0.10,ct_nw_proto=17,ct_tp_dst=53"]);
        let node_port =
            Stale { address: None, port: 30053, endpoint: Some("[fd00::5]:5353".parse().unwrap()) };
        assert_eq!(
            texts(node_port),
            ["ct_nw_proto=17,ct_tp_dst=30053", "ct_ipv6_src=fd00::5,ct_nw_proto=17,ct_tp_src=5353"]
        );
    }
}
