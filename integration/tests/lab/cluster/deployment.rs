//! The deployment of `conf/kubernetes`, run by real kubelets from an image of the executables under
//! test.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use contract::node_annotation::GATEWAY_CONFIG;
use integration::{
    Cluster,
    cluster::{CLUSTER_SUBNETS, GatewayMode, access::MANIFEST, control_plane},
    command, eventually, executable, mounts,
    world::Machine,
};

use crate::cluster::support::{
    PODS, SOON, attached, pod, small_pod, start, the_world_sees_the_node_of, wait_ready,
};

const LOADER: &[u8] = b"/ld-linux";
const DAEMON_SET: &str = "/apis/apps/v1/namespaces/ovn-kubernetes/daemonsets/ovn-kubernetes-node";

#[test]
fn the_daemon_set_installs_the_plugin_and_gives_pods_their_network() {
    Cluster::of_nodes(2).test(|cluster| {
        deploy(cluster)?;
        cluster.wait_until_ready()?;
        let before = cluster.leftovers()?;
        let [here, there] =
            [start(cluster, &pod("here", "node1"))?, start(cluster, &small_pod("there", "node2"))?];
        cluster.lab.ping(&here, there.address())?;
        cluster.lab.tcp(&there, &here, 1 << 20)?;

        // An update of the server leaves running pods alone.
        roll_out(cluster)?;
        wait_ready(cluster, &["here", "there"])?;
        ensure!(attached(cluster, "here")?.sandbox == here.sandbox, "the pod was restarted");
        cluster.lab.ping(&there, here.address())?;

        cluster.api.delete(PODS)?;
        cluster.must_leave_nothing(&before)
    });
}

#[test]
fn a_gateway_in_the_container_of_the_daemon_set_leads_pods_to_the_world() {
    Cluster::of_nodes(2).gateway(GatewayMode::Shared).test(|cluster| {
        deploy_with(cluster, &[("#mode=shared", "mode=shared")])?;
        cluster.wait_until_ready()?;
        let pod = start(cluster, &pod("here", "node1"))?;
        let (_web, web) = cluster.lab.mirroring_outside(Machine::Web, 80)?;
        the_world_sees_the_node_of(cluster, &pod, &web)?;
        let object = cluster.api.read("/api/v1/nodes/node1")?;
        let config = &object["metadata"]["annotations"][GATEWAY_CONFIG];
        ensure!(
            config.as_str().is_some_and(|text| text.contains(r#""mode":"shared""#)),
            "{config}"
        );
        Ok(())
    });
}

/// Replaces the servers that the lab has started by those of the DaemonSet, as on a fresh node.
pub(crate) fn deploy(cluster: &Cluster) -> Result<()> {
    deploy_with(cluster, &[])
}

/// The same with these changes of the manifest.
fn deploy_with(cluster: &Cluster, changes: &[(&str, &str)]) -> Result<()> {
    let image = image()?;
    for (node, worker) in cluster.nodes() {
        node.server.stop()?;
        fs::remove_file(node.cni_conf())?;
        fs::remove_file(node.path("/opt/cni/bin").join(executable::PLUGIN))?;
        worker.import_image(node, &image)?;
    }
    let file = Path::new(mounts::LAB).join("deployment.yaml");
    let placeholder = "#apiserver=https://192.0.2.1:6443";
    ensure!(
        MANIFEST.contains(placeholder),
        "the manifest has no {placeholder}: its default for the API server's address has changed"
    );
    let subnets = "cluster-subnets=10.128.0.0/14/23";
    ensure!(MANIFEST.contains(subnets), "the manifest has no {subnets}: its default has changed");
    let mut manifest = MANIFEST
        .replace(placeholder, &format!("apiserver={}", control_plane::URL))
        .replace(subnets, &format!("cluster-subnets={CLUSTER_SUBNETS}"));
    for (default, value) in changes {
        ensure!(manifest.contains(default), "the manifest has no {default} any more");
        manifest = manifest.replace(default, value);
    }
    fs::write(&file, manifest)?;
    cluster.kubectl(["apply", "--filename", &file.to_string_lossy()])?;
    eventually("the server is ready on every node", SOON, || {
        let status = &cluster.api.read(DAEMON_SET)?["status"];
        ensure!(status["numberReady"] == 2, "{status}{}", said(cluster));
        Ok(())
    })
}

/// Replaces every pod of the DaemonSet, as an update does.
pub(crate) fn roll_out(cluster: &Cluster) -> Result<()> {
    cluster.kubectl([
        "--namespace=ovn-kubernetes",
        "rollout",
        "restart",
        "daemonset/ovn-kubernetes-node",
    ])?;
    cluster
        .kubectl([
            "--namespace=ovn-kubernetes",
            "rollout",
            "status",
            "daemonset/ovn-kubernetes-node",
            "--timeout=120s",
        ])
        .map(drop)
}

/// The image of `conf/Containerfile`, built without a container builder.
fn image() -> Result<PathBuf> {
    // It has nothing else: no dynamic loader.
    for program in [executable::SERVER, executable::PLUGIN] {
        let executable = fs::read(executable::under_test(program)?)?;
        let is_static = !executable.windows(LOADER.len()).any(|window| window == LOADER);
        ensure!(
            is_static,
            "{program} is not static, and the image has nothing but it: run this through `make test-cluster`"
        );
    }
    let reference = MANIFEST
        .lines()
        .find_map(|line| line.trim().strip_prefix("image: "))
        .context("the manifest names an image")?;
    image_of("ovn-kubernetes-node", reference)
}

/// An image of the executables under test, of this list in `conf/image`, under this name.
pub(crate) fn image_of(list: &str, reference: &str) -> Result<PathBuf> {
    let server = executable::under_test(executable::SERVER)?;
    let bin = server.parent().context("the directory of the executables")?;
    let archive = Path::new(mounts::LAB).join(format!("{list}.tar"));
    let (name, tag) = reference.rsplit_once(':').context("a tag")?;
    let mut build =
        Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../conf/image/image.sh"));
    build.args(["archive", list]).arg(bin).arg(&archive).envs([("NAME", name), ("TAG", tag)]);
    // Debian may have had an update since the last commit.
    command::output(build.env("ANY_VERSIONS", "1"))?;
    Ok(archive)
}

/// The last log lines of the DaemonSet's pods, for error messages.
fn said(cluster: &Cluster) -> String {
    cluster
        .kubectl([
            "--namespace=ovn-kubernetes",
            "logs",
            "--selector=app.kubernetes.io/name=ovn-kubernetes-node",
            "--tail=5",
        ])
        .unwrap_or_default()
}
