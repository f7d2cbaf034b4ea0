//! Routes from the lab's root to pods: what a router in front of the nodes would have. With them
//! the API server reaches pods, which it does for `kubectl get --raw …/proxy/` and for webhooks.

use std::{collections::BTreeMap, process::Command};

use anyhow::{Context as _, Result, ensure};
use contract::node_annotation::NodeAnnotations;
use ipnet::IpNet;

use super::{Cluster, PATIENCE};
use crate::{command, eventually, fabric};

impl Cluster {
    /// Adds a route to the pods of each node. Of nodes that forward
    /// ([`Blueprint::forwarding`](super::Blueprint)).
    pub fn route_to_pods(&self) -> Result<()> {
        for node in &self.lab.nodes {
            let path = format!("/api/v1/nodes/{}", node.name);
            let subnets = eventually("the node has its part of the network", PATIENCE, || {
                let annotations = self.api.read(&path)?["metadata"]["annotations"].take();
                let annotations: BTreeMap<String, String> =
                    serde_json::from_value(annotations).context("read the node's annotations")?;
                let subnets = NodeAnnotations(&annotations).subnets()?;
                ensure!(!subnets.is_empty(), "{} has no subnets yet", node.name);
                Ok(subnets)
            })?;
            // A node forwards what is not for itself only if it is told to.
            node.run(["sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"])?;
            for subnet in subnets {
                let via = match subnet {
                    IpNet::V4(_) => fabric::address(node.index),
                    IpNet::V6(_) => fabric::address_v6(node.index),
                };
                let route = format!("route replace {subnet} via {via}");
                command::output(Command::new("ip").args(route.split_whitespace()))?;
            }
        }
        Ok(())
    }
}
