//! The project's control plane while it is killed, while its database goes away, and while two
//! instances run.

use std::{
    env,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Cluster,
    api_proxy::{ApiProxy, Fault, Of},
    central::Central,
    cluster::{pods::Known, programs::AGNHOST},
    eventually,
};
use serde_json::{Value, json};

use crate::cluster::support::{
    DEPLOYMENTS, PODS, all_attached, delete, deployment, pod, reach_each_other, scale, small_pod,
    spec, start, wait_for_exactly, wait_gone,
};

/// With the value `full`, tests that are shortened by default run at full length.
const LENGTH: &str = "OVN_CLUSTER_TESTS";
/// A Lease with times in seconds, so short that a test can wait for the next leader.
const SHORT_LEASE: [&str; 3] = [
    "--ha-election-lease-duration=6",
    "--ha-election-renew-deadline=4",
    "--ha-election-retry-period=1",
];
const NETWORKS: &str = "k8s.ovn.org/pod-networks";
/// The lease duration in [`SHORT_LEASE`].
const LEASE: Duration = Duration::from_secs(6);
/// Limit for a burst of pods on a busy machine.
const BURST: Duration = Duration::from_secs(120);

#[test]
fn a_hundred_pods_with_probes_keep_their_network_while_the_control_plane_and_its_database_come_and_go()
 {
    Cluster::of_nodes(2).master_options(&SHORT_LEASE).test(|cluster| {
        let before = cluster.leftovers()?;
        for node in ["node1", "node2"] {
            cluster.api.create(DEPLOYMENTS, &deployment(node, &with_probes(node)))?;
            scale(cluster, node, 50)?;
        }
        // Kill the control plane in the middle of the burst.
        some_are_annotated(cluster, 20)?;
        let names = survives_death(cluster, 100)?;
        let pods = all_attached(cluster, &names)?;
        reach_each_other(cluster, &pods, 8)?;
        let page = cluster.kubectl([
            "exec",
            &pods[0].name,
            "--",
            "wget",
            "-qO-",
            &format!("http://{}:8080/hostname", pods[99].address()),
        ])?;
        ensure!(page == pods[99].name, "{} calls itself {page:?}", pods[99].name);

        // The database server restarts with its contents: pods must not notice.
        let flow = cluster.lab.flow(&pods[0], &pods[99])?;
        cluster.lab.central.northbound.stop()?;
        cluster.lab.central.start_northbound()?;
        scale(cluster, "node1", 51)?;
        wait_for_exactly(cluster, 101, BURST)?;
        flow.stop()?.none_is_lost(10)?;

        // The contents are lost: the control plane must write everything again, unchanged.
        let addresses = annotations(&cluster.pods.now());
        cluster.lab.central.replace_northbound()?;
        cluster.northbound_must_match()?;
        ensure!(annotations(&cluster.pods.now()) == addresses, "annotations have changed");
        cluster.lab.central.sync()?;
        reach_each_other(cluster, &pods, 3)?;
        wait_for_exactly(cluster, 101, BURST)?;

        ["node1", "node2"].iter().try_for_each(|name| scale(cluster, name, 0))?;
        some_are_gone(cluster, 90)?;
        survives_death(cluster, 0)?;
        cluster.api.delete(DEPLOYMENTS)?;
        cluster.must_leave_nothing(&before)
    });
}

#[test]
fn deployments_go_up_and_down_while_the_control_plane_is_killed() {
    let (replicas, rounds) =
        if env::var(LENGTH).is_ok_and(|length| length == "full") { (100, 5) } else { (30, 2) };
    Cluster::of_nodes(2).master_options(&SHORT_LEASE).test(|cluster| {
        let before = cluster.leftovers()?;
        let mut anywhere = spec("");
        anywhere["nodeSelector"] = json!({});
        anywhere["containers"] = small_pod("", "")["spec"]["containers"].clone();
        cluster.api.create(DEPLOYMENTS, &deployment("web", &anywhere))?;
        for round in 0..rounds {
            scale(cluster, "web", replicas)?;
            some_are_annotated(cluster, replicas * (round + 1) / (rounds + 1))?;
            let names = survives_death(cluster, replicas)?;
            reach_each_other(cluster, &all_attached(cluster, &names)?, 5)?;

            scale(cluster, "web", 0)?;
            some_are_gone(cluster, replicas)?;
            survives_death(cluster, 0)?;
        }
        cluster.api.delete(DEPLOYMENTS)?;
        cluster.must_leave_nothing(&before)
    });
}

