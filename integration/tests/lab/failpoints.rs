//! An ADD that fails or hangs at any stage reports it and leaves nothing behind. For killed daemons
//! and missing resources see the fault matrix (`faults/`).
//!
//! Needs a plugin with the feature `failpoints`; one is built if the plugin under test has none.

use std::{fs, path::Path, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, ensure};
use contract::stage::Stage;
use integration::{
    Invocation, Lab, Node, Pod, Runtime, eventually, executable,
    faults::{AT_ONCE, at_once, failed_with, failpoint},
    runtime::{Running, cni_args},
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// Every place where an ADD can be made to fail: `before:netns`, `after:netns`, …
fn places() -> impl Iterator<Item = String> {
    failpoint::places().map(|(_, place)| place)
}

/// Number of [`places`] that an ADD passes before `stage`, counting the one right before it.
fn places_before(stage: Stage) -> usize {
    Stage::ALL.iter().filter(|other| **other < stage).count() * 2 + 1
}

/// The only node, with its server running and a plugin that has failpoints.
fn node_of(lab: &Lab) -> Result<&Node> {
    let node = lab.node_with_server()?;
    failpoint::install(node)?;
    Ok(node)
}

fn add_with(runtime: &Runtime<'_>, pod: &Pod, failpoint: &str) -> Invocation {
    runtime.call("ADD", Some(pod)).env(failpoint::VARIABLE, failpoint)
}

/// A runtime whose ADDs have a deadline of `seconds`.
fn patient_for(node: &Node, seconds: u64) -> Runtime<'_> {
    node.runtime().with("timeoutSeconds", json!(seconds))
}

/// One pod for each of the [`places`].
fn pod_for_each_place(lab: &Lab, node: &Node) -> Result<Vec<(String, Pod)>> {
    let places: Vec<String> = places().collect();
    let pods = lab.new_pods(node, places.len())?;
    Ok(places.into_iter().zip(pods).collect())
}

/// The pod's next sandbox is added and deleted without a trace of the failure.
fn next_sandbox_works(lab: &Lab, node: &Node, pod: &Pod) -> Result<()> {
    let next = [pod.next_sandbox()];
    node.add_namespaces(&next)?;
    node.runtime().add(&next[0])?.success()?;
    lab.reaches_gateway(&next[0])?;
    node.runtime().del(&next[0])?.success()?;
    node.remove_namespaces(&next)
}

/// Waits until ovs-vswitchd has given the pod's port its number.
fn has_ofport(node: &Node, pod: &Pod) -> Result<()> {
    node.vsctl(["wait-until", "Interface", &pod.host_interface(), "ofport>0"]).map(drop)
}

// --- Every stage ---------------------------------------------------------------------------------

#[test]
fn a_failure_at_any_stage_leaves_nothing_and_the_next_sandbox_works() {
    Lab::of_nodes(1).test(|lab| {
        let node = node_of(lab)?;
        let pods = pod_for_each_place(lab, node)?;
        let before = node.census()?;
        for (place, pod) in &pods {
            let check = || -> Result<()> {
                let outcome = add_with(&node.runtime(), pod, &format!("{place}=error")).run()?;
                ensure!(!outcome.status.success(), "it succeeded: {}", outcome.stdout);
                // A result that is already written cannot be taken back: there, only the exit
                // status shows the failure.
                if place != "after:result" {
                    let stage = place.split(':').next_back().unwrap_or_default();
                    failed_with(&outcome, 999, &[&format!("stage {stage}"), &pod.name])?;
                    let answer: Value = serde_json::from_str(&outcome.stdout)?;
                    ensure!(answer["cniVersion"] == "1.0.0", "{answer}");
                }
                at_once(&outcome)?;
                before.must_equal(&node.census()?)?;
                next_sandbox_works(lab, node, pod)?;
                before.must_equal(&node.census()?)
            };
            check().with_context(|| format!("{place}=error"))?;
        }
        Ok(())
    });
}

/// Starts an ADD for each pod, each of which hangs at its place.
fn hang_everywhere(runtime: &Runtime<'_>, pods: &[(String, Pod)]) -> Result<Vec<Running>> {
    pods.iter()
        .map(|(place, pod)| add_with(runtime, pod, &format!("{place}=hang")).start())
        .collect()
}

