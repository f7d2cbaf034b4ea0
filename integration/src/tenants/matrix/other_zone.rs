//! A compromised node of another zone.

use super::{Party, Row, row};

pub(super) const ROWS: &[Row] = &[
    row(
        102,
        Party::OtherZone,
        "subnets outside of the cluster's ranges: the world's, hosts', those of Services, \
         and everything",
        "no route leads to them",
    ),
    row(
        103,
        Party::OtherZone,
        "the subnets of a node of this zone and of a third zone",
        "the other nodes' rows stay as they were",
    ),
    row(
        104,
        Party::OtherZone,
        "the chassis and the tunnels' address of a node of this zone and of a third zone",
        "the other nodes' rows stay as they were",
    ),
    row(
        105,
        Party::OtherZone,
        "tunnels to loopback, link-local, multicast, broadcast and mapped addresses; \
         numbers and transit addresses that are no node's",
        "no row has them",
    ),
    row(
        106,
        Party::OtherZone,
        "1,000 times that it moves into this zone, and does not",
        "its rows are written and removed 15 times in the first minute at the most, with an event",
    ),
    row(
        107,
        Party::OtherZone,
        "10,000 values of annotations, each of 13 kB",
        "the other nodes' rows stay as they were",
    ),
    row(
        108,
        Party::OtherZone,
        "half of the cluster's ranges as its subnet, while all of it is free",
        "it has what it was given, and so has a new node",
    )
    .fails(
        "a node's annotation is the only record of its subnet: one that is free is believed, \
         however large it is, and new nodes get what is left",
    ),
];
