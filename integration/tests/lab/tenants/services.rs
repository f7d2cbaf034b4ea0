//! A user with all rights in one namespace: Services and EndpointSlices.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result, ensure};
use contract::limits::{SERVICE_FRONT_ENDS, TOO_LARGE};
use integration::{
    Pod, faults::process::Held, peer::Reply, tenants::long_forms, traffic::End, world::Machine,
};
use serde_json::{Value, json};

use crate::tenants::{
    bystander::PORT,
    raw::{Raw, at_bystanders, none},
    site::{Body, EVIL, Site},
};

pub(crate) const ROWS: &[(u8, Body)] = &[
    (6, a_service_is_dear),
    (7, another_services_address),
    (8, the_tunnels_port),
    (9, the_api_servers_address),
    (10, a_closed_pod_behind_a_node_port),
    (72, a_service_is_dearer),
    (73, another_load_balancers_address),
    (74, a_hosts_port),
    (75, another_services_node_port),
    (76, a_pods_address),
    (77, the_networks_own_addresses),
    (78, a_denied_host_behind_a_service),
    (79, a_denied_network_behind_a_service),
    (80, a_closed_pod_behind_a_service),
    (81, endpoints_of_the_node_itself),
    (82, endpoints_without_number),
    (83, ranges_without_number),
    (84, endpoints_of_udp_come_and_go),
    (85, node_ports_without_number),
    (94, a_tunnels_port_behind_a_service),
    (101, endpoints_in_a_burst),
];

/// Kilobytes that a node's server may have: the limit of its manifest.
const MOST: u64 = 200 * 1024;

/// A Service in IPv4 with these ports and further fields.
pub(crate) fn service(
    namespace: &str,
    name: &str,
    address: &str,
    ports: &Value,
    more: &Value,
) -> Value {
    let mut spec = json!({
        "type": "ClusterIP", "clusterIP": address, "clusterIPs": [address], "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "ports": ports,
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": name}, "spec": spec})
}

/// One port over TCP and UDP, to port 8080 of the endpoints.
pub(crate) fn both(port: u16) -> Value {
    json!([
        {"name": "t", "protocol": "TCP", "port": port, "targetPort": 8080},
        {"name": "u", "protocol": "UDP", "port": port, "targetPort": 8080},
    ])
}

/// The endpoints of a Service, written by hand.
pub(crate) fn slice(namespace: &str, service: &str, addresses: &[IpAddr], port: u16) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"namespace": namespace, "name": service, "labels": {"kubernetes.io/service-name": service}},
        "ports": [{"name": "t", "protocol": "TCP", "port": port}, {"name": "u", "protocol": "UDP", "port": port}],
        "endpoints": addresses.iter().map(|ip| json!({"addresses": [ip], "conditions": {"ready": true}})).collect::<Vec<_>>(),
    })
}

/// A pod behind a Service.
pub(crate) fn served(site: &Site<'_>, service: &Value, pod: &str, node: usize) -> Result<Pod> {
    let text = |field: &str| {
        service["metadata"][field].as_str().map(str::to_owned).context("a Service has names")
    };
    let (namespace, name) = (text("namespace")?, text("name")?);
    let pod = site.attached(&namespace, pod, node)?;
    site.hold(site.answering(&pod, PORT)?);
    site.put(service)?;
    site.put(&slice(&namespace, &name, &[pod.address()], PORT))?;
    Ok(pod)
}

fn a_service_is_dear(site: &Site<'_>) -> Result<String> {
    let (addresses, ports) = if long_forms() { (300, 300) } else { (100, 100) };
    large(site, (18, addresses), ("TCP", ports))
}

fn a_service_is_dearer(site: &Site<'_>) -> Result<String> {
    let (addresses, ports) = if long_forms() { (1_000, 1_000) } else { (300, 100) };
    large(site, (19, addresses), ("UDP", ports))
}

