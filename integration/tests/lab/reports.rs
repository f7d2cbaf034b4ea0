//! What people reported of networks like this one, by packets. docs/reports.md lists the reports
//! and what was seen.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use anyhow::{Result, ensure};
use integration::{
    Daemon, Lab, Pod, by_hand,
    connections::Server,
    eventually, let_pass,
    peer::{Pace, Reply},
    traffic::End,
};
use serde_json::{Value, json};

use crate::support::api::Api;

/// Limit for rows and flows to follow, on a busy machine.
const SOON: Duration = Duration::from_secs(30);
/// The port that is open by default, and another one.
const PORTS: [u16; 2] = [8080, 9090];

/// The object of a pod of the lab.
fn object(pod: &Pod, app: &str) -> Value {
    let addresses: Vec<Value> = pod.addresses.iter().map(|net| json!({"ip": net.addr()})).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
            "labels": {"app": app},
            "annotations": {"k8s.ovn.org/pod-networks": pod.annotation().to_string()},
        },
        "spec": {
            "nodeName": pod.node,
            "containers": [{"name": "main", "ports": [{"name": "web", "containerPort": PORTS[0]}]}],
        },
        "status": {"phase": "Running", "podIPs": addresses},
    })
}

/// The same pod under another name, which has ended.
fn ended(pod: &Pod, app: &str) -> Value {
    let mut ended = object(pod, app);
    ended["metadata"]["name"] = json!(format!("{}-before", pod.name));
    ended["metadata"]["uid"] = json!(format!("{}-before", pod.uid));
    ended["status"]["phase"] = json!("Succeeded");
    ended
}

fn policy(spec: Value) -> Vec<Value> {
    vec![json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"namespace": "lab", "name": "policy", "uid": "policy"},
        "spec": spec,
    })]
}

fn service(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": "lab", "name": name, "uid": name},
        "spec": spec,
    })
}

/// A slice of the Service with one port and one endpoint.
fn slice(service: &str, name: &str, port: Value, endpoint: &Pod, conditions: Value) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": "lab", "name": name, "uid": name, "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4",
        "ports": [port],
        "endpoints": [{"addresses": [endpoint.address()], "nodeName": endpoint.node, "conditions": conditions}],
    })
}

fn ready() -> Value {
    json!({"ready": true})
}

fn at(pod: &Pod, port: u16) -> SocketAddr {
    SocketAddr::new(pod.address(), port)
}

/// Pods on the first node, the first of which asks and the others answer at both ports.
struct Scene<'a> {
    lab: &'a Lab,
    api: Api,
    control_plane: Daemon,
    pods: Vec<Pod>,
    _servers: Vec<Server>,
}

impl<'a> Scene<'a> {
    /// With the labels `app` of the pods, whose control plane runs.
    fn start(lab: &'a Lab, apps: &[&str]) -> Result<Self> {
        let api = Api::start()?;
        let world = oracle::World {
            nodes: vec![oracle::world::Node { number: 1, zone: None }],
            ..oracle::World::default()
        };
        api.replace("Node", world.manifests().nodes);
        let control_plane = api.control_plane();
        control_plane.spawn()?;
        let node = &lab.nodes[0];
        let mut pods = Vec::new();
        for app in apps {
            let pod = lab.plan_pod(node);
            api.put(object(&pod, app));
            node.add_namespaces(std::slice::from_ref(&pod))?;
            by_hand::attach(node, &pod)?;
            pods.push(pod);
        }
        let servers =
            pods[1..].iter().map(|pod| lab.answering(pod, &PORTS.map(|port| at(pod, port))));
        let servers = servers.collect::<Result<_>>()?;
        Ok(Self { lab, api, control_plane, pods, _servers: servers })
    }

    /// Waits until the client is answered by these over TCP, or by nobody.
    fn tcp(&self, what: &str, expected: &[(SocketAddr, Option<SocketAddr>)]) -> Result<()> {
        self.tcp_from(&self.pods[0], what, expected)
    }

    fn tcp_from(
        &self,
        client: &Pod,
        what: &str,
        expected: &[(SocketAddr, Option<SocketAddr>)],
    ) -> Result<()> {
        let to: Vec<SocketAddr> = expected.iter().map(|(to, _)| *to).collect();
        eventually(what, SOON, || {
            let [replies, _] = self.lab.ask(&End::Pod(client), &to, &[])?;
            let by = replies
                .iter()
                .map(|reply| if let Reply::By(by) = reply { Some(*by) } else { None });
            ensure!(by.eq(expected.iter().map(|(_, by)| *by)), "{to:?}: {replies:?}");
            Ok(())
        })
    }

