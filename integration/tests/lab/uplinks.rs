//! A NIC that the server makes the uplink of a bridge by itself: whether it may, and that the node
//! stays reachable.

use std::{fs, time::Duration};

use crate::support::late_nic;
use crate::support::managed::SOON;
use anyhow::{Context as _, Result, ensure};
use integration::{Lab, Node, eventually, executable};

/// The server gives up a silent network after 30 s.
const GIVEN_BACK: Duration = Duration::from_secs(60);
const TRIAL: &str = "external_ids:ovnkube-uplink-trial";

fn set_options(node: &Node, lines: &str) -> Result<()> {
    let file = node.path("/etc/openvswitch/ovn_k8s.conf");
    Ok(fs::write(&file, fs::read_to_string(&file)? + lines)?)
}

fn says(node: &Node, text: &str, within: Duration) -> Result<()> {
    eventually(&format!("the server says: {text}"), within, || {
        let log = node.server_log()?;
        ensure!(log.contains(text), "{log}");
        Ok(())
    })
}

/// Seconds that the NIC's address lasts on this link.
fn lifetime(node: &Node, link: &str) -> Result<u32> {
    let shown = node.shell(&format!("ip -4 -o addr show dev {link} to 172.31.0.2"))?;
    let words: Vec<&str> = shown.split_whitespace().collect();
    let at = words
        .iter()
        .position(|word| *word == "valid_lft")
        .with_context(|| format!("none on {link}"))?;
    let seconds =
        words.get(at + 1).and_then(|word| word.strip_suffix("sec")).context(shown.clone())?;
    Ok(seconds.parse()?)
}

fn has_address(node: &Node, link: &str) -> Result<()> {
    let shown = node.shell(&format!("ip -4 -o addr show dev {link}"))?;
    ensure!(shown.contains("172.31.0.2/24"), "{link}: {shown}");
    Ok(())
}

/// The bridge has the address before the NIC has lost it.
fn moved(has: impl Fn(&str) -> Result<()>) -> Result<()> {
    eventually("the bridge has the address, and the NIC has none", SOON, || {
        has("brlate0")?;
        ensure!(has("late0").is_err(), "late0 has it, too");
        Ok(())
    })
}

/// A NIC whose address a DHCP client renews, as far as the kernel shows.
const LEASE: &str = "ip addr change 172.31.0.2/24 dev late0 valid_lft 120 preferred_lft 120";

#[test]
fn a_nic_with_a_lease_is_left_alone_and_the_server_says_what_to_do() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        late_nic::prepare(node)?;
        node.shell(LEASE)?;
        node.start_server()?;
        says(node, "late0 is not made the uplink of a bridge", SOON)?;
        says(node, "its address 172.31.0.2/24 has a limited lifetime", SOON)?;
        says(
            node,
            "Configure brlate0 in its place, or set --gateway-move-managed-interface",
            SOON,
        )?;
        ensure!(!node.vsctl(["list-br"])?.contains("brlate0"));
        has_address(node, "late0")
    });
}

#[test]
fn a_lease_that_is_renewed_on_the_nic_is_renewed_on_its_bridge() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        late_nic::prepare(node)?;
        node.shell(LEASE)?;
        set_options(node, "move-managed-interface=true\n")?;
        node.start_server()?;
        eventually("the bridge has the address, for as long as the NIC had it", SOON, || {
            let left = lifetime(node, "brlate0")?;
            ensure!(left <= 120, "{left}");
            Ok(())
        })?;
        // As a DHCP client does that goes on using the NIC.
        node.shell(
            "ip route add 198.51.100.0/24 via 172.31.0.1 dev late0 onlink proto dhcp
             ip addr add 172.31.0.2/24 dev late0 valid_lft 3600 preferred_lft 3600",
        )?;
        eventually("the bridge has the new lease, and the NIC nothing", SOON, || {
            let left = lifetime(node, "brlate0")?;
            ensure!(left > 1000, "{left}");
            ensure!(lifetime(node, "late0").is_err(), "the NIC has it, too");
            let routes = node.shell("ip route show 198.51.100.0/24")?;
            ensure!(routes.contains("dev brlate0") && !routes.contains("dev late0"), "{routes}");
            Ok(())
        })
    });
}

