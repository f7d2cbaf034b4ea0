//! The watcher, and the pod `sshd-2`: its address, its annotation, the plugin's log, what Open
//! vSwitch shows, and the way of a packet.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use integration::{Lab, Node, Pod, eventually, fabric};
use serde_json::{Value, json};

use crate::support::{api::Api, cluster_pods};
use crate::walkthrough::{
    MASTER_INIT, SOON, gateway_init, minion_init, nbctl, prepare, say, succeed,
};

/// Starts the watcher of the walk-through.
const WATCHER: &str =
    "ovn-k8s-watcher --overlay --pidfile --log-file -vfile:info -vconsole:emer --detach";
const PID: &str = "/run/openvswitch/ovn-k8s-watcher.pid";
const LOG: &str = "/var/log/openvswitch/ovn-k8s-watcher.log";
const PLUGIN_LOG: &str = "/var/log/openvswitch/ovn-k8s-cni-overlay.log";

const NODES: [&str; 3] = ["kube-master", "kube-node1", "kube-node2"];

/// The manifest of the walk-through.
fn sshd(pod: &Pod) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
        "spec": {"nodeName": "kube-node1", "containers": [{"name": "sshd", "image": "sshd"}]},
    })
}

fn start_server(node: &Node, name: &str) -> Result<()> {
    node.server.set_arguments([
        format!("--init-node={name}"),
        "--cluster-subnets=192.168.0.0/16/24".to_owned(),
        "--loglevel=5".to_owned(),
    ]);
    node.start_server()?;
    eventually("the CNI configuration is written", SOON, || {
        ensure!(node.cni_conf().exists(), "{}", node.server_log()?);
        Ok(())
    })
}

