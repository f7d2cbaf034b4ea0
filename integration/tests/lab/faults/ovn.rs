//! ovn-controller, ovn-northd, the southbound database, and a missing logical port.

use std::{
    slice,
    time::{Duration, Instant, SystemTime},
};

use crate::faults::keeper::{METRICS, page};
use anyhow::{Context as _, Result, ensure};
use integration::{
    Pod, eventually,
    faults::{Site, promptly, row},
};

#[test]
fn row_20_without_ovn_controller_add_ends_at_its_deadline_and_names_it() {
    row(20).test(|site| {
        let pod = site.new_pod()?;
        site.node.ovn_controller.kill()?;
        let outcome = site.add_within(2, &pod)?;
        let error = site.failed(&pod, &outcome, 11, &["stage ovn_installed"])?;
        ensure!(
            error.details.starts_with("ovn-controller does not respond"),
            "the hint does not name it: {error:?}"
        );
        site.status_is(50, &["ovn-controller does not answer"])?;
        // Until here the bystanders may not lose a packet.
        site.bystanders_reach_each_other()?;
        keeps_flows(site)?;
        site.node.start_ovn_controller()
    });
}

/// Makes ovn-controller keep the flows that it finds at its start, until it has computed the new
/// ones.
fn keeps_flows(site: &Site<'_>) -> Result<()> {
    site.node
        .vsctl(["set", "Open_vSwitch", ".", "external_ids:ovn-ofctrl-wait-before-clear=3000"])
        .map(drop)
}

#[test]
fn row_21_a_burst_of_adds_outlasts_a_restart_of_ovn_controller_and_nobody_else_notices() {
    row(21).within(Duration::from_secs(60)).test(|site| {
        keeps_flows(site)?;
        let pods = site.new_pods(20)?;
        let (early, late) = pods.split_at(10);
        let mut adding = site.start_adds(early)?;
        site.node.ovn_controller.kill()?;
        adding.extend(site.start_adds(late)?);
        site.node.start_ovn_controller()?;
        for (add, pod) in adding.into_iter().zip(&pods) {
            add.wait()?.success().with_context(|| pod.name.clone())?;
        }
        pods.iter().try_for_each(|pod| site.one_port_of(pod).and_then(|()| site.has_network(pod)))
    });
}

/// How many ADDs are measured.
const TRIES: usize = 5;

/// The time since ovn-controller had installed the pod's flows, by its own mark (milliseconds since
/// 1970).
fn since_installed(site: &Site<'_>, pod: &Pod) -> Result<Duration> {
    let now = SystemTime::now();
    let mark = ["get", "Interface", &pod.host_interface(), "external_ids:ovn-installed-ts"];
    let installed: u64 = site.node.vsctl(mark)?.trim().trim_matches('"').parse()?;
    let installed = SystemTime::UNIX_EPOCH + Duration::from_millis(installed);
    Ok(now.duration_since(installed).unwrap_or_default())
}

#[test]
fn row_22_a_logical_port_that_comes_late_is_waited_for_and_one_that_never_comes_until_the_deadline()
{
    row(22).test(|site| {
        // OVN has no port of the first pod, and a port of an earlier incarnation of the second.
        let (unknown, earlier) = (site.lab.plan_pod(site.node), site.lab.plan_pod(site.node));
        site.lab.add_ports(slice::from_ref(&earlier))?;
        let pods = [site.adopt(unknown)?, site.adopt(earlier.recreated())?];
        pods.iter().try_for_each(|pod| site.node.write_manifest(pod))?;
        let waiting = pods.iter().map(|pod| site.start_add_within(2, pod)).collect::<Result<Vec<_>>>()?;
        for (add, pod) in waiting.into_iter().zip(&pods) {
            site.failed(pod, &add.wait()?, 11, &["stage ovn_installed"])?;
        }

        let [unknown, other_uid] = &pods;
        let late_ones = (1..TRIES).map(|_| {
            let pod = site.adopt(site.lab.plan_pod(site.node))?;
            site.node.write_manifest(&pod)?;
            Ok(pod)
        });
        let late_ones = late_ones.collect::<Result<Vec<_>>>()?;
        let (mut all, mut own) = (Vec::new(), Vec::new());
        for pod in late_ones.iter().chain([unknown]) {
            let late = site.start_add_within(20, pod)?;
            site.has_ofport(pod)?;
            let came = Instant::now();
            site.lab.add_ports(slice::from_ref(pod))?;
            late.wait()?.success()?;
            all.push(came.elapsed());
            own.push(since_installed(site, pod)?);
            site.has_network(pod)?;
        }
        println!(
            "from the logical port to the end of the ADD: {all:?}; since OVN has done its part: {own:?}"
        );
        // All of it was 42 to 170 ms at a load of 20, most of it OVN's, which grows with the load.
        promptly(&own).context("from the installed flows to the end of the ADD")?;

        let late = site.start_add_within(20, other_uid)?;
        site.has_ofport(other_uid)?;
        let uid = format!("options:iface-id-ver={}", other_uid.uid);
        site.lab.central.nbctl(["set", "Logical_Switch_Port", &other_uid.port(), &uid])?;
        late.wait()?.success()?;
        site.has_network(other_uid)
    });
}

