//! Bandwidth annotations: they limit one interface only, in Open vSwitch and in the kernel, and DEL
//! removes the limits.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use integration::{Datapath, Lab, Node, Pod, eventually};

use crate::support::attached::{attach, detach, manifest_with, place};
use crate::support::second::Second;
use crate::support::view::column;

const INGRESS: &str = "kubernetes.io/ingress-bandwidth";
const EGRESS: &str = "kubernetes.io/egress-bandwidth";

fn new_pod(lab: &Lab, node: &Node, limits: &[(&str, &str)]) -> Result<Pod> {
    let pod = lab.plan_pod(node);
    place(lab, node, &pod, &manifest_with(&pod, limits))?;
    Ok(pod)
}

/// Number of QoS rows.
fn qos_rows(node: &Node) -> Result<usize> {
    Ok(node.vsctl(["--bare", "--columns=_uuid", "find", "QoS"])?.split_whitespace().count())
}

/// Checks that the port has exactly these limits: `ingress` in bits per second to the pod, `egress`
/// in kilobits per second from it.
fn must_have(node: &Node, port: &str, ingress: Option<u64>, egress: u64) -> Result<()> {
    let qos = column(node, "Port", port, "qos")?;
    match ingress {
        None => ensure!(qos == "[]", "port {port} has a QoS row"),
        Some(rate) => {
            ensure!(qos != "[]", "port {port} has no QoS row");
            let found = column(node, "QoS", &qos, "other_config:max-rate")?;
            ensure!(found == format!("\"{rate}\""), "port {port} may receive {found}, not {rate}");
            let kind = column(node, "QoS", &qos, "type")?;
            ensure!(kind == "linux-htb", "type {kind}");
        }
    }
    let found = column(node, "Interface", port, "ingress_policing_rate")?;
    ensure!(found == egress.to_string(), "port {port} may send {found} kbit/s, not {egress}");
    let burst: u64 = column(node, "Interface", port, "ingress_policing_burst")?.parse()?;
    ensure!((burst > 0) == (egress > 0), "burst {burst} with rate {egress}");
    ensure!(
        burst == 0 || burst * 1000 >= 64 * 1024 * 8,
        "a packet of 64 KiB never passes: burst {burst} with rate {egress}"
    );
    Ok(())
}

#[test]
fn limits_are_of_the_interface_that_asks_for_them_and_of_no_other() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let both = new_pod(lab, node, &[(INGRESS, "10M"), (EGRESS, "5M")])?;
        let receives = new_pod(lab, node, &[(INGRESS, "20M")])?;
        let sends = new_pod(lab, node, &[(EGRESS, "1500001m")])?;
        let free = new_pod(lab, node, &[])?;
        let before = node.census()?;
        for pod in [&both, &receives, &sends, &free] {
            attach(node, pod.clone())?;
        }
        let must_be = || {
            must_have(node, &receives.host_interface(), Some(20_000_000), 0)?;
            // Open vSwitch counts in kilobits; the plugin rounds up, so that a pod never gets less
            // than its limit.
            must_have(node, &sends.host_interface(), None, 2)?;
            must_have(node, &free.host_interface(), None, 0)
        };
        must_have(node, &both.host_interface(), Some(10_000_000), 5_000)?;
        must_be()?;
        ensure!(qos_rows(node)? == 2, "{} QoS rows", qos_rows(node)?);
        let in_the_kernel =
            |pod: &Pod| node.run(["tc", "class", "show", "dev", &pod.host_interface()]);
        eventually("ovs-vswitchd has told the kernel", Duration::from_secs(5), || {
            let classes = in_the_kernel(&both)?;
            ensure!(classes.contains("htb") && classes.contains("ceil 10Mbit"), "{classes:?}");
            Ok(())
        })?;
        ensure!(in_the_kernel(&free)?.is_empty(), "{}", in_the_kernel(&free)?);

        detach(node, &both)?;
        must_be()?;
        ensure!(qos_rows(node)? == 1, "{} QoS rows after DEL", qos_rows(node)?);
        for pod in [&receives, &sends, &free] {
            detach(node, pod)?;
        }
        before.must_equal(&node.census()?)
    });
}

