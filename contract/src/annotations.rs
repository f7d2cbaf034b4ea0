//! All annotations of pods, nodes, namespaces and policies. `docs/annotations.md` is generated from
//! this table.

use crate::{
    annotation::{LEGACY, POD_NETWORKS},
    applied_annotation::REPORT_APPLIED,
    bandwidth::{EGRESS_ANNOTATION, INGRESS_ANNOTATION},
    namespace_annotation::{ACL_LOGGING, MULTICAST},
    node_annotation::{
        CHASSIS_ID, ENCAP_IPS, FORWARDED_SOURCE, GATEWAY_CONFIG, GATEWAY_MTU_SUPPORT, HOST_CIDRS,
        JOIN_ADDRESS, JOIN_ADDRESSES, LEGACY_SUBNET, MANAGEMENT_MAC, MANAGEMENT_MACS, NEXT_ZONE,
        NODE_ID, NODE_SUBNETS, PRIMARY_ADDRESSES, ROUTER_MAC, TRANSIT_ADDRESSES, WANTED_ZONE, ZONE,
        ZONE_CHOICES,
    },
    policy_annotation::{DRY_RUN, STATELESS},
};

/// One annotation.
#[derive(Debug, Clone, Copy)]
pub struct Annotation {
    pub name: &'static str,
    /// One sentence, without a full stop.
    pub meaning: &'static str,
    pub written_by: &'static str,
    pub read_by: &'static str,
    /// A value as an object has it.
    pub example: &'static str,
}

const fn annotation(
    name: &'static str,
    meaning: &'static str,
    written_by: &'static str,
    read_by: &'static str,
    example: &'static str,
) -> Annotation {
    Annotation { name, meaning, written_by, read_by, example }
}

/// Of each object with rows of its own that users write.
const APPLIED: Annotation = annotation(
    REPORT_APPLIED,
    "`true`: an event `Applied` on the object says on how many nodes it is in force and how long \
     after its change, now and after each change. Nodes are asked every 5 seconds at most, for all \
     objects together; 1,000 objects have reports",
    "user",
    "controller",
    "true",
);

/// Annotations of pods.
pub const OF_PODS: [Annotation; 5] = [
    annotation(
        POD_NETWORKS,
        "MAC, addresses, gateways and routes of the pod, by network",
        "controller; a value that is there before the controller's is kept if it is free",
        "node, controller",
        r#"{"default":{"ip_addresses":["10.128.1.5/23"],"mac_address":"0a:58:0a:80:01:05","gateway_ips":["10.128.0.1"]}}"#,
    ),
    annotation(
        LEGACY,
        "The same for the cluster's network alone, in clusters before 2020",
        "older control planes; the controller with --legacy-annotations",
        "node, controller",
        "",
    ),
    annotation(
        INGRESS_ANNOTATION,
        "Rate limit towards the pod, in bits per second",
        "user",
        "node",
        "10M",
    ),
    annotation(
        EGRESS_ANNOTATION,
        "Rate limit from the pod, in bits per second; without effect in Open vSwitch's userspace datapath",
        "user",
        "node",
        "10M",
    ),
    APPLIED,
];

/// Annotations of Services and of policies of the cluster.
pub const OF_SERVICES: [Annotation; 1] = [APPLIED];

