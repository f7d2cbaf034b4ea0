//! A user with all rights in one namespace: pods and their annotations, before and after they
//! start.

use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use integration::{Pod, traffic::End};
use serde_json::{Value, json};

use crate::tenants::site::{Body, EVIL, Site, at};

pub(crate) const ROWS: &[(u8, Body)] = &[
    (17, claims_anothers_address),
    (18, claims_the_networks_own),
    (19, claims_another_nodes_subnet),
    (20, claims_anothers_mac),
    (21, patched_after_the_start),
    (22, patched_to_nothing_readable),
    (23, garbage_before_the_start),
    (24, pods_that_never_start),
    (25, labels_come_and_go),
];

const NETWORK: &str = "k8s.ovn.org/pod-networks";

/// The annotation of a pod that has this address and MAC, on the first node.
fn claim(site: &Site<'_>, address: IpAddr, mac: Option<&str>) -> String {
    let here = &site.bystander().here;
    let gateway = integration::subnet::gateway(&here.addresses[0].trunc()).addr();
    let mac = mac.map_or_else(|| integration::subnet::mac(address), str::to_owned);
    let network = json!({
        "ip_addresses": [format!("{address}/24")], "mac_address": mac, "gateway_ips": [gateway],
        "ip_address": format!("{address}/24"), "gateway_ip": gateway, "role": "primary",
    });
    json!({"default": network}).to_string()
}

/// The object of a pod with this annotation.
fn with(site: &Site<'_>, name: &str, key: &str, value: &str) -> Value {
    let mut object = site.pod_object(EVIL, name, 0);
    object["metadata"]["annotations"] = json!({key: value});
    object
}

/// Starts a pod with this claim for a few seconds: it may be refused, or get something else, but
/// never what it claims.
fn never_has(site: &Site<'_>, name: &str, address: IpAddr, mac: Option<&str>) -> Result<String> {
    let object = with(site, name, NETWORK, &claim(site, address, mac));
    let created = site.put(&object)?;
    site.settled()?;
    let rows = site.lab.central.nbctl([
        "--bare",
        "--columns=addresses",
        "find",
        "Logical_Switch_Port",
        &format!("name={EVIL}_{name}"),
    ])?;
    let is_had = rows
        .split_whitespace()
        .any(|word| word == address.to_string() || mac.is_some_and(|mac| word == mac));
    ensure!(!is_had, "its port has {rows}");
    let now = site.objects.read(&created)?;
    let claims = now["metadata"]["annotations"][NETWORK].as_str().unwrap_or_default()
        == claim(site, address, mac);
    Ok(if rows.trim().is_empty() {
        format!("no port; annotation {}", if claims { "kept" } else { "replaced" })
    } else {
        format!("port {}", rows.trim())
    })
}

fn told(site: &Site<'_>, seen: &[String]) -> Result<String> {
    Ok(format!("{}; events: {}", seen.join("; "), site.news()?))
}

fn claims_anothers_address(site: &Site<'_>) -> Result<String> {
    let bystander = site.bystander();
    let seen = [
        never_has(site, "thief-1", bystander.closed.address(), None).context("of the same node")?,
        never_has(site, "thief-2", bystander.there.address(), None).context("of another node")?,
    ];
    told(site, &seen)
}

fn claims_the_networks_own(site: &Site<'_>) -> Result<String> {
    let net = site.bystander().here.addresses[0].trunc();
    let own = [1, 2, 255].map(|number| integration::subnet::host(&net, number).addr());
    let others: [IpAddr; 4] =
        [net.addr(), [100, 64, 0, 1].into(), [169, 254, 169, 1].into(), [10, 96, 0, 1].into()];
    let mut seen = Vec::new();
    for (number, address) in own.into_iter().chain(others).enumerate() {
        seen.push(
            never_has(site, &format!("thief-{number}"), address, None)
                .with_context(|| address.to_string())?,
        );
    }
    told(site, &seen)
}

fn claims_another_nodes_subnet(site: &Site<'_>) -> Result<String> {
    let there = site.bystander().there.addresses[0].trunc();
    let seen = [
        never_has(site, "thief-1", integration::subnet::host(&there, 200).addr(), None)
            .context("another node's")?,
        never_has(site, "thief-2", [10, 244, 77, 9].into(), None).context("of no node")?,
        never_has(site, "thief-3", [8, 8, 8, 8].into(), None).context("of the world")?,
        never_has(site, "thief-4", site.lab.world().of_node(site.first())[0], None)
            .context("a host's")?,
    ];
    told(site, &seen)
}

