//! A node moves from the databases of all to its own, and back, while its pods talk.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Result, ensure};
use integration::{Families, Lab, Node, central::Central, eventually, let_pass};

use crate::support::{
    api::Api,
    two_zones::{
        PORT, SOON, Talk, WAY, Zone, annotation, manager, new_pod, pings, reach, tell_node,
    },
};

/// The longest silence, on a machine that does much else. It is 0 on the way to a zone of its own
/// and about 50 ms on the way back, while the link to the cluster router is made.
const LONGEST: Duration = Duration::from_secs(2);

/// Starts the node's server in another zone, kills it after each of these times, and waits until
/// the node is there.
fn move_to(zone: &Zone<'_>, node: &Node, api: &Api, kills: &[u64]) -> Result<()> {
    node.server.stop()?;
    zone.serve(node, api)?;
    for after in kills {
        let_pass(Duration::from_millis(*after));
        node.server.kill()?;
        node.start_server()?;
    }
    eventually("the node is in its new zone", SOON, || {
        let annotation = |key: &str| annotation(api, &node.name, key);
        let (name, next) = (annotation("zone-name"), annotation("zone-next"));
        ensure!(name.as_deref() == Some(zone.name) && next.is_none(), "{name:?}, {next:?}");
        let chassis = zone.central.sbctl(["get", "Chassis", &node.name, "_uuid"])?;
        let condition = format!("chassis={}", chassis.trim());
        let ports = zone.central.sbctl([
            "--bare",
            "--columns=_uuid",
            "find",
            "Port_Binding",
            &condition,
        ])?;
        ensure!(!ports.trim().is_empty(), "no port is bound");
        let paused = node.run(["ovn-appctl", "-t", "ovn-controller", "debug/status"])?;
        ensure!(paused.trim() == "running", "ovn-controller is {paused}");
        Ok(())
    })
}

#[test]
fn a_node_moves_to_databases_of_its_own_and_back_while_its_pods_talk() {
    Lab::of_nodes(2).families(Families::Dual).empty().test(|lab| {
        let api = Api::start()?;
        let central = Central::of_zone("b")?;
        lab.nodes.iter().for_each(|node| tell_node(&api, node));
        let manager = manager(&api);
        manager.spawn()?;
        let global = Zone::start("global", &lab.central, &lab.nodes, &api)?;
        let [stays, moves] = &lab.nodes[..] else { anyhow::bail!("two nodes") };
        let here = new_pod(lab, &api, stays, "client")?;
        let there = new_pod(lab, &api, moves, "server")?;
        pings(lab, "pods of one zone reach each other", &here, &there)?;

        let own = Zone::control("b", &central, std::slice::from_ref(moves), &api)?;
        let talk = Talk::begin(lab, &here, &there)?;
        move_to(&own, moves, &api, &[])?;
        eventually("the old zone has only the way to it", SOON, || {
            let rows = global.rows_of(moves)?;
            ensure!(rows.len() == WAY, "{rows:?}");
            Ok(())
        })?;
        talk.end("to a zone of its own", LONGEST)?;
        let later = new_pod(lab, &api, moves, "server")?;
        pings(lab, "a pod of after the move is reached", &here, &later)?;
        let own_place = [SocketAddr::new(later.address(), PORT)];
        let _answering = lab.answering(&later, &own_place)?;
        reach(lab, "and answers", &here, &own_place, Some(&own_place))?;

        let talk = Talk::begin(lab, &here, &there)?;
        move_to(&global, moves, &api, &[])?;
        talk.end("back to the databases of all", LONGEST)?;

        // Before the other zone has all rows, and while ovn-controller is paused.
        let talk = Talk::begin(lab, &here, &there)?;
        move_to(&own, moves, &api, &[300, 900])?;
        move_to(&global, moves, &api, &[600, 900])?;
        talk.end("there and back, with a server that is killed", LONGEST)?;
        pings(lab, "all is as before", &here, &later)
    });
}
