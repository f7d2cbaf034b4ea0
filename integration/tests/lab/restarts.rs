//! Restarts of daemons while pods are attached: the pods keep their network. For restarts during
//! ADDs see the fault matrix (`faults/`).

use std::time::Duration;

use anyhow::{Result, ensure};
use integration::{Lab, Node, Pod, eventually};

/// The part of the interface's row that a restart must not change.
fn row(node: &Node, pod: &Pod) -> Result<String> {
    node.vsctl(["--columns=_uuid,name,external_ids", "list", "Interface", &pod.host_interface()])
}

#[test]
fn the_server_says_which_release_of_open_vswitch_it_found_and_whether_it_aborts() {
    Lab::of_nodes(1).test(|lab| {
        let node = lab.node_with_server()?;
        let fixed = node.switch_version()? >= [3, 1, 3];
        let says =
            if fixed { "Open vSwitch's release" } else { "aborts under connections of pods" };
        eventually("the server has looked", Duration::from_secs(10), || {
            let log = node.server_log()?;
            ensure!(log.contains(says), "{log}");
            Ok(())
        })
    });
}

#[test]
fn pods_outlast_a_restart_of_ovs_vswitchd_without_a_call_of_the_plugin() {
    Lab::of_nodes(1).test(|lab| {
        let node = lab.node_with_server()?;
        let (first, second) = (lab.attached_pod(node)?, lab.attached_pod(node)?);
        lab.ping(&first, second.address())?;
        let ports = node.vsctl(["--columns=name,other_config", "list", "Port"])?;
        ensure!(!ports.contains("transient"), "ports of pods must outlast a restart: {ports}");
        let uuids = || Ok::<_, anyhow::Error>([uuid_of(node, &first)?, uuid_of(node, &second)?]);
        let before = uuids()?;
        node.vswitchd.kill()?;
        node.start_vswitchd()?;
        lab.ping(&first, second.address())?;
        lab.ping(&second, first.address())?;
        lab.reaches_gateway(&first)?;
        ensure!(before == uuids()?, "the ports were created again: {}", row(node, &first)?);

        // Once more without a server, which could have repaired something.
        node.server.kill()?;
        node.vswitchd.kill()?;
        node.start_vswitchd()?;
        lab.ping(&first, second.address())
    });
}

fn uuid_of(node: &Node, pod: &Pod) -> Result<String> {
    node.vsctl(["get", "Interface", &pod.host_interface(), "_uuid"])
}
