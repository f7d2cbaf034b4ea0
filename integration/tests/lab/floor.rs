//! The floor of all other tests: the lab works without the plugin and the server, with pods
//! attached by `ip` and `ovs-vsctl`.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use integration::{Families, Lab, Pod, Versions, by_hand, eventually, executable, inside};

/// A pod that is attached by hand to node `index`.
fn attached(lab: &Lab, index: usize) -> Result<Pod> {
    let pod = lab.new_pod(&lab.nodes[index])?;
    by_hand::attach(&lab.nodes[index], &pod)?;
    Ok(pod)
}

#[test]
fn pods_of_one_node_reach_each_other() {
    Lab::of_nodes(1).test(|lab| {
        let (first, second) = (attached(lab, 0)?, attached(lab, 0)?);
        lab.ping(&first, second.address())?;
        lab.tcp(&first, &second, 1 << 20)
    });
}

#[test]
fn pods_of_two_nodes_reach_each_other_through_geneve_in_both_families() {
    Lab::of_nodes(2).families(Families::Dual).test(|lab| {
        let (here, there) = (attached(lab, 0)?, attached(lab, 1)?);
        for address in &there.addresses {
            lab.ping(&here, address.addr())?;
            lab.tcp_to(&here, &there, address.addr(), 1 << 20)?;
        }
        let echoes = lab.udp(&there, &here, 50, 1200)?;
        ensure!(echoes.received == echoes.sent, "{echoes:?}");
        Ok(())
    });
}

#[test]
fn the_daemons_are_those_that_path_finds() {
    Lab::of_nodes(1).test(|lab| {
        let (installed, running) = (Versions::installed()?, lab.nodes[0].versions()?);
        ensure!(installed == running, "{installed} in PATH, but {running} running");
        Ok(())
    });
}

#[test]
fn the_largest_packet_of_a_pod_fits_through_the_tunnel() {
    Lab::of_nodes(2).test(|lab| {
        let (here, there) = (attached(lab, 0)?, attached(lab, 1)?);
        lab.ping(&here, there.address())?;
        lab.ping_size(&here, there.address(), 1400 - 28)?;
        ensure!(
            lab.ping_size(&here, there.address(), 1400 - 27).is_err(),
            "a packet larger than the MTU went through"
        );
        Ok(())
    });
}

#[test]
fn ping_notices_a_pod_that_has_no_logical_port() {
    Lab::of_nodes(1).test(|lab| {
        let (first, second) = (attached(lab, 0)?, attached(lab, 0)?);
        lab.ping(&first, second.address())?;
        lab.remove_ports(std::slice::from_ref(&second))?;
        lab.central.sync()?;
        lab.cannot_ping(&first, second.address())
    });
}

#[test]
fn a_flow_notices_that_the_switch_was_away() {
    Lab::of_nodes(1).test(|lab| {
        let (first, second) = (attached(lab, 0)?, attached(lab, 0)?);
        lab.ping(&first, second.address())?;
        let node = &lab.nodes[0];

        let undisturbed = lab.flow(&first, &second)?;
        node.shell("sleep 0.5")?;
        let undisturbed = undisturbed.stop()?;
        ensure!(
            undisturbed.sent > 20 && undisturbed.received == undisturbed.sent,
            "{undisturbed:?}"
        );

        let disturbed = lab.flow(&first, &second)?;
        node.vswitchd.kill()?;
        node.shell("sleep 0.3")?;
        node.start_vswitchd()?;
        let disturbed = disturbed.stop()?;
        ensure!(disturbed.received < disturbed.sent, "{disturbed:?}");
        lab.ping(&first, second.address())
    });
}

/// Open vSwitch before 3.1.3 aborts sooner or later where it is: `Node::start_vswitchd` says more.
#[test]
fn no_connection_is_committed_with_all_zero_snat_where_that_ends_the_switch() {
    Lab::of_nodes(1).test(|lab| {
        let pod = attached(lab, 0)?;
        let node = &lab.nodes[0];
        let related = format!("ip4.src == {}", pod.address());
        lab.central.nbctl([
            "acl-add",
            &node.name,
            "from-lport",
            "1001",
            &related,
            "allow-related",
        ])?;
        let commits = || {
            let flows = node.run(["ovs-ofctl", "-O", "OpenFlow15", "dump-flows", "br-int"])?;
            ensure!(flows.contains("ct(commit"), "no connection is committed");
            Ok(flows)
        };
        let fixed = node.switch_version()? >= [3, 1, 3];
        for start in ["first", "second"] {
            let flows = eventually(
                &format!("flows of the {start} start"),
                Duration::from_secs(10),
                commits,
            )?;
            ensure!(flows.contains("nat(src)") == fixed, "{start} start: {fixed}");
            node.vswitchd.kill()?;
            node.start_vswitchd()?;
        }
        Ok(())
    });
}