#[test]
fn row_23_without_ovn_northd_the_node_is_well_and_adds_wait() {
    row(23).test(|site| {
        site.lab.central.northd.kill()?;
        site.node
            .runtime()
            .status()?
            .success()
            .context("everything that this node can see is there")?;
        // Without ovn-northd, the logical port is only in the northbound database.
        let pod = site.new_pod()?;
        site.failed(&pod, &site.add_within(2, &pod)?, 11, &["stage ovn_installed"])?;
        let late = site.start_add_within(20, &pod)?;
        site.has_ofport(&pod)?;
        site.lab.central.northd.spawn()?;
        late.wait()?.success()?;
        site.has_network(&pod)
    });
}

#[test]
fn row_23_without_the_southbound_database_status_stays_0_a_metric_says_so_and_adds_wait() {
    row(23).within(Duration::from_secs(60)).test(|site| {
        let node = site.node;
        let usual = ["--init-node", &node.name, "--pod-manifests", integration::node::MANIFESTS]
            .map(str::to_owned);
        node.server.stop()?;
        let measured = ["--metrics-bind-address".to_owned(), METRICS.to_owned()];
        node.server.set_arguments(usual.iter().chain(&measured).cloned());
        node.start_server()?;
        site.until_healthy()?;
        is_degraded(site, false)?;
        let pod = site.new_pod()?;
        site.lab.central.southbound.kill()?;
        is_degraded(site, true)?;
        let page = page(site, METRICS, "/readyz?verbose")?;
        ensure!(page.contains("southbound database"), "{page}");
        node.runtime().status()?.success().context("everything of this node is there")?;
        site.failed(&pod, &site.add_within(2, &pod)?, 11, &["stage ovn_installed"])?;
        let late = site.start_add_within(30, &pod)?;
        site.has_ofport(&pod)?;
        site.lab.central.start_southbound()?;
        late.wait()?.success()?;
        site.has_network(&pod)?;
        is_degraded(site, false)?;
        node.server.stop()?;
        node.server.set_arguments(usual);
        node.start_server()
    });
}

/// The metric gets this value before long, and meanwhile STATUS is 0 at each call.
fn is_degraded(site: &Site<'_>, expected: bool) -> Result<()> {
    eventually("the metric tells", Duration::from_secs(20), || {
        site.node.runtime().status()?.success().context("STATUS")?;
        let page = page(site, METRICS, "/metrics")?;
        let line = format!(
            "ovnkube_node_degraded{{cause=\"southbound-database\"}} {}",
            u8::from(expected)
        );
        ensure!(page.lines().any(|found| found == line), "no line {line}");
        Ok(())
    })
}

#[test]
fn row_24_ovn_installed_of_an_older_row_is_not_believed() {
    row(24).test(|site| {
        // An older row of the same logical port, and one of the same name.
        let (pod, again) = (site.attached_pod()?, site.attached_pod()?);
        // With ovn-controller paused no new mark can come: an ADD that succeeds believed an old
        // one.
        let next = site.adopt(pod.next_sandbox())?;
        site.node.ovn_controller.pause()?;
        site.failed(&next, &site.add_within(2, &next)?, 11, &["stage ovn_installed"])?;
        // The link is deleted and the row stays, as after a restart of the node.
        site.node.run(["ip", "link", "del", &again.host_interface()])?;
        let row = site.node.vsctl([
            "get",
            "Interface",
            &again.host_interface(),
            "external_ids:ovn-installed",
        ])?;
        ensure!(row.contains("true"), "the row of before is not marked: {row}");
        site.failed(&again, &site.add_within(2, &again)?, 11, &["stage ovn_installed"])?;
        site.node.ovn_controller.resume()?;
        site.add(&again)?.success()?;
        site.has_network(&again)?;
        site.add(&next)?.success()?;
        site.has_network(&next)
    });
}
