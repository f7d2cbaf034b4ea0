//! The address of a DHCP lease on the gateway's bridge. A client that goes on using the NIC renews it there, or does
//! not hear the answers any more: then the NIC is given back before the lease ends.

use std::time::Duration;

use contract::error::chain;
use tokio::time::Instant;

use super::{GatewayReconciler, Waiting, bridge::Seen, host::Host};

/// Which part of the lease is left when the NIC is given back. A client renews at half of it, and asks any server at
/// seven eighths (RFC 2131, section 4.4.5): one that has not been heard then does not hear.
const REST: u32 = 8;
/// The least that is left, because the NIC has to be back before the address is gone: some times what a move takes.
const LEAST: Duration = Duration::from_secs(10);
/// How long the bridge may be without an address. A client that hears answers on the NIC has one in a few seconds
/// after a start of the host.
const WITHOUT: Duration = Duration::from_secs(30);

/// What is known of the lease.
#[derive(Debug, Default)]
pub(super) struct BridgeLease {
    /// What was left when it was renewed last.
    whole: Duration,
    left: Duration,
    /// Since when the bridge is without.
    without: Option<Instant>,
    /// When the NIC is given back, unless the lease is renewed.
    pub(super) end: Option<Instant>,
}

impl BridgeLease {
    /// Notes what is left of the lease, if the bridge has it. Returns when the NIC has to be given back.
    fn seen(&mut self, now: Instant, left: Option<Duration>) -> Instant {
        let Some(left) = left else {
            return *self.without.get_or_insert(now) + WITHOUT;
        };
        if left > self.left {
            self.whole = left;
        }
        (self.left, self.without) = (left, None);
        now + left.saturating_sub((self.whole / REST).max(LEAST))
    }
}

impl GatewayReconciler {
    /// Gives the NIC back if nobody renews the lease that was moved from it.
    pub(super) async fn keep_lease(&mut self, host: &Host, seen: &Seen, bridge: &str) -> Result<(), Waiting> {
        self.lease.end = None;
        let nic = seen.bridges[bridge].uplink(bridge);
        let Some(nic) = nic.filter(|nic| seen.leased() == Some(*nic)) else { return Ok(()) };
        let failed =
            |error: uplink::NotMoved| Waiting::failed(format!("the lease of {bridge}: {}", chain(&error)));
        let left = uplink::lease(bridge).await.map_err(failed)?;
        let has_v4 = host.addresses_on(bridge, &[]).iter().any(|net| net.addr().is_ipv4());
        // An administrator has given it an address for good.
        if left.is_none() && has_v4 {
            return Ok(());
        }
        let now = Instant::now();
        let end = self.lease.seen(now, left);
        if now < end {
            self.lease.end = Some(end);
            return Ok(());
        }
        // A DHCP server that is away is no reason to take the bridge from its client.
        if !uplink::owners(bridge).await.map_err(failed)?.is_empty() {
            return Ok(());
        }
        let state = left.map_or_else(
            || "had no IPv4 address".to_owned(),
            |left| format!("had its lease for {} s more, and nobody renewed it", left.as_secs()),
        );
        let why = format!("{nic} was the uplink of {bridge} and is not any more: {bridge} {state}");
        self.give_back(host, seen, nic, why).await?;
        self.refuse_halted(host, nic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nic_is_given_back_before_its_lease_ends_and_a_renewal_puts_that_off() {
        let (mut lease, start) = (BridgeLease::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        let left = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(lease.seen(start, left(3600)), after(3150));
        assert_eq!(lease.seen(after(1800), left(1800)), after(3150));
        assert_eq!(lease.seen(after(1810), left(3600)), after(1810 + 3150));
        assert_eq!(lease.seen(after(1820), left(3800)), after(1820 + 3800 - 475));
        // A short one: the move itself takes time.
        let mut short = BridgeLease::default();
        assert_eq!(short.seen(start, left(60)), after(50));
        assert_eq!(short.seen(after(55), left(5)), after(55));
        assert_eq!(short.seen(after(61), None), after(91), "the client may be about to get one");
        assert_eq!(short.seen(after(80), None), after(91));
    }
}
