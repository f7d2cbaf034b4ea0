//! Results and errors for runtimes of every CNI version, in the shape that the specification of
//! that version defines.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use integration::{Families, Lab, Pod};
use serde_json::{Value, json};

use crate::support::attached::place;
use crate::support::shape::{VERSIONS, must_be_error, must_be_result};
use crate::support::view::link_on_node;

/// The texts of `list`: `text` applied to each item.
fn texts(list: &Value, text: impl Fn(&Value) -> String) -> BTreeSet<String> {
    list.as_array().into_iter().flatten().map(text).collect()
}

fn ip(item: &Value) -> String {
    format!(
        "{} via {}",
        item["address"].as_str().unwrap_or_default(),
        item["gateway"].as_str().unwrap_or_default()
    )
}

fn route(item: &Value) -> String {
    format!(
        "{} via {}",
        item["dst"].as_str().unwrap_or_default(),
        item["gw"].as_str().unwrap_or_default()
    )
}

/// Checks that a result of 0.1.0 or 0.2.0 describes the pod.
fn must_describe_by_family(pod: &Pod, result: &Value) -> Result<()> {
    for (index, key) in ["ip4", "ip6"].into_iter().enumerate() {
        let ip = &result[key];
        ensure!(ip["ip"] == pod.addresses[index].to_string(), "{ip:#}");
        ensure!(ip["gateway"] == pod.gateways[index].to_string(), "{ip:#}");
        let routes = texts(&ip["routes"], route);
        let missing = pod
            .routes
            .iter()
            .filter(|(to, _)| to.addr().is_ipv4() == (index == 0))
            .map(|(to, via)| format!("{to} via {via}"));
        ensure!(
            missing.clone().all(|route| routes.contains(&route)),
            "{routes:?} lacks one of {:?}",
            missing.collect::<Vec<_>>()
        );
    }
    Ok(())
}

/// Checks that a result of 0.3.0 or later describes the pod.
fn must_describe_by_interface(pod: &Pod, result: &Value, host_mac: &Value) -> Result<()> {
    let host = json!({"name": pod.host_interface(), "mac": host_mac});
    let inside = json!({"name": "eth0", "mac": pod.mac, "sandbox": pod.netns});
    for (index, expected) in [host, inside].iter().enumerate() {
        let mut found = result["interfaces"][index].clone();
        let mtu = found.as_object_mut().and_then(|found| found.remove("mtu"));
        ensure!(found == *expected, "{found:#} is not {expected:#}");
        ensure!(
            mtu.is_some() == (result["cniVersion"] == "1.1.0") && mtu.is_none_or(|mtu| mtu == 1400),
            "MTU of {found:#}"
        );
    }
    let expected = pod
        .addresses
        .iter()
        .zip(&pod.gateways)
        .map(|(address, gateway)| format!("{address} via {gateway}"))
        .collect();
    ensure!(texts(&result["ips"], ip) == expected, "{:#} is not {expected:?}", result["ips"]);
    ensure!(
        texts(&result["ips"], |ip| ip["interface"].to_string()) == ["1".to_owned()].into(),
        "{:#}",
        result["ips"]
    );
    let mut expected: BTreeSet<String> =
        pod.routes.iter().map(|(to, via)| format!("{to} via {via}")).collect();
    expected.extend(pod.gateways.iter().map(|gateway| {
        format!("{} via {gateway}", if gateway.is_ipv4() { "0.0.0.0/0" } else { "::/0" })
    }));
    ensure!(
        texts(&result["routes"], route) == expected,
        "{:#} is not {expected:?}",
        result["routes"]
    );
    Ok(())
}

#[test]
fn results_of_every_version_have_its_shape_and_describe_the_pod() {
    Lab::of_nodes(1).families(Families::Dual).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let pod = lab.new_pod(node)?;
        let before = node.census()?;
        for version in VERSIONS {
            let runtime = node.runtime().with("cniVersion", json!(version));
            let result = runtime.add(&pod)?.success()?;
            must_be_result(version, &result)?;
            let host_mac = &link_on_node(node, &pod.host_interface())?["address"];
            let described = match version {
                "0.1.0" | "0.2.0" => must_describe_by_family(&pod, &result),
                _ => must_describe_by_interface(&pod, &result, host_mac),
            };
            described.with_context(|| format!("{version}: {result:#}"))?;

            // The plugin must accept its own result as `prevResult`.
            let check = runtime.check(&pod, &result)?;
            match version {
                "0.1.0" | "0.2.0" | "0.3.0" | "0.3.1" => {
                    ensure!(check.failure()?.code == 1, "{version} knows no CHECK")
                }
                _ => ensure!(
                    check.success().with_context(|| version)? == Value::Null,
                    "CHECK printed something"
                ),
            }
            let del = runtime.with("prevResult", result).del(&pod)?;
            ensure!(del.success()? == Value::Null, "DEL printed something: {del:?}");
            before.must_equal(&node.census()?).context(version)?;
        }
        Ok(())
    });
}

#[test]
fn a_pod_with_one_family_has_a_result_of_every_version() {
    Lab::of_nodes(1).families(Families::V6).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let mut pod = lab.plan_pod(node);
        pod.routes.clear();
        place(lab, node, &pod, &pod.manifest(Some(&pod.annotation())))?;
        for version in VERSIONS {
            let runtime = node.runtime().with("cniVersion", json!(version));
            let result = runtime.add(&pod)?.success()?;
            must_be_result(version, &result)?;
            ensure!(result["ip4"].is_null(), "{result:#}");
            runtime.del(&pod)?.success()?;
        }
        Ok(())
    });
}

#[test]
fn errors_of_every_version_have_their_shape() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        // The server was not started. Each ADD waits a moment for it, so all run at once.
        let pods = lab.new_pods(node, VERSIONS.len())?;
        let add = |version, pod| {
            node.runtime().with("cniVersion", json!(version)).call("ADD", Some(pod)).start()
        };
        let running: Vec<_> = VERSIONS
            .into_iter()
            .zip(&pods)
            .map(|(version, pod)| (version, add(version, pod)))
            .collect();
        for (version, add) in running {
            let outcome = add?.wait()?;
            must_be_error(version, &serde_json::from_str(&outcome.stdout)?)?;
            ensure!(outcome.failure()?.code == 11, "{outcome:?}");
        }
        let outcome = node.runtime().with("cniVersion", json!("9.9.9")).add(&pods[0])?;
        must_be_error("1.1.0", &serde_json::from_str(&outcome.stdout)?)?;
        ensure!(outcome.failure()?.code == 1, "{outcome:?}");
        Ok(())
    });
}

#[test]
fn version_lists_every_version() {
    Lab::of_nodes(1).test(|lab| {
        let answer = lab.nodes[0].runtime().version()?.success()?;
        ensure!(
            answer == json!({"cniVersion": "1.1.0", "supportedVersions": VERSIONS}),
            "{answer:#}"
        );
        Ok(())
    });
}
