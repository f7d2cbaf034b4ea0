//! Whether the node's own subnets are in the cluster's, as the options give them, and what is
//! believed of these. Services and the gateway's flows take an address in the cluster's subnets for
//! a pod's, and every other one for a host's: a family whose subnets do not have the node's own is
//! not believed.

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

/// Those that are believed, once the node has subnets. Until then it is not known what a pod's
/// address is.
pub(super) async fn known(
    cluster: Vec<IpNet>,
    mut assigned: watch::Receiver<AssignedSubnetsOf>,
) -> Vec<IpNet> {
    loop {
        if let Ok(assigned) = &*assigned.borrow_and_update() {
            return believed(&cluster, &assigned.subnets);
        }
        if assigned.changed().await.is_err() {
            // The node's server ends.
            std::future::pending().await
        }
    }
}

/// Those of the families whose subnets have the node's own, or of which it has none.
pub(super) fn believed(cluster: &[IpNet], own: &[IpNet]) -> Vec<IpNet> {
    let is_alike = |one: &IpNet, other: &IpNet| one.addr().is_ipv4() == other.addr().is_ipv4();
    let is_believed = |range: &&IpNet| {
        let of_family = cluster.iter().filter(|other| is_alike(other, range));
        let mut own = own.iter().filter(|subnet| is_alike(subnet, range));
        own.all(|subnet| of_family.clone().any(|range| range.contains(subnet)))
    };
    cluster.iter().filter(is_believed).copied().collect()
}

/// Where pods are for all that is known: of a family that is not believed, the node's own subnets.
pub(super) fn of_pods(cluster: &[IpNet], own: &[IpNet]) -> Vec<IpNet> {
    let mut believed = believed(cluster, own);
    let unbelieved: Vec<IpNet> = own
        .iter()
        .filter(|subnet| !believed.iter().any(|range| range.contains(*subnet)))
        .copied()
        .collect();
    believed.extend(unbelieved);
    believed
}

fn outside(cluster: &[IpNet], subnets: &[IpNet]) -> Option<IpNet> {
    subnets.iter().find(|subnet| !cluster.iter().any(|range| range.contains(*subnet))).copied()
}

fn reason(cluster: &[IpNet], subnet: IpNet) -> String {
    let ranges: Vec<String> = cluster.iter().map(ToString::to_string).collect();
    format!(
        "this node's subnet {subnet} is in none of the cluster's ({}): these are not believed, and Services with endpoints on \
         hosts are OVN's alone here; give nodes and control plane the same --cluster-subnets",
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

    /// Each pod counted as a host, and the flows guarded a net that is not the pods'.
    #[test]
    fn subnets_of_a_cluster_without_the_nodes_own_are_not_believed() {
        let cluster = nets(&["10.128.0.0/14", "10.244.0.0/16", "fd01::/48"]);
        for (own, expected, pods) in [
            (&["10.244.1.0/24", "fd01:0:0:1::/64"][..], &cluster[..], cluster.clone()),
            (
                &["10.0.1.0/24", "fd01:0:0:1::/64"],
                &cluster[2..],
                nets(&["fd01::/48", "10.0.1.0/24"]),
            ),
            (&["10.0.1.0/24", "fd02::/64"], &[], nets(&["10.0.1.0/24", "fd02::/64"])),
            // Of the other family there is nothing to compare.
            (&["10.128.4.0/23"], &cluster[..], cluster.clone()),
        ] {
            assert_eq!(believed(&cluster, &nets(own)), expected, "{own:?}");
            assert_eq!(of_pods(&cluster, &nets(own)), pods, "{own:?}");
        }
    }

    #[tokio::test]
    async fn nothing_is_believed_before_the_node_has_a_subnet() {
        let (tell, assigned) = watch::channel::<AssignedSubnetsOf>(Err("no subnet yet".to_owned()));
        let known = tokio::spawn(known(nets(&["10.128.0.0/14"]), assigned));
        tokio::task::yield_now().await;
        assert!(!known.is_finished());
        let subnets = nets(&["10.244.1.0/24"]);
        let _ = tell.send_replace(Ok(AssignedSubnets { subnets, ..Default::default() }));
        assert_eq!(known.await.unwrap(), []);
    }

    /// The control plane gave subnets of a range that the node was not told: each pod counted as a
    /// host, and `/readyz` was fine.
    #[tokio::test]
    async fn a_node_whose_subnet_is_outside_of_the_clusters_says_both() {
        let of =
            |subnets: &[&str]| Ok(AssignedSubnets { subnets: nets(subnets), ..Default::default() });
        let (tell, assigned) = watch::channel::<AssignedSubnetsOf>(Err("no subnet yet".to_owned()));
        let conditions = Conditions::of([Part::CLUSTER_SUBNETS]);
        conditions.met(Part::CLUSTER_SUBNETS);
        let mut missing = conditions.watch();
        let cluster = nets(&["10.128.0.0/14", "fd01::/48"]);
        let compare = tokio::spawn(compare(cluster, assigned, conditions.clone()));
        let _ = tell.send_replace(of(&["10.128.3.0/23", "fd02::/64"]));
        let why = missing.wait_for(|missing| !missing.is_empty()).await.unwrap()
            [&Part::CLUSTER_SUBNETS]
            .clone();
        assert!(why.contains("fd02::/64") && why.contains("10.128.0.0/14, fd01::/48"), "{why}");
        let _ = tell.send_replace(of(&["10.128.3.0/23", "fd01:0:0:7::/64"]));
        missing.wait_for(|missing| missing.is_empty()).await.unwrap();
        drop(tell);
        compare.await.unwrap();
    }
}
