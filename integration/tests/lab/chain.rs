//! Chained plugins: Debian's `portmap`, called by a runtime with the configuration that the server
//! wrote.

use std::{fs, process::Stdio, time::Duration};

use crate::support::managed;
use anyhow::{Context as _, Result, ensure};
use integration::{Lab, Node, Pod, cluster::reference, eventually, fabric};
use serde_json::{Value, json};

/// The file that `--cni-chain` names.
const CHAIN: &str = "/etc/openvswitch/cni-chain.json";
/// The port that the pod listens on, and the node's port for it.
const PORTS: (u16, u16) = (8080, 18080);
const GREETING: &str = "hello from the pod";

/// `cnitool` with the capability arguments that a kubelet passes for `hostPort`.
fn cnitool(node: &Node, verb: &str, pod: &Pod) -> Result<()> {
    let (inside, outside) = PORTS;
    let ports = json!({"portMappings": [{"hostPort": outside, "containerPort": inside, "protocol": "tcp"}]});
    let call = node
        .runtime()
        .cnitool(verb, pod)?
        .env("CAP_ARGS", ports.to_string())
        .env("CNI_PATH", format!("/opt/cni/bin:{}", reference::PLUGINS));
    call.run()?.success().map(drop)
}

/// What `from` reads from the port of `of`.
fn heard(from: &Node, of: &Node) -> Result<String> {
    let (_, outside) = PORTS;
    let script = format!("exec 3<>/dev/tcp/{}/{outside}; cat <&3", fabric::address(of.index));
    from.run(["timeout", "3", "bash", "-euc", &script])
}

#[test]
fn a_chained_portmap_carries_packets_from_the_nodes_port_to_the_pod() {
    reference::plugin("portmap").unwrap();
    Lab::of_nodes(2).test(|lab| {
        let [node, other] = &lab.nodes[..] else { panic!("two nodes") };
        fs::write(node.path(CHAIN), r#"[{"type":"portmap","capabilities":{"portMappings":true}}]"#)?;
        node.configure_server(&node.subnets)?;
        let file = node.path("/etc/openvswitch/ovn_k8s.conf");
        fs::write(&file, fs::read_to_string(&file)? + &format!("[cni]\nchain={CHAIN}\n"))?;
        node.start_server()?;
        managed::ready(node)?;
        let list: Value = serde_json::from_slice(&fs::read(node.cni_conf())?)?;
        ensure!(list["plugins"][1]["type"] == "portmap" && list["cniVersions"] == json!(["0.4.0", "1.0.0"]), "{list:#}");

        node.shell("sysctl -qw net.ipv4.ip_forward=1")?;
        let pod = lab.new_pod(node)?;
        cnitool(node, "add", &pod)?;
        let serve = format!(
            "use IO::Socket::INET; my $l = IO::Socket::INET->new(Listen => 5, LocalPort => {}, ReuseAddr => 1) \
             or die $!; \
             while (my $c = $l->accept) {{ print $c '{GREETING}'; close $c }}",
            PORTS.0
        );
        let mut server = node.pod_command(&pod, "perl").args(["-e", &serve]).stdin(Stdio::null()).spawn().context("perl")?;
        let talked = eventually("the port of the node leads to the pod", Duration::from_secs(15), || {
            let said = heard(other, node)?;
            ensure!(said == GREETING, "{said:?}");
            Ok(())
        });
        server.kill()?;
        server.wait()?;
        talked?;

        cnitool(node, "del", &pod)?;
        let left = node.run(["iptables", "-t", "nat", "-S"])?;
        ensure!(!left.contains(&PORTS.1.to_string()), "{left}");
        Ok(())
    });
}
