//! With which source this host forwards connections to pods. Its own address (`.2`) would pass every network
//! policy, because policies must not block a kubelet's probes.
//!
//! The source is an address of the join subnet (`contract::ovn::forwarded_source`). OVN has a route back for it once
//! the control plane has seen this node's annotation. A control plane of upstream's makes none: then the
//! management port's address remains.

use std::{io, net::IpAddr, path::PathBuf, time::Duration};

use contract::ovn::forwarded_sources;
use podnet::openflow::has_flow_to;

use super::{
    kernel::Kernel,
    plan::{AssignedSubnets, Desired},
    port::BRIDGE,
    rules,
};
use crate::kernel_thread;

/// How long ovs-vswitchd may take to answer. It takes milliseconds; there is another attempt.
const PATIENCE: Duration = Duration::from_secs(2);

/// What this server asks of the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::node) enum Wish {
    /// Routes back for sources of the join subnet.
    Routes,
    /// Nothing: the node was upstream's a moment ago, and may be handed back. A route would be a new row. The next
    /// start asks for it.
    Nothing,
}

impl Wish {
    /// As of the host, before this server changes anything: upstream's server leaves a port with addresses, and
    /// none of the rules that only this one has.
    pub(in crate::node) async fn at_start() -> Self {
        let taken_over = async {
            let port = kernel_thread::ask(async { Kernel::open()?.look() }).await??;
            let has_addresses = port.is_some_and(|port| !port.addresses.is_empty());
            Ok::<_, io::Error>(has_addresses && !rules::has_own().await?)
        };
        if taken_over.await.unwrap_or_default() { Self::Nothing } else { Self::Routes }
    }
}

/// The sources of the node, as far as OVN has routes back.
#[derive(Debug, Default)]
pub(super) struct ForwardedSources {
    /// The directory with the socket of the bridge; none without an API server.
    ovs_run_dir: Option<PathBuf>,
    /// Those to which OVN had a route. It keeps them: OVN may be starting again at any moment.
    routed: Vec<IpAddr>,
}

/// A family that has to do with the management port's address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unrouted {
    #[error(
        "node ports reach pods from the management port's address, which network policies let in: OVN has no \
         route to {0} yet, which the control plane makes"
    )]
    NoRoute(IpAddr),
    #[error(
        "node ports reach pods from the management port's address, which network policies let in: the node \
         has no address in the join subnet, or that subnet is too small"
    )]
    NoAddress,
    #[error("ovs-vswitchd cannot tell whether OVN has a route to {0}: {1}")]
    Unknown(IpAddr, String),
}

impl ForwardedSources {
    pub(super) fn new(ovs_run_dir: Option<PathBuf>) -> Self {
        Self { ovs_run_dir, routed: Vec::new() }
    }

    /// Sets the sources in `desired`. Returns why there is none, for each family without.
    pub(super) async fn decide(
        &mut self,
        assigned: &AssignedSubnets,
        desired: &mut Desired,
    ) -> Vec<Unrouted> {
        let Some(ovs_run_dir) = &self.ovs_run_dir else {
            desired.forwarded_sources = Some(Vec::new());
            return Vec::new();
        };
        let candidates = forwarded_sources(&assigned.join);
        self.routed.retain(|address| candidates.contains(address));
        let mut unrouted = Vec::new();
        for own in desired.addresses.iter().map(|net| net.addr()) {
            let Some(address) = candidates.iter().copied().find(|it| it.is_ipv4() == own.is_ipv4()) else {
                unrouted.push(Unrouted::NoAddress);
                continue;
            };
            if self.routed.contains(&address) {
                continue;
            }
            match has_flow_to(ovs_run_dir, BRIDGE, address, PATIENCE).await {
                Ok(true) => self.routed.push(address),
                Ok(false) => unrouted.push(Unrouted::NoRoute(address)),
                Err(error) => unrouted.push(Unrouted::Unknown(address, error.to_string())),
            }
        }
        // What an earlier start of the server wrote stays until the switch can tell.
        let is_known = !unrouted.iter().any(|why| matches!(why, Unrouted::Unknown(..)));
        desired.forwarded_sources = is_known.then(|| self.routed.clone());
        unrouted
    }
}
