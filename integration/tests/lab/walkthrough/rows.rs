//! A master, two nodes, a gateway: their rows, and what is refused.

use std::fs;

use anyhow::{Result, ensure};
use integration::{Lab, Node, eventually, fabric};

use crate::walkthrough::{
    MASTER_INIT, SOON, gateway_init, minion_init, nbctl, northbound, prepare, refuse, succeed,
};

/// What the kernel and Open vSwitch of the node have of it.
fn local(node: &Node) -> Result<String> {
    node.shell(
        "ip -o -4 address show; ip -4 route show; ls -l --time-style=+ /opt/cni/bin; cat /etc/cni/net.d/* || true; \
         ovs-vsctl --format=csv --columns=_uuid,name,type,options,mac,mtu_request list Interface | sort; \
         ovs-vsctl get Open_vSwitch . next_cfg",
    )
}

#[test]
fn the_walk_through_makes_a_network_of_three_nodes_and_again_changes_nothing() {
    Lab::of_nodes(3).empty().test(|lab| {
        prepare(lab)?;
        let [master, first, second] = &lab.nodes[..] else { unreachable!("three nodes") };
        let lines = [MASTER_INIT.to_owned(), minion_init(1), minion_init(2)];
        for (node, line) in lab.nodes.iter().zip(&lines) {
            succeed(node, line)?;
        }
        let gateway = gateway_init(&fabric::address(1));
        succeed(master, &gateway)?;

        // What the document shows, by `ovn-nbctl show`.
        let show = nbctl("show")?;
        for text in [
            "(kube-master)", "(kube-node1)", "(join)", "port k8s-kube-master", "192.168.1.2\"",
            "port stor-kube-master", "router-port: rtos-kube-master", "port jtor-kube-master",
            "port rtoj-kube-master", "networks: [\"100.64.1.1/24\"]", "networks: [\"192.168.2.1/24\"]",
            "(GR_kube-master)", "networks: [\"100.64.1.2/24\"]", "(ext_kube-master)",
            "port breth0_kube-master", "port etor-GR_kube-master",
        ] {
            ensure!(show.contains(text), "{text:?} is not in:\n{show}");
        }
        for (question, answer) in [
            ("get Logical_Switch kube-node1 external_ids:gateway_ip", "192.168.2.1/24"),
            ("get Logical_Switch kube-node1 other_config:subnet", "192.168.2.0/24"),
            ("get Logical_Router kube-master external_ids:k8s-cluster-router", "yes"),
            ("get Logical_Router GR_kube-master external_ids:first_gateway", "yes"),
            ("get Logical_Router GR_kube-master options:chassis", &master.name),
            ("get Logical_Router GR_kube-master options:lb_force_snat_ip", "100.64.1.2"),
            ("--bare --columns=protocol find Load_Balancer external_ids:k8s-cluster-lb-udp=yes", "udp"),
            ("--bare --columns=logical_ip find NAT type=snat", "192.168.0.0/16"),
            ("--bare --columns=nexthop find Logical_Router_Static_Route ip_prefix=192.168.0.0/16", "100.64.1.1"),
        ] {
            let said = nbctl(question)?;
            ensure!(said == answer, "{question}: {said:?}");
        }
        let balancers = nbctl("--bare --columns=load_balancer find Logical_Switch name=kube-node1")?;
        ensure!(balancers.split_whitespace().count() == 2, "{balancers}");
        let conf = fs::read_to_string(first.path("/etc/cni/net.d/10-net.conf"))?;
        ensure!(conf.contains("\"type\":\"ovn_cni\"") && conf.contains("192.168.2.0/24"), "{conf}");
        ensure!(!second.path("/etc/cni/net.d/10-net.conf.new").exists(), "a part of a file is left");
        first.shell("echo '{\"cniVersion\":\"0.1.0\"}' | CNI_COMMAND=VERSION /opt/cni/bin/ovn_cni")?;

        // Nodes reach each other over the overlay, and the cluster's router.
        for (node, address) in [(first, "192.168.3.2"), (second, "192.168.1.2"), (master, "192.168.2.1")] {
            eventually("the other node's address answers", SOON, || {
                node.run(["ping", "-n", "-c", "1", "-W", "1", address]).map(drop)
            })?;
        }

        let before: Vec<String> = lab.nodes.iter().map(local).collect::<Result<_>>()?;
        let rows = northbound()?;
        for (node, line) in lab.nodes.iter().zip(&lines) {
            succeed(node, line)?;
        }
        succeed(master, &gateway)?;
        ensure!(northbound()? == rows, "before:\n{rows}\nafter:\n{}", northbound()?);
        for (node, before) in lab.nodes.iter().zip(before) {
            let now = local(node)?;
            ensure!(now == before, "{}: before:\n{before}\nafter:\n{now}", node.name);
        }
        Ok(())
    });
}

