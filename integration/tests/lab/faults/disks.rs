//! Disks that are full or cannot be written: logs, the runtime's cache, the server's own
//! directories.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Outcome, eventually,
    faults::{AT_ONCE, SHORTLY, Site, row},
    node::SERVER_SOCKET,
};

use crate::faults::keeper::{METRICS, counter};

const LOGS: &str = "/var/log/openvswitch";
/// The server's count of lines that its log has lost.
const LOST: &str = "ovnkube_node_log_lines_lost_total";

// --- 41
// ----------------------------------------------------------------------------------------------------

/// A pod comes and goes without delay while `what` is wrong with the log directory; no log line
/// appears on standard error.
fn a_pod_comes_and_goes(site: &Site<'_>, what: &str) -> Result<()> {
    let works = || {
        let pod = site.new_pod()?;
        let added = site.add(&pod)?;
        added.success()?;
        site.has_network(&pod)?;
        let deleted = site.del(&pod)?;
        deleted.success()?;
        for Outcome { stderr, duration, .. } in [added, deleted] {
            ensure!(duration < AT_ONCE, "it took {duration:?}");
            ensure!(stderr.is_empty(), "it says: {stderr}");
        }
        site.nothing_of(&pod)
    };
    works().with_context(|| format!("logs: {what}"))
}

#[test]
fn row_41_pods_come_and_go_while_the_log_directory_is_full() {
    row(41).test(|site| {
        site.node.mount_full_disk(LOGS, 64)?;
        a_pod_comes_and_goes(site, "full disk")?;
        // The server reopens its log when the path leads to another file; on the full disk it then
        // cannot write.
        site.node.unmount(LOGS)?;
        log_grows(site)
    });
}

#[test]
fn row_41_pods_come_and_go_while_the_log_directory_is_read_only() {
    row(41).test(|site| {
        site.node.mount_read_only(LOGS)?;
        a_pod_comes_and_goes(site, "read-only")?;
        site.node.unmount(LOGS)?;
        log_grows(site)
    });
}

#[test]
fn row_41_a_log_file_that_is_full_loses_lines_which_are_counted_and_no_pods() {
    row(41).test(|site| {
        let node = site.node;
        let usual = node.server.arguments();
        node.server.stop()?;
        let measured = ["--metrics-bind-address".to_owned(), METRICS.to_owned()];
        node.server.set_arguments(usual.iter().cloned().chain(measured));
        node.start_server()?;
        site.until_healthy()?;
        ensure!(counter(site, LOST)? == 0, "lines are lost on a disk with room");
        // Every write to /dev/full fails with ENOSPC.
        for log in ["ovn-k8s-cni-overlay.log", "ovnkube.log"] {
            node.shell(&format!(
                "mv {LOGS}/{log} {LOGS}/{log}.kept; ln -s /dev/full {LOGS}/{log}"
            ))?;
        }
        // The server looks at the path once a second.
        eventually("lost lines are counted", SHORTLY, || {
            a_pod_comes_and_goes(site, "ENOSPC")?;
            ensure!(counter(site, LOST)? > 0, "no line is lost");
            Ok(())
        })?;
        for log in ["ovn-k8s-cni-overlay.log", "ovnkube.log"] {
            node.shell(&format!("rm {LOGS}/{log}; mv {LOGS}/{log}.kept {LOGS}/{log}"))?;
        }
        log_grows(site)?;
        node.server.stop()?;
        node.server.set_arguments(usual);
        node.start_server()
    });
}

/// Plugin and server create a missing log directory themselves.
#[test]
fn row_41_pods_come_and_go_while_the_log_directory_is_missing() {
    row(41).test(|site| {
        // The default directory is a mount of the lab and cannot be missing, so this test uses
        // another path.
        let log = "/run/no-such-directory/plugin.log";
        let pod = site.new_pod()?;
        let runtime = site.node.runtime().with("logFile", serde_json::json!(log));
        runtime.add(&pod)?.success()?;
        site.has_network(&pod)?;
        ensure!(site.node.path(log).is_file(), "the plugin's log was not made, with its directory");
        runtime.del(&pod)?.success()?;
        // Nor does an ADD need a directory that cannot be created.
        let runtime = site
            .node
            .runtime()
            .with("logFile", serde_json::json!("/proc/no-such-directory/plugin.log"));
        runtime.add(&pod)?.success()?;
        site.has_network(&pod)?;
        runtime.del(&pod)?.success()?;
        fs::remove_dir_all(site.node.path("/run/no-such-directory"))?;
        Ok(())
    });
}

