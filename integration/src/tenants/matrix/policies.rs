//! A user's NetworkPolicies, EgressFirewalls and namespaces.

use super::{Party, Row, row};

pub(super) const ROWS: &[Row] = &[
    row(
        1,
        Party::User,
        "a NetworkPolicy whose name hashes to the port group of another namespace's default-deny",
        "the other namespace's pod stays closed, and so it stays when the policy is deleted",
    ),
    row(
        2,
        Party::User,
        "a NetworkPolicy of 400,000 empty rules",
        "no other pod waits, and an event or a rule says what became of it",
    ),
    row(
        3,
        Party::User,
        "a NetworkPolicy of 20,000 rules that differ",
        "it isolates and allows nothing, with an event",
    ),
    row(
        4,
        Party::User,
        "a NetworkPolicy with 10,000 address blocks as peers",
        "no other pod waits",
    ),
    row(
        5,
        Party::User,
        "a NetworkPolicy for everything but five networks",
        "it costs at most 500 flows on the node of its pod",
    ),
    row(
        62,
        Party::User,
        "3,000 rules about all namespaces, in a cluster of 200",
        "no other pod waits, nor another namespace",
    ),
    row(
        63,
        Party::User,
        "12,000 peers with selectors that differ, each of which selects all pods",
        "no other pod waits",
    ),
    row(
        64,
        Party::User,
        "a pod that never starts, with 500 ports of a name that another tenant's policy uses",
        "the other tenant's rules stay as they were",
    ),
    row(65, Party::User, "200 policies that come and go in a burst", "no other pod waits"),
    row(
        66,
        Party::User,
        "600 policies that cannot be used",
        "another tenant's events are still told",
    ),
    row(
        67,
        Party::User,
        "logging of policies with garbage and with every level, and 1,200 packets that are refused",
        "the log of the node has at most 100 lines a second of it",
    ),
    row(
        68,
        Party::User,
        "multicast switched on for its namespace, and a group that others have joined",
        "no pod of another namespace hears it",
    ),
    row(69, Party::User, "an EgressFirewall of 8,000 rules about every node", "no other pod waits"),
    row(
        70,
        Party::User,
        "an EgressFirewall whose selector of nodes reads like another tenant's (values `a,b` instead of `a` and `b`)",
        "the other tenant's rule denies",
    ),
    row(71, Party::User, "an EgressFirewall of 20,000 rules", "no other pod waits"),
    row(
        100,
        Party::User,
        "a NetworkPolicy whose peers' labels hash to the address set of another namespace's policy",
        "the other namespace's pod stays closed to it, and open to whom its policy lets in",
    ),
];
