//! Names of Services, from CoreDNS in the cluster: in pods, on nodes and in pods of the host
//! network.

use std::{net::IpAddr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use integration::{Cluster, Node, cluster::dns, eventually, threads};
use serde_json::json;

use crate::cluster::support::{
    DEPLOYMENTS, PODS, SOON, deployment, pod, scale, small_pod, wait_for_exactly, wait_ready,
};

/// Longest time in which no answer may come while one of two replicas goes. Open vSwitch's datapath
/// in user space may lose a packet while it removes the port of the one that went
/// (`integration/packet-loss.sh` shows it without any program of ours), so a client asks again
/// after a second, as a resolver with `timeout:1` does.
const GAP: Duration = Duration::from_millis(2500);

#[test]
fn every_pod_resolves_names_also_while_one_of_two_replicas_of_coredns_is_deleted() {
    Cluster::of_nodes(2).dns().test(|cluster| {
        let clients = ["client-1", "client-2"];
        let pods = clients
            .iter()
            .zip(&cluster.lab.nodes)
            .map(|(name, node)| named(small_pod(name, &node.name)));
        cluster.api.create_all(PODS, &pods.collect::<Vec<_>>())?;
        wait_ready(cluster, &clients)?;
        for client in clients {
            eventually("the pod resolves kubernetes.default", SOON, || {
                let answer = exec(cluster, client, "nslookup kubernetes.default")?;
                ensure!(answer.contains("10.96.0.1"), "{answer}");
                Ok(())
            })?;
        }
        let gaps = std::thread::scope(|scope| {
            let asking: Vec<_> =
                clients.map(|client| scope.spawn(move || longest_gap(cluster, client))).into();
            let replica = replicas(cluster).first().context("a replica of CoreDNS")?.clone();
            cluster.api.delete(&format!("/api/v1/namespaces/{}/pods/{replica}", dns::NAMESPACE))?;
            asking.into_iter().map(threads::join).collect::<Result<Vec<[Duration; 2]>>>()
        })?;
        println!("longest time without an answer, and when it began: {gaps:?}");
        ensure!(gaps.iter().all(|[gap, _]| *gap <= GAP), "{gaps:?}");
        Ok(())
    });
}

#[test]
fn an_exposed_deployment_answers_under_its_name_from_pods_nodes_and_host_network_pods() {
    Cluster::of_nodes(2).dns().test(|cluster| {
        let mut template = pod("web", "")["spec"].clone();
        template["nodeSelector"] = json!({});
        cluster.api.create(DEPLOYMENTS, &deployment("web", &template))?;
        scale(cluster, "web", 2)?;
        wait_for_exactly(cluster, 2, SOON)?;
        cluster.kubectl(["expose", "deployment", "web", "--port=80", "--target-port=8080"])?;
        let mut callers = Vec::new();
        for node in &cluster.lab.nodes {
            let (inside, host) = (format!("pod-{}", node.name), format!("host-{}", node.name));
            let mut of_host = named(small_pod(&host, &node.name));
            of_host["spec"]["hostNetwork"] = json!(true);
            of_host["spec"]["dnsPolicy"] = json!("ClusterFirstWithHostNet");
            cluster.api.create_all(PODS, &[named(small_pod(&inside, &node.name)), of_host])?;
            callers.extend([inside, host]);
        }
        wait_ready(cluster, &callers)?;
        for caller in &callers {
            eventually("the Service answers under its name", SOON, || {
                answers(&exec(
                    cluster,
                    caller,
                    "curl --silent --show-error --max-time 3 http://web/hostname",
                )?)
                .with_context(|| format!("in {caller}"))
            })?;
        }
        // A node asks the cluster's name server only where an administrator tells it to.
        for node in &cluster.lab.nodes {
            eventually("the Service answers the node", SOON, || {
                let address = resolve(node, "web.default.svc.cluster.local")?;
                let url = format!("http://{address}/hostname");
                answers(&node.run(["curl", "--silent", "--show-error", "--max-time", "3", &url])?)
                    .with_context(|| format!("on {}", node.name))
            })?;
        }
        Ok(())
    });
}

/// The same pod with the cluster's name server.
fn named(mut pod: serde_json::Value) -> serde_json::Value {
    pod["spec"]["dnsPolicy"] = json!("ClusterFirst");
    pod
}

fn answers(hostname: &str) -> Result<()> {
    ensure!(hostname.starts_with("web-"), "{hostname:?} answers");
    Ok(())
}

fn exec(cluster: &Cluster, pod: &str, command: &str) -> Result<String> {
    cluster.kubectl(["exec", pod, "--"].into_iter().chain(command.split_whitespace()))
}

/// The address of a name, from the cluster's name server, asked on a node.
fn resolve(node: &Node, name: &str) -> Result<IpAddr> {
    let answer = node.run(["busybox", "nslookup", name, dns::ADDRESS])?;
    // The server's own address comes first, with its port.
    let mut addresses =
        answer.lines().filter_map(|line| line.strip_prefix("Address:")?.trim().parse().ok());
    addresses.next_back().with_context(|| format!("no address of {name}: {answer}"))
}

fn replicas(cluster: &Cluster) -> Vec<String> {
    let prefix = format!("{}/", dns::NAMESPACE);
    let known = cluster.pods.now();
    let names = known
        .keys()
        .filter_map(|key| key.strip_prefix(&prefix))
        .filter(|name| name.starts_with("coredns-"));
    names.map(str::to_owned).collect()
}

/// Asks for 20 s, without a pause, and returns the longest time between two answers, and when it
/// began.
fn longest_gap(cluster: &Cluster, client: &str) -> Result<[Duration; 2]> {
    // The kernel's uptime, in hundredths of a second, before the first and after each answer.
    let ask = "read began rest </proc/uptime; echo $began; \
               while read now rest </proc/uptime; [ $(( ${now%.*} - ${began%.*} )) -lt 20 ]; do \
               nslookup -timeout=1 kubernetes.default >/dev/null && read now rest </proc/uptime && echo $now; done";
    let answer = cluster.kubectl(["exec", client, "--", "sh", "-c", ask])?;
    let times: Vec<f64> =
        answer.lines().map(str::parse).collect::<Result<_, _>>().context(answer.clone())?;
    ensure!(times.len() > 10, "only {} answers", times.len());
    let gaps = times.windows(2).map(|pair| (pair[1] - pair[0], pair[0] - times[0]));
    let (gap, at) =
        gaps.fold((0.0, 0.0), |longest, next| if next.0 > longest.0 { next } else { longest });
    Ok([gap, at].map(Duration::from_secs_f64))
}
