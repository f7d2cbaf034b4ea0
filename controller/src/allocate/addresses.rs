//! The addresses of pods: the owner of each, and the next free one. Knows neither nodes nor
//! annotations.

use std::{
    collections::{HashMap, hash_map::Entry},
    net::IpAddr,
};

use contract::{names::PodKey, ovn};
use ipnet::IpNet;

/// Offset of a subnet's first address for pods. The network, the router and the node have 0, 1 and
/// 2 (`ovn::reserved`).
const FIRST: u32 = 3;
/// Only this many addresses of a larger subnet are assigned, such as of an IPv6 /64; claims may be
/// anywhere in it. It bounds the search for a free address. A node runs some hundreds of pods: a
/// tenth would still do, but an address would be reused ten times as soon; ten times as many only
/// make the search of a full subnet longer.
const MOST: u32 = 1 << 16;

/// Addresses in use. This type guarantees that an address has at most one owner.
#[derive(Debug, Default)]
pub struct Addresses {
    owners: HashMap<IpAddr, PodKey>,
    /// For each subnet, where the next search begins: behind the address assigned last. Counted
    /// from `FIRST`.
    next: HashMap<IpNet, u32>,
}

/// An address belongs to the pod `by`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    pub address: IpAddr,
    pub by: PodKey,
}

/// No address of the subnet is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted {
    pub subnet: IpNet,
}

impl Addresses {
    /// Takes these addresses for `pod`: all of them, or none. The pod may have some of them
    /// already.
    ///
    /// # Errors
    /// Another pod has one of the addresses.
    pub fn claim(&mut self, pod: &PodKey, addresses: &[IpNet]) -> Result<(), Taken> {
        // All are checked before any is taken.
        let taken = addresses.iter().map(IpNet::addr).find_map(|address| {
            let by = self.owners.get(&address).filter(|owner| *owner != pod)?;
            Some(Taken { address, by: by.clone() })
        });
        if let Some(taken) = taken {
            return Err(taken);
        }
        self.owners.extend(addresses.iter().map(|net| (net.addr(), pod.clone())));
        Ok(())
    }

    /// Takes one free address of each subnet for `pod`: all of them, or none. Addresses that are
    /// `used` otherwise are skipped. The search is round-robin, so that a freed address is reused
    /// as late as possible.
    ///
    /// The time is linear in the number of used addresses in a row, and negligible where most are
    /// free.
    ///
    /// # Errors
    /// A subnet has no free address.
    pub fn give(
        &mut self,
        pod: &PodKey,
        subnets: &[IpNet],
        used: impl Fn(IpAddr) -> bool,
    ) -> Result<Vec<IpNet>, Exhausted> {
        let mut given = Vec::with_capacity(subnets.len());
        for subnet in subnets {
            match self.give_one(pod, subnet, &used) {
                Some(address) => given.push(address),
                None => {
                    // All or none: a pod with one family only would never get the other.
                    given.iter().for_each(|net: &IpNet| self.release(pod, net.addr()));
                    return Err(Exhausted { subnet: *subnet });
                }
            }
        }
        Ok(given)
    }

    fn give_one(
        &mut self,
        pod: &PodKey,
        subnet: &IpNet,
        used: impl Fn(IpAddr) -> bool,
    ) -> Option<IpNet> {
        let room = room(subnet);
        let next = self.next.entry(*subnet).or_insert(0);
        // Each address once, beginning behind the one assigned last.
        for step in 0..room {
            let place = (*next + step) % room;
            let net = ovn::nth(subnet, (FIRST + place).into())?;
            if let Entry::Vacant(vacant) = self.owners.entry(net.addr())
                && !used(net.addr())
            {
                vacant.insert(pod.clone());
                *next = (place + 1) % room;
                return Some(net);
            }
        }
        None
    }

    /// Takes the address for `pod` if it is free. Returns whether the pod has it now.
    pub fn hold(&mut self, pod: &PodKey, address: IpAddr) -> bool {
        match self.owners.entry(address) {
            Entry::Vacant(vacant) => {
                vacant.insert(pod.clone());
                true
            }
            Entry::Occupied(occupied) => occupied.get() == pod,
        }
    }

    /// Frees the address if it is this pod's.
    pub fn release(&mut self, pod: &PodKey, address: IpAddr) {
        if let Entry::Occupied(occupied) = self.owners.entry(address)
            && occupied.get() == pod
        {
            occupied.remove();
        }
    }

    /// Continues the search behind this address of the subnet. The address assigned last is not
    /// known after a start; the highest one in use is the best guess.
    pub fn go_on_behind(&mut self, subnet: &IpNet, address: IpAddr) {
        let offset = number(address)
            .checked_sub(number(subnet.network()))
            .and_then(|offset| u32::try_from(offset).ok());
        let place = offset
            .filter(|_| subnet.contains(&address))
            .and_then(|offset| offset.checked_sub(FIRST));
        if let Some(place) = place.filter(|place| *place < room(subnet)) {
            let next = self.next.entry(*subnet).or_insert(0);
            *next = (*next).max(place + 1);
        }
    }

    /// Forgets where to continue in a subnet that no node has any more.
    pub fn forget(&mut self, subnet: &IpNet) {
        self.next.remove(subnet);
    }

    /// The pod that has the address.
    pub fn owner(&self, address: IpAddr) -> Option<&PodKey> {
        self.owners.get(&address)
    }
}

/// How many addresses of a subnet are for pods.
fn room(subnet: &IpNet) -> u32 {
    let host_bits = subnet.max_prefix_len() - subnet.prefix_len();
    let all =
        1_u32.checked_shl(host_bits.into()).filter(|_| host_bits < 17).unwrap_or(MOST).min(MOST);
    // IPv4's last address is the broadcast address. In a range that is cut at `MOST` it is out of
    // reach.
    let behind = u32::from(matches!(subnet, IpNet::V4(_)) && host_bits <= 16);
    all.saturating_sub(FIRST + behind)
}

/// An address as a number, for arithmetic within its family.
pub(super) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u32::from(v4).into(),
        IpAddr::V6(v6) => v6.into(),
    }
}

#[cfg(test)]
mod tests;
