//! Takes a node's gateway away: its bridge is a plain switch again, without a port to OVN.
//!
//! The patch port goes before the flows. Without them, the gateway router behind it would answer
//! for the host's own address.

use std::{io, path::Path};

use contract::error::chain;
use ovsdb::{Client, Endpoint, Event, Options, TransactError};
use uplink::flows::{self, InstallError};

use super::{
    bridge::{self, Seen},
    host_side::HostSide,
};
use crate::node::management_port::kernel::Kernel;

/// Why a gateway was not removed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RemoveError {
    #[error("Open vSwitch's database")]
    Database(#[from] TransactError),
    #[error("the flows of bridge {bridge}")]
    Flows { bridge: String, source: InstallError },
    #[error("the routes over {bridge}: {error}")]
    Host { bridge: String, error: io::Error },
}

/// What was removed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Removed {
    /// A line for each thing.
    pub(crate) lines: Vec<String>,
}

impl Removed {
    /// Logs it, for the server.
    pub(super) fn log(&self) {
        for line in &self.lines {
            tracing::info!("an earlier gateway: {line}");
        }
    }
}

/// Removes the gateways of this program: the patch ports, the entries for ovn-controller, the flows
/// and the marks. The NICs stay in their bridges. Waits for the database.
pub(crate) async fn remove(endpoint: &Endpoint, run_dir: &Path) -> Result<Removed, RemoveError> {
    let (client, mut updates) =
        Client::start(endpoint.clone().into(), "Open_vSwitch", bridge::monitor(), Options::small());
    let mut removed = Removed::default();
    loop {
        while !matches!(updates.next().await, Event::Connected) {}
        let seen = Seen::look(&updates);
        restore(endpoint, &seen, &mut removed).await;
        let (marked, patch_ports) = (seen.marked(), bridge::patch_ports(&updates));
        match remove_from(&marked, &client, &seen, (&patch_ports, run_dir), &mut removed).await {
            Ok(()) => return Ok(removed),
            // After the next connection the rows show what was committed.
            Err(RemoveError::Database(
                TransactError::NotConnected(_) | TransactError::OutcomeUnknown(_),
            )) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Puts NICs back into their bridges that a server, which has died since, had taken out to replace
/// them. Otherwise the node would be cut off.
async fn restore(endpoint: &Endpoint, seen: &Seen, removed: &mut Removed) {
    for bridge in seen.marked() {
        let Some(nic) = seen.bridges[&bridge].uplink(&bridge).filter(|nic| !seen.has_port(nic))
        else {
            continue;
        };
        match uplink::restore(endpoint, &bridge, nic).await {
            Ok(()) => removed.lines.push(format!("put {nic} back into bridge {bridge}")),
            // No failure of the cleanup: the NIC may have been unplugged.
            Err(error) => {
                removed.lines.push(format!("bridge {bridge} has no NIC: {nic}: {}", chain(&error)));
            }
        }
    }
}

/// Removes the gateway from these bridges, as [`remove_bridge`] does.
pub(super) async fn remove_from(
    bridges: &[String],
    client: &Client,
    seen: &Seen,
    ports: (&[bridge::PatchPort], &Path),
    removed: &mut Removed,
) -> Result<(), RemoveError> {
    for bridge in bridges {
        remove_bridge(client, seen, bridge, ports, removed).await?;
    }
    Ok(())
}

/// Removes the gateway from one bridge. `ports`: the patch ports, and the directory with the
/// sockets of bridges.
async fn remove_bridge(
    client: &Client,
    seen: &Seen,
    bridge: &str,
    (patch_ports, run_dir): (&[bridge::PatchPort], &Path),
    removed: &mut Removed,
) -> Result<(), RemoveError> {
    let own: Vec<_> = patch_ports.iter().filter(|port| port.is_of(bridge)).collect();
    if let Some(change) = seen.closing(bridge, &own) {
        client.transact(change).await?;
        removed
            .lines
            .push(format!("removed bridge {bridge} from ovn-bridge-mappings, and its patch ports"));
    }
    let released = flows::release(run_dir, bridge).await;
    released.map_err(|source| RemoveError::Flows { bridge: bridge.to_owned(), source })?;
    removed.lines.push(format!(
        "removed the gateway's flows from bridge {bridge}, which is a plain switch again"
    ));
    remove_host_side(bridge)
        .await
        .map_err(|error| RemoveError::Host { bridge: bridge.to_owned(), error })?;
    // Last: a run that ended before this is completed by the next one.
    if let Some(change) = seen.unmarking(bridge) {
        client.transact(change).await?;
    }
    removed.lines.push(format!(
        "left the NIC in bridge {bridge}, with the node's addresses: ovnkube bridges-to-nic {bridge} moves \
         them back"
    ));
    Ok(())
}

async fn remove_host_side(bridge: &str) -> io::Result<()> {
    let kernel = Kernel::open_for(bridge.parse().map_err(io::Error::other)?)?;
    let Some(seen) = kernel.look()? else { return Ok(()) };
    for step in HostSide::removal(&seen) {
        kernel.take(seen.index, &step).await.map_err(io::Error::other)?;
    }
    Ok(())
}
