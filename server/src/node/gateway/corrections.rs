//! What a comparison corrects beside the rows of the bridge: its flows, what earlier configurations
//! have left, the host's own side.

use std::fmt;

use contract::{error::chain, names::IfName, ovn::Masquerade};
use podnet::nftables::ingress;
use uplink::flows;

use super::{
    GatewayMode, GatewayReconciler, Waiting,
    bridge::{self, Seen, SeenBridge},
    cleanup::{self, Removed},
    gone,
    host_side::HostSide,
    plan::Place,
};
use crate::node::management_port::kernel::Kernel;

impl GatewayReconciler {
    /// Installs the flows in the bridge, as far as they differ, and keeps them.
    pub(super) async fn install(
        &mut self,
        bridge: &str,
        flows: flows::Flows,
    ) -> Result<(), Waiting> {
        let installed = self.flows.install(bridge, flows).await;
        installed.map_err(|why| Waiting::failed(format!("the flows of bridge {bridge}: {why}")))
    }

    /// Removes what earlier configurations have left in other bridges.
    pub(super) async fn leave_others(&self, seen: &Seen, bridge: &str) -> Result<(), Waiting> {
        let mut removed = Removed::default();
        let patch_ports = bridge::patch_ports(&self.updates);
        let mut others = seen.marked();
        others.retain(|other| other != bridge);
        let ports = (patch_ports.as_slice(), self.ties.ovs_run_dir.as_path());
        let left =
            cleanup::remove_from(&others, &self.ties.client, seen, ports, &mut removed).await;
        left.map_err(|error| Waiting::failed(format!("an earlier gateway: {}", chain(&error))))?;
        removed.log();
        Ok(())
    }

    /// Corrects routes and neighbours on the bridge's link. A node in local mode has none.
    pub(super) async fn correct_host_side(&self, place: &Place) -> Result<(), Waiting> {
        let failed =
            |error: &dyn fmt::Display| Waiting::failed(format!("{}: {error}", place.bridge));
        let name = place.bridge.parse().map_err(|error| failed(&error))?;
        let ovn = |like| Masquerade::Ovn.like(like, self.config.masquerade);
        let is_shared = self.config.mode == GatewayMode::Shared;
        // Before the kernel is read: a change after that must be an event.
        let masquerade =
            place.addresses.iter().filter(|_| is_shared).map(|net| ovn(net.addr())).collect();
        self.ties.watched.send_modify(|watched| watched.masquerade = masquerade);
        let kernel = Kernel::open_for(name).map_err(|error| failed(&error))?;
        let Some(seen) = kernel.look().map_err(|error| failed(&error))? else {
            return Err(gone(&place.bridge));
        };
        let steps = match self.config.mode {
            GatewayMode::Shared => HostSide::of(&place.addresses, ovn).steps(&seen),
            // Those of a start in shared mode.
            GatewayMode::Local => HostSide::removal(&seen),
        };
        for step in steps {
            kernel.take(seen.index, &step).await.map_err(|error| Waiting::failed(chain(&error)))?;
            tracing::info!(bridge = place.bridge, done = %step, "set up the node's gateway");
        }
        Ok(())
    }
}

/// Has the host's own stack ignore what the uplink receives: a bridge in user space does not take
/// it away.
pub(super) async fn ignore_own(bridge: &SeenBridge, name: &str) -> Result<(), Waiting> {
    let Some(nic) = bridge.uplink(name) else { return Ok(()) };
    let failed = |error: &dyn fmt::Display| {
        Waiting::failed(format!(
            "nftables: what the host itself does with frames that {nic} receives: {error}"
        ))
    };
    let nic: IfName = nic.parse().map_err(|error| failed(&error))?;
    match ingress::ignore(&nic).await {
        Ok(false) => Ok(()),
        Ok(true) => {
            tracing::info!(
                %nic, bridge = name,
                "the host's own stack ignores what a NIC of a userspace bridge receives"
            );
            Ok(())
        }
        Err(error) => Err(failed(&error)),
    }
}
