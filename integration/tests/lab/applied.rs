//! `ovnkube applied` on real daemons: the number of nodes, a node whose ovn-controller stands still,
//! and rows that come later.

use std::{
    path::Path,
    process::{Child, Command},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Families, Lab,
    central::{NORTHBOUND, SOUTHBOUND},
    command, eventually, executable, mounts,
};
use serde_json::{Value, json};

use crate::support::{api::Api, planned};

/// The command, with the lab's databases.
fn applied(arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(executable::under_test(executable::SERVER)?);
    command.env("HOME", "/nonexistent").arg("applied").args(arguments).args(["-o", "json"]);
    command.args([format!("--nb-address={NORTHBOUND}"), format!("--sb-address={SOUTHBOUND}")]);
    Ok(command)
}

/// The verdict, and the exit status.
fn verdict(arguments: &[&str]) -> Result<(Value, i32)> {
    let output = applied(arguments)?.output().context("start ovnkube")?;
    let report: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let verdict = report["findings"].as_array().and_then(|all| all.last().cloned());
    Ok((verdict.context("a verdict")?, output.status.code().context("an exit status")?))
}

fn must_say(arguments: &[&str], status: i32, words: &str) -> Result<()> {
    let (verdict, is) = verdict(arguments)?;
    let text = verdict["summary"].as_str().unwrap_or_default();
    ensure!(is == status && text.contains(words), "{is} instead of {status}: {verdict:#}");
    Ok(())
}

/// Waits until the command catches the signal of Ctrl-C.
fn until_it_waits(child: &Child) -> Result<()> {
    eventually("the command catches SIGINT", Duration::from_secs(20), || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()))?;
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.context("a mask")?.trim(), 16)?;
        // Signal 2 is the second bit.
        ensure!(caught & 0b10 != 0, "{caught:x}");
        Ok(())
    })
}

#[test]
fn an_object_is_applied_once_every_node_has_answered() {
    Lab::of_nodes(2).test(|lab| {
        let pod = lab.new_pod(&lab.nodes[0])?;
        let question = ["pod", pod.name.as_str(), "-n", "lab"];
        must_say(&question, 0, "applied on 2 of 2 nodes in")?;
        must_say(&["node", "node1"], 0, "applied on 2 of 2 nodes in")?;
        must_say(&["pod", "nobody", "-n", "lab"], 1, "no row of it")?;

        // One that stands still is named, and the others are counted.
        lab.nodes[1].ovn_controller.pause()?;
        must_say(&question, 1, "applied on 1 of 2 nodes in")?;
        lab.nodes[1].ovn_controller.resume()?;
        must_say(&[&question[..], &["--wait"]].concat(), 0, "applied on 2 of 2 nodes in")?;

        // Ctrl-C ends the wait for rows that never come.
        let mut waiting = applied(&["pod", "nobody", "-n", "lab", "--wait"])?.spawn()?;
        until_it_waits(&waiting)?;
        command::output(Command::new("kill").args(["-INT", &waiting.id().to_string()]))?;
        ensure!(waiting.wait()?.code() == Some(130));

        let late = lab.plan_pod(&lab.nodes[0]);
        let mut waiting = applied(&["pod", &late.name, "-n", "lab", "--wait"])?.spawn()?;
        until_it_waits(&waiting)?;
        ensure!(waiting.try_wait()?.is_none(), "it does not wait for rows");
        lab.add_ports(std::slice::from_ref(&late))?;
        ensure!(waiting.wait()?.code() == Some(0));
        Ok(())
    });
}

/// Waits until so many events say that the object is in force on both nodes.
fn told(api: &Api, kind: &str, times: usize) -> Result<()> {
    eventually("an event says where it is in force", Duration::from_secs(60), || {
        let notes = api.notes("Applied", kind);
        let is_whole = |note: &String| note.starts_with("in force on 2 of 2 nodes, ");
        ensure!(notes.len() == times && notes.iter().all(is_whole), "{notes:?}");
        Ok(())
    })
}

