//! What a node does for Services, as an API server tells of them. The load balancers are the test's
//! own.

use std::{
    net::SocketAddr,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use integration::{
    Families, Lab, Pod, command, eventually,
    faults::Kubernetes,
    traffic::{Echo, End},
};
use serde_json::{Value, json};

use crate::support::hosts::balance;

const SOON: Duration = Duration::from_secs(20);
const VIP: &str = "10.96.0.10";
const SERVICES: &str = "/api/v1/namespaces/lab/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/lab/endpointslices";

/// An API server, and the server of the first node with its management port.
fn start(lab: &Lab) -> Result<Kubernetes> {
    let kubernetes = Kubernetes::start(lab)?;
    let node = &lab.nodes[0];
    lab.route_to_hosts()?;
    let subnets: Vec<String> = node.subnets.iter().map(ToString::to_string).collect();
    let annotation = json!({"default": subnets}).to_string();
    kubernetes.api.patch(
        &format!("/api/v1/nodes/{}", node.name),
        &json!({"metadata": {"annotations": {"k8s.ovn.org/node-subnets": annotation}}}),
    )?;
    node.start_server()?;
    eventually("the management port is ready", SOON, || {
        ensure!(node.cni_conf().exists(), "{}", node.server_log()?);
        Ok(())
    })?;
    Ok(kubernetes)
}

fn create_service(kubernetes: &Kubernetes, name: &str, spec: Value) -> Result<Value> {
    let object =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
    kubernetes.api.create(SERVICES, &object)
}

fn slice(service: &str, protocol: &str, endpoints: &[SocketAddr], node: &str) -> Value {
    let port = endpoints.first().map_or(53, SocketAddr::port);
    let endpoints: Vec<Value> = endpoints
        .iter()
        .map(|endpoint| json!({"addresses": [endpoint.ip()], "nodeName": node, "conditions": {"ready": true, "serving": true}}))
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": format!("{service}-a"), "labels": {"kubernetes.io/service-name": service}},
        "ports": [{"name": "", "protocol": protocol, "port": port}], "endpoints": endpoints,
    })
}

/// Tells API server and OVN of the endpoints of the Service `dns`, in this order, as a control
/// plane does.
fn serve_dns(lab: &Lab, kubernetes: &Kubernetes, endpoints: &[&Echo]) -> Result<()> {
    let endpoints: Vec<SocketAddr> = endpoints.iter().map(|echo| echo.address).collect();
    let patch = slice("dns", "UDP", &endpoints, "node1");
    kubernetes.api.patch(
        &format!("{SLICES}/dns-a"),
        &json!({"ports": patch["ports"], "endpoints": patch["endpoints"]}),
    )?;
    balance(lab, "udp", VIP, 53, &endpoints).map(drop)
}

/// The Service `dns` with the first of two endpoints, and a client of it, all on one node.
struct Dns {
    kubernetes: Kubernetes,
    client: Pod,
    old: Pod,
    /// Of the old endpoint and of the one that follows it.
    echoes: [Echo; 2],
    to: SocketAddr,
}

impl Dns {
    fn start(lab: &Lab) -> Result<Self> {
        let node = &lab.nodes[0];
        let kubernetes = start(lab)?;
        let [client, old, new] =
            [lab.attached_pod(node)?, lab.attached_pod(node)?, lab.attached_pod(node)?];
        let echoes =
            [lab.echo(&End::Pod(&old), old.address())?, lab.echo(&End::Pod(&new), new.address())?];
        let spec = json!({"clusterIP": VIP, "ports": [{"port": 53, "protocol": "UDP"}]});
        create_service(&kubernetes, "dns", spec)?;
        kubernetes.api.create(SLICES, &slice("dns", "UDP", &[], "node1"))?;
        serve_dns(lab, &kubernetes, &[&echoes[0]])?;
        Ok(Self { kubernetes, client, old, echoes, to: format!("{VIP}:53").parse()? })
    }
}

