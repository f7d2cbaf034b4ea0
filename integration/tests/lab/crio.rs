//! CRI-O's calls, by its own package: the sandbox that is run, looked at and stopped twice, the
//! state of the network, and CRI-O's start, at which sandboxes of before may be gone.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use integration::{Lab, Node, eventually};

fn start(node: &Node) -> Result<()> {
    node.start_server()?;
    eventually("the server has written the configuration", Duration::from_secs(5), || {
        fs::metadata(node.cni_conf()).map(drop).context("the configuration")
    })
}

#[test]
fn a_sandbox_of_crios_is_added_checked_with_the_cached_result_and_deleted_twice() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        let [pod, other] = [lab.new_pod(node)?, lab.new_pod(node)?];
        start(node)?;
        let before = node.census()?;
        node.ocicni("status", &[])?.success()?;
        for pod in [&pod, &other] {
            let result = node.ocicni("add", &[pod])?.success()?;
            ensure!(result["ips"][0]["address"].is_string(), "{result}");
        }
        lab.ping(&pod, other.address())?;
        lab.tcp(&other, &pod, 1 << 20)?;
        node.ocicni("check", &[&pod])?.success()?;
        node.run_in_pod(&pod, ["ip", "route", "del", "default"])?;
        let spoilt = node.ocicni("check", &[&pod])?;
        ensure!(
            !spoilt.status.success() && format!("{spoilt:?}").contains("routes of eth0"),
            "{spoilt:?}"
        );
        // Once the pod is stopped, and once its sandbox is removed.
        for _ in 0..2 {
            node.ocicni("del", &[&pod])?.success()?;
            node.ocicni("del", &[&other])?.success()?;
        }
        before.must_equal(&node.census()?)
    });
}

#[test]
fn a_start_of_crios_removes_what_sandboxes_have_left_that_are_gone_and_nothing_else() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        let [kept, gone] = [lab.new_pod(node)?, lab.new_pod(node)?];
        start(node)?;
        node.ocicni("add", &[&kept])?.success()?;
        let with_one = node.census()?;
        node.ocicni("add", &[&gone])?.success()?;
        ensure!(with_one.must_equal(&node.census()?).is_err(), "the second pod has made nothing");
        node.ocicni("gc", &[&kept])?.success()?;
        with_one.must_equal(&node.census()?)?;
        node.ocicni("check", &[&kept])?.success()?;
        node.ocicni("del", &[&gone])?.success()?;
        node.ocicni("del", &[&kept])?.success().map(drop)
    });
}

#[test]
fn crio_is_told_while_the_server_is_away_that_the_network_is_not_ready() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        start(node)?;
        node.ocicni("status", &[])?.success()?;
        node.server.stop()?;
        node.forget_server()?;
        let outcome = node.ocicni("status", &[])?;
        ensure!(
            !outcome.status.success() && format!("{outcome:?}").contains("node-local server"),
            "{outcome:?}"
        );
        Ok(())
    });
}
