//! `nics-to-bridge` and `bridges-to-nic`: a NIC with every kind of address and route, and a failure
//! of each step.
//!
//! Needs an ovnkube with the feature `failpoints`, as `make test` builds it.

use std::{process::Output, time::Duration};

use anyhow::{Context as _, Result, ensure};
use integration::{Lab, Node, eventually, executable};

/// Limit for one wait, long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
const FAILPOINT: &str = "OVN_BRIDGE_FAILPOINT";
/// More than the number of steps: a bound for the loops over all steps.
const TOO_MANY: u32 = 100;

/// A NIC `nic0` with addresses and routes of every kind, wired to a machine outside.
const NIC: &str = "
    ip netns add outside
    ip link add nic0 mtu 1450 type veth peer name far mtu 1450 netns outside
    ip -n outside addr add 192.0.2.1/24 dev far
    ip -n outside addr add 2001:db8::1/64 dev far nodad
    ip -n outside link set far up
    ip netns exec outside ethtool -K far tx off
    ethtool -K nic0 tx off
    sysctl -q net.ipv6.conf.nic0.accept_ra=0
    ip link set nic0 up
    ip addr add 192.0.2.10/24 brd + dev nic0
    ip addr add 192.0.2.11/24 dev nic0 label nic0:1
    ip addr add 198.51.100.7/32 dev nic0 valid_lft 50000 preferred_lft 40000
    ip addr add 198.51.100.8 peer 198.51.100.9/32 dev nic0 metric 5
    ip addr add 2001:db8::10/64 dev nic0 nodad
    ip addr add 2001:db8::11/64 dev nic0 nodad noprefixroute valid_lft 50000 preferred_lft 0
    ip addr add fe80::10/64 dev nic0 nodad
    ip route add default via 192.0.2.1 dev nic0 metric 50 src 192.0.2.11
    ip route add 203.0.113.0/24 via 192.0.2.1 dev nic0 mtu 1300 advmss 1200
    ip route add 203.0.114.0/24 dev nic0 scope link
    ip route add 203.0.115.0/24 nexthop via 192.0.2.1 dev nic0 weight 2 nexthop via 172.30.0.1 dev breth0
    ip route add 10.99.0.0/16 via 192.0.2.1 dev nic0 table 777
    ip route add 203.0.116.0/24 via 10.1.1.1 dev nic0 onlink
    ip -6 route add default via 2001:db8::1 dev nic0 metric 77
    ip -6 route add 2001:db8:1::/48 via fe80::1 dev nic0 table 777
    ip -6 route add 2001:db8:2::/48 via 2001:db8::1 dev nic0 src 2001:db8::10
";

/// Addresses and routes of a link as `ip` prints them, with `LINK` for its name, without values
/// that change with time.
fn belongings(node: &Node, link: &str) -> Result<String> {
    let addresses = node.run(["ip", "-o", "address", "show", "dev", link])?;
    let addresses = addresses
        .lines()
        .filter(|line| !is_of_kernel(line))
        .map(|line| line.split_once(": ").map_or(line, |(_, rest)| rest));
    let mut routes = Vec::new();
    for family in ["-4", "-6"] {
        let all = node.run(["ip", family, "-o", "route", "show", "table", "all"])?;
        let ours = all
            .lines()
            .filter(|line| line.contains(&format!("dev {link} ")) && !is_of_kernel(line));
        routes.extend(ours.map(|line| format!("{family} {line}")));
    }
    routes.sort();
    let lines = addresses.map(str::to_owned).chain(routes);
    let timeless = |line: String| {
        let words = line.split_whitespace().map(|word| {
            let seconds = word
                .strip_suffix("sec")
                .is_some_and(|number| number.parse::<u32>().is_ok_and(|number| number > 0));
            if seconds { "SOME".to_owned() } else { word.replace(link, "LINK") }
        });
        words.filter(|word| word != "linkdown").collect::<Vec<_>>().join(" ")
    };
    Ok(lines.map(timeless).collect::<Vec<_>>().join("\n"))
}