/// kubernetes#139628: no endpoint is left, then there is a new one, and the client keeps its port
/// and never pauses. Its connection to the old endpoint would live for as long as it sends.
#[test]
fn a_udp_client_that_never_pauses_finds_the_endpoint_that_replaces_the_last_one() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        let Dns { kubernetes, client, echoes, to, .. } = Dns::start(lab)?;
        eventually("the first endpoint answers", SOON, || {
            let flow = lab.flow_to(&End::Pod(&client), to)?;
            node.shell("sleep 0.1")?;
            let echoes = flow.stop()?;
            ensure!(echoes.received > 0, "{echoes:?}");
            Ok(())
        })?;

        let flow = lab.flow_to(&End::Pod(&client), to)?;
        node.shell("sleep 1")?;
        let without = Instant::now();
        serve_dns(lab, &kubernetes, &[])?;
        node.shell("sleep 2")?;
        serve_dns(lab, &kubernetes, &[&echoes[1]])?;
        let without = without.elapsed();
        node.shell("sleep 5")?;
        let echoes = flow.stop()?;
        let silent = echoes.silence();
        ensure!(
            silent < without + Duration::from_secs(1),
            "{echoes:?}: silent for {silent:?}, without an endpoint for {without:?}\n{}",
            node.server_log()?
        );
        println!("silent for {silent:?}, without an endpoint for {without:?}");
        Ok(())
    });
}

/// With another endpoint, the client goes on at once, and clients of endpoints that stay keep
/// theirs.
#[test]
fn a_udp_client_of_an_endpoint_that_goes_is_served_by_another_one() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        let Dns { kubernetes, client, old, echoes, to } = Dns::start(lab)?;
        let flow = lab.flow_to(&End::Pod(&client), to)?;
        node.shell("sleep 1")?;
        // The pod is gone with its endpoint: nothing refuses what is still sent there.
        let [old_echo, new_echo] = echoes;
        serve_dns(lab, &kubernetes, &[&old_echo, &new_echo])?;
        drop(old_echo);
        serve_dns(lab, &kubernetes, &[&new_echo])?;
        let connections = || node.run(["ovs-appctl", "dpctl/dump-conntrack"]);
        eventually("no connection leads to the endpoint that is gone", SOON, || {
            let all = connections()?;
            // Not those to the endpoint's own address, which its port's zone has: they are of no
            // consequence.
            let (service, reply) =
                (format!("dst={VIP},"), format!("reply=(src={},", old.address()));
            ensure!(
                !all.lines().any(|line| line.contains(&service) && line.contains(&reply)),
                "{all}"
            );
            Ok(())
        })?;
        node.shell("sleep 2")?;
        let echoes = flow.stop()?;
        let silent = echoes.silence();
        ensure!(silent < Duration::from_secs(1), "{echoes:?}");
        println!("silent for {silent:?}");
        // A Service that is deleted leaves nothing.
        kubernetes.api.delete(&format!("{SERVICES}/dns"))?;
        lab.central.nbctl(["--wait=hv", "lb-del", &format!("udp-{to}")])?;
        eventually("no connection to the Service is left", SOON, || {
            let all = connections()?;
            ensure!(!all.lines().any(|line| line.contains(&format!("dst={VIP},"))), "{all}");
            Ok(())
        })
    });
}

