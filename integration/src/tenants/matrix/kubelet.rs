//! One kubelet's credential.

use super::{Party, Row, row};

pub(super) const ROWS: &[Row] = &[
    row(
        26,
        Party::Kubelet,
        "a node's annotations with another node's chassis",
        "the other node's gateway, node ports and rows stay as they were",
    ),
    row(
        27,
        Party::Kubelet,
        "a gateway whose interface has the name of another tenant's port",
        "the pod keeps its port and its network",
    ),
    row(
        28,
        Party::Kubelet,
        "a gateway whose interface has the name of another node's",
        "the other node's rows stay as they were",
    ),
    row(
        29,
        Party::Kubelet,
        "another node's subnet, the whole cluster's, and everything",
        "the other node's rows stay as they were",
    ),
    row(
        30,
        Party::Kubelet,
        "another node's number and its addresses on the join network",
        "the other node's rows stay as they were",
    ),
    row(
        31,
        Party::Kubelet,
        "1,024 addresses of its host, beside 20 node ports",
        "the load balancers grow at most sixteen times",
    ),
    row(
        32,
        Party::Kubelet,
        "addresses of its host that are another node's, a pod's, a Service's, the world's, and everything",
        "they stay whose they are",
    ),
    row(
        33,
        Party::Kubelet,
        "a gateway with the MAC and the address of another node's",
        "the other node's rows stay as they were",
    ),
    row(
        34,
        Party::Kubelet,
        "garbage in every annotation that is read",
        "the other nodes' rows stay as they were",
    ),
    row(
        35,
        Party::Kubelet,
        "a management port with the MAC of another tenant's pod",
        "the other nodes' rows stay as they were",
    ),
    row(
        56,
        Party::Kubelet,
        "a kubelet's credential writes another node's annotations",
        "the API server refuses",
    ),
    row(
        57,
        Party::Kubelet,
        "a kubelet's credential makes a node of another name",
        "the API server refuses",
    ),
    row(
        58,
        Party::Kubelet,
        "a kubelet's credential writes or deletes pods of another node",
        "the API server refuses",
    ),
];
