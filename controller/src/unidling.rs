//! Connections to idled Services: each becomes an event `NeedPods` on the Service, and the program
//! that idled it starts its pods again (as OpenShift's unidling controller does).
//!
//! ```text
//! ovn-controller ─▶ Controller_Event, southbound ─▶ the load balancer that it names, northbound ─▶ controller
//!                              ▲ deleted ◀─────────────────────────────────────────────────────────┘  │
//!                                                                        event NeedPods on the Service ◀┘
//! ```
//!
//! Columns follow ovn-sb(5), "Controller_Event TABLE". Nothing waits for this: where the southbound
//! database does not answer, idled Services stay idle, and everything else goes on. Knows nothing
//! of rows that this controller writes; which load balancers report connections,
//! `kinds/service/rows.rs` decides. While the controller may not write, because the databases are
//! another zone's or another cluster's, events stay.

use std::collections::HashSet;

use contract::{names::ServiceKey, ovn};
use kubeapi::election::Leadership;
use ovsdb::{
    Client, Condition, Endpoints, Event, Monitor, Options, Pairs, TransactError, Transaction,
    Updates, Uuid, Where,
};
use tokio::sync::{mpsc, watch};

use crate::{
    engine::{
        commit::fault::{Fault, classify},
        reconcile::Progress,
    },
    remove_node::SOUTHBOUND,
    watch_event::WatchEvent,
};

const CONTROLLER_EVENT: &str = "Controller_Event";
/// The only type of event that there is: a load balancer without backends got a packet.
const EMPTY: &str = "empty_lb_backends";

ovsdb::table! {
    /// An event of an ovn-controller. It counts repetitions in the same row until the row is
    /// deleted.
    struct ControllerEvent in "Controller_Event" {
        event_type: Box<str>,
        event_info: Pairs,
    }
}

/// Starts a client of the southbound database that follows its events. Returns at once.
pub fn connect(endpoints: Endpoints, options: Options) -> (Client, Updates) {
    Client::start(
        endpoints,
        SOUTHBOUND,
        Monitor::new().table::<ControllerEvent>(Where::all()),
        options,
    )
}

/// Reports connections to idled Services.
#[derive(Debug)]
pub struct Unidling {
    /// Of [`connect`].
    pub events: Updates,
    pub southbound: Client,
    pub northbound: Client,
    pub leadership: Leadership,
    /// Of the controller, which knows whose the databases are.
    pub progress: watch::Receiver<Progress>,
    /// To the controller, which knows the Services.
    pub observations: mpsc::WeakUnboundedSender<WatchEvent>,
}

impl Unidling {
    /// Reports for as long as it is polled. Only the leader does: all of them see the same events.
    pub async fn run(mut self) {
        let mut reported = HashSet::new();
        loop {
            tokio::select! {
                event = self.events.next() => if let Event::Disconnected(reason) = event {
                    tracing::debug!(%reason, "disconnected from the southbound database");
                },
                () = self.leadership.changed() => {}
                // Without a sender, the controller has ended, and this is about to.
                Ok(()) = self.progress.changed() => {}
            }
            if !self.leadership.is_leader() || !self.progress.borrow_and_update().is_own() {
                continue;
            }
            // A row that could not be deleted counts once.
            reported.retain(|row| self.events.row::<ControllerEvent>(*row).is_some());
            let new =
                self.events.rows::<ControllerEvent>().filter(|(row, _)| !reported.contains(row));
            let new: Vec<(Uuid, Option<Uuid>)> = new
                .filter(|(_, event)| *event.event_type == *EMPTY)
                .map(|(row, event)| (row, load_balancer(event)))
                .collect();
            for (row, load_balancer) in new {
                match self.report(row, load_balancer).await {
                    Ok(()) => drop(reported.insert(row)),
                    // The row is still there, and comes again with the next connection.
                    Err(TransactError::NotConnected(_)) => {}
                    Err(error) => {
                        reported.insert(row);
                        tracing::warn!(%error, "an event of the southbound database cannot be answered");
                    }
                }
            }
        }
    }

    /// Reports the event in the row, and deletes the row: the next packet to the Service is another
    /// event.
    async fn report(&self, row: Uuid, load_balancer: Option<Uuid>) -> Result<(), TransactError> {
        if let Some(load_balancer) = load_balancer
            && let Some(service) = self.service(load_balancer).await?
        {
            tracing::info!(%service, "a connection to an idled Service");
            // Without a receiver, this process is about to end.
            if let Some(controller) = self.observations.upgrade() {
                let _ = controller.send(WatchEvent::Connection(service));
            }
        }
        let mut answered = Transaction::new();
        answered.delete(CONTROLLER_EVENT, Condition::uuid(row));
        self.southbound.transact(answered).await.map(drop)
    }

    /// The Service of a load balancer; none if there is no such load balancer any more, or if it is
    /// another program's. Waits for the northbound database.
    async fn service(&self, load_balancer: Uuid) -> Result<Option<ServiceKey>, TransactError> {
        loop {
            let mut query = Transaction::new();
            let found =
                query.select("Load_Balancer", Condition::uuid(load_balancer), &["external_ids"]);
            match self.northbound.connected().await.transact(query).await {
                Ok(outcome) => {
                    let owner = outcome
                        .rows(found)
                        .first()
                        .and_then(|row| row.map("external_ids").remove(ovn::OWNER));
                    return Ok(owner.and_then(|owner| owner.parse().ok()));
                }
                Err(error) => match classify(&error) {
                    Fault::Connection => {}
                    Fault::Race(_)
                    | Fault::Operation(_)
                    | Fault::Unnamed
                    | Fault::Server
                    | Fault::Lock => {
                        return Err(error);
                    }
                },
            }
        }
    }
}

/// The load balancer of the northbound database that an event is about.
fn load_balancer(event: &ControllerEvent) -> Option<Uuid> {
    event.event_info.get("load_balancer")?.parse().ok()
}
