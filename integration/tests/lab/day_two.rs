//! `ovnkube status`, `check` and `diagnose` on a node without an API server: each fault is named with
//! the object and the next command.

use std::{fs, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Datapath, Lab, Node,
    central::{NORTHBOUND, SOUTHBOUND},
    eventually, executable,
};
use serde_json::Value;

/// Longer than all deadlines of the command together.
const SOON: Duration = Duration::from_secs(30);

/// What the command says in JSON, and its exit status.
fn report(node: &Node, arguments: &[&str]) -> Result<(Value, i32)> {
    let mut command = node.command(executable::under_test(executable::SERVER)?);
    let output = command.args(arguments).args(["-o", "json"]).output().context("start ovnkube")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let report = serde_json::from_str(&text).with_context(|| {
        format!("{arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr))
    })?;
    Ok((report, output.status.code().context("an exit status")?))
}

fn findings(report: &Value) -> &[Value] {
    report["findings"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The findings that are no success, as lines.
fn faults(report: &Value) -> Vec<String> {
    let faults = findings(report)
        .iter()
        .filter(|finding| !["ok", "skipped"].contains(&finding["state"].as_str().unwrap_or("?")));
    faults
        .map(|finding| {
            format!(
                "{} {}: {} ({})",
                finding["state"], finding["name"], finding["summary"], finding["next"]
            )
        })
        .collect()
}

/// Waits until a fault with these words is named, and the exit status says so.
fn must_name(node: &Node, words: &[&str]) -> Result<()> {
    eventually(&format!("status names {words:?}"), SOON, || {
        let (report, status) = report(node, &["status"])?;
        let faults = faults(&report);
        let is_named = faults.iter().any(|fault| words.iter().all(|word| fault.contains(word)));
        ensure!(is_named && status != 0, "{status}: {faults:#?}");
        Ok(())
    })
}

fn must_be_well(node: &Node) -> Result<()> {
    eventually("status finds no fault", SOON, || {
        let (report, status) = report(node, &["status"])?;
        ensure!(status == 0, "{status}: {:#?}", faults(&report));
        Ok(())
    })
}

#[test]
fn status_on_a_node_names_each_fault_that_the_node_alone_can_see() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        lab.attached_pod(node)?;
        must_be_well(node)?;
        let (well, _) = report(node, &["status"])?;
        for name in [
            "server",
            "plugin",
            "Open vSwitch",
            "ports of pods",
            "ovn-controller",
            "CNI configuration",
        ] {
            let is_ok = |finding: &Value| finding["name"] == name && finding["state"] == "ok";
            ensure!(findings(&well).iter().any(is_ok), "{name}: {well:#}");
        }

        let stale = node.cni_conf().with_file_name("05-stale.conflist");
        fs::write(&stale, r#"{"name":"old","plugins":[{"type":"flannel"}]}"#)?;
        must_name(node, &["CNI configuration", "05-stale.conflist comes before"])?;
        fs::remove_file(&stale)?;

        node.ovn_controller.stop()?;
        must_name(node, &["ovn-controller", "does not run"])?;
        node.start_ovn_controller()?;
        must_be_well(node)?;

        // A daemon that hangs: the question ends, and the rest is there.
        node.server.pause()?;
        must_name(node, &["server", "no answer within 5 s"])?;
        node.server.resume()?;
        must_be_well(node)?;

        node.server.stop()?;
        must_name(node, &["server", "does not run"])?;
        node.start_server()?;
        must_be_well(node)?;

        node.vswitchd.stop()?;
        must_name(node, &["Open vSwitch", "ovs-vswitchd does not answer"])
    });
}

#[test]
fn status_of_another_node_says_nothing_of_this_one() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let (report, status) = report(node, &["status", "elsewhere"])?;
        ensure!(
            findings(&report).iter().all(|finding| finding["subject"] != "this machine"
                || finding["name"] == "ovnkube status"),
            "{report:#}"
        );
        // The southbound database, which this node reaches, has no chassis of that name.
        ensure!(
            status == 1
                && faults(&report).iter().any(|fault| fault.contains("no chassis of elsewhere")),
            "{status}: {report:#}"
        );
        Ok(())
    });
}

