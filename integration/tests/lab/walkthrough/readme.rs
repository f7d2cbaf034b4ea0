//! The README of the Go programs: a cluster by its commands, and by its configuration file.
//!
//! The goals of make are tried where nothing has to be built (`tests/tests/guides.rs`).

use std::fs;

use anyhow::{Context as _, Result, ensure};
use integration::{Lab, Node, Pod, central, eventually, executable, fabric};
use serde_json::json;

use crate::support::{
    api::{Api, policy},
    cluster_pods, managed,
};
use crate::walkthrough::{SOON, enter, home, install, nbctl, pki, say};

const TOKEN: &str =
    "TG9yZW0gaXBzdW0gZG9sb3Igc2l0IGFtZXQsIGNvbnNlY3RldHVyIGFkaXBpc2NpbmcgZWxpdC4gQ3JhcyBhdA";

/// "Usage", with the defaults that are the same today.
const USAGE: [(&str, &str); 26] = [
    ("config-file", "/etc/openvswitch/ovn_k8s.conf"),
    ("cluster-subnets", ""),
    ("init-master", ""),
    ("init-cluster-manager", ""),
    ("init-ovnkube-controller", ""),
    ("init-node", ""),
    ("cleanup-node", ""),
    ("remove-node", ""),
    ("mtu", "1400"),
    ("conntrack-zone", "64000"),
    ("loglevel", "4 info"),
    ("logfile", ""),
    ("cni-conf-dir", "/etc/cni/net.d"),
    ("cni-plugin", "ovn-k8s-cni-overlay"),
    ("k8s-kubeconfig", ""),
    ("k8s-apiserver", "http://localhost:8443"),
    ("k8s-cacert", ""),
    ("k8s-token", ""),
    ("nb-address", ""),
    ("nb-client-privkey", "/etc/openvswitch/ovnnb-privkey.pem"),
    ("nb-client-cert", "/etc/openvswitch/ovnnb-cert.pem"),
    ("nb-client-cacert", "/etc/openvswitch/ovnnb-ca.cert"),
    ("sb-address", ""),
    ("sb-client-privkey", "/etc/openvswitch/ovnsb-privkey.pem"),
    ("sb-client-cert", "/etc/openvswitch/ovnsb-cert.pem"),
    ("sb-client-cacert", "/etc/openvswitch/ovnsb-ca.cert"),
];

const MASTER: &str = "ovnkube --init-master $NODE \\
\t--k8s-cacert $CACERT \\
\t--k8s-token $TOKEN \\
\t--k8s-apiserver $APISERVER \\
\t--cluster-subnets 192.168.0.0/16";

const CLUSTER_MANAGER: &str = "ovnkube --init-cluster-manager $NODE \\
\t--k8s-cacert $CACERT \\
\t--k8s-token $TOKEN \\
\t--k8s-apiserver $APISERVER \\
\t--cluster-subnets 192.168.0.0/16";

const CONTROLLER: &str = "ovnkube --init-ovnkube-controller $NODE \\
\t--k8s-cacert $CACERT \\
\t--k8s-token $TOKEN \\
\t--k8s-apiserver $APISERVER \\
\t--cluster-subnets 192.168.0.0/16";

const NODE: &str = "ovnkube --init-node $NODE \\
\t--k8s-cacert $CACERT \\
\t--k8s-token $TOKEN \\
\t--k8s-apiserver $APISERVER";

/// "Example configuration file".
const CONFIGURATION: &str = "\
[default]
mtu=1500
conntrack-zone=64321

[kubernetes]
apiserver=https://1.2.3.4:6443
token=TOKEN
cacert=/etc/kubernetes/ca.crt

[logging]
loglevel=5
logfile=/var/log/ovnkube.log

[cni]
conf-dir=/etc/cni/net.d
plugin=ovn-k8s-cni-overlay

