//! The service account of a node's server.

use super::{Party, Row, row};

pub(super) const ROWS: &[Row] = &[
    row(
        59,
        Party::Server,
        "a node's server writes another node's annotations",
        "the API server refuses",
    )
    .beside("by Kubernetes' roles alone it may: the manifests' policy of admission has to be installed (Kubernetes 1.30), and the server's credential to be its certificate (`--cert-dir`) or the token of a pod"),
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
