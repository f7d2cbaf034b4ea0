//! Subnets of nodes: who has which, and which one is free. Knows neither annotations nor numbers.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use ipnet::IpNet;

use super::addresses::number;
use crate::{config::ClusterSubnet, key::NodeName, trouble::Family};

/// Subnets in use: no two overlap.
#[derive(Debug)]
pub struct Subnets {
    pools: Vec<Pool>,
    /// By the first address.
    used: BTreeMap<IpAddr, (IpNet, NodeName)>,
}

/// A range that nodes get their subnets from.
#[derive(Debug)]
struct Pool {
    range: ClusterSubnet,
    /// The last address of the subnet that was given last, or of the highest one that was claimed. The search goes on behind it: what was
    /// freed lately comes last, for pods of a node that is gone live on for minutes.
    latest: Option<u128>,
}

/// A subnet that overlaps a claimed one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlap {
    pub subnet: IpNet,
    pub other: IpNet,
    pub by: NodeName,
}

impl Subnets {
    /// `ranges` in the order in which they are used up.
    pub fn new(ranges: &[ClusterSubnet]) -> Self {
        let pool = |range: &ClusterSubnet| Pool { range: *range, latest: None };
        Self { pools: ranges.iter().map(pool).collect(), used: BTreeMap::new() }
    }

    /// Takes this subnet for `node`; it may be outside of all ranges. What the node has already is no obstacle.
    pub fn claim(&mut self, node: &NodeName, subnet: IpNet) -> Result<(), Overlap> {
        let overlap = self.overlapping(&subnet).find(|(_, owner)| owner != node).cloned();
        if let Some((other, by)) = overlap {
            return Err(Overlap { subnet, other, by });
        }
        self.used.insert(subnet.network(), (subnet, Arc::clone(node)));
        for pool in self.pools.iter_mut().filter(|pool| pool.range.cidr.contains(&subnet)) {
            pool.latest = pool.latest.max(Some(number(subnet.broadcast())));
        }
        Ok(())
    }

    /// Takes for `node` the next free subnet of the first range of that family that has one.
    pub fn give(&mut self, node: &NodeName, family: Family) -> Option<IpNet> {
        let of_family = |pool: &&Pool| Family::of(&pool.range.cidr.network()) == family;
        let (index, subnet) =
            self.pools.iter().enumerate().filter(|(_, pool)| of_family(pool)).find_map(|(index, pool)| Some((index, self.next(pool)?)))?;
        self.used.insert(subnet.network(), (subnet, Arc::clone(node)));
        self.pools[index].latest = Some(number(subnet.broadcast()));
        Some(subnet)
    }

    /// The next part of the range that overlaps nothing; behind the last one the first is next.
    fn next(&self, pool: &Pool) -> Option<IpNet> {
        let start = number(pool.range.cidr.network());
        let behind = pool.latest.map_or(Some(start), |latest| latest.checked_add(1));
        behind.and_then(|from| self.lowest(pool, from)).or_else(|| self.lowest(pool, start))
    }

    /// The lowest part of the range that overlaps nothing, from there on.
    fn lowest(&self, pool: &Pool, from: u128) -> Option<IpNet> {
        let ClusterSubnet { cidr, host_length } = pool.range;
        let size = 1_u128.checked_shl((cidr.max_prefix_len() - host_length).into())?;
        let start = number(cidr.network());
        let offset = from.saturating_sub(start).checked_next_multiple_of(size)?;
        let (mut first, end) = (start.checked_add(offset)?, number(cidr.broadcast()));
        while first <= end {
            let subnet = IpNet::new(address(first, &cidr)?, host_length).ok()?;
            let Some((other, _)) = self.overlapping(&subnet).last() else { return Some(subnet) };
            // On, to the first part behind what is in the way.
            let behind = number(other.broadcast()).max(number(subnet.broadcast())).checked_add(1)?;
            first = behind.checked_next_multiple_of(size)?;
        }
        None
    }

    /// The subnets in use that overlap this one: one that begins before it, and those that begin inside. Those in use do not overlap.
    fn overlapping(&self, subnet: &IpNet) -> impl Iterator<Item = &(IpNet, NodeName)> {
        let (first, last) = (subnet.network(), subnet.broadcast());
        let around = self.used.range(..first).next_back().filter(|(_, (used, _))| used.contains(&first));
        around.into_iter().chain(self.used.range(first..=last)).map(|(_, used)| used)
    }

    /// The subnet is free, if it was this node's.
    pub fn release(&mut self, node: &NodeName, subnet: &IpNet) {
        if self.used.get(&subnet.network()).is_some_and(|(used, owner)| used == subnet && owner == node) {
            self.used.remove(&subnet.network());
        }
    }

    /// The families that nodes have, in the order of the ranges.
    pub fn families(&self) -> Vec<Family> {
        let mut families = Vec::new();
        for family in self.pools.iter().map(|pool| Family::of(&pool.range.cidr.network())) {
            if !families.contains(&family) {
                families.push(family);
            }
        }
        families
    }
}

fn address(number: u128, like: &IpNet) -> Option<IpAddr> {
    match like {
        IpNet::V4(_) => Some(IpAddr::from(u32::try_from(number).ok()?.to_be_bytes())),
        IpNet::V6(_) => Some(IpAddr::from(number.to_be_bytes())),
    }
}

#[cfg(test)]
mod tests;