/// Whether the kernel makes this line for every link: its own link-local address, and the routes of
/// local addresses.
fn is_of_kernel(line: &str) -> bool {
    let own = line.contains("inet6 fe80") && !line.contains("fe80::10/");
    own || ["table local", "fe80::/64", "ff00::/8", "anycast"]
        .iter()
        .any(|text| line.contains(text))
}

fn ovnkube(node: &Node, arguments: &[&str], failpoint: Option<String>) -> Result<Output> {
    let mut command = node.command(executable::under_test(executable::SERVER)?);
    command.args(arguments).env_remove(FAILPOINT).envs(failpoint.map(|value| (FAILPOINT, value)));
    command.output().context("start ovnkube")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn succeed(node: &Node, arguments: &[&str]) -> Result<String> {
    let output = ovnkube(node, arguments, None)?;
    ensure!(output.status.success(), "{arguments:?}: {}: {}", output.status, text(&output));
    Ok(text(&output))
}

fn fail(node: &Node, arguments: &[&str]) -> Result<String> {
    let output = ovnkube(node, arguments, None)?;
    ensure!(output.status.code() == Some(1), "{arguments:?}: {}: {}", output.status, text(&output));
    Ok(text(&output))
}

fn reaches_outside(node: &Node) -> Result<()> {
    for address in ["192.0.2.1", "2001:db8::1"] {
        eventually(&format!("{address} answers"), PATIENCE, || {
            node.run(["ping", "-c1", "-W1", address])
        })?;
    }
    Ok(())
}

fn has_bridge(node: &Node) -> Result<bool> {
    Ok(node.vsctl(["list-br"])?.lines().any(|bridge| bridge == "brnic0"))
}

/// The NIC has everything that it had, and nothing of the bridge is left.
fn is_as_before(node: &Node, before: &str) -> Result<()> {
    let now = belongings(node, "nic0")?;
    ensure!(now == before, "before:\n{before}\nnow:\n{now}");
    ensure!(!has_bridge(node)?, "the bridge is still in the database");
    ensure!(
        !node.shell("ls /sys/class/net")?.contains("brnic0"),
        "the bridge's link is still there"
    );
    reaches_outside(node)
}

/// The bridge has everything that the NIC had, and the NIC has nothing.
fn is_moved(node: &Node, before: &str) -> Result<()> {
    let now = belongings(node, "brnic0")?;
    ensure!(now == before, "on the NIC, before:\n{before}\non the bridge, now:\n{now}");
    let left = belongings(node, "nic0")?;
    ensure!(left.is_empty(), "left on the NIC:\n{left}");
    reaches_outside(node)
}

#[test]
fn everything_a_nic_has_goes_to_the_bridge_and_comes_back() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.shell(NIC)?;
        let before = belongings(node, "nic0")?;
        let mac = node.run(["cat", "/sys/class/net/nic0/address"])?;

        let said = succeed(node, &["nics-to-bridge", "nic0"])?;
        ensure!(
            said.contains("is now the uplink of bridge brnic0") && said.contains("192.0.2.10/24"),
            "{said}"
        );
        ensure!(said.contains("198.51.100.7/32 has a limited life"), "{said}");
        is_moved(node, &before)?;
        ensure!(node.run(["cat", "/sys/class/net/brnic0/address"])? == mac, "another MAC address");
        ensure!(node.run(["cat", "/sys/class/net/brnic0/mtu"])?.trim() == "1450", "another MTU");
        let row = node.vsctl([
            "--columns=fail_mode,external_ids,other_config",
            "list",
            "Bridge",
            "brnic0",
        ])?;
        for part in [
            "standalone",
            "bridge-id=brnic0",
            "bridge-uplink=nic0",
            &format!("hwaddr=\"{}\"", mac.trim()),
        ] {
            ensure!(row.contains(part), "no {part} in {row}");
        }
        ensure!(node.vsctl(["get", "Port", "nic0", "other_config:transient"])?.contains("true"));

        let settings = node.vsctl(["get", "Open_vSwitch", ".", "next_cfg"])?;
        let said = succeed(node, &["nics-to-bridge", "nic0"])?;
        ensure!(said.contains("nothing to do"), "{said}");
        ensure!(
            node.vsctl(["get", "Open_vSwitch", ".", "next_cfg"])? == settings,
            "the second run changed the database"
        );
        is_moved(node, &before)?;

        succeed(node, &["bridges-to-nic", "brnic0"])?;
        is_as_before(node, &before)?;
        let said = succeed(node, &["bridges-to-nic", "brnic0"])?;
        ensure!(said.contains("nothing to do"), "{said}");
        is_as_before(node, &before)
    });
}

