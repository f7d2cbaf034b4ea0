//! Makes a NIC the uplink of a bridge, which takes over its addresses and routes.

use std::path::Path;

use contract::paths::INTEGRATION_BRIDGE;
use podnet::offload::turn_tx_checksum_off;
use rtnetlink::Handle;

use crate::{
    BridgeError, hints,
    ip_config::{IpConfig, shown_address},
    nic::{Nic, Unfit},
    ovs::{Bridge, Ovs},
    undo_log::{StepError, UndoLog},
};

/// Moves a NIC to a bridge. Returns a report, line by line.
pub(crate) async fn run(
    netlink: &Handle,
    ovs: &Ovs,
    name: &str,
) -> Result<Vec<String>, BridgeError> {
    let nic = Nic::existing(netlink, name).await?;
    let all = ovs.bridges().await?;
    let bridge_name = format!("br{name}");
    if let Some(bridge) = all.iter().find(|bridge| bridge.has_port(name)) {
        check_port(bridge, name)?;
        if bridge.name != bridge_name {
            return Ok(vec![format!("is a port of bridge {} already; left as it is", bridge.name)]);
        }
    }
    nic.check(netlink).await?;
    let bridge = all.iter().find(|bridge| bridge.name == bridge_name);
    if bridge.is_none() && Nic::find(netlink, &bridge_name).await?.is_some() {
        return Err(Unfit::NameTaken(bridge_name).into());
    }

    let ip_config = IpConfig::of(&nic)?;
    // Nothing is left to move. After a run that was killed half-way, `ip_config` has what is left.
    if bridge.is_some_and(|bridge| bridge.has_port(name)) && ip_config.is_empty() {
        return Ok(vec![format!("is the uplink of bridge {bridge_name} already; nothing to do")]);
    }
    let mut undo_log = UndoLog::new(netlink, ovs);
    match steps(&mut undo_log, netlink, ovs, &nic, &bridge_name, &all, &ip_config).await {
        Ok(()) => {}
        Err(error) => return Err(undo_log.undo(error).await),
    }
    Ok(report(&nic, &bridge_name, &ip_config))
}

/// Refuses a port of the integration bridge, which is a pod's interface, and a port that Open
/// vSwitch made, which is not a NIC.
fn check_port(bridge: &Bridge, name: &str) -> Result<(), Unfit> {
    if bridge
        .ports
        .iter()
        .any(|port| port.name == name && !matches!(port.kind.as_str(), "" | "system"))
    {
        return Err(Unfit::OvsInternal(bridge.name.clone()));
    }
    if bridge.name == INTEGRATION_BRIDGE { Err(Unfit::PodInterface) } else { Ok(()) }
}

async fn steps(
    undo_log: &mut UndoLog<'_>,
    netlink: &Handle,
    ovs: &Ovs,
    nic: &Nic,
    bridge_name: &str,
    all: &[Bridge],
    ip_config: &IpConfig,
) -> Result<(), StepError> {
    undo_log.pass()?;
    let present = all.iter().find(|bridge| bridge.name == bridge_name);
    match present {
        None => undo_log.put_down(ovs.add_bridge(bridge_name, nic, all).await?),
        // An earlier run was killed, or an administrator has made the bridge.
        Some(bridge) => {
            if !bridge.has_port(&nic.name) {
                undo_log.put_down(ovs.add_uplink(bridge, nic).await?);
            }
            ovs.mark(bridge, nic).await?;
        }
    }
    undo_log.pass()?;
    // The bridge's own link exists only after ovs-vswitchd has acted on the rows.
    ovs.settle(&[bridge_name, &nic.name]).await?;

    let own = link(netlink, bridge_name).await?;
    // The userspace datapath does not fill in the checksums that the host leaves to the device:
    // without this, ping works and TCP does not.
    if is_userspace(present, all) {
        let name = bridge_name.parse().map_err(|_| no_link(bridge_name))?;
        turn_tx_checksum_off(&name).map_err(|error| StepError::Kernel {
            what: format!("turn transmit checksums of {bridge_name} off"),
            error,
        })?;
    }
    // Both links are up before the transfer: the kernel accepts no route over a link that is down.
    if !nic.is_up() {
        undo_log.set_up(nic).await?;
    }
    undo_log.set_up(&own).await?;
    undo_log.transfer(ip_config, nic, &own).await?;
    // Last: until now the NIC's own stack has answered.
    if is_userspace(present, all) {
        undo_log.ignore(nic).await?;
    }
    undo_log.pass()
}

fn is_userspace(present: Option<&Bridge>, all: &[Bridge]) -> bool {
    present
        .or_else(|| all.iter().find(|bridge| bridge.name == INTEGRATION_BRIDGE))
        .is_some_and(Bridge::is_userspace)
}

async fn link(netlink: &Handle, name: &str) -> Result<Nic, StepError> {
    match Nic::find(netlink, name).await {
        Ok(Some(link)) => Ok(link),
        Ok(None) => Err(no_link(name)),
        Err(BridgeError::Kernel { what, error }) => Err(StepError::Kernel { what, error }),
        Err(error) => Err(StepError::Kernel {
            what: format!("look for {name}"),
            error: std::io::Error::other(error.to_string()),
        }),
    }
}

fn no_link(name: &str) -> StepError {
    StepError::Kernel {
        what: format!("Open vSwitch has made no link {name} in this network namespace"),
        error: std::io::ErrorKind::NotFound.into(),
    }
}

fn report(nic: &Nic, bridge: &str, ip_config: &IpConfig) -> Vec<String> {
    let addresses: Vec<String> = ip_config.addresses.iter().map(shown_address).collect();
    let mut lines = vec![format!(
        "is now the uplink of bridge {bridge}, which has its addresses ({}) and {} routes",
        if addresses.is_empty() { "none".to_owned() } else { addresses.join(", ") },
        ip_config.routes.len(),
    )];
    for address in ip_config.passing() {
        lines.push(format!(
            "hint: {} has a limited life: configure the program that renews it (a DHCP client?) for {bridge}",
            shown_address(address)
        ));
    }
    lines.extend(hints::lines(Path::new("/"), nic));
    lines.push(format!(
        "hint: addresses and routes do not outlive a restart of this host; \
         configure {bridge} instead of {} there, or run this command at each start",
        nic.name
    ));
    lines
}
