//! Pods that come and go under the same names.

use anyhow::{Context as _, Result, ensure};
use integration::{
    Cluster, Pod,
    cluster::attached::{address_of, is_ready},
};
use kube::ResourceExt as _;
use serde_json::json;

use crate::cluster::support::{SOON, attached, delete, pod, small_pod, spec, start, wait_gone};

#[test]
fn a_pod_that_is_deleted_and_created_again_under_its_name_has_its_own_network() {
    Cluster::of_nodes(1).test(|cluster| {
        let before = cluster.leftovers()?;
        let witness = start(cluster, &small_pod("witness", "node1"))?;
        let mut earlier: Vec<Pod> = Vec::new();
        for _ in 0..5 {
            let pod = start(cluster, &pod("again", "node1"))?;
            for old in &earlier {
                ensure!(
                    pod.uid != old.uid
                        && pod.sandbox != old.sandbox
                        && pod.address() != old.address(),
                    "{pod:?}, and earlier {old:?}"
                );
            }
            cluster.lab.ping(&witness, pod.address())?;
            cluster.lab.tcp(&witness, &pod, 1 << 16)?;
            // The next pod is created as soon as the name is free.
            delete(cluster, "again")?;
            wait_gone(cluster, "again")?;
            earlier.push(pod);
        }
        let rows = cluster.lab.nodes[0].census()?;
        ensure!(earlier.iter().all(|pod| rows.lines_with(&pod.sandbox).is_empty()), "{rows}");
        delete(cluster, "witness")?;
        cluster.must_leave_nothing(&before)
    });
}

#[test]
fn a_stateful_set_is_rolled_while_its_pods_keep_their_names() {
    Cluster::of_nodes(2).test(|cluster| {
        let before = cluster.leftovers()?;
        let mut template = spec("");
        template["nodeSelector"] = json!({});
        let set = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "set", "namespace": "default"},
            "spec": {
                "replicas": 3, "serviceName": "set", "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": {"app": "set"}},
                "template": {"metadata": {"labels": {"app": "set", "version": "1"}}, "spec": template},
            },
        });
        let sets = "/apis/apps/v1/namespaces/default/statefulsets";
        let names = ["set-0", "set-1", "set-2"];
        cluster.api.create(sets, &set)?;
        let first = versions(cluster, &names, "1")?;
        cluster.api.patch(&format!("{sets}/set"), &json!({"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}}))?;
        let second = versions(cluster, &names, "2")?;
        ensure!(first.iter().zip(&second).all(|(old, new)| old.uid != new.uid && old.address() != new.address()), "{first:?}\n{second:?}");
        for (from, to) in second.iter().zip(second.iter().cycle().skip(1)) {
            cluster.lab.ping(from, to.address())?;
            cluster.lab.tcp(from, to, 1 << 16)?;
        }
        cluster.api.delete(&format!("{sets}/set"))?;
        cluster.must_leave_nothing(&before)
    });
}

/// The pods `names` once all of them are of this version and ready.
fn versions(cluster: &Cluster, names: &[&str], version: &str) -> Result<Vec<Pod>> {
    cluster.pods.wait(&format!("version {version} runs"), SOON, |known| {
        for name in names {
            let pod = known
                .get(&format!("default/{name}"))
                .with_context(|| format!("{name} is not there"))?;
            let label = pod.labels().get("version");
            ensure!(
                label.is_some_and(|label| label == version)
                    && is_ready(pod)
                    && address_of(pod).is_some(),
                "{name} is of version {label:?}"
            );
        }
        Ok(())
    })?;
    names.iter().map(|name| attached(cluster, name)).collect()
}
