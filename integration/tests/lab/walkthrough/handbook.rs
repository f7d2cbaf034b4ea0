//! The overlay handbook of the first `ovnkube`: a master, two minions with gateways, and pods that
//! reach each other, the master and the world.
//!
//! Its `ovn-ctl start_northd` and `ovn-ctl start_controller` are the lab's own daemons, and the
//! kubelet is the lab's runtime.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Lab, Node, Pod, central, eventually, fabric,
    traffic::End,
    world::{self, Machine},
};
use serde_json::json;

use crate::support::{api::Api, cluster_pods, managed};
use crate::walkthrough::{SOON, enter, home, install, printed, shell};

/// On the node with the central daemons.
const MASTER: &str = r#"nohup sudo ovnkube -k8s-kubeconfig kubeconfig.yaml -net-controller \
 -loglevel=4 \
 -k8s-apiserver="http://$CENTRAL_IP:8080" \
 -logfile="/var/log/openvswitch/ovnkube.log" \
 -init-master=$NODE_NAME -cluster-subnet="$CLUSTER_IP_SUBNET" \
 -service-cluster-ip-range=$SERVICE_IP_SUBNET \
 -nodeport \
 -nb-address="tcp://$CENTRAL_IP:6631" \
 -sb-address="tcp://$CENTRAL_IP:6632" 2>&1 &"#;

/// On each other host.
const MINION: &str = r#"nohup sudo ovnkube -k8s-kubeconfig kubeconfig.yaml -loglevel=4 \
    -logfile="/var/log/openvswitch/ovnkube.log" \
    -k8s-apiserver="http://$CENTRAL_IP:8080" \
    -init-node="$NODE_NAME"  \
    -nodeport \
    -nb-address="tcp://$CENTRAL_IP:6631" \
    -sb-address="tcp://$CENTRAL_IP:6632" -k8s-token="$TOKEN" \
    -init-gateways \
    -service-cluster-ip-range=$SERVICE_IP_SUBNET \
    -cluster-subnet=$CLUSTER_IP_SUBNET 2>&1 &"#;

/// In place of `-init-gateways`, where the gateway's interface is chosen.
const CHOSEN: &str = r#"-init-gateways -gateway-interface=breth0 -gateway-nexthop="$NEXTHOP""#;

const SERVICE: &str = "172.16.1.10";
const NODE_PORT: u16 = 30_080;

/// Runs a command of the document, with its variables.
fn follow(node: &Node, api: &Api, script: &str) -> Result<()> {
    let cluster = json!({"name": "lab", "cluster": {"server": api.url()}});
    let context = json!({"name": "lab", "context": {"cluster": "lab", "user": "lab"}});
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "lab",
        "clusters": [cluster], "contexts": [context], "users": [{"name": "lab", "user": {}}],
    });
    std::fs::write(home(node)?.join("kubeconfig.yaml"), kubeconfig.to_string())?;
    let variables = [
        ("CENTRAL_IP", fabric::LAB_ADDRESS),
        ("NODE_NAME", &node.name),
        ("CLUSTER_IP_SUBNET", "192.168.0.0/16"),
        ("SERVICE_IP_SUBNET", "172.16.1.0/24"),
        ("TOKEN", "test"),
        ("NEXTHOP", world::ROUTER),
    ];
    enter(node, &variables, script)
}

/// Where a database listens for other machines.
fn connections(program: &str, port: u16) -> Result<String> {
    shell(&format!("{program} --timeout=5 --db=tcp:{}:{port} get-connection", fabric::LAB_ADDRESS))
}

#[test]
fn the_overlay_handbook_leads_to_pods_that_reach_each_other_the_master_and_the_world() {
    Lab::of_nodes(3).empty().world().test(|lab| {
        install()?;
        let api = Api::start()?;
        let [master, first, second] = &lab.nodes[..] else { unreachable!("three nodes") };
        for node in [first, second] {
            cluster_pods::put_node(&api, node, &node.name);
        }

        central::link_sockets(&master.path("/"))?;
        follow(master, &api, MASTER)?;
        for (program, port) in [("ovn-nbctl", 6631), ("ovn-sbctl", 6632)] {
            eventually("the master opens the database", SOON, || {
                let there = connections(program, port)?;
                ensure!(there.trim().ends_with(&format!("ptcp:{port}")), "{there}");
                Ok(())
            })?;
        }
        follow(first, &api, MINION)?;
        follow(second, &api, &MINION.replace("-init-gateways", CHOSEN))?;
        for node in [first, second] {
            managed::ready(node)?;
            let remote = node.vsctl(["get", "Open_vSwitch", ".", "external_ids:ovn-remote"])?;
            ensure!(remote.trim() == "\"tcp:172.30.0.1:6632\"", "{remote}");
        }
        no_errors_with_argument_passing(lab)?;

        let [here, there] = [first, second].map(|node| cluster_pods::attach(lab, &api, node));
        let (here, there) = (here?, there?);
        is_a_port(first, &here)?;
        put_service(&api, &there);
        requirements(lab, &here, &there).context("networking requirements")?;
        services(lab, &here, &there).context("Services")?;

        first.configured_runtime()?.del(&here)?.success()?;
        let ports = first.vsctl(["list-ports", "br-int"])?;
        ensure!(!ports.contains(&here.host_interface()), "{ports}");
        Ok(())
    });
}

