//! Addresses of an `ipBlock`: a network without its exceptions.

use std::ops::ControlFlow;

use ipnet::IpNet;

use crate::remainder::each_of_remainder;

/// Addresses, whatever they belong to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Block {
    pub net: IpNet,
    pub except: Box<[IpNet]>,
}

impl Block {
    /// How many networks are left of it; more than `most` are not counted.
    pub(in crate::store) fn size(&self, most: usize) -> usize {
        let mut size = 0;
        let _ = each_of_remainder(self.net, &self.except, &mut |_| {
            size += 1;
            if size > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_ends_at_the_bound() {
        let except = ["fd00::1/128".parse().unwrap()].into();
        let block = Block { net: "::/0".parse().unwrap(), except };
        assert_eq!((block.size(1000), block.size(5)), (128, 6));
    }
}