/// Once there is room again, both logs contain the next pod.
fn log_grows(site: &Site<'_>) -> Result<()> {
    for log in ["ovn-k8s-cni-overlay.log", "ovnkube.log"] {
        eventually(&format!("{log} tells of the next pod"), SHORTLY, || {
            let pod = site.new_pod()?;
            site.add(&pod)?.success()?;
            site.del(&pod)?.success()?;
            // The server looks at the path once a second: the next attempt has a pod of its own.
            let text = fs::read_to_string(site.node.path(LOGS).join(log))?;
            ensure!(text.contains(&pod.name), "{log} does not");
            Ok(())
        })?;
    }
    Ok(())
}

// --- 42
// ----------------------------------------------------------------------------------------------------

/// libcni writes the result of an ADD into this directory.
const CACHE: &str = "/var/lib/cni";

#[test]
fn row_42_a_runtime_that_cannot_keep_the_result_of_add_is_helped_by_del() {
    row(42).test(|site| {
        let node = site.node;
        let configuration = node.cni_conf();
        eventually("the server has written the configuration", SHORTLY, || {
            Ok(fs::metadata(&configuration).map(drop)?)
        })?;
        let pod = site.new_pod()?;
        let before = node.census()?;
        node.mount_full_disk(CACHE, 16)?;
        let added = node.runtime().cnitool("add", &pod)?.run()?;
        ensure!(!added.status.success(), "the runtime kept the result on a full disk: {added:?}");
        ensure!(
            format!("{added:?}").contains("no space left"),
            "it failed for another reason: {added:?}"
        );
        // The plugin did not fail: its link and port are there.
        ensure!(before != node.census()?, "ADD has made nothing");
        // DEL without the result of the ADD, which could not be stored.
        node.runtime().cnitool("del", &pod)?.run()?.success()?;
        before.must_equal(&node.census()?)?;
        node.unmount(CACHE)?;
        node.runtime().cnitool("add", &pod)?.run()?.success()?;
        site.lab.reaches_gateway(&pod)?;
        node.runtime().cnitool("del", &pod)?.run()?.success()?;
        before.must_equal(&node.census()?)
    });
}

// --- 43
// ----------------------------------------------------------------------------------------------------

/// Starts the server on a node where it cannot make its socket; returns what it says on standard
/// error before it exits with status 1.
fn refuses_to_start(site: &Site<'_>) -> Result<String> {
    let node = site.node;
    let before = fs::read_to_string(node.server.log()).unwrap_or_default().len();
    node.server.spawn()?;
    let status = eventually("the server ends", Duration::from_secs(10), || {
        node.server.end()?.context("it runs")
    })?;
    ensure!(status.code() == Some(1), "{status}");
    let said = fs::read_to_string(node.server.log())?.split_off(before);
    ensure!(said.contains("ovnkube: "), "it says nothing on standard error: {said:?}");
    Ok(said)
}

fn status_is_50(site: &Site<'_>) -> Result<()> {
    let outcome = site.node.runtime().status()?;
    let error = outcome.failure()?;
    ensure!(error.code == 50 && error.msg.contains("node-local server"), "{error:?}");
    ensure!(outcome.duration < AT_ONCE, "STATUS took {:?}", outcome.duration);
    Ok(())
}

#[test]
fn row_43_a_server_that_cannot_make_its_socket_on_a_full_disk_says_so() {
    row(43).test(|site| {
        let node = site.node;
        node.server.stop()?;
        // The disk for the server's directory has no free byte and no free inode.
        node.shell(
            "rm -rf /run/ovn-kubernetes; mkdir /run/ovn-kubernetes; \
             mount -t tmpfs -o size=4k,nr_inodes=1 full /run/ovn-kubernetes",
        )?;
        let said = refuses_to_start(site)?;
        ensure!(
            said.contains("/ovn-kubernetes/cni") && said.contains("No space left on device"),
            "{said}"
        );
        status_is_50(site)?;
        node.unmount("/run/ovn-kubernetes")?;
        node.start_server()
    });
}

#[test]
fn row_43_a_server_that_cannot_make_its_socket_on_a_read_only_disk_says_so() {
    row(43).test(|site| {
        let node = site.node;
        node.server.stop()?;
        node.shell("mkdir -p /run/ovn-kubernetes; rm -rf /run/ovn-kubernetes/*")?;
        node.mount_read_only("/run/ovn-kubernetes")?;
        let said = refuses_to_start(site)?;
        ensure!(
            said.contains("/ovn-kubernetes/cni") && said.contains("Read-only file system"),
            "{said}"
        );
        status_is_50(site)?;
        ensure!(!node.path(SERVER_SOCKET).exists(), "there is a socket");
        node.unmount("/run/ovn-kubernetes")?;
        node.start_server()
    });
}
