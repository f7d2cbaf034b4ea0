//! The server keeps pods attached. It puts removed ports back, removes leftovers, changes nothing
//! else, and writes nothing while nothing is wrong. For the loss of everything at once see rows 6,
//! 11, 53 and 54 of the fault matrix.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use contract::{
    paths::SERVER_SOCKET,
    wire::{REQUEST_PATH, Request},
};
use integration::{
    Lab, Node, Pod, by_hand, eventually, http, node::MANIFESTS, process, process::ticks,
};
use serde_json::json;

use crate::support::attached::{attach, detach, manifest_with, place};
use crate::support::second::Second;

/// Limit for a port to be back, from the moment when it could be. An event brings it back after 0.1
/// s, or 1 s where upstream attached it; without the event, the next periodic check would after up
/// to 30 s. The limit tells the two apart on a busy machine, too. How fast it is, the benchmarks
/// measure.
const BACK: Duration = Duration::from_secs(10);
/// Longer than the delay before the server acts on anything but a missing port of its own.
const LATER: Duration = Duration::from_secs(4);
/// Limit for a removal, which needs two checks a second apart.
const REMOVED: Duration = Duration::from_secs(10);

/// The only node, with a server that removes stale attachments after one second.
fn node_of(lab: &Lab) -> Result<&Node> {
    let node = &lab.nodes[0];
    node.server.set_arguments([
        "--init-node",
        &node.name,
        "--pod-manifests",
        MANIFESTS,
        "--stale-after",
        "1",
    ]);
    node.start_server()?;
    Ok(node)
}

fn delete_port(node: &Node, name: &str) -> Result<()> {
    node.vsctl(["--no-wait", "del-port", "br-int", name]).map(drop)
}

fn is_back(node: &Node, name: &str) -> Result<()> {
    let began = Instant::now();
    node.vsctl(["wait-until", "Interface", name, "name!=x"])?;
    ensure!(began.elapsed() <= BACK, "port {name} was away for {:?}", began.elapsed());
    Ok(())
}

/// Makes the server check the node: it does so after each port that vanishes. Once `witness` is
/// back, the check is over.
fn make_it_look(node: &Node, witness: &Pod) -> Result<()> {
    delete_port(node, &witness.host_interface())?;
    is_back(node, &witness.host_interface())
}

fn never_within(what: &str, time: Duration, probe: impl FnMut() -> Result<()>) -> Result<()> {
    let happened = eventually(what, time, probe);
    ensure!(happened.is_err(), "it should not have happened: {what}");
    Ok(())
}

fn port_names(node: &Node) -> Result<Vec<String>> {
    Ok(node.vsctl(["list-ports", "br-int"])?.lines().map(str::to_owned).collect())
}

/// Size of the database's file in bytes: each write appends to it.
fn database_size(node: &Node) -> Result<u64> {
    Ok(fs::metadata(node.path("/etc/openvswitch/conf.db"))?.len())
}

#[test]
fn a_port_comes_back_with_its_limits_and_the_pod_with_its_network() {
    Lab::of_nodes(1).test(|lab| {
        let node = node_of(lab)?;
        let limited = lab.plan_pod(node);
        let limits =
            [("kubernetes.io/ingress-bandwidth", "10M"), ("kubernetes.io/egress-bandwidth", "5M")];
        place(lab, node, &limited, &manifest_with(&limited, &limits))?;
        attach(node, limited.clone())?;
        let other = lab.attached_pod(node)?;
        lab.ping(&limited, other.address())?;
        let before = node.census()?;

        delete_port(node, &limited.host_interface())?;
        is_back(node, &limited.host_interface())?;
        eventually("the node is as before", Duration::from_secs(5), || {
            before.must_equal(&node.census()?)
        })?;
        lab.ping(&limited, other.address())?;

        // Above, the QoS row outlived its port; here it is deleted, too.
        delete_with_qos(node, &limited)?;
        is_back(node, &limited.host_interface())?;
        eventually("the node is as before", Duration::from_secs(5), || {
            before.must_equal(&node.census()?)
        })?;
        lab.ping(&limited, other.address())?;

        let log = node.server_log()?;
        let said: Vec<&str> =
            log.lines().filter(|line| line.contains("put back ports of pods")).collect();
        ensure!(said.len() == 2 && said.iter().all(|line| line.contains(&limited.name)), "{log}");
        detach(node, &limited)?;
        detach(node, &other)
    });
}