#[test]
fn check_names_what_another_network_has_left_and_a_program_that_has_a_port() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        let state = |name: &str| -> Result<Value> {
            let (report, _) = report(node, &["check"])?;
            let found = findings(&report).iter().find(|finding| {
                finding["name"].as_str().is_some_and(|found| found.ends_with(name))
            });
            Ok(found.with_context(|| format!("{name}: {report:#}"))?["state"].clone())
        };
        ensure!(state("TCP 6641")? == "ok");
        ensure!(state("CAP_NET_ADMIN")? == "ok");
        let directory = node.path("/etc/cni/net.d");
        fs::create_dir_all(&directory)?;
        fs::write(directory.join("10-calico.conflist"), "{}")?;
        ensure!(state("10-calico.conflist")? == "failed");
        node.shell("ip link add cali0 type veth peer name cali1")?;
        ensure!(state("cali0")? == "warning");
        let listener = node.inside(|| Ok(std::net::TcpListener::bind("0.0.0.0:6641")?))?;
        ensure!(state("TCP 6641")? == "failed");
        drop(listener);
        ensure!(state("TCP 6641")? == "ok");
        let (_, status) = report(node, &["check"])?;
        ensure!(
            status == 10 || status == 12,
            "the class of the kernel or that of other networks: {status}"
        );
        Ok(())
    });
}

/// The diagnosis of a pod that a machine with both databases makes.
fn diagnosis(pod: &str) -> Result<(Value, i32)> {
    let mut command = Command::new(executable::under_test(executable::SERVER)?);
    command.env("HOME", "/nonexistent").args(["diagnose", pod, "-o", "json"]);
    command.args([format!("--nb-address={NORTHBOUND}"), format!("--sb-address={SOUTHBOUND}")]);
    let output = command.output().context("start ovnkube")?;
    let report = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    Ok((report, output.status.code().context("an exit status")?))
}

/// Waits until the verdict at the end of a diagnosis has these words and this exit status.
fn must_conclude(
    ask: &dyn Fn() -> Result<(Value, i32)>,
    status: i32,
    words: &[&str],
) -> Result<()> {
    eventually(&format!("the diagnosis is {words:?}"), SOON, || {
        let (report, is) = ask()?;
        let verdict = findings(&report).last().context("a verdict")?;
        let text = verdict["summary"].as_str().unwrap_or_default();
        ensure!(
            is == status && words.iter().all(|word| text.contains(word)),
            "{is} instead of {status}: {report:#}"
        );
        Ok(())
    })
}

#[test]
fn diagnose_names_the_first_thing_that_is_wrong_with_a_pod() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let pod = lab.attached_pod(node)?;
        let name = pod.to_string();
        let here = || report(node, &["diagnose", &name]);
        let central = || diagnosis(&name);
        must_conclude(&here, 0, &["complete"])?;
        must_conclude(&central, 0, &["complete"])?;
        let (well, _) = report(node, &["diagnose", &name])?;
        for step in ["claimed", "flows", "interface"] {
            ensure!(findings(&well).iter().any(|finding| finding["name"] == step), "{well:#}");
        }

        node.ovn_controller.stop()?;
        must_conclude(&here, 1, &["ovn-controller", "does not run"])?;
        node.start_ovn_controller()?;
        must_conclude(&here, 0, &["complete"])?;

        let address = pod.address().to_string();
        // Without the check that ovn-nbctl has.
        let addresses = format!("addresses=\"0a:58:0a:f4:63:63 {address}\"");
        let row = ["Logical_Switch_Port", "lab_twin"];
        let twin = ["lsp-add", &node.name, "lab_twin", "--", "set"].into_iter().chain(row);
        lab.central.nbctl(twin.chain([addresses.as_str()]))?;
        must_conclude(&central, 1, &["address twice", &address, "lab_twin"])?;
        lab.central.nbctl(["lsp-del", "lab_twin"])?;
        must_conclude(&central, 0, &["complete"])?;

        lab.central.nbctl(["lsp-del", &pod.port()])?;
        must_conclude(&central, 1, &["port", "the control plane has not written it"])?;
        must_conclude(&|| diagnosis("lab/nobody"), 1, &["no logical port lab_nobody"])
    });
}

