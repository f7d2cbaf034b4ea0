//! `ovnkube support-bundle` on real daemons: what the commands say of an archive is what they said
//! of the cluster, no secret is in it, and its size has a bound.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use contract::paths::SERVER_LOG;
use integration::{
    Lab, Node, by_hand,
    central::{NORTHBOUND, SOUTHBOUND},
    eventually, executable, mounts,
};
use oracle::policies::{self, Namespace, manifest::Manifests};
use serde_json::{Value, json};

use crate::support::{
    api::Api,
    policy_world::{NAMESPACE, clients_alone, pod},
};

const SOON: Duration = Duration::from_secs(30);
const CANARY: &str = "canary-8f2c6b1e";

/// The objects, each pod with canaries where secrets are.
fn tell(api: &Api, world: &policies::World) {
    let of_nodes = oracle::World { nodes: world.nodes(), ..oracle::World::default() };
    let Manifests { namespaces, mut pods, policies, cluster_policies: _ } = world.manifests();
    for pod in &mut pods {
        pod["metadata"]["annotations"]["example.com/login"] = json!(CANARY);
        pod["spec"]["containers"] = json!([{
            "name": "main", "image": "none", "args": [format!("--password={CANARY}")],
            "env": [{"name": "LOGIN", "value": CANARY}],
        }]);
    }
    let nodes = of_nodes.manifests().nodes;
    let kinds =
        [("Node", nodes), ("Namespace", namespaces), ("Pod", pods), ("NetworkPolicy", policies)];
    kinds.into_iter().for_each(|(kind, objects)| api.replace(kind, objects));
}

/// Where the cluster is.
fn places(api: &Api) -> [String; 4] {
    [
        format!("--nb-address={NORTHBOUND}"),
        format!("--sb-address={SOUTHBOUND}"),
        format!("--k8s-apiserver={}", api.url()),
        format!("--k8s-token={CANARY}"),
    ]
}

/// The command, on the node; where packets go, beside the databases: the switch of a node would be
/// asked, which an archive does not have.
fn ovnkube(node: &Node, arguments: &[&str]) -> Result<Output> {
    let program = executable::under_test(executable::SERVER)?;
    let mut command = match arguments[0] {
        "trace" | "policy" => Command::new(program),
        _ => node.command(program),
    };
    command.env("HOME", "/nonexistent").args(arguments).output().context("start ovnkube")
}

/// The verdict of a report in JSON, and the exit status. Of a diagnosis all faults, without whom the
/// pod reaches: with an archive, nobody is asked.
fn verdict(output: &Output) -> Result<(String, Option<i32>)> {
    let report: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let findings = report["findings"].as_array().context("findings")?;
    let said = |finding: &Value| finding["summary"].as_str().unwrap_or_default().to_owned();
    if report["kind"] == "Diagnosis" {
        let elsewhere = ["reached from the pod", "verdict"];
        let faults = findings.iter().filter(|it| it["state"] != "ok" && it["state"] != "skipped");
        let faults = faults.filter(|it| elsewhere.iter().all(|subject| it["subject"] != *subject));
        return Ok((faults.map(said).collect::<Vec<_>>().join("; "), output.status.code()));
    }
    let last = findings.last().context("a verdict")?;
    Ok((said(last), output.status.code()))
}

/// What the command says of the cluster, and later of the archive.
fn said(node: &Node, question: &[&str], places: &[String]) -> Result<(String, Option<i32>)> {
    let places = places.iter().map(String::as_str);
    let arguments = question.iter().copied().chain(["-o", "json"]).chain(places);
    verdict(&ovnkube(node, &arguments.collect::<Vec<_>>())?)
}

