//! ovs-vswitchd dies, hangs, loses a device, or has no bridge.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use integration::{
    Datapath, Pod, eventually,
    faults::{at_once, failpoint, long_forms, row},
};

#[test]
fn row_16_without_ovs_vswitchd_add_ends_at_its_deadline_and_names_it() {
    row(16).traffic_may_stop().test(|site| {
        let pod = site.new_pod()?;
        site.node.vswitchd.kill()?;
        let outcome = site.add_within(2, &pod)?;
        let error = site.failed(&pod, &outcome, 11, &["stage ofport"])?;
        let (_, waited) = error.msg.rsplit_once('(').context("the message says for how long")?;
        let waited: u64 =
            waited.trim_end_matches(" ms)").parse().with_context(|| error.msg.clone())?;
        ensure!((1000..3000).contains(&waited), "{error:?}");
        ensure!(
            error.details.starts_with("ovs-vswitchd does not respond")
                && error.details.contains("ofport"),
            "the hint does not name it: {error:?}"
        );
        site.status_is(51, &["ovs-vswitchd does not answer"])?;
        site.node.start_vswitchd()
    });
}

#[test]
fn row_16_adds_that_wait_for_ovs_vswitchd_succeed_when_it_is_back() {
    row(16).traffic_may_stop().test(|site| {
        let pods = site.new_pods(5)?;
        site.node.vswitchd.kill()?;
        let waiting = site.start_adds(&pods)?;
        pods.iter().try_for_each(|pod| site.is_plugged(pod))?;
        site.node.start_vswitchd()?;
        waiting.into_iter().try_for_each(|add| add.wait()?.success().map(drop))?;
        pods.iter().try_for_each(|pod| site.one_port_of(pod).and_then(|()| site.has_network(pod)))
    });
}

#[test]
fn row_17_adds_that_meet_a_stopped_ovs_vswitchd_succeed_late() {
    // 10 s in the long form.
    let pause = Duration::from_secs(if long_forms() { 10 } else { 2 });
    row(17).traffic_may_stop().test(|site| {
        let pods = site.new_pods(3)?;
        let began = Instant::now();
        site.node.vswitchd.pause()?;
        // The database takes the ports, but only ovs-vswitchd can give them a number.
        let mut waiting = site.start_adds(&pods)?;
        pods.iter().try_for_each(|pod| site.is_plugged(pod))?;
        eventually("it was stopped for long enough", pause * 2, || {
            ensure!(began.elapsed() >= pause, "{:?}", began.elapsed());
            Ok(())
        })?;
        for add in &mut waiting {
            ensure!(!add.has_ended()?, "an ADD has ended while ovs-vswitchd was stopped");
        }
        site.node.vswitchd.resume()?;
        waiting.into_iter().try_for_each(|add| add.wait()?.success().map(drop))?;
        pods.iter().try_for_each(|pod| site.has_network(pod))
    });
}

#[test]
fn row_18_a_link_that_vanishes_beneath_its_port_ends_the_add_at_once() {
    row(18).traffic_may_stop().test(|site| {
        failpoint::install(site.node)?;
        let pod = site.new_pod()?;
        site.node.vswitchd.pause()?;
        // The plugin must not configure the pod's end, where it would notice, too.
        let waiting = site.add_with("before:pod=hang", &pod).start()?;
        site.is_plugged(&pod)?;
        site.node.run(["ip", "link", "del", &pod.host_interface()])?;
        site.node.vswitchd.resume()?;
        let outcome = waiting.wait()?;
        // The message contains Open vSwitch's own text.
        site.failed(
            &pod,
            &outcome,
            104,
            &["stage ofport", &pod.host_interface(), "No such device"],
        )?;
        at_once(&outcome)
    });
}

#[test]
fn row_19_without_br_int_add_says_so_at_once_and_works_when_it_is_back() {
    row(19).traffic_may_stop().test(|site| {
        let node = site.node;
        let pod = site.new_pod()?;
        let mac = node.vsctl(["get", "Interface", "br-int", "mac_in_use"])?;
        let ids =
            |pod: &Pod| node.vsctl(["get", "Interface", &pod.host_interface(), "external_ids"]);
        let [first, second] = [ids(&site.bystanders[0])?, ids(&site.bystanders[1])?];
        // ovn-controller would create another bridge.
        node.ovn_controller.kill()?;
        node.vsctl(["del-br", "br-int"])?;
        let outcome = site.add(&pod)?;
        site.failed(&pod, &outcome, 11, &["br-int"])?;
        at_once(&outcome)?;
        site.status_is(51, &["br-int"])?;
        // Restored exactly, for the comparison of the node before and after.
        let (mtu, mac) =
            (format!("mtu_request={}", node.mtu), format!("other_config:hwaddr={}", mac.trim()));
        let datapath = Datapath::of_lab().column();
        let bridge = format!("add-br br-int -- set Bridge br-int {datapath} fail_mode=secure");
        node.vsctl(bridge.split_whitespace().chain([
            mac.as_str(),
            "--",
            "set",
            "Interface",
            "br-int",
            mtu.as_str(),
        ]))?;
        node.start_ovn_controller()?;
        site.until_healthy()?;
        site.add(&pod)?.success()?;
        site.lab.reaches_gateway(&pod)?;
        // The ports of the bystanders went with the bridge.
        for (pod, ids) in site.bystanders.iter().zip([first, second]) {
            let (link, ids) = (pod.host_interface(), format!("external_ids={}", ids.trim()));
            node.vsctl([
                "--may-exist",
                "add-port",
                "br-int",
                &link,
                "--",
                "set",
                "Interface",
                &link,
                &ids,
            ])?;
        }
        Ok(())
    });
}