fn delete_with_qos(node: &Node, pod: &Pod) -> Result<()> {
    let name = pod.host_interface();
    let get = |column: &str| {
        Ok::<_, anyhow::Error>(node.vsctl(["get", "Port", &name, column])?.trim().to_owned())
    };
    let (port, qos) = (get("_uuid")?, get("qos")?);
    // ovs-vsctl cannot clear a column of a row that it deletes, hence the raw transaction.
    let operations = json!(["Open_vSwitch",
        {"op": "update", "table": "Port", "where": [["_uuid", "==", ["uuid", port]]], "row": {"qos": ["set", []]}},
        {"op": "delete", "table": "QoS", "where": [["_uuid", "==", ["uuid", qos]]]},
        {"op": "mutate", "table": "Bridge", "where": [], "mutations": [["ports", "delete", ["uuid", port]]]},
    ]);
    let answer = node.run([
        "ovsdb-client",
        "transact",
        "unix:/var/run/openvswitch/db.sock",
        &operations.to_string(),
    ])?;
    ensure!(!answer.contains("error"), "{answer}");
    Ok(())
}

#[test]
fn ports_are_back_when_the_bridge_is() {
    Lab::of_nodes(1).test(|lab| {
        let node = node_of(lab)?;
        let (first, second) = (lab.attached_pod(node)?, lab.attached_pod(node)?);
        lab.ping(&first, second.address())?;
        node.ovn_controller.stop()?;
        node.vsctl(["--no-wait", "del-br", "br-int"])?;
        node.start_ovn_controller()?;
        for pod in [&first, &second] {
            node.vsctl([
                "wait-until",
                "Interface",
                &pod.host_interface(),
                "external_ids:ovn-installed=true",
            ])?;
        }
        Ok(())
    });
}

#[test]
fn both_networks_of_a_pod_come_back() {
    Lab::of_nodes(1).test(|lab| {
        let node = node_of(lab)?;
        let blue = Second::create(lab, "blue")?;
        let pod = blue.new_pods(lab, node, 1)?.remove(0);
        attach(node, pod.clone())?;
        blue.runtime(node).add(&pod)?.success()?;
        let names = [pod.host_interface(), blue.host_interface(node, &pod)?];
        let before = node.census()?;
        for name in &names {
            delete_port(node, name)?;
            is_back(node, name)?;
        }
        eventually("the node is as before", Duration::from_secs(5), || {
            before.must_equal(&node.census()?)
        })?;

        // A new server knows only the links.
        node.server.kill()?;
        names.iter().try_for_each(|name| delete_port(node, name))?;
        node.start_server()?;
        names.iter().try_for_each(|name| is_back(node, name))?;
        lab.reaches_gateway(&pod)
    });
}

#[test]
fn a_del_wins_against_putting_back_however_they_meet() {
    Lab::of_nodes(1).test(|lab| {
        let node = node_of(lab)?;
        let before = node.census()?;
        // DELs at different times cover all steps of putting a port back, which begins 100 ms after
        // the port vanished.
        for round in 0..30_u64 {
            let pod = lab.new_pod(node)?;
            attach(node, pod.clone())?;
            delete_port(node, &pod.host_interface())?;
            let pause = Duration::from_millis(60 + round * 4);
            let began = Instant::now();
            while began.elapsed() < pause {
                std::thread::yield_now();
            }
            detach(node, &pod)?;
            let left = node.census()?;
            let left = left.lines_with(&pod.host_interface());
            ensure!(left.is_empty(), "after the DEL, {pause:?} after the port vanished: {left:?}");
            node.remove_namespaces(std::slice::from_ref(&pod))?;
        }
        before.must_equal(&node.census()?)
    });
}

