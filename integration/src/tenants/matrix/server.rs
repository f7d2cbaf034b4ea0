//! The service account of a node's server.

use super::{Party, Row, row};

pub(super) const ROWS: &[Row] = &[
    row(
        59,
        Party::Server,
        "a node's server writes another node's annotations",
        "the API server refuses",
    )
    .beside("with upstream's manifests one node's account may write all nodes, unless the interconnect's admission policy is installed")
    .fails("Kubernetes' roles know no node; an admission policy is missing"),
    row(
        60,
        Party::Server,
        "a node's server writes annotations and status of pods, of its own node and another",
        "the API server refuses",
    ),
    row(
        61,
        Party::Server,
        "a node's server reads secrets, makes and deletes policies, deletes nodes, makes tokens",
        "the API server refuses",
    ),
];