[ovnnorth]
address=ssl:1.2.3.4:6641
client-privkey=/path/to/private.key
client-cert=/path/to/client.crt
client-cacert=/path/to/client-ca.crt
server-privkey=/path/to/private.key
server-cert=/path/to/server.crt
server-cacert=path/to/server-ca.crt
";

/// An API server with TLS that asks for the token.
fn start_api() -> Result<Api> {
    pki::authority("ca")?;
    pki::sign("ca", "api")?;
    Api::start_tls(&pki::file("api.crt"), &pki::file("api.key"), TOKEN)
}

/// Runs commands of the document, with its words in brackets as variables.
fn follow(node: &Node, api: &Api, script: &str) -> Result<()> {
    let authority = pki::file("ca.crt");
    let variables = [
        ("NODE", node.name.as_str()),
        ("CACERT", &authority),
        ("TOKEN", TOKEN),
        ("APISERVER", api.url()),
    ];
    enter(node, &variables, script)
}

/// The same as a process in the background, for [`end`].
fn start(node: &Node, api: &Api, command: &str) -> Result<()> {
    follow(node, api, &format!("{command} &\necho $! >> pids"))
}

/// Ends what [`start`] has started, and waits for it.
fn end(node: &Node) -> Result<()> {
    let file = home(node)?.join("pids");
    for pid in fs::read_to_string(&file)?.lines() {
        node.run(["kill", pid])?;
        eventually("the process has ended", SOON, || {
            node.shell(&format!("! test -e /proc/{pid}/exe")).map(drop)
        })?;
    }
    Ok(fs::remove_file(file)?)
}

/// Makes the host a node of the cluster: its Node, the plugin, and the node's server.
fn initialize(node: &Node, api: &Api, command: &str) -> Result<()> {
    cluster_pods::put_node(api, node, &node.name);
    // "or, manually copy 'ovn-k8s-cni-overlay' to /opt/cni/bin"
    let plugin = executable::under_test(executable::PLUGIN)?;
    let copy = format!("cp --remove-destination {} /opt/cni/bin/", plugin.display());
    node.shell(&copy)?;
    start(node, api, command)?;
    managed::ready(node)
}

/// A new pod of the node, whose "logical port with dynamic addressing from the switch" reaches the
/// other pod.
fn new_pod(lab: &Lab, api: &Api, node: &Node, other: Option<&Pod>) -> Result<Pod> {
    let pod = cluster_pods::attach(lab, api, node)?;
    let port = nbctl(&format!("lsp-get-addresses {}", pod.port()))?;
    ensure!(port.ends_with(&format!(" {}", pod.address())), "{port}: {pod:?}");
    if let Some(other) = other {
        eventually("the pods reach each other", SOON, || {
            lab.ping(&pod, other.address())?;
            lab.ping(other, pod.address())
        })?;
    }
    Ok(pod)
}

fn usage(node: &Node) -> Result<()> {
    let help = say(node, "ovnkube -h")?.out;
    for (option, default) in USAGE {
        let (_, text) = help
            .split_once(&format!(" --{option} "))
            .with_context(|| format!("--{option} is not in:\n{help}"))?;
        let text = text.split(" --").next().unwrap_or_default();
        ensure!(text.contains(default), "--{option}: {text:?} has no {default:?}");
    }
    Ok(())
}

