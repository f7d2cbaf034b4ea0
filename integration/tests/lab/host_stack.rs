//! On a userspace datapath the host's own stack ignores what pods send: a pod reaches the host
//! through OVN or not at all.

use std::process::Child;

use crate::support::attached::{attach, detach};
use crate::support::managed;
use anyhow::{Context as _, Result, ensure};
use integration::{Families, Lab, Node, Pod, by_hand, eventually, traffic::End};

/// An address of the host that no interface towards pods has.
const ELSEWHERE: &str = "198.51.100.7";
const FRAMES: &str = include_str!("support/frames.py");

/// As a kernel is without anybody's settings: it answers ARP for all its addresses on each
/// interface, and takes packets from everywhere. An address elsewhere, too, and a network behind
/// the host.
fn bare(node: &Node) -> Result<()> {
    node.shell(&format!(
        "for key in all default; do
             echo 0 > /proc/sys/net/ipv4/conf/$key/rp_filter
             echo 0 > /proc/sys/net/ipv4/conf/$key/arp_ignore
         done
         echo 1 > /proc/sys/net/ipv4/ip_forward
         ip addr add {ELSEWHERE}/32 dev lo
         ip route add 192.0.2.0/24 dev breth0"
    ))
    .map(drop)
}

/// Counts what the host's stack takes from a link of this name, from before there is one: packets
/// of IP, and ARP.
fn count(node: &Node, link: &str) -> Result<()> {
    let rules = |family: &str, hook: &str| {
        format!(
            "table {family} probe {{
                 chain taken {{
                     type filter hook {hook} priority -500
                     iifname \"{link}\" counter
                 }}
             }}"
        )
    };
    node.run(["nft", &rules("inet", "prerouting")])?;
    node.run(["nft", &rules("arp", "input")]).map(drop)
}

/// What was counted, in both tables.
fn taken(node: &Node) -> Result<u64> {
    let listed = node.shell("nft list table inet probe; nft list table arp probe")?;
    let mut words = listed.split_whitespace();
    let mut sum = 0;
    while words.any(|word| word == "packets") {
        sum += words.next().context("a number")?.parse::<u64>()?;
    }
    Ok(sum)
}

fn host_mac(node: &Node, pod: &Pod) -> Result<String> {
    let file = format!("/sys/class/net/{}/address", pod.host_interface());
    Ok(node.run(["cat", &file])?.trim().to_owned())
}

/// Has the pod send whatever a raw socket can send to the host: the answers to its ARP requests.
fn send_frames(node: &Node, pod: &Pod) -> Result<Vec<String>> {
    let [v4, v6] = &pod.addresses[..] else { panic!("two families") };
    let mac = host_mac(node, pod)?;
    let mut words = vec!["python3".to_owned(), "-c".to_owned(), FRAMES.to_owned(), mac];
    words.extend([v4.addr().to_string(), v6.addr().to_string(), ELSEWHERE.to_owned()]);
    words.extend(managed::addresses(node).iter().map(ToString::to_string));
    Ok(node.run_in_pod(pod, words)?.lines().map(str::to_owned).collect())
}

/// The host's stack takes nothing of what the pod sends, and OVN alone answers.
fn is_kept_out(node: &Node, pod: &Pod) -> Result<()> {
    let answers = send_frames(node, pod)?;
    let port = node.run(["cat", "/sys/class/net/ovn-k8s-mp0/address"])?;
    // The host answers at its port, too, and there for any of its addresses.
    let (port, own) = (port.trim(), managed::addresses(node)[0]);
    let expected = [format!("{own} {port}"), format!("{ELSEWHERE} {port}")];
    let of_port = answers.iter().filter(|answer| **answer == expected[0]).count();
    let is_once = |answer: &String| answers.iter().filter(|other| *other == answer).count() == 1;
    ensure!(
        of_port == 1 && answers.iter().all(|answer| expected.contains(answer) && is_once(answer)),
        "answers to ARP requests: {answers:?}, and not each of {expected:?} once"
    );
    let taken = taken(node)?;
    ensure!(taken == 0, "the host's stack took {taken} packets from {}", pod.host_interface());
    Ok(())
}

/// The names of nftables' chains of family netdev.
fn chains(node: &Node) -> Result<String> {
    node.shell("nft list chains netdev")
}

#[test]
fn a_raw_socket_reaches_nothing_of_the_host_past_ovn_from_the_first_packet_on() {
    Lab::of_nodes(1).families(Families::Dual).test(|lab| {
        let node = &lab.nodes[0];
        bare(node)?;
        managed::start(node)?;
        let before = chains(node)?;
        let pod = lab.new_pod(node)?;
        count(node, &pod.host_interface())?;
        let pod = attach(node, pod)?.pod;
        is_kept_out(node, &pod)?;
        // The host and the pod reach each other through OVN all the same.
        for address in managed::addresses(node) {
            lab.tcp_between(&End::Pod(&pod), &End::Node(node), address, 1 << 20)?;
        }
        for address in &pod.addresses {
            lab.tcp_between(&End::Node(node), &End::Pod(&pod), address.addr(), 1 << 20)?;
        }
        ensure!(taken(node)? == 0);
        detach(node, &pod)?;
        eventually("the rule goes with its pod", managed::SOON, || {
            let now = chains(node)?;
            ensure!(now == before, "{now}");
            Ok(())
        })
    });
}

