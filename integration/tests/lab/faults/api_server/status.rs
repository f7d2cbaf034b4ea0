//! Runtimes ask for STATUS while the API server is away for a minute: a simulated one, and
//! containerd 2 with its kubelet.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use integration::{
    Cluster, Lab,
    cluster::Containerd,
    eventually,
    faults::{Kubernetes, row},
    let_pass,
};
use serde_json::json;

use super::SOON;
use crate::faults::runtimes::{connection_is, ready_all_the_time};
use crate::support::in_service::Scene;

/// The API server is away for this long: an upgrade of it takes about a minute.
const AWAY: Duration = Duration::from_secs(60);

#[test]
fn row_67_no_node_is_taken_out_of_service_while_the_api_server_is_away_for_a_minute() {
    Lab::of_nodes(1).test(|lab| {
        let kubernetes = Kubernetes::start(lab)?;
        // The server writes the CNI configuration once the node has its subnet and its management
        // port.
        let node = &lab.nodes[0];
        let subnets = json!({"default": node.subnets}).to_string();
        let annotated = json!({"metadata": {"annotations": {"k8s.ovn.org/node-subnets": subnets}}});
        kubernetes.api.patch(&format!("/api/v1/nodes/{}", node.name), &annotated)?;
        node.start_server()?;
        eventually("the CNI configuration is written", SOON, || {
            fs::metadata(node.cni_conf()).context("there is none").map(drop)
        })?;
        row(67).within(Duration::from_secs(180)).hold_in(lab, |site| {
            ready_all_the_time(site, || {
                kubernetes.proxy.go_away();
                let back = Instant::now() + AWAY;
                site.lab.central.southbound.kill()?;
                connection_is(site, "not connected")?;
                site.lab.central.start_southbound()?;
                let_pass(back.saturating_duration_since(Instant::now()));
                // The DaemonSet is rolled out at the worst moment.
                site.node.server.stop()?;
                site.node.start_server()?;
                kubernetes.proxy.come_back()
            })?;
            site.until_healthy()
        })
    });
}

#[test]
fn row_67_no_node_becomes_not_ready_and_no_service_loses_an_endpoint_under_containerd_2() {
    Cluster::of_nodes(2).containerd(Containerd::Two).test(|cluster| {
        let scene = Scene::begin(cluster)?;
        scene.unnoticed("the southbound database restarts", || {
            scene.southbound_database_restarts()
        })?;
        scene.unnoticed("the API server is away", || scene.api_server_is_away())?;
        scene.unnoticed("the servers are replaced", || scene.servers_are_replaced())?;
        scene.a_missing_server_is_noticed_and_pods_go()
    });
}