#[test]
fn commands_say_of_an_archive_what_they_said_of_the_cluster_and_no_secret_is_in_it() {
    Lab::of_nodes(2).empty().test(|lab| {
        let api = Api::start()?;
        let pods = vec![
            pod(1, 3, vec![("app", "client")]),
            pod(1, 4, vec![("app", "other")]),
            pod(2, 3, vec![("app", "server")]),
        ];
        let namespaces = vec![Namespace { name: NAMESPACE, labels: Vec::new() }];
        let policies = vec![clients_alone("db")];
        let world = policies::World { namespaces, pods, policies, ..policies::World::default() };
        tell(&api, &world);
        let control_plane = api.control_plane();
        control_plane.spawn()?;
        for of in &world.pods {
            let node = &lab.nodes[usize::from(of.node) - 1];
            let pod = lab.plan_pod(node);
            node.add_namespaces(std::slice::from_ref(&pod))?;
            by_hand::attach(node, &pod)?;
        }
        let node = &lab.nodes[0];
        node.start_server()?;
        node.shell(&format!("echo 'request with token={CANARY}' >> {SERVER_LOG}"))?;
        node.vsctl(["set", "Open_vSwitch", ".", &format!("external_ids:ipsec-psk={CANARY}")])?;

        let questions: [&[&str]; 3] = [
            &["trace", "lab/node1-pod3", "lab/node2-pod3", "--tcp", "8080"],
            &["trace", "lab/node1-pod4", "lab/node2-pod3", "--tcp", "8080"],
            &["diagnose", "lab/node1-pod3"],
        ];
        let live = places(&api);
        eventually("the policy counts", SOON, || {
            let (text, status) = said(node, questions[1], &live)?;
            ensure!(status == Some(1) && text.contains("lab/db"), "{status:?} {text}");
            let (text, status) = said(node, questions[0], &live)?;
            ensure!(status == Some(0), "{status:?} {text}");
            Ok(())
        })?;
        let expected =
            questions.iter().map(|it| said(node, it, &live)).collect::<Result<Vec<_>>>()?;

        let archive: PathBuf = Path::new(mounts::LAB).join("bundle.tar");
        let name = archive.to_string_lossy().into_owned();
        let make: Vec<&str> = ["support-bundle", "-o", &name]
            .into_iter()
            .chain(live.iter().map(String::as_str))
            .collect();
        let output = ovnkube(node, &make)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(0), "{text}{errors}");

        let bytes = fs::read(&archive)?;
        let has = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        ensure!(!has(CANARY), "a canary is in the archive");
        // What is beside each canary is there.
        for beside in ["node1-pod3", "request with token=REMOVED", "ovn-encap-ip", "Logical_Flow"] {
            ensure!(has(beside), "{beside} is not in the archive");
        }
        let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&archive)?);
        ensure!(mode & 0o777 == 0o600, "{mode:o}");

        // The cluster is gone, and its archive says the same.
        control_plane.stop()?;
        lab.central.northbound.kill()?;
        lab.central.southbound.kill()?;
        node.server.stop()?;
        node.vswitchd.stop()?;
        drop(api);
        let offline = [format!("--bundle={name}")];
        for (question, expected) in questions.iter().zip(&expected) {
            let found = said(node, question, &offline)?;
            ensure!(found == *expected, "{question:?}: {found:?} instead of {expected:?}");
        }
        // The lab's API server lacks what this command asks, and the archive has enough of it.
        let explain =
            ["policy", "explain", "lab/node1-pod4", "lab/node2-pod3", "8080", &offline[0]];
        let output = ovnkube(node, &explain)?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success()
                && text.contains("TCP port 8080: denied")
                && text.contains("NetworkPolicy lab/db")
                && text.contains("database: the same"),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let output = ovnkube(node, &["status", "-o", "json", &offline[0]])?;
        let status: Value = serde_json::from_slice(&output.stdout)?;
        let finding = |name: &str| {
            let all = status["findings"].as_array().into_iter().flatten();
            all.filter(|finding| finding["name"] == name).map(|it| it["state"].clone()).next()
        };
        for (name, state) in
            [("server", "ok"), ("ovn-controller", "ok"), ("northbound", "ok"), ("ovn-northd", "ok")]
        {
            ensure!(finding(name) == Some(json!(state)), "{name}: {status:#}");
        }

        // What is no archive is refused, and is no report.
        let output = ovnkube(node, &["status", "--bundle", "/etc/hostname"])?;
        ensure!(output.status.code() == Some(2) && output.stdout.is_empty(), "{output:?}");
        Ok(())
    });
}

#[test]
fn an_archive_is_not_larger_than_it_may_be_and_one_that_is_interrupted_is_not_there() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        node.shell(&format!("yes 'a line of a log' | head -c 3000000 >> {SERVER_LOG}"))?;
        let archive = Path::new(mounts::LAB).join("small.tar");
        let name = archive.to_string_lossy().into_owned();
        let output = ovnkube(node, &["support-bundle", "-o", &name, "--max-size", "1"])?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.code() == Some(4) && text.contains("left out"), "{text}");
        ensure!(fs::metadata(&archive)?.len() <= 1 << 20, "{:?}", fs::metadata(&archive)?);

        // A server that hangs keeps the command waiting.
        node.server.pause()?;
        let second = Path::new(mounts::LAB).join("second.tar");
        let mut command = node.command(executable::under_test(executable::SERVER)?);
        let mut child = command.args(["support-bundle", "-o"]).arg(&second).spawn()?;
        let partial = second.with_extension("partial");
        eventually("it has begun", SOON, || fs::metadata(&partial).map(drop).map_err(Into::into))?;
        integration::command::output(Command::new("kill").args(["-INT", &child.id().to_string()]))?;
        ensure!(child.wait()?.code() == Some(130));
        ensure!(!partial.exists() && !second.exists(), "something is left");
        node.server.resume()
    });
}