#[test]
fn a_range_that_is_added_while_the_node_runs_is_reached_from_it_once_ovn_answers_there() {
    Lab::of_nodes(1).families(Families::V4).test(|lab| {
        let node = &lab.nodes[0];
        let kubernetes = start(lab)?;
        let pod = lab.attached_pod(node)?;
        let ranges = "/apis/networking.k8s.io/v1/servicecidrs";
        let route = || node.shell("ip route show 192.168.128.0/24");
        kubernetes.api.create(
            ranges,
            &json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
            "metadata": {"name": "more"}, "spec": {"cidrs": ["192.168.128.0/24"]}}),
        )?;
        eventually("the range is known to be empty", SOON, || {
            let log = node.server_log()?;
            ensure!(
                log.contains("192.168.128.0/24")
                    && log.contains("no Service has an address in it yet"),
                "{log}"
            );
            Ok(())
        })?;
        let spec = json!({"clusterIP": "192.168.128.7", "ports": [{"port": 80}]});
        eventually("the API server gives the address", SOON, || {
            create_service(&kubernetes, "web", spec.clone()).map(drop)
        })?;
        eventually("the range is known not to be served", SOON, || {
            let log = node.server_log()?;
            ensure!(log.contains("OVN does not answer at 192.168.128.7"), "{log}");
            Ok(())
        })?;
        ensure!(route()?.is_empty(), "{}", route()?);

        let by = |endpoint: SocketAddr| {
            let at = balance(lab, "tcp", "192.168.128.7", 80, &[endpoint])?;
            eventually("the node has a route", Duration::from_secs(40), || {
                ensure!(route()?.contains("dev ovn-k8s-mp0"), "{}", node.server_log()?);
                Ok(())
            })?;
            Ok(at)
        };
        lab.tcp_by(&End::Node(node), &End::Pod(&pod), pod.address(), 1 << 16, by)?;

        // A restart changes nothing, although OVN does not answer there any more for the moment.
        lab.central.nbctl(["--wait=hv", "lb-del", "tcp-192.168.128.7:80"])?;
        let said = node.server_log()?.len();
        node.server.stop()?;
        node.start_server()?;
        eventually("the server is ready again", SOON, || {
            ensure!(node.server_log()?[said..].contains("|ready "), "{}", node.server_log()?);
            Ok(())
        })?;
        ensure!(
            route()?.contains("dev ovn-k8s-mp0")
                && !node.server_log()?[said..].contains("management port\","),
            "{}",
            node.server_log()?
        );

        kubernetes.api.delete(&format!("{SERVICES}/web"))?;
        kubernetes
            .api
            .patch(&format!("{ranges}/more"), &json!({"metadata": {"finalizers": null}}))?;
        kubernetes.api.delete(&format!("{ranges}/more"))?;
        let _ = kubernetes
            .api
            .patch(&format!("{ranges}/more"), &json!({"metadata": {"finalizers": null}}));
        eventually("the route is gone with the range", SOON, || {
            ensure!(route()?.is_empty(), "{}", route()?);
            Ok(())
        })
    });
}

/// What is forbidden gets no answer, as with kube-proxy.
#[test]
fn a_load_balancer_answers_the_clients_in_its_source_ranges_and_no_others() {
    const EXTERNAL: &str = "198.51.100.77";
    Lab::of_nodes(2).families(Families::V4).test(|lab| {
        let [here, there] = &lab.nodes[..] else { panic!("two nodes") };
        let kubernetes = start(lab)?;
        let pod = lab.attached_pod(here)?;
        let echo = lab.echo(&End::Pod(&pod), pod.address())?;
        let service = format!("{SERVICES}/limited");
        let spec = json!({"type": "LoadBalancer", "clusterIP": VIP, "allocateLoadBalancerNodePorts": false,
            "loadBalancerSourceRanges": ["172.30.0.1/32"], "ports": [{"port": 53, "protocol": "UDP"}]});
        create_service(&kubernetes, "limited", spec)?;
        kubernetes.api.create(SLICES, &slice("limited", "UDP", &[echo.address], "node1"))?;
        let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": EXTERNAL}]}}});
        kubernetes.api.patch(&format!("{service}/status"), &status)?;
        balance(lab, "udp", VIP, 53, &[echo.address])?;
        command::output(Command::new("ip").args(["route", "add", EXTERNAL, "via", "172.30.0.11"]))?;
        there.shell(&format!("ip route add {EXTERNAL} via 172.30.0.11"))?;
        here.shell(&format!("ip route add {EXTERNAL} via 172.30.0.1"))?;
        // A packet that is there before the rules goes back the way it came. The node would tell
        // its sender of the shorter way (RFC 792), and the sender would leave the node out for five
        // minutes.
        here.shell("for name in all breth0; do echo 0 > /proc/sys/net/ipv4/conf/$name/send_redirects; done")?;

        let to = format!("{EXTERNAL}:53").parse()?;
        let from = [End::Lab, End::Node(here), End::Node(there)];
        let answered = |expected: [bool; 3]| {
            eventually(&format!("answers are {expected:?}"), Duration::from_secs(60), || {
                let mut found = [false; 3];
                for (end, found) in from.iter().zip(&mut found) {
                    let flow = lab.flow_to(end, to)?;
                    here.shell("sleep 0.2")?;
                    *found = flow.stop()?.received > 0;
                }
                ensure!(found == expected, "{found:?}\n{}", here.server_log()?);
                Ok(())
            })
        };
        answered([true, false, false])?;
        for (ranges, expected) in [
            (json!(["172.30.0.12/32", "192.0.2.0/24"]), [false, false, true]),
            (json!(["172.30.0.10/31"]), [false, true, false]),
            (json!(["172.30.0.0/24"]), [true; 3]),
            (json!(["192.0.2.0/24"]), [false; 3]),
            (json!(null), [true; 3]),
        ] {
            kubernetes.api.patch(&service, &json!({"spec": {"loadBalancerSourceRanges": ranges}}))?;
            answered(expected)?;
        }
        Ok(())
    });
}

