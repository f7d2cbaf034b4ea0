//! Addresses of an `ipBlock`: a network without its exceptions.

use contract::remainder::size_of_remainder;
use ipnet::IpNet;

/// Addresses, whatever they belong to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Block {
    pub net: IpNet,
    pub except: Box<[IpNet]>,
}

impl Block {
    /// How many networks are left of it; more than `most` are not counted.
    pub(crate) fn size(&self, most: usize) -> usize {
        size_of_remainder(self.net, &self.except, most)
    }
}