#[test]
fn a_pod_that_upstreams_plugin_made_is_kept_out_whether_it_was_there_before_the_server_or_came_after()
 {
    Lab::of_nodes(1).families(Families::Dual).test(|lab| {
        let node = &lab.nodes[0];
        bare(node)?;
        let old = lab.new_pod(node)?;
        by_hand::attach(node, &old)?;
        managed::start(node)?;
        let new = lab.new_pod(node)?;
        by_hand::attach(node, &new)?;
        for pod in [&old, &new] {
            let name = pod.host_interface();
            eventually("the host's stack ignores the port", managed::SOON, || {
                ensure!(chains(node)?.contains(&name), "{}", chains(node)?);
                Ok(())
            })?;
            count(node, &name)?;
            is_kept_out(node, pod)?;
            node.shell("nft delete table inet probe; nft delete table arp probe")?;
        }
        by_hand::detach(node, &old)?;
        by_hand::detach(node, &new)?;
        eventually("the rules go with the pods", managed::SOON, || {
            let left = chains(node)?;
            ensure!(!left.contains("port-"), "{left}");
            Ok(())
        })
    });
}

#[test]
fn what_keeps_pods_out_outlives_restarts_and_comes_back_when_another_program_flushes_it() {
    Lab::of_nodes(1).families(Families::Dual).test(|lab| {
        let node = &lab.nodes[0];
        bare(node)?;
        managed::start(node)?;
        let pod = attach(node, lab.new_pod(node)?)?.pod;
        node.server.kill()?;
        node.vswitchd.kill()?;
        node.start_vswitchd()?;
        count(node, &pod.host_interface())?;
        eventually("the pod reaches its host again", managed::SOON, || {
            managed::addresses(node).into_iter().try_for_each(|address| lab.ping(&pod, address))
        })?;
        is_kept_out(node, &pod)?;
        node.shell("nft flush ruleset")?;
        node.start_server()?;
        let is_back = || {
            ensure!(chains(node)?.contains(&pod.host_interface()), "{}", chains(node)?);
            Ok(())
        };
        eventually("the new server repairs it", managed::SOON, is_back)?;
        node.shell("nft flush ruleset")?;
        eventually("the server repairs it", managed::SOON, is_back)?;
        count(node, &pod.host_interface())?;
        is_kept_out(node, &pod)
    });
}

/// The server writes the ports of a burst, and so keeps their pods out together.
#[test]
fn a_burst_of_pods_is_kept_out_in_few_transactions() {
    Lab::of_nodes(1).families(Families::Dual).test(|lab| {
        let node = &lab.nodes[0];
        bare(node)?;
        managed::start(node)?;
        let monitor = Monitor::start(node)?;
        let pods = lab.new_pods(node, 20)?;
        let adds = pods
            .iter()
            .map(|pod| node.runtime().call("ADD", Some(pod)).start())
            .collect::<Result<Vec<_>>>()?;
        for add in adds {
            add.wait()?.success()?;
        }
        let made = chains(node)?;
        for pod in &pods {
            ensure!(made.contains(&pod.host_interface()), "{made}");
        }
        // As many as of the database: the server writes the ports of all that wait at the same
        // moment.
        let (kernel, database) = (monitor.of_ports(node)?, transactions(node)?);
        ensure!(
            kernel > 0 && kernel <= database,
            "{kernel} transactions beside {database} of the database"
        );
        Ok(())
    });
}

/// The number of transactions with which ports of pods were written: the database's file has their
/// comments.
fn transactions(node: &Node) -> Result<usize> {
    let log = node.shell(
        "grep -a -c -e 'ovnkube: write [0-9]* ports' -e 'ovn-k8s-cni-overlay: ADD' /etc/openvswitch/conf.db",
    )?;
    Ok(log.trim().parse()?)
}

/// nft(8) beside the test, which writes down who has changed what.
struct Monitor(Child);

const MONITORED: &str = "/tmp/monitored";

impl Monitor {
    fn start(node: &Node) -> Result<Self> {
        let script = format!("exec stdbuf -oL nft monitor > {MONITORED}");
        let child = node.command("sh").args(["-c", &script]).spawn()?;
        let monitor = Self(child);
        monitor.seen(node)?;
        Ok(monitor)
    }

    /// All lines so far: a change of the test's own is the last of them.
    fn seen(&self, node: &Node) -> Result<String> {
        let lines = || node.run(["cat", MONITORED]);
        let before = lines().unwrap_or_default().matches("tick").count();
        eventually("the monitor sees a change", managed::SOON, || {
            node.shell("nft add table inet tick && nft delete table inet tick")?;
            let now = lines()?;
            ensure!(now.matches("tick").count() > before, "{now}");
            Ok(now)
        })
    }

    /// The number of transactions in which chains of ports were made.
    fn of_ports(mut self, node: &Node) -> Result<usize> {
        let seen = self.seen(node)?;
        self.0.kill()?;
        self.0.wait()?;
        // The number of a transaction comes after what it has changed.
        let transactions = seen.split("new generation");
        Ok(transactions
            .filter(|changes| changes.contains("add chain netdev ovn-kubernetes port-"))
            .count())
    }
}