/// The node's own host-network processes reach the API server at its Service's address.
#[test]
fn a_node_reaches_services_whose_endpoints_are_on_hosts() {
    Lab::of_nodes(2).test(|lab| {
        let [here, there] = &lab.nodes[..] else { panic!("two nodes") };
        let kubernetes = start(lab)?;
        let pod = lab.attached_pod(here)?;
        create_service(
            &kubernetes,
            "hosts",
            json!({"clusterIP": "10.96.0.20", "ports": [{"port": 443}]}),
        )?;
        kubernetes.api.create(SLICES, &slice("hosts", "TCP", &[], "node1"))?;
        for (to, address) in [
            (End::Node(here), "172.30.0.11"),
            (End::Node(there), "172.30.0.12"),
            (End::Lab, "172.30.0.1"),
        ] {
            for from in [End::Node(here), End::Pod(&pod)] {
                let by = |endpoint: SocketAddr| {
                    let patch = slice("hosts", "TCP", &[endpoint], "node1");
                    kubernetes.api.patch(
                        &format!("{SLICES}/hosts-a"),
                        &json!({"ports": patch["ports"], "endpoints": patch["endpoints"]}),
                    )?;
                    let at = balance(lab, "tcp", "10.96.0.20", 443, &[endpoint])?;
                    eventually("the node has the rule", Duration::from_secs(40), || {
                        let is_there = here.run(["ovs-appctl", "version"]).is_ok()
                            && here.server_log()?.contains("addresses of Services");
                        ensure!(is_there, "{}", here.server_log()?);
                        Ok(())
                    })?;
                    // The rules follow within a moment of the slice.
                    here.shell("sleep 0.7")?;
                    Ok(at)
                };
                lab.tcp_by(&from, &to, address.parse()?, 1 << 16, by)?;
            }
        }
        Ok(())
    });
}

#[test]
fn a_health_check_port_tells_whether_the_node_has_an_endpoint() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        let kubernetes = start(lab)?;
        let created = create_service(&kubernetes, "web", json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]}))?;
        let port = created["spec"]["healthCheckNodePort"].as_u64().unwrap_or_default();
        let ask = || node.run(["curl", "-s", "-i", "--max-time", "2", &format!("http://172.30.0.11:{port}/anything")]);
        let answers = |status: &str, endpoints: u32| {
            eventually(&format!("{status} with {endpoints} endpoints"), SOON, || {
                let answer = ask()?;
                ensure!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
                let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
                ensure!(head.contains(&format!("x-load-balancing-endpoint-weight: {endpoints}")), "{head}");
                let body: Value = serde_json::from_str(body)?;
                let expected = json!({"service": {"namespace": "lab", "name": "web"}, "localEndpoints": endpoints, "serviceProxyHealthy": true});
                ensure!(body == expected, "{body}");
                Ok(())
            })
        };
        answers("503", 0)?;
        kubernetes.api.create(SLICES, &slice("web", "TCP", &["10.244.1.77:80".parse()?], "node1"))?;
        answers("200", 1)?;
        kubernetes.api.delete(&format!("{SLICES}/web-a"))?;
        answers("503", 0)?;
        kubernetes.api.delete(&format!("{SERVICES}/web"))?;
        eventually("nothing listens", SOON, || {
            ensure!(ask().is_err());
            Ok(())
        })
    });
}
