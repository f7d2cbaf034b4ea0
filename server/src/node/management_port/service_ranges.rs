//! The ranges of Services' addresses that this host reaches over the management port.
//!
//! A range gets a route once OVN answers in it: the switch of this node has a flow for the address
//! of a Service there. A route to a range that nothing serves would only take packets away from
//! what else may serve it. So would a second route beside that of another program, such as a
//! gateway of upstream's: that one stays.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
    path::PathBuf,
    time::Duration,
};

use ipnet::IpNet;
use podnet::openflow::has_flow_to;
use tokio::sync::watch;

use super::{
    kernel::{Detour, Kernel},
    link::SeenLink,
    plan::Desired,
    port::BRIDGE,
};
use crate::services::Facts;

/// How long ovs-vswitchd may take to answer. It takes milliseconds; there is another attempt.
const PATIENCE: Duration = Duration::from_secs(2);

/// The reason why a range has no route over the management port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unrouted {
    #[error("another program has a route to it, over {0}: that one is used")]
    Foreign(String),
    #[error("another program has a route to it, over {0} to the gateway router: that one is used")]
    ToGateway(String),
    #[error("no Service has an address in it yet")]
    Empty,
    #[error("OVN does not answer at {0}, an address of a Service in it")]
    Unserved(IpAddr),
    #[error("ovs-vswitchd cannot tell whether OVN answers there: {0}")]
    Unknown(String),
}

/// What is decided.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Decided {
    pub(super) routed: Vec<IpNet>,
    pub(super) unrouted: BTreeMap<IpNet, Unrouted>,
    /// The links of the routes of other programs.
    pub(super) detours: BTreeSet<u32>,
}

impl Decided {
    /// Whether another attempt without an event may have another result.
    pub(super) fn may_change(&self) -> bool {
        self.unrouted.values().any(|why| match why {
            Unrouted::Unserved(_) | Unrouted::Unknown(_) => true,
            // Events tell of routes to the range and of their links, and the API server of
            // Services.
            Unrouted::Foreign(_) | Unrouted::ToGateway(_) | Unrouted::Empty => false,
        })
    }

    /// The ranges whose packets from this host get to OVN.
    pub(super) fn reached(&self) -> Vec<IpNet> {
        let over_bridge =
            self.unrouted.iter().filter(|(_, why)| matches!(why, Unrouted::ToGateway(_)));
        self.routed.iter().chain(over_bridge.map(|(range, _)| range)).copied().collect()
    }
}

/// The ranges and how to see whether they are served.
#[derive(Debug)]
pub(crate) struct ServiceRanges {
    pub(in crate::node) facts: watch::Receiver<Facts>,
    /// The directory with the socket of the bridge. Without it, as without an API server that knows
    /// Services, each range counts as served.
    pub(super) ovs_run_dir: Option<PathBuf>,
    pub(super) clients: ClientAddresses,
}

/// What becomes of clients' addresses where the host serves Services under `externalTrafficPolicy:
/// Local`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ClientAddresses {
    #[default]
    /// Pods see them, and their answers come back through the host.
    Kept,
    /// Pods' answers to other machines leave through the gateway router, which would not know the
    /// connection: so pods see an address of the node. What arrives at the gateway's bridge does
    /// not get as far as the host.
    Given,
}

impl ServiceRanges {
    pub(crate) fn new(
        facts: watch::Receiver<Facts>,
        ovs_run_dir: Option<PathBuf>,
        clients: ClientAddresses,
    ) -> Self {
        Self { facts, ovs_run_dir, clients }
    }

    /// Decides for each range of the node's families. `is_installed`: whether the interface has its
    /// flows. `to_gateway`: the next hops of routes to the gateway router.
    pub(super) async fn decide(
        &self,
        kernel: &Kernel,
        seen: &SeenLink,
        desired: &Desired,
        is_installed: bool,
        to_gateway: [IpAddr; 2],
    ) -> io::Result<Decided> {
        let ranges = self.facts.borrow().ranges.clone();
        let mut decided = Decided::default();
        for (range, samples) in ranges {
            if !desired.addresses.iter().any(|it| it.addr().is_ipv4() == range.addr().is_ipv4()) {
                continue;
            }
            if let Some(Detour { link, name, via }) = kernel.route_elsewhere(range, seen.index)? {
                decided.detours.extend(link);
                let leads_to_gateway = via.is_some_and(|via| to_gateway.contains(&via));
                let why = if leads_to_gateway { Unrouted::ToGateway } else { Unrouted::Foreign };
                decided.unrouted.insert(range, why(name));
                continue;
            }
            // What was served stays: OVN may be starting again at this moment.
            let has_route =
                seen.routes.iter().any(|there| there.is_ours && there.route.to == range);
            let unserved = match (has_route, is_installed) {
                (true, _) => None,
                (false, true) => self.unserved(&samples).await,
                // The installation is an event.
                (false, false) => continue,
            };
            match unserved {
                None => decided.routed.push(range),
                Some(why) => drop(decided.unrouted.insert(range, why)),
            }
        }
        Ok(decided)
    }

    /// Why OVN does not answer at any of these addresses of Services; none if it does.
    async fn unserved(&self, samples: &[IpAddr]) -> Option<Unrouted> {
        let ovs_run_dir = self.ovs_run_dir.as_ref()?;
        let mut why = Unrouted::Empty;
        for address in samples {
            // The flows of load balancers match their very addresses, whether they have endpoints
            // or refuse; those of routes match networks.
            why = match has_flow_to(ovs_run_dir, BRIDGE, *address, PATIENCE).await {
                Ok(true) => return None,
                Ok(false) => Unrouted::Unserved(*address),
                Err(error) => Unrouted::Unknown(error.to_string()),
            };
        }
        Some(why)
    }
}
