//! One kubelet's credential: everything that this project reads of a Node, written by a node that
//! does not exist.

use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use contract::node_annotation::{
    ALL, CHASSIS_ID, GATEWAY_CONFIG, HOST_CIDRS, JOIN_ADDRESS, JOIN_ADDRESSES, MANAGEMENT_MAC,
    MANAGEMENT_MACS, NODE_ID, NODE_SUBNETS, PRIMARY_ADDRESSES, TRANSIT_ADDRESSES, ZONE,
};
use integration::{traffic::End, world::Machine};
use serde_json::{Value, json};

use crate::tenants::{
    bystander::PORT,
    services::{both, service, slice},
    site::{Body, EVIL, Site},
};

pub(crate) const ROWS: &[(u8, Body)] = &[
    (26, another_nodes_chassis),
    (27, a_pods_port_as_interface),
    (28, another_gateways_interface),
    (29, another_nodes_subnet),
    (30, another_nodes_join_address),
    (31, a_thousand_addresses_of_a_host),
    (32, others_addresses_as_its_own),
    (33, another_gateways_address),
    (34, garbage_everywhere),
    (35, another_nodes_management_port),
];

/// Whose credential it is.
const MALLORY: &str = "mallory";
/// What it calls its chassis, which no other node has.
const CHASSIS: &str = "11111111-2222-4333-8444-555555555555";

/// The node that a kubelet may write, with these annotations beside those that every node has.
fn mallory(annotations: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": MALLORY, "annotations": {
            CHASSIS_ID: CHASSIS,
            PRIMARY_ADDRESSES: json!({"ipv4": "172.30.0.66/24"}).to_string(),
            HOST_CIDRS: json!(["172.30.0.66/24"]).to_string(),
        }},
    });
    for (key, value) in annotations.as_object().into_iter().flatten() {
        object["metadata"]["annotations"][key] = value.clone();
    }
    object
}

/// What belongs to other nodes and to the bystander, as text: gateways, switches and their ports,
/// what is joined, and the variables of chassis. What the row itself has made is left out.
fn others(site: &Site<'_>) -> Result<String> {
    let central = &site.lab.central;
    let table = |columns: &str, of: &str| {
        central.nbctl([
            "--format=csv",
            "--no-headings",
            &format!("--columns={columns}"),
            "list",
            of,
        ])
    };
    let mut text = table("name,addresses,type,options", "Logical_Switch_Port")?;
    text += &table("name,networks,mac", "Logical_Router_Port")?;
    text += &table("name,options", "Logical_Router")?;
    text += &table("chassis,variables", "Chassis_Template_Var")?;
    for node in &site.lab.nodes {
        for switch in [node.name.clone(), format!("ext_{}", node.name)] {
            let ports = central.nbctl(["lsp-list", &switch])?;
            text.extend(ports.lines().map(|port| format!("of {switch}: {port}\n")));
        }
    }
    let own = [MALLORY, CHASSIS, EVIL].map(|name| move |line: &str| line.contains(name));
    let mut lines: Vec<&str> =
        text.lines().filter(|line| own.iter().all(|is_own| !is_own(line))).collect();
    lines.sort_unstable();
    Ok(lines.join("\n"))
}

/// Writes the node; others' rows must be as before, and a pod of each node still reaches the world.
fn tries(site: &Site<'_>, annotations: &Value) -> Result<String> {
    // Controllers that write nodes' rows again and again would hide a row that changes.
    let before = others(site)?;
    site.put(&mallory(annotations))?;
    site.settled()?;
    // A claim of a chassis is believed after three seconds.
    integration::let_pass(std::time::Duration::from_secs(4));
    site.settled()?;
    let after = others(site)?;
    let gone: Vec<&str> = before.lines().filter(|line| !after.contains(line)).collect();
    let came: Vec<&str> = after.lines().filter(|line| !before.contains(line)).collect();
    ensure!(
        gone.is_empty() && came.is_empty(),
        "of other nodes' rows went {gone:?} and came {came:?}"
    );
    let world = site.lab.world();
    let web = world.addresses(Machine::Web)[0];
    for pod in [&site.bystander().here, &site.bystander().there] {
        site.lab.ping(pod, web).with_context(|| format!("{} and the world", pod.node))?;
    }
    Ok(format!("others' rows as before, pods reach the world; events: {}", site.news()?))
}

fn gateway(interface: &str, mac: &str, address: IpAddr) -> Value {
    let next_hop =
        integration::subnet::host(&ipnet::IpNet::new_assert(address, 24).trunc(), 254).addr();
    let config = json!({"default": {
        "mode": "shared", "bridge-id": "breth0", "interface-id": interface, "mac-address": mac,
        "ip-addresses": [format!("{address}/24")], "ip-address": format!("{address}/24"),
        "next-hops": [next_hop], "next-hop": next_hop, "node-port-enable": "true", "vlan-id": "0",
    }});
    json!({GATEWAY_CONFIG: config.to_string()})
}

const OWN_MAC: &str = "0a:00:00:00:66:66";

fn own_address() -> IpAddr {
    [172, 30, 0, 66].into()
}

fn another_nodes_chassis(site: &Site<'_>) -> Result<String> {
    // A NodePort whose addresses are variables of a chassis.
    let mut ports = both(80);
    ports[0]["nodePort"] = json!(30_920);
    ports[1]["nodePort"] = json!(30_920);
    site.put(&service(EVIL, "node-port", "10.96.61.1", &ports, &json!({"type": "NodePort"})))?;
    site.put(&slice(EVIL, "node-port", &[site.bystander().there.address()], PORT))?;
    let mut annotations = gateway("breth0_mallory", OWN_MAC, own_address());
    annotations[CHASSIS_ID] = json!(site.first().name);
    let seen = tries(site, &annotations)?;
    let to = std::net::SocketAddr::new(site.lab.world().of_node(site.first())[0], 30_920);
    site.answers_as(&End::World(Machine::Client), to, site.bystander().open().ip(), 5)?;
    Ok(seen)
}

