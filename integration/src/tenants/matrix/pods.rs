//! A user's pods.

use super::{Party, Row, row};

pub(super) const ROWS: &[Row] = &[
    row(
        17,
        Party::User,
        "a pod whose annotation claims the address of another tenant's pod",
        "it never has the address, the other one keeps it",
    ),
    row(
        18,
        Party::User,
        "a pod whose annotation claims the router's address, the management port's, the broadcast, or one of OVN's own networks",
        "it never has the address",
    ),
    row(
        19,
        Party::User,
        "a pod whose annotation claims an address of another node's subnet, of no node, of the world, or a host's",
        "it never has the address",
    ),
    row(
        20,
        Party::User,
        "a pod whose annotation claims the MAC of another tenant's pod, or the router's",
        "it never has the MAC",
    ),
    row(
        21,
        Party::User,
        "its pod's annotation patched after the start to another tenant's address and MAC",
        "the pod's port stays as it was",
    ),
    row(
        22,
        Party::User,
        "its pod's annotation patched after the start to text that cannot be read",
        "the pod's port stays as it was, and works",
    ),
    row(
        23,
        Party::User,
        "pods with annotations of garbage, of 200 kB, and 50,000 brackets deep",
        "no other pod waits",
    ),
    row(
        24,
        Party::User,
        "300 pods that never start, with 50 named ports each",
        "no other pod waits",
    ),
    row(
        25,
        Party::User,
        "300 changes of a pod's labels in a burst",
        "the last one counts, no other pod waits",
    ),
];
