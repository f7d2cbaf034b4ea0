//! The management port, over which a node and pods reach each other.

use anyhow::{Context as _, ensure};
use integration::{Datapath, Families, Lab, eventually, executable, traffic::End};

use crate::support::attached::attach;
use crate::support::managed;
use crate::support::managed::addresses;

const MIB: u64 = 1 << 20;

#[test]
fn a_node_and_the_pods_of_every_node_reach_each_other_in_both_families() {
    Lab::of_nodes(2).families(Families::Dual).test(|lab| {
        let [here, there] = &lab.nodes[..] else { panic!("two nodes") };
        managed::start(here)?;
        managed::start(there)?;
        for of in [here, there] {
            let pod = attach(of, lab.new_pod(of)?)?.pod;
            for address in &pod.addresses {
                lab.ping_from_node(here, address.addr())?;
                lab.tcp_between(&End::Node(here), &End::Pod(&pod), address.addr(), MIB)?;
            }
            for address in addresses(here) {
                lab.ping(&pod, address)?;
                lab.tcp_between(&End::Pod(&pod), &End::Node(here), address, MIB)?;
            }
        }
        Ok(())
    });
}

/// A socket may be bound to any address of the host: the answer comes back through the management
/// port all the same.
#[test]
fn what_the_host_sends_from_another_address_of_its_own_is_answered() {
    Lab::of_nodes(1).families(Families::Dual).test(|lab| {
        let node = &lab.nodes[0];
        managed::start(node)?;
        let pod = attach(node, lab.new_pod(node)?)?.pod;
        node.shell("ip addr add 198.51.100.7/32 dev lo && ip addr add 2001:db8::7/128 nodad dev lo && ip link set lo up")?;
        for (source, address) in ["198.51.100.7", "2001:db8::7"].into_iter().zip(&pod.addresses) {
            let ping = || node.run(["ping", "-n", "-c", "1", "-W", "0.5", "-I", source, &address.addr().to_string()]).map(drop);
            eventually(&format!("{source} reaches the pod"), managed::SOON, ping)?;
        }
        Ok(())
    });
}

/// The settings, the management port and the ports of pods are followed over one connection.
#[test]
fn the_server_has_one_connection_to_open_vswitchs_database() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        managed::start(node)?;
        // Of ovs-vswitchd, ovn-controller and the server. Others connect for a moment.
        eventually("three sessions of the database", managed::SOON, || {
            let usage = node.run(["ovs-appctl", "--target=ovsdb-server", "memory/show"])?;
            let sessions = usage.split_whitespace().find_map(|word| word.strip_prefix("sessions:"));
            ensure!(sessions.context("no number of sessions")? == "3", "{usage}");
            Ok(())
        })
    });
}

