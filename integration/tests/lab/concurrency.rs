//! Many calls of the plugin at once do not disturb each other, and calls for one sandbox do not
//! undo each other's work.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use integration::{Lab, Outcome, Pod, Runtime, runtime::Running};
use serde_json::json;

const HUNDRED: usize = 100;

/// Starts `verb` for all of `pods`, and waits for all of them.
fn all_at_once<'pod>(
    runtime: &Runtime<'_>,
    verb: &str,
    pods: impl IntoIterator<Item = &'pod Pod>,
) -> Result<Vec<Outcome>> {
    let running = pods
        .into_iter()
        .map(|pod| runtime.call(verb, Some(pod)).start())
        .collect::<Result<Vec<_>>>()?;
    running.into_iter().map(Running::wait).collect()
}

fn all_succeeded(what: &str, outcomes: &[Outcome]) -> Result<()> {
    let failures: Vec<String> = outcomes
        .iter()
        .filter_map(|outcome| outcome.success().err())
        .map(|error| error.to_string())
        .collect();
    ensure!(
        failures.is_empty(),
        "{} of {} {what} failed:\n{}",
        failures.len(),
        outcomes.len(),
        failures.join("\n")
    );
    Ok(())
}

#[test]
fn a_hundred_pods_come_and_go_at_once() {
    Lab::of_nodes(1).test(|lab| {
        let node = lab.node_with_server()?;
        let reference = lab.new_pod(node)?;
        node.runtime().add(&reference)?.success()?;
        let pods = lab.new_pods(node, HUNDRED)?;
        let before = node.census()?;

        let began = Instant::now();
        let outcomes = all_at_once(&node.runtime(), "ADD", &pods)?;
        println!(
            "{HUNDRED} ADDs at once: {:?}, the slowest {:?}",
            began.elapsed(),
            outcomes.iter().map(|outcome| outcome.duration).max()
        );
        all_succeeded("ADDs", &outcomes)?;
        pods.iter().try_for_each(|pod| lab.ping(pod, reference.address()))?;

        let began = Instant::now();
        let outcomes = all_at_once(&node.runtime(), "DEL", &pods)?;
        println!(
            "{HUNDRED} DELs at once: {:?}, the slowest {:?}",
            began.elapsed(),
            outcomes.iter().map(|outcome| outcome.duration).max()
        );
        all_succeeded("DELs", &outcomes)?;
        before.must_equal(&node.census()?)?;
        lab.reaches_gateway(&reference)
    });
}

#[test]
fn pods_come_while_others_go() {
    Lab::of_nodes(1).test(|lab| {
        let node = lab.node_with_server()?;
        let before = node.census()?;
        let pods = lab.new_pods(node, 40)?;
        let (first, second) = pods.split_at(20);
        all_succeeded("ADDs", &all_at_once(&node.runtime(), "ADD", first)?)?;

        let runtime = node.runtime();
        let calls =
            first.iter().zip(second).flat_map(|(goes, comes)| [("DEL", goes), ("ADD", comes)]);
        let running = calls
            .map(|(verb, pod)| runtime.call(verb, Some(pod)).start())
            .collect::<Result<Vec<_>>>()?;
        let outcomes = running.into_iter().map(Running::wait).collect::<Result<Vec<_>>>()?;
        all_succeeded("DELs and ADDs", &outcomes)?;
        let census = node.census()?;
        for (gone, there) in first.iter().zip(second) {
            ensure!(
                census.lines_with(&gone.host_interface()).is_empty(),
                "{} is still there:\n{census}",
                gone.name
            );
            lab.reaches_gateway(there)?;
        }

        all_succeeded("DELs", &all_at_once(&node.runtime(), "DEL", second)?)?;
        node.remove_namespaces(&pods)?;
        before.must_equal(&node.census()?)
    });
}

#[test]
fn log_lines_of_twenty_plugins_are_whole() {
    Lab::of_nodes(1).test(|lab| {
        let node = lab.node_with_server()?;
        let pods = lab.new_pods(node, 20)?;
        // The log cuts values at a limit; this value exceeds it.
        let padding = "x".repeat(2000);
        let runtime = node.runtime().with("logLevel", json!("5")).with("padding", json!(padding));
        all_succeeded("ADDs", &all_at_once(&runtime, "ADD", &pods)?)?;
        all_succeeded("DELs", &all_at_once(&runtime, "DEL", &pods)?)?;

        let log = node.shell("cat /var/log/openvswitch/ovn-k8s-cni-overlay.log")?;
        ensure!(log.ends_with('\n'), "the last line has no end");
        for line in log.lines() {
            is_whole(line).with_context(|| format!("torn line: {line:?}"))?;
        }
        let lines_with = |words: &[&str]| {
            log.lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
        };
        let called = lines_with(&["|DBG|", "called", "config=", &"x".repeat(500)]);
        ensure!(called == 2 * pods.len(), "{called} lines show a configuration");
        for pod in &pods {
            let done = lines_with(&[
                "|INFO|",
                "[ADD ",
                &format!("{}/{} ", pod.namespace, pod.name),
                "done",
            ]);
            ensure!(done == 1, "{done} lines tell how the ADD of {} went", pod.name);
        }
        Ok(())
    });
}

/// Checks that a line is exactly one record: `2018-01-03T08:42:39.609Z|00042|attach|INFO|message`.
fn is_whole(line: &str) -> Result<()> {
    let [time, number, module, level, message] = line
        .splitn(5, '|')
        .collect::<Vec<_>>()
        .try_into()
        .map_err(|parts| anyhow::anyhow!("not five parts: {parts:?}"))?;
    let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    ensure!(shape == "0000-00-00T00:00:00.000Z", "time");
    ensure!(number.len() == 5 && number.bytes().all(|b| b.is_ascii_digit()), "number");
    ensure!(
        !module.is_empty() && module.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
        "module"
    );
    ensure!(["ERR", "WARN", "INFO", "DBG"].contains(&level), "level");
    ensure!(!message.is_empty() && !message.contains("Z|0"), "message");
    Ok(())
}