#[test]
fn an_object_that_asks_has_an_event_when_it_is_in_force_and_after_each_change() {
    Lab::of_nodes(2).families(Families::Dual).empty().test(|lab| {
        let api = Api::start()?;
        planned::tell_nodes(lab, &api);
        api.put(json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lab", "uid": "lab"},
        }));
        api.control_plane_with([format!("--sb-address={SOUTHBOUND}")]).spawn()?;
        let pod = planned::new_pod(lab, &api, 0, "lab")?;
        lab.reaches_gateway(&pod)?;
        ensure!(api.notes("Applied", "Pod").is_empty(), "nobody has asked");
        let object = json!({"kind": "Pod", "metadata": {"namespace": "lab", "name": pod.name}});
        let asks = json!({"metadata": {"annotations": {"k8s.ovn.org/report-applied": "true"}}});
        api.patch(&object, &asks).context("the pod")?;
        told(&api, "Pod", 1)?;

        let policy = |port: u16| {
            json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
                "metadata": {
                    "namespace": "lab", "name": "policy", "uid": "policy",
                    "annotations": {"k8s.ovn.org/report-applied": "true"},
                },
                "spec": {"podSelector": {}, "ingress": [{"ports": [{"port": port}]}]},
            })
        };
        api.put(policy(80));
        told(&api, "NetworkPolicy", 1)?;
        api.put(policy(81));
        told(&api, "NetworkPolicy", 2)
    });
}

#[test]
fn ctrl_c_ends_a_trace_and_the_program_that_it_has_started() {
    Lab::of_nodes(1).test(|lab| {
        let node = lab.node_with_server()?;
        let pods = [lab.attached_pod(node)?, lab.attached_pod(node)?];
        // In place of ovn-trace, a program that does not end.
        let directory = Path::new(mounts::LAB).join("slow");
        std::fs::create_dir_all(&directory)?;
        let pid = directory.join("pid");
        let script = format!("#!/bin/sh\necho $$ > {}\nexec sleep 1000\n", pid.display());
        std::fs::write(directory.join("ovn-trace"), script)?;
        command::output(Command::new("chmod").arg("755").arg(directory.join("ovn-trace")))?;
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(executable::under_test(executable::SERVER)?);
        command
            .env("PATH", format!("{}:{path}", directory.display()))
            .env("HOME", "/nonexistent")
            .args(["trace", &pods[0].to_string(), &pods[1].to_string(), "--icmp"])
            .args([format!("--nb-address={NORTHBOUND}"), format!("--sb-address={SOUTHBOUND}")]);
        let mut trace = command.spawn()?;
        let program = eventually("ovn-trace runs", Duration::from_secs(20), || {
            let text = std::fs::read_to_string(&pid)?;
            ensure!(text.ends_with('\n'), "{text:?}");
            Ok(text.trim().to_owned())
        })?;
        command::output(Command::new("kill").args(["-INT", &trace.id().to_string()]))?;
        ensure!(trace.wait()?.code() == Some(130));
        ensure!(!Path::new("/proc").join(&program).exists(), "ovn-trace is left");
        Ok(())
    });
}

#[test]
fn top_counts_ports_that_come_and_names_those_that_wait() {
    Lab::of_nodes(1).test(|lab| {
        let waiting = lab.new_pod(&lab.nodes[0])?;
        let mut command = Command::new(executable::under_test(executable::SERVER)?);
        command
            .env("HOME", "/nonexistent")
            .args(["top", "--interval", "1", "--times", "2", "-o", "json"])
            .args([format!("--nb-address={NORTHBOUND}"), format!("--sb-address={SOUTHBOUND}")]);
        let output = command.output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.code() == Some(0), "{text}");
        let reports = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        let reports = reports.collect::<Result<Vec<Value>, _>>()?;
        ensure!(reports.len() == 2, "{text}");
        let findings = reports[1]["findings"].as_array().context("findings")?;
        let named = |name: &str| findings.iter().find(|finding| finding["name"] == name);
        let port = named(&waiting.port()).with_context(|| text.to_string())?;
        ensure!(port["subject"] == "waiting", "{port}");
        let rows = named("Logical_Switch_Port").context("rows")?;
        ensure!(rows["details"]["rows"].as_u64() > Some(1), "{rows}");
        Ok(())
    });
}