#[test]
fn one_of_two_control_planes_leads_and_nodes_come_and_go() {
    Cluster::of_nodes(2).master_options(&SHORT_LEASE).test(|cluster| {
        let [here, there] =
            [start(cluster, &pod("here", "node1"))?, start(cluster, &pod("there", "node2"))?];
        cluster.lab.ping(&here, there.address())?;

        // The first instance leads and the second stands by. Then the first is killed.
        let second = cluster.another_master(2);
        second.spawn()?;
        // A standby has read everything and reports ready: nothing is wrong with it.
        eventually("the second is ready to take over", LEASE, || cluster.master_is_ready(2))?;
        let transactions = Central::northbound_transactions()?;
        let holder = lease_holder(cluster)?;
        ensure!(holder == "master-1", "{holder} leads");
        cluster.master.kill()?;
        let killed = Instant::now();
        eventually("the second leads", 2 * LEASE, || {
            let holder = lease_holder(cluster)?;
            ensure!(holder == "master-2", "{holder} does");
            cluster.master_is_ready(2)
        })?;
        let took = killed.elapsed();
        ensure!(took < LEASE + Duration::from_secs(3), "it took {took:?}");
        let written = Central::northbound_transactions()? - transactions;
        ensure!(
            written == 0,
            "{written} transactions changed the database while nothing had changed"
        );
        cluster.master.spawn()?;
        let later = start(cluster, &small_pod("later", "node1"))?;
        cluster.lab.ping(&later, there.address())?;
        // A clean stop releases the Lease, so that the other instance leads at once.
        second.stop()?;
        eventually("the first leads again", Duration::from_secs(3), || {
            let holder = lease_holder(cluster)?;
            ensure!(holder == "master-1", "{holder:?} does");
            Ok(())
        })?;

        a_completed_pod_gives_its_address_back(cluster)?;

        delete(cluster, "there")?;
        wait_gone(cluster, "there")?;
        a_node_is_deleted_and_comes_back(cluster)?;

        let again = start(cluster, &pod("again", "node2"))?;
        cluster.lab.ping(&here, again.address())?;
        cluster.lab.tcp(&again, &here, 1 << 20)?;
        cluster.northbound_must_match()?;
        cluster.api.delete(PODS)?;
        wait_gone(cluster, "again")?;
        cluster.northbound_must_match()
    });
}

/// Regression: each role had a Lease of its own, and both instances wrote to one database.
#[test]
fn both_roles_in_one_process_and_a_controller_alone_take_turns() {
    Cluster::of_nodes(1).master_options(&SHORT_LEASE).test(|cluster| {
        let alone = cluster.controller_alone(2);
        alone.spawn()?;
        eventually("the controller stands by", LEASE, || cluster.master_is_ready(2))?;
        one_leads(cluster, 1, 2 * LEASE)?;
        cluster.master.stop()?;
        eventually("the controller leads", Duration::from_secs(3), || leads(cluster, 2))?;
        start(cluster, &small_pod("by-the-controller", "node1"))?;

        cluster.master.spawn()?;
        eventually("what the other waits for is said", LEASE, || {
            let says = cluster.master_is_ready(1).err().map(|error| error.to_string()).unwrap_or_default();
            let expected =
                "master-2 holds the lease ovn-kubernetes/ovn-kubernetes-master-global, and this process the one that comes first";
            ensure!(says.contains(expected), "{says}");
            Ok(())
        })?;
        one_leads(cluster, 2, 2 * LEASE)?;
        alone.kill()?;
        let killed = Instant::now();
        eventually("both roles lead", 2 * LEASE, || leads(cluster, 1))?;
        ensure!(killed.elapsed() < LEASE + Duration::from_secs(3), "it took {:?}", killed.elapsed());
        // Restarted on the same host, the process has the same identity and takes both Leases at
        // once.
        cluster.master.kill()?;
        let killed = Instant::now();
        cluster.master.spawn()?;
        eventually("it leads again", LEASE, || leads(cluster, 1))?;
        ensure!(killed.elapsed() < Duration::from_secs(2), "it took {:?}", killed.elapsed());
        start(cluster, &small_pod("by-both", "node1"))?;
        cluster.northbound_must_match()
    });
}

