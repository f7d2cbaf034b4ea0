//! `cnitool`, the caller that administrators use, with the configuration that the server writes.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use integration::{Lab, Node, Outcome, Pod, eventually};
use serde_json::{Value, json};

use crate::support::shape::must_be_result;

/// Starts the server and waits for its configuration.
fn start(node: &Node) -> Result<Value> {
    node.start_server()?;
    let file = node.cni_conf();
    eventually("the server has written the configuration", Duration::from_secs(5), || {
        Ok(serde_json::from_str(
            &fs::read_to_string(&file).with_context(|| file.display().to_string())?,
        )?)
    })
}

fn cnitool(node: &Node, verb: &str, pod: &Pod) -> Result<Outcome> {
    node.runtime().cnitool(verb, pod)?.run()
}

#[test]
fn add_check_and_del_work_with_the_configuration_that_the_server_wrote() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        let [pod, other] = [lab.new_pod(node)?, lab.new_pod(node)?];
        let configuration = start(node)?;
        let before = node.census()?;
        ensure!(
            configuration["name"] == "ovn-kubernetes" && configuration["cniVersion"] == "1.0.0",
            "{configuration:#}"
        );
        ensure!(
            configuration["cniVersions"] == json!(["0.4.0", "1.0.0", "1.1.0"]),
            "{configuration:#}"
        );

        for pod in [&pod, &other] {
            // The newest version that cnitool and the configuration have in common.
            must_be_result("1.1.0", &cnitool(node, "add", pod)?.success()?)?;
        }
        lab.ping(&pod, other.address())?;
        lab.tcp(&other, &pod, 1 << 20)?;
        cnitool(node, "check", &pod)?.success()?;
        node.run_in_pod(&pod, ["ip", "route", "del", "default"])?;
        let spoilt = cnitool(node, "check", &pod)?;
        ensure!(
            !spoilt.status.success() && format!("{spoilt:?}").contains("routes of eth0"),
            "{spoilt:?}"
        );

        for _ in 0..2 {
            cnitool(node, "del", &pod)?.success()?;
            cnitool(node, "del", &other)?.success()?;
        }
        before.must_equal(&node.census()?)
    });
}

#[test]
fn status_tells_whether_pods_can_be_added() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        let pod = lab.new_pod(node)?;
        start(node)?;
        cnitool(node, "status", &pod)?.success()?;
        node.server.stop()?;
        node.forget_server()?;
        let outcome = cnitool(node, "status", &pod)?;
        ensure!(
            !outcome.status.success() && format!("{outcome:?}").contains("node-local server"),
            "{outcome:?}"
        );
        Ok(())
    });
}

/// cnitool passes no valid attachments, so that everything is stale.
#[test]
fn gc_removes_everything_of_the_network() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        let pods = lab.new_pods(node, 2)?;
        start(node)?;
        let before = node.census()?;
        for pod in &pods {
            cnitool(node, "add", pod)?.success()?;
        }
        cnitool(node, "gc", &pods[0])?.success()?;
        before.must_equal(&node.census()?)?;
        pods.iter().try_for_each(|pod| cnitool(node, "del", pod)?.success().map(drop))
    });
}
