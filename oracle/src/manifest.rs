//! A world as API objects: what `kubectl get -o json` would print, without what no proxy reads.

use std::{fmt, net::IpAddr};

use serde_json::{Value, json};

use crate::world::{
    AddressType, Endpoint, EndpointPort, EndpointSlice, Node, Pod, Service, ServicePort,
    ServiceType, TrafficPolicy, World, node_name,
};

/// One object a line, as JSON.
impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Manifests { nodes, pods, services, slices } = self.manifests();
        nodes
            .iter()
            .chain(&pods)
            .chain(&services)
            .chain(&slices)
            .try_for_each(|object| writeln!(f, "{object}"))
    }
}

/// The objects of a world, by kind.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Manifests {
    pub nodes: Vec<Value>,
    pub pods: Vec<Value>,
    pub services: Vec<Value>,
    pub slices: Vec<Value>,
}

impl World {
    /// Its objects, as the API server would deliver them.
    pub fn manifests(&self) -> Manifests {
        Manifests {
            nodes: self.nodes.iter().map(node).collect(),
            pods: self.pods.iter().map(pod).collect(),
            services: self.services.iter().map(service).collect(),
            slices: self.slices.iter().map(slice).collect(),
        }
    }
}

fn node(node: &Node) -> Value {
    let name = node.name();
    let mut labels = json!({ "role": node.role() });
    if let Some(zone) = node.zone {
        labels["topology.kubernetes.io/zone"] = json!(zone);
    }
    let subnets = node.subnets();
    let addresses = node.addresses();
    let [v4, v6] = addresses;
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {
                "k8s.ovn.org/node-subnets": json!({ "default": subnets }).to_string(),
                "k8s.ovn.org/node-chassis-id": name,
                "k8s.ovn.org/node-primary-ifaddr":
                    json!({ "ipv4": format!("{v4}/24"), "ipv6": format!("{v6}/64") }).to_string(),
                "k8s.ovn.org/host-cidrs": json!([format!("{v4}/24"), format!("{v6}/64")]).to_string(),
            },
        },
        "status": {
            "addresses": addresses.map(|address| json!({ "type": "InternalIP", "address": address })),
        },
    })
}

fn pod(pod: &Pod) -> Value {
    let addresses = pod.addresses();
    let node = Node { number: pod.node, zone: None };
    let with_length = addresses.map(|ip| format!("{ip}/{}", if ip.is_ipv4() { 24 } else { 64 }));
    let gateways = [false, true].map(|ipv6| node.subnet_address(1, ipv6));
    let network = json!({
        "ip_addresses": with_length,
        "mac_address": pod.mac(),
        "gateway_ips": gateways,
        "role": "primary",
    });
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": Pod::NAMESPACE,
            "name": pod.name(),
            "uid": pod.uid(),
            "annotations": { "k8s.ovn.org/pod-networks": json!({ "default": network }).to_string() },
        },
        "spec": { "nodeName": node_name(pod.node) },
        "status": { "phase": "Running", "podIPs": addresses.map(|ip| json!({ "ip": ip })) },
    })
}

impl Pod {
    pub fn uid(&self) -> String {
        format!("00000000-0000-4000-8000-{:04x}{:08x}", self.node, self.host)
    }

    /// As OVN-Kubernetes derives it from the IPv4 address.
    pub fn mac(&self) -> String {
        Node { number: self.node, zone: None }.mac(self.host)
    }
}

impl Node {
    /// The MAC that derives from the IPv4 address of this host number in its subnet.
    pub fn mac(&self, host: u8) -> String {
        format!("0a:58:0a:f4:{:02x}:{host:02x}", self.number)
    }
}