/// Regression: a patch had no condition except the pod's UID, so that a late one overwrote the next
/// leader's decision.
#[test]
fn a_late_annotation_of_a_former_leader_does_not_replace_that_of_the_next() {
    Cluster::of_nodes(1).test(|cluster| {
        let proxy = ApiProxy::start(&cluster.api, &cluster.credentials)?;
        cluster.master.stop()?;
        let former = cluster.another_master_over(2, &proxy.url());
        former.spawn()?;
        // No kubelet runs for this node: its pods get their annotation and nothing else.
        cluster.api.create(
            "/api/v1/nodes",
            &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "ghost"}}),
        )?;
        let subnet =
            eventually("the node has its subnet", Duration::from_secs(30), || cluster.subnet_of("ghost"))?;
        let ours = format!("{}.77", subnet.rsplit_once('.').context("a subnet")?.0);
        let annotation =
            json!({"default": {"ip_addresses": [format!("{ours}/24")], "mac_address": "0a:58:0a:00:00:77"}})
                .to_string();
        for (name, before) in [("bare", json!({})), ("annotated", json!({"other": "1"}))] {
            let (path, begun) = (format!("{PODS}/{name}"), Instant::now());
            let late = Duration::from_secs(3);
            proxy.inject_times(1, Of::Patches, Fault::Delay(late));
            let mut pod = small_pod(name, "");
            pod["spec"]["nodeName"] = json!("ghost");
            pod["spec"]["nodeSelector"] = json!({});
            if before != json!({}) {
                pod["metadata"]["annotations"] = before;
            }
            cluster.api.create(PODS, &pod)?;
            eventually("the annotation is on its way", Duration::from_secs(20), || {
                ensure!(proxy.count(&Of::Patches, begun) > 0, "it is not");
                Ok(())
            })?;
            former.pause()?;
            let sent = Instant::now();
            // The decision of the next leader.
            cluster.api.patch(&path, &json!({"metadata": {"annotations": {NETWORKS: annotation}}}))?;
            let mut replaced = None;
            eventually("the late one has come", 3 * late, || {
                let now = cluster.api.read(&path)?["metadata"]["annotations"][NETWORKS].clone();
                replaced = (now != annotation.as_str()).then_some(now);
                ensure!(
                    replaced.is_some() || sent.elapsed() > late + Duration::from_secs(2),
                    "{:?}",
                    sent.elapsed()
                );
                Ok(())
            })?;
            ensure!(replaced.is_none(), "{name}: {replaced:?} came late and replaced {annotation}");
            // It still leads, has seen the other annotation by now, and decides anew.
            former.resume()?;
            eventually("a leader repairs what it finds", Duration::from_secs(20), || {
                let now = cluster.api.read(&path)?["metadata"]["annotations"][NETWORKS].clone();
                ensure!(now != annotation.as_str(), "{now}");
                Ok(())
            })?;
        }
        former.stop()
    });
}

fn leads(cluster: &Cluster, number: u16) -> Result<()> {
    ensure!(cluster.master_leads(number)?, "master-{number} does not");
    Ok(())
}

/// For `time`, this one of the two instances leads and the other does not.
fn one_leads(cluster: &Cluster, number: u16, time: Duration) -> Result<()> {
    let (begun, mut wrong) = (Instant::now(), None);
    eventually("the time is over", time + LEASE, || {
        for (of, expected) in [(number, true), (3 - number, false)] {
            if cluster.master_leads(of)? != expected {
                wrong.get_or_insert_with(|| {
                    format!(
                        "after {:?} it is not {expected} that master-{of} leads",
                        begun.elapsed()
                    )
                });
            }
        }
        ensure!(wrong.is_some() || begun.elapsed() >= time, "it goes on");
        Ok(())
    })?;
    ensure!(wrong.is_none(), "{wrong:?}");
    Ok(())
}

