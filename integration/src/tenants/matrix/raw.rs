//! A pod with a raw socket.

use super::{Party, Row, row};

pub(super) const ROWS: &[Row] = &[
    row(
        11,
        Party::Pod,
        "frames with another pod's MAC, with another pod's address, and with an address of nobody",
        "no pod gets them",
    ),
    row(
        12,
        Party::Pod,
        "ARP replies and neighbour advertisements that claim another pod's address and the gateway's",
        "no pod believes them",
    ),
    row(
        13,
        Party::Pod,
        "router advertisements and DHCP offers",
        "no pod's routes or addresses change",
    )
    .beside("OVN delivers broadcasts from a pod's own address on its node, as with upstream: a pod that runs a DHCP client \
        has to know its server"
    ),
    row(
        14,
        Party::Pod,
        "UDP to the host's addresses by the MAC of the host's end, under a policy that forbids everything",
        "no process of the host hears it",
    )
    .beside("upstream attaches the same way: on a userspace datapath the host's stack sees the frames of each veth"),
    row(
        15,
        Party::Pod,
        "the same by broadcast and by multicast, with its own and with false addresses",
        "no process of the host hears it",
    ),
    row(
        16,
        Party::Pod,
        "a question of ARP for the management port's address",
        "one answer",
    ),
    row(
        86,
        Party::Pod,
        "packets for other pods, nodes and the world by the MAC of the host's end, under a policy that forbids everything",
        "nobody gets them",
    )
    .beside("on a userspace datapath the host's stack sees the frames of each veth and forwards them"),
    row(
        87,
        Party::Pod,
        "packets to the world with another pod's address, a node's, a Service's, and one of nobody",
        "the world gets none of them",
    ),
    row(
        88,
        Party::Pod,
        "fragments to a closed pod: tiny ones, later ones alone, ones that overlap",
        "no pod gets them",
    )
    .beside(
        "on a userspace datapath OVN before 26.03 sees no port in a fragment: what denies a port \
         and allows the rest lets fragments to it pass, with upstream on every release. The \
         control plane sets `acl_ct_translation`, which prevents it since 26.03 \
         (docs/decisions/rules-about-ports-and-fragments.md)",
    ),
    row(
        89,
        Party::Pod,
        "frames with VLAN tags, MPLS, LLDP, spanning tree and pauses",
        "neither its neighbours nor the wire get them",
    ),
    row(
        90,
        Party::Pod,
        "a tunnel's packets (Geneve) to another node, with a frame for another tenant's pod",
        "no pod gets the frame inside",
    ),
    row(
        91,
        Party::Pod,
        "first packets of 50,000 connections",
        "nobody notices",
    ),
    row(
        92,
        Party::Pod,
        "packets to 20,000 addresses that nobody has",
        "nobody notices",
    ),
    row(
        93,
        Party::Pod,
        "20,000 questions of ARP",
        "nobody notices",
    ),
    row(
        95,
        Party::Pod,
        "row 90 with local gateways",
        "no pod gets the frame inside",
    ),
    row(
        96,
        Party::Pod,
        "row 87 with local gateways",
        "the world gets none of them",
    ),
    row(
        97,
        Party::Pod,
        "row 86 with local gateways",
        "nobody gets them",
    ),
];
