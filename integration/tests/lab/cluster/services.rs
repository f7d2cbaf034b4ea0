//! Pods reach Services by packets, through OVN alone: no kube-proxy runs.

use std::{collections::BTreeSet, time::Instant};

use anyhow::{Context as _, Result, ensure};
use integration::{Cluster, eventually};
use serde_json::{Value, json};

use crate::cluster::support::{PODS, SOON, pod, wait_ready};

const SERVICES: &str = "/api/v1/namespaces/default/services";

/// A pod behind Services that select `app`, with its HTTP server on this port, which it calls
/// `http`.
fn backend(name: &str, node: &str, app: &str, port: u16) -> Value {
    let mut pod = pod(name, node);
    pod["metadata"]["labels"] = json!({"app": app});
    let container = &mut pod["spec"]["containers"][0];
    container["args"] = json!([format!("--http-port={port}"), "--udp-port=8081"]);
    container["ports"] = json!([{"name": "http", "containerPort": port}]);
    container["readinessProbe"] = json!({"tcpSocket": {"port": port}, "periodSeconds": 1});
    pod
}

/// Creates a Service and returns its address.
fn service(cluster: &Cluster, name: &str, spec: Value) -> Result<String> {
    let object = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    });
    let created = cluster.api.create(SERVICES, &object)?;
    Ok(created["spec"]["clusterIP"].as_str().context("no address")?.to_owned())
}

/// Runs a shell command in a pod.
fn run(cluster: &Cluster, pod: &str, command: &str) -> Result<String> {
    cluster.kubectl(["exec", pod, "--", "sh", "-c", command])
}

/// The names of the pods that answer some requests of one client.
fn answers(
    cluster: &Cluster,
    client: &str,
    address: &str,
    requests: u32,
) -> Result<BTreeSet<String>> {
    let one = format!("timeout 3 wget -qO- http://{address}/hostname; echo");
    let all = run(cluster, client, &format!("for n in $(seq {requests}); do {one}; done"))?;
    Ok(all.split_whitespace().map(str::to_owned).collect())
}

fn names(of: &[&str]) -> BTreeSet<String> {
    of.iter().map(|name| (*name).to_owned()).collect()
}

/// Waits until exactly these pods answer.
fn answer(cluster: &Cluster, client: &str, address: &str, pods: &[&str]) -> Result<()> {
    eventually(&format!("{pods:?} answer {client} at {address}"), SOON, || {
        let found = answers(cluster, client, address, 20)?;
        ensure!(found == names(pods), "{found:?} do");
        Ok(())
    })
}

#[test]
fn services_lead_to_their_pods_and_nowhere_else() {
    Cluster::of_nodes(2).test(|cluster| {
        let pods = [
            backend("web-1", "node1", "web", 8080),
            backend("web-2", "node2", "web", 9090),
            backend("solo", "node1", "solo", 8080),
            pod("client", "node1"),
            pod("far", "node2"),
        ];
        cluster.api.create_all(PODS, &pods)?;
        wait_ready(cluster, &["web-1", "web-2", "solo", "client", "far"])?;

        // The number that the name `http` stands for differs: 8080 and 9090.
        let selector = json!({"app": "web"});
        let http = json!([{"port": 80, "targetPort": "http"}]);
        let web = service(cluster, "web", json!({"selector": selector, "ports": http}))?;
        for client in ["client", "far", "web-1"] {
            answer(cluster, client, &web, &["web-1", "web-2"])?;
        }

        // A pod reaches itself.
        let of_solo = json!({"app": "solo"});
        let solo = service(cluster, "solo", json!({"selector": of_solo, "ports": http}))?;
        answer(cluster, "solo", &solo, &["solo"])?;

        // One protocol beside another, at the same port.
        let two = json!([
            {"name": "t", "port": 80, "targetPort": "http"},
            {"name": "u", "port": 80, "protocol": "UDP", "targetPort": 8081},
        ]);
        let both = service(cluster, "both", json!({"selector": of_solo, "ports": two}))?;
        answer(cluster, "client", &both, &["solo"])?;
        eventually("UDP is answered", SOON, || {
            let ask = format!("/agnhost connect {both}:80 --protocol=udp --timeout=2s");
            run(cluster, "client", &ask)
        })?;

        // A client stays with one backend, and another one comes when it has gone.
        let spec = json!({
            "selector": selector, "ports": http, "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
        });
        let sticky = service(cluster, "sticky", spec)?;
        eventually("the client keeps its backend", SOON, || {
            let found = answers(cluster, "client", &sticky, 20)?;
            ensure!(found.len() == 1, "{found:?} answer");
            Ok(())
        })?;

        // Only backends of the client's node.
        let spec = json!({"selector": selector, "ports": http, "internalTrafficPolicy": "Local"});
        let local = service(cluster, "local", spec)?;
        answer(cluster, "client", &local, &["web-1"])?;
        answer(cluster, "far", &local, &["web-2"])?;

        // Nothing behind it: refused, and at once.
        let empty =
            service(cluster, "empty", json!({"selector": {"app": "nothing"}, "ports": http}))?;
        eventually("connections to an empty Service are refused", SOON, || {
            let begun = Instant::now();
            let refused = run(
                cluster,
                "client",
                &format!("/agnhost connect {empty}:80 --timeout=5s 2>&1; true"),
            )?;
            let took = begun.elapsed();
            ensure!(refused.contains("REFUSED"), "{refused}");
            ensure!(took.as_secs_f64() < 2.0, "refused after {took:?}");
            Ok(())
        })?;

        // A pod that goes is not asked any more; a port that changes is the new one.
        cluster.api.delete(&format!("{PODS}/web-2"))?;
        answer(cluster, "far", &web, &["web-1"])?;
        cluster.api.patch(
            &format!("{SERVICES}/web"),
            &json!({"spec": {"ports": [{"port": 81, "targetPort": "http"}]}}),
        )?;
        answer(cluster, "far", &format!("{web}:81"), &["web-1"])?;
        Ok(())
    });
}
