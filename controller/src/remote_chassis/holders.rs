//! Whose an address of tunnels is that several nodes of other zones name: of the one that had it,
//! as this process or the database knows. Else the first of them has it.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use crate::{
    key::NodeName,
    tunnels::{RemoteChassis, Tunnels},
};

/// The nodes that had each address at the last decision.
#[derive(Debug, Default)]
pub(super) struct Holders(BTreeMap<IpAddr, NodeName>);

impl Holders {
    /// What should be there, with each address at one node. `found`: the nodes that have addresses
    /// in the database, by their names.
    pub(super) fn decide(
        &mut self,
        wanted: &Arc<RemoteChassis>,
        found: impl FnOnce() -> BTreeMap<IpAddr, Box<str>>,
    ) -> Arc<RemoteChassis> {
        let mut decided = Arc::clone(wanted);
        if !wanted.contested.is_empty() {
            let found = found();
            let holder = |(ip, nodes): (&IpAddr, &Vec<NodeName>)| {
                let had = self.0.get(ip).map(|node| &**node);
                let before = [had, found.get(ip).map(|node| &**node)].into_iter().flatten();
                let named = |name: &str| nodes.iter().find(|node| ***node == *name);
                let holder = before.filter_map(named).next().or(nodes.first())?;
                Some((*ip, Arc::clone(holder)))
            };
            let holders: BTreeMap<IpAddr, NodeName> =
                wanted.contested.iter().filter_map(holder).collect();
            // A node with none has no row: it would hold the address, which only one can have.
            Arc::make_mut(&mut decided).wanted.retain(|_, Tunnels { node, addresses }| {
                addresses.retain(|ip| holders.get(ip).is_none_or(|holder| *holder == *node));
                !addresses.is_empty()
            });
        }
        let of = |Tunnels { node, addresses }: &Tunnels| -> Vec<(IpAddr, NodeName)> {
            addresses.iter().map(|ip| (*ip, Arc::clone(node))).collect()
        };
        self.0 = decided.wanted.values().flat_map(of).collect();
        decided
    }
}