#[test]
fn what_cannot_be_done_is_said_in_one_sentence_and_nothing_is_half_written() {
    Lab::of_nodes(2).empty().test(|lab| {
        prepare(lab)?;
        let [master, node] = &lab.nodes[..] else { unreachable!("two nodes") };
        refuse(node, &minion_init(1), 1, "K8S_CLUSTER_ROUTER not set")?;
        refuse(master, &gateway_init(&fabric::address(1)), 1, "K8S_CLUSTER_ROUTER not set")?;
        refuse(
            master,
            &MASTER_INIT.replace("192.168.1.0/24", "10.1.1.0/24"),
            1,
            "not in the cluster's subnet",
        )?;
        refuse(master, &MASTER_INIT.replace("1.0/24", "1.0/30"), 1, "has no room")?;
        refuse(master, &MASTER_INIT.replace("192.168.0.0/16", "fd00::/48"), 2, "IPv4 only")?;
        refuse(master, &MASTER_INIT.replace("kube-master", ""), 2, "--node-name has no value")?;
        refuse(master, "ovn-k8s-overlay master-init", 2, "--cluster-ip-subnet")?;
        refuse(master, &format!("{MASTER_INIT} --node-name=b"), 2, "multiple times")?;

        // Without the database's address, or without the database.
        let set = |value: &str| node.vsctl(["set", "Open_vSwitch", ".", value]).map(drop);
        node.vsctl(["remove", "Open_vSwitch", ".", "external_ids", "ovn-nb"])?;
        refuse(node, &minion_init(1), 1, "OVN central database's ip address not set")?;
        set("external_ids:ovn-nb=\"tcp:172.30.0.1:6643\"")?;
        refuse(node, &minion_init(1), 1, "northbound database tcp:172.30.0.1:6643")?;
        set("external_ids:ovn-nb=\"tcp:172.30.0.1:6641\"")?;

        succeed(master, MASTER_INIT)?;
        refuse(
            node,
            &minion_init(1).replace("192.168.2.0", "192.168.1.0"),
            1,
            "of logical switch kube-master",
        )?;
        refuse(
            node,
            &minion_init(1).replace("minion-init", "minion-init --db=unix:/none"),
            1,
            "cannot be reached",
        )?;
        succeed(node, &minion_init(1))?;
        refuse(
            node,
            &minion_init(1).replace("192.168.2.0", "192.168.7.0"),
            1,
            "has the subnet 192.168.2.0/24 already",
        )?;

        let gateway = gateway_init(&fabric::address(1));
        refuse(master, &gateway.replace("breth0", "breth7"), 1, "no bridge \"breth7\"")?;
        refuse(master, &gateway.replace("--bridge-interface breth0", ""), 1, "give one of")?;
        refuse(
            master,
            &gateway.replace("--bridge", "--physical-interface eth0 --bridge"),
            1,
            "give one of",
        )?;
        refuse(
            master,
            &gateway.replace("172.30.0.1\"", "10.9.9.9\""),
            1,
            "next hop 10.9.9.9 is not in",
        )?;
        refuse(
            master,
            &gateway.replace(&format!("{}/24", fabric::address(1)), "172.30.0.0/24"),
            2,
            "is a network",
        )?;
        succeed(master, &gateway)?;
        // A second gateway: another address of the same one, and the same address on another node.
        refuse(master, &gateway_init("172.30.0.77"), 1, "has the address 172.30.0.11/24 already")?;
        let other = gateway.replace("kube-master", "kube-node1");
        refuse(node, &other, 1, "is the address of gateway router GR_kube-master already")?;
        let other = other.replace(&fabric::address(1), &fabric::address(2));
        succeed(node, &other)?;
        let first = nbctl("get Logical_Router GR_kube-node1 external_ids:first_gateway")?;
        ensure!(first == "no", "{first}");
        Ok(())
    });
}
