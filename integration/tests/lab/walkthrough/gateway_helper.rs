//! The flows of a bridge that node and pods share, and the daemon that keeps them.

use std::fs;

use anyhow::{Result, ensure};
use integration::{Lab, Node, eventually, fabric};
use serde_json::json;

use crate::support::api::Api;
use crate::walkthrough::{MASTER_INIT, SOON, gateway_init, prepare, say, succeed};

/// Starts the helper of the walk-through, and says what it printed.
const HELPER: &str = "ovn-k8s-gateway-helper --physical-bridge=breth0 --physical-interface=eth0 \
     --pidfile --log-file -vfile:info -vconsole:emer --detach";
const PID: &str = "/run/openvswitch/ovn-k8s-gateway-helper.pid";
const LOG: &str = "/var/log/openvswitch/ovn-k8s-gateway-helper.log";

fn flows(node: &Node) -> Result<String> {
    node.shell("ovs-ofctl -O OpenFlow14 --no-stats --names dump-flows breth0")
}

fn appctl(node: &Node, command: &str) -> Result<String> {
    node.shell(&format!("ovs-appctl -t ovn-k8s-gateway-helper {command}"))
}

fn service(port: u16) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": "shop", "name": "web", "uid": "web"},
        "spec": {
            "type": "NodePort", "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"],
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 8080, "nodePort": port}],
        },
    })
}

#[test]
fn the_gateway_helper_keeps_its_flows_and_answers_ovs_appctl() {
    Lab::of_nodes(1).empty().test(|lab| {
        prepare(lab)?;
        let node = &lab.nodes[0];
        succeed(node, MASTER_INIT)?;
        succeed(node, &gateway_init(&fabric::address(1)))?;
        let said = say(node, HELPER)?;
        ensure!(
            said.status == Some(1) && said.err.contains("K8S_API_SERVER not set"),
            "{:?}",
            said.err
        );
        ensure!(!node.path(PID).exists(), "a pidfile is left");

        let api = Api::start()?;
        api.put(service(30_080));
        node.vsctl([
            "set",
            "Open_vSwitch",
            ".",
            &format!("external_ids:k8s-api-server=\"{}\"", api.url()),
        ])?;
        let said = say(node, &HELPER.replace("breth0", "breth7"))?;
        ensure!(
            said.status == Some(1) && said.err.contains("bridge breth7 does not exist"),
            "{:?}",
            said.err
        );
        let said = say(node, HELPER)?;
        ensure!(
            said.status == Some(0) && said.out.is_empty() && said.err.is_empty(),
            "{:?} {:?}",
            said.out,
            said.err
        );
        let all = flows(node)?;
        for flow in [
            "priority=100,ip,in_port=\"k8s-patch-breth\"",
            "ct(commit,zone=64000),output:eth0",
            "priority=50,ip,in_port=eth0 actions=ct(table=1,zone=64000)",
            "table=1, priority=100,ct_state=+est+trk",
            "table=1, priority=100,ct_state=+rel+trk",
            "table=1, priority=0 actions=NORMAL",
            "tcp,in_port=eth0,tp_dst=30080",
        ] {
            ensure!(all.contains(flow), "{flow:?} is not in:\n{all}");
        }
        // The node's own connections over the same NIC.
        eventually("the lab answers", SOON, || {
            node.run(["ping", "-n", "-c", "1", "-W", "1", fabric::LAB_ADDRESS]).map(drop)
        })?;

        // Services, and flows that another program removes.
        api.put(service(30_081));
        eventually("the flow follows", SOON, || has(node, "tp_dst=30081", "tp_dst=30080"))?;
        node.shell("ovs-ofctl -O OpenFlow14 del-flows breth0 table=1")?;
        eventually("the flows are back", SOON, || has(node, "ct_state=+est+trk", "tp_dst=30080"))?;

        // A switch that starts anew has no flows, and perhaps other numbers of ports.
        node.vswitchd.kill()?;
        node.start_vswitchd()?;
        eventually("the new switch has the flows", SOON, || {
            has(node, "tp_dst=30081", "tp_dst=30080")
        })?;
        let all = flows(node)?;
        ensure!(all.contains("tp_dst=30081 actions=output:\"k8s-patch-breth\""), "{all}");

        // The real ovs-appctl.
        let version = appctl(node, "version")?;
        ensure!(version.starts_with("ovn-k8s-gateway-helper (OVN-Kubernetes) "), "{version}");
        levels(node, "gateway_helper EMER OFF INFO")?;
        appctl(node, "vlog/set gateway_helper:file:dbg")?;
        levels(node, "gateway_helper EMER OFF DBG")?;
        ensure!(
            appctl(node, "vlog/set nonsense!").is_err() && appctl(node, "fly").is_err(),
            "it took nonsense"
        );
        node.shell(&format!("mv {LOG} {LOG}.1"))?;
        appctl(node, "vlog/reopen")?;
        eventually("the log is there again", SOON, || {
            ensure!(node.path(LOG).exists(), "no log");
            Ok(())
        })?;
        let said = say(node, HELPER)?;
        ensure!(
            said.status == Some(1) && said.err.contains("is running already"),
            "{:?}",
            said.err
        );

        // What is out of date at the start goes.
        appctl(node, "exit")?;
        eventually("it has ended", SOON, || {
            ensure!(
                !node.path(PID).exists()
                    && node.shell("ls /run/openvswitch | grep gateway-helper").is_err(),
                "files are left"
            );
            Ok(())
        })?;
        ensure!(flows(node)?.contains("tp_dst=30081"), "its flows went with it");
        api.put(service(30_082));
        let said = say(node, &format!("{HELPER} --monitor"))?;
        ensure!(said.status == Some(0), "{:?}", said.err);
        has(node, "tp_dst=30082", "tp_dst=30081")?;

        // A crash.
        let pid = fs::read_to_string(node.path(PID))?;
        node.shell(&format!("kill -ABRT {pid}"))?;
        eventually("it runs again", SOON, || {
            let now = fs::read_to_string(node.path(PID))?;
            ensure!(now != pid && appctl(node, "version").is_ok(), "{now}");
            Ok(())
        })?;
        appctl(node, "exit").map(drop)
    });
}

fn has(node: &Node, there: &str, gone: &str) -> Result<()> {
    let all = flows(node)?;
    ensure!(all.contains(there) && !all.contains(gone), "{all}");
    Ok(())
}

/// What `vlog/list` says of a module.
fn levels(node: &Node, line: &str) -> Result<()> {
    let list = appctl(node, "vlog/list")?;
    let mut lines = list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    ensure!(lines.any(|said| said == line), "{list}");
    Ok(())
}
