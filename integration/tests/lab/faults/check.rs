//! CHECK finds and names each kind of damage to a pod's network, and tolerates what chained plugins
//! add.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use integration::{
    CniError, Families, Lab, Node, Pod, Runtime, eventually,
    faults::{Case, Site, row},
};
use serde_json::{Value, json};

use crate::support::attached::{Attached, detach, manifest_with};

/// Where the damage is done.
#[derive(Clone, Copy)]
enum Place {
    Pod,
    /// `$LINK` is the pod's link and port on the node.
    Node,
}
use Place::{Node as OnNode, Pod as InPod};

/// A script that damages a pod's network, and what CHECK says of it.
struct Tampering {
    place: Place,
    script: &'static str,
    says: &'static [&'static str],
}

const fn tampering(place: Place, script: &'static str, says: &'static [&'static str]) -> Tampering {
    Tampering { place, script, says }
}

const OF_THE_PODS_END: &[Tampering] = &[
    tampering(InPod, "ip link set eth0 down", &["eth0 in the pod", "down"]),
    tampering(InPod, "ip link del eth0", &["eth0 in the pod", "missing"]),
    tampering(
        InPod,
        "ip link set eth0 down; ip link set eth0 name eth1; ip link set eth1 up",
        &["eth0 in the pod", "missing"],
    ),
    tampering(InPod, "ip addr del $V4 dev eth0", &["addresses of eth0", "$V4"]),
    tampering(InPod, "ip addr del $V6 dev eth0", &["addresses of eth0", "$V6"]),
    tampering(
        InPod,
        "ip addr del $V4 dev eth0; ip addr add ${V4%/*}/32 dev eth0",
        &["addresses of eth0", "$V4"],
    ),
    tampering(InPod, "ip route del default", &["routes of eth0", "0.0.0.0/0 via"]),
    tampering(InPod, "ip -6 route del default", &["routes of eth0", "::/0 via"]),
    tampering(InPod, "ip route del 10.244.0.0/16", &["routes of eth0", "10.244.0.0/16 via"]),
    tampering(
        InPod,
        "ip -6 route del fd00:10:244::/48",
        &["routes of eth0", "fd00:10:244::/48 via"],
    ),
    tampering(
        InPod,
        "ip route replace default via ${V4%.*}.77",
        &["routes of eth0", "0.0.0.0/0 via"],
    ),
    tampering(
        InPod,
        "ip link set eth0 address 0a:00:00:00:00:99",
        &["MAC address of eth0", "0a:00:00:00:00:99"],
    ),
    tampering(InPod, "ip link set eth0 mtu 1300", &["MTU of eth0", "1300", "1400"]),
];

const OF_THE_NODES_END: &[Tampering] = &[
    tampering(OnNode, "ip link set $LINK down", &["link $LINK on the host", "down"]),
    tampering(
        OnNode,
        "ovs-vsctl set Interface $LINK external_ids:iface-id=lab_other",
        &["iface-id of port $LINK", "lab_other"],
    ),
    tampering(
        OnNode,
        "ovs-vsctl set Interface $LINK external_ids:iface-id-ver=other",
        &["iface-id-ver of port $LINK", "other"],
    ),
    tampering(
        OnNode,
        "ovs-vsctl remove Interface $LINK external_ids iface-id-ver",
        &["iface-id-ver of port $LINK"],
    ),
    tampering(
        OnNode,
        "ovs-vsctl set Interface $LINK 'external_ids:attached_mac=\"0a:00:00:00:00:99\"'",
        &["attached_mac of port $LINK", "0a:00:00:00:00:99"],
    ),
    tampering(
        OnNode,
        "ovs-vsctl set Interface $LINK type=nonsense; \
         ovs-vsctl --timeout=10 wait-until Interface $LINK ofport=-1",
        &["port $LINK", "could not open network device"],
    ),
];

const OF_THE_LIMITS: &[Tampering] = &[
    tampering(OnNode, "ovs-vsctl clear Port $LINK qos", &["rate limit to the pod", "$LINK"]),
    tampering(
        OnNode,
        "ovs-vsctl set QoS $(ovs-vsctl get Port $LINK qos) other_config:max-rate=999",
        &["rate limit to the pod", "$LINK", "999"],
    ),
    tampering(
        OnNode,
        "ovs-vsctl set Interface $LINK ingress_policing_rate=1",
        &["from the pod", "$LINK", "1"],
    ),
    tampering(
        OnNode,
        "ovs-vsctl set Interface $LINK ingress_policing_rate=0",
        &["from the pod", "$LINK"],
    ),
];

impl Tampering {
    /// Runs the script on a pod of its own and compares the message of CHECK; the error says what
    /// is wrong with that message.
    fn is_found(&self, node: &Node, runtime: &Runtime<'_>, pod: &Pod) -> Result<()> {
        let result = runtime.add(pod)?.success()?;
        runtime.check(pod, &result)?.success().context("CHECK before anybody did anything")?;
        let values = [
            ("LINK", pod.host_interface()),
            ("V4", pod.addresses[0].to_string()),
            ("V6", pod.addresses[1].to_string()),
        ];
        let variables: String =
            values.iter().map(|(name, value)| format!("{name}={value}; ")).collect();
        let script = format!("{variables}{}", self.script);
        match self.place {
            InPod => node.run_in_pod(pod, ["sh", "-euc", &script])?,
            OnNode => node.shell(&script)?,
        };
        let error = runtime.check(pod, &result)?.failure();
        detach(node, pod)?;
        let error = error?;
        ensure!(error.code == 105, "code {}: {}", error.code, error.msg);
        for text in self.says {
            let text = values.iter().fold((*text).to_owned(), |text, (name, value)| {
                text.replace(&format!("${name}"), value)
            });
            ensure!(error.msg.contains(&text), "the message does not say {text:?}: {}", error.msg);
        }
        Ok(())
    }
}

/// Runs all of them, each on a pod of its own, which has rate limits, too.
fn all_are_found(site: &Site<'_>, tamperings: &[Tampering]) -> Result<()> {
    let node = site.node;
    let runtime = node.runtime().with("cniVersion", json!("1.1.0"));
    let mut missed = Vec::new();
    for tampering in tamperings {
        let pod = limited_pod(site)?;
        let before = node.census()?;
        let outcome = tampering
            .is_found(node, &runtime, &pod)
            .and_then(|()| before.must_equal(&node.census()?));
        missed.extend(outcome.err().map(|error| format!("`{}`: {error:#}", tampering.script)));
    }
    ensure!(
        missed.is_empty(),
        "{} of {} are missed:\n{}",
        missed.len(),
        tamperings.len(),
        missed.join("\n")
    );
    Ok(())
}

fn limited_pod(site: &Site<'_>) -> Result<Pod> {
    let pod = site.new_pod_without_annotation()?;
    let limits =
        [("kubernetes.io/ingress-bandwidth", "100M"), ("kubernetes.io/egress-bandwidth", "50M")];
    site.node.write_manifest_text(&pod, &manifest_with(&pod, &limits))?;
    Ok(pod)
}

fn attached(site: &Site<'_>) -> Result<Attached> {
    let pod = site.new_pod()?;
    let result = site.add(&pod)?.success()?;
    Ok(Attached { pod, result })
}

/// Some twenty pods come and go, one after the other: so the row gets a minute.
fn row_58() -> Case {
    row(58).in_lab(Lab::of_nodes(1).families(Families::Dual)).within(Duration::from_secs(60))
}

#[test]
fn row_58_a_port_that_is_gone_is_found() {
    row_58().test(|site| {
        let (node, pod) = (site.node, limited_pod(site)?);
        let runtime = node.runtime().with("cniVersion", json!("1.1.0"));
        let result = runtime.add(&pod)?.success()?;
        // A running server would put the port back.
        node.server.stop()?;
        node.vsctl(["del-port", "br-int", &pod.host_interface()])?;
        let error = runtime.check(&pod, &result)?.failure()?;
        ensure!(error.code == 105 && error.msg.contains("ports of interface eth0"), "{error:?}");
        detach(node, &pod)?;
        node.start_server()
    });
}

#[test]
fn row_58_whatever_is_done_to_the_pods_end_is_found() {
    row_58().test(|site| all_are_found(site, OF_THE_PODS_END));
}

#[test]
fn row_58_whatever_is_done_to_the_nodes_end_is_found() {
    row_58().test(|site| all_are_found(site, OF_THE_NODES_END));
}

#[test]
fn row_58_whatever_is_done_to_the_rate_limits_is_found() {
    row_58().test(|site| all_are_found(site, OF_THE_LIMITS));
}

/// Without the server, which would put the port back.
#[test]
fn row_58_a_port_that_is_deleted_is_found() {
    row(58).test(|site| {
        let (node, one) = (site.node, attached(site)?);
        node.server.kill()?;
        node.vsctl(["del-port", "br-int", &one.pod.host_interface()])?;
        let error = node.runtime().check(&one.pod, &one.result)?.failure()?;
        ensure!(
            error.code == 105 && error.msg.contains("port") && error.msg.contains("eth0"),
            "{error:?}"
        );
        node.start_server()
    });
}

#[test]
fn row_58_a_port_that_ovn_has_taken_its_flows_from_is_found() {
    row(58).test(|site| {
        let (node, one) = (site.node, attached(site)?);
        site.lab.remove_ports(std::slice::from_ref(&one.pod))?;
        let link = one.pod.host_interface();
        eventually("ovn-controller takes ovn-installed away", Duration::from_secs(10), || {
            let installed = node.vsctl([
                "--if-exists",
                "get",
                "Interface",
                &link,
                "external_ids:ovn-installed",
            ])?;
            ensure!(installed.trim().is_empty(), "it is {installed}");
            Ok(())
        })?;
        let error = node.runtime().check(&one.pod, &one.result)?.failure()?;
        ensure!(
            error.code == 105 && error.msg.contains(&format!("ovn-installed of port {link}")),
            "{error:?}"
        );
        Ok(())
    });
}

/// Results of these versions do not contain the MTU; CHECK finds the difference all the same.
#[test]
fn row_58_another_mtu_is_found_in_versions_whose_result_does_not_say_it() {
    row(58).test(|site| {
        let (node, one) = (site.node, attached(site)?);
        node.run_in_pod(&one.pod, ["ip", "link", "set", "eth0", "mtu", "1300"])?;
        let CniError { code, msg, .. } = node
            .runtime()
            .with("cniVersion", json!("0.4.0"))
            .check(&one.pod, &one.result)?
            .failure()?;
        ensure!(code == 105 && msg.contains("MTU of eth0"), "{code}: {msg}");
        Ok(())
    });
}

#[test]
fn row_58_what_chained_plugins_add_is_tolerated_and_so_is_a_server_that_is_down() {
    row_58().test(|site| {
        let (node, one) = (site.node, attached(site)?);
        let script = "ip addr add 192.0.2.7/32 dev eth0; ip -6 addr add 2001:db8::7/128 dev eth0 nodad
            ip route add 198.51.100.0/24 dev eth0; ip route add 203.0.113.0/24 via 10.244.1.1
            ip link add extra0 type veth peer name extra1; ip link set extra0 up; ip link set extra1 up; \
            ip addr add 192.0.2.99/32 dev extra0
            ip route add blackhole 198.18.0.0/15; ip addr add 127.0.0.2/8 dev lo; ip link set lo up";
        node.run_in_pod(&one.pod, ["sh", "-euc", script])?;
        node.shell("ovs-vsctl set Interface br-int external_ids:note=mine; ip link add extra0 type veth peer name extra1")?;
        let mut result = one.result.clone();
        append(&mut result["interfaces"], json!({"name": "extra0", "sandbox": one.pod.netns}));
        append(&mut result["ips"], json!({"address": "192.0.2.99/32", "interface": 2}));
        append(&mut result["routes"], json!({"dst": "198.18.0.0/15"}));

        node.runtime().check(&one.pod, &result)?.success().context("with the additions")?;
        node.server.stop()?;
        node.runtime().check(&one.pod, &result)?.success().context("without the server")?;
        node.start_server()?;
        node.shell("ovs-vsctl remove Interface br-int external_ids note; ip link del extra0").map(drop)
    });
}

fn append(list: &mut Value, item: Value) {
    if let Value::Array(items) = list {
        items.push(item);
    }
}

#[test]
fn row_58_a_check_that_has_nothing_to_compare_says_so() {
    row(58).test(|site| {
        let (node, one) = (site.node, attached(site)?);
        let check = |result: &Value| node.runtime().check(&one.pod, result)?.failure();
        let error = check(&Value::Null)?;
        ensure!(error.code == 7 && error.msg.contains("prevResult"), "{error:?}");
        let error = check(&json!({"cniVersion": "1.0.0", "ips": "none"}))?;
        ensure!(error.code == 6 && error.msg.contains("prevResult"), "{error:?}");

        let mut gone = one.pod.clone();
        gone.netns = "/var/run/netns/gone".into();
        let error = node.runtime().check(&gone, &one.result)?.failure()?;
        ensure!(error.code == 8 && error.msg.contains("/var/run/netns/gone"), "{error:?}");
        Ok(())
    });
}

/// CHECK compares with what ADD did, not with what an ADD would do now.
#[test]
fn row_58_options_and_annotations_that_changed_after_add_are_no_difference() {
    row_58().test(|site| {
        let node = site.node;
        let (limited, plain) = (limited_pod(site)?, attached(site)?);
        let result = node.runtime().add(&limited)?.success()?;
        let usual = ["--init-node", &node.name, "--pod-manifests", integration::node::MANIFESTS]
            .map(str::to_owned);
        node.server.stop()?;
        node.server.set_arguments(usual.iter().cloned().chain(["--mtu=1300".to_owned()]));
        node.start_server()?;
        let limits =
            [("kubernetes.io/ingress-bandwidth", "1M"), ("kubernetes.io/egress-bandwidth", "2M")];
        node.write_manifest_text(&limited, &manifest_with(&limited, &limits))?;
        node.write_manifest_text(&plain.pod, &manifest_with(&plain.pod, &limits))?;
        // Manifests are read in order: once the ADD of a later one is answered, the server has seen
        // both.
        site.attached_pod()?;
        // The results of both versions lack the MTU.
        for version in ["0.4.0", "1.0.0"] {
            let runtime = node.runtime().with("cniVersion", json!(version));
            runtime.check(&limited, &result)?.success().context("limits and MTU")?;
            runtime
                .check(&plain.pod, &plain.result)?
                .success()
                .context("limits of a pod that had none")?;
        }
        node.vsctl(["set", "Interface", &limited.host_interface(), "ingress_policing_rate=1"])?;
        let error = node.runtime().check(&limited, &result)?.failure()?;
        ensure!(error.code == 105 && error.msg.contains("rate limit"), "{error:?}");
        detach(node, &limited)?;
        node.server.stop()?;
        node.server.set_arguments(usual);
        node.start_server()
    });
}