/// Damage is repaired within a moment, and the repair is logged.
#[test]
fn whatever_is_taken_from_the_port_is_put_back() {
    Lab::of_nodes(1).families(Families::Dual).test(|lab| {
        let node = &lab.nodes[0];
        managed::start(node)?;
        let pod = attach(node, lab.new_pod(node)?)?.pod;
        let before = managed::state(node)?;
        for damage in [
            "ip link set ovn-k8s-mp0 down",
            "ip addr del 10.244.1.2/24 dev ovn-k8s-mp0",
            "ip addr add 192.0.2.77/24 dev ovn-k8s-mp0",
            "ip addr flush dev ovn-k8s-mp0 scope global",
            "ip route del 10.244.0.0/16",
            "ip route replace 10.244.0.0/16 via 10.244.1.9 dev ovn-k8s-mp0",
            "ip route replace 10.244.0.0/16 dev ovn-k8s-mp0",
            "ip -6 route del fd00:10:244::/48",
            "ip neigh del 10.244.1.1 dev ovn-k8s-mp0",
            "ip neigh replace 10.244.1.1 lladdr 02:00:00:00:00:01 nud permanent dev ovn-k8s-mp0",
            "echo 0 > /proc/sys/net/ipv4/conf/ovn-k8s-mp0/forwarding",
            "ovs-vsctl del-port ovn-k8s-mp0",
            "ovs-vsctl remove Interface ovn-k8s-mp0 external_ids iface-id",
            "ovs-vsctl set Interface ovn-k8s-mp0 mac=[]",
            "ovs-vsctl add-port br-int k8s-node1 -- set Interface k8s-node1 type=internal",
        ] {
            let said = node.server_log()?.len();
            node.shell(damage)?;
            managed::repaired(node, &before, damage)?;
            eventually(&format!("{damage}: the repair is said"), managed::SOON, || {
                let log = node.server_log()?;
                ensure!(log[said..].contains("repaired the management port"), "{log}");
                Ok(())
            })?;
        }
        // ovs-vswitchd repairs these, too, and may be faster: then the server has nothing to log.
        for damage in [
            "ip link set ovn-k8s-mp0 mtu 1280",
            "ip link set ovn-k8s-mp0 address 02:00:00:00:00:02",
        ] {
            node.shell(damage)?;
            managed::repaired(node, &before, damage)?;
        }
        for address in &pod.addresses {
            lab.ping_from_node(node, address.addr())?;
        }
        Ok(())
    });
}

#[test]
fn a_switch_that_starts_again_or_a_bridge_that_is_made_again_gets_its_port_back() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        managed::start(node)?;
        let before = managed::state(node)?;
        node.vswitchd.kill()?;
        node.start_vswitchd()?;
        managed::repaired(node, &before, "ovs-vswitchd starts again")?;
        node.vsctl(["del-br", "br-int"])?;
        node.vsctl([
            "--may-exist",
            "add-br",
            "br-int",
            "--",
            "set",
            "Bridge",
            "br-int",
            &Datapath::of_lab().column(),
            "fail_mode=secure",
        ])?;
        managed::repaired(node, &before, "br-int is made again")?;
        let pod = attach(node, lab.new_pod(node)?)?.pod;
        lab.ping_from_node(node, pod.address())
    });
}

#[test]
fn a_restart_changes_nothing_and_pods_are_reached_meanwhile() {
    Lab::of_nodes(1).families(Families::Dual).test(|lab| {
        let node = &lab.nodes[0];
        managed::start(node)?;
        let pod = attach(node, lab.new_pod(node)?)?.pod;
        lab.ping_from_node(node, pod.address())?;
        let before = managed::state(node)?;
        node.server.kill()?;
        node.run(["ping", "-n", "-c", "1", "-W", "1", &pod.address().to_string()])?;
        let said = node.server_log()?.len();
        node.start_server()?;
        eventually("the server is ready again", managed::SOON, || {
            ensure!(node.server_log()?[said..].contains("|ready "), "{}", node.server_log()?);
            Ok(())
        })?;
        let log = node.server_log()?[said..].to_owned();
        ensure!(
            !log.contains("set up the management port")
                && !log.contains("repaired the management port"),
            "{log}"
        );
        let after = managed::state(node)?;
        ensure!(after == before, "{before}\nis now\n{after}");
        Ok(())
    });
}

#[test]
fn another_subnet_moves_the_port() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        managed::start(node)?;
        node.server.stop()?;
        node.configure_server(&["10.244.77.0/24".parse()?])?;
        node.start_server()?;
        eventually("the port has moved", managed::SOON, || {
            let state = managed::state(node)?;
            ensure!(
                state.contains("10.244.77.2/24")
                    && state.contains("via 10.244.77.1")
                    && !state.contains("10.244.1."),
                "{state}"
            );
            Ok(())
        })?;
        ensure!(
            node.vsctl(["get", "Interface", "ovn-k8s-mp0", "mac"])?.contains("0a:58:0a:f4:4d:02")
        );
        Ok(())
    });
}

