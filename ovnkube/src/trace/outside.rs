//! Packets that are not from a pod: of machines outside of the cluster, and of nodes to other
//! addresses than pods'. Also what comes back to a node from the wire, sent by a pod.

use std::net::IpAddr;

use contract::wire::TraceProtocol;
use kubeapi::Connection;

use super::{
    TracePlaces,
    arrival::Sender,
    arriving::{AtNode, service},
    ends::NoEnd,
    follow::{Passage, concluded},
    node::NodeFacts,
};
use crate::{api_query::list, explain::Asked, findings::Finding};

/// The most nodes at which a packet from outside is followed.
const MOST_NODES: usize = 8;

impl TracePlaces<'_> {
    /// The nodes of the cluster, read once.
    ///
    /// # Errors
    ///
    /// The API server does not answer.
    pub(super) async fn nodes(&self) -> Result<&[NodeFacts], NoEnd> {
        let (api, _) = self.needed()?;
        let read = async || {
            let listed = list(api, "/api/v1/nodes", "").await;
            let listed = listed.map_err(|trouble| NoEnd::Unknown(format!("nodes: {trouble}")))?;
            Ok(listed.items.iter().filter_map(NodeFacts::of).collect())
        };
        self.nodes.get_or_try_init(read).await.map(Vec::as_slice)
    }

    /// What is asked about packets that are not from a pod.
    pub(super) fn needed(&self) -> Result<(&Connection, &ovsdb::Connection), NoEnd> {
        match (&self.api, &self.north) {
            (Some(api), Some(north)) => Ok((api, north)),
            _ => Err(NoEnd::Unknown(
                "packets that are not from a pod need the API server and the northbound database: \
                 they say what a node does with them (--k8s-kubeconfig, --nb-address)"
                    .to_owned(),
            )),
        }
    }

    /// The findings about a packet of a machine outside, and the verdicts.
    ///
    /// # Errors
    ///
    /// There is no such packet, or a source does not answer.
    pub(super) async fn way_from_outside(
        &self,
        client: IpAddr,
    ) -> Result<(Vec<Finding>, Vec<Finding>), NoEnd> {
        let nodes = self.nodes().await?;
        let sender = Sender::Machine(client);
        let (addresses, own) = self.targets(nodes).await?;
        let alike = addresses.iter().filter(|to| to.is_ipv6() == client.is_ipv6());
        let (mut findings, mut verdicts) = (Vec::new(), Vec::new());
        for to in alike {
            for node in self.nodes_at(nodes, *to, own.as_deref())? {
                let (found, verdict) = self.conclude(AtNode { node, sender, to: *to }).await;
                findings.extend(found);
                verdicts.push(verdict);
            }
        }
        match verdicts.is_empty() {
            true => Err(NoEnd::Absent(format!(
                "{} has no address of the family of {client}",
                self.question.to
            ))),
            false => Ok((findings, verdicts)),
        }
    }

    /// The same of a node's own packet. `None` if it is for a pod, or an address that OVN takes
    /// from the management port.
    pub(super) async fn way_from_node(
        &self,
        node: &str,
        to: IpAddr,
    ) -> Option<(Vec<Finding>, Finding)> {
        if self.topology.holder(to).is_some() || self.question.protocol == TraceProtocol::Icmp {
            return None;
        }
        let nodes = self.nodes().await.ok()?;
        let own = nodes.iter().find(|facts| facts.name == node)?;
        let source = own.address(to.is_ipv6())?;
        let at = AtNode { node: own, sender: Sender::Host(source), to };
        if let Some(other) = nodes.iter().find(|facts| facts.addresses.contains(&to))
            && other.name != own.name
        {
            let sender = Sender::Machine(source);
            return Some(self.conclude(AtNode { node: other, sender, to }).await);
        }
        let served = self.served(at.node, to).await.ok()??;
        let is_outer = own.addresses.contains(&to) || served.service.outside().any(|it| it == to);
        match is_outer {
            true => Some(self.conclude(at).await),
            false => None,
        }
    }

    /// What becomes of a pod's packet that has left for another node's address.
    pub(super) async fn at_other_node(&self, from: &str, to: IpAddr) -> Option<Passage> {
        let nodes = self.nodes().await.ok()?;
        let other = nodes.iter().find(|facts| facts.addresses.contains(&to))?;
        let own = nodes.iter().find(|facts| facts.name == from)?;
        if other.name == own.name {
            return None;
        }
        // The pod's node translates the source.
        let sender = Sender::Machine(own.address(to.is_ipv6())?);
        Some(self.arrive(&AtNode { node: other, sender, to }).await)
    }

    /// The addresses to which the packet goes, and the node that it is for.
    async fn targets(&self, nodes: &[NodeFacts]) -> Result<(Vec<IpAddr>, Option<String>), NoEnd> {
        let of_node = |name: &str| {
            let found = nodes.iter().find(|facts| facts.name == name);
            found.ok_or_else(|| NoEnd::Absent(format!("there is no node {name}")))
        };
        match &self.question.to {
            Asked::Address(address) => Ok((vec![*address], None)),
            Asked::Node(name) => {
                let facts = of_node(name)?;
                let each = [false, true].map(|is_ipv6| facts.address(is_ipv6));
                Ok((each.into_iter().flatten().collect(), Some(name.clone())))
            }
            Asked::Pod(_) => {
                let (finder, question) = (self.finder(), self.question);
                let destination = finder.destination(&question.to, question.protocol).await?;
                Ok((destination.addresses, None))
            }
            Asked::Service(key) => {
                let service = service(self.needed()?.0, key).await?;
                let outer: Vec<IpAddr> = service.outside().collect();
                match outer.is_empty() {
                    true => Err(NoEnd::Absent(format!(
                        "Service {key} has no address outside of the cluster: ask about a node \
                         and the node port"
                    ))),
                    false => Ok((outer, None)),
                }
            }
        }
    }

    /// The nodes at which a packet for this address arrives.
    fn nodes_at<'n>(
        &self,
        nodes: &'n [NodeFacts],
        to: IpAddr,
        own: Option<&str>,
    ) -> Result<Vec<&'n NodeFacts>, NoEnd> {
        let via = self.question.via.as_deref();
        let own = own.or_else(|| {
            let of_pod = self.topology.holder(to).map(|binding| binding.port.clone());
            let of_pod = of_pod.and_then(|port| self.node_of_port(&port));
            let has = |facts: &&NodeFacts| facts.addresses.contains(&to);
            let holder = nodes.iter().find(has).map(|facts| facts.name.as_str());
            holder.or_else(|| {
                nodes
                    .iter()
                    .map(|facts| facts.name.as_str())
                    .find(|name| of_pod.as_deref() == Some(*name))
            })
        });
        let is_of_node = own.is_some_and(|own| {
            nodes.iter().any(|facts| facts.name == own && facts.addresses.contains(&to))
        });
        if let (Some(via), Some(own), true) = (via, own, is_of_node)
            && via != own
        {
            return Err(NoEnd::Absent(format!(
                "{to} is node {own}'s own: what is sent to it does not arrive at node {via} (leave \
                 --via {via} out)"
            )));
        }
        if let Some(name) = via.or(own) {
            let found = nodes.iter().find(|facts| facts.name == name);
            return found
                .map(|facts| vec![facts])
                .ok_or_else(|| NoEnd::Absent(format!("there is no node {name}")));
        }
        Ok(nodes.iter().take(MOST_NODES).collect())
    }

    fn node_of_port(&self, port: &str) -> Option<String> {
        Some(self.topology.datapath(self.topology.port(port)?).name)
    }

    async fn conclude(&self, at: AtNode<'_>) -> (Vec<Finding>, Finding) {
        let (Sender::Machine(client) | Sender::Host(client)) = at.sender;
        let name = format!("{client} to {} at node {}", at.to, at.node.name);
        let passage = self.arrive(&at).await;
        concluded(&name, passage, self.question)
    }
}
