//! Two zones on one machine, by packets: `crate::support::two_zones`.

mod filled;
mod migrated;
mod moved;

use std::{net::SocketAddr, process::Command};

use anyhow::{Result, ensure};
use integration::{Families, Lab, Pod, central::Central, eventually, executable, let_pass};
use serde_json::{Value, json};

use crate::support::{
    api::{self, Api},
    two_zones::{PORT, QUIET, SOON, TwoZones, WAY, Zone, new_pod, pings, reach},
};

/// The Service, in each family.
const SERVICE: [&str; 2] = ["10.96.0.10", "fd00:10:96::10"];

/// The Service with this pod as its only endpoint.
fn tell_service(api: &Api, backend: &Pod) {
    let port = json!({"name": "http", "protocol": "TCP", "port": 80, "targetPort": PORT});
    api.put(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "lab", "name": "web", "uid": "web"},
        "spec": {
            "type": "ClusterIP", "clusterIP": SERVICE[0], "clusterIPs": SERVICE,
            "ipFamilies": ["IPv4", "IPv6"], "ports": [port],
        },
    }));
    for (family, net) in ["IPv4", "IPv6"].iter().zip(&backend.addresses) {
        let name = format!("web-{}", family.to_lowercase());
        let labels = json!({"kubernetes.io/service-name": "web"});
        api.put(json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
            "metadata": {"namespace": "lab", "name": name, "uid": name, "labels": labels},
            "ports": [{"name": "http", "protocol": "TCP", "port": PORT}],
            "endpoints": [{
                "addresses": [net.addr().to_string()], "conditions": {"ready": true}, "nodeName": backend.node,
            }],
        }));
    }
}

fn clients_only(api: &Api) -> Value {
    let from = json!([{"podSelector": {"matchLabels": {"app": "client"}}}]);
    let spec = json!({
        "podSelector": {"matchLabels": {"app": "server"}}, "policyTypes": ["Ingress"], "ingress": [{"from": from}],
    });
    api::policy(api, spec.clone());
    spec
}

#[test]
fn pods_services_and_policies_of_two_zones_are_one_cluster() {
    Lab::of_nodes(4).families(Families::Dual).empty().test(|lab| {
        let api = Api::start()?;
        let central = Central::of_zone("b")?;
        let TwoZones { manager: _manager, a, b } = TwoZones::start(lab, &central, &api)?;
        let (of_a, of_b) = (a.nodes, b.nodes);

        let client = new_pod(lab, &api, &of_a[0], "client")?;
        let other = new_pod(lab, &api, &of_a[1], "other")?;
        let server = new_pod(lab, &api, &of_b[0], "server")?;
        let far = new_pod(lab, &api, &of_b[1], "client")?;
        let own: Vec<SocketAddr> =
            server.addresses.iter().map(|net| SocketAddr::new(net.addr(), PORT)).collect();
        let _answering = lab.answering(&server, &own)?;
        pings(lab, "a pod of the first zone reaches one of the second", &client, &server)?;
        pings(lab, "and the other way, from and to other nodes", &far, &other)?;
        pings(lab, "as in a zone", &client, &other)?;

        tell_service(&api, &server);
        let service: Vec<SocketAddr> =
            SERVICE.iter().map(|ip| Ok(SocketAddr::new(ip.parse()?, 80))).collect::<Result<_>>()?;
        reach(lab, "a Service leads into the other zone", &client, &service, Some(&own))?;
        reach(lab, "and so it does for a pod of that zone", &far, &service, Some(&own))?;

        clients_only(&api);
        reach(lab, "the policy keeps out a pod of the other zone", &other, &own, None)?;
        reach(lab, "and not by the Service", &other, &service, None)?;
        reach(lab, "it lets in a client of the other zone", &client, &own, Some(&own))?;
        reach(lab, "and of its own zone", &far, &own, Some(&own))?;

        let node = &of_b[0].name;
        let sends = format!("this zone sends it to node {node}");
        let is_there = format!("the pod is in the zone of node {node}");
        let name = |pod: &Pod| format!("{}/{}", pod.namespace, pod.name);
        let to_pod = |pod: &Pod| (name(pod), PORT);
        for (zone, from, trace, explained) in [
            (&a, &client, (3, &*sends), "allowed"),
            (&a, &other, (3, &*sends), "denied"),
            (&b, &client, (3, "delivered to pod lab/"), "allowed"),
            (&b, &other, (1, "is selected by lab/policy"), "denied"),
        ] {
            says(zone, &api, "trace", &name(from), &to_pod(&server), trace)?;
            let title = format!("TCP port {PORT}: {explained}");
            says(zone, &api, "explain", &name(from), &to_pod(&server), (0, &title))?;
        }
        says(&a, &api, "explain", &name(&client), &to_pod(&server), (0, &is_there))?;
        let is_elsewhere = format!("node {node} is in another zone");
        says(&a, &api, "diagnose", &name(&client), &to_pod(&server), (3, &is_elsewhere))?;
        let service = ("svc/lab/web".to_owned(), 80);
        says(&a, &api, "trace", &name(&client), &service, (3, &sends))?;
        says(&b, &api, "trace", &name(&client), &service, (3, "ask in its zone"))?;
        says(&b, &api, "trace", &name(&far), &service, (0, "delivered to pod lab/"))?;

        // By an address that only the API server knows: of either family.
        let addresses: Vec<Value> =
            client.addresses.iter().map(|net| json!({"ip": net.addr()})).collect();
        api.edit("Pod", &client.name, |pod| {
            pod["status"] = json!({"podIP": addresses[0]["ip"], "podIPs": addresses});
        })?;
        for net in &client.addresses {
            let from = net.addr().to_string();
            says(&b, &api, "trace", &from, &to_pod(&server), (3, "delivered to pod lab/"))?;
        }

        has_nothing_but_the_way(&a, &server)?;
        restart_writes_nothing(&a)?;
        pings(lab, "nothing has changed for pods", &client, &server)?;
        survives_its_database(&a, &b)?;
        pings(lab, "from an empty southbound database on", &client, &far)?;

        // A node without what other zones need keeps its place; one that is gone has none.
        let node = &of_b[1];
        let before = a.rows_of(node)?;
        // Two families: a port, two subnets and two join addresses, a chassis.
        ensure!(before.len() == WAY, "{before:?}");
        node.server.stop()?;
        api.edit("Node", &node.name, |object| {
            object["metadata"]["annotations"] = json!({});
        })?;
        let_pass(QUIET);
        ensure!(a.rows_of(node)? == before, "{:?}, and before {before:?}", a.rows_of(node)?);
        a.controller.stop()?;
        a.controller.spawn()?;
        let_pass(QUIET);
        ensure!(a.rows_of(node)? == before, "after a restart: {:?}", a.rows_of(node)?);
        api.remove(&json!({"kind": "Node", "metadata": {"name": node.name}}));
        eventually("nothing is left of the node", SOON, || {
            let left = a.rows_of(node)?;
            ensure!(left.is_empty(), "{left:?}");
            Ok(())
        })?;
        pings(lab, "the others are still there", &client, &server)
    });
}

