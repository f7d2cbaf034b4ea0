//! A cluster whose nodes have gateways, in a world: packets of pods, clients outside, hosts and the
//! API server.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result, ensure};
use contract::node_annotation::GATEWAY_CONFIG;
use integration::{
    Cluster, Families, cluster::GatewayMode, command, eventually, peer::Reply, traffic::End,
    world::Machine,
};
use serde_json::json;

use crate::cluster::support::{PODS, SOON, attached, pod, the_world_sees_the_node_of, wait_ready};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
/// A port of the node that leads to the pod `web`.
const HOST_PORT: u16 = 8090;
/// A port of a program of the node itself.
const OF_HOST: u16 = 7200;

/// The pod `web` is behind a Service and a port of its node, which is the first one.
fn start(cluster: &Cluster) -> Result<u16> {
    let mut web = pod("web", "node1");
    web["metadata"]["labels"] = json!({"app": "web"});
    web["spec"]["containers"][0]["ports"] = json!([{"containerPort": 8080, "hostPort": HOST_PORT}]);
    let mut pods = [web, pod("other", "node2")];
    pods.iter_mut().for_each(|pod| pod["spec"]["dnsPolicy"] = json!("ClusterFirst"));
    cluster.api.create_all(PODS, &pods)?;
    let spec = json!({"type": "NodePort", "selector": {"app": "web"}, "ipFamilyPolicy": "PreferDualStack",
        "ports": [{"port": 80, "targetPort": 8080}]});
    let object =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec});
    let created = cluster.api.create(SERVICES, &object)?;
    wait_ready(cluster, &["web", "other"])?;
    let port = created["spec"]["ports"][0]["nodePort"].as_u64().context("no node port")?;
    u16::try_from(port).context("a port")
}

/// The pod `web` answers the client outside at this port of these addresses.
fn answers_client(cluster: &Cluster, addresses: &[IpAddr], port: u16) -> Result<()> {
    for address in addresses {
        let url = format!("http://{}/hostname", SocketAddr::new(*address, port));
        eventually(&format!("{url} answers the client outside"), SOON, || {
            let mut curl = cluster.lab.world().command(Machine::Client, "curl");
            let said =
                command::output(curl.args(["-sSg", "--noproxy", "*", "--max-time", "3", &url]))?;
            ensure!(said == "web", "{said:?}");
            Ok(())
        })?;
    }
    Ok(())
}

/// Under `externalTrafficPolicy: Local` a program of the first node itself sees the client outside
/// with its own address, over TCP and UDP.
fn the_host_answers_client(cluster: &Cluster) -> Result<()> {
    let (lab, world) = (&cluster.lab, cluster.lab.world());
    let node = &lab.nodes[0];
    let own = world.of_node(node);
    let at = |port: u16| own.iter().map(|ip| SocketAddr::new(*ip, port)).collect::<Vec<_>>();
    let _server = lab.mirroring(&End::Node(node), &at(OF_HOST))?;
    let ports = ["TCP", "UDP"].map(
        |protocol| json!({"name": protocol.to_lowercase(), "protocol": protocol, "port": 80, "targetPort": OF_HOST}),
    );
    let created = cluster.api.create(
        SERVICES,
        &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "of-host"},
            "spec": {"type": "NodePort", "externalTrafficPolicy": "Local", "ipFamilyPolicy": "PreferDualStack",
                "ports": ports}}),
    )?;
    for address in &own {
        let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
        let ports = ["TCP", "UDP"]
            .map(|protocol| json!({"name": protocol.to_lowercase(), "protocol": protocol, "port": OF_HOST}));
        cluster.api.create(
            SLICES,
            &json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
                "metadata": {"name": format!("of-host-{}", family.to_lowercase()),
                    "labels": {"kubernetes.io/service-name": "of-host"}},
                "endpoints": [{"addresses": [address], "conditions": {"ready": true}, "nodeName": node.name}],
                "ports": ports}),
        )?;
    }
    let node_port = |index: usize| {
        let port = created["spec"]["ports"][index]["nodePort"].as_u64().context("no node port")?;
        anyhow::Ok(at(u16::try_from(port)?))
    };
    let (tcp, udp) = (node_port(0)?, node_port(1)?);
    let expected: Vec<_> = world.addresses(Machine::Client).into_iter().map(Some).collect();
    eventually("the host sees the client outside", SOON, || {
        let replies = lab.ask(&End::World(Machine::Client), &tcp, &udp)?;
        let seen = replies.each_ref().map(|all| all.iter().map(Reply::address).collect::<Vec<_>>());
        ensure!(seen.iter().all(|seen| *seen == expected), "{replies:?}");
        Ok(())
    })
}