fn a_pods_port_as_interface(site: &Site<'_>) -> Result<String> {
    let port = site.bystander().closed.port();
    let seen = tries(site, &gateway(&port, OWN_MAC, own_address()))?;
    site.lab
        .ping(&site.bystander().closed, site.bystander().there.address())
        .context("the pod of that port")?;
    Ok(seen)
}

fn another_gateways_interface(site: &Site<'_>) -> Result<String> {
    let interface = format!("breth0_{}", site.first().name);
    tries(site, &gateway(&interface, OWN_MAC, own_address()))
}

fn another_nodes_subnet(site: &Site<'_>) -> Result<String> {
    let own = site.bystander().here.addresses[0].trunc();
    let mut seen = String::new();
    for subnet in [own.to_string(), "10.244.0.0/16".to_owned(), "0.0.0.0/0".to_owned()] {
        seen = tries(site, &json!({NODE_SUBNETS: json!({"default": [subnet]}).to_string()}))
            .context(subnet)?;
    }
    Ok(seen)
}

fn another_nodes_join_address(site: &Site<'_>) -> Result<String> {
    let node =
        site.objects.read(&json!({"kind": "Node", "metadata": {"name": site.first().name}}))?;
    let of = |key: &str| node["metadata"]["annotations"][key].clone();
    let mut annotations = gateway("breth0_mallory", OWN_MAC, own_address());
    for key in [JOIN_ADDRESSES, JOIN_ADDRESS, NODE_ID, TRANSIT_ADDRESSES] {
        if of(key).is_string() {
            annotations[key] = of(key);
        }
    }
    tries(site, &annotations)
}

fn a_thousand_addresses_of_a_host(site: &Site<'_>) -> Result<String> {
    for number in 0..20_u16 {
        let ports = json!([{"name": "t", "protocol": "TCP", "port": 80, "targetPort": 8080, "nodePort": 30_930 + number}]);
        let name = format!("node-port-{number}");
        site.put(&service(
            EVIL,
            &name,
            &format!("10.96.62.{}", 1 + number),
            &ports,
            &json!({"type": "NodePort"}),
        ))?;
        site.put(&slice(EVIL, &name, &[site.bystander().there.address()], PORT))?;
    }
    site.settled()?;
    let size = || {
        anyhow::Ok(
            site.lab.central.nbctl(["--bare", "--columns=vips", "list", "Load_Balancer"])?.len(),
        )
    };
    let before = size()?;
    let addresses: Vec<String> =
        (0..1024).map(|number| format!("198.18.{}.{}/32", number / 256, number % 256)).collect();
    let seen = tries(site, &json!({HOST_CIDRS: json!(addresses).to_string()}))?;
    let after = size()?;
    ensure!(after <= 16 * before, "load balancers had {before} bytes and have {after}");
    Ok(format!("load balancers {before} → {after} bytes; {seen}"))
}

fn others_addresses_as_its_own(site: &Site<'_>) -> Result<String> {
    let world = site.lab.world();
    let ip = "10.96.61.2";
    let to: std::net::SocketAddr = format!("{ip}:80").parse()?;
    site.put(&service(EVIL, "open", ip, &both(80), &json!({})))?;
    site.put(&slice(EVIL, "open", &[site.bystander().there.address()], PORT))?;
    let hosts = [
        format!("{}/24", world.of_node(site.first())[0]),
        format!("{}/24", site.bystander().there.address()),
        format!("{}/32", world.addresses(Machine::Web)[0]),
        format!("{ip}/32"),
        "0.0.0.0/0".to_owned(),
    ];
    let seen = tries(
        site,
        &json!({
            HOST_CIDRS: json!(hosts).to_string(),
            PRIMARY_ADDRESSES: json!({"ipv4": format!("{}/24", world.of_node(site.first())[0])}).to_string(),
        }),
    )?;
    site.answers_as(&End::Pod(&site.bystander().here), to, site.bystander().open().ip(), 5)?;
    Ok(seen)
}

fn another_gateways_address(site: &Site<'_>) -> Result<String> {
    let mac = site.first().run(["cat", "/sys/class/net/breth0/address"])?;
    let address = site.lab.world().of_node(site.first())[0];
    tries(site, &gateway("breth0_mallory", mac.trim(), address))
}

fn garbage_everywhere(site: &Site<'_>) -> Result<String> {
    // Just what an API server takes in all annotations of an object.
    let long = "9".repeat(250_000 / ALL.len() - 100);
    for text in ["{", "[]", "null", r#"{"default":7}"#, "\u{1b}[31m", &long] {
        let annotations: serde_json::Map<String, Value> =
            ALL.iter().map(|key| ((*key).to_owned(), json!(text))).collect();
        site.put(&mallory(&Value::Object(annotations)))?;
    }
    tries(site, &json!({NODE_SUBNETS: "{", GATEWAY_CONFIG: "{", ZONE: "another"}))
}

fn another_nodes_management_port(site: &Site<'_>) -> Result<String> {
    let mac = &site.bystander().closed.mac;
    let all = json!({"default": mac}).to_string();
    tries(site, &json!({MANAGEMENT_MAC: mac, MANAGEMENT_MACS: all}))
}