#[test]
fn a_stage_that_hangs_ends_with_the_deadline_of_the_configuration_and_leaves_nothing() {
    Lab::of_nodes(1).test(|lab| {
        let node = node_of(lab)?;
        let pods = pod_for_each_place(lab, node)?;
        let before = node.census()?;
        let hanging = hang_everywhere(&patient_for(node, 2), &pods)?;
        for (running, (place, pod)) in hanging.into_iter().zip(&pods) {
            let check = || -> Result<()> {
                let outcome = running.wait()?;
                ensure!(!outcome.status.success(), "it succeeded: {}", outcome.stdout);
                ensure!(
                    (2..=7).contains(&outcome.duration.as_secs()),
                    "it took {:?}",
                    outcome.duration
                );
                if place != "after:result" {
                    let stage = place.split(':').next_back().unwrap_or_default();
                    failed_with(&outcome, 11, &[&format!("stage {stage}"), &pod.name])?;
                }
                Ok(())
            };
            check().with_context(|| format!("{place}=hang"))?;
        }
        before.must_equal(&node.census()?)?;
        pods.iter().step_by(5).try_for_each(|(_, pod)| next_sandbox_works(lab, node, pod))?;
        before.must_equal(&node.census()?)
    });
}

#[test]
fn plugins_that_hang_at_any_stage_and_are_killed_leave_nothing_that_del_does_not_remove() {
    Lab::of_nodes(1).test(|lab| {
        let node = node_of(lab)?;
        let pods = pod_for_each_place(lab, node)?;
        let before = node.census()?;
        let hanging = hang_everywhere(&node.runtime(), &pods)?;
        let rows = pods.len() - places_before(Stage::Port);
        eventually("every ADD is where it hangs", Duration::from_secs(20), || {
            let census = node.census()?;
            let (there, links) =
                (census.lines_with("pod-if-name=eth0").len(), census.lines_with("kind=veth").len());
            ensure!(
                there == rows && links == rows + 2 + before.lines_with("kind=veth").len(),
                "{there} of {rows} rows, {links} links"
            );
            Ok(())
        })?;
        for running in hanging {
            running.signal(Signal::SIGKILL)?;
            ensure!(running.wait()?.status.code().is_none(), "it was not killed");
        }
        pods.iter().try_for_each(|(_, pod)| node.runtime().del(pod)?.success().map(drop))?;
        before.must_equal(&node.census()?)?;
        pods.iter().step_by(5).try_for_each(|(_, pod)| next_sandbox_works(lab, node, pod))?;
        before.must_equal(&node.census()?)
    });
}

/// The limits of `cni/src/run.rs`, in seconds: each is for the whole of a call, whatever hangs in
/// it.
const OF_DEL: u64 = 30;
const OF_CHECK: u64 = 15;
const OF_GC: u64 = 60;
const OF_STATUS: u64 = 4;

/// Each other wait in a call has a limit of its own. A call that hung anywhere else hung its
/// runtime.
#[test]
fn a_call_that_hung_beside_all_its_own_limits_never_ended() {
    Lab::of_nodes(1).test(|lab| {
        let node = node_of(lab)?;
        let runtime = node.runtime().with("cniVersion", json!("1.1.0"));
        let [before, after, checked] = [lab.new_pod(node)?, lab.new_pod(node)?, lab.new_pod(node)?];
        let empty = node.census()?;
        let results: Vec<Value> = [&before, &after, &checked]
            .into_iter()
            .map(|pod| runtime.add(pod)?.success())
            .collect::<Result<_>>()?;
        let of_check = runtime.with("prevResult", results[2].clone());
        let of_gc = runtime.with("cni.dev/valid-attachments", json!([]));
        let hanging = [
            (OF_STATUS, runtime.call("STATUS", None), "before:STATUS"),
            (OF_STATUS, runtime.call("STATUS", None), "after:STATUS"),
            (OF_CHECK, of_check.call("CHECK", Some(&checked)), "before:CHECK"),
            (OF_CHECK, of_check.call("CHECK", Some(&checked)), "after:CHECK"),
            (OF_DEL, runtime.call("DEL", Some(&before)), "before:DEL"),
            (OF_DEL, runtime.call("DEL", Some(&after)), "after:DEL"),
            (OF_GC, of_gc.call("GC", None), "before:GC"),
        ];
        let hanging = hanging
            .map(|(limit, call, place)| {
                let call = call.env(failpoint::VARIABLE, format!("{place}=hang"));
                Ok::<_, anyhow::Error>((limit, call.start()?, place))
            })
            .into_iter()
            .collect::<Result<Vec<_>>>()?;
        let ends = |(limit, running, place): (u64, Running, &str)| -> Result<()> {
            let check = || {
                let outcome = running.wait()?;
                failed_with(&outcome, 11, &[&format!("not done within {limit} s")])?;
                ensure!(
                    (limit..limit + 5).contains(&outcome.duration.as_secs()),
                    "{:?}",
                    outcome.duration
                );
                Ok(())
            };
            check().with_context(|| format!("{place}=hang"))
        };
        hanging.into_iter().try_for_each(ends)?;

        // The runtime calls again, whether the work was done or not.
        let rows =
            |pod: &Pod| Ok::<_, anyhow::Error>(node.census()?.lines_with(&pod.sandbox).len());
        ensure!(
            (rows(&before)? > 0, rows(&after)?, rows(&checked)? > 0) == (true, 0, true),
            "{:?}",
            node.census()?
        );
        runtime.status()?.success()?;
        runtime.check(&checked, &results[2])?.success()?;
        [&before, &after, &checked]
            .into_iter()
            .try_for_each(|pod| runtime.del(pod)?.success().map(drop))?;
        empty.must_equal(&node.census()?)
    });
}