/// A Service of so many addresses of 198.`net`.0.0/16 and so many ports.
fn large(
    site: &Site<'_>,
    (net, addresses): (u8, u16),
    (protocol, ports): (&str, u16),
) -> Result<String> {
    let external: Vec<String> = (0..addresses)
        .map(|number| format!("198.{net}.{}.{}", number / 250, 1 + number % 250))
        .collect();
    let port = |number: u16| json!({"name": format!("p{number}"), "protocol": protocol, "port": 1000 + number, "targetPort": 8080});
    let of_each: Vec<Value> = (0..ports).map(port).collect();
    site.put(&service(
        EVIL,
        "big",
        "10.96.60.1",
        &json!(of_each),
        &json!({"externalIPs": external}),
    ))?;
    site.put(&slice(EVIL, "big", &[site.bystander().there.address()], PORT))?;
    site.settled()?;
    let memory = servers_memory(site)?;
    ensure!(memory <= MOST, "a node's server has {memory} kB");
    Ok(format!(
        "{addresses} × {ports} ports; a node's server {} MB; events: {}",
        memory / 1024,
        site.news()?
    ))
}

/// Kilobytes of the larger server.
pub(crate) fn servers_memory(site: &Site<'_>) -> Result<u64> {
    let mut most = 0;
    for node in &site.lab.nodes {
        most = most.max(Held::by(node.server.running_pid()?)?.memory);
    }
    Ok(most)
}

fn another_services_address(site: &Site<'_>) -> Result<String> {
    site.namespace("shop")?;
    let victim = service("shop", "web", "10.96.60.2", &both(80), &json!({}));
    let first = served(site, &victim, "web", 1)?;
    let here = End::Pod(&site.bystander().here);
    let (node, to) = (End::Node(site.first()), "10.96.60.2:80".parse()?);
    site.answers_as(&here, to, first.address(), 1)?;
    let thief =
        service(EVIL, "aaa", "10.96.60.3", &both(80), &json!({"externalIPs": ["10.96.60.2"]}));
    served(site, &thief, "thief", 0)?;
    site.settled()?;
    site.answers_as(&here, to, first.address(), 20).context("at first")?;
    // The victim's pod is made anew.
    let second = site.attached("shop", "web-2", 1)?;
    site.hold(site.answering(&second, PORT)?);
    site.put(&slice("shop", "web", &[second.address()], PORT))?;
    let seen = site
        .answers_as(&here, to, second.address(), 20)
        .context("once the endpoint has changed")?;
    site.answers_as(&node, to, second.address(), 20).context("from a node")?;
    Ok(seen)
}

fn the_tunnels_port(site: &Site<'_>) -> Result<String> {
    let nodes: Vec<IpAddr> =
        site.lab.nodes.iter().map(|node| site.lab.world().of_node(node)[0]).collect();
    let ports = json!([{"name": "u", "protocol": "UDP", "port": 6081, "targetPort": 8080}]);
    let thief = service(EVIL, "tunnels", "10.96.60.4", &ports, &json!({"externalIPs": nodes}));
    served(site, &thief, "thief", 0)?;
    site.settled()?;
    // A new connection has an outer source port of its own.
    let (here, open) = (&site.bystander().here, site.bystander().open());
    site.answers_as(&End::Pod(here), open, open.ip(), 50)
}

fn the_api_servers_address(site: &Site<'_>) -> Result<String> {
    let to: SocketAddr = site.objects.address();
    let ports = json!([{"name": "t", "protocol": "TCP", "port": to.port(), "targetPort": 8080}]);
    let thief = service(EVIL, "api", "10.96.60.5", &ports, &json!({"externalIPs": [to.ip()]}));
    served(site, &thief, "thief", 0)?;
    site.settled()?;
    let mut seen = Vec::new();
    for node in &site.lab.nodes {
        let [replies, _] = site.lab.ask(&End::Node(node), &[to; 5], &[])?;
        // It accepts, and waits for a request.
        ensure!(
            replies.iter().all(|reply| *reply == Reply::Silence),
            "{} asks {to}: {replies:?}",
            node.name
        );
        seen.push(format!("{} accepted of {}", replies.len(), node.name));
    }
    Ok(seen.join(", "))
}

