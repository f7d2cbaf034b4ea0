//! The addresses of DHCP leases on the gateway's bridge, one of each family. A client that goes on
//! using the NIC renews it there, or does not hear the answers any more: then the NIC is given back
//! before the lease ends.

use std::time::Duration;

use contract::error::chain;
use tokio::time::Instant;
use uplink::Leases;

use super::{GatewayReconciler, Waiting, bridge::Seen, host::Host};

/// Which part of the lease is left when the NIC is given back. A client renews at half of it, and
/// asks any server at seven eighths (RFC 2131, section 4.4.5): one that has not been heard then
/// does not hear.
const REST: u32 = 8;
/// The least that is left, because the NIC has to be back before the address is gone: some times
/// what a move takes.
const LEAST: Duration = Duration::from_secs(10);
/// How long the bridge may be without an address of the family. A client that hears answers on the
/// NIC has one in a few seconds after a start of the host.
const WITHOUT: Duration = Duration::from_secs(30);

/// What is known of the leases.
#[derive(Debug, Default)]
pub(super) struct BridgeLeases {
    v4: BridgeLease,
    v6: BridgeLease,
    /// When the NIC is given back, unless what runs out first is renewed.
    pub(super) end: Option<Instant>,
}

/// What is known of the lease of a family.
#[derive(Debug, Default)]
struct BridgeLease {
    /// What was left when it was renewed last.
    whole: Duration,
    left: Duration,
    /// Since when the bridge is without.
    without: Option<Instant>,
}

/// A family's address on the bridge that is no lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Other {
    Present,
    Absent,
}

impl BridgeLeases {
    /// Notes what is left of the leases that the bridge has, and whether it has an address of a
    /// family besides. Returns when the NIC has to be given back, and what is left of that lease
    /// then; none if there is no lease to be renewed.
    fn seen(
        &mut self,
        now: Instant,
        Leases { v4, v6 }: Leases,
        others: [Other; 2],
    ) -> Option<(Instant, Ending)> {
        // Which family had a lease before a start of this process, nobody knows. Without a lease of
        // IPv6 it was that of IPv4, and an address without a lifetime is an administrator's.
        let is_v4 = v4.is_some()
            || others[0] == Other::Absent
                && (self.v4.was_seen() || !self.v6.was_seen() && v6.is_none());
        let is_v6 = v6.is_some() || others[1] == Other::Absent && self.v6.was_seen();
        let v4 = is_v4.then(|| (self.v4.seen(now, v4), Ending { family: "IPv4", left: v4 }));
        let v6 = is_v6.then(|| (self.v6.seen(now, v6), Ending { family: "IPv6", left: v6 }));
        v4.into_iter().chain(v6).min_by_key(|(end, _)| *end)
    }
}

/// The lease that runs out first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ending {
    family: &'static str,
    left: Option<Duration>,
}

impl BridgeLease {
    fn was_seen(&self) -> bool {
        !self.whole.is_zero()
    }

    /// Notes what is left of the lease, if the bridge has it. Returns when the NIC has to be given
    /// back.
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
    pub(super) async fn keep_lease(
        &mut self,
        host: &Host,
        seen: &Seen,
        bridge: &str,
    ) -> Result<(), Waiting> {
        self.leases.end = None;
        let nic = seen.bridges[bridge].uplink(bridge);
        let Some(nic) = nic.filter(|nic| seen.leased() == Some(*nic)) else { return Ok(()) };
        let failed = |error: uplink::NotMoved| {
            Waiting::failed(format!("the lease of {bridge}: {}", chain(&error)))
        };
        let leases = uplink::leases(bridge).await.map_err(failed)?;
        let own = host.addresses_on(bridge, &[]);
        let others = [true, false].map(|is_v4| {
            if own.iter().any(|net| net.addr().is_ipv4() == is_v4) {
                Other::Present
            } else {
                Other::Absent
            }
        });
        let now = Instant::now();
        let Some((end, Ending { family, left })) = self.leases.seen(now, leases, others) else {
            return Ok(());
        };
        if now < end {
            self.leases.end = Some(end);
            return Ok(());
        }
        // A DHCP server that is away is no reason to take the bridge from its client.
        if !uplink::owners(bridge).await.map_err(failed)?.is_empty() {
            return Ok(());
        }
        let state = left.map_or_else(
            || format!("had no {family} address"),
            |left| {
                format!(
                    "had its {family} lease for {} s more, and nobody renewed it",
                    left.as_secs()
                )
            },
        );
        let why = format!("{nic} was the uplink of {bridge} and is not any more: {bridge} {state}");
        self.give_back(host, seen, nic, why).await?;
        self.refuse_halted(host, nic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lease of IPv6 was watched by nobody, and its end was that of the node's IPv6.
    #[test]
    fn of_leases_of_both_families_the_one_that_runs_out_first_decides() {
        let (mut leases, start) = (BridgeLeases::default(), Instant::now());
        let seconds = Duration::from_secs;
        let left =
            |v4: Option<u64>, v6: Option<u64>| Leases { v4: v4.map(seconds), v6: v6.map(seconds) };
        let both = [Other::Present; 2];
        let ending = |family, left: Option<u64>| Ending { family, left: left.map(seconds) };
        let first = leases.seen(start, left(Some(3600), Some(800)), both);
        assert_eq!(first, Some((start + seconds(700), ending("IPv6", Some(800)))));
        // That of IPv4 is renewed, which is none of the other's.
        let now = start + seconds(600);
        let second = leases.seen(now, left(Some(3600), Some(200)), both);
        assert_eq!(second, Some((start + seconds(700), ending("IPv6", Some(200)))));
        // It is gone, and so is the address.
        let now = start + seconds(900);
        let gone = leases.seen(now, left(Some(3300), None), [Other::Present, Other::Absent]);
        assert_eq!(gone, Some((now + WITHOUT, ending("IPv6", None))));
        // An administrator's address in its place.
        let kept = leases.seen(now, left(Some(3300), None), both);
        assert_eq!(kept.map(|(_, ending)| ending.family), Some("IPv4"));
    }

    #[test]
    fn a_node_of_ipv6_alone_is_not_missing_an_address_of_ipv4() {
        let (mut leases, now) = (BridgeLeases::default(), Instant::now());
        let left = Leases { v4: None, v6: Some(Duration::from_secs(800)) };
        let seen = leases.seen(now, left, [Other::Absent, Other::Present]);
        assert_eq!(seen.map(|(_, ending)| ending.family), Some("IPv6"));
        assert_eq!(BridgeLeases::default().seen(now, Leases::default(), [Other::Present; 2]), None);
    }

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