/// Each direction. `mode`: what the control plane is told of each node's gateway.
fn every_way(cluster: &Cluster, mode: &str) -> Result<()> {
    let port = start(cluster)?;
    let (lab, world) = (&cluster.lab, cluster.lab.world());
    for node in &lab.nodes {
        let object = cluster.api.read(&format!("/api/v1/nodes/{}", node.name))?;
        let config = &object["metadata"]["annotations"][GATEWAY_CONFIG];
        ensure!(config.as_str().is_some_and(|text| text.contains(mode)), "no {mode} in {config}");
    }
    let (_web, web) = lab.mirroring_outside(Machine::Web, 80)?;
    for name in ["web", "other"] {
        let pod = attached(cluster, name)?;
        the_world_sees_the_node_of(cluster, &pod, &web)?;
        eventually(
            &format!("pod {name} finds a name of the world, and the name of an address"),
            SOON,
            || {
                let (name_of_web, address) = ("web.example.org", web[0].ip().to_string());
                for (asked, answer) in [(name_of_web, &*address), (&address, name_of_web)] {
                    let said = cluster.kubectl(["exec", name, "--", "nslookup", asked])?;
                    ensure!(said.contains(answer), "{said}");
                }
                Ok(())
            },
        )?;
        // The API server's Service has a host beside the nodes for its endpoint.
        eventually(&format!("pod {name} reaches the API server"), SOON, || {
            let url = "https://10.96.0.1/version";
            let said =
                cluster.kubectl(["exec", name, "--", "curl", "-sSk", "--max-time", "3", url])?;
            ensure!(said.contains("gitVersion"), "{said}");
            Ok(())
        })?;
    }
    for node in &lab.nodes {
        answers_client(cluster, &world.of_node(node), port)
            .with_context(|| format!("node port of {}", node.name))?;
        for address in world.of_node(node) {
            lab.ping_from_world(Machine::Client, address)?;
        }
    }
    answers_client(cluster, &world.of_node(&lab.nodes[0])[..1], HOST_PORT)
        .context("port of the host")?;
    the_host_answers_client(cluster)?;
    cluster.route_to_pods()?;
    for name in ["web", "other"] {
        let path = format!("/api/v1/namespaces/default/pods/{name}:8080/proxy/hostname");
        eventually(&format!("the API server reaches pod {name}"), SOON, || {
            let said = cluster.kubectl(["get", "--raw", &path])?;
            ensure!(said == name, "{said:?}");
            Ok(())
        })?;
    }
    cluster.northbound_must_match()
}

fn blueprint(gateway: GatewayMode) -> integration::cluster::Blueprint {
    Cluster::of_nodes(2).families(Families::Dual).dns().host_ports().forwarding().gateway(gateway)
}

#[test]
fn with_shared_gateways_pods_reach_the_world_and_the_world_reaches_ports_of_each_node() {
    blueprint(GatewayMode::Shared).test(|cluster| every_way(cluster, r#""mode":"shared""#));
}

#[test]
fn with_local_gateways_pods_reach_the_world_and_the_world_reaches_ports_of_each_node() {
    blueprint(GatewayMode::Local).test(|cluster| every_way(cluster, r#""mode":"local""#));
}