/// Annotations of nodes.
pub const OF_NODES: [Annotation; 20] = [
    annotation(
        NODE_SUBNETS,
        "Subnets of the node's pods, by network",
        "cluster manager",
        "controller, node",
        r#"{"default":["10.128.0.0/23"]}"#,
    ),
    annotation(
        LEGACY_SUBNET,
        "The same, in clusters of 2018 and 2019",
        "older control planes",
        "cluster manager, node",
        "",
    ),
    annotation(
        NODE_ID,
        "A number of the node's own, from 2 on",
        "cluster manager",
        "controller",
        "2",
    ),
    annotation(
        JOIN_ADDRESSES,
        "Addresses of the node's gateway router on the join switch, by network",
        "cluster manager",
        "controller",
        r#"{"default":{"ipv4":"100.64.0.2/16"}}"#,
    ),
    annotation(
        JOIN_ADDRESS,
        "The same for the cluster's network alone",
        "older control planes",
        "controller",
        "",
    ),
    annotation(
        TRANSIT_ADDRESSES,
        "Addresses of the node on the switch between zones",
        "cluster manager",
        "controller",
        r#"{"ipv4":"100.88.0.2/16"}"#,
    ),
    annotation(
        CHASSIS_ID,
        "Name of the node in OVN: `external_ids:system-id` of its Open vSwitch",
        "node",
        "controller",
        "",
    ),
    annotation(
        ENCAP_IPS,
        "Addresses of the node's tunnels. Only with `--enable-interconnect`",
        "node",
        "controllers of other zones",
        r#"["192.0.2.7"]"#,
    ),
    annotation(
        PRIMARY_ADDRESSES,
        "Addresses that other nodes reach the node at",
        "node",
        "upstream's programs",
        r#"{"ipv4":"192.0.2.7/24"}"#,
    ),
    annotation(
        HOST_CIDRS,
        "All addresses of the host",
        "node",
        "controller",
        r#"["192.0.2.7/24"]"#,
    ),
    annotation(
        GATEWAY_CONFIG,
        "The node's gateway, by network: its mode, its place in the physical network, and whether ports of the node lead to services",
        "node",
        "controller",
        r#"{"default":{"mode":"shared","interface-id":"br-ex_n1","mac-address":"52:54:00:00:00:11","ip-addresses":["192.0.2.7/24"],"next-hops":["192.0.2.1"],"node-port-enable":"true","vlan-id":"0"}}"#,
    ),
    annotation(
        GATEWAY_MTU_SUPPORT,
        "`false`: OVN does not answer packets that are too large for the overlay",
        "node",
        "controller",
        "false",
    ),
    annotation(
        MANAGEMENT_MACS,
        "MAC of the management port, by network",
        "older nodes",
        "controller, node",
        "",
    ),
    annotation(
        MANAGEMENT_MAC,
        "The same for the cluster's network alone",
        "older nodes",
        "controller, node",
        "",
    ),
    annotation(
        ROUTER_MAC,
        "MAC of the cluster router's port in the node's subnet, as pods of 2018 know it",
        "control plane, at a take-over",
        "controller, node",
        "",
    ),
    annotation(
        FORWARDED_SOURCE,
        "`join`: what the host forwards to pods has an address of the join subnet as source, which is not the node's own for policies",
        "node",
        "controller",
        "join",
    ),
    annotation(
        ZONE,
        "Zone whose database has the node's rows",
        "node",
        "cluster manager, controller, node",
        "global",
    ),
    annotation(
        NEXT_ZONE,
        "Zone that the node is about to move to: its database has the node's rows, too",
        "node",
        "controller, node",
        "node1",
    ),
    annotation(
        WANTED_ZONE,
        "Zone where the node should be, one of `zone-choices`: `ovnkube zones migrate` writes it",
        "user",
        "node",
        "node1",
    ),
    annotation(
        ZONE_CHOICES,
        "Zones that the node may move to while its server runs, each with what it lacks; nothing: \
         the node may go there. Only with `--other-zone`",
        "node",
        "`ovnkube zones migrate`",
        r#"{"global":"","node1":""}"#,
    ),
];

/// Annotations of namespaces.
pub const OF_NAMESPACES: [Annotation; 2] = [
    annotation(
        ACL_LOGGING,
        "Severities with which the verdicts of the namespace's policies are logged: alert, warning, notice, info or debug. A verdict without one is not logged. `--acl-logging-rate-limit` limits the lines",
        "user",
        "controller",
        r#"{"allow":"info","deny":"alert"}"#,
    ),
    annotation(
        MULTICAST,
        "`true`: the namespace's pods receive what its pods send to multicast groups that they have joined, on any node. Only with `--enable-multicast`; NetworkPolicies do not limit it",
        "user",
        "controller",
        "true",
    ),
];

/// Annotations of NetworkPolicies.
pub const OF_POLICIES: [Annotation; 3] = [
    annotation(
        STATELESS,
        "`true`: connections that the policy allows are not tracked, so that replies need rules of their own and load balancers are bypassed. Only with `--enable-stateless-netpol`",
        "user",
        "controller",
        "true",
    ),
    annotation(
        DRY_RUN,
        "`true`: the policy changes no verdict; ovn-controller logs what it would drop. Needs an OVN with tiers of ACLs (23.06 and later); with an older one it has no effect",
        "user",
        "controller",
        "true",
    ),
    APPLIED,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{namespace_annotation, node_annotation, policy_annotation};

    #[test]
    fn every_annotation_that_is_read_of_a_node_is_in_the_table() {
        assert_eq!(OF_NODES.map(|annotation| annotation.name), node_annotation::ALL);
    }

    #[test]
    fn so_is_every_annotation_that_is_read_of_a_namespace_or_a_policy() {
        assert_eq!(OF_NAMESPACES.map(|annotation| annotation.name), namespace_annotation::ALL);
        let [stateless, dry_run] = policy_annotation::ALL;
        let read = [stateless, dry_run, REPORT_APPLIED];
        assert_eq!(OF_POLICIES.map(|annotation| annotation.name), read);
    }
}