#[test]
fn diagnose_looks_into_the_pods_own_namespace_and_at_what_the_machine_has_beside_the_bridge() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let pod = &lab.attached_pod(node)?;
        let name = pod.to_string();
        let here = || report(node, &["diagnose", &name]);
        let inside = |words: &str| node.run_in_pod(pod, words.split(' ')).map(drop);
        must_conclude(&here, 0, &["complete"])?;
        let (well, _) = here()?;
        for seen in ["eth0", "MTU", "addresses", "routes", "gateway"] {
            let is_seen =
                |finding: &Value| finding["subject"] == "inside the pod" && finding["name"] == seen;
            ensure!(findings(&well).iter().any(is_seen), "{seen}: {well:#}");
        }

        inside("ip link set eth0 mtu 1500")?;
        must_conclude(&here, 1, &["MTU", "1500 in the pod", "1400"])?;
        inside("ip link set eth0 mtu 1400")?;
        let (address, gateway) = (&pod.addresses[0], &pod.gateways[0]);
        inside("ip route del default")?;
        must_conclude(&here, 1, &["routes", "no default route of IPv4"])?;
        inside(&format!("ip route add default via {gateway}"))?;
        inside(&format!("ip neigh replace {gateway} dev eth0 nud failed"))?;
        must_conclude(&here, 1, &["gateway", "does not answer"])?;
        inside(&format!("ip neigh del {gateway} dev eth0"))?;
        inside("ip address flush dev eth0")?;
        must_conclude(&here, 1, &["addresses", &format!("eth0 lacks {address}")])?;
        inside(&format!("ip address add {address} dev eth0"))?;
        inside(&format!("ip route add default via {gateway}"))?;
        must_conclude(&here, 0, &["complete"])?;
        if !Datapath::of_lab().leaves_checksums() {
            inside("ethtool -K eth0 tx on")?;
            must_conclude(&here, 1, &["checksum offload is on", "TCP does not"])?;
            inside("ethtool -K eth0 tx off")?;
        }
        inside("ip link set eth0 address 0a:58:0a:f4:63:63")?;
        must_conclude(&here, 1, &["eth0", "OVN drops what it sends"])?;
        inside(&format!("ip link set eth0 address {}", pod.mac))?;
        must_conclude(&here, 0, &["complete"])?;

        node.shell("ip address add 192.0.2.77/24 dev eth0")?;
        must_conclude(&here, 1, &["eth0 is a port of a bridge and has the address 192.0.2.77"])?;
        node.shell("ip address flush dev eth0")?;
        node.vsctl(["set", "Interface", "breth0", "mtu_request=1400"])?;
        must_conclude(&here, 1, &["MTU", "do not fit into 1400 of breth0"])?;
        node.vsctl(["set", "Interface", "breth0", "mtu_request=1500"])?;
        must_conclude(&here, 0, &["complete"])?;
        let stale = node.cni_conf().with_file_name("05-stale.conflist");
        fs::write(&stale, r#"{"name":"old","plugins":[{"type":"flannel"}]}"#)?;
        must_conclude(&here, 1, &["CNI configuration", "05-stale.conflist comes before"])
    });
}

#[test]
fn status_beside_the_databases_names_a_northd_that_computes_everything_anew_all_the_time() {
    Lab::of_nodes(1).test(|_| {
        let status = || -> Result<String> {
            let mut command = Command::new(executable::under_test(executable::SERVER)?);
            command.env("HOME", "/nonexistent").args(["status", "--ovsdb-endpoint=unix:/nowhere"]);
            Ok(String::from_utf8_lossy(&command.output()?.stdout).into_owned())
        };
        let loops = "computed everything anew";
        eventually("northd is well", SOON, || {
            let text = status()?;
            ensure!(text.contains("ovn-northd") && !text.contains(loops), "{text}");
            Ok(())
        })?;
        let again = "while ovn-appctl -t ovn-northd inc-engine/recompute; do :; done";
        let mut program = Command::new("sh").args(["-c", again]).spawn()?;
        let named = eventually("the loop is named", SOON, || {
            let text = status()?.split_whitespace().collect::<Vec<_>>().join(" ");
            ensure!(text.contains(loops), "{text}");
            Ok(())
        });
        program.kill()?;
        program.wait()?;
        named
    });
}
