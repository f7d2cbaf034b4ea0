//! Moves the addresses and routes of a bridge back to its uplink, and removes the bridge.

use contract::paths::INTEGRATION_BRIDGE;
use podnet::nftables::ingress;
use rtnetlink::Handle;

use crate::{
    BridgeError,
    ip_config::{IpConfig, shown_address},
    nic::{Nic, Unfit},
    ovs::{Bridge, Made, Ovs},
    undo_log::{StepError, UndoLog, name_of},
};

/// Moves a bridge's addresses and routes to its uplink, and removes the bridge. Returns a report,
/// line by line.
pub(crate) async fn run(
    netlink: &Handle,
    ovs: &Ovs,
    name: &str,
) -> Result<Vec<String>, BridgeError> {
    if name == INTEGRATION_BRIDGE {
        return Err(Unfit::IntegrationBridge.into());
    }
    let all = ovs.bridges().await?;
    let Some(bridge) = all.iter().find(|bridge| bridge.name == name) else {
        // An earlier run has removed the bridge already: the NIC exists, and no link has the
        // bridge's name.
        let nic = name.strip_prefix("br").unwrap_or_default();
        let done =
            Nic::find(netlink, name).await?.is_none() && Nic::find(netlink, nic).await?.is_some();
        return if done {
            Ok(vec![format!("is no bridge any more; nothing to do for {nic}")])
        } else {
            Err(BridgeError::NoBridge(name.to_owned()))
        };
    };
    let uplink = bridge.uplink().ok_or_else(|| no_uplink(bridge))?;
    let nic = Nic::existing(netlink, uplink).await?;
    let own = Nic::find(netlink, name).await?.ok_or_else(|| Unfit::Missing(name.to_owned()))?;
    let ip_config = IpConfig::of(&own)?;

    let mut undo_log = UndoLog::new(netlink, ovs);
    if let Err(error) = steps(&mut undo_log, ovs, &own, &nic, &ip_config).await {
        return Err(undo_log.undo(error).await);
    }
    // The rows are gone; ovs-vswitchd still has to release the NIC. A failure here undoes nothing.
    ovs.settle(&[]).await?;
    heed_again(&nic).await?;
    let addresses: Vec<String> = ip_config.addresses.iter().map(shown_address).collect();
    Ok(vec![format!(
        "was removed; {uplink} has its addresses ({}) and {} routes",
        if addresses.is_empty() { "none".to_owned() } else { addresses.join(", ") },
        ip_config.routes.len(),
    )])
}

/// Has the kernel's own stack heed what arrives at the NIC, once more. A node's server that still
/// saw the bridge has it ignore that again, and could not correct it if Open vSwitch ends next: the
/// node would be off the net.
async fn heed_again(nic: &Nic) -> Result<(), BridgeError> {
    let name = name_of(nic)
        .map_err(|error| BridgeError::Failed { error: Box::new(error), undo_errors: Vec::new() })?;
    let what = || format!("what the host itself does with frames that {name} receives");
    ingress::heed(&name)
        .await
        .map(drop)
        .map_err(|error| BridgeError::Kernel { what: what(), error })
}

fn no_uplink(bridge: &Bridge) -> BridgeError {
    BridgeError::NoUplink {
        bridge: bridge.name.clone(),
        ports: bridge.ports.iter().map(|port| port.name.clone()).collect(),
    }
}

async fn steps(
    undo_log: &mut UndoLog<'_>,
    ovs: &Ovs,
    own: &Nic,
    nic: &Nic,
    ip_config: &IpConfig,
) -> Result<(), StepError> {
    undo_log.pass()?;
    // Make sure first that ovs-vswitchd runs. Otherwise it would not release the NIC, and packets
    // would still go to the bridge, which has no addresses any more.
    ovs.settle(&[]).await?;
    if !nic.is_up() {
        undo_log.set_up(nic).await?;
    }
    // First: the NIC's own stack answers from the first address on.
    undo_log.heed(nic).await?;
    undo_log.transfer(ip_config, own, nic).await?;
    undo_log.pass()?;
    ovs.unmake(&Made::Bridge { name: own.name.clone() }).await?;
    // The last step: the NIC has everything, and there is nothing to undo any more.
    Ok(())
}