#[test]
fn hardly_a_packet_is_lost_on_the_way() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.shell(NIC)?;
        reaches_outside(node)?;
        let ping = node
            .command("ping")
            .args(["-q", "-i", "0.01", "-c", "300", "192.0.2.1"])
            .stdout(std::process::Stdio::piped())
            .spawn()?;
        succeed(node, &["nics-to-bridge", "nic0"])?;
        succeed(node, &["bridges-to-nic", "brnic0"])?;
        let said = text(&ping.wait_with_output()?);
        let received = said
            .split(", ")
            .find_map(|part| part.strip_suffix(" received"))
            .context("a summary")?;
        // An answer may be counted twice during the move: by the kernel and by the userspace
        // datapath.
        ensure!(received.parse::<u32>()? >= 250, "{said}");
        Ok(())
    });
}

#[test]
fn whichever_step_fails_everything_is_as_before() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.shell(NIC)?;
        let before = belongings(node, "nic0")?;
        let steps =
            each_step_fails(node, &["nics-to-bridge", "nic0"], || is_as_before(node, &before))?;
        // Steps: the database, the wait, the link, 7 addresses twice, 9 routes, the NIC's own
        // stack, the end.
        ensure!(steps == 28, "{steps} steps");
        is_moved(node, &before)?;
        let steps =
            each_step_fails(node, &["bridges-to-nic", "brnic0"], || is_moved(node, &before))?;
        ensure!(steps == 26, "{steps} steps back");
        is_as_before(node, &before)
    });
}

/// Makes each step fail in turn until a run succeeds. Returns the number of steps.
fn each_step_fails(
    node: &Node,
    arguments: &[&str],
    is_undone: impl Fn() -> Result<()>,
) -> Result<u32> {
    for step in 1..TOO_MANY {
        let output = ovnkube(node, arguments, Some(format!("{step}=error")))?;
        if output.status.success() {
            ensure!(
                step > 1,
                "ovnkube has no failpoints; build it with: cargo build -p ovnkube --features failpoints"
            );
            return Ok(step - 1);
        }
        let said = text(&output);
        ensure!(
            said.contains(&format!("failpoint {step}")) && said.contains("was undone"),
            "{said}"
        );
        is_undone().with_context(|| format!("{arguments:?} failed at step {step}: {said}"))?;
    }
    anyhow::bail!("more than {TOO_MANY} steps")
}

#[test]
fn a_run_that_was_killed_at_any_step_leaves_the_network_and_the_next_completes_it() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.shell(NIC)?;
        let before = belongings(node, "nic0")?;
        for step in 1..TOO_MANY {
            let there = ovnkube(node, &["nics-to-bridge", "nic0"], Some(format!("{step}=kill")))?;
            reaches_outside(node)
                .with_context(|| format!("after a kill at step {step} of nics-to-bridge"))?;
            succeed(node, &["nics-to-bridge", "nic0"])?;
            is_moved(node, &before)
                .with_context(|| format!("completed after a kill at step {step} of nics-to-bridge"))?;

            let back = ovnkube(node, &["bridges-to-nic", "brnic0"], Some(format!("{step}=kill")))?;
            reaches_outside(node)
                .with_context(|| format!("after a kill at step {step} of bridges-to-nic"))?;
            succeed(node, &["bridges-to-nic", "brnic0"])?;
            is_as_before(node, &before)
                .with_context(|| format!("completed after a kill at step {step} of bridges-to-nic"))?;
            if there.status.success() && back.status.success() {
                ensure!(
                    step > 1,
                    "ovnkube has no failpoints; build it with: cargo build -p ovnkube --features failpoints"
                );
                return Ok(());
            }
        }
        anyhow::bail!("more than {TOO_MANY} steps")
    });
}