/// Checks what a command says of a connection, with the databases of this zone: its exit status,
/// and words of it.
fn says(
    zone: &Zone<'_>,
    api: &Api,
    what: &str,
    from: &str,
    (to, port): &(String, u16),
    (status, words): (i32, &str),
) -> Result<()> {
    let port = port.to_string();
    let (northbound, southbound) =
        (zone.central.northbound_address(), zone.central.southbound_address());
    let mut command = Command::new(executable::under_test(executable::SERVER)?);
    match what {
        "trace" => command.args(["trace", from, to, "--tcp", &port, "--sb-address", &southbound]),
        "diagnose" => command.args(["diagnose", to, "--sb-address", &southbound]),
        _ => command.args(["policy", "explain", from, to, &port]),
    };
    command.args(["--nb-address", &northbound, "--k8s-apiserver", api.url()]);
    // Of a terminal that wraps nothing.
    let output = command.env("COLUMNS", "1000").env("HOME", "/nonexistent").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.code() == Some(status) && text.contains(words),
        "{what} {from} {to} in zone {}: {}, not {status} and {words:?}: {text}{}",
        zone.name,
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Locality: of a pod of another zone, there are addresses only.
fn has_nothing_but_the_way(zone: &Zone<'_>, foreign: &Pod) -> Result<()> {
    let ports = zone.central.nbctl(["--bare", "--columns=name", "list", "Logical_Switch_Port"])?;
    ensure!(!ports.contains(&foreign.port()), "{ports}");
    let switches = zone.central.nbctl(["--bare", "--columns=name", "list", "Logical_Switch"])?;
    ensure!(!switches.split_whitespace().any(|name| name == foreign.node), "{switches}");
    Ok(())
}

fn restart_writes_nothing(zone: &Zone<'_>) -> Result<()> {
    eventually("the zone's database is as it should be", SOON, || {
        let before = zone.central.transactions()?[0];
        let_pass(QUIET);
        let now = zone.central.transactions()?[0];
        ensure!(now == before, "{} transactions", now - before);
        Ok(())
    })?;
    let chassis = || zone.central.sbctl(["list", "Chassis"]);
    let (before, remote) = (zone.central.transactions()?[0], chassis()?);
    zone.controller.stop()?;
    zone.controller.spawn()?;
    let_pass(2 * QUIET);
    let now = zone.central.transactions()?[0];
    ensure!(now == before, "zone {}: {} transactions after a restart", zone.name, now - before);
    ensure!(chassis()? == remote, "{}\nand before\n{remote}", chassis()?);
    Ok(())
}

/// The southbound database of one zone is lost, and fills again.
fn survives_its_database(zone: &Zone<'_>, other: &Zone<'_>) -> Result<()> {
    zone.central.replace_southbound()?;
    zone.has_tunnels_to(other.nodes)
}