fn service(service: &Service) -> Value {
    let is_external_name = service.kind == ServiceType::ExternalName;
    let is_headless = service.cluster_ips.is_empty();
    let kind = match service.kind {
        ServiceType::ClusterIp => "ClusterIP",
        ServiceType::NodePort => "NodePort",
        ServiceType::LoadBalancer => "LoadBalancer",
        ServiceType::ExternalName => "ExternalName",
    };
    let mut spec = json!({
        "type": kind,
        "ports": service.ports.iter().map(service_port).collect::<Vec<_>>(),
        "publishNotReadyAddresses": service.publish_not_ready_addresses,
        "internalTrafficPolicy": policy(service.internal_traffic_policy),
        "sessionAffinity": if service.affinity.is_some() { "ClientIP" } else { "None" },
    });
    let mut set = |field: &str, value: Value| spec[field] = value;
    if is_external_name {
        set("externalName", json!("elsewhere.example"));
    } else {
        let ips = if is_headless { json!(["None"]) } else { json!(service.cluster_ips) };
        set("clusterIP", ips[0].clone());
        set("clusterIPs", ips);
        set("ipFamilies", service.cluster_ips.iter().map(family).collect());
        set(
            "ipFamilyPolicy",
            json!(if service.cluster_ips.len() > 1 { "PreferDualStack" } else { "SingleStack" }),
        );
    }
    if !service.external_ips.is_empty() {
        set("externalIPs", json!(service.external_ips));
    }
    if matches!(service.kind, ServiceType::NodePort | ServiceType::LoadBalancer) {
        set("externalTrafficPolicy", json!(policy(service.external_traffic_policy)));
    }
    if let Some(timeout) = service.affinity {
        set("sessionAffinityConfig", json!({ "clientIP": { "timeoutSeconds": timeout } }));
    }
    if let Some(distribution) = service.traffic_distribution {
        set("trafficDistribution", json!(distribution));
    }
    let ingress = service
        .ingress
        .iter()
        .map(|ingress| json!({ "ip": ingress.ip, "ipMode": if ingress.is_proxy { "Proxy" } else { "VIP" } }));
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "namespace": service.namespace,
            "name": service.name,
            "uid": service.uid(),
            "creationTimestamp": format!("2026-01-01T00:{:02}:{:02}Z", service.created / 60, service.created % 60),
            "labels": labels(&service.labels),
        },
        "spec": spec,
        "status": { "loadBalancer": { "ingress": ingress.collect::<Vec<_>>() } },
    })
}

fn service_port(port: &ServicePort) -> Value {
    let mut value = json!({ "protocol": port.protocol.name(), "port": port.port });
    if let Some(name) = port.name {
        value["name"] = json!(name);
    }
    // The API server sets it when it is not given.
    value["targetPort"] = json!(port.target_port.unwrap_or(port.port));
    if let Some(node_port) = port.node_port {
        value["nodePort"] = json!(node_port);
    }
    value
}

fn slice(slice: &EndpointSlice) -> Value {
    let mut labels = labels(&slice.labels);
    if let Some(service) = &slice.service {
        labels["kubernetes.io/service-name"] = json!(service);
    }
    let address_type = match slice.address_type {
        AddressType::Ipv4 => "IPv4",
        AddressType::Ipv6 => "IPv6",
        AddressType::Fqdn => "FQDN",
    };
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": { "namespace": slice.namespace, "name": slice.name, "labels": labels },
        "addressType": address_type,
        "ports": slice.ports.iter().map(endpoint_port).collect::<Vec<_>>(),
        "endpoints": slice.endpoints.iter().map(endpoint).collect::<Vec<_>>(),
    })
}

fn endpoint_port(port: &EndpointPort) -> Value {
    let mut value = json!({});
    if let Some(name) = port.name {
        value["name"] = json!(name);
    }
    if let Some(protocol) = port.protocol {
        value["protocol"] = json!(protocol.name());
    }
    if let Some(number) = port.port {
        value["port"] = json!(number);
    }
    value
}

fn endpoint(endpoint: &Endpoint) -> Value {
    let mut conditions = json!({});
    let all = [
        ("ready", endpoint.ready),
        ("serving", endpoint.serving),
        ("terminating", endpoint.terminating),
    ];
    for (name, condition) in all {
        if let Some(condition) = condition {
            conditions[name] = json!(condition);
        }
    }
    let mut value = json!({ "addresses": [endpoint.address], "conditions": conditions });
    if let Some(node) = &endpoint.node_name {
        value["nodeName"] = json!(node);
    }
    let mut hints = json!({});
    if !endpoint.for_zones.is_empty() {
        hints["forZones"] = endpoint.for_zones.iter().map(|name| json!({ "name": name })).collect();
    }
    if !endpoint.for_nodes.is_empty() {
        hints["forNodes"] = endpoint.for_nodes.iter().map(|name| json!({ "name": name })).collect();
    }
    if hints != json!({}) {
        value["hints"] = hints;
    }
    value
}

fn labels(names: &[&'static str]) -> Value {
    names
        .iter()
        .map(|name| ((*name).to_owned(), json!("")))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn policy(policy: TrafficPolicy) -> &'static str {
    match policy {
        TrafficPolicy::Cluster => "Cluster",
        TrafficPolicy::Local => "Local",
    }
}

fn family(address: &IpAddr) -> Value {
    json!(if address.is_ipv4() { "IPv4" } else { "IPv6" })
}
