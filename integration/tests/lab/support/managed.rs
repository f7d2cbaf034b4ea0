//! A node whose server is configured with the node's subnets and maintains the management port.

use std::{fs, net::IpAddr, time::Duration};

use anyhow::{Result, ensure};
use integration::{Node, eventually, subnet};

/// The interface's name, on every node.
pub(crate) const INTERFACE: &str = "ovn-k8s-mp0";
/// Limit for a repair, also on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// Starts the server with the node's own subnets and those of the whole cluster, and waits until
/// runtimes may use the plugin.
pub(crate) fn start(node: &Node) -> Result<()> {
    node.configure_server(&node.subnets)?;
    node.start_server()?;
    ready(node)
}

/// The same with these ranges of Services.
pub(crate) fn serve(node: &Node, services: &str) -> Result<()> {
    node.configure_server(&node.subnets)?;
    let file = node.path("/etc/openvswitch/ovn_k8s.conf");
    fs::write(
        &file,
        fs::read_to_string(&file)? + &format!("[kubernetes]\nservice-cidrs={services}\n"),
    )?;
    node.start_server()?;
    ready(node)
}

pub(crate) fn ready(node: &Node) -> Result<()> {
    // The server writes it once the port is ready.
    eventually("the CNI configuration is written", Duration::from_secs(30), || {
        ensure!(node.cni_conf().exists(), "{}", node.server_log()?);
        Ok(())
    })
}

/// The node's own address in each of its subnets.
pub(crate) fn addresses(node: &Node) -> Vec<IpAddr> {
    node.subnets.iter().map(|subnet| subnet::host(subnet, 2).addr()).collect()
}

/// The whole state of the port as text: link, addresses, routes, permanent neighbours, settings,
/// rows.
pub(crate) fn state(node: &Node) -> Result<String> {
    // Values that change by themselves are left out: indexes, lifetimes, and the flags of a tap
    // that a restart of ovs-vswitchd changes (promiscuity, operational state). LOWER_UP stays.
    let script = "ip -o link show ovn-k8s-mp0 | sed 's/^[0-9]*: //; s/ qlen [0-9]*//; s/,PROMISC//; s/ state [A-Z]*//'
        ip -o addr show ovn-k8s-mp0 scope global | sed 's/^[0-9]*: //; s/ valid_lft.*//' | sort
        ip route show dev ovn-k8s-mp0 | sort; ip -6 route show dev ovn-k8s-mp0 | grep -v fe80 | sort
        ip neigh show dev ovn-k8s-mp0 nud permanent | grep -v ' ff02' | sort
        cat /proc/sys/net/ipv4/conf/ovn-k8s-mp0/forwarding /proc/sys/net/ipv4/conf/ovn-k8s-mp0/rp_filter
        ovs-vsctl --timeout=5 --columns=type,mac,mtu_request list Interface ovn-k8s-mp0
        ovs-vsctl --timeout=5 get Interface ovn-k8s-mp0 external_ids:iface-id; ovs-vsctl --timeout=5 iface-to-br ovn-k8s-mp0
        ovs-vsctl --timeout=5 list-ports br-int | grep k8s-";
    node.shell(script)
}

/// Waits until the port is as it was before `damage`.
pub(crate) fn repaired(node: &Node, before: &str, damage: &str) -> Result<()> {
    eventually(&format!("the port is as before ({damage})"), SOON, || {
        let now = state(node)?;
        ensure!(now == before, "{now}\nbefore:\n{before}\n{}", node.server_log()?);
        Ok(())
    })
}