    /// Pods of the lab answer here, or not, whatever is between them.
    fn open(&self, what: &str, server: usize, open: [bool; 2]) -> Result<()> {
        let to = PORTS.map(|port| at(&self.pods[server], port));
        let expected: Vec<_> =
            to.into_iter().zip(open).map(|(to, is_open)| (to, is_open.then_some(to))).collect();
        self.tcp(what, &expected)
    }
}

#[test]
fn policies_as_they_were_reported_to_fail_elsewhere() {
    Lab::of_nodes(1).empty().test(|lab| {
        let scene = Scene::start(lab, &["client", "web", "dns"])?;
        let [client, web, dns] = &scene.pods[..] else { unreachable!("three pods") };

        // The addresses of pods that have ended are others' by now.
        scene.api.put(ended(web, "job"));
        scene.api.put(ended(client, "old-client"));
        let isolate = |app: &str, ingress: Value| {
            policy(json!({
                "podSelector": {"matchLabels": {"app": app}}, "policyTypes": ["Ingress"], "ingress": ingress,
            }))
        };
        let from = |app: &str| json!([{"from": [{"podSelector": {"matchLabels": {"app": app}}}]}]);
        scene.api.replace("NetworkPolicy", isolate("web", from("old-client")));
        scene.open("a pod that has ended opens nothing for who has its address now", 1, [false, false])?;
        scene.api.replace("NetworkPolicy", isolate("job", json!([])));
        scene.open("a policy for a pod that has ended isolates nobody", 1, [true, true])?;
        scene.api.replace("NetworkPolicy", isolate("web", from("client")));
        scene.open("the pod that runs is the peer", 1, [true, true])?;

        // A name stands for one port of one protocol.
        scene.api.replace("NetworkPolicy", isolate("web", json!([{"ports": [{"port": "web"}]}])));
        scene.open("the name of a port opens that port", 1, [true, false])?;
        let udp = [at(web, PORTS[0])];
        let [_, replies] = lab.ask(&End::Pod(client), &[], &udp)?;
        ensure!(!matches!(replies[0], Reply::By(_)), "the name of a TCP port opens UDP: {replies:?}");

        // What an exception leaves out, another rule or another peer may allow.
        let egress = json!([
            {"to": [{"ipBlock": {"cidr": "10.244.0.0/16"}}], "ports": [{"port": PORTS[0]}]},
            {"to": [
                {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.244.0.0/16"]}},
                {"podSelector": {"matchLabels": {"app": "dns"}}},
            ]},
        ]);
        scene.api.replace(
            "NetworkPolicy",
            policy(json!({
                "podSelector": {"matchLabels": {"app": "client"}}, "policyTypes": ["Egress"], "egress": egress,
            })),
        );
        scene.open("one port of what is excepted elsewhere", 1, [true, false])?;
        scene.open("a pod inside of an exception that is a peer itself", 2, [true, true])?;

        // A pod reaches itself over its Service, whatever isolates it.
        let vip: SocketAddr = "10.96.0.30:80".parse()?;
        let port = json!({"protocol": "TCP", "port": PORTS[0]});
        scene.api.put(service(
            "self",
            json!({"clusterIP": vip.ip(), "clusterIPs": [vip.ip()], "ports": [{"port": 80, "protocol": "TCP"}]}),
        ));
        scene.api.put(slice("self", "self", port, dns, ready()));
        scene.api.replace("NetworkPolicy", isolate("dns", json!([])));
        scene.open("the pod is isolated", 2, [false, false])?;
        scene.tcp_from(dns, "a pod that is isolated reaches itself", &[(vip, Some(at(dns, PORTS[0])))])
    });
}

#[test]
fn services_as_they_were_reported_to_fail_elsewhere() {
    Lab::of_nodes(1).empty().test(|lab| {
        let scene = Scene::start(lab, &["client", "web", "web"])?;
        let [_, first, second] = &scene.pods[..] else { unreachable!("three pods") };
        let port = |name: &str, port: u16| json!({"name": name, "protocol": "TCP", "port": port});
        let cluster_ip =
            |ip: &str, ports: Value| json!({"clusterIP": ip, "clusterIPs": [ip], "ports": ports});
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");

        // One address in two slices, with a port in each.
        let ports = json!([port("a", 80), port("b", 81)]);
        scene.api.put(service("twice", cluster_ip("10.96.0.31", ports)));
        scene.api.put(slice("twice", "twice-a", port("a", PORTS[0]), first, ready()));
        scene.api.put(slice("twice", "twice-b", port("b", PORTS[1]), first, ready()));
        scene.tcp(
            "each slice has its port of the same endpoint",
            &[
                (address("10.96.0.31:80"), Some(at(first, PORTS[0]))),
                (address("10.96.0.31:81"), Some(at(first, PORTS[1]))),
            ],
        )?;

        // Two Services share an external address, and each has its port.
        for (name, ip, number, pod) in
            [("e1", "10.96.0.32", 80, first), ("e2", "10.96.0.33", 81, second)]
        {
            let mut spec = cluster_ip(ip, json!([port("", number)]));
            spec["externalIPs"] = json!(["192.0.2.77"]);
            scene.api.put(service(name, spec));
            scene.api.put(slice(name, name, port("", PORTS[0]), pod, ready()));
        }
        scene.tcp(
            "Services that share an external address",
            &[
                (address("192.0.2.77:80"), Some(at(first, PORTS[0]))),
                (address("192.0.2.77:81"), Some(at(second, PORTS[0]))),
            ],
        )?;

        // The API server makes slices for a Service of the type ExternalName that has a selector.
        let vip = address("10.96.0.34:80");
        let external =
            json!({"type": "ExternalName", "externalName": "example.org", "ports": [port("", 80)]});
        scene.api.put(service("name", external.clone()));
        scene.api.put(slice("name", "name", port("", PORTS[0]), first, ready()));
        scene.api.put(service("name", cluster_ip("10.96.0.34", json!([port("", 80)]))));
        scene.tcp("a Service that had an external name", &[(vip, Some(at(first, PORTS[0])))])?;
        scene.api.put(service("name", external));
        scene.tcp("a Service that has an external name again", &[(vip, None)])?;

        // Endpoints that end are ready where the Service publishes them.
        let mut spec = cluster_ip("10.96.0.35", json!([port("", 80)]));
        spec["publishNotReadyAddresses"] = json!(true);
        scene.api.put(service("ending", spec));
        let ending = json!({"ready": true, "serving": true, "terminating": true});
        scene.api.put(slice("ending", "ending", port("", PORTS[0]), second, ending));
        scene.tcp(
            "an endpoint that ends and is published",
            &[(address("10.96.0.35:80"), Some(at(second, PORTS[0])))],
        )
    });
}

#[test]
fn restarts_of_the_control_plane_as_they_were_reported_to_fail_elsewhere() {
    Lab::of_nodes(1).empty().test(|lab| {
        let scene = Scene::start(lab, &["client", "web"])?;
        let [client, web] = &scene.pods[..] else { unreachable!("two pods") };
        let (api, node) = (&scene.api, &lab.nodes[0]);
        api.replace(
            "NetworkPolicy",
            policy(json!({
                "podSelector": {"matchLabels": {"app": "web"}},
                "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "client"}}}]}],
            })),
        );
        let port_of = |pod: &Pod| {
            lab.central.nbctl([
                "--bare",
                "--columns=addresses",
                "find",
                "Logical_Switch_Port",
                &format!("name={}", pod.port()),
            ])
        };
        let acls = || {
            lab.central.nbctl(["--bare", "--columns=action", "find", "ACL", "action=allow-related"])
        };
        eventually("the policy is in force", SOON, || {
            ensure!(acls()?.contains("allow-related"));
            Ok(())
        })?;
        scene.open("the peer of the policy", 1, [true, true])?;

        // A pod goes, another one claims its address, and a third is new, while no control plane
        // runs.
        let gone = lab.plan_pod(node);
        api.put(object(&gone, "web"));
        eventually("its port is there", SOON, || {
            ensure!(port_of(&gone)?.contains(&gone.address().to_string()));
            Ok(())
        })?;
        let knocking = lab.connections(client, at(web, PORTS[0]), Pace::PATIENT)?;
        scene.control_plane.kill()?;
        api.remove(&object(&gone, "web"));
        let mut heir = gone.clone();
        for field in [&mut heir.name, &mut heir.uid] {
            "heir".clone_into(field);
        }
        api.put(object(&heir, "web"));
        let fresh = lab.plan_pod(node);
        let mut unassigned = object(&fresh, "web");
        unassigned["metadata"]["annotations"] = json!({});
        api.put(unassigned);
        scene.control_plane.spawn()?;
        let has = |pod: &Pod, address: Option<IpAddr>| {
            eventually(&format!("the port of {pod}"), SOON, || {
                let found = port_of(pod)?;
                match address {
                    Some(address) => ensure!(found.contains(&address.to_string()), "{found}"),
                    None => ensure!(found.contains("10.244."), "{found}"),
                }
                Ok(())
            })
        };
        has(&heir, Some(gone.address()))?;
        has(&fresh, None)?;
        ensure!(port_of(&gone)?.trim().is_empty(), "the port of a pod that is gone stays");

        // Its peers were never taken out of the policy.
        let_pass(Pace::PATIENT.patience);
        let all = knocking.all();
        let refused = all.iter().filter(|connection| connection.by.is_none()).count();
        ensure!(all.len() > 10, "{} connections", all.len());
        ensure!(
            refused + knocking.unanswered().len() == 0,
            "{refused} refused, {:?}",
            knocking.unanswered()
        );
        Ok(())
    });
}
