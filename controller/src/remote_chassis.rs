//! Writes the chassis of nodes of other zones into this zone's southbound database: without them
//! OVN has no tunnels to other zones. What should be there is decided in
//! [`kinds::node::remote_chassis`](mod@crate::kinds::node::remote_chassis); this compares it with
//! the rows and writes the difference, at each change of either. An emptied database fills again.
//!
//! ovn-northd binds a node's port on the transit switch to its chassis since OVN 24.09. With older
//! ones this does, in the row that ovn-northd has made.
//!
//! Only rows with `is-remote` are removed, and a row without it is another node's own. A refused
//! row holds up no other one. A chassis that is refused or contested is written more and more
//! slowly. Nothing is written into the database of another zone.
//!
//! | module | what it is |
//! |---|---|
//! | `rows` | what is read of the database |
//! | `holders` | whose an address is that several nodes name |
//! | `difference` | what is not as it should be, and the transactions that write it |

mod difference;
mod holders;
mod rows;

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use contract::ovn::REMOTE_PORT;
use futures_util::FutureExt;
use kubeapi::election::Leadership;
use ovsdb::{Condition, Event, Monitor, TransactError, Updates, Where};
use tokio::{
    sync::watch,
    task::coop::unconstrained,
    time::{Instant, sleep_until},
};

use crate::{
    config::Zone,
    edit_pauses::EditPauses,
    engine::reconcile::Progress,
    remote_chassis::{
        difference::{batches, is_of_another, options},
        holders::Holders,
        rows::{ChassisRow, EncapRow, PortBindingRow, SbGlobalRow},
    },
    tunnels::RemoteChassis,
};

/// The chassis, the ends of their tunnels, the ports of other zones, and the database's own zone.
pub fn monitor() -> Monitor {
    Monitor::new()
        .table::<ChassisRow>(Where::all())
        .table::<EncapRow>(Where::all())
        .table::<PortBindingRow>(Condition::equal("type", REMOTE_PORT))
        .table::<SbGlobalRow>(Where::all())
}

/// Keeps the chassis of other zones.
#[derive(Debug)]
pub struct RemoteChassisWriter {
    /// Of [`monitor`].
    pub chassis: Updates,
    /// The zone of this controller.
    pub zone: Zone,
    /// None until the controller knows all nodes.
    pub wanted: watch::Receiver<Option<Arc<RemoteChassis>>>,
    pub leadership: Leadership,
    /// Of the controller, which knows whose the databases are.
    pub progress: watch::Receiver<Progress>,
}

impl RemoteChassisWriter {
    /// Works until the controller has ended.
    pub async fn run(mut self) {
        let mut retry: Option<Instant> = None;
        let (mut pauses, mut holders) = (EditPauses::default(), Holders::default());
        let mut may_write = false;
        let mut other_zone = None;
        loop {
            tokio::select! {
                event = self.chassis.next() => self.follow(event),
                () = self.leadership.changed() => {}
                changed = self.wanted.changed() => if changed.is_err() {
                    return;
                },
                // Without a sender, the controller has ended, and this is about to. It changes with
                // each transaction of the controller.
                Ok(()) = self.progress.changed() => if self.may_write() == may_write {
                    continue;
                },
                () = sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => {}
            }
            // The server sends what a transaction did before its answer.
            while let Some(event) = unconstrained(self.chassis.next()).now_or_never() {
                self.follow(event);
            }
            may_write = self.may_write();
            let zone = self.other_zone();
            if let Some(zone) = zone.as_ref().filter(|zone| other_zone.as_ref() != Some(*zone)) {
                let own = &*self.zone.0;
                tracing::warn!(
                    %zone, own,
                    "the southbound database is another zone's (SB_Global, options:name): it stays"
                );
            }
            other_zone = zone;
            let is_own = may_write && other_zone.is_none();
            retry = if is_own { self.write(&mut pauses, &mut holders).await } else { None };
        }
    }