pub(crate) fn a_closed_pod_behind_a_node_port(site: &Site<'_>) -> Result<String> {
    let shut = site.bystander().shut();
    let ports = json!([
        {"name": "t", "protocol": "TCP", "port": 80, "targetPort": 8080, "nodePort": 30_910},
        {"name": "u", "protocol": "UDP", "port": 80, "targetPort": 8080, "nodePort": 30_910},
    ]);
    site.put(&service(EVIL, "behind", "10.96.60.6", &ports, &json!({"type": "NodePort"})))?;
    site.put(&slice(EVIL, "behind", &[site.bystander().there.address()], PORT))?;
    let nodes: Vec<SocketAddr> = site
        .lab
        .nodes
        .iter()
        .map(|node| SocketAddr::new(site.lab.world().of_node(node)[0], 30_910))
        .collect();
    let world = End::World(Machine::Client);
    // With the open pod it works.
    nodes.iter().try_for_each(|to| {
        site.answers_as(&world, *to, site.bystander().open().ip(), 1).map(drop)
    })?;
    site.put(&slice(EVIL, "behind", &[shut.ip()], PORT))?;
    site.settled()?;
    site.is_closed(&world, &nodes)?;
    Ok("0 of 4 questions answered".to_owned())
}

const BALANCED: &str = "198.51.100.70";

/// A Service of type LoadBalancer with this address in its status.
fn balanced(
    site: &Site<'_>,
    namespace: &str,
    name: &str,
    cluster: &str,
    more: &Value,
) -> Result<Pod> {
    let mut fields = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false});
    for (field, value) in more.as_object().into_iter().flatten() {
        fields[field] = value.clone();
    }
    let object = service(namespace, name, cluster, &both(80), &fields);
    let pod = served(site, &object, name, 1)?;
    site.objects
        .patch(&object, &json!({"status": {"loadBalancer": {"ingress": [{"ip": BALANCED}]}}}))?;
    Ok(pod)
}

fn another_load_balancers_address(site: &Site<'_>) -> Result<String> {
    site.namespace("shop")?;
    let victim = balanced(site, "shop", "web", "10.96.60.8", &json!({}))?;
    let to: SocketAddr = format!("{BALANCED}:80").parse()?;
    let (node, here) = (End::Node(site.first()), End::Pod(&site.bystander().here));
    site.answers_as(&node, to, victim.address(), 1)?;
    let thief = service(EVIL, "aaa", "10.96.60.9", &both(80), &json!({"externalIPs": [BALANCED]}));
    served(site, &thief, "thief", 0)?;
    // A status is written by who may, which a user of a namespace seldom is.
    balanced(site, EVIL, "aab", "10.96.60.10", &json!({}))?;
    site.settled()?;
    let mut seen = String::new();
    for (what, from) in [("a node", &node), ("a pod", &here)] {
        seen = site.answers_as(from, to, victim.address(), 20).context(what)?;
    }
    Ok(seen)
}

fn a_hosts_port(site: &Site<'_>) -> Result<String> {
    let host = SocketAddr::new(site.lab.world().of_node(site.first())[0], 22);
    site.hold(site.lab.answering_at(&End::Node(site.first()), &[host])?);
    let ports = json!([{"name": "t", "protocol": "TCP", "port": 22, "targetPort": 8080}]);
    let thief = service(EVIL, "ssh", "10.96.60.11", &ports, &json!({"externalIPs": [host.ip()]}));
    served(site, &thief, "thief", 0)?;
    site.settled()?;
    let world = site
        .answers_as(&End::World(Machine::Client), host, host.ip(), 10)
        .context("from the world")?;
    site.answers_as(&End::Node(site.second()), host, host.ip(), 10).context("from another node")?;
    site.answers_as(&End::Pod(&site.bystander().there), host, host.ip(), 10)
        .context("from a pod")?;
    Ok(world)
}

fn another_services_node_port(site: &Site<'_>) -> Result<String> {
    site.namespace("shop")?;
    let mut ports = both(80);
    ports[0]["nodePort"] = json!(30_911);
    ports[1]["nodePort"] = json!(30_911);
    let victim = service("shop", "web", "10.96.60.12", &ports, &json!({"type": "NodePort"}));
    let pod = served(site, &victim, "web", 1)?;
    let to = SocketAddr::new(site.lab.world().of_node(site.first())[0], 30_911);
    let world = End::World(Machine::Client);
    site.answers_as(&world, to, pod.address(), 1)?;
    let thief =
        service(EVIL, "port", "10.96.60.13", &both(30_911), &json!({"externalIPs": [to.ip()]}));
    served(site, &thief, "thief", 0)?;
    site.settled()?;
    site.answers_as(&End::Node(site.first()), to, pod.address(), 10).context("from the node")?;
    site.answers_as(&world, to, pod.address(), 10).context("from the world")
}