#[test]
fn the_readme_of_the_go_programs_leads_to_a_cluster_and_back() {
    Lab::of_nodes(3).empty().test(|lab| {
        install()?;
        let [master, first, second] = &lab.nodes[..] else { unreachable!("three nodes") };
        usage(master)?;
        let api = start_api()?;
        central::link_sockets(&master.path("/"))?;

        start(master, &api, MASTER)?;
        initialize(first, &api, NODE)?;
        let here = new_pod(lab, &api, first, None)?;
        let subnet = api.annotation(&first.name, "k8s.ovn.org/node-subnets").unwrap_or_default();
        ensure!(subnet.contains("192.168."), "{subnet}");
        end(master)?;

        // "Initialize the cluster manager and ovnkube controller separately"
        start(master, &api, CLUSTER_MANAGER)?;
        start(master, &api, CONTROLLER)?;
        initialize(second, &api, NODE)?;
        let there = new_pod(lab, &api, second, Some(&here))?;
        policy(&api, json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": []}));
        eventually("the policy is in force", SOON, || lab.cannot_ping(&there, here.address()))?;

        // "Usage": -cleanup-node, -remove-node.
        end(second)?;
        follow(second, &api, &NODE.replace("--init-node", "-cleanup-node"))?;
        ensure!(!second.cni_conf().exists(), "the CNI configuration is left");
        // A controller that runs would remove its rows.
        end(master)?;
        api.remove(&json!({"kind": "Node", "metadata": {"name": second.name}}));
        let shows = || -> Result<_> {
            let show = nbctl("show")?;
            Ok([&first.name, &second.name].map(|name| show.contains(&format!("({name})"))))
        };
        ensure!(shows()? == [true, true], "{:?}", shows()?);
        follow(master, &api, "ovnkube -remove-node node3 -cluster-subnets 192.168.0.0/16")?;
        ensure!(shows()? == [true, false], "{:?}", shows()?);
        Ok(())
    });
}

/// The document's file, with the lab's addresses and files. "<same as ovn north>" is that.
fn configuration(api: &Api) -> String {
    let (_, north) = CONFIGURATION.split_once("[ovnnorth]").expect("the file has the section");
    let south = north.replace("6641", "6642");
    format!("{CONFIGURATION}\n[ovnsouth]{south}")
        .replace("https://1.2.3.4:6443", api.url())
        .replace("1.2.3.4", fabric::LAB_ADDRESS)
        .replace("TOKEN", TOKEN)
        .replace("/var/log/", "/var/log/openvswitch/")
        .replace("/path/to/", "path/to/")
        .replace("path/to/", &pki::file(""))
}

#[test]
fn the_configuration_file_of_the_readme_connects_master_and_nodes_by_tls() {
    Lab::of_nodes(3).empty().world().wire_mtu(1600).test(|lab| {
        install()?;
        let api = start_api()?;
        // The document's names: one key for a client and for the databases' servers.
        pki::authority("client-ca")?;
        fs::copy(pki::file("client-ca.crt"), pki::file("server-ca.crt"))?;
        pki::sign("client-ca", "private")?;
        for name in ["client.crt", "server.crt"] {
            fs::copy(pki::file("private.crt"), pki::file(name))?;
        }
        for node in &lab.nodes {
            fs::copy(pki::file("ca.crt"), node.path("/etc/kubernetes/ca.crt"))?;
            fs::write(node.path("/etc/openvswitch/ovn_k8s.conf"), configuration(&api))?;
        }
        let [master, first, second] = &lab.nodes[..] else { unreachable!("three nodes") };
        central::link_sockets(&master.path("/"))?;
        start(master, &api, "ovnkube -init-master $NODE -cluster-subnets 192.168.0.0/16")?;
        for node in [first, second] {
            initialize(node, &api, "ovnkube -init-node $NODE -init-gateways")?;
            let remote = node.vsctl(["get", "Open_vSwitch", ".", "external_ids:ovn-remote"])?;
            ensure!(remote.trim() == "\"ssl:172.30.0.1:6642\"", "{remote}");
        }
        let here = new_pod(lab, &api, first, None)?;
        new_pod(lab, &api, second, Some(&here))?;
        let link = first.run_in_pod(&here, ["ip", "link", "show", "eth0"])?;
        ensure!(link.contains("mtu 1500"), "{link}");
        let flows = first.shell("ovs-ofctl -O OpenFlow14 dump-flows breth0")?;
        ensure!(flows.contains("zone=64321"), "{flows}");
        Ok(())
    });
}