fn claims_anothers_mac(site: &Site<'_>) -> Result<String> {
    let closed = &site.bystander().closed;
    let free = integration::subnet::host(&closed.addresses[0].trunc(), 201).addr();
    let gateway =
        integration::subnet::mac(integration::subnet::gateway(&closed.addresses[0].trunc()).addr());
    let seen = [
        never_has(site, "thief-1", free, Some(&closed.mac)).context("a pod's")?,
        never_has(site, "thief-2", free, Some(&gateway)).context("the router's")?,
    ];
    told(site, &seen)
}

/// A pod of the tenant that runs, and its annotation changed to this. Its port must be as before.
fn patched(site: &Site<'_>, text: &str) -> Result<(Pod, String)> {
    let object = site.pod_object(EVIL, "changes", 0);
    let pod = site.attached_as(&object)?;
    let port = || {
        let name = format!("name={}", pod.port());
        site.lab.central.nbctl([
            "--bare",
            "--columns=addresses,port_security",
            "find",
            "Logical_Switch_Port",
            &name,
        ])
    };
    let before = port()?;
    site.objects.patch(&object, &json!({"metadata": {"annotations": {NETWORK: text}}}))?;
    site.settled()?;
    let after = port()?;
    ensure!(before == after, "its port was {before} and is {after}");
    Ok((pod, after))
}

fn patched_after_the_start(site: &Site<'_>) -> Result<String> {
    let closed = &site.bystander().closed;
    let (_, port) = patched(site, &claim(site, closed.address(), Some(&closed.mac)))?;
    Ok(format!(
        "port as before: {}; events: {}",
        port.split_whitespace().collect::<Vec<_>>().join(" "),
        site.news()?
    ))
}

fn patched_to_nothing_readable(site: &Site<'_>) -> Result<String> {
    let (pod, port) = patched(site, "{not json")?;
    site.lab.ping(&pod, site.bystander().here.address())?;
    Ok(format!(
        "port as before: {}; events: {}",
        port.split_whitespace().collect::<Vec<_>>().join(" "),
        site.news()?
    ))
}

fn garbage_before_the_start(site: &Site<'_>) -> Result<String> {
    let long = "x".repeat(200 << 10);
    let deep = "[".repeat(50_000);
    let texts = [
        (NETWORK, "{not json"),
        (NETWORK, ""),
        (NETWORK, r#"{"default":{}}"#),
        (NETWORK, &long),
        (NETWORK, &deep),
        ("ovn", "{"),
        ("k8s.ovn.org/routing-external-gws", "x"),
        ("kubernetes.io/ingress-bandwidth", "-1"),
        ("kubernetes.io/egress-bandwidth", "1e400"),
        ("k8s.v1.cni.cncf.io/networks", &long),
    ];
    for (number, (key, value)) in texts.iter().enumerate() {
        site.put(&with(site, &format!("garbage-{number}"), key, value))?;
    }
    site.settled()?;
    Ok(format!("{} texts; events: {}", texts.len(), site.news()?))
}

fn pods_that_never_start(site: &Site<'_>) -> Result<String> {
    const PODS: usize = 300;
    for number in 0..PODS {
        let mut object = site.pod_object(EVIL, &format!("pending-{number}"), 0);
        object["spec"]["nodeName"] = Value::Null;
        let ports: Vec<Value> = (0..50)
            .map(|port| json!({"name": format!("p{port}"), "containerPort": 1000 + number * 50 + port}))
            .collect();
        object["spec"]["containers"][0]["ports"] = json!(ports);
        site.put(&object)?;
    }
    site.settled()?;
    Ok(format!("{PODS} pods of 50 named ports"))
}

fn labels_come_and_go(site: &Site<'_>) -> Result<String> {
    const CHANGES: usize = 300;
    let object = site.pod_object(EVIL, "changes", 0);
    let pod = site.attached_as(&object)?;
    site.hold(site.answering(&pod, 8080)?);
    site.put(&crate::tenants::policies::policy(
        EVIL,
        "closed",
        &json!({"podSelector": {"matchLabels": {"shut": "yes"}}}),
    ))?;
    let before = transactions()?;
    for number in 0..CHANGES {
        let shut = if number % 2 == 0 { "yes" } else { "no" };
        let labels = json!({"shut": shut, format!("n{number}"): "x"});
        site.objects.patch(&object, &json!({"metadata": {"labels": labels}}))?;
    }
    site.objects.patch(&object, &json!({"metadata": {"labels": {"shut": "yes"}}}))?;
    site.settled()?;
    site.is_closed(&End::Pod(&site.bystander().here), &at(&pod, 8080))?;
    Ok(format!("{CHANGES} changes, {} transactions", transactions()?.saturating_sub(before)))
}

pub(crate) fn transactions() -> Result<u64> {
    integration::central::Central::northbound_transactions()
}