#[test]
fn the_census_is_the_same_after_a_pod_has_come_and_gone_and_shows_it_in_between() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        let pod = lab.new_pod(node)?;
        let before = node.census()?;
        by_hand::attach(node, &pod)?;
        let during = node.census()?;
        ensure!(
            during.lines_with(&pod.host_interface()).len() >= 3,
            "link, port and interface are missing in\n{during}"
        );
        let difference = before.must_equal(&during).unwrap_err().to_string();
        ensure!(difference.contains(&format!("+ link {}", pod.host_interface())), "{difference}");
        by_hand::detach(node, &pod)?;
        before.must_equal(&node.census()?)
    });
}

#[test]
fn a_node_finds_every_default_path_and_the_host_keeps_its_own() {
    inside(|| {
        let began = Instant::now();
        let lab = Lab::of_nodes(2).build()?;
        println!("two nodes in {:?}", began.elapsed());
        let [first, second] = &lab.nodes[..] else { panic!("two nodes") };
        first.shell(
            "touch /etc/cni/net.d/mine /opt/cni/bin/mine /var/lib/cni/mine /var/log/openvswitch/mine",
        )?;
        second.shell("for dir in /etc/cni/net.d /opt/cni/bin /var/lib/cni /var/log/openvswitch; do test ! -e $dir/mine; done")?;
        ensure!(
            first.vsctl(["get", "Open_vSwitch", ".", "external_ids:system-id"])?.trim() == "node1"
        );
        ensure!(
            first.shell("ls /sys/class/net")?.contains("breth0"),
            "/sys shows other interfaces than the node's"
        );
        Ok(())
    });
    // Back in the outer process, after the lab has ended.
    if !inside::is_inside() {
        for path in ["/etc/cni/net.d/mine", "/opt/cni/bin/mine", "/var/lib/cni/mine", "/run/lab"] {
            assert!(!std::path::Path::new(path).exists(), "{path} was left on the host");
        }
    }
}

#[test]
fn a_hundred_pods_are_prepared_in_a_moment() {
    Lab::of_nodes(1).test(|lab| {
        let began = Instant::now();
        let pods = lab.new_pods(&lab.nodes[0], 100)?;
        println!("a hundred pods in {:?}", began.elapsed());
        ensure!(lab.nodes[0].path(&pods[99].netns).exists());
        lab.nodes[0].remove_namespaces(&pods)
    });
}

#[test]
fn daemons_can_be_paused_killed_and_started_again() {
    Lab::of_nodes(1).test(|lab| {
        let (first, second) = (attached(lab, 0)?, attached(lab, 0)?);
        let node = &lab.nodes[0];
        node.ovn_controller.pause()?;
        node.ovn_controller.resume()?;
        node.ovn_controller.stop()?;
        ensure!(!node.ovn_controller.is_running());
        node.start_ovn_controller()?;
        node.ovsdb_server.kill()?;
        node.start_ovsdb_server()?;
        lab.central.southbound.kill()?;
        lab.central.start_southbound()?;
        lab.ping(&first, second.address())
    });
}

#[test]
fn everything_ends_with_the_process_that_started_it() {
    if inside::is_inside() {
        return;
    }
    // With --keep and an open standard input, only the end of the outer process can end the lab.
    let mut command = Command::new(env!("CARGO_BIN_EXE_integration"));
    command.args(["lab", "--nodes", "1", "--pods", "0", "--by-hand", "--keep"]);
    let (input, stdin) = std::io::pipe().unwrap();
    let (stdout, output) = std::io::pipe().unwrap();
    let mut outer = command.stdin(input).stdout(output).spawn().unwrap();
    drop(command);
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stdout));
    assert!(lines.any(|line| line.unwrap().starts_with("The lab ends")), "the lab did not start");
    outer.kill().unwrap();
    outer.wait().unwrap();
    // Every process of the lab holds the output open: its end of file means that all have ended.
    let (sender, done) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(lines.count()));
    done.recv_timeout(Duration::from_secs(10)).expect("processes of the lab outlive it");
    drop(stdin);
    // A killed process cannot clean up. In this test that is expected, so the test does it.
    let logs =
        executable::target_dir().unwrap().join("lab-logs").join(format!("lab-{}", outer.id()));
    std::fs::remove_dir_all(logs).unwrap();
}
