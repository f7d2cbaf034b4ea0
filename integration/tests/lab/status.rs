//! STATUS: whether an ADD could succeed now. Each missing part is named alone, with the code of its
//! severity.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use integration::{Lab, Node, Outcome, eventually};

/// A part that an ADD needs: its name in the message, and the code of its absence (51: running pods
/// are affected, too).
struct Part {
    named: &'static str,
    code: u32,
}

const SERVER: Part = Part { named: "node-local server", code: 50 };
const DATABASE: Part = Part { named: "database of Open vSwitch", code: 51 };
const BRIDGE: Part = Part { named: "br-int", code: 51 };
const VSWITCHD: Part = Part { named: "ovs-vswitchd does not answer", code: 51 };
const CONTROLLER: Part = Part { named: "ovn-controller does not answer", code: 50 };
const PARTS: [Part; 5] = [SERVER, DATABASE, BRIDGE, VSWITCHD, CONTROLLER];

/// Checks that STATUS names these parts and no other.
fn must_miss(node: &Node, missing: &[Part]) -> Result<()> {
    must_name(&node.runtime().status()?, missing)
}

/// Checks that an answer to STATUS names these parts and no other.
fn must_name(status: &Outcome, missing: &[Part]) -> Result<()> {
    let error = status.failure()?;
    for Part { named, .. } in PARTS {
        let expected = missing.iter().any(|part| part.named == named);
        ensure!(
            error.msg.contains(named) == expected,
            "{named:?} should {}be in {error:?}",
            if expected { "" } else { "not " }
        );
    }
    let code = missing.iter().map(|part| part.code).max();
    ensure!(Some(error.code) == code, "code {} instead of {code:?}: {error:?}", error.code);
    Ok(())
}

/// Waits until STATUS succeeds: after a restart the daemons need a moment to connect to each other.
fn until_healthy(node: &Node) -> Result<()> {
    eventually("STATUS succeeds", Duration::from_secs(20), || {
        node.runtime().status()?.success().map(drop)
    })
}

#[test]
fn each_missing_part_is_named_alone() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        until_healthy(node).context("with everything there")?;

        node.server.stop()?;
        node.runtime()
            .status()?
            .success()
            .context("a server that could answer a moment ago is being replaced")?;
        node.forget_server()?;
        must_miss(node, &[SERVER]).context("without the server")?;
        node.start_server()?;
        until_healthy(node).context("with the server again")?;

        // ovn-controller would recreate the bridge at once, unless its configuration names another
        // one.
        node.shell(
            "ovs-vsctl set Open_vSwitch . external_ids:ovn-bridge=br-other -- --if-exists del-br br-int",
        )?;
        eventually("the bridge is missed alone", Duration::from_secs(10), || must_miss(node, &[BRIDGE]))?;
        node.shell("ovs-vsctl remove Open_vSwitch . external_ids ovn-bridge -- --if-exists del-br br-other")?;
        until_healthy(node).context("with the bridge again")?;

        node.vswitchd.kill()?;
        must_miss(node, &[VSWITCHD]).context("without ovs-vswitchd")?;
        node.start_vswitchd()?;
        until_healthy(node).context("with ovs-vswitchd again")?;

        node.ovn_controller.kill()?;
        must_miss(node, &[CONTROLLER]).context("without ovn-controller")?;
        node.start_ovn_controller()?;
        until_healthy(node).context("with ovn-controller again")?;

        lab.central.southbound.kill()?;
        eventually("ovn-controller has noticed", Duration::from_secs(10), || {
            let said = node.run(["ovn-appctl", "-t", "ovn-controller", "connection-status"])?;
            ensure!(said.trim() == "not connected", "{said}");
            Ok(())
        })?;
        node.runtime().status()?.success().context("the southbound database is not part of the node")?;
        lab.central.start_southbound()?;
        until_healthy(node).context("with the southbound database again")?;

        node.ovsdb_server.kill()?;
        must_miss(node, &[DATABASE]).context("without ovsdb-server")?;
        node.start_ovsdb_server()?;
        until_healthy(node).context("with ovsdb-server again")
    });
}

#[test]
fn everything_that_is_missing_is_named_in_one_answer() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        // The server was not started.
        node.ovn_controller.kill()?;
        must_miss(node, &[SERVER, CONTROLLER])?;
        node.vswitchd.kill()?;
        must_miss(node, &[SERVER, CONTROLLER, VSWITCHD])
    });
}