/// The start order is free: the port is made as soon as there is a bridge for it.
#[test]
fn a_server_that_starts_before_the_switch_waits_for_it() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.ovn_controller.stop()?;
        node.vswitchd.stop()?;
        node.vsctl(["--no-wait", "del-br", "br-int"])?;
        node.configure_server(&node.subnets)?;
        node.start_server()?;
        eventually("the server waits for the bridge", managed::SOON, || {
            ensure!(
                node.server_log()?.contains("ovn-controller has not made br-int yet"),
                "{}",
                node.server_log()?
            );
            Ok(())
        })?;
        node.vsctl([
            "--no-wait",
            "add-br",
            "br-int",
            "--",
            "set",
            "Bridge",
            "br-int",
            &Datapath::of_lab().column(),
            "fail_mode=secure",
        ])?;
        node.start_vswitchd()?;
        node.start_ovn_controller()?;
        managed::ready(node)?;
        let pod = attach(node, lab.new_pod(node)?)?.pod;
        lab.ping_from_node(node, pod.address())
    });
}

#[test]
fn a_node_that_is_cleaned_up_has_nothing_left_of_it() {
    Lab::of_nodes(1).families(Families::Dual).test(|lab| {
        let node = &lab.nodes[0];
        let before = node.census()?;
        managed::start(node)?;
        node.server.stop()?;
        let ovnkube = executable::under_test(executable::SERVER)?;
        let clean = || node.run([ovnkube.as_os_str(), "--cleanup-node".as_ref(), "node1".as_ref()]);
        let said = clean()?;
        for line in [
            "removed the management port ovn-k8s-mp0",
            "removed the nftables table inet ovn-kubernetes",
        ] {
            ensure!(said.contains(line), "{said}");
        }
        eventually("the interface is gone", managed::SOON, || {
            ensure!(!node.shell("ip link")?.contains(managed::INTERFACE));
            Ok(())
        })?;
        before.must_equal(&node.census()?)?;
        let said = clean()?;
        ensure!(
            said.contains("there is no management port")
                && said.contains("there is no nftables table"),
            "{said}"
        );
        Ok(())
    });
}

/// In a container `/proc/sys` is readable but not writable.
#[test]
fn the_ports_settings_are_made_where_proc_sys_is_read_only() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.shell(
            "echo 1 >/proc/sys/net/ipv6/conf/default/accept_ra && mount --bind /proc/sys /proc/sys \
             && mount -o remount,ro,bind /proc/sys && ! echo 0 2>/dev/null >/proc/sys/net/ipv4/ip_forward",
        )?;
        managed::start(node)?;
        let settings = node.shell("cat /proc/sys/net/ipv4/conf/ovn-k8s-mp0/forwarding /proc/sys/net/ipv4/conf/ovn-k8s-mp0/rp_filter")?;
        ensure!(settings == "1\n2\n", "{settings}");
        let log = node.server_log()?;
        let said = log.matches("this environment does not allow a setting of the management port").count();
        ensure!(said == 1 && log.contains("net.ipv6.conf.ovn-k8s-mp0.accept_ra=0: Read-only file system"), "{log}");
        // What the rule does is tested in `server`.
        let rules = node.shell("nft list chain inet ovn-kubernetes mgmtport-no-router")?;
        ensure!(rules.contains("iifname \"ovn-k8s-mp0\"") && rules.contains("nd-router-advert drop"), "{rules}");
        Ok(())
    });
}

/// A pod cannot announce routers to the host.
#[test]
fn the_port_believes_no_router_advertisements() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.shell("echo 1 > /proc/sys/net/ipv6/conf/default/accept_ra")?;
        managed::start(node)?;
        let accepted = node.shell("cat /proc/sys/net/ipv6/conf/ovn-k8s-mp0/accept_ra")?;
        ensure!(accepted == "0\n", "{accepted}");
        Ok(())
    });
}
