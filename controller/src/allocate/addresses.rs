//! The addresses of pods: who has which, and which comes next. Knows neither nodes nor annotations.

use std::{
    collections::{HashMap, hash_map::Entry},
    net::IpAddr,
};

use contract::{names::PodKey, ovn};
use ipnet::IpNet;

/// The first address of a subnet that a pod gets: behind network, router and node.
const FIRST: u32 = 3;
/// Of a larger subnet only so many addresses are given; claims may be anywhere in it.
const MOST: u32 = 1 << 16;

/// Addresses in use. An address has at most one owner, which is what this type is for.
#[derive(Debug, Default)]
pub struct Addresses {
    owners: HashMap<IpAddr, PodKey>,
    /// Of each subnet the place behind the one that was given last.
    next: HashMap<IpNet, u32>,
}

/// An address belongs to another pod.
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
    /// Takes these addresses for `pod`: all of them, or none if another pod has one. What the pod has already is no obstacle.
    pub fn claim(&mut self, pod: &PodKey, addresses: &[IpNet]) -> Result<(), Taken> {
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

    /// Takes for `pod` the free address of each subnet that was not in use for the longest time: all of them, or none. None of those that
    /// are `used` otherwise.
    ///
    /// Takes as long as there are addresses in use in a row, and no time to speak of where most are free.
    pub fn give(&mut self, pod: &PodKey, subnets: &[IpNet], used: impl Fn(IpAddr) -> bool) -> Result<Vec<IpNet>, Exhausted> {
        let mut given = Vec::with_capacity(subnets.len());
        for subnet in subnets {
            match self.give_one(pod, subnet, &used) {
                Some(address) => given.push(address),
                None => {
                    given.iter().for_each(|net: &IpNet| self.release(pod, net.addr()));
                    return Err(Exhausted { subnet: *subnet });
                }
            }
        }
        Ok(given)
    }

    fn give_one(&mut self, pod: &PodKey, subnet: &IpNet, used: impl Fn(IpAddr) -> bool) -> Option<IpNet> {
        let room = room(subnet);
        let next = self.next.entry(*subnet).or_insert(0);
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

    /// Keeps the address for `pod` if nobody has it.
    pub fn hold(&mut self, pod: &PodKey, address: IpAddr) -> bool {
        match self.owners.entry(address) {
            Entry::Vacant(vacant) => {
                vacant.insert(pod.clone());
                true
            }
            Entry::Occupied(occupied) => occupied.get() == pod,
        }
    }

    /// The address is free, if it was this pod's.
    pub fn release(&mut self, pod: &PodKey, address: IpAddr) {
        if let Entry::Occupied(occupied) = self.owners.entry(address)
            && occupied.get() == pod
        {
            occupied.remove();
        }
    }

    /// Goes on behind this address of the subnet: after a start nobody knows which one was given last, and the highest is the best guess.
    pub fn go_on_behind(&mut self, subnet: &IpNet, address: IpAddr) {
        let offset = number(address).checked_sub(number(subnet.network())).and_then(|offset| u32::try_from(offset).ok());
        let place = offset.filter(|_| subnet.contains(&address)).and_then(|offset| offset.checked_sub(FIRST));
        if let Some(place) = place.filter(|place| *place < room(subnet)) {
            let next = self.next.entry(*subnet).or_insert(0);
            *next = (*next).max(place + 1);
        }
    }

    /// The subnet is no node's any more.
    pub fn forget(&mut self, subnet: &IpNet) {
        self.next.remove(subnet);
    }

    pub fn owner(&self, address: IpAddr) -> Option<&PodKey> {
        self.owners.get(&address)
    }
}

/// How many addresses of a subnet are for pods.
fn room(subnet: &IpNet) -> u32 {
    let host_bits = subnet.max_prefix_len() - subnet.prefix_len();
    let all = 1_u32.checked_shl(host_bits.into()).filter(|_| host_bits < 17).unwrap_or(MOST).min(MOST);
    // The last one of IPv4 is broadcast.
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
