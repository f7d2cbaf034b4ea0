//! The nodes, their subnets by address, and the claims that overlap another node's subnet.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use contract::node_annotation::{LEGACY_SUBNET, NODE_SUBNETS};
use ipnet::IpNet;

use crate::{
    config::Zone,
    key::NodeName,
    kinds::node::{
        claims::{Claims, Standing},
        object::Node,
        problem::NodeProblem,
    },
    select::selectors::Selectors,
};

/// What nodes claim and may have changed hands.
#[derive(Debug)]
pub(crate) struct Concerned {
    pub(crate) chassis: BTreeSet<String>,
    pub(crate) joins: BTreeSet<IpAddr>,
    /// Nodes that have got or lost an address on the join switch.
    pub(crate) moved: BTreeSet<NodeName>,
}

/// The known nodes. No two of them have subnets that overlap.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    pub(crate) all: BTreeMap<NodeName, Node>,
    /// How many nodes say that they are of each zone; none: of those that do not say it.
    zones: BTreeMap<Option<Zone>, usize>,
    /// The nodes' subnets, by network address.
    subnets: BTreeMap<IpAddr, (IpNet, NodeName)>,
    /// Claims of nodes whose annotations overlap another node's subnet.
    pub(crate) contested: BTreeMap<NodeName, Vec<IpNet>>,
    /// Nodes whose rows cannot be computed, and which may have some: a text is no annotation, or a
    /// node that had rows at the start lacks annotations.
    pub(crate) unreadable: BTreeSet<NodeName>,
    /// The networks that nodes had on the cluster router at the start, until the first list.
    pub(crate) found_networks: BTreeMap<NodeName, BTreeSet<IpNet>>,
    /// Chassis that nodes had, or that have variables in the database. Their variables stay while a
    /// node's chassis is not known: it may be one of them.
    pub(crate) abandoned: BTreeSet<Arc<str>>,
    /// Who has which chassis, and which address on the join switch.
    pub(crate) chassis: Claims<String>,
    joins: Claims<IpAddr>,
    /// Nodes that were told that another has what they claim, and what they were told.
    pub(crate) told_of_others: BTreeMap<NodeName, BTreeSet<String>>,
    pub(crate) selectors: Selectors<NodeName>,
}

impl Nodes {
    pub(crate) fn get(&self, name: &str) -> Option<&Node> {
        self.all.get(name)
    }

    /// The stored name, so that equal names share one allocation.
    pub(crate) fn name(&self, name: &str) -> Option<&NodeName> {
        self.all.get_key_value(name).map(|(name, _)| name)
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.all.contains_key(name)
    }

    /// Whether there is a node whose rows cannot be computed, and which may have some.
    pub(crate) fn has_unreadable(&self) -> bool {
        !self.unreadable.is_empty()
    }

    /// Whether the rows of the node cannot be computed, and it may have some.
    pub(crate) fn cannot_be_read(&self, node: &str) -> bool {
        self.unreadable.contains(node)
    }

    /// These nodes, which are about to be put, have rows in the database.
    pub(crate) fn await_annotations(&mut self, nodes: impl IntoIterator<Item = NodeName>) {
        self.unreadable.extend(nodes);
    }

