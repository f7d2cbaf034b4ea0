//! Subnets of nodes: the owner of each, and the next free one. Knows neither annotations nor ids.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use ipnet::IpNet;

use crate::{allocate::addresses::number, config::ClusterSubnet, key::NodeName, problem::Family};

/// Subnets in use. No two of them overlap.
#[derive(Debug)]
pub struct Subnets {
    pools: Vec<Pool>,
    /// By network address.
    used: BTreeMap<IpAddr, (IpNet, NodeName)>,
}

/// A range from which nodes are assigned subnets.
#[derive(Debug)]
struct Pool {
    range: ClusterSubnet,
    /// The last address of the subnet assigned last, or of the highest one claimed. The search
    /// continues behind it, so that a freed subnet is reused as late as possible: pods of a deleted
    /// node live on for minutes.
    latest: Option<u128>,
}

/// The claimed `subnet` overlaps the subnet `other` of the node `by`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlap {
    pub subnet: IpNet,
    pub other: IpNet,
    pub by: NodeName,
}

impl Subnets {
    /// `ranges`: in the order in which they are used up.
    pub fn new(ranges: &[ClusterSubnet]) -> Self {
        let pool = |range: &ClusterSubnet| Pool { range: *range, latest: None };
        Self { pools: ranges.iter().map(pool).collect(), used: BTreeMap::new() }
    }

    /// Takes this subnet for `node`. It may be outside of all ranges, and the node may have it
    /// already.
    ///
    /// # Errors
    /// The subnet overlaps one of another node.
    pub fn claim(&mut self, node: &NodeName, subnet: IpNet) -> Result<(), Overlap> {
        let overlap = self.overlapping(&subnet).find(|(_, owner)| owner != node).cloned();
        if let Some((other, by)) = overlap {
            return Err(Overlap { subnet, other, by });
        }
        self.used.insert(subnet.network(), (subnet, Arc::clone(node)));
        // After a start the subnet assigned last is not known; the highest claim is the best guess.
        for pool in self.pools.iter_mut().filter(|pool| pool.range.cidr.contains(&subnet)) {
            pool.latest = pool.latest.max(Some(number(subnet.broadcast())));
        }
        Ok(())
    }

    /// Whether the subnet is one that a node could be given.
    pub fn is_part(&self, subnet: &IpNet) -> bool {
        let is_of = |pool: &Pool| {
            pool.range.cidr.contains(subnet) && pool.range.host_length == subnet.prefix_len()
        };
        self.pools.iter().any(is_of)
    }

    /// Takes the next free subnet for `node`, from the first range of the family that has one; none
    /// if all are in use.
    pub fn give(&mut self, node: &NodeName, family: Family) -> Option<IpNet> {
        let of_family = |pool: &&Pool| Family::of(&pool.range.cidr.network()) == family;
        let (index, subnet) = self
            .pools
            .iter()
            .enumerate()
            .filter(|(_, pool)| of_family(pool))
            .find_map(|(index, pool)| Some((index, self.next(pool)?)))?;
        self.used.insert(subnet.network(), (subnet, Arc::clone(node)));
        self.pools[index].latest = Some(number(subnet.broadcast()));
        Some(subnet)
    }

    /// The next free part of the range. The search wraps around at the end of the range.
    fn next(&self, pool: &Pool) -> Option<IpNet> {
        let start = number(pool.range.cidr.network());
        let behind = pool.latest.map_or(Some(start), |latest| latest.checked_add(1));
        behind.and_then(|from| self.lowest(pool, from)).or_else(|| self.lowest(pool, start))
    }

    /// The lowest free part of the range at or behind the address `from`.
    fn lowest(&self, pool: &Pool, from: u128) -> Option<IpNet> {
        let ClusterSubnet { cidr, host_length } = pool.range;
        // All arithmetic is checked, because a range may end at the last address of its family.
        let size = 1_u128.checked_shl((cidr.max_prefix_len() - host_length).into())?;
        let start = number(cidr.network());
        let offset = from.saturating_sub(start).checked_next_multiple_of(size)?;
        let (mut first, end) = (start.checked_add(offset)?, number(cidr.broadcast()));
        while first <= end {
            let subnet = IpNet::new(address(first, &cidr)?, host_length).ok()?;
            let Some((other, _)) = self.overlapping(&subnet).last() else { return Some(subnet) };
            // Continue behind the obstacle, which may be larger or smaller than a part.
            let behind =
                number(other.broadcast()).max(number(subnet.broadcast())).checked_add(1)?;
            first = behind.checked_next_multiple_of(size)?;
        }
        None
    }

    /// The subnets in use that overlap this one. They do not overlap each other, so at most one of
    /// them begins before this one and reaches into it.
    fn overlapping(&self, subnet: &IpNet) -> impl Iterator<Item = &(IpNet, NodeName)> {
        let (first, last) = (subnet.network(), subnet.broadcast());
        let around =
            self.used.range(..first).next_back().filter(|(_, (used, _))| used.contains(&first));
        around.into_iter().chain(self.used.range(first..=last)).map(|(_, used)| used)
    }

    /// Frees the subnet if it is this node's.
    pub fn release(&mut self, node: &NodeName, subnet: &IpNet) {
        if self
            .used
            .get(&subnet.network())
            .is_some_and(|(used, owner)| used == subnet && owner == node)
        {
            self.used.remove(&subnet.network());
        }
    }

    /// The families that nodes get subnets of, in the order of the ranges.
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

/// The inverse of `number`, in the family of `like`.
fn address(number: u128, like: &IpNet) -> Option<IpAddr> {
    match like {
        IpNet::V4(_) => Some(IpAddr::from(u32::try_from(number).ok()?.to_be_bytes())),
        IpNet::V6(_) => Some(IpAddr::from(number.to_be_bytes())),
    }
}

#[cfg(test)]
mod tests;
