//! The matrix of tenants: every row is a function that tries something, checks what is the row's
//! own, and returns the figure that it has seen. `make tenants` runs them and prints a line for
//! each.
//!
//! ```ignore
//! /// With `(12, a_policy_is_dear)` among the module's `ROWS`.
//! fn a_policy_is_dear(site: &Site<'_>) -> Result<String> {
//!     site.put(&policy(json!({"podSelector": {}, "ingress": vec![json!({}); 400_000]})))?;   // removed afterwards
//!     Ok(format!("event {}", site.told(&["TooLarge"])?))
//! }
//! ```
//!
//! Rows of a module share one cluster, [`site::Site`]. A [`bystander::Bystander`] is beside each of
//! them: no packet of its connections may be lost, its policy stays closed, a new pod of its takes
//! at most twice the time, the northbound database answers, and the control plane keeps its memory.
//! The rows, and which are known to fail: [`integration::tenants::matrix`].
//!
//! | file | who tries it |
//! |---|---|
//! | `policies` | a user with all rights in one namespace: NetworkPolicies, EgressFirewalls, namespaces' annotations |
//! | `services` | the same user: Services and EndpointSlices |
//! | `pods` | the same user: pods, their annotations and labels |
//! | `raw` | a pod with NET_RAW |
//! | `kubelet` | one kubelet's credential: everything that is read of a Node |
//! | `kubernetes` | the same, and a node's service account: what the API server lets them write |
//! | `other_zone` | a compromised node of another zone: its annotations |
//! | `neighbour` | a machine on the nodes' layer 2 |
//! | `zone` | whoever runs a DNS zone |
//! | `prober` | whoever probes health checks and metrics |
//! | `local_gateway` | several of them, with local gateways |
//! | `site`, `bystander`, `watch`, `objects` | where rows are tried, and what is looked at beside them |

mod bystander;
mod kubelet;
mod kubernetes;
mod local_gateway;
mod neighbour;
mod objects;
mod other_zone;
mod pods;
mod policies;
mod prober;
mod raw;
mod services;
mod site;
mod watch;
mod zone;

use integration::{cluster::GatewayMode, inside, tenants::matrix};

use site::{Body, try_rows};

/// All rows.
const ALL: &[&[(u8, Body)]] = &[
    policies::ROWS,
    services::ROWS,
    pods::ROWS,
    raw::ROWS,
    kubelet::ROWS,
    kubernetes::ROWS,
    other_zone::ROWS,
    neighbour::ROWS,
    zone::ROWS,
    prober::ROWS,
    local_gateway::ROWS,
];

#[test]
fn a_user_of_a_namespace_writes_policies() {
    inside(|| try_rows(policies::ROWS, GatewayMode::Shared));
}

#[test]
fn a_user_of_a_namespace_writes_services() {
    inside(|| try_rows(services::ROWS, GatewayMode::Shared));
}

#[test]
fn a_pod_has_a_raw_socket() {
    inside(|| try_rows(raw::ROWS, GatewayMode::Shared));
}

#[test]
fn a_user_of_a_namespace_writes_pods() {
    inside(|| try_rows(pods::ROWS, GatewayMode::Shared));
}

#[test]
fn a_kubelets_credential_writes_its_node() {
    inside(|| try_rows(kubelet::ROWS, GatewayMode::Shared));
}

#[test]
fn a_node_of_another_zone_is_compromised() {
    inside(|| other_zone::try_rows(other_zone::ROWS));
}

#[test]
fn a_machine_is_beside_the_nodes() {
    inside(|| try_rows(neighbour::ROWS, GatewayMode::Shared));
}

#[test]
fn a_zone_answers_as_it_likes() {
    inside(|| try_rows(zone::ROWS, GatewayMode::Shared));
}

#[test]
fn a_prober_is_slow() {
    inside(|| try_rows(prober::ROWS, GatewayMode::Shared));
}

#[test]
fn gateways_are_local() {
    inside(|| try_rows(local_gateway::ROWS, GatewayMode::Local));
}

/// A row without a body would count as one that was not tried.
#[test]
fn every_row_of_the_matrix_is_tried_once() {
    let mut tried: Vec<u8> = ALL.concat().iter().map(|(number, _)| *number).collect();
    tried.sort_unstable();
    assert_eq!(tried, matrix::ROWS.iter().map(|row| row.number).collect::<Vec<u8>>());
}
