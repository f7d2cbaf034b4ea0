//! Tracked connections in the node's kernel: DEL flushes those with the pod's addresses, and no others.

#[path = "support/attached.rs"]
mod attached;

use anyhow::{Context as _, Result, ensure};
use integration::{Families, Lab, Node};

use attached::{attach, detach};

/// All tracked connections of both families.
fn tracked(node: &Node) -> Result<String> {
    node.run(["conntrack", "-L"])
}

#[test]
fn connections_of_a_pod_are_forgotten_with_it_and_no_others() {
    Lab::of_nodes(1).families(Families::Dual).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let [pod, other] = [lab.new_pod(node)?, lab.new_pod(node)?];
        attach(node, pod.clone())?;
        attach(node, other.clone())?;
        let [v4, v6] = [pod.addresses[0].addr(), pod.addresses[1].addr()];
        let neighbour = other.address();
        node.track(&format!("-s {v4} -d 10.96.0.1"))?;
        node.track(&format!("-s 192.0.2.1 -d {v4} --zone 7"))?;
        node.track(&format!("-s {v6} -d fd00:96::1"))?;
        // A connection to a service, whose packets go to the pod: only the reply direction has the pod's
        // address.
        node.track(&format!(
            "-s 192.0.2.1 -d 10.96.0.10 -r {v4} -q 192.0.2.1 --reply-port-src 8443 --reply-port-dst 40000"
        ))?;
        node.track(&format!("-s {neighbour} -d 10.96.0.1"))?;
        node.track("-s 192.0.2.1 -d 10.96.0.20")?;
        let before = tracked(node)?;
        ensure!(before.lines().count() == 6, "six were made:\n{before}");

        detach(node, &pod)?;

        let after = tracked(node)?;
        let names_the_pod = |line: &&str| {
            line.split([' ', '=']).any(|word| [v4, v6].iter().any(|address| word == address.to_string()))
        };
        let left: Vec<&str> = after.lines().filter(names_the_pod).collect();
        ensure!(left.is_empty(), "still tracked: {left:#?}");
        ensure!(
            after.lines().count() == 2,
            "connections of others are gone; there were\n{before}now there are\n{after}"
        );
        detach(node, &other)
    });
}

/// As many as a node of a busy cluster tracks. A fresh machine has a limit of 262,144, which only the host's
/// own namespace can change.
const MANY: usize = 250_000;

#[test]
fn of_a_quarter_of_a_million_connections_the_kernel_lists_those_of_the_pod() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let [pod, other] = [lab.new_pod(node)?, lab.new_pod(node)?];
        attach(node, pod.clone())?;
        attach(node, other.clone())?;
        let (address, neighbour) = (pod.address(), other.address());
        let line = |number: usize| {
            let (high, low, port) = (number >> 16, number & 0xffff, 1024 + number % 60_000);
            let (third, fourth) = (low >> 8, low & 0xff);
            format!(
                "-I -p tcp --state ESTABLISHED -t 600 -s {neighbour} -d 172.{}.{third}.{fourth} \
                 --sport {port} --dport 443\n",
                16 + high
            )
        };
        std::fs::write(node.path("/run/connections"), (0..MANY).map(line).collect::<String>())?;
        node.run(["conntrack", "-R", "/run/connections"])?;
        let ends = [format!("-s {address} -d 10.96.0.1"), format!("-s 192.0.2.1 -d {address}")];
        ends.iter().try_for_each(|ends| node.track(ends))?;
        let count = || Ok::<usize, anyhow::Error>(node.run(["conntrack", "-C"])?.trim().parse()?);
        let before = count()?;
        ensure!(before == MANY + ends.len(), "{before} are tracked");

        let outcome = node.runtime().with("logLevel", "dbg".into()).del(&pod)?;
        outcome.success()?;
        let left = count()?;
        ensure!(left == MANY, "{left} are left");
        let log = node.shell("cat /var/log/openvswitch/ovn-k8s-cni-overlay.log")?;
        let said = log
            .lines()
            .find(|line| line.contains("flushed tracked connections"))
            .context("nothing was flushed")?;
        ensure!(
            said.contains("connections=2") && said.contains("listed=2"),
            "the kernel has listed more than was wanted: {said}"
        );
        node.run(["conntrack", "-F"])?;
        detach(node, &other)
    });
}