#[test]
fn a_limited_pod_receives_no_faster_than_it_may() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let slow = new_pod(lab, node, &[(INGRESS, "4M")])?;
        let fast = new_pod(lab, node, &[])?;
        attach(node, slow.clone())?;
        attach(node, fast.clone())?;
        eventually("ovs-vswitchd has told the kernel", Duration::from_secs(5), || {
            let classes = node.run(["tc", "class", "show", "dev", &slow.host_interface()])?;
            ensure!(classes.contains("ceil 4Mbit"), "{classes:?}");
            Ok(())
        })?;
        lab.ping(&fast, slow.address())?;
        let began = Instant::now();
        lab.tcp(&fast, &slow, 1 << 20)?;
        let (limited, began) = (began.elapsed(), Instant::now());
        lab.tcp(&slow, &fast, 1 << 20)?;
        let free = began.elapsed();
        // 8 Mbit at 4 Mbit/s take 2 s; the limit allows for a generous burst.
        ensure!(limited > Duration::from_millis(1200), "1 MiB in {limited:?}");
        ensure!(free < limited / 2, "the other direction is limited, too: {free:?}");
        detach(node, &slow)?;
        detach(node, &fast)
    });
}

/// On the kernel's datapath the limit holds, and TCP gets nearly all of it; in user space nothing
/// polices, and the server says so.
#[test]
fn a_limited_pod_sends_no_faster_than_it_may_or_the_server_says_that_it_is_not_limited() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let slow = new_pod(lab, node, &[(EGRESS, "8M")])?;
        let fast = new_pod(lab, node, &[])?;
        attach(node, slow.clone())?;
        attach(node, fast.clone())?;
        let said = node.server_log()?.matches("the pod's egress limit has no effect").count();
        if Datapath::of_lab() == Datapath::Netdev {
            ensure!(said == 1, "{}", node.server_log()?);
            return Ok(());
        }
        ensure!(said == 0, "{}", node.server_log()?);
        lab.ping(&slow, fast.address())?;
        // What it takes to start both ends.
        let began = Instant::now();
        lab.tcp(&slow, &fast, 1)?;
        let (idle, began) = (began.elapsed(), Instant::now());
        lab.tcp(&slow, &fast, 8 << 20)?;
        let took = began.elapsed().saturating_sub(idle);
        // 67 Mbit at 8 Mbit/s take 8.4 s, less the burst of a quarter of a second.
        ensure!(took > Duration::from_millis(7_500), "8 MiB in {took:?}: the limit does not hold");
        ensure!(
            took < Duration::from_millis(10_500),
            "8 MiB in {took:?}: less than 80 % of the limit"
        );
        detach(node, &slow)?;
        detach(node, &fast)
    });
}

#[test]
fn interfaces_of_one_pod_do_not_clear_each_others_limits() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let blue = Second::create(lab, "blue")?;
        let pod = blue.new_pods(lab, node, 1)?.remove(0);
        // Add limits to the manifest with both networks.
        let manifest =
            std::fs::read_to_string(node.path("/run/pod-manifests").join(pod.manifest_name()))?;
        let limits = format!("\n  annotations:\n    {INGRESS}: 10M\n    {EGRESS}: 5M");
        node.server.stop()?;
        node.write_manifest_text(&pod, &manifest.replacen("\n  annotations:", &limits, 1))?;
        node.start_server()?;

        let before = node.census()?;
        attach(node, pod.clone())?;
        let alone = node.census()?;
        must_have(node, &pod.host_interface(), Some(10_000_000), 5_000)?;
        blue.runtime(node).add(&pod)?.success()?;
        must_have(node, &pod.host_interface(), Some(10_000_000), 5_000)?;
        blue.runtime(node).del(&pod)?.success()?;
        must_have(node, &pod.host_interface(), Some(10_000_000), 5_000)?;
        alone.must_equal(&node.census()?)?;
        detach(node, &pod)?;
        before.must_equal(&node.census()?)
    });
}

#[test]
fn a_newer_sandbox_takes_the_limits_with_the_port() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let older = new_pod(lab, node, &[(INGRESS, "10M"), (EGRESS, "5M")])?;
        let newer = older.next_sandbox();
        node.add_namespaces(std::slice::from_ref(&newer))?;
        let before = node.census()?;
        attach(node, older.clone())?;
        attach(node, newer.clone())?;
        ensure!(qos_rows(node)? == 1, "{} QoS rows", qos_rows(node)?);
        detach(node, &older)?;
        must_have(node, &newer.host_interface(), Some(10_000_000), 5_000)?;
        detach(node, &newer)?;
        before.must_equal(&node.census()?)
    });
}

#[test]
fn a_limit_that_is_none_is_refused_and_named() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        for (annotation, value) in [(INGRESS, "fast"), (EGRESS, "10"), (EGRESS, "-5M")] {
            let pod = new_pod(lab, node, &[(annotation, value)])?;
            let before = node.census()?;
            let error = node.runtime().add(&pod)?.failure()?;
            ensure!(
                error.code == 100 && error.msg.contains(annotation) && error.msg.contains(value),
                "{error:?}"
            );
            before.must_equal(&node.census()?)?;
        }
        Ok(())
    });
}
