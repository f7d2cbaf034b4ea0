//! The wait until a port works: ovs-vswitchd has given it a number, and ovn-controller has
//! installed its flows.
//!
//! Events of the database, judged by a pure function; no polling.

use std::collections::BTreeMap;

use contract::{
    external_ids,
    names::{IfName, IfaceId},
    wire::PortStatus,
};

use crate::bridge::{Interface, Plugged};

/// The state to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// A positive `ofport`.
    Ofport,
    /// `ovn-installed`, which ovn-controller sets once the port's flows are in place
    /// (ovn-controller(8)).
    OvnInstalled,
}

impl Goal {
    /// The server's status message when the goal is reached.
    pub fn news(self) -> PortStatus {
        match self {
            Self::Ofport => PortStatus::Numbered,
            Self::OvnInstalled => PortStatus::Installed,
        }
    }
}

/// Why the port cannot reach the goal any more.
#[derive(Debug, thiserror::Error)]
pub enum NotInstalled {
    #[error("ovs-vswitchd cannot use the device: {0}")]
    Device(String),
    #[error("port {0} was removed, by a newer sandbox of the pod or by an administrator")]
    Removed(IfName),
    #[error("port {port} belongs to {now} now")]
    Reassigned { port: String, now: String },
    #[error("lost the database of Open vSwitch")]
    Lost(#[from] ovsdb::Closed),
}

/// Waits until the port has reached the goal, or can no longer reach it.
///
/// # Errors
/// ovs-vswitchd cannot use the device, the port was removed or given to another logical port, or
/// the session with the database is lost.
pub async fn wait_for(
    goal: Goal,
    plugged: &mut Plugged,
    iface_id: &IfaceId,
) -> Result<(), NotInstalled> {
    let mut seen = false;
    loop {
        let row = match plugged.watch.row::<Interface>(plugged.interface) {
            Some(row) => Row::There(row),
            None if seen => Row::Gone,
            None => Row::NotYet,
        };
        if let Some(verdict) = judge(goal, row, &plugged.name, iface_id) {
            return verdict;
        }
        seen |= matches!(row, Row::There(_));
        plugged.watch.changed().await?;
    }
}

/// The row of the interface, as the monitor has it.
#[derive(Debug, Clone, Copy)]
enum Row<'a> {
    /// It may still arrive.
    NotYet,
    There(&'a Interface),
    /// It was there, and was removed.
    Gone,
}

/// Whether the wait is over.
fn judge(
    goal: Goal,
    row: Row<'_>,
    name: &IfName,
    iface_id: &IfaceId,
) -> Option<Result<(), NotInstalled>> {
    let Interface { name, ofport, error, external_ids } = match row {
        Row::NotYet => return None,
        Row::There(row) => row,
        Row::Gone => return Some(Err(NotInstalled::Removed(name.clone()))),
    };
    let state = PortState { name, ofport: *ofport, error: error.as_deref(), external_ids };
    match state.progress(iface_id.as_str()) {
        Ok(progress) => (progress >= goal.news()).then_some(Ok(())),
        Err(why) => Some(Err(why)),
    }
}

/// The columns of an Interface row that show the state of its port.
#[derive(Debug, Clone, Copy)]
pub struct PortState<'a> {
    pub name: &'a str,
    pub ofport: Option<i64>,
    pub error: Option<&'a str>,
    pub external_ids: &'a BTreeMap<String, String>,
}

impl PortState<'_> {
    /// How far the port of this logical port has come.
    ///
    /// # Errors
    /// Why it comes no farther: ovs-vswitchd cannot use the device, or the row belongs to another
    /// logical port.
    pub fn progress(&self, iface_id: &str) -> Result<PortStatus, NotInstalled> {
        let id = |key: &str| self.external_ids.get(key).map_or("", String::as_str);
        let bound_to = id(external_ids::IFACE_ID);
        // First of all: number and flows of a row that was taken over are another logical port's.
        if bound_to != iface_id {
            return Err(NotInstalled::Reassigned {
                port: self.name.to_owned(),
                now: format!("{bound_to:?}"),
            });
        }
        match (self.ofport, self.error) {
            (_, Some(error)) => Err(NotInstalled::Device(error.to_owned())),
            // ovs-vswitchd sets -1 for a device that it cannot open (ovs-vswitchd.conf.db(5)).
            (Some(..=0), None) => {
                Err(NotInstalled::Device("it gave the port no number and no reason".to_owned()))
            }
            (None, None) => Ok(PortStatus::Written),
            (Some(_), None) if id(external_ids::OVN_INSTALLED) == "true" => {
                Ok(PortStatus::Installed)
            }
            (Some(_), None) => Ok(PortStatus::Numbered),
        }
    }
}

#[cfg(test)]
mod tests;