    fn follow(&self, event: Event) {
        if let Event::Disconnected(reason) = event {
            tracing::debug!(%reason, "disconnected from the southbound database");
        }
    }

    fn may_write(&mut self) -> bool {
        let progress = self.progress.borrow_and_update();
        self.leadership.is_leader() && progress.own_cluster && progress.blocked.is_none()
    }

    /// The zone that the database is of, if it is another one.
    fn other_zone(&self) -> Option<String> {
        let zones = self.chassis.rows::<SbGlobalRow>().filter_map(|(_, row)| row.zone());
        zones.filter(|zone| **zone != *self.zone.0).map(str::to_owned).next()
    }

    /// The nodes of other zones that have addresses of tunnels in the database.
    fn found(&self) -> BTreeMap<IpAddr, Box<str>> {
        let rows = self.chassis.rows::<ChassisRow>().filter(|(_, chassis)| chassis.is_remote());
        let encaps = rows.flat_map(|(_, chassis)| {
            let rows = chassis.encaps.iter().filter_map(|row| self.chassis.row::<EncapRow>(*row));
            rows.filter_map(|encap| Some((encap.ip.parse().ok()?, chassis.hostname.clone())))
        });
        encaps.collect()
    }

    /// Writes what differs and may be written now. Returns when to look again.
    async fn write(&mut self, pauses: &mut EditPauses, holders: &mut Holders) -> Option<Instant> {
        let connection = self.chassis.connection()?.clone();
        let wanted = self.wanted.borrow_and_update().clone()?;
        let wanted = holders.decide(&wanted, || self.found());
        let now = Instant::now();
        pauses.forget(now);
        self.tell_taken(&wanted, pauses, now);
        let differences = self.differences(&wanted);
        let (resting, differences): (Vec<_>, Vec<_>) =
            differences.into_iter().partition(|edit| pauses.until(edit.name(), now).is_some());
        let later = resting.iter().filter_map(|edit| pauses.until(edit.name(), now)).min();
        if differences.is_empty() {
            return later;
        }
        for edit in &differences {
            pauses.edited(edit.name(), now);
        }
        let options = options(&wanted);
        let (mut written, mut refused) = (0, false);
        for batch in batches(&differences) {
            if !self.may_write() {
                break;
            }
            match self.send(&connection, &options, batch).await {
                Ok(()) => written += batch.len(),
                Err(TransactError::NotConnected(reason)) => {
                    tracing::debug!(%reason, "chassis of other zones wait for their database");
                    refused = true;
                    break;
                }
                // One of them is at fault: the others are written without it.
                Err(_) => {
                    for one in batch {
                        let sent =
                            self.send(&connection, &options, std::slice::from_ref(one)).await;
                        let Err(error) = sent else {
                            written += 1;
                            continue;
                        };
                        let chassis = &**one.name();
                        tracing::warn!(chassis, %error, "another zone's chassis cannot be written");
                        refused = true;
                    }
                }
            }
        }
        tracing::info!(written, "wrote chassis of other zones into the southbound database");
        let again = || differences.iter().filter_map(|edit| pauses.until(edit.name(), now));
        if refused { later.into_iter().chain(again()).min() } else { later }
    }

    /// Says which nodes name a chassis that another host's ovn-controller has here, as often as it
    /// would be written.
    fn tell_taken(&self, wanted: &RemoteChassis, pauses: &mut EditPauses, now: Instant) {
        for (_, chassis) in self.chassis.rows::<ChassisRow>() {
            let Some(tunnels) = wanted.wanted.get(&chassis.name) else { continue };
            if !is_of_another(chassis, tunnels) || pauses.until(&chassis.name, now).is_some() {
                continue;
            }
            pauses.edited(&chassis.name, now);
            let (name, node, host) = (&*chassis.name, &tunnels.node, &chassis.hostname);
            tracing::warn!(
                chassis = name, %node, %host,
                "a node of another zone names a chassis of this one, which stays as it is"
            );
        }
    }
}
