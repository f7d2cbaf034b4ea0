//! The wait until a port works: ovs-vswitchd has given it a number, and ovn-controller has installed its flows.
//!
//! Events of the database, judged by a pure function; no polling.

use contract::{
    external_ids,
    names::{IfName, IfaceId},
};

use crate::bridge::{Interface, Plugged};

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// A positive `ofport`.
    Ofport,
    /// `ovn-installed`, which ovn-controller sets once the port's flows are in place (ovn-controller(8)).
    OvnInstalled,
}

/// Why the wait is over without success.
#[derive(Debug, thiserror::Error)]
pub enum NotInstalled {
    #[error("ovs-vswitchd cannot use the device: {0}")]
    Device(String),
    #[error("port {0} was removed, by a newer sandbox of the pod or by an administrator")]
    Removed(IfName),
    #[error("port {port} belongs to {now} now")]
    Reassigned { port: IfName, now: String },
    #[error("lost the database of Open vSwitch")]
    Lost(#[from] ovsdb::Closed),
}

/// Waits until the port has reached the goal, or cannot reach it any more.
pub async fn wait_for(goal: Goal, plugged: &mut Plugged, iface_id: &IfaceId) -> Result<(), NotInstalled> {
    let mut seen = false;
    loop {
        let row = plugged.watch.row::<Interface>(plugged.interface);
        if let Some(verdict) = judge(goal, row, seen, &plugged.name, iface_id) {
            return verdict;
        }
        seen |= row.is_some();
        plugged.watch.changed().await?;
    }
}

/// Whether the wait is over. A row that was never seen has not arrived yet; one that was seen and is gone was removed.
fn judge(goal: Goal, row: Option<&Interface>, seen: bool, name: &IfName, iface_id: &IfaceId) -> Option<Result<(), NotInstalled>> {
    let Some(row) = row else {
        return seen.then(|| Err(NotInstalled::Removed(name.clone())));
    };
    let bound_to = row.external_ids.get(external_ids::IFACE_ID).map_or("", String::as_str);
    if bound_to != iface_id.as_str() {
        return Some(Err(NotInstalled::Reassigned { port: name.clone(), now: format!("{bound_to:?}") }));
    }
    match (row.ofport, &row.error) {
        (_, Some(error)) => Some(Err(NotInstalled::Device(error.clone()))),
        (Some(..=0), None) => Some(Err(NotInstalled::Device("it gave the port no number and no reason".to_owned()))),
        (None, None) => None,
        (Some(_), None) => {
            let installed = row.external_ids.get(external_ids::OVN_INSTALLED).is_some_and(|value| value == "true");
            match goal {
                Goal::Ofport => Some(Ok(())),
                Goal::OvnInstalled => installed.then_some(Ok(())),
            }
        }
    }
}

#[cfg(test)]
mod tests;