#[test]
fn a_sandbox_that_was_replaced_does_not_come_back() {
    Lab::of_nodes(1).test(|lab| {
        let node = node_of(lab)?;
        let (witness, old) = (lab.attached_pod(node)?, lab.attached_pod(node)?);
        let new = old.next_sandbox();
        node.add_namespaces(std::slice::from_ref(&new))?;
        attach(node, new.clone())?;
        // The port of the new sandbox vanishes, too: it must come back, and the old sandbox's must
        // not.
        make_it_look(node, &witness)?;
        delete_port(node, &new.host_interface())?;
        is_back(node, &new.host_interface())?;
        ensure!(
            !port_names(node)?.contains(&old.host_interface()),
            "the port of the old sandbox came back"
        );
        eventually("the link of the old sandbox is removed", REMOVED, || {
            ensure!(
                node.run(["ip", "link", "show", &old.host_interface()]).is_err(),
                "it is there"
            );
            Ok(())
        })?;
        lab.ping(&new, witness.address())
    });
}

#[test]
fn what_upstream_attached_is_kept_and_what_is_nobodys_pod_is_not_touched() {
    Lab::of_nodes(1).test(|lab| {
        let node = node_of(lab)?;
        let witness = lab.attached_pod(node)?;
        let upstreams = lab.new_pod(node)?;
        by_hand::attach(node, &upstreams)?;
        lab.ping(&upstreams, witness.address())?;
        // A port without a pod, a foreign link and port, and ports of pods whose devices are not
        // veths. Two of them are marked as such.
        node.shell(
            "ip link add representor type bridge; ip link add foreign type bridge; ip link set foreign up
             ip link add lonely type veth peer name lonelier; ip link set lonely alias somebodys
             ovs-vsctl --no-wait -- add-port br-int foreign -- add-port br-int nothing \
               -- add-port br-int offload -- set Interface offload external_ids:sandbox=c1 \
                  external_ids:iface-id=lab_x \
                  external_ids:vf-netdev-name=eth9 \
               -- add-port br-int vfio -- set Interface vfio external_ids:sandbox=c2 \
                  external_ids:iface-id=lab_y \
                  external_ids:vf-is-vfio=true \
               -- add-port br-int representor -- set Interface representor external_ids:sandbox=c3 \
                  external_ids:iface-id=lab_z
             ovs-vsctl --no-wait del-port foreign",
        )?;
        delete_port(node, &upstreams.host_interface())?;
        is_back(node, &upstreams.host_interface())?;
        lab.ping(&upstreams, witness.address())?;

        let look = || {
            make_it_look(node, &witness)?;
            // ovn-controller's `ovn-installed` on the witness is part of the census, too.
            node.vsctl([
                "wait-until",
                "Interface",
                &witness.host_interface(),
                "external_ids:ovn-installed=true",
            ])
            .map(drop)
        };
        look()?;
        let before = node.census()?;
        never_within("anything foreign is touched", LATER, || {
            look()?;
            before.must_equal(&node.census()?).map_or(Ok(()), |()| anyhow::bail!("as before"))
        })?;
        // A server that does not look any more touches nothing either.
        look()?;
        before.must_equal(&node.census()?)?;
        ensure!(!port_names(node)?.contains(&"foreign".to_owned()), "a foreign port was put back");

        // The port of a deleted link is removed.
        node.run(["ip", "link", "del", &upstreams.host_interface()])?;
        eventually("the port of the link that is gone is removed", REMOVED, || {
            ensure!(!port_names(node)?.contains(&upstreams.host_interface()), "it is there");
            Ok(())
        })
    });
}

