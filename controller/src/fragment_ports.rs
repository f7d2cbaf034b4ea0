//! Rules about ports and datagrams in fragments. On the datapath in user space an ACL sees no port
//! in a fragment; with `acl_ct_translation` (OVN 26.03) it reads the port of the tracked
//! connection. This sets the option for the whole zone as soon as one chassis has that datapath
//! (docs/decisions/rules-about-ports-and-fragments.md).
//!
//! ```text
//! ovn-controller ─▶ Chassis, southbound: other_config:datapath-type=netdev
//!                      └─▶ NB_Global, northbound: options:acl_ct_translation=true
//! ```
//!
//! Nothing waits for this. A value that somebody else has set stays, and the option stays when the
//! last such chassis is gone: ACLs mean the same with it.

use std::{collections::BTreeMap, time::Duration};

use kubeapi::election::Leadership;
use ovsdb::{
    Client, Condition, Event, Monitor, Mutation, Pairs, TransactError, Transaction, Updates, Where,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use crate::engine::reconcile::Progress;

const NB_GLOBAL: &str = "NB_Global";
/// Of `options` in `NB_Global` (ovn-nb(5)).
const OPTION: &str = "acl_ct_translation";
/// Of `other_config` in `Chassis` (ovn-sb(5)): the bridge's `datapath_type`.
const DATAPATH_TYPE: &str = "datapath-type";
/// The datapath in user space (ovs-vswitchd.conf.db(5)).
const USERSPACE: &str = "netdev";
/// Between two tries. The row is not there before ovn-northd has started once.
const RETRY: Duration = Duration::from_secs(30);

ovsdb::table! {
    struct Chassis in "Chassis" {
        other_config: Pairs,
    }
}

/// The chassis with the datapath in user space, and nothing else of the southbound database.
pub fn monitor() -> Monitor {
    let userspace = BTreeMap::from([(DATAPATH_TYPE, USERSPACE)]);
    Monitor::new().table::<Chassis>(Condition::includes("other_config", userspace))
}

/// Has ACLs see the ports of fragments.
#[derive(Debug)]
pub struct FragmentPorts {
    /// Of [`monitor`].
    pub chassis: Updates,
    pub northbound: Client,
    pub leadership: Leadership,
    /// Of the controller, which knows whose the databases are.
    pub progress: watch::Receiver<Progress>,
}

impl FragmentPorts {
    /// Works until the option has a value. Only the leader writes.
    pub async fn run(mut self) {
        let mut retry: Option<Instant> = None;
        loop {
            tokio::select! {
                event = self.chassis.next() => if let Event::Disconnected(reason) = event {
                    tracing::debug!(%reason, "disconnected from the southbound database");
                },
                () = self.leadership.changed() => {}
                // Without a sender, the controller has ended, and this is about to.
                Ok(()) = self.progress.changed() => {}
                () = sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => {}
            }
            if !self.leadership.is_leader() || !self.progress.borrow_and_update().is_own() {
                continue;
            }
            if self.chassis.rows::<Chassis>().next().is_none() {
                continue;
            }
            retry = match self.set().await {
                Ok(true) => return,
                Ok(false) => Some(Instant::now() + RETRY),
                Err(error) => {
                    tracing::debug!(%error, option = OPTION, "NB_Global cannot be written");
                    Some(Instant::now() + RETRY)
                }
            };
        }
    }

    /// Sets the option unless it has a value. Returns whether there is a row of options.
    async fn set(&self) -> Result<bool, TransactError> {
        let mut transaction = Transaction::new();
        // A key that the map has already keeps its value.
        let option = Mutation::insert("options", BTreeMap::from([(OPTION, "true")]));
        let set = transaction.mutate(NB_GLOBAL, Where::all(), vec![option]);
        let outcome = self.northbound.transact(transaction).await?;
        Ok(outcome.count(set) > 0)
    }
}