    /// In the order of their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.all.values()
    }

    /// Adds or replaces a node. Returns the node as it was before.
    pub(crate) fn insert(&mut self, node: Node) -> Option<Node> {
        let (name, subnets) = (Arc::clone(&node.name), node.subnets.clone());
        *self.zones.entry(node.zone.clone()).or_default() += 1;
        let before = self.all.insert(Arc::clone(&name), node);
        if let Some(before) = &before {
            self.forget_zone(&before.zone);
            self.forget_subnets(before, &subnets);
        }
        let indexed =
            subnets.into_iter().map(|subnet| (subnet.network(), (subnet, Arc::clone(&name))));
        self.subnets.extend(indexed);
        before
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<Node> {
        let node = self.all.remove(name)?;
        self.forget_zone(&node.zone);
        self.contested.remove(name);
        self.forget_subnets(&node, &[]);
        Some(node)
    }

    fn forget_zone(&mut self, zone: &Option<Zone>) {
        if let Some(nodes) = self.zones.get_mut(zone) {
            *nodes -= 1;
            if *nodes == 0 {
                self.zones.remove(zone);
            }
        }
    }

    /// Whether a node says that it is of the zone.
    pub(crate) fn are_of(&self, zone: &Zone) -> bool {
        self.zones.contains_key(&Some(zone.clone()))
    }

    /// The first zone that a node says that it is of; none if a node does not say it.
    pub(crate) fn first_zone(&self) -> Option<&Zone> {
        self.zones.keys().next()?.as_ref()
    }

    /// Removes the subnets of a node from the index, except those that it still has.
    fn forget_subnets(&mut self, node: &Node, except: &[IpNet]) {
        for subnet in node.subnets.iter().filter(|subnet| !except.contains(subnet)) {
            // Another node may have the subnet by now.
            if self.subnets.get(&subnet.network()).is_some_and(|(_, owner)| *owner == node.name) {
                self.subnets.remove(&subnet.network());
            }
        }
    }

    /// The node's subnet that an address is in.
    pub(crate) fn at(&self, address: IpAddr) -> Option<&(IpNet, NodeName)> {
        self.subnets
            .range(..=address)
            .next_back()
            .map(|(_, subnet)| subnet)
            .filter(|(subnet, _)| subnet.contains(&address))
    }

    /// The node whose host has the address.
    pub(crate) fn with_host_address(&self, address: IpAddr) -> Option<&Node> {
        self.iter().find(|node| node.host_addresses.contains(&address))
    }

    /// The nodes' subnets that overlap this one. The nodes' subnets do not overlap each other, so
    /// at most one of them begins before this one and reaches into it.
    fn overlapping(&self, subnet: &IpNet) -> impl Iterator<Item = &(IpNet, NodeName)> {
        let (first, last) = (subnet.network(), subnet.broadcast());
        let around =
            self.subnets.range(..first).next_back().filter(|(_, (used, _))| used.contains(&first));
        around.into_iter().chain(self.subnets.range(first..=last)).map(|(_, used)| used)
    }

    /// The first subnet of the node that overlaps another node's, as a problem of the node.
    pub(crate) fn overlap(&self, node: &Node) -> Option<NodeProblem> {
        node.subnets.iter().find_map(|subnet| {
            let (other, by) = self.overlapping(subnet).find(|(_, owner)| *owner != node.name)?;
            let annotation = if node.annotations.contains_key(NODE_SUBNETS) {
                NODE_SUBNETS
            } else {
                LEGACY_SUBNET
            };
            Some(NodeProblem::SubnetTaken {
                annotation,
                subnet: *subnet,
                other: *other,
                by: Arc::clone(by),
            })
        })
    }

    /// Notes a claim that overlaps another node's subnet. Returns whether it is a new one.
    pub(crate) fn contest(&mut self, node: &Node) -> bool {
        let before = self.contested.insert(Arc::clone(&node.name), node.subnets.clone());
        before.as_ref() != Some(&node.subnets)
    }

    /// Whether another node has the chassis that the node names.
    pub(crate) fn has_lost_chassis(&self, node: &Node) -> bool {
        node.chassis.is_none() && self.chassis.of(&node.name).next().is_some()
    }

    /// Whether nothing is known of the node's chassis.
    pub(crate) fn lacks_chassis(&self, node: &Node) -> bool {
        node.chassis.is_none() && !self.has_lost_chassis(node)
    }

    /// Whether no other node has the node's addresses on the join switch.
    pub(crate) fn has_its_join(&self, node: &Node) -> bool {
        self.joins.of(&node.name).all(|address| self.joins.holder(address) == Some(&node.name))
    }

    /// The chassis that the node names, unless another node has it.
    pub(crate) fn own_chassis(&self, name: &NodeName) -> Option<String> {
        self.chassis.of(name).find(|chassis| self.chassis.holder(chassis) == Some(name)).cloned()
    }

    /// Notes what the node claims, and decides who has it. Returns what may have another holder
    /// now, or has another claimant.
    pub(crate) fn claim(
        &mut self,
        node: &Node,
        chassis: Option<String>,
        join_subnets: &[IpNet],
    ) -> Concerned {
        let joins = node.join_addresses(join_subnets).iter().map(IpNet::addr).collect();
        let chassis = self.chassis.claim(&node.name, chassis.into_iter().collect());
        let joins = self.joins.claim(&node.name, joins);
        let standing = Standing { is_unreachable: node.is_unreachable, created: node.created };
        self.decide(chassis, joins, Some((&node.name, standing)))
    }

    pub(crate) fn give_up_claims(&mut self, name: &NodeName) -> Concerned {
        self.told_of_others.remove(name);
        let chassis = self.chassis.claim(name, BTreeSet::new());
        let joins = self.joins.claim(name, BTreeSet::new());
        self.decide(chassis, joins, None)
    }

    /// `now`: a node that is about to be inserted.
    fn decide(
        &mut self,
        of_chassis: BTreeSet<String>,
        on_join: BTreeSet<IpAddr>,
        now: Option<(&NodeName, Standing)>,
    ) -> Concerned {
        let Self { all, chassis, joins, .. } = self;
        let standing = |name: &NodeName| match now.filter(|(of, _)| *of == name) {
            Some((_, standing)) => standing,
            // One that is in the list that is being read and was not inserted yet is younger.
            None => {
                all.get(name)
                    .map_or(Standing { is_unreachable: false, created: i64::MAX }, |node| {
                        Standing { is_unreachable: node.is_unreachable, created: node.created }
                    })
            }
        };
        for thing in &of_chassis {
            chassis.decide(thing, standing);
        }
        // An unreachable node keeps its address: another node has another number.
        let in_any_case = |name: &NodeName| Standing { is_unreachable: false, ..standing(name) };
        let moved = on_join.iter().filter_map(|thing| {
            let before = joins.decide(thing, in_any_case)?;
            Some([Some(before), joins.holder(thing).cloned()])
        });
        let moved = moved.flatten().flatten().collect();
        Concerned { chassis: of_chassis, joins: on_join, moved }
    }

    /// What to tell the nodes about what more than one of them claims. A node of which nothing is
    /// contested any more is told again, should it come to that.
    pub(crate) fn contests(&mut self, claims: &Concerned) -> Vec<(NodeName, NodeProblem)> {
        let mut contests = Vec::new();
        for chassis in &claims.chassis {
            let Some(holder) = self.chassis.holder(chassis).cloned() else { continue };
            let others: Vec<NodeName> = self.chassis.others(chassis).cloned().collect();
            if others.is_empty() {
                self.told_of_others.remove(&holder);
            }
            for other in others {
                let (chassis, by) = (chassis.clone(), Arc::clone(&other));
                contests.push((
                    Arc::clone(&holder),
                    NodeProblem::ChassisClaimed { chassis: chassis.clone(), by },
                ));
                contests
                    .push((other, NodeProblem::ChassisTaken { chassis, by: Arc::clone(&holder) }));
            }
        }
        for address in &claims.joins {
            let Some(holder) = self.joins.holder(address) else { continue };
            let trouble =
                || NodeProblem::JoinAddressTaken { address: *address, by: Arc::clone(holder) };
            contests.extend(self.joins.others(address).map(|other| (Arc::clone(other), trouble())));
        }
        contests
    }

    /// The nodes with contested claims as they would be with their claims, the oldest node first.
    pub(crate) fn claimants(&self) -> Vec<Node> {
        let with_claim = |(name, subnets): (&NodeName, &Vec<IpNet>)| {
            Some(Node { subnets: subnets.clone(), ..self.get(name)?.clone() })
        };
        let mut claimants: Vec<Node> = self.contested.iter().filter_map(with_claim).collect();
        claimants.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        claimants
    }
}
