//! What the rows of a policy of the whole cluster cost.

use crate::{
    kinds::cluster_policy::object::{ClusterPeer, Effect},
    object::price::{FAMILIES, Price},
};

impl Price {
    pub(crate) fn of_effect(effect: &Effect) -> Self {
        let mut price = Self::default();
        for rule in effect.ingress.iter().chain(&effect.egress) {
            let (mut networks, mut sets) = (0, 0);
            for peer in rule.peers.iter().flatten() {
                match peer {
                    ClusterPeer::Network(_) => networks += 1,
                    ClusterPeer::Pods(_) | ClusterPeer::Nodes(_) | ClusterPeer::Name(_) => {
                        sets += FAMILIES
                    }
                }
            }
            let kinds = match &rule.peers {
                None => 1,
                Some(_) => usize::from(networks > 0) + usize::from(sets > 0),
            };
            price.add(Self::of_matches(networks + sets, kinds, rule.ports.as_ref()));
        }
        price
    }
}
