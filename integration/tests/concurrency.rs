//! Many calls of the plugin at once: they do not disturb each other, and calls for the same sandbox do not undo each other's work.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use integration::{Lab, Node, Outcome, Pod, Runtime, runtime::Running};
use serde_json::json;

const HUNDRED: usize = 100;

/// The only node, with its server running.
fn node_of(lab: &Lab) -> Result<&Node> {
    let node = &lab.nodes[0];
    node.start_server()?;
    Ok(node)
}

/// Starts `verb` for all of `pods`, and waits for all of them.
fn all_at_once<'pod>(runtime: &Runtime<'_>, verb: &str, pods: impl IntoIterator<Item = &'pod Pod>) -> Result<Vec<Outcome>> {
    let running = pods.into_iter().map(|pod| runtime.call(verb, Some(pod)).start()).collect::<Result<Vec<_>>>()?;
    running.into_iter().map(Running::wait).collect()
}

fn all_succeeded(what: &str, outcomes: &[Outcome]) -> Result<()> {
    let failures: Vec<String> = outcomes.iter().filter_map(|outcome| outcome.success().err()).map(|error| error.to_string()).collect();
    ensure!(failures.is_empty(), "{} of {} {what} failed:\n{}", failures.len(), outcomes.len(), failures.join("\n"));
    Ok(())
}

/// The pod reaches the gateway of its subnet, which OVN answers for.
fn has_network(lab: &Lab, pod: &Pod) -> Result<()> {
    lab.ping(pod, pod.gateways[0])
}

#[test]
fn a_hundred_pods_come_and_go_at_once() {
    Lab::of_nodes(1).test(|lab| {
        let node = node_of(lab)?;
        let reference = lab.new_pod(node)?;
        node.runtime().add(&reference)?.success()?;
        let pods = lab.new_pods(node, HUNDRED)?;
        let before = node.census()?;

        let began = Instant::now();
        let outcomes = all_at_once(&node.runtime(), "ADD", &pods)?;
        println!("{HUNDRED} ADDs at once: {:?}, the slowest {:?}", began.elapsed(), outcomes.iter().map(|outcome| outcome.duration).max());
        all_succeeded("ADDs", &outcomes)?;
        pods.iter().try_for_each(|pod| lab.ping(pod, reference.address()))?;

        let began = Instant::now();
        let outcomes = all_at_once(&node.runtime(), "DEL", &pods)?;
        println!("{HUNDRED} DELs at once: {:?}, the slowest {:?}", began.elapsed(), outcomes.iter().map(|outcome| outcome.duration).max());
        all_succeeded("DELs", &outcomes)?;
        before.must_equal(&node.census()?)?;
        has_network(lab, &reference)
    });
}

#[test]
fn pods_come_while_others_go() {
    Lab::of_nodes(1).test(|lab| {
        let node = node_of(lab)?;
        let before = node.census()?;
        let pods = lab.new_pods(node, 40)?;
        let (first, second) = pods.split_at(20);
        all_succeeded("ADDs", &all_at_once(&node.runtime(), "ADD", first)?)?;

        let runtime = node.runtime();
        let calls = first.iter().zip(second).flat_map(|(goes, comes)| [("DEL", goes), ("ADD", comes)]);
        let running = calls.map(|(verb, pod)| runtime.call(verb, Some(pod)).start()).collect::<Result<Vec<_>>>()?;
        let outcomes = running.into_iter().map(Running::wait).collect::<Result<Vec<_>>>()?;
        all_succeeded("DELs and ADDs", &outcomes)?;
        let census = node.census()?;
        for (gone, there) in first.iter().zip(second) {
            ensure!(census.lines_with(&gone.host_interface()).is_empty(), "{} is still there:\n{census}", gone.name);
            has_network(lab, there)?;
        }

        all_succeeded("DELs", &all_at_once(&node.runtime(), "DEL", second)?)?;
        node.remove_namespaces(&pods)?;
        before.must_equal(&node.census()?)
    });
}

#[test]
fn of_several_adds_of_one_interface_at_once_one_succeeds() {
    Lab::of_nodes(1).test(|lab| {
        let node = node_of(lab)?;
        let pod = lab.new_pod(node)?;
        let before = node.census()?;
        let outcomes = all_at_once(&node.runtime(), "ADD", [&pod; 10])?;
        let (good, bad): (Vec<_>, Vec<_>) = outcomes.iter().partition(|outcome| outcome.status.success());
        ensure!(good.len() == 1, "{} of {} succeeded: {bad:?}", good.len(), outcomes.len());
        for outcome in bad {
            let error = outcome.failure()?;
            ensure!(error.code == 101, "{error:?}");
        }
        // None of the losers has taken the winner's work back.
        ensure!(node.census()?.lines_with(&pod.sandbox).len() == 1, "the interface is gone");
        has_network(lab, &pod)?;
        node.runtime().del(&pod)?.success()?;
        before.must_equal(&node.census()?)
    });
}

