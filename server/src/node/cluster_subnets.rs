//! Whether the node's own subnets are in the cluster's, as the options give them. Knows nothing of what relies
//! on it: routes, Services and the gateway's flows take an address in the cluster's subnets for a pod's, and
//! every other one for a host's.

use ipnet::IpNet;
use tokio::sync::watch;

use super::management_port::AssignedSubnetsOf;
use crate::conditions::{Conditions, Part};

/// Keeps the condition for as long as the runtime lives.
pub(super) async fn compare(
    cluster: Vec<IpNet>,
    mut assigned: watch::Receiver<AssignedSubnetsOf>,
    conditions: Conditions,
) {
    loop {
        // Before the node has a subnet there is nothing to compare.
        if let Ok(assigned) = &*assigned.borrow_and_update() {
            match outside(&cluster, &assigned.subnets) {
                Some(subnet) => conditions.missing(Part::CLUSTER_SUBNETS, reason(&cluster, subnet)),
                None => conditions.met(Part::CLUSTER_SUBNETS),
            }
        }
        if assigned.changed().await.is_err() {
            return;
        }
    }
}

fn outside(cluster: &[IpNet], subnets: &[IpNet]) -> Option<IpNet> {
    subnets.iter().find(|subnet| !cluster.iter().any(|range| range.contains(*subnet))).copied()
}

fn reason(cluster: &[IpNet], subnet: IpNet) -> String {
    let ranges: Vec<String> = cluster.iter().map(ToString::to_string).collect();
    format!(
        "this node's subnet {subnet} is in none of the cluster's ({}): pods count as hosts here; give nodes and \
         control plane the same --cluster-subnets",
        ranges.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::management_port::AssignedSubnets;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// The control plane gave subnets of a range that the node was not told: each pod counted as a host, and
    /// `/readyz` was fine.
    #[tokio::test]
    async fn a_node_whose_subnet_is_outside_of_the_clusters_says_both() {
        let of =
            |subnets: &[&str]| Ok(AssignedSubnets { subnets: nets(subnets), mac: None, join: Vec::new() });
        let (tell, assigned) = watch::channel::<AssignedSubnetsOf>(Err("no subnet yet".to_owned()));
        let conditions = Conditions::of([Part::CLUSTER_SUBNETS]);
        conditions.met(Part::CLUSTER_SUBNETS);
        let mut missing = conditions.watch();
        let cluster = nets(&["10.128.0.0/14", "fd01::/48"]);
        let compare = tokio::spawn(compare(cluster, assigned, conditions.clone()));
        let _ = tell.send_replace(of(&["10.128.3.0/23", "fd02::/64"]));
        let why =
            missing.wait_for(|missing| !missing.is_empty()).await.unwrap()[&Part::CLUSTER_SUBNETS].clone();
        assert!(why.contains("fd02::/64") && why.contains("10.128.0.0/14, fd01::/48"), "{why}");
        let _ = tell.send_replace(of(&["10.128.3.0/23", "fd01:0:0:7::/64"]));
        missing.wait_for(|missing| missing.is_empty()).await.unwrap();
        drop(tell);
        compare.await.unwrap();
    }
}