/// A completed pod's address is free for other pods, and its port is removed although the pod
/// object remains.
fn a_completed_pod_gives_its_address_back(cluster: &Cluster) -> Result<()> {
    let mut template = spec("node1");
    template["restartPolicy"] = json!("Never");
    template["containers"][0] = json!({"name": "main", "image": AGNHOST, "imagePullPolicy": "Never", "command": ["/bin/true"]});
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job", "namespace": "default"},
        "spec": {"completions": 3, "parallelism": 3, "template": {"spec": template}},
    });
    cluster.api.create("/apis/batch/v1/namespaces/default/jobs", &job)?;
    cluster.pods.wait("three pods have completed", Duration::from_secs(60), |known| {
        let phase = |pod: &k8s_openapi::api::core::v1::Pod| {
            pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default()
        };
        let completed = known.values().filter(|pod| phase(pod) == "Succeeded").count();
        ensure!(completed == 3, "{completed} have");
        Ok(())
    })?;
    // The pods are still there, but have no ports.
    cluster.northbound_must_match()?;
    cluster
        .api
        .delete("/apis/batch/v1/namespaces/default/jobs/job?propagationPolicy=Background")
        .map(drop)
}

fn a_node_is_deleted_and_comes_back(cluster: &Cluster) -> Result<()> {
    let (_, worker) = cluster.nodes().nth(1).context("a second node")?;
    let subnet = cluster.subnet_of("node2")?;
    worker.kubelet.kill()?;
    cluster.api.delete("/api/v1/nodes/node2")?;
    cluster.northbound_must_match()?;
    // The subnet of the deleted node is kept for its name: its pods may run until they are
    // collected, and the machine may come back.
    cluster.api.create(
        "/api/v1/nodes",
        &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}}),
    )?;
    let others = eventually("the other node has a subnet", Duration::from_secs(10), || {
        cluster.subnet_of("other")
    })?;
    ensure!(others != subnet, "the other has {others}, which pods of node2 may still use");
    worker.kubelet.spawn()?;
    eventually("node2 has its subnet again", Duration::from_secs(60), || {
        let now = cluster.subnet_of("node2")?;
        ensure!(now == subnet, "{now} instead of {subnet}");
        Ok(())
    })?;
    cluster.api.delete("/api/v1/nodes/other")?;
    cluster.wait_until_ready()?;
    cluster.northbound_must_match()
}

/// A pod with an HTTP startup probe over its network, and a readiness probe that runs a program in
/// it. The HTTP probe stops after its first success: conntrack in the userspace datapath of Open
/// vSwitch 3.1.0 fails an assertion (`conn_update_state`) when many pods are deleted while the
/// kubelet still probes them.
fn with_probes(node: &str) -> Value {
    let mut spec = spec(node);
    spec["containers"][0]["startupProbe"] = json!({"httpGet": {"path": "/hostname", "port": 8080}, "periodSeconds": 2, "timeoutSeconds": 5, "failureThreshold": 60});
    spec["containers"][0]["readinessProbe"] =
        json!({"exec": {"command": ["/bin/true"]}, "periodSeconds": 30, "timeoutSeconds": 20});
    spec
}

fn some_are_annotated(cluster: &Cluster, count: usize) -> Result<()> {
    cluster.pods.wait(&format!("{count} pods have their annotation"), BURST, |known| {
        let annotated = annotations(known).len();
        ensure!(annotated >= count, "{annotated} have");
        Ok(())
    })
}

fn some_are_gone(cluster: &Cluster, all: usize) -> Result<()> {
    cluster.pods.wait("some pods are gone", BURST, |known| {
        ensure!(known.len() < all, "{} are there", known.len());
        Ok(())
    })
}

/// Kills and restarts the control plane in the middle of its work. Exactly `pods` pods must become
/// ready, and the northbound database must match them. Returns the names of the pods.
fn survives_death(cluster: &Cluster, pods: usize) -> Result<Vec<String>> {
    cluster.master.kill()?;
    cluster.master.spawn()?;
    let names = wait_for_exactly(cluster, pods, BURST)?;
    cluster.northbound_must_match()?;
    Ok(names)
}

/// Pods by name, with their annotations.
fn annotations(known: &Known) -> Vec<(String, String)> {
    let annotation = |pod: &k8s_openapi::api::core::v1::Pod| {
        pod.metadata.annotations.as_ref()?.get("k8s.ovn.org/pod-networks").cloned()
    };
    known.iter().filter_map(|(key, pod)| Some((key.clone(), annotation(pod)?))).collect()
}

fn lease_holder(cluster: &Cluster) -> Result<String> {
    let lease = cluster.api.read(
        "/apis/coordination.k8s.io/v1/namespaces/ovn-kubernetes/leases/ovn-kubernetes-master",
    )?;
    Ok(lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned())
}