#[test]
fn a_result_that_nobody_reads_is_rolled_back() {
    Lab::of_nodes(1).test(|lab| {
        let node = node_of(lab)?;
        let pod = lab.new_pod(node)?;
        let before = node.census()?;
        let (reader, writer) = std::io::pipe()?;
        drop(reader);
        let mut plugin = node.command(Path::new("/opt/cni/bin").join(executable::PLUGIN));
        plugin
            .env("CNI_COMMAND", "ADD")
            .env("CNI_PATH", "/opt/cni/bin")
            .env("CNI_CONTAINERID", &pod.sandbox);
        plugin
            .env("CNI_NETNS", &pod.netns)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_ARGS", cni_args(&pod));
        let config = node.path("/run/config");
        fs::write(&config, node.runtime().config.to_string())?;
        let mut running =
            plugin.stdin(fs::File::open(&config)?).stdout(writer).stderr(Stdio::null()).spawn()?;
        let status = running.wait()?;
        ensure!(status.code() == Some(1), "{status}");
        before.must_equal(&node.census()?)?;
        // The log proves that the ADD got as far as its result.
        let log = node.shell("cat /var/log/openvswitch/ovn-k8s-cni-overlay.log")?;
        ensure!(log.contains("ovn_installed") && log.contains("Broken pipe"), "{log}");
        next_sandbox_works(lab, node, &pod)
    });
}

// --- Refused ADDs --------------------------------------------------------------------------------

#[test]
fn a_link_that_disappears_while_ovn_controller_is_waited_for_leaves_nothing_at_the_deadline() {
    Lab::of_nodes(1).test(|lab| {
        let node = node_of(lab)?;
        let pod = lab.new_pod(node)?;
        let before = node.census()?;
        node.ovn_controller.pause()?;
        let waiting = patient_for(node, 2).call("ADD", Some(&pod)).start()?;
        has_ofport(node, &pod)?;
        eventually("the pod's end is configured", AT_ONCE, || {
            let routes = node.run_in_pod(&pod, ["ip", "route", "show", "10.244.0.0/16"])?;
            ensure!(!routes.is_empty(), "no route to the cluster");
            Ok(())
        })?;
        node.run(["ip", "link", "del", &pod.host_interface()])?;
        let outcome = waiting.wait()?;
        // Open vSwitch's userspace datapath does not notice a deleted device. The kernel's datapath
        // does, and reports it.
        failed_with(&outcome, 11, &["stage ovn_installed"])?;
        before.must_equal(&node.census()?)?;
        node.ovn_controller.resume()?;
        next_sandbox_works(lab, node, &pod)?;
        before.must_equal(&node.census()?)
    });
}

#[test]
fn an_add_that_is_repeated_fails_and_leaves_the_pod_its_network() {
    Lab::of_nodes(1).test(|lab| {
        let node = node_of(lab)?;
        let pod = lab.new_pod(node)?;
        let before = node.census()?;
        node.runtime().add(&pod)?.success()?;
        let attached = node.census()?;
        let outcome = node.runtime().add(&pod)?;
        failed_with(&outcome, 101, &["eth0"])?;
        attached.must_equal(&node.census()?)?;
        lab.reaches_gateway(&pod)?;
        node.runtime().del(&pod)?.success()?;
        before.must_equal(&node.census()?)
    });
}

// --- Daemons that die in the middle --------------------------------------------------------------

#[test]
fn a_database_that_dies_in_the_middle_keeps_the_rollback_from_working_and_add_says_so() {
    Lab::of_nodes(1).test(|lab| {
        let node = node_of(lab)?;
        let pod = lab.new_pod(node)?;
        let before = node.census()?;
        node.ovn_controller.pause()?;
        let waiting = node.runtime().call("ADD", Some(&pod)).start()?;
        has_ofport(node, &pod)?;
        node.ovsdb_server.kill()?;
        let outcome = waiting.wait()?;
        failed_with(&outcome, 11, &["stage ovn_installed", "rollback left something behind"])?;
        at_once(&outcome)?;
        node.ovn_controller.resume()?;
        node.start_ovsdb_server()?;
        ensure!(
            node.census()?.lines_with(&pod.sandbox).len() == 1,
            "the row should have outlived the database server"
        );
        node.runtime().del(&pod)?.success()?;
        before.must_equal(&node.census()?)?;
        next_sandbox_works(lab, node, &pod)
    });
}
