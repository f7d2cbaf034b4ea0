//! The deployment of `conf/kubernetes`, run by real kubelets from an image of the executables under test.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Cluster,
    cluster::{CLUSTER_SUBNETS, access::MANIFEST, control_plane},
    command, eventually, executable, mounts,
};

use crate::support::{PODS, SOON, attached, pod, small_pod, start, wait_ready};

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

/// Replaces the servers that the lab has started by those of the DaemonSet, as on a fresh node.
pub(crate) fn deploy(cluster: &Cluster) -> Result<()> {
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
    let manifest = MANIFEST
        .replace(placeholder, &format!("apiserver={}", control_plane::URL))
        .replace(subnets, &format!("cluster-subnets={CLUSTER_SUBNETS}"));
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
    cluster.kubectl(["--namespace=ovn-kubernetes", "rollout", "restart", "daemonset/ovn-kubernetes-node"])?;
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
fn image() -> Result<std::path::PathBuf> {
    let root = Path::new(mounts::LAB).join("image");
    for (program, directory) in [(executable::SERVER, "usr/bin"), (executable::PLUGIN, "usr/libexec/cni")] {
        fs::create_dir_all(root.join(directory))?;
        let executable = fs::read(executable::under_test(program)?)?;
        // The dynamic loader, which the image does not have.
        let is_static = !executable.windows(LOADER.len()).any(|window| window == LOADER);
        ensure!(
            is_static,
            "{program} is not static, and the image has nothing but it: run this through `make test-cluster`"
        );
        let file = root.join(directory).join(program);
        fs::write(&file, executable)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
    }
    let archive = root.with_extension("tar");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster/image.sh");
    let reference = MANIFEST
        .lines()
        .find_map(|line| line.trim().strip_prefix("image: "))
        .context("the manifest names an image")?;
    command::output(Command::new(script).arg(reference).arg(&root).arg(&archive).arg("/usr/bin/ovnkube"))?;
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
