//! A machine on the nodes' layer 2.

use super::{Party, Row, row};

pub(super) const ROWS: &[Row] = &[
    row(
        36,
        Party::Neighbour,
        "a route to a closed pod over its node",
        "the pod stays closed",
    )
    .beside("upstream forwards unless --disable-forwarding is set"),
    row(
        37,
        Party::Neighbour,
        "a route to a closed pod over another node",
        "the pod stays closed",
    )
    .beside("upstream forwards unless --disable-forwarding is set"),
    row(
        38,
        Party::Neighbour,
        "packets for a closed pod from addresses of pods, of the management port and of another node",
        "no pod gets them",
    ),
    row(
        39,
        Party::Neighbour,
        "a tunnel's packets (Geneve) for a closed pod, from its own address",
        "no pod gets them",
    ),
    row(
        40,
        Party::Neighbour,
        "the same from another node's address",
        "no other row of the bystander is worse for it",
    )
    .beside("Geneve has no authentication: a frame from a member's address is the member's. Upstream is the same; OVN's IPsec or a network of the nodes' own prevents it"),
    row(
        41,
        Party::Neighbour,
        "packets to the host's addresses inside: masquerading, join network, management port",
        "no process of the host hears those to OVN's own networks",
    )
    .beside("Linux takes packets for an address of its own from any link: the management port's reaches the host as its \
        address on the wire does, with upstream and kube-proxy, too"),
    row(
        42,
        Party::Neighbour,
        "questions to 7,800 ports of TCP of a node",
        "metrics are all that is open",
    ),
    row(
        43,
        Party::Neighbour,
        "first packets of connections to a node from 50,000 addresses",
        "nobody notices",
    ),
    row(
        44,
        Party::Neighbour,
        "ARP replies that claim a node's address",
        "the gateway's rows stay as they were, traffic is back once the neighbour is asked again",
    )
    .beside("ARP has no authentication; upstream and kube-proxy are the same. Switches prevent it (dynamic ARP inspection)"),
    row(
        98,
        Party::Neighbour,
        "row 36 with local gateways",
        "the pod stays closed",
    ),
];