fn a_pods_address(site: &Site<'_>) -> Result<String> {
    let (open, here) = (site.bystander().open(), &site.bystander().here);
    let thief = service(
        EVIL,
        "pod",
        "10.96.60.14",
        &both(open.port()),
        &json!({"externalIPs": [open.ip()]}),
    );
    served(site, &thief, "thief", 0)?;
    site.settled()?;
    site.answers_as(&End::Node(site.first()), open, open.ip(), 10).context("from a node")?;
    site.answers_as(&End::Pod(here), open, open.ip(), 20).context("from a pod")
}

fn the_networks_own_addresses(site: &Site<'_>) -> Result<String> {
    let here = &site.bystander().here;
    let management = integration::subnet::host(&here.addresses[0].trunc(), 2).addr();
    let gateway = integration::subnet::gateway(&here.addresses[0].trunc()).addr();
    let own: Vec<IpAddr> = vec![
        management,
        gateway,
        [169, 254, 169, 1].into(),
        [169, 254, 169, 2].into(),
        [100, 64, 0, 1].into(),
        [100, 64, 0, 2].into(),
        [127, 0, 0, 1].into(),
        [169, 254, 169, 254].into(),
        [224, 0, 0, 1].into(),
        [255; 4].into(),
        [0; 4].into(),
    ];
    // A process of the host at the management port, as a kubelet that pods reach.
    let host = SocketAddr::new(management, 2225);
    site.hold(site.lab.answering_at(&End::Node(site.first()), &[host])?);
    let mut refused = Vec::new();
    let pod = site.attached(EVIL, "thief", 0)?;
    site.hold(site.answering(&pod, PORT)?);
    for (number, address) in own.iter().enumerate() {
        let name = format!("own-{number}");
        let thief = service(
            EVIL,
            &name,
            &format!("10.96.60.{}", 100 + number),
            &both(2225),
            &json!({"externalIPs": [address]}),
        );
        // A real API server refuses some of them.
        match site.put(&thief) {
            Ok(_) => site.put(&slice(EVIL, &name, &[pod.address()], PORT)).map(drop)?,
            Err(_) => refused.push(*address),
        }
    }
    site.settled()?;
    site.answers_as(&End::Pod(here), host, host.ip(), 10)?;
    site.lab.ping(here, gateway)?;
    Ok(format!(
        "{} addresses, refused by the API server {refused:?}; host and router answer; events: {}",
        own.len(),
        site.news()?
    ))
}

/// A pod of the tenant that reaches nothing outside by a Service either.
fn denied(site: &Site<'_>, deny: &Value, endpoint: SocketAddr, answers: IpAddr) -> Result<String> {
    let pod = site.attached(EVIL, "client", 0)?;
    let to: SocketAddr = "10.96.60.15:80".parse()?;
    site.put(&service(EVIL, "behind", "10.96.60.15", &both(80), &json!({})))?;
    site.put(&slice(EVIL, "behind", &[endpoint.ip()], endpoint.port()))?;
    let from = End::Pod(&pod);
    site.lab.answers(
        "it is open without a rule",
        &from,
        &[(to, answers)],
        crate::tenants::site::SOON,
    )?;
    site.put(deny)?;
    site.is_closed(&from, &[endpoint]).context("directly")?;
    site.is_closed(&from, &[to]).context("by the Service")?;
    Ok("0 of 4 questions answered".to_owned())
}

fn a_denied_host_behind_a_service(site: &Site<'_>) -> Result<String> {
    let host = SocketAddr::new(site.lab.world().of_node(site.second())[0], 2226);
    site.hold(site.lab.answering_at(&End::Node(site.second()), &[host])?);
    let open = json!({"to": [{"podSelector": {}, "namespaceSelector": {}}]});
    let spec = json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [open]});
    denied(site, &crate::tenants::policies::policy(EVIL, "inside", &spec), host, host.ip())
}