#[test]
fn of_two_sandboxes_of_one_pod_at_once_one_has_the_port_in_the_end() {
    Lab::of_nodes(1).test(|lab| {
        let node = node_of(lab)?;
        let first = lab.new_pod(node)?;
        let mut sandboxes = vec![first.clone()];
        for _ in 0..3 {
            sandboxes.push(sandboxes[sandboxes.len() - 1].next_sandbox());
        }
        node.add_namespaces(&sandboxes[1..])?;
        let before = node.census()?;
        let outcomes = all_at_once(&node.runtime(), "ADD", &sandboxes)?;
        ensure!(outcomes.iter().any(|outcome| outcome.status.success()), "none has succeeded: {outcomes:?}");
        for outcome in outcomes.iter().filter(|outcome| !outcome.status.success()) {
            let error = outcome.failure()?;
            ensure!([11, 106].contains(&error.code), "{error:?}");
        }
        let census = node.census()?;
        let owners: Vec<&Pod> = sandboxes.iter().filter(|pod| !census.lines_with(&pod.sandbox).is_empty()).collect();
        ensure!(owners.len() == 1, "{} sandboxes have a port of the same name:\n{census}", owners.len());
        has_network(lab, owners[0])?;
        let others = sandboxes.iter().filter(|pod| pod.sandbox != owners[0].sandbox);
        all_succeeded("DELs", &all_at_once(&node.runtime(), "DEL", others)?)?;
        has_network(lab, owners[0])?;
        node.runtime().del(owners[0])?.success()?;
        before.must_equal(&node.census()?)
    });
}

#[test]
fn del_ends_an_add_that_waits_and_leaves_nothing() {
    Lab::of_nodes(1).test(|lab| {
        let node = node_of(lab)?;
        let pod = lab.new_pod(node)?;
        let before = node.census()?;
        node.ovn_controller.pause()?;
        let waiting = node.runtime().call("ADD", Some(&pod)).start()?;
        node.vsctl(["wait-until", "Interface", &pod.host_interface(), "ofport>0"])?;
        let outcome = node.runtime().del(&pod)?;
        outcome.success()?;
        ensure!(outcome.duration < Duration::from_secs(5), "DEL took {:?}", outcome.duration);
        before.must_equal(&node.census()?)?;
        let error = waiting.wait()?.failure()?;
        ensure!(error.code == 3, "{error:?}");
        before.must_equal(&node.census()?)?;
        node.ovn_controller.resume()?;
        // Even if OVN would be ready now.
        lab.central.sync()?;
        before.must_equal(&node.census()?)
    });
}

#[test]
fn add_and_del_of_one_sandbox_may_overlap_in_any_way() {
    Lab::of_nodes(1).test(|lab| {
        let node = node_of(lab)?;
        let first = lab.new_pod(node)?;
        let before = node.census()?;
        let mut pod = first.clone();
        let mut outcomes = BTreeMap::<&str, u32>::new();
        for round in 0..30 {
            pod = pod.next_sandbox();
            node.add_namespaces(std::slice::from_ref(&pod))?;
            let with_namespace = node.census()?;
            let adding = node.runtime().call("ADD", Some(&pod)).start()?;
            // Some milliseconds each: DEL meets every stage of the ADD.
            (0..round % 10).try_for_each(|_| node.run(["true"]).map(drop))?;
            let deleting = node.runtime().call("DEL", Some(&pod)).start()?;
            deleting.wait()?.success().with_context(|| format!("round {round}"))?;
            let added = adding.wait()?;
            if added.status.success() {
                *outcomes.entry("ADD was the first or the last").or_default() += 1;
                node.runtime().del(&pod)?.success()?;
            } else {
                *outcomes.entry("DEL has ended the ADD").or_default() += 1;
                added.failure()?;
            }
            with_namespace.must_equal(&node.census()?).with_context(|| format!("round {round}, {added:?}"))?;
            node.remove_namespaces(std::slice::from_ref(&pod))?;
        }
        println!("{outcomes:?}");
        before.must_equal(&node.census()?)?;
        node.runtime().add(&first)?.success()?;
        has_network(lab, &first)
    });
}

#[test]
fn log_lines_of_twenty_plugins_are_whole() {
    Lab::of_nodes(1).test(|lab| {
        let node = node_of(lab)?;
        let pods = lab.new_pods(node, 20)?;
        // Every value of a line has its limit; this one reaches it.
        let padding = "x".repeat(2000);
        let runtime = node.runtime().with("logLevel", json!("5")).with("padding", json!(padding));
        all_succeeded("ADDs", &all_at_once(&runtime, "ADD", &pods)?)?;
        all_succeeded("DELs", &all_at_once(&runtime, "DEL", &pods)?)?;

        let log = node.shell("cat /var/log/openvswitch/ovn-k8s-cni-overlay.log")?;
        ensure!(log.ends_with('\n'), "the last line has no end");
        for line in log.lines() {
            is_whole(line).with_context(|| format!("torn line: {line:?}"))?;
        }
        let lines_with = |words: &[&str]| log.lines().filter(|line| words.iter().all(|word| line.contains(word))).count();
        let called = lines_with(&["|DBG|", "called config=", &"x".repeat(500)]);
        ensure!(called == 2 * pods.len(), "{called} lines show a configuration");
        for pod in &pods {
            let done = lines_with(&["|INFO|", "[ADD ", &format!("{}/{} ", pod.namespace, pod.name), "done"]);
            ensure!(done == 1, "{done} lines tell how the ADD of {} went", pod.name);
        }
        Ok(())
    });
}

/// `2018-01-03T08:42:39.609Z|00042|attach|INFO|message`, once.
fn is_whole(line: &str) -> Result<()> {
    let [time, number, module, level, message] =
        line.splitn(5, '|').collect::<Vec<_>>().try_into().map_err(|parts| anyhow::anyhow!("not five parts: {parts:?}"))?;
    let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    ensure!(shape == "0000-00-00T00:00:00.000Z", "time");
    ensure!(number.len() == 5 && number.bytes().all(|b| b.is_ascii_digit()), "number");
    ensure!(!module.is_empty() && module.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "module");
    ensure!(["ERR", "WARN", "INFO", "DBG"].contains(&level), "level");
    ensure!(!message.is_empty() && !message.contains("Z|0"), "message");
    Ok(())
}
