//! The control plane is given another cluster's database, or another cluster's API server.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use integration::{
    Cluster,
    central::Central,
    cluster::{
        access,
        control_plane::{OTHER_URL, OtherApiServer, URL},
    },
    eventually, let_pass,
};
use serde_json::Value;

use super::{
    PODS, SETTLED,
    burst::{are_ready, real_pod},
};

/// Longer than a second look at a doubted list takes to come (10 s).
const SECOND_LOOK: Duration = Duration::from_secs(13);

/// Waits until `/readyz` says this.
fn says(cluster: &Cluster, text: &str) -> Result<()> {
    eventually("/readyz says what is wrong", SETTLED, || match cluster.master_is_ready(1) {
        Ok(()) => Err(anyhow!("it is ready")),
        Err(error) if error.to_string().contains(text) => Ok(()),
        Err(error) => Err(error),
    })
}

/// Whose database it is, as the database says.
fn record(cluster: &Cluster, uid: &str) -> Result<()> {
    let record = format!("external_ids:k8s-cluster-uid={uid}");
    cluster.lab.central.nbctl(["set", "Logical_Router", "ovn_cluster_router", &record]).map(drop)
}

// --- 87
// ----------------------------------------------------------------------------------------------------

#[test]
fn row_87_nothing_is_changed_in_the_database_of_another_cluster() {
    Cluster::of_nodes(1).test(|cluster| {
        for number in 0..4 {
            cluster.api.create(PODS, &real_pod(number))?;
        }
        let names = are_ready(cluster, 0..4)?;
        let [one, two] = [cluster.attached(&names[0])?, cluster.attached(&names[1])?];
        cluster.lab.ping(&one, two.address())?;
        let flow = cluster.lab.flow(&one, &two)?;
        let own = cluster.api.read("/api/v1/namespaces/kube-system")?["metadata"]["uid"].clone();
        let own = own.as_str().unwrap_or_default();
        // While it runs, and at its start.
        for deleted in [2, 3] {
            record(cluster, "0d9c34c5-0000-4000-8000-000000000000")?;
            says(cluster, "was written for the cluster 0d9c34c5")?;
            cluster.api.delete(&format!("{PODS}/real-{deleted}?gracePeriodSeconds=0"))?;
            let_pass(SECOND_LOOK);
            says(cluster, "was written for the cluster 0d9c34c5")?;
            // northd writes, too (`up`), so transactions are not counted.
            let named = format!("name=default_real-{deleted}");
            let port = ["--bare", "--columns=name", "find", "Logical_Switch_Port", &named];
            ensure!(!cluster.lab.central.nbctl(port)?.trim().is_empty(), "{named} was removed");
            cluster.master.kill()?;
            if deleted == 3 {
                record(cluster, own)?;
            }
            cluster.master.spawn()?;
        }
        eventually("it is ready", SETTLED, || cluster.master_is_ready(1))?;
        flow.stop()?.none_is_lost(2)?;
        cluster.northbound_must_match()
    });
}

// --- 88
// ----------------------------------------------------------------------------------------------------

#[test]
fn row_88_the_kubeconfig_of_another_cluster_costs_no_pod_its_network() {
    Cluster::of_nodes(1).test(|cluster| {
        for number in 0..2 {
            cluster.api.create(PODS, &real_pod(number))?;
        }
        let names = are_ready(cluster, 0..2)?;
        let [one, two] = [cluster.attached(&names[0])?, cluster.attached(&names[1])?];
        cluster.lab.ping(&one, two.address())?;
        let flow = cluster.lab.flow(&one, &two)?;
        let other = OtherApiServer::start(&cluster.credentials)?;
        let kubeconfig = |url| cluster.credentials.write_kubeconfig(access::MASTER, url);
        let file = kubeconfig(URL)?;
        cluster.master.kill()?;
        let arguments =
            cluster.master.arguments().into_iter().filter(|word| !word.starts_with("--k8s-api"));
        let arguments = arguments
            .filter(|word| !word.starts_with("--k8s-cacert") && !word.starts_with("--k8s-token"));
        cluster
            .master
            .set_arguments(arguments.chain([format!("--k8s-kubeconfig={}", file.display())]));
        cluster.master.spawn()?;
        eventually("it is ready", SETTLED, || cluster.master_is_ready(1))?;
        let transactions = Central::northbound_transactions()?;
        // While it runs, and at its start.
        kubeconfig(OTHER_URL)?;
        says(cluster, "another cluster")?;
        // By the UID, `kubectl describe node` finds it.
        let node = cluster.api.read("/api/v1/nodes/node1")?["metadata"]["uid"].clone();
        eventually("an event on the node says what is wrong", SETTLED, || {
            let events = other.api.read("/apis/events.k8s.io/v1/namespaces/default/events")?;
            let events = events["items"].as_array().context("events")?;
            let is_it = |event: &&Value| {
                event["reason"] == "ListDoubted"
                    && event["regarding"]["uid"] == node
                    && event["note"].as_str().is_some_and(|note| note.contains("another cluster"))
            };
            ensure!(events.iter().any(|event| is_it(&event)), "{events:#?}");
            Ok(())
        })?;
        let_pass(SECOND_LOOK);
        cluster.master.kill()?;
        cluster.master.spawn()?;
        says(cluster, "written for the cluster")?;
        let_pass(SECOND_LOOK);
        says(cluster, "another cluster")?;
        let written = Central::northbound_transactions()? - transactions;
        ensure!(written == 0, "{written} transactions changed the database");
        // The right one again. The Lease there may still be that of the process before, which ends
        // this one.
        kubeconfig(URL)?;
        eventually("it is ready", SETTLED, || {
            if !cluster.master.is_running() {
                cluster.master.spawn()?;
            }
            cluster.master_is_ready(1)
        })?;
        cluster.api.create(PODS, &real_pod(2))?;
        are_ready(cluster, 0..3)?;
        flow.stop()?.none_is_lost(2)?;
        cluster.northbound_must_match()
    });
}