/// "Make sure to read /var/log/openvswitch/ovnkube.log to see that there were no obvious errors with
/// argument passing." What has no effect is said at once.
fn no_errors_with_argument_passing(lab: &Lab) -> Result<()> {
    let of_node = "ovnkube: without effect with --init-node: --nb-address";
    let of_master = "ovnkube: without effect with --init-master: --nodeport";
    let beside = "ovnkube: without effect beside --k8s-kubeconfig: --k8s-apiserver";
    for (node, other) in lab.nodes.iter().zip([of_master, of_node, of_node]) {
        let said = printed(node)?;
        let mut lines: Vec<&str> = said.lines().collect();
        lines.sort_unstable();
        ensure!(lines == [beside, other], "{}: {said}", node.name);
        let log = node.server_log()?;
        ensure!(!log.contains("|ERR|"), "{}: {log}", node.name);
    }
    Ok(())
}

/// What the plugin tells Open vSwitch of a pod.
fn is_a_port(node: &Node, pod: &Pod) -> Result<()> {
    let interface = node.vsctl(["list", "Interface", &pod.host_interface()])?;
    for part in [
        "attached_mac=",
        &format!("iface-id={}", pod.port()),
        &format!("ip_address=\"{}\"", pod.addresses[0]),
    ] {
        ensure!(interface.contains(part), "{part:?} is not in:\n{interface}");
    }
    Ok(())
}

/// A Service at a node port, of the node with the pod alone.
fn put_service(api: &Api, pod: &Pod) {
    let port = |protocol: &str| {
        json!({
            "name": protocol, "protocol": protocol,
            "port": 80, "targetPort": 8080, "nodePort": NODE_PORT,
        })
    };
    let end = |protocol: &str| json!({"name": protocol, "protocol": protocol, "port": 8080});
    let (ports, ends) = (["TCP", "UDP"].map(port), ["TCP", "UDP"].map(end));
    api.put(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": pod.namespace, "name": "web", "uid": "web"},
        "spec": {
            "type": "NodePort", "clusterIP": SERVICE, "clusterIPs": [SERVICE],
            "externalTrafficPolicy": "Local", "ports": ports,
        },
    }));
    let labels = json!({"kubernetes.io/service-name": "web"});
    let endpoint =
        json!({"addresses": [pod.address()], "nodeName": pod.node, "conditions": {"ready": true}});
    api.put(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"namespace": pod.namespace, "name": "web-1", "uid": "web-1", "labels": labels},
        "endpoints": [endpoint], "ports": ends,
    }));
}

/// "All containers … with each other over IP", "all nodes … with the containers running inside that
/// node", "all containers … with the k8s daemons running in the master node".
fn requirements(lab: &Lab, here: &Pod, there: &Pod) -> Result<()> {
    lab.ping(here, there.address())?;
    lab.ping(there, here.address())?;
    for pod in [here, there] {
        lab.ping_from_node(lab.node_of(pod), pod.address())?;
    }
    let daemon = SocketAddr::new(fabric::LAB_ADDRESS.parse()?, 8080);
    let _daemon = lab.mirroring(&End::Lab, &[daemon])?;
    for pod in [here, there] {
        // By the gateway of the pod's node.
        let gateway: IpAddr = fabric::address(lab.node_of(pod).index).parse()?;
        lab.answers("the master answers", &End::Pod(pod), &[(daemon, gateway)], SOON)?;
    }
    Ok(())
}

/// At their addresses for pods and the node, and at the node port for the world.
fn services(lab: &Lab, here: &Pod, there: &Pod) -> Result<()> {
    let backend = there.address();
    let _web = lab.answering(there, &[SocketAddr::new(backend, 8080)])?;
    let inside = [(SocketAddr::new(SERVICE.parse()?, 80), backend)];
    lab.answers("the pod's Service answers", &End::Pod(here), &inside, SOON)?;
    lab.answers("the node's Service answers", &End::Node(lab.node_of(here)), &inside, SOON)?;
    let outside = fabric::address(lab.node_of(there).index).parse()?;
    let outside = [(SocketAddr::new(outside, NODE_PORT), backend)];
    lab.answers("the node port answers", &End::World(Machine::Client), &outside, SOON)
}
