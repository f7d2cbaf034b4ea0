//! Attachments that other programs damage: rows deleted, the database lost, the node restarted, a
//! plugin that died and whose DEL never comes.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Pod, eventually,
    faults::{Site, row},
};

/// From the moment when ports could be there to the moment when they are: the limit of row 53.
const BACK: Duration = Duration::from_secs(2);
/// The servers of these tests remove after `--stale-after` of 1 to 3 s; this is twice that, and
/// some.
const REMOVED: Duration = Duration::from_secs(10);

/// Restarts the server with a `--stale-after` of a second.
fn impatient(site: &Site<'_>) -> Result<()> {
    let node = site.node;
    node.server.stop()?;
    node.server.set_arguments([
        "--init-node",
        &node.name,
        "--pod-manifests",
        integration::node::MANIFESTS,
        "--stale-after",
        "1",
    ]);
    node.start_server()
}

/// Attached pods, and the bystanders.
fn attached(site: &Site<'_>, count: usize) -> Result<Vec<Pod>> {
    let pods = site.new_pods(count)?;
    for add in site.start_adds(&pods)? {
        add.wait()?.success()?;
    }
    Ok(pods.into_iter().chain(site.bystanders.iter().cloned()).collect())
}

fn each<'a>(
    pods: &'a [Pod],
    words: impl Fn(&'a Pod) -> Vec<String>,
) -> impl Iterator<Item = String> {
    pods.iter().flat_map(move |pod| std::iter::once("--".to_owned()).chain(words(pod)))
}

/// Deletes the ports of all these pods in one transaction.
fn delete_ports(site: &Site<'_>, pods: &[Pod]) -> Result<()> {
    let words =
        |pod: &Pod| ["del-port", "br-int", &pod.host_interface()].map(str::to_owned).to_vec();
    site.node.vsctl(std::iter::once("--no-wait".to_owned()).chain(each(pods, words))).map(drop)
}

/// Waits until the ports of all these pods are there, for `BACK` at most since `began`.
fn ports_are_back(site: &Site<'_>, pods: &[Pod], began: Instant) -> Result<()> {
    let words = |pod: &Pod| {
        ["wait-until", "Interface", &pod.host_interface(), "name!=x"].map(str::to_owned).to_vec()
    };
    site.node.vsctl(each(pods, words)).context("the ports are back")?;
    let took = began.elapsed();
    ensure!(took <= BACK, "the ports of {} pods were away for {took:?}", pods.len());
    Ok(())
}

fn all_have_network(site: &Site<'_>, pods: &[Pod]) -> Result<()> {
    pods.iter()
        .try_for_each(|pod| site.one_port_of(pod).and_then(|()| site.lab.reaches_gateway(pod)))?;
    // In a circle, so that each of them sends and receives.
    pods.iter()
        .zip(pods.iter().cycle().skip(1))
        .try_for_each(|(from, to)| site.lab.ping(from, to.address()))
}

#[test]
fn row_53_ports_of_all_live_pods_are_back_at_once_and_as_they_were() {
    row(53).traffic_may_stop().within(Duration::from_secs(60)).test(|site| {
        let pods = attached(site, 20)?;
        let before = site.node.census()?;
        delete_ports(site, &pods)?;
        ports_are_back(site, &pods, Instant::now())?;
        eventually("the node is as before", Duration::from_secs(10), || {
            before.must_equal(&site.node.census()?)
        })?;
        all_have_network(site, &pods)
    });
}

#[test]
fn row_11_a_lost_database_costs_no_pod_its_network() {
    row(11).traffic_may_stop().within(Duration::from_secs(60)).test(|site| {
        let pods = attached(site, 5)?;
        lose_database(site)?;
        site.status_is(51, &["br-int"])?;
        site.node.configure_ovs()?;
        ports_are_back(site, &pods, Instant::now())?;
        reconnect_wire(site)?;
        all_have_network(site, &pods)
    });
}

