//! What other rows try, where pods leave through their host: the bridge does not see them.

use crate::tenants::{
    neighbour::a_route_to_a_closed_pod,
    raw::{a_tunnel_to_another_node, false_addresses_to_the_world, through_the_hosts_end},
    services::a_closed_pod_behind_a_node_port,
    site::Body,
};

pub(crate) const ROWS: &[(u8, Body)] = &[
    (95, a_tunnel_to_another_node),
    (96, false_addresses_to_the_world),
    (97, through_the_hosts_end),
    (98, a_route_to_a_closed_pod),
    (99, a_closed_pod_behind_a_node_port),
];