fn a_denied_network_behind_a_service(site: &Site<'_>) -> Result<String> {
    let web = SocketAddr::new(site.lab.world().addresses(Machine::Web)[0], 2227);
    site.hold(site.lab.answering_at(&End::World(Machine::Web), &[web])?);
    let firewall = json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": "EgressFirewall", "metadata": {"namespace": EVIL, "name": "default"},
        "spec": {"egress": [{"type": "Deny", "to": {"cidrSelector": "0.0.0.0/0"}}]},
    });
    denied(site, &firewall, web, web.ip())
}

fn a_closed_pod_behind_a_service(site: &Site<'_>) -> Result<String> {
    let shut = site.bystander().shut();
    let to: SocketAddr = "10.96.60.16:80".parse()?;
    site.put(&service(EVIL, "behind", "10.96.60.16", &both(80), &json!({})))?;
    site.put(&slice(EVIL, "behind", &[site.bystander().there.address()], PORT))?;
    let client = site.attached(EVIL, "client", 1)?;
    site.answers_as(&End::Pod(&client), to, site.bystander().open().ip(), 1)?;
    site.put(&slice(EVIL, "behind", &[shut.ip()], PORT))?;
    site.settled()?;
    site.is_closed(&End::Pod(&client), &[to]).context("from a pod")?;
    site.is_closed(&End::Node(site.second()), &[to]).context("from another node")?;
    Ok("0 of 4 questions answered".to_owned())
}

fn endpoints_of_the_node_itself(site: &Site<'_>) -> Result<String> {
    let inside = SocketAddr::new([127, 0, 0, 1].into(), 2228);
    site.hold(site.lab.answering_at(&End::Node(site.first()), &[inside])?);
    let mut refused = 0;
    let mut asked = Vec::new();
    let addresses: [IpAddr; 4] = [
        inside.ip(),
        [169, 254, 169, 254].into(),
        [169, 254, 169, 2].into(),
        [224, 0, 0, 1].into(),
    ];
    for (number, address) in addresses.into_iter().enumerate() {
        let (name, ip) = (format!("self-{number}"), format!("10.96.60.{}", 120 + number));
        site.put(&service(EVIL, &name, &ip, &both(80), &json!({})))?;
        refused += usize::from(site.put(&slice(EVIL, &name, &[address], 2228)).is_err());
        asked.push(format!("{ip}:80").parse()?);
    }
    site.settled()?;
    let pod = site.attached(EVIL, "client", 0)?;
    site.is_closed(&End::Pod(&pod), &asked)?;
    Ok(format!(
        "{refused} of 4 refused by the API server; 0 of 8 questions answered; events: {}",
        site.news()?
    ))
}

fn endpoints_without_number(site: &Site<'_>) -> Result<String> {
    let slices = if long_forms() { 100 } else { 10 };
    site.put(&service(EVIL, "many", "10.96.60.17", &both(80), &json!({})))?;
    for number in 0..slices {
        let addresses: Vec<IpAddr> = (0..1000_u16)
            .map(|host| {
                [198, 20 + number, (host / 250).to_be_bytes()[1], (1 + host % 250).to_be_bytes()[1]]
                    .into()
            })
            .collect();
        let mut object = slice(EVIL, "many", &addresses, PORT);
        object["metadata"]["name"] = json!(format!("many-{number}"));
        site.put(&object)?;
    }
    site.settled()?;
    let memory = servers_memory(site)?;
    ensure!(memory <= MOST, "a node's server has {memory} kB");
    Ok(format!(
        "{slices},000 endpoints; a node's server {} MB; events: {}",
        memory / 1024,
        site.news()?
    ))
}

fn ranges_without_number(site: &Site<'_>) -> Result<String> {
    // Every second address: neighbours would be one network.
    let ranges: Vec<String> = (0..10_000)
        .map(|number| 2 * number)
        .map(|number| format!("198.18.{}.{}/32", number / 256, number % 256))
        .collect();
    let count = ranges.len();
    balanced(site, EVIL, "ranges", "10.96.60.18", &json!({"loadBalancerSourceRanges": ranges}))?;
    site.settled()?;
    let to: SocketAddr = format!("{BALANCED}:80").parse()?;
    site.is_closed(&End::Pod(&site.bystander().here), &[to])?;
    Ok(format!(
        "{count} ranges, others stay out; a node's server {} MB; events: {}",
        servers_memory(site)? / 1024,
        site.news()?
    ))
}