#[test]
fn the_watcher_gives_the_pod_of_the_walk_through_its_network() {
    Lab::of_nodes(3).empty().test(|lab| {
        prepare(lab)?;
        let api = Api::start()?;
        let [master, first, second] = &lab.nodes[..] else { unreachable!("three nodes") };
        for (node, name) in lab.nodes.iter().zip(NODES) {
            node.shell(&format!(
                "ovs-vsctl set Open_vSwitch . external_ids:k8s-api-server=\"{}\" external_ids:hostname={name}",
                api.url()
            ))?;
            cluster_pods::put_node(&api, node, name);
        }
        let said = say(master, WATCHER)?;
        ensure!(said.status == Some(1) && said.err.contains("K8S_CLUSTER_ROUTER not set"), "{}", said.err);
        let said = say(master, "ovn-k8s-watcher --pidfile --detach")?;
        let needed = "Atleast one of --overlay, --underlay or --openstack needed";
        ensure!(said.status == Some(2) && said.err.contains(needed), "{}", said.err);

        succeed(master, MASTER_INIT)?;
        succeed(first, &minion_init(1))?;
        succeed(second, &minion_init(2))?;
        succeed(master, &gateway_init(&fabric::address(1)))?;
        let said = say(master, WATCHER)?;
        ensure!(
            said.status == Some(0) && said.out.is_empty() && said.err.is_empty(),
            "{:?} {:?}\n{}",
            said.out,
            said.err,
            fs::read_to_string(master.path(LOG)).unwrap_or_default()
        );
        // `ps -ef | grep ovn-k8s-watcher`
        let pid = fs::read_to_string(master.path(PID))?;
        let line = master.shell(&format!("tr '\\0' ' ' < /proc/{}/cmdline", pid.trim()))?;
        ensure!(line.contains(WATCHER), "{line}");
        eventually("the watcher has taken the rows over", SOON, || {
            let subnet = api.annotation("kube-node2", "k8s.ovn.org/node-subnets");
            ensure!(
                subnet.as_deref() == Some("{\"default\":[\"192.168.3.0/24\"]}"),
                "{subnet:?}\n{}",
                fs::read_to_string(master.path(LOG))?
            );
            nbctl("get Logical_Router ovn_cluster_router name").map(drop)
        })?;
        start_server(first, "kube-node1")?;
        start_server(second, "kube-node2")?;

        // `kubectl create -f sshd-2.yaml`
        let mut pod = lab.plan_pod(first);
        (pod.namespace, pod.name) = ("default".to_owned(), "sshd-2".to_owned());
        first.add_namespaces(std::slice::from_ref(&pod))?;
        api.put(sshd(&pod));
        let result = first.configured_runtime()?.add(&pod)?.success()?;
        ensure!(result["ips"][0]["address"] == "192.168.2.3/24", "{result}");
        let known = api.read(&sshd(&pod)).context("the pod is there")?;
        let annotation = known["metadata"]["annotations"]["ovn"].as_str().context("no annotation ovn")?;
        let annotation: Value = serde_json::from_str(annotation)?;
        let mac = annotation["mac_address"].as_str().context("no MAC")?;
        ensure!(
            annotation["gateway_ip"] == "192.168.2.1" && annotation["ip_address"] == "192.168.2.3/24",
            "{annotation}"
        );
        let port = nbctl("lsp-get-addresses default_sshd-2")?;
        ensure!(port == format!("{mac} 192.168.2.3"), "{port}");

        // The story of the plugin's log, and what it has made.
        let log = fs::read_to_string(first.path(PLUGIN_LOG))?;
        let link = pod.host_interface();
        for part in [
            format!("container_id={}", pod.sandbox),
            "K8S_POD_NAMESPACE=default;K8S_POD_NAME=sshd-2".to_owned(),
            format!("mac={mac}"),
            format!("made the veth: the host's end, and the index of the pod's name={link}"),
            "the port is in Open vSwitch".to_owned(),
            "iface_id=default_sshd-2".to_owned(),
            "192.168.2.1".to_owned(),
            "the result".to_owned(),
        ] {
            ensure!(log.contains(&part), "{part:?} is not in:\n{log}");
        }
        let inside = first.run_in_pod(&pod, ["ip", "addr", "show", "eth0"])?;
        for part in [mac, "192.168.2.3/24", "mtu 1400"] {
            ensure!(inside.contains(part), "{part:?} is not in:\n{inside}");
        }

        // `ping 192.168.2.3` on kube-node2
        eventually("the pod answers kube-node2", SOON, || {
            second.run(["ping", "-n", "-c", "1", "-W", "1", "192.168.2.3"]).map(drop)
        })?;
        // `ovs-vsctl show` on kube-node1
        let show = first.vsctl(["show"])?;
        for part in ["Bridge br-int", "fail_mode: secure", "Port ovn-", "type: geneve", "key=flow", &link] {
            ensure!(show.contains(part), "{part:?} is not in:\n{show}");
        }
        // `ovs-appctl ofproto/trace`, on both ends of the tunnel.
        let router = nbctl("get Logical_Router_Port rtos-kube-node1 mac")?;
        let number = first.vsctl(["get", "Interface", &link, "ofport"])?;
        let trace = first.shell(&format!(
            "ovs-appctl ofproto/trace br-int in_port={},ip,dl_src={mac},dl_dst={router},nw_src=192.168.2.3,\
             nw_dst=192.168.3.2,nw_ttl=32",
            number.trim()
        ))?;
        for part in ["output to", "tunnel", "Final flow:", "Datapath actions:"] {
            ensure!(trace.contains(part), "{part:?} is not in:\n{trace}");
        }

        // The pod goes.
        first.configured_runtime()?.del(&pod)?.success()?;
        api.remove(&sshd(&pod));
        eventually("the pod's port is gone", SOON, || {
            let ports = nbctl("lsp-list kube-node1")?;
            ensure!(!ports.contains("sshd-2"), "{ports}");
            Ok(())
        })?;
        let appctl = |command: &str| master.shell(&format!("ovs-appctl -t ovn-k8s-watcher {command}"));
        ensure!(appctl("version")?.starts_with("ovn-k8s-watcher (OVN-Kubernetes) "), "version");
        appctl("exit")?;
        eventually("the watcher has ended", Duration::from_secs(20), || {
            ensure!(!master.path(PID).exists(), "a pidfile is left");
            Ok(())
        })
    });
}
