//! ovs-vswitchd dies, hangs, or has no bridge.

use anyhow::ensure;
use integration::faults::row;

#[test]
fn row_16_without_ovs_vswitchd_add_ends_at_its_deadline_and_names_it() {
    row(16).traffic_may_stop().test(|site| {
        let pod = site.new_pod()?;
        site.node.vswitchd.kill()?;
        let outcome = site.add_within(2, &pod)?;
        let error = site.failed(&pod, &outcome, 11, &["stage ofport"])?;
        ensure!(error.details.contains("ovs-vswitchd"), "the hint does not name it: {error:?}");
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