#[test]
fn row_11_a_lost_database_and_a_server_that_knew_it_cost_no_pod_its_network() {
    row(11).traffic_may_stop().within(Duration::from_secs(60)).test(|site| {
        let pods = attached(site, 5)?;
        let before = site.node.census()?;
        site.node.server.kill()?;
        lose_database(site)?;
        site.node.configure_ovs()?;
        site.node.start_server()?;
        ports_are_back(site, &pods, Instant::now())?;
        reconnect_wire(site)?;
        eventually("the node is as before", Duration::from_secs(10), || {
            before.must_equal(&site.node.census()?)
        })?;
        all_have_network(site, &pods)
    });
}

fn lose_database(site: &Site<'_>) -> Result<()> {
    site.node.ovsdb_server.kill()?;
    site.node.create_ovs_database()?;
    site.node.start_ovsdb_server()
}

/// The bridge of the node's NIC was created anew, without its address; ovs-vswitchd restarts to use
/// it again.
fn reconnect_wire(site: &Site<'_>) -> Result<()> {
    site.node.vswitchd.kill()?;
    site.node.start_vswitchd()
}

#[test]
fn row_54_after_a_restart_of_the_node_nobody_takes_anothers_port_and_nothing_stays() {
    row(54).traffic_may_stop().within(Duration::from_secs(60)).test(|site| {
        let node = site.node;
        let mut pods = attached(site, 6)?;
        pods.truncate(6);
        // All daemons end before the links vanish, as in a restart: none may react to it.
        for daemon in [&node.server, &node.ovn_controller, &node.vswitchd, &node.ovsdb_server] {
            daemon.stop()?;
        }
        for pod in &pods {
            node.run(["ip", "link", "del", &pod.host_interface()])?;
        }
        node.start_ovsdb_server()?;
        node.start_vswitchd()?;
        node.start_ovn_controller()?;
        // Half of the pods come back before the server could have removed anything.
        let (again, never) = pods.split_at(3);
        node.server.set_arguments([
            "--init-node",
            &node.name,
            "--pod-manifests",
            integration::node::MANIFESTS,
            "--stale-after",
            "3",
        ]);
        node.start_server()?;
        for pod in again {
            let next = site.adopt(pod.next_sandbox())?;
            site.add(&next)?.success()?;
            site.one_port_of(&next)?;
            site.nothing_of(pod)?;
            site.has_network(&next)?;
        }
        eventually("nothing is left of the pods that have not come back", REMOVED, || {
            never.iter().try_for_each(|pod| site.nothing_of(pod))
        })?;
        all_have_network(site, &site.bystanders)
    });
}

#[test]
fn row_06_a_link_without_a_port_goes_with_its_pod_although_no_del_comes() {
    row(6).within(Duration::from_secs(60)).test(|site| {
        impatient(site)?;
        let witness = site.attached_pod()?;
        let pods = site.new_pods(2)?;
        for pod in &pods {
            let died = site
                .node
                .runtime()
                .call("ADD", Some(pod))
                .env("OVN_CNI_FAILPOINT", "after:veth=kill")
                .run()?;
            ensure!(
                !died.status.success(),
                "the plugin has no failpoints: build it with --features cni/failpoints"
            );
            let left = site.node.census()?;
            let left = left.lines_with(&pod.host_interface());
            ensure!(
                left.len() == 1 && left[0].starts_with("link "),
                "only a link should be left: {left:?}"
            );
        }
        // One pod is deleted, the other gets another sandbox.
        let [deleted, again] = pods.as_slice() else { unreachable!("two were asked for") };
        site.node.remove_manifest(deleted)?;
        let next = site.adopt(again.next_sandbox())?;
        site.add(&next)?.success()?;
        // The server looks for leftovers at the next event of a row or link, or half a minute
        // later: cause an event.
        delete_ports(site, &[witness])?;
        eventually("the links are gone", REMOVED, || {
            pods.iter().try_for_each(|pod| site.nothing_of(pod))
        })?;
        site.has_network(&next)
    });
}