/// The first request of upstream's plugin: it passes its environment to the server.
fn ask_as_upstream(node: &Node, command: &str, pod: &Pod) -> Result<()> {
    let env = [
        ("CNI_COMMAND", command),
        ("CNI_CONTAINERID", &pod.sandbox),
        ("CNI_IFNAME", "eth0"),
        ("CNI_NETNS", ""),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let body = serde_json::to_string(&Request { env, config: Vec::new(), timeout_ms: None })?;
    let answer = http::try_post(&node.path(SERVER_SOCKET), REQUEST_PATH, body.as_bytes())?;
    ensure!(answer.status() == 200, "{answer:?}");
    Ok(())
}

#[test]
fn what_upstreams_plugin_detaches_stays_away_however_long_it_takes() {
    Lab::of_nodes(1).test(|lab| {
        let node = node_of(lab)?;
        let witness = lab.attached_pod(node)?;
        let pod = lab.new_pod(node)?;
        by_hand::attach(node, &pod)?;
        lab.ping(&pod, witness.address())?;
        ask_as_upstream(node, "DEL", &pod)?;
        delete_port(node, &pod.host_interface())?;
        // The link stays for now, as while upstream's plugin is still busy.
        never_within("the port comes back", LATER, || {
            make_it_look(node, &witness)?;
            ensure!(port_names(node)?.contains(&pod.host_interface()), "it is away");
            Ok(())
        })
    });
}

#[test]
fn a_pod_that_is_gone_loses_what_is_left_of_it_and_others_lose_nothing() {
    Lab::of_nodes(1).test(|lab| {
        let node = node_of(lab)?;
        let (gone, replaced, living) =
            (lab.attached_pod(node)?, lab.attached_pod(node)?, lab.attached_pod(node)?);
        lab.ping(&gone, living.address())?;
        node.remove_manifest(&gone)?;
        node.write_manifest(&replaced.recreated())?;
        make_it_look(node, &living)?;
        for pod in [&gone, &replaced] {
            eventually("nothing is left", REMOVED, || {
                let census = node.census()?;
                ensure!(
                    census.lines_with(&pod.host_interface()).is_empty(),
                    "{:?}",
                    census.lines_with(&pod.host_interface())
                );
                Ok(())
            })?;
            detach(node, pod)?;
        }
        lab.ping(&living, living.gateways[0])
    });
}

#[test]
fn where_pods_are_not_known_nothing_is_removed() {
    Lab::of_nodes(1).test(|lab| {
        let node = node_of(lab)?;
        let (pod, other) = (lab.attached_pod(node)?, lab.attached_pod(node)?);
        // Without the manifests, the server cannot tell which pods exist.
        node.shell(&format!("mv {MANIFESTS} {MANIFESTS}.away"))?;
        for _ in 0..3 {
            make_it_look(node, &other)?;
        }
        never_within("the port is removed", LATER, || {
            make_it_look(node, &other)?;
            ensure!(!port_names(node)?.contains(&pod.host_interface()), "it is there");
            Ok(())
        })?;
        lab.ping(&pod, other.address())
    });
}

#[test]
fn nothing_is_written_where_nothing_is_wrong() {
    Lab::of_nodes(1).test(|lab| {
        let node = node_of(lab)?;
        let pods = lab.new_pods(node, 100)?;
        let adds = pods
            .iter()
            .map(|pod| node.runtime().call("ADD", Some(pod)).start())
            .collect::<Result<Vec<_>>>()?;
        adds.into_iter().try_for_each(|add| add.wait()?.success().map(drop))?;

        // Neither a restart with all pods attached nor the passing of time is a reason to write.
        node.server.stop()?;
        let before = database_size(node)?;
        let readies = |log: &str| log.matches("|INFO|ready ").count();
        let ready_before = readies(&node.server_log()?);
        ensure!(ready_before > 0, "the log says when a server is ready");
        node.start_server()?;
        let pid = node.server.pid().context("the server runs")?;
        eventually("the server is ready", Duration::from_secs(5), || {
            let log = node.server_log()?;
            ensure!(readies(&log) > ready_before, "{log}");
            Ok(())
        })?;
        let before_quiet = ticks(pid)?;
        never_within("the database is written to", LATER, || {
            ensure!(database_size(node)? != before, "it is not");
            Ok(())
        })?;
        let spent = ticks(pid)? - before_quiet;
        ensure!(
            spent <= 10,
            "{spent} hundredths of a second of processor time in {LATER:?} of quiet"
        );
        ensure!(!node.server_log()?.contains("put back ports"), "nothing was missing");
        let memory = process(pid)?.status()?.vmrss;
        ensure!(memory.is_some_and(|kb| kb < 60 * 1024), "{memory:?} kB");
        pods.iter().try_for_each(|pod| detach(node, pod))
    });
}
