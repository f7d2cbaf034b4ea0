//! The local address of this node's tunnels, if none is configured: chooses it, and follows it.
//!
//! A node boots before its network is there, and its address may change while it runs. So the
//! address is chosen again after every change of the host's addresses, of its default routes, and
//! of the node's object.

use std::{io, net::IpAddr, time::Duration};

use tokio::{sync::watch, time::sleep};

use super::default_route;
use crate::{
    conditions::{Conditions, Part},
    node::{changed, host_addresses, object::NodeView},
};

/// A host's network changes in several steps (the old address goes, the new one comes, then the
/// route). Events within this time count as one change: much shorter, and tunnels move to an
/// address in between; much longer, and they are down for that long.
const SETTLE: Duration = Duration::from_millis(300);
/// The address is chosen again after this long without an event, in case one was lost.
const RESYNC: Duration = Duration::from_secs(300);

/// The addresses of the node's object.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Internal<'a> {
    /// There is no API server, and so no object.
    Never,
    /// The object is not known yet.
    NotYet,
    /// `InternalIP`, in the kubelet's order.
    Known(&'a [IpAddr]),
}

/// The task that follows the address.
pub(crate) struct TunnelAddress {
    /// The node's object. `None` if pods come from manifests.
    pub(crate) view: Option<watch::Receiver<NodeView>>,
    /// Changes with each event of the host's addresses and default routes.
    pub(crate) host: watch::Receiver<u64>,
    pub(crate) conditions: Conditions,
    pub(crate) address: watch::Sender<Option<IpAddr>>,
}

impl TunnelAddress {
    /// Follows the address for as long as the server lives.
    pub(crate) async fn follow(mut self) {
        loop {
            // Before the kernel is asked: a change during the reading is an event.
            self.host.mark_unchanged();
            let view = self.view.as_mut().map(|view| view.borrow_and_update().clone());
            let internal = match &view {
                None => Internal::Never,
                Some(NodeView::Unknown(_) | NodeView::Absent) => Internal::NotYet,
                Some(NodeView::There(seen)) => Internal::Known(&seen.addresses),
            };
            let before = *self.address.borrow();
            match look(internal, before).await {
                Ok(found) => self.tell(before, found),
                Err(error) => {
                    tracing::warn!(%error, "this node's address for tunnels cannot be determined")
                }
            }
            tokio::select! {
                // Only the host's network changes in several steps: the object changes in one.
                () = changed(&mut self.host) => sleep(SETTLE).await,
                () = object_changed(self.view.as_mut()) => {}
                () = sleep(RESYNC) => {}
            }
        }
    }

    /// Publishes `found`. Without one, the address of before stays, although the host has lost it:
    /// there is no better one to write.
    fn tell(&self, before: Option<IpAddr>, found: Option<IpAddr>) {
        match (before, found) {
            (_, Some(address)) if before == Some(address) => {}
            (Some(before), Some(address)) => {
                tracing::warn!(%before, %address, "this node's address for tunnels has changed");
                self.address.send_replace(Some(address));
            }
            (None, Some(address)) => {
                tracing::info!(%address, "this node's address for tunnels");
                self.address.send_replace(Some(address));
            }
            (_, None) => {}
        }
        report(&self.conditions, found.or(before));
    }
}

/// Sets the condition: met if there is an address.
pub(crate) fn report(conditions: &Conditions, address: Option<IpAddr>) {
    match address {
        Some(_) => conditions.met(Part::TUNNEL_ADDRESS),
        None => conditions.missing(
            Part::TUNNEL_ADDRESS,
            "no interface of this node has a default route with an address yet; --encap-ip sets the address \
             at which other nodes reach this one",
        ),
    }
}

async fn object_changed(view: Option<&mut watch::Receiver<NodeView>>) {
    match view {
        Some(view) => changed(view).await,
        None => std::future::pending().await,
    }
}

/// Chooses the address by the present state of the host. `before` is the one that this program
/// chose before, if any.
pub(crate) async fn look(
    internal: Internal<'_>,
    before: Option<IpAddr>,
) -> io::Result<Option<IpAddr>> {
    let here = host_addresses::read_all().await?;
    let here: Vec<IpAddr> = here.iter().map(|host| host.address.addr()).collect();
    Ok(choose(internal, &here, before, default_route::address().await?))
}

/// The node's `InternalIP` comes first: a kubelet with `--node-ip` names the network of the nodes.
/// Until it is known, the address of before stays if the host still has it, so that a restart moves
/// no tunnel to and fro.
fn choose(
    internal: Internal<'_>,
    here: &[IpAddr],
    before: Option<IpAddr>,
    default_route: Option<IpAddr>,
) -> Option<IpAddr> {
    let is_here = |address: &IpAddr| here.contains(address);
    match internal {
        Internal::Never => default_route,
        Internal::NotYet | Internal::Known([]) => before.filter(is_here).or(default_route),
        // An `InternalIP` may be one that the host does not have: behind a cloud's NAT, or out of
        // date.
        Internal::Known(addresses) => addresses.iter().copied().find(is_here).or(default_route),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_nodes_internal_address_is_preferred_and_one_that_the_host_lacks_is_not_used() {
        let (route, internal) = (ip("192.0.2.10"), ip("10.1.1.1"));
        let here = [route, internal];
        assert_eq!(
            choose(Internal::Known(&[internal]), &here, Some(route), Some(route)),
            Some(internal)
        );
        // Behind the NAT of a cloud, or not up to date.
        assert_eq!(
            choose(Internal::Known(&[ip("203.0.113.7")]), &here, Some(internal), Some(route)),
            Some(route)
        );
        assert_eq!(choose(Internal::Known(&[]), &here, None, Some(route)), Some(route));
    }

    #[test]
    fn what_was_chosen_before_stays_until_the_object_is_known_unless_the_host_has_lost_it() {
        let (route, before) = (ip("192.0.2.10"), ip("10.1.1.1"));
        assert_eq!(
            choose(Internal::NotYet, &[route, before], Some(before), Some(route)),
            Some(before)
        );
        assert_eq!(choose(Internal::NotYet, &[route], Some(before), Some(route)), Some(route));
        assert_eq!(
            choose(Internal::Never, &[route, before], Some(before), Some(route)),
            Some(route)
        );
        assert_eq!(choose(Internal::NotYet, &[], None, None), None);
    }
}