#[test]
fn what_cannot_be_an_uplink_is_refused_and_others_have_their_turn() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.shell(
            "ip link add bond0 type bridge
             ip link add slave0 type veth peer name slave0-far
             ip link set slave0 master bond0
             ip link add taken0 type veth peer name taken0-far
             ip link add brtaken0 type veth peer name brtake-far
             ip link add a-very-long-nam type veth peer name a-very-far
             ip link add pod0 type veth peer name pod0-far
             ip tuntap add tun0 mode tun
             ip link add good0 type veth peer name good0-far
             ip addr add 192.0.2.77/24 dev good0
             ovs-vsctl --timeout=20 add-port br-int pod0 -- add-port br-int ovn-k8s-mp0 \
               -- set Interface ovn-k8s-mp0 type=internal",
        )?;
        for (name, reason) in [
            ("nosuch0", "there is no interface"),
            ("lo", "it is the loopback interface"),
            ("bond0", "it is a Linux bridge"),
            ("slave0", "it belongs to \"bond0\""),
            ("taken0", "there is an interface \"brtaken0\" already"),
            ("a-very-long-nam", "would be longer than 15 characters"),
            ("pod0", "a port of the integration bridge"),
            ("ovn-k8s-mp0", "it is a port of bridge \"br-int\" that Open vSwitch made itself"),
            ("tun0", "it is a tap device"),
        ] {
            let said = fail(node, &["nics-to-bridge", name])?;
            ensure!(said.starts_with(&format!("{name}: ")) && said.contains(reason), "{said}");
        }
        let said = succeed(node, &["nics-to-bridge", "eth0"])?;
        ensure!(said.contains("nothing to do"), "breth0 is a bridge of the old kind: {said}");
        let said = fail(node, &["bridges-to-nic", "nosuch"])?;
        ensure!(said.contains("there is no bridge \"nosuch\""), "{said}");
        let said = fail(node, &["bridges-to-nic", "br-int"])?;
        ensure!(said.contains("it is the integration bridge"), "{said}");

        let said = fail(node, &["nics-to-bridge", "nosuch0", "good0"])?;
        ensure!(said.contains("good0: is now the uplink"), "{said}");
        ensure!(belongings(node, "brgood0")?.contains("192.0.2.77/24"));
        Ok(())
    });
}

#[test]
fn without_a_switch_that_acts_nothing_changes() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.shell(
            &NIC.replace("nexthop via 172.30.0.1 dev breth0", "nexthop via 192.0.2.2 dev nic0"),
        )?;
        let before = belongings(node, "nic0")?;
        node.vswitchd.stop()?;
        let said = fail(node, &["nics-to-bridge", "nic0"])?;
        ensure!(
            said.contains("ovs-vswitchd has not acted within 20 s; is it running?")
                && said.contains("was undone"),
            "{said}"
        );
        is_as_before(node, &before)?;
        node.ovsdb_server.stop()?;
        let said = fail(node, &["nics-to-bridge", "nic0"])?;
        ensure!(said.contains("is ovsdb-server running?") && said.contains("db.sock"), "{said}");
        Ok(())
    });
}

#[test]
fn the_patch_port_of_the_integration_bridge_goes_with_the_bridge() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.shell(NIC)?;
        succeed(node, &["nics-to-bridge", "nic0"])?;
        node.shell(
            "ovs-vsctl add-port brnic0 here -- set Interface here type=patch options:peer=there \
             -- add-port br-int there -- set Interface there type=patch options:peer=here",
        )?;
        succeed(node, &["bridges-to-nic", "brnic0"])?;
        let ports = node.vsctl(["list-ports", "br-int"])?;
        ensure!(!ports.contains("there"), "{ports}");
        Ok(())
    });
}