fn endpoints_of_udp_come_and_go(site: &Site<'_>) -> Result<String> {
    // As many as a Service may have, with the cluster's own.
    let addresses = if long_forms() { SERVICE_FRONT_ENDS.most - 1 } else { 1_000 };
    let external: Vec<String> = (0..addresses)
        .map(|number| format!("198.18.{}.{}", number / 250, 1 + number % 250))
        .collect();
    let ports = json!([{"name": "u", "protocol": "UDP", "port": 53, "targetPort": 8080}]);
    site.put(&service(EVIL, "udp", "10.96.60.19", &ports, &json!({"externalIPs": external})))?;
    const CHANGES: u8 = 20;
    for number in 0..CHANGES {
        site.put(&slice(EVIL, "udp", &[[198, 19, 0, 1 + number].into()], PORT))?;
        site.lab.central.sync()?;
    }
    site.settled()?;
    let events = site.news()?;
    ensure!(
        !events.contains(TOO_LARGE),
        "the Service is beyond the limit, and this measures nothing: {events}"
    );
    Ok(format!(
        "{addresses} addresses, {CHANGES} changes; a node's server {} MB; events: {events}",
        servers_memory(site)? / 1024,
    ))
}

fn node_ports_without_number(site: &Site<'_>) -> Result<String> {
    let services = if long_forms() { 20_u16 } else { 4 };
    let there = site.bystander().there.address();
    for number in 0..services {
        let port = |at: u16| {
            let node_port = 31_000 + number * 50 + at;
            json!({"name": format!("p{at}"), "protocol": "TCP", "port": 1000 + at, "targetPort": 8080, "nodePort": node_port})
        };
        let ports: Vec<Value> = (0..50).map(port).collect();
        let name = format!("ports-{number}");
        site.put(&service(
            EVIL,
            &name,
            &format!("10.96.65.{}", 1 + number),
            &json!(ports),
            &json!({"type": "NodePort"}),
        ))?;
        site.put(&slice(EVIL, &name, &[there], PORT))?;
    }
    site.settled()?;
    Ok(format!("{} node ports; a node's server {} MB", services * 50, servers_memory(site)? / 1024))
}

/// Packets of a tunnel for a node's port that a Service names, to each address that leads there.
fn a_tunnels_port_behind_a_service(site: &Site<'_>) -> Result<String> {
    let raw = Raw::start(site)?;
    let [first, second] =
        [site.first(), site.second()].map(|node| site.lab.world().of_node(node)[0]);
    let ports = json!([{"name": "u", "protocol": "UDP", "port": 80, "targetPort": 6081, "nodePort": 30_920}]);
    let cluster: IpAddr = [10, 96, 60, 20].into();
    let object =
        service(EVIL, "tunnel", &cluster.to_string(), &ports, &json!({"type": "NodePort"}));
    site.put(&object)?;
    let mut endpoints = slice(EVIL, "tunnel", &[second], 6081);
    endpoints["endpoints"][0]["nodeName"] = json!(site.second().name);
    site.put(&endpoints)?;
    let mut seen = (0, [0; 3]);
    for policy in ["Cluster", "Local"] {
        site.objects.patch(&object, &json!({"spec": {"externalTrafficPolicy": policy}}))?;
        site.settled()?;
        let frames: Vec<Vec<u8>> = [(cluster, 80), (first, 30_920), (second, 30_920)]
            .into_iter()
            .flat_map(|to| raw.tunnelled(site, (raw.address, 50_000), to))
            .flatten()
            .collect();
        let (sent, got) = at_bystanders(site, || raw.send(site, &frames))?;
        seen.0 += sent;
        seen.1 = std::array::from_fn(|pod| seen.1[pod] + got[pod]);
    }
    none(seen.0, &seen.1)
}

fn endpoints_in_a_burst(site: &Site<'_>) -> Result<String> {
    let changes = if long_forms() { 3_000 } else { 300_u16 };
    site.put(&service(EVIL, "burst", "10.96.60.21", &both(80), &json!({})))?;
    for number in 0..changes {
        let [high, low] = number.to_be_bytes();
        site.put(&slice(EVIL, "burst", &[[198, 19, high, low].into()], PORT))?;
    }
    site.settled()?;
    Ok(format!(
        "{changes} changes of an EndpointSlice; a node's server {} MB",
        servers_memory(site)? / 1024
    ))
}
