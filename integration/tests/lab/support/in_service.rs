//! A Service and its nodes while parts of the cluster restart, on a runtime that calls STATUS:
//! shared by the tests with a cluster and the fault matrix.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use integration::{
    Cluster, Pod,
    cluster::{
        InService,
        attached::is_ready,
        manifest::{self, for_node},
    },
    eventually, let_pass,
};
use serde_json::{Value, json};

const NAMESPACED: &str = "/api/v1/namespaces/default";
/// Endpoints of the Service, on two nodes.
const ENDPOINTS: usize = 4;
/// Time for a fault to become visible: the kubelet asks the runtime every 5 s, and reports to the
/// API server every 10 s at the latest.
const TOLD: Duration = Duration::from_secs(16);
/// Downtime of the API server: as long as an upgrade of it takes.
const API_SERVER_AWAY: Duration = Duration::from_secs(60);
/// Limit for pods and endpoints to become ready or to disappear, on a busy machine.
const SOON: Duration = Duration::from_secs(60);
/// STATUS fails one minute after the server has gone; the rest is time for the kubelet's next
/// question and report.
const MISSED: Duration = Duration::from_secs(60 + 40);

/// A Service whose endpoints are probed all the time, with a watch on their readiness.
pub(crate) struct Scene<'cluster> {
    cluster: &'cluster Cluster,
    pods: Vec<Pod>,
    watch: InService,
}

impl<'cluster> Scene<'cluster> {
    /// Creates the Service and its endpoints on both nodes.
    pub(crate) fn begin(cluster: &'cluster Cluster) -> Result<Self> {
        // By default, Kubernetes takes a node out of service whose kubelet has not reported for 50
        // s: too short for `API_SERVER_AWAY`. After it the controller manager may be blind to
        // reports for two more minutes: its next watch waits up to 60 s, is too old then, and waits
        // as long again.
        let controllers = &cluster.control_plane.controller_manager;
        controllers.stop()?;
        controllers.set_arguments(
            controllers
                .arguments()
                .into_iter()
                .chain(["--node-monitor-grace-period=300s".to_owned()]),
        );
        controllers.spawn()?;
        let ports = json!([{"port": 80, "targetPort": 8080}]);
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": ports}});
        cluster.api.create(&format!("{NAMESPACED}/services"), &service)?;
        let names: Vec<String> = (0..ENDPOINTS).map(|number| format!("web-{number}")).collect();
        for (number, name) in names.iter().enumerate() {
            cluster.api.create(
                &format!("{NAMESPACED}/pods"),
                &endpoint(name, &format!("node{}", number % 2 + 1)),
            )?;
        }
        cluster.pods.wait("the endpoints are ready", SOON, |known| {
            let waiting: Vec<_> = names
                .iter()
                .filter(|name| !known.get(&format!("default/{name}")).is_some_and(is_ready))
                .collect();
            ensure!(waiting.is_empty(), "{waiting:?} are not");
            Ok(())
        })?;
        eventually("the Service has its endpoints", SOON, || {
            let slices =
                cluster.api.read("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices")?;
            let ready = slices.to_string().matches("\"ready\":true").count();
            // At least, because the API server's own Service has an endpoint, too.
            ensure!(ready >= ENDPOINTS, "{ready} are ready");
            Ok(())
        })?;
        let pods = names
            .iter()
            .map(|name| cluster.attached(&format!("default/{name}")))
            .collect::<Result<Vec<_>>>()?;
        // Warm-up: the first packet may be lost to address resolution.
        cluster.lab.ping(&pods[0], pods[1].address())?;
        Ok(Self { cluster, pods, watch: cluster.keep_in_service("web", ENDPOINTS) })
    }

    /// Runs `body`, which must stay unnoticed: no node becomes NotReady, no endpoint is lost, and
    /// no packet between nodes.
    pub(crate) fn unnoticed(&self, what: &str, body: impl FnOnce() -> Result<()>) -> Result<()> {
        let flow = self.cluster.lab.flow(&self.pods[0], &self.pods[1])?;
        body().with_context(|| what.to_owned())?;
        let_pass(TOLD);
        let echoes = flow.stop()?;
        ensure!(
            echoes.sent > 50 && echoes.received == echoes.sent,
            "{what}: packets were lost: {echoes:?}"
        );
        self.watch.verdict().with_context(|| what.to_owned())
    }

    /// The southbound database is down for two rounds of STATUS.
    pub(crate) fn southbound_database_restarts(&self) -> Result<()> {
        self.cluster.lab.central.southbound.kill()?;
        let_pass(Duration::from_secs(12));
        self.cluster.lab.central.start_southbound()
    }

    /// The API server is down for a minute.
    pub(crate) fn api_server_is_away(&self) -> Result<()> {
        self.cluster.control_plane.api_server.kill()?;
        let_pass(API_SERVER_AWAY);
        self.cluster.start_api_server()
    }

    /// The servers are replaced one after the other. Each new one starts two rounds of STATUS
    /// later, as when its image has to be pulled.
    pub(crate) fn servers_are_replaced(&self) -> Result<()> {
        for (node, _) in self.cluster.nodes() {
            node.server.stop()?;
            let_pass(Duration::from_secs(12));
            node.start_server()?;
        }
        Ok(())
    }

    /// A server that stays away is noticed, which proves that `unnoticed` can fail. The node's pods
    /// can still be deleted.
    pub(crate) fn a_missing_server_is_noticed_and_pods_go(self) -> Result<()> {
        let Self { cluster, pods, watch } = self;
        let node = &cluster.lab.nodes[0];
        node.server.stop()?;
        let seen = eventually("the node is not ready", MISSED, || match watch.verdict() {
            Ok(()) => Err(anyhow::anyhow!("it is")),
            Err(seen) => Ok(format!("{seen:#}")),
        })?;
        ensure!(
            seen.contains("node1: Ready is False") && seen.contains("NetworkPluginNotReady"),
            "{seen}"
        );
        cluster.api.delete(&format!("{NAMESPACED}/pods/{}", pods[0].name))?;
        cluster.pods.wait("a pod of a node that is not ready is gone", SOON, |known| {
            ensure!(!known.contains_key("default/web-0"), "it is there");
            Ok(())
        })?;
        let rows = node.census()?;
        ensure!(
            rows.lines_with(&pods[0].sandbox).is_empty(),
            "DEL has left: {:#?}",
            rows.lines_with(&pods[0].sandbox)
        );
        node.start_server()?;
        cluster.wait_until_ready()
    }
}

/// An endpoint whose kubelet probes it over the network.
fn endpoint(name: &str, node: &str) -> Value {
    let probe = json!({
        "httpGet": {"path": "/hostname", "port": 8080},
        "periodSeconds": 2, "timeoutSeconds": 2, "failureThreshold": 2,
    });
    let container = json!({"args": ["--http-port=8080"], "readinessProbe": probe});
    let mut pod = for_node(manifest::pod(name, &container), node);
    pod["metadata"]["labels"] = json!({"app": "web"});
    pod
}