#[test]
fn a_lease_that_nobody_renews_goes_back_to_the_nic_before_it_ends() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        late_nic::prepare(node)?;
        node.shell("ip addr change 172.31.0.2/24 dev late0 valid_lft 40 preferred_lft 40")?;
        set_options(node, "move-managed-interface=true\n")?;
        node.start_server()?;
        moved(|link| has_address(node, link))?;
        eventually("the NIC has its address again", GIVEN_BACK, || has_address(node, "late0"))?;
        let left = lifetime(node, "late0")?;
        ensure!(left > 0, "it has never been without: {left}");
        says(
            node,
            "and nobody renewed it; it is not tried again before ovnkube is restarted",
            SOON,
        )?;
        ensure!(!node.vsctl(["list-br"])?.contains("brlate0"));
        late_nic::reaches_beyond(node)?;
        let ids = node.vsctl(["get", "Open_vSwitch", ".", "external_ids"])?;
        ensure!(!ids.contains("ovnkube-uplink") && !ids.contains("brlate0"), "{ids}");
        Ok(())
    });
}

/// A lease of DHCPv6 was not watched: the node lost its IPv6 for good, and its client did not hear
/// the answers.
#[test]
fn a_lease_of_ipv6_that_nobody_renews_goes_back_to_the_nic_before_it_ends() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        let has = |link: &str| {
            let shown = node.shell(&format!("ip -6 -o addr show dev {link}"))?;
            ensure!(shown.contains("fd00:172:31::100/128"), "{link}: {shown}");
            Ok(())
        };
        late_nic::prepare(node)?;
        node.shell(
            "ip addr add fd00:172:31::100/128 dev late0 nodad valid_lft 40 preferred_lft 40",
        )?;
        set_options(node, "move-managed-interface=true\n")?;
        node.start_server()?;
        moved(has)?;
        eventually("the NIC has its address again", GIVEN_BACK, || has("late0"))?;
        says(node, "had its IPv6 lease for", SOON)?;
        ensure!(!node.vsctl(["list-br"])?.contains("brlate0"));
        // What nobody has to renew came back with it.
        has_address(node, "late0")
    });
}

/// As after a start of the host with `--delete-transient-ports`, or one that was moved before it
/// got a lease.
#[test]
fn a_nic_that_was_taken_out_of_its_bridge_and_has_a_lease_is_not_put_back() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        late_nic::start_with_nic(node)?;
        node.server.stop()?;
        node.vsctl(["del-port", "brlate0", "late0"])?;
        node.shell(
            "ip addr del 172.31.0.2/24 dev brlate0; ip addr del fd00:172:31::2/64 dev brlate0
             ip addr add 172.31.0.2/24 dev late0 valid_lft 120 preferred_lft 120",
        )?;
        node.start_server()?;
        says(node, "late0 is not made the uplink of a bridge", SOON)?;
        ensure!(!node.vsctl(["list-ports", "brlate0"])?.contains("late0"));
        has_address(node, "late0")
    });
}

#[test]
fn a_moved_nic_stays_in_its_bridge_when_the_router_answers_over_it() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        late_nic::prepare(node)?;
        node.shell("ip route replace default via 172.31.0.1 dev late0")?;
        node.start_server()?;
        says(
            node,
            "what answered before the NIC was moved answers over the bridge, too",
            GIVEN_BACK,
        )?;
        eventually("the trial has ended", SOON, || {
            let left = node.vsctl(["--if-exists", "get", "Open_vSwitch", ".", TRIAL])?;
            ensure!(left.trim().is_empty(), "{left}");
            has_address(node, "brlate0")
        })
    });
}

/// As if a server had died after it has moved the NIC: the next one decides.
#[test]
fn a_nic_whose_router_is_silent_over_the_bridge_is_given_back_also_by_the_next_server() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        late_nic::prepare(node)?;
        let server = executable::under_test(executable::SERVER)?;
        node.run([server.as_os_str(), "nics-to-bridge".as_ref(), "late0".as_ref()])?;
        has_address(node, "brlate0")?;
        // Nobody has this address.
        node.vsctl(["set", "Open_vSwitch", ".", &format!("{TRIAL}=\"late0 172.31.0.77\"")])?;
        node.start_server()?;
        eventually("the NIC has its address again", GIVEN_BACK, || has_address(node, "late0"))?;
        says(node, "172.31.0.77 did not answer over it; it is not tried again", SOON)?;
        // The event of the address has woken it.
        says(node, "why=\"late0 was the uplink of brlate0 for a moment", SOON)?;
        has_address(node, "late0")?;
        ensure!(!node.vsctl(["list-br"])?.contains("brlate0"));
        Ok(())
    });
}
